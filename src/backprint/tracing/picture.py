"""A snapshot of everything that a program can reach, with how each thing is restored.

A Picture walks everything that a callable, its arguments, its closure and the globals that it names lead to. It
remembers every container's content, every object's attributes, every tensor (its memory, its content, its gradient, its
hooks) and the state of every random generator. `put_back` restores all of it, and touches only what differs. Iterators
cannot be restored, so a program that holds one is refused before it runs.

Left out are objects behind modules (`import helpers; helpers.x = 1`), threads, locks, files and loggers, and numpy
arrays above 1 MiB that do not use a tensor's memory.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

from backprint.errors import CaptureError
from backprint.tracing.generators import GENERATORS, generator_state, put_generator
from backprint.tracing.kept_tensor import LARGE, KeptTensor, untraced
from backprint.tracing.kinds import (
    COUNTED,
    PLAIN,
    class_of,
    is_installed,
    is_iterator,
    is_library,
    is_skipped,
    is_users,
    left_alone,
    names_in_code,
    slots_of,
)

MOST = 200_000
"""The most objects that a Picture looks at."""

LONG = 10_000
"""The elements of a container longer than this are kept, but not looked into."""


class Picture:
    """Everything that was reachable, with how each thing is restored."""

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.seen: dict[int, Any] = {}
        self.undo: list[Callable[[], None]] = []
        self.tensors: list[KeptTensor] = []
        self.by_id: dict[int, KeptTensor] = {}
        self.copied: set[int] = set()
        self.iterators: list[tuple[str, Any]] = []
        self.generators: list[tuple[str, Any, Any]] = []
        self.arrays: list[Any] = []
        self.spent: list[tuple[str, Any]] = []
        self.scopes: set[tuple[int, str]] = set()
        self.queue: deque[tuple[str, Any]] = deque()
        self.classes: set[type] = set()
        self.go_on(roots)

    def go_on(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Look into these roots too."""
        self.queue.extend(roots)
        with untraced():
            while self.queue and len(self.seen) < MOST:
                self.visit(*self.queue.popleft())
            self.queue.clear()
            self.copy_small()

    def copy_small(self) -> None:
        """Keep the bytes of tensors, each storage once; of large parameters only those that are known to be written."""
        for kept in self.tensors:
            if kept.memory not in self.copied and (not kept.is_large or kept.lies_under(self.arrays)):
                self.copied.add(kept.memory)
                kept.copy()

    def put_back(self) -> None:
        """Restore everything."""
        with untraced():
            for undo in self.undo:
                undo()
            for kept in self.tensors:
                kept.put_back()

    def refuse_iterators(self, title: str) -> None:
        """Refuse a program that holds an iterator: a run would use it up, and it cannot be restored."""
        if self.iterators:
            name, value = self.iterators[0]
            raise CaptureError(
                f"{title} holds an iterator ({type(value).__name__} {name}), which each run uses up: pass its "
                "items as an argument"
            )

    # -------------------------------------------------------------- the walk

    def visit(self, name: str, value: Any) -> None:
        """Remember one value, and queue everything that it holds."""
        kind = class_of(value)
        if kind in PLAIN or id(value) in self.seen:
            return
        if kind is weakref.ref:
            self.push(name, value())
        elif (visit := self.visit_of_kind(kind)) is not None:
            self.seen[id(value)] = value
            visit(name, value)
        elif not left_alone(kind):
            self.seen[id(value)] = value
            self.visit_held(name, value)
            if not isinstance(value, (type, types.FunctionType)):
                self.visit_object(name, value)

    def visit_of_kind(self, kind: Any) -> Callable[[str, Any], None] | None:
        """Return how a tensor, a generator or an array is remembered; None for objects that hold others."""
        if issubclass(kind, Tensor):
            return self.visit_tensor
        if kind in GENERATORS or (kind.__module__ or "").startswith("numpy.random"):
            return self.visit_generator
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            return self.visit_array
        return None

    def visit_held(self, name: str, value: Any) -> None:
        """Remember what a container, an iterator, a function or a class holds besides its attributes."""
        if is_iterator(value):
            self.iterators.append((name, value))
        elif isinstance(value, COUNTED):
            self.visit_iterator(name, value)
        elif isinstance(value, dict):
            self.visit_dict(name, value)
        elif isinstance(value, (list, set, deque, bytearray)):
            self.visit_box(name, value)
        elif isinstance(value, (tuple, frozenset)):
            self.push_all(name, enumerate(value))
        elif isinstance(value, types.FunctionType):
            self.visit_function(name, value)
        elif isinstance(value, types.MethodType):
            self.push(name, value.__self__)
            self.push(name, value.__func__)
        elif isinstance(value, functools.partial):
            self.push_all(name, enumerate(value.args))
            self.push_all(name, value.keywords.items())
            self.push(name, value.func)
        elif isinstance(value, type):
            self.visit_class(value)

    def push(self, name: str, value: Any) -> None:
        """Queue a value."""
        if type(value) not in PLAIN and id(value) not in self.seen:
            self.queue.append((name, value))

    def push_all(self, name: str, items: Iterable[tuple[Any, Any]]) -> None:
        """Queue values with their keys, unless there are too many."""
        items = list(items)
        if len(items) <= LONG:
            for key, value in items:
                if type(value) not in PLAIN and id(value) not in self.seen:
                    self.queue.append((f"{name}.{key}" if name else str(key), value))

    def visit_dict(self, name: str, box: dict[Any, Any]) -> None:
        content = list(dict.items(box))
        kind = OrderedDict if isinstance(box, OrderedDict) else dict

        def undo() -> None:
            if not same_items(dict.items(box), content):
                kind.clear(box)
                for key, value in content:
                    kind.__setitem__(box, key, value)

        self.undo.append(undo)
        self.push_all(name, content)
        self.push_all(name, ((f"key {index}", key) for index, (key, _) in enumerate(content)))

    def visit_box(self, name: str, box: Any) -> None:
        """Remember a list, a set, a deque or a bytearray."""
        content = list(box)
        clear, fill = BOXES[next(kind for kind in BOXES if isinstance(box, kind))]

        def undo() -> None:
            if not same_elements(box, content):
                clear(box)
                fill(box, content)

        self.undo.append(undo)
        self.push_all(name, enumerate(content))

    def visit_object(self, name: str, value: Any) -> None:
        """Remember an object's attributes and slots, and what the functions of a user's class reach."""
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            attributes = None
        if type(attributes) is dict and id(attributes) not in self.seen:
            self.seen[id(attributes)] = attributes
            self.visit_dict(name, attributes)
        for owner, slot in slots_of(class_of(value)):
            self.visit_slot(name, value, owner, slot)
        if is_users(class_of(value)):
            self.push(name, type(value))

    def visit_slot(self, name: str, value: Any, owner: Any, slot: str) -> None:
        try:
            content = owner.__get__(value)
        except AttributeError:
            return

        def undo() -> None:
            if owner.__get__(value, type(value)) is not content:
                owner.__set__(value, content)

        self.undo.append(undo)
        self.push(f"{name}.{slot}", content)

    def visit_class(self, kind: type) -> None:
        """Remember the attributes of a user's class, and what its functions reach."""
        for each in kind.__mro__:
            if each in self.classes or not is_users(each):
                continue
            self.classes.add(each)
            content = {key: value for key, value in vars(each).items() if not key.startswith("__")}

            def undo(each: type = each, content: dict[str, Any] = content) -> None:
                now = vars(each)
                for key, value in content.items():
                    if now.get(key, self) is not value:
                        with contextlib.suppress(AttributeError, TypeError):
                            type.__setattr__(each, key, value)
                for key in [key for key in now if not key.startswith("__") and key not in content]:
                    with contextlib.suppress(AttributeError, TypeError):
                        type.__delattr__(each, key)

            self.undo.append(undo)
            for key, value in content.items():
                value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                value = value.fget if isinstance(value, property) else value
                self.push(key, value)
            self.push("__call__", vars(each).get("__call__"))

    def visit_function(self, name: str, function: types.FunctionType) -> None:
        """Remember a function: its closure, its defaults, its attributes, and the globals that it names."""
        while hasattr(function, "__wrapped__") and not function.__closure__:
            inner = function.__wrapped__
            if not isinstance(inner, types.FunctionType) or id(inner) in self.seen:
                break
            self.seen[id(inner)] = inner
            function = inner
        if function.__code__.co_filename == contextlib.__file__:
            self.pass_over_generators(function)
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.visit_cell(key, cell)
        self.push_all(name, enumerate(function.__defaults__ or ()))
        if function.__kwdefaults__:
            self.push(name, function.__kwdefaults__)
        self.push(name, function.__dict__)
        if is_skipped(str(function.__globals__.get("__name__", ""))) or is_library(function):
            return
        scope = function.__globals__
        for key in names_in_code(function.__code__):
            if (id(scope), key) not in self.scopes:
                self.scopes.add((id(scope), key))
                self.visit_global(scope, key)

    def pass_over_generators(self, function: types.FunctionType) -> None:
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
        try:
            content = cell.cell_contents
        except ValueError:
            return

        def undo() -> None:
            try:
                now = cell.cell_contents
            except ValueError:
                now = cell
            if now is not content:
                cell.cell_contents = content

        self.undo.append(undo)
        self.push(name, content)

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
            self.push(key, content)

    def visit_generator(self, name: str, source: Any) -> None:
        """Remember the state of a random generator."""
        state = generator_state(source)
        self.generators.append((name, source, state))
        self.undo.append(lambda: put_generator(source, state))

    def visit_array(self, name: str, array: Any) -> None:
        """Remember the content of a numpy array, which may be a tensor's. Of a large one, remember only its address."""
        self.arrays.append(array)
        if array.nbytes > LARGE or not array.flags.writeable:
            return
        content = array.copy()

        def undo() -> None:
            if array.shape == content.shape and array.tobytes() != content.tobytes():
                array[...] = content

        self.undo.append(undo)

    def visit_iterator(self, name: str, value: Any) -> None:
        """Remember the position of an iterator over a sequence, unless it is exhausted."""
        state = value.__reduce__()
        if len(state) == 3:
            self.undo.append(lambda: self.rewind(name, value, state[2]))
            self.push(name, state[1][0])

    def rewind(self, name: str, value: Any, place: int) -> None:
        """Set an iterator to its earlier position."""
        if len(value.__reduce__()) < 3:
            self.spent.append((name, value))
        else:
            value.__setstate__(place)

    def add(self, name: str, tensor: Tensor, whole: bool = False) -> KeptTensor:
        """Remember a tensor; with `whole`, its content whatever its size."""
        if id(tensor) not in self.seen:
            self.visit(name, tensor)
        kept = self.by_id[id(tensor)]
        if whole and kept.memory not in self.copied:
            self.copied.add(kept.memory)
            kept.copy()
        return kept

    def visit_tensor(self, name: str, tensor: Tensor) -> None:
        """Remember a tensor, its gradient and its attributes."""
        made = KeptTensor(tensor)
        self.tensors.append(made)
        self.by_id[id(tensor)] = made
        if tensor.is_leaf and tensor.grad is not None:
            self.push(f"{name}.grad", tensor.grad)
        if tensor._base is not None:
            self.push(f"{name}._base", tensor._base)
        if tensor.__dict__:
            self.visit_dict(name, tensor.__dict__)
        else:
            self.undo.append(lambda: tensor.__dict__.clear() if tensor.__dict__ else None)


def same_items(now: Iterable[tuple[Any, Any]], then: list[tuple[Any, Any]]) -> bool:
    """Whether a dictionary has the same keys with the same values, in the same order."""
    now = list(now)
    return len(now) == len(then) and all(a is c and b is d for (a, b), (c, d) in zip(now, then, strict=True))


def same_elements(now: Iterable[Any], then: list[Any]) -> bool:
    """Whether a container has the same elements."""
    now = list(now)
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))


BOXES: dict[type, tuple[Callable[[Any], None], Callable[[Any, Any], None]]] = {
    list: (list.clear, list.extend),
    set: (set.clear, set.update),
    deque: (deque.clear, deque.extend),
    bytearray: (bytearray.clear, bytearray.extend),
}
"""How a container is cleared and filled."""
