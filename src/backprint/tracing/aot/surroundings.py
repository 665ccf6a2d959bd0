"""What of torch is set aside while AOTAutograd traces, so that it traces what eager runs, and says nothing of ours.

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
    """What fails under fake tensors is raised; torch would log it, with its stack, as well."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def without_effects() -> Iterator[None]:
    """Error checks of linear algebra are no effects to keep: as such they would thread tokens through the graph."""
    holder = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before = holder.effect
    holder.register(None)
    try:
        yield
    finally:
        holder.register(before)


@contextlib.contextmanager
def without_cuda() -> Iterator[None]:
    """`x.cuda()` gives `x` on the CPU while a fake capture is traced on a machine that has no such device."""
    before = FunctionalTensor.cuda
    FunctionalTensor.cuda = lambda self, *_, **__: self.cpu()
    try:
        yield
    finally:
        FunctionalTensor.cuda = before


REAL = tuple(
    "upsample_ _upsample_ multi_margin_loss multilabel_margin_loss hardshrink softshrink lstm gru rnn_".split()
)
"""Operators that tracing would take apart in Python into others than eager runs, with results near, not the same."""

STATIC = ("aten::hardshrink", "aten::softshrink")
"""Those whose own backward torch cannot trace with symbolic sizes: with these they are taken apart."""


@contextlib.contextmanager
def as_eager_runs(symbolic: bool) -> Iterator[None]:
    """Trace these operators as the ones that eager runs, not as their Python decompositions."""
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
    """The operators of REAL."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith(REAL)]
    return tuple(getattr(packet, kind) for packet in packets for kind in packet.overloads())
