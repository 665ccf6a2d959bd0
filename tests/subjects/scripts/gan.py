import torch
from shown import show

torch.manual_seed(1)
generator, judge = torch.nn.Linear(8, 4), torch.nn.Linear(4, 1)
first = torch.optim.Adam(generator.parameters(), 0.1)
second = torch.optim.Adam(judge.parameters(), 0.1)
for _ in range(4):
    fake = generator(torch.randn(6, 8))
    second.zero_grad()
    (judge(fake.detach()).mean() - judge(torch.randn(6, 4)).mean()).backward()
    second.step()
    first.zero_grad()
    judge(fake).mean().backward()
    first.step()
show(generator, judge)
