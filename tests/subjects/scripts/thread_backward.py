"""The backward runs in another thread than the forward."""

import threading

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().mean()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    optimizer.step()
    print(loss.item())
show(model)
