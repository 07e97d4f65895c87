"""Files of word vectors: every kind is told by its content, and every fault by its line."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skbert.encoders import vector_files
from skbert.encoders.vector_files import VectorFile, open_vectors
from skbert.exceptions import ModelNotFoundError

WORDS = ["the", "cat", "北京", "Zürich"]
VECTORS = np.array([[0.5, -1, 2], [1, 0, 1e-3], [3, 4, 5], [-0.25, 7, 8]], np.float32)


def text(words: list[str] = WORDS) -> str:
    rows = zip(words, VECTORS.tolist(), strict=True)
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows)


def binary(end: bytes = b"", words: list[str] = WORDS) -> bytes:
    """As the program of word2vec writes it with ``end`` a newline, gensim without."""
    rows = zip(words, VECTORS, strict=True)
    return b"4 3\n" + b"".join(
        word.encode() + b" " + struct.pack("<3f", *row) + end for word, row in rows
    )


KINDS: dict[str, bytes] = {
    "GloVe": text().encode(),
    "GloVe with header": b"4 3\n" + text().encode(),
    "no newline at the end": text().encode()[:-1],
    "spaces at the ends of lines": text().replace("\n", " \n").encode(),
    "Windows": b"4 3\r\n" + text().replace("\n", "\r\n").encode(),
    "byte order mark": b"\xef\xbb\xbf" + text().encode(),
    "binary": binary(),
    "binary with newlines": binary(b"\n"),
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes | str], Path]:
    """``written(content)``: the path of a file that holds it."""

    def write(content: bytes | str) -> Path:
        path = tmp_path / "vectors"  # the name says nothing
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(
    kind: str,
    compress: Callable[[bytes], bytes],
    written: Callable[[bytes], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skbert.encoders.vector_formats.BLOCK", 7)  # records go over blocks
    file = VectorFile(written(compress(KINDS[kind])), False)
    words, vectors = file.find({"北京", "dog", "the"})
    assert words == ["the", "北京"]
    np.testing.assert_array_equal(vectors, VECTORS[[0, 2]])
    (words, vectors), undecodable = file.read_all()
    assert (words, undecodable) == (WORDS, [])
    np.testing.assert_array_equal(vectors, VECTORS)
    assert vectors.dtype == np.float32
    assert file.repeated == ""


def test_gensim_writes_what_is_read(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    keyed = models.KeyedVectors(3)
    keyed.add_vectors(WORDS, VECTORS)
    for flag in (False, True):
        keyed.save_word2vec_format(str(path := tmp_path / f"{flag}.gz"), binary=flag)
        (words, vectors), _ = VectorFile(path, False).read_all()
        assert words == WORDS
        np.testing.assert_array_equal(vectors, VECTORS)


def test_words_may_hold_spaces(written: Callable[[str], Path]) -> None:
    words = [". . .", "at name@domain.com", "a\u00a0b\x01", "\u3000"]
    file = VectorFile(written("4 3\n" + text(words)), False)
    assert file.find(words)[0] == words
    np.testing.assert_array_equal(file.find(words)[1], VECTORS)


FAULTS: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "it is empty"),
    "empty line": ("a 1 2\n\nb 1 2\n", "line 2 is empty"),
    "too few": ("a 1 2 3\nb 1 2\n", "line 2 has 2 values .*, while line 1 has 3"),
    "too many": ("a 1 2 3\nb 1 2 3 4\n", "line 2 has 4 values .*, while line 1 has 3"),
    "too few in line 1": ("2 3\na 1 2\nb 1 2 3\n", "line 2 has 2 values .* line 1 says 3"),
    "no number first": ("a 1 2\nnew york 2\n", "line 2 has 1 values"),
    "two spaces": ("a 1 2\nb  1 2\n", "line 2 has two spaces in a row"),
    "fewer lines": ("3 2\na 1 2\nb 1 2\n", "line 1 says that it has 3 words, and it has 2"),
    "more lines": ("1 2\na 1 2\nb 1 2\n", "line 1 says that it has 1 words, and it has 2"),
    "nothing in it": ("0 2\n", "line 1, '0 2', says that there is nothing"),
    "prose": ("There is no number here.\n", "line 1 is neither"),
    "tabs": ("a\t1\t2\n", "line 1 is neither"),
    "zip": (b"PK\x03\x04\x14\x00vectors.txt", "line 1 is neither .*unpack other archives"),
    "cut binary": (binary()[:-5], "word 4 of 4, at byte 55, is not whole"),
    "longer binary": (binary() + b"x", "something is left at byte 75"),
    "cut gzip": (gzip.compress(text().encode())[:-9], "gzip data is damaged or ends"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name: str, written: Callable[[bytes | str], Path]) -> None:
    content, message = FAULTS[name]
    path = written(content)
    with pytest.raises(ValueError, match=f"(?s){path}.*{message}"):
        VectorFile(path, False)


@pytest.mark.parametrize(
    ("value", "message"),
    [("x", "could not convert.*'x'"), ("nan", "NaN"), ("1e39", "too large")],
)
def test_values_are_checked_where_they_are_used(
    value: str, message: str, written: Callable[[str], Path]
) -> None:
    file = VectorFile(written(f"a 1 2\nb 1 {value}\n"), False)
    assert file.find(["a"])[0] == ["a"]
    with pytest.raises(ValueError, match=rf"line 2.*{message}"):
        file.find(["b"])


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_first_of_two_equal_words(
    compress: Callable[[bytes], bytes], written: Callable[[bytes], Path]
) -> None:
    file = VectorFile(written(compress(b"a 1 2\nb 3 4\na 5 6\n")), False)
    assert file.repeated == "line 3 has the word 'a', which line 1 has already"
    assert file.find(["a"])[1].tolist() == [[1, 2]]
    (words, vectors), _ = file.read_all()
    assert (words, vectors.tolist()) == (["a", "b"], [[1, 2], [3, 4]])


def test_words_that_are_no_utf8_are_left_out(written: Callable[[bytes], Path]) -> None:
    file = VectorFile(written(b"a 1 2\n\xff\xfe 3 4\nb 5 6\n"), False)
    (words, vectors), undecodable = file.read_all()
    assert (words, undecodable) == (["a", "b"], ["line 2"])
    assert vectors.tolist() == [[1, 2], [5, 6]]


def test_words_that_share_a_hash(
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_files, "hash", lambda word: 0, raising=False)
    file = VectorFile(written(text()), False)
    assert file.repeated == ""
    assert file.find(["cat", "dog"])[0] == ["cat"]


def test_a_file_is_read_once_until_it_changes(written: Callable[[str], Path]) -> None:
    path = written(text())
    assert open_vectors(path) is open_vectors(str(path))
    before = open_vectors(path)
    written(text() + "dog 1 2 3\n")
    assert open_vectors(path).find(["dog"])[0] == ["dog"]
    with pytest.raises(ValueError, match="changed while it was read"):
        before.find(["cat"])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no file of word vectors .*vec\.txt"):
        open_vectors(tmp_path / "vec.txt")
