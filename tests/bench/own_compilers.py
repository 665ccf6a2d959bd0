"""Compilers of a user's own, as `backprint bench --compiler own_compilers.py:NAME` takes them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

Function = Callable[..., Any]


def right(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    return gm


def slow(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """Right, and takes a millisecond longer."""

    def call(*values: Any) -> Any:
        until = time.perf_counter() + 1e-3
        while time.perf_counter() < until:
            pass
        return gm(*values)

    return call


def wrong(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """The largest element of each floating-point result is off by a hundredth."""

    def off(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        flat = value.clone().reshape(-1)
        flat[flat.abs().argmax()] *= 1.01
        return flat.reshape(value.shape)

    return lambda *values: tuple(map(off, gm(*values)))


def fewer(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    return lambda *values: gm(*values)[:-1]


def refuses(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    raise NotImplementedError("aten.mystery.default has no lowering")


def raises(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    calls = iter([gm])

    def call(*values: Any) -> Any:
        for function in calls:
            return function(*values)
        raise ValueError("only once")

    return call


def takes_four_seconds(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """The first graph takes eight, because a compiler first compiles an addition (`compilers/timed`)."""
    time.sleep(4)
    return gm


def leaves(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    raise SystemExit(3)


def dies_in_forward(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    if any(node.target is torch.ops.aten.relu.default for node in gm.graph.nodes):
        os.kill(os.getpid(), signal.SIGSEGV)
    return gm


def hangs(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    time.sleep(1000)
    return gm


def greedy(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """Uses memory until it is ended."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 32)
        time.sleep(0.01)


def leaves_a_process(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    if not os.fork():
        time.sleep(1000)
        os._exit(0)
    return gm


def other_strides(gm: fx.GraphModule, inputs: Sequence[Any]) -> Function:
    """Is right, gives its results other strides, and takes no input with others than it was compiled for."""
    strides = [value.stride() for value in inputs]

    def call(*values: Any) -> Any:
        assert [value.stride() for value in values] == strides
        return tuple(value.mT.contiguous().mT if value.dim() == 2 else value for value in gm(*values))

    return call
