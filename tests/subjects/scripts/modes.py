"""Modes of the script's own, which begin in one step and end in another, and count what they see."""

import torch
from shown import show
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Count(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


class Calls(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


torch.manual_seed(0)
torch.set_default_device("cpu")
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
count, calls, flops = Count(), Calls(), FlopCounterMode(display=False)
packed = []
for step in range(4):
    if step == 1:
        count.__enter__()
        calls.__enter__()
    optimizer.zero_grad()
    with flops, torch.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(1), t)[1], lambda t: t):
        loss = model(torch.randn(5, 3)).square().mean()
        loss.backward()
        with torch.autocast("cpu", torch.bfloat16):
            optimizer.step()
        extra = torch.zeros(2) + 1
    if step == 2:
        calls.__exit__(None, None, None)
        count.__exit__(None, None, None)
    print(loss.item(), count.count, calls.count, flops.get_total_flops(), len(packed))
show(model)
