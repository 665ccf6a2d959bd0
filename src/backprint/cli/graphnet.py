"""`backprint show` of a GraphNet sample: none of it is run, and torch is not needed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from backprint.cli.say import echo, print_table


def show(place: Path, side: str, summary_only: bool, as_json: bool) -> None:
    """Print a GraphNet sample."""
    from backprint.errors import UsageError
    from backprint.tools.graphnet.metas import read_sample_text

    if side == "backward":
        raise UsageError(f"{place}: a GraphNet sample has no backward: `backprint capture {place} -o DIR` makes it")
    row = sample_numbers(place)
    if as_json:
        echo(json.dumps(row))
        return
    if side or not summary_only:
        echo(read_sample_text(place / "model.py"), lines=True)
    if not side:
        print_sample(row)


def sample_numbers(place: Path) -> dict[str, Any]:
    """Return the facts about the sample as data."""
    from backprint.tools.graphnet import read_graphnet
    from backprint.tools.graphnet.read import plan_of

    sample = read_graphnet(place)
    plan = plan_of(sample)
    why = {name: (True, reason) for name, reason in plan.with_grad} | {
        name: (False, reason) for name, reason in plan.without_grad
    }
    lines, calls = lines_and_calls(sample)
    inputs = []
    for named in plan.inputs:
        meta = plan.metas.get(named.raw)
        spec = {"dtype": meta.dtype, "shape": list(meta.shape)} if meta is not None else {"dtype": "int", "shape": []}
        requires_grad, reason = why[named.name]
        inputs.append(
            {"name": named.name, "role": named.role, **spec, "asks": requires_grad, "why": reason, "code": named.raw}
        )
    return {
        "sample": str(place),
        "name": sample.name,
        "facts": dict(sample.facts),
        "lines": lines,
        "bytes": plan.bytes,
        "calls": dict(calls.most_common()),
        "inputs": inputs,
        "notes": list(sample.notes),
    }


def lines_and_calls(sample: Any) -> tuple[int, Counter[str]]:
    """Return how many lines a sample's program has, and how often each function is called."""
    from backprint.tools.graphnet.code import count_calls

    if sample.graph is not None:
        return len(sample.graph.steps), Counter(step.target for step in sample.graph.steps if not step.is_guard)
    return len(sample.program.lines), count_calls(sample.program)  # without trust, code that is not parsed was refused


def print_sample(row: dict[str, Any]) -> None:
    """Print the numbers."""
    from backprint.common.text import amount
    from backprint.table.nouns import Table

    echo(f"{row['name']} · a GraphNet sample · {row['lines']} lines · inputs {amount(row['bytes'])}")
    for key, value in row["facts"].items():
        echo(f"{key}: {json.dumps(value) if not isinstance(value, str) else value}")
    rows = [
        (one["name"], one["role"], f"{one['dtype']}{one['shape'] or ''}", "yes" if one["asks"] else "", one["why"])
        for one in row["inputs"]
    ]
    columns = {"input": "name", "role": "text", "spec": "text", "gradient": "text", "why": "text"}
    print_table(Table("", columns, rows))
    calls = ", ".join(f"{name.removeprefix('torch.')} × {count}" for name, count in [*row["calls"].items()][:16])
    echo(f"calls: {calls}{' …' if len(row['calls']) > 16 else ''}")
    for text in row["notes"]:
        echo(f"note: {text}")
