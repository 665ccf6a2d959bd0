"""What the benchmarks found last: a file for each in `results/`, and the table of README.md, which is made of them.

A benchmark ends with `keep`, which writes its figures with the command, the date and the machine, and says which bars
are missed:

    keep("loading", [Figure("load and list 1,000 ResNet-18 samples", 1.2, "s", at_most=2.0)])

    python benchmarks/results.py            write the table of README.md anew
    python benchmarks/results.py --check    fail if it is not that of results/
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE / "README.md"
BEGIN, END = "<!-- made by results.py -->", "<!-- end -->"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number: what it is of, and the bar, if it has one. `1` with the unit `×` is as much as the other side."""

    what: str
    value: float | str
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def good(self) -> bool:
        """Whether it meets its bar; a NaN does not."""
        if isinstance(self.value, str):
            return True
        over = self.at_most is not None and not self.value <= self.at_most
        return not (over or (self.at_least is not None and not self.value >= self.at_least))

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return self.value if isinstance(self.value, str) else f"{number(self.value)} {self.unit}".strip()

    @property
    def bar(self) -> str:
        """The bar in words."""
        if self.at_most is not None:
            return f"≤ {number(self.at_most)}" + ("" if self.good else ", missed")
        return "" if self.at_least is None else f"≥ {number(self.at_least)}" + ("" if self.good else ", missed")


def number(value: float) -> str:
    """Write a count as it is, and a measure with three digits."""
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def keep(name: str, figures: Sequence[Figure], note: str = "") -> int:
    """Write what a benchmark found to `results/NAME.json`, and the table of README.md. Return 1 if a bar is missed."""
    import torch

    RESULTS.mkdir(exist_ok=True)
    known = {
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "note": note,
        "figures": [
            {key: value for key, value in asdict(figure).items() if value not in (None, "")} for figure in figures
        ],
    }
    text = json.dumps(known, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
    README.write_text(made_readme(), encoding="utf-8")
    missed = [
        f"missed: {figure.what}: {figure.shown}, the bar is {figure.bar}" for figure in figures if not figure.good
    ]
    print("\n".join([*missed, f"kept in benchmarks/results/{name}.json"]))
    return int(bool(missed))


def made_readme() -> str:
    """Return README.md with the table of `results/`."""
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return "\n".join([before + BEGIN, *table(), END + rest.partition(END)[2]])


def table() -> Iterator[str]:
    """Yield the lines of the table: a row for each figure, the benchmark and its date in the first."""
    yield "| benchmark | of what | figure | bar |"
    yield "|---|---|---:|---:|"
    for place in sorted(RESULTS.glob("*.json")):
        known: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        label = f"`{known['command'].removeprefix('python benchmarks/')}`, {known['date']}, load {known['load']}"
        for row in known["figures"]:
            figure = Figure(**row)
            yield f"| {label} | {figure.what} | {figure.shown} | {figure.bar} |"
            label = ""
        if known["note"]:
            yield f"| | {known['note']} | | |"


def main() -> int:
    made = made_readme()
    if sys.argv[1:] != ["--check"]:
        README.write_text(made, encoding="utf-8")
    elif made != README.read_text(encoding="utf-8"):
        print("the table of benchmarks/README.md is not that of benchmarks/results: python benchmarks/results.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
