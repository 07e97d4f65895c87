"""Strings to padded integers: checking, windows, batches. No torch here."""
