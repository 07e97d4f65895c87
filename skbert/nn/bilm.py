"""The network of ELMo: a language model in each direction over one token encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch
from torch import nn

from skbert.nn.lstm import LSTMState, ProjectedLSTM
from skbert.nn.token_encoder import TokenEncoder

# State of each layer, of the forward and of the backward direction.
BilmState: TypeAlias = tuple[list[LSTMState], list[LSTMState]]


@dataclass(frozen=True)
class BilmConfig:
    """Sizes of a biLM.

    Attributes
    ----------
    projection_dim : int
        Width of a token vector and of the output of one direction.
    lstm_dim : int
        Width of a memory cell; as ``projection_dim``: no projection.
    n_layers : int
        LSTM layers of each direction.
    cell_clip, proj_clip : float or None
        Bounds of cells and outputs.
    use_skip_connections : bool
        Whether layers above the first add their input.
    n_words, word_dim : int
        Table of words; 0 is none.
    n_characters, character_dim : int
        Table of characters; 0 is none.
    max_characters_per_token : int
        Characters of a word that are read, markers of begin and end included.
    filters : tuple of (int, int)
        Width and number of the filters of each convolution.
    activation : {"relu", "tanh"}
    n_highway : int
    projected : bool
        Whether token vectors go through a linear layer.
    """

    projection_dim: int
    lstm_dim: int
    n_layers: int
    cell_clip: float | None
    proj_clip: float | None
    use_skip_connections: bool
    n_words: int = 0
    word_dim: int = 0
    n_characters: int = 0
    character_dim: int = 0
    max_characters_per_token: int = 0
    filters: tuple[tuple[int, int], ...] = ()
    activation: str = "relu"
    n_highway: int = 0
    projected: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> BilmConfig:
        """From what ``to_dict`` gave, after JSON."""
        filters = tuple((int(width), int(n)) for width, n in values["filters"])
        return cls(**{**values, "filters": filters})

    @property
    def widest_filter(self) -> int:
        return max((width for width, _ in self.filters), default=0)


class Bilm(nn.Module):
    """Token encoder and two stacks of LSTMs (Peters et al. 2018, section 3).

    Weights are undefined until they are drawn or set.

    Parameters
    ----------
    config : BilmConfig
    """

    def __init__(self, config: BilmConfig) -> None:
        super().__init__()
        self.config = config
        self.token_encoder = TokenEncoder(
            config.projection_dim,
            n_words=config.n_words,
            word_size=config.word_dim,
            n_characters=config.n_characters,
            character_size=config.character_dim,
            filters=config.filters,
            activation=config.activation,
            n_highway=config.n_highway,
            projected=config.projected,
        )
        self.onward = nn.ModuleList(_lstm(config) for _ in range(config.n_layers))
        self.backward_ = nn.ModuleList(_lstm(config) for _ in range(config.n_layers))

    def zero_state(self, n_rows: int) -> BilmState:
        """The state before anything was read."""
        onward, backward = (
            [lstm.zero_state(n_rows) for lstm in stack]  # type: ignore[operator]
            for stack in (self.onward, self.backward_)
        )
        return onward, backward

    def forward(
        self,
        tokens: torch.Tensor,
        lengths: Sequence[int],
        state: BilmState | None = None,
        n_layers: int | None = None,
    ) -> tuple[list[torch.Tensor], BilmState]:
        """Outputs of all layers, and the state behind each row.

        Parameters
        ----------
        tokens : Tensor of shape (n_tokens, projection_dim)
            Vectors of the tokens of all rows, one row behind the other, with the markers
            of begin and end, as of the token encoder.
        lengths : sequence of int
            Tokens of each row.
        state : BilmState or None, default=None
            Where each row starts; None is zeros.
        n_layers : int or None, default=None
            Lowest LSTM layers to run; None is all.

        Returns
        -------
        layers : list of Tensor of shape (n_tokens, 2 * projection_dim)
            One more than LSTM layers: the first is the token vector, twice. Halves are
            the forward and the backward direction.
        state : BilmState
        """
        steps = StepOrder(lengths, tokens.device)
        if state is None:
            state = self.zero_state(len(lengths))
        halves: list[list[torch.Tensor]] = [[tokens], [tokens]]
        ends: BilmState = ([], [])
        for side, index in enumerate((steps.onward, steps.backward)):
            outputs, behind = self.run(
                side,
                tokens[index],
                steps.sizes,
                [LSTMState(*(part[steps.rows] for part in layer)) for layer in state[side]],
                n_layers=n_layers,
            )
            # Back to the order of the tokens, and of the rows.
            halves[side] += [torch.empty_like(o).index_copy(0, index, o) for o in outputs]
            ends[side].extend(
                LSTMState(*(part[steps.rows_back] for part in layer)) for layer in behind
            )
        layers = [torch.cat(both, dim=1) for both in zip(*halves, strict=True)]
        return layers, ends

    def run(
        self,
        side: int,
        values: torch.Tensor,
        sizes: Sequence[int],
        state: Sequence[LSTMState],
        *,
        n_layers: int | None = None,
        dropout: float = 0.0,
    ) -> tuple[list[torch.Tensor], list[LSTMState]]:
        """Outputs of the layers of one direction, 0 being the forward one.

        Parameters
        ----------
        side : {0, 1}
        values : Tensor of shape (n_tokens, projection_dim)
            Vectors of tokens in the order in which they are read, as of ``StepOrder``.
        sizes : sequence of int
            Rows that are read at each step.
        state : sequence of LSTMState
            For each layer.
        n_layers : int or None, default=None
            Lowest layers to run; None is all.
        dropout : float, default=0.0
            Share of what each layer reads that is put to zero; what a layer adds of its
            input is that too.

        Returns
        -------
        outputs : list of Tensor of shape (n_tokens, projection_dim)
        state : list of LSTMState
        """
        outputs, ends = [], []
        stack = (self.onward, self.backward_)[side]
        for number, lstm in enumerate(stack[:n_layers]):
            if dropout:
                values = nn.functional.dropout(values, dropout)
            output, end = lstm(values, sizes, state[number])
            with_skip = number and self.config.use_skip_connections
            values = output + values if with_skip else output
            outputs.append(values)
            ends.append(end)
        return outputs, ends

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Draw new weights from torch's generator, as the originals do."""
        self.token_encoder.draw_weights()
        for lstm in (*self.onward, *self.backward_):
            lstm.draw_weights()


class StepOrder:
    """Tokens in the order in which an LSTM reads rows side by side.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each row; the rows stand one behind the other.
    device : torch.device

    Attributes
    ----------
    sizes : list of int
        Rows that are read at each step.
    rows, rows_back : Tensor of shape (n_rows,), int64
        The rows, longest first, and the inverse.
    onward, backward : Tensor of shape (n_tokens,), int64
        The token at each place, read from the first on or from the last on.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        counts = torch.as_tensor(lengths, dtype=torch.long)
        sorted_, rows = counts.sort(descending=True, stable=True)
        longest = int(sorted_[0]) if len(counts) else 0
        step = torch.arange(longest).unsqueeze(1)
        reads = step < sorted_.unsqueeze(0)  # (n_steps, n_rows)
        first = (counts.cumsum(0) - counts)[rows]
        onward = (first + step)[reads]
        backward = (first + sorted_ - 1 - step)[reads]
        self.sizes: list[int] = reads.sum(dim=1).tolist()
        self.rows = rows.to(device)
        self.rows_back = rows.argsort().to(device)
        self.onward = onward.to(device)
        self.backward = backward.to(device)


def _lstm(config: BilmConfig) -> ProjectedLSTM:
    return ProjectedLSTM(
        config.projection_dim,
        config.lstm_dim,
        config.projection_dim,
        config.cell_clip,
        config.proj_clip,
    )
