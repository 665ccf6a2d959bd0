"""ONNX Runtime, by torch's exporter. It computes on a CPU, with torch's number of threads."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from backprint.tools.bench.compilers.exchange import NUMPY, core_ports, exchanged, exported, refuse_dtypes, result_kinds


def build_onnxruntime(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with ONNX Runtime."""
    return exchanged(module, inputs, _session_of)


UNCONVERTED = re.compile(r"target=torch\.ops\.([\w.]+)\]")
"""What torch.onnx's error says of the operator that it does not convert, after a page of advice."""


def converted(program: torch.export.ExportedProgram) -> Any:
    """Return a program as an ONNX model; raise NotImplementedError with the operator that torch.onnx does not
    convert."""
    try:
        return torch.onnx.export(program, dynamo=True, verbose=False)
    except Exception as error:
        if match := UNCONVERTED.search(str(error)):
            raise NotImplementedError(f"torch.onnx does not convert {match[1]}: try another compiler") from error
        raise


def _session_of(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a function that runs a session of ONNX Runtime."""
    import onnxruntime

    kinds = result_kinds(core, inputs)
    refuse_dtypes("ONNX Runtime", [*(value.dtype for value in inputs), *(dtype for dtype, _ in kinds)], NUMPY)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    with torch.no_grad():
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of each operator of torchvision
        program = converted(exported(core, inputs))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "core.onnx")
        program.save(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = core_ports(core)
    port_places = [(port.name, names.index(port.name)) for port in session.get_inputs()]  # the session's own order

    def called(*values: Tensor) -> Sequence[Tensor]:
        # None: all outputs
        results = session.run(None, {name: values[place].numpy() for name, place in port_places})
        return [torch.as_tensor(value) for value in results]

    return called
