"""How this room names private parts of PyTorch: rows of tables, names that are looked up when they are first used, and
probes.

Each module of the room has a table NAMES. Its rows are private names: where torch keeps the name, what Backprint takes
it to promise, and which features stop working without it. Other rooms import the name on the left from the module, as
they would any function or class (PEP 562: `__getattr__` of a module). After that it is a plain alias, which costs
nothing a call. A name that this torch does not have is imported too, as a class that raises PrivateApiError wherever it
is used. Where more than a name is needed, the module has a function, with its branches by version inside. Its table
PROBES says for each name and each function how to find out whether it holds.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NoReturn, ParamSpec, TypeVar

from backprint.errors import PrivateApiError

# ---- What stops working

CAPTURE = "capture"
EAGER, DYNAMO, AOT = "engine eager", "engine dynamo", "engine aot"
FAKE = "capture fake=True"
REPLAY = "replay and verify"
SAMPLES = "save and load"
RECORD = "record"
REGIONS = "regions"
GRAPHNET = "GraphNet samples"
TO_FX = "to_fx and export"
BENCH = "bench"
INDUCTOR = "bench --compiler inductor"
KERNELS = "kernels"
RANKS = "ranks of a distributed step"

FEATURES = (
    CAPTURE,
    EAGER,
    DYNAMO,
    AOT,
    FAKE,
    REPLAY,
    SAMPLES,
    RECORD,
    REGIONS,
    GRAPHNET,
    TO_FX,
    BENCH,
    INDUCTOR,
    KERNELS,
    RANKS,
)
"""The features that can need a private name, in the words of `backprint doctor`."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    CAPTURE: (EAGER, DYNAMO, AOT, FAKE, RECORD, GRAPHNET),
    AOT: (DYNAMO, FAKE),
    REPLAY: (CAPTURE, BENCH, RANKS),
    TO_FX: (BENCH, KERNELS),
    BENCH: (INDUCTOR,),
}
"""The features that stop too where one of these does not work. A capture, for example, is proved by a replay."""


def stopped_by(features: Iterable[str]) -> tuple[str, ...]:
    """Return all features that stop working where these do not work, in the order of FEATURES."""
    stopped, rest = set[str](), list(features)
    while rest:
        feature = rest.pop()
        if feature not in stopped:
            stopped.add(feature)
            rest += NEEDS.get(feature, ())  # those that need this one
    return tuple(feature for feature in FEATURES if feature in stopped)


# ---- Names and probes


@dataclass(frozen=True, slots=True)
class Probe:
    """A check in milliseconds: whether a private part of torch behaves here as Backprint takes it to.

    `holds` returns whether it does, or raises the error that it met. `needed_by` are FEATURES that stop without it.
    """

    name: str
    holds: Callable[[], bool]
    needed_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Private:
    """A private name of torch: its path, its promise in a sentence, and the FEATURES that stop without it.

    `of` returns an object that has the attribute; the name is then a function that reads it of its argument.
    `passed` are the parameters that Backprint passes by name. `holds` is a check of the behaviour, where one is cheap.
    Where torch renamed it, `path` is the newest path. `other_paths` are the paths of older versions, tried next.
    """

    path: str
    promise: str
    needed_by: tuple[str, ...]
    of: Callable[[], Any] | None = None
    passed: tuple[str, ...] = ()
    holds: Callable[[], bool] | None = None
    other_paths: tuple[str, ...] = ()

    def value(self) -> Any:
        """Return torch's object of this name; with `of`, a function that reads the attribute of its argument. Raise
        PrivateApiError if torch lacks it."""
        if self.of is None:
            return self.first_of_paths()
        _, _, attribute = self.path.rpartition(".")
        if not hasattr(self.of(), attribute):
            raise absent(self.path, self.needed_by)
        return attrgetter(attribute)

    def first_of_paths(self) -> Any:
        """Return the object at the first path that torch has; raise PrivateApiError, which names the newest path."""
        errors = []
        for path in (self.path, *self.other_paths):
            try:
                return at_path(path, self.needed_by)
            except PrivateApiError as error:
                errors.append(error)
        raise errors[0]

    def probe(self) -> Probe:
        """Return the Probe of this name: torch has it, it takes the parameters in `passed`, and `holds` agrees."""

        def is_as_promised() -> bool:
            """Whether torch has this name, and its object accepts `passed`, the parameters that Backprint passes to it
            by name, and passes the check of its behaviour, if this row has one."""
            value = self.value()
            if self.passed and not takes(value, self.passed):
                raise TypeError(f"{self.path} does not take {', '.join(self.passed)}: {inspect.signature(value)}")
            return self.holds is None or self.holds()

        return Probe(self.path, is_as_promised, self.needed_by)


Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

_used: dict[str, list[Probe]] = {}
"""For each module of this room, the probes of the names that its functions use: `uses` enters them, `probes_of` reads
them."""


def uses(*paths: str, needed_by: tuple[str, ...]) -> Callable[[Callable[Asked, Answer]], Callable[Asked, Answer]]:
    """Decorate a function of this room that uses private names of torch at these paths: a call of it raises
    PrivateApiError if torch lacks one of them. `needed_by` are the FEATURES that call the function.

    The names are probed too.
    """

    def decorate(function: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
        """Return the function with the check before each call, and note the probes of its names."""
        _used.setdefault(function.__module__, []).extend(is_there(path, needed_by) for path in paths)

        @functools.wraps(function)
        def call(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
            for path in paths:
                at_path(path, needed_by)
            return function(*args, **kwargs)

        return call

    return decorate


def is_there(path: str, needed_by: tuple[str, ...]) -> Probe:
    """Return a probe that asks only whether torch has a name at this path."""

    def exists() -> bool:
        at_path(path, needed_by)
        return True

    return Probe(path, exists, needed_by)


def probes_of(module: str, names: Mapping[str, Private], *more: Probe) -> tuple[Probe, ...]:
    """Return the probes of a module's table of names, the probes of the names that its functions use (`uses`), and the
    further probes that the module passes."""
    return (*(row.probe() for row in names.values()), *_used.get(module, ()), *more)


def takes(function: Any, names: Iterable[str]) -> bool:
    """Whether a function can be called with these arguments by name."""
    parameters = inspect.signature(function).parameters
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()) or set(names) <= set(
        parameters
    )


# ---- Looking a name up


def look_up(name: str, names: Mapping[str, Private], scope: dict[str, Any]) -> Any:
    """Return torch's object for a name in the table `names`, and enter it into `scope`, the globals of the module that
    has the table. If torch lacks the name, return its stand-in."""
    if name not in names:
        raise AttributeError(f"module {scope['__name__']!r} has no attribute {name!r}")
    try:
        # A global of the module from now on, so `__getattr__` is not called for it again.
        scope[name] = value = names[name].value()
    except PrivateApiError as error:
        return stand_in(str(error))
    return value


def at_path(path: str, needed_by: tuple[str, ...]) -> Any:
    """Return the object at a dotted path, whose modules are imported as needed; if torch lacks it, raise
    PrivateApiError, which names the FEATURES in `needed_by`."""
    parts = path.split(".")
    value: Any = sys.modules.get(parts[0]) or imported(parts[0])
    for count, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            module = ".".join(parts[:count])  # the path up to this part may be a module that is not imported yet
            try:
                value = imported(module)
            except ModuleNotFoundError as error:
                # That module, or one that it is in, is missing: torch lacks the name. If another one is, which torch
                # imports there, the error is raised as it is.
                if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
                    raise absent(path, needed_by) from None
                raise
    return value


def imported(module: str) -> Any:
    """Return a module of torch, imported without torch's own warnings that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(module)


def absent(path: str, needed_by: tuple[str, ...]) -> PrivateApiError:
    """Return the error for a name that this torch does not have."""
    import torch

    return PrivateApiError(f"torch {torch.__version__} has no {path}, which {', '.join(needed_by)} needs")


class StandIn(type):
    """The class of the stand-ins for absent names: any use of one raises PrivateApiError."""

    message: str

    def refuse(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise PrivateApiError, whatever the stand-in is used for."""
        raise PrivateApiError(cls.message)

    __call__ = __instancecheck__ = __subclasscheck__ = __iter__ = __contains__ = __getitem__ = refuse

    def __getattr__(cls, name: str) -> NoReturn:
        # Python and its tools ask any class for such names.
        if name.startswith("__"):
            raise AttributeError(name)
        raise PrivateApiError(cls.message)


def stand_in(message: str) -> type:
    """Return the stand-in for an absent name. As a base of a class it raises too, when the class is made."""

    def refuse_subclass(cls: type, /, **kwargs: Any) -> NoReturn:
        raise PrivateApiError(message)

    return StandIn("Absent", (), {"message": message, "__init_subclass__": refuse_subclass})
