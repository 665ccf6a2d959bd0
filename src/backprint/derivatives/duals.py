"""The derivative of a graph along a direction, by forward-mode AD of its own steps.

Each step runs on dual numbers: PyTorch has a formula for the tangent of nearly every operator, and these formulas are
not those of the backward. An operator without one is decomposed; if it has no decomposition, its tangent comes from
the derivative of its backward, confirmed by differences; and from differences alone where it has no second derivative.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from backprint._torch.autograd import load_tangent_decompositions
from backprint._torch.operators import decomposition_table
from backprint._torch.pytree import tree_flatten, tree_map, tree_unflatten
from backprint.errors import BackprintError, ReplayError, for_program
from backprint.fx.values import check_call, check_guard_step, resolve, value_evaluator
from backprint.graph.nouns import Graph, Step
from backprint.graph.text import show_step
from backprint.lowering.operators import OWN, RECURRENT
from backprint.replaying.run import AS_WRITTEN, feed, last_uses, subgraphs, taken_dtype
from backprint.values.tree import plain_leaves

aten = torch.ops.aten


@dataclass(slots=True)
class Tangents:
    """The results of a graph along a direction: `values` and `tangents` of its results in order, None where a result
    does not depend on the direction. The operators whose tangent was not a formula are named."""

    values: tuple[Any, ...]
    tangents: tuple[Any, ...]
    by_second_derivative: set[str] = field(default_factory=set)
    by_differences: set[str] = field(default_factory=set)


Watch = Callable[[str, Any, Any], None]
"""Is called with the name, the value and the tangent of each step."""


class DualRun:
    """One run of a graph on dual numbers. Steps in `constant` have results without a tangent; with `all_require_grad`
    autograd records how results depend on values that depend on no input. Operators in `refuted` are run as if they had
    no formula for their tangent, because theirs is wrong.
    """

    def __init__(
        self,
        graph: Graph,
        constant: Collection[str] = (),
        watch: Watch | None = None,
        all_require_grad: bool = False,
        refuted: Collection[str] = (),
    ) -> None:
        self.graph, self.constant, self.watch, self.all_require_grad = graph, constant, watch, all_require_grad
        self.refuted = refuted
        self.by_second_derivative: set[str] = set()
        self.by_differences: set[str] = set()

    def values(self, inputs: Mapping[Any, Any]) -> dict[str, Any]:
        """Return every value of the graph by its name, recorded by autograd where an input requires grad."""
        with AS_WRITTEN(), torch.enable_grad():
            env = feed(self.graph, inputs, False, graded=True)
        return self.continued(self.graph.steps, env)

    def continued(self, steps: Iterable[Step], env: dict[str, Any]) -> dict[str, Any]:
        """Run steps of the graph on the values so far, and return these with the values of the steps."""
        with AS_WRITTEN(), torch.enable_grad():
            evaluate = value_evaluator(env, subgraphs(self.graph))
            for step in steps:
                self.perform(step, env, evaluate)
        return env

    def along(self, inputs: Mapping[Any, Any], direction: Mapping[str, Tensor]) -> Tangents:
        """Return the results on these inputs, with their tangents along a direction; both are by a port's name."""
        load_tangent_decompositions()
        with forward_ad.dual_level(), AS_WRITTEN(), torch.enable_grad():
            duals = {
                name: forward_ad.make_dual(value.clone(), direction[name]) if name in direction else copied(value)
                for name, value in inputs.items()
            }
            env = feed(self.graph, duals, False, graded=True)
            evaluate = value_evaluator(env, subgraphs(self.graph))
            last = last_uses(self.graph)
            for index, step in enumerate(self.graph.steps):
                self.perform(step, env, evaluate)
                for name in last.get(index, ()):
                    env.pop(name, None)
            results = tuple(evaluate(result) for result in self.graph.results)
            pairs = [unpacked(result) for result in results]
        return Tangents(
            tuple(value for value, _ in pairs),
            tuple(tangent for _, tangent in pairs),
            self.by_second_derivative,
            self.by_differences,
        )

    def perform(self, step: Step, env: dict[str, Any], evaluate: Callable[[Any], Any]) -> None:
        """Run one step."""
        args, kwargs = [evaluate(value) for value in step.args], {key: evaluate(value) for key, value in step.kwargs}
        if step.is_guard:
            check_guard_step(step, *args)
            return
        function = resolve(step.target)
        try:
            if function not in RECURRENT:  # its form takes no workspace, which the check is about
                check_call(step.target, function, args, kwargs)
            with taken_dtype(step, args, kwargs):
                result = self.call(step, function, args, kwargs)
        except BackprintError:
            raise
        except Exception as error:
            where = f" ({step.source.file}:{step.source.line})" if step.source else ""
            raise OperatorError(f"`{show_step(step)[:300]}`{where}: {type(error).__name__}: {error}", step) from error
        if step.name in self.constant:
            result = tree_map(without_tangent, result)
        if self.all_require_grad:
            result = tree_map(requiring_grad, result)
        env[step.name] = result
        if self.watch is not None:
            self.watch(step.name, *unpacked(result))

    def call(self, step: Step, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a step with its tangent; an operator that refuses float64 or has no formula is
        decomposed."""
        rule = RULES.get(step.target)
        if rule is not None:
            return rule(function, args, kwargs)
        if function is torch.ops.higher_order.run_with_rng_state:  # passes no tangent on
            state, function, *args = args
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                return self.call(replace(step, target=str(function)), function, args, kwargs)
        if step.target in self.refuted and has_tangent(args, kwargs):
            return self.without_formula(step.target, function, args, kwargs)
        function = RECURRENT.get(function, function)
        before = torch.get_rng_state() if is_random(function) else None
        try:
            result = for_program(function, *args, **kwargs)
            return result if before is None else tree_map(drawn, result)
        except (NotImplementedError, RuntimeError) as error:
            if before is not None:
                torch.set_rng_state(before)
            if not any(words in str(error) for words in (*WITHOUT_FORMULA, *REFUSALS)):
                raise
            for form in forms_of(function):
                with contextlib.suppress(NotImplementedError, RuntimeError, TypeError):
                    return for_program(form, *args, **kwargs)
            if not any(words in str(error) for words in WITHOUT_FORMULA):
                raise
        return self.without_formula(step.target, function, args, kwargs)

    def without_formula(self, target: str, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result, with its tangent, of an operator that has no formula for it and no decomposition."""
        call = ActiveCall(function, args, kwargs)
        estimated, accuracy = call.by_differences()
        try:
            tangents = call.by_second_derivative()
        except (RuntimeError, NotImplementedError):
            tangents = None
        if tangents is not None and all(map(near, tangents, estimated)):
            self.by_second_derivative.add(target)
        else:
            if accuracy > UNSETTLED:
                raise ReplayError(f"{target} has no formula for its tangent, and differences of it do not settle")
            tangents = estimated
            self.by_differences.add(target)
        return call.with_tangents(tangents)


WITHOUT_FORMULA = ("forward AD", "forward mode")
"""What PyTorch's error says of an operator that has no formula for its tangent."""


REFUSALS = ("not implemented", "dtype", "scalar type", "got Double", "bf16", "BFloat16", "view size is not compatible")
"""What errors say of an operator that does not take float64, or these strides; another form of it may. A value that an
operator refuses is refused: its other forms might not look."""


def forms_of(function: Any) -> Iterator[Callable[..., Any]]:
    """Yield other forms of an operator: one for any strides, this project's own, and torch's decomposition."""
    if function is aten.view.default:
        yield torch.reshape
    for table in (OWN, decomposition_table):
        if function in table:
            yield table[function]


class OperatorError(ReplayError):
    """A step that cannot run in float64, or on dual numbers."""

    def __init__(self, message: str, step: Step) -> None:
        super().__init__(message)
        self.step = step


# ---- Operators whose tangent is not what forward-mode AD says


def through(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return a detached tensor with its tangent: whether the program means to stop there is not for us to assume."""
    return aten.alias.default(args[0])


def embedding(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Look rows up; the padding row has no tangent, because autograd gives it no gradient."""
    weight, indices, *rest = args
    padding = rest[0] if rest else kwargs.get("padding_idx", -1)
    primal, tangent = forward_ad.unpack_dual(weight)
    if tangent is not None and padding >= 0:
        tangent = tangent.clone()
        tangent[padding] = 0
        weight = forward_ad.make_dual(primal, tangent)
    return function(weight, indices, *rest, **kwargs)


def copied_values(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return a source in the shape and dtype of a destination: `aten.copy` has no derivative in some versions."""
    destination, source, *_ = args
    return source.to(destination.dtype).expand_as(destination).clone()


def chosen_branch(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run the branch of a `cond` that its predicate chooses."""
    predicate, when_true, when_false, operands = args
    return (when_true if bool(predicate) else when_false)(*operands)


RULES: Mapping[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "aten.detach.default": through,
    "aten.copy.default": copied_values,
    "aten.embedding.default": embedding,
    "torch.ops.higher_order.cond": chosen_branch,
}
"""Operators that are run in another way on dual numbers."""


# ---- Dual numbers, in trees


def copied(value: Any) -> Any:
    """Return a copy of a tensor: a graph may write into its inputs."""
    return value.clone() if isinstance(value, Tensor) and value.layout is torch.strided else value


def unpacked(value: Any) -> tuple[Any, Any]:
    """Return a value and its tangent; both are trees alike, and None stands for no tangent."""
    leaves, structure = tree_flatten(value)
    pairs = [forward_ad.unpack_dual(leaf) if isinstance(leaf, Tensor) else (leaf, None) for leaf in leaves]
    primals = [pair[0].detach() if isinstance(pair[0], Tensor) else pair[0] for pair in pairs]
    tangents = [pair[1].detach() if isinstance(pair[1], Tensor) else None for pair in pairs]
    return tree_unflatten(primals, structure), tree_unflatten(tangents, structure)


def has_tangent(*trees: Any) -> bool:
    """Whether a tensor in trees has a tangent."""
    leaves = (leaf for tree in trees for leaf in plain_leaves(tree))
    return any(isinstance(leaf, Tensor) and forward_ad.unpack_dual(leaf).tangent is not None for leaf in leaves)


def without_tangent(value: Any) -> Any:
    """Return a tensor without its tangent, and without what autograd has recorded of it."""
    return forward_ad.unpack_dual(value).primal.detach() if isinstance(value, Tensor) else value


def requiring_grad(value: Any) -> Any:
    """Return a tensor that requires grad, if its dtype can."""
    if not isinstance(value, Tensor) or value.requires_grad or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.detach().requires_grad_()


def drawn(value: Any) -> Any:
    """Return a random tensor that depends on nothing where its operator has no derivative: `bernoulli` draws into the
    memory that it takes."""
    if isinstance(value, Tensor) and type(value.grad_fn).__name__ == "NotImplemented":
        return value.detach()
    return value


def is_random(function: Any) -> bool:
    """Whether an operator draws from torch's generator."""
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())


# ---- One call without a formula

WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
"""Of central differences of eighth order."""

STEP = 1e-2
"""The step of differences, relative to the inputs: with eighth order the error of the formula is about 1e-16."""


class ActiveCall:
    """One call of an operator on dual numbers, as a function of those of its tensors that have a tangent."""

    def __init__(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.function = function
        leaves, self.structure = tree_flatten((list(args), dict(kwargs)))
        pairs = [forward_ad.unpack_dual(leaf) if isinstance(leaf, Tensor) else (leaf, None) for leaf in leaves]
        self.leaves = [pair[0].detach() if isinstance(pair[0], Tensor) else pair[0] for pair in pairs]
        self.directions = {place: pair[1] for place, pair in enumerate(pairs) if pair[1] is not None}
        self.random = torch.get_rng_state()
        self.result = self.at({})
        self.after = torch.get_rng_state()

    def at(self, moved: Mapping[int, Tensor]) -> Any:
        """Return the result where some of the tensors have other values."""
        torch.set_rng_state(self.random)
        leaves = [moved.get(place, copied(leaf)) for place, leaf in enumerate(self.leaves)]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return self.function(*args, **kwargs)

    def by_second_derivative(self) -> list[Tensor | None]:
        """Return the tangents by the derivative of the operator's backward, which is linear in its tangents."""
        inputs = {place: self.leaves[place].clone().requires_grad_() for place in self.directions}
        results = tree_flatten(self.at({place: value.clone() for place, value in inputs.items()}))[0]
        active = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
        weights = [torch.zeros_like(result, requires_grad=True) for result in active]
        gradients = torch.autograd.grad(active, list(inputs.values()), weights, create_graph=True, allow_unused=True)
        linear = [
            (gradient, self.directions[place])
            for place, gradient in zip(inputs, gradients, strict=True)
            if gradient is not None
        ]
        tangents = iter(torch.autograd.grad([g for g, _ in linear], weights, [v for _, v in linear], allow_unused=True))
        return [next(tangents) if isinstance(r, Tensor) and r.requires_grad else None for r in results]

    def by_differences(self) -> tuple[list[Tensor | None], float]:
        """Return the tangents by central differences of eighth order, and how far two estimates are apart.

        The step is the one at which they change least when it is made smaller: a larger one leaves the neighbourhood
        of a function that is steep, a smaller one rounds.
        """
        size = max(map(largest, (self.leaves[place] for place in self.directions)))
        most = max(map(largest, self.directions.values()))
        step = STEP * max(size, 1e-2) / max(most, 1e-300)
        estimates: list[list[Tensor | None]] = []
        for power in range(FINER):
            try:
                estimates.append(self.differences(step / 8**power))
            except RuntimeError:  # so far along the direction the operator refuses its inputs
                if power == FINER - 1:
                    raise
        if len(estimates) == 1:
            return estimates[0], math.inf
        changes = [change(*pair) for pair in itertools.pairwise(estimates)]
        return estimates[changes.index(min(changes)) + (min(changes) > 0)], min(changes)

    def differentiable(self) -> list[bool]:
        """Return which results have a gradient."""
        inputs = {place: self.leaves[place].clone().requires_grad_() for place in self.directions}
        results = tree_flatten(self.at({place: value.clone() for place, value in inputs.items()}))[0]
        return [isinstance(result, Tensor) and result.requires_grad for result in results]

    def differences(self, step: float) -> list[Tensor | None]:
        """Return the tangents by central differences with this step."""
        active = self.differentiable()
        totals: list[Any] = [None] * len(active)
        for count, weight in enumerate(WEIGHTS, 1):
            ahead, behind = (tree_flatten(self.moved(sign * count * step))[0] for sign in (1, -1))
            for place, (up, down) in enumerate(zip(ahead, behind, strict=True)):
                if active[place]:
                    share = (up - down) * (weight / step)
                    totals[place] = share if totals[place] is None else totals[place] + share
        return totals

    def moved(self, step: float) -> Any:
        """Return the result so many steps along the direction."""
        return self.at({place: self.leaves[place] + step * v for place, v in self.directions.items()})

    def with_tangents(self, tangents: Sequence[Tensor | None]) -> Any:
        """Return the result with these tangents."""
        torch.set_rng_state(self.after)
        leaves, structure = tree_flatten(self.result)
        duals = [
            leaf if tangent is None else forward_ad.make_dual(leaf.detach(), tangent)
            for leaf, tangent in zip(leaves, tangents, strict=True)
        ]
        return tree_unflatten(duals, structure)


UNSETTLED = 1e-7
"""Differences with two steps that are farther apart, relative to their size, met a kink, or have too few digits."""

FINER = 4
"""How many steps of differences are tried, each an eighth of the one before."""


def change(before: Sequence[Tensor | None], after: Sequence[Tensor | None]) -> float:
    """Return how far two estimates of tangents are apart, relative to their size, where both are finite."""
    most = 0.0
    for left, right in zip(before, after, strict=True):
        if left is not None and right is not None:
            finite = left.isfinite() & right.isfinite()  # an output may be -inf in parts that are used nowhere
            left, right = left[finite], right[finite]
            size = max(largest(left), largest(right), 1e-300)
            most = max(most, largest(left - right) / size)
    return most


def near(left: Tensor | None, right: Tensor | None) -> bool:
    """Whether a tangent is the one that differences estimate."""
    if left is None or right is None:
        return all(value is None or largest(value) == 0 for value in (left, right))
    return left.numel() == 0 or largest(left - right) <= 1e-6 * largest(right) + 1e-12


def largest(value: Tensor) -> float:
    """Return the size of the largest element; 0 without any."""
    return float(value.abs().max()) if value.numel() else 0.0
