"""A GraphNet sample as a module that can be captured: parameters and buffers under their own names, inputs, recipes.

The module's forward is a function that `emit` compiles from the parsed program. The file is executed only if the parser
refused it and the caller trusts it; a note of the sample says so.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from backprint._torch.modes import TorchDispatchMode
from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.checks.sizes import storage_nbytes, why_outgrown
from backprint.common.memory import why_too_large
from backprint.common.text import check_choice
from backprint.errors import SampleError
from backprint.graph.nouns import Graph
from backprint.graphnet import emit
from backprint.graphnet.code import ForwardArgument, FunctionCall, ModelProgram, Name, Return, located_expressions
from backprint.graphnet.emit import NORMS, calls_to, compile_program
from backprint.graphnet.metas import Known, Meta, Use, read_sample_text, read_symbol_examples
from backprint.graphnet.read import GraphNetSample, NamedInput, SamplePlan, plan_of
from backprint.sample.generator import Recipe
from backprint.sample.inputs import Inputs, fit, recipe_at
from backprint.sample.recipes import FLOATS, INTEGERS, derive, reach
from backprint.values.settings import preserving_random_states
from backprint.values.tree import plain_leaves

# ---- Runs on meta tensors: they choose sizes, and find the batch norms that cannot train
# The metadata says `data = [4]` for nearly every SymInt, whatever its value was. Dynamo puts a SymInt before the tensor
# whose size it first is, so that tensor's sizes are the candidates, the example values of the constraints first.


MOST_TRIES = 64


# ---- Numbers among the inputs


def choose_numbers(
    program: ModelProgram, metas: Mapping[str, Meta], examples: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Choose values for the arguments that are numbers; returns notes on them too."""
    numbers = [argument for argument in program.arguments if argument.kind.startswith("Sym")]
    if not numbers:
        return {}, ()
    static = {size for meta in metas.values() if "_parameters_" in meta.name for size in meta.shape}
    choices = [number_candidates(argument, program.arguments, metas, examples, static) for argument in numbers]
    names = [argument.name for argument in numbers]
    best = likeliest_numbers(numbers, choices, program.arguments, metas)
    first = dict(zip(names, best, strict=True))
    if not computes_with(program, names):
        return first, numbers_note(first, numbers, "nothing in the graph reads them")
    cause = ""
    for tried in itertools.islice(itertools.chain([best], itertools.product(*choices)), MOST_TRIES):
        numbers_by_name = dict(zip(names, tried, strict=True))
        error = run_on_shapes(program, metas, numbers_by_name).error
        if error is None:
            return numbers_by_name, numbers_note(numbers_by_name, numbers, "the graph runs on shapes with them")
        cause = cause or error
    return first, numbers_note(first, numbers, f"the graph does not run on shapes alone: {cause}")


def numbers_note(chosen: Mapping[str, Any], numbers: Sequence[ForwardArgument], why: str) -> tuple[str, ...]:
    """Return the note on the numbers."""
    values = ", ".join(f"{argument.name} = {chosen[argument.name]}" for argument in numbers)
    return (f"numbers among the inputs: {values} ({why})",)


def number_candidates(
    argument: ForwardArgument,
    arguments: Sequence[ForwardArgument],
    metas: Mapping[str, Meta],
    examples: Mapping[str, int],
    static: set[int],
) -> tuple[Any, ...]:
    """Return the candidate values of a number, the likeliest first."""
    meta = metas.get(argument.name)
    printed = meta.data[0] if meta is not None and meta.data else None
    if argument.kind == "SymFloat":
        return (float(printed) if printed is not None else 1.0,)
    if argument.kind == "SymBool":
        return (bool(printed),)
    tensor = tensor_after(argument, arguments)
    sizes = metas[tensor].shape if tensor in metas else ()
    if not (argument.name[:1] in "su" and argument.name[1:].isdigit() and sizes):
        kept = [] if printed is None else [int(printed)]
        return tuple(dict.fromkeys([*kept, *examples.values(), 1, 2]))
    known = set(examples.values())

    def unlikely(place: int) -> tuple[bool, bool, int, bool, int]:
        size = sizes[place]
        return (size < 2, size not in known, -sizes.count(size), size in static, place)

    ordered = [sizes[place] for place in sorted(range(len(sizes)), key=unlikely)]
    return tuple(dict.fromkeys([*ordered, *examples.values(), *([] if printed is None else [int(printed)]), 1]))


def likeliest_numbers(
    numbers: Sequence[ForwardArgument],
    choices: Sequence[tuple[Any, ...]],
    arguments: Sequence[ForwardArgument],
    metas: Mapping[str, Meta],
) -> tuple[Any, ...]:
    """Return the likeliest value of each number: those before one tensor are distinct, in the order of its sizes."""
    groups: dict[str, list[int]] = {}
    for place, argument in enumerate(numbers):
        groups.setdefault(tensor_after(argument, arguments), []).append(place)
    likeliest = [choice[0] for choice in choices]
    for name, places in groups.items():
        sizes = metas[name].shape if name in metas else ()
        best = [size for size in choices[places[0]][: len(places)] if size in sizes]
        if len(places) > 1 and len(best) == len(places):
            for place, size in zip(places, sorted(best, key=sizes.index), strict=True):
                likeliest[place] = size
    return tuple(likeliest)


def tensor_after(argument: ForwardArgument, arguments: Sequence[ForwardArgument]) -> str:
    """Return the first tensor after a number among the arguments, or ''."""
    after = arguments[arguments.index(argument) + 1 :]
    return next((candidate.name for candidate in after if not candidate.kind.startswith("Sym")), "")


def computes_with(program: ModelProgram, names: Sequence[str]) -> bool:
    """Whether a line computes with one of these names, rather than only renaming it."""
    wanted = set(names)
    for line in program.lines:
        value = line.value
        if isinstance(value, Name) and value.id in wanted:
            for target in getattr(line, "targets", ()):
                wanted |= {target.id} if isinstance(target, Name) else set()
    return any(
        isinstance(value, Name) and value.id in wanted and not only_renames(program, line)
        for line, value in located_expressions(program)
        if isinstance(value, Name)
    )


def only_renames(program: ModelProgram, number: int) -> bool:
    """Whether a line only renames a value."""
    return any(line.line == number and isinstance(line.value, Name) for line in program.lines)


# ---- Running on shapes


@dataclass(frozen=True, slots=True)
class ShapeRun:
    """The outcome of a run on shapes: its error, and the lines whose batch norm has one value a channel."""

    error: str | None
    alone: tuple[int, ...] = ()
    outgrown: str = ""
    """The line whose result does not fit in memory, or ''."""


def run_on_shapes(program: ModelProgram, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> ShapeRun:
    """Run a program on meta tensors; numbers and small constants that it reads have their values."""
    alone: list[int] = []

    def batch_norm(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if x.dim() < 2 or x.numel() <= x.shape[1]:
            alone.append(sys._getframe(1).f_lineno)
        return torch.empty_like(x)

    names = {argument.name: argument.name for argument in program.arguments}
    extra = dict.fromkeys(NORMS, batch_norm)
    try:
        values = [shape_argument(argument, metas, numbers) for argument in program.arguments]
        with torch.no_grad(), preserving_random_states(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function = compile_program(program, names, {}, SHAPES, "meta", extra)
            with ResultSizes():
                function(None, *values)
    except OutgrownResult as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SHAPES]
        return ShapeRun(str(error), tuple(alone), f"model.py:{lines[-1] if lines else '?'}: {error}")
    except Exception as error:  # a graph may raise anything where it has no values
        return ShapeRun(
            f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}", tuple(alone)
        )
    return ShapeRun(None, tuple(alone))


SHAPES = "<shapes>"
"""The file name of the function that runs on shapes."""


class OutgrownResult(Exception):
    """Raised at a result that would not fit in memory."""


class ResultSizes(TorchDispatchMode):
    """A dispatch mode that raises at a meta tensor that would not fit in memory if it had values."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        complaint = why_outgrown(function, args, kwargs or {})  # results with values, such as a factory's
        result = None if complaint else function(*args, **(kwargs or {}))
        complaint = complaint or why_too_large(max(map(storage_nbytes, plain_leaves(result)), default=0))
        if complaint:
            raise OutgrownResult(f"{function} would make {complaint}")
        return result


def shape_argument(argument: ForwardArgument, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> Any:
    """Return the value of an argument in a run on shapes."""
    if argument.name in numbers:
        return numbers[argument.name]
    meta = metas[argument.name]
    dtype = getattr(torch, meta.dtype)
    if not meta.shape and meta.data is not None:
        return torch.tensor(meta.data[0], dtype=dtype)
    return torch.empty(meta.shape, dtype=dtype, device="meta")


def find_untrainable(program: ModelProgram, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> ShapeRun:
    """Find the lines whose batch norm cannot train, because a channel has one value."""
    return run_on_shapes(program, metas, numbers) if calls_to(program, NORMS) else ShapeRun(None)


def careful_batch_norm(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Batch norm in training mode, in eval mode where a channel has one value."""
    if x.numel() > math.prod(x.shape[1:2]):
        return F.batch_norm(x, *args, **kwargs)
    statistics = dict(
        zip(("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"), args, strict=False)
    )
    return F.batch_norm(x, **{**statistics, **kwargs, "training": False})


# ---- Recipes from GraphNet's metadata: each keeps what the fields state, and chooses the rest for power
# - `data` is kept as it is printed, also where 1e-12 was printed as 0.000000.
# - `min_val` and `max_val` are bounds. Integers lie between them and below what their use allows; positions count.
# - Floats have the mean and the standard deviation that the weights had: with a smaller one, the results would depend
#   on biases and running means, and not on the image.
# - A variance, a divisor and an argument of a logarithm or a root are positive, with the stated mean and deviation:
#   they take QUANTILES values of a log-normal distribution, none near zero, where the quotient of a norm would be
#   very large.
# - Masks stay masks: a causal one is triangular, others are mostly open, and closed places keep the value that closes
#   them.
# - Numbers that the program reads are not drawn, because a capture is valid for these numbers alone: one is its mean,
#   several are evenly spread.
# - A deviation printed as 0.000 is below half of the last digit. Zero-initialized scales and biases would hide the
#   values that they multiply, so floating-point Parameters and buffers take most of the rounding error as their
#   deviation.

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
    """Return the recipe of a tensor whose elements are given, and the tensor itself where its recipe is `exact`."""
    tensor = torch.tensor(meta.data, dtype=getattr(torch, meta.dtype)).reshape(meta.shape)
    recipe = fit(tensor, seed)
    return (recipe, None) if recipe.kind in KEPT else (recipe_at(tensor, "exact", {}, seed), tensor)


def recipe_from_statistics(known: Known, seed: int) -> Recipe:
    """Return the recipe of a tensor of which at most statistics are known."""
    _, _, meta, _ = known
    stride = torch.empty(meta.shape, device="meta").stride()
    extent = reach(meta.shape, stride)
    kind, facts = ("constant", {"value": 0}) if not extent else kind_and_facts(known)
    return Recipe(kind, meta.dtype, meta.shape, stride, "cpu", extent, 0, seed, tuple(sorted(facts.items())))


def kind_and_facts(known: Known) -> tuple[str, RecipeFacts]:
    """Return a recipe's kind and facts, by dtype."""
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


# ---- Whole numbers


def integer_recipe(known: Known) -> tuple[str, RecipeFacts]:
    """Return the recipe of integers: in the range that the metadata and the uses allow."""
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


# ---- Masks


def is_mask_input(name: str, use: Use) -> bool:
    """Whether an input is a mask by its use or its name."""
    return "mask" in use.kinds or _MASK.search(name) is not None


def mask_recipe(known: Known, closed: Any, opened: Any) -> tuple[str, RecipeFacts]:
    """Return the recipe of a mask: triangular if the name says so and the shape is square, else three places in four
    open."""
    name, _, meta, _ = known
    if len(meta.shape) >= 2 and meta.shape[-1] == meta.shape[-2] > 1 and _CAUSAL.search(name):
        rows, cols = meta.shape[-2:]
        return "tril", {"rows": rows, "cols": cols, "diagonal": 0, "inside": opened, "outside": closed}
    return "choice", {"values": (closed, opened), "weights": (1, 3)}


# ---- Floats


def float_recipe(known: Known) -> tuple[str, RecipeFacts]:
    """Return the recipe of floats: a mask, one number, a positive or a normal distribution."""
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
    """Return the recipe of numbers that the program reads: evenly spread, so that no draw changes them."""
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
        weights
        and not fixed
        and meta.dtype in FLOATS
        and math.prod(meta.shape) > 1
        and meta.std is not None
        and abs(meta.std) < rounding_slack(meta)
        and not is_mask_input(name, use)
    )


def rounding_slack(meta: Meta) -> float:
    """Half of the last printed digit of mean and std."""
    return float(0.5 * 10.0**-meta.digits)


def finite_or(value: float | None, default: float) -> float:
    """Return a statistic if it is finite, else the default."""
    return default if value is None or not math.isfinite(value) else float(value)


def normal_facts(mean: float, std: float, low: float | None, high: float | None) -> RecipeFacts:
    """Return the facts of a normal distribution, cut at four deviations and at its bounds."""
    floor = mean - 4 * std if low is None else max(low, mean - 4 * std)
    ceiling = mean + 4 * std if high is None else min(high, mean + 4 * std)
    return {"mean": mean, "std": std, "low": min(floor, ceiling), "high": max(floor, ceiling)}


def lognormal_facts(meta: Meta, mean: float, std: float) -> RecipeFacts:
    """Return the facts of a positive tensor of this mean and deviation: FLOOR of the mean plus log-normal quantiles."""
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
    """Return the argument at which a growing function has a value."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle) < wanted else (low, middle)
    return low


# ---- The module

Fake = Callable[[], AbstractContextManager[Any]]
"""Makes the mode under which tensors have no values."""

GraphRunner = Callable[[Graph], Callable[..., Any]]
"""Makes a function of a Graph, which takes its inputs by local name."""

SMALL = 64
"""Tensors of up to so many elements have values even with `fake`."""


@dataclass(frozen=True, slots=True)
class BuiltSample:
    """A sample to capture: call `module(**inputs)`. `with_grad` and `without_grad` are (name, why) of each input."""

    module: nn.Module
    inputs: dict[str, Any]
    recipes: Inputs
    with_grad: tuple[tuple[str, str], ...]
    without_grad: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    bytes: int


def build_sample(
    sample: GraphNetSample,
    *,
    device: str = "cpu",
    mode: str | None = None,
    fake: Fake | None = None,
    run: GraphRunner | None = None,
) -> BuiltSample:
    """Build a sample as a module and its inputs; with `fake`, of tensors without values, made under its mode.

    `run` makes a function of a Graph: a sample whose `model.py` is a text of Backprint's own needs it.
    """
    check_choice("mode", mode, optional=True)
    plan = plan_of(sample)
    known: list[Known] = [
        (named.name, named.role, plan.metas[named.raw], plan.uses.get(named.raw, Use()))
        for named in plan.inputs
        if named.raw in plan.metas
    ]
    recipes = recipes_from_metas(known, 0, device)
    forward, numbers, notes = forward_in_mode(sample, plan, mode, device, fake, run)
    if sample.program is not None and fake is None:
        check_result_sizes(sample, numbers)
    tensors = recipes.make() if fake is None else unallocated_tensors(known, recipes, device, fake)
    names_with_grad = {name for name, _ in plan.with_grad}
    with nullcontext() if fake is None else fake():
        module = module_with_state(sample.name, forward, plan.inputs, tensors, names_with_grad)
    inputs: dict[str, Any] = {}
    for named in plan.inputs:
        if named.role == "input" and named.raw in numbers:
            inputs[named.name] = numbers[named.raw]
        elif named.role == "input":
            inputs[named.name] = tensors[named.name].requires_grad_(named.name in names_with_grad)
    module.train(mode != "eval")
    return BuiltSample(
        module,
        inputs,
        recipes,
        plan.with_grad,
        plan.without_grad,
        (*sample.notes, *notes, *recipe_notes(known)),
        plan.bytes,
    )


def check_result_sizes(sample: GraphNetSample, numbers: Mapping[str, Any]) -> None:
    """Raise where a line's result does not fit in memory, as far as shapes alone tell."""
    assert sample.program is not None
    if complaint := run_on_shapes(sample.program, sample.metas, numbers).outgrown:
        raise SampleError(f"{sample.path}: {complaint}")


# ---- Forward


def forward_in_mode(
    sample: GraphNetSample,
    plan: SamplePlan,
    mode: str | None,
    device: str,
    fake: Fake | None = None,
    run: GraphRunner | None = None,
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """Return the module's forward in a mode, the inputs that are numbers, and notes on both."""
    program, notes = sample.program, list[str]()
    extra: dict[str, Any] = {}
    if sample.graph is not None:
        assert run is not None
        program, extra = program_that_calls(sample, run(sample.graph))
    elif program is None:
        program, extra = program_that_calls(sample, execute_model(sample.path / "model.py", fake))
        notes.append(f"executed, because it is trusted: {sample.refused}")
    numbers, more = choose_numbers(program, sample.metas, read_symbol_examples(sample.path))
    notes += more
    if mode is not None and sample.program is not None:
        probe = find_untrainable(program, sample.metas, numbers) if mode == "train" else ShapeRun(None)
        program, more = emit.rewrite_mode(program, mode, probe.alone)
        notes += [*more, *batch_norm_notes(probe)]
        if probe.error is not None:
            extra = dict.fromkeys(emit.NORMS[:1], careful_batch_norm)
    elif mode is not None:
        odd = "a file that is executed as it is" if sample.graph is None else "a graph, whose operators have their mode"
        notes.append(f"mode {mode}: nothing changed in {odd}")
    names = {named.raw: named.name for named in plan.inputs if named.role == "input"}
    state = {named.raw: named.name for named in plan.inputs if named.role != "input"}
    function = compile_program(program, names, state, str(sample.path / "model.py"), device, extra)
    return function, numbers, tuple(notes)


def batch_norm_notes(probe: ShapeRun) -> list[str]:
    """Notes on batch norms that cannot train."""
    if probe.error is not None:
        why = "a batch_norm with one value a channel stays in eval mode; which do is seen when the graph runs"
        return [f"{why} ({probe.error})"]
    if not probe.alone:
        return []
    lines = ", ".join(f"model.py:{line}" for line in probe.alone[:3])
    more = f" and {len(probe.alone) - 3} more" if len(probe.alone) > 3 else ""
    return [f"{len(probe.alone)} batch_norm stay in eval mode, one value a channel: {lines}{more}"]


EXECUTED = "torch.executed"


def program_that_calls(sample: GraphNetSample, function: Callable[..., Any]) -> tuple[ModelProgram, dict[str, Any]]:
    """Return a program that calls one function with all arguments: a Graph's, or the class of a file that was
    executed."""
    arguments = sample.arguments
    call = FunctionCall(EXECUTED, (), tuple((argument.name, Name(argument.name)) for argument in arguments))
    return ModelProgram(arguments, (Return(1, call),)), {EXECUTED: function}


def execute_model(path: Path, fake: Fake | None = None) -> nn.Module:
    """Execute a trusted file, as importing it does, and make an instance of its class; with `fake`, without values."""
    module = ModuleType("graphnet_trusted")
    module.__file__ = str(path)
    try:
        with nullcontext() if fake is None else fake():
            # an import would leave a cache beside the file
            exec(compile(read_sample_text(path), str(path), "exec"), vars(module))
            graph_module = module.GraphModule()
    except Exception as error:  # a trusted file may raise anything
        raise SampleError(f"{path}: executing it raised {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(graph_module, nn.Module):
        raise SampleError(f"{path}: its GraphModule is a {type(graph_module).__name__}, not a torch.nn.Module")
    return graph_module


# ---- The module


def module_with_state(
    name: str,
    forward: Any,
    inputs: Iterable[NamedInput],
    tensors: Mapping[str, Tensor],
    names_with_grad: Collection[str],
) -> nn.Module:
    """Make a module of this class name, with parameters and buffers under their FQNs."""
    module: nn.Module = type(name, (nn.Module,), {"forward": forward})()
    for named in inputs:
        if named.role == "input":
            continue
        *path, last = named.name.split(".")
        owner = module
        for step in path:  # add_module refuses names of methods, such as `type`
            owner = own_modules(owner).setdefault(step, nn.Module())
        tensor = tensors[named.name]
        if named.role == "parameter":
            own_parameters(owner)[last] = nn.Parameter(tensor, requires_grad=named.name in names_with_grad)
        else:
            own_buffers(owner)[last] = tensor
    return module


def unallocated_tensors(known: Iterable[Known], recipes: Inputs, device: str, fake: Fake) -> dict[str, Tensor]:
    """Tensors under `fake`; small ones, which code may read, have their recipe's values."""
    small = {name for name, _, meta, _ in known if meta.data is not None or math.prod(meta.shape) <= SMALL}
    here = Inputs({name: replace(recipes.recipes[name], device="cpu") for name in small}, recipes.exact, recipes.seed)
    values = {name: tensor.flatten().tolist() for name, tensor in here.make().items()}
    tensors: dict[str, Tensor] = {}
    with fake():
        for name, _, meta, _ in known:
            dtype = getattr(torch, meta.dtype)
            if name in values:
                tensors[name] = torch.tensor(values[name], dtype=dtype, device=device).reshape(meta.shape)
            else:
                tensors[name] = torch.empty(meta.shape, dtype=dtype, device=device)
    return tensors
