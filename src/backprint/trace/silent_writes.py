"""Writes that PyTorch does not know of: contents changed, and no operator wrote them (numpy, ctypes, a kernel).

Autograd does not see such a write, and neither does a capture: `_version` does not count it. A capture of such a
program differs from it, and `silent_write` runs the program once more to name the tensor and the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint._torch.modes import TorchDispatchMode
from backprint._torch.operators import OpOverload, schema_of
from backprint._torch.tensors import storage_id
from backprint.errors import BackprintError, CaptureError, for_program, is_defect
from backprint.trace import frames
from backprint.trace.custom import TORCH_NAMESPACES
from backprint.trace.program import CalledProgram
from backprint.trace.running import has_ordinary_memory, run_backward, staged
from backprint.trace.state.tensors import same_bytes, untraced
from backprint.trace.watch import SEED, writes
from backprint.trace.witness import run_forward
from backprint.values.settings import preserving_random_states, seed_torch
from backprint.values.tree import plain_leaves

MOST_BYTES, SMALL_BYTES = 2**28, 2**22
"""The most bytes that are compared at all, and the most that are compared at each operator, to find the line of a
write."""

ADVICE = (
    "Neither autograd nor a capture sees a write that no operator of PyTorch makes. Write with one (`copy_`), into a "
    "new tensor, or by a custom operator whose mutates_args names the argument"
)


def contents_before(func: Any, args: Any, kwargs: Any) -> list[tuple[Tensor, torch.UntypedStorage]]:
    """Return the contents of a custom operator's arguments, if its schema says that it writes to none."""
    if func.namespace in TORCH_NAMESPACES or not isinstance(func, OpOverload) or schema_of(func).is_mutable:
        return []
    return [(tensor, tensor.untyped_storage().clone()) for tensor in tensors_in(args, kwargs)]


def refuse_silent_operator(func: Any, before: Sequence[tuple[Tensor, torch.UntypedStorage]]) -> None:
    """Refuse a custom operator that has written into an argument that its schema does not name."""
    for tensor, content in before:
        if not same_bytes(tensor.untyped_storage(), content):
            raise CaptureError(
                f"{func} writes into an argument of shape {list(tensor.shape)}{frames.place(frames.here({}))}, and its "
                f"schema does not say so: no version changed. {ADVICE}",
                every_engine=True,
            )


def tensors_in(*values: Any) -> Iterator[Tensor]:
    """Yield the dense tensors with memory of their own among arguments."""
    for leaf in plain_leaves(*values):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and has_ordinary_memory(leaf):
            yield leaf


def silent_write(program: CalledProgram) -> str:
    """Return the tensor that the program writes to without PyTorch's knowledge, and where; '' if there is none, or if
    the program does not run again."""
    watch = Contents()
    try:
        with preserving_random_states(), staged(program) as stage:
            seed_torch(SEED)
            for name, tensor in stage.ready.items():
                watch.remember(tensor, name)
            forward = run_forward(stage, lambda ready: watch)
            watch.compare_all("by the end of the forward")
            with watch:
                run_backward(program, stage.leaves, forward.tensors, None)
            watch.compare_all("by the end of the backward")
    except BackprintError:
        pass
    except Exception as error:  # the program may raise anything in another run
        if is_defect(error):
            raise
    return watch.text


class Contents(TorchDispatchMode):
    """Keeps the content of each tensor as operators leave it, and compares it before the next operator."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, tuple[Tensor, torch.UntypedStorage, str]] = {}
        self.bytes = 0
        self.text = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        place = frames.place(frames.here({}))
        with untraced():
            tensors = list(tensors_in(args, kwargs))
            # With little memory, all of it is compared at each operator. Otherwise only the operator's own arguments
            # are.
            if self.bytes <= SMALL_BYTES:
                self.compare_all(f"before {func} runs{place}")
            for tensor in tensors:
                self.compare(storage_id(tensor.untyped_storage()), f"before {func} runs{place}")
        result = for_program(func, *args, **kwargs)
        with untraced():
            if isinstance(func, OpOverload) and func.namespace not in TORCH_NAMESPACES and not writes(func):
                for tensor in tensors:
                    self.compare(storage_id(tensor.untyped_storage()), f"while {func} runs{place}")
            # What an operator of PyTorch writes is known; the new content is kept.
            is_written = not isinstance(func, OpOverload) or writes(func)
            for tensor in [*(tensors if is_written else ()), *tensors_in(result)]:
                self.remember(tensor, f"the result of {func}{place}")
        return result

    def remember(self, tensor: Tensor, label: str) -> None:
        """Keep the content of a tensor's memory as it is now. The memory is kept too, so that no other tensor is given
        it."""
        if not has_ordinary_memory(tensor) or tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        before = self.kept.get(storage_id(storage))
        if before is None and self.bytes + storage.nbytes() > MOST_BYTES:
            return
        self.bytes += 0 if before is not None else storage.nbytes()
        label = label if before is None else before[2]
        self.kept[storage_id(storage)] = (tensor.detach(), storage.clone(), label)

    def compare_all(self, when: str) -> None:
        """Compare all contents."""
        for key in self.kept:
            self.compare(key, when)

    def compare(self, key: int, when: str) -> None:
        """Note the first memory whose content has changed since an operator wrote it."""
        if self.text or key not in self.kept:
            return
        tensor, content, label = self.kept[key]
        storage = tensor.untyped_storage()
        if storage.nbytes() == content.nbytes() and not same_bytes(storage, content):
            self.text = f"{label} changed {when}, and no operator of PyTorch wrote to it"
