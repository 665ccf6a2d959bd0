"""A backward through a backward."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(5, 3, requires_grad=True)
    optimizer.zero_grad()
    y = model(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (y.square().mean() + g.square().mean()).backward()
    optimizer.step()
show(model)
