"""y and sample weights, checked and in a form to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skbert.text.tags import check_tags


def read_labels(y: Any, n_samples: int, name: str) -> tuple[str | None, np.ndarray]:
    """Kind and labels: None for one per row, "lists", or the type of an indicator."""
    if hasattr(y, "__array__") and not hasattr(y, "__iter__"):
        y = np.asarray(y)
    if getattr(y, "ndim", None) == 2 and y.shape[1] == 1:
        return None, check_labels(y, n_samples, name)  # a column of labels
    if y is not None and not isinstance(y, str):
        first: Any = next(iter(y.tolist() if hasattr(y, "tolist") else y), None)
        if isinstance(first, list | tuple | set) and all(isinstance(v, str) for v in first):
            rows = np.empty(len(y), dtype=object)
            for position, row in enumerate(y):
                if isinstance(row, str) or not all(isinstance(label, str) for label in row):
                    raise ValueError(
                        f"y of {name} must hold a list of strings for every row. Got "
                        f"{row!r} at position {position}."
                    )
                rows[position] = sorted(set(row))
            check_length(rows, n_samples, "y", name)
            return "lists", rows
        rows_of_many = isinstance(first, list | tuple) or np.ndim(first) == 1
        if getattr(y, "ndim", None) == 2 or (rows_of_many and not isinstance(first, set)):
            try:
                matrix = y.toarray() if issparse(y) else np.asarray(y)
            except ValueError as error:
                raise ValueError(
                    f"y of {name} holds rows of several lengths. For several labels per "
                    "row give a list of strings for each, or a matrix of zeros and ones."
                ) from error
            if type_of_target(matrix) == "multilabel-indicator":
                check_length(matrix, n_samples, "y", name)
                if not np.isin(matrix, (0, 1)).all():
                    raise ValueError(
                        f"y of {name} must be a matrix of zeros and ones for several "
                        f"labels per row. Got the values {np.unique(matrix)[:5].tolist()}."
                    )
                return matrix.dtype.str, matrix
    return None, check_labels(y, n_samples, name)


def encode_labels(
    kind: str | None, labels: np.ndarray, classes: np.ndarray, name: str
) -> np.ndarray:
    """Class numbers, or a float matrix of zeros and ones."""
    if kind == "lists" and labels.dtype != object:
        raise ValueError(
            f"y of {name} must hold a list of labels for each row, as in fit. Got "
            f"{labels[0]!r} at position 0."
        )
    if kind == "lists":
        known = {label: column for column, label in enumerate(classes.tolist())}
        matrix = np.zeros((len(labels), len(classes)), dtype=np.float32)
        for row, names in enumerate(labels):
            if unknown := [label for label in names if label not in known]:
                raise ValueError(f"y of {name} holds labels {unknown} unknown to fit.")
            matrix[row, [known[label] for label in names]] = 1
        return matrix
    if kind is not None:
        return labels.astype(np.float32)
    targets = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    if (wrong := classes[targets] != labels).any():
        raise ValueError(
            f"y of {name} holds labels {np.unique(labels[wrong]).tolist()} that are not "
            f"among the classes {classes.tolist()}."
        )
    return targets.astype(np.int64)


def read_tags(
    y: Any, lengths: Sequence[int], caller: str, name: str = "y"
) -> list[list[Any]]:
    """One list of tags for each sentence, as many as it has words; ``name`` is that of y.

    Raises
    ------
    ValueError
        If y is missing, tags are missing or of several types, or numbers differ; the
        positions are named.
    """
    if y is None:
        raise ValueError(
            f"{caller} requires y to be passed, but the target y is None. Give a list of "
            "tags for each sentence of X."
        )
    tags = check_tags(y, f"{name} of {caller}", only_str=False)
    check_length(np.empty(len(tags)), len(lengths), name, caller)
    wrong = [
        f"{n_words} words and {len(row)} tags at position {at}"
        for at, (n_words, row) in enumerate(zip(lengths, tags, strict=True))
        if n_words != len(row)
    ]
    if wrong:
        raise ValueError(
            f"{name} of {caller} must hold one tag for each word. Got "
            f"{', '.join(wrong[:5])}; {len(wrong)} of {len(tags)} sentences."
        )
    empty = [at for at, row in enumerate(tags) if "" in row or -100 in row]
    if empty:
        raise ValueError(
            f"{name} of {caller} holds '' or -100, which stand for words without a tag "
            f"elsewhere, at positions {empty[:5]}, {len(empty)} in all. Give every word a "
            "tag."
        )
    kinds = {_kind(tag) for row in tags for tag in row}
    if len(kinds) > 1:
        raise ValueError(
            f"{name} of {caller} mixes tags of the types {sorted(kinds)}: convert them to "
            "one, for example with str()."
        )
    return tags


def encode_tags(
    tags: Sequence[Sequence[Any]], classes: np.ndarray, caller: str
) -> list[np.ndarray]:
    """Numbers of tags, one int64 array for each sentence."""
    known = {label: number for number, label in enumerate(classes.tolist())}
    unknown = {tag for row in tags for tag in row} - set(known)
    if unknown:
        raise ValueError(
            f"y of {caller} holds tags {sorted(unknown)} that are not among the classes "
            f"{classes.tolist()}."
        )
    return [np.array([known[tag] for tag in row], dtype=np.int64) for row in tags]


def check_class_weight(
    class_weight: Any,
    targets: np.ndarray,
    weights: np.ndarray,
    classes: np.ndarray,
    caller: str,
) -> np.ndarray:
    """Weight of each class: given by label, or n_samples / (n_classes * count).

    Samples are counted by their weights, as scikit-learn does.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
    targets : ndarray of shape (n_samples,), int64
    weights : ndarray of shape (n_samples,)
    classes : ndarray of shape (n_classes,)
    caller : str

    Returns
    -------
    ndarray of shape (n_classes,), float64
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, dict):
        unknown = set(class_weight) - set(classes.tolist())
        if unknown:
            raise ValueError(
                f"The 'class_weight' parameter of {caller} must be keyed by the labels "
                f"{classes.tolist()}. Got {sorted(unknown, key=str)}."
            )
        by_class = [class_weight.get(label, 1.0) for label in classes.tolist()]
        weights = np.array(by_class, dtype=np.float64)
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ValueError(
                f"The 'class_weight' parameter of {caller} must hold finite weights that "
                f"are not negative, and not all 0. Got {class_weight}."
            )
        return weights
    counts = np.bincount(targets, weights, minlength=len(classes))
    present = counts > 0
    balanced = np.ones(len(classes))
    balanced[present] = counts.sum() / (present.sum() * counts[present])
    return balanced


def check_labels(y: Any, n_samples: int, caller: str) -> np.ndarray:
    """Class labels as a 1-D array, with their own type.

    Raises
    ------
    ValueError
        If y is missing, of another length, continuous, or holds missing values or labels
        of several types.
    """
    if y is None:
        raise ValueError(
            f"{caller} requires y to be passed, but the target y is None. Give a label "
            "for each row of X."
        )
    values = column_or_1d(_to_array(y), warn=True)
    check_length(values, n_samples, "y", caller)
    if values.dtype.kind in "fc" and not np.all(np.isfinite(values)):
        bad = np.flatnonzero(~np.isfinite(values)).tolist()
        raise ValueError(
            f"y of {caller} contains NaN or infinity at positions {bad[:5]}, {len(bad)} in "
            "all. Drop these rows."
        )
    if values.dtype == object:
        bad = [i for i, label in enumerate(values) if label is None or label != label]
        if bad:
            raise ValueError(
                f"y of {caller} contains missing labels (NaN or None) at positions "
                f"{bad[:5]}, {len(bad)} in all. Drop these rows."
            )
        kinds = {_kind(label) for label in values}
        if len(kinds) > 1:
            raise ValueError(
                f"y of {caller} mixes labels of the types {sorted(kinds)}. Unknown label "
                "type: convert them to one, for example with str()."
            )
        if kinds == {"str"} and isinstance(y, list | tuple):
            values = np.asarray(y)
    check_classification_targets(values)
    return values


def check_values(y: Any, n_samples: int, caller: str) -> np.ndarray:
    """Targets of a regression as float64, (n_samples,) or (n_samples, n_targets)."""
    if y is None:
        raise ValueError(
            f"{caller} requires y to be passed, but the target y is None. Give a number "
            "for each row of X."
        )
    try:
        values = np.array(_to_array(y), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y of {caller} must be numbers: {error}.") from error
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    if values.ndim not in (1, 2):
        raise ValueError(f"y of {caller} must have 1 or 2 axes. Got shape {values.shape}.")
    check_length(values, n_samples, "y", caller)
    if not np.all(np.isfinite(values)):
        bad = np.flatnonzero(~np.isfinite(values.reshape(n_samples, -1)).all(axis=1))
        raise ValueError(
            f"y of {caller} contains NaN or infinity at positions {bad[:5].tolist()}, "
            f"{len(bad)} in all. Drop these rows."
        )
    return values


def check_weights(sample_weight: Any, n_samples: int, caller: str) -> np.ndarray:
    """Weights as a fresh float64 array, ones where none are given."""
    if sample_weight is None:
        return np.ones(n_samples)
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.ndim != 1:
        raise ValueError(
            f"Sample weights of {caller} must be 1D array or scalar. Got shape "
            f"{weights.shape}."
        )
    check_length(weights, n_samples, "sample_weight", caller)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError(f"sample_weight of {caller} must be finite and not negative.")
    if not np.any(weights):
        raise ValueError(
            f"All sample weights of {caller} are zero: at least one must be positive."
        )
    return weights


def _to_array(y: Any) -> np.ndarray:
    """An array with plain labels: nullable and Arrow types become Python's."""
    if not isinstance(y, np.ndarray):
        convert = getattr(y, "to_numpy", None)
        if hasattr(y, "to_pylist"):  # Arrow
            y = y.to_pylist()
        elif convert is not None:
            y = convert()
    array = np.asarray(y)
    if array.dtype.kind in "US" and array.ndim == 1 and not isinstance(y, np.ndarray):
        # A list of several types, of which numpy would make strings: NaN to "nan".
        array = np.array(list(y), dtype=object)
    if array.dtype.kind == "T":  # numpy's variable-width strings, which sklearn rejects
        array = array.astype(object)
    if array.dtype == object and array.ndim == 1 and len(array):
        if all(isinstance(label, bool | np.bool_) for label in array):
            return array.astype(bool)
        if all(isinstance(label, int | np.integer) for label in array):
            return array.astype(np.int64)
    return array


def check_length(values: np.ndarray, n_samples: int, name: str, caller: str) -> None:
    """Raise unless there is a value for each row of X."""
    if len(values) != n_samples:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X of {caller} "
            f"has {n_samples} rows and {name} {len(values)}."
        )


def _kind(label: Any) -> str:
    if isinstance(label, str):
        return "str"
    if isinstance(label, bool | np.bool_):
        return "bool"
    return "number" if isinstance(label, int | float | np.number) else type(label).__name__
