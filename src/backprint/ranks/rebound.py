"""Globals that a program assigns where it sets up its ranks, such as its groups: each rank has its own, as it has in a
process of its own.

Of all globals, those count that a function assigns (`global group`) in a module that works with `torch.distributed`.
Others stay the process's: a library that sets itself up once is not set up again.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

Value = tuple[dict[str, Any], str, Any]
"""What a global is: the globals of its module, its name, and its value, NOT_THERE before it is assigned."""

NOT_THERE: Any = object()

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


class AssignedGlobals:
    """The globals that functions assign in modules that work with `torch.distributed`."""

    def __init__(self) -> None:
        self.places: list[tuple[dict[str, Any], str]] = []
        self.known: set[str] = set()

    def values(self) -> list[Value]:
        """Return what each is now. Modules that were imported since the last time count, too."""
        for name in sys.modules.keys() - self.known if len(sys.modules) != len(self.known) else ():
            self.known.add(name)
            module = sys.modules[name]
            self.places += ((vars(module), target) for target in assigned_in(module))
        return [(table, name, table.get(name, NOT_THERE)) for table, name in self.places]


def set_globals(values: Sequence[Value]) -> None:
    """Assign globals."""
    for table, name, value in values:
        if value is NOT_THERE:
            table.pop(name, None)
        elif table.get(name, NOT_THERE) is not value:
            table[name] = value


@contextlib.contextmanager
def with_globals(values: Sequence[Value]) -> Iterator[None]:
    """Assign globals, and what they were again."""
    before = [(table, name, table.get(name, NOT_THERE)) for table, name, _ in values]
    set_globals(values)
    try:
        yield
    finally:
        set_globals(before)


def assigned_in(module: Any) -> list[str]:
    """Return the globals that the functions of a module assign, if it works with `torch.distributed`."""
    name = getattr(module, "__name__", "")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    is_library = package in OWN or (package in sys.stdlib_module_names and package != "__main__")
    if is_library or not isinstance(module, ModuleType):
        return []
    table = dict(vars(module))
    codes = [code for value in table.values() for own in codes_of(value, name) for code in codes_inside(own)]
    targets = [target for code in codes for target in assigned_by(code)]
    is_distributed = targets and (
        any(map(is_of_distributed, table.values())) or any("distributed" in code.co_names for code in codes)
    )
    return list(dict.fromkeys(targets)) if is_distributed else []


def is_of_distributed(value: Any) -> bool:
    """Whether a value is of `torch.distributed`: the module, or a function, class or object of it."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("torch.distributed")
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(kind.__module__).startswith("torch.distributed")


def codes_of(value: Any, module: str) -> Iterator[CodeType]:
    """Yield the code of a function, or of the methods of a class, that a module defines."""
    functions = [value]
    if isinstance(value, type) and value.__module__ == module:
        members = vars(value).values()
        functions = [member.fget if isinstance(member, property) else member for member in members]
        functions = [f.__func__ if isinstance(f, (staticmethod, classmethod)) else f for f in functions]
    for function in functions:
        if isinstance(function, FunctionType):
            own = inspect.unwrap(function)
            if isinstance(own, FunctionType) and own.__module__ == module:
                yield own.__code__


def codes_inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_inside(constant)


def assigned_by(code: CodeType) -> Iterator[str]:
    """Yield the globals that a function assigns."""
    if STORE in code.co_code[::2]:
        yield from (step.argval for step in dis.get_instructions(code) if step.opcode == STORE)


STORE = dis.opmap["STORE_GLOBAL"]
