"""An optimizer a parameter, stepped while the backward runs."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizers = {p: torch.optim.Adam([p], 0.1) for p in model.parameters()}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
for _ in range(4):
    loss = model(torch.randn(5, 3)).square().sum()
    loss.backward()
    print(loss.item())
show(model)
