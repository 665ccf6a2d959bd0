"""Put the steps of a graph into an order that its results alone decide, so that equal graphs give equal kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backprint.graph.canonical import is_effect, mutated
from backprint.graph.nouns import Graph, Step, Value, refs


def in_canonical_order(graph: Graph) -> Graph:
    """Return the graph with its effects in their order, and then the other steps, depth first from its results.

    Guards and steps that nothing needs are left out. A graph that writes into tensors keeps its order, because a read
    must not move past a write.
    """
    steps = {step.name: step for step in graph.steps if not step.is_guard}
    if any(mutated(step) for step in steps.values()):
        return replace(graph, steps=tuple(steps.values()))
    found: dict[str, Step] = {}
    roots = [step.name for step in steps.values() if is_effect(step)]
    for name in (*roots, *(name for result in graph.results for name in refs(result))):
        add_with_feeders(name, steps, found)
    return replace(graph, steps=tuple(found.values()))


def add_with_feeders(name: str, steps: Mapping[str, Step], found: dict[str, Step]) -> None:
    """Add a step after those that it takes values from."""
    waiting = [(name, False)]
    while waiting:
        name, fed = waiting.pop()
        if name in found or name not in steps:
            continue
        step = steps[name]
        if fed:
            found[name] = step
            continue
        waiting.append((name, True))
        values: list[Value] = [*step.args, *(value for _, value in step.kwargs)]
        waiting.extend((each, False) for value in reversed(values) for each in reversed(list(refs(value))))
