"""Identities, hooks and what is monkeypatched."""

import torch
from shown import show
from torch.nn.modules import module as modules

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
calls = []
for p in model.parameters():
    p.register_hook(lambda g: calls.append((tuple(g.shape), g.stride())))
plain = torch.Tensor.backward
torch.Tensor.backward = lambda self, *args, **kwargs: (calls.append("backward"), plain(self, *args, **kwargs))[1]
before = [id(p) for p in model.parameters()]
grads = []
for step in range(4):
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    model(torch.randn(5, 3)).square().mean().backward()
    grads.append(id(model.weight.grad) == (grads and id(model.weight.grad)))
    optimizer.step()
    assert all(torch.equal(value["step"], torch.tensor(step + 1.0)) for value in optimizer.state.values())
print(before == [id(p) for p in model.parameters()], calls, len(modules._global_forward_pre_hooks))
torch.Tensor.backward = plain
show(model)
