"""oneDNN's recurrent layers: weights, states and a workspace of one hidden size."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from backprint.checks.looking import MOST_ROUNDS, Bound, counted, first, held, readable, reading_values, unlike


def recurrent(given: Bound) -> str:
    """Check oneDNN's recurrent layers: weights and states have one hidden size. Each layer and direction is a call."""
    x, hidden = given["input"], int(given["hidden_size"])
    names = ("weight0", "weight1", "weight2", "weight3")
    names = names if "weight0" in given else ("weight1", "weight2", "weight3", "weight4")
    if not isinstance(x, Tensor) or x.dim() != 3 or hidden < 1 or not 1 <= int(given["num_layers"]) <= MOST_ROUNDS:
        return "input, hidden_size and num_layers are those of no layer"
    gates = {2: 4, 3: 3}.get(int(given["mode"]), 1) * hidden
    wide, deep, *biases = (given[name] for name in names)
    states = [given[name] for name in ("hx_", "cx_", "cx_tmp", "hy_", "cy_", "grad_hy", "grad_cy") if name in given]
    batch = x.shape[1]
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor) and name != "workspace"}
    read = {name: each for name, each in tensors.items() if not name.startswith("grad_")}  # those the kernel copies
    return first(
        (
            *(
                f"{name} is {each.dtype}, and input {x.dtype}" * (each.dtype != x.dtype)
                for name, each in tensors.items()
            ),
            *(held(name, each) for name, each in read.items()),
            unlike(names[0], wide, (gates, x.shape[2])),
            unlike(names[1], deep, (gates, hidden)),
            *(counted(name, bias, gates) for name, bias in zip(names[2:], biases, strict=True) if given["has_biases"]),
            *(counted("a state", state, batch * hidden) for state in states),
            *(unlike(name, given.get(name), (*x.shape[:2], hidden)) for name in ("output", "grad_output")),
        )
    )


def recurrent_back(given: Bound) -> str:
    """Check their backward: also the workspace, which has the size that the forward makes."""
    if complaint := recurrent(given) or ("batch_sizes are not supported" if given["batch_sizes"] else ""):
        return complaint
    x, workspace = given["input"], given["workspace"]
    if not readable(x) or not readable(workspace):
        return ""
    named = ("reverse", "mode", "hidden_size", "num_layers", "has_biases", "bidirectional", "batch_first")
    size = workspace_of(tuple(x.shape), x.dtype, *(int(given[name]) for name in named))
    if not workspace.is_contiguous() or workspace.dtype is not torch.uint8:
        return "the workspace is not a block of bytes"
    return counted("the workspace", workspace, size)


@functools.lru_cache(maxsize=256)
def workspace_of(
    shape: tuple[int, ...], dtype: torch.dtype, reverse: int, mode: int, hidden: int, layers: int, biases: int,
    both: int, first_batch: int,
) -> int:  # fmt: skip
    """Return the bytes of the workspace that a recurrent layer's forward makes; -1 if it does not run."""
    times, batch, width = shape
    gates = {2: 4, 3: 3}.get(mode, 1) * hidden
    shapes = (
        (times, batch, width),
        (gates, width),
        (gates, hidden),
        (gates,),
        (gates,),
        (batch, hidden),
        (batch, hidden),
    )
    flags: tuple[Any, ...] = (
        bool(reverse),
        [],
        mode,
        hidden,
        layers,
        bool(biases),
        bool(both),
        bool(first_batch),
        True,
    )
    try:
        with reading_values(), torch.enable_grad():
            tensors = [torch.zeros(each, dtype=dtype) for each in shapes]
            made: Tensor = torch.ops.aten.mkldnn_rnn_layer(*tensors, *flags)[3]
            return made.numel()
    except RuntimeError:
        return -1
