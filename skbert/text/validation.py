"""What may stand in X: one check that turns any container into a plain list.

The kind of a row is told by its type, never by its length:

- a ``str`` is a text;
- a tuple of two ``str``, or a row of two columns, is a pair of texts;
- a list (or a one-dimensional array, or a list value of pandas, polars or Arrow) is
  a list of words, even if it holds two words or every row has as many.

Where pairs are not accepted, a tuple is a list of words too, and so is a row of an
array of two or more columns; a frame of several columns is then refused. One column,
of a frame or of an array, is read as if its cells stood in a list.

Rows are counted by position; the labels of an index are never looked at. Data frame
libraries are known by their methods and never imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from numbers import Number
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Row", "check_rows", "column_names", "n_columns"]

Row: TypeAlias = str | tuple[str, str] | list[str]

_SURROGATES = re.compile("[\ud800-\udfff]")
_N_NAMED = 5  # positions written out in a message
_WANTED = {
    "texts": "texts (str)",
    "pairs": "pairs of texts (tuples of two str, or two columns)",
    "words": "lists of words (lists of str)",
}
_SINGULAR = {"texts": "text", "pairs": "pair", "words": "list of words"}
_RULE = "A str is a text, a tuple of two str a pair, a list of str a list of words."


def check_rows(
    X: Any, *, caller: str, accept: Collection[str] = ("texts", "pairs", "words")
) -> list[Row]:
    """Plain list of texts, of pairs or of word lists, all rows of one kind.

    Parameters
    ----------
    X : list, tuple, ndarray, Series, data frame, Arrow array or other sequence
        Texts, pairs or word lists; the module's docstring has the rules.
    caller : str
        Name of the estimator, for messages.
    accept : collection of {"texts", "pairs", "words"}, default=all three
        The kinds of rows that the caller can use.

    Returns
    -------
    list of str, of tuple (str, str) or of list of str
        New lists of plain ``str``. A surrogate code point, which has no UTF-8 form,
        becomes U+FFFD, so lengths stay; all other characters pass unchanged.

    Raises
    ------
    TypeError
        If X as a whole is sparse, a mapping, a set, an iterator, bytes or no container.
    ValueError
        If X is a single string, empty, numeric or of a wrong shape, if a row (or a
        word in it) is missing or no str, or if rows are mixed or not of an accepted
        kind.

    Examples
    --------
    >>> import numpy as np
    >>> from skbert.text.validation import check_rows
    >>> check_rows(np.array([["good film"], ["bad film"]]), caller="BertClassifier")
    ['good film', 'bad film']
    >>> check_rows([["good", "film"], ["bad"]], caller="BertTagger", accept=["words"])
    [['good', 'film'], ['bad']]
    """
    must = f"X of {caller} must hold {_alternatives(accept)}."
    rows = _to_rows(X, must, accept)
    if not rows:
        raise ValueError(f"{must} Got 0 rows, while at least 1 is required.")
    if set(map(type, rows)) == {str}:  # by far the most frequent: 0.1 s a million
        kind = "texts"
        checked: list[Row] = [row if row.isascii() else _plain(row) for row in rows]
    else:
        kind, checked = _check_each(rows, must, "pairs" in accept)
    if kind not in accept:
        came = f"{_name(kind, rows[0])} at position 0"
        raise ValueError(f"{must} Got {came}. {_conversion(kind, accept)}")
    return checked


def column_names(X: Any) -> list[str] | None:
    """Column names of a data frame, None for other containers or names not all str.

    Parameters
    ----------
    X : object
        Whatever was given as X.

    Returns
    -------
    list of str or None
        Also None for a Series, and for a frame without columns.
    """
    if _frame_columns(X) is None:
        return None
    names = X.schema.names if hasattr(type(X), "num_columns") else X.columns
    if len(names) == 0 or not all(isinstance(name, str) for name in names):
        return None
    return [str.__str__(name) for name in names]


def n_columns(X: Any) -> int | None:
    """Count of columns of a frame or a two-dimensional array, else None.

    Parameters
    ----------
    X : object
        Whatever was given as X.

    Returns
    -------
    int or None
        None also for lists, whatever their rows are.
    """
    columns = _frame_columns(X)
    if columns is not None:
        return len(columns)
    shape = getattr(X, "shape", None)
    if shape is None and hasattr(type(X), "__array__"):
        shape = np.asarray(X).shape
    return int(shape[1]) if isinstance(shape, tuple) and len(shape) == 2 else None


# X as a whole ------------------------------------------------------------------------


def _to_rows(X: Any, must: str, accept: Collection[str]) -> list[Any]:
    """List of the rows of X, which are still to be looked at one by one."""
    if isinstance(X, str):
        raise ValueError(f"{must} Got a single string: wrap it in a list.")
    refusal = _container_fault(X)
    if refusal:
        raise TypeError(f"{must} Got {refusal}")
    columns = _frame_columns(X)
    if columns is not None:
        return _from_columns(columns, X.shape[0], must, accept)
    if isinstance(X, np.ndarray):
        return _from_array(X, must, accept)
    if hasattr(type(X), "to_pylist") or hasattr(type(X), "to_list"):
        return list(to_builtin(X))
    if isinstance(X, Sequence):
        return list(X)
    if hasattr(type(X), "__array__"):
        return _from_array(np.asarray(X), must, accept)
    raise TypeError(
        f"{must} Got an object of type {type(X).__name__}. Use a list, an array, a "
        "Series or a data frame."
    )


def _container_fault(X: Any) -> str:
    """Say what is wrong with the type of X, and what to do; empty if nothing is."""
    name = type(X).__name__
    if isinstance(X, bytes | bytearray | memoryview):
        return f'{name}. Decode it, X.decode("utf-8"), and wrap it in a list.'
    if hasattr(type(X), "tocsr"):
        return f"sparse data of type {name}. Use the texts before they are vectorized."
    if isinstance(X, Mapping):
        return f"a {name}. Use its values, list(X.values()), or one of its columns."
    if isinstance(X, Set):
        return f"a {name}, which has no order. Use a list."
    if hasattr(type(X), "__next__"):
        return f"a {name}, which can be read only once. Use list(X)."
    if hasattr(type(X), "collect"):
        return f"a {name}, which holds no data yet. Use X.collect()."
    return ""


def _frame_columns(X: Any) -> list[Any] | None:
    """Columns of a data frame, by position; None for anything else."""
    kind = type(X)
    if hasattr(kind, "iloc") and hasattr(kind, "columns"):  # pandas
        return [X.iloc[:, index] for index in range(X.shape[1])]
    if hasattr(kind, "get_columns"):  # polars
        return list(X.get_columns())
    if hasattr(kind, "num_columns") and hasattr(kind, "column"):  # Arrow
        return [X.column(index) for index in range(X.num_columns)]
    return None


def _from_columns(
    columns: list[Any], n_rows: int, must: str, accept: Collection[str]
) -> list[Any]:
    """Rows of a frame: the cells of its one column, or pairs."""
    if n_rows == 0:
        return []
    if len(columns) == 1:
        return list(to_builtin(columns[0]))
    if len(columns) == 2 and "pairs" in accept:
        return list(zip(*map(to_builtin, columns), strict=True))
    raise ValueError(_shape_fault((n_rows, len(columns)), must, accept))


def _from_array(X: np.ndarray[Any, Any], must: str, accept: Collection[str]) -> list[Any]:
    """Rows of an array: cells if it has one column, else pairs or word lists."""
    if X.ndim == 0:
        raise ValueError(f"{must} Got a single value (0-d array): wrap it in a list.")
    if X.shape[0] == 0:
        return []
    if X.dtype.kind not in "UOT":  # T: the variable-width strings of numpy 2
        advice = "Use the texts themselves."
        if X.dtype.kind == "c":
            advice = "Complex data not supported."
        elif X.dtype.kind == "S":
            advice = 'Decode them first: numpy.char.decode(X, "utf-8").'
        raise ValueError(f"{must} Got an array of dtype {X.dtype}. {advice}")
    rows: list[Any] = X.tolist()  # None where a masked array is masked
    if X.ndim == 1:
        return rows
    if X.ndim == 2 and X.shape[1] == 1:
        return [row[0] for row in rows]
    if X.ndim == 2 and X.shape[1] == 2 and "pairs" in accept:
        return list(map(tuple, rows))
    if X.ndim == 2 and X.shape[1] > 1 and "pairs" not in accept and "words" in accept:
        return rows
    raise ValueError(_shape_fault(X.shape, must, accept))


def _shape_fault(shape: tuple[int, ...], must: str, accept: Collection[str]) -> str:
    """Message for data of too many columns or dimensions, or of no columns."""
    if len(shape) == 2 and shape[1] == 0:
        # scikit-learn's own words, which its estimator checks look for
        got = f"0 feature(s) (shape={shape}) while a minimum of 1 is required"
        return f"{must} Got {got}."
    if "pairs" in accept:
        advice = "Give a column per text: 1 (texts) or 2 (pairs)."
    elif "texts" in accept:
        advice = "Give 1 column of texts."
    else:
        advice = "Give 1 column whose cells are lists of words."
    return f"{must} Got data of shape {shape}. {advice}"


# Single rows -------------------------------------------------------------------------


class _Fault(Exception):
    """A row, or the word in it at `where`, that is no text."""

    def __init__(self, value: Any, where: str = "") -> None:
        self.value, self.where = value, where


def _check_each(rows: list[Any], must: str, pairs: bool) -> tuple[str, list[Row]]:
    """Kind of the rows, and the rows made plain."""
    checked: list[Row] = []
    kinds: list[str] = []
    faults: list[str] = []
    n_faults, advice = 0, ""
    for position, row in enumerate(rows):
        try:
            kind, plain = _check_row(row, pairs)
        except _Fault as fault:
            n_faults += 1
            if n_faults <= _N_NAMED:
                what, hint = _describe(fault.value)
                faults.append(f"{what} at position {position}{fault.where}")
                advice = advice or hint
        else:
            kinds.append(kind)
            checked.append(plain)
    if n_faults:
        count = f"{n_faults} of {len(rows)} rows in all"
        raise ValueError(f"{must} Got {', '.join(faults)}; {count}. {advice}")
    if len(set(kinds)) > 1:
        other = next(at for at, kind in enumerate(kinds) if kind != kinds[0])
        raise ValueError(
            f"{must} All rows must be of one kind. Got {_name(kinds[0], rows[0])} at "
            f"position 0 but {_name(kinds[other], rows[other])} at position {other}. "
            f"{_RULE}"
        )
    return kinds[0], checked


def _check_row(row: Any, pairs: bool) -> tuple[str, Row]:
    """Kind and plain form of one row."""
    row = to_builtin(row)
    if isinstance(row, str):
        return "texts", _plain(row)
    if isinstance(row, tuple) and pairs:
        if len(row) != 2:
            raise _Fault(row)
        first, second = _plain_items(row, "text")
        return "pairs", (first, second)
    if isinstance(row, list | tuple):
        return "words", _plain_items(row, "word")
    raise _Fault(row)


def _plain_items(items: Sequence[Any], noun: str) -> list[str]:
    """Plain texts of a pair, or words of a list."""
    if not set(map(type, items)) <= {str}:
        items = [to_builtin(item) for item in items]
        for index, item in enumerate(items):
            if not isinstance(item, str):
                raise _Fault(item, f", {noun} {index}")
    elif _plain(joined := "".join(items)) is joined:  # one look for all words
        return list(items)
    return [_plain(item) for item in items]


def _plain(text: str) -> str:
    """Exact str that can be written as UTF-8."""
    if type(text) is not str:  # str.__str__, since an enum writes itself in another way
        text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode()  # faster than the search, which is seldom needed
        except UnicodeEncodeError:
            return _SURROGATES.sub("\ufffd", text)
    return text


def to_builtin(value: Any) -> Any:
    """Python's own form of an array, a Series, a list value or a scalar.

    Methods are looked up in the type: a frame has its columns as attributes.
    """
    if isinstance(value, str | list | tuple):
        return value
    for name in ("to_pylist", "as_py", "tolist", "to_list"):
        method = getattr(type(value), name, None)
        if method is not None:
            return method(value)
    return value


def _describe(value: Any) -> tuple[str, str]:
    """Name of a value that is no text, and what to do about it."""
    name = type(value).__name__
    nan = isinstance(value, float) and value != value
    if value is None or nan or name in ("NAType", "NaTType"):
        return str(value), 'Drop these rows or fill them with "".'
    if isinstance(value, complex):
        return name, "Complex data not supported."
    if isinstance(value, Number):
        return name, "Use the column that holds the texts, or convert: str(value)."
    if isinstance(value, bytes | bytearray | memoryview):
        return name, 'Decode them first: value.decode("utf-8").'
    if isinstance(value, tuple):
        advice = f"{_RULE} For words use [list(row) for row in X]."
        return f"a tuple of length {len(value)}", advice
    return name, _RULE


def _name(kind: str, row: Any) -> str:
    """Words for one row in a message, such as "a pair (tuple)"."""
    return f"a {_SINGULAR[kind]} ({type(row).__name__})"


def _alternatives(accept: Collection[str]) -> str:
    """Words for the accepted kinds of rows."""
    return " or ".join(words for kind, words in _WANTED.items() if kind in accept)


def _conversion(kind: str, accept: Collection[str]) -> str:
    """Advice on how to make an accepted kind out of the kind that came."""
    advice = []
    if kind == "texts" and "words" in accept:
        advice.append(
            "Split first, for example [text.split() for text in X] or, for Chinese, "
            "[list(text) for text in X]."
        )
    if kind == "words" and "texts" in accept:
        advice.append('Join first, for example [" ".join(words) for words in X].')
    if "pairs" in accept:
        advice.append("A pair is a tuple, for example list(zip(first, second)).")
    return " ".join(advice)
