"""A Diff says what was edited, and nothing else; equal hashes are no differences, and other hashes always are."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from subjects.graph_edits import edited, shuffled, with_other_names
from subjects.random_graphs import anything
from torch import Tensor, nn

import backprint as bp
from face import Capture, Diff, Graph, GraphDiff, Pair, Port, Ref, Source, Step, TensorSpec, UsageError


class Block(nn.Module):
    def __init__(self, act: str, scaled: bool, name: str, drop: float) -> None:
        super().__init__()
        self.norm, self.name = nn.LayerNorm(8), name
        self.add_module(name, nn.Linear(8, 24))
        self.up, self.down, self.drop = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(drop)
        self.act, self.scaled = getattr(torch.nn.functional, act), scaled

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = getattr(self, self.name)(self.norm(x)).chunk(3, -1)
        weights = q @ k.transpose(-1, -2)
        weights = weights / 8**0.5 if self.scaled else weights
        x = x + weights.softmax(-1) @ v
        return x + self.drop(self.down(self.act(self.up(x))))


class Net(nn.Module):
    def __init__(
        self, act: str = "silu", scaled: bool = True, name: str = "attention", drop: float = 0.0, count: int = 3
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(act, scaled, name, drop) for _ in range(count))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@cache
def captured(engine: str = "aot", partition: str = "min-cut", size: int = 4, **options: object) -> Capture:
    torch.manual_seed(0)
    net = Net(**options)  # type: ignore[arg-type]  # the options of a Net
    extra = {"partition": partition} if engine == "aot" else {}
    return bp.capture(net, torch.ones(2, size, 8), engine=engine, **extra)


def changes_of(graph: GraphDiff) -> list[tuple[str, tuple[str, ...]]]:
    return [(change.kind, change.parts) for change in graph.changes]


def of_graphs(before: Graph, after: Graph) -> GraphDiff:
    """Of two graphs whose saved values have one name on both sides, as those of one Pair have."""
    ends = [replace(captured(), pairs=(Pair("p", graph),)) for graph in (before, after)]
    return bp.diff.compare(*ends).pairs[0].graphs[0]


# ------------------------------------------------------------------ what a person edits


@pytest.mark.slow
def test_another_activation_is_one_change_a_layer_and_its_backward() -> None:
    diff = bp.diff.compare(captured(), captured(act="gelu"))
    forward, backward = diff.pairs[0].graphs
    assert changes_of(forward) == [("changed", ("operator",))] * 3
    assert {part for _, part in changes_of(backward)} == {("operator",)}
    text = str(diff)
    assert "in layers.{0..2} (× 3):\n    ~ silu -> gelu\n" in text
    assert "~ silu_backward -> gelu_backward" in text
    assert len(text.splitlines()) < 16


@pytest.mark.slow
def test_a_missing_division_is_one_step_and_what_takes_it() -> None:
    diff = bp.diff.compare(captured(scaled=False), captured())
    assert changes_of(diff.pairs[0].graphs[0]).count(("added", ())) == 3
    assert "+ div(" in str(diff)
    assert "~ _softmax takes div, not" in str(diff)


def test_a_renamed_module_is_no_difference_and_is_told() -> None:
    diff = bp.diff.compare(captured(), captured(name="mixer"))
    assert diff.same
    assert all(port.kind == "renamed" for graph in diff.pairs[0].graphs for port in graph.ports)
    assert "~ layers.{0..2}.mixer.weight (× 3): parameter, before: attention" in str(diff)
    assert "~ module layers.{0..2}.mixer, before: layers.{0..2}.attention" in str(diff)
    assert str(diff).startswith("no differences between the graphs (equal hashes); modules have other names\n")


@pytest.mark.slow
def test_more_layers_are_whole_modules() -> None:
    diff = bp.diff.compare(captured(), captured(count=5))
    assert "in layers.{3..4} (× 2):\n    + the whole module, " in str(diff)
    assert {change.kind for change in bp.diff.compare(captured(count=5), captured()).pairs[0].graphs[0].changes} == {
        "removed",
        "changed",
    }


def test_dropout_adds_saved_bytes() -> None:
    diff = bp.diff.compare(captured(engine="eager"), captured(engine="eager", drop=0.5))
    saved = diff.pairs[0].saved_bytes
    assert saved.after - saved.before == 3 * 2 * 4 * 8 * 4  # a mask of float32 a layer
    assert str(diff).startswith("saved for backward ")
    assert "in layers.{0..2}.drop (× 3):\n    + the whole module, 5 steps" in str(diff)


@pytest.mark.parametrize("other", [{"partition": "default"}, {"engine": "eager"}])
def test_another_partition_or_engine_is_what_is_saved(other: dict[str, str]) -> None:
    diff = bp.diff.compare(captured(), captured(**other))
    assert not diff.same
    assert {port.kind for port in diff.pairs[0].graphs[0].ports} >= {"added"}
    assert [fact.name for fact in diff.facts] == (["engine"] if "engine" in other else [])


def test_a_forward_alone_has_no_backward() -> None:
    whole = captured(engine="eager")
    diff = bp.diff.compare(whole, replace(whole, pairs=(Pair("p", whole.pairs[0].forward),)))
    backward = diff.pairs[0].graphs[1]
    assert backward.hashes[1] == ""
    assert {change.kind for change in backward.changes} == {"removed"}
    assert "backward: only before, " in str(diff)
    assert json.loads(json.dumps(diff.to_json()))["pairs"][0]["backward"]["steps"][1] is None


def test_other_sizes_alone_are_said_to_be_sizes() -> None:
    forward = bp.diff.compare(captured(), captured(size=6)).pairs[0].graphs[0]
    assert forward.only_sizes
    assert "forward: only sizes differ: " in str(bp.diff.compare(captured(), captured(size=6)))
    assert len(forward.steps) == len(captured().pairs[0].forward.steps)
    assert ("changed", ("type",)) in [(port.kind, port.parts) for port in forward.ports]


def test_symbolic_sizes_are_matched_by_their_place() -> None:
    def dynamic(scale: float) -> Capture:
        return bp.capture(lambda x, w: (x * scale) @ w, torch.ones(3, 4), torch.ones(4, 5), dynamic=True, engine="aot")

    assert bp.diff.compare(dynamic(2.0), dynamic(2.0)).same
    diff = bp.diff.compare(dynamic(2.0), dynamic(3.0))
    assert changes_of(diff.pairs[0].graphs[0]) == [("changed", ("arguments",))]
    assert "mul(x, 2.0) -> mul(x, 3.0)" in str(diff)


# ------------------------------------------------------------------ random edits


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_random_edits_are_found_exactly_whatever_the_names_and_the_order(direction: str, seed: int) -> None:
    draw = random.Random(seed)
    base = getattr(captured().pairs[0], direction)
    # the backward takes what is saved under the forward's names; as inputs, they are matched by name
    base = replace(base, inputs=tuple(replace(p, role="input") if p.role == "saved" else p for p in base.inputs))
    made = edited(base, draw.randrange(1, 4), draw)
    after, old = with_other_names(shuffled(made.graph, draw))
    found = of_graphs(base, after)
    said = {
        (
            change.kind,
            base.steps[change.before].name if change.before is not None else "",
            old[after.steps[change.after].name] if change.after is not None else "",
        )
        for change in found.changes
    }
    assert said == made.changes
    assert not found.same


@pytest.mark.parametrize("seed", range(4))
def test_another_order_and_other_names_are_no_difference(seed: int) -> None:
    base = captured().pairs[0].forward
    after, old = with_other_names(shuffled(base, random.Random(seed)))
    found = of_graphs(base, after)
    assert found.same
    assert (found.changes, found.ports, found.orders) == ((), (), ())
    assert found.moved
    assert all(base.steps[a].name == old[after.steps[b].name] for a, b in found.steps)


# ------------------------------------------------------------------ the truth of it


def check_truth(diff: Diff) -> None:
    """What a Diff calls the same has equal hashes; of what has not, it names a difference."""
    for graph in (graph for pair in diff.pairs for graph in pair.graphs):
        assert graph.same == (graph.hashes[0] == graph.hashes[1])
        told = graph.changes or graph.orders
        assert not told if graph.same else told or graph.ports
        for side in zip(*graph.steps, strict=True):
            assert len(set(side)) == len(side)
    assert ("no differences" in str(diff)) == diff.same
    json.dumps(diff.to_json())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(anything(), anything())
def test_any_two_graphs(before: Graph, after: Graph) -> None:
    one, two = (replace(captured(), pairs=(Pair("p", graph),)) for graph in (before, after))
    check_truth(bp.diff.compare(one, two))
    same = bp.diff.compare(one, one)
    check_truth(same)
    assert same.same
    graph = same.pairs[0].graphs[0]
    assert (same.facts, graph.ports, graph.changes) == ((), (), ())
    assert bp.diff.compare(one, two).same == (before.hash() == after.hash())


FLOAT = TensorSpec("float32", (2,))


def chain(*targets: str, module: str = "") -> Graph:
    source = Source("f.py", 1, "f", "c", module) if module else None
    steps = [
        Step(f"s{at}", name, (Ref(f"s{at - 1}" if at else "x"),), (), FLOAT, source) for at, name in enumerate(targets)
    ]
    last = Ref(steps[-1].name if steps else "x")
    return Graph((Port("x", "input", FLOAT, "x"),), tuple(steps), (Port("y", "output", FLOAT),), (last,))


def draws(*order: str) -> Graph:
    """Two random draws, which are effects, in an order."""
    steps = {
        name: Step(name, "aten.bernoulli.p", (Ref("x"), odds), (), FLOAT) for name, odds in (("a", 0.2), ("b", 0.4))
    }
    ports = tuple(Port(name, "output", FLOAT) for name in ("a", "b"))
    return Graph((Port("x", "input", FLOAT, "x"),), tuple(steps[name] for name in order), ports, (Ref("a"), Ref("b")))


def test_an_order_that_counts_is_told() -> None:
    found = of_graphs(draws("a", "b"), draws("b", "a"))
    assert (found.same, found.changes, found.orders) == (False, (), ("the steps with effects run in another order",))


def test_outputs_in_another_order_are_told() -> None:
    base = draws("a", "b")
    other = replace(base, outputs=base.outputs[::-1], results=base.results[::-1])
    assert of_graphs(base, other).orders == ("the outputs stand in another order",)


def test_graphs_of_one_step_and_of_none() -> None:
    assert changes_of(of_graphs(chain("aten.sin.default"), chain("aten.cos.default"))) == [("changed", ("operator",))]
    assert [kind for kind, _ in changes_of(of_graphs(chain(), chain("aten.cos.default")))] == ["added"]
    assert of_graphs(chain(), chain()).same


def test_a_row_of_replaced_steps_is_changed_one_by_one() -> None:
    found = of_graphs(chain(*["aten.sin.default"] * 40), chain(*["aten.cos.default"] * 40))
    assert changes_of(found) == [("changed", ("operator",))] * 40


def test_true_is_not_one_and_zero_is_not_minus_zero() -> None:
    def constant(value: object) -> Graph:
        base = chain("aten.add.Tensor")
        return replace(base, steps=(replace(base.steps[0], args=(Ref("x"), value)),))  # type: ignore[arg-type]  # numbers

    for one, two in ((True, 1), (1, 1.0), (0.0, -0.0)):
        assert changes_of(of_graphs(constant(one), constant(two))) == [("changed", ("arguments",))]
    assert of_graphs(constant(float("nan")), constant(float("nan"))).same


def test_pairs_are_aligned_by_their_graphs() -> None:
    graphs = [chain(*["aten.sin.default"] * count) for count in (1, 2, 3)]
    before = replace(captured(), pairs=tuple(Pair(f"p{at}", graph) for at, graph in enumerate(graphs)))
    after = replace(before, pairs=before.pairs[1:])
    diff = bp.diff.compare(before, after)
    assert [(pair.before, pair.after, pair.same) for pair in diff.pairs] == [
        (0, None, False),
        (1, 0, True),
        (2, 1, True),
    ]
    assert "pair 0: only before, 1 step" in str(diff)
    check_truth(diff)


def test_names_of_strangers_are_escaped() -> None:
    evil = "a\x1b[31m\u202e"
    diff = bp.diff.compare(
        *(
            replace(captured(), name=evil, pairs=(Pair("p", chain(name, module=evil)),))
            for name in ("aten.sin.default", "aten.cos.default")
        )
    )
    assert "".join(str(diff).split("\n")).isprintable()


def test_what_is_neither_capture_nor_folder_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"bp.diff.compare: the second argument is a int; it must be a Capture or the folder"
    ):
        bp.diff.compare(captured(), 3)  # type: ignore[arg-type]  # the mistake


def test_its_repr_is_short() -> None:
    assert repr(bp.diff.compare(captured(), captured())) == "Diff('Net', 'Net', same=True)"


# ------------------------------------------------------------------ a wrapper and a checkpoint at once


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
        return output


class Stack(nn.Module):
    def __init__(self, wrapped: bool) -> None:
        super().__init__()
        blocks = [Mlp() for _ in range(4)]
        self.blocks = nn.ModuleList(Checkpointed(block) for block in blocks) if wrapped else nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum()


def test_the_modules_of_a_backward_are_paired_as_those_of_its_forward() -> None:
    x = torch.ones(2, 8)
    diff = bp.diff.compare(*(bp.capture(Stack(wrapped), x, engine="eager") for wrapped in (False, True)))
    before, after = (capture.pairs[0].backward for capture in (diff.before, diff.after))
    assert before is not None
    assert after is not None
    graph = diff.pairs[0].graphs[1]
    for a, b in graph.steps:
        left, right = before.steps[a].source, after.steps[b].source
        assert left is not None
        assert right is not None
        assert right.module.replace(".inner", "") == left.module
    assert all(change.recomputed for change in graph.changes)
    steps = len([change for change in graph.changes if change.kind == "added"]) // 4
    answer = str(diff).splitlines()[0]
    assert answer.startswith("saved for backward ")
    assert f"backward recomputes {steps} steps of each of 4 blocks (blocks.{{0..3}})" in answer


def test_the_first_line_is_the_answer() -> None:
    def scaled(factor: float) -> Capture:
        return bp.capture(lambda x: (x * factor).sin(), torch.ones(2, requires_grad=True))

    assert str(bp.diff.compare(scaled(2.0), scaled(2.0))).splitlines()[0].startswith("no differences")
    first = str(bp.diff.compare(scaled(2.0), scaled(3.0))).splitlines()[0]
    assert first == "forward ~ mul(x, 2.0) -> mul(x, 3.0); backward ~ mul(mul, 2.0) -> mul(mul, 3.0)"
