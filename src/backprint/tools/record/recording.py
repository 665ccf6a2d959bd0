"""Find where the steps of a running script begin and end, by hooks on torch that the script does not notice.

A step ends with an optimizer's step, or where a gradient scaler leaves it out; if an optimizer steps during a backward,
in a hook, with that backward; if a script has no optimizer, with a backward. Nothing of ours raises into the script,
and none of its numbers depends on it: anything that cannot be followed loses the step, and the cause is reported.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from backprint._torch.autograd import current_node
from backprint._torch.distributed import is_initialized, waiting_in
from backprint._torch.dynamo import note_compiled_calls
from backprint._torch.modes import DisableTorchFunction, dispatch_modes, pop_mode, push_mode
from backprint._torch.modules import CALL
from backprint._torch.tensors import storages_filled
from backprint.errors import CaptureError, describe_error
from backprint.graph.nouns import Capture
from backprint.trace import frames
from backprint.trace.custom import operator_bodies_captured
from backprint.values import settings

if TYPE_CHECKING:
    from backprint.tools.record.steps import LiveRecorder

COMPILED = (
    "it runs code compiled by torch.compile, which cannot be recorded: set TORCH_COMPILE_DISABLE=1 to have the "
    "script run in eager, and its steps recorded"
)


class Recording:
    """The steps of a running script, from `first` to before `last`: `done` takes each Capture, `tell` each message.

    `count` is the number of the step that runs, `settled` are the steps that were kept or reported, `finished` the
    recorders that are still on a mode stack, `depth` the calls of autograd that run in each thread, `optimizer_steps`
    counts the steps of optimizers, and `undo` has what takes each hook off again. `around` is what is open while a
    step is recorded.
    """

    def __init__(
        self, steps: tuple[int, int], done: Callable[[int, Capture], None], tell: Callable[[str], None]
    ) -> None:
        self.first, self.last = steps
        self.done, self.tell = done, tell
        self.pid = os.getpid()
        self.count = 0
        self.settled: set[int] = set()
        self.recorder: LiveRecorder | None = None
        self.around: Any = None
        self.finished: list[LiveRecorder] = []
        self.depth: Counter[int] = Counter()
        self.step_is_due = False
        self.optimizer_steps = 0
        self.without_optimizer: bool | None = None
        self.closed = False
        self.undo: list[Callable[[], Any]] = []
        self.undo_compiled: Callable[[], Any] = nothing

    # ---- Hooks

    def open(self) -> None:
        """Install the hooks on torch."""
        self.undo.append(register_optimizer_step_post_hook(self.after_optimizer).remove)
        if self.first == 0:
            self.begin_at_first_module()
        self.replace(torch.amp.GradScaler, "step", self.wrap_scaler(torch.amp.GradScaler.step))
        self.replace(torch.autograd, "backward", self.wrap_autograd(torch.autograd.backward, self.before_backward))
        self.replace(torch.autograd, "grad", self.wrap_autograd(torch.autograd.grad, self.before_grad))

    def close(self) -> None:
        """Remove all hooks and recorders, the last hook first; a step that is being recorded is dropped."""
        self.closed = True
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()
        if self.recorder is not None:
            self.recorder.drop_step("the script has ended")  # another thread of it may go on
        self.stop_recorder()

    def replace(self, module: Any, name: str, new: Any) -> None:
        """Replace a function of torch's by one of ours until `close`, which leaves what another has put there since."""
        plain = getattr(module, name)
        setattr(module, name, new)
        self.undo.append(lambda: setattr(module, name, plain) if getattr(module, name) is new else None)

    def wrap_autograd(self, plain: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
        """Wrap a function of autograd's to run ours before and after it."""

        @frames.calls_program
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling() or self.is_off():
                return plain(*args, **kwargs)
            thread, raised = threading.get_ident(), None
            self.depth[thread] += 1
            self.run_guarded(before, *args, **kwargs)
            try:
                return plain(*args, **kwargs)
            except BaseException as error:
                raised = error
                raise
            finally:
                self.depth[thread] -= 1
                if not self.depth[thread]:
                    self.run_guarded(self.after_autograd, plain.__name__, raised)

        return call

    def wrap_scaler(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `GradScaler.step` to end the step also where, for Inf in a gradient, no optimizer is called."""

        @frames.calls_program
        @functools.wraps(plain)
        def step(*args: Any, **kwargs: Any) -> Any:
            steps_before = self.optimizer_steps
            result = plain(*args, **kwargs)
            if self.optimizer_steps == steps_before and not self.is_off():
                self.run_guarded(self.end_step)
            return result

        return step

    def is_off(self) -> bool:
        """Whether there is nothing to do: the script has ended, or this is a forked child of its process."""
        return self.closed or os.getpid() != self.pid

    def run_guarded(self, act: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Run a function of ours; an error in it drops the step, and an interrupt is raised into the script."""
        try:
            act(*args, **kwargs)
        except Exception as error:
            self.drop_current_step(describe_error(error))
        except BaseException:
            self.close()
            raise

    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """End the step after an optimizer has stepped, or note that it is due if a backward still runs."""
        self.optimizer_steps += 1
        if torch.compiler.is_dynamo_compiling() or self.is_off() or _is_inside_another_step(sys._getframe(1)):
            return
        if current_node() is not None or self.depth[threading.get_ident()]:
            self.step_is_due = True
        else:
            self.run_guarded(self.end_step)

    def begin_at_first_module(self) -> None:
        """Begin the first step where the first module runs. A global module hook would make `compile` warn."""
        plain = getattr(nn.Module, CALL)

        @functools.wraps(plain)
        def first_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_dynamo_compiling() and not self.is_off() and torch.is_grad_enabled():
                if getattr(nn.Module, CALL) is first_call:
                    setattr(nn.Module, CALL, plain)
                if self.count == 0 and self.recorder is None and 0 not in self.settled:
                    self.run_guarded(self.begin_step)
            return plain(module, *args, **kwargs)

        self.replace(nn.Module, CALL, first_call)

    # ---- Autograd

    def before_backward(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        *rest: Any,
        **more: Any,
    ) -> None:
        """Enter a backward that begins in the step's thread; drop the step if it is another thread."""
        recorder = self.recorder_here(create_graph)
        if self.recorder is not None and recorder is None:
            self.recorder.drop_step("a backward runs in another thread than the step")
        elif recorder is not None and self.depth[recorder.thread] == 1:  # one inside another belongs to the outer one
            roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            with _without_any_mode():
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
        """Check that a call of `torch.autograd.grad` can be recorded, as part of the calls around it."""
        self.recorder_here(create_graph)

    def after_autograd(self, name: str, error: BaseException | None) -> None:
        """Leave an outermost backward or call of `torch.autograd.grad`, and end the step if it is due."""
        backward, recorder = name == "backward", self.recorder_here()
        if backward and recorder is not None:
            if error is not None:
                recorder.drop_step(f"its backward raised {type(error).__name__}: {error}")
            else:
                with _without_any_mode():
                    recorder.leave_backward()
        if self.step_is_due or (backward and self.is_without_optimizer()):
            self.step_is_due = False
            self.end_step()

    def recorder_here(self, create_graph: bool = False) -> LiveRecorder | None:
        """Return the recorder of this thread's step, None in another thread. First drop a step that is lost, or that
        differentiates (`create_graph`) an operator which rounds otherwise then, and remove what is finished."""
        recorder = self.recorder
        if recorder is not None and create_graph and recorder.twice:
            recorder.drop_step(
                f"a backward of the backward of {recorder.twice} rounds differently while it is recorded"
            )
        if recorder is not None and recorder.lost:
            self.drop_current_step(recorder.lost)
        self.remove_finished()
        return self.recorder if self.recorder is not None and self.recorder.thread == threading.get_ident() else None

    def is_without_optimizer(self) -> bool:
        """Whether the script has had no optimizer so far and changes its parameters itself: a backward ends a step."""
        if self.without_optimizer is not False and self.count < self.last:
            self.without_optimizer = not any(
                issubclass(type(object_), torch.optim.Optimizer) for object_ in gc.get_objects()
            )
        return bool(self.without_optimizer)

    # ---- Steps

    def begin_step(self) -> None:
        """Start to record, below all modes of the script: modes that it enters and leaves stay on top."""
        with _without_any_mode():  # the imports of our modules must not be seen by a mode either
            from backprint.tools.record.steps import LiveRecorder

            recorder = LiveRecorder()
            recorder.know_parameters(sys._getframe(1))
        self.recorder = recorder
        self.around = contextlib.ExitStack()
        self.around.enter_context(operator_bodies_captured({}))
        if is_initialized():
            self.around.enter_context(storages_filled(recorder.note_filled))
            self.around.enter_context(waiting_in(recorder.waiting))
        self.drop_on_compiled_calls()
        with _dispatch_modes_off():
            push_mode(recorder)

    def drop_on_compiled_calls(self) -> None:
        """Drop the step as soon as the script calls compiled code, whose operators no mode sees."""

        def lose_step() -> None:
            if self.recorder is not None and not self.is_off():
                self.recorder.drop_step(COMPILED)

        self.undo_compiled = note_compiled_calls(lose_step)

    def stop_recorder(self) -> LiveRecorder | None:
        """Stop recording, and return the recorder, if there was one. Its mode leaves the stack where that is safe."""
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            self.finished.append(recorder)
        self.undo_compiled()
        self.undo_compiled = nothing
        self.remove_finished()
        if self.around is not None:
            around, self.around = self.around, None
            around.close()
        return recorder

    def remove_finished(self) -> None:
        """Remove finished recorders from this thread's mode stack; inside a backward that must wait."""
        if self.finished and self.depth[threading.get_ident()] < 2 and current_node() is None:
            done = [mode for mode in self.finished if mode.thread == threading.get_ident()]
            with _dispatch_modes_off(done):
                self.finished = [mode for mode in self.finished if mode not in done]

    def end_step(self) -> None:
        """End the step: prove it, or report why it is dropped; and begin the next if it was asked for."""
        if self.recorder is not None and self.recorder.thread != threading.get_ident():
            return  # another thread's step, while one is written down here
        recorder = self.stop_recorder()
        if recorder is not None and recorder.lost:
            self.drop_current_step(recorder.lost)
        elif recorder is not None:
            self.run_guarded(self.prove_step, recorder)
        self.count += 1
        if self.first <= self.count < self.last:
            self.begin_step()

    def prove_step(self, recorder: LiveRecorder) -> None:
        """Make a Capture of a step, prove it and hand it to `done`, in a thread where no mode of the script is active.
        The script waits meanwhile, and its tensors stay as they are."""
        if settings.ONE_AT_A_TIME.is_held_here():  # the proof would deadlock
            raise CaptureError("the step ran inside a capture or a proof of the script's own")
        number = self.count
        with _without_any_mode():
            from backprint.tools.record.steps import capture_of_step, names_in_frames

            names = names_in_frames(sys._getframe(1))
        failed: list[str] = []

        def prove_and_report() -> None:
            try:
                with DisableTorchFunction():
                    capture = capture_of_step(recorder, names, f"step_{number}")
                self.done(number, capture)
            except BaseException as error:  # all errors here are ours, not the script's
                failed.append(describe_error(error))
            finally:
                ended.set()

        ended = threading.Event()
        thread = threading.Thread(target=prove_and_report, name="backprint")
        try:
            thread.start()  # it waits until the thread runs, and may be interrupted there too
            ended.wait()  # Python 3.11 takes a thread for ended once `join` was interrupted
            thread.join()
        except BaseException:  # Ctrl-C, or an error of the script's own handler
            _end_thread(thread, ended)
            self.count = number + 1
            if failed:
                self.report_dropped(number, "the script was interrupted while the step was proved and saved")
            self.settled.add(number)
            raise
        if failed:
            self.drop_current_step(failed[0])
        self.settled.add(number)

    def drop_current_step(self, why: str) -> None:
        """Drop the step that is being recorded, and report the reason if the step was asked for."""
        if self.recorder is not None:
            self.recorder.drop_step(why)
        self.stop_recorder()
        if self.first <= self.count < self.last:
            self.report_dropped(self.count, why)

    def report_dropped(self, number: int, why: str) -> None:
        """Report once why a step is not kept."""
        if number not in self.settled:
            self.settled.add(number)
            self.tell(f"step {number} is not kept: {why}")

    def missing(self, script: str) -> list[str]:
        """Return the reasons why there are fewer Captures than requested, except those that were reported."""
        reasons = []
        if self.first == 0 < self.count and 0 not in self.settled:
            reasons.append(f"{script} called no module in step 0, so its beginning was not seen: ask for later steps")
        if self.count < self.last:
            first = max(self.first, self.count)
            steps = f"step {first} was" if first + 1 == self.last else f"steps {first} to {self.last - 1} were"
            none = (
                "no optimizer stepped in eager"
                if self.without_optimizer is False
                else f"it called no optimizer and no backward{CHILDREN if os.times().children_user > 0.5 else ''}"
            )
            there = f"ask for steps below {self.count}" if self.count else none
            reasons.append(f"{script} made {self.count} steps, so {steps} not reached: {there}")
        return reasons


CHILDREN = "; processes that it starts are not recorded: start them with a launcher, each under `backprint record`"
"""What a script is told that has started processes, and has made no step."""


def _is_inside_another_step(frame: FrameType | None) -> bool:
    """Whether the optimizer that has stepped is a part of another, whose step ends later: PyTorch wraps the step of
    each in the same function."""
    steps = 0
    while frame is not None and steps < 2:
        steps += frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == HOOKED_STEPS
        frame = frame.f_back
    return steps > 1


HOOKED_STEPS = sys.modules[torch.optim.Optimizer.__module__].__file__
"""The file of the function in which PyTorch wraps the step of every optimizer."""


def _end_thread(thread: threading.Thread, ended: threading.Event) -> None:
    """Raise KeyboardInterrupt in a thread, and wait until it has ended, which an event says.

    A thread that runs torch's operators while the process ends aborts it, and would leave a sample half written.
    """
    deadline = time.monotonic() + 5.0
    while thread.ident is None:  # `start` was interrupted: the thread is about to run, or was not made
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    interrupt, number = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread.ident)
    while not ended.is_set() and interrupt(number, ctypes.py_object(KeyboardInterrupt)):
        with contextlib.suppress(KeyboardInterrupt):  # another one: the first is raised when the thread has ended
            ended.wait(5.0)  # not sooner again: it may be removing its files
    with contextlib.suppress(KeyboardInterrupt):
        thread.join()


# ---- Modes


@contextlib.contextmanager
def _without_any_mode() -> Iterator[None]:
    """Run a block without modes of the script's or ours, and without autograd."""
    with DisableTorchFunction(), _dispatch_modes_off(), torch.no_grad():
        yield


@contextlib.contextmanager
def _dispatch_modes_off(without: Sequence[Any] = ()) -> Iterator[None]:
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
