"""The weighted sum of layers that ELMo is named after."""

from __future__ import annotations

import torch
from torch import nn


class ScalarMix(nn.Module):
    """``gamma * sum_l softmax(w)_l * layer_l`` (Peters et al. 2018, equation 1).

    Starts as the mean of the layers: w is 0 and gamma 1.

    Parameters
    ----------
    n_layers : int
    layer_norm_eps : float or None, default=None
        Scale each layer before the sum to mean 0 and variance 1, of all its tokens and
        features together, and add this to the variance. A token then depends on its batch.
        The original has 1e-12 and leaves out the markers of begin and end, AllenNLP has
        1e-13 and counts them; the mask decides. None: layers as they are.
    """

    def __init__(self, n_layers: int, *, layer_norm_eps: float | None = None) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self.layer_norm_eps = layer_norm_eps

    def forward(
        self, layers: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One vector for each token.

        Parameters
        ----------
        layers : Tensor of shape (..., n_layers, n_features)
        mask : Tensor of shape (...), bool, or None, default=None
            Tokens whose values a layer norm is made of; None is all.

        Returns
        -------
        Tensor of shape (..., n_features)
            In the number format of the weights.
        """
        # In 16 bits a sum of many layers would lose what the small ones bring.
        with torch.autocast(layers.device.type, enabled=False):
            layers = layers.to(self.weights.dtype)
            if self.layer_norm_eps is not None:
                counted = layers if mask is None else layers[mask]
                flat = counted.reshape(-1, *layers.shape[-2:])
                variance, mean = torch.var_mean(flat, (0, 2), correction=0, keepdim=True)
                layers = (layers - mean[0]) / (variance[0] + self.layer_norm_eps).sqrt()
            shares = self.gamma * self.weights.softmax(dim=0)
            return torch.einsum("l,...lf->...f", shares, layers)
