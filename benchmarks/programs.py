"""Programs that others wrote, each as a function that captures it: what the benchmarks measure on.

PyTorch's operators and modules with the inputs of its own tests, the models of `architectures.py`, and samples of
GraphNet (github.com/PaddlePaddle/GraphNet), which are folders with a `model.py` at any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

import backprint as bp
from backprint.graph.nouns import Capture, TensorSpec

Make = Callable[[], Capture | None]
"""Captures a program; None if it has no gradient."""

Programs = Iterator[tuple[str, Make]]

SAMPLES = 12
"""The first of so many samples of an operator or module that has a gradient is taken."""


def operators(dtype: torch.dtype, samples: int) -> Programs:
    """Yield PyTorch's operators by their OpInfos: several samples of each, or the first that has a gradient."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if info.supports_autograd and dtype in info.supported_dtypes("cpu"):
            name = " ".join(filter(None, (info.name, info.variant_test_name)))
            if samples == 1:
                yield f"{name} {str(dtype)[6:]}", partial(first_with_gradient, operator_calls(info, dtype))
                continue
            torch.manual_seed(0)
            for number, call in enumerate(islice(operator_calls(info, dtype), samples)):
                yield f"{name} {str(dtype)[6:]} #{number}", partial(first_with_gradient, [call])


def operator_calls(info: Any, dtype: torch.dtype) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Yield an operator's samples as functions with their arguments."""
    for sample in info.sample_inputs("cpu", dtype, requires_grad=True):

        def call(value: Any, *args: Any, sample: Any = sample) -> Any:
            return info(value, *args, **sample.kwargs)

        yield call, (sample.input, *sample.args)


def modules(dtype: torch.dtype) -> Programs:
    """Yield PyTorch's modules by their ModuleInfos, in training."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        if dtype in info.supported_dtypes("cpu"):
            yield f"{info.name} {str(dtype)[6:]}", partial(first_with_gradient, module_calls(info, dtype))


def module_calls(info: Any, dtype: torch.dtype) -> Iterator[tuple[nn.Module, tuple[Any, ...]]]:
    """Yield a module with its samples."""
    for sample in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True):
        if sample.forward_input is not None:
            made = sample.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train()
            args, kwargs = tuple(sample.forward_input.args), sample.forward_input.kwargs
            if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in module.parameters()):
                module(*args, **kwargs)
            yield WithKeywords(module, kwargs) if kwargs else module, args


class WithKeywords(nn.Module):
    """A module with some keywords of its forward."""

    def __init__(self, module: nn.Module, kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.kwargs = module, kwargs

    def forward(self, *args: Any) -> Any:
        return self.module(*args, **self.kwargs)


def first_with_gradient(calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Capture | None:
    """Return a capture of the first call whose backward has steps and a gradient with elements, else of the first with
    a backward."""
    without_steps = None
    for function, args in islice(calls, SAMPLES):
        capture = bp.capture(function, *args)
        backwards = [pair.backward for pair in capture.pairs if pair.backward is not None and pair.backward.steps]
        specs = [port.spec for backward in backwards for port in backward.outputs]
        if any(isinstance(spec, TensorSpec) and 0 not in spec.shape for spec in specs):
            return capture
        if without_steps is None and any(pair.backward is not None for pair in capture.pairs):
            without_steps = capture
    return without_steps


def architectures() -> Programs:
    """Yield the transformers models of `architectures.py`."""
    from architectures import EVERY, loss_of, make, seed_all

    def captured(architecture: Any) -> Capture:
        seed_all(0)
        model, inputs = make(architecture)
        seed_all(0)
        return bp.capture(model, args=(), kwargs=inputs, loss=loss_of, specialize=True)

    for architecture in EVERY:
        yield architecture.name, partial(captured, architecture)


def graphnet(folder: Path) -> Programs:
    """Yield the samples of GraphNet in a folder, short programs first."""
    for model in sorted(folder.rglob("model.py"), key=lambda path: (path.stat().st_size, path)):
        yield str(model.parent.relative_to(folder)), partial(bp.capture, str(model.parent))
