"""Where ranks meet: the collectives of ranks that run together, computed when all members have sent.

The ranks are threads of this process that take turns (`RankTurns`): one runs until it waits in a collective, then the
next one. Words of this file:

- A group of ranks has a *label*, such as `tp` or `world`; its *members* are ranks, in the order of the group.
- `Call`: a collective as one member calls it: its kind, the label of the group, and its options, such as the reduction.
- `Exchange`: one collective of a run: the Calls of all members, what each `sent`, and what this rank `received`.
- `received_by(index, kind, options, sent)` returns what the member at this index of the group receives.
- `mismatch(calls, tensors)` says how the Calls of the members do not belong together; '' if they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.distributed import label_of, members_of
from backprint.errors import RanksError
from backprint.graph.links import collective_steps
from backprint.graph.nouns import Capture
from backprint.run_sample import received_by
from backprint.tools.ranks.turns import RankTurns, waits_in
from backprint.trace import frames
from backprint.values.exchanges import Call, Exchange, mismatch

Key = tuple[int, str, tuple[int, ...], int]
"""A collective of a run: the number of the run, the label of its group and its members, and its number among them."""


@dataclass(slots=True)
class Sent:
    """What the members of a group have sent so far in one collective, and at which line of their program, by rank;
    `taken` counts the members that have gone on with it."""

    calls: dict[int, Call] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    taken: int = 0


class Meeting:
    """The collectives that wait for members (`open`, by key), and the `turns` of the ranks. With `replays`, graphs run
    and no program, so that no line is known."""

    def __init__(self, turns: RankTurns[Any], replays: bool = False) -> None:
        self.turns, self.replays = turns, replays
        self.open: dict[Key, Sent] = {}

    def meet(self, key: Key, rank: int, call: Call, tensor: Tensor) -> Sent:
        """Send a rank's tensor, and return what all members have sent, once they have: a member waits here until the
        last one has sent. The last that goes on with it removes it from `open`."""
        _run, _label, members, _number = key
        sent = self.open.setdefault(key, Sent())
        # The program's line, as ` at FILE:LINE in …`.
        where = "" if self.replays else frames.place(frames.here(paths={}))
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

    `groups` has the members of each group by its label; a program's own groups are added as it uses them. If
    `exchanges` is not None, each collective is kept there, by the label of its group. `arrived` has the collectives of
    the step that the ranks ran, if it is known what each received: a sum may have been rounded in another order than it
    is here. `run` is the number of the run, and `counts` how many collectives of each group it has had. `place` returns
    a context manager in which a program runs as this rank, with its process groups (`sharded.in_place`).
    """

    meeting: Meeting
    rank: int
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    exchanges: dict[str, list[Exchange]] | None = None
    arrived: Mapping[str, Sequence[Exchange]] = field(default_factory=dict)
    run: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run, or a part of one, whose collectives are others than those of earlier runs. `position` has how
        many collectives of each group come before the part."""
        self.run, self.counts = self.run + 1, dict(position or {})

    def label(self, reference: Any) -> str:
        """Return the label of a process group, and remember its members."""
        label = label_of(reference)
        self.groups[label] = members_of(reference)
        return label

    def at_barrier(self, reference: Any) -> None:
        """Wait at a barrier for all members of a group: they meet, as in a collective of no elements. `reference` is
        the process group, its name, or its boxed form."""
        label = self.label(reference)
        call = Call("barrier", label)
        # Under a text that is no label, as barriers are counted apart from collectives, which are a graph's.
        self.counts[call.text] = number = self.counts.get(call.text, 0) + 1
        key = (self.run, call.text, self.groups[label], number)
        self.meeting.meet(key, self.rank, call, torch.empty(0))

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        """Return what this rank receives in a collective in which it sends a tensor, once all members have sent. Raise
        RanksError if they do not call the same collective."""
        members = self.groups[call.group]
        number = self.counts.get(call.group, 0)
        self.counts[call.group] = number + 1
        sent = self.meeting.meet((self.run, call.group, members, number), self.rank, call, tensor)
        calls, tensors = [sent.calls[member] for member in members], [sent.tensors[member] for member in members]
        if problem := mismatch(calls, tensors):
            lines = ", ".join(f"member {place}{sent.lines[member]}" for place, member in enumerate(members))
            raise RanksError(f"the ranks {list(members)} do not call the same collective: {problem} ({lines})")
        received = received_by(members.index(self.rank), call.kind, [row.options for row in calls], tensors)
        if number < len(known := self.arrived.get(call.group, ())):
            received = _as_it_arrived(known[number].on(tensor.device), tensors, received)
        if self.exchanges is not None:
            exchange = Exchange(tuple(calls), tuple(tensors), received.clone())
            self.exchanges.setdefault(call.group, []).append(exchange)
        return received


def _as_it_arrived(exchange: Exchange, sent: Sequence[Tensor], computed: Tensor) -> Tensor:
    """Return what this rank received in the step (`exchange`), if all members send what they sent in it and it is what
    is `computed` here but for the order of rounding; else what is computed."""
    arrived = exchange.received
    if arrived is None or any(
        sent_then is None or not torch.equal(sent_then, sent_now)
        for sent_then, sent_now in zip(exchange.sent, sent, strict=True)
    ):
        return computed
    return arrived.clone() if _is_same_sum(arrived, computed, sent) else computed


def _is_same_sum(arrived: Tensor, computed: Tensor, sent: Sequence[Tensor]) -> bool:
    """Whether what arrived is what is computed of what all members have sent, but for the order of rounding: each
    addition rounds by at most eps of the sum of the largest values that were sent, or of the result."""
    if arrived.shape != computed.shape or arrived.dtype != computed.dtype:
        return False
    if arrived.is_complex():
        arrived, computed = torch.view_as_real(arrived), torch.view_as_real(computed)
    if not arrived.dtype.is_floating_point or not arrived.numel():
        return torch.equal(arrived, computed)
    largest = sum(float(tensor.abs().max()) for tensor in sent if tensor.numel())
    # And of the result, as a product may be larger than all that was sent.
    bound = len(sent) * torch.finfo(arrived.dtype).eps * (largest + computed.abs())
    difference = (arrived - computed).abs()
    return bool(((difference <= bound) | (arrived == computed) | (arrived.isnan() & computed.isnan())).all())


def check_one_step(ranks: Sequence[Capture], exchanges: Sequence[Mapping[str, Sequence[Exchange]]]) -> None:
    """Raise if the ranks' samples are not of one step: what one rank has received is not what all have sent.

    `exchanges` has the collectives of each rank, by the label of the group, as `exchanges_of_all` returns them. A
    collective whose result the graphs do not use is not compared.
    """
    _check_counts(ranks, exchanges)
    for number, (capture, exchanges_by_label) in enumerate(zip(ranks, exchanges, strict=True)):
        steps = collective_steps(capture)  # by label and position: the step, and whether its result is used
        for label, exchanges_of_group in exchanges_by_label.items():
            member_index = dict(capture.rank.groups)[label].index(number) if capture.rank is not None else 0
            for position, exchange in enumerate(exchanges_of_group):
                step, is_used = steps.get((label, position), (None, False))
                if step is None or not is_used or _is_received_what_was_sent(exchange, member_index):
                    continue
                where = f" at {step.source.at}" if step.source is not None else ""
                raise RanksError(
                    f"the samples are not of one step of the ranks: what rank {number} received in "
                    f"{exchange.calls[member_index].text}{where} is not what the others sent, by their samples. Is one "
                    "of them of an earlier run, or has a rank made other steps than the others?"
                )


def _check_counts(ranks: Sequence[Capture], exchanges: Sequence[Mapping[str, Sequence[Exchange]]]) -> None:
    """Raise if the members of a group have made different numbers of collectives over it; a member without a sample of
    the group has made none."""
    counts: dict[tuple[str, tuple[int, ...]], dict[int, int]] = {}  # of each group, by the number of the rank
    for number, (capture, exchanges_by_label) in enumerate(zip(ranks, exchanges, strict=True)):
        for label, members in capture.rank.groups if capture.rank is not None else ():
            counts.setdefault((label, members), {})[number] = len(exchanges_by_label.get(label, ()))
    for (label, members), count_by_rank in counts.items():
        count_by_rank |= {number: 0 for number in members if number not in count_by_rank}
        if len(set(count_by_rank.values())) > 1:
            shown = ", ".join(f"rank {number} has {count}" for number, count in list(count_by_rank.items())[:8])
            raise RanksError(f"the samples are not of one step of the ranks: of collectives over {label!r}, {shown}")


def _is_received_what_was_sent(exchange: Exchange, member_index: int) -> bool:
    """Whether what the member of a group has received is what the collective makes of all that was sent; True if that
    is not known: not all tensors are there, or the Calls do not belong together. An all-to-all is not compared."""
    sent = [tensor for tensor in exchange.sent if tensor is not None]
    if exchange.received is None or len(sent) < len(exchange.sent):
        return True
    call = exchange.calls[member_index]
    if call.kind == "all_to_all_single" or mismatch(exchange.calls, sent):
        return True
    computed = received_by(member_index, call.kind, [call.options for call in exchange.calls], sent)
    return _is_same_sum(exchange.received, computed, sent)


def exchanges_of_all(ranks: Sequence[Capture]) -> list[dict[str, list[Exchange]]]:
    """Return the collectives of each rank, by the label of the group, with what every member of the group sent: a
    rank's own sample has only what the rank itself sent, so what the other members sent is taken from their samples,
    and is None where these do not keep it."""
    exchanges_of_ranks = [getattr(capture.peers, "exchanges", {}) for capture in ranks]
    groups = [dict(capture.rank.groups) if capture.rank is not None else {} for capture in ranks]
    # By the label and the members of the group, the position of the collective among the group's, and the sender.
    sent_by_key: dict[tuple[str, tuple[int, ...], int, int], Tensor | None] = {}
    for number, (by_label, members_of_label) in enumerate(zip(exchanges_of_ranks, groups, strict=True)):
        for label, members in members_of_label.items():
            own_index = members.index(number)
            for position, exchange in enumerate(by_label.get(label, ())):
                sent_by_key[label, members, position, number] = exchange.sent[own_index]

    def completed(exchange: Exchange, label: str, members: tuple[int, ...], position: int) -> Exchange:
        """Return a collective of a rank with what each member sent."""
        return replace(exchange, sent=tuple(sent_by_key.get((label, members, position, member)) for member in members))

    return [
        {
            label: [
                completed(exchange, label, members, position)
                for position, exchange in enumerate(by_label.get(label, ()))
            ]
            for label, members in members_of_label.items()
        }
        for by_label, members_of_label in zip(exchanges_of_ranks, groups, strict=True)
    ]
