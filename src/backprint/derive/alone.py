"""Each custom autograd.Function of a program asked alone: is its backward the derivative of its own forward?

The program as a whole does not say so of a call behind a zero, as a gate that begins at 0: there the call's tangents
are 0, and any backward returns 0. Neither does it of a call before a Function that is meant to differ, as a surrogate:
behind a step the forward has no derivative, and what the surrogate returns is taken for given. Such a call is run by
itself on the arguments that it had in the program, with random tangents, beside differences of its forward.

A *Function* is a custom autograd.Function; `meant` are the names of those whose backward is meant to differ from the
derivative. A Try is what one kind of tangents or calls showed: a fault, nothing wrong, or why nothing was compared. Its
`word` goes before its name in a sentence: `with tangents times 2^16`, `for a second call`. In a block
`with program.calls(values, seed) as call_program:`, each `call_program()` runs the program's forward (`live`).
`capture.opaque` has an edge for each Function, hook, `detach` and `no_grad` of the program. A Derivative (`result`) is
a verdict: a `word`, and in `wrong` the places where the backward is wrong, each with the name of the Function to blame.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from backprint._torch import pytree
from backprint._torch.autograd import function_class, is_own_function
from backprint.derive.called import Call, Place, Program, run_forward
from backprint.derive.differences import Product, products_by_differences
from backprint.derive.live import (
    AGAIN,
    SECOND_CALL,
    Gradients,
    NotTried,
    ProgramFault,
    Try,
    attempt,
    call_tries,
    first_difference,
    frozen_tries,
    layout_tries,
    measure_base,
    size_tries,
    sum_tries,
    tangent_tries,
    tangents_of,
    tries_of_step,
    why_raised,
)
from backprint.derive.locate import DETACH
from backprint.derive.setting import is_inexact
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import DERIVATIVE, NOT_THE_DERIVATIVE, Derivative
from backprint.trace.captured import LiveProgram
from backprint.values.settings import preserving_random_states
from backprint.values.tree import plain_leaves

MAX_CALLS = 64
"""The most calls of Functions of one name that are asked. Only calls that differ in the Function, or in sizes, dtypes
or other arguments, are asked one by one."""

MAX_ELEMENTS = 4_000_000
"""A call whose tensors have more elements together is not asked: its forward runs some dozens of times."""


@dataclass(eq=False)
class _FunctionCall:
    """A call of a custom autograd.Function in the program: copies of its arguments, and the places of those that
    require grad (`requiring_grad`).

    `nodes` are the autograd nodes of all calls that are alike (`_kind_of_argument`), and `used_outputs` the numbers
    (`Tensor.output_nr`) of the outputs of these calls that the program uses.
    """

    function: Any
    name: str
    arguments: tuple[Any, ...]
    requiring_grad: tuple[int, ...]
    nodes: list[Any] = field(default_factory=list)
    used_outputs: set[int] = field(default_factory=set)


def program_tries(capture: Capture, meant: Sequence[str] = ()) -> list[Try]:
    """Run the program itself with unusual tangents, and several times in a row; return a Try for each kind, and none if
    the program is gone, has no values, or runs only on recorded results (`partial`).

    Functions and hooks in `meant` need not be linear in their tangents. Where they may be why a gradient is not, that
    kind is not tried.
    """
    program = capture.origin
    if capture.fake or not program.alive or program.partial:
        return []
    values = program.values()
    with preserving_random_states(), program.restoring():
        # Modules that reduce gradients over ranks, such as FSDP2's, expect one backward after each forward.
        if not isinstance(program, LiveProgram) or program.program.reduces_gradients:
            names = ("tangents of other sizes", AGAIN, SECOND_CALL, EACH_ALONE)
            return [*tries_of_step(capture, values), *(Try(name, why_not=ONE_STEP) for name in names)]
        return [
            *tangent_tries(capture, program, values, meant),
            *call_tries(capture, program, values),
            # One rank of several runs the captured step only: what the other ranks sent was for it.
            *(frozen_tries(capture, program, values) if capture.rank is None else ()),
            *_tries_of_functions(capture, program, values, meant),
        ]


def _tries_of_functions(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor], meant: Sequence[str]
) -> list[Try]:
    """Return a Try for each custom autograd.Function about which the program as a whole leaves something open; none for
    one rank of several, and none without Functions."""
    if capture.rank is not None or not any(edge.kind == "function" for edge in capture.opaque):
        return []
    try:
        calls_alone = _calls_to_run_alone(capture, program, values, meant)
    except Exception as error:  # of the program: `why_raised` raises a defect of our own again
        return [Try(EACH_ALONE, why_not=why_raised(error))]
    # One of several Functions of a name may not be meant; which, the name does not say.
    tries = [
        Try(f"{name} alone", why_not=f"it is meant to differ, and {count} Functions have this name")
        for name, count in calls_alone.counts_of_shared_names.items()
    ]
    for reason, calls_of_function in calls_alone.by_reason:
        tries += _tries_of_function(reason, calls_of_function, capture.seed)
    return tries


EACH_ALONE = "each Function alone"

ONE_STEP = "it is a step that runs as a whole"

BEHIND_ZERO = "whose tangents are 0 in the program"


REST_IS_RIGHT = "everything else is the derivative"


def may_be_fault_of_meant(result: Derivative, capture: Capture, meant: Sequence[str]) -> bool:
    """Whether a verdict blames Functions that are not meant to differ, though it may be the fault of another Function,
    or of a hook, that is.

    A place may have the steps of several Functions, and a hook has none: then the graphs do not say which is wrong.
    Everything else that the program does to its gradients must be meant too.
    """
    blamed = {place.function for place in result.wrong} - set(meant)
    # "" is a wrong place that names no Function: one that passes its tangent on has no steps in the backward, and the
    # place before it is found in its stead.
    known = {"", *_functions_of(capture)}
    if result.word != NOT_THE_DERIVATIVE or not (result.rest_is_right and meant and blamed and blamed <= known):
        return False
    # A `detach` or `no_grad` at a line of a Function is a part of it; those at other lines must be meant by themselves.
    lines_of_functions = {line for edge in capture.opaque if edge.kind == "function" for line in edge.lines}
    kinds = {"hook" for edge in capture.opaque if edge.is_hook}
    cuts = [(edge.kind, edge.source) for edge in capture.opaque if edge.kind in ("detach", "no_grad")]
    cuts += [("detach", s.source) for pair in capture.pairs for s in pair.forward.steps if s.target == DETACH]
    kinds |= {kind for kind, source in cuts if source is None or source.at not in lines_of_functions}
    return kinds <= set(meant)


def is_fault_of_meant(result: Derivative, tries: Sequence[Try], capture: Capture, meant: Sequence[str]) -> bool:
    """Whether the fault that a verdict names must be in the Functions that are meant to differ, because each other
    Function that it may be in is right alone. `tries` are those of the program (`program_tries`)."""
    right_alone = {try_.function for try_ in tries if try_.function and try_.fault is None and not try_.why_not}
    return may_be_fault_of_meant(result, capture, meant) and _suspected_functions(result, capture, meant) <= right_alone


def _functions_of(capture: Capture) -> set[str]:
    """Return the names of a program's custom autograd.Functions."""
    return {edge.function for edge in capture.opaque if edge.function}


def _suspected_functions(result: Derivative, capture: Capture, meant: Sequence[str]) -> set[str]:
    """Return the Functions that are not meant to differ and that a verdict names; all Functions of the program that are
    not meant to differ, where a wrong place of the verdict names none."""
    blamed = {place.function for place in result.wrong}
    return (_functions_of(capture) if "" in blamed else blamed) - set(meant)


def verdict_except_meant(result: Derivative, capture: Capture, meant: Sequence[str]) -> Derivative:
    """Return the verdict with the word that the backward is the derivative except at the places that are meant to
    differ; the Functions that it blamed are named as right alone."""
    names = tuple(sorted(set(meant)))
    right_alone = sorted(_suspected_functions(result, capture, meant))
    word = f"{DERIVATIVE} but for {', '.join(names)}"
    wrong = tuple(place for place in result.wrong if place.function in meant)
    detail = f"{', '.join(right_alone)} alone is the derivative" if right_alone else REST_IS_RIGHT
    return replace(result, word=word, detail=detail, wrong=wrong, meant=names)


class _CallsAlone(NamedTuple):
    """Calls to run alone, `by_reason`: for each Function's name the reason, and the calls. The reason is BEHIND_ZERO if
    one of them gets tangents of 0, and '' if none does. `counts_of_shared_names` says of names that are meant to differ
    how many Functions have them, where several do."""

    counts_of_shared_names: dict[str, int]
    by_reason: list[tuple[str, list[_FunctionCall]]]


def _calls_to_run_alone(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor], meant: Sequence[str]
) -> _CallsAlone:
    """Return the calls to run alone, of the Functions that are not meant to differ.

    If nothing is meant to differ, these are the calls that get tangents of 0. Else they are all calls, because what is
    meant may hide their faults.
    """
    with program.calls(values, capture.seed) as call_program:
        # A first call to find the Functions, and a second in which their calls are recorded.
        nodes = _custom_nodes(call_program().tensors.values())
        functions = dict.fromkeys(map(function_class, nodes))
        # `is_own_function`: one of PyTorch itself, such as that of module hooks.
        watched = [function for function in functions if function is not None and not is_own_function(function)]
        with recording_calls(watched) as calls:
            forward = call_program()
        zero_nodes = _nodes_with_zero_tangents(forward, capture, calls)
    by_name: dict[str, list[_FunctionCall]] = {}
    for call in calls:
        if call.nodes:
            by_name.setdefault(call.name, []).append(call)
    function_counts = {
        name: len({call.function for call in same_name}) for name, same_name in by_name.items() if name in meant
    }
    calls_by_reason: list[tuple[str, list[_FunctionCall]]] = []
    for same_name in (same_name for name, same_name in by_name.items() if name not in meant):
        behind_zero = [call for call in same_name if any(node in zero_nodes for node in call.nodes)]
        if behind_zero:
            calls_by_reason.append((BEHIND_ZERO, same_name if meant else behind_zero))
        elif meant:
            calls_by_reason.append(("", same_name))
    for call in calls:
        call.nodes.clear()  # they hold what the forward saved
    return _CallsAlone({name: count for name, count in function_counts.items() if count > 1}, calls_by_reason)


def _custom_nodes(outputs: Iterable[Tensor]) -> dict[Any, set[int]]:
    """Return the autograd nodes of custom autograd.Functions that these outputs depend on, each with the numbers of its
    outputs that are used (`Tensor.output_nr`)."""
    # Edges of the graph of autograd, as `next_functions` has them: a node, and the number of one of its outputs.
    edges = [(tensor.grad_fn, tensor.output_nr) for tensor in outputs if tensor.grad_fn is not None]
    numbers_used: dict[Any, set[int]] = {}
    while edges:
        node, number = edges.pop()
        if node not in numbers_used:
            numbers_used[node] = set()
            edges += [edge for edge in node.next_functions if edge[0] is not None]  # None: an input without grad
        numbers_used[node].add(number)
    return {node: numbers for node, numbers in numbers_used.items() if isinstance(node, BackwardCFunction)}


class _ChangedMethod(NamedTuple):
    """A method of a Function that was replaced, with the Function's own one; None if it inherits the method."""

    function: Any
    name: str
    own: Any


def _first_call(function: Any, name: str, arguments: Sequence[Any]) -> _FunctionCall:
    """Return the first of some calls that are alike, with copies of its tensors, and the places of those that require
    grad. `name` is that of the autograd node, without `Backward`."""
    tensors = {place: value for place, value in enumerate(arguments) if isinstance(value, Tensor)}
    wanted = tuple(place for place, tensor in tensors.items() if tensor.requires_grad and is_inexact(tensor))
    copies = tuple(value.detach().clone() if isinstance(value, Tensor) else value for value in arguments)
    return _FunctionCall(function, name, copies, wanted)


def _put_back(changed: _ChangedMethod) -> None:
    """Give a Function its own method back; an inherited one must be inherited again, and not become one of the class
    itself."""
    if changed.own is None:
        delattr(changed.function, changed.name)
    else:
        setattr(changed.function, changed.name, changed.own)


@contextlib.contextmanager
def recording_calls(functions: Sequence[Any]) -> Iterator[list[_FunctionCall]]:
    """Record the calls of these Functions in this block, and of Functions that the program defines in it.

    Of calls that are alike, only the arguments of the first are copied. The list has the calls after the block.

    Of a block that runs `Square.apply(x)` twice and `Square.apply(y)` with a y of another shape, it has two.
    """
    calls: dict[Any, _FunctionCall] = {}
    recorded: list[_FunctionCall] = []
    changed_methods: list[_ChangedMethod] = []

    def record(function: Any, context: Any, arguments: Sequence[Any]) -> None:
        """Record a call of a Function; `context` is its `ctx`, which is the autograd node too."""
        if function_class(context) is not function:
            return  # the call is of a subclass that inherits the method; it is watched, and records the call
        key = (function, *map(_kind_of_argument, arguments))  # calls with one key are alike
        name = context.name().removesuffix("Backward")  # autograd calls the node of a Function Square `SquareBackward`
        if key not in calls:
            if sum(call.name == name for call in calls.values()) >= MAX_CALLS:
                return
            calls[key] = _first_call(function, name, arguments)
        calls[key].nodes.append(context)

    def watch(function: Any) -> None:
        """Replace the method of a Function that gets the context, by one that records the call."""
        # With a `setup_context` the forward gets no context; without one, the forward's first argument is it.
        has_setup_context = function.setup_context is not torch.autograd.Function.setup_context
        name = "setup_context" if has_setup_context else "forward"
        original = getattr(function, name)

        @functools.wraps(original)
        def method(context: Any, *arguments: Any, **options: Any) -> Any:
            # `setup_context(ctx, inputs, output)` gets the arguments of the call as one tuple.
            record(function, context, arguments[0] if has_setup_context else arguments)
            return original(context, *arguments, **options)

        # From `__dict__`, because `getattr` would find an inherited method too.
        changed_methods.append(_ChangedMethod(function, name, own=function.__dict__.get(name)))
        setattr(function, name, staticmethod(method))

    def watch_new(function: Any, /, **options: Any) -> None:
        """Stand for `__init_subclass__`: watch a Function as soon as its class is made."""
        super(torch.autograd.Function, function).__init_subclass__(**options)
        watch(function)

    try:
        # A program may define a Function in the call itself: its class passes through here when it is made.
        torch.autograd.Function.__init_subclass__ = classmethod(watch_new)
        for function in functions:
            watch(function)
        yield recorded
        recorded += calls.values()
    finally:
        del torch.autograd.Function.__init_subclass__  # the one that Function inherits is back
        for changed in changed_methods:
            _put_back(changed)


def _kind_of_argument(argument: Any) -> Any:
    """Return the key of an argument, by which calls are told apart: the kind of a tensor, a plain value, or an
    identity."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.shape, argument.requires_grad
    if isinstance(argument, bool | int | float | complex | str | torch.dtype | None):
        return type(argument), argument
    return id(argument)


def _nodes_with_zero_tangents(forward: Any, capture: Capture, calls: Sequence[_FunctionCall]) -> set[Any]:
    """Run the backward of a program's `forward`, for random tangents of its outputs; return the nodes of `calls` that
    get a tangent of zeros for an output that is used.

    Afterwards `nodes` of each call are only those that ran, and `used_outputs` has the numbers of the outputs that the
    program uses.
    """
    used_outputs = _custom_nodes(forward.tensors.values())
    nodes_run, zero_nodes = set[Any](), set[Any]()

    def note_tangents(node: Any, tangents: Sequence[Tensor | None]) -> None:
        """Note, before a node runs, that it runs, and whether a used output has a tangent of zeros."""
        nodes_run.add(node)
        if any(is_zero(tangents[number]) for number in used_outputs[node] if number < len(tangents)):
            zero_nodes.add(node)

    handles = [
        node.register_prehook(partial(note_tangents, node))
        for call in calls
        for node in call.nodes
        if node in used_outputs
    ]
    try:
        forward.gradients(tangents_of(forward.outputs(), capture.signature.differentiable))
    finally:
        for handle in handles:
            handle.remove()
    for call in calls:
        call.nodes = [node for node in call.nodes if node in nodes_run]
        call.used_outputs = set[int]().union(*(used_outputs[node] for node in call.nodes))
    return zero_nodes


def is_zero(tangent: Tensor | None) -> bool:
    """Whether a tangent has no element that is not 0; autograd passes None for zeros."""
    return tangent is None or not bool((tangent != 0).any())


# ---- A Function alone


def _tries_of_function(why: str, calls: Sequence[_FunctionCall], seed: int) -> Iterator[Try]:
    """Yield a Try for the calls of one Function: the first that has a fault, or one for all of them. `why` is the
    reason why they are run alone, for the Try's name ('' for none). `seed` is the capture's."""
    function = calls[0].name
    name = f"{function} alone" + (f", {why}," if why else "")
    not_tried = ""
    for call in calls:
        for try_ in _tries_of_call(name, call, seed):
            if try_.fault is not None:
                yield Try(try_.name, try_.fault, word=try_.word, function=function)
                return
            not_tried = not_tried or try_.why_not
    if len(calls) == MAX_CALLS:
        not_tried = not_tried or f"only {MAX_CALLS} kinds of its calls were"
    yield Try(name, why_not=not_tried, word="for", function=function)


def _tries_of_call(name: str, call: _FunctionCall, seed: int) -> Iterator[Try]:
    """Yield the Tries of one call of a Function by itself: its gradients beside finite differences of its forward,
    whether other tangents could be tried, and each kind of tangents with a fault; nothing for a call with no argument
    that requires grad. Of tensors that are not dense or are large, yield why the call is not tried."""
    tensors = [value for value in plain_leaves(call.arguments) if isinstance(value, Tensor)]
    if not all(type(tensor) is Tensor and tensor.layout is torch.strided for tensor in tensors):
        yield Try(name, why_not="it takes tensors that are not dense")
    elif sum(tensor.numel() for tensor in tensors) > MAX_ELEMENTS:
        yield Try(name, why_not="its tensors are large")
    elif call.requiring_grad:
        # A Program, as `bp.check` runs one: a function, here with no tensors beside its arguments, and a seed.
        function_call, program = _as_call(call), Program(partial(_used_outputs, call), {}, seed)
        yield attempt(name, partial(_fault_by_differences, function_call, program), word="for")
        tries: list[Try] = []

        def try_tangents() -> None:
            """Fill `tries`; an error comes through to `attempt`, whose Try then says why nothing was compared."""
            tries.extend(_tangent_tries_of_call(function_call, program))

        yield attempt(name, try_tangents, word="for")
        yield from (Try(f"{name} with {try_.name}", try_.fault, word="for") for try_ in tries if try_.fault is not None)


def _used_outputs(call: _FunctionCall, *arguments: Any) -> list[Tensor]:
    """Call a Function on copies, because it may write into its arguments; return the outputs that the program uses."""
    arguments_copied = [value.clone() if isinstance(value, Tensor) else value for value in arguments]
    outputs = plain_leaves(call.function.apply(*arguments_copied))
    return [
        output
        for output in outputs
        if isinstance(output, Tensor) and output.grad_fn and output.output_nr in call.used_outputs
    ]


def _as_call(call: _FunctionCall) -> Call:
    """Return a call of a Function as a Call: with its tensors by name, so that it can be run on other values."""
    names = [f"argument {number}" for number in range(len(call.arguments))]  # `fault.port` shows these to the user
    values = {name: value for name, value in zip(names, call.arguments, strict=True) if isinstance(value, Tensor)}
    # A Place stands for the tensor of its name.
    leaves = tuple(Place(name) if name in values else value for name, value in zip(names, call.arguments, strict=True))
    _, tree = pytree.tree_flatten((tuple(range(len(leaves))), {}))  # so many positional arguments, and no keywords
    return Call(leaves, tree, values, tuple(values), tuple(names[number] for number in call.requiring_grad))


def _fault_by_differences(call: Call, program: Program) -> ProgramFault | None:
    """Return a fault if the backward is not the derivative by differences: in float64, or in its own dtype where the
    Function does not take float64. Raise NotTried if the first argument with elements could not be compared.

    A Product is the comparison for one argument: its `gap`, the gap that is `allowed`, or why it was `not_tried`.
    """
    products: list[Product] = []
    for own_dtype in (False, True):  # the second is tried only where nothing could be compared in float64
        products = []
        # Several draws in its own dtype, which has few digits: one gap may be small by chance.
        for seed_offset in range(DRAWS if own_dtype else 1):
            program_with_seed = replace(program, seed=program.seed + seed_offset)
            products += products_by_differences(call, program_with_seed, own_dtype)
        wrong = [product for product in products if not product.not_tried and product.gap > product.allowed]
        if wrong:
            worst = max(wrong, key=lambda product: product.gap)
            return ProgramFault(worst.name, worst.gap, "differences of its forward")
        if not all(product.not_tried for product in products):
            break
    not_tried = next((product.not_tried for product in products if product.not_tried != NO_ELEMENTS), "")
    if not_tried:
        raise NotTried(not_tried)
    return None


DRAWS = 3
"""How many tangents and directions are drawn where a gap has few digits: the gap of one draw may be small by chance."""

NO_ELEMENTS = "it has no elements"


def _tangent_tries_of_call(call: Call, program: Program) -> Iterator[Try]:
    """Yield the tries of tangents in other memory, of other sizes and with other values; none for a backward that does
    not repeat its gradients. Raise NotTried for one that writes into its tangent, which all of these would read."""

    def backward(tangents: Gradients) -> Gradients:
        """Return the gradients for these tangents, on the graph of a new call."""
        forward = run_forward(program, call, call.values)
        return forward.gradients({name: tangent for name, tangent in tangents.items() if tangent is not None})

    forward = run_forward(program, call, call.values)
    tangents = tangents_of({n: output.detach() for n, output in forward.outputs.items()}, forward.differentiable)
    if not tangents:
        return
    before = {name: tangent.clone() for name, tangent in tangents.items()}
    gradients = backward(tangents)
    if any(not torch.equal(tangent, before[name]) for name, tangent in tangents.items()):
        raise NotTried("it writes into its tangent")
    if first_difference(backward(tangents), gradients) is None:
        # What the gradients for all other tangents are compared with.
        base = measure_base(backward, tangents, gradients, forward.differentiable)
        yield from layout_tries(backward, base)
        yield from size_tries(backward, base)
        yield from sum_tries(backward, base)
