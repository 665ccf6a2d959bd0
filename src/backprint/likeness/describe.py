"""What a call was given, as plain JSON: values are compared by what they are, and tensors by their places.

A likeness is a text for a plain value (`3`, `'abc'`, `torch.float32`), or an object that says how a value is made:

    {"list": ["1", "2"]}                              {"tensor": "x", "attributes": {"lengths": "3"}}
    {"tuple": [...], "type": "geometry.Point"}        {"dict": [["'k'", "3"]]}
    {"object": "config.Cfg", "attributes": {...}}     {"array": "float64[5000]", "digest": "..."}

Equal values have equal likenesses, in any process. Large ones are folded into a digest. A value that has no description
(a lock, an open file, a module) is `{"live": TYPE}`: the value itself is kept, and compared by identity.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

Like = Any
"""A likeness: a text, or a JSON object."""

LONGEST = 2000
"""Texts up to so many characters are kept whole; of a longer one, its beginning and its digest."""

LARGEST = 500
"""Containers up to so many parts are kept whole; of a larger one without tensors, its digest."""

DEEPEST = 40
"""How deep values are followed; values that are nested deeper are compared by identity."""

OURS = ("_dynamo", "_backprint", "_fx", "_typed_storage", "_forward_hooks")
"""Prefixes of attributes that torch itself sets on tensors."""


@dataclass(slots=True)
class Describing:
    """The state of describing one call: the tensors met, in order, and the values that only identity can compare."""

    name: Callable[[int], Any]
    tensors: list[Tensor] = field(default_factory=list)
    live: list[Any] = field(default_factory=list)
    above: list[int] = field(default_factory=list)
    known: dict[int, tuple[Any, Described]] = field(default_factory=dict)


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
        return Described(text)
    if id(value) in state.above:
        return Described({"cycle": len(state.above) - state.above.index(id(value))})
    if id(value) in state.known:  # shared: what is described once is not followed again
        return state.known[id(value)][1]
    if len(state.above) >= DEEPEST:
        return describe_live(value, state)
    state.above.append(id(value))
    met = len(state.tensors)
    try:
        found = fold_large(describe_composed(value, state, argument), value)
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
    return Described({"folded": f"{type_name(value)}{size}", "digest": likeness_digest(found.like)})


def likeness_digest(like: Like) -> str:
    """The SHA-256 of JSON or of bytes, in 32 hex digits."""
    content = like if isinstance(like, bytes) else json.dumps(like, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def type_name(value: Any) -> str:
    """A value's type by module and name."""
    return class_name(type(value))


def class_name(kind: type) -> str:
    """A type by module and name; Python's own by name alone."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


EXACT = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
"""Types whose `repr` determines the value: a float's bits, except that all NaN are one."""

TORCHES = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def plain_text(value: Any) -> Like | None:
    """The likeness of a value without parts; None where it has some."""
    kind = type(value)
    if kind in EXACT:
        return shorten_text(int_text(value) if kind is int else repr(value))
    if isinstance(value, enum.Enum):
        return f"{type_name(value)}.{value.name}"
    if isinstance(value, TORCHES):
        return str(value)
    if kind is torch.device:
        return f"device {value}"
    if isinstance(value, type):
        return f"class {class_name(value)}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, (types.ModuleType, type(None))):
        return None
    if isinstance(value, (types.BuiltinFunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"builtin {getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value)}"
    return None


def int_text(value: int) -> str:
    """A whole number's digits; Python refuses to print very long ones in tens."""
    return repr(value) if abs(value) < 2**1024 else hex(value)


def shorten_text(text: str) -> Like:
    """A text, or of a long one its beginning and its digest."""
    if len(text) <= LONGEST:
        return text
    return {"text": text[:60], "length": len(text), "digest": likeness_digest(text.encode(errors="surrogatepass"))}


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
    hooks = (value._backward_hooks or {}) if value.is_leaf else {}
    return found | ({"its hooks": list(hooks.values())} if hooks else {})


def bytes_of(content: Tensor) -> bytes:
    """The bytes of a flat tensor of bytes, without numpy."""
    held = bytearray(content.numel())
    if held:
        torch.frombuffer(held, dtype=torch.uint8).copy_(content)
    return bytes(held)


def is_array(value: Any) -> bool:
    """Whether a value is numpy's; numpy need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def describe_array(value: Any, state: Describing) -> Described:
    """Describe a numpy array or number by dtype, shape and bytes."""
    if value.dtype.hasobject:
        items = [describe_value(item, state, False) for item in value.reshape(-1).tolist()]
        return describe_items({"array": f"{type_name(value)} {list(value.shape)}"}, "items", items)
    word = f"{value.dtype.str if value.dtype.names is None else value.dtype.descr}{list(value.shape)}"
    like = {"array" if hasattr(value, "strides") and value.ndim else "number": f"{type_name(value)} {word}"}
    if value.ndim == 0:
        return Described(like | {"value": repr(value.item())[:LONGEST]})
    return Described(like | {"digest": likeness_digest(value.tobytes())})


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
    """Describe a set, its items sorted."""
    items = sorted((describe_value(item, state, False) for item in value), key=lambda item: json.dumps(item.like))
    found = describe_items({}, "set", items)
    return Described(with_type(found.like, value, set), found.parts, found.held)


def describe_subclass(value: Any, state: Describing) -> Described:
    """Describe a number or a text of a user's class."""
    base = next(kind for kind in (int, float, complex, str, bytes) if isinstance(value, kind))
    like = {"object": type_name(value), "value": shorten_text(base.__repr__(value))}
    return with_attributes(Described(like), value, state)


def describe_function(value: Any, state: Describing) -> Described:
    """Describe a function by its name, code, closure and defaults; its globals are left out."""
    cells = [each.cell_contents for each in value.__closure__ or () if not is_empty(each)]
    parts = [describe_value(each, state, False) for each in (cells, value.__defaults__, value.__kwdefaults__)]
    like = {
        "function": f"{value.__module__}.{value.__qualname__}",
        "code": likeness_digest(describe_code(value.__code__)),
    }
    return with_attributes(describe_items(like, "closure", parts), value, state)


def is_empty(cell: Any) -> bool:
    """Whether a closure's cell has nothing in it yet."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def describe_code(code: types.CodeType) -> Like:
    """Describe a function's code: instructions, names, constants, and the code of functions inside."""
    constants = [
        describe_code(each) if isinstance(each, types.CodeType) else describe_code_constant(each)
        for each in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), list(code.co_freevars), constants]


def describe_code_constant(value: Any) -> str:
    """Describe a constant of a function's code; a set is sorted."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


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
    if type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        return describe_library_object(value, state)
    names = attributes_of(value)
    if names is None:
        return describe_live(value, state)
    return with_attributes(Described({"object": type_name(value)}), value, state)


def describe_library_object(value: Any, state: Describing) -> Described:
    """Describe an object of the standard library by how pickle rebuilds it: a date, a path, a fraction."""
    if type(value).__module__ == "itertools":  # Python warns that pickling these is deprecated
        return describe_live(value, state)
    try:
        made = value.__reduce_ex__(2)
    except Exception:  # whatever it raises, it cannot be made again
        return describe_live(value, state)
    if isinstance(made, str):
        return Described(f"global {type(value).__module__}.{made}")
    return describe_items(
        {"object": type_name(value)}, "made", [describe_value(each, state, False) for each in made[:3]]
    )


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object itself; None where it has neither `__dict__` nor slots."""
    slots = [name for kind in type(value).__mro__ for name in slot_names(kind)]
    own = getattr(value, "__dict__", None)
    if own is None and not slots:
        return None
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | dict(own or {})


def slot_names(kind: type) -> Iterator[str]:
    """The attributes that a class keeps in slots."""
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        if name not in ("__dict__", "__weakref__"):
            yield name if not name.startswith("__") or name.endswith("__") else f"_{kind.__name__.lstrip('_')}{name}"


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
    (nn.Module, torch.optim.Optimizer): describe_module,
    torch.Generator: describe_generator,
    Array: describe_array,
    functools.partial: describe_partial,
    types.FunctionType: describe_function,
    (types.MethodType, types.BuiltinMethodType): describe_method,
    slice: describe_slice,
    (list, tuple): describe_sequence,
    (set, frozenset): describe_set,
    dict: describe_mapping,
    (int, float, complex, str, bytes): describe_subclass,
}
"""How values of a type are described: the first row that fits; any other value is described as an object."""
