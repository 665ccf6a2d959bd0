"""Fake tensors, functional tensors, and the rules by which operators run on fake ones.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from backprint._torch import private
from backprint._torch.modes import without_modes
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import UnsupportedOperatorException as UnsupportedOperatorException
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor


@uses("torch._subclasses.fake_impls.conv", needed_by=(private.AOT,))
def code_of_convolutions() -> CodeType:
    """Return the code object of torch's rule for convolutions on fake tensors, by which a frame of that rule is known:
    it asks for sizes only to choose a memory format."""
    from torch._subclasses import fake_impls

    return fake_impls.conv.__code__


@contextlib.contextmanager
def errors_not_logged() -> Iterator[None]:
    """Keep torch from also logging, with a stack, an error under fake tensors that is raised."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def set_device_guards() -> None:
    """Enter a FakeTensorMode once: it sets the device guards of the process at its first use.

    A build for GPUs on a machine without one replaces the guard of its devices then, for the whole process. If that
    happened while a thread is in the middle of a backward, the process would end.
    """
    with NAMES["FakeTensorMode"].value()():
        pass


def device_of_fake(tensor: Any) -> torch.device:
    """Return the device of a fake tensor. Torch's own attribute asks an operator for it."""
    device: torch.device = tensor.fake_device
    return device


@uses("torch._subclasses.fake_tensor.FakeTensor.tolist", needed_by=(private.FAKE,))
@contextlib.contextmanager
def lists_of_fakes(known_values: Callable[[Any], Any]) -> Iterator[None]:
    """Let `tolist` of a fake tensor return its numbers, where `known_values` returns a real tensor with them; it
    returns None for a fake tensor without known values. Torch's own `tolist` of a fake tensor calls an operator for
    each number: for the ranks of a large device mesh that takes seconds."""
    kind: Any = NAMES["FakeTensor"].value()
    original = kind.tolist

    def tolist(tensor: Any) -> Any:
        real = known_values(tensor)
        if real is None:
            return original(tensor)
        # The fake mode is active here: it would see the operators of `tolist` on the real tensor, and fake them.
        with without_modes():
            return real.tolist()

    kind.tolist = tolist
    try:
        yield
    finally:
        kind.tolist = original


# ---- Probes


def fake_mode() -> Any:
    """Return a FakeTensorMode that accepts real tensors too."""
    return NAMES["FakeTensorMode"].value()(allow_non_fake_inputs=True)


def tensors_are_faked() -> bool:
    with fake_mode():
        return isinstance(torch.zeros(2).sin(), NAMES["FakeTensor"].value())


def operators_are_dispatched() -> bool:
    """Whether a fake mode runs each operator by its method `dispatch`, and keeps the fakes of real tensors."""
    mode, seen = fake_mode(), []
    plain = mode.dispatch

    def dispatch(func: Any, *rest: Any) -> Any:
        seen.append(func)
        return plain(func, *rest)

    mode.dispatch = dispatch
    with mode:
        torch.zeros(2)
    return bool(seen) and hasattr(mode.fake_tensor_converter, "set_tensor_memo")


def reads_of_fake_values_raise() -> bool:
    """Whether `.item()` of a fake tensor raises an error that names the operator."""
    with fake_mode():
        tensor = torch.zeros(2).sum()
        try:
            tensor.item()
        except NAMES["DataDependentOutputException"].value() as error:
            return str(error.func) == "aten._local_scalar_dense.default"
    return False


def fake_tensors_have_a_device() -> bool:
    with fake_mode():
        return device_of_fake(torch.zeros(2)) == torch.device("cpu")


def convolutions_have_a_rule() -> bool:
    return code_of_convolutions().co_name == "conv"


# ---- Names

NAMES = {
    "FakeTensor": Private(
        "torch._subclasses.fake_tensor.FakeTensor",
        "The class of tensors with a shape, a dtype and a device, but no values.",
        (private.REPLAY,),
        holds=tensors_are_faked,
    ),
    "FakeTensorMode": Private(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "The mode under which operators make fake tensors.",
        (
            private.AOT,
            private.FAKE,
            private.TO_FX,
            private.KERNELS,
        ),
        passed=("allow_fallback_kernels", "allow_non_fake_inputs", "shape_env"),
    ),
    "UnsupportedOperatorException": Private(
        "torch._subclasses.fake_tensor.UnsupportedOperatorException",
        "Raised if an operator cannot run on fake tensors.",
        (private.CAPTURE,),
    ),
    "DataDependentOutputException": Private(
        "torch._subclasses.fake_tensor.DataDependentOutputException",
        "Raised if an operator's result depends on values; its `func` is the operator.",
        (
            private.FAKE,
            private.KERNELS,
            private.BENCH,
        ),
        holds=reads_of_fake_values_raise,
    ),
    "DynamicOutputShapeException": Private(
        "torch._subclasses.fake_tensor.DynamicOutputShapeException",
        "Raised if a result's shape depends on values; its `func` is the operator.",
        (
            private.FAKE,
            private.KERNELS,
            private.BENCH,
        ),
    ),
    "FunctionalTensor": Private(
        "torch._subclasses.functional_tensor.FunctionalTensor",
        "The class of tensors whose writes are traced as values.",
        (
            private.AOT,
            private.TO_FX,
        ),
    ),
    "fake_rules": Private(
        "torch._subclasses.fake_impls.op_implementations_dict",
        "The rules of operators on fake tensors that are not their meta kernels.",
        (private.KERNELS,),
    ),
    "grouped_mm_output": Private(
        "torch._meta_registrations._create_grouped_mm_output_tensor",
        "Make the output of `aten._grouped_mm` on fake tensors.",
        (private.FAKE,),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch._subclasses.fake_tensor.FakeTensorMode.dispatch", operators_are_dispatched, (private.FAKE,)),
    Probe("torch._subclasses.fake_tensor.FakeTensor.fake_device", fake_tensors_have_a_device, (private.FAKE,)),
    Probe("torch._subclasses.fake_impls.conv", convolutions_have_a_rule, (private.AOT,)),
)
