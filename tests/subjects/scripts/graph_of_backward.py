"""A backward that makes a graph, and a backward through it."""

import warnings

import torch
from shown import show

warnings.simplefilter("ignore")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    loss = model(torch.randn(5, 3)).square().sum()
    loss.backward(create_graph=True)
    size = sum(p.grad.square().sum() for p in model.parameters())
    optimizer.zero_grad()
    size.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), size.item())
show(model)
