"""Run a short exported file and the full one of the same case, and say in what their outcomes differ.

Both run in processes of their own. Without a backend, and with one, they run through torch.compile's `eager`; then the
full rule and the short one judge the same results: eager's, computed with other rounding, and eager's with faults. With
a backend, both files run with it too. A file of which anything differs, or that does not end in time, is not kept.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from backprint.common.memory import memory_limit

LIMIT = 120.0
"""Seconds that a run may take; a longer one leaves the full file."""

MOST_SAID = 200
"""Characters of a difference that are told."""

SAME = "the full file agrees with"

ROUNDINGS = (101, 102)
"""Seeds of runs whose operators round otherwise; the full rule's own runs have others."""


UNITS = 0.25
"""How far such runs move results, beside the full rule's own: those are wider than what compilers were seen to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file ended: its exit code, None where it did not end, and its lines without reasons."""

    code: int | None
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShortFile:
    """The text of a short file that has the full one's outcome."""

    text: str


def same_as_full(
    texts: Sequence[str], full: str, name: str, backend: str | None, limit: float = LIMIT
) -> ShortFile | str:
    """Return the first text of a short file that has the full one's outcome, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="backprint_") as folder:
        places = []
        for form, text in enumerate((full, *texts)):
            place = Path(folder) / str(form) / name
            place.parent.mkdir()
            place.write_text(text, encoding="utf-8")
            places.append(place)
        done = run_python(["-P", "-m", "backprint.sample.short_check", *map(str, places)], limit)
        if done is None:
            return f"a run of the short form and the full one did not end in {limit:g} s"
        chosen = re.search(rf"^{SAME} (\d+)\Z", done[1].strip(), re.MULTILINE)
        if chosen is None:
            return why_none(*done)
        short = int(chosen[1])
        if backend is not None and outcome_of(places[0], backend, limit) != outcome_of(places[short], backend, limit):
            return f"with backend {backend} its short form ends otherwise"
        return ShortFile(texts[short - 1])


def why_none(code: int, printed: str) -> str:
    """Return why no short file was chosen, by the exit code and the text of the run that compared them."""
    differs = re.search(r"^1: (.*)", printed, re.MULTILINE)  # of the first form; later ones differ in their rule alone
    if differs:
        return f"its short form says something else: {shortened(differs[1])}"
    return f"the run of its short form ended with exit code {code}"


def shortened(text: str) -> str:
    """Return a text of MOST_SAID characters at most."""
    return text if len(text) <= MOST_SAID else f"{text[: MOST_SAID - 3]}..."


def outcome_of(place: Path, backend: str, limit: float) -> Outcome:
    """Run a file with a backend."""
    done = run_python(["-P", str(place), "--backend", backend], limit)
    return Outcome(None, ()) if done is None else Outcome(done[0], without_reasons(done[1]))


def run_python(arguments: list[str], limit: float) -> tuple[int, str] | None:
    """Run Python in a process group of its own; return its exit code and what it printed, None if it did not end."""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    pipes: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, text=True, errors="replace", start_new_session=True, **pipes
    )
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, text


def without_reasons(text: str) -> tuple[str, ...]:
    """Return the lines that graphs and results have, without what stands in brackets after a word."""
    lines = [line for line in text.splitlines() if not line.startswith("# ") or line.startswith("# pair_")]
    return tuple(re.sub(r" \(.*\)$", "", line) for line in lines)


# ---- In a process of its own


def main(full: str, *short: str) -> None:
    """Print SAME and the number of the first short file that agrees; else in what each differs."""
    limit_memory()
    whole = module_at("full_file", full)
    sys.argv = [full, "--backend", "eager"]
    wanted = printed(lambda: whole.run_file(whole.CAPTURE, whole.GRAPHS, whole.DATA, None, full))
    for number, place in enumerate(short, 1):
        try:
            why = why_not(whole, module_at(f"short_file_{number}", place), wanted, full)
        except Exception as error:  # such as an operator without a float64 kernel
            why = f"{type(error).__name__}: {error}"
        if not why:
            print(SAME, number)
            return
        print(f"{number}: {why}")


def why_not(whole: Any, brief: Any, wanted: Outcome, full: str) -> str:
    """Return in what a short file differs from the full one, whose outcome is known; '' if in nothing."""
    outcome = printed(brief.main)
    if outcome != wanted:
        return f"through torch.compile's eager: {outcome}, and by the full file {wanted}"
    return next(judged_otherwise(brief, whole, full), "")


def limit_memory() -> None:
    """Have an allocation that is beyond all free memory fail in this process."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # no such limits off Unix; a lower one is there
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if most := memory_limit():
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def module_at(name: str, place: str) -> Any:
    """Import a file."""
    spec: Any = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def printed(function: Callable[[], None]) -> Outcome:
    """Run a file's main function; return its outcome."""
    text, code = io.StringIO(), 0
    with contextlib.redirect_stdout(text):
        try:
            function()
        except SystemExit as end:
            code = int(end.code or 0)
    return Outcome(code, without_reasons(text.getvalue()))


def judged_otherwise(brief: Any, whole: Any, full: str) -> Iterator[str]:
    """Yield each result of the trials that the short rule calls otherwise than the full one.

    Of a right result the two must say the same. A wrong one that the full rule calls wrong, the short one must; of
    results that are rounding alone, where the full rule allows more than a fault of the trials, it may.
    """
    prepared = whole.prepare(whole.CAPTURE, Path(full).parent, whole.DATA)
    torch.manual_seed(whole.CAPTURE["seed"])
    runs = whole.Program(whole.CAPTURE, whole.GRAPHS, prepared, True).play()
    values = brief.make_inputs()
    torch.manual_seed(brief.SEED)
    shorts = {title: brief.Run(graph, values) for title, graph in brief.GRAPHS.items()}
    for title in whole.CAPTURE["shown"]:
        shorts[title].run_references()
        eager = whole.Eager(runs[title], None)
        for what, compiled, right in trials(whole, runs[title]):
            try:
                rerun = runs[title].again(compiled)
            except Exception:  # an operator of the graph raises what it likes; a fault's error goes on below
                if right:  # an operator of which a rounded run fails: the full rule does without such runs, too
                    continue
                raise
            eager.compiled = compiled
            eager.__dict__.pop("reseeded", None)  # its results are of the compiled form
            for index, value in enumerate(rerun):
                short = brief.judged(shorts[title], index, value, compiled).split()[0]
                word = whole.judged(eager, index, value)[0]
                if short != word and (right or short != "wrong"):
                    yield f"{title}, {what}, result {index}: {short}, and by the full rule {word}"


def trials(whole: Any, run: Any) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yield ways to compute a graph, and whether each is right: right ones round otherwise, or draw other numbers."""
    eager = run.module()

    def rounded(*given: Any, seed: int) -> Any:
        with whole.OtherRounding(seed, UNITS):
            return eager(*given)

    def drawn_otherwise(*given: Any) -> Any:
        torch.manual_seed(2**20)
        return eager(*given)

    for seed in ROUNDINGS:
        yield f"rounded by {seed}", lambda *given, seed=seed: rounded(*given, seed=seed), True
    yield "other draws", drawn_otherwise, True
    for what, change in FAULTS.items():
        yield what, lambda *given, change=change: tuple(map(change, eager(*given))), False


def one_off(value: Any, by: float) -> Any:
    """Return a tensor whose largest element is off."""
    if value.numel() == 0:
        return value
    flat = value.contiguous().clone().flatten()
    place = flat.double().abs().nan_to_num().argmax()
    flat[place] = ~flat[place] if value.dtype == torch.bool else flat[place] * (1 + by) + 1 * (by >= 1)
    return flat.view(value.shape)


FAULTS: dict[str, Callable[[Any], Any]] = {
    "an element off by 100%": lambda value: one_off(value, 1.0),
    "an element off by 1%": lambda value: one_off(value, 0.01) if value.is_floating_point() else value,
    "an element off by 0.02%": lambda value: one_off(value, 0.0002) if value.is_floating_point() else value,
    "zeros": torch.zeros_like,
    "NaN": lambda value: torch.full_like(value, float("nan")) if value.is_floating_point() else value,
    "another dtype": lambda value: value.double() if value.dtype != torch.float64 else value.float(),
}
"""What a wrong compiler might give."""


if __name__ == "__main__":
    main(*sys.argv[1:])
