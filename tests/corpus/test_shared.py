"""`corpus dedup --by part`: layers that models share, how often they are there, resumed and refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import main, stretches_of


class Mixing(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.mix(self.norm(x))).sin()


class Layered(nn.Module):
    def __init__(self, depth: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mixing(width) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def sample(depth: int, width: int, place: Path) -> None:
    torch.manual_seed(0)
    bp.capture(Layered(depth, width), torch.randn(3, width)).save(place, power="none")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with the same layer, and one whose layer has other sizes."""
    place = tmp_path_factory.mktemp("corpus")
    for name, depth, width in (("a", 4, 8), ("b", 7, 8), ("wide", 4, 16)):
        sample(depth, width, place / name)
    return place


def layers(found: Any, direction: str) -> list[Any]:
    return [part for part in found.parts if part.repeats and part.direction == direction]


def test_two_models_share_a_layer(corpus: Path, tmp_path: Path) -> None:
    found = bp.corpus.dedup(corpus, tmp_path / "out", by="part", jobs=1)
    shared = [part for part in layers(found, "forward") if part.samples == ("a", "b")]
    most = max(shared, key=lambda part: part.count)
    assert most.count >= 7  # the first layer of each takes an input that needs no gradient
    assert most.name == "blocks.{i}"
    assert most.flops == 2 * 3 * 8 * 8
    wide = [part for part in layers(found, "forward") if part.samples == ("wide",)]
    assert wide
    assert not {part.hash for part in wide} & {part.hash for part in shared}


def test_every_step_is_in_one_part(corpus: Path, tmp_path: Path) -> None:
    found = bp.corpus.dedup(corpus, tmp_path / "out", by="part", jobs=1)
    graphs = [
        graph
        for place in ("a", "b", "wide")
        for pair in bp.load(corpus / place).pairs
        for graph in (pair.forward, pair.backward)
    ]
    assert found.steps == sum(len(graph.steps) for graph in graphs)
    assert 0 < found.distinct_steps < found.steps / 2
    for graph in graphs:
        stretches = stretches_of(graph)
        assert [each.start for each in stretches] == [0, *(each.stop for each in stretches[:-1])]
        assert stretches[-1].stop == len(graph.steps)


def test_sizes_may_be_ignored(corpus: Path, tmp_path: Path) -> None:
    found = bp.corpus.dedup(corpus, tmp_path / "out", by="part", ignore_sizes=True, jobs=1)
    assert found.by == "shape"
    assert any(part.samples == ("a", "b", "wide") for part in layers(found, "forward"))
    assert any(part.samples == ("a", "b", "wide") for part in layers(found, "backward"))


def test_it_goes_on_with_what_is_new(corpus: Path, tmp_path: Path) -> None:
    here = tmp_path / "corpus"
    shutil.copytree(corpus, here)
    first = bp.corpus.dedup(here, tmp_path / "out", by="part", jobs=1)
    before = (tmp_path / "out" / "a" / "stretches.json").stat().st_mtime_ns
    shutil.copytree(here / "b", here / "c")
    again = bp.corpus.dedup(here, tmp_path / "out", by="part", jobs=2)
    assert (tmp_path / "out" / "a" / "stretches.json").stat().st_mtime_ns == before
    assert again.count > first.count
    assert len(again.parts) == len(first.parts)
    assert json.loads((tmp_path / "out" / "parts.json").read_text()) == json.loads(json.dumps(again.as_json()))


def test_a_sample_that_cannot_be_read_is_left_out_by_name(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus / "a", tmp_path / "corpus" / "a")
    shutil.copytree(corpus / "b", tmp_path / "corpus" / "b")
    model = tmp_path / "corpus" / "b" / "pair_0" / "forward" / "model.py"
    model.write_text(model.read_text().replace("aten.sin.default", "os.system"))
    found = bp.corpus.dedup(tmp_path / "corpus", tmp_path / "out", by="part", jobs=1)
    [(name, why)] = found.left_out
    assert name == "b"
    assert "os.system" in why
    assert {part.samples for part in found.parts} == {("a",)}


def test_the_command_prints_each_part_once(corpus: Path, tmp_path: Path) -> None:
    given = ["corpus", "dedup", str(corpus), "-o", str(tmp_path / "out"), "--by", "part", "--jobs", "1"]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    assert "blocks.{i}" in done.output
    assert "where each part counts once" in done.output
    lines = CliRunner().invoke(main, [*given, "--json"]).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == json.loads((tmp_path / "out" / "parts.json").read_text())["parts"]
    assert len({row["hash"] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--by", "part", "--files", "copy"], "no samples are kept"),
        (["--jobs", "2"], "--jobs is for --by part"),
    ],
)
def test_options_of_the_other_way_are_refused(given: list[str], said: str, corpus: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["corpus", "dedup", str(corpus), "-o", str(tmp_path / "out"), *given])
    assert isinstance(done.exception, SystemExit | bp.errors.UsageError)
    assert said in f"{done.output} {done.exception}"


def test_the_same_in_python(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(bp.errors.UsageError, match="by='parts' is not one of 'graph', 'part'"):
        bp.corpus.dedup(corpus, tmp_path / "out", by="parts")
    with pytest.raises(bp.errors.UsageError, match="no samples are kept"):
        bp.corpus.dedup(corpus, tmp_path / "out", by="part", files="copy")
    with pytest.raises(bp.errors.UsageError, match="jobs= is for by='part'"):
        bp.corpus.dedup(corpus, tmp_path / "out", jobs=2)
