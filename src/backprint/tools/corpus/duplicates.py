"""Samples that are the same program: `dedup` keeps one of each group.

The keys of samples come from a run's ledger, or from the samples' files: graphs of Backprint in canonical form,
GraphNet's code without names, comments and layout, or, if that is refused, its text. No code of a sample is executed. A
sample that cannot be read is left out, and listed with the reason. OUT appears whole, by one rename.

A ledger is the SQLite file of a corpus run, with a row for each sample (`tools/jobs/ledger`); a `Job` is a sample that
was found below a folder: its id, its path, its kind (`backprint` or `graphnet`), and in `cause` why it is unusable.
`by` is what is compared: `exact`, or `shape`, which leaves sizes out.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from backprint.common.files import read_json
from backprint.common.formats import CAPTURE
from backprint.common.text import check_choice
from backprint.errors import BackprintError, NothingFoundError, UsageError
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import PROVED, proof_arguments, rank, why_no_proof
from backprint.tools.jobs.find import Job, find
from backprint.tools.jobs.find import file_digest as sha256
from backprint.tools.jobs.ledger import NAME, Ledger, place_below, place_of
from backprint.tools.jobs.parts import all_parts
from backprint.tools.jobs.places import RESULT, create_writable, own_files
from backprint.tools.jobs.pool import remove_folder
from backprint.tools.jobs.task import one_line
from backprint.tools.jobs.verbs import joined_hash, nbytes

# ------------------------------------------------------------------ groups by key


Key = tuple[str, ...]
"""By what a sample is compared, and its hashes: ("graphs", forward, backward), ("source", hash) and so on."""

BY = {"exact": ("forward_hash", "backward_hash"), "shape": ("forward_shape", "backward_shape")}
"""The hashes by which two samples are the same: those of both graphs, with or without sizes."""


class Keyed(Protocol):
    """The hashes of a sample; '' if it has none."""

    @property
    def id(self) -> str:
        """The sample's name."""

    @property
    def source_hash(self) -> str:
        """The hash of the text it was read from."""

    @property
    def forward_hash(self) -> str:
        """The hash of its forward graph."""

    @property
    def backward_hash(self) -> str:
        """The hash of its backward graph."""


Item = TypeVar("Item")


def key_of(item: Keyed) -> Key:
    """Return the key: the graphs' hashes; without graphs, the source's hash; else the id."""
    if item.forward_hash:
        return ("graphs", item.forward_hash, item.backward_hash)
    return ("source", item.source_hash) if item.source_hash else ("id", item.id)


def group_by_key(items: Iterable[Item], key: Callable[[Item], Key], order: Callable[[Item], Any]) -> list[list[Item]]:
    """Return the groups, each in order, in the order of their first members."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [sorted(group, key=order) for group in groups.values()]


def several(groups: Iterable[Sequence[Item]]) -> list[Sequence[Item]]:
    """Return the groups of more than one member."""
    return [group for group in groups if len(group) > 1]


# ------------------------------------------------------------------ deduplication of a corpus

LIST = "duplicates.json"
KEPT = "kept.txt"


@dataclass(frozen=True, slots=True)
class _Member:
    """A sample and its key. `why` says why it has no key, or was compared by its text only; it is `vacuous` if its
    results compared equal by a check that is no proof, and `bytes` are those of its inputs."""

    id: str
    key: Key
    verdict: str = ""
    vacuous: bool = False
    bytes: int = 0
    why: str = ""

    @property
    def order(self) -> tuple[bool, float, int, str]:
        """The sort key: the first of a group is the best, proved with power, then by verdict, then smallest, then by
        name."""
        verdict_rank = rank(self.verdict) if self.verdict else rank("bitwise") + 0.5  # never checked: behind `bitwise`
        return (self.verdict not in PROVED or self.vacuous, verdict_rank, self.bytes, self.id)


@dataclass(frozen=True, slots=True)
class Dedup:
    """The result of a deduplication: the groups, the best sample of each first, and the samples without a key."""

    source: str
    by: str
    groups: tuple[tuple[_Member, ...], ...]
    left_out: tuple[_Member, ...] = field(default=())

    @property
    def kept(self) -> tuple[_Member, ...]:
        """One sample of each group, in the order of their names."""
        return tuple(sorted((group[0] for group in self.groups), key=lambda member: member.id))

    def as_json(self) -> dict[str, Any]:
        """Return the content of `duplicates.json`."""
        return {
            "source": self.source,
            "by": self.by,
            "samples": sum(map(len, self.groups)) + len(self.left_out),
            "kept": len(self.groups),
            "duplicates": [
                {"kept": first.id, "others": [other.id for other in others], "key": ":".join(first.key)}
                for first, *others in several(self.groups)
            ],
            "by_text": [
                {"id": by_text.id, "why": by_text.why} for group in self.groups for by_text in group if by_text.why
            ],
            "left_out": [{"id": member.id, "why": member.why} for member in self.left_out],
        }


def dedup(source: Path, out: Path, by: str = "exact", files: str = "link") -> Dedup:
    """Group the samples of a run or of a folder, and write one of each group, or with `files="none"` only the lists, to
    `out`, which must not exist or be empty. `files` is `link`, `copy` or `none`."""
    check_arguments(source, out, by, files)
    result = _group_members(os.fspath(source), by, members_of(source, by))
    staging = out.with_name(f".{out.name}.part")
    with create_writable(out.parent):
        remove_folder(staging)  # of a call that was killed
        staging.mkdir()
        try:
            for member in result.kept if files != "none" else ():
                place_sample(source, staging, member, files)
            (staging / KEPT).write_text("".join(f"{member.id}\n" for member in result.kept), encoding="utf-8")
            (staging / LIST).write_text(json.dumps(result.as_json(), indent=1) + "\n", encoding="utf-8")
            os.rename(staging, out)
        except BaseException:
            remove_folder(staging)
            raise
    return result


def _group_members(source: str, by: str, members: Iterator[_Member]) -> Dedup:
    """Group members by key; those without a key are left out."""
    with_key: list[_Member] = []
    without_key: list[_Member] = []
    for member in members:
        (with_key if member.key else without_key).append(member)
    groups = group_by_key(with_key, lambda member: member.key, lambda member: member.order)
    left_out = sorted(without_key, key=lambda member: member.id)
    return Dedup(source, by, tuple(map(tuple, groups)), tuple(left_out))


def check_arguments(source: Path, out: Path, by: str, files: str) -> None:
    """Refuse invalid arguments of `dedup`: an unknown word, no folder, an OUT in the corpus, or one that is there."""
    check_choice("files", files)
    if by not in BY:
        raise UsageError(f"by={by!r} is not one of {', '.join(BY)}")
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder" if not source.exists() else f"{source}: not a folder")
    corpus, target = source.resolve(), out.resolve()
    if corpus == target or corpus in target.parents or target in corpus.parents:
        raise UsageError(f"OUT {out} is in the corpus {source}, or contains it: choose a folder beside it")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} exists: choose another OUT")


# -------------------------------------------------------------- keys of samples


def members_of(source: Path, by: str) -> Iterator[_Member]:
    """Yield the samples of a run, the parts that a split wrote, or the samples below a folder."""
    if not (source / NAME).is_file():
        return _members_of_folder(source, by)
    with Ledger.reading(source) as ledger:
        is_split = ledger.facts().get("verb") == "split"
    return _members_of_split(source, by) if is_split else _members_of_ledger(source, by)


def _members_of_split(source: Path, by: str) -> Iterator[_Member]:
    """Yield the samples and parts that a split did not write, without keys, and then its parts, by their folders. A
    part that equals another one is neither: `of` names the part that was written in its place. A part's row has under
    `part` its folder, '' if none was written."""
    written = False
    for part in all_parts(source):
        written = written or bool(part["part"])
        if not part["part"]:
            name = ", ".join(filter(None, (part["sample"], part["label"])))
            yield _Member(name, (), why=one_line(f"no part was written: {part['verdict']}, {part['detail']}"))
    with Ledger.reading(source) as ledger:
        yield from (_Member(row["id"], (), why="not done yet") for row in ledger.rows("state != 'done'"))
    if written:  # else there is no sample to find, which would be an error
        yield from _members_of_folder(source, by)


def _members_of_ledger(source: Path, by: str) -> Iterator[_Member]:
    """Yield the samples of a run: only those that have written a folder can be kept, and have a key."""
    forward_column, backward_column = BY[by]
    with Ledger.reading(source) as ledger:
        for row in ledger.rows():
            why = _why_not_kept(source, row, by)
            key = () if why else ("graphs", row[forward_column], row[backward_column] or "")
            size = row["input_bytes"] or row["disk_bytes"] or 0
            yield _Member(row["id"], key, row["verdict"] or "", _lacks_proof(row), size, one_line(why))


def _why_not_kept(source: Path, row: Mapping[str, Any], by: str) -> str:
    """Return why the sample of a row in the ledger of a run cannot be kept; '' if it can."""
    forward_column, _ = BY[by]
    if row["state"] != "done":
        return "not done yet"
    if row["verdict"] == "failed":
        return f"failed: {row['cause'] or row['detail'] or 'without a cause'}"
    if not (place_of(source, row) / RESULT).is_file():
        return "its folder does not exist"
    if not row[forward_column]:
        return "no graphs to compare" if by == "exact" else "the ledger has no hash of its graphs without sizes"
    return ""


def _lacks_proof(row: Mapping[str, Any]) -> bool:
    """Whether a row or a stored verdict compared equal, but is no proof."""
    return bool(why_no_proof(*proof_arguments(row)))


def _members_of_folder(source: Path, by: str) -> Iterator[_Member]:
    """Yield the samples below a folder; NothingFoundError if there are none."""
    jobs = list(find(source))
    if not jobs:
        reason = "no samples here (a folder with model.py or capture.json is one), and no ledger"
        raise NothingFoundError(f"{source}: {reason}")
    yield from (member_of(source / job.path, job, by) for job in jobs)


def member_of(folder: Path, job: Job, by: str) -> _Member:
    """Return one sample's key, from its files; any error becomes the reason why it has none, or, of a GraphNet sample,
    why it is compared by its text."""
    if job.cause:
        return _Member(job.id, (), why=one_line(f"{job.cause}: {job.detail}"))
    try:
        return KEYS[job.kind](folder, job.id, by)
    except (BackprintError, OSError, ValueError, RecursionError, MemoryError) as error:
        key = _text_key(folder, job, by) if job.kind == "graphnet" else ()
        return _Member(job.id, key, why=one_line(f"{type(error).__name__}: {error}"))


def _capture_member(folder: Path, name: str, by: str) -> _Member:
    """Return the key of a Backprint sample: its graphs in canonical form, as in a run's ledger."""
    from backprint.graph.sizes import at_example_sizes

    capture = load_to_compare(folder)
    sizes = by == "exact"
    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs if pair.backward is not None]
    hashes = [joined_hash([graph.hash(sizes=sizes) for graph in side]) or "" for side in (forwards, backwards)]
    inputs = sum(map(nbytes, (port for graph in forwards for port in at_example_sizes(graph).inputs)))
    verdict = capture.verdict or {}
    return _Member(name, ("graphs", *hashes), str(verdict.get("verdict", "")), _lacks_proof(verdict), inputs)


def load_to_compare(folder: Path) -> Capture:
    """Load a Backprint sample with all custom operators that it requires: none of them is called."""
    from backprint.sample.load import load

    content = read_json(folder / CAPTURE)
    requires = content.get("requires") if isinstance(content, dict) else None
    allow = [str(operator).removeprefix("torch.ops.") for operator in requires] if isinstance(requires, list) else []
    return load(folder, allow=allow)


def _graphnet_member(folder: Path, name: str, by: str) -> _Member:
    """Return the key of a GraphNet sample: its code without names; for `exact` also its inputs' shapes."""
    from backprint.tools.graphnet.read import sample_identity

    identity, elements = sample_identity(folder, exact=by == "exact")
    # Elements in the place of bytes: they order samples of one key, and these all come from here.
    return _Member(name, ("code", _hex_digest(identity)), bytes=elements)


def _text_key(folder: Path, job: Job, by: str) -> Key:
    """Return the key of code that is refused: its bytes, and for `exact` those of its inputs' metadata too."""
    code = sha256(folder / "model.py")
    if by != "exact":
        return ("text", code)
    metas = folder / "weight_meta.py"
    return ("text", code, sha256(metas) if metas.is_file() else "")


KEYS: Mapping[str, Callable[[Path, str, str], _Member]] = {"backprint": _capture_member, "graphnet": _graphnet_member}


def _hex_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -------------------------------------------------------------- the kept samples on disk


def place_sample(source: Path, out: Path, member: _Member, files: str) -> None:
    """Put a kept sample's own files into the new corpus."""
    old, new = place_below(source, member.id), place_below(out, member.id)
    if not old.is_dir():  # the corpus is one sample itself
        old = source
    for name in own_files(old):
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(old / name, new / name, files)


def link_or_copy(old: Path, new: Path, files: str) -> None:
    """Copy one file, or make a hard link to it; UsageError where such links cannot be made."""
    if files == "copy":
        shutil.copyfile(old, new)
        return
    try:
        os.link(old, new)
    except OSError as error:
        # Another disk, a system that forbids links, too many links to a file, a file system without links.
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            problem = f"{old} cannot be linked to OUT: {error.strerror}"
            raise UsageError(f"{problem}. Use --files copy") from error
        raise
