"""One sample of PyTorch's own databases, captured, replayed and compared with eager autograd: an outcome in a word."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import backprint as bp
from backprint.graph.text import parse

OUTCOMES = ("bitwise", "close", "undifferentiable", "refused", "unproven", "wrong", "failed", "crashed", "text")
LETTERS = dict(zip(OUTCOMES, "bcnrpwfxt", strict=True))
"""From good to bad. `refused` names the reason; `crashed` is an error that is none of ours; `text` a text that does not
parse back."""


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


def check_op(op: Any, dtype: torch.dtype, most: int | None = None, **options: Any) -> tuple[str, dict[str, str]]:
    """A letter for each of an operator's samples, and one detail for each outcome that is not bitwise."""
    letters, details = "", {}
    for sample in samples(op, dtype, most):
        torch.manual_seed(1)
        outcome, detail = check(calling(op, sample), (sample.input, *sample.args), dict(sample.kwargs), **options)
        letters += LETTERS[outcome]
        if outcome not in ("bitwise", "undifferentiable"):
            details.setdefault(outcome, detail[:300])
    return letters, details


def modules() -> list[Any]:
    """PyTorch's module database."""
    from torch.testing._internal.common_modules import module_db

    return list(module_db)


def check_module(info: Any, training: bool, most: int | None = None) -> tuple[str, dict[str, str]]:
    """`check_op` for a module; masks that it reads values of are specialised on."""
    letters, details = "", {}
    torch.manual_seed(0)
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    for sample in list(inputs)[:most]:
        if sample.forward_input is None:
            continue
        torch.manual_seed(1)
        given = sample.forward_input
        outcome, detail = check(made(info, sample, training), tuple(given.args), dict(given.kwargs), specialise=True)
        letters += LETTERS[outcome]
        if outcome not in ("bitwise", "undifferentiable"):
            details.setdefault(outcome, detail[:300])
    return letters, details


def made(info: Any, sample: Any, training: bool) -> nn.Module:
    """The module of a sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        module: nn.Module = info.module_cls(*args, **kwargs).to(torch.float32).train(training)
        if isinstance(module, nn.modules.lazy.LazyModuleMixin):
            module(*sample.forward_input.args, **sample.forward_input.kwargs)  # it has no parameters before
        return module


# ------------------------------------------------------------------ the table

TABLE = Path(__file__).with_name("table.json")


@dataclass(frozen=True)
class Section:
    """One part of the table: a database, how it is captured, how many samples of an entry a plain test run takes."""

    entries: Callable[[], list[Any]]
    check: Callable[[Any, int | None], tuple[str, dict[str, str]]]
    most: int | None = None
    part: int = 2


READING = frozenset(
    (
        "__getitem__ combinations cov index_fill index_put linalg.lstsq linalg.lstsq.grad_oriented masked_select "
        "narrow nn.functional.ctc_loss nn.functional.gaussian_nll_loss repeat_interleave tensor_split sparse.mm.reduce "
        "sparse.sampled_addmm to_sparse"
    ).split()
)
"""Operators of which plain `aot` refuses some samples: the only ones for which `specialise` makes a difference."""

SECTIONS: dict[str, Section] = {
    "ops float32": Section(lambda: differentiable_ops(torch.float32), lambda op, n: check_op(op, torch.float32, n)),
    "ops float32 specialise": Section(
        lambda: [op for op in differentiable_ops(torch.float32) if full_name(op) in READING],
        lambda op, n: check_op(op, torch.float32, n, specialise=True),
    ),
    "ops float64": Section(
        lambda: differentiable_ops(torch.float64), lambda op, n: check_op(op, torch.float64, n), 1, 1
    ),
    "ops bfloat16": Section(
        lambda: differentiable_ops(torch.bfloat16), lambda op, n: check_op(op, torch.bfloat16, n), 1, 1
    ),
    "modules train": Section(modules, lambda info, n: check_module(info, True, n), None, 1),
    "modules eval": Section(modules, lambda info, n: check_module(info, False, n), None, 1),
}


def name_of(entry: Any) -> str:
    """The name of an operator or a module in the table."""
    return full_name(entry) if hasattr(entry, "variant_test_name") else str(entry.name)


def read_table() -> dict[str, Any]:
    """The expected outcomes: section -> entry -> a letter for each sample."""
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table
