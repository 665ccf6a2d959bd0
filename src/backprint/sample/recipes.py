"""Recipes as JSON, and the tensors that they make, bit for bit, on any machine and torch version.

Reading trusts nothing: the table KINDS has every kind of recipe with its facts. A hostile object raises a SampleError
that names the place; an accepted one makes a tensor, or fails only if memory or its device is missing. The drawing
itself is in `run_sample.py`, of which every sample has a copy. `inputs` chooses recipes.

A recipe has a *kind*, the *facts* that its kind needs (`mean` and `std` of `normal`), a seed, and the geometry of the
tensor: dtype, shape, strides, device, the *extent* (the elements of its storage) and the offset of its first element.
A Rule says what a fact may be, in `words` for an error and as a function; `_require(holds, where, words, value)` raises
SampleError with these words unless `holds`. A *base* is a tensor of which a view is made.
Random numbers are made of *words*, 32 bits each, four from each counter of the generator Philox.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint import run_sample
from backprint.errors import ReplayError, SampleError
from backprint.graph.nouns import DEVICES
from backprint.run_sample import PARTS, WORDS, Recipe, Words, parse
from backprint.values.geometry import span

# ---- JSON


FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
NUMBERS = (*FLOATS, *COMPLEX, *INTEGERS, "bool")

LARGEST = 2**48  # elements of a recipe that is not taken for an attack
MOST = 64  # dimensions, or values to choose from


def to_json(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as a JSON object; floats are restored bit for bit, inf and nan are strings."""
    row = {name: getattr(recipe, name) for name in FIELDS}
    return row | {
        "shape": list(recipe.shape),
        "stride": list(recipe.stride),
        "facts": {name: value_as_json(value) for name, value in recipe.facts},
    }


def value_as_json(value: Any) -> Any:
    """Return the value of a fact as JSON has it: a tuple as a list, and a float that is not finite as a text."""
    if isinstance(value, tuple):
        return [value_as_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def from_json(obj: Any) -> Recipe:
    """Return the recipe of an untrusted JSON object; raise SampleError for anything wrong."""
    # The fields, each by itself.
    _require(isinstance(obj, dict), "recipe", "an object", obj)
    _require(set(obj) == set(FIELDS), "recipe", f"the keys {', '.join(FIELDS)}", list(obj))
    for name, (words, holds) in FIELDS.items():
        _require(holds(obj[name]), f"recipe.{name}", words, obj[name])
    # Its geometry: a tensor that lies within its own storage.
    shape, stride, offset, extent = obj["shape"], obj["stride"], obj["offset"], obj["extent"]
    most = math.inf if obj["kind"] == "sparse" else LARGEST  # the parts of a sparse tensor, not its shape, take memory
    _require(math.prod(shape) <= most, "recipe.shape", f"at most {LARGEST} elements", shape)
    _require(len(shape) == len(stride), "recipe.stride", f"{len(shape)} numbers, as in shape", stride)
    spanned = span(shape, stride)
    geometry = dict(shape=shape, stride=stride, offset=offset)
    _require(spanned == 0 or offset + spanned <= extent, "recipe", f"a tensor within its extent of {extent}", geometry)
    # The dtype and the facts that its kind allows.
    kind, facts = KINDS[obj["kind"]], obj["facts"]
    words = f"one of {', '.join(kind.dtypes)}"
    _require(not kind.dtypes or obj["dtype"] in kind.dtypes, "recipe.dtype", words, obj["dtype"])
    # All facts of the kind are there, except optional ones, and no others.
    has_its_facts = set(kind.facts) - OPTIONAL <= set(facts) <= set(kind.facts)
    _require(has_its_facts, "recipe.facts", f"{', '.join(kind.facts) or 'none'} for kind {obj['kind']!r}", list(facts))
    for name, value in facts.items():
        words, fits = kind.facts[name]
        _require(fits(value, obj["dtype"]), f"recipe.facts.{name}", words, value)
    _require(kind.holds({**obj, **facts}), "recipe.facts", kind.words, facts)
    return parse(obj)


def _require(holds: bool, where: str, words: str, value: Any) -> None:
    """Raise SampleError unless a condition `holds`: at the place `where` of a recipe, `words` were expected, and
    `value` was found."""
    if not holds:
        shown = repr(value)
        raise SampleError(f"{where}: expected {words}, found {shown if len(shown) <= 200 else shown[:197] + '...'}")


# ---- Checks of fields and facts: whether a value of JSON may be one, given the dtype of the recipe
# All take the dtype, so that a table can call them alike; most do not use it.


def whole(value: Any, dtype: str = "") -> bool:
    return type(value) is int and abs(value) < 2**63


def count(value: Any, dtype: str = "") -> bool:
    return whole(value) and 0 <= value <= LARGEST


def text(value: Any, dtype: str = "") -> bool:
    return isinstance(value, str)


def layout(value: Any, dtype: str = "") -> bool:
    return isinstance(value, str) and value in PARTS_OF


def bit(value: Any, dtype: str = "") -> bool:
    return type(value) is int and value in (0, 1)


def finite(value: Any, dtype: str) -> bool:
    """Whether a number is in the dtype's range; it need not be representable in the dtype (0.1 in float32)."""
    if dtype in FLOATS + COMPLEX:
        largest = torch.finfo(getattr(torch, PARTS.get(dtype, dtype))).max  # PARTS: the dtype of a complex one's parts
        return (type(value) is float or whole(value)) and abs(value) <= largest
    low, high = (0, 1) if dtype == "bool" else limits(dtype)
    # By `type`, as a bool is an int for isinstance.
    return type(value) is int and low <= value <= high


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the largest number of an integer dtype."""
    info = torch.iinfo(getattr(torch, dtype))
    return info.min, info.max


def _step_size(value: Any, dtype: str) -> bool:
    # A step may be negative even if the dtype is unsigned.
    return finite(value, "int64" if dtype in INTEGERS else dtype)


def number(value: Any, dtype: str) -> bool:
    return (dtype in FLOATS + COMPLEX and value in ("inf", "-inf", "nan")) or finite(value, dtype)


def _list_of(holds: Callable[..., bool]) -> Callable[..., bool]:
    """Return the check of a list of at most MOST items, each of which passes a check."""

    def all_hold(value: Any, dtype: str = "") -> bool:
        return isinstance(value, list) and len(value) <= MOST and all(holds(item, dtype) for item in value)

    return all_hold


counts, texts, numbers = _list_of(count), _list_of(text), _list_of(number)

Rule = tuple[str, Callable[[Any, str], bool]]
"""What is expected of a fact, in words, and whether a value meets that, given the dtype of the recipe."""

FINITE: Rule = ("a finite number of the dtype", finite)
STEP: Rule = ("a finite number", _step_size)
NUMBER: Rule = ("a number of the dtype", number)
VALUES: Rule = (f"at most {MOST} numbers of the dtype", numbers)
COUNT: Rule = (f"a whole number from 0 to {LARGEST}", count)
COUNTS: Rule = (f"at most {MOST} whole numbers from 0 to {LARGEST}", counts)
WHOLE: Rule = ("a whole number of 64 bits", whole)
TEXT: Rule = ("a text", text)
TEXTS: Rule = (f"at most {MOST} texts", texts)
LAYOUT: Rule = ("a sparse layout", layout)
BIT: Rule = ("0 or 1", bit)

PARTS_OF: Mapping[str, tuple[str, ...]] = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
"""The parts of a sparse tensor, by layout."""

OPTIONAL = {"imag", "why"}
"""Facts that a recipe may lack."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a recipe of one kind may be: its dtypes (empty for any), a Rule for each of its facts, and a condition, in
    `words` and as the function `holds`, on the whole JSON object with the facts among its fields."""

    dtypes: tuple[str, ...]
    facts: Mapping[str, Rule]
    words: str = ""
    holds: Callable[[dict[str, Any]], bool] = lambda row: True


# Conditions of Kinds. `row` has the fields of a recipe, with its facts among them.


def ordered(row: dict[str, Any]) -> bool:
    return bool(row["low"] <= row["high"] and row.get("std", 0) >= 0)


def weighted(row: dict[str, Any]) -> bool:
    return len(row["weights"]) == len(row["values"]) > 0 and min(row["weights"]) > 0


def _steady(row: dict[str, Any]) -> bool:
    """Whether numbers with equal steps, of which there are `period` before they start again, are in the dtype."""
    # Integers must not wrap around. Floats may round, or end in Inf.
    last = row["start"] + row["step"] * (row["period"] - 1)
    return row["period"] > 0 and (row["dtype"] in FLOATS or finite(last, row["dtype"]))


KINDS: dict[str, Kind] = {
    "normal": Kind(
        FLOATS + COMPLEX, dict(mean=FINITE, std=FINITE, low=FINITE, high=FINITE), "low <= high and std >= 0", ordered
    ),
    "uniform": Kind(FLOATS + COMPLEX, dict(low=FINITE, high=FINITE), "low <= high", ordered),
    "integers": Kind(INTEGERS, dict(low=FINITE, high=FINITE), "low <= high", ordered),
    "choice": Kind(NUMBERS, dict(values=VALUES, weights=COUNTS), "a weight from 1 for each of the values", weighted),
    "constant": Kind(NUMBERS, dict(value=NUMBER, imag=NUMBER)),
    "arange": Kind(
        FLOATS + INTEGERS, dict(start=FINITE, step=STEP, period=COUNT), "a period from 1, all in the dtype", _steady
    ),
    "tril": Kind(
        (*FLOATS, *INTEGERS, "bool"),
        dict(rows=COUNT, cols=COUNT, diagonal=WHOLE, inside=NUMBER, outside=NUMBER),
        "matrices that fill the extent",
        lambda row: row["rows"] * row["cols"] > 0 and row["extent"] % (row["rows"] * row["cols"]) == 0,
    ),
    "values": Kind(
        (*INTEGERS, "bool"),
        dict(values=VALUES),
        "one for each of the extent",
        lambda row: len(row["values"]) == row["extent"],
    ),
    "permutation": Kind(
        INTEGERS,
        dict(low=FINITE),
        "all of the extent in the dtype",
        lambda row: finite(row["low"] + max(0, row["extent"] - 1), row["dtype"]),
    ),
    "exact": Kind((), {}),
    "view": Kind((), dict(of=TEXT)),
    "sparse": Kind(
        (),
        dict(layout=LAYOUT, of=TEXTS, coalesced=BIT),
        "a name for each part of the layout, and coalesced for sparse_coo alone",
        lambda row: (
            len(row["of"]) == len(PARTS_OF[row["layout"]]) and not (row["coalesced"] and row["layout"] != "sparse_coo")
        ),
    ),
    "none": Kind((), dict(why=TEXT)),
}

FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "kind": (f"one of {', '.join(KINDS)}", lambda value: isinstance(value, str) and value in KINDS),
    "dtype": (
        "the name of a torch dtype",
        lambda value: isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype),
    ),
    "shape": (f"at most {MOST} sizes from 0", counts),
    "stride": (f"at most {MOST} strides from 0", counts),
    "device": (
        "a device like cpu or cuda:0",
        lambda value: text(value) and bool(re.fullmatch(rf"({'|'.join(DEVICES)})(:\d{{1,3}})?", value)),
    ),
    "extent": (f"a whole number from 0 to {LARGEST}", count),
    "offset": (f"a whole number from 0 to {LARGEST}", count),
    "seed": ("a whole number from 0, below 2**64", lambda value: type(value) is int and 0 <= value < 2**64),
    "facts": ("an object with texts as keys", lambda value: isinstance(value, dict) and all(map(text, value))),
}
"""For each field of a recipe, what is expected in words, and whether a value of JSON meets that."""


# ---- Tensors
# A sparse tensor has kind `sparse`: it is made of its parts, which have recipes under names of their own (`x/indices`,
# `x/values`).

Facts = dict[str, Any]
"""The facts of a recipe by name: what its kind needs to make the elements, such as `mean` and `std`."""


def dtype_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype without `torch.`."""
    return str(tensor.dtype).removeprefix("torch.")


DRAWN_KINDS = tuple(WORDS)
"""Kinds that draw random numbers."""


def derive(seed: int, name: str) -> int:
    """Return another seed, for the input of this name; below 2**53, so that every JSON reader keeps it exact."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little") >> 11


def make(
    recipe: Recipe,
    exact: Tensor | None = None,
    bases: Mapping[str, Tensor] | None = None,
    drawn: Words | None = None,
) -> Tensor:
    """Return the tensor of a recipe, on its device. `exact` is the data that the sample keeps of it, and `bases` has
    the tensors that it is a view of or consists of. `drawn` are its random words, if they were drawn together with
    those of other recipes. ReplayError if this machine cannot make it, or nothing can; SampleError if the recipe is
    wrong."""
    if recipe.kind == "none":
        raise ReplayError(f"cannot be made: {dict(recipe.facts).get('why', 'its values were never seen')}")
    if recipe.kind in RANKS:
        _check_bases(recipe, bases or {})
    try:
        return run_sample.make(recipe, exact, bases, drawn)
    except (ValueError, TypeError, OverflowError) as cause:
        raise SampleError(f"a recipe of kind {recipe.kind!r} cannot be made: {cause}") from cause
    except (RuntimeError, AssertionError) as cause:  # out of memory; no such device in this build of torch
        raise ReplayError(f"a recipe of kind {recipe.kind!r} cannot be made on {recipe.device}: {cause}") from cause


RANKS = {"view": 1, "sparse": 2}
"""Kinds of recipes whose tensors are made of other tensors, with the round in which they are made: views after other
tensors, and sparse tensors after views, which their parts may be."""


def bases_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the tensors that a recipe's tensor is made of: the base of a view, or the parts of a sparse
    tensor, the values last."""
    of = dict(recipe.facts).get("of", ()) if recipe.kind in RANKS else ()
    return of if isinstance(of, tuple) else (of,)


def _check_bases(recipe: Recipe, bases: Mapping[str, Tensor]) -> None:
    """Raise unless `bases` has the tensors that a recipe's tensor is made of. The last of them has the tensor's
    elements, and so must have its dtype."""
    for of in bases_of(recipe):
        if of not in bases or bases[of].layout is not torch.strided:
            raise SampleError(f"a {recipe.kind} of {of!r}, which is not among the tensors made: {', '.join(bases)}")
    # `of` is the last name here.
    if dtype_name(bases[of]) != recipe.dtype:
        raise SampleError(f"a {recipe.kind} of {of!r} with dtype {recipe.dtype}, but that has {dtype_name(bases[of])}")


def make_all(recipes: Mapping[str, Recipe], exact: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of all recipes, by name and in order. Views and sparse tensors share the storage of the
    tensors that they are made of. `exact` has the data that a sample keeps."""
    tensors: dict[str, Tensor] = {}
    # The tensors that a view is made of come before it. The sort is stable, so the order is otherwise kept.
    ordered = sorted(recipes.items(), key=lambda item: RANKS.get(item[1].kind, 0))
    words = _words_of_many([recipe for _, recipe in ordered])
    for (name, recipe), drawn in zip(ordered, words, strict=True):
        try:
            tensors[name] = make(recipe, exact.get(name), tensors, drawn)
        except (SampleError, ReplayError) as cause:
            raise type(cause)(f"input {name!r}: {cause}") from cause
    return {name: tensors[name] for name in recipes}


FEW_COUNTERS = run_sample.CHUNK // 4
"""Recipes that take up to so many counters of Philox (each makes four random words) are drawn together: each alone
would be a hundred calls on little data."""


def _words_of_many(recipes: Sequence[Recipe]) -> Iterator[Words | None]:
    """Yield, for each recipe, the random words of its draw, drawn in one call for many small recipes; None for a recipe
    that draws nothing, or so much that it is drawn alone."""
    counts = [run_sample.counters(recipe) if recipe.kind in DRAWN_KINDS else 0 for recipe in recipes]
    # `run_sample.counters` is how many counters of Philox a recipe takes, of which one call computes up to CHUNK.
    counts = [count if count <= FEW_COUNTERS else 0 for count in counts]  # of the recipes that are drawn together
    start = 0  # recipes from `start` to before `end` are drawn in one call
    while start < len(recipes):
        end, total = start + 1, counts[start]
        while end < len(recipes) and total + counts[end] <= run_sample.CHUNK:
            end, total = end + 1, total + counts[end]
        yield from _words_of_group([recipe.seed for recipe in recipes[start:end]], counts[start:end])
        start = end


def _words_of_group(seeds: Sequence[int], counts: Sequence[int]) -> Iterator[Words | None]:
    """Yield, for each seed, the random words of so many counters, from one call of Philox; None for no counters."""
    lengths = torch.tensor(counts, device="cpu")  # on the CPU, whatever the caller's default device is
    # torch has no uint64 to compute with: the same 64 bits as int64.
    signed = torch.tensor([seed - 2**64 if seed >= 2**63 else seed for seed in seeds], device="cpu")
    starts = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)  # for each counter, where its recipe's begin
    zero = torch.zeros_like(starts)
    index = torch.arange(len(starts), device="cpu") - starts
    # Four columns of words; the counters of each recipe begin at 0. Only the lowest of the four numbers that a counter
    # of Philox has is used.
    four = run_sample.philox(index, zero, zero, zero, signed.repeat_interleave(lengths))
    for count, *words in zip(counts, *(column.split(counts) for column in four), strict=True):
        yield tuple(words) if count else None


def redraw(recipe: Recipe, seed: int) -> Recipe:
    """Return the same recipe with another seed, derived from `seed` and from its own.

    Kinds without random numbers stay as they are: constant, values, arange, tril, exact, none, and view and sparse,
    which follow their bases. A permutation becomes another one.
    """
    return replace(recipe, seed=derive(seed, str(recipe.seed))) if recipe.kind in DRAWN_KINDS else recipe
