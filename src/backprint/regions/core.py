"""What a region has seen: its passes, the operators that no pass has reached, and where its NaN and Inf come from.

`watch` tells a RegionCore of nodes and operators, `follow` of backward calls. The nodes made in a region hold its core,
and the core holds none of them, so it lives as long as a backward may still reach the region.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from types import CodeType

from backprint.defects import told_whole
from backprint.errors import RegionError
from backprint.regions.bounds import PassBounds, PassCount, count_of
from backprint.regions.build import PassBuild, origin_of
from backprint.regions.follow import BackwardCall
from backprint.regions.names import UserNames, operator_of
from backprint.regions.nodes import NodeRecord, OperatorRun, stack_line
from backprint.regions.nouns import NonfiniteOrigin, Pass, RegionForward, UnreachedOperator, Unwatched
from backprint.regions.write import DumpedPass, write_pass, write_unreached


class RegionCore:
    """A region's state, shared by the Region and the nodes that were made in it."""

    closed = False

    def __init__(
        self, path: Path | None, level: str, stacks: bool, title: str | None, bounds: PassBounds, key: tuple[str, ...]
    ) -> None:
        self.path, self.level, self.stacks, self.bounds, self.key = path, level, stacks, bounds, key
        self.watches = level != "none"
        self.count = PassCount() if path is None else count_of(*key)
        self.reached = False
        self.bads: dict[str, OperatorRun] = {}
        self.title = title or "region"
        self.head = title or "pass"
        self.passes: list[Pass | DumpedPass] = []
        self.errors: list[str] = []
        self.names = UserNames()
        self.waiting: dict[int, NodeRecord] = {}
        self.lost: Counter[tuple[str, tuple[CodeType, int] | None]] = Counter()
        self.all: Counter[tuple[str, tuple[CodeType, int] | None]] = Counter()
        self.ranks: Counter[str] = Counter()
        self.fresh = False
        self.living = 0
        self.written = False
        self.forward = RegionForward()
        self.lock = threading.RLock()

    # -------------------------------------------------------------- what `watch` tells

    def node_made(self, made: NodeRecord) -> None:
        """Count a node that was made in an open block, and keep its record until a pass reaches it."""
        with self.lock:
            self.living += 1
            self.waiting[made.seq] = made

    def operator_ran(self, ran: OperatorRun) -> None:
        """Count an operator that ran in an open block. Counts restart after a pass: each step has the same names."""
        with self.lock:
            if self.fresh:
                self.ranks.clear()
                self.bads.clear()
                self.fresh = False
            self.all[ran.name, ran.frame] += 1
            if ran.nodes:
                ran.rank[id(self)] = self.ranks[ran.packet]
                self.ranks[ran.packet] += 1

    def went_bad(self, ran: OperatorRun) -> None:
        """Keep the first operator that returned NaN or Inf; a constant Inf of the program itself does not count."""
        if ran.source is not None and not ran.source.given:
            with self.lock:
                self.bads.setdefault(ran.source.what, ran)

    def nodes_died(self, made: list[NodeRecord]) -> None:
        """Count the nodes that were freed; an operator whose nodes no pass reached is lost."""
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

    def backward_ended(self, call: BackwardCall, error: str) -> None:
        """Take what a backward call saw of the region. An error here is reported, and never stops the backward."""
        with self.lock:
            try:
                self.take(PassBuild(self, call), error)
            except Exception as wrong:  # a backward must not fail because of a dump
                self.failed(wrong)

    def take(self, build: PassBuild, error: str) -> None:
        """Keep a Pass of a backward call, if any node of the region ran."""
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
        if not self.closed:  # else this was done at the end of the block
            self.names.settle()
        found = build.make_pass(number, error)
        if (self.bounds.only_bad and not found.bad) or not self.count.keep(self.bounds):
            return
        self.passes.append(found)
        if self.path is not None:
            self.dump(len(self.passes) - 1)

    def reach(self, kind: str, made: NodeRecord) -> None:
        """Mark a node as reached, and the others that were made for the same operator."""
        self.waiting.pop(made.seq, None)
        ran = operator_of(kind, made)
        for each in ran.nodes if ran is not None else ():
            self.waiting.pop(each.seq, None)

    def dump(self, index: int) -> None:
        """Write a pass to disk; one that cannot be written stays in memory, with a warning."""
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
        """Warn of an error in watching, once; the program goes on."""
        text = str(error) if isinstance(error, RegionError) else told_whole(error)
        if text in self.errors:
            return
        self.errors.append(text)
        warnings.warn(f"backprint: {text}", RuntimeWarning, stacklevel=4)

    # -------------------------------------------------------------- the end

    def unreached(self) -> list[UnreachedOperator]:
        """The operators that no pass has reached; before the first pass, all that ran."""
        with self.lock:
            if not self.reached:
                counts = self.all
            else:
                counts = Counter(self.lost)
                found = {id(made.after[0]): made.after[0] for made in self.waiting.values() if made.after}
                counts.update((ran.name, ran.frame) for ran in found.values())
            return [
                UnreachedOperator(name, stack_line(frame) if frame else None, count)
                for (name, frame), count in counts.items()
                if count
            ]

    def settle(self) -> None:
        """Write the forward of a region that no pass has reached and none can reach any more."""
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
        """Whether the forward of an unreached region is kept: the bounds of passes count such forwards separately."""
        count = count_of(*self.key, "unreached")
        due = count.is_due(count.take(), self.bounds)
        return due and (not self.bounds.only_bad or "NaN" in self.bads) and count.keep(self.bounds)

    def origin(self) -> NonfiniteOrigin | Unwatched | None:
        """Where the NaN of the forward come from, or else its Inf; None where there are none."""
        with self.lock:
            ran = self.bads.get("NaN") or self.bads.get("Inf")
        if ran is not None:
            return origin_of(self, ran)
        return None if self.watches else Unwatched()

    def __del__(self) -> None:
        if self.closed and not sys.is_finalizing():
            self.settle()
