"""The compilers that a bench asks: a table, every backend of torch.compile, and functions of the user's own.

A compiler is a row: its name, the function that asks it, and the packages that it needs. A row's function is named as
a text, so that a package is imported when its compiler is used.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.words import BENCH_DIRECTIONS
from backprint.errors import UsageError, is_defect

if TYPE_CHECKING:
    from backprint.tools.lowering.subjects import Compile

HERE = "backprint.tools.bench.compilers"

GRAPH, PAIR, SOLUTION = "graph", "pair", "solution"
"""What compilers are: a function of one graph, which is called for each of a Pair's two; a function of both, which
returns a solution; or the class of a solution, a torch.autograd.Function."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler: the function that compiles with it, and the packages that it needs."""

    name: str
    build: str
    """`package.module:function` or `file.py:function`; the function takes a graph, its inputs and `options`."""
    packages: tuple[str, ...] = ()
    """The packages that it imports."""
    extra: str = ""
    """The extra of Backprint that brings them."""
    options: tuple[str, ...] = ()
    backend: str = ""
    """The backend of torch.compile that it is, where torch.compile also differentiates with it."""
    takes: str = GRAPH
    """What its function takes: a GRAPH, a PAIR, or the inputs themselves, as a SOLUTION does."""


ROWS = (
    Compiler("eager", f"{HERE}.control:build_eager"),  # the control: the graph itself, operator by operator
    *(
        Compiler(name, f"{HERE}.control:build_aot", options=(name,), backend=name)
        for name in ("aot_eager", "aot_eager_decomp_partition")
    ),
    # torch._inductor.compile: without Dynamo, whose guards take about 15 µs a call
    Compiler("inductor", f"{HERE}.inductor:build_inductor", backend="inductor"),
    Compiler("aotinductor", f"{HERE}.inductor:build_aotinductor"),
    # those below are given the graph lowered
    Compiler("xla", f"{HERE}.xla:build_xla", ("jax", "torchax"), "compilers"),
    Compiler("onnxruntime", f"{HERE}.onnx:build_onnxruntime", ("onnx", "onnxruntime", "onnxscript"), "compilers"),
    Compiler("openvino", f"{HERE}.openvino:build_openvino", ("openvino",), "compilers"),
    # known to fail on many graphs, or to crash
    Compiler("executorch", f"{HERE}.experimental:build_executorch", ("executorch",), "executorch"),
    Compiler("iree", f"{HERE}.experimental:build_iree", ("iree.turbine", "iree.runtime"), "iree"),
    Compiler("tvm", f"{HERE}.experimental:build_tvm", ("tvm",), "tvm"),
)

COMPILERS: Mapping[str, Compiler] = {row.name: row for row in ROWS}

DISTRIBUTIONS = {"tvm": "apache-tvm", "iree.turbine": "iree-turbine", "iree.runtime": "iree-base-runtime"}
"""Package -> the name of its distribution, where that differs."""

OWN = (
    "a compiler of your own is package.module:name or file.py:name: a function gm, inputs -> callable(*inputs), "
    "a function forward, backward, inputs -> solution, or a solution, which is a torch.autograd.Function"
)


def compiler_named(text: str) -> Compiler:
    """Return the compiler of a name: from the table, a torch.compile backend, `inductor:MODE`, or `file.py:function`;
    raise UsageError for a name that is none of these."""
    if text in COMPILERS:
        return COMPILERS[text]
    name, colon, function = text.rpartition(":")
    if name == "inductor":
        return _inductor_in_mode(text, function)
    if colon:
        return own_compiler(text, name, function)
    backends = torch_backends()
    if text in backends:
        return Compiler(text, f"{HERE}.control:build_backend", options=(text,), backend=text)
    near = difflib.get_close_matches(text, {*COMPILERS, *backends}, n=3, cutoff=0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        f"no compiler is called {text!r}{hint}\nknown: {', '.join(COMPILERS)}; of torch.compile also: "
        f"{', '.join(sorted(set(backends) - set(COMPILERS)))}; {OWN}"
    )


def torch_backends() -> list[str]:
    """Return the names that torch.compile lists."""
    import torch

    return list(torch.compiler.list_backends(exclude_tags=()))


def _inductor_in_mode(text: str, mode: str) -> Compiler:
    """Return Inductor in one of the modes of torch.compile; UsageError for a mode that it does not have."""
    from backprint._torch.inductor import mode_options

    modes = mode_options()
    if mode not in modes:
        raise UsageError(f"{text!r}: Inductor has no mode {mode!r}; it has {', '.join(modes)}")
    return replace(COMPILERS["inductor"], name=text, options=(mode,))


def own_compiler(text: str, place: str, function: str) -> Compiler:
    """Return the compiler of a function of the user's own (`text` is `PLACE:FUNCTION`). Raise UsageError if its file or
    module does not exist, or the file's text does not name it; nothing of it is run."""
    known = Path(place).is_file() if place.endswith(".py") else has_module(place)
    if not known or not function.isidentifier():
        what = "file" if place.endswith(".py") else "module"
        why = f"no {what} {place}" if not known else f"{function!r} is no function's name"
        raise UsageError(f"compiler {text!r}: {why}; {OWN}")
    file = Path(place) if place.endswith(".py") else _file_of_module(place)
    if file is None:  # a module without a file of Python: what it has shows when it is imported
        return Compiler(name=text, build=text)
    tree = read_tree(file)
    # `*`: after `from … import *` the text does not tell which names a file has.
    if place.endswith(".py") and not {function, "*"} & (names := _names_of_tree(tree)):
        raise _without_function(text, place, function, sorted(names))
    return Compiler(name=text, build=text, takes=_taken_by(tree, function))


def _file_of_module(name: str) -> Path | None:
    """Return the Python file of a module, which is not imported; None where it has none."""
    spec = importlib.util.find_spec(name)
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") and Path(origin).is_file() else None


def _taken_by(tree: ast.Module, name: str) -> str:
    """Return what a function or a class of a file takes, by its text: nothing of it is run in this process. A function
    whose parameters begin with `forward` and `backward` takes a PAIR, a class of autograd.Function is a SOLUTION, and
    all else takes a GRAPH, also a name that the file does not define itself, such as one that it imports."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=own, args=arguments) if own == name:
                taken = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
                return PAIR if taken[:2] == ["forward", "backward"] else GRAPH
            case ast.ClassDef(name=own) if own == name and _is_function_class(node, classes):
                return SOLUTION
    return GRAPH


def _is_function_class(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether a class is a torch.autograd.Function by what it inherits from, in its own file. `classes` are the classes
    of the file that are still to be looked at."""
    others = {name: other for name, other in classes.items() if other is not node}  # so that a circle of names ends
    for base in node.bases:  # `torch.autograd.Function` or `Function`, or another class of the file
        name = base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""
        if name == "Function" or (name in others and _is_function_class(others[name], others)):
            return True
    return False


def read_tree(place: Path) -> ast.Module:
    """Parse a Python file, which is not run; UsageError if it cannot be read."""
    try:
        return ast.parse(place.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{place} cannot be read as Python: {error}; {OWN}") from error


def _names_of_tree(tree: ast.Module) -> set[str]:
    """Return the names that a Python file defines, imports or uses: any other is no function of it."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                names.add(name)
            case ast.alias(name=name, asname=own):
                names.add(own or name)
    return names


def has_module(name: str) -> bool:
    """Whether a module is installed. It is not imported, but the packages that it lies in are."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def check_installed(compiler: Compiler) -> None:
    """Raise UsageError if a package that a compiler needs is missing; nothing of it is imported."""
    missing = [package for package in compiler.packages if not has_module(package)]
    if missing:
        raise UsageError(
            f"compiler {compiler.name} needs {', '.join(missing)}, which is not installed: "
            f"pip install '.[{compiler.extra}]' in Backprint's folder"
        )


def versions_of(compiler: Compiler) -> dict[str, str]:
    """Return the versions of torch and of the packages that a compiler uses; a file's is a digest of its content."""
    versions = {}
    for package in ("torch", *compiler.packages):
        name = DISTRIBUTIONS.get(package, package)
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    place = Path(compiler.build.rpartition(":")[0])
    if place.suffix == ".py" and place.is_file():
        versions[place.name] = hashlib.sha256(place.read_bytes()).hexdigest()[:12]
    return versions


def compiled_by(compiler: Compiler) -> Compile:
    """Return the function that compiles a graph for its inputs with a compiler; raise UsageError for a compiler that
    takes both graphs of a Pair or is a solution, or that is not installed. A user's function with a parameter
    `direction` is told whether the graph is a `forward` or a `backward`."""
    if compiler.takes != GRAPH:
        raise UsageError(f"{compiler.name} is for both graphs of a Pair, and this wants a compiler of one graph; {OWN}")
    check_installed(compiler)
    build = loaded_build(compiler)
    is_own = compiler.build == compiler.name  # equal only for a function of the user's (`own_compiler`)
    takes_direction = is_own and _takes_direction(build)

    def compiled(module: Any, inputs: Sequence[Any]) -> Any:
        direction = {"direction": direction_of(module)} if takes_direction else {}
        return build(module, inputs, *compiler.options, **direction)

    return compiled


def _takes_direction(build: Any) -> bool:
    """Whether a function of the user's own has a parameter `direction`."""
    try:
        return "direction" in inspect.signature(build).parameters
    except (TypeError, ValueError):  # a callable without a signature, such as some builtins
        return False


def direction_of(module: Any) -> str:
    """Return `forward` or `backward` for a GraphModule of `to_fx`: what returns gradients is a backward."""
    (output,) = module.graph.find_nodes(op="output")
    backward = any(port.role == "gradient" for port in output.meta.get("ports", ()))
    return BENCH_DIRECTIONS[1] if backward else BENCH_DIRECTIONS[0]


def loaded_build(compiler: Compiler) -> Any:
    """Import the module, or run the file, of a compiler's `build`, and return its function; UsageError if there is
    none, or if the module or file raises by no defect of ours."""
    place, _, name = compiler.build.rpartition(":")
    try:
        namespace = runpy.run_path(place) if place.endswith(".py") else vars(importlib.import_module(place))
    except Exception as error:
        if is_defect(error):
            raise
        raise UsageError(f"compiler {compiler.name!r}: {place} raises {type(error).__name__}: {error}") from error
    if not callable(namespace.get(name)):
        raise _without_function(compiler.name, place, name, [key for key in namespace if callable(namespace[key])])
    return namespace[name]


def _without_function(compiler: str, place: str, function: str, names: Sequence[str]) -> UsageError:
    """Return the error for a place that does not have a function."""
    near = difflib.get_close_matches(function, names, 1)
    hint = f": did you mean {near[0]}? " if near else "; "
    return UsageError(f"compiler {compiler!r}: {place} has no function {function!r}{hint}{OWN}")


def absolute_compiler(text: str) -> str:
    """Return the name of a compiler with the absolute path of its file, so that other processes find it."""
    place, colon, name = text.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if colon and place.endswith(".py") else text
