"""A kernel that Inductor wrote, as a function of Triton that a person reads: with names of the program, and launched on
a grid. The configurations among which Inductor would choose are those of Triton's autotuner.

Words of this file:

- kernel: `Kernel` is what Inductor wrote: `kernel.source` is a module, `kernel.name` the name in it, `kernel.operators`
  the captured operators that it computes. A TritonModule is this source parsed: `main` is the kernel's function,
  `parameters` its parameters, `text_of(function)` a function without Inductor's decorator.
- configuration: the sizes of blocks (`XBLOCK`, …), warps and stages with which a kernel is compiled. A launch passes
  all parameters but the sizes.
- tuner: Inductor's CachingAutotuner of a kernel. `configs` are its configurations, and `inductor_meta` says how its
  grid is computed, and which arguments it writes (`mutated_arg_names`).
- launch: a call of a kernel in Inductor's wrapper (Launch): `launch.kernel` is the kernel's name there, and
  `launch.arguments` are expressions of the file.
- `meta`: the argument with which Triton asks a function for a grid: the numbers of the configuration that it chose.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.tools.kernels.alone import NeededHelpers, TritonModule, launch_metadata, needed_helpers, triton_module
from backprint.tools.kernels.build_triton import load_tuner
from backprint.tools.kernels.fused.nouns import Direction, unique
from backprint.tools.kernels.fused.wrapper_text import WIDTH, Launch, WrapperText, break_line
from backprint.tools.kernels.nouns import Kernel

SIDE_EFFECT_FREE = ("arange", "full", "program_id", "broadcast_to")
"""Functions of Triton that do nothing but return a value: if nothing reads it, the call is left out."""


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel in a file: its name there, its text with decorators, and the types of its arguments."""

    name: str
    text: str
    kernel: Kernel
    module: TritonModule
    signature: Mapping[str, str]
    """The name of each argument in the file -> Triton's type of it."""
    constants: Mapping[str, Any]
    """The values of the arguments that are constants."""
    options: Mapping[str, Any]
    """What a launch passes beside the arguments."""

    @property
    def helpers(self) -> NeededHelpers:
        """The functions of PyTorch and libdevice that it calls."""
        return needed_helpers(self.module.functions)


@dataclass(frozen=True, slots=True)
class FusedText:
    """A direction as a function of Python and its kernels; the other fields are those of WrapperText."""

    kernels: tuple[FusedKernel, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    used: frozenset[str]
    layout_inputs: frozenset[str]
    other_strides: Mapping[int, tuple[str, ...]]


def fused_text(direction: Direction, wrapper: WrapperText, names_taken: set[str], name: str) -> FusedText:
    """Return the kernels and the function of a direction; `names_taken` are names that the file has already, to which
    those of the kernels are added. `name` is that of the program, and `wrapper` the code that launches the kernels."""
    kernels: dict[str, FusedKernel] = {}
    grids: dict[str, Sequence[str]] = {}
    several = len(direction.kernels) > 1
    for index, kernel in enumerate(direction.kernels):
        kernel_name = unique(f"{name}_{direction.name}{f'_{index + 1}' * several}_kernel", names_taken)
        names_taken.add(kernel_name)
        launches = [launch for launch in wrapper.launches.values() if launch.kernel == kernel.name]
        kernels[kernel.name], grids[kernel.name] = write_kernel(kernel, launches, kernel_name)
    lines: list[str] = []
    for line in wrapper.lines:  # `launch_0()`, … stand for launches
        launch = wrapper.launches.get(line)
        lines.append(line if launch is None else _launch_text(kernels[launch.kernel], launch, grids[launch.kernel]))
    return FusedText(
        kernels=tuple(kernels.values()),
        lines=tuple(lines),
        results=wrapper.results,
        used=wrapper.used,
        layout_inputs=wrapper.layout_inputs,
        other_strides=wrapper.other_strides,
    )


def write_kernel(kernel: Kernel, launches: Sequence[Launch], name: str) -> tuple[FusedKernel, Sequence[str]]:
    """Return a kernel as it stands in the file under `name`, and the expressions of its grid, in which its arguments
    have Inductor's names."""
    module = triton_module(kernel)
    meta = launch_metadata(kernel, module)
    tuner = load_tuner(kernel)
    configurations, grid = configurations_and_grid(tuner)
    # XBLOCK and its like, which a configuration has and a launch does not pass
    size_names = {key for configuration in configurations for key in configuration.kwargs}
    parameters = [parameter for parameter in module.parameters if parameter not in size_names]
    new_names = parameter_names(parameters, launches, module)
    text = rename_in_text(_without_unread_names(module), {**new_names, module.main.name: name})
    text = "\n".join(  # a long line of parameters is broken
        row for line in text.split("\n") for row in (break_line(line, "") if line.startswith("def ") else [line])
    )
    written = [argument for argument in tuner.inductor_meta.get("mutated_arg_names", ()) if argument in parameters]
    decorator = autotune_decorator(configurations, [new_names.get(argument, argument) for argument in written])
    # without it, Triton leaves assertions out
    options = {"debug": True} if "device_assert" in text else {}
    signature = {new_names.get(key, key): kind for key, kind in meta["signature"].items()}
    constants = {new_names.get(key, key): value for key, value in meta["constants"].items()}
    other_functions = [module.text_of(function) for function in module.functions if function is not module.main]
    parts = [
        *(ast.unparse(node) for node in module.constants),
        *other_functions,
        _comment_of(kernel) + decorator + text,
    ]
    return FusedKernel(name, "\n\n\n".join(parts), kernel, module, signature, constants, options), grid


def _comment_of(kernel: Kernel) -> str:
    """Return comment lines: the program's lines, and the operators that the kernel computes of each."""
    lines: dict[str, list[str]] = {}  # line -> operators
    for operator in kernel.operators:
        short = operator.operator.removeprefix("aten.").partition(".")[0]
        # what is not printable ASCII becomes ?, so that a line of a program stays in its comment
        lines.setdefault(re.sub(r"[^ -~]", "?", operator.line), []).append(short)
    rows = []
    for line, names in lines.items():
        rows += [f"# {', '.join(dict.fromkeys(names))}", *([f"#   {line}"] if line else [])]
    return "".join(f"{row if len(row) <= WIDTH else row[: WIDTH - 1] + '…'}\n" for row in rows)


def autotune_decorator(configurations: Sequence[Any], stored: Sequence[str]) -> str:
    """Return the decorator that gives a kernel its configurations. With several, Triton runs each: `stored`, the
    arguments that the kernel changes, are restored after each run. `key=[]`: the choice is not made
    again for other arguments."""
    rows = []
    for item in configurations:
        sizes = ", ".join(f'"{key}": {value}' for key, value in item.kwargs.items())
        rows.append(f"triton.Config({{{sizes}}}, num_warps={item.num_warps}, num_stages={item.num_stages})")
    if len(rows) == 1:
        return f"@triton.autotune([{rows[0]}], key=[])\n"
    restored = f", restore_value={list(stored)!r}" if stored else ""
    listed = "".join(f"        {row},\n" for row in rows)
    return f"@triton.autotune(\n    tuned(\n{listed}    ),\n    key=[]{restored},\n)\n".replace("'", '"')


def configurations_and_grid(tuner: Any) -> tuple[list[Any], Sequence[str]]:
    """Return the configurations of a kernel, and its grid as expressions of its arguments and `meta`.

    A grid that cannot be written for all configurations is that of the first, which is then the only one. Inductor's
    GridExpr writes a grid for the sizes of a configuration: for all of them, names stand for the sizes (`META_XBLOCK`).
    """
    from backprint._torch.inductor import GridExpr

    configurations = list(tuner.configs)
    size_names = {tuple(configuration.kwargs) for configuration in configurations}
    if len(configurations) > 1 and len(size_names) == 1:
        placeholders = {key: f"META_{key}" for key in configurations[0].kwargs}
        try:
            return configurations, grid_text(GridExpr.from_meta(tuner.inductor_meta, placeholders, mode="python"))
        except (TypeError, AssertionError):  # it computes with the numbers of a configuration
            pass
    first_sizes = dict(configurations[0].kwargs)
    return configurations[:1], grid_text(GridExpr.from_meta(tuner.inductor_meta, first_sizes, mode="python"))


def grid_text(expression: Any) -> list[str]:
    """Return the three expressions of a grid, a GridExpr of Inductor, with the values of its intermediate names put
    in."""
    values: dict[str, str] = {}
    # lines of Inductor such as `grid_0 = ...`, which a later one may read
    for line in expression.prefix:
        name, _, value = line.partition(" = ")
        values[name] = ast.unparse(_Substitution(values).visit(ast.parse(value, mode="eval").body))
    sizes = [str(expression.x_grid), str(expression.y_grid), str(expression.z_grid)]
    return [ast.unparse(_Substitution(values).visit(ast.parse(size, mode="eval").body)) for size in sizes]


class _Substitution(ast.NodeTransformer):
    """Puts expressions in the place of names, and `triton.cdiv` in that of a division that is rounded up."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the name is ast's
        """Return the expression of a name, if it has one."""
        # a name of `configurations_and_grid` for a number of the configuration: META_XBLOCK -> meta['XBLOCK']
        if node.id.startswith("META_"):
            return ast.parse(f"meta[{node.id.removeprefix('META_')!r}]", mode="eval").body
        return ast.parse(self.values[node.id], mode="eval").body if node.id in self.values else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:  # as above
        """Return `triton.cdiv(a, b)` for `-(a // -b)`, Inductor's division that is rounded up, or its number."""
        match node:
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.BinOp(left, ast.FloorDiv(), ast.UnaryOp(op=ast.USub(), operand=right))
            ):
                left, right = self.visit(left), self.visit(right)
                if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
                    return ast.Constant(-(left.value // -right.value))  # type: ignore[operator]  # both are numbers
                return ast.Call(ast.parse("triton.cdiv", mode="eval").body, [left, right], [])
        self.generic_visit(node)
        return node


def _launch_text(kernel: FusedKernel, launch: Launch, grid: Sequence[str]) -> str:
    """Return the launch of a kernel as a statement. `grid` has the expressions of its grid, in which its arguments have
    Inductor's names; it becomes a function of `meta` if it depends on the configuration."""
    # a launch does not pass the sizes of a configuration, which are the last parameters
    values = dict(zip(kernel.module.parameters, launch.arguments, strict=False))
    sizes = [ast.unparse(_Substitution(values).visit(ast.parse(size, mode="eval").body)) for size in grid]
    while len(sizes) > 1 and sizes[-1] == "1":  # Triton's default
        sizes.pop()
    text = f"({', '.join(sizes)},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
    text = f"lambda meta: {text}" if "meta[" in text else text
    options = [f"{name}={value!r}" for name, value in kernel.options.items()]
    return f"{kernel.name}[{text}]({', '.join([*launch.arguments, *options])})".replace("'", '"')


# ---- The text of a kernel


def parameter_names(parameters: Sequence[str], launches: Sequence[Launch], module: TritonModule) -> dict[str, str]:
    """Return new names of a kernel's pointers, `x_ptr` for a pointer that every launch passes `x`; others keep their
    names."""
    names_used = {node.id for node in ast.walk(module.main) if isinstance(node, ast.Name)}
    names_taken = names_used | set(module.parameters) | {"tl", "triton", "libdevice", "triton_helpers", "tl_math"}
    new_names: dict[str, str] = {}
    for index, name in enumerate(parameters):
        values = {launch.arguments[index] for launch in launches if index < len(launch.arguments)}
        value = min(values, default="")  # the only one, where it is used
        if len(values) == 1 and re.fullmatch(r"[A-Za-z_]\w*", value) and "ptr" in name:
            new_names[name] = unique(f"{value}_ptr", names_taken)
            names_taken.add(new_names[name])
    return new_names


def _without_unread_names(module: TritonModule) -> str:
    """Return the text of the kernel without assignments of one line and no side effect (`_is_unread`) to names that
    nothing reads, such as `rindex`. When one is gone, nothing may read what it read: so this is done until there is
    none."""
    lines = module.text_of(module.main).split("\n")
    while True:
        tree = ast.parse("\n".join(lines))
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        unread_lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and _is_unread(node, read)}
        if not unread_lines:
            return "\n".join(lines)
        lines = [line for number, line in enumerate(lines, 1) if number not in unread_lines]


def _is_unread(node: ast.stmt, read: Iterable[str]) -> bool:
    """Whether a statement of one line only names a value that nothing reads: the name is not in `read`, and the value
    is computed without a call that may do more than return."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
        ):
            calls = [child.func for child in ast.walk(value) if isinstance(child, ast.Call)]
            has_no_effect = all(isinstance(call, ast.Attribute) and call.attr in SIDE_EFFECT_FREE for call in calls)
            return name not in read and has_no_effect and node.lineno == node.end_lineno
    return False


def rename_in_text(text: str, names: Mapping[str, str]) -> str:
    """Return a text of Python with other names for `names`, but not for attributes: `s0.shape` -> `n.shape`, `x.s0`
    stays."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.split("\n")
    # from the end, so that the columns of the tokens before stay right
    for index, token in reversed(list(enumerate(tokens))):
        is_attribute = index > 0 and tokens[index - 1].string == "."
        if token.type == tokenize.NAME and token.string in names and not is_attribute:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + names[token.string] + line[token.end[1] :]
    return "\n".join(lines)


def break_lines(lines: Iterable[str], indent: str) -> list[str]:
    """Return statements with an indent, the long ones broken into several lines."""
    return [row for line in lines for row in break_line(line, indent)]
