"""native_group_norm returns a mean and a reciprocal deviation that require grad, and their gradients are dropped.

torch 2.13.0. The results of native_layer_norm and native_batch_norm do not require grad, and backward raises.
"""

import torch

x = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)


def reciprocal_deviation(a: torch.Tensor) -> torch.Tensor:
    return torch.native_group_norm(a, None, None, 1, 4, 3, 2, 1e-5)[2].sum()


v = torch.randn(1, 4, 3, dtype=torch.float64)
result = reciprocal_deviation(x)
print("requires grad", result.requires_grad)
print("autograd", torch.autograd.grad(result, x, allow_unused=True)[0])
with torch.no_grad():
    print("along v", float(reciprocal_deviation(x + 1e-6 * v) - reciprocal_deviation(x - 1e-6 * v)) / 2e-6)
