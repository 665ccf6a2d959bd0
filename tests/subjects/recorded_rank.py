"""A rank's training script that knows nothing of Backprint: python recorded_rank.py KIND [FAULT]

Printed is a line for each step: the loss and the norm of the gradients, as hexadecimal numbers. DEVICE and BACKEND are
in the environment, if they are not cpu and gloo.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

DEVICE, BACKEND = os.environ.get("DEVICE", "cpu"), os.environ.get("BACKEND", "gloo")


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


def sharded(kind: str) -> Any:
    """Return the model of a rank."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model: Any = nn.Sequential(MLP(), MLP())
    if kind == "DDP":
        return nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),), mesh_dim_names=("tp" if kind == "TP" else "dp",))
    for layer in model:
        if kind == "TP":
            parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        else:
            fully_shard(layer, mesh=mesh)
    return model


def every_collective(gradients: list[Tensor]) -> None:
    """Reduce gradients, and then change them by what came of every other collective: in place, in lists, and later."""
    rank, size = dist.get_rank(), dist.get_world_size()
    last = gradients[-1]
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    halves = torch.full_like(last, 0.5)
    for work in works:
        work.wait()
    halves = halves * last
    parts = [torch.empty_like(last) for _ in range(size)]
    work = dist.all_gather(parts, halves, async_op=True)
    doubled = halves * 2
    work.wait()
    gathered = torch.empty(size * len(last))
    dist.all_gather_into_tensor(gathered, torch.stack(parts).sum(0) + doubled)
    piece, shared = torch.empty_like(last), torch.empty_like(last)
    dist.reduce_scatter_tensor(piece, gathered)
    dist.broadcast(piece, 0)
    total = piece * (rank + 1)
    dist.reduce(total, 0)
    rows = [torch.empty_like(piece) for _ in range(size)] if rank == 0 else None
    dist.gather(piece, rows, 0)
    dist.scatter(shared, [row + 1 for row in rows] if rows is not None else None, 0)
    swapped = torch.empty(size * 2)
    dist.all_to_all_single(swapped, torch.arange(size * 2.0) + shared.sum())
    dist.barrier()
    last += 1e-3 * (shared + swapped.mean() + (total.mean() if rank == 0 else 0))


def main() -> None:
    kind, fault = sys.argv[1], (*sys.argv[2:], "")[0]
    torch.set_num_threads(1)
    if DEVICE != "cpu":
        torch.set_default_device(DEVICE)
    dist.init_process_group(BACKEND)
    torch.manual_seed(0)
    model = nn.Sequential(MLP(), MLP()) if kind == "collectives" else sharded(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    halves = 2 if kind in ("DDP", "FSDP2") else 1
    for step in range(3):
        torch.manual_seed(10 * step + (0 if kind == "TP" else dist.get_rank()))
        for half in range(halves):
            alone = model.no_sync() if kind == "DDP" and half == 0 else contextlib.nullcontext()
            with alone:
                loss = model(torch.randn(4, 8)).square().mean()
                if fault == "unlike" and dist.get_rank() == 1:
                    loss = loss * torch.prod(1 + 0 * loss.reshape(1))  # whose backward is not recorded
                loss.backward()
        if kind == "collectives":
            every_collective([parameter.grad for parameter in model.parameters()])
        norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        print(f"step {step}: {float(loss).hex()} {float(norm).hex()}", flush=True)
        if fault == "raise" and dist.get_rank() == 1 and step == 1:
            raise ValueError("this rank does not like step 1")
    dist.barrier()
    del model
    dist.destroy_process_group()
    time.sleep(0.3)  # Gloo's threads release tensors, for which they need Python, a moment after the collective


if __name__ == "__main__":
    main()
