"""Following one backward call: which nodes of which regions it reaches, and what flows over their edges.

The graph is walked from the roots. Nodes inside, and those that give to them, get a hook that runs after them, with
what they took and what they gave; the nodes that are given to get one that runs before them. All hooks are gone with
the call. Hooks belong to the call's own graph task: another thread's over the same graph runs through its own. What
goes wrong in ours is kept, and never stops the backward. Private torch APIs, tried on torch 2.13:
`_current_graph_task_id`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.capture.frames import is_users
from backprint.regions import watch
from backprint.regions.names import is_leaf, kind_of, locals_of, op_of, plain, record_of
from backprint.regions.nouns import LEVELS, Stats
from backprint.regions.stats import stats_of
from backprint.regions.watch import Made


class Kept(NamedTuple):
    """What is kept of a gradient."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    stats: Stats | None = None
    value: Tensor | None = None


@dataclass(slots=True)
class Flow:
    """What one node took and gave."""

    took: tuple[Kept | None, ...]
    gave: tuple[Kept | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Reached:
    """A node of the graph: autograd's kind of it, what is known of its making, and whom each of its outputs goes to."""

    node: Any
    kind: str
    made: Made | None
    cores: tuple[Any, ...]
    slots: tuple[tuple[Any, int] | None, ...]

    @property
    def targets(self) -> tuple[tuple[Any, int], ...]:
        """Who it gives to."""
        return tuple(each for each in self.slots if each is not None)


class Call:
    """One backward call at work."""

    def __init__(self, roots: Sequence[Any], gradients: Sequence[Any], create_graph: bool) -> None:
        self.create_graph = create_graph
        self.nodes = walk(roots)
        self.cores = list(dict.fromkeys(core for each in self.nodes.values() for core in each.cores))
        self.roots, self.given = roots, gradients
        self.titles = called(roots) if self.cores else {}
        for each in self.nodes.values():
            if each.cores and each.made is not None:
                each.made.touched = True
                for other in touched(each.kind, each.made):
                    other.touched = True
        self.numbers = {core: core.count.take() for core in self.cores}
        due = [core for core, number in self.numbers.items() if core.count.is_due(number, core.bounds)]
        self.level = max((core.level for core in due), key=LEVELS.index, default="none")
        self.flows: dict[Any, Flow] = {}
        self.fed: dict[tuple[Any, int], int] = {}
        self.held: dict[tuple[Any, int], tuple[Tensor, Kept]] = {}
        self.handles: list[Any] = []
        self.root_kept: list[Kept | None] = []
        self.task: int | None = None
        self.thread = threading.get_ident()
        self.started, self.clock = time.time(), time.perf_counter()
        self.seconds = 0.0
        self.wrong: list[Exception] = []

    def hook(self) -> None:
        """Put hooks on what matters."""
        sources: set[Any] = set()
        targets: set[Any] = set()
        for node, each in self.nodes.items():
            near = [target for target, _ in each.targets if self.nodes[target].cores]
            if each.cores or near:
                sources.add(node)
                targets.update(target for target, _ in each.targets if each.cores or self.nodes[target].cores)
                for target in each.targets:
                    self.fed[target] = self.fed.get(target, 0) + 1
            if node in sources:
                self.handles.append(node.register_hook(self.after(node)))
            if each.cores and self.create_graph:
                self.handles.append(node.register_prehook(self.deriving(node)))
        for node in targets - sources:
            self.handles.append(node.register_prehook(self.before(node)))
        with self.quietly():
            self.root_kept = [self.keep(each) if isinstance(each, Tensor) else None for each in self.given]

    def unhook(self) -> None:
        """And off again."""
        self.seconds = time.perf_counter() - self.clock
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.held.clear()

    def after(self, node: Any) -> Callable[[Any, Any], None]:
        """The hook of a node that gives."""

        def hook(gave: Any, took: Any) -> None:
            if owner() is self:
                watch.here.deriving = None
                with self.quietly():
                    kept = self.taken(node, took)
                    targets = self.nodes[node].slots
                    self.flows[node] = Flow(
                        kept, tuple(self.given_to(targets[slot], each) for slot, each in enumerate(gave))
                    )

        return hook

    def deriving(self, node: Any) -> Callable[[Any], None]:
        """The hook before a node inside whose backward makes nodes itself."""
        each = self.nodes[node]

        def hook(took: Any) -> None:
            if owner() is self and each.made is not None:
                watch.here.deriving = (each.cores, (each.kind, each.made))

        return hook

    def before(self, node: Any) -> Callable[[Any], None]:
        """The hook of a node that is given to."""

        def hook(took: Any) -> None:
            if owner() is self:
                with self.quietly():
                    self.flows[node] = Flow(self.taken(node, took))

        return hook

    def taken(self, node: Any, took: Any) -> tuple[Kept | None, ...]:
        """What a node takes: what the one that gives to it gave, if it is that still."""
        if self.level == "none":
            return tuple([self.keep(tensor) for tensor in took])
        found = []
        for place, tensor in enumerate(took):
            held = self.held.pop((node, place), None)
            same = held is not None and held[0] is tensor
            found.append(held[1] if same and held is not None else self.keep(tensor))
        return tuple(found)

    def given_to(self, target: tuple[Any, int] | None, tensor: Any) -> Kept | None:
        """What a node gives."""
        kept = self.keep(tensor)
        if kept is not None and target is not None and self.level != "none" and self.fed.get(target) == 1:
            self.held[target] = (tensor, kept)
        return kept

    def keep(self, tensor: Any) -> Kept | None:
        """What is kept of a gradient, at this call's level."""
        if not isinstance(tensor, Tensor):
            return None
        shape = tuple(tensor.shape)
        if tensor.is_nested:
            shape = tuple(size if type(size) is int else -1 for size in shape)  # a ragged one has no number
        dtype, device = plain(tensor.dtype), called_device(tensor.device)
        if self.level == "none" or type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
            return Kept(shape, dtype, device)
        value = tensor.detach().clone() if self.level == "values" else None
        return Kept(shape, dtype, device, stats_of(tensor), value)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """What we compute is not the program's, and what goes wrong with it neither."""
        try:
            if self.level == "none":  # nothing is computed
                yield
                return
            with watch.aside(), torch.no_grad():
                yield
        except Exception as error:  # a dump that cannot be whole must not stop a training step
            self.wrong.append(error)


called_device = functools.cache(str)


def walk(roots: Sequence[Any]) -> dict[Any, Reached]:
    """Every node that can be reached from roots, by itself."""
    found: dict[Any, Reached] = {}
    stack = [node for root in roots if (node := node_of(root)) is not None]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        targets = node.next_functions
        found[node] = reached(node, targets)
        stack += [target for target, _ in targets if target is not None and target not in found]
    return found


def node_of(root: Any) -> Any:
    """The node that a root's gradient goes to."""
    if not isinstance(root, Tensor):
        return root.node  # a GradientEdge
    return root.grad_fn if root.grad_fn is not None else torch.autograd.graph.get_gradient_edge(root).node


def touched(kind: str, made: Made) -> Sequence[Made]:
    """The other nodes that were made for the same operator."""
    ran = op_of(kind, made)
    return ran.nodes if ran is not None else ()


def called(roots: Sequence[Any]) -> dict[int, str]:
    """What the roots are called where the backward was called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    names = {id(value): name for name, value in locals_of(frame).items()} if frame is not None else {}
    return {index: names[id(root)] for index, root in enumerate(roots) if id(root) in names}


def reached(node: Any, targets: Any) -> Reached:
    """One node."""
    record = record_of(node)
    kind = kind_of(node)
    cores = record.cores if record is not None and not is_leaf(kind) else ()
    slots = tuple((target, place) if target is not None else None for target, place in targets)
    return Reached(node, kind, record.made if record is not None else None, cores, slots)


# ------------------------------------------------------------------ whose hook it is

_local = threading.local()
_tasks: dict[int, Call] = {}
_open: list[Call] = []
_lock = threading.Lock()


def owner() -> Call | None:
    """The call whose graph task runs here."""
    task = torch._C._current_graph_task_id()
    known = _tasks.get(task)
    if known is not None:
        return known
    with _lock:
        own: list[Call] = getattr(_local, "calls", [])
        # A call in this thread, or one that waits in its own while a device's thread works for it.
        waiting = own[-1:] if own else [call for call in _open if call.task is None]
        if len(waiting) != 1 or waiting[0].task is not None:
            return None
        waiting[0].task = task
        _tasks[task] = waiting[0]
        return waiting[0]


def follow(engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward call, and tell the regions that it reaches what flowed."""
    if any(isinstance(root, Tensor) and not root.requires_grad for root in roots):
        return engine(roots, *args, **kwargs)  # which raises, as it does without regions
    try:
        with watch.aside():
            call = Call(roots, args[0] if args else (), bool(args[2]) if len(args) > 2 else False)
    except Exception as error:  # ours: the backward is the user's, and is told that regions do not see it
        said = f"backprint: regions do not see this backward: {type(error).__name__}: {error}"
        warnings.warn(said, RuntimeWarning, stacklevel=4)
        return engine(roots, *args, **kwargs)
    if not call.cores:
        with watch.without_mode():
            return engine(roots, *args, **kwargs)
    calls: list[Call] = getattr(_local, "calls", [])
    _local.calls = calls
    calls.append(call)
    with _lock:
        _open.append(call)
    said = ""
    try:
        with call.quietly():
            call.hook()
        with watch.without_mode(), watch.making(call.create_graph):
            return engine(roots, *args, **kwargs)
    except BaseException as raised:
        said = f"{type(raised).__name__}: {raised}".splitlines()[0][:500]
        raise
    finally:
        watch.here.deriving = None
        call.unhook()
        calls.remove(call)
        with _lock:
            _open.remove(call)
            if call.task is not None:
                _tasks.pop(call.task, None)
        for core in call.cores:
            core.ended(call, said)


watch.follow_with(follow)
