"""`corpus dedup`: one of each group of samples that are the same program, and the list of the others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.ledgers import ledger
from torch import nn

import backprint as bp
from face import RESULT, Dedup, UsageError, dedup, main
from face import duplicates as module


class Other(nn.Module):
    """What `Sequential(Linear, Tanh)` computes, in other names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(4, width)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.dense(features))


def groups(found: Dedup) -> list[list[str]]:
    return sorted([member.id for member in group] for group in found.groups)


def below(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if ".work" not in path.parts and path.is_file()
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of ours: `first` and `second` are one program, `wide` is it in another size, `relu` another."""
    source = tmp_path_factory.mktemp("made") / "source"
    torch.manual_seed(0)
    models: Mapping[str, tuple[nn.Module, torch.Tensor]] = {
        "a/first": (nn.Sequential(nn.Linear(4, 3), nn.Tanh()), torch.randn(2, 4)),
        "b/second": (Other(3), torch.randn(2, 4)),
        "b/wide": (Other(5), torch.randn(3, 4)),
        "relu": (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4)),
    }
    for name, (model, x) in models.items():
        bp.save(bp.capture(model, x), source / name)
    return source


@pytest.fixture
def source(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "source"))


# ------------------------------------------------------------------ grouping


def test_samples_are_one_by_their_graphs_and_not_by_their_names(source: Path, tmp_path: Path) -> None:
    found = dedup(source, tmp_path / "out")
    assert groups(found) == [["a/first", "b/second"], ["b/wide"], ["relu"]]
    assert below(tmp_path / "out") == sorted(
        ["duplicates.json", "kept.txt", *(path for path in below(source) if not path.startswith("b/second"))]
    )
    for name in ("a/first", "b/wide", "relu"):
        assert [verdict.verdict for verdict in bp.load(tmp_path / "out" / name).verify()] == ["bitwise"]


def test_by_shape_sizes_make_no_difference(source: Path, tmp_path: Path) -> None:
    found = dedup(source, tmp_path / "out", by="shape")
    assert groups(found) == [["a/first", "b/second", "b/wide"], ["relu"]]


def test_the_list_says_which_stands_for_which(source: Path, tmp_path: Path) -> None:
    dedup(source, tmp_path / "out", files="none")
    said = json.loads((tmp_path / "out" / "duplicates.json").read_text())
    assert (said["samples"], said["kept"], said["by"], said["left_out"]) == (4, 3, "exact", [])
    [group] = said["duplicates"]
    assert (group["kept"], group["others"]) == ("a/first", ["b/second"])
    assert (tmp_path / "out" / "kept.txt").read_text() == "a/first\nb/wide\nrelu\n"
    assert below(tmp_path / "out") == ["duplicates.json", "kept.txt"]


def test_links_are_the_same_file_and_copies_are_not(source: Path, tmp_path: Path) -> None:
    dedup(source, tmp_path / "links", files="link")
    dedup(source, tmp_path / "copies", files="copy")
    old = (source / "relu/capture.json").stat()
    assert (tmp_path / "links/relu/capture.json").stat().st_ino == old.st_ino
    assert (tmp_path / "copies/relu/capture.json").stat().st_ino != old.st_ino
    assert (tmp_path / "copies/relu/capture.json").read_bytes() == (source / "relu/capture.json").read_bytes()


def test_where_links_cannot_be_the_next_step_is_said(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(old: object, new: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UsageError, match="--files copy"):
        dedup(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_sample_that_cannot_be_read_is_left_out_by_name(source: Path, tmp_path: Path) -> None:
    model = source / "relu/pair_0/backward/model.py"
    model.write_text(model.read_text().replace("aten.mm.default", "os.system"))
    (source / "empty").mkdir()
    (source / "empty" / "graph_net.json").write_text("{}")
    found = dedup(source, tmp_path / "out")
    why = {member.id: member.why for member in found.left_out}
    assert "os.system" in why["relu"]
    assert why["empty"].startswith("missing file: model.py")
    assert not (tmp_path / "out" / "relu").exists()


def test_a_folder_without_samples_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(UsageError, match="no samples here"):
        dedup(tmp_path / "source", tmp_path / "out")


# ------------------------------------------------------------------ by a ledger


def run_of(out: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """A run's folder: a ledger, and a folder for each sample that did not fail."""
    rows = list(rows)
    for row in rows:
        if row.get("verdict") != "failed" and not row.pop("lost", False):
            (out / row["id"]).mkdir(parents=True)
            for name in ("capture.json", RESULT):
                (out / row["id"] / name).write_text(row["id"])
    return ledger(out, rows)


def test_of_a_run_the_smallest_that_is_proved_is_kept(tmp_path: Path) -> None:
    same = {"forward_hash": "f", "backward_hash": "b"}
    rows = [
        {"id": "a", "verdict": "unproven", "input_bytes": 1, **same},
        {"id": "b", "verdict": "bitwise", "vacuous": ["output y"], "input_bytes": 1, **same},
        {"id": "c", "verdict": "close", "input_bytes": 30, **same},
        {"id": "d", "verdict": "close", "input_bytes": 20, **same},
        {"id": "e", "verdict": "close", "input_bytes": 20, **same},
        {"id": "f", "verdict": "undifferentiable", "forward_hash": "f", "backward_hash": ""},
        {"id": "g", "verdict": "failed", "cause": "timeout"},
        {"id": "h", "lost": True},
        {"id": "i", "state": "todo", "lost": True},
    ]
    found = dedup(run_of(tmp_path / "run", rows), tmp_path / "out")
    assert sorted([group[0].id, {member.id for member in group}] for group in found.groups) == [
        ["d", set("abcde")],
        ["f", {"f"}],
    ]
    assert {member.id: member.why for member in found.left_out} == {
        "g": "failed: timeout",
        "h": "its folder does not exist",
        "i": "not done yet",
    }
    assert below(tmp_path / "out") == [
        "d/capture.json",
        "d/result.json",
        "duplicates.json",
        "f/capture.json",
        "f/result.json",
        "kept.txt",
    ]


def test_a_ledger_without_hashes_without_sizes_says_so(tmp_path: Path) -> None:
    found = dedup(run_of(tmp_path / "run", [{"id": "a"}]), tmp_path / "out", by="shape")
    assert [member.why for member in found.left_out] == ["the ledger has no hash of its graphs without sizes"]


# ------------------------------------------------------------------ GraphNet's own

CODE = """
import torch
from torch import device

class GraphModule(torch.nn.Module):
    def forward(self, L_x_ : torch.Tensor, L_w_ : torch.nn.parameter.Parameter):
        l_x_ = L_x_
        _log_api_usage_once = torch._C._log_api_usage_once("python.nn_module");  _log_api_usage_once = None
        h = torch.matmul(l_x_, L_w_);  l_x_ = None
        h += 1
        y = h.to(device(type="cuda", index=0));  h = None
        return (y,)
"""

ALIKE = """
import torch
from torch import device

class GraphModule(torch.nn.Module):
    def forward(self, a : torch.Tensor, b : torch.nn.parameter.Parameter):
        # the same, by another writer
        c = a
        d = torch.matmul(c, b);  c = b = None
        d += 1
        d = d.to(device(type="cpu"))
        return (d,)
"""


def graphnet(folder: Path, code: str, names: tuple[str, str], rows: int = 2) -> None:
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder / "graph_net.json").write_text("{}")
    shapes = zip(names, ([rows, 4], [4, 3]), strict=True)
    metas = [
        f'class Program_weight_tensor_meta_{name}:\n    name = "{name}"\n    shape = {shape}\n'
        '    dtype = "torch.float32"\n    device = "cpu"\n    mean = 0.0\n    std = 1.0\n    data = None\n'
        for name, shape in shapes
    ]
    (folder / "weight_meta.py").write_text("\n".join(metas))


@pytest.mark.parametrize(
    ("by", "wanted"),
    [("exact", [["alike", "code"], ["other"], ["tall"]]), ("shape", [["alike", "code", "tall"], ["other"]])],
)
def test_graphnet_code_is_compared_without_running_it(tmp_path: Path, by: str, wanted: list[list[str]]) -> None:
    source = tmp_path / "source"
    graphnet(source / "code", CODE, ("L_x_", "L_w_"))
    graphnet(source / "alike", ALIKE, ("a", "b"))
    graphnet(source / "tall", CODE, ("L_x_", "L_w_"), rows=7)
    graphnet(source / "other", CODE.replace("h += 1", "h -= 1"), ("L_x_", "L_w_"))
    found = dedup(source, tmp_path / "out", by=by)
    assert [sorted(group) for group in groups(found)] == wanted
    assert (tmp_path / "out" / found.kept[0].id / "weight_meta.py").is_file()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("y = torch.sub(x, w)", "y = torch.sub(w, x)"),
        ("y = x; x = None; y = w", "y = x; y = w; y = x"),
        ("y = torch.sub(x, w); y = None; y = [y]", "y = torch.sub(x, w); y = [y]"),
        ("y = torch.sum(x, 0)", "y = torch.sum(x, 1)"),
        ("x[(0, slice(None, None, None))] = w; y = x", "x[(slice(None, None, None), 0)] = w; y = x"),
    ],
)
def test_code_that_computes_something_else_is_something_else(tmp_path: Path, left: str, right: str) -> None:
    frame = "import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, x, w):\n"
    frame += "        {}\n        return (y,)\n"
    for name, lines in (("left", left), ("right", right)):
        graphnet(tmp_path / "source" / name, frame.format(lines), ("x", "w"))
    found = dedup(tmp_path / "source", tmp_path / "out", files="none")
    assert [member.why for group in found.groups for member in group] == ["", ""]
    assert groups(found) == [["left"], ["right"]]


def test_refused_code_is_compared_by_its_text(tmp_path: Path) -> None:
    for name, code in (("a", "import os\n"), ("b", "import os\n"), ("c", "import sys\n")):
        graphnet(tmp_path / "source" / name, code, ("x", "w"))
    found = dedup(tmp_path / "source", tmp_path / "out", files="none")
    assert groups(found) == [["a", "b"], ["c"]]
    said = json.loads((tmp_path / "out" / "duplicates.json").read_text())["by_text"]
    assert [row["id"] for row in said] == ["a", "b", "c"]
    assert "import os" in said[0]["why"]


def test_a_sample_inside_another_is_a_sample_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "source"
    graphnet(source / "whole", CODE, ("L_x_", "L_w_"))
    graphnet(source / "whole" / "subgraph_0", ALIKE, ("a", "b"))
    graphnet(source / "whole" / "subgraph_1", CODE.replace("h += 1", "h += 2"), ("L_x_", "L_w_"))
    (source / "whole" / "link.txt").symlink_to("/etc/hostname")
    found = dedup(source, tmp_path / "out")
    assert [member.id for member in found.kept] == ["whole", "whole/subgraph_1"]
    files = ("graph_net.json", "model.py", "weight_meta.py")
    wanted = [f"{folder}/{name}" for folder in ("whole", "whole/subgraph_1") for name in files]
    assert below(tmp_path / "out") == sorted(["duplicates.json", "kept.txt", *wanted])


# ------------------------------------------------------------------ interrupted


def interrupted(after: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is killed the n-th time."""
    calls = iter(range(after))

    def call(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


@pytest.mark.parametrize("stage", ["member_of", "place_sample", "own_files", "link_or_copy"])
def test_interrupted_anywhere_nothing_is_there_and_the_next_call_begins_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, stage, interrupted(1, getattr(module, stage)))
        patch.setattr(module, "remove_folder", lambda folder: None)  # as if it was killed
        with pytest.raises(KeyboardInterrupt):
            dedup(source, tmp_path / "out", files="copy")
    assert not (tmp_path / "out").exists()
    dedup(source, tmp_path / "out", files="copy")
    dedup(source, tmp_path / "whole", files="copy")
    assert below(tmp_path / "out") == below(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source", "whole"]


# ------------------------------------------------------------------ what is refused


def test_a_folder_of_something_else_is_not_written_to(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    with pytest.raises(UsageError, match="out exists: choose another OUT"):
        dedup(source, tmp_path / "out")


@pytest.mark.parametrize("place", ["source", "source/out", "."])
def test_an_out_in_or_around_the_corpus_is_refused(source: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="choose a folder beside it"):
        dedup(source, tmp_path / place)


# ------------------------------------------------------------------ the command


def test_the_command_says_what_came_of_it(source: Path, tmp_path: Path) -> None:
    arguments = ["corpus", "dedup", str(source), "-o", str(tmp_path / "out"), "--ignore-sizes", "--files", "copy"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert "4 samples, 2 distinct by shape graphs" in done.output
    shutil.rmtree(tmp_path / "out")
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    rows = {row["id"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows["b/wide"] == {"id": "b/wide", "kept": False, "duplicate_of": "a/first", "why": ""}
    assert rows["relu"]["kept"] is True
