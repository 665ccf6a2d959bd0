"""Recipes from GraphNet's metadata: each keeps what the fields state, and chooses the rest for power.

- `data` is kept as it is printed, also where 1e-12 was printed as 0.000000.
- `min_val` and `max_val` are bounds. Whole numbers lie between them and below what their use allows; positions count.
- Floats have the mean and the whole standard deviation that the weights had: with less, biases and running means
  decide what comes out, and the image does not.
- A variance, a divisor and an argument of a logarithm or a root are positive, with the stated mean and deviation: they
  take QUANTILES values of a log-normal distribution, none near zero, where a norm would blow up its quotient.
- Masks stay masks: a causal one is triangular, others are mostly open, closed places keep the value that closes them.
- Numbers that the program reads are not drawn, because a capture is valid for these numbers alone: one is its mean,
  several are evenly spread.
- A deviation printed as 0.000 is below half of the last digit. Zero-initialized scales and biases would hide the values
  that they multiply, so floating-point Parameters and buffers take most of the rounding error as their deviation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from backprint.graphnet.meta import Known, Meta, Use
from backprint.sample.fit import fit, recipe_at
from backprint.sample.generator import Recipe
from backprint.sample.inputs import Inputs
from backprint.sample.recipe_json import FLOATS, INTEGERS, reach
from backprint.sample.recipes import derive

RecipeFacts = dict[str, Any]

KEPT = ("constant", "values", "arange", "tril")
"""Kinds of recipes that draw nothing: they keep `data` exactly."""

QUANTILES, FLOOR = 64, 0.2
"""The number of values of a positive tensor, and their least value as a share of its mean."""

OPEN = 0.9
"""The share of the rounding error that is taken as deviation."""

EPSILON = 1e-5
"""The value of an epsilon that is printed as 0.000."""

CLOSED = -1e4
"""A mean of floats below this is a mask's."""

_MASK = re.compile(r"mask|causal|tril|triu", re.IGNORECASE)
_CAUSAL = re.compile(r"causal|tril|triu|attn_mask|attention_mask|(?:^|[._])bias$", re.IGNORECASE)
_POSITIONS = re.compile(r"position_?ids|positions?$|cache_position|pos_ids", re.IGNORECASE)
_EPSILON = re.compile(r"(?:^|[._])(?:\w+_)?eps(?:ilon)?_?$", re.IGNORECASE)
_VARIANCE = re.compile(r"running_var|(?:^|[._])var(?:iance)?_?$", re.IGNORECASE)


def recipes_from_metas(inputs: Sequence[Known], seed: int, device: str) -> Inputs:
    """Recipes by port name, and the data of inputs that no kind of recipe describes."""
    recipes: dict[str, Recipe] = {}
    exact: dict[str, Tensor] = {}
    for known in inputs:
        name, own = known[0], derive(seed, known[0])
        if has_data(known[2]):
            recipe, kept = recipe_from_data(known[2], own)
            exact |= {} if kept is None else {name: kept}
        else:
            recipe = recipe_from_statistics(known, own)
        recipes[name] = replace(recipe, device=str(torch.device(device)))
    return Inputs(recipes, exact, seed)


def recipe_notes(inputs: Sequence[Known]) -> tuple[str, ...]:
    """Notes for a report on inputs whose metadata was rounded away."""
    zeros = [name for name, _, meta, _ in inputs if meta.data is not None and meta.dtype in FLOATS and 0 in meta.data]
    flat = [known[0] for known in inputs if not has_data(known[2]) and is_widened(known)]
    small = [known[0] for known in inputs if not has_data(known[2]) and is_lost_epsilon(known)]
    rows = (
        (small, f"printed as 0 that keep a divisor from it: taken for {EPSILON}"),
        (zeros, "printed as 0.000000 and kept so, whatever they were"),
        (flat, "whose deviation is printed as 0: drawn with one that prints so"),
    )
    return tuple(
        f"{len(names)} inputs of floats {words}: {', '.join(names[:3])}" + (", …" if len(names) > 3 else "")
        for names, words in rows
        if names
    )


def has_data(meta: Meta) -> bool:
    """Whether the metadata has every element."""
    return meta.data is not None and len(meta.data) == math.prod(meta.shape)


def recipe_from_data(meta: Meta, seed: int) -> tuple[Recipe, Tensor | None]:
    """The recipe of a tensor whose elements are given, and the tensor itself where its recipe is `exact`."""
    tensor = torch.tensor(meta.data, dtype=getattr(torch, meta.dtype)).reshape(meta.shape)
    recipe = fit(tensor, seed)
    return (recipe, None) if recipe.kind in KEPT else (recipe_at(tensor, "exact", {}, seed), tensor)


def recipe_from_statistics(known: Known, seed: int) -> Recipe:
    """The recipe of a tensor of which at most statistics are known."""
    _, _, meta, _ = known
    stride = torch.empty(meta.shape, device="meta").stride()
    extent = reach(meta.shape, stride)
    kind, facts = ("constant", {"value": 0}) if not extent else kind_and_facts(known)
    return Recipe(kind, meta.dtype, meta.shape, stride, "cpu", extent, 0, seed, tuple(sorted(facts.items())))


def kind_and_facts(known: Known) -> tuple[str, RecipeFacts]:
    """A recipe's kind and facts, by dtype."""
    dtype = known[2].dtype
    if dtype == "bool":
        return mask_recipe(known, 0, 1)
    if dtype in INTEGERS:
        return integer_recipe(known)
    if dtype in FLOATS:
        return float_recipe(known)
    if dtype.startswith("complex"):
        mean, std = finite_or(known[2].mean, 0.0), finite_or(known[2].std, 1.0)
        return "normal", normal_facts(mean, std / math.sqrt(2), None, None)
    return "none", {"why": f"GraphNet keeps no values of {dtype}"}


# ------------------------------------------------------------------ whole numbers


def integer_recipe(known: Known) -> tuple[str, RecipeFacts]:
    """The recipe of integers: in the range that the metadata and the uses allow."""
    name, _, meta, use = known
    info = torch.iinfo(getattr(torch, meta.dtype))
    limit = info.max if use.below is None else max(0, use.below - 1)
    guess = 1 if is_mask_input(name, use) or "flag" in use.kinds or use.below is None else limit
    low = int(finite_or(meta.min_val, 0))
    high = max(low, min(limit, int(finite_or(meta.max_val, guess))))
    low = max(info.min, min(low, high))
    period = meta.shape[-1] if meta.shape else 1
    if _POSITIONS.search(name) and (meta.max_val is None or high - low == period - 1) and period <= limit - low + 1:
        return "arange", {"start": low, "step": 1, "period": period}
    if low == high:
        return "constant", {"value": low}
    if (low, high) == (0, 1) and is_mask_input(name, use):
        return mask_recipe(known, 0, 1)
    return "integers", {"low": low, "high": high}


# ------------------------------------------------------------------ masks


def is_mask_input(name: str, use: Use) -> bool:
    """Whether an input is a mask by its use or its name."""
    return "mask" in use.kinds or _MASK.search(name) is not None


def mask_recipe(known: Known, closed: Any, opened: Any) -> tuple[str, RecipeFacts]:
    """The recipe of a mask: triangular if the name says so and the shape is square, else three places in four open."""
    name, _, meta, _ = known
    if len(meta.shape) >= 2 and meta.shape[-1] == meta.shape[-2] > 1 and _CAUSAL.search(name):
        rows, cols = meta.shape[-2:]
        return "tril", {"rows": rows, "cols": cols, "diagonal": 0, "inside": opened, "outside": closed}
    return "choice", {"values": (closed, opened), "weights": (1, 3)}


# ------------------------------------------------------------------ floats


def float_recipe(known: Known) -> tuple[str, RecipeFacts]:
    """The recipe of floats: a mask, one number, a positive or a normal distribution."""
    name, role, meta, use = known
    mean, std = finite_or(meta.mean, 0.0), finite_or(meta.std, 1.0)
    low, high = meta.min_val, meta.max_val
    if is_float_mask(meta, use):
        floor = -math.inf if meta.mean == -math.inf else torch.finfo(getattr(torch, meta.dtype)).min
        return mask_recipe(known, floor, 0.0)
    if is_lost_epsilon(known):
        return "constant", {"value": EPSILON}
    if math.prod(meta.shape) == 1:
        slack = OPEN * rounding_slack(meta) if role == "parameter" and "read" not in use.kinds else 0.0
        return "uniform", {"low": mean - slack, "high": mean + slack}
    if "read" in use.kinds:
        return evenly_spread(math.prod(meta.shape), mean, std)
    if "variance" in use.kinds or (role == "buffer" and _VARIANCE.search(name)) or (low == 0 and high is None):
        return "choice", lognormal_facts(meta, finite_or(meta.mean, 1.0), finite_or(meta.std, 0.25))
    if "positive" in use.kinds and mean > rounding_slack(meta):
        return "choice", lognormal_facts(meta, mean, std)
    if is_widened(known):
        std = OPEN * rounding_slack(meta)
    return "normal", normal_facts(mean, std, low, high)


def is_lost_epsilon(known: Known) -> bool:
    """Whether an input is an epsilon that is printed as 0."""
    name, _, meta, _ = known
    small = meta.mean is not None and abs(meta.mean) < rounding_slack(meta) and not meta.min_val
    return small and math.prod(meta.shape) == 1 and meta.dtype in FLOATS and _EPSILON.search(name) is not None


def evenly_spread(count: int, mean: float, std: float) -> tuple[str, RecipeFacts]:
    """The recipe of numbers that the program reads: evenly spread, so that no draw changes them."""
    step = std / math.sqrt(count * (count + 1) / 12)
    if step == 0:
        return "constant", {"value": mean}
    return "arange", {"start": mean - step * (count - 1) / 2, "step": step, "period": count}


def is_float_mask(meta: Meta, use: Use) -> bool:
    """Whether floats are a mask whose closed places are -inf or the dtype's minimum."""
    mean, std = meta.mean, meta.std
    if mean is None or math.prod(meta.shape) == 1:
        return False
    if math.isfinite(mean):
        return mean <= CLOSED and (use.kinds & {"additive", "mask"} != set() or std is None or not math.isfinite(std))
    return mean == -math.inf or (math.isnan(mean) and "additive" in use.kinds)


def is_widened(known: Known) -> bool:
    """Whether a weight's or buffer's deviation is printed as 0 and taken for most of the rounding error."""
    name, role, meta, use = known
    fixed = {"mask", "additive", "read", "positive", "variance"} & use.kinds or _VARIANCE.search(name)
    weights = role in ("parameter", "buffer") or "average" in use.kinds
    return bool(
        weights and not fixed and meta.dtype in FLOATS and math.prod(meta.shape) > 1
        and meta.std is not None and abs(meta.std) < rounding_slack(meta) and not is_mask_input(name, use)
    )  # fmt: skip


def rounding_slack(meta: Meta) -> float:
    """Half of the last printed digit of mean and std."""
    return float(0.5 * 10.0**-meta.digits)


def finite_or(value: float | None, default: float) -> float:
    """A statistic if it is finite, else the default."""
    return default if value is None or not math.isfinite(value) else float(value)


def normal_facts(mean: float, std: float, low: float | None, high: float | None) -> RecipeFacts:
    """The facts of a normal distribution, cut at four deviations and at its bounds."""
    floor = mean - 4 * std if low is None else max(low, mean - 4 * std)
    ceiling = mean + 4 * std if high is None else min(high, mean + 4 * std)
    return {"mean": mean, "std": std, "low": min(floor, ceiling), "high": max(floor, ceiling)}


def lognormal_facts(meta: Meta, mean: float, std: float) -> RecipeFacts:
    """The facts of a positive tensor of this mean and deviation: FLOOR of the mean plus log-normal quantiles."""
    slack = OPEN * rounding_slack(meta)
    mean = max(mean, slack)
    above = mean * (1 - FLOOR)
    std = min(max(std, min(slack, 0.2 * mean)), above * 0.9 * math.sqrt(QUANTILES - 1))
    tops = [NormalDist().inv_cdf((index + 0.5) / QUANTILES) for index in range(QUANTILES)]
    sigma = invert_growing(
        lambda sigma: relative_deviation([math.exp(sigma * top) for top in tops]), std / above, 0.0, 16.0
    )
    values = [math.exp(sigma * top) for top in tops]
    scale = above * QUANTILES / sum(values)
    rounded = tuple(float(f"{FLOOR * mean + scale * value:.7g}") for value in values)
    return {"values": rounded, "weights": (1,) * QUANTILES}


def relative_deviation(values: Sequence[float]) -> float:
    """Standard deviation over mean."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def invert_growing(of: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The argument at which a growing function has a value."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < wanted else (low, middle)
    return low
