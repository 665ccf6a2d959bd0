"""A World in words: who is in which group, what goes over the wire, and where ranks differ.

A World has the Captures of the ranks of one distributed step. Groups of ranks have a *label*, such as `tp`; a group's
*link* is what its collectives are sent over. The *side* of a graph is `forward` or `backward`; `sides_of` yields the
side and the graph of each direction of a Pair, at the captured sizes. `traffic_of` yields the collectives of a rank's
graphs, each with its group, side, kind, source line, and the bytes that the rank sends at least. A `Timeline` is a
model of when a Pair's steps run: `ordered`, if the program waits for collectives where it does, or `early`, if each
collective began as early as it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from backprint.common.text import amount
from backprint.graph.nouns import COLLECTIVES, Capture, TensorSpec, refs
from backprint.graph.steps import specs_of
from backprint.graph.text import show_port, show_step
from backprint.tools.cost.traffic import Rates, Timeline, sides_of, sizes_of_groups, timeline, traffic_of


def hashes(capture: Capture) -> tuple[str, ...]:
    """Return the hashes of a Capture's graphs."""
    return tuple(graph.hash() for pair in capture.pairs for graph in pair.graphs)


def world_text(title: str, numbers: Sequence[int], ranks: Sequence[Capture]) -> str:
    """Return the ranks of a step as text under a title: which ranks have the same graphs, where the graphs of the first
    rank differ from others, and the groups. Of each at most eight are shown. `ranks` are the Captures, and `numbers`
    the ranks' numbers in the same order."""
    lines = [title]
    numbers_by_graphs: dict[tuple[str, ...], list[int]] = {}
    for number, capture in zip(numbers, ranks, strict=True):
        numbers_by_graphs.setdefault(hashes(capture), []).append(number)
    if len(numbers_by_graphs) > 1:
        alike = list(numbers_by_graphs.values())[:8]
        shown = "; ".join(map(ranks_in_words, alike))
        lines.append(f"  the same graphs: {shown}{'; …' if len(numbers_by_graphs) > 8 else ''}")
        capture_by_number = dict(zip(numbers, ranks, strict=True))
        first, *others = (same_graphs[0] for same_graphs in alike)
        lines += [f"  {text}" for number in others if (text := difference((first, number), capture_by_number))]
    groups: dict[str, dict[tuple[int, ...], None]] = {}
    for capture in ranks:
        for label, members in capture.rank.groups if capture.rank is not None else ():
            groups.setdefault(label, {})[members] = None
    for label, all_members in groups.items():
        shown = ", ".join(map(_members_in_words, list(all_members)[:8]))
        lines.append(f"  {label}: {shown}{', …' if len(all_members) > 8 else ''}")
    return "\n".join(lines)


def difference(numbers: tuple[int, int], ranks: Mapping[int, Capture]) -> str:
    """Say where the graphs of two ranks (`numbers`) differ first: in a call, or else in an input or output; '' if in
    neither. `ranks` has the Captures by number. What only the longer one of two has is not looked at (strict=False)."""
    left, right = (ranks[number] for number in numbers)
    names = f"ranks {numbers[0]} and {numbers[1]}"
    graphs = [
        (side, graph, other)
        for left_pair, right_pair in zip(left.pairs, right.pairs, strict=False)
        for (side, graph), (_, other) in zip(sides_of(left_pair), sides_of(right_pair), strict=False)
    ]
    for side, graph, other in graphs:
        for step, other_step in zip(graph.steps, other.steps, strict=False):
            if (step.target, step.args, step.kwargs) != (other_step.target, other_step.args, other_step.kwargs):
                place = f" at {step.source.at}" if step.source is not None else ""
                calls = f"{show_step(step)[:80]} and {show_step(other_step)[:80]}"
                return f"{names} differ first in the {side}{place}: {calls}"
    for side, graph, other in graphs:
        for ports in zip((*graph.inputs, *graph.outputs), (*other.inputs, *other.outputs), strict=False):
            left_port, right_port = map(show_port, ports)
            if left_port != right_port:
                return f"{names} make the same calls; in the {side} one has {left_port}, the other {right_port}"
    return ""


class Sent(NamedTuple):
    """A collective as a rank calls it: its kind and options (`call`), the dtype and shape of what it sends, and its
    line, each as text."""

    call: tuple[str, ...]
    shape: str
    line: str


def sent_by_group(capture: Capture) -> dict[str, list[Sent]]:
    """Return the collectives of a rank by the label of their group, in their order."""
    rows: dict[str, list[Sent]] = {}
    for pair in capture.pairs:
        for _, graph in sides_of(pair):
            specs = specs_of(graph)
            for step in graph.steps:
                if step.target in COLLECTIVES:
                    # `all_reduce` of `….all_reduce.default`. Its arguments are the tensor, options, and the label of
                    # the group. In an all-to-all each rank may send other sizes, so its options and its shape are left
                    # empty, and not compared.
                    kind, is_all_to_all = step.target.split(".")[-2], "all_to_all" in step.target
                    options = () if is_all_to_all else tuple(map(repr, step.args[1:-1]))
                    name = next(refs(step.args[0]), "")
                    spec = specs.get(name) if not is_all_to_all else None
                    shape = f"{spec.dtype}{list(spec.shape)}" if isinstance(spec, TensorSpec) else ""
                    line = step.source.at if step.source is not None else "no line"
                    rows.setdefault(str(step.args[-1]), []).append(Sent((kind, *options), shape, line))
    return rows


def difference_of_calls(left: Sequence[Sent], right: Sequence[Sent]) -> str:
    """Say how the collectives of two members of a group differ first; '' if they belong together. Their lines may
    differ."""

    def in_words(sent: Sent | None) -> str:
        return f"{', '.join(sent.call)} of {sent.shape} at {sent.line}" if sent is not None else "none"

    for position, (one, other) in enumerate(zip_longest(left, right)):
        if one is None or other is None or (one.call, one.shape) != (other.call, other.shape):
            return f"number {position + 1} is {in_words(one)} in one and {in_words(other)} in the other"
    return ""


def _members_in_words(members: Sequence[int]) -> str:
    """Return the members of a group as text: `[0, 8, 16, … 1016]` of 128."""
    if len(members) <= 16:
        return str(list(members))
    return f"[{', '.join(map(str, members[:3]))}, … {members[-1]}] of {len(members)}"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Return several ranks as text: `rank 3`, or `ranks 0, 1, 2`."""
    shown = ", ".join(map(str, ranks[:16]))
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{', …' if len(ranks) > 16 else ''}"


def totals_of_traffic(capture: Capture) -> list[str]:
    """Return what a rank sends, by group, side and kind, as lines."""
    sizes_by_kind: dict[tuple[str, str, str], list[float]] = {}
    for collective in traffic_of(capture):
        key = collective.group, collective.side, collective.kind
        sizes_by_kind.setdefault(key, []).append(collective.bytes)
    number = capture.rank.number if capture.rank is not None else 0
    return [
        f"  rank {number} sends over {group} in the {side}: {amount(int(sum(sizes)))} in {len(sizes)} {kind}"
        for (group, side, kind), sizes in sizes_by_kind.items()
    ]


def lines_of_traffic(capture: Capture) -> list[str]:
    """Return what a rank sends by group and source line, the most first, as at most 24 lines."""
    sizes_by_line: dict[tuple[str, str], list[float]] = {}
    for collective in traffic_of(capture):
        source = collective.source
        where = f"{source.at}  {source.code[:60]}" if source else "no line"
        sizes_by_line.setdefault((collective.group, where), []).append(collective.bytes)
    ordered = sorted(sizes_by_line.items(), key=lambda line_and_sizes: -sum(line_and_sizes[1]))
    return [f"  {amount(int(sum(sizes))):>10}  {group}  {where}" for (group, where), sizes in ordered[:24]]


def traffic_json(capture: Capture, rates: Rates | None) -> dict[str, object]:
    """Return the collectives of a rank as JSON, and the model of its time if `rates`, what its device and its links do
    in a second, are given."""
    collectives = [
        {
            "kind": collective.kind,
            "group": collective.group,
            "ranks": collective.size,
            "bytes": int(collective.bytes),
            "side": collective.side,
            "line": collective.source.at if collective.source else None,
        }
        for collective in traffic_of(capture)
    ]
    rank = capture.rank
    groups = {label: list(members) for label, members in rank.groups} if rank is not None else {}
    return {
        "rank": rank.number if rank else 0,
        "size": rank.size if rank else 1,
        "groups": groups,
        "collectives": collectives,
        **({"model": _model_json(capture, rates)} if rates is not None else {}),
    }


# ---- A model of the time
# A Timeline says when the steps of a Pair would run at some Rates: what a device and its links do in a second.


def _timelines(capture: Capture, rates: Rates) -> list[tuple[Timeline, Timeline]]:
    """Return when the steps of each Pair would run: if the program waits for collectives where it does, and if each
    collective began as early as it can."""
    sizes = sizes_of_groups(capture)
    return [(timeline(pair, sizes, rates), timeline(pair, sizes, rates, early=True)) for pair in capture.pairs]


def lines_of_model(capture: Capture, rates: Rates) -> list[str]:
    """Return the model of a rank's step as lines: how long it takes, which links it waits for, and at which lines."""
    links = ", ".join(f"{group} {rate / 1e9:g} GB/s" for group, rate in rates.links.items())
    lines = [
        f"a model, not a measurement: {rates.flops / 1e12:g} TFLOP/s, {rates.bytes / 1e12:g} TB/s, {links}, "
        f"{rates.latency * 1e6:g} us a collective"
    ]
    for pair, (ordered, early) in zip(capture.pairs, _timelines(capture, rates), strict=True):
        name = f"{pair.name}: " if len(capture.pairs) > 1 else ""
        lines.append(
            f"  {name}{_seconds_text(ordered.seconds)} a step, {_seconds_text(ordered.computing)} of it computation; "
            f"{_seconds_text(early.seconds)} if each collective began as soon as what it sends is there"
        )
        waited, waited_early = ordered.seconds_waited(), early.seconds_waited()
        for group, seconds in ordered.on_wire.items():
            lines.append(
                f"  {group}: {_seconds_text(seconds)} on the wire; the computation waits "
                f"{_seconds_text(waited.get(group, 0.0))} for it, "
                f"{_seconds_text(waited_early.get(group, 0.0))} if early"
            )
        for group, line, seconds in ordered.lines()[:MOST_WAITS]:
            lines.append(f"  {_seconds_text(seconds):>10}  {group}  waits for {line}")
    return lines


MOST_WAITS = 8
"""The most lines of the program that are shown with how long the step waits for them."""


def _seconds_text(seconds: float) -> str:
    """Return a time as text, in s, ms or us."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _model_json(capture: Capture, rates: Rates) -> list[dict[str, object]]:
    """Return the model of each Pair as JSON, in seconds, for both of its Timelines."""
    return [
        {
            name: {
                "seconds": run.seconds,
                "computing": run.computing,
                "wire": dict(run.on_wire),
                "waits": run.seconds_waited(),
            }
            for name, run in (("ordered", ordered), ("early", early))
        }
        for ordered, early in _timelines(capture, rates)
    ]
