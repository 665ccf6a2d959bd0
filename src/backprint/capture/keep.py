"""Everything of the caller's that a program can reach, remembered and put back.

A Picture walks what a callable, its arguments, its closure and the globals that it names lead to, and remembers every
container's content, every object's attributes, every tensor (its memory, its content, its gradient, its hooks) and the
state of every random generator. `put_back` makes all of it as it was, touching only what is different. Iterators cannot
be put back, so a program that holds one is refused before it runs.

Left out: what lies behind modules (`import helpers; helpers.x = 1`), threads, locks, files and loggers, and arrays of
numpy's above 1 MiB that are no tensor's memory.

Private torch APIs of this module, tried on torch 2.13: `torch._C._autograd._unsafe_set_version_counter`,
`Tensor._backward_hooks`, `Tensor._post_accumulate_grad_hooks`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from backprint.errors import CaptureError
from backprint.tree import parts

MOST = 200_000
"""How many objects a Picture looks at."""

LONG = 10_000
"""A container longer than this is kept, and what is in it is not looked at."""

LARGE = 2**20
"""Bytes of a parameter above which it is copied when a write to it has been seen, not in advance."""

PLAIN = frozenset(
    (
        int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), slice, range,
        torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, types.CodeType, types.ModuleType,
        types.BuiltinFunctionType, types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
        types.MethodDescriptorType, property, staticmethod, classmethod, types.MappingProxyType,
    )
)  # fmt: skip
"""Kinds that hold nothing which a program could change."""

SKIPPED = (
    "torch.fx", "torch.jit", "torch.package", "torch.distributed", "torch.export", "torch.library",
    "torch.multiprocessing", "logging", "threading", "_thread", "concurrent", "queue", "asyncio",
    "multiprocessing", "io", "_io", "socket", "importlib", "_frozen_importlib", "backprint", "re", "ast", "_pytest",
    "pytest", "pluggy", "unittest", "abc", "typing", "inspect", "enum", "warnings", "sympy", "rich", "click",
)  # fmt: skip
"""Modules whose objects are nobody's state: machinery, threads, files."""

PRIVATE = ("torch._", "torch.utils._")
"""How the names of torch's own modules begin."""


def is_skipped(module: str) -> bool:
    """Whether objects of a module's classes are left alone."""
    return module.startswith(PRIVATE) or any(module == head or module.startswith(f"{head}.") for head in SKIPPED)


def class_of(value: Any) -> Any:
    """A value's class."""
    return type(value)


@functools.cache
def left_alone(kind: Any) -> bool:
    """Whether objects of a class are left alone; a module of torch's own machinery is still a module."""
    return not issubclass(kind, (nn.Module, Tensor)) and is_skipped(kind.__module__ or "")


STANDARD = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "builtins"}


@functools.cache
def is_users(kind: Any) -> bool:
    """Whether a class is neither Python's, torch's nor numpy's."""
    return (kind.__module__ or "builtins").partition(".")[0] not in STANDARD and not left_alone(kind)


ITERATORS: tuple[Any, ...] = (
    types.GeneratorType, types.AsyncGeneratorType, type(iter({})), type(iter({}.values())), type(iter({}.items())),
    type(iter(set())), zip, map, filter, enumerate, reversed,
)  # fmt: skip
"""What goes on where it stopped, and cannot be put back; `itertools` has more of them."""

COUNTED: tuple[Any, ...] = (type(iter([])), type(iter(())), type(iter("")), type(iter(range(0))))
"""Iterators whose place can be read and set."""


@functools.cache
def is_installed(module: str, file: str) -> bool:
    """Whether a module is of an installed package: a counter that such a one keeps for itself is nobody's state."""
    above = Path(file).parents
    depth = module.count(".") + (Path(file).stem == "__init__")
    return len(above) > depth and any(above[depth].glob("*.dist-info"))


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator, which a run uses up."""
    return isinstance(value, ITERATORS) or type(value).__module__ == "itertools"


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """What is done to tensors here is ours: no mode sees it, and autograd does not follow it."""
    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


class Picture:
    """What was there, each thing with how it is put back."""

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
        """Look at these too, and at all that they lead to."""
        self.queue.extend(roots)
        with untraced():
            while self.queue and len(self.seen) < MOST:
                self.visit(*self.queue.popleft())
            self.queue.clear()
            self.copy_small()

    def copy_small(self) -> None:
        """Keep the bytes of tensors, of one memory once: of large parameters those that are known to be written."""
        for kept in self.tensors:
            if kept.memory not in self.copied and (not kept.is_large or kept.lies_under(self.arrays)):
                self.copied.add(kept.memory)
                kept.copy()

    def put_back(self) -> None:
        """Everything as it was."""
        with untraced():
            for undo in self.undo:
                undo()
            for kept in self.tensors:
                kept.put_back()

    def refuse_iterators(self, title: str) -> None:
        """Refuse a program that holds an iterator: a run would use it up, and nothing can give it back."""
        if self.iterators:
            name, value = self.iterators[0]
            raise CaptureError(
                f"{title} holds an iterator ({type(value).__name__} {name}), which each run uses up: pass what it "
                "gives as an argument"
            )

    # -------------------------------------------------------------- the walk

    def visit(self, name: str, value: Any) -> None:
        """One value: remember it, and go on to what it holds."""
        kind = class_of(value)
        if kind in PLAIN or id(value) in self.seen:
            return
        if isinstance(value, Tensor):
            self.seen[id(value)] = value
            self.visit_tensor(name, value)
            return
        if kind is weakref.ref:
            self.push(name, value())
            return
        if kind in GENERATORS or (kind.__module__ or "").startswith("numpy.random"):
            self.seen[id(value)] = value
            self.visit_generator(name, value)
            return
        if left_alone(kind):
            return
        self.seen[id(value)] = value
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            self.visit_array(value)
            return
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
        if not isinstance(value, (type, types.FunctionType)):
            self.visit_object(name, value)

    def push(self, name: str, value: Any) -> None:
        """A value to visit."""
        if type(value) not in PLAIN and id(value) not in self.seen:
            self.queue.append((name, value))

    def push_all(self, name: str, items: Iterable[tuple[Any, Any]]) -> None:
        """Values to visit, each with its key; of a long container none."""
        items = list(items)
        if len(items) <= LONG:
            for key, value in items:
                if type(value) not in PLAIN and id(value) not in self.seen:
                    self.queue.append((f"{name}.{key}" if name else str(key), value))

    def visit_dict(self, name: str, box: dict[Any, Any]) -> None:
        """A dictionary."""
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
        """A list, a set, a deque or a bytearray."""
        content = list(box)
        clear, fill = BOXES[next(kind for kind in BOXES if isinstance(box, kind))]

        def undo() -> None:
            if not same_elements(box, content):
                clear(box)
                fill(box, content)

        self.undo.append(undo)
        self.push_all(name, enumerate(content))

    def visit_object(self, name: str, value: Any) -> None:
        """An object's attributes, in its dictionary and in its slots; the functions of a class of the user's."""
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
        """One slot of an object."""
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
        """A class of the user's: its attributes, and what its functions reach."""
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
        """A function: its closure, its defaults, its attributes, and the globals that it names."""
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
        for key in names_in(function.__code__):
            if (id(scope), key) not in self.scopes:
                self.scopes.add((id(scope), key))
                self.visit_global(scope, key)

    def pass_over_generators(self, function: types.FunctionType) -> None:
        """A context manager that decorates a function is made anew for each call: this one's generator never runs."""
        for cell in function.__closure__ or ():
            generator = getattr(cell.cell_contents, "gen", None)
            if isinstance(generator, types.GeneratorType):
                self.seen[id(generator)] = generator

    def visit_cell(self, name: str, cell: Any) -> None:
        """One variable of a closure."""
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
        """One global variable that a function names, or makes."""
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
        """A generator of random numbers."""
        state = generator_state(source)
        self.generators.append((name, source, state))
        self.undo.append(lambda: put_generator(source, state))

    def visit_array(self, array: Any) -> None:
        """An array of numpy's: what is in it, which may be a tensor's. A large one is known by where it lies alone."""
        self.arrays.append(array)
        if array.nbytes > LARGE or not array.flags.writeable:
            return
        content = array.copy()

        def undo() -> None:
            if array.shape == content.shape and array.tobytes() != content.tobytes():
                array[...] = content

        self.undo.append(undo)

    def visit_iterator(self, name: str, value: Any) -> None:
        """An iterator over a sequence; one that is used up stays so."""
        state = value.__reduce__()
        if len(state) == 3:
            self.undo.append(lambda: self.rewind(name, value, state[2]))
            self.push(name, state[1][0])

    def rewind(self, name: str, value: Any, place: int) -> None:
        """An iterator at the place where it was."""
        if len(value.__reduce__()) < 3:
            self.spent.append((name, value))
        else:
            value.__setstate__(place)

    def add(self, name: str, tensor: Tensor, whole: bool = False) -> KeptTensor:
        """A tensor that must come back, `whole` with its content whatever its size."""
        if id(tensor) not in self.seen:
            self.visit(name, tensor)
        kept = self.by_id[id(tensor)]
        if whole and kept.memory not in self.copied:
            self.copied.add(kept.memory)
            kept.copy()
        return kept

    def visit_tensor(self, name: str, tensor: Tensor) -> None:
        """A tensor, its gradient and its attributes."""
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
"""How a container is emptied and filled again."""


@functools.cache
def slots_of(kind: Any) -> tuple[tuple[Any, str], ...]:
    """The slots of a class of the user's."""
    if not is_users(kind):
        return ()
    found = []
    for each in kind.__mro__:
        for slot, value in vars(each).items():
            if isinstance(value, types.MemberDescriptorType) and is_users(each):
                found.append((value, slot))
    return tuple(found)


@functools.cache
def names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names that a function's code, and that of the functions in it, mentions."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= dict.fromkeys(names_in(constant))
    return tuple(found)


def is_library(function: types.FunctionType) -> bool:
    """Whether a function is Python's, torch's or numpy's own."""
    return str(function.__module__ or "").partition(".")[0] in STANDARD


def _numpy_state(source: Any) -> Any:
    return source.bit_generator.state if hasattr(source, "bit_generator") else getattr(source, "state", None)


def _put_numpy_state(source: Any, state: Any) -> None:
    holder = source.bit_generator if hasattr(source, "bit_generator") else source
    if state is not None:
        holder.state = state


GENERATORS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    torch.Generator: (lambda source: source.get_state(), lambda source, state: source.set_state(state)),
    random.Random: (lambda source: source.getstate(), lambda source, state: source.setstate(state)),
    None: (
        lambda source: source.get_state() if hasattr(source, "get_state") else _numpy_state(source),
        lambda source, state: (
            source.set_state(state) if hasattr(source, "set_state") else _put_numpy_state(source, state)
        ),
    ),
}
"""How a generator's state is read and put; None stands for numpy's, which may not be there."""


def generator_state(source: Any) -> Any:
    """The state of a generator of random numbers."""
    return GENERATORS.get(type(source), GENERATORS[None])[0](source)


def put_generator(source: Any, state: Any) -> None:
    """Set the state of a generator of random numbers."""
    GENERATORS.get(type(source), GENERATORS[None])[1](source, state)


# ------------------------------------------------------------------ one tensor


class KeptTensor:
    """A tensor as it was: where it lies, what is in it, whether it requires grad, its gradient and its hooks."""

    __slots__ = (
        "alias",
        "content",
        "grad",
        "hooks",
        "leaf",
        "memory",
        "nbytes",
        "post",
        "requires_grad",
        "tensor",
        "version",
    )

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.leaf = tensor.is_leaf
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if self.leaf else None
        self.hooks = dict(tensor._backward_hooks) if tensor._backward_hooks else None
        post = getattr(tensor, "_post_accumulate_grad_hooks", None) if self.leaf else None
        self.post = dict(post) if post else None
        self.version = None if tensor.is_inference() else tensor._version
        self.content: tuple[Tensor, ...] | None = None
        plain = is_plain(tensor)
        self.alias = tensor.detach() if plain else None
        self.memory = tensor.untyped_storage()._cdata if plain and tensor.layout is torch.strided else id(tensor)
        self.nbytes = sum(part.untyped_storage().nbytes() for part in parts(tensor)) if plain else 0

    @property
    def is_large(self) -> bool:
        """Whether the tensor is a parameter that is too large to be copied for nothing."""
        return isinstance(self.tensor, nn.Parameter) and self.nbytes > LARGE

    def lies_under(self, arrays: list[Any]) -> bool:
        """Whether one of these arrays of numpy's lies in the tensor's memory."""
        if not arrays or self.alias is None or self.alias.layout is not torch.strided or self.alias.is_meta:
            return False
        start = self.alias.untyped_storage().data_ptr()
        return any(0 <= array.ctypes.data - start < self.nbytes for array in arrays)

    def copy(self) -> None:
        """Keep the bytes of all memory that the tensor lies in."""
        if self.alias is not None:
            self.content = tuple(part.untyped_storage().clone() for part in parts(self.alias))

    def put_back(self) -> None:
        """The tensor as it was."""
        tensor = self.tensor
        if self.alias is not None:
            if tensor.requires_grad and not self.requires_grad and not tensor.is_leaf:
                (tensor._base if tensor._is_view() else tensor).detach_()
            if not lies_as(tensor, self.alias):
                tensor.data = self.alias
            for part, content in zip(parts(self.alias), self.content or (), strict=False):
                storage = part.untyped_storage()
                if not same_bytes(storage, content):
                    put_bytes(storage, content)
        if self.leaf and tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if self.leaf and tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if (tensor._backward_hooks or None) != self.hooks:
            put_hooks(tensor, self.hooks)
        post = getattr(tensor, "_post_accumulate_grad_hooks", None) if self.leaf else None
        if post is not None and dict(post) != (self.post or {}):
            post.clear()
            post.update(self.post or {})
        if self.version is not None and tensor._version != self.version:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (self.version,))


def put_hooks(tensor: Tensor, hooks: dict[int, Any] | None) -> None:
    """The hooks that a tensor had: those that a run has added go."""
    if tensor._backward_hooks is not None:
        kept = tensor._backward_hooks
        for key in [key for key in kept if not hooks or key not in hooks]:
            del kept[key]


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own that can be read and written."""
    return (
        type(tensor) in (Tensor, nn.Parameter, nn.Buffer)
        and tensor.device.type != "meta"
        and not tensor.is_nested
        and tensor.layout in LAYOUTS
    )


LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def lies_as(tensor: Tensor, alias: Tensor) -> bool:
    """Whether a tensor is where it was, seen as it was."""
    if tensor.layout is not alias.layout or tensor.shape != alias.shape or tensor.dtype is not alias.dtype:
        return False
    if tensor.layout is not torch.strided:
        return all(lies_as(now, then) for now, then in zip(parts(tensor), parts(alias), strict=True))
    return (
        tensor.untyped_storage()._cdata == alias.untyped_storage()._cdata
        and tensor.stride() == alias.stride()
        and tensor.storage_offset() == alias.storage_offset()
    )


def put_bytes(storage: torch.UntypedStorage, content: torch.UntypedStorage) -> None:
    """A storage's content again, and its size."""
    if storage.nbytes() != content.nbytes():
        storage.resize_(content.nbytes())
    storage.copy_(content)


def same_bytes(left: torch.UntypedStorage, right: torch.UntypedStorage) -> bool:
    """Whether two storages have the same content."""
    if left.nbytes() != right.nbytes():
        return False
    kind = torch.int64 if left.nbytes() % 8 == 0 else torch.uint8  # eight times as fast
    empty = [torch.empty(0, dtype=kind, device=each.device) for each in (left, right)]
    first, second = (one.set_(each) for one, each in zip(empty, (left, right), strict=True))
    return bool(torch.equal(first, second))


# ------------------------------------------------------------------ what is global


def _autocast() -> tuple[Any, ...]:
    kinds = [kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind)]
    flags = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
    return flags, torch.is_autocast_cache_enabled()


def _put_autocast(state: tuple[Any, ...]) -> None:
    for kind, on, dtype in state[0]:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(state[1])


def _put_environment(wanted: dict[str, str]) -> None:
    for key in set(os.environ) - set(wanted):
        del os.environ[key]
    for key, value in wanted.items():
        if os.environ.get(key) != value:
            os.environ[key] = value


def _put_filters(wanted: list[Any]) -> None:
    filters: Any = warnings.filters
    filters[:] = wanted


SWITCHES = ("default dtype", "deterministic", "matmul precision", "autocast", "flash", "math", "efficient", "mkldnn")
"""Those that a program's numbers depend on: they are set again when it runs another time."""

GLOBALS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
    ),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "autocast": (_autocast, _put_autocast),
    "anomaly": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda state: torch.set_anomaly_enabled(*state),
    ),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda on: torch.backends.mkldnn.set_flags(on)),
    "print options": (
        lambda: dict(vars(torch._tensor_str.PRINT_OPTS)),
        lambda options: vars(torch._tensor_str.PRINT_OPTS).update(options),
    ),
    "environment": (lambda: dict(os.environ), lambda wanted: _put_environment(wanted)),
    "directory": (os.getcwd, os.chdir),
    "warning filters": (
        lambda: list(warnings.filters),
        lambda wanted: _put_filters(wanted),
    ),
    "recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
}
"""What a program can switch for the whole process: how it is read, and how it is put."""


@contextlib.contextmanager
def globals_kept() -> Iterator[None]:
    """What holds for the whole process as it was."""
    before = {name: read() for name, (read, _) in GLOBALS.items()}
    try:
        yield
    finally:
        for name, (read, put) in GLOBALS.items():
            if read() != before[name]:
                put(before[name])


@contextlib.contextmanager
def kept(*roots: Any) -> Iterator[Picture]:
    """Everything that these lead to as it was, whatever happens inside."""
    picture = Picture(("", root) for root in roots)
    OPEN.append(picture)
    with globals_kept():
        try:
            yield picture
        finally:
            OPEN.remove(picture)
            picture.put_back()


OPEN: list[Picture] = []
"""The Pictures that are to be put back."""


def given_away(tensor: Tensor) -> None:
    """Keep the content of a tensor whose memory is given to what writes to it unseen, however large it is."""
    if not is_plain(tensor) or tensor.layout is not torch.strided:
        return
    memory = tensor.untyped_storage()._cdata
    with untraced():
        for picture in OPEN:
            for each in picture.tensors:
                if each.memory == memory and memory not in picture.copied:
                    picture.copied.add(memory)
                    each.copy()
