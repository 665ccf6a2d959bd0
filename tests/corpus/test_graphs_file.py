"""`corpus run export`: the graphs of a run as one Parquet file, and its card."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.ledgers import ledger

import backprint as bp
from face import BATCH, GROUP, RefusedError, UsageError, batches, main, sample_row
from face import GRAPHS_FILE_FIELDS as FIELDS

parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two samples with graphs, one whose files were changed since, and one that failed."""
    out = tmp_path_factory.mktemp("run") / "pairs"
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = [{"id": "nets/failed", "verdict": "failed", "cause": "timeout", "forward_hash": ""}]
    models = {
        "nets/small": torch.nn.Linear(3, 2),
        "nets/wide": torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.GELU()),
        "others/changed": torch.nn.Linear(3, 2),
    }
    for id, model in models.items():
        bp.save(bp.capture(model, torch.randn(4, 3)), out / id)
        capture = bp.load(out / id)
        assert capture.verdict is not None
        rows.append({"id": id, "seconds": 2.5, "notes": ["a|b"], **sample_row(capture, capture.verdict)})
    bp.save(bp.capture(torch.nn.Linear(5, 2), torch.randn(4, 5)), out / "others/changed", overwrite=True)
    return ledger(out, rows)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    done = CliRunner().invoke(main, ["corpus", "run", "export", str(run), "-o", str(folder)], catch_exceptions=False)
    assert done.stdout.splitlines()[0] == f"4 graphs of 2 samples in {folder}, with a card; 2 samples left out"
    assert "left out: nets/failed: failed: timeout" in done.stdout
    assert "left out: others/changed: its forward is not the one that the run proved" in done.stdout
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder / "graphs.parquet").to_pylist()
    return rows


def test_the_text_of_a_row_is_the_graph_with_its_hash(run: Path, exported: Path) -> None:
    rows = rows_of(exported)
    assert [(row["sample"], row["direction"]) for row in rows] == [
        ("nets/small", "forward"),
        ("nets/small", "backward"),
        ("nets/wide", "forward"),
        ("nets/wide", "backward"),
    ]
    for row in rows:
        pair = bp.load(run / row["sample"]).pairs[row["pair"]]
        saved = pair.forward if row["direction"] == "forward" else pair.backward
        graph = bp.parse(row["text"])
        assert graph == saved
        assert (graph.hash(), graph.hash(sizes=False)) == (row["hash"], row["shape_hash"])
        assert (graph.code, len(graph.steps)) == (row["text"], row["steps"])


def test_ports_proof_and_costs_are_columns(exported: Path) -> None:
    forward, backward, *_ = rows_of(exported)
    assert list(forward) == [name for name, _, _ in FIELDS]
    inputs = {port["name"]: port for port in forward["inputs"]}
    assert inputs["weight"] == {
        "name": "weight",
        "role": "parameter",
        "spec": "f32[2, 3]",
        "dtype": "float32",
        "shape": [2, 3],
    }
    assert {port["role"] for port in backward["outputs"]} == {"gradient"}
    assert (forward["verdict"], forward["proved"], forward["family"]) == ("bitwise", True, "nets")
    assert forward["power"] > 1
    assert forward["flops"] == 2 * 4 * 3 * 2
    assert forward["read_bytes"] >= 4 * (4 * 3 + 2 * 3 + 2)
    assert (forward["seconds"], forward["source_kind"], forward["license"]) == (2.5, "graphnet", None)


def test_the_card_has_the_counts_and_how_to_load_it(exported: Path) -> None:
    card = (exported / "README.md").read_text()
    head = card.split("---\n")[1].splitlines()
    assert "configs: [{config_name: default, data_files: graphs.parquet}]" in head
    assert 'size_categories: ["n<1K"]' in head
    assert "4 graphs, 2 forward and 2 backward, of 2 samples" in card
    assert 'load_dataset("parquet", data_files="graphs.parquet", split="train")' in card
    assert "| nets | 2 |" in card
    assert all(f"| `{name}` |" in card for name, _, _ in FIELDS)
    assert "- others/changed: its forward is not the one" in card


def test_a_choice_and_a_licence(run: Path, tmp_path: Path) -> None:
    made = bp.corpus.export(run, tmp_path / "set", where=("backward_steps>3", "id glob 'nets/w*'"), license="mit\n# no")
    assert (made.graphs, made.samples, made.left_out) == (2, 1, ())
    assert {(row["sample"], row["license"]) for row in rows_of(made.folder)} == {("nets/wide", "mit\n# no")}
    card = (made.folder / "README.md").read_text()
    assert f"license: {json.dumps('mit' + chr(10) + '# no')}" in card
    assert "\n# no" not in card.split("---\n", 2)[2]


def test_a_set_is_replaced_only_if_that_is_asked_for_and_whole(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    bp.corpus.export(run, folder)
    before = (folder / "graphs.parquet").read_bytes()
    with pytest.raises(UsageError, match="--overwrite"):
        bp.corpus.export(run, folder)
    with pytest.raises(UsageError, match="no sample with graphs to write: nets/failed: failed: timeout"):
        bp.corpus.export(run, folder, where=("verdict = 'failed'",), overwrite=True)
    assert (folder / "graphs.parquet").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "graphs.parquet"]
    assert bp.corpus.export(run, folder, where=("id = 'nets/small'",), overwrite=True).graphs == 2


def test_samples_that_a_run_has_left_where_they_are_are_read_there(tmp_path: Path) -> None:
    models = tmp_path / "models"
    bp.save(bp.capture(torch.nn.Linear(3, 2), torch.randn(4, 3)), models / "own/small")
    capture = bp.load(models / "own/small")
    assert capture.verdict is not None
    row = {"id": "own/small", "kind": "backprint", **sample_row(capture, capture.verdict)}
    verified = ledger(tmp_path / "verified", [row], verb="verify", source=str(models))
    assert bp.corpus.export(verified, tmp_path / "set").graphs == 2
    assert [bp.parse(found["text"]).hash() for found in rows_of(tmp_path / "set")] == [
        capture.pairs[0].forward.hash(),
        capture.pairs[0].backward.hash(),
    ]
    models.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match=r"models/own/small/capture\.json: cannot be read"):
        bp.corpus.export(verified, tmp_path / "new" / "set")
    assert not (tmp_path / "new").exists()


def test_row_groups_are_bounded_by_rows_and_by_text() -> None:
    assert [len(batch) for batch in batches(("x" * (GROUP // 2), 1) for _ in range(5))] == [2, 2, 1]
    assert [len(batch) for batch in batches((1,) for _ in range(2 * BATCH + 1))] == [BATCH, BATCH, 1]


def test_without_pyarrow_it_says_what_to_install(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[parquet\]'"):
        bp.corpus.export(run, tmp_path / "set")
    assert not (tmp_path / "set").exists()


# ------------------------------------------------------------------ the text of a stranger


def test_a_text_that_is_no_graph_is_refused_and_not_run(exported: Path, tmp_path: Path) -> None:
    text = rows_of(exported)[0]["text"]
    for calls in ("os.abort", "torch.load", "torch.ops.mylib.act.default"):
        with pytest.raises(RefusedError):
            bp.parse(text.replace("aten.t.default", calls))
    with pytest.raises(RefusedError):
        bp.parse(text + f"\nopen({str(tmp_path / 'made')!r}, 'w')\n")
    assert not (tmp_path / "made").exists()
    with pytest.raises(UsageError, match="not the text of a graph"):
        bp.parse(None)  # type: ignore[arg-type]  # no text, on purpose


def test_an_operator_that_is_allowed_can_be_read(exported: Path) -> None:
    text = rows_of(exported)[0]["text"].replace("aten.t.default", "torch.ops.mylib.act.default")
    graph = bp.parse(text, allow=["mylib.act"])
    assert "torch.ops.mylib.act.default" in [step.target for step in graph.steps]
