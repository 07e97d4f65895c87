"""Vectors kept on disk, found again by what they were made of."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

# Rows that are written or looked up in one transaction.
BLOCK = 500


class VectorStore:
    """A table from texts to float32 arrays in a folder, safe to share between processes.

    SQLite brings locking and atomic writes; a checksum finds altered entries. Whatever is
    damaged is computed again.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    recipe : dict
        Everything besides the text that the vectors depend on, as plain values.
    """

    def __init__(self, folder: Path, recipe: dict[str, Any]) -> None:
        self.path = folder / "vectors.sqlite"
        # A parameter may be a number of numpy's, as it is in a grid of np.arange.
        self._recipe = json.dumps(
            recipe, sort_keys=True, default=lambda number: number.item()
        ).encode()

    def key(self, row: Any) -> bytes:
        content = json.dumps(row, ensure_ascii=True).encode()
        # Tuples and lists look alike in JSON, but a pair is not a list of two words.
        kind = type(row).__name__.encode()
        return hashlib.sha256(b"\0".join((self._recipe, kind, content))).digest()

    def find(self, rows: Sequence[Any]) -> Iterator[tuple[int, np.ndarray, bool]]:
        """Rows that are in the store: position, vectors, and whether the text was cut."""
        try:
            with closing(self._open()) as connection:
                for start in range(0, len(rows), BLOCK):
                    keys = [self.key(row) for row in rows[start : start + BLOCK]]
                    marks = ",".join("?" * len(keys))
                    found = connection.execute(
                        f"SELECT key, about, checksum, data FROM vectors "
                        f"WHERE key IN ({marks})",
                        keys,
                    ).fetchall()
                    entries = {key: _unpack(*rest) for key, *rest in found}
                    for position, key in enumerate(keys, start):
                        if (entry := entries.get(key)) is not None:
                            yield position, *entry
        except (sqlite3.Error, OSError) as error:
            self._complain("read", error)

    def add(self, entries: Iterable[tuple[Any, np.ndarray, bool]]) -> None:
        """Write rows, vectors and whether they were cut, unless the disk refuses."""
        left = iter(entries)
        try:
            with closing(self._open()) as connection:
                while block := list(islice(left, BLOCK)):
                    values = [
                        (self.key(row), *_pack(array, cut)) for row, array, cut in block
                    ]
                    with connection:
                        connection.executemany(
                            "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", values
                        )
        except (sqlite3.Error, OSError) as error:
            self._complain("written", error)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=60)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors "
                "(key BLOB PRIMARY KEY, about TEXT, checksum INTEGER, data BLOB) "
                "WITHOUT ROWID"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _complain(self, verb: str, error: Exception) -> None:
        warnings.warn(
            f"The memory in {self.path} could not be {verb} ({error}); vectors are "
            "computed instead. Delete the file if it is damaged.",
            RuntimeWarning,
            stacklevel=2,
        )


def _pack(array: np.ndarray, cut: bool) -> tuple[str, int, bytes]:
    data = np.ascontiguousarray(array, dtype=np.float32).tobytes()
    about = json.dumps({"shape": array.shape, "cut": cut})
    return about, _checksum(about, data), data


def _unpack(about: Any, checksum: Any, data: Any) -> tuple[np.ndarray, bool] | None:
    """The array and the mark, or None if any part was altered."""
    if not isinstance(about, str) or not isinstance(data, bytes):
        return None
    if _checksum(about, data) != checksum:
        return None
    known = json.loads(about)
    array = np.frombuffer(data, dtype=np.float32).reshape(known["shape"])
    return array.copy(), known["cut"]


def _checksum(about: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(about.encode()))
