"""From windows to one vector per text, or one per word."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from skbert.nn.pooling import pool_pieces, pool_words
from skbert.text.report import ReadingReport
from skbert.training.inference import ReadingOptions, run_rows
from skbert.training.store import BLOCK, VectorStore

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder
    from skbert.text.encoding import Batch

Vectors = Generator[tuple[list[int], np.ndarray], None, None]


@dataclass(frozen=True)
class Reader:
    """An encoder, placed on its device, and the layers to take of it.

    Attributes
    ----------
    encoder : Encoder
    layers : sequence of int
    layer_pooling : {"mean", "sum", "concat", "stack"}
        "stack" gives a word a vector of each layer; not for documents.
    pooling : str
        For documents "mean", "cls", "max" or "last"; for words "mean", "first", "last" or
        "max".
    normalize : bool
    size : int
        Width of a vector.
    missing : float, default=0.0
        What fills the vector of a word without pieces.
    """

    encoder: Encoder
    layers: Sequence[int]
    layer_pooling: str
    pooling: str
    normalize: bool
    size: int
    missing: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a text or a word is given."""
        stacked = self.layer_pooling == "stack"
        return (len(self.layers), self.size) if stacked else (self.size,)

    def states(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """What the layers come to, and the mask of real pieces."""
        hidden = self.encoder.forward(batch, self.layers)
        return hidden.combine(self.layer_pooling), hidden.mask

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        if not self.normalize:
            return vectors
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors / np.where(norms > 0, norms, 1)


class DocumentReader(Reader):
    """One vector per row."""

    def compute(self, batch: Batch) -> list[Any]:
        """For each window its vector and the number of pieces it owns."""
        states, mask = self.states(batch)
        how = self.pooling
        if how == "cls":
            how = self.encoder.traits.summary_piece or "first"
        if how in {"mean", "max"}:
            mask = torch.from_numpy(batch.owned).to(mask.device)
        vectors = pool_pieces(states, mask, how).cpu().numpy()
        return list(zip(vectors, batch.owned.sum(axis=1).tolist(), strict=True))

    def join(self, row: Any, windows: list[Any]) -> np.ndarray:
        """Mean over all pieces of all windows, their maximum, or the mean over the
        windows' summary or last pieces; as training does in ``nn.network``."""
        if not windows:
            return np.zeros(self.size, np.float32)
        vectors = [vector for vector, _ in windows]
        if len(windows) == 1:
            vector = vectors[0]
        elif self.pooling == "max":
            vector = np.max(vectors, axis=0)
        else:
            weights = [n if self.pooling == "mean" else 1 for _, n in windows]
            vector = np.average(vectors, axis=0, weights=weights).astype(np.float32)
        return self.finish(vector)


class WordReader(Reader):
    """One vector for each word of each row, or one of each layer."""

    def compute(self, batch: Batch) -> list[Any]:
        """For each window the words it owns, their vectors and numbers of pieces."""
        states, _ = self.states(batch)
        index = np.where(batch.owned, batch.word_index, -1)
        vectors, rows, words, counts = (
            part.cpu().numpy()
            for part in pool_words(
                states, torch.from_numpy(index).to(states.device), self.pooling
            )
        )
        borders = np.searchsorted(rows, np.arange(1, len(index)))
        parts = (np.split(part, borders) for part in (words, vectors, counts))
        return list(zip(*parts, strict=True))

    def join(self, row: Any, windows: list[Any]) -> np.ndarray:
        """Every word of the row, ``missing`` where it has no pieces.

        A word longer than a window has pieces in several; its parts are pooled as its
        pieces are.
        """
        out = np.full((len(row), *self.shape), self.missing, np.float32)
        seen = np.zeros(len(row), np.int64)
        for words, vectors, counts in windows:
            new = vectors
            if len(words) and seen[words[0]]:
                old, n_old, n_new = out[words[0]], seen[words[0]], counts[0]
                new = vectors.copy()
                if self.pooling == "first":
                    new[0] = old
                elif self.pooling == "max":
                    new[0] = np.maximum(old, vectors[0])
                elif self.pooling == "mean":
                    new[0] = (old * n_old + vectors[0] * n_new) / (n_old + n_new)
            out[words] = new
            seen[words] += counts
        return self.finish(out)


def read_rows(
    rows: Sequence[Any],
    reader: DocumentReader | WordReader,
    options: ReadingOptions,
    device: torch.device,
    *,
    report: ReadingReport,
    progress: Callable[[int], object],
    store: VectorStore | None = None,
) -> Vectors:
    """Positions and vectors of each distinct row, those that a store holds first."""
    if store is None:
        yield from _compute(rows, reader, options, device, report, progress)
        return
    missing = set(range(len(rows)))
    for position, vectors, cut in store.find(rows):
        missing.discard(position)
        if cut:
            report.cut.add(position)
        progress(1)
        yield [position], vectors
    if not missing:
        return
    places = sorted(missing)
    left = [rows[place] for place in places]
    lost = ReadingReport()
    fresh: list[tuple[Any, np.ndarray, bool]] = []
    # Closed also when writing is interrupted: an error that is kept, as an interactive
    # session does, would else keep the workers waiting, and the next call with them.
    with closing(_compute(left, reader, options, device, lost, progress)) as computed:
        for positions, vectors in computed:
            yield [places[p] for p in positions], vectors
            fresh.append((left[positions[0]], vectors, positions[0] in lost.cut))
            if len(fresh) == BLOCK:
                store.add(fresh)
                fresh = []
    store.add(fresh)
    report.add(lost, [[place] for place in places])


def _compute(
    rows: Sequence[Any],
    reader: DocumentReader | WordReader,
    options: ReadingOptions,
    device: torch.device,
    report: ReadingReport,
    progress: Callable[[int], object],
) -> Vectors:
    for result in run_rows(
        rows,
        reader.encoder,
        reader.compute,
        options,
        device,
        report=report,
        progress=progress,
    ):
        yield result.positions, reader.join(rows[result.positions[0]], result.windows)
