"""Samples that are the same program, and parts that samples share.

`dedup` keeps one sample of each group. The keys of samples come from a run's ledger, or from the samples' files: graphs
of Backprint in canonical form, GraphNet's code without names, comments and layout, or, if that is refused, its text. No
code of a sample is executed. A sample that cannot be read is left out, and listed with the reason.

If it is killed at any moment, the same call continues: keys are written as they are computed, folders are put in place
by one rename, and `duplicates.json` comes last.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

from backprint.common.files import from_plain, read_json
from backprint.common.formats import CAPTURE
from backprint.common.text import check_choice
from backprint.errors import NO_SPACE, BackprintError, SampleError, UsageError
from backprint.graph.nouns import Capture, Graph
from backprint.graph.sizes import at_example_sizes
from backprint.graph.verdicts import PROVED, proof_arguments, rank, why_no_proof
from backprint.tools.cost.costs import flops_of_steps
from backprint.tools.cost.stretches import StretchGraphs, module_of_loop, module_of_stretch, stretches_of
from backprint.tools.jobs.find import MAIN, Job, find
from backprint.tools.jobs.find import file_digest as sha256
from backprint.tools.jobs.ledger import NAME, Ledger, place_below, place_of
from backprint.tools.jobs.parts import all_parts
from backprint.tools.jobs.places import RESULT, WORK, locked, own_files, writable
from backprint.tools.jobs.pool import remove_folder
from backprint.tools.jobs.task import Options, Task, one_line, stage
from backprint.tools.jobs.verbs import Row, joined_hash, nbytes, verdict_columns, versions

# ------------------------------------------------------------------ groups by key


Key = tuple[str, ...]

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


def grouped(items: Iterable[Item], key: Callable[[Item], Key], order: Callable[[Item], Any]) -> list[list[Item]]:
    """Return the groups, each in order, in the order of their first members."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [sorted(group, key=order) for group in groups.values()]


def several(groups: Iterable[Sequence[Item]]) -> list[Sequence[Item]]:
    """Return the groups that have duplicates."""
    return [group for group in groups if len(group) > 1]


# ------------------------------------------------------------------ deduplication of a corpus

LIST = "duplicates.json"
KEPT = "kept.txt"


@dataclass(frozen=True, slots=True)
class _Member:
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
    """Group the samples of a run or of a folder, and write one of each group, or only the lists, to `out`."""
    check(source, out, by, files)
    with writable(out), locked(out):
        plan = {"source": os.fspath(source.resolve()), "ignore_sizes": by == "shape", "files": files}
        _begin_or_continue(out, plan)
        for leftover in [entry for entry in (out / WORK).iterdir() if entry.is_dir()]:
            remove_folder(leftover)  # of a call that was killed; folders in place are complete
        members = members_of(source, by, out)
        result = _group_members(os.fspath(source), by, members)
        _write_kept_list(out / WORK / KEPT, "".join(f"{member.id}\n" for member in result.kept))
        if files != "none":
            for member in result.kept:
                place_sample(source, out, member, files)
        write_whole(out / KEPT, "".join(f"{member.id}\n" for member in result.kept))
        write_whole(out / LIST, json.dumps(plan | result.as_json(), indent=1) + "\n")
    return result


def _group_members(source: str, by: str, members: Iterator[_Member]) -> Dedup:
    """Group members by key; those without a key are left out."""
    known: list[_Member] = []
    unknown: list[_Member] = []
    for member in members:
        (known if member.key else unknown).append(member)
    groups = grouped(known, lambda member: member.key, lambda member: member.order)
    lone = sorted(unknown, key=lambda member: member.id)
    return Dedup(source, by, tuple(map(tuple, groups)), tuple(lone))


# -------------------------------------------------------------- beginning


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


def _begin_or_continue(out: Path, plan: Mapping[str, Any]) -> None:
    """Write the plan of a new call; raise UsageError if OUT was begun with another plan."""
    place = out / WORK / "plan.json"
    if not place.is_file():
        write_whole(place, json.dumps(plan) + "\n")
        return
    before = json.loads(place.read_text(encoding="utf-8"))
    for key, value in plan.items():
        if before.get(key) != value:
            difference = f"{out} was begun with {key} {before.get(key)!r}, now {value!r}"
            raise UsageError(f"{difference}: finish it as it was begun, or choose another OUT")


def _write_kept_list(place: Path, text: str) -> None:
    """Write the list of kept samples; raise UsageError if a continued call would keep others."""
    if place.is_file() and place.read_text(encoding="utf-8") != text:
        raise UsageError(
            f"{place.parents[1]}: other samples are kept now than when this was begun, so the corpus has changed: "
            "choose another OUT"
        )
    write_whole(place, text)


# -------------------------------------------------------------- keys of samples


def members_of(source: Path, by: str, out: Path) -> Iterator[_Member]:
    """Yield the samples of a run, the parts that a split wrote, or the samples below a folder."""
    if not (source / NAME).is_file():
        return _members_of_folder(source, by, out)
    with Ledger.reading(source) as ledger:
        is_split = ledger.facts().get("verb") == "split"
    return _members_of_split(source, by, out) if is_split else _members_of_ledger(source, by)


def _members_of_split(source: Path, by: str, out: Path) -> Iterator[_Member]:
    """Yield the parts in the folders of a split, and the samples and parts that were not written."""
    written = False
    for part in all_parts(source):
        written = written or bool(part["part"])
        if not part["part"] and not part["of"]:
            name = ", ".join(filter(None, (part["sample"], part["label"])))
            yield _Member(name, (), why=one_line(f"no part was written: {part['verdict']}, {part['detail']}"))
    with Ledger.reading(source) as ledger:
        yield from (_Member(row["id"], (), why="not done yet") for row in ledger.rows("state != 'done'"))
    if written:
        yield from _members_of_folder(source, by, out)


def _members_of_ledger(source: Path, by: str) -> Iterator[_Member]:
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
            yield _Member(row["id"], key, row["verdict"] or "", _lacks_proof(row), size, one_line(why))


def _lacks_proof(row: Mapping[str, Any]) -> bool:
    """Whether a row or a stored verdict compared equal, but is no proof."""
    return bool(why_no_proof(*proof_arguments(row)))


def _members_of_folder(source: Path, by: str, out: Path) -> Iterator[_Member]:
    """Yield the samples below a folder; keys computed before a restart are not computed again."""
    notes = out / WORK / "keys.jsonl"
    known = _read_keys(notes)
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


def _read_keys(notes: Path) -> dict[tuple[str, str], _Member]:
    """Return (id, stamp) -> Member of the keys that an earlier call has written; an incomplete last line is dropped."""
    members: dict[tuple[str, str], _Member] = {}
    if not notes.is_file():
        return members
    content = notes.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with open(notes, "r+b") as file:
            file.truncate(len(whole))
    for line in whole.splitlines():
        row = json.loads(line)
        stamp = row.pop("stamp")
        members[row["id"], stamp] = _Member(**row | {"key": tuple(row["key"])})
    return members


def stamp_of(folder: Path) -> str:
    """Return a hash of the sizes and times of a sample's files: if it is unchanged, so is the key."""
    stamps = []
    for path in sorted(own_files(folder)):
        stat_result = (folder / path).lstat()
        stamps.append(f"{path} {stat_result.st_size} {stat_result.st_mtime_ns}")
    return hashlib.sha256("\n".join(stamps).encode("utf-8", "surrogateescape")).hexdigest()


def member_of(folder: Path, job: Job, by: str) -> _Member:
    """Return one sample's key, from its files; any error becomes the reason why it has none."""
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
    return _Member(name, ("code", _hex_digest(identity)), bytes=elements)


def _text_key(folder: Path, job: Job, by: str) -> Key:
    """Return the key of code that is refused: its bytes, and for `exact` those of its inputs' metadata too."""
    metas = folder / "weight_meta.py"
    beside = (sha256(metas) if metas.is_file() else "",) if by == "exact" else ()
    return ("text", sha256(folder / "model.py"), *beside)


KEYS: Mapping[str, Callable[[Path, str, str], _Member]] = {"backprint": _capture_member, "graphnet": _graphnet_member}


def _hex_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -------------------------------------------------------------- the kept samples on disk


def place_sample(source: Path, out: Path, member: _Member, files: str) -> None:
    """Put a kept sample's own files into the new corpus by one rename; an existing folder is complete."""
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
            link_or_copy(old / name, target, files)
        staging.chmod(0o755)
        new.parent.mkdir(parents=True, exist_ok=True)
        os.rename(staging, new)
    except OSError as error:
        remove_folder(staging)
        if error.errno in NO_SPACE:
            raise  # of OUT, and not of a sample
        raise SampleError(f"{new}: the sample could not be put there: {error.strerror or error}") from error


def link_or_copy(old: Path, new: Path, files: str) -> None:
    """Link or copy one file."""
    if files == "copy":
        shutil.copyfile(old, new)
        return
    try:
        os.link(old, new)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            problem = f"{old} cannot be linked to {new}: {error.strerror}"
            raise UsageError(f"{problem}. Use --files copy, in another OUT") from error
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a file by a rename, so that it is never partial."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


# ------------------------------------------------------------------ parts that samples share
#
# A part is a set of equal stretches, by hash: an iteration of a loop that a graph folds to, or the steps between loops.
# Every step of a graph is in one part, so the steps of all parts, each counted once, are the distinct steps of a
# corpus.

NOTES = "stretches.json"
"""The parts of one sample, in its folder in OUT."""

SHARED_LIST = "parts.json"
"""The parts of all samples, in OUT."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part: `count` equal stretches of the graphs of some samples."""

    hash: str
    direction: str
    name: str
    """The module that it is in where it was first found: `model.layers.{i}`; '' if it is in none."""
    repeats: bool
    """Whether it was found as an iteration of a loop."""
    steps: int
    """Of one of the stretches, like the FLOPs."""
    flops: int
    count: int
    samples: tuple[str, ...]

    @property
    def order(self) -> tuple[int, int, int, str]:
        """The sort key: the part with the most FLOPs in the corpus comes first, then the one with the most steps."""
        return (-self.flops * self.count, -self.steps * self.count, -self.count, self.hash)


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts of a corpus, those with the most FLOPs first, and the samples that have none, with the reason."""

    source: str
    by: str
    parts: tuple[SharedPart, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> int:
        """How many stretches there are."""
        return sum(part.count for part in self.parts)

    @property
    def steps(self) -> int:
        """How many steps all samples have."""
        return sum(part.count * part.steps for part in self.parts)

    @property
    def distinct_steps(self) -> int:
        """How many steps there are if each part counts once."""
        return sum(part.steps for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return the content of `parts.json`."""
        return {
            "source": self.source,
            "by": self.by,
            "samples": len({name for part in self.parts for name in part.samples}),
            "stretches": self.count,
            "steps": self.steps,
            "distinct_steps": self.distinct_steps,
            "parts": [asdict(part) for part in self.parts],
            "left_out": [{"id": name, "why": why} for name, why in self.left_out],
        }


# -------------------------------------------------------------- the parts of one sample


def without_torch(options: Options) -> dict[str, str]:
    """Load the code that reads and folds graphs, which does not need torch."""
    from backprint.sample.load import load

    _ = load  # loaded, for the processes that are forked from this one
    return versions(options)


def note_parts(task: Task, options: Options, staging: Path) -> Row:
    """Write the parts of a sample into its folder; its verdict is the stored one."""
    with stage("read"):
        capture = load_to_compare(task.path)
        graphs = [("forward", pair.forward) for pair in capture.pairs]
        graphs += [("backward", pair.backward) for pair in capture.pairs if pair.backward is not None]
    with stage("fold"):
        parts = [part for side, graph in graphs for part in _parts_of_graph(graph, side, task.id, options["sizes"])]
    staging.mkdir()
    (staging / NOTES).write_text(json.dumps([asdict(part) for part in _merge_parts(parts)]) + "\n", encoding="utf-8")
    steps = {f"{side}_steps": sum(len(graph.steps) for way, graph in graphs if way == side) for side, _ in graphs}
    return steps | verdict_columns(capture.verdict or {"verdict": "unproven", "detail": "was saved without a verdict"})


def _parts_of_graph(graph: Graph, direction: str, sample: str, sizes: bool) -> Iterator[SharedPart]:
    """Yield a part for each stretch of a graph, at the sizes of the capture."""
    graph = at_example_sizes(graph)
    graphs = StretchGraphs(graph)
    for loop, group in groupby(stretches_of(graph), lambda stretch: stretch.loop):
        stretches = list(group)
        name = module_of_stretch(graph, stretches[0]) if loop is None else module_of_loop(graph, stretches)
        for one_stretch in stretches:
            steps = one_stretch.steps(graph)
            key, flops = graphs.graph_of(one_stretch).hash(sizes=sizes), flops_of_steps(steps, graphs.specs)
            yield SharedPart(key, direction, name, loop is not None, len(steps), flops, 1, (sample,))


def _merge_parts(parts: Iterable[SharedPart]) -> tuple[SharedPart, ...]:
    """Merge equal parts, and return them in their order."""
    parts_by_hash: dict[str, SharedPart] = {}
    samples: dict[str, dict[str, None]] = {}
    for part in parts:
        samples.setdefault(part.hash, {}).update(dict.fromkeys(part.samples))
        known = parts_by_hash.get(part.hash)
        if known is None:
            parts_by_hash[part.hash] = part
        else:
            count, repeats = known.count + part.count, known.repeats or part.repeats
            parts_by_hash[part.hash] = replace(known, count=count, repeats=repeats)
    whole = (replace(part, samples=tuple(samples[key])) for key, part in parts_by_hash.items())
    return tuple(sorted(whole, key=lambda part: part.order))


# -------------------------------------------------------------- the parts of all samples


def _read_part_notes(notes: Path) -> list[SharedPart]:
    """Return the parts of one sample, from the file that a run wrote."""
    rows = read_json(notes)
    try:
        return [from_plain(SharedPart, row, "a part") for row in list(rows)]
    except (ValueError, TypeError) as error:
        raise SampleError(f"{notes}: {error}") from None


def all_shared_parts(source: Path, out: Path, by: str) -> SharedParts:
    """Return the parts of all samples of a run, and write them."""
    parts: list[SharedPart] = []
    left_out: list[tuple[str, str]] = []
    with Ledger.reading(out / NAME) as ledger:
        for row in ledger.rows(order="id"):
            notes = place_of(out, row) / NOTES
            if row["state"] == "done" and notes.is_file():
                parts += _read_part_notes(notes)
            else:
                why = ": ".join(filter(None, (row["cause"], row["detail"]))) if row["state"] == "done" else "not done"
                left_out.append((row["id"], one_line(why)))
    whole = SharedParts(str(source), by, _merge_parts(parts), tuple(left_out))
    write_whole(out / SHARED_LIST, json.dumps(whole.as_json(), indent=1) + "\n")
    return whole
