"""A deep model is stamped only where the graphs are those of a trace in full; nets that are made to mislead are not."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import IN_FULL, STAMPED, WITHOUT_CHECKPOINTS, Capture, Row, UsageError, main

DEPTH = 13


class Block(nn.Module):
    def __init__(self, index: int, width: int = 8, drop: float = 0.1) -> None:
        super().__init__()
        self.index = index
        self.norm, self.turn = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down, self.drop = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.Dropout(drop)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        q, k, v = self.turn(self.norm(x)).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v) * scale
        return x + self.drop(self.down(torch.nn.functional.gelu(self.up(x))))


class Deep(nn.Module):
    """A small GPT; what misleads overrides `run`."""

    def __init__(self, depth: int = DEPTH, block: Any = Block) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.blocks = nn.ModuleList(block(index) for index in range(depth))

    def forward(self, tokens: Tensor) -> Any:
        return self.out(self.run(self.embed(tokens)))

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


TOKENS = torch.zeros(2, 5, dtype=torch.long)


def both(model: nn.Module, **options: Any) -> tuple[Capture, Capture]:
    """The Capture as it is by default, and the one that is traced in full."""
    made = bp.capture(model, TOKENS, fake=True, **options)
    return made, bp.capture(model, TOKENS, fake=True, stamp=False, **options)


def differing(left: Capture, right: Capture) -> list[str]:
    """The fields in which two Captures differ, but for their notes and the live program."""
    names = [each.name for each in fields(Capture) if each.init and each.name not in ("notes", "origin", "recipes")]
    return [name for name in names if getattr(left, name) != getattr(right, name)]


# ------------------------------------------------------------------ what is stamped


class Regular(Deep):
    def run(self, x: Tensor) -> Tensor:
        for place, block in enumerate(self.blocks):
            x = block(x, scale=0.5) * (place + 3)
        return x


class Supervised(Deep):
    """Returns the results of all layers."""

    def forward(self, tokens: Tensor) -> Any:
        x, found = self.embed(tokens), []
        for block in self.blocks:
            x = block(x)
            found.append(self.out(x))
        return {"each": found, "mean": torch.stack(found).mean(0)[0]}


class Repeated(Deep):
    """Every layer reads the embedding, and the layer before the last one."""

    def run(self, x: Tensor) -> Tensor:
        first = before = x
        for block in self.blocks:
            x, before = block(x + before) + first, x
        return x


class Columns(nn.Module):
    """A Sequential that begins with another layer and ends with a third."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(11, 8), *(Block(index) for index in range(DEPTH)), nn.Linear(8, 3))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)


class Twice(Deep):
    """An encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.ModuleList(Block(index) for index in range(DEPTH))

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        y = x.flip(-2)
        for block in self.other:
            y = block(y + x)
        return y


@pytest.mark.slow
@pytest.mark.parametrize("model", [Deep, Regular, Columns, Twice], ids=lambda each: each.__name__)
def test_a_stamped_capture_is_the_one_that_is_traced_in_full(model: Any) -> None:
    stamped, full = both(model(), mode="eval" if model is Deep else "train")
    assert [note[: len(STAMPED)] for note in stamped.notes] == [STAMPED]
    assert full.notes == ()
    assert differing(stamped, full) == []
    assert [str(pair.forward) for pair in stamped.pairs] == [str(pair.forward) for pair in full.pairs]
    assert stamped.recipes.recipes == full.recipes.recipes
    assert stamped.origin.result_difference() == full.origin.result_difference() == ""


@pytest.mark.slow
def test_with_a_loss_and_inputs_that_require_grad() -> None:
    class Head(Deep):
        def forward(self, hidden: Tensor) -> Any:
            return self.run(hidden), hidden.shape[0]

    hidden = torch.randn(2, 5, 8, requires_grad=True)
    made = [
        bp.capture(Head(), hidden, fake=True, loss=lambda found: found[0].sum(), stamp=stamp, requires_grad=["hidden"])
        for stamp in (True, False)
    ]
    assert made[0].notes[0].startswith(STAMPED)
    assert differing(*made) == []


@pytest.mark.slow
def test_the_callers_model_is_as_it_was() -> None:
    model = Deep()
    before = [(name, id(each)) for name, each in (*model.named_modules(), *model.named_parameters())]
    children = model.blocks._modules
    bp.capture(model, TOKENS, fake=True)
    assert [(name, id(each)) for name, each in (*model.named_modules(), *model.named_parameters())] == before
    assert model.blocks._modules is children
    assert len(model.blocks) == DEPTH


@pytest.mark.slow
def test_few_layers_are_traced_without_a_word() -> None:
    assert both(Deep(6))[0].notes == ()


# ------------------------------------------------------------------ what misleads


class ByIndex(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = super().forward(x, scale)
        return x.relu() if self.index == 7 else x


class Every(Block):
    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = super().forward(x, scale)
        return x.tanh() if self.index % 6 == 5 else x


class Odd(Deep):
    """In one layer, something that no shallow model has."""

    place = 9

    def run(self, x: Tensor) -> Tensor:
        first = x
        for place, block in enumerate(self.blocks):
            x = self.odd(x, first, block) if place == self.place else block(x)
        return x

    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        raise NotImplementedError("each odd net says what its odd layer does")


class ReadsFirst(Odd):
    def run(self, x: Tensor) -> Tensor:
        first = x
        for place, block in enumerate(self.blocks):
            x = block(x) + (first if place == 9 else x)
        return x


class Detached(Odd):
    def run(self, x: Tensor) -> Tensor:
        for place, block in enumerate(self.blocks):
            x = block(x) + (x.detach() if place != 8 else x.detach().requires_grad_())
        return x


class Ungraded(Odd):
    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        with torch.no_grad():
            return block(x)


class OtherNumber(Odd):
    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        return block(x, scale=1.0000001)


class Constant(Deep):
    def run(self, x: Tensor) -> Tensor:
        for place, block in enumerate(self.blocks):
            x = block(x) * torch.tensor(0.5 if place == 10 else 0.25)
        return x


class Wider(Odd):
    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        return block(x.double().float())


class Skips(Deep):
    """A U-net: the second half reads the first, backwards."""

    def run(self, x: Tensor) -> Tensor:
        kept = []
        for place, block in enumerate(self.blocks):
            x = block(x)
            x = x + kept.pop() if place >= len(self.blocks) // 2 and kept else x
            kept += [x] if place < len(self.blocks) // 2 else []
        return x


class Counted(Deep):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            self.calls += 1
            x = block(x).sin() if self.calls % 7 == 0 else block(x)
        return x


class ByDepth(Deep):
    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, scale=1 / len(self.blocks))
        return x


class PerLayer(Deep):
    """Numbers of the layers that the parent has."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = [1.0] * 8 + [2.0] * (DEPTH - 8)

    def run(self, x: Tensor) -> Tensor:
        for block, scale in zip(self.blocks, self.scales, strict=False):
            x = block(x, scale)
        return x


class Chance(Deep):
    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x) if random.random() < 0.6 else x
        return x


class BentFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, index: int) -> Tensor:
        ctx.index = index
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * (3 if ctx.index == 8 else 1), None


class Bent(Deep):
    """A custom backward, which no forward shows."""

    def run(self, x: Tensor) -> Tensor:
        for place, block in enumerate(self.blocks):
            x = BentFunction.apply(block(x), place)
        return x


class Hooked(Odd):
    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        x = block(x)
        x.register_hook(lambda gradient: gradient * 2)
        return x


class NodeHooked(Odd):
    def odd(self, x: Tensor, first: Tensor, block: Any) -> Tensor:
        x = block(x)
        x.grad_fn.register_prehook(lambda gradients: (gradients[0] * 2,))
        return x


class Checkpointed(Deep):
    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Shared(Deep):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[9].up = self.blocks[2].up


class Listed(Deep):
    """The layers stand in a list of Python's too."""

    def __init__(self) -> None:
        super().__init__()
        self.every = [*self.blocks]

    def run(self, x: Tensor) -> Tensor:
        for block in self.every:
            x = block(x)
        return x


class Growing(Deep):
    def __init__(self) -> None:
        super().__init__(block=lambda index: Block(index, drop=0.1 + index / 100))


class Frozen(Deep):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[11].up.weight.requires_grad_(False)


class Alternating(Deep):
    def __init__(self) -> None:
        super().__init__()
        for place, block in enumerate(self.blocks):
            block.kind = ("near", "far")[place % 2]


MISLEADING: dict[str, tuple[Any, str]] = {
    "index": (lambda: Deep(block=ByIndex), "operator"),
    "reads the first": (ReadsFirst, "operator"),
    "detached": (Detached, "operator"),
    "a number": (OtherNumber, "operator"),
    "a constant": (Constant, "constant"),
    "skips": (Skips, "with one layer"),
    "by depth": (ByDepth, "are not those with one layer less"),
    "chance": (Chance, ""),
    "a custom backward": (Bent, "BentFunctionBackward is a custom autograd.Function"),
    "a hook": (Hooked, "a tensor hook"),
    "a hook of a node": (NodeHooked, "grad_fn"),
    "checkpoints": (Checkpointed, "checkpoints"),
    "shared": (Shared, "blocks.2.up.weight and blocks.9.up.weight are one"),
    "a list of Python's": (Listed, ""),
    "growing dropout": (Growing, "blocks: layers 0 and 1 differ: drop.p: 0.1 and 0.11"),
    "frozen": (Frozen, ""),
    "reads two layers": (Repeated, "do not grow by the same"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISLEADING)
def test_what_misleads_is_traced_in_full(name: str) -> None:
    make, why = MISLEADING[name]
    random.seed(4)
    model = make()
    # `auto` records checkpoints, and stamps nothing then
    engine = "aot" if name == "checkpoints" else "auto"
    made = bp.capture(model, TOKENS, fake=True, mode="train", engine=engine)
    random.seed(4)
    full = bp.capture(model, TOKENS, fake=True, mode="train", engine=engine, stamp=False)
    assert differing(made, full) == []
    note, *others = made.notes
    assert note.startswith(IN_FULL)
    assert others == ([WITHOUT_CHECKPOINTS] if name == "checkpoints" else [])
    assert why in note


def first_half(joint: Any, inputs: Any, *, num_fwd_outputs: int, **more: Any) -> Any:
    from torch._functorch.partitioners import default_partition

    return default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)


@pytest.mark.slow
def test_a_partition_that_may_look_at_the_whole_is_not_stamped() -> None:
    made, full = both(Deep(), partition=first_half)
    assert made.notes[0].startswith(f"{IN_FULL}partition= is a function")
    assert differing(made, full) == []
    with torch._functorch.config.patch(activation_memory_budget=0.5):
        assert "memory budget" in bp.capture(Deep(), TOKENS, fake=True).notes[0]
    assert both(Deep(), partition="default")[0].notes[0].startswith(STAMPED)


# ------------------------------------------------------------------ in a sample


@pytest.mark.slow
def test_a_sample_says_that_it_was_stamped(tmp_path: Path) -> None:
    made = bp.capture(Deep(), TOKENS, fake=True)
    assert bp.load(made.save(tmp_path / "deep")).notes == made.notes
    assert "13 layers in blocks continue traces with 4 and 5" in made.notes[0]


@pytest.mark.slow
def test_verify_traces_a_stamped_capture_in_full(tmp_path: Path) -> None:
    made, full = both(Deep())
    [plain] = made.verify()
    assert (plain.verdict, "stamped: the 13 layers" in plain.detail) == ("unproven", True)
    [again] = made.verify(trace=True)
    assert (again.verdict, "a trace in full has the same graphs" in again.detail) == ("unproven", True)
    loaded = bp.load(made.save(tmp_path / "deep"))
    assert bp.verify(loaded, trace=full)[0].detail == again.detail
    with pytest.raises(UsageError, match="capture it again with stamp=False"):
        bp.verify(loaded, trace=True)
    with pytest.raises(UsageError, match="is stamped itself"):
        bp.verify(loaded, trace=made)
    with pytest.raises(UsageError, match="was not stamped"):
        bp.verify(full, trace=True)


@pytest.mark.slow
def test_verify_finds_a_stamped_capture_that_is_not_that_of_its_program() -> None:
    made, other = bp.capture(Deep(), TOKENS, fake=True), bp.capture(Deep(DEPTH + 1), TOKENS, fake=True, stamp=False)
    [verdict] = made.verify(trace=other)
    assert verdict.verdict == "wrong"
    assert "pair_0 forward is not that of a trace in full" in verdict.detail


def test_the_command_line_stamps(tmp_path: Path) -> None:
    factory = tmp_path / "deep.py"
    factory.write_text(FACTORY)
    target, place = f"{factory}:make", str(tmp_path / "sample")
    said = CliRunner().invoke(main, ["capture", target, "--fake", "-o", place])
    assert (said.exit_code, "note: stamped: the 12 layers in 0" in said.output) == (0, True), said.output
    assert "stamped: the 12 layers in 0" in CliRunner().invoke(main, ["show", place, "--summary"]).output
    said = CliRunner().invoke(main, ["capture", target, "--fake", "--no-stamp", "--overwrite", "-o", place])
    assert (said.exit_code, "stamped" in said.output) == (0, False), said.output


FACTORY = """
import torch
from torch import nn


def make():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(12)))
    return nn.Sequential(layers, nn.Linear(4, 2)), (torch.randn(3, 4),)
"""


# ------------------------------------------------------------------ how rows grow


def rows_of(depth: int, *, odd: int = -1, skew: int = 0) -> list[Row]:
    """Rows of layers that count: `odd` has another number."""
    found = [Row("in", ("x",))]
    for place in range(depth):
        found += [
            Row("mm", (f"mm_{2 * place}", 7 + (place == odd))),
            Row("add", (f"add_{place}", place * place * skew)),
        ]
    return [*found, Row("out", (f"add_{depth - 1}", 3 * depth))]
