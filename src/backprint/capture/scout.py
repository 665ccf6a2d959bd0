"""One eager run, watched: what the program takes from outside, what it changes, and where tracing has to be told.

The watcher is a dispatch mode, so it sees the operators that really run. A tensor whose memory nobody made during the
run comes from outside (a closure, a global, a plain attribute); if the program writes to it, its bytes are put back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, UnsupportedOperatorException
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from backprint.capture import frames
from backprint.capture.custom import is_composite, listed, taken_apart, through
from backprint.capture.fake import UNKNOWN_VALUES, World
from backprint.capture.keep import given_away, put_bytes
from backprint.capture.program import SPARSE, Named, Outcome, Program, free_name, hooks_of
from backprint.capture.reach import kept_gradients, names_of_outside, roots, tensors_of
from backprint.capture.witness import step
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.nouns import Guard, OpaqueEdge, Source
from backprint.settings import quiet_random
from backprint.tree import FLAGS, alias_groups, parts, plain_leaves

RANDOM = "the random seed"
"""What a value hangs on when it comes from a random draw."""

SEED = 0
"""The seed that a program draws from when it is captured and proved: its guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics although their schema, or the tensors' version, does not say so."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where the program read values: an operator whose result's value or size is not known from shapes."""

    operator: str
    source: Source | None
    inputs: tuple[str, ...]
    result: Any


@dataclass(slots=True)
class Sighting:
    """What a watched run showed."""

    outside: list[Tensor] = field(default_factory=list)
    asking: dict[int, bool] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    threads: list[Source | None] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    opaque: list[OpaqueEdge] = field(default_factory=list)
    unseen: list[tuple[str, Source | None]] = field(default_factory=list)
    assigned: list[Source | None] = field(default_factory=list)
    silent: bool = False
    accumulates: bool = False
    reentrant: bool = False
    casts: int = 0
    outcome: Outcome | None = None
    packs: list[Source | None] = field(default_factory=list)
    raised: list[tuple[str, Source | None]] = field(default_factory=list)
    given: dict[int, str] = field(default_factory=dict)
    flags: dict[tuple[str, str], tuple[Any, Source | None]] = field(default_factory=dict)
    begun: dict[tuple[str, str], Any] = field(default_factory=dict)


SET_DATA = Tensor.data.__set__
"""The function that modes see where a program assigns to a tensor's `.data`."""


class Watch(TorchDispatchMode):
    """Sees every operator of a run; a higher-order one as a whole, its body runs unseen."""

    supports_higher_order_operators = True

    def ignore_compile_internals(self) -> bool:
        """Eager runs higher-order operators through Dynamo, which is let in where nothing of the user's is compiled."""
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

    def know(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Watch:
        """These are the program's own tensors; those in `callers` lie in the caller's own memory."""
        self.seen.given = {id(tensor): name for name, tensor in named.items()}
        for name, tensor in named.items():
            self.learn(tensor, frozenset((name,)))
            if not tensor.is_inference():
                self.seen.begun |= {(name, key): FLAGS[key](tensor) for key in CHANGED}
            if name in callers:
                self.callers |= {storage._cdata: storage for storage in storages(tensor)}
                self.widen(tensor)
        return self

    def widen(self, tensor: Tensor) -> None:
        """This part of the caller's memory is known to be the program's."""
        if tensor.layout is torch.strided and (key := tensor.untyped_storage()._cdata) in self.callers:
            low, high = span(tensor)
            known = self.spans.get(key, (low, high))
            self.spans[key] = min(low, known[0]), max(high, known[1])

    def beyond(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in the caller's memory and reaches further than what is known of it.

        An argument may be a view of a tensor that the program takes from outside.
        """
        if tensor.layout is not torch.strided or (key := tensor.untyped_storage()._cdata) not in self.spans:
            return False
        low, high = span(tensor)
        return low < high and (low < self.spans[key][0] or high > self.spans[key][1])

    def learn(self, tensor: Tensor, names: frozenset[str]) -> None:
        """Remember a tensor's memory, and the inputs it hangs on."""
        storage = tensor.untyped_storage()
        self.alive.append(StorageWeakRef(storage))
        self.taint[storage._cdata] = self.taint.get(storage._cdata, frozenset()) | names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_number_read(func, args):
            return args[0]
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        given = [leaf for leaf in plain_leaves(args, kwargs) if isinstance(leaf, Tensor)]
        if self.world is None and any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in given):
            return func(*args, **kwargs)  # a higher-order operator finds out shapes: no value of the program's
        for tensor in given:
            if tensor.layout in SPARSE:
                raise CaptureError(self.sparse(func, tensor, "takes"))
            if not _dense(tensor):
                continue  # a jagged one is refused where it is made: to raise while torch asks its size would abort
            self.meet(func, tensor, not isinstance(func, HigherOrderOperator) and writes(func))
        names = frozenset().union(*(self.taint[tensor.untyped_storage()._cdata] for tensor in given if _dense(tensor)))
        if isinstance(func, HigherOrderOperator):
            return self.follow(func(*args, **kwargs), names)
        if torch.Tag.nondeterministic_seeded in func.tags:
            names |= {RANDOM}
        self.judge(func, given)
        self.seen.casts += func is torch.ops.aten._to_copy.default and given[0].is_leaf and given[0].requires_grad
        node = torch._C._current_autograd_node()
        adds = node is not None and node.name() == "torch::autograd::AccumulateGrad"
        self.seen.accumulates |= adds and func.namespace != "prim"  # autograd asks a fake tensor for its device there
        if self.world is not None and any(id(tensor) in self.met for tensor in given):
            args, kwargs = pytree.tree_map_only(Tensor, self.stand_in, (args, kwargs))
        try:
            result = func(*args, **kwargs)
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
        count_writes(func, args)
        for leaf in plain_leaves(result):
            refuse_nested(func, leaf, self.paths)
            if isinstance(leaf, Tensor) and _dense(leaf):
                self.learn(leaf, names)
                self.widen(leaf)
            elif isinstance(leaf, Tensor):
                raise CaptureError(self.sparse(func, leaf, "gives"))
        if reads_values(func):
            if func in SIZED:
                sizing = [leaf for leaf in plain_leaves(args[SIZED[func]]) if isinstance(leaf, Tensor)]
                names = frozenset().union(*(self.taint[tensor.untyped_storage()._cdata] for tensor in sizing))
            self.seen.readings.append(Reading(str(func), frames.here(self.paths), tuple(sorted(names)), result))
        return result

    def follow(self, result: Any, names: frozenset[str]) -> Any:
        """The result of an operator, whose tensors hang on these names."""
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.learn(leaf, names)
        return result

    def stand_in(self, tensor: Tensor) -> Tensor:
        """In a world, what runs in the place of a tensor from outside; any other tensor itself."""
        key = id(tensor)
        if key not in self.stand_ins and key in self.met:
            assert self.world is not None
            self.stand_ins[key] = self.world.stand_in(tensor)
            self.learn(self.stand_ins[key], self.taint[tensor.untyped_storage()._cdata])
        return self.stand_ins.get(key, tensor)

    def sparse(self, func: Any, tensor: Tensor, verb: str) -> str:
        """Why a program with sparse tensors is refused, and where it makes one."""
        where = frames.here(self.paths)
        place = f" at {where.file}:{where.line}: {where.code!r}" if where else ""
        kind = str(tensor.layout)[6:]
        return (
            f"{func} {verb} a {kind} tensor{place}: tracing would lose its gradients; "
            "engine='eager' takes sparse tensors, or keep that part outside, or dense"
        )

    def meet(self, func: Any, tensor: Tensor, written: bool) -> None:
        """A tensor of unknown memory comes from outside. The caller's memory is kept before the first write to it."""
        if self.world is None and type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            place = frames.place(frames.here(self.paths))
            raise CaptureError(f"the program works on a {type(tensor).__name__}{place}, which tracing cannot watch")
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.taint and func is torch.ops.aten.lift_fresh.default:
            self.learn(tensor, frozenset())  # what torch.tensor([...]) made just now
        if key not in self.taint or self.beyond(tensor):
            self.callers[key] = storage
            self.widen(tensor)
            self.seen.outside.append(tensor)
            self.seen.asking[id(tensor)] = asks(tensor)
            self.met.add(id(tensor))
            self.versions.append((tensor, tensor._version))
            if tensor.is_leaf:
                unread = tensor.grad is None or self.world is not None
                self.grads.append((tensor, tensor.grad, None if unread else tensor.grad.clone()))
            self.learn(tensor, frozenset((f"outside {len(self.seen.outside) - 1}",)))
        if written and key in self.callers and key not in self.undo and self.world is None:
            self.undo[key] = storage.clone()

    def judge(self, func: Any, given: list[Tensor]) -> None:
        """Note silent writers, and edges that autograd of the plain forward would not have."""
        if func._schema.name in SILENT_WRITERS:
            self.seen.silent = True
        if torch.is_grad_enabled() or func._schema.name == "aten::detach" or func._schema.is_mutable:
            return
        if not self.seen.opaque and any(asks(tensor) for tensor in given):
            where = frames.here(self.paths)
            self.seen.opaque.append(OpaqueEdge("no_grad", f"{func} runs with gradients off", where))

    def judge_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        """Custom autograd Functions among the nodes behind the outputs are opaque edges."""
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
        """Which tensors from outside the run has written to."""
        self.seen.written = {id(tensor) for tensor, version in self.versions if tensor._version != version}

    def restore(self) -> None:
        """Put back the bytes of the caller's memory that the run wrote to, and the gradients of outside tensors."""
        for key, before in self.undo.items():
            put_bytes(self.callers[key], before)
        for tensor, version in self.versions:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        for tensor in self.seen.outside:
            if not self.seen.asking.get(id(tensor), True) and asks(tensor):  # an update has tied it to the run
                (tensor._base if tensor._is_view() else tensor).detach_()
        for tensor, gradient, content in self.grads:
            tensor.grad = gradient
            if gradient is not None and content is not None and _dense(gradient):
                gradient.data.copy_(content)
            elif gradient is not None and content is not None:
                gradient.data = content


class HookWatch(TorchFunctionMode):
    """Sees a program put hooks on its tensors, whose work is not in the plain forward, and read values unseen."""

    def __init__(self, seen: Sighting, paths: Mapping[int, str], rewrite: bool = True) -> None:
        super().__init__()
        self.seen, self.paths, self.rewrite = seen, paths, rewrite

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == SET_DATA:
            self.seen.assigned.append(frames.here(self.paths))
        if func is Tensor.register_hook:
            self.seen.opaque.append(OpaqueEdge("hook", "a tensor hook", frames.here(self.paths)))
        if func in ASKED and id(args[0]) in self.seen.given and frames.called_by_user():
            asked = self.seen.given[id(args[0])], ASKED[func]
            with torch._C.DisableTorchFunction():
                value = self.seen.begun[asked] if asked in self.seen.begun else FLAGS[ASKED[func]](args[0])
            self.seen.flags.setdefault(asked, (value, frames.here(self.paths)))
        if unseen := unseen_reads(func, args, kwargs):
            self.seen.unseen.append((func.__name__, frames.here(self.paths)))
            for tensor in unseen:
                given_away(tensor)
        if func is Tensor.__deepcopy__:
            return copied_deeply(*args)
        if self.rewrite:
            func, args, kwargs = rewritten(func, args, kwargs)
        return through(self, func, args, kwargs or {})


class Opener(HookWatch):
    """Opens higher-order operators into the operators that they really run, above autograd."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        body = None
        if isinstance(func, torch._ops.HigherOrderOperator):
            body = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if func is Tensor.tolist:
            func = listed
        else:
            for tensor in unseen_reads(func, args, kwargs):
                self.hold(func, tensor)
        if body is None:
            return super().__torch_function__(func, types, args, kwargs)
        with unaware(), self:
            return body(*args, **(kwargs or {}))

    def hold(self, func: Any, tensor: Tensor) -> None:
        """What is read is taken for granted, all of it: a step of the graph compares it."""
        if torch._C._current_autograd_node() is not None and func in TO_NUMPY:
            raise CaptureError(
                f"a backward computes through {func.__name__}{frames.place(frames.here(self.paths))}, which no "
                "graph holds: write it with torch, or as a custom operator (torch.library)"
            )
        with torch.no_grad():
            with _disable_current_modes():
                read = tensor.detach().clone()
            torch.equal(tensor.detach(), read)


def copied_deeply(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy` of a tensor by operators, which a graph can hold."""
    if id(tensor) in memo:
        return memo[id(tensor)]
    if (
        not tensor.is_leaf
        or type(tensor) not in (Tensor, nn.Parameter, nn.Buffer)
        or tensor.layout is not torch.strided
    ):
        return Tensor.__deepcopy__(tensor, memo)
    made = tensor.detach().clone()
    made = nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
    made.requires_grad_(tensor.requires_grad)
    made.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    if tensor.grad is not None:
        made.grad = copied_deeply(tensor.grad, memo)
    memo[id(tensor)] = made
    return made


@contextlib.contextmanager
def unaware() -> Iterator[None]:
    """Higher-order operators' eager forms refuse to run under a mode; here they do not see that there is one."""
    name, ours = "_get_current_dispatch_mode", threading.get_ident()
    heads = ("torch._higher_order_ops", "torch.utils._python_dispatch")
    rooms = [room for key, room in list(sys.modules.items()) if key.startswith(heads)]
    before = [(room, getattr(room, name)) for room in rooms if hasattr(room, name)]
    for room, function in before:
        setattr(room, name, lambda plain=function: None if threading.get_ident() == ours else plain())
    try:
        yield
    finally:
        for room, function in before:
            setattr(room, name, function)


ASKED: dict[Any, str] = {
    Tensor.requires_grad.__get__: "requires_grad",
    Tensor.is_leaf.__get__: "is_leaf",
    Tensor.grad.__get__: "has a gradient",
    Tensor.grad_fn.__get__: "has a grad_fn",
    Tensor._version.__get__: "version",
    Tensor._base.__get__: "is a view",
    Tensor._is_view: "is a view",
    Tensor.is_conj: "is conjugated",
    Tensor.is_neg: "is negated",
    Tensor.storage_offset: "storage offset",
    Tensor.untyped_storage: "bytes of storage",
    Tensor.storage: "bytes of storage",
}
"""What a program asks of an argument by these functions, as FLAGS calls it."""


CHANGED = ("has a gradient", "version")
"""What a program itself changes of an argument: a guard is about what it was before."""


def flag_guards(program: Program, seen: Sighting) -> tuple[Guard, ...]:
    """What the user's code asked of its arguments, beside their values, shapes and strides, as guards."""
    return tuple(
        Guard("flag", f"{name}: {key} == {value!r}", (name,), source)
        for (name, key), (value, source) in seen.flags.items()
        if name in program.values
    )


TO_NUMPY = (Tensor.numpy, Tensor.__array__)
"""What gives a tensor's values to numpy."""

UNSEEN = (Tensor.tolist, *TO_NUMPY, Tensor.__repr__, Tensor.__reduce_ex__, Tensor.__dlpack__)
"""What reads a tensor's values without running an operator."""

ADDRESSED = (Tensor.data_ptr, Tensor.storage, Tensor.untyped_storage)
"""What lets the user's own code read a tensor's memory; torch's own asks for it all the time."""

MAKERS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
"""What reads the tensors in a list below all modes."""

INSIDE = (
    torch.tensor_split, Tensor.tensor_split, torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu,
    torch._pack_padded_sequence, torch._pad_packed_sequence, torch.hsplit, torch.vsplit, torch.dsplit,
)  # fmt: skip
"""What reads whole numbers among its tensors (lengths, places, batch sizes) inside of a kernel."""


def unseen_reads(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors whose values a function reads where no operator shows it."""
    if func in UNSEEN or (func in ADDRESSED and frames.called_by_user()):
        return [] if frames.printing() else [args[0]]
    if func in MAKERS:
        nested = args[1:2] if func is Tensor.new_tensor else args[:1]
        return [leaf for leaf in plain_leaves(*nested) if isinstance(leaf, Tensor) and leaf is not nested[0]]
    if func in INSIDE:
        leaves = plain_leaves(args, kwargs or {})
        return [leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_floating_point()]
    return []


def rewritten(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """A torch function and its arguments as tracing can take them.

    The lengths of `ctc_loss` are tensors, not lists, and a list is read one number after the other, as tracing does.
    """
    kwargs = dict(kwargs or {})
    if func is Tensor.tolist:
        return listed, args, kwargs
    if func not in CTC_LOSSES:
        return func, args, kwargs
    made = [
        torch.tensor(value) if index in (2, 3) and isinstance(value, (list, tuple)) else value
        for index, value in enumerate(args)
    ]
    for name in ("input_lengths", "target_lengths"):
        if isinstance(kwargs.get(name), (list, tuple)):
            kwargs[name] = torch.tensor(kwargs[name])
    return func, tuple(made), kwargs


def unknown(reading: Reading) -> str:
    """Why a program that reads values is not captured without values, where it does, and what to do."""
    hangs = f" (it hangs on {', '.join(reading.inputs[:6])})" if reading.inputs else ""
    return (
        f"{reading.operator} reads values, which a fake capture does not have{frames.place(reading.source)}{hangs}. "
        "Pass small real inputs and specialise=True to take their values and keep them as guards, "
        "or capture without fake=True"
    )


CTC_LOSSES = (torch.ctc_loss, torch.nn.functional.ctc_loss)


def refuse_nested(func: Any, result: Any, paths: Mapping[int, str]) -> None:
    """Refuse an operator that gives a nested tensor, where it does so."""
    if isinstance(result, Tensor) and result.is_nested and result.layout is torch.strided:
        raise CaptureError(
            f"{func} gives a nested tensor{frames.place(frames.here(paths))}, which no engine takes: pad it, or keep "
            "that part outside"
        )


def count_writes(func: Any, args: Any) -> None:
    """Note the writes of an operator on lists in its tensors' versions, which torch leaves out below a mode.

    Views of what was written are new autograd nodes from then on, so gradients hang on it.
    """
    if func._schema.is_mutable and func._schema.name.startswith("aten::_foreach_"):
        torch.autograd.graph.increment_version(args[0])


def asks(tensor: Tensor) -> bool:
    """Whether a tensor, or what it is a view of, asks for a gradient: to ask a changed view makes it a new node."""
    return bool((tensor._base if tensor._is_view() else tensor).requires_grad)


def storages(tensor: Tensor) -> list[Any]:
    """The storages that a tensor's elements lie in: a sparse one has several, that of its values last."""
    return [part.untyped_storage() for part in parts(tensor)]


def span(tensor: Tensor) -> tuple[int, int]:
    """The bytes of its storage that a tensor lies in: the first, and one past the last."""
    size = tensor.element_size()
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset() * size
    return first, first + (reach + 1) * size if tensor.numel() else first


def _dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def writes(func: Any) -> bool:
    """Whether an operator changes an argument."""
    return bool(func._schema.is_mutable or func._schema.name in SILENT_WRITERS)


def is_number_read(func: Any, args: Any) -> bool:
    """Whether an operator reads a number that TorchScript keeps in a tensor: modes are handed the number itself."""
    return func is torch.ops.aten._local_scalar_dense.default and not isinstance(args[0], Tensor)


CHECK = torch.ops.aten._linalg_check_errors.default
"""The operator that raises where a decomposition has not come through."""

CHECKS = frozenset({CHECK, torch.ops.aten._assert_async.default, torch.ops.aten._assert_async.msg})
"""Operators that give nothing, and raise where a value is not as it should be."""


SIZED = {
    torch.ops.aten.index.Tensor: 1,
    torch.ops.aten.masked_select.default: 1,
    torch.ops.aten._ctc_loss.Tensor: 3,
}
"""Operators whose result has a size that one argument alone decides: a mask, not what it is laid on; lengths."""


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator's result, or whether it raises, is not known from its arguments' shapes."""
    return func in CHECKS or torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def scout(program: Program) -> tuple[Program, Sighting]:
    """Run the program once on copies of its own values; the Program with its outside tensors, and what was seen."""
    try:
        watch, outcome = watched(program)
    except RuntimeError as error:
        if type(error).__module__ == "torch._dynamo.exc":
            raise CaptureError(
                f"{program.title} compiles a part of itself with torch.compile while it runs, which cannot be watched: "
                f"{str(error)[:300]}"
            ) from error
        if "leaf Variable" not in str(error):
            raise
        asking = frozenset(named.name for named in program.tensors if named.requires_grad)
        watch, outcome = watched(replace(program, shields=asking, cloned=asking))
    found = with_outside(program, watch.seen)
    refuse_effects(program, watch.seen, outcome.left)
    refuse_aliases(program, outcome)
    refuse_layouts(program, outcome.outputs)
    called = {f"outside {index}": named.name for index, named in enumerate(found.tensors[len(program.tensors) :])}
    watch.seen.readings = [
        replace(reading, inputs=tuple(called.get(name, name) for name in reading.inputs))
        for reading in watch.seen.readings
    ]
    watch.seen.opaque += [OpaqueEdge("hook", f"{name} has a gradient hook") for name in found.hooks]
    wanted = {named.name for named in found.tensors if named.requires_grad}
    groups = [group for group in alias_groups(plain_own(found)) if set(group) & set(outcome.mutations)]
    shared = {name for group in groups for name in group}
    if strangers := sorted(shared - set(program.values)):
        raise CaptureError(
            f"{', '.join(sorted(shared)[:4])} share memory and one of them is changed in place; {strangers[0]} is no "
            "argument, so tracing would take them apart: engine 'eager' keeps them together, or pass copies"
        )
    if shared & wanted:
        raise CaptureError(
            f"inputs {', '.join(sorted(shared))} share memory, one is changed in place and one asks for a gradient: "
            "pass copies, or leave requires_grad off for them"
        )
    changed = frozenset(name for name in outcome.mutations if name in wanted)
    found = replace(
        found,
        shields=changed | outcome.tangled | frozenset(found.hooks),
        cloned=changed | outcome.tangled,
        silent=watch.seen.silent,
        accumulates=watch.seen.reentrant,
        changed=frozenset(outcome.mutations)
        | {name for name, tensor in found.outside.items() if id(tensor) in watch.seen.written},
        assembled=_groups(program, shared),
    )
    watch.seen.outcome = outcome
    return found, watch.seen


def unheld(seen: Sighting, unforeseen: Sequence[str]) -> tuple[str, ...]:
    """The reads of values that a trace has no step to check by, in words; a `tolist` is rewritten into steps."""
    said = [
        f"Tensor.{function} reads values{frames.place(source)} where no operator shows it"
        for function, source in seen.unseen
        if function != "tolist"
    ]
    return (*said, *(f"{operator} reads values inside an operator or its backward" for operator in unforeseen))


def refuse_aliases(program: Program, outcome: Outcome) -> None:
    """Refuse a program that writes to a tensor which it also holds as a view, or under another name."""
    reached = dict(tensors_of(program.target())) if outcome.made else {}
    found = {name: tensor for name, tensor in reached.items() if name in outcome.made and _dense(tensor)}
    memories = {storage._cdata for tensor in plain_own(program).values() for storage in storages(tensor)}
    for name in sorted(name for name, tensor in found.items() if tensor.untyped_storage()._cdata in memories):
        raise CaptureError(
            f"{program.title} writes to memory that it also holds as {name}: tracing would lose that; engine "
            "'eager' keeps it"
        )


def plain_own(program: Program) -> dict[str, Tensor]:
    """The program's own tensors that lie in memory."""
    return {name: tensor for name, tensor in program.own().items() if not isinstance(tensor, FakeTensor)}


def watched(program: Program) -> tuple[Watch, Outcome]:
    """One watched run, and the outside tensors as they were."""
    with kept_gradients(program.target()):
        return run_watched(program)


def run_watched(program: Program, kind: Callable[..., Watch] | None = None) -> tuple[Watch, Outcome]:
    """The run itself, under a Watch or one of a `kind`."""
    paths = module_paths(program)
    compiled = any(compiled_parts(program))
    watch = (kind or Watch)(paths, not compiled, program.world)
    still = replace(program, changed=frozenset())
    values = None if program.world is None else program.current()
    try:
        with quiet_random():
            torch.manual_seed(SEED)
            around = functools.partial(watching, program, watch.seen, paths, compiled)
            return watch, step(still, values, None, lambda ready: watch.know(ready, tuple(ready)), around)
    finally:
        watch.restore()


@contextlib.contextmanager
def watching(program: Program, seen: Sighting, paths: Mapping[int, str], compiled: bool) -> Iterator[None]:
    """What is in force around a program that is watched, beside the watch itself."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(frames.seeing_prints())
        stack.enter_context(HookWatch(seen, paths))
        stack.enter_context(seeing_packs(seen, paths))
        stack.enter_context(seeing_threads(seen, paths))
        if compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if program.world is not None:
            stack.enter_context(program.world.entered())
        stack.enter_context(no_seeding(program))
        yield


def refuse_strangers(program: Program, seen: Sighting, tensor: Tensor, names: Mapping[int, str]) -> None:
    """Refuse a tensor that another thread made while the program ran: what it hangs on was not seen."""
    if seen.threads and id(tensor) not in names:
        raise CaptureError(
            f"{program.title} starts a thread{frames.place(seen.threads[0])} and goes on with a tensor of it, whose "
            "making no engine sees: run that part in the thread that calls it"
        )
    if id(tensor) not in names and (shares := by_address(program, tensor)):
        raise CaptureError(
            f"{program.title} takes a tensor that lies in the memory of {shares} and is none of its views (made "
            "through dlpack, numpy or an address), so nothing follows it: use .detach() or a view"
        )
    if id(tensor) not in names and tensor.grad_fn is not None and seen.asking.get(id(tensor)):
        raise CaptureError(
            f"{program.title} takes a tensor of shape {list(tensor.shape)} that asks for a gradient from nowhere that "
            "can be named: another thread's, or made by code that runs no operators. Pass it as an argument"
        )


def by_address(program: Program, tensor: Tensor) -> str:
    """The name of one of the program's tensors in whose memory a tensor of another storage lies; '' where in none's."""
    if not _dense(tensor) or isinstance(tensor, FakeTensor) or tensor.is_meta:
        return ""
    storage = tensor.untyped_storage()
    for name, own in plain_own(program).items():
        for other in storages(own) if not own.is_meta else ():
            begin = storage.data_ptr() - other.data_ptr()
            if storage._cdata != other._cdata and -storage.nbytes() < begin < other.nbytes() and other.nbytes():
                return name
    return ""


@contextlib.contextmanager
def seeing_threads(seen: Sighting, paths: Mapping[int, str]) -> Iterator[None]:
    """Notes where a program starts threads."""
    before, ours = threading.Thread.start, threading.get_ident()

    def start(self: threading.Thread) -> None:
        if threading.get_ident() == ours:
            seen.threads.append(frames.here(paths))
        before(self)

    threading.Thread.start = start  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        threading.Thread.start = before  # type: ignore[method-assign]  # as it was


@contextlib.contextmanager
def seeing_packs(seen: Sighting, paths: Mapping[int, str]) -> Iterator[None]:
    """Notes where a program hooks what autograd saves; a checkpoint does so too, and is known otherwise."""
    kind = torch.autograd.graph.saved_tensors_hooks
    before, ours = kind.__enter__, threading.get_ident()

    def enter(self: Any) -> Any:
        if threading.get_ident() == ours and not type(self).__module__.startswith("torch.utils.checkpoint"):
            seen.packs.append(frames.here(paths))
        return before(self)

    kind.__enter__ = enter
    try:
        yield
    finally:
        kind.__enter__ = before


def refuse_effects(program: Program, seen: Sighting, made: Collection[str]) -> None:
    """Refuse a program that puts other data into tensors, hooks what is saved, leaves gradients or new state."""
    if seen.assigned:
        raise CaptureError(
            f"{program.title} assigns to a tensor's .data{frames.place(seen.assigned[0])}: tracing would lose "
            "that; use copy_ under torch.no_grad(), or engine 'eager', which keeps it"
        )
    if seen.packs:
        raise CaptureError(
            f"{program.title} hooks the tensors that autograd saves{frames.place(seen.packs[0])}: tracing would "
            "lose what the hooks do; engine 'eager' keeps it"
        )
    if seen.raised:
        operator, source = seen.raised[0]
        raise CaptureError(
            f"{operator} raises{frames.place(source)} and {program.title} goes on: tracing would lose what that "
            "depends on; engine 'eager' keeps it as a guard"
        )
    addressed = [each for each in seen.unseen if each[0] in ("storage", "untyped_storage", "data_ptr")]
    if addressed:  # a traced tensor has no memory to read: torch would end the process
        function, source = addressed[0]
        raise CaptureError(
            f"Tensor.{function} gives the program its memory{frames.place(source)}, which a traced tensor has not: "
            "engine 'eager' keeps what it reads as a guard"
        )
    if seen.accumulates or made:
        left = ", ".join(sorted(made)[:4]) or "gradients on its tensors"
        raise CaptureError(
            f"{program.title} runs backward itself and leaves {left}: tracing keeps what a program gives and "
            "changes, which these are not; engine 'eager' keeps them too"
        )


def refuse_layouts(program: Program, outputs: Mapping[str, Tensor]) -> None:
    """Refuse outputs that are no plain strided tensors."""
    for name, tensor in outputs.items():
        if (
            tensor.is_nested
            or tensor.layout is not torch.strided
            or type(tensor) not in (Tensor, nn.Parameter, FakeTensor)
        ):
            kind = str(tensor.layout)[6:] if tensor.layout is not torch.strided else type(tensor).__name__
            raise CaptureError(
                f"{program.title} gives {name} as a {kind} tensor: tracing keeps plain strided tensors; "
                "return its values"
            )


@contextlib.contextmanager
def no_seeding(program: Program) -> Iterator[None]:
    """Refuse a program that seeds random numbers itself: its graph draws from the caller's seed."""

    before = torch.manual_seed, torch.random.manual_seed, torch.initial_seed, torch.random.initial_seed
    ours = threading.get_ident()

    def refuse(seed: int) -> Any:
        if threading.get_ident() != ours:
            return before[0](seed)
        raise CaptureError(
            f"{program.title} calls torch.manual_seed({seed}) while it runs: a graph draws from its caller's seed. "
            "Seed outside of the captured call"
        )

    def refuse_read() -> int:
        if threading.get_ident() != ours:
            return before[2]()
        raise CaptureError(
            f"{program.title} reads torch.initial_seed() while it runs: a graph draws from its caller's seed, and "
            "does not know it. Pass the number as an argument"
        )

    torch.manual_seed = torch.random.manual_seed = refuse
    torch.initial_seed = torch.random.initial_seed = refuse_read
    try:
        yield
    finally:
        torch.manual_seed, torch.random.manual_seed, torch.initial_seed, torch.random.initial_seed = before


def _groups(program: Program, names: set[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(group for group in alias_groups(program.values) if set(group) & names)


def with_outside(program: Program, seen: Sighting) -> Program:
    """The Program with the tensors from outside among its named ones, asking for gradients as they did before."""
    outside, asking = seen.outside, seen.asking
    tensors, held = list(program.tensors), dict(program.outside)
    if program.defaulted and any(asking.get(id(tensor), tensor.requires_grad) for tensor in outside):
        tensors = [replace(named, requires_grad=False) for named in tensors]
    names = names_of_outside(program.target())
    modules = [value for _, value in roots(program.target()) if isinstance(value, nn.Module)]
    buffers = {id(buffer) for module in modules for buffer in module.buffers()}
    for tensor in outside:
        refuse_strangers(program, seen, tensor, names)
        name = free_name(names.get(id(tensor), f"constant_{len(held)}"), tensors)
        role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer" if id(tensor) in buffers else "constant"
        tensors.append(Named(name, role, asking.get(id(tensor), tensor.requires_grad)))
        held[name] = tensor
    hooks = {**program.hooks, **{name: tuple(hooks_of(tensor)) for name, tensor in held.items() if hooks_of(tensor)}}
    return replace(program, tensors=tuple(tensors), outside=held, hooks=hooks)


# ------------------------------------------------------------------ names of what stands outside


def module_paths(program: Program) -> dict[int, str]:
    """The path of every submodule that the program can run, by identity."""
    found: dict[int, str] = {}
    for root, value in roots(program.target()):
        if isinstance(value, nn.Module):
            for path, module in value.named_modules():
                found.setdefault(id(module), ".".join(part for part in (root, path) if part))
    return found


def compiled_parts(program: Program) -> Iterator[str]:
    """The names of what the program runs through a torch.compile of the user's."""
    for root, value in roots(program.target()):
        if hasattr(value, "_torchdynamo_inline"):
            yield root
        for path, module in value.named_modules() if isinstance(value, nn.Module) else ():
            if isinstance(module, torch._dynamo.OptimizedModule) or module._compiled_call_impl is not None:
                yield ".".join(part for part in (root, path) if part) or program.title
