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
- `places`: the wrong places that were found before, where what the backward returned is taken for right;
- `call`: a _Call, the forward steps of a group with its backward steps;
- `taker` of a value: a step that takes it as an argument.

A Setting (`setting`) is a Pair in float64 with its inputs, the tangents of its results, and what its backward returned
for them. A DualRun (`duals`) runs steps of a graph: on plain tensors, under autograd, or with tangents.
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

from backprint.derive.duals import DualRun, may_have_tangent, unpack_dual_tree
from backprint.derive.setting import (
    Setting,
    backward_product,
    drawn_like,
    forward_product,
    gap_of,
    is_inexact,
    own_source,
    sum_of_inner_products,
    symmetric_like,
)
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Step, refs
from backprint.graph.steps import names_behind, used
from backprint.judge.closeness import distance, size_of
from backprint.values.tree import plain_leaves

MAX_PLACES = 64
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


def locate(setting: Setting, functions: Sequence[Collection[str]] = (), cut_values: Collection[str] = ()) -> Located:
    """Return the places where the backward of a Setting is not the derivative of its forward.

    `functions` has the lines of each custom autograd.Function of the program, as `file.py:8`, and `cut_values` the
    values of the forward through which no gradient passes, because the program detached them or computed them under
    `no_grad`.
    """
    search = Search(setting, functions, cut_values)
    places: list[WrongPlace] = []
    state = search.assess(places)
    first_wrong = state.wrong  # the ports that are wrong before anything is taken for given
    while state.wrong and len(places) < MAX_PLACES:
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
    product_by_tangents, _ = forward_product(setting)
    if gap_of(product_by_tangents, backward_product(setting, expected)) >= limit:
        return {}
    errors = {name: error_of(gradient, expected[name]) for name, gradient in setting.gradients.items()}
    farthest = sorted(errors, key=errors.__getitem__, reverse=True)
    return {name: errors[name] for name in farthest if errors[name] > limit}


def locate_formulas(setting: Setting) -> Located:
    """Return the steps whose own gradient, as autograd has it, is not the derivative of the step.

    Each is tried alone, at its values in the forward: with random tangents of its arguments and its results, the
    two products must agree, as for a whole Pair. Where they do not, differences decide whether the gradient is wrong or
    the formula for the tangent. Steps that take several results of one step as a whole are not tried.
    """
    search = Search(setting)
    right = search.right_gradients([])
    places = []
    refuted, undecided = set[str](), set[str]()
    for step in search.step_by_name.values():
        if step.name not in search.reaching or step.name not in search.depending:
            continue  # no gradient passes through it
        inputs = [name for name in values_taken_by(step) if search.may_have_gradient(name)]
        if not inputs or not all(map(search.is_tensor, inputs)) or step.target in refuted:
            continue
        try:
            which = _wrong_formula(search, step, inputs, right)
        except (BackprintError, RuntimeError):  # the operator does not run on these numbers: nothing can be said
            which = "undecided"
        if which == "tangent":
            refuted.add(step.target)
        elif which == "undecided":
            undecided.add(step.target)
        elif which == "gradient":
            places.append(_place_of_formula(search, step, inputs, right))
    return Located(
        tuple(places), complete=bool(places), wrong=(), refuted=frozenset(refuted), undecided=frozenset(undecided)
    )


def _wrong_formula(search: Search, step: Step, inputs: Sequence[str], right: Mapping[str, Tensor]) -> str:
    """Return which formula of PyTorch is wrong for a step: `gradient` or `tangent`; `undecided` if differences do not
    tell; '' if neither is."""
    gap_by_formula, _ = _formula_gap(search, step, inputs, right)
    if gap_by_formula <= FORMULA_GAP:
        return ""
    gap_by_differences, accuracy = _formula_gap(search, step, inputs, right, refuted=(step.target,))
    # Differences agree with the gradient, so the formula for the tangent is wrong.
    if gap_by_differences <= gap_by_formula / FARTHER:
        return "tangent"
    # Differences are no farther from the gradient than they are from each other: they decide nothing.
    if gap_by_differences <= FARTHER * accuracy or not math.isfinite(gap_by_differences):
        return "undecided"
    return "gradient"


def _place_of_formula(search: Search, step: Step, inputs: Sequence[str], right: Mapping[str, Tensor]) -> WrongPlace:
    """Return the place of a step whose gradient PyTorch itself has wrong. What the backward returned there is what
    autograd returns."""
    # A step with several results is a place together with the `operator.getitem` steps that take them.
    steps = (step, *(part for part in search.result_steps(step) if part is not step))
    returned = search.contributions(steps, inputs, right)
    return WrongPlace(
        steps,
        inputs=tuple(inputs),
        returned=tuple(returned.get(name) for name in inputs),
        errors=tuple(1.0 for _ in inputs),  # how wrong each is was not measured: all count as wrong
        backward_steps=tuple(search.call_of_step[step.name].backward),
    )


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
    """Return the gap between ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ for one step alone, relative to the sizes of the terms, and by how
    much the tangents J·v may be off: 0 by formulas, else how far two differences are apart. Gradients g of the results
    have the strides of those in `right`. Tangents of operators in `refuted` come from differences instead of formulas.

    For the step `y = sin(x)`: v is random, J·v is cos(x) * v by the formula for tangents, g is random, and Jᵀ·g is
    cos(x) * g by autograd. Both products are the sum of g * cos(x) * v.
    """
    source = own_source(seed=0)
    run = DualRun(search.graph, refuted={*search.setting.refuted, *refuted}, states=search.generator_states)
    values = {name: search.forward_values[name].detach() for name in inputs}
    directions, tangents = _tangents_of_step(search, step, run, values, source)
    leaves, results = _step_under_autograd(search, step, run, values)
    names = _result_names(search, step, len(results))
    cotangents = [
        _with_strides_of(drawn_like(result, source), right.get(name)) if is_inexact(result) else None
        for name, result in zip(names, results, strict=True)
    ]
    # Both sides have the terms of the same results: of those that autograd differentiates.
    terms = [
        (result, cotangent, tangent)
        for result, cotangent, tangent in zip(results, cotangents, tangents, strict=True)
        if cotangent is not None and result.requires_grad
    ]
    if not terms:
        return 0.0, 0.0  # no gap, and tangents that are off by nothing
    gradients = torch.autograd.grad(
        [result for result, _, _ in terms],
        leaves,
        [cotangent for _, cotangent, _ in terms],
        allow_unused=True,
    )
    forward_side = sum_of_inner_products((cotangent, tangent) for _, cotangent, tangent in terms if tangent is not None)
    backward_side = sum_of_inner_products(
        (gradient, direction) for gradient, direction in zip(gradients, directions, strict=True) if gradient is not None
    )
    return gap_of(forward_side, backward_side), run.accuracy


def _tangents_of_step(
    search: Search, step: Step, run: DualRun, values: Mapping[str, Tensor], source: torch.Generator
) -> tuple[list[Any], list[Any]]:
    """Run a step on dual numbers, at these values of its inputs. Return the random directions of the inputs, and the
    tangents of its results along them, None for a result without one."""
    with forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(value.clone(), symmetric_like(value, drawn_like(value, source)))
            for name, value in values.items()
        }
        directions = [forward_ad.unpack_dual(dual).tangent for dual in duals.values()]
        result = run.run_steps([step], {**search.forward_values, **duals})[step.name]
        values_and_tangents = [unpack_dual_tree(leaf) for leaf in plain_leaves(result) if isinstance(leaf, Tensor)]
    return directions, [tangent for _, tangent in values_and_tangents]


def _step_under_autograd(
    search: Search, step: Step, run: DualRun, values: Mapping[str, Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Run a step under autograd, at these values of its inputs. Return the inputs, as leaves that require grad, and the
    tensors that it returns."""
    with torch.enable_grad():
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        copies = {name: leaf * 1 for name, leaf in leaves.items()}  # a step may write in place, which no leaf allows
    result = run.run_steps([step], {**search.forward_values, **copies})[step.name]
    return list(leaves.values()), [leaf for leaf in plain_leaves(result) if isinstance(leaf, Tensor)]


def _result_names(search: Search, step: Step, count: int) -> list[str]:
    """Return the names of a step's `count` results: its own name for one tensor, else for each result the name of the
    `operator.getitem` step that takes it, or ''."""
    if isinstance(search.forward_values[step.name], Tensor):
        return [step.name]
    # Each of these steps is `operator.getitem(step, place)`.
    name_by_place = {part.args[1]: part.name for part in search.result_steps(step)}
    return [name_by_place.get(place, "") for place in range(count)]


def _with_strides_of(value: Tensor, other: Tensor | None) -> Tensor:
    """Return the values of a tensor with the strides of another tensor of its shape: the backward of an operator may be
    wrong for gradients with some strides only. Without such a tensor, return `value` itself."""
    # Elements of an expanded tensor share memory, so it cannot be written.
    if other is None or other.shape != value.shape or 0 in other.stride():
        return value
    return torch.empty_strided(value.shape, other.stride(), dtype=value.dtype, device=value.device).copy_(value)


@dataclass(eq=False, slots=True)
class _Call:
    """Steps of the forward that are asked as one: those of a call of a custom autograd.Function, or an operator.

    `function` is the place of the Function in `Search.functions`, None for an operator. `backward` are the steps of the
    backward that compute the call's gradients. If there is a `summed_value`, the call is none of the forward: its
    `backward` adds up the gradients of this value, and its `steps` are those that take the value.
    """

    steps: list[Step]
    function: int | None = None
    summed_value: str = ""
    backward: list[Step] = field(default_factory=list)


class State(NamedTuple):
    """What is right and wrong if what the backward returned at some places is taken for given: the right gradients, the
    input ports with wrong gradients, the calls to blame in the order of the backward, and by name all ends (what a call
    of the backward hands on) that are wrong."""

    right: Mapping[str, Tensor]
    wrong: list[str]
    to_blame: list[_Call]
    wrong_ends: frozenset[str]


class Search:
    """The calls of one Setting's forward with their steps of the backward, the values of both, and right gradients.

    `functions` and `cut_values` are as in `locate`. `depending` has the values of the forward that depend on an input
    with a gradient, `with_tangent` the results with a tangent, `reaching` the values that such a result depends on,
    `takers` the forward's steps that take a value, and `backward_takers` the backward's. `generator_states` has, for
    each step that draws, the generator's state before it. `ends` and `taken_as_gradient_of` are those of
    `ends_and_uses`. Ports have the program's names; `local_of_port` has their names among the graph's values.
    """

    def __init__(
        self, setting: Setting, functions: Sequence[Collection[str]] = (), cut_values: Collection[str] = ()
    ) -> None:
        self.setting, self.graph, self.functions, self.cut_values = setting, setting.forward, functions, cut_values
        self.step_by_name = {step.name: step for step in self.graph.steps if not step.is_guard}
        self.takers = takers_by_name(self.step_by_name.values())
        self.backward_takers = takers_by_name(setting.backward.steps)
        self.depending = self.depending_values()
        self.with_tangent = self.values_with_tangent()
        self.reaching = self.reaching_values()
        self.backward_values = run_backward(setting)
        self.forward_values, self.generator_states = run_forward(setting)
        sizes = [float(gradient.abs().max()) for gradient in setting.gradients.values() if gradient.numel()]
        self.largest_gradient = max((size for size in sizes if math.isfinite(size)), default=0.0)
        """The size of the largest element of a gradient that the backward returned."""
        self.local_of_port = {port.name: port.local for port in self.graph.inputs}
        # Caches: what each value comes from, and the shares of steps for the right gradients that were asked about
        # last.
        self.origins_by_name: dict[str, set[str]] = {}
        self.shares_of_right: Mapping[str, Tensor] | None = None
        self.shares_by_steps: dict[tuple[str, ...], dict[str, Tensor] | None] = {}
        self.calls: list[_Call] = []
        # Calls that are none of the forward: of sums, by the value, and of several operators at once, by their values.
        self.sum_calls: dict[str, _Call] = {}
        self.compiled_calls: dict[tuple[str, ...], _Call] = {}
        self.call_of_step = self.calls_of_forward()
        self.call_of_backward_step = self.calls_of_backward()
        self.ends, self.taken_as_gradient_of = self.ends_and_uses()

    def depending_values(self) -> set[str]:
        """Return the values that depend on an input with a gradient."""
        depending = {port.local for port in self.graph.inputs if port.name in self.setting.gradients}
        for step in self.step_by_name.values():  # in the order of the forward: arguments before results
            if depending & set(values_taken_by(step)):
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
        for step in reversed(self.step_by_name.values()):
            if step.name in reaching:
                reaching |= set(values_taken_by(step))
        return reaching

    # ---- The right gradients

    def right_gradients(self, places: Sequence[WrongPlace]) -> dict[str, Tensor]:
        """Run the forward under autograd, and return the gradient of each of its values that has one. The steps of
        `places` are constant: what the backward returned for them enters instead, as if it were right."""
        constant = {step.name for place in places for step in place.steps}
        leaves = {
            name: value.clone().requires_grad_() if name in self.setting.gradients else value
            for name, value in self.setting.inputs.items()
        }
        torch.manual_seed(self.setting.program_seed)
        with torch.enable_grad():
            # Not the leaves themselves: a graph may write into its inputs, and autograd refuses a write into a leaf.
            copies = {name: value * 1 if name in self.setting.gradients else value for name, value in leaves.items()}
        # Results of `recorded` steps require grad even behind a constant step, so that their gradients are asked for.
        env = DualRun(self.graph, constant, recorded=self.depending).values(copies)
        roots, root_gradients = self.roots_and_gradients(env, places)
        values_with_grad = {
            name: value
            for name, value in env.items()
            if may_have_tangent(value) and value.requires_grad and is_inexact(value)
        }
        if not roots or not values_with_grad:
            return {}
        gradients = torch.autograd.grad(roots, list(values_with_grad.values()), root_gradients, allow_unused=True)
        return {
            name: to_dense(gradient)
            for name, gradient in zip(values_with_grad, gradients, strict=True)
            if gradient is not None
        }

    def roots_and_gradients(
        self, env: Mapping[str, Any], places: Sequence[WrongPlace]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the values that autograd starts from, and their gradients: the results with their tangents, and the
        inputs of the given places with what the backward returned for them. `env` has the values of the forward."""
        values_with_gradients: list[tuple[Any, Tensor]] = []
        results = dict(zip((port.key for port in self.graph.outputs), self.graph.results, strict=True))
        for name, tangent in self.setting.tangents.items():
            # A tangent is of an output, or of an input that was written to, as in `output_of`.
            key = next(key for role in ("output", "mutation") if (key := PortKey(role, name)) in results)
            values_with_gradients += [(env.get(local), tangent) for local in refs(results[key])]
        for place in places:
            values_with_gradients += [
                (env[name], gradient)
                for name, gradient in zip(place.inputs, place.returned, strict=True)
                if gradient is not None
            ]
        values_with_gradients = [
            (value, gradient)
            for value, gradient in values_with_gradients
            if isinstance(value, Tensor) and value.requires_grad
        ]
        return [value for value, _ in values_with_gradients], [gradient for _, gradient in values_with_gradients]

    def error_of(self, gradient: Tensor | None, right: Tensor | None) -> float:
        """Return the relative difference of a gradient from the right one."""
        return error_of(gradient, right, self.largest_gradient)

    def is_one_of(self, value: Tensor, gradients: Sequence[Tensor]) -> bool:
        """Whether a value is one of these gradients, in any layout. A value of zeros is one of them if one is zeros, or
        if there are none."""
        if not value.numel() or not self.is_nonzero(value):
            return not gradients or not all(map(self.is_nonzero, gradients))
        return any(is_rearranged(value, gradient, self.largest_gradient) for gradient in gradients)

    def is_nonzero(self, gradient: Tensor) -> bool:
        """Whether a gradient is more than zeros and their rounding."""
        return self.error_of(gradient, None) > 0  # None is a gradient of zeros

    # ---- What belongs together

    def calls_of_forward(self) -> dict[str, _Call]:
        """Enter the calls of the forward in its order, and return the call of each step by the step's name."""
        call_of: dict[str, _Call] = {}
        open_call: _Call | None = None  # the call of the Function that the step before belongs to
        for step in self.step_by_name.values():
            # `getitem` takes one of several results: it is with the call that made them.
            call = call_of.get(values_taken_by(step)[0]) if step.target == "operator.getitem" else None
            line = "" if step.source is None else step.source.at
            # The place of the Function that has the line, None if no Function has it.
            function = next((place for place, lines in enumerate(self.functions) if line in lines), None)
            # Steps of one Function without another step between them are one call.
            if call is None and function is not None and open_call is not None and open_call.function == function:
                call = open_call
            if call is None:
                call = _Call([], function)
                self.calls.append(call)
            call.steps.append(step)
            call_of[step.name] = call
            if line:  # a step without a line does not end the call of a Function that it stands in
                open_call = call if function is not None else None
        return call_of

    def calls_of_backward(self) -> dict[str, _Call]:
        """Put the steps of the backward to the calls whose gradients they compute, by their echoes, and return the call
        of each step by the step's name. A sum of gradients is a call of its own. An example:

            forward    a = x.sin();  b = x.cos()
            backward   mul = tangent_a * cos          gradient of a             the call of a
                       mul_1 = tangent_b * neg        gradient of b             the call of b
                       add = mul + mul_1              sum of gradients of x     a call of its own, which sums up x
        """
        backward = self.setting.backward
        call_of: dict[str, _Call] = {}
        steps_without_call = set[str]()
        for step in backward.steps:
            # A step that computes a value of the forward again, as of a checkpoint, computes no gradient.
            if step.is_guard or (step.echo is not None and step.echo.kind == "recomputes"):
                continue
            call = self.call_by_echo(step, call_of)
            if call is None:
                steps_without_call.add(step.name)
            else:
                call_of[step.name] = call
        self.add_calls_by_neighbours(call_of, steps_without_call)
        for step in backward.steps:
            if step.name in call_of:
                call_of[step.name].backward.append(step)
        return call_of

    def call_by_echo(self, step: Step, call_of: Mapping[str, _Call]) -> _Call | None:
        """Return the call that a step of the backward belongs to, by its echo or by its line in a custom Function; None
        if nothing tells. `call_of` has the calls of the steps before it."""
        names = () if step.echo is None else tuple(filter(self.has_gradient, step.echo.names))
        # For each value that the step takes, the call that it was computed for, None for a tangent or a saved value.
        calls_of_terms = [call_of.get(name) for name in values_taken_by(step)]
        if step.echo is not None and step.echo.kind == "sum of gradients of":
            call = self.call_of_sum(names, calls_of_terms)
            if call is not None:
                return call
        calls_echoed = dict.fromkeys(self.call_of_step[name] for name in names if name in self.call_of_step)
        if len(calls_echoed) > 1:  # one step of a compiled backward computes the gradients of several operators
            steps = [step for call in calls_echoed for step in call.steps]
            return self.compiled_calls.setdefault(names, _Call(steps))
        call = next(iter(calls_echoed), None) or self.call_at(step)
        if call is None or call.function is not None:
            return call
        # Autograd adds what other calls computed to what a call computes, and this `add` has the echo of the call.
        summed_value = self.value_of_added_gradients(step, calls_of_terms, call)
        return self.sum_call(summed_value) if summed_value else call

    def call_of_sum(self, names: Sequence[str], calls_of_terms: Sequence[_Call | None]) -> _Call | None:
        """Return the call of a step that, by its echo, adds up the gradients of the first of `names`; None if there is
        no name, and the terms do not tell. It is a call of its own (`sum_call`), unless one call alone computes all
        that is added."""
        if names and names[0] not in self.with_tangent:
            calls_taking = {self.call_of_step[taker.name] for taker in self.takers_of(names[0])}
            if len(calls_taking) == 1:  # no other call has a gradient of it: the backward of this one call adds
                return calls_taking.pop()
        if len(calls_of_terms) > 1 and None not in calls_of_terms and len(set(calls_of_terms)) == 1:
            return calls_of_terms[0]  # one call computes all that is added, so the sum is a part of its share
        return self.sum_call(names[0]) if names else None

    def sum_call(self, name: str) -> _Call:
        """Return the call of the steps that add up the gradients of a value; there is one for each value."""
        return self.sum_calls.setdefault(name, _Call(self.takers_outside_call(name), summed_value=name))

    def add_calls_by_neighbours(self, call_of: dict[str, _Call], steps_without_call: set[str]) -> None:
        """Add to `call_of` the calls of steps without an echo, as of a hook: such a step is with the only call that
        takes the input whose gradient it computes, with the step that takes its value, or with the one whose value it
        takes."""
        backward = self.setting.backward
        for port, result in zip(backward.outputs, backward.results, strict=True):
            input_name = self.local_of_port.get(port.name, "")
            calls_taking = {self.call_of_step[taker.name] for taker in self.takers_of(input_name)}
            if len(calls_taking) == 1:
                (only_call,) = calls_taking
                call_of |= {name: only_call for name in refs(result) if name in steps_without_call}
        # From the last step to the first, so that a row of such steps gets the call of the step behind it.
        for step in reversed(backward.steps):
            takers = [taker.name for taker in self.backward_takers.get(step.name, ())]
            self.add_call_of_first(step, takers, call_of, steps_without_call)
        for step in backward.steps:
            self.add_call_of_first(step, values_taken_by(step), call_of, steps_without_call)

    @staticmethod
    def add_call_of_first(
        step: Step, neighbours: Iterable[str], call_of: dict[str, _Call], steps_without_call: set[str]
    ) -> None:
        """Add the call of the first neighbour that has one, if the step has none so far."""
        calls = [call_of[name] for name in neighbours if name in call_of]
        if calls and step.name in steps_without_call and step.name not in call_of:
            call_of[step.name] = calls[0]

    def value_of_added_gradients(self, step: Step, terms: Sequence[_Call | None], call: _Call) -> str:
        """Return the value whose gradients a step adds up: one that `call` takes, and other calls do; '' if the step is
        no such sum. `terms` has the call that each value which the step takes was computed for, None for a tangent."""
        tangents = {port.local for port in self.setting.backward.by_role("tangent")}
        are_gradients = [
            term is not None or name in tangents for name, term in zip(values_taken_by(step), terms, strict=True)
        ]
        # Two different values, each a tangent or computed for a call, and not both for this call.
        if step.target != "aten.add.Tensor" or are_gradients != [True, True] or terms == [call, call]:
            return ""
        # A gradient has the shape of its value.
        shape = getattr(self.backward_values.get(step.name), "shape", None)
        shared = [
            name
            for name in self.inputs_of(call.steps)
            if getattr(self.forward_values[name], "shape", None) == shape
            and (name in self.with_tangent or any(taker not in call.steps for taker in self.takers_of(name)))
        ]
        # Where the sum goes, and other sums that it is a part of, tell of which value it is.
        names_around = {term.summed_value for term in terms if term is not None}
        for taker in self.backward_takers.get(step.name, ()):
            names = () if taker.echo is None else taker.echo.names
            calls = [self.call_of_step[name] for name in names if name in self.call_of_step]
            names_around |= {*names, *(step.name for call in calls for step in call.steps)}
        return next((name for name in shared if name in names_around), next(iter(shared), ""))

    def call_at(self, step: Step) -> _Call | None:
        """Return the only call of the custom autograd.Function that has the line of a step; None if there are more."""
        line = "" if step.source is None else step.source.at
        calls = [c for c in self.calls if c.function is not None and line in self.functions[c.function]]
        return calls[0] if len(calls) == 1 else None

    def has_gradient(self, name: str) -> bool:
        """Whether a value of the forward has a gradient; an input, which no step computes, may have one."""
        steps = self.call_of_step[name].steps if name in self.call_of_step else ()
        return name not in self.step_by_name or any(s.name in self.reaching and s.name in self.depending for s in steps)

    def ends_and_uses(self) -> tuple[dict[str, None], dict[str, set[str]]]:
        """Return the *ends*, the values of the backward that a call hands on to other calls or returns, as the keys of
        a dict, in the backward's order. Return too, for each value of the backward that another call takes or that is
        returned, the values of the forward whose gradient it is taken for ('' if unknown)."""
        taken_as_gradient_of: dict[str, set[str]] = {}
        for port, result in zip(self.setting.backward.outputs, self.setting.backward.results, strict=True):
            for name in refs(result):
                taken_as_gradient_of.setdefault(name, set()).add(self.local_of_port.get(port.name, ""))
        for step in self.setting.backward.steps:
            call = self.call_of_backward_step.get(step.name)
            for name in values_taken_by(step):
                if call is not self.call_of_backward_step.get(name):
                    uses = taken_as_gradient_of.setdefault(name, set())
                    if call is not None:
                        # A sum takes gradients of its value; the backward of other calls takes those of their results.
                        uses.update([call.summed_value] if call.summed_value else [s.name for s in call.steps])
        ends = {
            name: None
            for name in (step.name for step in self.setting.backward.steps)
            if name in taken_as_gradient_of
            and name in self.call_of_backward_step
            and is_gradient(self.backward_values.get(name))
        }
        return ends, taken_as_gradient_of

    # ---- What is wrong

    def assess(self, places: Sequence[WrongPlace]) -> State:
        """Return what is right and wrong if what the backward returned at `places` is taken for given.

        The steps of the backward are gone through in their order. A call is to blame for what it hands on, unless it
        takes from another call what is wrong already.
        """
        right = self.right_gradients(places)
        given_steps = {step.name for place in places for step in place.steps}
        wrong = self.wrong_ports(right)
        wrong_ends, calls_with_wrong_end, calls_taking_wrong = set[str](), set[_Call](), set[_Call]()
        expected_of: dict[_Call, dict[str, list[Tensor]] | None] = {}  # what `self.expected_of` returned for each call
        to_blame: list[_Call] = []
        for step in self.setting.backward.steps:
            call = self.call_of_backward_step.get(step.name)
            if call is None or not given_steps.isdisjoint(s.name for s in call.steps):
                continue  # what was returned there is given, so it is not wrong
            taken_from_others = [n for n in values_taken_by(step) if self.call_of_backward_step.get(n) is not call]
            if not wrong_ends.isdisjoint(taken_from_others):
                calls_taking_wrong.add(call)
            if call not in expected_of:
                expected_of[call] = self.expected_of(call, right)
            expected = expected_of[call]
            if expected is None:
                continue
            is_wrong = step.name in self.ends and not self.is_expected(step.name, expected)
            if is_wrong and not self.is_misused(step, call, right):
                wrong_ends.add(step.name)
                calls_with_wrong_end.add(call)
            if step is not call.backward[-1] or call in calls_taking_wrong:
                continue
            # Now all that the call hands on has been looked at.
            if call in calls_with_wrong_end or self.misses_a_share(call, right):
                to_blame.append(call)
        return State(right, wrong, to_blame, frozenset(wrong_ends))

    def wrong_ports(self, right: Mapping[str, Tensor]) -> list[str]:
        """Return the input ports whose returned gradient is not the right one; without a right one, it must be 0."""
        wrong = []
        for name, gradient in self.setting.gradients.items():
            right_gradient = right.get(self.local_of_port[name], torch.zeros_like(gradient))
            # `relative_error` itself, because it is stricter about small gradients than `error_of`.
            if relative_error(gradient, right_gradient, self.largest_gradient) > NEAR:
                wrong.append(name)
        return wrong

    def expected_of(self, call: _Call, right: Mapping[str, Tensor]) -> dict[str, list[Tensor]] | None:
        """Return what a call may hand on as the gradient of each value that it takes: its right share, or the right sum
        of all shares; None if these are not known."""
        summed = call.summed_value
        if summed:
            return {summed: [self.gradient_from_others(summed, right)] if summed in right else []}
        shares = self.shares(call.steps, right)
        if shares is None:
            return None
        return {name: [share, right[name]] if name in right else [share] for name, share in shares.items()}

    def is_expected(self, end: str, expected: Mapping[str, list[Tensor]]) -> bool:
        """Whether what a call hands on, an end, is what it may hand on (`expected`, by the values that the call takes):
        as the gradient of a value that others take the end for, or of any value, if they take it for none of these."""
        names = expected.keys() & self.taken_as_gradient_of[end] or expected.keys()
        return self.is_one_of(self.backward_values[end], [gradient for name in names for gradient in expected[name]])

    def shares(self, steps: Sequence[Step], right: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the right share of some steps in the gradient of each value that they take, by its name; None if they
        take several results of a step."""
        if self.shares_of_right is not right:  # the right gradients of another State: nothing that was kept holds
            self.shares_of_right, self.shares_by_steps = right, {}
        step_names = tuple(step.name for step in steps)
        if step_names not in self.shares_by_steps:
            inputs = self.inputs_of(steps)
            are_tensors = all(map(self.is_tensor, inputs))
            self.shares_by_steps[step_names] = self.contributions(tuple(steps), inputs, right) if are_tensors else None
        return self.shares_by_steps[step_names]

    def is_misused(self, end: Step, call: _Call, right: Mapping[str, Tensor]) -> bool:
        """Whether a call that computes with an end itself has all right shares without it: then what takes the end
        elsewhere should take another value."""
        if call.summed_value or not any(end.name in values_taken_by(step) for step in call.backward):
            return False
        return not self.misses_a_share(call, right)

    def misses_a_share(self, call: _Call, right: Mapping[str, Tensor]) -> bool:
        """Whether the backward has the right share of a call in the gradient of a value nowhere."""
        shares = {} if call.summed_value else self.shares(call.steps, right) or {}
        return not all(self.has_share(call, name, right) for name in shares)

    def has_share(self, call: _Call, name: str, right: Mapping[str, Tensor]) -> bool:
        """Whether the backward has the right share of a call in the gradient of a value, or the right sum of all
        shares, in a step for the call or in what such a step takes; or whether this share is 0."""
        share = (self.shares(call.steps, right) or {}).get(name)
        if share is None or not self.is_nonzero(share):
            return True
        own_steps = [step.name for step in call.backward]
        own_ends = [name for name in own_steps if name in self.ends]
        # Ends come first, because they are the likeliest to have it.
        names = dict.fromkeys(
            [*own_ends, *own_steps, *(name for step in call.backward for name in values_taken_by(step))]
        )
        values = [value for name in names if is_gradient(value := self.backward_values.get(name))]
        # A call without steps hands on what it takes, which leads to it.
        values += [
            self.backward_values[end]
            for end, uses in self.taken_as_gradient_of.items()
            if not own_steps and name in uses and end in self.ends
        ]
        expected = [share, right[name]] if name in right else [share]
        return any(self.is_one_of(value, expected) for value in values)

    # ---- The next wrong places

    def next_places(self, places: Sequence[WrongPlace], state: State) -> tuple[list[WrongPlace], State] | None:
        """Return `places` with a further one, or with several, and the State with these; None if no place explains a
        wrong gradient. A place explains one if fewer ports or fewer ends are wrong when it is taken for given."""
        # What the program cuts off itself comes first, all cuts at once: each alone may explain nothing, if another way
        # around it is cut too.
        if not places and (cuts := self.places_of_cuts(state.right)):
            after = self.assess(cuts)
            if len(after.wrong) < len(state.wrong):
                return cuts, after
        found_of_function = None
        for place in itertools.chain(
            self.calls_without_steps(state.right), self.places_of_calls(state), self.places_of_ports(state)
        ):
            after = self.assess([*places, place])
            own_steps = {step.name for step in place.backward_steps}  # given now: whether they are wrong does not count
            has_fewer_wrong_ends = len(after.wrong_ends - own_steps) < len(state.wrong_ends - own_steps)
            if len(after.wrong) < len(state.wrong) or has_fewer_wrong_ends:
                return [*places, place], after
            # Behind a wrong Function another one may hide what the first explains.
            function = self.call_of_step[place.steps[0].name].function
            if found_of_function is None and place.backward_steps and function is not None:
                found_of_function = [*places, place], after
        return found_of_function

    def places_of_cuts(self, right: Mapping[str, Tensor]) -> list[WrongPlace]:
        """Return the steps at which the program cuts a gradient off, by `detach` or `no_grad`, as wrong places that
        return none; not those in a custom autograd.Function, whose forward may detach what its backward handles."""
        lines_of_functions = set[str]().union(*self.functions)
        places = []
        for step in self.step_by_name.values():
            line = "" if step.source is None else step.source.at
            if step.name not in self.cut_values or step.name not in self.reaching or line in lines_of_functions:
                continue
            inputs = [name for name in self.inputs_of([step]) if name not in self.cut_values and self.is_tensor(name)]
            shares = self.contributions((step,), inputs, right) if inputs else {}
            inputs = [name for name in inputs if name in shares and self.is_nonzero(shares[name])]
            if inputs:
                no_gradients = (None,) * len(inputs)
                # 1 is the relative error of a gradient that is missing.
                places.append(WrongPlace((step,), tuple(inputs), no_gradients, (1.0,) * len(inputs), backward_steps=()))
        return places

    def calls_without_steps(self, right: Mapping[str, Tensor]) -> Iterator[WrongPlace]:
        """Yield the calls of custom autograd.Functions that have no steps in the backward, the last ones first, as
        wrong places: their backward returns the gradient of a result as it is, or none."""
        for call in reversed(self.calls):
            results = [
                step.name for step in call.steps if step.name in right and self.is_used_elsewhere(step, call.steps)
            ]
            if call.function is None or call.backward or not results:
                continue
            shares = self.shares(call.steps, right)
            if not shares:  # they are not known, or the call has none
                continue
            # Candidates: the gradient of each result, which the backward may return as it is, and none.
            for gradient in (*(right[name] for name in results), None):
                returned = {}
                for name in self.inputs_of(call.steps):
                    value = self.forward_values[name]
                    fits = gradient is not None and gradient.numel() == value.numel()
                    returned[name] = gradient.reshape(value.shape) if gradient is not None and fits else None
                yield from self.wrong_place(call.steps, returned, shares, backward_steps=())

    def places_of_calls(self, state: State) -> Iterator[WrongPlace]:
        """Yield the calls to blame, in the order of the backward, each with what the backward returned for it."""
        for call in state.to_blame:
            wrong = [step.name for step in call.backward if step.name in state.wrong_ends]
            # A sum is blamed for a wrong end only (`misses_a_share`), and the last one is the whole sum.
            if call.summed_value:
                yield from self.place_of_sum(
                    call.summed_value, state.right, self.backward_values[wrong[-1]], self.steps_computing(wrong, call)
                )
                continue
            shares = self.shares(call.steps, state.right) or {}
            returned = self.returned_by(call, shares, wrong, state.right)
            # Without a wrong end, a share is missing, and all steps of the call are to blame for that.
            yield from self.wrong_place(
                call.steps, returned, shares, self.steps_computing(wrong, call) or call.backward
            )

    def places_of_ports(self, state: State) -> Iterator[WrongPlace]:
        """Yield, for each port with a wrong gradient, the steps that take the port, if the backward hands its right
        gradient on, though it returns another."""
        end_values = [self.backward_values[name] for name in self.ends]
        for port in state.wrong:
            name = self.local_of_port[port]
            right = state.right.get(name)
            if right is not None and self.is_nonzero(right) and self.is_one_of(right, end_values):
                yield from self.place_of_sum(name, state.right, self.setting.gradients[port], backward_steps=())

    def returned_by(
        self, call: _Call, shares: Mapping[str, Tensor], wrong: list[str], right: Mapping[str, Tensor]
    ) -> dict[str, Tensor | None]:
        """Return what the backward returned for each value that a call takes, by its name: the right share if this is
        handed on to where the value comes from, else the wrong value that is handed on there, None if none is. `wrong`
        are the ends of the call that are wrong; each stands for one value that the call takes."""
        returned: dict[str, Tensor | None] = {}
        ends_left = list(wrong)
        for name in self.inputs_of(call.steps):
            share, origins = shares.get(name), self.origins(name)
            # What others take for the gradient of this value, or of one that it comes from.
            candidates = [
                n
                for n, names in self.taken_as_gradient_of.items()
                if origins & names and is_gradient(self.backward_values.get(n))
            ]
            own_ends = [end for end in candidates if end in ends_left]
            is_handed_on = any(
                share is not None and self.is_one_of(self.backward_values[n], [share]) for n in candidates
            )
            # A share of zeros need not be handed on at all.
            if share is not None and (is_handed_on or not (own_ends or self.is_nonzero(share))):
                returned[name] = share
                continue
            size = self.forward_values[name].numel()
            # No end leads there: one with as many elements is taken for it.
            own_ends = own_ends or [end for end in ends_left if self.backward_values[end].numel() == size]
            end = own_ends[0] if own_ends else None
            rest = self.gradient_less_other_shares(name, call, right)
            if rest is not None:
                returned[name] = rest
            elif end is not None and name not in self.cut_values and self.backward_values[end].numel() == size:
                returned[name] = self.reshaped_as(self.backward_values[end], name)
            else:
                returned[name] = None
            ends_left = [other for other in ends_left if other != end]
        return returned

    def origins(self, name: str) -> set[str]:
        """Return the name of a value with those of the values that it comes from through calls without steps in the
        backward, such as `add` and `view`: the backward has one tensor for the gradients of all of them."""
        if name not in self.origins_by_name:
            # `names_behind` goes from a value to the arguments of its step, and stops where the function is true.
            self.origins_by_name[name] = set(
                names_behind(
                    [name], self.step_by_name, lambda n: n in self.call_of_step and bool(self.call_of_step[n].backward)
                )
            )
        return self.origins_by_name[name]

    def rearranged_from(self, name: str) -> Iterator[tuple[str, list[Step]]]:
        """Yield a value without steps, then the values that it is rearranged from, as `weight` of `weight.t()`, each
        with the steps that do so; none of them has steps in the backward."""
        steps: list[Step] = []
        yield name, steps
        while (
            name in self.step_by_name
            and self.step_by_name[name].target in REARRANGING
            and not self.call_of_step[name].backward
        ):
            steps = [self.step_by_name[name], *steps]
            (name, *_) = values_taken_by(self.step_by_name[name])
            yield name, steps

    def reshaped_as(self, gradient: Tensor, name: str) -> Tensor:
        """Return a gradient of a value, or of what this value is rearranged from, in the shape of the value."""
        for origin, steps in self.rearranged_from(name):
            if steps and self.forward_values[origin].shape == gradient.shape:
                return DualRun(self.graph).run_steps(steps, {**self.forward_values, origin: gradient})[name]
        return gradient.reshape(self.forward_values[name].shape)

    def gradient_less_other_shares(self, name: str, call: _Call, right: Mapping[str, Tensor]) -> Tensor | None:
        """Return what the backward returned for an input of the forward, less the right shares of all calls but `call`,
        in the layout of the value `name`, which is this input, rearranged or not; None if the value is no input, or if
        the backward has not computed one of these shares."""
        ports = {self.local_of_port[port]: gradient for port, gradient in self.setting.gradients.items()}
        for origin, steps in self.rearranged_from(name):
            if origin in ports:
                others = [s for s in self.takers_of(origin) if s not in steps and self.call_of_step[s.name] is not call]
                gradient = ports[origin]
                for other in dict.fromkeys(self.call_of_step[s.name] for s in others):
                    share = (self.shares(other.steps, right) or {}).get(origin)
                    if not self.has_share(other, origin, right):
                        return None  # another call is wrong too
                    gradient = gradient if share is None else gradient - share
                return self.reshaped_as(gradient, name)
        return None

    def steps_computing(self, ends: Sequence[str], call: _Call) -> list[Step]:
        """Return the steps of the backward of a call that compute these ends."""
        own_steps = {step.name: step for step in call.backward}
        return [step for step in call.backward if step.name in set(names_behind(ends, own_steps))]

    def wrong_place(
        self,
        steps: Sequence[Step],
        returned: Mapping[str, Tensor | None],
        shares: Mapping[str, Tensor],
        backward_steps: Sequence[Step],
    ) -> Iterator[WrongPlace]:
        """Yield these steps as a wrong place, if what the backward returned for one of the values that they take
        (`returned`, by the value's name) differs from its right share (`shares`); else nothing."""
        errors = tuple(self.error_of(gradient, shares.get(name)) for name, gradient in returned.items())
        if max(errors, default=0.0) > NEAR:
            yield WrongPlace(tuple(steps), tuple(returned), tuple(returned.values()), errors, tuple(backward_steps))

    def place_of_sum(
        self, name: str, right: Mapping[str, Tensor], value: Tensor, backward_steps: Sequence[Step]
    ) -> Iterator[WrongPlace]:
        """Yield the steps that take the forward's value `name` as a wrong place, where the backward has the gradient
        `value` for the sum of their shares; nothing if this is right, or cannot be that sum."""
        steps = self.takers_outside_call(name)
        shares = self.shares(steps, right)
        if shares is None or name not in shares or value.numel() != right[name].numel():
            return
        sum_ = self.gradient_from_others(name, right)
        # The whole error of the sum is entered at this one value, whichever of the shares is wrong.
        returned = {**shares, name: shares[name] + value.reshape(sum_.shape) - sum_}
        yield from self.wrong_place(steps, returned, shares, backward_steps)

    # ---- Of the forward

    def is_used_elsewhere(self, step: Step, steps: Sequence[Step]) -> bool:
        """Whether a step that is none of `steps` takes the result of `step`, or the forward returns this result."""
        takers = self.takers.get(step.name, ())
        return step.name in self.with_tangent or any(taker not in steps for taker in takers)

    def is_tensor(self, name: str) -> bool:
        """Whether a value is one tensor, not several results of one step."""
        return isinstance(self.forward_values[name], Tensor)

    def takers_outside_call(self, name: str) -> list[Step]:
        """Return the steps that take a value, but for those of the call that makes it. A step with several results is
        followed by the `operator.getitem` steps that take them."""
        call = self.call_of_step.get(name)
        takers = [step for step in self.takers_of(name) if call is None or step not in call.steps]
        return list(dict.fromkeys(part for step in takers for part in (step, *self.result_steps(step))))

    def gradient_from_others(self, name: str, right: Mapping[str, Tensor], own: Collection[Step] = ()) -> Tensor:
        """Return the right gradient of a value less the shares of its takers in `own`; if `own` is empty, less those of
        its takers in the call that makes the value."""
        call = self.call_of_step.get(name)
        own = own or (call.steps if call is not None else ())
        gradient = right[name]
        for step in self.takers_of(name):
            if step in own:
                shares = self.shares(list(dict.fromkeys((step, *self.result_steps(step)))), right) or {}
                gradient = gradient - shares[name] if name in shares else gradient
        return gradient

    def result_steps(self, step: Step) -> list[Step]:
        """Return the steps whose results are the tensors that a step makes: itself, or, if it has several results, the
        `operator.getitem` steps that take one."""
        if isinstance(self.forward_values[step.name], Tensor):
            return [step]
        return [taker for taker in self.takers.get(step.name, ()) if taker.target == "operator.getitem"]

    def inputs_of(self, steps: Sequence[Step]) -> list[str]:
        """Return the values that these steps take from others and that may have a gradient, each once."""
        own_names = {step.name for step in steps}
        names = dict.fromkeys(name for step in steps for name in values_taken_by(step) if name not in own_names)
        return [name for name in names if self.may_have_gradient(name)]

    def takers_of(self, name: str) -> list[Step]:
        """Return the steps that take a value, and on which a result with a tangent depends."""
        return [step for step in self.takers.get(name, ()) if step.name in self.reaching]

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
        own_names = {step.name for step in steps}
        env = dict(self.forward_values)
        leaves = {name: env[name].detach().clone().requires_grad_() for name in inputs}
        with torch.enable_grad():
            env |= {name: leaf * 1 for name, leaf in leaves.items()}  # a step may write in place, which no leaf allows
        # The steps draw what they drew in the forward; `run_steps` enters their results into `env`.
        DualRun(self.graph, recorded=own_names, states=self.generator_states).run_steps(steps, env)
        # Gradients enter where other steps use a result. A result that only these steps use has none from outside.
        results_with_gradients = [
            (env[step.name], self.gradient_from_others(step.name, right, steps))
            for step in steps
            if step.name in right and self.is_used_elsewhere(step, steps) and env[step.name].requires_grad
        ]
        if not results_with_gradients or not leaves:
            return {}
        gradients = torch.autograd.grad(
            [value for value, _ in results_with_gradients],
            list(leaves.values()),
            [g for _, g in results_with_gradients],
            allow_unused=True,
        )
        return {name: to_dense(g) for name, g in zip(leaves, gradients, strict=True) if g is not None}


# ---- Values


def to_dense(value: Tensor) -> Tensor:
    """Return a tensor, made dense if it is sparse."""
    return value if value.layout is torch.strided else value.to_dense()


def run_backward(setting: Setting) -> dict[str, Any]:
    """Return every value of the backward by its name, tangents and saved values too."""
    with torch.no_grad():
        return DualRun(setting.backward).values(setting.backward_inputs)


def run_forward(setting: Setting) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return every value of the forward by its name, and, by the names of the steps that draw random numbers, the
    generator's state before each."""
    torch.manual_seed(setting.program_seed)
    run = DualRun(setting.forward)
    return run.values(setting.inputs), run.states_seen


def values_taken_by(step: Step) -> list[str]:
    """Return the names of the values that a step takes, each once."""
    return list(dict.fromkeys(used(step)))


def takers_by_name(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Return the steps that take each value, by its name."""
    takers: dict[str, list[Step]] = {}
    for step in steps:
        for name in values_taken_by(step):
            takers.setdefault(name, []).append(step)
    return takers


def error_of(gradient: Tensor | None, right: Tensor | None, largest: float = 0.0) -> float:
    """Return the relative difference of a gradient from the right one; None is a gradient of zeros. With the size of
    the largest gradient, two that are smaller than its rounding are the same: the gradient of a key's bias is 0 but for
    rounding."""
    if gradient is None or right is None:
        other = right if gradient is None else gradient
        return 0.0 if other is None or not bool((other.abs() > LEFT * largest).any()) else 1.0
    # `relative_error` divides by LEAST_PART of its last argument at least: so a difference of LEFT times the largest
    # counts as NEAR.
    return relative_error(gradient, right, LEFT / (LEAST_PART * NEAR) * largest)


LEAST_PART = 1e-6
"""A gradient that is smaller than this part of the largest is compared as if it had that size."""


def relative_error(gradient: Tensor, expected: Tensor, largest: float) -> float:
    """Return the difference of two gradients relative to their size, or to a small part of the largest of all; 1 if
    they have NaN or Inf in different places."""
    # `distance` divides the largest difference of elements by the size of `expected`, or by its last argument if more.
    error = distance(gradient, expected, max(size_of(gradient), LEAST_PART * largest))
    return error if math.isfinite(error) else 1.0


def is_rearranged(value: Tensor, other: Tensor, largest: float) -> bool:
    """Whether two gradients are one, up to rounding, in any layout: with dimensions in another order, or reshaped."""
    if value.numel() != other.numel():
        return False
    if sorted(value.shape) == sorted(other.shape):
        orders = itertools.islice(itertools.permutations(range(value.dim())), MAX_ORDERS)
        permuted = (value.permute(order) for order in orders)
        return any(left.shape == other.shape and error_of(left, other, largest) <= NEAR for left in permuted)
    # Reshaped: how is not known, so the sorted elements are compared. Complex numbers have no order, so both of their
    # parts are sorted as numbers.
    real_numbers = [
        torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in (value, other)
    ]
    left, right = (numbers.flatten().sort().values for numbers in real_numbers)
    return left.shape == right.shape and error_of(left, right, largest) <= NEAR


MAX_ORDERS = 24
"""How many orders of dimensions are compared: all of a tensor with 4 dimensions."""


def is_gradient(value: Any) -> bool:
    """Whether a value of a backward may be a gradient: a dense tensor of floats or complex numbers."""
    return may_have_tangent(value) and is_inexact(value)
