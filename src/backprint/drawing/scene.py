"""A scene: what a drawing shows, as plain values. The steps of both directions are its nodes.

A value is a number: that of the node that makes it, or, from `len(nodes)` on, that of a port on the way in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.graph.folding.fold import token_of
from backprint.graph.nouns import Dict, Graph, List, Pair, Port, Ref, Slice, Source, Spec, Step, TensorSpec, Value, refs
from backprint.graph.text import show

FORWARD, BACKWARD = 0, 1

NO_VALUE = -1


@dataclass(frozen=True, slots=True)
class SceneNode:
    """A step as it is drawn."""

    side: int
    name: str
    target: str
    spec: Spec
    inputs: tuple[int, ...]
    """The values that it takes, in the order of `arguments`."""
    arguments: str = ""
    """Its arguments as text, with `{0}` for the first of its inputs."""
    source: Source | None = None
    echo: str = ""
    partners: tuple[int, ...] = ()
    """Nodes and values of the forward that its echo names."""
    token: Any = None
    """Equal for nodes that may be the same node of two turns of a loop."""
    is_guard: bool = False


@dataclass(frozen=True, slots=True)
class ScenePort:
    """A port as it is drawn: at the node that makes or takes its value."""

    side: int
    enters: bool
    port: Port
    value: int


@dataclass(frozen=True, slots=True)
class SceneBridge:
    """A tensor that the forward saves: its value there, and the backward's port that has it."""

    made: int
    taken: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Scene:
    """Two directions, node by node."""

    name: str
    nodes: tuple[SceneNode, ...]
    forward: int
    """How many of the nodes are of the forward; they come first."""
    ports: tuple[ScenePort, ...]
    bridges: tuple[SceneBridge, ...]

    def made_by(self) -> dict[int, int]:
        """Return for each port on the way into the backward that is saved the value of the forward."""
        return {bridge.taken: bridge.made for bridge in self.bridges}


def scene_of(pair: Pair) -> Scene:
    """Return the scene of a Pair."""
    graphs = [pair.forward] if pair.backward is None else [pair.forward, pair.backward]
    total = sum(len(graph.steps) for graph in graphs)
    ports: list[ScenePort] = []
    nodes: list[SceneNode] = []
    known: list[dict[str, int]] = []
    entered = total
    for side, graph in enumerate(graphs):
        values = {port.local: entered + place for place, port in enumerate(graph.inputs)}
        ports += [ScenePort(side, True, port, entered + place) for place, port in enumerate(graph.inputs)]
        entered += len(graph.inputs)
        first = len(nodes)
        values |= {step.name: first + place for place, step in enumerate(graph.steps) if not step.is_guard}
        known.append(values)
        nodes += [node_of(step, side, values, known[0]) for step in graph.steps]
    for side, graph in enumerate(graphs):
        ports += ports_out(side, graph, known[side])
    bridges = tuple(bridges_of(pair, known)) if len(graphs) == 2 else ()
    return Scene(pair.name, tuple(nodes), len(pair.forward.steps), tuple(ports), bridges)


def node_of(step: Step, side: int, values: Mapping[str, int], forward: Mapping[str, int]) -> SceneNode:
    """Return a step as a node."""
    taken: list[int] = []
    named = [f"{key}={template(value, values, taken)}" for key, value in step.kwargs]
    arguments = ", ".join([*(template(value, values, taken) for value in step.args), *named])
    echo = step.echo
    partners = tuple(forward[name] for name in echo.names if name in forward) if echo is not None else ()
    return SceneNode(
        side, step.name, step.target, step.spec, tuple(taken), arguments, step.source,
        echo.kind if echo is not None else "", partners, token_of(step), step.is_guard,
    )  # fmt: skip


def template(value: Value, values: Mapping[str, int], taken: list[int]) -> str:
    """Return an argument as text in which `{3}` is the fourth value of `taken`, to which its values are added."""
    match value:
        case Ref(name):
            taken.append(values[name])
            return f"{{{len(taken) - 1}}}"
        case List(items):
            return "[" + ", ".join(template(item, values, taken) for item in items) + "]"
        case tuple():
            inside = ", ".join(template(item, values, taken) for item in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case Slice(start, stop, step):
            return "slice(" + ", ".join(template(item, values, taken) for item in (start, stop, step)) + ")"
        case Dict(items):
            parts = (f"{template(k, values, taken)}: {template(v, values, taken)}" for k, v in items)
            return "{" + ", ".join(parts) + "}"
    return show(value).replace("{", "\\x7b")  # only strings have braces, and braces mark values


def ports_out(side: int, graph: Graph, values: Mapping[str, int]) -> Iterator[ScenePort]:
    """Yield the ports on the way out of a graph."""
    for port, result in zip(graph.outputs, graph.results, strict=True):
        yield ScenePort(side, False, port, next((values[name] for name in refs(result)), NO_VALUE))


def bridges_of(pair: Pair, known: Sequence[Mapping[str, int]]) -> Iterator[SceneBridge]:
    """Yield what the forward saves and the backward takes."""
    forward, backward = pair.forward, pair.backward
    made = {
        port.name: next((known[FORWARD][name] for name in refs(result)), NO_VALUE)
        for port, result in zip(forward.outputs, forward.results, strict=True)
        if port.role == "saved"
    }
    for port in backward.inputs if backward is not None else ():
        if port.role == "saved" and made.get(port.name, NO_VALUE) != NO_VALUE:
            yield SceneBridge(made[port.name], known[BACKWARD][port.local], port.spec)


def bytes_of(spec: Spec) -> int:
    """Return the bytes of a tensor, or of those of a tuple."""
    match spec:
        case TensorSpec():
            return spec.nbytes
        case tuple():
            return sum(map(bytes_of, spec))
    return 0
