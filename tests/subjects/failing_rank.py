"""One rank of two that are captured and saved together, and of which the second fails in a way and at a moment.

    python failing_rank.py HOW MOMENT FOLDER

HOW is `raise` (the model raises in its run number MOMENT), `refuse` (its inputs are refused), or `none`. RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment. The process prints `ready` before it captures.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import backprint as bp

warnings.filterwarnings("ignore")
HOW, MOMENT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])

    def forward(self, x: Any) -> Tensor:
        with COUNTED.open("a") as file:  # a variable would be as before after each run
            file.write(".")
        if HOW == "raise" and dist.get_rank() == 1 and COUNTED.stat().st_size == MOMENT:
            raise ValueError(f"this rank does not like run {MOMENT}")
        x = x[0] if isinstance(x, list) else x
        result: Tensor = self.layers(x)
        return result.square().mean()


COUNTED = FOLDER / f"runs of {os.environ['RANK']}"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    x: Any = torch.randn(4, 64)
    if HOW == "refuse" and rank == 1:
        x = [x, *[torch.zeros(2)] * MOMENT, torch.nested.nested_tensor([x])]
    elif HOW == "refuse":
        x = [x]
    print("ready", flush=True)
    for number in range(20 if HOW == "none" else 1):
        capture = bp.capture(model, x)
        capture.save(FOLDER / f"step_{number}" / f"rank_{rank}")
    print("done", flush=True)


if __name__ == "__main__":
    main()
