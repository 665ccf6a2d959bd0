"""Pages in a browser: seconds until the first picture, to open a frame and to search, and the size of the file.

    python benchmarks/page.py SAMPLE...

Each sample becomes a page, which headless Chromium opens as a person's browser would. "Open" is the slowest of twelve
frames that are opened one after another, "search" the slowest letter of six queries that are typed, both until the
browser has painted. It needs what `make browser` installs. A page that misses a bar ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import backprint as bp
from backprint.tools.draw.page import page_data, page_html

PAGE = Path(__file__).parents[1] / "page"
BARS = {"MB": 15, "first": 2, "open": 0.3, "search": 0.2}
"""At most so many megabytes, and seconds."""

ROUNDS = 3
"""Each page is opened so often; the fewest seconds count, as other work on the machine only adds to them."""


def times_of(page: Path) -> dict[str, float]:
    """Open a page in a browser, and return milliseconds."""
    done = subprocess.run(["node", PAGE / "measure.mjs", page], capture_output=True, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def measured(sample: Path, folder: Path) -> dict[str, float]:
    """Write the page of a sample, and measure it."""
    start = time.perf_counter()
    data = page_data(bp.load(sample))
    page = folder / f"{sample.name}.html"
    with page.open("w", encoding="utf-8") as file:
        file.writelines(page_html(data))
    written = time.perf_counter() - start
    rounds = [times_of(page) for _ in range(ROUNDS)]
    found = {name: min(each[name] for each in rounds) for name in ("first", "expand", "search", "all")}
    return {
        "steps": sum(len(pair["nodes"]["name"]) for pair in data["pairs"]),
        "MB": page.stat().st_size / 1e6,
        "first": found["first"] / 1e3,
        "open": found["expand"] / 1e3,
        "search": found["search"] / 1e3,
        "open all": found["all"] / 1e3,
        "writing": written,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure pages in a browser.")
    parser.add_argument("samples", metavar="SAMPLE", nargs="+", type=Path)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, sample in enumerate(parser.parse_args().samples):
            row = measured(sample, Path(folder))
            if not number:
                print("| sample |", " | ".join(row), "|\n|---" + "|---" * len(row) + "|")
            shown = (f"{value:,.0f}" if name == "steps" else f"{value:.2f}" for name, value in row.items())
            print(f"| {sample.name} |", " | ".join(shown), "|", flush=True)
            over = [f"{name} {row[name]:.2f}, at most {bar}" for name, bar in BARS.items() if row[name] > bar]
            missed += bool(over)
            if over:
                print(f"{sample.name} misses: {'; '.join(over)}", flush=True)
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
