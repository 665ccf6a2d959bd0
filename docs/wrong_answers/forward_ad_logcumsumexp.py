"""Forward-mode AD of logcumsumexp loses the tangents of what comes before a larger value; reverse mode is right.

torch 2.13.0. The formula divides sums of exponentials, relative to the largest value of all, by these sums plus 1e-13.
"""

import torch
import torch.autograd.forward_ad as forward_ad

x, v = torch.tensor([0.0, 30.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
with forward_ad.dual_level():
    print("forward mode", forward_ad.unpack_dual(forward_ad.make_dual(x, v).logcumsumexp(0)).tangent.tolist())
print("differences", (((x + 1e-6 * v).logcumsumexp(0) - (x - 1e-6 * v).logcumsumexp(0)) / 2e-6).tolist())
