"""The cost of a Pair, from its text: operators by kind with their FLOPs and bytes, parameters, bytes saved by line, the
peak of memory. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backprint.graph.costing.live import memory_line
from backprint.graph.costing.steps import StepCost, step_costs, total_cost
from backprint.graph.costing.storages import each_storage, held_storages, storages_of
from backprint.graph.nouns import Capture, Graph, Pair, TensorSpec, Value, refs
from backprint.graph.sizes import at_hints


@dataclass(frozen=True, slots=True)
class SavedLine:
    """What one line of the user's program saves for the backward."""

    line: str
    bytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindCost:
    """What all calls of one operator cost together."""

    operator: str
    calls: int
    cost: StepCost


@dataclass(frozen=True, slots=True)
class Summary:
    """A Pair in numbers. `saved` counts intermediate values only; `kept` counts parameters and inputs that are saved
    too. Costs are those of each step as a kernel of its own; `peak_bytes` leaves out what the caller holds."""

    parameters: int
    parameter_bytes: int
    forward_kinds: tuple[KindCost, ...]
    backward_kinds: tuple[KindCost, ...]
    saved: tuple[SavedLine, ...]
    kept_bytes: int
    forward: StepCost
    backward: StepCost
    peak_bytes: int
    held_bytes: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of intermediate values that live from the forward to the backward."""
        return sum(line.bytes for line in self.saved)


def summarize(pair: Pair) -> Summary:
    """Return the numbers of a Pair, at its captured sizes."""
    forward, backward = at_hints(pair.forward), at_hints(pair.backward) if pair.backward else None
    parameters = [spec for port in forward.by_role("parameter") if isinstance(spec := port.spec, TensorSpec)]
    results = [result for port, result in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"]
    kinds, back_kinds = cost_by_kind(forward), cost_by_kind(backward) if backward else ()
    memory = memory_line(pair)
    return Summary(
        parameters=sum(spec.numel for spec in parameters),
        parameter_bytes=sum(spec.nbytes for spec in parameters),
        forward_kinds=kinds,
        backward_kinds=back_kinds,
        saved=saved_by_line(forward, results),
        kept_bytes=kept_bytes(forward, results),
        forward=total_cost(kind.cost for kind in kinds),
        backward=total_cost(kind.cost for kind in back_kinds),
        peak_bytes=memory.peak_bytes,
        held_bytes=memory.held_bytes,
    )


def cost_by_kind(graph: Graph) -> tuple[KindCost, ...]:
    """Return what each operator costs, the most bytes first; taking an item of a tuple does not count."""
    found: dict[str, list[StepCost]] = {}
    for made, cost in zip(graph.steps, step_costs(graph), strict=True):
        if made.target != "operator.getitem" and not made.is_guard:
            found.setdefault(made.target, []).append(cost)
    rows = [KindCost(target, len(costs), total_cost(costs)) for target, costs in found.items()]
    return tuple(sorted(rows, key=lambda row: (-row.cost.moved, -row.calls)))


def kept_bytes(graph: Graph, saved: Sequence[Value]) -> int:
    """Return the bytes of storages that the caller holds and the backward keeps, also those kept as a view."""
    storages, sizes = storages_of(graph)
    held = held_storages(graph, storages)
    keys = {key for value in saved for name in refs(value) for key in each_storage(storages[name])}
    return sum(sizes[key] for key in keys & held)


def saved_by_line(graph: Graph, saved: Sequence[Value]) -> tuple[SavedLine, ...]:
    """Return the saved values by the user's line that made them, the largest first. Storages count, each once: a view
    of another saved value is free, and a view of a part saves the whole. What the caller holds is left out."""
    steps = {step.name: step for step in graph.steps}
    storages, sizes = storages_of(graph)
    held = held_storages(graph, storages)
    counted: set[str] = set()
    lines: dict[str, list[tuple[str, int]]] = {}
    for name in (name for value in saved for name in refs(value)):
        keys = set(each_storage(storages[name])) - counted
        if name not in steps or (keys and keys <= held):
            continue
        counted |= keys
        source = steps[name].source
        line = f"{source.file}:{source.line}: {source.code}" if source else "(no line)"
        lines.setdefault(line, []).append((name, sum(sizes[key] for key in keys - held)))
    rows = [
        SavedLine(line, sum(cost for _, cost in found), tuple(name for name, _ in found))
        for line, found in lines.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def summarize_all(capture: Capture) -> tuple[Summary, ...]:
    """A Summary for each Pair."""
    return tuple(map(summarize, capture.pairs))
