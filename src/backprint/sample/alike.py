"""Weights and statistics with one constant value are replaced by draws of different values.

At a scale of 1, a bias of 0 or a variance of 1, a graph that leaves them out, or divides instead of multiplying,
returns the same results: a sample with such values would prove nothing about them, and from disk there is no program to
compare with on others. Other constant tensors (inputs, masks, tables, numbers that modules keep) stay as they are,
because programs rely on them; a redraw moves them (`redraws`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture
from backprint.sample.generator import Recipe
from backprint.sample.recipe_json import FLOATS

SPREAD = 0.1
"""The standard deviation, relative to the value, or absolute if the value is 0."""

LARGE = 1e4
"""A larger value is a marker, not a number to compute with."""

STATISTICS = re.compile(r"(?:^|[._])running_(?:mean|var)$")


def livened(capture: Capture, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return other recipes for weights and statistics that are constant: of the same sign, around the same value."""
    roles = {port.name: port.role for port in free_ports(capture)}
    changed = {p.name for pair in capture.pairs for p in pair.forward.outputs if p.role == "mutation"}
    found = {}
    for name, recipe in recipes.items():
        value = constant_value(recipe)
        if value is None:
            continue
        several = math.prod(recipe.shape) > 1
        computed = several and (name in changed or STATISTICS.search(name) is not None)
        if roles.get(name) == "parameter" and (several or value in (0, 1, -1)):
            found[name] = around(recipe, value)
        elif roles.get(name) == "buffer" and computed:
            found[name] = around(recipe, value) if value else above(recipe)
    return found


def constant_value(recipe: Recipe) -> float | None:
    """Return the value of a constant float tensor, or None."""
    value = dict(recipe.facts).get("value")
    if recipe.kind != "constant" or recipe.dtype not in FLOATS or not recipe.extent or value is None:
        return None
    return float(value) if abs(value) < LARGE else None


def around(recipe: Recipe, value: float) -> Recipe:
    """Return a recipe of normals around a value, all of its sign."""
    std = SPREAD * abs(value) if value else SPREAD
    facts = (("high", value + 4 * std), ("low", value - 4 * std), ("mean", value), ("std", std))
    return replace(recipe, kind="normal", facts=facts)


def above(recipe: Recipe) -> Recipe:
    """Return a recipe of non-negative numbers: a computed statistic that is 0 may be a sum of squares."""
    return replace(recipe, kind="uniform", facts=(("high", 2 * SPREAD), ("low", 0.0)))
