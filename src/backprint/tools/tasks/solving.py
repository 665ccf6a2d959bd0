"""The process of a solution (`solver`), seen from the judge: a function of tensors, and what is known of its calls.

`Remote` is called as the solution would be, and autograd differentiates it: its forward and its backward are requests.
So the judge's comparisons are those of `bp.check`, which knows nothing of processes.

Tensors go to and fro in two shared memories of the process. A header is what a request or an answer has of one: its
dtype, shape, strides, device and place there. `wanted` are the places, among a call's inputs, of those whose gradients
are asked for. Results are held in the process under a key; here, their digests are held under the same key.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from backprint.child.child import Start, start_by_fork
from backprint.child.ends import ChildDied
from backprint.child.limits import limited
from backprint.child.processes import kill, prctl, resident_bytes
from backprint.child.strangers import CompilerFailed
from backprint.child.tensors import HeldBudget, SharedMemory, TensorChild, UnsentValue, put_inputs
from backprint.derive.setting import is_inexact
from backprint.judge.closeness import LEAST, distance, same_bits, size_of
from backprint.tools.tasks.program import TaskProgram
from backprint.tools.tasks.relied_on import TOLD, CheatFound
from backprint.tools.tasks.solver import PR_SET_DUMPABLE, begin
from backprint.values.fingerprint import bytes_of
from backprint.values.memory import as_bytes

MOST_PROCESSES = 64
"""How many processes a solution may start: compilers start some."""

SLACK = 64 << 20
"""Bytes of results that are read in any case; else so many times the inputs' as MOST_TIMES says."""

MOST_TIMES = 64


class SolutionFailed(RuntimeError):
    """The solution raised, or returned what no solution returns; the message says what."""


class SolutionRaised(SolutionFailed):
    """The solution raised; the message is its error."""


class SolutionProcess(TensorChild):
    """A solution's own process, with a limit of seconds for each answer and of bytes of memory (0: none). `load`
    returns the solution there. A `hidden` process is one that no other may read."""

    told = TOLD

    def __init__(self, load: Callable[[], Callable[..., Any]], limit: float, memory: int, hidden: bool = False) -> None:
        prctl(PR_SET_DUMPABLE, 0)  # no process of the same user may read this one's memory from now on

        def start(inputs: SharedMemory, results: SharedMemory) -> Start:
            return start_by_fork(partial(begin, load, hidden, inputs, results), (inputs.file, results.file))

        # `captured`: what it prints is counted, and the last of it kept for the message of its end.
        super().__init__(start, limited(limit, memory, MOST_PROCESSES), captured=True)
        self.use.inherited = resident_bytes(self.pid)  # the judge's own is not the solution's

    def limit_answers(self, seconds: float) -> None:
        """Limit each answer to so many seconds from now on."""
        self.use.limits = replace(self.use.limits, timeout=seconds)

    def stop(self) -> None:
        """Stop it and all that it has started: it computes nothing until it goes on."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it and all that it has started go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all processes below it, if it is there."""
        if self.pid:
            kill([self.pid, *self.descendants()], number)

    @property
    def schedule(self) -> tuple[int, int, frozenset[int]]:
        """Its priority, its policy and the processors that it may use."""
        priority = os.getpriority(os.PRIO_PROCESS, self.pid)
        return priority, os.sched_getscheduler(self.pid), frozenset(os.sched_getaffinity(self.pid))


@dataclass(slots=True)
class _Heard:
    """What a solution returned for some inputs when it was called first, how often it was called on these, and how far
    later results were from the first at most, in roundings (`relative`)."""

    results: list[Tensor | None]
    calls: int = 1
    apart: float = 0.0


@dataclass(slots=True)
class Remote:
    """A solution in its own process as a function of tensors that returns its results by name.

    `program` is that of the task, whose inputs and results it has. `calls` and `backwards` count. `ended` says why the
    process gives no more answers, or ''; `cheats` says how it was found to cheat. `heard` has the first results for
    equal inputs, by the digest of the inputs, and `budget` counts the bytes of held results as the process does.
    """

    program: TaskProgram
    process: SolutionProcess
    again: bool = False
    """Whether inputs are put in the memory of the call before."""
    fill: bool = False
    """Whether memory that is allocated has NaN in it."""
    spoil: bool = False
    """Whether results are written to before the backward."""
    mode: str = "enable_grad"
    """In which of `GRAD_MODES` it is called."""
    calls: int = 0
    backwards: int = 0
    ended: str = ""
    heard: dict[str, _Heard] = field(default_factory=dict)
    written: dict[str, None] = field(default_factory=dict)
    """Inputs and tangents into which it wrote."""
    shared: dict[str, None] = field(default_factory=dict)
    """Results that use the memory of an input or of another result."""
    cheats: dict[str, None] = field(default_factory=dict)
    digests: dict[str, list[str]] = field(default_factory=dict)
    """Of results that are held, what they were."""
    budget: HeldBudget = field(default_factory=HeldBudget)
    last: dict[str, Tensor | None] = field(default_factory=dict)
    """The results and gradients of the last call."""

    def __call__(self, *inputs: Tensor) -> dict[str, Tensor]:
        results = _RemoteFunction.apply(self, *inputs)
        return {name: value for (name, _), value in zip(self.program.outputs, results, strict=True)}

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Send a request of a kind (`do`) with its values, and return the answer. SolutionFailed has the reason for
        which there is none: SolutionRaised if the solution raised; otherwise there will be no more answers (`ended`),
        because it cheats, its process ended, or what it answers cannot be read."""
        if self.ended:
            raise SolutionFailed(self.ended)
        try:
            return self.process.request(do, **values)
        except CheatFound as error:
            self.cheats[str(error)] = None
            self.ended = str(error)
        except ChildDied as error:
            self.ended = str(error)
        except CompilerFailed as error:
            raise SolutionRaised(str(error)) from None
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            self.ended = f"its process answers what cannot be read ({type(error).__name__}: {str(error)[:2000]})"
        raise SolutionFailed(self.ended)

    def forward(self, inputs: Sequence[Tensor], wanted: Sequence[int]) -> tuple[int, list[Tensor], list[bool]]:
        """Call the solution; return the number of the call, its results, and whether each requires grad. SolutionFailed
        if these are not the task's results. Note what it wrote into and shares, and compare with an equal call."""
        self.calls += 1
        values = [value.detach() for value in inputs]
        headers = list(put_inputs(self.process.inputs_memory, values))
        key = f"{self.calls}" if self.calls > 1 else ""  # results of the first call, while it compiles, are not held
        answer = self.ask(
            "forward",
            call=self.calls,
            inputs=headers,
            wanted=list(wanted),
            again=self.again,
            fill=self.fill,
            mode=self.mode,
            hold=key,
        )
        count = len(self.program.outputs)
        if len(answer["results"]) != count:
            raise SolutionFailed(f"it returns {len(answer['results'])} results, and the task has {count}")
        results = self.read(answer["results"], values, [name for name, _ in self.program.outputs])
        self.note_written(values, answer["inputs"])
        self.note_shared(answer["shared"])
        self.keep(results, key)
        self.compare_with_earlier(digest([*values]), results)
        kept = [value for value in results if value is not None]
        if len(kept) < count:
            name = next(name for (name, _), value in zip(self.program.outputs, results, strict=True) if value is None)
            raise SolutionFailed(f"{name} is None, and not a tensor")
        self.last = dict(zip((name for name, _ in self.program.outputs), kept, strict=True))
        return self.calls, kept, list(map(bool, answer["graded"]))

    def backward(
        self, call: int, tangents: Sequence[Tensor | None], wanted: Sequence[int], inputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """Ask for the gradients of the wanted inputs of the call of this number, and return them; SolutionFailed if
        they are no gradients of these. `tangents` are of the results, None where there is none, and `inputs` are those
        of the call, as they were. Note whether the solution wrote into tangents, inputs or what it saved, and compare
        with an earlier equal call."""
        passed = [tangent for tangent in tangents if tangent is not None]
        self.backwards += 1
        key = f"{self.backwards} backward"
        if self.spoil:
            self.forget(call)  # before it is asked: a backward that refuses has its results written to as well
        headers = iter(put_inputs(self.process.inputs_memory, passed))
        answer = self.ask(
            "backward",
            call=call,
            tangents=[None if tangent is None else next(headers) for tangent in tangents],
            wanted=list(wanted),
            fill=self.fill,
            spoil=self.spoil,
            hold="" if self.spoil else key,
        )
        names = [self.program.inputs[place].name for place in wanted]
        gradients = self.read(answer["results"], [inputs[place] for place in wanted], names)
        if len(gradients) != len(wanted):
            raise SolutionFailed(f"its backward returns {len(gradients)} gradients, and {len(wanted)} are wanted")
        for gradient, place in zip(gradients, wanted, strict=True):
            value = inputs[place]
            if gradient is not None and gradient.shape != value.shape:
                name = self.program.inputs[place].name
                shapes = f"{list(gradient.shape)}, and the input's is {list(value.shape)}"
                raise SolutionFailed(f"the gradient of {name} has the shape {shapes}")
        for before, after in zip(passed, self.read(answer["tangents"], passed, None), strict=True):
            if after is None or not same_bits(before, after):
                self.written["a tangent"] = None
        self.note_written(inputs, answer["inputs"])
        if answer["spoiled"]:
            self.written["what it saved, without a new version of the tensor"] = None
        self.keep(gradients, "" if self.spoil else key)
        places = [place for place, tangent in enumerate(tangents) if tangent is not None]
        self.compare_with_earlier(f"{digest([*inputs, *passed])} of {places}, gradients of {wanted}", gradients)
        self.last = dict(zip(names, gradients, strict=True))
        return gradients

    # ---- Results

    def read(self, headers: Sequence[Any], like: Sequence[Tensor], names: Sequence[str] | None) -> list[Tensor | None]:
        """Return the tensors that the solution's process sent, or None for what is None there. SolutionFailed if one is
        no dense tensor or on another device than those in `like`, or if they are too large beside these, or cannot be
        read. `names` are those of the results, for messages; None says that they are inputs that were sent back."""
        most = SLACK + MOST_TIMES * sum(value.nbytes for value in like)
        devices = {value.device.type for value in like} or {"cpu"}

        def name_of(place: int) -> str:
            return names[place] if names is not None and place < len(names) else "an input"

        try:
            size = 0
            for place, header in enumerate(headers):
                for dtype, shape, _ in header.get("tensor", ()):  # of a sparse tensor several; the third is its offset
                    size += getattr(torch, dtype).itemsize * torch.Size(shape).numel()
                if "tensor" in header and torch.device(header["device"]).type not in devices:
                    on_device = f"{name_of(place)} is on {header['device']}"
                    raise SolutionFailed(f"{on_device}, and the inputs on {', '.join(devices)}")
            if size > most:
                raise SolutionFailed(f"its results have {size:,} bytes")
            values = self.process.results_in({"results": list(headers)})
        except SolutionFailed:
            raise
        except Exception as error:  # the process may have sent anything
            raise SolutionFailed(f"what it returns cannot be read: {type(error).__name__}: {error}") from None
        for place, value in enumerate(values):
            if value is not None and not isinstance(value, Tensor):
                kind = value if isinstance(value, UnsentValue) else f"a {type(value).__name__}"
                raise SolutionFailed(f"{name_of(place)} is {kind}, and not a tensor")
            if value is not None and value.layout is not torch.strided:  # [6:]: without `torch.`
                raise SolutionFailed(f"a result is {str(value.layout)[6:]}, and not dense")
        return values

    def note_written(self, values: Sequence[Tensor], headers: Sequence[Any]) -> None:
        """Note into which inputs the solution wrote: `values` are the inputs as they were, and `headers` are of the
        same ones after a call."""
        for port, before, after in zip(self.program.inputs, values, self.read(headers, values, None), strict=True):
            if after is None or not same_bits(before, after):
                self.written[port.name] = None

    def note_shared(self, pairs: Sequence[Sequence[int]]) -> None:
        """Note in words which results use another tensor's memory. A pair is the place of a result, and that of an
        input, or -1 - the place of another result (`solver.shared_memory`)."""
        for result, other in pairs:
            name = self.program.outputs[int(result)][0]
            if int(other) >= 0:
                self.shared[f"{name} is a view of {self.program.inputs[int(other)].name}"] = None
            else:
                self.shared[f"{name} uses the memory of {self.program.outputs[-1 - int(other)][0]}"] = None

    def forget(self, call: int) -> None:
        """Expect nothing of the results of a call any more: they were written to."""
        self.digests.pop(f"{call}", None)

    def keep(self, results: Sequence[Tensor | None], key: str) -> None:
        """Keep the digests of results that the process holds under a key: its budget is the same (`_Solver.hold`). With
        the key '', and where there is no room, it holds none."""
        size = sum(value.nbytes for value in results if value is not None)
        if key and self.budget.hold_if_room(size):
            self.digests[key] = [_digest_of_result(value) for value in results]

    def changed_later(self) -> str:
        """Ask for the held results once more; return a text if one is not what it was, else ''."""
        keys = list(self.digests)
        for first in range(0, len(keys), PIECE):
            keys_of_piece = keys[first : first + PIECE]
            expected = [(key, digest_then) for key in keys_of_piece for digest_then in self.digests[key]]
            answer = self.ask("held", keys=keys_of_piece)
            for (key, digest_then), value in zip(expected, self.process.results_in(answer), strict=True):
                if _digest_of_result(value) != digest_then:
                    return f"a result of call {key} of {self.calls} is another now"
        return ""

    def compare_with_earlier(self, key: str, results: Sequence[Tensor | None]) -> None:
        """Compare results with those of the first call on equal inputs, whose digest is `key`, and note how far they
        are apart. The results of a first call are kept, and compared with themselves."""
        first = self.heard.setdefault(key, _Heard(list(results), calls=0))
        first.calls += 1
        largest = max((size_of(value) for value in results if value is not None), default=0.0)
        for before, now in zip(first.results, results, strict=True):
            first.apart = max(first.apart, relative(before, now, SMALL * largest))


SMALL = 1e-3
"""A result that is smaller than this part of the largest of a call may be rounding alone, and counts as that large."""

PIECE = 16
"""How many calls' results are looked at again at a time."""


class _RemoteFunction(torch.autograd.Function):
    """The solution's forward and backward, as requests. Undefined tangents stay None, so that the solution's backward
    gets none for them either."""

    @staticmethod
    def forward(ctx: Any, remote: Remote, *inputs: Tensor) -> Any:
        """Send the inputs, return the results. Those that do not require grad in the process do not here."""
        ctx.set_materialize_grads(False)
        wanted = [place for place, needs in enumerate(ctx.needs_input_grad[1:]) if needs]  # the first is `remote`
        ctx.call, results, graded = remote.forward(inputs, wanted)
        # Copies of what was sent: `Remote.backward` compares the inputs in the process with them.
        ctx.remote, ctx.wanted, ctx.inputs = remote, wanted, [value.detach().clone() for value in inputs]
        ctx.mark_non_differentiable(
            *(result for result, has_grad in zip(results, graded, strict=True) if not (has_grad and is_inexact(result)))
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor | None) -> Any:
        """Send the tangents, return a gradient for each input; None for those that are not wanted, and for `remote`."""
        gradients = iter(ctx.remote.backward(ctx.call, tangents, ctx.wanted, ctx.inputs))
        return (None, *(next(gradients) if place in ctx.wanted else None for place in range(len(ctx.inputs))))


# ---- Bits


def digest(values: Sequence[Tensor]) -> str:
    """Return a digest of the elements, dtypes, shapes and strides of tensors."""
    total = hashlib.blake2b(digest_size=16)
    for value in values:
        plain = value.detach().cpu()
        total.update(f"{plain.dtype}{tuple(plain.shape)}{plain.stride()}".encode())
        total.update(bytes_of(as_bytes(plain)))
    return total.hexdigest()


def _digest_of_result(value: Any) -> str:
    """Return a digest of the elements of a result, without its strides: it is sent as it lies each time."""
    return digest([value.contiguous()]) if isinstance(value, Tensor) else ""


def relative(before: Tensor | None, now: Tensor | None, least: float = 0.0) -> float:
    """Return how far two results are apart, relative to the largest value of `before`, which counts as `least` if it is
    smaller, in units of what rounding of their dtype may make (LEAST). Infinite where only one is there, or their
    shapes or dtypes differ; 0 if neither is."""
    if before is None or now is None:
        return 0.0 if before is now else math.inf
    if before.shape != now.shape or before.dtype != now.dtype:
        return math.inf
    return 0.0 if same_bits(before, now) else distance(now, before, least) / LEAST.get(before.dtype, 1e-6)
