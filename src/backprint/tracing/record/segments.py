"""Divide the tape of a script's step into segments: forwards, and backwards with their gradients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backprint.graph.nouns import Step
from backprint.tracing.eager.placement import Placement, flat
from backprint.tracing.eager.tape import TapedCall
from backprint.tracing.eager.writer import Writer
from backprint.tracing.program import Outcome
from backprint.tracing.record.recorder import Backward, LiveRecorder, is_sum, refuse_freed

aten = torch.ops.aten


@dataclass(slots=True)
class Segment:
    """A segment of the step in one direction; a backward has its roots and its gradients."""

    steps: list[Step]
    mark: Backward | None = None
    tangents: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Uses:
    """Which calls of a backward accumulate into an existing gradient, and the last other call that uses each memory."""

    sums: frozenset[int]
    last: dict[int, int]


def uses_in(calls: Sequence[TapedCall], gradients: Collection[Placement]) -> Uses:
    """Return the Uses: a sum belongs to the segment after the backward if nothing in the backward reads it later."""
    sums = frozenset(index for index, call in enumerate(calls) if is_sum(call) and call.args[0] in gradients)
    last: dict[int, int] = {}
    for index, call in enumerate(calls):
        given = call.args[1:] if index in sums else (call.args, call.kwargs)
        last |= {leaf.memory: index for leaf in flat(*given) if type(leaf) is Placement}
    return Uses(sums, last)


class StepWriter:
    """Writes a step's tape segment by segment."""

    def __init__(self, recorder: LiveRecorder, names: Mapping[str, str]) -> None:
        self.recorder, self.names = recorder, dict(names)
        tape = recorder.tape
        self.fresh = {key: f"constant_{index}" for index, key in enumerate(tape.constants)}
        # draws continue from the script's state, which no seed sets: a replay cannot start from it
        self.writer = Writer(tape, self.names | self.fresh, list(self.names), start={})
        self.segments: list[Segment] = []
        self.late: list[TapedCall] = []
        self.leaving: set[Placement] = set()

    # -------------------------------------------------------------- segments

    def write(self) -> None:
        begin = 0
        for mark in self.recorder.backwards:
            self.forward(self.recorder.tape.calls[begin : mark.begin])
            self.backward(mark)
            begin = mark.end
        self.forward(self.recorder.tape.calls[begin:])

    def forward(self, calls: Sequence[TapedCall]) -> None:
        """Write calls outside a backward; sums that a backward made into `.grad` come first."""
        segment = Segment([])
        self.writer.forget_views(self.leaving)
        late, self.late = self.late, []
        self.writer.write_into(segment.steps, (*late, *calls))
        self.segments.append(segment)

    def backward(self, mark: Backward) -> None:
        """Write one backward: its roots have tangents, and it returns each leaf's own gradient."""
        segment = Segment([], mark)
        for index, place in enumerate(mark.roots):
            segment.losses["loss" if len(mark.roots) == 1 else f"loss.{index}"] = self.writer.value_at(place).name
        self.writer.write_into(segment.steps)
        added: dict[Placement, str] = {}
        calls = self.recorder.tape.calls[mark.begin : mark.end]
        uses = uses_in(calls, frozenset(mark.terms))
        for index, call in enumerate(calls):
            if self.is_tangent(call, mark, segment):
                continue
            if index in uses.sums:
                self.leaving.add(call.args[1])
                added[call.args[0]] = self.writer.add(call, added.get(call.args[0]), call.args[1])
                if uses.last.get(call.args[0].memory, -1) < index:
                    self.late.append(call)
                    continue
            self.writer.take(call)
        self.writer.end_calls()
        self.leaving |= set(mark.after.values())
        for key in mark.given:
            value = added.get(mark.after[key]) or self.writer.value_at(mark.after[key]).name
            segment.gradients[self.names[f"outside {key}"]] = value
        self.segments.append(segment)

    def is_tangent(self, call: TapedCall, mark: Backward, segment: Segment) -> bool:
        """Enter the ones that autograd starts from as the tangent of a loss; return whether the call makes these."""
        if mark.tangents or call.func is not aten.ones_like.default or call.node is not None:
            return False
        if call.args[0] not in mark.roots:
            return False
        name = list(segment.losses)[mark.roots.index(call.args[0])]
        segment.tangents[name] = self.writer.begin_value(f"tangent_{name}", call.result)
        return True

    # -------------------------------------------------------------- what the step came to

    def final_values(self) -> dict[str, tuple[str, Tensor]]:
        """Return the tensors from outside that the step changed, by name: their last value's name, and the value."""
        found = {}
        for key, tensor in zip(self.names, self.recorder.seen.outside, strict=True):
            value = self.writer.value_at(self.recorder.place(tensor)).name
            if value != self.writer.locals[key]:
                refuse_freed(self.names[key], tensor)
                found[self.names[key]] = (value, tensor.detach().clone())
        return found

    def outcome(self, finals: Mapping[str, tuple[str, Tensor]], losses: Sequence[str]) -> Outcome:
        """Return the results of the real step: losses, gradients, and changed tensors."""
        marks = self.recorder.backwards
        values = [loss for mark in marks for loss in mark.losses]
        gradients: dict[str, Tensor] = {}
        for mark in reversed(marks):  # in the order of a replay, the latest first
            for index, term in mark.given.items():
                name = self.names[f"outside {index}"]
                gradients[name] = gradients[name] + term if name in gradients else term
        changed = {name: tensor for name, (_, tensor) in finals.items()}
        return Outcome(dict(zip(losses, values, strict=True)), dict(gradients), changed)
