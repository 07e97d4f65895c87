"""From vectors of words to tags: an optional BiLSTM, a linear layer, an optional CRF."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.utils import skip_init

from skbert.nn.bilstm import BiLSTM
from skbert.nn.crf import CRF, Allowed, viterbi
from skbert.nn.heads import draw_linear, get_arrays, set_arrays
from skbert.nn.ragged import to_padded
from skbert.nn.scalar_mix import ScalarMix


class TaggingHead(nn.Module):
    """Scores of the tags of each word, and the tags and probabilities that follow.

    Vectors of words stand one behind the other, row after row; so do outputs. Weights are
    undefined until they are drawn or set.

    Parameters
    ----------
    n_inputs : int
    n_tags : int
    lstm_hidden_size : int
        Of each direction; 0 is no LSTM.
    n_lstm_layers : int
    dropout : float
        Before the LSTM, between its layers and before the linear layer.
    crf : bool
        Whether tags depend on their neighbours (Huang, Xu and Yu 2015).
    allowed : tuple of arrays or None
        Tags that may stand together, as of ``skbert.text.tags.allowed_transitions``.
    n_layers : int or None, default=None
        Vectors of each word, which are mixed to one first; None is one, without a mix.
    """

    def __init__(
        self,
        n_inputs: int,
        n_tags: int,
        *,
        lstm_hidden_size: int,
        n_lstm_layers: int,
        dropout: float,
        crf: bool,
        allowed: Allowed | None = None,
        n_layers: int | None = None,
    ) -> None:
        super().__init__()
        self.mix = None if n_layers is None else ScalarMix(n_layers)
        self.dropout = nn.Dropout(dropout)
        self.bilstm: BiLSTM | None = None
        if lstm_hidden_size:
            self.bilstm = BiLSTM(n_inputs, lstm_hidden_size, n_lstm_layers, dropout)
            n_inputs = self.bilstm.n_outputs
        self.linear = skip_init(nn.Linear, n_inputs, n_tags)
        self.crf = CRF(n_tags, allowed) if crf else None
        self._allowed = allowed

    def draw_weights(self) -> None:
        """Fresh weights."""
        if self.bilstm is not None:
            self.bilstm.draw_weights()
        draw_linear(self.linear)

    def arrays(self) -> dict[str, np.ndarray]:
        """All weights, on the CPU."""
        return get_arrays(self)

    def set_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Take over what ``arrays`` gave."""
        set_arrays(self, arrays)

    def forward(self, vectors: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Emissions: a score for each word and tag.

        Parameters
        ----------
        vectors : Tensor of shape (n_words, n_inputs) or (n_words, n_layers, n_inputs)
        lengths : Tensor of shape (n_rows,), int64
            Words of each row.

        Returns
        -------
        Tensor of shape (n_words, n_tags)
        """
        values = self.dropout(vectors if self.mix is None else self.mix(vectors))
        if self.bilstm is not None:
            values = self.dropout(self.bilstm(values, lengths))
        return self.linear(values)

    @torch.no_grad()
    def decode(self, emissions: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Number of the tag of each word, (n_words,).

        The best path of the CRF; else the best tag of each word, or the likeliest tags
        that are allowed to stand together.
        """
        if self.crf is None and self._allowed is None:
            return emissions.argmax(dim=1)
        padded, mask = to_padded(emissions, lengths)
        if self.crf is not None:
            return self.crf.decode(padded, mask)[mask]
        return viterbi(padded.log_softmax(dim=2), mask, *self._allowed or ())[mask]

    @torch.no_grad()
    def probabilities(self, emissions: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Probability of each tag of each word, (n_words, n_tags).

        Of a CRF these are marginals: sums over all paths that give the word the tag.
        """
        if self.crf is None:
            return emissions.softmax(dim=1)
        padded, mask = to_padded(emissions, lengths)
        return self.crf.marginals(padded, mask)[mask]
