"""The one output type of encoders."""

from __future__ import annotations

from typing import NamedTuple

import torch


class HiddenStates(NamedTuple):
    """Outputs of some layers of an encoder for one batch.

    Attributes
    ----------
    layers : tuple of Tensor of shape (n_rows, n_pieces, hidden_size)
        One tensor for each layer that was asked for, in that order. Values at pads are
        undefined.
    mask : Tensor of shape (n_rows, n_pieces), bool
        True for real pieces.
    """

    layers: tuple[torch.Tensor, ...]
    mask: torch.Tensor

    def combine(self, how: str) -> torch.Tensor:
        """Mean, sum or concatenation of the layers, or each of them.

        Parameters
        ----------
        how : {"mean", "sum", "concat", "stack"}

        Returns
        -------
        Tensor of shape (n_rows, n_pieces, size)
            ``size`` is hidden_size, times the number of layers under "concat". Under
            "stack" the shape is (n_rows, n_pieces, n_layers, hidden_size).
        """
        if how == "stack":
            return torch.stack(self.layers, dim=2)
        if len(self.layers) == 1:
            return self.layers[0]
        if how == "concat":
            return torch.cat(self.layers, dim=-1)
        stacked = torch.stack([layer.float() for layer in self.layers])
        return stacked.mean(0) if how == "mean" else stacked.sum(0)
