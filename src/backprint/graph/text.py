"""A Graph as straight-line Python, and back. The text is the storage: `parse(emit(graph)) == graph`.

Reading uses `ast` alone: nothing is imported, looked up or run. What is not in the grammar is refused by name with its
line. The grammar, one step a line:

    # [layer1.0.conv1] model.py:12 in forward: out = self.conv1(x)
    convolution: "f32[2, 64, 32, 32]" = aten.convolution.default(x, conv1_weight, None, [1, 1], ...)
    getitem = native_batch_norm[0]
    assert _local_scalar_dense == 3
"""

from __future__ import annotations

import ast
import keyword
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import (
    DTYPES,
    LINKS,
    ROLES,
    Atom,
    Device,
    Dict,
    Graph,
    Link,
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

HEADER = """\
import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims
"""
"""What stands above the class in every text; the reader knows it by heart."""

MAX_CHARACTERS = 24 * 2**20
MAX_DEPTH = 40

# ------------------------------------------------------------------ values and specs as text


def show(value: Value) -> str:
    """A value as it stands in the text."""
    match value:
        case float():
            return "nan" if math.isnan(value) else repr(value)
        case None | bool() | int() | str():
            return repr(value)
        case complex():
            return f"complex({show(value.real)}, {show(value.imag)})"
        case Ref(name):
            return name
        case Op(target):
            return target
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
    raise GraphError(f"a {type(value).__name__} cannot stand in a graph: {value!r:.120}")


def show_spec(spec: Spec) -> str:
    """A spec as it stands in an annotation."""
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
    r"(?P<dtype>[a-z]\w*)\[(?P<shape>[^\]]*)\](?: stride=\[(?P<stride>[^\]]*)\])?(?: offset=(?P<offset>[^ ]+))?"
    r"(?: (?P<layout>sparse_\w+|jagged|_mkldnn))?(?: @(?P<device>[a-z]+(?::\d+)?))?"
)
_SIZE = re.compile(r"[A-Za-z0-9_ +\-*/().,]{1,400}")


def read_size(text: str) -> int | str:
    """One size: a number, or the expression of a symbolic one."""
    text = text.strip()
    if re.fullmatch(r"-?\d{1,19}", text):
        return int(text)
    if not _SIZE.fullmatch(text):
        raise RefusedError(f"{text!r:.80} is no size of a tensor")
    return text


def _sizes(text: str) -> tuple[int | str, ...]:
    return tuple(map(read_size, _split(text))) if text.strip() else ()


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside all brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def read_spec(text: str, depth: int = 0) -> Spec:
    """The spec that an annotation says."""
    text = text.strip()
    if text == "?":
        return None
    if depth > MAX_DEPTH:
        raise RefusedError("a spec is nested too deeply")
    if found := _TENSOR.fullmatch(text):
        dtype = _SHORT.get(found["dtype"])
        if dtype is None:
            raise RefusedError(f"{found['dtype']!r} is no dtype; known are {', '.join(_SHORT)}")
        stride = _sizes(found["stride"]) if found["stride"] is not None else None
        offset = read_size(found["offset"]) if found["offset"] else 0
        return TensorSpec(dtype, _sizes(found["shape"]), stride, offset, found["device"] or "cpu", found["layout"] or "strided")
    if text.startswith("(") and text.endswith(")"):
        inner = text[1:-1].strip().removesuffix(",")
        return tuple(read_spec(part, depth + 1) for part in _split(inner)) if inner else ()
    kind, bracket, rest = text.partition("(")
    if bracket and not (rest.endswith(")") and _SIZE.fullmatch(rest[:-1])):
        raise RefusedError(f"{text!r:.80} is no spec")
    return ScalarSpec(kind, rest[:-1])


def show_port(port: Port) -> str:
    """A port as it stands in an annotation: `f32[64, 3] parameter conv1.weight`."""
    return f"{show_spec(port.spec)} {port.role} {port.name}"


_PORT = re.compile(rf"(?P<spec>.+?) (?P<role>{'|'.join(sorted(ROLES))}) (?P<name>.+)", re.DOTALL)


def read_port(text: str, local: str = "") -> Port:
    """The port that an annotation says."""
    found = _PORT.fullmatch(text)
    if not found:
        raise RefusedError(f"{text!r:.80} is no port: expected `SPEC ROLE NAME`")
    return Port(found["name"], found["role"], read_spec(found["spec"]), local)


# ------------------------------------------------------------------ emit


def show_call(args: Iterable[Value], kwargs: tuple[tuple[str, Value], ...]) -> str:
    """What stands between a call's parentheses; a keyword that Python cannot spell goes through `**{...}`."""
    if any(keyword.iskeyword(key) for key, _ in kwargs):
        named = ["**{" + ", ".join(f"{key!r}: {show(value)}" for key, value in kwargs) + "}"]
    else:
        named = [f"{key}={show(value)}" for key, value in kwargs]
    return ", ".join([*map(show, args), *named])


def show_step(step: Step) -> str:
    """A step as one line of Python."""
    if step.is_guard:
        value, *expected = map(show, step.args)
        return {
            "assert_equal": f"assert {value} == {''.join(expected)}",
            "assert_nan": f"assert {value} != {value}",
            "assert_shape": f"assert {value}.shape == {''.join(expected)}",
        }[step.target]
    annotation = f': "{show_spec(step.spec)}"' if step.spec is not None else ""
    if step.target == "operator.getitem" and not step.kwargs and _is_plain_item(step.args):
        return f"{step.name}{annotation} = {show(step.args[0])}[{show(step.args[1])}]"
    return f"{step.name}{annotation} = {step.target}({show_call(step.args, step.kwargs)})"


def _is_plain_item(args: tuple[Value, ...]) -> bool:
    return len(args) == 2 and type(args[0]) is Ref and type(args[1]) in (int, str)


def show_comment(source: Source | None, link: Link | None) -> str:
    """The line above a group of steps: what they answer to, and where they came from."""
    text = f"{link.kind} {', '.join(link.names)};" if link else ""
    if source:
        module = f"[{source.module}] " if source.module else ""
        text += f" {module}{source.file}:{source.line} in {source.function}: {source.code}"
    return "# " + (text.strip() or "-")


def emit_class(graph: Graph, name: str, indent: str) -> Iterator[str]:
    """The lines of one class."""
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
        yield f"{body}{port.local}: {_quote(show_port(port))},"
    yield f"{inner}) -> ("
    for port in graph.outputs:
        yield f"{body}{_quote(show_port(port))},"
    yield f"{inner}):" if graph.outputs else f"{inner}    (),\n{inner}):"
    said = "# -"
    for step in graph.steps:
        comment = show_comment(step.source, step.link)
        if comment != said:
            yield f"{body}{comment}"
            said = comment
        yield body + show_step(step)
    yield f"{body}return ({', '.join(map(show, graph.results))}{',' if len(graph.results) == 1 else ''})"


def _quote(text: str) -> str:
    """A string in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def emit(graph: Graph, title: str = "") -> str:
    """The whole text: a docstring, the imports, one class."""
    title = title or graph.title
    head = f'"""{_title(title)}"""\n\n' if title else ""
    return head + HEADER + "\n\n" + "\n".join(emit_class(graph, "GraphModule", "")) + "\n"


def _title(title: str) -> str:
    return "".join(c for c in title if c.isprintable() and c not in '"\\')


# ------------------------------------------------------------------ parse


def parse(text: str) -> Graph:
    """The Graph that a text says. Raises RefusedError or GraphError with the line; runs nothing."""
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise GraphError(f"line {getattr(error, 'lineno', None) or 0}: not Python: {error}") from None
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"the text is nested too deeply to be a graph ({type(error).__name__})") from None
    return _module(tree, text.split("\n"))


def _module(tree: ast.Module, lines: list[str]) -> Graph:
    body, title = list(tree.body), ""
    if body and type(body[0]) is ast.Expr and type(body[0].value) is ast.Constant and type(body[0].value.value) is str:
        title = body.pop(0).value.value  # type: ignore[attr-defined]  # checked to be an Expr on the line above
    expected = [ast.dump(node) for node in ast.parse(HEADER).body]
    for node in body[: len(expected)]:
        if ast.dump(node) not in expected:
            _refuse(node, f"{_source(node)} is not the header of a graph")
    rest = body[len(expected) :]
    if len(rest) != 1 or type(rest[0]) is not ast.ClassDef or rest[0].name != "GraphModule":
        odd = next((node for node in rest if type(node) is not ast.ClassDef), None)
        if odd is not None:
            _refuse(odd, f"{_source(odd)} is outside the class: a graph's text is imports and one class GraphModule")
        raise GraphError("the text holds no class GraphModule with its header")
    return _Reader(lines).graph(rest[0], title)


def _source(node: ast.AST) -> str:
    try:
        return repr(ast.unparse(node).split("\n")[0][:80])
    except (RecursionError, ValueError):
        return f"a {type(node).__name__}"


def _refuse(node: Any, why: str) -> NoReturn:
    raise RefusedError(f"line {getattr(node, 'lineno', 0)}: {why}")


_COMMENT = re.compile(
    r"# (?:(?P<kind>" + "|".join(LINKS) + r") (?P<names>[\w, ]+);)? ?"
    r"(?:(?:\[(?P<module>[^\]]*)\] )?(?P<file>[^:]+):(?P<line>\d{1,9}) in (?P<function>[^:]*): ?(?P<code>.*))?"
)


class _Reader:
    """Reads one class: the names known so far, and the comment in force."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.locals: set[str] = set()
        self.subs: set[str] = set()
        self.guards = 0

    # ---- the class

    def graph(self, cls: ast.ClassDef, title: str = "", depth: int = 0) -> Graph:
        if depth > MAX_DEPTH:
            _refuse(cls, "subgraphs are nested too deeply")
        if cls.decorator_list or cls.keywords or [ast.unparse(base) for base in cls.bases] != ["torch.nn.Module"]:
            _refuse(cls, "a graph's class has no decorators and one base, torch.nn.Module")
        symbols, subgraphs, function = [], [], None
        for node in cls.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Constant(value=str(text)), value=None):
                    symbols.append(self.symbol(node, name, text))
                case ast.ClassDef():
                    subgraphs.append((node.name, _Reader(self.lines).graph(node, depth=depth + 1)))
                    self.subs.add(node.name)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=made), args=[], keywords=[])) if (
                    name == made and name in self.subs
                ):
                    pass
                case ast.FunctionDef(name="forward") if function is None:
                    function = node
                case _:
                    _refuse(node, f"{_source(node)} cannot stand in a graph's class")
        if function is None:
            raise GraphError(f"line {cls.lineno}: class {cls.name} has no forward")
        return self.forward(function, tuple(symbols), tuple(subgraphs), title)

    def symbol(self, node: ast.AST, name: str, text: str) -> Symbol:
        found = re.fullmatch(r"(-?\d{1,18}) in \[([^,\]]{1,100}), ([^,\]]{1,100})\]", text)
        if not found:
            _refuse(node, f"{text!r:.80} is no symbol's range: expected `4 in [2, inf]`")
        return Symbol(name, int(found[1]), found[2], found[3])

    def forward(
        self, node: ast.FunctionDef, symbols: tuple[Symbol, ...], subgraphs: tuple[tuple[str, Graph], ...], title: str
    ) -> Graph:
        spec = node.args
        if node.decorator_list or spec.defaults or spec.kw_defaults or spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs:
            _refuse(node, "decorators, defaults and star parameters are not part of a graph")
        if not spec.args or spec.args[0].arg != "self" or spec.args[0].annotation:
            _refuse(node, "forward takes self first")
        inputs = tuple(self.port(arg.annotation, arg, arg.arg) for arg in spec.args[1:])
        self.locals = {port.local for port in inputs} | {symbol.name for symbol in symbols}
        outputs = self.outputs(node)
        steps, results = self.body(node)
        return self.checked(node, lambda: Graph(inputs, steps, outputs, results, subgraphs, symbols, title))

    def outputs(self, node: ast.FunctionDef) -> tuple[Port, ...]:
        if type(node.returns) is not ast.Tuple:
            _refuse(node, "forward's return annotation is a tuple of ports")
        parts = node.returns.elts
        if len(parts) == 1 and type(parts[0]) is ast.Tuple and not parts[0].elts:
            return ()
        return tuple(self.port(part, part) for part in parts)

    def port(self, annotation: ast.AST | None, node: ast.AST, local: str = "") -> Port:
        if type(annotation) is not ast.Constant or type(annotation.value) is not str:
            _refuse(node, "a port is a string annotation, `SPEC ROLE NAME`")
        text = annotation.value
        return self.checked(node, lambda: read_port(text, local))

    def checked(self, node: Any, make: Any) -> Any:
        """Make a noun; its own complaint gets the line."""
        try:
            return make()
        except GraphError as error:
            raise type(error)(f"line {node.lineno}: {error}") from None

    # ---- the steps

    def body(self, function: ast.FunctionDef) -> tuple[tuple[Step, ...], tuple[Value, ...]]:
        steps: list[Step] = []
        comment: tuple[Source | None, Link | None] = (None, None)
        last = (function.returns or function).end_lineno or function.lineno  # type: ignore[attr-defined]
        for node in function.body:
            for number in range(last, node.lineno - 1):
                line = self.lines[number].strip()
                if line.startswith("#"):
                    comment = self.comment(line, number + 1)
            last = node.end_lineno or node.lineno
            if type(node) is ast.Return:
                if node is not function.body[-1]:
                    _refuse(node, "return is a graph's last line")
                return tuple(steps), self.returned(node)
            steps.append(self.checked(node, lambda node=node, comment=comment: self.step(node, *comment)))
        raise GraphError(f"line {function.lineno}: forward does not return")

    def comment(self, line: str, number: int) -> tuple[Source | None, Link | None]:
        if line == "# -":
            return None, None
        found = _COMMENT.fullmatch(line)
        if not found or not (found["kind"] or found["file"]):
            raise RefusedError(f"line {number}: {line[:80]!r} is no source line of a graph")
        link = Link(found["kind"], tuple(found["names"].split(", "))) if found["kind"] else None
        if not found["file"]:
            return None, link
        return Source(found["file"], int(found["line"]), found["function"], found["code"], found["module"] or ""), link

    def returned(self, node: ast.Return) -> tuple[Value, ...]:
        value = self.value(node.value) if node.value is not None else None
        if type(value) is not tuple:
            _refuse(node, "a graph returns a tuple")
        return value

    def step(self, node: ast.stmt, source: Source | None, link: Link | None) -> Step:
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[compare], comparators=[right]), msg=None):
                return self.guard(node, left, compare, right, source, link)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                spec = None
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Constant(value=str(text)), value=ast.expr() as value):
                spec = read_spec(text)
            case _:
                _refuse(node, f"{_source(node)} is no step: a graph assigns the result of one call a line")
        target, args, kwargs = self.call(value)
        step = Step(name, target, args, kwargs, spec, source, link)
        self.locals.add(name)
        return step

    def guard(
        self, node: ast.stmt, left: ast.expr, compare: ast.cmpop, right: ast.expr, source: Source | None, link: Link | None
    ) -> Step:
        name, self.guards = f"guard_{self.guards}", self.guards + 1
        match left, compare:
            case ast.Attribute(value=ast.Name() as owner, attr="shape"), ast.Eq():
                return Step(name, "assert_shape", (self.value(owner), self.value(right)), (), None, source, link)
            case ast.Name(), ast.Eq():
                return Step(name, "assert_equal", (self.value(left), self.value(right)), (), None, source, link)
            case ast.Name(), ast.NotEq():
                return Step(name, "assert_nan", (self.value(left),), (), None, source, link)
        _refuse(node, f"{_source(node)} is no guard")

    def call(self, node: ast.expr) -> tuple[str, tuple[Value, ...], tuple[tuple[str, Value], ...]]:
        match node:
            case ast.Subscript(value=ast.Name() as owner, slice=ast.Constant() as index):
                return "operator.getitem", (self.value(owner), self.value(index)), ()
            case ast.Call():
                target = self.dotted(node.func)
                return target, tuple(map(self.value, node.args)), self.kwargs(node)
        _refuse(node, f"{_source(node)} is no call of an operator")

    def dotted(self, node: ast.expr) -> str:
        parts: list[str] = []
        while type(node) is ast.Attribute:
            parts.append(node.attr)
            node = node.value
        if type(node) is not ast.Name:
            _refuse(node, f"{_source(node)} is no dotted name")
        return ".".join([node.id, *reversed(parts)])

    def kwargs(self, call: ast.Call) -> tuple[tuple[str, Value], ...]:
        found: list[tuple[str, Value]] = []
        for part in call.keywords:
            value = self.value(part.value)
            if part.arg is not None:
                found.append((part.arg, value))
            elif type(value) is Dict and all(type(key) is str for key, _ in value.items):
                found += value.items  # type: ignore[arg-type]  # the keys were checked to be strings
            else:
                _refuse(call, "** takes a dictionary of names")
        if len({key for key, _ in found}) != len(found):
            _refuse(call, "a keyword stands twice")
        return tuple(found)

    # ---- values

    def value(self, node: ast.expr, depth: int = 0) -> Value:
        if depth > MAX_DEPTH:
            _refuse(node, "a value is nested too deeply")
        match node:
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand, depth + 1)
                if type(value) not in (int, float):
                    _refuse(node, f"minus of {_source(operand)}")
                return -value  # type: ignore[operator]  # a number, as checked
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
        _refuse(node, f"{_source(node)} is no value of a graph")

    def name(self, node: ast.AST, name: str) -> Value:
        if name in self.locals:
            return Ref(name)
        if name in ("inf", "nan"):
            return math.inf if name == "inf" else math.nan
        _refuse(node, f"unknown name {name!r}")

    def attribute(self, node: ast.Attribute) -> Value:
        target = self.dotted(node)
        root, _, rest = target.partition(".")
        if root == "self":
            if rest not in self.subs:
                _refuse(node, f"{target!r} is no subgraph of this graph")
            return Sub(rest)
        if root == "torch" and "." not in rest:
            return self.checked(node, lambda: Atom(rest))
        return self.checked(node, lambda: Op(target))

    def constructed(self, node: ast.Call, depth: int) -> Value:
        maker = self.dotted(node.func)
        args = [self.value(argument, depth + 1) for argument in node.args]
        match maker, args:
            case "torch.device", [str(name)]:
                return self.checked(node, lambda: Device(name))
            case "slice", [start, stop, step]:
                return Slice(start, stop, step)
            case "complex", [int() | float() as real, int() | float() as imaginary]:
                return complex(real, imaginary)
        _refuse(node, f"{_source(node)} is no value: a graph's values are literals, names and torch constants")
