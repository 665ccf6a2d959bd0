import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for _ in range(4):
    x = torch.randn(5, 3)
    model(x).square().sum().backward()
    old = [p.data.clone() for p in model.parameters()]
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.add_(p.grad * 0.05 / norm)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    for p, q in zip(model.parameters(), old, strict=True):
        p.data = q
    optimizer.step()
    optimizer.zero_grad()
show(model)
