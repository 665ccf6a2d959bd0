"""Collectives of a program: seen as operators that return their result, and answered without a process group.

`torch.distributed` has operators that write into their arguments; a mode runs each as those that return their result
(`_torch/distributed.py`). `Answered` is the mode in which a program's collectives are answered by a function of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from backprint._torch.distributed import collective_name, form_of, is_collective, label_of
from backprint._torch.modes import TorchDispatchMode
from backprint.values.exchanges import Answer, Others, call_of
from backprint.values.wrappers import PLAIN


class Answered(TorchDispatchMode):
    """Answers the collectives of a program by a function; every other operator runs as it is."""

    def __init__(self, answer: Answer, label: Callable[[Any], str] = label_of) -> None:
        super().__init__()
        self.answer, self.label = answer, label

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not PLAIN.issuperset(types):
            return NotImplemented
        if (form := form_of(func)) is not None:
            with self:
                return form(*args, **(kwargs or {}))
        if is_collective(func):
            return self.answered(collective_name(func), args)
        return func(*args, **(kwargs or {}))

    def answered(self, name: str, args: Any) -> Tensor:
        """Return what this rank receives."""
        return self.answer(call_of(name, args, self.label), args[0])


class Functional(TorchDispatchMode):
    """Runs collectives that write into their arguments as those that return their result, which have rules for fake
    tensors; every other operator runs as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not PLAIN.issuperset(types):
            return NotImplemented
        if (form := form_of(func)) is None:
            return func(*args, **(kwargs or {}))
        with self:
            return form(*args, **(kwargs or {}))


@contextlib.contextmanager
def answering(peers: Others | None) -> Iterator[None]:
    """Run a program alone among its peers, which answer its collectives; as it is, if it has none."""
    if peers is None:
        yield
        return
    peers.begin()
    with peers.place(), Answered(peers, peers.label):
        yield
