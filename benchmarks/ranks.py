"""Sharded training steps, all ranks in one process: proved together, alone, from disk and against the whole.

    python benchmarks/ranks.py programs [--ranks 2 4]
    python benchmarks/ranks.py bugs [NAME ...]
    python benchmarks/ranks.py large [--layers 126]

`programs` captures every program of `tests/subjects/sharded.py`. Printed are the verdicts of all ranks together, of
each rank alone, and of both again in a new process without a process group, which reads what was saved. Then whether
the gradients are the whole's, their largest relative error, and the seconds of the capture and of all that.

`bugs` captures every bug of `tests/subjects/sharding_bugs.py`, and its twin, which is the same code without the bug.
Printed are whether each is equal to the whole, and of a bug the cause and the line of the first gradient whose cause is
known, or of the first. A bug is caught if it is not equal to the whole. A twin that is not equal is an alarm.

`large` captures rank 0 of Llama-3.1-405B on 128 x 8 ranks without values, from the command line, and compares the bytes
that it sends with `Sizes.bytes_sent`, a formula by hand. Bars: 30 s and 1.2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results import Figure, keep

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from subjects import llama_on_ranks
from subjects.llama_on_ranks import LARGE
from subjects.sharded import Program, programs
from subjects.sharding_bugs import BUGS, Bug

import backprint as bp
from backprint.tools.cost.traffic import bytes_by_group, sides_of, traffic_of

# ---- Programs

READ_AGAIN = """
import json, sys, torch, backprint as bp
world = bp.load_world(sys.argv[1])
together, alone = world.verify(), [capture.verify()[0] for capture in world.ranks]
if torch.distributed.is_initialized():
    sys.exit("there is a process group")
print(json.dumps([[verdict.verdict for verdict in verdicts] for verdicts in (together, alone)]))
"""
"""What a new process does with a World that was saved: it prints the verdicts of all ranks together, and of each."""


def captured(program: Program, ranks: int) -> Any:
    return bp.capture(program.model, *program.args, world=ranks, shard=program.shard)


def in_words(verdicts: Sequence[str]) -> str:
    """The verdicts of all ranks: one word if they are the same."""
    return verdicts[0] if len(set(verdicts)) == 1 else ",".join(verdicts)


WELL = ("bitwise", "undifferentiable")
"""What the verdict of a rank may be: a step that runs backward itself has no output that requires grad."""


def verdicts_from_disk(world: Any) -> list[list[str]]:
    """The verdicts of a World that is saved and read in a new process: of all ranks together, and of each alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = world.save(Path(folder) / "world")
        command = [sys.executable, "-W", "ignore", "-c", READ_AGAIN, str(path)]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        last = " ".join(run.stderr.strip().splitlines()[-2:])  # the error, and in which rank it was raised
        raise bp.errors.SampleError(f"read again: {last}")
    verdicts: list[list[str]] = json.loads(run.stdout)
    return verdicts


def print_program(name: str, program: Program, ranks: int) -> bool:
    """Print the row of a program; return whether all is well."""
    start = time.monotonic()
    print(f"{name:<28} {ranks:>5}  ", end="", flush=True)
    try:
        world = captured(program, ranks)
        seconds = time.monotonic() - start
        together = [verdict.verdict for verdict in world.verify()]
        alone = [capture.verify()[0].verdict for capture in world.ranks]
        columns = [together, alone, *verdicts_from_disk(world)]
        whole = world.against_whole()
    except bp.errors.BackprintError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return False
    words = " ".join(f"{in_words(column):<{WIDTH}}" for column in columns)
    print(f"{words} {whole.verdict:<22} {whole.error:8.1e} {seconds:8.1f} {time.monotonic() - start:6.1f}", flush=True)
    return whole.ok and all(verdict in WELL for column in columns for verdict in column)


WIDTH = len(WELL[1])
"""The width of a column of verdicts."""


def print_programs(counts: Sequence[int]) -> list[Figure]:
    """Print the table of all programs."""
    words = " ".join(f"{word:<{WIDTH}}" for word in ("together", "alone", "read: together", "read: alone"))
    print(f"{'program':<28} ranks  {words} {'against the whole':<22} {'error':>8}  capture    all")
    tables = {ranks: programs(experts=ranks) for ranks in counts}
    rows = [print_program(name, row, ranks) for ranks, table in tables.items() for name, row in table.items()]
    what = f"sharded steps bitwise together, alone and from disk, and equal to the whole, of {len(rows)}"
    return [Figure(what, sum(rows), at_least=len(rows))]


# ---- Bugs


def whole_of(program: Program, ranks: int) -> Any:
    """Whether a program is equal to the whole; the error, if it cannot be captured."""
    try:
        return captured(program, ranks).against_whole()
    except bp.errors.BackprintError as error:
        return error


def verdict_of(whole: Any) -> str:
    return f"{type(whole).__name__}: {whole}" if isinstance(whole, Exception) else str(whole.verdict)


def print_bug(bug: Bug) -> tuple[bool, bool, bool]:
    """Print the row of a bug; return whether it is caught, whether its cause is named, and whether its twin alarms."""
    whole, twin = whole_of(bug.program, bug.ranks), whole_of(bug.twin, bug.ranks)
    faults = () if isinstance(whole, Exception) else whole.faults
    fault = next((fault for fault in faults if fault.cause), faults[0] if faults else None)
    cause, place = "", ""
    if fault is not None:
        cause = f"{fault.name} {fault.cause or 'is another'}"
        place = f"{Path(fault.source.file).name}:{fault.source.line}" if fault.source is not None else "no line"
    of_bug, of_twin = verdict_of(whole), verdict_of(twin)
    print(f"{bug.name:<33} {of_bug:<22} {place:<22} {of_twin:<22} {cause}", flush=True)
    return of_bug == "not equal to the whole", any(row.cause for row in faults), of_twin != "equal to the whole"


def print_bugs(names: Sequence[str]) -> list[Figure]:
    """Print the table of bugs and their twins."""
    print(f"{'bug':<33} {'it is':<22} {'line':<22} {'its twin is':<22} first cause")
    rows = [print_bug(bug) for bug in BUGS if not names or bug.name in names]
    caught, named, alarms = (sum(column) for column in zip(*rows, strict=True))
    print(f"the cause of {named} is named")
    print(f"caught {caught} of {len(rows)}, alarms {alarms} of {len(rows)}")
    return [
        Figure(f"planted sharding faults that are not equal to the whole, of {len(rows)}", caught, at_least=len(rows)),
        Figure("of these with a named cause", named),
        Figure("alarms at their twins without the fault", alarms, at_most=0),
    ]


# ---- One rank of a thousand

FACTORY = f"{Path(llama_on_ranks.__file__)}:large"


def print_large(layers: int) -> list[Figure]:
    """Capture 405B from the command line, and compare what it sends with the formula."""
    sizes = replace(LARGE, layers=layers)
    with tempfile.TemporaryDirectory() as folder:
        command = ["capture", FACTORY, "--fake", "--world", str(sizes.dp * sizes.tp), "-o", f"{folder}/world"]
        environment = {**os.environ, "LAYERS": str(layers)}
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "backprint", *command], check=True, env=environment)
        numbers = {
            "seconds": time.perf_counter() - begun,
            "gibibytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20,
        }
        [capture] = bp.load_world(f"{folder}/world").ranks
        sent = bytes_by_group(traffic_of(capture))
        steps = [len(graph.steps) for _, graph in sides_of(capture.pairs[0])]
    print(
        f"{numbers['seconds']:.1f} s, {numbers['gibibytes']:.2f} GiB, steps: {' and '.join(map('{:,}'.format, steps))}"
    )
    print("\n".join(capture.notes))
    wanted = {group: int(size) for group, size in sizes.bytes_sent().items()}
    for group, size in sent.items():
        print(f"{group}: {size:,} bytes, {wanted[group]:,} by the formula")
    equal = sum(sent.get(group) == size for group, size in wanted.items())
    what = f"rank 0 of Llama-3.1-405B on {sizes.dp * sizes.tp:,} ranks"
    return [
        Figure(what, numbers["seconds"], "s", at_most=30.0),
        Figure("the same, peak memory", numbers["gibibytes"], "GiB", at_most=1.2),
        Figure(
            f"dimensions over which it sends the bytes of the formula, of {len(wanted)}", equal, at_least=len(wanted)
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    of_programs = verbs.add_parser("programs", help="every program, with these numbers of ranks")
    of_programs.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    verbs.add_parser("bugs", help="every bug and its twin").add_argument("names", nargs="*", metavar="NAME")
    verbs.add_parser("large", help="405B on 1,024 ranks").add_argument("--layers", type=int, default=LARGE.layers)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # torch.distributed's own deprecations
    match given.verb:
        case "programs":
            figures = print_programs(given.ranks)
        case "bugs":
            figures = print_bugs(given.names)
        case _:
            figures = print_large(given.layers)
    return keep(f"ranks_{given.verb}", figures)


if __name__ == "__main__":
    sys.exit(main())
