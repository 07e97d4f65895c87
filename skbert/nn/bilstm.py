"""A bidirectional LSTM over rows of several lengths."""

from __future__ import annotations

import torch
from torch import nn

from skbert.nn.ragged import to_padded


class BiLSTM(nn.Module):
    """States that have read each row from both ends (Graves and Schmidhuber 2005).

    Each direction is an LSTM of its own, and rows are turned round for the second, so that
    pads come last for both: on a CPU that takes half the time of torch's packed sequences.
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
        sizes = [n_inputs, *[self.n_outputs] * (n_layers - 1)]
        self.onward = nn.ModuleList(_undrawn(size, hidden_size) for size in sizes)
        self.backward_ = nn.ModuleList(_undrawn(size, hidden_size) for size in sizes)
        self.dropout = nn.Dropout(dropout)

    def draw_weights(self) -> None:
        """Fresh weights; forget gates start open (Jozefowicz et al. 2015)."""
        for lstm in [*self.onward, *self.backward_]:
            hidden_size = lstm.hidden_size
            nn.init.xavier_uniform_(lstm.weight_ih_l0)
            for gate in lstm.weight_hh_l0.split(hidden_size):
                nn.init.orthogonal_(gate)
            nn.init.zeros_(lstm.bias_ih_l0)
            nn.init.ones_(lstm.bias_ih_l0[hidden_size : 2 * hidden_size])
            nn.init.zeros_(lstm.bias_hh_l0)

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
        lengths = lengths[lengths > 0].to(values.device)
        if not len(lengths):
            return values.new_zeros((0, self.n_outputs))
        padded, mask = to_padded(values, lengths)
        place = torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(mask, lengths.unsqueeze(1) - 1 - place, place).unsqueeze(2)

        def turn(rows: torch.Tensor) -> torch.Tensor:
            return rows.gather(1, turned.expand_as(rows))

        # Not every processor has an LSTM in 16 bits, and this one is small.
        with torch.autocast(padded.device.type, enabled=False):
            padded = padded.to(next(self.parameters()).dtype)
            for layer, (onward, backward) in enumerate(
                zip(self.onward, self.backward_, strict=True)
            ):
                if layer:
                    padded = self.dropout(padded)
                both = onward(padded)[0], turn(backward(turn(padded))[0])
                padded = torch.cat(both, dim=2)
        return padded[mask]


def _undrawn(n_inputs: int, hidden_size: int) -> nn.LSTM:
    """An LSTM for which torch draws nothing, as it does on "meta"."""
    lstm = nn.LSTM(n_inputs, hidden_size, batch_first=True, device="meta")
    return lstm.to_empty(device="cpu")
