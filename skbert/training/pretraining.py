"""The training of a biLM, and what it is worth."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from skbert.nn.bilm import Bilm
from skbert.nn.lstm import LSTMState
from skbert.nn.word_softmax import AdaptiveSoftmax, WordSoftmax
from skbert.training.schedule import rate_factor
from skbert.training.streams import Corpus, Stream, shuffled

# Words that are scored at a time: 20,000 scores each make 80 MB.
SCORED_AT_ONCE = 1000


@dataclass(frozen=True)
class PretrainingOptions:
    """Controls of the training; the estimator documents them."""

    max_epochs: int
    batch_size: int
    unroll_steps: int
    optimizer: str
    learning_rate: float
    warmup: float
    schedule: str
    max_grad_norm: float | None
    dropout: float
    n_iter_no_change: int


class Pretraining:
    """One run, which can be written down between any two steps and taken up again.

    Parameters
    ----------
    bilm : Bilm
    softmax : WordSoftmax or AdaptiveSoftmax
    corpus : Corpus
    options : PretrainingOptions
    seed : int
        Of the order of sentences, of dropout and of negative words.
    """

    def __init__(
        self,
        bilm: Bilm,
        softmax: WordSoftmax | AdaptiveSoftmax,
        corpus: Corpus,
        options: PretrainingOptions,
        *,
        seed: int,
    ) -> None:
        self.bilm, self.softmax = bilm, softmax
        self.corpus, self.options, self.seed = corpus, options, seed
        self.parameters = [*bilm.parameters(), *softmax.parameters()]
        self.device = self.parameters[0].device
        self.optimizer = self._make_optimizer()
        self.step = 0
        self.state = bilm.zero_state(options.batch_size)
        window = options.batch_size * options.unroll_steps
        self.n_steps_per_epoch = max(1, corpus.n_predictions // window)
        self.streams = [
            Stream(
                corpus,
                backward=bool(side),
                n_rows=options.batch_size,
                n_steps=options.unroll_steps,
                order=shuffled(len(corpus), np.random.RandomState([seed, side])),
            )
            for side in (0, 1)
        ]

    def _make_optimizer(self) -> torch.optim.Optimizer:
        rate = self.options.learning_rate
        if self.options.optimizer == "adagrad":
            return torch.optim.Adagrad(
                self.parameters, lr=rate, initial_accumulator_value=1.0
            )
        return torch.optim.Adam(self.parameters, lr=rate)

    def take_step(self) -> tuple[float, float]:
        """One window; the losses before it, of the forward and backward direction."""
        options = self.options
        n_steps = self.n_steps_per_epoch * options.max_epochs
        factor = rate_factor(self.step, n_steps, options.warmup, options.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = options.learning_rate * factor
        # Each step draws from a seed of its own, so that a run can be taken up at any.
        rng = np.random.default_rng([self.seed, 2, self.step])
        torch.manual_seed(int(rng.integers(2**63)))
        windows = [stream.window() for stream in self.streams]
        self.optimizer.zero_grad(set_to_none=True)
        losses = self._losses(windows, rng)
        loss = 0.5 * (losses[0] + losses[1])
        (options.unroll_steps * loss).backward()
        self.norm = None
        if options.max_grad_norm is not None:
            self.norm = nn.utils.clip_grad_norm_(self.parameters, options.max_grad_norm)
        self.optimizer.step()
        self.step += 1
        return losses[0].item(), losses[1].item()

    def _losses(
        self, windows: list[tuple[np.ndarray, np.ndarray]], rng: np.random.Generator
    ) -> list[torch.Tensor]:
        """Mean losses of both directions; the state moves on."""
        options = self.options
        read = np.concatenate([window.ravel() for window, _ in windows])
        vectors = embed(self.bilm, self.corpus, read).chunk(2)
        sizes = [options.batch_size] * options.unroll_steps
        losses, ends = [], []
        for side, (_, following) in enumerate(windows):
            outputs, end = self.bilm.run(
                side, vectors[side], sizes, self.state[side], dropout=options.dropout
            )
            top = outputs[-1]
            if options.dropout:
                top = nn.functional.dropout(top, options.dropout)
            targets = torch.from_numpy(self.corpus.targets[following.ravel()])
            losses.append(self.softmax(top, targets.to(self.device), rng).mean())
            ends.append(end)
        self.state = (ends[0], ends[1])
        return losses

    # ---- written down and taken up

    def recipe(self) -> str:
        """A digest of all that decides how the run goes."""
        hasher = hashlib.blake2b(repr((self.options, self.seed)).encode(), digest_size=20)
        for part in (self.corpus.words, self.corpus.ends, self.corpus.targets):
            hasher.update(np.ascontiguousarray(part).tobytes())
        for parameter in self.parameters:  # as they are at the start
            hasher.update(parameter.detach().cpu().numpy().tobytes())
        return hasher.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers that ``load_state_dict`` goes on from."""
        return {
            "step": self.step,
            "bilm": self.bilm.state_dict(),
            "softmax": self.softmax.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "state": [[tuple(layer) for layer in side] for side in self.state],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.bilm.load_state_dict(saved["bilm"])
        self.softmax.load_state_dict(saved["softmax"])
        self.optimizer.load_state_dict(saved["optimizer"])
        onward, backward = (
            [LSTMState(*(part.to(self.device) for part in layer)) for layer in side]
            for side in saved["state"]
        )
        self.state = (onward, backward)
        while self.step < saved["step"]:  # the streams move on, nothing is computed
            for stream in self.streams:
                stream.window()
            self.step += 1


@dataclass
class PretrainingOutcome:
    """What came of a run.

    Attributes
    ----------
    history : list of dict
        One record for each epoch.
    best_epoch : int
        Whose weights were kept, from 1.
    diverged : bool
        Whether the loss was not finite.
    """

    history: list[dict[str, Any]]
    best_epoch: int = 0
    diverged: bool = False


def pretrain(
    run: Pretraining,
    *,
    validate: Callable[[], float] | None,
    progress: Callable[[float], object],
    checkpoint: Callable[[Callable[[], dict[str, Any]], bool], object],
    resumed: dict[str, Any] | None = None,
) -> PretrainingOutcome:
    """All steps of a run.

    Parameters
    ----------
    run : Pretraining
    validate : callable or None
        Score of the weights as they are; higher is better. With one, the best epoch's
        weights are restored, and training stops after ``n_iter_no_change`` epochs
        without a better one.
    progress : callable
        Is told the loss of each step.
    checkpoint : callable
        Is offered what to go on from, made by the function that it gets, and whether an
        epoch has just ended.
    resumed : dict or None, default=None
        What a checkpoint held.
    """
    outcome = PretrainingOutcome(history=[])
    best: list[torch.Tensor] | None = None
    losses: list[float] = []
    seconds = 0.0
    if resumed is not None:
        run.load_state_dict(resumed["run"])
        outcome.history, outcome.best_epoch = resumed["history"], resumed["best_epoch"]
        best, losses, seconds = resumed["best"], resumed["losses"], resumed["seconds"]
    started = time.perf_counter() - seconds

    def snapshot() -> dict[str, Any]:
        return {
            "run": run.state_dict(),
            "history": outcome.history,
            "best_epoch": outcome.best_epoch,
            "best": best,
            "losses": losses,
            "seconds": time.perf_counter() - started,
        }

    for epoch in range(len(outcome.history) + 1, run.options.max_epochs + 1):
        while run.step < epoch * run.n_steps_per_epoch:
            losses.append(sum(run.take_step()) / 2)
            progress(losses[-1])
            checkpoint(snapshot, False)
        record: dict[str, Any] = {
            "epoch": epoch,
            "loss": float(np.mean(losses)),
            "learning_rate": run.optimizer.param_groups[0]["lr"],
            "seconds": time.perf_counter() - started,
        }
        outcome.history.append(record)
        losses = []
        started = time.perf_counter()
        if not np.isfinite(record["loss"]):
            outcome.diverged = True
            break
        if validate is not None:
            record["validation_score"] = validate()
        scores = [r.get("validation_score", float(r["epoch"])) for r in outcome.history]
        if scores[-1] > max(scores[:-1], default=-np.inf):
            outcome.best_epoch = epoch
            if validate is not None:
                best = [parameter.detach().clone() for parameter in run.parameters]
        if epoch - outcome.best_epoch >= run.options.n_iter_no_change and validate:
            break
        checkpoint(snapshot, True)
    if best is not None:
        with torch.no_grad():
            for parameter, value in zip(run.parameters, best, strict=True):
                parameter.copy_(value)
    return outcome


def embed(bilm: Bilm, corpus: Corpus, words: np.ndarray) -> torch.Tensor:
    """Vectors of words, (n_words, projection_dim), each distinct one computed once."""
    distinct, places = np.unique(words, return_inverse=True)
    device = next(bilm.parameters()).device
    rows = corpus.rows[distinct].astype(np.int64)
    groups = corpus.alphabet.by_length(rows, bilm.config.widest_filter)
    vectors = [
        bilm.token_encoder(torch.from_numpy(rows[at, :end]).to(device))
        for at, end in groups
    ]
    order = np.argsort(np.concatenate([at for at, _ in groups]))[places]
    return torch.cat(vectors)[torch.from_numpy(order).to(device)]


def word_losses(
    bilm: Bilm, softmax: WordSoftmax | AdaptiveSoftmax, corpus: Corpus, n_rows: int
) -> np.ndarray:
    """Losses of all predictions, (2, n_predictions), forward and backward.

    The sentences are read in ``n_rows`` parts side by side, each from zeros on.
    """
    n_rows = min(n_rows, len(corpus))
    device = next(bilm.parameters()).device
    out = np.empty((2, corpus.n_predictions))
    with torch.inference_mode():
        for side in (0, 1):
            parts = [
                [corpus.read(s, backward=bool(side)) for s in part]
                for part in np.array_split(np.arange(len(corpus)), n_rows)
            ]
            read = [np.concatenate([s[:-1] for s in part]) for part in parts]
            following = [np.concatenate([s[1:] for s in part]) for part in parts]
            lengths = np.array([len(row) for row in read])
            starts = np.cumsum(lengths) - lengths
            rows = np.argsort(-lengths, kind="stable")
            state = bilm.zero_state(n_rows)[side]
            width = max(1, SCORED_AT_ONCE // n_rows)
            for first in range(0, int(lengths.max()), width):
                steps = range(first, min(first + width, int(lengths.max())))
                active = [rows[lengths[rows] > step] for step in steps]
                sizes = [len(part) for part in active]
                at = [(r, step) for step, p in zip(steps, active, strict=True) for r in p]
                words = np.array([read[r][step] for r, step in at])
                targets = np.array([following[r][step] for r, step in at])
                vectors = embed(bilm, corpus, words)
                outputs, state = bilm.run(side, vectors, sizes, state)
                numbers = torch.from_numpy(corpus.targets[targets]).to(device)
                losses = softmax(outputs[-1], numbers).double().cpu().numpy()
                out[side, [starts[r] + step for r, step in at]] = losses
    return out
