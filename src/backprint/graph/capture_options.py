"""The options of a capture and their defaults: `bp.capture` and the engines work from this one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from backprint.errors import UsageError


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one call of `bp.capture`, whose docstring explains them.

    `loss` and `decompose` are resolved: a function, and a table of functions by operator.
    """

    engine: str = "auto"
    partition: str | Callable[..., Any] | None = None
    decompose: Mapping[Any, Callable[..., Any]] | None = None
    mode: str | None = None
    loss: Callable[[Any], Any] | None = None
    requires_grad: Any = None
    specialize: bool | None = None
    functional: bool = True
    dynamic: bool | Mapping[str, Any] = False
    fake: bool = False
    stamp: bool = True
    order: int = 1
    allow: Sequence[str] = ()
    meant: Sequence[str] = ()
    world: int | None = None
    shard: Callable[..., Any] | None = None
    ranks: Sequence[int] | None = None
    name: str | None = None

    def as_keywords(self) -> dict[str, Any]:
        """Return the options by name, as a call of `bp.capture` passes them."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    def requests(self) -> dict[str, str]:
        """Return the options of this call that not every engine supports, each as a call writes it: those that ask for
        something, which `dynamic=None` and `decompose={}` do not."""
        return {
            name: text
            for name, text in OF_SOME_ENGINES.items()
            if getattr(self, name) not in (DEFAULTS[name], None, {})
        }


DEFAULTS: Mapping[str, Any] = CaptureOptions().as_keywords()
"""The default of each option."""

GRAD_ROLES: Mapping[str, tuple[str, ...]] = {
    "inputs": ("input",),
    "parameters": ("parameter",),
    "all": ("input", "parameter"),
}
"""The words that `requires_grad` takes, and the roles of the tensors that then require grad: all that can."""


def roles_with_grad(word: str) -> tuple[str, ...]:
    """Return the roles of the tensors that require grad by a word of `requires_grad`."""
    if word not in GRAD_ROLES:
        raise UsageError(
            f"requires_grad={word!r} is a text, and none of {', '.join(map(repr, GRAD_ROLES))}: write "
            f"requires_grad=({word!r},), a name for each tensor"
        )
    return GRAD_ROLES[word]


OF_SOME_ENGINES: Mapping[str, str] = {
    "fake": "fake=True",
    "dynamic": "dynamic=",
    "decompose": "decompose=",
    "functional": "functional=False",
    "order": "order=2",
    "partition": "partition=",
}
"""Options that only some engines support, as messages write them. The table ENGINES in `trace/entry.py` says which
engines do."""
