"""How much memory a training step needs, and what its peak is made of.

A MemoryLine is the storages that live at each step of the graphs, which are its Runs, in the order in which they run;
a LiveSpan is one storage, with its `role` (`saved`, `temporary`, `parameter`, …). A line is a line of the user's
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backprint.graph.nouns import Capture, Step, TensorSpec
from backprint.graph.sizes import at_example_sizes
from backprint.tools.cost.costs import LiveSpan, MemoryLine, Run, memory_line_of_step, runs_of


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that is held while most is: what for, how much, and the line that made it, if a step did."""

    role: str
    bytes: int
    line: str = ""


@dataclass(frozen=True, slots=True)
class _Need:
    """The memory that a training step needs at most. `parts` is what it is made of, by role and by line, the most
    first, and `at` the line of the call that runs then."""

    bytes: int
    parts: tuple[Held, ...]
    at: str

    def by_role(self) -> list[Held]:
        """Return the parts by role alone."""
        return list(sum_by_role_and_line(Held(part.role, part.bytes) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory that a step needs, counted in two ways.

    In `graph`, a value ends with its last use, as where a compiler runs the graphs. In `eager`, PyTorch runs the step:
    autograd keeps values for longer, and updates are in place.
    """

    graph: _Need
    eager: _Need


def needs_of(capture: Capture, optimizer_bytes: int = 0) -> Needs:
    """Return what one step of a Capture needs, all Pairs together: what its caller holds, the peak beside it, and the
    state of an optimizer, of so many bytes for each element of a parameter that has a gradient."""
    optimizer = optimizer_bytes * _trained_elements(capture)
    runs = runs_of(capture)
    return Needs(
        graph=need_of(runs, memory_line_of_step(capture, eager=False), optimizer),
        eager=need_of(runs, memory_line_of_step(capture, eager=True), optimizer),
    )


def need_of(runs: Sequence[Run], line: MemoryLine, optimizer: int) -> _Need:
    """Return what a training step needs whose storages live as a time line says: what the caller holds, what lives at
    the peak, and `optimizer` bytes."""
    steps = [(run, step) for run in runs for step in run.graph.steps]
    lines = {(run.pair, run.direction, step.name): line_of(step) for run, step in steps}
    parts = [Held(span.role, span.bytes) for span in line.held]
    living = line.holders(line.peak) if steps else ()
    parts += [Held(span.role, span.bytes, _line_of_span(span, lines)) for span in living]
    if optimizer:
        parts.append(Held("optimizer", optimizer))
    rows = tuple(sum_by_role_and_line(parts))
    return _Need(sum(part.bytes for part in rows), rows, line_of(steps[line.peak][1]) if steps else "")


def line_of(step: Step) -> str:
    """Return the user's line of a step of a graph, with its code; '' if it is not known."""
    source = step.source
    return f"{source.at}: {source.code}" if source is not None else ""


def _line_of_span(span: LiveSpan, lines: Mapping[tuple[int, str, str], str]) -> str:
    """Return the line that made a storage; `split[1]`, of a tuple, is of the step `split`. '' for an input. `lines` has
    the line of each step, by Pair, direction and name."""
    return lines.get((span.pair, span.direction, span.value.partition("[")[0]), "")


def sum_by_role_and_line(parts: Iterable[Held]) -> list[Held]:
    """Return parts of one role and line as one, the most first."""
    size_by_key: dict[tuple[str, str], int] = {}
    for part in parts:
        size_by_key[part.role, part.line] = size_by_key.get((part.role, part.line), 0) + part.bytes
    rows = (Held(role, size, line) for (role, line), size in size_by_key.items() if size)
    return sorted(rows, key=lambda part: -part.bytes)


def _trained_elements(capture: Capture) -> int:
    """Return how many elements the parameters have that get gradients: those for which an optimizer keeps state."""
    elements: dict[str, int] = {}
    for pair in capture.pairs:
        if pair.backward is None:
            continue
        results = zip(pair.backward.outputs, pair.backward.results, strict=True)
        trained = {port.name for port, value in results if port.role == "gradient" and value is not None}
        for port in at_example_sizes(pair.forward).inputs:
            if port.role == "parameter" and port.name in trained and isinstance(port.spec, TensorSpec):
                elements[port.name] = port.spec.numel
    return sum(elements.values())
