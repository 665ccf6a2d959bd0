"""Symbolic sizes: evaluate expressions, infer sizes from shapes, and convert graphs to given sizes.

An expression is parsed with `ast` and evaluated by the tables below; nothing of it is run as Python. Anything that is
not in a table is refused by name, and so is a number that is too large for a size.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import (
    Graph,
    Port,
    ScalarSpec,
    Size,
    Spec,
    Step,
    Symbol,
    TensorSpec,
    check_expression,
)

Number = int | float | bool
Sizes = Mapping[str, int]

MAX_NUMBER = 2**128
"""The largest number that is met on the way to a size."""

MAX_POWER = 128
"""The largest exponent of an expression."""


def bounded_power(base: Number, exponent: Number) -> Number:
    """A bounded power."""
    if abs(exponent) > MAX_POWER:
        raise GraphError(f"an exponent of {exponent} is not an exponent of a size")
    return base**exponent


def remainder(left: int, right: int) -> int:
    """Python's modulo."""
    return left % right


BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: remainder,
    ast.Pow: bounded_power,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
UNARY: Mapping[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.not_,  # as conditions are printed: ~(s0 > 3)
}
COMPARE: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Max": max,
    "Min": min,
    "Mod": remainder,
    "PythonMod": remainder,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda left, right: -(-left // right),
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "PowByNatural": bounded_power,
    "FloatPow": bounded_power,
    "ToFloat": float,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "TruncToFloat": lambda number: float(math.trunc(number)),
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "OpaqueUnaryFn_log2": math.log2,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceiling": math.ceil,
    "Abs": abs,
    "Identity": lambda number: number,
    "Where": lambda condition, left, right: left if condition else right,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "And": lambda *conditions: all(conditions),
    "Or": lambda *conditions: any(conditions),
    "Not": operator.not_,
}
"""What sizes may be computed with, as torch and sympy call it."""


INFINITE = ("inf", "int_oo")


def evaluate(size: Size, sizes: Sizes) -> Number:
    """Return the value of a size or a condition where symbols have these values."""
    if type(size) is int:
        return size
    try:
        return _value(_parsed(str(size)), sizes)
    except GraphError as error:
        raise type(error)(f"{size!r:.80}: {error}") from None
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise GraphError(
            f"{size!r:.80} has no value for {sizes_in_words(sizes)}: {type(error).__name__}: {error}"
        ) from None


def sizes_in_words(sizes: Sizes) -> str:
    """Return sizes as text: `s0 = 4, s1 = 6`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "no sizes"


@functools.lru_cache(4096)
def _parsed(text: str) -> ast.expr:
    check_expression(text)
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise RefusedError(f"no expression of sizes ({type(error).__name__})") from None


def _value(node: ast.expr, sizes: Sizes) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            found: Number = value
        case ast.Name(id=name):
            found = _named(name, sizes)
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            found = BINARY[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(op, operand) if type(op) in UNARY:
            found = UNARY[type(op)](_value(operand, sizes))
        case ast.Compare(left, ops, rights) if all(type(op) in COMPARE for op in ops):
            values = [_value(each, sizes) for each in (left, *rights)]
            found = all(COMPARE[type(op)](*pair) for op, *pair in zip(ops, values, values[1:], strict=False))
        case ast.Call(ast.Name(id=name), args, []) if name in FUNCTIONS:
            found = FUNCTIONS[name](*[_value(argument, sizes) for argument in args])
        case _:
            raise RefusedError(f"{ast.unparse(node)!r:.40} is not allowed in an expression of sizes")
    if isinstance(found, int) and not -MAX_NUMBER <= found <= MAX_NUMBER:
        raise GraphError(f"a number of {found.bit_length()} bits is not a size")
    return found


def _named(name: str, sizes: Sizes) -> Number:
    if name in sizes:
        return sizes[name]
    if name in INFINITE:
        return math.inf
    raise GraphError(f"no size is known for {name!r:.80}")


# ------------------------------------------------------------------ which sizes some shapes imply

_NAME = re.compile(r"[A-Za-z_]\w*")


def names_in(size: Size) -> Iterator[str]:
    """Yield the symbols of an expression, and the functions."""
    return (found[0] for found in _NAME.finditer(size)) if isinstance(size, str) else iter(())


def known(size: Size, sizes: Sizes) -> bool:
    """Whether all symbols of an expression have a value."""
    return all(name in sizes or name in FUNCTIONS or name in INFINITE for name in names_in(size))


def implied(seen: Iterable[tuple[Size, int]]) -> dict[str, int]:
    """Return the value of each symbol that is a size by itself, from the values seen there; the first one counts."""
    found: dict[str, int] = {}
    for size, value in seen:
        if isinstance(size, str) and size.isidentifier():
            found.setdefault(size, value)
    return found


def outside(symbols: Sequence[Symbol], sizes: Sizes) -> Symbol | None:
    """Return the first symbol whose value is not in its range."""
    for symbol in symbols:
        if all(known(each, sizes) for each in (symbol.name, symbol.low, symbol.high)):
            low, high = evaluate(symbol.low, sizes), evaluate(symbol.high, sizes)
            if not low <= sizes[symbol.name] <= high:
                return symbol
    return None


# ------------------------------------------------------------------ graphs


def hints(graph: Graph) -> dict[str, int]:
    """Return the sizes at capture."""
    return {symbol.name: symbol.hint for symbol in graph.symbols}


def at(spec: Spec, sizes: Sizes) -> Spec:
    """Return a spec with numbers for sizes; a size that cannot be evaluated stays as it is."""

    def number(size: Size) -> Size:
        return int(evaluate(size, sizes)) if known(size, sizes) else size

    return _mapped(spec, number)


def at_hints(graph: Graph) -> Graph:
    """Return the graph with the sizes it had at capture; without symbols, itself."""
    if not graph.symbols:
        return graph
    sizes = hints(graph)
    return replace(_with_specs(graph, lambda spec: at(spec, sizes)), symbols=())


def with_symbols(graph: Graph, symbols: Sequence[Symbol], names: Mapping[str, str]) -> Graph:
    """Return the graph with its symbols renamed, and those that it uses declared."""
    if not symbols:
        return graph

    def called(size: Size) -> Size:
        return _NAME.sub(lambda found: names.get(found[0], found[0]), size) if isinstance(size, str) else size

    renamed = _with_specs(graph, lambda spec: _mapped(spec, called, called))
    subgraphs = tuple((name, with_symbols(sub, symbols, names)) for name, sub in graph.subgraphs)
    used = set(mentioned(renamed)) | {name for _, sub in subgraphs for name in mentioned(sub)}
    declared = tuple(symbol for symbol in symbols if symbol.name in used)
    return replace(renamed, subgraphs=subgraphs, symbols=declared)


def mentioned(graph: Graph) -> Iterator[str]:
    """Yield the names in the sizes of a graph's specs."""

    def look(spec: Spec) -> Iterator[str]:
        match spec:
            case TensorSpec(_, shape, stride, offset):
                for size in (*shape, *(stride or ()), offset):
                    yield from names_in(size)
            case ScalarSpec(_, expression):
                yield from names_in(expression)
            case tuple():
                for part in spec:
                    yield from look(part)

    specs = (*(port.spec for port in (*graph.inputs, *graph.outputs)), *(step.spec for step in graph.steps))
    for spec in specs:
        yield from look(spec)


def _mapped(spec: Spec, size: Callable[[Size], Size], scalar: Callable[[Size], Size] = lambda text: text) -> Spec:
    """Apply a function to each size of a spec."""
    match spec:
        case TensorSpec(_, shape, stride, offset) if any(
            isinstance(each, str) for each in (*shape, *(stride or ()), offset)
        ):
            strides = None if stride is None else tuple(map(size, stride))
            return replace(spec, shape=tuple(map(size, shape)), stride=strides, offset=size(offset))
        case ScalarSpec(_, expression) if expression:
            return replace(spec, expression=str(scalar(expression)))
        case tuple():
            return tuple(_mapped(part, size, scalar) for part in spec)
    return spec


def _with_specs(graph: Graph, function: Callable[[Spec], Spec]) -> Graph:
    """Apply a function to every spec of a graph, except those of its subgraphs."""

    def new_port(was: Port) -> Port:
        return replace(was, spec=function(was.spec))

    def new_step(was: Step) -> Step:
        return was if was.spec is None else replace(was, spec=function(was.spec))

    inputs, outputs = tuple(map(new_port, graph.inputs)), tuple(map(new_port, graph.outputs))
    return replace(graph, inputs=inputs, steps=tuple(map(new_step, graph.steps)), outputs=outputs)
