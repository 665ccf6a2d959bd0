"""A program's result as its tensors and what holds them: containers of pytree, and objects that pytree does not know.

An object that holds tensors (a dataclass, a set, a closure, a Distribution) is opened: each tensor is an output, named
after its place, and a template of the object has a Hole in the place of each. A replay copies the template with its own
tensors, so it never returns a tensor of the capture. Objects without tensors stay as they are. A value that cannot be
opened or copied (a generator, a storage, a weak reference alone) is refused by name.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import gc
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.autograd import sequence_number
from backprint._torch.modules import REGISTRIES
from backprint.errors import CaptureError
from backprint.values.likeness import EXACT, TORCH_ATTRIBUTE_PREFIXES, attributes_of, is_array
from backprint.values.tree import key_text, leaf_paths, number_duplicates, printable_name

MAX_OBJECTS = 100_000
"""The most objects of a result that are searched."""

ADVICE = "return its tensors in a tuple, a list, a dict or a dataclass"


# ---- The result as a whole


@dataclass(frozen=True, slots=True, eq=False)
class ResultTree:
    """The structure of a result, without its tensors.

    `spec` is the structure of pytree. `opened` has an entry for each leaf of it: None, or the template of an object
    that was opened, with its number of leaves. `summary` is the result's class and the paths of its leaves, as text.
    """

    spec: Any
    opened: tuple[tuple[Any, int] | None, ...]
    summary: str = ""

    def rebuild(self, leaves: Sequence[Any]) -> Any:
        """Return the result with these leaves, in new containers and objects."""
        return pytree.tree_unflatten(
            [fill_leaf(part, own_leaves) for part, own_leaves in self.parts(leaves)], self.spec
        )

    def with_marks(self, marks: Sequence[Any]) -> list[Any]:
        """Return what a sample keeps in the place of each leaf of `spec`: the mark of the leaf, or, for an object that
        was opened, its structure with the marks of its leaves.

        A mark is what a sample keeps of one leaf: the name of an output port, or the text of another value.
        """
        return [structure_with_marks(part, own_marks) for part, own_marks in self.parts(marks)]

    def parts(self, leaves: Sequence[Any]) -> Iterator[tuple[tuple[Any, int] | None, Sequence[Any]]]:
        """Yield each entry of `opened` with its part of `leaves`: one for a leaf, and those of an object."""
        start = 0
        for part in self.opened:
            count = 1 if part is None else part[1]
            yield part, leaves[start : start + count]
            start += count

    @property
    def templates(self) -> list[Any]:
        """The templates of the objects that were opened."""
        return [part[0] for part in self.opened if part is not None]


NO_RESULT = ResultTree(pytree.tree_structure(()), ())
"""The structure of a result without leaves."""


def fill_leaf(part: tuple[Any, int] | None, leaves: Sequence[Any]) -> Any:
    """Return a leaf, or a copy of an object's template with these leaves."""
    if part is None:
        # A leaf without tensors is returned as it is, except a container or an array, which the caller may write to:
        # that is copied.
        return (
            leaves[0]
            if is_plain_leaf(leaves[0])
            else ObjectCopier(lambda leaf, name: leaf, frozenset()).copy_of(leaves[0])
        )
    return ObjectCopier(lambda hole, name: hole.filled(leaves[hole.index])).copy_of(part[0])


def outputs_of(result: Any) -> tuple[list[tuple[str, Any]], ResultTree]:
    """Return a result's leaves under their names (`output`, `output.0`, `output.logits`), and what holds them."""
    leaves, spec = pytree.tree_flatten(result, is_leaf=is_opened_as_object)
    paths = list(zip(leaf_paths(result, leaves), leaves, strict=True))
    named_leaves: list[tuple[str, Any]] = []
    opened: list[tuple[Any, int] | None] = []
    for path, leaf in paths:
        name = printable_name(".".join(["output", *map(key_text, path)]))
        template_and_tensors = None if is_plain_leaf(leaf) else open_object(leaf, name)
        named_leaves += [(name, leaf)] if template_and_tensors is None else template_and_tensors[1]
        opened.append(None if template_and_tensors is None else (template_and_tensors[0], len(template_and_tensors[1])))
    names = number_duplicates([name for name, _ in named_leaves])
    path_texts = ", ".join("".join(map(str, path)) for path, _ in paths[:MAX_PATHS_IN_SUMMARY])
    summary = "one value" if len(paths) == 1 and not paths[0][0] else f"{type_text(result)} of {path_texts}"
    return [(name, leaf) for name, (_, leaf) in zip(names, named_leaves, strict=True)], ResultTree(
        spec, tuple(opened), summary
    )


MAX_PATHS_IN_SUMMARY = 1000
"""The most leaves whose paths are in the summary of a ResultTree."""


def is_plain_leaf(leaf: Any) -> bool:
    """Whether a leaf is a value without further values in it, such as a number or a tensor without attributes."""
    return type(leaf) in EXACT or (isinstance(leaf, Tensor) and not attributes_set_on(leaf))


def is_opened_as_object(node: Any) -> bool:
    """Whether a container that pytree knows is opened as an object, because it has more than its items."""
    if isinstance(node, (Tensor, *EXACT)) or type(node) in (list, tuple, dict):
        return type(node) is dict and any(map(holds_tensors, node))
    if isinstance(node, tuple) and getattr(node, "__dict__", None):
        return True
    registered = pytree.SUPPORTED_NODES.get(type(node))
    if registered is None or type(node) is collections.deque:
        return False
    if isinstance(node, torch.Size):
        return all(type(size) is int for size in node)  # pytree would make a tuple of it
    return bool(getattr(node, "__dict__", None)) or holds_tensors(registered.flatten_fn(node)[1])


def holds_tensors(value: Any) -> bool:
    """Whether a tensor can be reached from a value."""
    return type(value) not in EXACT and bool(ObjectSearch().search(value, "output").reaching)


def open_object(leaf: Any, name: str) -> tuple[Any, list[tuple[str, Any]]] | None:
    """Return the template of an object and its tensors by name; None if it holds none."""
    search = ObjectSearch().search(leaf, name)
    if not search.reaching:
        return None
    named_tensors: list[tuple[str, Any]] = []
    indices: dict[tuple[int, str], int] = {}

    def hole(tensor: Any, where: str) -> Hole:
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
        return Hole(indices[key], tensor.requires_grad if is_parameter else None)

    copying = ObjectCopier(hole, search.reaching)
    template = copying.copy_of(leaf, name)
    return template, named_tensors


def refuse(name: str, what: str, advice: str = ADVICE) -> NoReturn:
    """Refuse a result that a replay could not return."""
    raise CaptureError(
        f"the program returns {name} as {what}; a replay could not return that with tensors of its own: {advice}",
        every_engine=True,
    )


def type_text(value: Any) -> str:
    """Return a value's type as text, with an article: `a collections.Counter`."""
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


@dataclass(frozen=True, slots=True, eq=False)
class Hole:
    """Stands for a leaf in an object's template; for a Parameter, `requires_grad` is its flag."""

    index: int
    requires_grad: bool | None = None

    def filled(self, leaf: Any) -> Any:
        """Return the leaf that replaces the Hole, as a Parameter if the template had one."""
        if self.requires_grad is None or not isinstance(leaf, Tensor):
            return leaf
        return nn.Parameter(leaf.detach(), self.requires_grad)


PLAIN_CONTAINERS = (list, dict, set, bytearray, collections.deque, collections.OrderedDict)
"""Containers of Python's own. Each replay returns new ones, whether they hold leaves or not."""

Leaf = (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, Hole)
"""Leaves: tensors, and sizes that are symbolic while a program is traced. They are never copied with an object."""


# ---- How objects are opened and copied


Parts = list[tuple[str, Any]]
"""The named parts of an object, in order."""

Copy = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """How objects of a kind are opened and copied.

    `parts` returns the parts of an object. A copy is made in one of two ways. `build` makes it, given the object and
    the copies of its parts. Or `shell` makes an empty object first, and `fill` puts the copies of the parts into it; an
    object may then be a part of itself.
    """

    parts: Callable[[Any], Parts]
    build: Callable[[Any, list[Any]], Any] | None = None
    shell: Callable[[Any], Any] | None = None
    fill: Callable[[Any, Any, list[Any]], None] | None = None


def numbered_parts(items: Iterable[Any]) -> Parts:
    return [(str(index), item) for index, item in enumerate(items)]


def keyed_parts(value: Any) -> Parts:
    """Return a mapping's values, then its keys that are not plain."""
    rows = list(dict.items(value)) if isinstance(value, dict) else list(value.items())
    return [(key_name(key), item) for key, item in rows] + [
        (f"key {index}", key) for index, (key, _) in enumerate(rows) if type(key) not in EXACT
    ]


def key_name(key: Any) -> str:
    """Return the name of an item of a mapping with this key. A Hole stands for a tensor in a template, so both have the
    same name."""
    return str(key) if type(key) in EXACT else "Tensor" if isinstance(key, Hole) else type(key).__name__


def copied_items(value: Mapping[Any, Any], parts: list[Any]) -> list[tuple[Any, Any]]:
    """Return the items of a mapping with copied values and keys."""
    keys = list(value)
    rest = iter(parts[len(keys) :])
    return [(key if type(key) in EXACT else next(rest), item) for key, item in zip(keys, parts, strict=False)]


def fill_mapping(shell: Any, value: Any, parts: list[Any]) -> None:
    set_item = collections.OrderedDict.__setitem__ if isinstance(value, collections.OrderedDict) else dict.__setitem__
    for key, item in copied_items(value, parts):
        set_item(shell, key, item)


def shell_of_mapping(value: Any) -> Any:
    if type(value) is collections.OrderedDict:
        return collections.OrderedDict()
    kind: Any = type(value)
    shell: Any = kind.__new__(kind)
    if isinstance(value, collections.defaultdict):
        shell.default_factory = value.default_factory
    return shell


def sorted_set_items(items: Iterable[Any]) -> list[Any]:
    """Return the items of a set in an order that each run of the program repeats, whatever their addresses."""
    items = list(items)
    keys = {id(item): sort_key(item) for item in items if isinstance(item, Tensor) or not is_plain_leaf(item)}
    if len(set(keys.values())) < len(keys):
        refuse("a set", "a set of tensors or objects that nothing but their addresses puts in order", "return a list")
    sorted_items = sorted((item for item in items if id(item) in keys), key=lambda item: keys[id(item)])
    return [*sorted_items, *(item for item in items if id(item) not in keys)]


def sort_key(item: Any) -> tuple[Any, ...]:
    """Return a key by which the items of a set have the same order in each run. That of a tensor has its dtype, shape
    and flag, and the number of its grad_fn in the order in which operators ran."""
    if not isinstance(item, Tensor):
        return (type(item).__qualname__, item.index if isinstance(item, Hole) else 0)
    node = item.grad_fn
    number = (sequence_number(node), item.output_nr) if node is not None else (-1, 0)
    return ("", str(item.dtype), tuple(item.shape), item.requires_grad, *number)


def parts_of_function(value: types.FunctionType) -> Parts:
    names = value.__code__.co_freevars
    return [
        *zip(names, value.__closure__ or (), strict=False),
        ("defaults", value.__defaults__),
        ("keyword defaults", value.__kwdefaults__),
        *vars(value).items(),
    ]


def build_function(value: types.FunctionType, parts: list[Any]) -> types.FunctionType:
    count = len(value.__closure__ or ())
    cells, (defaults, keyword_defaults), attributes = parts[:count], parts[count : count + 2], parts[count + 2 :]
    function = types.FunctionType(value.__code__, value.__globals__, value.__name__, defaults, tuple(cells) or None)
    function.__kwdefaults__ = keyword_defaults
    function.__qualname__, function.__module__ = value.__qualname__, value.__module__
    function.__doc__ = value.__doc__
    function.__dict__.update(zip(vars(value), attributes, strict=True))
    return function


def parts_of_cell(cell: types.CellType) -> Parts:
    try:
        return [("", cell.cell_contents)]
    except ValueError:  # the variable has no value yet
        return []


def fill_cell(shell: Any, value: types.CellType, parts: list[Any]) -> None:
    for content in parts:
        shell.cell_contents = content


def partial_parts(value: Any) -> Parts:
    return [("function", value.func), *numbered_parts(value.args), *value.keywords.items()]


def build_partial(value: Any, parts: list[Any]) -> Any:
    count = 1 + len(value.args)
    return type(value)(*parts[:count], **dict(zip(value.keywords, parts[count:], strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class MethodOf:
    """Stands for a tensor's own method in a template."""

    owner: Hole
    name: str


def method_of(owner: Any, name: str) -> Any:
    return MethodOf(owner, name) if isinstance(owner, Hole) else getattr(owner, name)


VIEWS: Mapping[type, Callable[[dict[Any, Any]], Any]] = {
    type({}.keys()): dict.keys,
    type({}.values()): dict.values,
    type({}.items()): dict.items,
}

NUMBERS = (int, float, complex, str, bytes)


def build_tuple(value: Any, parts: list[Any]) -> Any:
    """Return a tuple, a named one, or a result of a torch function, of these items."""
    kind = type(value)
    return kind(parts) if kind.__module__ == "torch.return_types" else tuple.__new__(kind, parts)


KINDS: Mapping[Any, ObjectKind] = {
    dict: ObjectKind(keyed_parts, shell=shell_of_mapping, fill=fill_mapping),
    list: ObjectKind(
        numbered_parts,
        shell=lambda value: list.__new__(type(value)),
        fill=lambda shell, value, parts: list.extend(shell, parts),
    ),
    tuple: ObjectKind(numbered_parts, build_tuple),
    set: ObjectKind(
        lambda value: numbered_parts(sorted_set_items(value)),
        shell=lambda value: set.__new__(type(value)),
        fill=lambda shell, value, parts: set.update(shell, parts),
    ),
    frozenset: ObjectKind(
        lambda value: numbered_parts(sorted_set_items(value)),
        lambda value, parts: frozenset.__new__(type(value), parts),
    ),
    collections.deque: ObjectKind(
        numbered_parts,
        shell=lambda value: type(value)(maxlen=value.maxlen),
        fill=lambda shell, value, parts: collections.deque.extend(shell, parts),
    ),
    types.MappingProxyType: ObjectKind(
        keyed_parts, lambda value, parts: types.MappingProxyType(dict(copied_items(value, parts)))
    ),
    tuple(VIEWS): ObjectKind(
        lambda value: keyed_parts(value.mapping),
        lambda value, parts: VIEWS[type(value)](dict(copied_items(value.mapping, parts))),
    ),
    types.FunctionType: ObjectKind(parts_of_function, build_function),
    types.CellType: ObjectKind(parts_of_cell, shell=lambda value: types.CellType(), fill=fill_cell),
    types.MethodType: ObjectKind(
        lambda value: [("", value.__self__), ("function", value.__func__)],
        lambda value, parts: types.MethodType(parts[1], parts[0]),
    ),
    (types.BuiltinMethodType, types.MethodWrapperType): ObjectKind(
        lambda value: [] if isinstance(value.__self__, (types.ModuleType, type(None))) else [("", value.__self__)],
        lambda value, parts: method_of(parts[0], value.__name__),
    ),
    MethodOf: ObjectKind(lambda value: [("", value.owner)], lambda value, parts: method_of(parts[0], value.name)),
    functools.partial: ObjectKind(partial_parts, build_partial),
    NUMBERS: ObjectKind(
        lambda value: [],
        lambda value, parts: next(kind for kind in NUMBERS if isinstance(value, kind)).__new__(type(value), value),
    ),
    types.SimpleNamespace: ObjectKind(
        lambda value: [], shell=lambda value: type(value)(), fill=lambda shell, value, parts: None
    ),
    object: ObjectKind(
        lambda value: [],
        shell=lambda value: object.__new__(type(value)),
        fill=lambda shell, value, parts: None,
    ),
}
"""How objects are opened and copied, by their class; the first row that fits counts. The attributes of an object are
further parts of it, which these rows do not have (`own_attributes`)."""

ATOMS = (type, types.ModuleType, types.CodeType, types.FrameType, enum.Enum, torch.Generator, logging.Logger)
"""Types that are never searched, because nothing inside depends on one run."""

HEAP_TYPE_FLAG = 1 << 9
"""The flag of classes that are made while Python runs."""

ITERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)

STORAGES = (torch.UntypedStorage, torch.TypedStorage)

LEFT_OUT_OF_NAMES = REGISTRIES
"""Attributes of modules that are not part of the name of a tensor in them: `layer.weight`, not
`layer._parameters.weight`."""


def kind_of_object(value: Any) -> ObjectKind | None:
    """Return how a value is opened; None if it is of a class without a row in KINDS that Python code does not
    define."""
    kind = type(value)
    for class_, object_kind in KINDS.items():
        if isinstance(value, class_) and class_ is not object:
            return object_kind
    return KINDS[object] if all(is_python_class(class_) for class_ in kind.__mro__) else None


def is_python_class(kind: type) -> bool:
    """Whether Python code defines a class, so that its objects can be made empty."""
    has_c_constructor = isinstance(vars(kind).get("__new__"), types.BuiltinFunctionType)
    return kind is object or (bool(kind.__flags__ & HEAP_TYPE_FLAG) and not has_c_constructor)


def parts_of(value: Any, row: ObjectKind) -> Parts:
    """Return the named parts of an object: its items, then its attributes."""
    return [*row.parts(value), *own_attributes(value).items()]


def own_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are parts of it besides the parts of its ObjectKind."""
    if isinstance(value, (types.FunctionType, types.CellType, types.MethodType, types.BuiltinMethodType, MethodOf)):
        return {}
    attributes = attributes_of(value) or {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        declared = [field_.name for field_ in dataclasses.fields(value) if field_.name in attributes]
        return {
            name: attributes[name] for name in dict.fromkeys((*declared, *attributes))
        }  # in the order of its definition
    return attributes


def attributes_set_on(tensor: Tensor) -> dict[str, Any]:
    """Return the attributes that a program set on a plain tensor."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return {}
    return {
        name: attribute for name, attribute in vars(tensor).items() if not name.startswith(TORCH_ATTRIBUTE_PREFIXES)
    }


def part_name(name: str, part: str) -> str:
    return f"{name}.{part}" if part and part not in LEFT_OUT_OF_NAMES else name


# ---- Searching an object for tensors


@dataclass(slots=True)
class ObjectSearch:
    """A search of an object, breadth first, for the objects from which a tensor can be reached.

    Objects are known by their ids. `holders` has for each object those that hold it, and `reaching` is the result.
    `alive` holds every object, because the id of one that is freed could become that of another.
    """

    holders: dict[int, list[int]] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    tensors: set[int] = field(default_factory=set)
    reaching: frozenset[int] = frozenset()

    def search(self, value: Any, name: str) -> ObjectSearch:
        """Search a value; return the search."""
        queue: collections.deque[tuple[str, Any, int]] = collections.deque([(name, value, 0)])
        while queue:
            where, part, holder = queue.popleft()
            if type(part) in EXACT or isinstance(part, ATOMS):
                if isinstance(part, type):
                    refuse_class_with_tensors(part, where)
                continue
            first = id(part) not in self.holders
            self.holders.setdefault(id(part), []).append(holder)
            if first:
                self.alive.append(part)
                if len(self.alive) > MAX_OBJECTS:
                    refuse(name, f"{type_text(value)} of more than {MAX_OBJECTS:,} objects")
                queue.extend((part_name(where, key), inner, id(part)) for key, inner in self.inside(where, part))
        self.reaching = self.reach()
        return self

    def inside(self, name: str, value: Any) -> Parts:
        """Return the parts of a value; refuse a value that a replay could not return."""
        if isinstance(value, Leaf):
            self.tensors.add(id(value))
            if isinstance(value, Tensor) and any(map(holds_tensors, attributes_set_on(value).values())):
                refuse(
                    name,
                    f"a tensor with tensors as attributes ({', '.join(attributes_set_on(value))})",
                    "return them beside it",
                )
            return []
        if isinstance(value, weakref.ref):
            if isinstance(value(), Tensor) and not isinstance(value(), nn.Parameter):
                refuse(name, "a weak reference to a tensor", "return the tensor")
            return []
        if is_iterator(value):
            refuse(name, f"{type_text(value)}, which is used up when it is read", "return a list of its items")
        if isinstance(value, STORAGES):
            refuse(name, "the memory of a tensor", "return the tensor")
        if isinstance(value, torch.autograd.graph.Node):
            refuse(name, f"a node of the autograd graph ({type(value).__name__})", "return the tensor")
        kind = kind_of_object(value)
        if kind is not None:
            return parts_of(value, kind)
        if referents_reach_tensor(value):
            refuse(name, f"{type_text(value)} with tensors inside")
        return []

    def reach(self) -> frozenset[int]:
        """Return the objects from which a tensor can be reached, tensors included."""
        reaching: set[int] = set()
        queue = list(self.tensors)
        while queue:
            key = queue.pop()
            if key not in reaching:
                reaching.add(key)
                queue += self.holders.get(key, ())
        return frozenset(reaching)


def refuse_class_with_tensors(kind: type, name: str) -> None:
    """Refuse a class that the program defined while it ran and that holds tensors: a replay would return the tensors of
    the capture."""
    importable: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        importable = getattr(importable, part, None)
    if importable is not kind and any(map(referents_reach_tensor, vars(kind).values())):
        refuse(name, f"a class that it defines while it runs ({kind.__qualname__}), with tensors inside")


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of Python's own: reading it uses it up."""
    kind = type(value)
    return isinstance(value, ITERATORS) or (
        hasattr(kind, "__next__") and hasattr(kind, "__iter__") and kind.__module__ in ("builtins", "itertools")
    )


def referents_reach_tensor(value: Any) -> bool:
    """Whether a tensor can be reached from an object that has no ObjectKind, by the references that the garbage
    collector knows."""
    if is_array(value):
        return value.dtype.hasobject and any(map(holds_tensors, value.reshape(-1).tolist()))
    seen: dict[int, Any] = {}
    queue = [value]
    while queue and len(seen) < MAX_OBJECTS:
        referent = queue.pop()
        if id(referent) in seen or isinstance(referent, ATOMS):
            continue
        if isinstance(referent, Tensor):
            return True
        seen[id(referent)] = referent
        if isinstance(referent, types.FunctionType):
            queue += [part for _, part in parts_of_function(referent)]
        else:
            queue += gc.get_referents(referent)
    return False


# ---- Copying an object


@dataclass(slots=True)
class ObjectCopier:
    """Copies an object, with the result of `leaf` in the place of each leaf.

    `reaching` has the ids of the objects that hold leaves; other objects are not copied, because they may be the
    program's own. `copies` has the copies so far, by the id of the original, and `alive` holds the originals, so that
    these ids stay theirs. `being_copied` has the ids of objects whose copy is built of copies of their parts.
    """

    leaf: Callable[[Any, str], Any]
    reaching: frozenset[int] | None = None
    copies: dict[int, Any] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    being_copied: set[int] = field(default_factory=set)

    def copy_of(self, value: Any, name: str = "output") -> Any:
        """Return a copy of a value."""
        if self.reaching is None:
            self.reaching = ObjectSearch().search(value, name).reaching
        try:
            return self.copy(value, name)
        except RecursionError:
            refuse(name, f"{type_text(value)} of objects that are nested too deeply")

    def copy(self, value: Any, name: str) -> Any:
        assert self.reaching is not None
        if isinstance(value, Leaf):
            return self.leaf(value, name)
        if isinstance(value, weakref.ref) and (referent := value()) is not None and id(referent) in self.copies:
            return weakref.ref(self.copies[id(referent)])
        if id(value) in self.copies:
            return self.copies[id(value)]
        kind = kind_of_object(value)
        if id(value) not in self.reaching and (is_array(value) or type(value) in PLAIN_CONTAINERS):
            return self.copy_container(value)
        if id(value) not in self.reaching or kind is None:
            return value
        if id(value) in self.being_copied:
            refuse(name, f"{type_text(value)} that holds itself")
        self.alive.append(value)
        return self.copy_by_kind(value, name, kind)

    def copy_container(self, value: Any) -> Any:
        """Return a copy of a plain container or an array without leaves, which its user may write to. Objects stay as
        they are: they may be the program's own."""
        self.alive.append(value)
        copy = self.copies[id(value)] = value.copy()
        if isinstance(copy, dict):
            for key, item in copy.items():
                copy[key] = self.copy_container_part(item)
        elif isinstance(copy, (list, collections.deque)):
            for index, item in enumerate(copy):
                copy[index] = self.copy_container_part(item)
        return copy

    def copy_container_part(self, value: Any) -> Any:
        if id(value) in self.copies:
            return self.copies[id(value)]
        return self.copy_container(value) if is_array(value) or type(value) in PLAIN_CONTAINERS else value

    def copy_by_kind(self, value: Any, name: str, kind: ObjectKind) -> Any:
        """Copy an object by the row of its kind, then its attributes."""
        if kind.shell is not None and kind.fill is not None:
            try:
                copy = kind.shell(value)
            except TypeError:
                refuse(name, f"{type_text(value)}, which cannot be made without its arguments")
            self.copies[id(value)] = copy
            kind.fill(copy, value, self.parts(kind.parts(value), name))
        else:
            assert kind.build is not None
            self.being_copied.add(id(value))
            copy = kind.build(value, self.parts(kind.parts(value), name))
            self.being_copied.discard(id(value))
            self.copies[id(value)] = copy
        for key, part in own_attributes(value).items():
            set_attribute(copy, key, self.copy(part, part_name(name, key)))
        return copy

    def parts(self, parts: Parts, name: str) -> list[Any]:
        return [self.copy(part, part_name(name, key)) for key, part in parts]


def set_attribute(copy: Any, name: str, value: Any) -> None:
    """Set an attribute without the `__setattr__` of the class: that of a frozen dataclass raises, and that of a module
    registers parameters."""
    attributes = getattr(copy, "__dict__", None)
    kind: Any = type(copy)
    if attributes is None or name in names_of_slots(kind):
        object.__setattr__(copy, name, value)
    else:
        attributes[name] = value


@functools.cache
def names_of_slots(kind: Any) -> frozenset[str]:
    """Return the names of the attributes that objects of a class keep in slots."""
    return frozenset(name for class_ in kind.__mro__ for name, value in vars(class_).items() if isinstance(value, SLOT))


SLOT = types.MemberDescriptorType


# ---- The structure of an object, for a sample


def structure_with_marks(part: tuple[Any, int] | None, marks: Sequence[Any]) -> Any:
    """Return the mark of a leaf; for an object that was opened, its structure with the marks of its leaves."""
    return marks[0] if part is None else StructureWriter(marks).structure_of(part[0])


@dataclass(slots=True)
class StructureWriter:
    """Writes a template as plain containers: objects as mappings from their attributes, sets as lists.

    `enclosing` has the ids of the objects that the current value is a part of, to stop at an object that holds itself.
    """

    marks: Sequence[Any]
    enclosing: list[int] = field(default_factory=list)

    def structure_of(self, value: Any) -> Any:
        """Return the structure of a value, with marks in the places of its leaves."""
        if isinstance(value, Hole):
            return self.marks[value.index]
        kind = None if type(value) in EXACT or isinstance(value, ATOMS) else kind_of_object(value)
        if kind is None or id(value) in self.enclosing or isinstance(value, weakref.ref):
            return {"value": repr(value)[:200] if type(value) in EXACT else type_text(value)[2:]}
        self.enclosing.append(id(value))
        parts = [(key, self.structure_of(part)) for key, part in self.visible_parts(value, kind)]
        self.enclosing.pop()
        if type(value) in (list, tuple):
            return {type(value).__name__: [part for _, part in parts]}
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)) and not own_attributes(value):
            return {"list": [part for _, part in parts]}
        by_name: dict[str, list[Any]] = {}
        for key, part in parts:
            parts_of_name = by_name.setdefault(printable_name(key)[:4096], [])
            if part not in parts_of_name:  # an item of a dict that is its attribute too is written once
                parts_of_name.append(part)
        names = number_duplicates([key for key, parts_of_name in by_name.items() for _ in parts_of_name])
        return {
            "dict": dict(
                zip(names, (part for parts_of_name in by_name.values() for part in parts_of_name), strict=True)
            )
        }

    def visible_parts(self, value: Any, kind: ObjectKind) -> Parts:
        """Return the parts of an object as a reader expects them: a closure's variables instead of its cells."""
        parts: Parts = []
        for key, part in parts_of(value, kind):
            if isinstance(part, types.CellType):
                parts += [(key, content) for _, content in parts_of_cell(part)]
            elif key not in ("defaults", "keyword defaults") or part is not None:
                parts.append((key, part))
        return parts
