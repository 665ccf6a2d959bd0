"""Where a backward is not the derivative of its forward: the first operators whose gradients are wrong.

Autograd of the captured forward, in float64, has the right gradient of every value, and each step's share of it. The
values of the backward are compared with these. What may be wrong is tried in this order, nearest to the results first:

- a call of a custom autograd.Function for which the backward, by its echoes, computes other gradients than the right
  ones, or the last steps of the call, if the others explain the rest;
- a step for which the backward, by its echoes, computes none of the right shares, from values that are right;
- an input whose right gradient the backward has, and for which it returns another;
- a step whose result has a right gradient in the backward and whose share is nowhere in it, and a value whose shares it
  has and adds up wrongly;
- several steps, before whose results no gradient is right, as those of a custom autograd.Function whose backward
  computes their gradients at once.

What the backward returned there is taken for given; if then more gradients are right, this is a wrong place. What
remains is searched in the same way, so several wrong places are found one after the other.

Words of this file. A *place* is a WrongPlace: some steps of the forward. The *share* of a step is its part of the
gradient of a value that it takes; the gradient of the value is the sum of the shares of all steps that take it. An
*echo* is what a capture notes of a step of the backward: the forward's steps whose gradient it computes. Parameters and
locals with these names mean the same in every function:

- `right`: the right gradient of each value of the forward, by the value's name, as autograd computes it;
- `matched`: the names of the values of the forward whose right gradient is a value of the backward;
- `given`: the names of the steps of places that were found before: what the backward returned there is taken for right;
- `wrong`: the input ports whose returned gradient is wrong.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from backprint.derive.duals import DualRun, may_have_tangent, unpacked
from backprint.derive.echoes import Group, groups_that_go_wrong, names_in
from backprint.derive.marks import NEAR, Marked, distance, error_of, mark_of
from backprint.derive.setting import (
    Setting,
    backward_product,
    drawn_like,
    forward_product,
    gap_of,
    inner_sum,
    is_inexact,
    own_source,
    symmetric_as,
)
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Step, refs
from backprint.values.tree import plain_leaves

MOST_PLACES = 64
"""How many wrong places are looked for."""

MOST_CANDIDATES = 5
"""How many values of the backward are tried as the gradient of one input of a wrong place."""

MOST_INPUTS = 6
"""The most inputs of a wrong place whose gradients are not known to be right."""

MOST_TRIED = 24
"""How many combinations of candidates for the gradients of the inputs are tried for one place."""

MOST_COMBINED = 600
"""How many combinations of candidates are sorted, to choose those that are tried."""

MOST_KNOWN = 8
"""For how many lists of wrong places the right gradients are cached."""

MOST_STEPS = 12
"""The most steps of a wrong place."""


MOST_BETWEEN = 3
"""How many steps of the backward may lie between the gradient of a result and that of an input."""


NOTHING, RIGHT, RETURNED = "", "right ", "returned "
"""Names of candidates for a gradient that are no names of values of the backward: no gradient, or, before the name of a
value of the forward, its right gradient, and the one that the backward returned for it."""


DETACH = "aten.detach.default"

REARRANGING = (
    "aten.t.default",
    "aten.transpose.int",
    "aten.permute.default",
    "aten.view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
)
"""Steps that leave every element as it is: the gradient of the result is the gradient of the argument, rearranged
alike."""


@dataclass(frozen=True, slots=True)
class WrongPlace:
    """Forward steps whose gradients are wrong. `inputs` are the values that they take from other steps, `returned` what
    the backward has for the gradient of each by these steps (None for no gradient), `errors` how far each is from the
    right one, relative to its size. `backward_steps` are the backward's steps that computed `returned`."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    returned: tuple[Tensor | None, ...]
    errors: tuple[float, ...]
    backward_steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Located:
    """The wrong places, those nearest to the results first, and in `wrong` the ports whose returned gradients are
    wrong. If `complete`, every other gradient is right. `refuted` are operators whose gradient is right and whose
    formula for tangents is wrong, `undecided` are operators of which either the gradient or this formula is wrong."""

    places: tuple[WrongPlace, ...]
    complete: bool
    wrong: tuple[str, ...]
    refuted: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()


def locate(setting: Setting, functions: Sequence[Collection[str]] = (), cut: Collection[str] = ()) -> Located:
    """Return the places where the backward of a Setting is not the derivative of its forward.

    `functions` has the lines of each custom autograd.Function of the program, as `file.py:8`, and `cut` the values of
    the forward through which no gradient passes, because the program detached them or computed them under `no_grad`.
    """
    search = Search(setting, functions, cut)
    places: list[WrongPlace] = []
    wrong = search.wrong_ports(places)
    first_wrong = wrong
    # Calls of `detach` first: the values of the backward do not show them (see `detached`).
    cuts = search.detached() if wrong else []
    if cuts and len(still := search.wrong_ports(cuts)) < len(wrong):
        places, wrong = cuts, still
    while wrong and len(places) < MOST_PLACES:
        place = search.next_place(places, wrong)
        if place is None:
            break
        wrong = search.wrong_ports([*places, place])
        places.append(search.with_way(place, places))
    return Located(tuple(places), not wrong, tuple(first_wrong))


def differing_from_autograd(setting: Setting, limit: float) -> dict[str, float]:
    """Return the ports whose gradients are farther than `limit` from autograd's of the forward, the farthest first,
    with the relative difference; none where autograd's gradients do not have the product ⟨g, J·v⟩ of the tangents
    either."""
    search = Search(setting)
    right = search.right_gradients([])
    expected = {
        name: right.get(search.local_of_port[name], torch.zeros_like(gradient))
        for name, gradient in setting.gradients.items()
    }
    if gap_of(forward_product(setting)[:2], backward_product(setting, expected)) >= limit:
        return {}
    errors = {name: error_of(gradient, expected[name]) for name, gradient in setting.gradients.items()}
    farthest = sorted(errors, key=errors.__getitem__, reverse=True)
    return {name: errors[name] for name in farthest if errors[name] > limit}


def locate_formulas(setting: Setting) -> Located:
    """Return the steps whose own gradient, as autograd has it, is not the derivative of the step.

    Each is tried alone, at its values in the forward: with random tangents of its arguments and its results, the
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
            gap, _ = _formula_gap(search, step, inputs, right)
            if gap <= FORMULA_GAP:
                continue
            by_differences, accuracy = _formula_gap(search, step, inputs, right, refuted=(step.target,))
        except (BackprintError, RuntimeError):
            undecided.add(step.target)
            continue
        # Differences agree with the gradient, so the formula for the tangent is wrong.
        if by_differences <= gap / FARTHER:
            refuted.add(step.target)
            continue
        # Differences are no farther from the gradient than they are from each other: they decide nothing.
        if by_differences <= FARTHER * accuracy or not math.isfinite(by_differences):
            undecided.add(step.target)
            continue
        steps = search.with_parts(step)
        returned = search.contributions(steps, inputs, right)
        places.append(
            WrongPlace(
                steps,
                inputs=tuple(inputs),
                returned=tuple(returned.get(name) for name in inputs),
                errors=tuple(1.0 for _ in inputs),  # how wrong each is was not measured: all count as wrong
                backward_steps=search.backward_steps(steps, chosen=()),
            )
        )
    return Located(tuple(places), bool(places), (), frozenset(refuted), frozenset(undecided))


FORMULA_GAP = 1e-11
"""The least gap of one step alone that counts: some operators are less exact than float64."""

FARTHER = 10.0
"""How many times larger than its error a gap must be, to be no error of the comparison."""


def _formula_gap(
    search: Search,
    step: Step,
    inputs: Sequence[str],
    right: Mapping[str, Tensor],
    refuted: Collection[str] = (),
) -> tuple[float, float]:
    """Return the gap between ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ for one step alone, relative to the sizes of the terms, and how
    accurate the tangents J·v are. Gradients g of the results have the strides of those in `right`. Tangents of
    operators in `refuted` come from differences instead of formulas."""
    source = own_source(seed=0)
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
        fed = {name: leaf * 1 for name, leaf in leaves.items()}  # a step may write in place, which no leaf allows
    results = [
        leaf
        for leaf in plain_leaves(run.continued([step], {**search.forward_values, **fed})[step.name])
        if isinstance(leaf, Tensor)
    ]
    names = _result_names(search, step, len(results))
    cotangents = [
        _laid_out_as(drawn_like(result, source), right.get(name)) if is_inexact(result) else None
        for name, result in zip(names, results, strict=True)
    ]
    active = [(r, c) for r, c in zip(results, cotangents, strict=True) if c is not None and r.requires_grad]
    if not active:
        return 0.0, 0.0
    gradients = torch.autograd.grad(
        [r for r, _ in active], list(leaves.values()), [c for _, c in active], allow_unused=True
    )
    forward_side = inner_sum(
        (cotangent, tangent)
        for cotangent, tangent, result in zip(cotangents, along, results, strict=True)
        if cotangent is not None and tangent is not None and result.requires_grad
    )
    backward_side = inner_sum(
        (gradient, direction) for gradient, direction in zip(gradients, tangents, strict=True) if gradient is not None
    )
    return gap_of(forward_side, backward_side), run.accuracy


def _result_names(search: Search, step: Step, count: int) -> list[str]:
    """Return the names of a step's `count` results: its own name for one tensor, else for each result the name of the
    `operator.getitem` step that takes it, or ''."""
    if isinstance(search.forward_values[step.name], Tensor):
        return [step.name]
    taken = {part.args[1]: part.name for part in search.parts(step)}
    return [taken.get(place, "") for place in range(count)]


def _laid_out_as(value: Tensor, other: Tensor | None) -> Tensor:
    """Return the values of a tensor with the strides of another tensor of its shape: the backward of an operator may be
    wrong for gradients with some strides only."""
    # Elements of an expanded tensor share memory, so it cannot be written.
    if other is None or other.shape != value.shape or 0 in (size for size in other.stride()):
        return value
    return torch.empty_strided(value.shape, other.stride(), dtype=value.dtype, device=value.device).copy_(value)


class _FunctionCall(NamedTuple):
    """The steps of one call of a custom autograd.Function, which has this place in `Search.functions`."""

    function: int
    steps: list[Step]


class Explanation(NamedTuple):
    """What the best of some proposed wrong places explains.

    `progress` has how many more ports, and how many more values of the forward, have right gradients if what the
    backward returned at `place` is taken for given. `is_right` says that at one of the proposed places the backward has
    the right gradients.
    """

    progress: tuple[int, int] = (0, 0)
    place: WrongPlace | None = None
    is_right: bool = False


class Search:
    """The search of one Setting: the values of its backward, and the right gradients of its forward's values.

    `depending` has the values of the forward that depend on an input with a gradient, `reaching` those that a result
    with a tangent depends on, `consumers` the steps that take a value, `marked` the values of the backward to look a
    gradient up in. Ports have the program's names; `local_of_port` has their names among the graph's values.
    """

    def __init__(self, setting: Setting, functions: Sequence[Collection[str]] = (), cut: Collection[str] = ()) -> None:
        self.setting, self.graph, self.functions, self.cut = setting, setting.forward, functions, cut
        self.step_of = {step.name: step for step in self.graph.steps if not step.is_guard}
        self.index = {step.name: index for index, step in enumerate(self.graph.steps)}
        self.consumers: dict[str, list[Step]] = {}
        for step in self.step_of.values():
            for name in names_in(step):
                self.consumers.setdefault(name, []).append(step)
        self.depending = self.depending_values()
        self.with_tangent = self.values_with_tangent()
        self.reaching = self.reaching_values()
        self.backward_values = run_backward(setting)
        self.backward_step_of = {step.name: step for step in setting.backward.steps}
        inexact = {n: v for n, v in self.backward_values.items() if may_have_tangent(v) and is_inexact(v) and v.numel()}
        self.marked = Marked(inexact.values(), inexact)
        self.forward_values, self.states = forward_values(setting)
        sizes = [float(gradient.abs().max()) for gradient in setting.gradients.values() if gradient.numel()]
        self.largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
        """The size of the largest element of a gradient that the backward returned."""
        self.without_place: list[str] = []
        """Values of the backward that are wrong, and that no echo connects with a step of the forward."""
        # Caches. `known_right`: the right gradients for each list of given places, under the ids of these. And for the
        # last mapping of right gradients that was asked about (`shares_for`, `all_right_for`): the right shares of each
        # step, and all right gradients and shares together.
        self.known_right: dict[tuple[int, ...], tuple[list[WrongPlace], dict[str, Tensor]]] = {}
        self.shares_for: Mapping[str, Tensor] | None = None
        self.known_shares: dict[str, dict[str, Tensor]] = {}
        self.all_right_for: Mapping[str, Tensor] | None = None
        self.all_right = Marked(())
        self.local_of_port = {port.name: port.local for port in self.graph.inputs}
        # For a candidate RETURNED + value of the forward: the value of the backward that is returned as its gradient.
        self.returned_by = {
            RETURNED + self.local_of_port[port.name]: name
            for port, result in zip(setting.backward.outputs, setting.backward.results, strict=True)
            for name in refs(result)
            if port.name in self.local_of_port
        }

    def depending_values(self) -> set[str]:
        """Return the values that depend on an input with a gradient."""
        depending = {port.local for port in self.graph.inputs if port.name in self.setting.gradients}
        for step in self.step_of.values():
            if depending & set(names_in(step)):
                depending.add(step.name)
        return depending

    def values_with_tangent(self) -> set[str]:
        """Return the values that the forward returns as results with a tangent."""
        results = zip(self.graph.outputs, self.graph.results, strict=True)
        return {
            name
            for port, result in results
            if port.role in ("output", "mutation") and port.name in self.setting.tangents
            for name in refs(result)
        }

    def reaching_values(self) -> set[str]:
        """Return the values that a result with a tangent depends on."""
        reaching = self.values_with_tangent()
        for step in reversed(self.step_of.values()):
            if step.name in reaching:
                reaching |= set(names_in(step))
        return reaching

    # ---- The right gradients

    def right_gradients(self, places: Sequence[WrongPlace]) -> dict[str, Tensor]:
        """Return the right gradient of every value of the forward, if what the backward returned at some places is
        taken for given."""
        # An id is a key only while its object lives, so the cache has the places too.
        key = tuple(map(id, places))
        if key not in self.known_right:
            while len(self.known_right) >= MOST_KNOWN:
                self.known_right.pop(next(iter(self.known_right)))
            self.known_right[key] = list(places), self.compute_right_gradients(places)
        return self.known_right[key][1]

    def compute_right_gradients(self, places: Sequence[WrongPlace]) -> dict[str, Tensor]:
        """Run the forward under autograd, and return the gradient of each of its values. The steps of `places` are
        constant: what the backward returned for them enters instead, as if it were right."""
        constant = {step.name for place in places for step in place.steps}
        leaves = {
            name: value.clone().requires_grad_() if name in self.setting.gradients else value
            for name, value in self.setting.inputs.items()
        }
        torch.manual_seed(self.setting.chance)
        with torch.enable_grad():
            # Not the leaves themselves: a graph may write into its inputs, and autograd refuses a write into a leaf.
            fed = {name: value * 1 if name in self.setting.gradients else value for name, value in leaves.items()}
        env = DualRun(self.graph, constant, recorded=self.depending).values(fed)
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
        """Return the values that autograd starts from, and their gradients: the results with their tangents, and the
        inputs of the given places with what the backward returned for them. `env` has the values of the forward."""
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
        """Return the ports with wrong gradients, if what the backward returned at some places is taken for given."""
        return self.wrong_among(self.right_gradients(places))

    def error_of(self, gradient: Tensor | None, right: Tensor | None) -> float:
        """Return the relative difference of a gradient from the right one."""
        return error_of(gradient, right, self.largest)

    def wrong_among(self, right: Mapping[str, Tensor]) -> list[str]:
        """Return the ports whose returned gradient is not the one in `right`."""
        wrong = []
        for name, gradient in self.setting.gradients.items():
            expected = right.get(self.local_of_port[name])
            expected = torch.zeros_like(gradient) if expected is None else expected
            if distance(gradient, expected, self.largest) > NEAR:
                wrong.append(name)
        return wrong

    # ---- The next wrong place

    def detached(self) -> list[WrongPlace]:
        """Return the calls of `detach` as wrong places that return no gradient, except those in lines of a custom
        autograd.Function, whose forward may detach what its backward handles.

        The argument and the result of `detach` have the same right gradient. So if the backward has this gradient, its
        values do not show that it passes none on.
        """
        inside = set[str]().union(*self.functions)
        right = self.right_gradients([])
        places = []
        for step in self.step_of.values():
            line = "" if step.source is None else step.source.at
            if step.target == DETACH and step.name in self.reaching and line not in inside:
                taken = names_in(step)[0]
                if taken in right and not mark_of(right[taken]).is_zero:
                    places.append(
                        WrongPlace((step,), inputs=(taken,), returned=(None,), errors=(1.0,), backward_steps=())
                    )
        return places

    def next_place(self, places: Sequence[WrongPlace], wrong: Sequence[str]) -> WrongPlace | None:
        """Return the wrong place nearest to the results; None if no place explains a wrong gradient."""
        right = self.right_gradients(places)
        matched = {name for name, gradient in right.items() if self.is_in_backward(gradient)}
        matched -= {self.local_of_port[name] for name in wrong}
        given = {step.name for place in places for step in place.steps}
        for steps in self.function_calls(given):
            # A Function through which no gradient should pass, and one does.
            if self.is_flat(steps, right, matched):
                best = self.best_of(self.proposals(steps, right, set()), places, matched, wrong)
                if best.place is not None:
                    return best.place
        # A whole call of a Function, or its last steps.
        for proposals in self.by_function(right, matched, given):
            best = self.best_of(proposals, places, matched, wrong)
            if best.place is not None:
                return self.narrowed(best.place, right)
        ends, inside = self.ways(matched, wrong, given)
        # Single steps, by echoes, by returned gradients, and by values. One that explains all wrong ports is returned
        # at once.
        firsts: list[WrongPlace | None] = []
        for suspects in (
            self.by_echo(right, matched, given),
            self.returned_wrongly(right, wrong, given),
            self.by_value(right, matched, inside, wrong, given),
        ):
            first: WrongPlace | None = None
            for proposals in suspects:
                best = self.best_of(proposals, places, matched, wrong)
                if best.place is not None and best.progress[0] == len(wrong):
                    return best.place
                first = first or best.place
            firsts.append(first)
            # It explains a part of what is wrong, so there are several places. A place by values alone, the third kind
            # of suspect, is less sure than several steps at once: it is returned only if these explain nothing.
            if first is not None and len(firsts) < 3:
                return first
        # Several steps whose gradients the backward computes at once.
        for last in ends:
            for steps in self.regions(last, inside):
                best = self.best_of(self.proposals(steps, right, matched), places, matched, wrong)
                if best.place is not None:
                    return best.place
                if best.is_right:  # the gradients before these steps are right, so the wrong ones come by others
                    break
        for steps in self.function_calls(given):
            best = self.best_of(self.proposals(steps, right, matched), places, matched, wrong)
            if best.place is not None:
                return best.place
        return firsts[-1]

    def is_flat(self, steps: tuple[Step, ...], right: Mapping[str, Tensor], matched: set[str]) -> bool:
        """Whether the right gradients by these steps of one Function are 0, as by `round`, and the backward has the
        right gradients of their results.

        If a Function returns another gradient there, all before it is wrong too, and it is the place: gradients of 0
        are not looked for among the values of a backward.
        """
        own = {step.name for step in steps}
        results = [n for n in own if any(step.name not in own for step in self.consumers.get(n, ())) and n in right]
        if not results or any(n not in matched or mark_of(right[n]).is_zero for n in results):
            return False
        inputs = self.inputs_of(steps)
        if not all(map(self.is_tensor, inputs)):
            return False
        shares = self.contributions(steps, inputs, right)
        return all(mark_of(share).is_zero for share in shares.values())

    # ---- What may be a wrong place with nothing before it

    def by_function(
        self, right: Mapping[str, Tensor], matched: set[str], given: set[str]
    ) -> Iterator[Iterator[WrongPlace]]:
        """Yield the calls of custom autograd.Functions of whose results the backward has the right gradients, and for
        which it computes other gradients than the right ones, the last calls first."""
        for steps in self.function_calls(given):
            results = {step.name for step in steps if step.name in right and self.is_used_elsewhere(step, steps)}
            inputs = self.inputs_of(steps)
            # A call whose results have wrong gradients already is not the first place to look at.
            if not results or not results <= matched or not all(map(self.is_tensor, inputs)):
                continue
            shares = self.contributions(steps, inputs, right).values()
            ends = self.ends_of_steps(self.backward_of_call(steps))
            ends += [name for result in results for name in self.marked.names_like(right[result])]
            computed = Marked(self.backward_values[name] for name in ends)
            if not all(computed.has(share) for share in shares):
                wrong = [n for n in ends if not Marked(shares).has(self.backward_values[n])]
                group = Group(names=(), is_sum=False, ends=tuple(wrong), all_ends=tuple(ends))
                yield self.proposals(steps, right, matched, group)

    def narrowed(self, call: WrongPlace, right: Mapping[str, Tensor]) -> WrongPlace:
        """Return the last steps of `call`, a wrong place that is a whole call of a custom autograd.Function, as a wrong
        place: as few steps as explain what the backward returned for the call if the call's other steps have right
        gradients; `call` itself if no such steps do. `right` has the right gradient of each value of the forward."""
        of_call = {step.name for step in self.backward_of_call(call.steps)}
        # What the backward computes for the call: candidates for the gradients between its first and its last steps.
        values: dict[str, Tensor] = {
            name: value
            for name, value in self.backward_values.items()
            if name in of_call and may_have_tangent(value) and is_inexact(value)
        }
        # The last step alone, then one more each time. The call's first steps must turn the gradients before the last
        # steps into the gradients that the backward returned for the call.
        for count in range(1, len(call.steps)):
            first, last = call.steps[:-count], call.steps[-count:]
            inputs = self.inputs_of(last)
            before = [name for name in inputs if any(step.name == name for step in first)]
            if not before or not all(map(self.is_tensor, inputs)):
                continue
            shares = self.contributions(last, inputs, right)
            shapes = [self.forward_values[name].shape for name in before]
            alike = [[value for value in values.values() if value.shape == shape] for shape in shapes]
            for computed in itertools.islice(itertools.product(*alike), MOST_TRIED):
                returned = dict(shares) | dict(zip(before, computed, strict=True))
                errors = [self.error_of(returned.get(name), shares.get(name)) for name in inputs]
                if max(errors) > NEAR and self.passes_on(first, returned, call):
                    names = [name for name, value in values.items() if any(value is other for other in computed)]
                    gradients = tuple(returned.get(name) for name in inputs)
                    # No forward steps, so no echo counts: the backward of a Function is one autograd node, and its
                    # echoes name one step for the whole call. They do not tell which steps belong to `last`.
                    backward_steps = self.backward_steps((), chosen=names)
                    return WrongPlace(last, tuple(inputs), gradients, tuple(errors), backward_steps)
        return call

    def passes_on(self, steps: tuple[Step, ...], gradients: Mapping[str, Tensor], call: WrongPlace) -> bool:
        """Whether `steps`, the first ones of a call, turn `gradients` of the values after them into what the backward
        returned for the call."""
        passed = self.contributions(steps, call.inputs, gradients)
        for name, returned in zip(call.inputs, call.returned, strict=True):
            # The call's last steps may take the value too; their share is in `gradients` already.
            shares = [share for share in (passed.get(name), gradients.get(name)) if share is not None]
            if self.error_of(sum(shares) if shares else None, returned) > NEAR:
                return False
        return True

    def is_used_elsewhere(self, step: Step, steps: Sequence[Step]) -> bool:
        """Whether a step that is none of `steps` takes the result of `step`, or the forward returns this result."""
        takers = self.consumers.get(step.name, ())
        return step.name in self.with_tangent or any(taker not in steps for taker in takers)

    def is_tensor(self, name: str) -> bool:
        """Whether a value is one tensor, not several results of one step."""
        return isinstance(self.forward_values[name], Tensor)

    def backward_of_call(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps of the backward that compute the gradients of a call, by their echoes."""
        own = {step.name for step in steps}
        echoing = (step for step in self.setting.backward.steps if step.echo is not None and own & set(step.echo.names))
        return [step for step in echoing if step.echo is not None and step.echo.kind == "gradient of"]

    def ends_of_steps(self, steps: Sequence[Step]) -> list[str]:
        """Return the results of these steps of the backward that other steps take, or that the backward returns."""
        own = {step.name for step in steps}
        taken = {name for result in self.setting.backward.results for name in refs(result)}
        for step in self.setting.backward.steps:
            if step.name not in own:
                taken.update(names_in(step))
        values = {name: value for name, value in self.backward_values.items() if name in own & taken}
        return [name for name, value in values.items() if may_have_tangent(value) and is_inexact(value)]

    def by_echo(
        self, right: Mapping[str, Tensor], matched: set[str], given: set[str]
    ) -> Iterator[Iterator[WrongPlace]]:
        """Yield, as wrong places, the steps for which the backward goes wrong first, by its echoes (`echoes`), in the
        order of the backward."""
        self.without_place = []

        def expected(name: str) -> dict[str, Tensor] | None:
            """Return the right shares of the step of this name; None if they are not known."""
            step = self.whole(name)
            return None if step is None or not self.takes_tensors(step) else self.shares(step, right)

        def has_gradient(name: str) -> bool:
            # An echo may also name an input, which no step computes.
            return (name in self.reaching and name in self.depending) or name not in self.step_of

        for group in groups_that_go_wrong(
            self.setting.backward,
            self.backward_values,
            right,
            given,
            expected,
            lambda value: self.is_right_somewhere(value, right),
            has_gradient,
        ):
            if not group.names:
                self.without_place += group.ends
                continue
            whole = [step for name in group.names if (step := self.whole(name)) is not None]
            if group.is_sum:
                name, ends = group.names[0], [self.backward_values[end] for end in group.ends]
                takers = self.takers_of(name)
                # The backward may have the right sum, under an echo that does not name the sum.
                has_right_sum = name in matched and all(
                    not mark_of(end).is_zero and self.is_right_somewhere(end, right) for end in ends
                )
                known = all(step.name not in given and self.is_known(step, right, matched) for step in takers)
                if known and not has_right_sum:
                    yield self.sums(name, takers, right, ends)
            elif whole and all(step.name not in given and self.is_known(step, right, matched) for step in whole):
                yield self.proposals(self.with_parts(*whole), right, matched, group)

    def is_right_somewhere(self, value: Tensor, right: Mapping[str, Tensor]) -> bool:
        """Whether a value is the right gradient of some value of the forward, or a right share of one."""
        if self.all_right_for is not right:
            self.all_right_for = right
            shares = [self.shares(step, right).values() for step in self.step_of.values() if step.name in self.reaching]
            self.all_right = Marked(itertools.chain(right.values(), *shares))
        return self.all_right.has(value)

    def is_known(self, step: Step, right: Mapping[str, Tensor], matched: set[str]) -> bool:
        """Whether the values of the backward have the right gradient of each result of a step."""
        return {part.name for part in self.parts(step)} & right.keys() <= matched

    def whole(self, name: str) -> Step | None:
        """Return the step of this name; if it takes one of several results of another step, that other step."""
        step = self.step_of.get(name)
        while step is not None and step.target == "operator.getitem":
            step = self.step_of.get(names_in(step)[0])
        return step

    def shares(self, step: Step, right: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the right share of a step in the gradient of each value that it takes, by the value's name."""
        if self.shares_for is not right:
            self.shares_for, self.known_shares = right, {}
        if step.name not in self.known_shares:
            inputs = [name for name in names_in(step) if self.may_have_gradient(name)]
            known = inputs and self.takes_tensors(step)
            self.known_shares[step.name] = self.contributions(self.with_parts(step), inputs, right) if known else {}
        return self.known_shares[step.name]

    def takes_tensors(self, step: Step) -> bool:
        """Whether each value that a step takes and that may have a gradient is one tensor, not the several results of
        another step."""
        return all(self.is_tensor(name) for name in names_in(step) if self.may_have_gradient(name))

    def returned_wrongly(
        self, right: Mapping[str, Tensor], wrong: Sequence[str], given: set[str]
    ) -> Iterator[Iterator[WrongPlace]]:
        """Yield the steps that take an input whose right gradient the backward has, though it returns another."""
        for name in (self.local_of_port[port] for port in wrong):
            takers = self.takers_of(name)
            if name not in right or mark_of(right[name]).is_zero or any(step.name in given for step in takers):
                continue
            if self.is_in_backward(right[name]):
                yield self.sums(name, takers, right, self.wrong_sums(name, right, []))

    def by_value(
        self,
        right: Mapping[str, Tensor],
        matched: set[str],
        inside: set[str],
        wrong: Sequence[str],
        given: set[str],
    ) -> Iterator[Iterator[WrongPlace]]:
        """Yield the places that may be wrong by the values of the backward alone, the nearest to the results first.

        A step may be wrong if the backward has the right gradient of its result, and does not have the right share of
        the step in the gradient of a value that it takes. A sum may be wrong if the gradient of a value is, though the
        backward has the right share of each step that takes the value. `inside` are the values without a right gradient
        on the ways from wrong ports to the results (`ways`).
        """

        def is_carried(step: Step, name: str) -> bool:
            """Whether the backward has the right share of a step in the gradient of the value `name`, or there is
            none."""
            share = self.shares(step, right).get(name)
            return share is None or self.is_in_backward(share)

        ports = [self.local_of_port[name] for name in wrong]
        for name in [*sorted(inside - set(ports), key=lambda name: -self.index.get(name, -1)), *ports]:
            takers = self.takers_of(name)
            if name not in right or any(step.name in given for step in takers):
                continue
            known = [step for step in takers if self.is_known(step, right, matched)]
            for step in sorted(known, key=lambda step: -self.index[step.name]):
                if not is_carried(step, name):
                    yield self.proposals(self.with_parts(step), right, matched)
            if takers and len(known) == len(takers) and all(is_carried(step, name) for step in takers):
                shares = [self.shares(step, right).get(name) for step in takers]
                values = self.wrong_sums(name, right, [share for share in shares if share is not None])
                yield self.sums(name, takers, right, values)

    def sums(
        self, name: str, takers: Sequence[Step], right: Mapping[str, Tensor], values: Sequence[Tensor]
    ) -> Iterator[WrongPlace]:
        """Yield `takers`, the steps that take the value `name`, as a wrong place, once for each of `values`: the
        backward may have this one for the sum of their shares, and it is another tensor than the right sum."""
        others = [n for step in takers for n in names_in(step) if n != name and self.may_have_gradient(n)]
        others = [n for n in dict.fromkeys(others) if n not in {step.name for step in takers}]
        if name not in right or not all(map(self.is_tensor, others)):
            return
        steps = self.with_parts(*takers)
        theirs = self.contributions(steps, others, right)
        for value in values:
            if value.shape != right[name].shape:
                continue
            error = self.error_of(value, right[name])
            if error > NEAR:
                computed = [n for n, v in self.backward_values.items() if v is value] or [RETURNED + name]
                # By an echo, all steps that compute the shares would be listed, which are right.
                backward_steps = self.backward_steps((), chosen=computed)
                yield WrongPlace(
                    steps,
                    inputs=(name, *others),
                    returned=(value, *(theirs.get(n) for n in others)),
                    errors=(error, *(0.0 for _ in others)),
                    backward_steps=backward_steps,
                )

    def wrong_sums(self, name: str, right: Mapping[str, Tensor], shares: Sequence[Tensor]) -> list[Tensor]:
        """Return the values of the backward that may stand for the gradient of a value.

        For an input, it is the returned gradient. Otherwise they are, in this order, sums of its gradients by their
        echoes, values of its shape that are computed from one of `shares`, the right ones, and these shares themselves.
        """
        returned = [self.setting.gradients[n] for n in self.setting.gradients if self.local_of_port[n] == name]
        if returned:
            return returned
        shape = right[name].shape
        tensors = {n: v for n, v in self.backward_values.items() if may_have_tangent(v) and is_inexact(v)}
        alike = {n: v for n, v in tensors.items() if v.shape == shape}
        carried = {n for n, v in alike.items() if any(distance(v, s, 0.0) <= NEAR for s in shares if s.shape == shape)}
        steps = [step for step in self.setting.backward.steps if step.name in alike]
        by_echo = [s for s in steps if s.echo and s.echo.kind == "sum of gradients of" and name in s.echo.names]
        from_share = [step for step in steps if carried & set(names_in(step))]
        from_share = [*(s for s in from_share if s.name not in carried), *(s for s in from_share if s.name in carried)]
        return [alike[n] for n in dict.fromkeys([*(s.name for s in (*by_echo, *reversed(from_share))), *carried])]

    def parts(self, step: Step) -> list[Step]:
        """Return the steps whose results are the tensors that a step makes: itself, or, if it has several results, the
        `operator.getitem` steps that take one."""
        if isinstance(self.forward_values[step.name], Tensor):
            return [step]
        return [taker for taker in self.consumers.get(step.name, ()) if taker.target == "operator.getitem"]

    def with_parts(self, *steps: Step) -> tuple[Step, ...]:
        """Return steps, with the steps that take one of the several results of one of them."""
        return tuple(dict.fromkeys(part for step in steps for part in (step, *self.parts(step))))

    def inputs_of(self, steps: Sequence[Step]) -> list[str]:
        """Return the values that these steps take from others and that may have a gradient, each once."""
        own = {step.name for step in steps}
        taken = dict.fromkeys(name for step in steps for name in names_in(step) if name not in own)
        return [name for name in taken if self.may_have_gradient(name)]

    def takers_of(self, name: str) -> list[Step]:
        """Return the steps that take a value, and on which a result with a tangent depends."""
        return [step for step in self.consumers.get(name, ()) if step.name in self.reaching]

    def function_calls(self, given: set[str]) -> Iterator[tuple[Step, ...]]:
        """Yield the steps of each call of a custom autograd.Function, the last calls first."""
        calls: list[_FunctionCall] = []
        last: Step | None = None
        for step in self.step_of.values():
            before, last = last, step
            line = "" if step.source is None else step.source.at
            number = next((number for number, lines in enumerate(self.functions) if line in lines), None)
            if number is None or step.name in given:
                continue
            # Steps of one Function without another step between them count as one call.
            if calls and calls[-1].function == number and calls[-1].steps[-1] is before:
                calls[-1].steps.append(step)
            else:
                calls.append(_FunctionCall(number, [step]))
        for call in reversed(calls):
            if any(step.name in self.reaching for step in call.steps):
                yield tuple(call.steps)

    def best_of(
        self,
        proposals: Iterator[WrongPlace],
        places: Sequence[WrongPlace],
        matched: set[str],
        wrong: Sequence[str],
    ) -> Explanation:
        """Return the Explanation by the proposal that explains most wrong gradients, beside the `places` found before;
        one without a place if none explains any. A proposal for which the backward has all right gradients ends the
        search."""
        best = Explanation()
        for place in itertools.islice(proposals, MOST_TRIED):
            if max(place.errors) <= NEAR:
                if None not in place.returned:
                    return Explanation(is_right=True)
                continue  # no gradient where the right one is 0: this is not wrong, and shows nothing
            progress = self.progress([*places, place], place, matched, wrong)
            if progress > best.progress:
                best = Explanation(progress, place)
            if progress[0] == len(wrong):
                break
        return best

    def progress(
        self, places: Sequence[WrongPlace], place: WrongPlace, matched: set[str], wrong: Sequence[str]
    ) -> tuple[int, int]:
        """Return how many more ports, and how many more values of the forward, have right gradients if what the
        backward returned at `places`, of which `place` is the last, is taken for given. What it returned at `place`
        itself does not count: it is then right by definition."""
        right = self.right_gradients(places)
        returned = [mark_of(gradient) for gradient in place.returned if gradient is not None]
        newly = 0
        for name, gradient in right.items():
            if name not in matched and gradient.numel() and self.is_in_backward(gradient):
                mark = mark_of(gradient)
                newly += not mark.is_zero and not any(mark.is_near(other) for other in returned)
        return len(wrong) - len(self.wrong_among(right)), newly

    def ways(self, matched: set[str], wrong: Sequence[str], given: set[str]) -> tuple[list[Step], set[str]]:
        """Return the steps of `matched` on the ways from wrong ports to the results of the forward, those nearest to
        the results first, and the values on these ways that are not matched, whose gradients are wrong or not found."""
        queue = [self.local_of_port[name] for name in wrong]
        on_ways = set(queue)
        while queue:
            for step in self.consumers.get(queue.pop(), ()):
                if step.name not in on_ways and step.name in self.reaching and step.name not in given:
                    on_ways.add(step.name)
                    queue.append(step.name)
        ends = [self.step_of[name] for name in on_ways & self.step_of.keys() & matched]
        return sorted(ends, key=lambda step: -self.index[step.name]), on_ways - matched

    def regions(self, last: Step, inside: set[str]) -> Iterator[tuple[Step, ...]]:
        """Yield the steps that a wrong place with `last` as its last step may have: `last` alone, then one more step
        before it each time. The added steps are in `inside`, the values without a right gradient (`ways`)."""
        region = [last]
        yield tuple(region)
        while len(region) < MOST_STEPS:
            names = {name for step in region for name in names_in(step)} & self.step_of.keys()
            before = [self.step_of[name] for name in names if self.step_of[name] not in region]
            # An `operator.getitem` step comes with the step of several results that it takes one of.
            several = [step for step in before if not isinstance(self.forward_values[step.name], Tensor)]
            before = several or [step for step in before if step.name in inside]
            if not before:
                return
            region.insert(0, max(before, key=lambda step: self.index[step.name]))
            yield tuple(sorted(region, key=lambda step: self.index[step.name]))

    def proposals(
        self, steps: tuple[Step, ...], right: Mapping[str, Tensor], matched: set[str], group: Group | None = None
    ) -> Iterator[WrongPlace]:
        """Yield these steps as a wrong place, once for each combination of values of the backward that may be the
        gradients of their inputs. If there is a `group`, the steps of the backward whose echo names these steps, its
        ends are the candidates; else any value of the right shape may be one."""
        inputs = self.inputs_of(steps)
        if not all(map(self.is_tensor, inputs)):
            return  # a place that takes several results of a step has that step in it
        if not inputs or (group is None and sum(name not in matched for name in inputs) > MOST_INPUTS):
            return
        contributions = self.contributions(steps, inputs, right)
        values = dict(self.backward_values)
        choices = []
        for name in inputs:
            if group is not None and name in contributions and name not in self.cut:
                choices.append(self.ends_of(group, name, steps, contributions[name], right, matched, values))
            elif name in matched and name in contributions:
                values[RIGHT + name] = contributions[name]
                choices.append([RIGHT + name])
            elif name in self.cut:
                choices.append([NOTHING])
            else:
                choices.append(self.candidates(name, steps, contributions.get(name), right, values))
        values[NOTHING] = None
        for chosen in self.most_right_first(choices, [contributions.get(name) for name in inputs], values):
            returned = tuple(values[name] for name in chosen)
            errors = tuple(
                self.error_of(gradient, contributions.get(name))
                for name, gradient in zip(inputs, returned, strict=True)
            )
            if group is None or max(errors) > NEAR:
                yield WrongPlace(steps, tuple(inputs), returned, errors, self.backward_steps(steps, chosen))

    def most_right_first(
        self, choices: Sequence[Sequence[str]], contributions: Sequence[Tensor | None], values: Mapping[str, Any]
    ) -> list[tuple[str, ...]]:
        """Return the combinations of candidates to try, first those with the most right gradients. `choices` has the
        names of the candidates for each input, `values` their values, `contributions` the right gradients."""
        combinations = itertools.islice(itertools.product(*choices), MOST_COMBINED)

        def count_of_wrong(chosen: tuple[str, ...]) -> int:
            """Return how many of the chosen candidates are not the right gradient."""
            return sum(
                self.error_of(values[name], right) > NEAR for name, right in zip(chosen, contributions, strict=True)
            )

        return sorted(combinations, key=count_of_wrong)[:MOST_TRIED]

    def may_have_gradient(self, name: str) -> bool:
        """Whether a value depends on an input with a gradient, and has a dtype that can have one; if it is several
        results of one step, whether one of them has."""
        return name in self.depending and any(
            is_inexact(leaf) for leaf in plain_leaves(self.forward_values[name]) if isinstance(leaf, Tensor)
        )

    def contributions(
        self, steps: tuple[Step, ...], inputs: Sequence[str], right: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the right gradients of `inputs` by these steps alone, by autograd from the gradients in `right` of the
        results of the steps; nothing for an input that autograd gives none."""
        own = {step.name for step in steps}
        env = dict(self.forward_values)
        leaves = {name: env[name].detach().clone().requires_grad_() for name in inputs}
        with torch.enable_grad():
            env |= {name: leaf * 1 for name, leaf in leaves.items()}  # a step may write in place, which no leaf allows
        DualRun(self.graph, recorded=own, states=self.states).continued(steps, env)
        # Gradients enter where other steps use a result. A result that only these steps use has none from outside.
        ends = [
            (env[name], right[name])
            for name in own & right.keys()
            if not all(step.name in own for step in self.consumers.get(name, ())) or not self.consumers.get(name)
        ]
        ends = [(value, gradient) for value, gradient in ends if value.requires_grad]
        if not ends or not leaves:
            return {}
        gradients = torch.autograd.grad(
            [value for value, _ in ends], list(leaves.values()), [g for _, g in ends], allow_unused=True
        )
        return {name: dense(g) for name, g in zip(leaves, gradients, strict=True) if g is not None}

    def ends_of(
        self,
        group: Group,
        name: str,
        steps: tuple[Step, ...],
        contribution: Tensor,
        right: Mapping[str, Tensor],
        matched: set[str],
        values: dict[str, Any],
    ) -> list[str]:
        """Return the names of the candidates for the gradient of the input `name` among the values that a group of
        steps of the backward computes: the right gradient, `contribution`, alone if it is among these, else the wrong
        ones of its size. The candidates are put into `values`, the wrong ones in the shape of the input."""
        values[RIGHT + name] = contribution
        like = set(self.marked.names_like(contribution))  # values of the whole backward that are the right gradient
        if mark_of(contribution).is_zero or like & set(group.all_ends):
            return [RIGHT + name]
        names = []
        for end in group.ends:
            value = self.backward_values[end]
            if value.numel() == contribution.numel():
                values[f"{end} as {name}"] = value.reshape(contribution.shape)
                names.append(f"{end} as {name}")
            # The gradient of a weight may be computed transposed, as by `linear`.
            if value.dim() > 1 and value.mT.shape == contribution.shape:
                values[f"{end} as {name} transposed"] = value.mT
                names.append(f"{end} as {name} transposed")
        rest = self.rest_of_port(name, {step.name for step in steps}, right)
        if rest is not None:
            values[RETURNED + name] = rest
            names.append(RETURNED + name)
        return [*names, *([RIGHT + name] if like or name in matched else []), NOTHING]

    def candidates(
        self,
        name: str,
        steps: tuple[Step, ...],
        contribution: Tensor | None,
        right: Mapping[str, Tensor],
        values: dict[str, Any],
    ) -> list[str]:
        """Return names of values of the backward that may be the gradient of the input `name` by these steps, the most
        likely first; '' stands for no gradient.

        They are values that the backward computes for these steps, by its echoes; values that it computes from the
        gradients of their results; others of the same shape. For an input of the whole forward, what the backward
        returned less the right shares of other steps comes first; it is put into `values`. `contribution` is the right
        gradient, if autograd gives one.
        """
        shape = tuple(self.forward_values[name].shape)
        echoes = {step.name for step in steps}
        alike = [
            step.name
            for step in self.setting.backward.steps
            if isinstance(value := self.backward_values.get(step.name), Tensor)
            and may_have_tangent(value)
            and tuple(value.shape) == shape
            and is_inexact(value)
        ]
        alike = [n for n, v in self.tangents() if tuple(v.shape) == shape] + alike
        own = [n for n in alike if self.echo_of(n) & echoes]
        taking = self.computed_from([right[n] for n in echoes & right.keys()])
        next_ = sorted((n for n in alike if n in taking and n not in own), key=lambda n: taking[n])
        ranked = [*(n for n in self.without_place if n in alike), *reversed(own[-MOST_CANDIDATES:])]
        ranked = list(dict.fromkeys([*ranked, *next_[:MOST_CANDIDATES]]))
        # Others fill up what is left, from the last one computed.
        ranked += [n for n in reversed(alike) if n not in ranked][: max(0, MOST_CANDIDATES - len(ranked))]
        if contribution is not None:
            same = [n for n in alike if distance(self.backward_values[n], contribution, 0.0) <= NEAR]
            ranked = [*same[:1], *(n for n in ranked if n not in same)]
        rest = self.rest_of_port(name, echoes, right)
        step = self.step_of.get(name)
        # The value may be a rearranged input, as `weight.t()`: then the same step rearranges what the input has left.
        if rest is None and step is not None and step.target in REARRANGING:
            port = names_in(step)[0]
            rest = self.rest_of_port(port, echoes | {name}, right)
            if rest is not None:
                rest = DualRun(self.graph).continued([step], {**self.forward_values, port: rest})[name]
                self.returned_by[RETURNED + name] = self.returned_by[RETURNED + port]
        if rest is not None:
            values[RETURNED + name] = rest
            ranked = [RETURNED + name, *ranked]
        return [*ranked, NOTHING]

    def rest_of_port(self, name: str, own: set[str], right: Mapping[str, Tensor]) -> Tensor | None:
        """Return what the backward returned for the input `name` of the forward, less the right shares of all steps
        that are not in `own`; None if the backward has not computed one of these shares, or `name` is no input."""
        gradient = next((g for port, g in self.setting.gradients.items() if self.local_of_port[port] == name), None)
        if gradient is None:
            return None
        for step in self.consumers.get(name, ()):
            if step.name not in own and step.name in self.reaching:
                share = self.shares(step, right).get(name)
                if share is not None and not self.is_in_backward(share):
                    return None
                gradient = gradient if share is None else gradient - share
        return gradient

    def tangents(self) -> list[tuple[str, Tensor]]:
        """Return the tangents that the backward takes, by their names in it."""
        ports = [port.local for port in self.setting.backward.by_role("tangent")]
        return [(name, value) for name in ports if may_have_tangent(value := self.backward_values.get(name))]

    def computed_from(self, gradients: Sequence[Tensor]) -> dict[str, int]:
        """Return the values of the backward that are one of these gradients, or are computed from one in at most
        MOST_BETWEEN steps, each with the number of steps between."""
        near = {name: 0 for gradient in gradients for name in self.marked.names_like(gradient)}
        for step in self.setting.backward.steps:
            taken = [near[name] for name in names_in(step) if name in near]
            if taken and step.name not in near and min(taken) < MOST_BETWEEN:
                near[step.name] = min(taken) + 1
        return near

    def echo_of(self, name: str) -> set[str]:
        """Return the names in the echo of a step of the backward; none if it has no echo."""
        step = self.backward_step_of.get(name)
        return set(step.echo.names) if step is not None and step.echo is not None else set()

    def backward_steps(self, steps: tuple[Step, ...], chosen: Sequence[str]) -> tuple[Step, ...]:
        """Return the steps of the backward that compute the gradients of the names in `chosen` (candidates, as of
        `candidates` and `ends_of`), or whose echo names one of `steps` of the forward; `()` for none of either."""
        names = {step.name for step in steps}
        # A candidate `mm_3 as x` is the value `mm_3` in the shape of the input x.
        chosen = [self.returned_by.get(name, name).partition(" as ")[0] for name in chosen]
        return tuple(
            step
            for step in self.setting.backward.steps
            if step.name in chosen
            or (step.echo is not None and step.echo.kind == "gradient of" and names & set(step.echo.names))
        )

    def with_way(self, place: WrongPlace, places: Sequence[WrongPlace]) -> WrongPlace:
        """Return a place with all steps of the backward between the last right gradients and what the backward returned
        at the place. So lines are named of a hook, or of a Function whose forward returns its input, which have no step
        in the forward, and no echo. `places` are those found before."""
        right = self.right_gradients(places)
        own = {step.name for step in place.backward_steps}
        waiting = list(own)
        while waiting:
            step = self.backward_step_of[waiting.pop()]
            for name in names_in(step):
                value = self.backward_values.get(name)
                if name in own or name not in self.backward_step_of or not may_have_tangent(value):
                    continue
                if is_inexact(value) and not self.is_right_somewhere(value, right):
                    own.add(name)
                    waiting.append(name)
        return replace(place, backward_steps=tuple(s for s in self.setting.backward.steps if s.name in own))

    def is_in_backward(self, gradient: Tensor) -> bool:
        """Whether the backward has this gradient, in any layout."""
        return not gradient.numel() or self.marked.has(gradient)


# ---- Values


def dense(value: Tensor) -> Tensor:
    """Return a tensor, made dense if it is sparse."""
    return value if value.layout is torch.strided else value.to_dense()


def run_backward(setting: Setting) -> dict[str, Any]:
    """Return every value of the backward by its name, tangents and saved values too."""
    with torch.no_grad():
        return DualRun(setting.backward).values(setting.backward_inputs)


def forward_values(setting: Setting) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return every value of the forward by its name, and, by the names of the steps that draw random numbers, the
    generator's state before each."""
    torch.manual_seed(setting.chance)
    run = DualRun(setting.forward)
    return run.values(setting.inputs), run.states_seen
