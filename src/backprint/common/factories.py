"""The function that a text names, `file.py:name` or `package.module:name`: a factory, a loss, a compiler."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backprint.errors import UsageError

MOST_NAMED = 8
"""So many functions of a file are named."""


def functions_of(file: Path) -> list[str]:
    """Return the names of a file's first functions that can be called without arguments; the file is only parsed."""
    try:
        nodes = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return [each.name for each in functions if len(each.args.args) <= len(each.args.defaults)][:MOST_NAMED]


def find_factory(text: str) -> Callable[..., Any]:
    """Find the function that `file.py:name` or `package.module:name` names. The file is imported, and so executed."""
    place, colon, name = text.rpartition(":")
    if not colon and text.endswith(".py") and Path(text).is_file():
        names = ", ".join(f"{text}:{name}" for name in functions_of(Path(text))) or "it has none at its top level"
        raise UsageError(f"{text}: name the function that returns the model and its inputs: {names}")
    if not colon or not name.isidentifier():
        raise UsageError(
            f"{text!r} is not a TARGET: write file.py:factory, package.module:factory, or the folder of a sample, "
            "or name a model: hf:gpt2, timm:resnet18"
        )
    module = _import_file(Path(place)) if place.endswith(".py") else _import_by_name(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        names = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{place} has no function {name!r}; it has {names[:300] or 'none'}")
    return factory


def _import_file(path: Path) -> Any:
    """Import a Python file, with its folder on sys.path as for a script."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if "no known parent package" not in str(error) or not (path.resolve().parent / "__init__.py").is_file():
            raise
        del sys.modules[path.stem]
        return _import_of_package(path.resolve())
    return module


def _import_of_package(path: Path) -> Any:
    """Import a file that has relative imports as the module that it is of its package."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    sys.path[0] = str(root)
    return importlib.import_module(".".join(names))


def _import_by_name(name: str) -> Any:
    """Import a module by its dotted name, with the current folder on sys.path."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: no module {error.name!r} (the current folder is searched first)") from error
