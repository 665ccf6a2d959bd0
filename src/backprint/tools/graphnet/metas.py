"""The files beside a GraphNet `model.py`: its inputs' metadata, its example shapes, its facts.

`weight_meta.py`, `input_meta.py` and `input_tensor_constraints.py` are read with `ast`: literals alone, and
`float("inf")` and its like. Nothing is imported or run. A field that no tensor can have is refused by name.

`tree_of(text)` returns the tree of a text and its lines; it raises GraphError for what is no Python.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backprint.common.files import read_text
from backprint.common.text import parse_json
from backprint.errors import GraphError, RefusedError, SampleError
from backprint.graph.nouns import DTYPES
from backprint.graph.text import tree_of

# ---- The metadata of an input tensor, and what the program does with it


@dataclass(frozen=True, slots=True)
class Meta:
    """A class of `weight_meta.py` or `input_meta.py`: the metadata of one tensor, by its name in the code. `data` has
    every element in index order, as printed. A field is None where the class does not have it.

    `digits` is the number of decimals that `mean` and `std` are printed with: their rounding error is half of the last.
    Where no literal shows it, it is 3, as GraphNet prints them.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    device: str = "cpu"
    original_name: str | None = None
    mean: float | None = None
    std: float | None = None
    min_val: float | None = None
    max_val: float | None = None
    data: tuple[Any, ...] | None = None
    digits: int = 3


USES = ("index", "mask", "additive", "variance", "average", "positive", "target", "flag", "read")
"""An index of something; what `where` and its like take as a condition; added to scores before a softmax; the running
variance and mean of a norm; an argument of log, sqrt or a divisor; classes of a loss; 0 or 1, as it is taken from 1; a
number that the program reads."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a program does with an input: words of USES, and for an index or a target its exclusive upper bound."""

    kinds: frozenset[str] = frozenset()
    below: int | None = None


@dataclass(frozen=True, slots=True)
class KnownInput:
    """The name and role of an input port, its metadata, and what the program does with it."""

    name: str
    role: str
    meta: Meta
    use: Use


# ---- Reading

MAX_DIMENSIONS = 64
"""The most dimensions of a tensor."""

MAX_ELEMENTS = 2**48
"""The most elements of a tensor."""

MAX_DATA = 2**20
"""The most elements of `data`."""

MAX_BYTES = 64 * 2**20
"""The most bytes of a file that is read."""

# ---- Metadata


_TABS = re.compile(r"^\t+", re.MULTILINE)
"""The tabs that a line begins with, which `_read_metas` replaces: Python refuses them in a text."""


def _read_metas(text: str) -> dict[str, Meta]:
    """Parse a `weight_meta.py` or `input_meta.py`: the metadata of tensors by their names in the code.

    GraphNet's tools indent the lines with tabs; the samples of its repository have spaces.
    """
    tree, lines = tree_of(_TABS.sub(lambda tabs: "    " * len(tabs[0]), text))
    metas: dict[str, Meta] = {}
    for node in tree.body:
        match node:
            case ast.ClassDef(bases=[], keywords=[], decorator_list=[]):
                meta = _meta_from_class(node, lines)
                metas[meta.name] = meta
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                pass  # an import is not run: what follows must be literals anyway
            case _:
                raise RefusedError(f"line {node.lineno}: metadata is plain classes of literals, one a tensor")
    return metas


def _meta_from_class(node: ast.ClassDef, lines: list[str]) -> Meta:
    """Return the Meta of a class of literals; refuse any other line in it, and a field that no tensor can have. `lines`
    are those of the text."""
    fields: dict[str, Any] = {}
    digits = 3  # as GraphNet prints `mean` and `std`, where no literal shows it
    for row in node.body:
        match row:
            case ast.Assign(targets=[ast.Name(id=key)], value=value):
                fields[key] = _literal_value(value)
                if key in ("mean", "std") and (decimals := _printed_decimals(value, lines)) is not None:
                    digits = decimals
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                pass
            case _:
                raise RefusedError(f"line {row.lineno}: a tensor's metadata is lines `name = literal`")
    try:
        return _meta_from_fields(fields, digits)
    except SampleError as error:
        raise SampleError(f"line {node.lineno}: {error}") from None


def _printed_decimals(node: ast.expr, lines: list[str]) -> int | None:
    """Return how many decimals a float literal, with or without a sign, is printed with in the text (`lines`); None for
    any other node, and for one with an exponent."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    if not isinstance(node, ast.Constant) or type(node.value) is not float:
        return None
    # `ast` counts bytes of UTF-8.
    text = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
    _, _, fraction = text.partition(".")
    return len(fraction) if fraction.isdigit() else None


def _literal_value(node: ast.expr, depth: int = 0) -> Any:
    """Evaluate a literal: numbers, texts, None, lists, tuples and dictionaries of these, inf and nan. A dtype
    (`torch.float32`) and a `Symbol("s0")` are texts, a tuple is a list. `depth` is how deeply it is nested; refuse more
    than 8, and what is no literal."""
    if depth > 8:
        raise RefusedError(f"line {node.lineno}: a literal is nested too deeply")
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _literal_value(operand, depth + 1)
            if type(value) in (int, float):
                return -value
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _literal_value(operand, depth + 1)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal_value(item, depth + 1) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            named = [_literal_value(key, depth + 1) for key in keys if key is not None]
            if all(isinstance(key, (str, int)) for key in named):
                return dict(zip(named, (_literal_value(value, depth + 1) for value in values), strict=True))
        case ast.Name(id="inf") | ast.Attribute(attr="inf"):
            return math.inf
        case ast.Name(id="nan") | ast.Attribute(attr="nan"):
            return math.nan
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return f"torch.{name}"
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))], keywords=[]):
            if text.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
                return float(text)
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(text))], keywords=[]):
            return text
    raise RefusedError(f"line {node.lineno}: a {type(node).__name__} is not a literal; metadata holds only literals")


ALIASES: Mapping[str, str] = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""torch's other names of dtypes, which GraphNet reads as attributes of torch."""


def _meta_from_fields(fields: Mapping[str, Any], digits: int) -> Meta:
    """Make a Meta of a class's fields by name; refuse those that no tensor can have, with SampleError. `digits` are the
    decimals of `mean` and `std`."""
    name = _required_field(fields, "name", str, "a text")
    shape = _required_field(fields, "shape", list, "a list of sizes")
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and 0 <= size <= MAX_ELEMENTS for size in shape):
        raise SampleError(f"{name!r:.100}: {shape!r:.100} is not the shape of a tensor")
    if math.prod(shape) > MAX_ELEMENTS:
        raise SampleError(f"{name!r:.100}: a tensor of {math.prod(shape):.3g} elements is more than {MAX_ELEMENTS:.3g}")
    dtype = str(fields.get("dtype") or "torch.float32").removeprefix("torch.")
    dtype = ALIASES.get(dtype, dtype)
    if dtype not in DTYPES:
        raise SampleError(f"{name!r:.100}: {dtype!r:.40} is not a dtype; known dtypes are {', '.join(DTYPES)}")
    original = fields.get("original_name")
    return Meta(
        name=name,
        shape=tuple(shape),
        dtype=dtype,
        device=str(fields.get("device") or "cpu")[:32],
        original_name=original if isinstance(original, str) and original else None,
        mean=_statistic_field(name, fields, "mean"),
        std=_statistic_field(name, fields, "std"),
        min_val=_statistic_field(name, fields, "min_val"),
        max_val=_statistic_field(name, fields, "max_val"),
        data=_data_field(name, fields.get("data"), dtype),
        digits=digits,
    )


def _required_field(fields: Mapping[str, Any], key: str, kind: type, words: str) -> Any:
    """Return a field, or refuse metadata in which it is missing or of another type; `words` name the type."""
    value = fields.get(key)
    if not isinstance(value, kind):
        raise SampleError(f"the metadata of a tensor has {key} = {value!r:.80}, where {words} is expected")
    return value


def _statistic_field(name: str, fields: Mapping[str, Any], key: str) -> float | None:
    """Return a field of the tensor `name` that is a number, or None where it is absent; refuse anything else, and
    integers of more than 64 bits."""
    value = fields.get(key)
    if value is None or (type(value) in (int, float, bool) and (type(value) is float or abs(value) < 2**64)):
        return value
    raise SampleError(f"{name!r:.100}: {key} = {value!r:.80} is not a number")


def _data_field(name: str, value: Any, dtype: str) -> tuple[Any, ...] | None:
    """Return the elements of `data`, a number or nested lists, flat and in index order; None where it is absent. Refuse
    more than MAX_DATA of them, and one that does not fit the dtype."""
    if value is None:
        return None
    flat = tuple(flatten(value)) if isinstance(value, list) else (value,)
    if len(flat) > MAX_DATA or not all(type(number) in (int, float, bool) for number in flat):
        raise SampleError(f"{name!r:.100}: data is at most {MAX_DATA:,} numbers")
    for number in flat:
        if not _fits_dtype(dtype, number):
            raise SampleError(f"{name!r:.100}: data has {number!r:.80}, which {dtype} cannot hold")
    return flat


_INTEGER_DTYPE = re.compile(r"(u?)int(\d+)")


def _fits_dtype(dtype: str, number: float) -> bool:
    """Whether `torch.tensor` can make a tensor of this dtype with a number; integers truncate floats."""
    match = _INTEGER_DTYPE.fullmatch(dtype)
    if match is None:
        return type(number) is float or abs(number) < 2**1023  # a larger integer is no float
    is_unsigned, bits = bool(match[1]), int(match[2])
    low, high = (0, 2**bits) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return low <= number < high and (type(number) is not float or dtype != "uint64")  # torch makes no uint64 of a float


def flatten(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists."""
    for item in value:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item


# ---- Constraints


def _read_examples(text: str) -> tuple[dict[str, int], dict[str, tuple[Any, ...]]]:
    """Parse an `input_tensor_constraints.py`: the example values of its symbols, and the shapes of the inputs, both by
    name. A size in a shape is a number, the name of a symbol, or None for any other expression."""
    tree, _ = tree_of(text)
    symbols: dict[str, int] = {}
    shapes: dict[str, tuple[Any, ...]] = {}
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id="dynamic_dim_constraint_symbol2example_value")],
                value=ast.Dict(keys=keys, values=values),
            ):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Name) and type(size := _literal_value(value)) is int:
                        symbols[key.id] = size
            case ast.Assign(targets=[ast.Name(id="dynamic_dim_constraint_input_shapes")], value=ast.List(elts=rows)):
                shapes |= dict(map(_shape_row, rows))
            case _:
                pass  # relations and generators of symbols: nothing that reading needs
    return symbols, shapes


def _shape_row(node: ast.expr) -> tuple[str, tuple[Any, ...]]:
    """Parse `([S0, 3, S1], "x")`: a symbol is its name, any other size that is not a number is None."""
    match node:
        case ast.Tuple(elts=[ast.List(elts=sizes) | ast.Tuple(elts=sizes), ast.Constant(value=str(name))]):
            return name, tuple(_shape_size(size) for size in sizes)
    raise RefusedError(f"line {node.lineno}: an input's shape is `([1, 3], 'name')`")


def _shape_size(node: ast.expr) -> int | str | None:
    """Return a size as a number, or as the name of a symbol; None for an expression of symbols."""
    match node:
        case ast.Constant(value=int(size)):
            return size
        case ast.Name(id=name):
            return name
    return None


# ---- Files

UNTYPED = (
    "no weight_meta.py: shapes are input_tensor_constraints.py's; a tensor that the graph uses as an index is taken "
    "for int64, every other for float32"
)
"""The note on metadata without dtypes, by which `read_graphnet` knows that these are to be found out."""


def read_sample_text(path: Path) -> str:
    """Read a file of a sample as text; a file that cannot be read raises SampleError."""
    return read_text(path, MAX_BYTES)


def read_sample_metas(folder: Path) -> tuple[dict[str, Meta], tuple[str, ...]]:
    """Read the metadata of a sample's inputs, by their names in the code, with notes on it: from `weight_meta.py` and
    `input_meta.py`, or, without these, the shapes alone from `input_tensor_constraints.py` and the note UNTYPED. Raise
    SampleError if no file says what the inputs are."""
    metas: dict[str, Meta] = {}
    for name in ("weight_meta.py", "input_meta.py"):
        if (folder / name).is_file():
            metas |= _parse_file(folder / name, _read_metas)
    if metas:
        return metas, ()
    place = folder / "input_tensor_constraints.py"
    if not place.is_file():
        raise SampleError(f"{folder}: neither weight_meta.py nor input_tensor_constraints.py says what its inputs are")
    symbols, shapes = _parse_file(place, _read_examples)
    for name, sizes in shapes.items():
        known = tuple(symbols.get(size, size) if isinstance(size, str) else size for size in sizes)
        if not all(type(size) is int for size in known):
            raise SampleError(f"{place}: the shape of {name!r:.100} has a size without an example value")
        metas[name] = _meta_from_fields({"name": name, "shape": list(known)}, digits=3)  # there are no statistics
    return metas, (UNTYPED,)


def read_symbol_examples(folder: Path) -> dict[str, int]:
    """Read the example values of a sample's symbols, if it has any."""
    place = folder / "input_tensor_constraints.py"
    if not place.is_file():
        return {}
    symbols, _ = _parse_file(place, _read_examples)
    return dict(symbols)


def read_sample_facts(folder: Path) -> dict[str, Any]:
    """Read `graph_net.json`; a sample without one has no facts."""
    place = folder / "graph_net.json"
    if not place.is_file():
        return {}
    try:
        facts = parse_json(read_sample_text(place))
    except (ValueError, RecursionError) as error:
        raise SampleError(f"{place}: not JSON: {str(error)[:200]}") from None
    if not isinstance(facts, dict):
        raise SampleError(f"{place}: an object is expected, not a {type(facts).__name__}")
    return facts


def _parse_file(path: Path, read: Callable[[str], Any]) -> Any:
    """Read a file and parse it by `read`; errors of the parser get the file's name: `line 7: …` is `PATH:7: …`."""
    try:
        return read(read_sample_text(path))
    except (GraphError, SampleError) as error:
        message = str(error)
        if message.startswith(str(path)):  # of a file that cannot be read
            raise
        with_number = re.sub(r"^line (\d+): ", r"\1: ", message)
        raise type(error)(f"{path}:{with_number if with_number != message else ' ' + message}") from None


# ---- How large a sample is before it is read

SPEC = re.compile(
    r'^[ \t]*+shape[ \t]*+=[ \t]*+\[([0-9,\s]*+)\][ \t]*+\n[ \t]*+dtype[ \t]*+=[ \t]*+"torch\.(\w+)"', re.MULTILINE
)
"""A tensor's shape and dtype; possessive, so that no text makes the search backtrack."""

SIZE = re.compile(r"\b[0-9]{1,19}\b")
"""A size in a shape, of at most 64 bits."""

ITEMSIZE = re.compile(r"([0-9]{1,4})")
"""The number in a dtype's name, which is that of its bits: 32 of `float32`."""


MOST_LISTED = 2**63 - 1
"""As many bytes as a column of a table can count; a stranger's metadata may list more."""


def listed_bytes(folder: Path) -> int:
    """Return the bytes of the tensors that a GraphNet sample's metadata lists, found by a search of its text (SPEC)
    without parsing it; 0 where it lists none."""
    try:
        text = read_sample_text(folder / "weight_meta.py")
    except SampleError:
        return 0  # reading the sample reports what is wrong with it
    return sum(math.prod(map(int, SIZE.findall(shape))) * dtype_itemsize(dtype) for shape, dtype in SPEC.findall(text))


def dtype_itemsize(dtype: str) -> int:
    """Return the bytes of one element of a dtype, by the number of bits in its name; 1 without one (`bool`), or for
    less than a byte (`int4`)."""
    bits = ITEMSIZE.search(dtype)
    return max(1, int(bits[1]) // 8) if bits else 1
