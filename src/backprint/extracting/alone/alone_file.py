"""Write a kernel as one file of Python that runs by itself, with its recorded calls: with torch and triton, or with
torch and a C++ compiler.

    MARK                                  by which `read` knows such a file
    # name, hash, sample, operators       comments
    NAME, CALLS, CONFIGURATIONS, ...      what was recorded, as plain data
    the kernel                            a function in Triton, or C++ as a text
    make, launch, run, main               the texts in `bodies`

Names, lines of programs and sources come from strangers: in comments every letter that is not printable is an escape,
and in code they are literals of Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from backprint.errors import RefusedError
from backprint.extracting.alone.alone_draws import Draw
from backprint.extracting.nouns import Kernel, KernelCall
from backprint.extracting.programs.read_alone import MARK
from backprint.extracting.traffic import holds_number, least_bytes
from backprint.graph.text import quote

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
    return files("backprint.extracting.alone").joinpath("bodies", f"{name}.txt").read_text(encoding="utf-8").rstrip()


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
