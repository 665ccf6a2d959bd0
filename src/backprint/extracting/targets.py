"""The targets that kernels are made for: a processor with its vector instructions, or a GPU that need not be there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from backprint.errors import UsageError

ISAS: Mapping[str, str] = MappingProxyType({"avx2": "VecAVX2", "avx512": "VecAVX512", "neon": "VecNEON"})
"""Vector instructions -> the class of Inductor that stands for them."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What a compiler asks of a GPU, by its vendor's data sheet of the first product with this capability."""

    multiprocessors: int
    threads_of_multiprocessor: int
    shared_of_block: int
    shared_of_multiprocessor: int
    memory: int
    cache: int


GPUS: Mapping[int, GpuFacts] = MappingProxyType(
    {
        75: GpuFacts(40, 1024, 65536, 65536, 16 << 30, 4 << 20),
        80: GpuFacts(108, 2048, 166912, 167936, 80 << 30, 40 << 20),
        90: GpuFacts(132, 2048, 232448, 233472, 80 << 30, 50 << 20),
        100: GpuFacts(148, 2048, 232448, 233472, 180 << 30, 126 << 20),
        120: GpuFacts(170, 1536, 101376, 102400, 32 << 30, 96 << 20),
    }
)
"""Compute capability -> the facts of a T4, A100, H100, B200 and RTX 5090."""


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """What kernels are made for."""

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
    """Return the target of a name: `cpu`, `cpu:avx2`, `cuda:90`, …"""
    device, _, detail = text.partition(":")
    if device == "cpu" and (not detail or detail in ISAS):
        return KernelTarget(text, "cpu", isa=detail)
    if device == "cuda" and detail.isdecimal() and int(detail) in GPUS:
        return KernelTarget(text, "cuda", capability=int(detail))
    near = difflib.get_close_matches(text, known_targets(), 2, 0.5)
    hint = f": did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"no target is called {text!r}{hint}\nknown: {', '.join(known_targets())}")


def known_targets() -> list[str]:
    """Return the names of all targets."""
    return ["cpu", *(f"cpu:{name}" for name in ISAS), *(f"cuda:{capability}" for capability in GPUS)]
