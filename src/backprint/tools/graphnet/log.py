"""GraphNet's benchmark log, read, written and shown as a table: the text between its `test_compiler` and its plots.

Both ways pass through ScoredSamples. A log keeps a sample's name, configuration, dtypes, shapes, timings, speedups and
the tolerances that each output is within. `[max_diff]` and `[mean_diff]`, which no score reads, are left out.

A log is read as GraphNet reads it, but for these:
- Where timing fluctuated, GraphNet logs a failed execution, and counts one. Here the sample is unmeasured.
- Where the compiled model fails, GraphNet logs no dtypes, and takes the sample for a failure of eager. Here its line
  "Fail due to compiled model execution error" is read: a compile failure.
- Where dtypes differ, GraphNet logs no shapes, and takes that for a difference of shapes. Both count alike in scores.
- Where no output was compared, GraphNet takes the sample for correct. Here it is unmeasured.

GraphNet's tools compute the same scores from a written log as `backprint.tools.graphnet.scores`. Their parser looks for
words anywhere in a line, so names and reasons are written with `%5B` for `[` and the like, and unescaped when read.
Unmeasured samples stand before the first `[Processing]`, where GraphNet's parser skips all lines.

Words of this file:

- A ScoredSample is one sample that one compiler ran: its outcome, speedup and outputs. The two *sides* that ran it are
  `eager` and `compiled`.
- An OutputForm is an output without its values: dtype, shape, and `nan` or `inf` if it has such values where eager's
  output has none. A ScoredOutput is eager's form, whether the compiler's output is equal, and the Tolerances that it is
  within.
- A *correctness line* says of each output, by 1 or 0, whether it is within one tolerance, which the line names, or
  equal (EQUAL).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from backprint.common.files import read_lines
from backprint.errors import UsageError
from backprint.table.nouns import Report, Table
from backprint.tools.graphnet.scores import (
    COMPARED,
    EQUAL,
    MISMATCHES,
    TOLERANCES,
    UNMEASURED,
    OutputForm,
    ScoredOutput,
    ScoredSample,
    ScoreTerms,
    Tolerance,
    compared_outcome,
    score_curve,
    tolerance_named,
)

T = TypeVar("T")

PROMPT = "graph-net-test-compiler-log"
"""What every line that is written begins with; lines that are read may begin with anything."""

FLUCTUATION = "Environment fluctuation detected"
"""What GraphNet logs where timing fluctuated."""

SIDES = {"eager": "Eager", "compiled": "Compiled"}
"""The sides, and how lines about a failure name them."""

PATTERNS = {
    "config": re.compile(r"\[Config\] (\S+): (.+)"),
    "datatype": re.compile(r"\[Datatype\]\[(\w+)\]: (.+)"),
    "compared": re.compile(r"\[(DataType|Shape)\] (eager:.+ compiled:.+ match:\w+)"),
    "correctness": re.compile(r"\[Correctness\]\[(.+?)\]: (.+)"),
    "performance": re.compile(r"\[Performance\]\[(\w+)\]: (.+)"),
    "speedup": re.compile(r"\[Speedup\]\[(\w+)\]: (.+)"),
}
"""By kind of line: its key and its value. Of two lines of one kind and key, the later counts."""

WORDS_BEFORE_REASON = re.compile(r"^.*?(model execution failed:|model run failed with an Error:)")
"""The words before a reason."""

MOST_LOG = 256 << 20
"""The bytes of a log that are read."""

MOST_LINES = 1_000_000
"""The lines of one."""

SAME_SHAPES = ("type_mismatch", "value_mismatch")
"""Outcomes with which outputs may be compared all the same: a correctness line says that shapes match."""

BOTH_SIDES = re.compile(r"eager:(.+) compiled:(.+) match:\w+")
"""What stands for each side, in the order of SIDES."""

ESCAPED = re.compile(r"[%\[]|(?<=all)_(?=close)|(?<=Error):|(?<=Exception):|[^\S ]")
"""Text of a name or a reason that GraphNet's parser would take for a line of its own, and ends of lines."""


def read_log(path: Path | str) -> tuple[ScoredSample, ...]:
    """Return the samples of a log, in its order; those written as unmeasured stand first. Refuse a file that cannot be
    read."""
    try:
        lines = read_lines(path, MOST_LOG, MOST_LINES, "surrogateescape", links=True, error=UsageError)
    except UsageError as error:
        why = str(error).removeprefix(f"{path}: ").removeprefix("cannot be read: ")
        raise UsageError(f"{path}: cannot read the log: {why}") from None
    return parse_log("\n".join(lines), str(path))


def parse_log(text: str, place: str = "log") -> tuple[ScoredSample, ...]:
    """Return the samples of a log's text: those of its unmeasured lines, then one for each `[Processing]`. Messages
    name the `place` and the line."""
    lines = tuple(enumerate(text.split("\n"), 1))
    unmeasured = (_parse_unmeasured(line) for _, line in lines if "[Unmeasured] " in line)
    starts = [index for index, (_, line) in enumerate(lines) if "[Processing]" in line]
    blocks = (_LoggedLines(place, lines[start:end]) for start, end in pairwise([*starts, len(lines)]))
    return (*unmeasured, *map(parse_sample, blocks))


def write_log(samples: Iterable[ScoredSample], path: Path | str) -> None:
    Path(path).write_text(log_text(samples), encoding="utf-8", errors="surrogateescape")


def log_text(samples: Iterable[ScoredSample]) -> str:
    """Return the text of a log; each line begins with GraphNet's prompt, and unmeasured samples stand first."""
    ordered = sorted(samples, key=lambda sample: sample.outcome != UNMEASURED)
    return "".join(f"{PROMPT} {line}\n" for sample in ordered for line in sample_lines(sample))


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LoggedLines:
    """The numbered lines of one sample, from its `[Processing]` to the next; `place` is the log's name in messages."""

    place: str
    lines: tuple[tuple[int, str], ...]

    def first_with(self, *words: str) -> str | None:
        """Return the first line in which one of the words stands; None without one."""
        return next((line for _, line in self.lines if any(word in line for word in words)), None)

    def matches(self, *words: str) -> bool:
        """Whether all of the words stand in one line."""
        return any(all(word in line for word in words) for _, line in self.lines)

    def values(self, kind: str, convert: Callable[[str], T]) -> dict[str, T]:
        """Return the value of each line of a kind (PATTERNS), read by `convert`, by the line's key; refuse a value that
        `convert` cannot read (ValueError)."""
        values_by_key = {}
        for number, line in self.lines:
            if match := PATTERNS[kind].search(line):
                try:
                    values_by_key[match[1]] = convert(match[2].strip())
                except ValueError as error:
                    raise UsageError(
                        f"{self.place}:{number}: {match[0]!r:.200} cannot be read: {error}; remove the sample"
                    ) from error
        return values_by_key


def parse_sample(block: _LoggedLines) -> ScoredSample:
    """Return the sample of its lines; `sample_lines` is the reverse."""
    dtypes = block.values("datatype", str.split)  # by side
    sides = block.values("compared", lambda text: text)  # by `DataType` and `Shape`: `eager:[…] compiled:[…] match:…`
    closeness = block.values("correctness", parse_flags)  # by tolerance: of each output, whether it is within
    eager = output_forms(block, dtypes, sides, "eager")
    compiled = output_forms(block, dtypes, sides, "compiled")
    outputs = tuple(scored_output(form, index, closeness) for index, form in enumerate(eager))
    speedups = block.values("speedup", parse_speedup)  # by clock; `e2e` is the wall's
    outcome, reason = parse_outcome(block, outputs, compiled)
    if outcome in COMPARED:
        outcome, reason = _outcome_by_outputs(block, outputs, closeness, "e2e" in speedups)
    _, first_line = block.lines[0]
    _, _, name = first_line.partition("[Processing]")
    return ScoredSample(
        name=_unescaped(name.strip()),
        outcome=outcome,
        speedup=speedups.pop("e2e", None),
        outputs=outputs,
        compiled=compiled if outcome in MISMATCHES and compiled != eager else None,
        reason=reason,
        config=tuple((_unescaped(key), value) for key, value in block.values("config", _unescaped).items()),
        performance=tuple(block.values("performance", _unescaped).items()),
        speedups=tuple(speedups.items()),
    )


def parse_flags(text: str) -> tuple[bool, ...]:
    """Read the value of a correctness line, `1 0 1`: whether each output is within the tolerance."""
    return tuple(bool(float(word)) for word in text.split())


def parse_speedup(text: str) -> float:
    """Read a speedup."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError("a speedup is a finite number from 0 on")
    return value


def output_forms(
    block: _LoggedLines, dtypes: Mapping[str, Sequence[str]], sides: Mapping[str, str], side: str
) -> tuple[OutputForm, ...]:
    """Return the forms of one side's outputs, one for each of its dtypes; without shapes, or without `nan` and `inf`,
    where the log has not one word for each dtype. `sides` has the texts of the lines `[DataType]` and `[Shape]`; the
    words of a `[DataType]` line may end with `:nan` or `:inf`, which `_form_lines` writes."""
    side_dtypes = dtypes.get(side, ())
    shape_words = parse_side(sides.get("Shape", ""), side)
    dtype_words = parse_side(sides.get("DataType", ""), side)
    shapes: list[tuple[Any, ...] | None] = [None] * len(side_dtypes)
    if len(shape_words) == len(side_dtypes):
        shapes = [tuple(shape) if isinstance(shape, list) else None for shape in shape_words]
    values = [""] * len(side_dtypes)
    if len(dtype_words) == len(side_dtypes):
        values = [str(word).partition(":")[2] for word in dtype_words]
    return tuple(map(OutputForm, side_dtypes, shapes, values))


def parse_side(text: str, side: str) -> list[object]:
    """Return the list that stands for a side in `eager:[…] compiled:[…] match:…`; empty where there is none to read."""
    match = BOTH_SIDES.fullmatch(text)
    if match is None:
        return []
    try:
        # Python wrote the list, with single quotes.
        values = json.loads(match[list(SIDES).index(side) + 1].replace("'", '"'))
    except ValueError:
        return []
    return values if isinstance(values, list) else []


def scored_output(form: OutputForm, index: int, closeness: Mapping[str, tuple[bool, ...]]) -> ScoredOutput:
    """Return the output number `index`, of eager's `form`, with the tolerances that it is within; a correctness line
    (`closeness`, by its name) with too few values says nothing good of the rest."""
    names_within = [name for name, values in closeness.items() if values[index : index + 1] == (True,)]
    tolerances = (tolerance_named(name) for name in names_within)
    return ScoredOutput(
        form, EQUAL in names_within, frozenset(tolerance for tolerance in tolerances if tolerance is not None)
    )


def parse_outcome(
    block: _LoggedLines, outputs: Sequence[ScoredOutput], compiled: Sequence[OutputForm]
) -> tuple[str, str]:
    """Return how the sample ended (an outcome of `scores`), and why ('' where there is no reason to give), by the words
    that GraphNet looks for, in its order."""
    is_compared = block.matches("all_close")  # then both sides ran, whatever other lines are missing
    if line := block.first_with(FLUCTUATION):
        return UNMEASURED, _reason_in(line)
    if not (is_compared or block.matches("[Datatype][eager]")):
        return _failure_without_dtypes(block)
    if not (is_compared or block.matches("[Datatype][compiled]")):
        return "compile_fail", _reason_in(block.first_with(f"{SIDES['compiled']} model execution failed:", *ERRORS))
    types_match = block.matches("[DataType]", "match:True")
    if not (is_compared or block.matches("[Shape]", "match:True")):
        return _mismatch_without_shapes(block), ""
    if not types_match:
        return _mismatch_of_types([output.form for output in outputs], compiled), ""
    if line := block.first_with(*ERRORS):
        return "runtime_fail", _reason_in(line)
    return "correct", ""


def _outcome_by_outputs(
    block: _LoggedLines, outputs: Sequence[ScoredOutput], closeness: Mapping[str, tuple[bool, ...]], is_timed: bool
) -> tuple[str, str]:
    """Return the outcome where nothing failed, and its reason, from the outputs that were compared: unmeasured if none
    was, or if they are right and not timed. Refuse a correctness line (`closeness`) with more outputs than dtypes."""
    longest = max(map(len, closeness.values()), default=0)
    if longest > len(outputs):
        number, line = block.lines[0]
        raise UsageError(
            f"{block.place}:{number}: {line.strip()!r:.200}: [Correctness] has {longest} outputs, "
            f"[Datatype][eager] has {len(outputs)} dtypes; remove the sample"
        )
    if not outputs or EQUAL not in closeness:
        return UNMEASURED, "no output was compared"
    outcome = compared_outcome(outputs)
    return (UNMEASURED, "not timed") if outcome == "correct" and not is_timed else (outcome, "")


ERRORS = ("Exception:", "Error:")
"""Words of a line about a failure, besides GraphNet's own."""


def _failure_without_dtypes(block: _LoggedLines) -> tuple[str, str]:
    """Return how a sample failed of which no dtype is known, and why."""
    side = "compiled" if block.matches("Fail due to compiled model execution error") else "eager"
    line = block.first_with(f"{SIDES[side]} model execution failed:", *ERRORS)
    return {"eager": "eager_fail", "compiled": "compile_fail"}[side], _reason_in(line)


def _mismatch_without_shapes(block: _LoggedLines) -> str:
    """Return which mismatch a sample has without a line that shapes match: they differ, or were not compared because
    the dtypes differ."""
    has_no_shape_line = not block.matches("[Shape]", "match:")
    return "type_mismatch" if has_no_shape_line and block.matches("[DataType]", "match:False") else "shape_mismatch"


def _mismatch_of_types(eager: Sequence[OutputForm], compiled: Sequence[OutputForm]) -> str:
    """Return which mismatch a `[DataType]` line is about that says that dtypes differ: GraphNet writes one too where
    the compiled side has NaN or Inf and the dtypes are the same."""
    same = [form.dtype for form in eager] == [form.dtype for form in compiled]
    return "value_mismatch" if same and any(form.values for form in compiled) else "type_mismatch"


def _reason_in(line: str | None) -> str:
    """Return the reason that a line gives, without the words before it."""
    return _unescaped(WORDS_BEFORE_REASON.sub("", line).strip()) if line else ""


def _parse_unmeasured(line: str) -> ScoredSample:
    """Return the sample of a line `[Unmeasured] NAME REASON`."""
    name, _, reason = line.partition("[Unmeasured] ")[2].partition(" ")
    return ScoredSample(_unescaped(name), UNMEASURED, reason=_unescaped(reason.strip()))


# --- writing ----------------------------------------------------------------------------------------------------------


def sample_lines(sample: ScoredSample) -> Iterator[str]:
    """Yield a sample's lines, in GraphNet's order, without the PROMPT that begins each line of a log."""
    name = _escaped_word(sample.name)
    if sample.outcome == UNMEASURED:
        yield f"[Unmeasured] {name} {escaped(sample.reason)}"
        return
    yield f"[Processing] {name}"
    yield from (f"[Config] {_escaped_word(key)}: {escaped(value)}" for key, value in sample.config if value)
    yield from _form_lines(sample)
    if sample.outcome in COMPARED or (sample.outcome in SAME_SHAPES and any(map(_has_closeness, sample.outputs))):
        yield from _closeness_lines(sample.outputs)
    lines_of_reason = REASONS.get(sample.outcome, _no_reason)
    yield from lines_of_reason(escaped(sample.reason))
    yield f"[Result] status: {'success' if sample.outcome in COMPARED else 'failed'}"
    yield from (f"[Performance][{clock}]: {escaped(text)}" for clock, text in sample.performance)
    speedups = (("e2e", sample.speedup), *sample.speedups)
    yield from (f"[Speedup][{clock}]: {value!r}" for clock, value in speedups if value is not None)


def _form_lines(sample: ScoredSample) -> Iterator[str]:
    """Yield the lines of dtypes and shapes: of both sides, of eager alone where compiling failed, or none where eager
    failed."""
    if sample.outcome == "eager_fail":
        return
    eager = [output.form for output in sample.outputs]
    yield f"[Datatype][eager]: {' '.join(form.dtype for form in eager)}"
    if sample.outcome == "compile_fail":
        return
    compiled = eager if sample.compiled is None else sample.compiled
    yield f"[Datatype][compiled]: {' '.join(form.dtype for form in compiled)}"
    # `float32`, or `float32:nan` and `float32:inf`
    eager_words, compiled_words = (
        [f"{form.dtype}:{form.values}".removesuffix(":") for form in side] for side in (eager, compiled)
    )
    # GraphNet says here that dtypes differ also where the compiled side alone has NaN or Inf (`_mismatch_of_types`).
    differ = sample.outcome in ("type_mismatch", "value_mismatch")
    yield f"[DataType] eager:{eager_words} compiled:{compiled_words} match:{not differ}"
    eager_shapes, compiled_shapes = (
        [list(form.shape) for form in side if form.shape is not None] for side in (eager, compiled)
    )
    yield f"[Shape] eager:{eager_shapes} compiled:{compiled_shapes} match:{sample.outcome != 'shape_mismatch'}"


def _has_closeness(output: ScoredOutput) -> bool:
    return output.equal or bool(output.close)


def _closeness_lines(outputs: Sequence[ScoredOutput]) -> Iterator[str]:
    """Yield a line for equality, and one for each tolerance of all dtypes: which outputs are within it; none without
    outputs."""
    if not outputs:
        return
    yield f"[Correctness][{EQUAL}]: {' '.join(str(int(output.equal)) for output in outputs)}"
    for tolerance in TOLERANCES:
        yield f"[Correctness][{tolerance.line_name}]: {' '.join(flag_text(output, tolerance) for output in outputs)}"


def flag_text(output: ScoredOutput, tolerance: Tolerance) -> str:
    """Return `1` if an output is within a tolerance, else `0`; `parse_flags` reads it."""
    return str(int(tolerance in output.close))


def _no_reason(reason: str) -> Iterator[str]:
    return iter(())


def _runtime_reason(reason: str) -> Iterator[str]:
    yield f"Compiled model run failed with an Error: {reason}"


def _compile_reason(reason: str) -> Iterator[str]:
    yield f"Compiled model execution failed: {reason}"
    yield "[Fail due to compiled model execution error.]"


def _eager_reason(reason: str) -> Iterator[str]:
    yield f"Eager model execution failed: {reason}"
    yield "[Fail due to eager model execution error.]"


REASONS: dict[str, Callable[[str], Iterator[str]]] = {
    "runtime_fail": _runtime_reason,
    "compile_fail": _compile_reason,
    "eager_fail": _eager_reason,
}
"""By outcome: what yields the lines with its reason."""


def escaped(text: str) -> str:
    """Return an untrusted text escaped for one line; `_unescaped` is the inverse."""
    return ESCAPED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)


def _escaped_word(text: str) -> str:
    return escaped(text).replace(" ", "%20")


def _unescaped(text: str) -> str:
    return unquote(text, errors="surrogateescape")


# ------------------------------------------------------------------ a report of logs


def report_of_logs(path: Path) -> Report:
    """Return the report of a GraphNet log, or of a folder of logs: the scores at each tolerance level, in both
    interpretations, of the samples that were measured, and all samples."""
    logs = {log.stem: read_log(log) for log in (sorted(path.glob("*.log")) if path.is_dir() else [path])}
    rows = [
        (name, sample.name, _outcome_in_report(sample), sample.speedup, sample.reason)
        for name, samples in logs.items()
        for sample in samples
    ]
    scores = []
    for name, samples in logs.items():
        if any(sample.measured for sample in samples):
            default = {point.level: point.es for point in score_curve(samples)}
            extended = score_curve(samples, ScoreTerms(interpretation="extended"))
            # `extended` has a level more than `default`.
            scores += [(name, point.level, point.s, default.get(point.level), point.es) for point in extended]
    kinds = {"name": "name", "t": "digits", "S": "number", "ES_default": "number", "ES_extended": "number"}
    table = Table("GraphNet's scores", kinds, scores, "At each tolerance level t; higher is better.")
    columns = {"log": "name", "sample": "name", "outcome": "word", "speedup": "times", "reason": "detail"}
    outcomes = Counter(_outcome_in_report(sample) for samples in logs.values() for sample in samples)
    right = outcomes.pop("correct", 0)
    words = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    rest = f"; the others: {words}" if outcomes else ""
    answer = f"{right:,} of {len(rows):,} samples of {', '.join(logs)} are correct{rest}."
    return Report("Bench logs", answer, (table,), Table("All samples", columns, rows))


def _outcome_in_report(sample: ScoredSample) -> str:
    """Return the outcome of a sample; unmeasured if no score counts it."""
    return sample.outcome if sample.measured else UNMEASURED
