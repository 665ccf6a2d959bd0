"""The bytes that a call of a kernel moves, against the least that it can move, as far as both are known without a GPU.

Known are the arguments of the call, and the code. The least: each tensor that the kernel reads is read once, and each
that it writes is written once. What a Triton kernel's blocks ask for is counted in its code (`block_traffic`); how much
of it the caches answer is not known, so memory moves something between the two. The loops of a C++ kernel are not
counted: what it asks for is None.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backprint.errors import RefusedError, UsageError
from backprint.extracting.alone.alone_draws import FlowsOfTriton
from backprint.extracting.nouns import Kernel, KernelArgument, KernelCall
from backprint.extracting.programs.normal_triton import find_kernel, is_jitted, parse_module

if TYPE_CHECKING:
    from backprint.extracting.block_traffic import AskedBytes

BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""The bytes of an element by its dtype."""

NUMBERS = ("int", "float", "NoneType")
"""What no tensor has for a dtype."""


@dataclass(frozen=True, slots=True)
class ParameterUse:
    """How a kernel uses the tensor of one parameter."""

    name: str
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """The bytes of a call in one configuration."""

    least: int
    """Each tensor once, of each no more than the blocks ask for."""
    asked: int | None
    """What the blocks ask for: an instruction of a block counts each address once. None where it is not known."""
    exact: bool
    """Whether every block was counted; else blocks were sampled, at the edges and between."""
    unknown: tuple[str, ...] = ()
    """What could not be known, in words."""

    @property
    def ratio(self) -> float | None:
        """How many times the least the blocks ask for; None where it is not known."""
        return self.asked / self.least if self.asked is not None and self.least else None


def least_bytes(call: KernelCall, kernel: Kernel) -> int:
    """Return the bytes that a call moves if it reads each tensor that it reads once, and writes each it writes once.

    A tensor counts the elements that it has in memory: those of a dimension of stride 0 once, and no gaps.
    """
    pairs = zip(parameter_uses(kernel), call.arguments, strict=False)
    return sum((use.reads + use.writes) * tensor_bytes(argument) for use, argument in pairs)


def kernel_traffic(call: KernelCall, kernel: Kernel, configuration: int = 0) -> KernelTraffic:
    """Return what a call moves in one of the kernel's configurations."""
    least = least_bytes(call, kernel)
    if kernel.language != "triton":
        return KernelTraffic(least, None, False, ("the loops of a C++ kernel are not counted",))
    if not configuration < len(call.grids) <= len(kernel.configurations):
        raise UsageError(f"{kernel.name}: configuration {configuration} of {len(kernel.configurations)} has no grid")
    from backprint.extracting.block_traffic import (
        asked_bytes,  # which loads torch: reading and C++ kernels do not need it
    )

    uses = parameter_uses(kernel)
    sizes = {use.name: element_bytes(argument) for use, argument in zip(uses, call.arguments, strict=False)}
    numbers = {use.name: argument.value for use, argument in zip(uses, call.arguments, strict=False)}
    chosen = kernel.configurations[configuration]
    known = {**{name: value for name, value in numbers.items() if value is not None}, **dict(chosen.sizes)}
    asked = asked_bytes(triton_function(kernel.source, kernel.name), known, sizes, call.grids[configuration])
    return KernelTraffic(
        least - spared_bytes(call, kernel, asked), asked.total if asked.complete else None, asked.exact, asked.unknown
    )


def spared_bytes(call: KernelCall, kernel: Kernel, asked: AskedBytes) -> int:
    """Return the bytes of a call's tensors that no block asks for: rows that no index names, the rest of a view."""
    spared = 0
    for use, argument in zip(parameter_uses(kernel), call.arguments, strict=False):
        whole = tensor_bytes(argument) if asked.complete else 0
        spared += use.reads * max(0, whole - asked.read.get(use.name, 0))
        spared += use.writes * max(0, whole - asked.written.get(use.name, 0))
    return spared


def holds_number(argument: KernelArgument) -> bool:
    """Whether an argument is no tensor; `bool` is a dtype of both."""
    return argument.value is not None or argument.dtype in NUMBERS


def tensor_bytes(argument: KernelArgument) -> int:
    """Return the bytes of the elements that a tensor has in memory; 0 of a number."""
    if holds_number(argument):
        return 0
    count = 1
    for size, stride in zip(argument.shape, argument.stride, strict=True):
        count *= size if stride or not size else 1
    return count * element_bytes(argument)


def element_bytes(argument: KernelArgument) -> int:
    """Return the bytes of an element of an argument; a dtype that is not known raises RefusedError."""
    if holds_number(argument):
        return 0
    if argument.dtype not in BYTES:
        raise RefusedError(f"the bytes of an element of {argument.dtype!r:.40} are not known: {', '.join(BYTES)} are")
    return BYTES[argument.dtype]


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
