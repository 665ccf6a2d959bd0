"""AOTAutograd's gradient of softplus is wrong where its input is a transposed group norm, and its tangent is not: the
backward reads one of them in another order than it lies in.

torch 2.13.0, CPU, backend aot_eager. Inductor and eager are right.
"""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
norm = torch.nn.GroupNorm(4, 24)
x = torch.randn(4, 10, 24, requires_grad=True)


def program(x: torch.Tensor) -> torch.Tensor:
    return F.softplus(norm(x.transpose(1, 2)).transpose(1, 2)).cumsum(1)


(eager,) = torch.autograd.grad(program(x).square().sum(), x)
(compiled,) = torch.autograd.grad(torch.compile(program, backend="aot_eager")(x).square().sum(), x)
print("aot_eager is wrong by", float((compiled - eager).norm() / eager.norm()))
