"""`backprint bench`: a run over samples and compilers, whatever the compilers do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from runs_made import cell as written_cell
from runs_made import write_run

import backprint as bp
from face import (
    BenchCell,
    ChildEnd,
    UsageError,
    append,
    cell_from_json,
    main,
    read_cells,
    read_run,
    write_end_of_process,
)
from face import trial_row_of as row_of

OWN = Path(__file__).with_name("own_compilers.py")


def own(name: str) -> str:
    return f"{OWN}:{name}"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two samples: a small network with a buffer that changes, and a function."""
    folder = tmp_path_factory.mktemp("samples")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    bp.save(bp.capture(net, torch.randn(32, 8), mode="train"), folder / "nets" / "mlp")
    weight = torch.randn(6, 6, requires_grad=True)
    bp.save(bp.capture(lambda x, w: (x @ w).tanh().sum(), torch.randn(5, 6), weight), folder / "functions" / "tanh")
    return folder


def outcomes(run: Any) -> dict[str, str]:
    return {f"{cell.sample} {cell.graph}": cell.outcome for cell in run.cells}


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["nets/mlp", "functions/tanh"])
def test_strides_of_a_compiled_forward_are_no_fault_of_its_backward(samples: Path, sample: str, cells_of: Any) -> None:
    cells = cells_of(bp.load(samples / sample), own("other_strides"), ("forward", "backward", "step"))
    assert [cell.outcome for cell in cells.values()] == ["untimed"] * 3, [cell.reason for cell in cells.values()]


@pytest.mark.slow
def test_a_saved_value_that_was_expanded_reaches_its_backward_in_the_strides_it_was_compiled_for(cells_of: Any) -> None:
    """A compiled forward may return such a value as a whole tensor, as Inductor does."""
    drawn = [torch.randn(shape, requires_grad=True) for shape in ((1, 6), (6, 6))]
    capture = bp.capture(lambda x, w: x.tanh().expand(5, 6) @ w, *drawn)
    saved = [port.spec.stride for port in capture.pairs[0].backward.inputs if port.role == "saved"]
    assert any(stride and 0 in stride for stride in saved), saved
    cells = cells_of(capture, own("other_strides"), ("forward", "backward", "step"))
    assert [cell.outcome for cell in cells.values()] == ["untimed"] * 3, [cell.reason for cell in cells.values()]


@pytest.mark.slow
def test_a_right_compiler_is_right_everywhere_and_timed(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(samples, own("right"), tmp_path / "run")
    assert Counter(cell.compiler for cell in run.cells) == {own("right"): 6}
    for cell in run.cells:
        assert cell.right, (cell.sample, cell.graph, cell.outcome, cell.reason)
        assert cell.timing is not None
        assert cell.timing.rounds >= 20
        assert all(output.equal for output in cell.outputs)
        assert cell.flops is not None
        assert cell.peak_bytes is not None
        assert (cell.cold is None) == (cell.direction == "step")
    assert {cell.family for cell in run.cells} == {"nets", "functions"}
    (forward,) = [cell for cell in run.cells if (cell.sample, cell.graph) == ("nets/mlp", "pair_0 forward")]
    assert {output.name for output in forward.outputs if not output.power} <= {"1.num_batches_tracked"}


def test_a_slow_compiler_is_right_and_slower(samples: Path, cells_of: Any) -> None:
    cell = cells_of(bp.load(samples / "functions" / "tanh"), own("slow"), ["forward"], timed=True)["forward"]
    assert (cell.outcome, cell.right) == ("slower", True)
    assert cell.timing is not None
    assert cell.timing.low > 1.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "outcome", "said"),
    [
        ("wrong", "wrong", "relative error 0.01"),
        ("fewer", "wrong", "results where eager gives"),
        ("refuses", "refused", "NotImplementedError: aten.mystery.default has no lowering"),
        ("raises", "failed", "ValueError: only once"),
        ("leaves", "refused", "SystemExit: 3"),
    ],
)
def test_what_a_compiler_does_wrong_is_said(
    samples: Path, cells_of: Any, compiler: str, outcome: str, said: str
) -> None:
    for sample in ("nets/mlp", "functions/tanh"):
        cells = cells_of(bp.load(samples / sample), own(compiler))
        assert [cell.outcome for cell in cells.values()] == [outcome] * 2
        assert all(said in cell.reason for cell in cells.values())


@pytest.mark.slow
def test_a_crash_costs_its_own_graph_and_its_step(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(samples, own("dies_in_forward"), tmp_path / "run", timed=False)
    assert outcomes(run) == {
        "functions/tanh pair_0 forward": "untimed",
        "functions/tanh pair_0 backward": "untimed",
        "functions/tanh pair_0 step": "untimed",
        "nets/mlp pair_0 forward": "crashed",
        "nets/mlp pair_0 backward": "untimed",
        "nets/mlp pair_0 step": "skipped",
    }
    (crashed,) = [cell for cell in run.cells if cell.outcome == "crashed"]
    assert crashed.reason == "compile: killed by SIGSEGV"


@pytest.mark.slow
def test_a_compiler_that_hangs_is_ended_at_each_graph(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(samples / "functions", own("hangs"), tmp_path / "run", timed=False, timeout=5)
    assert list(outcomes(run).values()) == ["timeout", "timeout", "skipped"]
    assert "still at work after 5 s" in run.cells[0].reason


@pytest.mark.slow
def test_each_graph_has_the_whole_time(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(
        samples / "functions",
        own("takes_four_seconds"),
        tmp_path / "run",
        directions=["forward", "backward"],
        timed=False,
        timeout=11,
    )
    assert [cell.outcome for cell in run.cells] == ["untimed", "untimed"]


def test_an_error_of_ours_is_not_blamed_on_a_compiler(tmp_path: Path) -> None:
    file = tmp_path / "cells.jsonl"
    blank = BenchCell("s", "", "", "right", "")
    append(file, {"begun": "pair_0 forward", "stage": "judge"})
    write_end_of_process(file, ChildEnd(cause="raised", detail="KeyError: 'x'"), ["pair_0 forward"], blank)
    (cell,) = read_cells(file)
    assert (cell.outcome, cell.reason) == ("unjudged", "judge: KeyError: 'x'")
    assert row_of([cell])["verdict"] == "unproven"


def test_a_compiler_that_fills_memory_is_ended_at_each_graph(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(
        samples / "functions", own("greedy"), tmp_path / "run", directions=["forward"], timed=False, memory=1.5
    )
    assert set(outcomes(run).values()) <= {"out of memory", "refused"}  # it is ended, or its allocation fails
    assert run.cells[0].outcome == "out of memory" or "MemoryError" in run.cells[0].reason


def test_processes_that_a_compiler_leaves_are_ended(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(samples / "functions", own("leaves_a_process"), tmp_path / "run", timed=False)
    assert all(cell.right for cell in run.cells)


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_ended_and_adds_compilers(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = bp.bench.run(samples, "eager", out, timed=False)
    written = (out / "eager" / "nets" / "mlp" / "cells.jsonl").stat().st_mtime_ns
    again = bp.bench.run(samples, ["eager", own("right")], out, timed=False)
    assert [cell for cell in again.cells if cell.compiler == "eager"] == list(first.cells)
    assert len(again.cells) == 12
    assert (out / "eager" / "nets" / "mlp" / "cells.jsonl").stat().st_mtime_ns == written
    with pytest.raises(UsageError, match="has other options"):
        bp.bench.run(samples, "eager", out, timed=False, threads=2)


@pytest.mark.slow
def test_a_run_does_not_go_on_with_a_compiler_whose_file_was_edited(samples: Path, tmp_path: Path) -> None:
    """The verdicts of the file as it was would be taken for those of the file as it is."""
    compiler = tmp_path / "mine.py"
    compiler.write_text("def compiler(module, inputs):\n    return module\n")
    name, out = f"{compiler}:compiler", tmp_path / "run"
    bp.bench.run(samples / "functions", name, out, timed=False, directions=["forward"])
    compiler.write_text("def compiler(module, inputs):\n    return lambda *args: 1 / 0\n")
    with pytest.raises(UsageError, match=r"has results of another .*mine.py:compiler: mine.py \w+ there, \w+ now"):
        bp.bench.run(samples / "functions", name, out, timed=False, directions=["forward"])


@pytest.mark.slow
def test_a_killed_run_goes_on(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "backprint", "bench", "run", str(samples), "-o", str(out)]
    command += ["--compiler", own("right"), "--no-timing"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(out.glob("*/.work/*/*/sample/cells.jsonl")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = read_run(out)
    assert len(run.cells) == 6
    assert run.unfinished == 0
    assert (out / "report.html").is_file()


def test_samples_of_several_places_are_one_run(samples: Path, tmp_path: Path) -> None:
    places = [samples / "nets", samples / "functions" / "tanh"]
    run = bp.bench.run(places, "eager", tmp_path / "run", timed=False, directions=["forward"])
    assert {cell.sample for cell in run.cells} == {"nets/mlp", "functions/tanh"}


def test_jobs_take_turns(samples: Path, tmp_path: Path) -> None:
    run = bp.bench.run(samples, "eager", tmp_path / "run", jobs=2, directions=["forward"])
    assert run.jobs == 2  # so that the report knows which load is its own
    assert all(cell.right for cell in run.cells)
    assert len(run.cells) == 2


def test_a_graphnet_sample_is_captured_first(samples: Path, tmp_path: Path) -> None:
    bp.save(bp.load(samples / "nets" / "mlp"), tmp_path / "trees", layout="graphnet")
    (forward,) = (tmp_path / "trees").glob("train_forward/**/model.py")
    run = bp.bench.run(forward.parent, "eager", tmp_path / "run", timed=False)
    assert run.cells
    assert all(cell.right for cell in run.cells)


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["bench", "run", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_prints_the_answer_and_exits_with_1_if_a_compiler_is_wrong(samples: Path, tmp_path: Path) -> None:
    given = (samples, "--compiler", f"eager,{own('wrong')}", "--no-timing", "-o", tmp_path / "run")
    answer = invoke(*given)
    assert answer.exit_code == 1, answer.output
    assert answer.stdout.startswith("eager: 6 of 6 right;")
    assert "Not right" in answer.stdout
    rows = [json.loads(line) for line in invoke(*given, "--json").stdout.splitlines() if line.startswith("{")]
    assert len(rows) == 12
    assert {cell_from_json(row).compiler for row in rows} == {"eager", own("wrong")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--compiler", "inducto"], "inductor"),
        (["--compiler", "nowhere.py:function"], "nowhere.py"),
        (["--compiler", own("nowhere")], "has no function 'nowhere'"),
        (["--compiler", "eager", "--ray", "127.0.0.1:1"], "no Ray cluster at 127.0.0.1:1"),
    ],
)
def test_a_call_that_cannot_be_right_is_refused(samples: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    answer = invoke(samples, "-o", tmp_path / "run", *arguments)
    assert answer.exit_code == 2
    assert said in answer.output


def test_a_place_without_samples_and_a_folder_of_something_else_are_refused(samples: Path, tmp_path: Path) -> None:
    assert "no such folder" in invoke(tmp_path / "no", "--compiler", "eager", "-o", tmp_path / "run").output
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    answer = invoke(samples, "--compiler", "eager", "-o", tmp_path / "other")
    assert answer.exit_code == 2
    assert "not the folder of a bench run" in answer.output


def test_a_run_of_another_version_is_refused(samples: Path, tmp_path: Path) -> None:
    out = write_run(tmp_path / "run", [written_cell()])
    facts = json.loads((out / "bench.json").read_text())
    (out / "bench.json").write_text(json.dumps({**facts, "format": 99}))
    answer = invoke(samples / "functions", "--compiler", "eager", "--no-timing", "-o", out)
    assert answer.exit_code == 2
    assert "99" in answer.output


def test_a_missing_package_is_named_with_the_line_that_installs_it(samples: Path, tmp_path: Path) -> None:
    from face import COMPILERS, has_module

    missing = [row for row in COMPILERS.values() if row.packages and not all(map(has_module, row.packages))]
    if not missing:
        pytest.skip("every compiler's packages are installed here")
    answer = invoke(samples, "--compiler", missing[0].name, "-o", tmp_path / "run")
    assert answer.exit_code == 2
    assert f"pip install '.[{missing[0].extra}]'" in answer.output
    assert not os.path.exists(tmp_path / "run")
