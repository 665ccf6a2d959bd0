"""The nouns of this package: a direction of a program in Inductor's code, its ports, and its symbols.

A symbol is a size that stays symbolic, so that a file is for every value of it.
"""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from backprint.graph.nouns import Graph, Port
from backprint.tools.kernels.inductor import InductorCode
from backprint.tools.kernels.nouns import Kernel


@dataclass(frozen=True, slots=True)
class CodePort:
    """An input or a result of a direction: its port, its name in the file, and its sizes as expressions of Python.

    `dtype` is None of a number.
    """

    port: Port
    name: str
    dtype: torch.dtype | None
    shape: tuple[str, ...] = ()
    stride: tuple[str, ...] = ()
    captured_shape: tuple[int, ...] = ()
    """The shape at capture."""

    @property
    def is_tensor(self) -> bool:
        """Whether it is no number."""
        return self.dtype is not None

    @property
    def nbytes(self) -> int:
        """Its bytes at capture."""
        return torch.Size(self.captured_shape).numel() * self.dtype.itemsize if self.dtype is not None else 0


@dataclass(frozen=True, slots=True)
class Direction:
    """A direction of a program as Inductor writes it. Names of symbols are those of the file."""

    name: str
    graph: Graph
    code: InductorCode
    kernels: tuple[Kernel, ...]
    inputs: tuple[CodePort, ...]
    outputs: tuple[CodePort, ...]
    symbols: Mapping[str, str]
    """Inductor's name of each symbolic size -> its name in the file."""
    bytes_moved: int
    """The bytes that kernels and other calls read and write at capture."""
    extern_counts: Mapping[str, int]
    """The operators that are called beside the kernels -> how often."""
    notes: tuple[str, ...] = ()


RESERVED = frozenset(
    "torch triton tl tl_math math os types libdevice triton_helpers INTERPRETED device ctx expect laid tuned "
    "interpreted missing KINDS".split()
)
"""Names that a file has for itself."""


def identifier(name: str) -> str:
    """Return a port's name as a Python identifier that a file does not use itself (RESERVED); loops/elements has a
    twin."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    text = f"_{text}" if text[:1].isdigit() or not text else text
    return f"{text}_" if text in RESERVED or keyword.iskeyword(text) else text


def unique(name: str, taken: Sequence[str] | Mapping[str, object] | set[str]) -> str:
    """Return the first of `x`, `x_1`, `x_2`, … that is not among the names that are taken."""
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    return next(candidate for candidate in candidates if candidate not in taken)
