"""Where a backward is not the derivative of its forward: the calls of the forward whose gradients are wrong.

A capture notes for each step of a backward whose gradient it computes: its *echo*, `gradient of mm_3`. So the steps of
the backward fall into groups, one for each *call* of the forward: a call of a custom autograd.Function, all of whose
steps are one call, or an operator. A step without an echo, as a hook makes, is in the group of what takes its value.
Each group is asked alone. Autograd of the captured forward, in float64, has the right gradient of every value, and from
the gradients of what a call makes, the right *share* of the call in the gradient of each value that it takes. What a
group hands on, an *end*, must be one of these shares, or the sum of all shares of a value. The first group of the
backward that hands on something else, though nothing that it takes is wrong, is a wrong place. An example:

    forward    mul = x * 2;                  y = Reversed.apply(mul)      one call is mul, one is that of Reversed
    backward   mul_1 = tangent * -0.5        gradient of y                hands on mul_1, which is not 1 * tangent
               grad_x = mul_1 * 2            gradient of mul              is wrong, and takes what is wrong already

What the backward returned at a wrong place is then taken for given: right gradients are computed again with it, and the
next place is looked for, until all other gradients are right. A place that makes no further gradient right explains
nothing and is not named. Nothing is searched for: a value that no group hands on is no candidate for anything.

A *place* is a WrongPlace: some steps of the forward. Parameters and locals with these names mean the same in every
function:

- `right`: the right gradient of each value of the forward, by the value's name, as autograd computes it;
- `wrong`: the input ports whose returned gradient is wrong;
- `places`: the wrong places that were found before, where what the backward returned is taken for right.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from backprint.derive.duals import DualRun, may_have_tangent, unpacked
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
from backprint.graph.steps import behind, used
from backprint.judge.closeness import distance, size_of
from backprint.values.tree import plain_leaves

MOST_PLACES = 64
"""How many wrong places are looked for."""

NEAR = 1e-9
"""The relative difference up to which two gradients are the same: both are rounded in float64."""

LEFT = 1e-13
"""The share of the largest gradient that may be left where a gradient is 0 but for rounding."""

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
    state = search.state(places)
    first_wrong = state.wrong  # the ports that are wrong before anything is taken for given
    while state.wrong and len(places) < MOST_PLACES:
        found = search.next_places(places, state)
        if found is None:
            break
        places, state = found
    return Located(tuple(places), not state.wrong, tuple(first_wrong))


def differing_from_autograd(setting: Setting, limit: float) -> dict[str, float]:
    """Return the ports whose gradients are farther than `limit` from autograd's of the forward, the farthest first,
    with the relative difference; none where autograd's gradients do not have the product ⟨g, J·v⟩ of the tangents
    either, and so prove nothing."""
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
        steps = (step, *(part for part in search.parts(step) if part is not step))
        returned = search.contributions(steps, inputs, right)
        places.append(
            WrongPlace(
                steps,
                inputs=tuple(inputs),
                returned=tuple(returned.get(name) for name in inputs),
                errors=tuple(1.0 for _ in inputs),  # how wrong each is was not measured: all count as wrong
                backward_steps=tuple(search.call_of[step.name].backward),
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
    # J·v: the step on dual numbers, with random tangents of its arguments.
    with forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(value.clone(), symmetric_as(value, drawn_like(value, source)))
            for name, value in values.items()
        }
        tangents = [forward_ad.unpack_dual(dual).tangent for dual in duals.values()]
        moved = run.continued([step], {**search.forward_values, **duals})[step.name]
        along = [unpacked(leaf)[1] for leaf in plain_leaves(moved) if isinstance(leaf, Tensor)]
    # Jᵀ·g: the step under autograd, with random gradients of its results.
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
    # Both sides have the terms of the same results: of those that autograd differentiates.
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
    taken = {part.args[1]: part.name for part in search.parts(step)}  # a part is `operator.getitem(step, place)`
    return [taken.get(place, "") for place in range(count)]


def _laid_out_as(value: Tensor, other: Tensor | None) -> Tensor:
    """Return the values of a tensor with the strides of another tensor of its shape: the backward of an operator may be
    wrong for gradients with some strides only."""
    # Elements of an expanded tensor share memory, so it cannot be written.
    if other is None or other.shape != value.shape or 0 in (size for size in other.stride()):
        return value
    return torch.empty_strided(value.shape, other.stride(), dtype=value.dtype, device=value.device).copy_(value)


@dataclass(eq=False, slots=True)
class _Call:
    """Steps of the forward that are asked as one: those of a call of the custom autograd.Function with this place in
    `Search.functions`, or an operator. `backward` are the steps that compute its gradients. If there is a `summed`,
    they add up the gradients of this value, and `steps` are those that take it."""

    steps: list[Step]
    function: int | None = None
    summed: str = ""
    backward: list[Step] = field(default_factory=list)


class State(NamedTuple):
    """What is right and wrong if what the backward returned at some places is taken for given: the right gradients, the
    input ports with wrong gradients, the calls to blame in the order of the backward, and all ends that are wrong."""

    right: Mapping[str, Tensor]
    wrong: list[str]
    to_blame: list[_Call]
    wrong_ends: frozenset[str]


class Search:
    """The calls of one Setting's forward with their steps of the backward, the values of both, and right gradients.

    `depending` has the values of the forward that depend on an input with a gradient, `reaching` those that a result
    with a tangent depends on, `consumers` the steps that take a value, and `takers_behind` those of the backward.
    Ports have the program's names; `local_of_port` has their names among the graph's values.
    """

    def __init__(self, setting: Setting, functions: Sequence[Collection[str]] = (), cut: Collection[str] = ()) -> None:
        self.setting, self.graph, self.functions, self.cut = setting, setting.forward, functions, cut
        self.step_of = {step.name: step for step in self.graph.steps if not step.is_guard}
        self.consumers = takers_by_name(self.step_of.values())
        self.takers_behind = takers_by_name(setting.backward.steps)
        self.depending = self.depending_values()
        self.with_tangent = self.values_with_tangent()
        self.reaching = self.reaching_values()
        self.backward_values = run_backward(setting)
        self.forward_values, self.states = forward_values(setting)
        sizes = [float(gradient.abs().max()) for gradient in setting.gradients.values() if gradient.numel()]
        self.largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
        """The size of the largest element of a gradient that the backward returned."""
        self.local_of_port = {port.name: port.local for port in self.graph.inputs}
        # Caches: what each value comes from, and the shares of steps for the right gradients that were asked about
        # last.
        self.known_origins: dict[str, set[str]] = {}
        self.shares_for: Mapping[str, Tensor] | None = None
        self.known_shares: dict[tuple[str, ...], dict[str, Tensor] | None] = {}
        self.calls: list[_Call] = []
        self.call_of = self.calls_of_forward()
        self.call_behind = self.calls_of_backward()
        self.ends, self.leads = self.handed_on()

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
            # A tangent is of an output, or of an input that was written to, as in `output_of`.
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

    def error_of(self, gradient: Tensor | None, right: Tensor | None) -> float:
        """Return the relative difference of a gradient from the right one."""
        return error_of(gradient, right, self.largest)

    def is_one_of(self, value: Tensor, gradients: Sequence[Tensor]) -> bool:
        """Whether a value is one of these gradients, in any layout. A value of zeros is one of them if one is zeros, or
        if there are none."""
        if not value.numel() or not self.is_gradient_left(value):
            return not gradients or not all(map(self.is_gradient_left, gradients))
        return any(is_rearranged(value, gradient, self.largest) for gradient in gradients)

    def is_gradient_left(self, value: Tensor) -> bool:
        """Whether a gradient is more than zeros."""
        return self.error_of(value, None) > 0

    # ---- What belongs together

    def calls_of_forward(self) -> dict[str, _Call]:
        """Enter the calls of the forward in its order, and return the call of each step by the step's name."""
        call_of: dict[str, _Call] = {}
        open_call: _Call | None = None  # the call of the Function that the step before belongs to
        for step in self.step_of.values():
            whole = call_of.get(names_in(step)[0]) if step.target == "operator.getitem" else None
            line = "" if step.source is None else step.source.at
            function = next((number for number, lines in enumerate(self.functions) if line in lines), None)
            # Steps of one Function without another step between them are one call.
            if whole is None and function is not None and open_call is not None and open_call.function == function:
                whole = open_call
            if whole is None:
                whole = _Call([], function)
                self.calls.append(whole)
            whole.steps.append(step)
            call_of[step.name] = whole
            if line:  # a step without a line does not end the call of a Function that it stands in
                open_call = whole if function is not None else None
        return call_of

    def calls_of_backward(self) -> dict[str, _Call]:
        """Put the steps of the backward to the calls whose gradients they compute, by their echoes, and return the call
        of each step by the step's name. A sum of gradients is a call of its own."""
        backward = self.setting.backward
        call_behind: dict[str, _Call] = {}
        sums: dict[str, _Call] = {}
        several: dict[tuple[str, ...], _Call] = {}
        nameless = set[str]()
        for step in backward.steps:
            if step.is_guard or (step.echo is not None and step.echo.kind == "recomputes"):
                continue
            names = () if step.echo is None else tuple(filter(self.has_gradient, step.echo.names))
            is_sum = step.echo is not None and step.echo.kind == "sum of gradients of"
            terms = [call_behind.get(name) for name in names_in(step)]
            echoed = dict.fromkeys(self.call_of[name] for name in names if name in self.call_of)
            call: _Call | None
            # The calls that take the value whose gradients the step adds up, if it adds gradients up.
            taking = {self.call_of[taker.name] for name in names[:1] if is_sum for taker in self.takers_of(name)}
            if len(taking) == 1 and names[0] not in self.with_tangent:
                (call,) = taking  # it adds no gradients of others, as a Function whose backward adds
            elif is_sum and len(terms) > 1 and None not in terms and len(set(terms)) == 1:
                call = terms[0]  # one call computes all that is added, so the sum is a part of its share
            elif is_sum and names:
                call = sums.setdefault(names[0], _Call(self.outer_takers(names[0]), summed=names[0]))
            elif len(echoed) > 1:  # one step of a compiled backward computes the gradients of several operators
                steps = [step for call in echoed for step in call.steps]
                call = several.setdefault(names, _Call(steps))
            else:
                call = next(iter(echoed), None) or self.call_at(step)
                # Autograd adds to what a call computes what others do, and the echo is that of the call.
                if call is not None and call.function is None and (name := self.added_up(step, terms, call)):
                    call = sums.setdefault(name, _Call(self.outer_takers(name), summed=name))
            if call is None:
                nameless.add(step.name)
                continue
            call_behind[step.name] = call
        # A step without an echo, as of a hook, is with the only call that takes the input whose gradient it computes,
        # with the step that takes its value, or with the one whose value it takes.
        for port, result in zip(backward.outputs, backward.results, strict=True):
            taking = {self.call_of[step.name] for step in self.takers_of(self.local_of_port.get(port.name, ""))}
            call_behind |= {name: next(iter(taking)) for name in refs(result) if name in nameless and len(taking) == 1}
        after = [
            (step, [taker.name for taker in self.takers_behind.get(step.name, ())]) for step in reversed(backward.steps)
        ]
        for step, others in (*after, *((step, names_in(step)) for step in backward.steps)):
            known = [call_behind[name] for name in others if name in call_behind]
            if step.name in nameless - call_behind.keys() and known:
                call_behind[step.name] = known[0]
        for step in backward.steps:
            if step.name in call_behind:
                call_behind[step.name].backward.append(step)
        return call_behind

    def added_up(self, step: Step, terms: Sequence[_Call | None], call: _Call) -> str:
        """Return the value whose gradients a step adds up: one that a call takes, and others do; '' if it adds none of
        others."""
        tangents = {port.local for port in self.setting.backward.by_role("tangent")}
        known = [term is not None or name in tangents for name, term in zip(names_in(step), terms, strict=True)]
        # Two different values, each a tangent or computed for a call, and not both for this call.
        if step.target != "aten.add.Tensor" or known != [True, True] or terms == [call, call]:
            return ""
        shape = getattr(self.backward_values.get(step.name), "shape", None)
        shared = [
            name
            for name in self.inputs_of(call.steps)
            if getattr(self.forward_values[name], "shape", None) == shape
            and (name in self.with_tangent or any(taker not in call.steps for taker in self.takers_of(name)))
        ]
        # Where the sum goes, and other sums that it is a part of, tell of which value it is.
        beside = {term.summed for term in terms if term is not None}
        for taker in self.takers_behind.get(step.name, ()):
            names = () if taker.echo is None else taker.echo.names
            calls = [self.call_of[name] for name in names if name in self.call_of]
            beside |= {*names, *(step.name for call in calls for step in call.steps)}
        return next((name for name in shared if name in beside), next(iter(shared), ""))

    def call_at(self, step: Step) -> _Call | None:
        """Return the only call of the custom autograd.Function that has the line of a step; None if there are more."""
        line = "" if step.source is None else step.source.at
        calls = [c for c in self.calls if c.function is not None and line in self.functions[c.function]]
        return calls[0] if len(calls) == 1 else None

    def has_gradient(self, name: str) -> bool:
        """Whether a value of the forward has a gradient; an input, which no step computes, may have one."""
        steps = self.call_of[name].steps if name in self.call_of else ()
        return name not in self.step_of or any(s.name in self.reaching and s.name in self.depending for s in steps)

    def handed_on(self) -> tuple[dict[str, None], dict[str, set[str]]]:
        """Return the *ends*, the values of the backward that a call hands on to others or returns, in its order; and
        for each value that is taken, the values of the forward whose gradient others take it for ('' if unknown)."""
        leads: dict[str, set[str]] = {}
        ports = {port.name: port.local for port in self.graph.inputs}
        for port, result in zip(self.setting.backward.outputs, self.setting.backward.results, strict=True):
            for name in refs(result):
                leads.setdefault(name, set()).add(ports.get(port.name, ""))
        for step in self.setting.backward.steps:
            call = self.call_behind.get(step.name)
            for name in names_in(step):
                if call is not self.call_behind.get(name):
                    own = [] if call is None else [call.summed] if call.summed else [s.name for s in call.steps]
                    leads.setdefault(name, set()).update(own)
        ends = {
            name: None
            for name in (step.name for step in self.setting.backward.steps)
            if name in leads and name in self.call_behind and is_gradient(self.backward_values.get(name))
        }
        return ends, leads

    # ---- What is wrong

    def state(self, places: Sequence[WrongPlace]) -> State:
        """Return what is right and wrong if what the backward returned at `places` is taken for given."""
        right = self.right_gradients(places)
        given = {step.name for place in places for step in place.steps}
        wrong = [
            name
            for name, gradient in self.setting.gradients.items()
            if relative(gradient, right.get(self.local_of_port[name], torch.zeros_like(gradient)), self.largest) > NEAR
        ]
        wrong_ends, with_wrong_end, tainted = set[str](), set[_Call](), set[_Call]()
        expected_of: dict[_Call, dict[str, list[Tensor]] | None] = {}
        to_blame: list[_Call] = []
        for step in self.setting.backward.steps:
            call = self.call_behind.get(step.name)
            if call is None or not given.isdisjoint(s.name for s in call.steps):
                continue  # what was returned there is given, so it is not wrong
            if any(name in wrong_ends and self.call_behind[name] is not call for name in names_in(step)):
                tainted.add(call)  # it takes what is wrong already, so it is not to blame for what it hands on
            if call not in expected_of:
                expected_of[call] = self.expected_of(call, right)
            expected = expected_of[call]
            if expected is None:
                continue
            is_wrong = step.name in self.ends and not self.is_expected(step.name, expected)
            if is_wrong and not self.is_misused(step, call, right):
                wrong_ends.add(step.name)
                with_wrong_end.add(call)
            is_last = step is call.backward[-1]  # now all that the call hands on has been looked at
            if is_last and call not in tainted and (call in with_wrong_end or self.misses_a_share(call, right)):
                to_blame.append(call)
        return State(right, wrong, to_blame, frozenset(wrong_ends))

    def expected_of(self, call: _Call, right: Mapping[str, Tensor]) -> dict[str, list[Tensor]] | None:
        """Return what a call may hand on as the gradient of each value that it takes: its right share, or the right sum
        of all shares; None if these are not known."""
        if call.summed:
            return {call.summed: [self.from_others(call.summed, right)] if call.summed in right else []}
        shares = self.shares(call.steps, right)
        # `shares` is None where they are not known, and empty where the call has none: both are returned as they are.
        return shares and {n: [share, right[n]] if n in right else [share] for n, share in shares.items()}

    def is_expected(self, end: str, expected: Mapping[str, list[Tensor]]) -> bool:
        """Whether what a call hands on is a gradient of a value that others take it for, or, if they take it for that
        of none of these values, of any."""
        names = expected.keys() & self.leads[end] or expected.keys()
        return self.is_one_of(self.backward_values[end], [gradient for name in names for gradient in expected[name]])

    def shares(self, steps: Sequence[Step], right: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the right share of some steps in the gradient of each value that they take, by its name; None if they
        take several results of a step."""
        if self.shares_for is not right:  # the right gradients of another State: nothing that was kept holds
            self.shares_for, self.known_shares = right, {}
        key = tuple(step.name for step in steps)
        if key not in self.known_shares:
            inputs = self.inputs_of(steps)
            known = all(map(self.is_tensor, inputs))
            self.known_shares[key] = self.contributions(tuple(steps), inputs, right) if known else None
        return self.known_shares[key]

    def is_misused(self, end: Step, call: _Call, right: Mapping[str, Tensor]) -> bool:
        """Whether a call that computes with an end itself has all right shares without it: then what takes the end
        elsewhere should take another value."""
        if call.summed or not any(end.name in names_in(step) for step in call.backward):
            return False
        return not self.misses_a_share(call, right)

    def misses_a_share(self, call: _Call, right: Mapping[str, Tensor]) -> bool:
        """Whether the backward has the right share of a call in the gradient of a value nowhere."""
        shares = {} if call.summed else self.shares(call.steps, right) or {}
        return not all(self.has_share(call, name, right) for name in shares)

    def has_share(self, call: _Call, name: str, right: Mapping[str, Tensor]) -> bool:
        """Whether the backward has the right share of a call in the gradient of a value, or the right sum of all
        shares, in a step for the call or in what such a step takes; or whether this share is 0."""
        share = (self.shares(call.steps, right) or {}).get(name)
        if share is None or not self.is_gradient_left(share):
            return True
        own = [step.name for step in call.backward]
        handed = [name for name in own if name in self.ends]
        names = dict.fromkeys([*handed, *own, *(name for step in call.backward for name in names_in(step))])
        values = [value for name in names if is_gradient(value := self.backward_values.get(name))]
        # A call without steps hands on what it takes, which leads to it.
        values += [
            self.backward_values[n] for n, led in self.leads.items() if not own and name in led and n in self.ends
        ]
        wanted = [share, right[name]] if name in right else [share]
        return any(self.is_one_of(value, wanted) for value in values)

    # ---- The next wrong places

    def next_places(self, places: Sequence[WrongPlace], state: State) -> tuple[list[WrongPlace], State] | None:
        """Return `places` with a further one, or with several, and the State with these; None if no place explains a
        wrong gradient."""
        if not places and (cuts := self.cuts(state.right)):
            after = self.state(cuts)
            if len(after.wrong) < len(state.wrong):
                return cuts, after
        of_function = None
        for place in itertools.chain(self.calls_without_steps(state.right), self.by_call(state), self.by_port(state)):
            after = self.state([*places, place])
            own = {step.name for step in place.backward_steps}
            if len(after.wrong) < len(state.wrong) or len(after.wrong_ends - own) < len(state.wrong_ends - own):
                return [*places, place], after
            # Behind a wrong Function another one may hide what the first explains.
            if of_function is None and place.backward_steps and self.call_of[place.steps[0].name].function is not None:
                of_function = [*places, place], after
        return of_function

    def cuts(self, right: Mapping[str, Tensor]) -> list[WrongPlace]:
        """Return the steps at which the program cuts a gradient off, by `detach` or `no_grad`, as wrong places that
        return none; not those in a custom autograd.Function, whose forward may detach what its backward handles."""
        inside = set[str]().union(*self.functions)
        places = []
        for step in self.step_of.values():
            line = "" if step.source is None else step.source.at
            if step.name not in self.cut or step.name not in self.reaching or line in inside:
                continue
            taken = [name for name in self.inputs_of([step]) if name not in self.cut and self.is_tensor(name)]
            shares = self.contributions((step,), taken, right) if taken else {}
            taken = [name for name in taken if name in shares and self.is_gradient_left(shares[name])]
            if taken:
                nothing = (None,) * len(taken)
                # 1 is the relative error of a gradient that is missing.
                places.append(WrongPlace((step,), tuple(taken), nothing, (1.0,) * len(taken), backward_steps=()))
        return places

    def calls_without_steps(self, right: Mapping[str, Tensor]) -> Iterator[WrongPlace]:
        """Yield the calls of custom autograd.Functions that have no steps in the backward, the last ones first: their
        backward returns the gradient of a result as it is, or none."""
        for call in reversed(self.calls):
            results = [
                step.name for step in call.steps if step.name in right and self.is_used_elsewhere(step, call.steps)
            ]
            shares = None if call.function is None or call.backward or not results else self.shares(call.steps, right)
            # Candidates: the gradient of each result, which the backward may return as it is, and none.
            for passed in (*(right[name] for name in results), None) if shares else ():
                inputs = self.inputs_of(call.steps)
                returned = [
                    passed.reshape(self.forward_values[name].shape)
                    if passed is not None and passed.numel() == self.forward_values[name].numel()
                    else None
                    for name in inputs
                ]
                yield from self.wrong_place(call.steps, dict(zip(inputs, returned, strict=True)), shares or {}, ())

    def by_call(self, state: State) -> Iterator[WrongPlace]:
        """Yield the calls to blame, in the order of the backward, each with what the backward returned for it."""
        for call in state.to_blame:
            wrong = [step.name for step in call.backward if step.name in state.wrong_ends]
            if call.summed:  # it is blamed for a wrong end only (`misses_a_share`), and the last one is the whole sum
                yield from self.sums(
                    call.summed, state.right, self.backward_values[wrong[-1]], self.way_to(wrong, call)
                )
                continue
            shares = self.shares(call.steps, state.right) or {}
            returned = self.returned_by(call, shares, wrong, state.right)
            yield from self.wrong_place(call.steps, returned, shares, self.way_to(wrong, call) or call.backward)

    def by_port(self, state: State) -> Iterator[WrongPlace]:
        """Yield, for each port with a wrong gradient, the steps that take the port, if the backward hands its right
        gradient on, though it returns another."""
        handed = [self.backward_values[name] for name in self.ends]
        for port in state.wrong:
            name = self.local_of_port[port]
            right = state.right.get(name)
            if right is not None and self.is_gradient_left(right) and self.is_one_of(right, handed):
                yield from self.sums(name, state.right, self.setting.gradients[port], ())

    def returned_by(
        self, call: _Call, shares: Mapping[str, Tensor], wrong: list[str], right: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """Return what the backward returned for each value that a call takes, by its name: the right share if this is
        handed on to where the value comes from, else what is. Of what the call hands on, these values are `wrong`."""
        returned: dict[str, Tensor | None] = {}
        left = list(wrong)
        for name in self.inputs_of(call.steps):
            share, origins = shares.get(name), self.origins(name)
            # What others take for the gradient of this value, or of one that it comes from.
            led = [n for n, names in self.leads.items() if origins & names and is_gradient(self.backward_values.get(n))]
            own = [end for end in led if end in left]
            is_carried = any(share is not None and self.is_one_of(self.backward_values[n], [share]) for n in led)
            if share is not None and (is_carried or not (own or self.is_gradient_left(share))):
                returned[name] = share
                continue
            size = self.forward_values[name].numel()
            # No end leads there: one with as many elements is taken for it.
            own = own or [end for end in left if self.backward_values[end].numel() == size]
            rest = self.rest_of_port(name, call, right)
            if rest is not None:
                returned[name] = rest
            elif own and name not in self.cut and self.backward_values[own[0]].numel() == size:
                returned[name] = self.placed(self.backward_values[own[0]], name)
            else:
                returned[name] = None
            left = [end for end in left if end not in own[:1]]
        return returned

    def origins(self, name: str) -> set[str]:
        """Return a value with those that it comes from through steps that have no steps in the backward: their gradient
        is that of the value, as of `add` and `view`."""
        if name not in self.known_origins:
            self.known_origins[name] = set(
                behind([name], self.step_of, lambda n: n in self.call_of and bool(self.call_of[n].backward))
            )
        return self.known_origins[name]

    def rearranging(self, name: str) -> Iterator[tuple[str, list[Step]]]:
        """Yield a value without steps, then the values that it is rearranged from, as `weight` of `weight.t()`, each
        with the steps that do so; none of them has steps in the backward."""
        steps: list[Step] = []
        yield name, steps
        while name in self.step_of and self.step_of[name].target in REARRANGING and not self.call_of[name].backward:
            steps = [self.step_of[name], *steps]
            (name, *_) = names_in(self.step_of[name])
            yield name, steps

    def placed(self, gradient: Tensor, name: str) -> Tensor:
        """Return a gradient of a value, or of what this value is rearranged from, in the shape of the value."""
        for origin, steps in self.rearranging(name):
            if steps and self.forward_values[origin].shape == gradient.shape:
                return DualRun(self.graph).continued(steps, {**self.forward_values, origin: gradient})[name]
        return gradient.reshape(self.forward_values[name].shape)

    def rest_of_port(self, name: str, call: _Call, right: Mapping[str, Tensor]) -> Tensor | None:
        """Return what the backward returned for an input of the forward, less the right shares of all other calls, in
        the order of the value `name`, which is this input, rearranged or not; None if it is none, or if the backward
        has not computed one of these shares."""
        ports = {self.local_of_port[port]: gradient for port, gradient in self.setting.gradients.items()}
        for origin, steps in self.rearranging(name):
            if origin in ports:
                others = [s for s in self.takers_of(origin) if s not in steps and self.call_of[s.name] is not call]
                gradient = ports[origin]
                for other in dict.fromkeys(self.call_of[s.name] for s in others):
                    share = (self.shares(other.steps, right) or {}).get(origin)
                    if not self.has_share(other, origin, right):
                        return None  # another call is wrong too
                    gradient = gradient if share is None else gradient - share
                return self.placed(gradient, name)
        return None

    def way_to(self, ends: Sequence[str], call: _Call) -> list[Step]:
        """Return the steps of the backward of a call that compute these ends."""
        own = {step.name: step for step in call.backward}
        return [step for step in call.backward if step.name in set(behind(ends, own))]

    def wrong_place(
        self,
        steps: Sequence[Step],
        returned: Mapping[str, Tensor | None],
        shares: Mapping[str, Tensor],
        backward_steps: Sequence[Step],
    ) -> Iterator[WrongPlace]:
        """Yield these steps as a wrong place, if what the backward returned for them differs from their shares."""
        errors = tuple(self.error_of(gradient, shares.get(name)) for name, gradient in returned.items())
        if max(errors, default=0.0) > NEAR:
            yield WrongPlace(tuple(steps), tuple(returned), tuple(returned.values()), errors, tuple(backward_steps))

    def sums(
        self, name: str, right: Mapping[str, Tensor], value: Tensor, backward_steps: Sequence[Step]
    ) -> Iterator[WrongPlace]:
        """Yield the steps that take the value `name` as a wrong place, where the backward has `value` for the sum of
        their shares."""
        steps = self.outer_takers(name)
        shares = self.shares(steps, right)
        if shares is None or name not in shares or value.numel() != right[name].numel():
            return
        sum_ = self.from_others(name, right)
        # The whole error of the sum is entered at this one value, whichever of the shares is wrong.
        returned = {**shares, name: shares[name] + value.reshape(sum_.shape) - sum_}
        yield from self.wrong_place(steps, returned, shares, backward_steps)

    # ---- Of the forward

    def is_used_elsewhere(self, step: Step, steps: Sequence[Step]) -> bool:
        """Whether a step that is none of `steps` takes the result of `step`, or the forward returns this result."""
        takers = self.consumers.get(step.name, ())
        return step.name in self.with_tangent or any(taker not in steps for taker in takers)

    def is_tensor(self, name: str) -> bool:
        """Whether a value is one tensor, not several results of one step."""
        return isinstance(self.forward_values[name], Tensor)

    def outer_takers(self, name: str) -> list[Step]:
        """Return the steps that take a value, but for those of the call that makes it, with their parts."""
        call = self.call_of.get(name)
        takers = [step for step in self.takers_of(name) if call is None or step not in call.steps]
        return list(dict.fromkeys(part for step in takers for part in (step, *self.parts(step))))

    def from_others(self, name: str, right: Mapping[str, Tensor], own: Collection[Step] = ()) -> Tensor:
        """Return the right gradient of a value less the shares of the steps in `own`, or else of those of the call that
        makes it."""
        call = self.call_of.get(name)
        own = own or (call.steps if call is not None else ())
        gradient = right[name]
        for step in self.takers_of(name):
            if step in own:
                shares = self.shares(list(dict.fromkeys((step, *self.parts(step)))), right) or {}
                gradient = gradient - shares[name] if name in shares else gradient
        return gradient

    def parts(self, step: Step) -> list[Step]:
        """Return the steps whose results are the tensors that a step makes: itself, or, if it has several results, the
        `operator.getitem` steps that take one."""
        if isinstance(self.forward_values[step.name], Tensor):
            return [step]
        return [taker for taker in self.consumers.get(step.name, ()) if taker.target == "operator.getitem"]

    def inputs_of(self, steps: Sequence[Step]) -> list[str]:
        """Return the values that these steps take from others and that may have a gradient, each once."""
        own = {step.name for step in steps}
        taken = dict.fromkeys(name for step in steps for name in names_in(step) if name not in own)
        return [name for name in taken if self.may_have_gradient(name)]

    def takers_of(self, name: str) -> list[Step]:
        """Return the steps that take a value, and on which a result with a tangent depends."""
        return [step for step in self.consumers.get(name, ()) if step.name in self.reaching]

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
            (env[step.name], self.from_others(step.name, right, steps))
            for step in steps
            if step.name in right and self.is_used_elsewhere(step, steps) and env[step.name].requires_grad
        ]
        if not ends or not leaves:
            return {}
        gradients = torch.autograd.grad(
            [value for value, _ in ends], list(leaves.values()), [g for _, g in ends], allow_unused=True
        )
        return {name: dense(g) for name, g in zip(leaves, gradients, strict=True) if g is not None}


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


def names_in(step: Step) -> list[str]:
    """Return the names of the values that a step takes, each once."""
    return list(dict.fromkeys(used(step)))


def takers_by_name(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Return the steps that take each value, by its name."""
    takers: dict[str, list[Step]] = {}
    for step in steps:
        for name in names_in(step):
            takers.setdefault(name, []).append(step)
    return takers


def error_of(gradient: Tensor | None, right: Tensor | None, largest: float = 0.0) -> float:
    """Return the relative difference of a gradient from the right one; None is a gradient of zeros. With the size of
    the largest gradient, two that are smaller than its rounding are the same: the gradient of a key's bias is 0 but for
    rounding."""
    if gradient is None or right is None:
        other = right if gradient is None else gradient
        return 0.0 if other is None or not bool((other.abs() > LEFT * largest).any()) else 1.0
    # `relative` divides by 1e-6 of its last argument at least: so a difference of LEFT times the largest counts as
    # NEAR.
    return relative(gradient, right, LEFT / (1e-6 * NEAR) * largest)


def relative(gradient: Tensor, expected: Tensor, largest: float) -> float:
    """Return the difference of two gradients relative to their size, or to a small part of the largest of all; 1 if
    they have NaN or Inf in different places."""
    off = distance(gradient, expected, max(size_of(gradient), 1e-6 * largest))
    return off if math.isfinite(off) else 1.0


def is_rearranged(value: Tensor, other: Tensor, largest: float) -> bool:
    """Whether two gradients are one, up to rounding, in any layout: with dimensions in another order, or reshaped."""
    if value.numel() != other.numel():
        return False
    if sorted(value.shape) == sorted(other.shape):
        orders = itertools.islice(itertools.permutations(range(value.dim())), MOST_ORDERS)
        alike = (value.permute(order) for order in orders)
        return any(one.shape == other.shape and error_of(one, other, largest) <= NEAR for one in alike)
    # Of a view, the elements are compared without their places.
    ordered = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (value, other)]
    one, two = (part.flatten().sort().values for part in ordered)
    return one.shape == two.shape and error_of(one, two, largest) <= NEAR


MOST_ORDERS = 24
"""How many orders of dimensions are compared: all of a tensor with 4 dimensions."""


def is_gradient(value: Any) -> bool:
    """Whether a value of a backward may be a gradient: a dense tensor of floats or complex numbers."""
    return may_have_tangent(value) and is_inexact(value)
