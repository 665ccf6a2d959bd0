"""The targets that kernels are made for, a processor with its vector instructions, or a GPU that need not be there; and
kernels, their calls, and what a compiler wrote for a graph and for a Capture."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from backprint.errors import UsageError
from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.common.words import ConfigurationsWord
    from backprint.graph.verdicts import Verdict

ISAS: Mapping[str, str] = MappingProxyType({"avx2": "VecAVX2", "avx512": "VecAVX512", "neon": "VecNEON"})
"""Vector instructions -> the class of Inductor that stands for them."""


@dataclass(frozen=True, slots=True)
class _GpuFacts:
    """The facts of a GPU that a compiler reads, from the data sheet of the first product with this capability: how many
    multiprocessors it has, and their threads; and bytes of shared memory of a block and of a multiprocessor, of memory,
    and of the L2 cache."""

    multiprocessors: int
    threads_of_multiprocessor: int
    shared_of_block: int
    shared_of_multiprocessor: int
    memory: int
    cache: int


GPUS: Mapping[int, _GpuFacts] = MappingProxyType(
    {
        75: _GpuFacts(40, 1024, 65536, 65536, 16 << 30, 4 << 20),
        80: _GpuFacts(108, 2048, 166912, 167936, 80 << 30, 40 << 20),
        90: _GpuFacts(132, 2048, 232448, 233472, 80 << 30, 50 << 20),
        100: _GpuFacts(148, 2048, 232448, 233472, 180 << 30, 126 << 20),
        120: _GpuFacts(170, 1536, 101376, 102400, 32 << 30, 96 << 20),
    }
)
"""Compute capability -> the facts of a T4, A100, H100, B200 and RTX 5090."""


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """A target of kernels: a processor with its vector instructions, or a GPU."""

    name: str
    device: str
    """`cpu` or `cuda`."""
    isa: str = ""
    """Of a processor: a name of ISAS, or empty for this machine's own."""
    capability: int = 0
    """Of a GPU: 90 for compute capability 9.0."""

    @property
    def language(self) -> str:
        """The language of its kernels."""
        return "cpp" if self.device == "cpu" else "triton"


def target_named(text: str) -> KernelTarget:
    """Return the target of a name: `cpu`, `cpu:avx2`, `cuda:90`, …; raise UsageError for another, with the names that
    are like it."""
    device, _, detail = text.partition(":")
    if device == "cpu" and (not detail or detail in ISAS):
        return KernelTarget(text, "cpu", isa=detail)
    if device == "cuda" and detail.isdecimal() and int(detail) in GPUS:
        return KernelTarget(text, "cuda", capability=int(detail))
    near = difflib.get_close_matches(text, known_targets(), n=2, cutoff=0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"no target is called {text!r}{hint}\nknown: {', '.join(known_targets())}")


def known_targets() -> list[str]:
    """Return the names of all targets."""
    return ["cpu", *(f"cpu:{name}" for name in ISAS), *(f"cuda:{capability}" for capability in GPUS)]


# ------------------------------------------------------------------ kernels, their calls, and extern calls


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """A tensor or a number that a kernel is called with."""

    dtype: str
    """A dtype of torch, or `int`, `float`, `bool` of a number."""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    value: int | float | bool | None = None
    """Of a number."""
    low: float | None = field(default=None, compare=False)
    high: float | None = field(default=None, compare=False)
    """Of a tensor: its least and largest finite value where the Capture ran on its own inputs; None if that is not
    known. Calls that differ in these alone are equal."""


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
class BuiltKernel:
    """One configuration of a Triton kernel, compiled."""

    configuration: KernelConfiguration
    ptx: str
    cubin: bytes
    llir: str
    ttir: str
    shared: int
    """Bytes of shared memory of a block."""


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
    """Of Triton: the configurations that its autotuner chooses from; empty where they are not known."""
    calls: tuple[KernelCall, ...] = ()
    compiler: str = ""
    """The compiler and its version: `inductor 2.13.0`."""
    threads: int | None = None
    """Of C++: for how many threads it was written."""
    isa: str = ""
    """Of C++: the vector instructions it was written for."""
    sample: str = ""
    direction: str = ""

    @property
    def hash(self) -> str:
        """A hash that two kernels share only if they are the same program, whatever their names are."""
        from backprint.tools.kernels.normal import normal_form

        return normal_form(self.language, self.source, self.name).program_hash

    @property
    def structure(self) -> str:
        """A hash that kernels share if they differ in names, sizes and constants alone."""
        from backprint.tools.kernels.normal import normal_form

        return normal_form(self.language, self.source, self.name).structure_hash

    def ptx(self, capability: int | None = None) -> str:
        """Return a Triton kernel's PTX in its first configuration, for 90 or another compute capability."""
        return self.built(capability).ptx

    def cubin(self, capability: int | None = None) -> bytes:
        """Return a Triton kernel's cubin in its first configuration, for 90 or another compute capability."""
        return self.built(capability).cubin

    def times(self) -> KernelTimes:
        """Run a Triton kernel in every configuration on its recorded calls, on a GPU of its target, and time it."""
        from backprint.tools.kernels.winners import time_kernel

        return time_kernel(self)

    def built(self, capability: int | None = None) -> BuiltKernel:
        """Compile a Triton kernel in its first configuration; without a capability, for its own target."""
        from backprint.tools.kernels.build_triton import compile_configurations

        target = target_named(f"cuda:{capability}" if capability else self.target)
        return next(compile_configurations(self, target))


@dataclass(frozen=True, slots=True)
class LoweredPort:
    """An input or an output of a graph as it is on the target."""

    role: str
    name: str
    dtype: str
    """A dtype of torch, or `int`, `float`, `bool` of a number."""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    value: int | float | bool | None = None
    """Of a number, for which the kernels are written."""


@dataclass(frozen=True, slots=True)
class ExtractedGraph:
    """The code of one graph: its wrapper, its kernels, and the extern operators that it calls."""

    direction: str
    target: KernelTarget
    wrapper: str
    """Python code that calls the kernels, as the compiler wrote it."""
    kernels: tuple[Kernel, ...]
    order: tuple[str, ...]
    """The names of the kernels in the order of their calls."""
    externs: Mapping[str, int]
    """Operators that no kernel computes, such as matmuls and convolutions -> how often each is called."""
    inputs: tuple[LoweredPort, ...]
    outputs: tuple[LoweredPort, ...]
    guards: tuple[str, ...]
    """Lines that must hold before the kernels are called."""
    notes: tuple[str, ...]
    """Notes on parts of the graph that were rewritten, and why ranges of arguments are not known."""
    title: str = ""
    """`pair_0 forward`, in a Capture."""


@dataclass(frozen=True, slots=True)
class CaptureKernels:
    """The kernels that a compiler wrote for a Capture and one target. Iterating yields them."""

    capture: Capture
    target: KernelTarget
    threads: int
    graphs: tuple[ExtractedGraph, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """The title of each graph that has no kernels here, and the reason."""
    compiler: str = "inductor"

    def __iter__(self) -> Iterator[Kernel]:
        """Yield the kernels of all graphs."""
        return (kernel for graph in self.graphs for kernel in graph.kernels)

    def check(self, configurations: ConfigurationsWord = "first", timeout: float = 600.0) -> list[Verdict]:
        """Run the kernels on the Capture's inputs, and compare the results with those of its graphs in eager.

        Triton's run in its interpreter, C++ is compiled; both in a process of their own, for `timeout` seconds at
        most. Returns a Verdict for each graph; a backward takes what the kernels of its forward saved, and its Verdict
        says too whether the captured backward is the derivative of its forward. `configurations="all"` runs each
        configuration of Triton's kernels, instead of the first of each.
        """
        from backprint.tools.kernels.checking.check import derivatives_of_pairs, verdicts_of_kernels, with_derivatives

        verdicts = verdicts_of_kernels(self, configurations, timeout)
        has_backward = any(verdict.name.endswith(" backward") for verdict in verdicts)
        return with_derivatives(verdicts, derivatives_of_pairs(self.capture)) if has_backward else verdicts
