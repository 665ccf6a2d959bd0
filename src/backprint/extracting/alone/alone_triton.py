"""Write a Triton kernel of Inductor as a file of its own: its function with the decorator `triton.jit` alone, and what
Inductor's decorator says as plain data, with the functions of PyTorch that it calls.

The source is parsed and never run. Of the module only functions in Triton, and constants, come into the file.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backprint.errors import RefusedError
from backprint.extracting.alone.alone_draws import FlowsOfTriton, draws_of_triton
from backprint.extracting.alone.alone_file import (
    DRAWN,
    body,
    call_rows,
    header,
    literal,
    tensor_dtypes,
)
from backprint.extracting.alone.alone_helpers import (
    HELPERS,
    LIBDEVICE,
    LICENSE,
    STANDING,
    NeededHelpers,
    global_names,
    needed_helpers,
)
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.normal_triton import find_kernel, is_jitted, is_setup, parse_module

RUNS = """\
    python THIS_FILE        runs every configuration on each recorded call, and compares their results: on a GPU, with
                            times, if there is one; else in Triton's interpreter. Exits with 1 if they disagree.
    import THIS_FILE        make(call) -> arguments, launch(arguments, configuration, call), run(call) -> results
"""

IMPORTS = """\
import inspect
import json
import os
import sys
import types

import torch

DEVICE = "cuda" if torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1" else "cpu"
if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
    if "triton" in sys.modules:
        raise ImportError("there is no GPU, and triton was imported already: set TRITON_INTERPRET=1 before that")
    os.environ["TRITON_INTERPRET"] = "1"

import triton
import triton.language as tl
from triton.language import math as tl_math
"""

ATOMIC = """\
if DEVICE == "cpu":
    # The interpreter of triton 3.7.1 reads an array that was broadcast as if it were contiguous.
    import numpy
    import triton.runtime.interpreter as interpreter

    written = interpreter._interpreter.atomic_rmw
    interpreter._interpreter = types.SimpleNamespace(**vars(interpreter._interpreter))
    interpreter._interpreter.atomic_rmw = lambda operation, *arrays: written(
        operation, *map(numpy.ascontiguousarray, arrays[:3]), *arrays[3:]
    )
"""

ASSEMBLY = "inline_asm_elementwise("
"""What a kernel calls to run a line of PTX."""

PTX = """\
if DEVICE == "cpu":
    # The interpreter of triton 3.7.1 runs no PTX: these are the lines that Inductor writes for the arctangent.
    from triton.runtime.interpreter import InterpreterBuilder

    LINES = {
        "fma.rn.f32 $0, $1, $2, $3;": lambda x, y, z: (x.double() * y.double() + z.double()).float(),
        "rcp.approx.ftz.f32 $0, $1;": torch.reciprocal,
    }

    def assembled(self, text, constraints, values, *rest):
        if text not in LINES:
            raise NotImplementedError(f"{text} has no form in Triton's interpreter: run this file on a GPU")
        found = interpreted(LINES[text])(*(tl.tensor(value, kind_of(value)) for value in values))
        return types.SimpleNamespace(get_result=lambda place: found.handle)

    def kind_of(handle):
        return tl.block_type(handle.dtype, list(handle.data.shape)) if handle.data.shape else handle.dtype

    InterpreterBuilder.create_inline_asm = assembled
"""

OWN = frozenset(
    "make drawn run difference disagreements launch title microseconds timed print_times main interpreted missing NAME "
    "HASH DEVICE CALLS CONFIGURATIONS CONSTANTS SIGNATURE OPTIONS WRITTEN DRAWS NEEDS_GPU KERNEL ROUNDING KINDS "
    "FUNCTIONS WRITTEN_AS LINES assembled kind_of InterpreterBuilder "
    "torch triton tl tl_math libdevice triton_helpers os sys types inspect json".split()
)
"""Names of the file's own, which no function of the kernel may have."""

DRAWING = ("rand", "randn", "randint", "randint4x", "rand4x", "randn4x", "randint64", "philox", "rand_eager_kernel")


@dataclass(frozen=True, slots=True)
class TritonModule:
    """The parts of a module that Inductor wrote."""

    main: ast.FunctionDef
    functions: tuple[ast.FunctionDef, ...]
    """Functions in Triton, the kernel's own among them, in their order."""
    constants: tuple[ast.stmt, ...]
    imports: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def parameters(self) -> list[str]:
        """The names of the kernel's parameters."""
        arguments = self.main.args
        return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def text_of(self, function: ast.FunctionDef) -> str:
        """Return a function as it stands, with the decorator `triton.jit` alone."""
        marks = [mark for mark in function.decorator_list if not is_heuristic(mark)]
        written = [f"@{ast.unparse(mark)}" for mark in marks]
        return "\n".join([*written, *self.lines[function.lineno - 1 : function.end_lineno]])

    @property
    def heuristic(self) -> ast.Call | None:
        """Inductor's decorator."""
        marks = [mark for mark in self.main.decorator_list if is_heuristic(mark)]
        return marks[0] if marks and isinstance(marks[0], ast.Call) else None


def is_heuristic(mark: ast.expr) -> bool:
    """Whether a decorator is Inductor's."""
    match mark:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="triton_heuristics"))):
            return True
        case _:
            return False


def triton_module(kernel: Kernel) -> TritonModule:
    """Parse a kernel's module; what cannot stand in a file of its own raises RefusedError."""
    tree = parse_module(kernel.source, kernel.name)
    functions, constants, imports = [], [], []
    for node in tree.body:
        match node:
            case ast.FunctionDef() if is_jitted(node):
                functions.append(node)
            case ast.Import() | ast.ImportFrom():
                imports.append(ast.unparse(node))
            case ast.Assign() | ast.AnnAssign():
                constants.append(node)
            case _ if not is_setup(node):
                raise RefusedError(f"{kernel.name}: line {node.lineno}: a module of a kernel has functions in Triton "
                                   f"and constants alone, no {type(node).__name__}")  # fmt: skip
    main = find_kernel(functions, kernel.name)
    if main is None:
        raise RefusedError(f"{kernel.name}: there is no Triton kernel in this source")
    found = TritonModule(main, tuple(functions), tuple(constants), tuple(imports), tuple(split_lines(kernel.source)))
    check_names(kernel, found)
    return found


def split_lines(source: str) -> list[str]:
    """Split a source where Python's parser does: not at a form feed or the like."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def check_names(kernel: Kernel, module: TritonModule) -> None:
    """Raise RefusedError for a name that the file does not have, or has for something else, and for odd decorators."""
    constants = [one for node in module.constants for one in ast.walk(node) if isinstance(one, ast.Name)]
    known = {function.name for function in module.functions} | {name.id for name in constants}
    if taken := known & OWN:
        raise RefusedError(f"{kernel.name}: {min(taken)} is a name that its own file has for something else")
    for node in (*module.functions, *module.constants):
        for name in global_names(node, decorators=False):
            if name not in known | STANDING:
                raise RefusedError(f"{kernel.name}: it names {name}, which a file of its own does not have")
    for function in module.functions:
        odd = [mark for mark in function.decorator_list if not is_heuristic(mark) and ast.unparse(mark) != "triton.jit"]
        if odd:
            raise RefusedError(f"{kernel.name}: {function.name} has the decorator {ast.unparse(odd[0])[:80]}, which a "
                               f"file of its own does not have")  # fmt: skip


def triton_file(kernel: Kernel) -> str:
    """Return the file of a Triton kernel."""
    module = triton_module(kernel)
    if not kernel.configurations or not all(call.grids for call in kernel.calls):
        raise RefusedError(f"{kernel.name}: its configurations and grids are not known: extract it from a Capture")
    meta = metadata(kernel, module)
    helpers = needed_helpers(module.functions)
    parts = [
        header(kernel, "torch and triton", RUNS + "\n" + DRAWN),
        IMPORTS.rstrip(),
        body("interpreter") if helpers.libdevice or ASSEMBLY in kernel.source else "",
        libdevice_lines(helpers),
        helper_lines(helpers),
        "# ---- the kernel",
        *(ast.unparse(node) for node in module.constants),
        *(f"\n{module.text_of(function)}\n" for function in module.functions),
        "# ---- what was recorded of it",
        recorded(kernel, module, meta, helpers),
        ATOMIC.rstrip() if "tl.atomic" in kernel.source else "",
        PTX.rstrip() if ASSEMBLY in kernel.source else "",
        body("common"),
        body("triton"),
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def recorded(kernel: Kernel, module: TritonModule, meta: Mapping[str, Any], helpers: NeededHelpers) -> str:
    """Return what was recorded of a kernel, as lines of plain data."""
    sizes = {name for one in kernel.configurations for name, _ in one.sizes}
    names = [name for name in module.parameters if name not in sizes]
    draws = draws_of_triton(module.main, tensor_dtypes(kernel, names))
    configurations = [
        {"sizes": dict(one.sizes), "num_warps": one.num_warps, "num_stages": one.num_stages}
        for one in kernel.configurations
    ]
    options = {name: meta[name] for name in ("enable_fp_fusion",) if name in meta}
    options |= {"debug": bool(meta.get("debug")), "sanitize_overflow": False}
    stored = FlowsOfTriton(module.main).stored
    draws_numbers = any(f".{name}(" in kernel.source for name in DRAWING)
    rows = {
        "NAME": kernel.name,
        "HASH": kernel.hash,
        "SIGNATURE": meta["signature"],
        "CONSTANTS": meta["constants"],
        "CONFIGURATIONS": configurations,
        "OPTIONS": options,
        "CALLS": call_rows(kernel, names, draws),
        "WRITTEN": [name for name in names if name in stored],
        "DRAWS": draws_numbers,
        "NEEDS_GPU": helpers.needs_gpu,
    }
    lines = [f"{name} = {literal(value)}" for name, value in rows.items()]
    return "\n".join([*lines, f"KERNEL = {module.main.name}", written_as(kernel, module)])


def written_as(kernel: Kernel, module: TritonModule) -> str:
    """Return what Backprint's reader needs to know the program again: what Inductor wrote around the functions."""
    mark = module.heuristic
    lines = module.lines[mark.lineno - 1 : mark.end_lineno] if mark is not None else ()
    others = [node for node in (*module.functions, *module.constants) if node is not module.main]
    statements = [*sorted(others, key=lambda node: node.lineno), module.main]  # the kernel is the last
    rows = {
        "imports": list(module.imports),
        "statements": [node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node) for node in statements],
        "decorator": "\n".join(lines),
        "sample": kernel.sample,
        "direction": kernel.direction,
        "target": kernel.target,
        "compiler": kernel.compiler,
    }
    says = "# What the compiler wrote around the functions, for those who compare programs. Nothing below reads it."
    return f"{says}\nWRITTEN_AS = {literal(rows)}"


def metadata(kernel: Kernel, module: TritonModule) -> dict[str, Any]:
    """Return the plain entries of Inductor's metadata that a launch needs."""
    mark = module.heuristic
    options = {} if mark is None else {one.arg: one.value for one in mark.keywords}
    found: dict[str, Any] = {}
    for title in ("triton_meta", "inductor_meta"):
        meta = options.get(title)
        if not isinstance(meta, ast.Dict):
            raise RefusedError(f"{kernel.name}: it has no {title} of Inductor, so nothing says how it is launched")
        for key, value in zip(meta.keys, meta.values, strict=True):
            name = getattr(key, "value", None)
            if name in ("signature", "constants", "enable_fp_fusion", "assert_indirect_indexing"):
                found[str(name)] = plain_value(kernel, value)
    found["debug"] = found.get("assert_indirect_indexing", False)
    if not {"signature", "constants"} <= found.keys():
        raise RefusedError(f"{kernel.name}: Inductor's triton_meta has no signature")
    return found


def plain_value(kernel: Kernel, value: ast.expr) -> Any:
    """Return metadata that is a literal."""
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise RefusedError(f"{kernel.name}: line {value.lineno}: metadata that is no plain data ({error})") from error


def libdevice_lines(helpers: NeededHelpers) -> str:
    """Return how the functions of libdevice come into a file: Triton's on a GPU, torch's in the interpreter."""
    if not helpers.libdevice:
        return ""
    lines = [
        f"    libdevice.{name} = interpreted({LIBDEVICE[name]})"
        if name in LIBDEVICE
        else f"    libdevice.{name} = missing({literal(name)})"
        for name in helpers.libdevice
    ]
    return "\n".join(
        [
            'if DEVICE == "cuda":',
            "    from triton.language.extra import libdevice",
            "else:  # the interpreter has no libdevice: these are functions of torch",
            '    libdevice = types.ModuleType("libdevice")',
            *lines,
        ]
    )


def helper_lines(helpers: NeededHelpers) -> str:
    """Return the functions of PyTorch that a kernel calls."""
    if not helpers.functions:
        return ""
    names = [f"{HELPERS}.{name} = {name}" for name in helpers.functions]
    module = f'{HELPERS} = types.ModuleType("{HELPERS}")  # the name by which the kernel calls them'
    return "\n".join([f"# ---- {LICENSE}", "", helpers.source, "", "", module, *names])
