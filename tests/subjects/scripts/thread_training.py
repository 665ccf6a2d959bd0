"""All of the training runs in a thread, and another one trains beside it."""

import threading

import torch
from shown import show

models = [torch.nn.Linear(3, 1), torch.nn.Linear(3, 2)]
turns = [threading.Semaphore(1), threading.Semaphore(0)]


def train(index):
    generator = torch.Generator().manual_seed(index)
    with torch.no_grad():
        for p in models[index].parameters():
            p.uniform_(-1, 1, generator=generator)
    optimizer = torch.optim.SGD(models[index].parameters(), 0.1)
    for _ in range(4):
        turns[index].acquire()
        optimizer.zero_grad()
        models[index](torch.randn(5, 3, generator=generator)).square().mean().backward()
        optimizer.step()
        turns[1 - index].release()


torch.manual_seed(0)
threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
show(*models)
