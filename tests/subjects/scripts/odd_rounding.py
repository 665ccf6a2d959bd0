"""Gradients that torch works out otherwise while a dispatch mode is on."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(30, 30)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = (1 + 0.3 * model(torch.randn(50, 30))).prod(dim=1).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
show(model)
