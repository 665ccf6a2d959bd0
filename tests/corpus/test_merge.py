"""A corpus in shards: each killed and resumed where it is, merged to what one run would have made."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from subjects.corpora import SMALL, VERBS, command, compared, corpus, files, plan, rows, until, worked

from face import UsageError, main, merge_module, merge_runs, run_plan

NAMES = [f"family_{number % 3}/s{number:02}" for number in range(40)]


def backprint(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["corpus", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """The runs of three shards; the first was killed twice."""
    source, places = corpus(tmp_path / "src", NAMES), [tmp_path / f"out.{number}" for number in (1, 2, 3)]
    chance = random.Random(7)
    for number, place in enumerate(places, 1):
        arguments = ["run", f"{VERBS}:logged", source, "-o", place, "--set", f"log={tmp_path / 'log'}", "--jobs", 2]
        for _ in range(2 if number == 1 else 0):
            parent = command(*arguments, "--set", "seconds=0.05", "--shard", "1/3")
            until(lambda place=place: (place / "ledger.sqlite").exists())
            time.sleep(chance.random())
            parent.kill()
            parent.communicate()
        done = command(*arguments, "--set", "seconds=0.05", "--shard", f"{number}/3")
        _, errors = done.communicate(timeout=60)
        assert done.returncode == 1, errors  # some of them fail, as they are told to
    return places


@pytest.mark.slow
@pytest.mark.parametrize("copy", [False, True])
def test_shards_merged_are_the_one_run(tmp_path: Path, shards: list[Path], copy: bool) -> None:
    assert sum(len(rows(shard)) for shard in shards) == len(NAMES)
    worked(tmp_path / "src", tmp_path / "whole", "logged", log=str(tmp_path / "log"), seconds=0.05)
    before = [files(shard) for shard in shards]
    merged = merge_runs(tmp_path / "out", shards, copy)
    assert (merged.unfinished, merged.missing) == (0, ())
    assert sum(merged.verdicts.values()) == len(NAMES)
    assert compared(tmp_path / "out") == compared(tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert [files(shard) for shard in shards] == (before if copy else [{}, {}, {}])
    again = merge_runs(tmp_path / "out", shards, copy)
    assert again == merged
    # it is the run of the same command without --shard
    after = rows(tmp_path / "out")
    run_plan(plan(tmp_path / "src", tmp_path / "out", "logged", log=str(tmp_path / "log"), seconds=0.05), SMALL, 1)
    assert rows(tmp_path / "out") == after


def sharded(source: Path, out: Path, shard: str, **options: object) -> Path:
    """The run of a shard."""
    done = backprint("run", f"{VERBS}:act", source, "-o", out, "--shard", shard, "--jobs", 1)
    assert done.exit_code == 0, done.output
    return out


def test_what_is_missing_is_said_and_done_later(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", [f"s{number}" for number in range(8)])
    first = sharded(source, tmp_path / "a", "1/2")
    done = backprint("merge", tmp_path / "out", first)
    assert (done.exit_code, done.stdout.splitlines()[1]) == (1, "not among these: shard 2/2")
    done = backprint("run", f"{VERBS}:act", source, "-o", tmp_path / "out", "--jobs", 1, "--json")
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 8 - len(rows(first)) > 0
    second = sharded(source, tmp_path / "b", "2/2")
    said = json.loads(backprint("merge", tmp_path / "both", second, "--json", "--copy").stdout)
    assert (said["missing"], said["unfinished"]) == (["1/2"], 0)


def test_shards_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", [f"s{number}" for number in range(20)])
    first, other = sharded(source, tmp_path / "a", "1/2"), sharded(source, tmp_path / "b", "1/3")
    verified = tmp_path / "c"
    worked(source, verified, "logged", log=str(tmp_path / "log"))
    for shards, said in (
        ([first, first], f"is in {first} and in {first}"),
        ([first, other], f"is in {first} and in {other}: give each shard of one run once"),
        ([first, verified], f"and {verified} with"),
        ([first, tmp_path / "nowhere"], "no ledger here"),
    ):
        with pytest.raises(UsageError) as caught:
            merge_runs(tmp_path / "out", shards)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()


def test_a_merge_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = corpus(tmp_path / "src", [f"s{number}" for number in range(9)])
    shards = [sharded(source, tmp_path / f"out.{number}", f"{number}/3") for number in (1, 2, 3)]
    worked(source, tmp_path / "whole")
    plain, calls = merge_module._take, iter(range(4))

    def killed(*arguments: object) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        plain(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(merge_module, "_take", killed)
    with pytest.raises(KeyboardInterrupt):
        merge_runs(tmp_path / "out", shards)
    monkeypatch.setattr(merge_module, "_take", plain)
    assert merge_runs(tmp_path / "out", shards).unfinished == 0
    assert compared(tmp_path / "out") == compared(tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")
