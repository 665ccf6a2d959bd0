"""A rank that is captured in a process of its own, among the others: under `torchrun`, with any backend.

Only one step of the program runs among the processes, and what each sends in it is kept (`Together`). Then every rank
is captured and proved alone, where the others answer as they did: nothing is decided together but whether all have
succeeded, and no rank waits for one that has gone. While it waits, a rank looks whether another has failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from backprint._torch.distributed import (
    backend_of_world,
    default_store,
    device_of,
    gather_bytes,
    group_of,
    in_group,
    label_of,
    members_of,
    own_rank,
    reduces_gradients,
)
from backprint.errors import BackprintError, CaptureError, RanksError, describe_error
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import Capture
from backprint.prove.capturing import capture_with_recipes
from backprint.run_sample import received_by
from backprint.tools.ranks.sharded import WARM_UP, step_among_others
from backprint.trace import frames
from backprint.trace.entry import check_options
from backprint.trace.program import CalledProgram, read_call
from backprint.values.exchanges import Call, Exchange, Peers, mismatch
from backprint.values.wrappers import is_wrapped

JOINT_CAPTURES = [0]
"""How many captures of this process have exchanged tensors with others, as the item of a list. All processes count
alike, so the number tells a note of failure from one of an earlier capture."""

POLL, LOOK = 0.001, 0.2
"""Seconds between two looks at a collective that is under way, and at the notes of the others."""


def _failure_key() -> str:
    """Return the name under which a rank notes that its capture has failed."""
    return f"backprint/capture {JOINT_CAPTURES[0]} failed"


def _note_failure(error: BaseException) -> None:
    """Tell the other processes that this rank's capture has failed, and why, by a note in the store that they share."""
    rank, _ = own_rank()
    try:
        default_store().set(_failure_key(), f"rank {rank}: {describe_error(error)}"[:4000])
    except RuntimeError:
        return  # the process that holds the store has gone, so the others see that


def _raise_if_failed() -> None:
    """Raise if another rank has noted that its capture has failed."""
    try:
        store = default_store()
        failed = store.check([_failure_key()])
        text = store.get(_failure_key()).decode() if failed else ""
    except RuntimeError as error:
        raise RanksError(f"the process that holds the store of all ranks has gone: {str(error)[:200]}") from error
    if text:
        raise RanksError(f"another rank could not be captured, so this one ends too: {text}")


def wait_for(work: Any, call_text: str) -> None:
    """Wait until the members of a group have sent; raise if one has failed or gone."""
    next_look = time.monotonic() + LOOK
    while not work.is_completed():
        time.sleep(POLL)
        if time.monotonic() >= next_look:
            _raise_if_failed()
            next_look = time.monotonic() + LOOK
    try:
        work.wait()
    except RuntimeError as error:
        _raise_if_gone(error, call_text)


def _raise_if_gone(error: RuntimeError, call_text: str) -> NoReturn:
    """Raise, in place of the `error` of a collective, what another rank has noted, or else that a rank has gone."""
    time.sleep(LOOK)  # one that raises notes why before it goes
    _raise_if_failed()
    raise RanksError(f"a rank has gone while this one waited in {call_text}: {str(error)[:200]}") from error


@contextmanager
def _raising_if_rank_gone(call_text: str) -> Iterator[None]:
    """Raise that a rank has gone where a collective in this block fails because of that; other errors as they are."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in CONNECTION_LOST):
            raise
        _raise_if_gone(error, call_text)


CONNECTION_LOST = (
    "Connection closed",
    "Connection reset",
    "Connection refused",
    "Broken pipe",
    "Read error",
    "Write error",
)
"""What errors of collectives say if a process has gone, on Gloo and NCCL."""


@dataclass(slots=True)
class Together:
    """Answers the collectives of a program by its own process groups, and keeps what each member sent.

    `exchanges` has the collectives of the last run, by the label of their group, `groups` the groups.
    """

    exchanges: dict[str, list[Exchange]] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run."""
        self.exchanges = {}

    def label(self, reference: Any) -> str:
        """Return the label of a process group, and remember the group."""
        label = label_of(reference)
        self.groups[label] = group_of(reference)
        return label

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        group = self.groups[call.group]
        if not any(self.exchanges.values()):
            _raise_if_failed()
        text = f"{call.text}{frames.place(frames.here({}))}"
        meta = json.dumps([call.kind, call.group, call.options]).encode()
        with _raising_if_rank_gone(text):
            rows = gather_bytes(meta, tensor, group, lambda work: wait_for(work, text))
        calls = [_call_from_bytes(row) for row, _ in rows]
        sent = tuple(sent for _, sent in rows)
        if problem := mismatch(calls, sent):
            raise RanksError(f"the ranks {list(members_of(group))} do not call the same collective: {problem} ({text})")
        with _raising_if_rank_gone(text):
            received = in_group(call.kind, tensor, call.options, str(group.group_name))
        self.exchanges.setdefault(call.group, []).append(Exchange(tuple(calls), sent, received.clone()))
        return received


def _call_from_bytes(meta: bytes) -> Call:
    """Return the call that a member has sent."""
    kind, group, options = json.loads(meta)
    return Call(kind, group, tuple(tuple(option) if isinstance(option, list) else option for option in options))


@dataclass(slots=True)
class Alike(Together):
    """Answers the collectives of a program on a process group that moves nothing: as if the others sent the same."""

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        group = self.groups[call.group]
        place, size = members_of(group).index(own_rank()[0]), group.size()
        sent = (tensor.detach().clone(),) * size
        received = received_by(place, call.kind, [call.options] * size, sent)
        self.exchanges.setdefault(call.group, []).append(Exchange((call,) * size, sent, received))
        return received


def capture_in_processes(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CaptureOptions
) -> Capture:
    """Capture a program in a process that has process groups; without collectives, as in any other process. If it
    fails, the other processes are told, which else would wait."""
    together = Alike() if backend_of_world() == "fake" else Together()
    check_options(target, options)
    joint = needs_others(target)
    JOINT_CAPTURES[0] += joint
    try:
        program = read_call(
            target, args, kwargs, options.requires_grad, options.mode, options.loss, options.fake, False, together
        )
        peers = _peers_of_step(program, together)
        if peers is None:
            return capture_with_recipes(target, args, kwargs, options)
        capture = capture_with_recipes(target, args, kwargs, options, peers=peers)
    except BaseException as error:
        if joint or together.groups:
            _note_failure(error)
        raise
    agree(together)
    return capture


def needs_others(target: Any) -> bool:
    """Whether a module is sharded or reduces gradients, so that its step needs the other processes."""
    if not isinstance(target, nn.Module):
        return False
    return any(map(reduces_gradients, target.modules())) or any(map(is_wrapped, target.parameters()))


def _peers_of_step(program: CalledProgram, together: Together) -> Peers | None:
    """Run a step of the program among the processes; return the others as they were in it, None if the program has no
    collectives."""
    for _ in range(WARM_UP if program.reduces_gradients else 0):
        step_among_others(program)
    try:
        step_among_others(program)
    except (BackprintError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the program may raise anything
        if together.groups:  # the others wait for this rank, and are told why it ends
            raise CaptureError(f"{program.title} raised {type(error).__name__}: {error}", every_engine=True) from error
        raise
    if not together.groups:
        return None
    rank, _ = own_rank()
    places = {label: members_of(group).index(rank) for label, group in together.groups.items()}
    return Peers(dict(together.exchanges), places)


THE_END = "the end of the capture"
"""What a rank waits for that has been captured."""


def agree(together: Together) -> None:
    """Wait until the members of all groups have been captured; raise if one has failed."""
    if isinstance(together, Alike):
        return
    for _ in range(2):  # what a member of one group knows, those of its other groups then know as well
        for label in sorted(together.groups):
            group = together.groups[label]
            with _raising_if_rank_gone(THE_END):
                gather_bytes(b"", torch.zeros(1, device=device_of(group)), group, lambda work: wait_for(work, THE_END))
    _raise_if_failed()
