"""Run one Graph: an environment (`env`: each value by its name in the graph), and a loop over its steps. Values are
dropped after their last use.

The steps run as they are written: autocast around them has no effect, because the program's own casts are steps.

`graph.inputs` and `graph.outputs` are Ports: a role, a name, and a spec (dtype, sizes, layout and device, as at
capture). Sizes may be symbols, and `sizes` has the number of each symbol in this run. `passed` has ports, each with the
value that is passed for it. A *guard* is a step that checks a value. A *collective* is an operator that needs what
other ranks send; `answer` is a function that returns its result.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.weak import WeakIdKeyDictionary

from backprint._torch.distributed import FUNCTIONAL, GROUP_POSITIONS, groups_by_label, in_group
from backprint._torch.modes import DisableAutocast
from backprint.common import at_work
from backprint.errors import GuardError, ReplayError, for_program
from backprint.graph.fx.values import check_call, check_guard_step, checked_function, resolve, value_evaluator
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Port, ScalarSpec, Size, Source, Step, TensorSpec, Value, refs
from backprint.graph.sizes import implied_sizes, may_equal, sizes_in_words, symbol_out_of_range
from backprint.graph.text import show_spec, show_step
from backprint.prove.annotations import AnnotationCheck, Notes, show_value
from backprint.prove.results import is_inexact
from backprint.values.exchanges import Answer, Call, call_of
from backprint.values.memory import has_memory
from backprint.values.settings import default_dtype
from backprint.values.tree import plain_leaves

AS_WRITTEN: Callable[[], contextlib.AbstractContextManager[None]] = DisableAutocast
"""While this is entered, autocast does not cast any operator's arguments."""


Given = Mapping[str, Any] | Mapping[PortKey, Any] | Sequence[Any]
"""Inputs by a port's name, local or key (a `PortKey`, or a text such as `tangent y`), or in port order."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How graphs run: which annotations are checked, who sees their values, and what answers their collectives.

    `annotations` are the Notes of a comparison of each value with its annotation. `watch(graph, name, value)` is
    called with each input and with each result of a step. `answer` answers the collectives: it returns what this rank
    receives; for a whole Capture it is an `Others`. Without it, the Capture's peers (the other ranks as they were in
    one run) do, or else the process groups of this process.
    """

    annotations: Notes | None = None
    watch: Callable[[Graph, str, Any], None] | None = None
    answer: Answer | None = None


PLAIN = RunOptions()
"""No annotation is checked, no value is watched, and the Capture's peers or process groups answer collectives."""


def run_graph(graph: Graph, inputs: Given, strict: bool = True, options: RunOptions = PLAIN) -> tuple[Any, ...]:
    """Return the results of a Graph on these inputs, which are detached. Raise ReplayError if the graph does not run,
    and GuardError if one of its conditions does not hold.

    `strict` refuses an input whose dtype or shape is not the port's. Grad mode is on, though nothing requires grad,
    because some kernels compute what their backward needs only then (oneDNN's LSTM its workspace).
    """
    env = feed(graph, inputs, strict)
    # Listed before the run, which drops inputs from `env`: the results are checked against their sizes.
    arguments = [env[port.local] for port in graph.inputs]
    # Compares each value with the annotation of its step; None if that is not asked for.
    annotation_check, watch = _open_annotation_check(options.annotations, graph, env), options.watch
    last = last_uses(graph)
    if watch is not None:
        for port in graph.inputs:
            watch(graph, port.local, env[port.local])

    def settle(index: int, step: Step) -> None:
        """Compare, show and drop values after a step has run."""
        if annotation_check is not None:
            annotation_check.check_step(step, env.get(step.name))
        if watch is not None and not step.is_guard:
            watch(graph, step.name, env[step.name])
        for name in last.get(index, ()):
            del env[name]

    with torch.enable_grad(), AS_WRITTEN():
        instead = _collectives(options.answer or _by_process_groups)
        value_of = perform_steps(graph.steps, env, subgraphs(graph), after=settle, instead=instead)
        results = tuple(value_of(result) for result in graph.results)
    # An AnnotationCheck makes of a difference a verdict, `hold_results` an error.
    if annotation_check is not None:
        annotation_check.check_ports(graph.outputs, results)
    else:
        hold_results(graph, arguments, results)
    return results


def _collectives(answer: Answer) -> Mapping[str, Callable[..., Any]]:
    """Return, by the target of each collective operator (a key of GROUP_POSITIONS), a function to run in its place: it
    returns what `answer` does."""
    return {
        f"torch.ops.{FUNCTIONAL}.{name}.default": functools.partial(_answer_collective, answer, name)
        for name in GROUP_POSITIONS
    }


def _answer_collective(answer: Answer, name: str, *args: Any) -> Any:
    """Return the result of the collective operator `name` on these arguments, of which the first is the tensor that is
    sent. In a graph, the argument for the group is its label already."""
    return answer(call_of(name, args, label=str), args[0])


def _by_process_groups(call: Call, sent: Tensor) -> Tensor:
    """Run a collective, which sends the tensor `sent`, in the process group of this process that has its label; raise
    ReplayError if there is none."""
    groups = groups_by_label()
    if call.group not in groups:
        known = f"its groups are {', '.join(groups)}" if groups else "this process has no process group"
        raise ReplayError(
            f"{call.text} runs in a group of processes, and {known}: replay the rank that bp.capture(…, world=…) has "
            "captured, which has what the others sent, or run it under torchrun"
        )
    return in_group(call.kind, sent, call.options, groups[call.group])


def hold_results(graph: Graph, arguments: Sequence[Any], results: Sequence[Any]) -> None:
    """Raise unless each result has the dtype, the sizes, the layout and the device that its port had at capture.
    `arguments` are the inputs of this run, in port order.

    While annotations are checked, this is not called: an AnnotationCheck makes such a difference a verdict. Saved
    values are left out: they stay between two graphs. If the inputs are on another device than at capture, devices are
    not compared.
    """
    sizes = sizes_of(list(zip(graph.inputs, arguments, strict=True)))
    inputs_on_device = all(on_device(port, value) for port, value in zip(graph.inputs, arguments, strict=True))
    for port, value in zip(graph.outputs, results, strict=True):
        spec = port.spec
        if port.role == "saved" or not isinstance(spec, TensorSpec) or not isinstance(value, Tensor):
            continue
        if not fits(spec, value, sizes) or (inputs_on_device and not on_device(port, value)):
            raise ReplayError(
                f"{port.role} {port.name!r} was {show_spec(spec)} at capture and is {show_value(value)} now: something "
                "outside the graph differs (the default dtype, a setting, an operator of another torch)"
            )


def on_device(port: Port, value: Any) -> bool:
    """Whether a tensor is on the kind of device that its port names, `cuda` of `cuda:0`; true for other values."""
    if not isinstance(port.spec, TensorSpec) or not isinstance(value, Tensor):
        return True
    return value.device.type == port.spec.device.partition(":")[0]


def _open_annotation_check(notes: Notes | None, graph: Graph, env: Mapping[str, Any]) -> AnnotationCheck | None:
    """Return a new AnnotationCheck of `notes` for a run of a graph, after a comparison of the inputs in `env`; None if
    annotations are not checked."""
    if notes is None:
        return None
    arguments = [env[port.local] for port in graph.inputs]
    sheet = notes.sheet(graph, sizes_of(list(zip(graph.inputs, arguments, strict=True))))
    sheet.check_ports(graph.inputs, arguments)
    return sheet


def run_graded(graph: Graph, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """`run_graph` on inputs that may require grad, so that autograd can differentiate the results."""
    env = feed(graph, inputs, strict=True, graded=True)
    with AS_WRITTEN():
        value_of = perform_steps(graph.steps, env, subgraphs(graph))
    return tuple(value_of(result) for result in graph.results)


At = Callable[[Source | None], contextlib.AbstractContextManager[Any]]
"""Returns a context manager in which a step of a source line runs."""


def perform_steps(
    steps: Sequence[Step],
    env: dict[str, Any],
    bodies: Mapping[str, fx.GraphModule],
    *,
    at: At = lambda source: contextlib.nullcontext(),
    after: Callable[[int, Step], None] = lambda index, step: None,
    instead: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> Callable[[Value], Any]:
    """Run steps in an environment, to which each adds its value; return the function that evaluates Values there: the
    arguments and results of a graph as it writes them. Every run of a graph uses this loop.

    `bodies` has the callables of subgraphs by name. `at` returns a context in which the steps of a source line run,
    `after` is called after each step, and `instead` has functions to run in the place of operators, by target.
    """
    value_of = value_evaluator(env, bodies)
    for index, step in enumerate(steps):
        with at(step.source):
            perform(step, env, value_of, instead)
        after(index, step)
    return value_of


def updated_scale(
    scale: Tensor, growth_tracker: Tensor, found_inf: Tensor, growth: float, backoff: float, interval: int
) -> tuple[Tensor, Tensor]:
    """Return the next scale and growth tracker of a GradScaler, as `_amp_update_scale` does, which takes no float64.

    Where a gradient has NaN or Inf, the scale is multiplied by `backoff`, and the tracker begins again at 0. After
    `interval` steps without one it is multiplied by `growth`, unless it would be Inf, and the tracker begins again.
    """
    found = found_inf != 0
    grows = ~found & (growth_tracker + 1 == interval) & (scale * growth).isfinite()
    counts = ~found & (growth_tracker + 1 != interval)
    next_scale = torch.where(found, scale * backoff, torch.where(grows, scale * growth, scale))
    return next_scale, torch.where(counts, growth_tracker + 1, torch.zeros_like(growth_tracker))


def unscaled(tensors: Sequence[Tensor], found_inf: Tensor, inverse: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return gradients without a GradScaler's scale, and whether one has NaN or Inf:
    `_amp_foreach_non_finite_check_and_unscale` takes no scale in float64."""
    found = any(not bool(tensor.isfinite().all()) for tensor in tensors)
    return [tensor * inverse for tensor in tensors], torch.ones_like(found_inf) if found else found_inf.clone()


IN_FLOAT64: Mapping[str, Callable[..., Any]] = {
    "aten._amp_update_scale.default": updated_scale,
    "aten._amp_foreach_non_finite_check_and_unscale.default": unscaled,
}
"""Forms of operators of a GradScaler, which take no float64, for graphs that run in it."""


CHECKING = "aten._linalg_check_errors.default"
"""The operator that raises if a decomposition failed. A program may catch that and take another branch."""


def perform(
    step: Step, env: dict[str, Any], value_of: Callable[[Value], Any], instead: Mapping[str, Callable[..., Any]]
) -> None:
    """Run one step: put its value into the environment, or check its guard. `value_of` returns the value of an argument
    as the graph writes it; the other arguments are as in `perform_steps`. Whatever an operator raises becomes a
    ReplayError that shows the step and its source line."""
    try:
        if step.is_guard:
            check_guard_step(step, *map(value_of, step.args))
            return
        function = resolve(step.target)
        args, kwargs = [value_of(value) for value in step.args], {key: value_of(value) for key, value in step.kwargs}
        check_call(step.target, function, args, kwargs)
        # The operator itself takes no float64.
        if step.target in IN_FLOAT64 and any(isinstance(arg, Tensor) and arg.dtype is torch.float64 for arg in args):
            function = IN_FLOAT64[step.target]
        with taken_dtype(step, args, kwargs):
            # A kernel may end the process: whoever started it then reads the operator's name from a file.
            at_work.note(step.target)
            try:
                # Through `for_program`, an error of the operator counts as the program's, and not as a defect of ours.
                env[step.name] = for_program(instead.get(step.target, function), *args, **kwargs)
            finally:
                at_work.note("")
    except ReplayError:
        raise
    except Exception as error:
        where = f" ({step.source.at})" if step.source else ""
        # A condition on values, so it is a broken guard and not a graph that cannot run.
        if step.target == CHECKING:
            raise GuardError(
                f"`{show_step(step)[:300]}`{where} passed at capture and fails on these inputs: {error}. Capture again "
                "on inputs like these"
            ) from error
        raise ReplayError(f"while running `{show_step(step)[:300]}`{where}: {type(error).__name__}: {error}") from error


def taken_dtype(step: Step, args: Sequence[Any], kwargs: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
    """Return a context with the default dtype that an operator took at capture, if that decides the result's dtype.

    It decides where an operator makes floats of no floats and names no dtype: `arange(0.5)`, integers times 0.1. The
    annotation of the step, the dtype that its result had, says which default dtype it was (TAKEN).
    """
    wanted = TAKEN.get(step.spec.dtype) if isinstance(step.spec, TensorSpec) else None
    if wanted is None or wanted is torch.get_default_dtype():
        return AS_IT_IS
    # `run_with_rng_state` calls an operator of aten, with a state of the generator.
    makes_floats = step.target.startswith(("aten.", "torch.ops.higher_order.run_with_rng_state"))
    decided = any(isinstance(leaf, torch.dtype) or is_inexact(leaf) for leaf in plain_leaves(*args, *kwargs.values()))
    return default_dtype(wanted) if makes_floats and not decided else AS_IT_IS


AS_IT_IS = contextlib.nullcontext()
"""A context in which the default dtype stays as it is."""


TAKEN: Mapping[str, torch.dtype] = {
    **{str(dtype)[6:]: dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)},
    "complex32": torch.float16,
    "complex64": torch.float32,
    "complex128": torch.float64,
}
"""The default dtype with which an operator makes results of each dtype."""


def feed(graph: Graph, inputs: Given, strict: bool, graded: bool = False) -> dict[str, Any]:
    """Return the initial environment of a graph: the value of each input by the name of its port in the graph. Raise
    ReplayError if one is missing.

    With `strict`, an input whose dtype or shape is not the port's is refused. With `graded`, inputs may require grad.
    """
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(graph.inputs):
            raise ReplayError(
                f"the graph takes {len(graph.inputs)} inputs, not {len(inputs)}: "
                f"{', '.join(port.name for port in graph.inputs)}"
            )
        inputs = {port.local: value for port, value in zip(graph.inputs, inputs, strict=True)}
    known: Mapping[Any, Any] = inputs
    env: dict[str, Any] = {}
    passed: list[tuple[Port, Any]] = []
    for port in graph.inputs:
        tensor = _value_for_port(port, known)
        if tensor is _MISSING:
            raise ReplayError(
                f"input {port.name!r} ({port.role}) is missing; given are {', '.join(map(str, inputs)) or 'none'}"
            )
        passed.append((port, tensor))
        # Detached, so that autograd records no step: grad mode is on in `run_graph`.
        env[port.local] = tensor.detach() if isinstance(tensor, Tensor) and not graded else tensor
    if strict:
        check(graph, passed)
    return env


# Not None, which may be the value of a port.
_MISSING = object()


def _value_for_port(port: Port, known: Mapping[Any, Any]) -> Any:
    """Return the value of a port among inputs that are known by the port's key, by its key as a text, by its name or by
    its name in the graph; _MISSING if there is none."""
    key = port.key
    if key in known:
        return known[key]
    return next((known[name] for name in (str(key), port.name, port.local) if name in known), _MISSING)


def check(graph: Graph, passed: Sequence[tuple[Port, Any]]) -> dict[str, int]:
    """Raise unless every value matches its port; return the symbolic sizes."""
    sizes = sizes_of(passed)
    for port, value in passed:
        spec = port.spec
        if not isinstance(spec, TensorSpec):
            continue
        if not isinstance(value, Tensor):
            raise ReplayError(
                f"input {port.name!r} was {show_spec(spec)} at capture and is a {type(value).__name__} now: pass a "
                "tensor"
            )
        if not has_memory(value):
            raise ReplayError(
                f"input {port.name!r} has a storage that was resized to less than its elements need, so it has no "
                "values: restore them first"
            )
        if not fits(spec, value, sizes):
            shape = ", ".join(map(str, value.shape))
            layout = "" if value.layout is torch.strided else f" {str(value.layout)[6:]}"
            where = f" (where {sizes_in_words(sizes)})" if sizes else ""
            now = f"{str(value.dtype)[6:]}[{shape}]{layout}"
            # With symbolic sizes it is a condition of the trace that does not hold, and a GuardError says so.
            raise (GuardError if sizes else ReplayError)(
                f"input {port.name!r} was {show_spec(spec)} at capture{where} and is {now} now: pass one like it, or "
                f"capture again{'' if sizes else '; dynamic=True keeps sizes open'}"
            )
    if (symbol := symbol_out_of_range(graph.symbols, sizes)) is not None:
        raise GuardError(
            f"the size {symbol.name} is {sizes[symbol.name]} here, and the graph was traced for sizes from "
            f"{symbol.low} to {symbol.high}: capture again on inputs like these"
        )
    return sizes


def check_saved(backward: Graph, passed: Mapping[PortKey, Any]) -> None:
    """Raise if a forward saved fewer elements than its backward was traced for, as kernels would read past the end.
    `passed` has the values for the backward's ports. With symbolic sizes, nothing is known of how many there must
    be."""
    for port in () if backward.symbols else backward.by_role("saved"):
        value, spec = passed.get(port.key), port.spec
        if isinstance(spec, TensorSpec) and isinstance(value, Tensor) and value.numel() < spec.numel:
            raise ReplayError(
                f"the forward saved {port.name!r} as {str(value.dtype)[6:]}{list(value.shape)}, and the backward takes "
                f"it as {show_spec(spec)}: the two do not belong together, so capture the program again"
            )


def fits(spec: TensorSpec, value: Tensor, sizes: Mapping[str, int]) -> bool:
    """Whether a tensor has the dtype, the layout and the sizes of a spec, where symbols have these `sizes`; a size
    whose symbols no input determines may be any."""
    if str(value.dtype)[6:] != spec.dtype or value.dim() != len(spec.shape) or str(value.layout)[6:] != spec.layout:
        return False
    pairs = zip(spec.shape, value.shape, strict=True)
    return all(may_equal(size, now, sizes) for size, now in pairs)


def sizes_of(passed: Sequence[tuple[Port, Any]]) -> dict[str, int]:
    """Return the sizes that symbols have, as these values of ports imply: by shapes, then by numbers, then by
    strides."""
    seen: list[tuple[Size, int]] = []  # what a spec has (a number, or an expression), and what a value has there
    tensors = [
        (port.spec, value) for port, value in passed if isinstance(value, Tensor) and isinstance(port.spec, TensorSpec)
    ]
    for spec, value in tensors:
        if any(type(size) is not int for size in spec.shape):
            # A value of another rank is not refused here but by `check`.
            seen += zip(spec.shape, value.shape, strict=False)
    # `implied_sizes` solves these for the symbols, and keeps the first number of a symbol. Strides come last, because
    # along a dimension of size 1 they may be any.
    seen += [(port.spec.expression, value) for port, value in passed if isinstance(port.spec, ScalarSpec)]
    for spec, value in tensors:
        if spec.stride and any(type(step) is not int for step in spec.stride) and value.layout is torch.strided:
            seen += zip(spec.stride, value.stride(), strict=False)
    return implied_sizes(seen)


# By identity: a hash of a graph takes as long as the walk that it would spare.
LAST_USES: MutableMapping[Graph, dict[int, list[str]]] = WeakIdKeyDictionary()
"""A cache of `last_uses`: a proof runs each graph several times."""


def last_uses(graph: Graph) -> dict[int, list[str]]:
    """Return, by the index of a step, the names of the values whose last use it is."""
    if graph not in LAST_USES:
        LAST_USES[graph] = _find_last_uses(graph)
    return LAST_USES[graph]


def _find_last_uses(graph: Graph) -> dict[int, list[str]]:
    """Return, by the index of a step, the names of the values whose last use it is. A result of the graph has no last
    use, as it is needed at the end."""
    kept = {name for result in graph.results for name in refs(result)}
    last: dict[str, int] = {}
    for index, step in enumerate(graph.steps):
        for value in (step.args, *(value for _, value in step.kwargs)):
            for name in refs(value):
                last[name] = index
        if not step.is_guard:
            # A value that nothing uses is dropped at once.
            last[step.name] = index
    freed_after: dict[int, list[str]] = {}
    for name, index in last.items():
        if name not in kept:
            freed_after.setdefault(index, []).append(name)
    return freed_after


def subgraphs(graph: Graph) -> dict[str, fx.GraphModule]:
    """Return the bodies of higher-order operators, as modules whose calls are checked."""
    if not graph.subgraphs:
        return {}
    from backprint.graph.fx.to_fx import to_fx  # loads torch.fx's tracer, which few graphs need

    return {name: _checked_body(to_fx(sub)) for name, sub in graph.subgraphs}


def _checked_body(module: fx.GraphModule) -> fx.GraphModule:
    """Return a body in which the arguments of each call are checked, as in a graph's own steps."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                if node.op == "call_function":
                    node.target = checked_function(node.target)
            part.recompile()
    return module
