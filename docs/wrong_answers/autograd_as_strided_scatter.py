"""The gradient of as_strided_scatter by its first argument is 1 where the value was overwritten, and 0 elsewhere.

torch 2.13.0. It should be the other way round; gradcheck says so too.
"""

import torch

x, y = torch.randn(4, requires_grad=True), torch.randn(2)
torch.as_strided_scatter(x, y, (2,), (1,), 0).sum().backward()
print("autograd", x.grad.tolist())
print("right", [0.0, 0.0, 1.0, 1.0])
