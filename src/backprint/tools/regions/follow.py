"""Following one backward call: which nodes of which regions it reaches, and what flows over their edges.

The autograd graph is walked from the roots. Nodes inside a region, and the nodes that return gradients to them, get a
hook that runs after the node and sees the gradients that it took and returned; the nodes that only take gradients from
a region get a hook that runs before. All hooks are removed when the call ends. Each call acts only in the hooks of its
own graph task, because another thread's call over the same graph has hooks on the same nodes. An error in following is
kept, and never stops the backward.

Words of this file:

- root: a tensor, or a `torch.autograd.graph.GradientEdge`, on which the backward is called.
- core: a RegionCore (`context.py`), the state of a region. It has the region's `level`, its `bounds` (which passes are
  kept) and its `count` (which numbers the passes).
- level: which gradients a region keeps: "none" only shapes, "stats" statistics too, "values" copies too (LEVELS).
- tag: what `watch.py` left in the metadata of a node that was made in a region: its `cores`, and as `made` its
  NodeRecord, which says how the forward made it.
- slot: the number of an output of a node. place: the number of an input. target: the (node, place) that takes the
  gradient of a slot.
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
    """A gradient as far as the level keeps it: always shape, dtype and device; perhaps statistics, and a copy."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    stats: Stats | None = None
    value: Tensor | None = None


class _GradientOnItsWay(NamedTuple):
    """A gradient that a node has returned, and that its target has not taken yet, with its KeptGradient."""

    tensor: Tensor
    kept: KeptGradient


@dataclass(slots=True)
class NodeFlow:
    """The gradients that a node took, by place, and returned, by slot. None stands for a gradient that is None.
    `returned` is empty of a node that only takes gradients from a region."""

    taken: tuple[KeptGradient | None, ...]
    returned: tuple[KeptGradient | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """A node that a backward call reaches.

    `kind` is autograd's name for it (`MulBackward0`), `record` says how the forward made it, or is None of a node
    outside all regions, and `cores` are the cores of the regions that it was made in. `slots` has for each of its
    outputs the target, or None where no gradient is needed.
    """

    kind: str
    record: NodeRecord | None
    cores: tuple[Any, ...]
    slots: tuple[tuple[Any, int] | None, ...]

    @property
    def seq(self) -> int:
        """The number of the node in the order in which the forward made the nodes of regions; -1 outside of them."""
        return -1 if self.record is None else self.record.seq

    @property
    def targets(self) -> tuple[tuple[Any, int], ...]:
        """The targets of all outputs, without the Nones."""
        return tuple(target for target in self.slots if target is not None)


class BackwardCall:
    """The state of one backward call: the nodes that it reaches, its hooks, and the gradients seen so far.

    `gradients` are those that the caller passed for the roots (`grad_tensors` of torch.autograd.backward), each a
    tensor or None.
    """

    def __init__(self, roots: Sequence[Any], gradients: Sequence[Any], create_graph: bool) -> None:
        self.create_graph = create_graph
        self.nodes = reachable_nodes(roots)
        # The regions of all these nodes, each once.
        self.cores = list(dict.fromkeys(core for reached in self.nodes.values() for core in reached.cores))
        self.roots, self.root_gradients = roots, gradients
        self.titles = _root_names(roots) if self.cores else {}  # by the index of the root
        # The call is a pass of each region that it reaches, and takes the next number of each.
        self.numbers = {core: core.count.take() for core in self.cores}
        self.level = self._highest_level()
        self.flows: dict[Any, NodeFlow] = {}  # by node, in the order in which the nodes ran
        # How many hooked nodes return a gradient to each target. If it is one, the gradient arrives as that node
        # returned it, so its KeptGradient waits in `on_its_way`, and its statistics are computed once.
        self.givers: dict[tuple[Any, int], int] = {}
        self.on_its_way: dict[tuple[Any, int], _GradientOnItsWay] = {}
        self.handles: list[Any] = []  # of the hooks
        self.root_kept: list[KeptGradient | None] = []  # in the order of `roots`
        self.task: int | None = None  # autograd's number of the graph task, known when the first hook runs
        self.started, self.clock = time.time(), time.perf_counter()
        self.seconds = 0.0
        self.errors: list[Exception] = []

    def _highest_level(self) -> str:
        """Return the highest level of the regions that keep this pass: "none" if none does. Gradients are kept once,
        for all of these regions."""
        due = [core for core, number in self.numbers.items() if core.count.is_due(number, core.bounds)]
        return max((core.level for core in due), key=LEVELS.index, default="none")

    def hook(self) -> None:
        """Hook the nodes whose gradients the regions keep, and keep the gradients of the roots.

        `sources` are the nodes in a region, and those that return a gradient to a node in one. `takers` take the
        gradients that cross or stay in a region. Of a source, the hook after it sees what it took too, so only the
        other takers need a hook before.
        """
        sources: set[Any] = set()
        takers: set[Any] = set()
        for node, reached in self.nodes.items():
            targets_in_regions = [target for target, _ in reached.targets if self.nodes[target].cores]
            if reached.cores or targets_in_regions:
                sources.add(node)
                takers.update(target for target, _ in reached.targets if reached.cores or self.nodes[target].cores)
                for target_and_place in reached.targets:
                    self.givers[target_and_place] = self.givers.get(target_and_place, 0) + 1
                self.handles.append(node.register_hook(self.after(node)))
            if reached.cores and self.create_graph:
                self.handles.append(node.register_prehook(self.deriving(node)))
        for node in takers - sources:
            self.handles.append(node.register_prehook(self.before(node)))
        with self.quietly():
            self.root_kept = [
                self.keep(gradient) if isinstance(gradient, Tensor) else None for gradient in self.root_gradients
            ]

    def unhook(self) -> None:
        """Note how long the call took, remove the hooks, and let go of gradients that no hooked node has taken."""
        self.seconds = time.perf_counter() - self.clock
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.on_its_way.clear()

    def after(self, node: Any) -> Callable[[Any, Any], None]:
        """Return the hook that runs after a node and keeps the gradients that it took (`incoming`) and returned."""

        def hook(returned: Any, incoming: Any) -> None:
            if _running_call() is self:
                watch.here.deriving = None  # the node's backward has ended: see `deriving`
                with self.quietly():
                    taken = self.incoming_gradients(node, incoming)
                    self.flows[node] = NodeFlow(taken, self.returned_gradients(node, returned))

        return hook

    def deriving(self, node: Any) -> Callable[[Any], None]:
        """Return the hook that runs before a node of a region whose backward makes nodes itself (`create_graph`).

        It tells `watch`, in this thread, to tag new nodes as ones of the node's regions, until the hook of `after`
        resets this.
        """
        reached = self.nodes[node]

        def hook(incoming: Any) -> None:
            if _running_call() is self and reached.record is not None:
                watch.here.deriving = (reached.cores, (reached.kind, reached.record))

        return hook

    def before(self, node: Any) -> Callable[[Any], None]:
        """Return the hook that runs before a node that only takes gradients from a region, and keeps these."""

        def hook(incoming: Any) -> None:
            if _running_call() is self:
                with self.quietly():
                    self.flows[node] = NodeFlow(self.incoming_gradients(node, incoming))

        return hook

    def incoming_gradients(self, node: Any, incoming: Any) -> tuple[KeptGradient | None, ...]:
        """Return a KeptGradient of each gradient that a node takes, by place. One that arrives as it was returned has
        one already."""
        taken = []
        for place, tensor in enumerate(incoming):
            before = self.on_its_way.pop((node, place), None)
            # A tensor hook may have put another gradient in the place of the one that was returned.
            is_unchanged = before is not None and before.tensor is tensor
            taken.append(before.kept if before is not None and is_unchanged else self.keep(tensor))
        return tuple(taken)

    def returned_gradients(self, node: Any, returned: Any) -> tuple[KeptGradient | None, ...]:
        """Return a KeptGradient of each gradient that a node returns, by slot. Where a target takes no other gradient,
        note it in `on_its_way` for `incoming_gradients`."""
        gradients = []
        for tensor, target in zip(returned, self.nodes[node].slots, strict=True):
            kept = self.keep(tensor)
            # At level none there are no statistics that could be computed twice.
            if kept is not None and target is not None and self.level != "none" and self.givers.get(target) == 1:
                self.on_its_way[target] = _GradientOnItsWay(tensor, kept)
            gradients.append(kept)
        return tuple(gradients)

    def keep(self, tensor: Any) -> KeptGradient | None:
        """Return what is kept of a gradient at this call's level; None of a gradient that is None. Of one whose values
        cannot be read, such as one of a subclass, only shape, dtype and device are kept."""
        if not isinstance(tensor, Tensor):
            return None
        shape = tuple(tensor.shape)
        if tensor.is_nested:
            shape = tuple(size if type(size) is int else -1 for size in shape)  # a ragged size is not a number
        dtype, device = dtype_text(tensor.dtype), device_text(tensor.device)
        if self.level == "none" or type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
            return KeptGradient(shape, dtype, device)
        if not has_memory(tensor):  # a storage that was resized to 0, as FSDP does: to read it ends the process
            return KeptGradient(shape, dtype, device)
        value = tensor.detach().clone() if self.level == "values" else None
        return KeptGradient(shape, dtype, device, stats_of(tensor), value)

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Open a block that keeps gradients: an error in it goes into `errors` and is not raised, and what it computes
        is not recorded by autograd, and not seen by regions."""
        try:
            if self.level == "none":  # nothing is computed, so nothing must be hidden
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
    """Return every autograd node that can be reached from the roots, with its ReachedNode. A leaf (AccumulateGrad) is
    in no region, whatever its tag says: autograd makes one node for a tensor, and many regions may use the tensor."""
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
    """Return the names of the variables that hold the roots in the innermost of the user's frames, by the index of the
    root; a root that no variable holds has no entry."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    names = {id(value): name for name, value in frames.variables(frame).items()} if frame is not None else {}
    return {index: names[id(root)] for index, root in enumerate(roots) if id(root) in names}


# ---- Whose hook it is: the backward calls that run now
# Autograd numbers the graph tasks that run, one for each backward call, but tells the number to hooks alone, so a call
# learns its number from its first hook.

_local = threading.local()  # `_local.calls`: the calls that began in this thread, the innermost last
_tasks: dict[int, BackwardCall] = {}  # by the number of the graph task
_open: list[BackwardCall] = []  # of all threads
_lock = threading.Lock()


def _running_call() -> BackwardCall | None:
    """Return the backward call whose graph task runs in this thread; None where it cannot be told.

    Hooks ask this, because a node that two calls share has the hooks of both. A task that is seen for the first time is
    that of the innermost call of this thread. In a device's thread, where no call began, it is that of the only call
    without a task, which waits in its own thread.
    """
    task = current_backward()
    known = _tasks.get(task)
    if known is not None:
        return known
    with _lock:
        own: list[BackwardCall] = getattr(_local, "calls", [])
        candidates = own[-1:] if own else [call for call in _open if call.task is None]
        if len(candidates) != 1 or candidates[0].task is not None:
            return None
        candidates[0].task = task
        _tasks[task] = candidates[0]
        return candidates[0]


def _follow_backward(engine: Callable[..., Any], roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a backward call, and give each region that it reaches the gradients that flowed. Return what the engine does.

    `engine` is torch's `_engine_run_backward`. After the roots it takes their gradients, `keep_graph` and
    `create_graph`, by position.
    """
    if watch.here.busy:  # in a block of `unwatched_here`: a backward of our own
        return engine(roots, *args, **kwargs)
    if any(isinstance(root, Tensor) and not root.requires_grad for root in roots):
        return engine(roots, *args, **kwargs)  # which raises, as it does without regions
    call = _begin_call(roots, gradients=args[0] if args else (), create_graph=len(args) > 2 and bool(args[2]))
    if call is None:
        return engine(roots, *args, **kwargs)
    if not call.cores:  # it reaches no region
        with watch.without_operator_mode():
            return engine(roots, *args, **kwargs)
    calls_of_thread: list[BackwardCall] = getattr(_local, "calls", [])
    _local.calls = calls_of_thread
    calls_of_thread.append(call)
    with _lock:
        _open.append(call)
    cause = ""
    try:
        with call.quietly():
            call.hook()
        with watch.without_operator_mode(), watch.watching_new_nodes(call.create_graph):
            return engine(roots, *args, **kwargs)
    except BaseException as raised:  # also KeyboardInterrupt: the pass keeps its text, and the exception goes on
        cause = f"{type(raised).__name__}: {raised}".splitlines()[0][:500]
        raise
    finally:
        watch.here.deriving = None  # after a node that raised, no hook has reset this
        call.unhook()
        calls_of_thread.remove(call)
        with _lock:
            _open.remove(call)
            if call.task is not None:
                _tasks.pop(call.task, None)
        for core in call.cores:
            core.backward_ended(call, cause)


def _begin_call(roots: Any, gradients: Any, create_graph: bool) -> BackwardCall | None:
    """Return the state of a backward call that begins. After an error of ours, warn and return None: the backward runs
    on, unseen by regions."""
    try:
        with watch.unwatched_here():
            return BackwardCall(roots, gradients, create_graph)
    except Exception as error:
        message = f"backprint: regions do not see this backward: {describe_error(error)}"
        # 5: the line that called `Tensor.backward`; between are two frames of torch's and two of this file.
        warnings.warn(message, RuntimeWarning, stacklevel=5)
        return None


watch.follow_backward = _follow_backward
