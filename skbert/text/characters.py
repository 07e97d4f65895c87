"""Words as rows of character numbers, which is how ELMo reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Numbers of the byte alphabet: 0 is a masked word, then the 256 bytes, then these.
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = range(257, 262)
N_BYTES_TABLE = 262

# Numbers of characters that rows of words are padded to are multiples of it.
COLUMNS = 8

# What a token of white space is called in the dictionaries of ELMoForManyLangs.
WHITE_SPACE = "\u3000"


class WordRows(ABC):
    """The alphabet of a biLM, and its vocabulary if it has one.

    A row holds the number of the word, if there is a table of words, and then the numbers
    of its characters, if there is a table of characters.

    Attributes
    ----------
    markers : tuple of str
        How the begin and the end of a sentence are spelled.
    width : int
        Integers in a row.
    first : int
        Column of the first character.
    pad : int
        The number of a character that is none.
    """

    markers: tuple[str, str]
    width: int
    first = 0
    pad = PAD

    @abstractmethod
    def row(self, word: str, *, marker: bool) -> list[int]:
        """The row of a word; ``marker`` says that it stands for a border."""

    def cuts(self, word: str) -> bool:
        """Whether a word has more characters than are read."""
        return False

    def knows(self, word: str) -> bool:
        """Whether the row tells the word from what is not known at all."""
        return True

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """What ``restore`` needs, as JSON holds it."""

    def rows(self, words: Sequence[str], *, markers: bool) -> np.ndarray:
        """Rows of words, (n_words, width), int32.

        ``markers`` says whether a word that is spelled as a marker is one.
        """
        known: dict[str, int] = {}
        places = [known.setdefault(word, len(known)) for word in words]
        distinct = np.array(
            [self.row(word, marker=markers and word in self.markers) for word in known],
            dtype=np.int32,
        ).reshape(len(known), self.width)
        return distinct[places]

    def by_length(self, rows: np.ndarray, margin: int) -> list[tuple[np.ndarray, int]]:
        """Places of rows that need about as many columns, and how many these are.

        ``margin`` columns of pads are kept: what is left out is like the last of them.
        Columns go by `COLUMNS`, so that there are few groups.
        """
        width = rows.shape[1]
        if width == self.first:  # no characters
            return [(np.arange(len(rows)), width)]
        pads = (rows[:, self.first :] != self.pad)[:, ::-1].argmax(axis=1)
        columns = -(-(width - self.first - pads + margin) // COLUMNS) * COLUMNS
        ends = np.minimum(self.first + columns, width)
        return [(np.flatnonzero(ends == end), int(end)) for end in np.unique(ends)]

    def frame(self) -> np.ndarray:
        """Rows of the begin and the end of a sentence."""
        return np.array([self.row(m, marker=True) for m in self.markers], dtype=np.int32)


class ByteRows(WordRows):
    """The bytes of UTF-8, as in the models of AllenNLP and bilm-tf.

    Parameters
    ----------
    width : int
        Numbers in a row: two markers of the word, and as many bytes as fit besides.
    """

    markers = ("<S>", "</S>")

    def __init__(self, width: int) -> None:
        self.width = width

    def row(self, word: str, *, marker: bool) -> list[int]:
        if marker:
            inner = [BEGIN_SENTENCE if word == self.markers[0] else END_SENTENCE]
        else:  # a lone surrogate has no bytes
            read = word.encode("utf-8", "ignore")[: self.width - 2]
            inner = [byte + 1 for byte in read]
        pads = [PAD] * (self.width - 2 - len(inner))
        return [BEGIN_WORD, *inner, END_WORD, *pads]

    def cuts(self, word: str) -> bool:
        return len(word.encode("utf-8", "ignore")) > self.width - 2

    def state(self) -> dict[str, Any]:
        return {"kind": "bytes", "width": self.width}


class VocabularyRows(WordRows):
    """The number of a word alone, as in models without characters.

    Parameters
    ----------
    vocabulary : sequence of str
        ``<S>``, ``</S>`` and ``<UNK>`` must be among them.
    """

    markers = ("<S>", "</S>")
    width = first = 1
    unknown = "<UNK>"

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = list(vocabulary)
        self._numbers = {word: number for number, word in enumerate(self.vocabulary)}
        missing = {*self.markers, self.unknown} - self._numbers.keys()
        if missing:
            raise ValueError(
                f"The vocabulary of a biLM without characters must hold {self.markers[0]}, "
                f"{self.markers[1]} and {self.unknown}, one to a line. It lacks "
                f"{', '.join(sorted(missing))}."
            )

    def row(self, word: str, *, marker: bool) -> list[int]:
        if word in self.markers and not marker:
            word = self.unknown
        return [self._numbers.get(word, self._numbers[self.unknown])]

    def knows(self, word: str) -> bool:
        return word in self._numbers

    def state(self) -> dict[str, Any]:
        return {"kind": "vocabulary", "vocabulary": self.vocabulary}


class DictionaryRows(WordRows):
    """Code points and words of dictionaries, as in ELMoForManyLangs.

    The marks of the begin and the end of a word have changed places, and so they have in
    the published weights.

    Parameters
    ----------
    width : int
        Characters in a row, two marks of the word among them.
    characters, words : mapping from str to int, or None
        None: the model has no such table.
    """

    markers = ("<bos>", "<eos>")

    def __init__(
        self,
        width: int,
        characters: Mapping[str, int] | None,
        words: Mapping[str, int] | None,
    ) -> None:
        self.n_characters = width
        self.characters = None if characters is None else dict(characters)
        self.words = None if words is None else dict(words)
        self.first = int(words is not None)
        self.width = self.first + (0 if characters is None else width)
        self._check("char.dic", self.characters, ("<bow>", "<eow>"))
        self._check("word.dic", self.words, ())
        self.pad = 0 if self.characters is None else self.characters["<pad>"]

    def row(self, word: str, *, marker: bool) -> list[int]:
        read = word[: self.n_characters - 2]
        row = []
        if self.words is not None:
            unknown = word in self.markers and not marker
            oov = self.words["<oov>"]
            row.append(oov if unknown else self.words.get(read, oov))
        if (table := self.characters) is not None:
            letters = [word] if marker else read
            inner = [table.get(letter, table["<oov>"]) for letter in letters]
            pads = [table["<pad>"]] * (self.n_characters - 2 - len(inner))
            row += [table["<eow>"], *inner, table["<bow>"], *pads]
        return row

    def cuts(self, word: str) -> bool:
        return len(word) > self.n_characters - 2

    def knows(self, word: str) -> bool:
        read = word[: self.n_characters - 2]
        if self.words is not None and read in self.words:
            return True
        return self.characters is not None and (
            not read or any(letter in self.characters for letter in read)
        )

    def _check(
        self, name: str, table: dict[str, int] | None, more: tuple[str, ...]
    ) -> None:
        wanted = ("<oov>", "<pad>", *self.markers, *more)
        missing = [mark for mark in wanted if table is not None and mark not in table]
        if missing:
            raise ValueError(f"{name} of a biLM lacks {', '.join(missing)}.")

    def state(self) -> dict[str, Any]:
        return {
            "kind": "dictionaries",
            "width": self.n_characters,
            "characters": self.characters,
            "words": self.words,
        }


def restore(state: Mapping[str, Any]) -> WordRows:
    """From what ``state`` gave."""
    if state["kind"] == "bytes":
        return ByteRows(state["width"])
    if state["kind"] == "vocabulary":
        return VocabularyRows(state["vocabulary"])
    return DictionaryRows(state["width"], state["characters"], state["words"])
