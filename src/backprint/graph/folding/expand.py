"""The flat text of a folded one. Nothing is run: statements are rewritten, once for each iteration, and what comes out
is read as any text of a graph is.

A loop that would write more than a graph's text may have is refused before it is written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from backprint.errors import RefusedError
from backprint.graph.folding.evaluate import evaluated, refused_at
from backprint.graph.folding.names import MEMBERS, TABLES, VALUES
from backprint.graph.folding.statements import MAX_WORK, Statements
from backprint.graph.folding.text import CLOSING, FORWARD, ZEROS, opening
from backprint.graph.folding.written import Expansion, checked_name
from backprint.graph.scan import MAX_CHARACTERS, Scanned
from backprint.graph.text import HEADER, quote, too_deep, tree_and_comments


def is_folded(text: str) -> bool:
    """Whether a text is that of a folded graph."""
    return f"\n{FORWARD}\n" in text


def flat_text(text: str) -> str:
    """Return the flat text of a folded one; raise RefusedError for a text that is none, or whose loops are too long."""
    return flat_of(*tree_and_comments(text, patterns=True))


def flat_of(tree: ast.Module, scanned: Scanned) -> str:
    """Return the flat text of a folded one, whose tree is known."""
    try:
        return Expander(scanned.lines, scanned.beside).text(tree)
    except RecursionError as error:
        raise too_deep(error) from None


class Expander:
    """Reads the tree of a folded text, and writes the flat one."""

    def __init__(self, lines: Sequence[str], beside: Sequence[int]) -> None:
        self.lines = lines
        self.statements = Statements(lines, beside)
        self.expansion = Expansion()
        self.listed = 0
        """How many ports loops have written."""
        self.characters = 0

    def text(self, tree: ast.Module) -> str:
        """Return the flat text."""
        *before, cls = tree.body or [ast.Pass()]
        if not isinstance(cls, ast.ClassDef) or cls.name != "GraphModule" or cls.decorator_list:
            raise refused_at(cls, "a folded graph ends with one class GraphModule")
        functions = [node for node in before if isinstance(node, ast.FunctionDef)]
        if functions and before[-len(functions) :] != functions:
            raise refused_at(before[-1], "functions of a folded graph stand above its class")
        head = self.lines[: (functions[0] if functions else cls).lineno - 1]
        if HEADER.split("\n")[0] not in head:
            raise refused_at(cls, "the header of a graph is missing")
        for line in [*head, self.lines[cls.lineno - 1]]:
            self.expansion.write(line)
        for function in functions:
            self.statements.add_function(function)
        *members, forward = cls.body
        if not isinstance(forward, ast.FunctionDef) or forward.name != "forward":
            raise refused_at(forward, "the class of a folded graph ends with its forward")
        inputs, outputs = self.ports(cls, members)
        self.signature(inputs, outputs)
        self.body(forward)
        results = [checked_name(self.expansion.flat(row.partition(": ")[0])) for row in outputs]
        self.expansion.write(f"        return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return "\n".join([*self.expansion.out, ""])

    # ---- ports

    def ports(self, cls: ast.ClassDef, members: Sequence[ast.stmt]) -> tuple[list[str], list[str]]:
        """Return the rows of the inputs and the outputs; write what else the class has."""
        lists = {}
        for member in members:
            match member:
                case ast.Assign(targets=[ast.Name(id="inputs" | "outputs" as name)], value=ast.List(elts=rows)):
                    lists[name] = [row for each in rows for row in self.rows(each)]
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=rows)) if name == ZEROS:
                    self.expansion.zeros = dict(map(self.zero, rows))
                case _:
                    self.check_member(member)
                    for number in range(member.lineno - 1, member.end_lineno or member.lineno):
                        self.expansion.write(self.lines[number])
        if lists.keys() != {"inputs", "outputs"}:
            raise refused_at(cls, "a folded graph has the lists inputs and outputs")
        return lists["inputs"], lists["outputs"]

    def zero(self, node: ast.expr) -> tuple[str, str]:
        """Return a key with the number 0, and the name in the flat graph."""
        match node:
            case ast.Constant(value=str(key)) if key.endswith("_0"):
                return key, checked_name(key.removesuffix("_0"))
        raise refused_at(node, f"{ZEROS} lists names that end with _0")

    def check_member(self, node: ast.stmt) -> None:
        """Raise if a member of the class is decorated, or has a name that the class uses itself."""
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        names = {getattr(each, "name", getattr(each, "id", "")) for each in targets}
        if names & {*MEMBERS} or getattr(node, "decorator_list", None):
            raise refused_at(
                node, f"a member of a folded graph has no decorator, and is not named {', '.join(MEMBERS)}"
            )

    def rows(self, node: ast.expr) -> Iterator[str]:
        """Yield the ports of an element of a list: one, or those of a loop."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Starred(
                value=ast.GeneratorExp(
                    elt=ast.Name(id="port"),
                    generators=[
                        ast.comprehension(target=ast.Name(id="i"), iter=ast.Call() as count, ifs=[], is_async=0),
                        ast.comprehension(target=ast.Name(id="port"), iter=ast.Tuple(elts=rows), ifs=[], is_async=0),
                    ],
                )
            ):
                times = self.statements.count_of(count)
                self.listed += times * len(rows)
                self.statements.check_length(node, self.listed)
                for place in range(times):
                    for row in rows:
                        text = str(evaluated(row, {"i": place}))
                        self.characters += len(text)
                        if self.characters > MAX_CHARACTERS:
                            raise refused_at(
                                node, f"the ports have more than {MAX_CHARACTERS:,} characters, the most that are read"
                            )
                        yield text
            case _:
                raise refused_at(node, "a list of ports has texts, and loops over i of texts")

    def signature(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Write the ports."""
        write = self.expansion.write
        write("    def forward(")
        write("        self,")
        for row in inputs:
            key, port = self.port(row)
            flat = checked_name(self.expansion.zeros.get(key, key))
            self.expansion.keys[key] = flat
            write(f"        {flat}: {quote(port)},")
        write("    ) -> (" if outputs else "    ) -> ():")
        for row in outputs:
            write(f"        {quote(self.port(row)[1])},")
        if outputs:
            write("    ):")

    def port(self, row: str) -> tuple[str, str]:
        """Return the key and the port of a row; a port that has its value's name has it as the flat text does."""
        key, _, port = row.partition(": ")
        flat = self.expansion.zeros.get(key)
        return key, f"{port.removesuffix(f' {key}')} {flat}" if flat and port.endswith(f" {key}") else port

    # ---- the forward

    def body(self, function: ast.FunctionDef) -> None:
        """Write the steps."""
        if self.lines[function.lineno - 1] != FORWARD or function.decorator_list:
            raise refused_at(function, f"the forward of a folded graph is `{FORWARD.strip()}`")
        first, *steps, last = function.body if len(function.body) > 1 else [function.body[0]] * 2
        self.check_ends(first, last)
        self.statements.check_length(function, self.statements.length(steps))
        work = self.statements.work(steps, first.end_lineno or 0)
        if work > MAX_WORK:
            raise refused_at(function, f"the loops look at {work:,} characters; at most {MAX_WORK:,} are read")
        statements = self.statements.statements(steps, first.end_lineno or 0, 0)
        if self.statements.beside:
            raise RefusedError(f"line {min(self.statements.beside)}: a comment beside code that is no step")
        for write in statements:
            write(self.expansion)

    def check_ends(self, first: ast.stmt, last: ast.stmt) -> None:
        """Raise if the first or the last statement of the forward is another than that of every folded graph."""
        tables = [each.id for each in getattr(first, "targets", ())[1:] if isinstance(each, ast.Name)]
        wanted = opening([name for name in TABLES.values() if name in tables])
        if self.statements.source(first) != wanted or self.statements.source(last) != CLOSING:
            raise refused_at(first, f"the forward of a folded graph begins with `{wanted}` and ends with `{CLOSING}`")
        self.statements.tables = (VALUES, *tables)
