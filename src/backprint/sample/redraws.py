"""Redraw one input: return another possible tensor for it, to see what moves.

A recipe that draws gets another seed. Kept values (data, constants, tables) are disturbed, as much as their role
allows: a float by a normal of its own spread, at least some per cent of its size; integers are permuted, or incremented
by one if all are equal (a sorted row stays sorted); a mask changes in places. So a tensor that is the same each time it
is made (exact bytes, a recorded step's, ones) is another one here.

A *unit* is an input, the *base*, with the views of it that are inputs too: they can be redrawn only together. `fresh`
values are new ones, and a `seed` makes each redraw the same on every machine; a `source` is a generator with such a
seed. A recipe says how an input is made again: `make(recipe)` draws it, `redraw(recipe, seed)` is the same recipe with
another seed, `derive(seed, name)` is another seed for the input of that name, and `bases_of(recipe)` has the names of
the tensors that a view or a sparse tensor is made of, the values last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from backprint import run_sample
from backprint.run_sample import Recipe
from backprint.sample.recipes import DRAWN_KINDS, FLOATS, INTEGERS, bases_of, derive, make, make_all, redraw
from backprint.values.tree import strided_parts

SHARE = 0.05
"""The least change of floats whose recipe draws nothing, relative to their size."""

ZERO, LEAST = 1e-3, 1e-2
"""A float tensor whose root mean square is below ZERO counts as zero, and moves by LEAST."""

LARGE = 1e4
"""A larger float marks a masked element, as the -1e9 in a mask of attention does; so do Inf and NaN."""


def units(recipes: Mapping[str, Recipe]) -> dict[str, tuple[str, ...]]:
    """Return the units: for the name of each input that is no view, the names of the input and of its views."""
    names_of_unit: dict[str, list[str]] = {}
    # The parts of sparse tensors are no inputs.
    inner = {part for recipe in recipes.values() if recipe.kind == "sparse" for part in bases_of(recipe)}
    for name, recipe in recipes.items():
        if recipe.kind != "none" and name not in inner:
            names_of_unit.setdefault(bases_of(recipe)[0] if recipe.kind == "view" else name, []).append(name)
    return {name: tuple(names) for name, names in names_of_unit.items() if name in recipes}


def other_values_of_unit(
    unit: tuple[str, ...],
    recipes: Mapping[str, Recipe],
    tensors: Mapping[str, Tensor],
    seed: int,
    fresh: Tensor | None = None,
    step: float | None = None,
) -> dict[str, Tensor] | None:
    """Return other values for the tensors of a unit, by name: `fresh` for the base if given, else another draw of the
    recipe, else the present values (`tensors`) disturbed, also where a draw hardly differs from these. None if the
    dtype has no others.

    With a `step`, floats move by that share of their size instead.
    """
    name = _base_of_unit(unit, recipes)
    recipe = recipes[name]
    if recipe.kind == "sparse":
        return _other_sparse_values(name, recipes, tensors[name], seed, step)
    if step is not None and (nudged := nudge_floats(tensors[name], derive(seed, name), step)) is not None:
        return unit_in_memory(unit, recipes, name, nudged)
    if fresh is None and recipe.kind in DRAWN_KINDS:
        fresh = make(redraw(recipe, seed))
    if fresh is None or hardly_differs(fresh, tensors[name]):
        fresh = disturb(tensors[name], derive(seed, name))
    return None if fresh is None else unit_in_memory(unit, recipes, name, fresh)


def other_values_of_units(
    chosen: Iterable[tuple[str, ...]],
    recipes: Mapping[str, Recipe],
    tensors: Mapping[str, Tensor],
    seed: int,
    fresh: Mapping[str, Tensor] | None = None,
    step: float | None = None,
) -> dict[str, Tensor]:
    """Return other values for the tensors of many units, drawn together; tensors whose dtype has no others are left
    out. `fresh` has values for some units, by the name of the base, and `step` is as in `other_values_of_unit`."""
    unit_by_base = {_base_of_unit(unit, recipes): unit for unit in chosen}
    fresh_values = dict(fresh or {})
    # One call for all draws, which is faster than one for each. With a step, floats are not drawn.
    if step is None:
        drawn = [name for name in unit_by_base if recipes[name].kind in DRAWN_KINDS and name not in fresh_values]
        fresh_values |= make_all({name: redraw(recipes[name], seed) for name in drawn}, {})
    values: dict[str, Tensor] = {}
    for name, unit in unit_by_base.items():
        values |= other_values_of_unit(unit, recipes, tensors, seed, fresh_values.get(name), step) or {}
    return values


def _base_of_unit(unit: tuple[str, ...], recipes: Mapping[str, Recipe]) -> str:
    """Return the name of the base of a unit; the other members are views of it."""
    return next(member for member in unit if recipes[member].kind != "view")


def _other_sparse_values(
    name: str, recipes: Mapping[str, Recipe], tensor: Tensor, seed: int, step: float | None
) -> dict[str, Tensor] | None:
    """Return the sparse input `name` with other values at the same indices; None if its dtype has no others. `seed` and
    `step` are as in `other_values_of_unit`."""
    *names_of_indices, values = bases_of(recipes[name])
    *indices, old = strided_parts(tensor)
    fresh = other_values_of_unit((values,), recipes, {values: old}, seed, step=step)
    if fresh is None:
        return None
    parts = {**dict(zip(names_of_indices, indices, strict=True)), **fresh}
    return {name: run_sample.make(recipes[name], exact=None, bases=parts)}


def unit_in_memory(unit: tuple[str, ...], recipes: Mapping[str, Recipe], name: str, fresh: Tensor) -> dict[str, Tensor]:
    """Return the tensors of a unit by name: the base `name` with the fresh values, and the views of it."""
    base = _in_memory_of(recipes[name], fresh)
    return {
        member: base if member == name else run_sample.make(recipes[member], exact=None, bases={name: base})
        for member in unit
    }


def nudge_floats(tensor: Tensor, seed: int, step: float) -> Tensor | None:
    """Return a tensor of floats moved by `step`, a small share of its size: comparisons of its values that a program
    makes may then have the same outcome. Masked elements (LARGE) stay. None for other dtypes, and for an empty
    tensor."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return None
    if tensor.is_complex():
        moved = nudge_floats(torch.view_as_real(tensor.resolve_conj().resolve_neg()), seed, step)
        return None if moved is None else torch.view_as_complex(moved.contiguous())
    wide = tensor.cpu().double()
    unmasked = wide.abs() < LARGE  # False for NaN
    size = float(wide[unmasked].square().mean().sqrt()) if bool(unmasked.any()) else 0.0
    noise = torch.randn(wide.shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=torch.float64)
    # No element moves by less than half a step, so none stays by chance.
    noise = noise.sign() * (0.5 + noise.abs())
    stepped = wide + noise * step * (size if size >= ZERO else LEAST)
    # A non-negative tensor stays so: it may be a variance, or go into a square root.
    stepped = stepped.abs() if bool((wide >= 0).all()) else stepped
    return torch.where(unmasked, stepped, wide).to(tensor.dtype).to(tensor.device)


def hardly_differs(fresh: Tensor, old: Tensor) -> bool:
    """Whether fresh values are too close to the old ones to be others: equal, or floats that hardly differ relative to
    their size."""
    if not fresh.is_floating_point():
        return torch.equal(fresh, old)
    squares, steps = 0.0, 0.0
    for left, right in zip(_pieces(old), _pieces(fresh), strict=True):
        squares += float(torch.linalg.vector_norm(left)) ** 2
        steps += float(torch.linalg.vector_norm(right - left)) ** 2
    size, step = (math.sqrt(total / max(old.numel(), 1)) for total in (squares, steps))
    return size < ZERO or step < SHARE * size


def _pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the elements of a tensor, in a dtype of at least 32 bits, in pieces that fit the cache."""
    wide = tensor if tensor.element_size() >= 4 else tensor.float()
    return wide.flatten().split(2**16)


def _in_memory_of(recipe: Recipe, fresh: Tensor) -> Tensor:
    """Return these values in memory as the recipe makes it, with its extent (the elements of storage), strides and
    offset, so that views of it can be made."""
    if fresh.stride() == recipe.stride and fresh.untyped_storage().nbytes() >= recipe.extent * fresh.element_size():
        return fresh
    flat = torch.zeros(recipe.extent, dtype=fresh.dtype, device=fresh.device)
    laid = flat.as_strided(recipe.shape, recipe.stride, recipe.offset)
    # A write into an expanded tensor would write several elements to one place.
    return laid.copy_(fresh) if 0 not in recipe.stride else fresh


def disturb(tensor: Tensor, seed: int) -> Tensor | None:
    """Return other values that a tensor could have as well; None if there are none, as of an empty tensor or one of a
    dtype that is not listed."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() == 0:
        return None
    if _states_a_generator(tensor):
        return torch.Generator("cpu").manual_seed(seed).get_state()
    source = torch.Generator("cpu").manual_seed(seed)
    if tensor.is_complex():
        changed = draw_floats(torch.view_as_real(tensor.resolve_conj().resolve_neg()).cpu(), source)
        return torch.view_as_complex(changed.contiguous()).to(tensor.device)
    function = {
        **dict.fromkeys(FLOATS, draw_floats),
        **dict.fromkeys(INTEGERS, permute_integers),
        "bool": _flip_bools,
    }.get(dtype)
    return None if function is None else function(tensor.cpu(), source).to(tensor.device)


def _states_a_generator(tensor: Tensor) -> bool:
    """Whether these bytes are the state of a CPU generator: permuted, they would be invalid."""
    generator = torch.Generator("cpu")
    if tensor.dtype is not torch.uint8 or tensor.shape != generator.get_state().shape:
        return False
    try:
        generator.set_state(tensor.cpu().contiguous())
    except RuntimeError:
        return False
    return True


def draw_floats(tensor: Tensor, source: torch.Generator) -> Tensor:
    """Return normals of the same mean and spread, drawn from `source`. A tensor without negative elements gets none,
    and a mask (with masked elements) stays one."""
    wide = tensor.double()
    masked = ~(wide.abs() < LARGE)  # True for NaN, which compares as False
    if bool(masked.any()):
        return _change_mask(tensor, masked, source)
    spread = float(wide.std(correction=0))
    size = float(wide.square().mean().sqrt())
    # Equal numbers have no spread: they move by a share of their size, or by LEAST if they count as zero.
    std = max(spread, SHARE * size if size >= ZERO or float(wide.min()) > 0 else LEAST)
    noise = torch.randn(wide.shape, generator=source, dtype=torch.float64)
    # One number must not stay near the old one by chance: it moves by at least one deviation.
    if wide.numel() == 1:
        noise = noise.sign() * (1 + noise.abs())
    fresh = float(wide.mean()) + std * noise
    if float(wide.min()) >= 0:
        # Away from 0 if the tensor was: it may be divided by.
        fresh = fresh.abs().clamp_(min=float(wide.min()) / 2)
    return fresh.to(tensor.dtype)


def _change_mask(tensor: Tensor, masked: Tensor, source: torch.Generator) -> Tensor:
    """Return a mask of floats in which some of the masked elements are 0, and some of the others are masked. `masked`
    has True for the elements that are masked now."""
    turned = _random_places(masked.shape, chance=0.25, source=source)
    mark = tensor[masked].flatten()[0]
    fresh = torch.where(turned & masked, torch.zeros_like(tensor), tensor)
    return torch.where(turned & ~masked, mark.expand_as(tensor), fresh) if not bool(masked.all()) else fresh


def permute_integers(tensor: Tensor, source: torch.Generator) -> Tensor:
    """Return the numbers permuted; if all are equal, with half of them changed by one. A sorted row stays sorted."""
    flat = tensor.flatten()
    if bool((flat == flat[0]).all()):
        step = 1 if int(flat[0]) == 0 else -1  # an index that is one less is in range too, but not below 0
        turned = _random_places(flat.shape, chance=0.5, source=source)
        return torch.where(turned, flat + step, flat).to(tensor.dtype).reshape(tensor.shape)
    if tensor.dim() == 1 and bool((flat[1:] >= flat[:-1]).all()):
        return _other_sorted_row(flat, source)
    fresh = flat[torch.randperm(flat.numel(), generator=source)]
    # A permutation of a few numbers may be the old one.
    return (flat.roll(1) if torch.equal(fresh, flat) else fresh).reshape(tensor.shape)


def _other_sorted_row(row: Tensor, source: torch.Generator) -> Tensor:
    """Return another sorted row of some of the same numbers: unsorted offsets would let kernels read out of bounds."""
    fresh = row[torch.randint(row.numel(), row.shape, generator=source)].sort().values
    # The ends stay where that leaves another row: of offsets, the first is 0 and the last the length.
    fresh[0], fresh[-1] = row[0], row[-1]
    if torch.equal(fresh, row):
        # Each number that is larger than the one before it becomes that one: the row stays sorted, and changes.
        fresh[1:] = torch.where(row[1:] > row[:-1], row[:-1], row[1:])
    return fresh


def _flip_bools(tensor: Tensor, source: torch.Generator) -> Tensor:
    """Return a bool tensor with about a quarter of its elements flipped."""
    return tensor ^ _random_places(tensor.shape, chance=0.25, source=source)


def _random_places(shape: torch.Size, chance: float, source: torch.Generator) -> Tensor:
    """Return a bool tensor of this shape that is True in random places: each with this chance, and one at least."""
    drawn = torch.rand(shape, generator=source) < chance
    # Of a few elements, the draw may have chosen none.
    drawn.view(-1)[int(torch.randint(drawn.numel(), (1,), generator=source))] = True
    return drawn


def neutral_values(tensor: Tensor, role: str, seed: int) -> Tensor:
    """Return a well-conditioned float64 tensor of this shape, for an input of this role: products with weights keep the
    scale of what they are multiplied with.

    A tensor without negative elements gets positive ones; masks and sparse tensors keep their values, and tensors that
    are not floating-point stay as they are.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in FLOATS or tensor.numel() == 0:
        return tensor
    if tensor.layout is not torch.strided:
        return tensor.double()
    if not bool((tensor.abs() < LARGE).all()):  # a mask
        return tensor.double()
    source = torch.Generator("cpu").manual_seed(seed)
    if tensor.dim() >= 2 and role == "parameter":
        # One over the root of the fan-in: a product then has the size of its input.
        scale = 1 / math.sqrt(max(1, tensor.numel() // tensor.shape[0]))
        return (scale * torch.randn(tensor.shape, generator=source, dtype=torch.float64)).to(tensor.device)
    fresh = torch.rand(tensor.shape, generator=source, dtype=torch.float64) + 0.5
    if float(tensor.min()) < 0:
        fresh = torch.randn(tensor.shape, generator=source, dtype=torch.float64) * 0.5
    return fresh.to(tensor.device)
