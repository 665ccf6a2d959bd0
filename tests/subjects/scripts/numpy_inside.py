"""Values that leave torch and come back, and parameters changed below it."""

import numpy
import torch
from shown import show

torch.manual_seed(0)
numpy.random.seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    x = torch.from_numpy(numpy.random.rand(5, 3).astype("float32"))
    y = torch.from_numpy(x.numpy() * 2)
    loss = (model(y) + y.sum()).square().mean()
    loss.backward()
    model.weight.data.numpy()[0, 0] *= 0.5
    optimizer.step()
    print(loss.item())
show(model)
