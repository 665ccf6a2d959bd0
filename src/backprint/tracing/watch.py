"""Facts about operators that capturing needs: which read values, which write, and whose schema does not say so."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch import pytree
from backprint._torch.autograd import current_node, set_version_counters
from backprint._torch.fake import FakeTensor, UnsupportedOperatorException
from backprint._torch.modes import DisableTorchFunction, TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint._torch.tensors import base_of, is_view, storage_id, version_of
from backprint.errors import CaptureError, DataDependentError, for_program
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.tracing import frames
from backprint.tracing.custom import is_composite, taken_apart
from backprint.tracing.fake import UNKNOWN_VALUES, World
from backprint.tracing.program import SPARSE
from backprint.tracing.state.restore import is_copied
from backprint.tracing.state.tensors import put_bytes
from backprint.values.memory import has_memory
from backprint.values.tree import FLAGS, plain_leaves, strided_parts

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
def changed_places(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the positions and names of the arguments that an operator writes to, by its schema."""
    every = enumerate(schema_of(func).arguments)
    return tuple(
        (place, each.name) for place, each in every if each.alias_info is not None and each.alias_info.is_write
    )


def changed_tensors(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors among a call's arguments that it writes to."""
    given = [args[place] if place < len(args) else kwargs.get(name) for place, name in changed_places(func)]
    return [leaf for leaf in plain_leaves(given) if isinstance(leaf, Tensor)]


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: modes see the number itself."""
    return func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], Tensor)


def count_writes(func: Any, args: Any) -> None:
    """Increment the versions of tensors that a `_foreach_` operator writes; torch does not below a mode.

    Views of these tensors are new autograd nodes from then on, so gradients depend on it.
    """
    if schema_of(func).is_mutable and schema_of(func).name.startswith("aten::_foreach_"):
        torch.autograd.graph.increment_version(args[0])


# ----------------------------------------------------------------------------
# A dispatch mode that watches one run: tensors from outside, tensors that it changes, and values that it reads.
#
# A tensor whose memory was not made during the run comes from outside (a closure, a global, a plain attribute). If
#  the program writes to it, its bytes are restored.
# ----------------------------------------------------------------------------

CHANGED = ("has a gradient", "version")
"""Flags that a program itself changes: a guard is about their value before the run."""


DETACH = torch.ops.aten.detach.default


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where the program read values: an operator whose result's value or size does not follow from shapes."""

    operator: str
    source: Source | None
    inputs: tuple[str, ...]
    result: Any


@dataclass(slots=True)
class Sighting:
    """Everything that a watched run has shown."""

    outside: list[Tensor] = field(default_factory=list)
    asking: dict[int, bool] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    threads: list[Source | None] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    opaque: list[OpaqueEdge] = field(default_factory=list)
    unseen: list[tuple[str, Source | None]] = field(default_factory=list)
    assigned: list[Source | None] = field(default_factory=list)
    accumulates: bool = False
    reentrant: bool = False
    casts: int = 0
    packs: list[Source | None] = field(default_factory=list)
    checkpoints: bool = False
    nodes: bool = False
    raised: list[tuple[str, Source | None]] = field(default_factory=list)
    opened: list[tuple[str, Source | None]] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    memory: dict[int, tuple[str, ...]] = field(default_factory=dict)
    flags: dict[tuple[str, str], tuple[Any, Source | None]] = field(default_factory=dict)
    begun: dict[tuple[str, str], Any] = field(default_factory=dict)


class Watch(TorchDispatchMode):
    """Sees every operator of a run. A higher-order operator is one call: its body runs unseen."""

    supports_higher_order_operators = True

    def ignore_compile_internals(self) -> bool:
        """Let Dynamo, which eager uses for higher-order operators, in where nothing of the user's is compiled."""
        return self.lets_in

    def __init__(self, paths: Mapping[int, str], lets_in: bool = True, world: World | None = None) -> None:
        self.lets_in = lets_in
        super().__init__()
        self.seen = Sighting()
        self.world = world
        self.stand_ins: dict[int, Tensor] = {}
        self.met: set[int] = set()
        self.paths = paths
        self.taint: dict[int, frozenset[str]] = {}
        self.alive: list[StorageWeakRef] = []
        self.callers: dict[int, Any] = {}
        self.undo: dict[int, Any] = {}
        self.versions: list[tuple[Tensor, int]] = []
        self.grads: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
        self.spans: dict[int, tuple[int, int]] = {}
        self.followed: set[int] = set()
        self.unfollowed: dict[int, OpaqueEdge] = {}

    def know(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Watch:
        """Register the program's own tensors; those in `callers` use the caller's own memory."""
        self.seen.given = {id(tensor): name for name, tensor in named.items()}
        for name, tensor in named.items():
            for storage in storages(tensor):
                self.seen.memory[storage_id(storage)] = (*self.seen.memory.get(storage_id(storage), ()), name)
        for name, tensor in named.items():
            self.learn(tensor, frozenset((name,)))
            if not tensor.is_inference():
                self.seen.begun |= {(name, key): FLAGS[key](tensor) for key in CHANGED}
            if name in callers:
                self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
                self.widen(tensor)
        return self

    def widen(self, tensor: Tensor) -> None:
        """Mark this part of the caller's memory as the program's."""
        if tensor.layout is torch.strided and (key := storage_id(tensor.untyped_storage())) in self.callers:
            low, high = span(tensor)
            known = self.spans.get(key, (low, high))
            self.spans[key] = min(low, known[0]), max(high, known[1])

    def beyond(self, tensor: Tensor) -> bool:
        """Whether a tensor uses more of the caller's memory than is known as the program's.

        An argument may be a view of a tensor that the program reads from outside.
        """
        if tensor.layout is not torch.strided or (key := storage_id(tensor.untyped_storage())) not in self.spans:
            return False
        low, high = span(tensor)
        return low < high and (low < self.spans[key][0] or high > self.spans[key][1])

    def learn(self, tensor: Tensor, names: frozenset[str]) -> None:
        """Remember a tensor's memory, and the inputs that it depends on."""
        storage = tensor.untyped_storage()
        self.alive.append(StorageWeakRef(storage))
        self.taint[storage_id(storage)] = self.taint.get(storage_id(storage), frozenset()) | names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim" and torch.is_grad_enabled() and self.knows(args):
            # a question about a tensor, such as its device: half of a run without values
            return for_program(func, *args, **kwargs)
        if is_number_read(func, args):
            return args[0]
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        given = [leaf for leaf in plain_leaves(args, kwargs) if isinstance(leaf, Tensor)]
        if self.world is None and any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in given):
            # a higher-order operator computes shapes, no value of the program
            return for_program(func, *args, **kwargs)
        names = self.met_with(func, given)
        if isinstance(func, HigherOrderOperator):
            return self.follow(for_program(func, *args, **kwargs), names)
        if torch.Tag.nondeterministic_seeded in func.tags:
            names |= {RANDOM}
        self.note_call(func, args, kwargs, given)
        if self.world is not None and any(id(tensor) in self.met for tensor in given):
            args, kwargs = pytree.tree_map_only(Tensor, self.stand_in, (args, kwargs))
        result = self.run_explained(func, args, kwargs, names)
        count_writes(func, args)
        self.note_result(func, result, names)
        if reads_values(func):
            self.note_reading(func, args, result, names)
        return result

    def knows(self, args: Any) -> bool:
        """Whether what is asked about is a tensor without values that was made here."""
        return (
            bool(args)
            and isinstance(args[0], FakeTensor)
            and id(args[0]) not in self.met
            and _dense(args[0])
            and storage_id(args[0].untyped_storage()) in self.taint
        )

    def met_with(self, func: Any, given: list[Tensor]) -> frozenset[str]:
        """Return the inputs that an operator's tensors depend on; tensors of unknown memory come from outside."""
        for tensor in given:
            if tensor.layout in SPARSE:
                raise CaptureError(self.sparse(func, tensor, "takes"))
            if not _dense(tensor):
                continue  # a jagged one is refused where it is made: raising while torch reads its size would abort
            self.meet(func, tensor, not isinstance(func, HigherOrderOperator) and writes(func))
        memories = (storage_id(tensor.untyped_storage()) for tensor in given if _dense(tensor))
        return frozenset().union(*(self.taint[memory] for memory in memories))

    def note_call(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
        """Note opaque edges, casts of leaves, and gradients that autograd accumulates on leaves."""
        with DisableTorchFunction():
            if not torch.is_grad_enabled():
                self.judge(func, args, kwargs, given)
            elif current_node() is None:
                self.judge_followed(func, args, kwargs, given)
        self.seen.casts += func is torch.ops.aten._to_copy.default and given[0].is_leaf and given[0].requires_grad
        node = current_node()
        adds = node is not None and node.name() == "torch::autograd::AccumulateGrad"
        self.seen.accumulates |= adds and func.namespace != "prim"  # autograd reads a fake tensor's device there

    def run_explained(self, func: Any, args: Any, kwargs: Any, names: frozenset[str]) -> Any:
        """Run an operator; if it fails because there are no values, say so."""
        try:
            return for_program(func, *args, **kwargs)
        except UNKNOWN_VALUES as error:
            where = frames.here(self.paths)
            raise DataDependentError(unknown(Reading(str(func), where, tuple(sorted(names)), None))) from error
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
            if isinstance(leaf, Tensor) and _dense(leaf):
                self.learn(leaf, names)
                self.widen(leaf)
            elif isinstance(leaf, Tensor):
                raise CaptureError(self.sparse(func, leaf, "returns"))

    def note_reading(self, func: Any, args: Any, result: Any, names: frozenset[str]) -> None:
        """Note that the program reads values; a size depends only on the arguments that determine it."""
        if func in SIZED:
            sizing = [leaf for leaf in plain_leaves(args[SIZED[func]]) if isinstance(leaf, Tensor)]
            names = frozenset().union(*(self.taint[storage_id(tensor.untyped_storage())] for tensor in sizing))
        self.seen.readings.append(Reading(str(func), frames.here(self.paths), tuple(sorted(names)), result))

    def follow(self, result: Any, names: frozenset[str]) -> Any:
        """Note that the tensors in an operator's result depend on these names."""
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.learn(leaf, names)
        return result

    def stand_in(self, tensor: Tensor) -> Tensor:
        """In a world, return what replaces a tensor from outside; any other tensor itself."""
        key = id(tensor)
        if key not in self.stand_ins and key in self.met:
            assert self.world is not None
            self.stand_ins[key] = self.world.stand_in(tensor)
            self.learn(self.stand_ins[key], self.taint[storage_id(tensor.untyped_storage())])
        return self.stand_ins.get(key, tensor)

    def sparse(self, func: Any, tensor: Tensor, verb: str) -> str:
        """Say why a program with sparse tensors is refused, and where it makes one."""
        where = frames.here(self.paths)
        place = f" at {where.file}:{where.line}: {where.code!r}" if where else ""
        kind = str(tensor.layout)[6:]
        return (
            f"{func} {verb} a {kind} tensor{place}: tracing would lose its gradients; "
            "use engine='eager', which takes sparse tensors, or keep that part outside, or dense"
        )

    def meet(self, func: Any, tensor: Tensor, written: bool) -> None:
        """Note a tensor of unknown memory as one from outside. Copy the caller's memory before the first write to
        it."""
        if self.world is None and type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            place = frames.place(frames.here(self.paths))
            raise CaptureError(f"the program works on a {type(tensor).__name__}{place}, which tracing cannot watch")
        if not has_memory(tensor):
            place = frames.place(frames.here(self.paths))
            raise CaptureError(
                f"the program begins with a tensor of shape {list(tensor.shape)}{place} "
                "whose storage was resized to less than its elements need, so it has no values: restore them first",
                every_engine=True,
            )
        storage = tensor.untyped_storage()
        key = storage_id(storage)
        if key not in self.taint and func is torch.ops.aten.lift_fresh.default:
            self.learn(tensor, frozenset())  # torch.tensor([...]) made it just now
        if key not in self.taint or self.beyond(tensor):
            self.callers[key] = storage
            self.widen(tensor)
            self.seen.outside.append(tensor)
            self.seen.asking[id(tensor)] = asks(tensor)
            self.met.add(id(tensor))
            self.versions.append((tensor, version_of(tensor)))
            if tensor.is_leaf:
                unread = tensor.grad is None or self.world is not None
                self.grads.append((tensor, tensor.grad, None if unread else tensor.grad.clone()))
            self.learn(tensor, frozenset((f"outside {len(self.seen.outside) - 1}",)))
        if written and key in self.callers and key not in self.undo and self.world is None:
            self.undo[key] = storage.clone()

    def judge(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
        """Note opaque edges of a call in `no_grad` mode."""
        asking = [tensor for tensor in given if asks(tensor)]
        self.followed |= {storage_id(tensor.untyped_storage()) for tensor in asking if _dense(tensor)}
        if schema_of(func).is_mutable:
            for key in self.followed_among(changed_tensors(func, args, kwargs)):
                text = f"{func} updates a tensor that requires grad, with gradients off"
                self.unfollowed[key] = OpaqueEdge("no_grad", text, frames.here(self.paths))
        elif func is not DETACH and not self.seen.opaque and asking:
            where = frames.here(self.paths)
            self.seen.opaque.append(OpaqueEdge("no_grad", f"{func} runs with gradients off", where))

    def judge_followed(self, func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> None:
        """Note opaque edges of a call that autograd records."""
        for tensor in given:
            if _dense(tensor):
                self.is_detached(func, tensor)
        if writes(func):
            self.judge_update(func, args, kwargs)

    def is_detached(self, func: Any, tensor: Tensor) -> bool:
        """Whether an argument does not require grad, and shares its memory with a tensor that does."""
        key = storage_id(tensor.untyped_storage())
        if not tensor.requires_grad:
            return key in self.followed
        self.followed.add(key)
        if func is not DETACH:
            self.judge_use(key)
        return False

    def judge_use(self, key: int) -> None:
        """Note that a call that autograd records uses memory: an update of it in `no_grad` mode is opaque."""
        if self.unfollowed and (edge := self.unfollowed.pop(key, None)):
            self.seen.opaque.append(edge)

    def judge_update(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note an update of a detached tensor that changes a tensor that requires grad, unseen by autograd."""
        if self.followed_among([each for each in changed_tensors(func, args, kwargs) if not each.requires_grad]):
            text = f"{func} updates a detached tensor, which autograd does not see"
            self.seen.opaque.append(OpaqueEdge("detach", text, frames.here(self.paths)))

    def followed_among(self, changed: list[Tensor]) -> set[int]:
        """Return the memory of these tensors that a tensor that requires grad uses too."""
        return {storage_id(tensor.untyped_storage()) for tensor in changed if _dense(tensor)} & self.followed

    def judge_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        """Note custom autograd Functions behind the outputs as opaque edges."""
        for tensor in outputs.values():
            if tensor.requires_grad and _dense(tensor):
                self.judge_use(storage_id(tensor.untyped_storage()))
        queue = [tensor.grad_fn for tensor in outputs.values() if tensor.grad_fn is not None]
        visited = set()
        while queue:
            node = queue.pop()
            if node in visited:
                continue
            visited.add(node)
            queue += [following for following, _ in node.next_functions if following is not None]
            self.seen.reentrant |= node.name() == "CheckpointFunctionBackward"
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                self.seen.opaque.append(OpaqueEdge("function", f"{node.name()} is a custom autograd.Function"))

    def note_written(self) -> None:
        """Note which tensors from outside the run has written to."""
        self.seen.written = {id(tensor) for tensor, version in self.versions if version_of(tensor) != version}

    def restore(self) -> None:
        """Restore the caller's memory that the run wrote to, and the gradients of outside tensors."""
        for key, before in self.undo.items():
            if not is_copied(key):  # a Snapshot has put it back, and knows it from before the run
                put_bytes(self.callers[key], before)
        for tensor, version in self.versions:
            set_version_counters((tensor,), (version,))
        for tensor in self.seen.outside:
            if not self.seen.asking.get(id(tensor), True) and asks(tensor):  # an update has tied it to the run
                (base_of(tensor) if is_view(tensor) else tensor).detach_()
        for tensor, gradient, content in self.grads:
            tensor.grad = gradient
            if gradient is not None and content is not None and _dense(gradient):
                gradient.data.copy_(content)
            elif gradient is not None and content is not None:
                gradient.data = content


def unknown(reading: Reading) -> str:
    """Say why a program that reads values cannot be captured without values, where it reads, and what to do."""
    hangs = f" (it depends on {', '.join(reading.inputs[:6])})" if reading.inputs else ""
    return (
        f"{reading.operator} reads values, which a fake capture does not have{frames.place(reading.source)}{hangs}. "
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


def asks(tensor: Tensor) -> bool:
    """Whether a tensor, or the base of a view, requires grad: reading the flag of a changed view would make a new
    node."""
    return bool((base_of(tensor) if is_view(tensor) else tensor).requires_grad)


def storages(tensor: Tensor) -> list[Any]:
    """Return the storages of a tensor's elements: a sparse tensor has several, that of its values last."""
    return [part.untyped_storage() for part in strided_parts(tensor)]


def span(tensor: Tensor) -> tuple[int, int]:
    """Return the bytes of its storage that a tensor uses: the first, and one past the last."""
    size = tensor.element_size()
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset() * size
    return first, first + (reach + 1) * size if tensor.numel() else first


def _dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided
