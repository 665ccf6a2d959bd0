import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    x = torch.randn(5, 3 if step < 1 else 4)
    model(x).square().mean().backward()
    optimizer.step()
    print(step, flush=True)
