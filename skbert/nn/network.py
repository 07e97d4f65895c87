"""An encoder with a head: windows of texts in, a row of outputs per text or word out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from skbert.nn.hidden_states import HiddenStates
from skbert.nn.pooling import pool_pieces, pool_runs


def pool_windows(
    states: torch.Tensor,
    mask: torch.Tensor,
    owned: torch.Tensor,
    text_of_window: torch.Tensor,
    n_texts: int,
    how: str,
) -> torch.Tensor:
    """Pool the pieces of all windows of a text to one vector.

    Parameters
    ----------
    states : Tensor of shape (n_windows, n_pieces, hidden_size)
    mask : Tensor of shape (n_windows, n_pieces), bool
        Real pieces.
    owned : Tensor of shape (n_windows, n_pieces), bool
        Pieces that count here, and not in an overlapping window.
    text_of_window : Tensor of shape (n_windows,), int64
    n_texts : int
    how : {"mean", "max", "first", "last"}
        The mean or maximum over all pieces, or the mean over the windows' first or last
        pieces.

    Returns
    -------
    Tensor of shape (n_texts, hidden_size), float32
        Zeros for a text without windows.
    """
    by_piece = how in {"mean", "max"}
    vectors = pool_pieces(states, owned if by_piece else mask, how)
    out = vectors.new_zeros(n_texts, vectors.shape[1])
    if how == "max":
        index = text_of_window.unsqueeze(1).expand_as(vectors)
        return out.scatter_reduce(0, index, vectors, "amax", include_self=False)
    counts = owned.sum(1) if how == "mean" else torch.ones_like(text_of_window)
    totals = torch.zeros(n_texts, dtype=counts.dtype, device=counts.device)
    totals = totals.index_add(0, text_of_window, counts)
    shares = (counts / totals[text_of_window]).unsqueeze(1).to(vectors.dtype)
    return out.index_add(0, text_of_window, vectors * shares)


class TextNetwork(nn.Module):
    """Encoder, pooling and head.

    Parameters
    ----------
    stack : Module
        The weights of the encoder, so that this module owns them.
    forward_encoder : callable
        A batch to HiddenStates with the last layer.
    how : {"mean", "max", "first", "last"}
        Pooling, see ``pool_windows``.
    head : Module
    """

    def __init__(self, stack: nn.Module, forward_encoder: Any, how: str, head: nn.Module):
        super().__init__()
        self.stack = stack
        self.head = head
        self.how = how
        self._forward_encoder = forward_encoder

    def vectors(self, batch: Any) -> torch.Tensor:
        """Pooled vectors of the texts of a batch, (n_texts, hidden_size)."""
        if batch.vectors is not None:
            return batch.vectors
        hidden: HiddenStates = self._forward_encoder(batch)
        return pool_windows(
            hidden.layers[0],
            hidden.mask,
            batch.owned,
            batch.text_of_window,
            batch.n_texts,
            self.how,
        )

    def forward(self, batch: Any) -> torch.Tensor:
        """Outputs of the head for the texts of a batch, (n_texts, n_outputs)."""
        return self.head(self.vectors(batch))


class WordNetwork(nn.Module):
    """Encoder, pooling to words, and a head over the words of each text.

    Parameters
    ----------
    stack : Module or None
        The weights of the encoder, so that this module owns them.
    forward_encoder : callable or None
        A batch to HiddenStates with the last layer. None where batches bring vectors.
    how : {"mean", "max", "first", "last"}
        From pieces to words.
    head : Module
        Takes the vectors of all words and the number of words of each text.
    """

    def __init__(
        self, stack: nn.Module | None, forward_encoder: Any, how: str, head: nn.Module
    ):
        super().__init__()
        self.stack = stack
        self.head = head
        self.how = how
        self._forward_encoder = forward_encoder

    def forward(self, batch: Any) -> torch.Tensor:
        """Outputs of the head, of those words of the batch that have pieces."""
        vectors = batch.vectors
        if vectors is None:
            states = self._forward_encoder(batch).layers[0]
            pieces = states.flatten(0, 1)[batch.pieces].float()
            vectors = pool_runs(pieces, batch.counts, self.how)
        return self.head(vectors, batch.lengths)


def set_dropout(model: nn.Module, dropout: float | None) -> float:
    """Put a dropout rate into an encoder, unless it is None; the rate for its head."""
    if dropout is None:
        config: Any = model.config
        names = ("classifier_dropout", "hidden_dropout_prob", "dropout", "dropout_rate")
        rates = [getattr(config, name, None) for name in names]
        return next((float(rate) for rate in rates if isinstance(rate, int | float)), 0.1)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, dropout)
    return dropout
