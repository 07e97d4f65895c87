"""From the pieces of a text to the windows that an encoder reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skbert.text.windows import cut_windows, head_and_tail, word_borders


class Pieces(NamedTuple):
    """One text without special pieces: ids, and the word that each piece belongs to.

    A piece has one id, or a row of them where encoders read words by their characters.
    """

    ids: np.ndarray
    words: np.ndarray

    def take(self, where: slice | np.ndarray) -> Pieces:
        return Pieces(self.ids[where], self.words[where])


class Special(NamedTuple):
    """A run of special pieces: ids, the token type of each, whether pooling counts them."""

    ids: tuple[Any, ...] = ()
    types: tuple[int, ...] = ()
    counts: bool = True


@dataclass(frozen=True)
class Frame:
    """The special pieces that a model wants around one text, or around and between two.

    Attributes
    ----------
    specials : tuple of Special
        Before the first text, between the texts, after the last: one more than texts.
    text_types : tuple of int
        Token type of each text.
    """

    specials: tuple[Special, ...]
    text_types: tuple[int, ...]

    @property
    def n_special(self) -> int:
        return sum(len(special.ids) for special in self.specials)

    def around(
        self, texts: Sequence[Pieces], owned: Sequence[np.ndarray | None], sample: int
    ) -> Encoding:
        """Join texts and special pieces into one window.

        ``owned`` holds a mask over the pieces of each text, or None where all count.
        """
        first = self.specials[0]
        parts = [_special_part(first)]
        n_words = 0
        rest = zip(texts, owned, self.text_types, self.specials[1:], strict=True)
        for text, own, kind, special in rest:
            n_pieces = len(text.ids)
            parts.append(
                (
                    text.ids,
                    np.full(n_pieces, kind, np.int32),
                    text.words + n_words,
                    np.ones(n_pieces, bool) if own is None else own,
                )
            )
            n_words += int(text.words[-1]) + 1 if n_pieces else 0
            parts.append(_special_part(special))
        ids, types, words, owns = map(np.concatenate, zip(*parts, strict=True))
        return Encoding(ids, types, words, owns, sample)


def _special_part(special: Special) -> tuple[np.ndarray, ...]:
    n_pieces = len(special.ids)
    return (
        np.array(special.ids, dtype=np.int32),
        np.array(special.types, dtype=np.int32),
        np.full(n_pieces, -1, dtype=np.int32),
        np.full(n_pieces, special.counts),
    )


@dataclass(frozen=True, slots=True)
class Encoding:
    """One window of one text, ready to be read.

    Attributes
    ----------
    input_ids : ndarray of shape (n_pieces,) or (n_pieces, width), int32
    type_ids : ndarray of shape (n_pieces,), int32
        Token types: which text of a pair a piece belongs to, as the model counts them.
    word_index : ndarray of shape (n_pieces,), int32
        The caller's word of each piece, -1 for special pieces.
    owned : ndarray of shape (n_pieces,), bool
        False where an overlapping window counts the piece, or nobody does.
    sample_index : int
        The text that the window belongs to.
    """

    input_ids: np.ndarray
    type_ids: np.ndarray
    word_index: np.ndarray
    owned: np.ndarray
    sample_index: int

    def __len__(self) -> int:
        return len(self.input_ids)


def window_texts(
    texts: Sequence[Pieces],
    frame: Frame,
    *,
    sample: int,
    max_length: int,
    long_text: str,
    stride: int,
    whole_words: bool = False,
) -> tuple[list[Encoding], bool]:
    """Put one text, or a pair, into as many windows as ``long_text`` asks for.

    Parameters
    ----------
    texts : sequence of one or two Pieces
    frame : Frame
    sample : int
        Number of the text in the call.
    max_length : int
        Pieces in a window, special pieces included.
    long_text : {"truncate", "head_tail", "windows"}
    stride : int
        Pieces that neighbouring windows share.
    whole_words : bool
        Never cut inside a word under "truncate", unless the first one fills the room.

    Returns
    -------
    encodings : list of Encoding
    cut : bool
        Whether pieces were left unread.

    Notes
    -----
    In a pair too long for a window the longer text is the one that is cut; the shorter
    keeps all its pieces up to half of the room, and stands whole in every window. Of two
    texts of equal length the second counts as the longer one, as in Hugging Face's own
    truncation.
    """
    room = max_length - frame.n_special
    lengths = [len(text.ids) for text in texts]
    if sum(lengths) <= room:
        return [frame.around(texts, [None] * len(texts), sample)], False

    longer = max(range(len(texts)), key=lambda side: (lengths[side], side))
    kept = list(texts)
    cut = False
    for other in range(len(texts)):
        if other != longer:
            share = min(lengths[other], room // 2)
            cut = share < lengths[other]
            kept[other] = shorten(texts[other], share, long_text)
            room -= share
    text = texts[longer]
    if long_text == "windows":
        encodings = []
        for window in cut_windows(text.words, room, stride):
            kept[longer] = text.take(slice(window.start, window.stop))
            position = np.arange(window.start, window.stop)
            own = (window.own_start <= position) & (position < window.own_stop)
            owned = [own if side == longer else None for side in range(len(texts))]
            encodings.append(frame.around(kept, owned, sample))
        return encodings, cut
    if whole_words and long_text == "truncate":
        borders = word_borders(text.words)
        fitting = int(borders[np.searchsorted(borders, room, side="right") - 1])
        room = fitting or room
    kept[longer] = shorten(text, room, long_text)
    return [frame.around(kept, [None] * len(texts), sample)], True


def shorten(text: Pieces, room: int, long_text: str) -> Pieces:
    """The first pieces that fit, or head and tail."""
    n_pieces = len(text.ids)
    if n_pieces <= room:
        return text
    if long_text == "head_tail":
        return text.take(head_and_tail(n_pieces, room))
    return text.take(slice(room))


@dataclass(frozen=True)
class Batch:
    """Windows padded on the right to the longest of them, as arrays on the CPU.

    ``input_ids``, ``type_ids``, ``word_index``, ``mask`` (real pieces) and ``owned`` have
    shape (n_rows, n_pieces), ``input_ids`` one more axis where pieces are rows of ids.
    """

    input_ids: np.ndarray
    type_ids: np.ndarray
    word_index: np.ndarray
    mask: np.ndarray
    owned: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return self.mask.sum(axis=1)


def collate(encodings: Sequence[Encoding], pad_id: int) -> Batch:
    """Pad windows to one rectangle; pads belong to no word and are owned by nobody."""
    lengths = np.array([len(encoding) for encoding in encodings])
    mask = np.arange(lengths.max(initial=0))[None, :] < lengths[:, None]

    def padded(name: str, value: int, dtype: type) -> np.ndarray:
        parts = np.concatenate([getattr(e, name) for e in encodings])
        out: np.ndarray = np.full(mask.shape + parts.shape[1:], value, dtype=dtype)
        out[mask] = parts
        return out

    return Batch(
        input_ids=padded("input_ids", pad_id, np.int64),
        type_ids=padded("type_ids", 0, np.int64),
        word_index=padded("word_index", -1, np.int64),
        mask=mask,
        owned=padded("owned", False, bool),
    )
