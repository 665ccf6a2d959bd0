"""Find where the steps of a running script begin and end, by hooks on torch that the script does not notice.

A step ends with an optimizer's step; if an optimizer steps during a backward, in a hook, with that backward; if a
script has no optimizer, with a backward. Nothing of ours raises into the script, and none of the script's numbers
depends on it: anything that cannot be followed loses the step, and the cause is reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from backprint._torch.autograd import current_node
from backprint._torch.dynamo import note_compiled_calls
from backprint._torch.modes import DisableTorchFunction, dispatch_modes, pop_mode, push_mode
from backprint._torch.modules import CALL
from backprint.errors import CaptureError, told_whole
from backprint.graph.nouns import Capture
from backprint.tracing import frames
from backprint.tracing.custom import opened
from backprint.values import settings

if TYPE_CHECKING:
    from backprint.tracing.record.steps import LiveRecorder

COMPILED = (
    "it runs code compiled by torch.compile, which cannot be recorded: set TORCH_COMPILE_DISABLE=1 to have the "
    "script run in eager, and its steps recorded"
)


class Recording:
    """The steps of a running script, from the first requested one to before the last."""

    def __init__(
        self, steps: tuple[int, int], done: Callable[[int, Capture], None], tell: Callable[[str], None]
    ) -> None:
        self.first, self.last = steps
        self.done, self.tell = done, tell
        self.pid = os.getpid()
        self.count = 0
        self.settled: set[int] = set()
        self.recorder: LiveRecorder | None = None
        self.bodies: Any = None
        self.worn: list[LiveRecorder] = []
        self.depth: Counter[int] = Counter()
        self.due = False
        self.by_hand: bool | None = None
        self.closed = False
        self.undo: list[Callable[[], Any]] = []
        self.undo_compiled: Callable[[], Any] = nothing

    # -------------------------------------------------------------- hooks

    def open(self) -> None:
        """Install the hooks on torch."""
        self.undo.append(register_optimizer_step_post_hook(self.after_optimizer).remove)
        if self.first == 0:
            self.await_module()
        self.replace(torch.autograd, "backward", self.watched(torch.autograd.backward, self.before_backward))
        self.replace(torch.autograd, "grad", self.watched(torch.autograd.grad, self.before_grad))

    def close(self) -> None:
        """Remove all hooks and recorders."""
        self.closed = True
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()
        if self.recorder is not None:
            self.recorder.lose("the script has ended")  # another thread of it may go on
        self.take_off()

    def replace(self, module: Any, name: str, new: Any) -> None:
        """Replace a function of torch's by one of ours, until the end."""
        plain = getattr(module, name)
        setattr(module, name, new)
        self.undo.append(lambda: setattr(module, name, plain) if getattr(module, name) is new else None)

    def watched(self, plain: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
        """Wrap a function of autograd's to run ours before and after it."""

        @frames.calls_program
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling() or self.is_off():
                return plain(*args, **kwargs)
            thread, raised = threading.get_ident(), None
            self.depth[thread] += 1
            self.guarded(before, *args, **kwargs)
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                raised = error
                raise
            finally:
                self.depth[thread] -= 1
                if not self.depth[thread]:
                    self.guarded(self.after_autograd, plain.__name__, raised)

        return call

    def is_off(self) -> bool:
        """Whether there is nothing to do: the script has ended, or this is a forked child of its process."""
        return self.closed or os.getpid() != self.pid

    def guarded(self, act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Run our part; an error in it loses the step, and an interrupt is the script's."""
        try:
            act(*args, **kwargs)
        except Exception as error:
            self.give_up(told_whole(error))
        except BaseException:
            self.close()
            raise

    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has made a step."""
        if torch.compiler.is_dynamo_compiling() or self.is_off():
            return
        if current_node() is not None or self.depth[threading.get_ident()]:
            self.due = True
        else:
            self.guarded(self.end_step)

    def await_module(self) -> None:
        """Begin the first step where the first module runs. A global module hook would make `compile` warn."""
        plain = getattr(nn.Module, CALL)

        @functools.wraps(plain)
        def first_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_dynamo_compiling() and not self.is_off() and torch.is_grad_enabled():
                if getattr(nn.Module, CALL) is first_call:
                    setattr(nn.Module, CALL, plain)
                if self.count == 0 and self.recorder is None and 0 not in self.settled:
                    self.guarded(self.begin_step)
            return plain(module, *args, **kwargs)

        self.replace(nn.Module, CALL, first_call)

    # -------------------------------------------------------------- autograd

    def before_backward(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        *rest: Any,
        **more: Any,
    ) -> None:
        """A backward begins."""
        recorder = self.recorder_here(create_graph)
        if self.recorder is not None and recorder is None:
            self.recorder.lose("a backward runs in another thread than the step")
        elif recorder is not None and self.depth[recorder.thread] == 1:
            roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            with out_of_sight():
                recorder.enter_backward(roots, grad_tensors is not None)

    def before_grad(
        self,
        outputs: Any,
        inputs: Any,
        grad_outputs: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        *rest: Any,
        **more: Any,
    ) -> None:
        """A call of `torch.autograd.grad` begins; it is recorded as part of the calls around it."""
        self.recorder_here(create_graph)

    def after_autograd(self, name: str, error: BaseException | None) -> None:
        """An outermost backward, or call of `torch.autograd.grad`, has ended."""
        backward, recorder = name == "backward", self.recorder_here()
        if backward and recorder is not None:
            if error is not None:
                recorder.lose(f"its backward raised {type(error).__name__}: {error}")
            else:
                with out_of_sight():
                    recorder.leave_backward()
        if self.due or (backward and self.is_by_hand()):
            self.due = False
            self.end_step()

    def recorder_here(self, create_graph: bool = False) -> LiveRecorder | None:
        """Return the recorder of this thread's step; remove one that has lost its step where that is safe."""
        recorder = self.recorder
        if recorder is not None and create_graph and recorder.twice:
            recorder.lose(f"a backward of the backward of {recorder.twice} rounds differently while it is recorded")
        if recorder is not None and recorder.lost:
            self.give_up(recorder.lost)
        self.sweep()
        return self.recorder if self.recorder is not None and self.recorder.thread == threading.get_ident() else None

    def is_by_hand(self) -> bool:
        """Whether the script has had no optimizer so far and changes its parameters itself: a backward ends a step."""
        if self.by_hand is not False and self.count < self.last:
            self.by_hand = not any(issubclass(type(each), torch.optim.Optimizer) for each in gc.get_objects())
        return bool(self.by_hand)

    # -------------------------------------------------------------- steps

    def begin_step(self) -> None:
        """Start to record, below all modes of the script: modes that it enters and leaves stay on top."""
        with out_of_sight():  # the imports of our modules must not be seen by a mode either
            from backprint.tracing.record.steps import LiveRecorder

            recorder = LiveRecorder()
            recorder.know_parameters(sys._getframe(1))
        self.recorder = recorder
        self.bodies = opened({})
        self.bodies.__enter__()
        self.notice_compiled()
        with modes_lifted():
            push_mode(recorder)

    def notice_compiled(self) -> None:
        """Lose the step where compiled code is called."""

        def lose_step() -> None:
            if self.recorder is not None and not self.is_off():
                self.recorder.lose(COMPILED)

        self.undo_compiled = note_compiled_calls(lose_step)

    def take_off(self) -> LiveRecorder | None:
        """Stop recording."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            self.worn.append(recorder)
        self.undo_compiled()
        self.undo_compiled = nothing
        self.sweep()
        if self.bodies is not None:
            bodies, self.bodies = self.bodies, None
            bodies.__exit__(None, None, None)
        return recorder

    def sweep(self) -> None:
        """Remove finished recorders from this thread's mode stack; inside a backward that must wait."""
        if self.worn and self.depth[threading.get_ident()] < 2 and current_node() is None:
            done = [mode for mode in self.worn if mode.thread == threading.get_ident()]
            with modes_lifted(done):
                self.worn = [mode for mode in self.worn if mode not in done]

    def end_step(self) -> None:
        """End the step, and begin the next."""
        if self.recorder is not None and self.recorder.thread != threading.get_ident():
            return  # another thread's step, while one is written down here
        recorder = self.take_off()
        if recorder is not None and recorder.lost:
            self.give_up(recorder.lost)
        elif recorder is not None:
            self.guarded(self.keep, recorder)
        self.count += 1
        if self.first <= self.count < self.last:
            self.begin_step()

    def keep(self, recorder: LiveRecorder) -> None:
        """Make a Capture of a step and prove it, in a thread where no mode of the script is active."""
        if settings.ONE_AT_A_TIME._is_owned():  # type: ignore[attr-defined]  # the proof would deadlock
            raise CaptureError("the step ran inside a capture or a proof of the script's own")
        number = self.count
        with out_of_sight():
            from backprint.tracing.record.steps import capture_of_step, names_in_frames

            names = names_in_frames(sys._getframe(1))
        failed: list[str] = []

        def work() -> None:
            try:
                with DisableTorchFunction():
                    capture = capture_of_step(recorder, names, f"step_{number}")
                self.done(number, capture)
            except BaseException as error:  # all errors here are ours, not the script's
                failed.append(told_whole(error))
            finally:
                ended.set()

        ended = threading.Event()
        thread = threading.Thread(target=work, name="backprint")
        thread.start()
        try:
            ended.wait()  # Python 3.11 takes a thread for ended once `join` was interrupted
            thread.join()
        except BaseException:  # Ctrl-C, or an error of the script's own handler
            end_thread(thread, ended)
            self.count = number + 1
            if failed:
                self.give_up_number(number, "the script was interrupted while the step was proved and saved")
            self.settled.add(number)
            raise
        if failed:
            self.give_up(failed[0])
        self.settled.add(number)

    def give_up(self, why: str) -> None:
        """Do not keep this step."""
        if self.recorder is not None:
            self.recorder.lose(why)
        self.take_off()
        if self.first <= self.count < self.last:
            self.give_up_number(self.count, why)

    def give_up_number(self, number: int, why: str) -> None:
        """Say why a step is not kept, once."""
        if number not in self.settled:
            self.settled.add(number)
            self.tell(f"step {number} is not kept: {why}")

    def missing(self, script: str) -> list[str]:
        """Say why there are fewer Captures than requested, unless that has been reported."""
        said = []
        if self.first == 0 < self.count and 0 not in self.settled:
            said.append(f"{script} called no module in step 0, so its beginning was not seen: ask for later steps")
        if self.count < self.last:
            first = max(self.first, self.count)
            steps = f"step {first} was" if first + 1 == self.last else f"steps {first} to {self.last - 1} were"
            none = (
                "no optimizer stepped in eager" if self.by_hand is False else "it called no optimizer and no backward"
            )
            there = f"ask for steps below {self.count}" if self.count else none
            said.append(f"{script} made {self.count} steps, so {steps} not reached: {there}")
        return said


def end_thread(thread: threading.Thread, ended: threading.Event) -> None:
    """Raise KeyboardInterrupt in a thread, and wait until it has ended, which an event says.

    A thread that runs torch's operators while the process ends aborts it, and would leave a sample half written.
    """
    interrupt, number = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread.ident or 0)
    while not ended.is_set() and interrupt(number, ctypes.py_object(KeyboardInterrupt)):
        with contextlib.suppress(KeyboardInterrupt):  # another one: the first is raised when the thread has ended
            ended.wait(5.0)  # not sooner again: it may be removing its files
    with contextlib.suppress(KeyboardInterrupt):
        thread.join()


# ------------------------------------------------------------------ modes


@contextlib.contextmanager
def out_of_sight() -> Iterator[None]:
    """Run a block without modes, the script's or ours, and without autograd."""
    with DisableTorchFunction(), modes_lifted(), torch.no_grad():
        yield


@contextlib.contextmanager
def modes_lifted(without: Sequence[Any] = ()) -> Iterator[None]:
    """Turn dispatch modes off in this block and on after it, except those in `without`.

    Entering a `TorchDispatchMode` sets a process-wide flag that makes Dynamo and Inductor behave differently, so modes
    are moved on the stack only.
    """
    modes = dispatch_modes()
    for _ in modes:
        pop_mode()
    try:
        yield
    finally:
        for mode in modes:
            if not any(mode is other for other in without):
                push_mode(mode)


def nothing() -> None:
    """Undo nothing."""
