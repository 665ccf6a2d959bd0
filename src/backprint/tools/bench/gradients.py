"""A forward alone and its gradients by autograd, as the process of a compiler and the judging process compute them.

Tangents are drawn from a seed, in float64, so that both processes and every precision have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.graph.nouns import Graph
from backprint.graph.sizes import returning_results_alone, unguarded_graph


def forward_alone(graph: Graph) -> Graph:
    """Return a forward as a program has it: without guards, and without the values that it saves."""
    return returning_results_alone(unguarded_graph(graph))


def gradients_of(function: Callable[..., Any], places: Sequence[int], seed: int, *values: Any) -> tuple[Tensor, ...]:
    """Call a function on values, and return autograd's gradients of the inputs at these places, for tangents that are
    drawn from a seed for each result that requires grad; zeros where autograd has no gradient."""
    inputs = [
        value.detach().requires_grad_(place in places) if isinstance(value, Tensor) else value
        for place, value in enumerate(values)
    ]
    with torch.enable_grad():
        results = function(*inputs)
        ends = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
        source = torch.Generator().manual_seed(seed)
        tangents = [
            torch.randn(end.shape, dtype=torch.float64, generator=source).to(end.device, end.dtype) for end in ends
        ]
        leaves = [inputs[place] for place in places]
        gradients = torch.autograd.grad(ends, leaves, tangents, allow_unused=True)
    return tuple(
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(leaves, gradients, strict=True)
    )
