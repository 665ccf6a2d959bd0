"""The derivative of a graph along a direction, by forward-mode AD of its own steps.

Each step runs on dual numbers: PyTorch has a formula for the tangent of nearly every operator, and these formulas are
not those of the backward. An operator without one is decomposed; if it has no decomposition, its tangent comes from
the derivative of its backward, confirmed by differences; and from differences alone where it has no second derivative.

- `step`: a Step of the graph, one call, with its `target` as a text (`aten.sin.default`). `function`: the operator
  that the target names, and `args` and `kwargs` its arguments as values.
- A *form* of an operator is a function that computes the same with other operators. A *rule* (RULES) runs an operator
  in another way on dual numbers, where forward-mode AD does not say what is wanted. RECURRENT has forms of the LSTM of
  a CPU (`forms`).
- `active`: of a result, that autograd can differentiate it.
- In a block `with AS_WRITTEN():`, autocast casts nothing. `for_program(function, …)` calls a function, and an error of
  it is then the program's, and no defect of ours. `env` has the values of a run so far, by their names in the graph.
- `plain_leaves` yields the leaves of containers; `tree_map` and the like are PyTorch's pytree functions.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from backprint._torch.autograd import load_tangent_decompositions
from backprint._torch.dynamo import not_loading
from backprint._torch.operators import OpOverload, decomposition_table, schema_of
from backprint._torch.pytree import tree_flatten, tree_map, tree_unflatten
from backprint.derive.forms import OWN, RECURRENT
from backprint.errors import BackprintError, ReplayError, for_program
from backprint.graph.fx.values import check_call, check_guard_step, resolve, value_evaluator
from backprint.graph.nouns import Graph, Step, TensorSpec
from backprint.graph.text import show_step
from backprint.prove.run import AS_WRITTEN, feed, last_uses, subgraphs, taken_dtype, unscaled, updated_scale
from backprint.prove.scatter import can_be_an_update
from backprint.values.tree import plain_leaves

aten = torch.ops.aten


@dataclass(slots=True)
class _Tangents:
    """The results of a graph along a direction: `values` and `tangents` of its results in order, None where a result
    does not depend on the direction. Operators whose tangent did not come from PyTorch's formula are named, by where it
    came from."""

    values: tuple[Any, ...]
    tangents: tuple[Any, ...]
    by_second_derivative: set[str] = field(default_factory=set)
    by_differences: set[str] = field(default_factory=set)


Watch = Callable[[str, Any, Any], None]
"""Is called with the name, the value and the tangent of each step."""


class DualRun:
    """One run of a graph on dual numbers, values with a tangent.

    Steps in `constant` have results without a tangent. Results of steps in `recorded` require grad, though they may
    depend on no input. Operators in `refuted` run as if they had no formula for their tangent, because it is wrong.
    `states` has the generator's state from which a step draws. Without `padding`, the padding row of an embedding has a
    tangent. `watch` is called with the name, the value and the tangent of each step.
    """

    def __init__(
        self,
        graph: Graph,
        constant: Collection[str] = (),
        watch: Watch | None = None,
        recorded: Collection[str] = (),
        refuted: Collection[str] = (),
        states: Mapping[str, Tensor] | None = None,
        padding: bool = True,
    ) -> None:
        self.graph, self.constant, self.watch, self.recorded = graph, constant, watch, recorded
        self.refuted, self.padding = refuted, padding
        self.states = states or {}
        self.states_seen: dict[str, Tensor] = {}
        """The generator's state before each step that draws."""
        self.by_second_derivative: set[str] = set()
        self.by_differences: set[str] = set()
        self.accuracy = 0.0
        """How far two estimates by differences are apart, at most."""

    def values(self, inputs: Mapping[Any, Any]) -> dict[str, Any]:
        """Return every value of the graph by its name, recorded by autograd where an input requires grad."""
        with AS_WRITTEN(), torch.enable_grad():
            # `feed` binds inputs to their names in the graph: not strict, because dtypes are others than at capture,
            # and graded, so that inputs keep that they require grad.
            env = feed(self.graph, inputs, strict=False, graded=True)
        return self.run_steps(self.graph.steps, env)

    def run_steps(self, steps: Iterable[Step], env: dict[str, Any]) -> dict[str, Any]:
        """Run steps of the graph on the values in `env`, by name; enter their values into `env`, and return it."""
        with AS_WRITTEN(), torch.enable_grad():
            evaluate = value_evaluator(env, subgraphs(self.graph))
            for step in steps:
                self.perform(step, env, evaluate)
        return env

    def run_along(self, inputs: Mapping[Any, Any], direction: Mapping[str, Tensor]) -> _Tangents:
        """Return the results on these inputs, with their tangents along a direction. `inputs` and `direction` are by
        the names of ports; an input that is not in `direction` has no tangent."""
        # Formulas for tangents that PyTorch loads at first use are loaded now. `not_loading`: no step loads Dynamo.
        load_tangent_decompositions()
        with not_loading(), forward_ad.dual_level(), AS_WRITTEN(), torch.enable_grad():
            duals = {
                name: forward_ad.make_dual(copy_tensor(value), direction[name])
                if name in direction
                else copy_tensor(value)
                for name, value in inputs.items()
            }
            env = feed(self.graph, duals, strict=False, graded=True)
            evaluate = value_evaluator(env, subgraphs(self.graph))
            last = last_uses(self.graph)  # the names of the values whose last use a step is, by its index
            for index, step in enumerate(self.graph.steps):
                self.perform(step, env, evaluate)
                for name in last.get(index, ()):
                    env.pop(name, None)
            results = tuple(evaluate(result) for result in self.graph.results)
            pairs = [unpack_dual_tree(result) for result in results]
        return _Tangents(
            tuple(value for value, _ in pairs),
            tuple(tangent for _, tangent in pairs),
            self.by_second_derivative,
            self.by_differences,
        )

    def perform(self, step: Step, env: dict[str, Any], evaluate: Callable[[Any], Any]) -> None:
        """Run one step: check its call, compute its result with the tangent, and put it into `env`. `evaluate` turns an
        argument of a step into its value. What the operator raises becomes a ReplayError that shows the step; a sparse
        result that should have a tangent is refused in the same way."""
        args, kwargs = [evaluate(value) for value in step.args], {key: evaluate(value) for key, value in step.kwargs}
        if step.is_guard:
            check_guard_step(step, *args)
            return
        function = resolve(step.target)
        if is_random(function):
            if step.name in self.states:
                # So that a step that runs alone draws what it drew in the run of the whole graph.
                torch.set_rng_state(self.states[step.name])
            self.states_seen[step.name] = torch.get_rng_state()
        try:
            if function not in RECURRENT:  # the form in RECURRENT takes no workspace, whose size is checked
                check_call(step.target, function, args, kwargs)
            # With the default dtype that the operator took at capture, if that decides the result's.
            with taken_dtype(step, args, kwargs):
                result = self.call(step, function, args, kwargs)
        except BackprintError:
            raise
        except Exception as error:
            where = f" ({step.source.at})" if step.source else ""
            raise _OperatorError(f"`{show_step(step)[:300]}`{where}: {type(error).__name__}: {error}", step) from error
        # Without this, the tangent would be lost without an error.
        if _is_sparse(result) and step.name not in self.constant and _has_tangent(args, kwargs):
            what = f"{step.target} returns a sparse tensor"
            raise _OperatorError(f"{what}, which depends on the inputs: forward-mode AD has no sparse tangents", step)
        if step.name in self.constant:
            result = tree_map(_without_tangent, result)
        if step.name in self.recorded:
            result = tree_map(_requiring_grad, result)
        env[step.name] = result
        if self.watch is not None:
            self.watch(step.name, *unpack_dual_tree(result))

    def call(self, step: Step, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a step with its tangent: by a rule, by the operator itself, by another form of it, or by
        differences, the first of these that is possible."""
        rule = RULES.get(step.target)
        if rule is not None and not (rule is embedding and not self.padding):
            return rule(function, args, kwargs)
        # These two run another operator and pass no tangent on, so that operator is called directly.
        if function is torch.ops.higher_order.run_and_save_rng_state:
            function, *args = args
            return torch.get_rng_state(), self.call(replace(step, target=str(function)), function, args, kwargs)
        if function is torch.ops.higher_order.run_with_rng_state:
            state, function, *args = args
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                return self.call(replace(step, target=str(function)), function, args, kwargs)
        no_formula = step.target in self.refuted or is_custom(function) or _has_wrong_formula(step.target, args)
        if no_formula and _has_tangent(args, kwargs):
            return self.call_without_formula(step.target, function, args, kwargs)
        if _draws_in_captured_dtype(step, function, args, kwargs):
            return self.draw_in_captured_dtype(step, function, args, kwargs)
        function = RECURRENT.get(function, function)
        return self.call_by_first_form(step.target, function, args, kwargs)

    def call_by_first_form(self, target: str, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of an operator with its tangent: by the operator itself, or, if it refuses float64, these
        strides or dual numbers, by its first form that runs, or by differences. Other errors come through."""
        # A try that fails may have drawn: the next form begins with the same state.
        before = torch.get_rng_state() if is_random(function) else None
        try:
            result = for_program(function, *args, **kwargs)
            return result if before is None else tree_map(detach_draw, result)
        except (NotImplementedError, RuntimeError) as error:
            if before is not None:
                torch.set_rng_state(before)
            # PyTorch has no classes for these errors: only their words tell a missing formula from a refused value.
            if not any(words in str(error) for words in (*WITHOUT_FORMULA, *REFUSALS)):
                raise
            for form in _forms_of(function):
                with contextlib.suppress(NotImplementedError, RuntimeError, TypeError):
                    return for_program(form, *args, **kwargs)
            if not any(words in str(error) for words in WITHOUT_FORMULA):
                raise  # the operator refuses these arguments, and differences would call it with the same
        return self.call_without_formula(target, function, args, kwargs)

    def draw_in_captured_dtype(self, step: Step, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return in float64 the random numbers that the operator draws in the dtype of the capture: if it drew in
        float64 it would draw others, and the program might take another branch."""
        assert isinstance(step.spec, TensorSpec)
        dtype = getattr(torch, step.spec.dtype)

        def narrow(value: Any) -> Any:
            """Return a tensor of floats in the dtype of the capture, without a tangent; anything else as it is."""
            is_float = may_have_tangent(value) and value.is_floating_point()
            return _without_tangent(value).to(dtype) if is_float else value

        args, kwargs = tree_map(narrow, (args, kwargs))
        return for_program(function, *args, **kwargs).double()

    def call_without_formula(self, target: str, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result, with its tangent, of an operator that has no formula for it and no decomposition; raise
        ReplayError if differences of it do not settle."""
        # The derivative of the operator's backward is only as right as the backward itself, so differences must confirm
        # it.
        call = _ActiveCall(function, args, kwargs)
        estimated, accuracy = call.tangents_by_differences()
        self.accuracy = max(self.accuracy, accuracy)
        try:
            tangents = call.tangents_by_second_derivative()
        except (RuntimeError, NotImplementedError):
            tangents = None
        tolerance = max(NEAREST, 10 * accuracy)
        if tangents is not None and all(
            is_near(tangent, estimate, tolerance) for tangent, estimate in zip(tangents, estimated, strict=True)
        ):
            self.by_second_derivative.add(target)
        else:
            if accuracy > UNSETTLED:
                raise ReplayError(f"{target} has no formula for its tangent, and differences of it do not settle")
            tangents = estimated
            self.by_differences.add(target)
        return call.with_tangents(tangents)


WITHOUT_FORMULA = ("forward AD", "forward mode", "_efficientzerotensor")
"""Words in PyTorch's error for an operator that has no formula for its tangent; the last one is for a sparse
argument."""


WRONG_FORMULAS: Mapping[str, str | None] = {
    "aten.logcumsumexp.default": None,
    "aten.triangular_solve.default": None,
    "aten.scatter_reduce.two": "prod",
}
"""Operators whose formula for their tangent is wrong in PyTorch, with the argument for which it is, if only for one;
docs/wrong_answers has a program for each."""


def _has_wrong_formula(target: str, args: Sequence[Any]) -> bool:
    """Whether PyTorch's formula for the tangent of a call is known to be wrong."""
    return target in WRONG_FORMULAS and WRONG_FORMULAS[target] in (None, *(arg for arg in args if type(arg) is str))


REFUSALS = (
    *("not implemented", "dtype", "scalar type", "got Double", "must be a float tensor", "bf16", "BFloat16"),
    "view size is not compatible",
)
"""Words in the errors of an operator that does not take float64, or these strides; another form of it may. If an
operator refuses a value, no other form is tried: it might not look at the value."""


def _forms_of(function: Any) -> Iterator[Callable[..., Any]]:
    """Yield other forms of an operator: one for any strides or dtype, this project's own, and torch's decomposition."""
    for table in (FORMS, OWN, decomposition_table):
        if function in table:
            yield table[function]


def _grouped_product(
    left: Tensor, right: Tensor, offsets: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """Return the products of groups of matrices, as `_grouped_mm` does, which takes no float64.

    A group is one matrix of a tensor with three dimensions. Of a tensor with two it is some rows (of `left`) or columns
    (of `right`); `offsets` has where each group ends. If both have two dimensions, the groups are the parts of the
    dimension that is summed over.
    """
    if offsets is None:
        products = left @ right
    else:
        ends = offsets.tolist()
        groups = list(itertools.pairwise([0, *ends]))
        if left.dim() == 2 and right.dim() == 2:
            products = torch.stack([left[:, start:end] @ right[start:end] for start, end in groups])
        elif left.dim() == 2:
            parts = [left[start:end] @ matrix for (start, end), matrix in zip(groups, right, strict=True)]
            rest = left.new_zeros(left.shape[0] - ends[-1], right.shape[-1])  # rows of no group
            products = torch.cat([*parts, rest])
        else:
            parts = [matrix @ right[:, start:end] for (start, end), matrix in zip(groups, left, strict=True)]
            rest = right.new_zeros(left.shape[1], right.shape[1] - ends[-1])
            products = torch.cat([*parts, rest], 1)
    products = products if bias is None else products + bias
    return products if out_dtype is None else products.to(out_dtype)


FORMS: Mapping[Any, Callable[..., Any]] = {
    aten.view.default: torch.reshape,
    aten._amp_update_scale.default: updated_scale,
    aten._amp_foreach_non_finite_check_and_unscale.default: unscaled,
    aten._grouped_mm.default: _grouped_product,
}
"""Forms of operators for any strides, or for float64."""


LOW = ("float16", "bfloat16", "float32")
"""Dtypes in which an operator draws other random numbers than in float64."""

CONSTANT_DRAWS = frozenset(
    f"aten.{name}"
    for name in (
        *("rand_like.default", "randn_like.default", "uniform.default", "normal_functional.default"),
        *("bernoulli.default", "bernoulli.p", "bernoulli.Tensor", "exponential.default", "log_normal.default"),
        *("geometric.default", "cauchy.default"),
    )
)
"""Operators whose random numbers have no derivative by their arguments."""


def _draws_in_captured_dtype(step: Step, function: Any, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a step draws floats in a dtype below float64, and its arguments give them no derivative."""
    if not is_random(function) or not isinstance(step.spec, TensorSpec) or step.spec.dtype not in LOW:
        return False
    floats = any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in plain_leaves(args, kwargs))
    # One that writes into its argument would write into a narrowed copy (`draw_in_captured_dtype`).
    return not schema_of(function).is_mutable and (step.target in CONSTANT_DRAWS or not floats)


class _OperatorError(ReplayError):
    """A step that cannot run in float64, or on dual numbers."""

    def __init__(self, message: str, step: Step) -> None:
        super().__init__(message)
        self.step = step


# ---- Operators whose tangent is not what forward-mode AD says


def _pass_tangent_through(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
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


def _copied_values(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return a source in the shape and dtype of a destination: `aten.copy` has no derivative in some versions."""
    destination, source, *_ = args
    return source.to(destination.dtype).expand_as(destination).clone()


def scatter_strided(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Write a source into a strided part of a tensor by `scatter`: the gradient of `as_strided_scatter` is wrong
    (CORRECTED). Where `scatter` cannot do it, call the operator itself."""
    value, source, *geometry = args
    size, stride, offset = (*geometry, *kwargs.values(), None)[:3]  # the offset may be a keyword, or not be there
    if not can_be_an_update(value, source, size, stride):
        return function(*args, **kwargs)
    # `places` has, for each element of the source, its place among the elements of the tensor.
    places = torch.arange(value.numel(), device=value.device).as_strided(size, stride, offset or 0)
    whole = value.reshape(-1).scatter(0, places.reshape(-1), source.to(value.dtype).reshape(-1))
    return whole.view(value.shape)


def hardsigmoid(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the hard sigmoid by another operator, because PyTorch multiplies gradients and tangents of it by 1/6 in
    float32, in float64 too."""
    return aten.hardtanh.default(args[0] + 3, 0.0, 6.0) / 6


def _hardsigmoid_backward(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return the gradient of the hard sigmoid, by 1/6 in float64."""
    gradient, value = args
    return torch.where((value > -3) & (value < 3), gradient / 6, 0.0)


def _constant_draw(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Draw, without a tangent and without a gradient: PyTorch has neither for this operator."""
    args, kwargs = tree_map(_without_tangent, (args, kwargs))
    return function(*args, **kwargs)


def _chosen_branch(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run the branch of a `cond` that its predicate chooses."""
    predicate, when_true, when_false, operands = args
    return (when_true if bool(predicate) else when_false)(*operands)


RULES: Mapping[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "aten.detach.default": _pass_tangent_through,
    "aten.as_strided_scatter.default": scatter_strided,
    "aten.copy.default": _copied_values,
    "aten._sample_dirichlet.default": _constant_draw,
    "aten.embedding.default": embedding,
    "aten.hardsigmoid.default": hardsigmoid,
    "aten.hardsigmoid_backward.default": _hardsigmoid_backward,
    "torch.ops.higher_order.cond": _chosen_branch,
}
"""Operators that are run in another way on dual numbers. A rule takes the operator, its arguments and its keyword
arguments, and returns the result, with its tangent if it has one."""

CORRECTED = ("aten.as_strided_scatter.default",)
"""Operators whose own gradient, as autograd has it, is wrong."""


# ---- Dual numbers, in trees


def copy_tensor(value: Any) -> Any:
    """Return a copy of a tensor: a graph may write into its inputs."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return value
    return in_memory_like(value.clone(), value)


def in_memory_like(value: Tensor, like: Tensor) -> Tensor:
    """Return `value` with the strides and the storage offset of `like` in a copy of the storage of `like`, if this
    storage is larger than the tensor; else `value` as it is. `as_strided` reads a storage, whichever view of it is
    passed."""
    storage = like.untyped_storage()
    elements = storage.nbytes() // like.element_size()
    # The elements of an expanded tensor share memory, so they cannot be written; the storage of a lazy conjugate or
    # negative has other numbers than the tensor.
    overlaps = any(step == 0 and size > 1 for size, step in zip(like.shape, like.stride(), strict=True))
    if overlaps or like.is_conj() or like.is_neg() or (elements == like.numel() and not like.storage_offset()):
        return value
    # The whole storage as one dimension, copied in the new dtype, and the value put at its place there.
    whole = torch.empty(0, dtype=like.dtype, device=like.device).set_(storage, 0, (elements,), (1,))
    placed = whole.to(value.dtype, copy=True).as_strided(like.shape, like.stride(), like.storage_offset())
    return placed.copy_(value)


def unpack_dual_tree(value: Any) -> tuple[Any, Any]:
    """Return a value and its tangent; both are trees alike, and None stands for no tangent."""
    if isinstance(value, Tensor):
        return _unpacked_leaf(value)
    leaves, structure = tree_flatten(value)
    pairs = [_unpacked_leaf(leaf) for leaf in leaves]
    return tree_unflatten([value for value, _ in pairs], structure), tree_unflatten(
        [tangent for _, tangent in pairs], structure
    )


def _unpacked_leaf(value: Any) -> tuple[Any, Tensor | None]:
    """Return a value that is no container without its tangent, and the tangent."""
    primal, tangent = forward_ad.unpack_dual(value) if may_have_tangent(value) else (value, None)
    return primal.detach() if isinstance(primal, Tensor) else primal, None if tangent is None else tangent.detach()


def _has_tangent(*trees: Any) -> bool:
    """Whether a tensor in trees has a tangent."""
    leaves = (leaf for tree in trees for leaf in plain_leaves(tree))
    return any(may_have_tangent(leaf) and forward_ad.unpack_dual(leaf).tangent is not None for leaf in leaves)


def may_have_tangent(value: Any) -> bool:
    """Whether a value is a dense tensor: forward-mode AD does not take others."""
    return isinstance(value, Tensor) and value.layout is torch.strided


def _is_sparse(value: Any) -> bool:
    """Whether a value is a sparse tensor."""
    return isinstance(value, Tensor) and value.layout is not torch.strided


def _without_tangent(value: Any) -> Any:
    """Return a tensor without its tangent and without its autograd history."""
    return forward_ad.unpack_dual(value).primal.detach() if may_have_tangent(value) else value


def _requiring_grad(value: Any) -> Any:
    """Return a tensor that requires grad, if its dtype can. One that autograd cannot differentiate, such as a random
    mask in the shape of another tensor, depends on nothing."""
    if not may_have_tangent(value) or not (value.is_floating_point() or value.is_complex()):
        return value
    # Autograd gives the result of an operator without a derivative a node with such a name.
    differentiable = value.grad_fn is None or "NotImplemented" not in value.grad_fn.name()
    return value if value.requires_grad and differentiable else value.detach().requires_grad_()


def is_custom(function: Any) -> bool:
    """Whether an operator is none of PyTorch's own: its body may lose a tangent without a word."""
    return isinstance(function, OpOverload) and function.namespace not in ("aten", "prims")


def detach_draw(value: Any) -> Any:
    """Return the result of a random operator, detached where the operator has no derivative and autograd would raise in
    a backward: `bernoulli` draws into the memory that it takes, and seems to depend on that."""
    if isinstance(value, Tensor) and type(value.grad_fn).__name__ == "NotImplemented":
        return value.detach()
    return value


@functools.cache
def is_random(function: Any) -> bool:
    """Whether an operator draws from torch's generator."""
    return torch.Tag.nondeterministic_seeded in getattr(function, "tags", ())


# ---- One call without a formula

WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)
"""The weights of central differences of eighth order: of f(x + n·h) - f(x - n·h) for n = 1, 2, 3, 4, divided by h."""

STEP = 1e-2
"""The step of differences, relative to the inputs: with eighth order the error of the formula is about 1e-16."""


class _ActiveCall:
    """One call of an operator on dual numbers, as a function of its tensors that have a tangent.

    `leaves` are the leaves of its arguments, without tangents; `directions` has the tangents, by the place of their
    tensor among the leaves. The tangents of the results along these are what the methods compute, a Tensor for each
    leaf of the result, or None.
    """

    def __init__(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.function = function
        leaves, self.structure = tree_flatten((list(args), dict(kwargs)))
        pairs = [forward_ad.unpack_dual(leaf) if may_have_tangent(leaf) else (leaf, None) for leaf in leaves]
        self.leaves = [primal.detach() if isinstance(primal, Tensor) else primal for primal, _ in pairs]
        self.directions = {place: tangent for place, (_, tangent) in enumerate(pairs) if tangent is not None}
        # The generator's state before the call, for all calls to draw the same, and after it, for the rest of the run.
        self.random = torch.get_rng_state()
        self.result = self.call_with({})
        self.after = torch.get_rng_state()

    def call_with(self, moved: Mapping[int, Tensor]) -> Any:
        """Return the result of the call where the tensors in `moved`, by their place among the leaves of the arguments,
        have other values."""
        torch.set_rng_state(self.random)
        leaves = [moved.get(place, copy_tensor(leaf)) for place, leaf in enumerate(self.leaves)]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return self.function(*args, **kwargs)

    def tangents_by_second_derivative(self) -> list[Tensor | None]:
        """Return the tangents by the derivative of the operator's backward, which is linear in its tangents."""
        inputs = {place: self.leaves[place].clone().requires_grad_() for place in self.directions}
        # On clones of the leaves, because the operator may write into its arguments.
        results, _ = tree_flatten(self.call_with({place: value.clone() for place, value in inputs.items()}))
        active = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
        # Jᵀ·w is linear in the weights w, so its own gradient by w, with v as tangents, is J·v. The weights may be 0.
        weights = [torch.zeros_like(result, requires_grad=True) for result in active]
        gradients = torch.autograd.grad(active, list(inputs.values()), weights, create_graph=True, allow_unused=True)
        linear = [
            (gradient, self.directions[place])
            for place, gradient in zip(inputs, gradients, strict=True)
            if gradient is not None
        ]
        tangents_of_active = torch.autograd.grad(
            [gradient for gradient, _ in linear], weights, [direction for _, direction in linear], allow_unused=True
        )
        tangents = iter(tangents_of_active)
        return [next(tangents) if isinstance(r, Tensor) and r.requires_grad else None for r in results]

    def tangents_by_differences(self) -> tuple[list[Tensor | None], float]:
        """Return the tangents by central differences of eighth order, and how far two estimates are apart, relative to
        their size; infinite if only one could be made. RuntimeError of the operator comes through if none could.

        The step is the one at which they change least when it is made smaller: a larger one leaves the neighbourhood
        of a function that is steep, a smaller one rounds.
        """
        step = first_step([self.leaves[place] for place in self.directions], list(self.directions.values()))
        estimates: list[list[Tensor | None]] = []
        changes: list[float] = []
        for power in range(FINEST):
            # The first FINER steps are always tried, further ones only if these did not settle.
            if power >= FINER and min(changes, default=math.inf) <= UNSETTLED:
                break
            try:
                estimates.append(self.central_differences(step / 8**power))
            except RuntimeError:  # so far along the direction the operator refuses its inputs
                if power == FINEST - 1:
                    raise
            if len(estimates) > 1:
                changes.append(relative_change(*estimates[-2:]))
        if not changes:  # the operator ran with one step only
            return estimates[0], math.inf
        # `changes[i]` is between the estimates i and i + 1: of the two that agree best, the finer one. Where they agree
        # to the bit, they are one, and the coarser stands for it.
        return estimates[changes.index(min(changes)) + (min(changes) > 0)], min(changes)

    def is_differentiable(self) -> list[bool]:
        """Return for each result whether it requires grad if the tensors with a direction do."""
        inputs = {place: self.leaves[place].clone().requires_grad_() for place in self.directions}
        results, _ = tree_flatten(self.call_with({place: value.clone() for place, value in inputs.items()}))
        return [isinstance(result, Tensor) and result.requires_grad for result in results]

    def central_differences(self, step: float) -> list[Tensor | None]:
        """Return the tangents by central differences with this step; None for a result that is not differentiable."""
        active = self.is_differentiable()
        totals: list[Any] = [None] * len(active)
        for count, weight in enumerate(WEIGHTS, 1):
            ahead, _ = tree_flatten(self.call_moved_by(count * step))
            behind, _ = tree_flatten(self.call_moved_by(-count * step))
            for place, (up, down) in enumerate(zip(ahead, behind, strict=True)):
                if active[place]:
                    share = (up - down) * (weight / step)
                    totals[place] = share if totals[place] is None else totals[place] + share
        return totals

    def call_moved_by(self, step: float) -> Any:
        """Return the result of the call where its tensors are moved by `step` times their tangents."""
        return self.call_with({place: self.leaves[place] + step * v for place, v in self.directions.items()})

    def with_tangents(self, tangents: Sequence[Tensor | None]) -> Any:
        """Return the result of the call as dual numbers with these tangents, and set the random state to what it was
        after the call."""
        torch.set_rng_state(self.after)
        leaves, structure = tree_flatten(self.result)
        duals = [
            leaf if tangent is None else forward_ad.make_dual(leaf.detach(), tangent)
            for leaf, tangent in zip(leaves, tangents, strict=True)
        ]
        return tree_unflatten(duals, structure)


def first_step(values: Sequence[Tensor], directions: Sequence[Tensor]) -> float:
    """Return the largest step of differences along directions from these values: STEP of the largest value."""
    # Values that are all small are moved as if one was 1e-2; 1e-300 is no division by 0, as in `relative_change`.
    return STEP * max(*map(largest, values), 1e-2) / max(*map(largest, directions), 1e-300)


UNSETTLED = 1e-7
"""Differences with two steps that are farther apart, relative to their size, met a kink, or have too few digits."""

FINER, FINEST = 4, 8
"""How many steps of differences are tried, each an eighth of the one before, and how many if these do not settle: the
inputs may be near a kink, or much larger than what they are compared with."""


def relative_change(before: Sequence[Tensor | None], after: Sequence[Tensor | None]) -> float:
    """Return how far two estimates of tangents are apart, relative to their size, where both are finite."""
    most = 0.0
    for left, right in zip(before, after, strict=True):
        if left is not None and right is not None:
            finite = left.isfinite() & right.isfinite()  # an output may be -inf in parts that are used nowhere
            left, right = left[finite], right[finite]
            size = max(largest(left), largest(right), 1e-300)
            most = max(most, largest(left - right) / size)
    return most


NEAREST = 1e-9
"""The least difference from an estimate, relative to its size, that is no rounding."""


def is_near(left: Tensor | None, right: Tensor | None, tolerance: float) -> bool:
    """Whether a tangent is the one that differences estimate, up to a tolerance relative to its size."""
    if left is None or right is None:
        return all(value is None or largest(value) == 0 for value in (left, right))
    # 1e-12 is the rounding of an estimate of 0.
    return left.numel() == 0 or largest(left - right) <= tolerance * largest(right) + 1e-12


def largest(value: Tensor) -> float:
    """Return the size of the largest element; 0 without any."""
    return float(value.abs().max()) if value.numel() else 0.0
