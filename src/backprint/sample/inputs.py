"""The inputs of a Capture as recipes: of its parameters, buffers, inputs and constants, and of its tangents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint.graph.nouns import Capture, TensorSpec
from backprint.sample.recipes import RANKS, Recipe, bases_of, derive, exact_data, fit_all, make_all, placed, redraw

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
            wanted = set(names)
            for _ in RANKS:
                wanted |= {base for name in wanted if name in recipes for base in bases_of(recipes[name])}
            recipes = {name: recipe for name, recipe in recipes.items() if name in wanted}
        if seed is not None:
            recipes = {name: redraw(recipe, derive(seed, name)) for name, recipe in recipes.items()}
        made = make_all({name: recipe for name, recipe in recipes.items() if recipe.kind != "none"}, self.exact)
        inner = parts_of(recipes)
        return {name: tensor for name, tensor in made.items() if name not in inner}

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
        recipes = {name: placed(tensor, "none", {}, 0) for name, tensor in own.items()}
        return Inputs(recipes | tangent_recipes(capture, data), {}, capture.seed)
    kept = set(own) if data == "exact" else set(own) & {*exact, *held_exact(capture)}
    recipes = fit_all(own, capture.seed, kept)
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same}
    recipes |= tangent_recipes(capture, data)
    tangents = {f"tangent {name}": tensor for name, tensor in capture.origin.tangents.items()}
    return Inputs(recipes, exact_data({**own, **tangents}, recipes), capture.seed)


def held_exact(capture: Capture) -> set[str]:
    """The names that a redraw must not touch: lifted constants, and what a guard hangs on."""
    guarded = {name for guard in capture.guards if guard.kind in ("value", "shape") for name in guard.inputs}
    lifted = capture.origin.constants if capture.origin is not None else {}
    return guarded | set(lifted)


def without_data(inputs: Inputs) -> Inputs:
    """The same inputs with nothing kept to make them from."""
    inner = parts_of(inputs.recipes)
    recipes = {name: undrawn(recipe) for name, recipe in inputs.recipes.items() if name not in inner}
    return Inputs(recipes, {}, inputs.seed)


def undrawn(recipe: Recipe) -> Recipe:
    """A recipe that makes nothing."""
    return replace(recipe, kind="none", seed=0, facts=())


def parts_of(recipes: Mapping[str, Recipe]) -> set[str]:
    """The names under which parts of sparse tensors are made: no port has them."""
    return {name for recipe in recipes.values() if recipe.kind == "sparse" for name in bases_of(recipe)}


def twin(name: str, recipe: Recipe) -> Recipe:
    """The recipe of a tensor's second name: a view of the first, in the same memory."""
    if recipe.kind == "sparse":
        return recipe
    base = dict(recipe.facts)["of"] if recipe.kind == "view" else name
    return replace(recipe, kind="view", seed=0, facts=(("of", base),))


def tangent_recipes(capture: Capture, data: str) -> dict[str, Recipe]:
    """A seeded normal tangent for every differentiable output."""
    if not capture.signature.differentiable:
        return {}
    specs = {port.name: port.spec for port in capture.pairs[0].forward.by_role("output")}
    found: dict[str, Recipe] = {}
    for name in capture.signature.differentiable:
        spec = specs[name]
        assert isinstance(spec, TensorSpec)
        key = f"tangent {name}"
        if spec.layout != "strided":
            tangent = capture.origin.tangents[name]
            fitted = fit_all({key: tangent}, capture.seed)
            values = bases_of(fitted[key])[-1]
            found |= {**fitted, values: normal(fitted[values])} if data != "none" else {key: undrawn(fitted[key])}
            continue
        shape = tuple(int(size) for size in spec.shape)
        stride = torch.empty(shape, device="meta").stride() if spec.stride is None else tuple(map(int, spec.stride))
        extent = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1 if spec.numel else 0
        recipe = Recipe("none", spec.dtype, shape, tuple(stride), spec.device, extent, 0, derive(capture.seed, key))
        found[key] = normal(recipe) if data != "none" else recipe
    return found


def normal(recipe: Recipe) -> Recipe:
    """A recipe like another that draws normals."""
    facts = (("mean", 0.0), ("std", 1.0), ("low", -4.0), ("high", 4.0))
    return replace(recipe, kind="normal", facts=facts)
