"""Arithmetic, lists and texts of a GraphNet program that could grow without end: each has a limit."""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from backprint._torch.operators import all_schemas
from backprint.errors import ReplayError
from backprint.graphnet.code import (
    Assign,
    Attribute,
    Augment,
    Const,
    Expr,
    FunctionCall,
    Item,
    Items,
    MethodCall,
    ModelProgram,
    Name,
    Operation,
    SliceExpr,
    Statement,
    Unary,
)
from backprint.values.bounds import MOST_ITEMS, growth_complaint, tree_size

# ---- Arithmetic that may make a number, a list or a text grow without end
# `ValueKinds` knows of each name whether it is a tensor, a number, or may be anything. Arithmetic on a known tensor
# stays as it is written, so that tracers and tracebacks see it in `model.py`; any other calls a function below, which
# refuses results beyond the limits of `values.bounds`.


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
        if isinstance(line, Assign):
            kind = self.of(line.value)
            for target in line.targets:
                self.bind(target, line.value, kind)
        elif isinstance(line, Augment) and isinstance(line.target, Name):
            self.names[line.target.id] = self.of(Operation(line.kind, line.target, line.value))

    def bind(self, target: Expr, value: Expr | None, kind: str) -> None:
        match target, value:
            case Name(name), _:
                self.names[name] = kind
            case Items(items=targets), Items(items=values) if len(targets) == len(values):
                for element, kind in zip(targets, [self.of(item) for item in values], strict=True):
                    self.bind(element, None, kind)
            case Items(items=targets), _:
                element_kind = {TENSOR: TENSOR, TENSORS: TENSOR, NUMBERS: NUMBER}.get(kind, ANY)
                for element in targets:
                    self.bind(element, None, element_kind)

    def of(self, value: Expr) -> str:
        """Return the kind of an expression."""
        match value:
            case Name(name):
                return self.names.get(name, ANY)
            case Const(value=bool() | int() | float() | complex()):
                return NUMBER
            case FunctionCall(target=target):
                return _function_returns(target)
            case MethodCall(of=of, name=name):
                return _tensor_method_returns(name) if self.of(of) == TENSOR else _method_returns(name)
            case Attribute(of=of, name=name):
                return self.attribute(self.of(of), name)
            case Item(of=of, index=index):
                return self.item(self.of(of), index)
            case Unary(of=of):
                kind = self.of(of)
                return kind if kind in (TENSOR, NUMBER) else ANY
            case Operation(left=left, right=right):
                kinds = {self.of(left), self.of(right)}
                return TENSOR if TENSOR in kinds else NUMBER if kinds == {NUMBER} else ANY
        return ANY

    def attribute(self, kind: str, name: str) -> str:
        """Return the kind of an attribute of a value."""
        if name in HELD:
            return TENSOR if kind == TENSOR or name not in ALSO_PLAIN else ANY
        return NUMBERS if name == "shape" else NUMBER if name in ("ndim", "itemsize", "nbytes") else ANY

    def item(self, kind: str, index: Expr) -> str:
        """Return the kind of an item of a value."""
        if kind in (TENSOR, TENSORS):
            return TENSOR if kind == TENSOR or (isinstance(index, Const) and type(index.value) is int) else TENSORS
        return kind if kind != NUMBERS else NUMBERS if isinstance(index, SliceExpr) else NUMBER

    # ---- what is watched

    def is_watched(self, operation: str, left: Expr, right: Expr) -> bool:
        """Whether the result of arithmetic may grow without end, as far as kinds tell."""
        kinds = {self.of(left), self.of(right)}
        if operation not in WATCHED or TENSOR in kinds:
            return False
        constants = [side.value for side in (left, right) if isinstance(side, Const)]
        if operation == "Add":
            return NUMBER not in kinds
        if operation == "Mod":
            return self.of(left) != NUMBER
        small = any(isinstance(side, float) or (isinstance(side, int) and abs(side) <= 64) for side in constants)
        return not (operation == "Mult" and kinds == {NUMBER} and small)

    def may_nest(self, items: Iterable[Expr]) -> bool:
        """Whether an item of a list may itself be a list behind a name."""
        return any(
            self.of(item) in (ANY, TENSORS, NUMBERS) and not isinstance(item, (Const, SliceExpr)) for item in items
        )


# ---- What watches where it runs


def bounded(name: str) -> Callable[[Any, Any], Any]:
    """Return the function of this name of the module `operator`, which refuses a result that would pass a limit."""
    function: Callable[[Any, Any], Any] = getattr(operator, name)
    target = f"operator.{name.removeprefix('i')}"

    def call(left: Any, right: Any) -> Any:
        if complaint := growth_complaint(target, (left, right)):
            raise ReplayError(complaint)
        return function(left, right)

    call.__name__ = f"bounded_{name}"
    return call


WATCHED = {
    "Add": bounded("add"),
    "Mult": bounded("mul"),
    "Pow": bounded("pow"),
    "LShift": bounded("lshift"),
    "Mod": bounded("mod"),
}
"""Arithmetic that may grow without end; `%` also formats texts."""

IN_PLACE = {
    "Add": bounded("iadd"),
    "Mult": bounded("imul"),
    "Pow": bounded("ipow"),
    "LShift": bounded("ilshift"),
    "Mod": bounded("imod"),
}
"""The same in place."""


def bounded_items(items: Any) -> Any:
    """Return a tuple, list or dictionary, unless the lists in it make it too long."""
    if tree_size(items) > MOST_ITEMS:
        raise ReplayError(f"a list of more than {MOST_ITEMS:,} items, with those of its lists; no graph needs one")
    return items


def require_tensor(value: Any) -> Any:
    """Return a tensor, and refuse any other value: a list that is written to could come to hold itself."""
    if not isinstance(value, torch.Tensor):
        raise ReplayError(f"a {type(value).__name__} where a graph has a tensor")
    return value


def bounded_tolist(tensor: Any) -> Any:
    """`tensor.tolist()`, unless the list would be too long."""
    if require_tensor(tensor).numel() > MOST_ITEMS:
        raise ReplayError(f"a list of {tensor.numel():,} items; a graph may make one of {MOST_ITEMS:,}")
    return tensor.tolist()
