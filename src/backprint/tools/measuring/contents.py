"""Contents of inputs that are drawn anew from a seed, for a compiler or a solution that has not seen them.

Every input but constants and those that a guard holds is redrawn, tangents too (`sample/redraws`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture
from backprint.prove.other_inputs import held_by_guards
from backprint.sample.redraws import another, units

STEPS = (None, 2**-6, 2**-10)
"""How far floats move: None is a redraw, a number a share of their size."""


def redrawn(
    capture: Capture, recipes: Mapping[str, Any], values: Mapping[str, Tensor], seed: int, size: float | None
) -> dict[str, Tensor]:
    """Return new values for inputs and tangents, but for constants and inputs that a guard holds."""
    fixed = held_by_guards(capture) | {port.name for port in free_ports(capture) if port.role == "constant"}
    redraws: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(name in values and name not in fixed for name in names):
            redraws |= another(names, recipes, values, seed, step=size) or {}
    return redraws
