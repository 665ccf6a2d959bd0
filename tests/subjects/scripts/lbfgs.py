import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")
x = torch.randn(5, 3)


def closure():
    optimizer.zero_grad()
    loss = (model(x) - 1).square().sum()
    loss.backward()
    return loss


for _ in range(3):
    print(optimizer.step(closure).item())
show(model)
