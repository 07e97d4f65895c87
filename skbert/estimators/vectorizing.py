"""What the vectorizers over an encoder share: reading rows, and what they give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import Memory
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from skbert.estimators.base import TextEstimator
from skbert.estimators.params import Rule, a, boolean, integer, option
from skbert.text.report import ReadingReport

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from skbert.encoders.base import Encoder

# Rules of the parameters that say how rows are read.
READING_RULES: dict[str, Rule] = {
    "normalize": boolean(),
    "max_length": integer(1) | option(None),
    "long_text": option("auto", "truncate", "head_tail", "windows"),
    "stride": integer(0),
    "batch_size": integer(1) | option("auto"),
    "device": a(str, "'auto', 'cpu', 'cuda', 'cuda:<number>' or 'mps'"),
    "precision": option("auto", "float32", "bfloat16", "float16"),
    "memory": a((str, os.PathLike, Memory), "a folder, a joblib.Memory") | option(None),
    "verbose": integer(0) | boolean(),
}


def _has_columns(vectorizer: Vectorizer) -> bool:
    # Word vectors are ragged: without names scikit-learn leaves them as they are.
    return vectorizer.output == "document"


class Vectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):
    """A frozen encoder as a transformer."""

    _layers_parameter: ClassVar[str]  # which may ask for a vector of each layer

    output: str
    normalize: bool
    batch_size: int | str
    device: str
    precision: str
    verbose: int
    encoder_: Encoder
    layers_: list[int]
    long_text_: str
    n_features_out_: int

    def transform(self, X: Any) -> np.ndarray:
        """Vectors of the rows of X, in their order.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Texts, pairs of texts or, with ``output="words"``, lists of words.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out_), float32
            With ``output="words"`` instead an object array of shape (n_samples,) that
            holds one float32 array of shape (n_words, n_features_out_) for each row, with
            ``layer_pooling="stack"`` of shape (n_words, n_layers, n_features_out_) and
            layers in the order of ``layers_``. A word without pieces is a vector of
            zeros; an empty text has the vector of the special pieces alone, or zeros
            where the model adds none.

        Raises
        ------
        NotFittedError
            If ``fit`` was not called.
        ValueError
            If X holds anything but texts; the positions are named. Also if a parameter
            was changed that acts by ``fit``, such as ``layers``.
        """
        check_is_fitted(self)
        self._check_unchanged()
        self._check_layers()
        rows = self._check_rows(X, reset=False)
        self._check_room(self.encoder_, rows)
        if self.output == "words":
            out = np.empty(len(rows), dtype=object)
        else:
            out = np.zeros((len(rows), self.n_features_out_), dtype=np.float32)
        report = ReadingReport()
        for positions, value in self._vectors(rows, report):
            for position in positions:
                # Equal rows do not share one array: changing one may not change another.
                out[position] = value.copy() if self.output == "words" else value
        self._report(report, rows)
        return out

    @available_if(_has_columns)
    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns: the class name in lower case and a number.

        Only there for ``output="document"``: words are no columns, so that scikit-learn
        leaves their arrays as they are. The last axis of these is as long as
        ``n_features_out_``.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str, of shape (n_features_out_,)
        """
        return super().get_feature_names_out(input_features)

    # ---- resolving parameters against the model

    def _check_layers(self) -> None:
        """Refuse a vector of each layer where a row has one."""
        if self._combine_layers() == "stack" and self.output == "document":
            name = self._layers_parameter
            raise ValueError(
                f"The {name!r} parameter of {type(self).__name__} must not be "
                f"{getattr(self, name)!r} for output='document', which gives each row one "
                "vector. Set output='words' for a vector of each word and layer."
            )

    def _count_layers(self, layers: Any, encoder: Encoder, lowest: str) -> list[int]:
        """Layers counted from the lowest, layer 0."""
        top = encoder.n_layers
        asked = list(layers) if isinstance(layers, list | tuple) else [layers]
        if not all(-top - 1 <= layer <= top for layer in asked):
            raise ValueError(
                f"The 'layers' parameter of {type(self).__name__} must be between "
                f"{-top - 1} and {top} for a model of {top} layers (0 is {lowest}). "
                f"Got {layers!r}."
            )
        return [int(layer) % (top + 1) for layer in asked]

    # ---- computing

    def _combine_layers(self) -> str:
        """How layers become one vector, as of ``HiddenStates.combine``."""
        raise NotImplementedError

    def _combine_pieces(self) -> str:
        """How pieces become one vector."""
        raise NotImplementedError

    def _check_rows(self, X: Any, *, reset: bool) -> list[Any]:
        """The rows of X as the encoder reads them."""
        raise NotImplementedError

    def _vectors(
        self, rows: list[Any], report: ReadingReport
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Positions and vectors of each distinct row, kept ones first."""
        from skbert.training.device import resolve_device, resolve_precision
        from skbert.training.vectors import DocumentReader, WordReader, read_rows

        device = resolve_device(self.device, type(self).__name__)
        dtype = resolve_precision(self.precision, device)
        layer_pooling, pooling = self._combine_layers(), self._combine_pieces()
        reader = (WordReader if self.output == "words" else DocumentReader)(
            encoder=self.encoder_.placed(device, dtype),
            layers=self.layers_,
            layer_pooling=layer_pooling,
            pooling=pooling,
            normalize=self.normalize,
            size=self.n_features_out_,
        )
        recipe = {
            "layers": [*self.layers_, layer_pooling],
            "pooling": [self.output, pooling, self.normalize],
        }
        options = self._reading_options(self.long_text_, self.batch_size)
        store = self._open_store(self.encoder_, device, dtype, options, recipe)
        with tqdm(total=len(rows), disable=not self.verbose, unit="row") as bar:
            yield from read_rows(
                rows,
                reader,
                options,
                device,
                report=report,
                progress=bar.update,
                store=store,
            )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_
