"""Everything is saved and loaded between two steps."""

import copy
import io

import torch
from shown import show

torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3)).square().sum()
    loss.backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save((model, optimizer.state_dict(), copy.deepcopy(optimizer)), file)
    file.seek(0)
    other, state, _ = torch.load(file, weights_only=False)
    model.load_state_dict(other.state_dict())
    optimizer.load_state_dict(state)
    print(loss.item(), len(file.getvalue()))
show(model)
