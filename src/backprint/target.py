"""A TARGET of the command line: `file.py:factory` or `package.module:factory`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backprint.errors import UsageError


def read_target(text: str, fake: bool = False) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What the factory of a TARGET gives: a callable, its arguments and keyword arguments; with `fake`, no values."""
    factory = function_of(text)
    with building(fake):
        made = factory()
    if isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0]):
        model, args, *rest = made
        kwargs = rest[0] if rest else {}
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        if isinstance(kwargs, dict):
            return model, args, kwargs
    raise UsageError(f"{text}: the factory must give (model, args) or (model, args, kwargs), not {_kind(made)}")


def building(fake: bool) -> Any:
    """Where nothing that is made is allocated, if `fake` says so."""
    import backprint as bp

    return bp.fake() if fake else contextlib.nullcontext()


def _kind(value: Any) -> str:
    return (
        f"({', '.join(type(item).__name__ for item in value)})"
        if isinstance(value, tuple)
        else f"a {type(value).__name__}"
    )


def function_of(text: str) -> Callable[..., Any]:
    """The function that `file.py:name` or `package.module:name` names. This runs the file, as importing it does."""
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        hint = (
            " (this is a folder: `backprint verify` and `backprint show` take samples)" if Path(text).is_dir() else ""
        )
        raise UsageError(f"{text!r} is no TARGET: write file.py:factory or package.module:factory{hint}")
    module = from_file(Path(place)) if place.endswith(".py") else from_name(place)
    found = getattr(module, name, None)
    if not callable(found):
        names = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{place} has no function {name!r}; it has {names[:300] or 'none'}")
    return found


def from_file(path: Path) -> Any:
    """A Python file as a module, its folder importable as for a script."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def from_name(name: str) -> Any:
    """A module by its dotted name, seen from the current folder."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: no module {error.name!r} (the current folder is searched first)") from error
