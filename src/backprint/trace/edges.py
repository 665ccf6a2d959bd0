"""Opaque edges of a run: where autograd of the plain forward would not give the program's gradient.

The plain forward is the recorded operators of the forward, without the program's own `no_grad` blocks, `detach`, hooks
and custom autograd Functions. Here are the edges of three kinds: operators that run with gradients off (`no_grad`),
updates through a detached tensor (`detach`), and custom autograd Functions (`function`). Memory is known by the id of
its storage. `frames.here(paths)` returns the user's line that runs now. Observations (`seen`) are what is noted of a
run, and a FakeWorld is the FakeTensorMode of a run without values.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from backprint._torch.autograd import function_class
from backprint._torch.operators import schema_of
from backprint._torch.tensors import storage_id
from backprint.graph.nouns import OpaqueEdge
from backprint.trace import frames
from backprint.trace.fake import FakeWorld
from backprint.trace.watch import Observations, requires_grad_of, writes, written_tensors
from backprint.values.wrappers import Around

DETACH = torch.ops.aten.detach.default


def _text_of_hidden_update(func: Any) -> str:
    """Return the message for an operator that updates a tensor that requires grad with gradients off: what that means,
    and what to do."""
    function = UPDATES_OF_TORCH.get(str(func))
    whose = f"PyTorch's own {function} does this on purpose; " if function else ""
    return (
        f"{func} updates a tensor that requires grad, with gradients off: no gradient flows through the update, in the "
        f"program as in the capture ({whose}in your own code, compute a new tensor with gradients on if one should)"
    )


UPDATES_OF_TORCH = {"aten.clamp_min_.Tensor": "torch.nn.functional.cosine_similarity"}
"""Operators with which functions of PyTorch update a tensor that requires grad, with gradients off."""


class OpaqueEdges:
    """Notes the opaque edges of a run, and what is needed to find them.

    The edges are added to `seen.opaque`. `paths` has the path of each module, by id. `world` is the FakeWorld of a run
    without values. The edges of `no_grad` mode are left out if `without_grad` is false: a recorder of training scripts
    finds edges from the nodes behind each loss.

    `_memory_requiring_grad` has the storages that a tensor which requires grad has used. `_hidden_updates` has the edge
    of each storage that was updated in `no_grad` mode and was not used since. `_lines_below` has, by the code of a
    function, the lines of the user at which operators ran while that function was running.
    """

    def __init__(
        self,
        seen: Observations,
        paths: Mapping[int, str],
        world: FakeWorld | None = None,
        without_grad: bool = True,
    ) -> None:
        """Edges are added to `seen.opaque`. `paths` has the path of each module, by id; the edges of `no_grad` mode are
        left out if `without_grad` is false."""
        self._seen, self._paths, self._world, self._without_grad = seen, paths, world, without_grad
        self._memory_requiring_grad: set[int] = set()
        self._hidden_updates: dict[int, OpaqueEdge] = {}
        self._lines_below: dict[CodeType, set[str]] = {}

    def note_edges_without_grad(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note the opaque edges of a call in `no_grad` mode. `tensors` are the tensors among its arguments.

        An update there of a tensor that requires grad is opaque only if a recorded call uses that memory afterwards:
        optimizers update parameters in this way after their last use.
        """
        if not self._without_grad:
            return
        self._note_line_of_functions()
        requiring_grad = [tensor for tensor in tensors if requires_grad_of(tensor)]
        self._memory_requiring_grad |= {
            storage_id(tensor.untyped_storage()) for tensor in requiring_grad if tensor.layout is torch.strided
        }
        if schema_of(func).is_mutable:
            for key in self._memory_requiring_grad_of(written_tensors(func, args, kwargs)):
                self._hidden_updates[key] = OpaqueEdge(
                    "no_grad", _text_of_hidden_update(func), frames.here(self._paths)
                )
        # `detach` computes nothing. One edge of this kind is enough: none is added where any edge is known already.
        elif func is not DETACH and not self._seen.opaque and requiring_grad and not self._is_inside_wrapper():
            where = frames.here(self._paths)
            self._seen.opaque.append(OpaqueEdge("no_grad", f"{func} runs with gradients off", where))

    def _is_inside_wrapper(self) -> bool:
        """Whether an autograd Function that wraps a tensor (in a DTensor) or opens such a wrapper runs its forward now,
        in a run without values. The program takes and returns the tensors inside of wrappers there, so wrapping and
        opening them is no operation of its own. The innermost function named `forward` decides."""
        frame: FrameType | None = sys._getframe(1) if self._world is not None else None
        while frame is not None and frame.f_code.co_name != "forward":
            frame = frame.f_back
        return frame is not None and _is_module_of_wrappers(frame.f_globals.get("__name__", ""))

    def _note_line_of_functions(self) -> None:
        """Note the line of a call for the code of every frame below which it runs. Some of that code is the forward or
        the backward of a custom autograd Function, whatever its name is."""
        where, frame = frames.here(self._paths), sys._getframe(1).f_back
        line = "" if where is None else f"{where.file}:{where.line}"
        while line and frame is not None:
            self._lines_below.setdefault(frame.f_code, set()).add(line)
            frame = frame.f_back

    def note_edges_of_recorded_call(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note the opaque edges of a call that autograd records. `tensors` are the tensors among its arguments."""
        for tensor in tensors:
            if tensor.layout is torch.strided:
                self.is_detached(func, tensor)  # for what it notes
        if writes(func):
            self.note_update_of_detached(func, args, kwargs)

    def is_detached(self, func: Any, tensor: Tensor) -> bool:
        """Whether an argument of a call does not require grad, and shares its memory with a tensor that does. Notes, of
        an argument that requires grad, its memory, and an edge if that memory had a hidden update."""
        key = storage_id(tensor.untyped_storage())
        if not tensor.requires_grad:
            return key in self._memory_requiring_grad
        self._memory_requiring_grad.add(key)
        if func is not DETACH:
            self._note_use_after_hidden_update(key)
        return False

    def _note_use_after_hidden_update(self, key: int) -> None:
        """Note an opaque edge for memory that a recorded call or an output uses, if that memory was updated in
        `no_grad` mode before. `key` is the id of its storage."""
        if self._hidden_updates and (edge := self._hidden_updates.pop(key, None)):
            self._seen.opaque.append(edge)

    def note_update_of_detached(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note an update of a detached tensor that changes a tensor that requires grad, unseen by autograd."""
        if self._memory_requiring_grad_of(
            [tensor for tensor in written_tensors(func, args, kwargs) if not tensor.requires_grad]
        ):
            text = f"{func} updates a detached tensor, which autograd does not see"
            self._seen.opaque.append(OpaqueEdge("detach", text, frames.here(self._paths)))

    def _memory_requiring_grad_of(self, tensors: list[Tensor]) -> set[int]:
        """Return the ids of the storages of these tensors that a tensor which requires grad has used too."""
        return {
            storage_id(tensor.untyped_storage()) for tensor in tensors if tensor.layout is torch.strided
        } & self._memory_requiring_grad

    def note_edges_behind_outputs(self, outputs: Mapping[str, Tensor]) -> list[Any]:
        """Note the custom autograd Functions in the autograd graph of the outputs as opaque edges. Return the nodes
        that wrap or open tensors (`_is_of_wrapper`), which are no opaque edges."""
        wrapper_nodes = []
        for tensor in outputs.values():
            if tensor.requires_grad and tensor.layout is torch.strided:
                self._note_use_after_hidden_update(storage_id(tensor.untyped_storage()))
        queue = [tensor.grad_fn for tensor in outputs.values() if tensor.grad_fn is not None]
        visited = set()
        while queue:
            node = queue.pop()
            if node in visited:
                continue
            visited.add(node)
            queue += [following for following, _ in node.next_functions if following is not None]
            # The Function of a reentrant checkpoint.
            self._seen.reentrant |= node.name() == "CheckpointFunctionBackward"
            # The class of the nodes of custom Functions.
            if not isinstance(node, torch.autograd.function.BackwardCFunction):
                continue
            if self._is_of_wrapper(node):
                wrapper_nodes.append(node)
            else:
                self._seen.opaque.append(self._edge_of_function(node))
        return wrapper_nodes

    def _is_of_wrapper(self, node: Any) -> bool:
        """Whether an autograd node wraps a tensor in a DTensor or opens one, or redistributes a DTensor, in a run
        without values. Such Functions have operators for a backward, which are captured."""
        return self._world is not None and _is_module_of_wrappers(str(function_class(node).__module__))

    def _edge_of_function(self, node: Any) -> OpaqueEdge:
        """Return the opaque edge of a custom autograd.Function, by the node of one call of it: with the line of its
        backward, and the lines at which it calls operators."""
        function = function_class(node)
        forward, backward = (getattr(function, name, None) for name in ("forward", "backward"))
        # `custom_fwd` and the like wrap them.
        forward, backward = forward and inspect.unwrap(forward), backward and inspect.unwrap(backward)
        codes = [code for method in (forward, backward) if (code := getattr(method, "__code__", None)) is not None]
        lines = set[str]().union(*(self._lines_below.get(code, ()) for code in codes))
        source = frames.line_of_definition(backward)
        return OpaqueEdge("function", f"{node.name()} is a custom autograd.Function", source, tuple(sorted(lines)))


def _is_module_of_wrappers(module: str) -> bool:
    """Whether the autograd Functions of a Python module wrap or open tensors, or redistribute a DTensor: they are ours
    (`Around`), or those of torch.distributed."""
    return module == Around.__module__ or module.startswith("torch.distributed.")
