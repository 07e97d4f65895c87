"""BERT-like stacks without padding.

Every linear layer, norm and activation runs on one (pieces, hidden) matrix, and attention
runs on groups of rows of like length, which are neighbours in a batch that is ordered by
length; where they are equal there is no mask. The result is that of the padded model up to
rounding; the products that pads would have cost are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from skbert.nn.hidden_states import HiddenStates

# Children of a layer of BERT, RoBERTa, XLM-R, ELECTRA, CamemBERT, BigBird and their kin. A
# stack that has more, or less, computes something else.
LAYER = {
    "": {"attention", "intermediate", "output"},
    "attention": {"self", "output"},
    "attention.self": {"query", "key", "value", "dropout"},
    "attention.output": {"dense", "LayerNorm", "dropout"},
    "intermediate": {"dense", "intermediate_act_fn"},
    "output": {"dense", "LayerNorm", "dropout"},
}

# Scores between a piece and a pad, or a pad and anything, that cost as much as one more
# call of the attention function. On a GPU a launch costs what millions of them do.
CALL_COST = {"cpu": 2000, "cuda": 10_000_000, "mps": 1_000_000}


class Group(NamedTuple):
    """Rows whose attention is computed at once.

    Attributes
    ----------
    pieces : slice
        Where their pieces stand.
    n_rows : int
    length : int
        Of the longest.
    mask : Tensor of shape (n_rows, length), bool, or None
        Real pieces; None where all rows are of one length.
    """

    pieces: slice
    n_rows: int
    length: int
    mask: torch.Tensor | None


class PackedStack:
    """The layers of a BERT-like model, run on pieces side by side.

    Parameters
    ----------
    model : PreTrainedModel

    Attributes
    ----------
    fits : bool
        Whether the model has this structure and, tried on a small batch, gives the same
        states this way. Where False, the model's own forward is to be used.
    checkpointing : bool
        Whether layers are run again for their gradients, in place of keeping what is
        inside them.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.checkpointing = False
        self.fits = _has_structure(model)
        if self.fits:
            self.n_heads = model.config.num_attention_heads
            self.fits = self._agrees_with_model()

    def forward(
        self,
        inputs: dict[str, torch.Tensor],
        mask: torch.Tensor,
        lengths: np.ndarray,
        layers: Sequence[int],
        start: tuple[int, torch.Tensor] | None = None,
    ) -> HiddenStates:
        """Hidden states of the layers named, padded again at the end.

        Parameters
        ----------
        inputs : dict of Tensor of shape (n_rows, n_pieces)
            "input_ids" and, where the model knows them, "token_type_ids".
        mask : Tensor of shape (n_rows, n_pieces), bool
        lengths : ndarray of shape (n_rows,)
            Real pieces of each row; faster the more neighbours are equal.
        layers : sequence of int
        start : tuple of int and Tensor of shape (n_rows, n_pieces, hidden_size), or None
            Output of a layer that is known, to go on from there.
        """
        below, states = start or (0, self._embed(inputs))
        padded = not bool(np.all(lengths == mask.shape[1]))
        flat = states[mask] if padded else states.flatten(0, 1)
        groups = group_rows(lengths.tolist(), flat.device)

        kept = {below: flat}
        for number, layer in enumerate(self.model.encoder.layer, start=1):
            if number > max(layers):
                break
            if number <= below:
                continue
            if self.checkpointing and torch.is_grad_enabled():
                flat = checkpoint(self._layer, layer, flat, groups, use_reentrant=False)
            else:
                flat = self._layer(layer, flat, groups)
            if number in layers:
                kept[number] = flat

        def rectangle(flat: torch.Tensor) -> torch.Tensor:
            if not padded:
                return flat.view(*mask.shape, -1)
            out = flat.new_zeros(*mask.shape, flat.shape[-1])
            out[mask] = flat
            return out

        return HiddenStates(tuple(rectangle(kept[layer]) for layer in layers), mask)

    def _embed(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        states = self.model.embeddings(**inputs)
        project = getattr(self.model, "embeddings_project", None)
        return states if project is None else project(states)

    def _layer(self, layer: Any, states: torch.Tensor, groups: list[Group]) -> torch.Tensor:
        """One layer on (all pieces of the batch, hidden_size)."""
        attention = layer.attention.self
        parts = [
            linear(states) for linear in (attention.query, attention.key, attention.value)
        ]
        dropout = attention.dropout.p if attention.training else 0.0
        contexts = [self._attend(parts, group, dropout) for group in groups]
        context = torch.cat(contexts) if len(contexts) > 1 else contexts[0]
        attended = _add_and_norm(layer.attention.output, context, states)
        wide = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(attended))
        return _add_and_norm(layer.output, wide, attended)

    def _attend(
        self, parts: list[torch.Tensor], group: Group, dropout: float
    ) -> torch.Tensor:
        """Attention within the rows of a group, (pieces of the group, hidden_size)."""
        shape = (group.n_rows, group.length)
        heads = []
        for part in parts:
            grid = part[group.pieces]
            if group.mask is not None:
                padded = grid.new_zeros(*shape, grid.shape[-1])
                padded[group.mask] = grid
                grid = padded
            heads.append(grid.view(*shape, self.n_heads, -1).transpose(1, 2))
        mask = None if group.mask is None else group.mask[:, None, None]
        query, key, value = heads
        context = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout
        )
        context = context.transpose(1, 2).flatten(2)
        return context.flatten(0, 1) if group.mask is None else context[group.mask]

    @torch.inference_mode()
    def _agrees_with_model(self) -> bool:
        """Try both ways on rows of three lengths; look-alikes differ by far more."""
        lengths = np.array([9, 4, 2])
        device = self.model.device
        mask = (
            torch.arange(9, device=device) < torch.tensor(lengths, device=device)[:, None]
        )
        ids = torch.arange(27, device=device).view(3, 9)
        ids = ids % self.model.get_input_embeddings().num_embeddings
        if (pad := self.model.config.pad_token_id) is not None:
            ids[~mask] = pad
        n_layers = self.model.config.num_hidden_layers
        ours = self.forward({"input_ids": ids}, mask, lengths, [n_layers]).layers[0]
        theirs = self.model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        scale = theirs[mask].float().abs().max()
        apart = (ours[mask].float() - theirs[mask].float()).abs().max()
        tolerance = 1e-4 if ours.dtype == torch.float32 else 0.1
        return bool(apart <= tolerance * scale)


def group_rows(lengths: list[int], device: torch.device) -> list[Group]:
    """Put neighbours into one group as long as pads cost less than another call."""
    cost = CALL_COST.get(device.type, CALL_COST["mps"])
    groups: list[Group] = []
    rows: list[int] = []
    start = longest = scores = 0

    def close() -> None:
        nonlocal start
        stop, length = start + sum(rows), max(rows)
        mask = None
        if min(rows) < length:
            ends = torch.tensor(rows, device=device)
            mask = torch.arange(length, device=device) < ends[:, None]
        groups.append(Group(slice(start, stop), len(rows), length, mask))
        start = stop

    for length in lengths:
        longest, scores = max(longest, length), scores + length**2
        if rows and (len(rows) + 1) * longest**2 - scores > cost:
            close()
            rows, longest, scores = [], length, length**2
        rows.append(length)
    close()
    return groups


def _add_and_norm(block: Any, inner: torch.Tensor, outer: torch.Tensor) -> torch.Tensor:
    return block.LayerNorm(block.dropout(block.dense(inner)) + outer)


def _has_structure(model: Any) -> bool:
    layers = getattr(getattr(model, "encoder", None), "layer", None)
    if not isinstance(layers, nn.ModuleList) or not hasattr(model, "embeddings"):
        return False
    if getattr(model.config, "is_decoder", False):
        return False
    for layer in layers:
        for path, names in LAYER.items():
            try:
                module = layer.get_submodule(path)
            except AttributeError:
                return False
            if {name for name, _ in module.named_children()} != names:
                return False
        linears = ("attention.self.query", "intermediate.dense", "output.dense")
        # Quantised or adapted layers keep the names and change the computation.
        if not all(type(layer.get_submodule(path)) is nn.Linear for path in linears):
            return False
    return True
