"""Which lines of a Program may make a number, a list or a text grow without end, and what watches them where they run.

`Kinds` knows of each name whether it is a tensor, a number, or may be anything. Arithmetic on what is surely a tensor
stays as it is written, so tracers and tracebacks see it in `model.py`; the rest calls a function below, which refuses
what would pass the limits of `growth`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from backprint.checks.counts import divided
from backprint.errors import ReplayError
from backprint.graphnet.code import (
    Assign,
    Attribute,
    Augment,
    Call,
    Const,
    Expr,
    Item,
    Items,
    Line,
    Method,
    Name,
    Operation,
    Program,
    Slice,
    Unary,
)
from backprint.growth import MOST_ITEMS, growth_complaint, tree_size

# ------------------------------------------------------------------ what a value may be

TENSOR, TENSORS, NUMBER, NUMBERS, ANY = "tensor", "tensors", "number", "numbers", "any"
"""`tensors`: a tensor, or a tuple or list of them. `numbers`: a number, or a tuple or list of them. `any`: all else."""

COUNTS = frozenset("dim ndimension numel nelement storage_offset element_size item get_device".split())
"""Methods that give a number. Lists have none of these; torch.Size has `numel`."""

HELD = frozenset({"T", "H", "mT", "mH", "real", "imag"})
"""Attributes that are tensors of tensors."""

ALSO_PLAIN = frozenset("index sort split type is_complex is_floating_point is_signed real imag".split())
"""Methods and attributes that texts, lists, numbers and dtypes have too."""

TUPLES = frozenset({"multi_head_attention_forward", *(name for name in dir(F) if "max_pool" in name)})
"""Functions of `torch.nn.functional` that may give several tensors; all others of the table give one."""

SAME = frozenset("norm einsum cdist tensordot chain_matmul cartesian_prod block_diag stft unravel_index".split())
"""Functions written in Python that give one tensor."""


@functools.cache
def returns() -> Mapping[str, str]:
    """What operators give, by their name without the overload: one tensor, or tensors."""
    found: dict[str, str] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            kinds = [str(each.type) for each in schema.returns]
            several = TENSORS if kinds and all("Tensor" in each for each in kinds) else ANY
            kind = TENSOR if kinds == ["Tensor"] else several
            before = found.get(name, kind)
            found[name] = kind if before == kind else ANY if ANY in (kind, before) else TENSORS
    return found


@functools.cache
def given_by(target: str) -> str:
    """What a function of the table gives."""
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
    return returns().get(function.__name__, ANY) if isinstance(function, types.BuiltinFunctionType) else ANY


@functools.cache
def given_by_method(name: str) -> str:
    """What a method of tensors gives, whatever it is called on."""
    if name in COUNTS:
        return NUMBER
    return ANY if name in ALSO_PLAIN or name.startswith("__") else given_by_tensor(name)


@functools.cache
def given_by_tensor(name: str) -> str:
    """What a method of a tensor's gives."""
    if name in COUNTS:
        return NUMBER
    if name in ("size", "stride"):
        return NUMBERS
    return ANY if name in ("type", "tolist") else returns().get(name.strip("_") if name.startswith("__") else name, ANY)


class Kinds:
    """What the names of a Program stand for, line by line."""

    def __init__(self, program: Program) -> None:
        kinds = {"Tensor": TENSOR, "Parameter": TENSOR, "SymInt": NUMBER, "SymFloat": NUMBER, "SymBool": NUMBER}
        self.names = {argument.name: kinds.get(argument.kind, TENSOR) for argument in program.arguments}

    def after(self, line: Line) -> None:
        """What names stand for after a line."""
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
        """What an expression gives."""
        match value:
            case Name(name):
                return self.names.get(name, ANY)
            case Const(value=bool() | int() | float() | complex()):
                return NUMBER
            case Call(target=target):
                return given_by(target)
            case Method(of=of, name=name):
                return given_by_tensor(name) if self.of(of) == TENSOR else given_by_method(name)
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
        """What an attribute is."""
        if name in HELD:
            return TENSOR if kind == TENSOR or name not in ALSO_PLAIN else ANY
        return NUMBERS if name == "shape" else NUMBER if name in ("ndim", "itemsize", "nbytes") else ANY

    def item(self, kind: str, index: Expr) -> str:
        """What an item is."""
        if kind in (TENSOR, TENSORS):
            return TENSOR if kind == TENSOR or (isinstance(index, Const) and type(index.value) is int) else TENSORS
        return kind if kind != NUMBERS else NUMBERS if isinstance(index, Slice) else NUMBER

    # ---- what is watched

    def is_watched(self, operation: str, left: Expr, right: Expr) -> bool:
        """Whether arithmetic may make something grow without end, as far as is known before it runs."""
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
        """Whether what is put in a list may be a list by name: what is written out has the length of its text."""
        return any(self.of(each) in (ANY, TENSORS, NUMBERS) and not isinstance(each, (Const, Slice)) for each in items)


# ------------------------------------------------------------------ what watches where it runs


def watched(target: str, left: Any, right: Any) -> None:
    """Raise where arithmetic would pass a limit."""
    if complaint := growth_complaint(target, (left, right)):
        raise ReplayError(complaint)


def summed(left: Any, right: Any) -> Any:
    """`left + right`."""
    watched("operator.add", left, right)
    return left + right


def repeated(left: Any, right: Any) -> Any:
    """`left * right`."""
    watched("operator.mul", left, right)
    return left * right


def power(left: Any, right: Any) -> Any:
    """`left ** right`."""
    watched("operator.pow", left, right)
    return left**right


def shifted(left: Any, right: Any) -> Any:
    """`left << right`."""
    watched("operator.lshift", left, right)
    return left << right


def remainder(left: Any, right: Any) -> Any:
    """`left % right`, which fills in texts too."""
    watched("operator.mod", left, right)
    dividable(left, right)
    return left % right


def quotient(left: Any, right: Any) -> Any:
    """`left // right`."""
    dividable(left, right)
    return left // right


def dividable(left: Any, right: Any) -> None:
    """Raise where a division of tensors of whole numbers would end the process."""
    if torch.compiler.is_compiling() or not (isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor)):
        return
    if complaint := divided({"self": left, "other": right}):
        raise ReplayError(complaint)


def summed_in_place(left: Any, right: Any) -> Any:
    """`left += right`."""
    watched("operator.add", left, right)
    left += right
    return left


def repeated_in_place(left: Any, right: Any) -> Any:
    """`left *= right`."""
    watched("operator.mul", left, right)
    left *= right
    return left


def power_in_place(left: Any, right: Any) -> Any:
    """`left **= right`."""
    watched("operator.pow", left, right)
    left **= right
    return left


def shifted_in_place(left: Any, right: Any) -> Any:
    """`left <<= right`."""
    watched("operator.lshift", left, right)
    left <<= right
    return left


def remainder_in_place(left: Any, right: Any) -> Any:
    """`left %= right`."""
    watched("operator.mod", left, right)
    dividable(left, right)
    left %= right
    return left


def quotient_in_place(left: Any, right: Any) -> Any:
    """`left //= right`."""
    dividable(left, right)
    left //= right
    return left


WATCHED = {"Add": summed, "Mult": repeated, "Pow": power, "LShift": shifted, "Mod": remainder, "FloorDiv": quotient}
IN_PLACE = {
    "Add": summed_in_place,
    "Mult": repeated_in_place,
    "Pow": power_in_place,
    "LShift": shifted_in_place,
    "Mod": remainder_in_place,
    "FloorDiv": quotient_in_place,
}


def counted(items: Any) -> Any:
    """A tuple, list or dictionary as it is, unless the lists in it make it too long."""
    if tree_size(items) > MOST_ITEMS:
        raise ReplayError(f"a list of more than {MOST_ITEMS:,} items, with those of its lists; no graph needs one")
    return items


def tensor_alone(value: Any) -> Any:
    """What is written to, or computed with by name: a tensor, and no list, which could come to hold itself."""
    if not isinstance(value, torch.Tensor):
        raise ReplayError(f"a {type(value).__name__} where a graph has a tensor")
    return value


def listed(tensor: Any) -> Any:
    """`tensor.tolist()`, unless the list would be too long."""
    if tensor_alone(tensor).numel() > MOST_ITEMS:
        raise ReplayError(f"a list of {tensor.numel():,} items; a graph may make one of {MOST_ITEMS:,}")
    return tensor.tolist()
