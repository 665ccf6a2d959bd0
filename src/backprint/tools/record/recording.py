"""Find where the steps of a running script begin and end, by hooks on torch that the script does not notice.

A step ends with an optimizer's step, or where a gradient scaler leaves it out; if an optimizer steps during a backward,
in a hook, with that backward; if a script has no optimizer, with a backward. Nothing of ours raises into the script,
and none of its numbers depends on it: anything that cannot be followed loses the step, and the cause is reported.

A *recorder* is the LiveRecorder of one step: the dispatch mode that writes the operators of the step on a tape. Its
`lost` says why its step was dropped, '' if it was not. A step is *settled* once its Capture was handed over or the
reason was reported why there is none. A backward is *outermost* if no other call of autograd is running in its thread.
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
    """The steps of a running script, from `first` to before `last`: `done` takes the number and the Capture of each,
    `tell` each message.

    `count` is the number of the step that runs, and `recorder` records it; None if it is not recorded. `settled` are
    the numbers of the steps that are done with, and `finished` the recorders of ended steps that are still on the mode
    stack of a thread. `depth` has how many calls of autograd run inside each other in each thread, by its identifier.
    `step_is_due` says that an optimizer has stepped in a backward, which ends the step when it returns.
    `optimizer_steps` counts the steps of optimizers. `without_optimizer` says whether the script has no optimizer, None
    while that was not looked for. `undo` has a function for each hook that takes it off again, and `undo_compiled` the
    one for calls of compiled code. `around` is the ExitStack of what is open while a step is recorded.
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
            self.begin_at_first_module()  # no step ends before step 0
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
            self.recorder.drop_step("the script has ended")  # its mode does nothing in a thread that goes on
        self.stop_recorder()

    def replace(self, module: Any, name: str, new: Any) -> None:
        """Replace a function of torch's by one of ours until `close`. If something else has replaced ours meanwhile,
        `close` leaves that in place."""
        plain = getattr(module, name)
        setattr(module, name, new)
        self.undo.append(lambda: setattr(module, name, plain) if getattr(module, name) is new else None)

    def wrap_autograd(self, plain: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
        """Wrap `torch.autograd.backward` or `torch.autograd.grad`: `before` is called first, with the arguments of the
        call, and `after_autograd` after the outermost call in a thread. Neither is, where Dynamo traces the call."""

        @frames.calls_program  # the frames outside this one are not the program's
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
        """Wrap `GradScaler.step` to end the step also where, for Inf or NaN in a gradient, it calls no optimizer."""

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
        """Run a function of ours; an error in it drops the step. Ctrl-C is the script's: it ends the recording, and is
        raised."""
        try:
            act(*args, **kwargs)
        except Exception as error:  # whatever it is: the script goes on
            self.drop_current_step(describe_error(error))
        except BaseException:
            self.close()
            raise

    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """End the step after an optimizer has stepped; or, if a backward still runs, let the backward end it."""
        self.optimizer_steps += 1
        if torch.compiler.is_dynamo_compiling() or self.is_off() or _is_inside_another_step(sys._getframe(1)):
            return
        # A node runs without a call of autograd in this thread where autograd runs a device's backward in its own.
        if current_node() is not None or self.depth[threading.get_ident()]:
            self.step_is_due = True
        else:
            self.run_guarded(self.end_step)

    def begin_at_first_module(self) -> None:
        """Begin step 0 where the first module is called with gradients on. A method of `nn.Module` is replaced for it
        until then, because a global module hook would make `torch.compile` warn."""
        plain = getattr(nn.Module, CALL)

        @functools.wraps(plain)
        def first_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            """Call a module as before; the first time with gradients on, put torch's method back and begin the step."""
            if not torch.compiler.is_dynamo_compiling() and not self.is_off() and torch.is_grad_enabled():
                if getattr(nn.Module, CALL) is first_call:
                    setattr(nn.Module, CALL, plain)
                # Where the script has kept this function, or replaced it, it is called again: once is enough.
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
        """Tell the recorder of an outermost backward that it begins; drop the step if it begins in another thread than
        the step's. The parameters are those of `torch.autograd.backward`."""
        recorder = self.recorder_here(create_graph)
        if self.recorder is not None and recorder is None:
            self.recorder.drop_step("a backward runs in another thread than the step")
        elif recorder is not None and self.depth[recorder.thread] == 1:  # one inside another belongs to the outer one
            roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            with _without_any_mode():
                recorder.enter_backward(roots, tangents=grad_tensors is not None)

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
        """Drop the step if a call of `torch.autograd.grad` cannot be recorded; its operators are recorded as those of
        the forward or backward around it. The parameters are those of `torch.autograd.grad`."""
        self.recorder_here(create_graph)

    def after_autograd(self, name: str, error: BaseException | None) -> None:
        """Tell the recorder that an outermost backward has ended, or drop the step if it has raised `error`; end the
        step if it is due. `name` is the function's, `backward` or `grad`."""
        is_backward, recorder = name == "backward", self.recorder_here()
        if is_backward and recorder is not None:
            if error is not None:
                recorder.drop_step(f"its backward raised {type(error).__name__}: {error}")
            else:
                with _without_any_mode():
                    recorder.leave_backward()
        if self.step_is_due or (is_backward and self.is_without_optimizer()):
            self.step_is_due = False
            self.end_step()

    def recorder_here(self, create_graph: bool = False) -> LiveRecorder | None:
        """Return the recorder of the step if this is its thread, else None.

        First a lost step is dropped and reported; also a step that is to differentiate its backward (`create_graph`)
        and has called an operator whose backward of the backward rounds otherwise under a mode (`recorder.twice`).
        """
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
        """Whether the script has had no optimizer so far and changes its parameters itself: a backward ends a step.

        All objects of the process are searched for an optimizer, until one is found or the last step is over.
        """
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
        self.around.enter_context(operator_bodies_captured(kept_whole={}))  # all custom operators run as their bodies
        if is_initialized():
            # FSDP2 frees and refills the storage of gathered parameters, and Gloo copies while its caller waits.
            self.around.enter_context(storages_filled(note=recorder.note_filled))
            self.around.enter_context(waiting_in(around=recorder.waiting))
        self.drop_on_compiled_calls()
        with _dispatch_modes_off():  # so that ours is the lowest on the stack
            push_mode(recorder)

    def drop_on_compiled_calls(self) -> None:
        """Drop the step as soon as the script calls compiled code, whose operators no mode sees."""

        def lose_step() -> None:
            if self.recorder is not None and not self.is_off():
                self.recorder.drop_step(COMPILED)

        self.undo_compiled = note_compiled_calls(lose_step)

    def stop_recorder(self) -> LiveRecorder | None:
        """Stop recording, and return the recorder; None if there was none. Its mode is taken off the stack, now or when
        that is safe (`remove_finished`)."""
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
        """Remove the finished recorders of this thread from its mode stack; not inside a backward, because autograd
        puts back the stack of before after each node. At depth 1 the outermost backward is only about to begin."""
        if self.finished and self.depth[threading.get_ident()] < 2 and current_node() is None:
            done = [mode for mode in self.finished if mode.thread == threading.get_ident()]
            with _dispatch_modes_off(done):
                self.finished = [mode for mode in self.finished if mode not in done]

    def end_step(self) -> None:
        """End the step: prove it, or report why it is dropped; and begin the next if it was asked for. A step of
        another thread goes on."""
        if self.recorder is not None and self.recorder.thread != threading.get_ident():
            return
        recorder = self.stop_recorder()
        if recorder is not None and recorder.lost:
            self.drop_current_step(recorder.lost)
        elif recorder is not None:
            self.run_guarded(self.prove_step, recorder)
        self.count += 1
        if self.first <= self.count < self.last:
            self.begin_step()

    def prove_step(self, recorder: LiveRecorder) -> None:
        """Make a Capture of a step and hand it to `done`, which proves it, in a thread where no mode of the script is
        active. The script waits meanwhile, and its tensors stay as they are.

        An error there drops the step. Where Ctrl-C, or an error of a signal handler of the script's, comes while the
        script waits, the thread is ended, and it is raised into the script.
        """
        # This thread holds the lock of all captures, and the one that proves would wait for it forever.
        if settings.ONE_AT_A_TIME.is_held_here():
            raise CaptureError("the step ran inside a capture or a proof of the script's own")
        number = self.count
        with _without_any_mode():
            from backprint.tools.record.steps import capture_of_step, names_in_frames

            names = names_in_frames(sys._getframe(1))
        failed: list[str] = []

        def prove_and_report() -> None:
            """Hand the Capture to `done`; keep what is raised as a text in `failed`, and set `ended` at the end."""
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
            ended.wait()  # before `join`: Python 3.11 takes a thread for ended once its `join` was interrupted
            thread.join()
        except BaseException:
            _end_thread(thread, ended)
            self.count = number + 1  # `end_step`, which counts otherwise, does not go on
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
        """Return the reasons why there are fewer Captures than requested, except those that were reported. `script` is
        the name of the script in them."""
        reasons = []
        if self.first == 0 < self.count and 0 not in self.settled:
            reasons.append(f"{script} called no module in step 0, so its beginning was not seen: ask for later steps")
        if self.count < self.last:
            first = max(self.first, self.count)
            steps = f"step {first} was" if first + 1 == self.last else f"steps {first} to {self.last - 1} were"
            # Child processes that took time, more than half a second of it, may be the ones that train.
            of_children = CHILDREN if os.times().children_user > 0.5 else ""
            if self.count:
                cause = f"ask for steps below {self.count}"
            elif self.without_optimizer is False:
                cause = "no optimizer stepped in eager"
            else:
                cause = f"it called no optimizer and no backward{of_children}"
            reasons.append(f"{script} made {self.count} steps, so {steps} not reached: {cause}")
        return reasons


CHILDREN = "; processes that it starts are not recorded: start them with a launcher, each under `backprint record`"
"""What a script is told that has started processes, and has made no step."""


def _is_inside_another_step(frame: FrameType | None) -> bool:
    """Whether the optimizer that has stepped is a part of another, whose step ends later: PyTorch wraps the step of
    each in the same function (`wrapper`, in HOOKED_STEPS), which is on the stack twice then. `frame` is the innermost
    frame."""
    steps = 0
    while frame is not None and steps < 2:
        steps += frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == HOOKED_STEPS
        frame = frame.f_back
    return steps > 1


HOOKED_STEPS = sys.modules[torch.optim.Optimizer.__module__].__file__
"""The file of the function in which PyTorch wraps the step of every optimizer."""


def _end_thread(thread: threading.Thread, ended: threading.Event) -> None:
    """Raise KeyboardInterrupt in a thread, and wait until it has ended. The thread itself sets `ended` at its end.

    A thread that runs torch's operators while the process ends aborts it, and would leave a sample half written.
    """
    deadline = time.monotonic() + 5.0
    while thread.ident is None:  # `start` was interrupted: the thread is about to run, or was not made
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    # PyThreadState_SetAsyncExc returns in how many threads it has set the exception: 0 if the thread is gone.
    interrupt, number = ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread.ident)
    while not ended.is_set() and interrupt(number, ctypes.py_object(KeyboardInterrupt)):
        # A second Ctrl-C here is dropped: the caller raises the first when the thread has ended.
        with contextlib.suppress(KeyboardInterrupt):
            ended.wait(5.0)  # seconds, before it is interrupted again: it may be removing its files
    with contextlib.suppress(KeyboardInterrupt):
        thread.join()


# ---- Modes


@contextlib.contextmanager
def _without_any_mode() -> Iterator[None]:
    """Run a block without modes of the script's or ours (function modes and dispatch modes), and without autograd."""
    with DisableTorchFunction(), _dispatch_modes_off(), torch.no_grad():
        yield


@contextlib.contextmanager
def _dispatch_modes_off(without: Sequence[Any] = ()) -> Iterator[None]:
    """Turn all dispatch modes off in this block and on after it, except those in `without`, which stay off. A mode that
    is pushed in the block is below them afterwards.

    Entering a `TorchDispatchMode` sets a process-wide flag that makes Dynamo and Inductor behave differently, so modes
    are moved on the stack only.
    """
    modes = dispatch_modes()  # the lowest first
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
