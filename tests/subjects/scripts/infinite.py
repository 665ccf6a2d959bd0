"""Batches from a generator that has no end."""

import itertools

import torch
from shown import show


def batches():
    for index in itertools.count():
        yield torch.randn(5, 3), index


torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adagrad(model.parameters(), 0.1)
for x, index in batches():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
    if index > 2:
        break
show(model)
