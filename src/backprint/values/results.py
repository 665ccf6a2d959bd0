"""A program's result as its tensors and what holds them: containers of pytree, and objects that pytree does not know.

An object that holds tensors (a dataclass, a set, a closure, a Distribution) is looked into: each tensor is an output,
named after its place, and a template of the object has a Hole in the place of each. A replay copies the template with
its own tensors, so no object of the capture is ever returned in a tensor's stead. Objects without tensors stay as they
are. What cannot be looked into or copied (a generator, a storage, a weak reference alone) is refused by name.
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
from backprint.values.likeness import EXACT, OURS, attributes_of, is_array
from backprint.values.tree import key_text, leaf_paths, number_duplicates, printable_name

MOST = 100_000
"""The most objects of a result that are looked at."""

ADVICE = "return its tensors in a tuple, a list, a dict or a dataclass"


# ---- The result as a whole


@dataclass(frozen=True, slots=True, eq=False)
class ResultTree:
    """What holds the leaves of a result: the structure that pytree has, and for each of its leaves None, or the
    template of an object that was opened, with its number of leaves. `shape` is its class and its leaves' places."""

    spec: Any
    opened: tuple[tuple[Any, int] | None, ...]
    shape: str = ""

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """Return the result with these leaves, in new containers and objects."""
        return pytree.tree_unflatten([filled(part, own) for part, own in self.parts(leaves)], self.spec)

    def marked(self, marks: Sequence[Any]) -> list[Any]:
        """Return the mark of each leaf that pytree knows; of an object, the marks of its tensors by name."""
        return [plain_marks(part, own) for part, own in self.parts(marks)]

    def parts(self, leaves: Sequence[Any]) -> Iterator[tuple[tuple[Any, int] | None, Sequence[Any]]]:
        """Yield each leaf of pytree's, opened or not, with its own leaves."""
        start = 0
        for part in self.opened:
            count = 1 if part is None else part[1]
            yield part, leaves[start : start + count]
            start += count

    @property
    def templates(self) -> list[Any]:
        """The templates of the objects that were opened."""
        return [part[0] for part in self.opened if part is not None]


NOTHING = ResultTree(pytree.tree_structure(()), ())
"""What holds the leaves of a result that has none."""


def filled(part: tuple[Any, int] | None, leaves: Sequence[Any]) -> Any:
    """Return a leaf, or a copy of an object's template with these leaves."""
    if part is None:
        return leaves[0] if is_alone(leaves[0]) else Copying(lambda leaf, name: leaf, frozenset()).copied(leaves[0])
    return Copying(lambda hole, name: hole.filled(leaves[hole.index])).copied(part[0])


def outputs_of(result: Any) -> tuple[list[tuple[str, Any]], ResultTree]:
    """A result's leaves under their names (`output`, `output.0`, `output.logits`), and what holds them."""
    leaves, spec = pytree.tree_flatten(result, is_leaf=is_whole)
    paths = list(zip(leaf_paths(result, leaves), leaves, strict=True))
    rows: list[tuple[str, Any]] = []
    opened: list[tuple[Any, int] | None] = []
    for path, leaf in paths:
        name = printable_name(".".join(["output", *map(key_text, path)]))
        inside = None if is_alone(leaf) else opened_object(leaf, name)
        rows += [(name, leaf)] if inside is None else inside[1]
        opened.append(None if inside is None else (inside[0], len(inside[1])))
    names = number_duplicates([name for name, _ in rows])
    places = ", ".join("".join(map(str, path)) for path, _ in paths[:LONGEST_SHAPE])
    shape = "one value" if len(paths) == 1 and not paths[0][0] else f"{kind_of(result)} of {places}"
    return [(name, leaf) for name, (_, leaf) in zip(names, rows, strict=True)], ResultTree(spec, tuple(opened), shape)


LONGEST_SHAPE = 1000
"""The most leaves whose places a shape says."""


def is_alone(leaf: Any) -> bool:
    """Whether a leaf has nothing inside: most are tensors and numbers."""
    return type(leaf) in EXACT or (isinstance(leaf, Tensor) and not hung(leaf))


def is_whole(node: Any) -> bool:
    """Whether a container of pytree's must be kept or looked into as an object: it has more than its items."""
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
    return type(value) not in EXACT and bool(Looking().look(value, "output").reaching)


def opened_object(leaf: Any, name: str) -> tuple[Any, list[tuple[str, Any]]] | None:
    """Return the template of an object and its tensors by name; None if it holds none."""
    looking = Looking().look(leaf, name)
    if not looking.reaching:
        return None
    rows: list[tuple[str, Any]] = []
    known: dict[tuple[int, str], int] = {}

    def hole(tensor: Any, where: str) -> Hole:
        """Return the Hole of a tensor: a new one for each of its names, and one of a parameter, which modules hold
        several times. A dict whose items are its attributes too, as in model libraries, has one name for both."""
        once = isinstance(tensor, nn.Parameter)
        name = printable_name(where)
        place = id(tensor), "" if once else name
        if place not in known:
            known[place] = len(rows)
            rows.append((name, tensor))
        return Hole(known[place], tensor.requires_grad if once else None)

    copying = Copying(hole, looking.reaching)
    template = copying.copied(leaf, name)
    return template, rows


def refuse(name: str, what: str, advice: str = ADVICE) -> NoReturn:
    """Refuse a result that cannot be given back by a replay."""
    raise CaptureError(
        f"the program returns {name} as {what}; a replay could not return that with tensors of its own: {advice}",
        every_engine=True,
    )


def kind_of(value: Any) -> str:
    """A value's type in words."""
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


@dataclass(frozen=True, slots=True, eq=False)
class Hole:
    """Stands for a leaf in an object's template; `asks` is what a Parameter said of requiring grad."""

    index: int
    asks: bool | None = None

    def filled(self, leaf: Any) -> Any:
        """Return what takes its place: a leaf, or a Parameter of it."""
        if self.asks is None or not isinstance(leaf, Tensor):
            return leaf
        return nn.Parameter(leaf.detach(), self.asks)


BOXES = (list, dict, set, bytearray, collections.deque, collections.OrderedDict)
"""Containers of Python's own, which each replay returns anew, with leaves inside or not."""

Leaf = (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, Hole)
"""What is never copied, and always given anew: tensors, and sizes that are symbolic while a program is traced."""


# ---- How objects are opened and copied


Parts = list[tuple[str, Any]]
"""The named parts of an object, in order."""

Copy = Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of a kind are opened and copied.

    `build` makes one of its copied parts. With a `shell` an object is made empty first, and `fill` puts the copied
    parts in, so that it may refer to itself.
    """

    parts: Callable[[Any], Parts]
    build: Callable[[Any, list[Any]], Any] | None = None
    shell: Callable[[Any], Any] | None = None
    fill: Callable[[Any, Any, list[Any]], None] | None = None


def indexed(items: Iterable[Any]) -> Parts:
    return [(str(index), item) for index, item in enumerate(items)]


def keyed_parts(value: Any) -> Parts:
    """A mapping's values, then its keys that are not plain."""
    rows = list(dict.items(value)) if isinstance(value, dict) else list(value.items())
    return [(key_name(key), item) for key, item in rows] + [
        (f"key {index}", key) for index, (key, _) in enumerate(rows) if type(key) not in EXACT
    ]


def key_name(key: Any) -> str:
    return str(key) if type(key) in EXACT else "Tensor" if isinstance(key, Hole) else type(key).__name__


def rows_again(value: Mapping[Any, Any], parts: list[Any]) -> list[tuple[Any, Any]]:
    """The items of a mapping with copied values and keys."""
    keys = list(value)
    rest = iter(parts[len(keys) :])
    return [(key if type(key) in EXACT else next(rest), item) for key, item in zip(keys, parts, strict=False)]


def fill_mapping(shell: Any, value: Any, parts: list[Any]) -> None:
    put = collections.OrderedDict.__setitem__ if isinstance(value, collections.OrderedDict) else dict.__setitem__
    for key, item in rows_again(value, parts):
        put(shell, key, item)


def shell_of_mapping(value: Any) -> Any:
    if type(value) is collections.OrderedDict:
        return collections.OrderedDict()
    kind: Any = type(value)
    shell: Any = kind.__new__(kind)
    if isinstance(value, collections.defaultdict):
        shell.default_factory = value.default_factory
    return shell


def in_order(items: Iterable[Any]) -> list[Any]:
    """The items of a set in an order that each run of the program repeats, whatever their addresses."""
    items = list(items)
    places = {id(item): place(item) for item in items if isinstance(item, Tensor) or not is_alone(item)}
    if len(set(places.values())) < len(places):
        refuse("a set", "a set of tensors or objects that nothing but their addresses puts in order", "return a list")
    apart = sorted((item for item in items if id(item) in places), key=lambda item: places[id(item)])
    return [*apart, *(item for item in items if id(item) not in places)]


def place(item: Any) -> tuple[Any, ...]:
    """What tells an item of a set from others: of a tensor its form, and when its operator ran."""
    if not isinstance(item, Tensor):
        return (type(item).__qualname__, item.index if isinstance(item, Hole) else 0)
    node = item.grad_fn
    ran = (sequence_number(node), item.output_nr) if node is not None else (-1, 0)
    return ("", str(item.dtype), tuple(item.shape), item.requires_grad, *ran)


def cells_of(value: types.FunctionType) -> Parts:
    names = value.__code__.co_freevars
    return [
        *zip(names, value.__closure__ or (), strict=False),
        ("defaults", value.__defaults__),
        ("keyword defaults", value.__kwdefaults__),
        *vars(value).items(),
    ]


def build_function(value: types.FunctionType, parts: list[Any]) -> types.FunctionType:
    count = len(value.__closure__ or ())
    cells, (defaults, named), own = parts[:count], parts[count : count + 2], parts[count + 2 :]
    made = types.FunctionType(value.__code__, value.__globals__, value.__name__, defaults, tuple(cells) or None)
    made.__kwdefaults__, made.__qualname__, made.__module__ = named, value.__qualname__, value.__module__
    made.__doc__ = value.__doc__
    made.__dict__.update(zip(vars(value), own, strict=True))
    return made


def content_of(cell: types.CellType) -> Parts:
    try:
        return [("", cell.cell_contents)]
    except ValueError:  # empty so far
        return []


def fill_cell(shell: Any, value: types.CellType, parts: list[Any]) -> None:
    for content in parts:
        shell.cell_contents = content


def partial_parts(value: Any) -> Parts:
    return [("function", value.func), *indexed(value.args), *value.keywords.items()]


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
    """A tuple, a named one, or a result of a torch function, of these items."""
    kind = type(value)
    return kind(parts) if kind.__module__ == "torch.return_types" else tuple.__new__(kind, parts)


KINDS: Mapping[Any, Kind] = {
    dict: Kind(keyed_parts, shell=shell_of_mapping, fill=fill_mapping),
    list: Kind(
        indexed,
        shell=lambda value: list.__new__(type(value)),
        fill=lambda shell, value, parts: list.extend(shell, parts),
    ),
    tuple: Kind(indexed, build_tuple),
    set: Kind(
        lambda value: indexed(in_order(value)),
        shell=lambda value: set.__new__(type(value)),
        fill=lambda shell, value, parts: set.update(shell, parts),
    ),
    frozenset: Kind(lambda value: indexed(in_order(value)), lambda value, parts: frozenset.__new__(type(value), parts)),
    collections.deque: Kind(
        indexed,
        shell=lambda value: type(value)(maxlen=value.maxlen),
        fill=lambda shell, value, parts: collections.deque.extend(shell, parts),
    ),
    types.MappingProxyType: Kind(
        keyed_parts, lambda value, parts: types.MappingProxyType(dict(rows_again(value, parts)))
    ),
    tuple(VIEWS): Kind(
        lambda value: keyed_parts(value.mapping),
        lambda value, parts: VIEWS[type(value)](dict(rows_again(value.mapping, parts))),
    ),
    types.FunctionType: Kind(cells_of, build_function),
    types.CellType: Kind(content_of, shell=lambda value: types.CellType(), fill=fill_cell),
    types.MethodType: Kind(
        lambda value: [("", value.__self__), ("function", value.__func__)],
        lambda value, parts: types.MethodType(parts[1], parts[0]),
    ),
    (types.BuiltinMethodType, types.MethodWrapperType): Kind(
        lambda value: [] if isinstance(value.__self__, (types.ModuleType, type(None))) else [("", value.__self__)],
        lambda value, parts: method_of(parts[0], value.__name__),
    ),
    MethodOf: Kind(lambda value: [("", value.owner)], lambda value, parts: method_of(parts[0], value.name)),
    functools.partial: Kind(partial_parts, build_partial),
    NUMBERS: Kind(
        lambda value: [],
        lambda value, parts: next(kind for kind in NUMBERS if isinstance(value, kind)).__new__(type(value), value),
    ),
    types.SimpleNamespace: Kind(
        lambda value: [], shell=lambda value: type(value)(), fill=lambda shell, value, parts: None
    ),
    object: Kind(
        lambda value: [],
        shell=lambda value: object.__new__(type(value)),
        fill=lambda shell, value, parts: None,
    ),
}
"""How objects are opened and copied, by their class: the first row that fits. Attributes are copied beside that."""

ATOMS = (type, types.ModuleType, types.CodeType, types.FrameType, enum.Enum, torch.Generator, logging.Logger)
"""What is never looked into: nothing inside depends on one run."""

HEAP = 1 << 9
"""The flag of classes that are made while Python runs."""

ITERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)

STORAGES = (torch.UntypedStorage, torch.TypedStorage)

INVISIBLE = REGISTRIES
"""Attributes of modules that a name leaves out, as `named_parameters` does."""


def kind_of_object(value: Any) -> Kind | None:
    """Return how a value is opened; None if Python cannot."""
    kind = type(value)
    for known, row in KINDS.items():
        if isinstance(value, known) and known is not object:
            return row
    return KINDS[object] if all(is_pythons(each) for each in kind.__mro__) else None


def is_pythons(kind: type) -> bool:
    """Whether Python code defines a class, so that its objects can be made empty."""
    made_by_c = isinstance(vars(kind).get("__new__"), types.BuiltinFunctionType)
    return kind is object or (bool(kind.__flags__ & HEAP) and not made_by_c)


def parts_of(value: Any, row: Kind) -> Parts:
    """Return the named parts of an object: its items, then its attributes."""
    return [*row.parts(value), *own_attributes(value).items()]


def own_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are its own."""
    if isinstance(value, (types.FunctionType, types.CellType, types.MethodType, types.BuiltinMethodType, MethodOf)):
        return {}
    own = attributes_of(value) or {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        declared = [each.name for each in dataclasses.fields(value) if each.name in own]
        return {name: own[name] for name in dict.fromkeys((*declared, *own))}  # in the order of its definition
    return own


def hung(tensor: Tensor) -> dict[str, Any]:
    """Return the attributes that a program set on a plain tensor."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return {}
    return {name: each for name, each in vars(tensor).items() if not name.startswith(OURS)}


def joined(name: str, part: str) -> str:
    return f"{name}.{part}" if part and part not in INVISIBLE else name


# ---- Looking


@dataclass(slots=True)
class Looking:
    """What a look into an object finds: which objects reach a tensor."""

    holders: dict[int, list[int]] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    tensors: set[int] = field(default_factory=set)
    reaching: frozenset[int] = frozenset()

    def look(self, value: Any, name: str) -> Looking:
        """Look into a value, breadth first."""
        queue: collections.deque[tuple[str, Any, int]] = collections.deque([(name, value, 0)])
        while queue:
            where, part, holder = queue.popleft()
            if type(part) in EXACT or isinstance(part, ATOMS):
                if isinstance(part, type):
                    refuse_made_class(part, where)
                continue
            first = id(part) not in self.holders
            self.holders.setdefault(id(part), []).append(holder)
            if first:
                self.alive.append(part)
                if len(self.alive) > MOST:
                    refuse(name, f"{kind_of(value)} of more than {MOST:,} objects")
                queue.extend((joined(where, key), each, id(part)) for key, each in self.inside(where, part))
        self.reaching = self.reach()
        return self

    def inside(self, name: str, value: Any) -> Parts:
        """Return the parts of a value, and refuse what cannot be given back."""
        if isinstance(value, Leaf):
            self.tensors.add(id(value))
            if isinstance(value, Tensor) and any(map(holds_tensors, hung(value).values())):
                refuse(name, f"a tensor with tensors as attributes ({', '.join(hung(value))})", "return them beside it")
            return []
        if isinstance(value, weakref.ref):
            if isinstance(value(), Tensor) and not isinstance(value(), nn.Parameter):
                refuse(name, "a weak reference to a tensor", "return the tensor")
            return []
        if is_spent_by_use(value):
            refuse(name, f"{kind_of(value)}, which is used up when it is read", "return a list of its items")
        if isinstance(value, STORAGES):
            refuse(name, "the memory of a tensor", "return the tensor")
        if isinstance(value, torch.autograd.graph.Node):
            refuse(name, f"a node of the autograd graph ({type(value).__name__})", "return the tensor")
        row = kind_of_object(value)
        if row is not None:
            return parts_of(value, row)
        if reaches_unopened(value):
            refuse(name, f"{kind_of(value)} with tensors inside")
        return []

    def reach(self) -> frozenset[int]:
        """Return the objects from which a tensor can be reached, tensors included."""
        found: set[int] = set()
        queue = list(self.tensors)
        while queue:
            key = queue.pop()
            if key not in found:
                found.add(key)
                queue += self.holders.get(key, ())
        return frozenset(found)


def refuse_made_class(kind: type, name: str) -> None:
    """Refuse a class that the program has made and that holds tensors: a replay would return those of the capture."""
    importable: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        importable = getattr(importable, part, None)
    if importable is not kind and any(map(reaches_unopened, vars(kind).values())):
        refuse(name, f"a class that it makes ({kind.__qualname__}), with tensors inside")


def is_spent_by_use(value: Any) -> bool:
    """Whether a value is an iterator of Python's own: reading it uses it up."""
    kind = type(value)
    return isinstance(value, ITERATORS) or (
        hasattr(kind, "__next__") and hasattr(kind, "__iter__") and kind.__module__ in ("builtins", "itertools")
    )


def reaches_unopened(value: Any) -> bool:
    """Whether an object that Python cannot open holds a tensor: as the garbage collector sees it."""
    if is_array(value):
        return value.dtype.hasobject and any(map(holds_tensors, value.reshape(-1).tolist()))
    seen: dict[int, Any] = {}
    queue = [value]
    while queue and len(seen) < MOST:
        each = queue.pop()
        if id(each) in seen or isinstance(each, ATOMS):
            continue
        if isinstance(each, Tensor):
            return True
        seen[id(each)] = each
        if isinstance(each, types.FunctionType):
            queue += [part for _, part in cells_of(each)]
        else:
            queue += gc.get_referents(each)
    return False


# ---- Copying


@dataclass(slots=True)
class Copying:
    """Copies an object with something else in the place of each leaf.

    With `reaching`, objects that are not among these stay as they are: they hold no leaves.
    """

    leaf: Callable[[Any, str], Any]
    reaching: frozenset[int] | None = None
    made: dict[int, Any] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    under_way: set[int] = field(default_factory=set)

    def copied(self, value: Any, name: str = "output") -> Any:
        """Return a copy of a value."""
        if self.reaching is None:
            self.reaching = Looking().look(value, name).reaching
        try:
            return self.copy(value, name)
        except RecursionError:
            refuse(name, f"{kind_of(value)} of objects that are nested too deeply")

    def copy(self, value: Any, name: str) -> Any:
        assert self.reaching is not None
        if isinstance(value, Leaf):
            return self.leaf(value, name)
        if isinstance(value, weakref.ref) and (held := value()) is not None and id(held) in self.made:
            return weakref.ref(self.made[id(held)])
        if id(value) in self.made:
            return self.made[id(value)]
        row = kind_of_object(value)
        if id(value) not in self.reaching and (is_array(value) or type(value) in BOXES):
            return self.fresh(value)
        if id(value) not in self.reaching or row is None:
            return value
        if id(value) in self.under_way:
            refuse(name, f"{kind_of(value)} that holds itself")
        self.alive.append(value)
        return self.of_row(value, name, row)

    def fresh(self, value: Any) -> Any:
        """Return a copy of a plain container or an array without leaves, which its user may write to. Objects stay as
        they are: they may be the program's own."""
        self.alive.append(value)
        made = self.made[id(value)] = value.copy()
        if isinstance(made, dict):
            for key, item in made.items():
                made[key] = self.fresh_part(item)
        elif isinstance(made, (list, collections.deque)):
            for index, item in enumerate(made):
                made[index] = self.fresh_part(item)
        return made

    def fresh_part(self, value: Any) -> Any:
        if id(value) in self.made:
            return self.made[id(value)]
        return self.fresh(value) if is_array(value) or type(value) in BOXES else value

    def of_row(self, value: Any, name: str, row: Kind) -> Any:
        """Copy an object by the row of its kind, then its attributes."""
        if row.shell is not None and row.fill is not None:
            try:
                made = row.shell(value)
            except TypeError:
                refuse(name, f"{kind_of(value)}, which cannot be made without its arguments")
            self.made[id(value)] = made
            row.fill(made, value, self.parts(row.parts(value), name))
        else:
            assert row.build is not None
            self.under_way.add(id(value))
            made = row.build(value, self.parts(row.parts(value), name))
            self.under_way.discard(id(value))
            self.made[id(value)] = made
        for key, part in own_attributes(value).items():
            put_attribute(made, key, self.copy(part, joined(name, key)))
        return made

    def parts(self, parts: Parts, name: str) -> list[Any]:
        return [self.copy(part, joined(name, key)) for key, part in parts]


def put_attribute(made: Any, name: str, value: Any) -> None:
    """Set an attribute without the class's own code: a frozen dataclass and a module have theirs."""
    own = getattr(made, "__dict__", None)
    kind: Any = type(made)
    if own is None or name in slots(kind):
        object.__setattr__(made, name, value)
    else:
        own[name] = value


@functools.cache
def slots(kind: Any) -> frozenset[str]:
    """The names of the attributes that objects of a class keep in slots."""
    return frozenset(name for each in kind.__mro__ for name, value in vars(each).items() if isinstance(value, SLOT))


SLOT = types.MemberDescriptorType


# ---- As plain values


def plain_marks(part: tuple[Any, int] | None, marks: Sequence[Any]) -> Any:
    """Return the mark of a leaf, or an object's marks by their names: what a sample keeps of it."""
    return marks[0] if part is None else Marking(marks).plain(part[0])


@dataclass(slots=True)
class Marking:
    """Writes a template as plain structure: objects as mappings from their attributes, sets as lists."""

    marks: Sequence[Any]
    above: list[int] = field(default_factory=list)

    def plain(self, value: Any) -> Any:
        """Return the structure of a value, with marks in the places of its leaves."""
        if isinstance(value, Hole):
            return self.marks[value.index]
        row = None if type(value) in EXACT or isinstance(value, ATOMS) else kind_of_object(value)
        if row is None or id(value) in self.above or isinstance(value, weakref.ref):
            return {"value": repr(value)[:200] if type(value) in EXACT else kind_of(value)[2:]}
        self.above.append(id(value))
        parts = [(key, self.plain(part)) for key, part in self.unveiled(value, row)]
        self.above.pop()
        if type(value) in (list, tuple):
            return {type(value).__name__: [part for _, part in parts]}
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)) and not own_attributes(value):
            return {"list": [part for _, part in parts]}
        kept: dict[str, list[Any]] = {}
        for key, part in parts:
            alike = kept.setdefault(printable_name(key)[:4096], [])
            if part not in alike:  # an item of a dict that is its attribute too is written once
                alike.append(part)
        names = number_duplicates([key for key, alike in kept.items() for _ in alike])
        return {"dict": dict(zip(names, (part for alike in kept.values() for part in alike), strict=True))}

    def unveiled(self, value: Any, row: Kind) -> Parts:
        """Return the parts of an object that a reader would look for: a closure's variables, not its cells."""
        parts: Parts = []
        for key, part in parts_of(value, row):
            if isinstance(part, types.CellType):
                parts += [(key, content) for _, content in content_of(part)]
            elif key not in ("defaults", "keyword defaults") or part is not None:
                parts.append((key, part))
        return parts
