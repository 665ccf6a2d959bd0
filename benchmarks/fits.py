"""`backprint fits`, held against the storages that live while PyTorch runs the same step in eager mode.

Each of 41 programs is captured, or recorded with its optimizer, and judged by `backprint.tools.cost.fits`. Then the
program runs alone under a mode that follows every storage, from the operator that makes it until PyTorch frees it. What
lives at the peak is compared: parameters, buffers, inputs, gradients, saved values, temporaries. What an allocator or a
kernel takes for itself counts on neither side.

    python benchmarks/fits.py [NAME...]

Bars: 38 of 40 programs within 3%, and none for which `fits` says less than 97% of what lived.
"""

from __future__ import annotations

import gc
import itertools
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import Figure, keep
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import backprint as bp
from backprint.tools.cost.fits import needs_of

Call = tuple[Callable[..., Any], tuple[Any, ...]]


# ------------------------------------------------------------------ what lives


class Living(TorchDispatchMode):
    """Follows the storages that live. `most` is the most bytes of them so far."""

    def __init__(self, before: set[int]) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.followers: dict[int, Any] = {}
        self.now = self.most = 0
        for tensor in tensors_alive():
            if id(tensor) not in before:
                self.follow(tensor)
        self.most = self.now

    def follow(self, tensor: Tensor) -> None:
        """Follow a tensor's storage until it is freed."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.sizes:
            return
        self.sizes[key] = size
        self.now += size
        self.followers[key] = weakref.ref(storage, lambda _: self.freed(key))

    def freed(self, key: int) -> None:
        """Count a storage no more."""
        self.now -= self.sizes.pop(key)
        del self.followers[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor):
                self.follow(leaf)
        del leaf
        self.most = max(self.most, self.now)
        return result


def tensors_alive() -> Iterator[Tensor]:
    """Yield the tensors that Python holds."""
    return (item for item in gc.get_objects() if issubclass(type(item), Tensor))


def most_alive(make_step: Callable[[], Callable[[], Any]]) -> int:
    """Return the most bytes that live while a step runs that a function makes."""
    gc.collect()
    known = list(tensors_alive())
    torch.manual_seed(0)
    step = make_step()
    with Living({id(tensor) for tensor in known}) as living:
        step()
    return living.most


# ------------------------------------------------------------------ models


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width: int, heads: int = 4, dropout: float = 0.0, act: Callable[..., Any] = F.gelu) -> None:
        super().__init__()
        self.heads, self.dropout, self.act = heads, dropout, act
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + F.dropout(self.out(h), self.dropout)
        return x + F.dropout(self.down(self.act(self.up(self.norm2(x)))), self.dropout)


class GPT(nn.Module):
    """A decoder that returns its loss."""

    def __init__(self, how: str = "", depth: int = 4, width: int = 64, words: int = 256, **options: Any) -> None:
        super().__init__()
        self.how = how
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, **options) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, index: Tensor) -> Tensor:
        x = self.words(index) + self.places(torch.arange(index.shape[1], device=index.device))
        for number, block in enumerate(self.blocks):
            if self.how == "half" and number % 2:
                x = block(x)
            elif self.how == "reentrant":
                x = checkpoint(block, x, use_reentrant=True)
            elif self.how in ("all", "half"):
                x = checkpoint(block, x, use_reentrant=False)
            elif self.how == "selective":
                contexts = partial(create_selective_checkpoint_contexts, products_saved)
                x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            else:
                x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), index.flatten())


PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def products_saved(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """The policy of a selective checkpoint that saves products alone."""
    return CheckpointPolicy.MUST_SAVE if operator in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


def gpt(how: str = "", **options: Any) -> Call:
    return GPT(how, **options), (torch.randint(256, (4, 64)),)


class Broken(nn.Module):
    """Three blocks with graph breaks between them."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[0](x)
        torch._dynamo.graph_break()
        x = self.blocks[1](x)
        torch._dynamo.graph_break()
        x = self.blocks[2](x)
        return x.square().mean()


class Loss(nn.Module):
    """A model, and the mean of the square of its output."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.model = layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def forward(self, *args: Tensor) -> Tensor:
        out = self.model(*args)
        return (out[0] if isinstance(out, tuple) else out).square().mean()


def mlp(act: Callable[[], nn.Module], *more: Callable[[], nn.Module]) -> Call:
    sizes = (32, 256, 256, 128, 8)
    layers: list[nn.Module] = []
    for here, there in itertools.pairwise(sizes):
        layers += [nn.Linear(here, there), act(), *(make() for make in more)]
    return Loss(*layers), (torch.randn(512, 32),)


def convolutions(inplace: bool = False) -> Call:
    layers: list[nn.Module] = []
    for here, there in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(here, there, 3, padding=1), nn.BatchNorm2d(there), nn.ReLU(inplace), nn.MaxPool2d(2)]
    return Loss(*layers, nn.Flatten(), nn.Linear(32 * 16, 10)), (torch.randn(8, 3, 32, 32),)


class Residual(nn.Module):
    """Two convolutions beside an identity, with updates in place as in torchvision's ResNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm(self.first(x)))
        out = self.norm2(self.second(out))
        out += x
        return self.relu(out)


class UNet(nn.Module):
    """Down, up, and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.up, self.last = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Conv2d(32, 3, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.silu(self.norm(self.first(x)))
        return self.last(torch.cat([F.silu(self.up(F.silu(self.down(skip)))), skip], 1))


class Squared(torch.autograd.Function):
    """The square of ReLU, which saves its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0).square()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        positive = x.clamp(min=0)
        return grad * 2 * positive


class OwnFunction(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Squared.apply(x)


class Functions(nn.Module):
    """A function of a linear layer's wide output."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(64, 512), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x)).mean()


def of(function: Callable[[Tensor], Tensor]) -> Call:
    return Functions(function), (torch.randn(512, 64),)


def rotated(h: Tensor) -> Tensor:
    """Rotary positions: halves, negated and put together."""
    left, right = h.chunk(2, -1)
    angle = torch.linspace(0, 1, h.shape[-1])
    return h * angle.cos() + torch.cat([-right, left], -1) * angle.sin()


def written(h: Tensor) -> Tensor:
    """Updates of views in place."""
    h = h.tanh().clone()
    h[:, :256] *= 2
    h[:, 256:].add_(h[:, :256])
    return h.sigmoid_()


def masked(h: Tensor) -> Tensor:
    scores = (h.view(64, 8, 512) @ h.view(64, 8, 512).transpose(1, 2)).masked_fill(torch.eye(8, dtype=torch.bool), -1e9)
    return torch.where(h > 0, h, h.exp()).view(64, 8, 512).transpose(1, 2) @ scores.softmax(-1)


class Recurrent(nn.Module):
    """A cell in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(32, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], 64)
        states = []
        for row in x:
            h = self.cell(row, h)
            states.append(h)
        return torch.stack(states)


class Autocast(nn.Module):
    """A model in bfloat16 where autocast says so."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(*args)


def autocast(call: Call) -> Call:
    return Autocast(call[0]), call[1]  # type: ignore[arg-type]


def checkpointed_mlp() -> Call:
    (model, args) = mlp(nn.Tanh)
    layers = list(model.model)  # type: ignore[attr-defined]
    return Loss(Checkpointed(nn.Sequential(*layers[:4])), *layers[4:]), args


class Checkpointed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.model, x, use_reentrant=False)


class Bag(nn.Module):
    """Embeddings of words and of bags of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bags, self.head = nn.Embedding(2000, 64), nn.EmbeddingBag(500, 64), nn.Linear(64, 2000)

    def forward(self, words: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.words(words).mean(1) + self.bags(words % 500)), words[:, 0])


# ------------------------------------------------------------------ whole steps, as a script takes them


def step_of(
    call: Call, optimizer: Callable[..., Any] | None, scaled: bool = False, times: int = 1, clip: bool = False
) -> Callable[[], Any]:
    """Return a training step: gradients of `times` calls, and an optimizer's update."""
    model, args = call
    assert isinstance(model, nn.Module)
    update = optimizer(model.parameters()) if optimizer is not None else None
    scale = torch.tensor(1024.0)

    def step() -> None:
        model.zero_grad()
        for _ in range(times):
            loss = model(*args) / times
            (loss * scale if scaled else loss).backward()
        if scaled:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if update is not None:
            update.step()

    return step


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW

CALLS: dict[str, tuple[str, Callable[[], Call]]] = {
    "mlp_relu": ("auto", partial(mlp, nn.ReLU)),
    "mlp_gelu_dropout": ("auto", partial(mlp, nn.GELU, partial(nn.Dropout, 0.1))),
    "mlp_silu_norm": ("auto", partial(mlp, nn.SiLU, nn.Identity)),
    "mlp_checkpointed": ("auto", checkpointed_mlp),
    "mlp_own_function": ("auto", partial(mlp, OwnFunction)),
    "convolutions": ("auto", convolutions),
    "convolutions_in_place": ("auto", partial(convolutions, True)),
    "resnet": ("auto", lambda: (Loss(nn.Conv2d(3, 16, 3), Residual(16), Residual(16)), (torch.randn(4, 3, 32, 32),))),
    "unet": ("auto", lambda: (Loss(UNet()), (torch.randn(4, 3, 32, 32),))),
    "gpt": ("auto", gpt),
    "gpt_dropout": ("auto", partial(gpt, dropout=0.1)),
    "gpt_autocast": ("auto", lambda: autocast(gpt())),
    "gpt_reentrant": ("auto", partial(gpt, "reentrant")),
    "gpt_checkpoints": ("auto", partial(gpt, "all")),
    "gpt_half": ("auto", partial(gpt, "half")),
    "gpt_selective": ("auto", partial(gpt, "selective")),
    "gpt_own_activation": ("auto", partial(gpt, act=lambda h: h * (1.702 * h).sigmoid())),
    "cos": ("auto", lambda: of(torch.cos)),
    "tan_log": ("auto", lambda: of(lambda h: h.tan().square().log1p())),
    "rotary": ("auto", lambda: of(rotated)),
    "views_in_place": ("auto", lambda: of(written)),
    "masked": ("auto", lambda: of(masked)),
    "normalized": ("auto", lambda: of(lambda h: (h - h.mean(-1, keepdim=True)) / (h.std(-1, keepdim=True) + 1e-5))),
    "gru_cell": ("auto", lambda: (Loss(Recurrent()), (torch.randn(16, 32, 32),))),
    "lstm": ("auto", lambda: (Loss(nn.LSTM(32, 64, 2)), (torch.randn(16, 32, 32),))),
    "embeddings": ("auto", lambda: (Bag(), (torch.randint(2000, (128, 8)),))),
    "blocks_with_breaks": ("dynamo", lambda: (Broken(*(Block(64) for _ in range(3))), (torch.randn(4, 64, 64),))),
    "layers_with_breaks": (
        "dynamo",
        lambda: (
            Broken(nn.Linear(64, 256), nn.Sequential(nn.GELU(), nn.Linear(256, 64)), nn.Tanh()),
            (torch.randn(512, 64),),
        ),
    ),
    "gpt_dynamo": ("dynamo", gpt),
    "gpt_aot": ("aot", gpt),
    "gpt_fake": ("fake", gpt),
    "gpt_fake_checkpoints": ("fake", partial(gpt, "all")),
    "convolutions_fake": ("fake", convolutions),
}
STEPS: dict[str, Callable[[], Callable[[], Any]]] = {
    "sgd": lambda: step_of(mlp(nn.ReLU), partial(SGD, lr=0.1, momentum=0.9)),
    "adam_loop": lambda: step_of(mlp(nn.GELU), partial(ADAM, foreach=False)),
    "adam_foreach": lambda: step_of(gpt(), partial(ADAM, foreach=True)),
    "adam_fused": lambda: step_of(gpt(), partial(ADAM, fused=True)),
    "adamw_fused_wide": lambda: step_of(gpt(width=128, depth=2), partial(ADAMW, fused=True)),
    "adamw_checkpoints": lambda: step_of(gpt("all"), partial(ADAMW, foreach=True), clip=True),
    "autocast_scaled": lambda: step_of(autocast(gpt()), partial(SGD, lr=0.1), scaled=True),
    "accumulated": lambda: step_of(convolutions(), partial(ADAM, fused=True), times=2),
}


# ------------------------------------------------------------------ the two sides


def said_of_call(name: str) -> tuple[Any, int]:
    """Return what `fits` says of a call, and what lives in eager mode."""
    engine, make = CALLS[name]
    torch.manual_seed(0)
    target, args = make()
    capture = bp.capture(target, *args, fake=True) if engine == "fake" else bp.capture(target, *args, engine=engine)
    with_gradient = {
        port.name
        for pair in capture.pairs
        if pair.backward is not None
        for port in pair.backward.outputs
        if port.role == "gradient"
    }
    said = needs_of(capture)
    del capture, target, args

    def make_step() -> Callable[[], Any]:
        target, args = make()
        for number, arg in enumerate(args):
            if isinstance(arg, Tensor) and arg.is_floating_point() and with_gradient & {"x", "input", f"args.{number}"}:
                arg.requires_grad_()
        return lambda: target(*args).backward()

    return said, most_alive(make_step)


def said_of_step(name: str) -> tuple[Any, int]:
    """Return what `fits` says of a recorded step, and what lives in eager mode."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        here = str(Path(__file__).parent)
        script.write_text(
            f"import sys\nsys.path.insert(0, {here!r})\nimport torch\ntorch.manual_seed(0)\nfrom fits import STEPS\n"
            f"step = STEPS[{name!r}]()\nfor _ in range(3):\n    step()\n"
        )
        (capture,) = bp.record(script)
        said = needs_of(capture)
        del capture

    def make_step() -> Callable[[], Any]:
        step = STEPS[name]()
        step()
        return step

    return said, most_alive(make_step)


def main(names: list[str]) -> int:
    """Print a row for each program; return 1 if a bar is missed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ratios = []
    names = names or [*CALLS, *STEPS]
    print(f"{'program':24} {'lived':>12} {'eager':>7} {'graph':>7}")
    for name in names:
        said, lived = (said_of_call if name in CALLS else said_of_step)(name)
        ratios.append(said.eager.bytes / lived)
        print(f"{name:24} {lived:12,} {ratios[-1]:7.3f} {said.graph.bytes / lived:7.3f}", flush=True)
    close = sum(abs(ratio - 1) <= 0.03 for ratio in ratios)
    figures = [
        Figure(f"programs within 3% of what lived, of {len(names)}", close, at_least=round(len(names) * 38 / 40)),
        Figure("the least said, of what lived", min(ratios), "×", at_least=0.97),
        Figure("the most said, of what lived", max(ratios), "×"),
    ]
    return keep("fits", figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
