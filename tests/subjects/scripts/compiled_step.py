"""An optimizer whose step is compiled."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), torch.tensor(0.1))
update = torch.compile(optimizer.step, backend="eager")
for _ in range(4):
    loss = model(torch.randn(5, 3)).square().mean()
    loss.backward()
    update()
    optimizer.zero_grad()
    print(loss.item())
show(model)
