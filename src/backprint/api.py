"""The functions that users call. Torch and the other modules are imported when they are first needed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from backprint.common.tried import warn_with_this_torch
from backprint.graph.nouns import Capture, Graph, Twin

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import Tensor, dtype, fx

    from backprint._torch.operators import OpOverload, OpOverloadPacket
    from backprint.derivatives.checked import CheckReport
    from backprint.graph.verdicts import Derivative, Power, Verdict
    from backprint.parts.cuts import Split
    from backprint.ranks.world import World
    from backprint.replaying.observed import ValueStats
    from backprint.replaying.whole import Replayed
    from backprint.tracing.kernel_graphs import KernelGraph, KernelPair

    Operator: TypeAlias = "OpOverload | OpOverloadPacket"
    RequiresGrad: TypeAlias = bool | Iterable[str] | Sequence[bool] | Mapping[str, bool] | None
    Dimensions: TypeAlias = int | Iterable[int] | Mapping[int, str | None]


@overload
def capture(
    target: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    world: int,
    shard: Callable[..., Any] | None = None,
    ranks: Sequence[int] | None = None,
    **options: Any,
) -> World: ...


@overload
def capture(
    target: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    engine: str = "auto",
    partition: str | Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None,
    decompose: Mapping[Operator, Callable[..., Any]] | Sequence[str] | None = None,
    mode: str | None = None,
    loss: Callable[[Any], Tensor] | str | None = None,
    requires_grad: RequiresGrad = None,
    specialize: bool | None = None,
    functional: bool = True,
    dynamic: bool | Mapping[str, Dimensions] = False,
    fake: bool = False,
    stamp: bool = True,
    order: int = 1,
    allow: Sequence[str] = (),
    meant: Sequence[str] = (),
    world: None = None,
    shard: None = None,
    ranks: None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Capture: ...


def capture(
    target: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    engine: str = "auto",
    partition: str | Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None,
    decompose: Mapping[Operator, Callable[..., Any]] | Sequence[str] | None = None,
    mode: str | None = None,
    loss: Callable[[Any], Tensor] | str | None = None,
    requires_grad: RequiresGrad = None,
    specialize: bool | None = None,
    functional: bool = True,
    dynamic: bool | Mapping[str, Dimensions] = False,
    fake: bool = False,
    stamp: bool = True,
    order: int = 1,
    allow: Sequence[str] = (),
    meant: Sequence[str] = (),
    world: int | None = None,
    shard: Callable[..., Any] | None = None,
    ranks: Sequence[int] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Capture | World:
    """Capture the forward and backward graphs of `target(*args, **kwargs)`.

    `dynamic=True` keeps the sizes of the inputs symbolic, `dynamic={"x": {0: "batch"}}` those of chosen dimensions.
    `bp.capture(model, args=(x,), kwargs={"name": n})` is always unambiguous. Everything of the caller's (tensors,
    gradients, buffers, random states, modes) is restored afterwards. With `fake=True` nothing is computed and nothing
    of the model is allocated: it may be built under `bp.fake()`, be on the meta device, or be real. A custom operator
    with a body in Python is captured as its body, unless `allow` names it (`"ns::op"`): then it stays, a requirement.
    A fake capture of many equal layers is stamped: traces with a few are continued, if that is sound and `stamp=True`.

    `meant` names custom autograd.Functions, `"detach"`, `"no_grad"`, `"hook"` or `"item"`, where the gradient is meant
    not to be the derivative (`bp.derivative`). `loss` may be `"sum"` or `"mean"` of the first output, and `decompose`
    names of operators, which PyTorch's own table then decomposes: `decompose=("aten::gelu",)`.

    `world=8` captures the step of 8 ranks, in this process and without a process group, and returns a World. `shard` is
    called in each rank with a copy of the model and the arguments, and shards them as a training script does: it
    returns the model, (model, args) or (model, args, kwargs), or None if it changes the model in place. With
    `fake=True` it is called under `bp.fake()`, and `ranks=(0, 5)` are captured, by default rank 0 alone.

    `target` may be the folder of a GraphNet sample or of one of ours, or any other TARGET of the command line: then it
    brings its own inputs, and `mode` rewrites calls that a GraphNet sample traced in inference. For a TARGET only,
    `device="cuda"` moves the program and its inputs first, and `trust=True` executes code that the parser refuses.
    """
    arguments = dict(locals())
    from backprint import calls
    from backprint.errors import UsageError
    from backprint.graph.capture_options import DEFAULTS
    from backprint.target import capture_named_target, capture_with_recipes, resolve_options

    options = {option: arguments[option] for option in DEFAULTS}
    calls.check_name(name)
    calls.check_world(world, shard, ranks, fake)
    if isinstance(target, (str, os.PathLike)):
        calls.check_requires_grad(requires_grad)
        if world is not None:
            from backprint.ranks.world import capture_world_of_factory

            calls.check_options_of_ranks(resolve_options(options))
            return capture_world_of_factory(os.fspath(target), resolve_options(options))
        return capture_named_target(target, args, kwargs, options)
    resolved = resolve_options(options)
    warn_with_this_torch()
    calls.check_target_options(target, kwargs)
    calls.check_capture_call(target, args, kwargs, options)
    calls.check_requires_grad(requires_grad)
    args, kwargs = calls.arguments_of(target, args, kwargs, options, DEFAULTS)
    if world is not None:
        from backprint.ranks.world import capture_world

        calls.check_options_of_ranks(resolved)
        return capture_world(target, args, kwargs, resolved)
    try:
        if resolved.fake or not is_among_processes():
            return capture_with_recipes(target, args, kwargs, resolved)
        from backprint.ranks.processes import capture_in_processes

        return capture_in_processes(target, args, kwargs, resolved)
    except Exception as error:
        if advice := calls.advice_for_error(error, target, args, kwargs):
            raise UsageError(f"{calls.name_of(target)} raised {type(error).__name__}: {error}; {advice}") from error
        raise


def is_among_processes() -> bool:
    """Whether this process has a process group; without one, nothing of `torch.distributed` is loaded."""
    if "torch.distributed" not in sys.modules:
        return False
    from backprint._torch.distributed import is_initialized

    return is_initialized()


def release(capture: Capture) -> None:
    """Drop the captured program, its module and its arguments; the graphs and the recipes stay."""
    capture.origin.release()


def record(
    script: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    steps: tuple[int, int] = (1, 2),
    done: Callable[[int, Capture], None] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
    stay: bool = False,
) -> list[Capture]:
    """Run an unmodified training script, and capture its steps from `steps[0]` to before `steps[1]`, counted from 0.

    A step ends with an optimizer's step: forward, backward and update are linked Pairs. `done` is called with each
    step's number and Capture while the script still runs. The script prints, raises and computes as without Backprint:
    if a step cannot be captured, a warning names the cause, or `tell` is called with it. With `stay` the script's
    `__main__`, `sys.argv` and `sys.path` stay in place, for a process that ends with it.
    """
    from backprint.common.text import check_sequence
    from backprint.tracing.record import script as script_runner

    check_sequence("arguments", arguments)
    script_runner.check_script(script)
    script_runner.check_steps(steps)
    captures: list[Capture] = []
    messages: list[str] = []
    recordings: list[Any] = []
    report = tell or messages.append

    def prove_and_keep(number: int, capture: Capture) -> None:
        from backprint.saving import proven_step

        whole = proven_step(capture)
        if done is None:
            captures.append(whole)
        else:
            done(number, whole)

    def begin() -> None:
        from backprint.tracing.record.recording import Recording

        recordings.append(Recording(steps, prove_and_keep, report))
        recordings[0].open()

    name = os.path.basename(script)
    process = os.getpid()
    try:
        with script_runner.on_import("torch", script_runner.reporting_errors(begin, report)):
            script_runner.run_as_main(script, arguments, stay)
    finally:
        if os.getpid() == process:  # a child that the script forked ends here too
            for recording in recordings:
                recording.close()
            for text in (
                recordings[0].missing(name) if recordings else [f"{name} made no step: it did not import torch"]
            ):
                report(text)
        for text in messages:
            warnings.warn(text, stacklevel=2)
    return captures


def inference_graph(fn: Callable[..., Any], inputs: Sequence[Any]) -> KernelGraph:
    """Return the forward of `fn(*inputs)` as a torch.fx.Graph that runs and prints as code, for kernel writers."""
    from backprint.tracing.kernel_graphs import inference_graph as make

    return make(fn, inputs)


def forward_backward_graphs(
    fn: Callable[..., Any], inputs: Sequence[Any], requires_grad: Sequence[bool] | None = None, *, partition: Any = None
) -> KernelPair:
    """Return the forward and the backward of `fn(*inputs)`, each a torch.fx.Graph, as a tuple.

    A saved value has one name in both graphs. `partition` is the option of `bp.capture`.
    """
    from backprint.tracing.kernel_graphs import forward_backward_graphs as make

    return make(fn, inputs, requires_grad, partition)


def replay(
    capture: Capture,
    *args: Any,
    state: Mapping[str, Tensor] | str | None = None,
    tangents: Sequence[Tensor | None] | None = None,
    **kwargs: Any,
) -> Replayed:
    """Run a Capture on new arguments: `.outputs` in the model's containers, `.gradients`, `.mutations` by name.

    Parameters, buffers and constants are the captured module's as they are now, or `state`: a mapping from names to
    tensors, or `"recipe"` for those that the recipes make. A loaded sample needs `state`, unless it keeps their exact
    values. Without arguments a Capture runs on its own inputs: those it was captured on, from disk those of its
    recipes. `bp.replay(capture, args=(x,), kwargs={"state": s})` is always unambiguous.
    """
    from backprint import calls
    from backprint.replaying.whole import replay as replay_call

    calls.check_capture(capture, "replay")
    calls.check_spelled(args, kwargs)
    spelled = calls.spelled_call(args, kwargs)
    if spelled is None:
        options_passed = {"state": state is not None, "tangents": tangents is not None}
        calls.check_collision("replay(capture", capture.signature.arguments, options_passed)
    return replay_call(capture, *(spelled or (args, kwargs)), state, tangents)


def run(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Any, ...]:
    """Run one direction alone, on inputs by port name or in port order."""
    from backprint.replaying.run import run_graph

    return run_graph(graph, inputs)


def verify(
    capture: Capture,
    draws: Sequence[str] | None = None,
    *,
    twin: Twin | None = None,
    trace: Capture | bool = False,
    derivative: bool | None = None,
) -> list[Verdict]:
    """Prove a Capture against the original program: return a Verdict for each Pair, and for several linked Pairs the
    whole's last.

    A fake Capture is `unproven`. With a `twin` (a small version of the same program: `(model, args)`, `(model, args,
    kwargs)` or a Capture) the twin is proven and compared with it step by step, and its Verdicts follow. `trace=True`
    traces a stamped Capture's program in full, or `trace` is such a Capture: it is `wrong` if the graphs differ. With
    `derivative`, the Verdict of each Pair with a backward says too whether that is the derivative of the forward
    (`bp.derivative`); None says so if that costs less than the proof: if all values of the forward together have fewer
    than 4 million elements.
    """
    from backprint.calls import check_capture
    from backprint.common.text import check_sequence
    from backprint.derivatives.beside import with_derivatives
    from backprint.replaying.draws import DRAWS
    from backprint.replaying.verify import verify_capture as prove

    warn_with_this_torch()
    check_capture(capture, "verify")
    check_sequence("draws", draws)
    if trace is not False:
        from backprint.saving import verify_stamped

        return [verify_stamped(capture, trace)]
    if twin is None:
        return with_derivatives(capture, prove(capture, tuple(draws or DRAWS)), derivative)
    from backprint.replaying.verify import beside

    small = _twin(capture, twin)
    return beside(capture, small, prove(small, tuple(draws or DRAWS)))


def _capture_of_one(target: Any, *args: Any, **kwargs: Any) -> Capture:
    """Capture a call whose keywords may be any; the ranks of several are refused."""
    captured: Any = capture(target, *args, **kwargs)
    if not isinstance(captured, Capture):
        from backprint.errors import UsageError

        raise UsageError("world= captures several ranks: take one of them, world.ranks[0]")
    return captured


def derivative(
    target: Capture | Callable[..., Any],
    *args: Any,
    meant: Sequence[str] = (),
    hostile: bool | None = None,
    **kwargs: Any,
) -> list[Derivative]:
    """Say whether each backward of a Capture is the derivative of its forward: return a Derivative for each Pair.

    A `bitwise` verdict says that the graphs compute what the program computes; this says whether the program's
    gradient is right. `target` may be a Capture, or a model or function, which is captured with these arguments. Both
    graphs run in float64: for random tangents g and a random direction v, ⟨g, J·v⟩ by forward-mode AD of the forward
    must be ⟨Jᵀ·g, v⟩ by the backward. A wrong backward is `not the derivative`, with the operators or the custom
    autograd.Function at fault, its line, and the gradients that are wrong.

    `meant` names Functions, `"detach"`, `"no_grad"`, `"hook"` or `"item"`, where the gradient is meant to differ, as a
    surrogate does: what is around them is checked, and the word is `derivative but for` them. With `hostile`, tangents
    that are expanded, transposed, one-hot or 0 in a row, and inputs with zeros, equal values, masked rows and repeated
    indices are tried too. None tries them if the program has a custom autograd.Function, a hook or a custom operator.
    """
    from backprint.common.text import check_sequence
    from backprint.derivatives.check import derivatives_of
    from backprint.errors import UsageError

    check_sequence("meant", meant)
    if not isinstance(target, Capture):
        target = _capture_of_one(target, *args, **kwargs)
    elif args or kwargs:
        raise UsageError("bp.derivative takes a Capture alone: its inputs are those that it was captured on")
    return derivatives_of(target, meant, hostile)


def check(
    fn: Callable[..., Any],
    *args: Any,
    like: Callable[..., Any] | None = None,
    dtypes: Sequence[dtype] = (),
    requires_grad: RequiresGrad = None,
    order: int = 1,
    meant: Sequence[str] = (),
    times: float = 2.0,
    seed: int = 0,
    raises: bool = True,
    **kwargs: Any,
) -> CheckReport:
    """Check a function with its backward: a kernel, a custom autograd.Function, a module. A test needs one line.

    `like` is a reference in plain PyTorch, which runs in float64 and in the function's own dtype: outputs and gradients
    of `fn` may be off by `times` as much as the reference itself is off by in that dtype. Gradients are compared for
    tangents that are random, ones, one-hot, partly 0, expanded, transposed and sliced, for inputs in other memory, for
    inputs with zeros and equal values, and with NaN where a bool mask hides it. Whether the backward is the derivative
    of the function's own forward is checked as by `bp.derivative`, also without a reference; where the function cannot
    be captured, by central differences.

    `dtypes` are those to check in; without them, that of the inputs. `order=2` checks gradients of gradients.
    `requires_grad` is that of `bp.capture`; without it, inputs that require grad, and if none does, all floating-point
    ones, and the parameters of a module. `meant` names Functions whose gradient is meant to differ. If something is
    wrong, or no gradient could be compared, CheckError is raised, an AssertionError with the table; `raises=False`
    returns the report all the same. Inputs, gradients and random states stay as they are. `bp.check(fn, args=(x,),
    kwargs={"order": 3}, like=reference)` is always unambiguous.
    """
    from backprint import calls
    from backprint.derivatives.function import check_function

    calls.check_function_call(fn, like, dtypes, order, times)
    calls.check_requires_grad(requires_grad)
    calls.check_spelled(args, kwargs)
    spelled = calls.spelled_call(args, kwargs)
    if spelled is None:
        passed = {"like": like is not None, "dtypes": bool(dtypes), "order": order != 1, "times": times != 2.0}
        passed |= {"requires_grad": requires_grad is not None, "meant": bool(meant), "seed": seed != 0}
        calls.check_collision("check(fn", calls.parameters_of(fn) or (), {**passed, "raises": not raises})
    args, kwargs = spelled or (args, kwargs)
    options: dict[str, Any] = dict(dtypes=dtypes, requires_grad=requires_grad, order=order, meant=meant)
    report = check_function(fn, like, args, kwargs, **options, times=times, seed=seed, capture=capture)
    if raises:
        report.raise_if_wrong()
    return report


def power(capture: Capture, power: str = "own", *, seconds: float | None = None, count: int | None = None) -> Power:
    """Measure how far outputs, gradients and mutations move, in tolerances, when inputs are redrawn: return a Power.

    `power="own"` redraws each of the program's inputs alone, all parameters, all buffers, and everything together;
    `"all"` each parameter and buffer alone too. `seconds` and `count` (of redraws) end it early.
    """
    from backprint.calls import check_capture
    from backprint.replaying.power import power_of

    check_capture(capture, "power")
    return power_of(capture, power, seconds=seconds, count=count)


def split(capture: Capture, by: str, *, data: str = "seed") -> Split:
    """Cut a Capture into parts, each a Capture of its own that is proven: `.parts`, and `.joined`, linked again.

    `by` is `"range:N"`, `"ranges:0-10,10-25"`, `"operators[:A,B,C]"`, `"module[:DEPTH]"`, `"fold"` or `"saved[:N]"`,
    as for `backprint corpus split`. `data` says how a part keeps its inputs: recipes fitted to the values that the
    whole had at its borders (`"seed"`), those values (`"exact"`), or neither (`"none"`).
    """
    from backprint.calls import check_capture
    from backprint.parts.split import split_capture as into_parts

    check_capture(capture, "split")
    return into_parts(capture, by, data)


def _twin(large: Capture, twin: Twin) -> Capture:
    """Return the Capture of a twin, captured with the options of the fake one."""
    from backprint.calls import check_twin

    check_twin(large, twin)
    if isinstance(twin, Capture):
        return twin
    model, args, kwargs = (*twin, {})[:3]
    options = {**large.origin.options.as_keywords(), "fake": False, "engine": large.engine, "name": None}
    return capture(model, args=args, kwargs=kwargs, **options)


def fake() -> AbstractContextManager[None]:
    """Build models and inputs of any size without allocating them: `with bp.fake(): model = Big(config)`.

    Tensors made inside have a shape, a dtype and a device, but no values; small ones that are made from constants alone
    (`torch.linspace`, `torch.arange`, `torch.tensor`) keep theirs, so code may read them. A device that this machine
    does not have is replaced by the CPU. Capture the model with `bp.capture(model, ..., fake=True)`.
    """
    from backprint.tracing.fake import fake as build

    return build()


def save(
    capture: Capture,
    path: str | os.PathLike[str],
    data: str = "seed",
    *,
    allow: Sequence[str] = (),
    overwrite: bool = False,
    layout: str = "backprint",
    evaluation: Capture | None = None,
    power: str = "quick",
) -> Path:
    """Write a Capture as a sample: readable, self-contained, with its verdict. Returns the path.

    `data`: `"seed"` keeps recipes, `"exact"` the bytes of every input and parameter, `"none"` neither. `power` is how
    much of it is measured: `"quick"` draws all inputs again once, `"own"` and `"all"` do what `bp.power` does, `"none"`
    leaves it for later.
    `layout="graphnet"` writes GraphNet's trees instead, `path/train_forward/NAME`, `path/train_backward/NAME` and, from
    the Capture `evaluation` of the program in eval mode, `path/eval_forward/NAME`; returns `path`.
    """
    from pathlib import Path

    from backprint import saving
    from backprint.calls import check_save
    from backprint.common.text import check_choice, check_sequence
    from backprint.errors import UsageError

    check_save(capture, path)
    check_choice("layout", layout)
    check_sequence("allow", allow)
    if layout == "backprint" and evaluation is not None:
        raise UsageError("evaluation= is a tree of layout='graphnet': pass that too")
    if layout == "backprint":
        return saving.write_sample(capture, path, data, allow, overwrite, power)
    saving.check_custom(capture, allow)
    saving.write_layout(capture, path, capture.name, evaluation=evaluation, overwrite=overwrite)
    return Path(path)


def export(
    capture: Capture | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    direction: str = "both",
    data: str | None = None,
    allow: Sequence[str] = (),
    overwrite: bool = False,
    full: bool = False,
) -> Path:
    """Write a Capture, or the sample in a folder, as one Python file that runs with PyTorch alone. Returns its path.

    `python repro.py` runs the graphs and prints a digest of each output; `--backend NAME` (or `backend`, its default)
    compares each with what `torch.compile` gives, and exits with 1 where one is wrong. `direction` says which graphs:
    `"both"`, `"forward"` or `"backward"`. `data="seed"` draws inputs that the sample keeps exact. More than 64 KiB of
    exact data go into a `.safetensors` file beside it.

    The file is as short as it can be: it has only the draws and the rules of comparison that this program needs. It is
    run in a process of its own, and kept if it prints what the full file prints; else the full file is written, and its
    docstring says why. `full=True` writes the full file at once, and runs nothing of a sample.
    """
    from backprint import saving
    from backprint.calls import check_export_call

    check_export_call(capture, path, backend, direction, data, allow)
    capture_ = capture if isinstance(capture, Capture) else load(capture, allow)
    return saving.write_file(capture_, path, backend, direction, data, allow, overwrite, full)


def load_world(path: str | os.PathLike[str], allow: Sequence[str] = (), *, trust: bool = False) -> World:
    """Read the samples of all ranks of a step, as `World.save` has written them. Runs none of their code."""
    from backprint.ranks.world import load_world as read

    return read(path, allow, trust)


def load(path: str | os.PathLike[str], allow: Sequence[str] = (), *, trust: bool = False) -> Capture:
    """Read a sample. Runs none of its code; a graph is parsed and checked when it is first used.

    A sample with a call that no check of arguments makes safe can be read and shown, and is refused by name where it is
    run: `backprint verify` runs it in a process of its own, `trust=True` in this one.
    """
    from backprint.calls import check_load
    from backprint.common.text import check_sequence
    from backprint.sample.load import load as read

    check_load(path)
    check_sequence("allow", allow)
    return read(path, allow, trust)


def parse(text: str, allow: Sequence[str] = ()) -> Graph:
    """Return the Graph of a text, such as `graph.code` or a row of `backprint corpus export`. Runs none of it.

    Anything that is not a graph of known tensor operators is refused with its line. `allow` names the custom operators
    that the text may call. A graph with a call that no check of arguments makes safe can be read and shown, and is
    refused where it is run.
    """
    from backprint.common.text import check_sequence
    from backprint.errors import UsageError
    from backprint.sample.load import parse_graph

    if not isinstance(text, str):
        raise UsageError(f"text is a {type(text).__name__}, not the text of a graph")
    check_sequence("allow", allow)
    return parse_graph(text, allow)


def inputs(capture: Capture) -> dict[str, Tensor]:
    """Return the tensors that a Capture's recipes make, by the program's own names: parameters, buffers, inputs,
    constants."""
    from backprint.replaying.arguments import recipe_inputs

    return recipe_inputs(capture)


def observed(capture: Capture) -> ValueStats:
    """Run a Capture once on its own inputs, and return statistics of each floating-point value that its graphs compute.

    The keys are (number of the Pair, 0 for its forward or 1 for its backward, name of the value).
    """
    from backprint.replaying.observed import observed_values

    return observed_values(capture)


def _to_fx(graph: Graph) -> fx.GraphModule:
    """Return a torch.fx.GraphModule that computes the same."""
    from backprint.fx.to_fx import to_fx

    return to_fx(graph)


Graph.to_fx = _to_fx  # type: ignore[assignment,method-assign]  # the face binds verbs of higher floors to the nouns
Capture.save = save  # type: ignore[assignment,method-assign]  # as above
Capture.release = release  # type: ignore[assignment,method-assign]  # as above
Capture.inputs = inputs  # type: ignore[assignment,method-assign]  # as above
Capture.observed = observed  # type: ignore[assignment,method-assign]  # as above
Capture.verify = verify  # type: ignore[assignment,method-assign]  # as above
