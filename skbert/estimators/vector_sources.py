"""Where static word vectors come from: files, folders, estimators, gensim's objects."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from skbert.encoders.vector_files import VectorFile, Vectors, open_vectors
from skbert.estimators.persistence import STATE_FILE
from skbert.exceptions import VocabularyWarning
from skbert.text.report import users_stacklevel

__all__ = ["Source", "is_source", "name_of", "open_source"]


class Source:
    """Vectors by word, in memory or in a file.

    Attributes
    ----------
    file : VectorFile or None
    """

    def __init__(self, held: VectorFile | Vectors) -> None:
        self.file = held if isinstance(held, VectorFile) else None
        self._held = held

    def find(self, words: Collection[str]) -> Vectors:
        """Those of some words that are there."""
        if isinstance(self._held, VectorFile):
            return self._held.find(words)
        names, vectors = self._held
        kept = [at for at, name in enumerate(names) if name in words]
        return [names[at] for at in kept], vectors[kept]

    def read_all(self, caller: str) -> Vectors:
        """All words and their vectors."""
        if not isinstance(self._held, VectorFile):
            return self._held
        found, undecodable = self._held.read_all()
        if undecodable:
            warnings.warn(
                f"{caller} left out {len(undecodable)} words of {str(self._held.path)!r} "
                f"that are no UTF-8, which no text can have (first at {undecodable[0]}).",
                VocabularyWarning,
                stacklevel=users_stacklevel(),
            )
        return found


def is_source(model: Any) -> bool:
    """Whether ``model`` may stand for word vectors, as far as its type tells."""
    if model is None or isinstance(model, str | os.PathLike):
        return True
    return not isinstance(model, type) and (_is_vectorizer(model) or _is_keyed(model))


def name_of(model: Any) -> str:
    """A path, or the name of a class."""
    if model is None:
        return "word2vec"
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    return type(model).__name__


def open_source(model: Any, duplicates: str, verbose: bool, kind: type) -> Source:
    """Find the vectors that ``model`` means.

    Parameters
    ----------
    model : str, path, estimator or KeyedVectors
    duplicates : {"error", "first"}
    verbose : bool
    kind : type
        The class of the vectorizer, which reads folders and is read itself.

    Raises
    ------
    ModelNotFoundError
        If there is no such file.
    ValueError
        If a file is damaged, or has a word twice.
    NotFittedError
        If an estimator has no vectors.
    """
    if isinstance(model, str | os.PathLike):
        path = Path(os.path.expanduser(model))
        if (path / STATE_FILE).exists():
            return _of_vectorizer(kind.load(path), duplicates, verbose, kind)  # type: ignore[attr-defined]
        return _of_file(model, duplicates, verbose, kind)
    if _is_vectorizer(model):
        return _of_vectorizer(model, duplicates, verbose, kind)
    places = model.key_to_index
    return Source((list(places), np.asarray(model.vectors, "f4")[list(places.values())]))


def _of_file(model: Any, duplicates: str, verbose: bool, kind: type) -> Source:
    file = open_vectors(model, verbose)
    if file.repeated and duplicates == "error":
        raise ValueError(
            f"The vectors in {str(file.path)!r} are not clear: {file.repeated}. Mend the "
            f"file, or use duplicates='first' of {kind.__name__} to take the first."
        )
    return Source(file)


def _of_vectorizer(model: Any, duplicates: str, verbose: bool, kind: type) -> Source:
    inner = model.estimator if isinstance(model, FrozenEstimator) else model
    try:
        check_is_fitted(inner)
    except NotFittedError as error:
        raise NotFittedError(
            f"The 'model' parameter of {kind.__name__} is a {type(inner).__name__} that is "
            "not fitted. Fit it before; scikit-learn's clone, which searches and "
            "cross-validation use, unfits an estimator unless it is wrapped: "
            "model=FrozenEstimator(vectorizer)."
        ) from error
    if inner._searches_file:
        return _of_file(inner.model_, duplicates, verbose, kind)
    return Source((list(inner.vocabulary_), inner.vectors_))


def _is_vectorizer(model: Any) -> bool:
    inner = model.estimator if isinstance(model, FrozenEstimator) else model
    return isinstance(inner, BaseEstimator) and hasattr(type(inner), "_searches_file")


def _is_keyed(model: Any) -> bool:
    """KeyedVectors of gensim, which need not be installed for this."""
    return all(hasattr(model, name) for name in ("key_to_index", "vectors"))
