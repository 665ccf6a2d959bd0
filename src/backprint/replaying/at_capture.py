"""Compare an engine's capture with the untouched program before it is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backprint import settings
from backprint.defects import is_defect
from backprint.errors import ReplayError
from backprint.graph.keys import PortKey, is_tangent
from backprint.graph.links import free_ports, held_exact
from backprint.graph.nouns import Capture
from backprint.graph.origin import TracedOrigin
from backprint.graph.verdicts import PortVerdict
from backprint.replaying.draws import Draw, random_tangents
from backprint.replaying.results import Results, against, differing, results_by_port, unsteady
from backprint.replaying.verify import attempt, keep_worst
from backprint.sample.recipes import digest
from backprint.sample.redraws import disturbed
from backprint.tree import alias_groups, copy_values


@dataclass(frozen=True, slots=True)
class Proof:
    """How a new Capture compares with the program: of each port the worst verdict over all draws.

    `captured` says what differs on the captured values, `redrawn` what differs on others; '' means nothing. `pins` are
    the inputs that had other values then, with the digests of the captured values; all inputs if the program draws from
    generators of its own (`drawn`), because a sample cannot hold their states. `identity` says what the program itself
    returns differently for other tensors of the same values.
    """

    ports: tuple[PortVerdict, ...]
    captured: str = ""
    redrawn: str = ""
    pins: tuple[tuple[str, str], ...] = ()
    drawn: str = ""
    identity: str = ""


LIGHT = 2**20
"""Up to this many elements in total, a Capture is also tried under another seed and with negated inputs, separately."""


def held_against_program(capture: Capture, program: TracedOrigin) -> Proof:
    """Compare a Capture with the untouched program on the captured values, on other inputs, and under another seed."""
    found: dict[PortKey, PortVerdict] = {}
    values = program.values()
    with settings.quiet_random():
        captured = differs_on(capture, Draw("captured", values, random_tangents(capture, 1), capture.seed), found)
        if captured and reads_tangents(capture):  # then with the tangents of the recorded backward
            captured = differs_on(capture, Draw("captured", values, None, capture.seed), found)
        captured = captured or program.differs()
        if captured:
            return Proof(tuple(found.values()), captured, identity=by_identity(capture, program, values))
        if program.unheld:
            return Proof(tuple(found.values()), "", program.unheld[0], every_input(capture, values))
        light = sum(value.numel() for value in values.values()) <= LIGHT
        if light and program.aliased and (identity := by_identity(capture, program, values)):
            return Proof(tuple(found.values()), identity=identity)
        others = list(redraws(capture, values, light))
        reseeded = Draw("reseeded", values, None, capture.seed + 1, anew=True)
        unseen = differs_on(capture, reseeded, {}) if light or not others else ""
        for name, moved in others if not unseen else ():
            draw = Draw(name, {**values, **moved}, random_tangents(capture, 2), capture.seed + 1)
            if redrawn := differs_on(capture, draw, found if name == "redrawn" else {}):
                if identity := by_identity(capture, program, values):
                    return Proof(tuple(found.values()), identity=identity)
                if not light and (unseen := differs_on(capture, reseeded, {})):
                    break
                redrawn = f"the program reads them in a way that Backprint does not see: on others, {redrawn}"
                pins = tuple((each, digest(values[each])) for each in to_blame(capture, values, draw, moved))
                return Proof(tuple(found.values()), "", redrawn, pins)
        if unseen:
            unseen = f"under another seed, {unseen}: Backprint does not see all random numbers that are drawn"
            return Proof(tuple(found.values()), unseen, identity=by_identity(capture, program, values))
    drawn = program.drawn_from()
    return Proof(tuple(found.values()), pins=every_input(capture, values) if drawn else (), drawn=drawn)


def by_identity(capture: Capture, program: TracedOrigin, values: Mapping[str, Tensor]) -> str:
    """Say what the program returns differently for other tensors with the captured values; '' if nothing."""
    own, other, again = (program_alone(program, capture.seed, values, anew) for anew in (False, True, False))
    if own is None or other is None or again is None:
        return ""
    return differing([unsteady(port, own, again) for port in against(other, own)])


def program_alone(program: TracedOrigin, seed: int, values: Mapping[str, Tensor], anew: bool) -> Results | None:
    """Return the program's results in its own tensors with these values, or in other tensors; None if it raises."""
    torch.manual_seed(seed)
    try:
        gave = program.step_alone(values, anew)
    except Exception as error:  # the program may raise anything: there is nothing to compare
        if is_defect(error):
            raise
        return None
    return results_by_port(gave.outputs, gave.mutations, gave.gradients)


def every_input(capture: Capture, values: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Return the program's inputs and constants, with the digests of their values."""
    names = [port.name for port in free_ports(capture) if port.role in ("input", "constant")]
    return tuple((name, digest(values[name])) for name in names if name in values)


def reads_tangents(capture: Capture) -> bool:
    """Whether a guard depends on a tangent."""
    return any(is_tangent(name) for guard in capture.guards for name in guard.inputs)


MOST_BLAMED = 16
"""Up to this many inputs are redrawn one by one, to find which of them the program reads."""


def to_blame(capture: Capture, values: Mapping[str, Tensor], draw: Draw, moved: Mapping[str, Tensor]) -> list[str]:
    """Return the inputs for which, redrawn alone, the Capture and the program differ; all redrawn inputs if none does
    alone."""
    if len(moved) > MOST_BLAMED:
        return list(moved)
    groups = {name: set(group) for group in alias_groups(dict(moved)) for name in group}
    alone = []
    for name in moved:
        one_moved = {each: moved[each] for each in groups.get(name, {name})}
        if differs_on(capture, replace(draw, values={**values, **one_moved}), {}):
            alone.append(name)
    return alone or list(moved)


def differs_on(capture: Capture, draw: Draw, found: dict[PortKey, PortVerdict]) -> str:
    """Compare on one draw, and keep the verdicts in `found`; return what differs, '' if nothing.

    On other inputs than the captured ones a Capture may raise, which is not silently wrong.
    """
    try:
        tried = attempt(capture, draw, [])
    except ReplayError as error:
        if draw.name != "captured":
            return ""
        if error.__cause__ is not None and "the original program failed" in str(error):
            raise error.__cause__ from None
        return str(error)
    if tried is None:
        return ""
    keep_worst(found, draw.name, tried.verdicts)
    return differing(tried.verdicts)


def redraws(capture: Capture, values: Mapping[str, Tensor], light: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield other values for the program's inputs: of the same kind, and negated."""
    held = held_exact(capture)
    same = {right for _, right in capture.signature.same}
    names = [port.name for port in free_ports(capture) if port.role == "input" and port.name not in same]
    own = {name: values[name] for name in names if name in values}
    free = {name: tensor for name, tensor in own.items() if name not in held}
    if not free:
        return
    yield "redrawn", joined_again(own, free, disturbed)
    floats = {name: tensor for name, tensor in free.items() if tensor.is_floating_point() or tensor.is_complex()}
    if len(floats) < len(free) and floats:
        yield "redrawn", joined_again(own, floats, disturbed)
    if light and floats:
        yield "turned", joined_again(own, floats, lambda tensor, seed: -2 * tensor)


def joined_again(
    own: Mapping[str, Tensor], free: Mapping[str, Tensor], change: Callable[[Tensor, int], Tensor | None]
) -> dict[str, Tensor]:
    """Change these tensors in copies that share memory as they do; those without a strided layout stay."""
    copies = copy_values(own)
    groups = {name: group for group in alias_groups(dict(own)) for name in group}
    done: set[str] = set()
    for seed, (name, tensor) in enumerate(free.items()):
        group = groups.get(name, (name,))
        if name in done or not set(group) <= set(free) or tensor.layout is not torch.strided or tensor.is_conj():
            continue
        widest = max(group, key=lambda each: copies[each].numel())
        fresh = change(own[widest].detach(), seed)
        done |= set(group)
        if fresh is not None and 0 not in copies[widest].stride():
            copies[widest].copy_(fresh)
    return {name: copies[name] for name in free if name in done}
