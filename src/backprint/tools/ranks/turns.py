"""Threads that take turns: one a rank, and one of them runs at a time, until it waits for others or ends.

So what is the process's own is never used by two ranks at once. The random generators are each rank's own: they are
exchanged where the turn passes on, and so are what DTensor does with some operators, which blocks of a program change,
and what a program keeps outside of its arguments, such as globals (`Kept`; a `Value` is a place where a program keeps
something, with what is there).

A rank has the *turn* while it is the one thread that runs; `changed` is the condition that all threads wait at.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NoReturn, TypeVar

import torch

from backprint._torch.distributed import handlers_of_operators
from backprint.errors import BackprintError, RanksError
from backprint.tools.ranks.kept import Kept, Value, put_back, with_own_copies
from backprint.trace import frames
from backprint.values.settings import RandomStates, of_party, random_states, set_random_states

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _ProcessState:
    """What is the process's and each rank has for itself: the states of the random generators, DTensor's handlers of
    operators (which blocks such as `loss_parallel` change), the default dtype, and what a program keeps outside of its
    arguments."""

    generators: RandomStates
    handlers: dict[Any, Any]
    dtype: torch.dtype
    kept: Sequence[Value]


def state_of_process(kept: Kept) -> _ProcessState:
    """Return the state of the process now; `kept` are the places of what the program keeps."""
    return _ProcessState(random_states(), dict(handlers_of_operators()), torch.get_default_dtype(), kept.values())


def set_state_of_process(state: _ProcessState, *, has_run: bool = True) -> None:
    """Set what `state_of_process` returned. Without `has_run` no program ran since `state_of_process` was called last,
    so what is in the places of `kept` need not be read again."""
    set_random_states(state.generators)
    if torch.get_default_dtype() != state.dtype:
        torch.set_default_dtype(state.dtype)
    handlers = handlers_of_operators()
    # None in the state: `torch.distributed.tensor` was not imported then, and has brought its own since.
    if handlers != state.handlers and state.handlers:
        handlers.clear()
        handlers.update(state.handlers)
    put_back(state.kept, has_run=has_run)


class Stopped(BaseException):
    """Ends a rank because another has failed; `except Exception` of the program does not catch it."""


class RankTurns(Generic[T]):
    """The threads of one run of all ranks.

    `running` is the rank whose turn it is, `waiting` what each rank waits for, in words; a rank that waits for nothing
    can go on. `ended` has the results of the ranks that have ended. `failure` is the first error, with its rank (-1:
    the caller's thread). `own` has each rank's state of the process while it does not run, and `kept` the places of
    what the program keeps.
    """

    def __init__(self, size: int, roots: Iterable[Any] = ()) -> None:
        """`roots` are the functions that the ranks run, which lead to what each rank has for itself."""
        self.size = size
        self.changed = threading.Condition()
        self.running = -1  # no rank yet
        self.waiting: dict[int, str] = {}
        self.ended: dict[int, T] = {}
        self.failure: tuple[int, BaseException] | None = None
        self.own: dict[int, _ProcessState] = {}
        self.kept = Kept(roots)

    def run(self, work: Callable[[int], T]) -> list[T]:
        """Run `work(rank)` for every rank to its end, and return the results by rank; raise the first error of a rank,
        with its number. The process has its own state again afterwards."""
        threads = [
            threading.Thread(target=self.be_rank, args=(rank, work), name=f"backprint rank {rank}", daemon=True)
            for rank in range(self.size)
        ]
        before = state_of_process(self.kept)
        # Every rank begins with the state of the process, and with copies of its own of caches and iterators.
        kept_by_rank = with_own_copies(before.kept, self.size)
        self.own = {rank: replace(before, kept=kept) for rank, kept in enumerate(kept_by_rank)}
        try:
            for thread in threads:
                thread.start()
            with self.changed:
                self.running = 0
                self.changed.notify_all()
            for thread in threads:
                thread.join()
        except BaseException as error:  # Ctrl-C: the ranks end, too
            with self.changed:
                self.failure = self.failure or (-1, error)
                self.changed.notify_all()
            for thread in threads:
                thread.join()
            raise
        finally:
            set_state_of_process(before)
        if self.failure is not None:
            raise_with_rank(*self.failure)
        return [self.ended[rank] for rank in range(self.size)]

    def be_rank(self, rank: int, work: Callable[[int], T]) -> None:
        """Run a rank in its thread: wait for its first turn, do its work, and pass the turn on for good. An error is
        kept in `failure`, and ends the other ranks."""
        try:
            with of_party(self):  # the threads of one party may hold the lock of a capture together (`ONE_AT_A_TIME`)
                self.take_turn(rank)
                result = work(rank)
                with self.changed:
                    self.ended[rank] = result
        except Stopped:
            pass
        except BaseException as error:  # passed on to the caller of `run`
            with self.changed:
                self.failure = self.failure or (rank, error)
        finally:
            self.pass_turn(rank)

    def take_turn(self, rank: int) -> None:
        """Wait until it is this rank's turn, and give the process its state; raise Stopped if another has failed."""
        with self.changed:
            self.changed.wait_for(lambda: self.running == rank or self.failure is not None)
            if self.failure is not None:
                raise Stopped
            set_state_of_process(self.own[rank], has_run=False)

    def pass_turn(self, rank: int) -> None:
        """Keep this rank's state of the process, and give the turn to the next rank that can go on. If none can, and
        some wait, they wait for each other: that is the failure, and all end. After a failure nobody gets the turn, and
        all threads wake up to end."""
        with self.changed:
            self.own[rank] = state_of_process(self.kept)
            next_ranks = [*range(rank + 1, self.size), *range(rank + 1)]  # the next ones, and at last this rank itself
            ready = [other for other in next_ranks if other not in self.ended and other not in self.waiting]
            alive = self.failure is None
            if ready and alive:
                self.running = ready[0]
            elif self.waiting and alive:
                self.failure = (min(self.waiting), RanksError(self.why_none_goes_on()))
            self.changed.notify_all()

    def wait(self, rank: int, text: str) -> None:
        """Pass the turn on, and wait until `go_on` is called for this rank and it has the turn again; `text` says what
        it waits for. Raise Stopped if another rank has failed meanwhile."""
        with self.changed:
            self.waiting[rank] = text
        self.pass_turn(rank)
        self.take_turn(rank)

    def go_on(self, rank: int) -> None:
        """Let a rank go on that waits, once it gets the turn; nothing happens to one that does not wait. Called by the
        rank whose turn it is, so that no lock is needed."""
        self.waiting.pop(rank, None)

    def why_none_goes_on(self) -> str:
        """Say what each rank waits for."""
        lines = [f"rank {rank} {self.waiting.get(rank, 'has ended')}" for rank in range(self.size)]
        shown = lines if len(lines) <= 16 else [*lines[:16], f"and {len(lines) - 16} more ranks"]
        return f"the ranks wait for each other, and none can go on: {'; '.join(shown)}"


def raise_with_rank(rank: int, error: BaseException) -> NoReturn:
    """Raise an error with the rank that it was raised in; -1 is the caller's thread (Ctrl-C)."""
    named = _error_of_rank(rank, error)
    if named is error:
        raise error
    raise named from error


ONCE = "; register operators where their module is imported: a guard that says it is done is each rank's own"
"""What to do about operators that several ranks register in this one process."""

HAS_GROUP = "; the ranks of world= have their process group already: leave init_process_group out of shard"
"""What to do about a rank that makes its default process group."""

ADVICE = {
    "initialize the default process group twice": HAS_GROUP,
    "Error initializing torch.distributed": HAS_GROUP,
    "Tried to register an operator": ONCE,
    "Only a single TORCH_LIBRARY": ONCE,
    "KeyError('RANK')": "; RANK is not set there: ask torch.distributed.get_rank()",
    "KeyError('LOCAL_RANK')": "; LOCAL_RANK is not set there: ask torch.distributed.get_node_local_rank(0)",
    "KeyError('WORLD_SIZE')": "; WORLD_SIZE is not set there: ask torch.distributed.get_world_size()",
}
"""What to do about errors that a script raises which is written for a launcher, by a part of their text."""


def _error_of_rank(rank: int, error: BaseException) -> BaseException:
    """Return an error with the rank that it was raised in: one of Backprint's with a note, another Exception as a
    RanksError of its text, with the line and advice. As they are stay a RanksError, which names ranks itself, what was
    raised in the caller's thread (rank -1), and what is no Exception, such as KeyboardInterrupt."""
    if rank < 0 or isinstance(error, RanksError):
        return error
    if isinstance(error, BackprintError):
        error.add_note(f"in rank {rank}")
        return error
    if isinstance(error, Exception):
        where = frames.place(frames.source_of_error(error, paths={}))
        advice = next((advice for text, advice in ADVICE.items() if text in repr(error)), "")
        return RanksError(f"rank {rank} raised {type(error).__name__}: {error}{where}{advice}")
    return error


def waits_in(call: Any, place: str) -> str:
    """Return in words that a rank waits in a collective (`call`), with ` at FILE:LINE …` (`place`), for a message."""
    return f"waits in {call.text}{place}"
