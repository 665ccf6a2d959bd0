import torch
from shown import show
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(4, 3)
)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    x = torch.randn(5, 3, requires_grad=True)
    x = checkpoint(model, x, use_reentrant=False)
    x = checkpoint(model, x, use_reentrant=True)
    optimizer.zero_grad()
    x.square().sum().backward()
    optimizer.step()
show(model)
