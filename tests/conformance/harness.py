"""One sample of PyTorch's own databases, captured, replayed and compared with eager autograd: an outcome in one word."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import backprint as bp
from backprint.graph.text import parse

OUTCOMES = ("bitwise", "close", "undifferentiable", "refused", "unproven", "wrong", "failed", "crashed", "text")
"""From good to bad. `refused` names the reason; `crashed` is an error that is none of ours; `text` a text that does not parse back."""


def check(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Capture a call, replay it, compare: the outcome, and what there is to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            capture = bp.capture(target, args=args, kwargs=kwargs, **options)
        except bp.BackprintError as error:
            return "refused", f"{type(error).__name__}: {error}"
        except Exception as error:
            return "crashed", f"{type(error).__name__}: {error}"
        for pair in capture.pairs:
            for graph in (pair.forward, pair.backward):
                if graph is not None and parse(graph.code) != graph:
                    return "text", "the text does not parse back to the graph"
        verdict = bp.verify(capture, ("captured",))[0]
        return verdict.verdict, verdict.detail


def unseeded() -> None:
    """Take out the seed that the database sets inside its random operators: a graph draws from its caller's."""
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.opinfo import core, definitions

    def plain(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    for module in (common_methods_invocations, core, *vars(definitions).values()):
        if hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = plain


def differentiable_ops(dtype: torch.dtype) -> list[Any]:
    """PyTorch's operators that have gradients in this dtype, by full name."""
    from torch.testing._internal.common_methods_invocations import op_db

    unseeded()
    return [op for op in op_db if op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")]


def full_name(op: Any) -> str:
    """An operator's name with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def samples(op: Any, dtype: torch.dtype, most: int | None = None) -> Iterator[Any]:
    """An operator's sample inputs, the same in every run."""
    torch.manual_seed(0)
    for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=True)):
        if most is not None and index >= most:
            return
        yield sample


def calling(op: Any, sample: Any) -> Callable[..., Any]:
    """The operator as a plain function with named arguments; what the database does to its output belongs to it."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return sample.output_process_fn_grad(op(input, *args, **kwargs))

    call.__name__ = full_name(op).replace(".", "_")
    return call


def check_op(op: Any, dtype: torch.dtype, most: int | None = None, **options: Any) -> tuple[Counter[str], dict[str, str]]:
    """The outcomes over an operator's samples, and one detail for each bad one."""
    counts: Counter[str] = Counter()
    details: dict[str, str] = {}
    for sample in samples(op, dtype, most):
        torch.manual_seed(1)
        outcome, detail = check(calling(op, sample), (sample.input, *sample.args), dict(sample.kwargs), **options)
        counts[outcome] += 1
        if outcome not in ("bitwise", "undifferentiable"):
            details.setdefault(outcome, detail[:300])
    return counts, details


def module_samples(training: bool, dtype: torch.dtype = torch.float32) -> Iterator[tuple[str, Callable[[], nn.Module], Any]]:
    """PyTorch's module database: a name, a maker of the module, and its forward input."""
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for index, sample in enumerate(inputs):
            if sample.forward_input is None:
                continue
            maker = _maker(info, sample, training, dtype)
            yield f"{info.name}/{index}", maker, sample.forward_input


def _maker(info: Any, sample: Any, training: bool, dtype: torch.dtype) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(0)
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        module: nn.Module = info.module_cls(*args, **kwargs).to(dtype).train(training)
        if isinstance(module, nn.modules.lazy.LazyModuleMixin):
            module(*sample.forward_input.args, **sample.forward_input.kwargs)  # a lazy module has no parameters before
        return module

    return make
