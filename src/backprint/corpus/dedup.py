"""Deduplicate a corpus: keep one of each group of samples that are the same program, and list the others.

The keys of samples come from a run's ledger, or are computed from the samples' files: our graphs in canonical form,
GraphNet's code without names, comments and layout, or if that is refused, its text. Nothing is executed. A sample that
cannot be read is left out, and listed with the reason.

If it is killed at any moment, the same call continues: keys are written as they are computed, folders are put in place
by one rename, `duplicates.json` comes last.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backprint.choices import check_choice
from backprint.corpus.files import own_files
from backprint.corpus.find import MAIN, Job, find
from backprint.corpus.find import file_digest as sha256
from backprint.corpus.folder import locked, writable
from backprint.corpus.groups import BY, Key, grouped, several
from backprint.corpus.ledger import NAME, Ledger, place_below, place_of
from backprint.corpus.parts import all_parts
from backprint.corpus.places import RESULT, WORK
from backprint.corpus.pool import remove
from backprint.corpus.task import one_line
from backprint.corpus.verbs import joined_hash, nbytes
from backprint.errors import FULL, BackprintError, SampleError, UsageError
from backprint.formats import CAPTURE
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import PROVED, rank, standing, without_power
from backprint.strangers_file import read_json

LIST = "duplicates.json"
KEPT = "kept.txt"


@dataclass(frozen=True, slots=True)
class Member:
    """A sample and its key. `why` says why it has no key, or was compared by its text only."""

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
        order = rank(self.verdict) if self.verdict else rank("bitwise") + 0.5  # never checked
        return (self.verdict not in PROVED or self.vacuous, order, self.bytes, self.id)


@dataclass(frozen=True, slots=True)
class Dedup:
    """The result: the groups, the best of each first, and the samples without a key."""

    source: str
    by: str
    groups: tuple[tuple[Member, ...], ...]
    left_out: tuple[Member, ...] = field(default=())

    @property
    def kept(self) -> tuple[Member, ...]:
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
            "by_text": [{"id": one.id, "why": one.why} for group in self.groups for one in group if one.why],
            "left_out": [{"id": member.id, "why": member.why} for member in self.left_out],
        }


def dedup(source: Path, out: Path, by: str = "exact", files: str = "link") -> Dedup:
    """Group the samples of a run or of a folder, and write one of each group, or only the lists, to `out`."""
    check(source, out, by, files)
    with writable(out), locked(out):
        plan = {"source": os.fspath(source.resolve()), "ignore_sizes": by == "shape", "files": files}
        agree(out, plan)
        for left in [entry for entry in (out / WORK).iterdir() if entry.is_dir()]:
            remove(left)  # of a call that was killed; folders in place are complete
        members = members_of(source, by, out)
        found = sorted_out(os.fspath(source), by, members)
        write_kept(out / WORK / KEPT, "".join(f"{member.id}\n" for member in found.kept))
        if files != "none":
            for member in found.kept:
                put_kept(source, out, member, files)
        write_whole(out / KEPT, "".join(f"{member.id}\n" for member in found.kept))
        write_whole(out / LIST, json.dumps(plan | found.as_json(), indent=1) + "\n")
    return found


def sorted_out(source: str, by: str, members: Iterator[Member]) -> Dedup:
    """Group members by key; those without a key are left out."""
    known: list[Member] = []
    unknown: list[Member] = []
    for member in members:
        (known if member.key else unknown).append(member)
    groups = grouped(known, lambda member: member.key, lambda member: member.order)
    lone = sorted(unknown, key=lambda member: member.id)
    return Dedup(source, by, tuple(map(tuple, groups)), tuple(lone))


# ------------------------------------------------------------------ beginning


def check(source: Path, out: Path, by: str, files: str) -> None:
    """Refuse invalid arguments."""
    check_choice("files", files)
    if by not in BY:
        raise UsageError(f"by={by!r} is not one of {', '.join(BY)}")
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder" if not source.exists() else f"{source}: not a folder")
    here, there = source.resolve(), out.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(f"OUT {out} is in the corpus {source}, or contains it: choose a folder beside it")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder: choose another OUT")
    if out.is_dir() and not (out / WORK / "plan.json").is_file() and {entry.name for entry in out.iterdir()} - {WORK}:
        raise UsageError(f"{out} exists, and was not written by dedup: choose another OUT")


def agree(out: Path, plan: Mapping[str, Any]) -> None:
    """Write the plan; if there is one already, continue it if it is the same."""
    place = out / WORK / "plan.json"
    if not place.is_file():
        write_whole(place, json.dumps(plan) + "\n")
        return
    before = json.loads(place.read_text(encoding="utf-8"))
    for key, value in plan.items():
        if before.get(key) != value:
            said = f"{out} was begun with {key} {before.get(key)!r}, now {value!r}"
            raise UsageError(f"{said}: finish it as it was begun, or choose another OUT")


def write_kept(place: Path, text: str) -> None:
    """Write which samples are kept; they must not change in a continued call."""
    if place.is_file() and place.read_text(encoding="utf-8") != text:
        raise UsageError(
            f"{place.parents[1]}: other samples are kept now than when this was begun, so the corpus has changed: "
            "choose another OUT"
        )
    write_whole(place, text)


# ------------------------------------------------------------------ what samples are known by


def members_of(source: Path, by: str, out: Path) -> Iterator[Member]:
    """Yield the samples of a run, the parts that a split wrote, or the samples below a folder."""
    if not (source / NAME).is_file():
        return of_folder(source, by, out)
    with Ledger.reading(source) as ledger:
        is_split = ledger.facts().get("verb") == "split"
    return of_split(source, by, out) if is_split else of_ledger(source, by)


def of_split(source: Path, by: str, out: Path) -> Iterator[Member]:
    """Yield the parts in the folders of a split, and the samples and parts that were not written."""
    written = False
    for part in all_parts(source):
        written = written or bool(part["part"])
        if not part["part"] and not part["of"]:
            name = ", ".join(filter(None, (part["sample"], part["label"])))
            yield Member(name, (), why=one_line(f"no part was written: {part['verdict']}, {part['detail']}"))
    with Ledger.reading(source) as ledger:
        yield from (Member(row["id"], (), why="not done yet") for row in ledger.rows("state != 'done'"))
    if written:
        yield from of_folder(source, by, out)


def of_ledger(source: Path, by: str) -> Iterator[Member]:
    """Yield the samples of a run: only those that have written a folder can be kept."""
    forward, backward = BY[by]
    with Ledger.reading(source) as ledger:
        for row in ledger.rows():
            why = "" if row["state"] == "done" else "not done yet"
            if not why and row["verdict"] == "failed":
                why = f"failed: {row['cause'] or row['detail'] or 'without a cause'}"
            if not why and not (place_of(source, row) / RESULT).is_file():
                why = "its folder does not exist"
            if not why and not row[forward]:
                why = "no graphs to compare" if by == "exact" else "the ledger has no hash of its graphs without sizes"
            key = () if why else ("graphs", row[forward], row[backward] or "")
            size = row["input_bytes"] or row["disk_bytes"] or 0
            yield Member(row["id"], key, row["verdict"] or "", powerless(row), size, one_line(why))


def powerless(said: Mapping[str, Any]) -> bool:
    """Whether a row or a stored verdict compared equal but is not a proof."""
    return bool(without_power(*standing(said)))


def of_folder(source: Path, by: str, out: Path) -> Iterator[Member]:
    """Yield the samples below a folder; keys computed before a restart are not computed again."""
    notes = out / WORK / "keys.jsonl"
    known = remembered(notes)
    empty = True
    with open(notes, "ab") as file:
        for job in find(source, without=out):
            empty = False
            stamp = stamp_of(source / job.path)
            if (job.id, stamp) in known:
                yield known[job.id, stamp]
                continue
            member = member_of(source / job.path, job, by)
            file.write(json.dumps({"stamp": stamp, **asdict(member)}).encode() + b"\n")
            file.flush()
            yield member
    if empty:
        raise UsageError(f"{source}: no samples here (a folder with model.py or capture.json is one), and no ledger")


def remembered(notes: Path) -> dict[tuple[str, str], Member]:
    """Return the keys that are written already; an incomplete last line is dropped."""
    found: dict[tuple[str, str], Member] = {}
    if not notes.is_file():
        return found
    content = notes.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with open(notes, "r+b") as file:
            file.truncate(len(whole))
    for line in whole.splitlines():
        row = json.loads(line)
        stamp = row.pop("stamp")
        found[row["id"], stamp] = Member(**row | {"key": tuple(row["key"])})
    return found


def stamp_of(folder: Path) -> str:
    """Return a hash of the sizes and times of a sample's files: if it is unchanged, so is the key."""
    said = []
    for path in sorted(own_files(folder)):
        seen = (folder / path).lstat()
        said.append(f"{path} {seen.st_size} {seen.st_mtime_ns}")
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogateescape")).hexdigest()


def member_of(folder: Path, job: Job, by: str) -> Member:
    """Return one sample's key, from its files; any error becomes the reason why it has none."""
    if job.cause:
        return Member(job.id, (), why=one_line(f"{job.cause}: {job.detail}"))
    try:
        return KEYS[job.kind](folder, job.id, by)
    except (BackprintError, OSError, ValueError, RecursionError, MemoryError) as error:
        key = of_text(folder, job, by) if job.kind == "graphnet" else ()
        return Member(job.id, key, why=one_line(f"{type(error).__name__}: {error}"))


def of_capture(folder: Path, name: str, by: str) -> Member:
    """Return the key of a Backprint sample: its graphs in canonical form, as in a run's ledger."""
    from backprint.graph.sizes import at_hints

    capture = load_to_compare(folder)
    sizes = by == "exact"
    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs if pair.backward is not None]
    hashes = [joined_hash([graph.hash(sizes=sizes) for graph in side]) or "" for side in (forwards, backwards)]
    inputs = sum(map(nbytes, (port for graph in forwards for port in at_hints(graph).inputs)))
    said = capture.verdict or {}
    return Member(name, ("graphs", *hashes), str(said.get("verdict", "")), powerless(said), inputs)


def load_to_compare(folder: Path) -> Capture:
    """Load a Backprint sample with all custom operators that it requires: none of them is called."""
    from backprint.sample.load import load

    content = read_json(folder / CAPTURE)
    requires = content.get("requires") if isinstance(content, dict) else None
    allow = [str(one).removeprefix("torch.ops.") for one in requires] if isinstance(requires, list) else []
    return load(folder, allow=allow)


def of_graphnet(folder: Path, name: str, by: str) -> Member:
    """Return the key of a GraphNet sample: its code without names; for `exact` also its inputs' shapes."""
    from backprint.graphnet.likeness import sample_identity

    said, elements = sample_identity(folder, exact=by == "exact")
    return Member(name, ("code", hex_digest(said)), bytes=elements)


def of_text(folder: Path, job: Job, by: str) -> Key:
    """Return the key of code that is refused: its bytes, and for `exact` those of its inputs' metadata too."""
    metas = folder / "weight_meta.py"
    beside = (sha256(metas) if metas.is_file() else "",) if by == "exact" else ()
    return ("text", sha256(folder / "model.py"), *beside)


KEYS: Mapping[str, Callable[[Path, str, str], Member]] = {"backprint": of_capture, "graphnet": of_graphnet}


def hex_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------ on disk


def put_kept(source: Path, out: Path, member: Member, files: str) -> None:
    """Put a kept sample's own files into the new corpus by one rename; an existing one is complete."""
    old, new = place_below(source, member.id), place_below(out, member.id)
    if not old.is_dir():  # the corpus is one sample itself
        old = source
    if any((new / name).is_file() for name in MAIN):
        return
    staging = Path(tempfile.mkdtemp(dir=out / WORK))
    try:
        for name in own_files(old):
            target = staging / name
            target.parent.mkdir(parents=True, exist_ok=True)
            carry(old / name, target, files)
        staging.chmod(0o755)
        new.parent.mkdir(parents=True, exist_ok=True)
        os.rename(staging, new)
    except OSError as error:
        remove(staging)
        if error.errno in FULL:
            raise  # of OUT, and not of a sample
        raise SampleError(f"{new}: the sample could not be put there: {error.strerror or error}") from error


def carry(old: Path, new: Path, files: str) -> None:
    """Link or copy one file."""
    if files == "copy":
        shutil.copyfile(old, new)
        return
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            said = f"{old} cannot be linked to {new}: {error.strerror}"
            raise UsageError(f"{said}. Use --files copy, in another OUT") from error
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file by a rename, so that it is never partial."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
