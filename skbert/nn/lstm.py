"""One direction of one LSTM layer as ELMo has it: projected, clipped, exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import nn


class LSTMState(NamedTuple):
    """Where the recursion stands in each row.

    Attributes
    ----------
    output : Tensor of shape (n_rows, output_size)
    cell : Tensor of shape (n_rows, cell_size)
    """

    output: torch.Tensor
    cell: torch.Tensor


class ProjectedLSTM(nn.Module):
    """An LSTM whose cell and projected output are bounded (Sak et al. 2014; ELMo).

    For an input y, with the gates in the order in which the weights hold them::

        i, f, o, j = y W_in' + b + h W_h'
        c = clip(sigmoid(f) c + sigmoid(i) tanh(j), cell_clip)
        h = clip((sigmoid(o) tanh(c)) W_p', proj_clip)

    torch's own LSTM knows no bounds, and on a CPU has no fused kernel for projections. The
    bias of the forget gate is complete: nothing is added to it when it is used. Weights are
    undefined until they are set.

    Parameters
    ----------
    input_size : int
    cell_size : int
    output_size : int
        As ``cell_size``: no projection, and then ``proj_clip`` has no effect.
    cell_clip, proj_clip : float or None
        Largest absolute value; None is no bound.
    """

    def __init__(
        self,
        input_size: int,
        cell_size: int,
        output_size: int,
        cell_clip: float | None,
        proj_clip: float | None,
    ) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(4 * cell_size, input_size))
        self.bias = nn.Parameter(torch.empty(4 * cell_size))
        self.output_weight = nn.Parameter(torch.empty(4 * cell_size, output_size))
        self.projection: nn.Parameter | None = None
        if output_size != cell_size:
            self.projection = nn.Parameter(torch.empty(output_size, cell_size))
        self.cell_size = cell_size
        self.output_size = output_size
        self.clips = (
            math.inf if cell_clip is None else cell_clip,
            math.inf if proj_clip is None or self.projection is None else proj_clip,
        )

    def zero_state(self, n_rows: int) -> LSTMState:
        """The state before anything was read."""
        return LSTMState(
            self.bias.new_zeros(n_rows, self.output_size),
            self.bias.new_zeros(n_rows, self.cell_size),
        )

    @torch.no_grad()
    def draw_weights(self) -> None:
        """Glorot's uniform numbers; forget gates start half open."""
        size = self.cell_size
        n_inputs = self.input_weight.shape[1] + self.output_weight.shape[1]
        bound = math.sqrt(6 / (n_inputs + 4 * size))
        self.input_weight.uniform_(-bound, bound)
        self.output_weight.uniform_(-bound, bound)
        self.bias.zero_()
        self.bias[size : 2 * size] = 1
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    def forward(
        self, values: torch.Tensor, sizes: Sequence[int], state: LSTMState
    ) -> tuple[torch.Tensor, LSTMState]:
        """Outputs for all rows, and the state of each row behind its last value.

        Parameters
        ----------
        values : Tensor of shape (n_values, input_size)
            The first values of all rows, then the second ones of those that have any, and
            so on; the longest row first.
        sizes : sequence of int
            Rows that have a first value, a second value and so on.
        state : LSTMState

        Returns
        -------
        outputs : Tensor of shape (n_values, output_size)
        state : LSTMState
            No gradient flows through it.
        """
        learns = any(part.requires_grad for part in (values, *self.parameters()))
        if not (learns and torch.is_grad_enabled()):
            return self._read(values, sizes, state)
        gates = nn.functional.linear(values, self.input_weight, self.bias)
        output, cell, outputs = _Steps.apply(
            gates, self.output_weight, self.projection, sizes, self.clips, *state
        )
        return outputs, LSTMState(output, cell)

    def _read(
        self, values: torch.Tensor, sizes: Sequence[int], state: LSTMState
    ) -> tuple[torch.Tensor, LSTMState]:
        """The recursion without a gradient.

        Each step writes into the same memory, which stays in the processor's cache.
        """
        input_t, weight_t = self.input_weight.t(), self.output_weight.t()
        projection_t = None if self.projection is None else self.projection.t()
        output, cell = state.output.clone(), state.cell.clone()
        outputs = values.new_empty(len(values), self.output_size)
        n_most = sizes[0] if sizes else 0
        gates = values.new_empty(n_most, 4 * self.cell_size)
        memory = values.new_empty(n_most, self.cell_size)
        end = 0
        for n_rows in sizes:
            start, end = end, end + n_rows
            here, h, out = gates[:n_rows], output[:n_rows], outputs[start:end]
            torch.addmm(self.bias, values[start:end], input_t, out=here)
            here.addmm_(h, weight_t)
            _step(here, cell[:n_rows], memory[:n_rows], out, projection_t, self.clips)
            h.copy_(out)
        return outputs, LSTMState(output, cell)


def _step(
    gates: torch.Tensor,
    cell: torch.Tensor,
    memory: torch.Tensor,
    out: torch.Tensor,
    projection_t: torch.Tensor | None,
    clips: tuple[float, float],
) -> None:
    """One step of all rows in place: gates are activated, the cell goes on, out is written.

    ``memory`` is room for what the cell lets out.
    """
    size = cell.shape[1]
    cell_clip, proj_clip = clips
    gates[:, : 3 * size].sigmoid_()
    gates[:, 3 * size :].tanh_()
    i, f, o, j = gates.split(size, dim=1)
    cell.mul_(f).addcmul_(i, j)
    if cell_clip != math.inf:
        cell.clamp_(-cell_clip, cell_clip)
    torch.tanh(cell, out=memory).mul_(o)
    if projection_t is None:
        out.copy_(memory)
    else:
        torch.mm(memory, projection_t, out=out)
        if proj_clip != math.inf:
            out.clamp_(-proj_clip, proj_clip)


class _Steps(torch.autograd.Function):
    """The recursion, with its gradient: the weights' products are made once, at the end."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: torch.Tensor,
        weight: torch.Tensor,
        projection: torch.Tensor | None,
        sizes: Sequence[int],
        clips: tuple[float, float],
        output: torch.Tensor,
        cell: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        # `gates` is overwritten by the activations; nobody else reads it.
        gates = gates.clone()
        first = LSTMState(output, cell)
        output, cell = output.clone(), cell.clone()
        outputs = gates.new_empty(len(gates), output.shape[1])
        cells = gates.new_empty(len(gates), cell.shape[1])
        memory = torch.empty_like(cell)
        weight_t = weight.t()
        projection_t = None if projection is None else projection.t()
        end = 0
        for n_rows in sizes:
            start, end = end, end + n_rows
            here, h, c = gates[start:end], output[:n_rows], cell[:n_rows]
            here.addmm_(h, weight_t)
            _step(here, c, memory[:n_rows], outputs[start:end], projection_t, clips)
            cells[start:end] = c
            h.copy_(outputs[start:end])
        ctx.save_for_backward(
            gates, cells, outputs, weight, projection, first.output, first.cell
        )
        ctx.sizes, ctx.clips = sizes, clips
        ctx.mark_non_differentiable(output, cell)
        return output, cell, outputs

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gates, cells, outputs, weight, projection, output, cell = ctx.saved_tensors
        cell_clip, proj_clip = ctx.clips
        size = cell.shape[1]
        starts = [0, *accumulate(ctx.sizes)]
        # What each step started from: the values of the step before, or the first state.
        n_first = ctx.sizes[0] if ctx.sizes else 0
        before = torch.cat(
            [
                torch.arange(start, start + n)
                for start, n in zip(starts, ctx.sizes[1:], strict=False)
            ]
            or [torch.zeros(0, dtype=torch.long)]
        ).to(gates.device)
        outputs_before = torch.cat([output[:n_first], outputs[before]])
        cells_before = torch.cat([cell[:n_first], cells[before]])
        grad_out = grads[2].clone()
        if projection is not None and proj_clip != math.inf:
            inside_out = outputs.abs() < proj_clip
        squashed = cells.tanh()
        grad_gates = torch.empty_like(gates)
        later_h = torch.zeros_like(output)
        later_c = torch.zeros_like(cell)
        for start, n_rows in zip(reversed(starts[:-1]), reversed(ctx.sizes), strict=True):
            at = slice(start, start + n_rows)
            i, f, o, j = gates[at].split(size, dim=1)
            grad = grad_out[at].add_(later_h[:n_rows])
            if projection is not None:
                if proj_clip != math.inf:
                    grad.mul_(inside_out[at])
                grad = grad @ projection
            tanh_c = squashed[at]
            grad_c = torch.addcmul(grad * o, grad * o, tanh_c * tanh_c, value=-1)
            grad_c += later_c[:n_rows]
            if cell_clip != math.inf:
                grad_c.mul_(cells[at].abs() < cell_clip)
            to_i, to_f, to_o, to_j = grad_gates[at].split(size, dim=1)
            torch.mul(grad_c, j, out=to_i)
            torch.mul(grad_c, cells_before[at], out=to_f)
            torch.mul(grad, tanh_c, out=to_o)
            torch.mul(grad_c, i, out=to_j)
            opened = gates[at, : 3 * size]
            grad_gates[at, : 3 * size].mul_(opened).mul_(1 - opened)
            to_j.mul_(1 - j * j)
            later_c[:n_rows] = grad_c.mul_(f)
            later_h[:n_rows] = grad_gates[at] @ weight
        grad_weight = grad_gates.t() @ outputs_before
        grad_projection = None
        if projection is not None:
            memories = squashed.mul_(gates[:, 2 * size : 3 * size])
            grad_projection = grad_out.t() @ memories
        return grad_gates, grad_weight, grad_projection, None, None, None, None
