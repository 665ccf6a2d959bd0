"""The same with gradients that pile up over two backwards, and are not dropped."""

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizers = {p: torch.optim.SGD([p], 0.01, momentum=0.9) for p in model.parameters()}
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
for i in range(6):
    loss = model(torch.randn(5, 3)).square().sum()
    loss.backward()
    if i % 2:
        model.zero_grad(set_to_none=False)
    print(loss.item())
show(model)
