"""Other sizes than the captured ones, where the program was captured with symbolic ones.

A Symbol is a symbolic size: its name, the value that it had at capture (`hint`), and its range as texts (`low`,
`high`). `sizes` are values of all symbols, by name. A recipe says how an input is made again: a seed and a distribution
(`kind`), or the captured bytes. A row (CheckRow) has the check, the dtype ('' if it is of none), the name of a result
(`all` for all of them), a verdict and a detail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derive.called import error_text
from backprint.derive.checked import NOT_TRIED, WRONG
from backprint.derive.compared import NoReference, Result, Subject, expected_of
from backprint.derive.unusual import rows_for_inputs
from backprint.errors import BackprintError
from backprint.graph.nouns import InputRecipes, Symbol, TensorSpec
from backprint.graph.sizes import evaluate
from backprint.prove.whole import check_sizes as check_guards
from backprint.sample.recipes import derive, make
from backprint.tools.tasks.nouns import SIZES, row_without_numbers
from backprint.tools.tasks.program import ReferenceFailed, TaskProgram, with_draws
from backprint.tools.tasks.solving import SolutionFailed

BLOCKS = (64, 65, 129, 1025)
"""A whole block of a kernel, and one more than a block has: a kernel for a single block leaves the last element out."""

TIMES_HINT = 10
"""How many times as large as captured a size is tried."""

MOST_SYMBOLS = 4
"""How many symbols are tried alone, where all together are too many elements or are refused."""

MOST_ELEMENTS = 1 << 22
"""The most elements that the inputs, the results and what is saved may have together."""

SHAPED = ("normal", "uniform", "integers", "choice", "constant", "permutation")
"""Kinds of recipes that draw any number of elements."""


def sizes_to_try(symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """Yield values of all symbols together: the least, 2, 3, primes, a block, one more, and about ten times as large.

    No two symbols are one more than the same block, or ten times as large alike, so that no size stands for another:
    that is what `+ place` and the turns of the blocks are for.
    """
    yield {symbol.name: clamp_to_range(symbol, 1) for symbol in symbols}
    yield {symbol.name: clamp_to_range(symbol, 2) for symbol in symbols}
    yield {symbol.name: clamp_to_range(symbol, 3) for symbol in symbols}
    yield {
        symbol.name: clamp_to_range(symbol, _prime_above(symbol.hint + place)) for place, symbol in enumerate(symbols)
    }
    for turn in range(len(BLOCKS)):  # each symbol has each block once
        sizes = (BLOCKS[(place + turn) % len(BLOCKS)] for place in range(len(symbols)))
        yield {symbol.name: clamp_to_range(symbol, size) for symbol, size in zip(symbols, sizes, strict=True)}
    yield {
        symbol.name: clamp_to_range(symbol, _prime_above(TIMES_HINT * symbol.hint + place))
        for place, symbol in enumerate(symbols)
    }


def _prime_above(size: int) -> int:
    """Return the next prime."""
    return next(
        other
        for other in itertools.count(max(size, 1) + 1)
        if all(other % by for by in range(2, math.isqrt(other) + 1))  # nothing divides it
    )


def clamp_to_range(symbol: Symbol, size: int) -> int:
    """Return a size, or the nearest within the range of a symbol. A bound that is no number (`inf`, an expression) is
    none."""
    low = int(symbol.low) if symbol.low.isdigit() else 0
    high = int(symbol.high) if symbol.high.isdigit() else size
    return max(low, min(size, high))


def _values_at(program: TaskProgram, sizes: Mapping[str, int], seed: int) -> dict[str, Tensor]:
    """Return inputs of other sizes, drawn from a seed as their recipes draw, with the program's own random numbers."""
    values = {}
    for port in program.inputs:
        if port.name not in program.capture.recipes.recipes:
            continue  # a random number of the program itself: `with_draws` adds it
        assert isinstance(port.spec, TensorSpec)
        values[port.name] = draw_with_sizes(port.name, port.spec, program.capture.recipes, sizes, seed)
    return with_draws(program, values, seed)


def draw_with_sizes(name: str, spec: TensorSpec, recipes: InputRecipes, sizes: Mapping[str, int], seed: int) -> Tensor:
    """Return a tensor of other sizes, drawn from a seed as the recipe of this name draws; contiguous.

    A recipe that is no distribution has the captured bytes, as those of indices: the elements are then drawn from the
    captured ones, so that what is an index of a row stays one. Bytes of the same shape, or of no elements, are returned
    as they are.
    """
    recipe = recipes.recipes[name]
    shape = tuple(int(evaluate(size, sizes)) for size in spec.shape)
    if recipe.kind not in SHAPED:
        captured = recipes.make(names=[name])[name]
        if shape == tuple(captured.shape) or not captured.numel():
            return captured
        source = torch.Generator().manual_seed(derive(seed, name))
        indices = torch.randint(captured.numel(), shape, generator=source)
        return captured.flatten()[indices.to(captured.device)]
    like = torch.empty(shape, device="meta")  # for the strides of a contiguous tensor
    resized_recipe = replace(
        recipe,
        shape=shape,
        stride=tuple(like.stride()),
        extent=like.numel(),  # elements of its memory
        offset=0,
        seed=derive(seed, name),  # another one for each input
    )
    return make(resized_recipe, recipes.exact.get(name))


def _elements_at(program: TaskProgram, sizes: Mapping[str, int]) -> int:
    """Return how many elements the inputs, the results and what is saved have together."""
    ports = (*program.forward.inputs, *program.forward.outputs)
    shapes = [port.spec.shape for port in ports if isinstance(port.spec, TensorSpec)]
    return sum(math.prod(int(evaluate(size, sizes)) for size in shape) for shape in shapes)


SubjectOf = Callable[[Mapping[str, Tensor]], Subject]


def other_sizes(program: TaskProgram, subject_of: SubjectOf, seed: int) -> Iterator[Result]:
    """Yield rows for other sizes, at which a solution must be right; one that refuses them is wrong. `subject_of` puts
    inputs into what `bp.check` compares, the solution beside its reference.

    All symbols are changed together. Where nothing could be compared so, because the reference refuses them or they are
    too large, a few symbols are changed alone. Sizes that were tried already are left out.
    """
    symbols = program.forward.symbols
    example_sizes = {symbol.name: symbol.hint for symbol in symbols}
    compared_sizes = [example_sizes]
    for sizes in sizes_to_try(symbols):
        variants = sizes, *({**example_sizes, symbol.name: sizes[symbol.name]} for symbol in symbols[:MOST_SYMBOLS])
        for candidate in variants:
            if candidate in compared_sizes:
                continue
            compared_sizes.append(candidate)
            rows = list(_at_sizes(program, candidate, subject_of, seed))
            yield from rows
            if candidate is sizes and any(row.tried for row, _ in rows):
                break  # no symbol has to be tried alone


def _at_sizes(program: TaskProgram, sizes: Mapping[str, int], subject_of: SubjectOf, seed: int) -> Iterator[Result]:
    """Yield rows for these sizes; one, that is not tried, if the tensors are too large or the reference does not run at
    them."""
    check = f"{SIZES}{', '.join(f'{name}={size}' for name, size in sizes.items())}"
    try:
        if (elements := _elements_at(program, sizes)) > MOST_ELEMENTS:
            yield Result(row_without_numbers(check, "", "all", f"{NOT_TRIED}: {elements:,} elements are too many"))
            return
        values = _values_at(program, sizes, seed)
        check_guards(program.capture, values)  # raises where a condition on sizes does not hold, which tracing found
        subject = subject_of(values)
        expected = expected_of(subject, subject.values)
    except NoReference as error:
        yield Result(row_without_numbers(check, "", "all", f"{NOT_TRIED}: {error}"))
        return
    except SolutionFailed as error:
        yield Result(row_without_numbers(check, "", "all", WRONG, f"it raised {error}"))
        return
    except (ReferenceFailed, BackprintError) as error:
        yield Result(row_without_numbers(check, "", "all", f"{NOT_TRIED}: the reference raised {error_text(error)}"))
        return
    for row, fault in rows_for_inputs(subject, check, values, expected):
        if "the function raised" in row.verdict:  # `not tried: the function raised …`, as `bp.check` has it
            row = replace(row, verdict=WRONG, detail=row.verdict.removeprefix(f"{NOT_TRIED}: "))
        yield Result(row, fault)
