"""Link the parts of a Capture as the Pairs of one Capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backprint.errors import GraphError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Link, Pair
from backprint.parts.borders import Borders


@dataclass(frozen=True, slots=True)
class DividedPair:
    """The parts of one Pair: as cut, and as Pairs."""

    borders: Borders
    pairs: tuple[Pair, ...]


def linked(capture: Capture, divided: Sequence[DividedPair]) -> Capture:
    """Return the Capture whose Pairs are the linked parts. It returns what the whole returns."""
    first = [sum(len(each.pairs) for each in divided[:index]) for index in range(len(divided))]
    links: list[Link] = []
    for offset, each in zip(first, divided, strict=True):
        made = {name: part.index for part in each.borders.parts for name in part.gives}
        for part in each.borders.parts:
            for local in part.takes:
                if local in made:
                    label = each.borders.names.of(local)
                    links.append(Link(offset + made[local], PortKey("output", label), offset + part.index, label))
    if not capture.links:
        for port in capture.pairs[0].forward.by_role("output"):
            links.append(Link(pair_with(divided[0], first[0], port.key), port.key, None, port.name))
    for link in capture.links:
        start = None if link.source is None else pair_with(divided[link.source], first[link.source], link.port)
        if link.target is None:
            links.append(Link(start, link.port, None, link.name))
            continue
        takers = divided[link.target]
        for index, pair in enumerate(takers.pairs):
            if any(port.name == link.name for port in pair.forward.inputs):
                links.append(Link(start, link.port, first[link.target] + index, link.name))
    pairs = tuple(pair for each in divided for pair in each.pairs)
    return replace(capture, pairs=pairs, links=tuple(links), verdict=None)


def pair_with(divided: DividedPair, offset: int, key: PortKey) -> int:
    """Return the number of the Pair, among the parts, that has a port of the whole."""
    for index, pair in enumerate(divided.pairs):
        graph = pair.backward if key.role == "gradient" else pair.forward
        if graph is not None and any(port.key == key for port in graph.outputs):
            return offset + index
    raise GraphError(f"no part has the port {str(key)!r:.80}")
