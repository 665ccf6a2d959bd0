"""The collectives of a step that goes on: they run in the process groups of the script, as the script calls them.

A graph has collectives that return their result, and `torch.distributed` mostly has others, which write into their
arguments and may go on while the script does. So such a call is written on the tape in the form that graphs have,
without running, and runs as it is. What this process sent is copied before, what it received where the result is first
read. Nothing is sent besides what the script sends, so what the others sent is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint._torch.distributed import collective_name
from backprint._torch.tensors import storage_id
from backprint.trace.watch import overlap
from backprint.values.exchanges import Call, Exchange, Peers

Groups = dict[str, tuple[int, ...]]
"""The members of each group, by its label."""


@dataclass(slots=True)
class Message:
    """One collective: the call, what this process sent, and memory for what it received."""

    call: Call
    sent: Tensor
    received: Tensor


class Messages:
    """The collectives of a step, by the label of their group, in their order.

    `memories` are the storages of what is received. `unread` has parts of it that nothing has read yet, each with the
    tensor of the script's that the same values will be in, by that tensor's storage. `works` has the handles by which
    the script waits, with these tensors.
    """

    def __init__(self) -> None:
        self.by_group: dict[str, list[Message]] = {}
        self.memories: set[int] = set()
        self.works: dict[int, tuple[Any, list[Tensor]]] = {}
        self.unread: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def mark(self) -> dict[str, int]:
        """Return how many collectives each group has had."""
        return {label: len(rows) for label, rows in self.by_group.items()}

    def forget_after(self, mark: dict[str, int]) -> None:
        """Forget the collectives after a mark: the call has raised."""
        for label, rows in self.by_group.items():
            del rows[mark.get(label, 0) :]

    def begin(self, call: Call, sent: Tensor, received: Tensor) -> None:
        """Note a collective, and copy what is sent. What it receives will be in `received`, or is taken there from the
        tensors of the script that `note_copy` names."""
        message = Message(call, sent.detach().clone(), received)
        self.by_group.setdefault(call.group, []).append(message)
        self.memories.add(storage_id(received.untyped_storage()))

    def note_copy(self, source: Tensor, target: Tensor) -> None:
        """Note that a part of what a collective receives (`source`) will be in a tensor of the script's (`target`),
        where the script's own call puts it: when that is first read, it is copied back. A copy of anything else is not
        noted."""
        if storage_id(source.untyped_storage()) in self.memories:
            self.unread.setdefault(storage_id(target.untyped_storage()), []).append((source.detach(), target.detach()))

    def also_into(self, copy: Tensor, tensor: Tensor) -> None:
        """Take what is about to arrive in a tensor's memory into a copy of the tensor, too."""
        if tensor.layout is not torch.strided:
            return  # no collective receives a sparse tensor
        rows = self.unread.get(storage_id(tensor.untyped_storage()), ())
        if any(overlap(target, tensor) for _, target in rows):
            self.unread[storage_id(tensor.untyped_storage())].append((copy, tensor.detach()))

    def read(self, tensor: Tensor) -> None:
        """Keep what was received into a tensor's memory: it is about to be read, so it has arrived."""
        key = storage_id(tensor.untyped_storage())
        rows = self.unread.pop(key, [])
        if later := [row for row in rows if not overlap(row[1], tensor)]:
            self.unread[key] = later
        for source, target in rows:
            if overlap(target, tensor):
                source.copy_(target)

    def expect(self, work: Any, tensors: list[Tensor]) -> None:
        """Note the handle by which the script waits for what will be in some tensors."""
        self.works[id(work)] = work, [tensor.detach() for tensor in tensors]

    def arrived(self, work: Any) -> None:
        """Keep what was received in a collective that the script has waited for."""
        for tensor in self.works.pop(id(work), (None, ()))[1]:
            self.read(tensor)

    def is_result_of_callback(self, tensor: Tensor) -> bool:
        """Whether a tensor that no operator of the step has made may be what a callback made of a collective's result:
        nobody has waited for one that returns such a tensor."""
        expected = (other for _, tensors in self.works.values() for other in tensors)
        return any(other.shape == tensor.shape and other.dtype == tensor.dtype for other in expected)

    def read_all(self) -> None:
        """Keep what was received and nothing has read."""
        for rows in self.unread.values():
            for source, target in rows:
                source.copy_(target)
        self.unread.clear()

    def peers(self, groups: Groups, rank: int) -> Peers | None:
        """Return the others as they answered in the step; None if it had no collectives."""
        if not self.by_group:
            return None
        places = {label: groups[label].index(rank) for label in self.by_group}
        return Peers(
            {
                label: [_exchange_of(row, len(groups[label]), places[label]) for row in rows]
                for label, rows in self.by_group.items()
            },
            places,
        )


def _exchange_of(message: Message, size: int, place: int) -> Exchange:
    """Return a collective of which this process knows what it sent and what it received."""
    sent: list[Tensor | None] = [None] * size
    sent[place] = message.sent
    return Exchange((message.call,) * size, tuple(sent), message.received)


# ---- Forms that are written and do not run


def empty_result(func: Any, args: Any, size: int) -> Tensor:
    """Return memory for what a collective returns to a member of a group of this size: zeros of its shape, which is
    that of the argument, but for collectives that gather, scatter, or exchange rows (their sizes are argument 1)."""
    sent: Tensor = args[0]
    rows, rest = (sent.shape[0], sent.shape[1:]) if sent.dim() else (1, ())
    match collective_name(func):
        case "all_gather_into_tensor":
            return sent.new_zeros((rows * size, *rest))
        case "reduce_scatter_tensor":
            return sent.new_zeros((rows // size, *rest))
        case "all_to_all_single":
            return sent.new_zeros((sum(map(int, args[1])), *rest))
    return sent.new_zeros(sent.shape)
