"""From pieces to one vector per text or per word, never looking at a pad.

Every function finds its pieces by the mask, so it does not matter on which side a batch was
padded, and sums in float32 whatever the states are.
"""

from __future__ import annotations

import torch


def pool_pieces(states: torch.Tensor, mask: torch.Tensor, how: str) -> torch.Tensor:
    """Pool pieces to texts.

    Parameters
    ----------
    states : Tensor of shape (n_rows, n_pieces, hidden_size)
    mask : Tensor of shape (n_rows, n_pieces), bool
        Pieces that count; at least one in every row.
    how : {"mean", "max", "first", "last"}

    Returns
    -------
    Tensor of shape (n_rows, hidden_size), float32
    """
    if how == "mean":
        weights = mask.unsqueeze(-1)
        summed = states.float().masked_fill(~weights, 0.0).sum(dim=1)
        return summed / mask.sum(dim=1, keepdim=True)
    if how == "max":
        return states.float().masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1)
    rows = torch.arange(len(states), device=states.device)
    if how == "first":
        position = mask.int().argmax(dim=1)
    else:
        position = mask.shape[1] - 1 - mask.int().flip(1).argmax(dim=1)
    return states[rows, position].float()


def pool_words(
    states: torch.Tensor, word_index: torch.Tensor, how: str
) -> tuple[torch.Tensor, ...]:
    """Pool pieces to the words that have any.

    Parameters
    ----------
    states : Tensor of shape (n_rows, n_pieces, ..., hidden_size)
    word_index : Tensor of shape (n_rows, n_pieces), int64
        Word of each piece, -1 for a piece that counts for none.
    how : {"mean", "max", "first", "last"}

    Returns
    -------
    vectors : Tensor of shape (n_words, ..., hidden_size), float32
        Row by row, words in order; words without pieces are not among them.
    rows : Tensor of shape (n_words,), int64
    words : Tensor of shape (n_words,), int64
        Where each vector belongs.
    counts : Tensor of shape (n_words,), int64
        Pieces of each word.
    """
    row_index, position = (word_index >= 0).nonzero(as_tuple=True)
    pieces = states[row_index, position].float()
    words = word_index[row_index, position]
    starts = torch.ones_like(words, dtype=torch.bool)
    starts[1:] = (words[1:] != words[:-1]) | (row_index[1:] != row_index[:-1])
    first = starts.nonzero().squeeze(1)
    group = starts.cumsum(0) - 1
    counts = torch.bincount(group, minlength=len(first))
    return pool_runs(pieces, counts, how), row_index[first], words[first], counts


def pool_runs(pieces: torch.Tensor, counts: torch.Tensor, how: str) -> torch.Tensor:
    """Pool each run of pieces to one vector.

    Parameters
    ----------
    pieces : Tensor of shape (n_pieces, ..., hidden_size)
        Those of the first run, then of the second and so on.
    counts : Tensor of shape (n_runs,), int64
        Pieces of each run, at least one.
    how : {"mean", "max", "first", "last"}

    Returns
    -------
    Tensor of shape (n_runs, ..., hidden_size)
    """
    ends = counts.cumsum(0)
    if how == "first":
        return pieces[ends - counts]
    if how == "last":
        return pieces[ends - 1]
    group = torch.repeat_interleave(torch.arange(len(counts), device=ends.device), counts)
    vectors = pieces.new_zeros((len(counts), *pieces.shape[1:]))
    ones = [1] * (pieces.ndim - 1)
    if how == "mean":
        return vectors.index_add(0, group, pieces) / counts.view(-1, *ones)
    index = group.view(-1, *ones).expand_as(pieces)
    return vectors.scatter_reduce(0, index, pieces, "amax", include_self=False)
