"""The models of torchtitan, sharded by torchtitan's own code, and whether their gradients are the whole model's.

    pip install git+https://github.com/pytorch/torchtitan@v0.2.2
    python benchmarks/torchtitan_ranks.py [CASE ...]

Each case is a small model with torchtitan's own plan for it: `parallelize_llama`, `parallelize_deepseekv3`,
`parallelize_qwen3`. The loss is the trainer's: the sum over a rank's tokens, divided by the tokens of all ranks.
Printed are the verdicts of all ranks together and of each alone (`undifferentiable` where the step runs its backward
itself), whether the gradients are the whole's, the first gradient with a known cause that is not, and the seconds. What
a case should be is known: some of torchtitan's plans are wrong in this version. A case that is not what it should be
ends the benchmark with 1.

On a CPU three things are replaced that torchtitan has for GPUs alone: the kernel that numbers the tokens of each
expert, by torchtitan's own for CPUs; `torch.histc` of integers; and the device of its meshes. Qwen3 in tensor parallel
and context parallel are left out: their attention is on DTensors, for which PyTorch has no kernel on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import loss_parallel

import backprint as bp

WORDS, LENGTH, ROWS = 64, 16, 4
"""The size of the vocabulary, and of the batch."""

EQUAL, WRONG = "equal to the whole", "not equal to the whole"

ROUTER = "the router's gradient lacks a sum: torchtitan's issue 2387, for which it has pull request 2416"

AVERAGED = "DDP averages gradients whose loss is divided by the tokens of all ranks already"


class Case(NamedTuple):
    """A model, how it is sharded, and what its gradients should be."""

    model: str
    dims: dict[str, int]
    loss_parallel: bool = False
    checkpoints: str = "none"
    wrong: str = ""


CASES = {
    "llama3 tp": Case("llama3", {"tp": 2}),
    "llama3 loss parallel": Case("llama3", {"tp": 2}, loss_parallel=True),
    "llama3 fsdp": Case("llama3", {"dp_shard": 2}),
    "llama3 fsdp, full checkpoints": Case("llama3", {"dp_shard": 2}, checkpoints="full"),
    "llama3 fsdp, selective checkpoints": Case("llama3", {"dp_shard": 2}, checkpoints="selective"),
    "llama3 fsdp x tp": Case("llama3", {"dp_shard": 2, "tp": 2}),
    "llama3 hsdp": Case("llama3", {"dp_replicate": 2, "dp_shard": 2}),
    "llama3 ddp": Case("llama3", {"dp_replicate": 2}, wrong=AVERAGED),
    "qwen3 fsdp": Case("qwen3", {"dp_shard": 2}),
    "deepseek_v3 fsdp": Case("deepseek_v3", {"dp_shard": 2}),
    "deepseek_v3 ep": Case("deepseek_v3", {"dp_shard": 2, "ep": 2}),
    "deepseek_v3 tp": Case("deepseek_v3", {"tp": 2}, wrong=ROUTER),
    "deepseek_v3 ep, tokens split over tp": Case("deepseek_v3", {"dp_shard": 2, "tp": 2, "ep": 2}, wrong=ROUTER),
    "deepseek_v3 ep x tp of experts": Case("deepseek_v3", {"dp_shard": 2, "tp": 2, "ep": 2, "etp": 2}, wrong=ROUTER),
}


class Step(nn.Module):
    """A model with its loss, as the trainer divides it."""

    def __init__(self, model: nn.Module, parallel: bool) -> None:
        super().__init__()
        self.model, self.parallel = model, parallel

    def forward(self, tokens: Tensor, wanted: Tensor) -> Tensor:
        is_sharded = self.parallel and dist.get_world_size() > 1
        with loss_parallel() if is_sharded else contextlib.nullcontext():
            logits = self.model(tokens).flatten(0, 1).float()
            loss = F.cross_entropy(logits, wanted.flatten(0, 1), reduction="sum") / (ROWS * LENGTH)
            if not self.parallel:
                return loss
            loss.backward()  # of a sharded loss, inside, too
            return loss.detach()


def on_a_cpu() -> None:
    """Replace what torchtitan has for GPUs alone."""
    tools, dims, kernels = (
        importlib.import_module(f"torchtitan.{name}")
        for name in ("tools.utils", "distributed.parallel_dims", "models.moe.kernels")
    )
    tools.device_type = dims.device_type = "cpu"
    tools.device_module = torch.cpu
    kernels.fill_indices_wrapper = lambda *args: kernels.fill_indices_cpu(*args[:6])
    counted = torch.histc
    torch.histc = lambda x, bins=100, min=0, max=0: counted(x.float(), bins=bins, min=min, max=max).to(x.dtype)
    logging.getLogger().setLevel(logging.ERROR)


def part(path: str, name: str) -> Any:
    return getattr(importlib.import_module(f"torchtitan.{path}"), name)


def small_model(name: str) -> nn.Module:
    """Return a small model of torchtitan's with numbers of its own initialization."""
    torch.manual_seed(0)
    few = dict(dim=32, n_layers=2, n_heads=4, vocab_size=WORDS, max_seq_len=LENGTH)
    match name:
        case "llama3":
            model = part("models.llama3.model.model", "Transformer")(
                part("models.llama3.model.args", "TransformerModelArgs")(**few)
            )
        case "qwen3":
            model = part("models.qwen3.model.model", "Qwen3Model")(
                part("models.qwen3.model.args", "Qwen3ModelArgs")(**few, n_kv_heads=2, head_dim=8, hidden_dim=64)
            )
        case _:
            experts = part("models.moe.moe", "MoEArgs")(
                num_experts=4,
                top_k=2,
                score_func="softmax",
                score_before_experts=False,
                use_grouped_mm=False,
            )
            args = part("models.deepseek_v3.model.args", "DeepSeekV3ModelArgs")(
                **few,
                inter_dim=32,
                moe_inter_dim=16,
                moe_args=experts,
                kv_lora_rank=16,
                qk_nope_head_dim=16,
                qk_rope_head_dim=8,
                v_head_dim=16,
                original_seq_len=LENGTH,
            )
            args.moe_impl = "standard"
            model = part("models.deepseek_v3.model.model", "DeepSeekV3Model")(args)
    with torch.no_grad():
        model.init_weights(buffer_device=torch.device("cpu"))
    return model


PLANS = {"llama3": "parallelize_llama", "qwen3": "parallelize_qwen3", "deepseek_v3": "parallelize_deepseekv3"}


def sharding(case: Case) -> Callable[..., Any]:
    """Return a function that shards a step by torchtitan's own plan, with the rows of a rank."""

    def shard(step: Step, tokens: Tensor, wanted: Tensor) -> tuple[Step, tuple[Tensor, Tensor]]:
        degrees = dict(dp_replicate=1, dp_shard=1, cp=1, tp=1, pp=1, ep=1, etp=1) | case.dims
        dims = part("distributed", "ParallelDims")(**degrees, world_size=dist.get_world_size())
        config = part("config", "JobConfig")()
        config.training.seq_len, config.training.mixed_precision_param = LENGTH, "float32"
        config.compile.enable = False
        config.activation_checkpoint.mode = case.checkpoints
        config.parallelism.disable_loss_parallel = not step.parallel
        dims.build_mesh()
        part(f"models.{case.model}.infra.parallelize", PLANS[case.model])(step.model, dims, config)
        rows = degrees["dp_replicate"] * degrees["dp_shard"]
        own = dims._meshes["batch"].get_local_rank()
        return step, (tokens.chunk(rows)[own], wanted.chunk(rows)[own])

    return shard


def ranks_of(case: Case) -> int:
    degrees = case.dims
    return degrees.get("dp_replicate", 1) * degrees.get("dp_shard", 1) * degrees.get("tp", 1)


def measured(name: str, case: Case) -> bool:
    """Print a row; return whether the case is what it should be."""
    began = time.monotonic()
    step = Step(small_model(case.model), case.loss_parallel)
    tokens = torch.randint(0, WORDS, (ROWS, LENGTH + 1))
    inputs = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    world = bp.capture(step, *inputs, world=ranks_of(case), shard=sharding(case))
    together = {verdict.verdict for verdict in world.verify()}
    alone = {verdict.verdict for capture in world.ranks for verdict in capture.verify()}
    whole = world.against_whole()
    seconds = time.monotonic() - began
    words = " ".join(sorted(together)), " ".join(sorted(alone))
    print(
        f"{name:38s} {len(world.ranks):5d} {words[0]:8s} {words[1]:16s} {whole.verdict:23s} {seconds:5.1f} s",
        flush=True,
    )
    if case.wrong:
        known = next((fault for fault in whole.faults if fault.cause), None)
        cause = f"{known.name}'s gradient {known.cause}" if known else "no cause is known"
        print(f"    {cause}\n    ({case.wrong})")
    is_proved = together == {"bitwise"} and alone == {"undifferentiable" if case.loss_parallel else "bitwise"}
    return is_proved and whole.verdict == (WRONG if case.wrong else EQUAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], metavar="CASE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    on_a_cpu()
    print(f"{'case':38s} ranks together alone            the gradients are")
    wrong = [name for name in options.cases or CASES if not measured(name, CASES[name])]
    print(f"{len(options.cases or CASES) - len(wrong)} of {len(options.cases or CASES)} as they should be")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
