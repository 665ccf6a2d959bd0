"""Write the golden sample of today's format: `python tests/golden/make.py`, where the format, or the end of a
`model.py`, has changed.

Until the first release no other sample is read. What a release has written stays as it is for good:
`tests/sample/test_sample.py` reads it and proves it again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import backprint as bp
from backprint.sample.metadata import FORMAT


class Golden(nn.Module):
    """Parameters, a buffer that changes, an integer input, a constant made inside, and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.fc = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: Tensor, x: Tensor) -> dict[str, Tensor]:
        self.seen += 1
        scale = torch.tensor([0.5, 1.0, 2.0])
        hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        return {"logits": hidden * scale, "loss": hidden.square().mean()}


def make(folder: Path) -> Path:
    """Capture the model and save it."""
    torch.manual_seed(0)
    made = bp.capture(Golden(), torch.tensor([0, 3, 6, 3, 1]), torch.randn(4, 5), name="golden")
    return bp.save(made, folder / f"format_{FORMAT}", overwrite=True)


if __name__ == "__main__":
    print(make(Path(__file__).parent))
