"""The recorder of one real step: every operator in order, forward and backward, on a Tape.

A tensor on a tape is a StorageView: its storage and its geometry in it. Python's identity would not do, because
autograd unpacks a saved tensor as a new object in the same memory. No tensor is kept alive. The StorageView of a sparse
tensor has the StorageViews of its indices and values, which are strided tensors.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch import pytree
from backprint._torch.autograd import current_node, next_sequence_number, sequence_number
from backprint._torch.distributed import (
    GROUP_POSITIONS,
    collective_name,
    form_of,
    is_collective,
    label_of,
    members_of,
)
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import DisableTorchFunction, without_modes
from backprint._torch.operators import HigherOrderOperator, name_of, schema_of
from backprint._torch.tensors import neg_view, storage_id, version_of
from backprint.errors import CaptureError, for_program
from backprint.graph.nouns import ScalarSpec, Source, Spec, TensorSpec
from backprint.trace import frames
from backprint.trace.custom import decompose_under_mode, is_composite
from backprint.trace.fake import FakeWorld
from backprint.trace.silent_writes import contents_before, refuse_silent_operator
from backprint.trace.watch import SILENT_WRITERS, Watch, count_writes, is_number_read, refuse_nested, storages
from backprint.values.geometry import contiguous_strides, is_dense, span
from backprint.values.settings import random_states, state_bytes
from backprint.values.tree import plain_leaves, strided_parts


class StorageView(NamedTuple):
    """The storage and the geometry of a tensor. Two tensors with one StorageView have the same elements.

    `lazy` has the conjugate bit and the negative bit. A sparse tensor has no stride; `parts` are the StorageViews of
    its indices and values, and its `memory` is the memory of its values as a negative number, which no strided tensor
    has. `detached` marks an argument that does not require grad and uses memory of arguments that do.
    """

    memory: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    offset: int
    device: torch.device
    layout: torch.layout
    lazy: tuple[bool, bool]
    parts: tuple[Any, ...] = ()
    coalesced: bool = False
    detached: bool = False


class NoFunctionalForm(CaptureError):
    """An update has no operator that returns the new value instead, so the graph runs it in place on a copy."""


# ---- StorageViews among other arguments


def iter_leaves(*values: Any) -> Iterator[Any]:
    """Yield the leaves of nested arguments; a StorageView is a leaf."""
    for value in values:
        # A StorageView is a tuple too, so the exact type is asked first.
        if type(value) is not StorageView and isinstance(value, (tuple, list)):
            yield from iter_leaves(*value)
        elif isinstance(value, dict):
            yield from iter_leaves(*value.values())
        else:
            yield value


def placements(*values: Any) -> list[StorageView]:
    """Return the StorageViews among nested arguments."""
    return [leaf for leaf in iter_leaves(*values) if type(leaf) is StorageView]


# ---- StorageViews from tensors, and tensors from StorageViews


def meta_tensor(place: StorageView) -> Tensor:
    """Return a meta tensor with a StorageView's geometry."""
    if place.layout is not torch.strided:
        raise NoFunctionalForm(f"a {str(place.layout)[6:]} tensor has no place to foresee")
    meta = torch.empty_strided(place.shape, place.stride or (), dtype=place.dtype, device="meta")
    meta = meta.conj() if place.lazy[0] else meta
    return neg_view(meta) if place.lazy[1] else meta


CPU = torch.device("cpu")


def with_device_index(device: torch.device) -> torch.device:
    """Return the device with its number: `cuda` is the current one."""
    if device.type in ("cpu", "meta") or device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())


def placement_of(tensor: Tensor, device: torch.device = CPU) -> StorageView:
    """Return the StorageView of a tensor that is on no tape; a meta tensor stands for a tensor on `device`."""
    if tensor.layout is not torch.strided:
        raise NoFunctionalForm(f"a {str(tensor.layout)[6:]} tensor has no place to foresee")
    return StorageView(
        -1,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        device if tensor.device.type == "meta" else tensor.device,
        tensor.layout,
        (tensor.is_conj(), tensor.is_neg()),
    )


def geometry(place: StorageView) -> tuple[Any, ...]:
    """Return a tensor's dtype, shape and strides, without its storage."""
    return place.dtype, place.shape, place.stride, place.lazy


def placement_tree(value: Any, device: torch.device) -> Any:
    """Return a result with the StorageViews of its tensors, also inside tuples."""
    if isinstance(value, Tensor):
        return placement_of(value, device)
    if isinstance(value, (tuple, list)):
        return tuple([placement_tree(item, device) for item in value])
    return value


def without_gaps(value: Any) -> Any:
    """Return the StorageViews of new tensors, with strides that leave no gaps.

    A meta kernel may return the strides of an argument, such as those of an expanded tensor; real kernels allocate
    their results without gaps.
    """
    if type(value) is StorageView:
        return value if is_dense(value.shape, value.stride) else placement_of(meta_tensor(value).clone(), value.device)
    return tuple([without_gaps(item) for item in value]) if isinstance(value, tuple) else value


# ---- The part of a storage that a tensor uses


def bytes_spanned(place: StorageView) -> int:
    """Return the number of bytes of a storage up to the last byte that a tensor uses."""
    return elements_spanned(place) * place.dtype.itemsize


def elements_spanned(place: StorageView) -> int:
    """Return the number of elements of a storage up to the last element that a tensor uses."""
    return place.offset + span(place.shape, place.stride)


def are_apart(places: Sequence[StorageView]) -> bool:
    """Whether no two of these tensors use the same memory: each fills its own part of it."""
    if not all(place.layout is torch.strided and is_dense(place.shape, place.stride) for place in places):
        return False
    parts = sorted((place.memory, place.offset * place.dtype.itemsize, bytes_spanned(place)) for place in places)
    return all(left[0] != right[0] or left[2] <= right[1] for left, right in itertools.pairwise(parts))


# ---- Specs of StorageViews


@functools.lru_cache(maxsize=65536)
def _tensor_spec_at(place: StorageView) -> TensorSpec:
    """Return the spec of a StorageView."""
    dtype, device, layout = str(place.dtype)[6:], str(place.device), str(place.layout)[6:]
    if place.stride is None:
        return TensorSpec(dtype, place.shape, None, 0, device, layout)
    stride = None if place.stride == contiguous_strides(place.shape) else place.stride
    return TensorSpec(dtype, place.shape, stride, place.offset, device)


def placement_spec(result: Any) -> Spec:
    """Return the spec of a call's result."""
    match result:
        case StorageView():
            return _tensor_spec_at(result._replace(memory=-1))
        case bool() | int() | float() | complex() | str():
            return ScalarSpec(type(result).__name__)
        case list() | tuple():
            return tuple(map(placement_spec, result))
    return None


# ---- The tape


class GeneratorState(NamedTuple):
    """The state of a generator, and its device."""

    device: str
    state: bytes


class TapedCall(NamedTuple):
    """One operator call. Tensors are StorageViews. `node` is the autograd node in whose backward the call ran.

    `sums` says that autograd accumulates into a leaf's gradient, and `grad` that grad mode was on. `state` is the
    generator's state before a random draw and `state_after` the state afterwards; `own` says that the draw has a
    generator of the program's own. `seq` is the sequence number that autograd would give its next node.
    """

    func: Any
    args: Any
    kwargs: Any
    result: Any
    source: Source | None
    seq: int
    node: int | None
    state: GeneratorState | None = None
    state_after: GeneratorState | None = None
    own: bool = False
    sums: bool = False
    grad: bool = False


@dataclass(slots=True)
class _TapePort:
    """A tensor that no recorded call made: a port of the graph."""

    place: StorageView
    key: str


@dataclass(slots=True)
class Tape:
    """Every call of a step in order. The calls from `boundary` on are its backward.

    `start` has the state of each device's default generator before its first draw, and `groups` the ranks of each
    process group in which a collective runs.
    """

    calls: list[TapedCall] = field(default_factory=list)
    ports: dict[int, list[_TapePort]] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    boundary: int | None = None
    start: dict[str, bytes] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)


# ---- The recorder

STRIDED, EAGER = torch.strided, (False, False)


class Recorder(Watch):
    """A Watch that also records every operator, forward and backward."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # compiled functions run eagerly here, so Dynamo need not skip any call

    def __init__(self, paths: Mapping[int, str], world: FakeWorld | None = None) -> None:
        super().__init__(paths, world=world)
        self.types = PLAIN_TENSOR_TYPES if world is None else WITH_FAKE
        self.tape = Tape(start=own_generators())
        # The number of each storage on the tape, by its identity.
        self.memories: dict[int, int] = {}
        self.memory_count = 0
        # Sparse tensors from outside, each with an alias from before the run.
        self.shells: list[tuple[Tensor, Tensor]] = []
        # Storages that were resized from 0 bytes and not read since.
        self.filled: set[int] = set()
        # Weak references to storages. Their callbacks write into `freed`: the number of calls that had run when it was
        # freed.
        self.followers: list[Any] = []
        self.freed: dict[int, int] = {}

    # ---- Ports and StorageViews

    def register_tensors(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Recorder:
        super().register_tensors(named, callers)
        for name, tensor in named.items():
            self.add_port(name, tensor)
        return self

    def add_port(self, key: str, tensor: Tensor) -> None:
        """Make a tensor a port of the graph."""
        place = self.place(tensor)
        self.tape.ports.setdefault(place.memory, []).append(_TapePort(place, key))

    def remove_ports(self, keys: Collection[str]) -> None:
        """Make these tensors no longer ports."""
        for memory, ports in list(self.tape.ports.items()):
            if any(root.key in keys for root in ports):
                del self.tape.ports[memory]

    def set_dependencies(self, tensor: Tensor, names: frozenset[str]) -> None:
        for storage in storages(tensor):
            key = storage_id(storage)
            if key not in self.dependencies:
                self.dependencies[key] = names
                self.alive.append(StorageWeakRef(storage))  # keeps its identity, but not its bytes
                self.memories[key] = self.memory_count
                self.follow(storage, self.memory_count)
                self.memory_count += 1

    def follow(self, storage: Any, memory: int) -> None:
        """Note how many calls had run when a storage is freed."""
        self.followers.append(weakref.ref(storage, lambda _: self.freed.setdefault(memory, len(self.tape.calls))))

    def place(self, tensor: Tensor) -> StorageView:
        """Return the StorageView of a tensor."""
        dtype_and_shape = tensor.dtype, tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            places = tuple([self.place(part) for part in strided_parts(tensor)])
            memory = -1 - places[-1].memory
            coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
            return StorageView(
                memory, *dtype_and_shape, None, 0, tensor.device, tensor.layout, (False, False), places, coalesced
            )
        key = storage_id(tensor.untyped_storage())
        if key not in self.memories:
            self.set_dependencies(tensor, frozenset())
        # The common case, without new objects for layout and lazy bits: this runs for every argument of every call.
        if not tensor.is_complex() and not tensor.is_neg():
            return StorageView(
                self.memories[key],
                *dtype_and_shape,
                tensor.stride(),
                tensor.storage_offset(),
                tensor.device,
                STRIDED,
                EAGER,
            )
        lazy = tensor.is_conj(), tensor.is_neg()
        stride, offset = tensor.stride(), tensor.storage_offset()
        return StorageView(self.memories[key], *dtype_and_shape, stride, offset, tensor.device, tensor.layout, lazy)

    # ---- One operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunction():  # these reads of tensors are ours, not the program's
            return self.run_and_record(func, types, args, kwargs or {})

    def run_and_record(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator and append it to the tape."""
        if not self.types.issuperset(types):
            # DTensor runs operators on fake tensors to learn the shapes of its results: no value of the program
            return func(*args, **kwargs) if WITH_FAKE.issuperset(types) else NotImplemented
        # A call that is answered, or opened into other calls, is not on the tape itself. No call is of two of these
        # kinds.
        if is_number_read(func, args):
            return args[0]
        if is_composite(func, args, kwargs):
            return decompose_under_mode(self, func, args, kwargs)
        if (form := form_of(func)) is not None:
            with self:  # torch disables a mode while it handles a call, and the operators of the form are to be seen
                return form(*args, **kwargs)
        if func is torch.ops.aten._cudnn_rnn.default:
            args = (*args[:3], None, *args[4:])  # not the buffer in which the weights lie, which would stay behind them
        # Begun before it runs: the call may change its arguments' geometry (`t_`) or the generator's state.
        call = self.begin_call(func, args, kwargs)
        if call is not None and is_collective(func):
            call = self.labelled(call, args)
        if call is not None and func is torch.ops.aten._pin_memory.default:  # where a copy lies is no value
            call = call._replace(func=torch.ops.aten.clone.default, args=call.args[:1], kwargs={})
        if self.world is not None and self.outside_ids:
            args, kwargs = pytree.tree_map_only(Tensor, self.stand_in, (args, kwargs))
        try:
            before = contents_before(func, args, kwargs)
            result = for_program(func, *args, **kwargs)
            refuse_silent_operator(func, before)
        except RuntimeError:
            # The program may catch this error and go on.
            self.guard_values_of([leaf for leaf in iter_leaves(args, kwargs) if isinstance(leaf, Tensor)])
            raise
        if call is not None:
            if call.state is not None and self.world is not None:
                _advance_generator(_generator_of(args, kwargs))
            self.end_call(call, args, kwargs, result)
        return result

    def labelled(self, call: TapedCall, args: Any) -> TapedCall:
        """Return a collective with the label of its group, and remember who is in the group."""
        position = GROUP_POSITIONS[collective_name(call.func)]
        label = label_of(args[position])
        self.tape.groups[label] = members_of(args[position])
        return call._replace(args=(*call.args[:position], label, *call.args[position + 1 :]))

    def begin_call(self, func: Any, args: Any, kwargs: Any) -> TapedCall | None:
        """Return a call before it runs, without its result; None if it is not recorded."""
        facts = facts_of(func)
        if not facts.counts:
            return None
        node = current_node()
        recorded_by_autograd = node is None and self.tape.boundary is None and torch.is_grad_enabled()
        placed_args, placed_kwargs = _placements_for_tensors(
            (args, kwargs), lambda tensor: self.place_argument(func, tensor, facts.writes, recorded_by_autograd)
        )
        generator = _generator_of(args, kwargs) if facts.draws else None
        state = _generator_state_of_draw(generator, args, kwargs) if facts.draws else None
        if state is not None and generator is None:
            self.tape.start.setdefault(state.device, state.state)  # this draw is the device's first
        if self.tape.boundary is None and not torch.is_grad_enabled():
            self.note_edges_without_grad(
                func, args, kwargs, [leaf for leaf in iter_leaves(args, kwargs) if isinstance(leaf, Tensor)]
            )
        if recorded_by_autograd and facts.writes:
            self.note_update_of_detached(func, args, kwargs)
        source = frames.here(self.paths)
        return TapedCall(
            func,
            placed_args,
            placed_kwargs,
            None,
            source,
            # Autograd made the node of this call above the mode, so the node has the number before this one
            # (`Echoes.note`).
            next_sequence_number(),
            None if node is None else sequence_number(node),
            state,
            None,
            generator is not None,
            node is not None and node.name() == "torch::autograd::AccumulateGrad",
            torch.is_grad_enabled(),
        )

    def end_call(self, call: TapedCall, args: Any, kwargs: Any, result: Any) -> None:
        """Append a call that has run to the tape."""
        for leaf in plain_leaves(result):
            if isinstance(leaf, Tensor):
                refuse_nested(call.func, leaf, self.paths)
                self.add_span(leaf)
        if facts_of(call.func).writes:
            count_writes(call.func, args)
        state = None if call.state is None else _generator_state_of_draw(_generator_of(args, kwargs), args, kwargs)
        placed_result = _placements_for_tensors(result, self.place)
        detached = {place.memory for place in placements(call.args, call.kwargs) if place.detached}
        if detached:
            shared = detached if placed_result is None else {place.memory for place in placements(placed_result)}
            args_, kwargs_ = _without_detached_marks((call.args, call.kwargs), shared)
            call = call._replace(args=args_, kwargs=kwargs_)
        self.tape.calls.append(call._replace(result=placed_result, state_after=state))

    def stand_in(self, tensor: Tensor) -> Tensor:
        fake = super().stand_in(tensor)
        if fake is not tensor:  # one memory on the tape
            memory = self.memories[storage_id(tensor.untyped_storage())]
            self.memories[storage_id(fake.untyped_storage())] = memory
        return fake

    def guard_values_of(self, tensors: list[Tensor]) -> None:
        """Record that these tensors have the values that they have now.

        They are the arguments of an operator that raised; if the program catches the error, it depends on them.
        """
        for tensor in tensors:
            if tensor.layout is torch.strided:
                copy = tensor.detach().clone()
                self.enter_constant(copy)
                # A call that reads values becomes a guard when the tape is written.
                self.run_and_record(torch.ops.aten.equal.default, (), (tensor, copy), {})

    def place_argument(self, func: Any, tensor: Tensor, writes: bool, recorded_by_autograd: bool) -> StorageView:
        """Return the StorageView of an argument of a call. A tensor of unknown memory comes from outside."""
        keys = [storage_id(storage) for storage in storages(tensor)]
        # The last storage of a sparse tensor has its values; of a strided tensor it is the only one.
        if keys[-1] in self.filled:
            self.enter_unwritten(tensor, keys[-1])
        if keys[-1] not in self.dependencies or self.is_outside_span(tensor):
            self.enter_unknown_tensor(func, tensor, writes)
        for part, key in zip(strided_parts(tensor), keys, strict=True):
            if key not in self.dependencies:
                self.enter_constant(part)  # indices that a kernel made for values of the program
            elif writes and key in self.callers and key not in self.content_before:
                # The first write to memory of the caller's, which `restore` puts back.
                self.content_before[key] = self.callers[key].clone()
        place = self.place(tensor)
        if not recorded_by_autograd or place.layout is not STRIDED:
            return place
        return place._replace(detached=True) if self.is_detached(func, tensor) else place

    def enter_unknown_tensor(self, func: Any, tensor: Tensor, writes: bool) -> None:
        """Enter a tensor of unknown memory as a constant if `torch.tensor` made it, else as a port from outside.

        A tensor that only the backward uses is a constant too, because the forward has no port for it.
        """
        if func is torch.ops.aten.lift_fresh.default:
            self.enter_constant(tensor)
            return
        count = len(self.seen.outside)
        if tensor.layout is torch.strided:
            self.enter_outside_tensor(func, tensor, writes)
        else:
            self.enter_sparse_from_outside(tensor)
        if self.tape.boundary is not None:
            # A buffer that is written to is entered whole, because the next call may write to another part of it.
            whole = _whole_storage(tensor) if writes else tensor
            self.add_span(whole)
            self.enter_constant(whole)
            return
        self.add_port(f"outside {count}", tensor)

    def enter_constant(self, tensor: Tensor) -> None:
        """Enter a tensor that the program's current line, or a kernel, has just made: a port with a copy of its
        value."""
        if isinstance(tensor, FakeTensor):
            raise CaptureError("a tensor that no operator made is used, and a fake capture has no values for it")
        self.set_dependencies(tensor, frozenset())
        key = f"fresh {len(self.tape.constants)}"
        self.tape.constants[key] = tensor.detach().clone()
        self.add_port(key, tensor)

    def note_filled(self, storage: Any) -> None:
        """Note that a storage of 0 bytes is resized, as FSDP2 does for gathered parameters: its bytes are new
        memory."""
        self.filled.add(storage_id(storage))

    def enter_unwritten(self, tensor: Tensor, key: int) -> None:
        """Enter memory that a storage has just been given, like the memory of a new tensor."""
        self.filled.discard(key)
        self.dependencies.pop(key, None)
        self.set_dependencies(tensor, frozenset())
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        place = self.place(tensor)._replace(shape=(elements,), stride=(1,), offset=0)
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        empty = torch.ops.aten.empty_strided.default
        source = frames.here(self.paths)
        self.tape.calls.append(
            TapedCall(empty, ((elements,), (1,)), kwargs, place, source, next_sequence_number(), None)
        )

    def enter_sparse_from_outside(self, tensor: Tensor) -> None:
        """Enter a sparse tensor from outside. Its bytes are copied before the first write, and its parts are
        restored."""
        self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
        self.set_dependencies(tensor, frozenset((f"outside {len(self.seen.outside)}",)))
        self.seen.outside.append(tensor)
        self.seen.requires_grad_before[id(tensor)] = tensor.requires_grad
        self.versions.append((tensor, version_of(tensor)))
        self.shells.append((tensor, tensor.detach()))
        if tensor.is_leaf:
            self.grads.append((tensor, tensor.grad, None if tensor.grad is None else tensor.grad.clone()))

    def had_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor from outside still has the `.grad` that it had when it was first seen."""
        return any(
            seen_tensor is tensor and tensor.is_leaf and gradient is tensor.grad
            for seen_tensor, gradient, _ in self.grads
        )

    def restore(self) -> None:
        for tensor, before in self.shells:
            if self.place(tensor) != self.place(before):
                tensor.data = before
        super().restore()

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Record the calls inside as the backward."""
        self.tape.boundary = len(self.tape.calls)
        with self:
            yield


def _whole_storage(tensor: Tensor) -> Tensor:
    """Return all elements of a tensor's storage as one tensor, of which it is a view: a bucket of DDP is used part by
    part, in any order. A tensor whose storage has no whole number of its elements is returned itself."""
    storage = tensor.untyped_storage() if tensor.layout is torch.strided else None
    if storage is None or tensor.is_conj() or tensor.is_neg() or storage.nbytes() % tensor.element_size():
        return tensor
    return tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)


def _without_detached_marks(value: Any, memories: Collection[int]) -> Any:
    """Clear `detached` of arguments that share memory with a call's result (a view, or an update in place)."""
    if type(value) is StorageView:
        return value._replace(detached=False) if value.detached and value.memory in memories else value
    if type(value) is tuple:
        return tuple([_without_detached_marks(item, memories) for item in value])
    if type(value) is list:
        return [_without_detached_marks(item, memories) for item in value]
    if type(value) is dict:
        return {key: _without_detached_marks(item, memories) for key, item in value.items()}
    return value


class _OperatorFacts(NamedTuple):
    """The facts about an operator that recording needs: whether it is recorded, writes to arguments, and draws random
    numbers."""

    counts: bool
    writes: bool
    draws: bool


@functools.cache
def facts_of(func: Any) -> _OperatorFacts:
    """Return the facts about an operator; raise for a higher-order operator."""
    if isinstance(func, HigherOrderOperator):
        raise CaptureError(f"the higher-order operator {name_of(func)!r} cannot be opened into what it runs")
    silent = schema_of(func).name in SILENT_WRITERS
    draws = torch.Tag.nondeterministic_seeded in func.tags
    # These compute no value: marks of a profiler, reads of a tensor's attributes, and where a tensor lies.
    counts = func.namespace not in ("profiler", "_profiler", "prim") and schema_of(func).name != "aten::is_pinned"
    return _OperatorFacts(counts, bool(schema_of(func).is_mutable or silent), draws)


PLAIN_TENSOR_TYPES = frozenset({Tensor, torch.nn.Parameter, torch.nn.Buffer})
WITH_FAKE = PLAIN_TENSOR_TYPES | {FakeTensor}


def _generator_of(args: Any, kwargs: Any) -> torch.Generator | None:
    """Return the generator argument of a draw."""
    return kwargs.get("generator") or next((arg for arg in args if isinstance(arg, torch.Generator)), None)


def _generator_state_of_draw(generator: torch.Generator | None, args: Any, kwargs: Any) -> GeneratorState:
    """Return the state of a draw's generator: the generator that it was passed, or its device's default generator."""
    device = _drawing_device(args, kwargs) if generator is None else generator.device
    if generator is not None:
        state = generator.get_state()
    elif device.type in ("cpu", "meta"):
        state = torch.get_rng_state()
    else:
        state = torch.get_device_module(device).get_rng_state(device)
    return GeneratorState(str(device), state_bytes(state))


def _advance_generator(generator: torch.Generator | None) -> None:
    """Advance a generator as a draw with values does, so that the states tell the draws of a fake run apart."""
    with without_modes():
        torch.empty(1).uniform_(generator=generator)


def _drawing_device(args: Any, kwargs: Any) -> torch.device:
    """Return the device that an operator runs on: its `device` argument, or the device of its tensors."""
    device = kwargs.get("device") or next(
        (leaf.device for leaf in iter_leaves(args) if isinstance(leaf, Tensor)), "cpu"
    )
    return with_device_index(torch.device(device))


def own_generators() -> dict[str, bytes]:
    """Return the states of the generators of the devices in use."""
    states = random_states()
    generators = {"cpu": states.cpu, **{f"cuda:{index}": state for index, state in enumerate(states.cuda)}}
    return {device: state_bytes(state) for device, state in generators.items()}


LEAF_TYPES = frozenset({bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout})
"""Types of arguments that are no tensors and hold none."""


def _placements_for_tensors(value: Any, placement: Callable[[Tensor], StorageView]) -> Any:
    """Replace tensors by StorageViews in arguments or results."""
    kind = type(value)
    if kind in LEAF_TYPES:
        return value
    if kind is Tensor or isinstance(value, Tensor):
        return placement(value)
    if kind is tuple:
        return tuple([_placements_for_tensors(item, placement) for item in value])
    if kind is list:
        return [_placements_for_tensors(item, placement) for item in value]
    if kind is dict:
        return {key: _placements_for_tensors(item, placement) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple([_placements_for_tensors(item, placement) for item in value])
    return value
