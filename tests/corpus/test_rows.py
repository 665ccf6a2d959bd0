"""A run that no row, no lost folder and no full disk can end: each costs itself, or one line and a resume."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import threading
from collections import namedtuple
from pathlib import Path

import pytest
from click.testing import CliRunner
from subjects.corpora import SMALL, VERBS, at_work, command, corpus, plan, rows, until, worked
from subjects.odd_rows import ODD, UNSENT

from face import LEDGER_LARGEST as LARGEST
from face import (
    LONGEST,
    MESSAGE,
    RESULT,
    TREE_FILES,
    TREE_NAMES,
    WORK,
    Ledger,
    PlaceError,
    RunPlan,
    UsageError,
    check_row,
    csv_lines,
    find,
    main,
    report,
    row_or_failure,
    run_plan,
    source_hash,
)


@pytest.mark.parametrize("name", ODD)
def test_a_row_that_cannot_be_kept_says_why(name: str) -> None:
    odd, said = ODD[name]
    with pytest.raises(UsageError) as caught:
        check_row({"verdict": "bitwise"} | odd)
    assert said in str(caught.value)
    row = row_or_failure({"verdict": "bitwise"} | odd)
    assert (row["verdict"], row["cause"]) == ("failed", "no row")


def test_what_can_be_kept_is_kept_as_it_is() -> None:
    row = {"verdict": "close", "power": "inf", "inputs": 5.0, "saved_bytes": -(2**63), "seconds": None, "notes": ("a",)}
    assert check_row(row) == row | {"power": math.inf, "notes": ["a"], "cause": ""}
    assert check_row({"verdict": "failed", "detail": "\ud800"})["detail"] == "\\ud800"
    assert LARGEST * 5 + LONGEST * 20 < MESSAGE, "a row that is kept is one that can be told"


def test_odd_rows_cost_themselves_and_reports_read_the_others(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", [*(f"odd {name}" for name in ODD), "good", "forged"])
    found = worked(source, tmp_path / "out", "odd_row")
    good = found.pop("good")
    assert good["verdict"] == "bitwise", good
    unsent = {found.pop(f"odd {name}")["cause"] for name in UNSENT}
    assert unsent == {"ValueError"}
    assert {(row["verdict"], row["cause"]) for row in found.values()} == {("failed", "no row")}
    assert "vacuous 7" in found["forged"]["detail"]
    assert worked(source, tmp_path / "out", "odd_row") == rows(tmp_path / "out")
    assert len(list(csv_lines(report(tmp_path / "out").rows))) == len(ODD) + 3
    for verb in ("status", "report"):
        done = CliRunner().invoke(main, ["corpus", verb, str(tmp_path / "out")])
        assert (done.exit_code, "no row" in done.output) == (0, True)


def test_a_result_that_was_tampered_with_is_done_again(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["a", "b"])
    worked(source, tmp_path / "out")
    for name, content in (("a", {"inputs": 2**70}), ("b", None)):
        place = tmp_path / "out" / name / RESULT
        place.write_text(json.dumps(json.loads(place.read_text()) | content if content else []))
    with Ledger.writing(tmp_path / "out" / "ledger.sqlite") as ledger:
        ledger.connection.execute("update samples set state = 'running'")
    assert {row["attempts"] for row in worked(source, tmp_path / "out").values()} == {2}


# ------------------------------------------------------------------ what is written to goes away


@pytest.mark.slow
@pytest.mark.parametrize(("what", "said"), [("", "begins anew"), (WORK, "goes on from here")])
def test_a_folder_that_is_removed_costs_one_line_and_a_resume(tmp_path: Path, what: str, said: str) -> None:
    source, out = corpus(tmp_path / "src", [*"abc", "hang"]), tmp_path / "out"
    arguments = ("run", f"{VERBS}:act", source, "-o", out, "--jobs", 1, "--timeout", 5)
    parent = command(*arguments)
    until(lambda: at_work(out) == {"hang"})
    (out / what).rename(tmp_path / "gone")  # in one step: the run writes to it
    _, errors = parent.communicate(timeout=60)
    told = [line for line in errors.splitlines() if line.startswith("backprint: ")]
    assert (parent.returncode, len(told)) == (2, 1), errors
    assert "Traceback" not in errors
    assert "was removed while the run went on" in told[0]
    assert said in told[0]
    again = command(*arguments)
    _, errors = again.communicate(timeout=60)
    assert again.returncode == 1, errors
    found = rows(out)
    assert {name: row["verdict"] for name, row in found.items()} == dict.fromkeys("abc", "bitwise") | {"hang": "failed"}
    assert {name for name in "abc" if (out / name / "written.txt").exists()} == set("abc")


Room = namedtuple("Room", "f_bavail f_frsize")


def test_a_full_disk_is_no_samples_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = corpus(tmp_path / "src", ["a", "fill", "z"]), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("backprint.tools.jobs.run.os.statvfs", lambda place: Room(1, 1 << 20))
        with pytest.raises(PlaceError, match=r"cannot be written to: 0\.00 GiB are left.*goes on from here"):
            worked(source, out, jobs=1)
    assert {name: row["state"] for name, row in rows(out).items()} == {"a": "done", "fill": "todo", "z": "todo"}
    found = worked(source, out, jobs=1)
    assert {name: row["cause"] for name, row in found.items()} == {"a": "", "fill": "disk full", "z": ""}


@pytest.mark.parametrize("where", ["place_folder", "the row"])
def test_no_space_for_what_came_of_a_sample_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    source, out = corpus(tmp_path / "src", ["a", "b"]), tmp_path / "out"

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if where == "place_folder":
            patch.setattr("backprint.tools.jobs.run.place_folder", full)
        else:
            patch.setattr(Ledger, "finish", full)
        with pytest.raises(PlaceError, match="No space left on device; once it can be, the same command goes on"):
            worked(source, out)
    assert {row["state"] for row in rows(out).values()} == {"todo"}
    assert {row["verdict"] for row in worked(source, out).values()} == {"bitwise"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=700M tmpfs {disk} 2>/dev/null"):
        pytest.skip("nothing can be mounted here")
    try:
        source = corpus(tmp_path / "src", [f"s{number}" for number in range(4)])
        worked(source, disk / "out")
        corpus(source, ["late"])
        with open(disk / "full", "wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * (1 << 20))
        done = CliRunner().invoke(main, ["corpus", "run", f"{VERBS}:act", str(source), "-o", str(disk / "out")])
        assert (done.exit_code, done.stderr.count("backprint: "), "Traceback" in done.stderr) == (2, 1, False)
        (disk / "full").unlink()
        assert {row["verdict"] for row in worked(source, disk / "out").values()} == {"bitwise"}
    finally:
        os.system(f"umount {disk}")


def test_a_name_that_cannot_be_written_is_the_samples_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(*_: object) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    monkeypatch.setattr("backprint.tools.jobs.run.place_folder", long)
    [row] = worked(corpus(tmp_path / "src", ["a"]), tmp_path / "out").values()
    assert (row["verdict"], row["cause"]) == ("failed", "not written")


# ------------------------------------------------------------------ samples below samples

NESTED = ("a", "a/b", "a/b/c", "train_forward/a", "eval_forward/a/b")


def trees(out: Path) -> dict[str, str]:
    """What is in each tree's folder, by whose it says it is."""
    found = {}
    for name in TREE_NAMES:
        for mark in (out / name).rglob("graph_net.json"):
            said = json.loads(mark.read_text())
            assert str(mark.parent.relative_to(out / name)) == said["place"]
            found[str(mark.parent.relative_to(out))] = said["id"]
    return found


def test_trees_of_samples_below_samples_are_all_there(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "src", NESTED), tmp_path / "out"
    wanted = {f"{tree}/{name}": name for tree in TREE_NAMES for name in NESTED}
    run_plan(plan(source, out, "planted"), SMALL, 2)
    assert trees(out) == wanted
    for again in (("bitwise",), ("close",)):
        run_plan(plan(source, out, "planted"), SMALL, 1, retry=again)
        assert trees(out) == wanted
        assert {name for name in NESTED if (out / name / RESULT).is_file()} == set(NESTED)
    (source / "train_forward/a" / "model.py").write_text("changed")  # it lies where a tree of `a` is, too
    run_plan(plan(source, out, "planted"), SMALL, 1)
    assert trees(out) == wanted
    for name in NESTED:
        assert json.loads((out / name / RESULT).read_text())["id"] == name


def test_subgraphs_that_are_no_more_go_and_samples_below_stay(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "src", ["several", "several/subgraph_7"]), tmp_path / "out"
    run_plan(plan(source, out, "planted"), SMALL, 1)
    first = set(trees(out))
    assert {f"train_forward/several/subgraph_{number}" for number in (0, 1, 7)} <= first
    (source / "several" / "model.py").write_text("one")
    run_plan(plan(source, out, "planted"), SMALL, 1)
    assert set(trees(out)) == {f"{tree}/several{end}" for tree in TREE_NAMES for end in ("", "/subgraph_7")}


@pytest.mark.parametrize("name", ["pair_0/forward", "result.json", "tensors.safetensors"])
def test_a_sample_that_would_lie_in_anothers_files_is_refused(tmp_path: Path, name: str) -> None:
    found = {job.id: job for job in find(corpus(tmp_path, ["a", f"a/{name}", f"b/{name}"]))}
    assert (found["a"].cause, found[f"b/{name}"].cause) == ("", "")
    assert found[f"a/{name}"].cause == "refused"
    assert "a is a sample too, and has a " in found[f"a/{name}"].detail


# ------------------------------------------------------------------ what a source is, and which are chosen

READ = ("model.py", "weight_meta.py", "input_meta.py", "graph_net.json", "input_tensor_constraints.py")


@pytest.mark.parametrize("name", READ[:2])
def test_a_source_has_changed_when_a_file_that_is_read_of_it_has(tmp_path: Path, name: str) -> None:
    source, out = corpus(tmp_path / "src", ["a", "b"]), tmp_path / "out"
    for file in READ[1:]:
        (source / "a" / file).write_text("1")
    worked(source, out)
    (source / "a" / "notes.txt").write_text("nobody reads this")
    before = worked(source, out)
    (source / "a" / name).write_text("2")
    after = worked(source, out)
    assert after["a"]["started"] > before["a"]["started"]
    assert after["b"] == before["b"]


@pytest.mark.parametrize("name", ["capture.json", "pair_12/backward/x"])
def test_all_of_a_sample_of_ours_counts(tmp_path: Path, name: str) -> None:
    for file in ("capture.json", "pair_0/forward/model.py", "pair_12/backward/x", "tensors.safetensors", "result.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1")
    before = source_hash(tmp_path)
    (tmp_path / "result.json").write_text("2")
    assert source_hash(tmp_path) == before
    (tmp_path / name).write_text("2")
    assert source_hash(tmp_path) != before


def test_two_samples_with_one_code_and_other_metadata_are_two(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text("the same")
        (tmp_path / name / "weight_meta.py").write_text(name)
    one, two = find(tmp_path)
    assert one.source_hash != two.source_hash


def test_a_huge_file_is_not_read_to_know_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with open(tmp_path / "a" / "model.py", "wb") as file:
        file.truncate(1 << 42)
    done: list[str] = []
    thread = threading.Thread(target=lambda: done.extend(job.source_hash for job in find(tmp_path)), daemon=True)
    thread.start()
    thread.join(10)
    assert len(done) == 1


def test_only_given_twice_keeps_both(tmp_path: Path) -> None:
    source, out = corpus(tmp_path / "src", ["a/x", "b/y", "c/z"]), tmp_path / "out"
    arguments = ["corpus", "run", f"{VERBS}:act", str(source), "-o", str(out), "--only", "a/*", "--only", "*/z"]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, set(rows(out))) == (0, {"a/x", "c/z"}), done.output
    assert CliRunner().invoke(main, arguments[:-2]).exit_code == 2, "another choice is another run"
    assert RunPlan("v", source, out, only="a/*").facts() == RunPlan("v", source, out, only=("a/*",)).facts()


def test_a_tree_of_a_sample_holds_no_samples_below_it(tmp_path: Path) -> None:
    from face import copy_sample

    for name in ("model.py", "subgraph_0/model.py", "deeper/one/model.py", "data/numbers.txt"):
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).write_text(name)
    copy_sample(tmp_path / "a", tmp_path / "tree")
    assert {path.name for path in (tmp_path / "tree").iterdir()} == TREE_FILES | {"data"}
    (tmp_path / "a" / "model.py").unlink()
    copy_sample(tmp_path / "a", tmp_path / "whole")
    assert (tmp_path / "whole" / "subgraph_0" / "graph_net.json").is_file()
