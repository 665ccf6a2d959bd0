import torch
from shown import show
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.layers(self.words(ids), mask=mask, is_causal=True))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
for step in range(3):
    ids = torch.randint(0, 20, (3, 8))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 2 == 0:
        model.eval()
        with torch.inference_mode():
            print(loss.item(), model(ids).sum().item())
        model.train()
show(model)
