import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(30, 30)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(4):
    x = torch.randn(50, 30, requires_grad=True)
    optimizer.zero_grad()
    y = (1 + 0.3 * model(x)).cumprod(1).mean()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (y + g.square().sum()).backward()
    optimizer.step()
    print(y.item())
show(model)
