"""Order of work: each distinct text once, longest first, batches by number of pieces.

The order depends on the texts alone, not on where they stand in the input, so that the same
texts always meet in the same batches and permuted input gives permuted output, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skbert.text.encoding import Encoding

# Rows and characters that are tokenised at a time: the tokenizer's own records of a text
# weigh far more than its ids, so they may not pile up with the number of texts.
CHUNK_ROWS = 4096
CHUNK_CHARACTERS = 400_000

# Pieces in a batch, pads included. On a CPU a larger batch is no faster, and the blocks of
# many sizes that it takes tear the heap apart; a GPU wants enough work for every launch.
BATCH_PIECES = {"cpu": 768, "cuda": 32_768, "mps": 8192}


def pieces_per_batch(device: str) -> int:
    """How many pieces to compute at a time on a kind of device."""
    return BATCH_PIECES.get(device, BATCH_PIECES["mps"])


class DistinctRows:
    """The distinct rows of an input, longest first, and where each of them stands.

    Parameters
    ----------
    rows : list of str, of tuple of str or of list of str
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        positions: dict[Any, list[int]] = {}
        for position, row in enumerate(rows):
            key = tuple(row) if isinstance(row, list) else row
            positions.setdefault(key, []).append(position)
        ordered = sorted(positions, key=lambda key: (n_characters(key), key), reverse=True)
        self.rows: list[Any] = [rows[positions[key][0]] for key in ordered]
        self.positions: list[list[int]] = [positions[key] for key in ordered]

    def chunks(self) -> Iterator[range]:
        """Runs of distinct rows that are tokenised together."""
        start, characters = 0, 0
        for index, row in enumerate(self.rows):
            size = n_characters(row)
            full = characters + size > CHUNK_CHARACTERS or index - start == CHUNK_ROWS
            if index > start and full:
                yield range(start, index)
                start, characters = index, 0
            characters += size
        yield range(start, len(self.rows))


def n_characters(row: Any) -> int:
    """Length of a text, of both texts of a pair, or of all words."""
    return len(row) if isinstance(row, str) else sum(map(len, row)) + len(row)


def plan_batches(
    encodings: Sequence[Encoding], *, max_pieces: int | None, max_rows: int | None
) -> list[list[int]]:
    """Group windows of like length into batches.

    Parameters
    ----------
    encodings : sequence of Encoding
    max_pieces : int or None
        Pieces in a batch, pads included. A longer window is a batch of its own.
    max_rows : int or None
        Windows in a batch.

    Returns
    -------
    list of list of int
        Positions in ``encodings``, longest first. Windows without pieces are in none.
    """
    order = sorted(
        (index for index, encoding in enumerate(encodings) if len(encoding)),
        key=lambda i: (len(encodings[i]), encodings[i].input_ids.tobytes()),
        reverse=True,
    )
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        longest = len(encodings[order[start]])
        size = max(1, max_pieces // longest) if max_pieces else len(order)
        size = min(size, max_rows) if max_rows else size
        batches.append(order[start : start + size])
        start += size
    return batches
