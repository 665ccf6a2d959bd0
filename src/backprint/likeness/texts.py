"""Values without parts as texts, digests of larger ones, names of types, and what objects and functions consist of."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from backprint._torch.operators import OpOverload, OpOverloadPacket

Like = Any
"""A likeness: a text, or a JSON object."""

LONGEST = 2000
"""Texts up to so many characters are kept whole; of a longer one, its beginning and its digest."""


def likeness_digest(like: Like) -> str:
    """The SHA-256 of JSON or of bytes, in 32 hex digits."""
    content = like if isinstance(like, bytes) else json.dumps(like, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def type_name(value: Any) -> str:
    """A value's type by module and name."""
    return class_name(type(value))


def class_name(kind: type) -> str:
    """A type by module and name; Python's own by name alone."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "torchgen", "functorch", "numpy", "backprint"))
"""Packages whose functions and classes are known by their names."""


def is_library_name(module: str | None) -> bool:
    """Whether a module is of Python's own library, of torch or of numpy."""
    return str(module or "").partition(".")[0] in LIBRARIES


def is_library(value: Any) -> bool:
    """Whether a function or a class is of Python's own library, of torch or of numpy.

    A class that is made by a function of the library (`make_dataclass`) says that it is the library's, and is not.
    """
    module = getattr(value, "__module__", None)
    if module == "types" and isinstance(value, type):
        return hasattr(types, value.__name__)
    return is_library_name(module)


def is_installed(module: str | None) -> bool:
    """Whether a module is of a package that is installed, rather than the user's own code."""
    file = getattr(sys.modules.get(str(module)), "__dict__", {}).get("__file__") or ""
    return "site-packages" in file or "dist-packages" in file


EXACT = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
"""Types whose `repr` determines the value: a float's bits, except that all NaN are one."""

NUMBERS_AND_TEXTS = (int, float, complex, str, bytes)
"""Types of which a user's class may be: its number or text is a part of the value."""

TORCHES = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def plain_text(value: Any) -> Like | None:
    """The likeness of a value without parts; None where it has some."""
    kind = type(value)
    if kind in EXACT:
        return shorten_text(int_text(value) if kind is int else repr(value))
    if isinstance(value, enum.Enum) and is_library(kind):
        return f"{type_name(value)}.{value.name}"
    if isinstance(value, TORCHES):
        return str(value)
    if kind is torch.device:
        return f"device {value}"
    if isinstance(value, type) and is_library(value):
        return f"class {class_name(value)}"
    if isinstance(value, types.ModuleType) and is_library_name(value.__name__):
        return f"module {value.__name__}"
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, (types.ModuleType, type(None))):
        return None
    if isinstance(value, (types.BuiltinFunctionType, OpOverload, OpOverloadPacket)):
        return f"builtin {getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value)}"
    return None


def int_text(value: int) -> str:
    """A whole number's digits; Python refuses to print very long ones in tens."""
    return repr(value) if abs(value) < 2**1024 else hex(value)


def shorten_text(text: str) -> Like:
    """A text, or of a long one its beginning and its digest."""
    if len(text) <= LONGEST:
        return text
    return {"text": text[:60], "length": len(text), "digest": likeness_digest(text.encode(errors="surrogatepass"))}


def is_array(value: Any) -> bool:
    """Whether a value is numpy's; numpy need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_empty(cell: Any) -> bool:
    """Whether a closure's cell has nothing in it yet."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def describe_code(code: types.CodeType) -> Like:
    """Describe a function's code: instructions, names, constants, and the code of functions inside."""
    constants = [
        describe_code(each) if isinstance(each, types.CodeType) else describe_code_constant(each)
        for each in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), list(code.co_freevars), constants]


def describe_code_constant(value: Any) -> str:
    """Describe a constant of a function's code; a set is sorted."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object itself; None where it has neither `__dict__` nor slots."""
    kind: Any = type(value)
    slots = [name for each in kind.__mro__ for name in slot_names(each)]
    own = getattr(value, "__dict__", None) if has_plain_dict(kind) else None
    if own is None and not slots:
        return None
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | dict(own or {})


@functools.cache
def has_plain_dict(kind: Any) -> bool:
    """Whether `__dict__` is where objects of a class keep their attributes, and no property of the class's own."""
    return not any(isinstance(vars(each).get("__dict__"), property) for each in kind.__mro__)


def slot_names(kind: type) -> Iterator[str]:
    """The attributes that a class keeps in slots."""
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        if name not in ("__dict__", "__weakref__"):
            yield name if not name.startswith("__") or name.endswith("__") else f"_{kind.__name__.lstrip('_')}{name}"


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names that a function's code uses: global variables, imported modules, and attributes.

    Those of functions inside are included.
    """
    read, imported, attributes = dict[str, None](), dict[str, None](), dict[str, None]()
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            read[str(step.argval)] = None
        elif step.opname == "IMPORT_NAME":
            imported[str(step.argval)] = None
        elif step.arg is not None and step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            attributes[str(step.argval)] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for names, more in zip((read, imported, attributes), global_names(constant), strict=True):
                names |= dict.fromkeys(more)
    return tuple(sorted(read)), tuple(sorted(imported)), tuple(sorted(attributes))
