"""A corpus run of many samples with a verb that does next to nothing: what it costs besides them.

    python tests/corpus/flat_run.py [COUNT] [JOBS]

Prints, for each tenth of the way, the samples a second, the parent's memory and the ledger's size. The first two have
to stay as they are, the last grows by as much each time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from backprint.child.limits import Limits, cores
from backprint.child.processes import status
from backprint.common.memory import GIB
from backprint.tools.jobs.ledger import NAME
from backprint.tools.jobs.run import Begun, RunPlan, Written, run_plan

VERB = """
def verb(task, options, staging):
    staging.mkdir()
    (staging / "capture.json").write_text("{}")
    return {"verdict": "bitwise", "forward_hash": task.source_hash, "asks": [["weight", "a parameter"]] * 20}
"""


def main(count: int, jobs: int) -> None:
    """Make the corpus, run, tell."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "verb.py").write_text(VERB)
        for number in range(count):
            place = folder / "samples" / f"family_{number % 10}" / f"sample_{number}"
            place.mkdir(parents=True)
            (place / "model.py").write_text(f"number = {number}\n")
        out = folder / "out"
        done, last = 0, time.perf_counter()
        print("| samples | a second | parent, MiB | ledger, MiB |\n|---:|---:|---:|---:|")

        def watch(event: object) -> None:
            nonlocal done, last
            if isinstance(event, Begun):
                last = time.perf_counter()
            if isinstance(event, Written):
                done += 1
                if done % (count // 10) == 0:
                    now = time.perf_counter()
                    size = sum(path.stat().st_size for path in out.glob(f"{NAME}*"))
                    rate, memory = count / 10 / (now - last), status("VmRSS") / 2**20
                    print(f"| {done:,} | {rate:.0f} | {memory:.1f} | {size / 2**20:.1f} |", flush=True)
                    last = now

        plan = RunPlan(f"{folder / 'verb.py'}:verb", folder / "samples", out)
        started = time.perf_counter()
        run_plan(plan, LIMITS, jobs, watcher=watch)
        print(f"{count:,} samples, {jobs} workers: {time.perf_counter() - started:.1f} s with the search")


LIMITS = Limits(memory=GIB)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("jobs", nargs="?", type=int, default=cores())
    main(**vars(parser.parse_args()))
