"""A TARGET names what a verb works on: `file.py:factory`, `package.module:factory`, or the folder of a sample.

A GraphNet sample is built from its parsed code, with its own recipes. A Backprint sample is captured again from its
saved forward, under the names and recipes that it has. This module joins reading and building with capture, for the
command line and for corpora. It imports torch when a TARGET is read.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.formats import BACKPRINT, FORMATS, GRAPHNET, format_of
from backprint.common.text import check_sequence
from backprint.errors import SampleError, UsageError
from backprint.graph.capture_options import DEFAULTS, CaptureOptions
from backprint.graph.nouns import Capture

if TYPE_CHECKING:
    from backprint.sample.inputs import Inputs
    from backprint.values.exchanges import Peers


@dataclass(frozen=True, slots=True)
class Target:
    """A callable with its arguments, and the recipes that made the arguments, if any.

    `with_grad` and `without_grad` are (name, why) of the inputs that require grad and of those that do not.
    `requires_grad` and `mode` are options for capture; `bytes` is the size of all tensors.
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


def read_target(
    text: Any, *, fake: bool = False, device: str | None = None, mode: str | None = None, trust: bool = False
) -> Target:
    """Read the Target that a text names. A factory is imported and called; a sample is parsed, and executed only if
    it is refused and trusted."""
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
    recipe."""
    unknown = sorted(set(options) - set(DEFAULTS))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not an option of bp.capture; its options are {', '.join(DEFAULTS)}")
    resolved = resolve_options({"mode": target.mode, "fake": target.fake, **options})
    if resolved.requires_grad is None:
        resolved = replace(resolved, requires_grad=target.requires_grad)
    if bool(resolved.fake) is not target.fake:
        raise UsageError(f"{target.title}: read the TARGET with fake={resolved.fake}, as it is to be captured")
    if target.kind != "factory":
        specialize = resolved.specialize
        if target.fake and specialize is None:
            specialize = True  # the numbers that a sample's code reads are known from its metadata
        name = target.title if resolved.name is None else resolved.name
        resolved = replace(resolved, name=name, mode=None, specialize=specialize)  # the code is in that mode already
    capture = capture_with_recipes(target.model, target.args, target.kwargs, resolved, target.recipes)
    return replace(capture, notes=(*target.notes, *capture.notes)) if target.notes else capture


def with_grad(target: Target, capture: Capture, requires_grad: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, why) of the tensors that require grad in a Capture of a Target with this option."""
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
    """Build a GraphNet sample."""
    from backprint.graphnet import read_graphnet
    from backprint.graphnet.build import build_sample
    from backprint.replaying.again import function_of
    from backprint.tracing import frames
    from backprint.tracing.fake import fake as fake_world

    sample = read_graphnet(place, trust)
    with _unallocated_if(fake):  # under `fake`, a device that is missing here is allowed
        _check_torch_device(device)
    built = build_sample(
        sample, device=device or "cpu", mode=mode, fake=fake_world if fake else None, run=function_of(frames.at)
    )
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
        requires_grad=tuple(name for name, _ in built.with_grad) or False,
        bytes=built.bytes,
        fake=fake,
    )


# ---- Our own samples


def _target_of_sample(place: Path, fake: bool, device: str | None, mode: str | None, trust: bool = False) -> Target:
    """Make a Target of a Backprint sample, to be captured again from its saved forward."""
    from backprint.graph.sizes import new_devices, on_device
    from backprint.replaying.again import module_of
    from backprint.sample.inputs import Inputs
    from backprint.sample.load import load
    from backprint.tracing import frames

    capture = load(place)
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
    _check_torch_device(device)
    recipes = Inputs(capture.recipes.recipes, capture.recipes.exact, capture.recipes.seed)
    [pair] = capture.pairs
    places = new_devices(pair.forward, device) if device else {}
    recipes = recipes.moved(places)
    capture = replace(capture, recipes=recipes)
    model, inputs, with_grad, without_grad = module_of(capture, on_device(pair.forward, places), frames.at)
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
        requires_grad=tuple(name for name, _ in with_grad) or False,
        bytes=size + sum(getattr(value, "nbytes", 0) for value in inputs.values()),
    )


def _notes_on_opaque_edges(capture: Capture) -> tuple[str, ...]:
    """Return a note for a Capture of a saved forward whose autograd may not be the program's own backward."""
    if not capture.opaque or capture.pairs[0].backward is None:
        return ()
    edge = capture.opaque[0]
    place = f" at {edge.source.file}:{edge.source.line}" if edge.source is not None else ""
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


# ---- Factories


NEEDS_GROUP = ("Default process group has not been initialized", "Error initializing torch.distributed")
"""How PyTorch's errors begin that say that a program needs a process group."""


@contextlib.contextmanager
def _with_advice_on_ranks() -> Iterator[None]:
    """Say what to do where a program raises because it has no process group."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(NEEDS_GROUP):
            raise
        raise UsageError(
            f"the program is one of several ranks ({error}): capture them all here, without a process group, with "
            "world=2 (--world 2), or run it under torchrun, where it has one"
        ) from error


@_with_advice_on_ranks()
def target_of_factory(text: str, fake: bool, device: str | None, mode: str | None) -> Target:
    """Call the factory of a TARGET: it returns a callable, arguments and keyword arguments; with `fake`, no values."""
    factory = find_factory(text)
    with _unallocated_if(fake):
        result = factory()
    if isinstance(result, tuple) and len(result) in (2, 3) and callable(result[0]):
        model, args, *rest = result
        kwargs = rest[0] if rest else {}
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        if isinstance(kwargs, dict):
            _check_torch_device(device)
            if device:
                with _unallocated_if(fake):
                    model, args, kwargs = move_to_device(device, model, args, kwargs)
            title = getattr(model, "__name__", type(model).__name__)
            size = sum(tensor.nbytes for tensor in strided_tensors(model, args, kwargs))
            return Target(title, model, args, kwargs, "factory", bytes=size, mode=mode, fake=fake)
    raise UsageError(
        f"{text}: the factory must return (model, args) or (model, args, kwargs), not {_describe_type(result)}"
    )


def strided_tensors(*values: Any) -> list[Any]:
    """Return the tensors among a model's state and its arguments, each once."""
    import torch

    from backprint._torch.pytree import tree_leaves

    leaves = tree_leaves(values)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for leaf in leaves:
        if isinstance(leaf, torch.nn.Module):
            tensors += [*leaf.parameters(), *leaf.buffers()]
    return list({id(tensor): tensor for tensor in tensors if tensor.layout is torch.strided}.values())


def _unallocated_if(fake: bool) -> Any:
    """Return the mode under which nothing is allocated, if `fake`."""
    if not fake:
        return contextlib.nullcontext()
    from backprint.tracing.fake import fake as fake_world

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


def find_factory(text: str) -> Callable[..., Any]:
    """Find the function that `file.py:name` or `package.module:name` names. The file is imported, and so executed."""
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(
            f"{text!r} is not a TARGET: write file.py:factory, package.module:factory, or the folder of a sample"
        )
    module = _import_file(Path(place)) if place.endswith(".py") else _import_by_name(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        names = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise UsageError(f"{place} has no function {name!r}; it has {names[:300] or 'none'}")
    return factory


def _import_file(path: Path) -> Any:
    """Import a Python file, with its folder on sys.path as for a script."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if "no known parent package" not in str(error) or not (path.resolve().parent / "__init__.py").is_file():
            raise
        del sys.modules[path.stem]
        return _import_of_package(path.resolve())
    return module


def _import_of_package(path: Path) -> Any:
    """Import a file that has relative imports as the module that it is of its package."""
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    sys.path[0] = str(root)
    return importlib.import_module(".".join(names))


def _import_by_name(name: str) -> Any:
    """Import a module by its dotted name, with the current folder on sys.path."""
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: no module {error.name!r} (the current folder is searched first)") from error


# ---- Captures, and their options


@_with_advice_on_ranks()
def capture_with_recipes(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: CaptureOptions,
    recipes: Inputs | None = None,
    peers: Peers | None = None,
) -> Capture:
    """Return the Capture of a call; `recipes` are those that made its tensors, if any did, and `peers` answer its
    collectives."""
    from backprint.capturing import capture_call
    from backprint.sample.inputs import with_recipes

    return with_recipes(capture_call(target, args, kwargs, options, peers=peers), recipes)


LOSSES = ("sum", "mean")
"""Losses of the first floating-point output."""


def resolve_options(options: Mapping[str, Any]) -> CaptureOptions:
    """Return the options of a call with losses and decompositions resolved by name; a string instead of a sequence of
    names is refused."""
    check_sequence("allow", options.get("allow"))
    check_sequence("meant", options.get("meant"))
    check_sequence("decompose", options.get("decompose"))
    resolved = dict(options)
    if isinstance(resolved.get("loss"), str):
        resolved["loss"] = loss_of(resolved["loss"])
    if isinstance(resolved.get("decompose"), (tuple, list)):
        from backprint.tracing.custom import decompositions_of

        resolved["decompose"] = decompositions_of(resolved["decompose"]) or None
    return CaptureOptions(**resolved)


def loss_of(text: str | None) -> Any:
    """Return a loss by name, or a function of the user's."""
    if text is None:
        return None
    if text in LOSSES:
        return lambda output: getattr(_first_tensor(output), text)()
    return find_factory(text)


def _first_tensor(output: Any) -> Any:
    """Return the first floating-point tensor of a result."""
    import torch

    from backprint._torch.pytree import tree_leaves

    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
    raise UsageError("loss: the output holds no floating-point tensor")
