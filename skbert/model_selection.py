"""Folds for ragged tags, where scikit-learn's own do not serve.

``KFold``, ``GroupKFold`` and ``ShuffleSplit`` work on tagged sentences as they are;
``StratifiedKFold`` refuses them, since a sentence has no one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from skbert.text.tags import check_tags, detect_scheme, find_spans
from skbert.text.validation import to_builtin
from skbert.text.words import check_spans

__all__ = ["StratifiedTagKFold"]


class StratifiedTagKFold(BaseCrossValidator):
    """Folds of sentences that hold like numbers of each label.

    For entities the labels are those of the entities ("PER"), for other tags the tags
    themselves. The rarest label is dealt out first, each sentence with it to the fold that
    lacks it most [1]_. Folds differ in size by a few sentences at most.

    Parameters
    ----------
    n_splits : int, default=5
        Folds, at least 2.
    shuffle : bool, default=False
        Whether sentences are dealt out in random order.
    random_state : int, RandomState or None, default=None
        Of the shuffling.

    References
    ----------
    .. [1] Sechidis, Tsoumakas and Vlahavas (2011), On the stratification of multi-label
       data.

    Examples
    --------
    >>> from skbert.model_selection import StratifiedTagKFold
    >>> X = [["Ada"], ["Bob"], ["Rome"], ["Oslo"], ["so"], ["it"]]
    >>> y = [["B-PER"], ["B-PER"], ["B-LOC"], ["B-LOC"], ["O"], ["O"]]
    >>> for train, test in StratifiedTagKFold(2).split(X, y):
    ...     print(test)
    [0 2 4]
    [1 3 5]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        shuffle: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds.

        Parameters
        ----------
        X, y, groups : ignored

        Returns
        -------
        int
        """
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Positions to train and to test on, fold by fold.

        Parameters
        ----------
        X : array-like of shape (n_samples,)
            Only its length counts, which is that of y.
        y : array-like of shape (n_samples,)
            A list of tags for each sentence, or of spans (start, end, label).
        groups : ignored

        Yields
        ------
        train, test : ndarray of int
            Sorted.

        Raises
        ------
        ValueError
            If there are fewer sentences than folds, or y holds no lists of tags.
        """
        if not isinstance(self.n_splits, Integral) or self.n_splits < 2:
            raise ValueError(
                "The 'n_splits' parameter of StratifiedTagKFold must be an int of at least "
                f"2. Got {self.n_splits!r} instead."
            )
        counts = _count(_labels(y))
        if len(counts) < self.n_splits:
            raise ValueError(
                f"StratifiedTagKFold needs at least as many sentences as folds. Got "
                f"{len(counts)} sentences and n_splits={self.n_splits}."
            )
        order = np.arange(len(counts))
        if self.shuffle:
            check_random_state(self.random_state).shuffle(order)
        fold = np.empty(len(counts), dtype=np.int64)
        fold[order] = _deal(counts[order], self.n_splits)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _labels(y: Any) -> list[list[Any]]:
    """The labels of each sentence."""
    rows = to_builtin(y)
    parts = [part for row in rows for part in row] if isinstance(rows, list) else []
    if parts and all(isinstance(part, tuple | list | Mapping) for part in parts):
        return [[label for *_, label in spans] for spans in check_spans(y, None, "y")]
    sentences = check_tags(y, only_str=False)
    if detect_scheme(sentences) is None:
        return sentences
    return [[label for *_, label in find_spans(tags, None)] for tags in sentences]


def _count(rows: list[list[Any]]) -> np.ndarray:
    """How often each label is in each sentence, (n_sentences, n_labels)."""
    column = {label: i for i, label in enumerate(sorted(set().union(*rows)))}
    counts = np.zeros((len(rows), len(column)), dtype=np.int64)
    for row, labels in enumerate(rows):
        for label in labels:
            counts[row, column[label]] += 1
    return counts


def _deal(counts: np.ndarray, n_folds: int) -> np.ndarray:
    """Number of the fold of each sentence."""
    n_rows = len(counts)
    fold = np.full(n_rows, -1)
    wanted = np.tile(counts.sum(axis=0) / n_folds, (n_folds, 1))
    room = np.full(n_folds, n_rows / n_folds)

    def put(row: int, lack: np.ndarray) -> None:
        # A full fold takes no more; then what lacks most, then where most room is.
        open_folds = np.flatnonzero(room > 0)
        best = max(open_folds, key=lambda k: (lack[k], room[k], -k))
        fold[row] = best
        room[best] -= 1
        wanted[best] -= counts[row]

    left = counts.copy()
    while (frequency := left.sum(axis=0)).any():
        label = int(np.where(frequency > 0, frequency, frequency.max() + 1).argmin())
        for row in np.flatnonzero(left[:, label]):
            put(int(row), wanted[:, label])
            left[row] = 0
    for row in np.flatnonzero(fold < 0):  # sentences without any label
        put(int(row), room)
    return fold
