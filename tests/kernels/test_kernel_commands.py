"""`backprint kernels dedup` and `kernels find`: groups, an index that goes on, and input that cannot be read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kernels.inductor_sources import SOURCES, TEMPLATE, inductor_kernels, kernels_of_text
from kernels.saved_layout import save_layout, save_text

import backprint as bp
from face import Kernel, UsageError, kernel_hash, main, read_kernels, structure_hash

TRITON = inductor_kernels("triton")

EVIL = "\x1b[31mred<script>alert(1)</script>"


def kernels(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["kernels", *map(str, arguments)])


@contextlib.contextmanager
def opened_index(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def rows(*arguments: object) -> list[dict[str, object]]:
    done = kernels(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


# ------------------------------------------------------------------ dedup


def test_groups_as_a_table(tmp_path: Path) -> None:
    done = kernels("dedup", save_layout(tmp_path), "--limit", 3)
    assert done.exit_code == 0, done.output
    head, first, *_ = lines = done.stdout.splitlines()
    assert head.split() == ["kernel", "language", "uses", "samples", "forward", "backward", "programs", "program"]
    assert first.split()[1:4] == ["triton", "2", "1"]
    count, cpp = len(TRITON) - 1, len(inductor_kernels("cpp"))
    assert lines[4] == f"and {count + cpp - 3} groups more: --limit N shows more, --json all"
    assert lines[5].startswith(f"{2 * count + cpp} kernels in 8 samples: {count + cpp} programs (")
    assert lines[6].startswith("programs of forwards alone ")


def test_groups_as_json_have_their_representative_and_members(tmp_path: Path) -> None:
    found = rows("dedup", save_layout(tmp_path))
    assert sorted(str(each["hash"]) for each in found) == sorted(
        {kernel_hash(one) for one in read_kernels(tmp_path) if isinstance(one, Kernel)}
    )
    for each in found:
        assert each["uses"] == len(each["members"])
        assert each["forward"] == sum(member["direction"] == "forward" for member in each["members"])
        assert each["representative"]["hash"] == each["hash"]
        assert each["representative"]["source"]
        assert {member["hash"] for member in each["members"]} == {each["hash"]}
        assert {member["calls"] for member in each["members"]} == {2}


def test_coarser_groups(tmp_path: Path) -> None:
    for number in (64, 128, 256):
        (tmp_path / f"s{number}").mkdir()
        (tmp_path / f"s{number}" / "k.py").write_text(TEMPLATE.replace("M = 512", f"M = {number}"))
    assert len(rows("dedup", tmp_path)) == 3
    [group] = rows("dedup", tmp_path, "--ignore-sizes")
    assert (group["programs"], group["uses"], len(group["members"])) == (3, 3, 3)
    assert kernels("dedup", tmp_path, "--ignore-sizes", "-o", tmp_path / "out").exit_code == 0
    assert len(list((tmp_path / "out").rglob("*.py"))) == 1, "one of each group"


def test_the_layout_of_graphnet_is_written(tmp_path: Path) -> None:
    save_layout(tmp_path / "in")
    ptx = tmp_path / "in" / "block" / "cuda_90" / "pair_0" / "forward" / "built"
    [*_, kernel] = kernels_of_text(SOURCES / "cuda_block_forward.txt")
    (ptx / kernel.name).mkdir(parents=True)
    (ptx / kernel.name / "XBLOCK128_warps4_stages1.ptx").write_text("// ptx of the first configuration")
    (ptx / kernel.name / "XBLOCK256_warps4_stages1.ptx").write_text("// ptx of another")
    done = kernels("dedup", tmp_path / "in", "-o", tmp_path / "out")
    assert done.exit_code == 0
    written = [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".py", ".cpp")]
    assert f"{len(written)} kernels written to" in done.stdout
    assert {path.parent.name for path in written} == {"triton_kernel", "cpp_kernel"}
    again = {kernel_hash(one) for one in read_kernels(tmp_path / "out") if isinstance(one, Kernel)}
    assert again == {kernel_hash(one) for one in read_kernels(tmp_path / "in") if isinstance(one, Kernel)}
    [copied] = (tmp_path / "out").rglob("*.ptx")
    assert copied.relative_to(tmp_path / "out").as_posix() == f"block/ptx/{kernel.name}.ptx"
    assert copied.read_text() == "// ptx of the first configuration"


def test_in_python_too() -> None:
    renamed = replace(TRITON[0], name="another", source=TRITON[0].source.replace(TRITON[0].name, "another"))
    groups = bp.kernels.dedup(
        [replace(TRITON[0], sample="a"), [replace(renamed, sample="b")], replace(TRITON[1], sample="b")]
    )
    first, second = groups
    assert (first.hash, first.uses, second.uses) == (kernel_hash(TRITON[0]), 2, 1)
    assert groups.representative(first).source == TRITON[0].source
    assert [use.name for use in groups.members(first)] == [TRITON[0].name, "another"]
    assert groups.totals().programs == 2
    assert next(groups.groups("structure")).hash == structure_hash(TRITON[0])
    again = bp.kernels.dedup([TRITON[:2], TRITON[:2]])
    assert [group.uses for group in again] == [2, 2], "equal kernels of no file are uses of their own"
    assert [use.place for use in again.members(next(iter(again)))] in (["[0]", "[2]"], ["[1]", "[3]"])
    source = TRITON[0].source
    sizes = [replace(TRITON[0], source=re.sub(r"xnumel = \d+", f"xnumel = {n}", source)) for n in (32, 64)]
    assert [(group.programs, group.uses) for group in bp.kernels.dedup(sizes, ignore_sizes=True)] == [(2, 2)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ([7], "found int '7', which is no Kernel"),
        (["text"], "found str 'text', which is no Kernel"),
        (TRITON[0], "dedup of Kernel: pass a list of Kernels"),
        (7, "dedup of int: pass a list of Kernels"),
        ("folder", "bp.corpus.dedup is for samples"),
    ],
)
def test_what_python_cannot_group_is_refused(source: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bp.kernels.dedup(source)  # type: ignore[arg-type]


# ------------------------------------------------------------------ an index that goes on


def test_an_index_goes_on_and_says_what_is_new(tmp_path: Path) -> None:
    place, index = save_layout(tmp_path / "in", gpus=["90"]), tmp_path / "kernels.sqlite"
    first = kernels("dedup", place, "--index", index).stdout.splitlines()[-1]
    assert first.startswith(f"run 1 of {index}: new: 31 programs, 31 kernels, 8 samples")
    assert kernels("dedup", place, "--index", index).stdout.endswith(
        "new since run 1: 0 programs, 0 kernels, 0 samples\n"
    )
    save_text(place / "block", SOURCES / "cuda_block_forward.txt", "cuda:80", "forward")
    save_text(place / "fresh", SOURCES / "cpu_block_forward.txt", "cpu:avx512", "forward")
    (place / "own").mkdir()
    (place / "own" / "k.py").write_text(TEMPLATE)
    told = kernels("dedup", place, "--index", index).stdout
    assert told.endswith("new since run 2: 1 programs, 5 kernels, 2 samples\n")
    assert "36 kernels in 10 samples: 32 programs" in told
    found = rows("find", index, "--since", 2)
    assert Counter((each["sample"], each["target"], each["new_program"]) for each in found) == {
        ("block", "cuda:80", False): 2,
        ("fresh", "cpu:avx512", False): 2,
        ("own", "", True): 1,
    }


def test_what_is_gone_from_a_sample_is_gone_from_the_index(tmp_path: Path) -> None:
    place, index = tmp_path / "in", tmp_path / "kernels.sqlite"
    for sample in ("a", "b"):
        (place / sample).mkdir(parents=True)
        (place / sample / "first.py").write_text(TRITON[0].source)
    (place / "a" / "second.py").write_text(TRITON[1].source)
    kernels("dedup", place, "--index", index)
    (place / "a" / "first.py").unlink()
    (place / "a" / "second.py").write_text(TRITON[2].source)
    assert kernels("dedup", place, "--index", index).exit_code == 0
    with opened_index(index) as opened:
        assert {row[0] for row in opened.execute("select hash from kernels")} == {
            kernel_hash(TRITON[0]),
            kernel_hash(TRITON[2]),
        }
        stands_for_it = opened.execute("select sample from kernels where hash = ?", (kernel_hash(TRITON[0]),))
        assert stands_for_it.fetchall() == [("b",)], "a representative is a kernel that is there"
    assert [each["run"] for each in rows("find", index, "--sample", "b")] == [1]
    assert kernels("dedup", place, "--index", index, "-o", tmp_path / "out").exit_code == 0
    assert len(list((tmp_path / "out").rglob("*.py"))) == 2


def test_a_folder_that_is_moved_is_not_counted_twice(tmp_path: Path) -> None:
    place, index = save_layout(tmp_path / "in"), tmp_path / "kernels.sqlite"
    before = kernels("dedup", place, "--index", index).stdout.splitlines()[-4]
    place.rename(tmp_path / "moved")
    after = kernels("dedup", tmp_path / "moved", "--index", index).stdout
    assert before in after
    assert "0 programs" in after.splitlines()[-1]
    assert all("/moved/" in str(each["place"]) for each in rows("find", index, "--since", 0))


def test_two_folders_with_a_sample_of_one_name_are_both_read(tmp_path: Path) -> None:
    index = tmp_path / "kernels.sqlite"
    for name, kernel in (("one", TRITON[0]), ("two", TRITON[1])):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "k.py").write_text(kernel.source)
        assert kernels("dedup", tmp_path / name, "--index", index).exit_code == 0
    assert len(rows("find", index, "--sample", "model")) == 2
    assert "2 kernels in 1 samples: 2 programs" in kernels("dedup", tmp_path / "one", tmp_path / "two").stdout


# ------------------------------------------------------------------ find


@pytest.fixture
def index(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.sqlite"
    assert kernels("dedup", save_layout(tmp_path / "in"), "--index", path).exit_code == 0
    return path


def test_which_samples_use_a_kernel(index: Path) -> None:
    [kernel, *_] = kernels_of_text(SOURCES / "cuda_block_forward.txt")
    key = kernel_hash(kernel)
    found = rows("find", index, "--kernel", key[:10])
    assert [(each["sample"], each["target"]) for each in found] == [("block", "cuda:80"), ("block", "cuda:90")]
    assert {each["hash"] for each in found} == {key}
    assert found == rows("find", index, "--kernel", structure_hash(kernel)), "a structure's hash finds it too"
    told = kernels("find", index, "--kernel", key[:10]).stdout.splitlines()
    assert told[0].split() == ["kernel", "sample", "direction", "target", "calls", "run", "program"]
    assert told[-1] == "2 kernels in 1 samples: 1 programs"


def test_which_kernels_a_sample_needs(index: Path) -> None:
    found = rows("find", index, "--sample", "block")
    wanted = {kernel_hash(kernel) for text in SOURCES.glob("*_block_*.txt") for kernel in kernels_of_text(text)}
    assert {each["hash"] for each in found} == wanted
    assert len(rows("find", index, "--sample", "block", "--limit", 2)) == 2
    assert kernels("find", index, "--sample", "block", "--limit", 2).stdout.splitlines()[-1].startswith("the first 2 ")
    assert rows("find", index, "--sample", "block", "--kernel", kernel_hash(TRITON[0])) == [
        each for each in found if each["hash"] == kernel_hash(TRITON[0])
    ]


def test_without_a_question_the_runs_are_shown(index: Path) -> None:
    [run] = rows("find", index)
    assert (run["run"], run["samples"], run["programs"]) == (1, 8, 31)
    assert kernels("find", index).stdout.splitlines()[1].split()[0] == "1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sample", "blocks"), "no sample is called 'blocks', of 8: did you mean block?"),
        (("--sample", "BLO"), "no sample is called 'BLO', of 8: did you mean block?"),
        (("--sample", "zzzzzz"), "no sample is called 'zzzzzz', of 8\n"),
        (("--kernel", "triton_poi_fused_0"), "is not the beginning of a hash, which has 0-9 and a-f; a name may stand"),
        (("--kernel", "0" * 64), "no kernel has a hash that begins with 0000"),
        (("--kernel", ""), "'' is not the beginning of a hash"),
        (("--since", "2"), "there is no run 2: the last one is 1"),
    ],
)
def test_what_is_not_there_is_named(index: Path, options: tuple[str, str], said: str) -> None:
    done = kernels("find", index, *options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_several_hashes_are_named(index: Path) -> None:
    with opened_index(index) as opened:
        first = Counter(row[0][0] for row in opened.execute("select hash from kernels")).most_common(1)[0][0]
    done = kernels("find", index, "--kernel", first)
    assert done.exit_code == 2
    assert f"several hashes begin with {first}: {first}" in done.stderr
    assert "write more of it" in done.stderr


# ------------------------------------------------------------------ bad input


def good_and(tmp_path: Path) -> Path:
    """A folder with one good sample."""
    (tmp_path / "in" / "good").mkdir(parents=True)
    (tmp_path / "in" / "good" / "k.py").write_text(TEMPLATE)
    return tmp_path / "in"


def test_a_folder_without_kernels(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = kernels("dedup", tmp_path / "empty", good_and(tmp_path))
    assert done.exit_code == 1
    assert (
        f"not read: {tmp_path / 'empty'}: there are no kernels here; kinds of files that are read: a kernel that"
        in done.stderr
    )
    assert "1 kernels in 1 samples: 1 programs" in done.stdout, "the rest is done"
    done = kernels("dedup", tmp_path / "empty", tmp_path / "missing")
    assert done.exit_code == 2
    assert "missing: there is no such file or folder" in done.stderr


SOURCE = TRITON[0].source

WRAPPER = (SOURCES / "cuda_block_forward.txt").read_text()

BAD: dict[str, tuple[bytes, str]] = {
    "truncated.cpp": (
        b'extern "C"  void  kernel(const float* in_ptr0) { auto x',
        "1 { and 0 }: the source is not whole",
    ),
    "short.py": (SOURCE[: SOURCE.index("@triton_heuristics")].encode(), "there is no kernel in this module"),
    "wrapper.py": (
        WRAPPER[: WRAPPER.index("async_compile.wait")].encode(),
        "the file is not whole: it has no function",
    ),
    "latin.py": (b"# caf\xe9\n@triton.jit\n", "not UTF-8 text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_done(tmp_path: Path, name: str) -> None:
    place = good_and(tmp_path)
    content, reason = BAD[name]
    (place / "bad").mkdir()
    (place / "bad" / name).write_bytes(content)
    index = tmp_path / "kernels.sqlite"
    for _ in range(2):
        done = kernels("dedup", place, "--index", index)
        assert done.exit_code == 1, "in the second run too, although the rest is not read again"
        [line] = done.stderr.splitlines()
        assert line.startswith(f"not read: {place / 'bad' / name}: ")
        assert reason in line
        whole = 2 if name == "wrapper.py" else 0
        assert f"{1 + whole} kernels in {1 + bool(whole)} samples: {1 + whole} programs" in done.stdout
    mended = TRITON[3].source if name.endswith("py") else inductor_kernels("cpp")[0].source
    (place / "bad" / name).write_text(mended)
    done = kernels("dedup", place, "--index", index)
    assert (done.exit_code, done.stderr) == (0, ""), "a file that is mended is read"
    assert "2 kernels in 2 samples" in done.stdout


def test_a_link_to_nothing_and_a_file_without_permission(tmp_path: Path) -> None:
    place = good_and(tmp_path)
    (place / "gone.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(place / "pipe.py")
    closed = place / "closed.py"
    closed.write_text(TEMPLATE)
    closed.chmod(0)
    done = kernels("dedup", place)
    assert done.exit_code == 1
    named = {line.split(": ")[1]: line for line in done.stderr.splitlines()}
    assert "No such file" in named[str(place / "gone.py")]
    assert "not a regular file" in named[str(place / "pipe.py")]
    if os.geteuid():
        assert "Permission denied" in named[str(closed)]
    assert "kernels in 2 samples" in done.stdout or os.geteuid()


def test_hostile_source_is_parsed_and_not_executed(tmp_path: Path) -> None:
    place, marker = good_and(tmp_path), tmp_path / "ran"
    attack = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n"
    (place / "module.py").write_text(f"{attack}{SOURCE}\n{attack}")
    call = f"k = async_compile.triton('../../{EVIL}', '''{attack}{TRITON[1].source}''', pathlib.Path.touch)"
    (place / "output_code.py").write_text(f"{attack}async_compile = type('X', (), {{}})\n{call}\n")
    folder = save_text(place / "saved", SOURCES / "cuda_block_forward.txt", "cuda:90", "forward")
    (folder / "wrapper.py").write_text(attack + (folder / "wrapper.py").read_text())
    facts = json.loads((folder / "graph.json").read_text())
    facts["kernels"][0]["operators"][0].update(operator=EVIL, line="__import__('os').system('touch ran')")
    facts["externs"][EVIL] = 10**30
    (folder / "graph.json").write_text(json.dumps(facts))
    out = tmp_path / "deep" / "out"
    done = kernels("dedup", place, "-o", out, "--index", tmp_path / "kernels.sqlite")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "../../\\u001b[31mred<script>" in done.output
    assert "5 kernels in" in done.output
    assert not marker.exists()
    assert sorted(path.name for path in tmp_path.iterdir() if "sqlite" not in path.name) == ["deep", "in"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert all(path.resolve().is_relative_to(out) for path in out.rglob("*"))
    for verb in (("find", tmp_path / "kernels.sqlite", "--since", 0), ("report", place)):
        said = kernels(*verb)
        assert said.exit_code == 0, said.output
        assert "\x1b" not in said.output
    assert not marker.exists()
    exec(attack)
    assert marker.exists(), "the attack would have worked"


def test_samples_with_hostile_names(tmp_path: Path) -> None:
    place = tmp_path / "in"
    for name in (EVIL.replace("/", "_"), "n\nnot read: /etc/passwd: x", "b\udcff", "..."):
        (place / name).mkdir(parents=True)
        (place / name / "k.py").write_text(TEMPLATE.replace("M = 512", f"M = {len(name)}"))
        (place / name / "bad.py").write_text("@triton.jit(")
    done = kernels("dedup", place, "-o", tmp_path / "out", "--index", tmp_path / "i.sqlite")
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert len(done.stderr.splitlines()) == 4, "a name cannot look like another line"
    assert "4 kernels in 4 samples" in done.stdout
    assert len(list((tmp_path / "out").rglob("*.py"))) == 4
    found = rows("find", tmp_path / "i.sqlite", "--since", 0)
    assert len(found) == 4
    for each in found:
        [alone] = rows("find", tmp_path / "i.sqlite", "--sample", each["sample"])
        assert alone == {name: value for name, value in each.items() if name != "new_program"}


def test_a_folder_of_another_version(tmp_path: Path) -> None:
    place = save_layout(tmp_path)
    facts = place / "block" / "cuda_90" / "pair_0" / "forward" / "graph.json"
    facts.write_text(facts.read_text().replace('"format": 1', '"format": 3'))
    done = kernels("dedup", place)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"not read: {facts}: a folder of format 3; this version reads 1: ")
    assert "kernels in 8 samples" in done.stdout


def damaged_index(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "kernels.sqlite"
    kernels("dedup", good_and(tmp_path), "--index", path)
    content = path.read_bytes()
    match kind:
        case "text":
            path.write_text("no database, but long enough to be looked at\n" * 40)
        case "truncated":
            path.write_bytes(content[: len(content) // 3])
        case "page":
            path.write_bytes(content[:4096] + os.urandom(len(content) - 4096))
        case "other":
            path.unlink()
            with opened_index(path) as other:
                other.execute("create table samples (id text)")
        case "newer":
            with opened_index(path) as other:
                other.execute("update facts set value = 99")
        case "folder":
            path.unlink()
            path.mkdir()
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    return path


def test_a_place_where_no_index_can_be_made_ends_with_2(tmp_path: Path) -> None:
    done = kernels("dedup", good_and(tmp_path), "--index", tmp_path / "absent" / "kernels.sqlite")
    assert (done.exit_code, "unable to open" in done.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["text", "truncated", "page", "other", "newer", "folder"])
def test_an_index_of_something_else_is_named_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = damaged_index(tmp_path, kind)
    before = path.read_bytes() if path.is_file() else b""
    done = kernels("dedup", tmp_path / "in", "--index", path)
    assert done.exit_code == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    if kind != "page":
        assert (path.read_bytes() if path.is_file() else b"") == before
    done = kernels("find", path, "--since", 0)
    assert done.exit_code in (1, 2)
    assert str(path) in done.stderr.replace("\n", "")


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = kernels("dedup", good_and(tmp_path), "-o", tmp_path / "file")
    assert done.exit_code == 2
    assert str(tmp_path / "file") in done.stderr


def test_an_unfinished_output_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    kernels("dedup", save_layout(tmp_path / "in"), "-o", out)
    count = len(list(out.rglob("*.py")))
    shutil.rmtree(out / "block")
    assert len(list(out.rglob("*.py"))) < count
    kernels("dedup", tmp_path / "in", "-o", out)
    assert len(list(out.rglob("*.py"))) == count
