"""Kernels in folders, read as text: Backprint's own, Inductor's code and cache, GraphNet's layout, kernels in single
files.

    SAMPLE/TARGET/pair_0/forward/wrapper.py         Inductor's wrapper, with the sources of its kernels
    SAMPLE/TARGET/pair_0/forward/graph.json         target, ports, extern calls; operators and calls of each kernel
    SAMPLE/TARGET/pair_0/forward/kernels/NAME.py    the same kernels, each as a file that runs alone
    SAMPLE/TARGET/pair_0/forward/built/NAME/        its compiled forms

Files are parsed, never imported, and everything is checked before it is used: a file may be untrusted, truncated, or of
another version. A file that cannot be read is an UnreadKernels with the reason, and the others are read.
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
from backprint.kernels.normal import LARGEST, kernel_hash
from backprint.kernels.normal_cpp import BINDING
from backprint.kernels.normal_triton import find_kernels, parse_module
from backprint.kernels.nouns import FusedOperator, Kernel, KernelArgument, KernelCall, KernelConfiguration

# ------------------------------------------------------------------ graph.json, beside each wrapper that Backprint
# saves


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
"""Of a dimension or a stride."""

NOT_FINITE = ("inf", "-inf", "nan")
"""Numbers that JSON does not have, as they are written."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """The contents of a `graph.json`."""

    target: str
    direction: str
    kernels: Mapping[str, Kernel]
    """By name: a Kernel without its source."""
    externs: Mapping[str, int]
    """Operators that are called beside the kernels -> how often."""


def graph_folder(file: Path) -> Path | None:
    """Return the folder of the graph that a file of Backprint's layout belongs to; None of another file."""
    for folder in (file.parent, file.parent.parent):
        names = folder.absolute().parts[-3:]
        if len(names) == 3 and folder.name in DIRECTIONS and PAIR.fullmatch(names[1]) and TARGET.fullmatch(names[0]):
            return folder
    return None


def target_of_folder(folder: Path) -> str:
    """Return the target of a graph's folder: `cuda:90` of `cuda_90`."""
    return folder.absolute().parts[-3].replace("_", ":", 1)


def read_saved_graph(text: str, place: str) -> SavedGraph:
    """Return the contents of a `graph.json`; raise RefusedError for a text that is none."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise RefusedError(f"{place}: not JSON: {error}") from error
    content = checked_type(content, dict, place)
    version = content.get("format")
    if version != FORMAT:
        raise RefusedError(
            f"{place}: a folder of format {str(version)[:40]}; this version reads {FORMAT}: "
            "read it with the Backprint that wrote it, or extract the kernels again"
        )
    target, direction = (field(content, name, str, place) for name in ("target", "direction"))
    blank = Kernel("", "", "", target, direction=direction)
    kernels = {}
    for row in field(content, "kernels", list, place):
        kernel = saved_kernel(checked_type(row, dict, f"{place}: kernels"), blank, place)
        kernels[kernel.name] = kernel
    externs = field(content, "externs", dict, place)
    counts = {name: checked_type(count, int, f"{place}: externs: {name[:80]}") for name, count in externs.items()}
    return SavedGraph(target, direction, kernels, counts)


def saved_kernel(known: dict[str, Any], blank: Kernel, place: str) -> Kernel:
    """Return a kernel without its source."""
    name = field(known, "name", str, place)
    within = f"{place}: kernel {name[:80]}"
    operators = tuple(
        FusedOperator(*(field(row, part, str, within) for part in ("operator", "step", "line")))
        for row in dictionaries(known, "operators", within)
    )
    configurations = tuple(saved_configuration(row, within) for row in dictionaries(known, "configurations", within))
    calls = tuple(saved_call(row, within) for row in dictionaries(known, "calls", within))
    threads = known.get("threads")
    return replace(
        blank,
        language=field(known, "language", str, within),
        name=name,
        operators=operators,
        calls=calls,
        configurations=configurations,
        compiler=field(known, "compiler", str, within),
        isa=field(known, "isa", str, within),
        threads=threads if is_whole(threads) else None,
    )


def saved_configuration(known: dict[str, Any], place: str) -> KernelConfiguration:
    """Return a configuration; its sizes are pairs of a name and a number, or a mapping."""
    sizes = known.get("sizes")
    pairs = sizes.items() if isinstance(sizes, dict) else map(pair_of, checked_type(sizes, list, f"{place}: sizes"))
    checked = tuple((str(name), checked_type(size, int, f"{place}: sizes")) for name, size in pairs)
    return KernelConfiguration(checked, field(known, "num_warps", int, place), field(known, "num_stages", int, place))


def pair_of(value: Any) -> tuple[Any, Any]:
    match value:
        case [name, number]:
            return name, number
        case _:
            return "", None


def saved_call(known: dict[str, Any], place: str) -> KernelCall:
    """Return a call: its arguments, and its grid for each configuration."""
    arguments = tuple(saved_argument(row, place) for row in dictionaries(known, "arguments", place))
    grids = tuple(grid_of_three(row, place) for row in list_or_none(known, "grids", place))
    return KernelCall(arguments, grids)


def grid_of_three(value: Any, place: str) -> tuple[int, int, int]:
    match value:
        case [x, y, z] if is_whole(x) and is_whole(y) and is_whole(z):
            return x, y, z
        case _:
            raise RefusedError(f"{place}: a grid is three numbers, found {str(value)[:40]}")


def saved_argument(known: dict[str, Any], place: str) -> KernelArgument:
    """Return an argument: a tensor's dtype, shape and stride, or a number."""
    shape, stride = (tuple(list_or_none(known, name, place)) for name in ("shape", "stride"))
    if not all(is_whole(size) and 0 <= size <= LARGEST_SIZE for size in (*shape, *stride)) or len(shape) != len(stride):
        raise RefusedError(f"{place}: a tensor of shape {str(shape)[:40]} and stride {str(stride)[:40]}")
    value = known.get("value")
    value = float(value) if value in NOT_FINITE else value
    if not isinstance(value, int | float | None):
        raise RefusedError(f"{place}: an argument's value is a number, found {type(value).__name__}")
    return KernelArgument(field(known, "dtype", str, place), shape, stride, value)


# -------------------------------------------------------------- checks of JSON values


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_type(value: Any, kind: type[T], place: str) -> T:
    """Return a value of JSON; raise RefusedError unless it has the type."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RefusedError(f"{place}: expected a {kind.__name__}, found {type(value).__name__}")
    return value


def field(known: Mapping[str, Any], name: str, kind: type[T], place: str) -> T:
    """Return a required value of an object; raise RefusedError if it is missing or of another type."""
    if name not in known:
        raise RefusedError(f"{place}: it has no {name!r}")
    return checked_type(known[name], kind, f"{place}: {name}")


def list_or_none(known: Mapping[str, Any], name: str, place: str) -> list[Any]:
    """Return a list that an object may leave out."""
    value = known.get(name)
    return [] if value is None else checked_type(value, list, f"{place}: {name}")


def dictionaries(known: Mapping[str, Any], name: str, place: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list that an object must have."""
    for row in field(known, name, list, place):
        yield checked_type(row, dict, f"{place}: {name}")


# ------------------------------------------------------------------ files with one kernel, written by `alone`
#
# The program of such a file, and so its hash, is that of the kernel in the wrapper. Beside the wrapper that it came
# from (in its folder, or in the one above) the file is a copy and yields nothing, as long as its program is the one
# that was saved. An edited file is a kernel.

MARK = "# A kernel that Backprint saved"
"""The first line of each file. Python looks for an encoding in the first two lines, so nothing of others is there."""

WRAPPERS = ("wrapper.py", "output_code.py")
"""The names of files with the wrapper of a graph."""

RECORDED = ("NAME", "HASH", "WRITTEN_AS", "SOURCE")
"""The names of a file whose values are read."""

FACTS = ("target", "declared", "compiler", "isa", "sample", "direction")
"""The facts of a kernel in WRITTEN_AS that are texts."""


def saved_kernels(text: str, place: str) -> Iterator[Kernel]:
    """Yield the kernel of a file that `alone` wrote, unless the wrapper beside it has the same."""
    if len(text) > 2 * LARGEST:
        raise RefusedError(f"{place}: a source of {len(text)} characters; the limit is {2 * LARGEST}")
    tree = parse_module(text, place)
    recorded = recorded_values(tree, place)
    name, facts = recorded.get("NAME"), recorded.get("WRITTEN_AS", {})
    if not isinstance(name, str) or not facts or not is_record(facts):
        raise RefusedError(f"{place}: it begins as a kernel that Backprint saved, and has no NAME or WRITTEN_AS")
    if "SOURCE" in recorded:
        language, source = "cpp", recorded["SOURCE"]
    else:
        language, source = "triton", module_source(tree, text, facts, place)
    if not isinstance(source, str):
        raise RefusedError(f"{place}: its SOURCE is no text")
    fact = {name: str(facts.get(name) or "") for name in FACTS}
    threads = facts.get("threads") if isinstance(facts.get("threads"), int) else None
    kernel = Kernel(
        language,
        name,
        source,
        fact["target"],
        fact["declared"],
        compiler=fact["compiler"],
        threads=threads,
        isa=fact["isa"],
        sample=fact["sample"],
        direction=fact["direction"],
    )
    if not (has_wrapper(Path(place)) and recorded.get("HASH") == kernel.hash):
        yield kernel


def is_record(facts: object) -> bool:
    """Whether a value is a mapping with texts, whole numbers and lists of texts."""
    return isinstance(facts, Mapping) and all(
        all(isinstance(item, str) for item in value) if isinstance(value, list) else isinstance(value, str | int | None)
        for value in facts.values()
    )


def recorded_values(tree: ast.Module, place: str) -> dict[str, Any]:
    """Return the values of a file's own names; one that is no literal raises RefusedError."""
    values = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in RECORDED:
                try:
                    values[name] = ast.literal_eval(value)
                except (ValueError, TypeError, SyntaxError, RecursionError) as error:
                    raise RefusedError(f"{place}: line {node.lineno}: {name} is no plain data ({error})") from error
    return values


def module_source(tree: ast.Module, text: str, facts: Mapping[str, Any], place: str) -> str:
    """Return the module that the compiler wrote: its imports, and its functions with its decorator."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    statements, imports = facts.get("statements"), facts.get("imports")
    if not isinstance(statements, list) or not isinstance(imports, list) or not set(functions) & set(statements):
        raise RefusedError(f"{place}: it does not say which of its functions are the kernel's")
    parts = list(imports)
    for statement in statements:
        function = functions.get(statement)
        if function is None:
            parts.append(statement)
            continue
        first = min([function.lineno, *(mark.lineno for mark in function.decorator_list)])
        decorator = facts.get("decorator") if statement == statements[-1] else ""
        parts += [decorator] if decorator else []
        parts.append("\n".join(lines[first - 1 : function.end_lineno]))
    return "\n".join(parts) + "\n"


def has_wrapper(place: Path) -> bool:
    """Whether a wrapper is in the folder of a file, or in the one above."""
    return any((folder / name).is_file() for folder in (place.parent, place.parent.parent) for name in WRAPPERS)


# ------------------------------------------------------------------ kernels in files and folders
#
# A kernel is a text in a call that a wrapper makes, or a module that defines it. `READERS` has a row for each kind of
# file. A use counts once: a kernel in a file of its own is left out if a wrapper of the same sample has it.

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
        yield no_kernels_in(path)


def no_kernels_in(path: Path) -> UnreadKernels:
    """Return the note of a folder without kernels."""
    known = ", ".join(reader.title for reader in READERS)
    return UnreadKernels(str(path), f"there are no kernels here; known are {known}")


# -------------------------------------------------------------- samples


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
    """Return the files of a sample with the stat of each, and the folders in it that are samples themselves."""
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
    """Return the stat of a file; None for a broken link."""
    try:
        return os.stat(place)
    except OSError:
        return None


def sample_of_files(name: str, top: Path, files: Mapping[Path, os.stat_result | None]) -> KernelSample:
    """Return a sample with a digest of the names, sizes and times of its files."""
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


# -------------------------------------------------------------- the kernels of a sample


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
    """Return the contents of a `graph.json`, or the reason why it was not read."""
    try:
        graph = read_saved_graph(read_text(file), str(file))
        if not (file.parent / WRAPPER_FILE).exists():
            raise RefusedError(f"there is no {WRAPPER_FILE} beside it, which has the kernels")
    except UNREADABLE as error:
        return unread_file(file, error)
    return graph


def reader_or_reason(file: Path) -> KernelReader | UnreadKernels | None:
    """Return the reader of a file; None of a file without kernels."""
    try:
        text = read_text(file)
    except UNREADABLE as error:
        return unread_file(file, error)
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
        yield unread_file(file, error)


def with_facts(kernel: Kernel, known: Kernel) -> Kernel:
    """Return a kernel with what is known of its target, its operators and its calls."""
    return replace(known, language=kernel.language, name=kernel.name, source=kernel.source, declared=kernel.declared)


UNREADABLE = (RefusedError, OSError, RecursionError, MemoryError)


def unread_file(file: Path, error: BaseException) -> UnreadKernels:
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
    if match := DIRECTION.match(text.lstrip()[:80]):
        return match[1]
    return next((part for part in reversed(file.parent.parts) if part in ("forward", "backward")), "")


# -------------------------------------------------------------- kinds of files


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
    kernels = find_kernels(functions)
    if not kernels and JITTED not in text:
        yield UnreadKernels(place, "there is no kernel in this module, which begins as Inductor's do")
    for kernel in kernels:
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
