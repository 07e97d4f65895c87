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


class WindowSource:
    """Rows as windows of pieces, with or without the kept output of frozen layers.

    Parameters
    ----------
    encodings : sequence of Encoding
        Windows in order; ``sample_index`` is the row. A row may have none.
    n_rows : int
    pad_id : int
    hidden_size : int
    device : torch.device
    kept : KeptStates or None
        States of the windows, by their place in ``encodings``.
    """

    def __init__(
        self,
        encodings: Sequence[Encoding],
        n_rows: int,
        pad_id: int,
        hidden_size: int,
        device: torch.device,
        kept: KeptStates | None = None,
    ) -> None:
        self._encodings = encodings
        self._windows: list[list[int]] = [[] for _ in range(n_rows)]
        for window, encoding in enumerate(encodings):
            if len(encoding):
                self._windows[encoding.sample_index].append(window)
        self._pad_id = pad_id
        self._hidden_size = hidden_size
        self._device = device
        self._kept = kept

    def __len__(self) -> int:
        return len(self._windows)

    def ids(self) -> np.ndarray:
        """All ids that any batch holds."""
        parts = [encoding.input_ids for encoding in self._encodings]
        return np.concatenate([[self._pad_id], *parts])

    def batch(self, rows: np.ndarray) -> TrainingBatch:
        pairs = [(w, text) for text, row in enumerate(rows) for w in self._windows[row]]
        # Neighbours of one length share an attention call; the sum does not mind the order.
        pairs.sort(key=lambda pair: -len(self._encodings[pair[0]]))
        windows = [window for window, _ in pairs]
        if not windows:  # only texts without pieces, whose vectors are zeros
            zeros = torch.zeros(len(rows), self._hidden_size, device=self._device)
            return TrainingBatch(len(rows), vectors=zeros)
        batch = collate([self._encodings[window] for window in windows], self._pad_id)
        states = None
        if self._kept is not None:
            padded = self._kept.take(windows, batch.mask.shape[1])
            states = torch.from_numpy(padded).to(self._device)
        return TrainingBatch(
            len(rows),
            windows=batch,
            owned=torch.from_numpy(batch.owned).to(self._device),
            text_of_window=torch.tensor([text for _, text in pairs], device=self._device),
            states=states,
        )
