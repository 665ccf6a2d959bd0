"""What `bp.region` gives: a context manager and decorator that watches its block, and backward calls that reach it.

A region lives as long as someone holds it, or a node that was made in it: so `with bp.region("dump/"):` without a name
still writes its passes. Nothing of ours holds a node, a graph or a gradient of the program's.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar, overload

from torch import Tensor

from backprint.errors import RegionError, UsageError
from backprint.regions import watch
from backprint.regions.bounds import Bounds, Count, begin_anew, bounds_of, count_of
from backprint.regions.build import Build, forward_of, origin_of
from backprint.regions.follow import Call, walk
from backprint.regions.names import Names, op_of, record_of, variables
from backprint.regions.nouns import LEVELS, Forward, Op, Origin, Pass, Unwatched
from backprint.regions.watch import Made, Ran, line_of
from backprint.regions.write import Dumped, forget_numbers, write_pass, write_unreached

Function = TypeVar("Function", bound=Callable[..., Any])


class Core:
    """What a region knows. Its nodes hold it, and it holds none of them."""

    closed = False

    def __init__(
        self, path: Path | None, level: str, stacks: bool, title: str | None, bounds: Bounds, key: tuple[str, ...]
    ) -> None:
        self.path, self.level, self.stacks, self.bounds, self.key = path, level, stacks, bounds, key
        self.watches = level != "none"
        self.count = Count() if path is None else count_of(*key)
        self.reached = False
        self.bads: dict[str, Ran] = {}
        self.title = title or "region"
        self.head = title or "pass"
        self.passes: list[Pass | Dumped] = []
        self.errors: list[str] = []
        self.said = 0
        self.names = Names()
        self.waiting: dict[int, Made] = {}
        self.lost: Counter[tuple[str, tuple[CodeType, int] | None]] = Counter()
        self.all: Counter[tuple[str, tuple[CodeType, int] | None]] = Counter()
        self.ranks: Counter[str] = Counter()
        self.fresh = False
        self.living = 0
        self.written = False
        self.forward = Forward()
        self.lock = threading.RLock()

    # -------------------------------------------------------------- what `watch` tells

    def made(self, made: Made) -> None:
        """A node was made in an open block."""
        with self.lock:
            self.living += 1
            self.waiting[made.seq] = made

    def ran(self, ran: Ran) -> None:
        """An operator ran in an open block. Counting begins anew after a pass, so that each step has the same names."""
        with self.lock:
            if self.fresh:
                self.ranks.clear()
                self.bads.clear()
                self.fresh = False
            self.all[ran.name, ran.frame] += 1
            if ran.nodes:
                ran.rank[id(self)] = self.ranks[ran.packet]
                self.ranks[ran.packet] += 1

    def went_bad(self, ran: Ran) -> None:
        """An operator gave NaN or Inf; an Inf that the program wrote itself is no news."""
        if ran.source is not None and not ran.source.given:
            with self.lock:
                self.bads.setdefault(ran.source.what, ran)

    def died(self, made: list[Made]) -> None:
        """Nodes have gone."""
        with self.lock:
            self.living -= len(made)
            for each in made:
                if self.waiting.pop(each.seq, None) is None or each.touched or not each.after:
                    continue
                ran = each.after[0]
                if each is ran.nodes[-1] and not ran.view:  # a changed view gets another node
                    self.lost[ran.name, ran.frame] += 1
            over = self.closed and not self.living
        if over:
            self.settle()

    # -------------------------------------------------------------- what `follow` tells

    def ended(self, call: Call, error: str) -> None:
        """A backward call that could reach the region has ended. What goes wrong here is ours, not the program's."""
        with self.lock:
            try:
                self.take(Build(self, call), error)
            except Exception as wrong:  # a backward must not fail because of a dump
                self.failed(wrong)

    def take(self, build: Build, error: str) -> None:
        """A Pass, where anything inside has run."""
        for wrong in build.call.wrong:
            self.failed(wrong)
        number = build.call.numbers[self]
        if not build.ran:
            self.count.give_back(number)
            return
        for node in build.ran:
            each = build.call.nodes[node]
            if each.made is not None:
                self.reach(each.kind, each.made)
        self.fresh = self.reached = True
        if not self.count.is_due(number, self.bounds):
            return
        found = build.whole(number, error)
        if (self.bounds.only_bad and not found.bad) or not self.count.keep(self.bounds):
            return
        self.passes.append(found)
        if self.path is not None:
            self.dump(len(self.passes) - 1)

    def reach(self, kind: str, made: Made) -> None:
        """A node was reached, and with it the others that were made for the same operator."""
        self.waiting.pop(made.seq, None)
        ran = op_of(kind, made)
        for each in ran.nodes if ran is not None else ():
            self.waiting.pop(each.seq, None)

    def dump(self, index: int) -> None:
        """Write a pass; what cannot be written stays in memory, and is said."""
        found = self.passes[index]
        assert isinstance(found, Pass)
        assert self.path is not None
        try:
            self.passes[index] = write_pass(found, self.path, self.head)
        except (OSError, RegionError) as error:
            self.failed(RegionError(
                f"{self.path}: pass {found.index} of {self.title} could not be written ({error}): it is kept in "
                f"memory, as region.passes[{index}]; make the folder writable and call region.save(path)"
            ))  # fmt: skip

    def failed(self, error: Exception) -> None:
        """Something of ours went wrong: the program goes on, and is told."""
        text = str(error) if isinstance(error, RegionError) else f"{type(error).__name__}: {error}"
        if text in self.errors:
            return
        self.errors.append(text)
        warnings.warn(f"backprint: {text}", RuntimeWarning, stacklevel=4)

    # -------------------------------------------------------------- the end

    def unreached(self) -> list[Op]:
        """The operators that no pass has reached; where none has reached anything, all that ran."""
        with self.lock:
            if not self.reached:
                counts = self.all
            else:
                counts = Counter(self.lost)
                found = {id(made.after[0]): made.after[0] for made in self.waiting.values() if made.after}
                counts.update((ran.name, ran.frame) for ran in found.values())
            return [
                Op(name, line_of(frame) if frame else None, count) for (name, frame), count in counts.items() if count
            ]

    def settle(self) -> None:
        """Nothing can reach the region any more: where nothing has, its forward is written, and that it was so."""
        with self.lock:
            if self.reached or self.written or self.path is None:
                return
            self.written = True
            if not self.keeps_unreached():
                return
            try:
                write_unreached(self.title, self.head, self.forward, self.unreached(), self.origin(), self.path)
            except (OSError, RegionError) as error:
                self.failed(RegionError(f"{self.path}: the forward of {self.title} could not be written: {error}"))

    def keeps_unreached(self) -> bool:
        """Whether the forward of a region that no pass has reached is kept: it is counted by itself, alike."""
        count = count_of(*self.key, "unreached")
        due = count.is_due(count.take(), self.bounds)
        return due and (not self.bounds.only_bad or "NaN" in self.bads) and count.keep(self.bounds)

    def origin(self) -> Origin | Unwatched | None:
        """Where the NaN of the forward come from, or else its Inf."""
        with self.lock:
            ran = self.bads.get("NaN") or self.bads.get("Inf")
        if ran is not None:
            return origin_of(self, ran)
        return None if self.watches else Unwatched()

    def __del__(self) -> None:
        if self.closed and not sys.is_finalizing():
            self.settle()


class Region:
    """The part of an eager program between `with` and the end of its block, and the backward passes that reach it."""

    def __init__(
        self, path: str | os.PathLike[str] | None, gradients: str, stacks: bool, name: str | None, bounds: Bounds,
        site: str = "",
    ) -> None:  # fmt: skip
        if callable(path):
            raise UsageError("@bp.region takes its options first: write @bp.region()")
        if gradients not in LEVELS:
            raise UsageError(f"gradients={gradients!r} is none of {', '.join(map(repr, LEVELS))}")
        if name is not None and (not name or not all(letter.isalnum() or letter in "-_." for letter in name)):
            raise UsageError(f"name={name!r}: a region's name is of letters, digits, '-', '_' and '.'")
        place = None if path is None else Path(path).absolute()
        if place is not None and place.exists() and not place.is_dir():
            raise UsageError(
                f"{path} is a file: give bp.region a folder, which it makes, for its passes to be written in"
            )
        if place is not None and not place.exists():
            begin_anew(str(place))
            forget_numbers(str(place))
        self._core = Core(place, gradients, bool(stacks), name, bounds, (str(place), name or "", site))
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
        self._end(variables(frame) if frame is not None else {})

    def __call__(self, function: Function) -> Function:
        """As a decorator: every call of the function is in the region."""
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
        seen = given if frame is None else variables(frame)
        core.names.keep(core.names.look(seen))
        if self._state == "open":
            _left_open[id(self)] = self
        watch.enter(core)

    def _end(self, left: dict[str, Any]) -> None:
        core = self._core
        watch.leave(core)
        if self._state != "decorating":
            _left_open.pop(id(self), None)
        with watch.aside():
            self._look_back(left)
        with core.lock:
            core.closed = self._state != "decorating"
            over = core.closed and not core.living
        if over:
            core.settle()

    def _look_back(self, left: dict[str, Any]) -> None:
        """What the user calls what the block left behind; and its forward, while no pass has told of it."""
        core = self._core
        own: list[Tensor] = []
        for name, tensor in core.names.look(left).items():
            record = record_of(tensor.grad_fn) if tensor.grad_fn is not None else None
            if record is not None and core in record.cores:
                record.made.outputs.setdefault(tensor.output_nr, name)
                own.append(tensor)
            else:
                core.names.keep({name: tensor})
        core.names.settle()
        if core.path is not None and not core.reached and own:
            core.forward = forward_of(core, walk(own))

    # -------------------------------------------------------------- what came of it

    @property
    def passes(self) -> Passes:
        """A Pass for each backward call that has reached the region, in order, as far as `every`, `limit` and
        `only_bad` keep them."""
        with self._core.lock:
            return Passes(tuple(self._core.passes))

    @property
    def unreached(self) -> list[Op]:
        """The operators of the region that no pass has reached, with their lines."""
        watch.bury()
        return self._core.unreached()

    @property
    def forward(self) -> Forward:
        """What the block left behind, as nodes that took each other's outputs; of a region with a path."""
        return self._core.forward

    @property
    def origin(self) -> Origin | Unwatched | None:
        """Where the NaN, or else the Inf, of the forward come from, since the last pass; without a backward too."""
        return self._core.origin()

    @property
    def errors(self) -> list[str]:
        """What went wrong with the region itself: passes that could not be written, gradients that were not kept."""
        return list(self._core.errors)

    @property
    def path(self) -> Path | None:
        """Where passes are written."""
        return self._core.path

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the passes that are in memory below `path`; gives their folders."""
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
    """The passes of a region; those that are on disk are read when one asks for them."""

    def __init__(self, found: tuple[Pass | Dumped, ...]) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Pass: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pass]: ...
    def __getitem__(self, index: int | slice) -> Pass | list[Pass]:
        if isinstance(index, slice):
            return [read(each) for each in self._found[index]]
        return read(self._found[index])

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Passes) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __repr__(self) -> str:
        return repr([each if isinstance(each, Pass) else f"<pass in {each.place}>" for each in self._found])


def read(found: Pass | Dumped) -> Pass:
    """A pass, from disk if it is there."""
    return found if isinstance(found, Pass) else found.read()


class _Block:
    """One call of a decorated function."""

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
def at_exit() -> None:
    """Regions that nobody closed are closed, and said to have been left open; no dump is lost."""
    for region in list(_left_open.values()):
        if region._state == "open":
            print(
                f"backprint: {region!r} was left open at exit: use `with bp.region(...):`, which ends it; what it has "
                "seen is written",
                file=sys.stderr,
            )  # fmt: skip
            region._state = "finished"
            watch.abandon(region._core)
            region._core.closed = True
        region._core.settle()
    for core in list(_cores):
        core.settle()


_cores: weakref.WeakSet[Core] = weakref.WeakSet()


def make(
    path: str | os.PathLike[str] | None, gradients: str, stacks: bool, name: str | None, every: int, limit: int | None,
    only_bad: bool,
) -> Region:  # fmt: skip
    """A new region."""
    frame = sys._getframe(2)  # of whoever called `bp.region`
    site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    found = Region(path, gradients, stacks, name, bounds_of(every, limit, only_bad, gradients), site)
    _cores.add(found._core)
    return found
