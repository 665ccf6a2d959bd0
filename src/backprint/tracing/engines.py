"""The engines: how each traces a program, and which requests it supports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch

from backprint.errors import UsageError
from backprint.tracing.aot.engine import by_aot
from backprint.tracing.dynamo.engine import by_dynamo
from backprint.tracing.eager.engine import by_eager
from backprint.tracing.made import Made, Options
from backprint.tracing.program import CalledProgram


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to trace a program. `takes` names the requests that it supports beyond a plain call."""

    name: str
    make: Callable[[CalledProgram, Options], Made]
    takes: frozenset[str]

    def lacks(self, asked: Mapping[str, str]) -> str:
        """Say why this engine cannot do what is requested, and which engines can; '' if it can."""
        missing = {request: words for request, words in asked.items() if request not in self.takes}
        if not missing:
            return ""
        words = " with ".join(missing.values())
        return f"engine {self.name!r} does not take {words}: {able(asked)}"


ENGINES: dict[str, Engine] = {
    each.name: each
    for each in (
        Engine("eager", by_eager, frozenset({"sparse", "order", "updates", "partition"})),
        Engine("aot", by_aot, frozenset({"fake", "dynamic", "decompose", "order", "partition"})),
        Engine("dynamo", by_dynamo, frozenset({"decompose", "partition"})),
    )
}
"""The engines in the order in which `auto` tries them."""

TOGETHER = (("fake", "dynamic"),)
"""Requests that no engine supports together, although one may support each."""


def requests(program: CalledProgram, options: Options, order: int) -> dict[str, str]:
    """Return the requests of a call beyond a plain capture, by name, each in the words of the call."""
    sparse = {name: tensor for name, tensor in program.held().items() if tensor.layout is not torch.strided}
    found = {
        "fake": "fake=True" if options.fake else "",
        "dynamic": "dynamic=" if options.dynamic else "",
        "decompose": "decompose=" if options.decompose else "",
        "updates": "functional=False" if not options.functional else "",
        "order": "order=2" if order == 2 else "",
        "partition": "partition=" if options.partition is not None else "",
        "sparse": next((f"{str(t.layout)[6:]} tensors (input {name!r})" for name, t in sparse.items()), ""),
    }
    return {request: words for request, words in found.items() if words}


def able(asked: Collection[str]) -> str:
    """Say which engines support these requests."""
    names = [repr(each.name) for each in ENGINES.values() if each.takes.issuperset(asked)]
    if not names:
        return "no engine does"
    *others, last = names
    return f"engines {', '.join(others)} and {last} do" if others else f"engine {last} does"


def check_engine(engine: str, asked: Mapping[str, str]) -> None:
    """Raise a UsageError if the requested engine, or with `auto` every engine, does not support the requests."""
    for left, right in TOGETHER:
        if left in asked and right in asked:
            raise UsageError(f"no engine takes {asked[left]} with {asked[right]}: ask for one of them at a time")
    if engine != "auto":
        reason = ENGINES[engine].lacks(asked)
    else:
        every = [each.lacks(asked) for each in ENGINES.values()]
        reason = "" if "" in every else f"no engine takes {' with '.join(asked.values())}: ask for one at a time"
    if reason:
        raise UsageError(reason)


__all__ = ["ENGINES", "Engine", "check_engine", "requests"]
