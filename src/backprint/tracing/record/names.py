"""Name the tensors of a running script after the variables of its frames."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from backprint.tracing import frames
from backprint.tracing.reach import children, state_of_optimizer

Named = dict[int, tuple[str, Tensor]]
"""Tensors with their names, by identity."""


def names_in_frames(frame: Any) -> Named:
    """Name tensors after the variables of the user's frames; names in a model come first."""
    roots: list[tuple[str, Any]] = []
    while frame is not None:
        if frames.is_users(frame.f_code.co_filename):
            roots += variables(frame).items()
        frame = frame.f_back
    named: Named = {}
    every = list(reachable_names(roots))
    for prefix, value in every:
        if isinstance(value, nn.Module):
            for name, tensor in (*value.named_parameters(), *value.named_buffers()):
                named.setdefault(id(tensor), (f"{prefix}.{name}", tensor))
    for prefix, value in every:
        if isinstance(value, torch.optim.Optimizer):
            for name, tensor in state_of_optimizer(value).items():
                named.setdefault(id(tensor), (f"{prefix}.state.{name}", tensor))
    for prefix, value in every:
        if isinstance(value, Tensor):
            named.setdefault(id(value), (prefix, value))
    return named


def variables(frame: FrameType) -> dict[str, Any]:
    """Return a frame's variables. Python's snapshot of a function's variables is cleared: it would keep tensors
    alive."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    before = {id(held) for held in gc.get_referents(frame) if type(held) is dict}
    snapshot = frame.f_locals
    found = dict(snapshot)
    if type(snapshot) is dict and id(snapshot) not in before:
        snapshot.clear()
    return found


def reachable_names(roots: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield what variables hold, breadth first, and what that holds, by dotted names."""
    queue = [(name, value, 0) for name, value in roots if not name.startswith("__")]
    visited: set[int] = set()
    for name, value, depth in queue:
        if id(value) in visited or len(visited) > 20_000:
            continue
        visited.add(id(value))
        yield name, value
        if depth < 3 and not isinstance(value, (Tensor, nn.Module, torch.optim.Optimizer, type)):
            with contextlib.suppress(Exception):  # an object of the script's may raise
                queue += [(f"{name}.{key}", child, depth + 1) for key, child in children(value)]


def own_names(outside: Sequence[Tensor], known: Named) -> dict[str, str]:
    """Return a name for every tensor that a step took from `outside`, by its key."""
    found: dict[str, str] = {}
    names = {key: name for key, (name, _) in known.items()}
    grads = {id(t.grad): names.get(id(t)) for t in outside if t.is_leaf and t.grad is not None}
    taken: set[str] = set()
    count = 0
    for index, tensor in enumerate(outside):
        name = names.get(id(tensor))
        if name is None and grads.get(id(tensor)):
            name = f"{grads[id(tensor)]}.grad"
        name = name and re.sub(r"[^\w.]+", "_", name)[:200]  # keys of dicts may be any text
        if name is None or name in taken:
            name, count = f"input_{count}", count + 1
        taken.add(name)
        found[f"outside {index}"] = name
    return found
