"""The functions that users call. Torch and the other modules are imported when they are first needed.

`calls.check_…` (`graph/calls`) raises a UsageError for a call that cannot be right. Arguments that a function passes on
may be written as in `f(target, x)`, or *spelled* as in `f(target, args=(x,), kwargs={...})`, where no keyword can be
taken for an option of ours. `with_frames_of_program` shows an error of the user's program without our frames.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from backprint.common.tried import warn_with_this_torch
from backprint.errors import with_frames_of_program
from backprint.graph.nouns import Capture, Graph

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import Tensor, dtype, fx

    from backprint._torch.operators import OpOverload, OpOverloadPacket
    from backprint.common.words import (
        DataWord,
        DirectionWord,
        DrawWord,
        EngineWord,
        GradWord,
        LayoutWord,
        LossWord,
        MeasuredPowerWord,
        ModeWord,
        PartitionWord,
        PowerWord,
    )
    from backprint.derive.checked import CheckReport
    from backprint.graph.verdicts import Derivative, Power, Verdict
    from backprint.prove.observed import ValueStats
    from backprint.prove.whole import Replayed
    from backprint.tools.ranks.world import World

    Operator: TypeAlias = "OpOverload | OpOverloadPacket"
    RequiresGrad: TypeAlias = bool | GradWord | Iterable[str] | Sequence[bool] | Mapping[str, bool] | None
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
    engine: EngineWord = "auto",
    partition: PartitionWord | Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None,
    decompose: Mapping[Operator, Callable[..., Any]] | Sequence[str] | None = None,
    mode: ModeWord | None = None,
    loss: Callable[[Any], Tensor] | LossWord | str | None = None,
    requires_grad: RequiresGrad = None,
    specialize: bool | None = None,
    functional: bool = True,
    dynamic: bool | Mapping[str, Dimensions] = False,
    fake: bool = False,
    stamp: bool = True,
    order: Literal[1, 2] = 1,
    allow: Sequence[str] = (),
    meant: Sequence[str] = (),
    world: None = None,
    shard: None = None,
    ranks: None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Capture: ...


@with_frames_of_program
def capture(
    target: Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    engine: EngineWord = "auto",
    partition: PartitionWord | Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None,
    decompose: Mapping[Operator, Callable[..., Any]] | Sequence[str] | None = None,
    mode: ModeWord | None = None,
    loss: Callable[[Any], Tensor] | LossWord | str | None = None,
    requires_grad: RequiresGrad = None,
    specialize: bool | None = None,
    functional: bool = True,
    dynamic: bool | Mapping[str, Dimensions] = False,
    fake: bool = False,
    stamp: bool = True,
    order: Literal[1, 2] = 1,
    allow: Sequence[str] = (),
    meant: Sequence[str] = (),
    world: int | None = None,
    shard: Callable[..., Any] | None = None,
    ranks: Sequence[int] | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Capture | World:
    """Capture the forward and backward graphs of `target(*args, **kwargs)`.

    `bp.capture(model, args=(x,), kwargs={"name": n})` is always unambiguous. Everything of the caller's (tensors,
    gradients, buffers, random states, modes) is restored afterwards.

    Options:

    - `engine`: how to trace: `"eager"`, `"aot"`, `"dynamo"`, or `"auto"`: `"eager"`, unless the call needs another.
    - `partition`: what is saved for the backward: `"min-cut"`, `"default"`, or a partition function of PyTorch's form.
    - `decompose`: functions by operator, or names whose decompositions PyTorch has: `decompose=("aten::gelu",)`.
    - `mode`: captures the module in `"train"` or `"eval"` mode; by default, as it is.
    - `loss`: a function of the output, or `"sum"` or `"mean"` of the first; the backward begins at its result.
    - `requires_grad`: what requires grad: True, False, `"inputs"`, `"parameters"`, `"all"`, names, a flag for each
      tensor, or flags by name.
    - `specialize`: False refuses a program that reads values, instead of keeping them as guards; True lets engine
      `aot` and fake captures keep them too.
    - `functional`: False keeps updates in place and views as they ran (engine `eager`).
    - `dynamic`: True keeps the sizes of the inputs symbolic, `{"x": {0: "batch"}}` those of chosen dimensions.
    - `fake`: computes and allocates nothing: the model may be built under `bp.fake()`, be on meta, or be real.
    - `stamp`: False traces a fake capture of many equal layers in full, instead of continuing traces with a few.
    - `order`: 2 captures the backward of the backward.
    - `allow`: custom operators, `"ns::op"`, that stay as calls; the others are captured as their bodies in Python.
    - `meant`: autograd.Functions, `"detach"`, `"no_grad"`, `"hook"` or `"item"` whose gradient is meant to differ.
    - `world`: captures the step of so many ranks, in this process and without a process group: returns a World.
    - `shard`: with `world`, called in each rank with a copy of the model and the arguments, which it shards as a
      training script does: it returns the model, (model, args) or (model, args, kwargs), or None if it changes
      the model in place. With `fake=True` it is called under `bp.fake()`.
    - `ranks`: with `world` and `fake=True`, the ranks to capture; by default rank 0 alone.
    - `name`: the name of the capture; by default the module's or function's.

    `target` may be the folder of a GraphNet sample or of one of ours, a model's name such as `"hf:gpt2"` or
    `"timm:resnet18"`, or any other TARGET of the command line: then it
    brings its own inputs, and `mode` rewrites calls that a GraphNet sample traced in inference. For a TARGET only,
    `device="cuda"` moves the program and its inputs first, and `trust=True` executes code that the parser refuses.
    """
    # Before any other local is made: these are the parameters, by name.
    arguments = dict(locals())
    from backprint.errors import UsageError
    from backprint.graph import calls
    from backprint.graph.capture_options import DEFAULTS
    from backprint.prove.capturing import capture_with_recipes
    from backprint.trace.entry import resolve_options

    options = {option: arguments[option] for option in DEFAULTS}  # DEFAULTS has all options of this function
    calls.check_name(name)
    calls.check_world(world, shard, ranks, fake)
    if isinstance(target, (str, os.PathLike)):  # a TARGET, which brings its own inputs
        calls.check_requires_grad(requires_grad)
        if world is not None:
            from backprint.tools.ranks.world import capture_world_of_factory

            calls.check_options_of_ranks(resolve_options(options))
            return capture_world_of_factory(os.fspath(target), resolve_options(options))
        from backprint.tools.target import capture_named_target

        return capture_named_target(target, args, kwargs, options)
    resolved = resolve_options(options)
    warn_with_this_torch()  # if Backprint was not tried with it
    calls.check_target_options(target, kwargs)
    calls.check_capture_call(target, args, kwargs, options)
    calls.check_requires_grad(requires_grad)
    args, kwargs = calls.arguments_of(target, args, kwargs, options, DEFAULTS)  # of a spelled call, those that it has
    if world is not None:
        from backprint.tools.ranks.world import capture_world

        calls.check_options_of_ranks(resolved)
        return capture_world(target, args, kwargs, resolved)
    try:
        if resolved.fake or not is_among_processes():
            return capture_with_recipes(target, args, kwargs, resolved)
        from backprint.tools.ranks.processes import capture_in_processes

        return capture_in_processes(target, args, kwargs, resolved)
    except Exception as error:
        # Only if the call explains the error. Otherwise the program's own error is raised as it is.
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


@with_frames_of_program
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
    from backprint.graph import calls
    from backprint.prove.whole import replay as replay_call

    calls.check_capture(capture, "replay")
    calls.check_spelled(args, kwargs)
    spelled = calls.spelled_call(args, kwargs)  # the arguments of a spelled call, None for any other
    if spelled is None:
        # An option that was passed may be meant for a parameter of the program with that name.
        options_passed = {"state": state is not None, "tangents": tangents is not None}
        calls.check_collision("replay(capture", capture.signature.arguments, options_passed)
    args, kwargs = spelled or (args, kwargs)
    return replay_call(capture, args, kwargs, state, tangents)


def run(graph: Graph, inputs: Mapping[str, Any] | Sequence[Any]) -> tuple[Any, ...]:
    """Run one direction alone, on inputs by port name or in port order."""
    from backprint.prove.run import run_graph

    return run_graph(graph, inputs)


@with_frames_of_program
def verify(
    capture: Capture,
    draws: Sequence[DrawWord] | None = None,
    *,
    trace: Capture | bool = False,
    derivative: bool | None = None,
) -> list[Verdict]:
    """Prove a Capture in this process; `bp.verify`, which also takes a path, says what the arguments mean."""
    from backprint.common.text import check_sequence
    from backprint.derive.beside import with_derivatives
    from backprint.graph.calls import check_capture
    from backprint.graph.nouns import keep_verdict
    from backprint.graph.verdicts import Verdicts
    from backprint.prove.attest import verdict_json
    from backprint.prove.draws import DRAWS
    from backprint.prove.verify import verify_capture as prove

    warn_with_this_torch()
    check_capture(capture, "verify")
    check_sequence("draws", draws)
    if trace is not False:  # a fake Capture whose equal layers were continued is compared with a whole trace
        from backprint.prove.stamped import verify_stamped

        verdicts = Verdicts([verify_stamped(capture, trace)])
    else:
        verdicts = Verdicts(with_derivatives(capture, prove(capture, tuple(draws or DRAWS)), derivative))
    keep_verdict(capture, verdict_json(verdicts[-1]))  # the last is of the whole Capture
    return verdicts


def _capture_of_one(target: Any, *args: Any, **kwargs: Any) -> Capture:
    """Capture a call whose keywords may be any; the ranks of several are refused."""
    captured: Any = capture(target, *args, **kwargs)
    if not isinstance(captured, Capture):
        from backprint.errors import UsageError

        raise UsageError("world= captures several ranks: take one of them, world.ranks[0]")
    return captured


@with_frames_of_program
def derivative(
    target: Capture | Callable[..., Any] | str | os.PathLike[str],
    *args: Any,
    meant: Sequence[str] = (),
    hostile: bool | None = None,
    **kwargs: Any,
) -> list[Derivative]:
    """Say in this process whether each backward is the derivative of its forward: see `bp.derivative`."""
    from backprint.common.text import check_sequence
    from backprint.derive.check import derivatives_of
    from backprint.errors import UsageError
    from backprint.graph.verdicts import Derivatives

    check_sequence("meant", meant)
    if not isinstance(target, Capture):
        target = _capture_of_one(target, *args, **kwargs)
    elif args or kwargs:
        raise UsageError("bp.derivative takes a Capture alone: its inputs are those that it was captured on")
    return Derivatives(derivatives_of(target, meant, hostile))


@with_frames_of_program
def check(
    fn: Callable[..., Any],
    *args: Any,
    like: Callable[..., Any] | None = None,
    dtypes: Sequence[dtype] = (),
    requires_grad: RequiresGrad = None,
    order: Literal[1, 2] = 1,
    meant: Sequence[str] = (),
    times: float = 2.0,
    seed: int = 0,
    raises: bool = True,
    **kwargs: Any,
) -> CheckReport:
    """Check a function with its backward: a kernel, a custom autograd.Function, a module. A test needs one line.

    `like` is a reference in plain PyTorch, which runs in float64 and in the function's own dtype: outputs and gradients
    of `fn` may be off by `times` as much as the reference itself is off by in that dtype. Gradients are compared for
    tangents that are random, ones, one-hot, partly 0, 2^16, 2^-20 and 2^-24 times as large, expanded, transposed and
    sliced, for inputs in other memory, for inputs with zeros, equal values and a large mean, and with NaN where a bool
    mask hides it. The function is called as training calls it: with some inputs frozen, without gradients, twice before
    a backward, differentiated twice, and on other values. A write into an input, or into what autograd saved, that does
    not count its version is wrong. Whether the backward is the derivative of the function's own forward is checked as
    by `bp.derivative`, also without a reference; where the function cannot be captured, by central differences.

    `dtypes` are those to check in; without them, that of the inputs. `order=2` checks gradients of gradients.
    `requires_grad` is that of `bp.capture`; without it, inputs that require grad, and if none does, all floating-point
    ones, and the parameters of a module. `meant` names Functions whose gradient is meant to differ. If something is
    wrong, or no gradient could be compared, CheckError is raised, an AssertionError with the table; `raises=False`
    returns the report all the same. Inputs, gradients and random states stay as they are. `bp.check(fn, args=(x,),
    kwargs={"order": 3}, like=reference)` is always unambiguous.
    """
    from backprint.derive.function import check_function
    from backprint.graph import calls

    calls.check_function_call(fn, like, dtypes, order, times)
    calls.check_requires_grad(requires_grad)
    calls.check_spelled(args, kwargs)
    spelled = calls.spelled_call(args, kwargs)
    if spelled is None:
        # A function cannot see which keywords a call has passed: an option counts as passed if it is not its default.
        passed = {"like": like is not None, "dtypes": bool(dtypes), "order": order != 1, "times": times != 2.0}
        passed |= {"requires_grad": requires_grad is not None, "meant": bool(meant), "seed": seed != 0}
        calls.check_collision("check(fn", calls.parameters_of(fn) or (), {**passed, "raises": not raises})
    args, kwargs = spelled or (args, kwargs)
    options: dict[str, Any] = dict(dtypes=dtypes, requires_grad=requires_grad, order=order, meant=meant)
    report = check_function(fn, like, args, kwargs, **options, times=times, seed=seed, capture=capture)
    if raises:
        report.raise_if_wrong()
    return report


@with_frames_of_program
def power(
    capture: Capture, power: MeasuredPowerWord = "own", *, seconds: float | None = None, count: int | None = None
) -> Power:
    """Measure in this process how far results move when inputs are redrawn: see `bp.power`."""
    from backprint.graph.calls import check_capture
    from backprint.prove.power import power_of

    check_capture(capture, "power")
    return power_of(capture, power, seconds=seconds, count=count)


def fake() -> AbstractContextManager[None]:
    """Build models and inputs of any size without allocating them: `with bp.fake(): model = Big(config)`.

    Tensors made inside have a shape, a dtype and a device, but no values; small ones that are made from constants alone
    (`torch.linspace`, `torch.arange`, `torch.tensor`) keep theirs, so code may read them. A device that this machine
    does not have is replaced by the CPU. Capture the model with `bp.capture(model, ..., fake=True)`.
    """
    from backprint.trace.fake import fake as build

    return build()


@with_frames_of_program
def save(
    capture: Capture,
    path: str | os.PathLike[str],
    data: DataWord = "seed",
    *,
    allow: Sequence[str] = (),
    overwrite: bool = False,
    layout: LayoutWord = "backprint",
    evaluation: Capture | None = None,
    power: PowerWord = "quick",
) -> Path:
    """Write a Capture as a sample: readable, self-contained, with its verdict. Returns the path.

    `data`: `"seed"` keeps recipes, `"exact"` the bytes of every input and parameter, `"none"` neither. `power` is how
    much of it is measured: `"quick"` draws all inputs again once, `"own"` and `"all"` do what `bp.power` does, `"none"`
    leaves it for later.
    `layout="graphnet"` writes GraphNet's trees instead, `path/train_forward/NAME`, `path/train_backward/NAME` and, from
    the Capture `evaluation` of the program in eval mode, `path/eval_forward/NAME`; returns `path`.
    """
    from pathlib import Path

    from backprint.common.text import check_choice, check_sequence
    from backprint.errors import UsageError
    from backprint.graph.calls import check_save
    from backprint.tools.export import saving

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
    direction: DirectionWord = "both",
    data: DataWord | None = None,
    allow: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write a Capture, or the sample in a folder, as one Python file that runs with PyTorch alone. Returns its path.

    `python repro.py` runs the graphs and prints a digest of each output; `--backend NAME` (or `backend`, its default)
    compares each with what `torch.compile` gives, and exits with 1 where one is wrong. `direction` says which graphs:
    `"both"`, `"forward"` or `"backward"`. `data="seed"` draws inputs that the sample keeps exact. More than 64 KiB of
    exact data go into a `.safetensors` file beside it.

    Below the graphs and the inputs, the file has only those functions that these need; they are Backprint's own, by
    which `bench` and `minify` judge. Nothing of a sample is run to write it.
    """
    from backprint.graph.calls import check_export_call
    from backprint.tools.export import saving

    check_export_call(capture, path, backend, direction, data, allow)
    capture_ = capture if isinstance(capture, Capture) else load(capture, allow)
    return saving.write_file(capture_, path, backend, direction, data, allow, overwrite)


def load(path: str | os.PathLike[str], allow: Sequence[str] = ()) -> Capture:
    """Read a sample. Runs none of its code; a graph is parsed and checked when it is first used.

    What runs the Capture runs it in this process, which a stranger's graph may end as any PyTorch program may:
    `bp.verify(path)`, `bp.power(path)` and `bp.derivative(path)` run it in a process of its own.
    """
    from backprint.common.text import check_sequence
    from backprint.graph.calls import check_load
    from backprint.sample.load import load as read

    check_load(path)
    check_sequence("allow", allow)
    return read(path, allow)


def parse(text: str, allow: Sequence[str] = ()) -> Graph:
    """Return the Graph of a text, such as `graph.code` or a row of `backprint corpus run export`. Runs none of it.

    Anything that is not a graph of known tensor operators is refused with its line. `allow` names the custom operators
    that the text may call.
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
    from backprint.prove.arguments import recipe_inputs

    return recipe_inputs(capture)


def observed(capture: Capture) -> ValueStats:
    """Run a Capture once on its own inputs, and return statistics of each floating-point value that its graphs compute.

    The keys are (number of the Pair, 0 for its forward or 1 for its backward, name of the value).
    """
    from backprint.prove.observed import observed_values

    return observed_values(capture)
