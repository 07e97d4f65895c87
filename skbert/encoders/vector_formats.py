"""Files of word vectors: word2vec text and binary, GloVe text, each also by gzip.

The kind of a file is told by its content, never by its name. Words are bytes here: a file
may hold some that are no UTF-8, which no text can have.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias, cast

import numpy as np

HEAD = 1 << 20  # bytes that tell the kind; the first two lines must lie in them
BLOCK = 1 << 20
LONGEST_WORD = 1 << 16  # in bytes; a longer one is noise in a damaged binary file
BOM = b"\xef\xbb\xbf"
GZIP = b"\x1f\x8b"
# Bytes that numbers have when they are not written out, and text has not.
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
HEADER = re.compile(rb"(\d+) (\d+)[ \r]*")

# Where a record begins, its word, and its values as they stand in the file.
Record: TypeAlias = tuple[int, bytes, bytes]


class Layout(NamedTuple):
    """What the beginning of a file says about the rest.

    Attributes
    ----------
    binary, compressed : bool
    n_words : int or None
        Of the header; None if there is none.
    vector_size : int
    start : int
        Byte, after decompression, at which the first word begins.
    """

    binary: bool
    compressed: bool
    n_words: int | None
    vector_size: int
    start: int

    def where(self, ordinal: int) -> str:
        """Words for the place of a record, counted from 0."""
        if self.binary:
            return f"word {ordinal + 1}"
        return f"line {ordinal + 1 + (self.n_words is not None)}"

    @property
    def source(self) -> str:
        """Words for what says how many values there must be."""
        return "line 1 says" if self.n_words is not None else "line 1 has"


def fault(
    path: Path, what: str, advice: str = "Download or write the file again."
) -> ValueError:
    """The error for a file that is not as it must be."""
    return ValueError(f"The vectors in {str(path)!r} cannot be read: {what}. {advice}")


def read_layout(path: Path) -> Layout:
    """Tell the kind of a file by its content.

    Raises
    ------
    ValueError
        If it is of no kind that can be read.
    """
    with open(path, "rb") as file:
        compressed = file.read(len(GZIP)) == GZIP
    with opened(path, compressed) as stream:
        head = stream.read(HEAD)
    start = len(BOM) if head.startswith(BOM) else 0
    first = head[start:].partition(b"\n")[0]
    if not first.strip():
        raise fault(path, "it begins with an empty line" if head else "it is empty")
    if (header := HEADER.fullmatch(first)) is None:
        size = _n_values(first)
        if not size:
            raise fault(
                path,
                "line 1 is neither a word with numbers, parted by single spaces, nor the "
                "header 'n_words vector_size' of word2vec",
                "Readable are word2vec text and binary and GloVe text, each also by gzip; "
                "unpack other archives, and give gensim's own files as "
                "model=KeyedVectors.load(path).",
            )
        return Layout(False, compressed, None, size, start)
    n_words, size = map(int, header.groups())
    if not n_words or not size:
        raise fault(path, f"line 1, {first.decode()!r}, says that there is nothing in it")
    begin = start + len(first) + 1
    area = _values_area(head[begin:], size)
    binary = bool(CONTROL.search(area)) or not _is_utf8(area)
    if _n_values(head[begin:].partition(b"\n")[0]) == size:
        binary = False  # whatever the words are that come next
    return Layout(binary, compressed, n_words, size, begin)


@contextmanager
def opened(path: Path, compressed: bool, start: int = 0) -> Iterator[IO[bytes]]:
    """The bytes of a file from ``start``, decompressed."""
    try:
        with gzip.open(path) if compressed else open(path, "rb", buffering=0) as file:
            file.seek(start)
            # Lines come out of a buffer several times faster than out of gzip's file.
            yield io.BufferedReader(cast("io.RawIOBase", file), BLOCK)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise fault(
            path, f"its gzip data is damaged or ends too early ({error})"
        ) from error


def records(stream: IO[bytes], layout: Layout, path: Path) -> Iterator[Record]:
    """All words with their values, in order; ``stream`` stands at ``layout.start``.

    Raises
    ------
    ValueError
        If a record is not as the layout says; it names file and line.
    """
    found = -1
    read = _binary_records if layout.binary else _text_records
    for found, record in enumerate(read(stream, layout, path)):  # noqa: B007
        yield record
    if layout.n_words not in (None, found + 1):
        raise fault(
            path, f"line 1 says that it has {layout.n_words} words, and it has {found + 1}"
        )


def read_values(raw: bytes, layout: Layout, path: Path, ordinal: int) -> np.ndarray:
    """The numbers of one record.

    Returns
    -------
    ndarray of shape (vector_size,), float32
    """
    if layout.binary:
        values = np.frombuffer(raw, "<f4").astype(np.float32)
    else:
        try:
            exact = [float(value) for value in raw.split(b" ")]
        except ValueError as error:
            raise fault(path, f"{layout.where(ordinal)}: {error}") from error
        with np.errstate(over="ignore"):
            values = np.array(exact).astype(np.float32)
    if not np.isfinite(values).all():
        raise fault(
            path,
            f"{layout.where(ordinal)} holds NaN, infinity or numbers too large for float32",
        )
    return values


def split_line(
    line: bytes, layout: Layout, path: Path, ordinal: int
) -> tuple[bytes, bytes]:
    """Word and values of a line. The values are counted from the right.

    A word may hold spaces, as some of GloVe's do, but no number as its last part: such a
    line has a value too many.
    """
    size = layout.vector_size
    line = line.rstrip(b" \r\n")
    n_spaces = line.count(b" ")
    if n_spaces == size:
        word, _, raw = line.partition(b" ")
    elif n_spaces > size:
        word = line.rsplit(b" ", size)[0]
        raw = line[len(word) + 1 :]
        last = word.rpartition(b" ")[2]
        if _is_number(last) or (not last and word.strip(b" ")):
            raise _wrong_number(line, layout, path, ordinal)
    else:
        raise _wrong_number(line, layout, path, ordinal)
    end = raw.find(b" ")
    if not _is_number(raw[:end] if end >= 0 else raw):
        raise _wrong_number(line, layout, path, ordinal)
    return word, raw


def _wrong_number(line: bytes, layout: Layout, path: Path, ordinal: int) -> ValueError:
    """The error for a line with more or fewer values than the others."""
    if b"  " in line.strip(b" "):
        return fault(path, f"{layout.where(ordinal)} has two spaces in a row")
    return fault(
        path,
        f"{layout.where(ordinal)} has {_n_values(line)} values behind its word, while "
        f"{layout.source} {layout.vector_size}",
        "Mend or remove the line. The parts of a word with spaces may not be numbers.",
    )


def _text_records(stream: IO[bytes], layout: Layout, path: Path) -> Iterator[Record]:
    offset, ordinal, empty = layout.start, 0, False
    for line in stream:
        if not line.strip():
            empty = True  # no fault at the end
        elif empty:
            raise fault(path, f"{layout.where(ordinal)} is empty")
        else:
            yield offset, *split_line(line, layout, path, ordinal)
            ordinal += 1
        offset += len(line)


def _binary_records(stream: IO[bytes], layout: Layout, path: Path) -> Iterator[Record]:
    width, n_words = 4 * layout.vector_size, layout.n_words or 0
    buffer, at, begin = b"", 0, layout.start  # `begin`: where in the file the buffer starts
    for ordinal in range(n_words):
        while (space := buffer.find(b" ", at)) < 0 or space + 1 + width > len(buffer):
            more = stream.read(BLOCK)
            if not more or (space < 0 and len(buffer) - at > LONGEST_WORD):
                raise fault(
                    path,
                    f"{layout.where(ordinal)} of {n_words}, at byte {begin + at}, is not "
                    f"whole: no {layout.vector_size} numbers of 4 bytes are behind it",
                    "The file was cut or damaged. Download it again.",
                )
            buffer, at, begin = buffer[at:] + more, 0, begin + at
        end = space + 1 + width
        # The program of word2vec ends records by a newline, gensim does not.
        yield begin + at, buffer[at:space].lstrip(b"\n"), buffer[space + 1 : end]
        at = end
    if (buffer[at:] + stream.read(BLOCK)).strip(b"\n"):
        raise fault(
            path,
            f"something is left at byte {begin + at}, behind the {n_words} words of line 1",
        )


def _n_values(line: bytes) -> int:
    """How many numbers end a line, not counting its first part."""
    parts = line.rstrip(b" \r\n").split(b" ")
    numbers = 0
    while numbers < len(parts) - 1 and _is_number(parts[-1 - numbers]):
        numbers += 1
    return numbers


def _is_number(part: bytes) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def _values_area(rest: bytes, size: int) -> bytes:
    """Where the first numbers stand if the file is binary."""
    begin = rest.find(b" ") + 1
    return rest[begin : begin + 4 * size]


def _is_utf8(area: bytes) -> bool:
    """Whether bytes are text, but for a letter that is cut at the end."""
    try:
        area.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
