"""Prepare a program to run on some values: on its own module, Parameters and arguments, or on stand-ins.

The values of a run are written into the caller's own tensors, and everything is restored afterwards. If a program has
no tensors of the caller's (it runs on fake tensors, or is a graph of Dynamo's), stand-ins replace its parameters
instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.autograd import set_version_counters
from backprint._torch.tensors import is_view, storage_id, version_of
from backprint.tracing.keep import kept
from backprint.tracing.kept_tensor import LARGE, lies_as, same_bytes, untraced
from backprint.tracing.own_values import put_values, same_content, same_memory
from backprint.tracing.picture import Picture
from backprint.tracing.program import CalledProgram, NamedTensor, OwnObjects, hooks_of, objects_given
from backprint.tracing.protection import as_captured, protected
from backprint.tracing.reach import keepers, state_of_optimizer, tensors_of
from backprint.tracing.running import leaf_values, shielded, training_mode, with_values
from backprint.tree import alias_groups, copy_values, strided_parts


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
