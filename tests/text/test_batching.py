"""DistinctRows and plan_batches: each text once, longest first, whatever the order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from skbert.text import batching
from skbert.text.batching import DistinctRows, n_characters, plan_batches
from skbert.text.encoding import Encoding

TEXTS = ["bb", "a", "cccc", "a", "", "bb", "aa"]
PAIRS = [("a", "b"), ("ab", ""), ("", "ab"), ("a", "b")]
WORDS = [["a", "b"], ["ab"], [], ["", "ab"], ["ab", ""], ["a", "b"]]


def shuffled(rows, seed):
    return random.Random(seed).sample(rows, len(rows))


@pytest.mark.parametrize("rows", [TEXTS, PAIRS, WORDS], ids=["texts", "pairs", "words"])
def test_every_distinct_row_once_with_all_its_positions(rows):
    distinct = DistinctRows(rows)
    assert sorted(p for places in distinct.positions for p in places) == [*range(len(rows))]
    for row, places in zip(distinct.rows, distinct.positions, strict=True):
        assert places == [p for p, other in enumerate(rows) if other == row]
        assert type(row) is type(rows[0])


@pytest.mark.parametrize("rows", [TEXTS, PAIRS, WORDS], ids=["texts", "pairs", "words"])
def test_order_depends_on_the_rows_alone(rows):
    expected = DistinctRows(rows).rows
    for seed in range(5):
        assert DistinctRows(shuffled(rows, seed)).rows == expected


def test_longest_first():
    assert DistinctRows(TEXTS).rows == ["cccc", "bb", "aa", "a", ""]


@pytest.mark.parametrize(
    ("row", "n"),
    [("abc", 3), ("", 0), (("ab", "c"), 5), (["ab", "c"], 5), ([], 0), (["", ""], 2)],
)
def test_n_characters(row, n):
    assert n_characters(row) == n


# Chunks ------------------------------------------------------------------------------


def chunk_lengths(rows):
    chunks = list(DistinctRows(rows).chunks())
    assert [i for chunk in chunks for i in chunk] == [*range(len(set(rows)))]
    return [len(chunk) for chunk in chunks]


def test_chunks_hold_so_many_rows(monkeypatch):
    monkeypatch.setattr(batching, "CHUNK_ROWS", 4)
    assert chunk_lengths([f"{n:02}" for n in range(9)]) == [4, 4, 1]


def test_chunks_hold_so_many_characters(monkeypatch):
    monkeypatch.setattr(batching, "CHUNK_CHARACTERS", 10)
    assert chunk_lengths([f"{n:04}" for n in range(5)]) == [2, 2, 1]


def test_a_huge_row_is_a_chunk_of_its_own(monkeypatch):
    monkeypatch.setattr(batching, "CHUNK_CHARACTERS", 10)
    assert chunk_lengths(["x" * 50, "y" * 30, "z", "zz"]) == [1, 1, 2]


def test_defaults_bound_both(monkeypatch):
    # scikit-learn passes a row or a hundred thousand, and texts of books
    assert max(chunk_lengths([str(n) for n in range(9000)])) == batching.CHUNK_ROWS
    assert chunk_lengths([str(n) * 100_000 for n in range(8)]) == [4, 4]


# Batches -----------------------------------------------------------------------------


def windows(lengths):
    return [
        Encoding(np.full(n, n, np.int32), *[np.zeros(n, np.int32)] * 3, sample)
        for sample, n in enumerate(lengths)
    ]


LENGTHS = [3, 9, 0, 5, 1, 9, 2, 0, 4]


@pytest.mark.parametrize(
    ("max_pieces", "max_rows", "expected"),
    [
        (None, 3, [[9, 9, 5], [4, 3, 2], [1]]),
        (18, None, [[9, 9], [5, 4, 3], [2, 1]]),
        (4, None, [[9], [9], [5], [4], [3], [2, 1]]),  # longer ones stand alone
        (1, None, [[9], [9], [5], [4], [3], [2], [1]]),
        (18, 2, [[9, 9], [5, 4], [3, 2], [1]]),
        (None, None, [[9, 9, 5, 4, 3, 2, 1]]),
    ],
)
def test_batches_are_longest_first_within_the_budget(max_pieces, max_rows, expected):
    plan = plan_batches(windows(LENGTHS), max_pieces=max_pieces, max_rows=max_rows)
    assert [[LENGTHS[index] for index in group] for group in plan] == expected


def test_windows_without_pieces_are_in_no_batch():
    plan = plan_batches(windows([0, 2, 0]), max_pieces=10, max_rows=None)
    assert plan == [[1]]
    assert plan_batches(windows([0, 0]), max_pieces=10, max_rows=None) == []


def test_the_plan_does_not_depend_on_the_order():
    rng = np.random.default_rng(0)
    encodings = [
        Encoding(rng.integers(0, 3, n, dtype=np.int32), *[np.zeros(n, np.int32)] * 3, 0)
        for n in rng.integers(1, 5, 60)
    ]

    def contents(rows):
        plan = plan_batches(rows, max_pieces=12, max_rows=None)
        return [[rows[index].input_ids.tolist() for index in group] for group in plan]

    expected = contents(encodings)
    for seed in range(5):
        assert contents(shuffled(encodings, seed)) == expected
