"""Compare an engine's capture with the untouched program before it is accepted.

A Draw is a set of inputs with a seed. The captured values are those of the call; `redrawn` ones are others. An input is
*pinned* if the Capture is to run on its captured values only. A program runs *anew* if its arguments are copies, so
that no tensor is the one of the call. A *guard* is a condition on inputs that the Capture assumes; HELD are the kinds
of guards that hold an input to its value. `verdicts` is a dict to which comparisons add: of each port the worst
PortVerdict so far. A difference is a text, '' for none, which `difference_text` makes of verdicts. `attempt` runs a
Capture and the program on a Draw and compares them. An *unsteady* port is one in which two runs of the program differ,
so that nothing can be compared with it.

A Proof has such a difference for each comparison: `captured` and `redrawn` (on those values), `moved` (from the first
run), `identity` (on other tensors of the same values). A Redraw has `tries`, each with other values for some inputs,
and in `alone` the inputs that count as compared on their captured values only if no try can be compared. A *light*
Capture has few elements (LIGHT), so that more is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.errors import CaptureError, ReplayError, is_defect
from backprint.graph.depends import SHAPE_ONLY, bare_operator
from backprint.graph.keys import PortKey, is_tangent
from backprint.graph.links import free_ports, names_held_exact
from backprint.graph.nouns import Capture, Guard, Pair, Ref, refs
from backprint.graph.steps import names_behind
from backprint.graph.verdicts import PortVerdict
from backprint.prove.draws import Draw, random_tangents
from backprint.prove.other_inputs import HELD
from backprint.prove.results import (
    Results,
    compare_results,
    difference_text,
    is_inexact,
    results_by_port,
    unproven_if_unsteady,
)
from backprint.prove.verify import attempt, keep_worst
from backprint.run_sample import digest
from backprint.sample.redraws import disturb, nudge_floats
from backprint.values import settings
from backprint.values.settings import seed_torch
from backprint.values.tree import alias_groups, copy_values


@dataclass(frozen=True, slots=True)
class Proof:
    """How a new Capture compares with the program: of each port the worst verdict over all draws.

    `captured` says what differs on the captured values, `redrawn` what differs on others; '' means nothing. `pins` has
    the inputs that are to blame for that, with the digests of the captured values; all inputs if the program draws from
    generators of its own (named in `drawn`), because a sample cannot hold their states. `identity` says what the
    program itself returns differently for other tensors of the same values. `alone` has a guard for each input of which
    no other value was compared. `moved` says what the program returned differently in its first run.
    """

    ports: tuple[PortVerdict, ...]
    captured: str = ""
    redrawn: str = ""
    pins: tuple[tuple[str, str], ...] = ()
    drawn: str = ""
    identity: str = ""
    alone: tuple[Guard, ...] = ()
    moved: str = ""


class _RaisesAgain(CaptureError):
    """The program raises when it runs again, though its first run did not."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"the program ran once, and raises when it runs again on the same inputs ({type(cause).__name__}: "
            f"{str(cause)[:300]}), so nothing can be compared with it: a run leaves something behind that Backprint "
            "cannot restore. Pass what it reads as an argument",
            every_engine=True,
        )


LIGHT = 2**20
"""A Capture whose inputs have at most this many elements is light: it is also tried under another seed alone, and with
negated inputs."""


def held_against_program(capture: Capture, program: Any) -> Proof:
    """Compare a Capture with the untouched program on the captured values, on other inputs, and under another seed.

    `program` is the `LiveProgram` of `trace/captured` that the Capture has as its origin; it is not imported here, as
    `trace` stands beside this room. A difference may have another cause than the graphs, so after each it is asked
    whether the program returns something else for other tensors of the same values (`difference_by_identity`). Then it
    reads what no graph has, such as the `id` of an argument, and no redraw would show more.
    """
    verdicts: dict[PortKey, PortVerdict] = {}
    values = program.values()
    with settings.preserving_random_states():
        proof = _compare_on_captured_values(capture, program, values, verdicts)
        # A read without a guard may be of any input. All are pinned then, and a redraw has nothing to add.
        if proof is None and program.unguarded:
            pins = _every_input(capture, values)
            return Proof(tuple(verdicts.values()), redrawn=program.unguarded[0], pins=pins)
        proof = proof or _compare_on_other_values(capture, values, verdicts)
        differs = proof.captured or proof.redrawn or proof.moved
        # At capture it ran on other tensors in the memory of its arguments. If it tells these apart, the Capture agrees
        # with it all the same.
        if differs or (program.ran_on_aliases and _is_light(values)):
            proof = replace(proof, identity=difference_by_identity(capture, program, values))
    if not differs and (generators := program.own_generators()):
        proof = replace(proof, pins=_every_input(capture, values), drawn=generators)
    return replace(proof, ports=tuple(verdicts.values()))


def _is_light(values: Mapping[str, Tensor]) -> bool:
    """Whether the inputs have few elements in total."""
    return sum(value.numel() for value in values.values()) <= LIGHT


def _compare_on_captured_values(
    capture: Capture, program: Any, values: dict[str, Tensor], verdicts: dict[PortKey, PortVerdict]
) -> Proof | None:
    """Compare on the captured values, and with the program's first run; add the verdicts to `verdicts`. Return a Proof
    without ports that says what differs; None if nothing does."""
    # Tangents are drawn here, so that a backward that ignores them is seen. A guard that reads a tangent may refuse
    # these; then the tangents of the recorded backward are used.
    tangents = random_tangents(capture, seed=1)
    difference = _difference_on(capture, Draw("captured", values, tangents, capture.seed), verdicts)
    if not difference:
        difference_from_first = _difference_from_first_run(capture, program, values)
        return Proof(ports=(), moved=difference_from_first) if difference_from_first else None
    if _reads_tangents(capture):
        difference = _difference_on(capture, Draw("captured", values, tangents=None, seed=capture.seed), verdicts)
    return Proof(ports=(), captured=difference) if difference else None


def _compare_on_other_values(
    capture: Capture, values: dict[str, Tensor], verdicts: dict[PortKey, PortVerdict]
) -> Proof:
    """Compare on other inputs and under another seed; add verdicts on other inputs to `verdicts`. Return a Proof
    without ports that says what differs, or else which inputs had no other values that could be compared.

    Another seed comes first where that costs little, and else if a difference may be due to it.
    """
    is_light = _is_light(values)
    all_redraws = [*redraws(capture, values, is_light), *_guarded_redraws(capture, values, is_light)]
    reseeded_draw = Draw("reseeded", values, tangents=None, seed=capture.seed + 1, anew=True)
    if (is_light or not all_redraws) and (difference_by_seed := _difference_on(capture, reseeded_draw, verdicts={})):
        return _under_another_seed(difference_by_seed)
    only_captured: list[str] = []  # inputs that were compared at their captured values alone
    for redraw in all_redraws:
        is_compared = False
        for new_values in redraw.tries:
            tangents = random_tangents(capture, seed=2)
            draw = Draw(redraw.name, {**values, **new_values}, tangents, capture.seed + 1)
            # Only the verdicts of `redrawn` count for the ports: negated inputs may be none that a program takes.
            difference = _difference_if_comparable(capture, draw, verdicts if redraw.name == "redrawn" else {})
            is_compared |= difference is not None
            if not difference:
                continue
            # Redraws run under another seed too. So the seed is asked first, which a Capture of many elements has not
            # been yet.
            if not is_light and (difference_by_seed := _difference_on(capture, reseeded_draw, verdicts={})):
                return _under_another_seed(difference_by_seed)
            pins = tuple((name, digest(values[name])) for name in inputs_to_blame(capture, values, draw, new_values))
            reason = f"the program reads them in a way that Backprint does not see: on others, {difference}"
            return Proof(ports=(), redrawn=reason, pins=pins)
        only_captured += () if is_compared else redraw.alone
    return Proof(ports=(), alone=guards_alone(capture, only_captured))


def _under_another_seed(difference: str) -> Proof:
    """Return the Proof of a Capture that differs with other random numbers."""
    # It counts as a difference on the captured values: another seed is no other input, so no pin would help.
    reason = f"under another seed, {difference}: Backprint does not see all random numbers that are drawn"
    return Proof(ports=(), captured=reason)


def _difference_from_first_run(capture: Capture, program: Any, values: Mapping[str, Tensor]) -> str:
    """Say what the program returned differently in the first run that was watched, before its engine traced it; '' if
    nothing, if the engine traced that run itself, or if the program raises now."""
    if not program.first_outputs:
        return ""
    results = _run_program(program, capture.seed, values, anew=False)
    if results is None:
        return ""
    outputs = {key: tensor for key, tensor in results.items() if key.role == "output"}
    ports = compare_results(results_by_port(program.first_outputs, mutations={}, gradients={}), outputs)
    if not difference_text(ports):
        return ""
    # A program that never repeats itself differs in every run, so its first run says nothing.
    results_again = _run_program(program, capture.seed, values, anew=False)
    if results_again is not None:
        ports = [unproven_if_unsteady(port, results, results_again) for port in ports]
    return difference_text(ports)


def guards_alone(capture: Capture, names: Sequence[str]) -> tuple[Guard, ...]:
    """Return a guard of kind `alone` for each of these inputs, which were compared at their captured values alone. Its
    text has the guard that other values would break."""
    guards = []
    for name in names:
        text = next((guard.text for guard in capture.guards if name in guard.inputs and guard.kind in HELD), "")
        guards.append(
            Guard(
                "alone",
                f"{name} was compared at its captured values alone: no other that was tried keeps `{text[:120]}`",
                (name,),
            )
        )
    return tuple(guards)


def difference_by_identity(capture: Capture, program: Any, values: Mapping[str, Tensor]) -> str:
    """Say what the program returns differently for other tensors with the captured values; '' if nothing, or if it
    raises."""
    # Twice in its own tensors: where these two runs differ, the program does not repeat itself, whatever its tensors
    # are.
    results, results_of_copies, results_again = (
        _run_program(program, capture.seed, values, anew) for anew in (False, True, False)
    )
    if results is None or results_of_copies is None or results_again is None:
        return ""
    return difference_text(
        [unproven_if_unsteady(port, results, results_again) for port in compare_results(results_of_copies, results)]
    )


def _run_program(program: Any, seed: int, values: Mapping[str, Tensor], anew: bool) -> Results | None:
    """Return the program's results on these values, in the tensors that it was captured with or, with `anew`, in
    copies; None if it raises. Arguments that require grad only because a capture makes them do not require it here."""
    seed_torch(seed)
    try:
        outcome = program.run_step_without_default_grad(values, anew)
    except Exception as error:  # the program may raise anything: there is nothing to compare
        if is_defect(error):
            raise
        return None
    return results_by_port(outcome.outputs, outcome.mutations, outcome.gradients)


def _every_input(capture: Capture, values: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """Return the program's inputs and constants, with the digests of their values."""
    names = [port.name for port in free_ports(capture) if port.role in ("input", "constant")]
    return tuple((name, digest(values[name])) for name in names if name in values)


def _reads_tangents(capture: Capture) -> bool:
    """Whether a guard depends on a tangent."""
    return any(is_tangent(name) for guard in capture.guards for name in guard.inputs)


MAX_BLAMED = 16
"""Up to this many inputs are redrawn one by one, to find which of them the program reads."""


def inputs_to_blame(
    capture: Capture, values: Mapping[str, Tensor], draw: Draw, other_values: Mapping[str, Tensor]
) -> list[str]:
    """Return the inputs for which, redrawn alone, the Capture and the program differ; all redrawn inputs if there is
    none, or if they are more than MAX_BLAMED. `other_values` has the other values, and `draw` is the Draw with them on
    which the two differ."""
    if len(other_values) > MAX_BLAMED:
        return list(other_values)
    # Inputs that share memory cannot have other values one without the other.
    groups = {name: set(group) for group in alias_groups(dict(other_values)) for name in group}
    blamed = []
    for name in other_values:
        new_values = {member: other_values[member] for member in groups.get(name, {name})}
        if _difference_on(capture, replace(draw, values={**values, **new_values}), verdicts={}):
            blamed.append(name)
    return blamed or list(other_values)


def _difference_on(capture: Capture, draw: Draw, verdicts: dict[PortKey, PortVerdict]) -> str:
    """Compare a Capture with the program on one draw, and add the verdicts to `verdicts`. Return what differs; '' if
    nothing does, or if nothing was compared."""
    return _difference_if_comparable(capture, draw, verdicts) or ""


def _difference_if_comparable(capture: Capture, draw: Draw, verdicts: dict[PortKey, PortVerdict]) -> str | None:
    """Compare a Capture with the program on one draw, and add the verdicts to `verdicts`. Return what differs, '' if
    nothing does; None if nothing could be compared.

    On other inputs than the captured ones a Capture may raise, which is not silently wrong.
    """
    try:
        attempted = attempt(capture, draw, details=[])
    except ReplayError as error:
        if draw.name != "captured":
            return None
        if error.__cause__ is not None and "the original program failed" in str(error):  # of `compare_with_program`
            raise _RaisesAgain(error.__cause__) from error.__cause__
        return str(error)
    if attempted is None or not attempted.verdicts:
        return None
    keep_worst(verdicts, draw.name, attempted.verdicts)
    return difference_text(attempted.verdicts)


@dataclass(frozen=True, slots=True)
class Redraw:
    """Other values for some inputs, in several tries; each try has values by name. If no try can be compared, the
    inputs in `alone` were compared at their captured values only. `name` is the name of the draws."""

    name: str
    tries: Iterable[Mapping[str, Tensor]]
    alone: tuple[str, ...] = ()


def redraws(capture: Capture, values: Mapping[str, Tensor], is_light: bool) -> Iterator[Redraw]:
    """Yield other values for the inputs that no guard depends on: of the same kind, and for a light Capture negated and
    doubled."""
    held_names = names_held_exact(capture)
    inputs = _own_inputs(capture, values)
    free = {name: tensor for name, tensor in inputs.items() if name not in held_names}
    if not free:
        return
    yield Redraw("redrawn", [_changed_in_shared_memory(inputs, free, disturb)])
    floats = {name: tensor for name, tensor in free.items() if is_inexact(tensor)}
    # Once more without the integers: a program may refuse other indices, and then nothing at all was compared.
    if len(floats) < len(free) and floats:
        yield Redraw("redrawn", [_changed_in_shared_memory(inputs, floats, disturb)])
    if is_light and floats:
        yield Redraw("turned", [_changed_in_shared_memory(inputs, floats, lambda tensor, seed: -2 * tensor)])


MAX_GUARDED = 8
"""Up to this many inputs that guards depend on are redrawn."""

LITTLE = 2**-10
"""How far floats that a guard depends on move, in parts of their size."""

Change = Callable[[Tensor, int], "Tensor | None"]
"""Returns other values of a tensor, by a seed; None if there are none."""

KEEPING: tuple[Change, ...] = (
    lambda tensor, seed: nudge_floats(tensor, seed, LITTLE),  # keeps most comparisons
    lambda tensor, seed: -tensor,  # keeps what is even
    lambda tensor, seed: tensor.flatten().flip(0).reshape(tensor.shape),  # keeps sums and extremes
    lambda tensor, seed: disturb(tensor, seed),
)
"""Changes of floats that may keep what a guard says of them."""


def _guarded_redraws(capture: Capture, values: Mapping[str, Tensor], is_light: bool) -> Iterator[Redraw]:
    """Yield other values for each input that a guard depends on, up to MAX_GUARDED of them, made by changes that may
    keep the guard (KEEPING).

    A program may read more of an input than its guards hold. Where a guard holds all of it, nothing is left to compare.
    """
    inputs = _own_inputs(capture, values)
    guarded = {name for guard in capture.guards if guard.kind in HELD for name in guard.inputs}
    names = [name for name in inputs if name in guarded and not _is_fixed_by_guards(capture, name, inputs[name])]
    for name in names[:MAX_GUARDED]:
        changes = KEEPING if is_inexact(inputs[name]) else (disturb,)  # `disturb` permutes integers
        group = next((group for group in alias_groups(inputs) if name in group), (name,))
        # The first change alone, unless the Capture is light.
        tries = changed_groups(inputs, group, changes if is_light else changes[:1])
        yield Redraw("redrawn", tries, (name,) if is_inexact(inputs[name]) else ())


def changed_groups(
    inputs: Mapping[str, Tensor], group: Sequence[str], changes: Sequence[Change]
) -> Iterator[Mapping[str, Tensor]]:
    """Yield other values for a group of inputs that share memory, by one change after the other. A change that leaves
    all as they are is left out: a tensor of ones is the same in any order."""
    for change in changes:
        new_values = _changed_in_shared_memory(inputs, {member: inputs[member] for member in group}, change)
        if any(digest(tensor) != digest(inputs[name]) for name, tensor in new_values.items()):
            yield new_values


def _is_fixed_by_guards(capture: Capture, name: str, value: Tensor) -> bool:
    """Whether guards fix every number of an input: a `pinned` one or an `aten.equal` all of them, or as many guards as
    there are numbers one each."""
    if any(name in guard.inputs for guard in capture.guards if guard.kind == "pinned"):
        return True
    fixed = sum(guard.inputs == (name,) and " == " in guard.text for guard in capture.guards)
    ports = {port.local for pair in capture.pairs for port in pair.forward.inputs if port.name == name}
    return fixed >= max(1, value.numel()) or any(
        not ports.isdisjoint(_names_fixed_by_equal(pair)) for pair in capture.pairs
    )


def _names_fixed_by_equal(pair: Pair) -> set[str]:
    """Return the names of a forward's values whose every element a guard fixes: a number or a tensor with one element,
    which the guard asserts itself, or one side of an `aten.equal` that is asserted to be True, if no input of the
    program is behind the other side. `equal(x, x.T)` fixes nothing: other values have that, too."""
    steps = {step.name: step for step in pair.forward.steps if not step.is_guard}
    inputs = {port.local for port in pair.forward.inputs if port.role == "input"}

    def reads_only_shape(name: str) -> bool:
        return bare_operator(steps[name]) in SHAPE_ONLY

    names: set[str] = set()
    for step in pair.forward.steps:
        if step.is_guard and step.target == "assert_equal" and isinstance(step.args[0], Ref):
            maker = steps.get(step.args[0].name)
            if maker is None:  # an input of the graph
                names.add(step.args[0].name)
            elif maker.target == "aten.equal.default" and step.args[1] is True:
                left, right = maker.args
                for side, other in ((left, right), (right, left)):
                    behind = names_behind(
                        refs(other), steps, stops=lambda name: bare_operator(steps[name]) in SHAPE_ONLY
                    )
                    if isinstance(side, Ref) and inputs.isdisjoint(behind):
                        names.add(side.name)
    return names


def _own_inputs(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the values of the program's inputs, each under one name."""
    same = {right for _, right in capture.signature.same}
    names = [port.name for port in free_ports(capture) if port.role == "input" and port.name not in same]
    return {name: values[name] for name in names if name in values}


def _changed_in_shared_memory(
    inputs: Mapping[str, Tensor], free: Mapping[str, Tensor], change: Change
) -> dict[str, Tensor]:
    """Return the tensors of `free`, which are among `inputs`, changed: in copies that share memory as the tensors of
    `inputs` do. Left out are tensors that cannot be changed: sparse and conjugated ones, and those in whose memory an
    input lies that is not in `free`. An expanded tensor is returned as it is."""
    copies = copy_values(inputs)
    groups = {name: group for group in alias_groups(dict(inputs)) for name in group}  # of inputs that share memory
    done: set[str] = set()
    for seed, (name, tensor) in enumerate(free.items()):
        group = groups.get(name, (name,))
        # Memory stays as it is if a tensor that must not change lies in it too.
        if name in done or not set(group) <= set(free) or tensor.layout is not torch.strided or tensor.is_conj():
            continue
        # The input of the group with the most elements is changed, and the others with it.
        widest = max(group, key=lambda member: copies[member].numel())
        fresh = change(inputs[widest].detach(), seed)
        done |= set(group)
        # Of an expanded tensor several elements are one place in memory, which `copy_` refuses.
        if fresh is not None and 0 not in copies[widest].stride():
            copies[widest].copy_(fresh)
    return {name: copies[name] for name in free if name in done}
