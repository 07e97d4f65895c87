"""Pretrained encoders behind one seam."""
