"""Settings that torch reads when it is imported, or keeps."""

import os

os.environ["OMP_NUM_THREADS"] = "3"
os.environ["MKL_NUM_THREADS"] = "3"
import torch
from shown import show

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.set_printoptions(precision=3)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().mean()
    loss.backward()
    optimizer.step()
    print(loss, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.initial_seed())
show(model)
