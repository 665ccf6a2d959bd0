"""The function that a text names, `file.py:name` or `package.module:name`: a factory, a loss, a compiler.

A *factory* is a function without arguments that returns a model and its inputs, `(model, args)`. A text may also name
an item of a dict or a list of factories, by its key in brackets: `file.py:MODELS[small]`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from backprint.errors import SeveralError, UsageError

TARGET = re.compile(r"(?P<place>.+):(?P<name>[^:\[\]]+)(?:\[(?P<key>.+)\])?", re.DOTALL)

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
    """Return the function that `file.py:name`, `package.module:name` or `file.py:DICT[key]` names. The file is
    imported, and so executed. SeveralError if the name is that of a dict or a list of functions; UsageError if it is
    that of no function."""
    if text.endswith(".py") and Path(text).is_file():
        names = ", ".join(f"{text}:{name}" for name in functions_of(Path(text))) or "it has none at its top level"
        raise UsageError(f"{text}: name the function that returns the model and its inputs: {names}")
    parts = TARGET.fullmatch(text)
    if parts is None or not parts["name"].isidentifier():
        raise UsageError(
            f"{text!r} is not a TARGET: write file.py:factory, package.module:factory, or the folder of a sample, "
            "or name a model: hf:gpt2, timm:resnet18"
        )
    place, name, key = parts["place"], parts["name"], parts["key"]
    module = _import_file(Path(place)) if place.endswith(".py") else _import_by_name(place)
    value = getattr(module, name, None)
    several = _by_key(value)  # empty for a function
    if key is not None:
        return _one_of(f"{place}:{name}", several, key)
    if several:
        first = next(iter(several))
        raise SeveralError(
            f"{text} is a {type(value).__name__} of {len(several)}: name one, {text}[{first}]; "
            f"`backprint capture {text} -o DIR` captures all",
            several,
        )
    if isinstance(value, (Mapping, list, tuple)):
        raise UsageError(f"{text} is an empty {type(value).__name__}: put functions in it that return (model, args)")
    if not callable(value):
        names = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{place} has no function {name!r}; it has {names[:300] or 'none'}")
    return value


def _by_key(value: Any) -> dict[str, Any]:
    """Return the items of a dict or a list by their keys, as texts; empty for another value. An item of a list has its
    own name, if no other has it, or its index; a text, such as the name of a model, is its own name."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        return {}
    names = [item if isinstance(item, str) else getattr(item, "__name__", "") for item in value]
    return {
        # `<lambda>`, the name of many, is no identifier.
        name if name.isidentifier() and names.count(name) == 1 else str(index): item
        for index, (name, item) in enumerate(zip(names, value, strict=True))
    }


def _one_of(text: str, several: Mapping[str, Any], key: str) -> Callable[..., Any]:
    """Return the function of a key, which may stand in quotation marks, among `several`; `text` names these in an
    error."""
    key = key[1:-1] if len(key) > 2 and key[0] == key[-1] and key[0] in "'\"" else key
    if key not in several:
        has = ", ".join(several) or "no items: it is no dict and no list of functions"
        raise UsageError(f"{text} has no key {key!r}; it has {has[:300]}")
    return factory_of(f"{text}[{key}]", several[key])


def factory_of(text: str, value: Any) -> Callable[..., Any]:
    """Return the function that an item of a dict or a list is; an item (model, args) as the function that returns it.
    `text` names the item in an error."""
    if isinstance(value, tuple):
        return lambda: value
    if isinstance(value, str):
        raise UsageError(f"{text} is the text {value!r:.80}: if it names a model, capture {value!r:.80}")
    if not callable(value) or hasattr(value, "named_parameters"):  # which a torch.nn.Module has
        what = f"the module {type(value).__name__}" if callable(value) else f"a {type(value).__name__}"
        raise UsageError(f"{text} is {what}, not a function: write lambda: (model, args)")
    factory: Callable[..., Any] = value
    return factory


def _import_file(path: Path) -> Any:
    """Import a Python file and return the module, with its folder on sys.path as for a script. A file with relative
    imports is imported as the module of its package that it is."""
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
        # Python's message for a relative import in a file that is no module of a package.
        if "no known parent package" not in str(error) or not (path.resolve().parent / "__init__.py").is_file():
            raise
        del sys.modules[path.stem]
        return _import_of_package(path.resolve())
    return module


def _import_of_package(path: Path) -> Any:
    """Import a file that has relative imports as the module that it is of its package, and return the module. The first
    folder of sys.path, which is the file's, is replaced by the one that the top package is in."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    sys.path[0] = str(root)
    return importlib.import_module(".".join(names))


def _import_by_name(name: str) -> Any:
    """Import a module by its dotted name, with the current folder on sys.path, and return it."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: no module {error.name!r} (the current folder is searched first)") from error
