"""The parts of a file that runs one Triton kernel by itself.

    MARK                                  the first line
    # name, hash, sample, operators       comments
    NAME, CALLS, CONFIGURATIONS, ...      recorded facts, as plain data
    the kernel                            a function in Triton
    make, launch, run, main               the texts in `bodies`

Names, program lines and sources are not trusted. In comments, their characters that are not printable are escaped; in
code, they are Python literals. The sections of this module are: how a kernel uses its arguments, the bytes of a call,
and the parts of a file.

A KernelCall is a recorded call: its `arguments` are tensors, of which dtype, shape, strides and the range of values are
known, or numbers. Its `grids` are one for each configuration of the kernel. Sizes of a configuration (`XBLOCK`, …) are
parameters of the kernel, but no arguments of a call.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from backprint.errors import RefusedError
from backprint.graph.nouns import ITEMSIZE
from backprint.graph.text import quote
from backprint.tools.kernels.nouns import Kernel, KernelArgument, KernelCall
from backprint.tools.kernels.read import find_kernel, parse_module

MARK = "# A kernel that Backprint saved"
"""The first line of each file. The first two lines have no untrusted text, because Python reads an encoding there."""

# ------------------------------------------------------------------ how a kernel uses its arguments

WRITTEN_ONLY = re.compile(r"out_ptr\w*|ws_ptr\w*|sem_ptr\w*")
"""Parameters that Inductor names as results, workspaces or semaphores. What they hold before a call does not count."""


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """How a kernel uses the tensor of one parameter."""

    name: str
    reads: bool
    writes: bool


def parameter_uses(kernel: Kernel) -> tuple[ParameterUse, ...]:
    """Return how a Triton kernel uses its parameters, in the order of the arguments of its calls: those whose names are
    in the address of a load, a store, or an atomic operation, which is both."""
    sizes = frozenset(name for configuration in kernel.configurations for name, _ in configuration.sizes)
    return _uses_in_triton(kernel.name, kernel.source, sizes)


@functools.lru_cache(maxsize=256)
def _uses_in_triton(name: str, source: str, sizes: frozenset[str]) -> tuple[ParameterUse, ...]:
    """Return the uses of a Triton kernel's parameters; those in `sizes`, numbers of a configuration, are left out."""
    tree = parse_module(source, name)
    function = find_kernel([node for node in tree.body if isinstance(node, ast.FunctionDef)], name)
    if function is None:
        raise RefusedError(f"{name}: there is no Triton kernel in this source")
    arguments = function.args
    parameters = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    aliases = {parameter: parameter for parameter in parameters}
    loaded: set[str] = set()
    stored: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=other)) if other in aliases:
                aliases[alias] = aliases[other]  # another name of the same pointer
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl"), attr=access), args=[address, *_]) if access in (
                "load",
                "store",
            ) or access.startswith("atomic_"):
                names = {child.id for child in ast.walk(address) if isinstance(child, ast.Name)}
                pointers = {aliases[item] for item in names & aliases.keys()}
                if access != "store":
                    loaded |= pointers
                if access != "load":
                    stored |= pointers
    return tuple(
        ParameterUse(item, reads=item in loaded, writes=item in stored) for item in parameters if item not in sizes
    )


# ------------------------------------------------------------------ the bytes that a call uses
#
# A call that reads all of its inputs and writes all of its outputs moves at least the elements of its tensors, each
# once. A kernel that gathers some rows of a table may move fewer bytes, and one that reads an input twice moves more.

NUMBER_TYPES = ("int", "float", "NoneType")
"""The types of arguments that are not tensors. `bool` is left out, because it is a dtype of tensors too."""


def kernel_bytes(kernel: Kernel) -> int | None:
    """Return the bytes of the tensors of all recorded calls of a kernel; None without calls."""
    if not kernel.calls:
        return None
    return sum(argument_bytes(argument) for call in kernel.calls for argument in call.arguments)


def minimum_bytes(call: KernelCall, kernel: Kernel) -> int:
    """Return the bytes that a call moves if it reads and writes each tensor once; raise RefusedError for an unknown
    dtype."""
    for argument in call.arguments:
        if not _is_number(argument) and argument.dtype not in ITEMSIZE:
            raise RefusedError(f"the bytes of an element of {argument.dtype!r:.40} are not known")
    # Not strict: the launcher of a Triton template takes numbers that the kernel does not take.
    uses_and_arguments = zip(parameter_uses(kernel), call.arguments, strict=False)
    return sum((use.reads + use.writes) * argument_bytes(argument) for use, argument in uses_and_arguments)


def _is_number(argument: KernelArgument) -> bool:
    """Whether an argument is a number; `bool` is a dtype of tensors and of numbers."""
    return argument.value is not None or argument.dtype in NUMBER_TYPES


def argument_bytes(argument: KernelArgument) -> int:
    """Return the bytes of the distinct elements of a tensor: gaps do not count, and elements of an expanded dimension
    (stride 0) count once. A number has 0 bytes, and an element of an unknown dtype counts as one byte."""
    if _is_number(argument):
        return 0
    if 0 in argument.shape:
        return 0
    sizes_and_strides = zip(argument.shape, argument.stride, strict=True)
    count = math.prod(size for size, stride in sizes_and_strides if stride != 0)
    return count * ITEMSIZE.get(argument.dtype, 1)


# ------------------------------------------------------------------ the parts of a file

LINE_WIDTH = 116
"""The most characters of a line of data."""


def _safe_comment(text: str) -> str:
    """Return an untrusted text for a line of comments: characters that are not printable are escaped, so that the text
    cannot begin a new line."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def header(kernel: Kernel, usage: str) -> str:
    """Return the comments at the head of a file: what is known of the kernel, the operators that it computes, with
    their source lines, and `usage`, which says what running and importing the file do."""
    facts = {
        "name": kernel.name,
        "hash": kernel.hash,
        "sample": kernel.sample,
        "direction": kernel.direction,
        "target": kernel.target,
        "compiler": kernel.compiler,
    }
    lines = [MARK, "# It needs torch and triton, and nothing else.", "#"]
    lines += [f"# {title + ':':<12}{_safe_comment(value)}" for title, value in facts.items() if value]
    lines += ["#", "# It computes:"] if kernel.operators else []
    for operator in kernel.operators:
        where = f"    {_safe_comment(operator.line)}" if operator.line else ""
        lines.append(f"#     {_safe_comment(operator.operator)}{where}")
    lines += ["#", *(f"# {line}".rstrip() for line in usage.splitlines())]
    return "\n".join(lines)


VALUES_NOTE = """\
make(call) makes the arguments of a recorded call with seeded values: those of a tensor lie between the least and the
largest value that it had when the program ran on its own inputs, so no index is outside of its tensor. Of a tensor that
the program does not keep, such as one between two kernels, neither is known: floating-point numbers lie between 0.1 and
1 there, where roots and logarithms are defined, and integers are 0. What the kernel only writes begins as zeros.
Tensors that share memory in the program have their own memory here."""
"""The comment in a file about the values of its arguments."""


def template(name: str) -> str:
    """Return the code of `bodies/NAME.txt`, which is copied into files as it is: `common` into all, the others
    where they are needed."""
    return files("backprint.tools.kernels").joinpath("bodies", f"{name}.txt").read_text(encoding="utf-8").rstrip()


def call_counts(kernel: Kernel) -> dict[KernelCall, int]:
    """Return the distinct calls of a kernel, with how often each was made."""
    counts: dict[KernelCall, int] = {}
    for call in kernel.calls:
        counts[call] = counts.get(call, 0) + 1
    return counts


def call_rows(kernel: Kernel, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the distinct calls of a kernel as plain data for its file; `names` are those of its arguments. A tensor
    has the range of values between which the file draws it."""
    names_read = {use.name for use in parameter_uses(kernel) if use.reads and not WRITTEN_ONLY.fullmatch(use.name)}
    rows: list[dict[str, Any]] = []
    for call, count in call_counts(kernel).items():
        arguments: list[dict[str, Any]] = []
        for name, argument in zip(
            names, call.arguments, strict=False
        ):  # more: a template takes numbers that the kernel does not
            if _is_number(argument):
                arguments.append({"name": name, "value": argument.value})
                continue
            layout = {"dtype": argument.dtype, "shape": argument.shape, "stride": argument.stride}
            between = _fill_range(argument) if name in names_read else (0, 0)  # zeros, if the kernel only writes it
            arguments.append({"name": name, **layout, "between": between})
        grids = {"grids": list(call.grids)} if call.grids else {}
        rows.append({"arguments": arguments, "bytes": minimum_bytes(call, kernel), "times": count, **grids})
    return rows


def _fill_range(argument: KernelArgument) -> tuple[float, float]:
    """Return the least and the largest value to fill a tensor with: those that it had, or the default that VALUES_NOTE
    explains."""
    floating = argument.dtype.startswith(("float", "bfloat"))
    if argument.low is None or argument.high is None:
        return (0.1, 1.0) if floating else (0, int(argument.dtype == "bool"))
    return (argument.low, argument.high) if floating else (int(argument.low), int(argument.high))


def literal(value: Any, indent: int = 0) -> str:
    """Return plain data as a Python literal, on several lines if it does not fit on one. `indent` is the column of its
    last line."""
    if isinstance(value, str) and "\n" in value:
        return long_text(value)
    line = _one_line_literal(value)
    if len(line) + indent <= LINE_WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = " " * (indent + 4)
    if isinstance(value, dict):
        rows = [f"{inner}{_one_line_literal(key)}: {literal(item, indent + 4)}," for key, item in value.items()]
    else:
        rows = [f"{inner}{literal(item, indent + 4)}," for item in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return "\n".join([opening, *rows, " " * indent + closing])


def _one_line_literal(value: Any) -> str:
    """Return plain data as a Python expression on one line: a literal, with `float("inf")` and its like for numbers
    that are not finite."""
    match value:
        case dict():
            return (
                "{"
                + ", ".join(f"{_one_line_literal(key)}: {_one_line_literal(item)}" for key, item in value.items())
                + "}"
            )
        case list():
            return "[" + ", ".join(map(_one_line_literal, value)) + "]"
        case tuple():
            return "(" + ", ".join(map(_one_line_literal, value)) + ("," if len(value) == 1 else "") + ")"
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
