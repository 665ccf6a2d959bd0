"""A script that goes to another folder, and captures a step of its own with Backprint, in a step."""

import os
import sys
import tempfile

import torch
from shown import show

import backprint as bp

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def step(x):
    optimizer.zero_grad()
    loss = model(x).square().sum()
    loss.backward()
    optimizer.step()
    return loss


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    for index in range(4):
        print(step(torch.randn(5, 3)).item())
        if index == 1:
            print(bp.capture(step, torch.randn(5, 3)).verify()[-1].verdict)
    os.chdir("/")
show(model)
print("last", sys.argv[0] == __file__, file=sys.stderr)
raise ValueError("from elsewhere")
