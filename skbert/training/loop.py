"""The one training loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from skbert.training.objectives import Objective
from skbert.training.schedule import rate_factor

# Dropout draws from torch's one generator of the process: two fits in two threads would
# take each other's numbers.
_generator_lock = threading.RLock()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of torch from a seed, and the caller's generators back afterwards."""
    devices = [device] if device.type == "cuda" else []
    with _generator_lock, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextmanager
def undisturbed(seed: int, device: torch.device) -> Iterator[None]:
    """`seeded`, and whatever modes the caller has set for torch switched off."""
    with (
        seeded(seed, device),
        torch.autocast(device.type, enabled=False),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


class Source(Protocol):
    """Training rows, ready to be read in any order."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray) -> Any:
        """What the network reads for these rows."""


@dataclass(frozen=True)
class TrainingOptions:
    """Controls of the loop; the estimators document them."""

    max_epochs: int
    warmup: float
    schedule: str
    max_grad_norm: float | None
    batch_size: int
    micro_batch_size: int | str | None
    n_iter_no_change: int
    dtype: torch.dtype


@dataclass
class Outcome:
    """What came of a training run.

    Attributes
    ----------
    history : list of dict
        One record per epoch.
    best_epoch : int
        Number of the epoch whose weights were kept, from 1.
    outputs : ndarray of shape (n_targets, n_outputs)
        What the network gave for the training rows in its last epoch, while learning, in
        the order in which they were read.
    diverged : bool
        Whether the loss, or what came of the training, was not finite.
    n_halved : int
        How often a micro-batch was halved for lack of memory.
    """

    history: list[dict[str, Any]]
    best_epoch: int = 0
    outputs: Any = None
    diverged: bool = False
    n_halved: int = 0


def train(
    network: nn.Module,
    source: Source,
    objective: Objective,
    groups: list[dict[str, Any]],
    options: TrainingOptions,
    *,
    rng: np.random.RandomState,
    device: torch.device,
    set_mode: Callable[[], None],
    validate: Callable[[], float] | None,
    on_epoch: Callable[[dict[str, Any]], bool],
    make_optimizer: Callable[..., torch.optim.Optimizer] | None = None,
) -> Outcome:
    """Fit a network to targets.

    Each step sums the losses of its rows and divides by their targets, however the rows are
    split into micro-batches, so that the split does not change the step.

    Parameters
    ----------
    network : Module
        Maps a batch of ``source`` to outputs, one row for each target of its rows.
    source : Source
    objective : Objective
    groups : list of dict
        Parameter groups with "initial_lr".
    options : TrainingOptions
    rng : RandomState
        Shuffles the rows.
    device : torch.device
    set_mode : callable
        Puts the network into training mode, frozen parts excepted.
    validate : callable or None
        Score of the network as it is; higher is better. With one, the best epoch's
        weights are restored, and training stops after ``n_iter_no_change`` epochs
        without a better one.
    on_epoch : callable
        Is told each record; True stops the training.
    make_optimizer : callable or None
        Takes the groups. None is AdamW.

    Returns
    -------
    Outcome
    """
    # Fused, a step of AdamW passes over the weights once, and on a CPU takes half the time.
    fused = device.type in {"cpu", "cuda"}
    make_optimizer = make_optimizer or partial(torch.optim.AdamW, fused=fused)
    optimizer = make_optimizer(groups)
    scaler = torch.amp.GradScaler(device.type, enabled=options.dtype == torch.float16)
    n_steps = max(1, -(-len(source) // options.batch_size) * options.max_epochs)
    trainable = [p for group in groups for p in group["params"]]
    outcome = Outcome(history=[])
    best: list[torch.Tensor] | None = None
    best_score = -np.inf
    micro = options.micro_batch_size
    micro_size = options.batch_size if micro in (None, "auto") else int(micro)
    step = 0
    for epoch in range(1, options.max_epochs + 1):
        set_mode()
        started = time.perf_counter()
        losses: list[torch.Tensor] = []
        order = rng.permutation(len(source))
        seen: dict[int, torch.Tensor] = {}
        for start in range(0, len(order), options.batch_size):
            rows = order[start : start + options.batch_size]
            factor = rate_factor(step, n_steps, options.warmup, options.schedule)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
            optimizer.zero_grad(set_to_none=True)
            n_targets = max(1, objective.count(rows))
            done, loss = 0, torch.zeros((), dtype=torch.float64, device=device)
            while done < len(rows):
                part = rows[done : done + micro_size]
                try:
                    # Without its cache, which lives as long as the outermost autocast: the
                    # weights of the first step would be used in all.
                    with torch.autocast(
                        device.type,
                        options.dtype,
                        enabled=options.dtype != torch.float32,
                        cache_enabled=False,
                    ):
                        outputs = network(source.batch(part))
                    summed = objective(outputs, part)
                    scaler.scale(summed / n_targets).backward()
                except torch.cuda.OutOfMemoryError:
                    if micro != "auto" or micro_size == 1:
                        raise
                    # The step starts again: parts of it may have been added already.
                    optimizer.zero_grad(set_to_none=True)
                    torch.cuda.empty_cache()
                    micro_size = -(-micro_size // 2)
                    outcome.n_halved += 1
                    done, loss = 0, torch.zeros_like(loss)
                    continue
                loss += summed.detach().double()
                seen[start + done] = outputs.detach()
                done += len(part)
            scaler.unscale_(optimizer)
            if options.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(trainable, options.max_grad_norm)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss)
            step += 1
        record: dict[str, Any] = {
            "epoch": epoch,
            "loss": float(torch.stack(losses).sum()) / max(1, objective.count(order)),
            "learning_rate": optimizer.param_groups[0]["lr"],
            "seconds": time.perf_counter() - started,
        }
        if not np.isfinite(record["loss"]):
            outcome.diverged = True
            outcome.history.append(record)
            break
        if validate is not None:
            network.eval()
            record["validation_score"] = validate()
        outcome.history.append(record)
        outcome.outputs = torch.cat([*seen.values()]).float().cpu().numpy()
        score = record.get("validation_score", float(epoch))
        if score > best_score:
            best_score, outcome.best_epoch = score, epoch
            if validate is not None:
                best = [parameter.detach().clone() for parameter in trainable]
        stale = epoch - outcome.best_epoch >= options.n_iter_no_change
        if on_epoch(record) or (validate is not None and stale):
            break
    if best is not None:
        with torch.no_grad():
            for parameter, value in zip(trainable, best, strict=True):
                parameter.copy_(value)
    network.eval()
    if not outcome.diverged:
        # What the last step did shows in no loss.
        outputs = evaluate(network, source, micro_size, n_rows=options.batch_size)
        outcome.diverged = not np.isfinite(outputs).all()
    return outcome


def evaluate(
    network: nn.Module, source: Source, batch_size: int, *, n_rows: int | None = None
) -> np.ndarray:
    """Outputs of a network in evaluation mode for the (first) rows of a source, float64."""
    parts = []
    end = len(source) if n_rows is None else min(n_rows, len(source))
    with torch.no_grad():
        for start in range(0, end, batch_size):
            rows = np.arange(start, min(start + batch_size, end))
            parts.append(network(source.batch(rows)).double().cpu().numpy())
    return np.concatenate(parts)
