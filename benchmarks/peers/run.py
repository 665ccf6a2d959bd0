"""Backprint beside torch.export, the logs of AOTAutograd, tlparse, depyf, torchlens and Model Explorer: one command.

    python benchmarks/peers/run.py [--write] [--only TOOL]

Each tool runs on the three training steps of `programs.py`. What a tool keeps is then run in a process that cannot
import the programs, and its gradients are compared with theirs. Tools that are not part of PyTorch are installed into
`build/peers`, beside the packages of this Python. `--write` puts the table into docs/peers.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torchlens==2.36.1", "depyf==0.20.0", "tlparse==0.4.3", "ai-edge-model-explorer==0.1.34")
PAGE = ROOT / "docs" / "peers.md"
PROGRAMS = ("GPT block", "convolutions", "neurons")

ENVIRONMENTS = {
    "TORCH_LOGS=aot": {"TORCH_LOGS": "aot,aot_graphs", "TORCH_LOGS_OUT": "{folder}/log"},
    "tlparse": {"TORCH_TRACE": "{folder}/trace"},
}
"""What these are switched on by, in a process for each program."""

OF_PYTORCH = ("torch.export", "its joint graph", "TORCH_LOGS=aot")
TOOLS = ("Backprint", *OF_PYTORCH, "tlparse", "depyf", "torchlens", "Model Explorer")

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    parser.add_argument("--only", help="only this tool")
    options = parser.parse_args()
    python = installed(ROOT / "build" / "peers")
    with tempfile.TemporaryDirectory(prefix="backprint_peers_") as folder:
        tools = [options.only] if options.only else TOOLS
        rows = {tool: row(python, tool, Path(folder) / str(number)) for number, tool in enumerate(tools)}
    text = table(rows)
    print(text)
    if options.write:
        write(PAGE, text)


def installed(home: Path) -> Path:
    """Return the Python of an environment that has the tools, and all that this Python has."""
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        places = [place for place in site.getsitepackages() if Path(place).is_dir()]
        (target,) = home.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({place!r})" for place in places]
        (target / "parent.pth").write_text("\n".join(lines) + "\n")
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    subprocess.run([*pip, *PACKAGES], check=True, stderr=subprocess.DEVNULL)
    return python


def row(python: Path, tool: str, folder: Path) -> Row:
    """Run a tool on the programs, and what it kept without them; return what came of both, by program."""
    groups = [(name,) for name in PROGRAMS] if tool in ENVIRONMENTS else [PROGRAMS]
    kept: Row = {}
    for number, names in enumerate(groups):
        place = folder / str(number)
        place.mkdir(parents=True)
        kept |= call(python, Path(__file__).with_name("tools.py"), tool, place, names)
    elsewhere = folder / "tools.py"  # a folder without the programs
    shutil.copy(Path(__file__).with_name("tools.py"), elsewhere)
    alone: Row = {}
    for number, names in enumerate(groups):
        alone |= call(python, elsewhere, tool, folder / str(number), (*names, "--alone"))
    return {name: {**kept[name], "alone": alone[name][0], "gradients": alone[name][1]} for name in PROGRAMS}


def call(python: Path, script: Path, tool: str, place: Path, arguments: tuple[str, ...]) -> Row:
    """Run the script of the tools in a process of its own, on one thread."""
    added = {name: value.format(folder=place) for name, value in ENVIRONMENTS.get(tool, {}).items()}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **added}
    command = [python, script, tool, place, *arguments]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{tool}: exit {done.returncode}\n{done.stderr[-3000:]}")
    answers: Row = json.loads(done.stdout.splitlines()[-1])
    return answers


# ------------------------------------------------------------------ the table


def table(rows: dict[str, Row]) -> str:
    """Return the table as Markdown: a row for each tool, a cell with the three programs for each question."""
    names = ", ".join(f"{package.replace('==', ' ')}" for package in PACKAGES)
    head = ["tool", "steps forward", "steps backward", "saved values", "runs without the program", "right gradients"]
    lines = [
        f"torch {version('torch')}, {names}. Each cell has the {', the '.join(PROGRAMS)}.",
        "",
        "| " + " | ".join([*head, "CPU seconds", "KiB", "beside that"]) + " |",
        "|" + "---|" * 9,
    ]
    for tool, programs in rows.items():
        answers = [programs[name] for name in PROGRAMS]
        cells = [
            joined("refused" if answer["error"] else answer["forward"] or "none" for answer in answers),
            joined("refused" if answer["error"] else answer["backward"] or "none" for answer in answers),
            joined(saved(answer) for answer in answers),
            joined("refused" if answer["error"] else answer["alone"].partition(":")[0] for answer in answers),
            joined(answer["gradients"] or "none" for answer in answers),
            joined(f"{answer['seconds']:.1f}" for answer in answers),
            joined(f"{answer['size'] / 1024:.0f}" for answer in answers),
            joined(answer["more"] for answer in answers),
        ]
        lines.append(f"| {tool} | " + " | ".join(cells) + " |")
    refusals = [
        f"- {tool}, {name}: {answer['error'] or answer['alone']}"
        for tool, programs in rows.items()
        for name, answer in programs.items()
        if answer["error"] or ":" in answer["alone"]
    ]
    return "\n".join([*lines, *(["", "What was refused, or did not run:", "", *refusals] if refusals else [])])


def joined(cells: Any) -> str:
    """Return the cells of the three programs, once if they are equal."""
    texts = [str(cell) for cell in cells]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def saved(answer: Row) -> str:
    """How many values are saved for the backward, and their bytes, as far as the tool says."""
    if answer["saved_bytes"] is None:
        return "none"
    size = f"{answer['saved_bytes'] / 1024:.0f} KiB"
    return size if answer["saved"] is None else f"{answer['saved']}, {size}"


def write(page: Path, text: str) -> None:
    """Put the table between the marks of a page."""
    old = page.read_text(encoding="utf-8")
    marks = re.compile(r"(<!-- peers: [^\n]* -->\n).*?(<!-- peers end -->)", re.DOTALL)
    new, count = marks.subn(lambda match: f"{match[1]}{text}\n{match[2]}", old)
    if count != 1:
        sys.exit(f"{page} has no place for the table")
    page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
