"""A function with the tensors of one call by name, which can be run forward and backward on other values of these.

A Call has the leaves of its arguments, with a Place, which has the name, for each tensor; in `wanted` are the names of
the tensors whose gradients are compared. A Program is the function with a seed, a Forward what a run of it returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.modules import own_buffers, own_parameters
from backprint.derive.setting import is_inexact
from backprint.errors import UsageError
from backprint.trace.program import NamedTensor, choose_requires_grad
from backprint.values.results import outputs_of
from backprint.values.settings import seed_torch
from backprint.values.tree import bind_names, copy_values, flatten_with_path, leaf_name, number_duplicates


@dataclass(frozen=True, slots=True)
class Place:
    """Stands for a tensor among the arguments of a call."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """The arguments of one call as the `leaves` of a pytree and its TreeSpec `tree`, with a Place for each tensor, and
    the values of the tensors by name.

    `values` has the parameters and buffers of modules too. `wanted` names the tensors whose gradients are compared,
    `inputs` the tensors among the arguments.
    """

    leaves: tuple[Any, ...]
    tree: Any
    values: dict[str, Tensor]
    inputs: tuple[str, ...]
    wanted: tuple[str, ...]

    def arguments(self, values: Mapping[str, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments, with these values in the places of tensors."""
        leaves = [values[leaf.name] if isinstance(leaf, Place) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.tree)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A callable. If it is a module, `state` has for each of its parameters and buffers, by the module's own name, the
    name among the values of a Call. `seed` is set before each call."""

    function: Callable[..., Any]
    state: dict[str, str]
    seed: int
    is_pure: bool = False
    """Whether it is known to draw no random numbers, and to return the same twice."""
    without_cache: Program | None = None
    """The same program without a cache of its results, if this one has a cache: a mode must see operators run."""

    def __call__(self, call: Call, values: Mapping[str, Tensor]) -> Any:
        """Call it on these values, under the seed."""
        args, kwargs = call.arguments(values)
        seed_torch(self.seed)
        with self.state_replaced(values):
            return self.function(*args, **kwargs)

    @contextlib.contextmanager
    def state_replaced(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Give a module the parameters and buffers among these values in this block: for its call, and for its
        backward, in which a checkpoint calls parts of the module again."""
        if not isinstance(self.function, nn.Module):
            yield
            return
        first_name_by_id = {
            id(tensor): name for name, tensor in [*self.function.named_parameters(), *self.function.named_buffers()]
        }
        # A tied parameter has several places in modules and, in `first_name_by_id`, one name: all of its places get one
        # tensor.
        original_tensors = [(slots, name, slots[name]) for slots, name in slots_of(self.function)]
        try:
            for slots, name, tensor in original_tensors:
                if first_name_by_id[id(tensor)] in self.state:
                    slots[name] = values[self.state[first_name_by_id[id(tensor)]]]
            yield
        finally:
            for slots, name, tensor in original_tensors:
                slots[name] = tensor


def slots_of(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Return each place of a parameter or a buffer in a module and the modules inside of it, as the dictionary that has
    it and its name there."""
    return [
        (slots, name)
        for inner in module.modules()
        for slots in (own_parameters(inner), own_buffers(inner))
        for name, tensor in slots.items()
        if tensor is not None
    ]


def read_check(
    fn: Callable[..., Any],
    like: Callable[..., Any] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    requires_grad: Any,
    seed: int,
) -> tuple[Call, Program, Program]:
    """Return the call `fn(*args, **kwargs)`, the function that is checked, and the reference (`like`); without one, the
    function itself. Raise UsageError for sparse tensors, and for a call without tensors.

    A parameter of a module that is the reference has the value of the same parameter of the function, if it has one.
    `requires_grad` names the tensors whose gradients are compared (`_names_requiring_grad`), and `seed` is set before
    each call.
    """
    paths, tree = flatten_with_path((tuple(args), dict(kwargs)))
    parameter_names = bind_names(fn, args, kwargs)[0]  # of the positional arguments
    names = number_duplicates([leaf_name(path, parameter_names) for path, _ in paths])
    values: dict[str, Tensor] = {}
    name_by_id: dict[int, str] = {}
    leaves = []
    for name, (_, leaf) in zip(names, paths, strict=True):
        if not isinstance(leaf, Tensor):
            leaves.append(leaf)
            continue
        if leaf.layout is not torch.strided:
            raise UsageError(
                f"{name} is {str(leaf.layout)[6:]}: bp.check compares dense tensors; pass its parts, and build it in "
                "the function"
            )
        # A tensor that is passed twice is one value, and has one gradient.
        first_name = name_by_id.setdefault(id(leaf), name)
        values.setdefault(first_name, leaf)
        leaves.append(Place(first_name))
    if not values and not isinstance(fn, nn.Module):
        raise UsageError("bp.check needs a tensor among the inputs: bp.check(fn, x, w, like=reference)")
    tensors = [NamedTensor(name, "input", value.requires_grad) for name, value in values.items()]
    inputs = tuple(values)
    state_of_fn = _add_state(fn, values, prefix="")
    wanted = _names_requiring_grad(tensors, values, requires_grad, fn, state_of_fn)
    if like is None:
        state_of_like = state_of_fn
    else:
        state_of_like = _add_state(like, values, prefix="reference.", names_of_other=state_of_fn)
    copies = copy_values({name: value.detach() for name, value in values.items()})
    call = Call(tuple(leaves), tree, copies, inputs, wanted)
    return call, Program(fn, state_of_fn, seed), Program(like or fn, state_of_like, seed)


def _names_requiring_grad(
    tensors: list[NamedTensor],
    values: Mapping[str, Tensor],
    requires_grad: Any,
    fn: Callable[..., Any],
    names_of_state: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the names of the tensors whose gradients are compared.

    Without `requires_grad` these are a module's parameters that require grad, and the inputs that do; if no input does,
    all inputs that may, whatever the parameters do. With it, `choose_requires_grad` chooses, as `bp.capture` does.
    `tensors` are the inputs, and `names_of_state` has the names of the module's tensors among the values.
    """
    parameters = dict(fn.named_parameters()) if isinstance(fn, nn.Module) else {}
    module_tensors = [
        NamedTensor(name, "parameter", parameters[key].requires_grad)
        for key, name in names_of_state.items()
        if key in parameters
    ]
    if requires_grad is None:
        chosen = [*choose_requires_grad(tensors, values, requires_grad=None), *module_tensors]
    else:
        chosen = choose_requires_grad([*tensors, *module_tensors], values, requires_grad)
    return tuple(named.name for named in chosen if named.requires_grad)


def _add_state(
    function: Callable[..., Any],
    values: dict[str, Tensor],
    prefix: str,
    names_of_other: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Put the parameters and buffers of a module among the values, each named as in the module after the prefix; return
    the name that each has there. `names_of_other` has these names for another module: a tensor with the same name and
    shape in both has one value. A function that is no module has none."""
    if not isinstance(function, nn.Module):
        return {}
    state = {}
    for own_name, value in (*function.named_parameters(), *function.named_buffers()):
        name = (names_of_other or {}).get(own_name)
        if name is None or values[name].shape != value.shape:
            name = prefix + own_name
            # A parameter may have the name of an argument: the `weight` of a module is then `weight~2`.
            while name in values:
                name += "~2"
            values[name] = value
        state[own_name] = name
    return state


def in_dtype(values: Mapping[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Return the values with all floats in a dtype; None leaves them as they are. Complex numbers become complex128 if
    the dtype is float64, and stay as they are otherwise."""
    if dtype is None:
        return dict(values)

    def converted(value: Tensor) -> Tensor:
        if value.is_floating_point():
            return value.to(dtype)
        return value.to(torch.complex128) if value.is_complex() and dtype is torch.float64 else value

    return {name: converted(value) for name, value in values.items()}


# ---- Running


@dataclass(frozen=True, slots=True, eq=False)
class Forward:
    """The results of a program: its output tensors by name, the leaves among its inputs that require grad, and the
    buffers of a module after the call."""

    outputs: dict[str, Tensor]
    leaves: dict[str, Tensor]
    buffers: dict[str, Tensor] = field(default_factory=dict)
    backward_context: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """The context in which it is differentiated: a module has the parameters of this call again."""

    @property
    def differentiable(self) -> tuple[str, ...]:
        """The outputs that require grad."""
        return tuple(name for name, output in self.outputs.items() if output.requires_grad and is_inexact(output))

    def gradients(
        self, tangents: Mapping[str, Tensor], retain_graph: bool = False, create_graph: bool = False
    ) -> dict[str, Tensor | None]:
        """Return the gradient of each leaf for these tangents, by output; None if no output depends on the leaf.
        `retain_graph` retains the graph for another call."""
        outputs_with_tangents = [
            (self.outputs[name], tangent) for name, tangent in tangents.items() if self.outputs[name].requires_grad
        ]
        if not outputs_with_tangents:
            return dict.fromkeys(self.leaves)
        with self.backward_context():
            gradients = torch.autograd.grad(
                [output for output, _ in outputs_with_tangents],
                list(self.leaves.values()),
                [tangent for _, tangent in outputs_with_tangents],
                retain_graph=retain_graph or create_graph,
                create_graph=create_graph,
                allow_unused=True,
            )
        return dict(zip(self.leaves, gradients, strict=True))


def run_forward(program: Program, call: Call, values: Mapping[str, Tensor], grad: bool = True) -> Forward:
    """Run a program on copies of these values, with their strides; without `grad`, under `torch.no_grad`.

    `run_on_tensors` takes the tensors themselves, for a caller that looks at them afterwards, and
    `run_in_current_grad_mode` leaves grad mode."""
    return run_on_tensors(program, call, copies_for(call, values), grad)


def copies_for(call: Call, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of these values, with their strides. Copies of tensors whose gradients are wanted require grad."""
    copies = copy_values({name: value.detach() for name, value in values.items()})
    return {name: copy.requires_grad_(name in call.wanted) for name, copy in copies.items()}


def run_on_tensors(program: Program, call: Call, copies: Mapping[str, Tensor], grad: bool = True) -> Forward:
    """Run a program on these tensors themselves, with grad mode on or off."""
    with torch.set_grad_enabled(grad):
        return run_in_current_grad_mode(program, call, copies)


def run_in_current_grad_mode(program: Program, call: Call, copies: Mapping[str, Tensor]) -> Forward:
    """Run a program on these tensors themselves, in the caller's grad mode, and return its results as a Forward."""
    named_leaves, _ = outputs_of(program(call, copies))  # the leaves of what the program returns, each with its name
    outputs = {name: leaf for name, leaf in named_leaves if isinstance(leaf, Tensor)}
    module = program.function
    buffer_names = [name for name, _ in module.named_buffers()] if isinstance(module, nn.Module) else []
    buffers = {name: copies[program.state[name]] for name in buffer_names}
    leaves = {name: copies[name] for name in call.wanted}
    return Forward(outputs, leaves, buffers, partial(program.state_replaced, copies))


def draws_random_numbers(program: Program, call: Call, values: Mapping[str, Tensor]) -> bool:
    """Whether a program draws from torch's random numbers, or returns something else a second time."""
    if program.is_pure:
        return False
    devices = {value.device for value in values.values() if value.is_cuda}
    seed_torch(program.seed)
    state_before = torch.get_rng_state()
    gpu_states_before = {device: torch.cuda.get_rng_state(device) for device in devices}
    first = run_forward(program, call, values).outputs
    if not torch.equal(state_before, torch.get_rng_state()):
        return True
    if any(not torch.equal(state, torch.cuda.get_rng_state(device)) for device, state in gpu_states_before.items()):
        return True
    # A generator of the program's own leaves torch's state as it is: then the results of two runs differ, by more than
    # rounding, which may differ too (0.1 of a value is far above it).
    again = run_forward(program, call, values).outputs
    return any(
        output.numel() > 0 and is_inexact(output) and not torch.allclose(output, again[name], rtol=0.1, equal_nan=True)
        for name, output in first.items()
    )


def error_text(error: BaseException) -> str:
    """Return the class and the message of an error in one line."""
    text = str(error).strip()
    if not text:
        return f"{type(error).__name__} without a message"
    first, *others = text.splitlines()
    more = f" {others[0].strip()}" if first.endswith(":") and others else ""  # the line says what follows in the next
    return f"{type(error).__name__}: {first}{more}"
