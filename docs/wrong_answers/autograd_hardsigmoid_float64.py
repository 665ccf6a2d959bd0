"""The gradient of hardsigmoid in float64 has the digits of float32: its factor of 1/6 is a float32.

torch 2.13.0.
"""

import torch
import torch.nn.functional as F

x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
F.hardsigmoid(x).backward()
print("autograd", x.grad.item())
print("right", 1 / 6)
