"""The Region that `bp.region` returns: a context manager and decorator that watches its block and backward calls.

A region lives as long as someone holds it, or a node that was made in it: so `with bp.region("dump/"):` without a name
still writes its passes. It never keeps a node, a graph or a gradient of the program alive.

Words of this file: a pass is one backward call that reaches the region; a Pass is the record of it. `level` says which
gradients are kept: "none", "stats" or "values". An OperatorRun (`ran`) is a forward operator that ran, and a NodeRecord
says how the forward made a node. A tag, in the metadata of a node, has the NodeRecord (`made`) and the `cores` of the
regions that the node was made in. A BackwardCall follows one backward call, and a PassBuild makes its Pass.
"""

from __future__ import annotations

import functools
import heapq
import inspect
import os
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar, overload

from backprint.errors import RegionError, UsageError, describe_error
from backprint.graph.verdicts import CANNOT_TELL, Derivative
from backprint.tools.regions import watch
from backprint.tools.regions.build import PassBuild
from backprint.tools.regions.dumps import DumpedPass, write_pass
from backprint.tools.regions.follow import BackwardCall
from backprint.tools.regions.names import UserNames, operator_of, visible_variables
from backprint.tools.regions.nouns import LEVELS, NonfiniteOrigin, Pass, UnreachedOperator, Unwatched
from backprint.tools.regions.origins import origin_of
from backprint.tools.regions.records import Frame, NodeRecord, OperatorRun, stack_line
from backprint.tools.regions.watch import tag_of

# ---- How many passes are kept
# Passes are counted over the regions of one folder, name and line of code in one process: a loop makes a new region on
# the same line each time, so a region alone cannot count. Without a folder each region counts its own.


@dataclass(frozen=True, slots=True)
class PassBounds:
    """Which passes are kept: one of `every`, at most `limit`; with `only_bad` only those with NaN, Inf or an error."""

    every: int = 1
    limit: int | None = None
    only_bad: bool = False


def bounds_of(every: Any, limit: Any, only_bad: Any, gradients: str) -> PassBounds:
    """Make PassBounds of the options of `bp.region`. Values of another type, numbers below 1, and `only_bad` where
    `gradients` says that none are looked at raise UsageError."""
    for name, value, may_be_none in (("every", every, False), ("limit", limit, True)):
        if value is None and may_be_none:
            continue
        if type(value) is not int or value < 1:  # not isinstance: True is an int
            hint = ", or None for all" if may_be_none else ""
            raise UsageError(f"{name}={value!r}: a whole number of passes is expected, 1 or more{hint}")
    if type(only_bad) is not bool:
        raise UsageError(f"only_bad={only_bad!r} is neither True nor False")
    if only_bad and gradients == "none":
        raise UsageError('only_bad=True looks for NaN and Inf: write gradients="stats" or gradients="values" too')
    return PassBounds(every, limit, only_bad)


@dataclass(slots=True)
class PassCount:
    """Numbers the passes of a region from 0: how many began, and how many of them were kept. `free` has numbers that
    were given back: a heap, because the next pass takes the lowest."""

    begun: int = 0
    kept: int = 0
    free: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        """Return the number of a pass that begins."""
        with self.lock:
            if self.free:
                return heapq.heappop(self.free)
            self.begun += 1
            return self.begun - 1

    def give_back(self, number: int) -> None:
        """Give back the number of a call that ran nothing in the region, so that passes have numbers without gaps."""
        with self.lock:
            heapq.heappush(self.free, number)

    def is_due(self, number: int, bounds: PassBounds) -> bool:
        """Whether the pass of this number may be kept, by `every` and `limit`."""
        return number % bounds.every == 0 and (bounds.limit is None or self.kept < bounds.limit)

    def keep(self, bounds: PassBounds) -> bool:
        """Count one more pass that is kept, and return True; False, without counting it, where the limit is reached."""
        with self.lock:
            if bounds.limit is not None and self.kept >= bounds.limit:
                return False
            self.kept += 1
            return True


_counts: dict[tuple[str, ...], PassCount] = {}  # by folder, name of the region, and line of code
_lock = threading.Lock()


def _count_of(*key: str) -> PassCount:
    """Return the PassCount of a folder, a name and a line."""
    with _lock:
        return _counts.setdefault(key, PassCount())


def _forget_counts(folder: str) -> None:
    """Forget the counts of a folder that was deleted."""
    with _lock:
        for key in [key for key in _counts if key[0] == folder]:
            del _counts[key]


# ---- RegionCore: the state of a region
# `watch` passes nodes and operators to a RegionCore, `follow` backward calls. The nodes made in a region hold its core,
# and the core holds none of them, so it lives as long as a backward may still reach the region.


class RegionCore:
    """A region's state, shared by the Region and the nodes that were made in it.

    `title` is the name that the user gave, and `key` the folder, the name and the line of code by which passes are
    counted. `bads`, `ranks` and what `origin` returns are of the forward since the last pass.
    """

    closed = False  # whether the block has ended for good: that of a decorated function never does

    def __init__(
        self, path: Path | None, level: str, stacks: bool, title: str | None, bounds: PassBounds, key: tuple[str, ...]
    ) -> None:
        self.path, self.level, self.stacks, self.bounds = path, level, stacks, bounds
        self.watches = level != "none"
        self.count = PassCount() if path is None else _count_of(*key)
        self.reached = False  # whether a pass has reached the region
        self.bads: dict[str, OperatorRun] = {}  # the first operator that returned `NaN`, and that returned `Inf`
        self.title = title or "region"
        self.head = title or "pass"  # the names of dumped passes begin with it: `pass_0000`
        self.passes: list[Pass | DumpedPass] = []
        self.errors: list[str] = []
        self.names = UserNames()
        # The operators that ran, and those that made nodes and whose nodes no pass has run, by name and line.
        self.all: Counter[tuple[str, Frame | None]] = Counter()
        self.unrun: Counter[tuple[str, Frame | None]] = Counter()
        self.ranks: Counter[str] = Counter()  # how many operators of each name ran since the last pass
        self.pass_ended = False  # whether a pass has ended since the last operator ran
        self.lock = threading.RLock()

    # ---- Called by `watch`

    def operator_ran(self, ran: OperatorRun, made_nodes: bool) -> None:
        """Count an operator that ran in an open block; `made_nodes` says that autograd made nodes for it. `ran.nodes`
        may also be the nodes of an earlier operator, or of the custom function in whose forward it ran.

        Nodes are named after their operators, numbered by `rank`: `mul`, `mul_1`. The numbers restart after a pass, so
        that each step of a training has the same names.
        """
        with self.lock:
            if self.pass_ended:
                self.ranks.clear()
                self.bads.clear()
                self.pass_ended = False
            self.all[ran.name, ran.frame] += 1
            if ran.nodes:
                ran.rank[id(self)] = self.ranks[ran.packet]
                self.ranks[ran.packet] += 1
            # A view that is changed in place gets another node, so its own may never run: it is not called unreached.
            if made_nodes and not ran.view:
                ran.unrun.add(id(self))
                self.unrun[ran.name, ran.frame] += 1

    def went_bad(self, ran: OperatorRun) -> None:
        """Keep the first operator that returned NaN, and the first that returned Inf. One that the program passed to
        the operator as a number, such as `masked_fill(..., -inf)`, is on purpose and does not count."""
        if ran.source is not None and not ran.source.from_number:
            with self.lock:
                self.bads.setdefault(ran.source.what, ran)

    # ---- Called by `follow`

    def backward_ended(self, call: BackwardCall, error: str) -> None:
        """Keep what a backward call saw of the region. `error` is the text of the exception that ended the call, or ''.
        An exception of ours becomes a warning, and never stops the program's backward."""
        with self.lock:
            try:
                self.keep_pass(PassBuild(self, call), error)
            except Exception as own_error:  # a backward must not fail because of a dump
                self.warn_of_error(own_error)

    def keep_pass(self, build: PassBuild, error: str) -> None:
        """Keep the Pass of a backward call if the bounds keep it, and write it if there is a folder.

        If the call ran no node of the region (`build.ran`), as after an error before the first of them, it was no pass,
        and its number goes to the next.
        """
        for error_in_following in build.call.errors:
            self.warn_of_error(error_in_following)
        number = build.call.numbers[self]
        if not build.ran:
            self.count.give_back(number)
            return
        for node in build.ran:
            reached = build.call.nodes[node]
            if reached.record is not None:
                self.count_reached(reached.kind, reached.record)
        self.pass_ended = self.reached = True
        if not self.count.is_due(number, self.bounds):
            return
        if not self.closed:  # else the end of the block has kept the paths of parameters and modules
            self.names.keep_paths()
        region_pass = build.make_pass(number, error)
        if (self.bounds.only_bad and not region_pass.bad) or not self.count.keep(self.bounds):
            return
        self.passes.append(region_pass)
        if self.path is not None:
            self.dump(len(self.passes) - 1)

    def count_reached(self, kind: str, record: NodeRecord) -> None:
        """Take the operator that a node was made for from those that no pass has reached. An operator may have made
        several nodes, and counts once: it is in `ran.unrun` until the first of them.

        `kind` is autograd's name for the node. If no operator of this name ran, the operator is the first that ran
        after the node was made.
        """
        ran = operator_of(kind, record) or next(iter(record.after), None)
        if ran is not None and id(self) in ran.unrun:
            ran.unrun.discard(id(self))
            self.unrun[ran.name, ran.frame] -= 1

    def dump(self, index: int) -> None:
        """Write the pass at `index` of `passes` to disk, and keep only its folder in memory. One that cannot be written
        stays in memory, with a warning."""
        region_pass = self.passes[index]
        assert isinstance(region_pass, Pass)
        assert self.path is not None
        try:
            self.passes[index] = write_pass(region_pass, self.path, self.head)
        except (OSError, RegionError) as error:
            self.warn_of_error(
                RegionError(
                    f"{self.path}: pass {region_pass.index} of {self.title} could not be written ({error}): it is kept "
                    f"in memory, as region.passes[{index}]; make the folder writable and call region.save(path)"
                )
            )

    def warn_of_error(self, error: Exception) -> None:
        """Warn of an error in watching, once; the program goes on."""
        text = str(error) if isinstance(error, RegionError) else describe_error(error)
        if text in self.errors:
            return
        self.errors.append(text)
        warnings.warn(f"backprint: {text}", RuntimeWarning, stacklevel=4)

    # ---- Results of a region

    def unreached(self) -> list[UnreachedOperator]:
        """Return the operators that no pass has reached; before the first pass, all that ran."""
        with self.lock:
            return [
                UnreachedOperator(name, stack_line(frame) if frame else None, count)
                for (name, frame), count in (self.unrun if self.reached else self.all).items()
                if count
            ]

    def origin(self) -> NonfiniteOrigin | Unwatched | None:
        """Return where the NaN of the forward come from, or else its Inf; None where there are none."""
        with self.lock:
            ran = self.bads.get("NaN") or self.bads.get("Inf")
        if ran is not None:
            return origin_of(self, ran)
        return None if self.watches else Unwatched()


# ---- Region

Function = TypeVar("Function", bound=Callable[..., Any])


class Region:
    """The part of an eager program between `with` and the end of its block, and the backward passes that reach it.

    The parameters are those of `bp.region`, checked here but for `bounds`; `site` is the file and line that called it,
    by which passes are counted. `_state` is `new`, `open` or `finished` of a block, and `decorating` of a decorator,
    which begins again with each call.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        gradients: str,
        stacks: bool,
        name: str | None,
        bounds: PassBounds,
        site: str = "",
        derivative: bool = False,
    ) -> None:
        if callable(path):  # `@bp.region` without parentheses passes the function
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
        if place is not None and not place.exists():  # deleted since an earlier region, or new
            _forget_counts(str(place))
        self._core = RegionCore(place, gradients, bool(stacks), name, bounds, (str(place), name or "", site))
        self._state = "new"
        self._frame: FrameType | None = None
        self._derivative, self._derivatives = derivative, list[Derivative]()

    # ---- The block

    def __enter__(self) -> Region:
        if self._derivative:
            raise UsageError(
                "derivative=True needs a function, because it runs once more: put the block into one, and decorate it "
                "with @bp.region(derivative=True)"
            )
        frame = sys._getframe(1)
        self._begin(visible_variables(frame))
        self._frame = frame  # for the variables that it has at the end of the block
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
        """Return a function that runs `function` in the region, at each of its calls.

        A region that was used, and a function that runs in pieces, such as a generator, raise UsageError. With
        `derivative`, the first call is captured before it runs. A call that its signature does not allow raises as it
        does without a region.
        """
        if self._state != "new":
            raise UsageError(USED)
        for is_of_kind, kind in PIECEWISE:
            if is_of_kind(function):
                raise UsageError(
                    f"{function.__qualname__} is {kind}, which runs in pieces: open `with bp.region(...):` inside it"
                )
        self._state = "decorating"
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call_in_region(*args: Any, **kwargs: Any) -> Any:
            try:
                arguments = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError:
                arguments = {}  # the function itself says what is wrong with the call
            if self._derivative:  # of the first call
                self._derivative = False
                # A decorated `forward` is captured as its module: `self` is no input of the program.
                is_forward = bool(args) and getattr(type(args[0]), "forward", None) is call_in_region
                target, rest = (args[0], args[1:]) if is_forward else (function, args)
                self._derivatives += _derivatives_of_call(target, rest, kwargs, function.__qualname__)
            self._begin(arguments)
            outcome: dict[str, Any] = {}  # what the block leaves: a result, unless the function raises
            try:
                outcome["result"] = result = function(*args, **kwargs)
                return result
            finally:
                self._end(outcome)

        call_in_region.region = self  # type: ignore[attr-defined]  # so that what is decorated leads to its passes
        return call_in_region  # type: ignore[return-value]  # functools.wraps gives it the same signature

    def _begin(self, variables: dict[str, Any]) -> None:
        """Open the block. `variables` are those that it can see: their tensors and modules give the names of a Pass.

        A region that is open or finished raises UsageError, but for a decorator, which begins again with each call. A
        folder that cannot be made raises RegionError, and the region is finished.
        """
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
        tensors = core.names.keep_modules(variables)  # which keeps the modules, and returns the tensors
        core.names.keep(tensors)
        watch.open_block(core)

    def _end(self, variables: dict[str, Any]) -> None:
        """Close the block, and keep the names of the tensors that it left in the user's `variables`.

        The name of a tensor that a node of the block made is kept in the NodeRecord, and so lives as long as the node.
        Any other came from outside, and the region keeps its name.
        """
        core = self._core
        watch.close_block(core)
        with watch.unwatched_here():
            for name, tensor in core.names.keep_modules(variables).items():
                tag = tag_of(tensor.grad_fn) if tensor.grad_fn is not None else None
                if tag is not None and core in tag.cores:
                    tag.made.outputs.setdefault(tensor.output_nr, name)
                else:
                    core.names.keep({name: tensor})
            core.names.keep_paths()
        core.closed = self._state != "decorating"

    # ---- Results

    def _repr_html_(self) -> str:
        passes = self.passes
        return passes[-1]._repr_html_() if passes else "<p>no backward pass has reached this region yet</p>"

    @property
    def passes(self) -> Passes:
        """A Pass for each backward call that has reached the region, in order, as far as `every`, `limit` and
        `only_bad` keep them."""
        with self._core.lock:
            return Passes(tuple(self._core.passes))

    @property
    def unreached(self) -> list[UnreachedOperator]:
        """The operators of the region that no pass has reached, with their lines and counts."""
        return self._core.unreached()

    @property
    def origin(self) -> NonfiniteOrigin | Unwatched | None:
        """Where the NaN, or else the Inf, of the forward since the last pass come from; needs no backward."""
        return self._core.origin()

    @property
    def derivatives(self) -> list[Derivative]:
        """With `derivative=True`, whether the backward of the decorated function is the derivative of its forward, on
        the arguments of its first call; empty before."""
        return list(self._derivatives)

    @property
    def errors(self) -> list[str]:
        """Errors of the region itself: passes that could not be written, gradients that could not be kept."""
        return list(self._core.errors)

    @property
    def path(self) -> Path | None:
        """The folder that passes are written to."""
        return self._core.path

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the passes that are in memory below `path`, and keep only their folders in memory; return these. A
        pass that cannot be written raises RegionError, and those before it are written."""
        core, folders = self._core, []
        with core.lock:
            for index, kept in enumerate(core.passes):
                if isinstance(kept, Pass):
                    try:
                        core.passes[index] = written = write_pass(kept, Path(path).absolute(), core.head)
                    except OSError as error:
                        raise RegionError(f"{path}: pass {index} could not be written: {error}") from error
                    folders.append(written.place)
        return folders

    def __repr__(self) -> str:
        return f"<region {self._core.title}: {self._state}, {len(self._core.passes)} passes>"


class Passes(Sequence[Pass]):
    """The passes of a region; those on disk are read when they are indexed."""

    def __init__(self, passes: tuple[Pass | DumpedPass, ...]) -> None:
        self._found = passes

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Pass: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pass]: ...
    def __getitem__(self, index: int | slice) -> Pass | list[Pass]:
        if isinstance(index, slice):
            return [_read_if_dumped(each) for each in self._found[index]]
        return _read_if_dumped(self._found[index])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Passes) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __repr__(self) -> str:
        written = sum(not isinstance(row, Pass) for row in self._found)
        return f"<{len(self._found)} passes" + (f", {written} of them on disk>" if written else ">")


def _read_if_dumped(region_pass: Pass | DumpedPass) -> Pass:
    """Return a pass, read from disk if it was written."""
    return region_pass if isinstance(region_pass, Pass) else region_pass.read_pass()


# Functions that only begin when they are called, so that a decorator would close the block too early.
PIECEWISE = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isgeneratorfunction, "a generator"),
    (inspect.isasyncgenfunction, "an async generator"),
)

USED = "this region is finished: make a new bp.region(...) for each block; region.passes keeps what it has seen"


def _derivatives_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str
) -> list[Derivative]:
    """Capture a call, unseen by regions, and return for each Pair of the Capture whether its backward is the derivative
    of its forward. Any error is returned as a Derivative that says `cannot tell`, because the program must go on."""
    from backprint.derive.check import derivatives_of
    from backprint.graph.capture_options import CaptureOptions
    from backprint.prove.capturing import capture_call

    with watch.unwatched_here():
        try:
            # Not `proved`, which would run the program once more only to compare the Capture with it.
            return derivatives_of(capture_call(function, args, kwargs, CaptureOptions(name=name), proved=False))
        except Exception as error:
            return [Derivative(CANNOT_TELL, name, describe_error(error))]
