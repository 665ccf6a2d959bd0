"""Collectives of a program: seen as operators that return their result, and answered without a process group.

`torch.distributed` has operators that write into their arguments. A mode replaces each by its form: a function that
calls operators that return their result (`form_of` in `_torch/distributed.py`). `Answered` is the mode in which a
function of ours answers a program's collectives: it returns what this rank receives for what it sends.

`PLAIN` are the classes of tensors that wrap no other. A mode returns NotImplemented for a call on wrappers (DTensors),
which then call operators on the tensors inside. `frames.place(frames.here({}))` is the user's line that runs now, as
text for a message. An error with `every_engine` says that no engine captures the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backprint._torch.distributed import (
    OF_OBJECTS,
    awaited,
    collective_name,
    form_of,
    in_a_run,
    is_collective,
    label_of,
    leaves_values_unread,
    members_of,
    own_rank,
    python_call,
    work_of,
)
from backprint._torch.modes import TorchDispatchMode
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError
from backprint.trace import frames
from backprint.trace.watch import overlap
from backprint.values.exchanges import Answer, Others, call_of
from backprint.values.tree import plain_leaves
from backprint.values.wrappers import PLAIN


@dataclass(slots=True)
class _Unwaited:
    """A collective that has been called, and for which the program has not waited: its name, the tensors that it fills
    (`received`), its line as text for a message, and the handle (`work`) that the program waits with."""

    name: str
    received: tuple[Tensor, ...]
    line: str
    work: Any = None


class Answered(TorchDispatchMode):
    """Answers the collectives of a program by a function; every other operator runs as it is. A program that reads a
    tensor which a collective fills, before it has waited for that collective, is refused.

    `answer` is called with a collective and the tensor that this rank sends, and returns the tensor that it receives.
    `label` returns the name of a process group in a graph. Without `objects`, collectives that exchange pickled objects
    are refused. `unwaited` are the collectives for which the program has not waited. `in_form` says that the operators
    that run now are those of a form, and not the program's.
    """

    def __init__(self, answer: Answer, label: Callable[[Any], str] = label_of, objects: bool = True) -> None:
        super().__init__()
        self.answer, self.label, self.objects = answer, label, objects
        self.unwaited: list[_Unwaited] = []
        self.in_form = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator. A collective is answered (`answered`); one that writes into its arguments runs as its form,
        whose collectives come here again. Any other operator of the program must not use what a collective is still to
        fill."""
        if not PLAIN.issuperset(types):
            return NotImplemented
        if (form := form_of(func)) is not None:
            # What Python's stack shows of the call: the functions of torch.distributed, and whether they return a
            # handle.
            call = python_call()
            if not self.objects and OF_OBJECTS.intersection(call.functions):
                raise CaptureError(
                    f"objects are exchanged{frames.place(frames.here({}))}, whose pickles are no values of a step: "
                    "exchange them before the step, in `shard`, or exchange tensors",
                    every_engine=True,
                )
            if collective_name(func) in BARRIERS and (wait := getattr(self.answer, "at_barrier", None)) is not None:
                wait(args[1])  # with its process group: ranks that run as threads of one process wait for each other
            # The form's own operators write the result into the arguments, before the program has waited for anything:
            # `check_waited` is for the program's operators only.
            self.in_form = True
            try:
                # Torch disables a mode while it handles a call. The form calls collectives that return their result,
                # and this mode is to answer them.
                with self:
                    result = form(*args, **(kwargs or {}))
            finally:
                self.in_form = False
            return self.until_waited(func, args, result) if call.gives_handle else result
        if is_collective(func):
            return self.answered(collective_name(func), args)
        if self.unwaited and not self.in_form:
            self.check_waited(func, args, kwargs)
        return func(*args, **(kwargs or {}))

    def until_waited(self, func: Any, args: Any, result: Any) -> Any:
        """Return the result of a collective that writes into its first argument, with a handle that calls `has_waited`
        when the program waits. Until then, the collective is in `unwaited`. A result without a handle is returned as it
        is, and so is that of a collective which changes nothing here."""
        work = work_of(result)
        received = tuple(leaf for leaf in plain_leaves(args[0]) if isinstance(leaf, Tensor)) if args else ()
        if work is None or not received or _is_source(func, args):
            return result
        collective = _Unwaited(collective_name(func), received, frames.place(frames.here({})))
        result, collective.work = awaited(result, work, lambda: self.has_waited(collective))
        self.unwaited.append(collective)
        return result

    def has_waited(self, collective: _Unwaited) -> None:
        """Forget a collective, because the program has waited for it."""
        self.unwaited = [other for other in self.unwaited if other is not collective]

    def check_waited(self, func: Any, args: Any, kwargs: Any) -> None:
        """Raise if an operator reads or writes a tensor that a collective fills for which the program has not
        waited."""
        if leaves_values_unread(func):  # it makes a view or a new tensor of the same shape, or it waits
            return
        for leaf in plain_leaves(args, kwargs or {}):
            if isinstance(leaf, Tensor) and (collective := self.receiving(leaf)) is not None:
                place = frames.place(frames.here({}))
                raise CaptureError(
                    f"{func}{place} uses what {collective.name}{collective.line} receives, and the program "
                    "has not waited for it: call wait() of what torch.distributed returned before",
                    every_engine=True,
                )

    def receiving(self, tensor: Tensor) -> _Unwaited | None:
        """Return a collective that is still to write into a tensor's memory; None if there is none."""
        if tensor.layout is not torch.strided or not tensor.numel():
            return None
        key = storage_id(tensor.untyped_storage())
        for collective in self.unwaited:
            for other in collective.received:
                if storage_id(other.untyped_storage()) == key and overlap(other, tensor):
                    return collective
        return None

    def answered(self, name: str, args: Any) -> Tensor:
        """Return the tensor that this rank receives from a collective, which the answering function computes. The first
        argument of a collective is the tensor that the rank sends."""
        return self.answer(call_of(name, args, self.label), args[0])


BARRIERS = ("barrier", "monitored_barrier_")
"""Collectives that move no value."""


def _is_source(func: Any, args: Any) -> bool:
    """Whether this rank is the source of a broadcast, whose tensor the broadcast does not change."""
    # The arguments of `broadcast_` are the tensors, the process group, and the source's index among its members.
    return collective_name(func) == "broadcast_" and members_of(args[1]).index(own_rank()[0]) == args[2]


class Functional(TorchDispatchMode):
    """Replaces collectives that write into their arguments by operators that return their result, which have rules for
    fake tensors. Every other operator runs as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; a collective that writes into its arguments as its form."""
        if not PLAIN.issuperset(types):
            return NotImplemented
        if (form := form_of(func)) is None:
            return func(*args, **(kwargs or {}))
        with self:  # torch disables a mode while it handles a call; the form's operators come here too
            return form(*args, **(kwargs or {}))


@contextlib.contextmanager
def answering(peers: Others | None) -> Iterator[None]:
    """Run a program in this block, one rank alone. Its `peers`, the other ranks as they were in an earlier run, answer
    its collectives. A program that has no peers (None) runs as it is."""
    if peers is None:
        yield
        return
    peers.begin()
    # `in_a_run` notes the process groups that the program makes: they belong to this run.
    with peers.place(), in_a_run(), Answered(peers, peers.label, objects=False):
        yield
