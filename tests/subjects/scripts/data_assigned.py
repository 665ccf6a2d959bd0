import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().sum()
    loss.backward()
    optimizer.step()
    model.weight.data = model.weight.data.clamp(-0.5, 0.5)
show(model)
