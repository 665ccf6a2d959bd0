import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
for _ in range(4):
    loss = model(torch.randn(5, 3)).square().mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
show(model)
