"""Fold a graph, and prove that it unfolds to the same.

`find.loops_of` finds loops in a list of steps that it knows by their places (indexes) alone: it returns nodes, each a
place or a Repeat, which has for each iteration a row of places. Here these become the items of a FoldedGraph: a
FoldedStep for a step of every iteration, a Loop, and an Only for *odd* steps, which one iteration alone has. A Series
is what one place of a step (`args.0`) has in each iteration, as a rule.

- `where`, for a place of the body of a loop: the step of the graph that stands there in each iteration.
- `shape`: how often the loops around an item run, the outermost first.
- Of a Repeat, `rows` has the places of each iteration, `odd` its odd steps, and `body` the nodes of one iteration, as
  places from 0 on. An odd step has its iteration, its place, and the step of the body that it stands `before`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backprint.errors import GraphError
from backprint.graph.folding.find import Node, OddStep, Repeat, Steps, loops_of
from backprint.graph.folding.nouns import (
    FoldedGraph,
    FoldedStep,
    Index,
    Item,
    Loop,
    Only,
    Series,
    places_of,
    series_of,
    skeleton,
    split_numbers_of_text,
    without_offsets,
)
from backprint.graph.nouns import Graph, Step
from backprint.graph.steps import used

Where = Mapping[Index, int]
"""Iteration of the loops around a step -> the place, in the graph, of the step that this iteration has there."""


def folded(graph: Graph) -> FoldedGraph:
    """Return a graph with its repeated steps as loops. The result is unfolded, and compared with the graph."""
    nodes = loops_of(steps_of(graph.steps))
    itself: dict[int, Where] = {place: {(): place} for place in range(len(graph.steps))}  # outside of all loops
    items = _items_of(nodes, itself, shape=(), steps=graph.steps)
    fold = FoldedGraph(items, graph.inputs, graph.outputs, graph.results, graph.subgraphs, graph.symbols, graph.title)
    if fold.unfold() != graph:
        raise GraphError("a fold of this graph does not unfold to it: please report the graph")
    return fold


# ---- Steps as tokens


def steps_of(steps: Sequence[Step]) -> Steps:
    """Return the steps of a graph as the search takes them: tokens, uses, and where modules begin."""
    numbers: dict[Any, int] = {}
    computed_at: dict[str, int] = {}
    tokens, uses, borders = [], [], []
    module = ""
    for place, step in enumerate(steps):
        tokens.append(numbers.setdefault(token_of(step), len(numbers)))
        uses.append([computed_at.get(name, -1) for name in used(step)])
        if not step.is_guard:
            computed_at[step.name] = place
        # A step without a module, such as a sum in the backward, begins no module and ends none.
        here = block_of(step)
        borders.append(bool(here) and here != module)
        module = here or module
    return Steps(tokens, uses, borders)


def token_of(step: Step) -> Any:
    """Return what a step has in common with the same step of another iteration.

    That is everything but names and numbers; of the path of its module, everything but the numbers, and of its echo how
    many names it has. So `layers.0.mlp` and `layers.1.mlp` are one loop, and the projections `query`, `key` and `value`
    of one layer are none, although they call the same operators: a reader knows them by their names.
    """
    kinds = tuple(skeleton(value) for value in step.args)
    named = tuple((key, skeleton(value)) for key, value in step.kwargs)
    module_texts = None
    if step.source is not None:
        module_texts, _ = split_numbers_of_text(step.source.module)
    echoes = 0 if step.echo is None else len(step.echo.names)
    return step.target, kinds, named, without_offsets(step.spec), (module_texts, echoes)


def block_of(step: Step) -> str:
    """Return the path of the module that called a step up to its last number: `layers.3` for `layers.3.mlp`; or ''."""
    parts = step.source.module.split(".") if step.source is not None else []
    while parts and not parts[-1].isdigit():
        parts.pop()
    return ".".join(parts)


# ---- Loops of steps


def _items_of(
    nodes: Iterable[Node], where: Mapping[int, Where], shape: tuple[int, ...], steps: Sequence[Step]
) -> tuple[Item, ...]:
    """Return the items of nodes, which are places in the list of steps, or loops (`find`).

    `where` says which step of the graph a place stands for, in each iteration of the loops around it, and `shape` how
    often these loops run.
    """
    return tuple(
        _folded_step(where[node], shape, steps) if isinstance(node, int) else _loop_of(node, where, shape, steps)
        for node in nodes
    )


def _loop_of(repeat: Repeat, where: Mapping[int, Where], shape: tuple[int, ...], steps: Sequence[Step]) -> Loop:
    """Return a loop that was found as an item of a folded graph; `where` and `shape` as in `_items_of`."""
    # For each place of an iteration: the step of the graph that it stands for in every iteration of this loop, within
    # every iteration of the loops around it.
    inner: dict[int, Where] = {}
    for place in range(len(repeat.rows[0])):
        inner[place] = {
            (*index, iteration): at
            for iteration, row in enumerate(repeat.rows)
            for index, at in where[row[place]].items()
        }
    # Odd steps go between the steps of the body, at the place that `before` names.
    items: list[Item] = []
    odd = sorted(repeat.odd, key=lambda step: (step.before, step.iteration, step.place))
    for node in repeat.body:
        place = node if isinstance(node, int) else node.first
        items += _only_of([step for step in odd if step.before == place], where, shape, steps)
        items += _items_of([node], inner, (*shape, len(repeat.rows)), steps)
    items += _only_of([step for step in odd if step.before == len(repeat.rows[0])], where, shape, steps)
    return Loop(len(repeat.rows), tuple(items))


def _only_of(
    odd: Sequence[OddStep], where: Mapping[int, Where], shape: tuple[int, ...], steps: Sequence[Step]
) -> list[Item]:
    """Return the odd steps that stand at one place of a loop as an Only for each iteration that has some."""
    by_iteration: dict[int, list[int]] = {}
    for step in odd:
        by_iteration.setdefault(step.iteration, []).append(step.place)
    return [Only(iteration, _items_of(places, where, shape, steps)) for iteration, places in by_iteration.items()]


def _folded_step(where: Where, shape: Sequence[int], steps: Sequence[Step]) -> FoldedStep:
    """Return one step of a loop: the step of the first iteration, and a Series for each place at which steps differ."""
    indexes = sorted(where)
    all_of = [steps[where[index]] for index in indexes]
    first = all_of[0]
    if len(all_of) == 1:
        return FoldedStep(first)
    tables = [dict(places_of(step)) for step in all_of]  # what each step has at each place
    differing: list[tuple[str, Series]] = []
    for place, value in tables[0].items():
        column = [table[place] for table in tables]
        if type(value) is float:  # nan is unequal to itself, and -0.0 is equal to 0.0
            differ = len({*map(repr, column)}) > 1
        else:
            differ = any(other != value for other in column)
        if differ:
            differing.append((place, series_of(dict(zip(indexes, column, strict=True)), shape)))
    return FoldedStep(first, tuple(differing))
