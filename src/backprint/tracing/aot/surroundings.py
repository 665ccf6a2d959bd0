"""Patches of torch that are active while AOTAutograd traces, so that it traces the operators that eager runs.

Private torch APIs of this module, tried on torch 2.13: `torch._library.simple_registry`, `FunctionalTensor`, and the
kernels that operators have in Python (`OpOverload.py_kernels`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """Keep torch from also logging, with a stack, an error under fake tensors that is raised."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def without_effects() -> Iterator[None]:
    """Do not treat error checks of linear algebra as effects, which would thread tokens through the graph."""
    holder = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before = holder.effect
    holder.register(None)
    try:
        yield
    finally:
        holder.register(before)


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
    taken = []
    for operator in python_decomposed():
        if symbolic and operator._schema.name in STATIC:
            continue
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            if key in operator.py_kernels:
                taken.append((operator, key, operator.py_kernels.pop(key)))
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


@functools.cache
def python_decomposed() -> tuple[Any, ...]:
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith(REAL)]
    return tuple(getattr(packet, kind) for packet in packets for kind in packet.overloads())
