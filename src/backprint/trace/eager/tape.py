"""The recorder of one real step: every operator in order, forward and backward, on a Tape.

A tensor on a tape is a StorageView: its storage and its geometry in it. Python's identity would not do, because
autograd unpacks a saved tensor as a new object in the same memory. No tensor is kept alive. The StorageView of a sparse
tensor has the StorageViews of its indices and values, which are strided tensors.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch.autograd import current_node, next_sequence_number, sequence_number
from backprint._torch.distributed import (
    GROUP_POSITIONS,
    collective_name,
    label_of,
    members_of,
)
from backprint._torch.fake import FakeTensor
from backprint._torch.modes import without_modes
from backprint._torch.operators import HigherOrderOperator, name_of
from backprint._torch.tensors import neg_view, storage_id
from backprint.errors import CaptureError, for_program
from backprint.graph.nouns import ScalarSpec, Source, Spec, TensorSpec
from backprint.trace import frames
from backprint.trace.edges import OpaqueEdges
from backprint.trace.external import ExternalTensors
from backprint.trace.fake import FakeWorld
from backprint.trace.observe import Call, Observer
from backprint.trace.silent_writes import contents_of, refuse_silent_operator
from backprint.trace.watch import Facts, Observations, facts_of, refuse_nested, storages
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


class Recorder(Observer):
    """Records every operator of a run, forward and backward, on a tape."""

    def __init__(self, paths: Mapping[int, str], world: FakeWorld | None = None) -> None:
        self.paths = paths
        self.seen = Observations()
        self.external = ExternalTensors(self.seen, paths, world)
        self.edges = OpaqueEdges(self.seen, paths, world)
        self.tape = Tape(start=own_generators())
        # The number of each storage on the tape, by its identity.
        self.memories: dict[int, int] = {}
        self.memory_count = 0
        # Storages that were resized from 0 bytes and not read since.
        self.filled: set[int] = set()
        # The number of calls that had run when each memory was freed.
        self.freed: dict[int, int] = {}
        self._world = world
        # Sparse tensors from outside, each with an alias from before the run.
        self._shells: list[tuple[Tensor, Tensor]] = []
        # Weak references to storages, whose callbacks write into `freed`; and weak references that keep a storage's
        # identity from being given to a new storage, but do not keep its bytes.
        self._followers: list[Any] = []
        self._alive: list[StorageWeakRef] = []

    # ---- Ports and StorageViews

    def begin(self, named: Mapping[str, Tensor]) -> None:
        self.external.add_own(named, tuple(named))
        for name, tensor in named.items():
            self.add_memory(tensor)
            self.add_port(name, tensor)

    def add_port(self, key: str, tensor: Tensor) -> None:
        """Make a tensor a port of the graph."""
        place = self.place(tensor)
        self.tape.ports.setdefault(place.memory, []).append(_TapePort(place, key))

    def remove_ports(self, keys: Collection[str]) -> None:
        """Make these tensors no longer ports."""
        for memory, ports in list(self.tape.ports.items()):
            if any(root.key in keys for root in ports):
                del self.tape.ports[memory]

    def add_memory(self, tensor: Tensor) -> None:
        """Give a tensor's storages numbers on the tape, if they have none."""
        for storage in storages(tensor):
            key = storage_id(storage)
            if key not in self.memories:
                self._alive.append(StorageWeakRef(storage))

                def note_freed(_: Any, memory: int = self.memory_count) -> None:
                    self.freed.setdefault(memory, len(self.tape.calls))

                self._followers.append(weakref.ref(storage, note_freed))
                self.memories[key] = self.memory_count
                self.memory_count += 1

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
            self.add_memory(tensor)
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

    def before(self, call: Call) -> None:
        """Note a call before it runs: it may change its arguments' geometry (`t_`) or the generator's state."""
        if call.func is torch.ops.aten._cudnn_rnn.default:
            # Not the buffer in which the weights lie, which would stay behind them.
            call.args = (*call.args[:3], None, *call.args[4:])
        facts = facts_of(call.func)
        taped = self.begun(call, facts)
        if taped is not None and call.func is torch.ops.aten._pin_memory.default:  # where a copy lies is no value
            taped = taped._replace(func=torch.ops.aten.clone.default, args=taped.args[:1], kwargs={})
        if self._world is not None:
            call.args, call.kwargs = self.external.with_stand_ins(call.args, call.kwargs, self._add_stand_in)
        call.kept[self] = taped, contents_of(call.args, call.kwargs) if facts.may_write_silently else ()

    def after(self, call: Call, result: Any) -> None:
        """Append a call that has run to the tape."""
        taped, contents = call.kept[self]
        if contents:
            refuse_silent_operator(call.func, contents)
        if taped is None:
            return
        generator = None if taped.state is None else _generator_of(call.args, call.kwargs)
        if taped.state is not None and self._world is not None:
            _advance_generator(generator)
        for leaf in plain_leaves(result):
            if isinstance(leaf, Tensor):
                refuse_nested(call.func, leaf, self.paths)
                self.external.add_span(leaf)
        state = None if taped.state is None else _generator_state_of_draw(generator, call.args, call.kwargs)
        placed_result = _placements_for_tensors(result, self.place)
        detached = {place.memory for place in placements(taped.args, taped.kwargs) if place.detached}
        if detached:
            shared = detached if placed_result is None else {place.memory for place in placements(placed_result)}
            args, kwargs = _without_detached_marks((taped.args, taped.kwargs), shared)
            taped = taped._replace(args=args, kwargs=kwargs)
        self.tape.calls.append(taped._replace(result=placed_result, state_after=state))

    def failed(self, call: Call, error: Exception) -> None:
        """The program may catch the error of an operator and go on."""
        if isinstance(error, RuntimeError):
            self._guard_values_of(call.tensors())

    def begun(self, call: Call, facts: Facts) -> TapedCall | None:
        """Return a call as it is on the tape, without its result; None if it is not recorded."""
        func, args, kwargs = call.func, call.args, call.kwargs
        if not facts.computes:
            return None
        if isinstance(func, HigherOrderOperator):
            raise CaptureError(f"the higher-order operator {name_of(func)!r} cannot be opened into what it runs")
        node, grad = current_node(), torch.is_grad_enabled()
        in_forward = self.tape.boundary is None
        recorded_by_autograd = node is None and in_forward and grad
        place_argument = functools.partial(
            self.place_argument, func, writes=facts.writes, recorded_by_autograd=recorded_by_autograd
        )
        placed_args, placed_kwargs = _placements_for_tensors((args, kwargs), place_argument)
        generator = _generator_of(args, kwargs) if facts.draws else None
        state = _generator_state_of_draw(generator, args, kwargs) if facts.draws else None
        if state is not None and generator is None:
            self.tape.start.setdefault(state.device, state.state)  # this draw is the device's first
        if in_forward and not grad:
            self.edges.note_edges_without_grad(func, args, kwargs, call.tensors())
        if recorded_by_autograd and facts.writes:
            self.edges.note_update_of_detached(func, args, kwargs)
        if facts.is_collective:
            placed_args = self._with_label(func, args, placed_args)
        return TapedCall(
            func,
            placed_args,
            placed_kwargs,
            None,
            frames.here(self.paths),
            # Autograd made the node of this call above the mode, so the node has the number before this one
            # (`Echoes.note`).
            next_sequence_number(),
            None if node is None else sequence_number(node),
            state,
            None,
            generator is not None,
            node is not None and node.name() == "torch::autograd::AccumulateGrad",
            grad,
        )

    def _with_label(self, func: Any, args: Any, placed_args: Any) -> Any:
        """Return the arguments of a collective with the label of its group, and remember who is in the group."""
        position = GROUP_POSITIONS[collective_name(func)]
        label = label_of(args[position])
        self.tape.groups[label] = members_of(args[position])
        return (*placed_args[:position], label, *placed_args[position + 1 :])

    def _add_stand_in(self, fake: Tensor, real: Tensor) -> None:
        """Let the fake tensor that replaces one from outside have the same memory on the tape."""
        self._alive.append(StorageWeakRef(fake.untyped_storage()))
        self.memories[storage_id(fake.untyped_storage())] = self.memories[storage_id(real.untyped_storage())]

    def _guard_values_of(self, tensors: list[Tensor]) -> None:
        """Record that these tensors have the values that they have now.

        They are the arguments of an operator that raised; if the program catches the error, it depends on them.
        """
        for tensor in tensors:
            if tensor.layout is torch.strided:
                copy = tensor.detach().clone()
                self._enter_constant(copy)
                # A call that reads values becomes a guard when the tape is written.
                call = Call(torch.ops.aten.equal.default, (tensor, copy), {})
                self.before(call)
                self.after(call, for_program(call.func, *call.args))

    def place_argument(self, func: Any, tensor: Tensor, writes: bool, recorded_by_autograd: bool) -> StorageView:
        """Return the StorageView of an argument of a call. A tensor of unknown memory comes from outside."""
        keys = [storage_id(storage) for storage in storages(tensor)]
        # The last storage of a sparse tensor has its values; of a strided tensor it is the only one.
        if keys[-1] in self.filled:
            self.enter_unwritten(tensor, keys[-1])
        if keys[-1] not in self.memories or (keys[-1] in self.external.spans and self.external.is_outside_span(tensor)):
            self.enter_unknown_tensor(func, tensor, writes)
        for part, key in zip(strided_parts(tensor), keys, strict=True):
            if key not in self.memories:
                self._enter_constant(part)  # indices that a kernel made for values of the program
            elif writes:
                self.external.keep_content(key)
        place = self.place(tensor)
        if not recorded_by_autograd or place.layout is not STRIDED:
            return place
        return place._replace(detached=True) if self.edges.is_detached(func, tensor) else place

    def enter_unknown_tensor(self, func: Any, tensor: Tensor, writes: bool) -> None:
        """Enter a tensor of unknown memory as a constant if `torch.tensor` made it, else as a port from outside.

        A tensor that only the backward uses is a constant too, because the forward has no port for it.
        """
        if func is torch.ops.aten.lift_fresh.default:
            self._enter_constant(tensor)
            return
        key = self.enter_outside_tensor(func, tensor)
        if self.tape.boundary is not None:
            # A buffer that is written to is entered whole, because the next call may write to another part of it.
            whole = _whole_storage(tensor) if writes else tensor
            self.external.add_span(whole)
            self._enter_constant(whole)
            return
        self.add_port(key, tensor)

    def enter_outside_tensor(self, func: Any, tensor: Tensor) -> str:
        """Enter a tensor from outside, and return its key. A sparse one can be given other parts, which are put
        back."""
        if tensor.layout is torch.strided:
            self.external.refuse(tensor)
        else:
            self._shells.append((tensor, tensor.detach()))
        key = self.external.enter(tensor)
        self.add_memory(tensor)
        return key

    def _enter_constant(self, tensor: Tensor) -> None:
        """Enter a tensor that the program's current line, or a kernel, has just made: a port with a copy of its
        value."""
        if isinstance(tensor, FakeTensor):
            raise CaptureError("a tensor that no operator made is used, and a fake capture has no values for it")
        self.add_memory(tensor)
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
        self.memories.pop(key, None)
        self.add_memory(tensor)
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        place = self.place(tensor)._replace(shape=(elements,), stride=(1,), offset=0)
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        empty = torch.ops.aten.empty_strided.default
        source = frames.here(self.paths)
        self.tape.calls.append(
            TapedCall(empty, ((elements,), (1,)), kwargs, place, source, next_sequence_number(), None)
        )

    def begin_backward(self) -> None:
        """Record the calls from here on as the backward."""
        self.tape.boundary = len(self.tape.calls)

    def restore(self) -> None:
        """Restore what of the caller's the run has changed."""
        for tensor, before in self._shells:
            if self.place(tensor) != self.place(before):
                tensor.data = before
        self.external.restore()


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
