"""How much memory a step needs, and what its peak is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backprint.graph.cost import LiveSpan, memory_line
from backprint.graph.nouns import Pair, Step, TensorSpec
from backprint.graph.sizes import at_hints
from backprint.graph.traffic import sides_of


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that is held while most is: what for, how much, and the line that made it, if a step did."""

    role: str
    bytes: int
    line: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """The memory that a step needs at most. `parts` is what it is made of, by role and by line, the most first, and
    `at` the line of the step that runs then."""

    bytes: int
    parts: tuple[Held, ...]
    at: str

    def by_role(self) -> list[Held]:
        """Return the parts by role alone."""
        return list(summed(Held(part.role, part.bytes) for part in self.parts))


def need_of(pair: Pair, optimizer_bytes: int = 0) -> Need:
    """Return what one step of a Pair needs: what its caller holds, the peak beside it, and the state of an optimizer,
    of so many bytes for each element of a parameter that has a gradient."""
    line = memory_line(pair)
    steps_by_side = [(side, step) for side, graph in sides_of(pair) for step in graph.steps]
    lines = {(side, step.name): line_of(step) for side, step in steps_by_side}
    parts = [Held(span.role, span.bytes) for span in line.held]
    living = line.holders(line.peak) if steps_by_side else ()
    parts += [Held(span.role, span.bytes, line_of_span(span, lines)) for span in living]
    if optimizer_bytes:
        parts.append(Held("optimizer", optimizer_bytes * trained_elements(pair)))
    rows = tuple(summed(parts))
    return Need(sum(part.bytes for part in rows), rows, line_of(steps_by_side[line.peak][1]) if steps_by_side else "")


def line_of(step: Step) -> str:
    """Return the user's line of a step."""
    source = step.source
    return f"{source.file}:{source.line}: {source.code}" if source is not None else ""


def line_of_span(span: LiveSpan, lines: dict[tuple[str, str], str]) -> str:
    """Return the line that made a storage."""
    return lines.get((span.direction, span.value.partition("[")[0]), "")


def summed(parts: Iterable[Held]) -> list[Held]:
    """Return parts of one role and line as one, the most first."""
    total: dict[tuple[str, str], int] = {}
    for part in parts:
        total[part.role, part.line] = total.get((part.role, part.line), 0) + part.bytes
    rows = (Held(role, size, line) for (role, line), size in total.items() if size)
    return sorted(rows, key=lambda part: -part.bytes)


def trained_elements(pair: Pair) -> int:
    """Return how many elements the parameters have that get gradients."""
    if pair.backward is None:
        return 0
    results = zip(pair.backward.outputs, pair.backward.results, strict=True)
    trained = {port.name for port, value in results if port.role == "gradient" and value is not None}
    specs = {port.name: at.spec for port, at in zip(pair.forward.inputs, at_hints(pair.forward).inputs, strict=True)}
    parameters = [port.name for port in pair.forward.inputs if port.role == "parameter" and port.name in trained]
    return sum(spec.numel for name in parameters if isinstance(spec := specs[name], TensorSpec))
