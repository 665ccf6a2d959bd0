"""Functions that are made of others as text, so that a call costs what its statements cost and nothing else.

What a bench puts around a compiled function is billed to its compiler: a list comprehension and a `tree_unflatten` are
2 to 4 µs, which is a fifth of a small graph's call. The function that is timed is therefore the compiler's own, or a
single expression around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backprint.sample.rerun import laid


def written(arguments: Sequence[str], body: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function of these arguments whose statements are `body`; it knows the names."""
    lines = [f"def call({', '.join(arguments)}):", *(f"    {line}" for line in body)]
    space = dict(names)
    exec(compile("\n".join(lines), "<backprint: a call>", "exec"), space)
    function: Callable[..., Any] = space["call"]
    return function


def arguments_of(count: int) -> list[str]:
    """Return names of so many arguments."""
    return [f"v{place}" for place in range(count)]


def tuple_text(items: Sequence[str]) -> str:
    """Return the text of a tuple of these expressions."""
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


class JoinedStep:
    """A forward and its backward as one function of the forward's inputs and the backward's own.

    It returns all that the forward returns, and then the gradients, so that both can be judged. The backward takes what
    the forward saved, in the strides that it was compiled for: the first call finds which have others, and from then on
    `call` is straight text.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        counts: tuple[int, int],
        sources: Sequence[tuple[bool, int]],
        strides: Mapping[int, tuple[int, ...]],
    ) -> None:
        self.forward, self.backward, self.counts = forward, backward, counts
        self.sources, self.strides = sources, strides
        self.call: Callable[..., Any] = self.first_call

    def first_call(self, *values: Any) -> tuple[Any, ...]:
        """Call both, and write `call` for the strides that were met."""
        results = self.forward(*values[: self.counts[0]])
        taken = [results[place] if saved else values[place] for saved, place in self.sources]
        others = [place for place, stride in self.strides.items() if taken[place].stride() != stride]
        self.call = self.text_for(others)
        for place in others:
            taken[place] = laid(taken[place], self.strides[place])
        return (*results, *self.backward(*taken))

    def text_for(self, others: Sequence[int]) -> Callable[..., Any]:
        """Return the function that lays out these of the backward's inputs."""
        names = arguments_of(sum(self.counts))
        given = [f"r[{place}]" if saved else names[place] for saved, place in self.sources]
        for place in others:
            given[place] = f"laid({given[place]}, s{place})"
        space = {f"s{place}": self.strides[place] for place in others}
        body = [
            f"r = forward({', '.join(names[: self.counts[0]])})",
            f"return (*r, *backward({', '.join(given)}))",
        ]
        return written(names, body, {"forward": self.forward, "backward": self.backward, "laid": laid, **space})
