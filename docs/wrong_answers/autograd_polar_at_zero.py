"""The gradient of polar for a length of 0 is 0: it is computed from the sign of the result, which has none there.

torch 2.13.0.
"""

import torch

length = torch.zeros(1, requires_grad=True)
torch.polar(length, torch.tensor([0.5])).real.backward()
print("autograd", length.grad.item())
print("right", torch.cos(torch.tensor(0.5)).item())
