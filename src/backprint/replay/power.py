"""Power: how far outputs, gradients and mutations move, in tolerances, when inputs are drawn again.

A check of a port that no input moves proves nothing about it. Inputs are drawn again one after the other, and groups of
them at once, each time from the same base run, and every port that hangs on what was drawn again is measured. Which
ports hang on which inputs is read from the graphs. A path does not mean dependence (a bias before a norm of the batch,
a shift of scores before a softmax), so a port with a path that does not move is tried once more with numbers: in
float64, at a neutral point, where weights keep the scale of what they take and nothing is dead or saturated. If it
stands still there too, to NULL of its size, it does not depend on that input mathematically, and is not asked to react.
If it moves there, it is this sample's own values that hide the input: weak.

Ports of whole numbers and bools are left out, because they need not move; the same for inputs that a guard holds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backprint import settings
from backprint.errors import BackprintError, ReplayError, UsageError
from backprint.graph.depends import dependence
from backprint.graph.links import free_ports
from backprint.graph.nouns import Atom, Capture, Dict, Graph, List, Pair, Port, Slice, Step, TensorSpec, Value
from backprint.graph.sizes import at_hints
from backprint.replay.compare import TOLERANCE
from backprint.replay.whole import Replayed, replay_values
from backprint.sample.redraws import another, neutral, units
from backprint.tree import parts

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

QUICK_SECONDS = 1.0
"""What a run may take for `quick` to try a neutral point, which takes about ten such runs."""

Ports = dict[str, "Tensor | None"]


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
            side = "backward" if port.startswith("gradient ") else "forward"
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

    `most` is how far each port moved at most, whether it depends on what was drawn again or has a path from it alone.
    """

    trials: tuple[Trial, ...]
    tried: int = 0
    of: int = 0
    most: tuple[tuple[str, float], ...] = ()

    @property
    def value(self) -> float | None:
        """How far the port moved that moved least, at most."""
        return min((by for _, by in self.most), default=None)

    @property
    def vacuous(self) -> tuple[str, ...]:
        """The ports that nothing moves, be it that nothing could: a check of them proves nothing."""
        return tuple(port for port, by in self.most if by < 1)

    @property
    def hidden(self) -> tuple[str, ...]:
        """What could be ignored, and a check would not see it."""
        return tuple(trial.name for trial in self.trials if trial.hidden)

    @property
    def dead_ports(self) -> tuple[str, ...]:
        """The ports that depend on inputs, and that none of these moves."""
        bound = {port for trial in self.trials for port, _ in trial.moved}
        return tuple(port for port in self.vacuous if port in bound)

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
    """One run that others are held against: the inputs, tangents as `tangent y`, and what came out."""

    values: Mapping[str, Tensor]
    ports: Ports


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

    `inputs="quick"` draws the program's inputs and the tangents again once, together; `"own"` each of the program's
    inputs alone, all parameters, all buffers, and everything at once; `"all"` each parameter and buffer alone too.
    `seconds` and `count` end it early; then what was tried of `"all"` is a random part, the program's inputs first.
    `recipes` (with their data, as `sample.inputs` has them) stand in for the Capture's own, and `fresh` for what they
    would draw the next time; `only` names what is drawn again alone.
    """
    if inputs not in CHOICES:
        raise UsageError(f"inputs={inputs!r} is none of {', '.join(CHOICES)}")
    made = capture.recipes if recipes is None else recipes
    if capture.fake or made is None or made.missing:
        raise ReplayError(f"{capture.name} has inputs without values, so nothing can be drawn again")
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(dict(capture.environment)):
        values = dict(base.values if base is not None else made.make())
        ports = base.ports if base is not None else run(capture, values)
        study = Study(capture, made.recipes, Base(values, ports), dict(fresh or {}), seed, inputs == "quick")
        single = study.singles(inputs, only, seconds is not None or count is not None)
        return study.power(study.groups(inputs), single, seconds, count)


class Study:
    """A Capture while its power is measured."""

    def __init__(
        self,
        capture: Capture,
        recipes: Mapping[str, Any],
        base: Base,
        fresh: dict[str, Tensor],
        seed: int,
        quick: bool = False,
    ) -> None:
        self.quick = quick
        self.capture, self.recipes, self.base, self.fresh, self.seed = capture, recipes, base, fresh, seed
        self.roles = {port.name: port.role for port in free_ports(capture)}
        self.hangs = dependence(capture)
        self.units = {name: names for name, names in units(recipes).items() if self.reached(names)}
        self.point: Base | str | None = None
        self.most: dict[str, float] = {}

    def reached(self, names: Collection[str]) -> bool:
        """Whether any result hangs on one of these."""
        return any(not found.isdisjoint(names) for found in self.hangs.values())

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
        """The trials, until time or number are spent."""
        started = time.monotonic()
        done: list[Trial] = []
        for name, together in [*groups, *((f"{self.role(name)} {name}", (name,)) for name in single)]:
            spent = time.monotonic() - started
            if done and ((seconds is not None and spent > seconds) or (count is not None and len(done) >= count)):
                break
            done.append(self.trial(name, together))
        tried = sum(not trial.untried for trial in done[len(groups) :])
        return Power(tuple(done), tried, len(single), tuple(self.most.items()))

    def role(self, name: str) -> str:
        """What an input is for."""
        return "tangent" if name.startswith("tangent ") else self.roles.get(name, "constant")

    def groups(self, inputs: str) -> list[tuple[str, tuple[str, ...]]]:
        """What is drawn again at once."""
        roles = {name: self.role(name) for name in self.units}
        if inputs == "quick":
            rows = [(TOGETHER, tuple(name for name, role in roles.items() if role in ("input", "tangent")))]
        else:
            rows = [(EVERYTHING, tuple(roles))]
            rows += [(said, tuple(name for name in roles if roles[name] == role)) for role, said in GROUPS.items()]
        return [(said, names) for said, names in rows if names]

    def trial(self, name: str, together: Collection[str]) -> Trial:
        """These inputs drawn again, at once, and what moved."""
        held = self.held()
        free = [each for each in together if each not in held]
        if not free:
            return Trial(name, tuple(together), untried="a guard holds it")
        given: dict[str, Tensor] = {}
        for each in free:
            given |= self.another(each)
        if not given:
            return Trial(name, tuple(together), untried="its dtype has no other values that could be drawn")
        started = time.monotonic()
        try:
            ports = run(self.capture, {**self.base.values, **given})
        except BackprintError as error:
            return Trial(name, tuple(together), untried=f"{BROKE}: {str(error)[:160]}")
        names = frozenset(given)
        bound = {key: moved(self.base.ports.get(key), ports.get(key)) for key in ports if self.hangs[key] & names}
        found = {key: by for key, by in bound.items() if by is not None}
        del ports
        slow = time.monotonic() - started > QUICK_SECONDS
        self.most |= {key: max(by, self.most.get(key, 0.0)) for key, by in found.items()}
        still = [key for key, by in found.items() if by < 1]
        if self.quick and still and (slow or not Trial(name, tuple(free), tuple(found.items())).hidden):
            rows = tuple((key, by) for key, by in found.items() if by >= 1)
            return Trial(name, tuple(free), rows, open=tuple(still))
        null = self.null(still, given) if still else frozenset()
        rows = tuple((key, by) for key, by in found.items() if key not in null)
        return Trial(name, tuple(free), rows, tuple(key for key in found if key in null))

    def held(self) -> frozenset[str]:
        """What a guard hangs on."""
        return frozenset(name for guard in self.capture.guards if guard.kind in HELD for name in guard.inputs)

    def another(self, name: str) -> dict[str, Tensor]:
        """Other values of an input, and of the views of it; none where it knows no other."""
        return another(self.units[name], self.recipes, self.base.values, self.seed, self.fresh.get(name)) or {}

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
            ports = run(self.wide, {**point.values, **other})
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
        if kept + sum(value.nbytes for value in self.base.values.values()) > MOST_BYTES:
            return "too large"
        held = self.held()
        values = {
            name: widened_value(value) if name in held else neutral(value, self.role(name), self.seed)
            for name, value in self.base.values.items()
        }
        try:
            return Base(values, run(self.wide, values))
        except BackprintError as error:
            return f"does not run: {error}"


# ------------------------------------------------------------------ running, measuring


def run(capture: Capture, values: Mapping[str, Tensor]) -> Ports:
    """Every result of a Capture on these inputs, tangents among them, under its own seed."""
    torch.manual_seed(capture.seed)
    same = {right: values[left] for left, right in capture.signature.same if left in values}
    tangents = {key.removeprefix("tangent "): value for key, value in values.items() if key.startswith("tangent ")}
    return results(replay_values(capture, {**values, **same}, tangents))


def results(got: Replayed) -> Ports:
    """What a replay gave, by `role name`."""
    found: Ports = {f"output {name}": value for name, value in got.named.items()}
    found |= {f"mutation {name}": value for name, value in got.mutations.items()}
    return found | {f"gradient {name}": value for name, value in got.gradients.items()}


def floating(value: Any) -> bool:
    """Whether a value is a tensor of real or complex numbers."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def widened_value(value: Tensor) -> Tensor:
    """A tensor as it is, in float64."""
    return value.double() if value.is_floating_point() else value


def moved(first: Any, second: Any) -> float | None:
    """How far a port moved, in tolerances; None where it has no floating-point numbers."""
    if not floating(first) or not floating(second) or parts(first)[-1].numel() == 0:
        return None
    return share(first, second) / TOLERANCE.get(str(first.dtype)[6:], 1.0)


def stands(first: Any, second: Any) -> bool:
    """Whether a port stands still in float64: to rounding. One without finite numbers shows nothing."""
    if not floating(first) or not floating(second):
        return False
    if not bool(torch.isfinite(parts(first)[-1]).any()):
        return False
    return share(first, second) < NULL


def share(first: Tensor, second: Tensor) -> float:
    """The largest difference over the largest number, of the places where both are finite; 0 where there are none."""
    if first.shape != second.shape:
        return float("inf")
    first, second = parts(first.detach())[-1], parts(second.detach())[-1]
    if first.shape != second.shape:
        return float("inf")
    if first.is_complex():
        first, second = torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj())
    apart, size = (first - second).abs(), first.abs()
    most = float(apart.max())
    if not most < float("inf"):  # NaN too
        good = torch.isfinite(first) & torch.isfinite(second)
        apart, size = apart[good], size[good]
        if not apart.numel():
            return 0.0
        most = float(apart.max())
    largest = max(float(size.max()), 1e-30)
    return most / largest if largest < float("inf") else 0.0


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
