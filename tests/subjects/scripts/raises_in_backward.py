"""A backward raises, and the script goes on to the next batch."""

import torch
from shown import show


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if torch.isnan(g).any():
            raise ValueError("not a number")
        return g * 2


torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    loss = Odd.apply(model(torch.randn(5, 3))).square().mean()
    try:
        (loss * float("nan") if step == 1 else loss).backward()
    except ValueError as error:
        print("skipped", step, error)
        loss = Odd.apply(model(torch.randn(5, 3))).square().mean()
        loss.backward()
    optimizer.step()
show(model)
