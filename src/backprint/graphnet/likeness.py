"""What makes two GraphNet samples the same program: their code without what is its writer's alone."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

from backprint.graphnet.code import Assign, Augment, Const, Device, Items, Name, Program
from backprint.graphnet.metas import examples_of
from backprint.graphnet.read import read


def identity(folder: Path, exact: bool) -> tuple[str, int]:
    """A text that samples of the same program share, and how many elements its inputs have; `exact` adds the shapes."""
    sample = read(folder)
    assert sample.program is not None  # what is not parsed is refused, as nothing is trusted here
    examples = examples_of(folder)
    inputs = [(argument.name, sample.metas.get(argument.name)) for argument in sample.program.arguments]
    shapes = [(meta.shape, meta.dtype) if meta else examples.get(argument) for argument, meta in inputs]
    text = code_of(sample.program) + (repr(shapes) if exact else "")
    return text, sum(math.prod(meta.shape) for _, meta in inputs if meta)


def code_of(program: Program) -> str:
    """A Program without what is its writer's alone: names, line numbers, devices, and where a value is let go."""
    numbers: dict[str, str] = {}

    def bind(target: Any, to: str = "") -> str:
        match target:
            case Name(id=name):
                numbers[name] = to or f"%{next(fresh)}"
                return numbers[name]
            case Items(items=items):
                return f"({', '.join(map(bind, items))})"
        return said(target)

    def said(value: Any) -> str:
        match value:
            case Name(id=name):
                return numbers[name]
            case Device():
                return "device"
            case tuple():
                return f"({', '.join(map(said, value))})"
            case _ if is_dataclass(value):
                parts = (said(getattr(value, item.name)) for item in fields(value) if item.name != "line")
                return f"{type(value).__name__}({', '.join(parts)})"
        return repr(value)

    fresh = count()
    lines = [f"{bind(Name(argument.name))} {argument.kind}" for argument in program.arguments]
    for line in program.lines:
        match line:
            case Assign(targets=targets, value=Const(value=None)) if all(isinstance(one, Name) for one in targets):
                for target in targets:
                    bind(target, "None")
            case Assign(targets=targets, value=value):
                made = said(value)
                lines.append(f"{' = '.join(map(bind, targets))} = {made}")
            case Augment(target=target, kind=kind, value=value):
                lines.append(f"{said(target)} {kind}= {said(value)}")
            case _:
                lines.append(said(line))
    return "\n".join(lines)
