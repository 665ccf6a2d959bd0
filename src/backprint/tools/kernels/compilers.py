"""The compilers that write kernels: Inductor, Inductor with other settings, or a function of the caller's own.

A compiler is given a graph that was prepared for the target, and returns Python code in the form of Inductor's
`output_code.py`: kernels as texts, `async_compile.triton(name, text)` or `async_compile.cpp_pybinding(types, text)`,
and a function `call(args)` that calls them and returns the results. All that follows reads that code.

A PreparedGraph has a GraphModule of ATen operators (`module`) and its fake inputs; an InductorCode is such code, with
what is known of how its kernels were made.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backprint.errors import RefusedError, UsageError
from backprint.tools.kernels.inductor import InductorCode, lower_with_inductor
from backprint.tools.kernels.prepare import PreparedGraph

WriteCode = Callable[[PreparedGraph, str, bool], InductorCode]
"""A function of a prepared graph, the name of its target, and whether it is a backward. Inductor needs no name, since
`lowering_for` tells it the target; a function of the caller's is not told the direction."""

OWN_FUNCTION_FORM = (
    "a function of your own is file.py:function or package.module:function; it takes a GraphModule of ATen operators, "
    "its fake inputs and the name of the target, and returns code in the form of Inductor's output_code.py"
)


@dataclass(frozen=True, slots=True)
class KernelCompiler:
    """A compiler: its name and version, which its kernels carry, and the function that writes them."""

    version: str
    write: WriteCode


def inductor() -> KernelCompiler:
    """Return Inductor as it is."""
    return KernelCompiler(
        inductor_version(), lambda prepared, target, backward: lower_with_inductor(prepared, backward)
    )


def inductor_version() -> str:
    """Return Inductor's name and version, `inductor 2.13.0`, without the build's suffix such as `+cpu`."""
    return f"inductor {torch.__version__.partition('+')[0]}"


COMPILERS: Mapping[str, Callable[[], KernelCompiler]] = {"inductor": inductor}
"""The compilers by name; another one is another row."""


def kernel_compiler(text: str) -> KernelCompiler:
    """Return the compiler that a text names: one in COMPILERS, `inductor:SETTING=VALUE[,…]`, or the place of a
    function, `file.py:function`. Raise UsageError for any other text."""
    if text in COMPILERS:
        return COMPILERS[text]()
    name, colon, rest = text.rpartition(":")
    if text.startswith("inductor:"):
        return _inductor_with(text.partition(":")[2])
    if name and colon and rest.isidentifier():
        return own_compiler(text)
    raise UsageError(
        f"no compiler of kernels is called {text!r:.80}: known are {', '.join(COMPILERS)}, and "
        f"inductor:SETTING=VALUE with settings of torch._inductor.config; {OWN_FUNCTION_FORM}"
    )


# ------------------------------------------------------------------ Inductor with other settings


def _inductor_with(text: str) -> KernelCompiler:
    """Return Inductor with settings of `torch._inductor.config`: `combo_kernels=True,triton.max_tiles=3`."""
    from backprint._torch.inductor import config

    settings = dict(map(_parse_setting, text.split(",")))

    def write(prepared: PreparedGraph, target: str, backward: bool) -> InductorCode:
        """Return the code that Inductor writes with the settings."""
        with config.patch(settings):
            return lower_with_inductor(prepared, backward)

    settings_text = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    return KernelCompiler(f"{inductor_version()} with {settings_text}", write)


def _parse_setting(text: str) -> tuple[str, Any]:
    """Return a setting's name and value; raise for a name that Inductor does not have, or a value of another type."""
    from backprint._torch.inductor import config

    name, equals, value_text = (part.strip() for part in text.partition("="))
    current_values = config.get_config_copy()
    if name not in current_values:
        near = difflib.get_close_matches(name, current_values, n=3, cutoff=0.6)
        hint = f": did you mean {' or '.join(near)}?" if near else "; they stand in torch/_inductor/config.py"
        raise UsageError(f"Inductor has no setting {name!r:.80}{hint}")
    try:
        value = ast.literal_eval(value_text)
    except (ValueError, SyntaxError):
        value = value_text  # a text without quotes
    if not equals or (current_values[name] is not None and type(value) is not type(current_values[name])):
        raise UsageError(
            f"Inductor's setting {name} is {current_values[name]!r}, of type {type(current_values[name]).__name__}: "
            f"write {name}=VALUE with a value of that type, found {value_text!r:.80}"
        )
    return name, value


# ------------------------------------------------------------------ functions of the caller's


def own_compiler(text: str) -> KernelCompiler:
    """Return a compiler that is a function of the caller's, `file.py:function`, whose module is imported."""
    from backprint.common.factories import find_factory

    function = find_factory(text)  # imports the module, and returns the function

    def write(prepared: PreparedGraph, target: str, backward: bool) -> InductorCode:
        """Return the code that the function returns; refuse what it raises, and what is no text."""
        try:
            code = function(prepared.module, prepared.inputs, target)
        except Exception as error:
            raise RefusedError(f"{text} raised {type(error).__name__}: {str(error).strip()[:300]}") from error
        if not isinstance(code, str):
            raise RefusedError(f"{text} returned {type(code).__name__}: {OWN_FUNCTION_FORM}")
        return InductorCode(code, steps={})  # nothing says which steps a kernel computes

    place, _, name = text.rpartition(":")
    return KernelCompiler(f"{Path(place).name}:{name}", write)  # kernels are passed on: no folder of this machine
