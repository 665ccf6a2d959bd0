"""Whether pages can be read: faults of layout on the pages of 60 models, counted in a browser.

    python benchmarks/page_layout.py FOLDER [--json FILE] [--only WORDS] [--pictures FOLDER]

Every model is captured once, into FOLDER; a later run reads the samples there. Each page is written with the script and
the style of this tree, and `page/check.mjs` opens it in headless Chromium: in light and dark, in windows of 1280, 900
and 400 pixels, as it opens, at fit, with frames open to two depths, with a step selected near and at fit, and with each
panel. With `--json FILE` each model's counts are appended to a file, and what is in the file is not run again.
`page/README.md` says what each fault is. It needs what `make browser` installs, and models of transformers need the
extra `models`. A fault, or a model that fails, ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backprint as bp
from backprint.tools.diff.page import diff_data
from backprint.tools.draw.page import page_data, page_html

CHECK = Path(__file__).parents[1] / "page" / "check.mjs"

# ---- Nets of all shapes


class Mlp(nn.Module):
    """Layers of one width, with dropout if it is wanted; `names` are those of its activations, by turns."""

    def __init__(self, depth: int = 4, width: int = 32, dropout: float = 0.0, names: Sequence[str] = ("relu",)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.dropout, self.names = dropout, names

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            x = getattr(F, self.names[place % len(self.names)])(layer(x))
            x = F.dropout(x, self.dropout, self.training) if self.dropout else x
        return x.square().mean()


class ConvNormRelu(nn.Sequential):
    def __init__(self, ins: int, outs: int, kernel: Any, **options: Any) -> None:
        super().__init__(nn.Conv2d(ins, outs, kernel, bias=False, **options), nn.BatchNorm2d(outs), nn.ReLU())


class InceptionBlock(nn.Module):
    """Branches of convolutions side by side."""

    def __init__(self, ins: int, branches: int) -> None:
        super().__init__()
        self.b1 = ConvNormRelu(ins, 16, 1)
        self.b2 = nn.Sequential(ConvNormRelu(ins, 12, 1), ConvNormRelu(12, 16, 3, padding=1))
        long = (
            ConvNormRelu(ins, 8, 1),
            ConvNormRelu(8, 8, (1, 7), padding=(0, 3)),
            ConvNormRelu(8, 16, (7, 1), padding=(3, 0)),
        )
        self.b3 = nn.Sequential(*long)
        self.b4 = nn.Sequential(nn.AvgPool2d(3, 1, 1), ConvNormRelu(ins, 16, 1))
        self.more = nn.ModuleList(ConvNormRelu(ins, 16, 1) for _ in range(branches - 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in (self.b1, self.b2, self.b3, self.b4, *self.more)], 1)


class Inception(nn.Module):
    def __init__(self, blocks: int = 3, branches: int = 4) -> None:
        super().__init__()
        wide = 16 * branches
        self.stem = ConvNormRelu(3, 32, 3, stride=2, padding=1)
        self.inc = nn.Sequential(*(InceptionBlock(wide if place else 32, branches) for place in range(blocks)))
        self.aux, self.fc = nn.Linear(wide, 10), nn.Linear(wide, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.inc[0](self.stem(x))
        aux = self.aux(x.mean((2, 3)))
        for block in self.inc[1:]:
            x = block(x)
        return self.fc(x.mean((2, 3))), aux


class Recurrent(nn.Module):
    """A recurrent layer of torch over embedded words."""

    def __init__(self, kind: str, layers: int = 2, **options: Any) -> None:
        super().__init__()
        self.emb = nn.Embedding(50, 16)
        self.rnn = getattr(nn, kind)(16, 24, layers, batch_first=True, **options)
        self.fc = nn.Linear(24 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, words: Tensor) -> Tensor:
        hidden: Tensor = self.rnn(self.emb(words))[0]
        return self.fc(hidden[:, -1])


class Cells(nn.Module):
    """A cell in a loop over time."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell, self.fc = getattr(nn, kind)(8, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        state: Any = None
        for part in x:
            state = self.cell(part, state)
        return self.fc(state[0] if isinstance(state, tuple) else state)


class Siamese(nn.Module):
    """Two towers of one net, whose weight the output has too."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.dec, self.out = nn.Linear(32, 32), nn.Linear(32, 64, bias=False)
        self.scale = nn.Parameter(torch.ones(()))
        self.out.weight = self.enc[0].weight

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = self.enc(left), self.enc(right)
        return self.out(self.dec(a - b)).square().mean() + self.scale * F.cosine_similarity(a, b).mean()


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Experts(nn.Module):
    """Every expert sees all, and a gate weighs them."""

    def __init__(self, width: int, count: int = 4) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(width, count), nn.ModuleList(FeedForward(width) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        results = torch.stack([expert(x) for expert in self.experts], -1)
        return (results * weights.unsqueeze(-2)).sum(-1)


class Block(nn.Module):
    def __init__(self, width: int, feed: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.ln1, self.attn, self.ln2, self.mlp = (
            nn.LayerNorm(width),
            Attention(width),
            nn.LayerNorm(width),
            feed(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int, feed: Callable[[int], nn.Module] = FeedForward, recompute: bool = False) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(100, 64), nn.Embedding(32, 64)
        self.blocks = nn.ModuleList(Block(64, feed) for _ in range(layers))
        self.ln, self.head, self.recompute = nn.LayerNorm(64), nn.Linear(64, 100, bias=False), recompute

    def forward(self, words: Tensor, target: Tensor) -> Tensor:
        x = self.tok(words) + self.pos(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), target.flatten())


class Unet(nn.Module):
    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        wide = [8 * 2**place for place in range(depth + 1)]
        self.down = nn.ModuleList(
            ConvNormRelu(wide[place - 1] if place else 3, size, 3, padding=1) for place, size in enumerate(wide)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide[place + 1], wide[place], 2, 2) for place in range(depth))
        self.mix = nn.ModuleList(ConvNormRelu(2 * wide[place], wide[place], 3, padding=1) for place in range(depth))
        self.out = nn.Conv2d(wide[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for place, part in enumerate(self.down):
            x = part(F.max_pool2d(x, 2) if place else x)
            kept.append(x)
        for place in reversed(range(len(self.up))):
            x = self.mix[place](torch.cat([kept[place], self.up[place](x)], 1))
        return self.out(x)


class Residual(nn.Module):
    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs)
        self.conv2, self.bn2 = nn.Conv2d(outs, outs, 3, 1, 1, bias=False), nn.BatchNorm2d(outs)
        self.skip = nn.Conv2d(ins, outs, 1, stride, bias=False) if stride > 1 or ins != outs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.skip(x))


class Resnet(nn.Module):
    def __init__(self, blocks: Sequence[int] = (2, 2, 2)) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 16, 3, padding=1)
        wide = [16 * 2**place for place in range(len(blocks))]
        stages = []
        for place, count in enumerate(blocks):
            first = Residual(wide[place - 1] if place else 16, wide[place], 2 if place else 1)
            stages.append(nn.Sequential(first, *(Residual(wide[place], wide[place], 1) for _ in range(count - 1))))
        self.stages, self.fc = nn.Sequential(*stages), nn.Linear(wide[-1], 10)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.fc(self.stages(self.stem(x)).mean((2, 3))), label)


class Dense(nn.Module):
    """Each layer takes what all before it made."""

    def __init__(self, layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16 * (place + 1), 16) for place in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        for layer in self.layers:
            parts.append(F.elu(layer(torch.cat(parts, 1))))
        return torch.cat(parts, 1).sum()


class Broken(nn.Module):
    """A net that breaks dynamo's graph between its parts, each in the one before it."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.here = nn.Linear(16, 16)
        self.rest: nn.Module = Broken(parts - 1) if parts > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.here(x))
        torch._dynamo.graph_break()
        return self.rest(x).sin()


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]  # torch's own is untyped
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]  # torch's own is untyped
        (x,) = ctx.saved_tensors
        return grad / (1 + (torch.pi * x).square())


class Spikes(nn.Module):
    """A spiking neuron over time, with a surrogate gradient."""

    def __init__(self, times: int = 6) -> None:
        super().__init__()
        self.times, self.fc = times, nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        voltage, total = torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(self.times):
            voltage = voltage + (self.fc(x) - voltage) / 2
            spike = Surrogate.apply(voltage - 1)
            voltage, total = voltage * (1 - spike), total + spike
        return total.mean()


class Mixer(nn.Module):
    """Products over two dimensions by turns, with einsum and long names."""

    def __init__(self) -> None:
        super().__init__()
        self.a_projection_with_a_very_long_name_of_its_own = nn.Linear(16, 16)
        self.mixing_over_time_and_channels = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum(
            "btc,ts->bsc", self.a_projection_with_a_very_long_name_of_its_own(x), self.mixing_over_time_and_channels
        )
        return F.scaled_dot_product_attention(y, y, y).logsumexp(-1).sum()


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(4, 8, 5, 2, 2), nn.GELU(), nn.Conv1d(8, 16, 5, 2, 2), nn.GELU())
        self.mean, self.deviation = nn.Conv1d(16, 4, 1), nn.Conv1d(16, 4, 1)
        self.decoder = nn.Sequential(nn.ConvTranspose1d(4, 8, 4, 2, 1), nn.GELU(), nn.ConvTranspose1d(8, 4, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.encoder(x)
        mean, deviation = self.mean(hidden), self.deviation(hidden)
        drawn = mean + torch.randn_like(mean) * (deviation / 2).exp()
        return F.mse_loss(self.decoder(drawn), x) + (mean.square() + deviation.exp() - deviation - 1).mean()


class Deep(nn.Module):
    """Modules in modules, so that frames are nested."""

    def __init__(self, depth: int, arms: int = 1) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Deep(depth - 1, arms) for _ in range(arms)) if depth else nn.ModuleList()
        self.here = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.here(x))
        return x + sum((inner(x) for inner in self.inner), torch.zeros(())) if len(self.inner) else x


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Sequence[Tensor]) -> Callable[..., Tensor]:
    """Return a function that runs the forward, the backward and the optimizer."""

    def step(*inputs: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(*inputs)
        loss = loss if loss.ndim == 0 else loss.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step(*inputs)  # the first makes the optimizer's state
    return step


# ---- The table of models

Program = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""What is captured, its arguments, and the options of the capture."""


def words(length: int = 20, count: int = 50) -> Tensor:
    return torch.randint(0, count, (3, length))


def image(size: int = 32, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, size, size)


def text() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 100, (2, 32)), torch.randint(0, 100, (2, 32))


def simply(make: Callable[[], Any], *inputs: Any, **options: Any) -> Program:
    """Return a program that the eager engine captures; inputs that can be called are made first."""
    parts = [part() if callable(part) else part for part in inputs]
    flat = tuple(leaf for part in parts for leaf in (part if isinstance(part, tuple) else (part,)))
    return make(), flat, {"engine": "eager", **options}


def stepped(make: Callable[[], nn.Module], optimizer: Callable[..., torch.optim.Optimizer], *inputs: Tensor) -> Program:
    model = make()
    return one_step(model, optimizer(model.parameters()), inputs), inputs, {"engine": "eager"}


def transformer(name: str) -> Program:
    """Return a model of `benchmarks/architectures.py`."""
    from architectures import ARCHITECTURES, loss_of, make  # type: ignore[import-not-found]  # a script beside this one

    model, inputs = make(next(one for one in ARCHITECTURES if one.name == name))
    return model, (), {"engine": "eager", "kwargs": inputs, "loss": loss_of, "specialize": True}


def label(count: int = 2) -> Tensor:
    return torch.randint(0, 10, (count,))


x32, x8 = partial(torch.randn, 8, 32), partial(torch.randn, 4, 8)

MODELS: Mapping[str, Callable[[], Program]] = {
    "linear": lambda: simply(lambda: nn.Linear(4, 2), torch.randn(3, 4)),
    "mlp": lambda: simply(Mlp, x32),
    "mlp_dropout": lambda: simply(lambda: Mlp(4, 32, 0.2), x32),
    "mlp_12": lambda: simply(lambda: Mlp(12, 32, 0.1, ("gelu", "silu")), x32),
    "mlp_names": lambda: simply(lambda: Mlp(9, 32, 0.0, ("hardswish", "softplus", "logsigmoid")), x32),
    "dense": lambda: simply(Dense, torch.randn(4, 16)),
    "inception": lambda: simply(Inception, image),
    "inception_1": lambda: simply(lambda: Inception(1), image),
    "inception_wide": lambda: simply(lambda: Inception(2, 9), image),
    "lstm": lambda: simply(lambda: Recurrent("LSTM", bidirectional=True, dropout=0.1), words),
    "lstm_1": lambda: simply(lambda: Recurrent("LSTM", 1), words),
    "lstm_4": lambda: simply(lambda: Recurrent("LSTM", 4), words),
    "gru": lambda: simply(lambda: Recurrent("GRU", bidirectional=True), lambda: words(6)),
    "rnn": lambda: simply(lambda: Recurrent("RNN"), lambda: words(8)),
    "lstm_cell": lambda: simply(lambda: Cells("LSTMCell"), torch.randn(16, 4, 8)),
    "gru_cell": lambda: simply(lambda: Cells("GRUCell"), torch.randn(7, 4, 8)),
    "siamese": lambda: simply(Siamese, x32, x32),
    "attention": lambda: simply(lambda: Attention(32), torch.randn(2, 8, 32)),
    "gpt_2": lambda: simply(lambda: Gpt(2), text),
    "gpt_4": lambda: simply(lambda: Gpt(4), text),
    "gpt_24": lambda: simply(lambda: Gpt(24), text),
    "gpt_checkpoint": lambda: simply(lambda: Gpt(4, recompute=True), text),
    "gpt_aot": lambda: simply(lambda: Gpt(4), text, engine="aot"),
    "moe": lambda: simply(lambda: Gpt(2, Experts), text),
    "moe_8": lambda: simply(lambda: Experts(32, 8), torch.randn(2, 8, 32)),
    "unet": lambda: simply(Unet, image),
    "unet_4": lambda: simply(lambda: Unet(4), image),
    "resnet": lambda: simply(Resnet, image, label),
    "resnet_deep": lambda: simply(lambda: Resnet((6, 6)), image, label),
    "resnet_aot": lambda: simply(lambda: Resnet((2, 2)), image, label, engine="aot"),
    "mixer": lambda: simply(Mixer, torch.randn(2, 8, 16)),
    "autoencoder": lambda: simply(Autoencoder, torch.randn(2, 4, 16)),
    "spikes": lambda: simply(Spikes, torch.randn(4, 16)),
    "deep": lambda: simply(lambda: Deep(5), x8),
    "tree": lambda: simply(lambda: Deep(3, 2), x8),
    "wide_tree": lambda: simply(lambda: Deep(2, 5), x8),
    "transformer_layer": lambda: simply(
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 8, 32)
    ),
    "transformer": lambda: simply(
        lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True), torch.randn(2, 6, 32), torch.randn(2, 5, 32)
    ),
    "sgd_step": lambda: stepped(Mlp, partial(torch.optim.SGD, lr=0.1, momentum=0.9), x32()),
    "adam_step": lambda: stepped(lambda: Mlp(6), partial(torch.optim.Adam, lr=1e-3, foreach=False), x32()),
    "adamw_step": lambda: stepped(lambda: Gpt(2), partial(torch.optim.AdamW, lr=1e-3), *text()),
    "second_order": lambda: simply(Mlp, x32, engine="aot", order=2),
    "breaks_2": lambda: simply(lambda: Broken(2), torch.randn(4, 16), engine="dynamo"),
    "breaks_5": lambda: simply(lambda: Broken(5), torch.randn(4, 16), engine="dynamo"),
    "forward_only": lambda: simply(lambda: lambda x: x.argsort().float().std(), torch.randn(9)),
    "function": lambda: simply(lambda: lambda x, w: (x.sin() * w).sum(), torch.randn(3, 4), torch.randn(4)),
    **{
        f"t_{name}": partial(transformer, name)
        for name in (
            "gpt2",
            "llama",
            "bert",
            "deberta",
            "bart",
            "t5",
            "vit",
            "swin",
            "wav2vec2",
            "mixtral",
            "mamba",
            "clip",
        )
    },
}

PAIRS: Mapping[str, tuple[str, str]] = {
    "diff_gpt": ("gpt_4", "gpt_checkpoint"),
    "diff_resnet": ("resnet", "resnet_deep"),
}
"""Pages of a difference, of two models before and after."""

# ---- Capture, write, check


def sample_of(name: str, folder: Path) -> bp.Capture:
    """Return the capture of a model, from its sample if there is one."""
    place = folder / "samples" / name
    if not place.exists():
        torch.manual_seed(0)
        program, inputs, options = MODELS[name]()
        kwargs = options.pop("kwargs", {})
        bp.capture(program, args=inputs, kwargs=kwargs, name=name, **options).save(place)
    return bp.load(place)


def write_page(name: str, folder: Path) -> Path:
    """Write the page of a model, or of a difference."""
    if name in PAIRS:
        data = diff_data(bp.diff.compare(*(sample_of(side, folder) for side in PAIRS[name])))
    else:
        data = page_data(sample_of(name, folder))
    page = folder / f"{name}.html"
    page.write_text("".join(page_html(data)), "utf-8")
    return page


@dataclass(frozen=True, slots=True)
class Row:
    """The faults of a model's page, by kind, with an example of each."""

    name: str
    views: int
    faults: dict[str, int]
    examples: dict[str, str]


def checked(name: str, page: Path, pictures: Path | None) -> Row:
    """Open a page in a browser, and return its faults."""
    command = ["node", str(CHECK), str(page), *([str(pictures)] if pictures else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout)
    return Row(name, result["views"], result["faults"], result["examples"])


def read_rows(place: Path | None) -> list[Row]:
    """Return the rows that a file has."""
    if place is None or not place.exists():
        return []
    return [Row(**json.loads(line)) for line in place.read_text("utf-8").splitlines()]


def table(rows: Sequence[Row]) -> str:
    """Return the faults of all pages by kind: how many, on how many pages, and where most are."""
    total, pages, worst = Counter[str](), Counter[str](), dict[str, tuple[int, str]]()
    for row in rows:
        for kind, count in row.faults.items():
            total[kind] += count
            pages[kind] += bool(count)
            worst[kind] = max(worst.get(kind, (0, "")), (count, row.name))
    lines = [
        f"{len(rows)} pages, {sum(row.views for row in rows)} views",
        "| fault | count | pages | most on |",
        "|---|---:|---:|---|",
    ]
    lines += (
        f"| {kind} | {total[kind]:,} | {pages[kind]} | {'{1}: {0:,}'.format(*worst[kind]) if total[kind] else ''} |"
        for kind in total
    )
    return "\n".join([*lines, f"| all | {total.total():,} | {sum(any(row.faults.values()) for row in rows)} | |"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the faults of layout on the pages of many models.")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these models alone")
    parser.add_argument("--pictures", metavar="FOLDER", type=Path, help="save a picture of each view")
    parser.add_argument("--capture", action="store_true", help="capture and write the pages, and check nothing")
    options = parser.parse_args()
    (options.folder / "samples").mkdir(parents=True, exist_ok=True)
    rows = read_rows(options.json)
    ready = {row.name for row in rows}
    failed = 0
    for name in options.only or [*MODELS, *PAIRS]:
        if name in ready:
            continue
        try:
            page = write_page(name, options.folder)
            if options.capture:
                continue
            row = checked(name, page, options.pictures)
        except Exception:  # a model that this torch or these packages cannot make leaves the others their rows
            failed += 1
            print(f"{name} failed:\n{traceback.format_exc(limit=-3)}", file=sys.stderr, flush=True)
            continue
        rows.append(row)
        faults = {kind: count for kind, count in row.faults.items() if count}
        print(f"{name}: {faults or 'no fault'} in {row.views} views", flush=True)
        if options.json is not None:
            with options.json.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"name": row.name, "views": row.views, "faults": row.faults, "examples": row.examples})
                    + "\n"
                )
    if rows:
        print(table(rows))
    return bool(failed or any(sum(row.faults.values()) for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
