"""The Region that `bp.region` returns: a context manager and decorator that watches its block and backward calls.

A region lives as long as someone holds it, or a node that was made in it: so `with bp.region("dump/"):` without a name
still writes its passes. It never keeps a node, a graph or a gradient of the program alive.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar, overload

from torch import Tensor

from backprint.errors import RegionError, UsageError
from backprint.regions import watch
from backprint.regions.bounds import PassBounds, bounds_of, forget_counts
from backprint.regions.build import forward_of_region
from backprint.regions.core import RegionCore
from backprint.regions.follow import reachable_nodes
from backprint.regions.names import tag_of, visible_variables
from backprint.regions.nouns import LEVELS, NonfiniteOrigin, Pass, RegionForward, UnreachedOperator, Unwatched
from backprint.regions.write import DumpedPass, forget_numbers, write_pass

Function = TypeVar("Function", bound=Callable[..., Any])


class Region:
    """The part of an eager program between `with` and the end of its block, and the backward passes that reach it."""

    def __init__(
        self, path: str | os.PathLike[str] | None, gradients: str, stacks: bool, name: str | None, bounds: PassBounds,
        site: str = "",
    ) -> None:  # fmt: skip
        if callable(path):
            raise UsageError("@bp.region takes its options first: write @bp.region()")
        if gradients not in LEVELS:
            raise UsageError(f"gradients={gradients!r} is not one of {', '.join(map(repr, LEVELS))}")
        if name is not None and (not name or not all(letter.isalnum() or letter in "-_." for letter in name)):
            raise UsageError(f"name={name!r}: a region's name is of letters, digits, '-', '_' and '.'")
        place = None if path is None else Path(path).absolute()
        if place is not None and place.exists() and not place.is_dir():
            raise UsageError(
                f"{path} is a file: give bp.region a folder, which it makes, for its passes to be written in"
            )
        if place is not None and not place.exists():
            forget_counts(str(place))
            forget_numbers(str(place))
        self._core = RegionCore(place, gradients, bool(stacks), name, bounds, (str(place), name or "", site))
        self._state = "new"
        self._frame: FrameType | None = None

    # -------------------------------------------------------------- the block

    def __enter__(self) -> Region:
        self._begin(sys._getframe(1), {})
        self._frame = sys._getframe(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "open":
            raise UsageError("this region is not open: it begins with `with bp.region(...):`")
        frame, self._frame = self._frame, None
        self._state = "finished"
        self._end(visible_variables(frame) if frame is not None else {})

    def __call__(self, function: Function) -> Function:
        """Decorate a function: each of its calls is in the region."""
        if self._state != "new":
            raise UsageError(USED)
        for test, word in PIECEWISE:
            if test(function):
                raise UsageError(
                    f"{function.__qualname__} is {word}, which runs in pieces: open `with bp.region(...):` inside it"
                )
        self._state = "decorating"
        signature = inspect.signature(function)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            try:
                given = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError:
                given = {}  # the function itself says what is wrong with the call
            with _Block(self, given) as left:
                left["result"] = result = function(*args, **kwargs)
            return result

        inside.region = self  # type: ignore[attr-defined]  # so that what is decorated leads to its passes
        return inside  # type: ignore[return-value]  # functools.wraps gives it the same signature

    def _begin(self, frame: FrameType | None, given: dict[str, Any]) -> None:
        if self._state == "finished":
            raise UsageError(USED)
        if self._state == "open":
            raise UsageError("this region is open already: make a new bp.region(...) for each block")
        if self._state == "new":
            self._state = "open"
        core = self._core
        if core.path is not None:
            try:
                core.path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._state = "finished"
                raise RegionError(f"{core.path}: the folder could not be made: {error.strerror}") from error
        seen = given if frame is None else visible_variables(frame)
        core.names.keep(core.names.look(seen))
        if self._state == "open":
            _left_open[id(self)] = self
        watch.open_block(core)

    def _end(self, left: dict[str, Any]) -> None:
        core = self._core
        watch.close_block(core)
        if self._state != "decorating":
            _left_open.pop(id(self), None)
        with watch.unwatched_here():
            self._look_back(left)
        with core.lock:
            core.closed = self._state != "decorating"
            over = core.closed and not core.living
        if over:
            core.settle()

    def _look_back(self, left: dict[str, Any]) -> None:
        """Name the tensors that the block left in the user's variables; keep its forward until a pass reaches it."""
        core = self._core
        own: list[Tensor] = []
        for name, tensor in core.names.look(left).items():
            record = tag_of(tensor.grad_fn) if tensor.grad_fn is not None else None
            if record is not None and core in record.cores:
                record.made.outputs.setdefault(tensor.output_nr, name)
                own.append(tensor)
            else:
                core.names.keep({name: tensor})
        core.names.settle()
        if core.path is not None and not core.reached and own:
            core.forward = forward_of_region(core, reachable_nodes(own))

    # -------------------------------------------------------------- what came of it

    def _repr_html_(self) -> str:
        passes = self.passes
        return html_of_pass(passes[-1]) if passes else "<p>no backward pass has reached this region yet</p>"

    @property
    def passes(self) -> Passes:
        """A Pass for each backward call that has reached the region, in order, as far as `every`, `limit` and
        `only_bad` keep them."""
        with self._core.lock:
            return Passes(tuple(self._core.passes))

    @property
    def unreached(self) -> list[UnreachedOperator]:
        """The operators of the region that no pass has reached, with their lines and counts."""
        watch.report_dead_nodes()
        return self._core.unreached()

    @property
    def forward(self) -> RegionForward:
        """The autograd graph of the block at its end, where the region has a path and no pass has reached it."""
        return self._core.forward

    @property
    def origin(self) -> NonfiniteOrigin | Unwatched | None:
        """Where the NaN, or else the Inf, of the forward since the last pass come from; needs no backward."""
        return self._core.origin()

    @property
    def errors(self) -> list[str]:
        """Errors of the region itself: passes that could not be written, gradients that could not be kept."""
        return list(self._core.errors)

    @property
    def path(self) -> Path | None:
        """The folder that passes are written to."""
        return self._core.path

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the passes that are in memory below `path`; returns their folders."""
        core, found = self._core, []
        with core.lock:
            for index, each in enumerate(core.passes):
                if isinstance(each, Pass):
                    try:
                        core.passes[index] = written = write_pass(each, Path(path).absolute(), core.head)
                    except OSError as error:
                        raise RegionError(f"{path}: pass {index} could not be written: {error}") from error
                    found.append(written.place)
        return found

    def __repr__(self) -> str:
        return f"<region {self._core.title}: {self._state}, {len(self._core.passes)} passes>"


class Passes(Sequence[Pass]):
    """The passes of a region; those on disk are read when they are indexed."""

    def __init__(self, found: tuple[Pass | DumpedPass, ...]) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Pass: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pass]: ...
    def __getitem__(self, index: int | slice) -> Pass | list[Pass]:
        if isinstance(index, slice):
            return [read_if_dumped(each) for each in self._found[index]]
        return read_if_dumped(self._found[index])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Passes) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __repr__(self) -> str:
        written = sum(not isinstance(each, Pass) for each in self._found)
        return f"<{len(self._found)} passes" + (f", {written} of them on disk>" if written else ">")


def read_if_dumped(found: Pass | DumpedPass) -> Pass:
    """Return a pass, read from disk if it was written."""
    return found if isinstance(found, Pass) else found.read_pass()


class _Block:
    """The region around one call of a decorated function."""

    def __init__(self, region: Region, given: dict[str, Any]) -> None:
        self.region, self.given = region, given
        self.left: dict[str, Any] = {}

    def __enter__(self) -> dict[str, Any]:
        self.region._begin(None, self.given)
        return self.left

    def __exit__(self, *_: object) -> None:
        self.region._end(self.left)


PIECEWISE = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.isasyncgenfunction, "an async generator"),
)

USED = "this region is finished: make a new bp.region(...) for each block; region.passes keeps what it has seen"

_left_open: dict[int, Region] = {}


@atexit.register
def close_left_open() -> None:
    """Close the regions that are still open at exit, with a message; no dump is lost."""
    for region in list(_left_open.values()):
        if region._state == "open":
            print(
                f"backprint: {region!r} was left open at exit: use `with bp.region(...):`, which ends it; what it has "
                "seen is written",
                file=sys.stderr,
            )  # fmt: skip
            region._state = "finished"
            watch.abandon_block(region._core)
            region._core.closed = True
        region._core.settle()
    for core in list(_cores):
        core.settle()


_cores: weakref.WeakSet[RegionCore] = weakref.WeakSet()


def make_region(
    path: str | os.PathLike[str] | None, gradients: str, stacks: bool, name: str | None, every: int, limit: int | None,
    only_bad: bool,
) -> Region:  # fmt: skip
    """Make the Region of a `bp.region` call, known by the line of that call."""
    frame = sys._getframe(2)  # of whoever called `bp.region`
    site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    found = Region(path, gradients, stacks, name, bounds_of(every, limit, only_bad, gradients), site)
    _cores.add(found._core)
    return found


def html_of_pass(backward: Pass) -> str:
    """Return what a notebook shows of a Pass: its picture."""
    from backprint.regions.drawn import html_of_pass as picture_of_pass

    return picture_of_pass(backward)


Pass._repr_html_ = html_of_pass  # type: ignore[attr-defined]  # a verb that is bound to its noun here, where both are known
