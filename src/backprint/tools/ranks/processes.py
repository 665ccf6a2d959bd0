"""A rank that is captured in a process of its own, among the others: under `torchrun`, with any backend.

Only one step of the program runs among the processes, and what each sends in it is kept (`Together`). Then every rank
is captured and proved alone, where the others answer as they did: nothing is decided together but whether all have
succeeded, and no rank waits for one that has gone. While it waits, a rank looks whether another has failed.

Words of this file:

- A *process group* has a label in graphs, such as `tp` or `world`; its members are ranks, in the order of the group.
- `Call`: a collective as one member calls it: its kind, the label of the group, and its options, such as the reduction.
- `Exchange`: one collective of a run: the Calls of all members, what each sent, and what this rank received. `Peers`
  answers a rank that runs alone with the Exchanges of an earlier run.
- The *store* is the key-value store of `torch.distributed`, which all processes share and one of them holds.
- A rank has *gone* if its process has ended or its connections are closed.
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
"""How many captures of this process needed the other processes (`needs_others`), as the item of a list. All processes
count alike, so the number tells a note of failure from one of an earlier capture."""

POLL, LOOK = 0.001, 0.2
"""Seconds between two looks at a collective that is under way, and at the notes of the others."""


def _failure_key() -> str:
    """Return the name under which a rank notes that its capture has failed."""
    return f"backprint/capture {JOINT_CAPTURES[0]} failed"


def _note_failure(error: BaseException) -> None:
    """Tell the other processes that this rank's capture has failed, and why, by a note in the store that they share;
    nothing if the store has gone."""
    rank, _ = own_rank()
    try:
        default_store().set(_failure_key(), f"rank {rank}: {describe_error(error)}"[:4000])
    except RuntimeError:
        return  # the process that holds the store has gone, so the others see that


def _raise_if_failed() -> None:
    """Raise RanksError if another rank has noted that its capture has failed, or if the store has gone."""
    try:
        store = default_store()
        failed = store.check([_failure_key()])
        text = store.get(_failure_key()).decode() if failed else ""
    except RuntimeError as error:
        raise RanksError(f"the process that holds the store of all ranks has gone: {str(error)[:200]}") from error
    if text:
        raise RanksError(f"another rank could not be captured, so this one ends too: {text}")


def wait_for(work: Any, call_text: str) -> None:
    """Wait until the members of a group have sent in a collective, whose Work is `work`; raise RanksError if one has
    failed or gone. `call_text` is the collective in words. The Work is polled, as `Work.wait` would not return where a
    member that has failed never sends."""
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
    time.sleep(LOOK)  # a rank that raises notes why before it goes: its note may not be in the store yet
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

    `exchanges` has the collectives of the last run, and `groups` the process groups that the program has used, both by
    label. `place` returns a context manager in which the program runs: here nothing, as the process is the rank.
    """

    exchanges: dict[str, list[Exchange]] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    place: Callable[[], AbstractContextManager[Any]] = nullcontext

    def begin(self, position: Mapping[str, int] | None = None) -> None:
        """Begin a run: forget the collectives of the last one. `position` is for answers of a part of a run."""
        self.exchanges = {}

    def label(self, reference: Any) -> str:
        """Return the label of a process group, and remember the group."""
        label = label_of(reference)
        self.groups[label] = group_of(reference)
        return label

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        """Return what this rank receives in a collective in which it sends a tensor.

        First all members exchange what they call and send, in a collective of Backprint's own, whose wait sees a failed
        member; if the calls belong together, the program's own collective runs. Raise RanksError if they do not, or if
        another rank has failed or gone.
        """
        group = self.groups[call.group]
        if not any(self.exchanges.values()):  # the first of a run: another rank may have failed before its first
            _raise_if_failed()
        text = f"{call.text}{frames.place(frames.here(paths={}))}"  # with the program's line, for messages
        meta = json.dumps([call.kind, call.group, call.options]).encode()
        with _raising_if_rank_gone(text):
            metas_and_tensors = gather_bytes(meta, tensor, group, lambda work: wait_for(work, text))
        calls = [_call_from_bytes(member_meta) for member_meta, _ in metas_and_tensors]
        sent = tuple(member_tensor for _, member_tensor in metas_and_tensors)
        if problem := mismatch(calls, sent):
            raise RanksError(f"the ranks {list(members_of(group))} do not call the same collective: {problem} ({text})")
        with _raising_if_rank_gone(text):
            received = in_group(call.kind, tensor, call.options, str(group.group_name))
        self.exchanges.setdefault(call.group, []).append(Exchange(tuple(calls), sent, received.clone()))
        return received


def _call_from_bytes(meta: bytes) -> Call:
    """Return the Call that a member has sent as JSON, in which tuples are lists."""
    kind, group, options = json.loads(meta)
    return Call(kind, group, tuple(tuple(option) if isinstance(option, list) else option for option in options))


@dataclass(slots=True)
class Alike(Together):
    """Answers the collectives of a program on a process group that moves nothing (the backend `fake`): as if the other
    members sent what this rank sends."""

    def __call__(self, call: Call, tensor: Tensor) -> Tensor:
        """Return what this rank receives in a collective in which all members send this tensor."""
        group = self.groups[call.group]
        rank, _ = own_rank()
        index, size = members_of(group).index(rank), group.size()
        sent = (tensor.detach().clone(),) * size
        received = received_by(index, call.kind, [call.options] * size, sent)
        self.exchanges.setdefault(call.group, []).append(Exchange((call,) * size, sent, received))
        return received


def capture_in_processes(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: CaptureOptions
) -> Capture:
    """Capture a program in a process that has process groups; without collectives, as in any other process. If it
    fails, the other processes are told, which else would wait."""
    together = Alike() if backend_of_world() == "fake" else Together()
    check_options(target, options)
    is_joint = needs_others(target)
    if is_joint:
        JOINT_CAPTURES[0] += 1  # by which all processes know the notes of this capture
    try:
        program = read_call(
            target,
            args,
            kwargs,
            requires_grad=options.requires_grad,
            mode=options.mode,
            loss=options.loss,
            fake=options.fake,
            peers=together,
        )
        peers = _peers_of_step(program, together)
        if peers is None:
            return capture_with_recipes(target, args, kwargs, options)
        capture = capture_with_recipes(target, args, kwargs, options, peers=peers)
    except BaseException as error:  # Ctrl-C too: whatever ends this rank, the others would wait for it
        if is_joint or together.groups:
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
    """Run a step of the program among the processes, after steps that warm it up if it reduces gradients; return the
    other ranks as they were in it, None if the program has no collectives. An error of a program that has collectives
    is raised as a CaptureError."""
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
    """Wait until the members of all groups of this rank have been captured; raise RanksError if one has failed."""
    if isinstance(together, Alike):  # there are no other processes
        return
    for _ in range(2):  # what a member of one group knows, those of its other groups then know as well
        for label in sorted(together.groups):
            group = together.groups[label]
            with _raising_if_rank_gone(THE_END):
                gather_bytes(b"", torch.zeros(1, device=device_of(group)), group, lambda work: wait_for(work, THE_END))
    _raise_if_failed()
