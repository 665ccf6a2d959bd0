"""Recipes fitted to tensors: how each input of a Capture is made again.

A Recipe has a *kind* (`normal`, `constant`, `view`, …), the *facts* that its kind needs, such as `mean` and `std`, a
seed, and the geometry of the tensor: dtype, shape, strides, device, the *extent* (the elements of its storage that are
used) and the offset of its first element there. Kinds in DRAWN_KINDS draw random numbers. `exact` makes the very data,
which a sample keeps; `none` makes nothing; a `view` is one of another tensor, its *base*; `sparse` is joined from its
*parts*, which have recipes of their own under names such as `x/indices`, and are no inputs.

The inputs of a Capture are its parameters, buffers, constants, what a caller passes, and the tangents: the gradients of
outputs with which a backward starts, under names such as `tangent y`. A *table* is a tensor with which a program looks
something up or multiplies, and a *marker* a number that means something else, such as the -1e9 of a mask.

To fit a recipe, the values `seen` in a tensor are looked at (_SeenValues): its elements (`flat`), in the order of their
storage if they fill it (`dense`); their `distinct` values, as pairs of a value and how often it occurs, if they are
few; the least and the largest (`low`, `high`), mean and deviation (`moments`), and `matrix`, the rows and columns of
the matrices that the storage holds one after another, None if it does not.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint import run_sample
from backprint.common.memory import why_too_large
from backprint.common.names import free_name
from backprint.errors import SampleError, UsageError
from backprint.graph.keys import output_of, tangent_name, with_tangents
from backprint.graph.links import free_ports, names_held_exact, specs
from backprint.graph.nouns import Capture, InputRecipes, Spec, TensorSpec
from backprint.graph.sizes import at_example_sizes
from backprint.run_sample import Recipe
from backprint.sample.recipes import (
    COMPLEX,
    DRAWN_KINDS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PARTS_OF,
    RANKS,
    Facts,
    bases_of,
    derive,
    dtype_name,
    make_all,
    redraw,
    to_json,
)
from backprint.values.geometry import contiguous_strides, overlaps_itself, span
from backprint.values.memory import bits_of
from backprint.values.tree import alias_groups, strided_parts

# ---- Weights and statistics with one constant value: they are replaced by draws of different values
# At a scale of 1, a bias of 0 or a variance of 1, a graph that leaves them out, or divides instead of multiplying,
# returns the same results: a sample with such values would prove nothing about them, and from disk there is no program
# to compare with on others. Other constant tensors (inputs, masks, tables, numbers that modules keep) stay as they are,
# because programs rely on them; a redraw moves them (`redraws`).


SPREAD = 0.1
"""The standard deviation, relative to the value, or absolute if the value is 0."""

LARGE = 1e4
"""A larger value is a marker, not a number to compute with."""

STATISTICS = re.compile(r"(?:^|[._])running_(?:mean|var)$")
"""The names of buffers that are statistics, as PyTorch's own modules have them."""


def _recipes_for_constants(capture: Capture, recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return other recipes, by name, for those weights and statistics whose recipes make one constant value: draws of
    the same sign, around the same value."""
    roles = {port.name: port.role for port in free_ports(capture)}  # of the inputs that a caller passes
    changed = {p.name for pair in capture.pairs for p in pair.forward.outputs if p.role == "mutation"}
    drawn_recipes = {}
    for name, recipe in recipes.items():
        value = _constant_value(recipe)
        if value is None:
            continue
        several = math.prod(recipe.shape) > 1  # elements
        # A buffer is redrawn only if it is a statistic: one that the program updates, or that is named like one. Others
        # may be tables or markers that the program relies on.
        is_statistic = several and (name in changed or STATISTICS.search(name) is not None)
        # One element is as good as drawn, unless it is 0 or ±1: a graph that lost it could return the same.
        if roles.get(name) == "parameter" and (several or value in (0, 1, -1)):
            drawn_recipes[name] = _normals_around(recipe, value)
        elif roles.get(name) == "buffer" and is_statistic:
            # A statistic of 0 may be a variance.
            drawn_recipes[name] = _normals_around(recipe, value) if value else _non_negative(recipe)
    return drawn_recipes


def _constant_value(recipe: Recipe) -> float | None:
    """Return the value that a recipe of floats makes for all elements; None for other recipes, for a tensor without
    elements, and for large values, which are markers."""
    value = dict(recipe.facts).get("value")
    if recipe.kind != "constant" or recipe.dtype not in FLOATS or not recipe.extent or value is None:
        return None
    return float(value) if abs(value) < LARGE else None


def _normals_around(recipe: Recipe, value: float) -> Recipe:
    """Return a recipe of normals around a value, in the same geometry. They have its sign, as they are cut off at four
    standard deviations, which are less than the value."""
    std = SPREAD * abs(value) if value else SPREAD
    facts = (("high", value + 4 * std), ("low", value - 4 * std), ("mean", value), ("std", std))
    return replace(recipe, kind="normal", facts=facts)


def _non_negative(recipe: Recipe) -> Recipe:
    """Return a recipe of non-negative numbers, for a computed statistic that is 0: it may be a sum of squares."""
    return replace(recipe, kind="uniform", facts=(("high", 2 * SPREAD), ("low", 0.0)))


# ---- The recipe of one tensor
# `fit` looks at a captured tensor's values and chooses the kind that keeps the properties that programs rely on: a mask
# stays a mask, an index stays in range, a variance stays positive. A tensor that cannot be described (NaN or inf among
# many values, float8 and other rare dtypes) has kind `exact`, and the sample keeps its data under the recipe's name:
# `exact_data` returns it. A sparse tensor's indices are kept as they are, and its values are described like any
# tensor's. Not detected: that a long integer tensor is sorted, or that two tensors agree with each other (an index and
# the length it indexes) beyond each one's own range. Name such inputs in `exact`.

FEW = 8  # distinct values that still make a choice

SMALL = 64  # elements: so few integers are kept as they are, and so few floats are not taken for a mask


@dataclass(frozen=True, slots=True)
class _SeenValues:
    """Facts about a tensor's values. `flat` has the elements: in storage order if they fill their part of the storage
    (`dense`), else in index order."""

    dtype: str
    flat: Tensor  # 1-D; a complex tensor's parts in turn
    dense: bool
    matrix: tuple[int, int] | None  # rows and columns, when storage holds whole row-major matrices
    distinct: tuple[tuple[Any, int], ...] | None  # (value, how often), when these are FEW
    low: Any  # the least and the largest element; NaN if there is one
    high: Any
    moments: tuple[float, float] | None  # mean and standard deviation, when these are finite

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.flat.numel())

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def fit(tensor: Tensor, seed: int) -> Recipe:
    """Return the recipe of one tensor, whatever memory it shares: of the first kind of FITS that describes its values,
    else `exact`; `none` for a tensor without values. `seed` is the recipe's own."""
    missing = _why_no_values(tensor)
    if missing:
        return recipe_at(tensor, "none", {"why": missing}, seed)
    tensor = _resolved_tensor(tensor)
    kind, facts = fitted_facts(tensor)
    return recipe_at(tensor, kind, facts, seed)


def _why_no_values(tensor: Tensor) -> str:
    """Return why a tensor has no values that a recipe could make; '' if it has."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return f"{'quantized' if tensor.is_quantized else tensor.layout} tensors cannot be made again"
    fake = tensor.device.type == "meta" or hasattr(tensor, "fake_mode")  # which a FakeTensor has
    return "captured without values" if fake else ""


def _resolved_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor detached, and without its lazy conjugate or negative bit."""
    return tensor.detach().resolve_conj().resolve_neg()


def recipe_at(tensor: Tensor, kind: str, facts: Facts, seed: int, base: tuple[int, int] | None = None) -> Recipe:
    """Return a recipe of this kind with the tensor's geometry: in storage of its own, or with `base` in a part of the
    tensor's storage, given by the first element and the number of elements."""
    # A sparse tensor has no strides; its recipe has zeros.
    stride = tuple(tensor.stride()) if tensor.layout is torch.strided else (0,) * tensor.dim()
    if base is None:
        extent, offset = span(tensor.shape, stride), 0
    else:
        first, extent = base
        offset = tensor.storage_offset() - first
    return Recipe(
        kind=kind,
        dtype=dtype_name(tensor),
        shape=tuple(tensor.shape),
        stride=stride,
        device=str(tensor.device),
        extent=extent,
        offset=offset,
        seed=seed,
        facts=tuple(sorted(facts.items())),
    )


def fitted_facts(tensor: Tensor) -> tuple[str, Facts]:
    """Return the kind and the facts of the first row of FITS that describes a tensor; `exact` if none does."""
    if dtype_name(tensor) not in NUMBERS:
        return "exact", {}
    if tensor.numel() == 0:
        return "constant", {"value": 0}
    seen = _values_seen(tensor)
    for kind, facts_if in FITS:
        facts = facts_if(seen)
        if facts is not None:
            return kind, facts
    return "exact", {}


def _values_seen(tensor: Tensor) -> _SeenValues:
    """Return the facts about a tensor's values that FITS needs, computed in a few passes."""
    # Each element of an expanded dimension, whose stride is 0, once.
    small = tensor[tuple(slice(1) if step == 0 else slice(None) for step in tensor.stride())]
    extent = span(small.shape, small.stride())
    dense = extent == small.numel() and not overlaps_itself(small.shape, small.stride())
    flat = small.as_strided((extent,), (1,)) if dense else small.reshape(-1)
    flat = torch.view_as_real(flat).flatten() if flat.is_complex() else flat
    low, high = (bound.item() for bound in flat.aminmax())
    return _SeenValues(
        dtype=dtype_name(tensor),
        flat=flat,
        dense=dense,
        matrix=_matrix_size(tensor, extent) if dense else None,
        distinct=_distinct_values(flat),
        low=low,
        high=high,
        moments=_mean_and_std(flat, low, high) if flat.is_floating_point() else None,
    )


def _matrix_size(tensor: Tensor, extent: int) -> tuple[int, int] | None:
    """Return the sizes of the last two dimensions if these `extent` elements of storage are whole matrices of them, row
    by row; else None."""
    if tensor.dim() < 2 or tensor.is_complex():
        return None
    rows, cols = tensor.shape[-2:]
    row_major = tuple(tensor.stride()[-2:]) == (cols, 1)
    return (rows, cols) if row_major and rows > 1 and cols > 1 and extent % (rows * cols) == 0 else None


def _mean_and_std(flat: Tensor, low: float, high: float) -> tuple[float, float] | None:
    """Return mean and standard deviation to 7 digits, which hides the order of summation; None if a draw would
    overflow. `low` and `high` are the least and the largest element."""
    limit = torch.finfo(torch.float64 if flat.dtype is torch.float64 else torch.float32).max
    if not (math.isfinite(low) and math.isfinite(high) and high - low <= limit):
        return None
    near = float(flat[: 2**12].double().mean())  # sums relative to a value near the mean lose no digits
    total, squares = 0.0, 0.0
    # In pieces, so that the copy in float64 stays small.
    for start in range(0, flat.numel(), 2**18):
        distances = flat[start : start + 2**18].double() - near
        total, squares = total + float(distances.sum()), squares + float(distances.dot(distances))
    if not math.isfinite(squares):
        return None
    shift = total / flat.numel()  # from `near` to the mean
    mean, std = near + shift, math.sqrt(max(0.0, squares / flat.numel() - shift * shift))
    return (float(f"{mean:.7g}"), float(f"{std:.7g}")) if math.isfinite(mean) and std <= limit else None


def _distinct_values(flat: Tensor) -> tuple[tuple[Any, int], ...] | None:
    """Return pairs of a value and how often it occurs, sorted by value; None if there are more than FEW values. Of most
    tensors, some 1,024 of their elements show that already."""
    # Compared as bits: NaN is then equal to itself, and -0.0 is not 0.0.
    left = bits_of(flat)  # the elements that are not counted yet
    sampled = left[:: max(1, left.numel() // 1024)]
    # Most tensors end here, at the first of these numbers: `unique` sorts all of them, which takes longer.
    if len(set(sampled[: 4 * FEW].tolist())) > FEW or sampled.unique().numel() > FEW:
        return None
    counts: list[tuple[Any, int]] = []
    while left.numel() and len(counts) < FEW:
        others = left[left != left[0]]
        counts.append((_plain_number(left[:1].view(flat.dtype).item()), left.numel() - others.numel()))
        left = others
    # NaN, which is not equal to itself, comes last.
    return None if left.numel() else tuple(sorted(counts, key=lambda pair: (pair[0] != pair[0], pair[0])))


def _plain_number(value: Any) -> Any:
    """Return a plain number: 0 or 1 for a bool, and `math.nan` for every NaN."""
    return math.nan if value != value else int(value) if isinstance(value, bool) else value


# Each of these functions returns the facts of a recipe of its kind that describes the values seen; None if it does not.


def _as_constant(seen: _SeenValues) -> Facts | None:
    """Fit one value, bit for bit, in every element; of a complex tensor, its imaginary part as well."""
    # One row for each element; a complex one has two numbers.
    parts = bits_of(seen.flat).view(-1, 2 if seen.dtype in COMPLEX else 1)
    if seen.distinct is None or not bool((parts == parts[0]).all()):
        return None
    value, *imag = map(_plain_number, seen.flat[: parts.shape[1]].tolist())
    return {"value": value, "imag": imag[0]} if imag else {"value": value}


def _as_values(seen: _SeenValues) -> Facts | None:
    if seen.dtype not in (*INTEGERS, "bool") or not seen.dense or seen.size > SMALL:
        return None
    return {"values": tuple(map(_plain_number, seen.flat.tolist()))}


def _as_arange(seen: _SeenValues) -> Facts | None:
    """Fit numbers with equal steps, which may start again after each `period`, as positions of a batch do."""
    if seen.dtype not in (*INTEGERS, *FLOATS) or not seen.dense or seen.size < 3 or not seen.finite:
        return None
    first, second, third = seen.flat[:3].tolist()
    if second - first != third - second or first == second:
        return None
    back = bits_of(seen.flat) == bits_of(seen.flat[:1])  # where it starts again
    period = int(back[1:].nonzero()[0]) + 1 if bool(back[1:].any()) else seen.size
    facts = {"start": first, "step": second - first, "period": period}
    return facts if seen.size % period == 0 and _drawn_alike(seen, "arange", facts) else None


def _as_tril(seen: _SeenValues) -> Facts | None:
    """Fit equal matrices of two values, one up to a diagonal and the other above it, as those of a causal mask."""
    if seen.matrix is None or seen.distinct is None or len(seen.distinct) != 2:
        return None
    rows, cols = seen.matrix
    first = bits_of(seen.flat)[: rows * cols].view(rows, cols)
    # The diagonal is where the first row stops being `inside`; where it has none, where the first column begins to be.
    # `inside` is the value at the lower left.
    top, side = int((first[0] == first[-1, 0]).sum()), int((first[:, 0] == first[-1, 0]).sum())
    facts = {
        "rows": rows,
        "cols": cols,
        "diagonal": top - 1 if top else side - rows,
        "inside": _plain_number(seen.flat[(rows - 1) * cols].item()),
        "outside": _plain_number(seen.flat[cols - 1].item()),
    }
    return facts if _drawn_alike(seen, "tril", facts) else None


def _drawn_alike(seen: _SeenValues, kind: str, facts: Facts) -> bool:
    """Whether a recipe of this kind with these facts makes exactly the elements seen."""
    drawn = run_sample.DRAWS[kind](Recipe(kind, seen.dtype, (seen.size,), (1,), extent=seen.size), **facts)
    return torch.equal(bits_of(drawn.to(seen.flat.device)), bits_of(seen.flat))


def _as_permutation(seen: _SeenValues) -> Facts | None:
    """Fit integers that are a range of numbers in some order, each once."""
    if seen.dtype not in INTEGERS or not seen.dense or seen.size <= SMALL or seen.high - seen.low != seen.size - 1:
        return None
    # As many numbers as places: they are a permutation exactly if each place is hit.
    hit = torch.zeros(seen.size, dtype=torch.bool, device=seen.flat.device)
    hit[seen.flat.long() - seen.low] = True
    return {"low": seen.low} if bool(hit.all()) else None


def _as_choice(seen: _SeenValues) -> Facts | None:
    """Fit a few distinct values, drawn as often as they occur: of bools, of values that are not finite, and of more
    than SMALL elements."""
    if seen.distinct is None or (seen.finite and seen.dtype != "bool" and seen.size <= SMALL):
        return None
    return {"values": tuple(value for value, _ in seen.distinct), "weights": tuple(n for _, n in seen.distinct)}


def _as_integers(seen: _SeenValues) -> Facts | None:
    return {"low": seen.low, "high": seen.high} if seen.dtype in INTEGERS else None


def _as_uniform(seen: _SeenValues) -> Facts | None:
    """Fit evenly spread floats, or non-negative ones whose mean is not far down their range: what is left is drawn as
    normals."""
    if seen.moments is None:
        return None
    (mean, std), width = seen.moments, seen.high - seen.low
    # The standard deviation of a uniform distribution is its width over √12.
    even = abs(std - width / math.sqrt(12)) <= 0.1 * width / math.sqrt(12)
    fits = mean >= seen.low + 0.25 * width if seen.low >= 0 else even
    return {"low": seen.low, "high": seen.high} if fits else None


def _as_normal(seen: _SeenValues) -> Facts | None:
    if seen.moments is None:
        return None
    return {"mean": seen.moments[0], "std": seen.moments[1], "low": seen.low, "high": seen.high}


FITS: tuple[tuple[str, Callable[[_SeenValues], Facts | None]], ...] = (
    ("constant", _as_constant),
    ("values", _as_values),
    ("arange", _as_arange),
    ("tril", _as_tril),
    ("permutation", _as_permutation),
    ("choice", _as_choice),
    ("integers", _as_integers),
    ("uniform", _as_uniform),
    ("normal", _as_normal),
)
"""The kinds of recipes that are fitted, each with the function that returns its facts. The first that describes a
tensor counts: forms that make the very values come before draws, and draws with a narrow range before others."""


def fit_all(tensors: Mapping[str, Tensor], seed: int, exact: Collection[str] = ()) -> dict[str, Recipe]:
    """Return a recipe for each tensor, by name, each with a seed derived from `seed`; tensors named in `exact` keep
    their data. UsageError if `exact` names another tensor.

    Tensors in one storage become one base, under the first one's name and over their whole span, and views of it; if
    one of them is in `exact`, so is the base. If they have different dtypes, or are lazily conjugated, each is exact by
    itself: only then is sharing lost. The parts of sparse tensors have recipes too, by their names.
    """
    unknown = sorted(set(exact) - set(tensors))
    if unknown:
        raise UsageError(f"exact names no input: {', '.join(unknown)}; the inputs are {', '.join(tensors)}")
    recipes = {name: _sparse_recipe(name, tensor, tensors) for name, tensor in tensors.items() if _is_joined(tensor)}
    tensors, exact = _with_sparse_parts(tensors, recipes, exact)
    # Sparse tensors have their recipes, and their parts are among the others here.
    for names in _groups_sharing_memory({name: tensor for name, tensor in tensors.items() if name not in recipes}):
        group = {name: tensors[name] for name in names}
        forced = any(name in exact for name in names)
        is_lazy = any(tensor.is_conj() or tensor.is_neg() for tensor in group.values())
        if len(group) > 1 and len({tensor.dtype for tensor in group.values()}) == 1 and not is_lazy:
            recipes |= fit_in_one_storage(group, derive(seed, names[0]), kept=forced)
            continue
        for name, tensor in group.items():
            if (forced or len(group) > 1) and not _why_no_values(tensor):
                recipes[name] = recipe_at(_resolved_tensor(tensor), "exact", facts={}, seed=derive(seed, name))
            else:
                recipes[name] = fit(tensor, derive(seed, name))
    return {name: recipes[name] for name in tensors}


def _is_joined(tensor: Tensor) -> bool:
    """Whether a tensor can be joined from recipes of its parts: a sparse one that has values, and valid indices."""
    if str(tensor.layout)[6:] not in PARTS_OF or tensor.device.type == "meta" or hasattr(tensor, "fake_mode"):
        return False
    parts = {str(index): part for index, part in enumerate(strided_parts(tensor))}
    recipe = _sparse_recipe("", tensor, used_names=(), of=tuple(parts))
    try:
        run_sample.make(recipe, exact=None, bases=parts)
    except ValueError:  # torch refuses the indices
        return False
    return True


def _sparse_recipe(name: str, tensor: Tensor, used_names: Collection[str], of: tuple[str, ...] = ()) -> Recipe:
    """Return a sparse tensor's recipe, which names its parts. The names in `of` are those of the first parts; the
    others get names that are not in `used_names`."""
    layout = str(tensor.layout)[6:]
    for part in PARTS_OF[layout][len(of) :]:
        of = (*of, free_name(f"{name}/{part}", used_names, numbered="{}~{}", first=2))
    coalesced = int(layout == "sparse_coo" and tensor.is_coalesced())
    return recipe_at(tensor, "sparse", {"layout": layout, "of": of, "coalesced": coalesced}, seed=0)


def _with_sparse_parts(
    tensors: Mapping[str, Tensor], recipes: Mapping[str, Recipe], exact: Collection[str] = ()
) -> tuple[dict[str, Tensor], set[str]]:
    """Return the tensors by name, and after each sparse one its parts, by the names that its recipe has for them; and
    the names of the tensors that keep their data: those in `exact`, with their parts, and indices that a recipe would
    draw, as others could be invalid."""
    with_parts, kept = {}, set(exact)
    for name, tensor in tensors.items():
        with_parts[name] = tensor
        if name in recipes and recipes[name].kind == "sparse":
            *indices, values = zip(dict(recipes[name].facts)["of"], strided_parts(tensor), strict=True)
            with_parts |= dict([*indices, values])
            kept |= {part for part, index in indices if fit(index, seed=0).kind in DRAWN_KINDS}
            kept |= {part for part, _ in (*indices, values) if name in exact}
    return with_parts, kept


def _groups_sharing_memory(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the names in groups, by the storage of their tensors, in order; empty tensors and tensors without values
    share none."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in tensors.items():
        # An empty tensor shares nothing, though many have the data pointer 0.
        is_alone = _why_no_values(tensor) or tensor.numel() == 0
        key = name if is_alone else (tensor.device, tensor.untyped_storage().data_ptr())
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def fit_in_one_storage(group: Mapping[str, Tensor], seed: int, kept: bool) -> dict[str, Recipe]:
    """Return recipes for tensors in one storage: a base over all elements from the first to the last that one of them
    uses, under the first name, and views of it. With `kept`, the base keeps its data."""
    spans = [(tensor.storage_offset(), span(tensor.shape, tensor.stride())) for tensor in group.values()]
    start = min(begin for begin, _ in spans)
    extent = max(begin + size for begin, size in spans) - start
    base = start, extent  # as `recipe_at` takes it
    # The recipe of the base is fitted to a tensor that spans all of it, if there is one: its shape tells more than flat
    # memory, a causal mask for example.
    whole = [tensor for tensor in group.values() if span(tensor.shape, tensor.stride()) == extent]
    first, tensor = next(iter(group.items()))
    fitted = whole[0] if whole else tensor.as_strided((extent,), (1,), start)
    kind, facts = ("exact", {}) if kept else fitted_facts(fitted.detach())
    views = {name: recipe_at(tensor, "view", {"of": first}, seed, base) for name, tensor in group.items()}
    return views | {first: recipe_at(tensor, kind, facts, seed, base)}


def exact_data(tensors: Mapping[str, Tensor], recipes: Mapping[str, Recipe]) -> dict[str, Tensor]:
    """Return the data to keep for the exact recipes, by name: the tensor, or, if there are views of it, the elements of
    storage that the views use too.

    The data is contiguous, on the CPU, and a complex tensor is pairs of reals, since not every safetensors reader
    supports complex.
    """
    bases = {dict(recipe.facts)["of"] for recipe in recipes.values() if recipe.kind == "view"}  # names
    tensors, _ = _with_sparse_parts(tensors, recipes)
    kept = {}
    for name, recipe in recipes.items():
        if recipe.kind == "exact":
            tensor = _resolved_tensor(tensors[name])
            start = tensor.storage_offset() - recipe.offset
            tensor = tensor.as_strided((recipe.extent,), (1,), start) if name in bases else tensor
            tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            kept[name] = tensor.cpu().contiguous()
    return kept


# ---- The inputs of a Capture: parameters, buffers, inputs, constants and tangents


@dataclass(frozen=True, slots=True)
class Inputs:
    """Recipes by port name (tangents as `tangent NAME`), and the data of the exact ones, in memory or on disk."""

    recipes: Mapping[str, Recipe]
    exact: Mapping[str, Tensor]
    seed: int = 0

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return every input, or the named ones, by name. With a seed, inputs that recipes draw at random are drawn
        with other seeds, derived from it. SampleError if they do not fit in memory."""
        recipes = self.recipes
        if names is not None:
            wanted = set(names)  # and what these are made of
            # A sparse tensor may be made of views, and these of a base: one round for each of the kinds in RANKS.
            for _ in RANKS:
                wanted |= {base for name in wanted if name in recipes for base in bases_of(recipes[name])}
            recipes = {name: recipe for name, recipe in recipes.items() if name in wanted}
        if seed is not None:
            recipes = {name: redraw(recipe, derive(seed, name)) for name, recipe in recipes.items()}
        # The bytes that each takes: views and sparse tensors are made of others.
        extents = [
            recipe.extent * getattr(torch, recipe.dtype).itemsize
            for recipe in recipes.values()
            if recipe.kind not in ("none", "view", "sparse")
        ]
        if complaint := why_too_large(sum(extents)):
            raise SampleError(f"the inputs are {complaint}")
        tensors = make_all({name: recipe for name, recipe in recipes.items() if recipe.kind != "none"}, self.exact)
        inner = parts_of(recipes)  # of sparse tensors
        return {name: tensor for name, tensor in tensors.items() if name not in inner}

    def moved(self, places: Mapping[str, str]) -> Inputs:
        """Return these recipes with their tensors on other devices: `places` has the new device by the old one."""
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
        tensor = self.exact.get(name)  # contiguous and on the CPU, as `exact_data` returns it
        return None if tensor is None else ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.numel() else b""

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""
        return tuple(name for name, recipe in self.recipes.items() if recipe.kind == "none")

    @property
    def complete(self) -> bool:
        """Whether the recipes make every input."""
        return not self.missing


def with_recipes(capture: Capture, inputs: Inputs | None = None) -> Capture:
    """Return an engine's Capture with recipes for its inputs: those that made the inputs, if `inputs` has them, else
    recipes that are fitted to the values. A *fake* Capture is one without values."""
    fit_recipes = _fit_fake if capture.fake else fit_inputs
    return replace(capture, recipes=fit_recipes(capture, capture.origin.values(), made_by=inputs))


def fit_inputs(
    capture: Capture,
    values: Mapping[str, Tensor],
    data: str = "seed",
    exact: Collection[str] = (),
    made_by: Inputs | None = None,
) -> Inputs:
    """Return recipes for these values of a Capture's inputs, parameters, buffers and constants, and for its tangents.

    `data` is `seed` for recipes that are fitted, `exact` to keep the data of all, or `none` for recipes that make
    nothing. Inputs named in `exact`, constants, and inputs that a guard depends on keep their data under `seed` too.
    `made_by` has the recipes that made some of the values: these values keep them.
    """
    # The second names of tensors that were passed under two names: their recipes are views of the first ones.
    same = {right for _, right in capture.signature.same}
    own = {name: tensor for name, tensor in values.items() if name not in same}
    if data == "none":
        recipes = {name: recipe_at(tensor, "none", facts={}, seed=0) for name, tensor in own.items()}
        return Inputs(recipes | _tangent_recipes(capture, data), exact={}, seed=capture.seed)
    kept = set(own) if data == "exact" else set(own) & {*exact, *names_held_exact(capture)}
    theirs = {} if made_by is None else _their_own(own, made_by.recipes, kept)
    rest = {name: tensor for name, tensor in own.items() if name not in theirs}
    fitted = fit_all(rest, capture.seed, kept)
    recipes = {**theirs, **fitted, **({} if capture.fake else _recipes_for_constants(capture, fitted))}
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same if left in recipes}
    recipes |= _tangent_recipes(capture, data)
    tangents = with_tangents({}, capture.origin.tangents)
    return Inputs(recipes, exact_data({**own, **tangents}, recipes), capture.seed)


def _their_own(
    values: Mapping[str, Tensor], recipes: Mapping[str, Recipe], exact: Collection[str]
) -> dict[str, Recipe]:
    """Return the recipes that made some of these values, of the values that they still describe: a tensor with the
    recipe's geometry in memory of its own, which is not among those that keep their data (`exact`)."""
    shared = {name for group in alias_groups(values) for name in group}
    return {
        name: recipes[name]
        for name, tensor in values.items()
        if name in recipes and name not in shared and name not in exact and _makes(recipes[name], tensor)
    }


def _makes(recipe: Recipe, tensor: Tensor) -> bool:
    """Whether a recipe makes a tensor with the dtype and geometry of this one, and not of other tensors."""
    unseeded = replace(recipe, facts=(), seed=0)
    return recipe.kind not in RANKS and recipe_at(tensor, recipe.kind, facts={}, seed=0) == unseeded


LOOK = 2**18
"""A fake capture reads tensors up to this many elements: nothing large is read for it."""


def _fit_fake(capture: Capture, values: Mapping[str, Tensor], made_by: Inputs | None = None) -> Inputs:
    """Return recipes for a fake capture: fitted to the values of small tensors where they are known, else guessed from
    the role and the spec of a port. `made_by` has recipes for some of the inputs, which are used.
    """
    same = {right for _, right in capture.signature.same}  # the second names of tensors that have two
    small = {name: tensor for name, tensor in values.items() if tensor.numel() <= LOOK and name not in same}
    small |= {right: small[left] for left, right in capture.signature.same if left in small}
    # Of the only Pair: no fake capture has graph breaks.
    ports = {port.name: port for port in capture.pairs[0].forward.inputs if port.name not in same}
    # First to see which recipes would draw, then again with the tables among them (rotary frequencies, say) kept exact.
    known = fit_inputs(capture, small)
    tables = [name for name, port in ports.items() if port.role in ("buffer", "constant") and name in small]
    known = fit_inputs(capture, small, exact=[name for name in tables if known.recipes[name].kind in DRAWN_KINDS])
    recipes = {}
    for name, port in ports.items():
        theirs = None if made_by is None else made_by.recipes.get(name)
        if theirs is not None and theirs.kind in (*DRAWN_KINDS, "constant") and name not in known.exact:
            recipes[name] = theirs
        elif name in known.recipes:
            recipes[name] = known.recipes[name]
        else:
            # Only role and spec are known: a guess, so that the program at least runs.
            spec: Any = port.spec
            recipes[name] = _recipe_of_spec(spec, *_guess(port.role, spec.dtype), derive(capture.seed, name))
    recipes |= {right: twin(left, recipes[left]) for left, right in capture.signature.same if left in recipes}
    return Inputs({**known.recipes, **recipes}, known.exact, capture.seed)


def _guess(role: str, dtype: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return the kind and the facts of a recipe for a tensor of which only role and dtype are known: small weights,
    inputs around 0, positive buffers, and integers 0 or 1, which are valid indices of almost anything."""
    if dtype not in NUMBERS:
        return "none", (("why", "captured without values"),)
    if dtype not in (*FLOATS, *COMPLEX):
        return "choice", (("values", (0, 1)), ("weights", (1, 1)))
    if role == "buffer":
        return "uniform", (("high", 1.5), ("low", 0.5))
    std = 0.02 if role == "parameter" else 1.0
    return "normal", (("high", 4 * std), ("low", -4 * std), ("mean", 0.0), ("std", std))


def _recipe_of_spec(spec: Any, kind: str, facts: tuple[tuple[str, Any], ...], seed: int) -> Recipe:
    """Return a recipe for a tensor of which only the spec is known, in storage of its own."""
    shape, stride, extent = geometry(spec)
    return Recipe(kind, spec.dtype, shape, stride, spec.device, extent, offset=0, seed=seed, facts=facts)


def geometry(spec: TensorSpec) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the shape and the strides of a spec, and how many elements its tensor spans."""
    shape = tuple(map(int, spec.shape))
    stride = contiguous_strides(shape) if spec.stride is None else tuple(map(int, spec.stride))
    return shape, stride, span(shape, stride)


def without_data(inputs: InputRecipes) -> Inputs:
    """Return the same inputs with recipes that make nothing, of kind `none`."""
    inner = parts_of(inputs.recipes)
    recipes = {name: _undrawn(recipe) for name, recipe in inputs.recipes.items() if name not in inner}
    return Inputs(recipes, exact={}, seed=inputs.seed)


def _undrawn(recipe: Recipe) -> Recipe:
    """Return a recipe that makes nothing, with the same geometry."""
    return replace(recipe, kind="none", seed=0, facts=())


def parts_of(recipes: Mapping[str, Recipe]) -> set[str]:
    """Return the names of the parts of sparse tensors, which are no ports."""
    return {name for recipe in recipes.values() if recipe.kind == "sparse" for name in bases_of(recipe)}


def twin(name: str, recipe: Recipe) -> Recipe:
    """Return the recipe for the second name of a tensor that was passed under two names: a view of all of the first
    one, `name`, whose recipe is given, or of its base. A sparse tensor has no views: it is made of the same parts."""
    if recipe.kind == "sparse":
        return recipe
    base = dict(recipe.facts)["of"] if recipe.kind == "view" else name
    return replace(recipe, kind="view", seed=0, facts=(("of", base),))


def _tangent_recipes(capture: Capture, data: str) -> dict[str, Recipe]:
    """Return recipes for the tangents of all differentiable outputs, also of outputs that a later Pair takes, and for
    inputs that get gradients over links: normals, but ones where guards hold for ones alone; with `data` of `none`,
    recipes that make nothing."""
    recipes: dict[str, Recipe] = {}
    wanted = _tangent_specs(capture)
    # These are ones, as they were in the run: the tangents of a recorded step, and those that guards depend on.
    is_recorded = getattr(capture.origin, "partial", False)  # of a recorded step only results are left, and no program
    read = {name for guard in capture.guards for name in guard.inputs}
    for key, spec in {**wanted, **_linked_gradients(capture)}.items():
        assert isinstance(spec, TensorSpec)
        # A sparse tangent is the one at capture, with its indices and with other values.
        if spec.layout != "strided":
            tangent = capture.origin.tangents[output_of(key)]
            fitted = fit_all({key: tangent}, capture.seed)
            values = bases_of(fitted[key])[-1]  # the name of the last part, which has the elements
            recipes |= {**fitted, values: normal(fitted[values])} if data != "none" else {key: _undrawn(fitted[key])}
            continue
        recipe = _recipe_of_spec(spec, "none", facts=(), seed=derive(capture.seed, key))  # the kind comes below
        if spec.dtype in (*FLOATS, *COMPLEX):
            recipe = normal(recipe)
        else:  # integers that a backward changed, such as the batch count of a recomputed batch norm
            kind, facts = _guess("input", spec.dtype)
            recipe = replace(recipe, kind=kind, facts=facts)
        if (is_recorded and key in wanted) or key in read:
            recipe = replace(recipe, kind="constant", seed=0, facts=(("value", 1.0),))
        recipes[key] = recipe if data != "none" else replace(recipe, kind="none", facts=())
    return recipes


def _tangent_specs(capture: Capture) -> dict[str, Spec]:
    """Return the spec of the tangent of each differentiable output, and of each other tangent that a backward takes, by
    the tangent's name."""
    known = specs(capture)  # the spec of each output, by name
    for pair in capture.pairs:  # a tangent has its port's strides, which may differ from the output's
        ports = at_example_sizes(pair.backward).by_role("tangent") if pair.backward is not None else ()
        known |= {port.name: port.spec for port in ports}
    taken = [port.name for pair in capture.pairs if pair.backward for port in pair.backward.by_role("tangent")]
    return {tangent_name(name): known[name] for name in (*capture.signature.differentiable, *taken)}


def _linked_gradients(capture: Capture) -> dict[str, Spec]:
    """Return the specs, by name, of inputs of Pairs that get a gradient of another Pair over a link. Where a Pair runs
    alone, recipes make them."""
    linked: dict[str, Spec] = {}
    for link in capture.links:
        if link.target is not None and link.port.role == "gradient":
            ports = capture.pairs[link.target].forward.inputs
            linked[link.name] = next(port.spec for port in ports if port.name == link.name)
    return linked


def normal(recipe: Recipe) -> Recipe:
    """Return the recipe of a standard normal for the same tensor, cut off at four standard deviations."""
    facts = (("mean", 0.0), ("std", 1.0), ("low", -4.0), ("high", 4.0))
    return replace(recipe, kind="normal", facts=facts)
