"""A small GPT: causal self-attention, dropout, and an output layer tied to the token embedding.

    backprint capture backprint.examples.gpt:factory -o samples/gpt

After Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2). What makes it worth capturing:
random numbers in the forward that the backward needs again, a weight with two names, and integer inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Config:
    vocab: int = 512
    block: int = 64  # the longest sequence
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    dropout: float = 0.1


class SelfAttention(nn.Module):
    """Each position looks at itself and at those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split_heads(part) for part in self.qkv(x).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return F.dropout(self.proj(y.transpose(1, 2).flatten(2)), self.dropout, self.training)

    def split_heads(self, x: Tensor) -> Tensor:
        """[batch, time, n_embd] to [batch, n_head, time, n_embd / n_head]."""
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.proj(F.gelu(self.fc(x))))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = SelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tokens [batch, time] to logits [batch, time, vocab] and the mean loss of the next tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab, config.n_embd)
        self.wpe = nn.Embedding(config.block, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab, bias=False)
        self.apply(initialize)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.dropout(self.wte(idx) + self.wpe(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def factory() -> tuple[GPT, tuple[Tensor, Tensor]]:
    """The model in training mode, and two random sequences, each with itself one token later as target."""
    torch.manual_seed(0)
    config = Config()
    tokens = torch.randint(config.vocab, (2, config.block + 1))
    # Two tensors of their own: views of one storage would be an alias, which is not the point here.
    idx, targets = tokens[:, :-1].clone(), tokens[:, 1:].clone()
    return GPT(config).train(), (idx, targets)


if __name__ == "__main__":
    model, inputs = factory()
    logits, loss = model(*inputs)
    loss.backward()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, logits {tuple(logits.shape)}, loss {loss:.4f}")
