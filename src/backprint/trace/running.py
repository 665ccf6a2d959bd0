"""Run a program on its own module, Parameters and arguments, or on stand-ins, and restore everything afterwards.

The values of a run are written into the caller's own tensors, because a program may depend on their identity,
attributes, hooks and aliases. A program that has no tensors of the caller's (it runs on fake tensors, or is a graph of
Dynamo's) runs on stand-ins: other tensors in their place. `staged` prepares a run. `call_program` and `result_of` run
the forward, and `run_backward` runs autograd's backward.

Words of this file:

- A CalledProgram (`program`) is a callable with the named tensors of one call. `program.target()` is the callable, and
  `program.target` its holder: CallersObjects if it has the caller's arguments too, else a HeldTarget. `program.tensors`
  are NamedTensors: name, role and `requires_grad` of each tensor, without the tensor itself.
- `program.values` are the tensors among the arguments. `own_tensors()` returns all of the program's tensors by name,
  `external_tensors` among them: those that it reads from a closure, a global or an attribute.
- A wrapper is a tensor around another one (a DTensor). `own_tensors()` has the tensor inside, `wrappers()` the wrapper.
- A Snapshot has the state of everything that the program reaches; `snapshot.add` puts one more tensor into it (with
  `whole=True` also its content, whatever its size), and `snapshot.restore` restores all of it.
- `program.foreign_random` has the states of random generators that are not torch's (`random`, numpy), which every run
  starts from. `program.tangents` names the outputs whose tangents are inputs: only a program of order=2 has any, which
  returns its own gradients, so that they can be differentiated again.
- `untraced()` turns autograd and all modes off. `for_program(f, ...)` calls f, whose errors are the program's and no
  defects of Backprint. `alias_groups` returns the names of tensors that share memory, group by group.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from backprint._torch import pytree
from backprint._torch.autograd import set_version_counters
from backprint._torch.distributed import sharding_text
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import reparametrized
from backprint._torch.tensors import is_view, post_accumulate_hooks, storage_id, version_of
from backprint.errors import CaptureError, UsageError, for_program
from backprint.trace import frames
from backprint.trace.collectives import answering
from backprint.trace.custom import call_for_mode
from backprint.trace.program import (
    CalledProgram,
    CallersObjects,
    NamedTensor,
    TensorSlot,
    gradient_hooks_of,
    nontensor_arguments,
    state_of,
)
from backprint.trace.reach import state_of_optimizer, stateful_objects, tensors_of
from backprint.trace.state.process import GLOBALS
from backprint.trace.state.restore import restoring_everything_reachable, with_foreign_random_states
from backprint.trace.state.snapshot import Snapshot
from backprint.trace.state.tensors import LARGE_PARAMETER, has_same_placement, same_bytes, untraced
from backprint.values.memory import bits_of
from backprint.values.results import ResultTree, outputs_of
from backprint.values.settings import default_device
from backprint.values.tree import alias_groups, copy_values, ones_tangent, strided_parts
from backprint.values.wrappers import Alias, Around, unwrap, wrapping_of

# ---- Values in the caller's own tensors


def _write_values(
    own: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    snapshot: Snapshot,
    stack: contextlib.ExitStack,
    written: frozenset[str],
) -> None:
    """Write values into the caller's tensors (`own`), both by name. The Snapshot, and callbacks that are pushed on
    `stack`, restore the tensors. `written` names the tensors that the program is known to write to. A value whose name
    is not in `own` is left out.

    A large parameter would need a copy of its content to be restored. If it has memory of its own and the program does
    not write to it, its content is swapped with the value instead, and back at the end: no memory is needed.
    """
    # A swap exchanges the contents of two storages, so neither side may share memory with another tensor.
    with_own_memory = set(own) - {name for group in alias_groups(dict(own)) for name in group}
    sharing_memory = {name for group in alias_groups(dict(values)) for name in group}
    with untraced():
        for name, value in values.items():
            tensor = own.get(name)
            # A tensor that has the value already is not written to.
            if tensor is None or same_memory(tensor, value) or same_content(tensor, value):
                continue
            # The Snapshot's state of the tensor; `is_large`: it is a parameter that is not copied in advance.
            kept_tensor = snapshot.tensors_by_id.get(id(tensor))
            if (
                kept_tensor is not None
                and kept_tensor.is_large
                and name in with_own_memory - sharing_memory - written
                and _can_swap(tensor, value)
            ):
                # The version counter is set back: this write is not the program's. `_swap_back` and `TensorMark`
                # compare versions, and autograd does so for tensors that a graph of the caller's has saved.
                version = version_of(tensor)
                _swap_contents(tensor, value)
                set_version_counters((tensor,), (version,))
                stack.callback(_swap_back, name, tensor, value, version)
                continue
            snapshot.add(name, tensor, whole=True)
            version = version_of(tensor)
            write_value(tensor, value)
            set_version_counters((tensor,), (version,))


def same_memory(tensor: Tensor, value: Tensor) -> bool:
    """Whether a value is the tensor itself, or is in the same memory with the same shape and strides."""
    return tensor is value or (tensor.layout is torch.strided and has_same_placement(tensor, value))


def same_content(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor already has these values, bit for bit. For some tensors, such as complex ones, the answer is
    always False."""
    if tensor.shape != value.shape or tensor.dtype is not value.dtype or tensor.layout is not value.layout:
        return False
    # False is always safe here: it costs a write. Conjugate and negative bits are not in the memory that `bits_of`
    # reads.
    if tensor.is_complex() or tensor.is_neg() or value.is_neg() or tensor.layout is not torch.strided:
        return False
    left, right = tensor.detach(), value.detach()
    # Bits, because `torch.equal` of floats calls NaN unequal to itself, and 0.0 equal to -0.0.
    return left.stride() == right.stride() and bool(torch.equal(bits_of(left), bits_of(right)))


def _can_swap(tensor: Tensor, value: Tensor) -> bool:
    """Whether the contents of two tensors, each in memory of its own, can be swapped: both are contiguous, and have the
    same shape and dtype."""
    return (
        tensor.is_contiguous()
        and value.is_contiguous()
        and tensor.dtype is value.dtype
        and tensor.shape == value.shape
        and not value.requires_grad
    )


ELEMENTS_PER_SWAP = 2**22
"""How many elements are swapped at a time. A swap needs a temporary copy of so many."""


def _swap_contents(tensor: Tensor, value: Tensor) -> None:
    """Swap the contents of two tensors."""
    left, right = tensor.detach().view(-1), value.detach().view(-1)
    for start in range(0, left.numel(), ELEMENTS_PER_SWAP):
        first, second = left[start : start + ELEMENTS_PER_SWAP], right[start : start + ELEMENTS_PER_SWAP]
        copy = first.clone()
        first.copy_(second)
        second.copy_(copy)


def _swap_back(name: str, tensor: Tensor, value: Tensor, version: int) -> None:
    """Swap a tensor's own content back; raise if the run wrote to the tensor, which the program's first run did not.
    `version` is the tensor's version before the run."""
    if version_of(tensor) == version:
        with untraced():
            _swap_contents(tensor, value)
        return
    with untraced():
        # Since the swap, `value` has had the tensor's own content.
        tensor.detach().copy_(value)
    raise CaptureError(f"the program wrote to {name} in this run but not in its first run: its runs differ")


def write_value(tensor: Tensor, value: Tensor) -> None:
    """Write a value into a tensor, whatever its layout; into an expanded tensor each element once."""
    if tensor.layout is not torch.strided:
        pairs = list(zip(strided_parts(tensor), strided_parts(value), strict=True))
        if all(left.shape == right.shape for left, right in pairs):
            for left, right in pairs:
                left.copy_(right)
        else:
            # A sparse tensor with another number of values has other parts: they cannot be written into these.
            tensor.data = copy_values({"": value})[""]  # it copies tensors by name: here one, without a name
        return
    if tensor.shape != value.shape:
        raise CaptureError(f"a value of shape {list(value.shape)} does not fit a tensor of {list(tensor.shape)}")
    # `copy_` refuses a target that has several elements at one address. A stride of 0 repeats one element.
    each_element_once = tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())
    target, source = tensor.detach(), value.detach()
    if each_element_once:
        target, source = target[each_element_once], source[each_element_once]
    target.copy_(source)


# ---- The forward, its loss, and the backward


class SubstituteTensors(TorchFunctionMode):
    """Replaces tensors that a program reads from outside its call, while it runs. `table` has, by the id of a tensor
    that the program has, the tensor that replaces it."""

    def __init__(self, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        swap = functools.partial(_replacement_or_self, self.table)
        return call_for_mode(self, func, _map_leaves(swap, args), _map_leaves(swap, kwargs or {}))


def replace_tensors(table: Mapping[int, Tensor], value: Any) -> Any:
    """Return nested arguments in which each tensor whose id is in the table is replaced by the tensor there."""
    return _map_leaves(functools.partial(_replacement_or_self, table), value)


def _replacement_or_self(table: Mapping[int, Tensor], value: Any) -> Any:
    """Return the tensor in the table for the id of a value; without one, the value."""
    return table.get(id(value), value)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested arguments with a function applied to their leaves: to everything but tuples, lists and dicts."""
    # Exact types: the constructor of a namedtuple does not take a list.
    kind = type(value)
    if kind in (tuple, list):
        return kind([_map_leaves(function, item) for item in value])
    if kind is dict:
        return {key: _map_leaves(function, item) for key, item in value.items()}
    return function(value)


@contextlib.contextmanager
def _training_mode(module: Any, mode: str | None) -> Iterator[None]:
    """Set the module to the mode `train` or `eval` (None: leave it as it is), and restore every flag afterwards."""
    if mode is None or not isinstance(module, nn.Module):
        yield
        return
    flags = [(child, child.training) for child in module.modules()]
    module.train(mode == "train")
    try:
        yield
    finally:
        # Flag by flag: `train()` would set all children alike, and a child may have had another mode than its parent.
        for child, flag in flags:
            child.training = flag


def wrap_values(
    program: CalledProgram,
    ready: Mapping[str, Tensor],
    alias: Alias = Tensor.detach,
    note: Callable[[str, str], None] = lambda name, text: None,
) -> dict[str, Tensor]:
    """Return the tensors that the program takes in a run on stand-ins, by name. They are those of `ready`, except where
    the program takes a wrapper (a DTensor): there `ready` has the stand-in for the tensor inside, which is wrapped
    again by `Around`, an operation that autograd records.

    `alias` makes, from a stand-in, the tensor in the same memory that the new wrapper holds. In the backward, `note` is
    called with the tensor's name and the sharding of its gradient, as text.
    """
    passed = dict(ready)
    for name, wrapping in program.wrappings.items():
        if name in ready:
            passed[name] = Around.apply(ready[name], wrapping, alias, functools.partial(note, name))
    return passed


@contextlib.contextmanager
def with_values(
    program: CalledProgram,
    values: Mapping[str, Tensor],
    table: dict[int, Tensor] | None = None,
    passed: Mapping[str, Tensor] | None = None,
) -> Iterator[None]:
    """Let the program have these values (stand-ins, by name) in the place of its own parameters, buffers and external
    tensors in this block.

    A backward may recompute parts of the forward (checkpointing), so the block has to span both. With a `table`, the
    caller of this function has already entered a mode that replaces tensors by it, as SubstituteTensors does, and the
    table is filled here. `passed` has the same tensors as `values`, but wrappers where the program takes wrappers; None
    if it takes none.
    """
    target = program.target()
    passed = values if passed is None else passed
    # By the id of the program's own tensor, the one that replaces it.
    replacements = {id(tensor): values[name] for name, tensor in program.own_tensors().items() if name in values}
    replacements |= {id(tensor): passed[name] for name, tensor in program.wrappers().items() if name in passed}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_training_mode(target, program.mode))
        if isinstance(target, nn.Module):
            own_state = state_of(target)  # as the module has it now, by name
            state = {name: tensor for name, tensor in passed.items() if name in own_state}
            # `state_of` has a tied weight under its first name only; `tie_weights` sets the others too.
            stack.enter_context(reparametrized(target, state, tie_weights=True))
        if table is not None:
            # Changed in place: the mode that the caller has entered holds this very dict.
            table.clear()
            table.update(replacements)
        elif replacements:
            stack.enter_context(SubstituteTensors(replacements))
        yield


@contextlib.contextmanager
def modes_reach_backward() -> Iterator[None]:
    """Keep function modes on while autograd runs: a backward that recomputes the forward must go through them.

    `torch.autograd.grad` is itself a function that modes see, and a mode is off while it handles a function.
    """
    # `grad` calls `has_torch_function` to know whether it is handed to a mode first. In this thread the answer is no,
    # so `grad` runs with the modes on. Other threads get torch's own answer.
    original, thread = torch.autograd.has_torch_function, threading.get_ident()
    torch.autograd.has_torch_function = lambda arguments: threading.get_ident() != thread and original(arguments)
    try:
        yield
    finally:
        torch.autograd.has_torch_function = original


@frames.calls_program
def call_program(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Call the program on these values, which have one for each tensor among its arguments, and return its result.

    `frames.calls_program` marks this function: in a stack, frames outside of it are the caller's, not the program's.
    """
    target = program.target()
    args, kwargs = arguments_of_call(program, values)
    # The program sets ContextVars in a copy, which its backward runs in too. The caller's context stays as it is.
    program.foreign_random.context = contextvars.copy_context()
    with with_foreign_random_states(program.foreign_random, program.target.snapshot):
        return for_program(program.foreign_random.context.run, target, *args, **kwargs)


def arguments_of_call(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Return the arguments and keyword arguments of the program's call with these values: the very containers that the
    caller passed, if they hold these very tensors; else new containers. A program may depend on the identity of its
    containers, and may write to them."""
    target = program.target
    if isinstance(target, CallersObjects):
        own_leaves, structure = pytree.tree_flatten(target.call)
        # A TensorSlot stands for a tensor among the leaves.
        leaves = [values[leaf.name] if isinstance(leaf, TensorSlot) else leaf for leaf in program.leaves]
        if (
            structure == program.structure
            and len(own_leaves) == len(leaves)
            and all(map(operator.is_, own_leaves, leaves))
        ):
            return target.call
    return arguments_in_new_containers(program, values)


def arguments_in_new_containers(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Return the arguments and keyword arguments of the program's call with these values, in new containers."""
    leaves = [values[leaf.name] if isinstance(leaf, TensorSlot) else leaf for leaf in program.leaves]
    return pytree.tree_unflatten(leaves, program.structure)


def clone_written_tensors(
    program: CalledProgram, values: Mapping[str, Tensor], clone: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Return the values, with copies made by `clone` of the tensors that the program writes to or that have hooks.

    Autograd refuses writes to leaves that require grad. Autograd records the copying, so gradients arrive at the leaves
    through the copies. The user's hooks are registered on the copies.
    """
    ready = dict(values)
    for name in program.cloned_when_traced:
        ready[name] = clone(values[name])
        for hook in program.hooks.get(name, ()):
            if ready[name].requires_grad:
                ready[name].register_hook(hook)
    return ready


def result_with_loss(program: CalledProgram, result: Any) -> Any:
    """Return `{"loss": loss, "output": result}`, with the loss of a program's result, and the result detached; for a
    program without a loss, the result itself."""
    if program.loss is None:
        return result
    # In the context of the program, which has the ContextVars that it set (`call_program`).
    loss = check_loss(for_program(program.foreign_random.context.run, program.loss, result))
    named, tree = outputs_of(result)  # the leaves of the result by name, and its structure
    # Only the loss is differentiated: the tangents of a step are the loss's.
    detached = tree.rebuild([leaf.detach() if isinstance(leaf, Tensor) else leaf for _, leaf in named])
    return {"loss": loss, "output": detached}


def check_loss(loss: Any) -> Tensor:
    """Return the loss; raise a UsageError unless it is a tensor with one element."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise UsageError(f"loss must return a tensor with one element, not {_describe_result(loss)}")
    return loss


def _describe_result(value: Any) -> str:
    """Return a description of what a loss has returned, for a message."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def result_of(program: CalledProgram, ready: Mapping[str, Tensor]) -> Any:
    """Call the program on the tensors `ready`, by name, and return its result, with its loss if it has one
    (`result_with_loss`).

    A program of order=2 takes the tangents of its outputs as inputs `tangent.NAME`. For it, return a dict with
    `output`, and `loss` if it has one, and with `gradient`: its gradients for these tangents, which can be
    differentiated again.
    """
    result = result_with_loss(program, call_program(program, ready))
    if not program.tangents:
        return result
    # Without tangents it is a program of order=1, whose outputs alone are named here.
    named, _ = named_outputs(replace(program, tangents=()), result)
    tangents = {name: ready[f"tangent.{name}"] for name in program.tangents}
    roots = {name: leaf for name, leaf in named if isinstance(leaf, Tensor) and leaf.requires_grad}
    names_with_grad = [
        named.name for named in program.tensors if named.requires_grad and not named.name.startswith("tangent.")
    ]
    computed = for_program(
        torch.autograd.grad,
        list(roots.values()),
        [ready[name] for name in names_with_grad],
        [tangents[name] for name in roots],
        create_graph=True,
        allow_unused=True,
    )
    gradients = dict(zip(names_with_grad, computed, strict=True))
    if program.loss is not None:
        return {**result, "gradient": gradients}
    return {"output": result, "gradient": gradients}


def named_outputs(program: CalledProgram, result: Any) -> tuple[list[tuple[str, Any]], ResultTree]:
    """Return the leaves of what `result_of` has returned, each with its name (`output`, `output.0`), and the
    ResultTree, which is its structure. A loss is named `loss` and a gradient `gradient.NAME`. The ResultTree is without
    the loss."""
    if program.tangents:
        # As a program of order=1 returns it; without a loss that is the bare result.
        first_order_result = result if program.loss is not None else result["output"]
        named, _ = named_outputs(replace(program, tangents=()), first_order_result)
        named += [(f"gradient.{name}", gradient) for name, gradient in result["gradient"].items()]
        _, structure = outputs_of({"output": result["output"], "gradient": result["gradient"]})
        return named, structure
    if program.loss is None:
        return outputs_of(result)
    named, structure = outputs_of(result["output"])
    return [("loss", result["loss"]), *named], structure


def _leaf_values(program: CalledProgram, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return new leaf tensors with these values, by name, that require grad as the program's tensors do.

    They are copies of the values, except for parameters that no run is known to change (to save memory) and for fake
    tensors (whose memory nobody else has): there they are other tensors in the same memory.
    """
    not_copied = {name for name, tensor in values.items() if isinstance(tensor, FakeTensor)}
    not_copied |= {named.name for named in program.tensors if named.role == "parameter"} - program.changed_names
    copies = copy_values({name: tensor for name, tensor in values.items() if name not in not_copied})
    # `.data` is a new leaf in the same memory: it can require grad while the parameter itself stays as it is.
    leaves = {name: values[name].data if name in not_copied else copies[name] for name in values}
    for named in program.tensors:
        if named.name in leaves and named.requires_grad:
            leaves[named.name].requires_grad_(True)
    return leaves


def run_backward(
    program: CalledProgram,
    leaves: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor | None] | None,
    shards: dict[str, str] | None = None,
    retain_graph: bool = False,
) -> dict[str, Tensor | None]:
    """Run autograd's own backward and return the gradients of `leaves`, by the name of the tensor; an empty dict if
    nothing is to be differentiated, or if the program has run this backward itself. A gradient is None where autograd
    has none, and where the program has frozen the leaf.

    `tangents` has the tangent of each output that requires grad; without `tangents`, or for an output that it does not
    name, it is ones. An output whose tangent is None takes no part, like an output that a loss does not depend on. For
    a gradient that is a DTensor, its sharding is put into `shards`. With `retain_graph`, another backward may follow.
    """
    requiring_grad = [named for named in program.tensors if named.requires_grad]
    # Less the leaves that the program has frozen itself, by `requires_grad_(False)`.
    wanted = [named for named in requiring_grad if leaves[named.name].requires_grad]
    tangents_given = tangents or {}
    outputs_left_out = {name for name, tangent in tangents_given.items() if tangent is None}
    roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad and name not in outputs_left_out}
    if not roots or not requiring_grad:
        return {}
    if not wanted:  # the program has frozen all of them, after their last use
        return dict.fromkeys((name for named in requiring_grad for name in (named.name, *named.other_names)), None)
    grad_outputs = [tangent_for_output(tensor, tangents_given.get(name)) for name, tensor in roots.items()]
    with (
        modes_reach_backward(),
        with_foreign_random_states(program.foreign_random, program.target.snapshot, backward=True),
    ):
        computed = program.foreign_random.context.run(
            _gradients_by_autograd,
            program,
            list(roots.values()),
            [leaves[named.name] for named in wanted],
            grad_outputs,
            retain_graph,
        )
    if computed is None:
        return {}
    gradient_by_name = dict(zip((named.name for named in wanted), computed, strict=True))
    return _gradients_under_all_names(
        requiring_grad, gradient_by_name, shards if shards is not None else {}, copies=program.reduces_gradients
    )


def _gradients_under_all_names(
    requiring_grad: Sequence[NamedTensor],
    gradient_by_name: Mapping[str, Tensor | None],
    shards: dict[str, str],
    copies: bool,
) -> dict[str, Tensor | None]:
    """Return the detached gradient of each tensor under each name for which it was passed, or None if it has none. Of a
    DTensor, the tensor inside is returned, and its sharding is put into `shards`.

    `copies` asks for copies: DDP may accumulate gradients in its buckets, which the next step fills again.
    """
    gradients: dict[str, Tensor | None] = {}
    for named in requiring_grad:
        gradient = gradient_by_name.get(named.name)
        for name in (named.name, *named.other_names):
            gradients[name] = None
            if gradient is None:
                continue
            if text := sharding_text(gradient):
                shards[name] = text
            inner = unwrap(gradient).detach()
            gradients[name] = inner.clone() if copies else inner
    return gradients


def reads_grad_attribute(program: CalledProgram, leaves: Iterable[Tensor]) -> bool:
    """Whether the gradients of these leaves are read from `.grad` after a backward, because they are only there
    (`CalledProgram.accumulates_gradients`), or because hooks after accumulation may change them there."""
    if program.accumulates_gradients:
        return True
    return program.runs_post_accumulate_hooks and any(leaf.is_leaf and post_accumulate_hooks(leaf) for leaf in leaves)


@contextlib.contextmanager
def without_post_accumulate_hooks(leaves: Iterable[Tensor]) -> Iterator[None]:
    """Remove the post-accumulate-grad hooks of these leaves for the time of a backward."""
    tables = [table for leaf in leaves if leaf.is_leaf and (table := post_accumulate_hooks(leaf))]
    hooks = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    try:
        yield
    finally:
        for table, removed in zip(tables, hooks, strict=True):
            table.update(removed)


def tangent_for_output(output: Tensor, tangent: Tensor | None) -> Tensor:
    """Return the tangent of an output in the form that autograd takes: for an output that is a wrapper (a DTensor), a
    wrapper around it. None stands for ones."""
    wrapping = wrapping_of(output)  # how the output wraps another tensor; None if it wraps none
    inner = ones_tangent(unwrap(output)) if tangent is None else tangent
    return inner if wrapping is None else wrapping.around(inner, tangent=True)


@frames.calls_program
def _gradients_by_autograd(
    program: CalledProgram, roots: list[Tensor], leaves: list[Tensor], tangents: list[Tensor], retain_graph: bool
) -> Sequence[Tensor | None] | None:
    """Run backward from `roots`, the outputs, with a tangent for each, and return the gradients of `leaves`, one for
    each; None if the program has already run backward from these outputs itself, which has freed their autograd graph.
    The caller's own `.grad` stays as it was."""
    try:
        if not reads_grad_attribute(program, leaves):
            return for_program(
                torch.autograd.grad, roots, leaves, tangents, allow_unused=True, retain_graph=retain_graph
            )
        # An empty `.grad` receives the gradient of this backward alone.
        own_gradients = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        hooks = (
            contextlib.nullcontext() if program.runs_post_accumulate_hooks else without_post_accumulate_hooks(leaves)
        )
        with hooks:
            for_program(torch.autograd.backward, roots, tangents, retain_graph=retain_graph)
        gradients = [leaf.grad for leaf in leaves]
        for leaf, gradient in zip(leaves, own_gradients, strict=True):
            leaf.grad = gradient
        return gradients
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            return None
        raise


# ---- The state around a run: what the program reaches, and the settings of the process


@contextlib.contextmanager
def restoring_state(program: CalledProgram) -> Iterator[None]:
    """Take a Snapshot (the state) of everything that the program reaches, unless an enclosing block has taken one, and
    restore all of it at the end. `program.target.snapshot` has the Snapshot meanwhile. A program with an iterator is
    refused: each run would use it up."""
    target = program.target
    # `target.target`, the callable, is None once the program is released.
    if target.snapshot is not None or target.target is None:
        yield
        return
    callers = target if isinstance(target, CallersObjects) else None
    leaves = zip(program.leaf_names, program.leaves, strict=True)
    with restoring_everything_reachable(target.target, program.loss, dict(program.external_tensors)) as snapshot:
        if callers is not None:
            # Read before the arguments are searched: these ids leave out tensors that only the call passes.
            callers.reachable_ids = frozenset(snapshot.tensors_by_id)
        # Also everything that the arguments lead to: each argument with its name, then the containers of the call,
        # which have none.
        snapshot.search([*leaves, ("", callers.call if callers is not None else ())])
        snapshot.refuse_iterators(program.title)
        target.snapshot = snapshot
        try:
            yield
        finally:
            target.snapshot = None


@contextlib.contextmanager
def _settings_as_captured(program: CalledProgram) -> Iterator[None]:
    """Set the process-wide settings (autocast, default dtype, …) and the modules' train or eval mode as at capture.

    All settings that the run changes are set back, so that the next run begins as this one did. Without the caller's
    objects, nothing is known of the settings at capture, and nothing is set.
    """
    target = program.target
    if not isinstance(target, CallersObjects):
        yield
        return
    settings = {name: read() for name, (read, _) in GLOBALS.items()}
    flags = [(module, module.training) for module, _ in target.training]
    for module, training in target.training:
        if module.training != training:
            module.training = training
    _set_globals(target.switches)
    torch.clear_autocast_cache()  # its keys are tensors by identity, and their values may have changed
    try:
        with default_device(target.device):
            yield
    finally:
        torch.clear_autocast_cache()
        _set_globals(settings)
        for module, training in flags:
            if module.training != training:
                module.training = training


def _set_globals(wanted: Mapping[str, Any]) -> None:
    """Set the process-wide settings in `wanted`, by name (a key of GLOBALS), that have another value now. GLOBALS has
    the functions that read and set each."""
    for name, value in wanted.items():
        read, set_value = GLOBALS[name]
        if read() != value:
            set_value(value)


# ---- A program that is ready to run


@dataclass(slots=True)
class TensorMark:
    """The state of a tensor when a run began. `version` is its version counter, and `alias` a detached tensor with the
    memory, shape and strides that it had then. `content` are copies of its storages (a sparse tensor has several), or
    None for a tensor that is too large to copy or has no ordinary memory."""

    version: int
    alias: Tensor
    content: tuple[Any, ...] | None

    def has_changed(self, tensor: Tensor) -> bool:
        """Whether the tensor has changed since the mark was made. A tensor without `content` may have changed
        unseen."""
        # `has_same_placement`: it is in the same memory, with the same shape, strides and offset.
        if version_of(tensor) != self.version or not has_same_placement(tensor, self.alias):
            return True
        # Writes through `.data`, NumPy or a kernel do not bump the version, so the bytes are compared too.
        if self.content is None:
            return False
        now = (part.untyped_storage() for part in strided_parts(tensor))
        return not all(same_bytes(left, right) for left, right in zip(now, self.content, strict=True))


@dataclass(slots=True)
class Staged:
    """A program ready to run: its tensors, and the state before the run. All dicts of tensors are by name.

    `passed` has the tensors that the program takes, and `unwrapped` the same tensors without wrappers (the tensor
    inside of a DTensor). `leaves` are the tensors whose gradients autograd computes: those in `passed`, except where
    the program takes a clone or, on stand-ins, a wrapper. `marks` has the state of each tensor in `unwrapped` before
    the run. `aliases` are other tensors of the program in the same memory, each with its state. `reached_tensors` are
    the tensors that modules and containers held before the run, `gradients` the `.grad` of each leaf by the leaf's id,
    and `state_ids` the ids of the tensors in the states of `optimizers`.
    """

    program: CalledProgram
    unwrapped: dict[str, Tensor]
    passed: dict[str, Tensor]
    leaves: dict[str, Tensor]
    marks: dict[str, TensorMark]
    aliases: dict[str, tuple[Tensor, TensorMark]]
    reached_tensors: dict[str, Tensor]
    gradients: dict[int, Tensor | None]
    optimizers: dict[str, torch.optim.Optimizer]
    state_ids: frozenset[int]

    def new_tensors(self, outside: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return, by name, the tensors that modules and containers hold now and did not hold before the run. Tensors
        that changed because they share memory with the program's tensors, or with the external tensors in `outside`,
        are returned too."""
        new: dict[str, Tensor] = {}
        name_by_id = {
            id(tensor): name for name, tensor in {**self.program.own_tensors(), **self.program.wrappers()}.items()
        }
        reduces_gradients = self.program.reduces_gradients
        # FSDP2 puts the gathered parameter in the place of the sharded one (a DTensor) until the backward has ended:
        # that is no new tensor. By id, the sharded parameters.
        sharded_ids = {
            id(self.passed[name]) for name in self.program.wrappings if name in self.passed and reduces_gradients
        }
        for name, tensor in tensors_of(self.program.target()):
            before = self.reached_tensors.get(name)
            if id(before) in sharded_ids:
                continue
            if before is not tensor and name not in new:
                # Where one of the program's own tensors was held, the new tensor counts as that tensor's new value,
                # under that tensor's name.
                new[name_by_id.get(id(before), name) if before is not None else name] = unwrap(tensor)
        with untraced():
            changed = {name: tensor for name, (tensor, mark) in self.aliases.items() if mark.has_changed(tensor)}
            changed |= {
                name: tensor
                for name, tensor in self.tensors_sharing_memory(outside or {})
                if self.has_changed_since_snapshot(tensor)
            }
        return {**changed, **new}

    def tensors_sharing_memory(self, outside: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield, each with its name, the tensors that the program reached before the run and that share memory with the
        external tensors in `outside`. The program's own tensors, the external ones themselves, and tensors in the
        memory of own tensors (they are in `aliases`) are left out."""
        memories = _storage_ids(outside.values()) - _storage_ids(self.unwrapped.values())
        known = {
            id(tensor) for tensor in (*self.program.own_tensors().values(), *self.unwrapped.values(), *outside.values())
        }
        yield from _tensors_in_storages(memories, self.reached_tensors, known)

    def has_changed_since_snapshot(self, tensor: Tensor) -> bool:
        """Whether a tensor has changed since the program's Snapshot was taken, before the run. It has no mark, because
        it was not known before the run that an external tensor shares its memory."""
        target = self.program.target
        snapshot = target.snapshot if isinstance(target, CallersObjects) else None
        kept_tensor = snapshot.tensors_by_id.get(id(tensor)) if snapshot is not None else None
        if snapshot is None or kept_tensor is None or kept_tensor.alias is None:
            return False
        # The Snapshot has the content of each storage once, at one of the tensors that use it.
        in_same_memory = (other for other in snapshot.tensors if other.memory == kept_tensor.memory)
        content = next((other.content for other in in_same_memory if other.content is not None), None)
        # The version is None for an inference tensor only, which has no version counter.
        return TensorMark(kept_tensor.version or 0, kept_tensor.alias, content).has_changed(tensor)

    def new_gradients(self, outside: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return the gradients (`NAME.grad`) that the run has set on leaves, also on the external tensors in `outside`,
        and the tensors that it has put into the states of optimizers (`NAME.state.KEY`). A tensor that was there before
        is not new: if the run added to it in place, that is a write. Of a DTensor, the tensor inside is returned."""
        new = {}
        for name, tensor in {**self.passed, **(outside or {})}.items():
            if tensor.is_leaf and tensor.grad is not None and tensor.grad is not self.gradients.get(id(tensor)):
                new[f"{name}.grad"] = unwrap(tensor.grad)
        for name, optimizer in self.optimizers.items():
            for key, tensor in state_of_optimizer(optimizer).items():
                if id(tensor) not in self.state_ids:
                    new[f"{name}.state.{key}"] = unwrap(tensor)
        return new

    def changed_names(self, new: Mapping[str, Tensor]) -> set[str]:
        """Return the names of the program's tensors that the run wrote to, or that share memory with one to which it
        wrote. A tensor whose name is in `new`, because the run put another tensor in its place, is no written one."""
        known = self.program.changed_names
        with untraced():
            written = {
                name
                for name, tensor in self.unwrapped.items()
                if name not in new and (name in known or self.marks[name].has_changed(tensor))
            }
        groups = (*self.program.written_alias_groups, *alias_groups(self.unwrapped))
        return written | {name for group in groups if written & set(group) for name in group if name in self.unwrapped}


@contextlib.contextmanager
def staged(program: CalledProgram, values: Mapping[str, Tensor] | None = None, anew: bool = False) -> Iterator[Staged]:
    """Prepare the program to run on these values by name (None: its own as captured), and restore everything
    afterwards. Inside of the block, each collective of a rank that runs alone is answered by its `peers`.

    With `anew`, other tensors replace the caller's arguments even if the values are the same.
    """
    if isinstance(program.target, CallersObjects):
        with (
            restoring_state(program),
            _settings_as_captured(program),
            _on_own_objects(program, values, anew) as stage,
            answering(program.peers),
        ):
            yield stage
        return
    # Stand-ins: leaves for the gradients, clones of those that are written to, and wrappers around them.
    leaves = _leaf_values(program, program.current_tensors() if values is None else values)
    with torch.enable_grad():
        ready = clone_written_tensors(program, leaves, lambda tensor: tensor.clone())
        passed = wrap_values(program, ready)
    with (
        restoring_everything_reachable(program.target(), dict(program.external_tensors), nontensor_arguments(program)),
        with_values(program, ready, passed=passed),
    ):
        gradients = _set_gradients_of_stand_ins(ready)
        yield _make_staged(program, ready, passed, leaves, gradients)


@contextlib.contextmanager
def _on_own_objects(program: CalledProgram, values: Mapping[str, Tensor] | None, anew: bool) -> Iterator[Staged]:
    """Prepare the caller's own tensors for a run: write the values (None: those of the capture) into them, and let them
    require grad as the program's NamedTensors say. With `anew`, other tensors replace the arguments."""
    assert isinstance(program.target, CallersObjects)
    snapshot = program.target.snapshot
    assert snapshot is not None
    own_tensors, wrappers = program.own_tensors(), program.wrappers()
    written = program.changed_names
    # Remember every tensor before it is written to. `whole`: the content of a tensor that the program is known to write
    # to is copied, whatever its size.
    for name, tensor in own_tensors.items():
        snapshot.add(name, tensor, whole=name in written)
    values_given = values if values is not None else {**program.external_tensors, **program.values}
    with contextlib.ExitStack() as stack:
        # Entered first, so it runs last: after `_swap_back` has returned the large contents.
        stack.callback(snapshot.restore)
        _replace_arguments(program, own_tensors, wrappers, values_given, anew)
        # Write all other values into the caller's own tensors.
        _write_values(own_tensors, values_given, snapshot, stack, written)
        # Other threads must not see that an argument requires grad here.
        own_tensors |= {
            name: _alias_of(own_tensors[name])
            for name in program.values
            if is_reached_as_argument_only(program, own_tensors[name])
        }
        # Make each require grad as the program's tensor does. `leaves` are the tensors whose gradients are taken,
        # `passed` those that the program takes.
        passed, leaves = {}, {}
        for named in program.tensors:
            is_cloned = named.name in program.cloned_when_eager and named.name in program.values
            tensor = wrappers.get(named.name, own_tensors[named.name])
            leaves[named.name], passed[named.name] = _leaf_and_argument(tensor, named, is_cloned)
        ready = {name: unwrap(tensor) for name, tensor in passed.items()}
        stack.enter_context(_training_mode(program.target(), program.mode))
        stack.enter_context(torch.enable_grad())
        gradients = {id(tensor): tensor.grad for tensor in leaves.values() if tensor.is_leaf}
        yield _make_staged(program, ready, passed, leaves, gradients)


def _replace_arguments(
    program: CalledProgram,
    own_tensors: dict[str, Tensor],
    wrappers: dict[str, Tensor],
    values: Mapping[str, Tensor],
    anew: bool,
) -> None:
    """Put new tensors with these values into `own_tensors`, in the place of the arguments that cannot hold their new
    values (another shape), or must not (`_needs_other_tensor`), and new wrappers around them into `wrappers`."""
    names_sharing_memory = {name for group in alias_groups(dict(own_tensors)) for name in group}
    for name in program.values:
        if name in values and _needs_other_tensor(own_tensors[name], values[name], name in names_sharing_memory, anew):
            own_tensors[name] = _other_tensor_like(own_tensors[name], values[name])
            if name in wrappers:
                wrappers[name] = program.wrappings[name].wrap(own_tensors[name], wrappers[name].requires_grad)


def _needs_other_tensor(tensor: Tensor, value: Tensor, shares_memory: bool, anew: bool) -> bool:
    """Whether another tensor must take the place of an argument, to have this value, as in a call with other values.
    With `anew`, each argument is replaced that can be.

    `shares_memory` says that the argument shares memory with another tensor of the call. Such an argument, unless its
    shape is another, stays, and the value is written into it: a new tensor would share no memory.
    """
    if anew:
        return not shares_memory and has_ordinary_memory(tensor) and tensor.is_leaf and not is_view(tensor)
    if value.shape != tensor.shape:
        return True
    with untraced():
        return (
            not shares_memory
            and has_ordinary_memory(tensor)
            and not (same_memory(tensor, value) or same_content(tensor, value))
        )


def _other_tensor_like(tensor: Tensor, value: Tensor) -> Tensor:
    """Return a new tensor with this value and an argument's class, attributes, gradient, hooks and version: whatever a
    program can see of the argument."""
    with torch.no_grad():
        other = copy_values({"": value.detach()})[""]  # it copies tensors by name: here one, without a name
    other = nn.Parameter(other, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else other
    other.requires_grad_(tensor.requires_grad)
    other.__dict__.update(tensor.__dict__)
    if tensor.is_leaf and tensor.grad is not None and tensor.grad.shape == other.shape:
        other.grad = tensor.grad
    for hook in gradient_hooks_of(tensor):
        other.register_hook(hook)
    for hook in (post_accumulate_hooks(tensor) or {}).values() if tensor.is_leaf else ():
        other.register_post_accumulate_grad_hook(hook)
    if not tensor.is_inference():
        set_version_counters((other,), (version_of(tensor),))
    return other


def with_other_arguments(stage: Staged, values: Mapping[str, Tensor]) -> Staged:
    """Return the Staged of another call of the program: new tensors with these values, by name, as arguments, and
    everything else as in `stage`.

    Arguments that have their value already, that share memory with others, or that are inside of a wrapper, stay the
    same tensors.
    """
    program = stage.program
    own_tensors = program.own_tensors()
    names_sharing_memory = {name for group in alias_groups(dict(own_tensors)) for name in group}
    passed, leaves = dict(stage.passed), dict(stage.leaves)
    for named in program.tensors:
        name = named.name
        if name not in values or name not in program.values or name in program.wrappings:
            continue
        if _needs_other_tensor(own_tensors[name], values[name], name in names_sharing_memory, anew=False):
            is_cloned = name in program.cloned_when_eager
            leaves[name], passed[name] = _leaf_and_argument(
                _other_tensor_like(own_tensors[name], values[name]), named, is_cloned
            )
    return replace(
        stage, passed=passed, leaves=leaves, unwrapped={name: unwrap(tensor) for name, tensor in passed.items()}
    )


def write_parameters(stage: Staged, values: Mapping[str, Tensor]) -> None:
    """Write values into the program's own small parameters between two calls, as a step of an optimizer does. Large
    ones, and those without ordinary memory, stay: a copy of each would be needed to restore it."""
    program = stage.program
    snapshot = program.target.snapshot if isinstance(program.target, CallersObjects) else None
    own = program.own_tensors()
    for name in {named.name for named in program.tensors if named.role == "parameter"} & set(values):
        tensor = own[name]
        if (
            snapshot is not None
            and has_ordinary_memory(tensor)
            and tensor.untyped_storage().nbytes() <= LARGE_PARAMETER
        ):
            snapshot.add(name, tensor, whole=True)
            with untraced():
                write_value(tensor, values[name])


def is_reached_as_argument_only(program: CalledProgram, tensor: Tensor) -> bool:
    """Whether an argument requires grad in the capture by default only, the program reaches it in no other way than as
    an argument, and other threads run in this process.

    An alias replaces such an argument: the other threads, which may use it, must not see that it requires grad.
    """
    assert isinstance(program.target, CallersObjects)
    is_unreached_leaf = tensor.is_leaf and not tensor.requires_grad and id(tensor) not in program.target.reachable_ids
    return program.grad_by_default and is_unreached_leaf and threading.active_count() > 1


def _alias_of(tensor: Tensor) -> Tensor:
    """Return another tensor, which does not require grad, with the same memory and the same Python attributes."""
    # `detach` returns a plain Tensor without the attributes that a user has set on this one.
    alias = tensor.detach()
    alias.__dict__.update(tensor.__dict__)
    return alias


def _make_staged(
    program: CalledProgram,
    ready: dict[str, Tensor],
    passed: dict[str, Tensor],
    leaves: dict[str, Tensor],
    gradients: dict[int, Tensor | None],
) -> Staged:
    """Return a Staged of these tensors, with their current state, just before the run. The parameters are fields of
    Staged; `ready` is its `unwrapped`."""
    # The other tensors and the optimizers of the program, which the run may change.
    reached = dict(tensors_of(program.target()))
    optimizers = {
        name: optimizer
        for name, optimizer in stateful_objects(program.target()).items()
        if isinstance(optimizer, torch.optim.Optimizer)
    }
    states = frozenset(id(t) for optimizer in optimizers.values() for t in state_of_optimizer(optimizer).values())
    known = {id(tensor) for tensor in (*program.own_tensors().values(), *ready.values(), *passed.values())}
    with untraced():
        snapshot = program.target.snapshot if isinstance(program.target, CallersObjects) else None
        # The state of the tensors in `ready`, and of others in the same memory.
        marks = {name: make_mark(tensor, snapshot) for name, tensor in ready.items()}
        memories = _storage_ids(ready.values())
        aliases = {
            name: (tensor, make_mark(tensor, snapshot))
            for name, tensor in _tensors_in_storages(memories, reached, known)
        }
    return Staged(
        program=program,
        unwrapped=ready,
        passed=passed,
        leaves=leaves,
        marks=marks,
        aliases=aliases,
        reached_tensors=reached,
        gradients=gradients,
        optimizers=optimizers,
        state_ids=states,
    )


def _storage_ids(tensors: Iterable[Tensor]) -> set[int]:
    """Return the ids of the storages of tensors that have ordinary memory."""
    parts = (part for tensor in tensors for part in strided_parts(tensor) if has_ordinary_memory(tensor))
    return {storage_id(part.untyped_storage()) for part in parts}


def _tensors_in_storages(
    memories: Collection[int], reached: Mapping[str, Tensor], known: Collection[int]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `reached`, and their gradients (`NAME.grad`), that use one of the storages whose ids are
    `memories`, each with its name. Tensors whose ids are in `known` are left out."""
    grads = {
        f"{name}.grad": tensor.grad for name, tensor in reached.items() if tensor.is_leaf and tensor.grad is not None
    }
    for name, tensor in {**reached, **grads}.items():
        if id(tensor) in known or not has_ordinary_memory(tensor):
            continue
        # The last part of a sparse tensor is its values.
        if storage_id(strided_parts(tensor)[-1].untyped_storage()) in memories:
            yield name, tensor


def has_ordinary_memory(tensor: Tensor) -> bool:
    """Whether a tensor has ordinary memory: it is not on the meta device, not nested, and of no subclass but Parameter
    and Buffer (so it is not fake)."""
    return tensor.device.type != "meta" and type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and not tensor.is_nested


def make_mark(tensor: Tensor, snapshot: Snapshot | None) -> TensorMark:
    """Return the current state of a tensor. The content of a large parameter is copied only if the Snapshot has a copy
    of it too, because the program is known to write to it; without ordinary memory, there is none to copy."""
    is_ordinary = has_ordinary_memory(tensor)
    size = sum(part.untyped_storage().nbytes() for part in strided_parts(tensor)) if is_ordinary else 0
    is_in_snapshot = (
        snapshot is not None
        and is_ordinary
        and storage_id(strided_parts(tensor)[-1].untyped_storage()) in snapshot.copied_storages
    )
    with_content = is_ordinary and (is_in_snapshot or not (isinstance(tensor, nn.Parameter) and size > LARGE_PARAMETER))
    content = tuple(part.untyped_storage().clone() for part in strided_parts(tensor)) if with_content else None
    return TensorMark(version_of(tensor), tensor.detach(), content)


def _leaf_and_argument(tensor: Tensor, named: NamedTensor, is_cloned: bool) -> tuple[Tensor, Tensor]:
    """Return the tensor whose gradient is taken, and the tensor that the program takes, made from the caller's own.
    They require grad as `named` says. They differ if `is_cloned`: the program then takes a clone, which it may write
    to."""
    # Autograd lets only leaves change `requires_grad`; a detached tensor has the same memory.
    if tensor.requires_grad and not named.requires_grad and not tensor.is_leaf:
        detached = tensor.detach()
        return detached, detached
    # A view reads as requiring grad as soon as its base does, so its own flag is set in any case.
    is_view_requiring_grad = named.requires_grad and is_view(tensor)
    if tensor.is_leaf and (tensor.requires_grad != named.requires_grad or is_view_requiring_grad):
        tensor.requires_grad_(named.requires_grad)
    if not is_cloned:
        return tensor, tensor
    # Recorded, so that the clone's gradient arrives at the leaf.
    with torch.enable_grad():
        return tensor, tensor.clone()


def _set_gradients_of_stand_ins(ready: Mapping[str, Tensor]) -> dict[int, Tensor | None]:
    """Set `.grad` of each stand-in to the stand-in named `NAME.grad`, if there is one: the program reads its gradient.
    Return the gradients that were set, by the id of the tensor."""
    gradients: dict[int, Tensor | None] = {}
    for name, tensor in ready.items():
        gradient = ready.get(f"{name}.grad")
        if gradient is not None and tensor.is_leaf and tensor.shape == gradient.shape:
            tensor.grad = gradient
            gradients[id(tensor)] = gradient
    return gradients
