"""The recorder of one real step: every operator in order, forward and backward, on a Tape.

A tensor on a tape is a StorageView: its storage and its geometry in it. Python's identity would not do, because
autograd unpacks a saved tensor as a new object in the same memory. No tensor is kept alive. The StorageView of a sparse
tensor has the StorageViews of its indices and values, which are strided tensors.

In this package a `place`, or the placement of a tensor, is its StorageView, and a `memory` the number of its storage.
A tensor is from outside if the run uses it, but neither was passed it nor has made it.

`frames.here(paths)` returns the user's line that runs now, for a message or a call. An identity is what `id` or
`storage_id` returns: a new object may get that of one that was freed. A tensor's lazy bits are its conjugate bit and
its negative bit: torch conjugates or negates such a tensor only when it reads it.

Observations are what is noted of a run, OpaqueEdges and ExternalTensors note their part of it. A `Call` is an operator
call that is about to run or has run, and Facts are facts about its operator. A FakeWorld is the FakeTensorMode of a run
without values.
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

    `memory` is the number that the Recorder gives to a storage, or -1 where the storage does not matter. `offset` is in
    elements. `lazy` has the conjugate bit and the negative bit. A sparse tensor has no stride; `parts` are the
    StorageViews of its indices and values (values last), and its `memory` is -1 minus the memory of its values, which
    no strided tensor has. `detached` marks an argument that does not require grad and shares memory with a tensor that
    does: a graph reads it through `detach`.
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
    """An update in place cannot be written as an operator that returns the new value, so the graph runs it in place on
    a copy. Also raised where a tensor, or a result on meta tensors, is asked for that cannot be made."""


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
    """Return a meta tensor with a StorageView's dtype, shape, strides and lazy bits, at offset 0; raise
    NoFunctionalForm for a sparse one."""
    if place.layout is not torch.strided:
        raise NoFunctionalForm(f"a {str(place.layout)[6:]} tensor has no place to foresee")
    meta = torch.empty_strided(place.shape, place.stride or (), dtype=place.dtype, device="meta")
    meta = meta.conj() if place.lazy[0] else meta
    return neg_view(meta) if place.lazy[1] else meta


CPU = torch.device("cpu")


def with_device_index(device: torch.device) -> torch.device:
    """Return the device with its index: `cuda` without an index means the current device."""
    if device.type in ("cpu", "meta") or device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())


def placement_of(tensor: Tensor, device: torch.device = CPU) -> StorageView:
    """Return the StorageView, with memory -1, of a tensor that is on no tape; raise NoFunctionalForm for a sparse one.
    A meta tensor stands for one on `device`."""
    if tensor.layout is not torch.strided:
        raise NoFunctionalForm(f"a {str(tensor.layout)[6:]} tensor has no place to foresee")
    return StorageView(
        memory=-1,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        stride=tensor.stride(),
        offset=tensor.storage_offset(),
        device=device if tensor.device.type == "meta" else tensor.device,
        layout=tensor.layout,
        lazy=(tensor.is_conj(), tensor.is_neg()),
    )


def geometry(place: StorageView) -> tuple[Any, ...]:
    """Return a tensor's dtype, shape, strides and lazy bits, without its storage and offset."""
    return place.dtype, place.shape, place.stride, place.lazy


def placement_tree(value: Any, device: torch.device) -> Any:
    """Return an operator's result with StorageViews (of memory -1) in the place of its tensors, also inside tuples and
    lists, which become tuples. Meta tensors among them stand for tensors on `device`."""
    if isinstance(value, Tensor):
        return placement_of(value, device)
    if isinstance(value, (tuple, list)):
        return tuple([placement_tree(item, device) for item in value])
    return value


def without_gaps(value: Any) -> Any:
    """Return the result of an operator, one StorageView or a tuple of them, with strides that leave no gaps.

    A meta kernel may return the strides of an argument, such as those of an expanded tensor; real kernels allocate
    their results without gaps. A clone of a tensor with gaps has strides without gaps.
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
    # The memory of each, its first byte, and the byte after its last one: sorted, so that neighbours are enough to
    # compare.
    parts = sorted((place.memory, place.offset * place.dtype.itemsize, bytes_spanned(place)) for place in places)
    return all(
        memory != next_memory or end <= next_start
        for (memory, _, end), (next_memory, next_start, _) in itertools.pairwise(parts)
    )


# ---- Specs of StorageViews


@functools.lru_cache(maxsize=65536)
def _tensor_spec_at(place: StorageView) -> TensorSpec:
    """Return the spec of a StorageView: dtype, shape, stride, offset, device and layout as a graph's text has them. In
    a TensorSpec, None is the contiguous stride, or a sparse tensor's."""
    # `[6:]` is without the prefix `torch.`.
    dtype, device, layout = str(place.dtype)[6:], str(place.device), str(place.layout)[6:]
    if place.stride is None:
        return TensorSpec(dtype, place.shape, None, 0, device, layout)
    stride = None if place.stride == contiguous_strides(place.shape) else place.stride
    return TensorSpec(dtype, place.shape, stride, place.offset, device)


def placement_spec(result: Any) -> Spec:
    """Return the spec of a call's result: of a StorageView, a number, a string, or a tuple of these; else None."""
    match result:
        case StorageView():
            # Without its memory, on which the spec does not depend: so equal geometries share an entry of the cache.
            return _tensor_spec_at(result._replace(memory=-1))
        case bool() | int() | float() | complex() | str():
            return ScalarSpec(type(result).__name__)
        case list() | tuple():
            return tuple(map(placement_spec, result))
    return None


# ---- The tape


class GeneratorState(NamedTuple):
    """The bytes of a generator's state, and the generator's device."""

    device: str
    state: bytes


class TapedCall(NamedTuple):
    """One operator call. Tensors are StorageViews. `source` is the user's line that made the call, if any did.

    `func` is the operator as a dispatch mode gets it. `node` is the sequence number of the autograd node in whose
    backward the call ran, or None in the forward. `seq` is the sequence number that autograd would give its next node.
    `sums` says that autograd accumulates into a leaf's gradient, and `grad` that grad mode was on. `state` is the
    generator's state before a random draw and `state_after` the state afterwards, both None for other calls; `own` says
    that the call was passed a generator.
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
    """A tensor that no recorded call made: a port of the graph. `key` is its name on the tape, not yet the port's name:
    the name of a tensor of the program, a tangent's name, or `outside 0`, `fresh 0` and so on."""

    place: StorageView
    key: str


@dataclass(slots=True)
class Tape:
    """Every call of a step in order. The calls from index `boundary` on are its backward; None while there is none.

    `ports` has the ports in each memory, and `constants` copies of the tensors that become constants, by their port's
    key. `start` has the state of each device's default generator before its first draw, and `groups` the ranks of each
    process group in which a collective runs, by the group's label.
    """

    calls: list[TapedCall] = field(default_factory=list)
    ports: dict[int, list[_TapePort]] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    boundary: int | None = None
    start: dict[str, bytes] = field(default_factory=dict)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)


# ---- The recorder

STRIDED, EAGER = torch.strided, (False, False)
"""The layout and the lazy bits (neither conjugated nor negated) of a usual tensor."""


class Recorder(Observer):
    """Records every operator of a run, forward and backward, on a tape.

    `paths` has the path of each module by its identity, for the lines of calls. `world` is the FakeWorld of a run
    without values. `seen` collects what else is noted of the run (Observations), `external` the tensors from outside,
    and `edges` the opaque edges: where autograd of the plain forward would not give the program's gradient.
    """

    def __init__(self, paths: Mapping[int, str], world: FakeWorld | None = None) -> None:
        """Begin an empty tape. `paths` has the path of each module by its identity, and `world` is the FakeWorld of a
        run without values."""
        self.paths = paths
        self.seen = Observations()
        self.external = ExternalTensors(self.seen, paths, world)
        self.edges = OpaqueEdges(self.seen, paths, world)
        self.tape = Tape(start=own_generators())
        # The number of each storage on the tape, by its identity; and how many numbers have been given.
        self.memories: dict[int, int] = {}
        self.memory_count = 0
        # Identities of storages that were resized from 0 bytes and not used since: nobody has written their new bytes.
        self.filled: set[int] = set()
        # The number of calls that had run when each memory was freed.
        self.freed: dict[int, int] = {}
        self._world = world
        # Sparse tensors from outside, each with an alias from before the run, by which `restore` puts its parts back.
        self._shells: list[tuple[Tensor, Tensor]] = []
        # Weak references to storages, whose callbacks write into `freed`; and weak references that keep a storage's
        # identity from being given to a new storage, but do not keep its bytes.
        self._followers: list[Any] = []
        self._reserved_ids: list[StorageWeakRef] = []

    # ---- Ports and StorageViews

    def begin(self, named: Mapping[str, Tensor]) -> None:
        """Make the program's own tensors, which `named` has by name, ports of the graph."""
        # `callers`: all of them use memory of the caller's, which is restored after the run.
        self.external.add_own(named, callers=tuple(named))
        for name, tensor in named.items():
            self.add_memory(tensor)
            self.add_port(name, tensor)

    def add_port(self, key: str, tensor: Tensor) -> None:
        """Make a tensor a port of the graph. `key` is the port's name on the tape (`_TapePort`)."""
        place = self.place(tensor)
        self.tape.ports.setdefault(place.memory, []).append(_TapePort(place, key))

    def remove_ports(self, keys: Collection[str]) -> None:
        """Remove these ports, with all others in the same memory: tangents, each of which has memory of its own."""
        for memory, ports in list(self.tape.ports.items()):
            if any(port.key in keys for port in ports):
                del self.tape.ports[memory]

    def add_memory(self, tensor: Tensor) -> None:
        """Give a tensor's storages numbers on the tape, if they have none."""
        for storage in storages(tensor):
            key = storage_id(storage)
            if key not in self.memories:
                self._reserved_ids.append(StorageWeakRef(storage))  # no new storage gets this `key`

                # A default, so that each callback has its own number.
                def note_freed(_: Any, memory: int = self.memory_count) -> None:
                    self.freed.setdefault(memory, len(self.tape.calls))

                self._followers.append(weakref.ref(storage, note_freed))
                self.memories[key] = self.memory_count
                self.memory_count += 1

    def place(self, tensor: Tensor) -> StorageView:
        """Return the StorageView of a tensor; its storages get numbers, if they have none."""
        dtype_and_shape = tensor.dtype, tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            places = tuple([self.place(part) for part in strided_parts(tensor)])
            memory = -1 - places[-1].memory  # a number of no storage: below 0, also for memory 0
            coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
            return StorageView(
                memory,
                *dtype_and_shape,
                stride=None,
                offset=0,
                device=tensor.device,
                layout=tensor.layout,
                lazy=EAGER,
                parts=places,
                coalesced=coalesced,
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
        """Note a call before it runs, because it may change its arguments' geometry (`t_`) or the generator's state.
        The operator then runs on `call.args`, which are replaced here in two cases. `call.kept` carries what is noted
        to `after`."""
        if call.func is torch.ops.aten._cudnn_rnn.default:
            # Argument 3 is `weight_buf`, the flat buffer of which the weights are views. Without it: in the graph the
            # weights are values of their own, and the buffer would keep their old content when they are updated.
            call.args = (*call.args[:3], None, *call.args[4:])
        facts = facts_of(call.func)
        taped = self.begun(call, facts)
        # Pinned memory is no property of a value: a graph has a plain copy.
        if taped is not None and call.func is torch.ops.aten._pin_memory.default:
            taped = taped._replace(func=torch.ops.aten.clone.default, args=taped.args[:1], kwargs={})
        if self._world is not None:
            # A run without values cannot use a real tensor from outside: a fake one replaces it.
            call.args, call.kwargs = self.external.with_stand_ins(call.args, call.kwargs, self._add_stand_in)
        call.kept[self] = taped, contents_of(call.args, call.kwargs) if facts.may_write_silently else ()

    def after(self, call: Call, result: Any) -> None:
        """Append a call that has run to the tape, with the StorageViews of its results."""
        # From `before`: the call without its result (None if it is not recorded), and the arguments' content where the
        # operator may write to them although its schema does not say so.
        taped, contents = call.kept[self]
        if contents:
            refuse_silent_operator(call.func, contents)
        if taped is None:
            return
        state_after = None
        if taped.state is not None:  # the call is a random draw
            generator = _generator_of(call.args, call.kwargs)
            if self._world is not None:
                _advance_generator(generator)
            state_after = _generator_state_of_draw(generator, call.args, call.kwargs)
        for leaf in plain_leaves(result):
            if isinstance(leaf, Tensor):
                refuse_nested(call.func, leaf, self.paths)
                self.external.add_span(leaf)  # a view may use more of the caller's memory than was known
        placed_result = _placements_for_tensors(result, self.place)
        taped = _working_on_memory_of_results(taped, placed_result)
        self.tape.calls.append(taped._replace(result=placed_result, state_after=state_after))

    def failed(self, call: Call, error: Exception) -> None:
        """Guard the values on which an operator raised: the program may catch the error and go on."""
        if isinstance(error, RuntimeError):
            self._guard_values_of(call.tensors())

    def begun(self, call: Call, facts: Facts) -> TapedCall | None:
        """Return a call that is about to run as it is on the tape, without its result; None if it is not recorded.
        Refuse a higher-order operator. `facts` are those of its operator."""
        func, args, kwargs = call.func, call.args, call.kwargs
        if not facts.computes:
            return None
        if isinstance(func, HigherOrderOperator):
            raise CaptureError(f"the higher-order operator {name_of(func)!r} cannot be opened into what it runs")
        node, grad = current_node(), torch.is_grad_enabled()  # the node whose backward runs now, if any does
        in_forward = self.tape.boundary is None
        recorded_by_autograd = node is None and in_forward and grad
        place_argument = functools.partial(
            self.place_argument, func, writes=facts.writes, recorded_by_autograd=recorded_by_autograd
        )
        placed_args, placed_kwargs = _placements_for_tensors((args, kwargs), place_argument)
        generator = _generator_of(args, kwargs) if facts.draws else None
        state = _generator_state_of_draw(generator, args, kwargs) if facts.draws else None
        if state is not None and generator is None:
            self.tape.start.setdefault(state.device, state.state)  # kept from the device's first draw
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
            result=None,
            source=frames.here(self.paths),
            # Autograd made the node of this call above the mode, so the node has the number before this one
            # (`Echoes.note_call`).
            seq=next_sequence_number(),
            node=None if node is None else sequence_number(node),
            state=state,
            state_after=None,
            own=generator is not None,
            sums=node is not None and node.name() == "torch::autograd::AccumulateGrad",
            grad=grad,
        )

    def _with_label(self, func: Any, args: Any, placed_args: Any) -> Any:
        """Return `placed_args`, the StorageViews of the arguments of a collective, with the label of its process group
        in the place of the group's name, and remember which ranks the group has. The label is the group's name in a
        graph, which says what the group is."""
        position = GROUP_POSITIONS[collective_name(func)]
        label = label_of(args[position])
        self.tape.groups[label] = members_of(args[position])
        return (*placed_args[:position], label, *placed_args[position + 1 :])

    def _add_stand_in(self, fake: Tensor, real: Tensor) -> None:
        """Give a fake tensor the memory on the tape of the real tensor from outside that it replaces."""
        self._reserved_ids.append(StorageWeakRef(fake.untyped_storage()))
        self.memories[storage_id(fake.untyped_storage())] = self.memories[storage_id(real.untyped_storage())]

    def _guard_values_of(self, tensors: list[Tensor]) -> None:
        """Record that these tensors have the values that they have now, except sparse ones.

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
        """Return the StorageView of an argument of a call; enter an argument whose memory is not on the tape yet.

        `writes` says that the operator writes to an argument, `recorded_by_autograd` that the forward calls it in grad
        mode, so that a detached argument is marked.
        """
        keys = [storage_id(storage) for storage in storages(tensor)]
        # The last storage of a sparse tensor has its values; of a strided tensor it is the only one.
        key_of_values = keys[-1]
        if key_of_values in self.filled:
            self.enter_unwritten(tensor, key_of_values)
        # `spans` has the known part of each storage of the caller's: a tensor beyond it is another one, from outside.
        if key_of_values not in self.memories or (
            key_of_values in self.external.spans and self.external.is_outside_span(tensor)
        ):
            self.enter_unknown_tensor(func, tensor, writes)
        for part, key in zip(strided_parts(tensor), keys, strict=True):
            if key not in self.memories:
                self._enter_constant(part)  # indices that a kernel made for values of the program
            elif writes:
                self.external.keep_content(key)  # of memory of the caller's, to restore it after the run
        place = self.place(tensor)
        if not recorded_by_autograd or place.layout is not STRIDED:
            return place
        return place._replace(detached=True) if self.edges.is_detached(func, tensor) else place

    def enter_unknown_tensor(self, func: Any, tensor: Tensor, writes: bool) -> None:
        """Enter a tensor whose memory is not on the tape: as a constant if `torch.tensor` made it, else as a port for a
        tensor from outside.

        A tensor from outside that only the backward uses is a constant too, because the forward has no port for it.
        """
        if func is torch.ops.aten.lift_fresh.default:  # the one operator that `torch.tensor` calls on a new tensor
            self._enter_constant(tensor)
            return
        key = self.enter_outside_tensor(func, tensor)
        if self.tape.boundary is not None:
            # A buffer that is written to is entered with its whole storage, because the next call may write to another
            # part of it.
            whole = _whole_storage(tensor) if writes else tensor
            self.external.add_span(whole)
            self._enter_constant(whole)
            return
        self.add_port(key, tensor)

    def enter_outside_tensor(self, func: Any, tensor: Tensor) -> str:
        """Enter a tensor from outside, and return its key, `outside N`. The program may give a sparse one other indices
        and values; `restore` puts the former ones back."""
        if tensor.layout is torch.strided:
            self.external.refuse(tensor)  # if it is of a subclass, or its storage is freed
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
        """Note that a storage of 0 bytes is resized, as FSDP2 does for gathered parameters: its bytes are new, and
        nobody has written them."""
        self.filled.add(storage_id(storage))

    def enter_unwritten(self, tensor: Tensor, key: int) -> None:
        """Give a storage that was resized from 0 bytes a new number, and record a call of `empty_strided` that makes
        all of its elements. `key` is the identity of the storage."""
        self.filled.discard(key)
        self.memories.pop(key, None)
        self.add_memory(tensor)
        elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        place = self.place(tensor)._replace(shape=(elements,), stride=(1,), offset=0)
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        empty = torch.ops.aten.empty_strided.default
        source = frames.here(self.paths)
        self.tape.calls.append(
            TapedCall(
                empty,
                args=((elements,), (1,)),  # size and strides
                kwargs=kwargs,
                result=place,
                source=source,
                seq=next_sequence_number(),
                node=None,
            )
        )

    def begin_backward(self) -> None:
        """Record the calls from here on as the backward."""
        self.tape.boundary = len(self.tape.calls)

    def restore(self) -> None:
        """Restore the caller's tensors that the run has changed: the parts of sparse ones, memory, and gradients."""
        for tensor, before in self._shells:
            if self.place(tensor) != self.place(before):
                tensor.data = before
        self.external.restore()


def _whole_storage(tensor: Tensor) -> Tensor:
    """Return all elements of a tensor's storage as one flat tensor: a bucket of DDP is used part by part, in any order.

    The tensor itself is returned if it is sparse, conjugated or negated, or if the bytes of its storage are no whole
    number of elements.
    """
    storage = tensor.untyped_storage() if tensor.layout is torch.strided else None
    if storage is None or tensor.is_conj() or tensor.is_neg() or storage.nbytes() % tensor.element_size():
        return tensor
    return tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)


def _working_on_memory_of_results(taped: TapedCall, placed_result: Any) -> TapedCall:
    """Return a call without the marks `detached` of the arguments whose memory its result is in.

    Such a result is a view of the argument, or the updated argument itself: the call works on the memory, and not on a
    value that is read through `detach`.
    """
    detached = {place.memory for place in placements(taped.args, taped.kwargs) if place.detached}
    if not detached:
        return taped
    # A call that returns nothing may have written to any of its arguments.
    memories = detached if placed_result is None else {place.memory for place in placements(placed_result)}
    args, kwargs = _without_detached_marks((taped.args, taped.kwargs), memories)
    return taped._replace(args=args, kwargs=kwargs)


def _without_detached_marks(value: Any, memories: Collection[int]) -> Any:
    """Clear `detached` in the StorageViews among nested arguments whose memory is one of these."""
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
    """Return the generator that a draw was passed; None if it draws from its device's default generator."""
    return kwargs.get("generator") or next((arg for arg in args if isinstance(arg, torch.Generator)), None)


def _generator_state_of_draw(generator: torch.Generator | None, args: Any, kwargs: Any) -> GeneratorState:
    """Return the present state of the generator that a draw was passed; without one (None), of the default generator of
    the device that the arguments are on."""
    device = _drawing_device(args, kwargs) if generator is None else generator.device
    if generator is not None:
        state = generator.get_state()
    elif device.type in ("cpu", "meta"):
        state = torch.get_rng_state()
    else:
        state = torch.get_device_module(device).get_rng_state(device)
    return GeneratorState(str(device), state_bytes(state))


def _advance_generator(generator: torch.Generator | None) -> None:
    """Advance a generator (None: the CPU's default one), because a draw of fake tensors does not. So each draw of a
    fake run has a state of its own, as in a run with values."""
    with without_modes():
        torch.empty(1).uniform_(generator=generator)


def _drawing_device(args: Any, kwargs: Any) -> torch.device:
    """Return the device that an operator runs on: its `device` argument, or the device of its tensors."""
    device = kwargs.get("device") or next(
        (leaf.device for leaf in iter_leaves(args) if isinstance(leaf, Tensor)), "cpu"
    )
    return with_device_index(torch.device(device))


def own_generators() -> dict[str, bytes]:
    """Return the state of the default generator of each device in use, by device."""
    states = random_states()
    generators = {"cpu": states.cpu, **{f"cuda:{index}": state for index, state in enumerate(states.cuda)}}
    return {device: state_bytes(state) for device, state in generators.items()}


LEAF_TYPES = frozenset({bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout})
"""Types of arguments that are no tensors and hold none."""


def _placements_for_tensors(value: Any, placement: Callable[[Tensor], StorageView]) -> Any:
    """Return nested arguments or results with StorageViews in the place of tensors; `placement` returns the StorageView
    of one tensor."""
    kind = type(value)
    # Exact types first: this runs for every argument of every call.
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
