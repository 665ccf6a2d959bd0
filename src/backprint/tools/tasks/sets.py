"""A set of tasks: one for each different part of the samples of a corpus, with how often it occurs.

Parts are the same if both graphs are equal but for names and for the order of independent steps. A row is added to
`set.json` with each task, so that a set that was ended goes on. A part is held out by its hash, so that the same part
is on the same side in every set.

A TARGET names a program: `model.py:make`, or the folder of a sample. A sample is a Capture on disk; it is run in a
process of its own, which a function named by a text, `module:function`, calls there: the `…_in_own_process` below. They
get a SampleTask (the sample's id and folder), plain options, and a folder to write their answer into (`staging`).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from backprint.common.files import read_json, write_file
from backprint.errors import BackprintError, ReplayError, UsageError
from backprint.graph.nouns import Capture
from backprint.tools.jobs.apart import ask, result_of, run_apart, write_result
from backprint.tools.jobs.find import samples_in
from backprint.tools.jobs.task import Task as SampleTask
from backprint.tools.jobs.verbs import load_only
from backprint.tools.parts.split import split
from backprint.tools.target import capture_target, read_capture, read_target
from backprint.tools.tasks.folder import read_facts
from backprint.tools.tasks.nouns import Task, TaskSet
from backprint.tools.tasks.program import program_of
from backprint.tools.tasks.writing import TASK, hash_of_program, part_of, task_json, valid_task_name, write_task

SET, CARD, DONE = "set.json", "README.md", "done.json"
"""The files of a set: its rows, a text for people, and how many parts each sample had that is done."""

Watch = Callable[[str], None]
"""Is called with a line about each sample that is done."""


def _capture_of_target(target: str | os.PathLike[str], allow: tuple[str, ...], options: Mapping[str, Any]) -> Capture:
    """Return the Capture of a TARGET: that of a sample as it is, unless options of a capture are passed: then the
    program is captured anew. `allow` names the custom operators that a sample may call."""
    place = Path(target)
    if place.is_dir() and not options:
        return read_capture(place, allow=allow)
    return capture_target(read_target(str(target)), **options)


def make_here(
    target: Capture | str | os.PathLike[str],
    out: Path,
    allow: tuple[str, ...],
    options: Mapping[str, Any],
    *,
    part: str | None,
    name: str | None,
    overwrite: bool,
    measure: bool,
) -> Task:
    """Write the task of a TARGET, or of a Capture, in this process, and return it. `part` cuts out a part of it, and
    `name` is that of the task; without one, it is the Capture's and the part's. With `measure`, eager and Inductor are
    timed."""
    capture = target if isinstance(target, Capture) else _capture_of_target(target, allow, options)
    whole = capture.name
    if part:
        capture = part_of(capture, part)
    title = name or valid_task_name(f"{whole}.{part}" if part else whole)
    return write_task(capture, out, title, overwrite=overwrite, measure=measure)


def make_apart(
    sample: Path, out: Path, allow: tuple[str, ...], options: Mapping[str, Any], how: Mapping[str, Any]
) -> Task:
    """Write the task of a sample, in a process of the sample's own (`make_in_own_process`), and return it. `options`
    are those of a capture, and `how` those of `make_here`. ReplayError if the process ends early, UsageError for
    options that cannot be sent to it, and what `make_here` raises there."""
    sent = {"out": os.fspath(out.absolute()), "allow": list(allow), "options": dict(options), "how": dict(how)}
    try:
        json.dumps(sent)
    except TypeError as error:
        raise UsageError(f"{sample}: {error}: capture it here with these options, and pass the Capture") from None
    answer = ask("backprint.tools.tasks.sets:make_in_own_process", sample, sent, TIMEOUT, NoneType)
    if answer.ended:
        raise ReplayError(f"{sample} did not run to its end, so it is no task: {answer.ended}")
    return read_facts(out)


TIMEOUT = 3600.0
"""The seconds that a sample may take to become tasks."""


def make_in_own_process(task: SampleTask, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Write the task of a sample, in the sample's own process: what `make_apart` asks for there. The answer says only
    that it was made, or which error was raised."""

    def make() -> None:
        make_here(task.folder, Path(options["out"]), tuple(options["allow"]), options["options"], **options["how"])

    return write_result(staging, make)


def add_in_own_process(task: SampleTask, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Add the parts of a sample to a set, in the sample's own process: what `write_set` asks for there. It reads what
    is known of the set from its folder, and writes it again."""
    source, by, held_out, most, least, allow = options["how"]

    def add() -> None:
        state = _read_state(Path(options["out"]))
        state.add_sample(options["keys"][task.folder], task.path, by, held_out, most, least, tuple(allow))
        state.write(Path(source), by)

    return write_result(staging, add)


# What the workers of these two load first.
make_in_own_process.warm = add_in_own_process.warm = load_only  # type: ignore[attr-defined]  # what their worker loads first


def write_set(
    source: Path,
    out: Path,
    by: str,
    held_out: float,
    most: int | None,
    least: int,
    allow: tuple[str, ...],
    watch: Watch | None,
) -> TaskSet:
    """Write a set of the samples below `source` to `out`, and return it; a set that is there already goes on. The other
    parameters are those of `make_set`. UsageError for a share that is none, or if there are no samples.

    Each sample's process writes the state of the set itself, and this one writes only for a sample that failed. One
    sample runs at a time, so that no two write.
    """
    if not 0 <= held_out < 1:
        raise UsageError(f"held_out={held_out!r}: a share from 0 to 1")
    samples = sorted(samples_in([source]))
    if not samples:
        raise UsageError(f"{source}: no samples below it")
    out.mkdir(parents=True, exist_ok=True)
    state = _read_state(out)
    state.write(source, by)  # so that `out` is a set already if the first sample ends its process
    keys = {sample: str(sample.relative_to(source)) if sample != source else sample.name for sample in samples}
    remaining = [sample for sample in samples if keys[sample] not in state.done]
    how = [os.fspath(source), by, held_out, most, least, list(allow)]
    named_keys = {os.fspath(sample.absolute()): key for sample, key in keys.items()}
    sent_options = {"out": os.fspath(out.absolute()), "keys": named_keys, "how": how}
    answers = run_apart(
        "backprint.tools.tasks.sets:add_in_own_process",
        remaining,
        sent_options,
        limits_of_each=(TIMEOUT, None),  # seconds, and GiB: None is the usual part of the machine's
        on_sample=lambda place: None,  # nothing is told when a sample begins
    )
    with contextlib.closing(answers) as ended:  # type: ignore[type-var]  # a generator, which closes its workers
        for answer in ended:
            state, key = _read_state(out), keys[answer.place]
            try:
                why = result_of(answer, NoneType).ended
            except BackprintError as error:
                why = str(error)
            if why:
                state.skipped[key] = why
                state.done[key] = 0
                state.write(source, by)
            if watch is not None:
                watch(f"{key}: {len(state.rows)} tasks")
            if most is not None and len(state.rows) >= most:
                break  # the samples left are not done: with a larger `most` the set goes on
    return TaskSet(out, tuple(state.rows.values()), tuple(state.skipped.items()))


class _SetState:
    """What is known of a set so far: a row of each task by its hash, how many parts each sample had that is done, and
    the parts that became no task, with the reason."""

    def __init__(
        self, out: Path, rows: dict[str, dict[str, Any]], done: dict[str, int], skipped: dict[str, str]
    ) -> None:
        self.out, self.rows, self.done, self.skipped = out, rows, done, skipped

    def add_sample(
        self, key: str, sample: Path, by: str, held_out: float, most: int | None, least: int, allow: tuple[str, ...]
    ) -> None:
        """Add the parts of a sample, whose path in the corpus is `key`; the options are those of `make_set`. What
        becomes no task is in `skipped`, with the reason: the sample, if it cannot be read, or a part."""
        try:
            parts = list(parts_of(read_capture(sample, allow=allow), by))
        except BackprintError as error:
            self.skipped[key] = f"{error}"
            parts = []
        for part in parts:
            name = f"{key} {part.label}".strip()
            if part.fault:
                self.skipped[name] = part.fault
                continue
            try:
                self.add_part(name, part.capture, part.equal_parts, held_out, most, least)
            except BackprintError as error:
                self.skipped[name] = f"{error}"
        self.done[key] = len(parts)

    def add_part(self, name: str, part: Capture, count: int, held_out: float, most: int | None, least: int) -> None:
        """Add one part, which stands for `count` equal ones: a new task, or more places where a known one occurs.

        One with fewer than `least` operators is skipped, and a new task beyond `most` is left out. `held_out` is the
        share of tasks that are.
        """
        if part.pairs and len(part.pairs[0].forward.steps) < least:
            self.skipped[name] = f"fewer than {least} operators"
            return
        program = program_of(part)
        key = hash_of_program(program)
        row = self.rows.get(key)
        if row is not None:
            row["occurs"] += count
            row["places"].append(name)
            place = self.out / row["path"] / TASK
            task = replace(read_facts(self.out / row["path"]), occurs=row["occurs"])
            write_file(place, [task_json(task).encode()])
            return
        if most is not None and len(self.rows) >= most:
            return
        path = f"tasks/{len(self.rows):04d}_{valid_task_name(name)[-60:]}"
        task = write_task(part, self.out / path, valid_task_name(name), overwrite=True, occurs=count)
        self.rows[key] = {
            "path": path,
            "name": task.name,
            "hash": key,
            "occurs": count,
            # The first eight hex digits of the hash, over 16**8, are a number from 0 to 1, as if drawn evenly.
            "split": "held out" if int(key[:8], 16) / 16**8 < held_out else "open",
            "steps": len(program.forward.steps) + len(program.backward.steps),
            "places": [name],
        }

    def write(self, source: Path, by: str) -> None:
        """Write `set.json`, the card, and which samples are done."""
        rows = list(self.rows.values())
        content = {"by": by, "tasks": rows, "skipped": self.skipped}
        write_file(self.out / SET, [json.dumps(content, indent=1).encode(), b"\n"])
        write_file(self.out / CARD, ["\n".join(card_lines(source.name, by, rows, self.skipped)).encode(), b"\n"])
        write_file(self.out / DONE, [json.dumps(self.done).encode(), b"\n"])


def _read_state(out: Path) -> _SetState:
    """Read what is known of a set; nothing of a new one. Raise UsageError for a folder with other files."""
    if not (out / SET).exists():
        if any(out.iterdir()):
            raise UsageError(f"{out} exists and is not a set of tasks: choose another path")
        return _SetState(out, rows={}, done={}, skipped={})
    content, done = read_json(out / SET), read_json(out / DONE)
    return _SetState(out, {row["hash"]: row for row in content["tasks"]}, done, content["skipped"])


class PartOfSample(NamedTuple):
    """A part of a sample: its label ('' of the whole), its Capture, why it can be no task ('' if it may), and how many
    equal parts it stands for."""

    label: str
    capture: Capture
    fault: str = ""
    equal_parts: int = 1


def parts_of(capture: Capture, by: str) -> Iterator[PartOfSample]:
    """Yield the parts of a Capture, cut as `bp.split` cuts it, or with `whole` not at all. A Capture that cannot be cut
    so is one part. Parts that are not proven have a fault."""
    if by == "whole":
        yield PartOfSample("", capture)
        return
    try:
        whole = split(capture, by)
    except UsageError:
        yield PartOfSample("", capture)
        return
    for part in whole.parts:
        if part.wanted:  # not what lies between those that `by` names
            fault = "" if part.verdict.good else f"{part.verdict.verdict}: {part.verdict.detail}"
            yield PartOfSample(f"{part.label} {part.index}", part.capture, fault, part.count)


def card_lines(source: str, by: str, rows: list[dict[str, Any]], skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the card of a set, its `README.md`. `source` is the name of the corpus, `by` how its samples
    were cut, and `rows` are those of `set.json`, of which the most frequent are listed."""
    occurrences = sum(row["occurs"] for row in rows)
    held = [row for row in rows if row["split"] == "held out"]
    yield f"# Tasks of {source}"
    yield ""
    yield (
        f"{len(rows)} different parts, cut by `{by}`, which occur {occurrences} times in the samples. Each is a "
        "folder: a forward and a backward to write, and what a judge compares them with. `backprint task check TASK "
        "solution.py` judges a solution."
    )
    yield ""
    yield f"- **Open**: {len(rows) - len(held)} tasks. **Held out**: {len(held)}, chosen by the hash of their graphs."
    yield "- **Weight**: a score counts each task as often as its part occurs (`occurs` in `set.json` and `task.json`)."
    yield "- **Reference**: the graphs that PyTorch ran, proven against autograd when they were captured."
    yield f"- **Left out**: {len(skipped)} parts, with the reason in `set.json`."
    yield ""
    yield "| task | occurs | steps, both ways | split |"
    yield "|---|---|---|---|"
    for row in sorted(rows, key=lambda row: -row["occurs"])[:MOST_ROWS]:
        yield f"| `{row['path']}` | {row['occurs']} | {row['steps']} | {row['split']} |"
    if len(rows) > MOST_ROWS:
        yield f"| … and {len(rows) - MOST_ROWS} more | | | |"


MOST_ROWS = 50
"""The most tasks that the card lists."""
