"""Training an encoder and a head together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory

from skbert.estimators.base import TextEstimator
from skbert.estimators.params import Rule, a, boolean, integer, option, real
from skbert.estimators.training import (
    TRAINING_RULES,
    Places,
    TrainingMixin,
    count_trainable,
)
from skbert.text.report import ReadingReport, users_stacklevel

if TYPE_CHECKING:
    import torch
    from torch import nn

    from skbert.encoders.base import Encoder
    from skbert.encoders.prefix import Prefix
    from skbert.training.inference import ReadingOptions
    from skbert.training.loop import Outcome, Source
    from skbert.training.objectives import Objective


class FineTuner(TrainingMixin, TextEstimator):
    """Base of estimators that train an encoder and a head.

    Subclasses turn y into targets and outputs into predictions, and say what head stands
    on what source of rows; everything between is here.
    """

    encoder_: Any
    head_: Any

    _rules: ClassVar[dict[str, Rule]] = {
        **TRAINING_RULES,
        "model": a((str, os.PathLike), "a folder or the name of a model"),
        "frozen_layers": integer(0) | real(0, 1) | option("all"),
        "head_learning_rate": real(0) | option(None),
        "layer_decay": real(0, 1),
        "dropout": real(0, 1) | option(None),
        "max_length": integer(1) | option(None),
        "stride": integer(0),
        "gradient_checkpointing": boolean(),
        "memory": a((str, os.PathLike, Memory), "a folder, a joblib.Memory") | option(None),
    }

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        frozen_layers: int | float | str,
        max_epochs: int,
        learning_rate: float,
        head_learning_rate: float | None,
        layer_decay: float,
        weight_decay: float,
        warmup: float,
        schedule: str,
        max_grad_norm: float | None,
        batch_size: int,
        micro_batch_size: int | str | None,
        dropout: float | None,
        early_stopping: bool,
        validation_fraction: float,
        n_iter_no_change: int,
        max_length: int | None,
        stride: int,
        gradient_checkpointing: bool,
        memory: str | os.PathLike[str] | Memory | None,
        device: str,
        precision: str,
        warm_start: bool,
        random_state: int | np.random.RandomState | None,
        verbose: int,
    ) -> None:
        self.model = model
        self.frozen_layers = frozen_layers
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.layer_decay = layer_decay
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.schedule = schedule
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.micro_batch_size = micro_batch_size
        self.dropout = dropout
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.max_length = max_length
        self.stride = stride
        self.gradient_checkpointing = gradient_checkpointing
        self.memory = memory
        self.device = device
        self.precision = precision
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def _fit_network(
        self,
        rows: list[Any],
        make_head: Callable[[int, float], Any],
        make_objective: Callable[[Any, Any, torch.device], Objective],
        validation: tuple[list[Any], Callable[[Any, Any, np.ndarray], float]] | None,
        *,
        rng: np.random.RandomState,
        proceed: bool,
        max_epochs: int,
        given: tuple[Any, Any],
        places: Places,
    ) -> Outcome:
        """Train an encoder from its pretrained weights, and a head on it."""
        from skbert.encoders.loading import load_encoder
        from skbert.encoders.prefix import Prefix
        from skbert.encoders.vocabulary import restrict_vocabulary
        from skbert.nn.network import set_dropout
        from skbert.training.device import resolve_device, resolve_precision
        from skbert.training.loop import undisturbed
        from skbert.training.schedule import parameter_groups

        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        pretrained: Any = self.encoder_ if proceed else load_encoder(self.model)
        self.__dict__.update(self._resolve(pretrained))
        self._check_room(pretrained, rows)
        n_frozen = self._resolve_frozen_layers(pretrained.n_layers)
        report, held_report = ReadingReport(), ReadingReport()
        if not proceed and pretrained.traits.task_head is not None:
            warnings.warn(
                f"{type(self).__name__} found a {pretrained.traits.task_head} in "
                f"{str(self.model)!r}. Its head, trained for another task, is not used: a "
                "new one is trained for y.",
                UserWarning,
                stacklevel=users_stacklevel(),
            )

        with undisturbed(int(rng.randint(2**31 - 1)), device):
            encoder = pretrained.trainable(device)
            if self.gradient_checkpointing:
                encoder.enable_checkpointing(type(self).__name__)
            prefix = Prefix(encoder, n_frozen)
            dropout = set_dropout(encoder.model, self.dropout)
            head = make_head(encoder.hidden_size, dropout).to(device)
            known, new = self._start_head(head, pretrained, proceed)
            source: Any = self._source(rows, prefix, pretrained, device, report)
            held_out: Any = None
            if validation is not None:
                held_out = self._source(
                    validation[0], prefix, pretrained, device, held_report
                )
            self.n_frozen_layers_ = n_frozen
            self.n_trainable_parameters_ = count_trainable(encoder.model, head)
            if not n_frozen:
                ids = [s.ids() for s in (source, held_out) if s is not None]
                restrict_vocabulary(encoder.model, np.concatenate(ids))
            head_rate = self.head_learning_rate
            groups = parameter_groups(
                [
                    (parameter, prefix.depths[name])
                    for name, parameter in encoder.model.named_parameters()
                    if name in prefix.depths
                ]
                + [(parameter, encoder.n_layers) for parameter in known],
                new,
                n_layers=encoder.n_layers,
                learning_rate=self.learning_rate,
                head_learning_rate=self.learning_rate if head_rate is None else head_rate,
                layer_decay=self.layer_decay,
                weight_decay=self.weight_decay,
            )

            def set_mode() -> None:
                head.train()
                prefix.set_training()

            def snapshot() -> dict[str, Any]:
                return {"encoder_": encoder.snapshot(), "head_": head.arrays()}

            held = None
            if validation is not None:
                score = validation[1]
                held = held_out, lambda outputs: score(head, held_out, outputs)
            outcome = self._train(
                self._network(encoder, prefix, head),
                source,
                make_objective(head, source, device),
                groups,
                validation=held,
                set_mode=set_mode,
                snapshot=snapshot,
                max_epochs=max_epochs,
                given=given,
                rng=rng,
                device=device,
                dtype=dtype,
            )
        self.head_ = head.arrays()
        self.encoder_ = encoder.finished()
        self._report_training(report, held_report, places)
        return outcome

    def _report_training(
        self, report: ReadingReport, held_report: ReadingReport, places: Places
    ) -> None:
        """Tell once what could not be read, by the positions in X."""
        name, longest = type(self).__name__, self.encoder_.longest
        whole = ReadingReport()
        whole.add(report, [[at] for at in places.rows.tolist()])
        if places.held is not None:
            whole.add(held_report, [[at] for at in places.held.tolist()])
        else:
            n_held = 1 + max(held_report.cut | held_report.long_words, default=0)
            held_report.warn(f"{name}, of X_val,", self.max_length_, n_held, longest)
        whole.warn(name, self.max_length_, places.n_rows, longest)

    def _start_head(
        self, head: Any, pretrained: Encoder, proceed: bool
    ) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Put weights into a head from which training goes on, or that are pretrained.

        Returns the weights that learn as the top layer of the encoder does, and the others.
        """
        if proceed:
            self._go_on_from_fitted(head)
        return [], list(head.parameters())

    def _resolve_frozen_layers(self, n_layers: int) -> int:
        """Layers to freeze: a number from the bottom, a share, or all."""
        given: Any = self.frozen_layers
        if given == "all":
            return n_layers
        n_frozen = int(given) if isinstance(given, Integral) else round(given * n_layers)
        if n_frozen > n_layers:
            raise ValueError(
                f"The 'frozen_layers' parameter of {type(self).__name__} must be at most "
                f"{n_layers}, the layers of this model. Got {given}. Use 'all' to freeze "
                "the whole encoder."
            )
        return n_frozen

    def _windows(
        self,
        rows: list[Any],
        prefix: Prefix,
        pretrained: Encoder,
        device: torch.device,
        report: ReadingReport,
        options: ReadingOptions,
    ) -> tuple[list[Any], Any]:
        """Windows of the rows, and the output of the frozen layers if it can be kept."""
        import torch

        from skbert.training.source import encode_all

        encodings = encode_all(prefix.encoder, rows, options, report)
        if not prefix.can_resume():
            return encodings, None
        recipe = {"states of layer": prefix.n_frozen}
        store = self._open_store(pretrained, device, torch.float32, options, recipe)
        return encodings, prefix.keep(encodings, rows, store)

    def _source(
        self,
        rows: list[Any],
        prefix: Prefix,
        pretrained: Encoder,
        device: torch.device,
        report: ReadingReport,
    ) -> Source:
        """Rows in the form in which they are read in every epoch."""
        raise NotImplementedError

    def _network(self, encoder: Any, prefix: Prefix, head: Any) -> nn.Module:
        """Encoder and head as one module that maps batches of the source to outputs."""
        raise NotImplementedError
