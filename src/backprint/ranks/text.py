"""A World in words: who is in which group, what goes over the wire, and where ranks differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backprint.common.text import amount
from backprint.graph.nouns import COLLECTIVES, Capture, Graph, Source, Step, TensorSpec


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


def hashes(capture: Capture) -> tuple[str, ...]:
    """Return the hashes of a Capture's graphs."""
    return tuple(graph.hash() for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None)


def world_text(title: str, numbers: Sequence[int], ranks: Sequence[Capture], shown_rank: Capture | None = None) -> str:
    """Return the ranks of a step as text: their groups, which ranks have the same graphs, and what one rank sends."""
    lines = [title]
    kinds: dict[tuple[str, ...], list[int]] = {}
    for number, capture in zip(numbers, ranks, strict=True):
        kinds.setdefault(hashes(capture), []).append(number)
    if len(kinds) > 1:
        shown = "; ".join(ranks_in_words(numbers) for numbers in list(kinds.values())[:8])
        lines.append(f"  the same graphs: {shown}{'; …' if len(kinds) > 8 else ''}")
    groups: dict[str, dict[tuple[int, ...], None]] = {}
    for capture in ranks:
        for label, members in capture.rank.groups if capture.rank is not None else ():
            groups.setdefault(label, {})[members] = None
    for label, all_members in groups.items():
        shown = ", ".join(map(members_in_words, list(all_members)[:8]))
        lines.append(f"  {label}: {shown}{', …' if len(all_members) > 8 else ''}")
    return "\n".join([*lines, *totals_of_traffic(shown_rank or ranks[0])])


def members_in_words(members: Sequence[int]) -> str:
    """Return the members of a group as text: `[0, 8, 16, … 1016]` of 128."""
    if len(members) <= 16:
        return str(list(members))
    return f"[{', '.join(map(str, members[:3]))}, … {members[-1]}] of {len(members)}"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Return several ranks as text."""
    shown = ", ".join(map(str, ranks[:16]))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{', …' if len(ranks) > 16 else ''}"


def totals_of_traffic(capture: Capture) -> list[str]:
    """Return what a rank sends, by group, side and kind, as lines."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for row in traffic_of(capture):
        rows.setdefault((row.group, row.side, row.kind), []).append(row.bytes)
    number = capture.rank.number if capture.rank is not None else 0
    return [
        f"  rank {number} sends over {group} in the {side}: {amount(int(sum(sizes)))} in {len(sizes)} {kind}"
        for (group, side, kind), sizes in rows.items()
    ]


def lines_of_traffic(capture: Capture) -> list[str]:
    """Return what a rank sends by source line, the most first, as lines."""
    rows: dict[tuple[str, str], list[float]] = {}
    for row in traffic_of(capture):
        where = f"{row.source.file}:{row.source.line}  {row.source.code[:60]}" if row.source else "no line"
        rows.setdefault((row.group, where), []).append(row.bytes)
    ordered = sorted(rows.items(), key=lambda item: -sum(item[1]))
    return [f"  {amount(int(sum(sizes))):>10}  {group}  {where}" for (group, where), sizes in ordered[:24]]


def traffic_json(capture: Capture) -> dict[str, object]:
    """Return the collectives of a rank as JSON."""
    collectives = [
        {
            "kind": row.kind,
            "group": row.group,
            "ranks": row.size,
            "bytes": int(row.bytes),
            "side": row.side,
            "line": f"{row.source.file}:{row.source.line}" if row.source else None,
        }
        for row in traffic_of(capture)
    ]
    rank = capture.rank
    groups = {label: list(members) for label, members in rank.groups} if rank is not None else {}
    return {
        "rank": rank.number if rank else 0,
        "size": rank.size if rank else 1,
        "groups": groups,
        "collectives": collectives,
    }
