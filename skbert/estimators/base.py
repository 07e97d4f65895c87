"""What the estimators over an encoder share: the way in for texts, and reading."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory

from skbert._version import __version__
from skbert.estimators.params import Rule, check_params
from skbert.estimators.state import SavedEstimator
from skbert.text.validation import check_rows, column_names, n_columns

if TYPE_CHECKING:
    import torch
    from sklearn.utils import Tags

    from skbert.encoders.base import Encoder
    from skbert.text.report import ReadingReport
    from skbert.training.inference import ReadingOptions
    from skbert.training.store import VectorStore


class TextEstimator(SavedEstimator):
    """An estimator that reads texts, pairs of texts or word lists."""

    _rules: ClassVar[dict[str, Rule]]
    _other_kinds: ClassVar[str] = ""  # what else may read X, for messages

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _rows(self, X: Any, accept: Collection[str], *, reset: bool) -> list[Any]:
        """The one place where an estimator looks at raw X.

        Column names are kept by ``fit`` and compared later where both sides have some; a
        list after a frame is welcome, since it holds the same texts.
        """
        rows = check_rows(X, caller=type(self).__name__, accept=accept)
        names = column_names(X)
        row = rows[0]
        kind = "texts" if isinstance(row, str) else "words"
        kind = "pairs" if isinstance(row, tuple) else kind
        if reset:
            self.input_kind_ = kind
            for stale in ("n_features_in_", "feature_names_in_"):
                self.__dict__.pop(stale, None)
            if (n := n_columns(X)) is not None:
                self.n_features_in_ = n
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
        elif kind != getattr(self, "input_kind_", kind):
            advice = {
                "pairs": "Give pairs as tuples, or in two columns.",
                "texts": "Give one str for each row.",
                "words": "Split texts into words; one sentence alone is wrapped: [words].",
            }[self.input_kind_]
            raise ValueError(
                f"X of {type(self).__name__} must hold {self.input_kind_}, as in fit. Got "
                f"{kind}. {advice}{self._other_kinds}"
            )
        elif names is not None and hasattr(self, "feature_names_in_"):
            expected = list(self.feature_names_in_)
            if names != expected:
                raise ValueError(
                    "The feature names should match those that were passed during fit.\n"
                    f"{type(self).__name__} was fitted with the columns {expected}, got "
                    f"{names}. Select and order them as in fit."
                )
        return rows

    def _report(self, report: ReadingReport, rows: list[Any]) -> None:
        """Tell once what could not be read."""
        longest = self.encoder_.longest
        report.warn(type(self).__name__, self.max_length_, len(rows), longest)

    # ---- parameters against the model

    def _resolve_pooling(self, encoder: Encoder) -> str:
        traits = encoder.traits
        if self.pooling == "cls" and traits.summary_piece is None:
            raise ValueError(
                f"The 'pooling' parameter of {type(self).__name__} must be 'mean', 'max' "
                f"or 'last' for a model without a summary piece. Got 'cls' with "
                f"model={self.model!r}. Use 'auto' to let the model decide."
            )
        return traits.pooling if self.pooling == "auto" else self.pooling

    def _resolve_max_length(self, encoder: Encoder) -> int:
        name = type(self).__name__
        length = self.max_length or encoder.max_length
        if encoder.longest is not None and length > encoder.longest:
            raise ValueError(
                f"The 'max_length' parameter of {name} must be at most {encoder.longest} "
                f"for this model, which has no more positions. Got {length}. Use "
                "long_text='windows' to read longer texts."
            )
        return length

    def _check_room(self, encoder: Encoder, rows: list[Any]) -> None:
        """Whether a window has room for texts, or pairs, besides special pieces."""
        name, length = type(self).__name__, self.max_length_
        n_texts = 2 if isinstance(rows[0], tuple) else 1
        n_special = encoder.n_special(n_texts)
        if length < n_special + n_texts:
            raise ValueError(
                f"The 'max_length' parameter of {name} must be at least "
                f"{n_special + n_texts} for this model, which adds {n_special} special "
                f"pieces. Got {length}."
            )
        largest = (length - n_special) // n_texts - 1
        if self.stride > largest:
            raise ValueError(
                f"The 'stride' parameter of {name} must be at most {largest} for windows "
                f"of {length} pieces, {n_special} of them special. Got {self.stride}."
            )

    def _resolve(self, encoder: Encoder) -> dict[str, Any]:
        """Fitted attributes that follow from the parameters and the model."""
        raise NotImplementedError

    def _check_unchanged(self) -> None:
        """Refuse parameters that were set after ``fit`` and would be ignored."""
        check_params(self, self._rules)
        now = self._resolve(self.encoder_)
        changed = [key for key in now if getattr(self, key, now[key]) != now[key]]
        if changed:
            raise ValueError(
                f"The parameters of {type(self).__name__} were changed after fit, which "
                f"changes {', '.join(key.strip('_') for key in changed)}. Call fit again."
            )

    # ---- reading

    def _reading_options(self, long_text: str, batch_size: int | str) -> ReadingOptions:
        from skbert.training.inference import ReadingOptions

        return ReadingOptions(
            max_length=self.max_length_,
            long_text=long_text,
            stride=self.stride,
            batch_size=batch_size,
        )

    def _open_store(
        self,
        encoder: Encoder,
        device: torch.device,
        dtype: torch.dtype,
        options: ReadingOptions,
        recipe: dict[str, Any],
    ) -> VectorStore | None:
        """The store in the folder of ``memory``, keyed by all that makes a vector."""
        from skbert.training.store import VectorStore

        folder = self.memory.location if isinstance(self.memory, Memory) else self.memory
        if folder is None:
            return None
        recipe = {
            "skbert": __version__,
            "encoder": encoder.fingerprint(),
            "computed": [device.type, str(dtype)],
            "windows": [options.max_length, options.long_text, options.stride],
            **recipe,
        }
        return VectorStore(Path(os.path.expanduser(folder)), recipe)
