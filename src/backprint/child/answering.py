"""The process that answers requests, seen from inside: an error of a kind that is told is sent as such, and any other
is Backprint's own defect.

A request is a JSON object: under `do` the name of what to do, and beside it the values for that (`Child.request`). The
answer is an object too: what the method `do_NAME` returns; or an error, as its text under the key that `told` has for
its class; or under `defect` the traceback of any other.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from backprint.child.child import Line


class Answering:
    """What answers requests: each method `do_…` answers one kind."""

    told: Mapping[str, type[Exception]] = {}
    """The errors that are sent as text, by the keys of their answers: those of the Child that asks."""

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a request; return its results, or the error as a value."""
        name = request["do"]
        values = {key: value for key, value in request.items() if key != "do"}
        try:
            answer: Mapping[str, Any] = getattr(self, f"do_{name}")(**values)  # as `Child.request` sends it
            return answer
        except BaseException as error:  # SystemExit too: the parent is told of it, with a traceback
            for key, kind in self.told.items():
                if isinstance(error, kind):
                    return {key: str(error)}
            return {"defect": traceback.format_exc()}


def serve(make: Callable[[], Answering], line: Line) -> None:
    """Answer requests until the line is closed."""
    gc.freeze()  # collecting what is older would copy every page of the process that this was forked from
    work = make()
    for request in line:
        line.send(work.answer(request))
