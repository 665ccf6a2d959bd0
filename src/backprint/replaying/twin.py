"""Compare a fake Capture with a small twin of the same program: what the twin proves, and where both have the same
steps.

Two graphs match if their hashes without sizes are equal. If the twin has fewer layers, they match if each layer's steps
are those of some layer of the other, and so are the steps outside layers; a repetition counts once, as a loop over
layers makes. A layer is a module path up to its last number: `model.layers.17`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from backprint.graph.nouns import Capture, Graph, Spec, Step, TensorSpec
from backprint.graph.verdicts import Verdict
from backprint.replaying.verify import FAKE

Row = tuple[str, str, str]
"""A step without its sizes: its module below the layer, its operator, and its result."""

LOOSE = "sums of gradients"
"""Steps that belong to no line of the program."""

LAYER = re.compile(r"(.*\.)?\d+(?=\.|$)")


def beside(large: Capture, small: Capture, proven: Sequence[Verdict]) -> list[Verdict]:
    """Return the Verdict of a fake Capture with a twin, then the twin's own."""
    found = "; ".join(f"its twin is {verdict.verdict}" for verdict in proven)
    first = Verdict("unproven", large.name, f"{FAKE}; {found}, and {likeness(large, small)}")
    return [first, *(replace(verdict, name=f"{verdict.name} (twin)") for verdict in proven)]


def likeness(large: Capture, small: Capture) -> str:
    """Say how far the graphs of two Captures are the same."""
    if len(large.pairs) != len(small.pairs):
        return f"has {len(small.pairs)} pairs where this has {len(large.pairs)}"
    said = []
    for left, right in zip(large.pairs, small.pairs, strict=True):
        for side in ("forward", "backward"):
            ours, theirs = getattr(left, side), getattr(right, side)
            if (ours is None) != (theirs is None):
                return f"is built differently: only one of them has a {side}"
            if ours is None or ours.hash(sizes=False) == theirs.hash(sizes=False):
                continue
            if odd := difference(ours, theirs):
                traced = (
                    "" if large.engine == small.engine else f" (capture the twin with engine={large.engine!r}, too)"
                )
                return f"is built differently{traced}: {side}, {odd}"
            said.append(counts(ours, theirs))
    return f"has the same steps layer by layer ({said[0]})" if said else "has the same graphs except for sizes"


def difference(large: Graph, small: Graph) -> str:
    """Return the first layers of two graphs whose steps differ; '' if all are the same."""
    left, right = layers(large), layers(small)
    for family in dict.fromkeys([*left, *right]):
        ours, theirs = (set(map(folded, side.get(family, {}).values())) for side in (left, right))
        if ours != theirs:
            where = family or "outside of layers"
            return f"{where}: {shown(ours)} here, {shown(theirs)} in the twin"
    return ""


LONGEST = 64
"""The most steps that the body of a loop over layers may have outside the layers."""


def folded(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the steps with each repetition once."""
    kept = list(rows)
    for size in range(1, min(LONGEST, len(kept) // 2) + 1):
        made: list[Row] = []
        for index in range(len(kept)):
            made.append(kept[index])
            if made[-size:] == made[-2 * size : -size]:
                del made[-size:]
        kept = made
    return tuple(kept)


def shown(kinds: set[tuple[Row, ...]]) -> str:
    """Say how many kinds of a layer there are, and how many steps each has."""
    sizes = ", ".join(str(len(kind)) for kind in sorted(kinds, key=len))
    return f"{len(kinds)} kinds of {sizes} steps" if kinds else "none"


def counts(large: Graph, small: Graph) -> str:
    """Say how many layers of each kind two graphs have."""
    left, right = layers(large), layers(small)
    families = [family for family in left if family not in ("", LOOSE)]
    return ", ".join(f"{family}: {len(left[family])} here, {len(right[family])} there" for family in families)


def layers(graph: Graph) -> dict[str, dict[str, list[Row]]]:
    """Return the steps of a graph by family of layers and layer; those outside layers under ''.

    Sums of gradients belong to no line of the program, so only their kinds count.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    loose: set[Row] = set()
    for step in graph.steps:
        if step.source is None:
            loose.add(row(step, ""))
            continue
        layer = LAYER.match(step.source.module)
        name = layer[0] if layer else ""
        rows = found.setdefault(re.sub(r"\d+", "*", name), {}).setdefault(name, [])
        rows.append(row(step, step.source.module[len(name) :]))
    return found | {LOOSE: {"": sorted(loose)}}


def row(step: Step, module: str) -> Row:
    """Return a step without its sizes."""
    return module, step.target, spec_kind(step.spec)


def spec_kind(spec: Spec) -> str:
    """Return a spec without sizes, as text."""
    if isinstance(spec, TensorSpec):
        return f"{spec.dtype}[{len(spec.shape)}] {spec.device}"
    return " ".join(map(spec_kind, spec)) if isinstance(spec, tuple) else "?"
