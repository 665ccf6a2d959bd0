"""Replace autograd's error about an operator without a derivative by one that says the operator, its line, and what to
do."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from backprint._torch.autograd import current_node, next_sequence_number, sequence_number
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint.errors import CaptureError
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.custom import without_operator_bodies
from backprint.trace.observe import Call, Observer
from backprint.trace.program import CalledProgram
from backprint.trace.reach import module_paths
from backprint.trace.warm_up import run_observed

MISSING_DERIVATIVE = re.compile(
    r"derivative for '?(?:aten::)?(?P<plain>[\w.]+)'? is not implemented"
    r"|Trying to backward through (?P<custom>[\w.]+?)(?:\.default)? but no autograd formula was registered"
)
"""Autograd's errors for an operator without a derivative."""

ATTENTION = (
    "attention has one under its plain kernel: `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
    ":` around the program and around this call, which rounds otherwise"
)
INFERENCE = (
    'it is the attention of inference: capture with mode="train" (--mode train), in which modules and the samples of '
    "GraphNet take the one of training"
)
HINTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^_native_multi_head_attention"), INFERENCE),
    (re.compile(r"^[^.]*(scaled_dot_product|_flash_attention|_efficient_attention)"), ATTENTION),
    (re.compile(r"\."), "give it one with torch.library.register_autograd, made of operators that have one"),
)
"""What to do, by a pattern of the operator's name. The last pattern is for operators of libraries, whose names have a
namespace."""

REWRITE_HINT = "write that part with operators that have one"
"""What to do about any other operator."""
FIRST_ORDER_HINT = "leave requires_grad off for what it takes"
"""What else to do where a backward is captured."""
SECOND_ORDER_HINT = "ask for order=1"
"""What else to do where the backward of a backward is captured (order=2)."""


@contextlib.contextmanager
def explaining_missing_derivative(program: Callable[[], CalledProgram]) -> Iterator[None]:
    """Replace autograd's error about a missing derivative by one with the operator, its line, and what to do. `program`
    returns the program that runs in this block; it is called after an error."""
    try:
        yield
    except (RuntimeError, CaptureError) as error:
        match = MISSING_DERIVATIVE.search(str(error))
        if match is None:
            raise
        raise _missing_derivative_error(program(), match["plain"] or match["custom"]) from error


def _missing_derivative_error(program: CalledProgram, operator: str) -> CaptureError:
    """Return the error for a program that is differentiated through an operator without a derivative."""
    place = frames.place(_find_line_of(program, operator))
    hint = next((hint_ for pattern, hint_ in HINTS if pattern.search(operator)), REWRITE_HINT)
    # Only a program of order=2, which returns its own gradients, has tangents as inputs.
    order, other_hint = ("order=2 goes", SECOND_ORDER_HINT) if program.tangents else ("autograd goes", FIRST_ORDER_HINT)
    return CaptureError(
        f"{program.title}: {order} backward through {operator}, which has no derivative in torch "
        f"{torch.__version__}{place}: {hint}, or {other_hint}"
    )


def _find_line_of(program: CalledProgram, operator: str) -> Source | None:
    """Return the line that runs an operator, named as in autograd's error, or whose backward runs it; None if no
    observed run reaches it."""
    finder = _OperatorFinder(operator, module_paths(program.target()))
    try:
        # As one call, because autograd's error names the custom operator and not its body.
        with without_operator_bodies():
            run_observed(program, finder)
    except CaptureError:  # the program cannot be observed
        return None
    return finder.found


class _OperatorFinder(Observer):
    """Notes where the operator named `wanted` runs first, in `found`. In a backward, this is the line of the forward
    operator of the autograd node that runs. `paths` has the path of each module, by id.

    `_lines` has the line of each forward operator by the sequence number of its node.
    """

    def __init__(self, wanted: str, paths: Mapping[int, str]) -> None:
        self._wanted, self._paths = wanted, paths
        self._lines: dict[int, Source | None] = {}
        self.found: Source | None = None

    def before(self, call: Call) -> None:
        """Note the line of a forward operator, and `found` if the wanted operator runs."""
        node = current_node()
        if node is None:
            # Autograd has made the node of this call already: its sequence number is one less than the next one.
            self._lines[next_sequence_number() - 1] = frames.here(self._paths)
        if self.found is None and self._wanted in _names_in_errors(call.func):
            self.found = frames.here(self._paths) if node is None else self._lines.get(sequence_number(node))


@functools.cache
def _names_in_errors(func: Any) -> tuple[str, ...]:
    """Return the names of an operator that autograd's errors use: `name` for one of ATen, else `namespace.name`."""
    if isinstance(func, HigherOrderOperator):
        return ()
    space, _, name = schema_of(func).name.partition("::")
    return (name,) if space == "aten" else (f"{space}.{name}",)
