"""A dispatch mode that watches one run: external tensors, tensors that it changes, and values that it reads.

A tensor whose memory was not made during the run comes from outside (a closure, a global, a plain attribute). If the
program writes to it, its bytes are restored. `non_operator_effects` sees everything that is no operator.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch import pytree
from backprint._torch.autograd import current_node, function_class, set_version_counters
from backprint._torch.distributed import form_of
from backprint._torch.fake import FakeTensor, UnsupportedOperatorException, device_of_fake
from backprint._torch.modes import DisableTorchFunction, TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint._torch.tensors import base_of, is_view, storage_id, version_of
from backprint.errors import CaptureError, DataDependentError, for_program
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.trace import frames
from backprint.trace.custom import decompose_under_mode, is_composite
from backprint.trace.fake import UNKNOWN_VALUES, FakeWorld
from backprint.trace.program import SPARSE
from backprint.trace.state.restore import is_copied
from backprint.trace.state.tensors import restore_bytes
from backprint.values.memory import has_memory
from backprint.values.tree import FLAGS, plain_leaves, strided_parts
from backprint.values.wrappers import Around, is_wrapper_class

# ---- Facts about operators

RANDOM = "the random seed"
"""The name under which a guard depends on a random draw."""

SEED = 0
"""The seed of every run while a program is captured and proved: guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics, although neither their schema nor the tensors' version says so."""

CHECK = torch.ops.aten._linalg_check_errors.default
"""The operator that raises if a decomposition failed."""

CHECKS = frozenset({CHECK, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
"""Operators without a result that raise if a value is not as expected."""

SIZED = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.masked_select.default: 1,
    torch.ops.aten._ctc_loss.Tensor: 3,
}
"""Operators whose result has a size that depends on one argument only: a mask, or lengths."""


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator's result, or its error, depends on more than its arguments' shapes."""
    return func in CHECKS or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def writes(func: Any) -> bool:
    """Whether an operator changes an argument in place."""
    return bool(schema_of(func).is_mutable or schema_of(func).name in SILENT_WRITERS)


@functools.cache
def _written_argument_positions(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to, by its schema."""
    arguments = enumerate(schema_of(func).arguments)
    return tuple(
        (position, argument.name)
        for position, argument in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _written_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among a call's arguments that it writes to."""
    arguments = [
        args[place] if place < len(args) else kwargs.get(name) for place, name in _written_argument_positions(func)
    ]
    return [leaf for leaf in plain_leaves(arguments) if isinstance(leaf, Tensor)]


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: modes see the number itself."""
    return func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], Tensor)


def count_writes(func: Any, args: Any) -> None:
    """Increment the versions of tensors that a `_foreach_` operator writes; torch does not below a mode.

    Views of these tensors are new autograd nodes from then on, so gradients depend on it.
    """
    if schema_of(func).is_mutable and schema_of(func).name.startswith("aten::_foreach_"):
        torch.autograd.graph.increment_version(args[0])


# ---- The observations of a run

FLAGS_CHANGED_BY_PROGRAMS = ("has a gradient", "version")
"""Flags that a program itself may change: a guard is about their value before the run."""


DETACH, DEVICE = torch.ops.aten.detach.default, torch.ops.prim.device.default


def _text_of_hidden_update(func: Any) -> str:
    """Return the message for an operator that updates a tensor that requires grad with gradients off: what that means,
    and what to do."""
    function = UPDATES_OF_TORCH.get(str(func))
    own = f"PyTorch's own {function} does this on purpose; " if function else ""
    return (
        f"{func} updates a tensor that requires grad, with gradients off: no gradient flows through the update, in the "
        f"program as in the capture ({own}in your own code, compute a new tensor with gradients on if one should)"
    )


UPDATES_OF_TORCH = {"aten.clamp_min_.Tensor": "torch.nn.functional.cosine_similarity"}
"""Operators with which functions of PyTorch update a tensor that requires grad, with gradients off."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where the program read values: an operator whose result's value or size does not follow from shapes."""

    operator: str
    source: Source | None
    inputs: tuple[str, ...]
    result: Any


@dataclass(slots=True)
class Observations:
    """The observations of a watched run.

    `outside` are external tensors, `requires_grad_before` their flags by identity, and `written` the identities of the
    external tensors that the run wrote to. `readings` are reads of values by operators, `reads_without_operator` other
    reads, by function and line. `threads`, `assigned` and `packs` are the lines that start a thread, assign to `.data`
    and hook saved tensors. `accumulates` says that autograd accumulated into a leaf, `reentrant` that a reentrant
    checkpoint runs, and `nodes` that the program reads `grad_fn`. `raised` are operators that raised, and `opened`
    higher-order operators whose bodies were recorded. `flags` are the tensor flags that the user's code has read, with
    their values. `names_by_id` and `memory` have the names of the program's tensors by identity and by storage, and
    `flags_before` the flags that the run may change.
    """

    outside: list[Tensor] = field(default_factory=list)
    requires_grad_before: dict[int, bool] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    threads: list[Source | None] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    opaque: list[OpaqueEdge] = field(default_factory=list)
    reads_without_operator: list[tuple[str, Source | None]] = field(default_factory=list)
    assigned: list[Source | None] = field(default_factory=list)
    accumulates: bool = False
    reentrant: bool = False
    casts: int = 0
    packs: list[Source | None] = field(default_factory=list)
    checkpoints: bool = False
    nodes: bool = False
    raised: list[tuple[str, Source | None]] = field(default_factory=list)
    opened: list[tuple[str, Source | None]] = field(default_factory=list)
    names_by_id: dict[int, str] = field(default_factory=dict)
    memory: dict[int, tuple[str, ...]] = field(default_factory=dict)
    flags: dict[tuple[str, str], tuple[Any, Source | None]] = field(default_factory=dict)
    flags_before: dict[tuple[str, str], Any] = field(default_factory=dict)


# ---- The mode


class Watch(TorchDispatchMode):
    """Sees every operator of a run. A higher-order operator is one call: its body runs unseen."""

    supports_higher_order_operators = True

    def ignore_compile_internals(self) -> bool:
        """Whether Dynamo, which runs higher-order operators in eager mode, may run: if nothing of the user's is
        compiled."""
        return self.lets_dynamo_in

    def __init__(self, paths: Mapping[int, str], lets_dynamo_in: bool = True, world: FakeWorld | None = None) -> None:
        self.lets_dynamo_in = lets_dynamo_in
        super().__init__()
        self.seen = Observations()
        self.world = world
        self.stand_ins: dict[int, Tensor] = {}
        self.outside_ids: set[int] = set()
        self.paths = paths
        self.dependencies: dict[int, frozenset[str]] = {}
        # Weak references keep a storage's identity from being given to a new storage; they do not keep its bytes.
        self.alive: list[StorageWeakRef] = []
        self.callers: dict[int, Any] = {}
        self.content_before: dict[int, Any] = {}
        self.versions: list[tuple[Tensor, int]] = []
        self.grads: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
        self.spans: dict[int, tuple[int, int]] = {}
        self.memory_requiring_grad: set[int] = set()
        self.hidden_updates: dict[int, OpaqueEdge] = {}
        self.lines_below: dict[CodeType, set[str]] = {}

    def register_tensors(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Watch:
        """Register the program's own tensors; those in `callers` use the caller's own memory."""
        self.seen.names_by_id = {id(tensor): name for name, tensor in named.items()}
        for name, tensor in named.items():
            for storage in storages(tensor):
                self.seen.memory[storage_id(storage)] = (*self.seen.memory.get(storage_id(storage), ()), name)
        for name, tensor in named.items():
            self.set_dependencies(tensor, frozenset((name,)))
            if not tensor.is_inference():
                self.seen.flags_before |= {(name, key): FLAGS[key](tensor) for key in FLAGS_CHANGED_BY_PROGRAMS}
            if name in callers:
                self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
                self.add_span(tensor)
        return self

    def add_span(self, tensor: Tensor) -> None:
        """Add the part of the caller's memory that a tensor uses to the part that is known as the program's."""
        if tensor.layout is torch.strided and (key := storage_id(tensor.untyped_storage())) in self.callers:
            low, high = _bytes_used(tensor)
            known = self.spans.get(key, (low, high))
            self.spans[key] = min(low, known[0]), max(high, known[1])

    def is_outside_span(self, tensor: Tensor) -> bool:
        """Whether a tensor uses more of the caller's memory than is known as the program's.

        An argument may be a view of a tensor that the program reads from outside.
        """
        if tensor.layout is not torch.strided or (key := storage_id(tensor.untyped_storage())) not in self.spans:
            return False
        low, high = _bytes_used(tensor)
        return low < high and (low < self.spans[key][0] or high > self.spans[key][1])

    def set_dependencies(self, tensor: Tensor, names: frozenset[str]) -> None:
        """Remember a tensor's memory, and the inputs that it depends on."""
        storage = tensor.untyped_storage()
        self.alive.append(StorageWeakRef(storage))
        self.dependencies[storage_id(storage)] = self.dependencies.get(storage_id(storage), frozenset()) | names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.world is not None and any(map(is_wrapper_class, types)):
            return NotImplemented  # a wrapper, which calls operators on the tensor inside
        if self.world is not None and (form := form_of(func)) is not None:
            with self, torch.no_grad():  # autograd knows nothing of it, in the program as here
                return form(*args, **kwargs)
        if func.namespace == "prim" and self.is_own_fake_tensor(args):
            # torch reads an attribute of a fake tensor, such as its device: half of all calls of a fake run
            if func is DEVICE:
                return device_of_fake(args[0])
            if torch.is_grad_enabled():
                return for_program(func, *args, **kwargs)
        if is_number_read(func, args):
            return args[0]
        if is_composite(func, args, kwargs):
            return decompose_under_mode(self, func, args, kwargs)
        # Tensors that are no values of the program: torch computes shapes with them.
        tensors = [leaf for leaf in plain_leaves(args, kwargs) if isinstance(leaf, Tensor)]
        if self.world is None and any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors):
            # a higher-order operator computes shapes, no value of the program
            return for_program(func, *args, **kwargs)
        if self.world is not None and any(_is_foreign_fake(tensor, self.world) for tensor in tensors):
            return for_program(func, *args, **kwargs)  # a DTensor computes the shape of a result
        # From here on it is a call of the program.
        names = self.dependencies_of(func, tensors)
        if isinstance(func, HigherOrderOperator):
            return self.set_result_dependencies(for_program(func, *args, **kwargs), names)
        if torch.Tag.nondeterministic_seeded in func.tags:
            names |= {RANDOM}
        self.note_call(func, args, kwargs, tensors)
        if self.world is not None and any(id(tensor) in self.outside_ids for tensor in tensors):
            args, kwargs = pytree.tree_map_only(Tensor, self.stand_in, (args, kwargs))
        result = self.run_operator(func, args, kwargs, names)
        count_writes(func, args)
        self.note_result(func, result, names)
        if reads_values(func):
            self.note_reading(func, args, result, names)
        return result

    def is_own_fake_tensor(self, args: Any) -> bool:
        """Whether the first argument is a fake tensor that this run has made."""
        return (
            bool(args)
            and isinstance(args[0], FakeTensor)
            and id(args[0]) not in self.outside_ids
            and _is_strided(args[0])
            and storage_id(args[0].untyped_storage()) in self.dependencies
        )

    def dependencies_of(self, func: Any, tensors: list[Tensor]) -> frozenset[str]:
        """Return the names of the inputs that an operator's tensors depend on; enter those of unknown memory."""
        for tensor in tensors:
            if tensor.layout in SPARSE:
                raise CaptureError(self.describe_sparse_refusal(func, tensor, "takes"))
            if not _is_strided(tensor):
                continue  # a jagged one is refused where it is made: raising while torch reads its size would abort
            self.enter_outside_tensor(func, tensor, not isinstance(func, HigherOrderOperator) and writes(func))
        memories = (storage_id(tensor.untyped_storage()) for tensor in tensors if _is_strided(tensor))
        return frozenset().union(*(self.dependencies[memory] for memory in memories))

    def note_call(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note opaque edges, casts of leaves, and gradients that autograd accumulates on leaves."""
        with DisableTorchFunction():
            if not torch.is_grad_enabled():
                self.note_edges_without_grad(func, args, kwargs, tensors)
            elif current_node() is None:
                self.note_edges_of_recorded_call(func, args, kwargs, tensors)
        self.seen.casts += func is torch.ops.aten._to_copy.default and tensors[0].is_leaf and tensors[0].requires_grad
        node = current_node()
        accumulates = node is not None and node.name() == "torch::autograd::AccumulateGrad"
        self.seen.accumulates |= accumulates and func.namespace != "prim"  # autograd reads a fake tensor's device there

    def run_operator(self, func: Any, args: Any, kwargs: Any, names: frozenset[str]) -> Any:
        """Run an operator; replace the error of one that needs values by a message with the line."""
        try:
            return for_program(func, *args, **kwargs)
        except UNKNOWN_VALUES as error:
            where = frames.here(self.paths)
            raise DataDependentError(
                describe_reading_without_values(Reading(str(func), where, tuple(sorted(names)), None))
            ) from error
        except UnsupportedOperatorException as error:
            place = frames.place(frames.here(self.paths))
            raise CaptureError(
                f"{func} has no fake kernel{place}, so it cannot run without values: "
                "register one with torch.library.register_fake, or capture without fake=True"
            ) from error
        except RuntimeError:
            self.seen.raised.append((str(func), frames.here(self.paths)))
            raise

    def note_result(self, func: Any, result: Any, names: frozenset[str]) -> None:
        """Note that an operator's results depend on its arguments."""
        for leaf in plain_leaves(result):
            refuse_nested(func, leaf, self.paths)
            if isinstance(leaf, Tensor) and _is_strided(leaf):
                self.set_dependencies(leaf, names)
                self.add_span(leaf)
            elif isinstance(leaf, Tensor):
                raise CaptureError(self.describe_sparse_refusal(func, leaf, "returns"))

    def note_reading(self, func: Any, args: Any, result: Any, names: frozenset[str]) -> None:
        """Note that the program reads values; a size depends only on the arguments that determine it."""
        if func in SIZED:
            sizing = [leaf for leaf in plain_leaves(args[SIZED[func]]) if isinstance(leaf, Tensor)]
            names = frozenset().union(*(self.dependencies[storage_id(tensor.untyped_storage())] for tensor in sizing))
        self.seen.readings.append(Reading(str(func), frames.here(self.paths), tuple(sorted(names)), result))

    def set_result_dependencies(self, result: Any, names: frozenset[str]) -> Any:
        """Note that the tensors in an operator's result depend on these names."""
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.set_dependencies(leaf, names)
        return result

    def stand_in(self, tensor: Tensor) -> Tensor:
        """Return the fake tensor that replaces a real one from outside; any other tensor itself."""
        key = id(tensor)
        if key not in self.stand_ins and key in self.outside_ids:
            assert self.world is not None
            self.stand_ins[key] = self.world.stand_in(tensor)
            self.set_dependencies(self.stand_ins[key], self.dependencies[storage_id(tensor.untyped_storage())])
        return self.stand_ins.get(key, tensor)

    def describe_sparse_refusal(self, func: Any, tensor: Tensor, verb: str) -> str:
        """Return the message for a program with sparse tensors, with the line."""
        where = frames.here(self.paths)
        place = f" at {where.file}:{where.line}: {where.code!r}" if where else ""
        kind = str(tensor.layout)[6:]
        return (
            f"{func} {verb} a {kind} tensor{place}: tracing would lose its gradients; "
            "use engine='eager', which takes sparse tensors, or keep that part outside, or dense"
        )

    def enter_outside_tensor(self, func: Any, tensor: Tensor, written: bool) -> None:
        """Enter a tensor of unknown memory as one from outside; copy its memory before the first write to it."""
        if self.world is None and type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            place = frames.place(frames.here(self.paths))
            raise CaptureError(f"the program works on a {type(tensor).__name__}{place}, which tracing cannot watch")
        if self.world is not None and self.is_of_this_run(tensor):
            return
        if not has_memory(tensor):
            place = frames.place(frames.here(self.paths))
            raise CaptureError(
                f"the program begins with a tensor of shape {list(tensor.shape)}{place} "
                "whose storage was resized to less than its elements need, so it has no values: restore them first",
                every_engine=True,
            )
        storage = tensor.untyped_storage()
        key = storage_id(storage)
        if key not in self.dependencies and func is torch.ops.aten.lift_fresh.default:
            self.set_dependencies(tensor, frozenset())  # torch.tensor([...]) made it just now
        if key not in self.dependencies or self.is_outside_span(tensor):
            self.callers[key] = storage
            self.add_span(tensor)
            self.seen.outside.append(tensor)
            self.seen.requires_grad_before[id(tensor)] = requires_grad_of(tensor)
            self.outside_ids.add(id(tensor))
            self.versions.append((tensor, version_of(tensor)))
            if tensor.is_leaf:
                not_copied = tensor.grad is None or self.world is not None
                self.grads.append((tensor, tensor.grad, None if not_copied else tensor.grad.clone()))
            self.set_dependencies(tensor, frozenset((f"outside {len(self.seen.outside) - 1}",)))
        if written and key in self.callers and key not in self.content_before and self.world is None:
            self.content_before[key] = storage.clone()

    def is_of_this_run(self, tensor: Tensor) -> bool:
        """Whether a tensor is in memory that this run has made."""
        key = storage_id(tensor.untyped_storage())
        return key in self.dependencies and key not in self.callers

    def note_edges_without_grad(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note the opaque edges of a call in `no_grad` mode.

        An update there of a tensor that requires grad is opaque only if a recorded call uses that memory afterwards:
        optimizers update parameters in this way after their last use.
        """
        self.note_line_of_functions()
        requiring_grad = [tensor for tensor in tensors if requires_grad_of(tensor)]
        self.memory_requiring_grad |= {
            storage_id(tensor.untyped_storage()) for tensor in requiring_grad if _is_strided(tensor)
        }
        if schema_of(func).is_mutable:
            for key in self.memory_requiring_grad_of(_written_tensors(func, args, kwargs)):
                self.hidden_updates[key] = OpaqueEdge("no_grad", _text_of_hidden_update(func), frames.here(self.paths))
        elif func is not DETACH and not self.seen.opaque and requiring_grad and not self.is_inside_wrapper():
            where = frames.here(self.paths)
            self.seen.opaque.append(OpaqueEdge("no_grad", f"{func} runs with gradients off", where))

    def is_inside_wrapper(self) -> bool:
        """Whether an autograd Function of wrappers runs its forward, which records no operator, in a run without
        values."""
        frame: FrameType | None = sys._getframe(1) if self.world is not None else None
        while frame is not None and frame.f_code.co_name != "forward":
            frame = frame.f_back
        return frame is not None and _is_module_of_wrappers(frame.f_globals.get("__name__", ""))

    def note_line_of_functions(self) -> None:
        """Note the line of a call for the code of every frame below which it runs. Some of that code is the forward or
        the backward of a custom autograd Function, whatever its name is."""
        where, frame = frames.here(self.paths), sys._getframe(1).f_back
        line = "" if where is None else f"{where.file}:{where.line}"
        while line and frame is not None:
            self.lines_below.setdefault(frame.f_code, set()).add(line)
            frame = frame.f_back

    def note_edges_of_recorded_call(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> None:
        """Note the opaque edges of a call that autograd records."""
        for tensor in tensors:
            if _is_strided(tensor):
                self.is_detached(func, tensor)
        if writes(func):
            self.note_update_of_detached(func, args, kwargs)

    def is_detached(self, func: Any, tensor: Tensor) -> bool:
        """Whether an argument does not require grad, and shares its memory with a tensor that does."""
        key = storage_id(tensor.untyped_storage())
        if not tensor.requires_grad:
            return key in self.memory_requiring_grad
        self.memory_requiring_grad.add(key)
        if func is not DETACH:
            self.note_use_after_hidden_update(key)
        return False

    def note_use_after_hidden_update(self, key: int) -> None:
        """Note an opaque edge if a call that autograd records uses memory that was updated in `no_grad` mode before."""
        if self.hidden_updates and (edge := self.hidden_updates.pop(key, None)):
            self.seen.opaque.append(edge)

    def note_update_of_detached(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note an update of a detached tensor that changes a tensor that requires grad, unseen by autograd."""
        if self.memory_requiring_grad_of(
            [tensor for tensor in _written_tensors(func, args, kwargs) if not tensor.requires_grad]
        ):
            text = f"{func} updates a detached tensor, which autograd does not see"
            self.seen.opaque.append(OpaqueEdge("detach", text, frames.here(self.paths)))

    def memory_requiring_grad_of(self, tensors: list[Tensor]) -> set[int]:
        """Return the storages of these tensors that a tensor which requires grad uses too."""
        return {
            storage_id(tensor.untyped_storage()) for tensor in tensors if _is_strided(tensor)
        } & self.memory_requiring_grad

    def note_edges_behind_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        """Note the custom autograd Functions in the graph of the outputs as opaque edges."""
        for tensor in outputs.values():
            if tensor.requires_grad and _is_strided(tensor):
                self.note_use_after_hidden_update(storage_id(tensor.untyped_storage()))
        queue = [tensor.grad_fn for tensor in outputs.values() if tensor.grad_fn is not None]
        visited = set()
        while queue:
            node = queue.pop()
            if node in visited:
                continue
            visited.add(node)
            queue += [following for following, _ in node.next_functions if following is not None]
            self.seen.reentrant |= node.name() == "CheckpointFunctionBackward"
            if isinstance(node, torch.autograd.function.BackwardCFunction) and not self.is_of_wrapper(node):
                self.seen.opaque.append(self.edge_of_function(node))

    def is_of_wrapper(self, node: Any) -> bool:
        """Whether an autograd node wraps or opens tensors, or redistributes a DTensor, in a run without values."""
        return self.world is not None and _is_module_of_wrappers(str(function_class(node).__module__))

    def edge_of_function(self, node: Any) -> OpaqueEdge:
        """Return the opaque edge of a custom autograd.Function, with the lines at which it calls operators."""
        function = function_class(node)
        methods = [getattr(function, name, None) for name in ("forward", "backward")]
        methods = [method and inspect.unwrap(method) for method in methods]  # `custom_fwd` wraps them
        codes = [code for method in methods if (code := getattr(method, "__code__", None)) is not None]
        lines = set[str]().union(*(self.lines_below.get(code, ()) for code in codes))
        source = frames.line_of_definition(methods[1])
        return OpaqueEdge("function", f"{node.name()} is a custom autograd.Function", source, tuple(sorted(lines)))

    def note_written(self) -> None:
        """Note which external tensors the run has written to."""
        self.seen.written = {id(tensor) for tensor, version in self.versions if version_of(tensor) != version}

    def restore(self) -> None:
        """Restore the caller's memory that the run wrote to, and the gradients of external tensors."""
        for key, content in self.content_before.items():
            if not is_copied(key):  # a Snapshot has put it back, and knows it from before the run
                restore_bytes(self.callers[key], content)
        for tensor, version in self.versions:
            set_version_counters((tensor,), (version,))
        for tensor in self.seen.outside:
            if not self.seen.requires_grad_before.get(id(tensor), True) and requires_grad_of(
                tensor
            ):  # an update has tied it to the run
                (base_of(tensor) if is_view(tensor) else tensor).detach_()
        for tensor, gradient, content in self.grads:
            tensor.grad = gradient
            if gradient is not None and content is not None and _is_strided(gradient):
                gradient.data.copy_(content)
            elif gradient is not None and content is not None:
                gradient.data = content


def _is_module_of_wrappers(module: str) -> bool:
    """Whether the autograd Functions of a module wrap or open tensors, or redistribute a DTensor."""
    return module == Around.__module__ or module.startswith("torch.distributed.")


def _is_foreign_fake(tensor: Tensor, world: FakeWorld) -> bool:
    """Whether a tensor is a fake tensor of another mode than the program's."""
    return isinstance(tensor, FakeTensor) and tensor.fake_mode is not world.mode


def describe_reading_without_values(reading: Reading) -> str:
    """Return the message for a program that reads values in a fake capture: where it reads them, and what to do."""
    depends = f" (it depends on {', '.join(reading.inputs[:6])})" if reading.inputs else ""
    return (
        f"{reading.operator} reads values, which a fake capture does not have{frames.place(reading.source)}{depends}. "
        "Pass small real inputs and specialize=True to take their values and keep them as guards, "
        "or capture without fake=True"
    )


def refuse_nested(func: Any, result: Any, paths: Mapping[int, str]) -> None:
    """Refuse an operator that returns a nested tensor."""
    if isinstance(result, Tensor) and result.is_nested and result.layout is torch.strided:
        raise CaptureError(
            f"{func} returns a nested tensor{frames.place(frames.here(paths))}, which no engine takes: pad it, or keep "
            "that part outside"
        )


def requires_grad_of(tensor: Tensor) -> bool:
    """Whether a tensor, or the base of a view, requires grad. Reading the flag of a changed view would make a new
    autograd node."""
    return bool((base_of(tensor) if is_view(tensor) else tensor).requires_grad)


def storages(tensor: Tensor) -> list[Any]:
    """Return the storages of a tensor's elements. A sparse tensor has several; the storage of its values is the
    last."""
    return [part.untyped_storage() for part in strided_parts(tensor)]


def _bytes_used(tensor: Tensor) -> tuple[int, int]:
    """Return the range of bytes of its storage that a tensor uses."""
    size = tensor.element_size()
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset() * size
    return first, first + (reach + 1) * size if tensor.numel() else first


def overlap(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors in one storage may have elements in common."""
    (low, high), (other_low, other_high) = _bytes_used(left), _bytes_used(right)
    return low < other_high and other_low < high


def _is_strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided
