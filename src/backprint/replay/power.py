"""Power: how far outputs, gradients and mutations move, in tolerances, when inputs are drawn again.

A check of a port that no input moves proves nothing about it. Inputs are drawn again one after the other, and groups of
them at once, each time from the same base run, and every port that hangs on what was drawn again is measured. Which
ports hang on which inputs is read from the graphs. A path does not mean dependence (a bias before a norm of the batch,
a shift of scores before a softmax), so a port with a path that does not move is tried once more with numbers: in
float64, at a neutral point, where weights keep the scale of what they take and nothing is dead or saturated. If it
stands still there too, to NULL of its size, it does not depend on that input mathematically, and is not asked to react.
If it moves there, it is this sample's own values that hide the input: weak.

**A port's power** is how far it moved at most in the standard redraws: the program's inputs and the tangents at once,
and while some port stands still, more of them: parameters, buffers, everything, small steps that keep a guard, one
input alone. They are the same for `save`, `verify` and `power`, by number and never by time, so these tell one number.
Where no port of a side (outputs and mutations, or gradients) that depends on the inputs moves with them, what moves
these ports otherwise does not count. A port of whole numbers or bools has power where any number changes. The trials of
`own` and `all` are about inputs: what could be ignored, and a check would not see it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint import settings
from backprint.errors import BackprintError, GuardError, ReplayError, UsageError
from backprint.graph.depends import dependence, dependence_of_parts
from backprint.graph.links import free_ports
from backprint.graph.nouns import Atom, Capture, Dict, Graph, List, Pair, Port, Slice, Step, TensorSpec, Value
from backprint.graph.sizes import at_hints
from backprint.replay.compare import TOLERANCE, PortVerdict
from backprint.replay.linked import Played
from backprint.replay.whole import Replayed, replay_values
from backprint.sample.redraws import another, neutral, units
from backprint.tree import strided_parts

SEED = 0x90E7

GROUPS = {"parameter": "parameters", "buffer": "buffers"}
"""The inputs that are drawn again together, by their role."""

CHOICES = ("quick", "own", "all")
STATE = ("parameter", "buffer", "constant")
"""How the names of trials begin that draw no input of the program's own again."""

EVERYTHING, TOGETHER = "everything", "inputs"
BROKE = "does not run on it"
HELD = ("value", "shape", "pinned")
"""The kinds of guards whose inputs are not drawn again."""

NULL = 1e-9
"""The share of its size below which a port in float64 stands still."""

WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}
MOST_BYTES = 2**31
"""Of inputs and what is saved: above, nothing is tried at a neutral point, and a port that stands still is weak."""

NUDGE, LITTLE = 2**-6, 2**-10
"""The shares of its size by which a float moves where a draw breaks the program, or a guard holds it."""

FURTHER, ALONE = 10, 4
"""How many redraws a port that stands still is worth, and how many of these are of one input alone."""

Ports = dict[str, "Tensor | None"]
Sides = tuple[Ports, ...]
"""What a run gave: the whole, then each of several linked Pairs, by `role name`."""

Way = tuple[bool, "float | None"]
"""How inputs are drawn again: only floats, and by which step; None is a draw of their own."""

WAYS: tuple[Way, ...] = ((False, None), (True, None), (True, NUDGE))
"""The first on which the program runs counts."""

GUARDED: tuple[Way, ...] = ((False, NUDGE), (False, LITTLE))
"""How what a guard holds is drawn again: by little, which a guard on it may allow."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One thing drawn again: how far, in tolerances, each port moved that depends on it.

    `null` are the ports with a path and no dependence; `open` those of which that was not asked, because others show
    that a check sees. `untried` says why it could not be drawn again.
    """

    name: str
    inputs: tuple[str, ...]
    moved: tuple[tuple[str, float], ...] = ()
    null: tuple[str, ...] = ()
    untried: str = ""
    open: tuple[str, ...] = ()

    @property
    def weakest(self) -> tuple[str, float] | None:
        """The port that depends on it and moved least, and how far."""
        return min(self.moved, key=lambda row: row[1], default=None)

    @property
    def weak(self) -> tuple[str, ...]:
        """The ports that depend on it and moved less than one tolerance."""
        return tuple(port for port, by in self.moved if by < 1)

    @property
    def silent(self) -> tuple[str, ...]:
        """The sides with ports that depend on it none of which moved by a tolerance."""
        most: dict[str, float] = {}
        for port, by in self.moved:
            side = side_of(port)
            most[side] = max(by, most.get(side, 0.0))
        return tuple(side for side, by in most.items() if by < 1)

    @property
    def dead(self) -> bool:
        """Whether something depends on it, and nothing moved."""
        return bool(self.moved) and all(by < 1 for _, by in self.moved)

    @property
    def hidden(self) -> bool:
        """Whether a check would not see it: nothing moved, or of the program's own inputs, nothing on one side."""
        return self.dead or (bool(self.silent) and not self.name.startswith(STATE))


@dataclass(frozen=True, slots=True)
class Power:
    """What a Capture's ports showed: the trials, how many single inputs were drawn again, and of how many.

    `most` is each port's power: how far it moved at most in the standard redraws. `parts` is the same of each of
    several linked Pairs. A port that is None, has no elements, or hangs on no input is not in it.
    """

    trials: tuple[Trial, ...]
    tried: int = 0
    of: int = 0
    most: tuple[tuple[str, float], ...] = ()
    parts: tuple[tuple[tuple[str, float], ...], ...] = ()

    @property
    def value(self) -> float | None:
        """How far the port moved that moved least, at most."""
        return min((by for _, by in self.most), default=None)

    @property
    def vacuous(self) -> tuple[str, ...]:
        """The ports without power: nothing moves them, be it that nothing could. A check of them proves nothing."""
        return tuple(port for port, by in self.most if by < 1)

    @property
    def hidden(self) -> tuple[str, ...]:
        """What could be ignored, and a check would not see it."""
        return tuple(trial.name for trial in self.trials if trial.hidden)

    @property
    def dead_ports(self) -> tuple[str, ...]:
        """The ports that depend on inputs, and that none of these moves."""
        bound: dict[str, float] = {}
        for trial in self.trials:
            bound |= {port: max(by, bound.get(port, 0.0)) for port, by in trial.moved}
        return tuple(port for port, by in bound.items() if by < 1)

    @property
    def weak(self) -> tuple[tuple[str, str], ...]:
        """Each input and port of which the second depends on the first and does not show it."""
        return tuple((trial.name, port) for trial in self.trials for port in trial.weak)

    @property
    def silent(self) -> tuple[tuple[str, str], ...]:
        """What was drawn again, and the side, `forward` or `backward`, that depends on it and did not show it."""
        return tuple((trial.name, side) for trial in self.trials for side in trial.silent)

    @property
    def reacts(self) -> bool:
        """Whether a check sees everything tried, and no port that depends on something stands still.

        Of a parameter or a buffer some output or gradient has to show it; of the program's own inputs, both sides.
        """
        return bool(self.most) and not self.hidden and not self.dead_ports


@dataclass(frozen=True, slots=True)
class Base:
    """One run that others are held against: the inputs, tangents as `tangent y`, what came out, of each Pair too."""

    values: Mapping[str, Tensor]
    ports: Ports
    parts: Sides = ()


def power_of(
    capture: Capture,
    inputs: str = "own",
    *,
    seconds: float | None = None,
    count: int | None = None,
    base: Base | None = None,
    recipes: Any = None,
    fresh: Mapping[str, Tensor] | None = None,
    only: Collection[str] | None = None,
    seed: int = SEED,
) -> Power:
    """The power of a Capture on its recipes' inputs.

    `inputs="quick"` is the standard redraws alone; `"own"` draws each of the program's inputs again alone, all
    parameters, all buffers, and everything at once; `"all"` each parameter and buffer alone too.
    `seconds` and `count` end these early; then what was tried of `"all"` is a random part, the program's inputs first.
    `recipes` (with their data, as `sample.inputs` has them) stand in for the Capture's own, and `fresh` for what they
    would draw the next time; `only` names what is drawn again alone. `base` is a run that is there already.
    """
    if inputs not in CHOICES:
        raise UsageError(f"inputs={inputs!r} is none of {', '.join(CHOICES)}")
    made = capture.recipes if recipes is None else recipes
    if capture.fake or made is None or made.missing:
        raise ReplayError(f"{capture.name} has inputs without values, so nothing can be drawn again")
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(dict(capture.environment)):
        if base is None:
            values = made.make()
            ports, *parts = run(capture, values)
            base = Base(values, ports, tuple(parts))
        study = Study(capture, made.recipes, base, dict(fresh or {}), seed)
        single = study.singles(inputs, only, seconds is not None or count is not None)
        return study.power(study.groups(inputs), single, seconds, count)


def with_power(port: PortVerdict, powers: Mapping[str, float]) -> PortVerdict:
    """A port's verdict with its power, of a Power's `most` or one of its `parts`."""
    return replace(port, power=powers.get(f"{port.role} {port.name}"))


def unseen(power: Power) -> list[str]:
    """Why ports are without power where it is that the program does not run on other inputs."""
    broke = [trial for trial in power.trials[:1] if trial.untried.startswith(BROKE)] if power.vacuous else []
    return [f"{trial.name} could not be drawn again ({trial.untried})" for trial in broke]


def other_values(capture: Capture, values: Mapping[str, Tensor], seed: int = SEED) -> dict[str, Tensor]:
    """Other values for all that a program may be asked with: not for constants, nor for what a guard holds."""
    recipes = capture.recipes.recipes
    roles = {port.name: port.role for port in free_ports(capture)}
    held = held_by_guards(capture)
    found: dict[str, Tensor] = {}
    for names in units(recipes).values():
        if all(each in values and each not in held and roles.get(each) != "constant" for each in names):
            found |= another(names, recipes, values, seed) or {}
    return found


def held_by_guards(capture: Capture) -> frozenset[str]:
    """What a guard hangs on."""
    return frozenset(name for guard in capture.guards if guard.kind in HELD for name in guard.inputs)


class Study:
    """A Capture while its power is measured."""

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
        self.point: Base | str | None = None
        self.most = [
            {key: 0.0 for key, value in ports.items() if moves(value) and hangs.get(key)}
            for hangs, ports in zip(self.hangs, (base.ports, *base.parts), strict=False)
        ]
        self.capped: dict[str, float] = {}

    def reached(self, names: Collection[str]) -> bool:
        """Whether any result hangs on one of these."""
        return any(not found.isdisjoint(names) for hangs in self.hangs for found in hangs.values())

    def equals(self, name: str) -> bool:
        """Whether a guard says what the one number of an input is."""
        value = self.base.values.get(name)
        return (
            isinstance(value, Tensor)
            and value.numel() == 1
            and any(guard.inputs == (name,) and " == " in guard.text for guard in self.capture.guards)
        )

    def singles(self, inputs: str, only: Collection[str] | None, part: bool) -> list[str]:
        """The inputs to draw again alone, in the order in which that is done."""
        found = [name for name in self.units if not name.startswith("tangent ")]
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
        """The standard trials; then, where groups are named, those and single inputs until time or number are spent."""
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
        """The power of each port; one that hangs on what guards pin alone is what it is wherever the sample runs."""
        capped = {} if side else self.capped
        rows = {key: min(by, capped.get(key, by)) for key, by in self.most[side].items()}
        return tuple((key, by) for key, by in rows.items() if by >= 1 or not self.hangs[side][key] <= self.pinned)

    def role(self, name: str) -> str:
        """What an input is for."""
        return "tangent" if name.startswith("tangent ") else self.roles.get(name, "constant")

    def of_roles(self, *roles: str) -> tuple[str, ...]:
        """The inputs of some roles."""
        return tuple(name for name in self.units if self.role(name) in roles)

    def groups(self, inputs: str) -> list[tuple[str, tuple[str, ...]]]:
        """What `own` and `all` draw again at once."""
        if inputs == "quick":
            return []
        rows = [(EVERYTHING, tuple(self.units)), *((said, self.of_roles(role)) for role, said in GROUPS.items())]
        return [(said, names) for said, names in rows if names]

    # -------------------------------------------------------------- the standard redraws

    def standard(self) -> list[Trial]:
        """The redraws that say how much power each port has: until none stands still that could move."""
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
        """What is drawn again while some port stands still, and how."""
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
        """What the ports hang on that have not moved yet, and for which it would count."""
        found: set[str] = set()
        for side, (hangs, most) in enumerate(zip(self.hangs, self.most, strict=False)):
            for key, by in most.items():
                if by < 1 and (side or key not in self.capped):
                    found |= hangs[key]
        return frozenset(found) - self.pinned

    def first(self, own: tuple[str, ...]) -> Trial:
        """The program's inputs and the tangents at once; with them buffers that nothing but updates hang on."""
        idle = self.idle()
        trial = self.trial(TOGETHER, (*own, *idle), standard=True, idle=frozenset(idle))
        for side in trial.silent:
            self.capped |= {key: by for key, by in trial.moved if side_of(key) == side}
        return trial

    def idle(self) -> tuple[str, ...]:
        """The buffers that only updates of tensors hang on, as running statistics in training."""
        busy: set[str] = set()
        for key, found in self.hangs[0].items():
            busy |= set() if key.startswith("mutation ") else found
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
        """These inputs drawn again, at once, and what moved: of what hangs on nothing `idle`."""
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
        if standard and still and not Trial(name, shown, tuple(found.items())).hidden:
            rows = tuple((key, by) for key, by in found.items() if by >= 1)
            return Trial(name, shown, rows, open=tuple(still))
        null = self.null(still, {each: value for each, value in given.items() if each not in idle}) if still else ()
        rows = tuple((key, by) for key, by in found.items() if key not in null)
        return Trial(name, shown, rows, tuple(key for key in found if key in null))

    def drawn(self, names: Collection[str], ways: tuple[Way, ...]) -> tuple[dict[str, Tensor], Sides] | str:
        """Other values of these inputs, and what a run on them gave; or why there are none."""
        why, guarded = "", False
        before: tuple[set[str], float | None] = (set(), 0.0)
        for floats, step in ways:
            given: dict[str, Tensor] = {}
            for each in names:
                if not floats or floating(self.base.values[each]):
                    given |= self.another(each, step)
            if not given or before == (set(given), step):
                continue
            before = (set(given), step)
            try:
                return given, run(self.capture, {**self.base.values, **given})
            except BackprintError as error:
                why = why or f"{BROKE}: {str(error)[:160]}"
                guarded = isinstance(error, GuardError)
        self.pinned |= set(names) if guarded and ways is GUARDED and len(names) == 1 else set()
        return why or "its dtype has no other values that could be drawn"

    def count(self, names: frozenset[str], sides: Sides, found: Mapping[str, float]) -> None:
        """Add a standard trial, of which the whole's ports are `found`, to the power of what hangs on these names."""
        rows = zip(self.most, self.hangs, (self.base.ports, *self.base.parts), sides, strict=False)
        for index, (most, hangs, ports, others) in enumerate(rows):
            seen = {} if index else found
            for key, by in most.items():
                if hangs[key] & names:
                    most[key] = max(by, seen[key] if key in seen else strength(ports[key], others.get(key)))

    def another(self, name: str, step: float | None = None) -> dict[str, Tensor]:
        """Other values of an input, and of the views of it; none where it knows no other."""
        fresh = self.fresh.get(name)
        return another(self.units[name], self.recipes, self.base.values, self.seed, fresh, step) or {}

    # -------------------------------------------------------------- the neutral point

    def null(self, still: Collection[str], given: Mapping[str, Tensor]) -> frozenset[str]:
        """Which of these ports do not move at the neutral point either."""
        point = self.neutral()
        if isinstance(point, str):
            return frozenset()
        other = {
            name: neutral(value, self.role(name), self.seed + 1) if floating(value) else value
            for name, value in given.items()
        }
        try:
            ports = run(self.wide, {**point.values, **other})[0]
        except BackprintError:
            return frozenset()
        return frozenset(key for key in still if stands(point.ports.get(key), ports.get(key)))

    @cached_property
    def wide(self) -> Capture:
        """The Capture in float64, once."""
        return wide(self.capture)

    def neutral(self) -> Base | str:
        """The run at the neutral point, once; or why there is none."""
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
            return Base(values, run(self.wide, values)[0])
        except BackprintError as error:
            return f"does not run: {error}"


# ------------------------------------------------------------------ running, measuring


def run(capture: Capture, values: Mapping[str, Tensor]) -> Sides:
    """Every result of a Capture on these inputs, tangents among them, under its own seed; those of its Pairs too."""
    torch.manual_seed(capture.seed)
    same = {right: values[left] for left, right in capture.signature.same if left in values}
    tangents = {key.removeprefix("tangent "): value for key, value in values.items() if key.startswith("tangent ")}
    got = replay_values(capture, {**values, **same}, tangents)
    return (results(got), *map(results_of, got.parts))


def results(got: Replayed) -> Ports:
    """What a replay gave, by `role name`."""
    found: Ports = {f"output {name}": value for name, value in got.named.items()}
    found |= {f"mutation {name}": value for name, value in got.mutations.items()}
    return found | {f"gradient {name}": value for name, value in got.gradients.items()}


def results_of(played: Played) -> Ports:
    """What one of several Pairs gave, by `role name`."""
    found: Ports = {f"output {name}": value for name, value in played.outputs.items()}
    found |= {f"mutation {name}": value for name, value in played.mutations.items()}
    return found | {f"gradient {name}": value for name, value in (played.gradients or {}).items()}


def side_of(key: str) -> str:
    """The direction that a result is of."""
    return "backward" if key.startswith("gradient ") else "forward"


def moves(value: Any) -> bool:
    """Whether a result has numbers that could be others."""
    return isinstance(value, Tensor) and strided_parts(value)[-1].numel() > 0


def strength(first: Any, second: Any) -> float:
    """How far a port moved, in tolerances; whole numbers and bools have none, so any change is seen."""
    if floating(first) and floating(second):
        return moved(first, second) or 0.0
    if not isinstance(second, Tensor) or first.shape != second.shape:
        return float("inf")
    return 0.0 if all(map(torch.equal, strided_parts(first), strided_parts(second))) else float("inf")


def floating(value: Any) -> bool:
    """Whether a value is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def widened_value(value: Tensor) -> Tensor:
    """A tensor as it is, in float64."""
    return value.double() if value.is_floating_point() else value


def moved(first: Any, second: Any) -> float | None:
    """How far a port moved, in tolerances; None where it has no floating-point numbers."""
    if not floating(first) or not floating(second) or strided_parts(first)[-1].numel() == 0:
        return None
    return share(first, second) / TOLERANCE.get(str(first.dtype)[6:], 1.0)


def stands(first: Any, second: Any) -> bool:
    """Whether a port stands still in float64: to rounding. One without finite numbers shows nothing."""
    if not floating(first) or not floating(second):
        return False
    if not bool(torch.isfinite(strided_parts(first)[-1]).any()):
        return False
    return share(first, second) < NULL


def share(first: Tensor, second: Tensor) -> float:
    """The largest difference over the largest number, of the places where both are finite; 0 where there are none."""
    if first.shape != second.shape:
        return float("inf")
    first, second = strided_parts(first.detach())[-1], strided_parts(second.detach())[-1]
    if first.shape != second.shape:
        return float("inf")
    if first.is_complex():
        first, second = torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj())
    most, largest = biggest(first - second), biggest(first)
    if not most < float("inf"):  # NaN too
        good = torch.isfinite(first) & torch.isfinite(second)
        if not bool(good.any()):
            return 0.0
        first, second = first[good], second[good]
        most, largest = biggest(first - second), biggest(first)
    return most / max(largest, 1e-30) if largest < float("inf") else 0.0


def biggest(tensor: Tensor) -> float:
    """The largest size among a tensor's numbers."""
    return float(torch.linalg.vector_norm(tensor, float("inf")))


# ------------------------------------------------------------------ the same Capture in float64


def wide(capture: Capture) -> Capture:
    """The Capture in float64: every floating-point dtype that its graphs name is that."""
    pairs = tuple(
        Pair(pair.name, widened(pair.forward), None if pair.backward is None else widened(pair.backward))
        for pair in capture.pairs
    )
    return replace(capture, pairs=pairs)


def widened(graph: Graph) -> Graph:
    """A Graph in float64."""
    return replace(
        graph,
        inputs=tuple(replace(port, spec=wide_spec(port)) for port in graph.inputs),
        steps=tuple(wide_step(step) for step in graph.steps),
        subgraphs=tuple((name, widened(sub)) for name, sub in graph.subgraphs),
    )


def wide_spec(port: Port) -> Any:
    """A port's spec in float64."""
    spec = port.spec
    return replace(spec, dtype=WIDE.get(spec.dtype, spec.dtype)) if isinstance(spec, TensorSpec) else spec


def wide_step(step: Step) -> Step:
    """A step in float64."""
    args, kwargs = wide_value(step.args), tuple((key, wide_value(value)) for key, value in step.kwargs)
    return step if (args, kwargs) == (step.args, step.kwargs) else replace(step, args=args, kwargs=kwargs)


def wide_value(value: Value) -> Any:
    """A value in which dtypes are float64."""
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
