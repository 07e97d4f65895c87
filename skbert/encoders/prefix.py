"""Frozen bottom layers: run once, keep their output, go on from there."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from skbert.encoders.freezing import parameter_depths
from skbert.nn.hidden_states import HiddenStates
from skbert.text.batching import pieces_per_batch, plan_batches
from skbert.text.encoding import Encoding, collate

# Above this size the kept states lie in a temporary file that is mapped into memory.
MEMORY_BYTES = 1 << 30


class Prefix:
    """The embeddings and first layers of an encoder, frozen.

    Parameters
    ----------
    encoder : TransformerEncoder
        A copy to be trained; the frozen weights stop requiring gradients.
    n_frozen : int
        Layers to freeze, the embeddings with the first. 0 freezes nothing.
    """

    def __init__(self, encoder: Any, n_frozen: int) -> None:
        self.encoder = encoder
        self.n_frozen = n_frozen
        # Nothing to find out where everything freezes.
        all_frozen = n_frozen == encoder.n_layers
        self.depths = {} if all_frozen else parameter_depths(encoder)
        for name, parameter in encoder.model.named_parameters():
            depth = self.depths.get(name)
            trains = depth is not None and (n_frozen == 0 or depth > n_frozen)
            parameter.requires_grad_(trains)

    def set_training(self) -> None:
        """Training mode above the frozen layers, which run without dropout."""
        model = self.encoder.model.train()
        if not self.n_frozen:
            return
        for module in model.modules():
            parameters = list(module.parameters())
            if parameters and not any(p.requires_grad for p in parameters):
                module.eval()
        for module in model.children():
            if not list(module.parameters()):
                module.eval()  # a dropout between the embeddings and the first layer

    def can_resume(self) -> bool:
        """Whether the encoder can start from the output of a layer."""
        return 0 < self.n_frozen < self.encoder.n_layers and self.encoder.can_start_at(
            self.n_frozen
        )

    def keep(
        self, encodings: Sequence[Encoding], rows: Sequence[Any], store: Any = None
    ) -> KeptStates:
        """Output of the last frozen layer for every window.

        ``store`` finds and keeps arrays by row, as ``training.store`` does; windows stand
        in the order of ``rows``.
        """
        kept = KeptStates(encodings, len(rows), self.encoder.hidden_size)
        missing = set(range(len(rows)))
        if store is not None:
            for row, states, _ in store.find(rows):
                kept.of_row(row)[:] = states
                missing.discard(row)
        self._compute(encodings, missing, kept)
        if store is not None:
            store.add((rows[row], kept.of_row(row), False) for row in sorted(missing))
        return kept

    def _compute(
        self, encodings: Sequence[Encoding], wanted: set[int], kept: KeptStates
    ) -> None:
        windows = [i for i, e in enumerate(encodings) if e.sample_index in wanted]
        model = self.encoder.model.eval()
        plan = plan_batches(
            [encodings[i] for i in windows],
            max_pieces=pieces_per_batch(model.device.type),
            max_rows=None,
        )
        for group in plan:
            chosen = [windows[i] for i in group]
            batch = collate([encodings[i] for i in chosen], self.encoder.pad_id)
            with torch.no_grad():
                states = self.encoder.forward(batch, [self.n_frozen]).layers[0]
            kept.put(chosen, states.float().cpu().numpy())
        model.train()

    def forward(self, batch: Any) -> HiddenStates:
        """The last layer's output for a training batch, from kept states where it has
        some."""
        layers = [self.encoder.n_layers]
        start = None if batch.states is None else (self.n_frozen, batch.states)
        return self.encoder.forward(batch.windows, layers, start)


class KeptStates:
    """Hidden states of windows, one behind the other, in memory or in a mapped file."""

    def __init__(
        self, encodings: Sequence[Encoding], n_rows: int, hidden_size: int
    ) -> None:
        lengths = [len(encoding) for encoding in encodings]
        self.offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        samples = [encoding.sample_index for encoding in encodings]
        self._borders = self.offsets[np.searchsorted(samples, np.arange(n_rows + 1))]
        shape = (int(self.offsets[-1]), hidden_size)
        if shape[0] * shape[1] * 4 > MEMORY_BYTES:
            with tempfile.TemporaryFile() as file:  # gone when the mapping is
                self.states: np.ndarray = np.memmap(file, np.float32, "w+", shape=shape)
        else:
            self.states = np.empty(shape, dtype=np.float32)

    def of_row(self, row: int) -> np.ndarray:
        """States of all windows of a row, as a view."""
        return self.states[self._borders[row] : self._borders[row + 1]]

    def put(self, windows: Sequence[int], states: np.ndarray) -> None:
        for window, rows in zip(windows, states, strict=True):
            start, stop = self.offsets[window], self.offsets[window + 1]
            self.states[start:stop] = rows[: stop - start]

    def take(self, windows: Sequence[int], n_pieces: int) -> np.ndarray:
        """Padded states, (n_windows, n_pieces, hidden_size)."""
        out = np.zeros((len(windows), n_pieces, self.states.shape[1]), np.float32)
        for row, window in enumerate(windows):
            start, stop = self.offsets[window], self.offsets[window + 1]
            out[row, : stop - start] = self.states[start:stop]
        return out
