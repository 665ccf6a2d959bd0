"""Sharded training steps, as people write them: the whole model, its arguments, and what shards it in each rank."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Program:
    """A whole model and its arguments, and the function that shards them in each rank."""

    model: nn.Module
    args: tuple[Any, ...]
    shard: Callable[..., Any]


# ---- Models


class MLP(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(x)))


class Attention(nn.Module):
    def __init__(self, width: int, head: int) -> None:
        super().__init__()
        self.head = head
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (part(x).view(batch, length, -1, self.head).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.attention = nn.RMSNorm(width), Attention(width, 4)
        self.norm_2, self.mlp = nn.RMSNorm(width), MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Llama(nn.Module):
    def __init__(self, layers: int = 2, width: int = 16, words: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(layers)])
        self.norm, self.output = nn.RMSNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.output(self.norm(x)).flatten(0, 1), wanted.flatten())


class LossParallel(nn.Module):
    """Computes its loss on logits that stay sharded, which takes that the backward is in the same block."""

    def __init__(self) -> None:
        super().__init__()
        self.llama = Llama()

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        with loss_parallel():
            loss = self.llama(tokens, wanted)
            loss.backward()
        return loss.detach()


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.unused, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x)).square().mean()


class Accumulating(nn.Module):
    """Two micro-batches: the gradients of the first are reduced with those of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.model: nn.Module = MLP()

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        with self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext():
            (self.model(first).square().mean() / 2).backward()
        return self.model(second).square().mean() / 2


class Experts(nn.Module):
    """A mixture of experts: with a group, each rank has one expert, and tokens travel to it and back."""

    def __init__(self, width: int = 8, experts: int = 4) -> None:
        super().__init__()
        self.gate: nn.Module = nn.Linear(width, experts, bias=False)
        self.count = experts
        self.experts = nn.Parameter(torch.randn(experts, width, width) * 0.1)
        self.group: Any = None

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=self.count)
        sorted_tokens = x[order]
        if self.group is None:
            parts = sorted_tokens.split(counts.tolist())
            results = torch.cat([part @ self.experts[index] for index, part in enumerate(parts)])
        else:
            outgoing = counts.tolist()
            incoming = collectives.all_to_all_single(counts, None, None, self.group).tolist()
            arrived = collectives.all_to_all_single_autograd(sorted_tokens, incoming, outgoing, self.group)
            results = collectives.all_to_all_single_autograd(arrived @ self.experts[0], outgoing, incoming, self.group)
        back = torch.empty_like(results).index_copy(0, order, results)
        return (back * weight[:, None]).square().mean()


class Exchange(torch.autograd.Function):
    """An all-to-all of a program's own, in place, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        received = torch.empty_like(x)
        dist.all_to_all_single(received, x.contiguous())
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]  # PyTorch's own is untyped
        received = torch.empty_like(gradient)
        dist.all_to_all_single(received, gradient.contiguous())
        return received


class Exchanging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Exchange.apply(self.first(x)).tanh()).square().mean()


# ---- How each is sharded

DEVICE = ["cpu"]
"""The device of all meshes."""


def on_device(program: Program, device: str) -> Program:
    """Return a program whose model, arguments and meshes are on a device."""
    DEVICE[0] = device
    return Program(program.model.to(device), tuple(value.to(device) for value in program.args), program.shard)


def grid(first: str = "dp", second: str = "tp") -> DeviceMesh:
    """A mesh of two dimensions over all ranks: two rows, or one where there are two ranks."""
    size = dist.get_world_size()
    rows = 2 if size > 2 else 1
    return init_device_mesh(DEVICE[0], (rows, size // rows), mesh_dim_names=(first, second))


def rows_of(args: Any, place: int, count: int) -> tuple[Any, ...]:
    """Each argument's rows of one of `count` ranks that have data of their own."""
    return tuple(value.chunk(count)[place] for value in args)


def own_rows(args: Any) -> tuple[Any, ...]:
    return rows_of(args, dist.get_rank(), dist.get_world_size())


def tensor_parallel(model: nn.Module, x: Tensor) -> None:
    parallelize_module(model, grid()["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})


def plan_of_sequence(layers: int, prefix: str = "", local: bool = True) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Replicate() if local else Shard(-1), use_local_output=local
        ),
    }
    for index in range(layers):
        layer = f"layers.{index}."
        whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan |= {layer + name: SequenceParallel() for name in ("norm_1", "norm_2")}
        plan |= {layer + name: whole for name in ("attention", "mlp")}
        plan |= {layer + name: ColwiseParallel() for name in ("attention.q", "attention.k", "attention.v", "mlp.up")}
        plan |= {layer + name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.o", "mlp.down")}
    return {prefix + name: style for name, style in plan.items()}


def sequence_parallel(model: nn.Module, tokens: Tensor, wanted: Tensor) -> None:
    parallelize_module(model, grid()["tp"], plan_of_sequence(2))


def with_loss_parallel(model: nn.Module, tokens: Tensor, wanted: Tensor) -> None:
    parallelize_module(model, grid()["tp"], plan_of_sequence(2, "llama.", local=False))


def sharded(model: nn.Module, mesh: DeviceMesh, **options: Any) -> None:
    """FSDP2 of a Llama: each layer, and what is left."""
    for layer in model.layers:  # type: ignore[union-attr]  # a Llama's
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)


def fsdp(reshard: bool = True, **options: Any) -> Callable[..., Any]:
    def shard(model: nn.Module, *args: Tensor) -> Any:
        mesh = init_device_mesh(DEVICE[0], (dist.get_world_size(),), mesh_dim_names=("dp",))
        sharded(model, mesh, reshard_after_forward=reshard, **options)
        return model, own_rows(args)

    return shard


def hybrid(model: nn.Module, *args: Tensor) -> Any:
    sharded(model, grid("replicate", "shard"))
    return model, own_rows(args)


def fsdp_and_tensor_parallel(model: nn.Module, *args: Tensor) -> Any:
    mesh = grid()
    parallelize_module(model, mesh["tp"], plan_of_sequence(2))
    sharded(model, mesh["dp"])
    return model, rows_of(args, mesh.get_local_rank("dp"), mesh["dp"].size())


def ddp(**options: Any) -> Callable[..., Any]:
    def shard(model: nn.Module, *args: Tensor) -> Any:
        return DistributedDataParallel(model, **options), own_rows(args)

    return shard


def accumulating(model: Accumulating, *args: Tensor) -> Any:
    model.model = DistributedDataParallel(model.model)
    return model, own_rows(args)


def averaged(parameter: nn.Parameter, count: int) -> None:
    """Divide a gradient by the number of ranks, as soon as it is there."""
    parameter.register_hook(lambda gradient: gradient / count)


def expert_parallel(model: Experts, x: Tensor) -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    if size != len(model.experts):
        model.experts = nn.Parameter(model.experts.detach()[:size].clone())
    model.group = dist.group.WORLD
    model.experts = nn.Parameter(model.experts.detach()[rank : rank + 1].clone())
    averaged(model.experts, size)
    model.gate = DistributedDataParallel(model.gate)
    return model, own_rows((x,))


def exchanging(model: nn.Module, x: Tensor) -> Any:
    return DistributedDataParallel(model), own_rows((x,))


def programs(experts: int = 4) -> dict[str, Program]:
    """Every program; the mixture has one expert for each of `experts` ranks."""
    torch.manual_seed(0)
    tokens, wanted = torch.randint(0, 32, (8, 8)), torch.randint(0, 32, (8, 8))
    x = torch.randn(16, 8)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return {
        "tensor parallel": Program(MLP(), (x,), tensor_parallel),
        "sequence parallel": Program(Llama(), (tokens, wanted), sequence_parallel),
        "loss parallel": Program(LossParallel(), (tokens, wanted), with_loss_parallel),
        "FSDP2": Program(Llama(), (tokens, wanted), fsdp()),
        "FSDP2 without resharding": Program(Llama(), (tokens, wanted), fsdp(reshard=False)),
        "FSDP2 in mixed precision": Program(Llama(), (tokens, wanted), fsdp(mp_policy=half)),
        "HSDP": Program(Llama(), (tokens, wanted), hybrid),
        "FSDP2 and tensor parallel": Program(Llama(), (tokens, wanted), fsdp_and_tensor_parallel),
        "DDP with buckets": Program(Llama(), (tokens, wanted), ddp(bucket_cap_mb=0.002)),
        "DDP with unused parameters": Program(Unused(), (x,), ddp(find_unused_parameters=True)),
        "gradient accumulation": Program(Accumulating(), (x, 2 * x), accumulating),
        "mixture of experts": Program(Experts(experts=experts), (x,), expert_parallel),
        "all-to-all of its own": Program(Exchanging(), (x,), exchanging),
    }
