"""What Python would run of a folded text, statement by statement, held against the Graph that was read of it.

`expand` writes the flat text of a folded one, with names and lines of the program that stand in comments. This module
knows no comments: it follows the tree alone, as Python does, with the values of the graph in place of tensors, and
compares each call with the step of the graph in its place. What it does not know is refused.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backprint.graph.folding.names import MEMBERS, RESERVED, TABLES, VALUES
from backprint.graph.folding.series import INDEXES
from backprint.graph.folding.text import CLOSING, FORWARD, ZEROS, opening
from backprint.graph.nouns import MAX_INTEGER, Graph, Ref, Step, Value
from backprint.graph.text import HEADER, _Reader, check_same, emit_class, python_tree, show, show_step

MAX_FOLLOWED = 2_000_000
"""How many statements and rows may be followed: several for each step, as loops and names count as well."""

NAMES_OF_PYTHON = frozenset(dir(builtins))


def check_runs(tree: ast.Module, lines: list[str], graph: Graph) -> None:
    """Raise unless Python, running a folded text, makes the calls of the graph on the values of the graph."""
    body = [*tree.body]
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body.pop(0)
    count = next((place for place, node in enumerate(body) if isinstance(node, ast.FunctionDef | ast.ClassDef)), 0)
    check_same(ast.Module(body[:count], []), python_tree(HEADER), lines)
    *functions, cls = body[count:] or [ast.Pass()]
    follower = Follower(lines, graph)
    for node in functions:
        follower.add_function(node)
    follower.follow_class(cls)


class Follower(_Reader):
    """Follows the statements of a folded text; `scope` has what each name is there."""

    def __init__(self, lines: list[str], graph: Graph) -> None:
        super().__init__(lines)
        self.wanted = graph
        self.functions: dict[str, ast.FunctionDef] = {}
        self.scope: dict[str, Any] = {}
        self.table: dict[str, Value] = {}
        self.place = 0
        self.followed = 0

    def work(self, node: ast.AST, amount: int = 1) -> None:
        self.followed += amount
        if self.followed > MAX_FOLLOWED:
            raise self.refused(node, f"the loops have more than {MAX_FOLLOWED:,} statements")  # type: ignore[arg-type]

    # ---- the module and the class

    def add_function(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(
                name=name,
                args=ast.arguments([], [*parameters], None, [], [], None, []),
                decorator_list=[],
                returns=None,
                body=[*steps, ast.Return()],
            ) if name not in self.functions and not any(each.annotation for each in parameters):
                taken = [name, *(each.arg for each in parameters), *names_bound(steps)]
                self.check_names(node, taken)
                self.functions[name] = node
                return
        raise self.refused(node, f"{self.said(node)!r} is not a function of a folded graph")

    def check_names(self, node: ast.stmt, names: Sequence[str]) -> None:
        """Raise if a name that is bound hides what the text calls."""
        for name in names:
            hides = name in RESERVED or name in self.functions or (name in NAMES_OF_PYTHON and name == names[0])
            if hides or name.startswith("__"):
                raise self.refused(node, f"{name!r:.80} takes a name that the text has already")

    def follow_class(self, cls: ast.stmt) -> None:
        match cls:
            case ast.ClassDef(name="GraphModule", bases=[base], keywords=[], decorator_list=[], body=[*members, last]):
                if self.dotted(base) != "torch.nn.Module":
                    raise self.refused(cls, "a graph's class has one base, torch.nn.Module")
            case _:
                raise self.refused(cls, "a folded graph ends with one class GraphModule")
        rows: dict[str, list[str]] = {}
        named: list[str] = []
        subgraphs = dict(self.wanted.subgraphs)
        for node in members:
            match node:
                case ast.Assign(targets=[ast.Name("inputs" | "outputs" as name)], value=ast.List(elts=elements)):
                    rows[name] = [row for element in elements for row in self.rows(element)]
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)) if name == ZEROS:
                    if not all(isinstance(each, ast.Constant) for each in elements):
                        raise self.refused(node, f"{ZEROS} lists names")
                case ast.AnnAssign(ast.Name(name), ast.Constant(str(text)), None):
                    if self.symbol(node, name, text) not in self.wanted.symbols:
                        raise self.refused(node, "another symbol than that of the graph")
                case ast.ClassDef(name=name) if name in subgraphs and name not in MEMBERS:
                    written = python_tree("\n".join(emit_class(subgraphs[name], name, ""))).body
                    check_same(ast.Module([node], []), ast.Module(written, []), self.lines)
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=called), args=[], keywords=[])
                ) if name == called and name in named:
                    continue
                case _:
                    raise self.refused(node, f"{self.said(node)!r} is not a member of a folded graph")
            if name in named:
                raise self.refused(node, f"{name!r} is defined twice")
            named.append(name)
        match last:
            case ast.FunctionDef(name="forward", body=[first, *steps, end], decorator_list=[], returns=None):
                self.follow_forward(last, first, steps, end, rows.get("inputs", []), rows.get("outputs", []))
            case _:
                raise self.refused(last, "the class of a folded graph ends with its forward")

    def rows(self, node: ast.expr) -> Iterator[str]:
        """Yield the ports of an element of a list."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Starred(
                value=ast.GeneratorExp(
                    elt=ast.Name("port"),
                    generators=[
                        ast.comprehension(ast.Name("i"), count, [], 0),
                        ast.comprehension(ast.Name("port"), ast.Tuple(elts=rows), [], 0),
                    ],
                )
            ):
                for place in self.iterations(count):
                    self.scope["i"] = place
                    self.work(node, len(rows))
                    for row in rows:
                        yield self.text(row)
            case _:
                raise self.refused(node, "a list of ports has texts, and loops over i of texts")

    # ---- the forward

    def follow_forward(
        self,
        node: ast.FunctionDef,
        first: ast.stmt,
        steps: Sequence[ast.stmt],
        end: ast.stmt,
        inputs: Sequence[str],
        outputs: Sequence[str],
    ) -> None:
        aliases = [each.id for each in getattr(first, "targets", ())[1:] if isinstance(each, ast.Name)]
        tables = [name for name in TABLES.values() if name in aliases]
        frame = python_tree(
            "\n".join(["class GraphModule:", FORWARD, f"        {opening(tables)}", f"        {CLOSING}"])
        )
        own = ast.FunctionDef("forward", node.args, [first, end], [], None, None)
        check_same(
            ast.Module([own], []), ast.Module(frame.body[0].body, []), self.lines  # type: ignore[attr-defined]
        )  # fmt: skip
        self.check_names(node, ["", *names_bound(steps)])
        if len(inputs) != len(self.wanted.inputs) or len(outputs) != len(self.wanted.outputs):
            raise self.refused(node, "other ports than those of the graph")
        self.scope, self.table = {}, {"None": None}
        for row, port in zip(inputs, self.wanted.inputs, strict=True):
            self.table[row.partition(":")[0]] = Ref(port.local)
        self.scope.update(dict.fromkeys((VALUES, *tables), self.table))
        self.follow(steps, 0)
        if self.place != len(self.wanted.steps):
            raise self.refused(end, f"{self.place:,} calls where the graph has {len(self.wanted.steps):,}")
        for row, wanted in zip(outputs, self.wanted.results, strict=True):
            result = self.looked_up(end, self.table, row.partition(":")[0])
            if show(result) != show(wanted):
                raise self.refused(
                    end, f"the result {row:.80} is {show(result):.80}, and the graph's {show(wanted):.80}"
                )

    def follow(self, nodes: Sequence[ast.stmt], depth: int) -> None:
        for node in nodes:
            self.work(node)
            match node:
                case ast.For(target=ast.Name(index), iter=count, body=body, orelse=[]) if index in INDEXES[depth:]:
                    for place in self.iterations(count):
                        self.scope[index] = place
                        self.follow(body, depth + 1)
                case ast.If(test=test, body=body, orelse=[]):
                    if self.same(test):
                        self.follow(body, depth)
                case ast.Assert(test=ast.Compare(ops=[_]) as test, msg=None):
                    guard = self.guard(node, test, None, None)
                    self.held(node, guard)
                case ast.Assign(targets=[target], value=value):
                    self.assign(node, target, value)
                case ast.AnnAssign(target=target, annotation=ast.Constant(value=str()), value=ast.expr() as value):
                    self.assign(node, target, value)
                case _:
                    raise self.refused(node, f"{self.said(node)!r} is not a statement of a folded graph")

    def assign(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        """Follow an assignment: a call of a function, another name of a value, or a step."""
        match value:
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in self.functions:
                results = self.called(node, self.functions[name], [self.value(each) for each in value.args])
                if isinstance(target, ast.Tuple) != isinstance(results, tuple):
                    raise self.refused(node, f"{name} gives another number of results")
                if isinstance(target, ast.Tuple) and isinstance(results, tuple):
                    if len(target.elts) != len(results):
                        raise self.refused(node, f"{name} gives {len(results)} results for {len(target.elts)}")
                    for part, result in zip(target.elts, results, strict=True):
                        self.bind(part, result)
                    return
                self.bind(target, results)
            case ast.Name() | ast.Subscript() if isinstance(value, ast.Name) or self.is_table(value.value):
                renamed = self.value(value)
                if renamed is not None and not isinstance(renamed, Ref):
                    raise self.refused(node, f"{self.said(value)!r} is not a value of the graph")
                self.bind(target, renamed)
            case _:
                call, args, kwargs = self.call(value)
                self.bind(target, self.held(node, Step("result", call, args, kwargs)))

    def called(self, node: ast.stmt, function: ast.FunctionDef, given: Sequence[Any]) -> Any:
        """Follow a call of a function; return its result, or a tuple of them."""
        parameters = [each.arg for each in function.args.args]
        if len(parameters) != len(given):
            raise self.refused(node, f"{function.name} takes {len(parameters)} arguments, not {len(given)}")
        around, self.scope = self.scope, dict(zip(parameters, given, strict=True))
        for step in function.body[:-1]:
            self.work(step)
            match step:
                case ast.Assign(targets=[ast.Name() as target], value=value):
                    pass
                case ast.AnnAssign(
                    target=ast.Name() as target, annotation=ast.Constant(value=str()), value=ast.expr() as value
                ):
                    pass
                case _:
                    raise self.refused(step, f"{self.said(step)!r} is not a step of a function")
            call, args, kwargs = self.call(value)
            self.bind(target, self.held(step, Step("result", call, args, kwargs)))
        match function.body[-1]:
            case ast.Return(value=ast.Name() as name):
                results: Any = self.value(name)
            case ast.Return(value=ast.Tuple(elts=parts)) if all(isinstance(part, ast.Name) for part in parts):
                results = tuple([self.value(part) for part in parts])
            case end:
                raise self.refused(end, "a function of a folded graph returns names")
        self.scope = around
        return results

    def held(self, node: ast.stmt, step: Step) -> Ref:
        """Return the value of a call, after comparing the call with the graph's step in its place."""
        if self.place >= len(self.wanted.steps):
            raise self.refused(node, "a call more than the graph has")
        wanted = self.wanted.steps[self.place]
        self.place += 1
        one = show_step(Step("result", step.target, step.args, step.kwargs))
        other = show_step(Step("result", wanted.target, wanted.args, wanted.kwargs))
        if one != other:
            raise self.refused(node, f"Python runs {one[9:89]!r} here, and the text says {other[9:89]!r}")
        return Ref(wanted.name)

    def bind(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.scope[name] = value
            case ast.Subscript(value=owner, slice=key) if self.is_table(owner):
                self.table[self.text(key)] = value
            case _:
                raise self.refused(target, f"{self.said(target)!r} is not bound by a folded graph")

    def is_table(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self.scope.get(node.id) is self.table

    # ---- expressions

    def call(self, node: ast.expr) -> tuple[str, tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        match node:
            case ast.Subscript(value=ast.Subscript() as owner, slice=index) if self.is_table(owner.value):
                return "operator.getitem", (self.value(owner), self.value(index)), ()
        target, args, kwargs = super().call(node)
        if target.partition(".")[0] in self.scope:
            raise self.refused(node, f"{self.said(node)!r} is not a call of an operator")
        return target, args, kwargs

    def guard(self, node: ast.stmt, test: ast.Compare, source: None, echo: None) -> Step:  # type: ignore[override]
        right = test.comparators[0]
        match test.left, test.ops[0]:
            case ast.Attribute(value=owner, attr="shape"), ast.Eq():
                return Step("guard", "assert_shape", (self.value(owner), self.value(right)))
            case owner, ast.Eq():
                return Step("guard", "assert_equal", (self.value(owner), self.value(right)))
            case owner, ast.NotEq() if show(self.value(owner)) == show(self.value(right)):
                return Step("guard", "assert_nan", (self.value(owner),))
        raise self.refused(node, f"{self.said(node)!r} is not a guard")

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        match node:
            case ast.Subscript(value=owner, slice=key) if self.is_table(owner):
                return self.looked_up(node, self.table, self.text(key))
            case ast.Subscript(value=ast.Dict() as table, slice=key):
                return self.looked_up(node, self.rows_of(table), self.value(key))
            case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="get"), args=[key, other], keywords=[]):
                return self.rows_of(table).get(self.value(key), self.value(other))
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.value(body if self.same(test) else other)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
                one, two = self.number(left), self.number(right)
                total = one + two if isinstance(op, ast.Add) else one - two if isinstance(op, ast.Sub) else one * two
                if not -MAX_INTEGER <= total < MAX_INTEGER:
                    raise self.refused(node, f"a number of {total.bit_length()} bits")
                return total
            case ast.JoinedStr() | ast.Constant(value=str()):
                return self.text(node)
        return super().value(node, depth)

    def name(self, node: Any, name: str) -> Any:
        if name in self.scope:
            held = self.scope[name]
            if held is self.table:
                raise self.refused(node, f"{name!r} is a table of values")
            return held
        return super().name(node, name)

    def attribute(self, node: ast.Attribute) -> Value:
        root, _, rest = self.dotted(node).partition(".")
        self.subs = {name for name, _ in self.wanted.subgraphs}
        if root in self.scope or (root == "self" and rest not in self.subs):
            raise self.refused(node, f"{self.said(node)!r} is not a value of a graph")
        return super().attribute(node)

    def text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(map(self.text, parts))
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return str(self.number(value))
        found = self.value(node) if isinstance(node, ast.Subscript | ast.Call | ast.IfExp) else None
        if not isinstance(found, str):
            raise self.refused(node, f"{self.said(node)!r} is not a text")
        return found

    def number(self, node: ast.expr) -> int:
        found = self.value(node)
        if type(found) is not int:
            raise self.refused(node, f"{self.said(node)!r} is not a whole number")
        return found

    def same(self, test: ast.expr) -> bool:
        """Whether `i == 3`, or `(i, j) == (3, 0)`."""
        match test:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                one, two = self.value(left), self.value(right)
                if all(type(part) is int for side in (one, two) for part in (side if type(side) is tuple else (side,))):
                    return bool(one == two)
        raise self.refused(test, f"{self.said(test)!r} does not compare numbers of iterations")

    def rows_of(self, table: ast.Dict) -> Mapping[Any, Any]:
        """Return a table of literals, as Python makes it."""
        self.work(table, len(table.keys))
        rows = {}
        for key, value in zip(table.keys, table.values, strict=True):
            index = None if key is None else self.value(key)
            if any(type(part) is not int for part in (index if type(index) is tuple else (index,))):
                raise self.refused(table, "a table of a folded graph has the numbers of iterations as keys")
            rows[index] = self.value(value)
        return rows

    def looked_up(self, node: ast.expr | ast.stmt, table: Mapping[Any, Any], key: Any) -> Any:
        if isinstance(key, str | int | tuple) and key in table:
            return table[key]
        raise self.refused(node, f"nothing is known of {key!r:.80} here")

    def iterations(self, node: ast.expr) -> range:
        match node:
            case ast.Call(func=ast.Name("range"), args=[ast.Constant(value=int(count))], keywords=[]):
                if type(count) is int:
                    return range(count)
        raise self.refused(node, "a loop of a folded graph is over range(N)")


def names_bound(nodes: Sequence[ast.stmt]) -> list[str]:
    """Return the short names that statements bind, those of loops aside."""
    names: list[str] = []
    left: list[ast.AST] = list(nodes)
    while left:
        match left.pop():
            case ast.For(body=body) | ast.If(body=body):
                left += body
            case ast.Assign(targets=targets):
                left += targets
            case ast.AnnAssign(target=target):
                left.append(target)
            case ast.Tuple(elts=parts):
                left += parts
            case ast.Name(id=name):
                names.append(name)
    return names
