"""Run the wrapper that Inductor wrote on meta tensors, which have no numbers, and note every call that it makes.

A kernel notes its arguments and computes nothing; extern calls (matmuls, convolutions) run on meta tensors. The wrapper
is code that Inductor wrote in this process: none of it comes from a file.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from backprint._torch.inductor import devices_not_switched, kernels_compiled_by
from backprint._torch.modes import TorchDispatchMode
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint.defects import for_program, is_defect
from backprint.errors import RefusedError
from backprint.extracting.lowering.missing_rules import LIKE, result_like
from backprint.extracting.nouns import KernelArgument, KernelCall

META = torch.device("meta")

MEMORY = ("aten.empty_strided.default", "aten.set_.source_Tensor")
"""Operators that a wrapper calls for memory alone."""

MAKERS = ("empty_strided_cpu", "empty_strided_cuda", "empty_strided_cpu_pinned")
"""The names by which a wrapper makes memory."""


@dataclass(slots=True)
class RecordedCalls:
    """The calls that a wrapper made: of each kernel by name, and how often each extern operator."""

    kernels: dict[str, list[KernelCall]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    externs: Counter[str] = field(default_factory=Counter)

    def note(self, name: str, args: Sequence[Any]) -> None:
        """Note a call of a kernel."""
        self.kernels.setdefault(name, []).append(KernelCall(tuple(map(argument_of, args))))
        self.order.append(name)


def argument_of(value: Any) -> KernelArgument:
    """Return what a call has for one argument, without its numbers."""
    if isinstance(value, Tensor):
        return KernelArgument(str(value.dtype)[6:], tuple(value.shape), tuple(value.stride()))
    return KernelArgument(type(value).__name__, value=value)


@dataclass(frozen=True, slots=True)
class NotedKernel:
    """Stands for a kernel in a wrapper."""

    name: str
    recorded: RecordedCalls

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Note a call of a Triton kernel; the stream is no argument of it."""
        self.recorded.note(self.name, args)

    __call__ = run


class NotedOperators(TorchDispatchMode):
    """Counts the operators that a wrapper calls beside its kernels. A draw from a random state that is kept is one."""

    supports_higher_order_operators = True

    def __init__(self, recorded: RecordedCalls) -> None:
        super().__init__()
        self.recorded = recorded

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(function, HigherOrderOperator):
            return self.drawn(function, args, kwargs or {})
        views = any(value.alias_info and not value.alias_info.is_write for value in schema_of(function).returns)
        if not views and str(function) not in MEMORY:
            self.recorded.externs[str(function)] += 1
        try:
            call = result_like if function in LIKE else for_program
            return call(function, *args, **({} if function in LIKE else kwargs or {}))
        except Exception as error:  # of any kind: each operator has its own code for meta tensors
            if is_defect(error):
                raise
            said = str(error).strip().partition(". ")[0][:200]
            raise RefusedError(
                f"{function} is called beside the kernels, and does not run on meta tensors, with which calls are "
                f"recorded: {type(error).__name__}: {said}; capture the program without it"
            ) from error

    def drawn(self, function: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what a draw gives whose random state is saved, or was saved by another."""
        name = f"torch.ops.higher_order.{function.name()}"
        self.recorded.externs[name] += 1
        match function.name(), args:
            case "run_and_save_rng_state", (operator, *rest):
                return torch.empty(0, dtype=torch.uint8, device=META), operator(*rest, **on_meta(kwargs))
            case "run_with_rng_state", (_, operator, *rest):
                return operator(*rest, **on_meta(kwargs))
        raise RefusedError(f"{name} is called beside the kernels, and has no form on meta tensors, with which calls "
                           "are recorded: capture the program without it")  # fmt: skip


def on_meta(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call with the meta device in the place of another."""
    return {name: META if isinstance(value, torch.device) else value for name, value in options.items()}


def recorded_calls(wrapper: str, inputs: Sequence[Any]) -> RecordedCalls:
    """Run a wrapper on tensors like these, and on these numbers; return its calls."""
    recorded = RecordedCalls()
    space = loaded_wrapper(wrapper, lambda name, types: NotedKernel(name, recorded))
    values = [like_on_meta(value) if isinstance(value, Tensor) else value for value in inputs]
    with without_gpu(), NotedOperators(recorded):
        space["call"](values)
    return recorded


def like_on_meta(value: Tensor) -> Tensor:
    return empty_on_meta(value.shape, value.stride(), value.dtype)


def loaded_wrapper(
    wrapper: str,
    kernel: Callable[[str, Any], Any],
    make: Callable[[Sequence[int], Sequence[int], torch.dtype], Tensor] | None = None,
    device: torch.device = META,
) -> dict[str, Any]:
    """Return the names of a wrapper whose kernels are made by a function of their names and of the types of their
    arguments (None of a Triton kernel), and whose memory is made by another, on a device."""

    class CompileStandIn:
        """What a wrapper has in the place of AsyncCompile. Kernels have the names that the wrapper gives them."""

        def triton(self, name: str, *args: Any, **kwargs: Any) -> Any:
            return kernel(name, None)

        def cpp_pybinding(self, types: Any, *args: Any, **kwargs: Any) -> Any:
            return NotNamed(types)

        def wait(self, scope: dict[str, Any]) -> None:
            for name, value in list(scope.items()):
                if isinstance(value, NotNamed):
                    scope[name] = kernel(name, value.types)

    space: dict[str, Any] = {"__name__": "wrapper"}
    with kernels_compiled_by(CompileStandIn):
        exec(compile(wrapper, "<wrapper of Inductor>", "exec"), space)
    space.update(dict.fromkeys(MAKERS, make or empty_on_meta))
    space.update(device=lambda *args, **kwargs: device, assert_alignment=lambda *args: None, **LAYING_OUT)
    return space


@dataclass(frozen=True, slots=True)
class NotNamed:
    """A C++ kernel of which a wrapper has not said the name yet."""

    types: Any


def lay_out(value: Tensor | None, shape: Sequence[int], stride: Sequence[int], *args: Any) -> None:
    """Give a result the strides that Inductor expects of it; some operators have others on this device."""
    if value is None:
        return
    if tuple(value.stride()) != tuple(stride) or (tuple(value.shape) != tuple(shape) and not is_workspace(value)):
        laid = torch.empty_strided(tuple(shape), tuple(stride), dtype=value.dtype, device=value.device)
        if value.device == META:
            value.set_(laid)
            return
        if value.shape != laid.shape:
            raise RefusedError(f"{' '.join(map(str, args)) or 'an operator'} gives {list(value.shape)} here, and "
                               f"{list(shape)} on the target: run the kernels there")  # fmt: skip
        value.set_(laid.copy_(value))


def lay_out_all(values: Sequence[Tensor], shapes: Sequence[Any], strides: Sequence[Any], *args: Any) -> None:
    """Give several results their strides."""
    for value, shape, stride in zip(values, shapes, strides, strict=True):
        lay_out(value, shape, stride, *args)


LAYING_OUT = {
    "assert_size_stride": lay_out,
    "assert_size_stride_grouped": lay_out_all,  # these two since torch 2.14
    "assert_tensor_metadata": lay_out,
}
"""The functions by which a wrapper asserts layouts, and what stands for them."""


def is_workspace(value: Any) -> bool:
    """Whether a tensor may be the workspace of a library, whose size only the library knows."""
    return isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def empty_on_meta(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=META)


@contextlib.contextmanager
def without_gpu() -> Any:
    """While this lasts, a wrapper may choose a GPU that is not there."""
    with (
        devices_not_switched(),
        mock.patch.object(torch.cuda, "set_device", return_value=None),
    ):
        yield
