"""Match the ports of two graphs: inputs before and after their steps, outputs after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from backprint.differing.matching import Echoes, Matching
from backprint.differing.nouns import PortChange
from backprint.differing.wired import Wired
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Port, refs


class Forward:
    """What the forwards of a Pair say of its backwards: names that are one and the same, with other letters."""

    def __init__(self, found: Matching | None = None) -> None:
        self.saved: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self.echoes: tuple[Echoes, Echoes] = ({}, {})
        if found is None:
            return
        one, two = saved_values(found.a), saved_values(found.b)
        for value, names in one.items():
            self.saved |= dict(zip(names, two.get(found.to_b.get(value, -1), ()), strict=False))
        for a, b in found.to_b.items():
            if a < found.a.first:
                self.renamed[found.a.graph.inputs[a].name] = found.b.graph.inputs[b].name
        self.echoes = (
            {name: found.to_b[value] for name, value in found.a.places.items() if value in found.to_b},
            dict(found.b.places),
        )


def saved_values(graph: Wired) -> dict[int, list[str]]:
    """Return the names under which each value of a forward is saved."""
    found: dict[int, list[str]] = defaultdict(list)
    for port, result in zip(graph.graph.outputs, graph.graph.results, strict=True):
        if port.role == "saved":
            for name in refs(result):
                found[graph.places[name]].append(port.name)
    return found


def match_inputs(found: Matching, forward: Forward, strictly: bool) -> None:
    """Match inputs of one role and name; `strictly`: of one type, too."""
    places = {port.key: place for place, port in enumerate(found.b.graph.inputs)}
    for a, port in enumerate(found.a.graph.inputs):
        names = forward.saved if port.role == "saved" else forward.renamed
        said = names.get(port.name, port.name if port.role != "saved" else "")
        for name in (said, port.name) if port.role != "saved" else (said,):
            b = places.get(port.key._replace(name=name))
            if b is not None and found.open_both(a, b) and (not strictly or found.a.strict[a] == found.b.strict[b]):
                found.join(a, b)


def input_changes(found: Matching) -> Iterator[PortChange]:
    """Yield the inputs that are not the same in both graphs."""
    before, after = found.a.graph.inputs, found.b.graph.inputs
    for a, port in enumerate(before):
        b = found.to_b.get(a)
        if b is None:
            yield PortChange(True, a, None)
        elif parts := port_parts(port, after[b], found.a.strict[a] == found.b.strict[b]):
            yield PortChange(True, a, b, parts)
    yield from (PortChange(True, None, b) for b in range(len(after)) if b not in found.to_a)


def port_parts(before: Port, after: Port, alike: bool, value: bool = True) -> tuple[str, ...]:
    """Return what differs between two ports. Saved values are named by their steps, so their names do not count."""
    named = before.name != after.name and "saved" not in (before.role, after.role)
    said = (named, "name"), (before.role != after.role, "role"), (not alike, "type"), (not value, "value")
    return tuple(part for differs, part in said if differs)


def matched_outputs(found: Matching, forward: Forward) -> dict[int, int]:
    """Return the outputs that both graphs have, by number: of one role and name, else of one role and value."""
    before, after = found.a.graph, found.b.graph
    places: dict[PortKey, int] = {}
    for b, port in enumerate(after.outputs):
        if port.role != "saved":
            places.setdefault(port.key, b)
    made: dict[int, int] = {}
    for a, port in enumerate(before.outputs):
        for name in (forward.renamed.get(port.name, port.name), port.name):
            key = port.key._replace(name=name)
            if key in places and a not in made:
                made[a] = places.pop(key)
    taken = set(made.values())
    values: dict[Any, list[int]] = defaultdict(list)
    for b, port in enumerate(after.outputs):
        if b not in taken:
            values[port.role, places_in(after, b, found.b)].append(b)
    for a, port in enumerate(before.outputs):
        offered = values.get((port.role, mapped_places(found, a)), ()) if a not in made else ()
        if offered:
            made[a] = offered.pop(0)
    return made


def places_in(graph: Graph, output: int, values: Wired) -> tuple[int, ...]:
    """Return the values that an output gives."""
    return tuple(values.places[name] for name in refs(graph.results[output]))


def mapped_places(found: Matching, output: int) -> tuple[int, ...]:
    """Return the values of the second graph that are those of an output of the first; -2 where there is none."""
    return tuple(found.to_b.get(value, -2) for value in places_in(found.a.graph, output, found.a))


def output_changes(found: Matching, outputs: Mapping[int, int]) -> Iterator[PortChange]:
    """Yield the outputs that are not the same in both graphs."""
    before, after = found.a.graph, found.b.graph
    for a, port in enumerate(before.outputs):
        b = outputs.get(a)
        if b is None:
            yield PortChange(False, a, None)
            continue
        other = after.outputs[b]
        alike = found.a.said.spec(port.spec) == found.b.said.spec(other.spec)
        value = mapped_places(found, a) == places_in(after, b, found.b)
        value = value and found.a.said.value(before.results[a]) == found.b.said.value(after.results[b])
        if parts := port_parts(port, other, alike, value):
            yield PortChange(False, a, b, parts)
    taken = set(outputs.values())
    yield from (PortChange(False, None, b) for b in range(len(after.outputs)) if b not in taken)
