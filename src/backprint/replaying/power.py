"""Convert a Capture to float64: every floating-point dtype in its graphs."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint.errors import BackprintError, GuardError, ReplayError, UsageError
from backprint.graph.depends import dependence, dependence_of_parts
from backprint.graph.keys import PortKey, is_tangent, without_tangents
from backprint.graph.links import compared_alone, free_ports
from backprint.graph.nouns import (
    Atom,
    Capture,
    Dict,
    Graph,
    InputRecipes,
    List,
    Pair,
    Port,
    Slice,
    Step,
    TensorSpec,
    Value,
)
from backprint.graph.sizes import at_hints
from backprint.graph.verdicts import Moved, PortVerdict, Power, Trial, side_of
from backprint.replaying.other_inputs import held_by_guards, unchecked_inputs
from backprint.replaying.results import Results, is_inexact, moved, moves, stands, strength
from backprint.replaying.whole import replay_values
from backprint.sample.redraws import another, neutral, units
from backprint.values import settings
from backprint.values.tree import strided_parts

WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}


def widened_value(value: Tensor) -> Tensor:
    """Return a floating-point tensor in float64; any other itself."""
    return value.double() if value.is_floating_point() else value


def wide(capture: Capture) -> Capture:
    """Return the Capture in float64."""
    pairs = tuple(
        Pair(pair.name, widened(pair.forward), None if pair.backward is None else widened(pair.backward))
        for pair in capture.pairs
    )
    return replace(capture, pairs=pairs)


def widened(graph: Graph) -> Graph:
    return replace(
        graph,
        inputs=tuple(replace(port, spec=wide_spec(port)) for port in graph.inputs),
        outputs=tuple(replace(port, spec=wide_spec(port)) for port in graph.outputs),
        steps=tuple(wide_step(step) for step in graph.steps),
        subgraphs=tuple((name, widened(sub)) for name, sub in graph.subgraphs),
    )


def wide_spec(port: Port) -> Any:
    spec = port.spec
    return replace(spec, dtype=WIDE.get(spec.dtype, spec.dtype)) if isinstance(spec, TensorSpec) else spec


def wide_step(step: Step) -> Step:
    args, kwargs = wide_value(step.args), tuple((key, wide_value(value)) for key, value in step.kwargs)
    return step if (args, kwargs) == (step.args, step.kwargs) else replace(step, args=args, kwargs=kwargs)


def wide_value(value: Value) -> Any:
    """Replace floating-point dtypes in a value by float64."""
    match value:
        case Atom(name):
            return Atom(WIDE.get(name, name))
        case tuple():
            return tuple(wide_value(item) for item in value)
        case List(items):
            return List(tuple(wide_value(item) for item in items))
        case Dict(items):
            return Dict(tuple((wide_value(key), wide_value(item)) for key, item in items))
        case Slice():
            return value
    return value


# ----------------------------------------------------------------------------
# Power: how far outputs, gradients and mutations move, in tolerances, when inputs are redrawn.
#
# A check of a port that no input moves proves nothing about it. Inputs are redrawn one by one, and in groups, each
#  time from the same base run, and every port that depends on the redrawn inputs is measured. Which ports depend on
#  which inputs is read from the graphs. A path does not mean dependence (a bias before a batch norm, a shift of
#  scores before a softmax), so a port with a path that does not move is tried once more: in float64, at a neutral
#  point, where weights keep the scale of their inputs and nothing is dead or saturated. If it does not move there
#  either, to NULL of its size, it does not depend on that input mathematically, and need not move. If it moves there,
#  this sample's own values hide the input: weak.
#
# **A port's power** is its largest movement in the standard redraws: the program's inputs and the tangents together,
#  and while some port does not move, more of them: parameters, buffers, everything, small steps that keep a guard,
#  one input alone. A port that depends on an input on which the Capture was compared at its captured values alone has
#  none. They are the same for `save`, `verify` and `power`, limited by number and never by time, so all three report
#  one number. If no port of a side (outputs and mutations, or gradients) that depends on the inputs moves with them,
#  other movement of these ports does not count. A port of integers or bools has power if any element changes. The
#  trials of `own` and `all` are about inputs: which of them could be ignored without a check noticing.
# ----------------------------------------------------------------------------

SEED = 0x90E7

GROUPS = {"parameter": "parameters", "buffer": "buffers"}
"""Inputs that are redrawn together, by their role."""

CHOICES = ("quick", "own", "all")

EVERYTHING, TOGETHER = "everything", "inputs"

BROKE = "does not run on it"

MOST_BYTES = 2**31
"""If inputs and saved values have more bytes, the neutral point is not tried, and a port that does not move is weak."""

NUDGE, LITTLE = 2**-6, 2**-10
"""Relative steps of floats where a draw breaks the program, or a guard holds the input."""

FURTHER, ALONE = 10, 4
"""The most redraws for ports that do not move, and how many of these are of one input alone."""

Sides = tuple[Results, ...]
"""The results of a run: of the whole Capture, then of each linked Pair."""

Way = tuple[bool, "float | None"]
"""How inputs are redrawn: floats only or all, and by which step; None is a new draw."""

WAYS: tuple[Way, ...] = ((False, None), (True, None), (True, NUDGE))
"""The first on which the program runs counts."""

GUARDED: tuple[Way, ...] = ((False, NUDGE), (False, LITTLE))
"""How inputs that a guard holds are redrawn: by small steps, which the guard may allow."""


@dataclass(frozen=True, slots=True)
class Base:
    """The run that others are compared with: the inputs, with tangents as `tangent y`, and the results, also of each
    Pair."""

    values: Mapping[str, Tensor]
    ports: Results
    parts: Sides = ()


def power_of(
    capture: Capture,
    inputs: str = "own",
    *,
    seconds: float | None = None,
    count: int | None = None,
    base: Base | None = None,
    recipes: InputRecipes | None = None,
    fresh: Mapping[str, Tensor] | None = None,
    only: Collection[str] | None = None,
    seed: int = SEED,
) -> Power:
    """Return the power of a Capture on its recipes' inputs.

    `inputs="quick"` is only the standard redraws. `"own"` also redraws each of the program's inputs alone, all
    parameters, all buffers, and everything together; `"all"` each parameter and buffer alone too. `seconds` and `count`
    end these early; then `"all"` has tried a random part, the program's inputs first. `recipes` (with their data, as
    `sample.inputs` has them) replace the Capture's own, and `fresh` their next draw; `only` names the inputs to redraw
    alone. `base` is a run that exists already.
    """
    if inputs not in CHOICES:
        raise UsageError(f"power={inputs!r} is not one of {', '.join(CHOICES)}")
    made = capture.recipes if recipes is None else recipes
    if capture.fake or not made.complete:
        raise ReplayError(f"{capture.name} has inputs without values, so nothing can be redrawn")
    with settings.ONE_AT_A_TIME, settings.preserving_random_states(), settings.with_settings(dict(capture.environment)):
        if base is None:
            values = made.make()
            ports, *parts = results_on(capture, values)
            base = Base(values, ports, tuple(parts))
        study = Study(capture, made.recipes, base, dict(fresh or {}), seed)
        single = study.singles(inputs, only, seconds is not None or count is not None)
        return study.power(study.groups(inputs), single, seconds, count)


def with_power(port: PortVerdict, powers: Mapping[str, float]) -> PortVerdict:
    """Return a port's verdict with its power, from a Power's `most` or one of its `parts`."""
    return replace(port, power=powers.get(str(port.key)))


def why_without_power(power: Power) -> list[str]:
    """Say why ports have no power if the program does not run on other inputs."""
    broke = [trial for trial in power.trials[:1] if trial.untried.startswith(BROKE)] if power.vacuous else []
    return [f"{trial.name} could not be redrawn ({trial.untried})" for trial in broke]


def other_values(capture: Capture, values: Mapping[str, Tensor], seed: int = SEED) -> dict[str, Tensor]:
    """Return other values for everything except constants and inputs that a guard holds."""
    recipes = capture.recipes.recipes
    roles = {port.name: port.role for port in free_ports(capture)}
    held = held_by_guards(capture)
    found: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(each in values and each not in held and roles.get(each) != "constant" for each in names):
            found |= another(names, recipes, values, seed) or {}
    return found


class Study:
    """A Capture whose power is being measured."""

    def __init__(
        self, capture: Capture, recipes: Mapping[str, Any], base: Base, fresh: dict[str, Tensor], seed: int
    ) -> None:
        self.capture, self.recipes, self.base, self.fresh, self.seed = capture, recipes, base, fresh, seed
        self.roles = {port.name: port.role for port in free_ports(capture)}
        self.hangs = (dependence(capture), *dependence_of_parts(capture))
        self.units = {name: names for name, names in units(recipes).items() if self.reached(names)}
        self.held = held_by_guards(capture)
        pinned = {name for guard in capture.guards if guard.kind == "pinned" for name in guard.inputs}
        self.pinned = pinned | {name for name in self.held if self.equals(name)}
        self.unchecked = unchecked_inputs(capture, base.values)
        self.alone = frozenset(name for guard in compared_alone(capture) for name in guard.inputs)
        self.point: Base | str | None = None
        self.most = [
            {key: 0.0 for key, value in ports.items() if moves(value) and hangs.get(key)}
            for hangs, ports in zip(self.hangs, (base.ports, *base.parts), strict=False)
        ]
        self.capped: dict[PortKey, float] = {}

    def reached(self, names: Collection[str]) -> bool:
        """Whether any result depends on one of these."""
        return any(not found.isdisjoint(names) for hangs in self.hangs for found in hangs.values())

    def equals(self, name: str) -> bool:
        """Whether a guard fixes the one number of an input."""
        value = self.base.values.get(name)
        return (
            isinstance(value, Tensor)
            and value.numel() == 1
            and any(guard.inputs == (name,) and " == " in guard.text for guard in self.capture.guards)
        )

    def singles(self, inputs: str, only: Collection[str] | None, part: bool) -> list[str]:
        """Return the inputs to redraw alone, in order."""
        found = [name for name in self.units if not is_tangent(name)]
        if only is not None:
            return [name for name in found if name in only]
        found = [name for name in found if (self.role(name) == "input" and inputs == "own") or inputs == "all"]
        if inputs == "all" and part:
            random.Random(self.seed).shuffle(found)
            found.sort(key=lambda name: self.role(name) != "input")
        return found

    def power(
        self, groups: Sequence[tuple[str, tuple[str, ...]]], single: list[str], seconds: float | None, count: int | None
    ) -> Power:
        """Run the standard trials; then, if requested, groups and single inputs until time or number run out."""
        standard = self.standard()
        most, *parts = (self.measured(index) for index in range(len(self.most)))
        if not groups and not single:
            return Power(tuple(standard), 0, 0, most, tuple(parts))
        started = time.monotonic()
        done: list[Trial] = []
        for name, together in [*groups, *((f"{self.role(name)} {name}", (name,)) for name in single)]:
            spent = time.monotonic() - started
            if done and ((seconds is not None and spent > seconds) or (count is not None and len(done) >= count)):
                break
            done.append(self.trial(name, together))
        tried = sum(not trial.untried for trial in done[len(groups) :])
        return Power(tuple(done), tried, len(single), most, tuple(parts))

    def measured(self, side: int) -> tuple[tuple[str, float], ...]:
        """Return the power of each port, without ports that depend only on pinned inputs: they never change.

        A port that depends on an input which no check sees change has none.
        """
        capped = {} if side else self.capped
        hangs, blind = self.hangs[side], self.unchecked | self.alone
        rows = {
            key: min(by, capped.get(key, by)) if blind.isdisjoint(hangs[key]) else 0.0
            for key, by in self.most[side].items()
        }
        fixed = self.pinned - self.alone
        return tuple((str(key), by) for key, by in rows.items() if by >= 1 or not hangs[key] <= fixed)

    def role(self, name: str) -> str:
        """Return the role of an input."""
        return "tangent" if is_tangent(name) else self.roles.get(name, "constant")

    def of_roles(self, *roles: str) -> tuple[str, ...]:
        """Return the inputs of some roles."""
        return tuple(name for name in self.units if self.role(name) in roles)

    def groups(self, inputs: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the groups that `own` and `all` redraw together."""
        if inputs == "quick":
            return []
        rows = [(EVERYTHING, tuple(self.units)), *((said, self.of_roles(role)) for role, said in GROUPS.items())]
        return [(said, names) for said, names in rows if names]

    # -------------------------------------------------------------- the standard redraws

    def standard(self) -> list[Trial]:
        """Run the redraws that determine each port's power, until every port that can move has moved."""
        own = self.of_roles("input", "tangent")
        done = [self.first(own)] if own else []
        for name, names, ways in self.further(own):
            still = self.still()
            if not still or len(done) > FURTHER:
                break
            if still & frozenset(names):
                done.append(self.trial(name, names, ways, standard=True))
        return done

    def further(self, own: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], tuple[Way, ...]]]:
        """Yield the redraws to try while some port does not move."""
        for role, said in GROUPS.items():
            yield said, self.of_roles(role), WAYS
        yield EVERYTHING, tuple(self.units), WAYS
        yield f"{TOGETHER}, a little", tuple(name for name in own if name not in self.held), ((True, NUDGE),)
        guarded = tuple(name for name in self.units if name in self.held - self.pinned)
        yield "what guards hold, a little", guarded, GUARDED
        for name in guarded[:ALONE] if len(guarded) > 1 else ():
            yield f"{name}, which a guard holds, a little", (name,), GUARDED
        for name in self.of_roles("input")[:ALONE]:
            yield f"input {name}", (name,), WAYS

    def still(self) -> frozenset[str]:
        """Return the inputs of ports that have not moved yet, if it would count for them."""
        found: set[str] = set()
        for side, (hangs, most) in enumerate(zip(self.hangs, self.most, strict=False)):
            for key, by in most.items():
                if by < 1 and (side or key not in self.capped):
                    found |= hangs[key]
        return frozenset(found) - self.pinned

    def first(self, own: tuple[str, ...]) -> Trial:
        """Redraw the program's inputs and the tangents together, with buffers that only updates depend on."""
        idle = self.idle()
        trial = self.trial(TOGETHER, (*own, *idle), standard=True, idle=frozenset(idle))
        for side in trial.silent:
            rows = ((PortKey.from_text(port), by) for port, by in trial.moved)
            self.capped |= {key: by for key, by in rows if side_of(key) == side}
        return trial

    def idle(self) -> tuple[str, ...]:
        """Return buffers that only updates of tensors depend on, such as running statistics in training."""
        busy: set[str] = set()
        for key, found in self.hangs[0].items():
            busy |= set() if key.role == "mutation" else found
        return tuple(name for name in self.of_roles("buffer") if name not in busy)

    # -------------------------------------------------------------- one trial

    def trial(
        self,
        name: str,
        together: Collection[str],
        ways: tuple[Way, ...] = WAYS,
        *,
        standard: bool = False,
        idle: frozenset[str] = frozenset(),
    ) -> Trial:
        """Redraw these inputs together, and return what moved, without ports that depend on `idle` inputs."""
        free = tuple(each for each in together if each not in self.held or ways is GUARDED)
        if not free:
            return Trial(name, tuple(together), untried="a guard holds it")
        drawn = self.drawn(free, ways)
        if isinstance(drawn, str):
            return Trial(name, tuple(together), untried=drawn)
        given, sides = drawn
        names, shown = frozenset(given), tuple(each for each in free if each not in idle)
        hangs = self.hangs[0]
        bound = [key for key in sides[0] if hangs[key] & names and not hangs[key] & idle]
        found = {key: by for key in bound if (by := moved(self.base.ports.get(key), sides[0].get(key))) is not None}
        if standard:
            self.count(names, sides, found)
        del drawn, sides
        still = [key for key, by in found.items() if by < 1]
        if standard and still and not Trial(name, shown, port_texts(found)).hidden:
            rows = port_texts({key: by for key, by in found.items() if by >= 1})
            return Trial(name, shown, rows, open=tuple(map(str, still)))
        null = self.null(still, {each: value for each, value in given.items() if each not in idle}) if still else ()
        rows = port_texts({key: by for key, by in found.items() if key not in null})
        return Trial(name, shown, rows, tuple(str(key) for key in found if key in null))

    def drawn(self, names: Collection[str], ways: tuple[Way, ...]) -> tuple[dict[str, Tensor], Sides] | str:
        """Return other values of these inputs, and the results of a run on them; or why there are none."""
        why, guarded = "", False
        before: tuple[set[str], float | None] = (set(), 0.0)
        for floats, step in ways:
            given: dict[str, Tensor] = {}
            for each in names:
                if not floats or is_inexact(self.base.values[each]):
                    given |= self.another(each, step)
            if not given or before == (set(given), step):
                continue
            before = (set(given), step)
            try:
                return given, results_on(self.capture, {**self.base.values, **given})
            except BackprintError as error:
                why = why or f"{BROKE}: {str(error)[:160]}"
                guarded = isinstance(error, GuardError)
        self.pinned |= set(names) if guarded and ways is GUARDED and len(names) == 1 else set()
        return why or "its dtype has no other values that could be drawn"

    def count(self, names: frozenset[str], sides: Sides, found: Mapping[PortKey, float]) -> None:
        """Add a standard trial, with the whole's ports in `found`, to the power of ports that depend on these names."""
        rows = zip(self.most, self.hangs, (self.base.ports, *self.base.parts), sides, strict=False)
        for index, (most, hangs, ports, others) in enumerate(rows):
            seen: Mapping[PortKey, float] = {} if index else found
            for key, by in most.items():
                if hangs[key] & names:
                    most[key] = max(by, seen[key] if key in seen else strength(ports[key], others.get(key)))

    def another(self, name: str, step: float | None = None) -> dict[str, Tensor]:
        """Return other values of an input, and of the views of it; none if its dtype has no others."""
        fresh = self.fresh.get(name)
        return another(self.units[name], self.recipes, self.base.values, self.seed, fresh, step) or {}

    # -------------------------------------------------------------- the neutral point

    def null(self, still: Collection[PortKey], given: Mapping[str, Tensor]) -> frozenset[PortKey]:
        """Return which of these ports do not move at the neutral point either."""
        point = self.neutral()
        if isinstance(point, str):
            return frozenset()
        other = {
            name: neutral(value, self.role(name), self.seed + 1) if is_inexact(value) else value
            for name, value in given.items()
        }
        try:
            ports = results_on(self.wide, {**point.values, **other})[0]
        except BackprintError:
            return frozenset()
        return frozenset(key for key in still if stands(point.ports.get(key), ports.get(key)))

    @cached_property
    def wide(self) -> Capture:
        """The Capture in float64, made once."""
        return wide(self.capture)

    def neutral(self) -> Base | str:
        """Return the run at the neutral point, made once; or why there is none."""
        if self.point is None:
            self.point = self.at_neutral()
        return self.point

    def at_neutral(self) -> Base | str:
        saved = [port.spec for pair in self.capture.pairs for port in at_hints(pair.forward).by_role("saved")]
        kept = sum(spec.nbytes for spec in saved if isinstance(spec, TensorSpec))
        given = sum(part.nbytes for value in self.base.values.values() for part in strided_parts(value))
        if kept + given > MOST_BYTES:
            return "too large"
        values = {
            name: widened_value(value) if name in self.held else neutral(value, self.role(name), self.seed)
            for name, value in self.base.values.items()
        }
        try:
            return Base(values, results_on(self.wide, values)[0])
        except BackprintError as error:
            return f"does not run: {error}"


def port_texts(moved: Mapping[PortKey, float]) -> Moved:
    """Return how far ports moved, by their keys as text."""
    return tuple((str(key), by) for key, by in moved.items())


def results_on(capture: Capture, values: Mapping[str, Tensor]) -> Sides:
    """Return every result of a Capture on these inputs and tangents, under its own seed, and those of its Pairs."""
    torch.manual_seed(capture.seed)
    inputs, tangents = without_tangents(values)
    same = {right: inputs[left] for left, right in capture.signature.same if left in inputs}
    got = replay_values(capture, {**inputs, **same}, tangents)
    return (got.results, *(played.results for played in got.parts))
