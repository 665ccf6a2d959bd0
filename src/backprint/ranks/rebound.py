"""What a program assigns and changes where it sets up its ranks, such as its groups: each rank has its own, as it has
in a process of its own.

Of all modules, those count that work with `torch.distributed`: in each, the globals that a function assigns (`global
group`), and, unless it is an installed package's, what the dictionaries, lists, sets, classes and objects hold that its
globals lead to (`STATE["group"]`, `Parallel.group`). Others stay the process's: a library that sets itself up once is
not set up again.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from backprint.tracing.reach import is_users_module

NOT_THERE: Any = object()

OWN = ("torch", "backprint")
"""Packages whose globals are not a program's."""


class Place(Protocol):
    """Where a program keeps something."""

    def read(self) -> Any:
        """Return what is there."""

    def write(self, value: Any) -> None:
        """Put there what `read` returned."""


Value = tuple[Place, Any]
"""A place, and what is there."""


class Global(NamedTuple):
    """A global of a module by its name: what is there is NOT_THERE before it is assigned."""

    table: dict[str, Any]
    name: str

    def read(self) -> Any:
        return self.table.get(self.name, NOT_THERE)

    def write(self, value: Any) -> None:
        if value is NOT_THERE:
            self.table.pop(self.name, None)
        elif self.read() is not value:
            self.table[self.name] = value


class Items(NamedTuple):
    """What a dictionary, a list or a set holds."""

    container: Any

    def read(self) -> Any:
        return list(self.container.items() if isinstance(self.container, dict) else self.container)

    def write(self, value: Any) -> None:
        if not are_same(self.read(), value):
            self.container.clear()
            (self.container.extend if isinstance(self.container, list) else self.container.update)(value)


class ClassAttributes(NamedTuple):
    """The attributes of a class that are not its methods."""

    kind: type

    def read(self) -> Any:
        return [(name, value) for name, value in vars(self.kind).items() if not is_of_definition(name, value)]

    def write(self, value: Any) -> None:
        now = self.read()
        if not are_same(now, value):
            for name in dict(now).keys() - dict(value).keys():
                delattr(self.kind, name)
            for name, attribute in value:
                setattr(self.kind, name, attribute)


def are_same(items: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether two containers hold the same objects."""

    def identities(held: Sequence[Any]) -> list[Any]:
        return [tuple(map(id, item)) if type(item) is tuple else id(item) for item in held]

    return identities(items) == identities(others)


def is_of_definition(name: str, value: Any) -> bool:
    """Whether an attribute of a class comes from its definition: a method, a property, a slot, `__doc__`."""
    return name.startswith("__") or callable(value) or hasattr(type(value), "__get__")


class AssignedGlobals:
    """What functions assign and change in modules that work with `torch.distributed`."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.known: set[str] = set()

    def values(self) -> list[Value]:
        """Return what each is now. Modules that were imported since the last time count, too."""
        for name in sys.modules.keys() - self.known if len(sys.modules) != len(self.known) else ():
            self.known.add(name)
            self.places += places_in(sys.modules[name])
        return [(place, place.read()) for place in self.places]


def set_globals(values: Sequence[Value]) -> None:
    """Put what is given in its places."""
    for place, value in values:
        place.write(value)


@contextlib.contextmanager
def with_globals(values: Sequence[Value]) -> Iterator[None]:
    """Assign globals, and what they were again."""
    before = [(place, place.read()) for place, _ in values]
    set_globals(values)
    try:
        yield
    finally:
        set_globals(before)


def places_in(module: Any) -> list[Place]:
    """Return where a module that works with `torch.distributed` keeps what it assigns and changes."""
    name = getattr(module, "__name__", "")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    is_library = package in OWN or (package in sys.stdlib_module_names and package != "__main__")
    if is_library or not isinstance(module, ModuleType):
        return []
    table = dict(vars(module))
    codes = [code for value in table.values() for own in codes_of(value, name) for code in codes_inside(own)]
    if not any(map(is_of_distributed, table.values())) and not any("distributed" in code.co_names for code in codes):
        return []
    assigned = dict.fromkeys(target for code in codes for target in assigned_by(code))
    own = (value for key, value in table.items() if not key.startswith("__"))
    containers = containers_of(own, name) if is_users_module(module) else ()
    return [*(Global(vars(module), target) for target in assigned), *containers]


LARGE = 256
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""


def containers_of(values: Iterable[Any], module: str) -> Iterator[Place]:
    """Yield the dictionaries, lists, sets, classes and objects among the values of a module, and those inside them."""
    queue, seen = list(values), dict[int, Any]()
    for value in queue:  # which grows
        place = place_of(value, module)
        if place is not None and id(value) not in seen:
            seen[id(value)] = value
            items = place.read()
            if len(items) <= LARGE:
                yield place
                queue += [part for item in items for part in (item if isinstance(item, tuple) else (item,))]


def place_of(value: Any, module: str) -> Place | None:
    """Return the place of what a value holds that a module defines; None for other values."""
    kind = type(value)
    if kind in CONTAINERS:
        return Items(value)
    if isinstance(value, type):
        return ClassAttributes(value) if value.__module__ == module and not issubclass(value, nn.Module) else None
    is_own = kind.__module__ == module and not isinstance(value, (nn.Module, Tensor))
    attributes = getattr(value, "__dict__", None) if is_own else None
    return Items(attributes) if type(attributes) is dict else None


CONTAINERS = (dict, OrderedDict, defaultdict, list, set)


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
