"""How fast which weights learn, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import nn


def rate_factor(step: int, n_steps: int, warmup: float, schedule: str) -> float:
    """Share of the full learning rate at a step.

    Parameters
    ----------
    step : int
        From 0 to n_steps - 1.
    n_steps : int
    warmup : float
        Share of the steps in which the rate rises from 0 in a line.
    schedule : {"linear", "cosine", "constant"}
        What follows: a line to 0, half a cosine to 0, or the full rate.
    """
    n_warmup = warmup * n_steps
    if step < n_warmup:
        return (step + 1) / (n_warmup + 1)
    if schedule == "constant":
        return 1.0
    progress = (step - n_warmup) / max(n_steps - n_warmup, 1)
    if schedule == "linear":
        return 1.0 - progress
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def parameter_groups(
    encoder: Iterable[tuple[nn.Parameter, int]],
    head: Iterable[nn.Parameter],
    *,
    n_layers: int,
    learning_rate: float,
    head_learning_rate: float,
    layer_decay: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Groups for an optimizer: a rate for each depth, with and without weight decay.

    Parameters
    ----------
    encoder : iterable of (Parameter, int)
        Pretrained weights with their depth: 0 the embeddings, n_layers the top layer.
    head : iterable of Parameter
        New weights.
    n_layers : int
    learning_rate : float
        Rate of the top layer; a layer d below it has ``layer_decay ** d`` of that (Howard
        and Ruder 2018, section 3.2).
    head_learning_rate : float
    layer_decay : float
    weight_decay : float
        Of matrices and tables; norms and biases are not pulled towards zero.

    Returns
    -------
    list of dict
        Weights that require gradients, each in one group.
    """
    rated = [
        (parameter, learning_rate * layer_decay ** (n_layers - depth))
        for parameter, depth in encoder
    ]
    rated += [(parameter, head_learning_rate) for parameter in head]
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter, rate in rated:
        if parameter.requires_grad:
            decay = weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "initial_lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
