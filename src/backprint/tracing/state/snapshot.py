"""A Snapshot of everything that a program can reach, with how each thing is restored.

It searches everything that a callable, its arguments, its closure and the globals that it names lead to, in its own
module and in others of the user's. It remembers every container's content, every object's attributes, every tensor
(its memory, its content, its gradient, its hooks), the state of every random generator, and that of the C types in
`contents`. `Snapshot.restore` restores all of it, and touches only what differs. What can be compared but not restored
is in `Snapshot.lost` after a run has changed it. Left out are threads, sockets, and objects behind the modules of
installed packages; of containers with more than `MAX_ELEMENTS` elements, only the elements themselves are kept.

Iterators are special, because a run uses an iterator up and Python cannot set it back. A program therefore never runs
on the caller's iterators: while a Snapshot is open, copies stand in the places that hold them, at the same position and
over the same objects. Python's own iterators say by `__reduce__` how they are made again; generators, `tee` and the
iterators of other libraries do not. A program that holds one of these, or one in a place that cannot hold a copy, is
refused before it runs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import operator
import sys
import threading
import types
import warnings
import weakref
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from backprint._torch.distributed import resharding
from backprint._torch.tensors import base_of
from backprint.errors import CaptureError
from backprint.tracing.reach import (
    STATELESS_TYPES,
    class_of,
    is_installed,
    is_library,
    is_machinery,
    is_unsearched_class,
    is_unsearched_module,
    is_users,
    is_users_module,
    names_mentioned,
    slots_of,
)
from backprint.tracing.state.contents import LARGE_BUFFER, ContentKind, content_kind, fingerprint, writable_buffer
from backprint.tracing.state.process import generator_state, is_generator, set_generator_state
from backprint.tracing.state.tensors import TensorSnapshot, hooks_on, untraced
from backprint.values.wrappers import is_wrapped, opened

# ---- Copies of iterators

ITERATOR_MODULES = frozenset(("builtins", "itertools", "collections", "_collections", "array"))
"""Modules whose iterators say how they are made again."""

SHARING_COPIES: tuple[Any, ...] = (type(itertools.tee(())[0]),)
"""Iterators whose copies share what they have read."""

CALL_ITERATOR: Any = type(iter(int, 1))
"""The iterator of `iter(function, sentinel)`."""


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of a C type, whose position is no attribute. A file has a position that can be
    set."""
    step = getattr(type(value), "__next__", None)
    return isinstance(step, types.WrapperDescriptorType) and not isinstance(value, io.IOBase)


def copied_iterator(value: Any, memo: dict[int, tuple[Any, Any]]) -> Any:
    """Return an iterator at the same position over the same objects; raise TypeError if there is no way to make one.

    `memo` has the iterators copied so far, by identity: two that read from one iterator share its copy.
    """
    if id(value) not in memo:
        call, arguments, *state = recipe_of_iterator(value)
        copy = call(*(copied_part(part, memo) for part in arguments))
        if state and state[0] is not None:
            copy.__setstate__(copied_part([*state[0]] if type(state[0]) is list else state[0], memo, True))
        memo[id(value)] = value, copy
    return memo[id(value)][1]


def copied_part(part: Any, memo: dict[int, tuple[Any, Any]], state: bool = False) -> Any:
    """Return a part of an iterator for its copy: inner iterators are copied, and so are lists of its own state."""
    if is_iterator(part):
        return copied_iterator(part, memo)
    if type(part) is tuple:
        return tuple(copied_part(item, memo, state) for item in part)
    return list(part) if state and type(part) is list else part


def recipe_of_iterator(value: Any) -> tuple[Any, ...]:
    """Return how an iterator is made again: a callable, its arguments and a state; raise TypeError if it cannot be."""
    kind = type(value)
    if kind.__module__ not in ITERATOR_MODULES or kind in SHARING_COPIES:
        raise TypeError(f"{kind.__name__} cannot be copied")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 and 3.13 announce the end of this in itertools
        recipe = value.__reduce__()
    if not isinstance(recipe, tuple):
        raise TypeError(f"{kind.__name__} cannot be copied")
    if kind is CALL_ITERATOR and isinstance(recipe[1][0], types.BuiltinFunctionType):
        raise TypeError(f"{kind.__name__} of {recipe[1][0].__name__} cannot be copied")
    return recipe


def parts_of_iterator(value: Any) -> Iterator[Any]:
    """Yield what an iterator holds: other iterators, what they iterate over, and the functions that they call."""
    for part in recipe_of_iterator(value)[1:]:
        yield from flat_parts(part)


def flat_parts(part: Any) -> Iterator[Any]:
    if type(part) is tuple:
        for item in part:
            yield from flat_parts(item)
    else:
        yield part


# ---- The snapshot

SetItem = Callable[[Any, Any], None]
"""Writes another object in a place: at a key, the object."""

MAX_OBJECTS = 200_000
"""The most objects that a Snapshot looks at."""

MAX_ELEMENTS = 10_000
"""The most elements of a container that are searched."""


STATELESS = frozenset(("backprint", "enum", "typing", "inspect", "re", "logging", "_pytest", "pytest"))
"""Packages whose objects are never named as possibly changed."""

MAX_SUSPECTS = 8
"""The most objects that are named as possibly changed."""


class Snapshot:
    """Everything that was reachable, with how each thing is restored.

    `undo` are functions that restore one object each, `tensors` the tensors; `copied_storages` are those whose content
    is kept. `places` are iterators with the place that holds them. `checks` compare what can only be compared, `lost`
    says what could not be restored, and `suspects` are objects whose state cannot even be compared.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]], first: bool = True) -> None:
        """Search everything that the roots lead to; the `first` of several open Snapshots also compares what it cannot
        restore."""
        self.first = first
        self.seen: dict[int, Any] = {}
        self.undo: list[Callable[[], None]] = []
        self.tensors: list[TensorSnapshot] = []
        self.tensors_by_id: dict[int, TensorSnapshot] = {}
        self.copied_storages: set[int] = set()
        self.generators: list[tuple[str, Any, Any]] = []
        self.arrays: list[Any] = []
        self.scopes: dict[int, set[str]] = {}
        self.names_in_libraries: dict[int, frozenset[str]] = {}
        self.named: set[str] = set()
        self.modules: dict[int, types.ModuleType] = {}
        self.libraries: dict[int, types.ModuleType] = {}
        self.classes_in_libraries: dict[type, frozenset[str]] = {}
        self.registries: dict[int, tuple[dict[str, Any], Any]] = {}
        self.queue: deque[tuple[str, Any, SetItem | None, Any]] = deque()
        self.classes: set[type] = set()
        self.leaf_ids: set[int] = set()
        self.in_call = False
        self.refused: list[tuple[str, Any, str]] = []
        self.iterators: dict[int, Any] = {}
        self.uncopyable: set[int] = set()
        self.places: list[tuple[Any, SetItem, Any]] = []
        self.copies: dict[int, tuple[Any, Any]] = {}
        self.checks: list[Callable[[], None]] = []
        self.lost: dict[int, str] = {}
        self.suspects: dict[int, str] = {}
        self.search(roots)

    def search(self, roots: Iterable[tuple[str, Any]], in_run: bool = False) -> None:
        """Search these roots too; `in_run` says that the program is running, so that modules may be patched."""
        self.queue.extend((name, value, None, None) for name, value in roots)
        lent = len(self.places)
        with untraced():
            while self.queue:
                while self.queue and len(self.seen) < MAX_OBJECTS:
                    self.visit(*self.queue.popleft())
                self.queue.clear()
                self.visit_modules()
                if not in_run:
                    self.visit_libraries()
            self.copy_small()
        self.put_copies_in_places(lent)

    def search_call(self, leaves: Iterable[tuple[str, Any]], call: Any) -> None:
        """Search the arguments of a call. Each run of the call makes copies of the iterators among its leaves, which
        are in no place then."""
        leaves = list(leaves)
        nested = [part for _, leaf in leaves if is_iterator(leaf) for part in self.iterators_in(leaf)]
        self.refused += [
            ("", iterator, "it is an argument and within its reach too")
            for iterator in nested
            if id(iterator) in self.iterators
        ]
        self.leaf_ids = {id(leaf) for _, leaf in leaves}
        self.in_call = True
        self.search([*leaves, ("", call)])
        self.in_call = False

    def iterators_in(self, iterator: Any) -> list[Any]:
        """Return an iterator and all those that it reads from."""
        try:
            return [
                iterator,
                *(
                    inner
                    for part in parts_of_iterator(iterator)
                    if is_iterator(part)
                    for inner in self.iterators_in(part)
                ),
            ]
        except TypeError:
            return [iterator]

    def put_copies_in_places(self, start: int = 0) -> None:
        """Put copies of iterators in their places."""
        for value, set_item, key in self.places[start:]:
            set_item(key, copied_iterator(value, self.copies))

    def close(self) -> None:
        """Put the caller's iterators back in their places, and compare what cannot be restored."""
        for value, set_item, key in self.places:
            set_item(key, value)
        for scope, registry in self.registries.values():
            if registry is None:
                scope.pop("__warningregistry__", None)
            elif scope.get("__warningregistry__") != registry:
                scope["__warningregistry__"].clear()
                scope["__warningregistry__"].update(registry)
        for check in self.checks:
            check()

    def copy_small(self) -> None:
        """Keep the bytes of tensors, each storage once; of large parameters only those that are known to be written."""
        for tensor in self.tensors:
            if tensor.memory not in self.copied_storages and (
                not tensor.is_large or tensor.uses_memory_of(self.arrays)
            ):
                self.copied_storages.add(tensor.memory)
                tensor.copy()

    def restore(self) -> None:
        """Restore everything."""
        with untraced():
            for undo in self.undo:
                undo()
            for tensor in self.tensors:
                tensor.restore()
                if tensor.address_now() != tensor.address:
                    self.note_lost(
                        tensor.name, tensor.tensor, "its storage was freed; its values are back at another address"
                    )
        self.copies.clear()
        self.put_copies_in_places()

    def refuse_iterators(self, title: str) -> None:
        """Refuse a program that holds an iterator without a copy: a run would use it up, and it cannot be restored."""
        if self.refused:
            name, value, why = self.refused[0]
            raise CaptureError(
                f"{title} holds an iterator ({' '.join((type(value).__name__, name)).strip()}), which each run uses "
                f"up, and {why}: pass its items as an argument",
                every_engine=True,
            )

    # ---- The walk

    def visit(self, name: str, value: Any, set_item: SetItem | None = None, key: Any = None) -> None:
        """Remember one value, and queue everything that it holds; `put` writes another in its place."""
        kind = class_of(value)
        if is_iterator(value):
            self.visit_iterator(name, value, set_item, key)
        elif kind in STATELESS_TYPES or id(value) in self.seen or is_machinery(kind):
            return
        elif issubclass(kind, weakref.ref):
            self.push(name, value())
        elif (visit := self.visit_of_kind(kind)) is not None:
            self.seen[id(value)] = value
            visit(name, value)
        else:
            content_row = content_kind(kind)
            if (
                content_row is None and is_unsearched_class(kind) and not isinstance(value, type)
            ):  # whatever its metaclass is
                self.visit_public_attributes(name, value)
                return
            self.seen[id(value)] = value
            if content_row is not None:
                self.visit_c_content(name, value, content_row)
                if is_unsearched_class(kind):
                    return
            has_contents = self.visit_contents(name, value)
            if not isinstance(value, (type, types.FunctionType)):
                self.visit_object(name, value, self.first and content_row is None and not has_contents)

    def visit_of_kind(self, kind: Any) -> Callable[[str, Any], None] | None:
        """Return how a tensor, a generator, an array or a module is remembered; None for objects that hold others."""
        if issubclass(kind, Tensor):
            return self.visit_tensor
        if is_generator(kind):
            return self.visit_generator
        if "numpy" in sys.modules and issubclass(kind, sys.modules["numpy"].ndarray):
            return self.visit_array
        if issubclass(kind, types.ModuleType):
            return self.visit_module
        return None

    def visit_contents(self, name: str, value: Any) -> bool:
        """Remember what a container, a function or a class holds besides its attributes; return whether it is one."""
        if isinstance(value, dict):
            self.visit_dict(name, value)
        elif isinstance(value, (list, set, deque, bytearray)):
            self.visit_container(name, value)
        elif isinstance(value, (tuple, frozenset)):
            self.push_all(name, enumerate(value))
        elif isinstance(value, types.FunctionType):
            self.visit_function(name, value)
        elif isinstance(value, types.MethodType):
            self.push(name, value.__self__)
            self.push(name, value.__func__)
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            if not isinstance(value.__self__, types.ModuleType):
                self.push(name, value.__self__)
        elif isinstance(value, types.MappingProxyType):
            self.push_all(name, value.items())
        elif isinstance(value, functools.partial):
            self.push_all(name, enumerate(value.args))
            self.push(name, value.keywords)
            self.push(name, value.func)
        elif isinstance(value, type):
            self.visit_class(value)
            if self.first and not is_users(value) and not is_backprints(value):
                self.classes_in_libraries.setdefault(value, frozenset())
        elif isinstance(value, logging.Logger):
            self.visit_logger(name, value)
        elif isinstance(value, BaseException):
            self.visit_exception(name, value)
        else:
            return False
        return True

    def push(self, name: str, value: Any, set_item: SetItem | None = None, key: Any = None) -> None:
        """Queue a value."""
        if type(value) not in STATELESS_TYPES and id(value) not in self.seen:
            self.queue.append((name, value, set_item, key))

    def push_all(self, name: str, items: Iterable[tuple[Any, Any]], set_item: SetItem | None = None) -> None:
        """Queue values with their keys, unless there are too many."""
        items = list(items)
        if len(items) <= MAX_ELEMENTS:
            for key, value in items:
                if type(value) not in STATELESS_TYPES and id(value) not in self.seen:
                    self.queue.append((f"{name}.{key}" if name else str(key), value, set_item, key))

    def visit_dict(self, name: str, dictionary: dict[Any, Any], search_contents: bool = True) -> None:
        """Remember a dictionary; without `look`, what it holds is not looked into."""
        kind = OrderedDict if isinstance(dictionary, OrderedDict) else dict
        keys, values = list(kind.keys(dictionary)), list(kind.values(dictionary))

        def undo() -> None:
            if not keys and kind.__len__(dictionary) == 0:  # as most dictionaries of hooks are
                return
            if not (same_elements(kind.keys(dictionary), keys) and same_elements(kind.values(dictionary), values)):
                content = list(zip(keys, values, strict=True))
                kind.clear(dictionary)  # of builtins too: until it is filled again, no builtin can be called
                for key, value in content:
                    kind.__setitem__(dictionary, key, value)

        self.undo.append(undo)
        if search_contents and keys:
            self.push_all(name, zip(keys, values, strict=True), functools.partial(kind.__setitem__, dictionary))
            objects = ((index, key) for index, key in enumerate(keys) if type(key) not in STATELESS_TYPES)
            self.push_all(name, ((f"key {index}", key) for index, key in objects))

    def visit_container(self, name: str, container: Any, search_contents: bool = True) -> None:
        """Remember a list, a set, a deque or a bytearray; without `look`, what it holds is not looked into."""
        content = list(container)
        kind = next(kind for kind in CONTAINERS if isinstance(container, kind))
        clear, fill = CONTAINERS[kind]

        def undo() -> None:
            if not same_elements(container, content):
                clear(container)
                fill(container, content)

        self.undo.append(undo)
        set_item = list.__setitem__ if kind is list else deque.__setitem__ if kind is deque else None
        if not search_contents:
            return
        self.push_all(name, enumerate(content), set_item and functools.partial(set_item, container))

    def visit_c_content(self, name: str, value: Any, kind: ContentKind) -> None:
        """Remember an object of a C type by its row in `contents`."""
        try:
            state = kind.read(value)
        except (OSError, ValueError):
            self.refused.append((name, value, "its position cannot be read"))
            return

        def undo() -> None:
            if why := kind.restore(value, state):
                self.note_lost(name, value, why)

        self.undo.append(undo)
        for part in kind.objects_in(value):
            self.push(name, part)

    def note_lost(self, name: str, value: Any, why: str) -> None:
        """Note an object that could not be restored."""
        self.lost[id(value)] = f"{name} ({type(value).__name__}): {why}".lstrip()

    def visit_exception(self, name: str, error: BaseException) -> None:
        """Remember an exception: its arguments, and what a `raise` notes in it."""
        attributes = [(key, getattr(error, key)) for key in ("args", "__traceback__", "__context__", "__cause__")]

        def undo() -> None:
            for key, content in attributes:
                if getattr(error, key) is not content:
                    setattr(error, key, content)

        self.undo.append(undo)
        self.push_all(name, enumerate(error.args))

    def visit_logger(self, name: str, logger: logging.Logger) -> None:
        """Remember a logger, its handlers and those of the loggers above it."""
        self.visit_dict(name, vars(logger), search_contents=False)
        self.seen[id(vars(logger))] = vars(logger)
        for key in ("handlers", "filters", "parent"):
            self.push(f"{name}.{key}", getattr(logger, key, None))

    def visit_module(self, name: str, module: Any) -> None:
        """Remember the globals of a user's module that are named anywhere in the code that was looked into."""
        if not is_users_module(module):
            if self.first and not is_backprints(module):
                self.libraries[id(module)] = module
            return
        self.modules[id(module)] = module
        scope = vars(module)
        before = frozenset(scope)

        def undo() -> None:
            for key in [key for key in scope if key not in before and key in self.named]:
                if not isinstance(scope[key], types.ModuleType):  # an import sets it, and will not set it again
                    del scope[key]

        self.undo.append(undo)

    def visit_modules(self) -> None:
        """Queue the globals of modules that code looked into by now names."""
        for module in self.modules.values():
            scope = vars(module)
            reached = (key for key in scope if key in self.named or key in CALLED_BY_PYTHON)
            for key in list(reached):
                if self.is_new_name(scope, key):
                    self.visit_global(scope, key)

    def is_new_name(self, scope: dict[str, Any], key: str) -> bool:
        """Whether a name of a scope is not remembered yet; it counts as remembered from now on."""
        names = self.scopes.setdefault(id(scope), set())
        if key in names or key in self.names_in_libraries.get(id(scope), ()):
            return False
        names.add(key)
        return True

    def visit_libraries(self) -> None:
        """Remember the names of library modules that the program's code mentions, in case it assigns to them.

        A program may patch `torch.nn.functional`, or a class of torch's. Their contents are the library's own, except
        for the registries of Python's modules (`logging`, `copyreg`, `mimetypes`).
        """
        named, none = frozenset(self.named), frozenset[str]()
        news: dict[frozenset[str], frozenset[str]] = {}
        for module in self.libraries.values():
            scope = vars(module)
            if id(scope) not in self.seen and is_pythons_registry(module):
                self.seen[id(scope)] = scope
                self.visit_registry(scope)
            before = self.names_in_libraries.get(id(scope), none)
            if len(before) == len(named):
                continue
            self.names_in_libraries[id(scope)] = named
            if before not in news:
                news[before] = named - before
            self.visit_library(scope, news[before].difference(self.scopes.get(id(scope), ())))
        for kind, before in self.classes_in_libraries.items():
            new = named - before
            self.classes_in_libraries[kind] = named
            content = {key: vars(kind)[key] for key in new.intersection(vars(kind))}
            self.undo.append(functools.partial(restore_attributes, kind, content, new.difference(content)))

    def visit_library(self, scope: dict[str, Any], names: frozenset[str]) -> None:
        """Remember these names of a library module. It has few of them: a thousand modules and a thousand names are a
        million pairs, which are never looked at one by one."""
        content = {key: scope[key] for key in names.intersection(scope)}
        own = {key for key, value in content.items() if is_backprints(value)}
        absent = names.difference(content)
        known = {key: value for key, value in content.items() if key not in own}
        self.undo.append(functools.partial(restore_names, scope, known, absent))
        for value in content.values():
            if isinstance(value, type) and not is_users(value):
                self.classes_in_libraries.setdefault(value, frozenset())

    def visit_registry(self, scope: dict[str, Any]) -> None:
        """Remember the plain globals of a module of Python's, and what its lists, dicts and sets hold."""
        for key, content in list(scope.items()):
            if key.startswith("__"):
                continue
            if type(content) in (dict, list, set) and len(content) <= MAX_ELEMENTS:
                if id(content) not in self.seen:
                    self.seen[id(content)] = content
                    visit = self.visit_dict if isinstance(content, dict) else self.visit_container
                    visit(key, content, search_contents=False)
            elif type(content) in STATELESS_TYPES:
                self.undo.append(functools.partial(restore_name, scope, key, content))

    def visit_object(self, name: str, value: Any, compared: bool) -> None:
        """Remember an object's attributes and slots, and what the functions of a user's class reach.

        With `compared`, an object without any is one of a C type, whose buffer or fingerprint is compared instead.
        """
        kind = class_of(value)
        try:
            read = threading.local.__getattribute__ if isinstance(value, threading.local) else object.__getattribute__
            attributes = read(value, "__dict__")
        except (AttributeError, TypeError):
            attributes = None
        if type(attributes) is dict and id(attributes) not in self.seen:
            self.seen[id(attributes)] = attributes
            self.visit_dict(name, attributes)
        if is_users(kind):
            self.undo.append(lambda: None if type(value) is kind else setattr(value, "__class__", kind))
        if isinstance(value, nn.Module) and (reshard := resharding(value)) is not None:
            self.undo.append(reshard)
        slots = slots_of(kind)
        for owner, slot in slots:
            self.visit_slot(name, value, owner, slot)
        if is_users(kind):
            self.push(name, kind)
        if compared and attributes is None and not slots and not is_immutable(kind):
            self.visit_c_object(name, value)

    def visit_public_attributes(self, name: str, value: Any) -> None:
        """Remember the public attributes of an object that is not searched: a thread, a graph, a future."""
        self.seen[id(value)] = value
        self.note_suspect(name, value)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is not dict:
            return
        content = {key: item for key, item in attributes.items() if not str(key).startswith("_")}

        def undo() -> None:
            for key in [key for key in attributes if not str(key).startswith("_") and key not in content]:
                del attributes[key]
            for key, item in content.items():
                if attributes.get(key, self) is not item:
                    attributes[key] = item

        self.undo.append(undo)

    def note_suspect(self, name: str, value: Any) -> None:
        """Note an object whose state cannot be compared: it is named where a program does not repeat its results."""
        kind = type(value)
        is_known = is_immutable(kind) or kind.__module__.partition(".")[0] in STATELESS
        if self.first and len(self.suspects) < MAX_SUSPECTS and not is_known:
            self.suspects[id(value)] = f"{name} ({kind.__module__}.{kind.__qualname__})".lstrip()

    def note_suspects_as_lost(self) -> None:
        """Note every object whose state cannot be compared as lost, perhaps.

        A run of the program has changed one of them, or a file, or something else outside of Python.
        """
        for key, text in self.suspects.items():
            self.lost.setdefault(key, f"{text}: perhaps, its state cannot be compared")
        if not self.lost:
            used = ", ".join(sorted({module.__name__ for module in self.libraries.values()})[:MAX_SUSPECTS])
            self.lost[0] = f"something that Backprint does not see, perhaps a file{used and ', or in ' + used}"

    def visit_c_object(self, name: str, value: Any) -> None:
        """Remember an object of a C type: its buffer, or what pickle would keep of it, which can only be compared."""
        view = writable_buffer(value)
        if view is not None and view.nbytes <= LARGE_BUFFER:
            content = bytes(view)

            def undo() -> None:
                now = writable_buffer(value)
                if now is None or now.nbytes != len(content):
                    self.note_lost(name, value, "its buffer is another one")
                elif now != content:
                    now[:] = content

            self.undo.append(undo)
            return
        before = fingerprint(value)
        if before is None:
            self.note_suspect(name, value)

        def check() -> None:
            if before is not None and fingerprint(value) != before:
                self.note_lost(name, value, "it was changed")

        self.checks.append(check)

    def visit_slot(self, name: str, value: Any, owner: Any, slot: str) -> None:
        content = slot_content(owner, value)

        def undo() -> None:
            now = slot_content(owner, value)
            if now is not content:
                if content is EMPTY:
                    owner.__delete__(value)
                else:
                    owner.__set__(value, content)

        self.undo.append(undo)
        if content is not EMPTY:
            self.push(f"{name}.{slot}", content, lambda _, other: owner.__set__(value, other))

    def visit_class(self, kind: type) -> None:
        """Remember the attributes of a user's class, and what its functions reach."""
        for base in kind.__mro__:
            if base in self.classes or not is_users(base):
                continue
            self.classes.add(base)
            content = {key: value for key, value in vars(base).items() if is_own_attribute(key, value)}
            bases, abstract = base.__bases__, vars(base).get("__abstractmethods__")

            def undo(
                base: Any = base, content: dict[str, Any] = content, bases: Any = bases, abstract: Any = abstract
            ) -> None:
                now = vars(base)
                with contextlib.suppress(AttributeError, TypeError):  # what cannot be set cannot have been changed
                    for key, value in content.items():
                        if now.get(key, self) is not value:
                            type.__setattr__(base, key, value)
                    for key in [key for key in now if is_own_attribute(key, now[key]) and key not in content]:
                        type.__delattr__(base, key)
                    if base.__bases__ != bases:
                        base.__bases__ = bases
                    if abstract is not None and now.get("__abstractmethods__") != abstract:
                        base.__abstractmethods__ = abstract

            self.undo.append(undo)
            set_item = functools.partial(type.__setattr__, base)
            for key, value in content.items():
                for part in parts_of_attribute(value):
                    self.push(key, part, set_item if part is value else None, key)
            for key, value in vars(base).items():
                if key.startswith("__") and isinstance(value, types.FunctionType):
                    self.push(key, value)
            if is_users(type(base)):
                self.push(type(base).__name__, type(base))

    def visit_function(self, name: str, function: types.FunctionType) -> None:
        """Remember a function: its closure, its defaults, its attributes, and the globals that it names."""
        while hasattr(function, "__wrapped__") and not function.__closure__:
            inner = function.__wrapped__
            if not isinstance(inner, types.FunctionType) or id(inner) in self.seen:
                break
            self.seen[id(inner)] = inner
            function = inner
        if function.__code__.co_filename == contextlib.__file__:
            self.skip_generators(function)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.visit_cell(key, cell)
        self.visit_defaults(name, function)
        self.push(name, function.__dict__)
        if is_unsearched_module(str(function.__globals__.get("__name__", ""))) or is_library(function):
            return
        scope = function.__globals__
        if self.first and id(scope) not in self.registries:
            registry = scope.get("__warningregistry__")
            self.registries[id(scope)] = scope, None if registry is None else dict(registry)
        names = names_mentioned(function.__code__)
        self.named.update(names)
        for key in names:
            if self.is_new_name(scope, key):
                self.visit_global(scope, key)
                if key not in scope and isinstance(module := sys.modules.get(key), types.ModuleType):
                    self.push(key, module)  # which the function imports

    def visit_defaults(self, name: str, function: types.FunctionType) -> None:
        """Remember a function's code and defaults, which can be replaced, and what the defaults hold."""
        code, defaults, keyword_defaults = function.__code__, function.__defaults__, function.__kwdefaults__

        def undo() -> None:
            if function.__code__ is not code:
                function.__code__ = code
            if function.__defaults__ is not defaults:
                function.__defaults__ = defaults
            if function.__kwdefaults__ is not keyword_defaults:
                function.__kwdefaults__ = keyword_defaults

        self.undo.append(undo)
        self.push_all(name, enumerate(defaults or ()))
        if keyword_defaults:
            self.push(name, keyword_defaults)

    def skip_generators(self, function: types.FunctionType) -> None:
        """Skip the generator of a context manager used as a decorator: each call makes a new one, so this one never
        runs."""
        for cell in function.__closure__ or ():
            generator = getattr(cell.cell_contents, "gen", None)
            if isinstance(generator, types.GeneratorType):
                self.seen[id(generator)] = generator

    def visit_cell(self, name: str, cell: Any) -> None:
        """Remember one variable of a closure."""
        if id(cell) in self.seen:
            return
        self.seen[id(cell)] = cell
        content = cell_content(cell)

        def undo() -> None:
            now = cell_content(cell)
            if now is not content:
                if content is EMPTY:
                    del cell.cell_contents
                else:
                    cell.cell_contents = content

        self.undo.append(undo)
        if content is not EMPTY:
            self.push(name, content, lambda _, other: setattr(cell, "cell_contents", other))

    def visit_global(self, scope: dict[str, Any], key: str) -> None:
        """Remember one global variable that a function names, or creates."""
        if key not in scope:
            if not hasattr(scope.get("__builtins__"), key):
                self.undo.append(lambda: scope.pop(key, None))
            return
        content = scope[key]

        def undo() -> None:
            if scope.get(key, scope) is not content:
                scope[key] = content

        self.undo.append(undo)
        if not (is_iterator(content) and is_installed(str(scope.get("__name__")), str(scope.get("__file__")))):
            self.push(key, content, scope.__setitem__, key)

    def visit_generator(self, name: str, source: Any) -> None:
        """Remember the state of a random generator."""
        state = generator_state(source)
        self.generators.append((name, source, state))
        self.undo.append(lambda: set_generator_state(source, state))
        self.visit_object(name, source, False)

    def visit_array(self, name: str, array: Any) -> None:
        """Remember the content of a numpy array, which may be a tensor's. A large one is compared, not copied."""
        self.arrays.append(array)
        if not array.flags.writeable:
            return
        if array.dtype.hasobject:
            self.push_all(name, enumerate(array.flat))
        elif array.nbytes > LARGE_BUFFER:
            if self.first:
                before = zlib.crc32(array.tobytes("A"))
                self.checks.append(
                    lambda: (
                        None
                        if zlib.crc32(array.tobytes("A")) == before
                        else self.note_lost(name, array, "it was changed")
                    )
                )
            return
        numpy = sys.modules["numpy"]
        as_ndarray = (
            array if type(array) is numpy.ndarray else array.view(numpy.ndarray)
        )  # a masked array's own would fill in
        content = as_ndarray.copy()
        shape, strides, dtype = array.shape, array.strides, array.dtype

        def undo() -> None:
            try:
                if not array.flags.writeable:
                    array.flags.writeable = True
                if array.dtype != dtype:
                    array.dtype = dtype
                if array.size != content.size:
                    array.resize(shape, refcheck=False)
                if array.shape != shape:
                    array.shape = shape
                if array.strides != strides:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # numpy advises against it, the program has done it
                        array.strides = strides
            except (ValueError, AttributeError, TypeError) as error:
                self.note_lost(name, array, f"its layout was changed ({error})")
                return
            if as_ndarray.tobytes() != content.tobytes():
                as_ndarray[...] = content

        self.undo.append(undo)
        self.visit_object(name, array, False)

    def visit_iterator(self, name: str, value: Any, set_item: SetItem | None, key: Any) -> None:
        """Remember the place that holds an iterator, where a copy will stand, and what the iterator reads from."""
        if id(value) not in self.iterators:
            try:
                for part in parts_of_iterator(value):
                    self.push(name, part, NOWHERE)
                copied_iterator(value, {})
            except (TypeError, ValueError) as error:
                self.refused.append((name, value, str(error)))
                self.uncopyable.add(id(value))
        self.iterators[id(value)] = value
        if id(value) in self.uncopyable:
            return
        if self.in_call and id(value) in self.leaf_ids:
            return
        if set_item is None:
            self.refused.append((name, value, "it is in a place that cannot hold a copy"))
        elif set_item is not NOWHERE:
            self.places.append((value, set_item, key))

    def add(self, name: str, tensor: Tensor, whole: bool = False) -> TensorSnapshot:
        """Remember a tensor; with `whole`, its content whatever its size."""
        if id(tensor) not in self.seen:
            self.visit(name, tensor)
        kept = self.tensors_by_id[id(tensor)]
        if whole and kept.memory not in self.copied_storages:
            self.copied_storages.add(kept.memory)
            kept.copy()
        return kept

    def visit_tensor(self, name: str, tensor: Tensor) -> None:
        """Remember a tensor, its gradient and its attributes."""
        tensor_snapshot = TensorSnapshot(name, tensor)
        self.tensors.append(tensor_snapshot)
        self.tensors_by_id[id(tensor)] = tensor_snapshot
        if tensor.is_leaf and tensor.grad is not None:
            self.push(f"{name}.grad", tensor.grad)
        if is_wrapped(tensor):
            self.push(name, opened(tensor))  # which has the memory
        if base_of(tensor) is not None:
            self.push(f"{name}._base", base_of(tensor))
        for hook in hooks_on(tensor):
            self.push(f"{name}'s hook", hook)
        if tensor.__dict__:
            self.visit_dict(name, tensor.__dict__)
        else:
            self.undo.append(lambda: tensor.__dict__.clear() if tensor.__dict__ else None)


CALLED_BY_PYTHON = ("__getattr__", "__dir__")
"""Functions of a module that Python calls, although no code mentions them."""


def restore_names(scope: dict[str, Any], content: Mapping[str, Any], absent: frozenset[str]) -> None:
    """Restore names of a library module, some of which it did not have."""
    for key, value in content.items():
        restore_name(scope, key, value)
    for key in absent.intersection(scope):
        restore_name(scope, key, EMPTY)


def restore_name(scope: dict[str, Any], key: str, content: Any) -> None:
    """Restore a name of a library module, unless an import or Backprint itself has set it."""
    now = scope.get(key, EMPTY)
    if now is content or isinstance(now, types.ModuleType) or is_backprints(now):
        return
    if content is EMPTY:
        del scope[key]
    else:
        scope[key] = content


def restore_attributes(kind: Any, content: Mapping[str, Any], absent: frozenset[str]) -> None:
    """Restore these attributes of a library's class, some of which it did not have."""
    for key, value in [*content.items(), *((key, EMPTY) for key in absent.intersection(vars(kind)))]:
        now = vars(kind).get(key, EMPTY)
        if now is not value and not is_backprints(now):
            with contextlib.suppress(AttributeError, TypeError):  # of a C type, whose attributes nobody can set
                if value is EMPTY:
                    delattr(kind, key)
                else:
                    setattr(kind, key, value)


NOT_REGISTRIES = frozenset(
    (
        "sys",
        "builtins",
        "gc",
        "atexit",
        "weakref",
        "functools",
        "subprocess",
        "ctypes",
        "signal",
        "os",
        "posix",
        "time",
        "random",
        "tempfile",
        "contextlib",
        "types",
        "linecache",
        "tokenize",
        "pickle",
        "dis",
        "opcode",
        "traceback",
    )
)
"""Modules of Python whose globals belong to the interpreter, or are kept otherwise."""


def is_pythons_registry(module: types.ModuleType) -> bool:
    """Whether a module is Python's, and keeps in its globals what programs register."""
    name = module.__name__
    return (
        name.partition(".")[0] in sys.stdlib_module_names
        and name not in NOT_REGISTRIES
        and not is_unsearched_module(name)
    )


def is_backprints(value: Any) -> bool:
    """Whether a module or a function is Backprint's own."""
    name = getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", None)
    return str(name).partition(".")[0] == "backprint"


def same_elements(now: Collection[Any], then: list[Any]) -> bool:
    """Whether a container has the same elements, in the same order."""
    return len(now) == len(then) and all(map(operator.is_, now, then))


EMPTY = object()
"""Stands for the content of a slot or a cell that has none."""


def NOWHERE(key: Any, other: Any) -> None:
    """Set nothing: the place of an iterator that is a part of another iterator, which is copied with it."""


def slot_content(owner: Any, value: Any) -> Any:
    try:
        return owner.__get__(value, type(value))
    except AttributeError:
        return EMPTY


def cell_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def is_own_attribute(key: str, value: Any) -> bool:
    """Whether a program may set an attribute of a class: any but what Python itself keeps in each class."""
    return not key.startswith("__") or isinstance(value, (types.FunctionType, property, staticmethod, classmethod))


def parts_of_attribute(value: Any) -> tuple[Any, ...]:
    """Return what an attribute of a class holds: the functions of a property, that of a method, or the value itself."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    return (value.__func__,) if isinstance(value, (staticmethod, classmethod)) else (value,)


def is_immutable(kind: Any) -> bool:
    """Whether objects of a C type have no state that anyone could change, as far as is known."""
    return kind is object or kind.__module__ in ("types", "torch") or issubclass(kind, BaseException)


CONTAINERS: dict[type, tuple[Callable[[Any], None], Callable[[Any, Any], None]]] = {
    list: (list.clear, list.extend),
    set: (set.clear, set.update),
    deque: (deque.clear, deque.extend),
    bytearray: (bytearray.clear, bytearray.extend),
}
"""How a container is cleared and filled."""
