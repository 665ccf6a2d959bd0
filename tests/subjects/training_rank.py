"""A rank of a training run under torchrun: it trains two steps, captures its step in between, and trains on.

    python training_rank.py FOLDER [PROGRAM ...]

Printed is one JSON object a program: the verdict, whether the losses are those of the same run without the capture, and
whether the capture left gradients. DEVICE and BACKEND are in the environment, if they are not cpu and gloo.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import torch
import torch.distributed as dist

import backprint as bp
from subjects import sharded
from subjects.sharded import Program, programs

warnings.filterwarnings("ignore")
NAMES = ("tensor parallel", "FSDP2", "DDP with buckets", "FSDP2 and tensor parallel", "mixture of experts")


def losses(program: Program, place: Path | None) -> tuple[list[float], Any]:
    """Train two steps, with a capture between them if there is a place to keep it."""
    torch.manual_seed(0)
    model = copy.deepcopy(program.model)
    call = program.shard(model, *program.args)
    model, args = (model, program.args) if call is None else call
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    values, facts = [], None
    for step in range(2):
        if step == 1 and place is not None:
            capture = bp.capture(model, *args)
            capture.save(place / f"rank_{dist.get_rank()}")
            left = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
            verdict = capture.verify()[0]
            facts = {"verdict": verdict.verdict, "detail": verdict.detail, "gradients left": left}
        loss = model(*args)
        loss = loss if loss.dim() == 0 else loss.square().mean()
        if loss.requires_grad:  # a model may run backward itself
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(float(loss))
    return values, facts


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(os.environ.get("BACKEND", "gloo"))
    for name, program in programs(dist.get_world_size()).items():
        if name in (sys.argv[2:] or NAMES):
            program = sharded.on_device(program, os.environ.get("DEVICE", "cpu"))
            plain, _ = losses(program, None)
            captured, facts = losses(program, Path(sys.argv[1]) / name.replace(" ", "_"))
            print(json.dumps({"program": name, **facts, "same": plain == captured}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
