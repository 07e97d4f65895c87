"""The one gradient-free loop: rows in, arrays out, each distinct row once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, tee
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from skbert.text.batching import DistinctRows, pieces_per_batch, plan_batches
from skbert.text.encoding import Batch, Encoding, collate
from skbert.training.device import map_side_by_side, n_threads

if TYPE_CHECKING:
    from skbert.encoders.base import Encoder
    from skbert.text.report import ReadingReport


@dataclass(frozen=True)
class ReadingOptions:
    """How rows become windows and windows become batches.

    Attributes
    ----------
    max_length : int
    long_text : {"truncate", "head_tail", "windows"}
    stride : int
    batch_size : int or "auto"
        Windows in a batch, or as many as make a good number of pieces.
    """

    max_length: int
    long_text: str
    stride: int
    batch_size: int | str


class RowResult(NamedTuple):
    """What the windows of one distinct row gave.

    Attributes
    ----------
    positions : list of int
        Where the row stands in the input.
    windows : list
        One result for each of its windows, in order; none for a row without pieces.
    """

    positions: list[int]
    windows: list[Any]


def run_rows(
    rows: Sequence[Any],
    encoder: Encoder,
    compute: Callable[[Batch], list[Any]],
    options: ReadingOptions,
    device: torch.device,
    *,
    report: ReadingReport,
    progress: Callable[[int], object],
) -> Iterator[RowResult]:
    """Read rows and run a function on batches of their windows.

    Parameters
    ----------
    rows : sequence of str, tuple of str or list of str
    encoder : Encoder
    compute : callable
        Takes a Batch, runs without gradients, gives a list with one result per window.
    options : ReadingOptions
    device : torch.device
        Where ``compute`` runs; batches are run side by side on a CPU.
    report : ReadingReport
        Is added to, with positions of the input.
    progress : callable
        Is told the number of rows done.

    Yields
    ------
    RowResult
        One for each distinct row, in an order that depends on the rows alone.
    """
    threads = n_threads()
    chunks = _prepare(rows, encoder, options, device, report, parallel=threads > 1)
    first = next(chunks)
    # With fewer batches than that, threads help more inside the products of a batch.
    side_by_side = device.type == "cpu" and len(first.plan) >= 2 * threads

    def tasks() -> Iterator[tuple[_Chunk, list[int]]]:
        for chunk in chain([first], chunks):
            for group in chunk.plan or [[]]:
                yield chunk, group

    def run(task: tuple[_Chunk, list[int]]) -> list[Any]:
        chunk, group = task
        if not group:
            return []
        batch = collate([chunk.encodings[window] for window in group], encoder.pad_id)
        # The user's autocast would reach some batches, those of the calling thread only.
        with torch.inference_mode(), torch.autocast(device.type, enabled=False):
            return compute(batch)

    ahead, behind = tee(tasks())
    # Closed also when `progress` fails: whoever holds the error would hold the workers.
    with closing(map_side_by_side(run, ahead, threads if side_by_side else 1)) as done:
        for (chunk, group), values in zip(behind, done, strict=True):
            progress(chunk.accept(group, values))
            if chunk.is_complete():
                yield from chunk.results()


class _Chunk:
    """Rows that were tokenised together, and what came back of them so far."""

    def __init__(
        self,
        positions: list[list[int]],
        encodings: list[Encoding],
        plan: list[list[int]],
    ) -> None:
        self.positions = positions
        self.encodings = encodings
        self.plan = plan
        self._values: list[Any] = [None] * len(encodings)
        self._waiting = max(1, len(plan))

    def accept(self, group: list[int], values: list[Any]) -> int:
        """Keep what a batch gave; the number of input rows that it finished, about."""
        self._waiting -= 1
        for window, value in zip(group, values, strict=True):
            self._values[window] = value
        firsts = (
            self.encodings[window].sample_index
            for window in group
            if window == 0
            or self.encodings[window].sample_index
            != self.encodings[window - 1].sample_index
        )
        return sum(len(self.positions[sample]) for sample in firsts)

    def is_complete(self) -> bool:
        return not self._waiting

    def results(self) -> Iterator[RowResult]:
        windows: list[list[Any]] = [[] for _ in self.positions]
        for encoding, value in zip(self.encodings, self._values, strict=True):
            if value is not None:
                windows[encoding.sample_index].append(value)
        self._values.clear()
        yield from map(RowResult, self.positions, windows)


def _prepare(
    rows: Sequence[Any],
    encoder: Encoder,
    options: ReadingOptions,
    device: torch.device,
    report: ReadingReport,
    *,
    parallel: bool,
) -> Iterator[_Chunk]:
    """Tokenise and plan, a chunk at a time."""
    distinct = DistinctRows(rows)
    max_rows = None if options.batch_size == "auto" else int(options.batch_size)
    max_pieces = None
    if max_rows is None:
        max_pieces = pieces_per_batch(device.type) * encoder.batch_factor
    for chunk in distinct.chunks():
        positions = distinct.positions[chunk.start : chunk.stop]
        encodings, lost = encoder.encode(
            distinct.rows[chunk.start : chunk.stop],
            max_length=options.max_length,
            long_text=options.long_text,
            stride=options.stride,
            parallel=parallel,
        )
        report.add(lost, positions)
        plan = plan_batches(encodings, max_pieces=max_pieces, max_rows=max_rows)
        yield _Chunk(positions, encodings, plan)
