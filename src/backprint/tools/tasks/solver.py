"""The process in which a solution works: it loads the solution's file, and calls it as the judging process requests.

It is forked before the judge draws any input, and has no results of the reference. What a solution may do to this
process cannot make a wrong result right: inputs come from the judge, results go to it, and it alone compares and holds
the clock. Nothing that this process says of itself is believed without that.

Tensors go to and fro in two shared memories. A header is what a request or an answer has of one: its dtype, shape,
strides and place there. `wanted` are the places, among a call's inputs, of those whose gradients are asked for. Results
are held under a key, to be looked at again later; the judge, on its side, holds their digests (`solving.Remote`).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint._torch.tensors import version_of
from backprint.child.answering import Answering, serve
from backprint.child.child import Line
from backprint.child.processes import adopt_orphans, prctl
from backprint.child.strangers import compiler_errors
from backprint.child.tensors import HeldBudget, SharedMemory, put_results, read_inputs
from backprint.judge.closeness import same_bits
from backprint.tools.tasks.relied_on import TOLD, CheatFound, check_own, check_replaced, own_functions
from backprint.values.settings import TORCH_RANDOM, changed_state, draw_from_each, process_state
from backprint.values.tree import strided_parts

NAME = "Solution"
"""The name of a solution in its file."""

MOST_CALLS = 8
"""How many forwards wait for their backward at most; the oldest is forgotten."""


@dataclass(slots=True)
class _SolvedCall:
    """A forward that was called: its inputs, of which some may require grad, and its results, with autograd's graph."""

    inputs: list[Tensor]
    results: list[Any]


class _Solver(Answering):
    """A solution at work. Each `do_…` answers one kind of request, with a dict of plain values.

    `load` returns what to call, `function`. `calls` has the forwards that wait for their backward, by number. `held`
    has the results that are held, by key, and `budget` counts their bytes. `places` has the inputs of the last call, by
    their dtypes and shapes. `own` are our functions, before the solution was loaded. `called_before` has the directions
    (`forward`, `backward`) that were called. Wherever code of the solution has run, `end_copies` ends a process that it
    has forked, and an error in `compiler_errors` is raised as CompilerFailed.
    """

    told = TOLD

    def __init__(self, load: Callable[[], Callable[..., Any]], inputs: SharedMemory, results: SharedMemory) -> None:
        self.load, self.inputs_memory, self.results_memory = load, inputs, results
        self.function: Callable[..., Any] | None = None
        self.pid = os.getpid()
        self.calls: dict[int, _SolvedCall] = {}
        self.held: dict[str, list[Any]] = {}
        self.budget = HeldBudget()
        self.places: dict[str, list[Tensor]] = {}
        self.own: Mapping[str, Any] = {}
        self.draws = False
        """Whether the task's program draws random numbers, so that a solution may."""
        self.called_before: set[str] = set()
        self.moved: dict[str, str] = {}
        """The states of torch's random numbers after calls that drew, each with the state before."""

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a request, unless this is a process that the solution has forked, which ends here."""
        answer = super().answer(request)
        self.end_copies()
        return answer

    def end_copies(self) -> None:
        """End this process if the solution has forked it: a copy would write into the memory for results too."""
        if os.getpid() != self.pid:
            os._exit(0)

    def do_load(self, draws: bool = False) -> Mapping[str, Any]:
        """Load the solution's file; it may draw random numbers if its task's program `draws`. Raise CheatFound if the
        file changes settings of the process, or replaces functions, and CompilerFailed for an error that it raises."""
        self.draws = draws
        self.own = own_functions()  # before the file can replace any
        before = process_state()
        with compiler_errors():
            self.function = self.load()
        if changes := changed_state(before, states=False):  # a file that seeds as it is loaded changes no later call
            raise CheatFound(f"its file changes the process that loads it: {changes}")
        self.end_copies()
        self.check_relied_on()
        return {}

    def do_forward(
        self, call: int, inputs: Sequence[Any], wanted: Sequence[int], again: bool, fill: bool, hold: str, mode: str
    ) -> Mapping[str, Any]:
        """Call the solution in one of `GRAD_MODES`, as the call of number `call`.

        With `again`, the inputs are put in the memory of the call before; with `fill`, new memory has NaN. The results
        are held under the key `hold`, unless that is ''. The answer has the results, whether each requires grad
        (`graded`), the inputs as they are now, and which tensors share memory (`shared_memory`).
        """
        values = self.read(inputs, again)
        with filling_new_memory(fill):
            results = self.call_solution(values, wanted, mode=mode)
        self.calls[call] = _SolvedCall(values, results)
        while len(self.calls) > MOST_CALLS:
            del self.calls[next(iter(self.calls))]
        self.hold(results, hold)
        headers, offset = put_results(self.results_memory, [detached(value) for value in results])
        written, _ = put_results(self.results_memory, [value.detach() for value in values], offset)
        graded = [isinstance(value, Tensor) and value.requires_grad for value in results]
        shared = shared_memory(values, results)
        self.check_relied_on()
        return {"results": headers, "graded": graded, "inputs": written, "shared": shared}

    def do_backward(
        self, call: int, tangents: Sequence[Any], wanted: Sequence[int], fill: bool, spoil: bool, hold: str
    ) -> Mapping[str, Any]:
        """Differentiate the forward of number `call`; `tangents` has a header for each result, or None. New memory has
        NaN with `fill`, and the gradients are held under the key `hold`.

        With `spoil`, the forward's results are written to before, which a backward that needs them has to notice. The
        answer has the gradients, and the tangents and inputs as they are now. `spoiled` in it says whether the backward
        changed what was saved without autograd's notice: another content, and the same version.
        """
        solved = self.calls[call]
        sent = iter(read_inputs(self.inputs_memory, [header for header in tangents if header is not None]))
        values = [None if header is None else next(sent) for header in tangents]
        if spoil:
            for result in solved.results:
                result.detach().zero_()  # autograd sees this by the version, which `detach` shares
        with compiler_errors():  # autograd refuses to say what is behind a view that was written to
            saved = _saved_by(solved.results)
        before = [value.detach().clone() for value in saved]
        versions = [version_of(value) for value in saved]
        with filling_new_memory(fill), self.unchanged_process("backward"):
            gradients = self.differentiate(solved, values, wanted)
        spoiled = any(
            version_of(value) == version and not same_bits(value, copy)
            for value, version, copy in zip(saved, versions, before, strict=True)
        )
        self.hold(gradients, hold)
        headers, offset = put_results(self.results_memory, [detached(value) for value in gradients])
        tangents_now, offset = put_results(
            self.results_memory, [value for value in values if value is not None], offset
        )
        inputs_now, _ = put_results(self.results_memory, [value.detach() for value in solved.inputs], offset)
        self.check_relied_on()
        return {"results": headers, "tangents": tangents_now, "inputs": inputs_now, "spoiled": spoiled}

    def do_calls(
        self, sets: Sequence[Any], count: int, wanted: Sequence[int], step: bool, differentiable: Sequence[int]
    ) -> Mapping[str, Any]:
        """Call the solution with several sets of tensors: the first `count` of each are inputs, and those behind them,
        if `step`, tangents of the results at the places `differentiable`. It is a batch that is timed (`tasks/timing`),
        so nothing is held or looked at in between. The answer has the results of all calls, and then gradients, one
        call after the other."""
        answers: list[Any] = []
        for headers in sets:
            values = read_inputs(self.inputs_memory, headers)
            for place in wanted:
                values[place].requires_grad_()
            results = self.call_solution(values[:count], wanted=(), timed=True)
            gradients: list[Any] = []
            if step:
                sent = dict(zip(differentiable, values[count:], strict=True))
                tangents = [sent.get(place) for place in range(len(results))]
                gradients = self.differentiate(_SolvedCall(values[:count], results), tangents, wanted)
            answers.append([*(detached(value) for value in results), *(detached(value) for value in gradients)])
        headers, _ = put_results(self.results_memory, [value for answer in answers for value in answer])
        return {"results": headers}

    def do_held(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """Answer with the results that are held under these keys, as they are now. CheatFound if one of our own
        functions was replaced since the solution was loaded."""
        check_own(self.own)
        headers, _ = put_results(self.results_memory, [value for key in keys for value in self.held[key]])
        return {"results": headers}

    # ---- The solution

    def call_solution(
        self, values: Sequence[Tensor], wanted: Sequence[int], timed: bool = False, mode: str = "enable_grad"
    ) -> list[Any]:
        """Call the solution in one of `GRAD_MODES`, and return its results, one or several of them, as a list.

        `timed` is for a call whose time counts: the caller has set which inputs require grad, and the process is not
        looked at before and after. An error of the solution is raised as CompilerFailed.
        """
        assert self.function is not None
        for place in () if timed else wanted:
            values[place].requires_grad_()
        unchanged = contextlib.nullcontext() if timed else self.unchanged_process("forward")
        with torch.enable_grad(), unchanged, GRAD_MODES[mode](), compiler_errors():
            results = self.function(*values)
        self.end_copies()
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def differentiate(self, solved: _SolvedCall, tangents: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
        """Return the gradients of the wanted inputs, None for one on which no result depends; None for each if no
        result with a tangent requires grad. `tangents` has one for each result, or None. An error of the solution is
        raised as CompilerFailed."""
        roots = [
            (result, tangent)
            for result, tangent in zip(solved.results, tangents, strict=True)
            if tangent is not None and isinstance(result, Tensor) and result.requires_grad
        ]
        if not roots:
            return [None] * len(wanted)
        with compiler_errors():
            gradients = torch.autograd.grad(
                [result for result, _ in roots],
                [solved.inputs[place] for place in wanted],
                [tangent for _, tangent in roots],
                retain_graph=True,  # the judge may ask for another backward of the same call
                allow_unused=True,
            )
        self.end_copies()
        return list(gradients)

    # ---- Tensors

    def read(self, headers: Sequence[Any], again: bool) -> list[Tensor]:
        """Return inputs in new memory, or, with `again`, in that of the call before, if it had inputs of the same
        dtypes and shapes: what a solution remembers by address is then wrong."""
        values = read_inputs(self.inputs_memory, headers)
        # The dtype and the shape of each: a header's `place` is shape, strides and start.
        key = repr([[header["dtype"], header["place"][0]] for header in headers])
        last_inputs = self.places.get(key)
        # Nothing can be copied into expanded memory, in which several elements are one.
        if again and last_inputs is not None and not any(0 in value.stride() for value in values):
            for old, new in zip(last_inputs, values, strict=True):
                old.data.copy_(new)  # `.data`: without a new version of what an earlier call may have saved
            return [old.detach() for old in last_inputs]
        self.places = {key: values}
        return list(values)

    def hold(self, values: Sequence[Any], key: str) -> None:
        """Keep results to be looked at again (`do_held`), if there is a key and room: `Remote.keep` decides alike."""
        size = sum(value.nbytes for value in values if isinstance(value, Tensor))
        if key and self.budget.hold_if_room(size):
            self.held[key] = [detached(value) for value in values]

    @contextlib.contextmanager
    def unchanged_process(self, direction: str) -> Iterator[None]:
        """Open a block that calls the solution in a `direction`, `forward` or `backward`; raise CheatFound if it leaves
        settings, modes or random states of the process changed.

        Compilers draw random numbers as they try kernels, so random states count from the second call on; and only if
        the task's program draws none. If it does, a solution may draw, but not seed: a call that seeds leaves the same
        state after different ones.
        """
        draw_from_each()  # else a state that every call seeds would be as it was before
        before = process_state()
        yield
        states_count = direction in self.called_before and not self.draws
        self.called_before.add(direction)
        if changes := changed_state(before, states_count):
            raise CheatFound(f"its {direction} changes the process that calls it: {changes}")
        earlier, now = (state[TORCH_RANDOM] for state in (before, process_state()))
        if earlier != now and self.moved.setdefault(now, earlier) != earlier:
            raise CheatFound(f"its {direction} seeds {TORCH_RANDOM}: from different states it leaves the same")

    def check_relied_on(self) -> None:
        """Raise CheatFound where the solution has replaced a function of RELIED_ON."""
        check_replaced()


GRAD_MODES: Mapping[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}
"""In what a solution is called: a model is evaluated in the last two."""


@contextlib.contextmanager
def filling_new_memory(fill: bool) -> Iterator[None]:
    """Open a block in which torch fills memory that it allocates with NaN, and integers with their largest value, if
    `fill`: what its deterministic mode does. `usage.filling_new_memory` asks for it from the judge's side."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if fill:
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        if fill:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _saved_by(results: Sequence[Any]) -> list[Tensor]:
    """Return the tensors that the custom autograd.Functions behind results saved. Of one whose saved tensors were
    written to, autograd raises RuntimeError, and nothing is returned."""
    nodes = [value.grad_fn for value in results if isinstance(value, Tensor) and value.grad_fn is not None]
    saved: list[Tensor] = []
    for node in nodes:  # the loop goes on to the nodes that it appends
        nodes += [before for before, _ in node.next_functions if before is not None and before not in nodes]
        with contextlib.suppress(RuntimeError):
            saved += [value for value in getattr(node, "saved_tensors", ()) if isinstance(value, Tensor)]
    return saved


def detached(value: Any) -> Any:
    """Return a plain tensor without autograd's graph; anything else as it is: of a subclass, `put_results` sends no
    values."""
    return value.detach() if type(value) in (Tensor, torch.nn.Parameter) else value


def shared_memory(inputs: Sequence[Tensor], results: Sequence[Any]) -> list[list[int]]:
    """Return pairs of tensors that use one memory, by their places: `[result, input]`, or `[result, -1 - other]` for an
    earlier result, and for the same one if its elements share memory. The second is negative for a result, so that a
    pair is two numbers. `Remote.note_shared` puts them into words."""
    memory_of_inputs = [memory_of(value) for value in inputs]
    earlier_memory: list[set[int]] = []
    pairs = []
    for place, value in enumerate(results):
        memory_of_result = memory_of(value)
        if overlaps_itself(value):
            pairs.append([place, -1 - place])
        # Two sets of addresses that have one in common.
        pairs += [[place, other] for other, used in enumerate(memory_of_inputs) if used & memory_of_result]
        pairs += [[place, -1 - other] for other, used in enumerate(earlier_memory) if used & memory_of_result]
        earlier_memory.append(memory_of_result)
    return pairs


def overlaps_itself(value: Any) -> bool:
    """Whether a result is expanded, by a stride of 0: several of its elements are one."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return any(not step and size > 1 for size, step in zip(value.shape, value.stride(), strict=True))


def memory_of(value: Any) -> set[int]:
    """Return the addresses of the storages of a tensor: of a sparse one, those of its parts. One without elements, and
    what is no tensor, have none."""
    if not isinstance(value, Tensor) or value.is_meta or not value.numel():
        return set()
    return {part.untyped_storage().data_ptr() for part in strided_parts(value) if part.numel()}


# ---- Loading


def solution_of_text(text: str) -> Callable[[], Callable[..., Any]]:
    """Return a function that runs a solution's text and returns what to call."""

    def load() -> Callable[..., Any]:
        namespace: dict[str, Any] = {"__name__": "solution"}
        exec(compile(text, "<solution>", "exec"), namespace)
        return function_of(namespace.get(NAME))

    return load


def solution_of_file(path: Path) -> Callable[[], Callable[..., Any]]:
    """Return a function that runs a solution's file and returns what to call."""

    def load() -> Callable[..., Any]:
        sys.path.insert(0, str(path.parent))  # as for a script: files beside it can be imported
        sys.argv = [str(path)]  # and not the judge's arguments
        spec = importlib.util.spec_from_file_location("solution", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["solution"] = module
        spec.loader.exec_module(module)
        return function_of(getattr(module, NAME, None))

    return load


def function_of(solution: Any) -> Callable[..., Any]:
    """Return what to call: of an autograd.Function its `apply`, of another class an instance, else the function;
    AttributeError for what cannot be called."""
    if isinstance(solution, type) and issubclass(solution, torch.autograd.Function):
        apply: Callable[..., Any] = getattr(solution, "apply")  # noqa: B009  # mypy knows no type of it
        return apply
    if not callable(solution):
        raise AttributeError(f"the file has no {NAME}: a torch.autograd.Function, or a function of the inputs")
    function: Callable[..., Any] = solution() if isinstance(solution, type) else solution
    return function


# ---- The process

PR_SET_DUMPABLE = 4
"""The attribute of a Linux process that says whether others of the same user may read its memory."""

CAPABILITIES = 0x20080522
"""Version 3 of Linux's capabilities."""


def begin(
    load: Callable[[], Callable[..., Any]], hidden: bool, inputs: SharedMemory, results: SharedMemory, line: Line
) -> None:
    """Serve in this process, which was forked from the judging one and isolated, until its line is closed.

    `load` returns what to call, and `inputs` and `results` are the shared memories. No other process may read the
    memory of a `hidden` one.
    """
    adopt_orphans()  # so that what it starts stays below it
    prctl(PR_SET_DUMPABLE, int(not hidden))
    _drop_capabilities()
    torch.set_num_threads(1)  # the judge's threads are not in a forked process, and OpenMP would wait for them
    serve(lambda: _Solver(load, inputs, results), line)


def _drop_capabilities() -> None:
    """Give up the rights of a superuser, if this process has any: with them it could read the judge's memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)  # 0: this process
    libc.capset(header, (ctypes.c_uint32 * 6)())  # effective, permitted and inheritable ones, 64 bits of each: none
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
