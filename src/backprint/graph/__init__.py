"""Graphs as plain data: no torch is needed for anything here.

- `nouns`: Port, Step, Graph, Pair, Link, Capture and their parts, valid by construction.
- `keys`: how a port is identified, and its text. `verdicts`: the words of a Verdict, and when a check was a proof.
- `capture_options`: the options of `bp.capture`, with their defaults.
- `text`: a Graph as straight-line Python, and back; the parser runs nothing.
- `canonical`: the form of a Graph without names, and its hash.
- `operators`: the operators that a graph may call, from `operators.txt`. `isolation`: which graphs need a process of
  their own.
- `steps`, `depends`, `links`, `sizes`: questions about steps, about what depends on what, about links between Pairs,
  about symbolic sizes.
- `cost`: floating-point operations, bytes and live memory of steps and graphs. `fits`: the peak of a step.
- `traffic`: what ranks send each other, and a model of when.
- `folding/`: repeated structure, found once. `together`: names and guards that differ in numbers alone, as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backprint.graph.canonical import Canonical, canonical, graph_hash
from backprint.graph.keys import in_a_line
from backprint.graph.nouns import Graph, Step
from backprint.graph.text import emit, show_step

if TYPE_CHECKING:
    from backprint.graph.folding.nouns import FoldedGraph


def code_of_graph(graph: Graph) -> str:
    """Return the graph as Python text that runs with torch alone; parsing it returns an equal graph."""
    return emit(graph)


def text_of_graph(graph: Graph) -> str:
    """Return the text of a graph for people: with loops where it is long and repeats."""
    from backprint.graph.folding.fold import text_for_people

    return text_for_people(graph)


def fold_graph(graph: Graph) -> FoldedGraph:
    """Return the graph with its repeated steps as loops; `.unfold()` returns an equal graph, `print` shows it."""
    from backprint.graph.folding.fold import folded

    return folded(graph)


def canonical_graph(graph: Graph) -> Canonical:
    """Return the graph without names and without the order of independent steps."""
    return canonical(graph)


def hash_of_graph(graph: Graph, sizes: bool = True) -> str:
    """Return a digest of the canonical form; with `sizes=False` shapes and strides do not count."""
    return graph_hash(graph, sizes=sizes)


def step_in_a_line(step: Step) -> str:
    """Return a step as one line, for a prompt."""
    return f"Step({in_a_line(show_step(step), 160)})"


Graph.code = property(code_of_graph)  # type: ignore[assignment,method-assign]  # verbs are bound to the nouns here
Graph.__str__ = text_of_graph  # type: ignore[assignment,method-assign]  # as above
Graph.fold = fold_graph  # type: ignore[assignment,method-assign]  # as above
Graph.canonical = canonical_graph  # type: ignore[assignment,method-assign]  # as above
Graph.hash = hash_of_graph  # type: ignore[assignment,method-assign]  # as above
Step.__repr__ = step_in_a_line  # type: ignore[assignment,method-assign]  # as above
