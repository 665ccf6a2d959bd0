"""The words that options accept, the same in Python and on the command line.

Each set stands here once, as a type that editors complete:

    bp.capture(model, x, engine="e…")      # an editor offers "eager", and a type checker refuses "eger"

CHOICES has the same words for code that looks an option up by its name: the command line, and `check_choice` of `text`.
Words that belong to a table of another room, such as the engines or the draws of a proof, are equal to that table's:
`tests/test_python_face.py` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

EngineWord: TypeAlias = Literal["auto", "aot", "dynamo", "eager"]
ModeWord: TypeAlias = Literal["train", "eval"]
LossWord: TypeAlias = Literal["sum", "mean"]
GradWord: TypeAlias = Literal["inputs", "parameters", "all"]
PartitionWord: TypeAlias = Literal["min-cut", "default"]
DataWord: TypeAlias = Literal["seed", "exact", "none"]
LayoutWord: TypeAlias = Literal["backprint", "graphnet"]
DirectionWord: TypeAlias = Literal["both", "forward", "backward"]
BenchDirectionWord: TypeAlias = Literal["forward", "backward", "step"]
DrawWord: TypeAlias = Literal["captured", "recipe", "fresh", "resized"]
MeasuredPowerWord: TypeAlias = Literal["quick", "own", "all"]
PowerWord: TypeAlias = Literal["none", "quick", "own", "all"]
FilesWord: TypeAlias = Literal["link", "copy", "none"]
FormatWord: TypeAlias = Literal["text", "markdown"]
ConfigurationsWord: TypeAlias = Literal["first", "all"]
SumsWord: TypeAlias = Literal["stages", "atomics"]
GradientsWord: TypeAlias = Literal["none", "stats", "values"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": get_args(EngineWord),
    "mode": get_args(ModeWord),
    "data": get_args(DataWord),
    "direction": get_args(DirectionWord),
    "layout": get_args(LayoutWord),
    "partition": get_args(PartitionWord),
    "power": get_args(PowerWord),
    "files": get_args(FilesWord),
    "format": get_args(FormatWord),
    "configurations": get_args(ConfigurationsWord),
}
"""The words of the options that the command line has too."""

BENCH_DIRECTIONS: tuple[BenchDirectionWord, ...] = get_args(BenchDirectionWord)
"""What a bench runs compilers on. A step is the forward and then the backward of one Pair."""
