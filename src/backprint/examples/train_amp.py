"""A training in mixed precision whose loss is NaN at step 37: an entropy takes the logarithm of 0 in half precision.

backprint record --steps 37:38 -m backprint.examples.train_amp
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Classifier(nn.Module):
    """An embedding, its mean over the sequence, and two linear layers."""

    def __init__(self, words: int = 100, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 32)
        self.hidden = nn.Linear(32, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(F.gelu(self.hidden(self.embed(tokens).mean(1))))


def entropy(logits: Tensor) -> Tensor:
    p = logits.half().softmax(-1)
    return -(p * p.log()).sum(-1).mean()


def main(steps: int = 45) -> None:
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(steps):
        tokens, labels = torch.randint(100, (8, 16)), torch.randint(10, (8,))
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(tokens) * (100 if step == 37 else 1)  # the schedule of a temperature
            loss = F.cross_entropy(logits, labels) - 0.01 * entropy(logits)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(step, f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
