"""The gradient of batch_norm is wrong for one image whose gradient lies in memory channels last, as after a squeeze and
a permute: it is read in another order than it lies in. With two images it is right.

torch 2.13.0, CPU, float32 and float64, in training and in evaluation.
"""

import torch

torch.manual_seed(0)
norm = torch.nn.BatchNorm2d(16).double()
image = torch.randn(1, 16, 8, 8, dtype=torch.float64, requires_grad=True)
gradient = torch.randn(8, 8, 16, dtype=torch.float64)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return norm(x).squeeze(0).permute(1, 2, 0).contiguous()


channels_last(image).backward(gradient)
with torch.no_grad():
    direction = torch.randn_like(image)
    ahead, behind = (channels_last(image + step * direction) for step in (1e-6, -1e-6))
    print("autograd", (image.grad * direction).sum().item())
    print("right", ((ahead - behind) / 2e-6 * gradient).sum().item())
