"""Read a call: its tensors under the program's own names, and which of them require grad."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.fake import FakeTensor
from backprint.errors import CaptureError, UsageError
from backprint.memory import has_memory
from backprint.plain import printable
from backprint.tracing.fake import kept_inputs, world_of
from backprint.tracing.given import read_given
from backprint.tracing.process import GLOBALS, SWITCHES
from backprint.tracing.program import SPARSE, CalledProgram, Held, NamedTensor, OwnObjects, Slot, hooks_of, state_of
from backprint.tracing.reach import roots
from backprint.tree import bind_names, copy_values, flatten_with_path, leaf_name


def read_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    requires_grad: Any = None,
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    fake: bool = False,
    specialize: bool = False,
) -> CalledProgram:
    """Return the program of `target(*args, **kwargs)`; with `fake`, a program that runs on tensors without values."""
    bound, arguments = bind_names(target, args, kwargs)
    paths, structure = flatten_with_path((args, dict(kwargs)))
    names = tuple(leaf_name(path, bound) for path, _ in paths)
    state = state_of(target) if isinstance(target, nn.Module) else {}
    reader = ArgumentReader(state_tensors(target, state, fake), {id(each): name for name, each in state.items()}, fake)
    leaves = tuple(reader.read_leaf(name, leaf) for name, (_, leaf) in zip(names, paths, strict=True))
    values = reader.values
    every = {**state, **values}
    refuse_inference(every)
    return CalledProgram(
        target=Held(target) if fake else own_objects(target, args, kwargs, values, loss),
        arguments=arguments,
        structure=structure,
        leaves=leaves,
        leaf_names=names,
        tensors=tuple(choose_gradients(reader.tensors, every, requires_grad)),
        values=kept_inputs(values) if fake else copy_values(values),
        hooks={name: tuple(found) for name, tensor in every.items() if (found := hooks_of(tensor))},
        mode=mode,
        loss=loss,
        defaulted=requires_grad is None and not any(named.requires_grad for named in reader.tensors),
        title=printable(str(getattr(target, "__name__", type(target).__name__)))[:4096],
        world=world_of(every) if fake else None,
        specialize=specialize,
        given=read_given(target, args, kwargs, list(reader.called), {**state, **reader.called}),
    )


def state_tensors(target: Any, state: Mapping[str, Tensor], fake: bool) -> list[NamedTensor]:
    """Return a module's parameters and buffers."""
    buffers = {name for name, _ in target.named_buffers()} if isinstance(target, nn.Module) else set()
    for name, tensor in state.items():
        check_tensor(name, tensor, fake)
    return [
        NamedTensor(name, "buffer" if name in buffers else "parameter", tensor.requires_grad)
        for name, tensor in state.items()
    ]


@dataclass(slots=True)
class ArgumentReader:
    """Reads the leaves of a call in order. `first` has the name of each known tensor, by identity.

    `called` has the tensors under each name that they were passed as, `values` those that are not the module's own.
    """

    tensors: list[NamedTensor]
    first: dict[int, str]
    fake: bool
    called: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)

    def read_leaf(self, name: str, leaf: Any) -> Any:
        """Return a leaf, or a Slot if it is a tensor."""
        if not isinstance(leaf, Tensor):
            return leaf
        check_tensor(name, leaf, self.fake)
        name = free_name(name, self.tensors)
        self.called[name] = leaf
        first = self.first.setdefault(id(leaf), name)
        if first == name:
            self.tensors.append(NamedTensor(name, "input", leaf.requires_grad))
            self.values[name] = leaf
        else:
            index = next(i for i, named in enumerate(self.tensors) if named.name == first)
            self.tensors[index] = replace(self.tensors[index], same=(*self.tensors[index].same, name))
        return Slot(first)


def own_objects(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Mapping[str, Tensor],
    loss: Callable[[Any], Any] | None,
) -> OwnObjects:
    """Return the callable with the caller's own arguments, the settings of the process, and the training mode of its
    modules."""
    modules = {id(m): m for _, root in roots(target) if isinstance(root, nn.Module) for m in root.modules()}
    return OwnObjects(
        target,
        call=(tuple(args), dict(kwargs)),
        own=dict(values),
        under={name: GLOBALS[name][0]() for name in SWITCHES},
        training=tuple((module, module.training) for module in modules.values()),
        loss=loss,
    )


def check_tensor(name: str, tensor: Tensor, fake: bool = False) -> None:
    if tensor.is_nested:
        raise CaptureError(f"input {name!r} is a nested tensor, which no engine takes; pass its values")
    if not fake and (tensor.device.type == "meta" or isinstance(tensor, FakeTensor)):
        kind = "a fake tensor" if isinstance(tensor, FakeTensor) else "on the meta device"
        raise CaptureError(
            f"input {name!r} is {kind} and has no values to run on: pass one with values, or capture with fake=True"
        )
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer, FakeTensor):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise CaptureError(f"input {name!r} is a {kind}: tensor subclasses are not captured; pass plain tensors")
    if not has_memory(tensor):
        raise CaptureError(
            f"input {name!r} has a storage that was resized to less than its elements need, so it has no values: "
            "restore them first, as FSDP does before it runs a module"
        )
    if tensor.layout not in LAYOUTS:
        raise CaptureError(f"input {name!r} is {str(tensor.layout)[6:]}, which no engine takes; pass it dense")


def refuse_inference(values: Mapping[str, Tensor]) -> None:
    """Refuse tensors that were made in inference mode: they cannot require grad, and cannot be restored."""
    for name, tensor in values.items():
        if tensor.is_inference():
            raise CaptureError(
                f"{name!r} was made in inference mode, so autograd cannot follow it: make it outside, or pass .clone()"
            )


LAYOUTS = (torch.strided, *SPARSE)
"""Layouts of tensors that engines support; `aot` supports strided ones only."""


def free_name(name: str, tensors: Sequence[NamedTensor]) -> str:
    """Return the name, with a number appended if another tensor has it."""
    taken = {known for named in tensors for known in (named.name, *named.same)}
    name = "".join(c if c.isprintable() else "_" for c in name) or "input"
    numbered, count = name, 1
    while numbered in taken:
        count += 1
        numbered = f"{name}~{count}"
    return numbered


def choose_gradients(tensors: Sequence[NamedTensor], values: Mapping[str, Tensor], asked: Any) -> list[NamedTensor]:
    """Choose the tensors that require grad: as requested, else as the tensors say, else every floating-point input."""
    inputs = {named.name for named in tensors if named.role == "input" and can_require_grad(values[named.name])}
    state = {named.name for named in tensors if named.role != "input" and named.requires_grad}
    spelled: tuple[str, ...] = ()
    if asked is None:
        return list(tensors) if any(named.requires_grad for named in tensors) else requiring(tensors, inputs)
    if isinstance(asked, bool):
        return requiring(tensors, inputs | state if asked else set())
    if isinstance(asked, Mapping):
        wanted = {named.name for named in tensors if asked.get(named.name, named.requires_grad)}
        spelled = tuple(asked)
    elif all(isinstance(item, bool) for item in asked):
        wanted = inputs_by_position(tensors, asked) | state
    else:
        wanted = set(asked)
    known = {alias: named.name for named in tensors for alias in (named.name, *named.same)}
    for name in (*wanted, *spelled):
        check_asked(name, known)
        if known[name] in wanted and not can_require_grad(value := values[known[name]]):
            raise UsageError(
                f"requires_grad names {name!r}, a {str(value.dtype)[6:]} tensor: "
                "only floating-point and complex tensors have gradients"
            )
    return requiring(tensors, {known[name] for name in wanted})


def can_require_grad(tensor: Tensor) -> bool:
    """Whether a tensor's dtype can require grad."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def requiring(tensors: Sequence[NamedTensor], wanted: Collection[str]) -> list[NamedTensor]:
    """Return the tensors; only those in `wanted` require grad."""
    return [replace(named, requires_grad=named.name in wanted) for named in tensors]


def inputs_by_position(tensors: Sequence[NamedTensor], asked: Sequence[bool]) -> set[str]:
    """Return the tensor inputs for which `asked`, which has an entry for each, is True."""
    inputs = [named.name for named in tensors if named.role == "input"]
    if len(asked) != len(inputs):
        raise UsageError(
            f"requires_grad has {len(asked)} entries for {len(inputs)} tensor inputs "
            f"({', '.join(inputs) or 'none'}): give one True or False for each"
        )
    return {name for name, on in zip(inputs, asked, strict=True) if on}


def check_asked(name: str, known: Mapping[str, str]) -> None:
    """Refuse a name that is not a tensor of the call."""
    if name not in known:
        raise UsageError(
            f"requires_grad names {name!r}, which is not a tensor of this call; there are: {', '.join(known)}"
        )
