"""Expressions of a folded text: sums of indexes, texts with those in them, and tables of what iterations have."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from backprint.errors import RefusedError
from backprint.graph.folding.names import MARKS
from backprint.graph.sizes import evaluate

Numbers: TypeAlias = dict[str, int]
"""The index of each loop around a statement."""


PLACES = r"[0-9]{1,9}(?:, [0-9]{1,9})*"
"""The numbers of an iteration of nested loops, as a text has them."""


def refused_at(node: ast.AST, why: str) -> RefusedError:
    """Return an error with the line of a node."""
    return RefusedError(f"line {getattr(node, 'lineno', 0)}: {why}")


def evaluated(node: ast.expr, numbers: Numbers) -> Any:
    """Return a number or a text that is made of literals and indexes."""
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return within_64_bits(node, value)
        case ast.Name(id=name) if name in numbers:
            return numbers[name]
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float()) | ast.Name(id="inf") as operand):
            return -evaluated(operand, numbers)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -number(operand, numbers)
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            return arithmetic(node, op, number(left, numbers), number(right, numbers))
        case ast.JoinedStr(values=values):
            return "".join(str(evaluated(part, numbers)) for part in values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return number(value, numbers)
        case ast.IfExp(ast.Compare(left, [ast.Eq()], [right]), value, other):
            same = evaluated(left, numbers) == evaluated(right, numbers)
            return evaluated(value if same else other, numbers)
        case ast.Tuple(elts=elements):
            return tuple(evaluated(each, numbers) for each in elements)
        case ast.Subscript(value=ast.Dict() as table, slice=key):
            return looked_up(table, key, None, numbers)
        case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=[key, other], keywords=[]):
            return looked_up(table, key, other, numbers)
    raise refused_at(node, "an expression of a folded graph is made of literals and indexes")


def looked_up(table: ast.Dict, key: ast.expr, other: ast.expr | None, numbers: Numbers) -> Any:
    """Return what a table of literals has for a key; what stands for the others is evaluated always, as Python does."""
    rows, wanted = KNOWN.get(table) or known_rows(table), evaluated(key, numbers)
    otherwise = None if other is None else evaluated(other, numbers)
    if other is None and wanted not in rows:
        raise refused_at(table, f"the table has nothing for {wanted!r:.80}")
    return rows.get(wanted, otherwise)


KNOWN: WeakKeyDictionary[ast.Dict, dict[Any, Any]] = WeakKeyDictionary()
"""The tables that were read, while their text is."""


def known_rows(table: ast.Dict) -> dict[Any, Any]:
    """Return a table of literals. Its keys are the numbers of iterations, each of them once."""
    rows = {}
    for key, value in zip(table.keys, table.values, strict=True):
        index = None if key is None else evaluated(key, {})
        parts = index if isinstance(index, tuple) else (index,)
        if index in rows or any(type(part) is not int for part in parts):
            raise refused_at(
                table, "a table of a folded graph has the numbers of iterations as keys, each of them once"
            )
        rows[index] = evaluated(value, {})
    KNOWN[table] = rows
    return rows


def number(node: ast.expr, numbers: Numbers) -> int:
    """Return a whole number."""
    found = evaluated(node, numbers)
    if type(found) is not int:
        raise refused_at(node, f"{found!r:.80} is not a whole number")
    return found


def arithmetic(node: ast.expr, op: ast.operator, left: int, right: int) -> int:
    """Return a sum, a difference or a product."""
    found = left + right if isinstance(op, ast.Add) else left - right if isinstance(op, ast.Sub) else left * right
    return int(within_64_bits(node, found))


def within_64_bits(node: ast.expr, value: int | float | str) -> int | float | str:
    """Return a value; raise if it is a number of more bits than a number of a graph may have."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise refused_at(node, f"a number of {value.bit_length()} bits; at most 64 are read")
    return value


# ------------------------------------------------------------------ patterns


def filled_with_odd(text: str) -> Callable[[Numbers], str]:
    """Return what fills a pattern with the iterations that have something else: `view_{2*i} (at 0 view; at 7 x)`."""
    start = text.find("(at ")
    listed = text[start + 1 : -1].split("; ") if start >= 0 and text.endswith(")") else []
    rule = text[:start].rstrip() if listed else text
    regular = filled_pattern(rule) if rule else None
    odd: dict[tuple[int, ...], str] = {}
    for part in listed:
        found = re.fullmatch(rf"at ({PLACES}) (.*)", part)
        if not found:
            raise RefusedError(f"{part[:80]!r} is not what an iteration has: expected `at NUMBER TEXT`")
        odd[tuple(map(int, found[1].split(", ")))] = found[2]

    def filled(numbers: Numbers) -> str:
        here = of_iteration(odd, numbers)
        if here is None and regular is None:
            raise RefusedError(f"{text!r:.80} has nothing for the iteration {tuple(numbers.values())}")
        return here if here is not None else regular(numbers)  # type: ignore[misc]  # one of them is there

    return filled


def filled_numbers(text: str) -> Callable[[Numbers], Numbers]:
    """Return what makes the numbers that the comment behind a call lists: `a=20+12*i, b=7`."""
    rows = [part.partition("=") for part in text.split(", ") if text]
    for name, _, rule in rows:
        if name not in MARKS or not SUM.fullmatch(rule):
            raise RefusedError(f"{f'{name}={rule}'[:80]!r} is not a number of a call: expected `a=20+12*i`")

    def filled(numbers: Numbers) -> Numbers:
        sums = {name: evaluate(rule, numbers) for name, _, rule in rows}
        if odd := next((name for name, value in sums.items() if type(value) is not int), ""):
            raise RefusedError(f"{odd} is {sums[odd]!r:.80} in a call, which is not a whole number")
        return {name: int(value) for name, value in sums.items()}

    return filled


def of_iteration(odd: dict[tuple[int, ...], str], numbers: Numbers) -> str | None:
    """Return what an iteration has of its own; what only one of the innermost loop has does not count that one."""
    if not odd:
        return None
    depth = len(next(iter(odd)))
    return odd.get(tuple(numbers.values())[:depth])


HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
SUM = re.compile(r"[a-z0-9_*+\- ]{1,200}")


@lru_cache(maxsize=1 << 12)
def filled_pattern(text: str) -> Callable[[Numbers], str]:
    """Return what fills a pattern such as `view_{8+12*i}`."""
    pieces: list[tuple[str, str]] = []  # text, and the sum of indexes after it
    at = 0
    for found in HOLE.finditer(text):
        if found[1] is not None and not SUM.fullmatch(found[1]):
            raise RefusedError(f"{{{found[1][:80]}}} is not a sum of indexes")
        before = text[at : found.start()]
        pieces.append((before, found[1]) if found[1] is not None else (before + found[0][0], ""))
        at = found.end()
    rest = text[at:]
    last: tuple[Any, str] = (None, "")  # a comment holds for many steps of one iteration

    def filled(numbers: Numbers) -> str:
        nonlocal last
        now = tuple(numbers.items())
        if last[0] != now:
            made = [before + (str(evaluate(hole, numbers)) if hole else "") for before, hole in pieces]
            last = now, "".join(made) + rest
        return last[1]

    return filled
