"""Samples whose graphs are stored with loops: the same graphs, the same results, under the same safety."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from backprint.cli import main
from backprint.graph.folding import fold, stored
from backprint.graph.folding.expand import is_folded
from backprint.graph.text import parse
from backprint.sample import standalone
from backprint.sample.save import model_text
from backprint.sample.standalone import ENDINGS, MARKER


class Repeated(nn.Module):
    """Layers that repeat, more steps than are stored flat, and a size for each layer."""

    def __init__(self, depth: int = 40) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = layer(x).unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
            x = x + (y * 0.5).sin().cos() * 0.1
        return x


@pytest.fixture(scope="module")
def capture() -> bp.Capture:
    torch.manual_seed(0)
    return bp.capture(Repeated(), torch.randn(3, 8))


@pytest.fixture(scope="module")
def folded(capture: bp.Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture.save(tmp_path_factory.mktemp("samples") / "folded")


@pytest.fixture(scope="module")
def flat(capture: bp.Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture.save(tmp_path_factory.mktemp("samples") / "flat", flat=True)


def models(sample: Path) -> list[Path]:
    return [sample / "pair_0" / side / "model.py" for side in ("forward", "backward")]


def body(path: Path) -> str:
    return path.read_text().partition(MARKER)[0]


def test_it_holds_the_same_graphs_in_a_quarter_of_the_text(folded: Path, flat: Path, capture: bp.Capture) -> None:
    [pair] = bp.load(folded).pairs
    [other] = bp.load(flat).pairs
    assert (pair.forward, pair.backward) == (other.forward, other.backward)
    assert (pair.forward.hash(), pair.forward) == (capture.pairs[0].forward.hash(), capture.pairs[0].forward)
    for short, long in zip(models(folded), models(flat), strict=True):
        assert is_folded(short.read_text())
        assert not is_folded(long.read_text())
        assert 4 * len(body(short)) <= len(body(long))
    formats = [json.loads((place / "capture.json").read_text())["format"] for place in (folded, flat)]
    assert formats == [3, 2]


def test_it_is_proved_from_disk_and_saved_again(folded: Path, tmp_path: Path) -> None:
    loaded = bp.load(folded)
    assert [verdict.verdict for verdict in bp.verify(loaded)] == ["bitwise"]
    long = loaded.save(tmp_path / "long", flat=True)
    assert not any(is_folded(path.read_text()) for path in models(long))
    short = bp.load(long).save(tmp_path / "short")
    assert [body(path) for path in models(short)] == [body(path) for path in models(folded)]


def test_its_files_run_with_torch_alone(folded: Path, flat: Path) -> None:
    for short, long in zip(models(folded), models(flat), strict=True):
        assert printed(short) == printed(long)


def printed(path: Path) -> str:
    done = run_python([path], flags=["-P"])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("of_a_sample", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tools_that_call_it_by_names_find_them(folded: Path, flat: Path) -> None:
    short, long = (module_of(models(place)[0]).GraphModule() for place in (folded, flat))
    assert list(inspect.signature(short.forward).parameters) == list(inspect.signature(long.forward).parameters)
    named = bp.load(folded).pairs[0].forward.inputs
    values = {port.local: torch.randn(port.spec.shape) for port in named}
    for found in (short(**values), short(*values.values())):
        assert all(map(torch.equal, found, long(**values)))
    beside = models(folded)[0].with_name("graph_hash.txt").read_text()
    assert beside == hashlib.sha256(models(folded)[0].read_bytes()).hexdigest()


def test_a_direction_of_it_is_a_sample_of_graphnets(folded: Path, tmp_path: Path) -> None:
    shutil.copytree(folded / "pair_0" / "forward", tmp_path / "theirs")
    made = bp.capture(tmp_path / "theirs")
    assert [verdict.verdict for verdict in bp.verify(made)] == ["bitwise"]


def test_graphnets_layout_has_every_step(capture: bp.Capture, tmp_path: Path) -> None:
    bp.save(capture, tmp_path, layout="graphnet")
    texts = [path.read_text() for path in tmp_path.glob("train_*/*/model.py")]
    assert [is_folded(text) for text in texts] == [False, False]


def test_show_prints_either(folded: Path, flat: Path) -> None:
    for place in (folded, flat):
        short = CliRunner().invoke(main, ["show", str(place), "--forward"]).output
        long = CliRunner().invoke(main, ["show", str(place), "--forward", "--flat"]).output
        assert "for i in range(" in short
        assert parse(long.rstrip("\n") + "\n") == bp.load(flat).pairs[0].forward


def test_a_capture_from_the_command_line_writes_either(folded: Path, tmp_path: Path) -> None:
    for name, options in (("short", ()), ("long", ("--flat",))):
        done = CliRunner().invoke(main, ["capture", str(folded), "-o", str(tmp_path / name), *options])
        assert done.exit_code == 0, done.output
    assert [is_folded(models(tmp_path / name)[0].read_text()) for name in ("short", "long")] == [True, False]


def test_dedup_knows_them_as_one(folded: Path, flat: Path, tmp_path: Path) -> None:
    for place in (folded, flat):
        shutil.copytree(place, tmp_path / "corpus" / place.name)
    found = bp.dedup(tmp_path / "corpus", tmp_path / "kept", files="none")
    assert [len(group) for group in found.groups] == [2]


def test_an_exported_file_prints_the_same(folded: Path, flat: Path, tmp_path: Path) -> None:
    texts = [bp.export(place, tmp_path / f"{place.name}.py", full=True).read_text() for place in (folded, flat)]
    assert texts[0].replace("folded", "flat") == texts[1].replace("folded", "flat")


# ------------------------------------------------------------------ what is not stored with loops


def test_a_small_graph_does_not_pay_for_a_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = bp.capture(Repeated(3), torch.randn(3, 8)).pairs[0].forward
    monkeypatch.setattr(stored, "proved_text", lambda *_: pytest.fail("was folded"))
    assert not is_folded(stored.text_to_store(graph))


def test_a_text_that_is_read_as_another_graph_is_not_stored(
    capture: bp.Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = capture.pairs[0]
    assert is_folded(stored.text_to_store(pair.forward))
    monkeypatch.setattr(fold, "flat_text", lambda text: pair.backward.code)
    assert stored.text_to_store(pair.forward) == pair.forward.code


def test_a_text_that_is_not_much_smaller_is_not_stored(capture: bp.Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "SMALLER", 1000)
    assert not is_folded(stored.text_to_store(capture.pairs[0].forward))


# ------------------------------------------------------------------ safety


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    def forward(self, *given):\n", "    def forward(self, *given):\n        print(self)\n", "line"),
        ("range(40)", "range(100000)", "at most"),
        ("aten.sin.default", "torch.load", "torch.load"),
        (ENDINGS[True], ENDINGS[False], "not those that samples end with"),
    ],
    ids=["another statement", "long loops", "another call", "another ending"],
)
def test_what_is_not_a_graph_is_refused(folded: Path, tmp_path: Path, old: str, new: str, why: str) -> None:
    shutil.copytree(folded, tmp_path / "sample")
    path = models(tmp_path / "sample")[0]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(bp.RefusedError, match=why):
        bp.load(tmp_path / "sample").pairs[0].forward  # noqa: B018  # reading it is what is refused


def test_an_ending_of_loops_below_a_flat_graph_is_refused(flat: Path, tmp_path: Path) -> None:
    shutil.copytree(flat, tmp_path / "sample")
    path = models(tmp_path / "sample")[0]
    path.write_text(path.read_text().replace(ENDINGS[False], ENDINGS[True]))
    with pytest.raises(bp.RefusedError, match=r"line \d+: the lines below the graph are not those"):
        bp.load(tmp_path / "sample").pairs[0].forward  # noqa: B018  # reading it is what is refused


@pytest.mark.parametrize("name", ["run", "json", "Whole", "results"])
def test_a_function_does_not_have_the_name_of_one_below_the_graph(name: str, folded: Path, tmp_path: Path) -> None:
    place = shutil.copytree(folded, tmp_path / "sample") / "pair_0" / "backward" / "model.py"
    text = place.read_text()
    assert "def mul_backward(" in text
    place.write_text(text.replace("mul_backward(", f"{name}("))
    with pytest.raises(bp.errors.RefusedError, match=f"the function {name} has the name of one below the graph"):
        bp.load(tmp_path / "sample").pairs[0].backward.hash()


def test_a_graph_with_such_a_function_is_written_flat(capture: bp.Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "ENDING_NAMES", frozenset({"mul_backward"}))
    backward = capture.pairs[0].backward
    assert backward is not None
    assert is_folded(stored.text_to_store(backward))
    assert not is_folded(model_text(capture, "backward", backward, flat=False))
