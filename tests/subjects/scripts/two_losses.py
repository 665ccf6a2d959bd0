import torch
from shown import show

torch.manual_seed(0)
body, head, other = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
parameters = [*body.parameters(), *head.parameters(), *other.parameters()]
optimizer = torch.optim.RMSprop(parameters, 0.01)
for _ in range(4):
    h = body(torch.randn(5, 3)).tanh()
    left, right = head(h).square().mean(), other(h).exp().mean()
    optimizer.zero_grad()
    left.backward(retain_graph=True)
    right.backward()
    optimizer.step()
    print(left.item(), right.item())
show(body, head, other)
