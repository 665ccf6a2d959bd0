"""Find the samples below a folder, each as one Job, in an order that depends only on their names.

A sample that cannot be used is a Job too, with the reason: its name is not printable text, it is a link out of the
corpus, its files cannot be read. Only a missing corpus is an error.

SRC is the folder that is searched, and OUT the folder of the run. A sample is a folder: one of ours has capture.json
and a folder `pair_0` for each Pair; one of GraphNet has model.py and graph_net.json, and may have samples below it, in
folders `subgraph_0`. Its name, or id, is its path below SRC.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from backprint.common.files import open_regular, read_json
from backprint.common.formats import (
    BACKPRINT,
    CAPTURE,
    DUMP_IS_NO_SAMPLE,
    GRAPHNET,
    WORLD,
    has_dump,
    is_direction,
)
from backprint.common.text import printable
from backprint.errors import NothingFoundError, SampleError, UsageError

GRAPHNET_FILES = (GRAPHNET.main, *GRAPHNET.required)
"""The files that a GraphNet sample must have; a folder with any of them is taken for one."""

OWN = re.compile(r"capture\.json|result\.json|tensors\.safetensors|pair_\d+")
"""The files of a Backprint sample: no sample below another may have such a name."""

MAIN = (CAPTURE, GRAPHNET.main)
"""The file that makes a folder a sample."""

BULK = 256 << 20
"""A larger file, in bytes, is identified by its size and time: it is not read."""

RESERVED = re.compile(r"ledger\..*|\.work")
"""The files that a run keeps beside its samples: no sample may have such a name."""

MOST_BYTES = 256 << 20
"""The largest main file of a sample: the search hashes it, and larger samples cannot be read."""


@dataclass(frozen=True, slots=True)
class Job:
    """One sample of a corpus: `id` is its name, `path` is relative to SRC ('' for SRC itself); `source_bytes` and
    `tensor_bytes` are the sizes of its code and of the tensors that it lists. `cause` says why it is unusable."""

    id: str
    path: str
    family: str = ""
    kind: str = ""
    source_hash: str = ""
    cause: str = ""
    detail: str = ""
    source_bytes: int = 0
    tensor_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` shares of a corpus, from 1 on. The id of a sample alone says which share has it, so shares never
    overlap, and together they are everything."""

    number: int
    count: int

    @classmethod
    def of_text(cls, text: str) -> Shard:
        """Return the shard of `--shard K/N`; UsageError for another text."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UsageError(f"--shard {text}: write K/N with K from 1 to N: 1/3, 2/3 and 3/3 are everything")
        return cls(int(number), int(count))

    def has(self, id: str) -> bool:
        """Whether a sample is in this share."""
        return int.from_bytes(hashlib.sha256(id.encode()).digest()[:8]) % self.count == self.number - 1


def find(
    source: Path,
    *,
    names: Path | None = None,
    only: str | Collection[str] | None = None,
    limit: int | None = None,
    without: Path | None = None,
    among: Collection[str] | None = None,
    shard: Shard | None = None,
) -> Iterator[Job]:
    """Yield every sample below `source`, or those listed in the file `names`, that match one of the patterns `only` and
    whose id is in `among`, if these are given; of the first `limit` of these, those in `shard`.

    The folder `without` is not searched. UsageError if `source` is no folder.
    """
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder" if not source.exists() else f"{source}: not a folder")
    paths = _samples_listed(source, names, without) if names else search(source, "", without)
    name_patterns, count = patterns(only), 0
    for path in paths if names is None else dict.fromkeys(paths):  # a list may name a sample twice
        name = printable(path or source.resolve().name or ".")
        if name_patterns and not any(fnmatchcase(name, pattern) for pattern in name_patterns):
            continue
        if among is not None and name not in among:
            continue
        if limit is not None and count >= limit:
            return
        count += 1
        if shard is None or shard.has(name):
            yield _job_of(source, path, name)


def patterns(only: str | Collection[str] | None) -> tuple[str, ...]:
    """Return one pattern, several, or none as a tuple."""
    return (only,) if isinstance(only, str) else tuple(only or ())


# ------------------------------------------------------------------ searching


def search(source: Path, below: str = "", without: Path | None = None) -> Iterator[str]:
    """Yield the paths, from `source`, of the samples in one of its folders (`below`; '' for itself), and of folders
    that cannot be searched: depth first, names in order. Links are not followed; one that leads out of `source`, or to
    nothing, is yielded, to be refused. The folder `without` is skipped."""
    root, skipped = os.path.realpath(source), os.path.realpath(without) if without else None
    unreadable: list[str] = []
    for folder, folders, files in os.walk(
        os.path.join(root, below) if below else root, onerror=lambda error: unreadable.append(error.filename)
    ):
        yield from (_below(root, path) for path in unreadable)
        unreadable.clear()
        names = {*folders, *files}
        is_backprint = CAPTURE in names
        # model.py or graph_net.json; weight_meta.py, the third file of GraphNet, makes no sample alone.
        main_files = set(GRAPHNET_FILES[:2])
        if is_backprint or (names & main_files and not _holds_samples(names)):
            yield _below(root, folder)
        # A link to a sample that is gone is among the files; in a sample's own folder those are the sample's affair.
        links = folders if names & {CAPTURE, *GRAPHNET_FILES} else [*folders, *files]
        for path in (os.path.join(folder, name) for name in sorted(links, key=os.fsencode) if name[0] != "."):
            if not os.path.islink(path) or os.path.isfile(path) or _is_pair(path, is_backprint):
                continue
            if not _inside(os.path.realpath(path), root) or not os.path.exists(path):
                yield _below(root, path)
        # os.walk goes on with what this list has then.
        folders[:] = sorted(
            (name for name in folders if _is_searched(os.path.join(folder, name), is_backprint, skipped)),
            key=os.fsencode,
        )
    yield from (_below(root, path) for path in unreadable)


def _below(root: str, place: str) -> str:
    """Return a path relative to the folder it is below; '' for the folder itself."""
    return os.path.relpath(place, root) if place != root else ""


def _is_searched(place: str, ours: bool, skipped: str | None) -> bool:
    """Whether samples may be in a folder: not if it is hidden, a link, OUT, or a Pair of a sample of ours."""
    is_hidden = os.path.basename(place).startswith(".")
    return not (is_hidden or _is_pair(place, ours) or place == skipped or os.path.islink(place))


def _is_pair(place: str, ours: bool) -> bool:
    """Whether a folder, or a link in its place, is a Pair of a sample of ours, which says itself what is wrong."""
    return ours and re.fullmatch(r"pair_\d+", os.path.basename(place)) is not None


def _holds_samples(names: set[str]) -> bool:
    """Whether a folder only contains subgraphs, and has no model of its own."""
    return "model.py" not in names and any(name.startswith("subgraph_") for name in names)


def _inside(path: str, folder: str) -> bool:
    """Whether a path without links is a folder, or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _samples_listed(source: Path, names: Path, without: Path | None) -> Iterator[str]:
    """Yield the samples that a file's lines name: each is an id as `corpus status` shows it, of a sample or of a
    folder. Refuse a path that leads out of `source`."""
    try:
        lines = os.fsdecode(names.read_bytes()).split("\n")
    except OSError as error:
        raise UsageError(f"--list {names}: {error.strerror}") from error
    for line in lines:
        path = line.removesuffix("\r").rstrip("/")
        if not path or path.startswith("#"):
            continue
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"--list {names}: {line!r} is not a path below {source}")
        paths = list(search(source, path, without)) if (source / path).is_dir() else []
        yield from paths or [path]


def samples_in(places: Collection[Path]) -> Iterator[Path]:
    """Yield the samples at these paths or below them; a path that is not a folder, or has none, is yielded itself."""
    for place in places:
        paths = [place / path for path in search(place, "")] if place.is_dir() else []
        yield from [path for path in paths if not is_direction(path)] or [place]


def check_samples(places: Collection[Path]) -> None:
    """Raise unless each path has a sample at it or below it. A path that is no folder is wrong usage; in a folder
    without samples there is nothing to look at."""
    for place in places:
        if not place.is_dir():
            raise UsageError(f"{place}: {_no_folder(place)}")
        # One of these makes it a sample, if a damaged one: its reader says what is missing.
        names = (CAPTURE, *GRAPHNET_FILES)
        has_files = any(place.glob("pair_*")) or any(os.path.lexists(place / name) for name in names)
        if has_files or next(search(place, ""), None) is not None:
            continue
        if has_dump(place):
            raise UsageError(f"{place}: {DUMP_IS_NO_SAMPLE}")
        needs = "no folder holds capture.json, or model.py and graph_net.json"
        raise NothingFoundError(f"{place}: no sample here or below: {needs}")


def _no_folder(place: Path) -> str:
    """Return why a path is no folder, and what to write instead."""
    if place.exists():
        made = f"`backprint capture {place}:FACTORY -o DIR` makes one" if place.suffix == ".py" else "name its folder"
        return f"not a folder, and a sample is one: {made}"
    try:
        others = [entry.name for entry in itertools.islice(os.scandir(place.parent), MOST_OTHERS) if entry.is_dir()]
    except OSError:
        others = []
    near = difflib.get_close_matches(place.name, others, 1)
    return "no such folder" + (f": did you mean {place.parent / near[0]}?" if near else "")


MOST_OTHERS = 10_000
"""So many entries beside a path that is not there are looked at for a name like it."""


def check_sample(place: Path) -> None:
    """Raise unless a path is one sample, of ours or of GraphNet's; a damaged one is. One with samples below is not."""
    check_samples((place,))
    if any((place / name).exists() for name in MAIN) or any(place.glob("pair_*")):
        return
    for folder in place.absolute().parents[:2]:  # of `pair_0` and `pair_0/forward`
        if (folder / CAPTURE).is_file():
            raise UsageError(f"{place} is a part of a sample: name the sample, {os.path.relpath(folder)}")
    below = [str(place / path) for path in search(place, "")]
    more = ", …" if len(below) > 3 else ""
    raise UsageError(f"{place} is a folder of samples, and no sample: name one of {', '.join(below[:3])}{more}")


def missing_rank(places: Collection[Path]) -> str:
    """Return a text about the first World among these folders that has not all ranks that its world.json names; '' if
    all have. A World is the samples of all ranks of a distributed step, each in a folder `rank_0`; world.json has the
    `ranks` that were captured, or their number (`ranks` or `size`)."""
    for place in places:
        if not (place / WORLD).is_file():
            continue
        content = read_json(place / WORLD)
        numbers = content.get("ranks", content.get("size")) if isinstance(content, dict) else None
        numbers = range(min(numbers, MOST_RANKS)) if type(numbers) is int else numbers
        if not isinstance(numbers, (list, range)) or not all(type(number) is int for number in numbers):
            return f"{place / WORLD}: says of no ranks"
        missing = [number for number in numbers[:MOST_RANKS] if not (place / f"rank_{number}" / CAPTURE).is_file()]
        if missing:
            shown = ", ".join(f"rank_{number}" for number in missing[:8])
            return f"{place}: its world.json names {len(numbers)} ranks, and these are not there: {shown}"
    return ""


MOST_RANKS = 100_000
"""The most ranks of a World that are looked for."""

# ------------------------------------------------------------------ what a folder is


def _job_of(source: Path, path: str, name: str) -> Job:
    """Return the Job of one folder, `path` below `source`: its kind, family and hash, or the cause why it is unusable.
    The family is the first folder of its name, or what a GraphNet sample that is in none names as its source."""
    folder = source / path
    first, slash, _ = name.partition("/")
    family = first if slash else ""
    if wrong := _unusable(source, path):
        cause, detail = wrong
        # The name in the place of the path, which may be no valid text; nothing is read there.
        return Job(name, name if path else "", family, cause=cause, detail=printable(detail))
    kind = BACKPRINT if BACKPRINT.has_sample(folder) else GRAPHNET
    try:
        file_digest(folder / kind.main)  # raises if it cannot be read
        hash, (code, tensors) = source_hash(folder), sizes(folder)
    except (SampleError, OSError) as error:
        cause = "unreadable" if os.path.exists(folder / kind.main) else "missing file"
        detail = printable(str(error).replace(f"{folder}/", ""))
        return Job(name, path, family, kind.name, cause=cause, detail=detail)
    family = family or (_declared_source(folder) if kind is GRAPHNET else "")
    return Job(name, path, family, kind.name, hash, source_bytes=code, tensor_bytes=tensors)


def _unusable(source: Path, path: str) -> tuple[str, str] | None:
    """Return the cause, and its detail, why a folder cannot be a sample of this corpus, whatever its files say; None if
    it can."""
    folder, parts = source / path, path.split("/")
    if not path.isprintable():
        return "refused", "its name is not printable UTF-8 text: rename it"
    if RESERVED.fullmatch(parts[0]):
        return "refused", f"{path} is the name of a file of the run itself: rename the sample"
    if not _inside(target := os.path.realpath(folder), os.path.realpath(source)):
        return "refused", f"a link out of the corpus, to {target}: copy it into the corpus, or run on its target"
    try:
        names = set(os.listdir(folder))
    except NotADirectoryError:
        return "missing file", "not a folder"
    except OSError as error:
        return "missing file" if not folder.exists() else "unreadable", f"the folder: {error.strerror}"
    if not names & {CAPTURE, *GRAPHNET_FILES}:
        return "missing file", "no model.py here"
    for depth in range(1, len(parts)):  # OUT has the same folders, where a file of the sample above would be in its way
        above = folder.parents[depth - 1]
        if OWN.fullmatch(parts[-depth]) and any((above / name).is_file() for name in MAIN):
            other = "/".join(parts[:-depth]) or "a sample"
            return "refused", f"{other} is a sample too, and has a {parts[-depth]} of its own in OUT: rename this one"
    return None


def _declared_source(folder: Path) -> str:
    """Return the `source` that a GraphNet sample names, if any."""
    try:
        with open_regular(folder / "graph_net.json") as file:
            metadata = json.loads(file.read(1 << 20))
    except (SampleError, OSError, ValueError, RecursionError):
        return ""  # the reader of the sample decides whether the file must be valid
    source = metadata.get("source") if isinstance(metadata, dict) else None
    return printable(source)[:200] if isinstance(source, str) else ""


def source_hash(folder: Path) -> str:
    """Return the identity of a sample: the SHA-256 of its only file, or of the digests of all files that are read."""
    names = sorted(_read_of(folder))
    if names == ["model.py"]:
        return file_digest(folder / names[0])
    rows = (f"{name}\0{(file_digest if name in MAIN else _file_identity)(folder / name)}\n" for name in names)
    return hashlib.sha256("".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def sizes(folder: Path) -> tuple[int, int]:
    """Return the bytes of a sample's code, and of the tensors that its metadata lists: of GraphNet's `model.py`, or of
    the graphs of all pairs."""
    from backprint.tools.graphnet.metas import MOST_LISTED, listed_bytes

    places = [folder / name for name in _read_of(folder) if os.path.basename(name) == GRAPHNET.main]
    tensors = sum(listed_bytes(place.parent) for place in places)
    return sum(place.lstat().st_size for place in places), min(tensors, MOST_LISTED)


def _read_of(folder: Path) -> Iterator[str]:
    """Yield the files that are read of a sample, if they exist."""
    ours = os.path.lexists(folder / CAPTURE)
    yield from (name for name in (BACKPRINT if ours else GRAPHNET).files if os.path.lexists(folder / name))
    if not ours:
        return
    with os.scandir(folder) as entries:
        pairs = [entry.name for entry in entries if re.fullmatch(r"pair_\d+", entry.name)]
    for pair in pairs:
        for here, _, names in os.walk(folder / pair):
            yield from (os.path.relpath(os.path.join(here, name), folder) for name in names)


def _file_identity(path: Path) -> str:
    """Return the identity of a file: its digest; for a link or a large file, its target or its size and time."""
    stat_result = path.lstat()
    if not stat.S_ISREG(stat_result.st_mode):
        return f"link {os.readlink(path)}" if stat.S_ISLNK(stat_result.st_mode) else "no file"
    if stat_result.st_size > BULK:
        return f"{stat_result.st_size} bytes of {stat_result.st_mtime_ns}"
    return file_digest(path)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a regular file; raise SampleError for anything else, because a pipe would block, and for a
    file that is larger than is read."""
    with open_regular(path, links=True) as file:
        if (size := os.fstat(file.fileno()).st_size) > MOST_BYTES:
            raise SampleError(f"{path}: {size:,} bytes; at most {MOST_BYTES:,} are read")
        digest = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


# ------------------------------------------------------------------ families


def families(rows: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the family of each sample, from pairs of an id and the family by its first folder: the first folder by
    which samples differ, without the folders that all of them are below."""
    folders = {id: tuple(id.split("/")[:-1]) for id, _ in rows}
    # What the first and the last in order share, all share.
    first_folders, last_folders = min(folders.values(), default=()), max(folders.values(), default=())
    differing = (depth for depth, (a, b) in enumerate(zip(first_folders, last_folders, strict=False)) if a != b)
    shared_depth = next(differing, min(len(first_folders), len(last_folders)))
    return {id: _first_of_family(folders[id], shared_depth, first_folder) for id, first_folder in rows}


def _first_of_family(folders: tuple[str, ...], common: int, first: str) -> str:
    """Return the first folder below the `common` ones that all samples share; of a sample that is in none, the last of
    these, or its family so far."""
    if len(folders) > common:
        return folders[common]
    return folders[-1] if folders else first


# ------------------------------------------------------------------ several sources of one run

LISTED = "samples.txt"
"""The file of a run with the ids of several sources."""


def common_source(places: Sequence[Path], verb: str) -> tuple[Path, list[str]]:
    """Return the folder that all sources are below, and the ids of the sources there; of one source, no ids. Raise if a
    source has no samples (`check_samples`)."""
    if not places:
        raise UsageError(f"{verb} needs a sample, or a folder of samples")
    check_samples(places)
    if len(places) == 1:
        return places[0].resolve(), []
    resolved = list(dict.fromkeys(place.resolve() for place in places))
    common = Path(os.path.commonpath([place.parent for place in resolved]))
    return common, [place.relative_to(common).as_posix() for place in resolved]


def begin_several(places: Sequence[Path], out: Path, verb: str, restart: bool) -> tuple[Path, Path | None]:
    """Write the ids of several sources to `out/samples.txt`; refuse if another list is there, unless the run restarts.

    Return the folder that all sources are below, and that file; of one source, which needs no list, it and None.
    """
    source, ids = common_source(places, verb)
    listed = out / LISTED
    text = "".join(f"{id}\n" for id in ids)
    if listed.exists() and listed.read_text("utf-8") != text and not restart:
        known_ids = listed.read_text("utf-8").splitlines()
        raise UsageError(
            f"{out} is a run of other samples ({len(known_ids)} there, {len(ids) or 1} now): choose another "
            "folder, or pass --restart"
        )
    if not ids:
        listed.unlink(missing_ok=True)  # of the run before this restart
        return source, None
    out.mkdir(parents=True, exist_ok=True)
    listed.write_text(text, encoding="utf-8")
    return source, listed
