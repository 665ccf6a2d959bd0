"""Where ranks meet: the collectives of ranks that run together, computed when all members have sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from backprint._torch.distributed import label_of, members_of
from backprint.errors import RanksError
from backprint.ranks.turns import Turns, waits_in
from backprint.tracing import frames
from backprint.values.combine import received_by
from backprint.values.exchanges import Call, Exchange, mismatch

Key = tuple[int, str, tuple[int, ...], int]
"""A collective of a run: the number of the run, the label of its group and its members, and its number among them."""


@dataclass(slots=True)
class Sent:
    """What the members of a group have sent so far, and where in their program."""

    calls: dict[int, Call] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    taken: int = 0


class Meeting:
    """The collectives that wait for members, by key."""

    def __init__(self, turns: Turns[Any]) -> None:
        self.turns = turns
        self.open: dict[Key, Sent] = {}

    def meet(self, key: Key, rank: int, call: Call, tensor: Tensor) -> Sent:
        """Send a tensor, and return what all members have sent, as soon as they have."""
        members = key[2]
        sent = self.open.setdefault(key, Sent())
        where = frames.place(frames.here({}))
        sent.calls[rank], sent.tensors[rank], sent.lines[rank] = call, tensor.detach().clone(), where
        if len(sent.calls) < len(members):
            self.turns.wait(rank, waits_in(call, where))
        else:
            for member in members:
                self.turns.go_on(member)
        sent.taken += 1
        if sent.taken == len(members):
            self.open.pop(key, None)
        return sent


@dataclass(slots=True)
class Among:
    """Answers the collectives of one rank that runs among the others.

    `groups` has the members of each group by its label; a program's own groups are added as it uses them. With
    `exchanges`, each collective is kept there, by group.
    """

    meeting: Meeting
    rank: int
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    exchanges: dict[str, list[Exchange]] | None = None
    run: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run: its collectives are others than those of the run before."""
        self.run, self.counts = self.run + 1, {}

    def label(self, reference: Any) -> str:
        """Return the label of a process group, and remember its members."""
        label = label_of(reference)
        self.groups[label] = members_of(reference)
        return label

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        members = self.groups[call.group]
        number = self.counts.get(call.group, 0)
        self.counts[call.group] = number + 1
        sent = self.meeting.meet((self.run, call.group, members, number), self.rank, call, tensor)
        calls, tensors = [sent.calls[member] for member in members], [sent.tensors[member] for member in members]
        if problem := mismatch(calls, tensors):
            lines = ", ".join(f"member {place}{sent.lines[member]}" for place, member in enumerate(members))
            raise RanksError(f"the ranks {list(members)} do not call the same collective: {problem} ({lines})")
        received = received_by(members.index(self.rank), call.kind, [row.options for row in calls], tensors)
        if self.exchanges is not None:
            exchange = Exchange(tuple(calls), tuple(tensors), received.clone())
            self.exchanges.setdefault(call.group, []).append(exchange)
        return received
