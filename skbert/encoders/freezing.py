"""Which weights of an encoder lie below a layer, found by following gradients."""

from __future__ import annotations

from typing import Any

import torch

from skbert.text.encoding import collate


def parameter_depths(encoder: Any) -> dict[str, int]:
    """The lowest layer output that each weight has an influence on.

    A weight of depth d changes the output of layer d and of none below it, so freezing k
    layers means freezing all weights of depth k or less. It needs no names: relative
    positions that all layers of DeBERTa share belong to the first, the final norm of GPT-2
    to the last, and ALBERT, whose layers are one, is frozen whole by freezing one.

    Parameters
    ----------
    encoder : TransformerEncoder

    Returns
    -------
    dict of str to int
        0 for the embeddings to n_layers for the top layer, by name of the weight. Weights
        without influence on any layer, such as an unused pooler's, are left out.
    """
    model = encoder.model
    names, parameters = zip(*model.named_parameters(), strict=True)
    wanted = [parameter.requires_grad for parameter in parameters]
    was_training = model.training
    # A pair, so that the types of both texts are read.
    windows, _ = encoder.encode(
        [("a b c", "d e")],
        max_length=encoder.max_length,
        long_text="truncate",
        stride=0,
        parallel=False,
    )
    batch = collate(windows, encoder.pad_id)
    try:
        model.eval().requires_grad_(True)
        with torch.enable_grad():
            outputs = encoder.forward(batch, range(encoder.n_layers + 1)).layers
        depths: dict[str, int] = {}
        for depth, states in enumerate(outputs):
            left = [i for i, name in enumerate(names) if name not in depths]
            if not left:
                break
            gradients = torch.autograd.grad(
                states.sum(),
                [parameters[i] for i in left],
                retain_graph=True,
                allow_unused=True,
            )
            for i, gradient in zip(left, gradients, strict=True):
                if gradient is not None:
                    depths[names[i]] = depth
    finally:
        for parameter, want in zip(parameters, wanted, strict=True):
            parameter.requires_grad_(want)
        model.train(was_training)
    return depths
