"""A program's result as its tensors and the objects that hold them: containers of pytree, and objects with attributes.

An object that holds tensors (a dataclass, a subclass of a list or a dict, an object of a class that Python code
defines) is opened. Each tensor is an output, named after its place, and a template of the object has a Hole in the
place of each. A replay copies the template with its own tensors, so it never returns a tensor of the capture. Objects
without tensors stay as they are. Anything else that holds a tensor is refused by name: a set, a closure, a generator, a
storage.

A *leaf* is a tensor, a symbolic size, or in a template a Hole. `name` is the path of a value in the result, such as
`output.logits`: the name of an output, or what a refusal calls the value. A *part* of an object is an item or an
attribute, `EXACT` are types of plain values without parts, and `pytree` is torch's. `refuse` raises CaptureError.

A search keeps, by the id of each object that it meets, the ids of those that hold it (`holders`; 0 for the value that
is searched), and all objects themselves (`alive`), so that no other object gets one of these ids. Its result is
`reaching`: the ids of the objects from which a leaf can be reached. A copier has the copies so far by the id of the
original (`copies`), and its `leaf(value, name)` returns what stands for a leaf in the copy.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import gc
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.modules import REGISTRIES
from backprint.errors import CaptureError
from backprint.values.fingerprint import EXACT, TORCH_ATTRIBUTE_PREFIXES, is_of_numpy, is_python_class
from backprint.values.objects import attributes_with_slots, slots_in
from backprint.values.tree import key_text, leaf_paths, number_duplicates, printable_name

MAX_OBJECTS = 100_000
"""The most objects of a result that are searched."""

ADVICE = "return its tensors in a tuple, a list, a dict or a dataclass"
"""How a refusal ends."""


# ---- The result as a whole


MAX_PATHS_IN_SUMMARY = 1000
"""The most leaves whose paths are in the summary of a ResultTree."""


class OpenedObject(NamedTuple):
    """An object of a result that was opened: a template, which has a Hole for each leaf, and the number of leaves."""

    template: Any
    leaves: int


@dataclass(frozen=True, slots=True, eq=False)
class ResultTree:
    """The structure of a result, without its tensors.

    `spec` is the structure of pytree. `opened` has an entry for each leaf of `spec`, which is None unless the leaf is
    an object that was opened. `summary` is the result's class and the paths of its leaves, as text. The leaves of the
    result are those of `spec`, in order, with the leaves of an opened object in its place.
    """

    spec: Any
    opened: tuple[OpenedObject | None, ...]
    summary: str = ""

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the result with these leaves, in new containers and objects."""
        return pytree.tree_unflatten([_fill_leaf(opened, own) for opened, own in self.parts(leaves)], self.spec)

    def with_marks(self, marks: Sequence[Any]) -> list[Any]:
        """Return, for each leaf of `spec`, the mark that a sample keeps of it. An object that was opened has its
        structure, with the marks of its leaves.

        A mark is the name of an output port, or the text of another value.
        """
        return [
            own[0] if opened is None else _structure_of(opened.template, own, enclosing=())
            for opened, own in self.parts(marks)
        ]

    def parts(self, leaves: Sequence[Any]) -> Iterator[tuple[OpenedObject | None, Sequence[Any]]]:
        """Yield each entry of `opened` with its leaves: one leaf, or all leaves of an object."""
        start = 0
        for opened in self.opened:
            count = 1 if opened is None else opened.leaves
            yield opened, leaves[start : start + count]
            start += count

    @property
    def templates(self) -> list[Any]:
        """The templates of the objects that were opened."""
        return [opened.template for opened in self.opened if opened is not None]


NO_RESULT = ResultTree(pytree.tree_structure(()), ())
"""The structure of a result without leaves."""


def _fill_leaf(opened: OpenedObject | None, leaves: Sequence[Any]) -> Any:
    """Return what stands at one leaf of a ResultTree's `spec`: a copy of an opened object's template with these leaves,
    or, if no object was opened there, the only one of `leaves`."""
    if opened is not None:
        return _ObjectCopier(lambda hole, name: hole.filled(leaves[hole.index])).copy_of(opened.template)
    if _is_plain_leaf(leaves[0]):
        return leaves[0]
    # An object without tensors, the same one at each replay. Containers and arrays in it are copied, because the caller
    # may write to what a replay returns. It reaches no leaf, so no search is needed.
    return _ObjectCopier(lambda leaf, name: leaf, reaching=frozenset()).copy_of(leaves[0])


def outputs_of(result: Any) -> tuple[list[tuple[str, Any]], ResultTree]:
    """Return a result's leaves as pairs of a name (`output`, `output.0`, `output.logits`) and a value, and the
    ResultTree that is the result without them."""
    # Containers of pytree are flattened. An object that is to be opened is a leaf of pytree here.
    try:
        leaves, spec = pytree.tree_flatten(result, is_leaf=_is_opened_as_object)
    except RecursionError:
        raise refusal_of_depth() from None
    paths = list(zip(leaf_paths(result, leaves), leaves, strict=True))  # each leaf after its path
    named_leaves: list[tuple[str, Any]] = []
    opened: list[OpenedObject | None] = []
    for path, leaf in paths:
        name = printable_name(".".join(["output", *map(key_text, path)]))
        template, leaves_of_object = (None, None) if _is_plain_leaf(leaf) else _open_object(leaf, name)
        if leaves_of_object is None:
            named_leaves.append((name, leaf))
            opened.append(None)
        else:
            named_leaves += leaves_of_object
            opened.append(OpenedObject(template, len(leaves_of_object)))
    # Two leaves may have one name, such as the items 1 and '1' of a dict.
    names = number_duplicates([name for name, _ in named_leaves])
    path_texts = ", ".join("".join(map(str, path)) for path, _ in paths[:MAX_PATHS_IN_SUMMARY])
    # A value that is a leaf itself has an empty path.
    summary = "one value" if len(paths) == 1 and not paths[0][0] else f"{_type_text(result)} of {path_texts}"
    tree = ResultTree(spec, tuple(opened), summary)
    return [(name, leaf) for name, (_, leaf) in zip(names, named_leaves, strict=True)], tree


def refusal_of_depth() -> CaptureError:
    """Return the refusal of a result without end, or of one that is too deep for Python."""
    return CaptureError(
        "the program returns a container that contains itself, or that is nested too deeply: return its tensors in a "
        "tuple or a list",
        every_engine=True,
    )


def _is_plain_leaf(leaf: Any) -> bool:
    """Whether a leaf is a value without further values in it, such as a number or a tensor without attributes."""
    return type(leaf) in EXACT or (isinstance(leaf, Tensor) and not _attributes_set_on(leaf))


def _is_opened_as_object(node: Any) -> bool:
    """Whether a container that pytree knows is opened as an object, because it has more than its items."""
    if isinstance(node, (Tensor, *EXACT)) or type(node) in (list, tuple, dict):
        # A plain container is left to pytree, unless tensors are in the keys of a dict.
        return type(node) is dict and any(map(_holds_tensors, node))
    # A subclass of a named tuple with attributes of its own, which pytree would drop.
    if isinstance(node, tuple) and getattr(node, "__dict__", None):
        return True
    registered = pytree.SUPPORTED_NODES.get(type(node))
    # What pytree does not know is a leaf for it in any case, and a deque has no more than its items.
    if registered is None or type(node) is collections.deque:
        return False
    if isinstance(node, torch.Size):
        return all(type(size) is int for size in node)  # pytree would make a tuple of it
    # pytree keeps a node's context as it is, with any tensors in it.
    return bool(getattr(node, "__dict__", None)) or _holds_tensors(registered.flatten_fn(node)[1])


def _holds_tensors(value: Any) -> bool:
    """Whether a tensor can be reached from a value."""
    return type(value) not in EXACT and bool(_ObjectSearch().search(value, "output").reaching)


def _open_object(leaf: Any, name: str) -> tuple[Any, list[tuple[str, Any]] | None]:
    """Return the template of an object, and the leaves in it as pairs of a name and a value; None and None if it holds
    none."""
    search = _ObjectSearch().search(leaf, name)  # `reaching`: the ids of the objects from which a leaf can be reached
    if not search.reaching:
        return None, None
    named_tensors: list[tuple[str, Any]] = []
    indices: dict[tuple[int, str], int] = {}  # of the Holes so far, by the id of a tensor and a name

    def hole(tensor: Any, where: str) -> _Hole:
        """Return the Hole of a tensor that was found under the name `where`.

        A tensor with several names is an output under each of them. A tensor that has one name twice is one output: a
        dict of a model library may have its items as attributes too. A parameter is one output in any case, because
        modules hold it several times.
        """
        is_parameter = isinstance(tensor, nn.Parameter)
        name = printable_name(where)
        key = id(tensor), "" if is_parameter else name
        if key not in indices:
            indices[key] = len(named_tensors)
            named_tensors.append((name, tensor))
        return _Hole(indices[key], tensor.requires_grad if is_parameter else None)

    return _ObjectCopier(hole, search.reaching).copy_of(leaf, name), named_tensors


def refuse(name: str, what: str, advice: str = ADVICE) -> NoReturn:
    """Refuse a result that a replay could not return."""
    raise CaptureError(
        f"the program returns {name} as {what}; a replay could not return that with tensors of its own: {advice}",
        every_engine=True,
    )


def _type_text(value: Any) -> str:
    """Return a value's type as text, with an article: `a collections.Counter`."""
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


@dataclass(frozen=True, slots=True, eq=False)
class _Hole:
    """Stands for the leaf of this index in an object's template. `requires_grad` is the flag of a Parameter; None for
    any other leaf."""

    index: int
    requires_grad: bool | None = None

    def filled(self, leaf: Any) -> Any:
        """Return the leaf that replaces the Hole, as a Parameter if the template had one."""
        if self.requires_grad is None or not isinstance(leaf, Tensor):
            return leaf
        return nn.Parameter(leaf.detach(), self.requires_grad)


CONTAINERS = (list, dict, collections.deque, collections.OrderedDict, collections.defaultdict)
"""Containers of Python's own. Each replay returns new ones, whether they hold leaves or not."""

Leaf = (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, _Hole)
"""Leaves: tensors, and sizes that are symbolic while a program is traced. They are never copied with an object."""


# ---- The parts of an object


Parts = list[tuple[str, Any]]
"""The named parts of an object, in order."""

SEQUENCES = (list, tuple, collections.deque)
"""Types whose items are opened by their index."""

OPENED = (*SEQUENCES, dict, types.SimpleNamespace)
"""Types written in C whose objects are opened, and the objects of their subclasses too."""

ATOMS = (type, types.ModuleType, types.CodeType, types.FrameType, enum.Enum, torch.Generator, logging.Logger)
"""Types that are never searched, because nothing inside depends on one run."""

STORAGES = (torch.UntypedStorage, torch.TypedStorage)

LEFT_OUT_OF_NAMES = REGISTRIES
"""Attributes of modules that are not part of the name of a tensor in them: `layer.weight`, not
`layer._parameters.weight`."""


def _is_opened(value: Any) -> bool:
    """Whether a value is opened: a container of Python's own, or an object of a class that Python code defines."""
    return isinstance(value, OPENED) or all(map(is_python_class, type(value).__mro__))


def parts_of(value: Any) -> Parts:
    """Return the named parts of an object: its items, then its attributes."""
    if isinstance(value, dict):
        items = [(_key_name(key), item) for key, item in dict.items(value)]
    else:
        items = [(str(index), item) for index, item in enumerate(value)] if isinstance(value, SEQUENCES) else []
    return [*items, *_own_attributes(value).items()]


def _key_name(key: Any) -> str:
    """Return the name of an item of a dict: its key as text, or the key's type if the key is no plain value."""
    return str(key) if type(key) in EXACT else type(key).__name__


def _own_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name. A dataclass has them in the order of its definition, and after them
    those that were set besides."""
    attributes = attributes_with_slots(value) or {}
    declared = [row.name for row in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    return {name: attributes[name] for name in dict.fromkeys((*declared, *attributes)) if name in attributes}


def _attributes_set_on(tensor: Tensor) -> dict[str, Any]:
    """Return the attributes that a program set on a plain tensor."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return {}
    return {
        name: attribute for name, attribute in vars(tensor).items() if not name.startswith(TORCH_ATTRIBUTE_PREFIXES)
    }


def _part_name(name: str, part: str) -> str:
    """Return the name of a part of the object that is called `name`."""
    return f"{name}.{part}" if part and part not in LEFT_OUT_OF_NAMES else name


# ---- Searching an object for tensors


@dataclass(slots=True)
class _ObjectSearch:
    """A search of an object, breadth first, for the objects from which a tensor can be reached.

    Objects are known by their ids. `holders` has, for each object, the objects that hold it (0 for the value that is
    searched), and `tensors` the leaves. `reaching` is the result. `alive` keeps every object, because a freed object's
    id could become another's.
    """

    holders: dict[int, list[int]] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    tensors: set[int] = field(default_factory=set)
    reaching: frozenset[int] = frozenset()

    def search(self, value: Any, name: str) -> _ObjectSearch:
        """Search a value, which refusals call `name`; return the search, with its result in `reaching`."""
        queue: collections.deque[tuple[str, Any, int]] = collections.deque([(name, value, 0)])
        while queue:
            where, part, holder = queue.popleft()
            if type(part) in EXACT or isinstance(part, ATOMS):
                if isinstance(part, type):
                    _refuse_class_with_tensors(part, where)
                continue
            # Every holder is noted, also of a part that was searched before: `reach` follows all of them.
            first = id(part) not in self.holders
            self.holders.setdefault(id(part), []).append(holder)
            if first:
                self.alive.append(part)
                if len(self.alive) > MAX_OBJECTS:
                    refuse(name, f"{_type_text(value)} of more than {MAX_OBJECTS:,} objects")
                queue.extend((_part_name(where, key), inner, id(part)) for key, inner in self.inside(where, part))
        self.reaching = self.reach()
        return self

    def inside(self, name: str, value: Any) -> Parts:
        """Return the parts of a value, which refusals call `name`, and note a leaf in `tensors`; refuse a value that a
        replay could not return."""
        # Leaves, which are not opened.
        if isinstance(value, Leaf):
            self.tensors.add(id(value))
            if isinstance(value, Tensor) and any(map(_holds_tensors, _attributes_set_on(value).values())):
                refuse(
                    name,
                    f"a tensor with tensors as attributes ({', '.join(_attributes_set_on(value))})",
                    "return them beside it",
                )
            return []
        # Values of which a replay could not return a copy.
        if _is_weak_reference_to_tensor(value):
            refuse(name, "a weak reference to a tensor", "return the tensor")
        if isinstance(value, weakref.ref):
            return []
        if is_iterator(value):
            refuse(name, f"{_type_text(value)}, which is used up when it is read", "return a list of its items")
        if isinstance(value, STORAGES):
            refuse(name, "the memory of a tensor", "return the tensor")
        if isinstance(value, torch.autograd.graph.Node):
            refuse(name, f"a node of the autograd graph ({type(value).__name__})", "return the tensor")
        keys = [key for key in value if type(key) not in EXACT] if isinstance(value, dict) else []
        if any(map(_holds_what_is_refused, keys)):
            refuse(name, f"{_type_text(value)} with tensors or iterators in its keys", "make them values")
        # Objects, which are opened. Anything else may hold no tensor, wherever it is hidden.
        if _is_opened(value):
            return parts_of(value)
        if _holds_what_is_refused(value):
            refuse(name, f"{_type_text(value)} with tensors or iterators inside")
        return []

    def reach(self) -> frozenset[int]:
        """Return the ids of the objects from which a leaf can be reached, leaves included: from the leaves, all that
        hold them."""
        reaching: set[int] = set()
        queue = list(self.tensors)
        while queue:
            key = queue.pop()
            if key not in reaching:
                reaching.add(key)
                queue += self.holders.get(key, ())
        return frozenset(reaching)


def _refuse_class_with_tensors(kind: type, name: str) -> None:
    """Refuse a class that the program defined while it ran and that holds tensors: a replay would return the tensors of
    the capture."""
    # A class that its name leads to was defined before the run, and belongs to its module.
    importable: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        importable = getattr(importable, part, None)
    if importable is not kind and any(map(_holds_what_is_refused, vars(kind).values())):
        refuse(name, f"a class that it defines while it runs ({kind.__qualname__}), with tensors inside")


def _is_weak_reference_to_tensor(value: Any) -> bool:
    """Whether a value is a weak reference to a tensor. Weak references to parameters do not count, because modules hold
    them."""
    referent = value() if isinstance(value, weakref.ref) else None
    return isinstance(referent, Tensor) and not isinstance(referent, nn.Parameter)


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of Python's own: reading it uses it up."""
    kind = type(value)
    is_plain_one = (
        hasattr(kind, "__next__") and hasattr(kind, "__iter__") and kind.__module__ in ("builtins", "itertools")
    )
    return is_plain_one or isinstance(value, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType))


def _holds_what_is_refused(value: Any) -> bool:
    """Whether an object that is not opened holds a tensor or an iterator, by the references that the garbage collector
    knows; True if it holds more than MAX_OBJECTS objects, as more are not looked at."""
    seen: dict[int, Any] = {}
    queue = [value]
    while queue and len(seen) < MAX_OBJECTS:
        part = queue.pop()
        if isinstance(part, (*Leaf, *STORAGES)) or is_iterator(part) or _is_weak_reference_to_tensor(part):
            return True
        if id(part) in seen or type(part) in EXACT or isinstance(part, ATOMS):
            continue
        seen[id(part)] = part
        if isinstance(part, types.FunctionType):  # all but its global variables, which are not the result's
            queue += [part.__closure__, part.__defaults__, part.__kwdefaults__, part.__dict__]
        elif is_of_numpy(part, "ndarray"):
            queue += part.reshape(-1).tolist() if part.dtype.hasobject else []
        else:
            queue += gc.get_referents(part)
    return bool(queue)  # too many to tell


# ---- Copying an object


@dataclass(slots=True)
class _ObjectCopier:
    """Copies an object: `copy_of` returns a copy with the result of `leaf` in the place of each leaf.

    `leaf` is called with a leaf and its name. `reaching` has the ids of the objects that hold leaves, None if a search
    is to find them; other objects are not copied, because they may be the program's own. `copies` has the copies so
    far, by the id of the original, and `alive` keeps the originals, so that no other object gets one of these ids.
    `being_copied` has the ids of tuples whose items are being copied.
    """

    leaf: Callable[[Any, str], Any]
    reaching: frozenset[int] | None = None
    copies: dict[int, Any] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    being_copied: set[int] = field(default_factory=set)

    def copy_of(self, value: Any, name: str = "output") -> Any:
        """Return a copy of a value, which refusals call `name`."""
        if self.reaching is None:
            self.reaching = _ObjectSearch().search(value, name).reaching
        try:
            return self.copy(value, name)
        except RecursionError:
            refuse(name, f"{_type_text(value)} of objects that are nested too deeply")

    def copy(self, value: Any, name: str) -> Any:
        """Return a copy of a value, which is called `name`, or the value itself if it holds no leaf and nobody writes
        to it."""
        assert self.reaching is not None
        if isinstance(value, Leaf):
            return self.leaf(value, name)
        # A weak reference to an object that is copied refers to the copy.
        if isinstance(value, weakref.ref) and (referent := value()) is not None and id(referent) in self.copies:
            return weakref.ref(self.copies[id(referent)])
        if id(value) in self.copies:
            return self.copies[id(value)]
        self.alive.append(value)
        if id(value) not in self.reaching and type(value) not in CONTAINERS:
            # What its user may write to is copied; objects stay as they are: they may be the program's own.
            is_written_to = type(value) in (set, bytearray) or is_of_numpy(value, "ndarray")
            copy = self.copies[id(value)] = value.copy() if is_written_to else value
            return copy
        if isinstance(value, tuple):
            copy = self.copy_of_tuple(value, name)
        else:
            # Entered before it is filled, because an object may hold itself.
            copy = self.copies[id(value)] = _empty_copy(value)
            self.fill(copy, value, name)
        for key, part in _own_attributes(value).items():
            _set_attribute(copy, key, self.copy(part, _part_name(name, key)))
        return copy

    def copy_of_tuple(self, value: Any, name: str) -> Any:
        """Return a copy of a tuple, a named one, or a result of a torch function. Its items are copied first, as it
        cannot be filled later; so one that holds itself is refused."""
        if id(value) in self.being_copied:
            refuse(name, f"{_type_text(value)} that holds itself")
        self.being_copied.add(id(value))
        items = [self.copy(item, _part_name(name, str(index))) for index, item in enumerate(value)]
        self.being_copied.discard(id(value))
        kind = type(value)
        # `tuple.__new__` refuses the struct sequences that torch functions return.
        copy = kind(items) if kind.__module__ == "torch.return_types" else tuple.__new__(kind, items)
        self.copies[id(value)] = copy
        return copy

    def fill(self, copy: Any, value: Any, name: str) -> None:
        """Put copies of the items of the container `value` into the empty one `copy`, without methods of their own
        class."""
        if isinstance(value, dict):
            base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
            for key, item in base.items(value):
                base.__setitem__(copy, key, self.copy(item, _part_name(name, _key_name(key))))
        elif isinstance(value, SEQUENCES):
            sequence: Any = list if isinstance(value, list) else collections.deque
            for index, item in enumerate(sequence.__iter__(value)):
                sequence.append(copy, self.copy(item, _part_name(name, str(index))))


MADE_BY = (
    collections.OrderedDict,
    collections.defaultdict,
    dict,
    list,
    collections.deque,
    types.SimpleNamespace,
    object,
)
"""The types whose `__new__` makes an empty object of a class; the first of which it is a subclass counts."""


def _empty_copy(value: Any) -> Any:
    """Return an object of the same class without items or attributes. Its `__init__`, which may be the user's code, is
    not called."""
    kind: Any = type(value)
    base: Any = next(base for base in MADE_BY if issubclass(kind, base))
    copy = base.__new__(kind)
    if base is collections.deque:
        # `deque.__new__` does not set the maximum length.
        base.__init__(copy, (), value.maxlen)
    if base is collections.defaultdict:
        copy.default_factory = value.default_factory
    return copy


def _set_attribute(copy: Any, name: str, value: Any) -> None:
    """Set an attribute without the `__setattr__` of the class: a frozen dataclass raises there, and a module registers
    parameters."""
    attributes = getattr(copy, "__dict__", None)
    kind: Any = type(copy)
    if attributes is None or any(name == slot for _, slot in slots_in(kind)):
        object.__setattr__(copy, name, value)
    else:
        attributes[name] = value


# ---- The structure of an object, for a sample


def _structure_of(value: Any, marks: Sequence[Any], enclosing: tuple[int, ...]) -> Any:
    """Return a template as the JSON tree of a sample's result, with marks in the places of its leaves. Objects become
    mappings of their attributes. `enclosing` has the ids of the objects that hold the value, to stop at an object that
    holds itself."""
    if isinstance(value, _Hole):
        return marks[value.index]
    if type(value) in EXACT or isinstance(value, ATOMS) or not _is_opened(value) or id(value) in enclosing:
        # [2:] cuts the article of `a package.Class`.
        return {"value": repr(value)[:200] if type(value) in EXACT else _type_text(value)[2:]}
    parts = [(key, _structure_of(part, marks, (*enclosing, id(value)))) for key, part in parts_of(value)]
    if isinstance(value, SEQUENCES) and not _own_attributes(value):
        return {"tuple" if type(value) is tuple else "list": [part for _, part in parts]}
    by_name: dict[str, list[Any]] = {}  # several parts may have one name, such as an item and an attribute of a dict
    for key, part in parts:
        # Cut as a reader of `capture.json` takes the names of ports.
        parts_of_name = by_name.setdefault(printable_name(key)[:4096], [])
        if part not in parts_of_name:  # an item of a dict that is its attribute too is written once
            parts_of_name.append(part)
    rows = [(name, part) for name, parts_of_name in by_name.items() for part in parts_of_name]
    names = number_duplicates([name for name, _ in rows])
    return {"dict": dict(zip(names, (part for _, part in rows), strict=True))}
