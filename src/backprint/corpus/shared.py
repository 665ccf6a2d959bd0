"""The parts that samples share: a verb that notes the stretches of a sample's graphs, and one table of all samples.

A part is equal stretches, by hash: an iteration of a loop that a graph folds to, or the steps between loops. Every step
of a graph is in one part, so the steps of all parts, each counted once, are what is different in a corpus. Nothing of a
sample is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from backprint.corpus.clock import stage
from backprint.corpus.dedup import load_to_compare, write_whole
from backprint.corpus.ledger import NAME, Ledger, place_of
from backprint.corpus.task import Options, Task, one_line
from backprint.corpus.verbs import Row, verdict_columns, versions
from backprint.errors import SampleError
from backprint.graph.costing.products import flops_of_steps
from backprint.graph.folding.stretches import StretchGraphs, module_of_loop, module_of_stretch, stretches_of
from backprint.graph.nouns import Graph
from backprint.graph.sizes import at_hints
from backprint.strangers_file import read_json
from backprint.typed import from_plain

NOTES = "stretches.json"
"""The parts of one sample, in its folder in OUT."""

SHARED_LIST = "parts.json"
"""The parts of all samples, in OUT."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part: `count` equal stretches of the graphs of some samples."""

    hash: str
    direction: str
    name: str
    """The module that it is in where it was first found: `model.layers.{i}`; '' if it is in none."""
    repeats: bool
    """Whether it was found as an iteration of a loop."""
    steps: int
    """Of one of the stretches, like the FLOPs."""
    flops: int
    count: int
    samples: tuple[str, ...]

    @property
    def order(self) -> tuple[int, int, int, str]:
        """The sort key: the part with the most FLOPs in the corpus comes first, then the one with the most steps."""
        return (-self.flops * self.count, -self.steps * self.count, -self.count, self.hash)


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts of a corpus, those with the most FLOPs first, and the samples that have none, with the reason."""

    source: str
    by: str
    parts: tuple[SharedPart, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def count(self) -> int:
        """How many stretches there are."""
        return sum(part.count for part in self.parts)

    @property
    def steps(self) -> int:
        """How many steps all samples have."""
        return sum(part.count * part.steps for part in self.parts)

    @property
    def distinct_steps(self) -> int:
        """How many steps there are if each part counts once."""
        return sum(part.steps for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """Return the content of `parts.json`."""
        return {
            "source": self.source,
            "by": self.by,
            "samples": len({name for part in self.parts for name in part.samples}),
            "stretches": self.count,
            "steps": self.steps,
            "distinct_steps": self.distinct_steps,
            "parts": [asdict(part) for part in self.parts],
            "left_out": [{"id": name, "why": why} for name, why in self.left_out],
        }


# ------------------------------------------------------------------ of one sample


def without_torch(options: Options) -> dict[str, str]:
    """Load what reads and folds graphs, for which torch is not needed."""
    from backprint.sample.load import load

    _ = load  # loaded, for the processes that are forked from this one
    return versions(options)


def note_parts(task: Task, options: Options, staging: Path) -> Row:
    """Write the parts of a sample into its folder; its verdict is the stored one."""
    with stage("read"):
        capture = load_to_compare(task.path)
        graphs = [("forward", pair.forward) for pair in capture.pairs]
        graphs += [("backward", pair.backward) for pair in capture.pairs if pair.backward is not None]
    with stage("fold"):
        found = [part for side, graph in graphs for part in parts_of_graph(graph, side, task.id, options["sizes"])]
    staging.mkdir()
    (staging / NOTES).write_text(json.dumps([asdict(part) for part in merged(found)]) + "\n", encoding="utf-8")
    steps = {f"{side}_steps": sum(len(graph.steps) for way, graph in graphs if way == side) for side, _ in graphs}
    return steps | verdict_columns(capture.verdict or {"verdict": "unproven", "detail": "was saved without a verdict"})


def parts_of_graph(graph: Graph, direction: str, sample: str, sizes: bool) -> Iterator[SharedPart]:
    """Yield a part for each stretch of a graph, at the sizes of the capture."""
    graph = at_hints(graph)
    graphs = StretchGraphs(graph)
    for loop, group in groupby(stretches_of(graph), lambda stretch: stretch.loop):
        stretches = list(group)
        name = module_of_stretch(graph, stretches[0]) if loop is None else module_of_loop(graph, stretches)
        for each in stretches:
            steps = each.steps(graph)
            key, flops = graphs.graph_of(each).hash(sizes=sizes), flops_of_steps(steps, graphs.specs)
            yield SharedPart(key, direction, name, loop is not None, len(steps), flops, 1, (sample,))


def merged(parts: Iterable[SharedPart]) -> tuple[SharedPart, ...]:
    """Return equal parts as one each, in their order."""
    found: dict[str, SharedPart] = {}
    samples: dict[str, dict[str, None]] = {}
    for part in parts:
        samples.setdefault(part.hash, {}).update(dict.fromkeys(part.samples))
        known = found.get(part.hash)
        if known is None:
            found[part.hash] = part
        else:
            count, repeats = known.count + part.count, known.repeats or part.repeats
            found[part.hash] = replace(known, count=count, repeats=repeats)
    whole = (replace(part, samples=tuple(samples[key])) for key, part in found.items())
    return tuple(sorted(whole, key=lambda part: part.order))


# ------------------------------------------------------------------ of all samples


def parts_noted(notes: Path) -> list[SharedPart]:
    """Return the parts that a run noted of one sample."""
    rows = read_json(notes)
    try:
        return [from_plain(SharedPart, row, "a part") for row in list(rows)]
    except (ValueError, TypeError) as error:
        raise SampleError(f"{notes}: {error}") from None


def all_shared_parts(source: Path, out: Path, by: str) -> SharedParts:
    """Return the parts that a run noted, and write them."""
    found: list[SharedPart] = []
    left_out: list[tuple[str, str]] = []
    with Ledger.reading(out / NAME) as ledger:
        for row in ledger.rows(order="id"):
            notes = place_of(out, row) / NOTES
            if row["state"] == "done" and notes.is_file():
                found += parts_noted(notes)
            else:
                why = ": ".join(filter(None, (row["cause"], row["detail"]))) if row["state"] == "done" else "not done"
                left_out.append((row["id"], one_line(why)))
    whole = SharedParts(str(source), by, merged(found), tuple(left_out))
    write_whole(out / SHARED_LIST, json.dumps(whole.as_json(), indent=1) + "\n")
    return whole
