"""Numeric rows spelled as sentences, so that scikit-learn's own checks reach our code.

scikit-learn runs its checks only on estimators that take numbers. Here the one hook that
looks at raw X, ``TextEstimator._rows``, is replaced: rows are validated by scikit-learn
and each is spelled as a sentence of bin words, "ad bq c3". Whatever follows the hook is
the production code.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import shutil
import string
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from estimators.text_checks import TEXTS
from sklearn.utils.validation import validate_data
from tiny_models import make_tiny_model

from skbert.text.words import split_words

# One merge each makes all of them whole pieces: tiny_models learns 400.
COLUMNS = string.ascii_lowercase[:12]
BINS = string.ascii_lowercase + string.digits[:6]
BIN_WORDS = [column + each for column in COLUMNS for each in BINS]

# Fixed names, since scikit-learn wants to know the default of a parameter, and pytest
# the estimators, before anything is built.
_FOLDER = Path(tempfile.gettempdir(), f"skbert-tests-{os.getpid()}")
BIN_MODEL = str(_FOLDER / "bins")  # reads the bin words
TEXT_MODEL = str(_FOLDER / "texts")  # the tiny BERT of the other tests
BIN_VECTORS = str(_FOLDER / "bins.txt")  # static vectors of the bin words
TEXT_VECTORS = str(_FOLDER / "texts.txt")  # and of most words of the text checks


def build_models() -> None:
    """Write checkpoints and vectors unless they are there; for a session fixture."""
    if _FOLDER.exists():
        return
    atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
    make_tiny_model("bert", Path(BIN_MODEL), corpus=2 * [" ".join(BIN_WORDS)])
    make_tiny_model("bert", Path(TEXT_MODEL))
    write_vectors(BIN_WORDS, Path(BIN_VECTORS))
    words = {word for text in TEXTS for word in (*text.split(), *_words(text))}
    write_vectors(sorted(words - {"The", "cold", "cheapest."}), Path(TEXT_VECTORS))


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in split_words(text)]


def write_vectors(words: list[str], path: Path, size: int = 5) -> None:
    """Random static vectors, as GloVe's program writes them."""
    values = np.random.default_rng(0).normal(size=(len(words), size)).round(4)
    lines = [
        " ".join([word, *map(str, row)]) for word, row in zip(words, values, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class RowsAsText:
    """Mixin, left of a production estimator; class keywords are defaults of parameters.

    Where texts are accepted a row is a sentence, elsewhere a list of words.

    Examples
    --------
    ::

        class ClassifierRows(RowsAsText, BertClassifier, max_epochs=30, random_state=0):
            pass
    """

    # Lowest and highest number of every column, where data may not decide that.
    scale: tuple[np.ndarray, np.ndarray] | None = None

    def __init_subclass__(cls, **defaults: Any) -> None:
        super().__init_subclass__()
        cls.__init__ = _with_defaults(cls.__init__, {"model": BIN_MODEL, **defaults})
        # scikit-learn looks for names of attributes in it; its examples run elsewhere.
        cls.__doc__ = cls.__mro__[2].__doc__.partition("Examples\n")[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags

    def _rows(self, X: Any, accept: Collection[str], *, reset: bool) -> list[Any]:
        X = validate_data(self, X, reset=reset, dtype=np.float64)
        if reset:
            self._low, self._high = self.scale or (X.min(axis=0), X.max(axis=0))
        width = np.where(self._high > self._low, self._high - self._low, 1.0)
        scaled = (X - self._low) / width * len(BINS)
        places = np.clip(scaled, 0, len(BINS) - 1).astype(int)
        rows = [[_spell(*pair) for pair in enumerate(row)] for row in places]
        return [" ".join(row) for row in rows] if "texts" in accept else rows


def _spell(column: int, place: int) -> str:
    return COLUMNS[column % len(COLUMNS)] + BINS[place]


def _with_defaults(init: Callable[..., None], defaults: dict[str, Any]) -> Any:
    """The constructor with other defaults, for callers and for ``inspect.signature``."""
    signature = inspect.signature(init)
    parameters = [
        parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in signature.parameters.items()
    ]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = changed.bind(self, *args, **kwargs)
        bound.apply_defaults()
        init(*bound.args, **bound.kwargs)

    changed = signature.replace(parameters=parameters)
    __init__.__signature__ = changed  # type: ignore[attr-defined]
    return __init__
