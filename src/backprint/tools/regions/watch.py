"""Watching open blocks: every autograd node and every operator is recorded while a block of a region is open.

Anomaly mode is on while a block is open, so torch calls `torch.fx.traceback.format_stack` whenever a node is made, in
the thread that makes it, and keeps the result in the node's metadata. That function is replaced while a block is open
anywhere; the result is a `_NodeTag`, by which a node is known later. A dispatch mode, in threads with an open block,
sees the operators. Blocks and living nodes are counted for the whole process, and the functions of torch are put back
with the last of them.

What is recorded goes to the RegionCores (`context.py`; `core` here) of the open blocks: a core is the state of one
region. A NodeRecord says how the forward made a node, and an OperatorRun is an operator that ran (`records.py`).
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
from typing import TYPE_CHECKING, Any, NamedTuple

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
from backprint.tools.regions.records import Frame, NodeRecord, OperatorRun, running_modules, stack_frames
from backprint.trace.frames import is_users

if TYPE_CHECKING:
    from backprint.tools.regions.context import RegionCore

# ---- Functions of torch that are replaced for the whole process, and put back
# While a block is open, these are the functions of anomaly mode, which users read and set as if it were their own.
# While a recorded node is alive, backward calls go through a function of ours.


class _AnomalyMode(NamedTuple):
    """Whether anomaly mode is on, and whether it checks gradients for NaN."""

    is_on: bool
    checks_nan: bool


_users_anomaly = _AnomalyMode(is_on=False, checks_nan=True)  # what the user set, while a block is open
_lock = threading.Lock()
_blocks = 0  # how many blocks are open, in all threads
_alive = 0  # how many nodes with a tag of ours live
_replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}  # by owner and name: torch's function, and ours
_engines: dict[Any, tuple[Any, Any]] = {}  # by module of ENGINES: torch's function that runs a backward, and ours

follow_backward: Any = None
"""Runs a backward call: `follow_backward(engine, roots, ...)`. The module `follow` sets it."""


def _apply_from_python(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand for `Function.apply` where that is a builtin (torch 2.14), which has no Python frame to be known by."""
    return BUILTIN.__get__(None, function)(*args, **kwargs)


BUILTIN: Any = None if hasattr(torch.autograd.Function.apply, "__code__") else vars(torch.autograd.Function)["apply"]
APPLY = (_apply_from_python.__code__, getattr(torch.autograd.Function.apply, "__code__", None))
"""The code of a frame in which a custom function's node is made, and its forward runs."""


def _count_blocks(by: int) -> None:
    """Add `by` (1 or -1) to the number of open blocks.

    With the first block, anomaly mode is turned on, unseen by the user: torch then calls `format_stack`, here
    `_record_new_node`, for each new autograd node. With the last one closed, torch's functions and the user's mode are
    put back.
    """
    global _blocks, _users_anomaly
    with _lock:
        _blocks += by
        if by > 0 and _blocks == 1:
            _users_anomaly = _AnomalyMode(anomaly_mode(), anomaly_mode_checks_nan())
            _replace(torch, "set_anomaly_enabled", _set_users_anomaly)
            _replace(torch, "is_anomaly_enabled", lambda: _users_anomaly.is_on)
            _replace(torch, "is_anomaly_check_nan_enabled", lambda: _users_anomaly.checks_nan)
            _replace(fx_traceback, "format_stack", _record_new_node)
            if BUILTIN is not None:  # the `apply` of this torch has no Python frame
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
    _users_anomaly = _AnomalyMode(bool(enabled), bool(check_nan))
    _turn_anomaly_on()


def _turn_anomaly_on() -> None:
    """Turn anomaly mode on; it checks for NaN only where the user has it on."""
    set_anomaly_mode(True, _users_anomaly.is_on and _users_anomaly.checks_nan)


def _users_stack() -> list[str]:
    """Return the texts that torch would keep of a new node: its stack in the user's anomaly mode or in tracing, else
    none. Lines of this file are left out, as they would not be there without a region."""
    if not (_users_anomaly.is_on or fx_traceback.should_preserve_node_meta):
        return []
    torch_format_stack, _ = _replaced[fx_traceback, "format_stack"]
    return [text for text in torch_format_stack() if __file__ not in text]


def _install_engine_hooks() -> None:
    """Have backward calls go through `follow_backward`, which is given torch's function first."""
    with _lock:
        for module in ENGINES:
            if module not in _engines:
                theirs = engine_of(module)
                ours = functools.partial(follow_backward, theirs)
                _engines[module] = theirs, ours
                set_engine_of(module, ours)


def _uninstall_engine_hooks() -> None:
    """Put torch's engine back, except where someone else has replaced it since."""
    for module, (theirs, ours) in list(_engines.items()):
        if engine_of(module) is ours:
            set_engine_of(module, theirs)
            del _engines[module]


# ---- Nodes and operators inside open blocks

KEYS = ModeKey


class _NodeTag(list[str]):
    """The tag in a node's metadata by which it is known later: `made` says how the forward made the node, and `cores`
    in which regions. It is a list of texts, because anomaly mode prints it as the node's stack."""

    __slots__ = ("cores", "made")

    def __init__(self, record: NodeRecord, cores: tuple[RegionCore, ...], texts: Iterable[str]) -> None:
        super().__init__(texts)
        self.made, self.cores = record, cores

    def __del__(self) -> None:  # the node owns its metadata, so the node is freed
        _dead.append(None)
        _forget_dead_nodes()


def tag_of(node: Any) -> _NodeTag | None:
    """Return the tag of a node that was made in a block; None of any other node."""
    tag = node.metadata.get("traceback_")
    return tag if type(tag) is _NodeTag else None


class _ThreadState(threading.local):
    """The blocks that are open in this thread, and the nodes and the operator last seen in it."""

    def __init__(self) -> None:
        self.open: list[RegionCore] = []
        self.mode: _OperatorMode | None = None  # on while a block is open
        self.last: OperatorRun | None = None  # the operator that ran last
        # Autograd makes the nodes of an operator before the operator runs: `group` are those made last, and `used`
        # says that an operator has run since, so that the next node begins a new group.
        self.group: list[NodeRecord] = []
        self.used = False
        # With create_graph: the regions, the kind and the record of the node whose backward runs.
        self.deriving: tuple[tuple[RegionCore, ...], tuple[str, NodeRecord]] | None = None
        self.applying: list[NodeRecord] = []  # custom functions whose forward may run, the innermost last
        self.busy = 0  # how many `unwatched_here` are open


here = _ThreadState()
_node_numbers = itertools.count()  # of NodeRecords, in the order in which nodes are made
_dead: collections.deque[None] = collections.deque()  # an item for each tag that was freed and is not counted yet


# ---- Blocks


def open_block(core: RegionCore) -> None:
    """Open a block in this thread: from here on, the nodes that the thread makes are tagged with `core`, and `core` is
    told of the operators that it runs."""
    _count_blocks(1)
    _install_engine_hooks()
    here.open.append(core)
    if here.mode is None:
        here.mode = _OperatorMode()
        here.mode.__enter__()
    here.group, here.last = [], None  # nodes and operators from before the block are not of it


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
    """Take the nodes that were freed from the number of living ones, and put torch's engine back after the last.

    A destructor calls this, at any place of a program, so it never waits for the lock: the thread itself may hold it.
    What is left in `_dead` is counted at the next call. The outer loop asks again for nodes that were freed between the
    end of the inner loop and the release of the lock.
    """
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
    if here.busy or not torch.is_grad_enabled() or is_tracing():  # without grad mode no pass can reach the node
        return _users_stack()
    if here.deriving is not None:
        cores, node_of_backward = here.deriving
        return _tag_node_of_backward(cores, node_of_backward)
    if not here.open:
        return _users_stack()
    frame: FrameType | None = sys._getframe(1)  # where the node is made: the call of an operator, or of `apply`
    cores = tuple(here.open)
    stack = stack_frames(frame, whole=any(core.stacks for core in cores))
    record = NodeRecord(next(_node_numbers), stack, before=here.last, modules=running_modules(frame))
    if here.used:  # an operator has run since the last node: this node is for the next one
        here.group, here.used = [], False
    here.group.append(record)
    if frame is not None and frame.f_code in APPLY:  # the node of a custom function, whose forward runs next
        record.apply = frame
        here.applying.append(record)
    return _tag_node(record, cores)


def _tag_node(record: NodeRecord, cores: tuple[RegionCore, ...]) -> _NodeTag:
    """Count a node as alive, and return the tag that torch keeps in its metadata. Its texts are those that torch would
    have kept, else the line of the user's code."""
    global _alive
    with _lock:
        _alive += 1
    texts = _users_stack()
    if not texts and record.line is not None:
        line = record.line
        texts = [f'  File "{line.file}", line {line.line}, in {line.function}\n']
    return _NodeTag(record, cores, texts)


def _tag_node_of_backward(cores: tuple[RegionCore, ...], of: tuple[str, NodeRecord]) -> _NodeTag:
    """Return the tag of a node that was made by the backward of a node in regions, with `create_graph`: the new node is
    in these regions too. `of` is the kind and the record of the node whose backward runs, which lends its stack."""
    _, forward_record = of
    record = NodeRecord(next(_node_numbers), forward_record.frames, before=None, modules=forward_record.modules, of=of)
    return _tag_node(record, cores)


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
            if any(core.watches for core in here.open):  # a region that looks for NaN and Inf
                return _run_looking_for_nonfinite(ran, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _run_looking_for_nonfinite(ran: OperatorRun, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator and return its result; note in `ran` the NaN and Inf in its arguments and results.

    An error in looking never stops the operator. OperatorLook looks at the arguments before the run, because an
    operator in place overwrites them.
    """
    cores = tuple(core for core in here.open if core.watches)
    look = None
    with _keeping_errors(cores):
        look = OperatorLook(func, args, kwargs)
    result = func(*args, **kwargs)
    if look is not None:
        with _keeping_errors(cores):
            ran.source, ran.bad_results = look.source(result, cores, ran.frame)
            if look.same is not None and ran.source is not None:
                # An argument brought them. Frame 2 is what called the operator, below `__torch_dispatch__`.
                ran.taken, ran.title = weakref.ref(look.same), variable_holding(look.same, sys._getframe(2))
                if not ran.source.born and ran.source.taken is None:  # the first operator that takes them
                    ran.source.taken, ran.source.title = ran.taken, ran.title
            if ran.bad_results:
                for core in cores:
                    core.went_bad(ran)
    return result


@contextlib.contextmanager
def _keeping_errors(cores: tuple[RegionCore, ...]) -> Iterator[None]:
    """Open a block whose operators are hidden from watching and from the user's modes. An error in it is not raised:
    the regions warn of it, once each."""
    try:
        with unwatched_here(), DisableTorchDispatch():
            yield
    except Exception as error:
        for core in cores:
            core.warn_of_error(error)


def is_tracing() -> bool:
    """Whether a compiler traces in this thread, by its dispatch mode: the nodes that it makes are not the program's."""
    return mode_of_key(KEYS.PROXY) is not None or mode_of_key(KEYS.FUNCTIONAL) is not None


def _reads_metadata_alone(func: Any) -> bool:
    """Whether an operator only reads a size or a device (`prim::device`, `aten::sym_size`), which no pass can reach."""
    return func.namespace == "prim" or schema_of(func).name.startswith("aten::sym_")


def _record_operator(func: Any, frame: FrameType | None) -> OperatorRun:
    """Record an operator that is about to run, tell the open regions, and return the record.

    Autograd makes an operator's nodes before the operator runs, so it is recorded for the nodes in `here.group`. The
    forward of a custom function runs without grad mode and makes no nodes: an operator in it is recorded for the
    function's node. `frame` is what called the operator.
    """
    if not anomaly_mode():  # the user left an anomaly mode that was entered before the block, which turned ours off
        _turn_anomaly_on()
    makes_nodes = torch.is_grad_enabled()
    function = _running_custom_function(frame)  # also in grad mode, because it lets go of functions that have ended
    line = _frame_of_user(frame)
    if function is not None and not makes_nodes:
        ran = OperatorRun(str(func), bool(func.is_view), line, nodes=(function,))
        function.within.append(ran)
    else:
        nodes = tuple(here.group) if makes_nodes else ()
        ran = OperatorRun(str(func), bool(func.is_view), line, nodes)
        for record in nodes:
            record.after.append(ran)
    # Nodes were made since the last operator: for this one. Further operators before the next node do not count.
    made_nodes = makes_nodes and not here.used and bool(here.group)
    here.used = True
    here.last = ran
    for core in here.open:
        core.operator_ran(ran, made_nodes)
    return ran


def _frame_of_user(frame: FrameType | None) -> Frame | None:
    """Return the innermost frame of the user's code, as its code and instruction; None if there is none."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code, frame.f_lasti) if frame is not None else None


def _running_custom_function(frame: FrameType | None) -> NodeRecord | None:
    """Return the node of the innermost custom function whose forward is running: its `apply` is among the callers of
    `frame`. Functions whose forward has ended are taken off the stack `here.applying`. None if no forward runs."""
    while here.applying:
        record = here.applying[-1]
        caller = frame
        while caller is not None:
            if caller is record.apply:
                return record
            caller = caller.f_back
        record.apply = None  # a frame that ended, with its variables, must not be kept alive
        here.applying.pop()
    return None


@contextlib.contextmanager
def watching_new_nodes(wanted: bool) -> Iterator[None]:
    """Open a block in which new nodes are recorded, if `wanted`, although no region is open."""
    if not wanted:
        yield
        return
    _count_blocks(1)
    try:
        yield
    finally:
        _count_blocks(-1)


class unwatched_here:  # a class, because it is entered for every operator and node
    """A block whose nodes and operators are not recorded, in this thread."""

    def __enter__(self) -> None:
        here.busy += 1

    def __exit__(self, *_: object) -> None:
        here.busy -= 1


@contextlib.contextmanager
def without_operator_mode() -> Iterator[None]:
    """Open a block in which our mode is not active, where it is the innermost: a few of torch's backward formulas
    behave otherwise under a mode. It is left as it is below another mode, as only the innermost can be taken off."""
    mode = pop_mode() if here.mode is not None and innermost_dispatch_mode() is here.mode else None
    try:
        yield
    finally:
        if mode is not None:
            push_mode(mode)
