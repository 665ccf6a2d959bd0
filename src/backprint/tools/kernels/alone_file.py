"""The parts of a file that runs one kernel by itself, and the file of a C++ kernel.

    MARK                                  the line by which `read` recognizes such a file
    # name, hash, sample, operators       comments
    NAME, CALLS, CONFIGURATIONS, ...      recorded facts, as plain data
    the kernel                            a function in Triton, or C++ as a text
    make, launch, run, main               the texts in `bodies`

Names, program lines and sources are not trusted. In comments, their characters that are not printable are escaped; in
code, they are Python literals. The sections of this module are: how arguments are drawn, the bytes of a call, the parts
of a file, and the file of a C++ kernel.
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
from backprint.tools.kernels.normal_cpp import BINDING
from backprint.tools.kernels.normal_triton import find_kernel, is_jitted, parse_module
from backprint.tools.kernels.nouns import Kernel, KernelArgument, KernelCall
from backprint.tools.kernels.read import MARK

# ------------------------------------------------------------------ how a call's arguments are drawn
#
# The values that a kernel loads are followed through its code. A tensor that flows into an address is an index: its
# integers stay below the smallest bound that the kernel asserts, and are zero if it asserts none. So no call reads
# outside of its tensors. A tensor that flows into a square root or a logarithm is positive. A tensor that is only
# written begins as zeros.

Draw = Literal["zeros", "normal", "positive"] | tuple[Literal["below"], int]
"""How the values of a tensor are made: zeros, normally distributed numbers, positive numbers from 0.1 to 1, or
`("below", n)` for integers from 0 to n - 1."""

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
"""Functions that return NaN for negative numbers."""

BOUND = re.compile(r"index out of bounds: 0 <= [^<\"]* < (\d+)")
"""An assertion of Inductor about an index."""

WRITTEN_ONLY = re.compile(r"out_ptr\w*|ws_ptr\w*|sem_ptr\w*")
"""Parameters that Inductor names as results, workspaces or semaphores, which begin as zeros."""

SMALL_INTEGERS = 8
"""Integers that are not indices are drawn below this number."""

Flows = Mapping[str, set[str]]
"""Variable -> the parameters whose values it holds."""


class FlowsOfTriton:
    """Finds out how a Triton kernel uses the values of its parameters, by following them through its assignments.

    `flows` has, for each variable, the parameters whose values it depends on, and `aliases` the variables that are
    other names of a parameter. The other sets hold parameters: `loaded` and `stored` those whose memory is read or
    written, `indices` those whose values are part of an address, and `positive` those whose values are arguments of a
    square root, a logarithm and the like.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        arguments = function.args
        self.parameters = [
            argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        ]
        self.flows: dict[str, set[str]] = defaultdict(set)
        self.aliases: dict[str, str] = {name: name for name in self.parameters}
        self.loaded: set[str] = set()
        self.stored: set[str] = set()
        self.indices: set[str] = set()
        self.positive: set[str] = set()
        for _ in range(2):  # in a loop, a variable may hold what a later line of the body assigned
            for node in ast.walk(function):
                self.follow(node)

    def follow(self, node: ast.AST) -> None:
        """Record the effect of a statement or a call on the flows."""
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
        """Record a load, a store, or an atomic operation, which is both."""
        pointers = self.pointers(address)
        if name != "store":
            self.loaded.update(pointers)
        if name != "load":
            self.stored.update(pointers)
        self.indices |= self.sources(address)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Add the parameters that flow into a value to each variable of its target."""
        origins = self.sources(value)
        for variable in ast.walk(target):
            if isinstance(variable, ast.Name):
                self.flows[variable.id] |= origins

    def sources(self, value: ast.expr) -> set[str]:
        """Return the parameters whose values flow into an expression; for a load, its tensor and not its address."""
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=name), args=[address, *others]) if (
                name in ACCESSES
            ):
                return set(self.pointers(address)).union(*map(self.sources, others))
            case ast.Name(id=name):
                return set(self.flows.get(name, ()))
        origins: set[str] = set()
        for child in ast.iter_child_nodes(value):
            origins |= self.sources(child) if isinstance(child, ast.expr) else set()
        for keyword in getattr(value, "keywords", ()):
            origins |= self.sources(keyword.value)
        return origins

    def pointers(self, address: ast.expr) -> list[str]:
        """Return the pointer parameters in an address: `in_ptr0` for `in_ptr0 + x0`."""
        names = [child.id for child in ast.walk(address) if isinstance(child, ast.Name)]
        return [self.aliases[name] for name in names if name in self.aliases]

    @property
    def inputs(self) -> set[str]:
        """The loaded parameters that have values before the kernel runs: all except those that Inductor names as
        results, workspaces or semaphores."""
        return {name for name in self.loaded if not WRITTEN_ONLY.fullmatch(name)}


def draws_of_triton(function: ast.FunctionDef, dtypes: Mapping[str, str]) -> dict[str, Draw]:
    """Return how each tensor of a Triton kernel is drawn. `dtypes` has the dtype of each tensor parameter, by name."""
    flows = FlowsOfTriton(function)
    bound = _smallest_bound(constant.value for constant in ast.walk(function) if isinstance(constant, ast.Constant))
    return {
        name: _draw_of(dtype, name in flows.inputs, name in flows.indices, name in flows.positive, bound)
        for name, dtype in dtypes.items()
    }


def _smallest_bound(texts: Iterable[object]) -> int | None:
    """Return the smallest bound of an index that a kernel asserts; None where it asserts none."""
    bounds = [int(match[1]) for text in texts if isinstance(text, str) for match in BOUND.finditer(text)]
    return max(1, min(bounds)) if bounds else None


def _draw_of(dtype: str, is_read: bool, is_index: bool, is_positive: bool, bound: int | None) -> Draw:
    """Return how a tensor is drawn. `bound` is the smallest bound of an index that the kernel asserts."""
    if not is_read:
        return "zeros"
    if dtype == "bool":
        return ("below", 2)
    if dtype.startswith(("float", "bfloat")):
        return "zeros" if is_index else "positive" if is_positive else "normal"
    if is_index:
        return ("below", bound or 1)
    return ("below", min(bound or SMALL_INTEGERS, SMALL_INTEGERS))


# -------------------------------------------------------------- in C++

LAMBDA = re.compile(r"\bauto\s+(\w+)\s*=\s*\[&\]\s*\{(.*?)\breturn\b([^;]*);\s*\}\s*(?:\(\s*\))?\s*;", re.DOTALL)
"""A variable that is the result of a lambda which is called at once: `auto tmp3 = [&] { ...; return tmp2; }();`"""

BUFFER = re.compile(r"\btmpbuf\b")
"""The name that Inductor gives to every local buffer, so one name stands for several buffers of a kernel."""

SEPARATORS = re.compile(r"[;{}]")
"""What separates two statements."""

ASSIGNED = re.compile(r"(\bauto\s+)?\b(\w+)\s*(?:\[[^\]\n]*\]\s*)?(?<![=!<>])=(?!=)\s*(.*)", re.DOTALL)
"""An assignment to a variable or to an element of one. With `auto`, it declares a new variable of that name."""

STORED = re.compile(r"(.*)\.store\(\s*(\w+)", re.DOTALL)
"""A vector that is stored to memory: `tmp2.store(out_ptr0 + ...)`."""

ALIAS = re.compile(r"\bauto\s+(\w+)\s*=\s*(\w+)\s*;")
"""A declaration of another name for a pointer: `auto out_ptr1 = in_out_ptr0;`"""

NAMES = re.compile(r"[A-Za-z_]\w*")
POSITIVE_CALL = re.compile(rf"\b{POSITIVE.pattern}\(|\.{POSITIVE.pattern}\(")
"""A call of a function of POSITIVE."""

OPEN, CLOSE = "([", ")]"
"""Opening and closing brackets."""


def _draws_of_cpp(source: str, parameters: Sequence[tuple[str, str, str]]) -> dict[str, Draw]:
    """Return how each tensor of a C++ kernel is drawn; `parameters` has names, types and dtypes of the tensors.

    The source is split into statements, without parsing it, and values are followed through the assignments in order.
    """
    names = [name for name, _, _ in parameters]
    for alias, name in ALIAS.findall(source):
        source = re.sub(rf"\b{alias}\b", name, source) if name in names and alias not in names else source
    flows: dict[str, set[str]] = defaultdict(set)
    positive: set[str] = set()
    indices: set[str] = set()
    # A lambda becomes its statements, followed by an assignment of its result.
    for statement in SEPARATORS.split(LAMBDA.sub(r"\2;auto \1 = \3;", source)):
        bare, addresses = _without_addresses(statement, names)
        for address in addresses:
            indices |= _sources_of(_without_addresses(address, names)[0], names, flows)
        if POSITIVE_CALL.search(bare):
            positive |= _sources_of(bare, names, flows)
        if BUFFER.search(bare) and "std::array" in bare:  # the declaration of a buffer, which holds no values yet
            flows["tmpbuf"] = set()
        if match := ASSIGNED.search(bare):
            origins = _sources_of(match[3], names, flows)
            flows[match[2]] = origins if match[1] else flows[match[2]] | origins
        elif match := STORED.match(bare):
            flows[match[2]] |= _sources_of(match[1], names, flows)
    bound = _smallest_bound([source])
    return {
        name: _draw_of(dtype, not WRITTEN_ONLY.fullmatch(name), name in indices, name in positive, bound)
        for name, kind, dtype in parameters
    }


def _sources_of(value: str, parameters: Sequence[str], flows: Flows) -> set[str]:
    """Return the parameters whose values an expression depends on."""
    words = set(NAMES.findall(value))
    return (words & set(parameters)).union(*(flows.get(word, set()) for word in words))


def _without_addresses(source: str, parameters: Sequence[str]) -> tuple[str, list[str]]:
    """Remove the offsets of pointers from a source: `in_ptr0[x]` and `in_ptr0 + x` become `in_ptr0`. Return the rest,
    and the list of the removed offsets, which are parts of addresses."""
    names = "|".join(map(re.escape, parameters)) or "$."  # without parameters, a pattern that matches nothing
    pointer = re.compile(rf"\b(?:{names})\b\s*(?:\[|\+)")
    parts, addresses, position = [], [], 0
    for match in pointer.finditer(source):
        if match.start() < position:
            continue
        end = _end_of_address(source, match.end() - 1)
        parts.append(source[position : match.end() - 1])
        addresses.append(source[match.end() : end])
        position = end
    return "".join(parts) + source[position:], addresses


def _end_of_address(source: str, start: int) -> int:
    """Return where an address ends: after its bracket, or before the comma or parenthesis that follows a sum."""
    depth = 0
    for position in range(start, len(source)):
        letter = source[position]
        if letter in OPEN:
            depth += 1
        elif letter in CLOSE:
            depth -= 1
            if depth <= 0 and source[start] == "[":
                return position + 1
            if depth < 0:
                return position
        elif letter in ",;" and depth <= 0:
            return position
    return len(source)


# ------------------------------------------------------------------ the bytes that a call uses
#
# A call that reads all of its inputs and writes all of its outputs moves at least the elements of its tensors, each
# once. A kernel that gathers some rows of a table may move fewer bytes, and one that reads an input twice moves more.

NUMBERS = ("int", "float", "NoneType")
"""The types of arguments that are not tensors. `bool` is left out, because it is a dtype of tensors too."""


@dataclass(frozen=True, slots=True)
class _ParameterUse:
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
    """Return the bytes that a call moves if it reads and writes each tensor once; raise RefusedError for an unknown
    dtype."""
    for argument in call.arguments:
        if not _holds_number(argument) and argument.dtype not in ITEMSIZE:
            raise RefusedError(f"the bytes of an element of {argument.dtype!r:.40} are not known")
    # Not strict: the launcher of a Triton template takes numbers that the kernel does not take.
    pairs = zip(_parameter_uses(kernel), call.arguments, strict=False)
    return sum((use.reads + use.writes) * argument_bytes(argument) for use, argument in pairs)


def _holds_number(argument: KernelArgument) -> bool:
    """Whether an argument is a number; `bool` is a dtype of tensors and of numbers."""
    return argument.value is not None or argument.dtype in NUMBERS


def argument_bytes(argument: KernelArgument) -> int:
    """Return the bytes of the distinct elements of a tensor: gaps do not count, and elements of an expanded dimension
    (stride 0) count once. A number has 0 bytes, and an element of an unknown dtype counts as one byte."""
    if _holds_number(argument):
        return 0
    count = 1
    for size, stride in zip(argument.shape, argument.stride, strict=True):
        count *= size if stride or not size else 1
    return count * ITEMSIZE.get(argument.dtype, 1)


def _parameter_uses(kernel: Kernel) -> tuple[_ParameterUse, ...]:
    """Return how a kernel uses its parameters, in the order of the arguments of its calls."""
    if kernel.language == "cpp":
        return _uses_in_cpp(kernel.name, kernel.source, kernel.declared)
    sizes = frozenset(name for configuration in kernel.configurations for name, _ in configuration.sizes)
    return _uses_in_triton(kernel.name, kernel.source, sizes)


@functools.lru_cache(maxsize=256)
def _uses_in_triton(name: str, source: str, sizes: frozenset[str]) -> tuple[_ParameterUse, ...]:
    """Return the uses of a Triton kernel's parameters, without those that its configurations set."""
    flows = FlowsOfTriton(_triton_function(source, name))
    return tuple(
        _ParameterUse(parameter, parameter in flows.loaded, parameter in flows.stored)
        for parameter in flows.parameters
        if parameter not in sizes
    )


@functools.lru_cache(maxsize=256)
def _uses_in_cpp(name: str, source: str, declared: str) -> tuple[_ParameterUse, ...]:
    """Return the uses of a C++ kernel's parameters.

    A pointer to `const` is only read. For other pointers, the name that Inductor gives it tells whether it is read too.
    """
    _, parameters = cpp_signature(Kernel("cpp", name, source, declared=declared))
    uses = []
    for parameter, kind in parameters:
        writes = kind.endswith("*") and not kind.startswith("const ")
        uses.append(_ParameterUse(parameter, not writes or not parameter.startswith("out_ptr"), writes))
    return tuple(uses)


def _triton_function(source: str, name: str) -> ast.FunctionDef:
    """Return the syntax tree of a Triton kernel's function."""
    tree = parse_module(source, name)
    function = find_kernel([node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)], name)
    if function is None:
        raise RefusedError(f"{name}: there is no Triton kernel in this source")
    return function


# ------------------------------------------------------------------ the parts of a file

WIDTH = 116
"""The most characters of a line of data."""


def _safe_comment(text: str) -> str:
    """Return an untrusted text for a line of comments: characters that are not printable are escaped, so that the text
    cannot begin a new line."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def header(kernel: Kernel, needs: str, runs: str) -> str:
    """Return the comments at the head of a file. `needs` names what the file needs to run, and `runs` says what running
    and importing it do."""
    facts = {
        "name": kernel.name,
        "hash": kernel.hash,
        "sample": kernel.sample,
        "direction": kernel.direction,
        "target": kernel.target,
        "compiler": kernel.compiler,
    }
    lines = [MARK, f"# It needs {needs}, and nothing else.", "#"]
    lines += [f"# {title + ':':<12}{_safe_comment(value)}" for title, value in facts.items() if value]
    lines += ["#", "# It computes:"] if kernel.operators else []
    for operator in kernel.operators:
        where = f"    {_safe_comment(operator.line)}" if operator.line else ""
        lines.append(f"#     {_safe_comment(operator.operator)}{where}")
    lines += ["#", *(f"# {line}".rstrip() for line in runs.splitlines())]
    return "\n".join(lines)


DRAWN = """\
make(call) makes the arguments of a recorded call with seeded values: `draw` says zeros, normal numbers, numbers from
0.1 to 1 (where a root or a logarithm follows), or integers from 0 to below a number. An index stays below the smallest
bound that the kernel asserts, and is 0 where it asserts none, so that no call reads outside of its tensors. Tensors
that share memory in the program have their own memory here."""
"""The comment in a file about the values of its arguments."""


def template(name: str) -> str:
    """Return the code of `bodies/NAME.txt`, which is copied into files as it is: `common` into all, the others into
    those of one language."""
    return files("backprint.tools.kernels").joinpath("bodies", f"{name}.txt").read_text(encoding="utf-8").rstrip()


def unique_calls(kernel: Kernel) -> dict[KernelCall, int]:
    """Return the distinct calls of a kernel, with how often each was made."""
    counts: dict[KernelCall, int] = {}
    for call in kernel.calls:
        counts[call] = counts.get(call, 0) + 1
    return counts


def call_rows(kernel: Kernel, names: Sequence[str], draws: Mapping[str, Draw]) -> list[dict[str, Any]]:
    """Return the calls of a kernel as plain data."""
    rows: list[dict[str, Any]] = []
    for call, times in unique_calls(kernel).items():
        arguments: list[dict[str, Any]] = []
        for name, argument in zip(names, call.arguments, strict=False):  # not strict, as in `least_bytes`
            if _holds_number(argument):
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
    return {name: argument.dtype for name, argument in pairs if not _holds_number(argument)}


def literal(value: Any, indent: int = 0) -> str:
    """Return plain data as a Python literal, on several lines if it does not fit on one."""
    if isinstance(value, str) and "\n" in value:
        return long_text(value)
    line = _on_one_line(value)
    if len(line) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        rows = [f"{inner}{_on_one_line(key)}: {literal(item, indent + 4)}," for key, item in value.items()]
    else:
        rows = [f"{inner}{literal(item, indent + 4)}," for item in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return "\n".join([opening, *rows, " " * indent + closing])


def _on_one_line(value: Any) -> str:
    """Return plain data as a Python expression on one line: a literal, with `float("inf")` and its like for numbers
    that are not finite."""
    match value:
        case dict():
            return "{" + ", ".join(f"{_on_one_line(key)}: {_on_one_line(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_on_one_line, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(_on_one_line, value)) + ("," if len(value) == 1 else "") + ")"
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case str():
            return ascii(value) if not value.isprintable() else quote(value)
        case None | bool() | int() | float():
            return repr(value)
    raise RefusedError(f"{type(value).__name__} cannot be written as a Python literal: {value!r:.80}")


def long_text(text: str) -> str:
    """Return a long text as a Python literal: a raw string with triple quotes if the text can be in one, else an
    escaped string."""
    unprintable = any(not character.isprintable() and character != "\n" for character in text)
    if not unprintable and "'''" not in text and not text.endswith(("'", "\\")):
        return f"r'''{text}'''"
    return ascii(text)


# ------------------------------------------------------------------ the file of a C++ kernel

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
"""The compiler flags of Inductor in PyTorch 2.13, without those for warnings and for precompiled headers."""

ISA_FLAGS: Mapping[str, str] = MappingProxyType(
    {
        "avx2": "-DCPU_CAPABILITY_AVX2 -mavx2 -mfma -mf16c",
        "avx512": "-DCPU_CAPABILITY_AVX512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma",
        "neon": "-DCPU_CAPABILITY_NEON -DAT_BUILD_ARM_VEC256_WITH_SLEEF",
        "scalar": "",
    }
)
"""Vector instructions -> the compiler flags for them, which are added to FLAGS."""

CAPABILITIES: Mapping[str, tuple[str, ...]] = MappingProxyType({"avx2": ("AVX2", "AVX512"), "avx512": ("AVX512",)})
"""Vector instructions -> the values of `torch.backends.cpu.get_cpu_capability()` on processors that have them."""

FUNCTION = re.compile(r'extern\s+"C"\s+(?:__\w+(?:\(\w+\))?\s+)?void\s+(\w+)\s*\(([^)]*)\)')
"""The declaration of a kernel's function: its name and its parameters."""

PARAMETER = re.compile(r"\s*(.*?)\s*(\w+)\s*")
"""The declaration of a parameter: its type and its name."""


def cpp_file(kernel: Kernel) -> str:
    """Return the file of a C++ kernel."""
    source = kernel.source.partition(BINDING)[0]
    function, parameters = cpp_signature(kernel)
    if kernel.isa not in ISA_FLAGS:
        raise RefusedError(
            f"{kernel.name}: the vector instructions it is written for ({kernel.isa or 'unknown'}) are "
            f"none of {', '.join(ISA_FLAGS)}: extract it for cpu:avx2 or another of these"
        )
    names = [name for name, _ in parameters]
    if any(len(call.arguments) != len(names) for call in kernel.calls):
        raise RefusedError(f"{kernel.name}: it has {len(names)} parameters, but calls with another number of arguments")
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
        "CALLS": call_rows(kernel, names, _draws_of_cpp(source, tensors)),
        "WRITTEN": [name for name, kind, _ in tensors if not kind.startswith("const ")],
    }
    facts = {
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
        f"# For those who compare programs; nothing below reads it.\nWRITTEN_AS = {literal(facts)}",
        template("common"),
        template("cpp"),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def cpp_signature(kernel: Kernel) -> tuple[str, list[tuple[str, str]]]:
    """Return the name of a C++ kernel's function, and its parameters' names and types."""
    match = FUNCTION.search(kernel.source)
    if match is None:
        raise RefusedError(f'{kernel.name}: there is no function extern "C" in this source')
    types = _declared_types(kernel)
    declarations = [PARAMETER.fullmatch(declaration) for declaration in match[2].split(",")] if match[2].strip() else []
    if any(declaration is None for declaration in declarations) or (types and len(types) != len(declarations)):
        raise RefusedError(f"{kernel.name}: the parameters in its source are not those that its binding declares")
    names = [declaration[2] for declaration in declarations if declaration is not None]
    types_in_source = [
        " ".join(declaration[1].split()).replace(" *", "*") for declaration in declarations if declaration is not None
    ]
    return match[1], list(zip(names, types or types_in_source, strict=True))


def _declared_types(kernel: Kernel) -> list[str]:
    """Return the types of the parameters as Inductor's binding declares them; [] if it declares none."""
    try:
        types = ast.literal_eval(kernel.declared) if kernel.declared else []
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise RefusedError(f"{kernel.name}: its binding does not declare a list of types ({error})") from error
    if not isinstance(types, list | tuple) or not all(isinstance(kind, str) for kind in types):
        raise RefusedError(f"{kernel.name}: its binding does not declare a list of types")
    return list(types)
