"""Where a forward is cut, what the pieces take and give, and graphs at the sizes of their capture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from face import (
    HEADER,
    Capture,
    Graph,
    GraphError,
    Port,
    Ref,
    RefusedError,
    ScalarSpec,
    Step,
    TensorSpec,
    UsageError,
    cut_forward,
    names_at_borders,
    operator,
    parse,
    part_of_each_value,
    plan,
    with_constant_sizes,
    with_tensor_results_only,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.norm(self.conv(x)))


@pytest.fixture(scope="module")
def blocks() -> Capture:
    torch.manual_seed(0)
    return bp.capture(nn.Sequential(Block(), Block(), nn.Flatten(), nn.Linear(64, 3)).train(), torch.randn(2, 4, 4, 4))


def spans(graph: Graph, by: str) -> list[tuple[int, int]]:
    """The pieces that were asked for; all together are the forward, in order."""
    pieces = plan(graph, by)
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].stop) == (0, len(graph.steps))
    return [(piece.start, piece.stop) for piece in pieces if piece.wanted]


def names(graph: Graph, span: tuple[int, int]) -> list[str]:
    return [operator(step) for step in graph.steps[slice(*span)]]


def test_named_ranges_alone_are_wanted(blocks: Capture) -> None:
    graph = blocks.pairs[0].forward
    assert spans(graph, "ranges:2-4,6-9") == [(2, 4), (6, 9)]
    assert len(plan(graph, "ranges:2-4,6-9")) == 5


def test_operators_are_found_by_what_takes_what(blocks: Capture) -> None:
    graph = blocks.pairs[0].forward
    found = spans(graph, "operators:convolution,native_batch_norm,relu")
    assert len(found) == 2
    for span in found:
        inside = names(graph, span)
        assert inside[0] == "convolution"
        assert "relu" in inside
        assert any(name.startswith("native_batch_norm") for name in inside)


def test_sequences_that_repeat_are_found_by_themselves(blocks: Capture) -> None:
    graph = blocks.pairs[0].forward
    found = [piece for piece in plan(graph, "operators") if piece.wanted]
    assert len(found) == 2
    assert found[0].label == found[1].label
    assert found[0].label.startswith("convolution,add,")


def test_modules_give_pieces_of_their_own(blocks: Capture) -> None:
    graph = blocks.pairs[0].forward
    assert [piece.label for piece in plan(graph, "module:1")] == ["0", "1", "2", "3"]
    assert [piece.label for piece in plan(graph, "module")][:4] == ["0.conv", "0.norm", "0", "1.conv"]


def test_the_fewest_bytes_cross_a_cut_by_what_is_saved() -> None:
    def narrow(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return ((x @ w).tanh() @ v).sin().cos()

    cap = bp.capture(narrow, torch.randn(8, 64), torch.randn(64, 2), torch.randn(2, 64))
    graph = cap.pairs[0].forward
    pieces = plan(graph, "saved:2")
    cut = pieces[1].start
    made = {step.name: step for step in graph.steps[:cut]}
    taken = {name for part in cut_forward(graph, [cut])[1:] for name in part.takes if name in made}
    assert all(isinstance(made[name].spec, TensorSpec) and made[name].spec.shape == (8, 2) for name in taken)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("half", "'half' is not one of range, ranges, operators, module, fold, saved"),
        ("range:0", "expected a whole number from 1"),
        ("range:many", "expected a whole number from 1"),
        ("ranges:5-3", "'5-3' is not a range of the"),
        ("ranges:0-4,3-6", "steps 3-6 overlap"),
        ("operators:softmax,mm", "the forward has no softmax, mm that take each other's results"),
        ("module:x", "expected a whole number from 1 to 64"),
    ],
)
def test_what_cannot_be_cut_so_is_refused_by_name(blocks: Capture, by: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(blocks.pairs[0].forward, by)


def test_a_forward_without_modules_says_how_else_it_can_be_cut() -> None:
    cap = bp.capture(lambda x: x.sin().cos(), torch.randn(3))
    with pytest.raises(UsageError, match="come from one module; cut it by range or saved"):
        plan(cap.pairs[0].forward, "module")


# ------------------------------------------------------------------ parts of a forward


def test_a_view_of_an_input_is_where_it_is_taken() -> None:
    cap = bp.capture(nn.Sequential(nn.Tanh(), nn.Linear(4, 3), nn.Tanh()), torch.randn(2, 4))
    graph = cap.pairs[0].forward
    assert [operator(step) for step in graph.steps][-2:] == ["addmm", "tanh"]
    number = len(graph.steps) - 2
    [view] = [step.name for step in graph.steps if operator(step) == "t"]
    first, second = cut_forward(graph, [number])
    assert part_of_each_value(graph, [0, number, len(graph.steps)])[view] == 1
    assert view not in first.gives
    assert "1.weight" in {names_at_borders(graph, [first, second]).of(local) for local in second.takes}


def test_a_value_in_place_is_not_parted_from_its_update() -> None:
    spec = TensorSpec("float32", (3,))
    steps = (
        Step("a", "aten.sin.default", (Ref("x"),), (), spec),
        Step("b", "aten.add_.Tensor", (Ref("a"), 1), (), spec),
        Step("c", "aten.cos.default", (Ref("a"),), (), spec),
    )
    graph = Graph((Port("x", "input", spec, "x"),), steps, (Port("y", "output", spec),), (Ref("c"),))
    assert len(cut_forward(graph, [2])) == 2
    with pytest.raises(RefusedError, match=r"a cut between 'a' and step 'b' \(aten.add_.Tensor\), which changes it"):
        cut_forward(graph, [1])


ALLOCATED = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[2, 3] input x") -> ("f32[2, 3] output y",):
        mask: "f32[2, 3]" = aten.empty_like.default(x)
        sin: "f32[2, 3]" = aten.sin.default(x)
        drawn: "f32[2, 3]" = aten.bernoulli.p(mask, 0.5)
        rows: "f32[2, 3]" = aten.empty.memory_format([2, 3])
        row: "f32[3]" = aten.select.int(sin, 0, 0)
        first: "f32[2, 3]" = aten.select_scatter.default(rows, row, 0, 0)
        cos: "f32[2, 3]" = aten.cos.default(sin)
        other: "f32[3]" = aten.select.int(cos, 0, 1)
        both: "f32[2, 3]" = aten.select_scatter.default(first, other, 0, 1)
        wide: "f32[3, 3]" = aten.resize.default(both, [3, 3])
        exp: "f32[2, 3]" = aten.exp.default(both)
        part: "f32[2, 3]" = aten.slice.Tensor(wide, 0, 0, 2)
        full: "f32[2, 3]" = aten.copy.default(part, exp)
        added: "f32[2, 3]" = aten.add.Tensor(full, drawn)
        return (added,)
"""


@pytest.fixture(scope="module")
def allocated() -> Graph:
    return parse(HEADER + ALLOCATED.replace("output y", "output added"))


def test_memory_that_is_not_initialised_crosses_no_border(allocated: Graph) -> None:
    for cut in range(1, 14):
        left, right = cut_forward(allocated, [cut])
        assert not {"mask", "rows", "first", "wide"} & {*left.gives, *right.takes}, cut
        steps = [step.name for step in (*left.steps, *right.steps)]
        assert sorted(steps) == sorted(step.name for step in allocated.steps), cut


def test_what_is_read_before_it_is_whole_is_refused(allocated: Graph) -> None:
    early = Step("early", "aten.select.int", (Ref("first"), 0, 0), (), TensorSpec("float32", (3,)))
    used = Step("used", "aten.tan.default", (Ref("early"),), (), TensorSpec("float32", (3,)))
    steps = (*allocated.steps[:6], early, used, *allocated.steps[6:])
    graph = replace(
        allocated,
        steps=steps,
        outputs=(*allocated.outputs, Port("used", "output", used.spec)),
        results=(*allocated.results, Ref("used")),
    )
    with pytest.raises(RefusedError, match="a cut between 'first', whose elements are not all written yet"):
        cut_forward(graph, [8])


IN_PLACE = """
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[2, 3] input x") -> ("f32[2, 3] output y",):
        rows: "f32[2, 3]" = aten.empty_like.default(x)
        sin: "f32[2, 3]" = aten.sin.default(x)
        view: "f32[3]" = aten.select.int(rows, 0, 0)
        row: "f32[3]" = aten.select.int(sin, 0, 0)
        copy: "f32[3]" = aten.copy_.default(view, row)
        view_1: "f32[3]" = aten.select.int(rows, 0, 1)
        zero: "f32[3]" = aten.zero_.default(view_1)
        cos: "f32[2, 3]" = aten.cos.default(rows)
        return (cos,)
"""


def test_memory_that_is_filled_in_place_is_not_parted_from_what_fills_it() -> None:
    graph = parse(HEADER + IN_PLACE.replace("output y", "output cos"))
    for cut in (1, 2, 3, 4):
        assert "rows" not in cut_forward(graph, [cut])[0].gives
    for cut in (5, 6):
        with pytest.raises(RefusedError, match=r"a cut between 'rows' and step 'zero' \(aten.zero_.default\)"):
            cut_forward(graph, [cut])
    assert cut_forward(graph, [7])[0].gives == ("rows",)


# ------------------------------------------------------------------ sizes


def sizes(graph: Graph) -> list[Any]:
    ports = (*graph.inputs, *graph.outputs)
    return [port for port in ports if isinstance(port.spec, ScalarSpec)]


@pytest.mark.slow
def test_a_dynamic_graph_at_its_capture_has_numbers_for_sizes() -> None:
    def shaped(x: Tensor) -> Tensor:
        return F.pad(x.view(x.shape[0], -1, 2).repeat(1, x.shape[0], 1).cumsum(1), (0, x.shape[1])).sin()

    x = torch.randn(3, 8)
    cap = bp.capture(shaped, x, dynamic=True)
    pair = cap.pairs[0]
    assert pair.backward is not None
    assert pair.forward.symbols
    assert sizes(pair.backward)
    for graph in (pair.forward, pair.backward):
        fixed = with_constant_sizes(graph)
        assert not fixed.symbols
        assert not sizes(with_tensor_results_only(fixed))
        assert parse(fixed.code) == fixed
    fixed = with_constant_sizes(pair.forward)
    first = [value for value in bp.run(pair.forward, {"x": x}) if isinstance(value, Tensor)]
    assert all(map(torch.equal, first, bp.run(with_tensor_results_only(fixed), {"x": x})))
    with pytest.raises(GraphError, match="by the captured sizes first"):
        cut_forward(pair.forward, [1])
