"""Collectives by their values: what each member of a group sent, and what each receives.

An Exchange is one collective of one run. `run_sample.received_by` computes what a member receives from what all members
sent, whether threads have met or an earlier run is known (`Peers`).

A *rank* is one process of a distributed step, and a *member* a rank by its place in a process group, from 0. A group is
known by its *label*: the name of a dimension of a device mesh, or `world`. A *recorded run* is an earlier run among all
ranks, whose Exchanges are known; the tensor that `this rank` sends now may be another than then. Of Peers, by the label
of a group, `exchanges` has its collectives in that run, `places` this rank's place in it, and `position` how many of
its collectives have been answered now; `differing` has those in which this rank has sent something else than then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from backprint._torch.distributed import GROUP_POSITIONS, label_of
from backprint.errors import CaptureError, ReplayError
from backprint.run_sample import received_by


@dataclass(frozen=True, slots=True)
class Call:
    """A collective as one member of a group of ranks calls it: its kind, the label of the group, and its options.

    `options` has the reduction; or the place of a broadcast's source in the group; or, for `all_to_all_single`, how
    many rows come from each member and how many go to each. It is empty for `all_gather_into_tensor`.
    """

    kind: str
    group: str
    options: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The call as text, for a message."""
        options = "".join(f", {option!r}" for option in self.options)
        return f"{self.kind}({self.group!r}{options})"


def call_of(name: str, args: Any, label: Callable[[Any], str]) -> Call:
    """Return the Call of the collective operator `name` with these arguments, of which the first is the tensor that it
    sends. `label` returns the label of a group, from the operator's argument for it. CaptureError for a tensor that is
    not strided."""
    if args[0].layout is not torch.strided:
        raise CaptureError(
            f"{name} sends a {str(args[0].layout)[6:]} tensor, and the collectives of a graph take strided ones: make "
            "it dense before it is sent (sparse gradients: nn.Embedding(…, sparse=False))",
            every_engine=True,
        )
    position = GROUP_POSITIONS[name]
    group = label(args[position])
    match name:
        # The arguments after the tensor, as `_c10d_functional` orders them.
        case "all_reduce" | "reduce_scatter_tensor":
            return Call(name, group, (args[1],))
        case "all_to_all_single":
            return Call(name, group, (tuple(map(int, args[1])), tuple(map(int, args[2]))))
        case "broadcast":
            return Call(name, group, (int(args[1]),))
    return Call(name, group)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One collective of a run: the calls of its members and what each sent, in the order of the group.

    `received` is what this rank received in that run; None if it is to be computed from `sent`. What another rank sent
    is None if it is not known: a recorded step knows only what its own process sent and received.
    """

    calls: tuple[Call, ...]
    sent: tuple[Tensor | None, ...]
    received: Tensor | None = None

    def on(self, device: torch.device) -> Exchange:
        """Return the Exchange with its tensors on a device. Those of a sample are on the CPU."""
        *sent, received = [None if tensor is None else tensor.to(device) for tensor in (*self.sent, self.received)]
        return Exchange(self.calls, tuple(sent), received)


def mismatch(calls: Sequence[Call], sent: Sequence[Tensor]) -> str:
    """Return how the `calls` of the members of a group, or the tensors that they have `sent`, do not belong together;
    '' if they do."""
    first = calls[0]
    for member, tensor in enumerate(sent):
        same_shape = tensor.shape == sent[0].shape or first.kind == "all_to_all_single"
        if tensor.dtype != sent[0].dtype or not same_shape:
            kinds = [f"{str(part.dtype)[6:]}{list(part.shape)}" for part in (sent[0], tensor)]
            return f"member 0 sends {kinds[0]} in {first.text}, and member {member} sends {kinds[1]}"
    for member, call in enumerate(calls):
        if (call.kind, call.group) != (first.kind, first.group):
            return f"member 0 calls {first.text}, and member {member} calls {call.text}"
        if call.kind != "all_to_all_single" and call.options != first.options:
            return f"member 0 calls {first.text}, and member {member} calls {call.text}"
    if first.kind == "all_to_all_single":
        for receiver, call in enumerate(calls):
            for sender, other in enumerate(calls):
                # `options` has the numbers of rows that come in, by sender, and that go out, by receiver.
                (incoming, _), (_, outgoing) = call.options, other.options
                if incoming[sender] != outgoing[receiver]:
                    return (
                        f"member {receiver} expects {incoming[sender]} rows of member {sender}, which sends "
                        f"{outgoing[receiver]}"
                    )
    return ""


def _is_close(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of one shape are equal but for rounding."""
    if left.dtype != right.dtype or not left.dtype.is_floating_point or not left.numel():
        return torch.equal(left, right)
    largest = float(left.abs().nan_to_num(0.0, 0.0, 0.0).max())  # of its finite numbers
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6 * largest, equal_nan=True)


def received_without_others(exchange: Exchange, place: int, sent: Tensor) -> Tensor | None:
    """Return what this rank receives if it sends `sent`, another tensor than in the recorded run, though what the other
    members of the group sent is not known; None if it cannot be told. `place` is this rank's place in the group.

    `exchange.received` is what this rank alone received in that run. Of a sum, the other members' part is what was
    received, less this rank's own part, up to rounding.
    """
    call, received, before = exchange.calls[place], exchange.received, exchange.sent[place]
    assert received is not None
    assert before is not None
    received, size = received.to(sent.dtype), len(exchange.sent)  # the number of members
    match call.kind, call.options:
        # What was received consists of the members' tensors: replace the part of this rank.
        case "broadcast", (root,):
            return sent.clone() if root == place else received.clone()
        case "all_gather_into_tensor", _:
            parts = list(received.chunk(size))
            parts[place] = sent.reshape(parts[place].shape)
            return torch.cat(parts)
        case "all_to_all_single", (incoming, outgoing):
            parts = list(received.split(list(incoming)))
            parts[place] = sent.split(list(outgoing))[place]
            return torch.cat(parts)
        case "all_reduce" | "reduce_scatter_tensor", ("sum" | "avg" as reduction,):
            # A sum, or a mean: add what this rank sends more than before.
            more = sent - before
            more = more if call.kind == "all_reduce" else more.chunk(size)[place]
            return received + (more / size if reduction == "avg" else more)
    return None


Answer = Callable[[Call, Tensor], Tensor]
"""Answers a collective of one rank: returns what the rank receives if it sends this tensor."""


class Others(Protocol):
    """The other ranks of a distributed step, which answer the collectives of one rank's program: Peers, or the ranks
    themselves in other threads.

    `begin` is called before each run with how many collectives of each group came before it, None for none. `place`
    returns a context manager that is entered where the program runs. `label` returns the label of a process group.
    """

    @property
    def place(self) -> Callable[[], AbstractContextManager[Any]]: ...

    def begin(self, position: Mapping[str, int] | None = None) -> None: ...

    def label(self, reference: Any, /) -> str: ...

    def __call__(self, call: Call, tensor: Tensor, /) -> Tensor: ...


def answer_as_if_equal(sizes: Mapping[str, int]) -> Answer:
    """Return an Answer as if all members of a group sent the same tensor. `sizes` has the number of members of each
    group by its label."""

    def answer(call: Call, sent: Tensor) -> Tensor:
        if call.kind == "all_to_all_single":
            # As many rows as come in, which may be more or fewer than go out.
            rows = sent.new_zeros((sum(call.options[0]), *sent.shape[1:]))
            shared = min(len(rows), len(sent))
            rows[:shared] = sent[:shared]
            return rows
        size = sizes.get(call.group, 1)
        # Every member receives the same, so the first stands for this rank.
        received: Tensor = received_by(0, call.kind, [call.options] * size, [sent] * size)
        return received

    return answer


@dataclass(slots=True)
class Peers:
    """The other ranks, as they were in one run: they send what they sent then, and this rank sends what it sends now.

    So one rank runs alone, without a process group, and its results depend on its own inputs as they do among the
    other ranks. By the label of a group, `exchanges` has its collectives in their order, `places` this rank's place in
    it, and `position` how many of its collectives have been answered in the current run. `differing` has the group and
    the number of each collective in which this rank has sent something else than then. `place` returns a context
    manager, entered where the program runs, in which `torch.distributed` answers as for this rank.
    """

    exchanges: Mapping[str, Sequence[Exchange]] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    differing: set[tuple[str, int]] = field(default_factory=set)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __call__(self, call: Call, sent: Tensor) -> Tensor:
        """Return what this rank receives if it sends this tensor in the next collective of a group, and count it.
        ReplayError if the recorded run had another collective there, or if the answer cannot be told."""
        number = self.position.get(call.group, 0)
        known = self.exchanges.get(call.group, ())
        if number >= len(known):
            raise ReplayError(
                f"{call.text} is collective {number + 1} of its group, and in the recorded run the group had "
                f"{len(known)}: on these inputs the program calls others, so run it among its ranks"
            )
        self.position[call.group] = number + 1
        exchange, place = known[number].on(sent.device), self.places[call.group]
        before, sent_before = exchange.calls[place], exchange.sent[place]
        assert sent_before is not None
        if before != call or sent_before.shape != sent.shape:
            raise ReplayError(
                f"collective {number + 1} of its group was {before.text} of {list(sent_before.shape)} in the "
                f"recorded run, and is {call.text} of {list(sent.shape)} now: run it among its ranks"
            )
        # Bit for bit what was received, without another order of additions.
        if exchange.received is not None and torch.equal(sent_before, sent):
            return exchange.received.clone()
        if not _is_close(sent_before, sent):
            self.differing.add((call.group, number))
        # If it is known what all other members sent, the result is computed; otherwise it is derived from what was
        # received.
        everyone = [*exchange.sent[:place], sent, *exchange.sent[place + 1 :]]  # with this rank's new tensor
        tensors = [tensor for tensor in everyone if tensor is not None]
        if len(tensors) == len(everyone):
            return received_by(place, call.kind, [member.options for member in exchange.calls], tensors)
        received = received_without_others(exchange, place, sent)
        if received is None:
            raise ReplayError(
                f"collective {number + 1} of its group, {call.text}, sends other values than in the recorded run, and "
                "what the others sent is not kept: replay it on its own inputs, or with the samples of all ranks "
                "together (bp.load_world)"
            )
        return received

    def label(self, reference: Any) -> str:
        """Return the label of a process group."""
        return label_of(reference)

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run; with `position`, behind so many collectives of each group, by its label."""
        self.position = dict(position or {})
