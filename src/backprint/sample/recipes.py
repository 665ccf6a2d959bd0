"""Make tensors from recipes, bit for bit, on any machine and torch version.

`make` makes the tensor of a recipe; the drawing itself is in `generator`, whose text every sample contains. `fit`
chooses recipes. A sparse tensor has kind `sparse`: it is made of its parts, which have recipes under names of their own
(`x/indices`, `x/values`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint.errors import ReplayError, SampleError
from backprint.sample import generator
from backprint.sample.generator import Recipe as Recipe

Facts = dict[str, Any]


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


DRAWN_KINDS = ("normal", "uniform", "integers", "choice", "permutation")
"""Kinds that draw random numbers."""


def derive(seed: int, name: str) -> int:
    """Return a seed for a name; below 2**53, so that every JSON reader keeps it exact."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little") >> 11


def make(recipe: Recipe, exact: Tensor | None = None, bases: Mapping[str, Tensor] | None = None) -> Tensor:
    """Return the tensor of a recipe, on its device: `exact` is its kept data, `bases` has the tensors that it is made
    of."""
    if recipe.kind == "none":
        raise ReplayError(f"cannot be made: {dict(recipe.facts).get('why', 'its values were never seen')}")
    if recipe.kind in RANKS:
        check_bases(recipe, bases or {})
    try:
        return generator.make(recipe, exact, bases)
    except (ValueError, TypeError, OverflowError) as cause:
        raise SampleError(f"a recipe of kind {recipe.kind!r} cannot be made: {cause}") from cause
    except (RuntimeError, AssertionError) as cause:  # out of memory; no such device in this build of torch
        raise ReplayError(f"a recipe of kind {recipe.kind!r} cannot be made on {recipe.device}: {cause}") from cause


RANKS = {"view": 1, "sparse": 2}
"""Kinds that are made of other tensors, after these."""


def bases_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the tensors that a recipe's tensor is made of."""
    of = dict(recipe.facts).get("of", ()) if recipe.kind in RANKS else ()
    return of if isinstance(of, tuple) else (of,)


def check_bases(recipe: Recipe, bases: Mapping[str, Tensor]) -> None:
    for of in bases_of(recipe):
        if of not in bases or bases[of].layout is not torch.strided:
            raise SampleError(f"a {recipe.kind} of {of!r}, which is not among the tensors made: {', '.join(bases)}")
    if dtype_name(bases[of]) != recipe.dtype:
        raise SampleError(f"a {recipe.kind} of {of!r} with dtype {recipe.dtype}, but that has {dtype_name(bases[of])}")


def make_all(recipes: Mapping[str, Recipe], exact: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of all recipes, by name and in order; views and sparse tensors share their bases' storage."""
    made: dict[str, Tensor] = {}
    for name, recipe in sorted(recipes.items(), key=lambda item: RANKS.get(item[1].kind, 0)):
        try:
            made[name] = make(recipe, exact.get(name), made)
        except (SampleError, ReplayError) as cause:
            raise type(cause)(f"input {name!r}: {cause}") from cause
    return {name: made[name] for name in recipes}


def redraw(recipe: Recipe, seed: int) -> Recipe:
    """Return the same recipe with another seed, which differs between recipes for one `seed`.

    Kinds without random numbers stay as they are: constant, values, arange, tril, exact, none, and view and sparse,
    which follow their bases. A permutation becomes another one.
    """
    return replace(recipe, seed=derive(seed, str(recipe.seed))) if recipe.kind in DRAWN_KINDS else recipe
