"""From the vectors of words to outputs of the row: BiLSTM, pooling, a linear layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.utils import skip_init

from skbert.nn.bilstm import BiLSTM
from skbert.nn.heads import draw_linear, get_arrays, set_arrays
from skbert.nn.ragged import to_padded
from skbert.nn.scalar_mix import ScalarMix


class PooledBiLSTM(nn.Module):
    """Outputs of each row from the vectors of its words.

    Weights are undefined until they are drawn or set.

    Parameters
    ----------
    n_inputs : int
    n_outputs : int
    lstm_hidden_size : int
        Of each direction.
    n_lstm_layers : int
    dropout : float
        Before the LSTM, between its layers and before the linear layer.
    pooling : {"max", "mean", "attention"}
        Attention weighs each state h by softmax(u . tanh(W h + b)), with learned u, W and b
        (Yang et al. 2016, Hierarchical attention networks, section 2.2).
    n_layers : int or None, default=None
        Vectors of each word, which are mixed to one first; None is one, without a mix.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        *,
        lstm_hidden_size: int,
        n_lstm_layers: int,
        dropout: float,
        pooling: str,
        n_layers: int | None = None,
    ) -> None:
        super().__init__()
        self.mix = None if n_layers is None else ScalarMix(n_layers)
        self.dropout = nn.Dropout(dropout)
        self.bilstm = BiLSTM(n_inputs, lstm_hidden_size, n_lstm_layers, dropout)
        size = self.bilstm.n_outputs
        self.attention: nn.Module | None = None
        if pooling == "attention":
            query = skip_init(nn.Linear, size, 1, bias=False)
            self.attention = nn.Sequential(
                skip_init(nn.Linear, size, size), nn.Tanh(), query
            )
        self.linear = skip_init(nn.Linear, size, n_outputs)
        self._pooling = pooling

    def draw_weights(self) -> None:
        """Fresh weights."""
        self.bilstm.draw_weights()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                draw_linear(module)

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights, on the CPU."""
        return get_arrays(self)

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what ``arrays`` gave."""
        set_arrays(self, arrays)

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Outputs of the rows; a row without words has those of a vector of zeros.

        Parameters
        ----------
        vectors : Tensor of shape (n_words, n_inputs) or (n_words, n_layers, n_inputs)
            The rows, one behind the other.
        lengths : Tensor of shape (n_rows,), int64

        Returns
        -------
        Tensor of shape (n_rows, n_outputs)
        """
        values = self.dropout(vectors if self.mix is None else self.mix(vectors))
        states = self.bilstm(values, lengths).float()
        pooled = states.new_zeros((len(lengths), states.shape[1]))
        filled = lengths > 0
        if filled.any():
            padded, mask = to_padded(states, lengths[filled])
            pooled[filled.to(pooled.device)] = self._pool(padded, mask)
        return self.linear(self.dropout(pooled))

    def _pool(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if self._pooling == "max":
            return values.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(dim=1)
        if self.attention is None:
            return values.sum(dim=1) / mask.sum(dim=1, keepdim=True)
        scores = self.attention(values).squeeze(2).float()  # autocast may halve them
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=1)
        return (values * weights.unsqueeze(2)).sum(dim=1)
