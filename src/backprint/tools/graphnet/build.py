"""Builds a module that can be captured from a GraphNet sample, with its inputs and a recipe for each tensor's values.

Parameters and buffers have the names that they had in the original model. The module's forward is a function that
`emit.py` compiles from the parsed program. The file itself is executed only if the parser refused it and the caller
trusts it; a note of the sample then says so.

Words of this file:

- `ModelProgram`: the `forward` of a sample's `model.py`, as `ast` lines; `ForwardArgument`: an argument of it, whose
  `kind` is `Tensor`, `Parameter`, `SymInt`, `SymFloat`, `SymBool` or ''. A *number* is an argument of a `Sym` kind.
- `Meta`: the metadata of one tensor: shape, dtype, statistics, and `data`, all its elements, if they were printed.
- `Use`: what the program does with an input: words (`kinds`) such as `index`, `mask`, `additive` (a mask that is added
  to scores), `positive` or `read` (a number that the program reads), and the bound that an index is `below`.
- `KnownInput`: the name and the role of an input with its Meta and its Use. The role is `parameter`, `buffer` or
  `input`.
- *Recipe*: how an input's values are made again: a kind, such as `normal`, its facts, such as the mean, and a seed.
- *Norms* are batch norms. In training mode one needs two values or more per channel, as it divides by their deviation.
"""

from __future__ import annotations

import ast
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
from backprint.common.memory import why_too_large
from backprint.common.text import check_choice
from backprint.errors import SampleError
from backprint.graph.nouns import Graph
from backprint.run_sample import Recipe
from backprint.sample.inputs import Inputs, fit, recipe_at
from backprint.sample.recipes import FLOATS, INTEGERS, derive
from backprint.tools.graphnet import emit
from backprint.tools.graphnet.code import ForwardArgument, ModelProgram, call_node, count_calls, name_node, set_line
from backprint.tools.graphnet.emit import NORMS, compile_program
from backprint.tools.graphnet.metas import KnownInput, Meta, Use, read_sample_text, read_symbol_examples
from backprint.tools.graphnet.read import GraphNetSample, NamedInput, SamplePlan, plan_of
from backprint.values.bounds import storage_nbytes, why_outgrown
from backprint.values.geometry import span
from backprint.values.settings import preserving_random_states
from backprint.values.tree import plain_leaves

# ---- Numbers among the inputs
# GraphNet's metadata has `data = [4]` for nearly every SymInt, whatever its value was. In Dynamo's graphs, a SymInt
# comes before the first tensor that has it as a size. So the sizes of that tensor are the candidates for its value, and
# those among them that `input_tensor_constraints.py` has as example values come first. The candidates are tried by
# running the program on meta tensors.

MOST_TRIES = 64
"""The most combinations of values for all numbers that are tried."""


def _choose_numbers(
    program: ModelProgram, metas: Mapping[str, Meta], examples: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Choose values for the arguments that are numbers; return the values by name, and notes about them; nothing if no
    argument is a number. If the program runs on meta tensors with none of the candidates, the likeliest are taken.

    `metas` has the metadata of the other arguments, and `examples` the example values of the symbols, by name.
    """
    numbers = [argument for argument in program.arguments if argument.kind.startswith("Sym")]
    if not numbers:
        return {}, ()
    parameter_sizes = {size for meta in metas.values() if "_parameters_" in meta.name for size in meta.shape}
    choices = [number_candidates(argument, program.arguments, metas, examples, parameter_sizes) for argument in numbers]
    names = [argument.name for argument in numbers]
    best = _likeliest_numbers(numbers, choices, program.arguments, metas)
    likeliest = dict(zip(names, best, strict=True))
    if not _uses_values_of(program, names):
        return likeliest, _numbers_note(likeliest, numbers, "nothing in the graph reads them")
    first_error = ""
    # The likeliest combination first, then all of them.
    for candidate in itertools.islice(itertools.chain([best], itertools.product(*choices)), MOST_TRIES):
        numbers_by_name = dict(zip(names, candidate, strict=True))
        error = _run_on_shapes(program, metas, numbers_by_name).error
        if error is None:
            return numbers_by_name, _numbers_note(numbers_by_name, numbers, "the graph runs on meta tensors with them")
        first_error = first_error or error
    return likeliest, _numbers_note(likeliest, numbers, f"the graph does not run on meta tensors: {first_error}")


def _numbers_note(chosen: Mapping[str, Any], numbers: Sequence[ForwardArgument], why: str) -> tuple[str, ...]:
    """Return the note about the chosen values; `why` is the reason for them."""
    values = ", ".join(f"{argument.name} = {chosen[argument.name]}" for argument in numbers)
    return (f"numbers among the inputs: {values} ({why})",)


def number_candidates(
    argument: ForwardArgument,
    arguments: Sequence[ForwardArgument],
    metas: Mapping[str, Meta],
    examples: Mapping[str, int],
    parameter_sizes: set[int],
) -> tuple[Any, ...]:
    """Return the candidate values of a number, the likeliest first: of a float or a bool its `data` alone, of an
    integer the sizes of the first tensor after it among the `arguments`, if it is a size by its name, example values
    and its `data`.

    `examples` has the example values of the symbols. `parameter_sizes` are all sizes of parameters: a size of an input
    that is also one of these is less likely to be dynamic.
    """
    meta = metas.get(argument.name)
    data_value = meta.data[0] if meta is not None and meta.data else None
    if argument.kind == "SymFloat":
        return (float(data_value) if data_value is not None else 1.0,)
    if argument.kind == "SymBool":
        return (bool(data_value),)
    tensor = _tensor_after(argument, arguments)
    sizes = metas[tensor].shape if tensor in metas else ()
    values_in_data = [] if data_value is None else [int(data_value)]
    is_symbol = argument.name[:1] in "su" and argument.name[1:].isdigit()  # as Dynamo names sizes: `s77`, `u0`
    if not is_symbol or not sizes:
        return tuple(dict.fromkeys([*values_in_data, *examples.values(), 1, 2]))
    example_values = set(examples.values())

    def rank_of_dimension(dim: int) -> tuple[bool, bool, int, bool, int]:
        """Return the key that puts the likeliest size first: not 0 or 1, which Dynamo makes constants; one of the
        examples; one that several dimensions have; none of a parameter; the first."""
        size = sizes[dim]
        return (size < 2, size not in example_values, -sizes.count(size), size in parameter_sizes, dim)

    ordered = [sizes[dim] for dim in sorted(range(len(sizes)), key=rank_of_dimension)]
    return tuple(dict.fromkeys([*ordered, *examples.values(), *values_in_data, 1]))


def _likeliest_numbers(
    numbers: Sequence[ForwardArgument],
    choices: Sequence[tuple[Any, ...]],
    arguments: Sequence[ForwardArgument],
    metas: Mapping[str, Meta],
) -> tuple[Any, ...]:
    """Return the likeliest value of each of the `numbers`, of its candidates (`choices`, the likeliest first).

    If several numbers come before the same tensor, they are different sizes of it, in the order of its dimensions.
    """
    groups: dict[str, list[int]] = {}
    for index, argument in enumerate(numbers):
        groups.setdefault(_tensor_after(argument, arguments), []).append(index)
    likeliest = [choice[0] for choice in choices]
    for name, indices in groups.items():
        sizes = metas[name].shape if name in metas else ()
        # Numbers before one tensor have the same candidates: as many of these as there are numbers.
        best = [size for size in choices[indices[0]][: len(indices)] if size in sizes]
        if len(indices) > 1 and len(best) == len(indices):
            for index, size in zip(indices, sorted(best, key=sizes.index), strict=True):
                likeliest[index] = size
    return tuple(likeliest)


def _tensor_after(argument: ForwardArgument, arguments: Sequence[ForwardArgument]) -> str:
    """Return the name of the first tensor after a number among the arguments; '' if there is none."""
    after = arguments[arguments.index(argument) + 1 :]
    return next((candidate.name for candidate in after if not candidate.kind.startswith("Sym")), "")


def _uses_values_of(program: ModelProgram, names: Sequence[str]) -> bool:
    """Whether a line of the program uses a variable of one of these names in an expression. `y = x` only gives the
    value of `x` another name, so the uses of `y` are looked for too."""
    variables = set(names)
    for line in program.lines:
        if isinstance(line.value, ast.Name):
            if line.value.id in variables and isinstance(line, ast.Assign):
                variables |= {target.id for target in line.targets if isinstance(target, ast.Name)}
        elif any(isinstance(node, ast.Name) and node.id in variables for node in ast.walk(line)):
            return True
    return False


# ---- Runs on meta tensors
# They test choices of numbers, and find the batch norms that cannot train and the results that would not fit in memory.


@dataclass(frozen=True, slots=True)
class _ShapeRun:
    """The outcome of a run on meta tensors."""

    error: str | None
    """The error that ended the run; None if it reached the end."""
    single_value_norms: tuple[int, ...] = ()
    """The numbers of the lines that call a batch norm with only one value per channel, of which no variance exists."""
    too_large: str = ""
    """The line whose result does not fit in memory, and the size of the result; '' if all results fit."""


def _run_on_shapes(program: ModelProgram, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> _ShapeRun:
    """Run a program on meta tensors. Numbers, and tensors of one element whose value is in the metadata, have their
    values, because the program may read them. What the run raises is part of its outcome."""
    single_value_norms: list[int] = []

    def batch_norm(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Stand for a batch norm, which returns a tensor like its input; note the line that calls it on one value per
        channel."""
        if x.dim() < 2 or x.numel() <= x.shape[1]:  # at most one element for each channel
            single_value_norms.append(sys._getframe(1).f_lineno)
        return torch.empty_like(x)

    unchanged_names = {argument.name: argument.name for argument in program.arguments}
    replacements = dict.fromkeys(NORMS, batch_norm)
    try:
        values = [shape_argument(argument, metas, numbers) for argument in program.arguments]
        with torch.no_grad(), preserving_random_states(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # All arguments are arguments of the function here, and none is state of a module.
            function = compile_program(
                program, unchanged_names, state={}, file=SHAPES, device="meta", extra_functions=replacements
            )
            with _ResultSizes():
                function(None, *values)  # None for `self`, in which no state is looked up
    except _TooLargeResult as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SHAPES]
        return _ShapeRun(str(error), tuple(single_value_norms), f"model.py:{lines[-1] if lines else '?'}: {error}")
    except Exception as error:  # operators may raise any exception on meta tensors, which have no values
        first_line = str(error).splitlines()[0][:120] if str(error) else ""
        return _ShapeRun(f"{type(error).__name__}: {first_line}", tuple(single_value_norms))
    return _ShapeRun(None, tuple(single_value_norms))


SHAPES = "<shapes>"
"""The file name of the compiled function, by which its frames are found in a traceback."""


class _TooLargeResult(Exception):
    """Raised at a result that would not fit in memory."""


class _ResultSizes(TorchDispatchMode):
    """A dispatch mode that raises _TooLargeResult if a result, which is a meta tensor here, would not fit in memory if
    it had values."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; raise _TooLargeResult with what is too large about its result (a `complaint`, '' if nothing
        is)."""
        # An operator on tensors with values, such as a factory function, allocates its result: it is checked before.
        complaint = why_outgrown(function, args, kwargs or {})
        result = None if complaint else function(*args, **(kwargs or {}))
        complaint = complaint or why_too_large(max(map(storage_nbytes, plain_leaves(result)), default=0))
        if complaint:
            raise _TooLargeResult(f"{function} would make {complaint}")
        return result


def shape_argument(argument: ForwardArgument, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> Any:
    """Return the value of an argument for a run on meta tensors: a number's own, a tensor of one element with its
    value if that is known, else a meta tensor."""
    if argument.name in numbers:
        return numbers[argument.name]
    meta = metas[argument.name]
    dtype = getattr(torch, meta.dtype)
    if not meta.shape and meta.data is not None:
        return torch.tensor(meta.data[0], dtype=dtype)
    return torch.empty(meta.shape, dtype=dtype, device="meta")


def _find_untrainable_norms(program: ModelProgram, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> _ShapeRun:
    """Return a run on meta tensors with the lines whose batch norm cannot run in training mode, because it has only
    one value per channel; without a run if the program calls no batch norm."""
    return _run_on_shapes(program, metas, numbers) if count_calls(program).keys() & set(NORMS) else _ShapeRun(None)


def _batch_norm_in_train_if_possible(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Run `F.batch_norm` as it is called, which is in training mode; but in eval mode if there is only one value per
    channel."""
    if x.numel() > math.prod(x.shape[1:2]):
        return F.batch_norm(x, *args, **kwargs)
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    by_name = dict(zip(names, args, strict=False))  # the call may leave arguments out, or have them as keywords
    return F.batch_norm(x, **{**by_name, **kwargs, "training": False})


# ---- Recipes from GraphNet's metadata
# A recipe draws values that agree with every field of the metadata. What the metadata leaves open is chosen so that a
# change of any input changes the results (the power of a check).
#
# - `data` has all elements, and they are used as they are printed, even where 1e-12 was printed as 0.000000.
# - `min_val` and `max_val` are bounds. Integers are drawn between them, and below the size of what they index. Position
#   ids are not drawn: they are 0, 1, 2, …
# - Floats have the mean and the standard deviation of the original weights. With a smaller deviation, the results would
#   depend on biases and running means, and hardly on the model's input.
# - A variance, a divisor, and an argument of a logarithm or a square root are positive, with the mean and deviation of
#   the metadata. Their values are QUANTILES quantiles of a log-normal distribution, none of them near zero, because a
#   division by them would give very large results.
# - A mask is drawn as a mask: a causal mask is triangular, and others let most elements through. The elements that a
#   mask closes have the value that closed them in the original, such as -inf.
# - Numbers that the program reads, as `item` does, are not drawn, because a capture is valid only for these numbers.
#   One number is the mean, and several are evenly spread around it.
# - A deviation that is printed as 0.000 was less than half of the last digit. If scales and biases were exactly zero,
#   they would hide the values that they multiply. So for floating-point Parameters and buffers, the deviation is set to
#   nearly that half digit.

RecipeFacts = dict[str, Any]
"""The facts of a recipe, such as the mean of a normal distribution, by name; which there are depends on its kind."""

EXACT_KINDS = ("constant", "values", "arange", "tril")
"""Kinds of recipes without random numbers, which give the elements of `data` exactly."""

QUANTILES, LEAST_SHARE = 64, 0.2
"""The number of values of a positive tensor, and their least value as a share of its mean."""

DEVIATION_IN_ROUNDING = 0.9
"""A deviation that is printed as 0 is set to the largest rounding error, half of the last digit, times this factor."""

EPSILON = 1e-5
"""The value that is used for an epsilon that is printed as 0.000."""

LARGEST_MASK_MEAN = -1e4
"""A tensor of floats whose mean is not above this is an additive mask, which has -1e9 or the like in it."""

_MASK = re.compile(r"mask|causal|tril|triu", re.IGNORECASE)
_CAUSAL = re.compile(r"causal|tril|triu|attn_mask|attention_mask|(?:^|[._])bias$", re.IGNORECASE)
_POSITIONS = re.compile(r"position_?ids|positions?$|cache_position|pos_ids", re.IGNORECASE)
_EPSILON = re.compile(r"(?:^|[._])(?:\w+_)?eps(?:ilon)?_?$", re.IGNORECASE)
_VARIANCE = re.compile(r"running_var|(?:^|[._])var(?:iance)?_?$", re.IGNORECASE)


def recipes_from_metas(inputs: Sequence[KnownInput], seed: int, device: str) -> Inputs:
    """Return a recipe for each input, by port name, with a seed of its own made of `seed`; for inputs whose `data` no
    recipe can make, also the tensors. The recipes make tensors on `device`."""
    recipes: dict[str, Recipe] = {}
    exact: dict[str, Tensor] = {}
    for known in inputs:
        name, meta = known.name, known.meta
        own_seed = derive(seed, name)
        if _has_data(meta):
            recipe, tensor = _recipe_from_data(meta, own_seed)
            exact |= {} if tensor is None else {name: tensor}
        else:
            recipe = _recipe_from_statistics(known, own_seed)
        recipes[name] = replace(recipe, device=str(torch.device(device)))
    return Inputs(recipes, exact, seed)


def recipe_notes(inputs: Sequence[KnownInput]) -> tuple[str, ...]:
    """Return notes about inputs whose metadata is printed as 0 because it was rounded, for a report."""
    zeros = [
        known.name
        for known in inputs
        if known.meta.data is not None and known.meta.dtype in FLOATS and 0 in known.meta.data
    ]
    rounded_deviations: list[str] = []
    epsilons: list[str] = []
    for known in inputs:
        name, meta = known.name, known.meta
        if not _has_data(meta):
            rounded_deviations += [name] if _has_rounded_deviation(known) else []
            epsilons += [name] if _is_rounded_epsilon(known) else []
    names_and_words = (
        (epsilons, f"are epsilons that are printed as 0, for which {EPSILON} is used"),
        (zeros, "have elements that are printed as 0.000000, and are 0 here, whatever they were"),
        (
            rounded_deviations,
            "have a deviation that is printed as 0, and are drawn with a small one, which is printed as 0 too",
        ),
    )
    return tuple(
        f"{len(names)} floating-point inputs {words}: {', '.join(names[:3])}" + (", …" if len(names) > 3 else "")
        for names, words in names_and_words
        if names
    )


def _has_data(meta: Meta) -> bool:
    """Whether the metadata has every element."""
    return meta.data is not None and len(meta.data) == math.prod(meta.shape)


def _recipe_from_data(meta: Meta, seed: int) -> tuple[Recipe, Tensor | None]:
    """Return the recipe of a tensor whose elements are all in the metadata; and the tensor itself if only its exact
    bytes describe it, else None."""
    tensor = torch.tensor(meta.data, dtype=getattr(torch, meta.dtype)).reshape(meta.shape)
    recipe = fit(tensor, seed)
    return (recipe, None) if recipe.kind in EXACT_KINDS else (recipe_at(tensor, "exact", facts={}, seed=seed), tensor)


def _recipe_from_statistics(known: KnownInput, seed: int) -> Recipe:
    """Return the recipe of a tensor of which at most statistics are known. It is contiguous, as metadata has no
    strides."""
    meta = known.meta
    stride = torch.empty(meta.shape, device="meta").stride()
    extent = span(meta.shape, stride)  # the elements of storage that the tensor spans
    kind, facts = ("constant", {"value": 0}) if not extent else _kind_and_facts(known)
    return Recipe(
        kind,
        meta.dtype,
        meta.shape,
        stride,
        device="cpu",
        extent=extent,
        offset=0,
        seed=seed,
        facts=tuple(sorted(facts.items())),
    )


def _kind_and_facts(known: KnownInput) -> tuple[str, RecipeFacts]:
    """Choose the kind and the facts of a recipe by the dtype of the tensor."""
    meta = known.meta
    dtype = meta.dtype
    if dtype == "bool":
        return _mask_recipe(known, masked_value=0, passed_value=1)
    if dtype in INTEGERS:
        return _integer_recipe(known)
    if dtype in FLOATS:
        return _float_recipe(known)
    if dtype.startswith("complex"):
        mean, std = _finite_or_default(meta.mean, 0.0), _finite_or_default(meta.std, 1.0)
        # The real and the imaginary part are drawn alone: each has half of the variance.
        return "normal", _normal_facts(mean, std / math.sqrt(2), low=None, high=None)
    return "none", {"why": f"GraphNet keeps no values of {dtype}"}


# ---- Whole numbers


def _integer_recipe(known: KnownInput) -> tuple[str, RecipeFacts]:
    """Return the kind and the facts of the recipe of integers: positions count up, a mask is a mask, all others are in
    the range that the metadata and the uses allow."""
    name, meta, use = known.name, known.meta, known.use
    info = torch.iinfo(getattr(torch, meta.dtype))
    limit = info.max if use.below is None else max(0, use.below - 1)
    # Without `max_val`: 1 for masks, flags, and integers whose use has no bound; else the largest allowed index.
    highest = 1 if _is_mask_input(name, use) or "flag" in use.kinds or use.below is None else limit
    low = int(_finite_or_default(meta.min_val, 0))
    high = max(low, min(limit, int(_finite_or_default(meta.max_val, highest))))
    low = max(info.min, min(low, high))
    period = meta.shape[-1] if meta.shape else 1  # positions count along the last dimension
    if _POSITIONS.search(name) and (meta.max_val is None or high - low == period - 1) and period <= limit - low + 1:
        return "arange", {"start": low, "step": 1, "period": period}
    if low == high:
        return "constant", {"value": low}
    if (low, high) == (0, 1) and _is_mask_input(name, use):
        return _mask_recipe(known, masked_value=0, passed_value=1)
    return "integers", {"low": low, "high": high}


# ---- Masks


def _is_mask_input(name: str, use: Use) -> bool:
    """Whether an input is a mask by its use or its name."""
    return "mask" in use.kinds or _MASK.search(name) is not None


def _mask_recipe(known: KnownInput, masked_value: Any, passed_value: Any) -> tuple[str, RecipeFacts]:
    """Return the kind and the facts of the recipe of a mask: triangular if its name is that of a causal mask and its
    last two dimensions are equal; else three of four elements are `passed_value`, and the others `masked_value`."""
    name, meta = known.name, known.meta
    if len(meta.shape) >= 2 and meta.shape[-1] == meta.shape[-2] > 1 and _CAUSAL.search(name):
        rows, cols = meta.shape[-2:]
        return "tril", {"rows": rows, "cols": cols, "diagonal": 0, "inside": passed_value, "outside": masked_value}
    return "choice", {"values": (masked_value, passed_value), "weights": (1, 3)}


# ---- Floats


def _float_recipe(known: KnownInput) -> tuple[str, RecipeFacts]:
    """Return the kind and the facts of the recipe of a floating-point tensor: a mask, an epsilon, a single number,
    numbers that the program reads, a positive or a normal distribution."""
    name, role, meta, use = known.name, known.role, known.meta, known.use
    mean, std = _finite_or_default(meta.mean, 0.0), _finite_or_default(meta.std, 1.0)
    low, high = meta.min_val, meta.max_val
    if _is_float_mask(meta, use):
        floor = -math.inf if meta.mean == -math.inf else torch.finfo(getattr(torch, meta.dtype)).min
        return _mask_recipe(known, masked_value=floor, passed_value=0.0)
    if _is_rounded_epsilon(known):
        return "constant", {"value": EPSILON}
    if math.prod(meta.shape) == 1:
        # One number is its mean. A parameter is drawn within the rounding error of it, so that a redraw changes
        # results.
        slack = (
            DEVIATION_IN_ROUNDING * _rounding_slack(meta) if role == "parameter" and "read" not in use.kinds else 0.0
        )
        return "uniform", {"low": mean - slack, "high": mean + slack}
    if "read" in use.kinds:
        return _evenly_spread(math.prod(meta.shape), mean, std)
    # A lower bound of 0 without an upper bound is how the metadata marks a variance.
    if "variance" in use.kinds or (role == "buffer" and _VARIANCE.search(name)) or (low == 0 and high is None):
        return "choice", _lognormal_facts(meta, _finite_or_default(meta.mean, 1.0), _finite_or_default(meta.std, 0.25))
    if "positive" in use.kinds and mean > _rounding_slack(meta):
        return "choice", _lognormal_facts(meta, mean, std)
    if _has_rounded_deviation(known):
        std = DEVIATION_IN_ROUNDING * _rounding_slack(meta)
    return "normal", _normal_facts(mean, std, low, high)


def _is_rounded_epsilon(known: KnownInput) -> bool:
    """Whether an input is an epsilon by its name, such as that of a norm, and printed as 0 because it is so small."""
    name, meta = known.name, known.meta
    is_printed_as_0 = meta.mean is not None and abs(meta.mean) < _rounding_slack(meta) and not meta.min_val
    is_one_float = math.prod(meta.shape) == 1 and meta.dtype in FLOATS
    return is_printed_as_0 and is_one_float and _EPSILON.search(name) is not None


def _evenly_spread(count: int, mean: float, std: float) -> tuple[str, RecipeFacts]:
    """Return the kind and the facts of the recipe of `count` numbers that the program reads: evenly spread with this
    mean and standard deviation, so that they are the same in every draw."""
    # The numbers 0, 1, …, count - 1 have the variance (count**2 - 1) / 12, and with Bessel's correction
    # count * (count + 1) / 12. The printed deviation is that of `Tensor.std`, which has the correction.
    step = std / math.sqrt(count * (count + 1) / 12)
    if step == 0:
        return "constant", {"value": mean}
    return "arange", {"start": mean - step * (count - 1) / 2, "step": step, "period": count}


def _is_float_mask(meta: Meta, use: Use) -> bool:
    """Whether a floating-point tensor is an additive mask, in which closed elements are -inf or a large negative
    number: its mean is -inf, or below LARGEST_MASK_MEAN, or NaN in a tensor that is added to scores."""
    mean, std = meta.mean, meta.std
    if mean is None or math.prod(meta.shape) == 1:
        return False
    if math.isfinite(mean):
        # A large deviation overflows where the closed elements are the dtype's minimum.
        is_used_as_mask = not {"additive", "mask"}.isdisjoint(use.kinds)
        return mean <= LARGEST_MASK_MEAN and (is_used_as_mask or std is None or not math.isfinite(std))
    return mean == -math.inf or (math.isnan(mean) and "additive" in use.kinds)


def _has_rounded_deviation(known: KnownInput) -> bool:
    """Whether the deviation of a weight or buffer is printed as 0, and is set to nearly the largest rounding error;
    not of a single number, a mask, or what else has a recipe of its own."""
    name, role, meta, use = known.name, known.role, known.meta, known.use
    has_other_recipe = {"mask", "additive", "read", "positive", "variance"} & use.kinds or _VARIANCE.search(name)
    is_state = role in ("parameter", "buffer") or "average" in use.kinds
    return bool(
        is_state
        and not has_other_recipe
        and meta.dtype in FLOATS
        and math.prod(meta.shape) > 1
        and meta.std is not None
        and abs(meta.std) < _rounding_slack(meta)
        and not _is_mask_input(name, use)
    )


def _rounding_slack(meta: Meta) -> float:
    """Return the largest rounding error of the printed `mean` and `std`: half of their last digit."""
    return float(0.5 * 10.0**-meta.digits)


def _finite_or_default(value: float | None, default: float) -> float:
    """Return a statistic if it is finite, else the default."""
    return default if value is None or not math.isfinite(value) else float(value)


def _normal_facts(mean: float, std: float, low: float | None, high: float | None) -> RecipeFacts:
    """Return the facts of a normal distribution, cut at four deviations and at its bounds (None: there is none)."""
    floor = mean - 4 * std if low is None else max(low, mean - 4 * std)
    ceiling = mean + 4 * std if high is None else min(high, mean + 4 * std)
    return {"mean": mean, "std": std, "low": min(floor, ceiling), "high": max(floor, ceiling)}


def _lognormal_facts(meta: Meta, mean: float, std: float) -> RecipeFacts:
    """Return the facts of a positive tensor with this mean and deviation; `meta` says how far these are rounded.

    Its values are LEAST_SHARE times the mean, plus the quantiles of a log-normal distribution with the rest of the
    mean. The deviation is limited to what QUANTILES values with this mean can have, and to at least the rounding error,
    or a fifth of the mean if that is less.
    """
    slack = DEVIATION_IN_ROUNDING * _rounding_slack(meta)
    mean = max(mean, slack)
    mean_above_floor = mean * (1 - LEAST_SHARE)
    # n positive values of one mean deviate most if all but one are 0: by the mean times the root of n - 1. With 0.9 of
    # that there is a solution below.
    std = min(max(std, min(slack, 0.2 * mean)), mean_above_floor * 0.9 * math.sqrt(QUANTILES - 1))
    normal_quantiles = [NormalDist().inv_cdf((index + 0.5) / QUANTILES) for index in range(QUANTILES)]
    # The sigma of the log-normal distribution whose quantiles have this deviation, relative to their mean.
    sigma = _solve_increasing(
        lambda sigma: _relative_deviation([math.exp(sigma * quantile) for quantile in normal_quantiles]),
        value=std / mean_above_floor,
        low=0.0,
        high=16.0,
    )
    values = [math.exp(sigma * quantile) for quantile in normal_quantiles]
    scale = mean_above_floor * QUANTILES / sum(values)
    rounded = tuple(float(f"{LEAST_SHARE * mean + scale * value:.7g}") for value in values)
    return {"values": rounded, "weights": (1,) * QUANTILES}


def _relative_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of the values divided by their mean."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def _solve_increasing(function: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Return the x between `low` and `high` at which an increasing function has this value, by bisection."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return low


# ---- A sample as a module with inputs

MakeFakeMode = Callable[[], AbstractContextManager[Any]]
"""A function that returns a FakeTensorMode, in which tensors have no values."""

GraphRunner = Callable[[Graph], Callable[..., Any]]
"""A function that makes a callable of a Graph. The callable takes the Graph's inputs by their local names."""

SMALL = 64
"""Tensors of up to this many elements have values even in a fake capture, because code may read them."""


@dataclass(frozen=True, slots=True)
class _BuiltSample:
    """A sample that can be captured: `module(**inputs)` runs it. `recipes` make its tensors again, and `bytes` is the
    size of all of them.

    `with_grad` has the name of each tensor that requires grad and the reason why it does; `without_grad` has the names
    of the other tensors, and the reason why they do not.
    """

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
    fake: MakeFakeMode | None = None,
    run: GraphRunner | None = None,
) -> _BuiltSample:
    """Build a module and its inputs from a sample, in a `mode` (`train`, `eval`; None: as it was traced) and with
    tensors on a device. With `fake`, all tensors are fake tensors of the mode that it returns. Raise SampleError if a
    result would not fit in memory.

    `run` makes a callable of a Graph. It is needed for a sample that Backprint has written, whose `model.py` is the
    text of a Graph.
    """
    check_choice("mode", mode, optional=True)
    plan = plan_of(sample)
    # `raw` is the name of an input in the code of the sample, and `name` its name in the original model.
    known = [
        KnownInput(named.name, named.role, plan.metas[named.raw], plan.uses.get(named.raw, Use()))
        for named in plan.inputs
        if named.raw in plan.metas
    ]
    recipes = recipes_from_metas(known, seed=0, device=device)
    forward, numbers, notes = _forward_in_mode(sample, plan, mode, device, fake, run)
    if sample.program is not None and fake is None:
        _check_result_sizes(sample, numbers)
    tensors = recipes.make() if fake is None else _make_fake_tensors(known, recipes, device, fake)
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
    return _BuiltSample(
        module,
        inputs,
        recipes,
        plan.with_grad,
        plan.without_grad,
        (*sample.notes, *notes, *recipe_notes(known)),
        plan.bytes,
    )


def _check_result_sizes(sample: GraphNetSample, numbers: Mapping[str, Any]) -> None:
    """Raise SampleError if the result of a line would not fit in memory, as far as a run on meta tensors can tell."""
    assert sample.program is not None
    if complaint := _run_on_shapes(sample.program, sample.metas, numbers).too_large:
        raise SampleError(f"{sample.path}: {complaint}")


# ---- Forward


def _forward_in_mode(
    sample: GraphNetSample,
    plan: SamplePlan,
    mode: str | None,
    device: str,
    fake: MakeFakeMode | None = None,
    run: GraphRunner | None = None,
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """Return the module's forward in train or eval mode (None: as it was traced), the values of inputs that are
    numbers, by name, and notes about both. Where `model.py` is a Graph, or is executed, the forward only calls that.
    """
    program, notes = sample.program, list[str]()
    extra_functions: dict[str, Any] = {}
    if sample.graph is not None:
        assert run is not None
        program, extra_functions = program_that_calls(sample, run(sample.graph))
    elif program is None:
        program, extra_functions = program_that_calls(sample, _execute_model(sample.path / "model.py", fake))
        notes.append(f"executed, because it is trusted: {sample.refused}")
    numbers, notes_on_numbers = _choose_numbers(program, sample.metas, read_symbol_examples(sample.path))
    notes += notes_on_numbers
    if mode is not None and sample.program is not None:
        shape_run = _find_untrainable_norms(program, sample.metas, numbers) if mode == "train" else _ShapeRun(None)
        program, notes_on_mode = emit.rewrite_mode(program, mode, lines_to_keep=shape_run.single_value_norms)
        notes += [*notes_on_mode, *_batch_norm_notes(shape_run)]
        if shape_run.error is not None:  # which norms cannot train is not known before the program runs
            # `F.batch_norm` alone: the arguments of `torch.batch_norm` are in another order.
            functional_batch_norm, _ = emit.NORMS
            extra_functions = {functional_batch_norm: _batch_norm_in_train_if_possible}
    elif mode is not None:
        why = "its file is executed as it is" if sample.graph is None else "the operators of a graph have their mode"
        notes.append(f"mode {mode}: nothing is changed, because {why}")
    names = {named.raw: named.name for named in plan.inputs if named.role == "input"}
    state = {named.raw: named.name for named in plan.inputs if named.role != "input"}
    function = compile_program(program, names, state, str(sample.path / "model.py"), device, extra_functions)
    return function, numbers, tuple(notes)


def _batch_norm_notes(shape_run: _ShapeRun) -> list[str]:
    """Return notes about batch norms that stay in eval mode in a capture in training mode."""
    if shape_run.error is not None:
        rule = "a batch_norm with one value per channel stays in eval mode; this is decided when the graph runs"
        return [f"{rule}, because it does not run on meta tensors ({shape_run.error})"]
    if not shape_run.single_value_norms:
        return []
    lines = ", ".join(f"model.py:{line}" for line in shape_run.single_value_norms[:3])
    more = f" and {len(shape_run.single_value_norms) - 3} more" if len(shape_run.single_value_norms) > 3 else ""
    return [f"{len(shape_run.single_value_norms)} batch_norm stay in eval mode (one value per channel): {lines}{more}"]


EXECUTED = "torch.executed"
"""The name by which the program of `program_that_calls` calls its function. Torch has no function of this name."""


def program_that_calls(sample: GraphNetSample, function: Callable[..., Any]) -> tuple[ModelProgram, dict[str, Any]]:
    """Return a program that only calls a function with all arguments of the sample, and a table with this function. The
    function runs a Graph, or is the module of a file that was executed."""
    arguments = sample.arguments
    call = call_node(EXECUTED, **{argument.name: name_node(argument.name) for argument in arguments})
    return ModelProgram(arguments, (set_line(ast.Return(call), 1),)), {EXECUTED: function}


def _execute_model(path: Path, fake: MakeFakeMode | None = None) -> nn.Module:
    """Execute a trusted file as an import does, and make an instance of its class GraphModule; with `fake`, under a
    FakeTensorMode. Raise SampleError for what it raises, and for a class that is no module."""
    module = ModuleType("graphnet_trusted")
    module.__file__ = str(path)
    try:
        with nullcontext() if fake is None else fake():
            # Not by `import`, which would write `__pycache__` beside the file.
            exec(compile(read_sample_text(path), str(path), "exec"), vars(module))
            graph_module = module.GraphModule()
    except Exception as error:  # a trusted file may raise anything
        raise SampleError(f"{path}: executing it raised {type(error).__name__}: {str(error)[:300]}") from error
    if not isinstance(graph_module, nn.Module):
        raise SampleError(f"{path}: its GraphModule is a {type(graph_module).__name__}, not a torch.nn.Module")
    return graph_module


# ---- The module and its tensors


def module_with_state(
    name: str,
    forward: Any,
    inputs: Iterable[NamedInput],
    tensors: Mapping[str, Tensor],
    names_with_grad: Collection[str],
) -> nn.Module:
    """Make a module whose class has this name and this `forward`, with the `inputs` that are parameters and buffers
    under their fully qualified names. `tensors` are by these names."""
    module: nn.Module = type(name, (nn.Module,), {"forward": forward})()
    for named in inputs:
        if named.role == "input":
            continue
        *path, last = named.name.split(".")
        owner = module
        for module_name in path:  # not by `add_module`, which refuses names of methods, such as `type`
            owner = own_modules(owner).setdefault(module_name, nn.Module())
        tensor = tensors[named.name]
        if named.role == "parameter":
            own_parameters(owner)[last] = nn.Parameter(tensor, requires_grad=named.name in names_with_grad)
        else:
            own_buffers(owner)[last] = tensor
    return module


def _make_fake_tensors(
    inputs: Iterable[KnownInput], recipes: Inputs, device: str, fake: MakeFakeMode
) -> dict[str, Tensor]:
    """Return a fake tensor for each input, by name. Small ones are made of the values of their recipe, which the
    FakeTensorMode remembers, because code may read them."""
    small = {known.name for known in inputs if known.meta.data is not None or math.prod(known.meta.shape) <= SMALL}
    # Made on the CPU, where their values are read.
    on_cpu = Inputs({name: replace(recipes.recipes[name], device="cpu") for name in small}, recipes.exact, recipes.seed)
    values = {name: tensor.flatten().tolist() for name, tensor in on_cpu.make().items()}
    tensors: dict[str, Tensor] = {}
    with fake():
        for known in inputs:
            name, meta = known.name, known.meta
            dtype = getattr(torch, meta.dtype)
            if name in values:
                tensors[name] = torch.tensor(values[name], dtype=dtype, device=device).reshape(meta.shape)
            else:
                tensors[name] = torch.empty(meta.shape, dtype=dtype, device=device)
    return tensors
