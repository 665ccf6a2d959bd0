"""Which places lead from a program's functions to what it keeps.

Of the program's own modules that is everything their globals hold, and of functions what they close over. Of installed
packages it is the globals that a function assigns (`global group`) in a module that works with `torch.distributed`: a
library that sets itself up once is not set up again.

A `Place` is where a program keeps something: the attributes of an object, the items of a container, a closure's cell,
a module's globals. `Walk` looks at objects breadth first: each method `places_of_…` is for one form of objects, yields
the places in an object of that form, and pushes the objects there (`push`, `push_all`) to be looked at later. `seen`
has the objects that were looked at, by id; `name` would be an object's name in messages, and no message names one here.
Methods without a docstring yield nothing: objects of that form are no state of a rank.
"""

from __future__ import annotations

import argparse
import dis
import functools
import inspect
import sys
import threading
import weakref
from collections import OrderedDict, UserDict, UserList
from collections.abc import Callable, Iterable, Iterator
from types import (
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from torch import Tensor, nn

from backprint.values.memory import is_small
from backprint.values.objects import (
    FILL,
    NOT_THERE,
    STANDARD,
    Attributes,
    Cell,
    ClassAttributes,
    Content,
    Globals,
    Gradient,
    Place,
    Unseen,
    Walk,
    is_users_module,
    names_in_code,
    parts_of_attribute,
)

OWN = ("torch", "backprint")
"""Packages that are not a program's: their globals are not kept for each rank."""


LARGE = 4096
"""Containers of more items than this, such as tables that a program looks things up in, are no state of a rank."""

MOST = 16384
"""Of more places than this, those that are nearest to the program's functions are a rank's own."""

OBJECTS = (
    argparse.Namespace,
    SimpleNamespace,
    UserDict,
    UserList,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
)
"""Python's classes whose objects hold what a program puts there."""


class Reached(Walk):
    """A walk of what is a program's own: its modules with all their globals, its classes and their objects, and what
    its functions close over. `count` is the number of places that were yielded so far."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def places_from(self, roots: Iterable[Any]) -> Iterator[Place]:
        """Yield the places that some functions, classes and modules lead to, the nearest first, until there are
        MOST."""
        for place in self.places(("", root) for root in roots) if self.count < MOST else ():
            if not isinstance(place, Unseen):  # an object of a C type, of which nothing can be read or written
                self.count += 1
                yield place
            if self.count >= MOST:
                self.queue.clear()  # which ends the walk

    def places_of_module(self, name: str, module: ModuleType) -> Iterator[Place]:
        """Yield the place of all globals of a module of the program's own; of another module, nothing."""
        if is_own(vars(module).get("__name__")):
            yield from self.all_globals(vars(module))

    def all_globals(self, table: dict[str, Any]) -> Iterator[Place]:
        """Yield the place of a module's globals, whose dictionary is `table`, unless it was yielded before."""
        if id(table) not in self.seen:
            self.seen[id(table)] = table
            yield Globals(table)
            self.push_all("", [(name, held) for name, held in table.items() if not name.startswith("__")])

    def places_of_class(self, name: str, kind: type) -> Iterator[Place]:
        """Yield the attributes of a class of the program's own; its methods and other attributes, its bases and its
        module are looked at later."""
        if _is_own_class(kind):
            yield (place := ClassAttributes(kind))
            parts = [part for held in place.table.values() for part in parts_of_attribute(held)]
            bases = type.__dict__["__bases__"].__get__(kind)  # not `kind.__bases__`, which a metaclass may define
            module = sys.modules.get(str(place.table.get("__module__")))
            self.push_all(name, enumerate((*parts, *bases, module)))

    def places_of_function(self, name: str, function: FunctionType) -> Iterator[Place]:
        """Yield the places of a function of the program's own: its globals and its closure; its defaults, its
        attributes and the modules that it names are looked at later.

        A function of a library has no places; of what it closes over only functions and classes are looked at, as those
        that a decorator wraps. Of a function of Backprint, such as `make` in `sharding`, all of that is looked at: it
        closes over the user's objects.
        """
        closed_over = [
            content for cell in function.__closure__ or () if (content := Cell(cell).read()) is not NOT_THERE
        ]
        if is_own(function.__module__) or _is_of_exec(function.__globals__):
            yield from self.all_globals(function.__globals__)
            yield from (Cell(cell) for cell in function.__closure__ or ())
            imported = (sys.modules.get(key) for key in names_in_code(function.__code__))
            closed_over += (*(function.__defaults__ or ()), function.__kwdefaults__, vars(function), *imported)
        elif str(function.__module__).partition(".")[0] != "backprint":
            closed_over = [value for value in closed_over if type(value) in (FunctionType, MethodType, type)]
        self.push_all(name, enumerate(closed_over))

    def places_of_tensor(self, name: str, tensor: Tensor) -> Iterator[Place]:
        """Yield the values of a small tensor, and the gradient of a leaf that requires grad, whatever its size."""
        if is_small(tensor):
            yield Content(tensor)
        if type(tensor) in (Tensor, nn.Parameter) and tensor.is_leaf and tensor.requires_grad:
            yield Gradient(tensor)
            self.push(name, tensor.grad)

    def places_of_array(self, name: str, held: Any) -> Iterator[Place]:
        return iter(())

    def places_of_storage(self, name: str, storage: Any) -> Iterator[Place]:
        return iter(())

    def places_of_cache(self, name: str, cache: Any) -> Iterator[Place]:
        """Look at the function that `functools.cache` decorates later; the cache itself has no place (`kept` makes a
        copy of it where it is held)."""
        self.push(name, cache.__wrapped__)
        return iter(())

    def places_of_container(self, name: str, container: Any) -> Iterator[Place]:
        """Yield the places of a container, unless it is LARGE."""
        # `kind` is the built-in class that it is or derives from: a subclass may have a `__len__` of its own.
        kind = next(known for known in FILL if issubclass(type(container), known))
        if kind.__len__(container) <= LARGE:
            yield from super().places_of_container(name, container)

    def places_of_attributes(self, name: str, value: Any) -> Iterator[Place]:
        """Yield the places of an object whose class is the program's own or an `nn.Module`, or one of Python's that
        holds what a program puts there (OBJECTS, `threading.local`); an object of any other class has none."""
        kind: Any = type(value)
        if issubclass(kind, nn.Module):
            yield from self.places_of_model(value)
        elif _is_own_class(kind) or kind is threading.local or issubclass(kind, OBJECTS):
            self.push(name, kind)
            yield from super().places_of_attributes(name, value)

    def places_of_model(self, model: nn.Module) -> Iterator[Place]:
        """Yield the attributes of an `nn.Module` and of the modules inside it; their classes and their hooks are looked
        at later, and their parameters and buffers are not."""
        for inner in model.modules():
            table = object.__getattribute__(inner, "__dict__")  # past a `__getattr__` of the program
            yield Attributes(inner, table)
            hooks = [held for name, held in table.items() if name.endswith("_hooks") and type(held) is OrderedDict]
            self.push_all("", enumerate((type(inner), *(hook for held in hooks for hook in held.values()))))


def is_own(module: Any) -> bool:
    """Whether a module is the program's own: not Python's, PyTorch's, Backprint's or an installed package's. `module`
    is its name, or what stands in the place of one: False unless a module of that name is imported."""
    imported = sys.modules.get(module) if isinstance(module, str) else None
    return issubclass(type(imported), ModuleType) and module.partition(".")[0] not in OWN and is_of_program(imported)


is_of_program: Callable[[Any], bool] = functools.cache(is_users_module)
"""Whether a module is a user's, asked once."""


def _is_own_class(kind: Any) -> bool:
    """Whether a class is the program's own, or one that the program has made by `exec`. Its module and its flags are
    asked past the class, as a metaclass may answer in its own way."""
    module = type.__dict__["__dict__"].__get__(kind).get("__module__")
    is_heap_type = bool(type.__dict__["__flags__"].__get__(kind) & HEAP_TYPE)
    return is_own(module) or (is_heap_type and module == "builtins") or _is_of_exec({"__name__": module})


HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE, the flag of classes that are made while the process runs. Python's own builtins do not have it,
and classes that `exec` makes do, which say too that they are of `builtins`."""


def _is_of_exec(table: dict[str, Any]) -> bool:
    """Whether a table of globals is of no module that is imported, as that of code that a program gives to `exec`: it
    has no `__name__`, or one of neither an imported module nor a module of Python, PyTorch or NumPy."""
    name = table.get("__name__")
    return name is None or (name not in sys.modules and str(name).partition(".")[0] not in STANDARD)


# ---- Globals that functions assign


def globals_assigned_in(module: Any) -> Iterator[Place]:
    """Yield a place for the globals that the functions of an installed package's module assign, if there are any."""
    if isinstance(module, ModuleType) and not is_own(module.__name__) and (names := assigned_in(module)):
        yield Globals(vars(module), frozenset(names))


@functools.cache
def assigned_in(module: ModuleType) -> tuple[str, ...]:
    """Return the globals that the functions of an installed module assign, if it works with `torch.distributed`; () for
    any other module, and for those of PyTorch, Backprint and Python."""
    name = getattr(module, "__name__", "")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    # `__main__` is the program's script, whatever list it is on.
    is_left_out = package in OWN or (package in sys.stdlib_module_names and package != "__main__")
    if is_left_out:
        return ()
    table = dict(vars(module))
    codes = [code for value in table.values() for own in _codes_of(value, name) for code in _codes_inside(own)]
    targets = [target for code in codes for target in _assigned_by(code)]
    is_distributed = targets and (
        any(map(_is_of_distributed, table.values())) or any("distributed" in code.co_names for code in codes)
    )
    return tuple(dict.fromkeys(targets)) if is_distributed else ()


def _is_of_distributed(value: Any) -> bool:
    """Whether a value is of `torch.distributed`: the module, or a function, class or object of it."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("torch.distributed")
    kind = value if isinstance(value, (type, FunctionType)) else type(value)
    return str(kind.__module__).startswith("torch.distributed")


def _codes_of(value: Any, module: str) -> Iterator[CodeType]:
    """Yield the code of a global of a module (`value`), if it is a function or a class that the module of this name
    defines: the function's, or that of the class's methods and getters of properties."""
    candidates = [value]
    if isinstance(value, type) and value.__module__ == module:
        members = vars(value).values()
        candidates = [member.fget if isinstance(member, property) else member for member in members]
        candidates = [
            member.__func__ if isinstance(member, (staticmethod, classmethod)) else member for member in candidates
        ]
    for candidate in candidates:
        if isinstance(candidate, FunctionType):
            function = inspect.unwrap(candidate)  # of a decorated one, the function that is wrapped
            if isinstance(function, FunctionType) and function.__module__ == module:
                yield function.__code__


def _codes_inside(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_inside(constant)


def _assigned_by(code: CodeType) -> Iterator[str]:
    """Yield the names of the globals that a function assigns."""
    # Every second byte of the code is an opcode: to look there first is much faster than `dis`.
    if STORE in code.co_code[::2]:
        yield from (step.argval for step in dis.get_instructions(code) if step.opcode == STORE)


STORE = dis.opmap["STORE_GLOBAL"]
"""The opcode that assigns a global."""
