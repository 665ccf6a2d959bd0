"""Folders of kernels as a stranger may send them: `look` reads one into an index, and asks everything of that.

Kept folders are what Inductor and Backprint wrote of small functions, for a CPU and a GPU, in each layout that is read.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kernels.inductor_sources import TEMPLATE, unpack
from kernels.saved_layout import save_layout
from seeds import Files
from whole import Broken, printed

from backprint.cli import kernels_dedup, kernels_find, kernels_report
from backprint.errors import BackprintError
from backprint.tools.kernels.groups import KernelGroups, write_layout
from backprint.tools.kernels.index import KernelIndex, find_uses, index_runs

KEPT = ("drop", "emb", "rms")
"""The functions whose kernels are mutated: the shorter ones."""


def corpus() -> dict[str, Files]:
    """Kept folders: wrappers, Backprint's own layout, GraphNet's, modules by hand, C++ files."""
    found: dict[str, Files] = {"by_hand": {"k.py": TEMPLATE, "z/other.py": TEMPLATE.replace("512", "1024")}}
    with tempfile.TemporaryDirectory() as folder:
        for layout, write in (("wrappers", unpack), ("saved", lambda place: save_layout(place, ("90",)))):
            place = Path(folder) / layout
            place.mkdir()
            write(place)
            for sample in sorted(place.iterdir()):
                if any(name in sample.name for name in KEPT):
                    found[f"{layout}_{sample.name}"] = texts_below(sample)
        with KernelIndex.writing(Path(folder) / "kernels.sqlite") as index:
            index.add_folder(Path(folder) / "wrappers")
            write_layout(KernelGroups(index), Path(folder) / "layout", "program")
        for sample in sorted((Path(folder) / "layout").iterdir())[:6]:
            found[f"layout_{sample.name}"] = texts_below(sample)
    return found


def texts_below(folder: Path) -> Files:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def look(source: Path, number: int = 0) -> str:
    """How far the folder is read: `loaded` if there are kernels, else `grammar`."""
    try:
        return "loaded" if indexed(source, number) else "grammar"
    except BackprintError:
        return "fields"


def indexed(source: Path, number: int) -> int:
    """Have the folder in an index, and ask everything of that; return how many kernels there are."""
    path = source.parent / "kernels.sqlite"
    for each in (path, *path.parent.glob("kernels.sqlite-*")):
        each.unlink(missing_ok=True)
    with KernelIndex.writing(path) as index:
        index.connection.execute("pragma synchronous = off")
        index.add_folder(source)
        before = index.number("select count(*) from uses")
        groups = KernelGroups(index, ("program", "structure")[number % 2])
        for group in groups:
            groups.representative(group)
            list(groups.members(group))
        groups.totals()
        str(list(index.unread())).encode("utf-8", "surrogatepass")
        if index.add_folder(source) or index.number("select count(*) from uses") != before:
            raise Broken("a folder that was read twice is in the index twice")
    if number % 4 == 0:
        with KernelIndex.reading(path) as index:
            list(index_runs(index))
            json.dumps([str(each) for each in find_uses(index, since=0)])
    if number % 16 == 0:
        printed(kernels_dedup.command, source, "--index", path, exits=True)
        printed(kernels_find.command, path)
        printed(kernels_report.command, source, exits=True)
    return before
