"""Recipes from GraphNet's metadata: every promise of a field is kept, and what it leaves open is chosen for power.

- `data` is kept as it is printed, also where 1e-12 was printed as 0.000000.
- `min_val` and `max_val` are bounds. Whole numbers lie between them and below what their use allows; positions count.
- Floats have the mean and the whole standard deviation that the weights had: with less, biases and running means
  decide what comes out, and the image does not.
- A variance, a divisor and what a logarithm or a root takes are positive, and have the mean and deviation all the same:
  they are one of QUANTILES values of a log-normal distribution, so that none lies near nothing, where a norm would
  blow up what it divides.
- Masks stay masks: a causal one is triangular, others are mostly open, closed places have what closed them.
- Numbers that the program reads are not drawn, because a capture runs on no others: one is its mean, several are
  evenly spread.
- A deviation printed as 0.000 says that it is below half of the last digit. Zero-initialised scales and biases make
  what stands behind them invisible, so Parameters and buffers of floats take most of what the printing leaves open.
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
from backprint.sample.fit import fit, placed
from backprint.sample.generator import Recipe
from backprint.sample.inputs import Inputs
from backprint.sample.recipe_json import FLOATS, INTEGERS, reach
from backprint.sample.recipes import derive

Facts = dict[str, Any]

KEPT = ("constant", "values", "arange", "tril")
"""Kinds of recipes that draw nothing: what `data` says, they say."""

QUANTILES, FLOOR = 64, 0.2
"""Of how many values a positive tensor is made, and what share of its mean all of them have."""

OPEN = 0.9
"""How much of what rounding leaves open is taken."""

EPSILON = 1e-5
"""What a number that keeps a divisor from nothing is, where its printing says 0.000."""

CLOSED = -1e4
"""A mean of floats below this is a mask's."""

_MASK = re.compile(r"mask|causal|tril|triu", re.IGNORECASE)
_CAUSAL = re.compile(r"causal|tril|triu|attn_mask|attention_mask|(?:^|[._])bias$", re.IGNORECASE)
_POSITIONS = re.compile(r"position_?ids|positions?$|cache_position|pos_ids", re.IGNORECASE)
_EPSILON = re.compile(r"(?:^|[._])(?:\w+_)?eps(?:ilon)?_?$", re.IGNORECASE)
_VARIANCE = re.compile(r"running_var|(?:^|[._])var(?:iance)?_?$", re.IGNORECASE)


def recipes_of(inputs: Sequence[Known], seed: int, device: str) -> Inputs:
    """Recipes by port name, and the data of those that no kind describes."""
    recipes: dict[str, Recipe] = {}
    exact: dict[str, Tensor] = {}
    for known in inputs:
        name, own = known[0], derive(seed, known[0])
        if has_data(known[2]):
            recipe, kept = from_data(known[2], own)
            exact |= {} if kept is None else {name: kept}
        else:
            recipe = drawn(known, own)
        recipes[name] = replace(recipe, device=str(torch.device(device)))
    return Inputs(recipes, exact, seed)


def notes_of(inputs: Sequence[Known]) -> tuple[str, ...]:
    """What a report has to say of these inputs."""
    zeros = [name for name, _, meta, _ in inputs if meta.data is not None and meta.dtype in FLOATS and 0 in meta.data]
    flat = [known[0] for known in inputs if not has_data(known[2]) and opened(known)]
    small = [known[0] for known in inputs if not has_data(known[2]) and is_epsilon(known)]
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
    """Whether every element is printed."""
    return meta.data is not None and len(meta.data) == math.prod(meta.shape)


def from_data(meta: Meta, seed: int) -> tuple[Recipe, Tensor | None]:
    """The recipe of a tensor whose elements are printed, and the tensor where its recipe is `exact`."""
    tensor = torch.tensor(meta.data, dtype=getattr(torch, meta.dtype)).reshape(meta.shape)
    recipe = fit(tensor, seed)
    return (recipe, None) if recipe.kind in KEPT else (placed(tensor, "exact", {}, seed), tensor)


def drawn(known: Known, seed: int) -> Recipe:
    """A recipe for a tensor of which statistics are known, or nothing."""
    _, _, meta, _ = known
    stride = torch.empty(meta.shape, device="meta").stride()
    extent = reach(meta.shape, stride)
    kind, facts = ("constant", {"value": 0}) if not extent else chosen(known)
    return Recipe(kind, meta.dtype, meta.shape, stride, "cpu", extent, 0, seed, tuple(sorted(facts.items())))


def chosen(known: Known) -> tuple[str, Facts]:
    """The kind and the facts, by dtype."""
    dtype = known[2].dtype
    if dtype == "bool":
        return mask(known, 0, 1)
    if dtype in INTEGERS:
        return whole(known)
    if dtype in FLOATS:
        return real(known)
    if dtype.startswith("complex"):
        mean, std = number(known[2].mean, 0.0), number(known[2].std, 1.0)
        return "normal", normal(mean, std / math.sqrt(2), None, None)
    return "none", {"why": f"GraphNet keeps no values of {dtype}"}


# ------------------------------------------------------------------ whole numbers


def whole(known: Known) -> tuple[str, Facts]:
    """Whole numbers in the range that is promised and used."""
    name, _, meta, use = known
    info = torch.iinfo(getattr(torch, meta.dtype))
    limit = info.max if use.below is None else max(0, use.below - 1)
    guess = 1 if is_mask(name, use) or "flag" in use.kinds or use.below is None else limit
    low = int(number(meta.min_val, 0))
    high = max(low, min(limit, int(number(meta.max_val, guess))))
    low = max(info.min, min(low, high))
    period = meta.shape[-1] if meta.shape else 1
    if _POSITIONS.search(name) and (meta.max_val is None or high - low == period - 1) and period <= limit - low + 1:
        return "arange", {"start": low, "step": 1, "period": period}
    if low == high:
        return "constant", {"value": low}
    if (low, high) == (0, 1) and is_mask(name, use):
        return mask(known, 0, 1)
    return "integers", {"low": low, "high": high}


# ------------------------------------------------------------------ masks


def is_mask(name: str, use: Use) -> bool:
    """Whether an input is a mask by its use, or by its name."""
    return "mask" in use.kinds or _MASK.search(name) is not None


def mask(known: Known, closed: Any, opened: Any) -> tuple[str, Facts]:
    """A triangle where the name says so and the shape is a square, else three places in four open."""
    name, _, meta, _ = known
    if len(meta.shape) >= 2 and meta.shape[-1] == meta.shape[-2] > 1 and _CAUSAL.search(name):
        rows, cols = meta.shape[-2:]
        return "tril", {"rows": rows, "cols": cols, "diagonal": 0, "inside": opened, "outside": closed}
    return "choice", {"values": (closed, opened), "weights": (1, 3)}


# ------------------------------------------------------------------ floats


def real(known: Known) -> tuple[str, Facts]:
    """Floats: a mask, one number, positive ones, or a normal."""
    name, role, meta, use = known
    mean, std = number(meta.mean, 0.0), number(meta.std, 1.0)
    low, high = meta.min_val, meta.max_val
    if closing(meta, use):
        floor = -math.inf if meta.mean == -math.inf else torch.finfo(getattr(torch, meta.dtype)).min
        return mask(known, floor, 0.0)
    if is_epsilon(known):
        return "constant", {"value": EPSILON}
    if math.prod(meta.shape) == 1:
        slack = OPEN * half(meta) if role == "parameter" and "read" not in use.kinds else 0.0
        return "uniform", {"low": mean - slack, "high": mean + slack}
    if "read" in use.kinds:
        return even(math.prod(meta.shape), mean, std)
    if "variance" in use.kinds or (role == "buffer" and _VARIANCE.search(name)) or (low == 0 and high is None):
        return "choice", positive(meta, number(meta.mean, 1.0), number(meta.std, 0.25))
    if "positive" in use.kinds and mean > half(meta):
        return "choice", positive(meta, mean, std)
    if opened(known):
        std = OPEN * half(meta)
    return "normal", normal(mean, std, low, high)


def is_epsilon(known: Known) -> bool:
    """Whether a number is one that keeps a divisor from nothing, of which the printing left nothing."""
    name, _, meta, _ = known
    small = meta.mean is not None and abs(meta.mean) < half(meta) and not meta.min_val
    return small and math.prod(meta.shape) == 1 and meta.dtype in FLOATS and _EPSILON.search(name) is not None


def even(count: int, mean: float, std: float) -> tuple[str, Facts]:
    """Numbers that the program reads one by one: evenly spread, so that no draw changes what was read."""
    step = std / math.sqrt(count * (count + 1) / 12)
    if step == 0:
        return "constant", {"value": mean}
    return "arange", {"start": mean - step * (count - 1) / 2, "step": step, "period": count}


def closing(meta: Meta, use: Use) -> bool:
    """Whether floats are a mask whose closed places are -inf or the least number of the dtype."""
    mean, std = meta.mean, meta.std
    if mean is None or math.prod(meta.shape) == 1:
        return False
    if math.isfinite(mean):
        return mean <= CLOSED and (use.kinds & {"additive", "mask"} != set() or std is None or not math.isfinite(std))
    return mean == -math.inf or (math.isnan(mean) and "additive" in use.kinds)


def opened(known: Known) -> bool:
    """Whether a tensor's deviation is printed as 0 and may be taken for more: of weights and of buffers of floats."""
    name, role, meta, use = known
    fixed = {"mask", "additive", "read", "positive", "variance"} & use.kinds or _VARIANCE.search(name)
    weights = role in ("parameter", "buffer") or "average" in use.kinds
    return bool(
        weights and not fixed and meta.dtype in FLOATS and math.prod(meta.shape) > 1
        and meta.std is not None and abs(meta.std) < half(meta) and not is_mask(name, use)
    )  # fmt: skip


def half(meta: Meta) -> float:
    """Half of the last digit that mean and std are printed with."""
    return float(0.5 * 10.0**-meta.digits)


def number(value: float | None, default: float) -> float:
    """A statistic, where there is a finite one."""
    return default if value is None or not math.isfinite(value) else float(value)


def normal(mean: float, std: float, low: float | None, high: float | None) -> Facts:
    """The facts of a normal, within four deviations and its bounds."""
    floor = mean - 4 * std if low is None else max(low, mean - 4 * std)
    ceiling = mean + 4 * std if high is None else min(high, mean + 4 * std)
    return {"mean": mean, "std": std, "low": min(floor, ceiling), "high": max(floor, ceiling)}


def positive(meta: Meta, mean: float, std: float) -> Facts:
    """FLOOR of the mean, and on it quantiles of a log-normal distribution: with just this mean and deviation."""
    slack = OPEN * half(meta)
    mean = max(mean, slack)
    above = mean * (1 - FLOOR)
    std = min(max(std, min(slack, 0.2 * mean)), above * 0.9 * math.sqrt(QUANTILES - 1))
    tops = [NormalDist().inv_cdf((index + 0.5) / QUANTILES) for index in range(QUANTILES)]
    sigma = bisect(lambda sigma: spread([math.exp(sigma * top) for top in tops]), std / above, 0.0, 16.0)
    values = [math.exp(sigma * top) for top in tops]
    scale = above * QUANTILES / sum(values)
    told = tuple(float(f"{FLOOR * mean + scale * value:.7g}") for value in values)
    return {"values": told, "weights": (1,) * QUANTILES}


def spread(values: Sequence[float]) -> float:
    """Deviation over mean."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def bisect(of: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a growing function is as wanted."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < wanted else (low, middle)
    return low
