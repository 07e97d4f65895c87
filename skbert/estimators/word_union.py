"""Several transformers of words side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from skbert.estimators.word_vectors import check_vectors

if TYPE_CHECKING:
    from sklearn.utils import Tags


class WordFeatureUnion(FeatureUnion, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Vectors of words from several transformers, joined word by word.

    What scikit-learn's `FeatureUnion` is for one vector a row, this is for one a word:
    static vectors beside those of an encoder, or two encoders. Everything else is as there:
    parameters of the transformers are set by ``name__parameter``, metadata is routed, and
    ``fit`` fits the transformers that it was given, not copies of them.

    Parameters
    ----------
    transformer_list : list of (str, transformer)
        Names and transformers that give one array of shape (n_words, n_features) for each
        row. "drop" leaves one out; "passthrough" takes the vectors of words that X holds.
    n_jobs : int or None, default=None
        Transformers that run at once, in processes of joblib. None is 1 unless joblib was
        told otherwise.
    transformer_weights : dict of str to float or None, default=None
        Numbers to multiply the vectors of transformers by.
    verbose : bool, default=False
        Print the time that each transformer took to fit.
    verbose_feature_names_out : bool, default=True
        Put the name of the transformer before the names of its columns. If False, they
        must differ.

    Attributes
    ----------
    named_transformers : Bunch
        The transformers by name.
    n_features_in_ : int
        As the first transformer has it.
    feature_names_in_ : ndarray of str
        As the first transformer has it.

    See Also
    --------
    sklearn.pipeline.FeatureUnion : For tables of features.
    BertVectorizer, WordVectorizer : Give such vectors with ``output="words"``.
    BiLSTMTagger, BiLSTMClassifier : Read them.

    Notes
    -----
    Every transformer must see the same words. Vectors of words are ragged, so there is no
    ``set_output``.

    Examples
    --------
    >>> from skbert import BertVectorizer, WordFeatureUnion
    >>> union = WordFeatureUnion(
    ...     [
    ...         ("form", BertVectorizer(output="words", layers=0)),
    ...         ("sense", BertVectorizer(output="words")),
    ...     ]
    ... )
    >>> union.fit_transform([["Ada", "lives", "in", "London"]])[0].shape
    (4, 768)
    """

    def transform(self, X: Any, **params: Any) -> np.ndarray:
        """Vectors of the words of each row, those of all transformers joined.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            What the transformers read, such as lists of words.
        params : dict
            Metadata for the ``transform`` methods, where routing is enabled.

        Returns
        -------
        ndarray of shape (n_samples,), object
            One array of shape (n_words, n_features) for each row.

        Raises
        ------
        ValueError
            If two transformers give different numbers of vectors for a row, which is
            named, or one gives something else than vectors of words.
        """
        self._check_any_left()
        return super().transform(X, **params)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of every array, after the transformers.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            For transformers that name their columns by it.

        Returns
        -------
        ndarray of str, of shape (n_features,)
        """
        check_is_fitted(self)
        return self._add_prefix_for_feature_names_out(
            [(name, _names(name, kind, input_features)) for name, kind, _ in self._iter()]
        )

    # ---- what FeatureUnion calls

    def _iter(self) -> Iterator[tuple[str, Any, None]]:
        # Weights come later: a list, times 2, would be a list twice as long.
        for name, transformer in self.transformer_list:
            if isinstance(transformer, str) and transformer == "drop":
                continue
            given = isinstance(transformer, str) and transformer == "passthrough"
            yield name, GivenVectors() if given else transformer, None

    def _validate_transformers(self) -> None:
        super()._validate_transformers()
        self._check_any_left()

    def _check_any_left(self) -> None:
        if next(self._iter(), None) is None:
            raise ValueError(
                "The 'transformer_list' parameter of WordFeatureUnion must hold at least "
                "one transformer that is not 'drop'."
            )

    def _hstack(self, Xs: Sequence[Any]) -> np.ndarray:
        parts = {
            name: self._rows_of(name, X)
            for (name, *_), X in zip(self._iter(), Xs, strict=True)
        }
        (first, rows), *others = parts.items()
        for name, other in others:
            if len(other) != len(rows):
                raise ValueError(
                    f"The transformers {first!r} and {name!r} of WordFeatureUnion give "
                    f"{len(rows)} and {len(other)} rows, but must give as many."
                )
            for at, (one, two) in enumerate(zip(rows, other, strict=True)):
                if len(one) != len(two):
                    raise ValueError(
                        f"The transformer {name!r} of WordFeatureUnion gives {len(two)} "
                        f"vectors for the row at position {at}, while {first!r} gives "
                        f"{len(one)}. Every transformer must give one for each word."
                    )
                if one.shape[1:-1] != two.shape[1:-1]:
                    raise ValueError(
                        f"The transformers {first!r} and {name!r} of WordFeatureUnion give "
                        f"arrays of shapes {one.shape} and {two.shape} for the row at "
                        f"position {at}, which differ in layers. Join or average the "
                        "layers in the vectorizers, as layers='mean' does."
                    )
        joined = np.empty(len(rows), dtype=object)
        for at, vectors in enumerate(zip(*parts.values(), strict=True)):
            joined[at] = np.concatenate(vectors, axis=-1)
        return joined

    def _rows_of(self, name: str, X: Any) -> list[np.ndarray]:
        """The checked and weighted output of a transformer."""
        try:
            rows = check_vectors(X, f"the estimator behind {name!r}")
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"The transformer {name!r} of WordFeatureUnion must give one array of "
                "shape (n_words, n_features) for each row, as vectorizers with "
                f"output='words' do. {error}"
            ) from error
        weight = (self.transformer_weights or {}).get(name)
        return rows if weight is None else [row * weight for row in rows]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


class GivenVectors(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """What "passthrough" stands for: the vectors of words that X holds."""

    def fit(self, X: Any, y: Any = None) -> GivenVectors:
        rows = check_vectors(X, "WordFeatureUnion with 'passthrough'")
        self.n_features_in_ = max(row.shape[1] for row in rows)
        return self

    def transform(self, X: Any) -> list[np.ndarray]:
        check_is_fitted(self)
        rows = check_vectors(X, "WordFeatureUnion with 'passthrough'")
        wrong = {row.shape[1] for row in rows if len(row)} - {self.n_features_in_}
        if wrong:
            raise ValueError(
                f"X has {wrong.pop()} features, but WordFeatureUnion with 'passthrough' is "
                f"expecting {self.n_features_in_} features as input. Use the vectorizer of "
                "fit."
            )
        return [row if len(row) else row.reshape(0, self.n_features_in_) for row in rows]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        if input_features is not None:
            return np.asarray(input_features, dtype=object)
        return np.array([f"x{at}" for at in range(self.n_features_in_)], dtype=object)


def _names(name: str, transformer: Any, input_features: Any) -> Any:
    """Names of the columns of a transformer; vectorizers have none for words."""
    last = transformer[-1] if isinstance(transformer, Pipeline) else transformer
    if hasattr(last, "get_feature_names_out"):
        return transformer.get_feature_names_out(input_features)
    if hasattr(last, "n_features_out_"):
        prefix = type(last).__name__.lower()
        return [f"{prefix}{at}" for at in range(last.n_features_out_)]
    raise AttributeError(
        f"Transformer {name} (type {type(transformer).__name__}) does not provide "
        "get_feature_names_out."
    )
