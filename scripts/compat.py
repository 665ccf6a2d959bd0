"""The tests of CI on every torch that is supported, each in a virtual environment, and the table in docs/versions.md.

    python scripts/compat.py [BUILD...] [--environment BUILD=DIR] [--jobs N] [--keep] [--failed]
    python scripts/compat.py --smoke

A build takes about 6 GB and a minute or two to install; it is removed once it is through, unless `--keep` is given or
the environment is one of yours. Results are kept as they come, a folder of tests at a time: a run that was ended goes
on from there, as long as neither code nor tests have changed. `--failed` runs again what failed, after a mend, and the
table says so. Logs, environments and results lie in `build/compat`. The exit code is 1 unless all is good.

`--smoke` is what CI runs: a part of every room on the newest build. Where that cannot be installed, it says why, and
passes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
BEGIN, END = "<!-- compat: scripts/compat.py writes this table -->", "<!-- compat ends -->"

Row = dict[str, Any]
"""What is known of one build: its `parts` with their counts, the names that are `failing`, `demo` and `corpus`."""


@dataclass(frozen=True, slots=True)
class Build:
    """One way to have torch: what pip is asked for, in which environment, and what has to come of it."""

    wanted: str
    version: str
    cuda: bool
    extra: Mapping[str, str] = field(default_factory=dict)


BUILDS = {
    "2.11.0": Build("torch==2.11.0", "2.11.0", True),
    "2.12.1": Build("torch==2.12.1", "2.12.1", True),
    "2.13.0, CPU": Build(
        "torch==2.13.0+cpu", "2.13.0", False, {"PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/cpu"}
    ),
    "2.13.0": Build("torch===2.13.0", "2.13.0", True, {"PIP_FIND_LINKS": ""}),
    "2.14.1": Build("torch==2.14.1", "2.14.1", True),
    "2.15.0": Build("torch==2.15.0", "2.15.0", True),
}
"""PyPI's builds have CUDA libraries. `===` leaves out builds with a local version (+cpu)."""

NEWEST = "2.15.0"
SPACE = 12 << 30
"""The bytes that have to be free for an environment and for what pip unpacks."""

QUICK = (
    "tests/test_tiny.py",
    "tests/test_torch_seam.py",
    "tests/regions",
    "tests/corpus/test_commands.py",
    "tests/diff",
    "tests/draw",
    "tests/graph/test_costing.py",
    "tests/graph/test_memory_line.py",
    "tests/tracing/test_programs.py",
    "tests/bench/test_lowering.py",
    "tests/bench/test_outside_draws.py",
)
"""What `--smoke` runs: something of every room."""

TEN = """
import torch, backprint as bp
for index in range(10):
    torch.manual_seed(index)
    layers = [torch.nn.Linear(4, 4 + index), torch.nn.BatchNorm1d(4 + index), torch.nn.GELU()]
    bp.save(bp.capture(torch.nn.Sequential(*layers), torch.randn(3, 4)), f"{FOLDER}/sample_{index}")
"""


class NotInstalled(Exception):
    """A build cannot be had here."""


# ------------------------------------------------------------------ what is asked for


def main() -> None:
    options = arguments()
    options.folder = options.folder / "smoke" if options.smoke else options.folder
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.smoke:
        sys.exit(smoke(options))
    rows = read_rows(options.folder)
    for name in options.builds or BUILDS:
        row = begun(rows.get(name, {}), state(), options.failed)
        rows[name] = row
        try:
            tried(name, row, whole(), options, lambda: keep_rows(options.folder, rows))
        except NotInstalled as error:
            sys.exit(f"{name}: {error}")
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    print(table(rows), end="")
    sys.exit(not all(is_good(rows[name]) for name in options.builds or BUILDS))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD", help=f"of {', '.join(BUILDS)}; all without any")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "compat", help="logs, environments, results")
    parser.add_argument(
        "--environment", action="append", default=[], metavar="BUILD=DIR", help="use this one, with [dev] installed"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests (2)")
    parser.add_argument("--keep", action="store_true", help="leave environments in FOLDER; a later run takes them")
    parser.add_argument("--failed", action="store_true", help="run again what failed, and nothing else that was run")
    parser.add_argument("--smoke", action="store_true", help=f"a part of every room, on {NEWEST} alone")
    parser.add_argument("--within", type=int, default=360, help="with --smoke: seconds that installing may take (360)")
    options = parser.parse_args()
    options.environments = dict(each.rpartition("=")[::2] for each in options.environment)
    unknown = {*options.builds, *options.environments} - set(BUILDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(BUILDS)}")
    return options


def smoke(options: argparse.Namespace) -> int:
    """A part of every room on the newest build; where that cannot be had, why not."""
    row = begun({}, state(), False)
    try:
        tried(NEWEST, row, {"smoke": list(QUICK)}, options, lambda: None, options.within)
    except NotInstalled as error:
        print(f"smoke of torch {NEWEST} LEFT OUT, nothing was tested: {error}")
        return 0
    if not is_good(row):
        print((options.folder / f"{plain(NEWEST)}.log").read_text()[-8000:])
    print(f"smoke of torch {row['torch']}: {counted(row)}, demo {row['demo']}, ten samples: {row['corpus']}")
    return 0 if is_good(row) else 1


def whole() -> dict[str, list[str]]:
    """The suite, a folder of tests at a time."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        inner = path.relative_to(ROOT / "tests").parts
        part, each = (f"tests/{inner[0]}",) * 2 if len(inner) > 1 else ("tests", f"tests/{inner[0]}")
        if each not in found.setdefault(part, []):
            found[part].append(each)
    return found


# ------------------------------------------------------------------ one build


def tried(
    name: str,
    row: Row,
    parts: Mapping[str, list[str]],
    options: argparse.Namespace,
    keep: Any,
    within: int | None = None,
) -> None:
    """What is not in the row yet of one build: tests, the demo and a corpus of ten samples."""
    if is_whole(row, parts) and not row["again"]:
        return
    home = Path(options.environments.get(name, options.folder / plain(name)))
    python, own = installed(name, home, name in options.environments, within)
    row["torch"] = said(python, "-c", "import torch; print(torch.__version__)").strip()
    log, cache = options.folder / f"{plain(name)}.log", options.folder / f"{plain(name)}.cache"
    if not row["parts"] and not row["failing"]:
        shutil.rmtree(cache, ignore_errors=True)
        log.unlink(missing_ok=True)
    if row["again"] and row["failing"]:
        print(f"{name}: what failed, again", flush=True)
        again = tested(python, row["failing"], log, cache, options.jobs)
        left = failing(cache)
        row["mended"] += len(row["failing"]) - len(left)
        row["parts"][f"after {row['mended']} mends"] = again
        row["failing"] = left
    row["again"] = False
    for part, paths in parts.items():
        if part not in row["parts"]:
            print(f"{name}: {part}", flush=True)
            row["parts"][part] = tested(python, paths, log, cache, options.jobs)
            row["failing"] = failing(cache)
            keep()
    demo(python, row, options.folder)
    corpus(python, row, options.folder, options.jobs)
    keep()
    if own and not options.keep:
        shutil.rmtree(home, ignore_errors=True)


def installed(name: str, home: Path, given: bool, within: int | None) -> tuple[Path, bool]:
    """The interpreter of an environment that has this build, and whether it is ours to remove."""
    python, build = home / "bin" / "python", BUILDS[name]
    if not given and not (home / "whole").exists():
        install(name, home, within)
    found = said(python, "-c", "import torch; print(torch.__version__, torch.version.cuda)").split()
    if len(found) != 2 or found[0].partition("+")[0] != build.version or (found[1] != "None") != build.cuda:
        kind = "with" if build.cuda else "without"
        raise NotInstalled(f"{home} has not torch {build.version} {kind} CUDA libraries: {' '.join(found)[-300:]}")
    return python, not given


def install(name: str, home: Path, within: int | None) -> None:
    """A new environment with a build and with what the tests need."""
    free = shutil.disk_usage(home.parent).free
    if free < SPACE:
        raise NotInstalled(f"{home.parent} has {free >> 30} GB free, and {SPACE >> 30} are needed")
    begun = time.monotonic()
    print(f"{name}: installing into {home}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = (home / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    for extra, wanted in ((BUILDS[name].extra, [BUILDS[name].wanted]), ({}, ["--editable", f"{ROOT}[dev]"])):
        left = None if within is None else max(1.0, within - (time.monotonic() - begun))
        pipped([*pip, *wanted], {**os.environ, **extra}, left, within)
    (home / "whole").touch()
    print(f"{name}: installed in {time.monotonic() - begun:.0f} s", flush=True)


def pipped(command: list[Any], environment: dict[str, str], left: float | None, within: int | None) -> None:
    """One call of pip."""
    try:
        done = subprocess.run(command, env=environment, timeout=left, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"pip install {command[-1]} was not through after {within} s") from error
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no word of why"]
        raise NotInstalled(f"pip install {command[-1]} failed: {why[0]}")


def tested(python: Path, paths: list[str], log: Path, cache: Path, jobs: int) -> Row:
    """Some tests: how many did what."""
    command = [python, "-m", "pytest", "--ci", "-n", str(jobs), "-q", "--show-capture=no", "--tb=short"]
    command += ["-o", f"cache_dir={cache}", *paths]
    with log.open("a+") as sink:
        begin = sink.tell()
        begun = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=environment(), stdout=sink, stderr=subprocess.STDOUT, check=False)
        sink.seek(begin)
        counts = counts_of(sink.read())
    broken = done.returncode not in (0, 1)
    return {**counts, "broken": done.returncode if broken else 0, "seconds": round(time.monotonic() - begun)}


def environment() -> dict[str, str]:
    """The code here goes before one that an environment of yours has; as many threads as `make test` has."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}


def counts_of(log: str) -> dict[str, int]:
    """What the last line of pytest's says."""
    lines = [line for line in log.splitlines() if re.search(r"\d+ (passed|failed|skipped|error).* in [\d.]+s", line)]
    found = {word: int(count) for count, word in re.findall(r"(\d+) ([a-z]+)", lines[-1] if lines else "")}
    return {word: found.get(word, 0) for word in ("passed", "skipped", "xfailed")}


def failing(cache: Path) -> list[str]:
    """The names of the tests that failed and were not seen to pass since."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text())) if kept.exists() else []


def demo(python: Path, row: Row, folder: Path) -> None:
    """What the demo comes to."""
    if row.get("demo") == "bitwise":
        return
    with_home = folder / "demo"
    with_home.mkdir(exist_ok=True)
    shown = said(python, "-m", "backprint", "demo", cwd=with_home)
    good = "bitwise" in shown and "wrong" not in shown and "failed" not in shown
    row["demo"] = "bitwise" if good else f"not good: {(shown.strip().splitlines() or ['nothing'])[-1][:200]}"
    shutil.rmtree(with_home)


def corpus(python: Path, row: Row, folder: Path, jobs: int) -> None:
    """What ten samples come to."""
    if row.get("corpus") == "10 bitwise":
        return
    samples, out = folder / "ten", folder / "ten_out"
    for each in (samples, out):
        shutil.rmtree(each, ignore_errors=True)
    said(python, "-c", TEN.replace("{FOLDER}", str(samples)))
    ran = said(python, "-m", "backprint", "corpus", "run", "backward", samples, "-o", out, "--jobs", jobs)
    row["corpus"] = "10 bitwise" if "10 bitwise" in ran else (ran.strip().splitlines() or ["nothing"])[0][:200]
    for each in (samples, out):
        shutil.rmtree(each, ignore_errors=True)


def said(*command: Any, cwd: Path | None = None) -> str:
    """What a command prints; of one that fails, that too."""
    try:
        done = subprocess.run(
            [str(each) for each in command],
            **dict(cwd=cwd, env=environment(), capture_output=True, text=True, check=False),
        )
    except OSError as error:
        return str(error)
    return done.stdout + (done.stderr if done.returncode else "")


# ------------------------------------------------------------------ what is kept


def state() -> str:
    """What code and tests are now, in a word: results of another state do not count."""
    tracked = ("src", "tests", "pyproject.toml")
    found = git("ls-files", "-s", *tracked) + git("diff", *tracked)
    return hashlib.sha256(found.encode()).hexdigest()[:12]


def git(*words: str) -> str:
    """What git says, or nothing."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout


def begun(row: Row, now: str, failed: bool) -> Row:
    """The row to go on with: what is known of this state, or of an earlier one of which only the failed run again."""
    if failed and row:
        ended = {part: each for part, each in row["parts"].items() if not each["broken"]}
        return {**row, "state": now, "parts": ended, "again": True}
    if row.get("state") == now:
        return row
    commit = git("rev-parse", "--short", "HEAD").strip() or "no commit"
    return {"state": now, "commit": commit, "parts": {}, "failing": [], "again": False, "mended": 0}


def read_rows(folder: Path) -> dict[str, Row]:
    """What was kept."""
    kept = folder / "compat.json"
    return json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}


def keep_rows(folder: Path, rows: Mapping[str, Row]) -> None:
    """Write what is known, whole or not at all."""
    new = folder / "compat.new"
    new.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    new.replace(folder / "compat.json")


def is_whole(row: Row, parts: Iterable[str]) -> bool:
    """Whether nothing of a build is left to run."""
    return set(parts) <= set(row["parts"]) and row.get("demo") == "bitwise" and row.get("corpus") == "10 bitwise"


def is_good(row: Row) -> bool:
    """Whether a build has passed."""
    broken = any(part["broken"] for part in row["parts"].values())
    done = row.get("demo") == "bitwise" and row.get("corpus") == "10 bitwise"
    return bool(row["parts"]) and done and not broken and not row["failing"]


# ------------------------------------------------------------------ the table


HEAD = """\
| build | torch | passed | failed | skipped | demo | ten samples | commit |
|---|---|---|---|---|---|---|---|
"""


def counted(row: Row) -> str:
    """The counts of a row."""
    return f"{count(row, 'passed'):,} passed, {len(row['failing'])} failed"


def count(row: Row, word: str) -> int:
    """How many tests did what, over all parts."""
    return sum(part[word] for part in row["parts"].values())


def table(rows: Mapping[str, Row]) -> str:
    """The table, with a line for each build that was tried."""
    return HEAD + "".join(f"{line(name, rows[name])}\n" for name in BUILDS if name in rows and "corpus" in rows[name])


def line(name: str, row: Row) -> str:
    """One build."""
    failed = f"{len(row['failing'])}" + (f" ({row['mended']} at first)" if row["mended"] else "")
    broken = [part for part, each in row["parts"].items() if each["broken"]]
    failed += f"; not run to the end: {', '.join(broken)}" if broken else ""
    counts = f"{count(row, 'passed'):,}", failed, f"{count(row, 'skipped')}"
    cells = (name, row["torch"], *counts, row["demo"], row["corpus"], row["commit"])
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def with_table(text: str, rows: Mapping[str, Row]) -> str:
    """A document with these builds' lines in its table; lines of builds that are not among them stay."""
    before, found, rest = text.partition(BEGIN)
    old, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"the document has no place for the table, which is between {BEGIN!r} and {END!r}")
    lines = [*old.splitlines(), *table(rows).splitlines()]
    named = {each.split(" | ")[0].removeprefix("| "): each for each in lines}
    return f"{before}{BEGIN}\n{HEAD}" + "".join(f"{named[name]}\n" for name in BUILDS if name in named) + END + after


def plain(name: str) -> str:
    """A build's name as a file's."""
    return re.sub(r"\W+", "_", name)


if __name__ == "__main__":
    main()
