"""Check extracted kernels: run them on the Capture's own inputs, and compare the results with its graphs in eager.

They run in a process of their own: Triton's kernels in its interpreter, C++ compiled. A process that crashes or takes
too long fails the graph at work, and another process continues with the next graph.

Words of this file:

- draw: a step that makes random numbers, or these numbers. To lift draws is to make them inputs of the graph; a draw in
  place writes into its first argument, and one that saves the state of the generator (SAVING) returns (state, numbers).
- title: the name of a graph in its Capture, `pair_0 forward`. An ExtractedGraph is one with its kernels, as a compiler
  wrote them, and a CheckSubject the kernels that are run for it, which are others if it draws.
- EagerRun: a graph that ran in eager, with what is needed to run it again. A BenchGraph is a captured graph with its
  EagerRun, and `bench.module` its GraphModule.
- to begin a graph: to send its title before its kernels run, so that it is known where a process ended.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import fx

from backprint import api
from backprint.child.child import Child, start_interpreter
from backprint.child.ends import ChildEnd
from backprint.child.limits import limited
from backprint.common.text import check_choice
from backprint.errors import BackprintError, RefusedError, UsageError
from backprint.graph.nouns import Capture, Graph, Port, Ref, Spec, Step, TensorSpec, refs
from backprint.graph.sizes import unguarded_graph
from backprint.graph.steps import SAVING, mapped, used, with_names
from backprint.graph.verdicts import Derivative, Verdict
from backprint.sample.inputs import Inputs, fit_inputs
from backprint.sample.save import write_staged
from backprint.tools.export.judged import one_to_the_bit
from backprint.tools.export.rerun import EagerRun, rebuilt
from backprint.tools.kernels.checking.plan import (
    BEGUN,
    SAMPLE,
    CheckPlan,
    CheckSubject,
    verdict_from_json,
    write_plan,
)
from backprint.tools.kernels.compilers import kernel_compiler
from backprint.tools.kernels.extraction import extract_one_graph
from backprint.tools.kernels.nouns import ISAS, CaptureKernels, ExtractedGraph, KernelTarget
from backprint.tools.kernels.prepare import ALLOCATING_OPERATORS, PortLayout
from backprint.tools.lowering.subjects import BenchGraph, graph_classes, steps_that_draw

# ------------------------------------------------------------------ random draws as inputs
#
# Kernels draw other numbers than eager does, whatever the seed. So draws are taken out of a graph, and the numbers that
# eager drew become further inputs. Every step that depends on a draw stays in the graph.


def lift_draws(graph: Graph, at_captured_sizes: bool = True) -> tuple[Graph, tuple[str, ...]]:
    """Return a graph without guards whose draws are its last inputs, and the names of the steps that drew them. Sizes
    are those of the capture if `at_captured_sizes`, and else stay symbolic. Refuse a draw that cannot be an input."""
    if at_captured_sizes:
        lifted = unguarded_graph(graph)
    else:
        lifted = replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard))
    # a draw in place becomes the tensor that later steps read, where it may
    lifted = _read_draws_directly(lifted, steps_that_draw(lifted))
    drawing = steps_that_draw(lifted)
    # of a dropout, the mask becomes the input, and its items are computed from that
    lifted = replace(
        lifted, steps=tuple(replacement for step in lifted.steps for replacement in _expand_dropout(step, drawing))
    )
    # of a step that saves its random state, the inputs are its items, and not the step itself
    saving = {step.name for step in drawing if step.target == SAVING}
    drawing = tuple(_dropout_mask(step) if _is_dropout(step) else step for step in drawing if step.name not in saving)
    drawing += tuple(step for step in lifted.steps if _is_item_of(step, saving))
    for step in drawing:
        if not isinstance(step.spec, TensorSpec):
            raise RefusedError(
                f"{step.target} ({step.name}) draws, and its result is not one tensor that could be an input"
            )
        if step.target.endswith(".out") or (_is_in_place(step) and _is_read_by_others(lifted, step)):
            raise RefusedError(f"{step.target} ({step.name}) draws into a tensor that was there before")
    names = tuple(step.name for step in drawing)
    # an input has the name of the step that it replaces, so that later steps read it
    ports = tuple(Port(f"draw of {step.name}", "rng", step.spec, local=step.name) for step in drawing)
    rest = tuple(step for step in lifted.steps if step.name not in {*names, *saving})
    return replace(lifted, inputs=(*lifted.inputs, *ports), steps=rest), names


def _read_draws_directly(graph: Graph, drawing: Sequence[Step]) -> Graph:
    """Return a graph in which later steps read the result of a draw in place, such as `uniform_`, and not the tensor
    that it drew into, if that is new and nothing read it before."""
    steps = list(graph.steps)
    steps_by_name = {step.name: step for step in steps}
    draws_by_tensor: dict[str, str] = {}  # the name of a tensor -> that of the draw into it

    def draw_or_itself(name: str) -> Ref:
        return Ref(draws_by_tensor.get(name, name))

    for index, step in enumerate(steps):
        renamed_step = mapped(step, draw_or_itself)
        tensor = renamed_step.args[0] if step in drawing and _is_in_place(step) else None
        if (
            isinstance(tensor, Ref)
            and _allocates(steps_by_name.get(tensor.name))
            and not is_used(tensor.name, steps[:index])
        ):
            draws_by_tensor[tensor.name] = step.name
            renamed_step = step  # the draw itself still writes into the tensor
        steps[index] = renamed_step
    results = tuple(with_names(value, draw_or_itself) for value in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def _is_in_place(step: Step) -> bool:
    """Whether a step draws into its first argument: its operator ends in `_`, as in `aten.uniform_.default`."""
    return "_." in step.target


def _allocates(step: Step | None) -> bool:
    """Whether a step returns a tensor with memory of its own, such as `empty`."""
    return step is not None and step.target.removeprefix("aten.").partition(".")[0] in ALLOCATING_OPERATORS


def is_used(name: str, steps: Iterable[Step]) -> bool:
    """Whether steps use a value."""
    return any(name in used(step) for step in steps)


def _is_read_by_others(graph: Graph, step: Step) -> bool:
    """Whether the tensor that a step draws into is read elsewhere, so that it is not enough to pass on the draw."""
    tensor = step.args[0]
    result_names = {name for value in graph.results for name in refs(value)}
    return (
        not isinstance(tensor, Ref)
        or tensor.name in result_names
        or is_used(tensor.name, (other for other in graph.steps if other is not step))
    )


def _is_item_of(step: Step, saving: Collection[str]) -> bool:
    """Whether a step takes an item of a step that saves its random state: the state, or the draw."""
    return step.target == "operator.getitem" and isinstance(step.args[0], Ref) and step.args[0].name in saving


def _is_dropout(step: Step) -> bool:
    """Whether a step is a dropout in training, whose results are the scaled output and the mask."""
    return step.target == DROPOUT and isinstance(step.spec, tuple) and len(step.spec) == 2


def _dropout_mask(step: Step) -> Step:
    """Return the draw of a dropout, under the dropout's name: the mask."""
    return replace(step, spec=cast(tuple[Spec, ...], step.spec)[1])


def _expand_dropout(step: Step, drawing: Sequence[Step]) -> Iterator[Step]:
    """Yield a step; an item of a dropout becomes steps that compute it from the mask, as eager does: item 0, the
    output, is value * mask * 1 / (1 - p), and item 1 is the mask."""
    dropouts = {dropout.name: dropout for dropout in drawing if _is_dropout(dropout)}
    match step.target, step.args:
        case "operator.getitem", (Ref(name), 0) if name in dropouts:
            value, p = dropouts[name].args[:2]
            scale = 1.0 / (1.0 - p) if isinstance(p, int | float) and p != 1 else 0.0  # p of 1 drops all
            product_name = f"{step.name}_left"  # what the mask leaves of the value
            yield replace(step, name=product_name, target="aten.mul.Tensor", args=(value, Ref(name)))
            yield replace(step, target="aten.mul.Tensor", args=(Ref(product_name), scale))
        case "operator.getitem", (Ref(name), 1) if name in dropouts:
            yield replace(step, target="aten.alias.default", args=(Ref(name),))
        case _:
            yield step


DROPOUT = "aten.native_dropout.default"
"""Returns the output and the mask."""


class _DrawRecorder(fx.Interpreter):
    """Runs a graph, and keeps what some nodes drew."""

    def __init__(self, module: fx.GraphModule, names: Sequence[str]) -> None:
        super().__init__(module)
        self.names = frozenset(names)
        self.drawn: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node, and keep a copy of what it drew: of a dropout, the mask."""
        result = super().run_node(n)
        if n.name in self.names:
            self.drawn[n.name] = (result[1] if n.target is torch.ops.aten.native_dropout.default else result).clone()
        return result


@dataclass(frozen=True, slots=True)
class LiftedRun:
    """An eager run of a graph whose draws are inputs; `names` are the steps that drew them, none if the graph does not
    draw."""

    graph: Graph
    run: EagerRun
    names: Sequence[str] = field(default=())


def run_lifted(bench: BenchGraph) -> LiftedRun:
    """Return a run of a graph with the draws of its own run as inputs, and its own run if it does not draw; raise
    RefusedError if a tensor that the two return is not the same to the bit."""
    graph, names = lift_draws(bench.graph)
    if not names:
        return LiftedRun(bench.graph, bench.run)
    recorder = _DrawRecorder(bench.module, names)
    bench.run.again(recorder.run)  # from the same random state, so it draws the same numbers
    (module,) = graph_classes({"lifted": graph}).values()
    draws = [recorder.drawn[name] for name in names]
    # a class of `rebuilt` keeps its text, of which Eager makes one in wider dtypes
    graph_class, inputs = rebuilt(module, inspect.getsource(module)), [*bench.run.inputs, *draws]
    run = EagerRun(graph_class, inputs, bench.run.random, bench.run.outputs, results=())  # set in the next line
    run = replace(run, results=tuple(run.again(run.module())))
    for (role, name), value, expected in zip(run.outputs, run.results, bench.run.results, strict=True):
        same = one_to_the_bit(value, expected) or not isinstance(value, torch.Tensor)
        if not same:
            raise RefusedError(f"with its draws as inputs, the graph gives another {role} {name} in eager")
    return LiftedRun(graph, run, names)


# ------------------------------------------------------------------ the verdicts of a check

WORKER_MODULE = "backprint.tools.kernels.checking.work"
"""The module that checks, in a process of its own."""

DRAW_CALL = re.compile(r"\b(tl\.(rand|randn|randint)\w*|philox\w*|\w*rand\w*_cpu)\s*\(")
"""A call in a kernel's source that draws random numbers."""


def verdicts_of_kernels(
    kernels: CaptureKernels, configurations: str = "first", timeout: float = 600.0
) -> list[Verdict]:
    """Return a Verdict for each graph, those without kernels first; `timeout` is how many seconds a process may take.

    `configurations="all"` runs each configuration of Triton's kernels, instead of the first of each.
    """
    check_choice("configurations", configurations)
    if timeout <= 0:
        raise UsageError(f"timeout={timeout!r} must be more than 0 seconds")
    verdicts = {title: Verdict("unproven", title, f"no kernels: {reason}") for title, reason in kernels.refused}
    subjects = []
    for graph in kernels.graphs:
        try:
            _refuse_unrunnable(kernels.target)
            subjects.append(make_check_subject(kernels, graph))
        except BackprintError as error:
            verdicts[graph.title] = Verdict("unproven", graph.title, str(error))
    plan = CheckPlan(
        target=kernels.target.name,
        threads=kernels.threads,
        every_configuration=configurations == "all",
        allow=tuple(kernels.capture.requires),
        subjects=tuple(subjects),
    )
    if subjects:
        verdicts |= _run_plan(kernels.capture, plan, timeout)
    positions = {graph.title: index for index, graph in enumerate(kernels.graphs)}
    return sorted(verdicts.values(), key=lambda verdict: positions.get(verdict.name, -1))


def derivatives_of_pairs(capture: Capture) -> dict[str, Derivative]:
    """Return for each backward, by its graph's title, whether it is the derivative of its forward.

    Kernels are compared with the captured graphs: those that equal a wrong backward are not right.
    """
    titles = [f"pair_{number} backward" for number, pair in enumerate(capture.pairs) if pair.backward is not None]
    # not `hostile`, tangents and inputs that are hard on a backward: kernels are run on none of these
    return dict(zip(titles, api.derivative(capture, hostile=False), strict=True)) if titles else {}


def with_derivatives(verdicts: Sequence[Verdict], derivatives: Mapping[str, Derivative]) -> list[Verdict]:
    """Return verdicts of kernels with what is known of the captured backward: `derivatives_of_pairs`."""
    return [replace(verdict, derivative=derivatives.get(verdict.name)) for verdict in verdicts]


def _run_plan(capture: Capture, plan: CheckPlan, timeout: float) -> dict[str, Verdict]:
    """Run the kernels of a plan in one process after another; return title -> Verdict. If a process ends early, the
    graph at work has "failed", and the next process goes on with the others."""
    titles = [subject.title for subject in plan.subjects]
    with tempfile.TemporaryDirectory(prefix="backprint_check_") as name:
        folder = Path(name)
        try:
            write_inputs(capture, folder / SAMPLE)
        except BackprintError as error:
            return {title: Verdict("unproven", title, str(error)) for title in titles}
        write_plan(folder, plan)
        verdicts: dict[str, Verdict] = {}
        while remaining := [title for title in titles if title not in verdicts]:
            end, last_begun = _run_kernels(folder, plan, timeout, verdicts)
            unfinished = [title for title in remaining if title not in verdicts]
            # all of them, if the process was at work on none: so this ends
            failed_titles = [last_begun] if last_begun in unfinished else unfinished
            verdicts |= {title: Verdict("failed", title, end.account) for title in failed_titles}
        return verdicts


def _run_kernels(folder: Path, plan: CheckPlan, timeout: float, verdicts: dict[str, Verdict]) -> tuple[ChildEnd, str]:
    """Have a process run the kernels of graphs without a Verdict, and add theirs to `verdicts`; return how it ended,
    and the title of the last graph that it began, '' for none."""
    last_begun = ""

    def on_message(row: Mapping[str, Any]) -> None:
        nonlocal last_begun
        if BEGUN in row:
            last_begun = row[BEGUN]
        else:
            verdicts[row["name"]] = verdict_from_json(row)

    known = [asdict(verdict) for verdict in verdicts.values()]
    return run_check_process(WORKER_MODULE, folder, plan, timeout, known, on_message), last_begun


def write_inputs(capture: Capture, place: Path) -> None:
    """Write a Capture as a sample with redrawn inputs: on the program's own, such as a new bias of 0, errors hide. They
    are like the program's as it is now (`fit_inputs` makes recipes of its values), if it is still there, and else like
    those that were captured."""
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, so no kernel can be checked: capture it anew")
    known = capture.recipes
    inputs = Inputs(known.recipes, known.exact, known.seed)
    if capture.origin.alive:
        inputs = fit_inputs(capture, capture.origin.values())
    # no verdict, no values of ports, and no other format beside Backprint's
    write_staged(
        capture,
        place,
        inputs,
        further_content={},
        values_of_pairs=({},) * len(capture.pairs),
        write_other_format=lambda *args: None,
    )


def run_check_process(
    module: str,
    folder: Path,
    plan: CheckPlan,
    timeout: float,
    message: Any,
    on_message: Callable[[Mapping[str, Any]], None],
) -> ChildEnd:
    """Run a module that can run kernels in a process of its own: send it a message, and pass each row that it sends to
    `on_message`; return how it ended. `folder` has the plan, and is the argument of the module."""
    settings = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": str(plan.threads)}
    child = Child(start_interpreter(module, os.fspath(folder), environment=settings), limited(timeout), captured=True)
    try:
        child.send(message)
        while (text := child.receive()) is not None:
            on_message(json.loads(text))
    finally:
        end = child.close()
    return end


# ------------------------------------------------------------------ the kernels to run


def _refuse_unrunnable(target: KernelTarget) -> None:
    """Raise RefusedError if kernels of a target cannot run here."""
    if target.language == "triton":
        for package in ("triton", "numpy"):  # Triton's interpreter computes with numpy
            if importlib.util.find_spec(package) is None:
                raise RefusedError(
                    f"running Triton kernels needs {package}, which is not installed: pip install {package}"
                )
        return
    from backprint._torch.inductor import InvalidCxxCompiler, cpp_compiler
    from backprint._torch.inductor import cpu_vec_isa as instructions

    try:
        cpp_compiler()
    except InvalidCxxCompiler as error:
        raise RefusedError(f"running C++ kernels needs a C++ compiler, and there is none: {error}") from error
    here = [type(isa).__name__ for isa in instructions.valid_vec_isa_list()]
    if target.isa and ISAS[target.isa] not in here:
        raise RefusedError(f"this machine lacks the instructions {target.isa}; it has {', '.join(here) or 'none'}")


def make_check_subject(kernels: CaptureKernels, graph: ExtractedGraph) -> CheckSubject:
    """Return the kernels to run for a graph: its own, or, if it draws, kernels whose draws are inputs."""
    captured = captured_graph(kernels.capture, graph.title)
    drawing = steps_that_draw(captured)
    # a backward whose forward has no kernels here gets the tensors that eager saved
    without_forward = graph.direction == "backward" and not any(
        other.title == graph.title.replace("backward", "forward") for other in kernels.graphs
    )
    notes = (*graph.notes, *(["what its forward saves was eager's"] if without_forward else []))
    names: tuple[str, ...] = ()
    subject = graph
    if drawing:  # the compiler writes other kernels, of the graph without its draws
        subject, names = _lifted_kernels(captured, graph, kernels)
    unseen = [*notes, *_extern_notes(subject), *(_lifting_notes(graph, subject, drawing) if drawing else [])]
    return CheckSubject(
        graph.title,
        subject.wrapper,
        subject.kernels,
        subject.inputs,
        subject.outputs,
        draws=names,
        unseen=tuple(unseen),
    )


def _extern_notes(graph: ExtractedGraph) -> Iterator[str]:
    """Yield a note about operators that no kernel computes."""
    names = list(graph.externs)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{', '.join(names[:3])}{more} ran as torch's own"


def captured_graph(capture: Capture, title: str) -> Graph:
    """Return the captured graph of a title, such as `pair_0 forward`."""
    pair, _, direction = title.partition(" ")
    pair_of_graph = capture.pairs[int(pair.removeprefix("pair_"))]
    graph = pair_of_graph.forward if direction == "forward" else pair_of_graph.backward
    if graph is None:
        raise UsageError(f"{title}: the Capture has no such graph")
    return graph


def _lifted_kernels(
    captured: Graph, graph: ExtractedGraph, kernels: CaptureKernels
) -> tuple[ExtractedGraph, tuple[str, ...]]:
    """Return kernels of a graph whose draws are inputs, and the names of the steps that drew them. Raise RefusedError
    if the kernels that were given are not those that the compiler writes now: as they draw, they cannot be run, and
    kernels that the compiler writes of another form say nothing of them."""
    saved = {
        port.name: PortLayout(getattr(torch, port.dtype), port.shape, port.stride)
        for port in graph.inputs
        if port.role == "saved" and port.value is None  # a tensor, and no number
    }
    # how the graph and its lifted form are given to the compiler alike
    arguments = graph.direction, graph.target, kernels.threads, saved, kernel_compiler(kernels.compiler)
    extracted_again = extract_one_graph(captured, *arguments)
    known = {kernel.hash for kernel in extracted_again.kernels}
    if other := [kernel.name for kernel in graph.kernels if kernel.hash not in known]:
        raise RefusedError(
            f"{', '.join(other)}: not what the compiler writes of this graph, and in a graph that draws random numbers "
            "kernels are checked in another form"
        )
    without_draws, names = lift_draws(captured)
    lifted = extract_one_graph(without_draws, *arguments)
    drawing = [kernel.name for kernel in lifted.kernels if DRAW_CALL.search(kernel.source)]
    if drawing:
        raise RefusedError(f"{', '.join(drawing)} draw random numbers, and their draws cannot be inputs")
    return lifted, names


def _lifting_notes(graph: ExtractedGraph, lifted: ExtractedGraph, drawing: Sequence[Step]) -> Iterator[str]:
    """Yield notes about draws that became inputs, and kernels that changed by it."""
    lifted_hashes = {kernel.hash for kernel in lifted.kernels}
    changed = [kernel.name for kernel in graph.kernels if kernel.hash not in lifted_hashes]
    draws: Mapping[str, int] = {step.target: sum(other.target == step.target for other in drawing) for step in drawing}
    counts = ", ".join(f"{count} draws of {target}" for target, count in draws.items())
    yield f"{counts} were inputs, with what eager drew"
    if changed:
        yield f"seen with their draws as inputs, not drawing: {', '.join(changed)}"
