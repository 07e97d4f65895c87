"""Tensors to tensors: pooling and heads."""
