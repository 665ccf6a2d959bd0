"""The plain values that a region returns: passes, made of nodes and edges.

A pass is one backward call that reached the region. `level` says which gradients the region keeps (LEVELS): "none" only
shape, dtype and device, "stats" also their statistics (Stats), "values" also the tensors.
"""

from __future__ import annotations

import linecache
import os
import secrets
import time
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from backprint.values.statistics import Stats

LEVELS = ("none", "stats", "values")

RUN = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
"""The name of this process's run: when it began, in UTC, and a random suffix."""


@dataclass(frozen=True, slots=True)
class StackLine:
    """A line of a Python stack: file, number, function."""

    file: str
    line: int
    function: str

    @property
    def code(self) -> str:
        """The source text of the line; '' where its file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        code = self.code
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}" + (f": {code}" if code else "")


@dataclass(frozen=True, slots=True, repr=False)
class Node:
    """An autograd node that a pass ran. `kind` is autograd's name for it, `ops` the forward operators it stands for.

    Nodes that were made in the region are `inside`; the others are its boundary, and a `leaf` among them accumulates
    into a tensor. `tensors` are the forward tensors whose gradients the node takes, in order. `opaque` says why the
    operators of a node are unknown. `module` is the path of the innermost module whose forward made the node, if the
    block's function can see the model; '' in the model itself, and outside of one.
    """

    name: str
    kind: str
    inside: bool
    ops: tuple[str, ...] = ()
    stack: tuple[StackLine, ...] = ()
    line: StackLine | None = None
    tensors: tuple[str, ...] = ()
    leaf: bool = False
    opaque: str = ""
    module: str = ""

    def __repr__(self) -> str:
        where = f" in {self.module}" if self.module else ""
        return f"<node {self.name}: {', '.join(self.ops) or self.kind}{where}>"


@dataclass(frozen=True, slots=True, repr=False)
class Flowed:
    """A gradient that a pass saw: shape, dtype and device; statistics and values where the region keeps them."""

    name: str
    _: KW_ONLY
    shape: tuple[int, ...]
    dtype: str
    device: str
    stats: Stats | None = None
    gradient: Any = None

    @property
    def bad(self) -> bool:
        """Whether the gradient is known to have NaN or Inf."""
        return self.stats is not None and self.stats.bad

    def __repr__(self) -> str:
        numbers = f": {self.stats}" if self.stats is not None else ""
        kind = type(self).__name__.removeprefix("Backward").lower()
        return f"<{kind} {self.name} {self.dtype}{list(self.shape)}{numbers}>"


@dataclass(frozen=True, slots=True, repr=False)
class Edge(Flowed):
    """A gradient of `tensor` that one node returned to another, before gradients of several nodes are added.

    It goes from output `slot` of `source` to input `place` of `target`. `flows` is False where autograd passed None;
    shape, dtype and device are then those that the gradient would have, as far as they are known.
    """

    source: str
    target: str
    slot: int
    place: int
    tensor: str
    flows: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Input(Flowed):
    """The gradient at one input of a node: the sum of its edges and of outside gradients, after the user's hooks."""

    node: str
    place: int
    tensor: str


@dataclass(frozen=True, slots=True, repr=False)
class BackwardRoot(Flowed):
    """A tensor that a backward call began at, the node that made it, and the gradient passed for it."""

    node: str


ORIGINS = ("forward", "inputs", "backward", "gradients")


@dataclass(frozen=True, slots=True)
class NonfiniteOrigin:
    """Where the NaN or Inf of a pass come from. `what` is `NaN` or `Inf`, and `where` one of ORIGINS:

    `forward`     an operator of the block made them from finite numbers (or a NaN from Inf): `op`, `line`
    `inputs`      they came into the block with `tensor`, which `op` on `line` was the first to take
    `backward`    a node made them from a finite gradient: `node`, with the `op` and `line` of its forward
    `gradients`   they came into the region with the gradient of `tensor`, which `node` took

    The fields that a row does not name may be filled too, as far as they are known. `detail` adds a text.
    """

    what: str
    where: str
    op: str = ""
    line: StackLine | None = None
    tensor: str = ""
    node: str = ""
    detail: str = ""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line is not None else ""
        tensor = self.tensor or "a tensor"
        text = {
            "forward": f"{self.what} born in the forward: {self.op}{at}",
            "inputs": f"{self.what} came in from outside with {tensor}, first taken by {self.op}{at}",
            "backward": f"{self.what} born in the backward: {self.node}, of {self.op or 'an operator'}{at}",
            "gradients": f"{self.what} came in with the gradient of {self.tensor}, which {self.node} took{at}",
        }[self.where]
        return f"{text}; {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True)
class Unwatched:
    """The answer where gradients were not looked at: it is neither `None` nor false."""

    why: str = 'bp.region(gradients="stats") looks for NaN and Inf'

    def __str__(self) -> str:
        return f"not watched: {self.why}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class UnreachedOperator:
    """An operator of the region's forward that no pass has reached, its line, and how many times it ran there."""

    name: str
    line: StackLine | None
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.name} at {self.line}{times}" if self.line else f"{self.name}{times}"


@dataclass(frozen=True)
class Pass:
    """A backward pass that reached a region. It began at `time`, in seconds since 1970, and took `seconds`.

    `index` counts all passes of the region, kept or not. `nodes` are in the order in which they ran, `edges` and
    `inputs` in the order of their nodes. `error` is the exception of a backward that raised; the gradients up to it are
    kept. `notes` are errors of ours in following the call. `origin` says where NaN and Inf come from, or is None where
    there are none. `run` is the process that saw it, and `torch` its version of PyTorch.
    """

    region: str
    index: int
    time: float
    seconds: float
    level: str
    roots: tuple[BackwardRoot, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[Input, ...]
    error: str = ""
    notes: tuple[str, ...] = ()
    torch: str = ""
    origin: NonfiniteOrigin | Unwatched | None = None
    run: str = ""

    def _repr_html_(self) -> str:
        from backprint.tools.regions.pictures import html_of_pass

        return html_of_pass(self)

    @property
    def root(self) -> BackwardRoot | None:
        """The first tensor that the backward began at."""
        return self.roots[0] if self.roots else None

    @cached_property
    def first_bad(self) -> Edge | Unwatched | None:
        """The first edge with NaN or Inf, in the order of the backward; None if there is none, `Unwatched` where
        gradients were not looked at."""
        bad_edge = next((edge for edge in self.edges if edge.bad), None)
        return bad_edge if bad_edge is not None or self.watched else Unwatched()

    @property
    def watched(self) -> bool:
        """Whether gradients were looked at."""
        return self.level != "none"

    @property
    def bad(self) -> bool:
        """Whether a gradient or the forward had NaN or Inf, as far as that was watched, or the backward raised."""
        gradients = (*self.roots, *self.edges, *self.inputs)
        return bool(self.error) or isinstance(self.origin, NonfiniteOrigin) or any(flowed.bad for flowed in gradients)

    @property
    def backward(self) -> Pass:
        """The backward as a graph: its `nodes`, `edges`, `boundary`, `stacks` and `gradients`."""
        return self

    @property
    def boundary(self) -> tuple[Node, ...]:
        """The nodes just outside the region: its sources, its targets, and leaves."""
        return tuple(node for node in self.nodes if not node.inside)

    @property
    def stacks(self) -> dict[str, tuple[StackLine, ...]]:
        """The Python stack of each node's forward line."""
        return {node.name: node.stack for node in self.nodes if node.stack}

    @property
    def gradients(self) -> dict[str, Any]:
        """The gradient on each edge, where values were kept."""
        return {edge.name: edge.gradient for edge in self.edges if edge.gradient is not None}

    @property
    def bad_part(self) -> Pass:
        """A Pass of only those gradients that have NaN or Inf, the nodes at their ends, and the node that made them or
        took them from outside, if `origin` names one."""
        edges = tuple(edge for edge in self.edges if edge.bad)
        inputs = tuple(row for row in self.inputs if row.bad)
        roots = tuple(root for root in self.roots if root.bad)
        ends = {name for edge in edges for name in (edge.source, edge.target)}
        ends |= {row.node for row in inputs} | {root.node for root in roots}
        ends |= {self.origin.node} if isinstance(self.origin, NonfiniteOrigin) else set()
        nodes = tuple(node for node in self.nodes if node.name in ends)
        return replace(self, nodes=nodes, edges=edges, inputs=inputs, roots=roots)

    def node(self, name: str) -> Node:
        """Find a node by its name."""
        return next(node for node in self.nodes if node.name == name)

    def where(self, edge: Edge | Unwatched) -> StackLine | None:
        """Return the forward line of an edge's source, or else of its target; None if neither has one. `first_bad` may
        be passed as it is: of `Unwatched` there is no line."""
        if isinstance(edge, Unwatched):
            return None
        ends = (self.node(edge.source), self.node(edge.target))
        return next((node.line for node in ends if node.line is not None), None)

    def __repr__(self) -> str:
        inside = sum(node.inside for node in self.nodes)
        bad = ", bad" if self.bad else ""
        return f"<pass {self.index} of {self.region}: {inside} nodes inside, {len(self.edges)} edges{bad}>"
