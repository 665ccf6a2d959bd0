"""Where the samples of a run are, from the folder of a report: their code, and their page if there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from backprint.corpus.find import unescape
from backprint.formats import GRAPHNET
from backprint.report.nouns import SampleLink, encodable
from backprint.report.rows import RunView

CODE = {word: f"pair_0/{word}/model.py" for word in ("forward", "backward")}
"""What a Backprint sample's links are called, and the file of each."""


@dataclass(frozen=True)
class SampleFolders:
    """The folders of a run's samples, and links to their files that are relative to `base`."""

    out: Path
    source: Path
    base: Path
    paths: dict[str, str]
    known: dict[str, tuple[SampleLink, ...]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, run: RunView, base: Path) -> SampleFolders:
        """Return the folders of a run, for a report that is in the folder `base`."""
        out = run.place if run.place.is_dir() else run.place.parent
        paths = dict(run.select(("id", "path")))
        return cls(out, Path(run.facts.get("source") or out), Path(os.path.abspath(base)), paths)

    def places(self, id: str) -> Iterator[Path]:
        """Yield where a sample may be. A ledger may be a stranger's: nothing outside the two folders is looked at."""
        for root, name in ((self.out, id), (self.source, self.paths.get(id, ""))):
            below = Path(unescape(name)) if name else None
            if below is not None and not below.is_absolute() and ".." not in below.parts:
                yield root / below

    def links(self, id: str) -> tuple[SampleLink, ...]:
        """Return the links of a sample: its forward and its backward, or GraphNet's code; then its page."""
        if id not in self.known:
            self.known[id] = tuple(self.found(id))
        return self.known[id]

    def columns(self, id: str) -> dict[str, str]:
        """Return the columns of a file: the paths of the first code and of the page, '' where there is none."""
        known = {each.word: encodable(each.path) for each in self.links(id)}
        return {"code": known.get("forward") or known.get("code", ""), "page": known.get("page", "")}

    def found(self, id: str) -> Iterator[SampleLink]:
        """Look for the files of a sample."""
        for place in self.places(id):
            files = {word: place / name for word, name in CODE.items()}
            files = {word: file for word, file in files.items() if os.path.isfile(file)}
            main = place / GRAPHNET.main
            if files or os.path.isfile(main):
                own = (place / "page.html", place.with_name(f"{place.name}.html"))
                pages = [("page", page) for page in own if os.path.isfile(page)]
                both = (*(files or {"code": main}).items(), *pages[:1])
                yield from (SampleLink(word, self.relative(file)) for word, file in both)
                return

    def relative(self, file: Path) -> str:
        """Return a path relative to the folder of the report."""
        return Path(os.path.relpath(os.path.abspath(file), self.base)).as_posix()
