"""The gradient of scatter_reduce(…, "amax", include_self=False) is shared with a value that ties and is not included.

torch 2.13.0.
"""

import torch

source = torch.zeros(1, requires_grad=True)
torch.zeros(1).scatter_reduce(0, torch.tensor([0]), source, "amax", include_self=False).backward()
print("autograd", source.grad.item())
print("right", 1.0)
