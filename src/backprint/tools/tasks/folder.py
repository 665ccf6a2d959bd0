"""A task's folder, read as if a stranger had written it: nothing in it is imported or run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from backprint.common.files import from_plain, read_json, read_text
from backprint.errors import SampleError
from backprint.sample.load import load
from backprint.tools.tasks.nouns import FORMAT, Task
from backprint.tools.tasks.program import TaskProgram, program_of
from backprint.tools.tasks.writing import REFERENCE, SAMPLE, TASK, hash_of_program, task_port, texts_of_task

MOST_TEXT = 32 << 20
"""The most bytes of a text that is read."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task that was read: its folder, its facts, and the program of its sample."""

    folder: Path
    task: Task
    program: TaskProgram


def read_facts(folder: str | os.PathLike[str]) -> Task:
    """Read `task.json`; SampleError if a folder has none, or one that is damaged or of another format."""
    place = Path(folder) / TASK
    if not place.exists():
        raise SampleError(f"{folder}: no {TASK} here, so this is not a task: `backprint task make TARGET` makes one")
    content = read_json(place)
    version = content.get("format") if isinstance(content, dict) else None
    if type(version) is int and version != FORMAT:
        raise SampleError(f"{place}: format {version}, and this version of Backprint reads format {FORMAT}")
    try:
        return from_plain(Task, content, TASK)
    except (ValueError, TypeError) as error:
        raise SampleError(f"{place}: {error}") from None


def read_task(folder: str | os.PathLike[str]) -> ReadTask:
    """Return the task in a folder. SampleError says why it is none, or that its files do not belong together:
    `task.json` and `reference.py` have to be what its sample makes of them."""
    place = Path(folder)
    task = read_facts(place)
    program = program_of(load(place / SAMPLE))
    inputs = tuple(task_port(port.name, port, differentiable=port.name in program.wanted) for port in program.inputs)
    outputs = tuple(task_port(name, port, differentiable=name in program.tangents) for name, port in program.outputs)
    if (task.inputs, task.outputs) != (inputs, outputs) or task.hash != hash_of_program(program):
        raise SampleError(f"{place}: {TASK} is not that of its sample: make the task anew")
    written = read_text(place / REFERENCE, MOST_TEXT)
    if written != texts_of_task(task, program)[REFERENCE]:
        raise SampleError(f"{place}: {REFERENCE} is not the sample's program, so it was changed: make the task anew")
    return ReadTask(place, task, program)
