import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    for _ in range(3):
        (model(torch.randn(5, 3)).square().mean() / 3).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
show(model)
