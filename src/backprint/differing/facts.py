"""What differs between two Captures beside their graphs: engine, versions, guards, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backprint.differing.nouns import Fact
from backprint.graph.nouns import Capture, Graph


def capture_facts(before: Capture, after: Capture) -> Iterator[Fact]:
    """Yield the facts that differ."""
    left, right = capture_texts(before), capture_texts(after)
    for name in dict.fromkeys((*left, *right)):
        one, two = left.get(name, ()), right.get(name, ())
        if one != two:
            left_only, right_only = set(one).difference(two), set(two).difference(one)
            only = tuple(filter(left_only.__contains__, one)), tuple(filter(right_only.__contains__, two))
            yield Fact(name, *(only if any(only) else (one, two)))


def capture_texts(capture: Capture) -> dict[str, tuple[str, ...]]:
    """Return the facts of a Capture, as texts."""
    symbols = {
        f"{symbol.name} was {symbol.hint} in [{symbol.low}, {symbol.high}]": None
        for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None
        for symbol in graph.symbols
    }  # fmt: skip
    return {
        "engine": (capture.engine,),
        "fake": ("yes" if capture.fake else "no",),
        **{name: (value,) for name, value in capture.environment},
        "loss": (capture.signature.loss,) if capture.signature.loss else (),
        "constants of the call": tuple(f"{name} = {value}" for name, value in capture.signature.leaves),
        "constants of the result": tuple(result_constants(capture.signature.output)),
        "symbolic sizes": tuple(symbols),
        "guards": tuple(f"{guard.kind}: {guard.text}" for guard in capture.guards),
        "opaque edges": tuple(f"{edge.kind}: {edge.text}" for edge in capture.opaque),
        "graph breaks": capture.breaks,
        "pinned inputs": tuple(f"{name}: {why}" for name, why in capture.pins),
        "custom operators": capture.requires,
        "notes": (*capture.why, *capture.notes),
    }


def result_constants(tree: Any) -> Iterator[str]:
    """Yield what a program returns beside tensors, in order."""
    match tree:
        case {"value": value}:
            yield str(value)
        case {"dict": dict(rows)}:
            for item in rows.values():
                yield from result_constants(item)
        case {"items": [*pairs]}:
            for pair in pairs:
                yield from result_constants({"list": pair[1:]})
        case {"list": [*items]} | {"tuple": [*items]}:
            for item in items:
                yield from result_constants(item)


def graph_of(capture: Capture, pair: int | None, direction: str) -> Graph | None:
    """Return a direction of a Pair; None if the Capture does not have it."""
    if pair is None:
        return None
    return capture.pairs[pair].forward if direction == "forward" else capture.pairs[pair].backward


def linked_places(capture: Capture) -> list[tuple[object, ...]]:
    """Return the links of a Capture without names: from which port of which Pair to which."""
    found: list[tuple[object, ...]] = []
    for link in capture.links:
        source, target = link.source, link.target
        left = port_place(capture, source, link.port.role, link.port.name)
        right = port_place(capture, target, "", link.name) if target is not None else None
        found.append((source, link.port.role, left, target, right))
    return found


def port_place(capture: Capture, pair: int | None, role: str, name: str) -> int | None:
    """Return which port of a Pair has this name; of any role on the way in if `role` is empty."""
    if pair is None:
        return None
    graphs = [graph for graph in (capture.pairs[pair].forward, capture.pairs[pair].backward) if graph is not None]
    ports = [port for graph in graphs for port in ((*graph.outputs, *graph.inputs) if role else graph.inputs)]
    return next((place for place, port in enumerate(ports) if port.name == name and role in ("", port.role)), None)
