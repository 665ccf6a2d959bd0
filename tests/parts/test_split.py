"""Split: parts that are samples, proven against the whole, and the whole again when linked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import (
    DERIVED,
    SLICED,
    Capture,
    Ledger,
    Pair,
    Ref,
    RefusedError,
    Split,
    Step,
    all_parts,
    dedup,
    draw_from_recipes,
    main,
    mapped,
    replay_values,
    split_capture,
    split_sample,
    weighty,
)
from face import split as splitting

# ------------------------------------------------------------------ what is cut


class Block(nn.Module):
    """A residual block: its gradients add up over the border."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.fc = Block(), Block(), Block(), nn.Linear(4, 5)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        x = self.third(self.second(self.first(x)))
        return F.cross_entropy(self.fc(x.mean((2, 3))), classes)


class Tied(nn.Module):
    """A weight that is used at both ends, as language models tie theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.body = nn.Embedding(11, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        hidden = self.body(self.embed(ids))
        return {"logits": hidden @ self.embed.weight.t(), "hidden": hidden}


def counted(x: Tensor, mask: Tensor) -> Tensor:
    kept = x.sin()[: int(mask.sum())]
    return (kept.cos() * 2).exp().sum(0)


def updating(x: Tensor, seen: Tensor) -> Tensor:
    y = x * 2
    y[1:] = 0
    seen.mul_(0.9).add_(y.detach())
    return (y.tanh() * seen).sum()


def shaped(x: Tensor, w: Tensor) -> Tensor:
    return (x.view(x.shape[0], -1, 2).repeat(1, x.shape[0], 1).cumsum(1).sin().mean((1, 2)) @ w).exp()


@cache
def net() -> Capture:
    torch.manual_seed(0)
    return bp.capture(Net().train(), torch.randn(3, 4, 6, 6), torch.tensor([0, 4, 2]))


CAPTURES: dict[str, Any] = {
    "net": net,
    "tied": lambda: bp.capture(Tied().train(), torch.tensor([[0, 3, 10], [1, 3, 5]])),
    "counted": lambda: bp.capture(counted, torch.randn(9, 3), torch.arange(9) < 5),
    "updating": lambda: bp.capture(updating, torch.randn(4, 3), torch.rand(4, 3)),
    "shaped": lambda: bp.capture(shaped, torch.randn(4, 6), torch.randn(4, 2), dynamic=True),
    "eager": lambda: bp.capture(Tied().train(), torch.tensor([[0, 3, 10]]), engine="eager"),
}


def whole_and_joined(cap: Capture, found: Split) -> tuple[Any, Any]:
    """Both replayed on the recipe's inputs."""
    draw = draw_from_recipes(cap, "recipe", None)
    torch.manual_seed(7)
    whole = replay_values(cap, draw.values, draw.tangents)
    torch.manual_seed(7)
    return whole, replay_values(found.joined, draw.values, draw.tangents)


def check_equal(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert (value is None) == (right[name] is None), name
        assert value is None or torch.equal(value, right[name]), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "by"), [*((name, "range:3") for name in CAPTURES), ("net", "saved:2"), ("counted", "saved:2")]
)
def test_parts_are_proven_and_joined_again_are_the_whole(name: str, by: str) -> None:
    cap = CAPTURES[name]()
    found = split_capture(cap, by)
    assert len(found.parts) == int(by[-1])
    for cutting in found.parts:
        assert cutting.verdict.verdict in ("bitwise", "undifferentiable"), cutting.verdict
    whole, joined = whole_and_joined(cap, found)
    check_equal(whole.named, joined.named)
    check_equal(whole.mutations, joined.mutations)
    check_equal(whole.gradients, joined.gradients)


def test_no_part_returns_memory_that_a_later_part_fills() -> None:
    torch.manual_seed(0)
    rows = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.Tanh(), nn.Dropout(0.1))
    cap = bp.capture(rows, torch.randn(3, 4))
    steps = cap.pairs[0].forward.steps
    places = [place for place, step in enumerate(steps) if "empty" in step.target]
    assert len(places) == 2
    for place in places:
        found = bp.split(cap, by=f"ranges:0-{place + 1}")
        assert {part.verdict.verdict for part in found.parts} == {"bitwise"}


@pytest.mark.slow
def test_a_part_that_autograd_cannot_follow_is_refused_by_name() -> None:
    def filled(x: Tensor) -> Tensor:
        return torch.empty_strided((3, 4), (1, 3)).copy_(x.cos()) * 2

    cap = bp.capture(filled, torch.randn(3, 4), engine="aot")
    with pytest.raises(RefusedError, match="autograd of this part of the forward fails"):
        bp.split(cap, by="range:2")


def test_a_part_is_a_sample_that_loads_and_verifies_alone(tmp_path: Path) -> None:
    path = bp.save(net(), tmp_path / "net")
    rows = list(split_sample(path, tmp_path / "parts", "module:1"))
    assert [(row.label, row.backward, row.verdict) for row in rows] == [
        (label, "sliced", "bitwise") for label in ("first", "second", "third", "(itself)", "fc", "(itself)")
    ]
    for row in rows:
        part = bp.load(row.part)
        [verdict] = part.verify()
        assert verdict.verdict == "bitwise"
        assert not verdict.vacuous
        assert part.why[1] == SLICED
        assert f"of net: {row.label}" in part.why[0] or f"of Net: {row.label}" in part.why[0]
    second = bp.load(rows[1].part).pairs[0]
    assert second.backward is not None
    assert {port.name for port in second.forward.by_role("parameter")} == {
        f"second.{name}" for name in ("conv.weight", "conv.bias", "norm.weight", "norm.bias")
    }
    assert {port.name for port in second.backward.outputs} > {"second.conv.weight"}
    assert len(second.backward.by_role("tangent")) == 1


def test_exact_parts_take_the_values_that_the_whole_had(tmp_path: Path) -> None:
    path = bp.save(net(), tmp_path / "net")
    rows = list(split_sample(path, tmp_path / "parts", "range:2", data="exact"))
    first, second = (bp.load(row.part) for row in rows)
    assert (Path(rows[1].part) / "tensors.safetensors").exists()
    made = second.recipes.make()
    names = [port.name for port in first.pairs[0].forward.by_role("output")]
    assert names
    torch.manual_seed(first.seed)
    state = first.recipes.make()
    given = dict(zip(first.pairs[0].forward.outputs, bp.run(first.pairs[0].forward, state), strict=True))
    for port, value in given.items():
        if port.role == "output" and port.name in made:
            assert torch.equal(made[port.name], value)


@pytest.mark.slow
def test_dedup_of_a_split_groups_its_parts_and_names_what_has_none(tmp_path: Path) -> None:
    bp.save(net(), tmp_path / "in" / "a" / "net")
    bp.save(bp.capture(torch.sin, torch.randn(3)), tmp_path / "in" / "b")
    CliRunner().invoke(
        main, ["corpus", "run", "split", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--by", "module:1"]
    )
    found = dedup(tmp_path / "out", tmp_path / "kept", files="copy")
    assert [[member.id for member in group] for group in found.groups if len(group) > 1] == [
        ["a/net/part_001", "a/net/part_002"]
    ]
    assert {member.id for member in found.kept} == {f"a/net/part_00{index}" for index in (0, 1, 3, 4, 5)}
    assert [member.id for member in found.left_out] == ["b"]
    assert "cut it by range or saved" in found.left_out[0].why
    assert bp.load(tmp_path / "kept" / "a" / "net" / "part_001").verdict["verdict"] == "bitwise"


@pytest.mark.slow
def test_a_folder_of_samples_is_cut_and_what_cannot_be_is_a_row(tmp_path: Path) -> None:
    bp.save(net(), tmp_path / "in" / "a" / "net")
    bp.save(bp.capture(torch.sin, torch.randn(3)), tmp_path / "in" / "b")
    arguments = ["corpus", "run", "split", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--by", "module:1"]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 1
    assert sorted(row["verdict"] for row in rows) == ["bitwise"] * 6 + ["failed"]
    assert "cut it by range or saved" in next(row for row in rows if row["verdict"] == "failed")["detail"]
    assert (tmp_path / "out" / "a" / "net" / "part_003" / "capture.json").exists()
    other = CliRunner().invoke(main, [*arguments[:-1], "range:1"])
    assert (other.exit_code, "by 'module:1', now 'range:1'" in " ".join(other.stderr.split())) == (2, True)
    shown = CliRunner().invoke(main, [*arguments[:-1], "range:1", "--restart"])
    assert "2 parts: 2 written" in shown.output
    assert not (tmp_path / "out" / "a" / "net" / "part_003").exists()
    none = CliRunner().invoke(
        main, ["corpus", "run", "split", str(tmp_path / "out" / "none"), "-o", str(tmp_path / "x"), "--by", "range:2"]
    )
    assert none.exit_code == 2
    assert "no sample here or below" in none.output


@pytest.mark.parametrize("function", [torch.relu, torch.abs, lambda h: h.clamp(-9, 9)], ids=["relu", "abs", "clamp"])
def test_a_gradient_that_these_numbers_do_not_change_is_of_the_part_that_computes_it(
    function: Callable[[Tensor], Tensor],
) -> None:
    """Of positive values the gradients behind and before a ReLU are the same bits."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    with torch.no_grad():
        for parameter in (*first.parameters(), *second.parameters()):
            parameter.abs_()
    cap = bp.capture(lambda x: second(function(first(x))), torch.rand(2, 3))
    count = len(cap.pairs[0].forward.steps)
    whole = {step.target for step in cap.pairs[0].backward.steps}
    head, tail = (part.capture.pairs[0].backward for part in bp.split(cap, f"ranges:0-2,2-{count}").parts)
    of_function = whole - {f"aten.{name}" for name in ("mm.default", "sum.dim_IntList", "t.default", "view.default")}
    assert of_function
    assert of_function <= {step.target for step in tail.steps}
    assert not of_function & {step.target for step in head.steps}


def test_gradients_that_are_all_0_for_these_numbers_are_told_apart() -> None:
    """Where a ReLU returns 0 alone, the gradients of both weights are the same bits."""
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    with torch.no_grad():
        first.bias.fill_(-100)
    cap = bp.capture(lambda x: second(first(x).relu()).sum(), torch.randn(2, 3), engine="aot")
    count = len(cap.pairs[0].forward.steps)
    joined = bp.split(cap, f"ranges:0-{count - 1},{count - 1}-{count}").joined
    with torch.no_grad():
        first.bias.fill_(1)
    assert [verdict.verdict for verdict in joined.verify()][-1] == "bitwise"


def test_linked_pairs_that_are_cut_are_proved_together() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)

    def broken(x: Tensor) -> Tensor:
        hidden = first(x).relu()
        torch._dynamo.graph_break()
        return second(hidden).sin()

    joined = bp.split(bp.capture(broken, torch.randn(2, 3), engine="dynamo"), "range:2").joined
    assert len(joined.pairs) == 4
    assert joined.verify()[-1].verdict == "bitwise"


def test_the_backward_is_captured_again_where_the_wholes_steps_do_not_come_apart() -> None:
    def chained(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).t().softmax(-1).square().t().softmax(-1)

    cap = bp.capture(chained, torch.randn(5, 4), torch.randn(4, 3))
    count = len(cap.pairs[0].forward.steps)
    said = []
    for cut in range(1, count):
        found = split_capture(cap, f"ranges:0-{cut},{cut}-{count}")
        assert all(cutting.verdict.good for cutting in found.parts)
        said += [cutting.capture.why[1] for cutting in found.parts]
        whole, joined = whole_and_joined(cap, found)
        check_equal(whole.gradients, joined.gradients)
    assert set(said) > {SLICED} or all(text == SLICED or text.startswith(DERIVED) for text in said)


@pytest.mark.slow
def test_a_part_whose_result_is_transposed_can_be_saved(tmp_path: Path) -> None:
    """Its tangent has these strides, too, and a sample whose recipe makes others is not read."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (project(x).view(2, 3, 2, 2).transpose(1, 2) for project in (self.q, self.k, self.v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 3, 4)

    capture = bp.capture(Attention(), torch.randn(2, 3, 4))
    for number, part in enumerate(bp.split(capture, "module").parts):
        place = tmp_path / str(number)
        part.capture.save(place)
        assert all(verdict.good for verdict in bp.load(place).verify()), part.label


def test_a_part_that_is_captured_again_has_the_lines_of_the_program() -> None:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = Norm(), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.up(self.norm(x))

    capture = bp.capture(nn.Sequential(nn.Linear(4, 4), Residual()), torch.randn(3, 4))
    for part in bp.split(capture, "module").parts:
        for graph in (part.capture.pairs[0].forward, part.capture.pairs[0].backward):
            sources = [step.source for step in graph.steps]
            assert all(source is not None and not source.file.startswith("<") for source in sources), part.label


def test_derived_backwards_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> Pair:
        raise splitting.Inseparable("for this test")

    monkeypatch.setattr(splitting, "slice_part", never)
    cap = net()
    found = split_capture(cap, "range:3")
    for cutting in found.parts:
        assert cutting.verdict.good, cutting.verdict
        assert cutting.capture.why[1] == f"{DERIVED}: for this test"
    whole, joined = whole_and_joined(cap, found)
    check_equal(whole.gradients, joined.gradients)
    check_equal(whole.mutations, joined.mutations)


@pytest.mark.slow
def test_a_wrong_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = splitting.slice_part

    def doubled(*arguments: Any) -> Pair:
        pair = real(*arguments)
        backward = pair.backward
        if backward is None:
            return pair
        result = backward.results[0]
        step = Step("twice", "aten.mul.Tensor", (result, 2))
        wrong = replace(backward, steps=(*backward.steps, step), results=(Ref("twice"), *backward.results[1:]))
        return Pair(pair.name, pair.forward, wrong)

    monkeypatch.setattr(splitting, "slice_part", doubled)
    found = split_capture(net(), "range:2")
    for cutting in found.parts:
        assert cutting.verdict.good
        assert "as the whole's own steps it is wrong: on the whole's own values gradient" in cutting.capture.why[1]


class Straight(torch.autograd.Function):
    """A straight-through estimator: autograd of its forward gives another gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def test_a_cut_at_an_opaque_edge_is_refused_by_name() -> None:
    def through(x: Tensor, w: Tensor) -> Tensor:
        return Straight.apply((x @ w).sin()).cos() @ w.t()

    cap = bp.capture(through, torch.randn(3, 4), torch.randn(4, 3))
    assert cap.opaque
    count = len(weighty(cap.pairs[0].forward))
    with pytest.raises(RefusedError, match=r"the backward cannot be separated here .*: cut elsewhere"):
        split_capture(cap, f"range:{count}")


def test_a_cut_where_the_forward_has_lost_a_detach_is_refused_by_name() -> None:
    def stopped(x: Tensor) -> Tensor:
        return (x.sin() * x.cos().detach()).exp().sum()

    whole = bp.capture(stopped, torch.randn(3))
    [pair], [detach] = whole.pairs, [s for s in whole.pairs[0].forward.steps if s.target == "aten.detach.default"]
    steps = [step for step in pair.forward.steps if step is not detach]
    steps = [mapped(step, lambda name: detach.args[0] if name == detach.name else Ref(name)) for step in steps]
    results = tuple(detach.args[0] if result == Ref(detach.name) else result for result in pair.forward.results)
    lost = Pair(pair.name, replace(pair.forward, steps=tuple(steps), results=results), pair.backward)
    with pytest.raises(RefusedError, match="computes another gradient of 'x' than the program, which stops it"):
        split_capture(replace(whole, pairs=(lost,)), "range:3")


@pytest.mark.slow
def test_linked_pairs_are_cut_each_by_itself() -> None:
    def broken(x: Tensor) -> Tensor:
        y = (x * 2).sin().exp()
        torch._dynamo.graph_break()
        return (y * x).cos().tanh()

    cap = bp.capture(broken, torch.randn(3, 4), engine="dynamo")
    found = split_capture(cap, "range:2")
    assert [(cutting.pair, cutting.index) for cutting in found.parts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    whole, joined = whole_and_joined(cap, found)
    check_equal(whole.named, joined.named)
    check_equal(whole.gradients, joined.gradients)


def test_a_fake_capture_has_no_values_to_prove_parts_with() -> None:
    cap = bp.capture(nn.Linear(3, 3), torch.randn(2, 3), fake=True)
    with pytest.raises(RefusedError, match="was captured without values"):
        split_capture(cap, "range:1")


# ------------------------------------------------------------------ as a verb of a corpus run


@pytest.mark.slow
def test_a_split_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bp.save(bp.capture(nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(2, 3)), tmp_path / "in" / name)
    arguments = [
        "corpus",
        "run",
        "split",
        str(tmp_path / "in"),
        "-o",
        str(tmp_path / "out"),
        "--by",
        "range:2",
        "--jobs",
        "1",
    ]
    first = CliRunner().invoke(main, [*arguments, "--timeout", "100", "--json"])
    assert (first.exit_code, len(first.stdout.splitlines())) == (0, 4), first.output
    with Ledger.reading(tmp_path / "out") as ledger:
        rows = list(ledger.rows())
    assert [(row["id"], row["verdict"], row["detail"]) for row in rows] == [
        (name, "bitwise", "2 parts, 2 written") for name in ("a", "b")
    ]
    again = CliRunner().invoke(main, [*arguments, "--json"])
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    with Ledger.reading(tmp_path / "out") as ledger:
        assert list(ledger.rows()) == rows
    with Ledger.reading(tmp_path / "out") as ledger:
        assert list(ledger.rows()) == rows
    [part] = {Path(json.loads(line)["part"]).name for line in first.stdout.splitlines()[:1]}
    assert bp.load(tmp_path / "out" / "a" / part).why[1] == SLICED


def test_what_is_wrong_with_how_to_cut_is_wrong_usage(tmp_path: Path) -> None:
    bp.save(net(), tmp_path / "net")
    done = CliRunner().invoke(
        main, ["corpus", "run", "split", str(tmp_path / "net"), "-o", str(tmp_path / "o"), "--by", "x:2"]
    )
    assert (done.exit_code, "'x' is not one of range" in " ".join(done.stderr.split())) == (2, True)
    assert not (tmp_path / "o").exists()


# ------------------------------------------------------------------ by what repeats


class Attention(nn.Module):
    """A layer of a language model: normed attention and a gated product, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.gate, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)))


class Language(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed, self.layers = nn.Embedding(11, 8), nn.ModuleList(Attention() for _ in range(depth))
        self.head = nn.Linear(8, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


def language(depth: int = 5, engine: str = "auto") -> Capture:
    torch.manual_seed(0)
    return bp.capture(Language(depth), torch.randint(0, 11, (2, 6)), engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["aot", "eager"])
def test_what_repeats_is_cut_out_once(engine: str) -> None:
    cap = language(engine=engine)
    found = split_capture(cap, "fold")
    wanted = [part for part in found.parts if part.wanted]
    layers = [part for part in wanted if part.label.startswith("layers.")]
    assert sum(part.count for part in layers) == 5
    assert len(layers) <= 2  # the first may save what the others do not
    assert {part.verdict.verdict for part in found.parts} == {"bitwise"}
    assert all(part.capture.why[1] == SLICED for part in layers)
    assert all(part.count == 1 for part in found.parts if part not in layers)
    whole, joined = whole_and_joined(cap, found)
    assert torch.equal(whole.outputs, joined.outputs)
    check_equal(whole.gradients, joined.gradients)


@pytest.mark.slow
def test_its_parts_are_samples_with_their_count(tmp_path: Path) -> None:
    language().save(tmp_path / "corpus" / "small", power="none")
    language(7).save(tmp_path / "corpus" / "tall", power="none")
    out = tmp_path / "parts"
    given = [
        "corpus",
        "run",
        "split",
        str(tmp_path / "corpus"),
        "-o",
        str(out),
        "--by",
        "fold",
        "--jobs",
        "1",
    ]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    rows = list(all_parts(out))
    counts = {
        name: sum(row["count"] for row in rows if row["sample"] == name and row["label"].startswith("layers."))
        for name in ("small", "tall")
    }
    assert counts == {"small": 5, "tall": 7}
    for place in (row["part"] for row in rows):
        assert [verdict.verdict for verdict in bp.verify(bp.load(place))] == ["bitwise"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "said"), [("fold", "no steps of this forward repeat as a loop"), ("fold:3", "nothing after a colon")]
)
def test_a_forward_without_loops_is_not_cut_by_them(by: str, said: str) -> None:
    with pytest.raises(bp.errors.UsageError, match=said):
        split_capture(CAPTURES["shaped"](), by)
