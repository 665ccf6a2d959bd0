"""The `model.py` of a GraphNet sample as a ModelProgram: torch-level straight lines, read with `ast` alone.

Nothing of the file is imported, looked up or run. What may be called is the table `callables.txt`: functions by their
dotted names and methods of tensors by theirs, taken from torch 2.13's tensor functions without what touches files,
pickles, raw memory, hooks, threads or callables. What is not in the grammar is refused by name with its line:

    conv2d = torch.conv2d(l_x_, w, None, (2, 2), (1, 1), (1, 1), 1)
    x = w = None
    a, b = y.chunk(2, dim=-1)
    y += b
    y[(slice(None, None, None), 0)] = 0.0
    z = y.to(device=device(type="cuda", index=0), dtype=torch.float16)
    return (z,)

`emit` compiles a ModelProgram to a function, `training` rewrites it, `uses` finds what it does with its inputs.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias, cast

from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import ATOMS, MAX_INTEGER
from backprint.graph.text import tree_of

MAX_EXPRESSION_DEPTH = 40
MAX_STRING = 4096

# ---- Nouns


@dataclass(frozen=True, slots=True)
class Const:
    """A number, a string, a bool, None or `...`."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A value that an earlier line named, or an argument."""

    id: str


@dataclass(frozen=True, slots=True)
class Torch:
    """A constant of torch: `float32`, `strided`, `channels_last`."""

    name: str


@dataclass(frozen=True, slots=True)
class DeviceExpr:
    """A device that the code names, replaced by the device asked for. `object`: a torch.device, not a text."""

    name: str
    object: bool = True


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function of the table, by its dotted name."""

    target: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class MethodCall:
    """A call of a tensor method of the table."""

    of: Expr
    name: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a value: `.T`, `.shape`."""

    of: Expr
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Arithmetic or a comparison, by the name of its `ast` class: `Add`, `Lt`."""

    kind: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `~x`, `+x`, `not x`."""

    kind: str
    of: Expr


@dataclass(frozen=True, slots=True)
class Item:
    """`x[index]`."""

    of: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class SliceExpr:
    """`slice(start, stop, step)`, or `start:stop:step`."""

    start: Expr
    stop: Expr
    step: Expr


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple or a list of expressions."""

    items: tuple[Expr, ...]
    list: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    """A dictionary of expressions."""

    pairs: tuple[tuple[Expr, Expr], ...]


Expr: TypeAlias = (
    Const
    | Name
    | Torch
    | DeviceExpr
    | FunctionCall
    | MethodCall
    | Attribute
    | Operation
    | Unary
    | Item
    | SliceExpr
    | Items
    | Pairs
)


@dataclass(frozen=True, slots=True)
class Assign:
    """`a = b = value`; a target is a Name, an Item, or Items of these."""

    line: int
    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Augment:
    """`a += value`: in place on a tensor, then the name is bound again."""

    line: int
    target: Expr
    kind: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Do:
    """An expression that is evaluated for its effect."""

    line: int
    value: Expr


@dataclass(frozen=True, slots=True)
class Return:
    """The last statement: what forward returns."""

    line: int
    value: Expr


Statement: TypeAlias = Assign | Augment | Do | Return


@dataclass(frozen=True, slots=True)
class ForwardArgument:
    """An argument of forward and the kind that its annotation says: `Parameter`, `Tensor`, `SymInt`, or ''."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class ModelProgram:
    """A parsed `model.py`: the arguments of its forward, and its statements, the last of which returns."""

    arguments: tuple[ForwardArgument, ...]
    lines: tuple[Statement, ...]


# ---- What is legal


@functools.cache
def callables() -> frozenset[str]:
    """Return the functions and methods that a graph may call: `torch.conv2d`, `Tensor.view`."""
    return frozenset(Path(__file__).with_name("callables.txt").read_text(encoding="ascii").splitlines())


NOISE = frozenset(
    {
        "torch._C._log_api_usage_once",
        "torch._check_is_size",
        "torch.ops.aten._assert_scalar.default",
        "torch._functorch.predispatch.lazy_load_decompositions",
        "torch._functorch.vmap.lazy_load_decompositions",
        "torch.autograd.function.FunctionCtx",
    }
)
"""Calls without effect, Dynamo's own assertions among them: None replaces them."""

ATTRIBUTES = frozenset("T H mT mH real imag shape dtype device ndim layout itemsize nbytes is_cuda".split())
CONSTANTS: dict[str, Any] = {
    "Ellipsis": ...,
    "inf": math.inf,
    "nan": math.nan,
    "math.inf": math.inf,
    "math.nan": math.nan,
    "math.pi": math.pi,
}
CONSTANTS |= {"torch.inf": math.inf, "torch.nan": math.nan, "torch.pi": math.pi, "torch.e": math.e}
SPELLED = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}
SPELLED |= {"nan": math.nan, "-nan": math.nan}
IMPORTS = frozenset(
    {
        "import torch",
        "import math",
        "from math import inf",
        "from math import nan",
        "from torch import device",
        "from torch import inf",
        "from torch import nan",
    }
)
RESERVED = frozenset({"self", "torch"})
"""Names that a line may not bind. Others, such as `device`, are values once a line binds them."""

BINARY = frozenset("Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr BitXor LShift RShift".split())
COMPARE = frozenset("Eq NotEq Lt LtE Gt GtE Is IsNot".split())
UNARY = frozenset("USub UAdd Invert Not".split())
KINDS = {
    "torch.Tensor": "Tensor",
    "torch.nn.parameter.Parameter": "Parameter",
    "torch.nn.Parameter": "Parameter",
    "torch.SymInt": "SymInt",
    "torch.SymFloat": "SymFloat",
    "torch.SymBool": "SymBool",
    "int": "SymInt",
    "float": "SymFloat",
    "bool": "SymBool",
}
DEVICES = frozenset({"cpu", "cuda", "xpu", "mps", "npu", "hpu"})
_DEVICE = re.compile(rf"(?:{'|'.join(sorted(DEVICES))})(?::\d{{1,3}})?")


# ---- Reading


def read_code(text: str) -> ModelProgram:
    """Parse a text. Raises RefusedError or GraphError with the line; runs nothing."""
    tree, lines = tree_of(text)
    try:
        return _CodeReader(lines).program(tree)
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"the text is nested too deeply to be a graph ({type(error).__name__})") from None


class _CodeReader:
    """Parses one text; keeps its lines and the names bound so far."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.bound: set[str] = set()
        self.locals: set[str] = set()
        """The names that some line of forward binds: to Python they are local in each line, also in those before."""
        self.depth = 0

    def source_of(self, node: Any) -> str:
        """Return the source text of a node, up to 80 characters of its first line."""
        line = self.lines[node.lineno - 1]
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        return line.encode()[node.col_offset : end].decode(errors="replace")[:80]

    def refused(self, node: Any, why: str) -> RefusedError:
        return RefusedError(f"line {node.lineno}: {why}")

    # ---- the file, the class, the function

    def program(self, tree: ast.Module) -> ModelProgram:
        program = None
        for node in tree.body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    self.check_import(node)
                case ast.Expr(value=ast.Constant(value=str())) if node is tree.body[0]:
                    pass
                case ast.ClassDef(name="GraphModule") if program is None:
                    program = self.forward_of(node)
                case _:
                    odd = f"{self.source_of(node)!r} is outside the class"
                    raise self.refused(node, f"{odd}: a GraphNet model is imports and one class GraphModule")
        if program is None:
            raise GraphError("the text holds no class GraphModule")
        return self.function(program)

    def check_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Raise at an import of anything but the few names that graphs use."""
        for alias in node.names:
            statement = f"import {alias.name}"
            if isinstance(node, ast.ImportFrom):
                statement = f"from {'.' * node.level}{node.module or ''} {statement}"
            if statement not in IMPORTS or alias.asname:
                raise self.refused(node, f"{statement!r:.100}: a graph imports {', '.join(sorted(IMPORTS))} alone")

    def forward_of(self, cls: ast.ClassDef) -> ast.FunctionDef:
        """Return the class's only function, forward."""
        plain = not (cls.decorator_list or cls.keywords or getattr(cls, "type_params", None)) and len(cls.bases) == 1
        if not plain or self.dotted(cls.bases[0]) not in ("torch.nn.Module", "torch.nn.modules.module.Module"):
            raise self.refused(cls, "a graph's class has one base, torch.nn.Module, and no decorators or keywords")
        match cls.body:
            case [ast.FunctionDef(name="forward") as function]:
                return function
        odd = next((n for n in cls.body if not (isinstance(n, ast.FunctionDef) and n.name == "forward")), cls.body[-1])
        raise self.refused(
            odd, f"{self.source_of(odd)!r} in the class: it holds one function, forward, and nothing else"
        )

    def function(self, node: ast.FunctionDef) -> ModelProgram:
        spec = node.args
        stars = spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs
        if node.decorator_list or spec.defaults or stars or getattr(node, "type_params", None):
            raise self.refused(node, "decorators, defaults and star parameters are not part of a graph")
        if not spec.args or spec.args[0].arg != "self":
            raise self.refused(node, "forward takes self first")
        stored = (child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
        self.locals = {child.arg for child in spec.args[1:]} | {child.id for child in stored}
        arguments = tuple(self.argument(arg) for arg in spec.args[1:])
        lines = tuple(self.line(child, last=child is node.body[-1]) for child in node.body)
        if not isinstance(lines[-1], Return):
            raise GraphError(f"line {node.lineno}: forward does not return")
        return ModelProgram(arguments, lines)

    def argument(self, node: ast.arg) -> ForwardArgument:
        annotation = self.dotted(node.annotation) if node.annotation is not None else ""
        if annotation and annotation not in KINDS:
            raise self.refused(node, f"the annotation {annotation!r:.80} is not one of {', '.join(KINDS)}")
        if node.arg in self.bound:
            raise self.refused(node, f"forward takes {node.arg!r:.80} twice")
        self.bind(node, node.arg)
        return ForwardArgument(node.arg, KINDS.get(annotation or "", ""), node.lineno)

    def bind(self, node: Any, name: str) -> None:
        if name in RESERVED or name.startswith("__") or len(name) > MAX_STRING:
            raise self.refused(node, f"{name!r:.80} is reserved and cannot name a value")
        self.bound.add(name)

    # ---- lines

    def line(self, node: ast.stmt, last: bool) -> Statement:
        at = node.lineno
        match node:
            case ast.Assign(targets=targets, value=value):
                expression = self.expr(value)
                if _holds_text(expression):
                    raise self.refused(
                        node, f"{self.source_of(node)!r}: a text is an argument or a key in a graph, not a value"
                    )
                return Assign(at, tuple(map(self.target, targets)), expression)
            case ast.AugAssign(target=target, op=op, value=value):
                kind = type(op).__name__
                if kind not in BINARY or not isinstance(target, (ast.Name, ast.Subscript)):
                    raise self.refused(
                        node, f"{self.source_of(node)!r} is not an in-place update of a value or an item"
                    )
                where = self.name(target) if isinstance(target, ast.Name) else self.expr(target)
                if isinstance(where, Const):
                    raise self.refused(node, f"{self.source_of(node)!r} updates a constant")
                return Augment(at, where, kind, self.expr(value))
            case ast.Expr(value=value):
                return Do(at, self.expr(value))
            case ast.Return(value=value) if last:
                return Return(at, Const(None) if value is None else self.expr(value))
        kind = type(node).__name__
        raise self.refused(
            node, f"{self.source_of(node)!r}: a graph is straight-line code, and a {kind} is not allowed in it"
        )

    def target(self, node: ast.expr) -> Expr:
        match node:
            case ast.Name(id=name):
                self.bind(node, name)
                return Name(name)
            case ast.Subscript():
                return self.expr(node)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return Items(tuple(map(self.target, items)))
        raise self.refused(node, f"{self.source_of(node)!r}: a line binds names and items of values alone")

    # ---- expressions

    def expr(self, node: ast.expr) -> Expr:
        read = EXPRESSIONS.get(type(node))
        if read is None:
            raise self.refused(node, f"{self.source_of(node)!r}: a {type(node).__name__} is not part of a graph")
        self.depth += 1
        if self.depth > MAX_EXPRESSION_DEPTH:
            raise self.refused(node, f"an expression is nested more than {MAX_EXPRESSION_DEPTH} deep")
        expression = read(self, node)
        self.depth -= 1
        return expression

    def constant(self, node: ast.Constant) -> Expr:
        value = node.value
        if isinstance(value, bytes) or (isinstance(value, str) and len(value) > MAX_STRING):
            raise self.refused(node, f"a constant of {len(value):,} characters or bytes is not part of a graph")
        if type(value) is int and not -MAX_INTEGER <= value < MAX_INTEGER:
            raise self.refused(node, f"an integer of {value.bit_length():,} bits is not part of a graph")
        return Const(value)

    def name(self, node: ast.Name) -> Expr:
        if node.id in self.bound:
            return Name(node.id)
        if node.id in CONSTANTS and self.is_global(node, node.id):
            return Const(CONSTANTS[node.id])
        raise self.refused(node, f"{node.id!r:.80} is not a value that an earlier line names")

    def is_global(self, node: ast.expr, dotted: str) -> bool:
        """Return True; raise where a later line binds the name, so that Python does not see what is outside."""
        if (root := dotted.split(".")[0]) in self.locals:
            raise self.refused(node, f"{root!r:.80} is used before a line binds it")
        return True

    def attribute(self, node: ast.Attribute) -> Expr:
        if (dotted := self.dotted(node)) and dotted.split(".")[0] not in self.bound:
            self.is_global(node, dotted)
            if dotted in CONSTANTS:
                return Const(CONSTANTS[dotted])
            if dotted.removeprefix("torch.") in ATOMS and dotted.startswith("torch."):
                return Torch(dotted.removeprefix("torch."))
            raise self.refused(node, f"{dotted!r:.120} is not a constant of torch; a function has to be called")
        if node.attr not in ATTRIBUTES:
            raise self.refused(node, f"the attribute .{node.attr:.80} is not one of {', '.join(sorted(ATTRIBUTES))}")
        return Attribute(self.expr(node.value), node.attr)

    def call(self, node: ast.Call) -> Expr:
        dotted = self.dotted(node.func)
        if dotted and dotted.split(".")[0] not in self.bound:
            self.is_global(node, dotted)
            return self.function_call(node, dotted)
        if not isinstance(node.func, ast.Attribute):
            raise self.refused(
                node, f"{self.source_of(node)!r}: only functions of torch and methods of tensors are called"
            )
        name = node.func.attr
        if f"Tensor.{name}" not in callables():
            raise self.refused(node, f"the method .{name:.80}() is not a known tensor method")
        return _with_device_exprs(MethodCall(self.expr(node.func.value), name, *self.arguments(node)))

    def function_call(self, node: ast.Call, dotted: str) -> Expr:
        if dotted in NOISE:
            return Const(None)
        if dotted in ("device", "torch.device"):
            return self.device(node)
        if dotted == "slice":
            return self.slice_call(node)
        if dotted == "float":
            return self.spelled(node)
        if dotted not in callables():
            raise self.refused(node, f"{dotted!r:.120} is not a known tensor function")
        return _with_device_exprs(FunctionCall(dotted, *self.arguments(node)))

    def arguments(self, node: ast.Call) -> tuple[tuple[Expr, ...], tuple[tuple[str, Expr], ...]]:
        if any(keyword.arg is None for keyword in node.keywords):
            raise self.refused(node, f"{self.source_of(node)!r}: ** is not part of a graph")
        if len({keyword.arg for keyword in node.keywords}) < len(node.keywords):
            raise self.refused(node, f"{self.source_of(node)!r}: a keyword stands twice")
        kwargs = tuple((cast(str, keyword.arg), self.expr(keyword.value)) for keyword in node.keywords)
        return tuple(map(self.expr, node.args)), kwargs

    def device(self, node: ast.Call) -> Expr:
        """`device("cuda:0")`, `device(type="cuda", index=0)`."""
        args, kwargs = self.arguments(node)
        arguments = dict(zip(("type", "index"), args, strict=False)) | dict(kwargs)
        kind, index = arguments.pop("type", None), arguments.pop("index", Const(None))
        if isinstance(kind, DeviceExpr):
            kind = Const(kind.name)
        match kind, index:
            case Const(value=str(text)), Const(value=None) if not arguments and (
                _DEVICE.fullmatch(text) or text == "meta"
            ):
                return DeviceExpr(text)
            case Const(value=str(text)), Const(value=int(number)) if not arguments and text in DEVICES and number >= 0:
                return DeviceExpr(f"{text}:{number}")
        raise self.refused(node, f"{self.source_of(node)!r} is not a device: write device(type='cuda', index=0)")

    def slice_call(self, node: ast.Call) -> Expr:
        args, kwargs = self.arguments(node)
        if kwargs or not 1 <= len(args) <= 3:
            raise self.refused(node, f"{self.source_of(node)!r}: slice takes one to three values")
        none = Const(None)
        start, stop, step = (none, *args, none) if len(args) == 1 else (*args, none)[:3]
        return SliceExpr(start, stop, step)

    def spelled(self, node: ast.Call) -> Expr:
        """`float("inf")` and its like."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]) if text.strip().lower() in SPELLED:
                return Const(SPELLED[text.strip().lower()])
        raise self.refused(node, f"{self.source_of(node)!r}: float() spells inf and nan alone, as float('-inf')")

    def binary(self, node: ast.BinOp) -> Expr:
        kind = type(node.op).__name__
        if kind not in BINARY:
            raise self.refused(node, f"the operator {kind} is not part of a graph")
        operation = Operation(kind, self.expr(node.left), self.expr(node.right))
        self.check_growth(node, operation)
        return operation

    def check_growth(self, node: ast.BinOp, operation: Operation) -> None:
        """Raise where a text could grow to any size; `emit` bounds numbers and lists when the line runs."""
        if _holds_text(operation.left) or _holds_text(operation.right):
            raise self.refused(
                node, f"{self.source_of(node)!r}: texts are not added, multiplied or filled in, in a graph"
            )

    def unary(self, node: ast.UnaryOp) -> Expr:
        kind = type(node.op).__name__
        if kind not in UNARY:
            raise self.refused(node, f"the operator {kind} is not part of a graph")
        if kind == "USub" and isinstance(node.operand, ast.Constant) and node.operand.value == MAX_INTEGER:
            return Const(-MAX_INTEGER)
        operand = self.expr(node.operand)
        if kind == "USub" and isinstance(operand, Const) and type(operand.value) in (int, float):
            return Const(-operand.value)
        return Unary(kind, operand)

    def compare(self, node: ast.Compare) -> Expr:
        kind = type(node.ops[0]).__name__
        if len(node.ops) > 1 or kind not in COMPARE:
            raise self.refused(
                node, f"{self.source_of(node)!r}: a graph compares two values by ==, !=, <, <=, >, >=, is"
            )
        return Operation(kind, self.expr(node.left), self.expr(node.comparators[0]))

    def subscript(self, node: ast.Subscript) -> Expr:
        return Item(self.expr(node.value), self.expr(node.slice))

    def slice(self, node: ast.Slice) -> Expr:
        start, stop, step = (
            Const(None) if bound is None else self.expr(bound) for bound in (node.lower, node.upper, node.step)
        )
        return SliceExpr(start, stop, step)

    def items(self, node: ast.Tuple | ast.List) -> Expr:
        return Items(tuple(map(self.expr, node.elts)), isinstance(node, ast.List))

    def pairs(self, node: ast.Dict) -> Expr:
        if any(key is None for key in node.keys):
            raise self.refused(node, "** is not part of a graph")
        keys = [self.expr(key) for key in node.keys if key is not None]
        return Pairs(tuple(zip(keys, map(self.expr, node.values), strict=True)))

    def dotted(self, node: ast.expr) -> str:
        """`a.b.c` as a text; '' where the node is not a dotted name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
            if len(parts) > 8:
                return ""
        return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def _holds_text(value: Expr) -> bool:
    """Whether an expression is a text, or a tuple or list that holds one."""
    match value:
        case Const(value=str()):
            return True
        case Items(items=items):
            return any(map(_holds_text, items))
    return False


EXPRESSIONS: Mapping[type[ast.expr], Callable[[_CodeReader, Any], Expr]] = {
    ast.Constant: _CodeReader.constant,
    ast.Name: _CodeReader.name,
    ast.Attribute: _CodeReader.attribute,
    ast.Call: _CodeReader.call,
    ast.BinOp: _CodeReader.binary,
    ast.UnaryOp: _CodeReader.unary,
    ast.Compare: _CodeReader.compare,
    ast.Subscript: _CodeReader.subscript,
    ast.Slice: _CodeReader.slice,
    ast.Tuple: _CodeReader.items,
    ast.List: _CodeReader.items,
    ast.Dict: _CodeReader.pairs,
}


# ---- Devices as texts

AUTOCAST = "torch.amp.autocast_mode._enter_autocast"


def _with_device_exprs(call: FunctionCall | MethodCall) -> FunctionCall | MethodCall:
    """Return the call with DeviceExprs for texts that name a device: `device="cuda"`, `x.to("cuda:0")`, `x.cuda()`."""
    if isinstance(call, MethodCall) and call.name in ("cuda", "cpu") and not call.kwargs and len(call.args) < 2:
        return MethodCall(call.of, "to", (DeviceExpr(call.name, object=False),))
    args = call.args
    if (isinstance(call, MethodCall) and call.name == "to") or (
        isinstance(call, FunctionCall) and call.target == AUTOCAST
    ):
        args = (*map(_as_device_expr, args[:1]), *args[1:])
    kwargs = tuple((key, _as_device_expr(value) if key == "device" else value) for key, value in call.kwargs)
    if isinstance(call, MethodCall):
        return MethodCall(call.of, call.name, args, kwargs)
    return FunctionCall(call.target, args, kwargs)


def _as_device_expr(value: Expr) -> Expr:
    """Return a DeviceExpr for a text that names a device; any other expression as it is."""
    match value:
        case Const(value=str(text)) if _DEVICE.fullmatch(text):
            return DeviceExpr(text, object=False)
    return value


# ---- Walking


def _nested_expressions(value: Expr) -> Iterator[Expr]:
    """Yield an expression and all expressions inside it, outermost first."""
    yield value
    for part in subexpressions(value):
        yield from _nested_expressions(part)


def subexpressions(value: Expr) -> Iterator[Expr]:
    """Yield the direct operands of an expression."""
    match value:
        case Const() | Name() | Torch() | DeviceExpr():
            return
        case Items(items=items):
            yield from items
        case Pairs(pairs=pairs):
            for pair in pairs:
                yield from pair
        case FunctionCall(args=args, kwargs=kwargs):
            yield from args
            yield from (item for _, item in kwargs)
        case MethodCall(of=of, args=args, kwargs=kwargs):
            yield of
            yield from args
            yield from (item for _, item in kwargs)
        case _:
            for field in fields(value):
                part = getattr(value, field.name)
                if not isinstance(part, str):
                    yield part


def located_expressions(program: ModelProgram) -> Iterator[tuple[int, Expr]]:
    """Yield every expression of a program with its line; also those in targets."""
    for line in program.lines:
        if isinstance(line, Assign):
            for target in line.targets:
                yield from ((line.line, expression) for expression in _nested_expressions(target))
        if isinstance(line, Augment):
            yield from ((line.line, expression) for expression in _nested_expressions(line.target))
        yield from ((line.line, expression) for expression in _nested_expressions(line.value))
