"""The gradient of batch_norm is wrong for a weight with a stride of 2, as a column of a matrix has, where the input has
two dimensions or one element a channel: the backward reads the weight as if it were contiguous. With more elements a
channel it is right.

torch 2.13.0, CPU, in training and in evaluation.
"""

import torch

torch.manual_seed(0)
x = torch.randn(7, 4, requires_grad=True)
column = torch.randn(4, 2)[:, 0]
gradient = torch.randn(7, 4)


def gradient_of_input(weight: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.batch_norm(x, None, None, weight, training=True)
    return torch.autograd.grad(y, x, gradient)[0]


print("stride 2  ", gradient_of_input(column)[0].tolist())
print("contiguous", gradient_of_input(column.contiguous())[0].tolist())
