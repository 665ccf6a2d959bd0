"""Calls of a GraphNet program that need a check or a process of their own, because no schema makes them safe."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F

from backprint._torch.operators import OpOverload, all_schemas, schema_of
from backprint.checks.arguments import Arguments, check_division
from backprint.checks.schema import argument_rows
from backprint.checks.sizes import MOST_ITEMS, growth_complaint, tree_size
from backprint.checks.table import check_by_name
from backprint.errors import ReplayError
from backprint.graph.isolation import needs_isolation
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
    located_expressions,
)
from backprint.graphnet.read import GraphNetSample

# ---- Arithmetic that may make a number, a list or a text grow without end
# `ValueKinds` knows of each name whether it is a tensor, a number, or may be anything. Arithmetic on a known tensor
# stays as it is written, so that tracers and tracebacks see it in `model.py`; any other calls a function below, which
# refuses results beyond the limits of `checks.sizes`.


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
def operator_returns() -> Mapping[str, str]:
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
def function_returns(target: str) -> str:
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
    return operator_returns().get(function.__name__, ANY) if isinstance(function, types.BuiltinFunctionType) else ANY


@functools.cache
def method_returns(name: str) -> str:
    """Return the kind that a method returns on a value of any kind."""
    if name in COUNTS:
        return NUMBER
    return ANY if name in ALSO_PLAIN or name.startswith("__") else tensor_method_returns(name)


@functools.cache
def tensor_method_returns(name: str) -> str:
    """Return the kind that a method returns on a tensor."""
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
        if operation in ("FloorDiv", "Mod") and kinds != {NUMBER}:
            return True
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
    if complaint := check_division({"self": left, "other": right}):
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


# ---- Functions that are called with checked arguments, because their kernels trust them or loop as often as these say
# The checks are those that `checks` has for the operator of the same name. A check reads values, so it is skipped under
# tracers: where arguments have no values, no kernel runs.

ROUNDS: Mapping[str, str] = {"svd_lowrank": "niter", "pca_lowrank": "niter", "tensordot": "dims"}
"""Functions in Python that loop, and the argument that says how often."""

MOST_ROUNDS = 1000
"""How often they may loop."""


def guarded_function(target: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function to call for a row of the table: itself, or where it is unsafe, with its arguments checked."""
    name = target.removesuffix(".default").rpartition(".")[2]
    if isinstance(function, types.BuiltinFunctionType):
        name = function.__name__  # torch.special.i0 is the operator special_i0
    if name in ROUNDS:
        return limit_rounds(function, ROUNDS[name])
    check = check_by_name(f"aten.{name}.default")
    forms = operator_forms(name) if check is not None and not target.startswith("Tensor.") else ()
    return check_before_call(function, check, forms) if check is not None and forms else function


def guarded_method(name: str) -> Callable[..., Any] | None:
    """Return a tensor method with its arguments checked, as `call(tensor, ...)`; None where it needs no check."""
    swapped = name in REFLECTED
    operator = DIVISIONS.get(name, name)
    check = check_by_name(f"aten.{operator}.default")
    forms = operator_forms(operator) if check is not None else ()
    if check is None or not forms:
        return None

    def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(owner, torch.Tensor) and not torch.compiler.is_compiling():
            arguments = (*args, owner) if swapped else (owner, *args)
            if complaint := call_complaint(check, forms, arguments, kwargs):
                raise ReplayError(f"{name}: {complaint}")
        return getattr(owner, name)(*args, **kwargs)

    call.__name__ = f"checked_{name}"
    return call


DIVISIONS: Mapping[str, str] = {
    **dict.fromkeys(("__floordiv__", "__rfloordiv__", "__ifloordiv__"), "floor_divide"),
    **dict.fromkeys(("__mod__", "__rmod__", "__imod__"), "remainder"),
}
"""Arithmetic by the names that Python has for it, and the operators that it calls."""

REFLECTED = frozenset({"__rfloordiv__", "__rmod__"})
"""Methods whose owner is the divisor."""


def limit_rounds(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Refuse calls of a function that loop too often."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        rounds = signature.bind(*args, **kwargs).arguments.get(name)
        if isinstance(rounds, (int, float)) and rounds > MOST_ROUNDS:
            raise ReplayError(f"{name}={rounds}: {function.__name__} may go round {MOST_ROUNDS:,} times in a graph")
        return function(*args, **kwargs)

    return call


def check_before_call(
    function: Callable[..., Any], check: Callable[[Arguments], str], forms: OperatorForms
) -> Callable[..., Any]:
    """Check a function's arguments before each call, where they have values."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and (complaint := call_complaint(check, forms, args, kwargs)):
            raise ReplayError(f"{function.__name__}: {complaint}")
        return function(*args, **kwargs)

    return call


def call_complaint(
    check: Callable[[Arguments], str], forms: OperatorForms, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """Return the complaint of a check about a call. Arguments that it cannot read are left to torch, which refuses
    them."""
    try:
        return check(bind_to_form(forms, args, kwargs))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError):
        return ""


def bind_to_form(forms: OperatorForms, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Bind arguments by name, with defaults, to the first overload that they fit; else to the first."""
    named = {"self" if key == "input" else key: value for key, value in kwargs.items()}
    for rows in forms:
        names = {name for name, *_ in rows}
        key = {"self": "input"} if "self" in named and "self" not in names else {}
        arguments = dict(zip((name for name, _, _, alone in rows if not alone), args, strict=False))
        arguments |= {key.get(name, name): value for name, value in named.items()}
        fit = all(fits(arguments[name]) for name, _, fits, _ in rows if name in arguments)
        if fit and set(arguments) <= names and len(arguments) == len(args) + len(kwargs):
            return {name: default for name, default, *_ in rows} | arguments
    first = forms[0]
    return (
        {name: default for name, default, *_ in first}
        | dict(zip((row[0] for row in first), args, strict=False))
        | named
    )


OperatorForms: TypeAlias = tuple[tuple[tuple[str, Any, Callable[[Any], bool], bool], ...], ...]
"""The arguments of each overload of an operator: name, default, whether a value fits, whether it is keyword-only."""


@functools.cache
def operator_forms(name: str) -> OperatorForms:
    """Return the overloads of an operator; () where torch has no operator of this name."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    return tuple(
        tuple(
            (row.name, row.default, row.fits, argument.kwarg_only)
            for row, argument in zip(argument_rows(function), schema_of(function).arguments, strict=True)
        )
        for function in (getattr(packet, overload) for overload in packet.overloads())
        if isinstance(function, OpOverload)
    )


# ---- Programs of a stranger that need a process of their own: those with calls that no check of arguments makes safe
# `callables.txt` says of each function and method: `safe`, `checked` (called through `guarded_function` or
# `guarded_method`), or `isolated` and why.


@functools.cache
def callable_standings() -> Mapping[str, tuple[str, str]]:
    """Return the standing of each function and method, with the reason."""
    rows = {}
    for line in Path(__file__).with_name("callables.txt").read_text(encoding="ascii").splitlines():
        name, standing, *reason = line.split(" ", 2)
        rows[name] = (standing, "".join(reason))
    return rows


def calls_to_isolate(sample: GraphNetSample) -> list[str]:
    """Return the calls of a sample that are only safe in a process of its own, each with the reason."""
    if sample.graph is not None:
        return needs_isolation(sample.graph)
    return isolated_calls(sample.program) if sample.program is not None else []


def isolated_calls(program: ModelProgram) -> list[str]:
    """Return the calls of a program that are only safe in a process of its own, each with the reason."""
    return sorted({why_isolate_call(value) for _, value in located_expressions(program)} - {""})


def why_isolate_call(value: Expr) -> str:
    """Why an expression needs a process of its own; '' where it does not."""
    match value:
        case FunctionCall(target=name):
            return isolation_reason(name)
        case MethodCall(name=name):
            return isolation_reason(f"Tensor.{name}")
    return ""


def isolation_reason(name: str) -> str:
    """Why a function or method needs a process of its own; '' where it does not."""
    standing, reason = callable_standings().get(name, ("safe", ""))
    return f"{name} ({reason})" if standing == "isolated" else ""
