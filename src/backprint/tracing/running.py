"""Run a program: which tensors it runs on, and what it returns."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from backprint._torch import pytree
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import reparametrized
from backprint.defects import for_program
from backprint.errors import UsageError
from backprint.result_tree import ResultTree, outputs_of
from backprint.tracing import frames
from backprint.tracing.chance import same_chance
from backprint.tracing.custom import through
from backprint.tracing.iterators import copied_iterator, is_iterator
from backprint.tracing.program import CalledProgram, OwnObjects, Slot, state_of
from backprint.tree import copy_values, ones_tangent


class Substitute(TorchFunctionMode):
    """While a program runs, replaces tensors that it reads from outside."""

    def __init__(self, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        swap = functools.partial(_swapped, self.table)
        return through(self, func, _mapped(swap, args), _mapped(swap, kwargs or {}))


def with_others(table: Mapping[int, Tensor], value: Any) -> Any:
    """Return nested arguments with tensors replaced as the table says."""
    return _mapped(functools.partial(_swapped, table), value)


def _swapped(table: Mapping[int, Tensor], value: Any) -> Any:
    return table.get(id(value), value)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the leaves of plain nested arguments."""
    kind = type(value)
    if kind in (tuple, list):
        return kind([_mapped(function, item) for item in value])
    if kind is dict:
        return {key: _mapped(function, item) for key, item in value.items()}
    return function(value)


@contextlib.contextmanager
def training_mode(module: Any, mode: str | None) -> Iterator[None]:
    """Set the module to train or eval mode, and restore every flag afterwards."""
    if mode is None or not isinstance(module, nn.Module):
        yield
        return
    before = [(child, child.training) for child in module.modules()]
    module.train(mode == "train")
    try:
        yield
    finally:
        for child, flag in before:
            child.training = flag


@contextlib.contextmanager
def with_values(
    program: CalledProgram, values: Mapping[str, Tensor], table: dict[int, Tensor] | None = None
) -> Iterator[None]:
    """Set the program's state and outside tensors to these values while its forward and backward run.

    A backward may recompute parts of the forward (checkpointing), so this spans both. With a `table`, the caller has
    already entered a Substitute mode with it.
    """
    target = program.target()
    swapped = {id(tensor): values[name] for name, tensor in program.own().items() if name in values}
    with contextlib.ExitStack() as stack:
        stack.enter_context(training_mode(target, program.mode))
        if isinstance(target, nn.Module):
            own = state_of(target)
            state = {name: tensor for name, tensor in values.items() if name in own}
            stack.enter_context(reparametrized(target, state, tie_weights=True))
        if table is not None:
            table.clear()
            table.update(swapped)
        elif swapped:
            stack.enter_context(Substitute(swapped))
        yield


@contextlib.contextmanager
def modes_reach_backward() -> Iterator[None]:
    """Keep function modes on while autograd runs: a backward that recomputes the forward must go through them.

    `torch.autograd.grad` is itself a function that modes see, and a mode is off while it handles one.
    """
    before, ours = torch.autograd.has_torch_function, threading.get_ident()
    torch.autograd.has_torch_function = lambda given: threading.get_ident() != ours and before(given)
    try:
        yield
    finally:
        torch.autograd.has_torch_function = before


@frames.calls_program
def call(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Return the program's result on these values."""
    target = program.target()
    args, kwargs = own_arguments(program, values)
    program.chance.context = contextvars.copy_context()
    with same_chance(program.chance, program.target.picture):
        return for_program(program.chance.context.run, target, *args, **kwargs)


def own_arguments(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Return the call's own containers, if they hold these tensors; else new ones."""
    held = program.target
    if isinstance(held, OwnObjects) and not any(map(is_iterator, program.leaves)):
        found, structure = pytree.tree_flatten(held.call)
        wanted = [values[leaf.name] if isinstance(leaf, Slot) else leaf for leaf in program.leaves]
        if structure == program.structure and len(found) == len(wanted) and all(map(operator.is_, found, wanted)):
            return held.call
    return call_arguments(program, values)


def call_arguments(program: CalledProgram, values: Mapping[str, Tensor]) -> Any:
    """Return the arguments and keyword arguments of the program's call, with these values and copies of iterators."""
    copies: dict[int, tuple[Any, Any]] = {}
    leaves = [
        values[leaf.name] if isinstance(leaf, Slot) else copied_iterator(leaf, copies) if is_iterator(leaf) else leaf
        for leaf in program.leaves
    ]
    return pytree.tree_unflatten(leaves, program.structure)


def shielded(
    program: CalledProgram, values: Mapping[str, Tensor], mark: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """Put copies in front of tensors that the program changes in place or that have hooks: the leaves stay leaves."""
    ready = dict(values)
    for name in program.shields:
        ready[name] = mark(values[name])
        for hook in program.hooks.get(name, ()):
            if ready[name].requires_grad:
                ready[name].register_hook(hook)
    return ready


def with_loss(program: CalledProgram, result: Any) -> Any:
    """Return the loss and the detached result; without a loss, the result."""
    if program.loss is None:
        return result
    loss = check_loss(for_program(program.chance.context.run, program.loss, result))
    named, tree = outputs_of(result)
    cut = tree.rebuilt([leaf.detach() if isinstance(leaf, Tensor) else leaf for _, leaf in named])
    return {"loss": loss, "output": cut}


def check_loss(loss: Any) -> Tensor:
    """Return the loss, if it is a tensor with one element."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise UsageError(f"loss must return a tensor with one element, not {describe(loss)}")
    return loss


def describe(value: Any) -> str:
    """Describe a value for a message."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def result_of(program: CalledProgram, ready: Mapping[str, Tensor]) -> Any:
    """Return the program's result with its loss, and for order=2 the gradients of both too."""
    result = with_loss(program, call(program, ready))
    if not program.tangents:
        return result
    named, _ = named_outputs(replace(program, tangents=()), result)
    given = {name: ready[f"tangent.{name}"] for name in program.tangents}
    roots = {name: leaf for name, leaf in named if isinstance(leaf, Tensor) and leaf.requires_grad}
    wanted = [each.name for each in program.tensors if each.requires_grad and not each.name.startswith("tangent.")]
    found = for_program(
        torch.autograd.grad,
        list(roots.values()),
        [ready[name] for name in wanted],
        [given[name] for name in roots],
        create_graph=True,
        allow_unused=True,
    )
    gradients = dict(zip(wanted, found, strict=True))
    if program.loss is not None:
        return {**result, "gradient": gradients}
    return {"output": result, "gradient": gradients}


def named_outputs(program: CalledProgram, result: Any) -> tuple[list[tuple[str, Any]], ResultTree]:
    """Return `outputs_of` a program's result; a loss is named `loss`, gradients `gradient.NAME`."""
    if program.tangents:
        named, _ = named_outputs(
            replace(program, tangents=()), result if program.loss is not None else result["output"]
        )
        named += [(f"gradient.{name}", gradient) for name, gradient in result["gradient"].items()]
        return named, outputs_of({"output": result["output"], "gradient": result["gradient"]})[1]
    if program.loss is None:
        return outputs_of(result)
    named, structure = outputs_of(result["output"])
    return [("loss", result["loss"]), *named], structure


def leaf_values(program: CalledProgram, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return new leaves with these values that require grad as the program's tensors do.

    All are copies, except for parameters that no run is known to change, and for fake tensors, which are new already.
    """
    still = {name for name, tensor in values.items() if isinstance(tensor, FakeTensor)}
    still |= {named.name for named in program.tensors if named.role == "parameter"} - program.changed
    copies = copy_values({name: tensor for name, tensor in values.items() if name not in still})
    leaves = {name: values[name].data if name in still else copies[name] for name in values}
    for named in program.tensors:
        if named.name in leaves and named.requires_grad:
            leaves[named.name].requires_grad_(True)
    return leaves


def pull_back(
    program: CalledProgram,
    leaves: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor] | None,
) -> dict[str, Tensor | None]:
    """Return autograd's own gradients of the outputs that require grad, with these tangents (None: ones)."""
    asking = [named for named in program.tensors if named.requires_grad]
    wanted = [named for named in asking if leaves[named.name].requires_grad]  # a program may freeze its own parameters
    roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad}
    if not roots or not asking:
        return {}
    if not wanted:  # the program has frozen them all, after their last use
        return dict.fromkeys((name for named in asking for name in (named.name, *named.same)), None)
    known = tangents or {}
    pulls = [known[name] if name in known else ones_tangent(tensor) for name, tensor in roots.items()]
    with modes_reach_backward(), same_chance(program.chance, program.target.picture, backward=True):
        found = program.chance.context.run(
            _pulled, program, list(roots.values()), [leaves[named.name] for named in wanted], pulls
        )
    if found is None:
        return {}
    given = dict(zip((named.name for named in wanted), found, strict=True))
    gradients = {}
    for named in asking:
        gradient = given.get(named.name)
        for name in (named.name, *named.same):
            gradients[name] = gradient.detach() if gradient is not None else None
    return gradients


@frames.calls_program
def _pulled(
    program: CalledProgram, roots: list[Tensor], leaves: list[Tensor], tangents: list[Tensor]
) -> Sequence[Tensor | None] | None:
    """Return the leaves' gradients; None if the program has already run backward from these outputs itself."""
    try:
        if not program.accumulates:
            return for_program(torch.autograd.grad, roots, leaves, tangents, allow_unused=True)
        before = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        for_program(torch.autograd.backward, roots, tangents)
        found = [leaf.grad for leaf in leaves]
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient
        return found
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            return None
        raise
