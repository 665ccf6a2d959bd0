"""The verb `kernels` of a corpus run: the kernels of one sample for each target, for the workers of `tools/corpus/`.

`options` are those of the verb, with the names and defaults of KERNELS in this package. The row of a sample has a
verdict: `failed` if a graph was refused, `unproven` if its kernels were not checked. `stage(name)` names what is being
done in what the run reports of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backprint.graph.nouns import Capture
from backprint.graph.verdicts import DERIVATIVE, worst, worst_derivative
from backprint.tools.jobs.task import Task, one_line, stage
from backprint.tools.kernels.checking.check import derivatives_of_pairs, verdicts_of_kernels
from backprint.tools.kernels.compilers import kernel_compiler
from backprint.tools.kernels.extraction import extract_kernels
from backprint.tools.kernels.nouns import CaptureKernels, target_named
from backprint.tools.kernels.rows import gather_rows
from backprint.tools.kernels.save import NOT_TIMED, save_kernels


def check_kernels(source: Path, options: Mapping[str, Any]) -> None:
    """Raise for options that cannot be right, before a run begins."""
    for target in options["targets"]:
        target_named(target)
    kernel_compiler(options["compiler"])


def load_inductor(options: Mapping[str, Any]) -> dict[str, str]:
    """Load PyTorch, Backprint and Inductor, so that no sample pays for the imports; return their versions."""
    from backprint._torch import inductor
    from backprint.tools.jobs.verbs import warm

    inductor.load_inductor("compile_fx", "lowering", "codegen.cpp", "codegen.triton")
    return warm(options)


def gather_kernels(out: Path) -> None:
    """Write OUT/kernels.jsonl at the end of a run."""
    from backprint.tools.jobs.ledger import NAME, Ledger

    with Ledger.reading(out / NAME) as ledger:
        gather_rows(out, [row["id"] for row in ledger.rows(order="id")])


def extract_sample(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Write the kernels of a sample for each target into the folder `staging`; check them with the option `check`.
    Return the sample's row: columns of its Capture, and the verdict, with remarks as notes."""
    from backprint.tools.jobs.verbs import capture_columns

    with stage("read"):
        capture = _read_sample(task, options)
    staging.mkdir()
    remarks: list[str] = []
    verdict_words: list[str] = []
    refused: list[str] = []
    hashes: list[str] = []
    times_lines: list[str] = []
    columns = capture_columns(capture)
    if options["check"]:
        with stage("derivative"):
            columns |= column_of_derivatives(capture, remarks)
    for target in options["targets"]:
        with stage("extract"):
            kernels = extract_kernels(capture, target, options["direction"], options["threads"], options["compiler"])
        with stage("build" if options["build"] else "save"):
            times_lines += save_kernels(kernels, staging, options["build"])
        refused += [f"{target}: {title}: {why}" for title, why in kernels.refused]
        hashes += [kernel.hash for kernel in kernels]
        if options["check"]:
            with stage("check"):
                verdict_words += _check_and_describe(kernels, remarks)
    counts = f"{len(hashes)} kernels, {len(set(hashes))} programs"
    counts += f", {sum(not text.startswith(NOT_TIMED) for text in times_lines)} timed" if times_lines else ""
    row = columns | {"notes": [one_line(text) for text in (*refused, *remarks, *times_lines)]}
    if refused:
        return row | {"verdict": "failed", "cause": "refused", "detail": one_line(f"{refused[0]}; {counts}")}
    verdict = worst(verdict_words) if options["check"] else "unproven"
    detail = counts if options["check"] else f"{counts}; not run"
    # all remarks are notes; the first of them is in the detail too
    return row | {"verdict": verdict, "cause": "", "detail": one_line("; ".join([detail, *remarks[:1]]))}


def _check_and_describe(kernels: CaptureKernels, remarks: list[str]) -> list[str]:
    """Check kernels; return the word of each graph's Verdict, and add a line to `remarks` for each that is not good."""
    verdicts = verdicts_of_kernels(kernels)
    remarks += [
        f"{kernels.target.name}: {verdict.name}: {verdict.verdict}: {verdict.detail}"
        for verdict in verdicts
        if not verdict.good
    ]
    return [verdict.verdict for verdict in verdicts]


def column_of_derivatives(capture: Capture, remarks: list[str]) -> dict[str, str]:
    """Return the worst word for the captured backwards as a column, none without a backward, and add a line to
    `remarks` for each that is not the derivative."""
    derivatives = derivatives_of_pairs(capture)
    remarks += [
        one_line(f"{title} as captured: {derivative.word}: {derivative.detail}")
        for title, derivative in derivatives.items()
        if derivative.word != DERIVATIVE
    ]
    worst_word = worst_derivative(derivatives.values())
    return {} if worst_word is None else {"derivative": worst_word.word}


def _read_sample(task: Task, options: Mapping[str, Any]) -> Capture:
    """Return the Capture of a sample; a sample in another format than Backprint's is captured first."""
    from backprint import api
    from backprint.tools.target import capture_target, read_target

    if task.kind == "backprint":
        return api.load(task.path, allow=tuple(options["allow"]))
    target = read_target(task.path, trust=options["trust"], mode="train")
    return capture_target(target, requires_grad=options["requires_grad"])
