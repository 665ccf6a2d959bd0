"""The bytes that a direction moves, and the fewest that it could.

The fewest are: each input that the direction uses, once; each output and each gradient, once; and each value that the
forward keeps, written once and read once. What is kept is the minimum cut of an iteration, so it has the fewest bytes.

A TensorFacts says of a tensor its shape without time, its dtype, whether it is `timed`, and the `dims` over which a
gradient of what is broadcast is summed. A slot is a step of it: Now in an iteration of a Loop, an Edge near an end,
None of a tensor without time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from backprint.tools.kernels.loops.nouns import Loop, Now, TensorFacts, in_dependency_order


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one direction for a number of steps: those that its kernel moves, and the fewest."""

    moved: int
    least: int

    @property
    def ratio(self) -> float:
        """How many times the fewest are moved."""
        return self.moved / self.least


def tensor_bytes(facts: TensorFacts, length: int) -> int:
    """Return the bytes of a tensor in a program of `length` steps."""
    itemsize = 1 if facts.dtype == torch.bool else facts.dtype.itemsize
    return torch.Size(facts.shape).numel() * itemsize * (length if facts.timed else 1)


def traffic_of(
    loop: Loop, tensors: Mapping[str, TensorFacts], state: tuple[int, ...], length: int, sums: str
) -> Traffic:
    """Return the bytes of a direction in a program of `length` steps; `state` is the shape of its state, and `sums` how
    gradients of parameters are added up over elements. A tensor that an iteration reads several times at one slot is
    read once, as in the kernel."""
    inside = [*(write.element for write in loop.writes), *loop.following]
    outside = [*loop.start, *(write.element for write in (*loop.before, *loop.after))]
    steps = length - loop.peeled
    reads = {(item.args[0], item.args[1]) for item in in_dependency_order(inside) if item.op == "load"}
    # `previous` reads the step before
    reads |= {(item.args[0], Now(-1)) for item in in_dependency_order(inside) if item.op == "previous"}
    # a load has the arguments (tensor, slot)
    end_reads = {(item.args[0], item.args[1]) for item in in_dependency_order(outside) if item.op == "load"} - reads
    moved = sum(slot_bytes(tensors[name]) * (steps if isinstance(slot, Now) else 1) for name, slot in reads)
    moved += sum(slot_bytes(tensors[name]) for name, _ in end_reads)
    moved += sum(slot_bytes(tensors[write.tensor]) * steps for write in loop.writes)
    for write in (*loop.before, *loop.after):
        facts = tensors[write.tensor]
        moved += slot_bytes(facts) if facts.dims is None else sum_bytes(facts, state, sums)
    # the fewest: all of each tensor that iterations read or that is written; of others, a slot that is read at an end
    whole_tensors = {name for name, _ in reads} | {write.tensor for write in (*loop.before, *loop.writes, *loop.after)}
    end_tensors = [name for name, _ in end_reads if name not in whole_tensors]
    least = sum(tensor_bytes(tensors[name], length) for name in whole_tensors)
    least += sum(slot_bytes(tensors[name]) for name in end_tensors)
    return Traffic(moved, least)


def slot_bytes(facts: TensorFacts) -> int:
    """Return the bytes of one slot of a tensor."""
    return tensor_bytes(facts, 1)


def sum_bytes(facts: TensorFacts, state: tuple[int, ...], sums: str) -> int:
    """Return the bytes of a gradient that is added up over elements. In stages, the kernel writes a float32 an element,
    and torch reads them; for one number it writes one partial sum a program of the grid, which are too few to count."""
    count = torch.Size(facts.shape).numel()  # how many numbers the gradient has
    if sums == "atomics" or count == 1:
        return tensor_bytes(facts, 1)
    float32_bytes, written_and_read = 4, 2
    return written_and_read * float32_bytes * torch.Size(state).numel() + tensor_bytes(facts, 1)
