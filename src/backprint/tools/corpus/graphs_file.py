"""The graphs of a corpus run as one Parquet file with a card, as Hugging Face's `datasets` loads it.

A row is one graph: its text, its ports, and what is known of its sample. Rows are texts and numbers: a reader runs
nothing of a stranger's, and `bp.parse` makes a Graph of the text without running it. One sample is in memory at a time,
and one row group of the Parquet file.

The row of a sample is its row in the ledger of the run (`tools/jobs/ledger`); the rows of a sample, in the data set,
are one for each of its graphs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backprint.common.files import whole_file
from backprint.common.formats import CAPTURE
from backprint.common.text import encodable, one_line
from backprint.errors import BackprintError, SampleError, UsageError
from backprint.graph.nouns import Graph, Port, TensorSpec
from backprint.graph.sizes import at_example_sizes
from backprint.graph.text import show_spec
from backprint.graph.verdicts import VERDICTS, has_proof
from backprint.table.files import write_parquet
from backprint.tools.corpus.duplicates import load_to_compare
from backprint.tools.cost.costs import step_costs, total_cost
from backprint.tools.jobs.ledger import Ledger, place_of, source_of
from backprint.tools.jobs.verbs import joined_hash, nbytes

GRAPHS, CARD = "graphs.parquet", "README.md"
"""The files of a data set."""

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("sample", "text", "the name of the sample in the run"),
    ("family", "text", "the folder by which samples of a kind are together"),
    ("pair", "count", "the number of the pair in its sample: graph breaks give several"),
    ("direction", "text", "`forward` or `backward`"),
    ("text", "text", "the graph, as Python that runs with PyTorch alone; `bp.parse(text)` returns the Graph"),
    ("hash", "text", "of the graph without names and the order of independent steps"),
    ("shape_hash", "text", "the same, without sizes"),
    ("steps", "count", "calls in the graph"),
    ("inputs", "ports", "name, role, type, and of a tensor dtype and sizes"),
    ("outputs", "ports", "the same"),
    ("verdict", "text", "of the sample: whether every output and gradient equals that of the program"),
    ("detail", "text", "the reason of a verdict that is not `bitwise`"),
    ("proved", "flag", "whether the verdict is good and the check could have failed"),
    ("power", "number", "how far results move when inputs are redrawn, in tolerances; empty if not measured"),
    ("no_power", "texts", "ports that no redraw moves"),
    ("derivative", "text", "whether the backward is the derivative of the forward; empty if not checked"),
    ("flops", "count", "floating-point operations of matrix products, convolutions and attention"),
    ("read_bytes", "count", "bytes that its steps read, each step as a kernel of its own"),
    ("written_bytes", "count", "bytes that they write"),
    ("saved_bytes", "count", "bytes between the forward and the backward"),
    ("seconds", "number", "what the sample took in the run: capture, proof and save"),
    ("peak_bytes", "count", "its peak of memory"),
    ("engine", "text", "how the program was traced"),
    ("mode", "text", "`train` or `eval`; empty: as it was"),
    ("torch", "text", "the version of PyTorch"),
    ("backprint", "text", "the version of Backprint"),
    ("source_kind", "text", "what the sample was made from: `graphnet` or `backprint`"),
    ("source_hash", "text", "SHA-256 of the files that it was made from"),
    ("license", "text", "of the program, if it is known"),
    ("notes", "texts", "what else has to be known: changed calls, resampled constants"),
)
"""The columns, the kind of their values, and what they are."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A data set: its folder, how many graphs and samples are in it, and the samples that are not, with the reason."""

    folder: Path
    graphs: int
    samples: int
    left_out: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Tally:
    """What the card counts, collected while rows are written."""

    samples: int = 0
    proved: int = 0
    steps: int = 0
    directions: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def export(
    run: Path,
    out: Path,
    where: tuple[str, ...] = (),
    license: str | None = None,
    overwrite: bool = False,
    watch: Callable[[str], None] = lambda what: None,
) -> Exported:
    """Write the graphs of a run's samples to a folder, with a card; return how many there are, and what is left out.
    `where` are SQL conditions on the rows of samples. Each file appears whole, and none if no sample has graphs, which
    raises UsageError. `watch` is called with what is being done, in words."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder: name the folder of the data set")
    for name in (GRAPHS, CARD) if not overwrite else ():
        if (out / name).exists():
            raise UsageError(f"{out / name} exists: choose another folder, or replace it with --overwrite")
    tally = Tally()
    kinds = {name: kind for name, kind, _ in FIELDS}
    with whole_file(out / GRAPHS) as graphs, whole_file(out / CARD) as card:
        rows = _rows_of_run(run, where, license, tally, watch)
        write_parquet(kinds, (tuple(row[name] for name in kinds) for row in rows), graphs)
        if not tally.samples:
            why = "".join(f": {sample}: {reason}" for sample, reason in tally.left_out[:1])
            raise UsageError(f"{run}: no sample with graphs to write{why}")
        name = run.resolve().name
        card.writelines(f"{line}\n".encode() for line in card_lines(name, where, license, tally))
    return Exported(out, tally.directions.total(), tally.samples, tuple(tally.left_out))


# ------------------------------------------------------------------ rows


def _rows_of_run(
    run: Path, where: tuple[str, ...], license: str | None, tally: Tally, watch: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each graph of a run's finished samples, and count them in `tally`; a sample that cannot be read
    is left out, and noted there. `run` is the folder of the run, or its ledger."""
    folder = run if run.is_dir() else run.parent
    with Ledger.reading(run, where) as ledger:
        total = ledger.counts("state").get("done", 0)
        source = Path(ledger.facts().get("source") or folder)
        for number, row in enumerate(ledger.rows("state = 'done'", order="id"), 1):
            watch(f"{number:,} of {total:,} samples: {row['id']}")
            try:
                rows = rows_of_sample(folder, source, row)
            except (BackprintError, OSError) as error:
                tally.left_out.append((row["id"], str(error)))
                continue
            count(tally, row, rows)
            yield from (graph | {"license": license} for graph in rows)


def rows_of_sample(run: Path, source: Path, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of one sample, a row for each graph; raise SampleError if it has no graphs, or other graphs than
    the run proved, by the hashes in its row of the ledger.

    A run that captures has the sample in its own folder. `verify` and `power` leave it where it is, in the source.
    """
    if row["verdict"] == "failed" or not row["forward_hash"]:
        raise SampleError(": ".join(filter(None, (row["verdict"], row["cause"], row["detail"]))) or "it has no graphs")
    sample = place_of(run, row)
    if row["kind"] == "backprint" and not (sample / CAPTURE).exists():
        sample = source_of(source, row)
    capture = load_to_compare(sample)
    about = _columns_of_sample(row)
    rows = []
    for number, pair in enumerate(capture.pairs):
        for direction, graph in (("forward", pair.forward), ("backward", pair.backward)):
            if graph is not None:
                rows.append(about | {"pair": number, "direction": direction} | _columns_of_graph(graph))
    for direction in ("forward", "backward"):
        known = joined_hash([graph["hash"] for graph in rows if graph["direction"] == direction])
        if known != (row[f"{direction}_hash"] or None):
            raise SampleError(f"its {direction} is not the one that the run proved: its files were changed since")
    return rows


def _columns_of_sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that all graphs of a sample share."""
    versions = row["versions"] or {}
    return {
        "sample": row["id"],
        "family": row["family"],
        **{name: row[name] for name in ("verdict", "detail", "power", "derivative", "seconds", "peak_bytes")},
        **{name: row[name] for name in ("engine", "mode", "source_hash")},
        "proved": has_proof(row["verdict"], row["power"], row["vacuous"] or ()),
        "no_power": row["vacuous"] or [],
        "torch": str(versions.get("torch", "")),
        "backprint": str(versions.get("backprint", "")),
        "source_kind": row["kind"],
        "notes": row["notes"] or [],
    }


def _columns_of_graph(graph: Graph) -> dict[str, Any]:
    """Return the columns of one graph."""
    fixed, cost = at_example_sizes(graph), total_cost(step_costs(graph))
    saved = [port for port in (*fixed.inputs, *fixed.outputs) if port.role == "saved"]
    return {
        "text": encodable(graph.code),
        "hash": graph.hash(),
        "shape_hash": graph.hash(sizes=False),
        "steps": len(graph.steps),
        "inputs": [*map(_port_columns, graph.inputs, fixed.inputs)],
        "outputs": [*map(_port_columns, graph.outputs, fixed.outputs)],
        "flops": cost.flops,
        "read_bytes": cost.read,
        "written_bytes": cost.written,
        "saved_bytes": sum(map(nbytes, saved)),
    }


def _port_columns(port: Port, fixed: Port) -> dict[str, Any]:
    """Return a port as plain data: its type as in the text, and of a tensor the dtype and the sizes that it had at
    capture, which `fixed`, the same port of the graph at these sizes, has. A size that is not known there is none."""
    spec = fixed.spec
    dtype, shape = None, None
    if isinstance(spec, TensorSpec):
        dtype = spec.dtype
        shape = list(spec.shape) if all(isinstance(size, int) for size in spec.shape) else None
    return {
        "name": encodable(port.name),
        "role": port.role,
        "spec": show_spec(port.spec),
        "dtype": dtype,
        "shape": shape,
    }


def count(tally: Tally, row: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    """Add a sample, by its row in the ledger, and its graphs, by their rows in the data set, to a tally."""
    tally.samples += 1
    tally.proved += rows[0]["proved"]
    tally.steps += sum(graph["steps"] for graph in rows)
    tally.directions.update(graph["direction"] for graph in rows)
    tally.verdicts[row["verdict"]] += 1
    tally.families[row["family"] or "(none)"] += 1
    tally.versions[rows[0]["torch"]] += 1


# ------------------------------------------------------------------ the card

SPECIAL = re.compile(r"[\\`*<>|~&]|(?<![^\W_])_+|_+(?![^\W_])|!(?=\[)|\](?=[(\[:])|(?<![\w/])[@#](?=\w)")
"""Letters that mean something in Markdown: markup, entities, links, images, mentions, table borders."""


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    return SPECIAL.sub(lambda match: "".join(f"\\{letter}" for letter in match[0]), one_line(text))


CATEGORIES = ((1e3, "n<1K"), (1e4, "1K<n<10K"), (1e5, "10K<n<100K"), (1e6, "100K<n<1M"))
"""Hugging Face's words for fewer rows than a number."""

MOST_NAMED = 20
"""How many samples that are left out the card names."""


def card_lines(name: str, where: tuple[str, ...], license: str | None, tally: Tally) -> Iterator[str]:
    """Yield the lines of the card of a data set: `README.md`, with the header that Hugging Face reads between `---`.
    `name` is the run's, `where` are the conditions on its samples, and `license` is the programs', if it is known."""
    graphs = tally.directions.total()
    yield "---"
    yield f"pretty_name: {json.dumps(f'Graphs of {name}')}"
    if license:
        yield f"license: {json.dumps(license)}"
    yield f"size_categories: [{json.dumps(next((word for most, word in CATEGORIES if graphs < most), 'n>1M'))}]"
    yield "tags: [pytorch, aten, autograd, compilers]"
    yield f"configs: [{{config_name: default, data_files: {GRAPHS}}}]"
    yield "---"
    yield f"# Graphs of {escaped(name)}"
    yield ""
    directions = " and ".join(f"{count:,} {direction}" for direction, count in tally.directions.items())
    yield (
        f"{graphs:,} graphs, {directions}, of {tally.samples:,} samples: {tally.steps:,} calls of ATen operators that "
        f"PyTorch ran. {tally.proved:,} of the samples are proved: every output and gradient was compared with that of "
        "the program, and the comparison could have failed."
    )
    if where:
        yield f"\nOnly samples with {' and '.join(f'`{escaped(text)}`' for text in where)} are here."
    yield from ("", "```python", "from datasets import load_dataset", "")
    yield f'graphs = load_dataset("parquet", data_files="{GRAPHS}", split="train")'
    yield from ("```", "")
    yield 'To make a Graph of a row, with Backprint: `bp.parse(row["text"])`. The text is parsed and checked, not run.'
    yield from counted("verdict", [(word, tally.verdicts[word]) for word in VERDICTS if tally.verdicts[word]])
    yield from counted("family", sorted(tally.families.items()))
    yield from counted("torch", sorted(tally.versions.items()))
    yield from ("", "## Columns", "", "| column | what it is |", "|---|---|")
    yield from (f"| `{column}` | {sentence} |" for column, _, sentence in FIELDS)
    yield from ("", "## Provenance and licences", "")
    yield (
        "Graphs were captured by Backprint from the samples named in `sample`, which `source_hash` identifies. "
        + (f"`license` is what the person who wrote this data set gave: {escaped(license)}." if license else UNKNOWN)
    )
    yield from _left_out_lines(tally.left_out)


UNKNOWN = "The licences of the programs are not known here: `license` is empty. Ask the source before you publish."


def counted(head: str, rows: list[tuple[str, int]]) -> Iterator[str]:
    """Yield the lines of a table of counts of samples, by what `head` names."""
    yield from ("", f"| {head} | samples |", "|---|---:|")
    yield from (f"| {escaped(word)} | {count:,} |" for word, count in rows)


def _left_out_lines(left_out: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines about samples of the run that are not in the data set, (sample, reason); none if all are."""
    if not left_out:
        return
    yield from ("", "## Left out", "", f"{len(left_out):,} samples have no graphs here:", "")
    yield from (f"- {escaped(id)}: {escaped(why[:300])}" for id, why in left_out[:MOST_NAMED])
    if len(left_out) > MOST_NAMED:
        yield f"- and {len(left_out) - MOST_NAMED:,} more"
