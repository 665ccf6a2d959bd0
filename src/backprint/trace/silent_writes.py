"""Writes that PyTorch does not know of: contents changed, and no operator wrote them (numpy, ctypes, a kernel).

Autograd does not see such a write, and neither does a capture: `_version` does not count it. A capture of such a
program differs from it, and `silent_write` runs the program once more to name the tensor and the line. Memory is known
by the id of its storage. `frames.place(frames.here({}))` is the user's line that runs now, as text for a message. A
CalledProgram is a callable with the named tensors of one call. A mode tells an Observer about each operator (`Call`)
before and after it runs; `call.kept` carries what an Observer knows before to after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.operators import OpOverload
from backprint._torch.tensors import storage_id
from backprint.errors import BackprintError, CaptureError, is_defect
from backprint.trace import frames
from backprint.trace.observe import Call, Observer, ObservingMode
from backprint.trace.program import CalledProgram
from backprint.trace.running import has_ordinary_memory, run_backward, staged
from backprint.trace.state.tensors import same_bytes, untraced
from backprint.trace.watch import SEED, facts_of, writes
from backprint.trace.witness import run_forward
from backprint.values.settings import preserving_random_states, seed_torch
from backprint.values.tree import plain_leaves

MOST_BYTES, SMALL_BYTES = 2**28, 2**22
"""The most bytes of which the content is remembered and compared, and the most that are compared at each operator, to
find the line of a write."""

ADVICE = (
    "Neither autograd nor a capture sees a write that no operator of PyTorch makes. Write with one (`copy_`), into a "
    "new tensor, or by a custom operator whose mutates_args names the argument"
)


def contents_of(args: Any, kwargs: Any) -> list[tuple[Tensor, torch.UntypedStorage]]:
    """Return the dense tensors among the arguments of an operator call, each with a copy of its storage as it is now,
    before the operator runs."""
    return [(tensor, tensor.untyped_storage().clone()) for tensor in tensors_in(args, kwargs)]


def refuse_silent_operator(func: Any, before: Sequence[tuple[Tensor, torch.UntypedStorage]]) -> None:
    """Refuse a custom operator that has written into an argument, although its schema does not name the argument as
    written. `before` are the `contents_of` its call."""
    for tensor, content in before:
        if not same_bytes(tensor.untyped_storage(), content):
            raise CaptureError(
                f"{func} writes into an argument of shape {list(tensor.shape)}{frames.place(frames.here({}))}, and its "
                f"schema does not say so: no version changed. {ADVICE}",
                every_engine=True,
            )


def tensors_in(*values: Any) -> Iterator[Tensor]:
    """Yield the strided tensors with ordinary memory (not fake, not on the meta device) among arguments."""
    for leaf in plain_leaves(*values):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and has_ordinary_memory(leaf):
            yield leaf


def silent_write(program: CalledProgram) -> str:
    """Return the tensor that the program writes to without PyTorch's knowledge, and where; '' if there is none, or if
    the program does not run again."""
    contents = _Contents()
    mode = ObservingMode(contents)
    try:
        with preserving_random_states(), staged(program) as stage:
            seed_torch(SEED)
            for name, tensor in stage.unwrapped.items():
                contents.remember(tensor, name)
            forward = run_forward(stage, lambda ready: mode)
            contents.compare_all("by the end of the forward")
            with mode:
                run_backward(program, stage.leaves, forward.tensors, tangents=None)
            contents.compare_all("by the end of the backward")
    except BackprintError:
        pass
    except Exception as error:  # the program may raise anything in another run
        if is_defect(error):
            raise
    return contents.text


class _Kept(NamedTuple):
    """The content of a storage: a tensor that keeps the storage alive, a copy, and the tensor's name for the
    message."""

    tensor: Tensor
    content: torch.UntypedStorage
    label: str


class _Contents(Observer):
    """Keeps a copy of the content of each tensor as the last operator has left it, and compares the tensor with it
    before the next operator.

    `text` says which tensor was written to silently, and where; '' if none was. `_kept` has the content of each
    storage by the storage's id, and `_bytes` counts the bytes of these copies.
    """

    def __init__(self) -> None:
        self.text = ""
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0

    def before(self, call: Call) -> None:
        """Compare the memory of the arguments, or all memory if it is little, with what the operators so far have
        left."""
        place = frames.place(frames.here({}))
        with untraced():
            tensors = list(tensors_in(call.args, call.kwargs))
            # Up to SMALL_BYTES, all contents are compared at each operator. Otherwise only the operator's own arguments
            # are, because it would take too long.
            if self._bytes <= SMALL_BYTES:
                self.compare_all(f"before {call.func} runs{place}")
            for tensor in tensors:
                self._compare(storage_id(tensor.untyped_storage()), f"before {call.func} runs{place}")
        call.kept[self] = tensors, place

    def after(self, call: Call, result: Any) -> None:
        """Compare the arguments of a custom operator that may write silently, and keep what the operator has
        written."""
        func, (tensors, place) = call.func, call.kept[self]
        with untraced():
            if facts_of(func).may_write_silently:
                for tensor in tensors:
                    self._compare(storage_id(tensor.untyped_storage()), f"while {func} runs{place}")
            # What an operator writes by its schema is no silent write: the new content replaces the copy. A
            # higher-order operator has no schema, and may have written to any of its arguments.
            is_written = not isinstance(func, OpOverload) or writes(func)
            for tensor in [*(tensors if is_written else ()), *tensors_in(result)]:
                self.remember(tensor, f"the result of {func}{place}")

    def remember(self, tensor: Tensor, label: str) -> None:
        """Keep a copy of the content of a tensor's memory as it is now. `label` is the tensor's name for the message,
        if its memory has none yet. The memory is kept alive, so that no other tensor is given it. New memory is left
        out once MOST_BYTES are kept."""
        if not has_ordinary_memory(tensor) or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        before = self._kept.get(storage_id(storage))
        if before is not None:
            label = before.label
        elif self._bytes + storage.nbytes() > MOST_BYTES:
            return
        else:
            self._bytes += storage.nbytes()
        self._kept[storage_id(storage)] = _Kept(tensor.detach(), storage.clone(), label)

    def compare_all(self, when: str) -> None:
        """Compare all memory with the copies of its content. `when` says in the message by when it has changed."""
        for key in self._kept:
            self._compare(key, when)

    def _compare(self, key: int, when: str) -> None:
        """Compare the memory of an id with the copy of its content. Note in `text` if it has changed, unless an earlier
        change was noted."""
        if self.text or key not in self._kept:
            return
        tensor, content, label = self._kept[key]
        storage = tensor.untyped_storage()
        # A storage of another size was resized, which is no write.
        if storage.nbytes() == content.nbytes() and not same_bytes(storage, content):
            self.text = f"{label} changed {when}, and no operator of PyTorch wrote to it"
