"""Workers that are spawned import this script as `__mp_main__`."""

import torch
from shown import show
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Data(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((3,), float(index)), __name__


if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    for x, names in DataLoader(Data(), 4, num_workers=1, multiprocessing_context="spawn"):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item(), names)
    show(model)
