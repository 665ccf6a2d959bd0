"""Forward-mode AD of scatter_reduce with "prod" has no tangent, as if the result were constant; reverse mode is right.

torch 2.13.0.
"""

import torch
import torch.autograd.forward_ad as forward_ad

source = torch.Generator().manual_seed(0)
x, y, v = (torch.randn(3, dtype=torch.float64, generator=source) for _ in range(3))
index = torch.tensor([0, 0, 1])


def product(a: torch.Tensor) -> torch.Tensor:
    return a.scatter_reduce(0, index, y, "prod")


with forward_ad.dual_level():
    print("forward mode", forward_ad.unpack_dual(product(forward_ad.make_dual(x, v))).tangent)
print("differences", ((product(x + 1e-6 * v) - product(x - 1e-6 * v)) / 2e-6).tolist())
