"""Training a word table by the rows that the texts use.

A vocabulary of 30,000 pieces is half of a small model, and a few hundred texts read a
twentieth of it. The other rows have no gradient: all that an optimizer does to them, step
after step, is weight decay.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class RowsInUse(nn.Module):
    """Stands in for an embedding while it is trained; takes the same ids.

    Parameters
    ----------
    table : Embedding
    ids : ndarray of int
        All that will be looked up.
    """

    used: torch.Tensor
    lookup: torch.Tensor

    def __init__(self, table: nn.Embedding, ids: np.ndarray) -> None:
        super().__init__()
        used = torch.from_numpy(np.unique(ids).astype(np.int64)).to(table.weight.device)
        lookup = torch.zeros(len(table.weight), dtype=torch.int64, device=used.device)
        lookup[used] = torch.arange(len(used), device=used.device)
        self.register_buffer("used", used)
        self.register_buffer("lookup", lookup)
        # One row more, of ones, which nobody reads: it ends as the product of all decays.
        rows = table.weight.detach()[used]
        self.weight = nn.Parameter(torch.cat([rows, torch.ones_like(rows[:1])]))
        self.weight.requires_grad_(table.weight.requires_grad)
        pad = table.padding_idx
        self._pad = int(lookup[pad]) if pad is not None and pad in used else None
        self._table = [table]  # in a list, so that its weights are not part of the module

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(self.lookup[ids], self.weight, self._pad)

    @torch.no_grad()
    def whole(self) -> nn.Embedding:
        """The embedding with what was learnt."""
        table = copy.deepcopy(self._table[0])
        table.weight.mul_(self.weight[-1, 0])
        table.weight[self.used] = self.weight[:-1]
        return table


def restrict_vocabulary(model: Any, ids: np.ndarray) -> None:
    """Train no more of a model's word table than these ids, if it trains it at all."""
    table = model.get_input_embeddings()
    if type(table) is nn.Embedding and table.weight.requires_grad:
        model.set_input_embeddings(RowsInUse(table, ids))


def restore_vocabulary(model: Any) -> None:
    """Put the whole word table back."""
    table = model.get_input_embeddings()
    if isinstance(table, RowsInUse):
        model.set_input_embeddings(table.whole())
