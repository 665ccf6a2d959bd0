"""What a search finds: every sample once, in order, whatever names and links a corpus holds."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subjects.corpora import corpus

from face import DEPTH, MOST_BYTES, Job, UsageError, escape, families, find, find_module, unescape


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


def test_names_that_are_no_text(tmp_path: Path) -> None:
    names = ["two\nlines", os.fsdecode(b"\xff\xfe"), "back\\slash", "back\\nslash", "é 😀", "tab\t", "x" * 255]
    corpus(tmp_path, names)
    jobs = found(tmp_path)
    assert set(jobs) == {
        r"two\nlines",
        r"\xff\xfe",
        r"back\\slash",
        r"back\\nslash",
        "é 😀",
        r"tab\t",
        "x" * 255,
    }
    assert {unescape(id) for id in jobs} == set(names)
    assert causes(tmp_path) == dict.fromkeys(jobs, "")


@given(st.text(st.characters(exclude_characters="\0/", codec=None)))
def test_an_id_leads_back_to_its_path(path: str) -> None:
    assert escape(path).isprintable()
    if not any("\ud800" <= letter <= "\udfff" for letter in path):
        assert unescape(escape(path)) == path


@given(st.binary(min_size=1))
def test_bytes_lead_back_to_themselves(name: bytes) -> None:
    assert os.fsencode(unescape(escape(os.fsdecode(name)))) == name


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
        "itself": "symlink loop",
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


def test_links_are_followed_once_and_not_in_circles(tmp_path: Path) -> None:
    corpus(tmp_path, ["src/a/one", "elsewhere/two"])
    source = tmp_path / "src"
    (source / "again").symlink_to("a")  # found under its own name
    (source / "out").symlink_to(tmp_path / "elsewhere")
    (source / "a/up").symlink_to("..")
    (source / "a/here").symlink_to(".")
    (tmp_path / "elsewhere/back").symlink_to(source)
    assert causes(source) == {"a/here": "symlink loop", "a/one": "", "a/up": "symlink loop", "out/two": ""}


def test_a_very_deep_folder_is_named_not_followed(tmp_path: Path) -> None:
    place = tmp_path.joinpath(*["d"] * (DEPTH + 3))
    place.mkdir(parents=True)
    [job] = found(tmp_path).values()
    assert (job.cause, job.detail) == ("refused", f"more than {DEPTH} folders deep")


def test_a_sample_may_not_be_called_like_the_runs_own_files(tmp_path: Path) -> None:
    corpus(tmp_path, ["ledger.sqlite", "ledger.sqlite-wal/x", "net"])
    assert causes(tmp_path) == {"ledger.sqlite": "refused", "ledger.sqlite-wal/x": "refused", "net": ""}


def test_choosing(tmp_path: Path) -> None:
    source = corpus(tmp_path / "src", ["a/one", "a/two\n", "b/three", "out/four"])
    assert list(found(source, only="a/*")) == ["a/one", r"a/two\n"]
    assert list(found(source, limit=2, only="*e")) == ["a/one", "b/three"]
    assert list(found(source, without=source / "out")) == ["a/one", r"a/two\n", "b/three"]
    names = tmp_path / "list"
    names.write_text("b/three\n# a remark\n\nb/three\na/two\\n\r\nabsent\nb\n")
    assert {job.id: job.cause for job in find(source, names=names)} == {
        "b/three": "",
        r"a/two\n": "",
        "absent": "missing file",
    }


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
    assert (jobs["bad"].cause, jobs["good"].cause) == ("refused", "")
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


def test_a_folder_of_too_many_entries_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "MOST_ENTRIES", 20)
    corpus(tmp_path, ["good/one"])
    for number in range(21):
        (tmp_path / "good/many" / str(number)).mkdir(parents=True)
    jobs = found(tmp_path)
    assert jobs["good/one"].cause == ""
    assert (jobs["good/many"].cause, jobs["good/many"].detail) == ("refused", "more than 20 entries in one folder")


def test_folders_that_link_to_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "MOST_LINKS", 50)
    source, outside = tmp_path / "src", tmp_path / "outside"
    corpus(source, ["good", "z"])
    for number in range(9):
        for other in range(9):
            place = outside / str(number) / f"to_{other}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(outside / str(other))
    (source / "link").symlink_to(outside / "0")
    jobs = found(source)
    assert jobs["good"].cause == jobs["z"].cause == ""
    assert any(job.detail == "more than 50 links to other folders are not followed" for job in jobs.values())
    assert len(jobs) < 1000


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
