"""`backprint doctor`, and `backprint demo`: whether this machine can capture, save and prove; and two models.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A function in CHECKS returns a line that says what is good, and raises if something is not. An *extra* is an optional
part of the package (`pip install '.[models]'`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
import platform
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backprint.cli import show, verify
from backprint.cli.options import JSON, OUTPUT, PATH, command, option
from backprint.cli.say import echo, ending
from backprint.graph.verdicts import PROVED


@command("doctor")
@JSON
def doctor_command(as_json: bool) -> None:
    """Check this machine: versions, extras, each engine, and a small capture through the whole flow."""
    broken_internals.cache_clear()  # a process may call the command twice
    rows: dict[str, str] = {}
    good = True
    for name, check in CHECKS.items():
        try:
            rows[name] = check()
        except Exception as error:  # a doctor reports whatever is wrong, by name
            rows[name] = f"not good: {type(error).__name__}: {error}"
            good = False
    for text in (
        [json.dumps({"good": good, **rows})] if as_json else [f"{name:<10} {answer}" for name, answer in rows.items()]
    ):
        echo(text)
    if not good:
        raise SystemExit(1)


def python_version() -> str:
    """Return Python's version, and the processor."""
    return f"{platform.python_version()} on {platform.machine()}"


def own_version() -> str:
    """Return Backprint's version, and the extras of it whose packages are installed."""
    import backprint as bp

    is_complete = {extra: all(map(is_installed, packages)) for extra, packages in packages_of_extras().items()}
    present = ", ".join(extra for extra, complete in is_complete.items() if complete) or "none"
    absent = ", ".join(extra for extra, complete in is_complete.items() if not complete)
    return f"{bp.__version__}; extras: {present}" + (f"; not installed: {absent}" if absent else "")


def packages_of_extras() -> dict[str, list[str]]:
    """Return the packages that each extra brings, except those for developers; nothing where Backprint runs from its
    sources without being installed."""
    packages: dict[str, list[str]] = {}
    try:
        rows = importlib.metadata.requires("backprint") or []
    except importlib.metadata.PackageNotFoundError:
        rows = []
    for row in rows:
        extra = re.search(r"extra == ['\"](\w+)['\"]", row)  # of `jax>=0.5; extra == "compilers"`
        package = re.match(r"[\w.-]+", row)
        if extra and package and extra[1] not in ("dev", "docs"):
            packages.setdefault(extra[1], []).append(package[0])
    return packages


def is_installed(package: str) -> bool:
    """Whether a package is installed."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def torch_version() -> str:
    """Return PyTorch's version, threads and devices."""
    import torch

    from backprint.common.tried import TRIED, is_tried

    cuda = (
        f"CUDA {torch.version.cuda}, {torch.cuda.device_count()} devices"
        if torch.cuda.is_available()
        else "no CUDA device"
    )
    tried = "" if is_tried(torch.__version__) else f" (not tried: Backprint was tried with {TRIED})"
    cpu = torch.backends.cpu.get_cpu_capability()
    return f"{torch.__version__}{tried}, {torch.get_num_threads()} threads, {cpu}, {cuda}"


@functools.cache
def broken_internals() -> dict[str, str]:
    """Return the private parts of torch that do not hold here, with the reason; they are probed once."""
    from backprint._torch.probes import broken_probes

    return broken_probes()


def internals() -> str:
    """Return how many private APIs of torch hold; raise if one does not hold on this torch."""
    from backprint._torch.probes import PROBES

    broken = broken_internals()
    if broken:
        raise RuntimeError("; ".join(f"{name}: {reason}" for name, reason in broken.items()))
    return f"{len(PROBES)} of {len(PROBES)} that were probed hold"


def features() -> str:
    """Return what works with the private APIs that hold; raise if something does not, with what it lacks."""
    from backprint._torch.private import FEATURES
    from backprint._torch.probes import stopped_features

    stopped = stopped_features(broken_internals())
    works = ", ".join(feature for feature in FEATURES if feature not in stopped) or "nothing"
    if stopped:
        lacks = "; ".join(f"{feature} (for {', '.join(names)})" for feature, names in stopped.items())
        raise RuntimeError(f"does not work: {lacks}; works: {works}")
    return works


def engines() -> str:
    """Capture and verify a small function by each engine; raise if one does not work."""
    import torch

    import backprint as bp
    from backprint.trace.entry import ENGINES

    outcomes: dict[str, str] = {}
    for engine in ENGINES:
        options: dict[str, Any] = {"engine": engine}
        try:
            capture = bp.capture(lambda x: x.sin() * x, torch.ones(3), **options)
            outcomes[engine] = bp.verify(capture)[-1].verdict
        except Exception as error:  # whatever it raises, the other engines may work
            outcomes[engine] = f"not good: {type(error).__name__}: {error}"
    text = ", ".join(f"{engine} {outcome}" for engine, outcome in outcomes.items())
    if set(outcomes.values()) != {"bitwise"}:
        raise RuntimeError(text)
    return text


def flow() -> str:
    """Capture, save, load and verify a small model; raise if it is not `bitwise`."""
    import torch

    import backprint as bp

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    with tempfile.TemporaryDirectory() as folder:
        path = bp.save(bp.capture(model, torch.ones(2, 3)), Path(folder) / "sample")
        verdict = bp.verify(bp.load(path))[0]
    if verdict.verdict != "bitwise":
        raise RuntimeError(f"{verdict.verdict}: {verdict.detail}")
    return "capture, save, load and verify: bitwise"


CHECKS: dict[str, Callable[[], str]] = {
    "python": python_version,
    "backprint": own_version,
    "torch": torch_version,
    "internals": internals,
    "features": features,
    "engines": engines,
    "flow": flow,
}


# ---- The demo

MODELS = ("convnet", "gpt")


@command("demo")
@option(
    OUTPUT,
    "-o",
    "--output",
    default="samples/demo",
    show_default=True,
    type=PATH,
    help="Where to write; samples of these two names that are there are replaced.",
)
def demo_command(output: Path) -> None:
    """Capture a convolutional model and a small GPT, prove both, and show what their backward does."""
    with ending(lambda: f"what was captured is in {output}"):
        demonstrate(output)


def demonstrate(output: Path) -> None:
    """Capture, save, load, show and verify each of the models, and print it; exit with 1 if one is not proved."""
    import backprint as bp
    from backprint.tools.cost.costs import summarize

    places = []
    for name in MODELS:
        title(f"{name}: capture")
        model, args = importlib.import_module(f"backprint.examples.{name}").factory()
        capture = bp.capture(model, args=args, name=name)
        place = bp.save(capture, output / name, overwrite=True)
        places.append(place)
        loaded = bp.load(place)
        forward, backward = loaded.pairs[0].forward, loaded.pairs[0].backward
        assert backward is not None, f"{name} has parameters, so it has a backward"
        echo(f"{place}: {len(forward.steps)} steps forward, {len(backward.steps)} backward")
        title(f"{name}: the backward begins")
        echo(body(backward.code, lines=14), lines=True)
        title(f"{name}: show")
        show.print_pair(loaded, 0, summarize(loaded.pairs[0]), show.MOST)
    title("verify")
    rows = [{"sample": str(place), **row} for place in places for row in verify.rows_of_sample(place, allow=())]
    verify.print_verdicts(rows)
    echo("\nThe results:", lines=True)
    for place in places:
        echo(f"  {place / 'pair_0' / 'forward' / 'model.py'}")
        echo(f"  {place / 'pair_0' / 'backward' / 'model.py'}")
    echo("Each runs alone, with torch and nothing else: python model.py")
    if any(row["verdict"] not in PROVED for row in rows):
        raise SystemExit(1)


def title(text: str) -> None:
    """Print a heading."""
    echo(f"\n== {text}", lines=True)


def body(code: str, lines: int) -> str:
    """Return so many first lines of the steps of a graph's text, which begin after the ports of its `forward`."""
    rows = code.split("\n")
    start = next(index for index, row in enumerate(rows) if row == "    ):") + 1  # the end of the list of ports
    return "\n".join(rows[start : start + lines])
