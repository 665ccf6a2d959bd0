"""Gradients by torch.autograd.grad, set by hand; and the penalty of a gradient."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softplus(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(5, 3, requires_grad=True)
    y = model(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = y.square().mean() + (g.norm(dim=1) - 1).square().mean()
    for p, found in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
        p.grad = found
    optimizer.step()
    print(loss.item())
show(model)
