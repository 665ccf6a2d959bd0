"""The nouns: plain frozen data, checked when they are made. Nothing here needs torch.

From the small to the large: a Value is an argument of a call, a Spec the type of a result. A Step is one call, a Port
one input or output, and a Graph is the steps and ports of one direction. A Pair is a forward and its backward, and a
Capture the Pairs of one call, with what it assumes of the call and what it knows of its program. At the end are the
texts inside a Capture (its output structure, its notes) and the tables of what is legal in a graph.

Words of this file:

- *Size*: a number, or the text of an expression of symbolic sizes, such as `s0 + 1`.
- *Role*: what a port is, as `parameter`, `saved` (kept by a forward for its backward) or `tangent` (the gradient of an
  output with which a backward starts): IN_ROLES and OUT_ROLES.
- *Target*: the operator that a step calls, as text: `aten.mm.default`, `operator.getitem`.
- A *custom* operator is one of a library, which torch alone does not have.
- A *guard step* is an `assert` in a graph's text; a Guard is a condition that a whole Capture assumes.
- The *program* is the user's model or function, *replay* runs the graphs in its place, and a *proof* compares the two.
- RefusedError is for what a graph may not hold, GraphError for a graph that cannot be.

`in_a_line` and `number_of` (`keys`) make text for messages: a name cut to a short line, and a number with its noun.
`_above(module)` imports a module of Backprint that imports this one, for a method that leads there. Objects are frozen,
so each is checked when it is made, in `__post_init__`.
"""

from __future__ import annotations

import ast
import importlib
import keyword
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from backprint.errors import GraphError, RefusedError, ReplayError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.keys import PortKey, in_a_line, number_of
from backprint.graph.operators import operators
from backprint.graph.verdicts import PortVerdict, verdict_text

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor
    from torch.fx import GraphModule

    from backprint.common.web_page import WebPage
    from backprint.common.words import DataWord, DrawWord, LayoutWord, PowerWord
    from backprint.graph.canonical import Canonical
    from backprint.graph.folding.nouns import FoldedGraph
    from backprint.graph.verdicts import Verdict


# ---- Values: the arguments of a call


@dataclass(frozen=True, slots=True)
class Ref:
    """A value named earlier in the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operator used as data, as higher-order operators take them."""

    target: str

    def __post_init__(self) -> None:
        _check_target(self.target)


@dataclass(frozen=True, slots=True)
class Sub:
    """A subgraph of this graph, by its attribute name."""

    name: str


@dataclass(frozen=True, slots=True)
class Atom:
    """A torch constant: a dtype, a layout or a memory format, such as `float32`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in ATOMS:
            raise RefusedError(f"torch.{self.name} is not a dtype, layout or memory format that a graph may hold")


@dataclass(frozen=True, slots=True)
class Device:
    """A device, such as `cpu` or `cuda:0`."""

    name: str

    def __post_init__(self) -> None:
        _check_device(self.name)


@dataclass(frozen=True, slots=True)
class Slice:
    """A Python slice."""

    start: Value
    stop: Value
    step: Value


@dataclass(frozen=True, slots=True)
class List:
    """A list; a tuple is a Python tuple, because operators distinguish them."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dict:
    """A dictionary, in order."""

    items: tuple[tuple[Value, Value], ...]


Leaf: TypeAlias = "bool | int | float | complex | str | Ref | Op | Sub | Atom | Device | None"

Value: TypeAlias = "Leaf | Slice | List | Dict | tuple[Value, ...]"

# The classes of Leaf, by which `leaves` tells a leaf from a container.
LEAVES = frozenset({type(None), bool, int, float, complex, str, Ref, Op, Sub, Atom, Device})

MAX_DEPTH = 32
"""How deep a value may nest lists, tuples, dictionaries and slices."""


def leaves(value: Value, depth: int = 0) -> Iterator[Leaf]:
    """Yield the leaves of a value, in order; raise for anything that is not a Value. `depth` counts the containers
    around it."""
    kind = type(value)
    # By exact type: a subclass of int or str could print as something else, and the text is the storage.
    if kind in LEAVES:
        yield value  # type: ignore[misc]  # a Leaf, as checked
        return
    if depth > MAX_DEPTH:
        raise RefusedError("a value is nested too deeply")
    match value:
        case tuple() | List(items=tuple()):
            for item in value if isinstance(value, tuple) else value.items:
                yield from leaves(item, depth + 1)
        case Slice(start, stop, step):
            for item in (start, stop, step):
                yield from leaves(item, depth + 1)
        case Dict(pairs):
            for key, item in pairs:
                yield from leaves(key, depth + 1)
                yield from leaves(item, depth + 1)
        case _:
            raise GraphError(f"a {kind.__name__} cannot stand in a graph: {value!r:.120}")


def refs(value: Value) -> Iterator[str]:
    """Yield the names in a value, in order."""
    return (leaf.name for leaf in leaves(value) if type(leaf) is Ref)


# ---- Specs: the type of a value, without the value

DTYPES: Mapping[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex128": "c128",
    "complex64": "c64",
    "complex32": "c32",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "b8",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
}
"""torch's dtype names and the short names that graphs print."""

# torch's layouts and memory formats; an Atom is one of these, or a dtype.
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")

FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")

ATOMS = frozenset({*DTYPES, *LAYOUTS, *FORMATS, "qint8", "quint8", "qint32", "float4_e2m1fn_x2", "bits8", "bits16"})


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The dtype, shape, strides, storage offset, device and layout of a tensor, by torch's names without `torch.`.
    `stride` is None if it is contiguous, and `offset` counts elements."""

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...] | None = None
    offset: Size = 0
    device: str = "cpu"
    layout: str = "strided"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise RefusedError(f"{self.dtype!r} is not a tensor dtype; known are {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise RefusedError(f"{self.layout!r} is not a tensor layout; known are {', '.join(LAYOUTS)}")
        if self.stride is not None and len(self.stride) != len(self.shape):
            raise GraphError(f"a tensor of {len(self.shape)} sizes cannot have {len(self.stride)} strides")
        for size in (*self.shape, *(self.stride or ()), self.offset):
            # The usual size is a small number, and passes here: only others take the call, which raises for a number
            # that does not fit and for a text that is no expression.
            if type(size) is not int or not -MAX_INTEGER <= size < MAX_INTEGER:
                check_size(size)
        if self.numel >= MAX_INTEGER:
            raise GraphError(f"a tensor of {self.numel:.3g} elements: at most 2**63 - 1 can be counted")
        if self.device != "cpu":
            _check_device(self.device)

    @property
    def numel(self) -> int:
        """The number of elements; symbolic sizes count as one."""
        return math.prod([size for size in self.shape if isinstance(size, int)])

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.numel * ITEMSIZE[self.dtype]


# The bytes of an element. The first number in a name is its bits: `float8_e4m3fn` has 8, and `complex64` has 64.
ITEMSIZE: Mapping[str, int] = {
    name: max(1, int(re.findall(r"(\d+)", name)[0]) // 8) if name != "bool" else 1 for name in DTYPES
}


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """The type of a result that is no tensor: `SymInt(s0 + 1)`, `int`, `float`, `bool`. `kind` is one of SCALARS, and
    `expression` the text in parentheses, '' where there is none."""

    kind: str
    expression: str = ""

    def __post_init__(self) -> None:
        if self.kind not in SCALARS:
            raise GraphError(f"{self.kind!r:.80} is not a scalar kind; known are {', '.join(SCALARS)}")
        if self.expression:
            check_expression(self.expression)


SCALARS = ("SymInt", "SymFloat", "SymBool", "int", "float", "bool", "complex", "None", "str", "object")

Spec: TypeAlias = "TensorSpec | ScalarSpec | tuple[Spec, ...] | None"
"""The type of a step's result: None if it is not known."""


# ---- Ports, steps and Graphs

IN_ROLES = ("parameter", "buffer", "input", "constant", "saved", "tangent", "rng")

OUT_ROLES = ("output", "mutation", "saved", "gradient")

ROLES = frozenset({*IN_ROLES, *OUT_ROLES})


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a Graph. `name` is the program's own, such as `layer1.0.conv1.weight`; `local` is the
    identifier of an input in the graph's text, and '' for an output.

    The tensor of a rank may be a shard; `shard` then says of what: `[64, 8] on tp: Shard(0)`.
    """

    name: str
    role: str
    spec: Spec = None
    local: str = ""
    shard: str = ""

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise GraphError(f"port {self.name!r}: {self.role!r} is not a role; known are {', '.join(sorted(ROLES))}")
        if not self.name or len(self.name) > MAX_NAME or not self.name.isprintable():
            raise GraphError(f"a port's name must be printable and not empty, not {self.name!r:.80}")
        if self.shard and not SHARD.fullmatch(self.shard):
            raise GraphError(f"port {self.name!r:.80}: {self.shard!r:.80} does not say what a shard is a part of")

    @property
    def key(self) -> PortKey:
        """The port's role and name, which identify it."""
        return PortKey(self.role, self.name)


MAX_NAME = 4096
"""The characters that a port's name may have: as many as are read of a text in a sample's `capture.json`."""

_PLACE = r"[\w.]{1,64}: \w{1,64}(?:\([\w, ]{0,64}\))?"

SHARD = re.compile(rf"\[[\d, ]{{0,256}}\] on {_PLACE}(?:, {_PLACE}){{0,7}}")
"""What a shard is a part of: the sizes of the whole, and its placement in each dimension of a device mesh."""


@dataclass(frozen=True, slots=True)
class Source:
    """The place in the user's program where a step was called: a line of a file, in a function, with its text as
    `code`, and the path of the nn.Module whose forward ran, '' outside of modules. It is written into a comment of the
    graph's text, so characters that could end the comment are replaced."""

    file: str
    line: int
    function: str
    code: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.line < 10**9:
            raise GraphError(f"{self.line!r:.80} is not a line number")
        # The parser must read back what was written, so the parts are made unambiguous here and not when they are
        # printed.
        for part, ambiguous in _AMBIGUOUS.items():
            text: str = getattr(self, part)
            printable = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
            comment = ambiguous.sub("_", printable.strip())
            if part == "file" and not comment:
                comment = "_"  # the grammar of the comment has a file in any case
            if comment != text:
                # A frozen dataclass assigns its fields only in this way.
                object.__setattr__(self, part, comment)

    @property
    def at(self) -> str:
        """The file and the line, as messages name them: `model.py:12`."""
        return f"{self.file}:{self.line}"


_AMBIGUOUS = {
    "file": re.compile(r"^\[|;|:(?=\d+ in )"),
    "function": re.compile(":"),
    # Matches nothing: the code is the last part of the comment, so no text in it begins another.
    "code": re.compile("(?!)"),
    "module": re.compile(r"\]"),
}
"""For each part of a Source, the text that would be read back as the start of another part."""

ECHOES = ("gradient of", "sum of gradients of", "recomputes")


@dataclass(frozen=True, slots=True)
class Echo:
    """How a step of the backward relates to values of the forward, which it names: `gradient of convolution_3`, or of
    several, `relu, relu_1`."""

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
    """One call of an operator: `name = target(*args, **kwargs)`. `spec` is the type of its result, None if it is not
    known. A guard step, whose target is one of GUARDS, checks a value and has none itself: its arguments are a Ref to
    the value, and what the value must be."""

    name: str
    target: str
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()
    spec: Spec = None
    source: Source | None = None
    echo: Echo | None = None

    def __post_init__(self) -> None:
        check_local(self.name)
        # Of a guard, GUARDS has the number of arguments: the value, and what it must be.
        if not self.is_guard:
            _check_target(self.target)
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

    def __repr__(self) -> str:
        from backprint.graph.text import show_step  # which imports this module

        return f"Step({in_a_line(show_step(self), 160)})"

    @property
    def is_guard(self) -> bool:
        """Whether the step checks a value instead of making one."""
        return self.target in GUARDS


GUARDS: Mapping[str, int] = {"assert_equal": 2, "assert_nan": 1, "assert_shape": 2}
"""Guard steps, `assert v == 3`, `assert v != v`, `assert v.shape == (4, 1)`, and how many arguments each has."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbolic size: its name, the value it had at capture (`hint`), and its range, from `low` to `high`, which are
    numbers or expressions as text."""

    name: str
    hint: int
    low: str = "0"
    high: str = "inf"

    def __post_init__(self) -> None:
        check_local(self.name)
        if type(self.hint) is not int or not -MAX_INTEGER <= self.hint < MAX_INTEGER:
            raise GraphError(f"symbol {self.name}: its value at capture is not a size: {self.hint!r:.80}")
        for bound in (self.low, self.high):
            check_expression(bound)
        # A bound may be an expression, which has no value here.
        low, high = (int(bound) if _NUMBER.fullmatch(bound) else None for bound in (self.low, self.high))
        if low is not None and high is not None and low > high:
            raise GraphError(f"symbol {self.name}: no size is in [{low}, {high}]")


# A weak reference is the key of tables about graphs that have run (`prove/run.LAST_USES`).
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Graph:
    """One direction of one program: ports in, straight-line steps, ports out. `print(graph)` shows it as Python.

    `results` has a Value for each output port. `subgraphs` are the bodies of higher-order operators, by name.
    """

    inputs: tuple[Port, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Port, ...]
    results: tuple[Value, ...]
    subgraphs: tuple[tuple[str, Graph], ...] = ()
    symbols: tuple[Symbol, ...] = ()
    title: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_graph(self)

    def __repr__(self) -> str:
        return f"Graph({graph_in_words(self, len(self.steps))})"

    # What stands in a module that imports this one is imported when it is called.

    @property
    def code(self) -> str:
        """The graph as Python text that runs with torch alone; parsing it returns an equal graph."""
        from backprint.graph.text import emit

        return emit(self)

    def __str__(self) -> str:
        """Return the text of the graph for people: `code`, or a listing with loops where it is long and repeats."""
        from backprint.graph.folding.listing import text_for_people

        return text_for_people(self)

    def fold(self) -> FoldedGraph:
        """Return the graph with its repeated steps as loops; `.unfold()` returns an equal graph, `print` shows it."""
        from backprint.graph.folding.fold import folded

        return folded(self)

    def canonical(self) -> Canonical:
        """Return the graph without names and without the order of independent steps."""
        from backprint.graph.canonical import canonical

        return canonical(self)

    def hash(self, sizes: bool = True) -> str:
        """Return a digest of the canonical form; with `sizes=False` shapes and strides do not count."""
        from backprint.graph.canonical import graph_hash

        return graph_hash(self, sizes=sizes)

    def to_fx(self) -> GraphModule:
        """Return a torch.fx.GraphModule that computes the same."""
        from backprint.graph.fx.to_fx import to_fx

        module: GraphModule = to_fx(self)
        return module

    def _repr_html_(self) -> str:
        html: str = _above("tools.draw").html_of_graph(self)
        return html

    def by_role(self, role: str) -> tuple[Port, ...]:
        """Return the ports with this role, inputs first."""
        return tuple(port for port in (*self.inputs, *self.outputs) if port.role == role)


def graph_in_words(graph: Graph | FoldedGraph, steps: int) -> str:
    """Return the direction, the title and the sizes of a graph: `forward of gpt: 62 steps, 14 inputs, 20 outputs`.
    `steps` is the number of its steps, where a loop of a FoldedGraph counts the steps of every iteration."""
    side = "backward" if any(port.role == "gradient" for port in graph.outputs) else "forward"
    # The title of a graph of a sample goes on: `gpt, forward. Captured by Backprint with …`.
    name = in_a_line(graph.title.split(f", {side}.")[0])
    sizes = (number_of(steps, "step"), number_of(len(graph.inputs), "input"), number_of(len(graph.outputs), "output"))
    return f"{side}{f' of {name}' if name else ''}: {', '.join(sizes)}"


# ---- The checks of a Graph


def _check_graph(graph: Graph) -> None:
    """Raise unless every name is defined once, every value before its use, and the ports match their values."""
    attributes = [name for name, _ in graph.subgraphs]
    # In the text of a graph, symbols and subgraphs are members of the class that has the method `forward`.
    members = [*(symbol.name for symbol in graph.symbols), *attributes]
    for name in members:
        check_local(name)
        if name == "forward" or members.count(name) > 1:
            raise GraphError(f"{name!r} is defined twice in one class")
    defined: set[str] = set()  # the names of the values so far
    for port in graph.inputs:
        _check_role(port, "input", IN_ROLES)
        define(port.local, defined)
    for step in graph.steps:
        for value in (*step.args, *(value for _, value in step.kwargs)):
            _check_use(value, step, defined, attributes)
        if not step.is_guard:
            define(step.name, defined)
    if len(graph.outputs) != len(graph.results):
        raise GraphError(f"{len(graph.outputs)} output ports for {len(graph.results)} results")
    for port, result in zip(graph.outputs, graph.results, strict=True):
        _check_role(port, "output", OUT_ROLES)
        _check_use(result, port, defined, attributes)


def _check_role(port: Port, side: str, roles: Sequence[str]) -> None:
    """Raise unless the role of a port is among `roles`, those of its side: `input` or `output`."""
    if port.role not in roles:
        raise GraphError(f"{side} {port.name!r} has the role {port.role!r}; an {side}'s is one of {', '.join(roles)}")


def define(name: str, defined: set[str]) -> None:
    """Add the name of a value to those that are defined; raise if it is defined already."""
    check_local(name)
    if name in defined:
        raise GraphError(f"{name!r} is defined twice")
    defined.add(name)


def _check_use(value: Value, user: Step | Port, defined: Collection[str], attributes: Collection[str]) -> None:
    """Raise unless the names in a `value`, which the step or the output port `user` takes, are among `defined`, its
    subgraphs among `attributes`, and its integers have 64 bits."""
    for leaf in leaves(value):
        problem = ""
        if isinstance(leaf, Ref):
            if leaf.name not in defined:
                problem = f"uses {leaf.name!r} before it is defined"
        elif isinstance(leaf, Sub):
            if leaf.name not in attributes:
                problem = f"uses the subgraph {leaf.name!r}, which the graph does not have"
        elif isinstance(leaf, int) and not -MAX_INTEGER <= leaf < MAX_INTEGER:
            problem = f"holds an integer of {leaf.bit_length()} bits"
        if problem:
            where = f"step {user.name!r} ({user.target})" if isinstance(user, Step) else f"output {user.name!r}"
            raise GraphError(f"{where} {problem}")


def custom_operators(graph: Graph) -> Iterator[tuple[Step, str]]:
    """Yield the custom operators that a graph and its subgraphs call, or pass to a higher-order operator as an Op, each
    as a step and the target."""
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        passed = [leaf.target for value in values for leaf in leaves(value) if type(leaf) is Op]
        for target in filter(is_custom, (step.target, *passed)):
            yield step, target
    for _, sub in graph.subgraphs:
        yield from custom_operators(sub)


def paths_of_modules(pairs: Iterable[Pair]) -> set[str]:
    """Return the paths of the modules that the steps of Pairs are in."""
    steps = (step for pair in pairs for graph in pair.graphs for step in graph.steps)
    return {step.source.module for step in steps if step.source is not None and step.source.module}


def refuse_collectives(capture: Capture, what: str) -> None:
    """Raise if a graph of a Capture has collectives: they need what the other ranks send. `what`, which begins the
    message, cannot run them: `a compiler`."""
    for step in (step for pair in capture.pairs for graph in pair.graphs for step in graph.steps):
        if step.target in COLLECTIVES:
            raise RefusedError(
                f"{what} cannot run {in_a_line(capture.name)}, one rank of several: step {step.name!r} needs what the "
                "other ranks send. `backprint verify` and its model.py run it with what they sent; take a part without "
                "collectives with bp.split"
            )


# ---- Pairs: a forward and its backward, tied by the saved ports

T = TypeVar("T")


class Deferred(Generic[T]):
    """A value that is computed once, at its first use: a graph of a sample is parsed only if it is needed."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    @property
    def known(self) -> T | None:
        """The value if it was computed, else None."""
        return self._value

    def get(self) -> T:
        """Return the value; compute it if this is the first use."""
        if self._make is not None:
            self._value = self._make()
            # The function is not needed again, nor anything that it holds.
            self._make = None
        return self._value  # type: ignore[return-value]  # it is set here or before, and T may itself be optional


LivedOn = tuple[str, str]
"""The name of a value of a forward that lived on after its last use, and that of the last step before it was freed."""


class Pair:
    """A forward Graph and its backward Graph (None where nothing is differentiable), tied by the saved ports.

    Each graph is one, or a Deferred that makes it when it is first asked for. `lives` has values of the forward that
    lived on after their last use when the program ran, in its variables or in a checkpoint: each as the value's name
    and the name of the last step, of both graphs, before it was freed (LivedOn). It does not count when Pairs are
    compared, as it says nothing of what the graphs compute.
    """

    __slots__ = ("_backward", "_forward", "lives", "name")

    def __init__(
        self,
        name: str,
        forward: Graph | Deferred[Graph],
        backward: Graph | Deferred[Graph] | Deferred[Graph | None] | None = None,
        *,
        lives: tuple[LivedOn, ...] = (),
    ) -> None:
        # Past the `__setattr__` below, which refuses.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "lives", lives)
        object.__setattr__(self, "_forward", forward)
        object.__setattr__(self, "_backward", backward)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a Pair is never edited in place (setting {key!r}): make a new one")

    def __deepcopy__(self, memo: object) -> Pair:
        return self  # it is never edited

    name: str
    lives: tuple[LivedOn, ...]
    _forward: Graph | Deferred[Graph]
    _backward: Graph | Deferred[Graph] | Deferred[Graph | None] | None

    @property
    def forward(self) -> Graph:
        """The forward Graph."""
        graph = self._forward
        return graph.get() if isinstance(graph, Deferred) else graph

    @property
    def backward(self) -> Graph | None:
        """The backward Graph; None where no output requires grad."""
        graph = self._backward
        return graph.get() if isinstance(graph, Deferred) else graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The forward Graph, and the backward Graph where there is one."""
        forward, backward = self.forward, self.backward
        return (forward,) if backward is None else (forward, backward)

    @property
    def saved(self) -> tuple[Port, ...]:
        """The ports that the forward keeps for the backward."""
        return tuple(port for port in self.forward.outputs if port.role == "saved")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and (self.name, self.forward, self.backward) == (
            other.name,
            other.forward,
            other.backward,
        )

    def __hash__(self) -> int:
        return hash((self.name, self.forward, self.backward))

    def __repr__(self) -> str:
        sizes = []
        for side, graph in (("forward", self._forward), ("backward", self._backward)):
            known = graph.known if isinstance(graph, Deferred) else graph  # a graph that is not parsed yet stays so
            if isinstance(known, Graph):
                sizes.append(number_of(len(known.steps), f"{side} step"))
        if self._backward is None:
            sizes.append("no backward")
        return f"Pair({': '.join(filter(None, [in_a_line(self.name), ', '.join(sizes)]))})"

    def _repr_html_(self) -> str:
        html: str = _above("tools.draw").html_of_pair(self)
        return html


# ---- What a Capture assumes, and how its call maps to ports


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition that a capture assumes. `inputs` are the inputs that it depends on, and `kind` says what it is about:

    - `value`: a number that the program read from a tensor, as `.item()` does; `shape`: a shape that depends on values,
      as that of `nonzero`; `spec`: how a sparse tensor is built. Each stands for a guard step of a graph.
    - `size`: a condition over symbols, or `NAME.shape[0] == EXPRESSION`, which replay checks before it runs.
    - `same`: one tensor was passed under two names. `flag`: a fact of an argument that the program read, such as
      `requires_grad`.
    - `memory`: the program read the address of an input, so replay checks that the same inputs share memory with it.
    - `pinned`: the capture holds for the values that these inputs had, and the text says why.
    - `alone`: the Capture was compared only on the captured values of these inputs, and the text says why. That the
      graphs are right on other values is then an assumption, not a proof.
    """

    kind: str
    text: str
    inputs: tuple[str, ...] = ()
    source: Source | None = None


HOOK_OF_MODULE = "BackwardHookFunction"
"""PyTorch's own autograd.Function, which calls the full backward hooks of a module."""

NO_FUNCTIONS = ("detach", "no_grad", "item", "hook")
"""What may be named as a place where the backward is meant not to be the derivative, beside autograd.Functions."""


@dataclass(frozen=True, slots=True)
class OpaqueEdge:
    """A place where autograd of the plain forward would not give the program's gradient, and the reason.

    `kind` is `function` (a custom autograd.Function, whose `text` begins with the name of its node, such as
    `SiluBackward`), `hook`, `detach`, `no_grad` or another construct, and `source` its line in the program. For a
    custom autograd.Function, `source` is the line at which its backward begins, and `lines` are the lines, as
    `file.py:8`, at which its forward and its backward call operators.
    """

    kind: str
    text: str
    source: Source | None = None
    lines: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """The name of the custom autograd.Function; '' for another edge."""
        name = self.text.partition(" ")[0].removesuffix("Backward") if self.kind == "function" else ""
        return "" if name == HOOK_OF_MODULE else name

    @property
    def is_hook(self) -> bool:
        """Whether the edge is a hook of a tensor or of a module."""
        return self.kind == "hook" or self.text.startswith(HOOK_OF_MODULE)


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between Pairs: the port `port` of Pair `source` feeds the input `name` of Pair `target`.

    With `target` None it is a result of the whole Capture, of that name; with `source` None it starts at an input of
    the whole Capture, which is passed through. Gradients flow along an `output` link the other way, and are summed if
    several links start at one port.
    """

    source: int | None
    port: PortKey
    target: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a call: its name (`*args`, `**kwargs` with their stars), and a fingerprint of its argument.

    A fingerprint is JSON in which `{"tensor": NAME}` stands for the port of that name. An `optional` parameter's
    default is the captured value; a `keyword` parameter can be passed only by name.
    """

    name: str
    like: Any
    optional: bool = False
    keyword: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """How the arguments and results of a call map to ports.

    `arguments` are the callable's parameter names; `leaves` the non-tensor leaves that are constants of the capture,
    pairs of a name and a text; `call` the argument of each parameter (None if no call was read: a part, a recorded
    step). `output` is a JSON tree (`filled`) whose leaves are `{"port": name}` or `{"value": repr}`; `differentiable`
    are the outputs that have tangents.
    `same` are pairs of names under which one tensor was passed. `loss` is the name of the output that is the loss; ''
    without one. `aliases` are pairs of inputs that share memory, and how many bytes after the first the second begins;
    None if no call was read.
    """

    arguments: tuple[str, ...] = ()
    leaves: tuple[tuple[str, str], ...] = ()
    output: Any = None
    differentiable: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    loss: str = ""
    call: tuple[Argument, ...] | None = None
    aliases: tuple[tuple[str, str, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of a Capture among the processes of a distributed step.

    `groups` has the ranks of the members of each group that a collective of its graphs runs in, by the group's label:
    the name of a dimension of a device mesh, or `world`.
    """

    number: int
    size: int
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()


# ---- Recipes: how the inputs of a Capture are made again (`sample/` implements them)


class InputRecipes(Protocol):
    """How a Capture's inputs are made again: a recipe for each input, and the data of those with exact recipes."""

    @property
    def recipes(self) -> Mapping[str, Any]:
        """The recipes by the names of inputs; a tangent's name is `tangent y`."""

    @property
    def exact(self) -> Mapping[str, Tensor]:
        """The data of the inputs that have exact recipes."""

    @property
    def seed(self) -> int:
        """The seed that the recipes' seeds were derived from."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""

    @property
    def complete(self) -> bool:
        """Whether the recipes make every input."""

    @property
    def rows(self) -> Mapping[str, Any]:
        """The recipes as JSON objects. Those of a sample are not checked, and need no torch."""

    def data(self, name: str) -> bytes | None:
        """Return the data of an exact recipe as bytes; None if there is none. Reading a sample's needs no torch."""

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Make every input, or the named ones; with a seed, a fresh draw of each input that is drawn."""


class _Unfitted:
    """The InputRecipes of a Capture before recipes are fitted to its inputs: none."""

    recipes: Mapping[str, Any] = MappingProxyType({})
    exact: Mapping[str, Tensor] = MappingProxyType({})
    rows: Mapping[str, Any] = MappingProxyType({})
    seed = 0
    missing = ()
    complete = False

    def data(self, name: str) -> bytes | None:
        return None

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        return {}


UNFITTED: InputRecipes = _Unfitted()


# ---- Origins: the program behind a Capture
# While the program lives, it is the reference of every proof. A traced program, a recorded step and a part of a Capture
# are each a class of their own above; a Capture that was read from disk has `GONE`.

if TYPE_CHECKING:
    Tensors = Mapping[str, Tensor]


class Origin:
    """The program behind a Capture, its arguments, and the options of its capture.

    The methods here are right where no Python program runs: nothing changes, so nothing must be restored. `constants`
    are the tensors behind the Capture's constant ports. `tangents` are the tangents of a recorded backward, for outputs
    whose specs are not enough to draw a tangent. `parts` has, for each of several Pairs that can run alone, an object
    with a `run_step` of its own. If it is `partial`, only recorded results are left, and it runs only on the recorded
    values.
    `traced_here` says whether this process traced the graphs, so that they can be trusted, and `not_bitwise` are the
    ports that were not bitwise when the Capture was made: no later verdict may be better.
    """

    partial = False
    traced_here = True
    options = CaptureOptions()
    constants: Tensors = MappingProxyType({})
    tangents: Tensors = MappingProxyType({})
    parts: Sequence[Any] = ()
    not_bitwise: tuple[PortVerdict, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the program still exists."""
        return True

    def values(self) -> dict[str, Tensor]:
        """Return every named tensor as captured."""
        raise NotImplementedError(f"{type(self).__name__} has no program that runs: ask `alive` first")

    def live(self) -> dict[str, Tensor]:
        """Return every named tensor: parameters, buffers and constants as they are now, inputs as captured."""
        return self.values()

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> Any:
        """Run one eager step of the program on these values by name; with `anew`, on copies of the tensors that are its
        arguments.

        Without tangents, the backward starts from ones. The result has `outputs`, `gradients` and `mutations` by name.
        """
        raise NotImplementedError(f"{type(self).__name__} has no program that runs: ask `alive` first")

    def objects_by_parameter(self) -> Mapping[str, Sequence[Any]]:
        """Return, for each parameter of the call, the values that can be compared only by identity."""
        return {}

    def restoring(self) -> AbstractContextManager[None]:
        """Take one snapshot of all that the program reaches, and restore it at the end of the block."""
        return nullcontext()

    def rebuild(self, structure: Any, named: Tensors) -> Any:
        """Return the outputs in the program's own containers; if those are lost, in the containers of `structure`."""
        return filled(structure, named)

    def result_difference(self) -> str:
        """Return where the non-tensor results of the last run differ from the Capture's; '' if nowhere."""
        return ""

    def random_state_digests(self) -> dict[str, str]:
        """Return the current digests of the random states that the program draws from, without torch's own."""
        return {}

    def release(self) -> None:
        """Drop the program and its arguments; values alone stay."""


class _Gone(Origin):
    """The Origin of a Capture that was read from disk: its program is gone."""

    traced_here = False

    @property
    def alive(self) -> bool:
        return False

    def values(self) -> dict[str, Tensor]:
        raise ReplayError("the program is gone, and its values with it")

    def run_step(self, values: Tensors, tangents: Tensors | None, anew: bool = False) -> Any:
        raise ReplayError("the program is gone, so it cannot run")


GONE = _Gone()


# ---- Captures


class _LastVerdict:
    """The verdict of the last proof of a Capture in this process, as JSON; None before the first. It is no part of the
    value: a Capture that is made of another one begins without."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row: Mapping[str, Any] | None = None


def keep_verdict(capture: Capture, row: Mapping[str, Any]) -> None:
    """Let a Capture say from now on what a proof of it came to. `row` is the verdict as a sample keeps it."""
    capture._last.row = row


def known_verdict(capture: Capture) -> Mapping[str, Any] | None:
    """Return the last verdict of a Capture: of its last proof in this process, else that of its sample, else None."""
    return capture._last.row or capture.verdict


@dataclass(frozen=True, slots=True)
class Capture:
    """The result of one capture call: Pairs in the order they ran, the engine, and the environment they were traced
    in.

    A Capture is never edited: `save`, `verify` and `replay` read it. Two Captures are equal if their graphs and all
    that they assume are equal, whatever is known of their program, recipes and verdicts. `meant` names the places where
    the backward is meant not to be the derivative: custom autograd.Functions, `detach`, `no_grad`. `rank` is its place
    among the processes of a distributed step, and `peers` answer its collectives where it runs alone.

    `breaks` describe the graph breaks of engine `dynamo`, and `why` says why engines that `auto` tried before were not
    used, and why a custom operator stays whole. `requires` are the custom operators that its graphs call. `pins` are
    digests of states that a replay must find as they were, by name. `claims` is what the capture.json of a sample says
    of each Pair's graphs, `witness` what the program returned, by the port's key, and `verdict` the verdict that its
    sample keeps, each as JSON. `modules` are the classes of the modules that its steps are in, by the modules' paths,
    for pictures. `forward` and `backward` are the Graphs of a Capture of one Pair.
    """

    name: str
    engine: str
    pairs: tuple[Pair, ...]
    signature: Signature = Signature()
    links: tuple[Link, ...] = ()
    breaks: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    opaque: tuple[OpaqueEdge, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ()
    seed: int = 0
    fake: bool = False
    pins: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    meant: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    rank: Rank | None = None
    peers: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    claims: tuple[Mapping[str, Any], ...] | None = field(default=None, compare=False, repr=False)
    recipes: InputRecipes = field(default=UNFITTED, compare=False, repr=False)
    witness: Mapping[str, Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    verdict: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    origin: Origin = field(default=GONE, compare=False, repr=False)
    _last: _LastVerdict = field(default_factory=_LastVerdict, init=False, compare=False, repr=False)

    def __dir__(self) -> list[str]:
        # What completes after a dot. The other fields are for the rooms that write, run and prove a Capture.
        return [name for name in object.__dir__(self) if name.startswith("__") or name in CAPTURE_FACE]

    def __deepcopy__(self, memo: object) -> Capture:
        return self  # it is never edited

    @property
    def forward(self) -> Graph:
        """The forward Graph of the only Pair."""
        return self._only_pair("forward").forward

    @property
    def backward(self) -> Graph | None:
        """The backward Graph of the only Pair; None where no output requires grad."""
        return self._only_pair("backward").backward

    def _only_pair(self, direction: str) -> Pair:
        """Return the Pair of a Capture that has one; raise with the names of all if it has several."""
        if len(self.pairs) == 1:
            return self.pairs[0]
        names = ", ".join(f"{index} {in_a_line(pair.name)}" for index, pair in enumerate(self.pairs[:MOST_NAMED]))
        more = f", … {len(self.pairs) - 1}" if len(self.pairs) > MOST_NAMED else ""
        has = f"{number_of(len(self.pairs), 'pair')} ({names}{more})" if self.pairs else "no pairs"
        # An AttributeError, because `forward` and `backward` are properties: so `hasattr`, and whatever walks over the
        # attributes of an object, goes on.
        raise AttributeError(
            f"Capture {in_a_line(self.name)} has {has}, so no one {direction}"
            + (f": take that of a pair, capture.pairs[0].{direction}" if self.pairs else "")
        )

    def __str__(self) -> str:
        return "\n\n".join(str(graph) for pair in self.pairs for graph in pair.graphs)

    def __repr__(self) -> str:
        engine = f"{self.engine}{', fake' if self.fake else ''}"
        verdict = known_verdict(self)
        proof = in_a_line(verdict_text(verdict), 160) if verdict else "not verified"
        return f"Capture({in_a_line(self.name)}: {number_of(len(self.pairs), 'pair')}, engine {engine}, {proof})"

    # The verbs of the face, as methods: each is `bp.NAME(capture, …)`, where its options are described.

    def save(
        self,
        path: str | os.PathLike[str],
        data: DataWord = "seed",
        *,
        allow: Sequence[str] = (),
        overwrite: bool = False,
        layout: LayoutWord = "backprint",
        evaluation: Capture | None = None,
        power: PowerWord = "quick",
    ) -> Path:
        """Write the Capture as a sample, and return its path, as `bp.save` does."""
        options: dict[str, Any] = dict(
            allow=allow, overwrite=overwrite, layout=layout, evaluation=evaluation, power=power
        )
        written: Path = _above("api").save(self, path, data, **options)
        return written

    def release(self) -> None:
        """Drop the captured program and its arguments."""
        _above("api").release(self)

    def verify(
        self,
        draws: Sequence[DrawWord] | None = None,
        *,
        trace: Capture | bool = False,
        derivative: bool | None = None,
    ) -> list[Verdict]:
        """Prove every Pair against the original program, as `bp.verify` does."""
        verdicts: list[Verdict] = _above("api").verify(self, draws, trace=trace, derivative=derivative)
        return verdicts

    def inputs(self) -> dict[str, Tensor]:
        """Return the tensors that its recipes make, by the program's own names."""
        values: dict[str, Tensor] = _above("api").inputs(self)
        return values

    def observed(self) -> dict[tuple[int, int, str], Any]:
        """Run the graphs on the Capture's own inputs, and return statistics of each value that they compute.

        The keys are (number of the Pair, 0 for its forward or 1 for its backward, name of the value).
        """
        statistics: dict[tuple[int, int, str], Any] = _above("api").observed(self)
        return statistics

    def draw(self, path: str | os.PathLike[str], *, pair: int = 0, nodes: int = 300, scale: float = 2.0) -> Path:
        """Draw a Pair as a picture, and return its path, as `bp.draw.draw` does."""
        written: Path = _above("tools.draw").draw(self, path, pair=pair, nodes=nodes, scale=scale)
        return written

    def view(self, path: str | os.PathLike[str] | None = None, *, stats: bool = False) -> WebPage:
        """Make the page of the Capture, as `bp.draw.view` does."""
        page: WebPage = _above("tools.draw").view(self, path, stats=stats)
        return page

    def _repr_html_(self) -> str:
        html: str = _above("tools.draw").html_of_capture(self)
        return html


MOST_NAMED = 6
"""The most Pairs that a message names."""

CAPTURE_FACE = frozenset(
    "name engine pairs forward backward signature links breaks why guards opaque environment requires fake notes meant "
    "rank save verify inputs observed draw view release".split()
)
"""The attributes of a Capture that are for users."""


def _above(module: str) -> Any:
    """Import `backprint.MODULE` and return it, when one of its functions is called as a method of these nouns. It
    imports this file, so at the top of the file that would be an import in a circle."""
    return importlib.import_module(f"backprint.{module}")


# ---- The structure of outputs: JSON in a Signature, whose leaves name ports


def filled(structure: Any, named: Mapping[str, Any]) -> Any:
    """Return a result as the program returned it: the stored `structure` of a result (`Signature.output`), with the
    outputs of `named` in the places of its ports; None where there is no structure.

    Each object of a structure has one key. `dict` has items by keys that are texts, and `items` the rows of a dict with
    other keys, as JSON has none: pairs of the key as text and the item. A `value` that is no plain literal stays text.
    """
    match structure:
        case {"port": name}:
            return named[name]
        case {"value": text}:
            return literal(text)
        case {"items": rows}:
            return {_key_of_text(key): filled(item, named) for key, item in rows}
        case {"dict": items}:
            return {key: filled(item, named) for key, item in items.items()}
        case {"list": items}:
            return [filled(item, named) for item in items]
        case {"tuple": items}:
            return tuple(filled(item, named) for item in items)
    return None


def literal(text: str) -> Any:
    """Return the value of a text that is a plain literal, else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _key_of_text(text: str) -> Any:
    """Return the value of a text that is a literal and can be a mapping's key, else the text."""
    key = literal(text)
    return text if isinstance(key, (list, dict, set)) else key


# ---- Notes: whether a Capture was stamped, or why it was traced in full

STAMPED = "stamped: "
"""How the note of a stamped Capture begins."""

IN_FULL = "traced in full, not stamped: "
"""How the note begins that gives the reason why a Capture was not stamped."""

HOOKS_LEFT_OUT = "register_post_accumulate_grad_hook is not a part of this capture"
"""How the note of a Capture begins that is without the program's hooks after accumulation."""

NODES_LEFT_OUT = "hooks of AccumulateGrad nodes are not a part of this capture"
"""How the note of a Capture begins whose program keeps such nodes."""

WITHOUT_CHECKPOINTS = (
    "these graphs are without the program's checkpoints, which AOTAutograd does not trace: they save what the program "
    "does not, and their peak is higher; the engines eager and dynamo capture what it saves and computes again"
)
"""The note of a Capture by engine `aot` of a program that checkpoints."""


def stamp_note(depth: int, depths: Sequence[int], places: Iterable[Any]) -> str:
    """Return the note of a stamped Capture: of a model with many equal layers, traced with few of them and continued.

    `depth` is the number of layers, `depths` the two numbers of layers with which it was traced, and `places` the
    modules that have the layers.
    """
    shallower, deeper = depths
    where = ", ".join(str(place) or "the model itself" for place in places)
    traces = f"traces with {shallower} and {deeper}"
    return f"{STAMPED}the {depth} layers in {where} continue {traces}; the whole ran once, untraced"


def stamp_of(notes: Iterable[str]) -> str:
    """Return the note that says how a Capture was stamped; '' if it was not."""
    return next((note for note in notes if note.startswith(STAMPED)), "")


def left_out_of(notes: Iterable[str]) -> list[str]:
    """Return the notes on what a Capture is without, which a verdict repeats."""
    return [note for note in notes if note.startswith((HOOKS_LEFT_OUT, NODES_LEFT_OUT))]


# ---- What is legal in a graph: tables of names, targets, devices and sizes
# Each name, keyword and target is checked when the object that holds it is made: `torch.fx` pastes them into code that
# it executes. A target is looked up in a table; no attribute of torch is followed to find out what it is.

Size: TypeAlias = int | str
"""One size of a shape: a number, or the expression of a symbolic one."""

ROOTS = frozenset({"torch", "aten", "prims", "operator", "math"})
"""The names with which targets begin, as the header of a graph's text defines them."""

# Names with a meaning in a graph's text, which no value can have.
RESERVED = ROOTS | {"self", "inf", "nan", "complex", "slice", "getattr", "op", "device", "True", "False", "None"}


def _named(prefix: str, names: str) -> frozenset[str]:
    """Return the set of targets with these names, which are separated by spaces, after a prefix."""
    return frozenset(prefix + name for name in names.split())


OPERATORS = _named(
    "operator.",
    "add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge and_ or_ xor not_ getitem index "
    "lshift rshift invert is_ is_not",
)

MATHS = _named("math.", "ceil floor trunc sqrt log2 pow isnan")

SYMS = _named(
    "torch.",
    "sym_max sym_min sym_float sym_int sym_not sym_ite sym_sum sym_sqrt _sym_sqrt _sym_log2 _sym_cos _sym_sin "
    "sym_fresh_size",
)

PLAIN_TARGETS = OPERATORS | MATHS | SYMS
"""Targets of arithmetic on numbers and symbolic sizes, which are no operators of a library."""

HIGHER = _named(
    "torch.ops.higher_order.",
    "cond while_loop scan associative_scan map_impl flex_attention flex_attention_backward "
    "tag_activation_checkpoint wrap wrap_activation_checkpoint wrap_with_set_grad_enabled wrap_with_autocast "
    "invoke_subgraph run_and_save_rng_state run_with_rng_state graphsafe_run_with_rng_state auto_functionalized "
    "auto_functionalized_v2 with_effects autograd_function_apply checkpointed_wrap strict_mode out_dtype "
    "hints_wrapper",
)

COLLECTIVES = _named(
    "torch.ops._c10d_functional.",
    "all_reduce.default all_gather_into_tensor.default reduce_scatter_tensor.default all_to_all_single.default "
    "broadcast.default",
)
"""Operators in which the processes of a group exchange tensors. The group is the last argument: its label."""

WAIT = "torch.ops._c10d_functional.wait_tensor.default"
"""The operator that waits for a collective, and returns its result."""

BUILT_IN = frozenset(
    {"aten", "prims", "prim", "higher_order", "load_library", "loaded_libraries", "import_module", "fast_path"}
)
"""Attributes of `torch.ops` that are not libraries of custom operators."""

_CUSTOM = re.compile(r"torch\.ops\.([A-Za-z_][A-Za-z0-9_]*)\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+")

_LOCAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")

_DEVICE = re.compile(r"([a-z]{1,32})(:\d{1,4})?")

DEVICES = frozenset("cpu cuda xpu mps meta hpu mtia xla npu ipu maia vulkan hip ve fpga lazy mkldnn".split())
"""The kinds of devices that torch knows by name. `privateuseone` is not among them: a program registers its backend."""

_NUMBER = re.compile(r"-?\d{1,19}")

# Possessive (`*+`, `++`): a text of a stranger that does not match must fail without backtracking.
_EXPRESSION = re.compile(r"(?:[A-Za-z_]\w*+|\d++(?:\.\d++)?+|[ +\-*/%(),<>=!&|~])++", re.ASCII)

MAX_INTEGER = 2**63
"""Integers and sizes have 64 bits, as in torch: at least minus this number, and less than it."""

MAX_EXPRESSION = 4096
"""The characters that the expression of a size may have."""


def _check_device(name: str) -> None:
    """Raise unless `name` is the name of a device, such as `cpu` or `cuda:0`."""
    match = _DEVICE.fullmatch(name) if type(name) is str else None
    if match is None or match[1] not in DEVICES:
        raise RefusedError(f"{name!r:.80} is not a device name")


def check_size(size: Size) -> None:
    """Raise unless `size` is a number that fits 64 bits, or an expression that is not a plain number."""
    if type(size) is int:
        if not -MAX_INTEGER <= size < MAX_INTEGER:
            raise GraphError(f"a size of {size.bit_length()} bits is not a size of a tensor")
        return
    check_expression(size)
    # The text of a plain number would be read back as a number, so the graph would not equal itself.
    if str(size).lstrip("-").isdigit():
        raise GraphError(f"{size!r:.80} is not a size: a size is a number of 64 bits, or an expression with a symbol")


def check_expression(text: Size) -> None:
    """Raise unless `text` is arithmetic over names and numbers, with its brackets closed. Such a text is shown and
    compared, never executed. No name in it has `__`: no symbol is named so (`check_local`)."""
    if type(text) is str and len(text) <= MAX_EXPRESSION and _EXPRESSION.fullmatch(text) and "__" not in text:
        depth = 0
        for character in text:
            depth += (character == "(") - (character == ")")
            # A comma only separates the arguments of a function: outside of brackets it would make a tuple.
            if depth < 0 or (depth == 0 and character == ","):
                break
        else:
            if depth == 0 and text == text.strip():
                return
    raise RefusedError(f"{text!r:.80} is not a size of a tensor, nor an expression of sizes")


def check_local(name: str) -> None:
    """Raise unless `name` can be the identifier of a value in a graph's text."""
    if type(name) is not str or not _LOCAL.fullmatch(name):
        raise RefusedError(f"{name!r:.80} is not a name of a value: letters, digits and _ only, at most 256")
    # `__x` in a class is mangled by Python, and dunder names mean something to it.
    if name in RESERVED or keyword.iskeyword(name) or name.startswith("__"):
        raise RefusedError(f"{name!r} is reserved and cannot name a value: rename it")


def is_custom(target: str) -> bool:
    """Whether a target is a custom operator. torch's own operators named `torch.ops.…` are in the tables above."""
    return target.startswith("torch.ops.") and target not in HIGHER and target not in COLLECTIVES and target != WAIT


def allowed(target: str, allow: Sequence[str]) -> bool:
    """Whether the caller allowed a custom operator by `allow`: as `ns.op.overload`, `ns.op` or `ns::op`."""
    name = target.removeprefix("torch.ops.")
    without_overload = name.rpartition(".")[0]
    return name in allow or without_overload in allow or without_overload.replace(".", "::", 1) in allow


def _check_target(target: str) -> None:
    """Raise unless `target` is a known tensor operator, or has the form of a custom one."""
    if type(target) is str and (target in operators() or target in PLAIN_TARGETS or target in HIGHER):
        return
    if target in COLLECTIVES or target == WAIT:
        return
    # Without `__`: a name such as `__class__` would lead from an operator into Python.
    custom = _CUSTOM.fullmatch(target) if type(target) is str and len(target) <= 256 and "__" not in target else None
    if custom is None or custom[1] in BUILT_IN:
        raise RefusedError(
            f"{target!r:.120} is not a known tensor operator: graphs call aten, prims and plain arithmetic alone"
        )
