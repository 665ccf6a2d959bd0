"""Plant errors in kernels, to see whether a check sees them: another operator, constant, mask or index.

Each fault changes one place of a kernel's source. A fault may do nothing to the numbers (a mask that hides nothing), so
what was planted is no proof that something is wrong.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from backprint.errors import UsageError
from backprint.tools.kernels.nouns import Kernel


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A kernel with one error."""

    kind: str
    """`operator`, `constant`, `mask` or `index`."""
    told: str
    kernel: Kernel


def planted_faults(kernel: Kernel) -> Iterator[PlantedFault]:
    """Yield a kernel with each error that this module knows how to plant."""
    if kernel.language not in PLANTERS:
        raise UsageError(f"{kernel.name} is written in {kernel.language}: faults are for {', '.join(PLANTERS)}")
    for kind, told, source in PLANTERS[kernel.language](kernel):
        if source != kernel.source:
            yield PlantedFault(kind, f"{kernel.name}: {told}", replace(kernel, source=source))


# ------------------------------------------------------------------ Triton

OPERATORS: Mapping[type[ast.AST], type[ast.AST]] = MappingProxyType(
    {
        ast.Add: ast.Sub,
        ast.Sub: ast.Add,
        ast.Mult: ast.Add,
        ast.Div: ast.Mult,
        ast.Mod: ast.FloorDiv,
        ast.FloorDiv: ast.Mod,
        ast.Lt: ast.GtE,
        ast.Gt: ast.LtE,
        ast.LtE: ast.Gt,
        ast.GtE: ast.Lt,
        ast.Eq: ast.NotEq,
    }
)

FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "rsqrt": "sqrt",
        "sqrt": "rsqrt",
        "exp": "exp2",
        "log": "log2",
        "tanh": "sin",
        "erf": "tanh",
        "sin": "cos",
        "cos": "sin",
        "sum": "max",
        "max2": "min2",
        "min2": "max2",
        "maximum": "minimum",
        "minimum": "maximum",
        "sigmoid": "cos",
        "abs": "exp",
    }
)

Change = tuple[str, str, Callable[[ast.AST], None]]


def triton_faults(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    """Yield kind, text and source of each fault of a Triton kernel."""
    tree = ast.parse(kernel.source)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == kernel.name]
    places = [(node, inside) for statement in function.body for node, inside in walked(statement, "")]
    for place, (node, inside) in enumerate(places):
        for kind, told, change in changes_of(node, inside):
            other = copy.deepcopy(tree)
            (function,) = [
                each for each in other.body if isinstance(each, ast.FunctionDef) and each.name == kernel.name
            ]
            nodes = [each for statement in function.body for each, _ in walked(statement, "")]
            change(nodes[place])
            line = getattr(node, "lineno", 0)
            yield kind, f"line {line}: {told}", ast.unparse(ast.fix_missing_locations(other))


def walked(node: ast.AST, inside: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes of a statement, each with the part of a load or store that it is in: `index`, `mask` or ''."""
    yield node, inside
    match node:
        case ast.Call(func=ast.Attribute(attr="load" | "store" | "atomic_add" as name), args=args, keywords=keywords):
            parts = ["index", "mask"] if name == "load" else ["index", "", "mask"]
            for each, part in zip(args, parts, strict=False):
                yield from walked(each, part)
            for keyword in keywords:
                yield from walked(keyword.value, "hint")
        case ast.List() | ast.Subscript() | ast.AnnAssign():
            return  # shapes
        case _:
            for child in ast.iter_child_nodes(node):
                yield from walked(child, inside)


def changes_of(node: ast.AST, inside: str) -> Iterator[Change]:
    """Yield how a node can be changed."""
    if inside == "hint":
        return
    match node:
        case ast.BinOp(op=operator) | ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            other = OPERATORS[type(operator)]
            yield inside or "operator", f"{type(operator).__name__} is {other.__name__}", put_operator(other)
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            new = value + 1 if isinstance(value, int) else value * 1.5 + (value == 0)
            yield inside or "constant", f"{value} is {new}", put_value(new)
        case ast.Call(func=ast.Attribute(attr=name)) if name in FUNCTIONS:
            yield "operator", f"{name} is {FUNCTIONS[name]}", put_function(FUNCTIONS[name])
        case ast.Call(func=ast.Attribute(attr="where")):
            yield "operator", "where has its values exchanged", exchange_values
        case ast.Call(func=ast.Attribute(attr="load" | "store" | "atomic_add" as name), args=args):
            yield "index", f"{name} is one element further", move_index
            place = 1 if name == "load" else 2
            if len(args) > place and not isinstance(args[place], ast.Constant):
                yield "mask", f"{name} has no mask", drop_mask(place)


def put_operator(other: type[ast.AST]) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            node.ops = [other()]  # type: ignore[list-item]
        elif isinstance(node, ast.BinOp):
            node.op = other()  # type: ignore[assignment]

    return change


def put_value(value: float) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node, "value", value)


def put_function(name: str) -> Callable[[ast.AST], None]:
    return lambda node: setattr(node.func, "attr", name)  # type: ignore[attr-defined]


def exchange_values(node: ast.AST) -> None:
    if isinstance(node, ast.Call):
        node.args = [node.args[0], node.args[2], node.args[1]]


def move_index(node: ast.AST) -> None:
    if isinstance(node, ast.Call):
        node.args = [ast.BinOp(node.args[0], ast.Add(), ast.Constant(1)), *node.args[1:]]


def drop_mask(place: int) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            node.args = [*node.args[:place], ast.Constant(None)]
            node.keywords = [each for each in node.keywords if each.arg != "other"]

    return change


# ------------------------------------------------------------------ C++


def other_number(text: str) -> float:
    """Return another number than that of a text."""
    value = float(text)
    return value * 1.5 + (value == 0)


CPP: tuple[tuple[str, str, Callable[[re.Match[str]], str]], ...] = (
    ("operator", r"(?<== )(\w+) \+ (\w+);", lambda found: f"{found[1]} - {found[2]};"),
    ("operator", r"(?<== )(\w+) - (\w+);", lambda found: f"{found[1]} + {found[2]};"),
    ("operator", r"(?<== )(\w+) \* (\w+);", lambda found: f"{found[1]} + {found[2]};"),
    ("operator", r"(?<== )(\w+) / (\w+);", lambda found: f"{found[1]} * {found[2]};"),
    ("operator", r"\.rsqrt\(\)", lambda found: ".sqrt()"),
    ("operator", r"\.tanh\(\)", lambda found: ".sin()"),
    ("operator", r"\.erf\(\)", lambda found: ".tanh()"),
    (
        "constant",
        r"static_cast<(float|double)>\(([0-9.e+-]+)\)",
        lambda found: f"static_cast<{found[1]}>({other_number(found[2])})",
    ),
    (
        "mask",
        r"(?<=<)static_cast<int64_t>\((\d+)L\)(?=; )",
        lambda found: f"static_cast<int64_t>({int(found[1]) - 1}L)",
    ),
    (
        "index",
        r"(in_ptr|out_ptr|in_out_ptr)(\d+)( \+ |\[)static_cast<int64_t>\(",
        lambda found: f"{found[1]}{found[2]}{found[3]}static_cast<int64_t>(1L + ",
    ),
)
"""Kind, pattern and replacement of each fault of C++."""


def cpp_faults(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    """Yield kind, text and source of each fault of a C++ kernel."""
    for kind, pattern, change in CPP:
        for found in re.finditer(pattern, kernel.source):
            new = change(found)
            line = kernel.source.count("\n", 0, found.start()) + 1
            text = kernel.source[: found.start()] + new + kernel.source[found.end() :]
            yield kind, f"line {line}: {found[0]} is {new}", text


PLANTERS: Mapping[str, Callable[[Kernel], Iterator[tuple[str, str, str]]]] = MappingProxyType(
    {"triton": triton_faults, "cpp": cpp_faults}
)
"""Language -> what plants faults in its kernels."""
