"""Where a text that is longer than the encoder reads is cut, and which window owns what.

All positions count pieces of one text, without special pieces.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

# Share of the room that the head gets under "head_tail": 128 of 510 pieces in Sun et al.
# (2019), How to fine-tune BERT for text classification, section 5.3.1.
HEAD_SHARE = 0.25


class Window(NamedTuple):
    """Pieces ``start`` to ``stop`` of a text, of which ``own_start`` to ``own_stop`` count.

    Windows may overlap, so that a piece near a border is read with its neighbours; each
    piece is owned by exactly one window.
    """

    start: int
    stop: int
    own_start: int
    own_stop: int


def head_and_tail(n_pieces: int, room: int) -> np.ndarray:
    """Positions of the first quarter of the room and of the last three quarters."""
    head = round(room * HEAD_SHARE)
    return np.r_[0:head, n_pieces - (room - head) : n_pieces]


def word_borders(words: np.ndarray) -> np.ndarray:
    """Positions at which a word starts, and the end of the text."""
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    return np.append(starts, len(words))


def cut_windows(words: np.ndarray, room: int, stride: int) -> list[Window]:
    """Cut a text into windows of at most ``room`` pieces at the borders of its words.

    Parameters
    ----------
    words : ndarray of shape (n_pieces,)
        Word of each piece, not decreasing.
    room : int
        Pieces that a window holds.
    stride : int
        Pieces that a window shares with the one before it, fewer where no word starts
        there. Less than ``room``.

    Returns
    -------
    list of Window
        In order. A word longer than the room is cut inside; every other word lies whole
        in the window that owns it. Every window owns some pieces.
    """
    n_pieces = len(words)
    if n_pieces <= room:
        return [Window(0, n_pieces, 0, n_pieces)]
    borders = word_borders(words)

    def border_before(position: int) -> int:
        return int(borders[np.searchsorted(borders, position, side="right") - 1])

    spans = []
    start = 0
    while True:
        stop = min(start + room, n_pieces)
        if border_before(stop) > start:
            stop = border_before(stop)
        spans.append((start, stop))
        if stop == n_pieces:
            break
        if border_before(stop) < stop:  # inside a word that is longer than the room
            start = stop - stride
            continue
        earliest = max(stop - stride, start + 1)
        overlapping = int(borders[np.searchsorted(borders, earliest)])
        reads_on = border_before(overlapping + room) > stop
        start = overlapping if reads_on else stop
    # The pieces that two windows share are parted in the middle, between two words.
    cuts = [0]
    for (_, stop), (following, _) in pairwise(spans):
        middle = border_before((following + stop) // 2)
        cuts.append(middle if following <= middle <= stop else stop)
    cuts.append(n_pieces)
    return [
        Window(start, stop, own_start, own_stop)
        for (start, stop), own_start, own_stop in zip(
            spans, cuts[:-1], cuts[1:], strict=True
        )
        if own_start < own_stop
    ]
