"""Training rows in the form that costs least: pieces, kept states or finished vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from skbert.text.batching import CHUNK_ROWS
from skbert.text.encoding import Batch, Encoding, collate
from skbert.training.device import n_threads

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder
    from skbert.encoders.prefix import KeptStates
    from skbert.text.report import ReadingReport
    from skbert.training.inference import ReadingOptions


@dataclass(frozen=True)
class TrainingBatch:
    """Some training rows.

    Attributes
    ----------
    n_texts : int
    vectors : Tensor of shape (n_texts, hidden_size) or None
        Where the whole encoder is frozen, or no text has pieces, all that is needed.
    windows : Batch or None
        Windows of the texts, longest first.
    owned : Tensor of shape (n_windows, n_pieces), bool, or None
    text_of_window : Tensor of shape (n_windows,), int64, or None
    states : Tensor of shape (n_windows, n_pieces, hidden_size) or None
        Output of the last frozen layer, where it was kept.
    """

    n_texts: int
    vectors: torch.Tensor | None = None
    windows: Batch | None = None
    owned: torch.Tensor | None = None
    text_of_window: torch.Tensor | None = None
    states: torch.Tensor | None = None


def encode_all(
    encoder: Encoder, rows: Sequence[Any], options: ReadingOptions, report: ReadingReport
) -> list[Encoding]:
    """Windows of all rows in order, tokenised a chunk at a time."""
    encodings: list[Encoding] = []
    for start in range(0, len(rows), CHUNK_ROWS):
        chunk = rows[start : start + CHUNK_ROWS]
        windows, lost = encoder.encode(
            chunk,
            max_length=options.max_length,
            long_text=options.long_text,
            stride=options.stride,
            parallel=n_threads() > 1,
        )
        report.add(lost, [[start + i] for i in range(len(chunk))])
        encodings += [replace(w, sample_index=w.sample_index + start) for w in windows]
    return encodings


class VectorSource:
    """Rows whose vectors cannot change any more, (n_rows, hidden_size)."""

    def __init__(self, vectors: np.ndarray, device: torch.device) -> None:
        self._vectors = torch.from_numpy(vectors).to(device)

    def __len__(self) -> int:
        return len(self._vectors)

    def batch(self, rows: np.ndarray) -> TrainingBatch:
        return TrainingBatch(len(rows), vectors=self._vectors[torch.from_numpy(rows)])


class EncodedRows:
    """Rows as windows of pieces, with or without the kept output of frozen layers.

    Parameters
    ----------
    encodings : sequence of Encoding
        Windows in order; ``sample_index`` is the row. A row may have none.
    n_rows : int
    encoder : Encoder
    device : torch.device
    kept : KeptStates or None
        States of the windows, by their place in ``encodings``.
    """

    def __init__(
        self,
        encodings: Sequence[Encoding],
        n_rows: int,
        encoder: Encoder,
        device: torch.device,
        kept: KeptStates | None = None,
    ) -> None:
        self._encodings = encodings
        self._windows: list[list[int]] = [[] for _ in range(n_rows)]
        for window, encoding in enumerate(encodings):
            if len(encoding):
                self._windows[encoding.sample_index].append(window)
        self._pad_id = encoder.pad_id
        self._hidden_size = encoder.hidden_size
        self._device = device
        self._kept = kept

    def __len__(self) -> int:
        return len(self._windows)

    def ids(self) -> np.ndarray:
        """All ids that any batch holds."""
        parts = [encoding.input_ids for encoding in self._encodings]
        return np.concatenate([[self._pad_id], *parts])

    def _windows_of(self, rows: np.ndarray) -> tuple[list[int], list[int]]:
        """Windows of some rows, longest first, and which of the rows each belongs to.

        Neighbours of one length share an attention call, and no sum minds the order.
        """
        pairs = [(w, text) for text, row in enumerate(rows) for w in self._windows[row]]
        pairs.sort(key=lambda pair: -len(self._encodings[pair[0]]))
        return [window for window, _ in pairs], [text for _, text in pairs]

    def _collate(self, windows: list[int]) -> tuple[Batch, torch.Tensor | None]:
        """Windows as a batch, and their kept states where there are some."""
        batch = collate([self._encodings[window] for window in windows], self._pad_id)
        if self._kept is None:
            return batch, None
        padded = self._kept.take(windows, batch.mask.shape[1])
        return batch, torch.from_numpy(padded).to(self._device)

    def _zeros(self, n_vectors: int) -> torch.Tensor:
        return torch.zeros(n_vectors, self._hidden_size, device=self._device)


class WindowSource(EncodedRows):
    """Rows for networks that give one row of outputs for each."""

    def batch(self, rows: np.ndarray) -> TrainingBatch:
        windows, texts = self._windows_of(rows)
        if not windows:  # only texts without pieces, whose vectors are zeros
            return TrainingBatch(len(rows), vectors=self._zeros(len(rows)))
        batch, states = self._collate(windows)
        return TrainingBatch(
            len(rows),
            windows=batch,
            owned=torch.from_numpy(batch.owned).to(self._device),
            text_of_window=torch.tensor(texts, device=self._device),
            states=states,
        )


@dataclass(frozen=True)
class WordBatch:
    """Some training rows, read word by word.

    Only words that have pieces are there: in ``vectors``, one behind the other, or as runs
    of pieces.

    Attributes
    ----------
    lengths : Tensor of shape (n_rows,), int64
        Words of each row.
    vectors : Tensor of shape (n_words, hidden_size) or None
        Where the whole encoder is frozen, all that is needed. Where rows have a vector of
        each layer, of shape (n_words, n_layers, hidden_size).
    windows : Batch or None
    pieces : Tensor of shape (n_kept_pieces,), int64, or None
        Where the pieces of the words stand in the flattened windows: those of the first
        word, then of the second and so on.
    counts : Tensor of shape (n_words,), int64, or None
        Pieces of each word.
    states : Tensor of shape (n_windows, n_pieces, hidden_size) or None
        Output of the last frozen layer, where it was kept.
    """

    lengths: torch.Tensor
    vectors: torch.Tensor | None = None
    windows: Batch | None = None
    pieces: torch.Tensor | None = None
    counts: torch.Tensor | None = None
    states: torch.Tensor | None = None


# Stands in the vector of a word that cannot be read. A network that diverged gives NaN,
# and is not to be taken for that.
UNREAD = -np.inf


def read_words(vectors: np.ndarray) -> np.ndarray:
    """Places of the words that were read.

    ``vectors`` is of shape (n_words, hidden_size) or (n_words, n_layers, hidden_size).
    """
    first = vectors[:, 0] if vectors.ndim == 2 else vectors[:, 0, 0]
    return np.flatnonzero(first != UNREAD)


class WordVectorSource:
    """Rows of vectors of words that cannot change any more.

    Parameters
    ----------
    rows : sequence of ndarray of shape (n_words, hidden_size)
        Or (n_words, n_layers, hidden_size). Of any float type; may lie in memory maps. A
        row of `UNREAD` is a word of which the tokenizer left nothing.
    device : torch.device

    Attributes
    ----------
    words : list of ndarray of int64
        For each row the words that can be learnt from.
    """

    def __init__(self, rows: Sequence[np.ndarray], device: torch.device) -> None:
        self._rows = rows
        self._device = device
        self.words = [read_words(row) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, rows: np.ndarray) -> WordBatch:
        parts = [np.asarray(self._rows[row])[self.words[row]] for row in rows]
        joined = np.concatenate(parts).astype(np.float32, copy=False)
        return WordBatch(
            torch.tensor([len(part) for part in parts]),
            vectors=torch.from_numpy(joined).to(self._device),
        )


class WordSource(EncodedRows):
    """Rows for networks that give a row of outputs for each word.

    Attributes
    ----------
    words : list of ndarray of int64
        For each row the words that have pieces.
    """

    def __init__(
        self,
        encodings: Sequence[Encoding],
        n_rows: int,
        encoder: Encoder,
        device: torch.device,
        kept: KeptStates | None = None,
    ) -> None:
        super().__init__(encodings, n_rows, encoder, device, kept)
        self.words = [
            np.unique(self._words_of(windows).astype(np.int64)) for windows in self._windows
        ]

    def _words_of(self, windows: Sequence[int]) -> np.ndarray:
        """Words of the pieces that count, window after window."""
        chosen = [self._encodings[window] for window in windows]
        parts = [e.word_index[e.owned & (e.word_index >= 0)] for e in chosen]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def batch(self, rows: np.ndarray) -> WordBatch:
        lengths = torch.tensor([len(self.words[row]) for row in rows])
        if not lengths.sum():
            return WordBatch(lengths, vectors=self._zeros(0))
        windows, texts = self._windows_of(rows)
        batch, states = self._collate(windows)
        at, position = np.nonzero(batch.owned & (batch.word_index >= 0))
        text = np.array(texts)[at]
        word = batch.word_index[at, position]
        # By text, word, window and place: a word longer than a window goes on in the next.
        order = np.lexsort((position, np.array(windows)[at], word, text))
        text, word = text[order], word[order]
        starts = np.flatnonzero(np.diff(word, prepend=-1) | np.diff(text, prepend=-1))
        counts = np.diff(starts, append=len(word))
        flat = (at * batch.mask.shape[1] + position)[order]
        return WordBatch(
            lengths,
            windows=batch,
            pieces=torch.from_numpy(flat).to(self._device),
            counts=torch.from_numpy(counts).to(self._device),
            states=states,
        )
