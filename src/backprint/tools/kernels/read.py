"""Kernels in folders, read as text: Backprint's own, Inductor's code and cache, GraphNet's layout, kernels in single
files.

    SAMPLE/TARGET/pair_0/forward/wrapper.py         Inductor's wrapper, with the sources of its kernels
    SAMPLE/TARGET/pair_0/forward/graph.json         target, ports, extern calls; operators and calls of each kernel
    SAMPLE/TARGET/pair_0/forward/kernels/NAME.py    the same kernels, each as a file that runs by itself
    SAMPLE/TARGET/pair_0/forward/built/NAME/        the kernel compiled: PTX, cubin and others

Files are parsed, never imported, and everything is checked before it is used: a file may be untrusted, truncated, or
written by another version. For a file that cannot be read, an UnreadKernels with the reason is returned, and the other
files are read all the same.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from backprint.common.files import read_bytes
from backprint.common.text import parse_json
from backprint.errors import RefusedError, UsageError
from backprint.tools.kernels.normal import LARGEST, kernel_hash
from backprint.tools.kernels.normal_cpp import BINDING
from backprint.tools.kernels.normal_triton import find_kernels, parse_module
from backprint.tools.kernels.nouns import FusedOperator, Kernel, KernelArgument, KernelCall, KernelConfiguration

# ------------------------------------------------------------------ graph.json, beside each wrapper


FORMAT = 1
"""The format of `graph.json` that this version reads."""

GRAPH_FILE = "graph.json"
WRAPPER_FILE = "wrapper.py"
ALONE_FOLDER = "kernels"
BUILT_FOLDER = "built"

PAIR = re.compile(r"pair_\d+")
TARGET = re.compile(r"(cpu|cuda)(?:_(\w+))?")
"""A folder's name for a target: `cpu`, `cpu_avx2`, `cuda_90`."""

DIRECTIONS = ("forward", "backward")

LARGEST_SIZE = 1 << 53
"""The largest dimension or stride of a tensor that is accepted."""

NOT_FINITE = ("inf", "-inf", "nan")
"""The texts that stand for numbers that JSON cannot represent."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _SavedGraph:
    """The contents of a `graph.json`."""

    target: str
    direction: str
    kernels: Mapping[str, Kernel]
    """The kernels by name. Their `source` is empty: it is in the wrapper."""
    externs: Mapping[str, int]
    """Operators that the wrapper calls and that are not kernels, such as `extern_kernels.mm` -> the number of calls."""


def graph_folder(file: Path) -> Path | None:
    """Return the folder of the graph that a file belongs to; None if the file is not in Backprint's layout."""
    for folder in (file.parent, file.parent.parent):
        names = folder.absolute().parts[-3:]
        if len(names) == 3 and folder.name in DIRECTIONS and PAIR.fullmatch(names[1]) and TARGET.fullmatch(names[0]):
            return folder
    return None


def _target_of_folder(folder: Path) -> str:
    """Return the target of a graph's folder: `cuda:90` for `cuda_90`."""
    return folder.absolute().parts[-3].replace("_", ":", 1)


def read_saved_graph(text: str, path: str) -> _SavedGraph:
    """Return the contents of a `graph.json`; raise RefusedError if the text is not one."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise RefusedError(f"{path}: not JSON: {error}") from error
    content = _checked_type(content, dict, path)
    version = content.get("format")
    if version != FORMAT:
        raise RefusedError(
            f"{path}: a folder of format {str(version)[:40]}; this version reads {FORMAT}: "
            "read it with the Backprint that wrote it, or extract the kernels again"
        )
    target, direction = (field(content, name, str, path) for name in ("target", "direction"))
    template = Kernel("", "", "", target, direction=direction)
    kernels = {}
    for row in field(content, "kernels", list, path):
        kernel = _saved_kernel(_checked_type(row, dict, f"{path}: kernels"), template, path)
        kernels[kernel.name] = kernel
    externs = field(content, "externs", dict, path)
    counts = {name: _checked_type(count, int, f"{path}: externs: {name[:80]}") for name, count in externs.items()}
    return _SavedGraph(target, direction, kernels, counts)


def _saved_kernel(kernel_row: dict[str, Any], template: Kernel, path: str) -> Kernel:
    """Return the Kernel of a row of `graph.json`. It has no source; `template` has its target and direction."""
    name = field(kernel_row, "name", str, path)
    location = f"{path}: kernel {name[:80]}"
    operators = tuple(
        FusedOperator(*(field(row, part, str, location) for part in ("operator", "step", "line")))
        for row in dictionaries(kernel_row, "operators", location)
    )
    configurations = tuple(
        _saved_configuration(row, location) for row in dictionaries(kernel_row, "configurations", location)
    )
    calls = tuple(_saved_call(row, location) for row in dictionaries(kernel_row, "calls", location))
    threads = kernel_row.get("threads")
    return replace(
        template,
        language=field(kernel_row, "language", str, location),
        name=name,
        operators=operators,
        calls=calls,
        configurations=configurations,
        compiler=field(kernel_row, "compiler", str, location),
        isa=field(kernel_row, "isa", str, location),
        threads=threads if is_whole(threads) else None,
    )


def _saved_configuration(row: dict[str, Any], location: str) -> KernelConfiguration:
    """Return a configuration; its sizes are pairs of a name and a number, or a mapping."""
    sizes = row.get("sizes")
    pairs = sizes.items() if isinstance(sizes, dict) else map(pair_of, _checked_type(sizes, list, f"{location}: sizes"))
    checked = tuple((str(name), _checked_type(size, int, f"{location}: sizes")) for name, size in pairs)
    return KernelConfiguration(checked, field(row, "num_warps", int, location), field(row, "num_stages", int, location))


def pair_of(value: Any) -> tuple[Any, Any]:
    """Return a pair of JSON as a tuple. Any other value becomes a pair without a size, which the caller refuses."""
    match value:
        case [name, number]:
            return name, number
        case _:
            return "", None


def _saved_call(row: dict[str, Any], location: str) -> KernelCall:
    """Return a call: its arguments, and its grid for each configuration."""
    arguments = tuple(_saved_argument(item, location) for item in dictionaries(row, "arguments", location))
    grids = tuple(_grid_of_three(item, location) for item in _optional_list(row, "grids", location))
    return KernelCall(arguments, grids)


def _grid_of_three(value: Any, location: str) -> tuple[int, int, int]:
    match value:
        case [x, y, z] if is_whole(x) and is_whole(y) and is_whole(z):
            return x, y, z
        case _:
            raise RefusedError(f"{location}: a grid is three numbers, found {str(value)[:40]}")


def _saved_argument(row: dict[str, Any], location: str) -> KernelArgument:
    """Return an argument of a call: a tensor's dtype, shape and stride, or a number."""
    shape, stride = (tuple(_optional_list(row, name, location)) for name in ("shape", "stride"))
    if not all(is_whole(size) and 0 <= size <= LARGEST_SIZE for size in (*shape, *stride)) or len(shape) != len(stride):
        raise RefusedError(
            f"{location}: no tensor has the shape {str(shape)[:40]} and the stride {str(stride)[:40]}: both are lists "
            f"of whole numbers from 0 to {LARGEST_SIZE}, of the same length"
        )
    value = row.get("value")
    value = float(value) if value in NOT_FINITE else value
    if not isinstance(value, int | float | None):
        raise RefusedError(f"{location}: an argument's value is a number, found {type(value).__name__}")
    return KernelArgument(field(row, "dtype", str, location), shape, stride, value)


# -------------------------------------------------------------- checks of JSON values
#
# `location` begins the message of an error: the path of the file, and where in it the value is.


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_type(value: Any, kind: type[T], location: str) -> T:
    """Return a value of JSON; raise RefusedError if it is of another type."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RefusedError(f"{location}: expected a {kind.__name__}, found {type(value).__name__}")
    return value


def field(json_object: Mapping[str, Any], name: str, kind: type[T], location: str) -> T:
    """Return the value under a required key of a JSON object; raise RefusedError if it is missing or of another
    type."""
    if name not in json_object:
        raise RefusedError(f"{location}: it has no {name!r}")
    return _checked_type(json_object[name], kind, f"{location}: {name}")


def _optional_list(json_object: Mapping[str, Any], name: str, location: str) -> list[Any]:
    """Return the list under an optional key of a JSON object; [] if the key is missing."""
    value = json_object.get(name)
    return [] if value is None else _checked_type(value, list, f"{location}: {name}")


def dictionaries(json_object: Mapping[str, Any], name: str, location: str) -> Iterator[dict[str, Any]]:
    """Yield the items, which must be JSON objects, of the list under a required key of a JSON object."""
    for row in field(json_object, name, list, location):
        yield _checked_type(row, dict, f"{location}: {name}")


# ------------------------------------------------------------------ files with one kernel, written by `alone.py`
#
# Such a file is a copy of a kernel in a wrapper: it has the same program, and so the same hash. While the wrapper is
# still there (in the folder of the file, or in the one above), the copy is left out, so that the kernel counts once. If
# somebody has edited the file, its hash is no longer the recorded one, and it is a kernel like any other.

MARK = "# A kernel that Backprint saved"
"""The first line of each file. The first two lines have no untrusted text, because Python reads an encoding there."""

WRAPPERS = ("wrapper.py", "output_code.py")
"""The names of files with the wrapper of a graph."""

RECORDED = ("NAME", "HASH", "WRITTEN_AS", "SOURCE")
"""The global variables of a file whose values are read."""

FACTS = ("target", "declared", "compiler", "isa", "sample", "direction")
"""The keys of WRITTEN_AS that have a text: fields of Kernel under the same names."""


def _saved_kernels(text: str, path: str) -> Iterator[Kernel]:
    """Yield the kernel of a file that `alone.py` wrote; nothing if the file is an unedited copy beside its wrapper."""
    if len(text) > 2 * LARGEST:
        raise RefusedError(f"{path}: a source of {len(text)} characters; the limit is {2 * LARGEST}")
    tree = parse_module(text, path)
    recorded = _recorded_values(tree, path)
    name, facts = recorded.get("NAME"), recorded.get("WRITTEN_AS", {})
    if not isinstance(name, str) or not facts or not _is_record(facts):
        raise RefusedError(f"{path}: it begins like a kernel that Backprint saved, but has no NAME or no WRITTEN_AS")
    if "SOURCE" in recorded:
        language, source = "cpp", recorded["SOURCE"]
    else:
        language, source = "triton", _module_source(tree, text, facts, path)
    if not isinstance(source, str):
        raise RefusedError(f"{path}: its SOURCE is not a text")
    texts = {name: str(facts.get(name) or "") for name in FACTS}
    threads = facts.get("threads") if isinstance(facts.get("threads"), int) else None
    kernel = Kernel(
        language,
        name,
        source,
        texts["target"],
        texts["declared"],
        compiler=texts["compiler"],
        threads=threads,
        isa=texts["isa"],
        sample=texts["sample"],
        direction=texts["direction"],
    )
    if not (_has_wrapper(Path(path)) and recorded.get("HASH") == kernel.hash):
        yield kernel


def _is_record(facts: object) -> bool:
    """Whether a value is a mapping with texts, whole numbers and lists of texts."""
    return isinstance(facts, Mapping) and all(
        all(isinstance(item, str) for item in value) if isinstance(value, list) else isinstance(value, str | int | None)
        for value in facts.values()
    )


def _recorded_values(tree: ast.Module, path: str) -> dict[str, Any]:
    """Return the values of the global variables in RECORDED; raise RefusedError if one is not a literal."""
    values = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in RECORDED:
                try:
                    values[name] = ast.literal_eval(value)
                except (ValueError, TypeError, SyntaxError, RecursionError) as error:
                    raise RefusedError(f"{path}: line {node.lineno}: {name} is not a literal ({error})") from error
    return values


def _module_source(tree: ast.Module, text: str, facts: Mapping[str, Any], path: str) -> str:
    """Restore the source of the module that the compiler wrote: the imports, the functions, and the kernel's
    decorator."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    statements, imports = facts.get("statements"), facts.get("imports")
    if not isinstance(statements, list) or not isinstance(imports, list) or not set(functions) & set(statements):
        raise RefusedError(f"{path}: it does not say which of its functions are the kernel's")
    parts = list(imports)
    for statement in statements:
        function = functions.get(statement)
        if function is None:
            parts.append(statement)
            continue
        first = min([function.lineno, *(decorator_node.lineno for decorator_node in function.decorator_list)])
        decorator = facts.get("decorator") if statement == statements[-1] else ""
        parts += [decorator] if decorator else []
        parts.append("\n".join(lines[first - 1 : function.end_lineno]))
    return "\n".join(parts) + "\n"


def _has_wrapper(path: Path) -> bool:
    """Whether a wrapper is in the folder of a file, or in the one above."""
    return any((folder / name).is_file() for folder in (path.parent, path.parent.parent) for name in WRAPPERS)


# ------------------------------------------------------------------ kernels in files and folders
#
# The source of a kernel is either a string in a wrapper, which passes it to the compiler, or a module that defines the
# kernel. `READERS` has a row for each kind of file. A kernel that is in both, within one sample, counts once.

WRAPPER_LARGEST = 64 << 20
"""The most bytes of a file with many kernels; the source of each kernel has a limit of its own, LARGEST."""

TRITON_FOLDER = "triton_kernel"
GRAPH_FOLDER = "original_graph"
PTX_FOLDER = "ptx"
"""The folders of a sample in GraphNet's layout."""

CPP_FOLDER = "cpp_kernel"
"""The folder of C++ kernels in that layout, which GraphNet does not have and Backprint adds."""

PARTS_OF_SAMPLE = re.compile(rf"{TRITON_FOLDER}|{CPP_FOLDER}|{GRAPH_FOLDER}|{PTX_FOLDER}|pair_\d+|forward|backward")
CACHED = re.compile(r"[a-z2-7]{2}")
"""The names of folders in Inductor's cache: the folder `ab` has files `cab….py`."""

COMPILED = {"triton": ("triton", 1), "cpp_pybinding": ("cpp", 1), "cpp": ("cpp", 0)}
"""Methods of Inductor's AsyncCompile -> the language of the source that they compile, and the position of that
argument."""

ASYNC_COMPILE = "async_compile"
"""The variable in a wrapper that holds its AsyncCompile."""

DIRECTION = re.compile(r"# AOT ID: \['\d+_(forward|backward|inference)'\]")
"""The first line of a wrapper."""


@dataclass(frozen=True, slots=True)
class UnreadKernels:
    """A file or a folder from which no kernels were read, with the reason. `place` is its path."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExternCalls:
    """The operators that a wrapper calls and that are not kernels, with the number of calls. `place` is the path of the
    `graph.json` beside the wrapper."""

    sample: str
    direction: str
    target: str
    place: str
    operators: Mapping[str, int]


KernelItem = Kernel | UnreadKernels | ExternCalls
"""What is read from a file."""


@dataclass(frozen=True, slots=True)
class KernelSample:
    """A folder that is one sample, or a single file.

    `files` has the files that may have kernels, by the suffix of their names, each `graph.json`, and the folders that
    could not be listed, which are reported as not read.
    """

    name: str
    folder: str
    files: tuple[Path, ...]
    state: str
    """A digest of the names, sizes and times of the files. It changes when a file is written again."""


@dataclass(frozen=True, slots=True)
class _KernelReader:
    """Reads one kind of file that has kernels."""

    title: str
    suffix: str
    marks: tuple[str, ...]
    """A file is of this kind if its text contains one of these marks; files without any are not parsed."""
    kernels_in: Callable[[str, str], Iterator[KernelItem]]
    """Yields the kernels in a text; the second argument is the path of its file, for messages."""
    calls_kernels: bool = False
    """Whether the file is a wrapper, which also calls the kernels. Copies of them may be in other files beside it."""
    mark_is_first: bool = False
    """Whether the text must begin with the mark, and not only contain it."""

    def recognizes(self, text: str) -> bool:
        """Whether the text of a file is of this kind."""
        return text.startswith(self.marks) if self.mark_is_first else any(mark in text for mark in self.marks)


def read_kernels(path: Path) -> Iterator[KernelItem]:
    """Yield the kernels in a file or a folder, sample by sample, and an UnreadKernels for each file that was not read.

    For a folder without kernels, one UnreadKernels is yielded.
    """
    count = 0
    for sample in samples_below(path):
        for item in kernels_of_sample(sample):
            count += 1
            yield item
    if not count:
        yield no_kernels_in(path)


def no_kernels_in(path: Path) -> UnreadKernels:
    """Return the UnreadKernels for a folder without kernels."""
    known = ", ".join(reader.title for reader in READERS)
    return UnreadKernels(str(path), f"there are no kernels here; kinds of files that are read: {known}")


# -------------------------------------------------------------- samples


def samples_below(path: Path) -> Iterator[KernelSample]:
    """Yield the samples in a folder, or, for the path of a file, a sample with this file.

    Links to folders are not followed.
    """
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if not path.is_dir():
        if path.name == WRAPPER_FILE and graph_folder(path) == path.parent:
            files = {file: _stat_or_none(file) for file in (path.with_name(GRAPH_FILE), path) if file.exists()}
            yield _sample_of_files(_name_of_sample(path.parent), path.parent, files)
        else:
            yield _sample_of_files(path.stem, path, {path: _stat_or_none(path)})
        return
    samples = [("", path)]
    while samples:
        name, top = samples.pop()
        files, subsamples = _files_of_sample(top)
        if files:
            yield _sample_of_files(name or _name_of_sample(path), top, files)
        samples += [(f"{name}/{folder.name}" if name else folder.name, folder) for folder in reversed(subsamples)]


def _files_of_sample(top: Path) -> tuple[dict[Path, os.stat_result | None], list[Path]]:
    """Return the files of a sample (`KernelSample.files`) with the stat of each, and the folders in it that are samples
    themselves."""
    suffixes = tuple({reader.suffix for reader in READERS})
    files: dict[Path, os.stat_result | None] = {}
    subsamples = []
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            files[folder] = None
            continue
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path) if _is_part_of_sample(path) else subsamples.append(path)
            elif entry.name.endswith(suffixes) or entry.name == GRAPH_FILE:
                files[path] = _stat_or_none(path)
    return files, subsamples


def _stat_or_none(path: Path) -> os.stat_result | None:
    """Return the `os.stat` of a file; None for a broken link."""
    try:
        return os.stat(path)
    except OSError:
        return None


def _sample_of_files(name: str, top: Path, files: Mapping[Path, os.stat_result | None]) -> KernelSample:
    """Return a sample with a digest of the names, sizes and times of its files."""
    digest = hashlib.sha256()
    for file, stat in files.items():
        size_and_time = (stat.st_size, stat.st_mtime_ns) if stat else ()
        digest.update(f"{file.relative_to(top)}\0{size_and_time}\n".encode("utf-8", "surrogateescape"))
    return KernelSample(name, str(top.resolve()), tuple(files), digest.hexdigest())


def _name_of_sample(path: Path) -> str:
    """Return the name of the sample to which a folder belongs: the nearest folder, from this one upwards, whose name is
    not that of a part of a sample."""
    folder = path.resolve()
    while _is_named_part(folder) and folder.parent != folder:
        folder = folder.parent
    return folder.name


def _is_part_of_sample(folder: Path) -> bool:
    """Whether a folder belongs to the sample of its parent, and is not a sample itself."""
    if _is_named_part(folder):
        return True
    return CACHED.fullmatch(folder.name) is not None and next(folder.glob(f"c{folder.name}*"), None) is not None


def _is_named_part(folder: Path) -> bool:
    """Whether the name of a folder, and the files in it or beside it, are those of a part of a sample."""
    if PARTS_OF_SAMPLE.fullmatch(folder.name):
        return True
    if folder.name in (ALONE_FOLDER, BUILT_FOLDER):
        return (folder.parent / GRAPH_FILE).exists()
    return TARGET.fullmatch(folder.name) is not None and next(folder.glob("pair_*"), None) is not None


# -------------------------------------------------------------- the kernels of a sample


def kernels_of_sample(sample: KernelSample) -> Iterator[KernelItem]:
    """Yield the kernels of a sample, the extern calls of its graphs, and the files that were not read.

    Wrappers are read first. A kernel in another file is left out if it is also in a wrapper.
    """
    graphs: dict[Path, _SavedGraph] = {}
    refused: set[Path] = set()
    for file in sample.files:
        if file.name == GRAPH_FILE and (folder := graph_folder(file)) == file.parent:
            graph = _graph_or_reason(file)
            if isinstance(graph, UnreadKernels):
                refused.add(folder)
                yield graph
            else:
                graphs[folder] = graph
                yield ExternCalls(sample.name, graph.direction, graph.target, str(file), graph.externs)
    readers: dict[Path, _KernelReader] = {}
    for file in sample.files:
        reader = None if file.name == GRAPH_FILE or graph_folder(file) in refused else _reader_or_reason(file)
        if isinstance(reader, UnreadKernels):
            yield reader
        elif reader is not None:
            readers[file] = reader
    yield from _kernels_without_copies(sample, readers, graphs)


def _kernels_without_copies(
    sample: KernelSample, readers: Mapping[Path, _KernelReader], graphs: Mapping[Path, _SavedGraph]
) -> Iterator[KernelItem]:
    """Yield all kernels of wrappers, and then the kernels of other files that are in no wrapper."""
    files_without_calls = [file for file, reader in readers.items() if not reader.calls_kernels]
    hashes_in_wrappers: set[str] = set()
    for file, reader in readers.items():
        if reader.calls_kernels:
            for item in _kernels_of_file(file, sample.name, reader, graphs):
                yield item
                if files_without_calls and isinstance(item, Kernel):
                    hashes_in_wrappers.add(_hash_or_name(item))
    for file in files_without_calls:
        for item in _kernels_of_file(file, sample.name, readers[file], graphs):
            if not (hashes_in_wrappers and isinstance(item, Kernel) and _hash_or_name(item) in hashes_in_wrappers):
                yield item


def _hash_or_name(kernel: Kernel) -> str:
    """Return a kernel's hash; if its source cannot be parsed, its file and name."""
    try:
        return kernel_hash(kernel)
    except RefusedError:
        return f"{kernel.place}: {kernel.name}"


def _graph_or_reason(file: Path) -> _SavedGraph | UnreadKernels:
    """Return the contents of a `graph.json`, or an UnreadKernels with the reason why it was not read."""
    try:
        graph = read_saved_graph(read_text(file), str(file))
        if not (file.parent / WRAPPER_FILE).exists():
            raise RefusedError(f"there is no {WRAPPER_FILE} beside it, which has the kernels")
    except UNREADABLE as error:
        return _unread_file(file, error)
    return graph


def _reader_or_reason(file: Path) -> _KernelReader | UnreadKernels | None:
    """Return the reader for a file; None if no reader recognizes it, and an UnreadKernels if it cannot be read."""
    try:
        text = read_text(file)
    except UNREADABLE as error:
        return _unread_file(file, error)
    fitting = (reader for reader in READERS if file.name.endswith(reader.suffix))
    return next((reader for reader in fitting if reader.recognizes(text)), None)


def _kernels_of_file(
    file: Path, sample: str, reader: _KernelReader, graphs: Mapping[Path, _SavedGraph] = MappingProxyType({})
) -> Iterator[KernelItem]:
    """Yield the kernels of one file, with their sample, direction and path, and with their facts in `graph.json`."""
    path = str(file)
    folder = graph_folder(file)
    try:
        text = read_text(file)
        for item in reader.kernels_in(text, path):
            if not isinstance(item, Kernel):
                yield item
                continue
            if folder is not None:
                saved = graphs[folder].kernels.get(item.name) if folder in graphs else None
                item = _with_saved_facts(item, saved) if saved else replace(item, target=_target_of_folder(folder))
            direction = item.direction or direction_of(text, file)
            yield replace(item, sample=sample, direction=direction, place=path)
    except UNREADABLE as error:
        yield _unread_file(file, error)


def _with_saved_facts(kernel: Kernel, saved: Kernel) -> Kernel:
    """Return a Kernel with the program of `kernel`, and with everything else, such as target and calls, of `saved`, the
    Kernel of a `graph.json`."""
    return replace(saved, language=kernel.language, name=kernel.name, source=kernel.source, declared=kernel.declared)


UNREADABLE = (RefusedError, OSError, RecursionError, MemoryError)


def _unread_file(file: Path, error: BaseException) -> UnreadKernels:
    """Return the UnreadKernels for a file that could not be read because of an error."""
    reason = str(error) or type(error).__name__
    return UnreadKernels(str(file), reason.removeprefix(f"{file}: "))


def read_text(file: Path) -> str:
    """Return the text of a file; raise RefusedError if it is not a regular file, is too large, or is not UTF-8."""
    content = read_bytes(file, WRAPPER_LARGEST, links=True, error=RefusedError)
    if b"\0" in content:
        raise RefusedError(f"{file}: not text: it has a zero byte")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not UTF-8 text (byte {error.start})") from error


def direction_of(text: str, file: Path) -> str:
    """Return the direction that a wrapper's first line or a folder's name says, or ''."""
    if match := DIRECTION.match(text.lstrip()[:80]):
        return match[1]
    return next((part for part in reversed(file.parent.parts) if part in ("forward", "backward")), "")


# -------------------------------------------------------------- kinds of files


def kernels_of_wrapper(text: str, path: str) -> Iterator[KernelItem]:
    """Yield the kernels whose sources a wrapper of Inductor passes to AsyncCompile.

    A wrapper that is cut off between two kernels can still be parsed as Python. For such a file, an UnreadKernels is
    yielded after the kernels that it has.
    """
    for node in ast.walk(parse_module(text, path)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if method := method_of(call):
                yield compiled_kernel(name, method, call, path)
    if ASYNC_COMPILE_LINE in text and "def call(" not in text:
        yield UnreadKernels(path, "the file is not whole: it has no function that calls the kernels")


def method_of(call: ast.Call) -> str:
    """Return the name of the method of AsyncCompile that a call compiles a source with; '' for any other call."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=method) if name == ASYNC_COMPILE and method in COMPILED:
            return method
        case _:
            return ""


def compiled_kernel(name: str, method: str, call: ast.Call, path: str) -> KernelItem:
    """Return the kernel that a call of AsyncCompile compiles; an UnreadKernels if its source cannot be read."""
    language, position = COMPILED[method]
    match call.args[: position + 1]:
        case [*before, ast.Constant(value=str(source))] if len(before) == position:
            if len(source) > LARGEST:
                return UnreadKernels(path, f"{name}: a source of {len(source)} characters; the limit is {LARGEST}")
        case _:
            return UnreadKernels(path, f"line {call.lineno}: {name}: its source is not a string in the call")
    match before:
        case [ast.Constant(value=str(title))]:
            return Kernel(language, title, source)
        case [ast.List() as types]:
            return Kernel(language, name, source, declared=ast.unparse(types))
        case _:
            return Kernel(language, name, source)


def _kernels_of_module(text: str, path: str) -> Iterator[KernelItem]:
    """Yield the Triton kernels that a module defines. The module may be in Inductor's cache or in a GraphNet sample, or
    written by hand."""
    if len(text) > LARGEST:
        raise RefusedError(f"{path}: a source of {len(text)} characters; the limit is {LARGEST}")
    functions = [node for node in parse_module(text, path).body if isinstance(node, ast.FunctionDef)]
    kernels = find_kernels(functions)
    if not kernels and JITTED not in text:
        yield UnreadKernels(path, "there is no kernel in this module, which begins like a module of Inductor")
    for kernel in kernels:
        yield Kernel("triton", kernel.name, text)


def _kernels_of_cpp(text: str, path: str) -> Iterator[KernelItem]:
    """Yield the kernel of a C++ file: the part before Inductor's binding."""
    source = text.partition(BINDING)[0]
    if len(source) > LARGEST:
        raise RefusedError(f"{path}: a source of {len(source)} characters; the limit is {LARGEST}")
    yield Kernel("cpp", Path(path).name.removesuffix(".cpp").removesuffix(".main"), source)


CPP_MARKS = ('extern "C"  void  kernel(', 'extern "C" void kernel(', "cpp_fused")
"""Texts in a C++ kernel without its binding. The files with which Inductor tests vector instructions have none of
them."""

ASYNC_COMPILE_LINE = f"{ASYNC_COMPILE} = AsyncCompile()"
JITTED = "@triton.jit"
TRITON_MARKS = ("\n@triton_heuristics.", "\nfrom torch._inductor.runtime import triton_helpers, triton_heuristics\n")
"""Lines near the beginning of a wrapper (ASYNC_COMPILE_LINE), of a kernel written by hand (JITTED) and of a kernel of
Inductor (TRITON_MARKS). A truncated file has them too, so that it is not overlooked."""

READERS = (
    _KernelReader("a kernel that Backprint saved", ".py", (MARK,), _saved_kernels, mark_is_first=True),
    _KernelReader(
        "Inductor's output_code.py",
        ".py",
        (f"{ASYNC_COMPILE}.triton(", f"{ASYNC_COMPILE}.cpp", ASYNC_COMPILE_LINE),
        kernels_of_wrapper,
        True,
    ),
    _KernelReader("a module with Triton kernels", ".py", (JITTED, *TRITON_MARKS), _kernels_of_module),
    _KernelReader("a C++ file of Inductor", ".cpp", (BINDING, *CPP_MARKS), _kernels_of_cpp),
)
"""The kinds of files. The first reader that recognizes a file reads it."""
