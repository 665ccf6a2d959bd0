"""Name the values that cross between parts, and find the port of a part at which each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backprint.graph.nouns import Capture, Graph, Port, Ref
from backprint.parts.forwards import ForwardPart, forwards, homes
from backprint.parts.pieces import Piece


@dataclass(frozen=True, slots=True)
class BorderNames:
    """The names of values at borders: that of a port of the whole if there is one, else the value's own."""

    inputs: Mapping[str, Port]
    labels: Mapping[str, str]

    def of(self, local: str) -> str:
        """Return the name of a value."""
        return self.inputs[local].name if local in self.inputs else self.labels[local]


def names_at_borders(forward: Graph, parts: Sequence[ForwardPart], prefix: str = "") -> BorderNames:
    """Return a name for each value that crosses: its output port's in the whole, if any, else its local name."""
    inputs = {port.local: port for port in forward.inputs}
    taken = {port.name for port in (*forward.inputs, *forward.outputs) if port.role != "saved"}
    own: dict[str, str] = {}
    for part in parts:
        for port, result in part.results:
            if port.role == "output" and isinstance(result, Ref) and port.name not in {p.name for p in forward.inputs}:
                own.setdefault(result.name, port.name)
    labels: dict[str, str] = {}
    for part in parts:
        for name in part.gives:
            label = own.get(name, prefix + name)
            while name not in own and label in taken:
                label += "~"
            labels[name] = label
            taken.add(label)
    return BorderNames(inputs, labels)


def tangent_name(part: ForwardPart, names: BorderNames, local: str) -> str:
    """Return the name of the output port whose tangent a value has; '' if the value is at none."""
    if local in part.gives:
        return names.of(local)
    own = (port.name for port, value in part.results if port.role == "output" and value == Ref(local))
    return next(own, "")


def local_of(part: ForwardPart, names: BorderNames, port: Port) -> str:
    """Return the local name of the value at a part's output port; '' if there is none."""
    for own, value in part.results:
        if (own.name, own.role) == (port.name, port.role):
            return value.name if isinstance(value, Ref) else ""
    return next((local for local in part.gives if names.of(local) == port.name), "")


@dataclass(frozen=True, slots=True)
class Borders:
    """One Pair's forward, cut: the parts, the part that makes each value, and the names of the values that cross."""

    parts: tuple[ForwardPart, ...]
    home: Mapping[str, int]
    names: BorderNames


def borders_of(capture: Capture, index: int, pieces: Sequence[Piece]) -> Borders:
    """Cut one Pair's forward at the pieces."""
    forward = capture.pairs[index].forward
    cuts = [piece.start for piece in pieces[1:]]
    parts = forwards(forward, cuts)
    prefix = f"{capture.pairs[index].name}." if len(capture.pairs) > 1 else ""
    return Borders(parts, homes(forward, [0, *cuts, len(forward.steps)]), names_at_borders(forward, parts, prefix))
