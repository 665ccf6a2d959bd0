"""Tensors from outside (external tensors): those in memory that neither the program's own tensors use nor the run has
made. The program's own tensors are its parameters, its buffers and its arguments.

A closure, a global or a plain attribute holds tensors from outside. If the program writes to one, its bytes are
restored. Memory is known by the id of its storage. `storages(tensor)` are the storages of a tensor's elements; a sparse
tensor has several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.autograd import set_version_counters
from backprint._torch.tensors import base_of, is_view, storage_id, version_of
from backprint.errors import CaptureError
from backprint.trace import frames
from backprint.trace.fake import FakeWorld
from backprint.trace.state.restore import is_copied
from backprint.trace.state.tensors import restore_bytes
from backprint.trace.watch import FLAGS_CHANGED_BY_PROGRAMS, Observations, bytes_used, requires_grad_of, storages
from backprint.values.memory import has_memory
from backprint.values.tree import FLAGS


class _GradBefore(NamedTuple):
    """The `.grad` of a leaf when it was first seen, and a copy of the content of that gradient, if it had one with
    values."""

    leaf: Tensor
    gradient: Tensor | None
    content: Tensor | None


class ExternalTensors:
    """The tensors from outside that a run has used, and the caller's memory, which is restored after it.

    `callers` has the caller's storages, by id: those of the program's own tensors, and of tensors from outside.
    `content_before` has the content, before the first write, of each of them that the run writes to, and `spans` the
    range of bytes in each that known tensors use. The observer that enters tensors here (a WarmUp or a Recorder) knows
    which memory the run has made.

    What is noted for others goes into `seen` (Observations). `paths` has the path of each module by its id, for lines
    in messages, and `world` is the FakeWorld of a run without values. `_ids` has the ids of the tensors from outside,
    `_stand_ins` the fake tensor for each of them, by id, in a run without values, and `_versions` the version of each
    before the run. `_grads` has the `.grad` of each leaf among them.
    """

    def __init__(self, seen: Observations, paths: Mapping[int, str], world: FakeWorld | None = None) -> None:
        """What is noted for others goes into `seen`. `paths` has the path of each module, by id, and `world` is the
        FakeWorld of a run without values."""
        self.callers: dict[int, Any] = {}
        self.content_before: dict[int, Any] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        self._seen, self._paths, self._world = seen, paths, world
        self._ids: set[int] = set()
        self._stand_ins: dict[int, Tensor] = {}
        self._versions: list[tuple[Tensor, int]] = []
        self._grads: list[_GradBefore] = []

    # ---- The program's own tensors

    def add_own(self, named: Mapping[str, Tensor], callers: Collection[str]) -> None:
        """Add the program's own tensors by name; those whose names are in `callers` use the caller's own memory."""
        self._seen.names_by_id = {id(tensor): name for name, tensor in named.items()}
        memory = self._seen.memory  # the names of the program's own tensors in each storage, by its id
        for name, tensor in named.items():
            for storage in storages(tensor):
                memory[storage_id(storage)] = (*memory.get(storage_id(storage), ()), name)
            # FLAGS has the function that reads each flag. An inference tensor has no version, which is one of them.
            if not tensor.is_inference():
                self._seen.flags_before |= {(name, key): FLAGS[key](tensor) for key in FLAGS_CHANGED_BY_PROGRAMS}
            if name in callers:
                self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
                self.add_span(tensor)

    def add_span(self, tensor: Tensor) -> None:
        """Add the part of the caller's memory that a tensor uses to the part that is known (`spans`): the smallest
        range of bytes that has both."""
        if tensor.layout is torch.strided and (key := storage_id(tensor.untyped_storage())) in self.callers:
            low, high = bytes_used(tensor)
            known = self.spans.get(key, (low, high))
            self.spans[key] = min(low, known[0]), max(high, known[1])

    def is_outside_span(self, tensor: Tensor) -> bool:
        """Whether a tensor uses more of a storage of the caller's than is known (`spans`). Then it is a tensor from
        outside, although its storage is known: an argument may be a view of a tensor that the program reads from
        outside.
        """
        if tensor.layout is not torch.strided or (key := storage_id(tensor.untyped_storage())) not in self.spans:
            return False
        low, high = bytes_used(tensor)
        known_low, known_high = self.spans[key]
        return low < high and (low < known_low or high > known_high)

    # ---- Tensors from outside

    def refuse(self, tensor: Tensor) -> None:
        """Refuse a tensor from outside if its class is a subclass that cannot be observed, if its storage is freed, or
        if it was made in inference mode."""
        if self._world is None and type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            place = frames.place(frames.here(self._paths))
            raise CaptureError(f"the program works on a {type(tensor).__name__}{place}, which tracing cannot watch")
        if not has_memory(tensor):
            place = frames.place(frames.here(self._paths))
            raise CaptureError(
                f"the program begins with a tensor of shape {list(tensor.shape)}{place} "
                "whose storage was resized to less than its elements need, so it has no values: restore them first",
                every_engine=True,
            )
        if tensor.is_inference():
            place = frames.place(frames.here(self._paths))
            raise CaptureError(
                f"the program reads a tensor of shape {list(tensor.shape)}{place} that was made in inference mode, "
                "so autograd cannot follow it: make it outside, or clone it first",
                every_engine=True,
            )

    def enter(self, tensor: Tensor) -> str:
        """Enter a tensor from outside, as it is before the run changes it. Return its name for the time of the run,
        `outside N`; it has no other yet."""
        self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
        self.add_span(tensor)
        self._seen.external_tensors.append(tensor)
        self._seen.requires_grad_before[id(tensor)] = requires_grad_of(tensor)
        self._ids.add(id(tensor))
        self._versions.append((tensor, version_of(tensor)))
        if tensor.is_leaf:
            # Without values, there is no content to restore.
            not_copied = tensor.grad is None or self._world is not None
            self._grads.append(_GradBefore(tensor, tensor.grad, None if not_copied else tensor.grad.clone()))
        return f"outside {len(self._seen.external_tensors) - 1}"

    def keep_content(self, key: int) -> None:
        """Copy a storage, by its id, before the first write to it, if it is the caller's. Without values there is
        nothing to restore."""
        if key in self.callers and key not in self.content_before and self._world is None:
            self.content_before[key] = self.callers[key].clone()

    def with_stand_ins(self, args: Any, kwargs: Any, made: Callable[[Tensor, Tensor], None]) -> tuple[Any, Any]:
        """Return the arguments and keyword arguments of a call, in a run without values with fake tensors in the place
        of real ones from outside.

        `made` is called with each new fake tensor, and the real one.
        """

        def stand_in(tensor: Tensor) -> Tensor:
            """Return the fake tensor for one from outside, which is made once; any other tensor itself."""
            key = id(tensor)
            if key not in self._stand_ins and key in self._ids:
                assert self._world is not None
                self._stand_ins[key] = self._world.stand_in(tensor)
                # A tensor from outside that is fake already stands for itself.
                if self._stand_ins[key] is not tensor:
                    made(self._stand_ins[key], tensor)
            return self._stand_ins.get(key, tensor)

        if self._world is None or not self._ids:
            return args, kwargs
        replaced: tuple[Any, Any] = pytree.tree_map_only(Tensor, stand_in, (args, kwargs))
        return replaced

    def had_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor from outside still has the `.grad` that it had when it was first seen."""
        return any(
            seen_tensor is tensor and tensor.is_leaf and gradient is tensor.grad
            for seen_tensor, gradient, _ in self._grads
        )

    # ---- After the run

    def note_written(self) -> None:
        """Note which tensors from outside the run has written to."""
        self._seen.written = {id(tensor) for tensor, version in self._versions if version_of(tensor) != version}

    def restore(self) -> None:
        """Restore the caller's memory that the run wrote to, and the gradients of tensors from outside."""
        for key, content in self.content_before.items():
            # A Snapshot that has the content of a storage, as it was before the run, restores it itself.
            if not is_copied(key):
                restore_bytes(self.callers[key], content)
        for tensor, version in self._versions:
            set_version_counters((tensor,), (version,))
        for tensor in self._seen.external_tensors:
            # An update in place has tied it to the autograd graph of the run.
            if not self._seen.requires_grad_before.get(id(tensor), True) and requires_grad_of(tensor):
                # `detach_` refuses a view, so its base is detached.
                (base_of(tensor) if is_view(tensor) else tensor).detach_()
        for tensor, gradient, content in self._grads:
            tensor.grad = gradient
            # Into the gradient's own memory, which others may share; a sparse gradient gets other memory.
            if gradient is not None and content is not None and gradient.layout is torch.strided:
                gradient.data.copy_(content)
            elif gradient is not None and content is not None:
                gradient.data = content
