"""A bidirectional LSTM over rows of several lengths."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from skbert.nn.ragged import to_padded


class BiLSTM(nn.Module):
    """States that have read each row from both ends (Graves and Schmidhuber 2005).

    Weights are undefined until they are drawn or set.

    Parameters
    ----------
    n_inputs : int
    hidden_size : int
        Of each direction.
    n_layers : int
    dropout : float
        Between layers.
    """

    def __init__(
        self, n_inputs: int, hidden_size: int, n_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.n_outputs = 2 * hidden_size
        # On "meta" torch draws nothing: a fitted LSTM takes its weights from elsewhere.
        lstm = nn.LSTM(
            n_inputs,
            hidden_size,
            n_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if n_layers > 1 else 0.0,
            device="meta",
        )
        self.lstm = lstm.to_empty(device="cpu")

    def draw_weights(self) -> None:
        """Fresh weights; forget gates start open (Jozefowicz et al. 2015)."""
        hidden_size = self.lstm.hidden_size
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                if name.startswith("bias_ih"):
                    nn.init.ones_(parameter[hidden_size : 2 * hidden_size])
            elif name.startswith("weight_hh"):
                for gate in parameter.split(hidden_size):
                    nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(parameter)

    def forward(self, values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Both directions of each value.

        Parameters
        ----------
        values : Tensor of shape (n_values, n_inputs)
            The rows, one behind the other.
        lengths : Tensor of shape (n_rows,), int64
            Values of each row; may be 0.

        Returns
        -------
        Tensor of shape (n_values, 2 * hidden_size)
        """
        lengths = lengths[lengths > 0]
        if not len(lengths):
            return values.new_zeros((0, self.n_outputs))
        padded, mask = to_padded(values, lengths)
        packed = pack_padded_sequence(
            padded, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return states[mask]
