"""A TARGET names what a verb works on: `file.py:factory`, `package.module:factory`, a model by its name (`hf:gpt2`), or
the folder of a sample.

A GraphNet sample is built from its parsed code, with its own recipes. A Backprint sample is captured again from its
saved forward, under the names and recipes that it has. This module joins reading and building with capture, for the
command line and for corpora. It imports torch when a TARGET is read.

`fake` says to make nothing but shapes, `device` where to make it ("cuda", None for where it is), `mode` is "train",
"eval" or None for as it is, and `trust` executes code that the parser refuses. A *recipe* says how an input is made
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.common.factories import find_factory
from backprint.common.formats import BACKPRINT, FORMATS, GRAPHNET, format_of
from backprint.errors import SampleError, UsageError
from backprint.graph.calls import with_advice_on_ranks
from backprint.graph.capture_options import DEFAULTS
from backprint.graph.nouns import Capture
from backprint.tools.named import is_named, library_of, make_named, quiet


@dataclass(frozen=True, slots=True)
class Target:
    """A callable with its arguments, and the recipes that made the arguments, if any.

    `title` is its name, and `kind` says what it was read from: "factory" (also a named model), "graphnet" or
    "backprint". `with_grad` and `without_grad` are (name, why) of the inputs that require grad and of those that do
    not. `notes` go into the notes of the Capture. `requires_grad`, `mode`, `fake` and `loss` are options for capture;
    `library` is that of a named model, whose warnings are not shown; `bytes` is the size of all tensors.
    """

    title: str
    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kind: str
    recipes: Any = None
    with_grad: tuple[tuple[str, str], ...] = ()
    without_grad: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    requires_grad: Any = None
    bytes: int = 0
    mode: str | None = None
    fake: bool = False
    loss: Any = None
    library: str = ""


def read_target(
    text: Any,
    *,
    fake: bool = False,
    device: str | None = None,
    mode: str | None = None,
    trust: bool = False,
    factory: Callable[..., Any] | None = None,
) -> Target:
    """Read the Target that a text names. A factory is imported and called, a model that is named is made by its
    library; a sample is parsed, and executed only if it is refused and trusted. A `factory` that is known already is
    called alone: `text` names it in errors."""
    if factory is not None:
        return target_of_factory(str(text), fake, device, mode, factory)
    if is_named(text):
        return _target_of_name(text, fake, device, mode)
    place = Path(text)
    if not place.is_dir():
        return target_of_factory(str(text), fake, device, mode)
    format_ = format_of(place)
    if format_ is None:
        known_folders = ", or ".join(
            f"{' and '.join((known_format.main, *known_format.required[:1]))} ({known_format.title})"
            for known_format in FORMATS.values()
        )
        raise UsageError(f"{place}: not a sample: a sample's folder has {known_folders}")
    return READERS[format_.name](place, fake, device, mode, trust)


def read_capture(place: Path, mode: str | None = None, trust: bool = False, allow: tuple[str, ...] = ()) -> Capture:
    """Return the Capture of a sample: one of Backprint's is loaded, any other captured in memory."""
    from backprint.sample.load import load

    format_ = format_of(place)
    if format_ is None or format_ is BACKPRINT:
        return load(place, allow=allow)
    return capture_target(read_target(place, mode=mode, trust=trust))


def capture_target(target: Target, **options: Any) -> Capture:
    """Return the Capture of a Target. Its recipes become the Capture's, and only inputs without one get a fitted
    recipe. `options` are those of `bp.capture`; refuse others. Where the caller leaves them out, `requires_grad`,
    `loss` and `mode` are the Target's."""
    from backprint.prove.capturing import capture_with_recipes
    from backprint.trace.entry import resolve_options

    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not an option of bp.capture; its options are {', '.join(DEFAULTS)}")
    resolved = resolve_options({"mode": target.mode, "fake": target.fake, **options})
    if resolved.requires_grad is None:
        resolved = replace(resolved, requires_grad=target.requires_grad)
    # With order=2 the outputs of a named model take tangents, so no loss is made up for it.
    if resolved.loss is None and resolved.order == 1:
        resolved = replace(resolved, loss=target.loss)
    # `specialize` lets a fake capture keep numbers that the program reads as guards.
    if target.loss is not None and target.fake and resolved.specialize is None:
        resolved = replace(resolved, specialize=True)  # the numbers that a named model reads are of its own sizes
    if bool(resolved.fake) is not target.fake:
        raise UsageError(f"{target.title}: read the TARGET with fake={resolved.fake}, as it is to be captured")
    if target.kind != "factory":
        specialize = resolved.specialize
        if target.fake and specialize is None:
            specialize = True  # the numbers that a sample's code reads are known from its metadata
        name = target.title if resolved.name is None else resolved.name
        resolved = replace(resolved, name=name, mode=None, specialize=specialize)  # the code is in that mode already
    # The warnings of others, such as PyTorch's on the capture, are shown.
    with quiet(target.library, others=False) if target.library else contextlib.nullcontext():
        capture = capture_with_recipes(target.model, target.args, target.kwargs, resolved, target.recipes)
    return replace(capture, notes=(*target.notes, *capture.notes)) if target.notes else capture


def with_grad(target: Target, capture: Capture, requires_grad: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, why) of the tensors that require grad in a Capture of a Target that was made with the option
    `requires_grad`: with None those of the Target, else those that have a gradient in the Capture."""
    if requires_grad is None:
        return target.with_grad
    why = f"requires_grad={requires_grad}" if isinstance(requires_grad, (str, bool)) else "requires_grad names it"
    ports = [port for pair in capture.pairs if pair.backward for port in pair.backward.by_role("gradient")]
    return tuple((name, why) for name in dict.fromkeys(port.name for port in ports))


def capture_named_target(
    text: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> Capture:
    """Capture a TARGET given as a string or a path, which has its own arguments."""
    arguments = dict(kwargs)
    read_options = {key: arguments.pop(key) for key in ("device", "trust") if key in arguments}
    if args or arguments:
        raise UsageError(f"{text}: a TARGET brings its own inputs: pass none to bp.capture, only options")
    target = read_target(text, fake=bool(options["fake"]), mode=options["mode"], **read_options)
    return capture_target(target, **options)


# ---- GraphNet's samples


def _target_of_graphnet(place: Path, fake: bool, device: str | None, mode: str | None, trust: bool) -> Target:
    """Build a GraphNet sample: a module of its code, and inputs that its recipes make."""
    from backprint.prove.again import function_of
    from backprint.tools.graphnet import read_graphnet
    from backprint.tools.graphnet.build import build_sample
    from backprint.trace import frames
    from backprint.trace.fake import fake as fake_world

    sample = read_graphnet(place, trust)
    with _unallocated_if(fake):  # under `fake`, a device that is missing here is allowed
        _check_torch_device(device)
    # `run` returns a function for a graph of ours in the sample; `frames.at` makes its steps say their lines.
    run = function_of(frames.at)
    built = build_sample(sample, device=device or "cpu", mode=mode, fake=fake_world if fake else None, run=run)
    return Target(
        title=sample.name,
        model=built.module,
        args=(),
        kwargs=built.inputs,
        kind="graphnet",
        recipes=built.recipes,
        with_grad=built.with_grad,
        without_grad=built.without_grad,
        notes=built.notes,
        requires_grad=tuple(name for name, _ in built.with_grad) or False,  # False: of no input
        bytes=built.bytes,
        fake=fake,
    )


# ---- Our own samples


def _target_of_sample(place: Path, fake: bool, device: str | None, mode: str | None, trust: bool = False) -> Target:
    """Make a Target of a Backprint sample, to be captured again from its saved forward. Refuse a mode, `fake`, several
    Pairs, and a sample without data. `trust` changes nothing: its code is parsed."""
    from backprint.graph.sizes import new_devices, on_device
    from backprint.prove.again import module_of
    from backprint.sample.inputs import Inputs
    from backprint.sample.load import load
    from backprint.trace import frames

    capture = load(place)
    _refuse_sample(place, capture, fake, mode)
    _check_torch_device(device)
    recipes = Inputs(capture.recipes.recipes, capture.recipes.exact, capture.recipes.seed)
    [pair] = capture.pairs
    new_device_of = new_devices(pair.forward, device) if device else {}  # for each device of the graph
    recipes = recipes.moved(new_device_of)
    capture = replace(capture, recipes=recipes)
    # A module with the graph's parameters and buffers, whose `forward` runs the graph on the other inputs.
    model, inputs, with_grad, without_grad = module_of(capture, on_device(pair.forward, new_device_of), frames.at)
    size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    return Target(
        title=capture.name,
        model=model,
        args=(),
        kwargs=inputs,
        kind="backprint",
        recipes=recipes,
        with_grad=with_grad,
        without_grad=without_grad,
        notes=(*capture.notes, *_notes_on_opaque_edges(capture)),
        requires_grad=tuple(name for name, _ in with_grad) or False,  # False: of no input
        bytes=size + sum(getattr(value, "nbytes", 0) for value in inputs.values()),
    )


def _refuse_sample(place: Path, capture: Capture, fake: bool, mode: str | None) -> None:
    """Raise if a sample cannot be captured again from its forward, or not with these options."""
    if mode is not None:
        raise UsageError(f"{place}: mode={mode!r} cannot be written into a saved graph: its operators have their mode")
    if len(capture.pairs) != 1:
        raise UsageError(
            f"{place}: a sample of {len(capture.pairs)} pairs is captured again from its program, not from its forwards"
        )
    if fake:
        raise UsageError(f"{place}: fake=True: a saved forward is captured again on the inputs that its recipes make")
    if capture.recipes.missing:
        raise SampleError(
            f"{place}: it was saved without data, so there is no {capture.recipes.missing[0]!r} to run on"
        )


def _notes_on_opaque_edges(capture: Capture) -> tuple[str, ...]:
    """Return a note for a Capture of a saved forward whose autograd may not be the program's own backward."""
    if not capture.opaque or capture.pairs[0].backward is None:
        return ()
    edge = capture.opaque[0]
    place = f" at {edge.source.at}" if edge.source is not None else ""
    more = f", and {len(capture.opaque) - 1} more such edges" if len(capture.opaque) > 1 else ""
    return (
        f"autograd of the saved forward may differ from the program's backward: {edge.text}{place}{more}. The "
        "sample has the program's own backward",
    )


READERS: Mapping[str, Callable[[Path, bool, str | None, str | None, bool], Target]] = {
    BACKPRINT.name: _target_of_sample,
    GRAPHNET.name: _target_of_graphnet,
}
"""The reader of each format of samples."""


# ---- Factories, and models by their names


@with_advice_on_ranks()
def _target_of_name(text: Any, fake: bool, device: str | None, mode: str | None) -> Target:
    """Make the model of a name, which is what a factory would return, with its loss and notes. The kind is "factory":
    it is captured like one."""
    with _unallocated_if(fake):
        named = make_named(text)
    _check_torch_device(device)
    model, args, kwargs = named.as_result()
    if device:
        with _unallocated_if(fake):
            model, args, kwargs = move_to_device(device, model, args, kwargs)
    from backprint.values.tree import strided_tensors

    size = sum(tensor.nbytes for tensor in strided_tensors(model, args, kwargs))
    title = type(model).__name__
    return Target(
        title,
        model,
        args,
        kwargs,
        "factory",
        notes=named.notes,
        bytes=size,
        mode=mode,
        fake=fake,
        loss=named.loss,
        library=library_of(text),
    )


@with_advice_on_ranks()
def target_of_factory(
    text: str, fake: bool, device: str | None, mode: str | None, factory: Callable[..., Any] | None = None
) -> Target:
    """Call the factory of a TARGET, and return the callable, arguments and keyword arguments that it returns as a
    Target; refuse another result. With `fake`, it is called where tensors have no values."""
    factory = factory or find_factory(text)
    with _unallocated_if(fake):
        result = factory()
    if isinstance(result, tuple) and len(result) in (2, 3) and callable(result[0]):
        model, args, *rest = result
        kwargs = rest[0] if rest else {}
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)  # a single argument may stand alone
        if isinstance(kwargs, dict):
            _check_torch_device(device)
            if device:
                with _unallocated_if(fake):
                    model, args, kwargs = move_to_device(device, model, args, kwargs)
            title = getattr(model, "__name__", type(model).__name__)
            from backprint.values.tree import strided_tensors

            size = sum(tensor.nbytes for tensor in strided_tensors(model, args, kwargs))
            return Target(title, model, args, kwargs, "factory", bytes=size, mode=mode, fake=fake)
    raise UsageError(
        f"{text}: the factory must return (model, args) or (model, args, kwargs), not {_describe_type(result)}"
    )


def _unallocated_if(fake: bool) -> Any:
    """Return the mode under which nothing is allocated, if `fake`."""
    if not fake:
        return contextlib.nullcontext()
    from backprint.trace.fake import fake as fake_world

    return fake_world()


def _check_torch_device(device: str | None) -> None:
    """Raise unless tensors can be made on this device."""
    if device is None:
        return
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # no such device, or not in this build of torch
        raise UsageError(f"--device {device}: {str(error).splitlines()[0][:200]}") from error


def move_to_device(device: str, *values: Any) -> Any:
    """Move models and tensors to a device."""
    import torch

    from backprint._torch.pytree import tree_map

    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, (torch.Tensor, torch.nn.Module)) else leaf, values)


def _describe_type(value: Any) -> str:
    return (
        f"({', '.join(type(item).__name__ for item in value)})"
        if isinstance(value, tuple)
        else f"a {type(value).__name__}"
    )
