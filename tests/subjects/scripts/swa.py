import torch
from shown import show
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1, nesterov=True, momentum=0.9)
scheduler = SWALR(optimizer, swa_lr=0.05)
data = torch.randn(4, 6, 3)
for x in data:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    average.update_parameters(model)
    scheduler.step()
update_bn(data, average)
show(model, average)
