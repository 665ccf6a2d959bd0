"""The floating-point operations of a step, by its operator and the specs of its arguments. Needs no torch.

A multiply-add counts two, as PyTorch's FLOP counter has it; products are those of the direct algorithm, padding
included. `linalg` and Fourier transforms count their leading terms. What only moves, creates or picks elements counts
nothing; nor does arithmetic of integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backprint.graph.costing.formulas import (
    Formula,
    Specs,
    arguments_of,
    dtype_of,
    each_result,
    operator_name,
    shapes_taken,
)
from backprint.graph.costing.operations import ELEMENTWISE, MOVES, OTHERS, PRODUCTS, complex_factor
from backprint.graph.costing.products import ATTENTIONS, FLOPS, specs_of
from backprint.graph.nouns import Graph, Step, Sub, leaves
from backprint.graph.sizes import at_hints
from backprint.graph.table import operators

FORMULAS: Mapping[str, Formula] = {**dict.fromkeys(ELEMENTWISE, each_result), **OTHERS, **PRODUCTS}

COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""Complex dtypes, and the dtype of their parts."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The operations of a step or graph by dtype, and the operators that no formula is known for."""

    by_dtype: tuple[tuple[str, int], ...] = ()
    unknown: tuple[str, ...] = ()


def sum_of(parts: Iterable[Arithmetic]) -> Arithmetic:
    """Return the sum."""
    by_dtype: dict[str, int] = {}
    unknown: dict[str, None] = {}
    for part in parts:
        for dtype, count in part.by_dtype:
            by_dtype[dtype] = by_dtype.get(dtype, 0) + count
        unknown |= dict.fromkeys(part.unknown)
    return Arithmetic(tuple(by_dtype.items()), tuple(unknown))


def step_arithmetic(step: Step, specs: Specs, subgraphs: Mapping[str, Graph]) -> Arithmetic:
    """Return the operations of a step. An operator without a formula counts one for each element of its results."""
    subs = [leaf.name for value in arguments_of(step) for leaf in leaves(value) if type(leaf) is Sub]
    if subs:
        return of_subgraphs(step, specs, [subgraphs[name] for name in subs])
    name = operator_name(step.target)
    if name in MOVES or step.target.startswith("math.") or "v" in operators().get(step.target, ""):
        return Arithmetic()
    dtype = dtype_of(step, specs)
    formula = FORMULAS.get(name.removeprefix("_foreach_"))
    unknown = (step.target,) if formula is None else ()
    if not dtype:
        return Arithmetic((), unknown)
    count = (formula or each_result)(step, specs) * (complex_factor(name) if dtype in COMPLEX else 1)
    return Arithmetic(((COMPLEX.get(dtype, dtype), math.ceil(count)),) if count else (), unknown)


def graph_arithmetic(graph: Graph) -> Arithmetic:
    """Return the operations of all steps of a graph, at its captured sizes."""
    fixed = at_hints(graph)
    specs = specs_of(fixed)
    subgraphs = dict(fixed.subgraphs)
    return sum_of(step_arithmetic(step, specs, subgraphs) for step in fixed.steps if not step.is_guard)


def of_subgraphs(step: Step, specs: Specs, graphs: list[Graph]) -> Arithmetic:
    """Return the operations of a step that calls subgraphs: of `cond`, the branch with fewer; of `scan`, once for each
    slice; of attention that a graph modifies, its products. How often a loop runs is not known: it counts nothing."""
    name = step.target.rpartition(".")[2]
    inside = [graph_arithmetic(graph) for graph in graphs]
    if name == "cond":
        return min(inside, key=lambda part: sum(count for _, count in part.by_dtype))
    if name in FLEXIBLE:
        dtype = dtype_of(step, specs)
        count = int(FLOPS[FLEXIBLE[name]](step, specs))
        return Arithmetic(((dtype, count),) if count and dtype else ())
    if name in LOOPS:
        return Arithmetic((), (step.target,))
    if name in SLICED:
        times = next((found[0] for found in shapes_taken(step, specs) if found), 1)
        part = sum_of(inside)
        return Arithmetic(tuple((dtype, count * times) for dtype, count in part.by_dtype), (step.target, *part.unknown))
    return sum_of(inside)


FLEXIBLE = {"flex_attention": ATTENTIONS[0], "flex_attention_backward": f"{ATTENTIONS[0]}_backward"}
LOOPS = ("while_loop",)
SLICED = ("scan", "associative_scan", "map_impl")
