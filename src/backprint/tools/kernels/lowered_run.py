"""The process that runs a file that was lowered: it is sent inputs and tangents, and sends outputs and gradients.

python -P -m backprint.tools.kernels.lowered_run LINE PARENT FILE NAME MEMORY MEMORY

FILE is the file, NAME its function; the memories, shared with the parent, are file descriptors: for inputs, and for
results. LINE and PARENT are for `backprint.child`: the connection on which requests and answers are sent, and the
parent process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from backprint.child.child import line_of
from backprint.child.tensors import SharedMemory, put_results, read_inputs


def _answer_requests() -> None:
    """Run the file for each request: a dict with `inputs`, headers of the tensors in the memory for inputs, and
    `tangents`, as in `_run_function`. What the file raises ends this process, so that its traceback is the last
    printed."""
    line, (file, name, *descriptors) = line_of(sys.argv[1:])
    inputs, results = (SharedMemory(int(descriptor)) for descriptor in descriptors)
    if os.environ.get("TRITON_INTERPRET") == "1":
        _interpret_as_a_gpu()
    spec = importlib.util.spec_from_file_location("lowered", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for request in line:
        values = _run_function(getattr(module, name), read_inputs(inputs, request["inputs"]), request["tangents"])
        headers, _ = put_results(results, values)
        line.send({"results": headers})


def _interpret_as_a_gpu() -> None:
    """Mend what Triton's interpreter computes otherwise than a GPU, and make each launch raise where it reads or writes
    outside of the tensors that it was passed."""
    from triton.runtime.interpreter import GridExecutor

    from backprint.tools.kernels.checking.interpreter import patch_interpreter
    from backprint.tools.kernels.checking.memory import allow_arguments

    patch_interpreter()
    launch = GridExecutor.__call__

    def within_arguments(self: Any, *args: Any, **kwargs: Any) -> Any:
        with allow_arguments([*args, *kwargs.values()]):
            return launch(self, *args, **kwargs)

    GridExecutor.__call__ = within_arguments


def _run_function(
    function: Callable[..., Any], values: Sequence[Any], tangent_positions: Sequence[int | None]
) -> list[Any]:
    """Return the outputs of a function, and the gradients of the inputs that require grad. `values` are the inputs, and
    then the tangents; `tangent_positions` says for each output where its tangent is among them, None for one
    without."""
    input_count = len(values) - sum(place is not None for place in tangent_positions)
    outputs = function(*values[:input_count])
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    differentiable = [value for value in values[:input_count] if value.requires_grad]
    outputs_and_tangents = [
        (output, values[place]) for output, place in zip(outputs, tangent_positions, strict=True) if place is not None
    ]
    outputs_and_tangents = [(output, tangent) for output, tangent in outputs_and_tangents if output.requires_grad]
    gradients: Sequence[Any] = ()
    if outputs_and_tangents and differentiable:
        outputs_with, tangents = zip(*outputs_and_tangents, strict=True)
        gradients = torch.autograd.grad(outputs_with, differentiable, tangents, materialize_grads=True)
    return [*(output.detach() for output in outputs), *gradients]


if __name__ == "__main__":
    _answer_requests()
