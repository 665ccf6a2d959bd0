"""Find the echo of each call of a backward: a gradient of a forward value, a sum of gradients, or a recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from backprint.graph.nouns import Echo, Source
from backprint.tracing.eager.placement import Placement, flat
from backprint.tracing.eager.tape import TapedCall

aten = torch.ops.aten

Written = tuple[str, TapedCall]
"""A call, and the name of the value that was written for it."""


class Echoes:
    """The calls written so far, by the autograd node that they made and by what they compute.

    `latest` returns the latest name of a tensor, if any. A checkpoint repeats a call of the forward on the same values:
    `twins` maps the memory of each recomputed value to that of the first one.
    """

    def __init__(self, latest: Callable[[Placement], str]) -> None:
        self.latest = latest
        self.in_backward = False
        self.heads: dict[int, Written] = {}
        self.ahead: list[Written] = []
        self.firsts: dict[str, Written] = {}
        self.twins: dict[int, int] = {}
        self.born: dict[str, int | None] = {}

    def note_birth(self, name: str, call: TapedCall | None) -> None:
        """Note in the backward of which autograd node a value was made."""
        self.born[name] = None if call is None else call.node

    def begin_backward(self) -> None:
        """The following calls belong to the backward."""
        self.in_backward = True

    def note(self, call: TapedCall, name: str) -> None:
        """Remember a call that has been written; for a repeated call, also where its results were the first time."""
        if not self.in_backward:
            self.ahead.append((name, call))
        elif (first := self.first(call)) is not None:
            name = first[0]
            places = zip(flat(call.result), flat(first[1].result), strict=False)
            self.twins |= {a.memory: b.memory for a, b in places if type(a) is Placement is type(b)}
        self.heads.setdefault(call.seq - 1, (name, call))

    # -------------------------------------------------------------- what a call answers to

    def origin(self, call: TapedCall) -> tuple[Source | None, Echo | None]:
        """Return the line and the echo of a call; without a line of its own, the line of the forward call."""
        echo = self.echo(call)
        if echo is not None and call.source is None:
            return self.heads[call.node or 0][1].source, echo
        return call.source, echo

    def echo(self, call: TapedCall) -> Echo | None:
        """Return the echo of a call of the backward."""
        if (first := self.first(call)) is not None:
            return Echo("recomputes", (first[0],))
        if call.node is None or call.node not in self.heads:
            return None
        if call.func in (aten.add.Tensor, aten.add_.Tensor) and (summed := self.summed(call)):
            return Echo("sum of gradients of", (summed,))
        return Echo("gradient of", (self.heads[call.node][0],))

    def first(self, call: TapedCall) -> Written | None:
        """Return the forward's call that a call of the backward repeats, as a checkpoint does, or None."""
        if not self.in_backward or not call.grad:
            return None
        if not self.firsts:
            for name, each in self.ahead:
                self.firsts.setdefault(self.meaning(each), (name, each))
        return self.firsts.get(self.meaning(call))

    def meaning(self, call: TapedCall) -> str:
        """Return a call as text, with recomputed values replaced by the first ones."""
        return repr((call.func, self.at_first(call.args), self.at_first(call.kwargs), call.state))

    def at_first(self, value: Any) -> Any:
        """Replace the Placements of recomputed values by those of the first ones."""
        if type(value) is Placement:
            return value._replace(memory=self.twins.get(value.memory, value.memory))
        if isinstance(value, (tuple, list)):
            return [self.at_first(item) for item in value]
        return {key: self.at_first(item) for key, item in value.items()} if isinstance(value, dict) else value

    def summed(self, call: TapedCall) -> str:
        """Return the forward value whose gradients from two nodes are added; '' if this is not such a sum."""
        sides = []
        for place in call.args[:2]:
            if type(place) is not Placement:
                return ""
            node = self.born.get(self.latest(place))
            if node is None or node not in self.heads:
                return ""
            sides.append((node, {each for each in flat(self.heads[node][1].args) if type(each) is Placement}))
        if sides[0][0] == sides[1][0] and sides[0][0] != call.node:
            return ""
        common = [place for place in sides[0][1] & sides[1][1] if place.shape == call.args[0].shape]
        if not common and call.source is None:  # a gradient that is passed on unchanged was made by an earlier node
            own = [places for node, places in sides if node == call.node]
            common = [place for places in own for place in places if place.shape == call.args[0].shape]
            common = common if len(common) == 1 else []
        return next((name for name in sorted(map(self.latest, common)) if name), "")
