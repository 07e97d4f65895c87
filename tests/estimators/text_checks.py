"""What scikit-learn's checks ask of numbers, asked of texts.

scikit-learn yields no checks for estimators that read texts. These take the place of
those that are about X itself, and of all that need X to be real: containers, refusals,
invariances, state on disk, quiet manners.

``text_checks_generator`` yields them for one unfitted estimator, as scikit-learn's
``estimator_checks_generator`` does.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import json
import logging
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skbert.exceptions import VersionWarning, VocabularyWarning

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A good film with a good cast and a very good story.",
    "",
    "bad",
    "Slow service and cold food... never again?",
    "It is the best book I have read in years, and the cheapest.",
    "A good film with a good cast and a very good story.",  # the second again
    "Der Film war gut und die Musik war schön.",
    "这部电影很好,我很喜欢这个故事。",
    "The food was great and the people were friendly, but the price was too high.",
    "good film",
    "New York is larger than Berlin, and Tokyo is larger than New York.",
]
WORDS = [text.split() for text in TEXTS]
PAIRS = list(zip(TEXTS, reversed(TEXTS), strict=True))
ODD_INDEX = [7, 3, 3, 11, 0, 2, 1, 5, 8, 4, 6, 9]  # labels that fetch other rows, or two

ROWS: dict[str, list[Any]] = {"texts": TEXTS, "words": WORDS, "pairs": PAIRS}
METHODS = (
    "transform",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
)
TOLERANCE = 1e-5  # between different batches, SKLEARN.md 1.5
REPOSITORY = Path(__file__).parents[2]
OURS: Any = object()


@dataclass(frozen=True)
class Subject:
    """An unfitted estimator and what it reads.

    Attributes
    ----------
    estimator : estimator
    make_y : callable or None
        From rows to their y; None for a transformer.
    kinds : tuple of {"texts", "pairs", "words"}
        What rows may be; checks use the first kind.
    """

    estimator: Any
    make_y: Callable[[list[Any]], Any] | None
    kinds: tuple[str, ...]

    @property
    def rows(self) -> list[Any]:
        return ROWS[self.kinds[0]]

    def new(self) -> Any:
        return clone(self.estimator)

    def fit(
        self, X: Any = OURS, rows: list[Any] | None = None, estimator: Any = None
    ) -> Any:
        """A new estimator (or this), fitted to X, which spells `rows`, our own if None."""
        rows = self.rows if rows is None else rows
        estimator = self.new() if estimator is None else estimator
        X = rows if X is OURS else X
        if self.make_y is None:
            return estimator.fit(X)
        return timeless(estimator.fit(X, self.make_y(rows)))

    @cached_property
    def fitted(self) -> Any:
        """Shared, for checks that leave it as it is."""
        return self.fit()

    @cached_property
    def expected(self) -> dict[str, Any]:
        return outputs(self.fitted, self.rows)


def timeless(estimator: Any) -> Any:
    """A fitted estimator that forgot how long it took: nothing else differs by run."""
    for record in getattr(estimator, "history_", []):
        record["seconds"] = 0.0
    return estimator


def text_checks_generator(
    estimator: Any,
    make_y: Callable[[list[Any]], Any] | None = None,
    kinds: tuple[str, ...] = ("texts", "pairs", "words"),
) -> Iterator[Callable[[], None]]:
    """Checks of one estimator, each a partial to be called without arguments.

    What ``check_second_process`` asks is not among them: an interpreter starts in seconds,
    so it takes all estimators at once.
    """
    subject = Subject(estimator, make_y, kinds)
    for check in CHECKS:
        yield partial(check, subject)
    for kind in kinds:
        for name in CONTAINERS[kind]:
            yield partial(check_container, subject, kind, name)
    for name in REFUSED:
        yield partial(check_refuses, subject, name)
    for name in ROUND_TRIPS:
        yield partial(check_round_trip, subject, name)
    if make_y is not None:
        yield partial(check_y, subject)


def check_id(check: Any) -> str:
    """For the ``ids`` of ``pytest.mark.parametrize``."""
    subject, *rest = check.args
    words = [word for word in (type(subject.estimator).__name__, subject.kinds[0]) if word]
    return "-".join([*words, check.func.__name__, *map(str, rest)])


# Comparing ---------------------------------------------------------------------------


def outputs(estimator: Any, X: Any) -> dict[str, Any]:
    """What every method that takes X gives."""
    return {name: getattr(estimator, name)(X) for name in methods(estimator)}


def methods(estimator: Any) -> list[str]:
    return [name for name in METHODS if hasattr(estimator, name)]


def assert_same(got: Any, wanted: Any) -> None:
    """Equal to the last bit, in type, shape and number format too."""
    _compare(got, wanted, np.testing.assert_array_equal, exact=True)


def assert_close(got: Any, wanted: Any) -> None:
    close = partial(np.testing.assert_allclose, rtol=0, atol=TOLERANCE)
    _compare(got, wanted, close, exact=False)


def _compare(got: Any, wanted: Any, compare: Callable[..., None], *, exact: bool) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, np.ndarray):
        assert got.shape == wanted.shape
        assert got.dtype == wanted.dtype
    if isinstance(wanted, list) or getattr(wanted, "dtype", np.dtype(float)).kind == "O":
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _compare(one, other, compare, exact=exact)
    elif getattr(wanted, "dtype", np.dtype(object)).kind == "f":
        compare(got, wanted)
    else:
        np.testing.assert_array_equal(got, wanted)


def take(values: Any, positions: Any) -> Any:
    """The rows of every output at these positions."""
    return {name: value[np.asarray(positions)] for name, value in values.items()}


# Containers --------------------------------------------------------------------------


def objects(rows: list[Any]) -> np.ndarray:
    """One-dimensional, whatever the rows are."""
    array = np.empty(len(rows), dtype=object)
    for position, row in enumerate(rows):
        array[position] = row
    return array


class OnlyArray:
    """What scikit-learn calls _NotAnArray."""

    def __init__(self, rows: list[Any]) -> None:
        self.data = objects(rows)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.data


def string_dtype(rows: list[str]) -> np.ndarray:
    if not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy 1 has no StringDType")
    return np.array(rows, dtype=np.dtypes.StringDType())


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def memmap(rows: list[str]) -> np.ndarray:
    """A read-only map of a file; the file is gone when it is used, as in joblib."""
    with tempfile.TemporaryDirectory() as folder:
        joblib.dump(np.array(rows), path := Path(folder, "X"))
        return joblib.load(path, mmap_mode="r")


def data_set(rows: list[Any]) -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return datasets.Dataset.from_dict({"text": rows})["text"]


def pandas(rows: list[Any], dtype: Any = None) -> Any:
    import pandas as pd

    return pd.Series(rows, dtype=dtype, index=ODD_INDEX[: len(rows)])


def arrow_backed(rows: list[Any]) -> Any:
    import pandas as pd

    return pandas(rows, pd.ArrowDtype(arrow(rows).type))


def pandas_frame(rows: list[Any]) -> Any:
    return pandas(objects(rows)).to_frame("text")


def polars(rows: list[Any]) -> Any:
    import polars as pl

    return pl.Series("text", rows)


def arrow(rows: list[Any]) -> Any:
    import pyarrow as pa

    return pa.array(rows)


def arrow_chunks(rows: list[Any]) -> Any:
    import pyarrow as pa

    return pa.chunked_array([arrow(rows[:5]), arrow(rows[5:])])


def arrow_table(rows: list[Any]) -> Any:
    import pyarrow as pa

    return pa.table({"text": arrow(rows)})


def two_columns(make: Callable[[dict[str, list[str]]], Any]) -> Callable[[list[Any]], Any]:
    def build(rows: list[tuple[str, str]]) -> Any:
        first, second = map(list, zip(*rows, strict=True))
        return make({"first": first, "second": second})

    return build


def _frame_of(library: str, name: str) -> Callable[[Any], Any]:
    return lambda data: getattr(__import__(library), name)(data)


ANY_ROWS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "object array": objects,
    "read-only object array": lambda rows: read_only(objects(rows)),
    "object column": lambda rows: objects(rows).reshape(-1, 1),
    "only __array__": OnlyArray,
    "pandas object": lambda rows: pandas(objects(rows)),
    "pandas arrow": arrow_backed,
    "pandas frame": pandas_frame,
    "polars": polars,
    "polars frame": lambda rows: polars(rows).to_frame(),
    "arrow": arrow,
    "arrow chunks": arrow_chunks,
    "arrow table": arrow_table,
    "datasets column": data_set,
}
CONTAINERS: dict[str, dict[str, Callable[[list[Any]], Any]]] = {
    "texts": {
        **ANY_ROWS,
        "array": np.array,
        "array column": lambda rows: np.array(rows).reshape(-1, 1),
        "read-only array": lambda rows: read_only(np.array(rows)),
        "memmap": memmap,
        "StringDType": string_dtype,
        "list of np.str_": lambda rows: list(map(np.str_, rows)),
        "pandas": pandas,
        "pandas string[python]": lambda rows: pandas(rows, "string[python]"),
        "pandas string[pyarrow]": lambda rows: pandas(rows, "string[pyarrow]"),
        "pandas category": lambda rows: pandas(rows, "category"),
    },
    "words": {
        **ANY_ROWS,
        "list of arrays": lambda rows: list(map(objects, rows)),
        "array of arrays": lambda rows: objects(list(map(objects, rows))),
    },
    "pairs": {
        "tuple": tuple,
        "array": np.array,
        "object array": lambda rows: np.array(rows, dtype=object),
        "array of tuples": objects,
        "pandas of tuples": lambda rows: pandas(objects(rows)),
        "pandas frame": two_columns(_frame_of("pandas", "DataFrame")),
        "polars frame": two_columns(_frame_of("polars", "DataFrame")),
        "arrow table": two_columns(_frame_of("pyarrow", "table")),
    },
}


def check_container(subject: Subject, kind: str, name: str) -> None:
    """Rows are the same in whatever they come, for fit and for what follows."""
    rows = ROWS[kind]
    same_kind = kind == subject.kinds[0]
    X = CONTAINERS[kind][name](rows)
    from_list = subject.fitted if same_kind else subject.fit(rows=rows)
    wanted = subject.expected if same_kind else outputs(from_list, rows)
    assert_same(outputs(from_list, X), wanted)
    assert_same(outputs(subject.fit(X, rows), rows), wanted)


# What is refused ---------------------------------------------------------------------


def put(value: Any) -> Callable[[list[Any]], Any]:
    """Our rows with a foreign one at position 1."""
    return lambda rows: [rows[0], value, *rows[2:]]


def _missing(name: str) -> Callable[[list[Any]], Any]:
    return lambda rows: put(getattr(__import__("pandas"), name))(rows)


def _sparse(name: str) -> Callable[[list[Any]], Any]:
    def make(rows: list[Any]) -> Any:
        import scipy.sparse

        return getattr(scipy.sparse, name)(np.eye(len(rows)))

    return make


def _many_columns(rows: list[Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(dict.fromkeys("abc", TEXTS))


# What to make of good rows, the error, and what its message must say.
REFUSED: dict[str, tuple[Callable[[list[Any]], Any], type[Exception], str]] = {
    "one str": (lambda rows: TEXTS[0], ValueError, "single string"),
    "empty list": (lambda rows: [], ValueError, "0 rows"),
    "empty array": (lambda rows: np.array([], dtype=object), ValueError, "0 rows"),
    "empty frame": (lambda rows: pandas_frame(rows)[:0], ValueError, "0 rows"),
    "None": (lambda rows: None, TypeError, "NoneType"),
    "None row": (put(None), ValueError, "None at position 1"),
    "nan row": (put(float("nan")), ValueError, "nan at position 1"),
    "NA row": (_missing("NA"), ValueError, "<NA> at position 1"),
    "NaT row": (_missing("NaT"), ValueError, "NaT at position 1"),
    "missing in a Series": (
        lambda rows: pandas(put(None)(rows)), ValueError, "at position 1",
    ),
    "bytes": (lambda rows: b"some text", TypeError, "[Dd]ecode"),
    "bytes row": (put(b"some text"), ValueError, "bytes at position 1.*[Dd]ecode"),
    "array of bytes": (lambda rows: np.array([b"a", b"b"]), ValueError, "[Dd]ecode"),
    "number": (lambda rows: 3, TypeError, "int"),
    "number row": (put(3), ValueError, "int at position 1"),
    "numbers": (lambda rows: np.eye(3), ValueError, "float64"),
    "1-d numbers": (lambda rows: np.arange(3.0), ValueError, "float64"),
    "dict": (lambda rows: dict(enumerate(rows)), TypeError, "dict.*values"),
    "set": (lambda rows: set(TEXTS), TypeError, "set.*order"),
    "generator": (lambda rows: (row for row in rows), TypeError, "generator.*list"),
    "sparse matrix": (_sparse("csr_matrix"), TypeError, "sparse"),
    "sparse array": (_sparse("csr_array"), TypeError, "sparse"),
    "complex": (
        lambda rows: np.array([1j, 2]), ValueError, "Complex data not supported",
    ),
    "complex rows": (put(2j), ValueError, "Complex data not supported"),
    "dict row": (put({"a": 1}), ValueError, "dict at position 1"),
    "3 columns": (_many_columns, ValueError, r"shape \(12, 3\)"),
    "no columns": (lambda rows: np.empty((12, 0), object), ValueError, r"0 feature\(s\)"),
    "3-d array": (
        lambda rows: np.full((2, 2, 2), "a", object), ValueError, r"shape \(2, 2, 2\)",
    ),
    "scalar array": (lambda rows: np.array("text"), ValueError, "0-d"),
    "two kinds of rows": (
        lambda rows: [*TEXTS[:2], *WORDS[:2]],
        ValueError,
        "one kind|lists of words",
    ),
}  # fmt: skip


def check_refuses(subject: Subject, name: str) -> None:
    """An error that names the estimator, what came and where, and leaves no trace."""
    make, error, message = REFUSED[name]
    pattern = f"(?s)(?=.*{type(subject.estimator).__name__})(?=.*(?:{message}))"
    estimator = subject.new()
    with pytest.raises(error, match=pattern):
        subject.fit(make(subject.rows), estimator=estimator)
    assert not [attribute for attribute in vars(estimator) if attribute.endswith("_")]
    before = dict(vars(subject.fitted))
    for method in methods(subject.fitted):
        with pytest.raises(error, match=pattern):
            getattr(subject.fitted, method)(make(subject.rows))
    assert vars(subject.fitted) == before


def check_y(subject: Subject) -> None:
    """y must be there, and as long as X."""
    assert subject.make_y is not None
    y = subject.make_y(subject.rows)
    with pytest.raises(ValueError, match=r"inconsistent|length|samples"):
        subject.new().fit(subject.rows, y[:-1])
    with pytest.raises(
        ValueError, match="requires y to be passed, but the target y is None"
    ):
        subject.new().fit(subject.rows, None)


def check_unfitted(subject: Subject) -> None:
    """Comes before any look at X."""
    for method in methods(subject.estimator):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(subject.new(), method)(object())


def check_param_validation(subject: Subject) -> None:
    """Every parameter is looked at, in fit and not before."""
    skipped = {"random_state", "verbose"}
    for name in set(subject.new().get_params(deep=False)) - skipped:
        bad = subject.new().set_params(**{name: object})
        with pytest.raises((ValueError, TypeError), match=f"(?s)'{name}' parameter of"):
            subject.fit(estimator=bad)


# Unusual texts, columns, names -------------------------------------------------------

STRANGE = {
    "lone surrogate": "good \ud800 film \udfff",
    "NUL": "good\x00film",
    "zero width": "good\u200bfilm\u200d\ufeff",
    "only zero width": "\u200b",
    "empty": "",
    "blank": " \t\n",
    "joined emoji": "\U0001f469\u200d\U0001f4bb",
    "combining": "e\u0301",
    "right to left": "\u202eabc",
    "line separators": "a\u2028b\x85c",
    "special pieces": "[CLS] [SEP] [MASK] [PAD] [UNK]",
}


def check_strange_texts(subject: Subject) -> None:
    """No text breaks anything; a surrogate, which no file can hold, reads as U+FFFD."""
    texts = list(STRANGE.values())
    mended = [re.sub("[\ud800-\udfff]", "\ufffd", text) for text in texts]
    words = subject.kinds[0] == "words"
    rows, plain = ([[*t.split(" "), t] for t in some] if words else some
                   for some in (texts, mended))  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VocabularyWarning)
        estimator = subject.fit(rows=rows)
        got = outputs(estimator, rows)
        assert_same(outputs(estimator, plain), got)
        assert_same(outputs(subject.fit(rows=plain), plain), got)
    for value in got.values():
        assert len(value) == len(rows)
        for row in value:
            assert np.asarray(row).dtype.kind != "f" or np.isfinite(row).all()


def check_only_empty(subject: Subject) -> None:
    """Nothing but empty rows: no error at prediction."""
    empty = {"texts": ["", ""], "words": [[], []], "pairs": [("", ""), ("", "")]}
    for value in outputs(subject.fitted, empty[subject.kinds[0]]).values():
        assert len(value) == 2


def check_columns(subject: Subject) -> None:
    """One column is texts, two are pairs where these are known, names are kept."""
    import pandas as pd

    frame = pandas_frame(subject.rows)
    estimator = subject.fit(frame)
    assert estimator.n_features_in_ == 1
    assert estimator.feature_names_in_.dtype == object
    assert list(estimator.feature_names_in_) == ["text"]
    assert_same(outputs(estimator, subject.rows), subject.expected)  # a list after a frame
    for method in methods(estimator):
        with pytest.raises(ValueError, match="feature names should match"):
            getattr(estimator, method)(frame.rename(columns={"text": "other"}))
    assert not hasattr(subject.fitted, "n_features_in_")
    assert not hasattr(subject.fitted, "feature_names_in_")
    assert_same(outputs(subject.fitted, frame), subject.expected)
    array = objects(subject.rows).reshape(-1, 1)
    column = subject.fit(array)
    assert column.n_features_in_ == 1
    assert not hasattr(column, "feature_names_in_")

    pairs = pd.DataFrame(PAIRS, columns=["first", "second"])
    if "pairs" in subject.kinds:
        estimator = subject.fit(pairs, PAIRS)
        assert estimator.n_features_in_ == 2
        assert list(estimator.feature_names_in_) == ["first", "second"]
        for method in methods(estimator):
            with pytest.raises(ValueError, match="feature names should match"):
                getattr(estimator, method)(pairs[["second", "first"]])
    else:
        with pytest.raises(ValueError, match=r"shape \(12, 2\)"):
            subject.fit(pairs, PAIRS)


# Invariances -------------------------------------------------------------------------


def check_one_row(subject: Subject) -> None:
    for position in range(len(subject.rows)):
        alone = outputs(subject.fitted, [subject.rows[position]])
        assert_close(alone, take(subject.expected, [position]))
    if subject.make_y is None:
        estimator = subject.fit(rows=subject.rows[:1])
        assert_close(outputs(estimator, subject.rows), subject.expected)


def check_same_row_twice(subject: Subject) -> None:
    """Equal rows have equal outputs, which do not share memory."""
    got = outputs(subject.fitted, [*subject.rows[:3], subject.rows[1]])
    assert_same(take(got, [3]), take(got, [1]))
    for value in got.values():
        assert not np.shares_memory(value[3], value[1])


def check_order(subject: Subject) -> None:
    """Permuted rows give permuted outputs, to the last bit."""
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(subject.rows))
        got = outputs(subject.fitted, [subject.rows[at] for at in order])
        assert_same(got, take(subject.expected, order))


def check_subsets(subject: Subject) -> None:
    """Neighbours change next to nothing."""
    for seed in range(10):
        some = np.random.default_rng(seed).choice(len(subject.rows), 5, replace=False)
        got = outputs(subject.fitted, [subject.rows[at] for at in some])
        assert_close(got, take(subject.expected, some))


def check_rows_untouched(subject: Subject) -> None:
    rows = copy.deepcopy(subject.rows)
    outputs(subject.fit(rows), rows)
    assert rows == subject.rows


# Fit ---------------------------------------------------------------------------------


def check_fit(subject: Subject) -> None:
    """Returns self, leaves parameters alone, adds names that end in an underscore."""
    estimator = subject.new()
    before, params = set(vars(estimator)), joblib.hash(estimator.get_params())
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    assert subject.fit(estimator=estimator) is estimator
    check_is_fitted(estimator)
    assert joblib.hash(estimator.get_params()) == params
    added = set(vars(estimator)) - before
    assert [name for name in added if not name.strip("_") or name.strip("_") == name] == []


def check_dict_unchanged(subject: Subject) -> None:
    """Nothing is kept, counted or loaded late."""
    estimator = subject.fit()
    before, content = dict(vars(estimator)), joblib.hash(estimator)
    outputs(estimator, subject.rows)
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())
    assert joblib.hash(estimator) == content


def check_fit_idempotent(subject: Subject) -> None:
    estimator = subject.fit()
    assert_same(outputs(estimator, subject.rows), subject.expected)
    subject.fit(estimator=estimator)
    assert_same(outputs(estimator, subject.rows), subject.expected)
    if hasattr(estimator, "fit_transform"):
        y = [] if subject.make_y is None else [subject.make_y(subject.rows)]
        got = subject.new().fit_transform(subject.rows, *y)
        assert_same(got, subject.expected["transform"])


def check_refit(subject: Subject) -> None:
    """Nothing is left of an earlier fit."""
    other = subject.rows[::2]
    estimator = subject.fit(pandas_frame(subject.rows))
    subject.fit(rows=other, estimator=estimator)
    fresh = subject.fit(rows=other)
    assert vars(estimator).keys() == vars(fresh).keys()
    assert_same(outputs(estimator, subject.rows), outputs(fresh, subject.rows))


# Faces -------------------------------------------------------------------------------


def check_params(subject: Subject) -> None:
    estimator = subject.new()
    params = estimator.get_params()
    assert list(params) == sorted(inspect.signature(type(estimator)).parameters)
    assert clone(subject.fitted).get_params() == params
    for name in params:
        for value in (-1, 3.0, "helloworld", [], {}, np.array([1.0, 4.0]), None):
            estimator.set_params(**{name: value})
            assert getattr(estimator, name) is value
    with pytest.raises(ValueError, match="Invalid parameter"):
        estimator.set_params(no_such_parameter=1)


def check_repr(subject: Subject) -> None:
    """What notebooks, consoles and completion show; every parameter is explained."""
    for estimator in (subject.new(), subject.fitted):
        documented = _documented(type(estimator))
        html, names = estimator._repr_html_(), dir(estimator)
        assert type(estimator).__name__ in repr(estimator)
        assert set(estimator.get_params()) <= documented
        assert {n for n in vars(estimator) if re.fullmatch(r"[a-z]\w*_", n)} <= documented
        assert set(methods(estimator)) | {"fit", "save", "load"} <= set(names)
        assert "_repr_html_" in names
        if "estimator-table" in html:  # scikit-learn 1.7
            assert all(f'"param">{n}' in html or n in html for n in estimator.get_params())
        if getattr(estimator, "_get_doc_link", str)() and "param-doc" in html:  # 1.8
            assert html.count('"param-doc-description"') >= len(estimator.get_params())


def _documented(kind: type) -> set[str]:
    """Names that the docstring explains, as numpydoc reads it."""
    return set(re.findall(r"^(\w+) : ", inspect.getdoc(kind) or "", re.MULTILINE))


def check_tags(subject: Subject) -> None:
    """Honest, and none that makes scikit-learn look away."""
    tags = get_tags(subject.estimator)
    wanted = (True, True, False, False)
    got = (
        tags.input_tags.string,
        tags.input_tags.one_d_array,
        tags.input_tags.two_d_array,
        tags.input_tags.allow_nan,
    )
    assert got == wanted
    assert not (tags.non_deterministic or tags.no_validation or tags._skip_test)
    assert tags.requires_fit
    assert tags.target_tags.required == (subject.make_y is not None)
    if tags.transformer_tags is not None:
        assert tags.transformer_tags.preserves_dtype == []


# State -------------------------------------------------------------------------------


def _through_file(write: Callable[[Any, Path], Any], read: Callable[[Path], Any]) -> Any:
    def round_trip(estimator: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            write(estimator, path := Path(folder, "estimator"))
            return read(path)

    return round_trip


def _through_pickle(protocol: int) -> Callable[[Any], Any]:
    return lambda estimator: pickle.loads(pickle.dumps(estimator, protocol))


def _out_of_band(estimator: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    small = pickle.dumps(estimator, 5, buffer_callback=buffers.append)
    assert buffers
    frozen = [bytes(buffer.raw()) for buffer in buffers]  # read-only, as shared memory is
    return pickle.loads(small, buffers=frozen)


def _through_skops(estimator: Any) -> Any:
    import skops.io

    data = skops.io.dumps(estimator)
    (untrusted,) = skops.io.get_untrusted_types(data=data)
    assert untrusted.rpartition(".")[2] == type(estimator).__name__
    with pytest.raises(skops.io.exceptions.UntrustedTypesFoundException):
        skops.io.loads(data)
    return skops.io.loads(data, trusted=[untrusted])


def _through_module(name: str) -> Callable[[Any], Any]:
    def round_trip(estimator: Any) -> Any:
        module = pytest.importorskip(name, reason=f"{name} is not installed")
        return module.loads(module.dumps(estimator))

    return round_trip


def _save(estimator: Any, path: Path) -> None:
    estimator.save(path)


def _through_folder(estimator: Any) -> Any:
    return _through_file(_save, type(estimator).load)(estimator)


ROUND_TRIPS: dict[str, Callable[[Any], Any]] = {
    "pickle 2": _through_pickle(2),
    "pickle 4": _through_pickle(4),
    "pickle 5": _through_pickle(5),
    "pickle with buffers": _out_of_band,
    "joblib": _through_file(joblib.dump, joblib.load),
    "joblib mmap": _through_file(joblib.dump, partial(joblib.load, mmap_mode="r")),
    "joblib compressed": _through_file(partial(joblib.dump, compress=1), joblib.load),
    "cloudpickle": _through_module("cloudpickle"),
    "dill": _through_module("dill"),
    "skops": _through_skops,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "folder": _through_folder,
}


def check_round_trip(subject: Subject, name: str) -> None:
    """All outputs, parameters and fitted attributes come back, and can go again."""
    digest = partial(joblib.hash, coerce_mmap=True)  # a map of the same numbers
    before = digest(subject.fitted)
    back = subject.fitted
    for _ in range(2):
        back = ROUND_TRIPS[name](back)
        assert type(back) is type(subject.fitted)
        assert vars(back).keys() == vars(subject.fitted).keys()
        assert back.get_params() == subject.fitted.get_params()
        assert_same(outputs(back, subject.rows), subject.expected)
    assert digest(back) == before == digest(subject.fitted)
    clone(back)
    subject.fit(estimator=back)
    assert_same(outputs(back, subject.rows), subject.expected)


def check_unfitted_round_trips(subject: Subject) -> None:
    for name, round_trip in ROUND_TRIPS.items():
        if name in ("folder", "pickle with buffers", "dill"):
            continue  # nothing to save; no arrays; need not be installed
        assert round_trip(subject.new()).get_params() == subject.new().get_params()
    with tempfile.TemporaryDirectory() as folder, pytest.raises(NotFittedError):
        subject.new().save(folder)


def check_copy_is_apart(subject: Subject) -> None:
    original = subject.fit()
    for duplicate in (copy.copy(original), copy.deepcopy(original)):
        before = original.get_params()
        duplicate.set_params(**dict.fromkeys(before, "changed"))
        duplicate.added_ = 1
        assert original.get_params() == before
        assert not hasattr(original, "added_")
    assert_same(outputs(original, subject.rows), subject.expected)


class _Recorder(pickle.Unpickler):
    """Keeps the names of all classes and functions that a pickle asks for."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module.partition(".")[0])
        return super().find_class(module, name)


def check_pickle_content(subject: Subject) -> None:
    """Plain values only, so that no version of a library is needed to read them."""
    recorder = _Recorder(pickle.dumps(subject.fitted))
    recorder.load()
    assert (
        recorder.modules & {"torch", "transformers", "tokenizers", "safetensors"} == set()
    )


def check_version_warning(subject: Subject) -> None:
    state = subject.fitted.__getstate__()
    assert state["_skbert_version"]
    old = subject.new()
    with pytest.warns(VersionWarning, match="saved by skbert 0.0.0"):
        old.__setstate__({**state, "_skbert_version": "0.0.0"})
    assert_same(outputs(old, subject.rows), subject.expected)


def check_hash(subject: Subject) -> None:
    """Caches find a fitted estimator again: after use, and after a second fit."""
    first, second = subject.fit(), subject.fit()
    before = joblib.hash(first)
    outputs(first, subject.rows)
    assert joblib.hash(first) == before == joblib.hash(second)


def check_second_process(subjects: list[Subject]) -> None:
    """There the hash is the same, also of a fit; a file needs no checkpoint folder."""
    tasks, hashes = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for at, subject in enumerate(subjects):
            shown = folder / f"checkpoint {at}"
            shown.symlink_to(subject.estimator.model, target_is_directory=True)
            estimator = subject.fit(estimator=subject.new().set_params(model=str(shown)))
            y = None if subject.make_y is None else subject.make_y(subject.rows)
            joblib.dump(estimator, folder / f"fitted {at}")
            tasks.append((clone(estimator), subject.rows, y))
            hashes.append(joblib.hash(estimator))
        joblib.dump(tasks, folder / "tasks")
        report = json.loads(run_python(_SECOND_PROCESS, name))
        got = joblib.load(folder / "outputs")
    assert report["loaded"] == report["fitted"] == hashes
    for subject, there in zip(subjects, got, strict=True):
        assert_same(there, subject.expected)


_SECOND_PROCESS = """
import json, os, sys
import joblib
from estimators.text_checks import outputs, timeless

folder = sys.argv[1]
tasks = joblib.load(folder + "/tasks")
report, got = {"fitted": [], "loaded": []}, []
for at in range(len(tasks)):
    unfitted, rows, y = tasks.pop(0)
    report["fitted"].append(joblib.hash(timeless(unfitted.fit(rows, y))))
    del unfitted
    os.rename(f"{folder}/checkpoint {at}", f"{folder}/hidden {at}")
    estimator = joblib.load(f"{folder}/fitted {at}")
    got.append(outputs(estimator, rows))
    report["loaded"].append(joblib.hash(estimator))
joblib.dump(got, folder + "/outputs")
print(json.dumps(report))
"""


def run_python(code: str, *arguments: str, timeout: float = 120) -> str:
    """What a fresh interpreter prints, without a network and with as many threads."""
    paths = [str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Manners -----------------------------------------------------------------------------


def _process_state() -> dict[str, Any]:
    """What belongs to the user's process."""
    from transformers.utils import logging as transformers_logging

    kind, keys, *position = np.random.get_state()
    root = logging.getLogger()
    return {
        "torch generator": torch.get_rng_state().tolist(),
        "numpy generator": (kind, keys.tolist(), position),
        "python generator": random.getstate(),
        "torch threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch modes": (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.are_deterministic_algorithms_enabled(),
        ),
        "environment": dict(os.environ),
        "warning filters": list(warnings.filters),
        "numpy errors": np.geterr(),
        "logging": (root.level, list(root.handlers), logging.root.manager.disable),
        "transformers": (
            transformers_logging.get_verbosity(),
            transformers_logging.is_progress_bar_enabled(),
        ),
        "folder": os.getcwd(),
    }


def check_process_untouched(subject: Subject) -> None:
    """Fit and prediction leave generators, threads, settings and streams alone."""
    subject.fit()  # what the first import of a library does is not ours
    before = _process_state()
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        estimator = subject.fit()
        after_fit = _process_state()
        outputs(estimator, subject.rows)
        pickle.loads(pickle.dumps(estimator))
    assert after_fit == before
    assert _process_state() == before
    assert said.getvalue() == complained.getvalue() == ""


CHECKS: tuple[Callable[[Subject], None], ...] = (
    check_unfitted,
    check_tags,
    check_params,
    check_param_validation,
    check_repr,
    check_strange_texts,
    check_only_empty,
    check_columns,
    check_one_row,
    check_same_row_twice,
    check_order,
    check_subsets,
    check_rows_untouched,
    check_fit,
    check_dict_unchanged,
    check_fit_idempotent,
    check_refit,
    check_unfitted_round_trips,
    check_copy_is_apart,
    check_pickle_content,
    check_version_warning,
    check_hash,
    check_process_untouched,
)
