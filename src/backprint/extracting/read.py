"""Finds kernels in folders of others: code of Inductor, its cache, GraphNet's layout, kernels in files of their own.

Files are parsed, never imported: a kernel is a text in a call that a wrapper makes, or a module that defines it. A file
that cannot be read is an UnreadKernels with the reason, and the others are read. `READERS` has a row a kind of file.
"""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from backprint.errors import RefusedError, UsageError
from backprint.extracting.normal import LARGEST
from backprint.extracting.normal_cpp import BINDING
from backprint.extracting.normal_triton import find_kernels, parse_module
from backprint.extracting.nouns import Kernel
from backprint.extracting.read_alone import MARK, saved_kernels

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


Found = Kernel | UnreadKernels


@dataclass(frozen=True, slots=True)
class KernelReader:
    """One kind of file that has kernels."""

    title: str
    suffix: str
    marks: tuple[str, ...]
    """Texts of which each such file has one; the others are not parsed."""
    kernels_in: Callable[[str, str], Iterator[Found]]
    """Yields the kernels of a file's text; the second argument is the file's place."""
    begins: bool = False
    """Whether a file begins with the mark."""

    def knows(self, text: str) -> bool:
        """Whether a text is one of this kind."""
        return text.startswith(self.marks) if self.begins else any(mark in text for mark in self.marks)


def read_kernels(path: Path, is_done: Callable[[str], bool] = lambda sample: False) -> Iterator[Found]:
    """Yield the kernels in a file or a folder, a sample after the other, and what was not read.

    Samples for which `is_done` holds are left out. A folder without kernels is an UnreadKernels.
    """
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    count = 0
    last: str | None = None
    skips = False
    for sample, file in files_below(path):
        if sample != last:
            last, skips = sample, is_done(sample)
        if skips:
            count += 1
            continue
        for found in kernels_of_file(file, sample):
            count += 1
            yield found
    if not count:
        known = ", ".join(reader.title for reader in READERS)
        yield UnreadKernels(str(path), f"there are no kernels here; known are {known}")


def files_below(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield sample and place of each file that a reader may know: all of a sample, then the next.

    Links to folders are not followed; a folder that cannot be listed is yielded as a file is.
    """
    if not path.is_dir():
        yield path.stem, path
        return
    suffixes = tuple({reader.suffix for reader in READERS})
    samples = [("", path)]
    while samples:
        name, top = samples.pop()
        own, others = [top], []
        while own:
            folder = own.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                yield name or path.resolve().name, folder
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    place = folder / entry.name
                    below = f"{name}/{entry.name}" if name else entry.name
                    own.append(place) if is_own(place) else others.append((below, place))
                elif entry.name.endswith(suffixes):
                    yield name or path.resolve().name, folder / entry.name
        samples += reversed(others)


def is_own(folder: Path) -> bool:
    """Whether a folder is a part of the sample above it."""
    if OWN_FOLDERS.fullmatch(folder.name):
        return True
    return CACHED.fullmatch(folder.name) is not None and next(folder.glob(f"c{folder.name}*"), None) is not None


def kernels_of_file(file: Path, sample: str) -> Iterator[Found]:
    """Yield the kernels of one file, with sample, direction and place."""
    place = str(file)
    try:
        text = read_text(file)
        readers = [reader for reader in READERS if place.endswith(reader.suffix)]
        for reader in readers:
            if reader.knows(text):
                for found in reader.kernels_in(text, place):
                    if isinstance(found, Kernel):
                        direction = found.direction or direction_of(text, file)
                        found = replace(found, sample=sample, direction=direction, place=place)
                    yield found
                return
    except (RefusedError, OSError, RecursionError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        yield UnreadKernels(place, reason.removeprefix(f"{place}: "))


def read_text(file: Path) -> str:
    """Return a file's text; what is no file, too large or no text raises RefusedError."""
    # Opened so, a pipe does not wait for a writer.
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as source:
        known = os.fstat(handle)
        if not stat.S_ISREG(known.st_mode):
            raise RefusedError(f"{file}: is no regular file")
        if known.st_size > WRAPPER_LARGEST:
            raise RefusedError(f"{file}: {known.st_size} bytes; the limit is {WRAPPER_LARGEST}")
        content = source.read(WRAPPER_LARGEST + 1)
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
    """Yield the kernels that Inductor's wrapper has compiled: the texts in its calls of AsyncCompile."""
    for node in ast.walk(parse_module(text, place)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if method := method_of(call):
                yield compiled_kernel(name, method, call, place)


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
    for found in find_kernels(functions):
        yield Kernel("triton", found.name, text)


def kernels_of_cpp(text: str, place: str) -> Iterator[Found]:
    """Yield the kernel of a C++ file: the part before Inductor's binding."""
    source = text.partition(BINDING)[0]
    if len(source) > LARGEST:
        raise RefusedError(f"{place}: a source of {len(source)} characters; the limit is {LARGEST}")
    yield Kernel("cpp", Path(place).name.removesuffix(".cpp").removesuffix(".main"), source)


BARE = ('extern "C"  void  kernel(', 'extern "C" void kernel(', "cpp_fused")
"""Texts that a C++ kernel has without its binding. Inductor's probes for vector instructions have none of them."""

READERS = (
    KernelReader("Inductor's output_code.py", ".py", (f"{CALLED}.triton(", f"{CALLED}.cpp"), kernels_of_wrapper),
    KernelReader("a kernel that Backprint saved", ".py", (MARK,), saved_kernels, begins=True),
    KernelReader("a module with Triton kernels", ".py", ("@triton.jit",), kernels_of_module),
    KernelReader("a C++ file of Inductor", ".cpp", (BINDING, *BARE), kernels_of_cpp),
)
"""The kinds of files, the first that fits reads a file."""
