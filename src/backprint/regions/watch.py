"""Seeing what is made inside open blocks: every autograd node, and every operator.

Torch calls `format_stack` whenever a node is made while anomaly mode is on, in the thread that makes it, and keeps the
result in the node's metadata. `anomaly` replaces that function while a block is open anywhere, and the result is a
`NodeTag`, by which a node is known later. A dispatch mode, in threads with an open block, sees the operators.

Blocks and living nodes are counted for the whole process; what `anomaly` replaced is put back with the last of them.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch

from backprint._torch.autograd import anomaly_mode
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
from backprint.regions import origins
from backprint.regions.anomaly import (
    APPLY,
    install_anomaly_hooks,
    install_engine_hooks,
    original_stack_texts,
    turn_anomaly_on,
    uninstall_anomaly_hooks,
    uninstall_engine_hooks,
)
from backprint.regions.nodes import BlockWatcher, NodeRecord, OperatorRun, running_modules, stack_frames
from backprint.tracing.frames import is_users

KEYS = ModeKey


class NodeTag(list[str]):
    """The tag in a node's metadata by which it is known later. It is a list of texts, as anomaly mode prints them."""

    __slots__ = ("cores", "made")

    def __init__(self, made: NodeRecord, cores: tuple[BlockWatcher, ...], texts: Iterable[str]) -> None:
        super().__init__(texts)
        self.made, self.cores = made, cores

    def __del__(self) -> None:
        _dead.append((self.made, self.cores))
        report_dead_nodes()


class ThreadState(threading.local):
    """The blocks that are open in this thread, and the nodes and the operator last seen in it."""

    def __init__(self) -> None:
        self.open: list[BlockWatcher] = []
        self.mode: OperatorMode | None = None
        self.last: OperatorRun | None = None
        self.group: list[NodeRecord] = []
        self.used = False
        self.deriving: tuple[tuple[BlockWatcher, ...], tuple[str, NodeRecord]] | None = None
        self.applying: list[NodeRecord] = []
        self.busy = 0


here = ThreadState()
_count = itertools.count()
_lock = threading.Lock()
_blocks = 0
_alive = 0
_dead: collections.deque[tuple[NodeRecord, tuple[BlockWatcher, ...]]] = collections.deque()


# ------------------------------------------------------------------ blocks


def open_block(core: BlockWatcher) -> None:
    """Open a block in this thread."""
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            install_anomaly_hooks(record_new_node)
        install_engine_hooks()
    here.open.append(core)
    if here.mode is None:
        here.mode = OperatorMode()
        here.mode.__enter__()
    here.group, here.last = [], None


def close_block(core: BlockWatcher) -> None:
    """Close a block that is open in this thread."""
    global _blocks
    here.open.remove(core)
    here.group, here.applying = [], []
    if not here.open and here.mode is not None:
        here.mode.__exit__(None, None, None)
        here.mode = None
    with _lock:
        _blocks -= 1
        if not _blocks:
            uninstall_anomaly_hooks()
    report_dead_nodes()


def abandon_block(core: BlockWatcher) -> None:
    """Close a block that was never left, and whose thread may have ended."""
    global _blocks
    if core in here.open:
        close_block(core)
        return
    with _lock:
        _blocks -= 1
        if not _blocks:
            uninstall_anomaly_hooks()


def report_dead_nodes() -> None:
    """Tell each block of its nodes that were freed. Destructors call this, so it never waits for the lock: its holder
    does the work then."""
    global _alive
    while _dead and _lock.acquire(blocking=False):
        gone: dict[int, tuple[BlockWatcher, list[NodeRecord]]] = {}
        try:
            while _dead:
                made, cores = _dead.popleft()
                _alive -= 1
                for core in cores:
                    gone.setdefault(id(core), (core, []))[1].append(made)
            if not _alive and not _blocks:
                uninstall_engine_hooks()
        finally:
            _lock.release()
        for core, mades in gone.values():
            core.nodes_died(mades)


# ------------------------------------------------------------------ nodes


def record_new_node() -> list[str]:
    """Stand for `format_stack`: torch calls it when it makes a node."""
    if here.busy or not torch.is_grad_enabled() or is_tracing():  # without gradients no pass can reach it
        return user_stack_texts()
    if here.deriving is not None:
        return tag_node_of_backward(*here.deriving)
    if not here.open:
        return user_stack_texts()
    frame: FrameType | None = sys._getframe(1)
    apply = frame if frame is not None and frame.f_code in APPLY else None
    cores = tuple(here.open)
    made = NodeRecord(next(_count), stack_frames(frame, any(core.stacks for core in cores)), here.last)
    made.modules = running_modules(frame)
    if here.used:
        here.group, here.used = [], False
    here.group.append(made)
    if apply is not None:
        made.apply = apply
        here.applying.append(made)
    return tag_node(made, cores)


def tag_node(made: NodeRecord, cores: tuple[BlockWatcher, ...]) -> NodeTag:
    """Tell the open blocks of a node; returns the tag that torch keeps in its metadata."""
    global _alive
    with _lock:
        _alive += 1
    for core in cores:
        core.node_made(made)
    texts = user_stack_texts()
    if not texts and made.line is not None:
        line = made.line
        texts = [f'  File "{line.file}", line {line.line}, in {line.function}\n']
    return NodeTag(made, cores, texts)


def tag_node_of_backward(cores: tuple[BlockWatcher, ...], of: tuple[str, NodeRecord]) -> NodeTag:
    """Tag a node made by the backward of a node in a region, as with `create_graph`: it is in that region too."""
    return tag_node(NodeRecord(next(_count), of[1].frames, None, of), cores)


def user_stack_texts() -> list[str]:
    """The texts that torch would keep of a new node, without the frames of this module."""
    return [text for text in original_stack_texts() if __file__ not in text]


# ------------------------------------------------------------------ operators


class OperatorMode(TorchDispatchMode):
    """A dispatch mode that records the operators of a thread with an open block."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Have compiled functions run as they do without this mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if here.open and not here.busy and not reads_metadata_alone(func) and not is_tracing():
            ran = record_operator(func, sys._getframe(1))
            if any(core.watches for core in here.open):
                return run_looking_for_nonfinite(ran, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def run_looking_for_nonfinite(ran: OperatorRun, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator, and look for NaN and Inf in its arguments and results. An error in looking never stops it."""
    cores = tuple(core for core in here.open if core.watches)
    look = None
    with keeping_errors(cores):
        look = origins.OperatorLook(func, args, kwargs)
    result = func(*args, **kwargs)
    if look is not None:
        with keeping_errors(cores):
            ran.source, ran.bad_results = look.source(result, cores, ran.frame)
            if look.same is not None and ran.source is not None:
                ran.taken, ran.title = weakref.ref(look.same), origins.variable_holding(look.same, sys._getframe(2))
                if not ran.source.born and ran.source.taken is None:
                    ran.source.taken, ran.source.title = ran.taken, ran.title
            if ran.bad_results:
                for core in cores:
                    core.went_bad(ran)
    return result


class keeping_errors:
    """Hide operators from watching and from the user's modes, and hand errors to the blocks instead of raising."""

    def __init__(self, cores: tuple[BlockWatcher, ...]) -> None:
        self.cores: tuple[BlockWatcher, ...] = cores
        self.quiet: Any = None

    def __enter__(self) -> None:
        here.busy += 1
        self.quiet = DisableTorchDispatch()  # which begins as it is made
        self.quiet.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self.quiet.__exit__(kind, error, trace)
        here.busy -= 1
        if not isinstance(error, Exception):
            return False
        for core in self.cores:
            core.failed(error)
        return True


def is_tracing() -> bool:
    """Whether a compiler traces in this thread: the nodes it makes are not the program's."""
    mode = mode_of_key
    return mode(KEYS.PROXY) is not None or mode(KEYS.FUNCTIONAL) is not None


def reads_metadata_alone(func: Any) -> bool:
    """Whether an operator only reads a size or a device."""
    return func.namespace == "prim" or schema_of(func).name.startswith("aten::sym_")


def record_operator(func: Any, frame: FrameType | None) -> OperatorRun:
    """Record an operator as it runs: for the nodes made since the last one, or for the custom function it runs in."""
    if not anomaly_mode():  # a mode that was on before ours was left
        turn_anomaly_on()
    owner = running_custom_function(frame)
    grads = torch.is_grad_enabled()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = (frame.f_code, frame.f_lasti) if frame is not None else None
    inner = owner is not None and not grads
    ran = OperatorRun(func, place, (owner,) if inner and owner else tuple(here.group) if grads else ())
    if inner and owner is not None:
        owner.within.append(ran)
    elif grads:
        for made in here.group:
            made.after.append(ran)
    here.used = True
    here.last = ran
    for core in here.open:
        core.operator_ran(ran)
    return ran


def running_custom_function(frame: FrameType | None) -> NodeRecord | None:
    """The node of the innermost custom function whose forward is running, if any."""
    while here.applying:
        made = here.applying[-1]
        each = frame
        while each is not None:
            if each is made.apply:
                return made
            each = each.f_back
        made.apply = None
        here.applying.pop()
    return None


@contextlib.contextmanager
def watching_new_nodes(wanted: bool) -> Iterator[None]:
    """Watch the nodes that are made in this block, if `wanted`."""
    global _blocks
    if not wanted:
        yield
        return
    with _lock:
        _blocks += 1
        if _blocks == 1:
            install_anomaly_hooks(record_new_node)
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                uninstall_anomaly_hooks()


class unwatched_here:
    """Hide the nodes and operators of this thread from watching."""

    def __enter__(self) -> None:
        here.busy += 1

    def __exit__(self, *_: object) -> None:
        here.busy -= 1


class without_operator_mode:
    """Leave our mode, where it is the innermost: a few of torch's backward formulas behave otherwise under a mode."""

    def __init__(self) -> None:
        self.mode: Any = None

    def __enter__(self) -> None:
        if here.mode is not None and innermost_dispatch_mode() is here.mode:
            self.mode = pop_mode()

    def __exit__(self, *_: object) -> None:
        if self.mode is not None:
            push_mode(self.mode)
