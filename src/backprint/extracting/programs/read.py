"""Finds kernels in folders: Backprint's, code of Inductor, its cache, GraphNet's layout, kernels in files of their own.

Files are parsed, never imported: a kernel is a text in a call that a wrapper makes, or a module that defines it. A file
that cannot be read is an UnreadKernels with the reason, and the others are read. `READERS` has a row a kind of file.
A use counts once: of the kernels in files of their own, those that a wrapper of the same sample has are left out.
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

from backprint.errors import RefusedError, UsageError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.normal import LARGEST, kernel_hash
from backprint.extracting.programs.normal_cpp import BINDING
from backprint.extracting.programs.normal_triton import find_kernels, parse_module
from backprint.extracting.programs.read_alone import MARK, saved_kernels
from backprint.extracting.saved_graphs import (
    ALONE_FOLDER,
    BUILT_FOLDER,
    GRAPH_FILE,
    TARGET,
    WRAPPER_FILE,
    SavedGraph,
    graph_folder,
    read_saved_graph,
    target_of_folder,
)
from backprint.strangers_file import read_bytes

WRAPPER_LARGEST = 64 << 20
"""The bytes of a file with many kernels; each of them has its own limit."""

TRITON_FOLDER = "triton_kernel"
GRAPH_FOLDER = "original_graph"
PTX_FOLDER = "ptx"
"""The folders of a sample in GraphNet's layout."""

CPP_FOLDER = "cpp_kernel"
"""Ours, beside them: C++ kernels."""

OWN_FOLDERS = re.compile(rf"{TRITON_FOLDER}|{CPP_FOLDER}|{GRAPH_FOLDER}|{PTX_FOLDER}|pair_\d+|forward|backward")
CACHED = re.compile(r"[a-z2-7]{2}")
"""Folders of Inductor's cache, where `ab` has files `cab….py`."""

COMPILED = {"triton": ("triton", 1), "cpp_pybinding": ("cpp", 1), "cpp": ("cpp", 0)}
"""The methods of Inductor's AsyncCompile that compile a text: its language, and which argument it is."""

CALLED = "async_compile"

DIRECTION = re.compile(r"# AOT ID: \['\d+_(forward|backward|inference)'\]")
"""The first line of a wrapper."""


@dataclass(frozen=True, slots=True)
class UnreadKernels:
    """A file or a folder of which no kernels were read, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class ExternCalls:
    """The operators that a graph calls beside its kernels, and how often."""

    sample: str
    direction: str
    target: str
    place: str
    operators: Mapping[str, int]


Found = Kernel | UnreadKernels | ExternCalls


@dataclass(frozen=True, slots=True)
class KernelSample:
    """A folder that is one sample, or a file, and its files that a reader may know."""

    name: str
    folder: str
    files: tuple[Path, ...]
    state: str
    """Of the names, sizes and times of the files: another one if a file was written again."""


@dataclass(frozen=True, slots=True)
class KernelReader:
    """One kind of file that has kernels."""

    title: str
    suffix: str
    marks: tuple[str, ...]
    """Texts of which each such file has one; the others are not parsed."""
    kernels_in: Callable[[str, str], Iterator[Found]]
    """Yields the kernels of a file's text; the second argument is the file's place."""
    calls_kernels: bool = False
    """Whether the file calls the kernels too, which may lie in files of their own beside it."""
    begins: bool = False
    """Whether a file begins with the mark."""

    def knows(self, text: str) -> bool:
        """Whether a text is one of this kind."""
        return text.startswith(self.marks) if self.begins else any(mark in text for mark in self.marks)


def read_kernels(path: Path) -> Iterator[Found]:
    """Yield the kernels in a file or a folder, a sample after the other, and what was not read.

    A folder without kernels is an UnreadKernels.
    """
    count = 0
    for sample in samples_below(path):
        for found in kernels_of_sample(sample):
            count += 1
            yield found
    if not count:
        yield nothing_in(path)


def nothing_in(path: Path) -> UnreadKernels:
    """Return the note of a folder without kernels."""
    known = ", ".join(reader.title for reader in READERS)
    return UnreadKernels(str(path), f"there are no kernels here; known are {known}")


# ------------------------------------------------------------------ samples


def samples_below(path: Path) -> Iterator[KernelSample]:
    """Yield the samples in a folder, each with its files: those that a reader may know, and folders that cannot be
    listed. Links to folders are not followed. A file is a sample of its own."""
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    if not path.is_dir():
        if path.name == WRAPPER_FILE and graph_folder(path) == path.parent:
            files = {file: stat_or_none(file) for file in (path.with_name(GRAPH_FILE), path) if file.exists()}
            yield sample_of_files(name_of_root(path.parent), path.parent, files)
        else:
            yield sample_of_files(path.stem, path, {path: stat_or_none(path)})
        return
    samples = [("", path)]
    while samples:
        name, top = samples.pop()
        files, others = files_of_sample(top)
        if files:
            yield sample_of_files(name or name_of_root(path), top, files)
        samples += [(f"{name}/{folder.name}" if name else folder.name, folder) for folder in reversed(others)]


def files_of_sample(top: Path) -> tuple[dict[Path, os.stat_result | None], list[Path]]:
    """Return the files of a sample, with what is known of each, and the folders in it that are samples themselves."""
    suffixes = tuple({reader.suffix for reader in READERS})
    files: dict[Path, os.stat_result | None] = {}
    others = []
    own = [top]
    while own:
        folder = own.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            files[folder] = None
            continue
        for entry in entries:
            place = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                own.append(place) if is_own(place) else others.append(place)
            elif entry.name.endswith(suffixes) or entry.name == GRAPH_FILE:
                files[place] = stat_or_none(place)
    return files, others


def stat_or_none(place: Path) -> os.stat_result | None:
    """Return what is known of a file; None of a link to nothing."""
    try:
        return os.stat(place)
    except OSError:
        return None


def sample_of_files(name: str, top: Path, files: Mapping[Path, os.stat_result | None]) -> KernelSample:
    """Return a sample with a digest of what is known of its files."""
    digest = hashlib.sha256()
    for file, known in files.items():
        written = (known.st_size, known.st_mtime_ns) if known else ()
        digest.update(f"{file.relative_to(top)}\0{written}\n".encode("utf-8", "surrogateescape"))
    return KernelSample(name, str(top.resolve()), tuple(files), digest.hexdigest())


def name_of_root(path: Path) -> str:
    """Return the name of the sample that a folder is, or is a part of."""
    folder = path.resolve()
    while is_named_part(folder) and folder.parent != folder:
        folder = folder.parent
    return folder.name


def is_own(folder: Path) -> bool:
    """Whether a folder is a part of the sample above it."""
    if is_named_part(folder):
        return True
    return CACHED.fullmatch(folder.name) is not None and next(folder.glob(f"c{folder.name}*"), None) is not None


def is_named_part(folder: Path) -> bool:
    """Whether a folder is a part of a sample by its name, and by what is in it or beside it."""
    if OWN_FOLDERS.fullmatch(folder.name):
        return True
    if folder.name in (ALONE_FOLDER, BUILT_FOLDER):
        return (folder.parent / GRAPH_FILE).exists()
    return TARGET.fullmatch(folder.name) is not None and next(folder.glob("pair_*"), None) is not None


# ------------------------------------------------------------------ the kernels of a sample


def kernels_of_sample(sample: KernelSample) -> Iterator[Found]:
    """Yield the kernels of a sample, the extern calls of its graphs, and what was not read.

    Wrappers are read before files that have kernels and call none, which are left out if they are a wrapper's.
    """
    graphs: dict[Path, SavedGraph] = {}
    refused: set[Path] = set()
    for file in sample.files:
        if file.name == GRAPH_FILE and (folder := graph_folder(file)) == file.parent:
            graph = graph_or_reason(file)
            if isinstance(graph, UnreadKernels):
                refused.add(folder)
                yield graph
            else:
                graphs[folder] = graph
                yield ExternCalls(sample.name, graph.direction, graph.target, str(file), graph.externs)
    readers: dict[Path, KernelReader] = {}
    for file in sample.files:
        reader = None if file.name == GRAPH_FILE or graph_folder(file) in refused else reader_or_reason(file)
        if isinstance(reader, UnreadKernels):
            yield reader
        elif reader is not None:
            readers[file] = reader
    yield from kernels_once(sample, readers, graphs)


def kernels_once(
    sample: KernelSample, readers: Mapping[Path, KernelReader], graphs: Mapping[Path, SavedGraph]
) -> Iterator[Found]:
    """Yield the kernels of files: those of wrappers, and of the other files those that no wrapper has."""
    alone = [file for file, reader in readers.items() if not reader.calls_kernels]
    programs: set[str] = set()
    for file, reader in readers.items():
        if reader.calls_kernels:
            for found in kernels_of_file(file, sample.name, reader, graphs):
                yield found
                if alone and isinstance(found, Kernel):
                    programs.add(hash_or_nothing(found))
    for file in alone:
        for found in kernels_of_file(file, sample.name, readers[file], graphs):
            if not (programs and isinstance(found, Kernel) and hash_or_nothing(found) in programs):
                yield found


def hash_or_nothing(kernel: Kernel) -> str:
    """Return a kernel's hash; its name and place if it has none."""
    try:
        return kernel_hash(kernel)
    except RefusedError:
        return f"{kernel.place}: {kernel.name}"


def graph_or_reason(file: Path) -> SavedGraph | UnreadKernels:
    """Return what a `graph.json` says, or why it was not read."""
    try:
        graph = read_saved_graph(read_text(file), str(file))
        if not (file.parent / WRAPPER_FILE).exists():
            raise RefusedError(f"there is no {WRAPPER_FILE} beside it, which has the kernels")
    except UNREADABLE as error:
        return unread(file, error)
    return graph


def reader_or_reason(file: Path) -> KernelReader | UnreadKernels | None:
    """Return the reader of a file; None of a file without kernels."""
    try:
        text = read_text(file)
    except UNREADABLE as error:
        return unread(file, error)
    fitting = (reader for reader in READERS if file.name.endswith(reader.suffix))
    return next((reader for reader in fitting if reader.knows(text)), None)


def kernels_of_file(
    file: Path, sample: str, reader: KernelReader, graphs: Mapping[Path, SavedGraph] = MappingProxyType({})
) -> Iterator[Found]:
    """Yield the kernels of one file, with sample, direction and place, and with what `graph.json` says of them."""
    place = str(file)
    folder = graph_folder(file)
    try:
        text = read_text(file)
        for found in reader.kernels_in(text, place):
            if not isinstance(found, Kernel):
                yield found
                continue
            if folder is not None:
                known = graphs[folder].kernels.get(found.name) if folder in graphs else None
                found = with_facts(found, known) if known else replace(found, target=target_of_folder(folder))
            direction = found.direction or direction_of(text, file)
            yield replace(found, sample=sample, direction=direction, place=place)
    except UNREADABLE as error:
        yield unread(file, error)


def with_facts(kernel: Kernel, known: Kernel) -> Kernel:
    """Return a kernel with what is known of its target, its operators and its calls."""
    return replace(known, language=kernel.language, name=kernel.name, source=kernel.source, declared=kernel.declared)


UNREADABLE = (RefusedError, OSError, RecursionError, MemoryError)


def unread(file: Path, error: BaseException) -> UnreadKernels:
    """Return the note of a file that an error kept from being read."""
    reason = str(error) or type(error).__name__
    return UnreadKernels(str(file), reason.removeprefix(f"{file}: "))


def read_text(file: Path) -> str:
    """Return a file's text; what is no file, too large or no text raises RefusedError."""
    content = read_bytes(file, WRAPPER_LARGEST, links=True, error=RefusedError)
    if b"\0" in content:
        raise RefusedError(f"{file}: not text: it has a zero byte")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{file}: not UTF-8 text (byte {error.start})") from error


def direction_of(text: str, file: Path) -> str:
    """Return the direction that a wrapper's first line or a folder's name says, or ''."""
    if said := DIRECTION.match(text.lstrip()[:80]):
        return said[1]
    return next((part for part in reversed(file.parent.parts) if part in ("forward", "backward")), "")


# ------------------------------------------------------------------ kinds of files


def kernels_of_wrapper(text: str, place: str) -> Iterator[Found]:
    """Yield the kernels that Inductor's wrapper has compiled: the texts in its calls of AsyncCompile.

    A wrapper that is cut off between two kernels is Python all the same, and named.
    """
    for node in ast.walk(parse_module(text, place)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if method := method_of(call):
                yield compiled_kernel(name, method, call, place)
    if BEGUN in text and "def call(" not in text:
        yield UnreadKernels(place, "the file is not whole: it has no function that calls the kernels")


def method_of(call: ast.Call) -> str:
    """Return the method of AsyncCompile that a call calls to compile a text; '' of another call."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr=method) if name == CALLED and method in COMPILED:
            return method
        case _:
            return ""


def compiled_kernel(name: str, method: str, call: ast.Call, place: str) -> Found:
    """Return the kernel that a call compiles."""
    language, position = COMPILED[method]
    match call.args[: position + 1]:
        case [*before, ast.Constant(value=str(source))] if len(before) == position:
            if len(source) > LARGEST:
                return UnreadKernels(place, f"{name}: a source of {len(source)} characters; the limit is {LARGEST}")
        case _:
            return UnreadKernels(place, f"line {call.lineno}: {name}: its source is not a text in the call")
    match before:
        case [ast.Constant(value=str(title))]:
            return Kernel(language, title, source)
        case [ast.List() as types]:
            return Kernel(language, name, source, declared=ast.unparse(types))
        case _:
            return Kernel(language, name, source)


def kernels_of_module(text: str, place: str) -> Iterator[Found]:
    """Yield the kernels that a module defines: of Inductor's cache, of GraphNet, written by hand."""
    if len(text) > LARGEST:
        raise RefusedError(f"{place}: a source of {len(text)} characters; the limit is {LARGEST}")
    functions = [node for node in parse_module(text, place).body if isinstance(node, ast.FunctionDef)]
    found = find_kernels(functions)
    if not found and JITTED not in text:
        yield UnreadKernels(place, "there is no kernel in this module, which begins as Inductor's do")
    for kernel in found:
        yield Kernel("triton", kernel.name, text)


def kernels_of_cpp(text: str, place: str) -> Iterator[Found]:
    """Yield the kernel of a C++ file: the part before Inductor's binding."""
    source = text.partition(BINDING)[0]
    if len(source) > LARGEST:
        raise RefusedError(f"{place}: a source of {len(source)} characters; the limit is {LARGEST}")
    yield Kernel("cpp", Path(place).name.removesuffix(".cpp").removesuffix(".main"), source)


BARE = ('extern "C"  void  kernel(', 'extern "C" void kernel(', "cpp_fused")
"""Texts that a C++ kernel has without its binding. Inductor's probes for vector instructions have none of them."""

BEGUN = f"{CALLED} = AsyncCompile()"
JITTED = "@triton.jit"
MARKS = ("\n@triton_heuristics.", "\nfrom torch._inductor.runtime import triton_helpers, triton_heuristics\n")
"""Lines with which a wrapper, a kernel by hand and Inductor's kernels begin; the rest of a file may be missing."""

READERS = (
    KernelReader("a kernel that Backprint saved", ".py", (MARK,), saved_kernels, begins=True),
    KernelReader(
        "Inductor's output_code.py", ".py", (f"{CALLED}.triton(", f"{CALLED}.cpp", BEGUN), kernels_of_wrapper, True
    ),
    KernelReader("a module with Triton kernels", ".py", (JITTED, *MARKS), kernels_of_module),
    KernelReader("a C++ file of Inductor", ".cpp", (BINDING, *BARE), kernels_of_cpp),
)
"""The kinds of files, the first that fits reads a file."""
