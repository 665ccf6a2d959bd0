"""Which lines of a program may make a number, a list or a text grow without end, and the functions that bound them.

`ValueKinds` knows of each name whether it is a tensor, a number, or may be anything. Arithmetic on a known tensor stays
as it is written, so that tracers and tracebacks see it in `model.py`; the rest calls a function below, which refuses
results beyond the limits of `growth`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from backprint._torch.operators import all_schemas
from backprint.checks.counts import divided
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
from backprint.growth import MOST_ITEMS, growth_complaint, tree_size

# ------------------------------------------------------------------ what a value may be

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
def operator_returns() -> Mapping[str, str]:
    """The kind that each operator returns, by its name without the overload."""
    found: dict[str, str] = {}
    for schema in all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            kinds = [str(each.type) for each in schema.returns]
            several = TENSORS if kinds and all("Tensor" in each for each in kinds) else ANY
            kind = TENSOR if kinds == ["Tensor"] else several
            before = found.get(name, kind)
            found[name] = kind if before == kind else ANY if ANY in (kind, before) else TENSORS
    return found


@functools.cache
def function_returns(target: str) -> str:
    """The kind that a function of the table returns."""
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
    return operator_returns().get(function.__name__, ANY) if isinstance(function, types.BuiltinFunctionType) else ANY


@functools.cache
def method_returns(name: str) -> str:
    """The kind that a method returns on a value of any kind."""
    if name in COUNTS:
        return NUMBER
    return ANY if name in ALSO_PLAIN or name.startswith("__") else tensor_method_returns(name)


@functools.cache
def tensor_method_returns(name: str) -> str:
    """The kind that a method returns on a tensor."""
    if name in COUNTS:
        return NUMBER
    if name in ("size", "stride"):
        return NUMBERS
    return (
        ANY
        if name in ("type", "tolist")
        else operator_returns().get(name.strip("_") if name.startswith("__") else name, ANY)
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
                for one, kind in zip(targets, [self.of(each) for each in values], strict=True):
                    self.bind(one, None, kind)
            case Items(items=targets), _:
                one_of = {TENSOR: TENSOR, TENSORS: TENSOR, NUMBERS: NUMBER}.get(kind, ANY)
                for one in targets:
                    self.bind(one, None, one_of)

    def of(self, value: Expr) -> str:
        """The kind of an expression."""
        match value:
            case Name(name):
                return self.names.get(name, ANY)
            case Const(value=bool() | int() | float() | complex()):
                return NUMBER
            case FunctionCall(target=target):
                return function_returns(target)
            case MethodCall(of=of, name=name):
                return tensor_method_returns(name) if self.of(of) == TENSOR else method_returns(name)
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
        """The kind of an attribute of a value."""
        if name in HELD:
            return TENSOR if kind == TENSOR or name not in ALSO_PLAIN else ANY
        return NUMBERS if name == "shape" else NUMBER if name in ("ndim", "itemsize", "nbytes") else ANY

    def item(self, kind: str, index: Expr) -> str:
        """The kind of an item of a value."""
        if kind in (TENSOR, TENSORS):
            return TENSOR if kind == TENSOR or (isinstance(index, Const) and type(index.value) is int) else TENSORS
        return kind if kind != NUMBERS else NUMBERS if isinstance(index, SliceExpr) else NUMBER

    # ---- what is watched

    def is_watched(self, operation: str, left: Expr, right: Expr) -> bool:
        """Whether the result of arithmetic may grow without end, as far as kinds tell."""
        kinds = {self.of(left), self.of(right)}
        if operation in ("FloorDiv", "Mod") and kinds != {NUMBER}:
            return True
        if operation not in WATCHED or TENSOR in kinds:
            return False
        constants = [each.value for each in (left, right) if isinstance(each, Const)]
        if operation == "Add":
            return NUMBER not in kinds
        if operation == "Mod":
            return self.of(left) != NUMBER
        small = any(isinstance(each, float) or (isinstance(each, int) and abs(each) <= 64) for each in constants)
        return not (operation == "Mult" and kinds == {NUMBER} and small)

    def may_nest(self, items: Iterable[Expr]) -> bool:
        """Whether an item of a list may itself be a list behind a name."""
        return any(
            self.of(each) in (ANY, TENSORS, NUMBERS) and not isinstance(each, (Const, SliceExpr)) for each in items
        )


# ------------------------------------------------------------------ what watches where it runs


def refuse_growth(target: str, left: Any, right: Any) -> None:
    """Raise where the result of arithmetic would pass a limit."""
    if complaint := growth_complaint(target, (left, right)):
        raise ReplayError(complaint)


def bounded_add(left: Any, right: Any) -> Any:
    """`left + right`."""
    refuse_growth("operator.add", left, right)
    return left + right


def bounded_mul(left: Any, right: Any) -> Any:
    """`left * right`."""
    refuse_growth("operator.mul", left, right)
    return left * right


def bounded_pow(left: Any, right: Any) -> Any:
    """`left ** right`."""
    refuse_growth("operator.pow", left, right)
    return left**right


def bounded_lshift(left: Any, right: Any) -> Any:
    """`left << right`."""
    refuse_growth("operator.lshift", left, right)
    return left << right


def checked_mod(left: Any, right: Any) -> Any:
    """`left % right`, which also formats texts."""
    refuse_growth("operator.mod", left, right)
    check_divisor(left, right)
    return left % right


def checked_floordiv(left: Any, right: Any) -> Any:
    """`left // right`."""
    check_divisor(left, right)
    return left // right


def check_divisor(left: Any, right: Any) -> None:
    """Raise where a division of integer tensors would end the process."""
    if torch.compiler.is_compiling() or not (isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor)):
        return
    if complaint := divided({"self": left, "other": right}):
        raise ReplayError(complaint)


def bounded_iadd(left: Any, right: Any) -> Any:
    """`left += right`."""
    refuse_growth("operator.add", left, right)
    left += right
    return left


def bounded_imul(left: Any, right: Any) -> Any:
    """`left *= right`."""
    refuse_growth("operator.mul", left, right)
    left *= right
    return left


def bounded_ipow(left: Any, right: Any) -> Any:
    """`left **= right`."""
    refuse_growth("operator.pow", left, right)
    left **= right
    return left


def bounded_ilshift(left: Any, right: Any) -> Any:
    """`left <<= right`."""
    refuse_growth("operator.lshift", left, right)
    left <<= right
    return left


def checked_imod(left: Any, right: Any) -> Any:
    """`left %= right`."""
    refuse_growth("operator.mod", left, right)
    check_divisor(left, right)
    left %= right
    return left


def checked_ifloordiv(left: Any, right: Any) -> Any:
    """`left //= right`."""
    check_divisor(left, right)
    left //= right
    return left


WATCHED = {
    "Add": bounded_add,
    "Mult": bounded_mul,
    "Pow": bounded_pow,
    "LShift": bounded_lshift,
    "Mod": checked_mod,
    "FloorDiv": checked_floordiv,
}
IN_PLACE = {
    "Add": bounded_iadd,
    "Mult": bounded_imul,
    "Pow": bounded_ipow,
    "LShift": bounded_ilshift,
    "Mod": checked_imod,
    "FloorDiv": checked_ifloordiv,
}


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
