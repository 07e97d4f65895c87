"""Fine-tuning with one row of outputs for each text: vectors, outputs and export."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.finetuning import FineTuner
from skbert.estimators.params import Rule, option, sequence_of_ints
from skbert.text.report import ReadingReport

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags
    from torch import nn

    from skbert.encoders.base import Encoder
    from skbert.encoders.prefix import Prefix
    from skbert.nn.heads import Head
    from skbert.training.loop import Source


class DocumentFineTuner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FineTuner):
    """Base of estimators that pool an encoder's states to one vector for each text."""

    head_: list[tuple[np.ndarray, np.ndarray]]

    _rules: ClassVar[dict[str, Rule]] = {
        **FineTuner._rules,
        "pooling": option("auto", "mean", "cls", "max", "last", "pooler"),
        "hidden_layer_sizes": sequence_of_ints(empty=True, low=1),
        "long_text": option("truncate", "head_tail", "windows"),
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
        super().__init__(
            model,
            frozen_layers=frozen_layers,
            max_epochs=max_epochs,
            learning_rate=learning_rate,
            head_learning_rate=head_learning_rate,
            layer_decay=layer_decay,
            weight_decay=weight_decay,
            warmup=warmup,
            schedule=schedule,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
            micro_batch_size=micro_batch_size,
            dropout=dropout,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            max_length=max_length,
            stride=stride,
            gradient_checkpointing=gradient_checkpointing,
            memory=memory,
            device=device,
            precision=precision,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.pooling = pooling
        self.hidden_layer_sizes = hidden_layer_sizes
        self.long_text = long_text

    # ---- training

    def _new_row_head(self, n_inputs: int, n_outputs: int, dropout: float) -> Head:
        from skbert.nn.heads import Head

        with_pooler = self.pooling == "pooler"
        return Head(n_inputs, self.hidden_layer_sizes, n_outputs, dropout, with_pooler)

    def _read_rows(self, X: Any, *, reset: bool) -> list[Any]:
        return self._rows(X, ("texts", "pairs"), reset=reset)

    def _start_head(
        self, head: Any, pretrained: Encoder, proceed: bool
    ) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        if proceed:
            self._check_same_layers(head.arrays())
        known, new = super()._start_head(head, pretrained, proceed)
        if self.pooling != "pooler":
            return known, new
        if not proceed:
            head.set_arrays([pretrained.pooler, *head.arrays()[1:]])
        return new[:2], new[2:]

    def _check_same_layers(self, new: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Refuse to go on from a head of other layers than the parameters now say."""
        fitted, wanted = ([len(bias) for _, bias in head] for head in (self.head_, new))
        if fitted != wanted:
            raise ValueError(
                f"The 'pooling' and 'hidden_layer_sizes' parameters of "
                f"{type(self).__name__} must give the head that was fitted, with layers of "
                f"the sizes {fitted}, for training to go on from it. Got {wanted}. Set "
                "them as they were, or fit with warm_start=False."
            )

    def _resolve_pooling(self, encoder: Encoder) -> str:
        # What was fitted has its pooler in the head.
        fitted = encoder is getattr(self, "encoder_", None)
        if self.pooling == "pooler" and encoder.pooler is None and not fitted:
            advice = "Use 'auto' to let the model decide."
            if encoder.traits.summary_piece:
                size = encoder.hidden_size
                advice = f"Use 'cls' with hidden_layer_sizes=[{size}] to train a new one."
            raise ValueError(
                f"The 'pooling' parameter of {type(self).__name__} must be 'auto', 'mean', "
                "'cls', 'max' or 'last' for a checkpoint that does not hold a pooler "
                "(linear layer and tanh over the summary piece). Got 'pooler' with "
                f"model={self.model!r}. {advice}"
            )
        return super()._resolve_pooling(encoder)

    @property
    def _piece_pooling(self) -> str:
        """Pooling below the head, of which a pooler is the first layer."""
        return "cls" if self.pooling_ == "pooler" else self.pooling_

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        return {
            "pooling_": self._resolve_pooling(encoder),
            "max_length_": self._resolve_max_length(encoder),
        }

    def _network(self, encoder: Any, prefix: Prefix, head: Any) -> nn.Module:
        from skbert.nn.network import TextNetwork

        how = self._piece_pooling
        if how == "cls":
            how = encoder.traits.summary_piece or "first"
        return TextNetwork(encoder.model, prefix.forward, how, head)

    def _source(
        self,
        rows: list[Any],
        prefix: Prefix,
        pretrained: Encoder,
        device: torch.device,
        report: ReadingReport,
    ) -> Source:
        import torch

        from skbert.training.source import VectorSource, WindowSource

        encoder = prefix.encoder
        if prefix.n_frozen == encoder.n_layers:
            vectors = self._vectors(
                rows, encoder, pretrained, device, torch.float32, report
            )
            return VectorSource(vectors, device)
        options = self._reading_options(self.long_text, "auto")
        encodings, kept = self._windows(rows, prefix, pretrained, device, report, options)
        return WindowSource(encodings, len(rows), encoder, device, kept)

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
            pooling=self._piece_pooling,
            normalize=False,
            size=encoder.hidden_size,
        )
        options = self._reading_options(self.long_text, "auto")
        store = None
        if stored_as is not None:
            recipe = {"vectors pooled by": self._piece_pooling}
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
        return self._transform(X)

    def _transform(self, X: Any) -> np.ndarray:
        """What ``transform`` gives, in an array whatever ``set_output`` asks for."""
        from skbert.training.device import resolve_device, resolve_precision

        check_is_fitted(self)
        self._check_unchanged()
        rows = self._read_rows(X, reset=False)
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
            summary piece alone, so ``pooling="cls"`` or "pooler" is needed, at most one
            hidden layer, counting the pooler, no wider than the encoder, and a family
            whose classifier has a tanh, such as BERT, RoBERTa, XLM-R, ALBERT, MobileBERT,
            MPNet and DeBERTa-v2. Windows of long texts have no counterpart either.
        """
        from skbert.encoders.export import export_classifier

        check_is_fitted(self)
        name = type(self).__name__
        if self._piece_pooling != "cls":
            raise ValueError(
                f"{name} cannot be exported with pooling={self.pooling_!r}: classifiers of "
                "transformers read the summary piece alone. Fit with pooling='cls' or "
                "'pooler', or use save."
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

        vectors = self._transform(X).astype(np.float64)
        values = hidden_activations(self.head_, vectors)
        weight, bias = self.head_[-1]
        return values @ weight.T + bias
