"""How the arguments of a kernel are drawn when it runs alone, so that no call reads outside of its tensors.

The values that a kernel loads are followed through its code. A tensor that flows into an address is an index: its
integers stay below the smallest bound that the kernel asserts, and are zero where it asserts none. A tensor that flows
into a root or a logarithm is positive. What is only written begins as zeros.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

Draw = Literal["zeros", "normal", "positive"] | tuple[Literal["below"], int]
"""Zeros, normal numbers, numbers from 0.1 to 1, or integers from 0 to below a number."""

ACCESSES = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor",
            "atomic_xchg", "atomic_cas")  # fmt: skip
"""The functions of Triton whose first argument is an address."""

POSITIVE = re.compile(r"(?:r?sqrt|log\w*|pow|lgamma|acosh)\w*")
"""Functions that have no result for negative numbers."""

BOUND = re.compile(r"index out of bounds: 0 <= [^<\"]* < (\d+)")
"""An assertion of Inductor about an index."""

WRITTEN_ONLY = re.compile(r"out_ptr\w*|ws_ptr\w*|sem_ptr\w*")
"""Parameters that Inductor names after what they are: results and workspaces, which begin as zeros."""

SMALL_INTEGERS = 8

Flows = Mapping[str, set[str]]
"""Of each variable the parameters whose values it has."""


class FlowsOfTriton:
    """Follows the values that a Triton kernel loads."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        arguments = function.args
        self.parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self.flows: dict[str, set[str]] = defaultdict(set)
        self.aliases: dict[str, str] = {name: name for name in self.parameters}
        self.loaded: set[str] = set()
        self.stored: set[str] = set()
        self.indices: set[str] = set()
        self.positive: set[str] = set()
        for _ in range(2):  # a loop gives a variable what comes later in it
            for node in ast.walk(function):
                self.follow(node)

    def follow(self, node: ast.AST) -> None:
        """Note what a statement or a call does to the flows."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)) if source in self.aliases:
                self.aliases[name] = self.aliases[source]
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.bind(target, value)
            case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=name), args=[address, *_]) if (
                name in ACCESSES
            ):
                self.access(name, address)
            case ast.Call(func=ast.Attribute(attr=name), args=values) if POSITIVE.fullmatch(name):
                for value in values:
                    self.positive |= self.sources(value)

    def access(self, name: str, address: ast.expr) -> None:
        """Note a load, a store, or an atomic operation, which is both."""
        pointers = self.pointers(address)
        if name != "store":
            self.loaded.update(pointers)
        if name != "load":
            self.stored.update(pointers)
        self.indices |= self.sources(address)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Give each variable of a target what flows into its value."""
        found = self.sources(value)
        for one in ast.walk(target):
            if isinstance(one, ast.Name):
                self.flows[one.id] |= found

    def sources(self, value: ast.expr) -> set[str]:
        """Return the parameters whose values an expression has; a load has those of its tensor, not of its address."""
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=name), args=[address, *others]) if (
                name in ACCESSES
            ):
                return set(self.pointers(address)).union(*map(self.sources, others))
            case ast.Name(id=name):
                return set(self.flows.get(name, ()))
        found: set[str] = set()
        for child in ast.iter_child_nodes(value):
            found |= self.sources(child) if isinstance(child, ast.expr) else set()
        for keyword in getattr(value, "keywords", ()):
            found |= self.sources(keyword.value)
        return found

    def pointers(self, address: ast.expr) -> list[str]:
        """Return the parameters that an address begins at."""
        names = [one.id for one in ast.walk(address) if isinstance(one, ast.Name)]
        return [self.aliases[name] for name in names if name in self.aliases]

    @property
    def drawn_from(self) -> set[str]:
        """The parameters whose tensors' values count."""
        return {name for name in self.loaded if not WRITTEN_ONLY.fullmatch(name)}


def draws_of_triton(function: ast.FunctionDef, dtypes: Mapping[str, str]) -> dict[str, Draw]:
    """Return how each tensor of a Triton kernel is drawn; `dtypes` has the kernel's tensors."""
    flows = FlowsOfTriton(function)
    bound = smallest_bound(one.value for one in ast.walk(function) if isinstance(one, ast.Constant))
    return {
        name: draw_of(dtype, name in flows.drawn_from, name in flows.indices, name in flows.positive, bound)
        for name, dtype in dtypes.items()
    }


def smallest_bound(texts: Iterable[object]) -> int | None:
    """Return the smallest bound of an index that a kernel asserts; None where it asserts none."""
    found = [int(match[1]) for text in texts if isinstance(text, str) for match in BOUND.finditer(text)]
    return max(1, min(found)) if found else None


def draw_of(dtype: str, read: bool, index: bool, positive: bool, bound: int | None) -> Draw:
    """Return how a tensor is drawn."""
    if not read:
        return "zeros"
    if dtype == "bool":
        return ("below", 2)
    if dtype.startswith(("float", "bfloat")):
        return "zeros" if index else "positive" if positive else "normal"
    if index:
        return ("below", bound or 1)
    return ("below", min(bound or SMALL_INTEGERS, SMALL_INTEGERS))


# ------------------------------------------------------------------ C++

LAMBDA = re.compile(r"\bauto\s+(\w+)\s*=\s*\[&\]\s*\{(.*?)\breturn\b([^;]*);\s*\}\s*(?:\(\s*\))?\s*;", re.DOTALL)
"""A block whose value a variable has."""

BUFFER = re.compile(r"\btmpbuf\b")
"""The name of each local buffer of Inductor."""

PARTS = re.compile(r"[;{}]")
ASSIGNED = re.compile(r"(\bauto\s+)?\b(\w+)\s*(?:\[[^\]\n]*\]\s*)?(?<![=!<>])=(?!=)\s*(.*)", re.DOTALL)
"""An assignment to a variable or to an element of one; `auto` begins another variable of the name."""

STORED = re.compile(r"(.*)\.store\(\s*(\w+)", re.DOTALL)
ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
"""Another name of a pointer."""

NAMES = re.compile(r"[A-Za-z_]\w*")
CALLED = re.compile(rf"\b{POSITIVE.pattern}\(|\.{POSITIVE.pattern}\(")
OPEN, CLOSE = "([", ")]"


def draws_of_cpp(source: str, parameters: Sequence[tuple[str, str, str]]) -> dict[str, Draw]:
    """Return how each tensor of a C++ kernel is drawn; `parameters` has names, types and dtypes of the tensors."""
    names = [name for name, _, _ in parameters]
    for alias, name in ALIAS.findall(source):
        source = re.sub(rf"\b{alias}\b", name, source) if name in names and alias not in names else source
    flows: dict[str, set[str]] = defaultdict(set)
    positive: set[str] = set()
    indices: set[str] = set()
    for part in PARTS.split(LAMBDA.sub(r"\2;auto \1 = \3;", source)):
        bare, addresses = without_addresses(part, names)
        for address in addresses:
            indices |= sources_of(without_addresses(address, names)[0], names, flows)
        if CALLED.search(bare):
            positive |= sources_of(bare, names, flows)
        if BUFFER.search(bare) and "std::array" in bare:
            flows["tmpbuf"] = set()
        if found := ASSIGNED.search(bare):
            own = sources_of(found[3], names, flows)
            flows[found[2]] = own if found[1] else flows[found[2]] | own
        elif found := STORED.match(bare):
            flows[found[2]] |= sources_of(found[1], names, flows)
    bound = smallest_bound([source])
    return {
        name: draw_of(dtype, not WRITTEN_ONLY.fullmatch(name), name in indices, name in positive, bound)
        for name, kind, dtype in parameters
    }


def sources_of(value: str, parameters: Sequence[str], flows: Flows) -> set[str]:
    """Return the parameters whose values an expression has."""
    words = set(NAMES.findall(value))
    return (words & set(parameters)).union(*(flows.get(word, set()) for word in words))


def without_addresses(source: str, parameters: Sequence[str]) -> tuple[str, list[str]]:
    """Return a source without what follows its pointers in brackets or after `+`, and those addresses."""
    pointer = re.compile(rf"\b(?:{'|'.join(map(re.escape, parameters)) or '$.'})\b\s*(?:\[|\+)")
    parts, addresses, place = [], [], 0
    for match in pointer.finditer(source):
        if match.start() < place:
            continue
        end = end_of_address(source, match.end() - 1)
        parts.append(source[place : match.end() - 1])
        addresses.append(source[match.end() : end])
        place = end
    return "".join(parts) + source[place:], addresses


def end_of_address(source: str, start: int) -> int:
    """Return where an address ends: after its bracket, or before the comma or parenthesis that follows a sum."""
    depth = 0
    for place in range(start, len(source)):
        letter = source[place]
        if letter in OPEN:
            depth += 1
        elif letter in CLOSE:
            depth -= 1
            if depth <= 0 and source[start] == "[":
                return place + 1
            if depth < 0:
                return place
        elif letter in ",;" and depth <= 0:
            return place
    return len(source)
