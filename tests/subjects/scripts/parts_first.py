"""A step takes parts of what lies in one memory before it takes the whole, and parameters that share one."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
torch.nn.utils.vector_to_parameters(flat, model.parameters())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batches = [torch.randn(6, 8) for _ in range(4)]
for batch in batches:
    first = batch[:, :3]
    optimizer.zero_grad()
    loss = (model(first) - batch[:, 7:]).square().mean() + (batch.sum() * model.bias).mean()
    loss.backward()
    batch[0].zero_()
    optimizer.step()
    batches[-1].mul_(2)
    print(loss.item(), flat.tolist())
show(model)
