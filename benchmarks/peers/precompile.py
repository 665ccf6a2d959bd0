"""Whether torch.compiler.precompile keeps the gradients of a step with dropout, with and without a checkpoint.

    python benchmarks/peers/precompile.py          (torch 2.14 or newer)

The seed is the same before each run, so that eager and the kept step draw the same mask in the forward. A checkpoint
runs its block again in the backward, with the random state set back; the kept step has that as two draws.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """A block with dropout, which may be run again in the backward, and a linear layer behind it."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8, bias=False), nn.Linear(8, 1, bias=False)
        self.checkpointed = checkpointed

    def block(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.inner(x), 0.5).sin()

    def forward(self, x: Tensor) -> Tensor:
        kept = checkpoint(self.block, x, use_reentrant=False) if self.checkpointed else self.block(x)
        return self.outer(kept)


def step(model: Net, x: Tensor) -> None:
    model(x).square().sum().backward()


def gradients(run: object, model: Net, x: Tensor) -> list[Tensor]:
    """Return the gradients of a run under a fixed seed."""
    model.zero_grad()
    torch.manual_seed(1)
    run(model, x)  # type: ignore[operator]
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def main() -> None:
    print(f"torch {torch.__version__}")
    precompile = torch.compiler.precompile  # type: ignore[attr-defined]  # since 2.14
    for checkpointed in (False, True):
        for backend in ("eager", "inductor"):
            torch.manual_seed(0)
            model, x = Net(checkpointed), torch.randn(16, 8)
            kept = precompile.load(*precompile(step, model, x, backend=backend))
            pairs = zip(gradients(step, model, x), gradients(kept, model, x), strict=True)
            errors = [float((want - got).abs().max() / want.abs().max()) for want, got in pairs]
            name = "with a checkpoint" if checkpointed else "without"
            print(f"{name}, backend {backend}: relative errors of the gradients {[f'{each:.1e}' for each in errors]}")


if __name__ == "__main__":
    main()
