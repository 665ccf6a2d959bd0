"""Collectives by their values: what each member of a group sent, and what each receives.

An Exchange is one collective of one run. `combine.received_by` computes it from what the members sent, wherever that
comes from: from threads that have met, or from an earlier run (`Peers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from backprint._torch.distributed import GROUP_POSITIONS, label_of
from backprint.errors import ReplayError
from backprint.values.combine import received_by


@dataclass(frozen=True, slots=True)
class Call:
    """A collective as one member calls it: its kind, the label of its group, and its options.

    `options` are the reduction, the source of a broadcast, or how many rows go to and come from each member.
    """

    kind: str
    group: str
    options: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """Return the call for a message."""
        options = "".join(f", {option!r}" for option in self.options)
        return f"{self.kind}({self.group!r}{options})"


def call_of(name: str, args: Any, label: Callable[[Any], str]) -> Call:
    """Return a collective as this member calls it; `label` returns the label of a group."""
    position = GROUP_POSITIONS[name]
    group = label(args[position])
    match name:
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

    `received` is what this rank received in that run; None if it is to be computed.
    """

    calls: tuple[Call, ...]
    sent: tuple[Tensor, ...]
    received: Tensor | None = None


def mismatch(calls: Sequence[Call], sent: Sequence[Tensor]) -> str:
    """Say how the calls of members, or what they send, do not belong together; '' if they do."""
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
                if call.options[0][sender] != other.options[1][receiver]:
                    return (
                        f"member {receiver} expects {call.options[0][sender]} rows of member {sender}, which sends "
                        f"{other.options[1][receiver]}"
                    )
    return ""


Answer = Callable[[Call, Tensor], Tensor]
"""Answers a collective: returns what this rank receives for what it sends."""


class Others(Protocol):
    """The other ranks of a step, which answer the collectives of a program in one of several ways.

    `begin` is called before each run, and `place` entered where the program runs; `label` returns the label of a
    process group.
    """

    @property
    def place(self) -> Callable[[], AbstractContextManager[Any]]: ...

    def begin(self, position: Mapping[str, int] | None = None) -> None: ...

    def label(self, reference: Any, /) -> str: ...

    def __call__(self, call: Call, tensor: Tensor, /) -> Tensor: ...


ANSWER: ContextVar[Answer | None] = ContextVar("answer", default=None)
"""What answers the collectives of graphs that run now; without one, the process groups of this process do."""


@dataclass(slots=True)
class Peers:
    """The other ranks, as they were in one run: they send what they sent then, and this rank sends what it sends now.

    So one rank runs alone, without a process group, and what it computes depends on its own inputs as it does among the
    others. `exchanges` has the collectives of each group in their order, `places` this rank's place in each group, and
    `position` how many of each have been answered in the run that is going on. `place` is entered where the program
    runs: there, `torch.distributed` answers as for this rank.
    """

    exchanges: Mapping[str, Sequence[Exchange]] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __call__(self, call: Call, sent: Tensor) -> Tensor:
        number = self.position.get(call.group, 0)
        known = self.exchanges.get(call.group, ())
        if number >= len(known):
            raise ReplayError(
                f"{call.text} is collective {number + 1} of its group, and in the recorded run the group had "
                f"{len(known)}: on these inputs the program calls others, so run it among its ranks"
            )
        self.position[call.group] = number + 1
        exchange, place = known[number], self.places[call.group]
        before = exchange.calls[place]
        if before != call or exchange.sent[place].shape != sent.shape:
            raise ReplayError(
                f"collective {number + 1} of its group was {before.text} of {list(exchange.sent[place].shape)} in the "
                f"recorded run, and is {call.text} of {list(sent.shape)} now: run it among its ranks"
            )
        if exchange.received is not None and torch.equal(exchange.sent[place], sent):
            return exchange.received.clone()
        everyone = [*exchange.sent[:place], sent, *exchange.sent[place + 1 :]]
        return received_by(place, call.kind, [member.options for member in exchange.calls], everyone)

    def label(self, reference: Any) -> str:
        """Return the label of a process group."""
        return label_of(reference)

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run, or go on with one from a position of it."""
        self.position = dict(position or {})
