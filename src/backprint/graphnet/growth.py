"""Arithmetic, lists and texts of a GraphNet program that could grow without end: each has a limit."""

from __future__ import annotations

import ast
import copy
import functools
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from backprint._torch.operators import all_schemas
from backprint.errors import ReplayError
from backprint.graphnet.code import ModelProgram, Statement, call_node, is_slice, name_node, placed
from backprint.values.bounds import MOST_ITEMS, growth_complaint, tree_size

# `ValueKinds` knows of each name whether it is a tensor, a number, or may be anything. Arithmetic on a known tensor
# stays as it is written, so that tracers and tracebacks see it in `model.py`; any other calls a function below, which
# refuses results beyond the limits of `values.bounds`. `bounded_lines` puts these calls into a program.


# ---- What a value may be

TENSOR, TENSORS, NUMBER, NUMBERS, ANY = "tensor", "tensors", "number", "numbers", "any"
"""`tensors`: a tensor, or a tuple or list of tensors. `numbers`: likewise. `any`: anything else."""

COUNTS = frozenset("dim ndimension numel nelement storage_offset element_size item get_device".split())
"""Methods that return a number. Lists have none of these; torch.Size has `numel`."""

HELD = frozenset({"T", "H", "mT", "mH", "real", "imag"})
"""Attributes of a tensor that are tensors."""

ALSO_PLAIN = frozenset("index sort split type is_complex is_floating_point is_signed real imag".split())
"""Methods and attributes that texts, lists, numbers and dtypes have as well."""

TUPLES = frozenset({"multi_head_attention_forward", *(name for name in dir(F) if "max_pool" in name)})
"""Functions of `torch.nn.functional` that may return several tensors; all others of the table return one."""

SAME = frozenset("norm einsum cdist tensordot chain_matmul cartesian_prod block_diag stft unravel_index".split())
"""Functions written in Python that return one tensor."""


@functools.cache
def _operator_returns() -> Mapping[str, str]:
    """Return the kind that each operator returns, by its name without the overload."""
    kinds_returned: dict[str, str] = {}
    for schema in all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            kinds = [str(result.type) for result in schema.returns]
            several = TENSORS if kinds and all("Tensor" in result for result in kinds) else ANY
            kind = TENSOR if kinds == ["Tensor"] else several
            before = kinds_returned.get(name, kind)
            kinds_returned[name] = kind if before == kind else ANY if ANY in (kind, before) else TENSORS
    return kinds_returned


@functools.cache
def _function_returns(target: str) -> str:
    """Return the kind that a function of the table returns."""
    *_, name = target.removesuffix(".default").split(".")
    if target.startswith("torch.nn.functional."):
        return ANY if name in TUPLES else TENSOR
    if name.startswith("sym_"):
        return NUMBER if name in ("sym_int", "sym_float", "sym_sqrt", "sym_not") else ANY
    if name in SAME:
        return TENSOR
    function: Any = torch
    for part in target.split(".")[1:]:
        function = getattr(function, part, None)
    return _operator_returns().get(function.__name__, ANY) if isinstance(function, types.BuiltinFunctionType) else ANY


@functools.cache
def _method_returns(name: str) -> str:
    """Return the kind that a method returns on a value of any kind."""
    if name in COUNTS:
        return NUMBER
    return ANY if name in ALSO_PLAIN or name.startswith("__") else _tensor_method_returns(name)


@functools.cache
def _tensor_method_returns(name: str) -> str:
    """Return the kind that a method returns on a tensor."""
    if name in COUNTS:
        return NUMBER
    if name in ("size", "stride"):
        return NUMBERS
    return (
        ANY
        if name in ("type", "tolist")
        else _operator_returns().get(name.strip("_") if name.startswith("__") else name, ANY)
    )


class ValueKinds:
    """The kinds of a program's values, followed line by line."""

    def __init__(self, program: ModelProgram) -> None:
        kinds = {"Tensor": TENSOR, "Parameter": TENSOR, "SymInt": NUMBER, "SymFloat": NUMBER, "SymBool": NUMBER}
        self.names = {argument.name: kinds.get(argument.kind, TENSOR) for argument in program.arguments}

    def after(self, line: Statement) -> None:
        """Set the kinds of the names that a line binds."""
        match line:
            case ast.Assign(targets=targets, value=value):
                kind = self.of(value)
                for target in targets:
                    self.bind(target, value, kind)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self.names[name] = self.of(ast.BinOp(name_node(name), op, value))

    def bind(self, target: ast.expr, value: ast.expr | None, kind: str) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.names[name] = kind
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) | ast.List(elts=values) if len(targets) == len(values):
                for element, kind in zip(targets, [self.of(item) for item in values], strict=True):
                    self.bind(element, None, kind)
            case ast.Tuple(elts=targets), _:
                element_kind = {TENSOR: TENSOR, TENSORS: TENSOR, NUMBERS: NUMBER}.get(kind, ANY)
                for element in targets:
                    self.bind(element, None, element_kind)

    def of(self, value: ast.expr) -> str:
        """Return the kind of an expression."""
        match value:
            case ast.Name(id=name):
                return self.names.get(name, ANY)
            case ast.Constant(value=bool() | int() | float() | complex()):
                return NUMBER
            case ast.Call(func=ast.Name(id=target)):
                return _function_returns(target)
            case ast.Call(func=ast.Attribute(value=of, attr=name)):
                return _tensor_method_returns(name) if self.of(of) == TENSOR else _method_returns(name)
            case ast.Attribute(value=of, attr=name):
                return self.attribute(self.of(of), name)
            case ast.Subscript(value=of, slice=index):
                return self.item(self.of(of), index)
            case ast.UnaryOp(operand=of):
                kind = self.of(of)
                return kind if kind in (TENSOR, NUMBER) else ANY
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
                kinds = {self.of(left), self.of(right)}
                return TENSOR if TENSOR in kinds else NUMBER if kinds == {NUMBER} else ANY
        return ANY

    def attribute(self, kind: str, name: str) -> str:
        """Return the kind of an attribute of a value."""
        if name in HELD:
            return TENSOR if kind == TENSOR or name not in ALSO_PLAIN else ANY
        return NUMBERS if name == "shape" else NUMBER if name in ("ndim", "itemsize", "nbytes") else ANY

    def item(self, kind: str, index: ast.expr) -> str:
        """Return the kind of an item of a value."""
        if kind in (TENSOR, TENSORS):
            one = isinstance(index, ast.Constant) and type(index.value) is int
            return TENSOR if kind == TENSOR or one else TENSORS
        return kind if kind != NUMBERS else NUMBERS if is_slice(index) else NUMBER

    # ---- what is watched

    def is_watched(self, operation: ast.operator, left: ast.expr, right: ast.expr) -> bool:
        """Whether the result of arithmetic may grow without end, as far as kinds tell."""
        kinds = {self.of(left), self.of(right)}
        if type(operation) not in WATCHED or TENSOR in kinds:
            return False
        constants = [side.value for side in (left, right) if isinstance(side, ast.Constant)]
        match operation:
            case ast.Add():
                return NUMBER not in kinds
            case ast.Mod():
                return self.of(left) != NUMBER
        small = any(isinstance(side, float) or (isinstance(side, int) and abs(side) <= 64) for side in constants)
        return not (isinstance(operation, ast.Mult) and kinds == {NUMBER} and small)

    def may_nest(self, items: Iterable[ast.expr]) -> bool:
        """Whether an item of a list may itself be a list behind a name."""
        return any(
            self.of(item) in (ANY, TENSORS, NUMBERS) and not isinstance(item, ast.Constant) and not is_slice(item)
            for item in items
        )


def bounded_lines(program: ModelProgram) -> list[Statement]:
    """Return a copy of a program's lines in which what may grow without end is a call of a function of BOUNDED."""
    kinds, lines = ValueKinds(program), list[Statement]()
    for line, copied in zip(program.lines, program.copied_lines(), strict=True):
        lines.append(placed(_BoundCalls(kinds).visit(copied), line.lineno))
        kinds.after(line)
    return lines


class _BoundCalls(ast.NodeTransformer):
    """Puts the calls into one line. A node is judged before its parts are changed, because the kinds are the program's
    own."""

    def __init__(self, kinds: ValueKinds) -> None:
        self.kinds = kinds

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        watched = self.kinds.is_watched(node.op, node.left, node.right)
        self.generic_visit(node)
        return call_node(WATCHED[type(node.op)], node.left, node.right) if watched else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """`target += value`; where it may grow without end, `target = bounded_iadd(target, value)`."""
        if not self.kinds.is_watched(node.op, node.target, node.value):
            self.generic_visit(node)
            return node
        before = copy.deepcopy(node.target)
        before.ctx = ast.Load()
        assignment = ast.Assign([node.target], call_node(IN_PLACE[type(node.op)], before, node.value))
        self.generic_visit(assignment)
        return assignment

    def visit_Tuple(self, node: ast.Tuple | ast.List | ast.Dict) -> ast.expr:
        items = node.values if isinstance(node, ast.Dict) else node.elts
        nests = not isinstance(getattr(node, "ctx", None), ast.Store) and self.kinds.may_nest(items)
        self.generic_visit(node)
        return call_node(ITEMS, node) if nests else node

    visit_List = visit_Dict = visit_Tuple

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Writing to an item requires a tensor, because a list could come to hold itself."""
        other = isinstance(node.ctx, ast.Store) and self.kinds.of(node.value) != TENSOR
        self.generic_visit(node)
        node.value = call_node(REQUIRED, node.value) if other else node.value
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A method that is arithmetic requires a tensor; the list that `tolist` returns is bounded."""
        if not isinstance(method := node.func, ast.Attribute):
            self.generic_visit(node)
            return node
        arithmetic = method.attr.startswith("__") and method.attr != "__getitem__"
        other = arithmetic and self.kinds.of(method.value) != TENSOR
        self.generic_visit(node)
        if method.attr == "tolist" and not node.args and not node.keywords:
            return call_node(TOLIST, method.value)
        method.value = call_node(REQUIRED, method.value) if other else method.value
        return node


# ---- What watches where it runs


def _bounded(name: str) -> Callable[[Any, Any], Any]:
    """Return the function of this name of the module `operator`, which refuses a result that would pass a limit."""
    function: Callable[[Any, Any], Any] = getattr(operator, name)
    target = f"operator.{name.removeprefix('i')}"

    def call(left: Any, right: Any) -> Any:
        if complaint := growth_complaint(target, (left, right)):
            raise ReplayError(complaint)
        return function(left, right)

    return call


def _bounded_items(items: Any) -> Any:
    """Return a tuple, list or dictionary, unless the lists in it make it too long."""
    if tree_size(items) > MOST_ITEMS:
        raise ReplayError(f"a list of more than {MOST_ITEMS:,} items, with those of its lists; no graph needs one")
    return items


def _require_tensor(value: Any) -> Any:
    """Return a tensor, and refuse any other value: a list that is written to could come to hold itself."""
    if not isinstance(value, torch.Tensor):
        raise ReplayError(f"a {type(value).__name__} where a graph has a tensor")
    return value


def _bounded_tolist(tensor: Any) -> Any:
    """`tensor.tolist()`, unless the list would be too long."""
    if _require_tensor(tensor).numel() > MOST_ITEMS:
        raise ReplayError(f"a list of {tensor.numel():,} items; a graph may make one of {MOST_ITEMS:,}")
    return tensor.tolist()


OPERATORS = {ast.Add: "add", ast.Mult: "mul", ast.Pow: "pow", ast.LShift: "lshift", ast.Mod: "mod"}
"""Arithmetic that may grow without end; `%` also formats texts."""

WATCHED = {kind: f"bounded.{name}" for kind, name in OPERATORS.items()}
IN_PLACE = {kind: f"bounded.i{name}" for kind, name in OPERATORS.items()}
ITEMS, REQUIRED, TOLIST = "bounded.items", "bounded.tensor", "bounded.tolist"

BOUNDED: Mapping[str, Callable[..., Any]] = {
    ITEMS: _bounded_items,
    REQUIRED: _require_tensor,
    TOLIST: _bounded_tolist,
    **{name: _bounded(name.removeprefix("bounded.")) for name in (*WATCHED.values(), *IN_PLACE.values())},
}
"""The functions that the changed lines call, by their names there."""
