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

The lines of a ModelProgram are Python's own syntax tree, and every node in it is made here: a node of the file that no
function below copies is in no program. Four things are written in one way, whatever the file has:

- A function or a constant of torch is one `ast.Name` with its dots: `Name("torch.conv2d")`. No identifier has a dot,
  so whatever the file binds, such a name is a global, and what has no dot is a value.
- Each slice is a call of `SLICE` with three arguments: `x[1:]` is `x[slice(1, None, None)]`.
- Each device but `meta` is the name `DEVICE`, or `DEVICE_TEXT` where the file has a text: `emit` says which it is.
- `inf`, `nan` and negative numbers are constants.

`emit` compiles a ModelProgram to a function, and rewrites it to a mode; `read` finds what it does with its inputs.
"""

from __future__ import annotations

import ast
import copy
import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import ATOMS, MAX_INTEGER
from backprint.graph.text import tree_of

MAX_EXPRESSION_DEPTH = 40
"""How deeply expressions may be nested."""

MAX_STRING = 4096
"""The most characters of a text or a name."""

# ---- Nouns

Statement: TypeAlias = ast.Assign | ast.AugAssign | ast.Expr | ast.Return
"""A line of a program. The target of an AugAssign is a Name or a Subscript; only the last line is a Return."""


@dataclass(frozen=True, slots=True)
class ForwardArgument:
    """An argument of forward, the kind that its annotation says (a value of KIND_BY_ANNOTATION, '' without one), and
    its line in the file."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class ModelProgram:
    """A `model.py` that was read: the arguments of its forward, and its lines, the last of which returns.

    Python's nodes can be changed, but nobody changes these: a rewriter works on `copied_lines`.
    """

    arguments: tuple[ForwardArgument, ...]
    lines: tuple[Statement, ...]

    def copied_lines(self) -> tuple[Statement, ...]:
        """Return a copy of the lines, which may be changed."""
        return copy.deepcopy(self.lines)


# ---- What is legal


@functools.cache
def callables() -> frozenset[str]:
    """Return the functions and methods that a graph may call: `torch.conv2d`, `Tensor.view`."""
    return frozenset(Path(__file__).with_name("callables.txt").read_text(encoding="ascii").splitlines())


SLICE, DEVICE, DEVICE_TEXT, META = "builtins.slice", "torch.device", "torch.device.type", "torch.device.meta"
"""The names by which programs have slices and devices; META is the device `meta`, which no other replaces."""

NO_OPS = frozenset(
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
"""The attributes of values that a graph may read."""

CONSTANTS: dict[str, Any] = {
    "Ellipsis": ...,
    "inf": math.inf,
    "nan": math.nan,
    "math.inf": math.inf,
    "math.nan": math.nan,
    "math.pi": math.pi,
}
CONSTANTS |= {"torch.inf": math.inf, "torch.nan": math.nan, "torch.pi": math.pi, "torch.e": math.e}
"""Names in the place of which a program has their values."""

FLOAT_TEXTS = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}
FLOAT_TEXTS |= {"nan": math.nan, "-nan": math.nan}
"""The numbers that `float("…")` may spell."""

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

# The names of `ast` classes of operators that a graph may have.
BINARY = frozenset("Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr BitXor LShift RShift".split())
COMPARE = frozenset("Eq NotEq Lt LtE Gt GtE Is IsNot".split())
UNARY = frozenset("USub UAdd Invert Not".split())
KIND_BY_ANNOTATION = {
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
AUTOCAST = "torch.amp.autocast_mode._enter_autocast"


# ---- Making nodes, and looking for calls


def name_node(name: str) -> ast.Name:
    """Return the node of a name that is read."""
    return ast.Name(name, ast.Load())


def call_node(target: str, /, *args: ast.expr, **kwargs: ast.expr) -> ast.Call:
    """Return a call of a function by its dotted name."""
    return ast.Call(name_node(target), list(args), [ast.keyword(key, item) for key, item in kwargs.items()])


def method_node(of: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    """Return a call of a method."""
    return ast.Call(ast.Attribute(of, name, ast.Load()), list(args), [])


def set_line(statement: Any, line: int) -> Any:
    """Give all nodes of a statement this line as their place, which tracebacks show, and return the statement."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.stmt, ast.expr, ast.keyword)):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return statement


def is_slice(node: ast.expr) -> bool:
    """Whether a node of a program is a slice."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == SLICE


def count_calls(program: ModelProgram) -> Counter[str]:
    """Count the calls of each function and method: `torch.conv2d`, `.view`."""
    calls: Counter[str] = Counter()
    for line in program.lines:
        for node in ast.walk(line):
            match node:
                case ast.Call(func=ast.Name(id=target)) if target != SLICE:
                    calls[target] += 1
                case ast.Call(func=ast.Attribute(attr=name)):
                    calls[f".{name}"] += 1
    return calls


# ---- Reading


def read_code(text: str) -> ModelProgram:
    """Parse a text. Raises RefusedError or GraphError with the line; runs nothing."""
    tree, lines = tree_of(text)
    try:
        return _CodeReader(lines).program(tree)
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"the text is nested too deeply to be a graph ({type(error).__name__})") from None


class _CodeReader:
    """Checks the tree of one text, and copies what is allowed.

    A method for a node returns a new node as a program has it (see the top of this file), or raises RefusedError for
    what no graph has. `lines` are those of the text, `bound` the names that earlier lines and arguments bind, and
    `depth` how deeply the expression is nested that is read.
    """

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
        return line.encode()[node.col_offset : end].decode(errors="replace")[:80]  # `ast` counts bytes of UTF-8

    def refused(self, node: Any, why: str) -> RefusedError:
        """Return the refusal of a node, with its line, for the caller to raise."""
        return RefusedError(f"line {node.lineno}: {why}")

    def refused_quoting(self, node: Any, why: str) -> RefusedError:
        """Return the refusal of a node that quotes its source text."""
        return self.refused(node, f"{self.source_of(node)!r}: {why}")

    # ---- the file, the class, the function

    def program(self, tree: ast.Module) -> ModelProgram:
        """Return the program of a file: a docstring, imports and one class GraphModule."""
        forward = None
        for node in tree.body:
            match node:
                case ast.Import() | ast.ImportFrom():
                    self.check_import(node)
                case ast.Expr(value=ast.Constant(value=str())) if node is tree.body[0]:
                    pass  # the docstring
                case ast.ClassDef(name="GraphModule") if forward is None:
                    forward = self.forward_function(node)
                case _:
                    quoted = f"{self.source_of(node)!r} is outside the class"
                    raise self.refused(node, f"{quoted}: a GraphNet model is imports and one class GraphModule")
        if forward is None:
            raise GraphError("the text holds no class GraphModule")
        return self.function(forward)

    def check_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Raise at an import of anything but the few names that graphs use."""
        for alias in node.names:
            statement = f"import {alias.name}"
            if isinstance(node, ast.ImportFrom):
                statement = f"from {'.' * node.level}{node.module or ''} {statement}"
            if statement not in IMPORTS or alias.asname:
                raise self.refused(node, f"{statement!r:.100}: a graph imports {', '.join(sorted(IMPORTS))} alone")

    def forward_function(self, cls: ast.ClassDef) -> ast.FunctionDef:
        """Return the class's only function, forward; refuse a class that has anything else."""
        is_plain_class = (
            not (cls.decorator_list or cls.keywords or getattr(cls, "type_params", None)) and len(cls.bases) == 1
        )
        if not is_plain_class or _dotted(cls.bases[0]) not in ("torch.nn.Module", "torch.nn.modules.module.Module"):
            raise self.refused(cls, "a graph's class has one base, torch.nn.Module, and no decorators or keywords")
        match cls.body:
            case [ast.FunctionDef(name="forward") as function]:
                return function
        # What the refusal quotes: what is no function `forward`, or else the last of several.
        not_forward = (node for node in cls.body if not (isinstance(node, ast.FunctionDef) and node.name == "forward"))
        other = next(not_forward, cls.body[-1])
        raise self.refused(
            other, f"{self.source_of(other)!r} in the class: it holds one function, forward, and nothing else"
        )

    def function(self, node: ast.FunctionDef) -> ModelProgram:
        """Return the program of the function `forward`, and note all names that it binds (`locals`). Refuse decorators,
        defaults, star parameters, and a first parameter that is not `self`."""
        spec = node.args
        has_star_parameters = spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs
        if node.decorator_list or spec.defaults or has_star_parameters or getattr(node, "type_params", None):
            raise self.refused(node, "decorators, defaults and star parameters are not part of a graph")
        if not spec.args or spec.args[0].arg != "self":
            raise self.refused(node, "forward takes self first")
        stored = (child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
        self.locals = {child.arg for child in spec.args[1:]} | {child.id for child in stored}
        arguments = tuple(self.argument(arg) for arg in spec.args[1:])
        last = node.body[-1]
        lines: tuple[Statement, ...] = tuple(set_line(self.line(line, line is last), line.lineno) for line in node.body)
        if not isinstance(lines[-1], ast.Return):
            raise GraphError(f"line {node.lineno}: forward does not return")
        return ModelProgram(arguments, lines)

    def argument(self, node: ast.arg) -> ForwardArgument:
        """Return an argument of forward, with its kind by its annotation, and bind its name."""
        match node.annotation:
            case None | ast.Constant(value=str()):  # a text, such as Dynamo's "f32[8, 16]", says no kind
                kind = ""
            case ast.expr() as annotation:
                annotation_text = _dotted(annotation) or self.source_of(annotation)
                if annotation_text not in KIND_BY_ANNOTATION:
                    raise self.refused(
                        node, f"the annotation {annotation_text!r:.80} is not one of {', '.join(KIND_BY_ANNOTATION)}"
                    )
                kind = KIND_BY_ANNOTATION[annotation_text]
        if node.arg in self.bound:
            raise self.refused(node, f"forward takes {node.arg!r:.80} twice")
        self.bind(node, node.arg)
        return ForwardArgument(node.arg, kind, node.lineno)

    def bind(self, node: Any, name: str) -> None:
        """Note that a line or an argument binds a name; refuse names with a meaning of their own."""
        if name in RESERVED or name.startswith("__") or len(name) > MAX_STRING:
            raise self.refused(node, f"{name!r:.80} is reserved and cannot name a value")
        self.bound.add(name)

    # ---- lines

    def line(self, node: ast.stmt, last: bool) -> Statement:
        """Return a line: an assignment, an update in place, an expression, or, only as the `last` one, a return."""
        match node:
            case ast.Assign(targets=targets, value=value):
                expression = self.expr(value)  # before the targets, which bind names that it may not read yet
                if _contains_text(expression):
                    raise self.refused_quoting(node, "a text is an argument or a key in a graph, not a value")
                return ast.Assign([self.target(target) for target in targets], expression)
            case ast.AugAssign(target=target, op=op, value=value):
                if type(op).__name__ not in BINARY or not isinstance(target, (ast.Name, ast.Subscript)):
                    raise self.refused(
                        node, f"{self.source_of(node)!r} is not an in-place update of a value or an item"
                    )
                updated = self.expr(target)
                if not isinstance(updated, (ast.Name, ast.Subscript)):
                    raise self.refused(node, f"{self.source_of(node)!r} updates a constant")
                updated.ctx = ast.Store()
                return ast.AugAssign(updated, op, self.expr(value))
            case ast.Expr(value=value):
                return ast.Expr(self.expr(value))
            case ast.Return(value=value) if last:
                return ast.Return(ast.Constant(None) if value is None else self.expr(value))
        kind = type(node).__name__
        raise self.refused_quoting(node, f"a graph is straight-line code, and a {kind} is not allowed in it")

    def target(self, node: ast.expr) -> ast.Name | ast.Subscript | ast.Tuple:
        """Return what a line assigns to, and bind its names."""
        match node:
            case ast.Name(id=name):
                self.bind(node, name)
                return ast.Name(name, ast.Store())
            case ast.Subscript():
                item = self.subscript(node)
                item.ctx = ast.Store()
                return item
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return ast.Tuple([self.target(item) for item in items], ast.Store())
        raise self.refused_quoting(node, "a line binds names and items of values alone")

    # ---- expressions

    def expr(self, node: ast.expr) -> ast.expr:
        """Return an expression, by the table EXPRESSIONS; refuse a kind that is not in it, and deep nesting."""
        read = EXPRESSIONS.get(type(node))
        if read is None:
            raise self.refused_quoting(node, f"a {type(node).__name__} is not part of a graph")
        self.depth += 1
        if self.depth > MAX_EXPRESSION_DEPTH:
            raise self.refused(node, f"an expression is nested more than {MAX_EXPRESSION_DEPTH} deep")
        expression = read(self, node)
        self.depth -= 1
        return expression

    def exprs(self, nodes: Iterable[ast.expr]) -> list[ast.expr]:
        return [self.expr(node) for node in nodes]

    def constant(self, node: ast.Constant) -> ast.expr:
        """Return a constant; refuse bytes, long texts, and integers of more than 64 bits."""
        value = node.value
        if isinstance(value, bytes) or (isinstance(value, str) and len(value) > MAX_STRING):
            raise self.refused(node, f"a constant of {len(value):,} characters or bytes is not part of a graph")
        if type(value) is int and not -MAX_INTEGER <= value < MAX_INTEGER:
            raise self.refused(node, f"an integer of {value.bit_length():,} bits is not part of a graph")
        return ast.Constant(value)

    def name(self, node: ast.Name) -> ast.expr:
        """Return a value that an earlier line binds, or else one of CONSTANTS."""
        if node.id in self.bound:
            return name_node(node.id)
        if node.id in CONSTANTS and self.is_global(node, node.id):
            return ast.Constant(CONSTANTS[node.id])
        raise self.refused(node, f"{node.id!r:.80} is not a value that an earlier line names")

    def is_global(self, node: ast.expr, dotted: str) -> bool:
        """Whether a dotted name ('' is none) begins with a global, and not with a value that is bound; raise if a later
        line binds that beginning: to Python it is local in all lines."""
        root = dotted.split(".")[0]
        if not dotted or root in self.bound:
            return False
        if root in self.locals:
            raise self.refused(node, f"{root!r:.80} is used before a line binds it")
        return True

    def attribute(self, node: ast.Attribute) -> ast.expr:
        """Return a constant of torch by its dotted name (`torch.float32`), or an attribute of a value (`x.shape`)."""
        if self.is_global(node, dotted := _dotted(node)):
            if dotted in CONSTANTS:
                return ast.Constant(CONSTANTS[dotted])
            if dotted.removeprefix("torch.") in ATOMS and dotted.startswith("torch."):  # a dtype, a layout, …
                return name_node(dotted)
            raise self.refused(node, f"{dotted!r:.120} is not a constant of torch; a function has to be called")
        if node.attr not in ATTRIBUTES:
            raise self.refused(node, f"the attribute .{node.attr:.80} is not one of {', '.join(sorted(ATTRIBUTES))}")
        return ast.Attribute(self.expr(node.value), node.attr, ast.Load())

    def call(self, node: ast.Call) -> ast.expr:
        """Return a call of a function of torch (`function_call`), or of a method of a tensor. Texts that name a device
        become DEVICE_TEXT where a method takes a device."""
        if self.is_global(node, dotted := _dotted(node.func)):
            return self.function_call(node, dotted)
        if not isinstance(node.func, ast.Attribute):
            raise self.refused_quoting(node, "only functions of torch and methods of tensors are called")
        name = node.func.attr
        if f"Tensor.{name}" not in callables():
            raise self.refused(node, f"the method .{name:.80}() is not a known tensor method")
        of, (args, keywords) = self.expr(node.func.value), self.arguments(node)
        if name in ("cuda", "cpu") and not keywords and len(args) < 2:  # `x.cuda(0)` is `x.to(DEVICE)`
            return method_node(of, "to", name_node(DEVICE_TEXT))
        if name == "to":
            args[:1] = map(_without_device_text, args[:1])  # the first argument, if there is one
        return ast.Call(ast.Attribute(of, name, ast.Load()), args, keywords)

    def function_call(self, node: ast.Call, dotted: str) -> ast.expr:
        """Return a call of a function by its dotted name: None for one of NO_OPS, another form for one of
        SPECIAL_CALLS, else a call of a function of the table; refuse any other."""
        if dotted in NO_OPS:
            return ast.Constant(None)
        if dotted in SPECIAL_CALLS:
            return SPECIAL_CALLS[dotted](self, node)
        if dotted not in callables():
            raise self.refused(node, f"{dotted!r:.120} is not a known tensor function")
        args, keywords = self.arguments(node)
        if dotted == AUTOCAST:  # its first argument is the device's type
            args[:1] = map(_without_device_text, args[:1])
        return ast.Call(name_node(dotted), args, keywords)

    def arguments(self, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
        """Return the arguments of a call by position and by keyword; a text that names a device is DEVICE_TEXT. Refuse
        `**`, and a keyword that stands twice."""
        keywords: list[ast.keyword] = []
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.refused_quoting(node, "** is not part of a graph")
            if keyword.arg.startswith("__"):  # the compiler refuses `__debug__`, as no other name
                raise self.refused(node, f"{keyword.arg!r:.80} is reserved and cannot name an argument")
            if any(keyword.arg == other.arg for other in keywords):
                raise self.refused_quoting(node, "a keyword stands twice")
            argument = self.expr(keyword.value)
            keywords.append(
                ast.keyword(keyword.arg, _without_device_text(argument) if keyword.arg == "device" else argument)
            )
        return self.exprs(node.args), keywords

    def device(self, node: ast.Call) -> ast.expr:
        """Return DEVICE or META for `device("cuda:0")` or `device(type="cuda", index=0)`; refuse other devices."""
        args, keywords = self.arguments(node)
        # strict=False: the index may be missing, or a keyword.
        arguments = dict(zip(("type", "index"), args, strict=False)) | {str(word.arg): word.value for word in keywords}
        match arguments.pop("type", None), arguments.pop("index", ast.Constant(None)):  # what is left is refused
            case ast.Constant(value="meta"), ast.Constant(value=None) if not arguments:
                return name_node(META)
            case ast.Constant(value=str(text)), ast.Constant(value=None) if not arguments and _DEVICE.fullmatch(text):
                return name_node(DEVICE)
            case ast.Constant(value=str(text)), ast.Constant(value=int(number)) if (
                not arguments and text in DEVICES and number >= 0
            ):
                return name_node(DEVICE)
            # `device(device("cuda"))`: the inner one is a name already.
            case ast.Name(id="torch.device" | "torch.device.meta" as name), ast.Constant(value=None) if not arguments:
                return name_node(name)
        raise self.refused(node, f"{self.source_of(node)!r} is not a device: write device(type='cuda', index=0)")

    def slice_call(self, node: ast.Call) -> ast.expr:
        """Return `slice(stop)`, or one with two or three values, with all three."""
        args, keywords = self.arguments(node)
        if keywords or not 1 <= len(args) <= 3:
            raise self.refused_quoting(node, "slice takes one to three values")
        bounds = [ast.Constant(None), *args] if len(args) == 1 else args
        return call_node(SLICE, *bounds, *(ast.Constant(None) for _ in range(3 - len(bounds))))

    def float_call(self, node: ast.Call) -> ast.expr:
        """Return the number of `float("inf")` and its like as a constant; refuse other calls of `float`."""
        match node:
            case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]) if text.strip().lower() in FLOAT_TEXTS:
                return ast.Constant(FLOAT_TEXTS[text.strip().lower()])
        raise self.refused_quoting(node, "float() spells inf and nan alone, as float('-inf')")

    def binary(self, node: ast.BinOp) -> ast.expr:
        """Copy arithmetic. A text could grow to any size; `growth` bounds numbers and lists when the line runs."""
        kind = type(node.op).__name__
        if kind not in BINARY:
            raise self.refused(node, f"the operator {kind} is not part of a graph")
        left, right = self.expr(node.left), self.expr(node.right)
        if _contains_text(left) or _contains_text(right):
            raise self.refused_quoting(node, "texts are not added, multiplied or filled in, in a graph")
        return ast.BinOp(left, node.op, right)

    def unary(self, node: ast.UnaryOp) -> ast.expr:
        """Return an operation on one value; a negative number is a constant."""
        kind = type(node.op).__name__
        if kind not in UNARY:
            raise self.refused(node, f"the operator {kind} is not part of a graph")
        # The least integer is written as `-` before a number that is one too large by itself, which `constant` refuses.
        if kind == "USub" and isinstance(node.operand, ast.Constant) and node.operand.value == MAX_INTEGER:
            return ast.Constant(-MAX_INTEGER)
        match operand := self.expr(node.operand):
            case ast.Constant(value=int() | float() as number) if kind == "USub" and type(number) is not bool:
                return ast.Constant(-number)
        return ast.UnaryOp(node.op, operand)

    def compare(self, node: ast.Compare) -> ast.expr:
        """Return a comparison of two values; refuse a chain, and `in`."""
        if len(node.ops) > 1 or type(node.ops[0]).__name__ not in COMPARE:
            raise self.refused_quoting(node, "a graph compares two values by ==, !=, <, <=, >, >=, is")
        return ast.Compare(self.expr(node.left), node.ops, self.exprs(node.comparators))

    def subscript(self, node: ast.Subscript) -> ast.Subscript:
        return ast.Subscript(self.expr(node.value), self.expr(node.slice), ast.Load())

    def slice(self, node: ast.Slice) -> ast.expr:
        """Return `start:stop:step` as a call of SLICE, with None for what is missing."""
        bounds = (node.lower, node.upper, node.step)
        return call_node(SLICE, *(ast.Constant(None) if bound is None else self.expr(bound) for bound in bounds))

    def items(self, node: ast.Tuple | ast.List) -> ast.expr:
        return type(node)(self.exprs(node.elts), ast.Load())

    def pairs(self, node: ast.Dict) -> ast.expr:
        """Return a dictionary; refuse one that takes another in (`**other`, whose key is None in the tree)."""
        keys = [key for key in node.keys if key is not None]
        if len(keys) < len(node.keys):
            raise self.refused(node, "** is not part of a graph")
        return ast.Dict([*self.exprs(keys)], self.exprs(node.values))


def _dotted(node: ast.expr) -> str:
    """Return a dotted name as a text, `a.b.c`; '' where the node is none, or has more than nine parts."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        if len(parts) > 8:
            return ""
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def _contains_text(node: ast.expr) -> bool:
    """Whether an expression is a text, or a tuple or list that holds one."""
    match node:
        case ast.Constant(value=str()):
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return any(map(_contains_text, items))
    return False


def _without_device_text(node: ast.expr) -> ast.expr:
    """Return DEVICE_TEXT for a text that names a device, as in `x.to("cuda:0")`; any other expression as it is."""
    match node:
        case ast.Constant(value=str(text)) if _DEVICE.fullmatch(text):
            return name_node(DEVICE_TEXT)
    return node


EXPRESSIONS: Mapping[type[ast.expr], Callable[[_CodeReader, Any], ast.expr]] = {
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
"""The expressions of a graph, and what checks and copies each."""

SPECIAL_CALLS: Mapping[str, Callable[[_CodeReader, ast.Call], ast.expr]] = {
    "device": _CodeReader.device,
    "torch.device": _CodeReader.device,
    "slice": _CodeReader.slice_call,
    "float": _CodeReader.float_call,
}
"""Calls that a program has in another form."""
