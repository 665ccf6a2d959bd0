"""A Watch that also records every operator of a step on a tape, forward and backward."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch.autograd import current_node, next_sequence_number, sequence_number
from backprint._torch.modes import DisableTorchFunction
from backprint._torch.operators import HigherOrderOperator, name_of, schema_of
from backprint._torch.tensors import storage_id, version_of
from backprint.defects import for_program
from backprint.errors import CaptureError
from backprint.settings import random_states, state_bytes
from backprint.tracing import frames
from backprint.tracing.custom import is_composite, taken_apart
from backprint.tracing.eager.placement import Placement, flat, indexed, placements
from backprint.tracing.eager.tape import GeneratorState, Tape, TapedCall, TapeRoot
from backprint.tracing.facts import SILENT_WRITERS, count_writes, is_number_read
from backprint.tracing.watch import Watch, refuse_nested, storages
from backprint.tree import plain_leaves, strided_parts

STRIDED, EAGER = torch.strided, (False, False)


class Recorder(Watch):
    """A Watch that also records every operator, forward and backward."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # compiled functions run eagerly here, so Dynamo need not skip any call

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__(paths)
        self.tape = Tape(start=own_generators())
        self.memories: dict[int, int] = {}
        self.last_node: Any = None
        self.shells: list[tuple[Tensor, Tensor]] = []

    # -------------------------------------------------------------- where tensors lie

    def know(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Recorder:
        super().know(named, callers)
        for name, tensor in named.items():
            self.root(name, tensor)
        return self

    def root(self, key: str, tensor: Tensor) -> None:
        """Make a tensor a port of the graph."""
        place = self.place(tensor)
        self.tape.roots.setdefault(place.memory, []).append(TapeRoot(place, key))

    def forget(self, keys: Collection[str]) -> None:
        """Make these tensors no longer ports."""
        for memory, roots in list(self.tape.roots.items()):
            if any(root.key in keys for root in roots):
                del self.tape.roots[memory]

    def learn(self, tensor: Tensor, names: frozenset[str]) -> None:
        for storage in storages(tensor):
            key = storage_id(storage)
            if key not in self.taint:
                self.taint[key] = names
                self.alive.append(StorageWeakRef(storage))  # keeps its identity, but not its bytes
                self.memories[key] = len(self.memories)

    def place(self, tensor: Tensor) -> Placement:
        """Return the Placement of a tensor."""
        lies = tensor.dtype, tuple(tensor.shape)
        if tensor.layout is not torch.strided:
            places = tuple([self.place(part) for part in strided_parts(tensor)])
            memory = -1 - places[-1].memory
            coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
            return Placement(memory, *lies, None, 0, tensor.device, tensor.layout, (False, False), places, coalesced)
        key = storage_id(tensor.untyped_storage())
        if key not in self.memories:
            self.learn(tensor, frozenset())
        if not tensor.is_complex() and not tensor.is_neg():
            return Placement(
                self.memories[key], *lies, tensor.stride(), tensor.storage_offset(), tensor.device, STRIDED, EAGER
            )
        lazy = tensor.is_conj(), tensor.is_neg()
        stride, offset = tensor.stride(), tensor.storage_offset()
        return Placement(self.memories[key], *lies, stride, offset, tensor.device, tensor.layout, lazy)

    # -------------------------------------------------------------- writing down

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunction():  # these reads of tensors are ours, not the program's
            return self.written_down(func, types, args, kwargs or {})

    def written_down(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Run one operator and append it to the tape."""
        if any(kind not in PLAIN for kind in types):
            return NotImplemented
        if is_number_read(func, args):
            return args[0]
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        if func is torch.ops.aten._cudnn_rnn.default:
            args = (*args[:3], None, *args[4:])  # not the buffer in which the weights lie, which would stay behind them
        about = self.before(func, args, kwargs)
        try:
            result = for_program(func, *args, **kwargs)
        except RuntimeError:
            self.hold_all([leaf for leaf in flat(args, kwargs) if isinstance(leaf, Tensor)])
            raise
        if about is not None:
            self.after(about, args, kwargs, result)
        return result

    def before(self, func: Any, args: Any, kwargs: Any) -> TapedCall | None:
        """Return a call before it runs, without its result; None if it is not recorded."""
        facts = facts_of(func)
        if not facts.counts:
            return None
        node = current_node()
        followed = node is None and self.tape.boundary is None and torch.is_grad_enabled()
        taken, named = packed((args, kwargs), lambda tensor: self.taken(func, tensor, facts.writes, followed))
        generator = generator_of(args, kwargs) if facts.draws else None
        state = drawn_from(generator, args, kwargs) if facts.draws else None
        if state is not None and generator is None:
            self.tape.start.setdefault(state.device, state.state)  # this draw is the device's first
        if self.tape.boundary is None and not torch.is_grad_enabled():
            self.judge(func, args, kwargs, [leaf for leaf in flat(args, kwargs) if isinstance(leaf, Tensor)])
        if followed and facts.writes:
            self.judge_update(func, args, kwargs)
        source = frames.here(self.paths)
        return TapedCall(
            func,
            taken,
            named,
            None,
            source,
            next_sequence_number(),
            None if node is None else sequence_number(node),
            state,
            None,
            generator is not None,
            node is not None and node.name() == "torch::autograd::AccumulateGrad",
            torch.is_grad_enabled(),
        )

    def after(self, about: TapedCall, args: Any, kwargs: Any, result: Any) -> None:
        """Append a call that has run to the tape."""
        for leaf in plain_leaves(result):
            if isinstance(leaf, Tensor):
                refuse_nested(about.func, leaf, self.paths)
                self.widen(leaf)
        if facts_of(about.func).writes:
            count_writes(about.func, args)
        state = None if about.state is None else drawn_from(generator_of(args, kwargs), args, kwargs)
        placed = packed(result, self.place)
        given = {place.memory for place in placements(about.args, about.kwargs) if place.detached}
        if given:
            shared = given if placed is None else {place.memory for place in placements(placed)}
            taken, named = attached((about.args, about.kwargs), shared)
            about = about._replace(args=taken, kwargs=named)
        self.tape.calls.append(about._replace(result=placed, after=state))

    def hold_all(self, given: list[Tensor]) -> None:
        """Guard all arguments of an operator that raised, because the program may go on."""
        for tensor in given:
            if tensor.layout is torch.strided:
                read = tensor.detach().clone()
                self.constant(read)
                self.written_down(torch.ops.aten.equal.default, (), (tensor, read), {})

    def taken(self, func: Any, tensor: Tensor, writes: bool, followed: bool) -> Placement:
        """Return the Placement of an argument, of a call that autograd records or not; unknown memory comes from
        outside."""
        keys = [storage_id(storage) for storage in storages(tensor)]
        if keys[-1] not in self.taint or self.beyond(tensor):
            self.encounter(func, tensor, writes)
        for part, key in zip(strided_parts(tensor), keys, strict=True):
            if key not in self.taint:
                self.constant(part)  # indices that a kernel made for values of the program
            elif writes and key in self.callers and key not in self.undo:
                self.undo[key] = self.callers[key].clone()
        place = self.place(tensor)
        if not followed or place.layout is not STRIDED:
            return place
        return place._replace(detached=True) if self.is_detached(func, tensor) else place

    def encounter(self, func: Any, tensor: Tensor, writes: bool) -> None:
        """Handle a tensor of unknown memory: `torch.tensor` made a constant, any other comes from outside.

        A tensor that only the backward uses is a constant too: no argument of the forward stands for it.
        """
        if func is torch.ops.aten.lift_fresh.default:
            self.constant(tensor)
            return
        count = len(self.seen.outside)
        if tensor.layout is torch.strided:
            self.meet(func, tensor, writes)
        else:
            self.meet_sparse(tensor)
        if self.tape.boundary is not None:
            self.constant(tensor)
            return
        self.root(f"outside {count}", tensor)

    def constant(self, tensor: Tensor) -> None:
        """Note a tensor that the program's current line, or a kernel, has just made."""
        self.learn(tensor, frozenset())
        key = f"fresh {len(self.tape.constants)}"
        self.tape.constants[key] = tensor.detach().clone()
        self.root(key, tensor)

    def meet_sparse(self, tensor: Tensor) -> None:
        """Note a sparse tensor from outside: its bytes are kept before the first write, and its parts restored."""
        self.callers |= {storage_id(storage): storage for storage in storages(tensor)}
        self.learn(tensor, frozenset((f"outside {len(self.seen.outside)}",)))
        self.seen.outside.append(tensor)
        self.seen.asking[id(tensor)] = tensor.requires_grad
        self.versions.append((tensor, version_of(tensor)))
        self.shells.append((tensor, tensor.detach()))
        if tensor.is_leaf:
            self.grads.append((tensor, tensor.grad, None if tensor.grad is None else tensor.grad.clone()))

    def had_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor from outside still has the `.grad` that it had when it was first seen."""
        return any(each is tensor and tensor.is_leaf and gradient is tensor.grad for each, gradient, _ in self.grads)

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


def attached(value: Any, memories: Collection[int]) -> Any:
    """Clear `detached` of arguments that share memory with a call's result: a view, or an update in place."""
    if type(value) is Placement:
        return value._replace(detached=False) if value.detached and value.memory in memories else value
    if type(value) is tuple:
        return tuple([attached(item, memories) for item in value])
    if type(value) is list:
        return [attached(item, memories) for item in value]
    if type(value) is dict:
        return {key: attached(item, memories) for key, item in value.items()}
    return value


class Facts(NamedTuple):
    """Facts about an operator that recording needs: whether it is recorded, writes arguments, and draws."""

    counts: bool
    writes: bool
    draws: bool


@functools.cache
def facts_of(func: Any) -> Facts:
    """Return the Facts of an operator; raise for a higher-order one."""
    if isinstance(func, HigherOrderOperator):
        raise CaptureError(f"the higher-order operator {name_of(func)!r} cannot be opened into what it runs")
    silent = schema_of(func).name in SILENT_WRITERS
    draws = torch.Tag.nondeterministic_seeded in func.tags
    counts = func.namespace not in ("profiler", "_profiler")
    return Facts(counts, bool(schema_of(func).is_mutable or silent), draws)


PLAIN = frozenset({Tensor, torch.nn.Parameter, torch.nn.Buffer})


def generator_of(args: Any, kwargs: Any) -> torch.Generator | None:
    """Return the generator argument of a draw."""
    return kwargs.get("generator") or next((arg for arg in args if isinstance(arg, torch.Generator)), None)


def drawn_from(generator: torch.Generator | None, args: Any, kwargs: Any) -> GeneratorState:
    """Return the state of a draw's generator: its argument's, or that of its device."""
    device = drawing_device(args, kwargs) if generator is None else generator.device
    if generator is not None:
        state = generator.get_state()
    elif device.type in ("cpu", "meta"):
        state = torch.get_rng_state()
    else:
        state = torch.get_device_module(device).get_rng_state(device)
    return GeneratorState(str(device), state_bytes(state))


def drawing_device(args: Any, kwargs: Any) -> torch.device:
    """Return the device that an operator runs on: its argument, or that of its tensors."""
    given = kwargs.get("device") or next((leaf.device for leaf in flat(args) if isinstance(leaf, Tensor)), "cpu")
    return indexed(torch.device(given))


def own_generators() -> dict[str, bytes]:
    """Return the states of the generators of the devices in use."""
    states = random_states()
    found = {"cpu": states.cpu, **{f"cuda:{index}": state for index, state in enumerate(states.cuda)}}
    return {device: state_bytes(state) for device, state in found.items()}


LEAVES = frozenset({bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout})
"""Types of arguments that hold no tensors."""


def packed(value: Any, place: Callable[[Tensor], Placement]) -> Any:
    """Replace tensors by Placements in arguments or results."""
    kind = type(value)
    if kind in LEAVES:
        return value
    if kind is Tensor or isinstance(value, Tensor):
        return place(value)
    if kind is tuple:
        return tuple([packed(item, place) for item in value])
    if kind is list:
        return [packed(item, place) for item in value]
    if kind is dict:
        return {key: packed(item, place) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple([packed(item, place) for item in value])
    return value
