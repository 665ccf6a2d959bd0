"""How the arguments of a kernel are drawn when it runs alone, so that no call reads outside of its tensors.

The values that a kernel loads are followed through its code. A tensor that flows into an address is an index: its
integers stay below the smallest bound that the kernel asserts, and are zero where it asserts none. A tensor that flows
into a root or a logarithm is positive. What is only written begins as zeros.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from backprint.errors import RefusedError
from backprint.graph.nouns import ITEMSIZE
from backprint.graph.text import quote
from backprint.kernels.normal_cpp import BINDING
from backprint.kernels.normal_triton import find_kernel, is_jitted, parse_module
from backprint.kernels.nouns import Kernel, KernelArgument, KernelCall
from backprint.kernels.read import MARK

Draw = Literal["zeros", "normal", "positive"] | tuple[Literal["below"], int]
"""Zeros, normal numbers, numbers from 0.1 to 1, or integers from 0 to below a number."""

ACCESSES = (
    "load",
    "store",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
    "atomic_xchg",
    "atomic_cas",
)
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


# ----------------------------------------------------------------------------
# The bytes of memory that a call of a kernel uses, from the sizes that were recorded.
#
# A call that reads all of its inputs and writes all of its outputs cannot move less than the elements that its
#  tensors have, each once. A kernel that gathers some rows of a table may move less, and one that reads an input
#  twice moves more.
# ----------------------------------------------------------------------------

NUMBERS = ("int", "float", "NoneType")
"""What no tensor has for a dtype."""


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """How a kernel uses the tensor of one parameter."""

    name: str
    reads: bool
    writes: bool


def kernel_bytes(kernel: Kernel) -> int | None:
    """Return the bytes of the tensors of all recorded calls of a kernel; None without calls."""
    if not kernel.calls:
        return None
    return sum(argument_bytes(argument) for call in kernel.calls for argument in call.arguments)


def least_bytes(call: KernelCall, kernel: Kernel) -> int:
    """Return the bytes that a call moves if it reads each tensor that it reads once, and writes each it writes once; a
    dtype that is not known raises RefusedError."""
    for argument in call.arguments:
        if not holds_number(argument) and argument.dtype not in ITEMSIZE:
            raise RefusedError(f"the bytes of an element of {argument.dtype!r:.40} are not known")
    pairs = zip(parameter_uses(kernel), call.arguments, strict=False)
    return sum((use.reads + use.writes) * argument_bytes(argument) for use, argument in pairs)


def holds_number(argument: KernelArgument) -> bool:
    """Whether an argument is no tensor; `bool` is a dtype of both."""
    return argument.value is not None or argument.dtype in NUMBERS


def argument_bytes(argument: KernelArgument) -> int:
    """Return the bytes of a tensor's elements, those of a dimension of stride 0 once and no gaps; 0 of a number. Of an
    unknown dtype, an element counts as a byte."""
    if holds_number(argument):
        return 0
    count = 1
    for size, stride in zip(argument.shape, argument.stride, strict=True):
        count *= size if stride or not size else 1
    return count * ITEMSIZE.get(argument.dtype, 1)


def parameter_uses(kernel: Kernel) -> tuple[ParameterUse, ...]:
    """Return how a kernel uses its parameters, in the order of the arguments of its calls."""
    if kernel.language == "cpp":
        return uses_in_cpp(kernel.name, kernel.source, kernel.declared)
    sizes = frozenset(name for one in kernel.configurations for name, _ in one.sizes)
    return uses_in_triton(kernel.name, kernel.source, sizes)


@functools.lru_cache(maxsize=256)
def uses_in_triton(name: str, source: str, sizes: frozenset[str]) -> tuple[ParameterUse, ...]:
    """Return the uses of a Triton kernel's parameters, without those that its configurations set."""
    flows = FlowsOfTriton(triton_function(source, name))
    return tuple(
        ParameterUse(one, one in flows.loaded, one in flows.stored) for one in flows.parameters if one not in sizes
    )


@functools.lru_cache(maxsize=256)
def uses_in_cpp(name: str, source: str, declared: str) -> tuple[ParameterUse, ...]:
    """Return the uses of a C++ kernel's parameters: by `const`, and of the others by the names that Inductor gives."""

    _, parameters = head_of(Kernel("cpp", name, source, declared=declared))
    found = []
    for parameter, kind in parameters:
        writes = kind.endswith("*") and not kind.startswith("const ")
        found.append(ParameterUse(parameter, not writes or not parameter.startswith("out_ptr"), writes))
    return tuple(found)


def triton_function(source: str, name: str) -> ast.FunctionDef:
    """Return the syntax tree of a Triton kernel's function."""
    tree = parse_module(source, name)
    function = find_kernel([node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)], name)
    if function is None:
        raise RefusedError(f"{name}: there is no Triton kernel in this source")
    return function


# ----------------------------------------------------------------------------
# Write a kernel as one file of Python that runs by itself, with its recorded calls: with torch and triton, or with
# torch and a C++ compiler.
#
#
#
#     MARK                                  by which `read` knows such a file
#
#     # name, hash, sample, operators       comments
#
#     NAME, CALLS, CONFIGURATIONS, ...      what was recorded, as plain data
#
#     the kernel                            a function in Triton, or C++ as a text
#
#     make, launch, run, main               the texts in `bodies`
#
# Names, lines of programs and sources come from strangers: in comments every letter that is not printable is an
#  escape, and in code they are literals of Python.
# ----------------------------------------------------------------------------

WIDTH = 116
"""The letters of a line of comments or data."""


def comment(text: str) -> str:
    """Return a text of strangers as it may stand in a line of comments."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def header(kernel: Kernel, needs: str, runs: str) -> str:
    """Return the comments at the head of a file."""
    facts = {
        "name": kernel.name,
        "hash": kernel.hash,
        "sample": kernel.sample,
        "direction": kernel.direction,
        "target": kernel.target,
        "compiler": kernel.compiler,
    }
    lines = [MARK, f"# It needs {needs}, and nothing else.", "#"]
    lines += [f"# {title + ':':<12}{comment(value)}" for title, value in facts.items() if value]
    lines += ["#", "# It computes:"] if kernel.operators else []
    for operator in kernel.operators:
        where = f"    {comment(operator.line)}" if operator.line else ""
        lines.append(f"#     {comment(operator.operator)}{where}")
    lines += ["#", *(f"# {line}".rstrip() for line in runs.splitlines())]
    return "\n".join(lines)


DRAWN = """\
make(call) makes the arguments of a recorded call with seeded values: `draw` says zeros, normal numbers, numbers from
0.1 to 1 (where a root or a logarithm follows), or integers from 0 to below a number. An index stays below the smallest
bound that the kernel asserts, and is 0 where it asserts none, so that no call reads outside of its tensors. Tensors
that share memory in the program have their own memory here."""
"""What a file says of its values."""


def body(name: str) -> str:
    """Return a part that files of kernels have."""
    return files("backprint.kernels").joinpath("bodies", f"{name}.txt").read_text(encoding="utf-8").rstrip()


def unique_calls(kernel: Kernel) -> dict[KernelCall, int]:
    """Return the calls that differ, with how often each was made."""
    counts: dict[KernelCall, int] = {}
    for call in kernel.calls:
        counts[call] = counts.get(call, 0) + 1
    return counts


def call_rows(kernel: Kernel, names: Sequence[str], draws: Mapping[str, Draw]) -> list[dict[str, Any]]:
    """Return the calls of a kernel as plain data."""
    rows: list[dict[str, Any]] = []
    for call, times in unique_calls(kernel).items():
        arguments: list[dict[str, Any]] = []
        for name, argument in zip(names, call.arguments, strict=False):  # a template's launcher has further numbers
            if holds_number(argument):
                arguments.append({"name": name, "value": argument.value})
                continue
            layout = {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
            arguments.append({"name": name, **layout, "draw": draws[name]})
        grids = {"grids": list(call.grids)} if call.grids else {}
        rows.append({"arguments": arguments, "bytes": least_bytes(call, kernel), "times": times, **grids})
    return rows


def tensor_dtypes(kernel: Kernel, names: Sequence[str]) -> dict[str, str]:
    """Return the dtypes of the tensors that a kernel is called with, by the names of its parameters."""
    first = kernel.calls[0].arguments
    pairs = zip(names, first, strict=False)
    return {name: argument.dtype for name, argument in pairs if not holds_number(argument)}


def literal(value: Any, indent: int = 0) -> str:
    """Return plain data as code of Python, over several lines where one is not enough."""
    if isinstance(value, str) and "\n" in value:
        return long_text(value)
    line = on_one_line(value)
    if len(line) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        rows = [f"{inner}{on_one_line(key)}: {literal(one, indent + 4)}," for key, one in value.items()]
    else:
        rows = [f"{inner}{literal(one, indent + 4)}," for one in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return "\n".join([opening, *rows, " " * indent + closing])


def on_one_line(value: Any) -> str:
    """Return plain data as one line of code; Python has no literal for numbers that are not finite."""
    match value:
        case dict():
            return "{" + ", ".join(f"{on_one_line(key)}: {on_one_line(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(on_one_line, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(on_one_line, value)) + ("," if len(value) == 1 else "") + ")"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case str():
            return ascii(value) if not value.isprintable() else quote(value)
        case None | bool() | int() | float():
            return repr(value)
    raise RefusedError(f"{type(value).__name__} is no plain data: {value!r:.80}")


def long_text(text: str) -> str:
    """Return a long text as a literal of Python: as it stands between three quotes, where that says the same."""
    plain = f"r'''{text}'''"
    odd = [letter for letter in text if not letter.isprintable() and letter != "\n"]
    if not odd and "'''" not in text and not text.endswith(("'", "\\")):
        return plain
    return ascii(text)


# ----------------------------------------------------------------------------
# Write a C++ kernel of Inductor as a file of its own: its source as a text, how it is compiled, and its calls.
# ----------------------------------------------------------------------------

CPP_RUNS = """\
    python THIS_FILE        compiles the kernel and runs it twice on each recorded call, with times. Exits with 1 if
                            the results differ.
    import THIS_FILE        make(call) -> arguments, launch(arguments), run(call) -> results
"""

CPP_IMPORTS = """\
import atexit
import ctypes
import functools
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch

DEVICE = "cpu"
"""

FLAGS = (
    "-DTORCH_INDUCTOR_CPP_WRAPPER -DSTANDALONE_TORCH_HEADER -DC10_USING_CUSTOM_GENERATED_MACROS -O3 -DNDEBUG "
    "-fno-trapping-math -funsafe-math-optimizations -ffinite-math-only -fno-signed-zeros -fno-finite-math-only "
    "-fno-unsafe-math-optimizations -fmath-errno -ffp-contract=off -fexcess-precision=fast -fno-tree-loop-vectorize "
    "-march=native -shared -fPIC -std=c++20 -fopenmp"
)
"""How Inductor 2.13 compiles a kernel, without its warnings and its precompiled headers."""

ISA_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "avx2": "-DCPU_CAPABILITY_AVX2 -mavx2 -mfma -mf16c",
        "avx512": "-DCPU_CAPABILITY_AVX512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma",
        "neon": "-DCPU_CAPABILITY_NEON -DAT_BUILD_ARM_VEC256_WITH_SLEEF",
        "scalar": "",
    }
)
"""Vector instructions -> the flags that they add."""

CAPABILITIES: Mapping[str, tuple[str, ...]] = MappingProxyType({"avx2": ("AVX2", "AVX512"), "avx512": ("AVX512",)})
"""Vector instructions -> what torch says of processors that have them."""

FUNCTION = re.compile(r'extern\s+"C"\s+(?:__\w+(?:\(\w+\))?\s+)?void\s+(\w+)\s*\(([^)]*)\)')
"""The head of a kernel."""

TYPE = re.compile(r"\s*(.*?)\s*(\w+)\s*")


def cpp_file(kernel: Kernel) -> str:
    """Return the file of a C++ kernel."""
    source = kernel.source.partition(BINDING)[0]
    function, parameters = head_of(kernel)
    if kernel.isa not in ISA_FLAGS:
        raise RefusedError(
            f"{kernel.name}: the vector instructions it is written for ({kernel.isa or 'unknown'}) are "
            f"none of {', '.join(ISA_FLAGS)}: extract it for cpu:avx2 or another of these"
        )
    names = [name for name, _ in parameters]
    if any(len(call.arguments) != len(names) for call in kernel.calls):
        raise RefusedError(f"{kernel.name}: it has {len(names)} parameters, and calls with another number of arguments")
    dtypes = tensor_dtypes(kernel, names)
    tensors = [(name, kind, dtypes[name]) for name, kind in parameters if name in dtypes]
    rows = {
        "NAME": kernel.name,
        "HASH": kernel.hash,
        "FUNCTION": function,
        "TYPES": [kind for _, kind in parameters],
        "FLAGS": [*FLAGS.split(), *ISA_FLAGS[kernel.isa].split()],
        "NEEDS": list(CAPABILITIES.get(kernel.isa, ())),
        "THREADS": f"{kernel.threads or 1} thread{'s' if (kernel.threads or 1) > 1 else ''}",
        "CALLS": call_rows(kernel, names, draws_of_cpp(source, tensors)),
        "WRITTEN": [name for name, kind, _ in tensors if not kind.startswith("const ")],
    }
    said = {
        "declared": kernel.declared,
        "sample": kernel.sample,
        "direction": kernel.direction,
        "target": kernel.target,
        "compiler": kernel.compiler,
        "isa": kernel.isa,
        "threads": kernel.threads,
    }
    parts = [
        header(kernel, "torch and a C++ compiler", CPP_RUNS + "\n" + DRAWN),
        CPP_IMPORTS.rstrip(),
        f"# ---- the kernel\n\nSOURCE = {long_text(source)}",
        "# ---- what was recorded of it",
        "\n".join(f"{name} = {literal(value)}" for name, value in rows.items()),
        f"# For those who compare programs; nothing below reads it.\nWRITTEN_AS = {literal(said)}",
        body("common"),
        body("cpp"),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def head_of(kernel: Kernel) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a kernel's function, and its parameters' names and types."""
    found = FUNCTION.search(kernel.source)
    if found is None:
        raise RefusedError(f'{kernel.name}: there is no function extern "C" in this source')
    types = declared_types(kernel)
    written = [TYPE.fullmatch(one) for one in found[2].split(",")] if found[2].strip() else []
    if any(one is None for one in written) or (types and len(types) != len(written)):
        raise RefusedError(f"{kernel.name}: its parameters are not those that its binding declares")
    names = [one[2] for one in written if one is not None]
    own = [" ".join(one[1].split()).replace(" *", "*") for one in written if one is not None]
    return found[1], list(zip(names, types or own, strict=True))


def declared_types(kernel: Kernel) -> list[str]:
    """Return the types that a kernel's binding declares."""
    try:
        types = ast.literal_eval(kernel.declared) if kernel.declared else []
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise RefusedError(f"{kernel.name}: what its binding declares is no list of types ({error})") from error
    if not isinstance(types, list | tuple) or not all(isinstance(one, str) for one in types):
        raise RefusedError(f"{kernel.name}: what its binding declares is no list of types")
    return list(types)
