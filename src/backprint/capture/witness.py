"""The witness: one run of the untouched program, on its own module, its own Parameters and its own arguments.

The values that a run is asked for are written into the caller's own tensors, whose identity, attributes, hooks and
aliases are as they are; afterwards everything is put back. Where a program has no tensors of the caller's (it runs on
fake tensors, or is a graph of Dynamo's), stand-ins take the places of its parameters instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint.capture.keep import LARGE, Picture, kept, lies_as, same_bytes, untraced
from backprint.capture.program import (
    Held,
    Named,
    Outcome,
    Program,
    as_captured,
    call,
    hooks_of,
    leaf_values,
    named_outputs,
    placed,
    protected,
    pull_back,
    result_of,
    shielded,
    training_mode,
    with_loss,
)
from backprint.capture.reach import keepers, state_of_optimizer, tensors_of
from backprint.errors import CaptureError
from backprint.settings import quiet_random
from backprint.tree import alias_groups, copy_values, parts

__all__ = ["Staged", "call", "second_order", "staged", "step"]


@dataclass(slots=True)
class Mark:
    """A tensor as it was when a run began: its version, where it lay, and, unless it is large, its content."""

    version: int
    alias: Tensor
    content: tuple[Any, ...] | None

    def touched(self, tensor: Tensor) -> bool:
        """Whether the tensor is another now."""
        if tensor._version != self.version or not lies_as(tensor, self.alias):
            return True
        if self.content is None:
            return False
        now = (part.untyped_storage() for part in parts(tensor))
        return not all(same_bytes(left, right) for left, right in zip(now, self.content, strict=True))


@dataclass(slots=True)
class Staged:
    """A program ready to run: what it is given, what gradients are taken of, and how all of it was."""

    program: Program
    ready: dict[str, Tensor]
    leaves: dict[str, Tensor]
    marks: dict[str, Mark]
    aliases: dict[str, tuple[Tensor, Mark]]
    reached: dict[str, Tensor]
    gradients: dict[int, Tensor | None]
    optimizers: dict[str, torch.optim.Optimizer]
    states: frozenset[int]

    def made(self) -> dict[str, Tensor]:
        """The tensors that modules and containers hold now where they held none, or another."""
        found: dict[str, Tensor] = {}
        own = {id(tensor): name for name, tensor in self.program.own().items()}
        for name, tensor in tensors_of(self.program.target()):
            before = self.reached.get(name)
            if before is not tensor and name not in found:
                found[own.get(id(before), name) if before is not None else name] = tensor
        with untraced():
            touched = {name: tensor for name, (tensor, mark) in self.aliases.items() if mark.touched(tensor)}
        return {**touched, **found}

    def left(self, outside: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """New gradients of leaves, and new state of optimizers."""
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
        """The names of tensors that the run wrote to, and of those that share memory with them."""
        known = self.program.changed or frozenset()
        with untraced():
            found = {
                name
                for name, tensor in self.ready.items()
                if name not in made and (name in known or self.marks[name].touched(tensor))
            }
        groups = (*self.program.assembled, *alias_groups(self.ready))
        return found | {name for group in groups if found & set(group) for name in group if name in self.ready}


@contextlib.contextmanager
def staged(program: Program, values: Mapping[str, Tensor] | None = None, anew: bool = False) -> Iterator[Staged]:
    """The program ready to run on these values (None: its own as captured), and everything put back afterwards.

    With `anew`, other tensors stand in the places of the arguments, also where the values are the same.
    """
    if isinstance(program.target, Held):
        with protected(program), as_captured(program), on_own_objects(program, values, anew) as stage:
            yield stage
        return
    leaves = leaf_values(program, program.current() if values is None else values)
    with torch.enable_grad():
        ready = shielded(program, leaves, lambda tensor: tensor.clone())
    with kept(program.target(), dict(program.outside)), placed(program, ready):
        gradients = give_gradients(ready)
        yield stage_of(program, ready, leaves, gradients)


@contextlib.contextmanager
def on_own_objects(program: Program, values: Mapping[str, Tensor] | None, anew: bool) -> Iterator[Staged]:
    """The caller's own tensors, with these values in them and asking for gradients as the program's tensors do."""
    assert isinstance(program.target, Held)
    picture = program.target.picture
    assert picture is not None
    own = program.own()
    written = program.changed or frozenset()
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
            leaves[named.name], ready[named.name] = asking(own[named.name], named, shield)
        stack.enter_context(training_mode(program.target(), program.mode))
        stack.enter_context(torch.enable_grad())
        gradients = {id(tensor): tensor.grad for tensor in leaves.values() if tensor.is_leaf}
        yield stage_of(program, ready, leaves, gradients)


def is_another(tensor: Tensor, value: Tensor, joined: bool, anew: bool) -> bool:
    """Whether another call would have another tensor in an argument's place, as one with other values does."""
    if anew:
        return not joined and in_memory(tensor) and tensor.is_leaf and not tensor._is_view()
    if value.shape != tensor.shape:
        return True
    with untraced():
        return not joined and in_memory(tensor) and not (same_memory(tensor, value) or same_content(tensor, value))


def in_its_place(tensor: Tensor, value: Tensor) -> Tensor:
    """Another tensor in the place of an argument, with its class, its attributes, its gradient and its hooks."""
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
        torch._C._autograd._unsafe_set_version_counter((made,), (tensor._version,))
    return made


def is_only_given(program: Program, tensor: Tensor) -> bool:
    """Whether a tensor that requires no grad, and is to have a gradient by default, is reached as an argument alone.

    Then an alias stands for it where there are other threads: they must not see it require grad.
    """
    assert isinstance(program.target, Held)
    plain = tensor.is_leaf and not tensor.requires_grad and id(tensor) not in program.target.reached
    return program.defaulted and plain and threading.active_count() > 1


def aliased(tensor: Tensor) -> Tensor:
    """Another tensor of the same memory, with the same attributes."""
    made = tensor.detach()
    made.__dict__.update(tensor.__dict__)
    return made


def stage_of(
    program: Program, ready: dict[str, Tensor], leaves: dict[str, Tensor], gradients: dict[int, Tensor | None]
) -> Staged:
    """A Staged of tensors that are ready, and of what they are now."""
    reached = dict(tensors_of(program.target()))
    optimizers = {n: each for n, each in keepers(program.target()).items() if isinstance(each, torch.optim.Optimizer)}
    states = frozenset(id(t) for each in optimizers.values() for t in state_of_optimizer(each).values())
    known = {id(tensor) for tensor in (*program.own().values(), *ready.values())}
    with untraced():
        picture = program.target.picture if isinstance(program.target, Held) else None
        marks = {name: marked(tensor, picture) for name, tensor in ready.items()}
        memories = {
            part.untyped_storage()._cdata for tensor in ready.values() for part in parts(tensor) if in_memory(tensor)
        }
        aliases = {
            name: (tensor, marked(tensor, picture))
            for name, tensor in reached.items()
            if id(tensor) not in known and in_memory(tensor) and parts(tensor)[-1].untyped_storage()._cdata in memories
        }
    return Staged(program, ready, leaves, marks, aliases, reached, gradients, optimizers, states)


def in_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own kind: it is no fake, nor a tensor that wraps another."""
    return tensor.device.type != "meta" and type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and not tensor.is_nested


def marked(tensor: Tensor, picture: Picture | None) -> Mark:
    """A tensor's Mark. A large parameter is known by its version alone, unless a Picture has its content anyway."""
    plain = in_memory(tensor)
    size = sum(part.untyped_storage().nbytes() for part in parts(tensor)) if plain else 0
    known = picture is not None and plain and parts(tensor)[-1].untyped_storage()._cdata in picture.copied
    whole = plain and (known or not (isinstance(tensor, nn.Parameter) and size > LARGE))
    content = tuple(part.untyped_storage().clone() for part in parts(tensor)) if whole else None
    return Mark(tensor._version, tensor.detach(), content)


def asking(tensor: Tensor, named: Named, shield: bool) -> tuple[Tensor, Tensor]:
    """The tensor that a gradient is taken of, and the one that the program is given, asking as it should."""
    if tensor.requires_grad and not named.requires_grad and not tensor.is_leaf:
        cut = tensor.detach()
        return cut, cut
    if tensor.is_leaf and tensor.requires_grad != named.requires_grad:
        tensor.requires_grad_(named.requires_grad)
    if not shield:
        return tensor, tensor
    with torch.enable_grad():
        return tensor, tensor.clone()


# ------------------------------------------------------------------ values into the caller's tensors


def put_values(
    own: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    picture: Picture,
    stack: contextlib.ExitStack,
    written: frozenset[str],
) -> None:
    """Write values into the caller's tensors. A large parameter of its own memory is exchanged for them, and back."""
    alone = set(own) - {name for group in alias_groups(dict(own)) for name in group}
    shared = {name for group in alias_groups(dict(values)) for name in group}
    with untraced():
        for name, value in values.items():
            tensor = own.get(name)
            if tensor is None or same_memory(tensor, value) or same_content(tensor, value):
                continue
            kept = picture.by_id.get(id(tensor))
            if kept is not None and kept.is_large and name in alone - shared - written and alike(tensor, value):
                version = tensor._version
                exchange(tensor, value)
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
                stack.callback(exchange_back, name, tensor, value, version)
                continue
            picture.add(name, tensor, whole=True)
            version = tensor._version
            write(tensor, value)
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def same_memory(tensor: Tensor, value: Tensor) -> bool:
    """Whether a value is the tensor itself."""
    return tensor is value or (tensor.layout is torch.strided and lies_as(tensor, value))


def same_content(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor has these values already, bit for bit."""
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
    """Whether two tensors fill memory of their own alike, so that they can be exchanged."""
    return (
        tensor.is_contiguous()
        and value.is_contiguous()
        and tensor.dtype is value.dtype
        and tensor.shape == value.shape
        and not value.requires_grad
    )


PIECE = 2**22
"""How many elements are exchanged at a time."""


def exchange(tensor: Tensor, value: Tensor) -> None:
    """Two tensors' contents change places."""
    left, right = tensor.detach().view(-1), value.detach().view(-1)
    for start in range(0, left.numel(), PIECE):
        first, second = left[start : start + PIECE], right[start : start + PIECE]
        between = first.clone()
        first.copy_(second)
        second.copy_(between)


def exchange_back(name: str, tensor: Tensor, value: Tensor, version: int) -> None:
    """The tensor's own content again; a run that wrote to it unforeseen has to be refused."""
    if tensor._version == version:
        with untraced():
            exchange(tensor, value)
        return
    with untraced():
        tensor.detach().copy_(value)
    raise CaptureError(f"the program wrote to {name} in this run and not in its first: it does not do the same twice")


def write(tensor: Tensor, value: Tensor) -> None:
    """A value into a tensor, wherever it lies; of an expanded one each element once."""
    if tensor.layout is not torch.strided:
        pairs = list(zip(parts(tensor), parts(value), strict=True))
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


# ------------------------------------------------------------------ one step


def step(
    program: Program,
    values: Mapping[str, Tensor] | None = None,
    tangents: Mapping[str, Tensor] | None = None,
    watch: Callable[[dict[str, Tensor]], Any] | None = None,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    anew: bool = False,
) -> Outcome:
    """One eager step on these values (None: as captured): the oracle of every proof. Everything is put back.

    `watch` is given the tensors and returns a mode in which the forward runs, `around` it what this gives; the mode
    sees the outputs, and no backward.
    """
    with quiet_random(), staged(program, values, anew) as stage:
        mode: Any = watch(stage.ready) if watch else contextlib.nullcontext()
        with torch.enable_grad(), around(), mode:
            result = result_of(program, stage.ready)
        named, _ = named_outputs(program, result)
        left = stage.left()
        made = {name: tensor for name, tensor in stage.made().items() if name not in left}
        changed = stage.changed(made)
        tensors = {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}
        written = {**{name: stage.ready[name] for name in stage.ready if name in changed}, **made, **left}
        mutations = {name: tensor.detach().clone() for name, tensor in written.items()}
        if watch:
            mode.judge_outputs(tensors)
            mode.note_written()
        with torch.enable_grad():
            gradients = {} if watch else pull_back(program, stage.leaves, tensors, tangents)
        outputs = {name: apart(tensor, stage) for name, tensor in tensors.items()}
        leaves = tuple(Tensor if isinstance(leaf, Tensor) else leaf for _, leaf in named)
        tangled = frozenset(name for name in changed if stage.ready[name].requires_grad and name not in made)
    return Outcome(outputs, gradients, mutations, tangled, frozenset(made) - set(stage.ready), frozenset(left), leaves)


def apart(tensor: Tensor, stage: Staged) -> Tensor:
    """A result without its history; a copy where it lies in the caller's memory, which is put back after the run."""
    memories = {part.untyped_storage()._cdata for each in stage.ready.values() for part in parts(each)}
    if tensor.layout is torch.strided and tensor.untyped_storage()._cdata not in memories:
        return tensor.detach()
    return tensor.detach().clone()


def give_gradients(ready: Mapping[str, Tensor]) -> dict[int, Tensor | None]:
    """Stand-ins take over the `.grad` that stands among the program's tensors under their name; those, by identity."""
    given: dict[int, Tensor | None] = {}
    for name, tensor in ready.items():
        gradient = ready.get(f"{name}.grad")
        if gradient is not None and tensor.is_leaf and tensor.shape == gradient.shape:
            tensor.grad = gradient
            given[id(tensor)] = gradient
    return given


def second_order(program: Program) -> Program:
    """The program that gives its gradients too: its outputs' tangents are inputs of its own."""
    inside: Any = contextlib.nullcontext() if program.world is None else program.world.running()
    with quiet_random(), staged(program) as stage, torch.enable_grad(), inside:
        named, _ = named_outputs(program, with_loss(program, call(program, stage.ready)))
        roots = {name: leaf for name, leaf in named if isinstance(leaf, Tensor) and leaf.requires_grad}
        values = {f"tangent.{name}": drawn_like(tensor, index) for index, (name, tensor) in enumerate(roots.items())}
    if not roots:
        raise CaptureError(f"order=2 needs gradients, and no output of {program.title} asks for one")
    return replace(
        program,
        tensors=(*program.tensors, *(Named(name, "input", True) for name in values)),
        values=program.values | values,
        tangents=tuple(roots),
        defaulted=False,
    )


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """A tangent away from 0, where a product with it is no quotient by it; ones where there are no values."""
    found = torch.ones_like(tensor).detach()
    if hasattr(tensor, "fake_mode") or tensor.layout is not torch.strided:
        return found
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    drawn = torch.randn(tensor.shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=wide)
    return found.copy_(drawn + 0.5 * drawn.sgn())
