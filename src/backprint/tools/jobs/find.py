"""Find the samples below a folder, each as one Job, in an order that depends only on their names.

Names may contain newlines or bytes that are not text, folders may be unreadable, links may be circular: everything
found is a Job with a printable id, and with what is wrong with it. Nothing in a corpus makes this module raise; only a
missing corpus is an error.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from backprint.common.files import read_json
from backprint.common.formats import (
    BACKPRINT,
    CAPTURE,
    DUMP_IS_NO_SAMPLE,
    GRAPHNET,
    WORLD,
    has_dump,
    is_direction,
)
from backprint.common.text import escape_character
from backprint.errors import UsageError

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

DEPTH = 64
"""How many folders deep is searched."""

MOST_BYTES = 256 * 2**20
"""The largest main file of a sample: the search hashes it, and larger samples cannot be read."""

BLOCK = 2**20

MOST_ENTRIES = 1_000_000
"""The most entries that a folder may have."""

MOST_LINKS = 10_000
"""The most links to folders outside that are followed: folders that link to each other have any number of paths."""


@dataclass(frozen=True, slots=True)
class Job:
    """One sample of a corpus: `id` is its printable name, `path` is relative to SRC; `source_bytes` and `tensor_bytes`
    are the sizes of its code and of the tensors that it lists. `cause` says why it is unusable."""

    id: str
    path: str
    family: str = ""
    kind: str = ""
    source_hash: str = ""
    cause: str = ""
    detail: str = ""
    source_bytes: int = 0
    tensor_bytes: int = 0


def find(
    source: Path,
    *,
    names: Path | None = None,
    only: str | Collection[str] | None = None,
    limit: int | None = None,
    without: Path | None = None,
    among: Collection[str] | None = None,
) -> Iterator[Job]:
    """Yield every sample below `source`, or those listed in the file `names`, that match one of `only` and whose id is
    in `among`, if it is given.

    `without` is not searched.
    """
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder" if not source.exists() else f"{source}: not a folder")
    paths = _samples_listed(source, names, without) if names else search(source, "", without)
    name_patterns, count = patterns(only), 0
    for path in paths if names is None else _unique_paths(paths):
        name = escape(path or source.resolve().name or ".")
        if name_patterns and not any(fnmatchcase(name, pattern) for pattern in name_patterns):
            continue
        if among is not None and name not in among:
            continue
        if limit is not None and count >= limit:
            return
        count += 1
        yield _job_of(source, path, name)


def patterns(only: str | Collection[str] | None) -> tuple[str, ...]:
    """Return one pattern, several, or none as a tuple."""
    return (only,) if isinstance(only, str) else tuple(only or ())


# ------------------------------------------------------------------ names


def escape(path: str) -> str:
    r"""Return a path as printable text: `\n`, `\xff` and the like for other characters, `\\` for a backslash."""
    return "".join(map(_escaped, path))


def _escaped(letter: str) -> str:
    if letter == "\\":
        return r"\\"
    return letter if letter.isprintable() else escape_character(letter)


LONG = {"\\": "\\", "n": "\n", "t": "\t", "r": "\r"}


def unescape(name: str) -> str:
    """Return the path of an escaped text; a backslash without a meaning stays."""
    return re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[\\ntr])", _unescaped, name)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code in LONG:
        return LONG[code]
    number = int(code[1:], 16)
    if number > 0x10FFFF:
        return match[0]
    return chr(0xDC00 + number if code[0] == "x" else number)


# ------------------------------------------------------------------ searching


def search(source: Path, below: str, without: Path | None = None) -> Iterator[str]:
    """Yield the paths, from `source`, of the samples in one of its folders, and of folders that cannot be searched."""
    entered = [os.path.realpath(source)]
    skipped = os.path.realpath(without) if without else None
    yield from _walk(os.fspath(source), below, entered, skipped, below.count("/"), itertools.count(1))


def _walk(
    source: str, below: str, entered: list[str], without: str | None, depth: int, links: Iterator[int]
) -> Iterator[str]:
    """Search depth first, names in order. Links to folders outside are followed; inside, their targets are found
    anyway."""
    here = os.path.join(source, below) if below else source
    try:
        with os.scandir(here) as entries:
            sorted_entries = list(itertools.islice(entries, MOST_ENTRIES + 1))
    except OSError:
        yield below
        return
    if len(sorted_entries) > MOST_ENTRIES:
        yield below
        return
    sorted_entries.sort(key=lambda entry: os.fsencode(entry.name))
    names = {entry.name for entry in sorted_entries}
    ours = CAPTURE in names
    if ours or (names & set(GRAPHNET_FILES[:2]) and not _holds_samples(names)):
        yield below
    for entry in sorted_entries:
        if entry.name.startswith(".") or (ours and re.fullmatch(r"pair_\d+", entry.name)):
            continue
        path = f"{below}/{entry.name}" if below else entry.name
        match _kind(entry):
            case "folder" if depth >= DEPTH:
                yield path
            case "folder" if entry.path != without and os.path.realpath(entry.path) != without:
                yield from _walk(source, path, entered, without, depth + 1, links)
            case "link":
                target = os.path.realpath(entry.path)
                if _inside(os.path.realpath(here), target):
                    yield path
                elif not any(_inside(target, root) for root in entered) and target != without:
                    if next(links) > MOST_LINKS:
                        yield _UnfollowedLink(path)
                        continue
                    yield from _walk(source, path, [*entered, target], without, depth + 1, links)
            case "broken" if not names & {CAPTURE, *GRAPHNET_FILES}:
                yield path


class _UnfollowedLink(str):
    """The path of a link that is not followed, because too many were."""


def _holds_samples(names: set[str]) -> bool:
    """Whether a folder only contains subgraphs, and has no model of its own."""
    return "model.py" not in names and any(name.startswith("subgraph_") for name in names)


def _kind(entry: os.DirEntry[str]) -> str:
    """Return the kind of an entry: `folder`, `link` to one, `broken` link, else ''."""
    try:
        if not entry.is_symlink():
            return "folder" if entry.is_dir() else ""
        return "link" if stat.S_ISDIR(os.stat(entry.path).st_mode) else ""
    except OSError:
        return "broken"


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _samples_listed(source: Path, names: Path, without: Path | None) -> Iterator[str]:
    """Yield the samples that a file's lines name: each is an id as `corpus status` shows it, of a sample or of a
    folder."""
    try:
        lines = os.fsdecode(names.read_bytes()).split("\n")
    except OSError as error:
        raise UsageError(f"--list {names}: {error.strerror}") from error
    for line in lines:
        path = unescape(line.removesuffix("\r")).rstrip("/")
        if not path or path.startswith("#"):
            continue
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"--list {names}: {line!r} is not a path below {source}")
        paths = list(search(source, path, without)) if (source / path).is_dir() else []
        yield from paths or [path]


def _unique_paths(paths: Iterator[str]) -> Iterator[str]:
    """Yield each path only the first time."""
    seen = set()
    for path in paths:
        if path not in seen:
            seen.add(path)
            yield path


def samples_in(places: Collection[Path]) -> Iterator[Path]:
    """Yield the samples at these paths or below them; a path that is not a folder, or has none, is yielded itself."""
    for place in places:
        paths = [place / path for path in search(place, "")] if place.is_dir() else []
        yield from [path for path in paths if not is_direction(path)] or [place]


def missing_sample(places: Collection[Path]) -> str:
    """Return a text about the first path without a sample at it or below it; '' if all have one."""
    for place in places:
        if not place.is_dir():
            return f"{place}: {'not a folder' if place.exists() else 'no such folder'}"
        damaged = any(place.glob("pair_*")) or any(os.path.lexists(place / name) for name in (CAPTURE, *GRAPHNET_FILES))
        if not damaged and next(search(place, ""), None) is None:
            if has_dump(place):
                return f"{place}: {DUMP_IS_NO_SAMPLE}"
            return f"{place}: no sample here or below: no folder holds capture.json, or model.py and graph_net.json"
    return ""


def missing_rank(places: Collection[Path]) -> str:
    """Return a text about the first World that has not all ranks that its world.json names; '' if all have."""
    for place in places:
        if not (place / WORLD).is_file():
            continue
        content = read_json(place / WORLD)
        numbers = content.get("ranks", content.get("size")) if isinstance(content, dict) else None
        numbers = range(min(numbers, MOST_RANKS)) if type(numbers) is int else numbers
        if not isinstance(numbers, (list, range)) or not all(type(number) is int for number in numbers):
            return f"{place / WORLD}: says of no ranks"
        gone = [number for number in numbers[:MOST_RANKS] if not (place / f"rank_{number}" / CAPTURE).is_file()]
        if gone:
            shown = ", ".join(f"rank_{number}" for number in gone[:8])
            return f"{place}: its world.json names {len(numbers)} ranks, and these are not there: {shown}"
    return ""


MOST_RANKS = 100_000
"""The most ranks of a World that are looked for."""

# ------------------------------------------------------------------ what a folder is


def _job_of(source: Path, path: str, name: str) -> Job:
    """Return the Job of one folder: its kind, family and hash, or the cause why it is unusable."""
    folder = source / path
    first, slash, _ = path.partition("/")
    if isinstance(path, _UnfollowedLink):
        reason = f"more than {MOST_LINKS:,} links to other folders are not followed"
        return Job(name, str(path), escape(first) if slash else "", "", "", "refused", reason)
    for check in (_reserved, _reachable, _apart):
        if wrong := check(folder, path):
            return Job(name, path, escape(first) if slash else "", "", "", *wrong)
    ours = BACKPRINT.has_sample(folder)
    family = escape(first) if slash else "" if ours else _declared_source(folder)
    main, kind = (BACKPRINT if ours else GRAPHNET).main, (BACKPRINT if ours else GRAPHNET).name
    try:
        _plain(folder / main).close()
        hash, (code, tensors) = source_hash(folder), sizes(folder)
        return Job(name, path, family, kind, hash, source_bytes=code, tensor_bytes=tensors)
    except OSError as error:
        return Job(name, path, family, kind, "", *_unread(main, error))


def _reserved(folder: Path, path: str) -> tuple[str, str] | None:
    if RESERVED.fullmatch(path.split("/")[0]):
        return "refused", f"{escape(path)} is the name of a file of the run itself: rename the sample"
    return None


def _reachable(folder: Path, path: str) -> tuple[str, str] | None:
    """Say why a folder cannot be a sample, whatever its files are."""
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            return "missing file", "not a folder"
        inside = os.path.realpath(folder)
        if folder.is_symlink() and _inside(os.path.realpath(folder.parent), inside):
            return "symlink loop", f"leads back to {escape(inside)}, which holds it"
        with os.scandir(folder) as entries:
            names = {entry.name for entry in itertools.islice(entries, MOST_ENTRIES + 1)}
    except OSError as error:
        return _unread("the folder", error)
    if len(names) > MOST_ENTRIES:
        return "refused", f"more than {MOST_ENTRIES:,} entries in one folder"
    if not names & {CAPTURE, *GRAPHNET_FILES}:
        deep = path.count("/") >= DEPTH
        return ("refused", f"more than {DEPTH} folders deep") if deep else ("missing file", "no model.py here")
    return None


def _apart(folder: Path, path: str) -> tuple[str, str] | None:
    """Say why a sample could not be in OUT beside a sample that it is below."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        above = folder.parents[depth - 1]
        if OWN.fullmatch(parts[-depth]) and any((above / name).is_file() for name in MAIN):
            other = escape("/".join(parts[:-depth])) or "a sample"
            return "refused", f"{other} is a sample too, and has a {parts[-depth]} of its own in OUT: rename this one"
    return None


CAUSES = {"FileNotFoundError": "missing file", "PermissionError": "unreadable"}
REFUSED = {errno.EFBIG: "refused", errno.ELOOP: "symlink loop"}


def _unread(what: str, error: OSError) -> tuple[str, str]:
    """Return the cause and the message for a file that cannot be read."""
    cause = REFUSED.get(error.errno or 0) or CAUSES.get(type(error).__name__, "unreadable")
    return cause, f"{what}: {error.strerror or error}"


def _declared_source(folder: Path) -> str:
    """Return the `source` that a GraphNet sample names, if any."""
    try:
        if (folder / "graph_net.json").is_symlink():
            return ""
        with _plain(folder / "graph_net.json") as file:
            metadata = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return ""  # the reader of the sample decides whether the file must be valid
    source = metadata.get("source") if isinstance(metadata, dict) else None
    return escape(source)[:200] if isinstance(source, str) else ""


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
    """Return the SHA-256 of a regular file; raise OSError if the file is larger than is read."""
    sum = hashlib.sha256()
    with _plain(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"{size:,} bytes; at most {MOST_BYTES:,} are read")
        for _ in range(MOST_BYTES // BLOCK + 1):  # the size of a file in /proc says nothing
            block = file.read(BLOCK)
            if not block:
                return sum.hexdigest()
            sum.update(block)
    raise OSError(errno.EFBIG, f"at most {MOST_BYTES:,} bytes are read, and it goes on")


def _plain(path: Path) -> io.BufferedReader:
    """Open a regular file; raise OSError for anything else, because a pipe would block."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device may do something
        raise OSError(errno.EINVAL, "is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


# ------------------------------------------------------------------ families


def families(rows: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the family of each sample, from pairs of an id and the family by its first folder: the first folder by
    which samples differ, without the folders that all of them are below."""
    folders = {id: tuple(id.split("/")[:-1]) for id, _ in rows}
    least, most = min(folders.values(), default=()), max(folders.values(), default=())
    differing = (depth for depth, (a, b) in enumerate(zip(least, most, strict=False)) if a != b)
    common = next(differing, min(len(least), len(most)))
    return {id: _first_of_family(folders[id], common, first) for id, first in rows}


def _first_of_family(folders: tuple[str, ...], common: int, first: str) -> str:
    """Return the first folder below those in common; of a sample beside them, the last of these."""
    if len(folders) > common:
        return folders[common]
    return folders[-1] if folders else first


# ------------------------------------------------------------------ several sources of one run

LISTED = "samples.txt"
"""The file of a run with the ids of several sources."""


def common_source(places: Sequence[Path], verb: str) -> tuple[Path, list[str]]:
    """Return the folder that all sources are below, and the ids of the sources there; of one source, no ids."""
    if wrong := missing_sample(places) if places else f"{verb} needs a sample, or a folder of samples":
        raise UsageError(wrong)
    if len(places) == 1:
        return places[0].resolve(), []
    resolved = list(dict.fromkeys(place.resolve() for place in places))
    common = Path(os.path.commonpath([place.parent for place in resolved]))
    return common, [escape(place.relative_to(common).as_posix()) for place in resolved]


def begin_several(places: Sequence[Path], out: Path, verb: str, restart: bool) -> tuple[Path, Path | None]:
    """Return the common source of a run, and the file in `out` that lists the sources; of one source, no file."""
    source, ids = common_source(places, verb)
    listed = out / LISTED
    text = "".join(f"{id}\n" for id in ids)
    if listed.exists() and listed.read_text("utf-8") != text and not restart:
        known_ids = listed.read_text("utf-8").split()
        raise UsageError(
            f"{out} is a run of other samples ({len(known_ids)} there, {len(ids) or 1} now): choose another "
            "folder, or pass --restart"
        )
    if not ids:
        return source, None
    out.mkdir(parents=True, exist_ok=True)
    listed.write_text(text, encoding="utf-8")
    return source, listed
