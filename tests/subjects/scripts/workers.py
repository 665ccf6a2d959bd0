import torch
from shown import show
from torch.utils.data import DataLoader, TensorDataset, get_worker_info


class Data(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(3) * (get_worker_info().id + 1), y


if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = Data(torch.randn(12, 3), torch.arange(12) % 4)
    for _ in range(2):
        for x, y in DataLoader(data, 6, num_workers=2, shuffle=True):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item())
    show(model)
