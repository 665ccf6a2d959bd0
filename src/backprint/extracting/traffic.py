"""The bytes of memory that a call of a kernel uses, from the sizes that were recorded.

A call that reads all of its inputs and writes all of its outputs cannot move less than the elements that its tensors
have, each once. A kernel that gathers some rows of a table may move less, and one that reads an input twice moves more.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass

from backprint.errors import RefusedError
from backprint.extracting.alone.alone_draws import FlowsOfTriton
from backprint.extracting.nouns import Kernel, KernelArgument, KernelCall
from backprint.extracting.programs.normal_triton import find_kernel, is_jitted, parse_module
from backprint.graph.specs import ITEMSIZE

NUMBERS = ("int", "float", "NoneType")
"""What no tensor has for a dtype."""


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """How a kernel uses the tensor of one parameter."""

    name: str
    reads: bool
    writes: bool


def kernel_bytes(kernel: Kernel) -> int | None:
    """Return the bytes of the tensors of all recorded calls of a kernel; None without calls."""
    if not kernel.calls:
        return None
    return sum(argument_bytes(argument) for call in kernel.calls for argument in call.arguments)


def least_bytes(call: KernelCall, kernel: Kernel) -> int:
    """Return the bytes that a call moves if it reads each tensor that it reads once, and writes each it writes once; a
    dtype that is not known raises RefusedError."""
    for argument in call.arguments:
        if not holds_number(argument) and argument.dtype not in ITEMSIZE:
            raise RefusedError(f"the bytes of an element of {argument.dtype!r:.40} are not known")
    pairs = zip(parameter_uses(kernel), call.arguments, strict=False)
    return sum((use.reads + use.writes) * argument_bytes(argument) for use, argument in pairs)


def holds_number(argument: KernelArgument) -> bool:
    """Whether an argument is no tensor; `bool` is a dtype of both."""
    return argument.value is not None or argument.dtype in NUMBERS


def argument_bytes(argument: KernelArgument) -> int:
    """Return the bytes of a tensor's elements, those of a dimension of stride 0 once and no gaps; 0 of a number. Of an
    unknown dtype, an element counts as a byte."""
    if holds_number(argument):
        return 0
    count = 1
    for size, stride in zip(argument.shape, argument.stride, strict=True):
        count *= size if stride or not size else 1
    return count * ITEMSIZE.get(argument.dtype, 1)


def parameter_uses(kernel: Kernel) -> tuple[ParameterUse, ...]:
    """Return how a kernel uses its parameters, in the order of the arguments of its calls."""
    if kernel.language == "cpp":
        return uses_in_cpp(kernel.name, kernel.source, kernel.declared)
    sizes = frozenset(name for one in kernel.configurations for name, _ in one.sizes)
    return uses_in_triton(kernel.name, kernel.source, sizes)


@functools.lru_cache(maxsize=256)
def uses_in_triton(name: str, source: str, sizes: frozenset[str]) -> tuple[ParameterUse, ...]:
    """Return the uses of a Triton kernel's parameters, without those that its configurations set."""
    flows = FlowsOfTriton(triton_function(source, name))
    return tuple(
        ParameterUse(one, one in flows.loaded, one in flows.stored) for one in flows.parameters if one not in sizes
    )


@functools.lru_cache(maxsize=256)
def uses_in_cpp(name: str, source: str, declared: str) -> tuple[ParameterUse, ...]:
    """Return the uses of a C++ kernel's parameters: by `const`, and of the others by the names that Inductor gives."""
    from backprint.extracting.alone.alone_cpp import head_of

    _, parameters = head_of(Kernel("cpp", name, source, declared=declared))
    found = []
    for parameter, kind in parameters:
        writes = kind.endswith("*") and not kind.startswith("const ")
        found.append(ParameterUse(parameter, not writes or not parameter.startswith("out_ptr"), writes))
    return tuple(found)


def triton_function(source: str, name: str) -> ast.FunctionDef:
    """Return the syntax tree of a Triton kernel's function."""
    tree = parse_module(source, name)
    function = find_kernel([node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)], name)
    if function is None:
        raise RefusedError(f"{name}: there is no Triton kernel in this source")
    return function
