"""A World in words: who is in which group, what goes over the wire, and where ranks differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backprint.common.text import amount
from backprint.graph.keys import number_of
from backprint.graph.nouns import COLLECTIVES, Capture, Graph, Source, Step, TensorSpec

if TYPE_CHECKING:
    from backprint.ranks.world import World


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective step of a rank: in which group of how many ranks, from which line, and the bytes that the rank
    sends at least.

    The bytes are those of the algorithms that send least, such as a ring: for n ranks and a tensor of B bytes an
    all-gather and a reduce-scatter send (n - 1) / n of the whole, an all-reduce twice that, a broadcast B.
    """

    kind: str
    group: str
    size: int
    bytes: float
    side: str
    source: Source | None


def traffic_of(capture: Capture) -> Iterator[Traffic]:
    """Yield the collectives of a rank's graphs."""
    sizes = {label: len(members) for label, members in capture.rank.groups} if capture.rank is not None else {}
    for pair in capture.pairs:
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            if graph is not None:
                yield from traffic_of_graph(side, graph, sizes)


def traffic_of_graph(side: str, graph: Graph, sizes: dict[str, int]) -> Iterator[Traffic]:
    """Yield the collectives of one graph."""
    for step in graph.steps:
        if step.target in COLLECTIVES:
            kind, group = step.target.split(".")[-2], str(step.args[-1])
            size = sizes.get(group, 1)
            yield Traffic(kind, group, size, bytes_sent(kind, step, size), side, step.source)


def bytes_sent(kind: str, step: Step, size: int) -> float:
    """Return the bytes that a rank sends in a collective, at least."""
    spec = step.spec
    if not isinstance(spec, TensorSpec):
        return 0.0
    received = float(spec.nbytes)
    others = (size - 1) / size
    match kind:
        case "all_reduce":
            return 2 * others * received
        case "reduce_scatter_tensor":
            return (size - 1) * received
        case "broadcast":
            return received
    return others * received


def world_text(world: World) -> str:
    """Return a World as text."""
    first = world.ranks[0]
    lines = [repr(world)]
    kinds: dict[tuple[str, ...], list[int]] = {}
    from backprint.ranks.world import hashes

    for number, capture in enumerate(world.ranks):
        kinds.setdefault(hashes(capture), []).append(number)
    if len(kinds) > 1:
        shown = "; ".join(ranks_in_words(ranks) for ranks in list(kinds.values())[:8])
        lines.append(f"  the same graphs: {shown}")
    for label in dict.fromkeys(label for capture in world.ranks if capture.rank for label, _ in capture.rank.groups):
        groups = dict.fromkeys(
            members for capture in world.ranks if capture.rank for name, members in capture.rank.groups if name == label
        )
        lines.append(f"  {label}: {', '.join(str(list(members)) for members in list(groups)[:8])}")
    lines += table_of_traffic(first)
    return "\n".join(lines)


def ranks_in_words(ranks: list[int]) -> str:
    """Return several ranks as text."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:16]))}{', …' if len(ranks) > 16 else ''}"


def table_of_traffic(capture: Capture) -> list[str]:
    """Return what a rank sends, by group and kind, as lines."""
    rows = list(traffic_of(capture))
    totals: Counter[tuple[str, str, str]] = Counter()
    counts: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        totals[row.group, row.side, row.kind] += row.bytes  # type: ignore[assignment]  # a Counter of floats
        counts[row.group, row.side, row.kind] += 1
    lines = []
    for (group, side, kind), total in totals.items():
        number = number_of(counts[group, side, kind], kind)
        lines.append(f"  rank {capture.rank.number if capture.rank else 0} sends over {group} in the {side}: {amount(int(total))} in {number}")
    return lines
