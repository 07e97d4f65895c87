"""cut_windows and head_and_tail: what holds for every text, and examples by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from skbert.text.windows import cut_windows, head_and_tail, word_borders

SIZES = [1, 1, 1, 2, 2, 3, 5, 9, 30]


def draw_case(seed):
    """Words of 1 to 30 pieces, some numbers left out, and any room and stride."""
    rng = np.random.default_rng(seed)
    n_words = int(rng.integers(1, 40))
    numbers = rng.integers(1, 3, n_words).cumsum() - 1
    words = np.repeat(numbers, rng.choice(SIZES, n_words)).astype(np.int32)
    room = int(rng.integers(1, 16))
    return words, room, int(rng.integers(0, room))


CASES = [draw_case(seed) for seed in range(500)]


def each_case():
    for words, room, stride in CASES:
        yield words, room, stride, cut_windows(words, room, stride)


def test_every_piece_is_owned_once():
    for words, room, stride, windows in each_case():
        owners = np.zeros(len(words), int)
        for window in windows:
            owners[window.own_start : window.own_stop] += 1
        assert (owners == 1).all(), (words, room, stride)


def test_windows_fit_the_room_and_own_some_of_what_they_hold():
    for words, room, stride, windows in each_case():
        for start, stop, own_start, own_stop in windows:
            assert stop - start <= room, (words, room, stride)
            assert start <= own_start < own_stop <= stop, (words, room, stride)


def test_windows_move_on_and_leave_no_gap():
    for words, room, stride, windows in each_case():
        assert windows[0].start == 0 and windows[-1].stop == len(words)
        for left, right in pairwise(windows):
            assert left.start < right.start <= left.stop < right.stop, (words, room, stride)


def test_neighbours_share_at_most_the_stride():
    for words, room, stride, windows in each_case():
        for left, right in pairwise(windows):
            assert left.stop - right.start <= stride, (words, room, stride)


def test_words_that_fit_are_whole_in_their_owner():
    for words, room, stride, windows in each_case():
        for start, stop in pairwise(word_borders(words)):
            owner = next(w for w in windows if w.own_start <= start < w.own_stop)
            assert stop - start > room or stop <= owner.own_stop, (words, room, stride)


@pytest.mark.parametrize(
    ("sizes", "room", "stride", "spans", "owned"),
    [
        ([], 4, 0, [(0, 0)], [(0, 0)]),
        ([2, 2], 4, 3, [(0, 4)], [(0, 4)]),
        ([1] * 6, 4, 0, [(0, 4), (4, 6)], [(0, 4), (4, 6)]),
        ([1] * 6, 4, 2, [(0, 4), (2, 6)], [(0, 3), (3, 6)]),
        ([2, 3, 2], 4, 0, [(0, 2), (2, 5), (5, 7)], [(0, 2), (2, 5), (5, 7)]),
        # no word starts among the last two pieces of the first window: nothing is shared
        ([1, 3, 2], 4, 2, [(0, 4), (4, 6)], [(0, 4), (4, 6)]),
        # the long word starts a window of its own and is cut where it must be
        ([1, 9, 1], 4, 0, [(0, 1), (1, 5), (5, 9), (9, 11)],
         [(0, 1), (1, 5), (5, 9), (9, 11)]),
        ([9], 4, 1, [(0, 4), (3, 7), (6, 9)], [(0, 4), (4, 7), (7, 9)]),
    ],
)  # fmt: skip
def test_examples(sizes, room, stride, spans, owned):
    windows = cut_windows(np.repeat(np.arange(len(sizes)), sizes), room, stride)
    assert [(w.start, w.stop) for w in windows] == spans
    assert [(w.own_start, w.own_stop) for w in windows] == owned


@pytest.mark.parametrize(
    ("n_pieces", "room", "expected"),
    [
        (10, 4, [0, 7, 8, 9]),
        (10, 8, [0, 1, 4, 5, 6, 7, 8, 9]),
        (10, 1, [9]),
        (5, 4, [0, 2, 3, 4]),
    ],
)
def test_head_and_tail(n_pieces, room, expected):
    assert head_and_tail(n_pieces, room).tolist() == expected


def test_head_and_tail_of_bert_as_published():
    where = head_and_tail(1000, 510)
    assert (where < 500).sum() == 128 and (where >= 500).sum() == 382


def test_word_borders():
    assert word_borders(np.array([0, 0, 2, 5, 5])).tolist() == [0, 2, 3, 5]
