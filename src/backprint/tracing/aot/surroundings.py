"""Patches of torch that are active while AOTAutograd traces, so that it traces the operators that eager runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from backprint._torch.fake import FunctionalTensor
from backprint._torch.operators import schema_of, without_python_decompositions


@contextlib.contextmanager
def without_cuda() -> Iterator[None]:
    """Make `x.cuda()` return `x` on the CPU while a fake capture is traced on a machine without CUDA."""
    before = FunctionalTensor.cuda
    FunctionalTensor.cuda = lambda self, *_, **__: self.cpu()
    try:
        yield
    finally:
        FunctionalTensor.cuda = before


REAL = tuple(
    "upsample_ _upsample_ multi_margin_loss multilabel_margin_loss hardshrink softshrink lstm gru rnn_".split()
)
"""Operators that tracing would decompose in Python into other operators than eager runs, with slightly different
results."""

STATIC = ("aten::hardshrink", "aten::softshrink")
"""Operators of REAL whose backward torch cannot trace with symbolic sizes: with these they are decomposed."""


@contextlib.contextmanager
def as_eager_runs(symbolic: bool) -> Iterator[None]:
    """Trace these operators as eager runs them, not as their Python decompositions."""
    static = STATIC if symbolic else ()
    with without_python_decompositions([each for each in python_decomposed() if schema_of(each).name not in static]):
        yield


@functools.cache
def python_decomposed() -> tuple[Any, ...]:
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith(REAL)]
    return tuple(getattr(packet, kind) for packet in packets for kind in packet.overloads())
