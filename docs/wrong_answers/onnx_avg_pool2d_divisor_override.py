"""torch.onnx exports avg_pool2d without its divisor_override: ONNX Runtime divides by the size of the window.

torch 2.13.0, onnx 1.23.2, onnxscript 0.7.2, onnxruntime 1.32.0: relative error 0.25.
"""

import io

import onnxruntime
import torch
import torch.nn.functional as F


class Pool(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 2, divisor_override=3)


x = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
file = io.BytesIO()
torch.onnx.export(Pool(), (x,), dynamo=True).save(file)
session = onnxruntime.InferenceSession(file.getvalue())
(found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
expected = Pool()(x)
print("relative error", float((torch.from_numpy(found) - expected).abs().max() / expected.abs().max()))
