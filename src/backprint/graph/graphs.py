"""Ports, steps and Graphs. A Graph is one direction of one program."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from backprint.errors import GraphError, RefusedError

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from backprint.graph.canonical import Canonical
    from backprint.graph.folding.nouns import FoldedGraph
from backprint.graph.keys import PortKey
from backprint.graph.legal import (
    _LOCAL,
    _NUMBER,
    MAX_INTEGER,
    MAX_SIZE,
    check_expression,
    check_local,
    check_target,
    is_custom,
)
from backprint.graph.shown import in_a_line, number_of
from backprint.graph.specs import Spec
from backprint.graph.values import Op, Ref, Sub, Value, leaves

IN_ROLES = ("parameter", "buffer", "input", "constant", "saved", "tangent", "rng")

OUT_ROLES = ("output", "mutation", "saved", "gradient")

ROLES = frozenset({*IN_ROLES, *OUT_ROLES})


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a Graph. `name` is the program's own; `local` is an input's identifier in the text."""

    name: str
    role: str
    spec: Spec = None
    local: str = ""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise GraphError(f"port {self.name!r}: {self.role!r} is not a role; known are {', '.join(sorted(ROLES))}")
        if not self.name or len(self.name) > 4096 or not self.name.isprintable():
            raise GraphError(f"a port's name must be printable and not empty, not {self.name!r:.80}")

    @property
    def key(self) -> PortKey:
        """The port's role and name, which identify it."""
        return PortKey(self.role, self.name)


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program a step came from. It is written into a comment, so characters that could end one are
    replaced."""

    file: str
    line: int
    function: str
    code: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.line < 10**9:
            raise GraphError(f"{self.line!r:.80} is not a line number")
        for part, blurs in _BLURS.items():
            text: str = getattr(self, part)
            shown = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
            said = blurs.sub("_", shown.strip())
            if said != text or (part == "file" and not said):
                object.__setattr__(self, part, said or "_" * (part == "file"))


_BLURS = {
    "file": re.compile(r"^\[|;|:(?=\d+ in )"),
    "function": re.compile(":"),
    "code": re.compile("(?!)"),
    "module": re.compile(r"\]"),
}
"""What, in each part of a Source, would be read back as the start of another part."""

ECHOES = ("gradient of", "sum of gradients of", "recomputes")


@dataclass(frozen=True, slots=True)
class Echo:
    """How a step relates to the other direction: `gradient of convolution_3`, or of several: `relu, relu_1`."""

    kind: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in ECHOES:
            raise GraphError(f"{self.kind!r} is not an echo; known are {', '.join(ECHOES)}")
        if not self.names:
            raise GraphError(f"an echo names at least one value: {self.kind!r} of nothing")
        for name in self.names:
            check_local(name)


@dataclass(frozen=True, slots=True)
class Step:
    """One call: `name = target(*args, **kwargs)`. One whose target begins with `assert` is a guard: it has no value."""

    name: str
    target: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()
    spec: Spec = None
    source: Source | None = None
    echo: Echo | None = None

    def __post_init__(self) -> None:
        check_local(self.name)
        if not self.is_guard:
            check_target(self.target)
        elif not self.args or type(self.args[0]) is not Ref or len(self.args) != GUARDS[self.target] or self.kwargs:
            raise GraphError(
                f"guard {self.name}: {self.target} takes a value by name and {GUARDS[self.target] - 1} more"
            )
        elif self.spec is not None:
            raise GraphError(f"guard {self.name}: a guard has no value, so no spec: {self.spec!r:.80}")
        for key, _ in self.kwargs:
            if type(key) is not str or not _LOCAL.fullmatch(key) or key.startswith("__"):
                raise RefusedError(f"step {self.name}: {key!r:.80} is not a keyword of an operator")
        if len(self.kwargs) > 1 and len({key for key, _ in self.kwargs}) != len(self.kwargs):
            raise GraphError(f"step {self.name}: a keyword stands twice")

    @property
    def is_guard(self) -> bool:
        """Whether the step checks a value instead of making one."""
        return self.target in GUARDS


GUARDS: Mapping[str, int] = {"assert_equal": 2, "assert_nan": 1, "assert_shape": 2}
"""Guard steps, `assert v == 3`, `assert v != v`, `assert v.shape == (4, 1)`, and how many arguments each has."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic size: its name, the value it had at capture, and its range."""

    name: str
    hint: int
    low: str = "0"
    high: str = "inf"

    def __post_init__(self) -> None:
        check_local(self.name)
        if type(self.hint) is not int or not -MAX_SIZE <= self.hint < MAX_SIZE:
            raise GraphError(f"symbol {self.name}: its value at capture is not a size: {self.hint!r:.80}")
        for bound in (self.low, self.high):
            check_expression(bound)
        low, high = (int(bound) if _NUMBER.fullmatch(bound) else None for bound in (self.low, self.high))
        if low is not None and high is not None and low > high:
            raise GraphError(f"symbol {self.name}: no size is in [{low}, {high}]")


@dataclass(frozen=True, slots=True)
class Graph:
    """One direction of one program: ports in, straight-line steps, ports out. `print(graph)` shows it as Python."""

    inputs: tuple[Port, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Port, ...]
    results: tuple[Value, ...]
    subgraphs: tuple[tuple[str, Graph], ...] = ()
    symbols: tuple[Symbol, ...] = ()
    title: str = field(default="", compare=False)
    isolated: str = field(default="", compare=False)
    """Of a graph that was read: why it may run in a process of its own alone; '' where it may run anywhere."""

    def __post_init__(self) -> None:
        check_graph(self)

    def __repr__(self) -> str:
        return f"Graph({graph_in_words(self, len(self.steps))})"

    if TYPE_CHECKING:  # bound in backprint.graph, which joins the nouns with their texts, forms and folds

        @property
        def code(self) -> str:
            """The graph as Python text that runs with torch alone; parsing it returns an equal graph."""

        def fold(self) -> FoldedGraph:
            """The graph with its repeated steps as loops; `.unfold()` returns an equal graph, `print` shows it."""

        def canonical(self) -> Canonical:
            """The graph without names and without the order of independent steps."""

        def hash(self, sizes: bool = True) -> str:
            """A digest of the canonical form; with `sizes=False` shapes and strides do not count."""

    def by_role(self, role: str) -> tuple[Port, ...]:
        """The ports with this role, inputs first."""
        return tuple(port for port in (*self.inputs, *self.outputs) if port.role == role)

    if TYPE_CHECKING:  # bound in backprint.api, which joins the rooms

        def to_fx(self) -> GraphModule:
            """A torch.fx.GraphModule that computes the same."""


def graph_in_words(graph: Graph | FoldedGraph, steps: int) -> str:
    """Say in a few words what a graph is: `forward of gpt: 62 steps, 14 inputs, 20 outputs`."""
    side = "backward" if any(port.role == "gradient" for port in graph.outputs) else "forward"
    name = in_a_line(graph.title.split(f", {side}.")[0])
    sizes = (number_of(steps, "step"), number_of(len(graph.inputs), "input"), number_of(len(graph.outputs), "output"))
    return f"{side}{f' of {name}' if name else ''}: {', '.join(sizes)}"


def custom_operators(graph: Graph) -> Iterator[tuple[Step, str]]:
    """Yield the custom operators that a graph calls or passes as arguments, subgraphs included, each with its step."""
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        handed = [leaf.target for value in values for leaf in leaves(value) if type(leaf) is Op]
        for target in filter(is_custom, (step.target, *handed)):
            yield step, target
    for _, sub in graph.subgraphs:
        yield from custom_operators(sub)


def check_graph(graph: Graph) -> None:
    """Raise unless every value is defined once, before its use, and the ports match their values."""
    check_members(graph)
    defined: set[str] = set()
    attributes = {name for name, _ in graph.subgraphs}
    for port in graph.inputs:
        check_role(port, "input", IN_ROLES)
        define(port.local, defined)
    for step in graph.steps:
        for value in (*step.args, *(value for _, value in step.kwargs)):
            check_use(value, step, defined, attributes)
        if not step.is_guard:
            define(step.name, defined)
    if len(graph.outputs) != len(graph.results):
        raise GraphError(f"{len(graph.outputs)} output ports for {len(graph.results)} results")
    for port, result in zip(graph.outputs, graph.results, strict=True):
        check_role(port, "output", OUT_ROLES)
        check_use(result, port, defined, attributes)


def check_members(graph: Graph) -> None:
    """Raise unless each symbol and subgraph has a name of its own."""
    members = [*(symbol.name for symbol in graph.symbols), *(name for name, _ in graph.subgraphs)]
    for name in members:
        check_local(name)
        if name == "forward" or members.count(name) > 1:
            raise GraphError(f"{name!r} is defined twice in one class")


def check_role(port: Port, side: str, roles: Sequence[str]) -> None:
    """Raise unless a port has a role of its side."""
    if port.role not in roles:
        raise GraphError(f"{side} {port.name!r} has the role {port.role!r}; an {side}'s is one of {', '.join(roles)}")


def define(name: str, defined: set[str]) -> None:
    """Add a value to those that are defined."""
    check_local(name)
    if name in defined:
        raise GraphError(f"{name!r} is defined twice")
    defined.add(name)


def check_use(value: Value, user: Step | Port, defined: Collection[str], attributes: Collection[str]) -> None:
    """Raise unless what a step or an output uses is defined, and its integers have 64 bits."""
    for leaf in leaves(value):
        odd = ""
        if isinstance(leaf, Ref):
            if leaf.name not in defined:
                odd = f"uses {leaf.name!r} before it is defined"
        elif isinstance(leaf, Sub):
            if leaf.name not in attributes:
                odd = f"uses the subgraph {leaf.name!r}, which the graph does not have"
        elif isinstance(leaf, int) and not -MAX_INTEGER <= leaf < MAX_INTEGER:
            odd = f"holds an integer of {leaf.bit_length()} bits"
        if odd:
            who = f"step {user.name!r} ({user.target})" if isinstance(user, Step) else f"output {user.name!r}"
            raise GraphError(f"{who} {odd}")
