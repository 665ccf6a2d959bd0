"""Kernels in the text of a wrapper: the Python code that a compiler writes, which has their sources as strings.

Texts are parsed and never run. A wrapper has `name = async_compile.triton(title, source)` for a Triton kernel, and
`name = async_compile.cpp_pybinding(types, source)` for one in C++; `async_compile` is Inductor's AsyncCompile.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator

from backprint.errors import RefusedError
from backprint.tools.kernels.nouns import Kernel

COMPILED = {"triton": ("triton", 1), "cpp_pybinding": ("cpp", 1), "cpp": ("cpp", 0)}
"""Methods of Inductor's AsyncCompile -> the language of the source that they compile, and the position of that
argument."""

ASYNC_COMPILE = "async_compile"
"""The variable in a wrapper that holds its AsyncCompile."""


def kernels_of_wrapper(text: str, place: str) -> Iterator[Kernel]:
    """Yield the kernels whose sources a wrapper passes to AsyncCompile; `place` names the wrapper in messages."""
    for node in ast.walk(parse_module(text, place)):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method)) as call,
            ) if owner == ASYNC_COMPILE and method in COMPILED:
                yield _compiled_kernel(name, method, call, place)


def _compiled_kernel(name: str, method: str, call: ast.Call, place: str) -> Kernel:
    """Return the kernel that a call of AsyncCompile, by its `method`, compiles; `name` is the variable that it is
    assigned to. Refuse a call whose source is not a string in it."""
    language, position = COMPILED[method]
    match call.args[: position + 1]:
        # triton(name, source), cpp_pybinding(types, source), cpp(source)
        case [ast.Constant(value=str(title)), ast.Constant(value=str(source))]:
            return Kernel(language, title, source)
        case [ast.List() as types, ast.Constant(value=str(source))]:
            return Kernel(language, name, source, declared=ast.unparse(types))
        case [ast.Constant(value=str(source))] if position == 0:
            return Kernel(language, name, source)
    raise RefusedError(f"{place}: line {call.lineno}: {name}: its source is not a string in the call")


# ------------------------------------------------------------------ a Triton kernel's module


def parse_module(source: str, name: str) -> ast.Module:
    """Parse a Python source without running it; what Python cannot read raises RefusedError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes of a program's own kernels are no concern of the caller's
            return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise RefusedError(f"{name}: not Python ({error})") from error
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"{name}: nested too deeply to be read ({type(error).__name__})") from error


def find_kernel(functions: Iterable[ast.FunctionDef], name: str) -> ast.FunctionDef | None:
    """Return the kernel of a name among a module's functions; without one of that name, the last jitted one that no
    other calls; if each is called, the last. None if no function is jitted."""
    jitted = [function for function in functions if is_jitted(function)]
    names_used = {
        node.id
        for function in jitted
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id != function.name
    }
    named = [function for function in jitted if function.name == name]
    candidates = named or [function for function in jitted if function.name not in names_used] or jitted
    return candidates[-1] if candidates else None


def is_jitted(function: ast.FunctionDef) -> bool:
    """Whether a function has the decorator `triton.jit`, called or not."""
    for decorator in function.decorator_list:
        match decorator.func if isinstance(decorator, ast.Call) else decorator:
            case ast.Attribute(value=ast.Name(id="triton"), attr="jit") | ast.Name(id="jit"):
                return True
    return False
