"""The compilers that a bench asks: a table, every backend of torch.compile, and functions of the user's own.

A compiler is a row: its name, the function that asks it, and the packages that it needs. A row's function is named as
a text, so that a package is imported when its compiler is used.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import UsageError, is_defect

if TYPE_CHECKING:
    from backprint.lowering.subjects import Compile

HERE = "backprint.bench.compilers"


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


ROWS = (
    Compiler("eager", f"{HERE}.control:build_eager"),  # the control: the graph itself, operator by operator
    Compiler("aot_eager", f"{HERE}.control:build_aot", options=("aot_eager",)),
    Compiler("aot_eager_decomp_partition", f"{HERE}.control:build_aot", options=("aot_eager_decomp_partition",)),
    # torch._inductor.compile: without Dynamo, whose guards take about 15 µs a call
    Compiler("inductor", f"{HERE}.inductor:build_inductor"),
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
"""Package -> what it is installed as, where that differs."""

OWN = "a function of your own is package.module:function or file.py:function, gm, inputs -> callable(*inputs)"


def compiler_named(text: str) -> Compiler:
    """Return the compiler of a name: from the table, a torch.compile backend, `inductor:MODE`, or
    `file.py:function`."""
    if text in COMPILERS:
        return COMPILERS[text]
    name, colon, function = text.rpartition(":")
    if name == "inductor":
        return inductor_in_mode(text, function)
    if colon:
        return own_compiler(text, name, function)
    backends = torch_backends()
    if text in backends:
        return Compiler(text, f"{HERE}.control:build_backend", options=(text,))
    near = difflib.get_close_matches(text, {*COMPILERS, *backends}, 3, 0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(
        f"no compiler is called {text!r}{hint}\nknown: {', '.join(COMPILERS)}; of torch.compile also: "
        f"{', '.join(sorted(set(backends) - set(COMPILERS)))}; {OWN}"
    )


def torch_backends() -> list[str]:
    """Return the names that torch.compile lists."""
    import torch

    return list(torch.compiler.list_backends(exclude_tags=()))


def inductor_in_mode(text: str, mode: str) -> Compiler:
    """Return Inductor in one of the modes of torch.compile."""
    from backprint._torch.inductor import mode_options

    modes = mode_options()
    if mode not in modes:
        raise UsageError(f"{text!r}: Inductor has no mode {mode!r}; it has {', '.join(modes)}")
    return Compiler(text, COMPILERS["inductor"].build, options=(mode,))


def own_compiler(text: str, place: str, function: str) -> Compiler:
    """Return the compiler of a function of the user's own, whose file or module must exist."""
    known = Path(place).is_file() if place.endswith(".py") else has_module(place)
    if not known or not function.isidentifier():
        what = "file" if place.endswith(".py") else "module"
        why = f"no {what} {place}" if not known else f"{function!r} is no function's name"
        raise UsageError(f"compiler {text!r}: {why}; {OWN}")
    if place.endswith(".py") and not {function, "*"} & (names := names_of_file(Path(place))):
        raise without_function(text, place, function, sorted(names))
    return Compiler(text, text)


def names_of_file(place: Path) -> set[str]:
    """Return the names that a Python file mentions, which is not run: a name that it does not mention is not in it."""
    try:
        tree = ast.parse(place.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"{place} cannot be read as Python: {error}; {OWN}") from error
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                names.add(name)
            case ast.alias(name=name, asname=own):
                names.add(own or name)
    return names


def has_module(name: str) -> bool:
    """Whether a module can be imported; only the packages that it is in are."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def check_installed(compiler: Compiler) -> None:
    """Raise if a package that a compiler needs is missing; nothing of them is imported."""
    missing = [package for package in compiler.packages if not has_module(package)]
    if missing:
        raise UsageError(
            f"compiler {compiler.name} needs {', '.join(missing)}, which is not installed: "
            f"pip install '.[{compiler.extra}]' in Backprint's folder"
        )


def versions_of(compiler: Compiler) -> dict[str, str]:
    """Return the versions of torch and of the packages that a compiler uses."""
    versions = {}
    for package in ("torch", *compiler.packages):
        name = DISTRIBUTIONS.get(package, package)
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def compiled_by(compiler: Compiler) -> Compile:
    """Return the function that compiles a graph for its inputs with a compiler."""
    check_installed(compiler)
    build = loaded_build(compiler)

    def compiled(module: Any, inputs: Sequence[Any]) -> Any:
        return build(module, inputs, *compiler.options)

    return compiled


def loaded_build(compiler: Compiler) -> Any:
    """Return the function of a row's `build`."""
    place, _, name = compiler.build.rpartition(":")
    try:
        namespace = runpy.run_path(place) if place.endswith(".py") else vars(importlib.import_module(place))
    except Exception as error:
        if is_defect(error):
            raise
        raise UsageError(f"compiler {compiler.name!r}: {place} raises {type(error).__name__}: {error}") from error
    if not callable(namespace.get(name)):
        raise without_function(compiler.name, place, name, [key for key in namespace if callable(namespace[key])])
    return namespace[name]


def without_function(compiler: str, place: str, function: str, names: Sequence[str]) -> UsageError:
    """Return the error for a place that does not have a function."""
    near = difflib.get_close_matches(function, names, 1)
    hint = f": did you mean {near[0]}? " if near else "; "
    return UsageError(f"compiler {compiler!r}: {place} has no function {function!r}{hint}{OWN}")


def absolute_compiler(text: str) -> str:
    """Return a compiler with the absolute path of its file."""
    place, colon, name = text.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if colon and place.endswith(".py") else text
