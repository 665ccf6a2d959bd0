"""`backprint corpus`: what it says, what it exits with, and that its parent process has no torch."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console
from subjects.corpora import VERBS, corpus, rows

import backprint as bp
from face import COLUMNS, Bars, Begun, Stage, Written, main


def backprint(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three samples of ours, one of which has nothing to differentiate, and one that is forged."""
    folder = tmp_path_factory.mktemp("ours")
    torch.manual_seed(0)
    for name, target in (
        ("nets/small", torch.nn.Linear(3, 2)),
        ("nets/wide", torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.GELU())),
        ("indices", lambda x: x.argmax(1)),
        ("forged", torch.nn.Linear(3, 2)),
    ):
        bp.save(bp.capture(target, torch.randn(4, 3)), folder / name)
    text = (folder / "forged/pair_0/forward/model.py").read_text()
    assert "aten.t.default" in text
    (folder / "forged/pair_0/forward/model.py").write_text(text.replace("aten.t.default", "os.abort"))
    return folder


@pytest.mark.slow
def test_backward_makes_a_proven_sample_of_each(ours: Path, tmp_path: Path) -> None:
    done = backprint("corpus", "run", "backward", ours, "-o", tmp_path / "out", "--jobs", 1, "--json")
    objects = {row["sample"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.exit_code == 1
    assert {name: row["verdict"] for name, row in objects.items()} == {
        "forged": "failed",
        "indices": "undifferentiable",
        "nets/small": "bitwise",
        "nets/wide": "bitwise",
    }
    assert set(objects["forged"]) >= {"sample", "verdict", "cause", "detail", "stage", "seconds", "power"}
    assert (objects["forged"]["cause"], objects["forged"]["stage"]) == ("refused", "read")
    assert objects["nets/small"]["power"] > 1

    found = rows(tmp_path / "out")
    small = found["nets/small"]
    made = bp.load(tmp_path / "out/nets/small")
    assert [verdict.verdict for verdict in made.verify()] == ["bitwise"]
    assert small["forward_hash"] == made.pairs[0].forward.hash()
    assert small["backward_shape"] == made.pairs[0].backward.hash(sizes=False)
    assert (small["inputs"], small["outputs"], small["gradients"]) == (3, 1, 2)
    assert small["forward_steps"] == len(made.pairs[0].forward.steps)
    assert (small["family"], small["engine"], small["mode"]) == ("nets", "eager", None)
    assert [name for name, _ in small["asks"]] == ["weight", "bias"]
    assert set(small["stages"]) >= {"read", "capture", "save", "verify"}
    assert small["disk_bytes"] > 0
    assert small["peak_bytes"] > 50 << 20
    assert small["versions"]["torch"] == torch.__version__
    said = json.loads((tmp_path / "out/nets/small/result.json").read_text())
    assert {key: said[key] for key in said if key in COLUMNS} == {key: small[key] for key in said if key in COLUMNS}
    assert not (tmp_path / "out/forged").exists()


@pytest.mark.slow
def test_verify_proves_from_the_files_alone(ours: Path, tmp_path: Path) -> None:
    done = backprint("corpus", "run", "verify", ours, "-o", tmp_path / "good", "--only", "nets/*", "--jobs", 1)
    assert (done.exit_code, done.stdout) == (0, "2 samples: 2 bitwise\nbackwards: 2 derivative\n")
    wide = tmp_path / "wide"
    subprocess.run(["cp", "-r", ours / "nets/wide", wide], check=True)
    place = wide / "pair_0/backward/model.py"
    text = place.read_text()
    assert "gelu_backward.default(" in text
    place.write_text(
        re.sub(r"aten\.mm\.default\((\w+), (\w+)\)", r"aten.mm.default(\1, \2) ", text, count=1).replace(
            "aten.gelu_backward.default(", "aten.silu_backward.default(", 1
        )
    )
    done = backprint("corpus", "run", "verify", wide, "-o", tmp_path / "out", "--jobs", 1, "--json")
    [row] = map(json.loads, done.stdout.splitlines())
    assert (done.exit_code, row["verdict"]) == (1, "wrong")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "verdicts"),
    [
        ("power", {"bitwise"}),
        ("capture", {"bitwise"}),
        ("forward", {"undifferentiable"}),
    ],
)
def test_the_other_verbs_of_the_table(ours: Path, tmp_path: Path, verb: str, verdicts: set[str]) -> None:
    done = backprint("corpus", "run", verb, ours, "-o", tmp_path / "out", "--only", "nets/*", "--jobs", 1)
    assert done.exit_code == 0
    found = rows(tmp_path / "out")
    assert {row["verdict"] for row in found.values()} == verdicts
    assert (tmp_path / "out/nets/small/capture.json").exists() == (verb != "power")
    if verb == "power":
        assert all(row["power"] > 1 and row["stages"]["power"] > 0 for row in found.values())


def test_status_says_how_a_run_stands(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["a/good", "a/raise", "b/good", "b/exit"])
    backprint("corpus", "run", f"{VERBS}:act", source, "-o", tmp_path / "out", "--jobs", 2)
    done = backprint("corpus", "status", tmp_path / "out")
    assert done.exit_code == 0
    first, second, *_ = done.stdout.splitlines()
    assert first == "4 of 4 samples are done; 2 bitwise, 2 failed"
    assert second == f"{VERBS}:act of {source}"
    assert "causes: 1 ZeroDivisionError, 1 exit 3" in done.stdout
    assert "a/raise: failed (ZeroDivisionError: division by zero) [" in done.stdout
    answer = json.loads(backprint("corpus", "status", tmp_path / "out", "--json").stdout)
    assert answer["states"] == {"done": 4}
    assert not answer["at_work"]
    assert {row["sample"] for row in answer["failures"]} == {"a/raise", "b/exit"}
    assert {row["sample"] for row in answer["slowest"]} == {"a/good", "a/raise", "b/good", "b/exit"}
    [log] = [row["log"] for row in answer["failures"] if row["sample"] == "a/raise"]
    assert "division by zero" in Path(log).read_text()


def test_without_a_terminal_it_says_a_line_for_what_is_not_good(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["good", "raise"])
    done = backprint("corpus", "run", f"{VERBS}:act", source, "-o", tmp_path / "out", "--jobs", 1)
    assert done.stdout == "2 samples: 1 bitwise, 1 failed\n     1 ZeroDivisionError\n"
    assert "raise: failed (ZeroDivisionError: division by zero)\n" in done.stderr
    assert re.search(r"2 of 2 samples done; 1 bitwise, 1 failed\n", done.stderr)


def test_on_a_terminal_it_shows_bars_counts_workers_and_failures() -> None:
    bars = Bars()
    for event in (
        Begun(10, 4),
        Written({"id": "a", "verdict": "bitwise"}),
        Stage("nets/b", "worker 0", "capture"),
        Written({"id": "c", "verdict": "failed", "cause": "timeout", "detail": "after 3 s"}),
    ):
        bars.take(event)
    console = Console(file=io.StringIO(), width=120)
    console.print(bars.picture())
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"━+ .*6 of 10 samples done; 1 bitwise, 1 failed; [\d.]+/s 0:00:\d\d", said)
    assert "worker 0 capture 0 s nets/b" in said
    assert "c: failed (timeout: after 3 s)" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "sideways", "SRC"], "No such command 'sideways'. There are backward, capture, forward, verify, power"),
        (["run", "absent.py:f", "SRC"], "absent.py: no such file"),
        (["run", "kernels", "SRC", "--set", "colour=green"], "kernels takes no option 'colour'; it takes targets"),
        (["run", "kernels", "SRC", "--set", "green"], "write NAME=VALUE"),
        (["run", "backward", "absent"], "absent: no such folder"),
        (["run", "backward", "SRC", "--timeout", "0"], "--timeout 0.0: must be more than 0"),
        (["run", "backward", "SRC", "--list", "absent"], "--list absent: No such file or directory"),
    ],
)
def test_a_wrong_call_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    source = corpus(tmp_path / "src", ["good"])
    done = backprint("corpus", *(source if each == "SRC" else each for each in arguments), "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert said in " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())


def test_a_verb_that_cannot_be_loaded_stops_the_run(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["good"])
    (tmp_path / "verb.py").write_text("import absent_module\n")
    done = backprint("corpus", "run", f"{tmp_path / 'verb.py'}:f", source, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "no worker can start: ModuleNotFoundError: No module named 'absent_module'" in done.stderr
    assert {row["state"] for row in rows(tmp_path / "out").values()} == {"todo"}


def test_settings_reach_the_verb_as_json_where_they_are(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["good"])
    (tmp_path / "verb.py").write_text(
        "def f(task, options, staging):\n    return {'verdict': 'close', 'detail': repr(sorted(options.items()))}\n"
    )
    place = ("corpus", "run", f"{tmp_path / 'verb.py'}:f", source, "-o", tmp_path / "out")
    backprint(*place, "--set", "a=1", "--set", "b=[true]", "--set", "c=word")
    assert rows(tmp_path / "out")["good"]["detail"] == "[('a', 1), ('b', [True]), ('c', 'word')]"
    done = backprint(*place, "--set", "a=2")
    assert done.exit_code == 2
    assert "a 1, now 2" in " ".join(done.stderr.split())


PARENT = """
import sys
from backprint.cli import main
main(sys.argv[1:], standalone_mode=False)
sys.exit(3 if "torch" in sys.modules else 0)
"""


@pytest.mark.slow
def test_the_parent_of_a_run_does_not_load_torch(ours: Path, tmp_path: Path) -> None:
    arguments: list[Any] = ["corpus", "run", "verify", ours, "-o", tmp_path / "out", "--jobs", 1, "--only", "nets/*"]
    done = subprocess.run(
        [sys.executable, "-c", PARENT, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2 samples: 2 bitwise\nbackwards: 2 derivative\n"), done.stderr
    done = subprocess.run(
        [sys.executable, "-c", PARENT, "corpus", "status", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
