"""Other sizes than the captured ones, where the program was captured with symbolic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derivatives.called import in_words
from backprint.derivatives.checked import NOT_TRIED, WRONG, CheckRow
from backprint.derivatives.compared import NoReference, Result, Subject, expected_of
from backprint.derivatives.unusual import with_inputs
from backprint.errors import BackprintError
from backprint.graph.nouns import InputRecipes, Symbol, TensorSpec
from backprint.graph.sizes import evaluate
from backprint.sample.recipes import derive, make
from backprint.tasks.program import ReferenceFailed, TaskProgram, with_draws
from backprint.tasks.solving import SolutionFailed

MOST = 3
"""How many other sizes are tried."""

SHAPED = ("normal", "uniform", "integers", "choice", "constant", "permutation")
"""Kinds of recipes that draw any number of elements."""


def sizes_to_try(symbols: tuple[Symbol, ...]) -> list[dict[str, int]]:
    """Return values of the symbols: odd ones, and ones that no block divides."""
    tried = []
    for factor, more in ((1, 1), (2, 3), (1, -1)):
        sizes = {symbol.name: within(symbol, max(2, factor * symbol.hint + more)) for symbol in symbols}
        if sizes not in tried and sizes != {symbol.name: symbol.hint for symbol in symbols}:
            tried.append(sizes)
    return tried[:MOST]


def within(symbol: Symbol, size: int) -> int:
    """Return a size within the range of a symbol."""
    low = int(symbol.low) if symbol.low.isdigit() else 0
    high = int(symbol.high) if symbol.high.isdigit() else size
    return max(low, min(size, high))


def values_at(program: TaskProgram, sizes: Mapping[str, int], seed: int) -> dict[str, Tensor] | None:
    """Return inputs of other sizes, drawn as the recipes draw; None where a recipe has one size alone."""
    values = {}
    for port in program.inputs:
        if port.name not in program.capture.recipes.recipes:
            continue  # a draw of the program
        assert isinstance(port.spec, TensorSpec)
        value = drawn_at(port.name, port.spec, program.capture.recipes, sizes, seed)
        if value is None:
            return None
        values[port.name] = value
    return with_draws(program, values, seed)


def drawn_at(name: str, spec: TensorSpec, recipes: InputRecipes, sizes: Mapping[str, int], seed: int) -> Tensor | None:
    """Return a tensor of other sizes, drawn as the recipe of this name draws; None where that has one size alone."""
    recipe = recipes.recipes[name]
    shape = tuple(int(evaluate(size, sizes)) for size in spec.shape)
    if recipe.kind not in SHAPED:
        return recipes.make(names=[name])[name] if shape == tuple(recipe.shape) else None
    like = torch.empty(shape, device="meta")
    drawn = replace(
        recipe,
        shape=shape,
        stride=tuple(like.stride()),
        extent=like.numel(),
        offset=0,
        seed=derive(seed, name),
    )
    return make(drawn, recipes.exact.get(name))


def other_sizes(
    program: TaskProgram, subject_of: Callable[[Mapping[str, Tensor]], Subject], seed: int
) -> Iterator[Result]:
    """Yield rows for other sizes, at which a solution must be right; one that refuses them is wrong."""
    if not program.sized:
        return
    for sizes in sizes_to_try(program.forward.symbols):
        check = f"sizes {', '.join(f'{name}={size}' for name, size in sizes.items())}"
        try:
            values = values_at(program, sizes, seed)
            if values is None:
                continue
            subject = subject_of(values)
            expected = expected_of(subject, subject.values)
        except NoReference as error:
            yield CheckRow(check, "", "all", None, None, f"{NOT_TRIED}: {error}"), None
            continue
        except SolutionFailed as error:
            yield CheckRow(check, "", "all", None, None, WRONG, f"it raised {error}"), None
            continue
        except (ReferenceFailed, BackprintError) as error:
            yield CheckRow(check, "", "all", None, None, f"{NOT_TRIED}: the reference raised {in_words(error)}"), None
            continue
        for row, fault in with_inputs(subject, check, values, expected):
            if "the function raised" in row.verdict:
                row = replace(row, verdict=WRONG, detail=row.verdict.removeprefix(f"{NOT_TRIED}: "))
            yield row, fault
