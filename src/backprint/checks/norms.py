"""Norms, softmax and attention: statistics, scales and gradients of the right number and shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from backprint.checks.looking import Bound, counted, first, held, unlike


def normed(given: Bound) -> str:
    """Check batch norms: there is a number for each channel."""
    x = given.get("input")
    if not isinstance(x, Tensor):
        return ""
    if x.dim() < 2:
        return f"input has {x.dim()} dimensions, and no channels"
    rows = ("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd", "save_var", "mean", "invstd")
    saved = [name for name in rows if isinstance(given.get(name), Tensor)]
    for name in saved:
        complaint = counted(name, given[name], x.shape[1])
        if complaint and not (name.startswith("save") and given[name].numel() == 0 and not is_training(given)):
            return complaint
    grad = given.get("grad_out", given.get("grad_output"))
    return unlike("grad_out", grad, x.shape) or unkept(given)


TRAINING = ("train", "training", "update")
"""The names of batch norms' training flag."""


def is_training(given: Bound) -> bool:
    return any(given.get(name) for name in TRAINING)


def unkept(given: Bound) -> str:
    """Check a batch norm's backward: in training it reads values that the forward saved, else the running
    statistics."""
    if not any(name in given for name in TRAINING) and (
        "eps" not in given or "running_mean" not in given or "count" in given or "counts" in given
    ):
        return ""
    train = is_training(given)
    if train and "save_mean" not in given:
        return ""
    saved = ("save_mean", "save_invstd" if "save_invstd" in given else "save_var")
    names = saved if train else ("running_mean", "running_var")
    absent = [name for name in names if not isinstance(given.get(name), Tensor)]
    return f"{absent[0]} is not there, which the kernel reads" if absent else ""


def layered(given: Bound) -> str:
    """Check layer norms' backwards: there is a mean and a deviation for each row."""
    x, shape = given["input"], [int(each) for each in given["normalized_shape"]]
    if not isinstance(x, Tensor) or not shape or list(x.shape[-len(shape) :]) != shape:
        return "input does not end in normalized_shape"
    rows, row = math.prod(x.shape[: -len(shape)]), math.prod(shape)
    return first(
        (
            unlike("grad_out", given["grad_out"], x.shape),
            *(counted(name, given[name], rows) for name in ("mean", "rstd") if name in given),
            *(counted(name, given[name], row) for name in ("weight", "bias") if name in given),
        )
    )


def grouped(given: Bound) -> str:
    """Check group norms: the sizes make up the input, and the groups divide the channels."""
    x, n, c, plane, group = given["input"], *(int(given[name]) for name in ("N", "C", "HxW", "group"))
    if min(n, c, plane) < 0 or group < 1 or c % group or not isinstance(x, Tensor) or x.numel() != n * c * plane:
        return f"N={n}, C={c}, HxW={plane}, group={group} do not make up the input"
    return first(
        (
            unlike("grad_out", given.get("grad_out"), x.shape),
            *(held(name, given.get(name)) for name in ("input", "grad_out")),
            *(counted(name, given.get(name), c) for name in ("weight", "bias")),
            *(counted(name, given.get(name), n * group) for name in ("mean", "rstd")),
        )
    )


def attended(given: Bound) -> str:
    """Check flash attention on CPU: queries, keys and values have one batch, and match the forward's saved values."""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if not all(isinstance(each, Tensor) and each.dim() == 4 for each in (query, key, value)):
        return "query, key and value do not have four dimensions"
    batch, heads, length, _ = query.shape
    same = key.shape[:3] == value.shape[:3] and key.shape[0] == batch and key.shape[3] == query.shape[3]
    if not same or not key.shape[1] or heads % key.shape[1]:
        return "query, key and value do not match"
    made = (batch, heads, length, value.shape[3])
    return first(
        (
            unlike("grad_out", given.get("grad_out"), made),
            unlike("out", given.get("out"), made),
            unlike("logsumexp", given.get("logsumexp"), (batch, heads, length)),
            masked(given.get("attn_mask"), (batch, heads, length, key.shape[2])),
        )
    )


def masked(mask: Any, shape: Sequence[int]) -> str:
    """Return the complaint about a mask that does not broadcast to the scores."""
    if not isinstance(mask, Tensor):
        return ""
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    good = mask.dim() <= 4 and all(size in (1, wanted) for size, wanted in pairs)
    return "" if good else f"attn_mask has the shape {list(mask.shape)}, which does not broadcast to {list(shape)}"


def scaled_weight(given: Bound) -> str:
    """Check weight norm: there is a scale for each row or column of a weight that has some."""
    weight = given.get("v", given.get("saved_v"))
    if not isinstance(weight, Tensor) or not weight.numel() or int(given["dim"]) not in (0, weight.dim() - 1):
        return "the weight is empty, or dim is neither its first nor its last dimension"
    rows = weight.shape[int(given["dim"])]
    names = ("g", "saved_g", "saved_norms")
    return first(
        (*(counted(name, given.get(name), rows) for name in names), unlike("grad_w", given.get("grad_w"), weight.shape))
    )


def softened(given: Bound) -> str:
    """Check a softmax's backward: there is a gradient for each number of its output."""
    output = given["output"]
    return unlike("grad_output", given.get("grad_output", given.get("grad")), output.shape)


def headed(given: Bound) -> str:
    """Check attention's heads: there is at least one."""
    return "" if int(given["num_heads"]) > 0 else f"num_heads={given['num_heads']}"
