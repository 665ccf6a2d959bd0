"""The process of a check: it runs the kernels of each graph, and sends a Verdict.

    python -P -m backprint.tools.kernels.checking.work LINE PARENT FOLDER

The forward is judged by eager's forward. The saved tensors of its kernels go to the kernels of the backward, and to
eager's backward in the captured dtypes, by which the backward is judged.

LINE and PARENT are for `backprint.child`: the connection on which messages go, and the parent process. FOLDER has the
sample and the plan. Words of this file:

- subject: the kernels of one graph (CheckSubject): `wrapper` is the code that calls them, `kernels` are their sources,
  `inputs` and `outputs` its ports as they are on the target, `draws` the steps whose draws are further inputs.
- plan: the subjects, and how they run (CheckPlan).
- EagerRun: a captured graph that ran in eager, with what is needed to run it again: `inputs`, `results`, and `outputs`,
  the role and name of each result. A BenchGraph is a graph of the sample with its EagerRun.
- Eager: an EagerRun with further runs of it, by which a result is judged (`tools/export/judged`).
- lifted: of a graph, with its random draws as further inputs, since kernels draw other numbers than eager.
- configuration: one of the ways to compile a Triton kernel: the sizes of its blocks. Here, the number of one.
- a band: bytes around a buffer that no kernel may write. A workspace is memory of a library, such as oneDNN, whose size
  and contents only that knows.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint import errors
from backprint._torch.inductor import AsyncCompile
from backprint.child.child import line_of
from backprint.errors import BackprintError, RefusedError, ReplayError
from backprint.graph.verdicts import GOOD, KERNELS_EAGER, PortVerdict, Verdict, worst
from backprint.sample.load import load
from backprint.tools.export.judged import Eager, apart, judged
from backprint.tools.export.rerun import EagerRun
from backprint.tools.kernels.build_triton import grid_of, load_tuner_from_file
from backprint.tools.kernels.checking.check import LiftedRun, run_lifted
from backprint.tools.kernels.checking.memory import BandedMemory, allow_arguments
from backprint.tools.kernels.checking.plan import (
    BEGUN,
    KERNELS,
    SAMPLE,
    CheckPlan,
    CheckSubject,
    read_plan,
    verdict_from_json,
)
from backprint.tools.kernels.extraction import load_wrapper, may_be_workspace, without_gpu
from backprint.tools.kernels.inductor import lowering_for
from backprint.tools.kernels.nouns import Kernel, LoweredPort, target_named
from backprint.tools.lowering.subjects import BenchGraph, bench_graphs

# ------------------------------------------------------------------ a wrapper and its kernels on CPU tensors
#
# A wrapper and its kernels are loaded from their texts: the source that a Kernel has is the one that runs. Extern calls
# (matmuls, convolutions) run as torch's own operators. The wrapper is code that Inductor wrote in the parent process.

CPU = torch.device("cpu")


class _KernelRunError(ReplayError):
    """A kernel did not run, or was not called as it was lowered."""


@dataclass(slots=True)
class _KernelRuns:
    """The number of runs of each kernel, the most configurations of a kernel, and the memory of the current run."""

    counts: Counter[str] = field(default_factory=Counter)
    configurations: int = 1
    memory: BandedMemory = field(default_factory=BandedMemory)

    def call(self, name: str, run: Callable[[], Any], arguments: Sequence[Any]) -> None:
        """Run a kernel; raise KernelRunError if it fails or writes outside of its arguments."""
        self.counts[name] += 1
        try:
            run()
            self.memory.check(arguments)
        except Exception as error:
            raise _KernelRunError(f"{name}: {_error_line(error)}") from _root_cause(error)


@dataclass(frozen=True, slots=True)
class _RunnableGraph:
    """The kernels of a graph, ready to run: `call` is the wrapper's function, which takes and returns lists."""

    inputs: Sequence[LoweredPort]
    call: Callable[[list[Any]], Sequence[Any]]
    runs: _KernelRuns

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run the wrapper on copies of these values, which must be those that it was written for."""
        self.runs.memory = BandedMemory()
        copies = [self.copy_input(port, value) for port, value in zip(self.inputs, values, strict=True)]
        with without_gpu():  # and not without grad, as in a training step: oneDNN's LSTM asks for that
            return list(self.call(copies))

    def copy_input(self, port: LoweredPort, value: Any) -> Any:
        """Return a copy of an input as the kernels expect it, between bands; a number as it is. Raise _KernelRunError
        if it is another than they were made for: another number, dtype or shape, but for a workspace."""
        if port.value is not None and type(value) is type(port.value):
            if value != port.value:
                raise _KernelRunError(f"{port.role} {port.name} is {value}, and the kernels were made for {port.value}")
            return value
        if may_be_workspace(value) and port.dtype == "uint8":
            return self.runs.memory.copy(value, value.stride())
        kind = f"{port.dtype}{list(port.shape)}"  # such as "float32[2, 3]"
        value_kind = type(value).__name__
        if isinstance(value, Tensor):
            value_kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if value_kind != kind:
            raise _KernelRunError(f"{port.role} {port.name} is {value_kind}, and the kernels were made for {kind}")
        return self.runs.memory.copy(value, port.stride)


def _runnable_graph(
    wrapper: str,
    kernels: Sequence[Kernel],
    inputs: Sequence[LoweredPort],
    folder: Path,
    configuration: int,
) -> _RunnableGraph:
    """Load a wrapper and its kernels; `folder` is for their sources, which Triton's interpreter reads. `configuration`
    is the number of the configuration that each Triton kernel runs in; those that have fewer run in their last."""
    kernels_by_name, runs = {kernel.name: kernel for kernel in kernels}, _KernelRuns()

    def load_kernel(name: str, types: Any) -> Any:
        """Return what the wrapper calls for a kernel; `types` are those of the arguments of C++, None of Triton."""
        if name not in kernels_by_name:
            raise _KernelRunError(
                f"the wrapper calls {name}, which is none of the kernels: {', '.join(kernels_by_name)}"
            )
        kernel = kernels_by_name[name]
        if types is None:
            return _interpreted_kernel(kernel, folder, configuration, runs)
        return compiled_kernel(kernel, types, runs)

    # `runs.memory` is another object in each run, so it is looked up when memory is allocated
    namespace = load_wrapper(wrapper, load_kernel, allocate=lambda *args: runs.memory.empty(*args), device=CPU)
    return _RunnableGraph(inputs, namespace["call"], runs)


@dataclass(frozen=True, slots=True)
class _InterpretedKernel:
    """Replaces a Triton kernel in a wrapper: it runs in Triton's interpreter. `tuner` is Inductor's autotuner of the
    kernel: `fn` is its function, and `triton_meta` says which arguments are constants. `configuration` is one of the
    tuner's."""

    name: str
    tuner: Any
    configuration: Any
    runs: _KernelRuns

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel in Triton's interpreter, on its whole grid. The keywords, as the stream, are no arguments of
        it."""
        names = [name for name in self.tuner.fn.arg_names if name not in self.configuration.kwargs]
        # an argument equal to 1 is a constant, and is passed all the same; other constants, at the end, are not
        named_arguments = dict(zip(names, args, strict=False))
        constants: Mapping[str, Any] = {**self.tuner.triton_meta["constants"], **self.configuration.kwargs}
        constants_not_passed = {name: value for name, value in constants.items() if name not in named_arguments}
        # a grid is computed of the numbers among the arguments
        values = [None if isinstance(value, Tensor) else value for value in args]

        def launch() -> None:
            grid = grid_of(self.tuner, self.configuration, values)
            with allow_arguments(args):
                self.tuner.fn[grid](**named_arguments, **constants_not_passed)

        self.runs.call(self.name, launch, args)


def _interpreted_kernel(kernel: Kernel, folder: Path, configuration: int, runs: _KernelRuns) -> _InterpretedKernel:
    """Load a Triton kernel for the interpreter, from a file in `folder`, in its configuration of that number or in its
    last; note in `runs` how many it has."""
    try:
        tuner = load_tuner_from_file(folder, kernel)
    except Exception as error:
        raise _KernelRunError(f"{kernel.name} cannot be loaded: {_error_line(error)}") from error
    configurations = tuner.configs
    runs.configurations = max(runs.configurations, len(configurations))
    return _InterpretedKernel(kernel.name, tuner, configurations[min(configuration, len(configurations) - 1)], runs)


def compiled_kernel(kernel: Kernel, types: Any, runs: _KernelRuns) -> Callable[..., None]:
    """Compile a C++ kernel, whose arguments have these types; return the function that the wrapper calls."""
    try:
        function = AsyncCompile().cpp_pybinding(types, kernel.source)
    except Exception as error:
        raise _KernelRunError(f"{kernel.name} cannot be compiled: {_error_line(error)}") from error

    def run(*args: Any) -> None:
        runs.call(kernel.name, lambda: function(*args), args)

    return run


def _root_cause(error: BaseException) -> BaseException:
    """Return what caused an error in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _error_line(error: BaseException) -> str:
    """Return the root cause of an error as one line."""
    cause = _root_cause(error)
    lines = [line for line in str(cause).strip().splitlines() if line.strip()]
    wrong = next((line for line in lines if "error:" in line), "".join(lines[:1]))  # of a compiler's output, its error
    return f"{type(cause).__name__}: {wrong.strip()[:300]}".removesuffix(": ")


# ------------------------------------------------------------------ the Verdict of each graph

NOT_COMPARED = {"nondeterministic": "unproven", "random": "unproven"}
"""Words of `judged` that compare nothing -> the word of a Verdict."""

MOST_CONFIGURATIONS = 64
"""How often a graph is run at most, each time with another configuration of its kernels."""


def _send_verdicts() -> None:
    """Send a Verdict for each graph of the folder that the command line names, but those whose verdicts are in the
    first message: an earlier process sent them before it ended."""
    line, (place,) = line_of(sys.argv[1:])
    folder = Path(place)
    known = {row["name"]: verdict_from_json(row) for row in next(iter(line))}
    plan = read_plan(folder)
    try:
        graphs = set_up_graphs(plan, folder)
    except RefusedError as error:  # of its inputs: no kernel ran
        for subject in plan.subjects:
            line.send(asdict(Verdict("unproven", subject.title, str(error))))
        return
    for verdict in check_graphs(plan, graphs, folder, known, lambda title: line.send({BEGUN: title})):
        line.send(asdict(verdict))


def set_up_graphs(plan: CheckPlan, folder: Path) -> dict[str, BenchGraph]:
    """Set this process up to run kernels: threads, `torch.set_rng_state`, and Triton's interpreter, both patched.
    Return the graphs of the sample by title, after they ran in eager."""
    torch.set_num_threads(plan.threads)
    _patch_set_rng_state()
    if any(kernel.language == "triton" for subject in plan.subjects for kernel in subject.kernels):
        from backprint.tools.kernels.checking.interpreter import patch_interpreter

        patch_interpreter()
    capture = load(folder / SAMPLE, allow=plan.allow)
    return {graph.title: graph for graph in bench_graphs(capture)}


def _patch_set_rng_state() -> None:
    """Patch `torch.set_rng_state` to copy a random state first: torch 2.13 reads it from the start of its storage,
    whatever its offset, and crashes."""
    setting = torch.set_rng_state
    torch.set_rng_state = lambda new_state: setting(new_state.clone())


def check_graphs(
    plan: CheckPlan,
    graphs: Mapping[str, BenchGraph],
    folder: Path,
    known: Mapping[str, Verdict],
    begin: Callable[[str], None],
) -> Iterator[Verdict]:
    """Yield a Verdict for each graph that has none in `known`; `begin` is called with its title first. Within a Pair,
    the forward comes first, since what its kernels save are inputs of the backward's."""
    for pair in dict.fromkeys(subject.pair for subject in plan.subjects):
        forward = ForwardKernels()
        for subject in plan.subjects:
            if subject.pair != pair:
                continue
            if subject.title in known:
                if subject.direction == "forward":  # what it saved is not known any more: the backward takes eager's
                    forward = ForwardKernels(known[subject.title])
                continue
            begin(subject.title)
            verdict, ran = check_graph(subject, plan, graphs[subject.title], forward, folder)
            if subject.direction == "forward":
                forward = replace(ran, verdict=verdict)
            yield verdict


@dataclass(frozen=True, slots=True)
class ForwardKernels:
    """The Verdict of a forward's kernels, and the tensors that they saved on the target. `lifted`: they ran with their
    draws as further inputs."""

    verdict: Verdict | None = None
    saved: Mapping[str, Any] = field(default_factory=dict)
    lifted: bool = False


def check_graph(
    subject: CheckSubject, plan: CheckPlan, bench: BenchGraph, forward: ForwardKernels, folder: Path
) -> tuple[Verdict, ForwardKernels]:
    """Return the Verdict of one graph, and the tensors that the kernels of a forward saved. An error becomes a Verdict:
    "unproven" if something could not be run or compared, and else "failed"."""
    failed = forward.verdict is not None and forward.verdict.verdict == "failed"
    if subject.direction == "backward" and failed:
        return Verdict("unproven", subject.title, "the kernels of its forward did not run, and saved nothing"), forward
    try:
        return GraphCheck(subject, plan, bench, forward, folder).run()
    except RefusedError as error:
        return Verdict("unproven", subject.title, str(error)), ForwardKernels()
    except Exception as error:
        if errors.is_defect(error):
            traceback.print_exc()
            detail = f"a defect of Backprint: {errors.describe_defect(error)}"
            return Verdict("failed", subject.title, detail), ForwardKernels()
        # the interpreter and its patches raise these two for what they cannot compute
        is_unable = isinstance(_root_cause(error), (RefusedError, NotImplementedError))
        detail = str(error) if isinstance(error, BackprintError) else _error_line(error)
        return Verdict("unproven" if is_unable else "failed", subject.title, detail), ForwardKernels()


@dataclass(frozen=True, slots=True)
class GraphCheck:
    """The check of one graph: `bench` has its eager run, `forward` what the kernels of its Pair's forward saved, and
    `folder` is that of the plan."""

    subject: CheckSubject
    plan: CheckPlan
    bench: BenchGraph
    forward: ForwardKernels
    folder: Path

    def run(self) -> tuple[Verdict, ForwardKernels]:
        """Run the kernels in one configuration after another, or in the first alone, and compare; return the worst
        Verdict, and what the first configuration saved."""
        judge = self.judge()
        verdicts: list[Verdict] = []
        saved: Mapping[str, Any] = {}
        for configuration in range(MOST_CONFIGURATIONS):
            runs, results = judge.run_kernels(self.subject, configuration)
            verdicts.append(judge.compare(self.subject, runs, results))
            if not configuration:
                saved = saved_tensors(judge.run, results)
            if not self.plan.every_configuration or configuration + 1 >= runs.configurations:
                break
        word = worst([verdict.verdict for verdict in verdicts])
        chosen = next(verdict for verdict in verdicts if verdict.verdict == word)
        return chosen, ForwardKernels(saved=saved, lifted=bool(self.subject.draws))

    def judge(self) -> GraphJudge:
        """Return the judge that runs kernels of this graph and compares their results."""
        lifted = run_lifted(self.bench)
        if tuple(lifted.names) != self.subject.draws:
            raise RefusedError(f"the kernels were made with the draws {self.subject.draws}, not {tuple(lifted.names)}")
        inputs = self.inputs_of_kernels(lifted)
        eager = Eager(self.judging_run(lifted, inputs), compiled=_refuse_redraw)
        return GraphJudge(self.plan, self.folder, eager, inputs)

    def inputs_of_kernels(self, lifted: LiftedRun) -> list[Any]:
        """Return the inputs of the kernels: eager's, and for a backward the tensors that its forward's kernels saved.
        Refuse a saved tensor of eager's that has another shape on the target."""
        values = list(lifted.run.inputs)
        if self.subject.direction == "backward":
            for index, port in enumerate(self.subject.inputs):
                if port.role == "saved" and port.name in self.forward.saved:
                    values[index] = self.forward.saved[port.name]
        if self.forward.saved and not self.forward.lifted:
            return values  # these kernels were written for what those of the forward save
        for index, (port, value) in enumerate(zip(self.subject.inputs, values, strict=True)):
            # eager's values, or those of kernels in another form: into the dtype that these kernels take
            if port.role == "saved" and isinstance(value, Tensor):
                if tuple(value.shape) != port.shape and not may_be_workspace(value):
                    raise RefusedError(
                        f"what eager saves has another shape than on the target: {port.name} is "
                        f"{list(value.shape)}, and there {list(port.shape)}: check the backward with "
                        "its forward"
                    )
                values[index] = value.to(getattr(torch, port.dtype))
        return values

    def judging_run(self, lifted: LiftedRun, kernel_inputs: Sequence[Any]) -> EagerRun:
        """Return the eager run by which results are judged. For a backward, it is run again on what the forward's
        kernels saved, so that it is judged by itself, and not by the forward's rounding. An input that is no tensor, or
        has another shape on the target, stays eager's."""
        if self.subject.direction == "forward" or not self.forward.saved:
            return lifted.run
        pairs = zip(kernel_inputs, lifted.run.inputs, strict=True)
        inputs = [_copy_into_layout(own, value) if same_shape(value, own) else own for value, own in pairs]
        run = replace(lifted.run, inputs=inputs)
        return replace(run, results=tuple(run.again(run.module())))


def _refuse_redraw(*values: Any) -> Any:
    """Raise RefusedError. It stands for the compiled form of a graph, which Eager runs only for a graph that draws:
    draws are inputs here, so none should be left."""
    raise RefusedError("the graph still draws random numbers in eager, and its kernels draw others")


@dataclass(frozen=True, slots=True)
class GraphJudge:
    """The inputs of a graph's kernels, and the eager runs that their results are compared with."""

    plan: CheckPlan
    folder: Path
    eager: Eager
    kernel_inputs: Sequence[Any]

    @property
    def run(self) -> EagerRun:
        """The eager run that results are compared with."""
        return self.eager.run

    def run_kernels(self, subject: CheckSubject, configuration: int = 0) -> tuple[_KernelRuns, list[Any]]:
        """Run the kernels in their configuration of a number; return how often each ran, and the results."""
        sources = self.folder / KERNELS
        sources.mkdir(exist_ok=True)
        with lowering_for(target_named(self.plan.target), self.plan.threads):
            runnable = _runnable_graph(subject.wrapper, subject.kernels, subject.inputs, sources, configuration)
            return runnable.runs, runnable.run(self.kernel_inputs)

    def compare(self, subject: CheckSubject, runs: _KernelRuns, results: Sequence[Any]) -> Verdict:
        """Return the Verdict of results: eager's word for the worst of them, and "unproven" if it is good and a kernel
        did not run. A saved port that cannot be compared does not count if others can."""
        expected = self.run.outputs
        if len(results) != len(expected):
            counts = f"{len(results)} results, and eager gives {len(expected)}"
            return Verdict("wrong", subject.title, f"the kernels give {counts}")
        ports = tuple(_port_verdicts(self.eager, subject, results))
        counted = [port for port in ports if not (port.role == "saved" and _others_are_compared(port, ports))]
        word = worst([port.verdict for port in counted])
        names = [kernel.name for kernel in subject.kernels]
        not_run = [name for name in names if not runs.counts[name]]
        # what did not run is not shown to be right
        if not_run and word in GOOD:
            word = "unproven"
        remarks = [first_fault(ports, word), f"{len(names) - len(not_run)} of {len(names)} kernels ran"]
        remarks += [f"{', '.join(not_run)} did not"] if not_run else []
        remarks += [self.configurations_seen(runs.configurations), *subject.unseen]
        return Verdict(word, subject.title, "; ".join(remark for remark in remarks if remark), ports)

    def configurations_seen(self, count: int) -> str:
        """Return a text about the configurations that ran; '' if there is but one."""
        if count <= 1:
            return ""
        return f"all of {count} configurations" if self.plan.every_configuration else "the first configuration of each"

    def warm(self) -> None:
        """Run eager in all the ways that comparisons may need, by reading these properties: Eager keeps the results."""
        eager = self.eager
        _ = eager.again, eager.reseeded, eager.nudged, eager.wide, eager.rounded


def _port_verdicts(eager: Eager, subject: CheckSubject, results: Sequence[Any]) -> Iterator[PortVerdict]:
    """Yield the PortVerdict of each output of the kernels; one that has another shape on the target, as its port there
    says, is not compared."""
    shapes_on_target = {(port.role, port.name): port.shape for port in subject.outputs}
    for index, ((role, name), expected) in enumerate(zip(eager.run.outputs, eager.run.results, strict=True)):
        result = _as_captured(results[index], expected) if role == "saved" else results[index]
        if role == "saved" and _is_other_workspace(result, expected):
            detail = f"a workspace of {result.numel()} bytes on the target, where eager's has {expected.numel()}"
            yield PortVerdict(name, role, "unproven", detail)
            continue
        if _has_other_shape(result, expected) and shapes_on_target.get((role, name)) == tuple(result.shape):
            detail = f"its shape on the target is {list(result.shape)}, and eager's here {list(expected.shape)}"
            yield PortVerdict(name, role, "unproven", detail)
            continue
        word, detail = judged(eager, index, result)  # a Verdict's word, or one of NOT_COMPARED, and the reason
        error = apart(result, expected) if word in ("close", "wrong") and same_shape(result, expected) else 0.0
        yield PortVerdict(name, role, NOT_COMPARED.get(word, word), detail, error, witness=KERNELS_EAGER)


def _is_other_workspace(result: Any, wanted: Any) -> bool:
    """Whether a tensor is a library's workspace, and another one on the target."""
    return may_be_workspace(result) and may_be_workspace(wanted) and result.shape != wanted.shape


def _has_other_shape(result: Any, wanted: Any) -> bool:
    """Whether two results are tensors of different shapes. An operator may return more on a GPU than on a
    CPU: a BatchNorm in evaluation its statistics, a library its workspace."""
    return isinstance(result, Tensor) and isinstance(wanted, Tensor) and result.shape != wanted.shape


def same_shape(result: Any, wanted: Any) -> bool:
    """Whether two results are tensors of the same shape."""
    return isinstance(result, Tensor) and isinstance(wanted, Tensor) and result.shape == wanted.shape


def _as_captured(value: Any, wanted: Any) -> Any:
    """Return a saved tensor in the dtype in which it was captured: the target may save another."""
    return value.to(wanted.dtype) if same_shape(value, wanted) and value.dtype != wanted.dtype else value


def _copy_into_layout(layout: Tensor, value: Tensor) -> Tensor:
    """Return a copy of `value` with the storage, offset and strides of `layout`, whose storage may have more elements:
    `as_strided` in a graph counts its offset from the start of the storage."""
    if value is layout:
        return layout
    storage = layout.untyped_storage().clone()
    copy = torch.empty(0, dtype=layout.dtype).set_(storage, layout.storage_offset(), layout.shape, layout.stride())
    first_of_expanded = tuple(slice(0, 1) if step == 0 else slice(None) for step in layout.stride())  # written once
    copy[first_of_expanded].copy_(value[first_of_expanded])
    return copy


def saved_tensors(run: EagerRun, results: Sequence[Any]) -> dict[str, Any]:
    """Return what a forward saved, name -> tensor, from its results."""
    return {name: value for (role, name), value in zip(run.outputs, results, strict=True) if role == "saved"}


def _others_are_compared(port: PortVerdict, ports: Sequence[PortVerdict]) -> bool:
    """Whether a saved port that eager does not repeat, such as a workspace, leaves other ports to judge by."""
    return port.verdict == "unproven" and any(other.role != "saved" and other.verdict in GOOD for other in ports)


def first_fault(ports: Sequence[PortVerdict], word: str) -> str:
    """Return in words the first port with the worst word, or the first that was not compared, and how many more there
    are; '' for none."""
    faulty = [port for port in ports if port.verdict == word and word not in GOOD]
    faulty = faulty or [port for port in ports if port.verdict == "unproven"]
    more = f" (and {len(faulty) - 1} more)" if len(faulty) > 1 else ""
    return f"{faulty[0]}{more}" if faulty else ""


if __name__ == "__main__":
    _send_verdicts()
