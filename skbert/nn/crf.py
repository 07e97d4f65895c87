"""Linear-chain conditional random field (CRF), and Viterbi decoding without one.

The score of a path of tags is the sum of its emissions, of the transitions between
neighbours, and of a start and an end score; its likelihood is exp(score) over the sum of
that over all paths. A mask marks the real positions of each row, which come first; rows may
be empty. All sums are in float32 at least, whatever the emissions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

Allowed: TypeAlias = "tuple[Any, Any, Any]"

# Emissions below are taken as impossible all the same, so that log(0) may be decoded.
_LOWEST = -1e6
# exp(-1000) is 0 in float32 and float64: what costs more leaves no trace in a marginal.
_VANISHING = 1000.0
# With transitions so far apart at most, no probability that matters underflows float32.
_SCALED_RANGE = 40.0


class CRF(nn.Module):
    """Learned start, end and transition scores over emissions.

    New scores are 0, so that an untrained CRF is a softmax at every position.

    Parameters
    ----------
    n_tags : int
    allowed : tuple of (transitions, start, end) or None, default=None
        Boolean, of shapes (n_tags, n_tags), (n_tags,) and (n_tags,): what
        ``skbert.text.tags.allowed_transitions`` gives. Used by `decode` and `marginals`
        only: training data may hold what is forbidden, and its likelihood stays finite.

    Attributes
    ----------
    transitions : Parameter of shape (n_tags, n_tags)
        From the tag of the row to the tag of the column.
    start, end : Parameter of shape (n_tags,)

    References
    ----------
    Lafferty, McCallum and Pereira (2001), Conditional random fields, ICML.

    Examples
    --------
    >>> import torch
    >>> from skbert.nn.crf import CRF
    >>> emissions = torch.tensor([[[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> CRF(2).decode(emissions, mask)
    tensor([[ 1,  0, -1]])
    """

    def __init__(self, n_tags: int, allowed: Allowed | None = None) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(n_tags, n_tags))
        self.start = nn.Parameter(torch.zeros(n_tags))
        self.end = nn.Parameter(torch.zeros(n_tags))
        shapes = [(n_tags, n_tags), (n_tags,), (n_tags,)]
        if allowed is None:
            masks = [torch.ones(shape, dtype=torch.bool) for shape in shapes]
        else:
            masks = [torch.from_numpy(np.array(part, dtype=bool)) for part in allowed]
        if [tuple(part.shape) for part in masks] != shapes:
            raise ValueError(
                f"allowed must have the shapes {shapes} for {n_tags} tags. Got "
                f"{[tuple(part.shape) for part in masks]}."
            )
        self.allowed_transitions: torch.Tensor
        self.allowed_start: torch.Tensor
        self.allowed_end: torch.Tensor
        self.register_buffer("allowed_transitions", masks[0])
        self.register_buffer("allowed_start", masks[1])
        self.register_buffer("allowed_end", masks[2])

    def log_likelihood(
        self, emissions: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Logarithm of the probability of each row's tags, without constraints.

        Parameters
        ----------
        emissions : Tensor of shape (n_rows, n_words, n_tags)
        tags : Tensor of shape (n_rows, n_words), int64
            Anything may stand at pads.
        mask : Tensor of shape (n_rows, n_words), bool

        Returns
        -------
        Tensor of shape (n_rows,)
            0 for an empty row.
        """
        emissions, mask, length = _prepare(emissions, mask)
        transitions, start, end = self._scores(emissions)
        score = _path_score(emissions, tags, mask, length, transitions, start, end)
        # autocast would multiply in bfloat16
        with torch.autocast(emissions.device.type, enabled=False):
            total = _log_partition(emissions, mask, length, transitions, start, end)
        return torch.where(length > 0, score - total, 0.0)

    def path_score(
        self, emissions: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Score of each row's tags, of shape (n_rows,); parameters as `log_likelihood`."""
        emissions, mask, length = _prepare(emissions, mask)
        scores = self._scores(emissions)
        return _path_score(emissions, tags, mask, length, *scores)

    @torch.no_grad()
    def decode(self, emissions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Best path of each row among those allowed.

        Parameters
        ----------
        emissions : Tensor of shape (n_rows, n_words, n_tags)
        mask : Tensor of shape (n_rows, n_words), bool

        Returns
        -------
        Tensor of shape (n_rows, n_words), int64
            -1 at pads.
        """
        return viterbi(emissions, mask, *self._constrained())

    @torch.no_grad()
    def marginals(self, emissions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Probability of each tag at each position, over all paths allowed.

        Parameters
        ----------
        emissions : Tensor of shape (n_rows, n_words, n_tags)
        mask : Tensor of shape (n_rows, n_words), bool

        Returns
        -------
        Tensor of shape (n_rows, n_words, n_tags)
            Sums to 1 at every position, 0 at pads.
        """
        emissions, mask, _ = _prepare(emissions, mask)
        if not mask.numel():
            return emissions
        scores = [part.to(emissions.dtype) for part in self._constrained()]
        emissions, transitions, start, end = _centre(emissions, *scores)
        before = _forward(emissions, transitions, start)
        after = [end.expand_as(before[-1])]
        for at in range(emissions.shape[1] - 1, 0, -1):
            onward = (after[-1] + emissions[:, at]).unsqueeze(1) + transitions
            onward = onward.logsumexp(dim=2)
            after.append(torch.where(mask[:, at, None], onward, end))
        both = torch.stack(before, dim=1) + torch.stack(after[::-1], dim=1)
        return both.softmax(dim=2).masked_fill(~mask.unsqueeze(2), 0.0)

    def _scores(self, like: torch.Tensor) -> list[torch.Tensor]:
        return [part.to(like.dtype) for part in (self.transitions, self.start, self.end)]

    def _constrained(self) -> list[torch.Tensor]:
        """Scores, -inf where forbidden."""
        return [
            self.transitions.masked_fill(~self.allowed_transitions, -torch.inf),
            self.start.masked_fill(~self.allowed_start, -torch.inf),
            self.end.masked_fill(~self.allowed_end, -torch.inf),
        ]


@torch.no_grad()
def viterbi(
    emissions: torch.Tensor,
    mask: torch.Tensor,
    transitions: Any = None,
    start: Any = None,
    end: Any = None,
) -> torch.Tensor:
    """Path of the highest score in each row.

    With log-probabilities of a softmax as emissions and with allowed transitions this is
    the likeliest path that keeps the rules.

    Parameters
    ----------
    emissions : Tensor of shape (n_rows, n_words, n_tags)
    mask : Tensor of shape (n_rows, n_words), bool
    transitions : array of shape (n_tags, n_tags) or None, default=None
        Scores, -inf where forbidden; or bool, True where allowed. None: all are 0.
    start, end : array of shape (n_tags,) or None, default=None
        Likewise.

    Returns
    -------
    Tensor of shape (n_rows, n_words), int64
        -1 at pads. A row that has no allowed path gets one with as few forbidden steps as
        can be. Among equals the lower tag wins, from the end of the row backwards.

    Examples
    --------
    >>> import torch
    >>> from skbert.nn.crf import viterbi
    >>> from skbert.text.tags import allowed_transitions
    >>> probabilities = torch.tensor([[[0.5, 0.1, 0.4], [0.2, 0.1, 0.7]]])
    >>> mask = torch.ones(1, 2, dtype=torch.bool)
    >>> viterbi(probabilities.log(), mask)
    tensor([[0, 2]])
    >>> viterbi(probabilities.log(), mask, *allowed_transitions(["O", "B", "I"], "IOB2"))
    tensor([[0, 0]])
    """
    emissions, mask, length = _prepare(emissions, mask)
    n_rows, n_words, n_tags = emissions.shape
    if not mask.numel():
        return mask.long()
    transitions = _to_scores(transitions, (n_tags, n_tags), emissions)
    start = _to_scores(start, (n_tags,), emissions)
    end = _to_scores(end, (n_tags,), emissions)
    emissions, transitions, start, end = _centre(emissions, transitions, start, end)

    scores = [start + emissions[:, 0]]
    for emission in emissions.transpose(0, 1).contiguous()[1:]:
        scores.append((scores[-1].unsqueeze(2) + transitions).amax(dim=1) + emission)

    # The way back looks for the best tag before the one chosen only: cheaper than to note
    # the best before every tag on the way there.
    rows = torch.arange(n_rows, device=emissions.device)
    ending = torch.stack(scores)[(length - 1).clamp(min=0), rows]
    last = (ending + end).argmax(dim=1)
    path = [last]
    incoming = transitions.T.contiguous()
    for at in range(n_words - 2, -1, -1):
        before = (scores[at] + incoming[path[-1]]).argmax(dim=1)
        path.append(torch.where(mask[:, at + 1], before, last))
    return torch.stack(path[::-1], dim=1).masked_fill(~mask, -1)


def _prepare(
    emissions: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Emissions in float32 or float64 and 0 at pads, the mask, and lengths (n_rows,)."""
    mask = mask.bool()
    if emissions.dtype != torch.float64:
        emissions = emissions.float()
    emissions = emissions.masked_fill(~mask.unsqueeze(2), 0.0)
    return emissions, mask, mask.sum(dim=1)


def _to_scores(given: Any, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    if given is None:
        return like.new_zeros(shape)
    if not isinstance(given, torch.Tensor):
        given = torch.from_numpy(np.array(given))  # a copy: the array may be read-only
    given = given.to(like.device)
    if given.dtype == torch.bool:
        return like.new_zeros(shape).masked_fill(~given, -torch.inf)
    return given.to(like.dtype)


def _centre(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Scores for a search: near 0, and finite where forbidden.

    All paths of a row lose as much, so that their order and their shares stay, and long
    rows keep their digits. What is forbidden costs more than any path can gain: rows that
    have an allowed path come out as with -inf, the others without NaN.
    """
    emissions = emissions.clamp(min=_LOWEST)
    emissions = emissions - emissions.amax(dim=2, keepdim=True)
    parts = [transitions, start, end]
    forbidden = [torch.isneginf(part) for part in parts]
    parts = [part.masked_fill(no, 0.0) for part, no in zip(parts, forbidden, strict=True)]
    parts = [part - part.amax() for part in parts]
    dearest = emissions.amin(dim=2).sum(dim=1).amin()
    dearest = dearest + (emissions.shape[1] + 1) * sum(part.amin() for part in parts)
    price = dearest - _VANISHING
    return (
        emissions,
        *(torch.where(no, price, part) for part, no in zip(parts, forbidden, strict=True)),
    )


def _path_score(
    emissions: torch.Tensor,
    tags: torch.Tensor,
    mask: torch.Tensor,
    length: torch.Tensor,
    transitions: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """Score of each row's tags, (n_rows,)."""
    if not emissions.shape[1]:
        return emissions.sum(dim=(1, 2))
    tags = tags.masked_fill(~mask, 0)
    score = emissions.gather(2, tags.unsqueeze(2)).squeeze(2).sum(dim=1)
    steps = transitions[tags[:, :-1], tags[:, 1:]]
    score = score + steps.masked_fill(~mask[:, 1:], 0.0).sum(dim=1)
    last = tags.gather(1, (length - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    return torch.where(length > 0, score + start[tags[:, 0]] + end[last], 0.0)


def _log_partition(
    emissions: torch.Tensor,
    mask: torch.Tensor,
    length: torch.Tensor,
    transitions: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """Logarithm of the sum over all paths, (n_rows,); anything finite for empty rows."""
    if not emissions.shape[1]:
        return emissions.sum(dim=(1, 2))
    spread = [part.detach() for part in (transitions, start, end)]
    spread = [part.amax() - part.amin() for part in spread]
    if bool(torch.stack(spread).amax() <= _SCALED_RANGE):
        return _scaled_log_partition(emissions, mask, length, transitions, start, end)
    rows = torch.arange(len(emissions), device=emissions.device)
    sums = torch.stack(_forward(emissions, transitions, start))
    return (sums[(length - 1).clamp(min=0), rows] + end).logsumexp(dim=1)


def _scaled_log_partition(
    emissions: torch.Tensor,
    mask: torch.Tensor,
    length: torch.Tensor,
    transitions: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """The same by probabilities that are scaled to sum 1 at every step.

    One product of matrices a step, where logarithms need an exponential for every row and
    pair of tags: several times faster.
    """
    top = emissions.detach().amax(dim=2)
    top_start, top_move, top_end = (p.detach().amax() for p in (start, transitions, end))
    factors = (emissions - top.unsqueeze(2)).exp().transpose(0, 1).contiguous().unbind()
    move = (transitions - top_move).exp()
    states: list[torch.Tensor] = []
    sums: list[torch.Tensor] = []
    arriving = (start - top_start).exp()
    for factor in factors:
        state = arriving * factor
        sums.append(state.sum(dim=1, keepdim=True))
        states.append(state / sums[-1])
        arriving = states[-1] @ move
    rows = torch.arange(len(emissions), device=emissions.device)
    last = (length - 1).clamp(min=0)
    ending = torch.stack(states)[last, rows] @ (end - top_end).exp()
    scale = (torch.cat(sums, dim=1).log() + top).masked_fill(~mask, 0.0).sum(dim=1)
    return ending.log() + scale + (last * top_move + top_start + top_end)


def _forward(
    emissions: torch.Tensor, transitions: torch.Tensor, start: torch.Tensor
) -> list[torch.Tensor]:
    """Log of the sum over all paths to each tag; n_words tensors (n_rows, n_tags)."""
    incoming = transitions.T.contiguous()
    sums = [start + emissions[:, 0]]
    for at in range(1, emissions.shape[1]):
        arriving = (sums[-1].unsqueeze(1) + incoming).logsumexp(dim=2)
        sums.append(arriving + emissions[:, at])
    return sums
