"""The compiler of a name, for `minify`: a backend of torch.compile, `package.module:function` or `file.py:function`.

A function takes a graph and its inputs, as a backend of torch.compile does, and is called without torch.compile.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backprint.benching.subjects import Compile
from backprint.errors import UsageError


def compile_function(name: str) -> Compile:
    """Return the function that compiles with this name; raise UsageError if there is none."""
    place, colon, function = name.rpartition(":")
    return user_function(place, function) if colon else torch_backend(name)


def user_function(place: str, name: str) -> Compile:
    """Import a function of the user's own, and so execute its file."""
    try:
        if place.endswith(".py"):
            sys.path.insert(0, str(Path(place).resolve().parent))
            found = runpy.run_path(place).get(name)
        else:
            sys.path.insert(0, "")
            found = getattr(importlib.import_module(place), name, None)
    except Exception as error:  # a user's file may raise anything
        raise UsageError(f"compiler {place}:{name}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UsageError(f"compiler {place}:{name}: {place} has no function {name!r}")
    made: Compile = found
    return made


def torch_backend(name: str) -> Compile:
    """Return what compiles a graph through torch.compile with this backend."""
    known = torch.compiler.list_backends(exclude_tags=())
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise UsageError(f"no compiler is called {name!r}: {meant} A function of yours is file.py:function")
    options: dict[str, Any] = {"options": {"fallback_random": True}} if name == "inductor" else {}

    def compiled(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return torch.compile(module, backend=name, fullgraph=True, dynamic=False, **options)

    return compiled


def backend_in_file(name: str) -> str | None:
    """Return the backend with which an exported file can show what this compiler does; None if torch.compile cannot."""
    return name if ":" in name or name in torch.compiler.list_backends(exclude_tags=()) else None


def compiler_versions(name: str) -> str:
    """Return the versions of torch and of what a compiler is imported from, as text."""
    found = [f"torch {torch.__version__}"]
    package = name.partition(":")[0].partition(".")[0]
    if not name.partition(":")[0].endswith(".py"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found)
