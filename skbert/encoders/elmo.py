"""ELMo as an Encoder: a piece is a word."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from skbert.encoders.base import Encoder, EncoderTraits, to_tensor
from skbert.nn.bilm import Bilm, BilmConfig, BilmState
from skbert.nn.hidden_states import HiddenStates
from skbert.nn.lstm import LSTMState
from skbert.text.characters import WordRows, restore
from skbert.text.encoding import Batch, Encoding, Frame, Pieces, Special, window_texts
from skbert.text.report import ReadingReport

# An LSTM reads sentences of any length.
NO_LIMIT = 2**31 - 1

# Vectors of words that are kept, in bytes.
CACHE_BYTES = 2**26

# Words that go through the convolutions, and through the layers behind them, at a time.
# Products of one shape round alike: a word has the same vector, to the bit, whichever words
# it was met with, and so whether or not it was met before.
CONVOLVED_WORDS = 16
COMBINED_WORDS = 64


class ElmoEncoder(Encoder):
    """A bidirectional language model over words (Peters et al. 2018).

    Every sentence starts from one and the same state, so that a vector depends on its
    sentence alone.

    Parameters
    ----------
    bilm : Bilm
        In float32 on the CPU; its weights are never changed.
    alphabet : WordRows
    markers : bool, default=True
        Whether a word that is spelled as the begin or the end of a sentence is one.
    initial : BilmState or None, default=None
        The state, for one row, that sentences start from. None is zeros.
    warm_up : sequence of lists of str, default=()
        Sentences that were kept with the model to reach a state from.
    """

    longest = None
    max_length = NO_LIMIT
    pad_id = 0
    # One word of each row is read at a time, so that products are wide by many rows.
    batch_factor = 4
    traits = EncoderTraits(summary_piece=None, language_model=None)

    def __init__(
        self,
        bilm: Bilm,
        alphabet: WordRows,
        *,
        markers: bool = True,
        initial: BilmState | None = None,
        warm_up: Sequence[list[str]] = (),
    ) -> None:
        self.bilm = bilm.eval().requires_grad_(False)
        self.alphabet = alphabet
        self.markers = markers
        self.initial = initial
        self.warm_up = [list(sentence) for sentence in warm_up]
        self.hidden_size = 2 * bilm.config.projection_dim
        self.n_layers = bilm.config.n_layers
        begin, end = alphabet.frame().tolist()
        self._frame = Frame(
            (Special((begin,), (0,), False), Special((end,), (0,), False)), (0,)
        )
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._words: WordVectors | None = WordVectors()
        self._placed: dict[tuple[torch.device, torch.dtype], ElmoEncoder] = {}
        self._lock = threading.Lock()
        self._state: dict[str, Any] | None = None
        self._fingerprint = None

    def __repr__(self) -> str:
        return f"ElmoEncoder({self.n_layers} layers, {self.hidden_size} wide)"

    # ---- state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ElmoEncoder:
        """Build the encoder from what ``state`` gave, sharing the memory of the arrays."""
        facts = json.loads(state["facts"])
        config = BilmConfig.from_dict(json.loads(state["config"]))
        weights = {name: to_tensor(array) for name, array in state["weights"].items()}
        initial = _state_from(weights, config.n_layers) if facts["warm"] else None
        bilm = bilm_of(config, weights)
        return cls(
            bilm,
            restore(json.loads(state["tokenizer"])),
            markers=facts["markers"],
            initial=initial,
            warm_up=facts["warm_up"],
        )

    def state(self) -> dict[str, Any]:
        if self._state is None:
            weights = {
                name: value.numpy() for name, value in self.bilm.state_dict().items()
            }
            if self.initial is not None:
                weights |= _state_to_arrays(self.initial)
            facts = {
                "markers": self.markers,
                "warm": self.initial is not None,
                "warm_up": self.warm_up,
            }
            self._state = {
                "kind": "elmo",
                "config": json.dumps(self.bilm.config.to_dict(), sort_keys=True),
                "tokenizer": json.dumps(self.alphabet.state(), ensure_ascii=False),
                "facts": json.dumps(facts, ensure_ascii=False),
                "weights": weights,
            }
        return self._state

    def with_options(
        self, *, markers: bool, warm_up: Sequence[list[str]] | None
    ) -> ElmoEncoder:
        """The same network read another way.

        ``warm_up`` are sentences to read one after the other, in one stream; all others
        then start from the state behind them. None is a start from zeros.
        """
        other = ElmoEncoder(self.bilm, self.alphabet, markers=markers, warm_up=self.warm_up)
        other._words = self._words  # vectors of words do not depend on either
        if warm_up is not None:
            other.initial = other._state_behind(warm_up)
        return other

    def _state_behind(self, sentences: Sequence[list[str]]) -> BilmState:
        state = self.bilm.zero_state(1)
        with torch.inference_mode():
            for words in sentences:
                rows = self.alphabet.rows(words, markers=self.markers)
                begin, end = self.alphabet.frame()
                tokens = self._vectors(np.concatenate([[begin], rows, [end]]))
                state = self.bilm(tokens, [len(tokens)], state)[1]
        onward, backward = (
            [LSTMState(*(part.clone() for part in layer)) for layer in side]
            for side in state
        )
        return onward, backward

    # ---- words to windows

    def n_special(self, n_texts: int) -> int:
        return self._frame.n_special

    def encode(
        self,
        rows: Sequence[Any],
        *,
        max_length: int,
        long_text: str,
        stride: int,
        parallel: bool,
    ) -> tuple[list[Encoding], ReadingReport]:
        report = ReadingReport()
        encodings: list[Encoding] = []
        words = [word for row in rows for word in row]
        ids = self.alphabet.rows(words, markers=self.markers)
        ends = np.cumsum([len(row) for row in rows])
        distinct = set(words)
        cuts = {word for word in distinct if self.alphabet.cuts(word)}
        unknown = {word for word in distinct if not self.alphabet.knows(word)}
        report.n_pieces = len(words)
        report.n_unknown = sum(word in unknown for word in words) if unknown else 0
        for sample, (row, end) in enumerate(zip(rows, ends.tolist(), strict=True)):
            if not len(row):
                continue
            text = Pieces(ids[end - len(row) : end], np.arange(len(row), dtype=np.int32))
            windows, cut = window_texts(
                [text],
                self._frame,
                sample=sample,
                max_length=max_length,
                long_text=long_text,
                stride=stride,
            )
            encodings += windows
            if cut:
                report.cut.add(sample)
            if cuts and not cuts.isdisjoint(row):
                report.cut_words.add(sample)
        return encodings, report

    # ---- windows to hidden states

    def placed(self, device: torch.device, dtype: torch.dtype) -> ElmoEncoder:
        parameter = next(self.bilm.parameters())
        if (device, dtype) == (parameter.device, parameter.dtype):
            return self
        with self._lock:
            if (device, dtype) not in self._placed:
                moved = copy.copy(self)
                moved.bilm = copy.deepcopy(self.bilm).to(device, dtype)
                moved._start_afresh()
                self._placed[device, dtype] = moved
            return self._placed[device, dtype]

    def trainable(self, device: torch.device) -> ElmoEncoder:
        copied = copy.copy(self)
        copied.bilm = copy.deepcopy(self.bilm).to(device).requires_grad_(True)
        copied._start_afresh()
        copied._words = None
        return copied

    def can_start_at(self, layer: int) -> bool:
        return False

    def forward(
        self,
        batch: Batch,
        layers: Sequence[int],
        start: tuple[int, torch.Tensor] | None = None,
    ) -> HiddenStates:
        tokens = self._vectors(batch.input_ids[batch.mask])
        lengths = batch.lengths.tolist()
        state = None if self.initial is None else self._spread(len(lengths), tokens)
        outputs, _ = self.bilm(tokens, lengths, state, max(layers))
        mask = torch.from_numpy(batch.mask).to(tokens.device)
        states = []
        for layer in layers:
            padded = tokens.new_zeros((*mask.shape, self.hidden_size))
            padded[mask] = outputs[layer]
            states.append(padded)
        return HiddenStates(tuple(states), mask)

    def _spread(self, n_rows: int, like: torch.Tensor) -> BilmState:
        """The initial state for all rows of a batch."""
        assert self.initial is not None
        onward, backward = (
            [
                LSTMState(*(part.to(like).expand(n_rows, -1) for part in layer))
                for layer in s
            ]
            for s in self.initial
        )
        return onward, backward

    def _vectors(self, rows: np.ndarray) -> torch.Tensor:
        """Vectors of tokens, (n_tokens, projection_dim), each distinct one once."""
        if self._words is not None:
            return self._words(rows, self._compute_words)
        distinct, places = np.unique(rows, axis=0, return_inverse=True)
        device = next(self.bilm.parameters()).device
        vectors = self.bilm.token_encoder(torch.from_numpy(distinct).to(device))
        return vectors[torch.from_numpy(places.ravel()).to(device)]

    def _compute_words(self, rows: np.ndarray) -> torch.Tensor:
        """Vectors of distinct tokens, in blocks of few shapes.

        Beyond the last character and the widest filter there is only what a pad gives, so
        that the rest of a row can be left out.
        """
        encoder = self.bilm.token_encoder
        config = self.bilm.config
        parameter = next(self.bilm.parameters())
        ids = torch.from_numpy(rows.astype(np.int64)).to(parameter.device)
        units = None
        if config.n_characters:
            units = parameter.new_empty((len(rows), encoder.n_filters))
            for places, end in self.alphabet.by_length(rows, config.widest_filter):
                for block, full in _blocks(torch.from_numpy(places), CONVOLVED_WORDS):
                    read = encoder.read_characters(ids[full, :end])
                    units[block] = read[: len(block)]  # type: ignore[index]
        out = parameter.new_empty((len(rows), config.projection_dim))
        for block, full in _blocks(torch.arange(len(rows)), COMBINED_WORDS):
            given = None if units is None else units[full]
            out[block] = encoder.combine(ids[full], given)[: len(block)]
        return out


def _blocks(places: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Parts of up to ``size``, and each of them filled up to ``size`` by repetition."""
    for block in places.split(size):
        yield block, block.repeat(-(-size // len(block)))[:size]


def bilm_of(config: BilmConfig, weights: Mapping[str, torch.Tensor]) -> Bilm:
    """The network that these weights are, sharing their memory."""
    with torch.device("meta"):
        bilm = Bilm(config)
    bilm.load_state_dict(weights, assign=True)
    return bilm


class WordVectors:
    """Vectors of the tokens that were met lately, up to a bound."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._table: torch.Tensor | None = None
        self._lock = threading.Lock()

    def __call__(
        self, rows: np.ndarray, compute: Callable[[np.ndarray], torch.Tensor]
    ) -> torch.Tensor:
        """Vectors of rows of integers, (n, size), of (n, width).

        ``compute`` is asked for those of distinct rows that are not at hand.
        """
        rows = np.ascontiguousarray(rows, dtype=np.int32)
        data, step = rows.tobytes(), rows.itemsize * rows.shape[1]
        keys = [data[at : at + step] for at in range(0, len(data), step)]
        firsts = {key: at for at, key in reversed(list(enumerate(keys)))}
        parts = []
        with self._lock:
            old = [key for key in firsts if key in self._places]
            new = [key for key in firsts if key not in self._places]
            if old:
                assert self._table is not None
                parts.append(self._table[[self._places[key] for key in old]])
        if new:
            vectors = compute(rows[[firsts[key] for key in new]])
            self._keep(new, vectors)
            parts.append(vectors)
        order = {key: at for at, key in enumerate([*old, *new])}
        return torch.cat(parts)[[order[key] for key in keys]]

    def _keep(self, keys: list[bytes], vectors: torch.Tensor) -> None:
        n_held = CACHE_BYTES // (vectors.shape[1] * vectors.element_size())
        keys, vectors = keys[:n_held], vectors[:n_held]
        with self._lock:
            if len(self._places) + len(keys) > n_held:
                self._places.clear()
            places = [self._places.setdefault(key, len(self._places)) for key in keys]
            held = 0 if self._table is None else len(self._table)
            if len(self._places) > held:
                wider = vectors.new_empty((2 * len(self._places), vectors.shape[1]))
                if self._table is not None:
                    wider[:held] = self._table
                self._table = wider
            assert self._table is not None
            self._table[places] = vectors


def _state_to_arrays(state: BilmState) -> dict[str, np.ndarray]:
    return {
        f"initial.{side}.{number}.{name}": part.numpy()
        for side, layers in zip(("onward", "backward"), state, strict=True)
        for number, layer in enumerate(layers)
        for name, part in layer._asdict().items()
    }


def _state_from(weights: dict[str, torch.Tensor], n_layers: int) -> BilmState:
    """Take the state out of the weights that it was saved with."""
    onward, backward = (
        [
            LSTMState(
                weights.pop(f"initial.{side}.{number}.output"),
                weights.pop(f"initial.{side}.{number}.cell"),
            )
            for number in range(n_layers)
        ]
        for side in ("onward", "backward")
    )
    return onward, backward
