"""A picture: boxes do not overlap, the forward runs down, the backward up, and every format says the same."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from subjects.drawn import drawn_loop, drawn_net
from torch import Tensor

import backprint as bp
from face import (
    FORMATS,
    WIDE,
    WIDEST,
    Area,
    DrawnBox,
    Graph,
    Pair,
    PairPicture,
    Port,
    Ref,
    Source,
    Step,
    TensorSpec,
    UsageError,
    area_of,
    boxes_and_titles,
    curves_of,
    drawn_pair,
    frame_unit,
    frames_to_open,
    labels_of,
    main,
    picture_of,
    point_on,
    svg_of,
)

SVG = "{http://www.w3.org/2000/svg}"


def test_values_flow_from_the_last_writer_to_the_next_reader() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        y = x @ w
        y.mul_(0.5)
        y[0].mul_(2)
        y += 1
        return y.sum()

    torch.manual_seed(0)
    capture = bp.capture(program, torch.randn(4, 4), torch.randn(4, 4), functional=False)
    scene = drawn_pair(capture.pairs[0]).scene
    forward = scene.nodes[: scene.forward]
    names = [node.target.split(".")[1] for node in forward]
    assert names == ["mm", "mul_", "select", "mul_", "add_", "sum"]
    assert [node.inputs for node in forward[1:]] == [(0,), (1,), (2,), (3,), (4,)]


def whole(capture: bp.Capture) -> PairPicture:
    drawn = drawn_pair(capture.pairs[0])
    return picture_of(drawn, range(len(drawn.frames)))


def are_apart(one: DrawnBox, other: DrawnBox) -> bool:
    across = one.x + one.width <= other.x or other.x + other.width <= one.x
    return across or one.bottom <= other.y or other.bottom <= one.y


def is_inside(inner: DrawnBox, outer: DrawnBox) -> bool:
    across = outer.x <= inner.x and inner.x + inner.width <= outer.x + outer.width
    return across and outer.y <= inner.y and inner.bottom <= outer.bottom


@pytest.mark.parametrize("capture", [drawn_net, drawn_loop])
def test_boxes_stand_in_their_frame_and_apart_from_one_another(capture: Callable[[], bp.Capture]) -> None:
    picture = whole(capture())
    boxes = {box.unit: box for box in picture.boxes}
    assert len(boxes) == len(picture.boxes)
    for number, frame in enumerate(picture.drawn.frames):
        inner = [boxes[unit] for unit in frame.units if unit in boxes]
        assert all(is_inside(box, boxes[frame_unit(number)]) for box in inner)
        assert all(are_apart(one, other) for one, other in combinations(inner, 2))


@pytest.mark.parametrize("capture", [drawn_net, drawn_loop])
def test_a_text_covers_no_box_and_no_other_text(capture: Callable[[], bp.Capture]) -> None:
    picture = whole(capture())
    texts = [area_of(label) for label in labels_of(picture)]
    boxes = list(boxes_and_titles(picture))
    assert texts
    assert not any(overlap(one, other) for one, other in combinations(texts, 2))
    assert not any(overlap(text, box) for text in texts for box in boxes)


def overlap(one: Area, other: Area) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@pytest.mark.parametrize("capture", [drawn_net, drawn_loop])
def test_what_is_saved_passes_behind_no_step(capture: Callable[[], bp.Capture]) -> None:
    picture = whole(capture())
    steps = [box for box in picture.boxes if box.unit >= 0]
    bridges = [line for line in picture.lines if line.kind == "saved"]
    assert bridges
    for line in bridges:
        points = [point_on(curve, share / 20) for curve in curves_of(line) for share in range(21)]
        assert not [
            box
            for box in steps
            for x, y in points
            if box.x + 1 < x < box.x + box.width - 1 and box.y + 1 < y < box.bottom - 1
        ]


def test_the_bytes_of_what_is_saved_stand_once_for_each_tensor() -> None:
    picture = whole(bp.capture(lambda x: x.exp().sin() * 2, torch.randn(64, requires_grad=True), partition="default"))
    twice = whole(bp.capture(lambda x: (x.tanh() * x).sin(), torch.randn(64, requires_grad=True)))
    for each in (picture, twice):
        texts = [line.text for line in each.lines if line.kind == "saved" and line.text]
        assert texts == ["256 B"] * len({saved.bridge.made for saved in each.drawn.saved if saved.own})


def branches(x: Tensor) -> Tensor:
    return torch.cat([make(x) for make in (torch.sin, torch.cos, torch.tanh, torch.exp, torch.abs, torch.erf)])


def test_a_row_has_at_most_four_steps_of_a_side_and_no_frame_beside_steps() -> None:
    for capture in (drawn_net(4), drawn_loop(), bp.capture(branches, torch.randn(3, requires_grad=True))):
        rows = [row for layout in drawn_pair(capture.pairs[0]).layouts for row in layout.rows]
        assert all(max(map(len, (row.left, row.frames, row.right))) <= WIDE for row in rows)
        assert not any(row.frames and (row.left or row.right) for row in rows)


def test_what_no_flow_reaches_stands_outside_the_lane_of_what_one_does() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.BatchNorm2d(2), torch.nn.ReLU())
    picture = whole(bp.capture(net, torch.randn(2, 2, 4, 4)))
    nodes = picture.drawn.scene.nodes
    [count] = [box for box in picture.boxes if box.unit >= 0 and nodes[box.unit].target == "aten.add.Tensor"]
    [norm] = [box for box in picture.boxes if box.unit >= 0 and "batch_norm_legit" in nodes[box.unit].target]
    assert (count.y, count.x + count.width < norm.x) == (norm.y, True)


def test_a_flow_of_the_main_lane_is_straight() -> None:
    picture = whole(bp.capture(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), torch.randn(2, 3)))
    lanes = {point[0] for line in picture.lines if line.kind == "forward" for point in line.points}
    assert len(lanes) == 1


class Branches(torch.nn.Module):
    """Three layers of other widths side by side, on a value that is needed again below them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        ends = (torch.nn.Tanh(),), (torch.nn.LayerNorm(4), torch.nn.GELU()), (torch.nn.Sigmoid(), torch.nn.Tanh())
        self.ways = torch.nn.ModuleList(torch.nn.Sequential(torch.nn.Linear(4, 4), *end) for end in ends)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).exp()
        return torch.stack([way(x) for way in self.ways]).sum(0) * x.sin()


class TwoEmbeddings(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(5, 4), torch.nn.Embedding(6, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return (self.words(ids) + self.places(torch.arange(ids.shape[1]))).tanh()


TWO_SIDES = {
    "embeddings": (TwoEmbeddings, torch.ones(2, 3, dtype=torch.int64)),
    "branches": (Branches, torch.ones(2, 4)),
}


@pytest.mark.parametrize("name", TWO_SIDES)
def test_the_backward_stands_on_its_own_side(name: str) -> None:
    make, x = TWO_SIDES[name]
    picture = whole(bp.capture(make(), x))
    [program] = [box for box in picture.boxes if box.unit == frame_unit(0)]
    sides: dict[int, list[bool]] = {0: [], 1: []}
    for box in picture.boxes:
        if box.unit >= 0:
            sides[picture.drawn.scene.nodes[box.unit].side].append(box.x > program.gutter)
    assert all(sides.values())
    assert not any(sides[0])
    assert all(sides[1])


def test_no_line_passes_behind_a_step_of_branches() -> None:
    picture = whole(bp.capture(Branches(), torch.randn(2, 4)))
    steps = [box for box in picture.boxes if box.unit >= 0]
    for line in picture.lines:
        points = [point_on(curve, share / 20) for curve in curves_of(line) for share in range(21)]
        assert not [
            box
            for box in steps
            for x, y in points
            if box.x + 1 < x < box.x + box.width - 1 and box.y + 1 < y < box.bottom - 1
        ]


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return x + self.norm(x)


def test_a_gradient_that_goes_on_stands_in_the_main_lane() -> None:
    picture = whole(bp.capture(Residual(), torch.randn(2, 4)))
    nodes = picture.drawn.scene.nodes
    behind = [box for box in picture.boxes if box.unit >= 0 and nodes[box.unit].side == 1]
    [total] = [box for box in behind if nodes[box.unit].target == "aten.add.Tensor"]
    middle = min(box.x + box.width / 2 for box in behind)
    assert abs(total.x + total.width / 2 - middle) < 1


def test_the_legend_and_the_titles_stay_within_the_picture() -> None:
    for capture in (drawn_net(4), bp.capture(torch.sin, torch.randn(2, requires_grad=True), name="x" * 80)):
        picture = whole(capture)
        tree = ElementTree.fromstring(svg_of(picture))
        width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
        texts = [text for text in tree.iter(f"{SVG}text") if text.attrib["text-anchor"] == "start"]
        assert texts
        assert all(float(text.attrib["y"]) <= height for text in texts)
        assert all(float(text.attrib["x"]) + 4.5 * len(text.text or "") <= width for text in texts)


def test_the_forward_runs_down_and_the_backward_up() -> None:
    picture = whole(drawn_net(4))
    boxes, nodes = {box.unit: box for box in picture.boxes}, picture.drawn.scene.nodes
    down = [
        (boxes[value], boxes[place])
        for place, node in enumerate(nodes)
        if place in boxes
        for value in node.inputs
        if value in boxes and nodes[value].side == node.side
    ]
    assert all(taker.y >= made.bottom for made, taker in down if nodes[made.unit].side == 0)
    assert all(taker.bottom <= made.y for made, taker in down if nodes[made.unit].side == 1)
    assert len(down) > 40


def test_a_step_and_its_gradient_are_beside_one_another() -> None:
    picture = whole(drawn_net(4))
    boxes, nodes = {box.unit: box for box in picture.boxes}, picture.drawn.scene.nodes
    [gelu] = [box for box in picture.boxes if box.unit >= 0 and nodes[box.unit].target == "aten.gelu.default"]
    [back] = [box for box in picture.boxes if box.unit >= 0 and nodes[box.unit].target == "aten.gelu_backward.default"]
    assert gelu.y == back.y
    assert gelu.x + gelu.width < back.x
    assert boxes[gelu.unit].gutter == boxes[back.unit].gutter or gelu.x < back.x


def test_what_is_seen_stays_within_what_is_asked() -> None:
    drawn = drawn_pair(drawn_net(4).pairs[0])
    sizes = []
    for most in (10, 20, 60, 1000):
        picture = picture_of(drawn, frames_to_open(drawn, most))
        sizes.append(sum(not box.is_open for box in picture.boxes))
        assert sizes[-1] <= most
    assert sizes == sorted(sizes)
    assert sizes[-1] > 40


def test_an_svg_has_every_step_that_is_seen_and_its_type(tmp_path: Path) -> None:
    place = drawn_net(4).draw(tmp_path / "net.svg", nodes=1000)
    tree = ElementTree.parse(place)
    titles = [title.text or "" for title in tree.iter(f"{SVG}title")]
    [addmm] = [title for title in titles if title.startswith("addmm\n")]
    assert "aten.addmm.default\nf32[6, 16]" in addmm
    assert any(text.text == "layers.0…3 × 4 · DrawnLayer" for text in tree.iter(f"{SVG}text"))
    assert not list(tree.iter(f"{SVG}script"))
    assert "var(" not in place.read_text()  # many programs that read SVG know no variables


def test_a_bridge_is_as_wide_as_what_is_saved_is_large(tmp_path: Path) -> None:
    def widths(size: int) -> float:
        capture = bp.capture(lambda x: x.tanh(), torch.randn(size, requires_grad=True))
        text = capture.draw(tmp_path / f"{size}.svg").read_text()
        return float(re.findall(r'flow-saved" stroke-width="([\d.]+)"', text)[0])

    assert 1 < widths(1024) < widths(64 * 1024) < widths(1 << 20)


def legend_of(capture: bp.Capture) -> str:
    return svg_of(whole(capture)).splitlines()[-2]


def test_the_legend_has_what_is_in_the_picture() -> None:
    norm = bp.capture(torch.nn.BatchNorm1d(3), torch.randn(2, 3, requires_grad=True))
    assert all(text in legend_of(norm) for text in ("updated in place", "parameter, buffer", "saved for the backward"))
    alone = bp.capture(torch.abs, torch.arange(3))
    assert "forward" in legend_of(alone)
    assert not any(text in legend_of(alone) for text in ("updated in place", "backward", "parameter", "saved", "NaN"))


HOSTILE = '"><script>alert(1)</script>&\\" ]]>\u202eevil'


def hostile_pair() -> Pair:
    spec = TensorSpec("float32", (2,))
    source = Source(HOSTILE, 3, HOSTILE, HOSTILE, f"a.{HOSTILE}")
    step = Step("y", "aten.sin.default", (Ref("x"),), spec=spec, source=source)
    return Pair(
        HOSTILE,
        Graph(
            (Port(HOSTILE.replace("\u202e", ""), "input", spec, "x"),),
            (step,),
            (Port("out", "output", spec),),
            (Ref("y"),),
        ),
    )


@pytest.mark.parametrize("ending", [".svg", ".dot"])
def test_names_of_strangers_stay_text(ending: str) -> None:
    drawn = drawn_pair(hostile_pair())
    text = FORMATS[ending](drawn, HOSTILE, 300, 1.0).decode()
    assert "\u202e" not in text
    if ending == ".svg":
        tree = ElementTree.fromstring(text)
        assert {element.tag.removeprefix(SVG) for element in tree.iter()} <= {
            "svg",
            "title",
            "style",
            "defs",
            "marker",
            "path",
            "rect",
            "text",
            "g",
        }
    else:
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
        assert "script" not in bare
        assert "alert" not in bare


def test_dot_has_clusters_and_the_flows_between_what_is_seen(tmp_path: Path) -> None:
    text = drawn_net(4).draw(tmp_path / "net.dot", nodes=30).read_text()
    assert text.startswith('digraph "DrawnNet" {')
    assert text.rstrip().endswith("}")
    assert text.count("{") == text.count("}")
    named = set(re.findall(r"^\s+([nfp][\d_]+) \[", text, re.MULTILINE))
    ends = {end for pair in re.findall(r"(\w+) -> (\w+)", text) for end in pair}
    assert ends
    assert ends <= named
    assert 'label="layers.0…3 × 4' in text


def test_dot_has_the_flows_of_turns_that_are_not_shown(tmp_path: Path) -> None:
    """A loop shows one turn; what leaves its last turn leaves the one that is shown."""
    text = drawn_net(4).draw(tmp_path / "net.dot", nodes=1000).read_text()
    nodes = drawn_pair(drawn_net(4).pairs[0]).scene.nodes
    linked = {frozenset(pair) for pair in re.findall(r"n(\d+) -> n(\d+)", text)}
    [head] = [str(place) for place, node in enumerate(nodes) if node.target == "aten._log_softmax.default"]
    neighbours = {head}
    for _ in nodes:
        neighbours |= {each for pair in linked if pair & neighbours for each in pair}
    shown = set(re.findall(r"^ +n(\d+) \[", text, re.MULTILINE))
    [update] = [
        str(place) for place, node in enumerate(nodes) if "calls.add_" in (node.source.code if node.source else "")
    ]
    assert shown - {update} <= neighbours
    assert {"∂weight", "weight", "ids"} <= set(re.findall(r'p\d+_\d+ \[label="([^"]*)"', text))


def test_a_png_is_as_large_as_the_picture_times_the_scale(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="resvg-py, the extra png, is not installed")
    capture = drawn_net(4)
    picture = ElementTree.parse(capture.draw(tmp_path / "net.svg")).getroot()
    content = capture.draw(tmp_path / "net.png", scale=1.0).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert abs(int.from_bytes(content[16:20], "big") - int(picture.attrib["width"])) <= 1


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends with \.svg, \.dot, \.png, not with '\.jpg'"):
        drawn_net(4).draw(tmp_path / "net.jpg")
    with pytest.raises(UsageError, match="and this has no ending"):
        drawn_net(4).draw(tmp_path / "net")
    with pytest.raises(UsageError, match="NUL"):
        drawn_net(4).draw(tmp_path / "net\0.svg")
    with pytest.raises(UsageError, match=r"named? .*page\.html"):
        drawn_net(4).view(tmp_path / "net.txt")
    for odd in ({"scale": 0}, {"scale": float("nan")}, {"nodes": 0}, {"nodes": 2.5}, {"nodes": True}, {"pair": "0"}):
        with pytest.raises(UsageError, match=r"must be a (whole )?number"):
            drawn_net(4).draw(tmp_path / "net.svg", **odd)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="there is no pair 1"):
        drawn_net(4).draw(tmp_path / "net.svg", pair=1)
    assert list(tmp_path.iterdir()) == []


def test_one_direction_one_step_and_none(tmp_path: Path) -> None:
    def one(x: Tensor) -> Tensor:
        return x.sin()

    alone = bp.capture(one, torch.arange(3), name="whole")
    assert alone.pairs[0].backward is None
    assert "no backward" in alone.draw(tmp_path / "one.svg").read_text()
    nothing = bp.capture(lambda x: x, torch.randn(2), name="nothing")
    assert ElementTree.parse(nothing.draw(tmp_path / "none.svg")).getroot().tag == f"{SVG}svg"


def test_names_of_frames_stand_above_the_lines_that_run_into_them(tmp_path: Path) -> None:
    root = ElementTree.parse(drawn_net(4).draw(tmp_path / "net.svg")).getroot()
    legend = set(list(root)[-1].iter())
    kinds = [part.get("class", "").split(" ")[0] for part in root.iter() if part not in legend]
    names = [place for place, kind in enumerate(kinds) if kind == "name"]
    frames = [place for place, kind in enumerate(kinds) if kind == "frame"]
    flows = [place for place, kind in enumerate(kinds) if kind.startswith("flow")]
    assert len(names) == len(frames) > 1
    assert max(frames) < min(flows)
    assert max(flows) < min(names)


def test_notebooks_show_pictures() -> None:
    capture = drawn_net(4)
    for value in (capture, capture.pairs[0], capture.pairs[0].forward, capture.pairs[0].backward):
        shown = ElementTree.fromstring(value._repr_html_())  # type: ignore[union-attr]  # there is a backward
        [image] = shown.iter("img")
        kind, content = image.attrib["src"].split(",")
        assert kind == "data:image/svg+xml;base64"
        assert ElementTree.fromstring(base64.b64decode(content)).tag == f"{SVG}svg"
    with bp.region(gradients="stats") as region:
        y = torch.ones(2, requires_grad=True).sin().sum()
    y.backward()
    assert "<img" in region.passes[0]._repr_html_()


def test_a_picture_in_a_notebook_says_what_it_is_of() -> None:
    def captions(value: object) -> list[str]:
        shown = ElementTree.fromstring(value._repr_html_())  # type: ignore[attr-defined]
        return ["".join(part.itertext()) for part in shown.iter() if part.tag in ("p", "figcaption")]

    capture = bp.capture(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()), torch.ones(2, 3))
    pair = "forward, 3 steps, down the left; backward, 5 steps, up the right"
    assert captions(capture) == ["Sequential, engine eager, not verified", f"Sequential: {pair}"]
    capture.verify()
    assert captions(capture)[0] == "Sequential, engine eager, bitwise, derivative"
    assert captions(capture.pairs[0]) == [f"pair_0: {pair}"]
    assert captions(capture.backward) == ["backward: 5 steps, 3 inputs, 2 outputs"]
    hostile = replace(capture, name=HOSTILE)
    assert "<script>alert(1)</script>" in captions(hostile)[0], "as text"
    assert "<script" not in hostile._repr_html_()


class Wide(torch.nn.Module):
    """Modules in one another, each with a value beside the next that is needed below it."""

    def __init__(self, depth: int = 40) -> None:
        super().__init__()
        self.inner = Wide(depth - 1) if depth else torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.sin()) * x.cos()


def test_a_wide_net_is_folded_until_its_picture_can_be_read(tmp_path: Path) -> None:
    cap = bp.capture(Wide(), torch.randn(2, 8), engine="eager")

    def width(nodes: int) -> float:
        svg = cap.draw(tmp_path / "wide.svg", nodes=nodes).read_text()
        return float(svg.split('width="')[1].split('"')[0])

    assert width(300) <= WIDEST < width(2000), (width(300), width(2000))


def test_a_box_of_a_module_has_its_class_also_in_a_sample(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.GRU(4, 4), torch.nn.Linear(4, 4))
    cap = bp.capture(lambda x: net[1](net[0](x)[0]).sum(), torch.ones(3, 2, 4))
    assert dict(cap.modules) == {"net": "Sequential", "net.0": "GRU", "net.1": "Linear"}
    cap.save(tmp_path / "sample")
    loaded = bp.load(tmp_path / "sample")
    assert loaded.modules == cap.modules
    for nodes, title in ((4, "net · Sequential"), (1000, "0 · GRU")):  # folded, and open
        assert title in loaded.draw(tmp_path / "net.svg", nodes=nodes).read_text()
    frames = drawn_pair(cap.pairs[0], dict(cap.modules)).frames
    assert ("0", "GRU") in [(frame.name, frame.label) for frame in frames if frame.kind == "module"]


def test_a_loop_has_the_class_of_its_turns(tmp_path: Path) -> None:
    assert "layers.0…3 × 4 · DrawnLayer" in drawn_net(4).draw(tmp_path / "net.svg").read_text()


def test_a_gradient_of_an_output_is_named_after_it(tmp_path: Path) -> None:
    cap = bp.capture(torch.nn.Linear(3, 3), torch.ones(2, 3))
    for name in ("net.svg", "net.dot"):
        text = cap.draw(tmp_path / name).read_text()
        assert "∂output" in text
        assert "grad output" not in text


def test_a_picture_is_as_wide_as_its_title_and_what_stands_beside_it() -> None:
    with bp.region(gradients="stats") as region:
        torch.ones(2, requires_grad=True).sin().sum().backward()
    svg = region.passes[0]._repr_html_()
    text = base64.b64decode(svg.partition("base64,")[2].partition('"')[0]).decode()
    assert "1 neighbor</text>" in text, "the words beside the title are cut off"


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("draw", "x.pdf", "ends with .svg, .dot, .png, not with '.pdf'"),
        ("draw", "x.html", "a page is written by `backprint view`"),
        ("draw", "x", "ends with .svg, .dot, .png, and this has no ending"),
        ("view", "x.svg", "ends with .html or .htm; a picture is written by `backprint draw`"),
        ("view", "x.pdf", "ends with .html or .htm"),
        ("export", "x.txt", "is not the name of a Python file"),
    ],
)
def test_another_format_is_refused_with_those_that_there_are(
    tmp_path: Path, command: str, name: str, words: str
) -> None:
    place = bp.capture(torch.sin, torch.ones(2)).save(tmp_path / "sample")
    done = CliRunner().invoke(main, [command, str(place), "-o", str(tmp_path / name)])
    assert (done.exit_code, (tmp_path / name).exists()) == (2, False)
    assert words in done.output
