"""The flat text of a folded one. Nothing is run: statements are rewritten, once for each iteration, and what comes out
is read as any text of a graph is.

A loop that would write more than a graph's text may have is refused before it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeGuard

from backprint.errors import RefusedError
from backprint.graph.folding.evaluate import (
    PLACES,
    Numbers,
    evaluated,
    filled_pattern,
    name_rule,
    of_iteration,
    refused_at,
)
from backprint.graph.folding.series import INDEXES
from backprint.graph.text import HEADER, MAX_CHARACTERS, quote, tree_of

MAX_STATEMENTS = 250_000
"""How many statements, and ports, loops may write in all: five times the steps that a graph's text may have."""

MAX_LOOPS = len(INDEXES)
"""How deep loops may nest."""

FIRST = 'port.partition(":")[0]'
OPENING = f'v = {{"None": None, **dict(zip(({FIRST} for port in self.inputs), given))}}'
CLOSING = f"return tuple(v[{FIRST}] for port in self.outputs)"

Piece: TypeAlias = "str | Callable[[Expansion], str]"


def is_folded(text: str) -> bool:
    """Whether a text is that of a folded graph."""
    return "\n    def forward(self, *given):\n" in text


def flat_text(text: str) -> str:
    """Return the flat text of a folded one; raise RefusedError for a text that is none, or whose loops are too long."""
    tree, lines = tree_of(text)
    try:
        return Expander(lines).text(tree)
    except RecursionError:
        raise RefusedError("the text is nested too deeply to be a graph (RecursionError)") from None


@dataclass(slots=True)
class Expansion:
    """What is known while statements are written."""

    numbers: Numbers = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Short name -> name in the flat graph."""
    out: list[str] = field(default_factory=list)
    size: int = 0
    said: str = "# -"

    def write(self, line: str) -> None:
        """Write a line."""
        self.out.append(line)
        self.size += len(line) + 1
        if self.size > MAX_CHARACTERS:
            raise RefusedError(f"the loops write more than {MAX_CHARACTERS:,} characters, the most that are read")


Written: TypeAlias = Callable[[Expansion], None]
"""Writes one statement of the folded text."""


class Expander:
    """Reads the tree of a folded text, and writes the flat one."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.comment: tuple[str, bool] | None = None
        self.types: dict[tuple[int, ...], str] = {}

    def source(self, node: ast.AST) -> str:
        """Return the text of a node, which stands on one line."""
        line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if line != end:
            raise refused_at(node, "a statement of a folded graph stands on one line")
        text = self.lines[line - 1].encode()
        return text[node.col_offset : node.end_col_offset].decode()  # type: ignore[attr-defined]  # has a place

    # ---- the class

    def text(self, tree: ast.Module) -> str:
        """Return the flat text."""
        cls = tree.body[-1] if tree.body else tree
        if not isinstance(cls, ast.ClassDef) or cls.name != "GraphModule":
            raise refused_at(cls, "a folded graph ends with one class GraphModule")
        out = self.lines[: cls.lineno - 1]
        if HEADER.split("\n")[0] not in out:
            raise refused_at(cls, "the header of a graph is missing")
        expansion = Expansion()
        for line in [*out, self.lines[cls.lineno - 1]]:
            expansion.write(line)
        *members, function = cls.body
        if not isinstance(function, ast.FunctionDef) or function.name != "forward":
            raise refused_at(function, "the class of a folded graph ends with its forward")
        lists = {}
        for member in members:
            match member:
                case ast.Assign(targets=[ast.Name(id="inputs" | "outputs" as name)], value=ast.List(elts=rows)):
                    lists[name] = [row for each in rows for row in self.rows(each)]
                case _:
                    for number in range(member.lineno - 1, member.end_lineno or member.lineno):
                        expansion.write(self.lines[number])
        if lists.keys() != {"inputs", "outputs"}:
            raise refused_at(cls, "a folded graph has the lists inputs and outputs")
        self.signature(expansion, lists["inputs"], lists["outputs"])
        self.body(function, expansion)
        results = [checked_name(row.partition(": ")[0]) for row in lists["outputs"]]
        expansion.write(f"        return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return "\n".join([*expansion.out, ""])

    def signature(self, expansion: Expansion, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Write the ports."""
        expansion.write("    def forward(")
        expansion.write("        self,")
        for row in inputs:
            name, _, port = row.partition(": ")
            expansion.write(f"        {checked_name(name)}: {quote(port)},")
        expansion.write("    ) -> (" if outputs else "    ) -> ():")
        for row in outputs:
            expansion.write(f"        {quote(row.partition(': ')[2])},")
        if outputs:
            expansion.write("    ):")

    def rows(self, node: ast.expr) -> Iterator[str]:
        """Yield the ports of an element of a list: one, or those of a loop."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Starred(
                value=ast.GeneratorExp(
                    elt=ast.Name(id="port"),
                    generators=[
                        ast.comprehension(target=ast.Name(id="i"), iter=ast.Call() as count, ifs=[]),
                        ast.comprehension(target=ast.Name(id="port"), iter=ast.Tuple(elts=rows), ifs=[]),
                    ],
                )
            ):
                self.check_length(node, self.count_of(count) * len(rows))
                for place in range(self.count_of(count)):
                    for row in rows:
                        yield str(evaluated(row, {"i": place}))
            case _:
                raise refused_at(node, "a list of ports has texts, and loops over i of texts")

    def count_of(self, node: ast.expr) -> int:
        """Return the iterations of `range(126)`."""
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))], keywords=[]):
                if type(count) is int and 0 < count <= MAX_STATEMENTS:
                    return count
                raise refused_at(node, f"a loop of {count} iterations; at most {MAX_STATEMENTS:,} are read")
        raise refused_at(node, "a loop of a folded graph is over range(N)")

    # ---- statements

    def body(self, function: ast.FunctionDef, expansion: Expansion) -> None:
        """Write the steps."""
        given = function.args
        if [each.arg for each in given.args] != ["self"] or given.vararg is None or given.vararg.arg != "given":
            raise refused_at(function, "the forward of a folded graph takes self and *given")
        opening, *steps, closing = function.body if len(function.body) > 1 else [function.body[0]] * 2
        if self.source(opening) != OPENING or self.source(closing) != CLOSING:
            wanted = f"begins with `{OPENING}` and ends with `{CLOSING}`"
            raise refused_at(opening, f"the forward of a folded graph {wanted}")
        self.check_length(function, self.length(steps))
        for write in self.statements(steps, opening.end_lineno or 0, 0):
            write(expansion)

    def length(self, nodes: Sequence[ast.stmt]) -> int:
        """Return how many statements are written, or more: those of one iteration count in each."""
        total = 0
        for node in nodes:
            match node:
                case ast.For(iter=count, body=body):
                    total += self.count_of(count) * (1 + self.length(body))
                case ast.If(body=body):
                    total += 1 + self.length(body)
                case _:
                    total += 1
        return total

    def check_length(self, node: ast.AST, length: int) -> None:
        """Raise if loops write too much."""
        if length > MAX_STATEMENTS:
            raise refused_at(
                node, f"the loops write {length:,} statements or ports; at most {MAX_STATEMENTS:,} are read"
            )

    def statements(self, nodes: Sequence[ast.stmt], last: int, depth: int) -> list[Written]:
        """Return what writes each of some statements; comments stand between them."""
        found = []
        for node in nodes:
            self.read_comments(last, node.lineno - 1, depth)
            found.append(self.statement(node, depth))
            last = node.end_lineno or node.lineno
        return found

    def read_comments(self, first: int, end: int, depth: int) -> None:
        """Read the comment above a statement; it holds until the next one. What it says of types is the statement's."""
        lines = [line.strip() for line in self.lines[first:end] if line.strip()]
        types = [re.fullmatch(rf"# type at ({PLACES}): (.*)", line) for line in lines if depth]
        self.types = {tuple(map(int, found[1].split(", "))): found[2] for found in types if found}
        said = lines[: len(lines) - len(self.types)]
        if said:
            self.comment = "\n".join(said), depth > 0

    def statement(self, node: ast.stmt, depth: int) -> Written:
        """Return what writes a statement."""
        match node:
            case ast.For(target=ast.Name(id=index), iter=count, orelse=[]):
                if depth >= MAX_LOOPS or index != INDEXES[depth]:
                    raise refused_at(
                        node, f"loops nest at most {MAX_LOOPS} deep, with the indexes {', '.join(INDEXES)}"
                    )
                times = self.count_of(count)
                return looped(index, times, self.statements(node.body, node.lineno, depth + 1))
            case ast.If(
                test=ast.Compare(ast.Name(id=index), [ast.Eq()], [ast.Constant(value=int(place))]), orelse=[]
            ) if index in INDEXES[:depth]:
                return only(index, place, self.statements(node.body, node.lineno, depth))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Subscript() as value) if isinstance(
                value, ast.Name
            ) or is_value(value):
                return renaming(name, self.pieces(value, value))
        return self.step_writer(node)

    def step_writer(self, node: ast.stmt) -> Written:
        """Return what writes a step or a guard."""
        comment, spec, known = self.comment_writer(), None, ""
        match node:
            case ast.Assert():
                return written_guard(comment, self.pieces(node, node))
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.AnnAssign(target=target, annotation=ast.Constant(value=str(text)), value=ast.expr() as value):
                spec, _, known = text.partition(" as ")
            case _:
                raise refused_at(
                    node, f"{self.lines[node.lineno - 1].strip()[:80]!r} is not a statement of a folded graph"
                )
        call = self.pieces(value, value)
        if isinstance(target, ast.Name):
            return written_step(comment, target.id, name_rule(known or target.id), spec, self.types, call)
        if not is_value(target):
            raise refused_at(node, "a step's result has a name, or is a value of v")
        return written_step(comment, "", self.value_name(target), spec, self.types, call)

    def comment_writer(self) -> Callable[[Expansion], str]:
        """Return what writes the comment that holds now."""
        text, looped_text = self.comment or ("# -", False)
        if not looped_text:
            return lambda expansion: text
        regular: Callable[[Numbers], str] | None = None
        odd: dict[tuple[int, ...], str] = {}
        for line in text.split("\n"):
            found = re.fullmatch(rf"# at ({PLACES}): (.*)", line)
            if found:
                odd[tuple(map(int, found[1].split(", ")))] = f"# {found[2]}"
            else:
                regular = filled_pattern(line)
        return lambda expansion: comment_of(expansion, regular, odd)

    # ---- expressions

    def pieces(self, node: ast.AST, whole: ast.AST) -> list[Piece]:
        """Return the text of a statement in pieces: as it stands, and what differs between iterations."""
        text, start = self.source(whole).encode(), whole.col_offset  # type: ignore[attr-defined]  # has a place
        found: list[Piece] = []
        at = 0
        for part, piece in self.parts(node):
            found.append(text[at : part.col_offset - start].decode())
            found.append(piece)
            at = (part.end_col_offset or 0) - start
        return [*found, text[at:].decode()]

    def parts(self, node: ast.AST) -> Iterator[tuple[ast.expr, Piece]]:
        """Yield the parts of a statement that are names, values of v and numbers, in their order."""
        match node:
            case ast.Name(id=name) if name in INDEXES:
                yield node, lambda expansion: repr(evaluated(node, expansion.numbers))
            case ast.Name(id=name):
                yield node, lambda expansion: expansion.names.get(name, name)
            case ast.Subscript(value=ast.Name(id="v")):
                value = self.value_name(node)
                yield node, lambda expansion: value(expansion.numbers)
            case (
                ast.BinOp()
                | ast.IfExp()
                | ast.Subscript(value=ast.Dict())
                | ast.Call(func=ast.Attribute(value=ast.Dict()))
            ):
                yield node, lambda expansion: number_text(evaluated(node, expansion.numbers))
            case ast.Attribute():
                if node.attr == "shape":
                    yield from self.parts(node.value)
            case ast.Call(args=args, keywords=keywords):
                for each in (*args, *(one.value for one in keywords)):
                    yield from self.parts(each)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.parts(child)

    def value_name(self, node: ast.Subscript) -> Callable[[Numbers], str]:
        """Return what makes the name of a value of v."""
        inside = node.slice

        def name(numbers: Numbers) -> str:
            found = evaluated(inside, numbers)
            if not isinstance(found, str):
                raise refused_at(node, f"{found!r:.80} is not the name of a value")
            return checked_name(found)

        return name


def is_value(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether an expression is a value of v."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "v"


def checked_name(text: str) -> str:
    """Return a name that is one, so that a line that is written has no other statement in it."""
    if not text.isidentifier():
        raise RefusedError(f"{text[:80]!r} is not the name of a value")
    return text


def number_text(value: Any) -> str:
    """Return a literal as text."""
    return "nan" if value != value else repr(value)


# ------------------------------------------------------------------ what is written


def looped(index: str, count: int, body: Sequence[Written]) -> Written:
    """Return what writes a loop."""

    def write(expansion: Expansion) -> None:
        for place in range(count):
            expansion.numbers[index] = place
            for each in body:
                each(expansion)
        del expansion.numbers[index]

    return write


def only(index: str, place: int, body: Sequence[Written]) -> Written:
    """Return what writes statements of one iteration."""

    def write(expansion: Expansion) -> None:
        if expansion.numbers[index] == place:
            for each in body:
                each(expansion)

    return write


def renaming(name: str, pieces: Sequence[Piece]) -> Written:
    """Return what gives a value another short name; nothing is written."""

    def write(expansion: Expansion) -> None:
        expansion.names[name] = joined(pieces, expansion)

    return write


def written_guard(comment: Callable[[Expansion], str], pieces: Sequence[Piece]) -> Written:
    """Return what writes a guard."""

    def write(expansion: Expansion) -> None:
        write_line(expansion, comment(expansion), joined(pieces, expansion))

    return write


def written_step(
    comment: Callable[[Expansion], str],
    local: str,
    name: Callable[[Numbers], str],
    spec: str | None,
    types: dict[tuple[int, ...], str],
    pieces: Sequence[Piece],
) -> Written:
    """Return what writes a step."""
    typed = filled_pattern(spec) if spec is not None else None

    def write(expansion: Expansion) -> None:
        flat = checked_name(name(expansion.numbers))
        own = of_iteration(types, expansion.numbers)
        annotation = f": {quote(own or typed(expansion.numbers))}" if typed else ""
        write_line(expansion, comment(expansion), f"{flat}{annotation} = {joined(pieces, expansion)}")
        if local:
            expansion.names[local] = flat

    return write


def write_line(expansion: Expansion, comment: str, line: str) -> None:
    """Write a step below its comment, unless that was said last."""
    if comment != expansion.said:
        expansion.write(f"        {comment}")
        expansion.said = comment
    expansion.write(f"        {line}")


def joined(pieces: Sequence[Piece], expansion: Expansion) -> str:
    return "".join(piece if isinstance(piece, str) else piece(expansion) for piece in pieces)


def comment_of(expansion: Expansion, regular: Callable[[Numbers], str] | None, odd: dict[tuple[int, ...], str]) -> str:
    """Return the comment of an iteration."""
    if (found := of_iteration(odd, expansion.numbers)) is not None:
        return found
    return regular(expansion.numbers) if regular else "# -"
