"""Following one backward call: which nodes of which regions it reaches, and what flows over their edges.

The graph is walked from the roots. Nodes inside a region, and the nodes that feed them, get a hook that runs after them
and sees the gradients they take and return; the nodes that they feed get one that runs before. All hooks are removed
with the call. Hooks belong to the call's own graph task: another thread's call over the same graph has its own. An
error in following is kept, and never stops the backward.
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

from backprint._torch.autograd import current_backward
from backprint.errors import describe_error
from backprint.tools.regions import watch
from backprint.tools.regions.names import is_leaf, node_kind
from backprint.tools.regions.nouns import LEVELS
from backprint.tools.regions.records import NodeRecord
from backprint.tools.regions.watch import tag_of
from backprint.trace import frames
from backprint.trace.frames import is_users
from backprint.values.memory import has_memory
from backprint.values.statistics import Stats, stats_of


class KeptGradient(NamedTuple):
    """A gradient as far as the level keeps it: shape, dtype, device; statistics; a copy."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    stats: Stats | None = None
    value: Tensor | None = None


class _GradientOnItsWay(NamedTuple):
    """A gradient that a node has returned, and that its target has not taken yet, with what was kept of it."""

    tensor: Tensor
    kept: KeptGradient


@dataclass(slots=True)
class NodeFlow:
    """The gradients that a node took and returned."""

    taken: tuple[KeptGradient | None, ...]
    returned: tuple[KeptGradient | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """A node that a backward call reaches: its kind, the record of how the forward made it, the cores of its regions,
    and its targets: `slots` has for each of its outputs the (node, input) that takes the gradient, or None."""

    kind: str
    record: NodeRecord | None
    cores: tuple[Any, ...]
    slots: tuple[tuple[Any, int] | None, ...]

    @property
    def seq(self) -> int:
        """The place of the node in the order in which the forward made the nodes of regions."""
        return -1 if self.record is None else self.record.seq

    @property
    def targets(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that take its gradients, each with the input."""
        return tuple(target for target in self.slots if target is not None)


class BackwardCall:
    """The state of one backward call: the nodes that it reaches, its hooks, and the gradients seen so far."""

    def __init__(self, roots: Sequence[Any], gradients: Sequence[Any], create_graph: bool) -> None:
        self.create_graph = create_graph
        self.nodes = reachable_nodes(roots)
        self.cores = list(dict.fromkeys(core for reached in self.nodes.values() for core in reached.cores))
        self.roots, self.given = roots, gradients
        self.titles = _root_names(roots) if self.cores else {}
        self.numbers = {core: core.count.take() for core in self.cores}  # the number of the pass of each region
        # The highest level of the regions that keep this pass.
        due = [core for core, number in self.numbers.items() if core.count.is_due(number, core.bounds)]
        self.level = max((core.level for core in due), key=LEVELS.index, default="none")
        self.flows: dict[Any, NodeFlow] = {}
        # How many hooked nodes give a gradient to each (node, input). If it is one, the gradient arrives as that node
        # returned it, so what was kept of it there waits here, and its statistics are computed once.
        self.givers: dict[tuple[Any, int], int] = {}
        self.on_its_way: dict[tuple[Any, int], _GradientOnItsWay] = {}
        self.handles: list[Any] = []
        self.root_kept: list[KeptGradient | None] = []
        self.task: int | None = None  # autograd's number of the graph task, known when the first hook runs
        self.thread = threading.get_ident()
        self.started, self.clock = time.time(), time.perf_counter()
        self.seconds = 0.0
        self.errors: list[Exception] = []

    def hook(self) -> None:
        """Hook the nodes whose gradients the regions keep: `sources` are in a region or feed one, `targets` take
        gradients from a region."""
        sources: set[Any] = set()
        targets: set[Any] = set()
        for node, each in self.nodes.items():
            near = [target for target, _ in each.targets if self.nodes[target].cores]
            if each.cores or near:
                sources.add(node)
                targets.update(target for target, _ in each.targets if each.cores or self.nodes[target].cores)
                for target in each.targets:
                    self.givers[target] = self.givers.get(target, 0) + 1
            if node in sources:
                self.handles.append(node.register_hook(self.after(node)))
            if each.cores and self.create_graph:
                self.handles.append(node.register_prehook(self.deriving(node)))
        for node in targets - sources:
            self.handles.append(node.register_prehook(self.before(node)))
        with self.quietly():
            self.root_kept = [self.keep(each) if isinstance(each, Tensor) else None for each in self.given]

    def unhook(self) -> None:
        """Remove the hooks."""
        self.seconds = time.perf_counter() - self.clock
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.on_its_way.clear()

    def after(self, node: Any) -> Callable[[Any, Any], None]:
        """Return the hook that runs after a node, for its gradients."""

        def hook(returned: Any, incoming: Any) -> None:
            if _running_call() is self:
                watch.here.deriving = None
                with self.quietly():
                    taken = self.incoming_gradients(node, incoming)
                    self.flows[node] = NodeFlow(taken, self.returned_gradients(node, returned))

        return hook

    def deriving(self, node: Any) -> Callable[[Any], None]:
        """Return the hook that runs before a node whose backward makes nodes itself (`create_graph`): these belong to
        the node's regions until `after` ends it."""
        reached = self.nodes[node]

        def hook(incoming: Any) -> None:
            if _running_call() is self and reached.record is not None:
                watch.here.deriving = (reached.cores, (reached.kind, reached.record))

        return hook

    def before(self, node: Any) -> Callable[[Any], None]:
        """Return the hook that runs before a node that only takes gradients."""

        def hook(incoming: Any) -> None:
            if _running_call() is self:
                with self.quietly():
                    self.flows[node] = NodeFlow(self.incoming_gradients(node, incoming))

        return hook

    def incoming_gradients(self, node: Any, incoming: Any) -> tuple[KeptGradient | None, ...]:
        """Return what is kept of the gradients that a node takes."""
        taken = []
        for place, tensor in enumerate(incoming):
            before = self.on_its_way.pop((node, place), None)
            # A tensor hook may have put another gradient in the place of the one that was returned.
            is_unchanged = before is not None and before.tensor is tensor
            taken.append(before.kept if before is not None and is_unchanged else self.keep(tensor))
        return tuple(taken)

    def returned_gradients(self, node: Any, returned: Any) -> tuple[KeptGradient | None, ...]:
        """Return what is kept of the gradients that a node returns, and note it for those that arrive unchanged."""
        gradients = []
        for tensor, target in zip(returned, self.nodes[node].slots, strict=True):
            kept = self.keep(tensor)
            # At level none there are no statistics that could be computed twice.
            if kept is not None and target is not None and self.level != "none" and self.givers.get(target) == 1:
                self.on_its_way[target] = _GradientOnItsWay(tensor, kept)
            gradients.append(kept)
        return tuple(gradients)

    def keep(self, tensor: Any) -> KeptGradient | None:
        """Return what is kept of a gradient at this call's level; of one whose values cannot be read, such as one of a
        subclass, only shape, dtype and device."""
        if not isinstance(tensor, Tensor):
            return None
        shape = tuple(tensor.shape)
        if tensor.is_nested:
            shape = tuple(size if type(size) is int else -1 for size in shape)  # a ragged size is not a number
        dtype, device = dtype_text(tensor.dtype), device_text(tensor.device)
        if self.level == "none" or type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
            return KeptGradient(shape, dtype, device)
        if not has_memory(tensor):
            return KeptGradient(shape, dtype, device)
        value = tensor.detach().clone() if self.level == "values" else None
        return KeptGradient(shape, dtype, device, stats_of(tensor), value)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Compute statistics unwatched and without autograd, and keep errors instead of raising them."""
        try:
            if self.level == "none":  # nothing is computed
                yield
                return
            with watch.unwatched_here(), torch.no_grad():
                yield
        except Exception as error:  # a dump that cannot be whole must not stop a training step
            self.errors.append(error)


device_text = functools.cache(str)


@functools.cache
def dtype_text(dtype: torch.dtype) -> str:
    """Return the name of a dtype without `torch.`: `float32`."""
    return str(dtype)[6:]


def reachable_nodes(roots: Sequence[Any]) -> dict[Any, ReachedNode]:
    """Return every autograd node that can be reached from the roots, with what is recorded of it. A leaf is in no
    region: the same tensor may be used by many."""
    reached: dict[Any, ReachedNode] = {}
    stack = [node for root in roots if (node := root_node(root)) is not None]
    while stack:
        node = stack.pop()
        if node in reached:
            continue
        targets = node.next_functions
        tag, kind = tag_of(node), node_kind(node)
        cores = tag.cores if tag is not None and not is_leaf(kind) else ()
        slots = tuple((target, place) if target is not None else None for target, place in targets)
        reached[node] = ReachedNode(kind, tag.made if tag is not None else None, cores, slots)
        stack += [target for target, _ in targets if target is not None and target not in reached]
    return reached


def root_node(root: Any) -> Any:
    """Return the node that a root's gradient goes to."""
    if not isinstance(root, Tensor):
        return root.node  # a GradientEdge
    return root.grad_fn if root.grad_fn is not None else torch.autograd.graph.get_gradient_edge(root).node


def _root_names(roots: Sequence[Any]) -> dict[int, str]:
    """Return the names of the roots' variables where the backward was called, by their index among the roots."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    names = {id(value): name for name, value in frames.variables(frame).items()} if frame is not None else {}
    return {index: names[id(root)] for index, root in enumerate(roots) if id(root) in names}


# ---- Whose hook it is

_local = threading.local()
_tasks: dict[int, BackwardCall] = {}
_open: list[BackwardCall] = []
_lock = threading.Lock()


def _running_call() -> BackwardCall | None:
    """Return the backward call whose graph task runs in this thread; None where it cannot be told. Hooks ask, because a
    node that two calls share has the hooks of both. A task is given to its call when it is first seen."""
    task = current_backward()
    known = _tasks.get(task)
    if known is not None:
        return known
    with _lock:
        own: list[BackwardCall] = getattr(_local, "calls", [])
        # A call in this thread, or one that waits in its own while a device's thread works for it.
        waiting = own[-1:] if own else [call for call in _open if call.task is None]
        if len(waiting) != 1 or waiting[0].task is not None:
            return None
        waiting[0].task = task
        _tasks[task] = waiting[0]
        return waiting[0]


def _follow_backward(engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward call, and hand the regions that it reaches the gradients that flowed."""
    if watch.here.busy:  # a backward of our own
        return engine(roots, *args, **kwargs)
    if any(isinstance(root, Tensor) and not root.requires_grad for root in roots):
        return engine(roots, *args, **kwargs)  # which raises, as it does without regions
    try:
        with watch.unwatched_here():
            # After the roots, autograd's engine takes their gradients, keep_graph and create_graph.
            call = BackwardCall(roots, args[0] if args else (), bool(args[2]) if len(args) > 2 else False)
    except Exception as error:  # an error of ours: the backward runs on, unseen by regions
        message = f"backprint: regions do not see this backward: {describe_error(error)}"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        return engine(roots, *args, **kwargs)
    if not call.cores:  # it reaches no region
        with watch.without_operator_mode():
            return engine(roots, *args, **kwargs)
    calls: list[BackwardCall] = getattr(_local, "calls", [])
    _local.calls = calls
    calls.append(call)
    with _lock:
        _open.append(call)
    cause = ""
    try:
        with call.quietly():
            call.hook()
        with watch.without_operator_mode(), watch.watching_new_nodes(call.create_graph):
            return engine(roots, *args, **kwargs)
    except BaseException as raised:
        cause = f"{type(raised).__name__}: {raised}".splitlines()[0][:500]
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
            core.backward_ended(call, cause)


watch.follow_backward = _follow_backward
