"""The log of a run: every operator, with what it takes and returns, and where the program calls it.

A run with few layers and a run of the whole are compared by it. Values are known by the row that made them, so the log
also has which operator reads which result. Nothing is computed: the run is the one that a capture without values begins
with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from backprint._torch.modes import DisableTorchFunction
from backprint._torch.tensors import storage_id
from backprint.fx.convert import tensor_spec
from backprint.tracing import frames
from backprint.tracing.stamping.extend import Row, family
from backprint.tracing.watch import Watch
from backprint.tree import plain_leaves


class LoggedWatch(Watch):
    """A watched run that also writes a row for every tensor of the program, every operator, and every output."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rows: list[Row] = []
        self.opened = False
        self.ready: Mapping[str, Tensor] = {}
        self.heads: dict[Any, Any] = {}
        self.labels: dict[int, str] = {}
        self.kept: list[Tensor] = []
        self.memory: dict[int, str] = {}

    def know(self, named: Mapping[str, Tensor], callers: Any) -> Watch:
        self.ready = named
        with DisableTorchFunction():
            for name, tensor in named.items():
                self.rows.append(Row(("input", tensor_spec(tensor), tensor.requires_grad, family(name)), (name,)))
                self.label(tensor, f"input {name}")
        return super().know(named, callers)

    def label(self, tensor: Tensor, label: str) -> None:
        """Name a tensor, which is kept, so that no other can have its identity."""
        if id(tensor) not in self.labels:
            self.kept.append(tensor)
            self.memory.setdefault(storage_id(tensor.untyped_storage()), label)
        self.labels[id(tensor)] = label

    def label_of(self, tensor: Tensor) -> str:
        """Return the label of a tensor; one that no operator returned has that of its memory."""
        if id(tensor) not in self.labels:
            memory = storage_id(tensor.untyped_storage())
            label = self.memory.get(memory)
            self.label(tensor, f"outside {len(self.rows)}" if label is None else f"in {label}")
        return self.labels[id(tensor)]

    def run_explained(self, func: Any, args: Any, kwargs: Any, names: frozenset[str]) -> Any:
        if func.namespace == "prim":  # a question about a tensor, such as its device: nothing runs
            return super().run_explained(func, args, kwargs, names)
        head: list[Any] = [func, torch.is_grad_enabled()]
        items: list[Any] = []
        with DisableTorchFunction():
            self.describe((args, kwargs), head, items)
        result = super().run_explained(func, args, kwargs, names)
        with DisableTorchFunction():
            for count, leaf in enumerate(plain_leaves(result)):
                if isinstance(leaf, Tensor):
                    head.append((leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.device))
                    self.label(leaf, f"{len(self.rows)}.{count}")
                else:
                    head.append(repr(leaf))
        where = frames.here(self.paths)
        if where is not None:
            head += (where.file, where.function, where.code, family(where.module))
            items += (where.line, where.module)
        made = tuple(head)
        self.rows.append(Row(self.heads.setdefault(made, made), tuple(items)))
        return result

    def describe(self, value: Any, head: list[Any], items: list[Any]) -> None:
        """Add an argument of an operator to a row."""
        kind = type(value)
        if isinstance(value, Tensor):
            items.append(self.label_of(value))
            head.append(("tensor", value.requires_grad, value.is_leaf, self.content(value)))
        elif kind is int:
            items.append(value)
            head.append(int)
        elif kind in (list, tuple, torch.Size):
            head.append((kind, len(value)))
            for part in value:
                self.describe(part, head, items)
        elif kind is dict:
            head.append((kind, tuple(value)))
            for part in value.values():
                self.describe(part, head, items)
        else:
            head.append((kind, repr(value)))

    def content(self, tensor: Tensor) -> bytes | None:
        """Return the values of a tensor that was written as numbers in the program, if they are known."""
        if self.world is None or not self.labels[id(tensor)].startswith("outside"):
            return None
        return self.world.content_of(tensor)

    def follow(self, result: Any, names: frozenset[str]) -> Any:
        self.opened = True
        return super().follow(result, names)

    def judge_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        super().judge_outputs(outputs)
        for name, tensor in outputs.items():
            self.rows.append(Row(("output", tensor_spec(tensor), tensor.requires_grad), (name, self.label_of(tensor))))
