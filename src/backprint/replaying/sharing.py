"""Check that the same tensors are one, share memory and have the strides as at capture, or refuse the call."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.errors import GuardError
from backprint.graph.links import free_ports, mutated
from backprint.graph.nouns import Capture, Guard, TensorSpec
from backprint.memory import memory_spans, overlapping_pairs
from backprint.replaying.run import sizes_of
from backprint.replaying.strides import laid_as, lies, strides

INPUT_ALONE = "capture again on inputs like these"


def check_strides(capture: Capture, given: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless inputs have the strides as at capture: a program may read strides, and a graph's views need them."""
    ports = {port.name: port for port in free_ports(capture) if port.name in given}
    sizes = sizes_of([(port, values[port.name]) for port in free_ports(capture) if port.name in values])
    for name, port in ports.items():
        tensor, spec = given[name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tensor.dim() != len(spec.shape):
            continue
        wanted = strides(spec, tensor, sizes)
        if wanted is not None and not lies(tensor, wanted):
            raise GuardError(
                f"input {name!r} had strides {list(wanted)} at capture and has {list(tensor.stride())} now: "
                f"{advice(name, spec, tensor, wanted)}or {INPUT_ALONE}"
            )


def advice(name: str, spec: TensorSpec, tensor: Tensor, wanted: Sequence[int]) -> str:
    """Say how to give a tensor the strides that it had at capture."""
    if lies(torch.empty(tensor.shape, device="meta"), wanted):
        return f"pass {name}.contiguous(), "
    for dim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dim and lies(torch.empty(tensor.shape, device="meta").to(memory_format=form), wanted):
            return f"pass {name}.contiguous(memory_format={form}), "
    if 0 in wanted:
        return "pass it expanded as it was, "
    return f"pass torch.empty_strided({list(tensor.shape)}, {list(wanted)}, dtype={tensor.dtype}).copy_({name}), "


def laid_state(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants with other strides than their ports', copied to those strides."""
    ports = [port for port in free_ports(capture) if port.role != "input" and port.name in values]
    found: dict[str, Tensor] = {}
    for port in ports:
        tensor, spec = values[port.name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tuple(tensor.shape) != spec.shape:
            continue
        wanted = strides(spec, tensor, {})
        if wanted is not None and not lies(tensor, wanted):
            found[port.name] = laid_as(tensor, wanted)
    return found


def check_same(capture: Capture, given: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless the same arguments are one tensor as at capture: a program may compare them, and gradients add
    up."""
    same = set(capture.signature.same)
    for left, right in same:
        both = left in values and right in values
        own = left in given  # a parameter that is passed too may be given as another view of its memory, in `state`
        if both and right in given and not (values[left] is values[right] if own else one(values[left], values[right])):
            raise GuardError(
                f"{left!r} and {right!r} were one tensor at capture: pass one tensor for both, or capture again"
            )
    if capture.signature.aliases is None:
        return
    first: dict[int, str] = {}
    heads = {right: left for left, right in same}
    for name, tensor in given.items():
        other = first.setdefault(id(tensor), name)
        if heads.get(name, name) != heads.get(other, other):
            raise GuardError(
                f"{other!r} and {name!r} were two tensors at capture and are one now: pass {name}.clone() for one of "
                "them, or capture again on inputs like these"
            )


def span(tensor: Tensor) -> tuple[Any, ...]:
    """Return a tensor's memory and geometry; its identity if it has no memory."""
    place = memory_spans({"": tensor}).get("")
    return (place.memory, place.start, place.shape, place.stride) if place is not None else (id(tensor),)


def one(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are one, or equal views of the same memory."""
    return left is right or span(left) == span(right)


def check_memory(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise if tensors share memory in another way than at capture, and the program writes to one of them, or reads
    where it is."""
    changed = mutated(capture)
    read = {name: guard for guard in capture.guards if guard.kind == "memory" for name in guard.inputs}
    if capture.signature.aliases is None or not (changed or read):
        return
    same = capture.signature.same
    read |= {right: read[left] for left, right in same if left in read}
    written = {*changed, *read, *(right for left, right in same if left in changed)}
    names = {port.name for port in free_ports(capture)}
    aliases = [each for each in capture.signature.aliases if names >= set(each[:2])]
    then = {each[:2]: each[2] for each in aliases if written & set(each[:2])}
    tensors = {name: values[name] for name in values if name in names and isinstance(values[name], Tensor)}
    known = {frozenset(pair) for pair in same}
    now: dict[tuple[str, str], int] = {}
    for left, right, apart in overlapping_pairs(memory_spans(tensors), written):
        if frozenset((left, right)) not in known:
            turned = (right, left) in then
            now[(right, left) if turned else (left, right)] = -apart if turned else apart
    for pair in dict.fromkeys((*then, *now)):
        if then.get(pair) != now.get(pair):
            left, right = pair
            raise GuardError(
                f"{left!r} and {right!r} {shared(then.get(pair))} at capture and {shared(now.get(pair))} now, and the "
                f"program {use_of_memory(pair, written, read)}: pass copies (.clone()) or views as at capture, or "
                f"{INPUT_ALONE}"
            )


def use_of_memory(pair: tuple[str, str], written: Collection[str], read: Mapping[str, Guard]) -> str:
    """Say what a program does with the memory of two tensors, and in which line if it reads where they are."""
    guard = next((read[name] for name in pair if name in read), None)
    if guard is None:
        return f"writes to {' and '.join(name for name in pair if name in written)}"
    where = f" at {guard.source.file}:{guard.source.line}: {guard.source.code!r}" if guard.source else ""
    return f"reads where {guard.inputs[0]} is in memory{where}"


def shared(apart: int | None) -> str:
    """Say how two tensors share memory."""
    if apart is None:
        return "shared no memory"
    return "started at the same address" if apart == 0 else f"shared memory {abs(apart)} bytes from each other"
