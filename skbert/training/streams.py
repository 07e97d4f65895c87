"""Sentences as endless streams of words, as a biLM is trained on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skbert.text.characters import WordRows

BEGIN, END = 0, 1
UNKNOWN = "<UNK>"


@dataclass(frozen=True)
class Corpus:
    """Sentences as numbers of distinct words; the first two are the markers.

    Attributes
    ----------
    words : ndarray of shape (n_words,), int32
        All words, sentence after sentence.
    ends : ndarray of shape (n_sentences,), int64
        Behind the last word of each sentence.
    rows : ndarray of shape (n_distinct, width), int32
        What the token encoder reads of each distinct word.
    targets : ndarray of shape (n_distinct,), int64
        Number of each distinct word in the vocabulary.
    alphabet : WordRows
    """

    words: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    targets: np.ndarray
    alphabet: WordRows

    @classmethod
    def of(
        cls,
        sentences: Sequence[Sequence[str]],
        alphabet: WordRows,
        vocabulary: Mapping[str, int],
    ) -> Corpus:
        """Of lists of words; a word that is spelled as a marker is not one."""
        numbers: dict[str, int] = {}
        words = [numbers.setdefault(w, len(numbers) + 2) for s in sentences for w in s]
        rows = alphabet.rows(list(numbers), markers=False)
        begin, end = alphabet.markers
        unknown = vocabulary[UNKNOWN]
        known = {w: n for w, n in vocabulary.items() if w not in (begin, end)}
        targets = [vocabulary[begin], vocabulary[end]]
        targets += [known.get(word, unknown) for word in numbers]
        return cls(
            np.array(words, dtype=np.int32),
            np.cumsum([len(s) for s in sentences]),
            np.concatenate([alphabet.frame(), rows]),
            np.array(targets, dtype=np.int64),
            alphabet,
        )

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def n_predictions(self) -> int:
        """In one direction: every word, and the end of every sentence."""
        return len(self.words) + len(self.ends)

    def read(self, sentence: int, *, backward: bool) -> np.ndarray:
        """A sentence between its markers as it is read, (n_words + 2,)."""
        start = self.ends[sentence - 1] if sentence else 0
        words = self.words[start : self.ends[sentence]]
        if backward:
            return np.concatenate([[END], words[::-1], [BEGIN]])
        return np.concatenate([[BEGIN], words, [END]])


class Stream:
    """Windows of one length over rows that never end; nothing is padded.

    When a row has used up its sentence it takes the next one of a source that all rows
    share; a sentence that does not fit a window goes on in the next.

    Parameters
    ----------
    corpus : Corpus
    backward : bool
    n_rows, n_steps : int
    order : iterator of int
        The sentences, without end.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        backward: bool,
        n_rows: int,
        n_steps: int,
        order: Iterator[int],
    ) -> None:
        self._corpus, self._order = corpus, order
        self._backward = backward
        self._shape = (n_steps, n_rows)
        self._left = [np.zeros(0, dtype=np.int32) for _ in range(n_rows)]

    def window(self) -> tuple[np.ndarray, np.ndarray]:
        """Words that are read and words that come next, (n_steps, n_rows), both as
        numbers of distinct words of the corpus."""
        n_steps, n_rows = self._shape
        read = np.empty(self._shape, dtype=np.int64)
        following = np.empty(self._shape, dtype=np.int64)
        for row in range(n_rows):
            filled, left = 0, self._left[row]
            while filled < n_steps:
                if len(left) < 2:
                    left = self._corpus.read(next(self._order), backward=self._backward)
                n = min(len(left) - 1, n_steps - filled)
                read[filled : filled + n, row] = left[:n]
                following[filled : filled + n, row] = left[1 : n + 1]
                filled, left = filled + n, left[n:]
            self._left[row] = left
        return read, following


def shuffled(n_sentences: int, rng: np.random.RandomState) -> Iterator[int]:
    """All sentences in a new order, again and again."""
    while True:
        yield from rng.permutation(n_sentences).tolist()


def build_vocabulary(
    sentences: Sequence[Sequence[str]],
    markers: Sequence[str],
    *,
    vocab_size: int | None,
    min_frequency: int,
) -> list[str]:
    """Markers, the unknown word, then words by falling frequency, ties by first place."""
    counts: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence:
            counts[word] = counts.get(word, 0) + 1
    special = [*markers, UNKNOWN]
    words = [w for w, n in counts.items() if n >= min_frequency and w not in special]
    words.sort(key=lambda word: -counts[word])
    return (special + words)[:vocab_size]
