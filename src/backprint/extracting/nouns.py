"""What a compiler makes of a graph: its kernels, the calls of them, and what is called beside them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

VERSION = "1"
"""Of normal forms; hashes of two versions are never the same."""


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """A tensor or a number that a kernel is called with."""

    dtype: str
    """A dtype of torch, or `int`, `float`, `bool` of a number."""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    value: int | float | bool | None = None
    """Of a number."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a kernel: its arguments in order, and its grid on a GPU."""

    arguments: tuple[KernelArgument, ...]
    grid: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FusedOperator:
    """An operator of the graph that a kernel computes, and the source line of the program that called it."""

    operator: str
    step: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel: its source, where it came from, and how it is called."""

    language: str
    """`cpp` or `triton`."""
    name: str
    """The compiler's name for it, which is no key: one name may stand for several programs."""
    source: str
    """A Triton kernel's module, or the body of a C++ file."""
    target: str = ""
    """`cpu`, `cpu:avx2`, `cuda:80`, …; empty where it is not known."""
    declared: str = ""
    """Of C++: the types of its arguments, as its binding declares them."""
    operators: tuple[FusedOperator, ...] = ()
    calls: tuple[KernelCall, ...] = ()
    compiler: str = ""
    """The compiler and its version: `inductor 2.13.0`."""
    threads: int | None = None
    """Of C++: for how many threads it was written."""
    isa: str = ""
    """Of C++: the vector instructions it was written for."""
    sample: str = ""
    direction: str = ""
    place: str = ""
    """The file that it was read from."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A kernel's program without its names, comments and layout, as text of one token a line."""

    language: str
    structure: str
    """The program with `#` for each number."""
    constants: str
    """The numbers in their order, the size hints, and the divisibility of arguments."""

    @property
    def kernel_hash(self) -> str:
        """Return a hash that two kernels share only if they are the same program."""
        return _digest(self.language, self.structure, self.constants)

    @property
    def structure_hash(self) -> str:
        """Return a hash that programs share if only their sizes and constants differ."""
        return _digest(self.language, self.structure)


def _digest(*texts: str) -> str:
    joined = "\0".join((VERSION, *texts))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()
