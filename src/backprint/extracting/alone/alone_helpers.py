"""The functions of PyTorch that a Triton kernel of Inductor calls, as source to stand in the kernel's own file.

PyTorch's file is parsed, and what a kernel names in it is taken with what that names in turn. Functions of libdevice
are Triton's on a GPU; its interpreter has none, so each has a function of torch in its place there.

The functions are read in the file of torch that has them (`_inductor/runtime/triton_helpers.py`), which is not run.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from backprint.errors import RefusedError

HELPERS = "triton_helpers"
"""The name by which Inductor's kernels know the functions."""

LICENSE = "Of PyTorch (torch/_inductor/runtime/triton_helpers.py), BSD-3-Clause, copyright of its contributors."

PROVIDED: Mapping[str, str] = MappingProxyType(
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
"""What PyTorch's file imports, by name, as lines of a file without PyTorch's compiler."""

STANDING = frozenset({"tl", "triton", "libdevice", "tl_math", HELPERS})
"""Names that each file has."""

BLOCKS_WAIT = frozenset({"x_grid_barrier", "exclusive_scan_decoupled_lookback", "exclusive_scan_decoupled_lookback_64"})
"""Functions in which blocks wait for one another: the interpreter, which runs one after the other, would not end."""

LIBDEVICE: Mapping[str, str] = MappingProxyType(
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
    """What the functions of a kernel need beside Triton's language."""

    functions: tuple[str, ...]
    """The names of `triton_helpers` that the kernel itself calls."""
    source: str
    """The source of these functions and of what they need."""
    libdevice: tuple[str, ...]
    """The functions of libdevice that are called."""

    @property
    def needs_gpu(self) -> str:
        """Why no interpreter can run it, or ''."""
        return "its blocks wait for one another, so it needs a GPU" if BLOCKS_WAIT & set(self.functions) else ""


def needed_helpers(functions: Iterable[ast.FunctionDef]) -> NeededHelpers:
    """Return what jitted functions need; a name that nobody defines raises RefusedError."""
    called: dict[str, None] = {}
    deep: dict[str, None] = {}
    for function in functions:
        called.update(dict.fromkeys(attributes_of(function, HELPERS)))
        deep.update(dict.fromkeys(attributes_of(function, "libdevice")))
    known, order = helper_definitions(), dict[str, None]()
    for name in called:
        if name not in known:
            raise RefusedError(f"{HELPERS}.{name} is not in PyTorch {torch.__version__}: the kernel is of another one")
        add_helper(name, known, order)
    for name in order:
        if name in known:
            deep.update(dict.fromkeys(attributes_of(known[name].node, "libdevice")))
    imports = [PROVIDED[name] for name in order if name in PROVIDED]
    texts = [known[name].text for name in order if name in known]
    return NeededHelpers(tuple(called), "\n\n\n".join(["\n".join(imports), *texts]).strip(), tuple(deep))


@dataclass(frozen=True, slots=True)
class HelperSource:
    """A definition in PyTorch's file of helpers."""

    node: ast.stmt
    text: str


@functools.cache
def helper_definitions() -> Mapping[str, HelperSource]:
    """Return the definitions of PyTorch's file by name."""
    place = Path(torch.__file__).parent / "_inductor" / "runtime" / "triton_helpers.py"
    try:
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"PyTorch {torch.__version__} has no file of Triton helpers: {error}") from error
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        for name in defined_names(node):
            first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", ()))])
            found[name] = HelperSource(node, "\n".join(lines[first - 1 : node.end_lineno]))
    return MappingProxyType(found)


def defined_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module defines: a function's, or a constant's."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name


def add_helper(name: str, known: Mapping[str, HelperSource], order: dict[str, None]) -> None:
    """Add a definition after those that it names."""
    if name in order:
        return
    waiting = [one for one in global_names(known[name].node) if one not in STANDING and one != name]
    for one in waiting:
        if one in known:
            add_helper(one, known, order)
        elif one in PROVIDED:
            order[one] = None
        else:
            raise RefusedError(f"{HELPERS}.{name} of PyTorch {torch.__version__} names {one}, which is unknown here")
    order[name] = None


def attributes_of(node: ast.AST, module: str) -> list[str]:
    """Return the attributes of a module that code names."""
    found = dict[str, None]()
    for one in ast.walk(node):
        match one:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == module:
                found[attribute] = None
    return list(found)


def global_names(node: ast.AST, decorators: bool = True) -> list[str]:
    """Return the names that code reads and does not bind itself, without those of Python."""
    read, bound = dict[str, None](), set[str]()
    marks = [] if decorators else getattr(node, "decorator_list", [])
    left_out = {id(one) for mark in marks for one in ast.walk(mark)}
    for one in ast.walk(node):
        if id(one) in left_out:
            continue
        match one:
            case ast.Name(id=name, ctx=ast.Load()):
                read[name] = None
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) if one is not node:
                bound.add(name)
    return [name for name in read if name not in bound and not hasattr(builtins, name)]
