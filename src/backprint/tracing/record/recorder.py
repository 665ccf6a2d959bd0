"""Record a step of a script that goes on: nothing is restored, but memory is copied before it is overwritten.

A dispatch mode records every operator from the end of one optimizer step to the end of the next. `enter_backward`
and `leave_backward` mark where a backward begins and ends. The script must not notice: an error of ours, or anything
that cannot be followed, loses the step and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modes import DisableTorchFunction
from backprint._torch.tensors import storage_id
from backprint.defects import told_whole
from backprint.errors import CaptureError
from backprint.memory import has_memory
from backprint.tracing import frames
from backprint.tracing.custom import is_composite, taken_apart
from backprint.tracing.eager.placement import Placement, dense, flat, spanned
from backprint.tracing.eager.recorder import PLAIN, Recorder
from backprint.tracing.eager.tape import Tape, TapedCall
from backprint.tracing.facts import is_number_read
from backprint.tracing.record.names import names_in_frames
from backprint.tracing.watch import Sighting, storages

aten = torch.ops.aten


SETTERS = (aten.set_.source_Storage, aten.set_.source_Storage_storage_offset)
"""Operators that put a tensor on memory that no operator made, as a DataLoader does for a worker's shared memory."""

UNLIKE: dict[Any, str] = {
    **dict.fromkeys((aten.prod.default, aten.prod.dim_int), "prod"),
    aten.masked_fill.Tensor: "masked_fill",
}
"""Operators whose backward formula differs under a dispatch mode (`isTensorSubclassLike` in torch's
FunctionsManual.cpp), with other rounding: these of all in `op_db`, on torch 2.13."""

UNLIKE_TWICE = {aten.cumprod.default: "cumprod", aten._linalg_det.default: "det"}
"""Operators for which this is so in a backward with `create_graph=True`."""


@dataclass(slots=True)
class Backward:
    """One `backward()` of a step: its place in the tape, its roots, and the gradients it computed.

    `before` and `after` are the Placements of the leaves' gradients, `terms` what autograd added to existing gradients.
    `given` is what this backward added for each leaf, `tangents` whether the script passed any.
    """

    begin: int
    roots: list[Placement]
    losses: list[Tensor]
    tangents: bool
    before: dict[int, Placement] = field(default_factory=dict)
    terms: dict[Placement, Tensor] = field(default_factory=dict)
    end: int = 0
    after: dict[int, Placement] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)


class LiveRecorder(Recorder):
    """Records a step that goes on: nothing is restored, but memory is copied before it is overwritten.

    `lost` says why the step was dropped; from then on every operator runs as if there were no recorder.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __init__(self) -> None:
        super().__init__({})
        self.lost, self.twice = "", ""
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.backwards: list[Backward] = []
        self.begun: list[Tensor] = []
        self.known: dict[int, list[Placement]] = {}

    def lose(self, why: str) -> None:
        """Drop the step, and everything that was kept for it."""
        self.lost = self.lost or why
        self.tape, self.seen = Tape(), Sighting()
        self.undo, self.callers, self.known, self.backwards, self.begun = {}, {}, {}, [], []

    # -------------------------------------------------------------- operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind not in PLAIN for kind in types):
            return NotImplemented
        if is_number_read(func, args):
            return args[0]
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        about = self.tried(self.before, func, args, kwargs)
        result = func(*args, **kwargs)  # outside `tried`: errors here are the script's
        if about is not None:
            self.tried(self.after, about, args, kwargs, result)
        return result

    def tried(self, act: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a part of ours; an error in it loses the step. A forked child has no step."""
        if self.lost or os.getpid() != self.pid:
            return None
        try:
            with DisableTorchFunction():
                return act(*args)
        except Exception as error:  # the script goes on
            self.lose(told_whole(error))
            return None

    def before(self, func: Any, args: Any, kwargs: Any) -> TapedCall | None:
        asked = func in UNLIKE and torch.is_grad_enabled()
        if asked and any(isinstance(arg, Tensor) and arg.requires_grad for arg in (args[0], *args[2:3])):
            self.lose(f"the backward of {UNLIKE[func]} rounds differently while it is recorded{place_of_script()}")
            return None
        if func in UNLIKE_TWICE:
            self.twice = UNLIKE_TWICE[func]
        return super().before(func, args, kwargs)

    def after(self, about: TapedCall, args: Any, kwargs: Any, result: Any) -> None:
        if about.func in SETTERS and storage_id(storages(result)[-1]) not in self.taint:
            self.encounter(None, args[0], False)
            return
        if is_sum(about) and about.args[0] in self.backwards[-1].before.values():
            terms, term = self.backwards[-1].terms, args[1].detach()
            terms[about.args[0]] = terms[about.args[0]] + term if about.args[0] in terms else term.clone()
        super().after(about, args, kwargs, result)
        for place in flat(self.tape.calls[-1].result):
            if type(place) is Placement and place.memory in self.known:
                self.known[place.memory].append(place)

    def taken(self, func: Any, tensor: Tensor, writes: bool, followed: bool) -> Placement:
        if not self.is_known(tensor):
            self.encounter(func, tensor, writes)
        return super().taken(func, tensor, writes, followed)

    def is_known(self, tensor: Tensor) -> bool:
        """Whether a tensor was made in the step or is in the known part of memory from outside.

        The step may first use a part of a batch: then the whole batch is another input.
        """
        if storage_id(storages(tensor)[-1]) not in self.taint:
            return False
        place = self.place(tensor)
        known = self.known.get(place.memory)
        return known is None or any(holds(each, place) for each in known)

    def meet(self, func: Any, tensor: Tensor, written: bool) -> None:
        refuse_freed("a tensor from outside", tensor)
        storage = tensor.untyped_storage()
        key = storage_id(storage)
        self.callers[key] = storage
        self.seen.outside.append(tensor)
        self.begun.append(tensor.detach())  # a tensor may be put on other memory while the step runs
        self.learn(tensor, frozenset())
        place = self.place(tensor)
        self.known.setdefault(place.memory, []).append(place)
        if written and key not in self.undo:
            self.undo[key] = storage.clone()

    def meet_sparse(self, tensor: Tensor) -> None:
        raise CaptureError(f"the step uses a {str(tensor.layout)[6:]} tensor from outside{place_of_script()}")

    def judge(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
        """Do nothing: opaque edges are found from the nodes behind each loss."""

    def know_parameters(self, frame: FrameType) -> None:
        """Enter the script's parameters from the start, by the variables of its frames."""
        for _, tensor in names_in_frames(frame).values():
            if isinstance(tensor, nn.Parameter):
                self.found(tensor)

    def found(self, tensor: Tensor) -> Placement:
        """Return the Placement of a tensor; one of unknown memory comes from outside."""
        if not self.is_known(tensor):
            self.encounter(None, tensor, False)
        return self.place(tensor)

    # -------------------------------------------------------------- backwards

    def gradients(self) -> dict[int, Placement]:
        """Return the Placements of the gradients of the tensors seen so far."""
        every = list(enumerate(self.seen.outside))
        leaves = [(index, tensor) for index, tensor in every if tensor.is_leaf and tensor.requires_grad]
        return {index: self.found(leaf.grad) for index, leaf in leaves if leaf.grad is not None}

    def enter_backward(self, roots: Sequence[Tensor], tangents: bool) -> None:
        """Note that a call of `torch.autograd.backward` begins; one inside another belongs to the outer one."""
        places = [self.found(root) for root in roots]
        mark = Backward(len(self.tape.calls), places, [root.detach().clone() for root in roots], tangents)
        self.judge_outputs({str(index): root for index, root in enumerate(roots)})
        mark.before = self.gradients()
        self.backwards.append(mark)

    def leave_backward(self) -> None:
        """Note that it has ended."""
        mark = self.backwards[-1]
        mark.end, mark.after = len(self.tape.calls), self.gradients()
        for index, place in mark.after.items():
            refuse_freed("a gradient", self.seen.outside[index].grad)
            if index not in mark.before:
                mark.given[index] = self.seen.outside[index].grad.detach().clone()
            elif place in mark.terms:
                mark.given[index] = mark.terms[place]

    def kept(self) -> list[Tensor]:
        """Return the tensors from outside as they were when the step began."""
        found = []
        for tensor in self.begun:
            storage = self.undo.get(storage_id(tensor.untyped_storage()))
            with torch.no_grad():
                if storage is None:
                    found.append(tensor.detach().clone())
                    continue
                empty = torch.empty((), dtype=tensor.dtype, device=tensor.device)
                found.append(empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride()).clone())
        return found


def refuse_freed(what: str, tensor: Tensor | None) -> None:
    """Refuse a tensor whose storage was resized to less than it needs: its values cannot be kept."""
    if tensor is not None and not has_memory(tensor):
        raise CaptureError(f"the step frees the memory of {what}, or begins without it{place_of_script()}")


def is_sum(call: TapedCall) -> bool:
    """Whether a call accumulates into the gradient of a leaf."""
    plain = call.func is aten.add_.Tensor and len(call.args) == 2 and not call.kwargs
    return plain and call.sums and type(call.args[1]) is Placement


def holds(whole: Placement, part: Placement) -> bool:
    """Whether every element of a tensor is one of another."""
    if whole == part or whole.stride is None or part.stride is None:
        return whole == part
    begin, first = whole.offset * whole.dtype.itemsize, part.offset * part.dtype.itemsize
    return dense(whole) and begin <= first and spanned(part) <= spanned(whole)


def place_of_script() -> str:
    """Return the script's current line for a message."""
    return frames.place(frames.here({}))
