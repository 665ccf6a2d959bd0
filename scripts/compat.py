"""The whole suite on every torch that is supported, each in a virtual environment, and the table for the docs.

    python scripts/compat.py [BUILD...] [--folder DIR] [--keep] [--quick]

A build takes about 6 GB and two minutes to install; it is removed afterwards. Results go to `compat.json` as they come,
so a run that was ended goes on; `compat.md` has the table. The exit code is 1 if a build has failures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILDS: dict[str, tuple[str, dict[str, str]]] = {
    "2.11.0": ("torch==2.11.0", {}),
    "2.12.1": ("torch==2.12.1", {}),
    "2.13.0, CPU": ("torch==2.13.0", {}),
    "2.13.0": ("torch===2.13.0", {"PIP_FIND_LINKS": ""}),
    "2.14.1": ("torch==2.14.1", {}),
}
"""Each build: what pip is asked for, and in which environment. `===` leaves out builds with a local version (+cpu)."""

QUICK = ("tests/test_tiny.py", "tests/regions", "tests/corpus/test_corpus_cli.py", "tests/capture/test_programs.py")
"""What `--quick` runs: a smoke of every room."""

TEN = """
import torch, backprint as bp
for index in range(10):
    torch.manual_seed(index)
    layers = [torch.nn.Linear(4, 4 + index), torch.nn.BatchNorm1d(4 + index), torch.nn.GELU()]
    bp.save(bp.capture(torch.nn.Sequential(*layers), torch.randn(3, 4)), f"{FOLDER}/sample_{index}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="*", metavar="BUILD", help=f"of {', '.join(BUILDS)}; all without any")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "compat")
    parser.add_argument("--keep", action="store_true", help="leave the environments where they are")
    parser.add_argument("--quick", action="store_true", help="a smoke of every room, not the whole suite")
    options = parser.parse_args()
    unknown = set(options.builds) - set(BUILDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(BUILDS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = options.folder / "compat.json"
    rows: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    commit = said("git", "rev-parse", "--short", "HEAD", cwd=ROOT).strip()
    for name in options.builds or BUILDS:
        if rows.get(name, {}).get("commit") == commit and not options.builds:
            continue
        rows[name] = tried(name, options.folder, options.quick, options.keep) | {"commit": commit}
        new = kept.with_suffix(".new")
        new.write_text(json.dumps(rows, indent=1))
        new.replace(kept)
        (options.folder / "compat.md").write_text(table(rows))
    print(table(rows))
    sys.exit(any(row["failed"] or row["demo"] != "bitwise" or row["corpus"] != "10 bitwise" for row in rows.values()))


def tried(name: str, folder: Path, quick: bool, keep: bool) -> dict[str, Any]:
    """One build: install it, run the suite, the demo and a corpus of ten samples."""
    wanted, extra = BUILDS[name]
    home = folder / re.sub(r"\W+", "_", name)
    python = home / "bin" / "python"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    print(f"{name}: installing", flush=True)
    try:
        if not python.exists():
            venv.create(home, with_pip=True, clear=True)
            pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
            subprocess.run([*pip, wanted], check=True, env={**os.environ, **extra})
            subprocess.run([*pip, "--editable", f"{ROOT}[dev]"], check=True)
        version = said(python, "-c", "import torch; print(torch.__version__)").strip()
        print(f"{name}: torch {version}, installed in {time.monotonic() - begun:.0f} s; testing", flush=True)
        tests = QUICK if quick else ("tests",)
        log = folder / f"{home.name}.log"
        with log.open("w") as sink:
            command = [python, "-m", "pytest", "-n", "2", "-q", "--show-capture=no", "--tb=short", *tests]
            subprocess.run(command, cwd=ROOT, env=environment, stdout=sink, stderr=subprocess.STDOUT, check=False)
        counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", tail(log))}
        samples, out = home / "ten", home / "out"
        for each in (samples, out):
            shutil.rmtree(each, ignore_errors=True)
        said(python, "-c", TEN.replace("{FOLDER}", str(samples)))
        ran = said(python, "-m", "backprint", "corpus", "backward", samples, "-o", out, "--jobs", "2")
        demo = said(python, "-m", "backprint", "demo", cwd=home)
        return {
            "torch": version,
            "passed": counts.get("passed", 0),
            "failed": counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0) + (not counts),
            "skipped": counts.get("skipped", 0),
            "demo": "bitwise" if "bitwise" in demo and "wrong" not in demo and "failed" not in demo else "not good",
            "corpus": "10 bitwise" if "10 bitwise" in ran else (ran.strip().splitlines() or ["nothing"])[0],
            "seconds": round(time.monotonic() - begun),
        }
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)


def said(*command: Any, cwd: Path | None = None) -> str:
    """What a command prints; of one that fails, that too."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + (done.stderr if done.returncode else "")


def tail(log: Path) -> str:
    """The last line that counts tests."""
    lines = [line for line in log.read_text().splitlines() if re.search(r"\d+ (passed|failed)", line)]
    return lines[-1] if lines else ""


def table(rows: dict[str, Any]) -> str:
    """The table for the docs."""
    head = "| build | torch | passed | failed | skipped | demo | ten samples |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {name} | {row['torch']} | {row['passed']:,} | {row['failed']} | {row['skipped']} | {row['demo']} | "
        f"{row['corpus']} |\n"
        for name, row in rows.items()
    )


if __name__ == "__main__":
    main()
