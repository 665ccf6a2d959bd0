"""The nouns: plain frozen data, valid by construction, with no torch in it.

A Graph is one direction of one program. Its steps are calls of tensor operators on named values; its ports say what
comes in and goes out under the program's own names. A Pair ties a forward to its backward by the saved ports; a
Capture is what one capture call gives. Every name, key and target is checked when the object is made, because
`torch.fx` pastes them into code that it executes.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from backprint.errors import GraphError, RefusedError
from backprint.graph.table import operators

if TYPE_CHECKING:
    from backprint.graph.canonical import Canonical

# ------------------------------------------------------------------ values: what stands between a call's parentheses


@dataclass(frozen=True, slots=True)
class Ref:
    """A value named earlier in the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operator used as data, as higher-order operators take them."""

    target: str

    def __post_init__(self) -> None:
        check_target(self.target)


@dataclass(frozen=True, slots=True)
class Sub:
    """A subgraph of this graph, by its attribute name."""

    name: str


@dataclass(frozen=True, slots=True)
class Atom:
    """A torch constant: a dtype, a layout or a memory format, as `float32`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in ATOMS:
            raise RefusedError(f"torch.{self.name} is no dtype, layout or memory format that a graph may hold")


@dataclass(frozen=True, slots=True)
class Device:
    """A device, as `cpu` or `cuda:0`."""

    name: str

    def __post_init__(self) -> None:
        check_device(self.name)


@dataclass(frozen=True, slots=True)
class Slice:
    """A Python slice."""

    start: Value
    stop: Value
    step: Value


@dataclass(frozen=True, slots=True)
class List:
    """A list; a tuple stays a Python tuple, because operators tell them apart."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dict:
    """A dictionary, in order."""

    items: tuple[tuple[Value, Value], ...]


Leaf: TypeAlias = "bool | int | float | complex | str | Ref | Op | Sub | Atom | Device | None"
Value: TypeAlias = "Leaf | Slice | List | Dict | tuple[Value, ...]"
LEAVES = frozenset({type(None), bool, int, float, complex, str, Ref, Op, Sub, Atom, Device})
MAX_DEPTH = 32
"""How deep a value may nest lists, tuples, dictionaries and slices."""

# ------------------------------------------------------------------ specs: what a value is

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

LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "_mkldnn")
FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
ATOMS = frozenset({*DTYPES, *LAYOUTS, *FORMATS, "qint8", "quint8", "qint32", "float4_e2m1fn_x2", "bits8", "bits16"})

Size: TypeAlias = int | str
"""One size of a shape: a number, or the expression of a symbolic one."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a tensor is, without its values. `stride` is None where the tensor is contiguous."""

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...] | None = None
    offset: Size = 0
    device: str = "cpu"
    layout: str = "strided"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise GraphError(f"{self.dtype!r} is no tensor dtype; known are {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise GraphError(f"{self.layout!r} is no tensor layout; known are {', '.join(LAYOUTS)}")
        if self.stride is not None and len(self.stride) != len(self.shape):
            raise GraphError(f"a tensor of {len(self.shape)} sizes cannot have {len(self.stride)} strides")
        for size in (*self.shape, *(self.stride or ()), self.offset):
            if type(size) is not int or not -MAX_SIZE <= size < MAX_SIZE:
                check_size(size)
        if self.numel >= MAX_SIZE:
            raise GraphError(f"a tensor of {self.numel:.3g} elements: at most 2**63 - 1 can be counted")
        if self.device != "cpu":
            check_device(self.device)

    @property
    def numel(self) -> int:
        """The number of elements; symbolic sizes count as one."""
        count = 1
        for size in self.shape:
            count *= size if isinstance(size, int) else 1
        return count

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.numel * ITEMSIZE[self.dtype]


ITEMSIZE: Mapping[str, int] = {
    name: max(1, int(re.findall(r"(\d+)", name)[0]) // 8) if name != "bool" else 1 for name in DTYPES
}


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A number that a graph computes: `SymInt(s0 + 1)`, `int`, `float`, `bool`."""

    kind: str
    expression: str = ""

    def __post_init__(self) -> None:
        if self.kind not in SCALARS:
            raise GraphError(f"{self.kind!r:.80} is no scalar kind; known are {', '.join(SCALARS)}")
        if self.expression:
            check_expression(self.expression)


SCALARS = ("SymInt", "SymFloat", "SymBool", "int", "float", "bool", "complex", "None", "str", "object")

Spec: TypeAlias = "TensorSpec | ScalarSpec | tuple[Spec, ...] | None"
"""What a step gives: None where nothing is known."""

# ------------------------------------------------------------------ graphs

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
            raise GraphError(f"port {self.name!r}: {self.role!r} is no role; known are {', '.join(sorted(ROLES))}")
        if not self.name or len(self.name) > 4096 or not self.name.isprintable():
            raise GraphError(f"a port's name must be printable and not empty, not {self.name!r:.80}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's program a step came from. It stands in a comment, so what could end one is replaced."""

    file: str
    line: int
    function: str
    code: str = ""
    module: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.line < 10**9:
            raise GraphError(f"{self.line!r:.80} is no line number")
        for part, blurs in _BLURS.items():
            text: str = getattr(self, part)
            said = blurs.sub("_", "".join(c if c.isprintable() else " " for c in text).strip())
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
    """What a step has to do with the other direction: `gradient of convolution_3`, or of several: `relu, relu_1`."""

    kind: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind not in ECHOES:
            raise GraphError(f"{self.kind!r} is no echo; known are {', '.join(ECHOES)}")
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
                raise RefusedError(f"step {self.name}: {key!r:.80} is no keyword of an operator")
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
            raise GraphError(f"symbol {self.name}: its value at capture is no size: {self.hint!r:.80}")
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

    @property
    def code(self) -> str:
        """The graph as Python text that runs with torch alone; parsing it gives an equal graph."""
        from backprint.graph.text import emit

        return emit(self)

    def __str__(self) -> str:
        return self.code

    def canonical(self) -> Canonical:
        """The graph with names and the order of independent steps taken away."""
        from backprint.graph.canonical import canonical

        return canonical(self)

    def hash(self, sizes: bool = True) -> str:
        """A digest of the canonical form; with `sizes=False` shapes and strides do not count."""
        from backprint.graph.canonical import graph_hash

        return graph_hash(self, sizes=sizes)

    def by_role(self, role: str) -> tuple[Port, ...]:
        """The ports with this role, inputs first."""
        return tuple(port for port in (*self.inputs, *self.outputs) if port.role == role)

    if TYPE_CHECKING:  # bound in backprint.api, which joins the rooms

        def to_fx(self) -> Any:
            """A torch.fx.GraphModule that computes the same."""


T = TypeVar("T")


class Later(Generic[T]):
    """A value that is made when first asked for, once: a sample's graph is parsed only when someone looks at it."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    def get(self) -> T:
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value  # type: ignore[return-value]  # set by the line above, and T may itself be optional


class Pair:
    """A forward Graph and its backward Graph (None where nothing is differentiable), tied by the saved ports."""

    __slots__ = ("_backward", "_forward", "name")

    def __init__(
        self,
        name: str,
        forward: Graph | Later[Graph],
        backward: Graph | Later[Graph] | Later[Graph | None] | None = None,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_forward", forward)
        object.__setattr__(self, "_backward", backward)

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"a Pair is never edited in place (setting {key!r}): make a new one")

    name: str
    _forward: Graph | Later[Graph]
    _backward: Graph | Later[Graph] | Later[Graph | None] | None

    @property
    def forward(self) -> Graph:
        """What runs on the way in."""
        side = self._forward
        return side.get() if isinstance(side, Later) else side

    @property
    def backward(self) -> Graph | None:
        """What runs on the way back; None where no output asks for a gradient."""
        side = self._backward
        return side.get() if isinstance(side, Later) else side

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
        return f"Pair({self.name!r})"


@dataclass(frozen=True, slots=True)
class Guard:
    """What a capture took for granted.

    `kind` is one of `value`, `shape`, `size`, `argument`, `same`, `spec`, `flag`, `pinned`; `inputs` are what
    it depends on. The text of a `size` guard is a condition over symbols, or `NAME.shape[0] == EXPRESSION`; replay
    checks it before it runs.
    """

    kind: str
    text: str
    inputs: tuple[str, ...] = ()
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class OpaqueEdge:
    """Where autograd of the plain forward would not give the program's gradient, and why."""

    kind: str
    text: str
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Which port of which Pair feeds which: Pairs by index, ports by key, as `output y`, `gradient w`, `mutation b`.

    `target` None is the whole Capture's own result of that name; `source` None its own input, handed through.
    Gradients go along an `output` link the other way, and add up where several start at one port.
    """

    source: int | None
    port: str
    target: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a call: its name (`*args`, `**kwargs` with their stars), and a likeness of what it was given.

    A likeness is JSON in which `{"tensor": NAME}` stands for the port of that name. `optional`: leaving the argument
    out gives the same value. `keyword`: it can be given by its name alone.
    """

    name: str
    like: Any
    optional: bool = False
    keyword: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """How a call's arguments and results map to ports.

    `arguments` are the callable's parameter names; `leaves` the non-tensor leaves that the capture took as constants,
    as text; `call` what each parameter was given, by value (None where no call was read: a part, a recorded step, a
    sample of format 1). `output` is a JSON-like tree whose leaves are `{"port": name}` or `{"value": repr}`;
    `differentiable` are the outputs that take tangents; `same` the pairs of names that one tensor was passed under;
    `aliases` the pairs that share memory, and how many bytes the second begins after the first.
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
class Capture:
    """What one capture call gives: Pairs in the order they ran, the engine, and the environment they were traced in."""

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
    claims: Any = field(default=None, compare=False, repr=False)
    recipes: Any = field(default=None, compare=False, repr=False)
    witness: Any = field(default=None, compare=False, repr=False)
    verdict: Any = field(default=None, compare=False, repr=False)
    origin: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return "\n\n".join(str(graph) for pair in self.pairs for graph in (pair.forward, pair.backward) if graph)

    if TYPE_CHECKING:  # bound in backprint.api, which joins the rooms

        def save(self, path: Any, data: str = "seed", **options: Any) -> Any:
            """Write the Capture as a sample."""

        def release(self) -> None:
            """Let go of the captured program and its arguments."""

        def verify(self, **options: Any) -> list[Any]:
            """Prove every Pair against the original program."""

        def inputs(self) -> dict[str, Any]:
            """The tensors that its recipes make, by the program's own names."""


# ------------------------------------------------------------------ what is legal

ROOTS = frozenset({"torch", "aten", "prims", "operator", "math"})
RESERVED = ROOTS | {"self", "inf", "nan", "complex", "slice", "op", "device", "True", "False", "None"}


def _named(prefix: str, names: str) -> frozenset[str]:
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
HIGHER = _named(
    "torch.ops.higher_order.",
    "cond while_loop scan associative_scan map_impl flex_attention flex_attention_backward "
    "tag_activation_checkpoint wrap wrap_activation_checkpoint wrap_with_set_grad_enabled wrap_with_autocast "
    "invoke_subgraph run_and_save_rng_state run_with_rng_state graphsafe_run_with_rng_state auto_functionalized "
    "auto_functionalized_v2 with_effects autograd_function_apply checkpointed_wrap strict_mode out_dtype "
    "hints_wrapper",
)
BUILT_IN = frozenset(
    {"aten", "prims", "prim", "higher_order", "load_library", "loaded_libraries", "import_module", "fast_path"}
)
"""What `torch.ops` holds beside libraries' operators: in `torch.ops.X.f.default`, X is none of these."""
_CUSTOM = re.compile(r"torch\.ops\.([A-Za-z_][A-Za-z0-9_]*)\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+")
_LOCAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_DEVICE = re.compile(r"([a-z]{1,32})(:\d{1,4})?")
DEVICES = frozenset("cpu cuda xpu mps meta hpu mtia xla npu ipu maia vulkan hip ve fpga lazy mkldnn".split())
"""Kinds of devices that torch knows by name. `privateuseone` is whatever a program has registered."""
_NUMBER = re.compile(r"-?\d{1,19}")
_EXPRESSION = re.compile(r"(?:[A-Za-z_]\w*+|\d++(?:\.\d++)?+|[ +\-*/%(),<>=!&|~])++", re.ASCII)
MAX_SIZE = 2**63
MAX_INTEGER = 2**63
"""Integers and sizes are those of 64 bits, as torch has them: from minus this to below it."""
MAX_EXPRESSION = 4096


def check_device(name: str) -> None:
    """Raise unless `name` is a device's, as `cpu` or `cuda:0`."""
    found = _DEVICE.fullmatch(name) if type(name) is str else None
    if found is None or found[1] not in DEVICES:
        raise RefusedError(f"{name!r:.80} is no device name")


def check_size(size: Size) -> None:
    """Raise unless `size` is a number that fits 64 bits, or an expression that does not read back as a number."""
    if type(size) is int:
        if not -MAX_SIZE <= size < MAX_SIZE:
            raise GraphError(f"a size of {size.bit_length()} bits is no size of a tensor")
        return
    check_expression(size)
    if str(size).lstrip("-").isdigit():
        raise GraphError(f"{size!r:.80} is no size: a size is a number of 64 bits, or an expression with a symbol")


def check_expression(text: Size) -> None:
    """Raise unless `text` is arithmetic over names and numbers. It is shown and compared; nobody may evaluate it."""
    if type(text) is str and len(text) <= MAX_EXPRESSION and _EXPRESSION.fullmatch(text) and "__" not in text:
        depth = 0
        for character in text:
            depth += (character == "(") - (character == ")")
            if depth < 0 or (depth == 0 and character == ","):
                break
        else:
            if depth == 0 and text == text.strip():
                return
    raise RefusedError(f"{text!r:.80} is no size of a tensor, nor an expression of sizes")


def check_local(name: str) -> None:
    """Raise unless `name` can be a local of a graph's text."""
    if type(name) is not str or not _LOCAL.fullmatch(name):
        raise RefusedError(f"{name!r:.80} is no name of a value: letters, digits and _ only, at most 256")
    if name in RESERVED or keyword.iskeyword(name) or name.startswith("__"):
        raise RefusedError(f"{name!r} is reserved and cannot name a value: rename it")


def is_custom(target: str) -> bool:
    """Whether a target is an operator that a library registers, which PyTorch alone does not have."""
    return target.startswith("torch.ops.") and target not in HIGHER


def allowed(target: str, allow: Sequence[str]) -> bool:
    """Whether a custom operator was allowed: as `ns.op.overload`, `ns.op` or `ns::op`."""
    name = target.removeprefix("torch.ops.")
    return name in allow or name.rpartition(".")[0] in allow or name.replace(".", "::", 1).rpartition(".")[0] in allow


def check_target(target: str) -> None:
    """Raise unless `target` is a known tensor operator, or has the form of a custom one: a table, never a walk."""
    if type(target) is str and (target in operators() or target in PLAIN_TARGETS or target in HIGHER):
        return
    custom = _CUSTOM.fullmatch(target) if type(target) is str and len(target) <= 256 and "__" not in target else None
    if custom is None or custom[1] in BUILT_IN:
        raise RefusedError(
            f"{target!r:.120} is no known tensor operator: graphs call aten, prims and plain arithmetic alone"
        )


def leaves(value: Value, depth: int = 0) -> Iterator[Leaf]:
    """What a value is made of, in order; raises at what no value is made of."""
    kind = type(value)
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


def custom_operators(graph: Graph) -> Iterator[tuple[Step, str]]:
    """The custom operators that a graph calls or hands on, its subgraphs too, each with its step."""
    for step in graph.steps:
        values = (*step.args, *(value for _, value in step.kwargs))
        handed = [leaf.target for value in values for leaf in leaves(value) if type(leaf) is Op]
        for target in filter(is_custom, (step.target, *handed)):
            yield step, target
    for _, sub in graph.subgraphs:
        yield from custom_operators(sub)


def refs(value: Value) -> Iterator[str]:
    """The names that a value mentions, in order."""
    return (leaf.name for leaf in leaves(value) if type(leaf) is Ref)


def check_graph(graph: Graph) -> None:
    """Raise unless every value is defined once, before its use, and the ports match what they carry."""
    defined: set[str] = set()
    attributes = {name for name, _ in graph.subgraphs}

    def define(name: str) -> None:
        check_local(name)
        if name in defined:
            raise GraphError(f"{name!r} is defined twice")
        defined.add(name)

    def check_use(value: Value, user: Step | Port) -> None:
        for leaf in leaves(value):
            odd = ""
            if isinstance(leaf, Ref):
                if leaf.name not in defined:
                    odd = f"uses {leaf.name!r} before it is defined"
            elif isinstance(leaf, Sub):
                if leaf.name not in attributes:
                    odd = f"uses the subgraph {leaf.name!r}, which is not here"
            elif isinstance(leaf, int) and not -MAX_INTEGER <= leaf < MAX_INTEGER:
                odd = f"holds an integer of {leaf.bit_length()} bits"
            if odd:
                who = f"step {user.name!r} ({user.target})" if isinstance(user, Step) else f"output {user.name!r}"
                raise GraphError(f"{who} {odd}")

    members = [*(symbol.name for symbol in graph.symbols), *(name for name, _ in graph.subgraphs)]
    for name in members:
        check_local(name)
        if name == "forward" or members.count(name) > 1:
            raise GraphError(f"{name!r} is defined twice in one class")
    for port in graph.inputs:
        if port.role not in IN_ROLES:
            roles = ", ".join(IN_ROLES)
            raise GraphError(f"input {port.name!r} has the role {port.role!r}; an input's is one of {roles}")
        define(port.local)
    for step in graph.steps:
        for value in step.args:
            check_use(value, step)
        for _, value in step.kwargs:
            check_use(value, step)
        if not step.is_guard:
            define(step.name)
    if len(graph.outputs) != len(graph.results):
        raise GraphError(f"{len(graph.outputs)} output ports for {len(graph.results)} results")
    for port, result in zip(graph.outputs, graph.results, strict=True):
        if port.role not in OUT_ROLES:
            roles = ", ".join(OUT_ROLES)
            raise GraphError(f"output {port.name!r} has the role {port.role!r}; an output's is one of {roles}")
        check_use(result, port)
