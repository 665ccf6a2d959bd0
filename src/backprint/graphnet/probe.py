"""Running a program on meta tensors: to choose sizes, and to find the batch norms that cannot train.

The metadata says `data = [4]` for nearly every SymInt, whatever it was. Dynamo puts a SymInt before the tensor whose
size it first is, so that tensor's sizes are the candidates, the example values of the constraints first.
"""

from __future__ import annotations

import itertools
import math
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from backprint._torch.modes import TorchDispatchMode
from backprint.graphnet.code import ForwardArgument, ModelProgram, Name, located_expressions
from backprint.graphnet.emit import compile_program
from backprint.graphnet.meta import Meta
from backprint.graphnet.training import NORMS, calls_to
from backprint.results import storage_nbytes, why_outgrown
from backprint.room import why_too_large
from backprint.settings import quiet_random
from backprint.tree import plain_leaves

MOST_TRIES = 64


# ------------------------------------------------------------------ numbers among the inputs


def choose_numbers(
    program: ModelProgram, metas: Mapping[str, Meta], examples: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Choose values for the arguments that are numbers; returns notes on them too."""
    numbers = [argument for argument in program.arguments if argument.kind.startswith("Sym")]
    if not numbers:
        return {}, ()
    static = {size for each in metas.values() if "_parameters_" in each.name for size in each.shape}
    choices = [number_candidates(argument, program.arguments, metas, examples, static) for argument in numbers]
    names = [argument.name for argument in numbers]
    best = likeliest_numbers(numbers, choices, program.arguments, metas)
    first = dict(zip(names, best, strict=True))
    if not computes_with(program, names):
        return first, numbers_note(first, numbers, "nothing in the graph reads them")
    cause = ""
    for tried in itertools.islice(itertools.chain([best], itertools.product(*choices)), MOST_TRIES):
        given = dict(zip(names, tried, strict=True))
        error = run_on_shapes(program, metas, given).error
        if error is None:
            return given, numbers_note(given, numbers, "the graph runs on shapes with them")
        cause = cause or error
    return first, numbers_note(first, numbers, f"the graph does not run on shapes alone: {cause}")


def numbers_note(given: Mapping[str, Any], numbers: Sequence[ForwardArgument], why: str) -> tuple[str, ...]:
    """The note on the numbers."""
    values = ", ".join(f"{argument.name} = {given[argument.name]}" for argument in numbers)
    return (f"numbers among the inputs: {values} ({why})",)


def number_candidates(
    argument: ForwardArgument,
    arguments: Sequence[ForwardArgument],
    metas: Mapping[str, Meta],
    examples: Mapping[str, int],
    static: set[int],
) -> tuple[Any, ...]:
    """The candidate values of a number, the likeliest first."""
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
    """The likeliest value of each number: those before one tensor are distinct, in the order of its sizes."""
    groups: dict[str, list[int]] = {}
    for place, argument in enumerate(numbers):
        groups.setdefault(tensor_after(argument, arguments), []).append(place)
    made = [one[0] for one in choices]
    for name, places in groups.items():
        sizes = metas[name].shape if name in metas else ()
        best = [size for size in choices[places[0]][: len(places)] if size in sizes]
        if len(places) > 1 and len(best) == len(places):
            for place, size in zip(places, sorted(best, key=sizes.index), strict=True):
                made[place] = size
    return tuple(made)


def tensor_after(argument: ForwardArgument, arguments: Sequence[ForwardArgument]) -> str:
    """The first tensor after a number among the arguments, or ''."""
    after = arguments[arguments.index(argument) + 1 :]
    return next((each.name for each in after if not each.kind.startswith("Sym")), "")


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


# ------------------------------------------------------------------ running on shapes


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
        with torch.no_grad(), quiet_random(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = compile_program(program, names, {}, SHAPES, "meta", extra)
            with ResultSizes():
                made(None, *values)
    except OutgrownResult as error:
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == SHAPES]
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
        made = None if complaint else function(*args, **(kwargs or {}))
        complaint = complaint or why_too_large(max(map(storage_nbytes, plain_leaves(made)), default=0))
        if complaint:
            raise OutgrownResult(f"{function} would make {complaint}")
        return made


def shape_argument(argument: ForwardArgument, metas: Mapping[str, Meta], numbers: Mapping[str, Any]) -> Any:
    """The value of an argument in a run on shapes."""
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
    given = dict(
        zip(("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"), args, strict=False)
    )
    return F.batch_norm(x, **{**given, **kwargs, "training": False})
