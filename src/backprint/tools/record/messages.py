"""The collectives of a step that goes on: they run in the process groups of the script, as the script calls them.

A graph has collectives that return their result, and `torch.distributed` mostly has others, which write into their
arguments and may go on while the script does. So such a call is written on the tape in the form that graphs have,
without running, and runs as it is. What this process sent is copied before, what it received where the result is first
read. Nothing is sent besides what the script sends, so what the others sent is not known.

A *Call* (`values/exchanges`) is the kind, the group and the options of a collective, an *Exchange* a collective of a
run with what each member sent, and *Peers* are the other ranks as they answered in a run. The *label* of a group is its
name in graphs, the same in all ranks. Memory is known by the id of its storage.
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
    """The collectives of a step: `by_group` has those of each group in their order, by its label.

    `memories` are the storages of what is received. `unread` has pairs of tensors, by the storage of the second: a part
    of what is received, whose values are not there yet, and the tensor of the script's that they will be in (source and
    target of a copy to come, in the other direction). `works` has, by its id, each handle by which the script waits,
    with the tensors that the collective writes to or returns; the handle is held, so that no other gets its id.
    """

    def __init__(self) -> None:
        self.by_group: dict[str, list[Message]] = {}
        self.memories: set[int] = set()
        self.works: dict[int, tuple[Any, list[Tensor]]] = {}
        self.unread: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def mark(self) -> dict[str, int]:
        """Return how many collectives each group has had, by its label."""
        return {label: len(messages) for label, messages in self.by_group.items()}

    def forget_after(self, mark: dict[str, int]) -> None:
        """Forget the collectives after a mark, because the script's call has raised. A group that the mark does not
        have had none then."""
        for label, messages in self.by_group.items():
            del messages[mark.get(label, 0) :]

    def begin(self, call: Call, sent: Tensor, received: Tensor) -> None:
        """Note a collective, and copy what is sent. `received` is memory for what it receives, which is copied there
        later from the tensors of the script that `note_copy` names."""
        message = Message(call, sent.detach().clone(), received)
        self.by_group.setdefault(call.group, []).append(message)
        self.memories.add(storage_id(received.untyped_storage()))

    def note_copy(self, source: Tensor, target: Tensor) -> None:
        """Note that the values of `source` will be in `target`, a tensor of the script's into which its own call writes
        them: when `target` is first read, they are copied into `source`. If `source` is no part of what a collective
        receives, nothing is noted."""
        if storage_id(source.untyped_storage()) in self.memories:
            self.unread.setdefault(storage_id(target.untyped_storage()), []).append((source.detach(), target.detach()))

    def also_into(self, copy: Tensor, tensor: Tensor) -> None:
        """If a collective is yet to write to a tensor's memory, note that `copy`, a copy of the tensor that was made
        before, takes the values then too."""
        if tensor.layout is not torch.strided:
            return  # no collective receives a sparse tensor
        key = storage_id(tensor.untyped_storage())
        if any(overlap(target, tensor) for _, target in self.unread.get(key, ())):
            self.unread[key].append((copy, tensor.detach()))

    def read(self, tensor: Tensor) -> None:
        """Copy what was received into a tensor's memory: the script is about to read it, so it has arrived."""
        key = storage_id(tensor.untyped_storage())
        pairs = self.unread.pop(key, [])
        # Other parts of the memory may be yet to come.
        if later := [(source, target) for source, target in pairs if not overlap(target, tensor)]:
            self.unread[key] = later
        for source, target in pairs:
            if overlap(target, tensor):
                source.copy_(target)

    def expect(self, work: Any, tensors: list[Tensor]) -> None:
        """Note the handle by which the script waits for what will be in some tensors."""
        self.works[id(work)] = work, [tensor.detach() for tensor in tensors]

    def arrived(self, work: Any) -> None:
        """Copy what was received in a collective whose handle the script has waited for. A handle that is not known, or
        was waited for before, changes nothing."""
        _, tensors = self.works.pop(id(work), (None, ()))
        for tensor in tensors:
            self.read(tensor)

    def is_result_of_callback(self, tensor: Tensor) -> bool:
        """Whether a tensor that no operator of the step has made may be what a callback made of a collective's result:
        some collective that nobody has waited for yet has a tensor of this shape and dtype."""
        expected = (other for _, tensors in self.works.values() for other in tensors)
        return any(other.shape == tensor.shape and other.dtype == tensor.dtype for other in expected)

    def read_all(self) -> None:
        """Copy what was received and nothing has read."""
        for pairs in self.unread.values():
            for source, target in pairs:
                source.copy_(target)
        self.unread.clear()

    def peers(self, groups: Groups, rank: int) -> Peers | None:
        """Return the other ranks as they answered in the step; None if it had no collectives. `rank` is the rank of
        this process."""
        if not self.by_group:
            return None
        places = {label: groups[label].index(rank) for label in self.by_group}
        exchanges = {
            label: [_exchange_of(message, len(groups[label]), places[label]) for message in messages]
            for label, messages in self.by_group.items()
        }
        return Peers(exchanges, places)


def _exchange_of(message: Message, size: int, place: int) -> Exchange:
    """Return a collective of a group of this size of which this process knows what it sent and what it received; it is
    the member at `place`, and the others made the same call."""
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
