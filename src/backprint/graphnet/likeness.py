"""Whether two GraphNet samples are the same program: their code without names, lines and devices."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

from backprint.graphnet.code import Assign, Augment, Const, DeviceExpr, Items, ModelProgram, Name
from backprint.graphnet.metas import read_symbol_examples
from backprint.graphnet.read import read_graphnet


def sample_identity(folder: Path, exact: bool) -> tuple[str, int]:
    """A text that samples of the same program share, and their inputs' elements; `exact` adds the shapes."""
    sample = read_graphnet(folder)
    examples = read_symbol_examples(folder)
    inputs = [(argument.name, sample.metas.get(argument.name)) for argument in sample.arguments]
    shapes = [(meta.shape, meta.dtype) if meta else examples.get(argument) for argument, meta in inputs]
    if sample.program is not None:
        text = program_text(sample.program)
    else:
        assert sample.graph is not None  # without trust, a sample that is not parsed is refused
        text = sample.graph.hash(sizes=exact)
    text += repr(shapes) if exact else ""
    return text, sum(math.prod(meta.shape) for _, meta in inputs if meta)


def program_text(program: ModelProgram) -> str:
    """A program as a text without names, line numbers, devices, and the lines that only free values."""
    numbers: dict[str, str] = {}

    def bind(target: Any, to: str = "") -> str:
        match target:
            case Name(id=name):
                numbers[name] = to or f"%{next(fresh)}"
                return numbers[name]
            case Items(items=items):
                return f"({', '.join(map(bind, items))})"
        return text_of(target)

    def text_of(value: Any) -> str:
        match value:
            case Name(id=name):
                return numbers[name]
            case DeviceExpr():
                return "device"
            case tuple():
                return f"({', '.join(map(text_of, value))})"
            case _ if is_dataclass(value):
                parts = (text_of(getattr(value, item.name)) for item in fields(value) if item.name != "line")
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
                made = text_of(value)
                lines.append(f"{' = '.join(map(bind, targets))} = {made}")
            case Augment(target=target, kind=kind, value=value):
                lines.append(f"{text_of(target)} {kind}= {text_of(value)}")
            case _:
                lines.append(text_of(line))
    return "\n".join(lines)
