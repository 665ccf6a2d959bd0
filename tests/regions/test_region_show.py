"""`show` of a dump: tables of a pass, its bad part, one pass by number, JSON; and `draw` and `view`."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from snapshots import REPLACED, Snapshots
from test_modules import Net

import backprint as bp
from face import drawn_pass, main, read_passes


def shown(*arguments: object) -> Result:
    """What `show` prints of a dump, in a wide window."""
    done = CliRunner().invoke(main, ["show", *map(str, arguments)], env={"COLUMNS": "160"})
    assert done.exit_code in (0, 2), done.output
    return done


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four passes: good, with NaN from the forward, with Inf from outside, and one that raised."""
    place = tmp_path_factory.mktemp("regions") / "dump"
    torch.manual_seed(0)
    net = Net(1)

    def raising(grad: torch.Tensor) -> None:
        raise ArithmeticError("no more")

    for index in range(4):
        x = torch.randn(2, 3)
        with bp.region(place, gradients="stats"):
            y = torch.log(-net(x).square()) if index == 1 else net(x)
            loss = y.sum()
        if index == 3:
            y.register_hook(raising)
        try:
            loss.backward(torch.tensor(math.inf) if index == 2 else None)
        except ArithmeticError:
            assert index == 3
    return place


@pytest.mark.parametrize("options", ["--pass 0", "--bad"])
def test_what_show_prints_of_a_dump(options: str, dump: Path, snapshots: Snapshots) -> None:
    replaced = {**REPLACED, "LINE": r"(?<=\.py:)\d+"}
    name = options.split()[0].removeprefix("--")
    snapshots.check(f"show_dump_{name}", shown(dump, *options.split()).stdout, replaced)


def test_a_good_dump_has_nothing_bad(dump: Path) -> None:
    assert shown(dump, "--bad", "--pass", 0).stdout == "0 of 1 passes have NaN, Inf or an error\n"
    assert shown(dump, "--bad", "--pass", 0, "--json").stdout == ""


def test_gradients_that_were_not_watched_are_not_called_good(tmp_path: Path) -> None:
    x = torch.zeros(3, requires_grad=True)
    with bp.region(tmp_path / "dump", gradients="none"):
        y = torch.log(x).sum()
    y.backward()
    done = shown(tmp_path / "dump", "--bad")
    assert 'not watched: bp.region(gradients="stats") looks for NaN and Inf' in done.stderr
    assert "NaN and Inf: not watched" in shown(tmp_path / "dump").stdout


def test_json_is_one_object_a_pass(dump: Path) -> None:
    found = [json.loads(line) for line in shown(dump, "--json").stdout.splitlines()]
    assert [each["index"] for each in found] == [0, 1, 2, 3]
    assert [each["bad"] for each in found] == [False, True, True, True]
    [edge] = [edge for edge in found[0]["edges"] if edge["name"] == "sum:0 -> mul:0"]
    assert (edge["tensor"], edge["shape"], edge["dtype"]) == ("y", [2, 3], "float32")
    assert {"count": 6, "nan": 0, "inf": 0, "zeros": 0, "min": 1.0}.items() <= edge["stats"].items()
    [node] = [node for node in found[0]["nodes"] if node["name"] == "relu"]
    assert (node["module"], node["ops"], node["line"]["function"]) == (
        "blocks.0",
        ["aten.relu.default"],
        "Block.forward",
    )
    assert found[1]["origin"]["op"] == "aten.log.default"
    assert found[3]["error"] == "ArithmeticError: no more"


def test_bad_json_has_the_bad_part_and_no_bare_nan(dump: Path) -> None:
    def refused(word: str) -> Any:
        raise AssertionError(word)

    found = [json.loads(line, parse_constant=refused) for line in shown(dump, "--bad", "--json").stdout.splitlines()]
    assert [each["index"] for each in found] == [1, 2, 3]
    assert found[1]["edges"]
    assert all(edge["stats"]["nan"] or edge["stats"]["inf"] for each in found for edge in each["edges"])
    assert found[1]["roots"][0]["stats"]["norm"] == "inf"
    ends = {edge[end] for edge in found[1]["edges"] for end in ("source", "target")}
    assert ends <= {node["name"] for node in found[1]["nodes"]}


def test_a_pass_that_is_not_there_is_named(dump: Path) -> None:
    done = shown(dump, "--pass", 9)
    assert done.exit_code == 2
    assert "has no pass 9; it has 0, 1, 2, 3" in done.stderr


def test_strangers_names_are_shown_as_text(dump: Path, tmp_path: Path) -> None:
    dump = shutil.copytree(dump, tmp_path / "dump")
    place = next(dump.glob("*_0000/graph.json"))
    content = json.loads(place.read_text())
    content["nodes"][0]["module"] = "[bold]\x1b[31mred"
    content["edges"][0]["name"] = "[link=http://x]\x1b]8;;evil"
    place.write_text(json.dumps(content))
    text = shown(dump, "--pass", 0).stdout
    assert "\x1b" not in text
    assert r"[bold]\u001b[31mred" in text
    assert "[link=http://x]" in text


def test_a_dump_with_an_edge_to_nowhere_is_malformed(dump: Path, tmp_path: Path) -> None:
    dump = shutil.copytree(dump, tmp_path / "dump")
    place = next(dump.glob("*_0000/graph.json"))
    content = json.loads(place.read_text())
    content["edges"][0]["target"] = "gone"
    place.write_text(json.dumps(content))
    with pytest.raises(bp.errors.RegionError, match="source 'sum' and target 'gone', and not both are names of nodes"):
        read_passes(dump)


def made(verb: str, dump: Path, output: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [verb, str(dump), "-o", str(output), *arguments])


def test_draw_and_view_take_one_pass(dump: Path, tmp_path: Path) -> None:
    for verb, name in (("draw", "one.svg"), ("draw", "one.dot"), ("view", "one.html")):
        done = made(verb, dump, tmp_path / name, "--pass", "2")
        assert (done.exit_code, done.output) == (0, f"{tmp_path / name}: region, pass 2\n")
        assert (tmp_path / name).stat().st_size > 1000
        assert (
            made(verb, dump, tmp_path / name).output == f"{tmp_path / name}: region, pass 1\n"
        )  # the first that is bad
        missing = made(verb, dump, tmp_path / name, "--pass", "9")
        assert missing.exit_code == 2
        assert "has no pass 9; it has 0, 1, 2, 3" in missing.stderr
    assert not [path for path in dump.rglob("*") if path.name not in ("graph.json",) and path.is_file()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "{dump}", "--flat"], "--flat is for samples, and this is the dump of a region"),
        (["show", "{dump}", "--forward"], "--forward is for samples, and this is the dump of a region"),
        (["draw", "{dump}", "-o", "x.svg", "--pair", "0"], "--pair is for samples, and this is the dump of a region"),
        (["view", "{dump}", "--stats"], "--stats is for samples, and this is the dump of a region"),
        (["diff", "{dump}", "{dump}", "-o", "x.html"], "--output is for samples, and this is the dump of a region"),
        (["show", "{sample}", "--bad"], "--bad is for dumps of regions, and this is a sample"),
        (["draw", "{sample}", "-o", "x.svg", "--run", "all"], "--run is for dumps of regions, and this is a sample"),
        (["diff", "{sample}", "{sample}", "--run-b", "all"], "--run-b is for dumps of regions, and this is a sample"),
        (["diff", "{sample}", "{dump}"], "is the dump of a region, and"),
    ],
)
def test_options_of_the_other_kind_are_refused(arguments: list[str], said: str, dump: Path, tmp_path: Path) -> None:
    bp.capture(torch.sin, torch.ones(2)).save(tmp_path / "sample")
    places = {"dump": dump, "sample": tmp_path / "sample"}
    done = CliRunner().invoke(main, [argument.format(**places) for argument in arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_picture_shows_what_is_inside_and_what_is_a_neighbor(tmp_path: Path) -> None:
    """The example of Paddle's own guard for regions: 3 nodes inside, 3 neighbors, and each edge with its name."""
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    z1, z2 = x - y, x + y
    with bp.region(tmp_path, gradients="values"):
        z3 = z1 * z2
        z4, z5 = z3.sum(), z2.mean()
    (z4 + z5).sum().backward()
    for verb, name in (("draw", "x.svg"), ("draw", "x.dot"), ("view", "x.html")):
        done = made(verb, tmp_path, tmp_path / name)
        assert done.exit_code == 0, done.output
    [svg, dot, page] = [(tmp_path / name).read_text() for name in ("x.svg", "x.dot", "x.html")]
    assert "3 nodes inside, 3 neighbors" in svg
    assert svg.count('<rect class="forward neighbor"') == 3 + 1  # and the legend's
    assert svg.count('<rect class="backward neighbor"') == 3
    assert svg.count('<rect class="forward"') == 3 + 1
    assert svg.count(' region"') == 1 + 1
    boxes = re.findall(r"<text [^>]*>([a-z_]+)</text></g>", svg)
    assert {"add", "sub", "mul", "mean", "sum"} <= set(boxes)  # by their operators, also those of neighbors
    labels = set(re.findall(r'class="small label">([^<]*)<', svg))
    assert {"z1", "z2", "z3", "z4", "z5", "z3 [2, 3]", "z4 []", "z5 []"} <= labels
    assert dot.count("penwidth=2") == 6
    assert 'color="#1b1f24"; style=dashed; labeljust=l;' in dot
    assert sorted(re.findall(r'-> n\d \[label="(z\d)"', dot)) == ["z1", "z2", "z2", "z3", "z4", "z5"]
    data = json.loads(page.partition('type="application/json" id="data">')[2].partition("</script>")[0])
    [pair] = data["pairs"]
    assert sum(flags & 8 > 0 for flags in pair["nodes"]["flags"]) == 6
    assert [frame["kind"] for frame in pair["frames"]] == ["program", "region"]
    assert ["nodes", "3 nodes inside, 3 neighbors"] in data["facts"]


def test_the_parameters_of_a_block_stand_beside_their_operators(tmp_path: Path) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), torch.ones(2, 3)

    def step() -> torch.Tensor:
        with bp.region(tmp_path, name="block.1"):
            y = model(x)
        return y.sum()

    step().backward()
    [region_pass] = read_passes(tmp_path)
    scene = drawn_pass(region_pass).scene
    assert scene.neighbors == 5  # four parameters, and the sum
    homes = {node.name: node.region for node in scene.nodes if node.is_neighbor}
    assert sorted(homes.values()) == ["", *["block.1"] * 4]
