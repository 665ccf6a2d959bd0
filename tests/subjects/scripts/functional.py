"""torch.func, and an optimizer over plain tensors."""

import torch
from shown import digest
from torch.func import functional_call, grad_and_value, vmap

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
optimizer = torch.optim.SGD(weights.values(), 0.1)


def loss(parameters, x):
    return functional_call(model, parameters, (x,)).square().mean()


for _ in range(4):
    grads, value = grad_and_value(loss)({name: p.detach() for name, p in weights.items()}, torch.randn(5, 3))
    each = vmap(lambda x: x.square().sum())(torch.randn(5, 3))
    for name, p in weights.items():
        p.grad = grads[name] + each.mean()
    optimizer.step()
    print(value.item())
print([digest(p) for p in weights.values()])
