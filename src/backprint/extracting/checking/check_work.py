"""The process of a check: it runs kernels, and notes a Verdict of each graph.

    python -P -m backprint.extracting.checking.check_work FOLDER

The forward is judged by eager's. Its kernels' own saved tensors go to the kernels of the backward, and to eager's
backward in the captured dtypes, by which the backward is judged. What `sample/judged` calls equal is equal here.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint import defects
from backprint.benching.subjects import BenchGraph, bench_graphs
from backprint.errors import BackprintError, RefusedError
from backprint.extracting.checking.check_folder import (
    KERNELS,
    SAMPLE,
    CheckPlan,
    CheckSubject,
    note_begun,
    note_verdict,
    noted_verdicts,
    read_plan,
)  # fmt: skip
from backprint.extracting.checking.kernel_rounding import RoundingBound
from backprint.extracting.checking.lift_draws import LiftedRun, lifted_run
from backprint.extracting.checking.run_kernels import KernelRuns, root_of, runnable_graph, told
from backprint.extracting.lowering.inductor import lowering_for
from backprint.extracting.lowering.recorded_calls import is_workspace
from backprint.extracting.targets import target_named
from backprint.graph.verdicts import GOOD, KERNELS_EAGER, PortVerdict, Verdict, worst
from backprint.sample.judged import Eager, apart, judged
from backprint.sample.load import load
from backprint.sample.rerun import EagerRun

NOT_COMPARED = {"nondeterministic": "unproven", "random": "unproven"}
"""Words of `judged` that compare nothing -> the word of a Verdict."""

MOST_CONFIGURATIONS = 64


def check_graphs() -> None:
    """Check the graphs of the folder that the command line names, those without a Verdict."""
    folder = Path(sys.argv[1])
    plan = read_plan(folder)
    try:
        graphs = graphs_of_check(plan, folder)
    except RefusedError as error:  # of its inputs: no kernel ran
        for subject in plan.subjects:
            note_verdict(folder, Verdict("unproven", subject.title, str(error)))
        return
    for verdict in verdicts(plan, graphs, folder):
        note_verdict(folder, verdict)


def graphs_of_check(plan: CheckPlan, folder: Path) -> dict[str, BenchGraph]:
    """Make this process ready to run kernels; return the graphs of the sample, which ran in eager, by title."""
    torch.set_num_threads(plan.threads)
    take_states_from_anywhere()
    if any(kernel.language == "triton" for subject in plan.subjects for kernel in subject.kernels):
        from backprint.extracting.checking.mend_interpreter import mend

        mend()
    capture = load(folder / SAMPLE, allow=plan.allow, trust=True)  # this process is its own
    return {graph.title: graph for graph in bench_graphs(capture)}


def take_states_from_anywhere() -> None:
    """Let a random state lie anywhere in its storage: torch 2.13 reads it from the storage's start, and crashes."""
    setting = torch.set_rng_state
    torch.set_rng_state = lambda new_state: setting(new_state.clone())


def verdicts(plan: CheckPlan, graphs: Mapping[str, BenchGraph], folder: Path) -> Iterator[Verdict]:
    """Yield a Verdict for each graph that has none."""
    known = noted_verdicts(folder)
    for pair in dict.fromkeys(subject.pair for subject in plan.subjects):
        forward = ForwardKernels()
        for subject in plan.subjects:
            if subject.pair != pair:
                continue
            if subject.direction == "forward" and subject.title in known:
                forward = ForwardKernels(known[subject.title])
            if subject.title in known:
                continue
            note_begun(folder, subject.title)
            made = verdict_of(subject, plan, graphs[subject.title], forward, folder)
            if subject.direction == "forward":
                forward = replace(made[1], verdict=made[0])
            yield made[0]


@dataclass(frozen=True, slots=True)
class ForwardKernels:
    """What the kernels of a forward gave: its Verdict, and what it saved on the target."""

    verdict: Verdict | None = None
    saved: Mapping[str, Any] = field(default_factory=dict)
    lifted: bool = False


def verdict_of(
    subject: CheckSubject, plan: CheckPlan, bench: BenchGraph, forward: ForwardKernels, folder: Path
) -> tuple[Verdict, ForwardKernels]:
    """Return the Verdict of one graph, and of a forward what its kernels saved."""
    failed = forward.verdict is not None and forward.verdict.verdict == "failed"
    if subject.direction == "backward" and failed:
        return Verdict("unproven", subject.title, "the kernels of its forward did not run, and saved nothing"), forward
    try:
        return GraphCheck(subject, plan, bench, forward, folder).checked()
    except RefusedError as error:
        return Verdict("unproven", subject.title, str(error)), ForwardKernels()
    except Exception as error:
        if defects.is_defect(error):
            traceback.print_exc()
            return Verdict("failed", subject.title, f"a defect of Backprint: {defects.told(error)}"), ForwardKernels()
        cause = root_of(error)
        word = "unproven" if isinstance(cause, (RefusedError, NotImplementedError)) else "failed"
        return Verdict(word, subject.title, str(error) if isinstance(error, BackprintError) else told(error)), (
            ForwardKernels()
        )


@dataclass(frozen=True, slots=True)
class GraphCheck:
    """One graph at work."""

    subject: CheckSubject
    plan: CheckPlan
    bench: BenchGraph
    forward: ForwardKernels
    folder: Path

    def checked(self) -> tuple[Verdict, ForwardKernels]:
        """Run the kernels in each configuration that is asked for, and compare."""
        judge = self.judge()
        found: list[Verdict] = []
        saved: Mapping[str, Any] = {}
        for place in range(MOST_CONFIGURATIONS):
            runs, results = judge.results(self.subject, place)
            found.append(judge.verdict(self.subject, runs, results))
            if not place:
                saved = saved_of(judge.run, results)
            if not self.plan.every_configuration or place + 1 >= runs.configurations:
                break
        word = worst([each.verdict for each in found])
        chosen = next(each for each in found if each.verdict == word)
        return chosen, ForwardKernels(saved=saved, lifted=bool(self.subject.draws))

    def judge(self) -> GraphJudge:
        """Return what runs kernels of this graph and compares their results."""
        lifted = lifted_run(self.bench)
        if tuple(lifted.names) != self.subject.draws:
            raise RefusedError(f"the kernels were made with the draws {self.subject.draws}, not {tuple(lifted.names)}")
        given = self.given(lifted)
        bound = RoundingBound(Eager(self.judging_run(lifted, given), drawn_anew), given)
        return GraphJudge(self.plan, self.folder, bound)

    def given(self, lifted: LiftedRun) -> list[Any]:
        """Return the inputs of the kernels: eager's, and of a backward what the kernels of its forward saved."""
        values = list(lifted.run.inputs)
        if self.subject.direction == "backward":
            for place, port in enumerate(self.subject.inputs):
                if port.role == "saved" and port.name in self.forward.saved:
                    values[place] = self.forward.saved[port.name]
        for place, (port, value) in enumerate(zip(self.subject.inputs, values, strict=True)):
            own = self.forward.saved and not self.forward.lifted
            if port.role == "saved" and isinstance(value, Tensor) and not own:
                if tuple(value.shape) != port.shape and not is_workspace(value):
                    raise RefusedError(f"what eager saves has another shape than on the target: {port.name} is "
                                       f"{list(value.shape)}, and there {list(port.shape)}: check the backward with "
                                       "its forward")  # fmt: skip
                values[place] = value.to(getattr(torch, port.dtype))
        return values

    def judging_run(self, lifted: LiftedRun, given: Sequence[Any]) -> EagerRun:
        """Return the eager run by which results are judged: of a backward, on what the kernels saved."""
        if self.subject.direction == "forward" or not self.forward.saved:
            return lifted.run
        pairs = zip(given, lifted.run.inputs, strict=True)
        inputs = [in_place_of(kept, value) if same_shape(value, kept) else kept for value, kept in pairs]
        run = replace(lifted.run, inputs=inputs)
        return replace(run, results=tuple(run.again(run.module())))


def drawn_anew(*values: Any) -> Any:
    """Stand for kernels where eager would have to draw as they do: their draws are inputs."""
    raise RefusedError("the graph still draws random numbers in eager, and its kernels draw others")


@dataclass(frozen=True, slots=True)
class GraphJudge:
    """The inputs of a graph's kernels, and the eager runs that their results are compared with."""

    plan: CheckPlan
    folder: Path
    bound: RoundingBound

    @property
    def run(self) -> EagerRun:
        """The eager run that results are compared with."""
        return self.bound.eager.run

    def results(self, subject: CheckSubject, place: int = 0) -> tuple[KernelRuns, list[Any]]:
        """Run the kernels in one of their configurations; return which ran, and the results."""
        sources = self.folder / KERNELS
        sources.mkdir(exist_ok=True)
        with lowering_for(target_named(self.plan.target), self.plan.threads):
            made = runnable_graph(subject.wrapper, subject.kernels, subject.inputs, sources, place)
            return made.runs, made.run(self.bound.given)

    def verdict(self, subject: CheckSubject, runs: KernelRuns, results: Sequence[Any]) -> Verdict:
        """Compare results with eager's."""
        wanted = self.run.outputs
        if len(results) != len(wanted):
            given = f"{len(results)} results, and eager gives {len(wanted)}"
            return Verdict("wrong", subject.title, f"the kernels give {given}")
        ports = tuple(port_verdicts(self.bound, subject, results))
        word = worst([port.verdict for port in ports if not (port.role == "saved" and others_tell(port, ports))])
        names = [kernel.name for kernel in subject.kernels]
        idle = [name for name in names if not runs.counts[name]]
        if idle and word in GOOD:
            word = "unproven"
        said = [named_first(ports, word), f"{len(names) - len(idle)} of {len(names)} kernels ran"]
        said += [f"{', '.join(idle)} did not"] if idle else []
        said += [self.configurations_seen(runs.configurations), *subject.unseen]
        return Verdict(word, subject.title, "; ".join(each for each in said if each), ports)

    def configurations_seen(self, count: int) -> str:
        """Say which configurations ran."""
        if count <= 1:
            return ""
        return f"all of {count} configurations" if self.plan.every_configuration else "the first configuration of each"

    def warm(self) -> None:
        """Make the eager runs that comparisons may need."""
        eager = self.bound.eager
        _ = eager.again, eager.reseeded, eager.nudged, eager.wide, eager.rounded, self.bound.exact


def port_verdicts(bound: RoundingBound, subject: CheckSubject, results: Sequence[Any]) -> Iterator[PortVerdict]:
    """Yield what is to be said of each output."""
    eager = bound.eager
    lowered = {(port.role, port.name): port.shape for port in subject.outputs}
    for place, ((role, name), wanted) in enumerate(zip(eager.run.outputs, eager.run.results, strict=True)):
        found = as_captured(results[place], wanted) if role == "saved" else results[place]
        if role == "saved" and is_other_workspace(found, wanted):
            detail = f"a workspace of {found.numel()} bytes on the target, where eager's has {wanted.numel()}"
            yield PortVerdict(name, role, "unproven", detail)
            continue
        if has_other_shape(found, wanted) and lowered.get((role, name)) == tuple(found.shape):
            detail = f"its shape on the target is {list(found.shape)}, and eager's here {list(wanted.shape)}"
            yield PortVerdict(name, role, "unproven", detail)
            continue
        word, detail = judged(eager, place, found)
        if word == "close" and (complaint := bound.complaint(place, results[place])):
            word, detail = "wrong", f"{detail}; {complaint}"
        error = apart(found, wanted) if word in ("close", "wrong") and same_shape(found, wanted) else 0.0
        yield PortVerdict(name, role, NOT_COMPARED.get(word, word), detail, error, witness=KERNELS_EAGER)


def is_other_workspace(found: Any, wanted: Any) -> bool:
    """Whether a tensor is a library's workspace, and another one on the target."""
    return is_workspace(found) and is_workspace(wanted) and found.shape != wanted.shape


def has_other_shape(found: Any, wanted: Any) -> bool:
    """Whether two results are tensors of different shapes. An operator of a GPU may give what a CPU's does not: a
    BatchNorm in evaluation its statistics, a library its workspace."""
    return isinstance(found, Tensor) and isinstance(wanted, Tensor) and found.shape != wanted.shape


def same_shape(found: Any, wanted: Any) -> bool:
    """Whether two results are tensors of the same shape."""
    return isinstance(found, Tensor) and isinstance(wanted, Tensor) and found.shape == wanted.shape


def as_captured(value: Any, wanted: Any) -> Any:
    """Return a saved tensor in the dtype in which it was captured."""
    return value.to(wanted.dtype) if same_shape(value, wanted) and value.dtype != wanted.dtype else value


def in_place_of(kept: Tensor, value: Tensor) -> Tensor:
    """Return a value as it would lie in that tensor's storage, which `as_strided` reads from its start."""
    if value is kept:
        return kept
    storage = kept.untyped_storage().clone()
    made = torch.empty(0, dtype=kept.dtype).set_(storage, kept.storage_offset(), kept.shape, kept.stride())
    narrow = tuple(slice(0, 1) if step == 0 else slice(None) for step in kept.stride())  # written once
    made[narrow].copy_(value[narrow])
    return made


def saved_of(run: EagerRun, results: Sequence[Any]) -> dict[str, Any]:
    """Return what a forward saves, by name."""
    return {name: value for (role, name), value in zip(run.outputs, results, strict=True) if role == "saved"}


def others_tell(port: PortVerdict, ports: Sequence[PortVerdict]) -> bool:
    """Whether a saved port that eager does not repeat, such as a workspace, leaves other ports to judge by."""
    return port.verdict == "unproven" and any(each.role != "saved" and each.verdict in GOOD for each in ports)


def named_first(ports: Sequence[PortVerdict], word: str) -> str:
    """Name the port that is the worst, or those that were not compared."""
    bad = [port for port in ports if port.verdict == word and word not in GOOD]
    bad = bad or [port for port in ports if port.verdict == "unproven"]
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"{bad[0]}{more}" if bad else ""


if __name__ == "__main__":
    check_graphs()
