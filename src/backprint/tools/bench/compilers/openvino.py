"""OpenVINO on a CPU, in float32 also where the processor has bfloat16, with torch's number of threads.

Its telemetry, which forks a process at each conversion, is not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from backprint.tools.bench.compilers.exchange import NUMPY, exchanged, exported, refuse_dtypes, result_kinds


def build_openvino(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with OpenVINO."""
    return exchanged(module, inputs, _model_of)


def _model_of(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a compiled model of OpenVINO.

    A model from torch.export has inputs of unknown sizes, which are slow and which convolutions refuse as weights: it
    is reshaped to the sizes of these.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None: not importable
    import openvino

    kinds = result_kinds(core, inputs)
    refuse_dtypes("OpenVINO", [*(value.dtype for value in inputs), *(dtype for dtype, _ in kinds)], NUMPY)
    model = openvino.convert_model(exported(core, inputs))
    model.reshape({port: list(value.shape) for port, value in zip(model.inputs, inputs, strict=True)})
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = openvino.Core().compile_model(model, "CPU", config)
    request = compiled.create_infer_request()
    count = len(compiled.outputs)

    def called(*values: Tensor) -> Sequence[Tensor]:
        results = request.infer([value.numpy() for value in values], share_inputs=True)
        return [torch.from_numpy(results[place].copy()) for place in range(count)]

    return called
