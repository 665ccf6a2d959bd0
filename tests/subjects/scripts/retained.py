"""One loss twice, and several losses in one call of backward."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(4):
    y = model(torch.randn(5, 3))
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    loss.backward(retain_graph=True)
    torch.autograd.backward([y.sum(), y.cos().mean()], [torch.tensor(0.5), None])
    optimizer.step()
show(model)
