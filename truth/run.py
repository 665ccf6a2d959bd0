"""Runs the truth suite: every program in a process of its own, and a table of what came of them.

    python truth/run.py [--only NAME] [--class MODULE] [--jobs N] [--json FILE] [--phases ...] [--every K]
        [--alone] [--engine ENGINE] [--device DEVICE [--default-device]] [--verbose]

The exit code is 1 if a program was silently wrong, changed its caller, or crashed.
"""

import argparse
import collections
import faulthandler
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking CUDA itself for GPUs would forbid forked ones
HERE = Path(__file__).resolve().parent

import torch  # noqa: E402
from case import DEVICE, PROGRAMS, Program, load_programs  # noqa: E402
from oracle import PHASES, Trial  # noqa: E402

TIMEOUT = 120
BAD = ("SILENT", "CHANGED", "CRASH")
OUTCOMES = (
    "right guarded refused told degraded flagged-right flagged-wrong unreplayable "
    "SILENT CHANGED CRASH nondeterministic invalid"
).split()
REASONS = {
    "SILENT": ("wrong",),
    "CHANGED": ("changed",),
    "CRASH": ("crash",),
    "flagged-wrong": ("wrong", "flagged"),
    "flagged-right": ("flagged",),
    "unreplayable": ("unreplayable",),
    "degraded": ("degraded",),
    "told": ("told",),
    "refused": ("refused",),
    "nondeterministic": ("nondeterministic",),
    "invalid": ("invalid",),
}


def tried(program: Program, phases: list[str], alone: bool, engine: str | None) -> dict[str, Any]:
    """One program's row."""
    begun = time.perf_counter()
    trial = Trial(program, phases, alone, engine)
    try:
        outcome = trial.run()
    except Exception as error:
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        trial.add("oracle", "invalid", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})")
        outcome = "invalid"
    return dict(
        name=program.name,
        kind=program.kind,
        outcome=outcome,
        also=[other for other in trial.outcomes()[1:] if other in BAD],
        engine=trial.engine,
        verdicts=trial.verdicts,
        seconds=round(time.perf_counter() - begun, 2),
        issues=[asdict(issue) for issue in trial.issues],
    )


def in_child(work: Any, log: Path) -> tuple[int, int]:
    """Forks a process that does some work and writes its result to a pipe; its id and the pipe's end."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 0
    try:
        os.close(read)
        os.setpgid(0, 0)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        faulthandler.enable()
        faulthandler.dump_traceback_later(TIMEOUT - 5)
        text = json.dumps(work())
        with os.fdopen(write, "w") as pipe:
            pipe.write(text)
    except BaseException:
        traceback.print_exc()
        code = 70
    finally:
        os._exit(code)
    raise AssertionError


def warmed() -> list[str]:
    """The modules that a capture imports late; found in a child, so that no backward has run here."""

    def work() -> list[str]:
        before = set(sys.modules)
        import backprint as bp

        model, x = torch.nn.Linear(2, 2), torch.randn(1, 2)
        for engine in ("aot", "dynamo", "eager"):
            capture = bp.capture(model, x, engine=engine)
            capture.verify()
            with tempfile.TemporaryDirectory() as folder:
                capture.save(Path(folder) / "sample")
                bp.load(Path(folder) / "sample").verify()
        return sorted(set(sys.modules) - before)

    with tempfile.TemporaryDirectory() as folder:
        pid, pipe = in_child(work, Path(folder) / "log")
        with os.fdopen(pipe) as file:
            text = file.read()
        os.waitpid(pid, 0)
    return json.loads(text) if text else []


def rows(programs: list[Program], jobs: int, work: Callable[[Program], Any]) -> Iterator[dict[str, Any]]:
    """Runs every program in a process of its own, so many at a time; their rows as they come."""
    import selectors

    waiting = collections.deque(programs)
    selector = selectors.DefaultSelector()
    with tempfile.TemporaryDirectory() as folder:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < jobs:
                program = waiting.popleft()
                log = Path(folder) / f"{program.name}.log"
                pid, pipe = in_child(lambda program=program: work(program), log)
                selector.register(
                    pipe, selectors.EVENT_READ, dict(program=program, pid=pid, log=log, begun=time.time(), text=b"")
                )
            for key, _ in selector.select(timeout=1):
                chunk = os.read(key.fd, 1 << 20)
                key.data["text"] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(key.data["pid"], 0)
                    yield finished(key.data, status)
            for key in list(selector.get_map().values()):
                if time.time() - key.data["begun"] > TIMEOUT:
                    os.killpg(key.data["pid"], signal.SIGKILL)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    os.waitpid(key.data["pid"], 0)
                    yield lost(key.data, f"still running after {TIMEOUT} s")


def finished(data: dict[str, Any], status: int) -> dict[str, Any]:
    """The row of a process that has ended."""
    try:
        row = json.loads(data["text"])
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        return lost(data, f"ended with {signal.Signals(-code).name if code < 0 else code}")
    if row["outcome"] == "invalid" or os.environ.get("TRUTH_LOGS"):
        row["log"] = _tail(data["log"])
    return row


def lost(data: dict[str, Any], why: str) -> dict[str, Any]:
    """The row of a process that gave none."""
    program = data["program"]
    issue = dict(phase="process", sort="crash", text=why)
    common = dict(engine="", verdicts={}, seconds=round(time.time() - data["begun"], 2), issues=[issue])
    return dict(name=program.name, kind=program.kind, outcome="CRASH", log=_tail(data["log"]), **common)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""


def table(found: list[dict[str, Any]]) -> str:
    """Counts of each outcome by class."""
    columns = [o for o in OUTCOMES if any(row["outcome"] == o for row in found)]
    kinds = sorted({row["kind"] for row in found})
    lines = [["class", *columns, "all"]]
    for kind in [*kinds, None]:
        here = [row for row in found if kind is None or row["kind"] == kind]
        counts = collections.Counter(row["outcome"] for row in here)
        lines.append([kind or "all", *(str(counts[c] or "") for c in columns), str(len(here))])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    )


def reason(row: dict[str, Any]) -> str:
    """Why a program has its outcome, in a line."""
    sorts = REASONS.get(row["outcome"], ())
    issues = [i for sort in sorts for i in row["issues"] if i["sort"] == sort]
    if not issues:
        return ""
    more = f" (and {len(issues) - 1} more)" if len(issues) > 1 else ""
    return f"{issues[0]['phase']}: {issues[0]['text'][:200]}{more}"


def listed(found: list[dict[str, Any]], verbose: bool) -> Iterator[str]:
    """Each program that is not as it should be, with its reason."""
    shown = (
        "CRASH",
        "SILENT",
        "CHANGED",
        "flagged-wrong",
        "flagged-right",
        "unreplayable",
        "degraded",
        "told",
        "invalid",
        "nondeterministic",
    )
    for outcome in shown + (("refused",) if verbose else ()):
        here = [row for row in found if row["outcome"] == outcome]
        if here:
            yield f"\n{outcome}"
        for row in here:
            also = "".join(f" +{other}" for other in row.get("also", ()))
            yield f"  {row['kind']}/{row['name']} [{row['engine'] or '-'}]{also} {reason(row)}"
            if verbose:
                yield from (f"      {i['phase']} | {i['sort']} | {i['text']}" for i in row["issues"])
                yield from (f"      log: {line}" for line in row.get("log", "").splitlines()[-15:])
    if verbose:
        for row in found:
            if row["outcome"] in ("right", "guarded"):
                yield f"\n{row['outcome']}  {row['kind']}/{row['name']} [{row['engine']}] {row['verdicts']}"
                yield from (f"      {i['phase']} | {i['sort']} | {i['text']}" for i in row["issues"])


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], help="a program's name, or a part of it; may be given again"
    )
    parser.add_argument("--class", dest="kind", action="append", default=[], help="a module of `odd`")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", help="where to write every row")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--every", type=int, default=1, help="each K-th program only")
    parser.add_argument("--alone", action="store_true", help="also run each model.py by itself (slow)")
    parser.add_argument("--engine", help="the engine of every capture, in place of the program's own choice")
    parser.add_argument("--device", default="cpu", help="where the programs' arguments and modules are, as cuda")
    parser.add_argument("--default-device", action="store_true", help="and it is torch's default, for new tensors too")
    parser.add_argument("--verbose", action="store_true", help="everything that was found")
    options = parser.parse_args()
    load_programs()
    chosen = [p for p in PROGRAMS.values() if not options.kind or p.kind in options.kind]
    exact = [p for p in chosen if p.name in options.only]
    if options.only:
        chosen = exact or [p for p in chosen if any(part in p.name for part in options.only)]
    chosen = chosen[:: options.every]
    for name in warmed():
        try:
            importlib.import_module(name)
        except Exception:
            continue

    def work(program: Program) -> dict[str, Any]:
        if options.device != "cpu":  # here, because a process that has begun with a GPU cannot be forked
            DEVICE[:] = [torch.empty(0, device=options.device).device]
            if options.default_device:
                torch.set_default_device(DEVICE[0])
        return tried(program, options.phases, options.alone, options.engine)

    found = []
    begun = time.time()
    for row in rows(chosen, options.jobs, work):
        found.append(row)
        if sys.stderr.isatty() or options.verbose:
            print(
                f"{len(found)}/{len(chosen)} {row['outcome']:14} {row['kind']}/{row['name']}",
                file=sys.stderr,
                flush=True,
            )
        if options.json and (len(found) % 20 == 0 or len(found) == len(chosen)):
            Path(options.json).write_text(json.dumps(found, indent=1))
    found.sort(key=lambda row: (row["kind"], row["name"]))
    print(table(found))
    print(*listed(found, options.verbose), sep="\n")
    print(f"\n{len(found)} programs in {time.time() - begun:.0f} s")
    return 1 if any(row["outcome"] in BAD for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
