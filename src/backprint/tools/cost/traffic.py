"""What the ranks of a distributed training step send each other, and when: bytes by group and by line, and a model of
the time.

A collective is a call in which the ranks of a group exchange a tensor. A group is known by its label, such as the name
of a mesh dimension; `sizes` says how many ranks each has, by `sizes_of_groups`. A line is a line of the user's program.

The bytes are those of the algorithms that send least, such as a ring. The time is a model and no measurement: it
follows from the rates that are stated for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from backprint.common.text import amount
from backprint.graph.keys import number_of
from backprint.graph.nouns import COLLECTIVES, Capture, Graph, Pair, Source, Step, TensorSpec, refs
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import used
from backprint.tools.cost.costs import StepCost, step_costs


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective of a rank: its `kind` (`all_reduce`), in which group of how many ranks (`size`), in the forward or
    backward (`side`), from which line, and the bytes that the rank sends at least.

    For n ranks and a tensor of B bytes an all-gather and a reduce-scatter send (n - 1) / n of the whole, an all-reduce
    twice that, a broadcast B.
    """

    kind: str
    group: str
    size: int
    bytes: float
    side: str
    source: Source | None

    @property
    def line(self) -> str:
        """The line that the collective is from, as text."""
        return self.source.at if self.source is not None else "no line"


def sizes_of_groups(capture: Capture) -> dict[str, int]:
    """Return how many ranks are in each group that a collective of a Capture runs in."""
    return {label: len(members) for label, members in capture.rank.groups} if capture.rank is not None else {}


def traffic_of(capture: Capture) -> Iterator[Traffic]:
    """Yield the collectives of a rank's graphs."""
    sizes = sizes_of_groups(capture)
    for pair in capture.pairs:
        for side, graph in sides_of(pair):
            yield from (_traffic_of_step(step, side, sizes) for step in graph.steps if step.target in COLLECTIVES)


def sides_of(pair: Pair) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs of a Pair, at the sizes of the capture."""
    yield "forward", at_example_sizes(pair.forward)
    if pair.backward is not None:
        yield "backward", at_example_sizes(pair.backward)


def _traffic_of_step(step: Step, side: str, sizes: Mapping[str, int]) -> Traffic:
    """Return what a collective sends; a group of unknown size counts as one rank, which sends nothing but a
    broadcast's bytes."""
    # `all_reduce` of `_c10d_functional.all_reduce.default`; the label of the group is the last argument.
    kind, group = step.target.split(".")[-2], str(step.args[-1])
    size = sizes.get(group, 1)
    return Traffic(kind, group, size, bytes_sent(kind, step, size), side, step.source)


def bytes_sent(kind: str, step: Step, size: int) -> float:
    """Return the bytes that a rank sends in a collective of `size` ranks, at least: as `Traffic` says, by the bytes of
    the result. That of an all-gather is the whole; that of a reduce-scatter only a part of it, one of `size`."""
    spec = step.spec
    if not isinstance(spec, TensorSpec):
        return 0.0
    received = float(spec.nbytes)
    share_of_others = (size - 1) / size
    match kind:
        case "all_reduce":
            return 2 * share_of_others * received
        case "reduce_scatter_tensor":
            return (size - 1) * received
        case "broadcast":
            return received
    return share_of_others * received


def bytes_by_group(rows: Iterable[Traffic]) -> dict[str, int]:
    """Return the bytes that a rank sends, by group."""
    total: dict[str, float] = {}
    for row in rows:
        total[row.group] = total.get(row.group, 0.0) + row.bytes
    return {group: int(size) for group, size in total.items()}


def traffic_texts(capture: Capture) -> Iterator[tuple[str, str]]:
    """Yield for each group (`over GROUP`, what a rank sends over it in words): in each direction, and from which line
    most."""
    groups: dict[str, list[Traffic]] = {}
    for row in traffic_of(capture):
        groups.setdefault(row.group, []).append(row)
    for group, rows in groups.items():
        sent_by_kind: dict[tuple[str, str], list[float]] = {}  # the bytes of each collective, by side and kind
        bytes_by_line: dict[str, float] = {}
        for row in rows:
            sent_by_kind.setdefault((row.side, row.kind), []).append(row.bytes)
            bytes_by_line[row.line] = bytes_by_line.get(row.line, 0.0) + row.bytes
        parts = [
            f"{amount(int(sum(sent)))} {side} in {len(sent):,} {kind}" for (side, kind), sent in sent_by_kind.items()
        ]
        line, most = max(bytes_by_line.items(), key=lambda item: item[1])
        ranks = number_of(rows[0].size, "rank")
        yield f"over {group}", f"{ranks}: {', '.join(parts)}; {amount(int(most))} at {line}"


# ---- A model of the time
# A device computes one step at a time, in the order of the graph. Each group has a link of its own, which moves one
# collective at a time, beside the computation.


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device and its links do in a second: floating-point operations, bytes that kernels read and write, and
    bytes that a rank sends over the link of each group. `latency` is the seconds that a collective takes before its
    first byte."""

    flops: float
    bytes: float
    links: Mapping[str, float]
    latency: float = 0.0

    def seconds(self, cost: StepCost) -> float:
        """Return how long a step computes: its arithmetic or its bytes, whichever takes longer."""
        return max(cost.flops / self.flops, cost.moved / self.bytes)

    def seconds_on_wire(self, traffic: Traffic) -> float:
        """Return how long a collective takes on its link."""
        return self.latency + traffic.bytes / self.links[traffic.group] if traffic.size > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective that the computation waits for, and how long."""

    traffic: Traffic
    seconds: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When the steps of a rank would run at some rates: a model.

    `seconds` is the whole step, `computing` its computation alone, and `on_wire` the time of each link. `waits` has
    each collective that the computation waits for.
    """

    seconds: float
    computing: float
    on_wire: Mapping[str, float] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()

    def seconds_waited(self) -> dict[str, float]:
        """Return how long the computation waits for each link."""
        total: dict[str, float] = {}
        for wait in self.waits:
            total[wait.traffic.group] = total.get(wait.traffic.group, 0.0) + wait.seconds
        return total

    def lines(self) -> list[tuple[str, str, float]]:
        """Return (group, line, seconds that the computation waits for it), the longest first."""
        total: dict[tuple[str, str], float] = {}
        for wait in self.waits:
            key = wait.traffic.group, wait.traffic.line
            total[key] = total.get(key, 0.0) + wait.seconds
        longest_first = sorted(total.items(), key=lambda item: -item[1])
        return [(group, line, seconds) for (group, line), seconds in longest_first]


@dataclass(slots=True)
class Clocks:
    """A run of the model: its clocks, in seconds from the beginning. `now` is when the computation is free, `links`
    when the link of each group is, `done` when each value is there, and `cause` the collective that made it, if any.
    `computing`, `on_wire` and `waits` add up what Timeline has. With `early`, collectives do not wait for the program
    to come to them."""

    rates: Rates
    early: bool
    now: float = 0.0
    computing: float = 0.0
    links: dict[str, float] = field(default_factory=dict)
    on_wire: dict[str, float] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    cause: dict[str, Traffic] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)

    def run(self, graph: Graph, side: str, sizes: Mapping[str, int]) -> None:
        """Run the steps of a graph, after what has run before; `sizes` are those of groups."""
        for step, cost in zip(graph.steps, step_costs(graph), strict=True):
            if step.target in COLLECTIVES:
                self.send(step, _traffic_of_step(step, side, sizes))
            elif cost.flops or cost.moved:
                self.compute(step, self.rates.seconds(cost))
            else:
                self.pass_on(step)

    def send(self, step: Step, traffic: Traffic) -> None:
        """Put a collective on the link of its group: it begins when the link is free, what it sends is there, and,
        unless `early`, the program comes to it."""
        ready = max((self.done.get(name, 0.0) for name in used(step)), default=0.0)
        begun = max(ready, self.links.get(traffic.group, 0.0), 0.0 if self.early else self.now)
        seconds = self.rates.seconds_on_wire(traffic)
        self.on_wire[traffic.group] = self.on_wire.get(traffic.group, 0.0) + seconds
        self.done[step.name] = self.links[traffic.group] = begun + seconds
        self.cause[step.name] = traffic

    def compute(self, step: Step, seconds: float) -> None:
        """Let a step compute for so many seconds, when what it takes is there and the device is free."""
        self.wait_for(used(step))
        self.now += seconds
        self.computing += seconds
        self.done[step.name] = self.now

    def pass_on(self, step: Step) -> None:
        """Let a view, or a wait for a collective, take no time: its result is there when what it takes is, by the same
        cause. The program waits only where a step computes with it."""
        names = list(used(step))
        last = max(names, key=lambda name: self.done.get(name, 0.0), default="")
        self.done[step.name] = self.done.get(last, 0.0)
        if last in self.cause:
            self.cause[step.name] = self.cause[last]

    def wait_for(self, names: Iterable[str]) -> None:
        """Advance `now` until these values are there; note the wait if a collective caused it."""
        last = max(names, key=lambda name: self.done.get(name, 0.0), default="")
        ready = self.done.get(last, 0.0)
        if ready > self.now:
            if last in self.cause:
                self.waits.append(Wait(self.cause[last], ready - self.now))
            self.now = ready

    def end(self, graph: Graph, roles: Collection[str] = ()) -> None:
        """Wait until a graph's results of these roles, or all of them, are there."""
        results = zip(graph.outputs, graph.results, strict=True)
        self.wait_for(name for port, value in results if not roles or port.role in roles for name in refs(value))

    def pass_saved_times(self, forward: Graph, backward: Graph) -> None:
        """Give the inputs of a backward the times of the values that the forward saved, in the place of the times of
        the forward's values, whose names count no more. The backward begins when the outputs are there, on which its
        tangents depend."""
        self.end(forward, ("output",))
        ends = zip(forward.outputs, forward.results, strict=True)
        saved = {port.name: value for port, value in ends if port.role == "saved"}
        times, causes = dict(self.done), dict(self.cause)
        self.done, self.cause = {}, {}
        for port in backward.inputs:
            # The name of the forward's value; '' for a constant, which is no Ref.
            name = getattr(saved.get(port.name), "name", "") if port.role == "saved" else ""
            if name in times:
                self.done[port.local] = times[name]
            if name in causes:
                self.cause[port.local] = causes[name]


def timeline(pair: Pair, sizes: Mapping[str, int], rates: Rates, early: bool = False) -> Timeline:
    """Return when the steps of a Pair would run at these rates.

    A step waits for a collective where it takes its result. If `early`, collectives begin as soon as what they send is
    there, whatever the order of the program is: no schedule of the same computation is faster.
    """
    clocks = Clocks(rates, early)
    graphs = dict(sides_of(pair))
    clocks.run(graphs["forward"], "forward", sizes)
    if "backward" in graphs:
        clocks.pass_saved_times(graphs["forward"], graphs["backward"])
        clocks.run(graphs["backward"], "backward", sizes)
    clocks.end(graphs.get("backward", graphs["forward"]))  # the step ends when all results are there
    return Timeline(clocks.now, clocks.computing, dict(clocks.on_wire), tuple(clocks.waits))
