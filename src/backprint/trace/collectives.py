"""Collectives of a program: seen as operators that return their result, and answered without a process group.

`torch.distributed` has operators that write into their arguments. A mode replaces each by its form: a function that
calls operators that return their result (`form_of` in `_torch/distributed.py`). `Answered` is the mode in which a
function of ours answers a program's collectives: it returns what this rank receives for what it sends.
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
    """A collective that has been called, and for which the program has not waited: its name, the tensors that it fills,
    its line as text for a message, and the handle (`work`) that the program waits with."""

    name: str
    received: tuple[Tensor, ...]
    line: str
    work: Any = None


class Answered(TorchDispatchMode):
    """Answers the collectives of a program by a function; every other operator runs as it is. A program that reads a
    tensor which a collective fills, before it has waited for that collective, is refused.

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
        if not PLAIN.issuperset(types):
            return NotImplemented
        if (form := form_of(func)) is not None:
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
        """Return the result of a collective in place, with a handle that tells `has_waited` when the program waits."""
        work = work_of(result)
        received = tuple(leaf for leaf in plain_leaves(args[0]) if isinstance(leaf, Tensor)) if args else ()
        if work is None or not received or _is_source(func, args):
            return result
        row = _Unwaited(collective_name(func), received, frames.place(frames.here({})))
        result, row.work = awaited(result, work, lambda: self.has_waited(row))
        self.unwaited.append(row)
        return result

    def has_waited(self, row: _Unwaited) -> None:
        """Forget a collective, because the program has waited for it."""
        self.unwaited = [other for other in self.unwaited if other is not row]

    def check_waited(self, func: Any, args: Any, kwargs: Any) -> None:
        """Raise if an operator reads or writes a tensor that a collective fills for which the program has not
        waited."""
        if leaves_values_unread(func):
            return
        for leaf in plain_leaves(args, kwargs or {}):
            if isinstance(leaf, Tensor) and (row := self.receiving(leaf)) is not None:
                raise CaptureError(
                    f"{func}{frames.place(frames.here({}))} uses what {row.name}{row.line} receives, and the program "
                    "has not waited for it: call wait() of what torch.distributed returned before",
                    every_engine=True,
                )

    def receiving(self, tensor: Tensor) -> _Unwaited | None:
        """Return a collective that is still to write into a tensor's memory."""
        if tensor.layout is not torch.strided or not tensor.numel():
            return None
        key = storage_id(tensor.untyped_storage())
        for row in self.unwaited:
            for other in row.received:
                if storage_id(other.untyped_storage()) == key and overlap(other, tensor):
                    return row
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
    with peers.place(), in_a_run(), Answered(peers, peers.label, objects=False):
        yield
