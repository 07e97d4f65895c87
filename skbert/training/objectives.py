"""Losses, summed over the rows of a batch: whoever steps divides by the whole step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from skbert.nn.crf import CRF
from skbert.nn.ragged import to_padded

RowLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Objective(Protocol):
    """What a network is to learn of the training rows."""

    def count(self, rows: np.ndarray) -> int:
        """Targets that these rows hold: what the loss of a step is divided by."""

    def __call__(self, outputs: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        """Loss, summed over the targets of the rows that gave these outputs."""


class RowObjective:
    """One target, or one row of targets, for each row.

    Parameters
    ----------
    loss : callable
        Outputs and targets to the loss of each row.
    targets : ndarray, first axis n_rows
    weights : ndarray of shape (n_rows,)
    device : torch.device
    """

    def __init__(
        self, loss: RowLoss, targets: np.ndarray, weights: np.ndarray, device: torch.device
    ) -> None:
        self._loss = loss
        self._targets = torch.from_numpy(targets).to(device)
        self._weights = torch.from_numpy(weights).to(device)

    def count(self, rows: np.ndarray) -> int:
        return len(rows)

    def __call__(self, outputs: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        index = torch.from_numpy(rows).to(self._targets.device)
        weights = self._weights[index]
        each = self._loss(outputs.to(weights.dtype), self._targets[index])
        return (each * weights).sum()


class TagObjective:
    """One target for each word of each row.

    Parameters
    ----------
    targets : sequence of ndarray of shape (n_words,), int64
        Tag numbers; a row may have none.
    weights : ndarray of shape (n_rows,)
        Of the rows.
    tag_weights : ndarray of shape (n_tags,)
        Of the words, by their tags. A CRF, whose loss is that of a whole row, takes the
        mean over the row's words.
    label_smoothing : float
        As in `cross_entropy`; not for a CRF.
    crf : CRF or None
    device : torch.device
    """

    def __init__(
        self,
        targets: Sequence[np.ndarray],
        weights: np.ndarray,
        tag_weights: np.ndarray,
        label_smoothing: float,
        crf: CRF | None,
        device: torch.device,
    ) -> None:
        self._targets = targets
        by_word = [
            tag_weights[row] * weight for row, weight in zip(targets, weights, strict=True)
        ]
        # Only their ratios matter: with a mean of 1 the rate stays what it is.
        mean = float(np.concatenate(by_word).mean()) or 1.0
        self._weights = [row / mean for row in by_word]
        self._loss = cross_entropy(label_smoothing)
        self._crf = crf
        self._device = device

    def count(self, rows: np.ndarray) -> int:
        return sum(len(self._targets[row]) for row in rows)

    def __call__(self, outputs: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        rows = rows[[len(self._targets[row]) > 0 for row in rows]]
        if not len(rows):
            return outputs.sum() * 0.0
        targets = self._joined([self._targets[row] for row in rows])
        scores = outputs.float() if outputs.dtype != torch.float64 else outputs
        if self._crf is None:
            weights = self._joined([self._weights[row] for row in rows])
            return (self._loss(scores, targets) * weights.to(scores.dtype)).sum()
        lengths = torch.tensor([len(self._targets[row]) for row in rows])
        padded, mask = to_padded(scores, lengths)
        tags, _ = to_padded(targets, lengths)
        weights = self._joined([self._weights[row].mean(keepdims=True) for row in rows])
        each = self._crf.log_likelihood(padded, tags, mask)
        return -(each * weights.to(each.dtype)).sum()

    def _joined(self, parts: Sequence[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts)).to(self._device)


def cross_entropy(label_smoothing: float) -> RowLoss:
    """Loss of each row for one class of several.

    Targets are class numbers, (n_rows,). With smoothing e the target is 1 - e for the
    class and e / n_classes for all (Szegedy et al. 2016, section 7).
    """

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(
            logits, targets, reduction="none", label_smoothing=label_smoothing
        )

    return loss


def binary_cross_entropy(label_smoothing: float) -> RowLoss:
    """Loss of each row for any number of labels, the mean over the labels.

    Targets are 0 and 1, (n_rows, n_labels), drawn towards a half by smoothing.
    """

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        soft = targets * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, soft, reduction="none").mean(
            dim=1
        )

    return loss


def squared_error() -> RowLoss:
    """Squared error of each row, the mean over the targets, (n_rows, n_targets)."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.shape != targets.shape:  # would be broadcast in silence
            raise RuntimeError(f"Outputs {outputs.shape} and targets {targets.shape}.")
        return F.mse_loss(outputs, targets, reduction="none").mean(dim=1)

    return loss
