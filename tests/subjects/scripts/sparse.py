import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Embedding(10, 4, sparse=True)
optimizer = torch.optim.SparseAdam(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randint(0, 10, (5,))).square().sum()
    loss.backward()
    optimizer.step()
    print(loss.item())
optimizer.zero_grad()
show(model)
