"""The backward of a part: the steps of the whole's backward between the gradients at the part's borders.

A backward has no places to cut of its own. `BorderGradients` says which of its values are the gradients of the part's
results and of the values that the part takes; `flow` finds them by running both. `Tangled` names values that cannot be
separated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backprint.errors import GraphError
from backprint.graph.nouns import Pair, Port, Ref, Step, Value, refs
from backprint.graph.steps import behind, mapped, used
from backprint.graph.table import operators
from backprint.graph.text import show_step
from backprint.parts.borders import Borders
from backprint.parts.forwards import ForwardPart


@dataclass(frozen=True, slots=True)
class BorderGradients:
    """Which values of the whole's backward are the gradients at one part's borders, by local names.

    `tangents` maps a value of the backward to the result whose gradient it is; a value under several names has an entry
    for each. `gradients` maps a value that the part takes to the backward's value that is the part's share in its
    gradient.
    """

    tangents: Mapping[str, str]
    gradients: Mapping[str, str]


class Tangled(GraphError):
    """A part's backward cannot be separated from the others'."""


@dataclass(frozen=True, slots=True)
class PartBackward:
    """A part's backward before it is a graph: its steps, and the saved values that it needs."""

    steps: tuple[Step, ...]
    saved: tuple[str, ...]


def backward_of(pair: Pair, part: ForwardPart, home: Mapping[str, int], flow: BorderGradients) -> PartBackward:
    """Return the steps of the backward between the gradients at a part's borders. Raise Tangled if one lies beyond
    them.

    A value of an earlier part that the backward recomputes is saved here instead.
    """
    backward = pair.backward
    assert backward is not None
    steps = {step.name: step for step in backward.steps if not step.is_guard}
    ports = {port.local: port for port in backward.inputs}
    saved_as, again = saved_values(pair), recomputed(pair)
    seen: set[str] = set()
    saved: dict[str, None] = {}

    def is_earlier(name: str) -> bool:
        return home.get(again.get(name, ""), part.index) < part.index

    for name in behind(flow.gradients.values(), steps, lambda each: each in flow.tangents or is_earlier(each)):
        if name in flow.tangents:
            continue
        seen.add(name)
        if name in steps:
            saved |= {name: None} if is_earlier(name) else {}
            continue
        port = ports[name]
        if port.role == "tangent":
            raise Tangled(f"its backward takes the tangent of {port.name!r}, which is not one of its results")
        value = saved_as.get(port.name, "") if port.role == "saved" else ""
        if home.get(value, -1) > part.index:
            raise Tangled(f"its backward takes {value!r}, which a later part makes")
        saved[name] = None
    kept = tuple(step for step in backward.steps if step.name in seen and step.name not in saved and not step.is_guard)
    return PartBackward(kept, tuple(saved))


def saved_values(pair: Pair) -> dict[str, str]:
    """Return the forward's value behind each saved port."""
    forward = pair.forward
    return {
        port.name: result.name
        for port, result in zip(forward.outputs, forward.results, strict=True)
        if port.role == "saved" and isinstance(result, Ref)
    }


def recomputed(pair: Pair) -> dict[str, str]:
    """Return the values that the backward recomputes: its names for them, each with the forward's."""
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    known = {call_text(step, {}): step.name for step in forward.steps if remakes(step)}
    saved_as = saved_values(pair)
    found = {
        port.local: saved_as[port.name] for port in backward.inputs if port.name in saved_as and port.role == "saved"
    }
    made: dict[str, str] = {}
    for step in backward.steps:
        same = known.get(call_text(step, found)) if remakes(step) and set(used(step)) <= found.keys() else None
        if same is not None:
            found[step.name] = made[step.name] = same
    return made


def remakes(step: Step) -> bool:
    """Whether a step returns the same each time it runs: it is not a guard, a random draw or an update."""
    return not step.is_guard and not set(operators().get(step.target, "")) & {"r", "m"}


def call_text(step: Step, called: Mapping[str, str]) -> str:
    """Return a step's operator and arguments as text, with values renamed."""
    other = mapped(step, lambda name: Ref(called.get(name, name)))
    return show_step(replace(other, name="_", spec=None))


def with_saved(pair: Pair, part: ForwardPart, saved: Sequence[str], edge: Borders) -> ForwardPart:
    """Add the steps and inputs of the whole that only the part's saved values need. Raise Tangled if another part makes
    one."""
    steps = {step.name: step for step in pair.forward.steps}
    inputs = {port.local for port in pair.forward.inputs}
    holds = part.holds
    extra: dict[str, None] = {}
    wanted = [local for _, value in saved_side(pair, saved) for local in refs(value)]
    for local in behind(wanted, steps, lambda name: name in holds):
        if local in holds:
            continue
        if local in steps and local in edge.home:
            raise Tangled(f"its backward takes {local!r}, which its forward does not")
        extra[local] = None
    made = tuple(step for step in pair.forward.steps if step.name in extra and not step.is_guard)
    takes = tuple(local for local in extra if local in inputs)
    return replace(part, steps=(*part.steps, *made), takes=(*part.takes, *takes))


def saved_side(pair: Pair, names: Sequence[str]) -> tuple[tuple[Port, Value], ...]:
    """Return the saved ports of a part's forward, each with its value, from the backward's local names."""
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    given = {
        port.name: value for port, value in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"
    }
    ports = {port.local: port for port in backward.inputs}
    steps = {step.name: step for step in backward.steps}
    found: list[tuple[Port, Value]] = []
    for local in names:
        if local in ports and ports[local].role == "saved":
            port = ports[local]
            found.append((Port(port.name, "saved", port.spec), given[port.name]))
        elif local in steps:
            found.append((Port(local, "saved", steps[local].spec), Ref(recomputed(pair)[local])))
    return tuple(found)
