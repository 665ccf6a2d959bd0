"""What a region gives: passes, of nodes and edges, as plain values. Gradients are tensors only where they were kept."""

from __future__ import annotations

import linecache
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

LEVELS = ("none", "stats", "values")

RUN = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
"""The run of a script that this process is: when it began, in UTC, and a few letters of its own."""


class Line(NamedTuple):
    """A line of a Python stack."""

    file: str
    line: int
    function: str

    @property
    def code(self) -> str:
        """The line itself, where its file can be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        code = self.code
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}" + (f": {code}" if code else "")


@dataclass(frozen=True, slots=True)
class Stats:
    """A gradient in numbers. `min`, `max`, `mean` and `std` are of what is finite, or None where nothing is."""

    count: int
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    norm: float
    nan: int
    inf: int
    zeros: int

    @property
    def bad(self) -> bool:
        """Whether it has NaN or infinite numbers."""
        return bool(self.nan or self.inf)

    def __str__(self) -> str:
        rest = "".join(f", {n} {word}" for n, word in ((self.nan, "NaN"), (self.inf, "Inf")) if n)
        if self.min is None:
            return f"norm {self.norm:.4g}{rest}"
        return (
            f"norm {self.norm:.4g}, {self.min:.4g} to {self.max:.4g}, mean {self.mean:.4g}, std {self.std:.4g}, "
            f"{self.zeros} of {self.count} zero{rest}"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One autograd node that a pass ran. `kind` is autograd's name for it; `ops` what ran in the forward for it.

    `inside` says that it was made in the region; the others are the boundary, and `leaf` those of them that accumulate
    into a tensor. `tensors` are the forward tensors that its inputs are gradients of, in order. `opaque` says why it
    cannot be looked into.
    """

    name: str
    kind: str
    inside: bool
    ops: tuple[str, ...] = ()
    stack: tuple[Line, ...] = ()
    line: Line | None = None
    tensors: tuple[str, ...] = ()
    leaf: bool = False
    opaque: str = ""


@dataclass(frozen=True, slots=True)
class Flowed:
    """A gradient that a pass saw: its name, its kind, and its numbers and bits as far as the region keeps them."""

    name: str
    _: KW_ONLY
    shape: tuple[int, ...]
    dtype: str
    device: str
    stats: Stats | None = None
    gradient: Any = None


@dataclass(frozen=True, slots=True)
class Edge(Flowed):
    """What one node gave another: the gradient of `tensor`, before it is added to what others gave.

    It goes from output `slot` of `source` to input `place` of `target`. Where nothing flowed `flows` is False, and its
    kind is that of what would have, as far as it is known.
    """

    source: str
    target: str
    slot: int
    place: int
    tensor: str
    flows: bool = True


@dataclass(frozen=True, slots=True)
class Input(Flowed):
    """What a node got on one input: the sum of its edges and of what came from outside, after the user's hooks."""

    node: str
    place: int
    tensor: str


@dataclass(frozen=True, slots=True)
class Root(Flowed):
    """Where a pass began: a tensor, the node that made it, and the gradient it was given."""

    node: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the NaN or Inf of a pass come from. `what` is `NaN` or `Inf`, and `where` one of

    `forward`     an operator of the block made them of finite numbers (or, of Inf, a NaN): `op`, `line`
    `inputs`      they came into the block with `tensor`, which `op` on `line` was the first to take
    `backward`    a node made them of a finite gradient: `node`, with the `op` and `line` of its forward
    `gradients`   they came into the region with the gradient of `tensor`, which `node` took

    `detail` says more, as far as it is known.
    """

    what: str
    where: str
    op: str = ""
    line: Line | None = None
    tensor: str = ""
    node: str = ""
    detail: str = ""

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line is not None else ""
        with_it = self.tensor or "a tensor"
        said = {
            "forward": f"{self.what} born in the forward: {self.op}{at}",
            "inputs": f"{self.what} came in from outside with {with_it}, first taken by {self.op}{at}",
            "backward": f"{self.what} born in the backward: {self.node}, of {self.op or 'an operator'}{at}",
            "gradients": f"{self.what} came in with the gradient of {self.tensor}, which {self.node} took{at}",
        }[self.where]
        return f"{said}; {self.detail}" if self.detail else said


@dataclass(frozen=True, slots=True)
class Unwatched:
    """What stands for an answer where nobody looked: it is neither `None` nor false."""

    why: str = 'bp.region(gradients="stats") looks for NaN and Inf'

    def __str__(self) -> str:
        return f"not watched: {self.why}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Op:
    """Operators of the region's forward that no pass has reached, with their line, and how many times they ran."""

    name: str
    line: Line | None
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.name} at {self.line}{times}" if self.line else f"{self.name}{times}"


@dataclass(frozen=True, slots=True)
class Forward:
    """What a block left behind at its end: its nodes, and which took the outputs of which: (maker, taker, tensor)."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Pass:
    """One backward pass that reached a region. `time` is when it began, in seconds since 1970; `seconds` how long.

    `index` counts the passes of the region, those that were not kept too. `nodes` are in the order in which they ran,
    `edges` and `inputs` in that of their nodes. `error` is what the backward raised, if it did: what had flowed by then
    is here. `origin` says where NaN and Inf come from, None where there are none. `run` is the process that saw it.
    """

    region: str
    index: int
    time: float
    seconds: float
    level: str
    roots: tuple[Root, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[Input, ...]
    error: str = ""
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    origin: Origin | Unwatched | None = None
    run: str = ""

    @property
    def root(self) -> Root | None:
        """The first root."""
        return self.roots[0] if self.roots else None

    @cached_property
    def first_bad(self) -> Edge | Unwatched | None:
        """The first edge with NaN or infinite numbers; `Unwatched` where nobody looked."""
        found = next((edge for edge in self.edges if edge.stats is not None and edge.stats.bad), None)
        return found if found is not None or self.watched else Unwatched()

    @property
    def watched(self) -> bool:
        """Whether gradients were looked at."""
        return self.level != "none"

    @property
    def bad(self) -> bool:
        """Whether NaN or Inf flowed, or were born in the forward, or the backward raised, as far as it was watched."""
        every = (*self.roots, *self.edges, *self.inputs)
        return bool(
            self.error
            or isinstance(self.origin, Origin)
            or any(each.stats is not None and each.stats.bad for each in every)
        )

    @property
    def backward(self) -> View:
        """The backward as a graph."""
        return View(self)

    def node(self, name: str) -> Node:
        """A node by its name."""
        return next(node for node in self.nodes if node.name == name)

    def where(self, edge: Edge | Unwatched) -> Line | None:
        """The forward line that an edge's source, or else its target, comes from."""
        if isinstance(edge, Unwatched):
            return None
        ends = (self.node(edge.source), self.node(edge.target))
        return next((node.line for node in ends if node.line is not None), None)

    def __repr__(self) -> str:
        inside = sum(node.inside for node in self.nodes)
        return f"<pass {self.index} of {self.region}: {inside} nodes inside, {len(self.edges)} edges>"


@dataclass(frozen=True, slots=True)
class View:
    """A pass as a graph: nodes, edges, the boundary around it, the stacks and the gradients by name."""

    of: Pass

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order in which they ran."""
        return self.of.nodes

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges."""
        return self.of.edges

    @property
    def boundary(self) -> tuple[Node, ...]:
        """The nodes just outside: those that gave to the region, those that it gave to, and leaves."""
        return tuple(node for node in self.of.nodes if not node.inside)

    @property
    def stacks(self) -> dict[str, tuple[Line, ...]]:
        """The Python stack of each node's forward line."""
        return {node.name: node.stack for node in self.of.nodes if node.stack}

    @property
    def gradients(self) -> dict[str, Any]:
        """The gradient on each edge, where values were kept."""
        return {edge.name: edge.gradient for edge in self.of.edges if edge.gradient is not None}

    @property
    def accumulated(self) -> dict[str, Any]:
        """The gradient at each node's input, where values were kept."""
        return {each.name: each.gradient for each in self.of.inputs if each.gradient is not None}
