"""A Graph as straight-line Python, and back. The text is the storage: `parse(emit(graph)) == graph`.

Reading uses `ast` alone: nothing is imported, looked up or run. A text outside the grammar is refused with its line and
the name of the construct. The grammar, one step a line:

    # [layer1.0.conv1] model.py:12 in forward: out = self.conv1(x)
    convolution: "f32[2, 64, 32, 32]" = aten.convolution.default(x, conv1_weight, None, [1, 1], ...)
    getitem = native_batch_norm[0]
    assert _local_scalar_dense == 3

The comment is the *source* of the steps below it: [path of the module] file:line in function: code. The quoted
annotation is the *spec* of a step's result, or `SPEC ROLE NAME` of a *port*, an input or output of the graph. An *echo*
says before the source how a step of a backward relates to the forward: `# gradient of relu; [1] model.py:12 in …`. A
*guard* is a step that is an `assert`. A Value, one argument of a step, is a literal, or an object of `nouns`: Ref for
the name of an earlier value, Op, Sub, Atom, Device, List and so on. A *noun* is any of these classes.

RefusedError is for a text that a graph may not have, its base GraphError for one that cannot be a graph.

A _Reader reads one class of a text, a graph or a subgraph, from its tree: `locals` are the names of values so far,
`subs` those of its subgraphs, and `lines` the lines of the whole text. Its method `refused(node, why)` makes the error
for a node, with the line, and `checked(node, make)` adds the line to an error that making a noun raises.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from backprint.common.collector import collector_paused
from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import (
    ATOMS,
    DTYPES,
    ECHOES,
    MAX_DEPTH,
    MAX_INTEGER,
    ROLES,
    SHARD,
    Atom,
    Device,
    Dict,
    Echo,
    Graph,
    List,
    Op,
    Port,
    Ref,
    ScalarSpec,
    Slice,
    Source,
    Spec,
    Step,
    Sub,
    Symbol,
    TensorSpec,
    Value,
)

# ---- Before `ast` parses a text: its strings, its comments, and how much memory its tree may take
# Python's tree takes up to 1,000 bytes for each token (920 for `a;a;a`), and an f-string of many holes takes a time
# that grows with their square. One pass separates strings and comments from code exactly as Python does. Constructs
# that would make that hard are refused by name: prefixes of strings, backslashes that continue a line, characters that
# look different from what they do.


MAX_CHARACTERS = 24 * 2**20
"""How many characters a text may have."""

MAX_TOKENS = 1_000_000
"""How many names, numbers, strings and marks may be parsed at once, so that their tree fits in about 1 GB."""

MAX_QUOTES = 2_000_000
"""How many quote and comment marks a text may have."""

# Possessive quantifiers, so that no text makes it backtrack. A long string is tried before a short one,
# because `"""` begins with `""`. `open` and `end` match a quote without an end, and a backslash: both are refused.
SCANNED_PIECE = re.compile(
    r"""(?P<comment>\#[^\n]*+)
    |(?<!\w)(?P<prefix>\w*+)(?:
        (?P<long>\"\"\"(?:[^"\\]|\\[\s\S]|"(?!""))*+\"\"\"|'''(?:[^'\\]|\\[\s\S]|'(?!''))*+''')
        |(?P<open>\"\"\"|''')
        |(?P<short>"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+')
        |(?P<end>["'\\])
    )""",
    re.VERBOSE | re.ASCII,
)
# A line that begins with code and has a `#` after it, once strings and comments are single marks.
_BESIDE = re.compile(r"^ *+[^ #\n][^#\n]*+#", re.MULTILINE)

# A letter, a mark or a space for each character. Then tokens are counted without a loop: each mark is one, and so is
# each letter after a mark or a space.
# So `a` stands for a letter or digit, `(` for a mark.
_KINDS = {code: "a" if chr(code).isalnum() or chr(code) == "_" else "(" for code in range(128)}
_KINDS |= {ord(" "): " ", ord("\n"): "("}


@dataclass(frozen=True, slots=True)
class _Scanned:
    """A text that is neither huge nor misleading."""

    lines: list[str]
    beside: list[int]
    """The numbers of the lines that have a comment beside code."""
    tokens: int
    """At least as many as Python counts."""


def count_tokens(text: str) -> int:
    """Return how many names, numbers and marks a text has at most. Strings and comments in the text count as well."""
    kinds = text.translate(_KINDS) if text.isascii() else re.sub(r"[^\x00-\x7f]", "a", text).translate(_KINDS)
    return kinds.count("(") + kinds.count("(a") + kinds.count(" a") + kinds.startswith("a")


def scan(text: str) -> _Scanned:
    """Separate strings and comments from code, and return the lines of the text and what was found (_Scanned); raise if
    the text is huge, is not Python, or is misleading: characters or encodings that look other than they read."""
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    if (quotes := sum(map(text.count, "\"'#"))) > MAX_QUOTES:
        raise RefusedError(f"the text has {quotes:,} quote and comment marks; at most {MAX_QUOTES:,} are read")
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    # A character that hides or reorders letters would make the text look other than it reads.
    if not text.replace("\n", "").isprintable():
        number, line = next((number, line) for number, line in enumerate(lines, 1) if not line.isprintable())
        odd = next(character for character in line if not character.isprintable())
        raise RefusedError(f"line {number}: the character U+{ord(odd):04X} cannot stand in a graph's text")
    for number, line in enumerate(lines[:2], 1):
        if line.lstrip().startswith("#") and "coding" in line:  # Python would read the file in that encoding
            raise RefusedError(f"line {number}: {line.strip():.80} names an encoding: a graph's text is UTF-8")

    def bare_piece(match: re.Match[str]) -> str:
        """Return what stands for a string or a comment in the text without their contents; raise for a prefix and for a
        quote or a backslash that is refused."""
        kind = match.lastgroup  # never `prefix`, because another group closes after it
        if kind == "comment":
            return "#"
        prefix, string = match["prefix"], match[0][len(match["prefix"]) :]
        if kind in ("open", "end"):  # a quote without an end, or a backslash
            what = "a backslash outside a string" if string == "\\" else "a string that does not end on its line"
            raise GraphError(f"line {_line_number(text, match)}: {what}: not Python that a graph is written in")
        if prefix:
            why = "is a string with a prefix, which is not read"
            raise RefusedError(f"line {_line_number(text, match)}: {match[0]!r:.80} {why}")
        # One mark for the string, and its line breaks: numbers of lines stay.
        return '"' + "\n" * string.count("\n")

    bare = SCANNED_PIECE.sub(bare_piece, text)
    if not bare.isascii():  # of many alphabets there are letters that look like those of another
        for number, line in enumerate(bare.split("\n"), 1):
            for odd in line:
                if not odd.isascii():
                    raise RefusedError(f"line {number}: {odd!r} (U+{ord(odd):04X}) outside a string: names are ASCII")
    beside = _numbers_of_lines(bare, [match.end() for match in _BESIDE.finditer(bare)]) if "#" in bare else []
    return _Scanned(lines, beside, count_tokens(bare))


def _line_number(text: str, match: re.Match[str]) -> int:
    """Return the number of the line on which a match begins."""
    return text.count("\n", 0, match.start()) + 1


def _numbers_of_lines(text: str, places: list[int]) -> list[int]:
    """Return the numbers of the lines in which these places of a text are: indexes of characters, in order."""
    numbers, line, last = [], 1, 0
    for place in places:
        line += text.count("\n", last, place)
        last = place
        numbers.append(line)
    return numbers


# ---- Writing

HEADER = """\
import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims
"""
"""The lines above the class in every text; the reader compares them with these, letter by letter."""

LISTING = "# A listing: repeated steps as loops, and in {braces} what differs between iterations (view_0 is view)"
"""The first line of a listing of a folded graph (`graph/folding`), which is shown to people and never read."""

MAX_SPEC_DEPTH = 4
"""How deep a spec may nest tuples."""

# ---- Values and specs as text


def show(value: Value) -> str:
    """Return a value as Python writes it: a literal, a name, or a call such as `torch.device('cpu')`."""
    match value:
        case float():
            return "nan" if math.isnan(value) else repr(value)
        case None | bool() | str():
            return repr(value)
        case int() if -MAX_INTEGER <= value < MAX_INTEGER:
            return repr(value)
        case complex():
            return f"complex({show(value.real)}, {show(value.imag)})"
        case Ref(name):
            return name
        case Op(target):
            return _callable_name(target)
        case Sub(name):
            return f"self.{name}"
        case Atom(name):
            return f"torch.{name}"
        case Device(name):
            return f"torch.device({name!r})"
        case Slice(start, stop, step):
            return f"slice({show(start)}, {show(stop)}, {show(step)})"
        case List(items):
            return "[" + ", ".join(map(show, items)) + "]"
        case tuple():
            return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
        case Dict(pairs):
            return "{" + ", ".join(f"{show(key)}: {show(item)}" for key, item in pairs) + "}"
    raise GraphError(f"this {type(value).__name__} cannot stand in a graph")


def show_spec(spec: Spec) -> str:
    """Return a spec as an annotation has it: `f32[64, 3] stride=[1, 64] @cuda:0`."""
    match spec:
        case TensorSpec(dtype, shape, stride, offset, device, layout):
            text = f"{DTYPES[dtype]}[{', '.join(map(str, shape))}]"
            text += f" stride=[{', '.join(map(str, stride))}]" if stride is not None else ""
            text += f" offset={offset}" if offset != 0 else ""
            text += f" {layout}" if layout != "strided" else ""
            return text + (f" @{device}" if device != "cpu" else "")
        case ScalarSpec(kind, expression):
            return f"{kind}({expression})" if expression else kind
        case tuple():
            return "(" + ", ".join(map(show_spec, spec)) + ("," if len(spec) == 1 else "") + ")"
    return "?"


_SHORT = {short: name for name, short in DTYPES.items()}
_TENSOR = re.compile(
    r"(?P<dtype>[a-z]\w*)\[(?P<shape>[^\]]*)\](?: stride=\[(?P<stride>[^\]]*)\])?(?: offset=(?P<offset>.+?))?"
    r"(?: (?P<layout>sparse_\w+|jagged|_mkldnn))?(?: @(?P<device>[a-z]+(?::\d{1,4})?))?"
)
_NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)


def _read_size(text: str) -> int | str:
    """Return a size: a number, or the expression of a symbolic size."""
    text = text.strip()
    return int(text) if _NUMBER.fullmatch(text) else text


def _sizes(text: str) -> tuple[int | str, ...]:
    """Return the sizes in a text such as `64, s0 + 1`."""
    return tuple(map(_read_size, _split(text))) if text.strip() else ()


_BREAK = re.compile(r"[(\[\]),]")


def _split(text: str) -> list[str]:
    """Split at commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for line_break in _BREAK.finditer(text):
        mark = line_break[0]
        if mark != ",":
            depth += 1 if mark in "([" else -1
        elif depth == 0:
            parts.append(text[start : line_break.start()])
            start = line_break.end()
    return [*parts, text[start:]]


def read_spec(text: str, depth: int = 0) -> Spec:
    """Return the spec of an annotation, as `show_spec` writes it; `depth` counts the tuples around it."""
    text = text.strip()
    if text == "?":
        return None
    if depth > MAX_SPEC_DEPTH:
        raise RefusedError("a spec is nested too deeply")
    if match := _TENSOR.fullmatch(text):
        dtype = _SHORT.get(match["dtype"])
        if dtype is None:
            raise RefusedError(f"{match['dtype']!r:.80} is not a dtype; known are {', '.join(_SHORT)}")
        shape, stride = _sizes(match["shape"]), _sizes(match["stride"]) if match["stride"] is not None else None
        offset = _read_size(match["offset"]) if match["offset"] else 0
        return TensorSpec(dtype, shape, stride, offset, match["device"] or "cpu", match["layout"] or "strided")
    if text.startswith("(") and text.endswith(")"):
        inner = text[1:-1].strip().removesuffix(",")
        return tuple(read_spec(part, depth + 1) for part in _split(inner)) if inner else ()
    kind, bracket, rest = text.partition("(")
    if bracket and not (len(rest) > 1 and rest.endswith(")")):
        raise RefusedError(f"{text!r:.80} is not a spec")
    return ScalarSpec(kind, rest[:-1])


def show_port(port: Port) -> str:
    """Return a port as text of an annotation: `f32[64, 3] parameter conv1.weight`."""
    shard = f" of {port.shard}" if port.shard else ""
    return f"{show_spec(port.spec)}{shard} {port.key}"


_PORT = re.compile(
    rf"(?P<spec>.+?)(?: of (?P<shard>{SHARD.pattern}))? (?P<role>{'|'.join(sorted(ROLES))}) (?P<name>.+)"
)


def _read_port(text: str, local: str = "") -> Port:
    """Return the port of an annotation, as `show_port` writes it, with this identifier in the text."""
    match = _PORT.fullmatch(text)
    if not match:
        raise RefusedError(f"{text!r:.80} is not a port: expected `SPEC ROLE NAME`")
    return Port(match["name"], match["role"], read_spec(match["spec"]), local, match["shard"] or "")


# ---- Emit


def show_call(args: Iterable[Value], kwargs: tuple[tuple[str, Value], ...]) -> str:
    """Return the arguments of a call as text; a keyword that Python cannot spell goes through `**{...}`."""
    if any(keyword.iskeyword(key) for key, _ in kwargs):
        named = ["**{" + ", ".join(f"{key!r}: {show(value)}" for key, value in kwargs) + "}"]
    else:
        named = [f"{key}={show(value)}" for key, value in kwargs]
    return ", ".join([*map(show, args), *named])


def show_step(step: Step) -> str:
    """Return a step as one line of Python: `mm: "f32[4, 4]" = aten.mm.default(x, w)`."""
    if step.is_guard:
        value, *expected = map(show, step.args)  # of `assert_nan`, nothing is expected
        return {
            "assert_equal": f"assert {value} == {''.join(expected)}",
            "assert_nan": f"assert {value} != {value}",
            "assert_shape": f"assert {value}.shape == {''.join(expected)}",
        }[step.target]
    annotation = f': "{show_spec(step.spec)}"' if step.spec is not None else ""
    is_item = step.target == "operator.getitem" and len(step.args) == 2 and not step.kwargs
    if is_item and type(step.args[0]) is Ref and type(step.args[1]) in (int, str):
        return f"{step.name}{annotation} = {show(step.args[0])}[{show(step.args[1])}]"
    return f"{step.name}{annotation} = {_callable_name(step.target)}({show_call(step.args, step.kwargs)})"


def _callable_name(target: str) -> str:
    """Return an operator as Python can call it: the last part of `aten.random.from` is a Python keyword."""
    head, _, last = target.rpartition(".")
    return f"getattr({head}, {last!r})" if keyword.iskeyword(last) else target


def show_comment(source: Source | None, echo: Echo | None) -> str:
    """Return the comment above steps with this source and this echo; `# -` if they have neither."""
    text = f"{echo.kind} {', '.join(echo.names)};" if echo else ""
    if source:
        module = f"[{source.module}] " if source.module else ""
        text += f" {module}{source.at} in {source.function}: {source.code}"
    return "# " + (text.strip() or "-")


def emit_class(graph: Graph, name: str, indent: str) -> Iterator[str]:
    """Yield the lines of a graph as a class of this name, its subgraphs as classes in that class; each line begins with
    `indent`."""
    inner, body = indent + "    ", indent + "        "
    yield f"{indent}class {name}(torch.nn.Module):"
    for symbol in graph.symbols:
        yield f'{inner}{symbol.name}: "{symbol.hint} in [{symbol.low}, {symbol.high}]"'
    for attribute, sub in graph.subgraphs:
        yield from emit_class(sub, attribute, inner)
        yield f"{inner}{attribute} = {attribute}()"
        yield ""
    yield f"{inner}def forward("
    yield f"{body}self,"
    for port in graph.inputs:
        yield f"{body}{port.local}: {quote(show_port(port))},"
    yield f"{inner}) -> (" if graph.outputs else f"{inner}) -> ():"
    for port in graph.outputs:
        yield f"{body}{quote(show_port(port))},"
    if graph.outputs:
        yield f"{inner}):"
    marker = "# -"  # the last comment, which counts for all steps below it
    for step in graph.steps:
        comment = show_comment(step.source, step.echo)
        if comment != marker:
            yield f"{body}{comment}"
            marker = comment
        yield body + show_step(step)
    yield f"{body}return ({', '.join(map(show, graph.results))}{',' if len(graph.results) == 1 else ''})"


def quote(text: str) -> str:
    """Return a string literal in double quotes, for a text without line breaks."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def emit(graph: Graph, title: str = "") -> str:
    """Return the whole text of a graph: a docstring with the title (by default the graph's own), the imports, and one
    class."""
    title = title or graph.title
    head = f'"""{title_text(title)}"""\n\n' if title else ""
    return head + HEADER + "\n\n" + "\n".join(emit_class(graph, "GraphModule", indent="")) + "\n"


def title_text(title: str) -> str:
    """Return a title without the characters that could end a docstring."""
    return "".join(c for c in title if c.isprintable() and c not in '"\\')


# ---- Parse


def parse(text: str) -> Graph:
    """Return the Graph of a text. Raise RefusedError or GraphError with the line; run nothing.

    The Graph written out again has the tree of the text, node by node: so what was read is what Python would run. A
    text of more than MAX_TOKENS is read in pieces.
    """
    if text.startswith(LISTING):
        raise RefusedError(
            "a listing of a graph with loops, which is shown and not read: use `graph.code`, or `backprint show --flat`"
        )
    scanned = scan(text)
    if scanned.beside:
        raise _comment_beside(scanned)
    text = "\n".join(scanned.lines)
    # Millions of objects are made here and all are kept: the collector would look at them over and over.
    with collector_paused():
        try:
            if scanned.tokens > MAX_TOKENS:
                return _read_in_pieces(text, scanned)
            tree = python_tree(text)
            graph = _module(tree, _Reader(scanned.lines))
            # Most texts are as `emit` writes them, to the letter; of others, the trees are compared.
            if emit(graph).rstrip("\n") != text.rstrip("\n"):
                _check_same(tree, python_tree(emit(graph)), scanned.lines)
            return graph
        except (RecursionError, MemoryError) as error:
            raise _too_deep(error) from None


def tree_of(text: str) -> tuple[ast.Module, list[str]]:
    """Return Python's tree of a text that is neither huge nor misleading, and its lines; nothing is run."""
    scanned = scan(text)
    if scanned.tokens > MAX_TOKENS:
        raise RefusedError(f"the text has {scanned.tokens:,} names, numbers and marks; at most {MAX_TOKENS:,} are read")
    try:
        tree = python_tree("\n".join(scanned.lines))
    except (RecursionError, MemoryError) as error:
        raise _too_deep(error) from None
    if scanned.beside:
        raise _comment_beside(scanned)
    return tree, scanned.lines


def _comment_beside(scanned: _Scanned) -> RefusedError:
    """Return the error for a text that has a comment on a line of code."""
    return RefusedError(f"line {scanned.beside[0]}: a comment beside code: a graph's comments have their own lines")


def _too_deep(error: BaseException) -> RefusedError:
    """Return the error for a text at which Python's parser, or this reader, ran out of stack or memory."""
    return RefusedError(f"the text is nested too deeply to be a graph ({type(error).__name__})")


def python_tree(text: str) -> ast.Module:
    """Return Python's tree of a text; GraphError if the text is not Python. `scan` has let this text pass, or the one
    that it was made of: so it is not huge, names no other encoding, and has no character that hides or is a NUL. Of a
    text that nests too deeply, the parser's RecursionError or MemoryError is raised."""
    try:
        with warnings.catch_warnings():
            # Python warns of an odd escape, for example. With warnings as errors, that would be raised here.
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text)
    except SyntaxError as error:
        raise GraphError(f"line {error.lineno or 0}: not Python: {error.msg}") from None


PIECE = 1_000
"""How many lines of a large graph are parsed at once: their tree takes a hundred times their bytes."""


def _read_in_pieces(text: str, scanned: _Scanned) -> Graph:
    """Return the Graph of a large text, whose steps are parsed some lines at a time. The text must be as `emit` writes
    it, to the letter, else RefusedError: so no statement goes over several lines, and lines can be parsed apart.
    `scanned` has its lines, and how many tokens it has."""
    lines = scanned.lines
    # Four spaces: the end of the header of the outer forward, which is the last member of the class. The header of a
    # subgraph's forward is indented further.
    ends = [number for number, line in enumerate(lines, 1) if line.startswith(("    ):", "    ) -> ():"))]
    first = ends[-1] if ends else len(lines)  # the index of the first line of steps
    head = "\n".join([*lines[:first], "        pass"])
    _check_tokens(head, "the lines above the steps")

    def statements() -> Iterator[ast.stmt]:
        """Yield the statements of the outer forward, PIECE lines parsed at a time."""
        for start in range(first, len(lines), PIECE):
            piece = "\n".join(lines[start : start + PIECE])
            _check_tokens(piece, f"lines {start + 1} to {start + PIECE}")
            # In a function, because a piece may have the `return`; with a `pass` at its end, because it may have only
            # comments. The `def` is a line of its own, hence start - 1.
            for node in python_tree(f"def forward():\n{piece}\n        pass").body[0].body[:-1]:  # type: ignore[attr-defined]
                yield ast.increment_lineno(node, start - 1)

    graph = _module(python_tree(head), _Reader(lines, statements))
    if emit(graph).rstrip("\n") != text.rstrip("\n"):
        raise RefusedError(
            f"the text has {scanned.tokens:,} names, numbers and marks, and is not as Backprint writes it: "
            f"at most {MAX_TOKENS:,} are read then"
        )
    return graph


def _check_tokens(text: str, what: str) -> None:
    """Raise if a part of a text is too much to be parsed at once."""
    if (tokens := count_tokens(text)) > MAX_TOKENS:
        raise RefusedError(f"{what} have {tokens:,} names, numbers and marks; at most {MAX_TOKENS:,} are read")


# ---- What was read is what Python would run

_NOT_RUN = frozenset({"annotation", "returns", "kind", "type_comment", "type_ignores"})
"""Fields of nodes that change nothing: the reader checks that annotations are texts."""


def _check_same(tree: ast.Module, written: ast.Module, lines: Sequence[str]) -> None:
    """Raise at the first node of a text's tree that differs from `written`, the tree of the text that `emit` writes for
    the Graph that was read: Python would run the text as something else."""
    # Without their docstrings: a title may be written in several ways, and changes nothing.
    for own in (tree, written):
        match own.body:
            case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                own.body = rest
    line = 0  # of the last node that has one: a list or a text has none
    left: list[tuple[object, object]] = [(tree, written)]  # a stack and no recursion: a tree may be deep
    while left:
        node, other = left.pop()
        line = getattr(node, "lineno", line)
        if type(node) is not type(other):
            raise _error_for_other_line(line, lines)
        if isinstance(node, ast.AST):
            parts = [
                (getattr(node, field), getattr(other, field, None)) for field in node._fields if field not in _NOT_RUN
            ]
            left += reversed(parts)  # the last one pushed is compared first
        elif isinstance(node, list):
            if len(node) != len(other):  # type: ignore[arg-type]  # of one type, see above
                raise _error_for_other_line(getattr(node[0], "lineno", line) if node else line, lines)
            left += reversed([*zip(node, other, strict=True)])  # type: ignore[call-overload]
        elif repr(node) != repr(other):  # 0.0 and -0.0 are equal, nan is not
            raise _error_for_other_line(line, lines)


def _error_for_other_line(line: int, lines: Sequence[str]) -> RefusedError:
    """Return the error for the line of this number (0 for none) that differs from how `emit` writes the Graph that was
    read."""
    source_line = lines[line - 1].strip() if line else ""
    return RefusedError(
        f"line {line}: {source_line:.80} is not written as a graph is: Python could run it as something else"
    )


_HEADER = [line for line in HEADER.split("\n") if line]


def _module(tree: ast.Module, reader: _Reader) -> Graph:
    """Return the Graph of the tree of a whole text: a docstring, the header and one class. `reader` reads the class,
    and makes errors with the line."""
    body, title = tree.body, ""
    match body:
        case [ast.Expr(value=ast.Constant(value=str(docstring))), *rest]:
            body, title = rest, title_text(docstring)
    # The class follows the header; a text that ends before has no class, which is told below.
    for node, expected in zip(body, _HEADER, strict=False):
        if (header_text := reader.source_text(node)) != expected:
            raise reader.refused(node, f"{header_text!r} is not the header of a graph, which here says {expected!r}")
    graph = None
    for node in body[len(_HEADER) :]:
        if type(node) is not ast.ClassDef or node.name != "GraphModule" or graph is not None:
            odd = f"{reader.source_text(node)!r} is outside the class"
            raise reader.refused(node, f"{odd}: a graph's text is imports and one class GraphModule")
        graph = reader.graph(node, title)
    if graph is None:
        raise GraphError("the text holds no class GraphModule with its header")
    return graph


_COMMENT = re.compile(
    r"# (?:(?P<kind>" + "|".join(ECHOES) + r") (?P<names>[\w, ]+);)? ?"
    r"(?:(?:\[(?P<module>[^\]]*)\] )?(?P<file>.+?):(?P<line>\d{1,9}) in (?P<function>[^:]*): ?(?P<code>.*))?",
    re.ASCII,
)


Node: TypeAlias = ast.stmt | ast.expr | ast.arg
T = TypeVar("T")


class _Reader:
    """Reads one class of a text, a graph or a subgraph, from its tree. `locals` are the names of values so far, `subs`
    those of its subgraphs, and `guards` counts guards, which have no name in a text. `lines` are the lines of the whole
    text, which have the comments, as a tree has none.

    Each method takes a node of the tree and returns the noun that it is read as; `refused` makes the error for a node.
    """

    def __init__(self, lines: list[str], statements: Callable[[], Iterable[ast.stmt]] | None = None) -> None:
        self.lines = lines
        self.statements = statements
        """Yields the statements of a forward that is parsed in pieces; None if the tree has them."""
        self.locals: set[str] = set()
        self.subs: set[str] = set()
        self.guards = 0

    # ---- complaints

    def source_text(self, node: Node) -> str:
        """Return the text at a node: its first line, up to 80 characters. Unparsing the tree could recurse."""
        line = self.lines[node.lineno - 1]
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        # Python counts columns in bytes of UTF-8.
        return line.encode()[node.col_offset : end].decode(errors="replace")[:80]

    def refused(self, node: Node, why: str) -> RefusedError:
        """Return the error for a node, with its line."""
        return RefusedError(f"line {node.lineno}: {why}")

    def checked(self, node: Node, make: Callable[[], T]) -> T:
        """Return the noun that `make` makes; add the line of the node to the GraphError that it may raise."""
        try:
            return make()
        except GraphError as error:
            # An error from further inside has its line already, which is the better one.
            if str(error).startswith("line "):
                raise
            raise type(error)(f"line {node.lineno}: {error}") from None

    # ---- the class

    def graph(self, cls: ast.ClassDef, title: str = "", depth: int = 0) -> Graph:
        """Return the Graph of a class, with the title of the text; `depth` counts the classes around it."""
        if depth > MAX_DEPTH:
            raise self.refused(cls, "subgraphs are nested too deeply")
        # `type_params` is a field since Python 3.12.
        if cls.decorator_list or cls.keywords or getattr(cls, "type_params", None) or len(cls.bases) != 1:
            raise self.refused(cls, "a graph's class has no decorators, no keywords and one base, torch.nn.Module")
        if (base := self.dotted(cls.bases[0])) != "torch.nn.Module":
            raise self.refused(cls, f"a graph's class has one base, torch.nn.Module, not {base!r:.80}")
        symbols, subgraphs, function = [], [], None
        for node in cls.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Constant(value=str(text)), value=None):
                    symbols.append(self.symbol(node, name, text))
                case ast.ClassDef():
                    subgraphs.append((node.name, _Reader(self.lines).graph(node, depth=depth + 1)))
                    self.subs.add(node.name)
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made), args=[], keywords=[])
                ) if name == made and name in self.subs:
                    pass  # `body_0 = body_0()`, which stands below the class of each subgraph
                case ast.FunctionDef(name="forward") if function is None:
                    function = node
                case _:
                    raise self.refused(node, f"{self.source_text(node)!r} cannot stand in a graph's class")
        if function is None:
            raise GraphError(f"line {cls.lineno}: class {cls.name} has no forward")
        return self.forward(function, tuple(symbols), tuple(subgraphs), title)

    def symbol(self, node: Node, name: str, text: str) -> Symbol:
        """Return the Symbol of `s0: "4 in [2, inf]"`."""
        match = re.fullmatch(r"(-?[0-9]{1,19}) in \[([^,\]]+), ([^,\]]+)\]", text)
        if not match:
            raise self.refused(node, f"{text!r:.80} is not a symbol's range: expected `4 in [2, inf]`")
        return self.checked(node, lambda: Symbol(name, int(match[1]), match[2], match[3]))

    def forward(
        self, node: ast.FunctionDef, symbols: tuple[Symbol, ...], subgraphs: tuple[tuple[str, Graph], ...], title: str
    ) -> Graph:
        """Return the Graph of a class whose `forward` this is, with the symbols, subgraphs and title that were read."""
        parameters = node.args
        stars = parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs
        # `type_params` is a field since Python 3.12.
        if node.decorator_list or parameters.defaults or stars or getattr(node, "type_params", None):
            raise self.refused(node, "decorators, defaults and star parameters are not part of a graph")
        if not parameters.args or parameters.args[0].arg != "self" or parameters.args[0].annotation:
            raise self.refused(node, "forward takes self first")
        inputs = tuple(self.port(arg.annotation, arg, arg.arg) for arg in parameters.args[1:])
        self.locals = {port.local for port in inputs}
        outputs = self.outputs(node)
        steps, results = self.body(node)
        return self.checked(node, lambda: Graph(inputs, steps, outputs, results, subgraphs, symbols, title))

    def outputs(self, node: ast.FunctionDef) -> tuple[Port, ...]:
        """Return the output ports, which a forward has as its return annotation."""
        if type(node.returns) is not ast.Tuple:
            raise self.refused(node, "forward's return annotation is a tuple of ports")
        return tuple(self.port(part, part) for part in node.returns.elts)

    def port(self, annotation: ast.AST | None, node: Node, local: str = "") -> Port:
        """Return the Port of an annotation; `node` is where an error is, and `local` an input's identifier."""
        if type(annotation) is not ast.Constant or type(annotation.value) is not str:
            raise self.refused(node, "a port is a string annotation, `SPEC ROLE NAME`")
        text = annotation.value
        return self.checked(node, lambda: _read_port(text, local))

    # ---- the steps

    def body(self, function: ast.FunctionDef) -> tuple[tuple[Step, ...], tuple[Value, ...]]:
        """Return the steps of a forward, each with the last comment above it, and the results that it returns."""
        steps: list[Step] = []
        comment: tuple[Source | None, Echo | None] = (None, None)
        end: ast.Return | None = None
        results: tuple[Value, ...] = ()
        line_before = (function.returns or function).end_lineno or 0  # where the header ends, or the statement before
        for node in self.statements() if self.statements is not None else function.body:
            if end is not None:
                raise self.refused(end, "return is a graph's last line")
            # What stands between two statements is blank, or a comment: a tree has neither.
            for index in range(line_before, node.lineno - 1):
                if line := self.lines[index].strip():
                    comment = self.comment(line, index + 1)
            line_before = node.end_lineno or node.lineno
            if type(node) is ast.Return:
                end, results = node, self.returned(node)
                continue
            steps.append(self.checked(node, functools.partial(self.read_step, node, *comment)))
        if end is None:
            raise GraphError(f"line {function.lineno}: forward does not return")
        return tuple(steps), results

    def comment(self, line: str, number: int) -> tuple[Source | None, Echo | None]:
        """Return the source and the echo that a comment has for the steps below it, as `show_comment` writes them; None
        for what it does not have. `number` is its line, for an error."""
        if line == "# -":
            return None, None
        match = _COMMENT.fullmatch(line)
        if not match or not (match["kind"] or match["file"]):
            raise RefusedError(f"line {number}: {line[:80]!r} is not a source line of a graph")
        try:
            echo = Echo(match["kind"], tuple(match["names"].split(", "))) if match["kind"] else None
        except GraphError as error:
            raise type(error)(f"line {number}: {error}") from None
        if not match["file"]:
            return None, echo
        return Source(match["file"], int(match["line"]), match["function"], match["code"], match["module"] or ""), echo

    def returned(self, node: ast.Return) -> tuple[Value, ...]:
        """Return the results that a graph returns."""
        value = self.value(node.value) if node.value is not None else None
        if type(value) is not tuple:
            raise self.refused(node, "a graph returns a tuple")
        return value

    def read_step(self, node: ast.stmt, source: Source | None, echo: Echo | None) -> Step:
        """Return the Step of a statement, as `show_step` writes it, and add its name to the locals."""
        match node:
            case ast.Assert(test=ast.Compare(ops=[_]) as test, msg=None):
                return self.guard(node, test, source, echo)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                spec = None
            case ast.AnnAssign(ast.Name(id=name), ast.Constant(value=str(text)), ast.expr() as value):
                spec = read_spec(text)
            case _:
                raise self.refused(
                    node, f"{self.source_text(node)!r} is not a step: a graph assigns the result of one call a line"
                )
        if name in self.locals:
            raise self.refused(node, f"{name!r:.80} is defined twice")
        target, args, kwargs = self.call(value)
        step = Step(name, target, args, kwargs, spec, source, echo)
        self.locals.add(name)
        return step

    def guard(self, node: ast.stmt, test: ast.Compare, source: Source | None, echo: Echo | None) -> Step:
        """Return the guard step of the comparison `test` in an `assert`: `v.shape == …`, `v == …` or `v != v`."""
        name, self.guards = f"guard_{self.guards}", self.guards + 1
        right = test.comparators[0]  # the only one: `test` has one operator
        match test.left, test.ops[0]:
            case ast.Attribute(value=ast.Name() as owner, attr="shape"), ast.Eq():
                args = self.value(owner), self.value(right)
                return Step(name, "assert_shape", args, source=source, echo=echo)
            case ast.Name() as owner, ast.Eq():
                args = self.value(owner), self.value(right)
                return Step(name, "assert_equal", args, source=source, echo=echo)
            case ast.Name() as owner, ast.NotEq() if type(right) is ast.Name and right.id == owner.id:
                return Step(name, "assert_nan", (self.value(owner),), source=source, echo=echo)
        raise self.refused(node, f"{self.source_text(node)!r} is not a guard")

    def call(self, node: ast.expr) -> tuple[str, tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        """Return the target, the arguments and the keyword arguments of a call; `x[0]` is a call of
        `operator.getitem`."""
        match node:
            case ast.Subscript(value=ast.Name() as owner, slice=index):
                return "operator.getitem", (self.value(owner), self.value(index)), ()
            case ast.Call():
                target = self.dotted(node.func)
                return target, tuple(map(self.value, node.args)), self.kwargs(node)
        raise self.refused(node, f"{self.source_text(node)!r} is not a call of an operator")

    def dotted(self, node: ast.expr) -> str:
        """Return a dotted name, `aten.mm.default`; its last part may be a keyword, `getattr(aten.random, 'from')`."""
        parts: list[str] = []
        match node:
            case ast.Call(func=ast.Name("getattr"), args=[of, ast.Constant(str(last))], keywords=[]):
                if not keyword.iskeyword(last):
                    raise self.refused(node, f"{self.source_text(node)!r} is not a dotted name")
                parts, node = [last], of
        while type(node) is ast.Attribute:
            parts.append(node.attr)
            node = node.value
        if type(node) is not ast.Name:
            raise self.refused(node, f"{self.source_text(node)!r} is not a dotted name")
        return ".".join([node.id, *reversed(parts)])

    def kwargs(self, call: ast.Call) -> tuple[tuple[str, Value], ...]:
        """Return the keyword arguments of a call, which may stand in `**{...}` (`show_call`)."""
        keywords: list[tuple[str, Value]] = []
        for part in call.keywords:
            value = self.value(part.value)
            if part.arg is not None:
                keywords.append((part.arg, value))
            elif type(value) is Dict and all(type(key) is str for key, _ in value.items):
                keywords += value.items  # type: ignore[arg-type]  # the keys were checked to be strings
            else:
                raise self.refused(call, "** takes a dictionary of names")
        if len({key for key, _ in keywords}) != len(keywords):
            raise self.refused(call, "a keyword stands twice")
        return tuple(keywords)

    # ---- values

    def value(self, node: ast.expr, depth: int = 0) -> Value:
        """Return the Value of an expression, as `show` writes it; `depth` counts the expressions around it."""
        if depth > MAX_DEPTH + 3:  # complex(-1.0, 0.0) nests three deep
            raise self.refused(node, "a value is nested too deeply")
        match node:
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                if type(value) is int and value >= MAX_INTEGER:
                    raise self.refused(node, f"an integer of {value.bit_length()} bits is not a value of a graph")
                return value
            # -2**63 is minus applied to 2**63, which by itself is too large.
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(least))) if least == MAX_INTEGER:
                return -least
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand, depth + 1)
                if isinstance(number, int | float) and not isinstance(number, bool):
                    return -number
                raise self.refused(node, f"minus of {self.source_text(operand)!r}")
            case ast.Tuple(elts=elements):
                return tuple([self.value(element, depth + 1) for element in elements])
            case ast.List(elts=elements):
                return List(tuple([self.value(element, depth + 1) for element in elements]))
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return Dict(
                    tuple(
                        (self.value(key, depth + 1), self.value(value, depth + 1))  # type: ignore[arg-type]  # no None, see above
                        for key, value in zip(keys, values, strict=True)
                    )
                )
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call(keywords=[]):
                return self.constructed(node, depth)
        raise self.refused(node, f"{self.source_text(node)!r} is not a value of a graph")

    def name(self, node: Node, name: str) -> Value:
        """Return the Value of a plain name: an earlier value, `inf` or `nan`."""
        if name in self.locals:
            return Ref(name)
        if name in ("inf", "nan"):
            return math.inf if name == "inf" else math.nan
        raise self.refused(node, f"unknown name {name!r:.80}")

    def attribute(self, node: ast.Attribute) -> Value:
        """Return the Value of a dotted name: a subgraph `self.name`, a constant of torch, or an operator as data."""
        target = self.dotted(node)
        root, _, rest = target.partition(".")
        if root == "self":
            if rest not in self.subs:
                raise self.refused(node, f"{target!r:.80} is not a subgraph of this graph")
            return Sub(rest)
        if root == "torch" and rest in ATOMS:
            return Atom(rest)
        return self.checked(node, lambda: Op(target))

    def constructed(self, node: ast.Call, depth: int) -> Value:
        """Return the Value of a call that makes one: a device, a slice or a complex number. `depth` counts the
        expressions around it."""
        maker = self.dotted(node.func)
        args = [self.value(argument, depth + 1) for argument in node.args]
        match maker, args:
            case "torch.device", [str(name)]:
                return self.checked(node, lambda: Device(name))
            case "slice", [start, stop, step]:
                return Slice(start, stop, step)
            case "complex", [int() | float() as real, int() | float() as imaginary]:
                return complex(real, imaginary)
        raise self.refused(
            node, f"{self.source_text(node)!r} is not a value: a graph's values are literals, names and torch constants"
        )
