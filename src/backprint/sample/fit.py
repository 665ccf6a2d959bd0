"""Choose recipes for tensors.

`fit` looks at a captured tensor's values and chooses the kind that keeps what programs rely on: a mask stays a mask, an
index stays in range, a variance stays positive. A tensor that cannot be described (NaN or inf among many values, float8
and other rare dtypes) has kind `exact`, and the sample keeps its data under the recipe's name: `exact_data` returns it.
A sparse tensor's indices are kept as they are, and its values are described like any tensor's.

Not detected: that a long integer tensor is sorted, or that two tensors agree with each other (an index and the length
it indexes) beyond each one's own range. Name such inputs in `exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint.errors import UsageError
from backprint.sample import generator
from backprint.sample.generator import Recipe
from backprint.sample.recipe_json import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    PARTS_OF,
    reach,
)
from backprint.sample.recipes import DRAWN_KINDS, Facts, derive, dtype_name
from backprint.tree import strided_parts

FEW = 8  # distinct values that still make a choice

SMALL = 64  # elements: integers up to here are kept as they are, floats up to here are not called a mask


@dataclass(frozen=True, slots=True)
class SeenValues:
    """Facts about a tensor's values: the elements in storage order if they fill it (`dense`), else in index order."""

    dtype: str
    flat: Tensor  # 1-D; a complex tensor's parts in turn
    dense: bool
    matrix: tuple[int, int] | None  # rows and columns, when storage holds whole row-major matrices
    distinct: tuple[tuple[Any, int], ...] | None  # (value, how often), when these are FEW
    low: Any
    high: Any
    moments: tuple[float, float] | None  # mean and standard deviation, when these are finite

    @property
    def size(self) -> int:
        return int(self.flat.numel())

    @property
    def finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def fit(tensor: Tensor, seed: int) -> Recipe:
    """Return the recipe of one tensor by itself: the first kind of FITS that describes its values, else `exact`."""
    missing = why_no_values(tensor)
    if missing:
        return recipe_at(tensor, "none", {"why": missing}, seed)
    tensor = resolved_tensor(tensor)
    return recipe_at(tensor, *fitted_facts(tensor), seed)


def why_no_values(tensor: Tensor) -> str:
    """Say why a tensor has no values, or ''."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return f"{'quantized' if tensor.is_quantized else tensor.layout} tensors cannot be made again"
    fake = tensor.device.type == "meta" or hasattr(tensor, "fake_mode")
    return "captured without values" if fake else ""


def resolved_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor detached, and without its lazy conjugate or negative bit."""
    return tensor.detach().resolve_conj().resolve_neg()


def recipe_at(tensor: Tensor, kind: str, facts: Facts, seed: int, base: tuple[int, int] | None = None) -> Recipe:
    """Return a recipe with the tensor's geometry, in storage of its own or in a `base` of this start and extent."""
    stride = tuple(tensor.stride()) if tensor.layout is torch.strided else (0,) * tensor.dim()
    extent, offset = (base[1], tensor.storage_offset() - base[0]) if base else (reach(tensor.shape, stride), 0)
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
    """Return the kind and the facts of the first row of FITS that holds."""
    if dtype_name(tensor) not in NUMBERS:
        return "exact", {}
    if tensor.numel() == 0:
        return "constant", {"value": 0}
    seen = look(tensor)
    for kind, test in FITS:
        facts = test(seen)
        if facts is not None:
            return kind, facts
    return "exact", {}


def look(tensor: Tensor) -> SeenValues:
    """Compute, in a few passes, the facts that FITS needs."""
    small = tensor[tuple(slice(1) if step == 0 else slice(None) for step in tensor.stride())]  # expanded: once
    extent = reach(small.shape, small.stride())
    dense = extent == small.numel() and not overlapping(small)
    flat = small.as_strided((extent,), (1,)) if dense else small.reshape(-1)
    flat = torch.view_as_real(flat).flatten() if flat.is_complex() else flat
    low, high = (one.item() for one in flat.aminmax())
    return SeenValues(
        dtype=dtype_name(tensor),
        flat=flat,
        dense=dense,
        matrix=matrix(tensor, extent) if dense else None,
        distinct=distinct(flat),
        low=low,
        high=high,
        moments=mean_and_std(flat, low, high) if flat.is_floating_point() else None,
    )


def overlapping(tensor: Tensor) -> bool:
    """Whether two indices have one place in storage: sorted by stride, each dimension must step over those before
    it."""
    span = 0
    for step, size in sorted((step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and step <= span:
            return True
        span += (size - 1) * step
    return False


def matrix(tensor: Tensor, extent: int) -> tuple[int, int] | None:
    if tensor.dim() < 2 or tensor.is_complex():
        return None
    rows, cols = tensor.shape[-2:]
    row_major = tuple(tensor.stride()[-2:]) == (cols, 1)
    return (rows, cols) if row_major and rows > 1 and cols > 1 and extent % (rows * cols) == 0 else None


def mean_and_std(flat: Tensor, low: float, high: float) -> tuple[float, float] | None:
    """Return mean and standard deviation to 7 digits, which hides the order of summation; None if a draw would
    overflow."""
    limit = torch.finfo(torch.float64 if flat.dtype is torch.float64 else torch.float32).max
    if not (math.isfinite(low) and math.isfinite(high) and high - low <= limit):
        return None
    near = float(flat[: 2**12].double().mean())  # sums relative to a value near the mean lose no digits
    total, squares = 0.0, 0.0
    for start in range(0, flat.numel(), 2**18):
        apart = flat[start : start + 2**18].double() - near
        total, squares = total + float(apart.sum()), squares + float(apart.dot(apart))
    if not math.isfinite(squares):
        return None
    beside = total / flat.numel()
    mean, std = near + beside, math.sqrt(max(0.0, squares / flat.numel() - beside * beside))
    return (float(f"{mean:.7g}"), float(f"{std:.7g}")) if math.isfinite(mean) and std <= limit else None


def bits(flat: Tensor) -> Tensor:
    """Return the elements as integers of their width, so that NaN equals itself and -0.0 is not 0.0."""
    return flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])


def distinct(flat: Tensor) -> tuple[tuple[Any, int], ...] | None:
    """Return each value and how often it occurs, in order; None if more than FEW differ. Most tensors end at a sample
    of 1 in n."""
    left = bits(flat)
    if left[:: max(1, left.numel() // 1024)].unique().numel() > FEW:
        return None
    found: list[tuple[Any, int]] = []
    while left.numel() and len(found) < FEW:
        others = left[left != left[0]]
        found.append((plain_number(left[:1].view(flat.dtype).item()), left.numel() - others.numel()))
        left = others
    return None if left.numel() else tuple(sorted(found, key=lambda pair: (pair[0] != pair[0], pair[0])))


def plain_number(value: Any) -> Any:
    """Return a plain number: 0 or 1 for a bool, and `math.nan` for every NaN."""
    return math.nan if value != value else int(value) if isinstance(value, bool) else value


def as_constant(seen: SeenValues) -> Facts | None:
    parts = bits(seen.flat).view(-1, 2 if seen.dtype in COMPLEX else 1)
    if seen.distinct is None or not bool((parts == parts[0]).all()):
        return None
    value, *imag = map(plain_number, seen.flat[: parts.shape[1]].tolist())
    return {"value": value, "imag": imag[0]} if imag else {"value": value}


def as_values(seen: SeenValues) -> Facts | None:
    if seen.dtype not in (*INTEGERS, "bool") or not seen.dense or seen.size > SMALL:
        return None
    return {"values": tuple(map(plain_number, seen.flat.tolist()))}


def as_arange(seen: SeenValues) -> Facts | None:
    if seen.dtype not in (*INTEGERS, *FLOATS) or not seen.dense or seen.size < 3 or not seen.finite:
        return None
    head = seen.flat[:3].tolist()
    if head[1] - head[0] != head[2] - head[1] or head[0] == head[1]:
        return None
    back = bits(seen.flat) == bits(seen.flat[:1])  # where it starts again
    period = int(back[1:].nonzero()[0]) + 1 if bool(back[1:].any()) else seen.size
    facts = {"start": head[0], "step": head[1] - head[0], "period": period}
    return facts if seen.size % period == 0 and drawn_alike(seen, "arange", facts) else None


def as_tril(seen: SeenValues) -> Facts | None:
    if seen.matrix is None or seen.distinct is None or len(seen.distinct) != 2:
        return None
    rows, cols = seen.matrix
    first = bits(seen.flat)[: rows * cols].view(rows, cols)
    top, side = int((first[0] == first[-1, 0]).sum()), int((first[:, 0] == first[-1, 0]).sum())
    facts = {
        "rows": rows,
        "cols": cols,
        "diagonal": top - 1 if top else side - rows,
        "inside": plain_number(seen.flat[(rows - 1) * cols].item()),
        "outside": plain_number(seen.flat[cols - 1].item()),
    }
    return facts if drawn_alike(seen, "tril", facts) else None


def drawn_alike(seen: SeenValues, kind: str, facts: Facts) -> bool:
    """Whether these facts draw exactly the elements seen."""
    made = generator.DRAWS[kind](Recipe(kind, seen.dtype, (seen.size,), (1,), extent=seen.size), **facts)
    return torch.equal(bits(made.to(seen.flat.device)), bits(seen.flat))


def as_permutation(seen: SeenValues) -> Facts | None:
    if seen.dtype not in INTEGERS or not seen.dense or seen.size <= SMALL or seen.high - seen.low != seen.size - 1:
        return None
    hit = torch.zeros(seen.size, dtype=torch.bool, device=seen.flat.device)
    hit[seen.flat.long() - seen.low] = True
    return {"low": seen.low} if bool(hit.all()) else None


def as_choice(seen: SeenValues) -> Facts | None:
    if seen.distinct is None or (seen.finite and seen.dtype != "bool" and seen.size <= SMALL):
        return None
    return {"values": tuple(value for value, _ in seen.distinct), "weights": tuple(n for _, n in seen.distinct)}


def as_integers(seen: SeenValues) -> Facts | None:
    return {"low": seen.low, "high": seen.high} if seen.dtype in INTEGERS else None


def as_uniform(seen: SeenValues) -> Facts | None:
    """Fit evenly spread floats, or non-negative ones whose mean is not far down their range."""
    if seen.moments is None:
        return None
    (mean, std), width = seen.moments, seen.high - seen.low
    even = abs(std - width / math.sqrt(12)) <= 0.1 * width / math.sqrt(12)
    keep = mean >= seen.low + 0.25 * width if seen.low >= 0 else even
    return {"low": seen.low, "high": seen.high} if keep else None


def as_normal(seen: SeenValues) -> Facts | None:
    if seen.moments is None:
        return None
    return {"mean": seen.moments[0], "std": seen.moments[1], "low": seen.low, "high": seen.high}


FITS: tuple[tuple[str, Callable[[SeenValues], Facts | None]], ...] = (
    ("constant", as_constant),
    ("values", as_values),
    ("arange", as_arange),
    ("tril", as_tril),
    ("permutation", as_permutation),
    ("choice", as_choice),
    ("integers", as_integers),
    ("uniform", as_uniform),
    ("normal", as_normal),
)


def fit_all(tensors: Mapping[str, Tensor], seed: int, exact: Collection[str] = ()) -> dict[str, Recipe]:
    """Return a recipe for each tensor, each with its own seed; those named in `exact` keep their data.

    Tensors in one storage become one base, under the first one's name and over their whole span, and views of it; if
    one of them is in `exact`, so is the base. If they have different dtypes, or are lazily conjugated, each is exact by
    itself: only then is sharing lost.
    """
    unknown = sorted(set(exact) - set(tensors))
    if unknown:
        raise UsageError(f"exact names no input: {', '.join(unknown)}; the inputs are {', '.join(tensors)}")
    recipes = {name: sparse_recipe(name, tensor, tensors) for name, tensor in tensors.items() if opens(tensor)}
    tensors, exact = opened(tensors, recipes, exact)
    for names in sharing({name: tensor for name, tensor in tensors.items() if name not in recipes}):
        group = {name: tensors[name] for name in names}
        forced = any(name in exact for name in names)
        if len(group) == 1 or len({tensor.dtype for tensor in group.values()}) > 1 or any(map(lazy, group.values())):
            kept = forced or len(group) > 1
            recipes |= {name: alone(tensor, derive(seed, name), kept) for name, tensor in group.items()}
        else:
            recipes |= together(group, derive(seed, names[0]), forced)
    return {name: recipes[name] for name in tensors}


def opens(tensor: Tensor) -> bool:
    """Whether a tensor is made from its parts: a sparse one that has values, and whose indices are valid."""
    if str(tensor.layout)[6:] not in PARTS_OF or tensor.device.type == "meta" or hasattr(tensor, "fake_mode"):
        return False
    names = {str(index): part for index, part in enumerate(strided_parts(tensor))}
    try:
        generator.make(sparse_recipe("", tensor, (), tuple(names)), None, names)
    except ValueError:
        return False
    return True


def sparse_recipe(name: str, tensor: Tensor, taken: Collection[str], of: tuple[str, ...] = ()) -> Recipe:
    """Return a sparse tensor's recipe, with names for its parts that no other tensor has."""
    layout = str(tensor.layout)[6:]
    for part in PARTS_OF[layout][len(of) :]:
        wanted, count = f"{name}/{part}", 1
        while wanted in taken:
            count += 1
            wanted = f"{name}/{part}~{count}"
        of = (*of, wanted)
    coalesced = int(layout == "sparse_coo" and tensor.is_coalesced())
    return recipe_at(tensor, "sparse", {"layout": layout, "of": of, "coalesced": coalesced}, 0)


def opened(
    tensors: Mapping[str, Tensor], recipes: Mapping[str, Recipe], exact: Collection[str] = ()
) -> tuple[dict[str, Tensor], set[str]]:
    """Return the tensors and the parts of the sparse ones, and which to keep: indices that a recipe would draw."""
    found, kept = {}, set(exact)
    for name, tensor in tensors.items():
        found[name] = tensor
        if name in recipes and recipes[name].kind == "sparse":
            *indices, values = zip(dict(recipes[name].facts)["of"], strided_parts(tensor), strict=True)
            found |= dict([*indices, values])
            kept |= {part for part, index in indices if fit(index, 0).kind in DRAWN_KINDS}
            kept |= {part for part, _ in (*indices, values) if name in exact}
    return found, kept


def sharing(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Group the names by the storage of their tensors; empty tensors and tensors without values share none."""
    groups: dict[Any, list[str]] = {}
    for name, tensor in tensors.items():
        own = why_no_values(tensor) or tensor.numel() == 0
        key = name if own else (tensor.device, tensor.untyped_storage().data_ptr())
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def lazy(tensor: Tensor) -> bool:
    return bool(tensor.is_conj() or tensor.is_neg())


def alone(tensor: Tensor, seed: int, kept: bool) -> Recipe:
    return (
        recipe_at(resolved_tensor(tensor), "exact", {}, seed)
        if kept and not why_no_values(tensor)
        else fit(tensor, seed)
    )


def together(group: Mapping[str, Tensor], seed: int, kept: bool) -> dict[str, Recipe]:
    """Return one base over the union of the tensors' spans, and views of it."""
    base = start, extent = union(group.values())
    whole = [tensor for tensor in group.values() if reach(tensor.shape, tensor.stride()) == extent]
    first, tensor = next(iter(group.items()))
    sight = whole[0] if whole else tensor.as_strided((extent,), (1,), start)
    kind, facts = ("exact", {}) if kept else fitted_facts(sight.detach())
    views = {name: recipe_at(tensor, "view", {"of": first}, seed, base) for name, tensor in group.items()}
    return views | {first: recipe_at(tensor, kind, facts, seed, base)}


def union(tensors: Iterable[Tensor]) -> tuple[int, int]:
    """Return the first storage offset of these tensors, and how many elements they span together."""
    spans = [(tensor.storage_offset(), reach(tensor.shape, tensor.stride())) for tensor in tensors]
    start = min(begin for begin, _ in spans)
    return start, max(begin + size for begin, size in spans) - start


def exact_data(tensors: Mapping[str, Tensor], recipes: Mapping[str, Recipe]) -> dict[str, Tensor]:
    """Return the data to keep for the exact recipes: the tensor, or its storage's span if views of it need that.

    The data is contiguous, on the CPU, and a complex tensor is pairs of reals, since not every safetensors reader
    supports complex.
    """
    based = {dict(recipe.facts)["of"] for recipe in recipes.values() if recipe.kind == "view"}
    tensors, _ = opened(tensors, recipes)
    kept = {}
    for name, recipe in recipes.items():
        if recipe.kind == "exact":
            tensor = resolved_tensor(tensors[name])
            start = tensor.storage_offset() - recipe.offset
            tensor = tensor.as_strided((recipe.extent,), (1,), start) if name in based else tensor
            tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            kept[name] = tensor.cpu().contiguous()
    return kept
