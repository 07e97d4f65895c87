"""Losses, summed over the rows of a batch: whoever steps divides by the whole step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Objective = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(label_smoothing: float) -> Objective:
    """Loss of each row for one class of several.

    Targets are class numbers, (n_rows,). With smoothing e the target is 1 - e for the
    class and e / n_classes for all (Szegedy et al. 2016, section 7).
    """

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(
            logits, targets, reduction="none", label_smoothing=label_smoothing
        )

    return loss


def binary_cross_entropy(label_smoothing: float) -> Objective:
    """Loss of each row for any number of labels, the mean over the labels.

    Targets are 0 and 1, (n_rows, n_labels), drawn towards a half by smoothing.
    """

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        soft = targets * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, soft, reduction="none").mean(
            dim=1
        )

    return loss


def squared_error() -> Objective:
    """Squared error of each row, the mean over the targets, (n_rows, n_targets)."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.shape != targets.shape:  # would be broadcast in silence
            raise RuntimeError(f"Outputs {outputs.shape} and targets {targets.shape}.")
        return F.mse_loss(outputs, targets, reduction="none").mean(dim=1)

    return loss
