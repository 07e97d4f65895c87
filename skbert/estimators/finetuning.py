"""What the fine-tuning estimators share: parameters, training, vectors and outputs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from skbert.estimators.base import TextEstimator
from skbert.estimators.callbacks import CallbackSupportMixin, EpochTasks
from skbert.estimators.params import (
    Rule,
    a,
    boolean,
    integer,
    option,
    real,
    sequence_of_ints,
)
from skbert.text.report import ReadingReport, users_stacklevel

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags

    from skbert.encoders.base import Encoder
    from skbert.encoders.prefix import Prefix
    from skbert.training.loop import Outcome, Source
    from skbert.training.objectives import Objective


class FineTuner(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, TextEstimator
):
    """Base of estimators that train an encoder and a head together.

    Subclasses turn y into targets and outputs into predictions; everything between is
    here.
    """

    encoder_: Any
    head_: list[tuple[np.ndarray, np.ndarray]]

    _rules: ClassVar[dict[str, Rule]] = {
        "model": a((str, os.PathLike), "a folder or the name of a model"),
        "frozen_layers": integer(0) | real(0, 1) | option("all"),
        "max_epochs": integer(1),
        "learning_rate": real(0),
        "head_learning_rate": real(0) | option(None),
        "layer_decay": real(0, 1),
        "weight_decay": real(0),
        "warmup": real(0, 1),
        "schedule": option("linear", "cosine", "constant"),
        "max_grad_norm": real(0) | option(None),
        "batch_size": integer(1),
        "micro_batch_size": integer(1) | option("auto", None),
        "pooling": option("auto", "mean", "cls", "max", "last"),
        "hidden_layer_sizes": sequence_of_ints(empty=True),
        "dropout": real(0, 1) | option(None),
        "early_stopping": boolean(),
        "validation_fraction": real(0, 1),
        "n_iter_no_change": integer(1),
        "max_length": integer(1) | option(None),
        "long_text": option("truncate", "head_tail", "windows"),
        "stride": integer(0),
        "warm_start": boolean(),
        "gradient_checkpointing": boolean(),
        "memory": a((str, os.PathLike, Memory), "a folder, a joblib.Memory") | option(None),
        "device": a(str, "'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'"),
        "precision": option("auto", "float32", "bfloat16", "float16"),
        "verbose": integer(0) | boolean(),
    }

    def __init__(
        self,
        model: str | os.PathLike[str] = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        frozen_layers: int | float | str = 0,
        max_epochs: int = 5,
        learning_rate: float = 5e-5,
        head_learning_rate: float | None = 1e-3,
        layer_decay: float = 1.0,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        schedule: str = "linear",
        max_grad_norm: float | None = 1.0,
        batch_size: int = 16,
        micro_batch_size: int | str | None = "auto",
        pooling: str = "auto",
        hidden_layer_sizes: Sequence[int] = (),
        dropout: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        max_length: int | None = None,
        long_text: str = "truncate",
        stride: int = 0,
        gradient_checkpointing: bool = False,
        memory: str | os.PathLike[str] | Memory | None = None,
        device: str = "auto",
        precision: str = "auto",
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
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
        self.pooling = pooling
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.max_length = max_length
        self.long_text = long_text
        self.stride = stride
        self.gradient_checkpointing = gradient_checkpointing
        self.memory = memory
        self.device = device
        self.precision = precision
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # ---- training

    def _fit_network(
        self,
        rows: list[Any],
        targets: np.ndarray,
        weights: np.ndarray,
        n_outputs: int,
        objective: Objective,
        validation: tuple[list[Any], Callable[[np.ndarray], float]] | None,
        *,
        rng: np.random.RandomState,
        proceed: bool,
        max_epochs: int,
        given: tuple[Any, Any],
    ) -> Outcome:
        """Train from the pretrained weights and keep what was learnt.

        ``validation`` holds rows and a function from their outputs to a score. With
        ``proceed`` training goes on from the fitted weights. ``given`` is X and y as the
        user gave them, for callbacks.
        """
        import torch

        from skbert.encoders.loading import load_encoder
        from skbert.encoders.prefix import Prefix
        from skbert.encoders.vocabulary import restrict_vocabulary
        from skbert.nn.heads import Head
        from skbert.nn.network import TextNetwork, set_dropout
        from skbert.training.device import resolve_device, resolve_precision
        from skbert.training.loop import TrainingOptions, evaluate, seeded, train
        from skbert.training.schedule import parameter_groups

        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        pretrained: Any = self.encoder_ if proceed else load_encoder(self.model)
        self.__dict__.update(self._resolve(pretrained))
        self._check_room(pretrained, rows)
        n_frozen = self._resolve_frozen_layers(pretrained.n_layers)
        report = ReadingReport()

        with seeded(int(rng.randint(2**31 - 1)), device):
            encoder = pretrained.trainable(device)
            if self.gradient_checkpointing:
                encoder.enable_checkpointing(type(self).__name__)
            prefix = Prefix(encoder, n_frozen)
            dropout = set_dropout(encoder.model, self.dropout)
            head = Head(encoder.hidden_size, self.hidden_layer_sizes, n_outputs, dropout)
            if proceed:
                head.set_arrays(self.head_)
            head.to(device)
            source: Any = self._source(rows, prefix, pretrained, device, report)
            held_out: Any = None
            if validation is not None:
                held_out = self._source(validation[0], prefix, pretrained, device, report)
            self.n_frozen_layers_ = n_frozen
            self.n_trainable_parameters_ = _count_trainable(encoder.model, head)
            if not n_frozen:
                ids = [s.ids() for s in (source, held_out) if s is not None]
                restrict_vocabulary(encoder.model, np.concatenate(ids))
            resumes = prefix.can_resume()

            def forward(batch: Any) -> Any:
                if resumes:
                    return prefix.resume(batch.windows, batch.states)
                return encoder.forward(batch.windows, [encoder.n_layers])

            network = TextNetwork(
                encoder.model, forward, self._piece_pooling(encoder), head
            )
            groups = parameter_groups(
                (
                    (parameter, prefix.depths[name])
                    for name, parameter in encoder.model.named_parameters()
                    if name in prefix.depths
                ),
                head.parameters(),
                n_layers=encoder.n_layers,
                learning_rate=self.learning_rate,
                head_learning_rate=self.head_learning_rate or self.learning_rate,
                layer_decay=self.layer_decay,
                weight_decay=self.weight_decay,
            )

            def set_mode() -> None:
                head.train()
                prefix.set_training()

            validate = None
            if validation is not None:
                score = validation[1]

                def validate() -> float:
                    return score(evaluate(network, held_out, self.batch_size))

            def snapshot() -> dict[str, Any]:
                return {"encoder_": encoder.snapshot(), "head_": head.arrays()}

            tasks = EpochTasks(self, max_epochs, *given, snapshot)
            with tqdm(total=max_epochs, disable=not self.verbose, unit="epoch") as bar:

                def on_epoch(record: dict[str, Any]) -> bool:
                    bar.set_postfix(loss=f"{record['loss']:.4f}")
                    bar.update()
                    # A callback that draws must not change what dropout draws next.
                    devices = [device] if device.type == "cuda" else []
                    with torch.random.fork_rng(devices=devices):
                        return tasks.end_epoch()

                outcome = train(
                    network,
                    source,
                    torch.from_numpy(targets).to(device),
                    torch.from_numpy(weights.astype(np.float32)).to(device),
                    objective,
                    groups,
                    TrainingOptions(
                        max_epochs=max_epochs,
                        warmup=self.warmup,
                        schedule=self.schedule,
                        max_grad_norm=self.max_grad_norm,
                        batch_size=self.batch_size,
                        micro_batch_size=self.micro_batch_size,
                        n_iter_no_change=self.n_iter_no_change,
                        dtype=dtype,
                    ),
                    rng=rng,
                    device=device,
                    set_mode=set_mode,
                    validate=validate,
                    on_epoch=on_epoch,
                )
            tasks.end()
        self.head_ = head.arrays()
        self.encoder_ = encoder.finished()
        self._report(report, rows)
        self.history_ = outcome.history
        self.n_iter_ = len(outcome.history)
        self.best_epoch_ = outcome.best_epoch
        self.n_halved_ = outcome.n_halved
        if outcome.diverged:
            warnings.warn(
                f"{type(self).__name__} stopped in epoch {self.n_iter_} because the loss "
                "is not finite; the model is of no use. Lower learning_rate, or set "
                "max_grad_norm and precision='float32'.",
                ConvergenceWarning,
                stacklevel=users_stacklevel(),
            )
        return outcome

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        return {
            "pooling_": self._resolve_pooling(encoder),
            "max_length_": self._resolve_max_length(encoder),
        }

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

    def _piece_pooling(self, encoder: Encoder) -> str:
        if self.pooling_ == "cls":
            return encoder.traits.summary_piece or "first"
        return self.pooling_

    def _source(
        self,
        rows: list[Any],
        prefix: Prefix,
        pretrained: Encoder,
        device: torch.device,
        report: ReadingReport,
    ) -> Source:
        """Rows in the form in which they are read in every epoch."""
        import torch

        from skbert.training.source import VectorSource, WindowSource, encode_all

        encoder = prefix.encoder
        if prefix.n_frozen == encoder.n_layers:
            vectors = self._vectors(
                rows, encoder, pretrained, device, torch.float32, report
            )
            return VectorSource(vectors, device)
        options = self._reading_options(self.long_text, "auto")
        encodings = encode_all(encoder, rows, options, report)
        kept = None
        if prefix.can_resume():
            recipe = {"states of layer": prefix.n_frozen}
            store = self._open_store(pretrained, device, torch.float32, options, recipe)
            kept = prefix.keep(encodings, rows, store)
        return WindowSource(
            encodings, len(rows), encoder.pad_id, encoder.hidden_size, device, kept
        )

    # ---- reading

    def _vectors(
        self,
        rows: list[Any],
        encoder: Encoder,
        stored_as: Encoder | None,
        device: torch.device,
        dtype: torch.dtype,
        report: ReadingReport,
    ) -> np.ndarray:
        """Pooled vectors of the last layer, (n_rows, hidden_size), float32.

        ``stored_as`` is the encoder to whose vectors ``memory`` may add, with the same
        weights as ``encoder``; None where they are not pretrained ones.
        """
        from skbert.training.vectors import DocumentReader, read_rows

        reader = DocumentReader(
            encoder=encoder,
            layers=[encoder.n_layers],
            layer_pooling="mean",
            pooling=self.pooling_,
            normalize=False,
            size=encoder.hidden_size,
        )
        options = self._reading_options(self.long_text, "auto")
        store = None
        if stored_as is not None:
            recipe = {"vectors pooled by": self.pooling_}
            store = self._open_store(stored_as, device, dtype, options, recipe)
        out = np.zeros((len(rows), encoder.hidden_size), np.float32)
        for positions, vector in read_rows(
            rows,
            reader,
            options,
            device,
            report=report,
            progress=lambda n: None,
            store=store,
        ):
            out[positions] = vector
        return out

    def transform(self, X: Any) -> np.ndarray:
        """Vectors of the fine-tuned encoder, as the head reads them.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts or pairs of texts.

        Returns
        -------
        ndarray of shape (n_samples, hidden_size), float32

        Raises
        ------
        NotFittedError
            If ``fit`` was not called.
        ValueError
            If X holds anything but texts; the positions are named. Also if ``pooling`` or
            ``max_length`` were changed after ``fit``.
        """
        from skbert.training.device import resolve_device, resolve_precision

        check_is_fitted(self)
        self._check_unchanged()
        rows = self._rows(X, ("texts", "pairs"), reset=False)
        self._check_room(self.encoder_, rows)
        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        encoder = self.encoder_.placed(device, dtype)
        report = ReadingReport()
        frozen = self.n_frozen_layers_ == encoder.n_layers
        stored_as = self.encoder_ if frozen else None
        vectors = self._vectors(rows, encoder, stored_as, device, dtype, report)
        self._report(report, rows)
        return vectors

    @property
    def _n_features_out(self) -> int:
        return self.encoder_.hidden_size

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def export_transformers(self, folder: str | os.PathLike[str]) -> None:
        """Write a standard checkpoint for ``transformers``.

        ``AutoModelForSequenceClassification`` and ``pipeline("text-classification",
        folder)`` open it and give the same labels and probabilities, or numbers. Pass
        ``truncation=True`` to the pipeline for texts that are too long.

        Parameters
        ----------
        folder : str or path
            Made if it is not there.

        Raises
        ------
        NotFittedError
            If there is nothing to export.
        ValueError
            If transformers has no classifier that computes the same. Theirs read the
            summary piece alone, so ``pooling="cls"`` is needed, at most one hidden layer
            no wider than the encoder, and a family whose classifier has a tanh, such as
            BERT, RoBERTa, XLM-R, ALBERT, MobileBERT, MPNet and DeBERTa-v2. Windows of long
            texts have no counterpart either.
        """
        from skbert.encoders.export import export_classifier

        check_is_fitted(self)
        name = type(self).__name__
        if self.pooling_ != "cls":
            raise ValueError(
                f"{name} cannot be exported with pooling={self.pooling_!r}: classifiers of "
                "transformers read the summary piece alone. Fit with pooling='cls', or "
                "use save."
            )
        if self.long_text != "truncate":
            raise ValueError(
                f"{name} cannot be exported with long_text={self.long_text!r}, which "
                "transformers does not know. Use long_text='truncate', or save."
            )
        head, settings = self._exported()
        export_classifier(
            self.encoder_,
            head,
            settings,
            self.max_length_,
            Path(os.path.expanduser(folder)),
            name,
        )

    def _exported(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], dict[str, Any]]:
        """Head and settings of a checkpoint of transformers; for subclasses."""
        raise NotImplementedError

    def _predict_outputs(self, X: Any) -> np.ndarray:
        """Outputs of the head, (n_samples, n_outputs), float64."""
        from skbert.nn.heads import hidden_activations

        vectors = FineTuner.transform(self, X).astype(np.float64)
        values = hidden_activations(self.head_, vectors)
        weight, bias = self.head_[-1]
        return values @ weight.T + bias


def _count_trainable(*modules: Any) -> int:
    parameters = [p for module in modules for p in module.parameters()]
    return sum(p.numel() for p in parameters if p.requires_grad)
