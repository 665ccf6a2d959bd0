"""Reads the files that `alone` writes back as kernels: the same program, and so the same hash, as in the wrapper.

The files are parsed, never imported. Beside the wrapper that a kernel came from (in its folder, or in the one above)
its file is a copy and yields nothing, as long as its program is the one that was saved. An edited one is a kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backprint.errors import RefusedError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.normal import LARGEST
from backprint.extracting.programs.normal_triton import parse_module

MARK = "# A kernel that Backprint saved"
"""The first line of each file. Python looks for an encoding in the first two lines, so nothing of others is there."""

WRAPPERS = ("wrapper.py", "output_code.py")
"""The names of files with the wrapper of a graph."""

RECORDED = ("NAME", "HASH", "WRITTEN_AS", "SOURCE")
"""What is read of a file."""

FACTS = ("target", "declared", "compiler", "isa", "sample", "direction")
"""What WRITTEN_AS says of a kernel, as texts."""


def saved_kernels(text: str, place: str) -> Iterator[Kernel]:
    """Yield the kernel of a file that `alone` wrote, unless the wrapper beside it has the same."""
    if len(text) > 2 * LARGEST:
        raise RefusedError(f"{place}: a source of {len(text)} characters; the limit is {2 * LARGEST}")
    tree = parse_module(text, place)
    recorded = recorded_values(tree, place)
    name, said = recorded.get("NAME"), recorded.get("WRITTEN_AS", {})
    if not isinstance(name, str) or not said or not is_record(said):
        raise RefusedError(f"{place}: it begins as a kernel that Backprint saved, and has no NAME or WRITTEN_AS")
    if "SOURCE" in recorded:
        language, source = "cpp", recorded["SOURCE"]
    else:
        language, source = "triton", module_source(tree, text, said, place)
    if not isinstance(source, str):
        raise RefusedError(f"{place}: its SOURCE is no text")
    fact = {name: str(said.get(name) or "") for name in FACTS}
    threads = said.get("threads") if isinstance(said.get("threads"), int) else None
    kernel = Kernel(
        language, name, source, fact["target"], fact["declared"], compiler=fact["compiler"], threads=threads,
        isa=fact["isa"], sample=fact["sample"], direction=fact["direction"],
    )  # fmt: skip
    if not (has_wrapper(Path(place)) and recorded.get("HASH") == kernel.hash):
        yield kernel


def is_record(said: object) -> bool:
    """Whether what a file says of its kernel is a mapping of texts, of numbers and of lists of texts."""
    return isinstance(said, Mapping) and all(
        all(isinstance(one, str) for one in value) if isinstance(value, list) else isinstance(value, str | int | None)
        for value in said.values()
    )


def recorded_values(tree: ast.Module, place: str) -> dict[str, Any]:
    """Return the values of a file's own names; one that is no literal raises RefusedError."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in RECORDED:
                try:
                    found[name] = ast.literal_eval(value)
                except (ValueError, TypeError, SyntaxError, RecursionError) as error:
                    raise RefusedError(f"{place}: line {node.lineno}: {name} is no plain data ({error})") from error
    return found


def module_source(tree: ast.Module, text: str, said: Mapping[str, Any], place: str) -> str:
    """Return the module that the compiler wrote: its imports, and its functions with its decorator."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    statements, imports = said.get("statements"), said.get("imports")
    if not isinstance(statements, list) or not isinstance(imports, list) or not set(functions) & set(statements):
        raise RefusedError(f"{place}: it does not say which of its functions are the kernel's")
    parts = list(imports)
    for statement in statements:
        function = functions.get(statement)
        if function is None:
            parts.append(statement)
            continue
        first = min([function.lineno, *(mark.lineno for mark in function.decorator_list)])
        decorator = said.get("decorator") if statement == statements[-1] else ""
        parts += [decorator] if decorator else []
        parts.append("\n".join(lines[first - 1 : function.end_lineno]))
    return "\n".join(parts) + "\n"


def has_wrapper(place: Path) -> bool:
    """Whether a wrapper is in the folder of a file, or in the one above."""
    return any((folder / name).is_file() for folder in (place.parent, place.parent.parent) for name in WRAPPERS)
