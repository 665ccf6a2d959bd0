"""What a compiler makes of a graph: its kernels, the calls of them, and what is called beside them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backprint.extracting.build_triton import BuiltKernel

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
    """One call of a kernel: its arguments in order, and on a GPU its grid for each configuration of the kernel."""

    arguments: tuple[KernelArgument, ...]
    grids: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelConfiguration:
    """One way to compile a Triton kernel: the sizes of its blocks, its warps and its pipeline's stages."""

    sizes: tuple[tuple[str, int], ...]
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """A name for files: `XBLOCK128_R0_BLOCK8_warps4_stages1`."""
        parts = [*(f"{name}{size}" for name, size in self.sizes), f"warps{self.num_warps}", f"stages{self.num_stages}"]
        return "_".join(parts)


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """How long a Triton kernel takes on a GPU that is here, in each configuration."""

    device: str
    """The GPU's name."""
    microseconds: tuple[tuple[float, ...], ...]
    """Of each call that differs from the others, the median of each configuration."""
    winner: KernelConfiguration
    """The configuration in which all calls of the graph take the least time together."""
    total: float
    """The microseconds of all calls of the graph in that configuration."""


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
    configurations: tuple[KernelConfiguration, ...] = ()
    """Of Triton: what its autotuner chooses from; empty where it is not known."""
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

    @property
    def form(self) -> NormalForm:
        """Return the kernel's program without its names, comments and layout."""
        from backprint.extracting.programs.normal import normal_form

        return normal_form(self)

    @property
    def hash(self) -> str:
        """Return a hash that two kernels share only if they are the same program."""
        return self.form.kernel_hash

    def ptx(self, capability: int | None = None) -> str:
        """Return a Triton kernel's PTX in its first configuration, for 90 or another compute capability."""
        return self.built(capability).ptx

    def cubin(self, capability: int | None = None) -> bytes:
        """Return a Triton kernel's cubin in its first configuration, for 90 or another compute capability."""
        return self.built(capability).cubin

    def times(self) -> KernelTimes:
        """Run a Triton kernel in every configuration on its recorded calls, on a GPU of its target, and time it."""
        from backprint.extracting.winners import times_of

        return times_of(self)

    def built(self, capability: int | None = None) -> BuiltKernel:
        """Compile a Triton kernel in its first configuration; without a capability, for its own target."""
        from backprint.extracting.build_triton import built
        from backprint.extracting.targets import target_named

        return next(built(self, target_named(f"cuda:{capability}" if capability else self.target)))


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
