"""What functions, classes and modules of the user's reach, as one digest: equal names do not make them equal.

A function reaches its code, closure, defaults, annotations and attributes, and the global variables that its code
names; of a module those attributes that the code names. A class reaches its bases, its metaclass and everything in its
body. All of that is followed as far as it goes, once for each object; what Python's own library, torch or numpy defines
is known by its name, and what an installed package defines by its name and its own code.

Tensors, modules (`nn.Module`) and what has no description (a lock, an open file) are not read: they are `held`, and
compared by identity while the captured program lives.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from backprint.likeness.texts import (
    NUMBERS_AND_TEXTS,
    Like,
    attributes_of,
    class_name,
    describe_code,
    global_names,
    is_array,
    is_empty,
    is_installed,
    is_library,
    is_library_name,
    likeness_digest,
    plain_text,
    type_name,
)

MOST = 20_000
"""The most objects that are followed from one value; a value that reaches more is compared by identity too."""

UNSAID = frozenset(
    "__module__ __qualname__ __name__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ __slotnames__ "
    "__abstractmethods__ _abc_impl __annotate__ __annotate_func__ __annotations_cache__ "
    "__builtins__ __loader__ __spec__ __file__ __cached__ __path__ __package__".split()
)
"""Names in a class body or a module that say where it is, or that Python itself keeps there."""


class Reach:
    """Walks what values reach: a row for each object, in the order in which they are met."""

    def __init__(self) -> None:
        self.rows: list[Like] = []
        self.places: dict[int, int] = {}
        self.kept: list[Any] = []
        self.held: list[Any] = []
        self.queue: deque[Any] = deque()

    def digest(self, value: Any) -> str:
        """Return the digest of everything that a value reaches; of a module, of all that it has."""
        self.place(value)
        if isinstance(value, types.ModuleType):
            self.rows.append(self.named(vars(value)))
        while self.queue and len(self.rows) < MOST:
            self.rows.append(self.row(self.queue.popleft()))
        if self.queue:
            self.held.append(value)
        return likeness_digest(self.rows)

    def place(self, value: Any) -> Like:
        """Return a value as a text if it has no parts, else the number of its row."""
        if (text := plain_text(value)) is not None:
            return text
        if id(value) not in self.places:
            self.places[id(value)] = len(self.places)
            self.kept.append(value)  # a number is an object's as long as it lives
            self.queue.append(value)
        return self.places[id(value)]

    def all(self, values: Any) -> list[Like]:
        """Return the places of several values."""
        return [self.place(value) for value in values]

    def named(self, values: Mapping[Any, Any]) -> list[Like]:
        """Return the places of named values, by name."""
        return [[name, self.place(values[name])] for name in sorted(values, key=str) if name not in UNSAID]

    def row(self, value: Any) -> Like:
        """Return one object, its parts as places."""
        match value:
            case type():
                return self.of_class(value)
            case types.FunctionType():
                return self.of_function(value)
            case types.ModuleType():
                return ["module", value.__name__]
            case types.MethodType():
                return ["method", self.place(value.__func__), self.place(value.__self__)]
            case staticmethod() | classmethod():
                return [type_name(value), self.place(value.__func__)]
            case property():
                return ["property", *self.all((value.fget, value.fset, value.fdel))]
            case functools.partial():
                return ["partial", *self.all((value.func, value.args, value.keywords))]
            case functools.cached_property():
                return ["cached_property", self.place(value.func)]
            case Tensor():
                self.held.append(value)
                return ["tensor", str(value.dtype), str(list(value.shape))]
            case nn.Module() | torch.optim.Optimizer() | torch.Generator():
                return self.of_held(value)
            case types.CodeType():
                return ["code", likeness_digest(describe_code(value))]
            case weakref.WeakKeyDictionary():
                return ["weak table"]  # an object's own entry is a part of its likeness
            case slice():
                return ["slice", *self.all((value.start, value.stop, value.step))]
        if is_array(value) and not value.dtype.hasobject:
            return ["array", value.dtype.str, list(value.shape), likeness_digest(value.tobytes())]
        return self.of_object(value)

    def of_class(self, kind: type) -> Like:
        """Return a class: by name where it is a library's, else its bases and its body."""
        head = ["class", class_name(kind)]
        if is_library(kind):
            return head
        body = dict(vars(kind))
        if issubclass(kind, enum.Enum):
            body = {name: each for name, each in body.items() if not name.startswith("_")}
            body["members"] = [[member.name, member._value_] for member in kind]
        above = kind.__dict__.get("__orig_bases__", kind.__bases__)
        return [*head, self.place(type(kind)), self.all(kind.__bases__), self.all(above), self.named(body)]

    def of_function(self, function: types.FunctionType) -> Like:
        """Return a function: by name where it is a library's, else its code and what that names."""
        head = ["function", f"{function.__module__}.{function.__qualname__}"]
        if is_library(function):
            return head
        code = function.__code__
        head.append(likeness_digest([*code_facts(code), describe_code(code)]))
        cells = [None if is_empty(cell) else self.place(cell.cell_contents) for cell in function.__closure__ or ()]
        given = (function.__defaults__, function.__kwdefaults__, function.__annotations__)
        own = self.all((function.__name__, function.__doc__, *given))
        named = (
            [] if is_installed(function.__module__) else [[name, self.place(each)] for name, each in read_by(function)]
        )
        return [*head, cells, *own, self.named(function.__dict__), named]

    def of_object(self, value: Any) -> Like:
        """Return a container or an object: its class, its elements and its attributes."""
        head = [type_name(value), self.place(type(value))]
        wrapped = getattr(value, "__wrapped__", None) if is_library(type(value)) else None
        if isinstance(wrapped, types.FunctionType):  # a cached function
            return [*head, self.place(wrapped)]
        match value:
            case dict() | types.MappingProxyType():
                head.append([[self.place(key), self.place(each)] for key, each in value.items()])
            case list() | tuple():
                head.append(self.all(value))
            case set() | frozenset():
                head.append(self.all(sorted(value, key=lambda each: (type_name(each), json.dumps(plain_text(each))))))
        for kind in NUMBERS_AND_TEXTS:
            if issubclass(type(value), kind):
                head.append(kind.__repr__(value))
        if is_library(type(value)) and len(head) == 2:
            return self.of_library_object(head, value)
        own = attributes_of(value)
        if own is None and len(head) == 2:
            return self.of_held(value)
        return [*head, self.named(own or {})]

    def of_library_object(self, head: list[Like], value: Any) -> Like:
        """Return an object of a library as pickle would keep it."""
        if type(value).__module__ == "itertools":  # Python warns that pickling these is deprecated
            return self.of_held(value)
        try:
            made = value.__reduce_ex__(2)
        except Exception:  # whatever it raises, it cannot be made again
            return self.of_held(value)
        return [*head, made] if isinstance(made, str) else [*head, self.all(made[:3])]

    def of_held(self, value: Any) -> Like:
        """Return a value that can be compared only by identity."""
        self.held.append(value)
        return ["held", type_name(value)]


CALLED_AS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
"""Flags of code that say how it is called; others say where it was compiled."""


def code_facts(code: types.CodeType) -> list[Like]:
    """Return what a code object says beside its instructions: how it is called, and where it catches."""
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & CALLED_AS]
    inner = [code_facts(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return [counts, list(code.co_cellvars), code.co_exceptiontable.hex(), inner]


def read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global variables that a function's code names; of the user's modules, the attributes that it names."""
    read, imported, attributes = global_names(function.__code__)
    scope = function.__globals__
    values = [(name, scope[name]) for name in read if name in scope]
    values += [(name, sys.modules[name]) for name in imported if name in sys.modules]
    for name, value in values:
        yield name, value
        if isinstance(value, types.ModuleType) and not is_library_name(value.__name__):
            own = vars(value)
            yield from ((f"{name}.{each}", own[each]) for each in attributes if each in own and each not in UNSAID)


def plain_parts(value: Any) -> dict[str, Like]:
    """Return the parts of a function, a class or a module that are plain values, by name: a message can tell them."""
    parts = dict(read_by(value)) if isinstance(value, types.FunctionType) else dict(vars(value))
    texts = {name: plain_text(each) for name, each in sorted(parts.items()) if name not in UNSAID}
    return {name: text for name, text in texts.items() if text is not None}
