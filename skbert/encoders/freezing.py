"""Which weights of an encoder lie below a layer, found by following gradients."""

from __future__ import annotations

from typing import Any

import torch


def parameter_depths(model: Any, n_layers: int) -> dict[str, int]:
    """The lowest layer output that each weight has an influence on.

    A weight of depth d changes the output of layer d and of none below it, so freezing k
    layers means freezing all weights of depth k or less. It needs no names: relative
    positions that all layers of DeBERTa share belong to the first, the final norm of GPT-2
    to the last, and ALBERT, whose layers are one, is frozen whole by freezing one.

    Parameters
    ----------
    model : PreTrainedModel
    n_layers : int

    Returns
    -------
    dict of str to int
        0 for the embeddings to n_layers for the top layer, by name of the weight. Weights
        without influence on any layer, such as an unused pooler's, are left out.
    """
    names, parameters = zip(*model.named_parameters(), strict=True)
    wanted = [parameter.requires_grad for parameter in parameters]
    was_training = model.training
    device = parameters[0].device
    ids = torch.arange(3, device=device)[None] % model.get_input_embeddings().num_embeddings
    try:
        model.eval().requires_grad_(True)
        with torch.enable_grad():
            output = model(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                output_hidden_states=True,
            )
        outputs = [*output.hidden_states[:n_layers], output.last_hidden_state]
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
