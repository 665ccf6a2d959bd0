"""PyTorch's own decompositions, by operator name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from backprint._torch.operators import get_decompositions
from backprint.errors import UsageError


def decompositions_of(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of these operators, named `ns::op` or `ns::op.overload`."""
    return {key: function for name in names for key, function in decompositions_of_operator(name).items()}


def decompositions_of_operator(name: str) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of one operator, by overload."""
    operator = operator_named(name)
    found = dict(get_decompositions([operator]))
    if not found:
        raise UsageError(
            f"decompose: PyTorch has no decomposition of {name}: pass your own, decompose={{torch.ops."
            f"{name.replace('::', '.')}: function}}"
        )
    return found


def operator_named(name: str) -> Any:
    """Return the operator `ns::op`, or its overload `ns::op.overload`."""
    match = re.fullmatch(r"([A-Za-z]\w*)::(\w+)(?:\.(\w+))?", name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(f"decompose: {name!r} is not an operator's name: write 'aten::gelu' or 'aten::gelu.default'")
    packet = getattr(getattr(torch.ops, match[1]), match[2], None)
    operator = packet if match[3] is None else getattr(packet, match[3], None)
    if operator is None:
        raise UsageError(f"decompose: there is no operator {name!r}")
    return operator
