"""From a vector to outputs: one linear layer, or a small network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

# Standard deviation of new weights, as in BERT's own heads.
INIT_STD = 0.02


class Head(nn.Sequential):
    """Dropout and a linear layer, after any number of hidden layers with tanh.

    Parameters
    ----------
    n_inputs : int
    hidden_layer_sizes : sequence of int
        Empty for a linear head. One layer as wide as the encoder is BERT's pooler.
    n_outputs : int
    dropout : float
        Before every linear layer but a pooler, as in BERT.
    pooler : bool, default=False
        Whether a hidden layer as wide as the input comes before the others, for the
        weights of a checkpoint's pooler.
    """

    def __init__(
        self,
        n_inputs: int,
        hidden_layer_sizes: Sequence[int],
        n_outputs: int,
        dropout: float,
        pooler: bool = False,
    ) -> None:
        modules: list[nn.Module] = []
        if pooler:
            modules = [nn.Linear(n_inputs, n_inputs), nn.Tanh()]
        for size in hidden_layer_sizes:
            modules += [nn.Dropout(dropout), nn.Linear(n_inputs, size), nn.Tanh()]
            n_inputs = size
        modules += [nn.Dropout(dropout), nn.Linear(n_inputs, n_outputs)]
        super().__init__(*modules)

    def draw_weights(self) -> None:
        """Fresh weights."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                draw_linear(module)

    def arrays(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Weight and bias of each linear layer, on the CPU."""
        return [
            (m.weight.detach().cpu().numpy().copy(), m.bias.detach().cpu().numpy().copy())
            for m in self.modules()
            if isinstance(m, nn.Linear)
        ]

    def set_arrays(self, arrays: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Take over what ``arrays`` gave."""
        linears = [m for m in self.modules() if isinstance(m, nn.Linear)]
        with torch.no_grad():
            for linear, (weight, bias) in zip(linears, arrays, strict=True):
                linear.weight.copy_(torch.from_numpy(weight))
                linear.bias.copy_(torch.from_numpy(bias))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(n_rows, n_inputs) to (n_rows, n_outputs)."""
        return super().forward(vectors)


def hidden_activations(
    head: Sequence[tuple[np.ndarray, np.ndarray]], vectors: np.ndarray
) -> np.ndarray:
    """What the last layer of a fitted head reads, from ``Head.arrays`` and vectors.

    The precision is that of the vectors.
    """
    for weight, bias in head[:-1]:
        vectors = np.tanh(vectors @ weight.T + bias)
    return vectors


def draw_linear(layer: nn.Linear) -> None:
    """Fresh weights of a linear layer, as in BERT's own heads."""
    nn.init.normal_(layer.weight, std=INIT_STD)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def get_arrays(module: nn.Module) -> dict[str, np.ndarray]:
    """All weights of a module by name, on the CPU."""
    return {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in module.named_parameters()
    }


def set_arrays(module: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Take over what `get_arrays` gave."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # A copy, since an array in a memory map may not be written.
            parameter.copy_(torch.from_numpy(np.array(arrays[name])))
