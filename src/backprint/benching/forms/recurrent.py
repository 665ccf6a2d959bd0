"""The LSTM of a CPU: one layer in one direction, as one operator for all steps of time. Here each step is written out.

The operator keeps what its backward needs in a workspace of bytes, whose size differs between machines. Here the
backward computes the gates again, and the workspace is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint.benching.forms.attention import widened
from backprint.errors import RefusedError

aten = torch.ops.aten

LSTM = 2
"""The mode of the operator that is an LSTM; others are a GRU and plain recurrences."""


@dataclass(frozen=True, slots=True)
class LstmStep:
    """One step of time: the values of its gates, the state before it, and the cell after it."""

    input: Tensor
    forget: Tensor
    candidate: Tensor
    output: Tensor
    hidden: Tensor
    cell: Tensor
    after: Tensor
    """The hyperbolic tangent of the cell after the step."""


def lstm_layer(
    x: Tensor,
    weight0: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    hx_: Tensor,
    cx_: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the hidden states in the order of time, the last hidden state, the last cell, and an empty workspace."""
    refuse_others(mode, batch_sizes)
    biases = (weight2, weight3) if has_biases else ()
    steps, hidden, cell = unrolled(x, weight0, weight1, biases, hx_, cx_, reverse)
    found = [*(step.hidden for step in steps[1:]), hidden]
    states = torch.stack(found[::-1] if reverse else found).to(x.dtype)
    workspace = torch.zeros([0], dtype=torch.uint8, device=x.device)
    return states, hidden.to(x.dtype).reshape(hx_.shape), cell.to(x.dtype).reshape(cx_.shape), workspace


def lstm_layer_backward(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    weight3: Tensor,
    weight4: Tensor,
    hx_: Tensor,
    cx_tmp: Tensor,
    output: Tensor,
    hy_: Tensor,
    cy_: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the input, both weights, both biases, the first hidden state and the first cell."""
    refuse_others(mode, batch_sizes)
    biases = (weight3, weight4) if has_biases else ()
    steps, hidden, _ = unrolled(x, weight1, weight2, biases, hx_, cx_tmp, reverse)
    of_hidden, of_cell = (
        torch.zeros_like(hidden) if each is None else widened(each).reshape(hidden.shape) for each in (grad_hy, grad_cy)
    )
    of_gates: list[Tensor] = []
    for place, step in reversed(list(enumerate(steps))):
        if grad_output is not None:
            of_hidden = of_hidden + widened(grad_output[-1 - place if reverse else place])
        of_step, of_cell = gates_backward(step, of_hidden, of_cell)
        of_hidden = of_step @ widened(weight2)
        of_gates.append(of_step)
    gates = torch.stack(of_gates if reverse else of_gates[::-1])
    before = torch.stack([step.hidden for step in (reversed(steps) if reverse else steps)])
    rows = gates.flatten(0, 1)
    of_input = gates @ widened(weight1)
    of_weights = rows.t() @ widened(x).flatten(0, 1), rows.t() @ before.flatten(0, 1)
    of_bias = rows.sum(0)
    # The biases are added to one another, so they have one gradient. All are in the dtype of the computation: the
    # operator too returns float32 for half precision.
    return of_input, *of_weights, of_bias, of_bias, of_hidden.reshape(hx_.shape), of_cell.reshape(cx_tmp.shape)


def unrolled(
    x: Tensor, of_input: Tensor, of_hidden: Tensor, biases: Sequence[Tensor], hx: Tensor, cx: Tensor, reverse: bool
) -> tuple[list[LstmStep], Tensor, Tensor]:
    """Return the steps in the order in which they are computed, the last hidden state and the last cell."""
    hidden, cell = (widened(each).reshape(each.shape[-2:]) for each in (hx, cx))
    entering = widened(x) @ widened(of_input).t()
    for bias in biases:
        entering = entering + widened(bias)
    steps = []
    for place in range(x.shape[0]):
        gates = entering[-1 - place if reverse else place] + hidden @ widened(of_hidden).t()
        first, forget, candidate, last = gates.chunk(4, -1)
        opened = first.sigmoid(), forget.sigmoid(), candidate.tanh(), last.sigmoid()
        after = opened[1] * cell + opened[0] * opened[2]
        steps.append(LstmStep(*opened, hidden, cell, after.tanh()))
        hidden, cell = opened[3] * steps[-1].after, after
    return steps, hidden, cell


def gates_backward(step: LstmStep, of_hidden: Tensor, of_cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a step's gates, before their functions, and of the cell before it."""
    of_cell = of_cell + of_hidden * step.output * (1 - step.after * step.after)
    parts = (
        of_cell * step.candidate * step.input * (1 - step.input),
        of_cell * step.cell * step.forget * (1 - step.forget),
        of_cell * step.input * (1 - step.candidate * step.candidate),
        of_hidden * step.after * step.output * (1 - step.output),
    )
    return torch.cat(parts, -1), of_cell * step.forget


def refuse_others(mode: int, batch_sizes: Sequence[int]) -> None:
    """Raise for what is no LSTM over sequences of one length."""
    if mode != LSTM:
        raise RefusedError(f"aten.mkldnn_rnn_layer with mode={mode} is no LSTM (mode 2), and has no form here")
    if batch_sizes:
        raise RefusedError("aten.mkldnn_rnn_layer over packed sequences (batch_sizes) has no form here: pad them")


FORMS: Mapping[Any, Any] = {
    aten.mkldnn_rnn_layer.default: lstm_layer,
    aten.mkldnn_rnn_layer_backward.default: lstm_layer_backward,
}
