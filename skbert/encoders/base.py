"""The seam between texts and networks: what every kind of encoder offers."""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from skbert.nn.hidden_states import HiddenStates
from skbert.text.encoding import Batch, Encoding
from skbert.text.report import ReadingReport


@dataclass(frozen=True)
class EncoderTraits:
    """What callers may need to know about the kind of an encoder.

    Attributes
    ----------
    summary_piece : {"first", "last"} or None
        Where the piece stands that the model was trained to sum a text up in ([CLS]).
    language_model : {"masked", "causal"} or None
        How the model was pretrained; "causal" pieces do not see what follows them.
    pooling : {"mean", "cls", "max", "last"}
        What ``pooling="auto"`` stands for: as a sentence-transformers checkpoint says,
        else the mean, which needs no training.
    left_out : tuple of str
        What such a checkpoint states besides and skbert does not do.
    task_head : str or None
        Class of the checkpoint, if it brings a head that was trained for a task.
    """

    summary_piece: str | None
    language_model: str | None
    pooling: str = "mean"
    left_out: tuple[str, ...] = ()
    task_head: str | None = None


class Encoder(ABC):
    """A pretrained network and the vocabulary that belongs to it.

    Attributes
    ----------
    hidden_size : int
        Width of every layer's output.
    n_layers : int
        Layers above the embeddings.
    max_length : int
        Pieces that a window holds unless the user says otherwise, specials included.
    longest : int or None
        Pieces that the position table can hold; None if positions are relative.
    pad_id : int
        Filler for short rows.
    batch_factor : int
        How many times the usual number of pieces a batch best holds.
    traits : EncoderTraits
    pooler : tuple of ndarray or None
        Weight, (hidden_size, hidden_size), and bias of a linear layer with tanh that was
        pretrained on the summary piece. It is no part of the encoder, nor of its state;
        None where a checkpoint has no such layer, and for encoders that were trained.
    """

    hidden_size: int
    n_layers: int
    max_length: int
    longest: int | None
    pad_id: int
    batch_factor: int = 1
    traits: EncoderTraits
    pooler: tuple[np.ndarray, np.ndarray] | None = None
    _fingerprint: str | None = None

    @abstractmethod
    def n_special(self, n_texts: int) -> int:
        """Special pieces around one text, or around and between two."""

    @abstractmethod
    def encode(
        self,
        rows: Sequence[Any],
        *,
        max_length: int,
        long_text: str,
        stride: int,
        parallel: bool,
    ) -> tuple[list[Encoding], ReadingReport]:
        """Windows of texts, pairs or word lists; ``sample_index`` counts the rows.

        ``parallel`` allows the tokenizer its own threads.
        """

    @abstractmethod
    def placed(self, device: torch.device, dtype: torch.dtype) -> Encoder:
        """This encoder with its weights on a device, in a number format, ready to run."""

    @abstractmethod
    def trainable(self, device: torch.device) -> Encoder:
        """A copy in float32 on a device whose weights may change."""

    @abstractmethod
    def can_start_at(self, layer: int) -> bool:
        """Whether ``forward`` can go on from the output of a layer."""

    @abstractmethod
    def forward(
        self,
        batch: Batch,
        layers: Sequence[int],
        start: tuple[int, torch.Tensor] | None = None,
    ) -> HiddenStates:
        """Outputs of the layers named, 0 being the embeddings.

        ``start`` is the number and the output, (n_rows, n_pieces, hidden_size), of a layer
        to go on from.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All of it as numpy arrays and JSON strings; the same arrays at every call."""

    def fingerprint(self) -> str:
        """A digest of everything that decides what the encoder gives, as `state` does.

        Like the state of an encoder it never changes, so it is computed once.
        """
        if self._fingerprint is None:
            self._fingerprint = self._digest()
        return self._fingerprint

    def _digest(self) -> str:
        hasher = hashlib.blake2b(digest_size=20)
        state = self.state()
        for name, value in sorted(state.items()):
            if isinstance(value, str):
                hasher.update(f"{name}:{value}".encode())
        for name, array in sorted(state["weights"].items()):
            hasher.update(f"{name}:{array.dtype}:{array.shape}".encode())
            hasher.update(memoryview(array).cast("B"))
        return hasher.hexdigest()


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor on the memory of an array, also of a read-only memory map.

    Nothing writes to these tensors, so torch's warning about writing does not apply.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(array)
