"""Follow a training by hooks: where its steps begin and end, whether their numbers are finite, and what to keep.

What a step runs is noted in a Taped (`tape`), of which `program_of` makes a Program: the same as data, which can run
again. To *keep* a step is to write its sample, and `why` is the reason, in the words of the message. The *ring* has the
last steps on disk. An *update* is a step of an optimizer: it ends a step of the training, which may have several
backwards. A tensor's *version* is how often it was written to, as torch counts it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import os
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modules import COMPILED
from backprint._torch.pytree import tree_leaves
from backprint._torch.tensors import version_of
from backprint.errors import BackprintError, UsageError, describe_error
from backprint.tools.watch.program import Program, autocast_now
from backprint.tools.watch.ring import Ring, read_parts
from backprint.tools.watch.sample import keep_sample
from backprint.tools.watch.tape import Event, Tape, Taped, program_of
from backprint.values.settings import random_states

STEPS_BEFORE_JUMPS = 10
"""So many steps must have been seen before one is compared with their median."""

NOT_FINITE = "a gradient has NaN or Inf"
"""Why a step may be kept: an update that takes these gradients is wrong, and a gradient scaler takes none."""

SKIPPED = 3
"""A gradient scaler skips an update whose gradients have Inf, and takes a smaller scale. It does so as a training
begins; after so many in a row the step is kept."""


@dataclass(slots=True)
class Step:
    """A backward that has run: the number of its step, what that ran, the sum of its losses, and the norm of all
    gradients after it. `why` says why it is to be kept, '' if it is not."""

    number: int
    taped: Taped
    loss: float
    norm: float
    why: str = ""


class Watching:
    """Hooks on a model, its optimizers and `torch.autograd.backward`. Nothing of ours raises into the training.

    `called` is the module that the training calls, which `torch.compile` may have made, and `model` the plain one.
    `limit` is how many steps may still be kept, `kept` has their folders, and `numbers_kept` their numbers. `number` is
    the number of the step that runs. `taped` has what it has run since its first call of the model, None before that
    and after the backward. `last` is its latest backward whose numbers are finite, `suspect` its first whose loss or
    gradients have NaN or Inf. `is_updating` says that an optimizer steps now, and `has_stepped` that one has stepped
    since the last step ended. `skipped` counts updates in a row that were left out, and `asked` says why the next step
    is to be kept.

    `depth` counts the calls of modules that run inside each other, and `backwards` those of `backward`. `norms` and
    `losses` have the norm of the gradients and the absolute loss of the last usual steps. `own` names the model's
    tensors, by id. `buffers` has by name each buffer, its version when it was copied (-1: not yet), and the copy.
    `is_busy` says that a function of ours runs, whose calls of the model are not the training's; `is_off` that the
    hooks are removed. `is_lost` says that a step with NaN or Inf was kept: those after it are its consequences, until
    one is finite again.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        ring: Ring,
        jump: float | None,
        limit: int,
        tell: Callable[[str], None],
    ) -> None:
        self.called, self.model = unwrapped(model)
        self.optimizers = optimizers
        self.ring = ring
        self.jump = jump
        self.limit = limit
        self.tell = tell
        self.kept: list[Path] = []
        self.numbers_kept: set[int] = set()
        self.number = 0
        self.thread, self.process = threading.get_ident(), os.getpid()
        self.tape = Tape()
        self.taped: Taped | None = None
        self.last: Step | None = None
        self.suspect: Step | None = None
        self.skipped = 0
        self.has_stepped = self.is_updating = False
        self.asked = ""
        self.depth = self.backwards = 0
        self.norms: deque[float] = deque(maxlen=50)
        self.losses: deque[float] = deque(maxlen=50)
        self.undo: list[Callable[[], Any]] = []
        self.own: dict[int, str] = {}
        self.buffers: dict[str, tuple[Tensor, int, Tensor]] = {}
        self.parameters: list[Tensor] = []
        self.is_off = self.is_busy = self.is_lost = False

    # ---- Hooks

    def open(self) -> None:
        """Make samples of what an earlier training has left in the ring, and install the hooks."""
        self.parameters = list(self.model.parameters())
        self.buffers = {name: (buffer, -1, buffer) for name, buffer in self.model.named_buffers()}
        self.own = {id(tensor): name for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers())}
        self.guarded(self.keep_steps_of_last_run)
        for path, module in modules_called(self.called):
            before = functools.partial(self.guarded, self.before_call, path, argument_names(module))
            # `prepend`: before the module's other hooks, which may change the arguments, and run again with the sample.
            self.undo.append(module.register_forward_pre_hook(before, with_kwargs=True, prepend=True).remove)
            # `always_call`: also if the forward raises, so that `depth` is right again.
            after = functools.partial(self.guarded, self.after_call)
            self.undo.append(module.register_forward_hook(after, always_call=True).remove)
        for optimizer in self.optimizers:
            before, after = (functools.partial(self.guarded, act) for act in (self.before_update, self.after_update))
            self.undo.append(optimizer.register_step_pre_hook(before).remove)
            self.undo.append(optimizer.register_step_post_hook(after).remove)
        self.replace_backward()

    def replace_backward(self) -> None:
        """Replace `torch.autograd.backward`, which `Tensor.backward` calls too. What has replaced ours meanwhile stays
        in place when the hooks are removed."""
        plain = torch.autograd.backward
        wrapped = self.wrap_backward(plain)
        torch.autograd.backward = wrapped
        self.undo.append(
            lambda: setattr(torch.autograd, "backward", plain) if torch.autograd.backward is wrapped else None
        )

    def close(self, ended_well: bool) -> None:
        """End the last step, and remove the hooks. The ring of a training that raised an error stays."""
        self.guarded(self.end_step)
        self.turn_off()
        self.ring.close(remove=ended_well)

    def turn_off(self) -> None:
        """Remove the hooks, and forget the step that runs."""
        self.is_off = True
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()
        self.tape.end()
        self.taped = self.last = self.suspect = None

    def guarded(self, act: Callable[..., None], *args: Any) -> None:
        """Call a function of ours, if this is the thread and the process of the training and no other function of ours
        runs. An error in it is told, and ends the watching."""
        if self.is_busy or self.is_off or threading.get_ident() != self.thread or os.getpid() != self.process:
            return
        self.is_busy = True  # what is run here calls the model, too
        try:
            act(*args)
        except Exception as error:
            self.turn_off()
            self.tell(f"step {self.number}: it is watched no longer: {describe_error(error)}")
        finally:
            self.is_busy = False

    def wrap_backward(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return `torch.autograd.backward` with our functions before and after it. One inside another (a checkpoint's)
        belongs to the outer one, and a step whose backward has raised is not looked at."""

        @functools.wraps(plain)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            """Run torch's own backward; look before and after, if it is the outermost."""
            self.backwards += 1
            outermost = self.backwards == 1
            try:
                if outermost:
                    self.guarded(self.before_backward, tensors, grad_tensors)
                plain(tensors, grad_tensors, *args, **kwargs)
            except BaseException:
                self.taped = None
                raise
            finally:
                self.backwards -= 1
            if outermost:
                self.guarded(self.after_backward)

        return backward

    # ---- The model

    def before_call(self, path: str, names: Sequence[str], module: nn.Module, args: Any, kwargs: Any) -> None:
        """Note a call of the model, or of a part of it that the training calls itself; the first one begins a step.
        `path` is the module's in the model, `names` are those of its forward's parameters. Calls inside another, in a
        backward (of a checkpoint) or without gradients are not noted."""
        self.depth += 1
        if self.depth > 1 or not torch.is_grad_enabled() or self.backwards:
            return
        if self.taped is None:
            self.end_step()
            self.taped = Taped(random_states(), self.buffers_now(), self.versions())
        self.tape.end()  # operators inside a module's call are not noted: the call is kept as a call
        self.taped.note_arguments(tree_leaves((args, kwargs)))
        self.taped.events.append(Event(path, args, kwargs, names=names, autocast=autocast_now()))

    def after_call(self, module: nn.Module, args: Any, result: Any) -> None:
        """Note the result of a call that `before_call` has noted, and begin to see the operators that follow it."""
        self.depth -= 1
        if self.depth or self.taped is None or not torch.is_grad_enabled() or self.backwards:
            return
        if result is None:  # it has raised
            self.taped = None
            return
        self.taped.events[-1].result = result
        self.taped.note_result(tree_leaves(result))
        self.tape.begin(self.taped)

    # ---- Steps

    def buffers_now(self) -> Mapping[str, Tensor]:
        """Return copies of the model's buffers, by name; one that has not been written to since its last copy is not
        copied again."""
        for name, (buffer, version, _) in self.buffers.items():
            if version != version_of(buffer):
                self.buffers[name] = buffer, version_of(buffer), buffer.detach().clone()
        return {name: copy for name, (_, _, copy) in self.buffers.items()}

    def versions(self) -> tuple[int, ...]:
        """Return how often each parameter was written to."""
        return tuple(version_of(parameter) for parameter in self.parameters)

    def before_backward(self, tensors: Any, grad_tensors: Any) -> None:
        """Note where a backward begins, and whether the update of a step with NaN or Inf was skipped before it: the
        gradients are finite again, and no optimizer has stepped."""
        self.tape.end()
        if self.suspect is not None:
            [norm] = self.norm_of_gradients()
            if math.isfinite(norm):
                self.end_skipped_step(self.suspect)
        if self.taped is None:
            return
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(grad_tensors)):
            self.taped.why_not = "its backward was given gradients, and only that of a loss is kept"
        self.taped.losses = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)

    def norm_of_gradients(self, *beside: Tensor) -> list[float]:
        """Return the norm of all gradients, and then the numbers `beside`, which are read from the device together, so
        that it is waited for once. The norm is finite if all gradients are."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        numbers: list[float] = torch.stack([norm, *(number.to(norm) for number in beside)]).tolist()
        # A sum of squares of finite gradients may have overflowed: the largest element is taken, which has not.
        if not math.isfinite(numbers[0]):
            numbers[0] = float(nn.utils.get_total_norm(gradients, norm_type=math.inf))
        return numbers

    def after_backward(self) -> None:
        """Look at the loss and the gradients of a backward that has run; keep its step, if they are not as usual.

        A step whose gradients alone are not finite is kept only when an optimizer takes them (`before_update`), because
        a gradient scaler may skip the update. An optimizer that steps with a closure is already in its update.
        """
        taped, self.taped = self.taped, None
        if taped is None:
            return
        losses = [loss.detach().float().sum() for loss in taped.losses]
        norm, loss = self.norm_of_gradients(sum(losses[1:], losses[0]))
        step = Step(self.number, taped, loss, norm)
        step.why = self.reason(step)
        if math.isfinite(loss) and math.isfinite(norm):
            self.skipped, self.is_lost, self.last = 0, False, step
            if not step.why:  # a usual step
                self.norms.append(norm)
                self.losses.append(abs(loss))
                self.ring.write(step.number, taped, self.model, self.own)
        elif self.suspect is not None:  # its gradients are added to those that had NaN or Inf before
            return
        else:
            self.suspect = step
            step.why = self.asked or ("" if self.is_lost else step.why)
        if step.why and (step.why != NOT_FINITE or self.is_updating):
            self.keep(step)

    def reason(self, step: Step) -> str:
        """Return why a step is to be kept, '' if it is not. What the user has asked for comes before all else, until a
        step is kept."""
        if self.asked:
            return self.asked
        if not math.isfinite(step.loss):
            return f"the loss is {step.loss}"
        if not math.isfinite(step.norm):
            return NOT_FINITE
        if self.jump is not None and len(self.norms) >= STEPS_BEFORE_JUMPS:
            for what, value, before in (
                ("the norm of the gradients", step.norm, self.norms),
                ("the loss", abs(step.loss), self.losses),
            ):
                usual = statistics.median(before)
                if value > self.jump * usual > 0:  # nothing is a multiple of a median of 0
                    times = f"{value / usual:.0f} times the median of the {len(before)} steps before"
                    return f"{what} is {value:.3g}, {times}"
        return ""

    def before_update(self, *_: Any) -> None:
        """An optimizer is about to step. If the gradients have NaN or Inf, these go into the weights now: the step is
        kept before. With a closure, the optimizer computes its gradients only now, so `after_backward` keeps it."""
        self.tape.end()
        self.is_updating = True
        if self.suspect is not None and self.suspect.why:
            self.keep(self.suspect)

    def after_update(self, *_: Any) -> None:
        """An optimizer has stepped."""
        self.is_updating = False
        self.has_stepped = True

    def end_step(self) -> None:
        """End the step that ran, as the next begins. If there was no update since, it goes on with another backward."""
        self.last = None
        if self.has_stepped:
            self.number += 1
            self.has_stepped = False
            self.suspect = None

    def end_skipped_step(self, step: Step) -> None:
        """End a step whose gradients had NaN or Inf and were dropped without an update, as a gradient scaler does; keep
        it if it is number SKIPPED in a row."""
        self.suspect = None
        self.number += 1
        self.skipped += 1
        if step.why and self.skipped == SKIPPED:
            step.why = f"{NOT_FINITE}, in {SKIPPED} steps in a row"
            self.keep(step)

    def ask(self, why: str) -> None:
        """Keep the step whose backward has run and whose update has not, else the next."""
        step = self.suspect or self.last
        if step is not None and not self.has_stepped:
            step.why = why
            self.guarded(self.keep, step)
        else:
            self.asked = why

    # ---- Samples

    def keep(self, step: Step) -> None:
        """Write a step as a sample, and those that the ring has of the steps before. If the weights have changed, the
        step cannot run again: then it is not kept, and a message says so. Once `limit` steps were kept, none is."""
        why, step.why = step.why, ""  # so it is kept once
        self.is_lost = not (math.isfinite(step.loss) and math.isfinite(step.norm))
        if why == self.asked:
            self.asked = ""
        if self.limit == 0:
            return
        if self.versions() != step.taped.versions:
            self.tell(f"step {step.number}: {why}; it is not kept: its weights have changed since its forward")
            return
        self.limit -= 1  # also where no sample can be made: each try takes the time of several steps
        # Without weights of its own: the model still has them.
        self.write_sample(step.number, why, lambda: (program_of(step.taped, self.own), {}), math.isfinite(step.norm))
        for place in self.ring.written():  # once the entry that is being written is there too
            if (number := number_of(place)) < step.number:
                self.write_sample(number, f"before step {step.number}", functools.partial(read_parts, place))

    def write_sample(
        self,
        number: int,
        why: str,
        read: Callable[[], tuple[Program, Mapping[str, Tensor]]],
        was_finite: bool = True,
    ) -> bool:
        """Write the sample of a step, and tell what it is, or why there is none. Return whether there is a sample of
        the step now.

        `read` returns the program of the step, and by name the weights that it ran with, if they are not those that the
        model has now. `was_finite` says whether its gradients were. An earlier training's samples stay: where a folder
        has the name already, this one gets a number.
        """
        if number in self.numbers_kept:
            return True
        name = self.ring.folder.parent / f"step_{number}"
        others = (name.with_name(f"{name.name}_{again}") for again in itertools.count(2))
        place = next(candidate for candidate in itertools.chain([name], others) if not candidate.exists())
        try:
            program, weights = read()
            what = keep_sample(self.model, program, place, why, weights, was_finite)
        except Exception as error:  # also of the model, which runs again: the training goes on
            cause = str(error) if isinstance(error, BackprintError) else describe_error(error)
            self.tell(f"step {number}: {why}; it is not kept: {cause}")
            return False
        self.kept.append(place)
        self.numbers_kept.add(number)
        self.tell(f"step {number}: {what}; kept in {os.path.relpath(place)}")
        return True

    def keep_steps_of_last_run(self) -> None:
        """Make samples of what the ring has of an earlier training, which ended early. A file of which there can be no
        sample stays, under another name outside of the ring."""
        for place in self.ring.places():
            read = functools.partial(read_parts, place)
            if self.write_sample(number_of(place), "the training ended early", read):
                place.unlink()
            else:
                place.rename(self.ring.folder.parent / f"{place.stem}.not_kept.pt")
        # They are none of this training's steps, which have the same numbers.
        self.kept.clear()
        self.numbers_kept.clear()


def number_of(place: Path) -> int:
    """Return the number of the step in a file of the ring, `step_000000037.pt`."""
    return int(place.stem.removeprefix("step_"))


def modules_called(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules whose calls are kept as calls, with their paths: the model, whose path is '', and its parts,
    which a training may call itself. A list of parts is not called, but its parts are."""
    yield "", model
    if hasattr(model, COMPILED):  # the parts are called by compiled code
        return
    for name, child in model.named_children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            # Not '', which is the list itself.
            yield from ((f"{name}.{path}", module) for path, module in modules_called(child) if path)
        else:
            yield name, child


def unwrapped(model: Any) -> tuple[nn.Module, nn.Module]:
    """Return the module that the training calls, without DistributedDataParallel around it, and the one that is
    captured, also without torch.compile around it. Refuse what is no module, and a sharded one."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"bp.watch: the model is {model!r}: pass the nn.Module that is trained")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    inner = getattr(model, COMPILED, None)
    if isinstance(inner, nn.Module):
        return model, inner
    if any(type(parameter).__name__ == "DTensor" for parameter in model.parameters()):
        raise UsageError("bp.watch: the model is sharded; record a step of its ranks: backprint record (docs/ranks.md)")
    return model, model


def argument_names(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the parameters of a module's forward; none if it has no signature that Python knows."""
    try:
        return tuple(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return ()
