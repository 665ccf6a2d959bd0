"""The steps of a running training script, each a Capture of linked Pairs: forward, backward, optimizer.

This module is the face: `record`.

- `script`: the script, run as Python runs it.
- `recording`: hooks on torch that find where a step begins and ends.
- `messages`: the collectives of a step that runs among processes.
- `steps`: the tape of one step, divided where backwards begin and end, as a Capture. `proving`: its proof.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from backprint.common.text import check_sequence
from backprint.graph.nouns import Capture
from backprint.tools.record import script as script_runner


def record(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    steps: tuple[int, int] = (1, 2),
    done: Callable[[int, Capture], None] | None = None,
    *,
    module: bool = False,
    tell: Callable[[str], None] | None = None,
    stay: bool = False,
) -> list[Capture]:
    """Run an unmodified training script, and capture its steps from `steps[0]` to before `steps[1]`, counted from 0.

    With `module`, `script` is the name of a module, which is run as `python -m NAME` runs it. A step ends with an
    optimizer's step: forward, backward and update are linked Pairs. `done` is called with each step's number and
    Capture while the script still runs. The script prints, raises and computes as without Backprint: if a step cannot
    be captured, a warning names the cause, or `tell` is called with it. With `stay` the script's `__main__`, `sys.argv`
    and `sys.path` stay in place, for a process that ends with it. Return the Captures; none if `done` takes them.
    """
    check_sequence("arguments", arguments)
    place = os.fspath(script)
    program = script_runner.script_of_module(place) if module else script_runner.script_at(place)
    script_runner.check_steps(steps)
    captures: list[Capture] = []
    messages: list[str] = []  # warned of at the end, where there is no `tell`
    recordings: list[Any] = []  # at most one: it is made when the script imports torch
    report = tell or messages.append

    def prove_and_keep(number: int, capture: Capture) -> None:
        """Prove a step, and hand it to `done`, or keep it; raise if its replay differs."""
        from backprint.tools.record.proving import proven_step

        proven = proven_step(capture)
        if done is None:
            captures.append(proven)
        else:
            done(number, proven)

    def begin() -> None:
        from backprint.tools.record.recording import Recording

        recordings.append(Recording(steps, prove_and_keep, report))
        recordings[0].open()

    name = program.name
    process = os.getpid()
    try:
        with script_runner.on_import("torch", script_runner.reporting_errors(begin, report)):
            script_runner.run_as_main(program, place, arguments, stay)
    finally:
        if os.getpid() == process:  # a child that the script forked ends here too
            for recording in recordings:
                recording.close()
            not_imported = [f"{name} made no step: it did not import torch"]
            for text in recordings[0].missing(name) if recordings else not_imported:
                report(text)
        for text in messages:
            warnings.warn(text, stacklevel=2)
    return captures
