"""A Triton kernel of Inductor as one file that runs by itself, with torch and triton alone: `standalone_text`.

The file has the kernel's function, decorated with `triton.jit` only. What Inductor's own decorator says is there as
plain data, and the functions of PyTorch that the kernel calls are there as source. Sources are parsed, and none of
their code is run. `alone_file.py` has the other parts of a file.

Words of this file:

- kernel: what Inductor wrote (Kernel): `source` is a module with its function, `configurations` the ways to compile it,
  `calls` the recorded calls, each with its arguments and with its grid for each configuration.
- helpers: functions that a kernel calls and that are not in Triton's language: of PyTorch's `triton_helpers`, and of
  CUDA's libdevice. A definition is one in PyTorch's file of helpers.
- heuristic: Inductor's decorator of a kernel, with metadata on how it is launched.
- `dict[str, None]` is a set that keeps the order.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from backprint.errors import RefusedError
from backprint.tools.kernels.alone_file import VALUES_NOTE, call_rows, header, literal, parameter_uses, template
from backprint.tools.kernels.normal import is_setup
from backprint.tools.kernels.nouns import Kernel
from backprint.tools.kernels.read import find_kernel, is_jitted, parse_module

# ------------------------------------------------------------------ the functions of PyTorch that a Triton kernel calls
#
# Their sources are copied from PyTorch's own file (`_inductor/runtime/triton_helpers.py`), with all definitions that
# they need. On a GPU, the functions of libdevice are Triton's. Triton's interpreter has no libdevice, so functions of
# torch are used there.


HELPERS = "triton_helpers"
"""The module name through which Inductor's kernels call these functions: `triton_helpers.maximum(...)`."""

LICENSE = "Of PyTorch (torch/_inductor/runtime/triton_helpers.py), BSD-3-Clause, copyright of its contributors."

HELPER_IMPORTS: Mapping[str, str] = MappingProxyType(
    {
        "math": "from triton.language import math",
        "_log2": "from triton.language.standard import _log2",
        "pymath": "import math as pymath",
        "warnings": "import warnings",
        "Any": "from typing import Any",
        "Callable": "from collections.abc import Callable",
        "TypeVar": "from typing import TypeVar",
        "JITFunction": "from triton.runtime.jit import JITFunction",
        "builtins_use_semantic_kwarg": (
            'builtins_use_semantic_kwarg = "_semantic" in inspect.signature(tl.core.view).parameters'
        ),
    }
)
"""The names that PyTorch's file imports, each with a line that defines the same name without importing Inductor."""

ALWAYS_DEFINED = frozenset({"tl", "triton", "libdevice", "tl_math", HELPERS})
"""Names that the file of every Triton kernel defines."""

WAITING_HELPERS = frozenset(
    {"x_grid_barrier", "exclusive_scan_decoupled_lookback", "exclusive_scan_decoupled_lookback_64"}
)
"""Functions in which blocks wait for one another. The interpreter runs the blocks one by one, so it would never end."""

LIBDEVICE_IN_TORCH: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: f"torch.{name}"
            for name in (
                "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 floor "
                "fmax fmin fmod hypot isinf isnan ldexp lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt "
                "tan tanh trunc"
            ).split()
        },
        "abs": "torch.abs",
        "fabs": "torch.abs",
        "rint": "torch.round",
        "nearbyint": "torch.round",
        "llrint": "lambda x: torch.round(x).to(torch.int64)",
        "signbit": "lambda x: torch.signbit(x).to(torch.int32)",
        "ilogb": "lambda x: torch.frexp(x).exponent - 1",
        "fast_tanhf": "torch.tanh",
        "mul_rn": "torch.mul",
        "fma": "lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype)",
        "erfcx": "torch.special.erfcx",
        "normcdf": "torch.special.ndtr",
        "cyl_bessel_i0": "torch.special.i0",
        "cyl_bessel_i1": "torch.special.i1",
        "j0": "torch.special.bessel_j0",
        "j1": "torch.special.bessel_j1",
        "y0": "torch.special.bessel_y0",
        "y1": "torch.special.bessel_y1",
    }
)
"""Functions of libdevice that Inductor calls -> what computes them in the interpreter."""


@dataclass(frozen=True, slots=True)
class NeededHelpers:
    """The functions that a kernel calls and that are not in Triton's language."""

    functions: tuple[str, ...]
    """The names of `triton_helpers` that the kernel itself calls."""
    source: str
    """The source of these functions and of the definitions they need."""
    libdevice: tuple[str, ...]
    """The functions of libdevice that are called."""

    @property
    def needs_gpu(self) -> str:
        """The reason why Triton's interpreter cannot run the kernel, or ''."""
        return "its blocks wait for one another, so it needs a GPU" if WAITING_HELPERS & set(self.functions) else ""


def needed_helpers(functions: Iterable[ast.FunctionDef]) -> NeededHelpers:
    """Return the helpers that jitted functions need, in an order in which they can be defined; refuse a name without a
    definition."""
    called_helpers: dict[str, None] = {}
    libdevice: dict[str, None] = {}
    for function in functions:
        called_helpers.update(dict.fromkeys(attributes_of(function, HELPERS)))
        libdevice.update(dict.fromkeys(attributes_of(function, "libdevice")))
    known, order = helper_definitions(), dict[str, None]()  # each definition after those that it needs
    for name in called_helpers:
        if name not in known:
            raise RefusedError(
                f"{HELPERS}.{name} is not in PyTorch {torch.__version__}: the kernel was written by another version"
            )
        _order_helper(name, known, order)
    for name in order:  # helpers call libdevice, too; what is not known is an import
        if name in known:
            libdevice.update(dict.fromkeys(attributes_of(known[name].node, "libdevice")))
    imports = [HELPER_IMPORTS[name] for name in order if name in HELPER_IMPORTS]
    texts = [known[name].text for name in order if name in known]
    source = "\n\n\n".join(["\n".join(imports), *texts]).strip()
    return NeededHelpers(functions=tuple(called_helpers), source=source, libdevice=tuple(libdevice))


@dataclass(frozen=True, slots=True)
class _HelperSource:
    """A definition in PyTorch's file of helpers."""

    node: ast.stmt
    text: str


@functools.cache
def helper_definitions() -> Mapping[str, _HelperSource]:
    """Return the functions and constants in PyTorch's file of helpers by name; refuse a PyTorch without that file."""
    path = Path(torch.__file__).parent / "_inductor" / "runtime" / "triton_helpers.py"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"PyTorch {torch.__version__} has no file of Triton helpers: {error}") from error
    lines, definitions = text.splitlines(), {}
    for node in ast.parse(text).body:
        for name in _defined_names(node):
            # a function begins with its first decorator
            first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
            definitions[name] = _HelperSource(node, "\n".join(lines[first - 1 : node.end_lineno]))
    return MappingProxyType(definitions)


def _defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines: a function's, or a constant's."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name


def _order_helper(name: str, known: Mapping[str, _HelperSource], order: dict[str, None]) -> None:
    """Append the name of a definition in PyTorch's file (`known`) to `order`, after those of all definitions and
    imports that it needs; refuse one that needs a name which is neither."""
    if name in order:
        return
    names = [needed for needed in _global_names(known[name].node) if needed not in ALWAYS_DEFINED and needed != name]
    for needed in names:
        if needed in known:
            _order_helper(needed, known, order)
        elif needed in HELPER_IMPORTS:
            order[needed] = None
        else:
            raise RefusedError(
                f"{HELPERS}.{name} of PyTorch {torch.__version__} uses {needed}, which Backprint does not know: "
                "use a version of PyTorch that Backprint supports"
            )
    order[name] = None


def attributes_of(node: ast.AST, module: str) -> list[str]:
    """Return the attributes of a module that code uses: `["maximum"]` for `triton_helpers.maximum(x, y)`."""
    attributes = dict[str, None]()
    for child in ast.walk(node):
        match child:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == module:
                attributes[attribute] = None
    return list(attributes)


def _global_names(node: ast.AST, decorators: bool = True) -> list[str]:
    """Return the names that code reads and does not bind itself, without Python's builtins.

    Names in the decorators count only with `decorators`.
    """
    names_read, names_bound = dict[str, None](), set[str]()
    ignored_decorators = [] if decorators else getattr(node, "decorator_list", [])
    ignored = {id(child) for decorator in ignored_decorators for child in ast.walk(decorator)}
    for child in ast.walk(node):
        if id(child) in ignored:
            continue
        match child:
            case ast.Name(id=name, ctx=ast.Load()):
                names_read[name] = None
            case ast.Name(id=name) | ast.arg(arg=name):
                names_bound.add(name)
            case ast.FunctionDef(name=name) if child is not node:
                names_bound.add(name)
    return [name for name in names_read if name not in names_bound and not hasattr(builtins, name)]


# ------------------------------------------------------------------ the file of a Triton kernel
#
# Only `triton.jit` functions and constants of the kernel's module are copied into the file.

USAGE_NOTE = """\
    python THIS_FILE        runs every configuration on each recorded call, and compares their results: on a GPU, with
                            times, if there is one; else in Triton's interpreter. Exits with 1 if they disagree.
    import THIS_FILE        make(call) -> arguments, launch(arguments, configuration, call), run(call) -> results
"""

TRITON_IMPORTS = """\
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

ATOMIC_PATCH = """\
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

ASSEMBLY_CALL = "inline_asm_elementwise("
"""The call with which a kernel runs a line of PTX."""

PTX_PATCH = """\
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

RESERVED = frozenset(
    "make drawn run difference disagreements launch title microseconds timed print_times main interpreted missing NAME "
    "HASH DEVICE CALLS CONFIGURATIONS CONSTANTS SIGNATURE OPTIONS WRITTEN DRAWS NEEDS_GPU KERNEL ROUNDING KINDS "
    "FUNCTIONS LINES assembled kind_of InterpreterBuilder "
    "torch triton tl tl_math libdevice triton_helpers os sys types inspect json".split()
)
"""Names that the file defines itself. A kernel whose functions or constants have one of these names is refused."""

RANDOM_FUNCTIONS = (
    "rand",
    "randn",
    "randint",
    "randint4x",
    "rand4x",
    "randn4x",
    "randint64",
    "philox",
    "rand_eager_kernel",
)
"""Functions with which a kernel makes random numbers."""


@dataclass(frozen=True, slots=True)
class TritonModule:
    """The parts of a module that Inductor wrote."""

    main: ast.FunctionDef
    """The function that is the kernel."""
    functions: tuple[ast.FunctionDef, ...]
    """All `triton.jit` functions of the module in their order, `main` included."""
    constants: tuple[ast.stmt, ...]
    imports: tuple[str, ...]
    lines: tuple[str, ...]

    @property
    def parameters(self) -> list[str]:
        """The names of the kernel's parameters."""
        arguments = self.main.args
        return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def text_of(self, function: ast.FunctionDef) -> str:
        """Return the source of a function, without Inductor's decorator."""
        decorators = [f"@{ast.unparse(node)}" for node in function.decorator_list if not _is_heuristic(node)]
        return "\n".join([*decorators, *self.lines[function.lineno - 1 : function.end_lineno]])

    @property
    def heuristic(self) -> ast.Call | None:
        """Inductor's decorator of the kernel, a call such as `triton_heuristics.pointwise(...)`; None if it has
        none."""
        decorators = [node for node in self.main.decorator_list if _is_heuristic(node)]
        return decorators[0] if decorators and isinstance(decorators[0], ast.Call) else None


def _is_heuristic(decorator: ast.expr) -> bool:
    """Whether a decorator is one of `triton_heuristics`, Inductor's module."""
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="triton_heuristics"))):
            return True
        case _:
            return False


def triton_module(kernel: Kernel) -> TritonModule:
    """Parse a kernel's module; raise RefusedError for a statement that cannot be copied into a file for this kernel."""
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
                raise RefusedError(
                    f"{kernel.name}: line {node.lineno}: the module of a kernel may have only triton.jit functions "
                    f"and constants, not {type(node).__name__}"
                )
    main = find_kernel(functions, kernel.name)
    if main is None:
        raise RefusedError(f"{kernel.name}: there is no Triton kernel in this source")
    module = TritonModule(main, tuple(functions), tuple(constants), tuple(imports), tuple(_split_lines(kernel.source)))
    check_names(kernel, module)
    return module


def _split_lines(source: str) -> list[str]:
    """Split a source into the lines that Python's parser counts. `str.splitlines` also splits at form feeds."""
    return source.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def check_names(kernel: Kernel, module: TritonModule) -> None:
    """Refuse a kernel that uses a name which its file would not define, defines a name that the file needs for
    something else, or has a decorator other than triton.jit."""
    constants = [child for node in module.constants for child in ast.walk(node) if isinstance(child, ast.Name)]
    names_defined = {function.name for function in module.functions} | {name.id for name in constants}
    if clashing := names_defined & RESERVED:
        raise RefusedError(f"{kernel.name}: it defines {min(clashing)}, a name that Backprint's files use themselves")
    for node in (*module.functions, *module.constants):
        for name in _global_names(node, decorators=False):  # decorators are looked at below
            if name not in names_defined | ALWAYS_DEFINED:
                raise RefusedError(f"{kernel.name}: it uses {name}, which the file of this kernel would not define")
    for function in module.functions:
        decorators = [ast.unparse(node) for node in function.decorator_list if not _is_heuristic(node)]
        unknown = [text for text in decorators if text != "triton.jit"]
        if unknown:
            raise RefusedError(
                f"{kernel.name}: {function.name} has the decorator {unknown[0][:80]}, which the file of this kernel "
                "would not define"
            )


def standalone_text(kernel: Kernel) -> str:
    """Return the text of a file that has a Triton kernel with its calls, and that runs by itself; refuse a kernel
    without recorded calls."""
    if kernel.language != "triton":
        raise RefusedError(f"{kernel.name}: a kernel in {kernel.language:.40} has no file that runs by itself")
    if not kernel.calls:
        raise RefusedError(
            f"{kernel.name}: there is no recorded call of this kernel, so nothing could run it: extract "
            f"it from a Capture with `backprint kernels`"
        )
    module = triton_module(kernel)
    if not kernel.configurations or not all(call.grids for call in kernel.calls):
        raise RefusedError(f"{kernel.name}: its configurations and grids are not known: extract it from a Capture")
    meta = launch_metadata(kernel, module)
    helpers = needed_helpers(module.functions)
    parts = [
        header(kernel, USAGE_NOTE + "\n" + VALUES_NOTE),
        TRITON_IMPORTS.rstrip(),
        # `interpreted` and `missing`, of which functions for the interpreter are made
        template("interpreter") if helpers.libdevice or ASSEMBLY_CALL in kernel.source else "",
        libdevice_lines(helpers),
        helper_lines(helpers),
        "# ---- the kernel",
        *(ast.unparse(node) for node in module.constants),
        *(f"\n{module.text_of(function)}\n" for function in module.functions),
        "# ---- what was recorded of it",
        fact_lines(kernel, module, meta, helpers),
        ATOMIC_PATCH.rstrip() if "tl.atomic" in kernel.source else "",
        PTX_PATCH.rstrip() if ASSEMBLY_CALL in kernel.source else "",
        template("common"),
        template("triton"),
    ]
    text = "\n\n".join(part for part in parts if part).rstrip() + "\n"
    ast.parse(text)  # a text that Python cannot parse raises here, and is not returned
    return text


def fact_lines(kernel: Kernel, module: TritonModule, meta: Mapping[str, Any], helpers: NeededHelpers) -> str:
    """Return lines that assign the recorded facts and calls of a kernel to names such as CALLS, as literals. `meta` is
    what `launch_metadata` returns."""
    size_names = {name for configuration in kernel.configurations for name, _ in configuration.sizes}
    names = [name for name in module.parameters if name not in size_names]  # of the arguments of a call
    configurations = [
        {
            "sizes": dict(configuration.sizes),
            "num_warps": configuration.num_warps,
            "num_stages": configuration.num_stages,
        }
        for configuration in kernel.configurations
    ]
    options = {name: meta[name] for name in ("enable_fp_fusion",) if name in meta}
    # without the assertions of overflow that Triton adds under `debug`, as Inductor launches it
    options |= {"debug": bool(meta.get("debug")), "sanitize_overflow": False}
    written_names = {use.name for use in parameter_uses(kernel) if use.writes}
    has_random_numbers = any(f".{name}(" in kernel.source for name in RANDOM_FUNCTIONS)
    rows = {
        "NAME": kernel.name,
        "HASH": kernel.hash,
        "SIGNATURE": meta["signature"],
        "CONSTANTS": meta["constants"],
        "CONFIGURATIONS": configurations,
        "OPTIONS": options,
        "CALLS": call_rows(kernel, names),
        "WRITTEN": [name for name in names if name in written_names],
        "DRAWS": has_random_numbers,
        "NEEDS_GPU": helpers.needs_gpu,
    }
    lines = [f"{name} = {literal(value)}" for name, value in rows.items()]
    return "\n".join([*lines, f"KERNEL = {module.main.name}"])


def launch_metadata(kernel: Kernel, module: TritonModule) -> dict[str, Any]:
    """Return the entries of the metadata in Inductor's decorator that a launch needs: `signature`, `constants`,
    `debug`, … Refuse a kernel that lacks them, or has them not as literals. A kernel that asserts that its indices are
    inside (`assert_indirect_indexing`) is launched with `debug`, without which Triton leaves assertions out."""
    decorator = module.heuristic
    arguments = {} if decorator is None else {keyword.arg: keyword.value for keyword in decorator.keywords}
    meta_entries: dict[str, Any] = {}
    for argument in ("triton_meta", "inductor_meta"):
        meta = arguments.get(argument)
        if not isinstance(meta, ast.Dict):
            raise RefusedError(
                f"{kernel.name}: its decorator has no {argument}, in which Inductor says how the kernel is launched"
            )
        for key, value in zip(meta.keys, meta.values, strict=True):
            name = getattr(key, "value", None)
            if name in ("signature", "constants", "enable_fp_fusion", "assert_indirect_indexing"):
                meta_entries[str(name)] = _plain_value(kernel, value)
    meta_entries["debug"] = meta_entries.get("assert_indirect_indexing", False)
    if not {"signature", "constants"} <= meta_entries.keys():
        raise RefusedError(f"{kernel.name}: Inductor's triton_meta has no signature or no constants")
    return meta_entries


def _plain_value(kernel: Kernel, value: ast.expr) -> Any:
    """Return the value of a literal in the metadata; raise RefusedError if it is not a literal."""
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise RefusedError(f"{kernel.name}: line {value.lineno}: its metadata is not a literal ({error})") from error


def libdevice_lines(helpers: NeededHelpers) -> str:
    """Return the lines that define `libdevice` in a file: Triton's module on a GPU, functions of torch in the
    interpreter."""
    if not helpers.libdevice:
        return ""
    lines = [
        f"    libdevice.{name} = interpreted({LIBDEVICE_IN_TORCH[name]})"
        if name in LIBDEVICE_IN_TORCH
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
    """Return the lines that define `triton_helpers` in a file, with the functions that the kernel calls."""
    if not helpers.functions:
        return ""
    assignments = [f"{HELPERS}.{name} = {name}" for name in helpers.functions]
    module_line = f'{HELPERS} = types.ModuleType("{HELPERS}")  # the name by which the kernel calls them'
    return "\n".join([f"# ---- {LICENSE}", "", helpers.source, "", "", module_line, *assignments])
