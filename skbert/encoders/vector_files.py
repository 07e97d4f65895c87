"""Word vectors in a file, found by their words without loading the rest."""

from __future__ import annotations

import mmap
import os
import threading
from array import array
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from tqdm import tqdm

from skbert.encoders.vector_formats import (
    Layout,
    fault,
    opened,
    read_layout,
    read_values,
    records,
    split_line,
)
from skbert.exceptions import ModelNotFoundError

N_INDEXES = 2  # kept in a process; that of 2 million words takes 50 MB
STEP = 5000  # words between two looks of the progress bar

# Words and, row by row, their vectors.
Vectors: TypeAlias = tuple[list[str], np.ndarray]

_indexes: dict[tuple, VectorFile] = {}
_lock = threading.Lock()


def open_vectors(path: str | os.PathLike[str], verbose: bool = False) -> VectorFile:
    """The index of a file, made when it is first asked for in a process.

    Parameters
    ----------
    path : str or path
    verbose : bool, default=False
        Show a progress bar while the file is read.

    Raises
    ------
    ModelNotFoundError
        If there is no such file.
    ValueError
        If it is not what it says; the line is named.
    """
    file = Path(os.path.expanduser(path)).absolute()
    if not file.is_file():
        raise ModelNotFoundError(
            f"There is no file of word vectors {os.fspath(path)!r} (looked for "
            f"{str(file)!r}). Give the path of a word2vec or GloVe file."
        )
    stat = file.stat()
    key = (str(file), stat.st_size, stat.st_mtime_ns)
    with _lock:
        index = _indexes.pop(key, None) or VectorFile(file, verbose)
        _indexes[key] = index  # the latest comes last
        while len(_indexes) > N_INDEXES:
            del _indexes[next(iter(_indexes))]
    return index


class VectorFile:
    """Where each word of a file stands.

    The file is read once, and only places and hashes of words are kept, 20 bytes for each.
    Vectors are then read where they stand, from a map of the file; a file by gzip has no
    places, and is read from its beginning.

    Parameters
    ----------
    path : Path
    verbose : bool

    Attributes
    ----------
    n_bytes : int
        Size of the file.
    vector_size : int
    repeated : str
        Words for the first word that comes twice; empty if there is none.
    """

    def __init__(self, path: Path, verbose: bool) -> None:
        self.path = path
        self.n_bytes = path.stat().st_size
        self._layout = read_layout(path)
        self.vector_size = self._layout.vector_size
        hashes, offsets = array("q"), array("q")
        with tqdm(desc=path.name, unit=" words", disable=not verbose) as bar:
            for ordinal, (offset, word, _) in enumerate(self._records(), 1):
                # Hashes of bytes differ by process: they may not leave it.
                hashes.append(hash(word))
                offsets.append(offset)
                if not ordinal % STEP:
                    bar.update(STEP)
        order = np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        self._order = order.astype(np.int32)
        self._hashes = np.frombuffer(hashes, np.int64)[order]
        self._offsets = np.frombuffer(offsets, np.int64)
        self.repeated = self._first_repeated()

    def find(self, words: Collection[str]) -> Vectors:
        """Those of some words that the file has, in its order.

        Returns
        -------
        words : list of str
            Of a word that comes twice, the first counts.
        vectors : ndarray of shape (n_words, vector_size), float32
        """
        wanted = {word.encode(): word for word in words}
        found: dict[str, np.ndarray] = {}
        for ordinal, word, raw in self._at(self._places(wanted)):
            # Two words may share a hash.
            if (name := wanted.get(word)) is not None and name not in found:
                found[name] = read_values(raw, self._layout, self.path, ordinal)
        vectors = np.array(list(found.values()), dtype=np.float32)
        return list(found), vectors.reshape(-1, self.vector_size)

    def read_all(self) -> tuple[Vectors, list[str]]:
        """All words and vectors, as ``find`` gives them, and what is left out.

        Returns
        -------
        words, vectors : as of find
        undecodable : list of str
            Places of words that are no UTF-8, which no text can have.
        """
        vectors = np.empty((len(self._offsets), self.vector_size), np.float32)
        places: dict[str, int] = {}
        undecodable: list[str] = []
        for ordinal, (_, word, raw) in enumerate(self._records()):
            vectors[ordinal] = read_values(raw, self._layout, self.path, ordinal)
            try:
                places.setdefault(word.decode(), ordinal)
            except UnicodeDecodeError:
                undecodable.append(self._layout.where(ordinal))
        if len(places) < len(vectors):
            vectors = vectors[list(places.values())]
        return (list(places), vectors), undecodable

    def _records(self) -> Iterator[tuple[int, bytes, bytes]]:
        layout = self._layout
        with opened(self.path, layout.compressed, layout.start) as stream:
            yield from records(stream, layout, self.path)

    def _places(self, words: Iterable[bytes]) -> list[int]:
        """Ordinals of records that may have these words, in order."""
        hashes = np.array([hash(word) for word in words], dtype=np.int64)
        begins = np.searchsorted(self._hashes, hashes, "left")
        ends = np.searchsorted(self._hashes, hashes, "right")
        places = {
            int(place)
            for begin, end in zip(begins, ends, strict=True)
            for place in self._order[begin:end]
        }
        return sorted(places)

    def _at(self, places: list[int]) -> Iterator[tuple[int, bytes, bytes]]:
        """Ordinal, word and values of some records, read where they stand."""
        if not places:
            return
        if self._layout.compressed:
            asked = set(places)
            for ordinal, (_, word, raw) in enumerate(self._records()):
                if ordinal in asked:
                    yield ordinal, word, raw
                if ordinal == places[-1]:
                    return
        with (
            open(self.path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
        ):
            if len(view) != self.n_bytes:
                raise fault(self.path, "it was changed while it was read", "Try again.")
            for ordinal in places:
                offset = int(self._offsets[ordinal])
                yield ordinal, *_record_at(view, offset, self._layout, self.path, ordinal)

    def _first_repeated(self) -> str:
        twice = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        places = sorted({int(self._order[at + step]) for at in twice for step in (0, 1)})
        first: dict[bytes, int] = {}
        for ordinal, word, _ in self._at(places):
            if (before := first.setdefault(word, ordinal)) != ordinal:
                return (
                    f"{self._layout.where(ordinal)} has the word "
                    f"{word.decode(errors='backslashreplace')!r}, which "
                    f"{self._layout.where(before)} has already"
                )
        return ""


def _record_at(
    view: mmap.mmap, offset: int, layout: Layout, path: Path, ordinal: int
) -> tuple[bytes, bytes]:
    if not layout.binary:
        end = view.find(b"\n", offset)
        return split_line(view[offset : end if end >= 0 else None], layout, path, ordinal)
    space = view.find(b" ", offset)
    word = view[offset:space].lstrip(b"\n")
    return word, view[space + 1 : space + 1 + 4 * layout.vector_size]
