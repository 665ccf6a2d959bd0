"""Remember and restore everything of the caller's that a program can reach."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from backprint.tracing.kept_tensor import is_plain, untraced
from backprint.tracing.picture import Picture
from backprint.tracing.process import globals_kept


@contextlib.contextmanager
def kept(*roots: Any) -> Iterator[Picture]:
    """Restore everything that is reachable from these roots afterwards, whatever happens inside."""
    picture = Picture(("", root) for root in roots)
    OPEN.append(picture)
    with globals_kept():
        try:
            yield picture
        finally:
            OPEN.remove(picture)
            picture.put_back()


OPEN: list[Picture] = []
"""The Pictures that will be restored."""


def given_away(tensor: Tensor) -> None:
    """Keep the content of a tensor whose memory may be written unseen, however large it is."""
    if not is_plain(tensor) or tensor.layout is not torch.strided:
        return
    memory = tensor.untyped_storage()._cdata
    with untraced():
        for picture in OPEN:
            for each in picture.tensors:
                if each.memory == memory and memory not in picture.copied:
                    picture.copied.add(memory)
                    each.copy()
