"""The flat text of a text with loops. Nothing of it is run: statements are written out, once for each iteration.

Unrolling proves a text with loops, in two directions. `fold.text_for_people` shows such a text only if it unrolls to
the flat text of its graph, to the letter. `sample/convert` takes the graph of a stored text only if the writer writes
that graph as the same text, to the letter. Either way the writer decides. So this module knows what the writer writes
and nothing else, and nobody believes what it makes of other texts. It limits its work, because a text of a few
kilobytes can ask for much.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from backprint.errors import GraphError, RefusedError
from backprint.graph.folding.text import MODULE, TABLES, VALUES, ZEROS
from backprint.graph.nouns import MAX_INTEGER
from backprint.graph.text import SCANNED_PIECE, quote, show, too_deep, tree_and_comments

MAX_WORK = 2**26
"""How many characters of statements are looked at in all, once for each iteration: the layers of 405B need a fifth."""

HOLE_WORK = 128
"""How many characters a hole counts for: its sum is computed anew in each iteration."""

Numbers: TypeAlias = dict[str, Any]
"""The index of each loop around a statement, the outermost first; in a function, the numbers that its call gives."""

Rule: TypeAlias = "tuple[str, Mapping[tuple[int, ...], str]]"
"""A pattern, and the iterations that have something else."""

PLACES = r"[0-9]{1,9}(?:, [0-9]{1,9})*"
HOLE = re.compile(r"(\{\{|\}\}|\{[^{}]*\})")
SUM = re.compile(r"[a-z0-9_*+\- ]{1,200}")
NO_OFFSET = re.compile(r" offset=0(?![0-9])")
"""What `offset={8*i}` is in the first iteration, and the flat text does not say."""

TABLE_NAMES = frozenset({VALUES, *TABLES.values()})


def unrolled(text: str) -> str:
    """Return the flat text of a text with loops; of another text, anything or an error."""
    tree, scanned = tree_and_comments(marked(text))
    try:
        return Unroller(scanned.lines).flat(tree)
    except RecursionError as error:
        raise too_deep(error) from None
    finally:
        for cached in (rows_of, pieces_of_rule, rule_of_lines):
            cached.cache_clear()  # they hold parts of a text that may be large


def marked(text: str) -> str:
    """Return a text with each f-string as a call, `f("...")`: to parse one takes Python the square of its holes."""
    return SCANNED_PIECE.sub(
        lambda piece: f"f({piece['short']})" if piece["short"] and piece["prefix"] == "f" else piece[0], text
    )


# ---- Expressions and patterns


def evaluated(node: ast.expr, numbers: Numbers) -> Any:
    """Return a number or a text that is made of literals and indexes."""
    match node:
        case ast.Constant(value=int() | float() | str() as value):
            return value
        case ast.Name(id=name) if name in numbers:
            return numbers[name]
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.UnaryOp(ast.USub(), operand) if isinstance(number := evaluated(operand, numbers), int | float):
            return -number
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            left_value, right_value = evaluated(left, numbers), evaluated(right, numbers)
            if type(left_value) is int and type(right_value) is int:
                total = (
                    left_value + right_value
                    if type(op) is ast.Add
                    else left_value - right_value
                    if type(op) is ast.Sub
                    else left_value * right_value
                )
                if -MAX_INTEGER <= total < MAX_INTEGER:
                    return total
        case ast.Call(ast.Name("f"), [ast.Constant(str(rule))], []):
            return filled(rule, numbers)
        case ast.IfExp(ast.Compare(left, [ast.Eq()], [right]), value, right_value):
            return evaluated(value if evaluated(left, numbers) == evaluated(right, numbers) else right_value, numbers)
        case ast.Tuple(elts=parts):
            return tuple(evaluated(part, numbers) for part in parts)
        case ast.Subscript(ast.Dict() as table, key) if (here := evaluated(key, numbers)) in rows_of(table):
            return rows_of(table)[here]
        case ast.Call(ast.Attribute(ast.Dict() as table, "get"), [key, right_value], []):
            return rows_of(table).get(evaluated(key, numbers), evaluated(right_value, numbers))
    raise at_line(node, "an expression of a text with loops is made of literals and indexes")


@lru_cache(maxsize=1 << 12)
def rows_of(table: ast.Dict) -> dict[Any, Any]:
    """Return a table of literals: the numbers of an iteration, and what it has."""
    return {
        evaluated(key, {}): evaluated(value, {}) for key, value in zip(table.keys, table.values, strict=True) if key
    }


def filled(rule: str, numbers: Numbers) -> str:
    """Return a pattern such as `view_{8+12*i}` with its sums."""
    return "".join(piece if type(piece) is str else str(evaluated(piece, numbers)) for piece in pieces_of_rule(rule))  # type: ignore[arg-type]  # the others are expressions


@lru_cache(maxsize=1 << 12)
def pieces_of_rule(rule: str) -> tuple[str | ast.expr, ...]:
    """Return the pieces of a pattern: texts, and the sums in its holes."""
    holes = HOLE.split(rule)  # each second one
    return tuple(
        piece if place % 2 == 0 else piece[0] if piece in ("{{", "}}") else sum_of(piece[1:-1])
        for place, piece in enumerate(holes)
    )


def sum_of(text: str) -> ast.expr:
    """Return the expression of a sum of indexes, `20+12*i`."""
    try:
        if SUM.fullmatch(text):
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        pass  # such as `for`, or `1+*i`
    raise GraphError(f"{text!r:.80} is not a sum of indexes")


def of_iteration(rule: Rule, numbers: Numbers) -> str:
    """Return what a rule says in an iteration; what one iteration of an outer loop has counts in all within it."""
    regular, odd = rule
    depth = len(next(iter(odd))) if odd else 0
    return odd.get(tuple(numbers.values())[:depth]) or filled(regular, numbers)


def rule_of(text: str) -> Rule:
    """Return the rule of `view_{2*i} (at 0 view; at 7 x)`."""
    start = text.find("(at ")
    if start < 0 or not text.endswith(")"):
        return text, {}
    listed = [re.fullmatch(rf"at ({PLACES}) (.*)", part) for part in text[start + 1 : -1].split("; ")]
    return text[:start].rstrip(), {index_of(match[1]): match[2] for match in listed if match}


@lru_cache(maxsize=1 << 12)
def rule_of_lines(lines: tuple[str, ...]) -> Rule:
    """Return the rule of `# [layers.{i}] model.py:12 in forward: ...` and `# at 3: ...` above a step."""
    listed = [(line, re.fullmatch(rf"# at ({PLACES}): (.*)", line)) for line in lines]
    regular = [line.removeprefix("# ") for line, match in listed if not match]
    return "".join(regular[-1:]), {index_of(match[1]): match[2] for _, match in listed if match}


def index_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(", ")))


def is_in_table(node: ast.AST) -> bool:
    """Whether an expression is `v["add_3"]`."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in TABLE_NAMES


def parts_of(node: ast.expr | None) -> list[ast.expr]:
    """Return the parts of a tuple, or a node alone."""
    return node.elts if isinstance(node, ast.Tuple) else [node] if node is not None else []


def at_line(node: ast.AST, why: str) -> RefusedError:
    return RefusedError(f"line {getattr(node, 'lineno', 0)}: {why}")


# ---- Statements


@dataclass(frozen=True, slots=True)
class Plan:
    """What the text of a statement and its comments say, read once for all iterations."""

    work: int
    comment: tuple[str, ...]
    """The lines above it that say where the program called it; empty where those above an earlier one hold."""
    types: dict[tuple[int, ...], str]
    """Types of iterations that follow no rule, from the lines above it."""
    behind: str
    """The comment behind it."""
    name: Rule
    echo: Rule
    pieces: tuple[str | ast.expr, ...]
    """Its text, with the parts that differ between iterations."""


class Unroller:
    """Follows the statements of a text with loops, and writes flat ones."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.plans: dict[int, Plan] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.zeros: dict[str, str] = {}
        """Key with a number 0 -> the name in the flat text, which leaves it out."""
        self.keys = {"None": "None"}
        """Key -> name in the flat text, of all that is in the tables."""
        self.names: dict[str, str] = {}
        """Short name -> name in the flat text."""
        self.numbers: Numbers = {}
        self.comment: tuple[str, ...] = ()
        self.of_call = ""
        """In a function: the line of the program, or the module, that its call says."""
        self.is_called = False
        self.last_comment = "# -"
        self.out: list[str] = []
        self.left = MAX_WORK

    def spend(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise RefusedError(f"the loops look at more than {MAX_WORK:,} characters, the most that are read")

    def flat(self, tree: ast.Module) -> str:
        """Return the flat text."""
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        cls = tree.body[-1] if tree.body else None
        if not isinstance(cls, ast.ClassDef) or not isinstance(cls.body[-1], ast.FunctionDef):
            raise GraphError("a text with loops ends with one class GraphModule")
        first = next(iter(self.functions.values()), cls)
        self.out += [*self.lines[: first.lineno - 1], self.lines[cls.lineno - 1]]
        inputs, outputs = self.members(cls.body[:-1])
        self.signature(inputs, outputs)
        opening, *steps = cls.body[-1].body[:-1] or cls.body[-1].body
        self.statements(steps, opening.end_lineno or 0)
        results = [self.keyed(row.partition(": ")[0]) for row in outputs]
        self.out.append(f"        return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return "\n".join([*self.out, ""])

    # ---- the class

    def members(self, nodes: Sequence[ast.stmt]) -> tuple[list[str], list[str]]:
        """Return the rows of the inputs and of the outputs; write what else the class has."""
        ports: dict[str, list[str]] = {}
        for node in nodes:
            match node:
                case ast.Assign([ast.Name("inputs" | "outputs" as name)], ast.List(elements)):
                    ports[name] = [row for element in elements for row in self.rows(element)]
                case ast.Assign([ast.Name(name)], ast.List(elements)) if name == ZEROS:
                    keys = [str(evaluated(element, {})) for element in elements]
                    self.zeros = {key: key.removesuffix("_0") for key in keys}
                case _:
                    self.out += self.lines[node.lineno - 1 : node.end_lineno]
                    self.out += [""] if isinstance(node, ast.Assign) else []  # below a subgraph
        return ports.get("inputs", []), ports.get("outputs", [])

    def rows(self, node: ast.expr) -> Iterator[str]:
        """Yield the ports of an element of a list: one, or those of `*(port for i in range(9) for port in (...))`."""
        match node:
            case ast.Starred(ast.GeneratorExp(_, [ast.comprehension(_, count), ast.comprehension(_, ast.Tuple(rows))])):
                for place in self.iterations(count):
                    self.spend(HOLE_WORK)
                    for row in rows:
                        text = str(evaluated(row, {"i": place}))
                        self.spend(HOLE_WORK + len(text))
                        yield text
            case _:
                yield str(evaluated(node, {}))

    def iterations(self, node: ast.expr) -> range:
        match node:
            case ast.Call(ast.Name("range"), [ast.Constant(int(count))], []):
                return range(count)
        raise at_line(node, "a loop of a text with loops is over range(N)")

    def signature(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Write the ports."""
        self.out += ["    def forward(", "        self,"]
        for row in inputs:
            key, port = self.port(row)
            self.keys[key] = self.zeros.get(key, key)
            self.out.append(f"        {self.keys[key]}: {quote(port)},")
        self.out.append("    ) -> (" if outputs else "    ) -> ():")
        self.out += [f"        {quote(self.port(row)[1])}," for row in outputs]
        self.out += ["    ):"] if outputs else []

    def port(self, row: str) -> tuple[str, str]:
        """Return the key of a port and its annotation; one that has its value's name has it as the flat text does."""
        key, _, port = row.partition(": ")
        flat = self.zeros.get(key)
        return key, f"{port.removesuffix(f' {key}')} {flat}" if flat and port.endswith(f" {key}") else port

    def keyed(self, key: str) -> str:
        """Return the name in the flat text of what is in the tables."""
        if key not in self.keys:
            raise GraphError(f"{key!r:.80} is taken before a step computes it")
        return self.keys[key]

    # ---- statements

    def statements(self, nodes: Sequence[ast.stmt], last: int) -> None:
        """Write statements; `last` is the line above their comments."""
        for node in nodes:
            plan = self.plans.get(id(node)) or self.plan(node, last)
            last = node.end_lineno or node.lineno
            self.spend(plan.work)
            self.comment = plan.comment or self.comment
            match node:
                case ast.For(ast.Name(index), count, body):
                    for place in self.iterations(count):
                        self.numbers[index] = place
                        self.statements(body, node.lineno)
                    self.numbers.pop(index, None)
                case ast.If(ast.Compare(ast.Name(index), [ast.Eq()], [ast.Constant(place)]), body):
                    if self.numbers.get(index) == place:
                        self.statements(body, node.lineno)
                case ast.Assign([ast.Name(name)], value) if isinstance(value, ast.Name) or is_in_table(value):
                    self.names[name] = self.value(value)
                case ast.Assign([target], ast.Call(ast.Name(name), given)) if name in self.functions:
                    self.call(target, self.functions[name], given, plan)
                case ast.Assert():
                    self.write_step(plan, self.joined(plan))
                case ast.Assign([target], _) | ast.AnnAssign(target, ast.Constant(str()), ast.expr()):
                    self.step(node, target, plan)
                case _:
                    raise at_line(node, "this is not a statement of a text with loops")

    def plan(self, node: ast.stmt, last: int) -> Plan:
        """Read the comments of a statement, and its text in pieces."""
        above = [line for line in map(str.strip, self.lines[last : node.lineno - 1]) if line]
        kinds = [re.fullmatch(rf"# type at ({PLACES}): (.*)", line) if self.numbers else None for line in above]
        types = {index_of(kind[1]): kind[2] for kind in kinds if kind}
        comment = tuple(line for line, kind in zip(above, kinds, strict=True) if not kind)
        is_block = isinstance(node, ast.For | ast.If)
        end = node.lineno if is_block else node.end_lineno or node.lineno
        text = "\n".join(self.lines[last:end])
        work = 1 + len(text) + HOLE_WORK * text.count("{")
        if is_block:
            plan = Plan(work, comment, types, "", ("", {}), ("", {}), ())
        else:
            if node.lineno != end:
                raise at_line(node, "a statement of a text with loops stands on one line")
            behind = self.lines[end - 1].encode()[node.end_col_offset :].decode().strip().removeprefix("# ")
            echo_text = behind.removesuffix(";")
            name, _, echo = echo_text[3:].partition(": ") if echo_text.startswith("as ") else ("", "", echo_text)
            whole = getattr(node, "value", None) or node
            plan = Plan(work, comment, types, behind, rule_of(name), rule_of(echo), tuple(self.pieces(whole)))
        self.plans[id(node)] = plan
        return plan

    def call(self, target: ast.expr, function: ast.FunctionDef, arguments: Sequence[ast.expr], plan: Plan) -> None:
        """Write the steps of a function for one call of it, which gives it values and numbers."""
        names: dict[str, str] = {}
        numbers: Numbers = {}
        for parameter, argument in zip(function.args.args, arguments, strict=False):
            if is_in_table(argument) or (isinstance(argument, ast.Name) and argument.id not in self.numbers):
                names[parameter.arg] = self.value(argument)
            else:
                numbers[parameter.arg] = evaluated(argument, self.numbers)
        for part in filter(None, plan.behind.split(", ")):
            mark, _, rule = part.partition("=")
            numbers[mark] = evaluated(sum_of(rule), self.numbers)
        around = self.numbers, self.names, self.comment, self.of_call
        of_call = self.line_of_program()
        self.numbers, self.names, self.comment, self.of_call, self.is_called = numbers, names, (), of_call, True
        self.statements(function.body[:-1], function.lineno)
        results = [self.value(result) for result in parts_of(getattr(function.body[-1], "value", None))]
        self.numbers, self.names, self.comment, self.of_call, self.is_called = *around, False
        for name, result in zip(parts_of(target), results, strict=False):
            self.bind(name, result)

    def step(self, node: ast.stmt, target: ast.expr, plan: Plan) -> None:
        """Write a step, under the name that it has in the flat text."""
        annotation = ""
        if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Constant):
            spec = of_iteration((str(node.annotation.value), plan.types), self.numbers)
            annotation = f": {quote(NO_OFFSET.sub('', spec))}"
        name = of_iteration(plan.name, self.numbers) or (
            target.id if isinstance(target, ast.Name) else self.key(target)
        )
        name = self.zeros.get(name, name)
        self.write_step(plan, f"{name}{annotation} = {self.joined(plan)}")
        self.bind(target, name)

    def write_step(self, plan: Plan, line: str) -> None:
        """Write a step below its comment, unless that was written last."""
        echo = re.sub(r"\w+", lambda word: self.zeros.get(word[0], word[0]), of_iteration(plan.echo, self.numbers))
        source = "" if plan.behind.endswith(";") else self.line_of_program()
        comment = f"# {f'{echo}; {source}'.strip() if echo else source or '-'}"
        if comment != self.last_comment:
            self.out.append(f"        {comment}")
            self.last_comment = comment
        self.out.append(f"        {line}")
        self.spend(len(line))

    def line_of_program(self) -> str:
        """Return the line of the program that the comments above say, or the call of the function."""
        if not self.comment:
            return self.of_call
        if self.is_called and self.comment[0].startswith(f"# [{MODULE}] "):
            return f"{self.of_call} {filled(self.comment[0].removeprefix(f'# [{MODULE}] '), self.numbers)}"
        if not self.numbers and not self.is_called:
            return self.comment[0].removeprefix("# ")
        return of_iteration(rule_of_lines(self.comment), self.numbers)

    # ---- values

    def bind(self, target: ast.expr, name: str) -> None:
        """Note the name that a value has in the flat text."""
        if isinstance(target, ast.Name):
            self.names[target.id] = name
        else:
            self.keys[self.key(target)] = name

    def key(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Subscript):
            raise at_line(node, "a step's result has a name, or is a value of v")
        return str(evaluated(node.slice, self.numbers))

    def value(self, node: ast.expr) -> str:
        """Return the name in the flat text of a value, or a number, as text."""
        match node:
            case ast.Name(name) if name in self.names:
                return self.names[name]
            case ast.Subscript() if is_in_table(node):
                return self.keyed(self.key(node))
        return show(evaluated(node, self.numbers))

    def joined(self, plan: Plan) -> str:
        return "".join(piece if isinstance(piece, str) else self.value(piece) for piece in plan.pieces)

    def pieces(self, node: ast.stmt | ast.expr) -> Iterator[str | ast.expr]:
        """Yield the text of a statement in pieces: as it stands, and the parts that differ between iterations."""
        line = self.lines[node.lineno - 1].encode()
        at = node.col_offset
        for part in self.parts(node):
            yield line[at : part.col_offset].decode()
            yield part
            at = part.end_col_offset or 0
        yield line[at : node.end_col_offset].decode()

    def parts(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the parts of a statement that are names, values of tables and numbers, in their order."""
        match node:
            case ast.Name() | ast.BinOp() | ast.IfExp() | ast.UnaryOp(operand=ast.Name()):
                yield node
            case ast.Subscript(ast.Dict()) | ast.Call(ast.Attribute(ast.Dict())):
                yield node
            case ast.Subscript() if is_in_table(node):
                yield node
            case ast.Attribute(value, attribute):
                if attribute == "shape":
                    yield from self.parts(value)
            case ast.Call(_, arguments, keywords):
                for part in (*arguments, *(keyword.value for keyword in keywords)):
                    yield from self.parts(part)
            case ast.Dict(keys, values):  # Python lists all keys first
                for item in itertools.chain.from_iterable(zip(keys, values, strict=True)):
                    yield from self.parts(item) if item is not None else ()
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.parts(child)
