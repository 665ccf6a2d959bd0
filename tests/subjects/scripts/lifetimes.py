"""Nothing lives longer than it does in plain Python."""

import gc
import weakref

import torch
from shown import show


def train():
    gc.disable()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dead = []
    for _ in range(4):
        optimizer.zero_grad()
        x = torch.randn(5, 3)
        h = model[0](x)
        loss = model[1:](h).square().mean()
        loss.backward()
        optimizer.step()
        dead += [weakref.ref(h), weakref.ref(loss), weakref.ref(x), weakref.ref(model[0].weight.grad)]
        del x, h, loss
    optimizer.zero_grad()
    print([each() is None for each in dead], sorted(locals()))
    gc.enable()
    return model


show(train())
