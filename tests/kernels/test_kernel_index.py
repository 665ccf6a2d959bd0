"""The index of a corpus's kernels, and the groups that are read from it."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kernels.inductor_sources import inductor_kernels, unpack

from face import (
    Kernel,
    KernelGroups,
    KernelIndex,
    SampleError,
    UnreadKernels,
    UsageError,
    find_uses,
    grouped_kernels,
    kernel_hash,
    read_kernels,
    structure_hash,
    write_ahead,
)
from face import groups_write_layout as write_layout

TRITON = inductor_kernels("triton")


def uses(count: int, direction: str = "forward") -> Iterator[Kernel]:
    """So many samples with three kernels each, of which the first is the same."""
    for number in range(count):
        chosen = [TRITON[0], TRITON[1 + number % 4], TRITON[5 + number % 3]]
        yield from (replace(one, sample=f"s{number:03}", direction=direction, place=f"s{number}.py") for one in chosen)


def content(path: Path) -> list[list[tuple[object, ...]]]:
    """What an index says, without the times and numbers of its runs."""
    queries = (
        "select hash, structure, language, source from kernels order by 1",
        "select sample, direction, name, target, place, hash from uses order by 1, 2, 3, 4, 5, 6",
        "select sample from samples order by 1",
    )
    with KernelIndex.reading(path) as index:
        return [list(index.rows(query)) for query in queries]


# ------------------------------------------------------------------ groups


def test_groups_have_representatives_members_and_counts() -> None:
    renamed = replace(TRITON[0], name="another", source=TRITON[0].source.replace(TRITON[0].name, "another"))
    stream = [
        replace(TRITON[0], sample="a", direction="forward"),
        replace(renamed, sample="b", direction="backward"),
        replace(renamed, sample="b", direction="forward"),
        replace(TRITON[1], sample="b", direction="backward"),
        UnreadKernels("c/broken.py", "not Python"),
    ]
    groups = grouped_kernels(stream)
    first, second = groups.groups()
    assert (first.uses, first.samples, first.programs, first.forward, first.backward) == (3, 2, 1, 2, 1)
    assert first.hash == first.representative == kernel_hash(TRITON[0])
    assert groups.representative(first).source == TRITON[0].source
    assert [(use.sample, use.direction, use.name) for use in groups.members(first)] == [
        ("a", "forward", TRITON[0].name),
        ("b", "backward", "another"),
        ("b", "forward", "another"),
    ]
    assert second.uses == 1
    totals = groups.totals()
    assert (totals.uses, totals.programs, totals.samples, totals.unread) == (4, 2, 2, 1)
    assert (totals.forward, totals.backward, totals.both, totals.ratio) == (1, 2, 1, 2.0)


def test_coarser_groups_join_programs_that_differ_in_sizes() -> None:
    source = TRITON[0].source
    sizes = [
        replace(TRITON[0], source=re.sub(r"xnumel = \d+", f"xnumel = {n}", source), sample=f"s{n}") for n in range(6)
    ]
    assert len({kernel_hash(one) for one in sizes}) == 6
    groups = grouped_kernels([*sizes, replace(sizes[0], sample="again")])
    [group] = groups.groups("structure")
    assert group.hash == structure_hash(TRITON[0])
    assert (group.programs, group.uses) == (6, 7)
    assert group.representative == kernel_hash(sizes[0]), "the program with most uses"
    assert len(list(groups.members(group))) == 7
    assert len(list(groups.groups(limit=1))) == 1
    with pytest.raises(UsageError, match="'colour' is no way to group kernels: program, structure"):
        list(groups.groups("colour"))


def test_a_name_that_stands_for_several_programs_is_counted() -> None:
    stream = [replace(one, name="same", sample="s") for one in TRITON[:3]]
    groups = grouped_kernels(stream)
    assert groups.totals().ambiguous_names == 1
    assert groups.totals().programs == 3


def test_real_wrappers(tmp_path: Path) -> None:
    groups = grouped_kernels(read_kernels(unpack(tmp_path)))
    totals = groups.totals()
    assert totals.uses == len(inductor_kernels()) - 1
    assert totals.structures <= totals.programs <= totals.uses
    assert totals.unread == 0


def test_no_kernels_are_no_groups() -> None:
    groups = grouped_kernels([])
    assert list(groups.groups()) == []
    assert groups.totals().ratio == 0.0


# ------------------------------------------------------------------ the index


def test_queries(tmp_path: Path) -> None:
    path = tmp_path / "kernels.sqlite"
    with KernelIndex.writing(path) as index:
        assert index.add_all(uses(8)) == 24
    with KernelIndex.writing(path) as index:
        assert index.add_all(uses(10)) == 6, "samples that are there are left out"
        fresh = [replace(TRITON[8], sample="fresh")]
        assert index.add_all(fresh) == 1
    with KernelIndex.reading(path) as index:
        [first] = {each.use.hash for each in find_uses(index, kernel=kernel_hash(TRITON[0]))}
        assert [each.use.sample for each in find_uses(index, kernel=first)] == [f"s{n:03}" for n in range(10)]
        assert [each.use.name for each in find_uses(index, sample="fresh")] == [TRITON[8].name]
        assert len(list(find_uses(index, sample="s003"))) == 3
        assert {each.use.hash for each in find_uses(index) if each.program_run > 1} == {kernel_hash(TRITON[8])}
        assert len({each.use.hash for each in find_uses(index)}) == 1 + 4 + 3 + 1
        assert len(list(find_uses(index, kernel=first, limit=4))) == 4
        assert index.kernel("nothing") is None
        assert index.kernel(kernel_hash(TRITON[8])) == replace(TRITON[8], sample="fresh")


def test_a_sample_can_be_added_anew(tmp_path: Path) -> None:
    path = tmp_path / "kernels.sqlite"
    with KernelIndex.writing(path) as index:
        index.add_all([*uses(2), replace(TRITON[9], sample="old")])
    with KernelIndex.writing(path) as index:
        index.forget("old")
        assert index.kernel(kernel_hash(TRITON[9])) is None
        assert index.kernel(kernel_hash(TRITON[0])) is not None
        assert index.add_all([replace(TRITON[10], sample="old")]) == 1
        assert [each.use.name for each in find_uses(index, sample="old")] == [TRITON[10].name]


def test_what_cannot_be_read_is_noted_once_and_the_rest_is_added(tmp_path: Path) -> None:
    broken = Kernel("triton", "broken_kernel", "def (", sample="s", place="s/broken.py")
    wild = replace(TRITON[1], sample="s\udcff", name="n\ud800")
    with KernelIndex.writing(tmp_path / "kernels.sqlite") as index:
        for _ in range(2):
            index.add_all([UnreadKernels("x.py", "binary"), broken, replace(TRITON[0], sample="s"), wild])
        assert [(one.place, one.reason.partition(":")[0]) for one in index.unread()] == [
            ("s/broken.py", "broken_kernel"),
            ("x.py", "binary"),
        ]
        assert KernelGroups(index).totals().programs == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from kernels.test_kernel_index import uses
from backprint.tools.kernels.index import KernelIndex

def stream():
    for number, kernel in enumerate(uses(60)):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield kernel

with KernelIndex.writing(Path(sys.argv[1])) as index:
    index.add_all(stream(), batch=20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 70, 100, 178])
def test_a_run_that_is_killed_goes_on(tmp_path: Path, after: int) -> None:
    path, whole = tmp_path / "kernels.sqlite", tmp_path / "whole.sqlite"
    here = Path(__file__).parents[1]
    known = os.pathsep.join([str(here), str(here.parent / "src")])
    command = [sys.executable, "-c", KILLED, str(path), str(after)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": known}, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = content(path)
    samples = {row[0] for row in kept[2]}
    assert len(samples) == after // 3 // 7 * 7, "whole batches of samples"
    assert {row[0] for row in kept[1]} == samples
    assert len(kept[1]) == 3 * len(samples), "a sample is there with all its kernels or not at all"
    read: list[str] = []
    with KernelIndex.writing(path) as index:
        assert index.run == 2
        fresh = (kernel for kernel in uses(60) if not index.is_done(kernel.sample))
        index.add_all(read.append(kernel.sample) or kernel for kernel in fresh)
    assert not samples & set(read), "a sample that is done is not done again"
    with KernelIndex.writing(whole) as index:
        index.add_all(uses(60))
    assert content(path) == content(whole)


def test_an_error_in_the_stream_keeps_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "kernels.sqlite"

    def failing() -> Iterator[Kernel]:
        yield from uses(10)
        raise KeyboardInterrupt

    with KernelIndex.writing(path) as index, pytest.raises(KeyboardInterrupt):
        index.add_all(failing(), batch=12)
    assert len(content(path)[2]) == 8


def test_what_is_no_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no index of kernels here"):
        KernelIndex.reading(tmp_path / "missing.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 30)
    with pytest.raises(SampleError, match=r"text.sqlite: file is not a database"):
        KernelIndex.reading(tmp_path / "text.sqlite")
    sqlite3.connect(tmp_path / "other.sqlite").close()
    with pytest.raises(SampleError, match=r"is not an index of kernels: it has no table 'externs'"):
        KernelIndex.reading(tmp_path / "other.sqlite")
    with KernelIndex.writing(tmp_path / "newer.sqlite") as index:
        index.connection.execute("update facts set value = 99")
    with pytest.raises(SampleError, match="an index of format 99; this version reads 2"):
        KernelIndex.writing(tmp_path / "newer.sqlite")


# ------------------------------------------------------------------ GraphNet's layout


def test_representatives_in_the_layout_of_graphnet(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    for sample in ("one", "two"):
        for folder, name, text in (
            ("original_graph", "model.py", f"# graph of {sample}\n"),
            ("triton_kernel", "k.py", TRITON[0].source),
            ("ptx", "k.ptx", f"// of {sample}\n"),
        ):
            (source / sample / folder).mkdir(parents=True)
            (source / sample / folder / name).write_text(text)
    groups = grouped_kernels(read_kernels(source))
    assert write_layout(groups, out) == 1
    assert write_layout(groups, out) == 0, "what is there is not written again"
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    name = TRITON[0].name
    assert written == ["one/original_graph/model.py", f"one/ptx/{name}.ptx", f"one/triton_kernel/{name}.py"]
    again = [one for one in read_kernels(out) if isinstance(one, Kernel)]
    assert [kernel_hash(one) for one in again] == [kernel_hash(TRITON[0])]


def test_a_layout_keeps_programs_of_one_name_apart_and_stays_in_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    stream = [replace(one, name="same", sample="s") for one in TRITON[:2]]
    stream += [replace(one, sample="s", name="same") for one in inductor_kernels("cpp")[:2]]
    stream += [replace(TRITON[3], sample="../../evil", name="../../../evil"), replace(TRITON[4], sample="/etc/x")]
    groups = grouped_kernels(stream)
    assert write_layout(groups, out) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]
    assert len(list((out / "s" / "triton_kernel").iterdir())) == len(list((out / "s" / "cpp_kernel").iterdir())) == 2
    hashes = {kernel_hash(one) for one in read_kernels(out) if isinstance(one, Kernel)}
    assert hashes == {kernel_hash(one) for one in stream}


def test_two_writers_that_begin_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite does not wait where the write-ahead log is turned on: one of two was told that the database is locked."""
    path = tmp_path / "kernels.sqlite"
    first = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    first.execute("begin exclusive")
    timer = threading.Timer(0.2, first.execute, ["rollback"])
    timer.start()
    second = sqlite3.connect(path, isolation_level=None, timeout=0)
    write_ahead(second)
    timer.join()
    first.close()
    assert second.execute("pragma journal_mode").fetchone() == ("wal",)
    second.close()
