"""Rows of several lengths: one behind the other, or padded to a rectangle."""

from __future__ import annotations

import torch


def to_padded(
    values: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Put joined rows side by side, with zeros behind the short ones.

    Parameters
    ----------
    values : Tensor, first axis n_values
        All values of the first row, then of the second and so on.
    lengths : Tensor of shape (n_rows,), int64
        Values of each row; their sum is n_values.

    Returns
    -------
    padded : Tensor, first axes (n_rows, longest)
    mask : Tensor of shape (n_rows, longest), bool
        True where a value stands. ``padded[mask]`` is ``values`` again.
    """
    lengths = lengths.to(values.device)
    longest = int(lengths.max()) if len(lengths) else 0
    mask = torch.arange(longest, device=values.device) < lengths.unsqueeze(1)
    padded = values.new_zeros((len(lengths), longest, *values.shape[1:]))
    padded[mask] = values
    return padded, mask
