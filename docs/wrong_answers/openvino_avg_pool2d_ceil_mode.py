"""OpenVINO divides the windows of avg_pool2d(ceil_mode=True) that reach beyond the padding by another number.

torch 2.13.0, openvino 2026.4.1: relative error 0.23. No padding, or no ceil_mode: right.
"""

import openvino
import torch
import torch.nn.functional as F


class Pool(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True)


x = torch.randn(1, 2, 6, 6, generator=torch.Generator().manual_seed(0))
program = torch.export.export(Pool(), (x,))
compiled = openvino.compile_model(openvino.convert_model(program), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
found = torch.from_numpy(compiled([x.numpy()])[0])
expected = Pool()(x)
print("relative error", float((found - expected).abs().max() / expected.abs().max()))
