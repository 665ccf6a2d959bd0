"""What the capture of a rank costs, beside PyTorch's own trace of the plain step.

    python benchmarks/rank_cost.py
    python -m torch.distributed.run --standalone --nproc-per-node 2 benchmarks/rank_cost.py

The first prints the seconds of `make_fx` of a Llama's step that is not sharded, and of its capture; the second those of
the capture of the same step with FSDP2, with tensor and sequence parallel, and with DDP, on every rank at once. Each is
the second of its process, on one thread a process.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
import torch.distributed as dist
from subjects.sharded import Llama, ddp, fsdp, grid, parallelize_module, plan_of_sequence
from torch.fx.experimental.proxy_tensor import make_fx

import backprint as bp

LAYERS = 8


def llama() -> Llama:
    torch.manual_seed(0)
    return Llama(layers=LAYERS)


def second(work: Callable[[], Any]) -> float:
    """The seconds of the second of two calls."""
    work()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def tensor_parallel(model: Any, *args: torch.Tensor) -> Any:
    parallelize_module(model, grid()["tp"], plan_of_sequence(LAYERS))
    return model, args


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    args = torch.randint(0, 32, (4, 8)), torch.randint(0, 32, (4, 8))
    if "RANK" not in os.environ:
        model = llama()
        parameters = dict(model.named_parameters())

        def step(parameters: Any) -> Any:
            loss = torch.func.functional_call(model, parameters, args)
            return torch.autograd.grad(loss, list(parameters.values()))

        print(f"make_fx of the plain step   {second(lambda: make_fx(step)(parameters)):.2f} s")
        print(f"capture, not sharded        {second(lambda: bp.capture(model, *args, engine='eager')):.2f} s")
        return
    dist.init_process_group("gloo")
    for title, shard in (("FSDP2", fsdp()), ("tensor and sequence parallel", tensor_parallel), ("DDP", ddp())):
        sharded, own = shard(llama(), *args)
        seconds = second(lambda sharded=sharded, own=own: bp.capture(sharded, *own))  # type: ignore[misc]  # bound now
        if dist.get_rank() == 0:
            print(f"capture, {title:28} {seconds:.2f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
