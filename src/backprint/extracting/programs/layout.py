"""Writes groups of kernels in GraphNet's layout: a folder a sample, with the kernels of which it is the representative.

    SAMPLE/original_graph/model.py    the sample's graph, where it was found beside its kernels
    SAMPLE/triton_kernel/NAME.py      SAMPLE/cpp_kernel/NAME.cpp
    SAMPLE/ptx/NAME.ptx               where it was found beside them; of several configurations, the first

Names are those of the compiler, with eight letters of the hash if the sample has several programs of one name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container, Iterator
from pathlib import Path

from backprint.errors import PlaceError, RefusedError
from backprint.extracting.nouns import Kernel
from backprint.extracting.programs.dedup import KernelGroups
from backprint.extracting.programs.read import (
    CPP_FOLDER,
    GRAPH_FOLDER,
    PTX_FOLDER,
    TRITON_FOLDER,
    WRAPPER_LARGEST,
    read_text,
)
from backprint.extracting.saved_graphs import BUILT_FOLDER, GRAPH_FILE, graph_folder, read_saved_graph

FOLDERS = {"triton": (TRITON_FOLDER, ".py"), "cpp": (CPP_FOLDER, ".cpp")}
"""The folder and the suffix of each language."""

UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def write_layout(groups: KernelGroups, out: Path, by: str = "program") -> int:
    """Write the representative of each program, or of each structure, below a folder; return how many were written. A
    sample that is there stays."""
    chosen = {group.representative for group in groups.groups(by)} if by != "program" else None
    count = 0
    try:
        out.mkdir(parents=True, exist_ok=True)
        for (sample,) in groups.index.rows("select distinct sample from kernels order by sample"):
            place = out / safe_path(sample)
            if place.exists():
                continue
            unfinished = place.with_name(f"{place.name}.tmp")
            shutil.rmtree(unfinished, ignore_errors=True)
            if written := write_sample(groups, sample, unfinished, chosen):
                os.replace(unfinished, place)
                count += written
    except OSError as error:
        raise PlaceError(f"{out}: {error}") from error
    return count


def safe_path(sample: str) -> Path:
    """Return a sample's folder, below the output whatever a stranger named it."""
    parts = [UNSAFE.sub("_", part) for part in sample.split("/") if part.strip(".")]
    return Path("__".join(parts) or "sample")


def write_sample(groups: KernelGroups, sample: str, place: Path, chosen: Container[str] | None) -> int:
    """Write the representatives that one sample has, all or those that are chosen; return how many."""
    taken: set[tuple[str, str]] = set()
    count = 0
    for key, kernel in representatives(groups, sample):
        if chosen is not None and key not in chosen:
            continue
        folder, suffix = FOLDERS[kernel.language]
        name = UNSAFE.sub("_", kernel.name)[:180].lstrip(".") or "kernel"
        if (folder, name.lower()) in taken:
            name = f"{name}_{key[:8]}"
        taken.add((folder, name.lower()))
        (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / f"{name}{suffix}").write_text(kernel.source.strip("\n") + "\n", encoding="utf-8")
        copy_beside(kernel, place, name)
        count += 1
    return count


def representatives(groups: KernelGroups, sample: str) -> Iterator[tuple[str, Kernel]]:
    """Yield the programs that a sample was the first to have, with their hashes."""
    for (key,) in groups.index.rows(
        "select hash from kernels where sample = ? order by direction, name, hash", (sample,)
    ):
        kernel = groups.index.kernel(key)
        if kernel is not None:
            yield key, kernel


def copy_beside(kernel: Kernel, place: Path, name: str) -> None:
    """Copy the graph and the PTX that lie beside a kernel in GraphNet's layout or in ours."""
    copies = dict.fromkeys(built_ptx(kernel), place / PTX_FOLDER / f"{name}.ptx")
    found = Path(kernel.place)
    if found.parent.name == TRITON_FOLDER:
        sample = found.parent.parent
        copies[sample / GRAPH_FOLDER / "model.py"] = place / GRAPH_FOLDER / "model.py"
        copies[sample / PTX_FOLDER / f"{found.stem}.ptx"] = place / PTX_FOLDER / f"{name}.ptx"
    for source, target in copies.items():
        if source.is_symlink() or not source.is_file():
            continue  # a link may lead out of the folder
        if source.stat().st_size <= WRAPPER_LARGEST and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def built_ptx(kernel: Kernel) -> Iterator[Path]:
    """Yield the PTX of a kernel's first configuration, where `kernels --build` has written it."""
    folder = graph_folder(Path(kernel.place)) if kernel.place else None
    if folder is None or UNSAFE.search(kernel.name) or not (folder / BUILT_FOLDER / kernel.name).is_dir():
        return
    try:
        known = read_saved_graph(read_text(folder / GRAPH_FILE), str(folder / GRAPH_FILE)).kernels.get(kernel.name)
    except RefusedError:
        return  # it was whole when the kernel was read, and has changed since
    if known is not None and known.configurations:
        configuration = UNSAFE.sub("_", known.configurations[0].name)
        yield folder / BUILT_FOLDER / kernel.name / f"{configuration}.ptx"
