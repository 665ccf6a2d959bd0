"""The code with which Inductor calls its kernels, as a function of plain PyTorch.

Inductor's wrapper allocates memory and launches kernels through functions of its own. Its statements are read, and
written again: `empty_strided_cuda` becomes `torch.empty`, a view of memory `.view`, `extern_kernels.mm` `torch.mm`,
and a kernel is launched on a grid. Values have the names of the program's ports where they are ports. A name that has
no such form is refused.

Words of this file:

- the wrapper's names, such as `buf0`, are Inductor's; the file's are those of the text that is written.
- direction: the forward or the backward in Inductor's code (Direction). Its `inputs` and `outputs` are CodePorts:
  `port.port` is the captured graph's port, `port.name` its name in the file, `port.shape` and `port.stride`
  expressions. `direction.symbols` has the file's name of each of Inductor's symbols for sizes.
- a layout is a shape with strides, as expressions of symbols; two are compared for a few values of the symbols.
- to name memory again: `buf1 = buf0`, and a `reinterpret_tensor` in the same layout. One name of the file is enough.
- `laid(tensor, stride)` is a function of the file: a tensor with these strides, copied if it has others.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from backprint.errors import RefusedError
from backprint.graph.nouns import TensorSpec
from backprint.tools.kernels.fused.nouns import CodePort, Direction, unique
from backprint.values.geometry import are_contiguous

WIDTH = 120

IGNORED_CALLS = ("assert_alignment", "assert_tensor_metadata")
"""Functions that a wrapper calls to check what is checked elsewhere here."""

LAYOUT_ASSERTIONS = ("assert_size_stride", "assert_size_stride_grouped")
"""Functions with which a wrapper asserts the layout of what a library returned."""

SYMBOL_VALUES = ((13, 101), (29, 211))
"""Two sets of sizes at which symbolic layouts are compared: the symbols are `first`, `first + step`, …"""


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of a kernel: its name in the wrapper, and its arguments as expressions of the file."""

    kernel: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrapperText:
    """A direction as statements of Python, with a line `launch_0()` in the place of a kernel's call: `launches` has
    what it stands for, by the line. `results` are expressions of what it returns, one for each output."""

    lines: tuple[str, ...]
    results: tuple[str, ...]
    launches: Mapping[str, Launch]
    used: frozenset[str]
    """The inputs that kernels or other calls take."""
    layout_inputs: frozenset[str]
    """The inputs whose layout matters: those, and those of which a result is a view."""
    other_strides: Mapping[int, tuple[str, ...]]
    """Places of results that have another layout than in the program -> the program's strides."""


@dataclass(slots=True)
class TensorLayout:
    """The layout of a value, as expressions."""

    shape: tuple[str, ...]
    stride: tuple[str, ...]


@dataclass(slots=True)
class WrapperReader:
    """Reads a wrapper, statement by statement.

    `names` has the file's name of each of the wrapper's, and `layouts` the layout of values, by the file's names, and
    by `result 0`, … of returned expressions. `read_statement` fills `lines`, `launches` and `results`.
    """

    direction: Direction
    names: dict[str, str] = field(default_factory=dict)
    layouts: dict[str, TensorLayout] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    launches: dict[str, Launch] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    size_tuples: dict[str, str] = field(default_factory=dict)
    """Names of the shapes of inputs -> the input."""
    reused: frozenset[str] = frozenset()
    """Names of memory that goes on under another name."""

    def read(self) -> WrapperText:
        """Return the direction as statements of the file; refuse a wrapper that uses names which the file does not
        have."""
        statements = list(without_with_blocks(_find_call_function(self.direction.code.wrapper).body))
        self.name_values(statements)
        for statement in statements:
            self.read_statement(statement)
        while self.lines and self.lines[-1].startswith("del "):  # the function returns then anyway
            self.lines.pop()
        input_names = {port.name for port in self.direction.inputs}
        texts = [*itertools.chain.from_iterable(launch.arguments for launch in self.launches.values())]
        texts += [line for line in self.lines if line not in self.launches]
        used = names_in(texts)
        returned = names_in(value for value in self.results if value not in input_names)  # views of inputs among them
        self.check_names(used | returned)
        return WrapperText(
            lines=tuple(self.lines),
            results=self.results,
            launches=self.launches,
            used=frozenset(used & input_names),
            layout_inputs=frozenset((used | returned) & input_names),
            other_strides=dict(self.changed_strides()),
        )

    def changed_strides(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the places of results that Inductor laid out otherwise than the program, with the program's strides."""
        input_names = {port.name for port in self.direction.inputs}
        for place, (port, value) in enumerate(zip(self.direction.outputs, self.results, strict=True)):
            layout = self.layouts.get(value, self.layouts.get(f"result {place}"))  # None if it is not known
            program_layout = TensorLayout(port.shape, _captured_stride(port))
            if (
                port.is_tensor
                and layout is not None
                and value not in input_names
                and not self.same_layout(layout, program_layout)
            ):
                yield place, program_layout.stride

    def name_values(self, statements: Sequence[ast.stmt]) -> None:
        """Choose the names of values, in `names`: those of ports for arguments and results, and one name for memory
        that the wrapper names again, as in `buf1 = buf0`."""
        arguments = self.argument_names(statements)
        self.names = dict(zip(arguments, (port.name for port in self.direction.inputs), strict=True))
        for port in self.direction.inputs:
            if port.is_tensor:
                self.layouts[port.name] = TensorLayout(port.shape, port.stride)
        renamed = self.find_renamed(statements)
        self.names |= self.direction.symbols
        self.reused = frozenset(renamed.values())
        for value, port in zip(returned_expressions(statements), self.direction.outputs, strict=True):
            if isinstance(value, ast.Name) and value.id not in self.names:
                root = _first_name(value.id, renamed)
                if root not in self.names:
                    self.names[root] = unique(port.name, set(self.names.values()))
                self.names[value.id] = self.names[root]
        for new in renamed:
            root = _first_name(new, renamed)
            self.names[new] = self.names.setdefault(root, unique(root, set(self.names.values())))

    def find_renamed(self, statements: Sequence[ast.stmt]) -> dict[str, str]:
        """Return the names of memory that the wrapper names again: the new name -> the name before. A size that is an
        argument is named again too, and gets its name in `names` at once."""
        renamed: dict[str, str] = {}
        layouts: dict[str, TensorLayout] = {}
        for statement in statements:
            match statement:
                # not an argument, which `names` has already
                case ast.Assign(targets=[ast.Name(id=new)], value=ast.Name(id=old)) if old not in self.names:
                    renamed[new] = old
                    layouts |= {new: layouts[old]} if old in layouts else {}
                case ast.Assign(
                    targets=[ast.Name(id=new)], value=ast.Call(func=ast.Name(id="empty_strided_cuda"), args=[*sizes])
                ):
                    layouts[new] = TensorLayout(sizes_of(sizes[0]), sizes_of(sizes[1]))
                case ast.Assign(
                    targets=[ast.Name(id=new)],
                    value=ast.Call(
                        func=ast.Name(id="reinterpret_tensor"), args=[ast.Name(id=old), shape, stride, ast.Constant(0)]
                    ),
                ) if old in layouts:
                    layouts[new] = TensorLayout(sizes_of(shape), sizes_of(stride))
                    if self.same_layout(layouts[old], layouts[new]):
                        renamed[new] = old
                case ast.Assign(targets=[ast.Name(id=new)], value=ast.Name(id=old)) if new.startswith("s"):
                    self.names[new] = self.names[old]  # a size that is an argument: `s0 = arg0_1`
        return renamed

    def argument_names(self, statements: Sequence[ast.stmt]) -> list[str]:
        """Return the wrapper's names of the arguments, in order, from its statement `arg0_1, arg1_1 = args`; none if it
        has no such statement."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                    return [name.id for name in names if isinstance(name, ast.Name)]
        return []

    # ---- Statements

    def read_statement(self, statement: ast.stmt) -> None:
        """Write a statement of the wrapper in `lines`, or note what it returns in `results`."""
        match statement:
            case ast.Return(value=ast.Tuple(elts=values)):
                self.results = tuple(self.rewrite(value, f"result {place}") for place, value in enumerate(values))
            case ast.Delete(targets=targets):  # the caller has the inputs, and memory that is named again goes on
                input_names = {port.name for port in self.direction.inputs}
                deleted = [name.id for name in targets if isinstance(name, ast.Name) and name.id not in self.reused]
                file_names = [self.names.get(name, name) for name in deleted]
                if freed := [name for name in file_names if name not in input_names]:
                    self.lines.append(f"del {', '.join(freed)}")
            case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id="args")):
                pass  # the arguments, which the file's function has by name
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.read_assignment(name, value)
            case ast.Expr(value=ast.Call() as call):
                self.read_call(call)
            case ast.Pass():
                pass
            case _:
                self.lines.append(self.rewrite(statement))

    def read_assignment(self, name: str, value: ast.expr) -> None:
        """Write an assignment of the wrapper, `name = value`. None is needed for a stream, for memory that is named
        again, and for the tuple of an input's sizes: an item of it is read from the input, `s0 = x.shape[0]`."""
        match value:
            case ast.Call(func=ast.Name(id="get_raw_stream")):
                return
            case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[ast.Name(id=old), *_]) if self.has_same_name(
                name, old
            ):
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=tensor), attr="size" | "stride" as what)):
                read = "shape" if what == "size" else "stride()"
                self.size_tuples[name] = f"{self.names.get(tensor, tensor)}.{read}"
                return
            # an item of such a tuple
            case ast.Subscript(value=ast.Name(id=sizes), slice=ast.Constant(value=place)) if sizes in self.size_tuples:
                text = f"{self.size_tuples[sizes]}[{place!r}]"
                self.names.setdefault(name, unique(name, set(self.names.values())))
                self.lines.append(f"{self.names[name]} = {text}")
                return
            case ast.Name(id=old) if self.names.get(name) == self.names.get(old, old):
                return
        target = self.names.setdefault(name, unique(name, set(self.names.values())))
        text = self.rewrite(value, target)
        if text != target:
            self.lines.append(f"{target} = {text}")

    def has_same_name(self, new: str, old: str) -> bool:
        """Whether two names of the wrapper have one name in the file."""
        return new in self.names and self.names[new] == self.names.get(old, old)

    def read_call(self, call: ast.Call) -> None:
        """Write a call whose result is not used: a launch, or an operator that writes into memory. Calls with which the
        wrapper checks, frees its list of arguments or chooses a device are left out."""
        match call.func:
            case ast.Name(id=name) if name in IGNORED_CALLS:
                return
            case ast.Name(id=name) if name in LAYOUT_ASSERTIONS:
                self.read_layout_assertion(*call.args[:3])
                return
            case ast.Attribute(value=ast.Name(id="args"), attr="clear"):
                return
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="torch"), attr="cuda"), attr="set_device"):
                return
            case ast.Attribute(value=ast.Name(id=kernel), attr="run") if kernel in self.kernels:
                marker = f"launch_{len(self.launches)}()"
                self.launches[marker] = Launch(kernel, tuple(map(self.rewrite, call.args)))
                self.lines.append(marker)
                return
        self.lines.append(self.rewrite(call))

    def read_layout_assertion(self, values: ast.expr, shapes: ast.expr, strides: ast.expr) -> None:
        """Write that the results of a library have the layouts that kernels read: on another device they may have
        others. The arguments are those of the wrapper's assertion: one value with its shape and strides, or a list of
        each. Inputs are laid out before the function is called, and are left out."""
        input_names = {port.name for port in self.direction.inputs}
        several = isinstance(values, (ast.List, ast.Tuple))
        columns = (values.elts, shapes.elts, strides.elts) if several else ([values], [shapes], [strides])  # type: ignore[attr-defined]  # lists or tuples of as many
        for value, shape, stride in zip(*columns, strict=True):
            name = self.rewrite(value)
            if name not in input_names and name.isidentifier():
                self.layouts[name] = TensorLayout(sizes_of(shape), sizes_of(stride))
                self.lines.append(f"{name} = laid({name}, {self.rewrite(stride)})")

    @property
    def kernels(self) -> set[str]:
        """The names of the kernels."""
        return {kernel.name for kernel in self.direction.kernels}

    # ---- Expressions

    def rewrite(self, node: ast.AST, target: str = "") -> str:
        """Return an expression of the wrapper as one of the file. `target` is the name in the file, or `result 0`, …,
        of the value that it becomes, under which its layout is noted; '' if it is a part of another."""
        rewritten = ast.fix_missing_locations(_WrapperRewriter(self, target).visit(node))
        return ast.unparse(rewritten)

    def check_names(self, names: Iterable[str]) -> None:
        """Raise RefusedError for a name that the file would not define."""
        known = {*self.names.values(), "torch", "math", "device", "laid", *dir(builtins)}
        known |= {marker.removesuffix("()") for marker in self.launches}
        # names that the lines assign
        known |= {
            node.id
            for line in self.lines
            for node in ast.walk(ast.parse(line))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if unknown := sorted(set(names) - known):
            raise RefusedError(
                f"{self.direction.name}: Inductor's code uses {', '.join(unknown[:3])}, for which this file has no "
                "form: lower a part of the program, or use `torch.compile`"
            )

    def equal_sizes(self, left: Sequence[str], right: Sequence[str]) -> bool:
        """Whether sizes are the same for all values of the symbols, as far as SYMBOL_VALUES show it."""
        return len(left) == len(right) and all(
            [evaluate_size(size, values) for size in left] == [evaluate_size(size, values) for size in right]
            for values in self.symbol_values()
        )

    def same_layout(self, left: TensorLayout, right: TensorLayout) -> bool:
        """Whether two layouts are the same; the stride of a dimension of one element does not matter."""
        if not self.equal_sizes(left.shape, right.shape):
            return False
        return all(
            all(
                evaluate_size(size, values) == 1
                or evaluate_size(left_stride, values) == evaluate_size(right_stride, values)
                for size, left_stride, right_stride in zip(left.shape, left.stride, right.stride, strict=True)
            )
            for values in self.symbol_values()
        )

    def symbol_values(self) -> list[dict[str, int]]:
        """Return values of the symbols, each under Inductor's name and the file's: one dict for each of
        SYMBOL_VALUES."""
        rows = []
        for first, step in SYMBOL_VALUES:
            by_file_name = {name: first + step * place for place, name in enumerate(self.direction.symbols.values())}
            by_own_name = {own: by_file_name[name] for own, name in self.direction.symbols.items()}
            rows.append(by_own_name | by_file_name)
        return rows

    def is_contiguous(self, layout: TensorLayout) -> bool:
        """Whether a layout has no gaps, and the last dimension is the closest."""
        return all(
            are_contiguous(
                *([evaluate_size(size, values) for size in sizes] for sizes in (layout.shape, layout.stride))
            )
            for values in self.symbol_values()
        )


def _first_name(name: str, renamed: Mapping[str, str]) -> str:
    """Return the name that memory had first; `renamed` has the name before each new one."""
    while name in renamed:
        name = renamed[name]
    return name


def evaluate_size(text: str, values: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes, for values of its symbols. Inductor wrote it in this process, so
    `eval` is safe."""
    return int(eval(text, {"__builtins__": {"max": max, "min": min}, "math": __import__("math")}, dict(values)))


class _WrapperRewriter(ast.NodeTransformer):
    """Rewrites an expression of a wrapper as one of the file. `target` is the name that its value is assigned to, '' if
    it is a part."""

    def __init__(self, reader: WrapperReader, target: str) -> None:
        self.reader, self.target = reader, target

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the name is ast's
        """Return the file's name; a name that is assigned to gets one if it has none."""
        if node.id == "aten":
            return ast.parse("torch.ops.aten", mode="eval").body
        if isinstance(node.ctx, ast.Store):
            names = self.reader.names
            names.setdefault(node.id, unique(node.id, set(names.values())))
        return ast.Name(self.reader.names.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:  # as above
        """Return a call of PyTorch for one of Inductor's own functions."""
        target, self.target = self.target, ""  # the arguments of the call are parts of it
        match node.func:
            case ast.Name(id="empty_strided_cuda"):
                return self.rewrite_allocation(node, target)
            case ast.Name(id="reinterpret_tensor"):
                return self.rewrite_view(node, target)
            case ast.Name(id="device"):
                return ast.Name("device", ast.Load())
            case ast.Attribute(value=ast.Name(id="extern_kernels"), attr=name) if hasattr(torch, name):
                node.func = ast.parse(f"torch.{name}", mode="eval").body
        self.generic_visit(node)
        return node

    def rewrite_allocation(self, node: ast.Call, target: str) -> ast.expr:
        """Return `torch.empty` or `torch.empty_strided` for an allocation, and note the layout of its target."""
        shape, stride, dtype = map(self.visit, node.args)
        layout = TensorLayout(sizes_of(shape), sizes_of(stride))
        if target:
            self.reader.layouts[target] = layout
        if self.reader.is_contiguous(layout):
            return parse_expression(f"torch.empty({ast.unparse(shape)}, dtype={ast.unparse(dtype)}, device=device)")
        return parse_expression(
            f"torch.empty_strided({ast.unparse(shape)}, {ast.unparse(stride)}, dtype={ast.unparse(dtype)}, "
            "device=device)"
        )

    def rewrite_view(self, node: ast.Call, target: str) -> ast.expr:
        """Return a view of memory, `reinterpret_tensor(value, shape, stride, offset)`, in the plainest form: the value
        itself, `.view`, `.t()`, or `.as_strided`; note its layout under `target`."""
        source, shape, stride, offset = map(self.visit, node.args)
        base, layout = ast.unparse(source), TensorLayout(sizes_of(shape), sizes_of(stride))
        base_layout = self.reader.layouts.get(base)
        if target:
            self.reader.layouts[target] = layout
        if ast.unparse(offset) == "0" and base_layout is not None:
            if self.reader.same_layout(base_layout, layout):
                return source
            if (
                self.reader.is_contiguous(base_layout)
                and self.reader.is_contiguous(layout)
                and _same_element_count(self.reader, base_layout, layout)
            ):
                return parse_expression(f"{base}.view({ast.unparse(shape)})")
            if len(layout.shape) == 2 == len(base_layout.shape) and self.is_transposed(base_layout, layout):
                return parse_expression(f"{base}.t()")
        if ast.unparse(offset) == "0":
            return parse_expression(f"{base}.as_strided({ast.unparse(shape)}, {ast.unparse(stride)})")
        # Inductor counts the offset from the view's start, as_strided from that of the memory
        start = f"{base}.storage_offset() + {ast.unparse(offset)}"
        return parse_expression(f"{base}.as_strided({ast.unparse(shape)}, {ast.unparse(stride)}, {start})")

    def is_transposed(self, base_layout: TensorLayout, layout: TensorLayout) -> bool:
        """Whether a layout is that of a transposed matrix."""
        return self.reader.equal_sizes(base_layout.shape[::-1], layout.shape) and self.reader.equal_sizes(
            base_layout.stride[::-1], layout.stride
        )


def _same_element_count(reader: WrapperReader, left: TensorLayout, right: TensorLayout) -> bool:
    """Whether two layouts have as many elements."""
    return all(
        torch.Size([evaluate_size(size, values) for size in left.shape]).numel()
        == torch.Size([evaluate_size(size, values) for size in right.shape]).numel()
        for values in reader.symbol_values()
    )


def parse_expression(text: str) -> ast.expr:
    """Return an expression as a tree."""
    return ast.parse(text, mode="eval").body


def sizes_of(node: ast.expr) -> tuple[str, ...]:
    """Return the sizes in a tuple as texts; of another expression, it alone."""
    return tuple(map(ast.unparse, node.elts)) if isinstance(node, ast.Tuple) else (ast.unparse(node),)


def _captured_stride(port: CodePort) -> tuple[str, ...]:
    """Return the strides that an output had at capture, which the program promises; of other results, and where they
    are symbolic, those on the target."""
    spec = port.port.spec
    if port.port.role != "output" or not isinstance(spec, TensorSpec) or spec.stride is None:
        return port.stride
    is_known = all(isinstance(step, int) for step in spec.stride)
    return tuple(map(str, spec.stride)) if is_known else port.stride


def names_in(texts: Iterable[str]) -> set[str]:
    """Return the names in statements."""
    return {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def _find_call_function(wrapper: str) -> ast.FunctionDef:
    """Return the function of a wrapper that calls the kernels."""
    for node in ast.walk(ast.parse(wrapper)):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            return node
    raise RefusedError("Inductor's code has no function `call`")


def without_with_blocks(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with those in a `with` (of a device) in its place."""
    for statement in statements:
        if isinstance(statement, ast.With):
            yield from without_with_blocks(statement.body)
        else:
            yield statement


def returned_expressions(statements: Iterable[ast.stmt]) -> Sequence[ast.expr]:
    """Return the values that a function returns, if that is a tuple."""
    for statement in statements:
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
            return statement.value.elts
    return ()


def break_line(text: str, indent: str) -> list[str]:
    """Return a statement as lines of at most WIDTH; the names or arguments of a long one are on lines of their own. One
    that ends in no bracket is left as it is, but for the tuple of a `return`."""
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    left, equals, right = text.partition(" = ")
    # a long tuple of names on the left: `(a, b, ...) = f(...)`
    if equals and "," in left and not set(left) & set("()[]{}") and len(left) > WIDTH // 2:
        if not right.endswith(")"):
            return _wrap_items("(", left, f") = {right}", indent)
        start = matching_bracket(right) + 1
        arguments = _wrap_items("", right[start:-1], ")", indent)[1:]  # without a line for its head
        return [*_wrap_items("(", left, f") = {right[:start]}", indent), *arguments]
    if text.startswith("return ") and not text.endswith(")"):
        return _wrap_items("return (", text.removeprefix("return "), ")", indent)
    body = text.removesuffix(":")
    if not body.endswith(")"):
        return [indent + text]
    start = matching_bracket(body)
    return _wrap_items(body[: start + 1], body[start + 1 : -1], f"){':' * text.endswith(':')}", indent)


def _wrap_items(head: str, items: str, end: str, indent: str) -> list[str]:
    """Return a head, items on as few lines of their own as they fit in, 4 columns in, and an end."""
    rows, row = [], ""
    for item in _split_arguments(items):
        if row and len(indent) + 4 + len(row) + len(item) > WIDTH - 2:  # 2: ", " behind it
            rows.append(row.rstrip())
            row = ""
        row += f"{item}, "
    return [f"{indent}{head}", *(f"{indent}    {line}" for line in [*rows, row.rstrip()]), f"{indent}{end}"]


def matching_bracket(text: str) -> int:
    """Return the place of the bracket that the last one closes, 0 if there is none."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in ")]}") - (text[place] in "([{")
        if depth == 0:
            return place
    return 0


def _split_arguments(text: str) -> list[str]:
    """Return arguments, split at the commas that are in no bracket."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            items.append(text[start:place].strip())
            start = place + 1
    return [item for item in [*items, text[start:].strip()] if item]
