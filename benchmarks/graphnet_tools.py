"""Run GraphNet's own tools on samples of ours, and tabulate what they say.

    python benchmarks/graphnet_tools.py --graphnet DIR SAMPLES...

DIR is a checkout of PaddlePaddle/GraphNet; a SAMPLE is any folder with graph folders (`model.py`, `graph_net.json`)
in it or below: a sample of ours, with its forward and backward folders, or a tree of `--layout graphnet`. Each graph
folder goes through `graph_net_bench.torch.test_compiler`, once for each compiler, in a process of its own, and with
`--validate` through `graph_net.torch.validate` too. The exit code alone proves little there, so what its log says is
read: its status, its error paths, and how many outputs its two runs agree on. Exits with 1 if anything is not clean.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ERRORS = re.compile(
    r"Traceback|^\w*Error\b|execution failed|debug-model-execution|\[Fail|status: failed|missing|match:False|"
    r"Failed to generate|incomplete|Redundant|AssertionError|not found",
)
"""What a line of their error paths looks like."""

NOISE = re.compile(r"^\s+(File|raise|return|assert)|Environment fluctuation")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one of their tools said of one graph folder."""

    graph: str
    tool: str
    code: int
    status: str
    equal: str
    worst: float | None
    errors: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """No error path, and all that was compared agrees to float noise; NaN agrees with nothing."""
        return self.code == 0 and self.status == "success" and not self.errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphnet", type=Path, required=True, help="a checkout of PaddlePaddle/GraphNet")
    parser.add_argument("--compilers", default="nope,inductor", help="test_compiler's backends, comma-separated")
    parser.add_argument("--validate", action="store_true", help="their validator as well")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one tool on one graph")
    parser.add_argument("--out", type=Path, help="where the logs and outcomes.json go")
    parser.add_argument("samples", nargs="+", type=Path)
    options = parser.parse_args()
    graphs = [graph for sample in options.samples for graph in graphs_below(sample)]
    if not graphs:
        sys.exit("no folder with model.py and graph_net.json below " + ", ".join(map(str, options.samples)))
    compilers = [compiler for compiler in options.compilers.split(",") if compiler]
    tools = [*compilers, *(["validate"] if options.validate else [])]
    jobs = [(graph, tool) for graph in graphs for tool in tools]
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = []
        for outcome in pool.map(lambda job: judged(job[0], job[1], options), jobs):
            outcomes.append(outcome)
            print(row(outcome), flush=True)
    if options.out:
        content = [asdict(outcome) for outcome in outcomes]
        (options.out / "outcomes.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for tool in tools:
        found = [outcome for outcome in outcomes if outcome.tool == tool]
        print(f"{tool}: {sum(outcome.clean for outcome in found)} of {len(found)} clean")
    sys.exit(not all(outcome.clean for outcome in outcomes))


def graphs_below(sample: Path) -> Iterator[Path]:
    """The graph folders of a sample or a tree, in order."""
    for place in sorted(sample.rglob("graph_net.json")):
        if (place.parent / "model.py").is_file():
            yield place.parent


def judged(graph: Path, tool: str, options: argparse.Namespace) -> Outcome:
    """One tool on a copy of one graph folder's sample: the validator writes beside what it reads."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "graph"
        shutil.copytree(graph, copy)
        command = [sys.executable, "-m", *arguments(tool, copy, Path(work), options.device)]
        try:
            done = subprocess.run(
                command,
                env=environment(options, work),
                cwd=work,
                text=True,
                errors="replace",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=options.timeout,
                check=False,
            )
            code, log = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            code, log = -1, f"TimeoutError after {error.timeout:.0f} s\n"
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "_", str(graph).strip("/"))
        (options.out / f"{name}.{tool}.log").write_text(log, encoding="utf-8")
    return read(str(graph), tool, code, log)


def arguments(tool: str, graph: Path, work: Path, device: str) -> list[str]:
    """Their command lines."""
    if tool == "validate":
        empty = work / "samples"
        empty.mkdir()
        return ["graph_net.torch.validate", "--model-path", str(graph), "--graph-net-samples-path", str(empty)]
    run = ["graph_net_bench.torch.test_compiler", "--model-path", str(graph), "--compiler", tool]
    return [*run, "--device", device, "--warmup", "1", "--trials", "2"]


def environment(options: argparse.Namespace, work: str) -> dict[str, str]:
    """Their checkout in front; a share of the cores, as threads of several processes wait for each other by spinning;
    and no failure because the clock of a shared machine is unsteady."""
    paths = [str(options.graphnet.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    asked = {"GRAPH_NET_FLUCTUATION_DETECT_THRESHOLD": "1e9", "GRAPH_NET_EXTRACT_WORKSPACE": work}
    asked["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // options.jobs))
    return {**os.environ, **asked, "PYTHONPATH": os.pathsep.join(paths)}


def read(graph: str, tool: str, code: int, log: str) -> Outcome:
    """What a log says."""
    lines = log.splitlines()
    errors = tuple(line.strip()[:200] for line in lines if ERRORS.search(line) and not NOISE.search(line))
    if tool == "validate":
        return Outcome(graph, tool, code, "success" if "Validation success" in log else "failed", "", None, errors)
    status = said(lines, r"\[Result\] status: (\w+)") or "none"
    flags = said(lines, r"\[Correctness\]\[equal\]: ([01 ]*)").split()
    moved = said(lines, r"\[Correctness\]\[max_diff\]: (.*)").split()
    lost = [index for index, value in enumerate(moved) if value == "nan" and flags[index] == "0"]
    if lost:  # where both have the same infinity they agree, and their difference is NaN all the same
        errors += (f"max_diff: {len(lost)} of {len(moved)} outputs are NaN",)
    worst = max((float(value) for value in moved if value != "nan"), default=None)
    return Outcome(graph, tool, code, status, f"{flags.count('1')}/{len(flags)}", worst, errors)


def said(lines: list[str], pattern: str) -> str:
    """The first group of the first line that matches."""
    return next((found[1] for line in lines if (found := re.search(pattern, line))), "")


def row(outcome: Outcome) -> str:
    """One line of the table."""
    worst = "" if outcome.worst is None else f"max_diff {outcome.worst:.2g}"
    head = f"{'ok ' if outcome.clean else 'BAD'} {outcome.tool:9} exit {outcome.code:2} {outcome.status:8}"
    return f"{head} equal {outcome.equal:8} {worst:18} {outcome.graph} {'; '.join(outcome.errors[-2:])}".rstrip()


if __name__ == "__main__":
    main()
