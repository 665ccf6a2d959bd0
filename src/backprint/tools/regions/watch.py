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
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.traceback as fx_traceback

from backprint._torch.autograd import (
    ENGINES,
    anomaly_mode,
    anomaly_mode_checks_nan,
    engine_of,
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
from backprint._torch.operators import schema_of
from backprint.tools.regions.origins import OperatorLook, variable_holding
from backprint.tools.regions.records import NodeRecord, OperatorRun, running_modules, stack_frames
from backprint.trace.frames import is_users

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


def tag_of(node: Any) -> _NodeTag | None:
    """Return the tag of a node that was made in a block."""
    tag = node.metadata.get("traceback_")
    return tag if type(tag) is _NodeTag else None


class _ThreadState(threading.local):
    """The blocks that are open in this thread, and the nodes and the operator last seen in it."""

    def __init__(self) -> None:
        self.open: list[RegionCore] = []
        self.mode: _OperatorMode | None = None
        self.last: OperatorRun | None = None
        # Autograd makes the nodes of an operator before the operator runs: `group` are those made last, and `used`
        # says that an operator has run since, so that the next node begins a new group.
        self.group: list[NodeRecord] = []
        self.used = False
        # With create_graph: the regions, the kind and the record of the node whose backward runs.
        self.deriving: tuple[tuple[RegionCore, ...], tuple[str, NodeRecord]] | None = None
        self.applying: list[NodeRecord] = []  # custom functions whose forward may run, the innermost last
        self.busy = 0  # how many `unwatched_here` are open


here = _ThreadState()
_count = itertools.count()
_dead: collections.deque[None] = collections.deque()  # an item for each tag that was freed and is not counted yet


# ---- Blocks


def open_block(core: RegionCore) -> None:
    """Open a block in this thread: the nodes and operators that it makes from here on are told to `core`."""
    _count_blocks(1)
    _install_engine_hooks()
    here.open.append(core)
    if here.mode is None:
        here.mode = _OperatorMode()
        here.mode.__enter__()
    here.group, here.last = [], None


def close_block(core: RegionCore) -> None:
    """Close a block that is open in this thread. Its nodes are still known, and followed, as long as they live."""
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
    """Stand for `format_stack`, which torch calls when it makes a node: record the node if a block is open, and return
    the tag that torch keeps in the node's metadata; else the texts that torch would have kept."""
    if here.busy or not torch.is_grad_enabled() or is_tracing():  # without gradients no pass can reach it
        return _users_stack()
    if here.deriving is not None:
        return _tag_node_of_backward(*here.deriving)
    if not here.open:
        return _users_stack()
    frame: FrameType | None = sys._getframe(1)
    apply = frame if frame is not None and frame.f_code in APPLY else None
    cores = tuple(here.open)
    stack = stack_frames(frame, any(core.stacks for core in cores))
    record = NodeRecord(next(_count), stack, here.last, running_modules(frame))
    if here.used:
        here.group, here.used = [], False
    here.group.append(record)
    if apply is not None:
        record.apply = apply
        here.applying.append(record)
    return _tag_node(record, cores)


def _tag_node(record: NodeRecord, cores: tuple[RegionCore, ...]) -> _NodeTag:
    """Count a node as alive, and return the tag that torch keeps in its metadata."""
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
    return _tag_node(NodeRecord(next(_count), of[1].frames, None, of[1].modules, of), cores)


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
                ran.taken, ran.title = weakref.ref(look.same), variable_holding(look.same, sys._getframe(2))
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
            core.warn_of_error(error)


def is_tracing() -> bool:
    """Whether a compiler traces in this thread: the nodes it makes are not the program's."""
    mode = mode_of_key
    return mode(KEYS.PROXY) is not None or mode(KEYS.FUNCTIONAL) is not None


def _reads_metadata_alone(func: Any) -> bool:
    """Whether an operator only reads a size or a device: such a one is no step of the program."""
    return func.namespace == "prim" or schema_of(func).name.startswith("aten::sym_")


def _record_operator(func: Any, frame: FrameType | None) -> OperatorRun:
    """Record an operator as it runs: for the nodes made since the last one, or, in the forward of a custom function,
    which runs without gradients, for that function's node. Tell the open blocks."""
    if not anomaly_mode():  # a mode that was on before ours was left
        _turn_anomaly_on()
    owner = _running_custom_function(frame)
    grads = torch.is_grad_enabled()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = (frame.f_code, frame.f_lasti) if frame is not None else None
    inner = owner is not None and not grads
    nodes = (owner,) if inner and owner else tuple(here.group) if grads else ()
    ran = OperatorRun(str(func), bool(func.is_view), place, nodes)
    if inner and owner is not None:
        owner.within.append(ran)
    elif grads:
        for record in here.group:
            record.after.append(ran)
    # Nodes were made since the last operator: for this one. Further operators before the next node do not count.
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


class unwatched_here:  # a class, because it is entered for every operator and node
    """Hide the nodes and operators of this thread from watching."""

    def __enter__(self) -> None:
        here.busy += 1

    def __exit__(self, *_: object) -> None:
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
