"""Restore everything that a program can reach after it has run, and give each run the same random numbers.

Numbers that are not drawn from torch's generators cannot be drawn by a graph, so every run of the program uses the same
ones (`ForeignRandomStates`). A warning names changes of a run that are not restored, where they are cheap to see.

A Snapshot has the state of everything that a program reaches: `tensors`, with the content of the storages whose ids are
in `copied_storages`, and `generators`, each with its name. `snapshot.lost` describes changes that are not restored.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from backprint._torch.tensors import storage_id
from backprint.common.text import printable
from backprint.errors import CaptureError
from backprint.trace import frames
from backprint.trace.state.named import named_settings
from backprint.trace.state.process import restoring_globals
from backprint.trace.state.snapshot import Snapshot
from backprint.trace.state.tensors import global_hooks, is_plain, untraced
from backprint.values.objects import generator_state, set_generator_state
from backprint.values.settings import OWN, foreign_states, hashable_state, random_state_digest, set_foreign_states

# ---- Random numbers that are not torch's


@dataclass(slots=True, eq=False)
class ForeignRandomStates:
    """The states of random generators that are not torch's when a call was read, and which of them a run drew from.

    A graph cannot draw these numbers: every run of the program uses the same ones, and the graph has them as constants.
    `states` has the states of the process's generators (`random`, `numpy.random`) by name, and `drawn` the names of
    those that a run drew from. `objects` are the generators that the program holds and drew from, by name, each with
    its state before the draw. `after` has the states of the process's generators after a forward, where its backward
    starts; `context` has the ContextVars that this forward has set, for its backward.
    """

    states: dict[str, Any] = field(default_factory=foreign_states)
    drawn: set[str] = field(default_factory=set)
    objects: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def pins(self) -> dict[str, str]:
        """Return, by name of the generator, the digest of each state that the program's numbers depend on."""
        process = {name: random_state_digest(self.states[name]) for name in sorted(self.drawn)}
        return process | {name: random_state_digest(state) for name, (_, state) in self.objects.items()}

    def current_digests(self) -> dict[str, str]:
        """Return the digests of the current states of the same generators as `pins`."""
        process = {name: random_state_digest(state) for name, state in foreign_states().items() if name in self.drawn}
        return process | {
            name: random_state_digest(generator_state(source)) for name, (source, _) in self.objects.items()
        }


@contextlib.contextmanager
def with_foreign_random_states(
    states: ForeignRandomStates, snapshot: Snapshot | None, backward: bool = False
) -> Iterator[None]:
    """Set generators that are not torch's to their state at the call (with `backward`, to that after its forward) for a
    block, and note in `states` which of them it draws from. `snapshot` has the generators that the program holds.

    Afterwards the process's generators have the caller's state again. Generators that the program holds are set here to
    their state at the call, once a run has drawn from them (`states.objects`); the Snapshot restores them.
    """
    states_of_caller = foreign_states()
    states_to_begin = states.after if backward and states.after else states.states
    set_foreign_states(states_to_begin)
    # A backward continues where its forward ended, so generators that the program holds are set for a forward only.
    if not backward:
        for source, state in states.objects.values():
            set_generator_state(source, state)
    generators_before = _generators_in(snapshot)
    try:
        yield
        after = foreign_states()
        if not backward:
            states.after = after  # each backward of this forward begins with the same numbers
        # By hashable states, because the arrays in NumPy's states have no single answer to `==`.
        states.drawn.update(
            name for name, state in states_to_begin.items() if hashable_state(state) != hashable_state(after[name])
        )
        for name, source, state in generators_before:
            if hashable_state(state) != hashable_state(generator_state(source)):
                states.objects.setdefault(name, (source, state))
    finally:
        set_foreign_states(states_of_caller)


class _HeldGenerator(NamedTuple):
    """A random generator that a program holds: its name in messages, the generator, and its state."""

    name: str
    source: Any
    state: Any


def _generators_in(snapshot: Snapshot | None) -> list[_HeldGenerator]:
    """Return the Python and numpy generators that a program reaches, except the process's own, with their states now.
    Without a Snapshot, none are known."""
    numpy = sys.modules.get("numpy")
    # The generators behind `random` and `numpy.random`: `foreign_states` has their states.
    process_generators = (random._inst, numpy.random.mtrand._rand if numpy else None)
    generators = [
        (name, source)
        for name, source in (snapshot.generators if snapshot is not None else ())
        if not isinstance(source, torch.Generator) and all(source is not generator for generator in process_generators)
    ]
    return [
        _HeldGenerator(
            f"{OWN}{index} ({type(source).__name__}{name and f' {name}'})", source, state=generator_state(source)
        )
        for index, (name, source) in enumerate(generators)
    ]


# ---- Everything that a program can reach


@contextlib.contextmanager
def restoring_everything_reachable(*roots: Any) -> Iterator[Snapshot]:
    """Restore everything that is reachable from these objects afterwards, whatever happens inside. Yield the Snapshot,
    to which more can be added.

    A warning names changes that are not restored, where they are cheap to see.
    """
    snapshot = Snapshot([*(("", root) for root in roots), *(("a hook", hook) for hook in global_hooks())])
    settings = named_settings()
    OPEN_SNAPSHOTS.append(snapshot)
    try:
        with restoring_globals(), _refusing_mapped_files():
            try:
                yield snapshot
            finally:
                snapshot.restore()
    finally:
        OPEN_SNAPSHOTS.remove(snapshot)
        snapshot.close()
        # These blocks nest, and each inner one restores too: the outermost block warns once, for all of them.
        if OPEN_SNAPSHOTS:
            OPEN_SNAPSHOTS[0].lost |= snapshot.lost
        else:
            changes = [*snapshot.lost.values()]
            changes += [name for name, value in named_settings().items() if value != settings[name]]
            if changes:
                warnings.warn(
                    f"the program was run and has changed what cannot be restored: {listed(changes)}",
                    stacklevel=_users_level(),
                )


def _users_level() -> int:
    """Return the `stacklevel` with which `warnings.warn` in the caller shows the user's line; 1 if there is none."""
    frame: Any = sys._getframe(1)  # the caller, which is level 1
    for level in itertools.count(1):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if frames.is_users(file) and file != contextlib.__file__:
            return level
        frame = frame.f_back
    return 1


def listed(changes: list[str]) -> str:
    """Return the lasting changes of a run as one text, which names at most MOST_NAMED of them."""
    more = len(changes) - MOST_NAMED
    return "; ".join((*changes[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])))


MOST_NAMED = 8
"""The most objects that a warning names."""


@contextlib.contextmanager
def _refusing_mapped_files() -> Iterator[None]:
    """Refuse a program that maps a file into a tensor, before it can write there: a graph has no files."""
    torch_from_file: Callable[..., Any] = torch.from_file

    def from_file(filename: str, *args: Any, **kwargs: Any) -> Any:
        # Only the user's own call is refused. Libraries may map files, such as the weights that they load.
        if frames.is_users(sys._getframe(1).f_code.co_filename):
            raise CaptureError(
                f"the program maps the file {printable(str(filename))[:200]} with torch.from_file"
                f"{frames.place(frames.here({}))}, and a graph reads no files: map it before, and pass the tensor",
                every_engine=True,
            )
        return torch_from_file(filename, *args, **kwargs)

    with mock.patch.object(torch, "from_file", from_file):
        yield


OPEN_SNAPSHOTS: list[Snapshot] = []
"""The Snapshots that will be restored, outermost first."""


def is_copied(memory: int) -> bool:
    """Whether a Snapshot that will be restored has the content of this storage, which is given by its identity."""
    return any(memory in snapshot.copied_storages for snapshot in OPEN_SNAPSHOTS)


def keep_content_of(tensor: Tensor) -> None:
    """Keep the content of a tensor whose memory may be written unseen, however large it is, in each Snapshot that has
    the tensor and has not copied its storage."""
    if not is_plain(tensor) or tensor.layout is not torch.strided:
        return
    memory = storage_id(tensor.untyped_storage())
    with untraced():
        for snapshot in OPEN_SNAPSHOTS:
            for kept_tensor in snapshot.tensors:
                if kept_tensor.memory == memory and memory not in snapshot.copied_storages:
                    snapshot.copied_storages.add(memory)
                    kept_tensor.copy()
