"""GraphNet samples in a corpus: proven, or in the ledger with the cause why not, whatever their code does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from subjects.corpora import left_behind, rows
from subjects.odd_graphnet import ONE_BY_ONE, graphnet

import backprint as bp
from face import (
    ENGINES,
    GIB,
    GOOD,
    WORK,
    CaptureError,
    Limits,
    Pair,
    Ref,
    RunPlan,
    Step,
    Task,
    UsageError,
    capture_and_prove,
    log_of,
    resolve_verb,
    run_plan,
)

HOSTILE: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # what is written, then the verdict, the cause and what the detail says
    "good": ({}, "bitwise", "", ""),
    "also/good": ({}, "bitwise", "", ""),
    "two\nlines": ({}, "failed", "refused", "not printable UTF-8 text"),
    "hang": ({"before": ONE_BY_ONE + "time.sleep(600)"}, "failed", "timeout", "(--timeout)"),
    "hang_in_forward": (
        {"before": ONE_BY_ONE, "within": "time.sleep(600)"},
        "failed",
        "timeout",
        "(--timeout)",
    ),
    "segfault": ({"before": ONE_BY_ONE + "ctypes.string_at(0)"}, "failed", "killed by SIGSEGV", "Segmentation fault"),
    "abort": ({"before": ONE_BY_ONE + "os.abort()"}, "failed", "killed by SIGABRT", "Aborted"),
    "exhaust": (
        {"before": "import time\nkept = []\nwhile True:\n    kept.append(b'x' * 2**24)\n    time.sleep(0.001)"},
        "failed",
        "out of memory",
        "(--memory)",
    ),
    "allocate": ({"before": "torch.empty(2**45)"}, "unproven", "out of memory", "allocate memory"),
    "fork_bomb": (
        {"before": ONE_BY_ONE + "for _ in range(7):\n    os.fork()\ntime.sleep(60)"},
        "failed",
        "too many processes",
        "32 are allowed",
    ),
    "exit": ({"before": ONE_BY_ONE + "sys.exit(3)"}, "failed", "exit 3", "sys.exit"),
    "os_exit": ({"before": ONE_BY_ONE + "os._exit(5)"}, "failed", "exit 5", "before it was done"),
    "flood": ({"before": "print('x' * 10_000_000)"}, "bitwise", "", ""),
    "syntax": ({"code": "class GraphModule(torch.nn.Module:\n"}, "failed", "syntax", ""),
    "raise": ({"before": "1 / 0"}, "failed", "ZeroDivisionError", "division by zero"),
    "large": ({"rows": 2**26}, "unproven", "too large", "(--memory)"),
}
BROKEN = {"no_model": "missing file", "no_meta": "missing file", "dangling": "missing file", "folder": "unreadable"}

LIMITS = Limits(timeout=12.0, memory=3 * GIB // 2, disk=GIB)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trusting run on all of them."""
    folder = tmp_path_factory.mktemp("graphnet")
    source = folder / "samples"
    for name, (written, *_) in HOSTILE.items():
        graphnet(source / name, **written)
    for name in BROKEN:
        graphnet(source / name)
    (source / "no_model/model.py").unlink()
    (source / "no_meta/weight_meta.py").unlink()
    for name in ("dangling", "folder"):
        (source / name / "model.py").unlink()
    (source / "dangling/model.py").symlink_to("nowhere")
    (source / "folder/model.py").mkdir()
    verb, options = resolve_verb("backward", {"trust": True})
    run_plan(RunPlan(verb, source, folder / "out", options), LIMITS, 2)
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_sample_is_in_the_ledger_with_its_cause(out: Path, name: str) -> None:
    _, verdict, cause, detail = HOSTILE[name]
    row = rows(out)[name.replace("\n", r"\n")]
    assert (row["verdict"], row["cause"]) == (verdict, cause), row
    assert detail in row["detail"]
    if verdict == "failed":
        assert not (out / name).exists()
    else:
        assert [found.verdict for found in bp.load(out / name).verify()] == [verdict]


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_sample_is_in_the_ledger_with_its_cause(out: Path, name: str) -> None:
    row = rows(out)[name]
    assert (row["state"], row["verdict"], row["cause"]) == ("done", "failed", BROKEN[name]), row


@pytest.mark.slow
def test_what_is_too_large_beside_others_is_captured_alone(tmp_path: Path) -> None:
    for name, count in {"a_large": 2**22, "b_small": 4, "c_small": 4, "d_larger": 2**26}.items():
        graphnet(tmp_path / "samples" / name, rows=count)
    verb, options = resolve_verb("backward", {})
    limits = Limits(timeout=60.0, memory=5 * GIB // 8, disk=GIB, shares=5)
    run_plan(RunPlan(verb, tmp_path / "samples", tmp_path / "out", options), limits, 2)
    found = rows(tmp_path / "out")
    assert [(found[name]["verdict"], found[name]["attempts"]) for name in sorted(found)] == [
        ("bitwise", 2),
        ("bitwise", 1),
        ("bitwise", 1),
        ("unproven", 1),
    ]
    assert found["a_large"]["peak_bytes"] > limits.memory
    assert found["a_large"]["started"] > max(found[name]["finished"] for name in ("b_small", "c_small", "d_larger"))
    assert (found["d_larger"]["cause"], found["a_large"]["cause"]) == ("too large", "")
    assert found["d_larger"]["detail"] == "10.0 GiB by its metadata, 3.1 are allowed (--memory)"


@pytest.mark.slow
def test_what_is_too_slow_is_captured_without_values(tmp_path: Path) -> None:
    lines = ["slow = torch.ones(4000, 4000)", *["slow = torch.matmul(slow, slow)"] * 60, "l_x_ = l_x_ + slow[0, 0]"]
    graphnet(tmp_path / "samples/slow", within="\n        ".join(lines))
    verb, options = resolve_verb("backward", {})
    run_plan(RunPlan(verb, tmp_path / "samples", tmp_path / "out", options), Limits(timeout=8.0, memory=4 * GIB), 1)
    row = rows(tmp_path / "out")["slow"]
    assert (row["verdict"], row["cause"], row["attempts"]) == ("unproven", "timeout", 2)
    assert row["detail"] == "still at work after 8 s (--timeout)"
    assert row["seconds"] > 8  # both tries
    [pair] = bp.load(tmp_path / "out/slow").pairs
    assert sum("mm" in step.target for step in pair.forward.steps) >= 60
    assert pair.backward is not None


@pytest.mark.slow
def test_each_is_there_once_and_nothing_is_left_behind(out: Path) -> None:
    assert set(rows(out)) == {name.replace("\n", r"\n") for name in (*HOSTILE, *BROKEN)}
    assert left_behind(out) == []
    assert {place.name for place in (out / WORK).iterdir()} == {"lock", "logs"}
    assert "ZeroDivisionError" in log_of(out, "raise").read_text()


@pytest.mark.slow
def test_what_was_made_is_proven_again_by_fresh_processes(out: Path, tmp_path: Path) -> None:
    verb, options = resolve_verb("verify", {})
    run_plan(RunPlan(verb, out, tmp_path / "out", options), LIMITS, 2)
    verdicts = {row["verdict"] for row in rows(tmp_path / "out").values()}
    assert verdicts == {"bitwise", "unproven"}
    assert len(rows(tmp_path / "out")) == sum(verdict != "failed" for _, verdict, *_ in HOSTILE.values())
    assert verdicts - GOOD == {"unproven"}


@pytest.mark.slow
def test_trees_of_graphnets_layout_stand_beside_the_samples(tmp_path: Path) -> None:
    source, place = tmp_path / "samples", tmp_path / "out"
    graphnet(source / "a/one")
    graphnet(source / "two lines")
    verb, options = resolve_verb("backward", {"layout": "graphnet"})
    run_plan(RunPlan(verb, source, place, options), LIMITS, 1)
    assert {row["verdict"] for row in rows(place).values()} == {"bitwise"}
    for tree in ("train_forward", "train_backward", "eval_forward"):
        found = sorted(mark.parent.relative_to(place / tree) for mark in (place / tree).rglob("graph_net.json"))
        assert found[0] == Path("a/one")
        assert found[1].name.startswith("two_lines.")
        assert {file.name for file in (place / tree / "a/one").iterdir()} >= {"model.py", "graph_hash.txt"}
    assert (place / "eval_forward/a/one/model.py").read_bytes() == (source / "a/one/model.py").read_bytes()
    again = tmp_path / "again"
    run_plan(RunPlan("verify", place, again, {"allow": []}), LIMITS, 1)  # which passes over what is GraphNet's
    assert {name: row["verdict"] for name, row in rows(again).items()} == {"a/one": "bitwise", "two lines": "bitwise"}


def doubling(engine: str) -> Any:
    """An engine whose first gradient is twice what it should be."""
    traced = ENGINES[engine].make

    def doubled(*args: Any, **kwargs: Any) -> Any:
        made = traced(*args, **kwargs)
        pair = made.pairs[0]
        last = pair.backward.results[0]
        step = Step("spoiled", "aten.mul.Tensor", (last, 2.0))
        spoiled = replace(
            pair.backward, steps=(*pair.backward.steps, step), results=(Ref("spoiled"), *pair.backward.results[1:])
        )
        return replace(made, pairs=(Pair(pair.name, pair.forward, spoiled),))

    return replace(ENGINES[engine], make=doubled)


def test_what_one_engine_has_wrong_another_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "eager", doubling("eager"))
    place = graphnet(tmp_path / "sample")
    _, options = resolve_verb("backward", {})
    row = capture_and_prove(Task("sample", str(place), kind="graphnet"), options, tmp_path / "out")
    assert row["verdict"] == "bitwise", row["notes"]
    assert row["engine"] == "aot"
    reason = "eager: the captured graph does not compute what the program computes: gradient"
    assert any(reason in note for note in row["notes"])
    assert bp.load(tmp_path / "out").verdict["verdict"] == "bitwise"


def test_what_the_proof_of_a_sample_refutes_is_tried_with_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backprint.prove.at_capture.held_against_program", lambda capture, program: None)
    monkeypatch.setitem(ENGINES, "eager", doubling("eager"))
    task = Task("sample", str(graphnet(tmp_path / "sample")), kind="graphnet")
    _, options = resolve_verb("backward", {})
    row = capture_and_prove(task, options, tmp_path / "out")
    assert (row["verdict"], row["engine"]) == ("bitwise", "aot")
    assert any(note.startswith("not by eager: wrong, ") for note in row["notes"])
    assert bp.load(tmp_path / "out").verdict["verdict"] == "bitwise"
    monkeypatch.setitem(ENGINES, "aot", replace(ENGINES["aot"], make=refuses))
    row = capture_and_prove(task, options, tmp_path / "out")
    assert (row["verdict"], row["engine"]) == ("wrong", "eager")
    assert "not by aot: it cannot be traced" in row["notes"]
    assert bp.load(tmp_path / "out").verdict["verdict"] == "wrong"


@pytest.mark.parametrize(
    ("requires_grad", "wanted"),
    [
        (None, [["fc.weight", "a parameter by its name"]]),
        ("inputs", [["x", "requires_grad=inputs"]]),
        ("all", [["fc.weight", "requires_grad=all"], ["x", "requires_grad=all"]]),
        (["x"], [["x", "requires_grad names it"]]),
    ],
)
def test_the_row_says_which_inputs_require_grad_and_by_which_rule(
    requires_grad: Any, wanted: list[list[str]], tmp_path: Path
) -> None:
    task = Task("sample", str(graphnet(tmp_path / "sample")), kind="graphnet")
    _, options = resolve_verb("backward", {"requires_grad": requires_grad, "power": "none"})
    row = capture_and_prove(task, options, tmp_path / "out")
    assert (row["verdict"], row["gradients"]) == ("bitwise", len(wanted))
    assert [list(pair) for pair in row["asks"]] == wanted


def test_a_rule_of_gradients_that_contradicts_the_verb_or_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="forward means requires_grad=False, not requires_grad='all'"):
        resolve_verb("forward", {"requires_grad": "all"})
    with pytest.raises(UsageError, match="none of 'inputs', 'parameters', 'all'"):
        resolve_verb("backward", {"requires_grad": "input"})


def refuses(*args: Any) -> Any:
    raise CaptureError("it cannot be traced")
