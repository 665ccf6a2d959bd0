"""Inductor gives NaN for a dropout mask that is made of empty_like and bernoulli, as torch decomposes dropout.

torch 2.13.0, with fallback_random=True, which draws the numbers that eager draws.
"""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten


def masked(x, weight, bias):
    y, _, _ = aten.native_layer_norm.default(x, [16], weight, bias, 1e-12)
    mask = aten.div.Scalar(aten.bernoulli.p(aten.empty_like.default(y), 0.9), 0.9)
    return mask, y * mask


generator = torch.Generator().manual_seed(0)
inputs = torch.randn(2, 8, 16, generator=generator), torch.ones(16), torch.zeros(16)
with torch.no_grad():
    graph = make_fx(masked)(*inputs)
    for fallback in (True, False):
        compiled = torch._inductor.compile(graph, list(inputs), options={"fallback_random": fallback})
        torch.manual_seed(0)
        print("fallback_random", fallback, "compiled", compiled(*inputs)[0].flatten()[:4].tolist())
    torch.manual_seed(0)
    print("eager", masked(*inputs)[0].flatten()[:4].tolist())
