"""The inputs of a Capture as recipes: of its parameters, buffers, inputs and constants, and of its tangents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.graph.nouns import Capture, TensorSpec
from backprint.graph.sizes import at_hints
from backprint.sample.recipe_json import reach
from backprint.sample.recipes import Recipe, derive, exact_data, fit_all, make_all, redraw

MODES = ("seed", "exact", "none")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Recipes by port name (tangents as `tangent NAME`), and the data of the exact ones, here or on disk."""

    recipes: Mapping[str, Recipe]
    exact: Mapping[str, Tensor]
    seed: int = 0

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Every input, or the named ones, made again; with a seed, a fresh draw of each that can be drawn."""
        recipes = self.recipes
        if names is not None:
            based = {dict(recipes[name].facts).get("of") for name in names if recipes[name].kind == "view"}
            recipes = {name: recipe for name, recipe in recipes.items() if name in names or name in based}
        if seed is not None:
            recipes = {name: redraw(recipe, derive(seed, name)) for name, recipe in recipes.items()}
        return make_all({name: recipe for name, recipe in recipes.items() if recipe.kind != "none"}, self.exact)

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""
        return tuple(name for name, recipe in self.recipes.items() if recipe.kind == "none")


def fit_inputs(
    capture: Capture, values: Mapping[str, Tensor], data: str = "seed", exact: Collection[str] = ()
) -> Inputs:
    """Recipes for these values. Constants, and what a guard hangs on, are kept exact whatever `data` says."""
    same = {right for _, right in capture.signature.same}
    own = {name: tensor for name, tensor in values.items() if name not in same}
    if data == "none":
        recipes = {name: _none(tensor) for name, tensor in own.items()}
        return Inputs(recipes | tangent_recipes(capture, data), {}, capture.seed)
    kept = set(own) if data == "exact" else set(own) & {*exact, *held_exact(capture)}
    recipes = fit_all(own, capture.seed, kept)
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same}
    return Inputs(recipes | tangent_recipes(capture, data), exact_data(own, recipes), capture.seed)


def held_exact(capture: Capture) -> set[str]:
    """The names that a redraw must not touch: lifted constants, and what a guard hangs on."""
    guarded = {name for guard in capture.guards if guard.kind in ("value", "shape") for name in guard.inputs}
    lifted = capture.origin.constants if capture.origin is not None else {}
    return guarded | set(lifted)


def without_data(inputs: Inputs) -> Inputs:
    """The same inputs with nothing kept to make them from."""
    recipes = {name: replace(recipe, kind="none", seed=0, facts=()) for name, recipe in inputs.recipes.items()}
    return Inputs(recipes, {}, inputs.seed)


def twin(name: str, recipe: Recipe) -> Recipe:
    """The recipe of a tensor's second name: a view of the first, in the same memory."""
    base = dict(recipe.facts)["of"] if recipe.kind == "view" else name
    return replace(recipe, kind="view", seed=0, facts=(("of", base),))


def _none(tensor: Tensor) -> Recipe:
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    return Recipe("none", str(tensor.dtype)[6:], shape, stride, str(tensor.device), reach(shape, stride))


def tangent_recipes(capture: Capture, data: str) -> dict[str, Recipe]:
    """A seeded normal tangent for every differentiable output."""
    if not capture.signature.differentiable:
        return {}
    specs = {port.name: port.spec for port in at_hints(capture.pairs[0].forward).by_role("output")}
    found = {}
    for name in capture.signature.differentiable:
        spec = specs[name]
        assert isinstance(spec, TensorSpec)
        shape = tuple(int(size) for size in spec.shape)
        stride = torch.empty(shape, device="meta").stride() if spec.stride is None else tuple(map(int, spec.stride))
        extent = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1 if spec.numel else 0
        facts: tuple[tuple[str, Any], ...] = (("mean", 0.0), ("std", 1.0), ("low", -4.0), ("high", 4.0))
        key = f"tangent {name}"
        recipe = Recipe(
            "normal", spec.dtype, shape, tuple(stride), spec.device, extent, 0, derive(capture.seed, key), facts
        )
        found[key] = recipe if data != "none" else replace(recipe, kind="none", facts=())
    return found
