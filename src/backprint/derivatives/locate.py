"""Where a backward is not the derivative of its forward: the first operators whose gradients are wrong.

Autograd of the captured forward, in float64, has the right gradient of every value. The values of the backward are
compared with these: a gradient that the backward has nowhere is wrong, or is never computed on its own (inside a custom
Function). On the ways from the inputs with wrong gradients to the results, the step nearest to the results is looked
for whose result has a right gradient and whose inputs have none: there the backward goes wrong. Steps before it are
added until values of the backward explain what it returned. These are then taken for given, and what remains is
searched in the same way; so several wrong places are found one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from backprint.derivatives.duals import DualRun, may_have_tangent, unpacked
from backprint.derivatives.setting import Setting, drawn_like, gap_of, inner, is_inexact, symmetric_as
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Step, refs
from backprint.values.tree import plain_leaves

NEAR = 1e-9
"""The relative difference up to which two gradients are the same: both are rounded in float64."""

MOST_PLACES = 64
"""How many wrong places are looked for."""

MOST_CANDIDATES = 5
"""How many values of the backward are tried as the gradient of one input of a wrong place."""

MOST_INPUTS = 6
"""The most inputs of a wrong place whose gradients are not known to be right."""

MOST_TRIED = 24
"""How many combinations of these are tried for one place."""

MOST_STEPS = 12
"""The most steps of a wrong place."""


NOTHING, RIGHT = "", "right "
"""Candidates for a gradient beside values of the backward: none, and the right one."""


@dataclass(frozen=True, slots=True)
class WrongPlace:
    """Forward steps whose gradients are wrong: the values they take and what the backward returned for each, in order;
    `errors` are the relative differences from the right gradients. None is returned for a value without a gradient."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    returned: tuple[Tensor | None, ...]
    errors: tuple[float, ...]
    backward_steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Located:
    """The wrong places, those nearest to the results first. If `complete`, every other gradient is right. `refuted` are
    operators whose gradient is right and whose formula for tangents is wrong, `undecided` those of which one of both is
    wrong."""

    places: tuple[WrongPlace, ...]
    complete: bool
    wrong: tuple[str, ...]
    refuted: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()


def locate(setting: Setting, functions: Sequence[Collection[str]] = (), cut: Collection[str] = ()) -> Located:
    """Return the places where the backward of a Setting is not the derivative of its forward.

    `functions` has the lines of each custom autograd.Function of the program, as `file.py:8`, and `cut` the values that
    autograd gives no gradient.
    """
    search = Search(setting, functions, cut)
    places: list[WrongPlace] = []
    wrong = search.wrong_ports(places)
    first_wrong = wrong
    while wrong and len(places) < MOST_PLACES:
        place = search.next_place(places, wrong)
        if place is None:
            break
        places.append(place)
        wrong = search.wrong_ports(places)
    return Located(tuple(places), not wrong, tuple(first_wrong))


def locate_formulas(setting: Setting) -> Located:
    """Return the steps whose own gradient, as autograd has it, is not the derivative of the step.

    Each is tried alone, at its values in the forward: with random tangents of what it takes and of what it returns, the
    two products must agree, as for a whole Pair. Where they do not, differences decide whether the gradient is wrong or
    the formula for the tangent.
    """
    search = Search(setting)
    right = search.right_gradients([])
    places = []
    refuted, undecided = set[str](), set[str]()
    for step in search.step_of.values():
        if step.name not in search.reaching or step.name not in search.depending:
            continue
        inputs = [name for name in names_in(step) if search.may_have_gradient(name)]
        tensors = all(isinstance(search.forward_values[name], Tensor) for name in inputs)
        if not inputs or not tensors or step.target in refuted:
            continue
        try:
            gap, _ = formula_gap(search, step, inputs)
            if gap <= FORMULA_GAP:
                continue
            by_differences, accuracy = formula_gap(search, step, inputs, (step.target,))
        except (BackprintError, RuntimeError):
            undecided.add(step.target)
            continue
        if by_differences <= gap / FARTHER:
            refuted.add(step.target)
            continue
        if by_differences <= FARTHER * accuracy or not math.isfinite(by_differences):
            undecided.add(step.target)
            continue
        steps = tuple(dict.fromkeys((step, *search.parts(step))))
        returned = search.contributions(steps, inputs, right)
        places.append(
            WrongPlace(
                steps,
                tuple(inputs),
                tuple(returned.get(name) for name in inputs),
                tuple(1.0 for _ in inputs),
                search.backward_steps(steps, ()),
            )
        )
    return Located(tuple(places), bool(places), (), frozenset(refuted), frozenset(undecided))


FORMULA_GAP = 1e-11
"""The least gap of one step alone that is looked into: some operators are less exact than float64 at their values."""

FARTHER = 10.0
"""How many times farther apart than rounding two products must be, to be told from it."""


def formula_gap(
    search: Search, step: Step, inputs: Sequence[str], refuted: Collection[str] = ()
) -> tuple[float, float]:
    """Return the gap of one step alone, relative to the sizes of the terms, and how accurate its tangents are. The
    tangents of operators in `refuted` are not from their formulas."""
    source = torch.Generator().manual_seed(0)
    values = {name: search.forward_values[name].detach() for name in inputs}
    run = DualRun(search.graph, refuted={*search.setting.refuted, *refuted}, states=search.states)
    tangents: list[Any] = []
    with forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(value.clone(), symmetric_as(value, drawn_like(value, source)))
            for name, value in values.items()
        }
        tangents = [forward_ad.unpack_dual(dual).tangent for dual in duals.values()]
        moved = run.continued([step], {**search.forward_values, **duals})[step.name]
        along = [unpacked(leaf)[1] for leaf in plain_leaves(moved) if isinstance(leaf, Tensor)]
    with torch.enable_grad():
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        fed = {name: leaf * 1 for name, leaf in leaves.items()}
    results = [
        leaf
        for leaf in plain_leaves(run.continued([step], {**search.forward_values, **fed})[step.name])
        if isinstance(leaf, Tensor)
    ]
    cotangents = [drawn_like(result, source) if is_inexact(result) else None for result in results]
    active = [(r, c) for r, c in zip(results, cotangents, strict=True) if c is not None and r.requires_grad]
    if not active:
        return 0.0, 0.0
    gradients = torch.autograd.grad(
        [r for r, _ in active], list(leaves.values()), [c for _, c in active], allow_unused=True
    )
    left, right = [0.0, 0.0], [0.0, 0.0]
    for cotangent, tangent, result in zip(cotangents, along, results, strict=True):
        if cotangent is not None and tangent is not None and result.requires_grad:
            add(left, inner(cotangent, tangent))
    for gradient, direction in zip(gradients, tangents, strict=True):
        if gradient is not None:
            add(right, inner(gradient, direction))
    return gap_of((left[0], left[1]), (right[0], right[1])), run.accuracy


def add(total: list[float], product: tuple[float, float]) -> None:
    """Add a product, and the sizes of its terms, to a total of these."""
    total[0] += product[0]
    total[1] += product[1]


class Search:
    """The values of a Setting's backward, and the right gradients of its forward's values."""

    def __init__(self, setting: Setting, functions: Sequence[Collection[str]] = (), cut: Collection[str] = ()) -> None:
        self.setting, self.graph, self.functions, self.cut = setting, setting.forward, functions, cut
        self.step_of = {step.name: step for step in self.graph.steps if not step.is_guard}
        self.index = {step.name: index for index, step in enumerate(self.graph.steps)}
        self.consumers: dict[str, list[Step]] = {}
        for step in self.step_of.values():
            for name in names_in(step):
                self.consumers.setdefault(name, []).append(step)
        self.depending = self.depending_values()
        self.reaching = self.reaching_values()
        self.backward_values = run_backward(setting)
        self.marks: dict[int, list[tuple[Mark, Tensor]]] = {}
        for value in self.backward_values.values():
            if may_have_tangent(value) and is_inexact(value) and value.numel():
                self.marks.setdefault(value.numel(), []).append((mark_of(value), value))
        self.forward_values, self.states = forward_values(setting)
        self.local_of_port = {port.name: port.local for port in self.graph.inputs}

    def depending_values(self) -> set[str]:
        """Return the values that depend on an input with a gradient."""
        depending = {port.local for port in self.graph.inputs if port.name in self.setting.gradients}
        for step in self.step_of.values():
            if depending & set(names_in(step)):
                depending.add(step.name)
        return depending

    def reaching_values(self) -> set[str]:
        """Return the values that a result with a tangent depends on."""
        results = zip(self.graph.outputs, self.graph.results, strict=True)
        reaching = {
            name
            for port, result in results
            if port.role in ("output", "mutation") and port.name in self.setting.tangents
            for name in refs(result)
        }
        for step in reversed(self.step_of.values()):
            if step.name in reaching:
                reaching |= set(names_in(step))
        return reaching

    # ---- The right gradients

    def right_gradients(self, places: Sequence[WrongPlace]) -> dict[str, Tensor]:
        """Return the right gradient of every value of the forward, if what the backward returned at some places is
        taken for given."""
        constant = {step.name for place in places for step in place.steps}
        leaves = {
            name: value.clone().requires_grad_() if name in self.setting.gradients else value
            for name, value in self.setting.inputs.items()
        }
        torch.manual_seed(self.setting.chance)
        with torch.enable_grad():
            fed = {name: value * 1 if name in self.setting.gradients else value for name, value in leaves.items()}
        env = DualRun(self.graph, constant, all_require_grad=True).values(fed)
        roots, weights = self.roots(env, places)
        named = {
            name: value
            for name, value in env.items()
            if may_have_tangent(value) and value.requires_grad and is_inexact(value)
        }
        if not roots or not named:
            return {}
        gradients = torch.autograd.grad(roots, list(named.values()), weights, allow_unused=True)
        return {name: dense(gradient) for name, gradient in zip(named, gradients, strict=True) if gradient is not None}

    def roots(self, env: Mapping[str, Any], places: Sequence[WrongPlace]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the values that a backward starts from, with their gradients: the results, and given places."""
        starts: list[tuple[Any, Tensor]] = []
        results = dict(zip((port.key for port in self.graph.outputs), self.graph.results, strict=True))
        for name, tangent in self.setting.tangents.items():
            key = next(key for role in ("output", "mutation") if (key := PortKey(role, name)) in results)
            starts += [(env.get(local), tangent) for local in refs(results[key])]
        for place in places:
            starts += [
                (env[name], gradient)
                for name, gradient in zip(place.inputs, place.returned, strict=True)
                if gradient is not None
            ]
        starts = [(value, gradient) for value, gradient in starts if isinstance(value, Tensor) and value.requires_grad]
        return [value for value, _ in starts], [gradient for _, gradient in starts]

    def wrong_ports(self, places: Sequence[WrongPlace]) -> list[str]:
        """Return the ports whose gradients are not the right ones."""
        return self.wrong_among(self.right_gradients(places))

    def wrong_among(self, right: Mapping[str, Tensor]) -> list[str]:
        """Return the ports whose gradients are not these."""
        sizes = [float(gradient.abs().max()) for gradient in self.setting.gradients.values() if gradient.numel()]
        largest = max(sizes, default=0.0)
        wrong = []
        for name, gradient in self.setting.gradients.items():
            expected = right.get(self.local_of_port[name])
            expected = torch.zeros_like(gradient) if expected is None else expected
            if distance(gradient, expected, largest) > NEAR:
                wrong.append(name)
        return wrong

    # ---- The next wrong place

    def next_place(self, places: Sequence[WrongPlace], wrong: Sequence[str]) -> WrongPlace | None:
        """Return the wrong place nearest to the results, or None if there is none that explains what is wrong."""
        right = self.right_gradients(places)
        matched = {name for name, gradient in right.items() if self.is_in_backward(gradient)}
        matched -= {self.local_of_port[name] for name in wrong}
        place = self.wrong_sum(places, right, matched, wrong, alone=True)
        if place is not None:
            return place
        ends, inside = self.ways(matched, wrong, {s.name for p in places for s in p.steps})
        for last in ends:
            for steps in self.regions(last, inside):
                place, is_right = self.best_explanation(steps, places, right, matched, wrong)
                if place is not None:
                    return place
                if is_right:  # what is wrong comes another way
                    break
        for steps in self.function_calls({step.name for place in places for step in place.steps}):
            place, _ = self.best_explanation(steps, places, right, matched, wrong)
            if place is not None:
                return place
        return self.wrong_sum(places, right, matched, wrong, alone=False)

    def wrong_sum(
        self,
        places: Sequence[WrongPlace],
        right: Mapping[str, Tensor],
        matched: set[str],
        wrong: Sequence[str],
        alone: bool,
    ) -> WrongPlace | None:
        """Return the steps that take a value whose gradient the backward adds up, or returns, wrongly, though it has
        the right gradients of all that these steps make. With `alone`, it must have each right share of the sum too, so
        that nothing but the sum is wrong."""
        given = {step.name for place in places for step in place.steps}
        returned = {self.local_of_port[name]: self.setting.gradients[name] for name in wrong}
        returned |= {name: value for name, value in self.sums().items() if name not in returned}
        for name, gradient in returned.items():
            takers = [step for step in self.consumers.get(name, ()) if step.name in self.reaching]
            taken = {part.name for step in takers for part in self.parts(step)} & right.keys()
            if not taken or name not in right or any(step.name in given for step in takers) or not taken <= matched:
                continue
            if distance(gradient, right[name], 0.0) <= NEAR or gradient.shape != right[name].shape:
                continue
            if alone and not (len(takers) > 1 and all(self.has_share(step, name, right) for step in takers)):
                continue
            error = distance(gradient, right[name], 0.0)
            backward_steps = self.backward_steps((), [n for n, v in self.backward_values.items() if v is gradient])
            others = [n for step in takers for n in names_in(step) if n != name and self.may_have_gradient(n)]
            others = [n for n in dict.fromkeys(others) if n not in {step.name for step in takers}]
            if not all(isinstance(self.forward_values[n], Tensor) for n in others):
                continue
            steps = tuple(dict.fromkeys(part for step in takers for part in (step, *self.parts(step))))
            theirs = self.contributions(steps, others, right)
            place = WrongPlace(
                steps,
                (name, *others),
                (gradient, *(theirs.get(n) for n in others)),
                (error, *(0.0 for _ in others)),
                backward_steps,
            )
            if self.progress([*places, place], place, matched, wrong) > (0, 0):
                return place
        return None

    def has_share(self, step: Step, name: str, right: Mapping[str, Tensor]) -> bool:
        """Whether the backward has the right gradient of a value by one step that takes it."""
        share = self.contributions(tuple(dict.fromkeys((step, *self.parts(step)))), [name], right).get(name)
        return share is None or self.is_in_backward(share)

    def sums(self) -> dict[str, Tensor]:
        """Return for each value of the forward whose gradient the backward adds up what it adds up to, those nearest
        to the results first."""
        values: dict[str, Tensor] = {}
        for step in self.setting.backward.steps:
            if step.echo is not None and step.echo.kind == "sum of gradients of":
                value = self.backward_values.get(step.name)
                if isinstance(value, Tensor):
                    values |= dict.fromkeys(step.echo.names, dense(value))
        return values

    def parts(self, step: Step) -> list[Step]:
        """Return a step, or the steps that take one of its several results."""
        if isinstance(self.forward_values[step.name], Tensor):
            return [step]
        return [taker for taker in self.consumers.get(step.name, ()) if taker.target == "operator.getitem"]

    def function_calls(self, given: set[str]) -> Iterator[tuple[Step, ...]]:
        """Yield the steps of each call of a custom autograd.Function, the last calls first."""
        calls: list[tuple[int, list[Step]]] = []
        last: Step | None = None
        for step in self.step_of.values():
            before, last = last, step
            line = "" if step.source is None else f"{step.source.file}:{step.source.line}"
            number = next((number for number, lines in enumerate(self.functions) if line in lines), None)
            if number is None or step.name in given:
                continue
            if calls and calls[-1][0] == number and calls[-1][1][-1] is before:
                calls[-1][1].append(step)
            else:
                calls.append((number, [step]))
        for _, steps in reversed(calls):
            if any(step.name in self.reaching for step in steps):
                yield tuple(steps)

    def best_explanation(
        self,
        steps: tuple[Step, ...],
        places: Sequence[WrongPlace],
        right: Mapping[str, Tensor],
        matched: set[str],
        wrong: Sequence[str],
    ) -> tuple[WrongPlace | None, bool]:
        """Return these steps as a wrong place, with what the backward returned there, if that explains a part of what
        is wrong; and whether the steps are right."""
        best: tuple[tuple[int, int], WrongPlace] | None = None
        for place in self.proposals(steps, right, matched):
            if max(place.errors) <= NEAR:
                if None not in place.returned:
                    return None, True
                continue
            progress = self.progress([*places, place], place, matched, wrong)
            if progress > (0, 0) and (best is None or progress > best[0]):
                best = progress, place
            if progress[0] == len(wrong):
                break
        return (None, False) if best is None else (best[1], False)

    def progress(
        self, places: Sequence[WrongPlace], place: WrongPlace, matched: set[str], wrong: Sequence[str]
    ) -> tuple[int, int]:
        """Return how many ports, and how many values before a place, have right gradients if what the backward
        returned there is taken for given, beside those that had one before. What was returned itself does not count."""
        right = self.right_gradients(places)
        returned = [mark_of(gradient) for gradient in place.returned if gradient is not None]
        newly = 0
        for name, gradient in right.items():
            if name not in matched and gradient.numel() and self.is_in_backward(gradient):
                mark = mark_of(gradient)
                newly += not mark.is_zero and not any(mark.is_near(other) for other in returned)
        return len(wrong) - len(self.wrong_among(right)), newly

    def ways(self, matched: set[str], wrong: Sequence[str], given: set[str]) -> tuple[list[Step], set[str]]:
        """Return the steps on the ways from wrong gradients to the results whose result has a right gradient, those
        nearest to the results first, and the other values on these ways."""
        queue = [self.local_of_port[name] for name in wrong]
        on_ways = set(queue)
        while queue:
            for step in self.consumers.get(queue.pop(), ()):
                if step.name not in on_ways and step.name in self.reaching and step.name not in given:
                    on_ways.add(step.name)
                    queue.append(step.name)
        ends = [self.step_of[name] for name in on_ways & self.step_of.keys() & matched]
        return sorted(ends, key=lambda step: -self.index[step.name]), on_ways - matched

    def is_inexact(self, name: str) -> bool:
        """Whether a value has a dtype that can have a gradient; of several results, one of them."""
        return any(is_inexact(leaf) for leaf in plain_leaves(self.forward_values[name]) if isinstance(leaf, Tensor))

    def regions(self, last: Step, inside: set[str]) -> Iterator[tuple[Step, ...]]:
        """Yield the steps that a wrong place may have: the last one, then more before it, on the way to the inputs."""
        region = [last]
        yield tuple(region)
        while len(region) < MOST_STEPS:
            names = {name for step in region for name in names_in(step)} & self.step_of.keys()
            before = [self.step_of[name] for name in names if self.step_of[name] not in region]
            several = [step for step in before if not isinstance(self.forward_values[step.name], Tensor)]
            before = several or [step for step in before if step.name in inside]
            if not before:
                return
            region.insert(0, max(before, key=lambda step: self.index[step.name]))
            yield tuple(sorted(region, key=lambda step: self.index[step.name]))

    def proposals(
        self, steps: tuple[Step, ...], right: Mapping[str, Tensor], matched: set[str]
    ) -> Iterator[WrongPlace]:
        """Yield these steps as a wrong place, with values of the backward as the gradients that it returned."""
        own = {step.name for step in steps}
        inputs = [name for step in steps for name in names_in(step) if name not in own]
        inputs = [name for name in dict.fromkeys(inputs) if self.may_have_gradient(name)]
        if not all(isinstance(self.forward_values[name], Tensor) for name in inputs):
            return  # a place that takes several results of a step has that step in it
        if not inputs or sum(name not in matched for name in inputs) > MOST_INPUTS:
            return
        contributions = self.contributions(steps, inputs, right)
        values = dict(self.backward_values)
        choices = []
        for name in inputs:
            if name in matched and name in contributions:
                values[RIGHT + name] = contributions[name]
                choices.append([RIGHT + name])
            elif name in self.cut:
                choices.append([NOTHING])
            else:
                choices.append(self.candidates(name, steps, contributions.get(name)))
        values[NOTHING] = None
        for chosen in self.most_right_first(choices, [contributions.get(name) for name in inputs], values):
            returned = tuple(values[name] for name in chosen)
            errors = tuple(
                error_of(gradient, contributions.get(name)) for name, gradient in zip(inputs, returned, strict=True)
            )
            yield WrongPlace(steps, tuple(inputs), returned, errors, self.backward_steps(steps, chosen))

    def most_right_first(
        self, choices: Sequence[Sequence[str]], contributions: Sequence[Tensor | None], values: Mapping[str, Any]
    ) -> list[tuple[str, ...]]:
        """Return the combinations of candidates to try, first those with the most right gradients."""
        combinations = itertools.islice(itertools.product(*choices), 600)

        def wrong(chosen: tuple[str, ...]) -> int:
            return sum(error_of(values[name], right) > NEAR for name, right in zip(chosen, contributions, strict=True))

        return sorted(combinations, key=wrong)[:MOST_TRIED]

    def may_have_gradient(self, name: str) -> bool:
        """Whether a value depends on an input with a gradient, by a dtype that can have one."""
        return name in self.depending and self.is_inexact(name)

    def contributions(
        self, steps: tuple[Step, ...], inputs: Sequence[str], right: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the right gradients of a place's inputs by these steps alone."""
        own = {step.name for step in steps}
        env = dict(self.forward_values)
        leaves = {name: env[name].detach().clone().requires_grad_() for name in inputs}
        with torch.enable_grad():
            env |= {name: leaf * 1 for name, leaf in leaves.items()}
        DualRun(self.graph, states=self.states).continued(steps, env)
        ends = [
            (env[name], right[name])
            for name in own & right.keys()
            if not all(step.name in own for step in self.consumers.get(name, ())) or not self.consumers.get(name)
        ]
        ends = [(value, gradient) for value, gradient in ends if value.requires_grad]
        if not ends:
            return {}
        gradients = torch.autograd.grad(
            [value for value, _ in ends], list(leaves.values()), [g for _, g in ends], allow_unused=True
        )
        return {name: dense(g) for name, g in zip(leaves, gradients, strict=True) if g is not None}

    def candidates(self, name: str, steps: tuple[Step, ...], contribution: Tensor | None) -> list[str]:
        """Return names of values of the backward that may be the gradient of an input by these steps; '' is none."""
        shape = tuple(self.forward_values[name].shape)
        echoes = {step.name for step in steps}
        graph = self.setting.backward
        names = [*(port.local for port in graph.by_role("tangent")), *(step.name for step in graph.steps)]
        alike = [
            name
            for name in names
            if isinstance(value := self.backward_values.get(name), Tensor)
            and may_have_tangent(value)
            and tuple(value.shape) == shape
            and is_inexact(value)
        ]
        own = [n for n in alike if (e := self.echo_of(n)) is not None and e & echoes]
        ranked = [*reversed(own), *(n for n in reversed(alike) if n not in own)]
        if contribution is not None:
            same = [n for n in ranked if distance(self.backward_values[n], contribution, 0.0) <= NEAR]
            ranked = [*same, *(n for n in ranked if n not in same)]
        return [*ranked[:MOST_CANDIDATES], NOTHING]

    def echo_of(self, name: str) -> set[str] | None:
        step = self.backward_step(name)
        return set(step.echo.names) if step is not None and step.echo is not None else None

    def backward_step(self, name: str) -> Step | None:
        return next((step for step in self.setting.backward.steps if step.name == name), None)

    def backward_steps(self, steps: tuple[Step, ...], chosen: Sequence[str]) -> tuple[Step, ...]:
        """Return the steps of the backward that compute the gradients of a place."""
        names = {step.name for step in steps}
        return tuple(
            step
            for step in self.setting.backward.steps
            if step.name in chosen
            or (step.echo is not None and step.echo.kind == "gradient of" and names & set(step.echo.names))
        )

    def is_in_backward(self, gradient: Tensor) -> bool:
        """Whether the backward has this gradient, in any layout."""
        if not gradient.numel():
            return True
        mark = mark_of(gradient)
        alike = self.marks.get(gradient.numel(), ())
        same_shape = [(other, value) for other, value in alike if value.shape == gradient.shape]
        return mark.is_zero or any(
            mark.is_near(other) and (value.shape != gradient.shape or distance(value, gradient, 0.0) <= NEAR)
            for other, value in same_shape or alike
        )


# ---- Values


@dataclass(frozen=True, slots=True)
class Mark:
    """Three numbers of a tensor that do not depend on the order of its elements: equal marks mean equal values."""

    sums: tuple[float, float, float]

    @property
    def is_zero(self) -> bool:
        return self.sums[1] < 1e-300

    def is_near(self, other: Mark) -> bool:
        """Whether two marks are those of one tensor, up to rounding."""
        size = max(self.sums[1], other.sums[1])
        if abs(self.sums[1] - other.sums[1]) > NEAR * size:
            return False
        return all(
            abs(mine - its) <= 1e-7 * scale
            for mine, its, scale in (
                (self.sums[0], other.sums[0], size**0.5 + abs(self.sums[0])),
                (self.sums[2], other.sums[2], size**1.5),
            )
        )


def mark_of(value: Tensor) -> Mark:
    """Return the Mark of a tensor."""
    parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    flat = parts.double()
    return Mark((float(flat.sum()), float(flat.square().sum()), float(flat.pow(3).sum())))


def dense(value: Tensor) -> Tensor:
    """Return a tensor as a dense one."""
    return value if value.layout is torch.strided else value.to_dense()


def run_backward(setting: Setting) -> dict[str, Any]:
    """Return every value of the backward by its name, tangents and saved values too."""
    with torch.no_grad():
        return DualRun(setting.backward).values(setting.backward_inputs)


def forward_values(setting: Setting) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return every value of the forward by its name, and the generator's state before each step that draws."""
    torch.manual_seed(setting.chance)
    run = DualRun(setting.forward)
    return run.values(setting.inputs), run.states_seen


def error_of(gradient: Tensor | None, right: Tensor | None) -> float:
    """Return the relative difference of a gradient from the right one; None is a gradient of zeros."""
    if gradient is None or right is None:
        other = right if gradient is None else gradient
        return 0.0 if other is None or not bool((other != 0).any()) else 1.0
    return distance(gradient, right, 0.0)


def names_in(step: Step) -> list[str]:
    """Return the names of the values that a step takes."""
    return list(dict.fromkeys(name for value in (step.args, *(v for _, v in step.kwargs)) for name in refs(value)))


def distance(gradient: Tensor, expected: Tensor, largest: float) -> float:
    """Return the difference of two gradients relative to their size, or to a small part of the largest of all."""
    if not gradient.numel():
        return 0.0
    size = max(float(expected.abs().max()), float(gradient.abs().max()), 1e-6 * largest, 1e-300)
    return float((gradient - expected).abs().max()) / size
