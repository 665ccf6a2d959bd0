"""`capture.json`: everything about a Capture except the texts of its graphs and the bytes of its tensors.

This module does not import torch. It trusts nothing that it reads: every field is checked for its type and size, and an
error names the field and its value.

A Field is a value of the JSON with its path. `field.get(key)` is a field of an object, `rows()` are the items of an
object by their keys, and `items()` those of a list; `text()`, `whole()` (a number from 0), `texts()` and so on check
the value and return it, or raise SampleError with the path. `field.value` is the value before any check, None for a
field that is not there.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from backprint.common.files import read_bytes
from backprint.common.text import parse_json
from backprint.errors import GraphError, SampleError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Argument, Capture, Guard, Link, OpaqueEdge, Rank, Signature, Source
from backprint.graph.verdicts import VERDICTS, is_word_of_derivative

FORMAT = 4
"""The version of the layout. Samples of another one are refused by name."""

MAX_BYTES = 64 * 2**20
"""The most bytes of a `capture.json`."""

MAX_DEPTH = 40
"""How deep the structure of a result may be nested."""

MAX_LIKENESS = 250
"""How deep a fingerprint may be nested. A fingerprint is a description of an argument's value as JSON
(`values/fingerprint.py`)."""

MAX_RANKS = 2**20
"""The most ranks of a distributed step."""

MAX_TEXT = 8192
"""The most characters of a text in a fingerprint."""

MAX_NUMBER = 2**63
"""Whole numbers that are read are below this one."""

WORDS = ("inf", "-inf", "nan")
"""Texts for numbers that JSON cannot represent."""

T = TypeVar("T")


# ---- To JSON


def describe(capture: Capture) -> dict[str, Any]:
    """Return a Capture as JSON, without its graphs and tensors. Fields that most Captures do not have are left out of
    the JSON of those. The classes in `graph/nouns.py` say what each field is."""
    signature = capture.signature
    return {
        "format": FORMAT,
        "name": capture.name,
        "engine": capture.engine,
        "environment": dict(capture.environment),
        "requires": list(capture.requires),
        "seed": capture.seed,
        **({"fake": True} if capture.fake else {}),
        "signature": {
            "arguments": list(signature.arguments),
            "leaves": [list(pair) for pair in signature.leaves],
            "output": signature.output,
            "differentiable": list(signature.differentiable),
            "same": [list(pair) for pair in signature.same],
            "loss": signature.loss,
            "call": None if signature.call is None else [_argument_json(argument) for argument in signature.call],
            "aliases": None if signature.aliases is None else [list(alias) for alias in signature.aliases],
        },
        "links": [[link.source, str(link.port), link.target, link.name] for link in capture.links],
        "breaks": list(capture.breaks),
        "why": list(capture.why),
        "guards": [
            {"kind": g.kind, "text": g.text, "inputs": list(g.inputs), "source": _source_json(g.source)}
            for g in capture.guards
        ],
        **({"pins": [list(pair) for pair in capture.pins]} if capture.pins else {}),
        **({"notes": list(capture.notes)} if capture.notes else {}),
        "opaque": [
            {"kind": edge.kind, "text": edge.text, "source": _source_json(edge.source)}
            | ({"lines": list(edge.lines)} if edge.lines else {})
            for edge in capture.opaque
        ],
        **({"meant": list(capture.meant)} if capture.meant else {}),
        **({"modules": _modules_json(capture.modules)} if capture.modules else {}),
        **({"rank": _rank_json(capture.rank)} if capture.rank is not None else {}),
    }


def _modules_json(modules: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the classes of modules as JSON: the paths of each class, whose name is so written once."""
    paths: dict[str, list[str]] = {}
    for path, kind in modules:
        paths.setdefault(kind, []).append(path)
    return paths


def _read_modules(field: Field) -> tuple[tuple[str, str], ...]:
    """Return the classes of modules by path."""
    return tuple(sorted((path, kind) for kind, paths in field.rows().items() for path in paths.texts()))


def _rank_json(rank: Rank) -> dict[str, Any]:
    """Return the place of a Capture among the ranks of a distributed step as JSON."""
    return {
        "number": rank.number,
        "size": rank.size,
        "groups": {label: list(members) for label, members in rank.groups},
    }


def _read_rank(field: Field) -> Rank | None:
    """Return the place of a Capture among ranks; None if it has none. SampleError if it is not in one of its groups."""
    if field.value is None:
        return None
    size = field.get("size").whole(MAX_RANKS)  # the number of ranks
    groups = {
        label: tuple(member.whole(size) for member in row.items(size))
        for label, row in field.get("groups").rows().items()
    }
    number = field.get("number").whole(size)
    for label, members in groups.items():
        if number not in members:
            raise SampleError(f"{field.path}.groups: rank {number} is not in its group {label!r:.80}")
    return Rank(number, size, tuple(groups.items()))


def _argument_json(argument: Argument) -> dict[str, Any]:
    """Return one argument of the captured call as JSON."""
    flags = {name: True for name in ("optional", "keyword") if getattr(argument, name)}
    return {"name": argument.name, "like": argument.like, **flags}


def _source_json(source: Source | None) -> Any:
    """Return a line of the program as JSON."""
    return None if source is None else [source.file, source.line, source.function, source.code, source.module]


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON: each short list or object is on one line, so that a diff shows which of them changed."""
    path.write_text(_json_text(content) + "\n", encoding="utf-8")


def _json_text(value: Any, depth: int = 0) -> str:
    """Return the JSON text of a value that is nested in `depth` others. Lists and objects of up to 100 characters, or
    nested deeper than three levels, are on one line."""
    # NaN and Infinity are no JSON: whoever fills a sample writes them as WORDS.
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if depth >= 3 or len(flat) <= 100 or not isinstance(value, (dict, list)):
        return flat
    pad, end = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        rows = [
            f"{json.dumps(str(key), ensure_ascii=False)}: {_json_text(item, depth + 1)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(pad + row for row in rows) + f"\n{end}}}"
    return "[\n" + ",\n".join(pad + _json_text(item, depth + 1) for item in value) + f"\n{end}]"


# ---- From JSON


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, with its size, depth and numbers bounded."""
    try:
        content = parse_json(read_bytes(path, MAX_BYTES).decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise SampleError(f"{path}: cannot be read as JSON: {type(error).__name__}: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise SampleError(f"{path}: expected an object, found {type(content).__name__}")
    return content


@contextlib.contextmanager
def errors_with_path(path: Path) -> Iterator[None]:
    """Put the path of a file before the message of each error about its content."""
    try:
        yield
    except (SampleError, GraphError) as error:
        raise SampleError(f"{path}: {error}") from None


class Field:
    """A value in a JSON tree, with its path for messages: `signature.arguments[2]`."""

    def __init__(self, value: Any, path: str) -> None:
        self.value, self.path = value, path

    def get(self, key: str, default: Any = None) -> Field:
        """Return a field of an object; a Field with the default if the object does not have it."""
        content = self.expect(dict)
        return Field(content.get(key, default), f"{self.path}.{key}" if self.path else key)

    def expect(self, kind: type[T]) -> T:
        """Return the value, which must be of this type."""
        # A bool is an int for isinstance.
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise SampleError(f"{self.path}: expected {kind.__name__}, found {str(self.value)[:80]!r}")
        return self.value

    def text(self, most: int = 4096) -> str:
        """Return a string of one line, with printable characters only."""
        text = self.expect(str)
        if len(text) > most or not (text.isprintable() or not text):
            raise SampleError(f"{self.path}: expected printable text of at most {most} characters, found {text[:80]!r}")
        return text

    def free_text(self, most: int = 4096) -> str:
        """Return a string that may have several lines, such as the `repr` of an argument or an error message."""
        text = self.expect(str)
        # JSON may escape lone surrogates, which no UTF-8 file holds.
        if len(text) > most or any("\ud800" <= character <= "\udfff" for character in text):
            raise SampleError(f"{self.path}: expected text of at most {most} characters, found {text[:80]!r}")
        return text

    def number(self) -> float:
        """Return a number, or one of WORDS as a number."""
        value = self.value
        # A larger int would not fit a float.
        if type(value) in (int, float) and abs(value) < 2**1023:
            return float(value)
        if isinstance(value, str) and value in WORDS:
            return float(value)
        raise SampleError(f"{self.path}: expected a number, found {str(value)[:40]!r}")

    def whole(self, most: int = MAX_NUMBER) -> int:
        """Return a non-negative integer below `most`."""
        number = self.expect(int)
        if not 0 <= number < most:
            raise SampleError(f"{self.path}: expected a whole number from 0, below {most}, found {str(number)[:40]}")
        return number

    def rows(self) -> dict[str, Field]:
        """Return the items of an object by their keys, which must be printable, as Fields."""
        rows = self.expect(dict).items()
        return {Field(key, f"{self.path}: key").text(): Field(item, f"{self.path}.{key}") for key, item in rows}

    def items(self, most: int = 1_000_000) -> list[Field]:
        """Return the items of a list, of which there may be `most`, as Fields."""
        values = self.expect(list)
        if len(values) > most:
            raise SampleError(f"{self.path}: {len(values):,} items; at most {most:,} are read")
        return [Field(item, f"{self.path}[{index}]") for index, item in enumerate(values)]

    def texts(self) -> tuple[str, ...]:
        """Return the strings of a list."""
        return tuple(item.text() for item in self.items())

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of a list. Each is a list of a name and a text."""
        rows = [item.items() for item in self.items()]
        if any(len(pair) != 2 for pair in rows):
            raise SampleError(f"{self.path}: expected pairs")
        return tuple((left.text(), right.free_text()) for left, right in rows)


def _read_source(field: Field) -> Source | None:
    """Return a line of the program; None if it is not known."""
    if field.value is None:
        return None
    if len(field.expect(list)) != 5:
        raise SampleError(f"{field.path}: expected a list of file, line, function, code and module")
    file, line, function, code, module = field.items()
    return Source(file.text(), line.expect(int), function.text(), code.text(), module.text())


def _read_tree(field: Field, depth: int = 0) -> Any:
    """Return the structure of a result as a tree of objects with one key each: `port` (the name of an output) and
    `value` (the text of another value) are leaves, and `dict`, `items` (pairs of a key and a value), `list` and `tuple`
    hold others."""
    if depth > MAX_DEPTH:
        raise SampleError(f"{field.path[:80]}: nested too deeply")
    if field.value is None:
        return None
    content = field.expect(dict)
    if len(content) != 1:
        raise SampleError(f"{field.path}: expected one of port, value, dict, items, list, tuple")
    kind = next(iter(content))
    inner = field.get(kind)
    match kind:
        case "port" | "value":
            return {kind: inner.text() if kind == "port" else inner.free_text()}
        case "list" | "tuple":
            return {kind: [_read_tree(item, depth + 1) for item in inner.items()]}
        case "dict":
            return {"dict": {key: _read_tree(item, depth + 1) for key, item in inner.rows().items()}}
        case "items":
            rows = [row.items(most=2) for row in inner.items()]
            if any(len(row) != 2 for row in rows):
                raise SampleError(f"{inner.path}: expected pairs of a key and a value")
            return {"items": [[key.free_text(), _read_tree(item, depth + 1)] for key, item in rows]}
    raise SampleError(f"{field.path}: {kind!r:.40} is not one of port, value, dict, items, list, tuple")


def _read_argument(field: Field) -> Argument:
    """Return one argument of the captured call."""
    return Argument(
        field.get("name").text(),
        _read_like(field.get("like")),
        field.get("optional", False).expect(bool),
        field.get("keyword", False).expect(bool),
    )


def _read_like(field: Field, depth: int = 0) -> Any:
    """Return a fingerprint, which describes the value of an argument: a text, or an object or a list of
    fingerprints."""
    if depth > MAX_LIKENESS:
        raise SampleError(f"{field.path[:80]}: nested too deeply")
    match field.value:
        case str():
            return field.free_text(MAX_TEXT)
        # Before int: a bool is one. A fingerprint has these values as text.
        case bool() | None:
            raise SampleError(f"{field.path}: {field.value!r} is not the fingerprint of a value")
        case int():
            return field.expect(int)
        case list():
            return [_read_like(item, depth + 1) for item in field.items()]
        case dict():
            return {key: _read_like(Field(item, f"{field.path}.{key}"), depth + 1) for key, item in field.value.items()}
    raise SampleError(f"{field.path}: {str(field.value)[:80]!r} is not the fingerprint of a value")


def _read_alias(field: Field) -> tuple[str, str, int]:
    """Return the names of two input tensors that share memory, and the offset in bytes of the second from the first."""
    rows = field.items(most=3)
    if len(rows) != 3:
        raise SampleError(f"{field.path}: expected a list of two names and a number of bytes")
    return rows[0].text(), rows[1].text(), rows[2].expect(int)


def _read_optional_items(field: Field, read: Callable[[Field], T]) -> tuple[T, ...] | None:
    """Return the items of a list, each read by `read`; None if the sample has no such list."""
    return None if field.value is None else tuple(map(read, field.items()))


def _read_signature(field: Field) -> Signature:
    """Return the Signature of a Capture: which port each argument and each result of the program is."""
    return Signature(
        arguments=field.get("arguments", []).texts(),
        leaves=field.get("leaves", []).pairs(),
        output=_read_tree(field.get("output")),
        differentiable=field.get("differentiable", []).texts(),
        same=field.get("same", []).pairs(),
        loss=field.get("loss", "").text(),
        call=_read_optional_items(field.get("call"), _read_argument),
        aliases=_read_optional_items(field.get("aliases"), _read_alias),
    )


def read_claims(field: Field) -> dict[str, Any]:
    """Return what the sample says about a graph's file, which is compared with the file: the roles of its ports, and a
    digest of its annotations."""
    if field.value is None:
        return {}
    claims: dict[str, Any] = {}
    if (roles := field.get("roles")).value is not None:
        for side in ("in", "out"):
            rows = roles.get(side, {}).rows()
            claims.setdefault("roles", {})[side] = {role: list(names.texts()) for role, names in rows.items()}
    if (digest := field.get("annotations")).value is not None:
        claims["annotations"] = digest.text(most=64)
    return claims


def check_format(content: Mapping[str, Any], path: Path) -> None:
    """Refuse a sample of another format, and a file that is not a sample's."""
    version = content.get("format")
    if type(version) is not int or version < 1:
        raise SampleError(f"{path}: no format version; this is not a capture.json of a sample")
    if version != FORMAT:
        advice = "use a newer Backprint" if version > FORMAT else "capture the program again"
        raise SampleError(f"{path}: format {version}, and this Backprint reads format {FORMAT}: {advice}")


def read_facts(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Check the content of `capture.json`, and return it as keyword arguments for the constructor of Capture."""
    root = Field(dict(content), "")
    with errors_with_path(path):
        return {
            "name": root.get("name").text(),
            "engine": root.get("engine").text(most=64),
            "signature": _read_signature(root.get("signature")),
            "links": tuple(map(_read_link, root.get("links", []).items())),
            "breaks": tuple(item.free_text() for item in root.get("breaks", []).items()),
            "why": tuple(item.free_text() for item in root.get("why", []).items()),
            "guards": tuple(map(_read_guard, root.get("guards", []).items())),
            "pins": root.get("pins", []).pairs(),
            "notes": tuple(item.free_text() for item in root.get("notes", []).items()),
            "opaque": tuple(map(_read_edge, root.get("opaque", []).items())),
            "meant": root.get("meant", []).texts(),
            "modules": _read_modules(root.get("modules", {})),
            "environment": tuple((key, item.text()) for key, item in root.get("environment", {}).rows().items()),
            "requires": root.get("requires", []).texts(),
            "seed": root.get("seed", 0).whole(),
            "fake": root.get("fake", False).expect(bool),
            "rank": _read_rank(root.get("rank")),
        }


def _read_link(field: Field) -> Link:
    """Return a link: the number of its source Pair with the key of a port, and the number of its target Pair with the
    name of an input. A number is None for the program's own inputs and outputs."""
    rows = field.items(most=4)
    if len(rows) != 4:
        raise SampleError(f"{field.path}: expected a list of source, port, target and name")
    source, port, target, name = rows
    pair_numbers = [None if end.value is None else end.whole() for end in (source, target)]
    return Link(pair_numbers[0], PortKey.from_text(port.text()), pair_numbers[1], name.text())


def _read_guard(field: Field) -> Guard:
    """Return a condition that the capture assumes."""
    return Guard(
        field.get("kind").text(),
        field.get("text").text(),
        field.get("inputs").texts(),
        _read_source(field.get("source")),
    )


def _read_edge(field: Field) -> OpaqueEdge:
    """Return a place where autograd of the forward would not give the program's gradient."""
    lines = field.get("lines", []).texts()
    return OpaqueEdge(field.get("kind").text(), field.get("text").text(), _read_source(field.get("source")), lines)


class Witness(Mapping[str, Any]):
    """The stored results of the original program on the inputs that the recipes make: digests and a few numbers, by
    port.

    They are checked when they are first read.
    """

    def __init__(self, field: Field, path: Path) -> None:
        self.field, self.path = field, path

    @cached_property
    def checked(self) -> dict[str, Any]:
        """The content by port, after a check of every row."""
        with errors_with_path(self.path):
            _check_witness(self.field)
        return self.field.expect(dict)

    def __getitem__(self, key: str) -> Any:
        return self.checked[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.checked)

    def __len__(self) -> int:
        return len(self.checked)


def _check_witness(field: Field) -> None:
    """Raise SampleError unless every row is valid (`prove.results.numbers_of` makes them): a digest, dtype, shape,
    norm, maximum and the first eight values of a result. The row of a sparse tensor also has its layout, the digests of
    its indices and the shape of its values; the row of a result that is None has nothing."""
    for row in field.rows().values():
        if row.expect(dict).get("none") is True:
            continue
        row.get("digest").text(most=64)
        dtype, shape = row.get("dtype").text(most=32), [size.whole() for size in row.get("shape").items(64)]
        for key in ("norm", "max"):
            row.get(key).number()
        leading = [number.number() for number in row.get("leading").items(most=8)]
        if "layout" in row.expect(dict):
            row.get("layout").text(most=32)
            row.get("places").texts()
            shape = [size.whole() for size in row.get("values").items(64)]
        # A complex number is kept as two.
        expected = min(8, math.prod(shape) * (2 if dtype.startswith("complex") else 1))
        if len(leading) != expected:
            raise SampleError(f"{row.path}.leading: {len(leading)} values; a {dtype}{shape} tensor has {expected} here")


def read_verdict(field: Field) -> Any:
    """Check the verdict that a sample keeps, and return its JSON as it is; None if it keeps none."""
    if field.value is None:
        return None
    word = field.get("verdict")
    if word.value not in VERDICTS:
        raise SampleError(f"{word.path}: expected one of {', '.join(VERDICTS)}, found {str(word.value)[:40]!r}")
    field.get("judge", 0).whole()
    field.get("name").text()
    field.get("detail").free_text()
    field.get("vacuous").texts()
    if field.get("power").value is not None:
        field.get("power").number()
    for port in field.get("ports").rows().values():
        port.text(most=32)
    if (nonfinite := field.get("nonfinite")).value is not None:
        nonfinite.free_text()
    field.get("graphs", "").text(most=64)
    if (powers := field.get("powers")).value is not None:
        _check_powers(powers)
    if (derivative := field.get("derivative")).value is not None:
        _check_derivative(derivative)
    return field.value


def _check_derivative(field: Field) -> None:
    """Raise SampleError unless a stored Derivative is valid: its word, the gap, and the reasons as text."""
    word = field.get("word").text()
    if not is_word_of_derivative(word):
        raise SampleError(f"{field.path}.word: {word[:40]!r} is no word of a derivative")
    field.get("name").text()
    field.get("detail").free_text()
    if field.get("gap").value is not None:
        field.get("gap").number()
    for place in field.get("wrong").items():
        place.free_text()
    for names in ("functions", "meant", "tried"):
        field.get(names, []).texts()
    field.get("not_tried", []).pairs()


def _check_powers(field: Field) -> None:
    """Raise SampleError unless the powers of a verdict are valid, which `prove.attest` makes.

    A power says how far results move when one input is redrawn. `tried` of `of` inputs were redrawn. `redrawn` has a
    row for each redraw: the reason why it was not tried, or how many ports moved, by how much at least and at most, the
    port that moved least, and what a check would not see of the redraw.
    """
    tried, inputs = field.get("tried").whole(), field.get("of").whole()
    if tried > inputs:
        raise SampleError(f"{field.path}.tried: {tried} inputs were redrawn, but there are {inputs}")
    for row in field.get("redrawn").rows().values():
        row.get("untried", "").free_text()
        row.get("ports", 0).whole()
        row.get("port", "").text()
        row.get("silent", []).texts()
        row.get("hidden", False).expect(bool)
        for key in ("least", "most"):
            row.get(key, 0.0).number()
