"""Bugs of sharded training steps, as people make them, each with the same code without the bug.

A module has a group, or None where it is the whole, and the name of its bug, or ''. A bug does nothing in the whole. A
step in which ranks draw one dropout mask where they should draw several is left out: the whole draws another mask than
any rank, so the two cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from subjects.sharded import Llama, Program, grid, own_rows, plan_of_sequence, rows_of


@dataclass(frozen=True)
class Bug:
    """A planted bug: what is wrong, and a function that makes its program, or with '' the same program without a bug.

    `cause` is a part of the cause of at least one of its faults; '' where no cause is known for it.
    """

    name: str
    wrong: str
    make: Callable[[str], Program]
    cause: str = ""
    ranks: int = 2

    @property
    def program(self) -> Program:
        """The program with the bug."""
        return self.make(self.name)

    @property
    def twin(self) -> Program:
        """The program without the bug."""
        return self.make("")


# ---- Collectives with a backward


class Copied(torch.autograd.Function):
    """Passes its input on, and sums its gradient over a group: the input of a column-parallel layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return collectives.all_reduce(gradient, "sum", ctx.group), None


class Summed(torch.autograd.Function):
    """Reduces over a group, and passes its gradient on: the output of a row-parallel layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, reduction: str = "sum") -> Tensor:
        return collectives.all_reduce(x, reduction, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None, None


class SummedInPlace(torch.autograd.Function):
    """The same, on a copy that is reduced in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Columns(torch.autograd.Function):
    """Gathers the columns of all ranks, and keeps its own of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, bug: str) -> Tensor:
        ctx.group = group
        rows, columns = x.shape
        size = dist.get_world_size(group)
        gathered = x.new_empty(size * rows, columns)
        dist.all_gather_into_tensor(gathered, x.contiguous(), group=group)
        if bug == "gather along the wrong axis":
            return gathered.view(rows, size * columns)
        return torch.cat(gathered.chunk(size), dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient.chunk(dist.get_world_size(ctx.group), dim=1)[dist.get_rank(ctx.group)], None, None


class GatheredSequence(torch.autograd.Function):
    """Gathers the sequence from all ranks; the gradient is reduced and scattered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any, bug: str) -> Tensor:
        ctx.group, ctx.bug = group, bug
        return collectives.all_gather_tensor(x, 0, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if ctx.bug == "own part of a gradient":
            return gradient.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)], None, None
        return collectives.reduce_scatter_tensor(gradient.contiguous(), "sum", 0, ctx.group), None, None


class ScatteredSequence(torch.autograd.Function):
    """Reduces and scatters the sequence among all ranks; the gradient is gathered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return collectives.reduce_scatter_tensor(x, "sum", 0, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return collectives.all_gather_tensor(gradient.contiguous(), 0, ctx.group), None


def copied(x: Tensor, group: Any) -> Tensor:
    return x if group is None else Copied.apply(x, group)


def summed(x: Tensor, group: Any) -> Tensor:
    return x if group is None else Summed.apply(x, group)


def summed_in_place(x: Tensor, group: Any) -> Tensor:
    return x if group is None else SummedInPlace.apply(x, group)


# ---- How ranks share a module


def own(parameter: Tensor, group: Any = None, dim: int = 0) -> nn.Parameter:
    """A parameter's part of this rank."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    return nn.Parameter(parameter.detach().chunk(size, dim)[rank].clone())


def reduce_gradients(parameters: Iterable[nn.Parameter], group: Any = None, by: float = 1.0) -> None:
    """Sum each gradient over a group once it is there, and divide it by a number."""

    def reduce(parameter: Tensor) -> None:
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= by

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(reduce)


class Sharded(nn.Module):
    """A module that knows its bug, and its group if it is not the whole."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.group: Any = None

    @property
    def size(self) -> int:
        """The number of ranks that share the module."""
        return 1 if self.group is None else dist.get_world_size(self.group)


# ---- Tensor parallel by hand


class TensorParallel(Sharded):
    """A replicated layer, a column-parallel one and a row-parallel one."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.first, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        entering = x if self.bug == "input of a column-parallel layer" else copied(x, self.group)
        loss = self.lower(torch.relu(self.up(entering))).square().mean()
        return loss * self.size if self.bug == "loss times the ranks" else loss

    def lower(self, y: Tensor) -> Tensor:
        """The row-parallel layer, whose bias is added after the sum."""
        if self.group is None:
            return self.down(y)
        match self.bug:
            case "bias on every rank":
                return summed(self.down(y), self.group)
            case "no all-reduce":
                total = F.linear(y, self.down.weight)
            case "two all-reduces":
                total = summed(summed(F.linear(y, self.down.weight), self.group), self.group)
            case "max for sum":
                total = Summed.apply(F.linear(y, self.down.weight), self.group, "max")
            case "detached sum":
                total = summed(F.linear(y, self.down.weight).detach(), self.group)
            case "sum in the backward, too":
                total = collectives.all_reduce(F.linear(y, self.down.weight), "sum", self.group)
            case _:
                total = summed(F.linear(y, self.down.weight), self.group)
        return total + self.down.bias


def cut_layers(model: TensorParallel, group: Any) -> None:
    model.up.weight, model.up.bias = own(model.up.weight, group), own(model.up.bias, group)
    model.down.weight = own(model.down.weight, group, 1)


def tensor_parallel(bug: str) -> Program:
    def shard(model: TensorParallel, x: Tensor) -> None:
        model.group = dist.group.WORLD
        cut_layers(model, model.group)

    return Program(TensorParallel(bug), (torch.randn(6, 8),), shard)


def on_a_grid(bug: str) -> Program:
    """Tensor parallel in one dimension of a mesh, and data parallel in the other."""

    def shard(model: TensorParallel, x: Tensor) -> Any:
        mesh = grid()
        cut_layers(model, mesh["tp"].get_group())
        model.group = mesh["dp" if model.bug == "group of another dimension" else "tp"].get_group()
        reduced_over = mesh["tp" if model.bug == "gradients over another dimension" else "dp"]
        reduce_gradients(model.parameters(), reduced_over.get_group(), reduced_over.size())
        return model, rows_of((x,), mesh.get_local_rank("dp"), mesh["dp"].size())

    return Program(TensorParallel(bug), (torch.randn(8, 8),), shard)


class Clipped(TensorParallel):
    """A step that runs backward itself and scales its gradients, so that their norm is small."""

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        loss.backward()
        scale = 0.1 / self.norm()
        for parameter in self.parameters():
            parameter.grad *= scale
        return loss.detach()

    def norm(self) -> Tensor:
        """The norm of all gradients: of those in parts, the squares of all ranks are summed."""
        in_parts = torch.stack([p.grad.square().sum() for p in (*self.up.parameters(), self.down.weight)])
        squares = in_parts.sum()
        if self.group is not None and self.bug != "clipped by the norm of a rank":
            dist.all_reduce(squares, group=self.group)
        replicated = (*self.first.parameters(), self.down.bias)
        return (squares + sum(p.grad.square().sum() for p in replicated)).sqrt()


def clipped(bug: str) -> Program:
    return Program(Clipped(bug), (torch.randn(6, 8),), tensor_parallel(bug).shard)


class Gathering(Sharded):
    """A column-parallel layer whose output is gathered; it has as many columns as there are rows."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).tanh()
        if self.group is not None:
            y = Columns.apply(y, self.group, self.bug)
        return self.last(y).square().mean()


def gathering(bug: str) -> Program:
    def shard(model: Gathering, x: Tensor) -> None:
        model.group = dist.group.WORLD
        model.layer.weight, model.layer.bias = own(model.layer.weight), own(model.layer.bias)

    return Program(Gathering(bug), (torch.randn(8, 8),), shard)


class SequenceParallel(Sharded):
    """Two layers on a sequence of which each rank has a part; its rows come first."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.positions, self.norm = nn.Embedding(8, 8), nn.RMSNorm(8)
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.gathered: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.gathered = None
        first = 0 if self.group is None or self.bug == "positions from 0" else dist.get_rank(self.group) * len(x)
        x = x + self.positions(torch.arange(first, first + len(x)))[:, None]
        for _ in range(2):
            x = x + self.scattered(self.down(torch.relu(self.up(self.whole_sequence(self.norm(x))))))
        return x.square().mean() / self.size

    def whole_sequence(self, x: Tensor) -> Tensor:
        if self.group is None:
            return x
        if self.gathered is None or self.bug != "gathered before":
            self.gathered = GatheredSequence.apply(x, self.group, self.bug)
        return self.gathered

    def scattered(self, x: Tensor) -> Tensor:
        return x if self.group is None else ScatteredSequence.apply(x, self.group)


def sequence_parallel(bug: str) -> Program:
    def shard(model: SequenceParallel, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        model.up.weight, model.down.weight = own(model.up.weight), own(model.down.weight, dim=1)
        reduce_gradients(model.positions.parameters(), model.group)
        if model.bug == "parts summed as replicas":
            reduce_gradients([model.up.weight, model.down.weight], model.group)
        if model.bug != "norm of a sequence":
            reduce_gradients(model.norm.parameters(), model.group)
        return model, own_rows((x,))

    return Program(SequenceParallel(bug), (torch.randn(8, 2, 8),), shard)


class Heads(Sharded):
    """Attention of four query heads on two pairs of keys and values, whose weights are in one matrix."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.qkv, self.out = nn.Linear(16, 32, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        rows = self.qkv.weight.shape[0]
        q, k, v = (
            part.view(batch, length, -1, 4).transpose(1, 2)
            for part in self.qkv(copied(x, self.group)).split([rows // 2, rows // 4, rows // 4], dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return summed(self.out(y.transpose(1, 2).reshape(batch, length, -1)), self.group).square().mean()


def heads(bug: str) -> Program:
    def shard(model: Heads, x: Tensor) -> None:
        model.group = dist.group.WORLD
        rank, size = dist.get_rank(), dist.get_world_size()
        q, k, v = (part.chunk(size) for part in model.qkv.weight.detach().split([16, 8, 8]))
        other = (rank + 1) % size if model.bug == "keys of another rank" else rank
        parts = nn.Parameter(torch.cat([q[rank], k[other], v[other]]))
        model.qkv.weight = own(model.qkv.weight) if model.bug == "matrix of all heads cut in two" else parts
        model.out.weight = own(model.out.weight, dim=1)

    return Program(Heads(bug), (torch.randn(2, 4, 16),), shard)


# ---- A vocabulary in parts


class Vocabulary(Sharded):
    """An embedding and a loss, whose words are shared among the ranks."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.embedding, self.output = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        x = self.embedded(tokens).tanh()
        logits = self.output(copied(x, self.group))
        return self.loss(logits, wanted)

    def own_words(self, words: Tensor, off: int = 0) -> tuple[Tensor, Tensor]:
        """The place of each word among this rank's, and which are other ranks'."""
        count = 16 // self.size
        first = 0 if self.group is None else dist.get_rank(self.group) * count
        others = (words < first + off) | (words >= first + count)
        return (words - first).masked_fill(others, 0), others

    def embedded(self, tokens: Tensor) -> Tensor:
        off = int(self.group is not None and self.bug == "first word masked")
        places, others = self.own_words(tokens, off)
        x = self.embedding(places)
        if self.bug != "masked words not zeroed":
            x = x.masked_fill(others[..., None], 0.0)
        return summed_in_place(x, self.group)

    def loss(self, logits: Tensor, wanted: Tensor) -> Tensor:
        largest = logits.detach().amax(-1, keepdim=True)
        if self.group is not None:
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        logits = logits - largest
        total = logits.exp().sum(-1)
        if self.bug != "sum of exponentials":
            total = summed_in_place(total, self.group)
        places, others = self.own_words(wanted)
        of_wanted = logits.gather(-1, places[..., None])[..., 0].masked_fill(others, 0.0)
        return (total.log() - summed_in_place(of_wanted, self.group)).mean()


def vocabulary(bug: str) -> Program:
    def shard(model: Vocabulary, tokens: Tensor, wanted: Tensor) -> None:
        model.group = dist.group.WORLD
        model.embedding.weight, model.output.weight = own(model.embedding.weight), own(model.output.weight)

    tokens = torch.arange(24).remainder(16)
    return Program(Vocabulary(bug), (tokens, tokens.roll(3)), shard)


# ---- Experts


class Experts(Sharded):
    """A mixture of two experts; with a group, each rank has one."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.gate, self.experts = nn.Linear(8, 2, bias=False), nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=2)
        results = self.computed(x[order], counts)
        if self.group is None or self.bug != "tokens not put back":
            results = torch.empty_like(results).index_copy(0, order, results)
        return (results * weight[:, None]).square().mean()

    def computed(self, tokens: Tensor, counts: Tensor) -> Tensor:
        """What the experts compute of tokens in the order of their experts."""
        if self.group is None:
            parts = tokens.split(counts.tolist())
            return torch.cat([part @ expert for part, expert in zip(parts, self.experts, strict=True)])
        if self.bug == "split sizes in another order":
            counts = counts.flip(0)
        outgoing = counts.tolist()
        incoming = collectives.all_to_all_single(counts, None, None, self.group).tolist()
        arrived = collectives.all_to_all_single_autograd(tokens, incoming, outgoing, self.group)
        computed = arrived @ self.experts[0]
        return collectives.all_to_all_single_autograd(computed, outgoing, incoming, self.group)


def experts(bug: str) -> Program:
    def shard(model: Experts, x: Tensor) -> Any:
        rank, size = dist.get_rank(), dist.get_world_size()
        model.group = dist.group.WORLD
        place = size - 1 - rank if model.bug == "expert of another rank" else rank
        model.experts = nn.Parameter(model.experts.detach()[place : place + 1].clone())
        if model.bug != "expert's gradient not averaged":
            model.experts.register_hook(lambda gradient: gradient / size)
        reduce_gradients(model.gate.parameters(), by=size)
        return model, own_rows((x,))

    return Program(Experts(bug), (torch.randn(12, 8),), shard)


# ---- Data parallel


class Replicated(Sharded):
    """A model that each rank has whole, with a loss that is a mean or, with `total`, a sum."""

    def __init__(self, bug: str, total: bool = False) -> None:
        super().__init__(bug)
        self.body: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head, self.total = nn.Linear(8, 8), total

    def forward(self, x: Tensor) -> Tensor:
        squares = self.head(self.body(x)).square()
        loss = squares.sum() if self.total else squares.mean()
        if self.bug == "averaged twice":
            return loss / self.size
        return loss * self.size if self.total and self.bug != "mean for sum" else loss


def by_hand(bug: str) -> Program:
    """Gradients are reduced by hooks."""

    def shard(model: Replicated, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        weights = [parameter for name, parameter in model.named_parameters() if name.endswith("weight")]
        left_out = model.bug == "biases not reduced"
        reduce_gradients(
            weights if left_out else model.parameters(), by=1 if model.bug == "sum for mean" else model.size
        )
        return model, own_rows((x,))

    return Program(Replicated(bug), (torch.randn(8, 8),), shard)


def ddp(bug: str, total: bool = False) -> Program:
    def shard(model: Replicated, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        if model.bug == "parameter beside DDP":
            model.body = DistributedDataParallel(model.body)
            return model, own_rows((x,))
        wrapped = DistributedDataParallel(model)
        if model.bug == "reduced by DDP and by hand":
            reduce_gradients(model.head.parameters())
        return wrapped, rows_of((x,), 0, model.size) if model.bug == "the same rows" else own_rows((x,))

    return Program(Replicated(bug, total), (torch.randn(8, 8),), shard)


class Accumulating(Sharded):
    """Three micro-batches of a third of the rows; the gradients of all are reduced after the last."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.model: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        *first, last = x.chunk(3)
        by = 1 if self.group is not None and self.bug == "not divided by micro-batches" else 3
        with self.without_sync():
            for part in first:
                (self.model(part).square().mean() / by).backward()
        with self.without_sync() if self.bug == "no micro-batch is reduced" else nullcontext():
            loss = self.model(last).square().mean() / by
            loss.backward()
        return loss.detach()

    def without_sync(self) -> Any:
        return self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext()


def accumulating(bug: str) -> Program:
    def shard(model: Accumulating, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        model.model = DistributedDataParallel(model.model)
        return model, own_rows((x,))

    return Program(Accumulating(bug), (torch.randn(12, 8),), shard)


class ClippedReplicated(Replicated):
    """A step that runs backward, reduces its gradients and clips them itself."""

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        loss.backward()
        if self.bug == "clipped before the reduction":
            nn.utils.clip_grad_norm_(self.parameters(), 0.1)
        for parameter in self.parameters() if self.group is not None else ():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad /= self.size
        if self.group is None or self.bug != "clipped before the reduction":
            nn.utils.clip_grad_norm_(self.parameters(), 0.1)
        return loss.detach()


def clipped_replicated(bug: str) -> Program:
    def shard(model: ClippedReplicated, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        return model, own_rows((x,))

    return Program(ClippedReplicated(bug), (torch.randn(8, 8),), shard)


class Ignoring(Sharded):
    """A loss that ignores some words, of which ranks have different numbers."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.embedding, self.output = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        total = F.cross_entropy(self.output(self.embedding(tokens)), wanted, ignore_index=-1, reduction="sum")
        count = (wanted >= 0).sum()
        if self.group is not None and self.bug != "mean of each rank's words":
            count = collectives.all_reduce(count, "sum", self.group) / self.size
        return total / count


def ignoring(bug: str) -> Program:
    def shard(model: Ignoring, tokens: Tensor, wanted: Tensor) -> Any:
        model.group = dist.group.WORLD
        return DistributedDataParallel(model), own_rows((tokens, wanted))

    tokens = torch.randint(0, 16, (12,))
    return Program(Ignoring(bug), (tokens, tokens.roll(1).masked_fill(torch.arange(12) < 4, -1)), shard)


class Normalised(Sharded):
    """A layer whose output is divided by its deviation over all rows."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        moments = torch.stack([x.mean(0), x.square().mean(0)])
        if self.group is not None and self.bug != "statistics of a rank's rows":
            moments = collectives.all_reduce(moments, "sum", self.group) / self.size
        mean, square = moments.unbind()
        x = (x - mean) / (square - mean.square() + 1e-3).sqrt()
        return self.last(x.tanh()).square().mean()


def normalised(bug: str) -> Program:
    def shard(model: Normalised, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        return DistributedDataParallel(model), own_rows((x,))

    return Program(Normalised(bug), (torch.randn(8, 8),), shard)


# ---- FSDP2 and DTensor


def fsdp(bug: str) -> Program:
    def shard(model: Replicated, x: Tensor) -> Any:
        model.group = dist.group.WORLD
        mesh = init_device_mesh("cpu", (model.size,), mesh_dim_names=("dp",))
        ignored = {model.head.bias} if model.bug == "parameter that FSDP ignores" else None
        fsdp_model = fully_shard(model, mesh=mesh, ignored_params=ignored)
        if model.bug == "divided by 1":
            fsdp_model.set_gradient_divide_factor(1.0)
            fsdp_model.set_force_sum_reduction_for_comms(True)
        return fsdp_model, own_rows((x,))

    return Program(Replicated(bug), (torch.randn(8, 8),), shard)


def hybrid(bug: str) -> Program:
    """Parameters are sharded in one dimension of a mesh, and replicated in the other."""

    def shard(model: Replicated, x: Tensor) -> Any:
        mesh = grid("replicate", "shard")
        fully_shard(model, mesh=mesh["shard"] if model.bug == "replicas not reduced" else mesh)
        return model, own_rows((x,))

    return Program(Replicated(bug), (torch.randn(8, 8),), shard)


def norm_out_of_the_plan(bug: str) -> Program:
    """Sequence parallel by `parallelize_module`."""

    def shard(model: nn.Module, tokens: Tensor, wanted: Tensor) -> None:
        plan = plan_of_sequence(1)
        if bug:
            del plan["norm"]
        parallelize_module(model, grid()["tp"], plan)

    tokens = torch.randint(0, 32, (2, 4))
    return Program(Llama(layers=1), (tokens, tokens.roll(1)), shard)


class Unwrapped(Sharded):
    """An MLP that takes its input out of a DTensor before its column-parallel layer."""

    def __init__(self, bug: str) -> None:
        super().__init__(bug)
        self.first, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8, bias=False)
        self.mesh: Any = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.mesh is None:
            return self.down(torch.relu(self.up(x))).square().mean()
        gradient = None if self.bug == "to_local without grad_placements" else [Partial()]
        x = DTensor.from_local(x, self.mesh, [Replicate()]).to_local(grad_placements=gradient)
        y = F.linear(torch.relu(F.linear(x, self.up.weight, self.up.bias)), self.down.weight)
        placement = Replicate() if self.bug == "a partial sum as replicated" else Partial()
        total = DTensor.from_local(y, self.mesh, [placement]).redistribute(placements=[Replicate()])
        return total.to_local().square().mean()


def unwrapped(bug: str) -> Program:
    def shard(model: Unwrapped, x: Tensor) -> None:
        model.mesh = grid()["tp"]
        model.up.weight, model.up.bias = own(model.up.weight), own(model.up.bias)
        model.down.weight = own(model.down.weight, dim=1)

    return Program(Unwrapped(bug), (torch.randn(6, 8),), shard)


def same_seed(make: Callable[[str], Program], bug: str) -> Program:
    """Make a program of the same parameters and inputs each time."""
    torch.manual_seed(0)
    return make(bug)


def row(name: str, make: Callable[[str], Program], wrong: str, cause: str = "", ranks: int = 2) -> Bug:
    return Bug(name, wrong, partial(same_seed, make), cause, ranks)


SUM, AVERAGE = "lacks a sum over world", "lacks an average over world"
TWICE = "is 2 times the whole's: summed over world once too often"

BUGS = (
    row("no all-reduce", tensor_parallel, "The output of a row-parallel layer is not summed."),
    row("two all-reduces", tensor_parallel, "The output of a row-parallel layer is summed twice."),
    row("max for sum", tensor_parallel, "The output of a row-parallel layer is reduced with max."),
    row("detached sum", tensor_parallel, "No gradient flows through the sum of a detached tensor.", "is 0"),
    row("sum in the backward, too", tensor_parallel, "The gradient of a replicated sum is summed as well.", TWICE),
    row("bias on every rank", tensor_parallel, "Each rank adds the bias of a row-parallel layer before the sum."),
    row("loss times the ranks", tensor_parallel, "The loss is multiplied by the number of ranks.", TWICE),
    row(
        "input of a column-parallel layer",
        on_a_grid,
        "The gradient of a replicated input is not summed.",
        "lacks a sum over tp",
        ranks=4,
    ),
    row("group of another dimension", on_a_grid, "Tensor-parallel sums are over the data-parallel group.", ranks=4),
    row(
        "gradients over another dimension",
        on_a_grid,
        "Gradients are averaged over the tensor-parallel group.",
        "lacks an average over dp",
        ranks=4,
    ),
    row("clipped by the norm of a rank", clipped, "Gradients are clipped by the norm of a rank's parts."),
    row("gather along the wrong axis", gathering, "Gathered rows are viewed as columns; the shape is the same."),
    row("norm of a sequence", sequence_parallel, "The gradient of a norm is of a part of the sequence.", SUM),
    row(
        "parts summed as replicas",
        sequence_parallel,
        "The gradients of parts of a matrix are summed as those of replicated weights.",
        "is summed over world, whose ranks hold different parts of it",
    ),
    row("own part of a gradient", sequence_parallel, "A gather's backward keeps a part, and does not sum first."),
    row("gathered before", sequence_parallel, "The second layer takes the tensor that was gathered for the first."),
    row("positions from 0", sequence_parallel, "Each rank counts the positions of its part from 0."),
    row("keys of another rank", heads, "A rank has the keys and values that belong to another rank's queries."),
    row("matrix of all heads cut in two", heads, "The matrix of q, k and v is cut as if it were one."),
    row("masked words not zeroed", vocabulary, "An embedding in parts does not zero the rows of other ranks' words."),
    row("first word masked", vocabulary, "The mask of an embedding in parts is off by one."),
    row("sum of exponentials", vocabulary, "A loss on logits in parts does not sum the exponentials of all ranks."),
    row("split sizes in another order", experts, "An all-to-all sends the tokens of one expert to another."),
    row("tokens not put back", experts, "Tokens stay in the order of their experts."),
    row("expert of another rank", experts, "Each rank has an expert whose tokens are sent to another rank."),
    row("expert's gradient not averaged", experts, "An expert has the sum of the gradients of all ranks.", TWICE),
    row("mean for sum", partial(ddp, total=True), "DDP averages the gradients of a loss that is a sum.", "sum"),
    row("sum for mean", by_hand, "The gradients of a loss that is a mean are summed, and not divided.", TWICE),
    row("biases not reduced", by_hand, "The gradients of weights are reduced, and those of biases are not.", AVERAGE),
    row("averaged twice", ddp, "The loss is divided by the number of ranks, and DDP averages.", "sum"),
    row("reduced by DDP and by hand", ddp, "DDP reduces the gradients of a layer, which are then summed.", TWICE),
    row("the same rows", ddp, "Every rank takes the same rows."),
    row("parameter beside DDP", ddp, "A layer is outside the module that DDP wraps.", AVERAGE),
    row(
        "not divided by micro-batches",
        accumulating,
        "The gradients of micro-batches are added, and not divided.",
        "is 3 times the whole's",
    ),
    row("no micro-batch is reduced", accumulating, "All micro-batches are under no_sync.", AVERAGE),
    row("clipped before the reduction", clipped_replicated, "Each rank clips its own gradients before the reduction."),
    row("mean of each rank's words", ignoring, "The means of ranks with different numbers of words are averaged."),
    row("statistics of a rank's rows", normalised, "A batch norm takes the statistics of a rank's rows."),
    row("parameter that FSDP ignores", fsdp, "FSDP ignores a parameter, and nothing else reduces it.", AVERAGE),
    row("divided by 1", fsdp, "FSDP sums the gradients of a loss that is a mean.", TWICE),
    row(
        "replicas not reduced",
        hybrid,
        "Gradients are reduced among shards, and not among replicas.",
        "lacks an average over replicate",
        ranks=4,
    ),
    row(
        "norm out of the plan", norm_out_of_the_plan, "A norm of a sequence in parts is not in the plan.", "lacks a sum"
    ),
    row(
        "to_local without grad_placements",
        unwrapped,
        "The gradient of a local tensor is taken as replicated.",
        "lacks a sum",
    ),
    row("a partial sum as replicated", unwrapped, "The terms of a sum are declared to be replicated."),
)
"""Every bug."""
