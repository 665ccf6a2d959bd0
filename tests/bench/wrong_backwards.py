"""Compilers that compile forwards rightly, and change what a backward computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

Compiled = Callable[..., tuple[Any, ...]]


def changed(module: fx.GraphModule, change: Callable[[Sequence[Any], Tensor, Tensor], Tensor]) -> Compiled:
    """Return a module, or, if it takes tangents, one whose results are changed by its inputs and the first tangent."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    places = [place for place, name in enumerate(names) if name.startswith("tangent")]
    if not places:
        return module

    def run(*values: Any) -> tuple[Any, ...]:
        tangent = values[places[0]]
        return tuple(change(values, tangent, y) if isinstance(y, Tensor) else y for y in module(*values))

    return run


def first_tangent(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """The first element of the tangent stands for all: right for tangents of ones."""
    names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    places = [place for place, name in enumerate(names) if name.startswith("tangent")]

    def run(*values: Any) -> tuple[Any, ...]:
        first = [v.flatten()[0].expand_as(v).clone() if place in places else v for place, v in enumerate(values)]
        return tuple(module(*first))

    return run


def a_little_more(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Within the tolerance of float32, and beyond what float64 rounds."""
    return changed(module, lambda values, tangent, gradient: gradient * (1 + 1e-7))


def not_linear(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Halves gradients from its third call on, which has scaled tangents: the first ends its compilation."""
    calls = 0

    def halved(values: Sequence[Any], tangent: Tensor, gradient: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return gradient * (0.5 if calls > 2 else 1.0)

    return changed(module, halved)


def not_finite(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return changed(module, lambda values, tangent, gradient: gradient * torch.inf)


def fewer_digits(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Rounds all results to float32, forwards too."""

    def rounded(value: Any) -> Any:
        return value.float().to(value.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    return lambda *values: tuple(map(rounded, module(*values)))


def returns_float32(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    def narrow(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    return lambda *values: tuple(map(narrow, module(*values)))


def is_float64(inputs: Sequence[Any]) -> bool:
    return any(isinstance(value, Tensor) and value.dtype is torch.float64 for value in inputs)


def refuses_float64(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    if is_float64(inputs):
        raise TypeError("float64 is not supported")
    return module


def dies_in_float64(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    if is_float64(inputs):
        os._exit(3)
    return module


def other_forward(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Another function in float64 than in float32; its gradients are those of the captured forward."""

    def run(*values: Any) -> tuple[Any, ...]:
        results = tuple(module(*values))
        if not is_float64(values) or any(name.startswith("tangent") for name in map(str, module.graph.nodes)):
            return results
        return tuple(y * 1.5 if isinstance(y, Tensor) and y.is_floating_point() else y for y in results)

    return run


def remembers(module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    """Returns what it computed when it was compiled."""
    known = module(*inputs)
    return lambda *values: tuple(known)
