"""Run the graphs of a Capture in eager on other inputs, to see which outputs move and to check compilers on them.

Every input but constants and those that a guard holds is redrawn, tangents too (`sample/redraws`), and the graphs run
from the first forward to the last backward, so that what a backward takes was saved by its forward. If a graph does not
run on a redraw, or gives no finite numbers where the sample's own inputs do, the floats move by a small step instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint.benching.subjects import BenchGraph, graph_classes
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture
from backprint.replaying.constants import held_by_guards
from backprint.replaying.movement import moves, strength
from backprint.sample.alone import make_inputs
from backprint.sample.export import content_of, graphs_needed, recipes_needed
from backprint.sample.redraws import another, units
from backprint.sample.rerun import EagerRun, Program

STEPS = (None, 2**-6, 2**-10)
"""How far floats move: to a redraw, or by a share of their size."""

SEEDS = (0x3D, 0x7B)
"""One redraw of all graphs each."""


def moved_graphs(
    capture: Capture, graphs: Sequence[BenchGraph], seeds: Sequence[int] = SEEDS
) -> list[list[BenchGraph]]:
    """Return the graphs with the run of each on redrawn inputs, once a seed; fewer if no redraw keeps them finite."""
    needed = graphs_needed(capture, "both")
    recipes = recipes_needed(capture, needed, capture.recipes.recipes)
    content = content_of(capture, needed, recipes)
    classes = graph_classes({title: graph for title, (_, graph) in needed.items()})
    made = make_inputs(content["recipes"], list(recipes), capture.recipes.exact)
    found = []
    for seed in seeds:
        for size in STEPS:
            runs = played(capture, content, classes, {**made, **redrawn(capture, recipes, made, seed, size)})
            if runs is not None and all(as_finite(graph.run, runs[graph.title]) for graph in graphs):
                found.append([replace(graph, run=runs[graph.title]) for graph in graphs])
                break
    return found


def redrawn(
    capture: Capture, recipes: Mapping[str, Any], made: Mapping[str, Tensor], seed: int, size: float | None
) -> dict[str, Tensor]:
    """Return other values for inputs and tangents."""
    fixed = held_by_guards(capture) | {port.name for port in free_ports(capture) if port.role == "constant"}
    found: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(name in made and name not in fixed for name in names):
            found |= another(names, recipes, made, seed, step=size) or {}
    return found


def played(
    capture: Capture, content: Mapping[str, Any], classes: Mapping[str, Any], made: Mapping[str, Tensor]
) -> dict[str, EagerRun] | None:
    """Run every graph; return None if one raises on these inputs, as guards do."""
    torch.manual_seed(capture.seed)
    try:
        return Program(content, classes, made, copies=True).play()
    except Exception:  # a program may raise anything on other values
        return None


def as_finite(run: EagerRun, other: EagerRun) -> bool:
    """Whether another run's results have finite numbers only wherever the first run's have."""
    pairs = zip(run.results, other.results, strict=True)
    return all(finite(second) or not finite(first) for first, second in pairs)


def finite(value: Any) -> bool:
    """Whether a result has neither NaN nor an infinite number."""
    return not isinstance(value, Tensor) or value.layout is not torch.strided or bool(torch.isfinite(value).all())


def movement(run: EagerRun, others: Sequence[EagerRun]) -> tuple[bool, ...]:
    """Return which outputs of a graph move by a tolerance or more in any of the other runs."""
    return tuple(
        any(moves(value) and strength(value, other.results[place]) >= 1 for other in others)
        for place, value in enumerate(run.results)
    )
