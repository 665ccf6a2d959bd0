import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
run = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = run(torch.randn(5, 3)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), len(torch._dynamo.utils.counters["stats"]))
show(model)
