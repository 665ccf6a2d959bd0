"""Write values into the caller's own tensors, whose identity, attributes, hooks and aliases stay the same."""

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
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import reparametrized
from backprint._torch.tensors import is_view, storage_id, version_of
from backprint.errors import CaptureError, UsageError, for_program
from backprint.tracing import frames
from backprint.tracing.custom import through
from backprint.tracing.program import CalledProgram, NamedTensor, OwnObjects, Slot, hooks_of, objects_given, state_of
from backprint.tracing.reach import keepers, state_of_optimizer, tensors_of
from backprint.tracing.state.process import EACH_RUN, GLOBALS
from backprint.tracing.state.restore import kept, same_chance
from backprint.tracing.state.snapshot import Picture, copied_iterator, is_iterator
from backprint.tracing.state.tensors import LARGE, lies_as, same_bytes, untraced
from backprint.values.results import ResultTree, outputs_of
from backprint.values.settings import default_device
from backprint.values.tree import alias_groups, copy_values, ones_tangent, strided_parts


def put_values(
    own: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    picture: Picture,
    stack: contextlib.ExitStack,
    written: frozenset[str],
) -> None:
    """Write values into the caller's tensors. A large parameter with memory of its own is swapped with its value, and
    back."""
    alone = set(own) - {name for group in alias_groups(dict(own)) for name in group}
    shared = {name for group in alias_groups(dict(values)) for name in group}
    with untraced():
        for name, value in values.items():
            tensor = own.get(name)
            if tensor is None or same_memory(tensor, value) or same_content(tensor, value):
                continue
            kept = picture.by_id.get(id(tensor))
            if kept is not None and kept.is_large and name in alone - shared - written and alike(tensor, value):
                version = version_of(tensor)
                exchange(tensor, value)
                set_version_counters((tensor,), (version,))
                stack.callback(exchange_back, name, tensor, value, version)
                continue
            picture.add(name, tensor, whole=True)
            version = version_of(tensor)
            write_value(tensor, value)
            set_version_counters((tensor,), (version,))


def same_memory(tensor: Tensor, value: Tensor) -> bool:
    """Whether a value is the tensor itself."""
    return tensor is value or (tensor.layout is torch.strided and lies_as(tensor, value))


def same_content(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor already has these values, bit for bit."""
    if tensor.shape != value.shape or tensor.dtype is not value.dtype or tensor.layout is not value.layout:
        return False
    if tensor.is_complex() or tensor.is_neg() or tensor.layout is not torch.strided:
        return False
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    left, right = tensor.detach(), value.detach()
    if not left.dim():
        left, right = left.reshape(1), right.reshape(1)
    return left.stride() == right.stride() and bool(torch.equal(left.view(kind), right.view(kind)))


def alike(tensor: Tensor, value: Tensor) -> bool:
    """Whether two tensors have the same geometry in memory of their own, so that they can be swapped."""
    return (
        tensor.is_contiguous()
        and value.is_contiguous()
        and tensor.dtype is value.dtype
        and tensor.shape == value.shape
        and not value.requires_grad
    )


PIECE = 2**22
"""Elements that are swapped at a time."""


def exchange(tensor: Tensor, value: Tensor) -> None:
    """Swap the contents of two tensors."""
    left, right = tensor.detach().view(-1), value.detach().view(-1)
    for start in range(0, left.numel(), PIECE):
        first, second = left[start : start + PIECE], right[start : start + PIECE]
        between = first.clone()
        first.copy_(second)
        second.copy_(between)


def exchange_back(name: str, tensor: Tensor, value: Tensor, version: int) -> None:
    """Swap a tensor's own content back; raise if the run wrote to it, which its first run did not."""
    if version_of(tensor) == version:
        with untraced():
            exchange(tensor, value)
        return
    with untraced():
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
            tensor.data = copy_values({"": value})[""]
        return
    if tensor.shape != value.shape:
        raise CaptureError(f"a value of shape {list(value.shape)} does not fit a tensor of {list(tensor.shape)}")
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())
    target, source = tensor.detach(), value.detach()
    if once:
        target, source = target[once], source[once]
    target.copy_(source)


# ----------------------------------------------------------------------------
# Run a program: which tensors it runs on, and what it returns.
# ----------------------------------------------------------------------------


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


# ----------------------------------------------------------------------------
# Restore everything that a program reaches, and set the process as it was at capture, while the program runs again.
# ----------------------------------------------------------------------------


@contextlib.contextmanager
def protected(program: CalledProgram) -> Iterator[None]:
    """Remember everything that the program reaches once, and restore it at the end, whatever happens inside."""
    held = program.target
    if held.picture is not None or held.target is None:
        yield
        return
    own = held if isinstance(held, OwnObjects) else None
    leaves = zip(program.leaf_names, program.leaves, strict=True)
    with kept(held.target, program.loss, dict(program.outside)) as picture:
        if own is not None:
            own.reached = frozenset(picture.by_id)
        picture.go_on_with_call(leaves, own.call if own is not None else ())
        picture.refuse_iterators(program.title)
        held.picture = picture
        try:
            yield
        finally:
            held.picture = None


@contextlib.contextmanager
def as_captured(program: CalledProgram) -> Iterator[None]:
    """Set the process-wide settings (autocast, default dtype, …) and the modules' train or eval mode as at capture.

    All settings that the run changes are set back, so that the next run begins as this one did.
    """
    held = program.target
    if not isinstance(held, OwnObjects):
        yield
        return
    before = {name: GLOBALS[name][0]() for name in EACH_RUN}
    flags = [(module, module.training) for module, _ in held.training]
    for module, training in held.training:
        if module.training != training:
            module.training = training
    put_globals(held.under)
    torch.clear_autocast_cache()  # its keys are tensors by identity, and their values may have changed
    try:
        with default_device(held.device):
            yield
    finally:
        torch.clear_autocast_cache()
        put_globals(before)
        for module, training in flags:
            if module.training != training:
                module.training = training


def put_globals(wanted: Mapping[str, Any]) -> None:
    """Set the settings that differ."""
    for name, value in wanted.items():
        read, put = GLOBALS[name]
        if read() != value:
            put(value)


# ----------------------------------------------------------------------------
# Prepare a program to run on some values: on its own module, Parameters and arguments, or on stand-ins.
#
# The values of a run are written into the caller's own tensors, and everything is restored afterwards. If a program
#  has no tensors of the caller's (it runs on fake tensors, or is a graph of Dynamo's), stand-ins replace its
#  parameters instead.
# ----------------------------------------------------------------------------


@dataclass(slots=True)
class TensorMark:
    """The state of a tensor when a run began: its version, its memory, and, unless it is large, its content."""

    version: int
    alias: Tensor
    content: tuple[Any, ...] | None

    def touched(self, tensor: Tensor) -> bool:
        """Whether the tensor has changed since."""
        if version_of(tensor) != self.version or not lies_as(tensor, self.alias):
            return True
        if self.content is None:
            return False
        now = (part.untyped_storage() for part in strided_parts(tensor))
        return not all(same_bytes(left, right) for left, right in zip(now, self.content, strict=True))


@dataclass(slots=True)
class Staged:
    """A program ready to run: its tensors, the leaves of its gradients, and the state before the run."""

    program: CalledProgram
    ready: dict[str, Tensor]
    leaves: dict[str, Tensor]
    marks: dict[str, TensorMark]
    aliases: dict[str, tuple[Tensor, TensorMark]]
    reached: dict[str, Tensor]
    gradients: dict[int, Tensor | None]
    optimizers: dict[str, torch.optim.Optimizer]
    states: frozenset[int]

    def made(self, outside: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return the new tensors that modules and containers hold, and those that the run wrote to unseen: they lie in
        the memory of the program's tensors, or of those from `outside` that the run has met."""
        found: dict[str, Tensor] = {}
        own = {id(tensor): name for name, tensor in self.program.own().items()}
        for name, tensor in tensors_of(self.program.target()):
            before = self.reached.get(name)
            if before is not tensor and name not in found:
                found[own.get(id(before), name) if before is not None else name] = tensor
        with untraced():
            touched = {name: tensor for name, (tensor, mark) in self.aliases.items() if mark.touched(tensor)}
            touched |= {name: tensor for name, tensor in self.in_memory_of(outside or {}) if self.since_picture(tensor)}
        return {**touched, **found}

    def in_memory_of(self, outside: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield the program's other tensors in the memory of those from outside."""
        memories = memories_of(outside.values()) - memories_of(self.ready.values())
        known = {id(tensor) for tensor in (*self.program.own().values(), *self.ready.values(), *outside.values())}
        yield from lying_in(memories, self.reached, known)

    def since_picture(self, tensor: Tensor) -> bool:
        """Whether a tensor has changed since the program's Picture was made, just before the run."""
        target = self.program.target
        picture = target.picture if isinstance(target, OwnObjects) else None
        kept = picture.by_id.get(id(tensor)) if picture is not None else None
        if picture is None or kept is None or kept.alias is None:
            return False
        in_memory_too = (other for other in picture.tensors if other.memory == kept.memory)
        content = next((other.content for other in in_memory_too if other.content is not None), None)
        return TensorMark(kept.version or 0, kept.alias, content).touched(tensor)

    def left(self, outside: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Return new gradients of leaves, and new state of optimizers."""
        found = {}
        for name, tensor in {**self.ready, **(outside or {})}.items():
            if tensor.is_leaf and tensor.grad is not None and tensor.grad is not self.gradients.get(id(tensor)):
                found[f"{name}.grad"] = tensor.grad
        for name, each in self.optimizers.items():
            for key, tensor in state_of_optimizer(each).items():
                if id(tensor) not in self.states:
                    found[f"{name}.state.{key}"] = tensor
        return found

    def changed(self, made: Mapping[str, Tensor]) -> set[str]:
        """Return the names of tensors that the run wrote to, and of tensors that share memory with them."""
        known = self.program.changed
        with untraced():
            found = {
                name
                for name, tensor in self.ready.items()
                if name not in made and (name in known or self.marks[name].touched(tensor))
            }
        groups = (*self.program.assembled, *alias_groups(self.ready))
        return found | {name for group in groups if found & set(group) for name in group if name in self.ready}


@contextlib.contextmanager
def staged(program: CalledProgram, values: Mapping[str, Tensor] | None = None, anew: bool = False) -> Iterator[Staged]:
    """Prepare the program to run on these values (None: its own as captured), and restore everything afterwards.

    With `anew`, other tensors replace the arguments, also where the values are the same.
    """
    if isinstance(program.target, OwnObjects):
        with protected(program), as_captured(program), on_own_objects(program, values, anew) as stage:
            yield stage
        return
    leaves = leaf_values(program, program.current() if values is None else values)
    with torch.enable_grad():
        ready = shielded(program, leaves, lambda tensor: tensor.clone())
    with kept(program.target(), dict(program.outside), objects_given(program)), with_values(program, ready):
        gradients = give_gradients(ready)
        yield stage_of(program, ready, leaves, gradients)


@contextlib.contextmanager
def on_own_objects(program: CalledProgram, values: Mapping[str, Tensor] | None, anew: bool) -> Iterator[Staged]:
    """Prepare the caller's own tensors: with these values, and requiring grad as the program's tensors do."""
    assert isinstance(program.target, OwnObjects)
    picture = program.target.picture
    assert picture is not None
    own = program.own()
    written = program.changed
    for name, tensor in own.items():
        picture.add(name, tensor, whole=name in written)
    given = values if values is not None else {**program.outside, **program.values}
    with contextlib.ExitStack() as stack:
        stack.callback(picture.put_back)
        joined = {name for group in alias_groups(dict(own)) for name in group}
        for name in program.values:
            if name in given and is_another(own[name], given[name], name in joined, anew):
                own[name] = in_its_place(own[name], given[name])
        put_values(own, given, picture, stack, written)
        own |= {name: aliased(own[name]) for name in program.values if is_only_given(program, own[name])}
        ready, leaves = {}, {}
        for named in program.tensors:
            shield = named.name in program.cloned and named.name in program.values
            leaves[named.name], ready[named.name] = leaf_and_argument(own[named.name], named, shield)
        stack.enter_context(training_mode(program.target(), program.mode))
        stack.enter_context(torch.enable_grad())
        gradients = {id(tensor): tensor.grad for tensor in leaves.values() if tensor.is_leaf}
        yield stage_of(program, ready, leaves, gradients)


def is_another(tensor: Tensor, value: Tensor, joined: bool, anew: bool) -> bool:
    """Whether an argument must be replaced by another tensor, as a call with other values would do."""
    if anew:
        return not joined and in_memory(tensor) and tensor.is_leaf and not is_view(tensor)
    if value.shape != tensor.shape:
        return True
    with untraced():
        return not joined and in_memory(tensor) and not (same_memory(tensor, value) or same_content(tensor, value))


def in_its_place(tensor: Tensor, value: Tensor) -> Tensor:
    """Return another tensor with the class, attributes, gradient and hooks of an argument."""
    with torch.no_grad():
        made = copy_values({"": value.detach()})[""]
    made = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
    made.requires_grad_(tensor.requires_grad)
    made.__dict__.update(tensor.__dict__)
    if tensor.is_leaf and tensor.grad is not None and tensor.grad.shape == made.shape:
        made.grad = tensor.grad
    for hook in hooks_of(tensor):
        made.register_hook(hook)
    if not tensor.is_inference():
        set_version_counters((made,), (version_of(tensor),))
    return made


def is_only_given(program: CalledProgram, tensor: Tensor) -> bool:
    """Whether a tensor requires grad only by default, and the program reaches it only as an argument.

    Then an alias replaces it if there are other threads, which must not see it require grad.
    """
    assert isinstance(program.target, OwnObjects)
    plain = tensor.is_leaf and not tensor.requires_grad and id(tensor) not in program.target.reached
    return program.defaulted and plain and threading.active_count() > 1


def aliased(tensor: Tensor) -> Tensor:
    """Return another tensor with the same memory and the same attributes."""
    made = tensor.detach()
    made.__dict__.update(tensor.__dict__)
    return made


def stage_of(
    program: CalledProgram, ready: dict[str, Tensor], leaves: dict[str, Tensor], gradients: dict[int, Tensor | None]
) -> Staged:
    """Return a Staged of tensors that are ready, with their state now."""
    reached = dict(tensors_of(program.target()))
    optimizers = {n: each for n, each in keepers(program.target()).items() if isinstance(each, torch.optim.Optimizer)}
    states = frozenset(id(t) for each in optimizers.values() for t in state_of_optimizer(each).values())
    known = {id(tensor) for tensor in (*program.own().values(), *ready.values())}
    with untraced():
        picture = program.target.picture if isinstance(program.target, OwnObjects) else None
        marks = {name: tensor_mark(tensor, picture) for name, tensor in ready.items()}
        memories = memories_of(ready.values())
        aliases = {name: (tensor, tensor_mark(tensor, picture)) for name, tensor in lying_in(memories, reached, known)}
    return Staged(program, ready, leaves, marks, aliases, reached, gradients, optimizers, states)


def memories_of(tensors: Iterable[Tensor]) -> set[int]:
    """Return the identities of the storages of tensors."""
    parts = (part for tensor in tensors for part in strided_parts(tensor) if in_memory(tensor))
    return {storage_id(part.untyped_storage()) for part in parts}


def lying_in(
    memories: Collection[int], reached: Mapping[str, Tensor], known: Collection[int]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors, and the gradients, that lie in these storages and are not among the known."""
    grads = {f"{name}.grad": each.grad for name, each in reached.items() if each.is_leaf and each.grad is not None}
    for name, tensor in {**reached, **grads}.items():
        if id(tensor) in known or not in_memory(tensor):
            continue
        if storage_id(strided_parts(tensor)[-1].untyped_storage()) in memories:
            yield name, tensor


def in_memory(tensor: Tensor) -> bool:
    """Whether a tensor has ordinary memory: it is not on the meta device, nested, or a subclass."""
    return tensor.device.type != "meta" and type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and not tensor.is_nested


def tensor_mark(tensor: Tensor, picture: Picture | None) -> TensorMark:
    """Return the state of a tensor. A large parameter has only its version, unless a Picture has its content."""
    plain = in_memory(tensor)
    size = sum(part.untyped_storage().nbytes() for part in strided_parts(tensor)) if plain else 0
    known = picture is not None and plain and storage_id(strided_parts(tensor)[-1].untyped_storage()) in picture.copied
    whole = plain and (known or not (isinstance(tensor, nn.Parameter) and size > LARGE))
    content = tuple(part.untyped_storage().clone() for part in strided_parts(tensor)) if whole else None
    return TensorMark(version_of(tensor), tensor.detach(), content)


def leaf_and_argument(tensor: Tensor, named: NamedTensor, shield: bool) -> tuple[Tensor, Tensor]:
    """Return the tensor whose gradient is taken, and the tensor that the program takes."""
    if tensor.requires_grad and not named.requires_grad and not tensor.is_leaf:
        cut = tensor.detach()
        return cut, cut
    by_base = named.requires_grad and is_view(tensor)  # a view says that it requires grad as soon as its base does
    if tensor.is_leaf and (tensor.requires_grad != named.requires_grad or by_base):
        tensor.requires_grad_(named.requires_grad)
    if not shield:
        return tensor, tensor
    with torch.enable_grad():
        return tensor, tensor.clone()


def give_gradients(ready: Mapping[str, Tensor]) -> dict[int, Tensor | None]:
    """Set `.grad` of stand-ins to the program's tensors named so; return those by identity of the stand-in."""
    given: dict[int, Tensor | None] = {}
    for name, tensor in ready.items():
        gradient = ready.get(f"{name}.grad")
        if gradient is not None and tensor.is_leaf and tensor.shape == gradient.shape:
            tensor.grad = gradient
            given[id(tensor)] = gradient
    return given
