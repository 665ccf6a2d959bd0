"""Likenesses: values of a call that are no tensors, described as JSON, so that a replay can compare its own with them.

A likeness is a text for a plain value (`3`, `'abc'`, `torch.float32`), or an object that says how a value is made:

    {"list": ["1", "2"]}                              {"tensor": "x", "attributes": {"lengths": "3"}}
    {"tuple": [...], "type": "geometry.Point"}        {"dict": [["'k'", "3"]]}
    {"object": "config.Cfg", "attributes": {...}}     {"array": "float64[5000]", "digest": "..."}

Equal values have equal likenesses, in any process. Large ones are replaced by a digest. A tensor of the call is
described by its place in the call. A function or a class of the user's has a digest of everything that it reaches
(`ReachDigest`). A value that has no description (a lock, an open file, a module) is `{"live": TYPE}`: the value itself
is kept, and compared by identity while the captured program lives.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import inspect
import json
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.fake import FakeTensor
from backprint._torch.operators import OpOverload, OpOverloadPacket
from backprint._torch.tensors import backward_hooks

# ---- Plain values, names of types, and parts of objects and functions

Like = Any
"""A likeness: a text, or a JSON object."""

MAX_TEXT = 2000
"""The longest text, in characters, that is kept whole; of a longer one, its beginning and its digest are kept."""


def likeness_digest(like: Like) -> str:
    """Return the SHA-256 of JSON or of bytes, in 32 hex digits."""
    content = like if isinstance(like, bytes) else json.dumps(like, sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def type_name(value: Any) -> str:
    """Return a value's type by module and name."""
    return class_name(type(value))


def class_name(kind: type) -> str:
    """Return a type by module and name; Python's own by name alone."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


LIBRARIES = frozenset((*sys.stdlib_module_names, "torch", "torchgen", "functorch", "numpy", "backprint"))
"""Packages whose functions and classes are known by their names."""


def is_library_name(module: str | None) -> bool:
    """Whether a module is of Python's own library, of torch or of numpy."""
    return str(module or "").partition(".")[0] in LIBRARIES


def is_library(value: Any) -> bool:
    """Whether a function or a class is of Python's own library, of torch or of numpy.

    A class that is made by a function of the library (`make_dataclass`) says that it is the library's, and is not.
    """
    module = getattr(value, "__module__", None)
    if module == "types" and isinstance(value, type):
        return hasattr(types, value.__name__)
    return is_library_name(module)


def is_installed(module: str | None) -> bool:
    """Whether a module is of a package that is installed, rather than the user's own code."""
    file = getattr(sys.modules.get(str(module)), "__dict__", {}).get("__file__") or ""
    return "site-packages" in file or "dist-packages" in file


EXACT = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
"""Types whose `repr` determines the value: a float's bits, except that all NaN are one."""

NUMBERS_AND_TEXTS = (int, float, complex, str, bytes)
"""Types of which a user's class may be: its number or text is a part of the value."""

TORCH_VALUES = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)


def plain_text(value: Any) -> Like | None:
    """Return the likeness of a value without parts; None where it has some."""
    kind = type(value)
    if kind in EXACT:
        return shorten_text(int_text(value) if kind is int else repr(value))
    if isinstance(value, enum.Enum) and is_library(kind):
        return f"{type_name(value)}.{value.name}"
    if isinstance(value, TORCH_VALUES):
        return str(value)
    if kind is torch.device:
        return f"device {value}"
    if isinstance(value, type) and is_library(value):
        return f"class {class_name(value)}"
    if isinstance(value, types.ModuleType) and is_library_name(value.__name__):
        return f"module {value.__name__}"
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, (types.ModuleType, type(None))):
        return None
    if isinstance(value, (types.BuiltinFunctionType, OpOverload, OpOverloadPacket)):
        return f"builtin {getattr(value, '__module__', None)}.{getattr(value, '__qualname__', value)}"
    return None


def int_text(value: int) -> str:
    """Return a whole number's digits; Python refuses to print very long ones in tens."""
    return repr(value) if abs(value) < 2**1024 else hex(value)


def shorten_text(text: str) -> Like:
    """Return a text, or of a long one its beginning and its digest."""
    if len(text) <= MAX_TEXT:
        return text
    return {"text": text[:60], "length": len(text), "digest": likeness_digest(text.encode(errors="surrogatepass"))}


def is_array(value: Any) -> bool:
    """Whether a value is numpy's; numpy need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_empty(cell: Any) -> bool:
    """Whether a closure's cell has nothing in it yet."""
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def describe_code(code: types.CodeType) -> Like:
    """Describe a function's code: instructions, names, constants, and the code of functions inside."""
    constants = [
        describe_code(constant) if isinstance(constant, types.CodeType) else describe_code_constant(constant)
        for constant in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), list(code.co_freevars), constants]


def describe_code_constant(value: Any) -> str:
    """Describe a constant of a function's code; a set is sorted."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object itself; None where it has neither `__dict__` nor slots."""
    kind: Any = type(value)
    slots = [name for class_ in kind.__mro__ for name in slot_names(class_)]
    dictionary = getattr(value, "__dict__", None) if has_plain_dict(kind) else None
    if dictionary is None and not slots:
        return None
    attributes = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return attributes | dict(dictionary or {})


@functools.cache
def has_plain_dict(kind: Any) -> bool:
    """Whether `__dict__` is where objects of a class keep their attributes, and no property of the class's own."""
    return not any(isinstance(vars(class_).get("__dict__"), property) for class_ in kind.__mro__)


def slot_names(kind: type) -> Iterator[str]:
    """Yield the attributes that a class keeps in slots."""
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else tuple(slots):
        if name not in ("__dict__", "__weakref__"):
            yield name if not name.startswith("__") or name.endswith("__") else f"_{kind.__name__.lstrip('_')}{name}"


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names that a function's code uses: global variables, imported modules, and attributes.

    Those of functions inside are included.
    """
    read, imported, attributes = dict[str, None](), dict[str, None](), dict[str, None]()
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            read[str(step.argval)] = None
        elif step.opname == "IMPORT_NAME":
            imported[str(step.argval)] = None
        elif step.arg is not None and step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            attributes[str(step.argval)] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for names, more_names in zip((read, imported, attributes), global_names(constant), strict=True):
                names |= dict.fromkeys(more_names)
    return tuple(sorted(read)), tuple(sorted(imported)), tuple(sorted(attributes))


# ---- Digests of functions, classes and modules

MAX_OBJECTS = 20_000
"""The most objects that are followed from one value. A value that reaches more is compared by identity too."""

NAMES_LEFT_OUT = frozenset(
    "__module__ __qualname__ __name__ __doc__ __dict__ __weakref__ __firstlineno__ __static_attributes__ __slotnames__ "
    "__abstractmethods__ _abc_impl __annotate__ __annotate_func__ __annotations_cache__ "
    "__builtins__ __loader__ __spec__ __file__ __cached__ __path__ __package__".split()
)
"""Names in a class body or a module that say where it is defined, or that Python itself keeps there."""


class ReachDigest:
    """A digest of everything that functions, classes and modules of the user's reach: equal names do not make them
    equal.

    A function reaches its code, closure, defaults, annotations and attributes, and the global variables that its code
    names; of a module, those attributes that the code names. A class reaches its bases, its metaclass and everything in
    its body. All of that is followed, once for each object. Objects that Python's own library, torch or numpy define
    are known by their names, those of an installed package by name and code. Tensors, modules (`nn.Module`) and values
    without a description are not read: they are in `held`, and compared by identity. `rows` has a row for each object,
    in the order in which they are met.
    """

    def __init__(self) -> None:
        self.rows: list[Like] = []
        self.places: dict[int, int] = {}
        self.kept: list[Any] = []
        self.held: list[Any] = []
        self.queue: deque[Any] = deque()

    def digest(self, value: Any) -> str:
        """Return the digest of everything that a value reaches; of a module, of all that it has."""
        self.place(value)
        if isinstance(value, types.ModuleType):
            self.rows.append(self.named(vars(value)))
        while self.queue and len(self.rows) < MAX_OBJECTS:
            self.rows.append(self.row(self.queue.popleft()))
        if self.queue:
            self.held.append(value)
        return likeness_digest(self.rows)

    def place(self, value: Any) -> Like:
        """Return a value as a text if it has no parts, else the number of its row."""
        if (text := plain_text(value)) is not None:
            return text
        if id(value) not in self.places:
            self.places[id(value)] = len(self.places)
            self.kept.append(value)  # a number is an object's as long as it lives
            self.queue.append(value)
        return self.places[id(value)]

    def all(self, values: Any) -> list[Like]:
        """Return the places of several values."""
        return [self.place(value) for value in values]

    def named(self, values: Mapping[Any, Any]) -> list[Like]:
        """Return the places of named values, by name."""
        return [[name, self.place(values[name])] for name in sorted(values, key=str) if name not in NAMES_LEFT_OUT]

    def row(self, value: Any) -> Like:
        """Return one object, its parts as places."""
        match value:
            case type():
                return self.of_class(value)
            case types.FunctionType():
                return self.of_function(value)
            case types.ModuleType():
                return ["module", value.__name__]
            case types.MethodType():
                return ["method", self.place(value.__func__), self.place(value.__self__)]
            case staticmethod() | classmethod():
                return [type_name(value), self.place(value.__func__)]
            case property():
                return ["property", *self.all((value.fget, value.fset, value.fdel))]
            case functools.partial():
                return ["partial", *self.all((value.func, value.args, value.keywords))]
            case functools.cached_property():
                return ["cached_property", self.place(value.func)]
            case Tensor():
                self.held.append(value)
                return ["tensor", str(value.dtype), str(list(value.shape))]
            case nn.Module() | torch.optim.Optimizer() | torch.Generator():
                return self.of_held(value)
            case types.CodeType():
                return ["code", likeness_digest(describe_code(value))]
            case weakref.WeakKeyDictionary():
                return ["weak table"]  # an object's own entry is a part of its likeness
            case slice():
                return ["slice", *self.all((value.start, value.stop, value.step))]
        if is_array(value) and not value.dtype.hasobject:
            return ["array", value.dtype.str, list(value.shape), likeness_digest(value.tobytes())]
        return self.of_object(value)

    def of_class(self, kind: type) -> Like:
        """Return a class: by name where it is a library's, else its bases and its body."""
        head = ["class", class_name(kind)]
        if is_library(kind):
            return head
        body = dict(vars(kind))
        if issubclass(kind, enum.Enum):
            body = {name: attribute for name, attribute in body.items() if not name.startswith("_")}
            body["members"] = [[member.name, member._value_] for member in kind]
        generic_bases = kind.__dict__.get("__orig_bases__", kind.__bases__)
        return [*head, self.place(type(kind)), self.all(kind.__bases__), self.all(generic_bases), self.named(body)]

    def of_function(self, function: types.FunctionType) -> Like:
        """Return a function: by name where it is a library's, else its code and what that names."""
        head = ["function", f"{function.__module__}.{function.__qualname__}"]
        if is_library(function):
            return head
        code = function.__code__
        head.append(likeness_digest([*code_facts(code), describe_code(code)]))
        cells = [None if is_empty(cell) else self.place(cell.cell_contents) for cell in function.__closure__ or ()]
        defaults = (function.__defaults__, function.__kwdefaults__, function.__annotations__)
        own = self.all((function.__name__, function.__doc__, *defaults))
        globals_ = (
            []
            if is_installed(function.__module__)
            else [[name, self.place(value_)] for name, value_ in globals_read_by(function)]
        )
        return [*head, cells, *own, self.named(function.__dict__), globals_]

    def of_object(self, value: Any) -> Like:
        """Return a container or an object: its class, its elements and its attributes."""
        head = [type_name(value), self.place(type(value))]
        wrapped = getattr(value, "__wrapped__", None) if is_library(type(value)) else None
        if isinstance(wrapped, types.FunctionType):  # a cached function
            return [*head, self.place(wrapped)]
        match value:
            case dict() | types.MappingProxyType():
                head.append([[self.place(key), self.place(item)] for key, item in value.items()])
            case list() | tuple():
                head.append(self.all(value))
            case set() | frozenset():
                head.append(self.all(sorted(value, key=lambda item: (type_name(item), json.dumps(plain_text(item))))))
        for kind in NUMBERS_AND_TEXTS:
            if issubclass(type(value), kind):
                head.append(kind.__repr__(value))
        if is_library(type(value)) and len(head) == 2:
            return self.of_library_object(head, value)
        own = attributes_of(value)
        if own is None and len(head) == 2:
            return self.of_held(value)
        return [*head, self.named(own or {})]

    def of_library_object(self, head: list[Like], value: Any) -> Like:
        """Return an object of a library as pickle would keep it."""
        if type(value).__module__ == "itertools":  # Python warns that pickling these is deprecated
            return self.of_held(value)
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # whatever it raises, it cannot be made again
            return self.of_held(value)
        return [*head, reduced] if isinstance(reduced, str) else [*head, self.all(reduced[:3])]

    def of_held(self, value: Any) -> Like:
        """Return a value that can be compared only by identity."""
        self.held.append(value)
        return ["held", type_name(value)]


CALL_FLAGS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
"""Flags of a code object that say how it is called; the other flags say where it was compiled."""


def code_facts(code: types.CodeType) -> list[Like]:
    """Return what a code object says beside its instructions: how it is called, and where it catches."""
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & CALL_FLAGS]
    inner = [code_facts(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return [counts, list(code.co_cellvars), code.co_exceptiontable.hex(), inner]


def globals_read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global variables that a function's code names; of the user's modules, the attributes that it names."""
    read, imported, attributes = global_names(function.__code__)
    scope = function.__globals__
    values = [(name, scope[name]) for name in read if name in scope]
    values += [(name, sys.modules[name]) for name in imported if name in sys.modules]
    for name, value in values:
        yield name, value
        if isinstance(value, types.ModuleType) and not is_library_name(value.__name__):
            module_globals = vars(value)
            yield from (
                (f"{name}.{attribute}", module_globals[attribute])
                for attribute in attributes
                if attribute in module_globals and attribute not in NAMES_LEFT_OUT
            )


def plain_parts(value: Any) -> dict[str, Like]:
    """Return the parts of a function, a class or a module that are plain values, by name: a message can tell them."""
    parts = dict(globals_read_by(value)) if isinstance(value, types.FunctionType) else dict(vars(value))
    texts = {name: plain_text(part) for name, part in sorted(parts.items()) if name not in NAMES_LEFT_OUT}
    return {name: text for name, text in texts.items() if text is not None}


# ---- Likenesses

MAX_PARTS = 500
"""The most parts of a container that is kept whole; a larger one without tensors is replaced by its digest."""

MAX_DEPTH = 40
"""The depth to which values are followed; values that are nested deeper are compared by identity."""

TORCH_ATTRIBUTE_PREFIXES = ("_dynamo", "_backprint", "_fx", "_typed_storage", "_forward_hooks")
"""Prefixes of attributes that torch itself sets on tensors."""


@dataclass(slots=True)
class DescribeState:
    """The state while one call is described.

    `name` returns the name of the tensor with an index in the call. `tensors` are the tensors so far, `live` the values
    that can be compared only by identity, and `reached` further such values that a function or a class reaches.
    `arrays` are the numpy arrays so far, `known` the descriptions of shared values, `above` the values that are being
    described.
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


def describe_value(value: Any, state: DescribeState, argument: bool = True) -> Described:
    """Describe a value. Tensors of an `argument` are described by their places in the call, others by their values."""
    if isinstance(value, Tensor):
        return describe_tensor(value, state, argument)
    if (text := plain_text(value)) is not None:
        return Described(text if text != "nan" else state.text_of_nan(value))
    if id(value) in state.above:
        return Described({"cycle": len(state.above) - state.above.index(id(value))})
    if id(value) in state.known:  # shared: what is described once is not followed again
        return state.known[id(value)][1]
    if len(state.above) >= MAX_DEPTH:
        return describe_live(value, state)
    state.above.append(id(value))
    tensors_before = len(state.tensors)
    try:
        described = fold_large(with_class(describe_composed(value, state, argument), value, state), value)
    finally:
        state.above.pop()
    if len(state.tensors) == tensors_before:
        state.known[id(value)] = value, described
    return described


def describe_composed(value: Any, state: DescribeState, argument: bool) -> Described:
    """Describe a value that is made of other values."""
    if argument:
        children, spec = pytree.tree_flatten(value, is_leaf=lambda node: node is not value)
        if not (len(children) == 1 and children[0] is value):
            return describe_container(value, children, spec.context, state)
    for kind, describe in DESCRIBERS.items():
        if isinstance(value, kind):
            return describe(value, state)
    return describe_object(value, state)


def fold_large(described: Described, value: Any) -> Described:
    """Replace a large value by its digest, unless it holds tensors of the call."""
    if described.parts <= MAX_PARTS or described.held:
        return described
    size = f" of {len(value)}" if hasattr(value, "__len__") else ""
    like = {"folded": f"{type_name(value)}{size}", "digest": likeness_digest(without_reach(described.like))}
    return Described(like | {REACH: likeness_digest(described.like)} if has_reach(described.like) else like)


def with_class(described: Described, value: Any, state: DescribeState) -> Described:
    """Add what an object's class reaches, unless it is a library's, or the object is compared by identity."""
    like = described.like
    if not isinstance(like, dict) or "live" in like or REACH in like or is_library(type(value)):
        return described
    like = like | {REACH: reach_of(type(value), state)}
    if tables := list(entries_for(value, state)):
        rows = {name: describe_value(entry, state, False) for name, entry in tables}
        like["in tables"] = {name: row.like for name, row in rows.items()}
        return Described(
            like, described.parts + len(rows) + 1, described.held or any(row.held for row in rows.values())
        )
    return Described(like, described.parts + 1, described.held)


def entries_for(value: Any, state: DescribeState) -> Iterator[tuple[str, Any]]:
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
    variables = {name: value for function in functions for name, value in globals_read_by(function)}
    reached = {**attributes, **variables}
    return [(name, value) for name, value in reached.items() if type(value) in (dict, weakref.WeakKeyDictionary)]


def function_of(attribute: Any) -> Any:
    """Return the function of a method or of a property's reader; None of anything else."""
    inner = attribute.fget if isinstance(attribute, property) else getattr(attribute, "__func__", attribute)
    return inner if isinstance(inner, types.FunctionType) else None


REACH, PARTS = "reach", "parts"
"""Keys of a likeness: the digest of what functions and classes reach, and their plain parts. Older samples lack it."""


def reach_of(value: Any, state: DescribeState) -> str:
    """Return the digest of what a function, a class or a module reaches."""
    if id(value) not in state.reaches:
        reach = ReachDigest()
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
        own = {key: without_reach(item) for key, item in like.items() if key not in (REACH, PARTS)}
        return own.get("named", own)
    return [without_reach(item) for item in like] if isinstance(like, list) else like


def describe_named(value: Any, state: DescribeState) -> Described:
    """Describe a class, a module or a member of an enumeration by its name, its plain parts and what it reaches."""
    if isinstance(value, enum.Enum):
        like: dict[str, Like] = {"named": f"{type_name(value)}.{value.name}"}
        return Described(like | {REACH: reach_of(type(value), state)}, 2)
    name = f"class {class_name(value)}" if isinstance(value, type) else f"module {value.__name__}"
    parts = plain_parts(value)
    return Described({"named": name, PARTS: parts, REACH: reach_of(value, state)}, 2 + len(parts))


def describe_tensor(value: Tensor, state: DescribeState, argument: bool) -> Described:
    """Describe a tensor of the call by its place and its attributes, any other tensor by its values."""
    if argument:
        like: dict[str, Like] = {"tensor": state.name(len(state.tensors))}
        state.tensors.append(value)
    elif type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided and not value.is_meta:
        with torch.no_grad():
            plain = value.detach().resolve_conj().resolve_neg().cpu()
            content = plain.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)
        shape = ", ".join(map(str, value.shape))
        like = {"values": f"{str(value.dtype)[6:]}[{shape}]", "stride": list(value.stride())}
        like["digest"] = likeness_digest(bytes_of(content))
    else:
        return describe_live(value, state)
    attributes = {} if isinstance(value, FakeTensor) else vars(value)
    user_attributes = {
        name: attribute for name, attribute in attributes.items() if not name.startswith(TORCH_ATTRIBUTE_PREFIXES)
    }
    user_attributes |= class_and_hooks(value) if argument else {}
    described = {name: describe_value(attribute, state, False) for name, attribute in sorted(user_attributes.items())}
    if described:
        like["attributes"] = {name: attribute.like for name, attribute in described.items()}
    held = argument or any(attribute.held for attribute in described.values())
    return Described(like, 1 + sum(attribute.parts for attribute in described.values()), held)


def class_and_hooks(value: Tensor) -> dict[str, Any]:
    """Return what distinguishes an argument from a plain tensor: its class, and the hooks on its gradient."""
    facts: dict[str, Any] = {} if type(value) in (Tensor, FakeTensor) else {"its class": type(value).__qualname__}
    hooks = (backward_hooks(value) or {}) if value.is_leaf else {}
    return facts | ({"its hooks": list(hooks.values())} if hooks else {})


def bytes_of(content: Tensor) -> bytes:
    """Return the bytes of a flat tensor of bytes, without numpy."""
    buffer = bytearray(content.numel())
    if buffer:
        torch.frombuffer(buffer, dtype=torch.uint8).copy_(content)
    return bytes(buffer)


def describe_array(value: Any, state: DescribeState) -> Described:
    """Describe a numpy array or number by dtype, shape and bytes."""
    if value.dtype.hasobject:
        items = [describe_value(item, state, False) for item in value.reshape(-1).tolist()]
        return describe_items({"array": f"{type_name(value)} {list(value.shape)}"}, "items", items)
    word = f"{value.dtype.str if value.dtype.names is None else value.dtype.descr}{list(value.shape)}"
    like: dict[str, Like] = {
        "array" if hasattr(value, "strides") and value.ndim else "number": f"{type_name(value)} {word}"
    }
    if value.ndim == 0:
        return Described(like | {"value": repr(value.item())[:MAX_TEXT]})
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
        like["metadata"] = repr(sorted(value.dtype.metadata.items(), key=str))[:MAX_TEXT]
    plain = value.view(numpy.ndarray)  # a masked array's own `tobytes` fills in, and sets its fill value
    return with_attributes(Described(like | {"digest": likeness_digest(plain.tobytes())}), value, state)


def describe_items(like: dict[str, Like], key: str, items: Sequence[Described]) -> Described:
    """Join the descriptions of items under a key."""
    like[key] = [item.like for item in items]
    return Described(like, 1 + sum(item.parts for item in items), any(item.held for item in items))


def with_type(like: dict[str, Like], value: Any, usual: type) -> dict[str, Like]:
    """Add the value's type, where it is not the usual one."""
    return like if type(value) is usual else like | {"type": type_name(value)}


def describe_container(value: Any, children: Sequence[Any], context: Any, state: DescribeState) -> Described:
    """Describe a container that is a pytree node; its tensors are places of the call."""
    items = [describe_value(child, state) for child in children]
    if isinstance(value, Mapping) and len(items) == len(value):
        return describe_pairs(value, items, state)
    if type(value) in (list, tuple):
        return describe_items({}, type(value).__name__, items)
    if isinstance(value, (list, tuple)):
        described = describe_items({}, "list" if isinstance(value, list) else "tuple", items)
        return Described(with_type(described.like, value, list), described.parts, described.held)
    described_context = describe_value(context, state, False)
    described = describe_items({"node": type_name(value), "context": described_context.like}, "items", items)
    return Described(
        described.like, described.parts + described_context.parts, described.held or described_context.held
    )


def describe_pairs(value: Mapping[Any, Any], items: Sequence[Described], state: DescribeState) -> Described:
    """Describe a mapping whose items are described, its keys in order."""
    keys = [describe_value(key, state, False) for key in value]
    like = {"dict": [[key.like, item.like] for key, item in zip(keys, items, strict=True)]}
    factory_function = getattr(value, "default_factory", None)
    factory = {"default": describe_value(factory_function, state, False).like} if factory_function is not None else {}
    parts = 1 + sum(part.parts for part in (*keys, *items))
    return Described(with_type(like, value, dict) | factory, parts, any(part.held for part in (*keys, *items)))


def describe_mapping(value: Mapping[Any, Any], state: DescribeState) -> Described:
    """Describe a mapping that is not a pytree container of the call."""
    items = [describe_value(item, state, False) for item in value.values()]
    return with_attributes(describe_pairs(value, items, state), value, state)


def describe_sequence(value: Any, state: DescribeState) -> Described:
    """Describe a list or a tuple that is not a pytree container of the call, or has a class of its own."""
    usual = list if isinstance(value, list) else tuple
    described = describe_items({}, usual.__name__, [describe_value(item, state, False) for item in value])
    return with_attributes(
        Described(with_type(described.like, value, usual), described.parts, described.held), value, state
    )


def describe_set(value: Any, state: DescribeState) -> Described:
    """Describe a set, its items sorted. Sets of integers that are not iterated in ascending order have their order too:
    it depends on how they were made, in any process alike."""
    items = sorted((describe_value(item, state, False) for item in value), key=lambda item: json.dumps(item.like))
    described = describe_items({}, "set", items)
    order = [item for item in value if type(item) is int]
    if len(order) == len(items) and order != sorted(order):
        described = Described(described.like | {"order": likeness_digest(json.dumps(order))}, described.parts)
    return Described(with_type(described.like, value, set), described.parts, described.held)


def describe_subclass(value: Any, state: DescribeState) -> Described:
    """Describe a number or a text of a user's class."""
    base = next((kind for kind in NUMBERS_AND_TEXTS if issubclass(type(value), kind)), None)
    if base is None:  # `isinstance` believes an object's `__class__`
        return describe_object(value, state)
    like = {"object": type_name(value), "value": shorten_text(base.__repr__(value))}
    return with_attributes(Described(like), value, state)


def describe_function(value: Any, state: DescribeState) -> Described:
    """Describe a function by its name, code, closure and defaults, and by what these and its global variables reach."""
    cells = [value_.cell_contents for value_ in value.__closure__ or () if not is_empty(value_)]
    parts = [describe_value(value_, state, False) for value_ in (cells, value.__defaults__, value.__kwdefaults__)]
    like = {
        "function": f"{value.__module__}.{value.__qualname__}",
        "code": likeness_digest(describe_code(value.__code__)),
    }
    described = with_attributes(describe_items(like, "closure", parts), value, state)
    if is_library(value):
        return described
    plain = plain_parts(value)
    return Described(
        described.like | {PARTS: plain, REACH: reach_of(value, state)}, described.parts + 1 + len(plain), described.held
    )


def describe_method(value: Any, state: DescribeState) -> Described:
    """Describe a method and the object that it is bound to."""
    owner = describe_value(value.__self__, state, False)
    like = {"method": getattr(value, "__qualname__", value.__name__), "self": owner.like}
    if not isinstance(value, types.MethodType):
        return Described(like, 1 + owner.parts, owner.held)
    inner = describe_value(value.__func__, state, False)
    return Described(like | {"function": inner.like}, 1 + owner.parts + inner.parts, owner.held or inner.held)


def describe_partial(value: Any, state: DescribeState) -> Described:
    """Describe a `functools.partial` by its function and its arguments."""
    parts = [describe_value(part, state, False) for part in (value.func, value.args, value.keywords)]
    return describe_items({"object": "functools.partial"}, "items", parts)


def describe_generator(value: Any, state: DescribeState) -> Described:
    """Describe a random generator by its state."""
    return Described({"generator": str(value.device), "digest": likeness_digest(bytes(value.get_state().tolist()))})


def describe_storage(value: torch.UntypedStorage, state: DescribeState) -> Described:
    """Describe the memory of a tensor by its bytes."""
    content = torch.empty(0, dtype=torch.uint8, device=value.device).set_(value).cpu()
    return Described({"storage": str(value.nbytes()), "digest": likeness_digest(bytes_of(content))})


def describe_slice(value: slice, state: DescribeState) -> Described:
    return describe_items(
        {}, "slice", [describe_value(bound, state, False) for bound in (value.start, value.stop, value.step)]
    )


def describe_live(value: Any, state: DescribeState) -> Described:
    """Describe a value that can be compared only by identity."""
    state.live.append(value)
    return Described({"live": type_name(value)}, held=True)


def describe_module(value: Any, state: DescribeState) -> Described:
    """Describe a module or an optimizer by identity: no other has its tensors."""
    return describe_live(value, state)


def describe_object(value: Any, state: DescribeState) -> Described:
    """Describe an object by its class and its attributes; one of the standard library's as pickle would keep it."""
    if type(value) is object:
        return describe_live(value, state)  # a sentinel: nothing but its identity tells it from others
    if type(value).__module__.partition(".")[0] in sys.stdlib_module_names:
        return describe_library_object(value, state)
    names = attributes_of(value)
    if names is None:
        return describe_live(value, state)
    return with_attributes(Described({"object": type_name(value)}), value, state)


def describe_library_object(value: Any, state: DescribeState) -> Described:
    """Describe an object of the standard library by how pickle rebuilds it: a date, a path, a fraction."""
    if isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):  # a cached function
        return describe_items({"object": type_name(value)}, "made", [describe_value(wrapped, state, False)])
    if type(value).__module__ == "itertools":  # Python warns that pickling these is deprecated
        return describe_live(value, state)
    try:
        reduced = value.__reduce_ex__(2)
    except Exception:  # whatever it raises, it cannot be made again
        return describe_live(value, state)
    if isinstance(reduced, str):
        return Described(f"global {type(value).__module__}.{reduced}")
    contents = [list(items) for items in reduced[3:5] if items is not None]  # of a deque: what it holds
    parts = [describe_value(part, state, False) for part in (*reduced[:3], *contents)]
    return describe_items({"object": type_name(value)}, "made", parts)


def with_attributes(described: Described, value: Any, state: DescribeState) -> Described:
    """Add an object's attributes to its likeness, where it has some."""
    attributes = attributes_of(value) or {}
    parts = {name: describe_value(part, state, False) for name, part in sorted(attributes.items())}
    if not parts:
        return described
    like = described.like | {"attributes": {name: part.like for name, part in parts.items()}}
    held = described.held or any(part.held for part in parts.values())
    return Described(like, described.parts + sum(part.parts for part in parts.values()), held)


class _Arrays(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return is_array(value)


class Array(metaclass=_Arrays):
    """Numpy's arrays and numbers, which are known only where numpy is."""


DESCRIBERS: dict[Any, Callable[[Any, DescribeState], Described]] = {
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


# ---- Differences between two likenesses


def likeness_differences(was: Like, now: Like, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield where two likenesses differ: the path inside the value, and both values in words."""
    if isinstance(was, str) and isinstance(now, dict) and now.get("named") == was:
        return  # of an older sample, which does not say what a class reaches
    if isinstance(was, dict) and isinstance(now, dict) and compared_kinds(was) == compared_kinds(now):
        yield from differences_inside(was, now, path)
    elif was != now:
        yield path, f"was {likeness_text(was)} at capture and is {likeness_text(now)} now"


def compared_kinds(like: Mapping[str, Like]) -> tuple[Any, ...]:
    """Return the facts of a likeness that must be equal before the parts of two can be compared one by one."""
    words = ("type", "object", "function", "code", "method", "node", "array", "number", "live", "named")
    names = [key for key in like if key not in ("attributes", "default", PARTS, REACH)]
    return (*names, *(like.get(word) for word in words))


def differences_inside(was: Mapping[str, Like], now: Mapping[str, Like], path: str) -> Iterator[tuple[str, str]]:
    """Yield where the parts of two likenesses of one kind differ."""
    for key in was:
        if key in ("tensor", PARTS, REACH):
            continue
        if key == "in tables":
            yield from named_differences(was[key], now[key], path)
        elif key == "dict":
            yield from mapping_differences(was[key], now[key], path)
        elif isinstance(was[key], list) and key != "stride":
            yield from list_differences(was[key], now[key], path)
        elif key != "attributes":
            yield from likeness_differences(was[key], now.get(key), path)
    yield from named_differences(was.get("attributes", {}), now.get("attributes", {}), path)
    if REACH in was and was[REACH] != now.get(REACH):
        parts = list(named_differences(was.get(PARTS, {}), now.get(PARTS, {}), path))
        yield from parts or [(path, OTHER_REACH.format(likeness_text(now)))]


OTHER_REACH = (
    "is not the {} of the capture, although its name is the same: what its functions or its class consist of differs, "
    "or the global variables that they name"
)


def named_differences(left: Mapping[str, Like], right: Mapping[str, Like], path: str) -> Iterator[tuple[str, str]]:
    """Yield where the values of two mappings by name differ."""
    for name in dict.fromkeys((*left, *right)):
        where = f"{path}.{name}"
        if name not in right:
            yield where, f"was {likeness_text(left[name])} at capture and is missing now"
        elif name not in left:
            yield where, f"was not there at capture and is {likeness_text(right[name])} now"
        else:
            yield from likeness_differences(left[name], right[name], where)


def list_differences(was: Sequence[Like], now: Sequence[Like], path: str) -> Iterator[tuple[str, str]]:
    """Yield where the items of two lists differ, and the items that only one has."""
    for index, (left, right) in enumerate(zip(was, now, strict=False)):
        yield from likeness_differences(left, right, f"{path}.{index}")
    for index in range(len(now), len(was)):
        yield f"{path}.{index}", f"was {likeness_text(was[index])} at capture and is missing now"
    for index in range(len(was), len(now)):
        yield f"{path}.{index}", f"was not there at capture and is {likeness_text(now[index])} now"


def mapping_differences(was: Sequence[Any], now: Sequence[Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield where two mappings differ, in keys, in their order, and in values."""
    left = {json.dumps(key): (key, item) for key, item in was}
    right = {json.dumps(key): (key, item) for key, item in now}
    for key in dict.fromkeys((*left, *right)):
        where = f"{path}.{key_in_path((left.get(key) or right[key])[0])}"
        if key not in right:
            yield where, f"was {likeness_text(left[key][1])} at capture and is missing now"
        elif key not in left:
            yield where, f"was not there at capture and is {likeness_text(right[key][1])} now"
        else:
            yield from likeness_differences(left[key][1], right[key][1], where)
    if left.keys() == right.keys() and list(left) != list(right):
        before, after = (", ".join(key_in_path(key) for key, _ in rows) for rows in (was, now))
        yield path, f"had the keys {before} in this order at capture and has {after} now"


def key_in_path(like: Like) -> str:
    """Return a mapping's key as a step of a path: texts without their quotes."""
    return like[1:-1] if isinstance(like, str) and like[:1] in "'\"" else likeness_text(like)


ARRAY_FACTS = ("strides", "writeable", "a view", "shares memory with arrays", "metadata")
"""What a likeness says of a numpy array that is unusual."""


def likeness_text(like: Like) -> str:
    """Return a likeness in at most 80 characters."""
    if not isinstance(like, dict):
        return str(like)[:80]
    match like:
        case {"tensor": _}:
            return "a tensor"
        case {"array": text} if facts := [f"{key}: {like[key]}" for key in ARRAY_FACTS if key in like]:
            return f"a {text}, {', '.join(facts)}"
        case {"values": text} | {"array": text} | {"number": text} | {"folded": text} | {"live": text}:
            return f"a {text}"
        case {"text": text, "length": length}:
            return f"{text}… ({length} characters)"
        case {"list": items} | {"tuple": items} | {"set": items}:
            kind = next(key for key in ("list", "tuple", "set") if key in like)
            return f"a {like.get('type', kind)} of {len(items)}"
        case {"dict": rows}:
            return f"a {like.get('type', 'dict')} of {', '.join(key_in_path(key) for key, _ in rows)[:60] or 'nothing'}"
        case {"named": text}:
            return str(text)[:80]
        case {"object": kind} | {"node": kind} | {"function": kind} | {"method": kind}:
            attributes = ", ".join(
                f"{name}={likeness_text(attribute)}" for name, attribute in like.get("attributes", {}).items()
            )
            return f"{kind}({attributes})"[:80]
    return str(like)[:80]


def holds_live_value(like: Like) -> bool:
    """Whether a likeness contains a value that can be compared only by identity."""
    if isinstance(like, dict):
        return "live" in like or any(map(holds_live_value, like.values()))
    return isinstance(like, list) and any(map(holds_live_value, like))


def paths_without_reach(was: Like, now: Like, path: str = "") -> Iterator[str]:
    """Yield where a likeness of an older sample does not say what a function or a class reaches."""
    if isinstance(now, dict):
        if REACH in now and not (isinstance(was, dict) and REACH in was):
            yield path
        elif isinstance(was, dict):
            for key in now:
                yield from paths_without_reach(
                    was.get(key), now[key], path if key in KEYS_NOT_IN_PATHS else f"{path}.{key}"
                )
    elif isinstance(now, list) and isinstance(was, list):
        for index, (left, right) in enumerate(zip(was, now, strict=False)):
            yield from paths_without_reach(left, right, f"{path}.{index}")


KEYS_NOT_IN_PATHS = ("attributes", "list", "tuple", "dict", "set", "items", "closure")
"""Keys of a likeness that are left out of a path."""
