"""Refuse calls of the public functions that cannot be right, with what to write instead.

A `target` is the model or the function that a call captures or checks. A TARGET, in messages, is a text in its place: a
path or `file.py:factory`. `args` and `kwargs` are what a call of `bp.capture(target, *args, **kwargs)` passes besides:
the program's own arguments, and in `kwargs` also keywords that may be misspelled options. Each `check_…` returns
nothing, or raises UsageError.

`kind(value)` describes a value in words, `name_of(target)` is its name, `parameters_of(target)` has the parameters of
its signature, and `_binds(target, …)` says whether it could be called so.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.common.text import check_choice, check_sequence
from backprint.errors import UsageError
from backprint.graph.capture_options import DEFAULTS, roles_with_grad
from backprint.graph.nouns import Capture

MAX_SHOWN = 60
"""The most characters of a Capture's text in a message."""

LONGEST_NAME = 4096
"""The most characters of a sample's name that can be loaded."""


def check_capture_call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], options: Collection[str]) -> None:
    """Raise for a call of `bp.capture` that cannot be right. `options` are the names of the options of `bp.capture`."""
    if isinstance(target, type):
        _check_class(target, args)
    if _has_tensors(target) and not callable(target):
        raise UsageError(
            f"bp.capture takes a model or a function and its inputs, not its result ({kind(target)}): write "
            "bp.capture(model, x), not bp.capture(model(x))"
        )
    check_spelled(args, kwargs)
    _check_options_spelled(target, kwargs, options)
    _check_tuple(target, args, kwargs)
    _check_arrays(target, args, kwargs)


def check_world(world: Any, shard: Any, ranks: Any, fake: Any) -> None:
    """Raise unless `world=` is a number of ranks or None, and `shard=` and `ranks=` go with it. `fake` is whether the
    capture is one without values."""
    if world is not None and (isinstance(world, bool) or not isinstance(world, int) or world < 1):
        raise UsageError(f"world={world!r} is not a number of ranks: write world=4")
    if shard is not None and not callable(shard):
        raise UsageError(f"shard={shard!r} is not a function: it shards the model in each rank")
    if shard is not None and world is None:
        raise UsageError("shard= shards a model over ranks: say how many with world=4")
    if ranks is None:
        return
    if world is None or not fake:
        raise UsageError(
            "ranks= chooses ranks of a World without values (world=, fake=True): with values every rank is captured, "
            "because all run among each other"
        )
    if isinstance(ranks, (str, bytes)) or not isinstance(ranks, Iterable):
        raise UsageError(f"ranks={ranks!r} are not numbers of ranks: write ranks=(0, 5)")
    numbers = list(ranks)
    # A bool is an int for isinstance.
    unknown = [rank for rank in numbers if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world]
    if not numbers or unknown or len(set(numbers)) < len(numbers):
        raise UsageError(f"ranks={ranks!r} are not different ranks of 0 to {world - 1}")


def check_options_of_ranks(options: Any) -> None:
    """Refuse options that a capture with `world=` does not have. `options` are the CaptureOptions of the call."""
    refused = {"order=2": options.order != 1, "dynamic=": options.dynamic}
    for text, is_set in refused.items():
        if is_set:
            raise UsageError(f"world= does not go with {text}: leave it out")


def check_spelled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if `args=` or `kwargs=`, which hold the program's arguments (`spelled_call`), is itself a tensor."""
    for name, spelled in (("args", "args=(x,)"), ("kwargs", "kwargs={'x': x}")):
        if is_tensor(kwargs.get(name)) and not args and set(kwargs) <= {"args", "kwargs"}:
            raise UsageError(f"{name}= is a tensor: write {spelled}")


def spelled_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the program's arguments if the call spells them, as in `bp.capture(f, args=(x,), kwargs={...})`; None if
    it passes them directly, as in `bp.capture(f, x)`."""
    # A program may have parameters of these names: only a call with nothing else is read in this form.
    has_only_args_and_kwargs = bool(kwargs) and set(kwargs) <= {"args", "kwargs"}
    if has_only_args_and_kwargs and not args and isinstance(kwargs.get("args", ()), (tuple, list)):
        return tuple(kwargs.get("args", ())), dict(kwargs.get("kwargs") or {})
    return None


def arguments_of(
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of the program in a call of `bp.capture` with these `options`, by
    name, as their `defaults` are. UsageError if an option that the call sets to another value than its default is also
    a parameter of the program: the call could mean either."""
    if (spelled := spelled_call(args, kwargs)) is not None:
        return spelled
    parameters = parameters_of(target) or {}
    check_collision(
        "capture(f", parameters, {key: options[key] != defaults[key] for key in options if key in parameters}
    )
    return args, kwargs


def check_collision(call: str, parameters: Collection[str], is_passed: Mapping[str, bool]) -> None:
    """Raise if an option that the call passes is also a parameter of the program. `call` is how the call begins in
    the message, as `capture(f`; `is_passed` says for each option whether the call passes it."""
    for key, is_given in is_passed.items():
        if is_given and key in parameters:
            raise UsageError(
                f"{key!r} is an option of bp.{call.partition('(')[0]} and a parameter of the captured function: "
                f"write bp.{call}, args=(...), kwargs={{{key!r}: ...}})"
            )


def check_requires_grad(requires_grad: Any) -> None:
    """Raise unless `requires_grad=` is None, a bool, a word of this option, or names: not for a tensor, nor for another
    text, which would be read letter by letter."""
    if isinstance(requires_grad, str):
        roles_with_grad(requires_grad)  # which raises for a text that is no word
    if requires_grad is not None and (is_tensor(requires_grad) or not isinstance(requires_grad, (bool, Iterable))):
        raise UsageError(
            f"requires_grad is a {type(requires_grad).__name__}: write True or False, 'inputs', 'parameters' or "
            "'all', names (requires_grad=('x',)), a mask, or a mapping from names to bools"
        )


def check_name(name: Any) -> None:
    """Raise for a name of a Capture that cannot be read again from a sample's files."""
    if name is not None and not (isinstance(name, str) and name.isprintable() and len(name) <= LONGEST_NAME):
        raise UsageError(f"name={name!r:.80} must be printable text of at most {LONGEST_NAME} characters")


def check_target_options(target: Any, kwargs: Mapping[str, Any]) -> None:
    """Raise for an option that only a TARGET has (TARGET_OPTIONS), if a callable without such a parameter is
    captured."""
    parameters = parameters_of(target) or {}
    # With `**kwargs`, any keyword may be the program's.
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name, instead in TARGET_OPTIONS.items():
        if name in kwargs and name not in parameters:
            raise UsageError(f"{name}= is for a TARGET, a path or 'file.py:factory': {instead}")


TARGET_OPTIONS = {
    "device": "move the model and its inputs yourself, model.to('cuda')",
    "trust": "a model or function of yours is run as it is",
}
"""Options of a capture whose TARGET is a path or `file.py:factory`, with what to do instead for a callable."""


def _check_class(target: type, args: Sequence[Any]) -> None:
    """Raise if the target is a class instead of an instance."""
    import torch

    arguments = ", ".join(kind(value) for value in args[:3]) or "x"
    if issubclass(target, torch.nn.Module):
        raise UsageError(
            f"{target.__name__} is a class, and {arguments} would go to its constructor: make a module first, "
            f"bp.capture({target.__name__}(...), x)"
        )
    if issubclass(target, torch.autograd.Function):
        raise UsageError(f"{target.__name__} is a class: write bp.capture({target.__name__}.apply, x)")


def _check_options_spelled(target: Any, kwargs: Mapping[str, Any], options: Collection[str]) -> None:
    """Raise for a keyword in `kwargs` that is not a parameter of the target and is nearly one of `options`, the names
    of the options of `bp.capture`."""
    parameters = parameters_of(target)
    if "specialise" in kwargs and "specialise" not in (parameters or {}):
        raise UsageError("specialise= is spelled specialize=, as PyTorch spells it")
    # Without a signature, or with `**kwargs`, any keyword may be the program's.
    if parameters is None or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in kwargs:
        close = difflib.get_close_matches(key, options, n=1, cutoff=0.75)
        # `bp.capture(f, args=(x,), kwargs={...})` spells the program's arguments (`spelled_call`): where the call has
        # no other keyword, neither is a misspelled option, though `args` may be close to the name of one.
        if key not in parameters and close and not {"args", "kwargs"} >= set(kwargs):
            raise UsageError(
                f"{key}= is neither a parameter of {name_of(target)} nor an option of bp.capture: "
                f"did you mean {close[0]}=?"
            )


def _check_tuple(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if the inputs are in one tuple, and the target takes several arguments."""
    if len(args) != 1 or kwargs or not isinstance(args[0], (tuple, list)) or not _has_tensors(args[0]):
        return
    # A model may well take one tuple. It is a mistake only if the signature refuses the tuple and takes its items.
    if not _binds(target, *args) and _binds(target, *args[0]):
        raise UsageError(
            f"{name_of(target)} takes several arguments, and is given one {type(args[0]).__name__} of them: write "
            "bp.capture(model, *inputs) or bp.capture(model, args=inputs)"
        )


def _check_arrays(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if the arguments have numpy arrays and no tensor."""
    leaves = _leaves_of((tuple(args), dict(kwargs)))
    arrays = [leaf for leaf in leaves if type(leaf).__module__ == "numpy" and type(leaf).__name__ == "ndarray"]
    if arrays and not any(is_tensor(leaf) for leaf in leaves):
        raise UsageError(
            f"{name_of(target)} is given a numpy array of shape {arrays[0].shape} and no tensor: an array is a "
            "constant of the capture. Pass torch.from_numpy(array)"
        )


def advice_for_error(error: BaseException, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return what to write instead of a call of `bp.capture` whose program raised `error`; '' if the arguments do not
    seem to be the cause."""
    if batch := _batch_of_keywords(target, args, kwargs):
        # What a program does with a mapping in the place of a tensor may raise any of these, `batch[:, 0]` a KeyError.
        is_cause = isinstance(error, (TypeError, AttributeError, RuntimeError, LookupError, ValueError))
        return batch if is_cause else ""
    if not isinstance(error, (TypeError, AttributeError, RuntimeError)):
        return ""
    message = str(error)
    leaves = _leaves_of((tuple(args), dict(kwargs)))
    if ("ndarray" in message or "numpy()" in message) and any(type(leaf).__module__ == "numpy" for leaf in leaves):
        return "one of its arguments is a numpy array: pass torch.from_numpy(array)"
    if len(args) == 1 and not kwargs and isinstance(args[0], (tuple, list)) and _has_tensors(args[0]):
        word = type(args[0]).__name__
        # Only if the error names the container: otherwise the program took it, and failed for another reason.
        if word in message:
            return (
                f"its only argument is a {word} of {len(args[0])}: for its items write bp.capture(model, *inputs) or "
                "bp.capture(model, args=inputs)"
            )
    return ""


def _batch_of_keywords(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return how to write a call whose only argument is a mapping from the names of the target's parameters to tensors,
    such as a batch of a tokenizer; '' for another call."""
    if len(args) != 1 or kwargs or not isinstance(args[0], Mapping):
        return ""
    batch = dict(args[0])
    parameters = parameters_of(target) or {}
    if not batch or not batch.keys() <= parameters.keys() or not _has_tensors(batch) or not _binds(target, **batch):
        return ""
    # A keyword that is also an option of bp.capture has to be spelled.
    how = "args=(), kwargs=batch" if batch.keys() & {*DEFAULTS, "args", "kwargs"} else "**batch"
    return (
        f"its only argument is a {type(args[0]).__name__} with the names of its parameters "
        f"({', '.join(map(str, batch))}): pass it as **batch, bp.capture(model, {how})"
    )


def check_loss(loss: Any) -> None:
    """Raise unless a loss is None or a function of the output alone."""
    if loss is None:
        return
    if isinstance(loss, type) or not callable(loss):
        what = f"the class {loss.__name__}" if isinstance(loss, type) else kind(loss)
        raise UsageError(f"loss is {what}: {LOSS_TAKES}, {_example_of_loss(loss)}")
    if not _binds(loss, None):  # None stands for the output
        needed = [
            name
            for name, parameter in (parameters_of(loss) or {}).items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        raise UsageError(
            f"loss is called with the output alone, and {name_of(loss)} takes {', '.join(needed) or 'nothing'}: pass a "
            f"function of the output that has the rest, {_example_of_loss(loss)}"
        )


def unknown_loss(text: str) -> UsageError:
    """Return the error for a text that is no word of `loss=`: it says what a loss may be, and how the loss of PyTorch
    with the nearest name is written."""
    return UsageError(f"loss={text!r:.80} is no loss: {LOSS_TAKES}, {_example_of_loss(text)}; {ON_COMMAND_LINE}")


LOSS_TAKES = "write 'sum' or 'mean' (of the first output), or a function of the output"
ON_COMMAND_LINE = "on the command line, --loss FILE.py:NAME of such a function"

SHORT_LOSSES = {
    "bce": "binary_cross_entropy",
    "bcewithlogits": "binary_cross_entropy_with_logits",
    "ce": "cross_entropy",
    "kl": "kl_div",
    "l2": "mse_loss",
    "mae": "l1_loss",
}
"""What losses are called for short, where the name in torch.nn.functional does not begin so."""


def _example_of_loss(loss: Any) -> str:
    """Return a loss as a call writes it: the one of torch.nn.functional whose name is nearest to `loss`, if that is a
    text, or a class or function of torch.nn; else, for a program's own, the mean squared error."""
    from torch.nn import functional

    of_torch = (getattr(loss, "__module__", None) or "").startswith("torch.nn.")
    named = loss if isinstance(loss, str) else name_of(loss) if of_torch else ""
    wanted = named.lower().replace("_", "").removesuffix("loss")  # `CrossEntropyLoss` and `cross_entropy` are one
    names = {  # the names of the losses, by the same short form
        name.replace("_", "").removesuffix("loss"): name
        for name in dir(functional)
        if name.endswith(("_loss", "cross_entropy", "kl_div", "cross_entropy_with_logits"))
    }
    near = difflib.get_close_matches(wanted, names, 1)
    name = SHORT_LOSSES.get(wanted) or (names[near[0]] if near else "mse_loss")
    return f"loss=lambda output: torch.nn.functional.{name}(output, target)"


def check_capture(value: Any, verb: str) -> None:
    """Raise unless the argument of `bp.<verb>` is a Capture."""
    if isinstance(value, Capture):
        return
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        rest = ", path)" if verb == "save" else ", x)" if verb == "replay" else ")"
        raise UsageError(f"bp.{verb} takes a Capture, not a path: load it first, bp.{verb}(bp.load({path!r}){rest}")
    example = "bp.capture(model, x)"
    raise UsageError(f"bp.{verb} takes a Capture, not {kind(value)}: capture it first, bp.{verb}({example})")


def check_function_call(fn: Any, like: Any, dtypes: Any, order: Any, times: Any) -> None:
    """Raise for a call of `bp.check` that cannot be right: `fn` and the reference `like` must be functions, `dtypes`
    floating-point dtypes, `order` 1 for gradients or 2 for gradients of gradients, and `times` the factor by which the
    reference's own error may be exceeded."""
    import torch

    # `like=None` is the default: there is no reference then.
    for name, value in (("fn", fn), ("like", like)):
        if not callable(value) and not (name == "like" and value is None):
            raise UsageError(
                f"bp.check takes functions, and {name} is {kind(value)}: write bp.check(fn, x, w, like=reference)"
            )
        if isinstance(value, type):
            instead = f"{value.__name__}.apply" if hasattr(value, "apply") else f"{value.__name__}(...)"
            raise UsageError(f"bp.check takes functions, and {name} is the class {value.__name__}: pass {instead}")
    check_sequence("dtypes", dtypes)
    for dtype in dtypes:
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise UsageError(f"dtypes has {dtype!r:.60}: name floating-point dtypes, as in dtypes=(torch.bfloat16,)")
    if order not in (1, 2):
        raise UsageError(f"order={order!r:.60}: bp.check compares gradients (1), and gradients of these (2)")
    if not isinstance(times, (int, float)) or not 0 < times < float("inf"):
        raise UsageError(
            f"times={times!r:.60}: how many times the reference's own error the function may be off by, as in times=3"
        )


def check_save(capture: Any, path: Any) -> None:
    """Raise if the arguments of a save are swapped, or are not a Capture and a path."""
    if isinstance(path, Capture):
        raise UsageError(f"bp.save takes the Capture first: write bp.save(capture, {str(capture)!r:.{MAX_SHOWN}})")
    check_capture(capture, "save")
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"bp.save writes to a path, not to {kind(path)}: write capture.save('samples/name')")


def check_export_call(
    capture: Any, path: Any, backend: Any, direction: object, data: object, allow: Sequence[str]
) -> None:
    """Raise if `bp.export` is not given a Capture or the path of a sample, a path to write to, and known options: the
    name of a `backend` of torch.compile or None, words for `direction` and `data`, and in `allow` names of custom
    operators."""
    if not isinstance(capture, (str, os.PathLike)):
        check_capture(capture, "export")
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"bp.export writes to a path, not to {kind(path)}: write bp.export(capture, 'repro.py')")
    if backend is not None and not (isinstance(backend, str) and backend and backend.isprintable()):
        raise UsageError(
            f"backend={backend!r:.60} is not a name: write one that torch.compile knows, or 'file.py:function'"
        )
    check_choice("direction", direction)
    check_choice("data", data, optional=True)
    check_sequence("allow", allow)


def check_load(path: Any) -> None:
    """Raise if the argument is not a path, or is a file of a sample."""
    if isinstance(path, Capture):
        raise UsageError("bp.load reads a sample from its folder, and this is a Capture already: use it as it is")
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"bp.load takes the path of a sample's folder, not {kind(path)}")
    place = Path(path)
    if not place.is_file():
        return
    # A file is refused only inside a sample. What else a file may be, the loader says better.
    folder = next((parent for parent in place.parents if (parent / "capture.json").is_file()), None)
    if folder is not None:
        raise UsageError(f"{place} is a file of a sample: load its folder, bp.load({str(folder)!r})")


# ---- Values and callables
# torch is imported inside of functions: this room is read without it.


def kind(value: Any) -> str:
    """Describe a value in a few words, for a message: `a tensor of shape [4, 3]`, `the class Linear`, `a dict`."""
    if is_tensor(value):
        return f"a tensor of shape {list(value.shape)}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    import torch

    return isinstance(value, torch.Tensor)


def _leaves_of(value: Any) -> list[Any]:
    """Return the leaves of a value by torch's pytree."""
    from backprint._torch.pytree import tree_leaves

    return list(tree_leaves(value))


def _has_tensors(value: Any) -> bool:
    """Whether a value is a tensor or a container with one."""
    return any(map(is_tensor, _leaves_of(value)))


def name_of(target: Any) -> str:
    """Return the name of a function, or of the class of a callable object: a module has no name of its own."""
    return getattr(target, "__name__", None) or type(target).__name__


def parameters_of(target: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a callable, or of a module's forward, by name; None if Python knows no signature of
    it, as of some builtins."""
    try:
        return inspect.signature(getattr(target, "forward", target)).parameters
    except (TypeError, ValueError):
        return None


def _binds(target: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a callable accepts these arguments; True if Python knows no signature of it."""
    try:
        inspect.signature(getattr(target, "forward", target)).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # no signature
        return True
    return True


NEEDS_GROUP = ("Default process group has not been initialized", "Error initializing torch.distributed")
"""How PyTorch's errors begin that say that a program needs a process group."""


@contextlib.contextmanager
def with_advice_on_ranks() -> Iterator[None]:
    """Raise UsageError, which says what to do, in the place of the ValueError by which torch says in the block that
    there is no process group."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(NEEDS_GROUP):
            raise
        raise UsageError(
            f"the program is one of several ranks ({error}): capture them all here, without a process group, with "
            "world=2 (--world 2), or run it under torchrun, where it has one"
        ) from error
