"""Plant errors in the kernels of a Capture, and count those that a check sees: the measure of the check itself.

`python -P -m kernels.check_faults LINE PARENT FOLDER`, with the tests on the path, is the process that runs them. A
fault is `seen` if the graph's kernels do not run or compare wrong, `nothing` if every result is the same to the bit,
`rounding` if results are as near to float64 as eager's or those of the right kernels, and `missed` else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from kernels.planted_faults import PlantedFault, planted_faults
from torch import Tensor

from backprint.child.child import in_child, line_of
from backprint.errors import is_defect
from backprint.graph.verdicts import GOOD
from backprint.tools.kernels.checking.check import make_check_subject, run_check_process, write_inputs
from backprint.tools.kernels.checking.plan import (
    SAMPLE,
    CheckPlan,
    CheckSubject,
    read_plan,
    write_plan,
)
from backprint.tools.kernels.nouns import CaptureKernels

SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault, and whether the check saw it."""

    graph: str
    kind: str
    told: str
    outcome: str
    """`seen`, `nothing`, `rounding` or `missed`."""
    detail: str = ""


def planted_and_checked(kernels: CaptureKernels, every: int = 1, timeout: float = 3600.0) -> list[FaultRow]:
    """Plant every error, or every third, …, in the kernels of a Capture; return what the check said of each."""
    subjects = tuple(make_check_subject(kernels, graph) for graph in kernels.graphs)
    plan = CheckPlan(kernels.target.name, kernels.threads, False, tuple(kernels.capture.requires), subjects)
    with tempfile.TemporaryDirectory(prefix="backprint_faults_") as name:
        folder = Path(name)
        write_inputs(kernels.capture, folder / SAMPLE)
        write_plan(folder, plan)
        with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1])):
            rows: list[FaultRow] = []
            run_check_process(
                "kernels.check_faults", folder, plan, timeout, every, lambda row: rows.append(FaultRow(**row))
            )
        return rows


def check_planted() -> None:
    """Check the faults of the folder that the command line names."""
    from backprint.tools.kernels.checking import work

    line, (place,) = line_of(sys.argv[1:])
    folder, every = Path(place), next(iter(line))
    plan = read_plan(folder)
    graphs = work.set_up_graphs(plan, folder)
    forward = work.ForwardKernels()
    for subject in plan.subjects:
        check = work.GraphCheck(subject, plan, graphs[subject.title], forward, folder)
        for row in rows_of_graph(check, every):
            line.send(asdict(row))
        if subject.direction == "forward":
            forward = check.run()[1]


def rows_of_graph(check: Any, every: int) -> Iterator[FaultRow]:
    """Yield a row for the faults of one graph."""
    judge = check.judge()
    runs, wanted = judge.run_kernels(check.subject)
    verdict = judge.compare(check.subject, runs, wanted)
    if verdict.verdict not in GOOD:
        yield FaultRow(check.subject.title, "none", "nothing was planted", "missed", verdict.detail)
        return
    judge.warm()
    faults = [fault for kernel in check.subject.kernels for fault in planted_faults(kernel)]
    for fault in faults[::every]:
        end = in_child(partial(outcome_of_fault, judge, check.subject, fault, wanted), SECONDS)
        outcome, detail = end.value if end.ended_well else ("seen", str(end))
        yield FaultRow(check.subject.title, fault.kind, fault.told, outcome, detail)


def outcome_of_fault(judge: Any, subject: CheckSubject, fault: PlantedFault, wanted: Sequence[Any]) -> tuple[str, str]:
    """Run a graph with a fault; return the outcome and the reason."""
    from backprint.tools.export.judged import one_to_the_bit

    kernels = tuple(fault.kernel if kernel.name == fault.kernel.name else kernel for kernel in subject.kernels)
    try:
        faulty = replace(subject, kernels=kernels)
        runs, results = judge.run_kernels(faulty)
        verdict = judge.compare(faulty, runs, results)
    except Exception as error:
        if is_defect(error):  # a fault is seen by what a check says of it, not by an error of the check
            raise
        return "seen", f"failed: {error}"[:300]
    if verdict.verdict not in GOOD:
        return "seen", f"{verdict.verdict}: {verdict.detail}"[:300]
    if all(map(one_to_the_bit, results, wanted)):
        return "nothing", ""
    pairs = enumerate(zip(results, wanted, strict=True))
    if all(one_to_the_bit(*both) or is_as_exact(judge.eager, place, *both) for place, both in pairs):
        return "rounding", ""
    return "missed", "; ".join(f"{port.name}: {port.detail}" for port in verdict.ports if port.detail)[:300]


def is_as_exact(eager: Any, place: int, faulty: Any, right: Any) -> bool:
    """Whether a result is at most a quarter further from float64 than eager's is, or that of right kernels."""
    wanted = eager.run.results[place]
    if not isinstance(wanted, Tensor) or not wanted.is_floating_point() or isinstance(eager.wide, str):
        return False
    faulty, own, unfaulty = (float((x.double() - eager.wide[place]).abs().max()) for x in (faulty, wanted, right))
    return faulty <= 1.25 * max(own, unfaulty)


if __name__ == "__main__":
    check_planted()
