"""The last steps of a training on disk: what each ran, and the weights that it ran with.

A step is written by a thread, and only while all writing together takes no more than a share of the training's time; so
the ring has the last steps that were written, which in a large model are not the last steps that ran. If the process
dies, the next `bp.watch` of that folder makes samples of what is there. A Program (`program`) is what a step ran, as
data; a Taped (`tape`) is the same as it was noted while the step ran.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from backprint.errors import describe_error
from backprint.graph.nouns import Source
from backprint.tools.watch.program import Call, Operation, Own, Program, Ref
from backprint.tools.watch.tape import Taped, program_of
from backprint.values.settings import RandomStates


@dataclass(frozen=True, slots=True)
class Entry:
    """A step in the ring: its number, its program, and the model's weights before it, by name."""

    number: int
    program: Program
    weights: Mapping[str, Tensor]


PLAIN = [Call, Entry, Operation, Own, Program, RandomStates, Ref, Source]
"""What an entry is made of, beside tensors and plain values: nothing else is read from a file."""


BYTES_PER_SECOND, SECONDS_PER_FILE = 3e8, 0.002
"""How fast the first step is written, at a guess: the cost of the others is measured."""


class Ring:
    """The last `steps` entries in a folder, as files `step_000000037.pt`; `share` is the part of the training's time
    that writing them may take, and `tell` takes each message.

    `began` is when the first step was offered, `spent` the seconds that all writing has taken, and `last_cost` what the
    last entry took. `waiting` has the entry that the thread writes next, at most one; None ends the thread. `is_off`
    says that nothing is written (any more).
    """

    def __init__(self, folder: Path, steps: int, share: float, tell: Callable[[str], None]) -> None:
        self.folder = folder
        self.steps = steps
        self.share = share
        self.tell = tell
        self.began = 0.0
        self.spent = self.last_cost = 0.0
        self.waiting: queue.Queue[Entry | None] = queue.Queue(maxsize=1)
        self.thread: threading.Thread | None = None
        self.is_off = not steps

    def write(self, number: int, taped: Taped, model: nn.Module, own: Mapping[int, str]) -> None:
        """Have the thread write a step, unless the entry before it still waits, or writing one more would take more
        than the share of the time. `own` names the model's tensors, by id."""
        now = time.perf_counter()
        if not self.began:
            self.began = now
            size = sum(weight.nbytes for weight in model.parameters())
            self.last_cost = SECONDS_PER_FILE + size / BYTES_PER_SECOND
        if self.is_off or not self.waiting.empty() or self.spent + self.last_cost > self.share * (now - self.began):
            return
        try:
            weights = {name: weight.detach().to("cpu", copy=True) for name, weight in model.named_parameters()}
            entry = Entry(number, program_of(taped, own), weights)
        except Exception as error:  # no program can be made of the step, and the next ones are like it
            self.turn_off(f"step {number} cannot be written to {self.folder}: {describe_error(error)}")
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, name="backprint.watch", daemon=True)
            self.thread.start()
        self.waiting.put(entry)
        self.spent += time.perf_counter() - now

    def work(self) -> None:
        """Write entries until None comes."""
        while (entry := self.waiting.get()) is not None:
            began = time.perf_counter()
            try:
                self.put(entry)
            except Exception as error:  # a full disk, say: the training goes on
                self.turn_off(f"{self.folder}: steps are written no longer: {describe_error(error)}")
            self.last_cost = time.perf_counter() - began
            self.spent += self.last_cost
            self.waiting.task_done()

    def put(self, entry: Entry) -> None:
        """Write an entry under a temporary name, and rename it; remove those that are too many."""
        if self.is_off:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        place = self.folder / f"step_{entry.number:09d}.pt"
        staging = place.with_suffix(".writing")
        try:
            torch.save(entry, staging)
            os.replace(staging, place)
        finally:
            staging.unlink(missing_ok=True)
        for old in self.places()[: -self.steps]:
            old.unlink()

    def turn_off(self, why: str) -> None:
        """Write nothing more, and say why."""
        if not self.is_off:
            self.is_off = True
            self.tell(why)

    def places(self) -> list[Path]:
        """Return the files of the entries, the oldest first."""
        return sorted(self.folder.glob("step_*.pt"))

    def written(self) -> list[Path]:
        """Return the files of the entries, once all are written."""
        self.waiting.join()
        return self.places()

    def close(self, remove: bool) -> None:
        """End the thread; remove the folder of a training that has ended well."""
        if self.thread is not None:
            self.waiting.put(None)
            self.thread.join()
            self.thread = None
        if remove:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.folder)


def read_parts(place: Path) -> tuple[Program, Mapping[str, Tensor]]:
    """Return the program and the weights of an entry in a file. Torch makes nothing of a pickle but tensors, plain
    values and the classes in PLAIN; raise if the file has anything else."""
    with torch.serialization.safe_globals(PLAIN):
        entry = torch.load(place, weights_only=True)
    if not isinstance(entry, Entry):
        raise TypeError(f"{place}: not a step of a ring")
    return entry.program, entry.weights
