"""Check extracted kernels: run them on the Capture's own inputs, and compare with its graphs in eager.

They run in a process of their own: Triton's kernels in its interpreter, C++ compiled. A process that crashes or takes
too long fails the graph at work, and another goes on with the next.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from backprint.choices import check_choice
from backprint.errors import BackprintError, RefusedError, UsageError
from backprint.extracting.checking.check_folder import (
    ERRORS,
    SAMPLE,
    CheckPlan,
    CheckSubject,
    graph_at_work,
    note_verdict,
    noted_verdicts,
    write_plan,
)  # fmt: skip
from backprint.extracting.checking.lift_draws import lifted_graph, steps_that_draw
from backprint.extracting.extract import extracted_alone
from backprint.extracting.lowering.kernel_compilers import kernel_compiler
from backprint.extracting.lowering.prepare import PortLayout
from backprint.extracting.nouns import CaptureKernels, ExtractedGraph
from backprint.extracting.targets import ISAS, KernelTarget
from backprint.graph.nouns import Capture, Graph, Step
from backprint.graph.verdicts import Verdict
from backprint.sample.inputs import Inputs, fit_inputs
from backprint.sample.save import write_staged

WORK = "backprint.extracting.checking.check_work"
"""The module that checks, in a process of its own."""

DRAWING = re.compile(r"\b(tl\.(rand|randn|randint)\w*|philox\w*|\w*rand\w*_cpu)\s*\(")
"""A call in a kernel's source that draws random numbers."""


def checked(kernels: CaptureKernels, configurations: str = "first", timeout: float = 600.0) -> list[Verdict]:
    """Return a Verdict for each graph; `timeout` is how many seconds a process may take.

    `configurations="all"` runs each configuration of Triton's kernels, instead of the first of each.
    """
    check_choice("configurations", configurations)
    if timeout <= 0:
        raise UsageError(f"timeout={timeout!r} must be more than 0 seconds")
    found = {title: Verdict("unproven", title, f"no kernels: {reason}") for title, reason in kernels.refused}
    subjects = []
    for graph in kernels.graphs:
        try:
            refuse_what_cannot_run(kernels.target)
            subjects.append(subject_of(kernels, graph))
        except BackprintError as error:
            found[graph.title] = Verdict("unproven", graph.title, str(error))
    plan = CheckPlan(
        kernels.target.name, kernels.threads, configurations == "all", tuple(kernels.capture.requires), tuple(subjects)
    )
    if subjects:
        found |= verdicts_of_plan(kernels.capture, plan, timeout)
    order = {graph.title: place for place, graph in enumerate(kernels.graphs)}
    return sorted(found.values(), key=lambda verdict: order.get(verdict.name, -1))


def verdicts_of_plan(capture: Capture, plan: CheckPlan, timeout: float) -> dict[str, Verdict]:
    """Do a plan in processes of their own; return the Verdicts by title."""
    titles = [subject.title for subject in plan.subjects]
    with tempfile.TemporaryDirectory(prefix="backprint_check_") as name:
        folder = Path(name)
        try:
            write_inputs(capture, folder / SAMPLE)
        except BackprintError as error:
            return {title: Verdict("unproven", title, str(error)) for title in titles}
        write_plan(folder, plan)
        while left := [title for title in titles if title not in noted_verdicts(folder)]:
            cause = process_of_check(WORK, folder, plan, timeout)
            now = [title for title in left if title not in noted_verdicts(folder)]
            at_work = graph_at_work(folder)
            for title in [at_work] if at_work else now:
                note_verdict(folder, Verdict("failed", title, cause))
        return {title: noted_verdicts(folder)[title] for title in titles}


def write_inputs(capture: Capture, place: Path) -> None:
    """Write a Capture as a sample with redrawn inputs: on the program's own, such as a new bias of 0, errors hide."""
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, so no kernel can be checked: capture it anew")
    known = capture.recipes
    inputs = Inputs(known.recipes, known.exact, known.seed)
    if capture.origin.alive:
        inputs = fit_inputs(capture, capture.origin.values())
    write_staged(capture, place, inputs, {}, ({},) * len(capture.pairs), lambda *args: None)


def process_of_check(module: str, folder: Path, plan: CheckPlan, timeout: float, *arguments: str) -> str:
    """Run a module in a process of its own, which can run kernels; return how it ended."""
    command = [sys.executable, "-P", "-m", module, os.fspath(folder), *arguments]
    settings = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": str(plan.threads)}
    with (folder / ERRORS).open("wb") as errors:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"still at work after {timeout:g} s (timeout)"
        finally:
            end_group(process)
    if code < 0:
        return f"crashed: killed by {signal.Signals(-code).name}"
    lines = (folder / ERRORS).read_text("utf-8", "replace").strip().splitlines()
    return f"{lines[-1][-300:] if lines else 'no error was said'} (exit code {code})"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, such as compilers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ------------------------------------------------------------------ what is checked


def refuse_what_cannot_run(target: KernelTarget) -> None:
    """Raise if kernels of a target cannot run here."""
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
    here = [type(each).__name__ for each in instructions.valid_vec_isa_list()]
    if target.isa and ISAS[target.isa] not in here:
        raise RefusedError(f"this machine lacks the instructions {target.isa}; it has {', '.join(here) or 'none'}")


def subject_of(kernels: CaptureKernels, graph: ExtractedGraph) -> CheckSubject:
    """Return what is run of a graph: its kernels, or, if it draws, kernels whose draws are inputs."""
    captured = graph_of(kernels.capture, graph.title)
    drawing = steps_that_draw(captured)
    alone = graph.direction == "backward" and not any(
        each.title == graph.title.replace("backward", "forward") for each in kernels.graphs
    )
    notes = (*graph.notes, *(["what its forward saves was eager's"] if alone else []))
    if not drawing:
        unseen = (*notes, *externs_told(graph))
        return CheckSubject(graph.title, graph.wrapper, graph.kernels, graph.inputs, graph.outputs, (), unseen)
    lifted, names = lifted_kernels(captured, graph, kernels)
    unseen = (*notes, *externs_told(lifted), *lifting_told(graph, lifted, drawing))
    return CheckSubject(graph.title, lifted.wrapper, lifted.kernels, lifted.inputs, lifted.outputs, names, unseen)


def externs_told(graph: ExtractedGraph) -> Iterator[str]:
    """Say which operators no kernel computes."""
    names = list(graph.externs)
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{', '.join(names[:3])}{more} ran as torch's own"


def graph_of(capture: Capture, title: str) -> Graph:
    """Return the captured graph of a title."""
    pair, _, direction = title.partition(" ")
    found = capture.pairs[int(pair.removeprefix("pair_"))]
    graph = found.forward if direction == "forward" else found.backward
    if graph is None:
        raise UsageError(f"{title}: the Capture has no such graph")
    return graph


def lifted_kernels(
    captured: Graph, graph: ExtractedGraph, kernels: CaptureKernels
) -> tuple[ExtractedGraph, tuple[str, ...]]:
    """Return kernels of a graph whose draws are inputs, and the steps that drew them.

    Raises if the kernels that were given are not those that the compiler writes: as they draw, they cannot be run.
    """
    saved = {
        port.name: PortLayout(getattr(torch, port.dtype), port.shape, port.stride)
        for port in graph.inputs
        if port.role == "saved" and port.value is None
    }
    given = graph.direction, graph.target, kernels.threads, saved, kernel_compiler(kernels.compiler)
    anew = extracted_alone(captured, *given)
    known = {kernel.hash for kernel in anew.kernels}
    if other := [kernel.name for kernel in graph.kernels if kernel.hash not in known]:
        raise RefusedError(
            f"{', '.join(other)}: not what the compiler writes of this graph, and in a graph that draws random numbers "
            "kernels are checked in another form"
        )
    base, names = lifted_graph(captured)
    lifted = extracted_alone(base, *given)
    still = [kernel.name for kernel in lifted.kernels if DRAWING.search(kernel.source)]
    if still:
        raise RefusedError(f"{', '.join(still)} draw random numbers, and their draws cannot be inputs")
    return lifted, names


def lifting_told(graph: ExtractedGraph, lifted: ExtractedGraph, drawing: Sequence[Step]) -> Iterator[str]:
    """Say what was lifted."""
    same = {kernel.hash for kernel in lifted.kernels}
    others = [kernel.name for kernel in graph.kernels if kernel.hash not in same]
    draws: Mapping[str, int] = {step.target: sum(each.target == step.target for each in drawing) for step in drawing}
    said = ", ".join(f"{count} draws of {target}" for target, count in draws.items())
    yield f"{said} were inputs, with what eager drew"
    if others:
        yield f"seen with their draws as inputs, not drawing: {', '.join(others)}"
