"""What a call was given, as plain JSON: values are compared by what they are, and tensors by their places.

A likeness is a text for a plain value (`3`, `'abc'`, `torch.float32`), or an object that says how a value is made:

    {"list": ["1", "2"]}                              {"tensor": "x", "attributes": {"lengths": "3"}}
    {"tuple": [...], "type": "geometry.Point"}        {"dict": [["'k'", "3"]]}
    {"object": "config.Cfg", "attributes": {...}}     {"array": "float64[5000]", "digest": "..."}

Equal values have equal likenesses, in any process. Large ones are folded into a digest. A function or a class of the
user's has a digest of what it reaches (`reach`). A value that has no description (a lock, an open file, a module) is
`{"live": TYPE}`: the value itself is kept, and compared by identity.
"""

from __future__ import annotations

import enum
import functools
import json
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.fake import FakeTensor
from backprint._torch.tensors import backward_hooks
from backprint.likeness.reach import Reach, plain_parts, read_by
from backprint.likeness.texts import (
    LONGEST,
    NUMBERS_AND_TEXTS,
    Like,
    attributes_of,
    class_name,
    describe_code,
    is_array,
    is_empty,
    is_library,
    likeness_digest,
    plain_text,
    shorten_text,
    type_name,
)

LARGEST = 500
"""Containers up to so many parts are kept whole; of a larger one without tensors, its digest."""

DEEPEST = 40
"""How deep values are followed; values that are nested deeper are compared by identity."""

OURS = ("_dynamo", "_backprint", "_fx", "_typed_storage", "_forward_hooks")
"""Prefixes of attributes that torch itself sets on tensors."""


@dataclass(slots=True)
class Describing:
    """The state of describing one call: the tensors met, in order, and the values that only identity can compare.

    `reached` are those that are no part of a value, but that a function or a class reaches; `arrays` are those of numpy
    that were met.
    """

    name: Callable[[int], Any]
    tensors: list[Tensor] = field(default_factory=list)
    live: list[Any] = field(default_factory=list)
    reached: list[Any] = field(default_factory=list)
    reaches: dict[int, tuple[Any, str]] = field(default_factory=dict)
    above: list[int] = field(default_factory=list)
    known: dict[int, tuple[Any, Described]] = field(default_factory=dict)
    arrays: list[Any] = field(default_factory=list)
    nans: dict[int, tuple[int, Any]] = field(default_factory=dict)
    tables: dict[Any, list[tuple[str, Any]]] = field(default_factory=dict)

    def text_of_nan(self, value: Any) -> str:
        """Describe a NaN: `in` and `index` take it for another one only where both are one object."""
        if id(value) not in self.nans:
            self.nans[id(value)] = len(self.nans) + 1, value
            return "nan"
        return f"nan, the same object as NaN number {self.nans[id(value)][0]}"


@dataclass(frozen=True, slots=True)
class Described:
    """A likeness, its number of parts, and whether it holds tensors of the call or live values."""

    like: Like
    parts: int = 1
    held: bool = False


def describe_value(value: Any, state: Describing, argument: bool = True) -> Described:
    """Describe a value. Tensors of an `argument` are described by their places in the call, others by their values."""
    if isinstance(value, Tensor):
        return describe_tensor(value, state, argument)
    if (text := plain_text(value)) is not None:
        return Described(text if text != "nan" else state.text_of_nan(value))
    if id(value) in state.above:
        return Described({"cycle": len(state.above) - state.above.index(id(value))})
    if id(value) in state.known:  # shared: what is described once is not followed again
        return state.known[id(value)][1]
    if len(state.above) >= DEEPEST:
        return describe_live(value, state)
    state.above.append(id(value))
    met = len(state.tensors)
    try:
        found = fold_large(with_class(describe_composed(value, state, argument), value, state), value)
    finally:
        state.above.pop()
    if len(state.tensors) == met:
        state.known[id(value)] = value, found
    return found


def describe_composed(value: Any, state: Describing, argument: bool) -> Described:
    """Describe a value that is made of other values."""
    if argument:
        children, spec = pytree.tree_flatten(value, is_leaf=lambda node: node is not value)
        if not (len(children) == 1 and children[0] is value):
            return describe_container(value, children, spec.context, state)
    for kind, describe in DESCRIBERS.items():
        if isinstance(value, kind):
            return describe(value, state)
    return describe_object(value, state)


def fold_large(found: Described, value: Any) -> Described:
    """Replace a large value by its digest, unless it holds tensors of the call."""
    if found.parts <= LARGEST or found.held:
        return found
    size = f" of {len(value)}" if hasattr(value, "__len__") else ""
    like = {"folded": f"{type_name(value)}{size}", "digest": likeness_digest(without_reach(found.like))}
    return Described(like | {REACH: likeness_digest(found.like)} if has_reach(found.like) else like)


def with_class(found: Described, value: Any, state: Describing) -> Described:
    """Add what an object's class reaches, unless it is a library's, or the object is compared by identity."""
    like = found.like
    if not isinstance(like, dict) or "live" in like or REACH in like or is_library(type(value)):
        return found
    like = like | {REACH: reach_of(type(value), state)}
    if tables := list(entries_for(value, state)):
        rows = {name: describe_value(entry, state, False) for name, entry in tables}
        like["in tables"] = {name: row.like for name, row in rows.items()}
        return Described(like, found.parts + len(rows) + 1, found.held or any(row.held for row in rows.values()))
    return Described(like, found.parts + 1, found.held)


def entries_for(value: Any, state: Describing) -> Iterator[tuple[str, Any]]:
    """Yield what tables of an object's class keep for it, and those that the class's functions name: a dictionary or a
    WeakKeyDictionary that has the object, or its `id`, as a key."""
    kind: Any = type(value)
    if kind not in state.tables:
        state.tables[kind] = tables_of(kind)
    for name, table in state.tables[kind]:
        for key in (value, id(value)):
            if (type(table) is dict or key is value) and key in table:
                yield name, table[key]


def tables_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the dictionaries in a class's body and among the global variables that its functions name, by name; none
    for a class with a `__hash__` of its own, which a lookup would run."""
    if kind.__hash__ is not object.__hash__:
        return []
    bodies = [vars(base) for base in kind.__mro__ if not is_library(base)]
    functions = [function for body in bodies for function in map(function_of, body.values()) if function is not None]
    attributes = {name: value for body in bodies for name, value in body.items()}
    variables = {name: value for function in functions for name, value in read_by(function)}
    reached = {**attributes, **variables}
    return [(name, value) for name, value in reached.items() if type(value) in (dict, weakref.WeakKeyDictionary)]


def function_of(attribute: Any) -> Any:
    """The function of a method or of a property's reader; None of anything else."""
    inner = attribute.fget if isinstance(attribute, property) else getattr(attribute, "__func__", attribute)
    return inner if isinstance(inner, types.FunctionType) else None


REACH, PARTS = "reach", "parts"
"""Keys of a likeness: the digest of what functions and classes reach, and their plain parts. Older samples lack it."""


def reach_of(value: Any, state: Describing) -> str:
    """Return the digest of what a function, a class or a module reaches."""
    if id(value) not in state.reaches:
        reach = Reach()
        state.reaches[id(value)] = value, reach.digest(value)
        state.reached += reach.held
    return state.reaches[id(value)][1]


def has_reach(like: Like) -> bool:
    """Whether a likeness says what something reaches."""
    if isinstance(like, dict):
        return REACH in like or any(map(has_reach, like.values()))
    return isinstance(like, list) and any(map(has_reach, like))


def without_reach(like: Like) -> Like:
    """Return a likeness as older samples keep it."""
    if isinstance(like, dict):
        own = {key: without_reach(each) for key, each in like.items() if key not in (REACH, PARTS)}
        return own.get("named", own)
    return [without_reach(each) for each in like] if isinstance(like, list) else like


def describe_named(value: Any, state: Describing) -> Described:
    """Describe a class, a module or a member of an enumeration by its name, its plain parts and what it reaches."""
    if isinstance(value, enum.Enum):
        like: dict[str, Like] = {"named": f"{type_name(value)}.{value.name}"}
        return Described(like | {REACH: reach_of(type(value), state)}, 2)
    name = f"class {class_name(value)}" if isinstance(value, type) else f"module {value.__name__}"
    parts = plain_parts(value)
    return Described({"named": name, PARTS: parts, REACH: reach_of(value, state)}, 2 + len(parts))


def describe_tensor(value: Tensor, state: Describing, argument: bool) -> Described:
    """Describe a tensor of the call by its place and its attributes, any other tensor by its values."""
    if argument:
        like: dict[str, Like] = {"tensor": state.name(len(state.tensors))}
        state.tensors.append(value)
    elif type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided and not value.is_meta:
        with torch.no_grad():
            content = value.detach().resolve_conj().resolve_neg().cpu().contiguous().flatten().view(torch.uint8)
        shape = ", ".join(map(str, value.shape))
        like = {"values": f"{str(value.dtype)[6:]}[{shape}]", "stride": list(value.stride())}
        like["digest"] = likeness_digest(bytes_of(content))
    else:
        return describe_live(value, state)
    own = {} if isinstance(value, FakeTensor) else vars(value)
    hung = {name: each for name, each in own.items() if not name.startswith(OURS)}
    hung |= class_and_hooks(value) if argument else {}
    found = {name: describe_value(each, state, False) for name, each in sorted(hung.items())}
    if found:
        like["attributes"] = {name: each.like for name, each in found.items()}
    held = argument or any(each.held for each in found.values())
    return Described(like, 1 + sum(each.parts for each in found.values()), held)


def class_and_hooks(value: Tensor) -> dict[str, Any]:
    """What distinguishes an argument from a plain tensor: its class, and the hooks on its gradient."""
    found: dict[str, Any] = {} if type(value) in (Tensor, FakeTensor) else {"its class": type(value).__qualname__}
    hooks = (backward_hooks(value) or {}) if value.is_leaf else {}
    return found | ({"its hooks": list(hooks.values())} if hooks else {})


def bytes_of(content: Tensor) -> bytes:
    """The bytes of a flat tensor of bytes, without numpy."""
    held = bytearray(content.numel())
    if held:
        torch.frombuffer(held, dtype=torch.uint8).copy_(content)
    return bytes(held)


def describe_array(value: Any, state: Describing) -> Described:
    """Describe a numpy array or number by dtype, shape and bytes."""
    if value.dtype.hasobject:
        items = [describe_value(item, state, False) for item in value.reshape(-1).tolist()]
        return describe_items({"array": f"{type_name(value)} {list(value.shape)}"}, "items", items)
    word = f"{value.dtype.str if value.dtype.names is None else value.dtype.descr}{list(value.shape)}"
    like: dict[str, Like] = {
        "array" if hasattr(value, "strides") and value.ndim else "number": f"{type_name(value)} {word}"
    }
    if value.ndim == 0:
        return Described(like | {"value": repr(value.item())[:LONGEST]})
    numpy: Any = sys.modules["numpy"]
    if not value.flags.c_contiguous:
        like["strides"] = str(value.strides)
    if not value.flags.writeable:
        like["writeable"] = "no"
    if not value.flags.owndata:
        like["a view"] = "yes"
    shared = [str(index) for index, other in enumerate(state.arrays) if numpy.may_share_memory(value, other)]
    state.arrays.append(value)
    if shared:
        like["shares memory with arrays"] = ", ".join(shared)
    if value.dtype.metadata:
        like["metadata"] = repr(sorted(value.dtype.metadata.items(), key=str))[:LONGEST]
    plain = value.view(numpy.ndarray)  # a masked array's own `tobytes` fills in, and sets its fill value
    return with_attributes(Described(like | {"digest": likeness_digest(plain.tobytes())}), value, state)


def describe_items(like: dict[str, Like], key: str, items: Sequence[Described]) -> Described:
    """Join the descriptions of items under a key."""
    like[key] = [item.like for item in items]
    return Described(like, 1 + sum(item.parts for item in items), any(item.held for item in items))


def with_type(like: dict[str, Like], value: Any, usual: type) -> dict[str, Like]:
    """Add the value's type, where it is not the usual one."""
    return like if type(value) is usual else like | {"type": type_name(value)}


def describe_container(value: Any, children: Sequence[Any], context: Any, state: Describing) -> Described:
    """Describe a container that is a pytree node; its tensors are places of the call."""
    items = [describe_value(child, state) for child in children]
    if isinstance(value, Mapping) and len(items) == len(value):
        return describe_pairs(value, items, state)
    if type(value) in (list, tuple):
        return describe_items({}, type(value).__name__, items)
    if isinstance(value, (list, tuple)):
        found = describe_items({}, "list" if isinstance(value, list) else "tuple", items)
        return Described(with_type(found.like, value, list), found.parts, found.held)
    around = describe_value(context, state, False)
    found = describe_items({"node": type_name(value), "context": around.like}, "items", items)
    return Described(found.like, found.parts + around.parts, found.held or around.held)


def describe_pairs(value: Mapping[Any, Any], items: Sequence[Described], state: Describing) -> Described:
    """Describe a mapping whose items are described, its keys in order."""
    keys = [describe_value(key, state, False) for key in value]
    like = {"dict": [[key.like, item.like] for key, item in zip(keys, items, strict=True)]}
    made = getattr(value, "default_factory", None)
    factory = {"default": describe_value(made, state, False).like} if made is not None else {}
    parts = 1 + sum(each.parts for each in (*keys, *items))
    return Described(with_type(like, value, dict) | factory, parts, any(each.held for each in (*keys, *items)))


def describe_mapping(value: Mapping[Any, Any], state: Describing) -> Described:
    """Describe a mapping that is not a pytree container of the call."""
    items = [describe_value(item, state, False) for item in value.values()]
    return with_attributes(describe_pairs(value, items, state), value, state)


def describe_sequence(value: Any, state: Describing) -> Described:
    """Describe a list or a tuple that is not a pytree container of the call, or has a class of its own."""
    usual = list if isinstance(value, list) else tuple
    found = describe_items({}, usual.__name__, [describe_value(item, state, False) for item in value])
    return with_attributes(Described(with_type(found.like, value, usual), found.parts, found.held), value, state)


def describe_set(value: Any, state: Describing) -> Described:
    """Describe a set, its items sorted. Sets of integers that are not iterated in ascending order have their order too:
    it depends on how they were made, in any process alike."""
    items = sorted((describe_value(item, state, False) for item in value), key=lambda item: json.dumps(item.like))
    found = describe_items({}, "set", items)
    order = [item for item in value if type(item) is int]
    if len(order) == len(items) and order != sorted(order):
        found = Described(found.like | {"order": likeness_digest(json.dumps(order))}, found.parts)
    return Described(with_type(found.like, value, set), found.parts, found.held)


def describe_subclass(value: Any, state: Describing) -> Described:
    """Describe a number or a text of a user's class."""
    base = next((kind for kind in NUMBERS_AND_TEXTS if issubclass(type(value), kind)), None)
    if base is None:  # `isinstance` believes an object's `__class__`
        return describe_object(value, state)
    like = {"object": type_name(value), "value": shorten_text(base.__repr__(value))}
    return with_attributes(Described(like), value, state)


def describe_function(value: Any, state: Describing) -> Described:
    """Describe a function by its name, code, closure and defaults, and by what these and its global variables reach."""
    cells = [each.cell_contents for each in value.__closure__ or () if not is_empty(each)]
    parts = [describe_value(each, state, False) for each in (cells, value.__defaults__, value.__kwdefaults__)]
    like = {
        "function": f"{value.__module__}.{value.__qualname__}",
        "code": likeness_digest(describe_code(value.__code__)),
    }
    found = with_attributes(describe_items(like, "closure", parts), value, state)
    if is_library(value):
        return found
    named = plain_parts(value)
    return Described(
        found.like | {PARTS: named, REACH: reach_of(value, state)}, found.parts + 1 + len(named), found.held
    )


def describe_method(value: Any, state: Describing) -> Described:
    """Describe a method and the object that it is bound to."""
    owner = describe_value(value.__self__, state, False)
    like = {"method": getattr(value, "__qualname__", value.__name__), "self": owner.like}
    if not isinstance(value, types.MethodType):
        return Described(like, 1 + owner.parts, owner.held)
    inner = describe_value(value.__func__, state, False)
    return Described(like | {"function": inner.like}, 1 + owner.parts + inner.parts, owner.held or inner.held)


def describe_partial(value: Any, state: Describing) -> Described:
    """Describe a `functools.partial` by its function and its arguments."""
    parts = [describe_value(each, state, False) for each in (value.func, value.args, value.keywords)]
    return describe_items({"object": "functools.partial"}, "items", parts)


def describe_generator(value: Any, state: Describing) -> Described:
    """Describe a random generator by its state."""
    return Described({"generator": str(value.device), "digest": likeness_digest(bytes(value.get_state().tolist()))})


def describe_storage(value: torch.UntypedStorage, state: Describing) -> Described:
    """Describe the memory of a tensor by its bytes."""
    content = torch.empty(0, dtype=torch.uint8, device=value.device).set_(value).cpu()
    return Described({"storage": str(value.nbytes()), "digest": likeness_digest(bytes_of(content))})


def describe_slice(value: slice, state: Describing) -> Described:
    return describe_items(
        {}, "slice", [describe_value(each, state, False) for each in (value.start, value.stop, value.step)]
    )


def describe_live(value: Any, state: Describing) -> Described:
    """Describe a value that can be compared only by identity."""
    state.live.append(value)
    return Described({"live": type_name(value)}, held=True)


def describe_module(value: Any, state: Describing) -> Described:
    """Describe a module or an optimizer by identity: no other has its tensors."""
    return describe_live(value, state)


def describe_object(value: Any, state: Describing) -> Described:
    """Describe an object by its class and its attributes; one of the standard library's as pickle would keep it."""
    if type(value) is object:
        return describe_live(value, state)  # a sentinel: nothing but its identity tells it from others
    if type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        return describe_library_object(value, state)
    names = attributes_of(value)
    if names is None:
        return describe_live(value, state)
    return with_attributes(Described({"object": type_name(value)}), value, state)


def describe_library_object(value: Any, state: Describing) -> Described:
    """Describe an object of the standard library by how pickle rebuilds it: a date, a path, a fraction."""
    if isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):  # a cached function
        return describe_items({"object": type_name(value)}, "made", [describe_value(wrapped, state, False)])
    if type(value).__module__ == "itertools":  # Python warns that pickling these is deprecated
        return describe_live(value, state)
    try:
        made = value.__reduce_ex__(2)
    except Exception:  # whatever it raises, it cannot be made again
        return describe_live(value, state)
    if isinstance(made, str):
        return Described(f"global {type(value).__module__}.{made}")
    contents = [list(items) for items in made[3:5] if items is not None]  # of a deque: what it holds
    parts = [describe_value(each, state, False) for each in (*made[:3], *contents)]
    return describe_items({"object": type_name(value)}, "made", parts)


def with_attributes(found: Described, value: Any, state: Describing) -> Described:
    """Add an object's attributes to its likeness, where it has some."""
    own = attributes_of(value) or {}
    parts = {name: describe_value(each, state, False) for name, each in sorted(own.items())}
    if not parts:
        return found
    like = found.like | {"attributes": {name: each.like for name, each in parts.items()}}
    held = found.held or any(each.held for each in parts.values())
    return Described(like, found.parts + sum(each.parts for each in parts.values()), held)


class _Arrays(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return is_array(value)


class Array(metaclass=_Arrays):
    """Numpy's arrays and numbers, which are known only where numpy is."""


DESCRIBERS: dict[Any, Callable[[Any, Describing], Described]] = {
    (type, types.ModuleType, enum.Enum): describe_named,
    (nn.Module, torch.optim.Optimizer): describe_module,
    torch.Generator: describe_generator,
    torch.UntypedStorage: describe_storage,
    Array: describe_array,
    functools.partial: describe_partial,
    types.FunctionType: describe_function,
    (types.MethodType, types.BuiltinMethodType): describe_method,
    slice: describe_slice,
    (list, tuple): describe_sequence,
    (set, frozenset): describe_set,
    (dict, types.MappingProxyType): describe_mapping,
    NUMBERS_AND_TEXTS: describe_subclass,
}
"""How values of a type are described: the first row that fits; any other value is described as an object."""
