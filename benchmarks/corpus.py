"""What a corpus run costs besides its samples: 10,000 synthetic ones with a verb that does next to nothing.

    python benchmarks/corpus.py [COUNT] [JOBS] [--ray]

With `--ray`, on a cluster of three nodes of one core each on this machine's loopback address. Prints, for each tenth of
the way, the samples a second, the parent's memory and the ledger's size. The first two have to stay as they are, the
last grows by as much each time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def main(count: int, jobs: int, ray: bool) -> None:
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
        with on_ray(plan.verb) if ray else contextlib.nullcontext() as elsewhere:
            started = time.perf_counter()
            run_plan(plan, LIMITS, jobs, watcher=watch, executor=elsewhere)
        print(f"{count:,} samples, {jobs} workers: {time.perf_counter() - started:.1f} s with the search")


@contextlib.contextmanager
def on_ray(verb: str) -> Iterator[Any]:
    """A cluster of three nodes, for as long as it is needed."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    from ray.cluster_utils import Cluster as Nodes

    from backprint.tools.jobs.ray import cluster

    node = {"num_cpus": 1, "object_store_memory": 100 << 20, "memory": 2 * GIB, "node_ip_address": "127.0.0.1"}
    nodes = Nodes(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    try:
        for _ in range(2):
            nodes.add_node(**node)
        yield cluster(nodes.address, verb, {}, (LIMITS.timeout, 1.0, None))[1]
    finally:
        nodes.shutdown()


LIMITS = Limits(memory=GIB)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("count", nargs="?", type=int, default=10_000)
    parser.add_argument("jobs", nargs="?", type=int, default=cores())
    parser.add_argument("--ray", action="store_true")
    main(**vars(parser.parse_args()))
