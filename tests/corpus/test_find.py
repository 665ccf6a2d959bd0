"""What a search finds: every sample once, in order, whatever names and links a corpus holds."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from subjects.corpora import corpus

from face import MOST_BYTES, Job, Shard, UsageError, families, find


def found(source: Path, **options: object) -> dict[str, Job]:
    jobs = list(find(source, **options))  # type: ignore[arg-type]
    assert len({job.id for job in jobs}) == len(jobs)
    assert all(job.id.isprintable() for job in jobs)
    return {job.id: job for job in jobs}


def causes(source: Path) -> dict[str, str]:
    return {job.id: job.cause for job in found(source).values()}


def test_samples_are_found_at_every_depth_in_order(tmp_path: Path) -> None:
    corpus(tmp_path, ["b/two", "a/deep/er/one", "a/model/subgraph_1", "a/model/subgraph_0", "c"])
    (tmp_path / "a/model/graph_net.json").write_text("{}")  # describes the subgraphs; no sample itself
    (tmp_path / "notes").mkdir()
    (tmp_path / ".git/model.py").parent.mkdir()
    (tmp_path / ".git/model.py").write_text("")
    assert list(found(tmp_path)) == ["a/deep/er/one", "a/model/subgraph_0", "a/model/subgraph_1", "b/two", "c"]


def test_a_job_has_family_kind_and_hash(tmp_path: Path) -> None:
    corpus(tmp_path, ["timm/resnet", "flat"])
    (tmp_path / "flat/graph_net.json").write_text(json.dumps({"source": "torchvision"}))
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/capture.json").write_text("{}")
    jobs = found(tmp_path)
    text = (tmp_path / "timm/resnet/model.py").read_bytes()
    assert jobs["timm/resnet"] == Job(
        "timm/resnet", "timm/resnet", "timm", "graphnet", hashlib.sha256(text).hexdigest(), source_bytes=len(text)
    )
    assert (jobs["flat"].family, jobs["ours"].kind) == ("torchvision", "backprint")


def test_the_graphs_of_a_sample_of_ours_are_no_samples(tmp_path: Path) -> None:
    corpus(tmp_path, ["ours/pair_0/forward", "ours/pair_0/backward"])
    (tmp_path / "ours/capture.json").write_text("{}")
    assert list(found(tmp_path)) == ["ours"]


def test_a_single_sample_is_a_corpus(tmp_path: Path) -> None:
    corpus(tmp_path, ["net"])
    assert [(job.id, job.path) for job in find(tmp_path / "net")] == [("net", "")]


def test_a_name_that_is_no_printable_text_is_refused(tmp_path: Path) -> None:
    refused = ["two\nlines", os.fsdecode(b"\xff\xfe"), "tab\t"]
    corpus(tmp_path, [*refused, "back\\nslash", "é 😀", "x" * 255])
    jobs = found(tmp_path)
    assert {id: job.cause for id, job in jobs.items()} == {
        **dict.fromkeys([r"two\nlines", r"\xff\xfe", r"tab\t"], "refused"),
        **dict.fromkeys(["back\\nslash", "é 😀", "x" * 255], ""),
    }
    assert jobs[r"\xff\xfe"].detail == "its name is not printable UTF-8 text: rename it"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling/model.py").symlink_to("nowhere")
    (tmp_path / "folder/model.py").mkdir(parents=True)
    (tmp_path / "itself").mkdir()
    (tmp_path / "itself/model.py").symlink_to("model.py")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/model.py")
    (tmp_path / "headless").mkdir()
    (tmp_path / "headless/graph_net.json").write_text("{}")
    (tmp_path / "gone").symlink_to("nowhere")
    assert causes(tmp_path) == {
        "dangling": "missing file",
        "folder": "unreadable",
        "gone": "missing file",
        "headless": "missing file",
        "itself": "missing file",
        "pipe": "unreadable",
    }
    assert "model.py: is not a regular file" in found(tmp_path)["pipe"].detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(tmp_path: Path) -> None:
    corpus(tmp_path, ["a", "b/c"])
    (tmp_path / "a/model.py").chmod(0)
    (tmp_path / "b").chmod(0)
    assert causes(tmp_path) == {"a": "unreadable", "b": "unreadable"}
    (tmp_path / "b").chmod(0o700)


def test_links_are_not_followed_and_one_out_of_the_corpus_is_named(tmp_path: Path) -> None:
    corpus(tmp_path, ["src/a/one", "elsewhere/two"])
    source = tmp_path / "src"
    (source / "again").symlink_to("a")  # found under its own name
    (source / "out").symlink_to(tmp_path / "elsewhere")
    (source / "a/up").symlink_to("..")
    (source / "a/above").symlink_to(tmp_path)
    (tmp_path / "elsewhere/back").symlink_to(source)
    assert causes(source) == {"a/above": "refused", "a/one": "", "out": "refused"}
    assert found(source)["out"].detail.startswith(f"a link out of the corpus, to {tmp_path / 'elsewhere'}: copy it")
    (tmp_path / "list").write_text("out/two\nagain/one\n")
    listed = {job.id: job.cause for job in find(source, names=tmp_path / "list")}
    assert listed == {"out/two": "refused", "again/one": ""}
    (tmp_path / "linked").symlink_to(source)
    assert causes(tmp_path / "linked") == causes(source)


def test_a_sample_may_not_be_called_like_the_runs_own_files(tmp_path: Path) -> None:
    corpus(tmp_path, ["ledger.sqlite", "ledger.sqlite-wal/x", "net"])
    assert causes(tmp_path) == {"ledger.sqlite": "refused", "ledger.sqlite-wal/x": "refused", "net": ""}


def test_choosing(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["a/one", "a/two", "b/three", "out/four"])
    assert list(found(source, only="a/*")) == ["a/one", "a/two"]
    assert list(found(source, limit=2, only="*e")) == ["a/one", "b/three"]
    assert list(found(source, without=source / "out")) == ["a/one", "a/two", "b/three"]
    names = tmp_path / "list"
    names.write_text("b/three\n# a remark\n\nb/three\na/two\r\nabsent\nb\n")
    assert {job.id: job.cause for job in find(source, names=names)} == {
        "b/three": "",
        "a/two": "",
        "absent": "missing file",
    }


def test_shards_never_overlap_and_are_everything(tmp_path: Path) -> None:
    names = [f"f{number % 7}/s{number}" for number in range(200)]
    source = corpus(tmp_path, names)
    shards = [set(found(source, shard=Shard(number, 3))) for number in (1, 2, 3)]
    assert sum(map(len, shards)) == 200
    assert set.union(*shards) == set(names)
    assert all(40 < len(shard) < 95 for shard in shards)
    assert set(found(source, shard=Shard(2, 3), only="f1/*")) == {id for id in shards[1] if id.startswith("f1/")}
    assert len(list(find(source, shard=Shard(1, 3), limit=30))) < 30, "of the first 30, those in the shard"


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/2/3"])
def test_a_shard_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write K/N with K from 1 to N"):
        Shard.of_text(text)


@pytest.mark.parametrize("line", ["/etc", "../other", "a/../../b"])
def test_a_list_stays_below_the_corpus(tmp_path: Path, line: str) -> None:
    (tmp_path / "list").write_text(line)
    with pytest.raises(UsageError, match="is not a path below"):
        list(find(tmp_path, names=tmp_path / "list"))


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        list(find(tmp_path / "absent"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        list(find(tmp_path / "file"))


# ------------------------------------------------------------------ what would keep a search for ever


def test_a_file_that_is_longer_than_any_sample_is_not_hashed(tmp_path: Path) -> None:
    corpus(tmp_path, ["bad", "good"])
    with open(tmp_path / "bad/model.py", "r+b") as file:
        file.truncate(8 * 2**40)
    jobs = found(tmp_path)
    assert (jobs["bad"].cause, jobs["good"].cause) == ("unreadable", "")
    assert jobs["bad"].detail == f"model.py: {8 * 2**40:,} bytes; at most {MOST_BYTES:,} are read"


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_opened(kind: str, tmp_path: Path) -> None:
    corpus(tmp_path, ["bad", "good"])
    (tmp_path / "bad/model.py").unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / "bad/model.py")
    else:
        (tmp_path / "bad/model.py").symlink_to("/dev/zero")
    jobs = found(tmp_path)
    assert (jobs["bad"].cause, jobs["good"].cause) == ("unreadable", "")
    assert "is not a regular file" in jobs["bad"].detail


@pytest.mark.parametrize(
    ("ids", "families_of"),
    [
        (["timm/a", "timm/b", "nets/x"], ["timm", "timm", "nets"]),
        (["samples/timm/a", "samples/timm/b", "samples/nets/deep/x"], ["timm", "timm", "nets"]),
        (["samples/timm/a", "samples/b"], ["timm", "samples"]),
        (["a", "b"], ["declared", "declared"]),
        ([], []),
    ],
)
def test_a_family_is_the_first_folder_by_which_samples_differ(ids: list[str], families_of: list[str]) -> None:
    found = families([(id, id.split("/")[0] if "/" in id else "declared") for id in ids])
    assert [found[id] for id in ids] == families_of


def test_the_sizes_of_a_sample_are_known_before_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "src" / "net"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("x = 1\n")
    (folder / "graph_net.json").write_text("{}")
    (folder / "weight_meta.py").write_text('class A:\n    shape = [2, 3]\n    dtype = "torch.float32"\n')
    [job] = find(tmp_path / "src")
    assert (job.source_bytes, job.tensor_bytes) == (6, 24)
