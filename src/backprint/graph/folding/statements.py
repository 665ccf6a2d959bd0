"""Read the statements of a folded text: each becomes what writes its flat statements. Nothing is run."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard

from backprint.errors import RefusedError
from backprint.graph.folding.evaluate import (
    PLACES,
    evaluated,
    filled_numbers,
    filled_pattern,
    filled_with_odd,
    of_iteration,
    refused_at,
)
from backprint.graph.folding.function_text import MODULE
from backprint.graph.folding.names import BUILTINS, MARKS, RESERVED, TABLES, VALUES
from backprint.graph.folding.series import INDEXES
from backprint.graph.folding.written import (
    Assigned,
    Behind,
    Expansion,
    Piece,
    Said,
    Template,
    Written,
    checked_name,
    looped,
    number_text,
    only,
    renaming,
    written_call,
    written_guard,
    written_step,
)
from backprint.graph.nouns import ECHOES

MAX_STATEMENTS = 250_000
"""How many statements, and ports, loops may write in all: five times the steps that a graph's text may have."""

MAX_WORK = 2**26
"""How many characters may be looked at in all while loops are written."""

HOLE_WORK = 128
"""How many characters a hole counts for: its sum is evaluated anew in each iteration."""

MAX_LOOPS = len(INDEXES)
"""How deep loops may nest."""


class Statements:
    """Reads the statements of a folded text."""

    def __init__(self, lines: Sequence[str], beside: Iterable[int]) -> None:
        self.lines = lines
        self.beside = set(beside)
        """The lines with a comment beside code that was not read yet."""
        self.functions: dict[str, Template] = {}
        self.tables: tuple[str, ...] = ()
        """The names of the table of values; a function has none."""
        self.asks = False
        """Whether a step of the function that is read has the line, or the module, that its call says."""
        self.comment: tuple[str, bool] | None = None
        self.types: dict[tuple[int, ...], str] = {}

    def source(self, node: ast.AST) -> str:
        """Return the text of a node, which stands on one line."""
        line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        if line != end:
            raise refused_at(node, "a statement of a folded graph stands on one line")
        text = self.lines[line - 1].encode()
        return text[node.col_offset : node.end_col_offset].decode()  # type: ignore[attr-defined]  # has a place

    def count_of(self, node: ast.expr) -> int:
        """Return the iterations of `range(126)`."""
        match node:
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))], keywords=[]):
                if type(count) is int and 0 < count <= MAX_STATEMENTS:
                    return count
                said = self.source(node)[len("range(") : -1]
                raise refused_at(node, f"a loop of {said:.40} iterations; at most {MAX_STATEMENTS:,} are read")
        raise refused_at(node, "a loop of a folded graph is over range(N)")

    def length(self, nodes: Sequence[ast.stmt]) -> int:
        """Return how many statements are written, or more: those of one iteration count in each."""
        total = 0
        for node in nodes:
            match node:
                case ast.For(iter=count, body=body):
                    total += self.count_of(count) * (1 + self.length(body))
                case ast.If(body=body):
                    total += 1 + self.length(body)
                case ast.Assign(value=ast.Call(func=ast.Name(id=name))) if name in self.functions:
                    total += 1 + len(self.functions[name].body)
                case _:
                    total += 1
        return total

    def work(self, nodes: Sequence[ast.stmt], last: int) -> int:
        """Return how many characters are looked at while statements are written, once for each iteration."""
        total = 0
        for node in nodes:
            end = node.end_lineno or node.lineno
            match node:
                case ast.For(iter=count, body=body):
                    total += self.count_of(count) * self.work(body, last)
                case ast.If(body=body):
                    total += self.work(body, last)
                case _:
                    total += sum(len(line) + HOLE_WORK * line.count("{") for line in self.lines[last:end])
                    match node:
                        case ast.Assign(value=ast.Call(func=ast.Name(id=name))) if name in self.functions:
                            total += self.functions[name].length
            last = end
        return total

    def check_length(self, node: ast.AST, length: int) -> None:
        """Raise if loops write too much."""
        if length > MAX_STATEMENTS:
            raise refused_at(
                node, f"the loops write {length:,} statements or ports; at most {MAX_STATEMENTS:,} are read"
            )

    # ---- functions

    def add_function(self, node: ast.FunctionDef) -> None:
        """Read a function."""
        parameters = [each.arg for each in node.args.args]
        plain = f"def {node.name}({', '.join(parameters)}):"
        if self.lines[node.lineno - 1] != plain or node.decorator_list:
            raise refused_at(node, f"a function of a folded graph is one line here: `{plain}`")
        clash = node.name in BUILTINS or any(map(self.is_taken, (node.name, *parameters)))
        if clash or set(parameters) & {*MARKS}:
            raise refused_at(node, f"`{plain}` takes a name that the text has already")
        if len({node.name, *parameters}) <= len(parameters):
            raise refused_at(node, f"`{plain}` has a name twice")
        *steps, end = node.body
        results = names_returned(end)
        if not results or not set(results) <= {name for step in steps for name in names_assigned(step)}:
            raise refused_at(end, "a function of a folded graph ends with `return` and the names of steps of its own")
        self.comment, self.asks = None, False
        body = []
        last = node.lineno
        for step in steps:
            if set(names_assigned(step)) & {*parameters}:
                raise refused_at(step, f"a step's result has the name of an argument of {node.name}")
            self.read_comments(last, step.lineno - 1, 1)
            body.append(self.step_writer(step, inside=True))
            last = step.end_lineno or step.lineno
        self.comment = None
        length = sum(len(line) + HOLE_WORK * line.count("{") for line in self.lines[node.lineno : last])
        self.functions[node.name] = Template(tuple(parameters), tuple(body), results, self.asks, length)

    def is_taken(self, name: str) -> bool:
        """Whether a text has a name already, or Python changes it within a class."""
        return name in RESERVED or name in self.functions or name.startswith("__")

    def call_writer(self, node: ast.Assign, name: str, call: ast.Call) -> Written:
        """Return what writes the steps of a call of a function."""
        function, (target,) = self.functions[name], node.targets
        targets = target.elts if isinstance(target, ast.Tuple) and len(target.elts) > 1 else [target]
        if len(call.args) != len(function.parameters) or call.keywords or len(targets) != len(function.results):
            raise refused_at(
                node,
                f"{name} is called with {len(call.args)} arguments for {len(targets)} results, but takes "
                f"{len(function.parameters)} for {len(function.results)}",
            )
        marks = filled_numbers(self.behind_text(node))
        given = [self.given(each) for each in call.args]
        source = self.comment_writer() if function.asks else unsaid
        return written_call(function, source, given, marks, [self.target(each) for each in targets])

    def given(self, node: ast.expr) -> Callable[[Expansion], Any]:
        """Return what a call gives for an argument: a value as text, or a number."""
        if is_value(node) or (isinstance(node, ast.Name) and node.id not in INDEXES):
            pieces = self.pieces(node, node)
            return lambda expansion: "".join(piece if isinstance(piece, str) else piece(expansion) for piece in pieces)

        def number(expansion: Expansion) -> Any:
            found = evaluated(node, expansion.numbers)
            if isinstance(found, str):
                raise refused_at(node, "an argument of a function is a value or a number")
            return found

        return number

    # ---- statements

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
            case ast.Assign(targets=[ast.Name()], value=ast.Name() | ast.Subscript() as value) if isinstance(
                value, ast.Name
            ) or is_value(value):
                return renaming(self.target(node.targets[0]).short, self.pieces(value, value))
            case ast.Assign(targets=[_], value=ast.Call(func=ast.Name(id=name)) as call) if name in self.functions:
                return self.call_writer(node, name, call)
        return self.step_writer(node)

    def step_writer(self, node: ast.stmt, inside: bool = False) -> Written:
        """Return what writes a step or a guard; `inside`: of a function."""
        behind, spec = self.behind(node), None
        source = unsaid if behind.unseen else self.comment_writer(inside)
        match node:
            case ast.Assert() if not inside:
                return written_guard(source, behind, self.pieces(node, node))
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.AnnAssign(target=target, annotation=ast.Constant(value=str(text)), value=ast.expr() as value):
                spec = text
            case _:
                raise refused_at(
                    node, f"{self.lines[node.lineno - 1].strip()[:80]!r} is not a statement of a folded graph"
                )
        return written_step(source, behind, self.target(target), spec, self.types, self.pieces(value, value))

    def target(self, node: ast.expr) -> Assigned:
        """Return what a statement assigns to."""
        if isinstance(node, ast.Name):
            if self.is_taken(node.id) or (not self.tables and node.id in MARKS):
                raise refused_at(node, f"a step's result is named {node.id!r}, which the text has already")
            return Assigned(node.id)
        if not is_value(node):
            raise refused_at(node, "a step's result has a name, or is a value of v")
        return Assigned("", self.key(node))

    # ---- comments

    def behind_text(self, node: ast.stmt) -> str:
        """Return the comment behind a statement, without its mark."""
        self.beside.discard(node.end_lineno or 0)
        line = self.lines[(node.end_lineno or 0) - 1].encode()
        text = line[node.end_col_offset :].decode().strip()
        if text and not text.startswith("# "):
            raise refused_at(node, f"{text[:80]!r} behind a statement")
        return text.removeprefix("# ")

    def behind(self, node: ast.stmt) -> Behind:
        """Return what the comment behind a step says."""
        text = self.behind_text(node)
        unseen = text.endswith(";")
        text = text.removesuffix(";")
        name, _, echo = text[3:].partition(": ") if text.startswith("as ") else ("", "", text)
        if echo and not echo.startswith((*(f"{kind} " for kind in ECHOES), "(at ")):
            raise refused_at(node, f"{echo[:80]!r} does not say how a step relates to the other direction")
        return Behind(named_in_flat(name) if name else None, echoed(echo) if echo else None, unseen)

    def comment_writer(self, inside: bool = False) -> Said:
        """Return what writes the line of the program that holds now; `inside` a function that has none, its call's."""
        if self.comment is None and inside:
            self.asks = True
            return lambda expansion: expansion.source
        if self.comment is None:
            return unsaid
        text, looped_text = self.comment
        if not looped_text:
            return lambda expansion: text.removeprefix("# ")
        regular, odd = None, {}
        for line in text.split("\n"):
            found = re.fullmatch(rf"# at ({PLACES}): (.*)", line)
            if found:
                odd[tuple(map(int, found[1].split(", ")))] = found[2]
            elif inside and line.startswith(f"# [{MODULE}] "):
                self.asks, rest = True, filled_pattern(line.removeprefix(f"# [{MODULE}] "))
                return lambda expansion: f"{expansion.source} {rest(expansion.numbers)}"
            else:
                regular = filled_pattern(line.removeprefix("# "))
        return lambda expansion: of_iteration(odd, expansion.numbers) or (regular(expansion.numbers) if regular else "")

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
            case ast.Name(id=name):
                yield node, lambda expansion: named_value(name, expansion)
            case ast.Subscript() if is_value(node):
                key = self.key(node)
                yield node, lambda expansion: checked_name(expansion.flat(key(expansion)))
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
            case ast.Dict(keys, values):  # `ast` lists all keys first
                for part in itertools.chain.from_iterable(zip(keys, values, strict=True)):
                    if part is not None:
                        yield from self.parts(part)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.parts(child)

    def key(self, node: ast.Subscript) -> Said:
        """Return what makes the key of a value of v."""
        inside = node.slice
        if not isinstance(node.value, ast.Name) or node.value.id not in self.tables:
            raise refused_at(node, "the text has no such table of values here")

        def key(expansion: Expansion) -> str:
            found = evaluated(inside, expansion.numbers)
            if not isinstance(found, str):
                raise refused_at(node, f"{found!r:.80} is not the name of a value")
            return checked_name(found)

        return key


def names_returned(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement returns; empty for any other statement."""
    match node:
        case ast.Return(value=ast.Name(id=name)):
            return (name,)
        case ast.Return(value=ast.Tuple(elts=[_, _, *_] as elements)):
            names = tuple(each.id for each in elements if isinstance(each, ast.Name))
            return names if len(names) == len(elements) else ()
    return ()


def names_assigned(node: ast.stmt) -> list[str]:
    """Return the short names that a statement assigns to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [each.id for each in targets if isinstance(each, ast.Name)]


def is_value(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether an expression is a value of v."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in (VALUES, *TABLES.values())
    )


def unsaid(_: Expansion) -> str:
    """Say no line of the program."""
    return ""


def named_value(name: str, expansion: Expansion) -> str:
    """Return what stands for a name: an index or a size, or a value by its name in the flat graph."""
    if name in expansion.numbers:
        return number_text(expansion.numbers[name])
    if name not in expansion.names and name not in ("inf", "nan"):
        raise RefusedError(f"{name[:80]!r} is taken before a step computes it")
    return expansion.names.get(name, name)


def named_in_flat(text: str) -> Said:
    """Return what makes the name of a step in the flat graph."""
    rule = filled_with_odd(text)

    def name(expansion: Expansion) -> str:
        found = rule(expansion.numbers)
        return expansion.zeros.get(found, found)

    return name


def echoed(text: str) -> Said:
    """Return what makes the echo of a step."""
    rule = filled_with_odd(text)

    def echo(expansion: Expansion) -> str:
        found = rule(expansion.numbers)
        kind = next((kind for kind in ECHOES if found.startswith(f"{kind} ")), "")
        if not kind:
            raise RefusedError(f"{found[:80]!r} does not say how a step relates to the other direction")
        names = found.removeprefix(f"{kind} ").split(", ")
        return f"{kind} {', '.join(expansion.zeros.get(name, name) for name in names)}"

    return echo
