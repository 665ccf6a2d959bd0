"""Which graphs of a stranger want a process of their own: those that call what no check of arguments makes safe."""

from __future__ import annotations

from collections.abc import Iterator

from backprint.graph.nouns import HIGHER, Graph, Op, is_custom, leaves
from backprint.graph.table import table


def needs_isolation(graph: Graph) -> list[str]:
    """What a graph calls or hands on, its subgraphs too, that is only safe in a process of its own; each with why."""
    return sorted({f"{target}: {why}" for target in called(graph) if (why := why_isolated(target))})


def why_isolated(target: str) -> str:
    """Why a call of this target wants a process of its own; '' where it does not."""
    if target in HIGHER:
        return "what its body calls is not checked, and may go on for ever"
    if is_custom(target):
        return "an operator of a library, whose kernel nobody knows here"
    row = table().get(target)
    return row.reason if row is not None and row.standing == "isolated" else ""


def called(graph: Graph) -> Iterator[str]:
    """The targets that a graph calls or hands on, its subgraphs too."""
    for step in graph.steps:
        if not step.is_guard:
            yield step.target
        for value in (*step.args, *(value for _, value in step.kwargs)):
            yield from (leaf.target for leaf in leaves(value) if type(leaf) is Op)
    for _, sub in graph.subgraphs:
        yield from called(sub)
