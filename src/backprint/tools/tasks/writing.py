"""A task made of a program: the part is captured, tried, and written as a folder.

A TaskProgram has the two graphs of the part, as a function of its inputs: `wanted` are the inputs that have a gradient,
`tangents` the results that have a tangent, and `draws` the inputs that are the program's own random numbers. To try its
reference means to run it in float64 (exact), in its dtypes (own: what eager computes), and in float64 on inputs that
are rounded once more (moved); how far these are apart is what rounding explains. A result has power if it moves by much
more than that when the inputs are drawn anew: without power, nothing would be seen of a wrong one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from backprint import api
from backprint.common.files import write_file
from backprint.common.folders import unfinished_folder
from backprint.derive.called import Forward, Program, run_forward
from backprint.derive.check import derivatives_of
from backprint.derive.compared import (
    Expected,
    NoReference,
    Subject,
    expected_of,
    measure_difference,
    reference_gradients,
    value_if_known,
)
from backprint.derive.setting import drawn_like, is_inexact, to_float64
from backprint.errors import BackprintError, RefusedError, UsageError
from backprint.graph.nouns import Capture, Graph, Port, TensorSpec
from backprint.graph.sizes import at_example_sizes, returning_results_alone
from backprint.graph.verdicts import NOT_THE_DERIVATIVE
from backprint.judge.closeness import size_of
from backprint.sample.inputs import fit
from backprint.sample.place import settle
from backprint.tools.cost.work import Work, least_step_work, least_work
from backprint.tools.parts.cuts import SplitPart
from backprint.tools.parts.split import split
from backprint.tools.tasks.nouns import FORMAT, Task, TaskPort, TaskTolerance, TaskWork
from backprint.tools.tasks.program import (
    Reference,
    ReferenceFailed,
    TaskProgram,
    captured_values,
    fresh_values,
    program_of,
)
from backprint.tools.tasks.text import inputs_text, readme_text, reference_text, solution_text
from backprint.values.settings import preserving_random_states

# ---- The part of a Capture


def part_of(capture: Capture, part: str) -> Capture:
    """Cut out the part that a text names: a module's path, or a cut of `bp.split` and a number, as in `fold@0`. Raise
    UsageError if there is none, and RefusedError if it is not proven. A module that all steps come from is the Capture
    itself."""
    cut, separator, number = part.rpartition("@")
    if separator and number.isdigit():
        parts = [piece for piece in split(capture, cut).parts if piece.wanted]
        if int(number) >= len(parts):
            raise UsageError(f"part={part!r}: by {cut!r} there are {len(parts)} parts, from 0 on")
        return _proven_capture_of(parts[int(number)])
    spans = [span for pair in capture.pairs if (span := _span_of_module(pair.forward, part)) is not None]
    if not spans:
        raise UsageError(f"part={part!r}: no step of {capture.name} comes from such a module: {_modules_in(capture)}")
    if len(capture.pairs) > 1:
        raise UsageError(f"{capture.name} has {len(capture.pairs)} Pairs; a part is cut out of a Capture with one")
    start, stop = spans[0]
    if (start, stop) == (0, len(capture.pairs[0].forward.steps)):
        return capture
    pieces = split(capture, f"ranges:{start}-{stop}").parts
    label = f"steps {start}-{stop}"  # how `parts.cuts` labels the pieces of `ranges:`
    chosen = next(piece for piece in pieces if piece.wanted and piece.label == label)
    return replace(_proven_capture_of(chosen), name=f"{capture.name} {part}")


def _proven_capture_of(part: SplitPart) -> Capture:
    """Return the Capture of a part of `bp.split`; RefusedError, with the verdict, if it is not proven."""
    if not part.verdict.good:
        detail = f"{part.verdict.verdict}: {part.verdict.detail}"
        raise RefusedError(f"{part.capture.name} is no proven part of the whole, so it is no task: {detail}")
    return part.capture


def _span_of_module(forward: Graph, path: str) -> tuple[int, int] | None:
    """Return the span of steps that come from a module or from modules in it: the number of the first, and that after
    the last. Steps of other modules between them belong to it. None if no step comes from the module."""
    numbers = [
        number
        for number, step in enumerate(forward.steps)
        if step.source is not None and (step.source.module == path or step.source.module.startswith(f"{path}."))
    ]
    return (numbers[0], numbers[-1] + 1) if numbers else None


def _modules_in(capture: Capture) -> str:
    """Return the first modules that steps come from, for a message."""
    steps = (step for pair in capture.pairs for step in pair.forward.steps)
    names = list(dict.fromkeys(step.source.module for step in steps if step.source is not None and step.source.module))
    return f"it has {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "its steps have no modules"


# ---- What is known of it


def task_of(program: TaskProgram, name: str, occurs: int = 1) -> Task:
    """Return the Task of a program under a name, after trying its reference; RefusedError says why it is none. `occurs`
    is how often the part occurs in a set."""
    with preserving_random_states():
        values = captured_values(program)
        tolerances, powerless = try_reference(program, values)
        dtypes = _other_dtypes(program, values)
    forward, backward = at_example_sizes(program.forward), at_example_sizes(program.backward)
    verdicts = derivatives_of(program.capture)
    return Task(
        format=FORMAT,
        name=name,
        hash=hash_of_program(program),
        inputs=tuple(task_port(port.name, port, differentiable=port.name in program.wanted) for port in program.inputs),
        outputs=tuple(
            task_port(label, port, differentiable=label in program.tangents) for label, port in program.outputs
        ),
        dtypes=dtypes,
        sized=program.sized,
        is_derivative=not any(verdict.word == NOT_THE_DERIVATIVE for verdict in verdicts),
        forward=work(least_work(returning_results_alone(forward))),
        step=work(least_step_work(forward, backward)),
        tolerances=tolerances,
        without_power=powerless,
        seconds=(),
        torch=str(torch.__version__),
        occurs=occurs,
    )


def hash_of_program(program: TaskProgram) -> str:
    """Return a digest of both graphs without names."""
    return f"{program.forward.hash()[:24]}{program.backward.hash()[:24]}"


def task_port(name: str, port: Port, differentiable: bool) -> TaskPort:
    """Return a port as a task has it."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    return TaskPort(name, port.role, spec.dtype, tuple(map(str, spec.shape)), differentiable)


def work(least: Work) -> TaskWork:
    """Return the least work as a task has it."""
    return TaskWork(least.flops, least.bytes)


def subject_of(program: TaskProgram, values: Mapping[str, Tensor], times: float = 2.0) -> Subject:
    """Return what a check takes, with the reference as the function and as what it is compared with, on these values.
    Results may be off by `times` as much as eager is."""
    call = replace(program.call, values=dict(values))
    reference = Program(Reference(program), state={}, seed=0)  # no module, and what it draws are inputs
    return Subject(call, reference, reference, has_reference=True, dtype=None, values=dict(values), times=times)


def try_reference(
    program: TaskProgram, values: Mapping[str, Tensor]
) -> tuple[tuple[TaskTolerance, ...], tuple[str, ...]]:
    """Run the reference on these inputs, and on others; return how far eager is off and a solution may be, for each
    result and gradient, and the names of those without power. RefusedError says why it is no reference: it does not
    run, does not repeat itself, or moves no output."""
    subject = subject_of(program, values)
    try:
        expected = expected_of(subject, subject.values)
    except NoReference as error:
        raise RefusedError(f"{program.capture.name}: {error}") from error
    if expected.own is None:
        raise RefusedError(f"{program.capture.name}: the reference does not run on its own inputs")
    if expected.random:
        raise RefusedError(f"{program.capture.name}: the reference does not return the same twice")
    others = [expected_of(subject, fresh_values(program, seed)) for seed in SEEDS]
    try:
        compared = _compared_results(program, expected, others)
    except ReferenceFailed as error:
        raise RefusedError(f"{program.capture.name}: its backward does not run in float64: {error}") from error
    tolerances, powerless, an_output_moves = [], [], False
    for result in compared:
        if result.exact is None or not is_inexact(result.exact) or not result.exact.numel():
            continue
        # `own` twice: eager is the function that is checked, and what its rounding is measured by.
        difference = measure_difference(
            subject, result.own, result.exact, result.own, result.moved, largest=size_of(result.exact)
        )
        error_of_eager = difference.error if math.isfinite(difference.error) else 0.0
        allowed = difference.allowed if math.isfinite(difference.allowed) else 0.0
        tolerances.append(TaskTolerance(result.name, error_of_eager, allowed))
        # 1e-300: a result of zeros, to which nothing is allowed, must move too.
        if result.moves_by(POWER * max(allowed, 1e-300)):
            an_output_moves = an_output_moves or not result.is_gradient
        else:
            powerless.append(result.name)
    if not an_output_moves:
        raise RefusedError(
            f"{program.capture.name}: no output moves by more than {POWER:g} times the tolerance when the inputs are "
            "drawn anew, so nothing would be seen of a wrong solution"
        )
    return tuple(tolerances), tuple(powerless)


SEEDS = (0x51, 0xA7)
"""The seeds of the redraws by which power is measured."""

POWER = 10.0
"""A result that moves by so many times its tolerance has power."""


@dataclass(frozen=True, slots=True, eq=False)
class _ComparedResult:
    """A result, or a gradient, of several runs of a reference: in float64 (`exact`), in its dtype (`own`), in float64
    on inputs that are rounded once more (`moved`), and in float64 on other inputs (`redrawn`). None where a run has
    none."""

    name: str
    is_gradient: bool
    exact: Tensor | None
    own: Tensor | None
    moved: Tensor | None
    redrawn: tuple[Tensor | None, ...]

    def moves_by(self, distance: float) -> bool:
        """Whether some other inputs move the result by more than a distance."""
        exact = self.exact
        if exact is None:
            return False
        return any(other is not None and _distance_of(other, exact) > distance for other in self.redrawn)


def _compared_results(program: TaskProgram, expected: Expected, others: Sequence[Expected]) -> list[_ComparedResult]:
    """Return each result and then each gradient of the reference: `expected` has its runs on the task's inputs, and
    `others` those on other inputs. Gradients are for the same random tangents in each run."""
    source = torch.Generator().manual_seed(0)
    differentiable = {name: expected.exact.outputs[name].detach() for name in expected.exact.differentiable}
    tangents = {name: drawn_like(output, source) for name, output in differentiable.items()}

    def results_of(run: Forward | None) -> dict[str, Tensor | None]:
        """Return the results and gradients of one run, by their names in a task; none of one that was not made."""
        gradients = reference_gradients(run, tangents)
        results: dict[str, Tensor | None] = {}
        if run is not None:
            results |= {label_of(name): value.detach() for name, value in run.outputs.items()}
        return results | {f"{GRADIENT_OF}{name}": value_if_known(gradients, name) for name in program.wanted}

    exact, own, moved = (results_of(run) for run in (expected.exact, expected.own, expected.moved))
    redrawn = [results_of(other.exact) for other in others]
    return [
        _ComparedResult(
            name,
            is_gradient=place >= len(expected.exact.outputs),
            exact=value,
            own=own.get(name),
            moved=moved.get(name),
            redrawn=tuple(results.get(name) for results in redrawn),
        )
        for place, (name, value) in enumerate(exact.items())
    ]


GRADIENT_OF = "gradient of "
"""How the name of a gradient begins in a task; the name of the input follows."""


def label_of(name: str) -> str:
    """Return the name of a result without the word that every result of a function has: `output.y` -> `y`."""
    return name.removeprefix("output.")


def _distance_of(left: Tensor, right: Tensor) -> float:
    """Return the largest difference of two results where both are finite."""
    apart = (to_float64(left) - to_float64(right)).abs()
    return float(apart.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max())


def _other_dtypes(program: TaskProgram, values: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return further dtypes in which the reference runs, forward and backward, with finite results of that dtype. None
    are tried if the inputs have several floating-point dtypes, or complex ones."""
    kinds = {value.dtype for value in values.values() if is_inexact(value)}
    if len(kinds) != 1 or any(kind.is_complex for kind in kinds):
        return ()
    taken = []
    for name in DTYPES:
        dtype = getattr(torch, name)
        if dtype in kinds:
            continue
        call = replace(program.call, values=dict(values))
        changed = {key: value.to(dtype) if is_inexact(value) else value for key, value in values.items()}
        try:
            forward = run_forward(Program(Reference(program), state={}, seed=0), call, changed)
            tangents = {key: torch.ones_like(forward.outputs[key]) for key in forward.differentiable}
            gradients = forward.gradients(tangents)
        except (BackprintError, RuntimeError, NotImplementedError, TypeError):
            continue  # an operator of the reference does not take this dtype, so no solution has to
        results = [*forward.outputs.values(), *(value for value in gradients.values() if value is not None)]
        floats = [value for value in results if is_inexact(value)]
        if all(bool(value.isfinite().all()) for value in floats) and all(value.dtype is dtype for value in floats):
            taken.append(name)
    return tuple(taken)


DTYPES = ("float32", "float16", "bfloat16")


# ---- The folder


def write_task(
    capture: Capture, place: Path, name: str, *, overwrite: bool = False, occurs: int = 1, measure: bool = False
) -> Task:
    """Write the task of a Capture to its folder, all or nothing, and return it; RefusedError says why it is no task.

    With `measure`, the times of eager and of Inductor are measured and written too.
    """
    _check_place_of_task(place, overwrite)
    program_of(capture)  # raises before anything is written
    with unfinished_folder(place.parent, place.name) as staging:
        # Inputs are kept as recipes alone, and power is measured here (`try_reference`). The task is made of what was
        # stored, so that whoever reads the folder gets the same.
        api.save(capture, staging / SAMPLE, data="seed", power="none")
        stored = program_of(api.load(staging / SAMPLE))
        task = task_of(stored, name, occurs)
        for file, text in texts_of_task(task, stored).items():
            write_file(staging / file, [text.encode()])
        if measure:
            from backprint.tools.tasks.timing import times_of_reference

            task = replace(task, seconds=times_of_reference(stored, staging))
            write_file(staging / README, [readme_text(task, stored.forward).encode()])
        write_file(staging / TASK, [task_json(task).encode()])
        settle(staging, place)
    return task


SAMPLE, TASK, REFERENCE, INPUTS, SOLUTION, README = (
    "sample",
    "task.json",
    "reference.py",
    "inputs.py",
    "solution.py",
    "README.md",
)


def task_json(task: Task) -> str:
    """Return `task.json`."""
    return json.dumps(asdict(task), indent=1) + "\n"


def texts_of_task(task: Task, program: TaskProgram) -> dict[str, str]:
    """Return the texts of the folder that follow from the task and its graphs, by the names of their files."""
    recipes = dict(program.capture.recipes.recipes)
    if program.draws:  # which have no recipes of the capture, because there they were steps
        with preserving_random_states():
            values = captured_values(program)
        recipes |= {name: fit(values[name], seed=0) for name in program.draws}
    return {
        REFERENCE: reference_text(task, program.forward, program.backward, program.wanted),
        INPUTS: inputs_text(task, recipes, at_example_sizes(program.forward).inputs),
        SOLUTION: solution_text(task),
        README: readme_text(task, program.forward),
    }


def _check_place_of_task(place: Path, overwrite: bool) -> None:
    """Raise UsageError for a place that is taken, unless it is a task and the user passed `overwrite`, or is empty."""
    if not place.exists():
        return
    if not place.is_dir() or (any(place.iterdir()) and not (place / TASK).exists()):
        raise UsageError(f"{place} exists and is not a task: choose another path")
    if not overwrite and any(place.iterdir()):
        raise UsageError(f"{place} exists already: pass overwrite=True (--overwrite), or choose another path")


def valid_task_name(text: str) -> str:
    """Return a text as the name of a task, which may be that of a folder."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_.") or "task"
