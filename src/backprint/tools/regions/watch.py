"""Watching open blocks: every autograd node and every operator is recorded while a block of a region is open.

Anomaly mode is on while a block is open, so torch calls `torch.fx.traceback.format_stack` whenever a node is made, in
the thread that makes it, and keeps the result in the node's metadata. That function is replaced while a block is open
anywhere; the result is a `_NodeTag`, by which a node is known later. A dispatch mode, in threads with an open block,
sees the operators. Blocks and living nodes are counted for the whole process, and the functions of torch are put back
with the last of them.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import math
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from backprint._torch.autograd import (
    ENGINES,
    anomaly_mode,
    anomaly_mode_checks_nan,
    engine_of,
    metadata_of_inputs,
    set_anomaly_mode,
    set_engine_of,
)
from backprint._torch.modes import (
    DisableTorchDispatch,
    ModeKey,
    TorchDispatchMode,
    innermost_dispatch_mode,
    mode_of_key,
    pop_mode,
    push_mode,
)
from backprint._torch.modules import code_of_calls
from backprint._torch.operators import schema_of
from backprint._torch.tensors import base_of
from backprint.common.names import free_name
from backprint.tools.regions.nouns import StackLine
from backprint.trace import frames
from backprint.trace.frames import is_users
from backprint.trace.reach import objects_held_by
from backprint.values.statistics import NARROW_DTYPES
from backprint.values.tree import plain_leaves

if TYPE_CHECKING:
    from backprint.tools.regions.context import RegionCore

# ---- Functions of torch that are replaced for the whole process, and put back
# While a block is open, these are the functions of anomaly mode, which users read and set as if it were their own.
# While a recorded node is alive, backward calls go through a function of ours.

_lock = threading.Lock()
_blocks = 0
_alive = 0
_users_anomaly = (False, True)
_replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}
_engines: dict[Any, tuple[Any, Any]] = {}

follow_backward: Any = None
"""Runs a backward call: `follow_backward(engine, roots, ...)`. The module `follow` sets it."""


def _apply_from_python(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand for `Function.apply` where that is a builtin (torch 2.14), which has no Python frame to be known by."""
    return BUILTIN.__get__(None, function)(*args, **kwargs)


BUILTIN: Any = None if hasattr(torch.autograd.Function.apply, "__code__") else vars(torch.autograd.Function)["apply"]
APPLY = (_apply_from_python.__code__, getattr(torch.autograd.Function.apply, "__code__", None))
"""The code of a frame in which a custom function's node is made, and its forward runs."""


def _count_blocks(by: int) -> None:
    """Count the open blocks. With the first, anomaly mode is turned on, unseen by the user, and torch calls
    `_record_new_node` for each new autograd node; with the last, torch's functions and the user's mode are back."""
    global _blocks, _users_anomaly
    with _lock:
        _blocks += by
        if by > 0 and _blocks == 1:
            _users_anomaly = (anomaly_mode(), anomaly_mode_checks_nan())
            _replace(torch, "set_anomaly_enabled", _set_users_anomaly)
            _replace(torch, "is_anomaly_enabled", lambda: _users_anomaly[0])
            _replace(torch, "is_anomaly_check_nan_enabled", lambda: _users_anomaly[1])
            _replace(fx_traceback, "format_stack", _record_new_node)
            if BUILTIN is not None:
                _replace(torch.autograd.Function, "apply", classmethod(_apply_from_python))
            _turn_anomaly_on()
        elif not _blocks:
            set_anomaly_mode(*_users_anomaly)
            for (owner, name), (theirs, ours) in _replaced.items():
                if vars(owner).get(name) is ours:  # else someone has replaced it since
                    setattr(owner, name, theirs)


def _replace(owner: Any, name: str, ours: Any) -> None:
    """Put a function of ours in the place of one of torch's."""
    _replaced[owner, name] = vars(owner)[name], ours
    setattr(owner, name, ours)


def _set_users_anomaly(enabled: bool, check_nan: bool = True) -> None:
    """Stand for `torch.set_anomaly_enabled` while a block is open: keep what the user wants, leave the mode on."""
    global _users_anomaly
    _users_anomaly = (bool(enabled), bool(check_nan))
    _turn_anomaly_on()


def _turn_anomaly_on() -> None:
    """Turn anomaly mode on; it checks for NaN only where the user has it on."""
    set_anomaly_mode(True, _users_anomaly[0] and _users_anomaly[1])


def _users_stack() -> list[str]:
    """Return the texts that torch would keep of a new node: its stack in the user's anomaly mode or in tracing, else
    none."""
    if not (_users_anomaly[0] or fx_traceback.should_preserve_node_meta):
        return []
    return [text for text in _replaced[fx_traceback, "format_stack"][0]() if __file__ not in text]


def _install_engine_hooks() -> None:
    """Have backward calls go through `follow_backward`."""
    with _lock:
        for module in ENGINES:
            if module not in _engines:
                theirs = engine_of(module)
                _engines[module] = theirs, functools.partial(follow_backward, theirs)
                set_engine_of(module, _engines[module][1])


def _uninstall_engine_hooks() -> None:
    """Put torch's engine back, except where someone else has replaced it since."""
    for module, (theirs, ours) in list(_engines.items()):
        if engine_of(module) is ours:
            set_engine_of(module, theirs)
            del _engines[module]


# ---- Records of operators, autograd nodes and Python stacks
# A record never keeps a node, a graph, a gradient or a module alive.

DEEPEST = 100
"""The most frames of a stack that are kept."""

Frames = tuple[tuple[CodeType, int], ...]


class OperatorRun:
    """An operator that ran: its name, its line, and the nodes that were made for it.

    `source` says where the NaN or Inf in its arguments or results come from; `bad_results`, that its results have some.
    `taken` is the argument that had them, and `title` the name of that argument.
    """

    __slots__ = ("bad_results", "frame", "name", "nodes", "rank", "source", "taken", "title", "unrun", "view")

    def __init__(self, func: Any, frame: tuple[CodeType, int] | None, nodes: tuple[NodeRecord, ...]) -> None:
        self.name, self.frame, self.nodes, self.view = str(func), frame, nodes, bool(func.is_view)
        self.rank: dict[int, int] = {}
        self.unrun: set[int] = set()  # the blocks, by identity, no pass of which has run its nodes
        self.source: NonfiniteSource | None = None
        self.bad_results = False
        self.taken: weakref.ref[Tensor] | None = None
        self.title = ""

    @property
    def packet(self) -> str:
        """`mul`, of `aten.mul_.Tensor`."""
        return self.name.split(".")[1].rstrip("_") if "." in self.name else self.name


class NodeRecord:
    """The record of an autograd node, without the node: its stack, and the operators run before, after and within it.

    `of` is the recorded node whose backward made it, if one did. `modules` are those whose forward was running, the
    innermost first.
    """

    __slots__ = ("after", "apply", "before", "frames", "modules", "of", "outputs", "seq", "within")

    def __init__(
        self, seq: int, frames: Frames, before: OperatorRun | None, of: tuple[str, NodeRecord] | None = None
    ) -> None:
        self.seq, self.frames, self.before, self.of = seq, frames, before, of
        self.after: list[OperatorRun] = []
        self.within: list[OperatorRun] = []
        self.apply: FrameType | None = None
        self.outputs: dict[int, str] = {}
        self.modules: tuple[weakref.ref[nn.Module], ...] = () if of is None else of[1].modules

    @property
    def stack(self) -> tuple[StackLine, ...]:
        """The Python stack, outermost first."""
        return tuple(stack_line(frame) for frame in reversed(self.frames))

    @property
    def line(self) -> StackLine | None:
        """The innermost line of the user's code."""
        frame_of_user = next((frame for frame in self.frames if is_users(frame[0].co_filename)), None)
        return stack_line(frame_of_user) if frame_of_user else None


@functools.lru_cache(maxsize=4096)
def stack_line(frame: tuple[CodeType, int]) -> StackLine:
    """Return the source line that a frame stood at."""
    code, place = frame
    line = next((line for start, end, line in code.co_lines() if start <= place < end and line), code.co_firstlineno)
    return StackLine(code.co_filename, line, code.co_qualname)


CALL = code_of_calls()
"""The frame in which torch runs a module's forward. Its variables are looked at, and never those of the user's frames:
that would make a copy of them, which keeps tensors alive."""


def _running_modules(frame: FrameType | None) -> tuple[weakref.ref[nn.Module], ...]:
    """Return the modules whose forward is running, the innermost first."""
    modules = []
    while frame is not None:
        if frame.f_code is CALL:
            variables = frame.f_locals
            modules.append(weakref.ref(variables["self"]))
            if sys.version_info < (3, 13):  # the frame keeps this dictionary, and so what it holds
                variables.clear()
        frame = frame.f_back
    return tuple(modules)


def _stack_frames(frame: FrameType | None, whole: bool) -> Frames:
    """Return the frames of a stack, innermost first; unless the `whole` is wanted, up to the first of the user's
    code."""
    frames: list[tuple[CodeType, int]] = []
    while frame is not None and len(frames) < DEEPEST:
        code = frame.f_code
        frames.append((code, frame.f_lasti))
        if not whole and is_users(code.co_filename):
            break
        frame = frame.f_back
    return tuple(frames)


# ---- Names of nodes and tensors
# A node is named after its operator and how many of it ran before (`mul`, `mul_1`), so the same program has the same
# names each time. A tensor has the name of its variable, a parameter its path in a module that the block's function can
# see, and any other tensor the name of the node that made it.

MOST = 2000
"""With so many values seen, no more containers are opened."""

OPAQUE = {
    "CompiledFunction": "compiled by torch.compile: what ran in it is not seen",
    "DifferentiableGraph": "a TorchScript graph: what ran in it is not seen",
}


def tag_of(node: Any) -> _NodeTag | None:
    """Return the tag of a node that was made in a block."""
    tag = node.metadata.get("traceback_")
    return tag if type(tag) is _NodeTag else None


def node_kind(node: Any) -> str:
    """Autograd's name for a node, without its namespace."""
    return _without_namespace(node.name())


@functools.cache
def _without_namespace(name: str) -> str:
    """`CopySlices`, of torch::autograd::CopySlices."""
    return name.rsplit("::", 1)[-1]


def is_leaf(kind: str) -> bool:
    """Whether a node accumulates into a tensor."""
    return kind == "AccumulateGrad"


@functools.cache
def _kind_stem(kind: str) -> str:
    """`mul`, of MulBackward0."""
    return kind.partition("Backward")[0].lower()


def operator_of(kind: str, record: NodeRecord) -> OperatorRun | None:
    """Return the operator that a node stands for: one that ran after the node was made, or the one just before."""
    wanted = _kind_stem(kind)
    for ran in (*record.after, record.before):
        if ran is not None and ran.packet.replace("_", "").lower() == wanted:
            return ran
    if kind == "CopySlices":
        return record.before
    return None


def operator_names(kind: str, record: NodeRecord) -> tuple[str, ...]:
    """Return the forward operators of a node; for a node that a backward made, those of the node whose backward it
    was."""
    if record.of is not None:
        return operator_names(*record.of)
    if record.within:
        return tuple(ran.name for ran in record.within)
    ran = operator_of(kind, record)
    if (
        ran is None
        and record.after
        and len(record.after[0].nodes) == 1
        and kind not in ("AccumulateGrad", "AsStridedBackward0")
    ):
        ran = record.after[0]
    return (ran.name,) if ran is not None else ()


def why_opaque(kind: str) -> str:
    """Why a node's operators are unknown; '' where they are known."""
    return next((why for name, why in OPAQUE.items() if name in kind), "")


def base_title(kind: str, record: NodeRecord | None, core: int) -> tuple[str, int | None]:
    """Return the base of an inside node's title, and its rank among nodes of that base, where it is known."""
    ran = operator_of(kind, record) if record is not None else None
    if ran is not None and kind != "CopySlices" and core in ran.rank:
        return ran.packet, ran.rank[core]
    return kind.partition("Backward")[0] or kind, None


def unique_title(name: str, used_names: dict[str, int]) -> str:
    """`name`, or `name_1` and so on where it is taken. `used_names` has how often each was wanted again."""
    title = free_name(name, used_names, first=used_names.get(name, 0) + 1)
    used_names[name] = used_names.get(name, -1) + 1
    used_names.setdefault(title, 0)
    return title


# ---- The user's names


class UserNames:
    """The user's names of tensors and modules, which are held weakly."""

    def __init__(self) -> None:
        self.tensors: dict[str, weakref.ref[Tensor]] = {}
        self.modules: dict[str, weakref.ref[nn.Module]] = {}
        self.parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.places: dict[int, tuple[weakref.ref[nn.Module], str]] = {}

    def look(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """Take names from variables; returns the tensors among them that require grad."""
        tensors: dict[str, Tensor] = {}
        for name, value in _tensors_and_modules(variables):
            if issubclass(type(value), nn.Module):
                self.module(name, value)
            elif value.requires_grad and name not in tensors:
                tensors[name] = value
        return tensors

    def module(self, name: str, module: nn.Module) -> None:
        """Keep a module that the block can see."""
        if all(reference() is not module for reference in self.modules.values()):
            self.modules[name] = weakref.ref(module)

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep the names of external tensors; the first tensor of a name keeps it."""
        for name, tensor in tensors.items():
            self.tensors.setdefault(name, weakref.ref(tensor))

    def parameter(self, tensor: Tensor) -> str:
        """Return a parameter's path in its module, or ''."""
        held = self.parameters.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else ""

    def settle(self) -> None:
        """Keep the paths of all parameters and modules now: the modules may be gone when a pass comes."""
        for head, module in self.roots():
            for path, parameter in module.named_parameters():
                self.parameters[id(parameter)] = (weakref.ref(parameter), head + path)
            for path, part in module.named_modules():
                held = weakref.ref(part)  # Python has one such reference to an object, also when the object is gone
                self.places[id(held)] = (held, (head + path).rstrip("."))

    def roots(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the outermost modules, and what the paths in them begin with: their names where there are several."""
        modules = [(name, module) for name, reference in self.modules.items() if (module := reference()) is not None]
        inner = {id(part) for _, module in modules for part in module.modules() if part is not module}
        modules = [(name, module) for name, module in modules if id(module) not in inner]
        for name, module in reversed(modules):
            yield "" if len(modules) == 1 or name == "self" else f"{name}.", module

    def module_of_node(self, record: NodeRecord) -> str:
        """Return the path of the innermost known module whose forward made a node, or ''."""
        return next((self.places[id(caller)][1] for caller in record.modules if id(caller) in self.places), "")

    def here(self) -> dict[tuple[int, int], str]:
        """Return the names of living tensors: by grad_fn and output number, or by the tensor itself."""
        names: dict[tuple[int, int], str] = {}
        for name, held in self.tensors.items():
            tensor = held()
            if tensor is None:
                continue
            key = (id(tensor), -1) if tensor.grad_fn is None else (id(tensor.grad_fn), tensor.output_nr)
            names.setdefault(key, name)
        return names


def _tensors_and_modules(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and modules in variables and in lists, tuples and dicts of them; of `self`, its modules."""
    queue = [(name, value, 0) for name, value in variables.items() if name == "_" or not name.startswith("_")]
    for name, value, depth in queue:
        kind = type(value)  # not isinstance, which reads `__class__` of the value: a proxy may raise
        if issubclass(kind, (Tensor, nn.Module)):
            yield name, value
        elif kind in (list, tuple, dict) and depth < 2 and len(queue) < MOST:
            queue += [(f"{name}.{key}", item, depth + 1) for key, item in objects_held_by(value)]
        elif name == "self":
            with contextlib.suppress(Exception):  # an object of the program's may raise
                held = list(objects_held_by(value))
                yield from ((key, item) for key, item in held if issubclass(type(item), nn.Module))


def visible_variables(frame: FrameType) -> dict[str, Any]:
    """Return the variables that a frame's code can see: its own, and the globals that it names."""
    names = frame.f_code.co_names
    return {name: frame.f_globals[name] for name in names if name in frame.f_globals} | frames.variables(frame)


def input_metadata(node: Any) -> Sequence[Any]:
    """Return the shape, dtype and device of each of a node's inputs."""
    return metadata_of_inputs(node)


@functools.cache
def dtype_text(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype)[6:]


# ---- The sources of NaN and Inf in a forward: the operator that made them, or the tensor with which they came in
# While a block that watches numbers is open, each operator's results are checked: one sum, and every element if the sum
# is not finite. A tensor with NaN or Inf is remembered, weakly, with its NonfiniteSource, so that operators that take
# it later have the same source. Uninitialized memory, and memory that an operator only overwrites, are not checked.

Frame = tuple[CodeType, int]

UNINITIALIZED = ("empty", "resize", "set_")
WRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "geometric"}
"""In-place operators that do not read the tensor that they overwrite."""


class NonfiniteSource:
    """Where NaN or Inf come from: the operator that made them, or the first operator that took them from outside.

    `born` says which of the two, `cores` are the blocks that were open there, and `of` is the source of the Inf that an
    operator turned into NaN. `taken` is the tensor that brought them in, and `title` its name. `from_number` says that
    the program passed NaN or Inf to the operator as a number.
    """

    __slots__ = ("born", "cores", "frame", "from_number", "of", "op", "taken", "title", "what")

    def __init__(self, what: str, op: str, frame: Frame | None, cores: Sequence[Any]) -> None:
        self.what, self.op, self.frame = what, op, frame
        self.cores = tuple(weakref.ref(core) for core in cores)
        self.born = True
        self.from_number = False
        self.taken: weakref.ref[Tensor] | None = None
        self.title = ""
        self.of: NonfiniteSource | None = None

    def is_in(self, core: Any) -> bool:
        """Whether a block was open there."""
        return any(reference() is core for reference in self.cores)


_known: Any = WeakTensorKeyDictionary()
_origins_lock = threading.RLock()


def _nonfinite_values(tensor: Tensor) -> str:
    """`NaN` or `Inf` where a tensor has them, else ''. A finite sum proves that there are none."""
    if not _can_hold_nonfinite(tensor) or not tensor.numel():
        return ""
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if tensor.dtype in NARROW_DTYPES:
        values = values.float()
    if math.isfinite(float(values.sum())):
        return ""
    if bool(torch.isnan(values).any()):
        return "NaN"
    return "Inf" if bool(torch.isinf(values).any()) else ""


def _can_hold_nonfinite(tensor: Tensor) -> bool:
    """Whether a tensor has floating-point values that can be looked at."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _nested_tensors(values: Any) -> Iterator[Tensor]:
    """Return the tensors of arguments or results, also those in lists."""
    return (leaf for leaf in plain_leaves(values) if isinstance(leaf, Tensor))


@functools.cache
def _how_to_look(func: Any) -> tuple[bool, bool, tuple[tuple[int, str], ...]]:
    """Return how to look at an operator: whether its results are looked at, whether it reads the arguments that it
    writes, and which these are."""
    schema = schema_of(func)
    packet = schema.name.partition("::")[2]
    written = tuple(
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    looked = not func.is_view and not any(word in packet for word in UNINITIALIZED)
    out = bool(written) and all(schema.arguments[place].is_out for place, _ in written)
    return looked, not out and packet.rstrip("_") not in WRITES, written


class OperatorLook:
    """One run of an operator: the NaN and Inf in its arguments, and then in its results."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.looked, reads, places = _how_to_look(func)
        self.changed = [
            tensor
            for place, name in places
            for tensor in _nested_tensors(args[place] if place < len(args) else kwargs.get(name))
        ]
        self.same: Tensor | None = None
        self.before = (
            {id(tensor): _nonfinite_values(tensor) if reads else "" for tensor in self.changed} if self.looked else {}
        )

    def nonfinite_arguments(self) -> Iterator[tuple[Tensor, str]]:
        """Yield the operator's tensor arguments, each with the NaN or Inf that it had before the run."""
        for tensor in _nested_tensors((*self.args, *self.kwargs.values())):
            known = self.before.get(id(tensor))
            yield tensor, _nonfinite_values(tensor) if known is None else known

    def source(self, result: Any, cores: Sequence[Any], frame: Frame | None) -> tuple[NonfiniteSource | None, bool]:
        """Return the source of the NaN or Inf in its results, or else in its arguments; and whether its results have
        any."""
        results = [*_nested_tensors(result), *self.changed] if self.looked else []
        kinds = [(tensor, kind) for tensor in results if (kind := _nonfinite_values(tensor))]
        if not kinds:
            return self.met(results), False
        what = "NaN" if any(kind == "NaN" for _, kind in kinds) else "Inf"
        source = self.born(what, cores, frame)
        for tensor, _ in kinds:
            _remember_source(tensor, source)
        return source, True

    def met(self, fine: Sequence[Tensor]) -> NonfiniteSource | None:
        """For an operator with finite results: the source of an argument with NaN or Inf, if one is known."""
        if not _known:
            return None
        arguments = _nested_tensors((*self.args, *self.kwargs.values()))
        source = next((known for argument in arguments if (known := _recall_source(argument))), None)
        for tensor in fine:
            _forget_source(tensor)
        return source

    def born(self, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """Return the source of NaN or Inf in its results: that of an argument, or the operator itself."""
        bad_arguments = [(tensor, kind) for tensor, kind in self.nonfinite_arguments() if kind]
        same = next((tensor for tensor, kind in bad_arguments if kind == what), None)
        if same is not None:
            self.same = same if base_of(same) is None else base_of(same)
            return _recall_source(same) or self.outside(same, what, cores, frame)
        source = NonfiniteSource(what, str(self.func), frame, cores)
        source.from_number = any(
            type(number) is float and not math.isfinite(number) for number in _nontensors(self.args, self.kwargs)
        )
        if bad_arguments:
            source.of = _recall_source(bad_arguments[0][0]) or self.outside(*bad_arguments[0], cores, frame)
        return source

    def outside(self, tensor: Tensor, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """Return the source of a tensor that was never seen: it came from outside, unless a node of an open block made
        it."""
        node = tensor.grad_fn if base_of(tensor) is None else base_of(tensor).grad_fn
        record: Any = node.metadata.get("traceback_") if node is not None else None
        if node is not None and any(core in getattr(record, "cores", ()) for core in cores):
            place = next((caller for caller in record.made.frames if is_users(caller[0].co_filename)), None)
            source = NonfiniteSource(what, node.name(), place, record.cores)
        else:
            source = NonfiniteSource(what, str(self.func), frame, cores)
            source.born = False
        _remember_source(tensor, source)
        return source


def _variable_holding(tensor: Tensor, frame: FrameType | None) -> str:
    """Return the name of the variable that holds a tensor, in the innermost of the user's functions that has one."""

    while frame is not None:
        if is_users(frame.f_code.co_filename):
            name_of_variable = next((name for name, value in frames.variables(frame).items() if value is tensor), "")
            if name_of_variable:
                return name_of_variable
        frame = frame.f_back
    return ""


def _nontensors(args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    """Yield the arguments that are not tensors."""
    yield from (value for value in (*args, *kwargs.values()) if not isinstance(value, Tensor))


def _remember_source(tensor: Tensor, source: NonfiniteSource) -> None:
    """Remember the source of a tensor's NaN or Inf, also for the tensor that it is a view of."""
    with _origins_lock:
        _known[tensor] = source
        if base_of(tensor) is not None:
            _known.setdefault(base_of(tensor), source)


def _forget_source(tensor: Tensor) -> None:
    """Forget a tensor whose values are finite again."""
    with _origins_lock:
        _known.pop(tensor, None)


def _recall_source(tensor: Tensor) -> NonfiniteSource | None:
    """Return the source of a tensor's NaN or Inf, or of the tensor that it is a view of."""
    with _origins_lock:
        known = _known.get(tensor)
        if known is None and base_of(tensor) is not None:
            known = _known.get(base_of(tensor))
        return known


# ---- Nodes and operators inside open blocks

KEYS = ModeKey


class _NodeTag(list[str]):
    """The tag in a node's metadata by which it is known later. It is a list of texts, as anomaly mode prints them."""

    __slots__ = ("cores", "made")

    def __init__(self, record: NodeRecord, cores: tuple[RegionCore, ...], texts: Iterable[str]) -> None:
        super().__init__(texts)
        self.made, self.cores = record, cores

    def __del__(self) -> None:
        _dead.append(None)
        _forget_dead_nodes()


class _ThreadState(threading.local):
    """The blocks that are open in this thread, and the nodes and the operator last seen in it."""

    def __init__(self) -> None:
        self.open: list[RegionCore] = []
        self.mode: _OperatorMode | None = None
        self.last: OperatorRun | None = None
        self.group: list[NodeRecord] = []
        self.used = False
        self.deriving: tuple[tuple[RegionCore, ...], tuple[str, NodeRecord]] | None = None
        self.applying: list[NodeRecord] = []
        self.busy = 0


here = _ThreadState()
_count = itertools.count()
_dead: collections.deque[None] = collections.deque()


# ---- Blocks


def open_block(core: RegionCore) -> None:
    """Open a block in this thread."""
    _count_blocks(1)
    _install_engine_hooks()
    here.open.append(core)
    if here.mode is None:
        here.mode = _OperatorMode()
        here.mode.__enter__()
    here.group, here.last = [], None


def close_block(core: RegionCore) -> None:
    """Close a block that is open in this thread."""
    here.open.remove(core)
    here.group, here.applying = [], []
    if not here.open and here.mode is not None:
        here.mode.__exit__(None, None, None)
        here.mode = None
    _count_blocks(-1)
    _forget_dead_nodes()


def _forget_dead_nodes() -> None:
    """Count the nodes that were freed, and put torch's engine back after the last. Destructors call this, so it never
    waits for the lock: its holder does the work then."""
    global _alive
    while _dead and _lock.acquire(blocking=False):
        try:
            while _dead:
                _dead.pop()
                _alive -= 1
            if not _alive and not _blocks:
                _uninstall_engine_hooks()
        finally:
            _lock.release()


# ---- Nodes


def _record_new_node() -> list[str]:
    """Stand for `format_stack`: torch calls it when it makes a node."""
    if here.busy or not torch.is_grad_enabled() or is_tracing():  # without gradients no pass can reach it
        return _users_stack()
    if here.deriving is not None:
        return _tag_node_of_backward(*here.deriving)
    if not here.open:
        return _users_stack()
    frame: FrameType | None = sys._getframe(1)
    apply = frame if frame is not None and frame.f_code in APPLY else None
    cores = tuple(here.open)
    record = NodeRecord(next(_count), _stack_frames(frame, any(core.stacks for core in cores)), here.last)
    record.modules = _running_modules(frame)
    if here.used:
        here.group, here.used = [], False
    here.group.append(record)
    if apply is not None:
        record.apply = apply
        here.applying.append(record)
    return _tag_node(record, cores)


def _tag_node(record: NodeRecord, cores: tuple[RegionCore, ...]) -> _NodeTag:
    """Tell the open blocks of a node; returns the tag that torch keeps in its metadata."""
    global _alive
    with _lock:
        _alive += 1
    texts = _users_stack()
    if not texts and record.line is not None:
        line = record.line
        texts = [f'  File "{line.file}", line {line.line}, in {line.function}\n']
    return _NodeTag(record, cores, texts)


def _tag_node_of_backward(cores: tuple[RegionCore, ...], of: tuple[str, NodeRecord]) -> _NodeTag:
    """Tag a node made by the backward of a node in a region, as with `create_graph`: it is in that region too."""
    return _tag_node(NodeRecord(next(_count), of[1].frames, None, of), cores)


# ---- Operators


class _OperatorMode(TorchDispatchMode):
    """A dispatch mode that records the operators of a thread with an open block."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Have compiled functions run as they do without this mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if here.open and not here.busy and not _reads_metadata_alone(func) and not is_tracing():
            ran = _record_operator(func, sys._getframe(1))
            if any(core.watches for core in here.open):
                return _run_looking_for_nonfinite(ran, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _run_looking_for_nonfinite(ran: OperatorRun, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator, and look for NaN and Inf in its arguments and results. An error in looking never stops it."""
    cores = tuple(core for core in here.open if core.watches)
    look = None
    with _keeping_errors(cores):
        look = OperatorLook(func, args, kwargs)
    result = func(*args, **kwargs)
    if look is not None:
        with _keeping_errors(cores):
            ran.source, ran.bad_results = look.source(result, cores, ran.frame)
            if look.same is not None and ran.source is not None:
                ran.taken, ran.title = weakref.ref(look.same), _variable_holding(look.same, sys._getframe(2))
                if not ran.source.born and ran.source.taken is None:
                    ran.source.taken, ran.source.title = ran.taken, ran.title
            if ran.bad_results:
                for core in cores:
                    core.went_bad(ran)
    return result


@contextlib.contextmanager
def _keeping_errors(cores: tuple[RegionCore, ...]) -> Iterator[None]:
    """Hide operators from watching and from the user's modes, and hand errors to the blocks instead of raising."""
    try:
        with unwatched_here(), DisableTorchDispatch():
            yield
    except Exception as error:
        for core in cores:
            core.failed(error)


def is_tracing() -> bool:
    """Whether a compiler traces in this thread: the nodes it makes are not the program's."""
    mode = mode_of_key
    return mode(KEYS.PROXY) is not None or mode(KEYS.FUNCTIONAL) is not None


def _reads_metadata_alone(func: Any) -> bool:
    """Whether an operator only reads a size or a device."""
    return func.namespace == "prim" or schema_of(func).name.startswith("aten::sym_")


def _record_operator(func: Any, frame: FrameType | None) -> OperatorRun:
    """Record an operator as it runs: for the nodes made since the last one, or for the custom function it runs in."""
    if not anomaly_mode():  # a mode that was on before ours was left
        _turn_anomaly_on()
    owner = _running_custom_function(frame)
    grads = torch.is_grad_enabled()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = (frame.f_code, frame.f_lasti) if frame is not None else None
    inner = owner is not None and not grads
    ran = OperatorRun(func, place, (owner,) if inner and owner else tuple(here.group) if grads else ())
    if inner and owner is not None:
        owner.within.append(ran)
    elif grads:
        for record in here.group:
            record.after.append(ran)
    made_nodes = grads and not inner and not here.used and bool(here.group)
    here.used = True
    here.last = ran
    for core in here.open:
        core.operator_ran(ran, made_nodes)
    return ran


def _running_custom_function(frame: FrameType | None) -> NodeRecord | None:
    """Return the node of the innermost custom function whose forward is running, if any."""
    while here.applying:
        record = here.applying[-1]
        caller = frame
        while caller is not None:
            if caller is record.apply:
                return record
            caller = caller.f_back
        record.apply = None
        here.applying.pop()
    return None


@contextlib.contextmanager
def watching_new_nodes(wanted: bool) -> Iterator[None]:
    """Watch the nodes that are made in this block, if `wanted`."""
    if not wanted:
        yield
        return
    _count_blocks(1)
    try:
        yield
    finally:
        _count_blocks(-1)


@contextlib.contextmanager
def unwatched_here() -> Iterator[None]:
    """Hide the nodes and operators of this thread from watching."""
    here.busy += 1
    try:
        yield
    finally:
        here.busy -= 1


@contextlib.contextmanager
def without_operator_mode() -> Iterator[None]:
    """Leave our mode, where it is the innermost: a few of torch's backward formulas behave otherwise under a mode."""
    mode = pop_mode() if here.mode is not None and innermost_dispatch_mode() is here.mode else None
    try:
        yield
    finally:
        if mode is not None:
            push_mode(mode)
