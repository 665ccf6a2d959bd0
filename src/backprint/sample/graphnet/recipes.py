"""Recipes from GraphNet's metadata: every promise of a field is kept, and what it leaves open is chosen for power.

`data` is kept as it is printed; whole numbers stay between `min_val` and `max_val` or below what their use allows;
floats are drawn with the mean and the whole standard deviation that the weights had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.sample.generator import Recipe
from backprint.sample.graphnet.meta import Known, Meta, Use
from backprint.sample.inputs import Inputs
from backprint.sample.recipe_json import FLOATS, INTEGERS, reach
from backprint.sample.recipes import derive, fit, placed

Facts = dict[str, Any]

KEPT = ("constant", "values", "arange", "tril")
"""Kinds of recipes that draw nothing: what `data` says, they say."""


def recipes_of(inputs: Sequence[Known], seed: int, device: str) -> Inputs:
    """Recipes by port name, and the data of those that no kind describes."""
    recipes: dict[str, Recipe] = {}
    exact: dict[str, Tensor] = {}
    for name, role, meta, use in inputs:
        if meta.data is not None and len(meta.data) == math.prod(meta.shape):
            tensor = torch.tensor(meta.data, dtype=getattr(torch, meta.dtype)).reshape(meta.shape)
            recipe = fit(tensor, derive(seed, name))
            if recipe.kind not in KEPT:
                recipe, exact[name] = placed(tensor, "exact", {}, derive(seed, name)), tensor
        else:
            recipe = drawn(role, meta, use, derive(seed, name))
        recipes[name] = on(recipe, device)
    return Inputs(recipes, exact, seed)


def notes_of(inputs: Sequence[Known]) -> tuple[str, ...]:
    """What a report has to say of these inputs."""
    zeros = [
        name
        for name, _, meta, _ in inputs
        if meta.data is not None and meta.dtype in FLOATS and any(value == 0 for value in meta.data)
    ]
    said = f"{len(zeros)} inputs have floats that are printed as 0.000000 and kept so: {', '.join(zeros[:3])}"
    return (said,) if zeros else ()


def on(recipe: Recipe, device: str) -> Recipe:
    """The recipe on another device."""
    from dataclasses import replace

    return replace(recipe, device=str(torch.device(device)))


def drawn(role: str, meta: Meta, use: Use, seed: int) -> Recipe:
    """A recipe for a tensor of which no data is known."""
    stride = torch.empty(meta.shape, device="meta").stride()
    kind, facts = chosen(role, meta, use)
    extent = reach(meta.shape, stride)
    return Recipe(kind, meta.dtype, meta.shape, stride, "cpu", extent, 0, seed, tuple(sorted(facts.items())))


def chosen(role: str, meta: Meta, use: Use) -> tuple[str, Facts]:
    """The kind and the facts."""
    if meta.dtype == "bool":
        return "choice", {"values": (0, 1), "weights": (1, 1)}
    if meta.dtype in INTEGERS:
        low = int(meta.min_val or 0)
        high = int(meta.max_val) if meta.max_val is not None else max(low, (use.below or 2) - 1)
        return "integers", {"low": low, "high": high}
    mean = 0.0 if meta.mean is None or not math.isfinite(meta.mean) else meta.mean
    std = 1.0 if meta.std is None or not math.isfinite(meta.std) else meta.std
    if "variance" in use.kinds or meta.min_val == 0:
        return "uniform", {"low": 0.5 * (mean or 1.0), "high": 1.5 * (mean or 1.0)}
    return "normal", {"mean": mean, "std": std, "low": mean - 4 * std, "high": mean + 4 * std}
