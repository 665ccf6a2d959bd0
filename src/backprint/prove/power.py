"""Power: how far outputs, gradients and mutations move, in tolerances, when inputs are redrawn.

A check of a port that no input moves proves nothing about it. A port's power is its largest movement in the standard
redraws (`_PowerMeasurement.standard_redraws`). These are limited by number, never by time. The trials of `own` and
`all` are about inputs: which of them a graph could ignore without a check noticing. A port of integers or bools has
power if any element changes.

Which ports depend on which inputs is read from the graphs. A path is not yet a dependence: a bias before a batch norm
and a shift of scores before a softmax have a path to every output, and move none. So a port with a path that does not
move is tried once more at a neutral point, in float64 (`_PowerMeasurement.independent_ports`).

- *Redraw*: to run the Capture with other values of some inputs. A redraw's result is a Trial: by how many tolerances of
  the verdicts each port moved. From 1 on, a port has moved. Inputs may be tangents, named `tangent y`.
- A port's key (PortKey) is its role and its name; its *side* is `forward` (outputs and mutations) or `backward`.
- A *unit* is an input with its views, which share memory and can be redrawn only together.
- A Way says how inputs are redrawn: all or only the floats, and these anew or by a small step. GUARDED_WAYS are the
  small steps for inputs that a guard holds, WAYS are for all others.
- A *guard* is a condition on inputs that the Capture assumes; a run on values that break it raises.
- `depends`: of a Capture or a Pair, which inputs each result depends on. `sets` has for each result a set of inputs, as
  an int with a bit for each; `set_of` makes such an int of names, `names_of` names of an int, and `&` and `|` are
  intersection and union.
"""

from __future__ import annotations

import functools
import operator
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
    Slice,
    Spec,
    Step,
    TensorSpec,
    Value,
)
from backprint.graph.sizes import at_example_sizes
from backprint.graph.verdicts import Moved, PortVerdict, Power, Trial, side_of, unmoved_ports
from backprint.prove.other_inputs import held_by_guards, unchecked_inputs
from backprint.prove.results import (
    Results,
    has_movement,
    is_inexact,
    movement_in_tolerances,
    movement_or_change,
    stays_equal,
)
from backprint.prove.whole import replay_values
from backprint.sample.redraws import neutral_values, other_values_of_units, units
from backprint.values import settings
from backprint.values.settings import seed_torch
from backprint.values.tree import strided_parts

# ---- A Capture in float64: every floating-point dtype in its graphs


WIDE = {
    **dict.fromkeys(("float16", "bfloat16", "float32"), "float64"),
    **dict.fromkeys(("complex32", "complex64"), "complex128"),
}
"""The dtype that stands for each floating-point dtype in float64."""


def _value_in_float64(value: Tensor) -> Tensor:
    """Return a floating-point tensor in float64; any other itself."""
    return value.double() if value.is_floating_point() else value


def capture_in_float64(capture: Capture) -> Capture:
    """Return a Capture with its graphs in float64."""
    pairs = tuple(
        Pair(
            pair.name,
            graph_in_float64(pair.forward),
            None if pair.backward is None else graph_in_float64(pair.backward),
        )
        for pair in capture.pairs
    )
    return replace(capture, pairs=pairs)


def graph_in_float64(graph: Graph) -> Graph:
    """Return a graph with float64 for every floating-point dtype, in its ports, steps and subgraphs."""
    return replace(
        graph,
        inputs=tuple(replace(port, spec=spec_in_float64(port.spec)) for port in graph.inputs),
        outputs=tuple(replace(port, spec=spec_in_float64(port.spec)) for port in graph.outputs),
        steps=tuple(step_in_float64(step) for step in graph.steps),
        subgraphs=tuple((name, graph_in_float64(sub)) for name, sub in graph.subgraphs),
    )


@functools.lru_cache(maxsize=4096)
def spec_in_float64(spec: Spec) -> Spec:
    """Return the spec of a value in float64: of a tensor, or of several."""
    match spec:
        case TensorSpec():
            return replace(spec, dtype=WIDE.get(spec.dtype, spec.dtype))
        case tuple():
            return tuple(spec_in_float64(part) for part in spec)
    return spec


def step_in_float64(step: Step) -> Step:
    """Return a step with float64 in the place of floating-point dtypes among its arguments and in its annotation. The
    annotation counts where only the default dtype decides the result's (`run.taken_dtype`)."""
    args, kwargs = _with_float64(step.args), tuple((key, _with_float64(value)) for key, value in step.kwargs)
    return replace(step, args=args, kwargs=kwargs, spec=spec_in_float64(step.spec))


def _with_float64(value: Value) -> Any:
    """Replace floating-point dtypes in a value by float64."""
    match value:
        case Atom(name):
            return Atom(WIDE.get(name, name))
        case tuple():
            return tuple(_with_float64(item) for item in value)
        case List(items):
            return List(tuple(_with_float64(item) for item in items))
        case Dict(items):
            return Dict(tuple((_with_float64(key), _with_float64(item)) for key, item in items))
        case Slice():
            return value
    return value


# ---- Measuring

SEED = 0x90E7
"""The seed of the values that inputs are redrawn with."""

GROUPS = {"parameter": "parameters", "buffer": "buffers"}
"""The roles whose inputs are redrawn together, and the names of these redraws."""

CHOICES = ("quick", "own", "all")
"""The values of `inputs` of `power_of`."""

EVERYTHING, OWN_INPUTS = "everything", "inputs"
"""The names of two redraws: of all inputs together, and of the program's inputs and the tangents together."""

DOES_NOT_RUN = "does not run on it"
"""How the reason of a redraw begins that was not tried because the Capture raises on the other values."""

MOST_BYTES = 2**31
"""If inputs and saved values have more bytes, the neutral point is not tried, and a port that does not move is weak."""

NUDGE, SMALL_NUDGE = 2**-6, 2**-10
"""Relative steps of floats where new values break the program, or a guard holds the input."""

MOST_FURTHER, MOST_SINGLE = 10, 4
"""The most redraws for ports that do not move, and how many of these are of one input alone."""

RunResults = tuple[Results, ...]
"""The results of a run, each by port: of the whole Capture, then of each Pair."""


class Way(NamedTuple):
    """How inputs are redrawn: all of them or only floats, and floats by which step relative to their size; None is a
    new draw."""

    floats_only: bool
    step: float | None


WAYS = (Way(floats_only=False, step=None), Way(floats_only=True, step=None), Way(floats_only=True, step=NUDGE))
"""The ways of a redraw. The first on which the program runs counts."""

GUARDED_WAYS = (Way(floats_only=False, step=NUDGE), Way(floats_only=False, step=SMALL_NUDGE))
"""The ways for inputs that a guard holds: small steps, which the guard may allow."""


@dataclass(frozen=True, slots=True)
class Base:
    """The run that the redraws are compared with: its inputs, with tangents as `tangent y`, the results of the Capture
    (`ports`), and the results of each Pair (`parts`)."""

    values: Mapping[str, Tensor]
    ports: Results
    parts: RunResults = ()


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
    alone. `base` is a run that exists already. UsageError says that `inputs` is no such word, ReplayError that an input
    has no values.
    """
    if inputs not in CHOICES:
        raise UsageError(f"power={inputs!r} is not one of {', '.join(CHOICES)}")
    maker = capture.recipes if recipes is None else recipes
    if capture.fake or not maker.complete:
        raise ReplayError(f"{capture.name} has inputs without values, so nothing can be redrawn")
    with settings.ONE_AT_A_TIME, settings.preserving_random_states(), settings.with_settings(dict(capture.environment)):
        if base is None:
            values = maker.make()
            ports, *parts = _results_on(capture, values)
            base = Base(values, ports, tuple(parts))
        measurement = _PowerMeasurement(capture, maker.recipes, base, dict(fresh or {}), seed)
        is_part = seconds is not None or count is not None
        single = measurement.single_inputs(inputs, only, is_part)
        return measurement.run(measurement.groups(inputs), single, seconds, count)


def with_power(port: PortVerdict, powers: Mapping[str, float]) -> PortVerdict:
    """Return a port's verdict with its power. `powers` has the power of ports by their keys as text: `most` of a Power,
    or one of its `parts`."""
    return replace(port, power=powers.get(str(port.key)))


def why_without_power(power: Power) -> list[str]:
    """Return why ports have no power, and what to do: a sentence for each reason."""
    # Of the redraws that do not run, only the first is named: it is of the program's inputs, or of everything.
    failed = [trial for trial in power.trials[:1] if trial.untried.startswith(DOES_NOT_RUN)] if power.vacuous else []
    ports: dict[str, list[str]] = {}
    for port, reason in power.why:
        ports.setdefault(reason, []).append(port)
    return [
        *(f"{trial.name} could not be redrawn ({trial.untried})" for trial in failed),
        *(f"{first_names(names)} {'do' if len(names) > 1 else 'does'} not move: {why}" for why, names in ports.items()),
    ]


def first_names(names: Sequence[str]) -> str:
    """Return the first three names as text."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


ONE_VALUE = "an input was compared at its captured value alone; capture on other inputs to prove this"
NOT_FINITE = "NaN or Inf hides what the inputs do; capture a step whose results are finite"
HELD = "a guard holds all that this depends on, as it may a GradScaler's scale: where the guard holds, this is expected"
UNREAD = "no redraw of the inputs changes this (dead or saturated); capture with weights and inputs that do"
"""Why a port does not move, and what to do."""


def other_values(capture: Capture, values: Mapping[str, Tensor], seed: int = SEED) -> dict[str, Tensor]:
    """Return other values than `values` for all inputs and tangents except constants and inputs that a guard depends
    on. `values` has the tangents as `tangent y`."""
    recipes = capture.recipes.recipes
    roles = {port.name: port.role for port in free_ports(capture)}  # the inputs that a caller passes
    guarded = held_by_guards(capture)
    free_units = [
        names
        for names in units(recipes).values()
        if all(name in values and name not in guarded and roles.get(name) != "constant" for name in names)
    ]
    return other_values_of_units(free_units, recipes, values, seed)


class _PowerMeasurement:
    """Measures the power of one Capture. It is mutable: each redraw adds to the movement of the ports.

    Every redraw starts from the values of the same run, `base`, and changes some of the inputs. `recipes` makes the
    inputs, `fresh` has values to redraw some of them with, and `seed` is for the other draws.
    """

    def __init__(
        self, capture: Capture, recipes: Mapping[str, Any], base: Base, fresh: dict[str, Tensor], seed: int
    ) -> None:
        self.capture, self.recipes, self.base, self.fresh, self.seed = capture, recipes, base, fresh, seed
        self.roles = {port.name: port.role for port in free_ports(capture)}
        self.depends = (dependence(capture), *dependence_of_parts(capture))
        """For the whole Capture, then for each of several Pairs: the inputs that each result depends on."""
        self.read = [functools.reduce(operator.or_, depends.sets.values(), 0) for depends in self.depends]
        """For each entry of `depends`, the set of inputs that any result depends on."""
        # An input that no result depends on need not be redrawn.
        self.units = {name: names for name, names in units(recipes).items() if self.is_needed(names)}
        """The inputs to redraw, each with its views."""
        self.guarded = held_by_guards(capture)
        """The inputs that guards depend on."""
        pinned = {name for guard in capture.guards if guard.kind == "pinned" for name in guard.inputs}
        self.pinned = pinned | {name for name in self.guarded if self.is_fixed(name)}
        """Inputs that cannot have other values in any call that the guards let through."""
        self.unchecked = unchecked_inputs(capture, base.values)
        """Inputs whose elements all have one value, for which a sample keeps results on this value alone."""
        self.compared_alone = frozenset(name for guard in compared_alone(capture) for name in guard.inputs)
        """Inputs for which the proof at capture found no other values that the program runs on."""
        self.neutral_point: Base | str | None = None
        """The run at the neutral point, or why there is none; None before it was tried."""
        self.drawn_values: dict[tuple[tuple[str, ...], float | None], dict[str, Tensor]] = {}
        """The other values so far, by unit (an input and its views) and step: each redraw draws the same."""
        # With one Pair, `depends` has no entry for it: it would be that of the whole Capture.
        self.largest_movements = [
            {key: 0.0 for key, value in ports.items() if has_movement(value) and depends.sets.get(key)}
            for depends, ports in zip(self.depends, (base.ports, *base.parts), strict=False)
        ]
        """For the whole Capture and each Pair, the largest movement so far of each port that can move, in tolerances:
        from 1 on, the port has moved."""
        self.caps: dict[PortKey, float] = {}
        """The most that the power of some ports can be, as no port of their side moves with the program's own
        inputs."""

    def is_needed(self, names: Collection[str]) -> bool:
        """Whether any result depends on one of these inputs."""
        return any(depends.set_of(names) & read for depends, read in zip(self.depends, self.read, strict=True))

    def is_fixed(self, name: str) -> bool:
        """Whether an input has one number, and a guard on this input alone compares it by `==`."""
        value = self.base.values.get(name)
        return (
            isinstance(value, Tensor)
            and value.numel() == 1
            and any(guard.inputs == (name,) and " == " in guard.text for guard in self.capture.guards)
        )

    def role(self, name: str) -> str:
        """Return the role of an input, or `tangent`."""
        return "tangent" if is_tangent(name) else self.roles.get(name, "constant")

    def inputs_of_roles(self, *roles: str) -> tuple[str, ...]:
        """Return the redrawable inputs of these roles."""
        return tuple(name for name in self.units if self.role(name) in roles)

    def single_inputs(self, inputs: str, only: Collection[str] | None, is_part: bool) -> list[str]:
        """Return the inputs to redraw alone, in order: those in `only`, or those that the choice `inputs` names;
        shuffled if only a part of them will be tried."""
        names = [name for name in self.units if not is_tangent(name)]
        if only is not None:
            return [name for name in names if name in only]
        names = [name for name in names if (self.role(name) == "input" and inputs == "own") or inputs == "all"]
        # So that tries that are cut short are a fair sample of parameters and buffers.
        if inputs == "all" and is_part:
            # Shuffled, and then sorted by a stable sort: the inputs first, and the rest still in random order.
            random.Random(self.seed).shuffle(names)
            names.sort(key=lambda name: self.role(name) != "input")
        return names

    def groups(self, inputs: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the groups that `own` and `all` redraw together, each with its name."""
        if inputs == "quick":
            return []
        by_role = ((title, self.inputs_of_roles(role)) for role, title in GROUPS.items())
        return [(title, names) for title, names in [(EVERYTHING, tuple(self.units)), *by_role] if names]

    def run(
        self, groups: Sequence[tuple[str, tuple[str, ...]]], single: list[str], seconds: float | None, count: int | None
    ) -> Power:
        """Run the standard redraws; then redraw each of `groups` and each input of `single` alone, until `seconds` have
        passed or `count` trials are done (None: no limit), but at least one. Return the Power of the ports by the
        standard redraws, with the trials of `groups` and `single`; if there are none, with the standard trials."""
        standard = self.standard_redraws()
        whole, *parts = (self.port_powers(index) for index in range(len(self.largest_movements)))
        why = self.reasons([key for key in self.largest_movements[0] if str(key) in unmoved_ports(whole)])
        if not groups and not single:
            return Power(tuple(standard), most=whole, parts=tuple(parts), why=why)
        started = time.monotonic()
        trials: list[Trial] = []  # of the groups, then of single inputs
        for title, names in [*groups, *((f"{self.role(name)} {name}", (name,)) for name in single)]:
            spent = time.monotonic() - started
            if trials and ((seconds is not None and spent > seconds) or (count is not None and len(trials) >= count)):
                break
            trials.append(self.redraw(title, names))
        tried = sum(not trial.untried for trial in trials[len(groups) :])  # of single inputs
        return Power(tuple(trials), tried, of=len(single), most=whole, parts=tuple(parts), why=why)

    def reasons(self, ports: Collection[PortKey]) -> tuple[tuple[str, str], ...]:
        """Return why each of these ports of the Capture does not move: the port's key as text, and a sentence."""
        depends = self.depends[0]  # of the whole Capture
        # No check sees these change: the sample has results for one value of them alone (`unchecked`), or the proof at
        # capture found no other value that the program runs on (`compared_alone`).
        unseen_inputs = depends.set_of(self.unchecked | self.compared_alone)
        held_inputs = depends.set_of(self.guarded)  # the inputs whose values a guard compares

        def reason(key: PortKey) -> str:
            """Return the first reason that holds for a port."""
            if depends.sets[key] & unseen_inputs:
                return ONE_VALUE
            # `strided_parts`: a tensor, or the dense tensors that a sparse one consists of.
            if not all(bool(part.isfinite().all()) for part in strided_parts(self.base.ports[key])):
                return NOT_FINITE
            # HELD, if no input that the port depends on is free of guards.
            return UNREAD if depends.sets[key] & ~held_inputs else HELD

        return tuple((str(key), reason(key)) for key in ports)

    def port_powers(self, index: int) -> tuple[tuple[str, float], ...]:
        """Return the power of each port, with the port's key as text: of the whole Capture (index 0), or of a Pair (its
        place in `self.depends`).

        A port has the power 0.0 if it depends on an input that no check sees change (`unchecked`, `compared_alone`). A
        port that depends only on pinned inputs is left out: no call can move it, so no check can miss that.
        """
        caps = {} if index else self.caps  # the caps are of the whole Capture's ports
        depends = self.depends[index]
        unseen_inputs = depends.set_of(self.unchecked | self.compared_alone)
        powers = {
            key: 0.0 if depends.sets[key] & unseen_inputs else min(movement, caps.get(key, movement))
            for key, movement in self.largest_movements[index].items()
        }
        # A port of an input in `compared_alone` is not left out, as its power of 0.0 is to be seen.
        fixed_inputs = depends.set_of(self.pinned - self.compared_alone)
        return tuple(
            (str(key), movement)
            for key, movement in powers.items()
            if movement >= 1 or depends.sets[key] & ~fixed_inputs
        )

    # ---- The standard redraws

    def standard_redraws(self) -> list[Trial]:
        """Run the redraws that determine each port's power, until every port that can move has moved, or MOST_FURTHER
        are done. Return a Trial of each.

        The choice depends on the Capture and its values alone, never on time or on the caller: `save`, `verify` and
        `power` report one number for a sample.
        """
        own_inputs = self.inputs_of_roles("input", "tangent")
        # Always first: it also says which later movement does not count (`caps`).
        trials = [self.redraw_own_inputs(own_inputs)] if own_inputs else []
        for title, names, ways in self.further_redraws(own_inputs):
            inputs_to_redraw = self.inputs_of_unmoved_ports()
            if not inputs_to_redraw or len(trials) > MOST_FURTHER:
                break
            if inputs_to_redraw & frozenset(names):  # else this redraw cannot move a port that has not moved yet
                trials.append(self.redraw(title, names, ways, is_standard=True))
        return trials

    def redraw_own_inputs(self, own: tuple[str, ...]) -> Trial:
        """Redraw `own`, the program's inputs and the tangents, together; cap the ports of a side on which nothing
        moves.

        In a net whose ReLUs are all dead, the output is the last bias, whatever the image is. A redraw of the
        parameters moves it, so it would seem to have power; but a graph that ignores the image would pass every check.
        So if no port of a side (outputs and mutations, or gradients) that depends on the inputs moves with them, later
        movement of these ports does not count.

        Buffers on which only updates depend are redrawn along. A running mean of 1e4 moves by less than a tolerance
        with the batch, and moves with its own value. The Trial is about the inputs, so it leaves these updates out.
        """
        along = self.update_only_buffers()
        trial = self.redraw(OWN_INPUTS, (*own, *along), is_standard=True, not_shown_names=frozenset(along))
        for side in trial.silent:  # the sides, `forward` or `backward`, of which no port moved
            movement = ((PortKey.from_text(port), by) for port, by in trial.moved)
            self.caps |= {key: by for key, by in movement if side_of(key) == side}
        return trial

    def update_only_buffers(self) -> tuple[str, ...]:
        """Return buffers that only updates of tensors depend on, such as running statistics in training."""
        depends = self.depends[0]
        sets_of_others = (inputs for key, inputs in depends.sets.items() if key.role != "mutation")
        read = functools.reduce(operator.or_, sets_of_others, 0)  # the inputs that outputs and gradients depend on
        return tuple(name for name in self.inputs_of_roles("buffer") if not depends.set_of([name]) & read)

    def further_redraws(self, own: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], tuple[Way, ...]]]:
        """Yield the redraws to try while some port does not move, each as its name, inputs and ways: larger groups,
        then small steps, then one input. `own` are the program's inputs and the tangents.

        Small steps keep what a new draw may lose: the place where a function is not flat, and the outcome of a
        comparison that a guard holds (`x.max() < 6`).
        """
        for role, title in GROUPS.items():
            yield title, self.inputs_of_roles(role), WAYS
        yield EVERYTHING, tuple(self.units), WAYS
        little = (Way(floats_only=True, step=NUDGE),)
        yield f"{OWN_INPUTS}, a little", tuple(name for name in own if name not in self.guarded), little
        guarded = tuple(name for name in self.units if name in self.guarded - self.pinned)
        yield "what guards hold, a little", guarded, GUARDED_WAYS
        for name in self.in_order_of_own_updates(guarded)[:MOST_SINGLE] if len(guarded) > 1 else ():
            yield f"{name}, which a guard holds, a little", (name,), GUARDED_WAYS
        for name in self.inputs_of_roles("input")[:MOST_SINGLE]:
            yield f"input {name}", (name,), WAYS

    def in_order_of_own_updates(self, names: Collection[str]) -> list[str]:
        """Return these inputs in order, first those whose own update has not moved yet, as the scale of a
        GradScaler: it may move with itself, where a redraw of all that a guard holds breaks the guard."""
        unmoved = {key.name for key, by in self.largest_movements[0].items() if by < 1 and key.role == "mutation"}
        return sorted(names, key=lambda name: name not in unmoved)

    def inputs_of_unmoved_ports(self) -> frozenset[str]:
        """Return the inputs of ports that have not moved yet; a capped port has none, as movement would not count."""
        names: set[str] = set()
        # A base that was passed without results of Pairs (`Base.parts`) has only the whole Capture's movements.
        for index, (depends, largest) in enumerate(zip(self.depends, self.largest_movements, strict=False)):
            # Caps are of the whole Capture's ports (index 0).
            unmoved = (key for key, movement in largest.items() if movement < 1 and (index or key not in self.caps))
            inputs_of_unmoved = functools.reduce(operator.or_, (depends.sets[key] for key in unmoved), 0)
            names |= depends.names_of(inputs_of_unmoved)
        return frozenset(names) - self.pinned

    # ---- One redraw

    def redraw(
        self,
        title: str,
        names: Collection[str],
        ways: tuple[Way, ...] = WAYS,
        *,
        is_standard: bool = False,
        not_shown_names: frozenset[str] = frozenset(),
    ) -> Trial:
        """Redraw these inputs together, in the first of `ways` on which the Capture runs. Return how far each port
        moved that depends on them, but not on `not_shown_names`, the inputs that the Trial is not about; or why the
        redraw was not tried.

        With `is_standard`, the movement counts for the power of the ports.
        """
        # A guard refuses new values of its inputs, but may allow small steps.
        redrawable = tuple(name for name in names if name not in self.guarded or ways is GUARDED_WAYS)
        if not redrawable:
            return Trial(title, tuple(names), untried="a guard holds it")
        run = self.run_on_other_values(redrawable, ways)
        if isinstance(run, str):
            return Trial(title, tuple(names), untried=run)
        values, results = run
        redrawn, shown = frozenset(values), tuple(name for name in redrawable if name not in not_shown_names)
        movement = self.movement_of_whole(results[0], redrawn, not_shown_names)
        if is_standard:
            self.add_movement(redrawn, results, movement)
        del run, results  # the results may be gigabytes, and the neutral point runs the Capture twice more
        unmoved = [key for key, distance in movement.items() if distance < 1]
        # A Trial is `hidden` if a check would miss a graph that ignores the redrawn inputs.
        if is_standard and unmoved and not Trial(title, shown, _port_texts(movement)).hidden:
            # A check sees this redraw by other ports, so why these ports do not move is left open: the answer takes two
            # runs in float64.
            rows = _port_texts({key: distance for key, distance in movement.items() if distance >= 1})
            return Trial(title, shown, rows, open=tuple(map(str, unmoved)))
        # The Trial is about the inputs, so the buffers that were redrawn along keep their values at the neutral point.
        own_values = {name: value for name, value in values.items() if name not in not_shown_names}
        independent = self.independent_ports(unmoved, own_values) if unmoved else ()
        rows = _port_texts({key: distance for key, distance in movement.items() if key not in independent})
        return Trial(title, shown, rows, null=tuple(str(key) for key in movement if key in independent))

    def movement_of_whole(
        self, ports: Results, redrawn: Collection[str], not_shown_names: Collection[str]
    ) -> dict[PortKey, float]:
        """Return by how many tolerances the results of the whole Capture moved, to `ports` from the base: of each port
        that has a tolerance, depends on a redrawn input, and depends on none of `not_shown_names`."""
        depends = self.depends[0]
        redrawn_set, not_shown = depends.set_of(redrawn), depends.set_of(not_shown_names)
        dependent = [key for key in ports if depends.sets[key] & redrawn_set and not depends.sets[key] & not_shown]
        movement = {key: movement_in_tolerances(self.base.ports.get(key), ports.get(key)) for key in dependent}
        return {key: distance for key, distance in movement.items() if distance is not None}

    def run_on_other_values(
        self, names: Collection[str], ways: tuple[Way, ...]
    ) -> tuple[dict[str, Tensor], RunResults] | str:
        """Return other values of these inputs, redrawn in the first way on which the Capture runs, and the results on
        them; or why there are none."""
        reason, is_guarded = "", False  # why the first way failed, and whether a guard refused the last
        values_tried: tuple[set[str], float | None] = (set(), 0.0)  # what the way before changed, and by which step
        for floats_only, step in ways:
            chosen = [name for name in names if not floats_only or is_inexact(self.base.values[name])]
            chosen_units = [self.units[name] for name in chosen]
            values = self.other_values(chosen_units, step)
            # If all inputs are floats, the way of floats alone is the way before it, which has failed.
            if not values or values_tried == (set(values), step):
                continue
            values_tried = (set(values), step)
            try:
                return values, _results_on(self.capture, {**self.base.values, **values})
            except BackprintError as error:
                reason = reason or f"{DOES_NOT_RUN}: {str(error)[:160]}"
                is_guarded = isinstance(error, GuardError)
        if is_guarded and ways is GUARDED_WAYS and len(names) == 1:  # not even a step of 2**-10 keeps its guard
            self.pinned |= set(names)
        return reason or "its dtype has no other values that could be drawn"

    def other_values(self, chosen: Sequence[tuple[str, ...]], step: float | None) -> dict[str, Tensor]:
        """Return other values of these units (inputs with their views), moved by `step` or, if that is None, drawn
        anew. Each is drawn once, and all redraws get the same values."""
        not_drawn = [unit for unit in chosen if (unit, step) not in self.drawn_values]
        values = other_values_of_units(not_drawn, self.recipes, self.base.values, self.seed, self.fresh, step)
        for unit in not_drawn:
            self.drawn_values[unit, step] = {name: values[name] for name in unit if name in values}
        return {name: value for unit in chosen for name, value in self.drawn_values[unit, step].items()}

    def add_movement(self, redrawn: frozenset[str], results: RunResults, movement: Mapping[PortKey, float]) -> None:
        """Add a redraw of the inputs `redrawn`, whose run has these results, to the largest movement of the ports that
        depend on these. `movement` has the movement of ports of the whole Capture, as far as it was computed."""
        # `results` has an entry for a single Pair too, `largest_movements` and `depends` do not.
        rows = zip(self.largest_movements, self.depends, (self.base.ports, *self.base.parts), results, strict=False)
        for index, (largest, depends, ports_before, ports_now) in enumerate(rows):
            # `movement` has no ports of integers or bools: `movement_or_change` compares these, and all ports of Pairs.
            known: Mapping[PortKey, float] = {} if index else movement
            redrawn_set = depends.set_of(redrawn)
            for key, largest_before in largest.items():
                if depends.sets[key] & redrawn_set:
                    distance = known[key] if key in known else movement_or_change(ports_before[key], ports_now.get(key))
                    largest[key] = max(largest_before, distance)

    # ---- The neutral point

    def independent_ports(self, unmoved: Collection[PortKey], values: Mapping[str, Tensor]) -> frozenset[PortKey]:
        """Return the `unmoved` ports that do not depend on the redrawn inputs, although a path leads to them. `values`
        has the other values of these inputs.

        A bias before a batch norm, or a shift of scores before a softmax, has a path to the output and cannot move it:
        the port need not move. If it does not move because a ReLU is dead or a softmax is saturated, a wrong graph
        would pass at this sample's values. A redraw alone cannot distinguish the two. So it is repeated in float64,
        where rounding is no movement, at a neutral point: weights keep the scale of their inputs, and nothing is dead
        or saturated. A port that does not move there either, to `results.NULL` of its size, is independent; one that
        moves there is weak at this sample's values. Where the neutral point cannot be run, no port counts as
        independent.
        """
        point = self.neutral_run()
        if isinstance(point, str):  # why there is none
            return frozenset()
        # Another neutral value by the next seed; what is not floating-point is redrawn as in the redraw itself.
        others = {
            name: neutral_values(value, self.role(name), self.seed + 1) if is_inexact(value) else value
            for name, value in values.items()
        }
        try:
            ports, *_ = _results_on(self.in_float64, {**point.values, **others})
        except BackprintError:
            return frozenset()
        return frozenset(key for key in unmoved if stays_equal(point.ports.get(key), ports.get(key)))

    @functools.cached_property
    def in_float64(self) -> Capture:
        """The Capture in float64, computed once."""
        return capture_in_float64(self.capture)

    def neutral_run(self) -> Base | str:
        """Return the run at the neutral point, computed once; or why there is none."""
        if self.neutral_point is None:
            self.neutral_point = self.run_at_neutral_point()
        return self.neutral_point

    def run_at_neutral_point(self) -> Base | str:
        """Run the Capture in float64 on neutral values: well-conditioned ones, as `sample.redraws.neutral_values` makes
        them. An input that a guard depends on keeps its values. Return the run; or why there is none: the tensors are
        large, or the Capture raises."""
        saved = [port.spec for pair in self.capture.pairs for port in at_example_sizes(pair.forward).by_role("saved")]
        saved_bytes = sum(spec.nbytes for spec in saved if isinstance(spec, TensorSpec))
        input_bytes = sum(part.nbytes for value in self.base.values.values() for part in strided_parts(value))
        if saved_bytes + input_bytes > MOST_BYTES:
            return "too large"
        values = {
            name: _value_in_float64(value)
            if name in self.guarded
            else neutral_values(value, self.role(name), self.seed)
            for name, value in self.base.values.items()
        }
        try:
            ports, *_ = _results_on(self.in_float64, values)  # the Capture's results; those of its Pairs are not needed
            return Base(values, ports)
        except BackprintError as error:
            return f"does not run: {error}"


def _port_texts(moved: Mapping[PortKey, float]) -> Moved:
    """Return how far ports moved, with their keys as text."""
    return tuple((str(key), by) for key, by in moved.items())


def _results_on(capture: Capture, values: Mapping[str, Tensor]) -> RunResults:
    """Return every result of a Capture, and of its Pairs, on these inputs and tangents, under its own seed."""
    seed_torch(capture.seed)
    inputs, tangents = without_tangents(values)
    # A tensor that was passed under two names has one value: `same` has these names in pairs.
    same = {right: inputs[left] for left, right in capture.signature.same if left in inputs}
    replayed = replay_values(capture, {**inputs, **same}, tangents)
    return (replayed.results, *(run.results for run in replayed.parts))
