"""A folded graph: its steps as loops, from which the same graph is unfolded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from backprint.graph.folding.places import with_places
from backprint.graph.folding.series import Index, Series
from backprint.graph.graphs import graph_in_words
from backprint.graph.nouns import Graph, Port, Source, Step, Symbol, Value
from backprint.graph.shown import number_of

Item: TypeAlias = "FoldedStep | Loop | Only"
"""What a folded graph, or the body of a loop, has in a row."""


@dataclass(frozen=True, slots=True)
class FoldedStep:
    """A step of every iteration: that of the first, and what the others have in its places."""

    step: Step
    series: tuple[tuple[str, Series], ...] = ()
    """Place in the step (`name`, `args.0`, `source.module`) -> what each iteration has there."""

    def at(self, index: Index) -> Step:
        """Return the step of an iteration."""
        return with_places(self.step, {place: series.at(index) for place, series in self.series})

    def source_at(self, index: Index) -> Source | None:
        """Return the line of the program of an iteration."""
        places = {place: series.at(index) for place, series in self.series if place.startswith("source.")}
        return with_places(self.step, places).source

    def name_at(self, index: Index) -> str:
        """Return the name of the step of an iteration."""
        return str(self.series[0][1].at(index)) if self.series and self.series[0][0] == "name" else self.step.name


@dataclass(frozen=True, slots=True)
class Only:
    """Steps that one iteration of the loop around them has more than the others."""

    iteration: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its items, once for each iteration."""

    count: int
    items: tuple[Item, ...]

    def __repr__(self) -> str:
        return f"Loop({self.count} × {number_of(len(self.items), 'item')})"


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """A Graph whose repeated steps are loops."""

    items: tuple[Item, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    results: tuple[Value, ...]
    subgraphs: tuple[tuple[str, Graph], ...] = ()
    symbols: tuple[Symbol, ...] = ()
    title: str = ""
    isolated: str = ""

    if TYPE_CHECKING:  # bound in backprint.graph

        @property
        def code(self) -> str:
            """The folded graph as Python text that runs with torch alone."""

    def __str__(self) -> str:
        return self.code

    def __repr__(self) -> str:
        loops = sum(isinstance(item, Loop) for item in self.items)
        steps = steps_in(self.items)
        return f"FoldedGraph({graph_in_words(self, steps)}, {number_of(loops, 'loop')})"

    def unfold(self) -> Graph:
        """Return the Graph that was folded."""
        return Graph(
            self.inputs, tuple(unfolded(self.items)), self.outputs, self.results, self.subgraphs, self.symbols,
            title=self.title, isolated=self.isolated,
        )  # fmt: skip


def steps_in(items: Sequence[Item]) -> int:
    """Return how many steps items have, those of each iteration counted."""
    total = 0
    for item in items:
        match item:
            case FoldedStep():
                total += 1
            case Only(_, inside):
                total += steps_in(inside)
            case Loop(count, body):
                alone = [each for each in body if isinstance(each, Only)]
                total += count * steps_in([each for each in body if not isinstance(each, Only)]) + steps_in(alone)
    return total


def unfolded(items: Sequence[Item], index: Index = ()) -> Iterator[Step]:
    """Yield the steps of items in an iteration of the loops around them."""
    for item in items:
        match item:
            case FoldedStep():
                yield item.at(index) if index else item.step
            case Loop(count, body):
                for iteration in range(count):
                    yield from unfolded_once(body, index, iteration)


def unfolded_once(body: Sequence[Item], index: Index, iteration: int) -> Iterator[Step]:
    """Yield the steps of one iteration of a loop."""
    for item in body:
        if not isinstance(item, Only):
            yield from unfolded([item], (*index, iteration))
        elif item.iteration == iteration:
            yield from unfolded(item.items, index)
