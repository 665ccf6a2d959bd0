"""The inputs of a Capture as recipes: of parameters, buffers, inputs, constants and tangents."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.errors import SampleError
from backprint.graph.keys import output_of, tangent_name, with_tangents
from backprint.graph.links import held_exact, specs
from backprint.graph.nouns import Capture, Spec, TensorSpec
from backprint.graph.recipes import InputRecipes
from backprint.graph.sizes import at_hints
from backprint.room import why_too_large
from backprint.sample.alike import livened
from backprint.sample.fit import exact_data, fit_all, recipe_at
from backprint.sample.generator import Recipe
from backprint.sample.recipe_json import COMPLEX, FLOATS, NUMBERS, reach, to_json
from backprint.sample.recipes import DRAWN_KINDS, RANKS, bases_of, derive, make_all, redraw
from backprint.tree import alias_groups


@dataclass(frozen=True, slots=True)
class Inputs:
    """Recipes by port name (tangents as `tangent NAME`), and the data of the exact ones, in memory or on disk."""

    recipes: Mapping[str, Recipe]
    exact: Mapping[str, Tensor]
    seed: int = 0

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Make every input, or the named ones; with a seed, a fresh draw of each that is drawn."""
        recipes = self.recipes
        if names is not None:
            wanted = set(names)
            for _ in RANKS:
                wanted |= {base for name in wanted if name in recipes for base in bases_of(recipes[name])}
            recipes = {name: recipe for name, recipe in recipes.items() if name in wanted}
        if seed is not None:
            recipes = {name: redraw(recipe, derive(seed, name)) for name, recipe in recipes.items()}
        check_room(recipes.values())
        made = make_all({name: recipe for name, recipe in recipes.items() if recipe.kind != "none"}, self.exact)
        inner = parts_of(recipes)
        return {name: tensor for name, tensor in made.items() if name not in inner}

    def moved(self, places: Mapping[str, str]) -> Inputs:
        """The same inputs, on other devices."""
        recipes = {
            name: replace(recipe, device=places.get(recipe.device, recipe.device))
            for name, recipe in self.recipes.items()
        }
        return replace(self, recipes=recipes)

    @property
    def rows(self) -> dict[str, Any]:
        """The recipes as JSON objects."""
        return {name: to_json(recipe) for name, recipe in self.recipes.items()}

    def data(self, name: str) -> bytes | None:
        """Return the data of an exact recipe as bytes, as a sample would keep it."""
        tensor = self.exact.get(name)  # contiguous and on the CPU
        return None if tensor is None else ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.numel() else b""

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""
        return tuple(name for name, recipe in self.recipes.items() if recipe.kind == "none")

    @property
    def complete(self) -> bool:
        """Whether the recipes make every input."""
        return not self.missing


def check_room(recipes: Iterable[Recipe]) -> None:
    """Raise if the tensors of these recipes do not fit in memory."""
    kept = [each for each in recipes if each.kind not in ("none", "view", "sparse")]
    if complaint := why_too_large(sum(each.extent * getattr(torch, each.dtype).itemsize for each in kept)):
        raise SampleError(f"the inputs are {complaint}")


def with_recipes(made: Capture, made_by: Inputs | None = None) -> Capture:
    """Return an engine's Capture with recipes for its inputs: those that made them, or fitted ones."""
    fitted = fit_fake if made.fake else fit_inputs
    return replace(made, recipes=fitted(made, made.origin.values(), made_by=made_by))


def fit_inputs(
    capture: Capture,
    values: Mapping[str, Tensor],
    data: str = "seed",
    exact: Collection[str] = (),
    made_by: Inputs | None = None,
) -> Inputs:
    """Return recipes for these values. Constants, and inputs that a guard depends on, are kept exact whatever `data`
    is.

    `made_by` are recipes that made some of the values: these keep them, and nothing is fitted to them.
    """
    same = {right for _, right in capture.signature.same}
    own = {name: tensor for name, tensor in values.items() if name not in same}
    if data == "none":
        recipes = {name: recipe_at(tensor, "none", {}, 0) for name, tensor in own.items()}
        return Inputs(recipes | tangent_recipes(capture, data), {}, capture.seed)
    kept = set(own) if data == "exact" else set(own) & {*exact, *held_exact(capture)}
    theirs = {} if made_by is None else their_own(own, made_by.recipes, kept)
    rest = {name: tensor for name, tensor in own.items() if name not in theirs}
    fitted = fit_all(rest, capture.seed, kept)
    recipes = {**theirs, **fitted, **({} if capture.fake else livened(capture, fitted))}
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same if left in recipes}
    recipes |= tangent_recipes(capture, data)
    tangents = with_tangents({}, capture.origin.tangents)
    return Inputs(recipes, exact_data({**own, **tangents}, recipes), capture.seed)


def their_own(values: Mapping[str, Tensor], recipes: Mapping[str, Recipe], exact: Collection[str]) -> dict[str, Recipe]:
    """Return the recipes of tensors that have one, with its geometry in memory of their own, and need not be kept
    exact."""
    shared = {name for group in alias_groups(values) for name in group}
    return {
        name: recipes[name]
        for name, tensor in values.items()
        if name in recipes and name not in shared and name not in exact and makes(recipes[name], tensor)
    }


def makes(recipe: Recipe, tensor: Tensor) -> bool:
    """Whether a recipe makes a tensor with this one's geometry, without other tensors."""
    return recipe.kind not in RANKS and recipe_at(tensor, recipe.kind, {}, 0) == replace(recipe, facts=(), seed=0)


LOOK = 2**18
"""A fake capture reads tensors up to this many elements: nothing large is read for it."""


def fit_fake(capture: Capture, values: Mapping[str, Tensor], made_by: Inputs | None = None) -> Inputs:
    """Return recipes for a fake capture: from values where small ones are known, else from the role and the spec.

    `made_by` are recipes for some of the inputs: these keep them.
    """
    same = {right for _, right in capture.signature.same}
    small = {name: tensor for name, tensor in values.items() if tensor.numel() <= LOOK and name not in same}
    small |= {right: small[left] for left, right in capture.signature.same if left in small}
    ports = {port.name: port for port in capture.pairs[0].forward.inputs if port.name not in same}
    known = fit_inputs(capture, small)
    # a table that a fake capture knows (rotary frequencies, say) is kept, not drawn
    tables = [name for name, port in ports.items() if port.role in ("buffer", "constant") and name in small]
    known = fit_inputs(capture, small, exact=[name for name in tables if known.recipes[name].kind in DRAWN_KINDS])
    theirs = {} if made_by is None else {name: row for name, row in made_by.recipes.items() if name in ports}
    theirs = {
        name: row for name, row in theirs.items() if row.kind in (*DRAWN_KINDS, "constant") and name not in known.exact
    }
    recipes = {
        name: theirs.get(name) or known.recipes.get(name) or by_role(port.role, port.spec, derive(capture.seed, name))
        for name, port in ports.items()
    }
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same}
    return Inputs({**known.recipes, **recipes}, known.exact, capture.seed)


def by_role(role: str, spec: Any, seed: int) -> Recipe:
    """Guess a recipe for a tensor of which only role and spec are known, so that the program at least runs."""
    kind, facts = guess(role, spec.dtype)
    shape, stride, extent = geometry(spec)
    return Recipe(kind, spec.dtype, shape, stride, spec.device, extent, 0, seed, facts)


def guess(role: str, dtype: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return small weights, inputs around 0, positive buffers, and integers 0 or 1, which are an index of anything."""
    if dtype not in NUMBERS:
        return "none", (("why", "captured without values"),)
    if dtype not in (*FLOATS, *COMPLEX):
        return "choice", (("values", (0, 1)), ("weights", (1, 1)))
    if role == "buffer":
        return "uniform", (("high", 1.5), ("low", 0.5))
    std = 0.02 if role == "parameter" else 1.0
    return "normal", (("high", 4 * std), ("low", -4 * std), ("mean", 0.0), ("std", std))


def geometry(spec: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return a spec's shape, strides and extent."""
    shape = tuple(int(size) for size in spec.shape)
    strides: Any = torch.empty(shape, device="meta").stride() if spec.stride is None else spec.stride
    stride = tuple(map(int, strides))
    return shape, stride, reach(shape, stride)


def without_data(inputs: InputRecipes) -> Inputs:
    """Return the same inputs without recipes to make them."""
    inner = parts_of(inputs.recipes)
    recipes = {name: undrawn(recipe) for name, recipe in inputs.recipes.items() if name not in inner}
    return Inputs(recipes, {}, inputs.seed)


def undrawn(recipe: Recipe) -> Recipe:
    """Return a recipe that makes nothing."""
    return replace(recipe, kind="none", seed=0, facts=())


def parts_of(recipes: Mapping[str, Recipe]) -> set[str]:
    """Return the names of the parts of sparse tensors, which are no ports."""
    return {name for recipe in recipes.values() if recipe.kind == "sparse" for name in bases_of(recipe)}


def twin(name: str, recipe: Recipe) -> Recipe:
    """Return the recipe of a tensor's second name: a view of the first, in the same memory."""
    if recipe.kind == "sparse":
        return recipe
    base = dict(recipe.facts)["of"] if recipe.kind == "view" else name
    return replace(recipe, kind="view", seed=0, facts=(("of", base),))


def tangent_recipes(capture: Capture, data: str) -> dict[str, Recipe]:
    """Return a seeded normal for the tangent of every differentiable output, also between Pairs, and for linked
    gradients."""
    known = specs(capture)
    for pair in capture.pairs:  # a tangent has its port's strides, which may differ from the output's
        ports = at_hints(pair.backward).by_role("tangent") if pair.backward is not None else ()
        known |= {port.name: port.spec for port in ports}
    asked = [port.name for pair in capture.pairs if pair.backward for port in pair.backward.by_role("tangent")]
    found: dict[str, Recipe] = {}
    wanted = {tangent_name(name): known[name] for name in (*capture.signature.differentiable, *asked)}
    started = getattr(capture.origin, "partial", False)  # the backward of a recorded step started from ones
    read = {name for guard in capture.guards for name in guard.inputs}  # so did the run whose reads became guards
    for key, spec in {**wanted, **linked_gradients(capture)}.items():
        assert isinstance(spec, TensorSpec)
        if spec.layout != "strided":
            tangent = capture.origin.tangents[output_of(key)]
            fitted = fit_all({key: tangent}, capture.seed)
            values = bases_of(fitted[key])[-1]
            found |= {**fitted, values: normal(fitted[values])} if data != "none" else {key: undrawn(fitted[key])}
            continue
        shape, stride, extent = geometry(spec)
        recipe = Recipe("none", spec.dtype, shape, stride, spec.device, extent, 0, derive(capture.seed, key))
        if spec.dtype in (*FLOATS, *COMPLEX):
            recipe = normal(recipe)
        else:  # integers that a backward changed, such as the batch count of a recomputed batch norm
            kind, facts = guess("input", spec.dtype)
            recipe = replace(recipe, kind=kind, facts=facts)
        if (started and key in wanted) or key in read:
            recipe = replace(recipe, kind="constant", seed=0, facts=(("value", 1.0),))
        found[key] = recipe if data != "none" else replace(recipe, kind="none", facts=())
    return found


def linked_gradients(capture: Capture) -> dict[str, Spec]:
    """Return the inputs that get gradients over links: they are drawn where a Pair runs alone."""
    found: dict[str, Spec] = {}
    for link in capture.links:
        if link.target is not None and link.port.role == "gradient":
            ports = capture.pairs[link.target].forward.inputs
            found[link.name] = next(port.spec for port in ports if port.name == link.name)
    return found


def normal(recipe: Recipe) -> Recipe:
    """Return the recipe with normals drawn instead."""
    facts = (("mean", 0.0), ("std", 1.0), ("low", -4.0), ("high", 4.0))
    return replace(recipe, kind="normal", facts=facts)
