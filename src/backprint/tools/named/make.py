"""Make the model that a name names, by its library, with one line for each thing that may be missing."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backprint.errors import BackprintError, UsageError
from backprint.tools.named.names import Name, parse_name


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model in train mode with its arguments; `loss` is an option of `bp.capture`, `notes` say what was made up."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Any = None
    notes: tuple[str, ...] = ()

    def as_result(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return what a factory returns."""
        return self.model, self.args, self.kwargs


def make_named(target: Any) -> NamedModel:
    """Make the model that a TARGET such as `hf:gpt2` names, with inputs; the random state of torch stays as it was."""
    import torch

    name = parse_name(target)
    module = importlib.import_module(f"backprint.tools.named.{MAKERS[name.scheme]}")
    make: Callable[[Name, Any], NamedModel] = module.make
    library = imported(name)
    with quiet(name.library), torch.random.fork_rng(devices=[]):  # of the CPU's generator: models are made there
        torch.manual_seed(SEED)
        return make(name, library)


SEED = 0
"""The seed of the weights and the inputs: a name means the same model every time."""

MAKERS: Mapping[str, str] = {"hf": "hub", "timm": "vision", "torchvision": "vision"}
"""The module of this package with `make` for the names of a scheme."""

EXTRAS: Mapping[str, str] = {"hf": "models", "timm": "vision", "torchvision": "vision"}
"""The extra that installs a scheme's library: a torchvision is of one torch, which pip installs with it."""


def imported(name: Name) -> Any:
    """Import the library of a name; UsageError with one line if it is not here, or does not import."""
    is_first_import = name.library not in sys.modules
    install = f"pip install 'backprint[{EXTRAS[name.scheme]}]'"
    try:
        with quiet(name.library):
            library = importlib.import_module(name.library)
    except ModuleNotFoundError as error:
        if error.name == name.library:
            raise UsageError(f"{name.text}: {name.library} is not installed: {install}") from None
        raise UsageError(
            f"{name.text}: {name.library} needs {error.name}, which is not installed: {install}"
        ) from error
    except Exception as error:  # a build that does not fit this torch raises whatever it meets
        raise UsageError(
            f"{name.text}: the {name.library} that is installed cannot be imported: {first_line(error)}; its build has "
            "to be that of your torch (pip install --force-reinstall torch torchvision)"
        ) from error
    if is_first_import and name.library == "transformers":
        library.logging.set_verbosity_error()  # a program that had imported it before keeps its own setting
    return library


def first_line(error: BaseException) -> str:
    """Return an error in a line: its type, and the first 240 characters of its message."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:240]}" if message else type(error).__name__


@contextlib.contextmanager
def quiet(library: str, others: bool = True) -> Iterator[None]:
    """In this block, keep the warnings and the log of a library from the output, with `others` all warnings, and keep
    the library from networks."""
    logger = logging.getLogger(library)
    level = logger.level
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        # The modules whose warnings are ignored, as a pattern: '' is for all.
        warnings.filterwarnings("ignore", module="" if others else rf"{library}(\.|$)")
        logger.setLevel(logging.CRITICAL)
        stack.callback(logger.setLevel, level)
        stack.enter_context(offline())
        yield


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """In this block, huggingface_hub is in offline mode, if it is installed: transformers and timm download through
    it."""
    try:
        constants: Any = importlib.import_module("huggingface_hub.constants")
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def refused(name: Name, what: str, error: Exception) -> BackprintError:
    """Return the error to raise for a model that could not be made from the name alone, which begins with the name: an
    error of ours as it is otherwise, any other as a UsageError that says `what` and why."""
    if isinstance(error, BackprintError):
        return error if str(error).startswith(name.text) else type(error)(f"{name.text}: {error}")
    return UsageError(f"{name.text}: {what}: {first_line(error)}")
