import torch
from shown import show
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
model = torch.nn.LSTM(3, 4, batch_first=True, dropout=0.2, num_layers=2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
state = None
for _ in range(4):
    packed = pack_padded_sequence(torch.randn(3, 5, 3), [5, 3, 2], batch_first=True)
    out, state = model(packed, state)
    state = tuple(each.detach() for each in state)
    loss = pad_packed_sequence(out)[0].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
show(model)
