"""Children that are forked in a step, and train on their own."""

import multiprocessing
import os

import torch
from shown import show


def train(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 3)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().mean()
    if step == 1:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(train, [1, 2]))
        child = os.fork()
        if child == 0:
            print(train(3), flush=True)
            raise SystemExit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    loss.backward()
    optimizer.step()
show(model)
