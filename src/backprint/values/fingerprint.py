"""Fingerprints: values of a call that are no tensors, described as JSON, so that a replay can compare its own with
them.

A fingerprint is a text for a plain value (`3`, `'abc'`, `torch.float32`, `torch.nn.functional.gelu`), or an object with
the kind of a value and its parts:

    {"container": "list", "of": ["1", "2"]}                   {"tensor": "x", "keys": ["lengths"], "of": ["3"]}
    {"container": "dict", "keys": ["'k'"], "of": ["3"]}       {"enum": "config.Mode.ADD", "of": ["1"]}
    {"dataclass": "config.Cfg", "keys": ["k"], "of": ["3"]}   {"live": "text.Vocabulary", "keys": [...], "of": [...]}

Plain values, enums, dataclasses and containers of pytree are compared by their fingerprints, which are the same in any
process; large ones are replaced by a digest. A tensor of the call is described by its place in the call. Anything else
is `live`: the value itself is kept, and compared by identity while the captured program lives. Its attributes and items
are in the fingerprint only so that a change of them since the capture is seen: equal ones do not make two values equal.

The first key of such an object, with what stands beside it, is its *head*, which says of what kind the value is; the
*parts* are under `of`, each with its key under `keys`: an item's, or `.name` for an attribute. To *describe* a value is
to make its fingerprint (`like` of a _Described), with the `state` that the values of one call have in common
(DescribeState). It is `held` if a tensor of the call or a live value is in it: then no digest replaces it. An
*argument*, and the items of its containers, are what a caller passed; attributes and keys of them are not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import json
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.fake import FakeTensor
from backprint._torch.operators import OpOverload, OpOverloadPacket
from backprint._torch.tensors import backward_hooks
from backprint.values.memory import as_bytes
from backprint.values.objects import attributes_with_slots

# ---- Plain values, and the parts of objects

Like = Any
"""A fingerprint: a text, or a JSON object."""

MAX_TEXT = 2000
"""The longest text, in characters, that is kept whole; of a longer one, its beginning and its digest are kept."""

EXACT = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
"""Types whose `repr` determines the value: a float's bits, except that all NaN are one."""

TORCH_VALUES = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)

NAMED = (type, types.ModuleType, types.FunctionType)
"""Types of values that have a name of their own."""

LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "torchgen", "functorch", "numpy", "backprint"))
"""Packages whose functions and classes are known by their names."""


def plain_text(value: Any) -> Like | None:
    """Return the fingerprint of a plain value, which determines it; None for any other value. Plain are values without
    parts, and what a library has under a name: its functions, classes and operators."""
    kind = type(value)
    if kind in EXACT:
        # Python refuses to print a very long int in decimal: `sys.set_int_max_str_digits`.
        text = hex(value) if kind is int and abs(value) >= 2**1024 else repr(value)
        if len(text) <= MAX_TEXT:
            return text
        digest = _fingerprint_digest(text.encode(errors="surrogatepass"))
        return {"text": text[:60], "length": len(text), "digest": digest}
    if kind is slice and {type(bound) for bound in (value.start, value.stop, value.step)} <= {int, type(None)}:
        return repr(value)
    if isinstance(value, TORCH_VALUES):
        return str(value)
    if kind is torch.device:
        return f"device {value}"
    if isinstance(value, (OpOverload, OpOverloadPacket)):
        return f"operator {value}"
    if kind is types.BuiltinFunctionType and isinstance(value.__self__, (types.ModuleType, type(None))):
        return f"builtin {name_of(value)}"
    if isinstance(value, NAMED) and _is_library_value(value):
        return name_of(value)
    if is_of_numpy(value, "number", "bool_"):
        return f"{name_of(kind)} {value.item()!r}"
    return None


def _fingerprint_digest(like: Like) -> str:
    """Return the SHA-256 of JSON or of bytes, in 32 hex digits."""
    content = like if isinstance(like, bytes) else json.dumps(like, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def name_of(value: Any) -> str:
    """Return a function or a class by module and name; Python's own by name alone."""
    name, module = getattr(value, "__qualname__", None) or value.__name__, getattr(value, "__module__", None)
    # A module has a name alone.
    return name if module in (None, "builtins") else f"{module}.{name}"


def _is_library_value(value: Any) -> bool:
    """Whether a function, a class or a module belongs to Python's own library, to torch or to NumPy, and its name leads
    to it.

    The name of a function that is defined while another runs, or of a class that `make_dataclass` makes, does not.
    """
    is_module = isinstance(value, types.ModuleType)
    module = str(value.__name__ if is_module else value.__module__)
    if module.partition(".")[0] not in LIBRARIES:
        return False
    found: Any = sys.modules.get(module)
    for name in () if is_module else value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def is_of_numpy(value: Any, *names: str) -> bool:
    """Whether a value is of one of these types of numpy, which need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(getattr(numpy, name) for name in names))


def _is_heap_type(kind: type) -> bool:
    """Whether a class is made while Python runs; the types of the interpreter itself are not."""
    # Bit 9 of a type's flags is Py_TPFLAGS_HEAPTYPE of CPython.
    return bool(kind.__flags__ & 1 << 9)


def is_python_class(kind: type) -> bool:
    """Whether Python code defines a class: its objects consist of attributes, and can be made empty."""
    has_c_constructor = isinstance(vars(kind).get("__new__"), types.BuiltinFunctionType)
    return kind is object or (_is_heap_type(kind) and not has_c_constructor)


# ---- Fingerprints

MAX_PARTS = 500
"""The most parts of a value that are kept; a larger one without tensors is replaced by its digest."""

MAX_DEPTH = 40
"""The depth to which values are followed; values that are nested deeper are compared by identity."""

TORCH_ATTRIBUTE_PREFIXES = ("_dynamo", "_backprint", "_fx", "_typed_storage", "_forward_hooks")
"""Prefixes of attributes that torch and Backprint set on tensors."""

CONTAINERS = (list, tuple, dict, OrderedDict, defaultdict, deque, torch.Size)
"""Containers that are opened wherever they are; those that a program registers with pytree, only as arguments."""


@dataclass(slots=True)
class DescribeState:
    """The state while the values of one call are described.

    `name` returns what stands for the tensor with an index in the call. `tensors` are the tensors so far, `live` the
    values that are compared by identity, and `classes` the user's classes of the other values by id. `known` has, by
    the id of a value, the value itself and its description; `above` has the ids of the values that are being described.
    """

    name: Callable[[int], Any]
    tensors: list[Tensor] = field(default_factory=list)
    live: list[Any] = field(default_factory=list)
    classes: dict[int, type] = field(default_factory=dict)
    known: dict[int, tuple[Any, _Described]] = field(default_factory=dict)
    above: list[int] = field(default_factory=list)

    @property
    def identities(self) -> tuple[Any, ...]:
        """The live values, and the user's classes of the others: two classes may have one name."""
        return (*self.live, *self.classes.values())


@dataclass(frozen=True, slots=True)
class _Described:
    """A fingerprint (`like`), its number of parts, and whether it holds tensors of the call or live values (`held`):
    then it is not replaced by a digest, whatever its size is."""

    like: Like
    parts: int = 1
    held: bool = False


def describe_value(value: Any, state: DescribeState, argument: bool = True) -> _Described:
    """Return the description of a value. The tensors of an `argument` are described by their places in the call; other
    tensors, such as an attribute of an object or a key, by their values. What is compared by identity is entered into
    `state`."""
    if isinstance(value, Tensor):
        return _describe_tensor(value, state, argument)
    if (text := plain_text(value)) is not None:
        return _Described(text)
    if id(value) in state.above:
        # By how many levels up the value is that holds itself.
        return _Described({"cycle": len(state.above) - state.above.index(id(value))})
    if id(value) in state.known:  # shared: what is described once is not followed again
        return state.known[id(value)][1]
    tensors_before = len(state.tensors)  # tensors of the call so far
    state.above.append(id(value))
    try:
        described = _describe_composed(value, state, argument)
    finally:
        state.above.pop()
    if described.parts > MAX_PARTS and not described.held:
        size = f" of {len(value)}" if hasattr(value, "__len__") else ""
        described = _Described(
            {"large": f"{name_of(type(value))}{size}", "digest": _fingerprint_digest(described.like)}
        )
    # A value with tensors of the call is described each time it occurs: each occurrence has names of its own.
    if len(state.tensors) == tensors_before:
        state.known[id(value)] = value, described
    return described


def _describe_composed(value: Any, state: DescribeState, argument: bool) -> _Described:
    """Return the description of a value that is made of other values; anything unknown as live."""
    kind = type(value)
    if len(state.above) > MAX_DEPTH or isinstance(value, (nn.Module, torch.optim.Optimizer)):
        return _describe_live(value, state, contents={})
    if _is_heap_type(kind) and not _is_library_value(kind):  # a class of the user's, whose name another may have too
        state.classes[id(kind)] = kind
    if isinstance(value, torch.Generator):
        return _Described(
            {"generator": str(value.device), "digest": _fingerprint_digest(bytes(value.get_state().tolist()))}
        )
    if isinstance(value, enum.Enum):
        return describe_with_parts({"enum": f"{name_of(kind)}.{value.name}"}, [value.value], named={}, state=state)
    if isinstance(value, (types.MethodType, types.BuiltinMethodType)):  # each access to a method makes another one
        of = {"function": getattr(value, "__func__", value.__name__), "object": value.__self__}
        return describe_with_parts({"method": value.__name__}, items=[], named=of, state=state)
    if argument or kind in CONTAINERS or pytree.is_namedtuple_class(kind):
        # One level: the items of the value, or the value itself if pytree does not know it.
        items, spec = pytree.tree_flatten(value, is_leaf=lambda node: node is not value)
        if not (len(items) == 1 and items[0] is value):
            head = {"container": name_of(kind)}
            if isinstance(value, Mapping) and len(items) == len(value):
                factory = getattr(value, "default_factory", None)
                default = {} if factory is None else {"default factory": factory}
                return describe_with_parts(head, items, named=default, state=state, argument=argument, keys=list(value))
            # The context is what pytree keeps of a container besides its items, such as the names of a named tuple.
            own = attributes_with_slots(value) if isinstance(value, (list, tuple)) else {"context": spec.context}
            return describe_with_parts(head, items, named=own or {}, state=state, argument=argument)
    if dataclasses.is_dataclass(value) and all(map(is_python_class, kind.__mro__)):
        attributes = attributes_with_slots(value) or {}
        return describe_with_parts({"dataclass": name_of(kind)}, items=[], named=attributes, state=state)
    return _describe_live(value, state, contents_of(value))


def describe_with_parts(
    head: dict[str, Like],
    items: Sequence[Any],
    named: Mapping[str, Any],
    state: DescribeState,
    argument: bool = False,
    keys: Sequence[Any] = (),
) -> _Described:
    """Return the description of a value by its head, the facts that say of which kind it is; by its items, with their
    `keys` if it is a mapping; and by its attributes (`named`). Items are described as parts of an `argument` or not;
    keys and attributes never are."""
    described = [describe_value(item, state, argument) for item in items]
    described_keys = [describe_value(key, state, argument=False) for key in keys]
    # Attributes have no order of their own; keys of a mapping keep theirs.
    names = sorted(named, key=str)
    described += [describe_value(named[name], state, argument=False) for name in names]
    like = dict(head)
    if keys or names:
        own = [key.like for key in described_keys] if keys else [str(index) for index in range(len(items))]
        like["keys"] = own + [f".{name}" for name in names]
    if described or "container" in head:
        like["of"] = [part.like for part in described]
    parts = (*described, *described_keys)
    return _Described(like, 1 + sum(part.parts for part in parts), any(part.held for part in parts))


def rest_in_order(likes: Sequence[tuple[Any, Like]]) -> Like:
    """Return the fingerprint of `*args`. `likes` has the place and the fingerprint of each of its values."""
    return {"container": "tuple", "of": [like for _, like in likes]}


def rest_by_name(likes: Sequence[tuple[Any, Like]]) -> Like:
    """Return the fingerprint of `**kwargs`. `likes` has the keyword and the fingerprint of each of its values."""
    return {"container": "dict", "keys": [repr(key) for key, _ in likes], "of": [like for _, like in likes]}


def _describe_tensor(value: Tensor, state: DescribeState, argument: bool) -> _Described:
    """Return the description of a tensor of the call by its place, its attributes, and what distinguishes it from a
    plain tensor (its class, and the hooks on its gradient); of any other tensor by its values, or as live if these
    cannot be read."""
    if argument:
        head: dict[str, Like] = {"tensor": state.name(len(state.tensors))}
        state.tensors.append(value)
    elif type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided and not value.is_meta:
        with torch.no_grad():
            content = as_bytes(value.detach().cpu())
        shape = ", ".join(map(str, value.shape))
        head = {"values": f"{str(value.dtype)[6:]}[{shape}]", "stride": list(value.stride())}
        head["digest"] = _fingerprint_digest(bytes_of(content))
    else:
        return _describe_live(value, state, contents={})
    attributes = {} if isinstance(value, FakeTensor) else vars(value)  # those of a FakeTensor are torch's
    own = {name: part for name, part in attributes.items() if not name.startswith(TORCH_ATTRIBUTE_PREFIXES)}
    if argument and type(value) not in (Tensor, FakeTensor):
        own["its class"] = type(value).__qualname__
    if argument and value.is_leaf and (hooks := backward_hooks(value)):
        own["its hooks"] = list(hooks.values())
    described = describe_with_parts(head, items=[], named=own, state=state)
    return _Described(described.like, described.parts, held=argument or described.held)


def bytes_of(content: Tensor) -> bytes:
    """Return the bytes of a flat tensor of bytes, without numpy."""
    buffer = bytearray(content.numel())
    if buffer:
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(content)
    return bytes(buffer)


def _describe_live(value: Any, state: DescribeState, contents: Mapping[str, Any]) -> _Described:
    """Return the description of a value that is compared by identity, and enter it into `state.live`. Its contents, by
    name, tell whether it has changed since the capture."""
    state.live.append(value)
    head = {"live": name_of(value if isinstance(value, NAMED) else type(value))}
    described = describe_with_parts(head, items=[], named=contents, state=state)
    if described.parts > MAX_PARTS:
        return _Described(head | {"digest": _fingerprint_digest(described.like)}, held=True)
    return _Described(described.like, described.parts, held=True)


PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
"""Methods that pickle calls."""


def contents_of(value: Any) -> dict[str, Any]:
    """Return the readable contents of a value by name: its attributes, and the parts that pickle keeps of a built-in
    type that it derives from; none where reading them would run the program's own methods."""
    kind: Any = type(value)
    if isinstance(value, types.FunctionType):
        inner = {"defaults": value.__defaults__, "keyword defaults": value.__kwdefaults__}
        return {"line": value.__code__.co_firstlineno, **inner, **value.__dict__, **_closure_of(value)}
    if isinstance(value, NAMED):
        return {}
    if isinstance(value, types.MappingProxyType):
        return {"items": dict(value)}
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": (value.args, value.keywords)}
    if isinstance(value, (set, frozenset)):  # sorted: their own order may be that of addresses
        # Each item with a state of its own: only its fingerprint as text is needed.
        items = sorted(
            value, key=lambda item: json.dumps(describe_value(item, DescribeState(name=str), argument=False).like)
        )
        return (attributes_with_slots(value) or {}) | {"items": items}
    is_of_python = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    attributes = {} if is_of_python else attributes_with_slots(value) or {}
    if is_of_numpy(value, "ndarray") and not value.dtype.hasobject:
        content = sys.modules["numpy"].ndarray.tobytes(value)  # a masked array's own sets its fill value
        return attributes | {"values": [str(value.dtype), value.shape, value.strides, content]}
    classes = () if is_of_python else kind.__mro__
    own = [class_ for class_ in classes if class_ is not object and is_python_class(class_)]  # the user's
    # Pickle would run a method of the user's; Python warns of pickling itertools.
    if kind.__module__ == "itertools" or any(name in vars(class_) for class_ in own for name in PICKLING):
        return attributes
    return _with_pickled_parts(value, attributes, is_of_python)


def _with_pickled_parts(value: Any, attributes: dict[str, Any], is_of_python: bool) -> dict[str, Any]:
    """Return the attributes of a value, and under `parts` what pickle keeps of it besides: the contents of the built-in
    type that its class is or derives from. `is_of_python` says whether the class is of Python's own library."""
    # `__reduce_ex__` returns a function, its arguments, the state, and iterators of items of a list and of a mapping;
    # or a text, which names a global.
    try:
        made = value.__reduce_ex__(2)
        items = [list(part) for part in made[3:5] if part is not None]
    except Exception:  # whatever it raises, nothing more can be read
        return attributes
    if not isinstance(made, tuple):
        return attributes
    arguments, state = made[1], made[2:3]
    if is_of_python:
        return {"parts": [arguments, *state, *items]}
    # The first argument is the class, and the state is the attributes.
    parts = [*arguments[1:], *items]
    return attributes | ({"parts": parts} if parts else {})


def _closure_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables of a function's closure that have values, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    with_values: dict[str, Any] = {}
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # the variable has no value yet
            with_values[name] = cell.cell_contents
    return with_values


# ---- Differences between two fingerprints


def fingerprint_differences(was: Like, now: Like, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield where the fingerprint of a value at capture (`was`) and the one `now` differ: the path inside the value,
    which begins with `path`, and both values in words."""
    if not (isinstance(was, dict) and isinstance(now, dict) and kind_of(was) == kind_of(now)):
        if was != now:
            yield path, f"was {fingerprint_text(was)} at capture and is {fingerprint_text(now)} now"
        return
    left, right = parts_of(was), parts_of(now)  # by their keys as JSON
    for key in dict.fromkeys((*left, *right)):
        where = f"{path}.{_key_in_path(json.loads(key))}"
        if key not in right:
            yield where, f"was {fingerprint_text(left[key])} at capture and is missing now"
        elif key not in left:
            yield where, f"was not there at capture and is {fingerprint_text(right[key])} now"
        else:
            yield from fingerprint_differences(left[key], right[key], where)
    if left.keys() == right.keys() and list(left) != list(right):
        before, after = (", ".join(_key_in_path(json.loads(key)) for key in keys) for keys in (left, right))
        # A dict with another order: a program that iterates over it may compute something else.
        yield path, f"had the keys {before} in this order at capture and has {after} now"


def kind_of(like: Mapping[str, Like]) -> tuple[Any, ...]:
    """Return the head of a fingerprint, which must be equal before the parts of two fingerprints can be compared.
    Tensors may have other names."""
    return "tensor" in like, {key: fact for key, fact in like.items() if key not in ("tensor", "keys", "of")}


def parts_of(like: Mapping[str, Like]) -> dict[str, Like]:
    """Return the parts of a value by their keys as JSON: 1 and '1' are two keys."""
    parts = like.get("of", [])
    keys = like.get("keys", [str(index) for index in range(len(parts))])
    return {json.dumps(key): part for key, part in zip(keys, parts, strict=True)}


def _key_in_path(like: Like) -> str:
    """Return a key as a step of a path: texts without their quotes, attributes without their dot."""
    text = fingerprint_text(like)
    return text[1:-1] if text[:1] in "'\"" else text.removeprefix(".")


def fingerprint_text(like: Like) -> str:
    """Return a fingerprint in words, in at most 80 characters or so; what is no object with one of these heads is shown
    as it is."""
    match like:
        case {"tensor": _}:
            return "a tensor"
        # A tensor that is no argument, and a value with more than MAX_PARTS parts.
        case {"values": text, "digest": digest} | {"large": text, "digest": digest}:
            return f"a {text} ({digest[:8]})"
        case {"text": text, "length": length}:  # longer than MAX_TEXT
            return f"{text}… ({length} characters)"
        case {"container": kind, "keys": keys}:
            return f"a {kind} of {', '.join(map(_key_in_path, keys))[:60]}"
        case {"container": kind, "of": items}:
            return f"a {kind} of {len(items) or 'nothing'}"
        case {"enum": text}:
            return str(text)[:80]
        case {"dataclass": kind} | {"method": kind} | {"live": kind}:
            named = zip(like.get("keys", ()), like.get("of", ()), strict=True)
            return f"{kind}({', '.join(f'{_key_in_path(key)}={fingerprint_text(part)}' for key, part in named)})"[:80]
    return str(like)[:80]


def holds_live_value(like: Like) -> bool:
    """Whether a fingerprint contains a value that is compared by identity."""
    if isinstance(like, dict):
        return "live" in like or any(map(holds_live_value, like.values()))
    return isinstance(like, list) and any(map(holds_live_value, like))
