"""`backprint show SAMPLE`: of ours, of GraphNet's, and of the dump of a region. None of it is run, and torch is not
needed.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A *summary* of a Pair (`tools/cost`) has the FLOPs, traffic and memory of both directions, what is saved for the
backward by line (`saved`), and costs by operator (`forward_kinds`, `backward_kinds`). A Table is a title, columns (by
name the kind of their cells) and rows; without `heads` the columns have no headings. `most` is how many lines of a list
are printed, None for all. `amount` writes bytes, `short` a number with a suffix.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backprint.cli import dumps
from backprint.cli.named import at_place
from backprint.cli.options import ALLOW, DUMPS, SAMPLE, WHAT, command, json_lines, option
from backprint.cli.say import console, echo, echo_styled, print_table, table_text
from backprint.common.collector import collector_paused
from backprint.common.text import amount, printable, short
from backprint.graph.together import guard_texts
from backprint.graph.verdicts import has_proof, nonfinite_of, proof_arguments, reasons_of_derivative, verdict_text
from backprint.table.nouns import Table
from backprint.tools.cost.traffic import traffic_texts


@command("show")
@SAMPLE
@option(WHAT, "--backward", "side", flag_value="backward", help="The backward's code alone.")
@option(WHAT, "--forward", "side", flag_value="forward", help="The forward's code alone.")
@option(WHAT, "--flat", is_flag=True, help="Every step, where repeated ones would be shown as loops.")
@option(WHAT, "--summary", "summary_only", is_flag=True, help="The numbers without the code.")
@option(WHAT, "--all", "everything", is_flag=True, help="Every line, where long lists would be cut.")
@ALLOW
@json_lines("sample, or pass of a dump")
@option(DUMPS, "--bad", is_flag=True, help="What has NaN or Inf, of passes with some or an error.")
@dumps.PASS
@dumps.RUN
@collector_paused()
def show_command(
    sample: Path,
    side: str | None,
    flat: bool,
    summary_only: bool,
    everything: bool,
    allow: tuple[str, ...],
    as_json: bool,
    bad: bool,
    number: int | None,
    run: str,
) -> None:
    """Show a sample: its code, and its cost. Nothing of the sample is run, and torch is not needed.

    The first line says what it is: its verdict, and what it saves for the backward. If results have NaN or Inf, the
    line before it says where they come from.

    Steps that repeat, such as those of layers, are shown as loops where that saves more than a third of the lines.

    For a GraphNet sample: its facts, its inputs under their own names with whether they require grad and why, its
    calls.

    For a dump of bp.region: its passes, each with the gradients on its edges and the forward lines of its nodes.
    """
    import backprint as bp
    from backprint.common.formats import GRAPHNET, format_of
    from backprint.tools.cost.costs import summarize

    sample = at_place(sample)
    if dumps.is_dump((sample,), options_of_dumps=("bad", "number", "run"), options_of_both=("as_json",)):
        dumps.show(sample, run, bad, number, as_json)
        return
    dumps.check_sample(sample)
    if format_of(sample) is GRAPHNET:
        show_graphnet(sample, side or "", summary_only, as_json)
        return
    capture = bp.load(sample, allow=allow)
    if as_json:
        echo(json.dumps(capture_numbers(capture, sample)))
        return
    summaries = tuple(map(summarize, capture.pairs)) if side is None else ()
    if side is None:
        print_answer(capture, summaries)
    if not summary_only:
        for pair in capture.pairs:
            for name, graph in (("forward", pair.forward), ("backward", pair.backward)):
                if side in (None, name) and graph is not None:
                    code(f"{pair.name} {name}", graph.code if flat else str(graph))
    if side is None:
        for index, summary in enumerate(summaries):
            print_pair(capture, index, summary, None if everything else MOST)
        tell_breaks(capture)
        for text in capture.notes:
            echo(f"note: {text}")
        print_contradictions(capture)
    elif side == "backward" and all(pair.backward is None for pair in capture.pairs):
        echo("no backward: no output of this program requires grad", err=True)


MOST = 12
"""So many lines of a list are shown without `--all`."""


def print_answer(capture: Any, summaries: Sequence[Any]) -> None:
    """Print what the sample is in a line: its verdict, its steps, and what it saves for the backward."""
    if nonfinite := nonfinite_of(capture.verdict):
        echo_styled("", nonfinite, fg="yellow")
    forward = sum(len(pair.forward.steps) for pair in capture.pairs)
    backward = sum(len(pair.backward.steps) for pair in capture.pairs if pair.backward is not None)
    saved = sum(summary.saved_bytes for summary in summaries)
    largest = max((line for summary in summaries for line in summary.saved), key=lambda line: line.bytes, default=None)
    facts = [
        f"{forward:,} steps forward, {backward:,} backward" if backward else f"{forward:,} steps forward, no backward",
        f"saves {amount(saved)} for the backward" if backward else "",
        f"{amount(largest.bytes)} of it at {largest.line}" if largest is not None else "",
    ]
    echo(f"{capture.name}: verdict {verdict_text(capture.verdict)}; {', '.join(filter(None, facts))}")


def code(title: str, text: str) -> None:
    """Print a graph's text, with colors on a terminal."""
    from rich.markup import escape
    from rich.syntax import Syntax

    out = console()
    if not out.is_terminal:
        echo(text, lines=True)
        return
    out.rule(escape(printable(title)))
    colored = Syntax("", "python", theme="ansi_dark", background_color="default").highlight(printable(text, lines=True))
    out.print(colored, soft_wrap=True)  # long lines continue in the next line of the window


def capture_numbers(capture: Any, sample: Path) -> dict[str, Any]:
    """Return all numbers that are shown of a Capture, as data for `--json`."""
    from backprint.tools.cost.costs import summarize
    from backprint.tools.cost.stretches import part_costs
    from backprint.tools.cost.traffic import bytes_by_group, traffic_of

    pairs = []
    for pair in capture.pairs:
        summary = summarize(pair)
        row = asdict(summary) | {"name": pair.name, "saved_bytes": summary.saved_bytes}
        row["parts"] = [asdict(part) for part in part_costs(pair)]
        row |= {"forward_hash": pair.forward.hash(), "backward_hash": pair.backward.hash() if pair.backward else None}
        pairs.append(row)
    facts = {"sample": str(sample), "name": capture.name, "engine": capture.engine, "verdict": capture.verdict}
    facts["proof"] = has_proof(*proof_arguments(capture.verdict))
    guards = [guard.text for guard in capture.guards]
    links = [[link.source, str(link.port), link.target, link.name] for link in capture.links]
    if capture.rank is not None:
        facts["sent"] = bytes_by_group(traffic_of(capture))
    assumptions = {"guards": guards, "breaks": list(capture.breaks), "why": list(capture.why), "links": links}
    return facts | {"environment": dict(capture.environment), **assumptions, "pairs": pairs}


def print_contradictions(capture: Any) -> None:
    """Print where the sample contradicts itself: `verify` calls it wrong."""
    from backprint.graph.links import contradictions

    for contradiction in contradictions(capture):
        echo(f"not as it was saved: {contradiction.role} {contradiction.name}: {contradiction.text}")


def tell_breaks(capture: Any) -> None:
    """Print the graph breaks, and why other engines failed."""
    for text in capture.breaks:
        echo(f"break: {text}")
    for text in capture.why:
        echo(why_text(text))


def why_text(text: str) -> str:
    """Return a line of `capture.why`: a text on a custom operator, which begins with its name (`ns::op`), as it is; any
    other is why an engine was not used, and begins with the engine."""
    return text if "::" in text.partition(" ")[0] else f"not by {text}"


def print_pair(capture: Any, index: int, summary: Any, most: int | None) -> None:
    """Print a Pair's numbers; at most so many lines of each list, all if it is None."""
    pair = capture.pairs[index]
    head = table_text(f"{capture.name} · {pair.name}", "bold")
    console().print(head.append(printable(f" · engine {capture.engine}"), "not bold"))
    print_facts(capture, index, pair, summary)
    print_parts(pair)
    print_saved(summary, most)
    print_operators(summary, most)


def print_parts(pair: Any) -> None:
    """Print what repeats in a Pair, such as layers: how often, and what one of them costs (a part has the costs of all
    of its iterations together). Nothing is printed if nothing repeats."""
    from backprint.tools.cost.stretches import part_costs

    parts = part_costs(pair)
    if not parts:
        return
    rows = []
    for part in parts:
        size, flops = f"{part.steps // part.count} steps", f"{short(part.flops // part.count)} FLOPs"
        saved = f"{amount(part.saved_bytes // part.count)} saved" if part.saved_bytes else ""
        rows.append((part.direction, f"{part.count} ×", part.name or "a loop", size, flops, saved))
    columns = {"direction": "text", "times": "digits", "part": "text", "steps": "digits", "flops": "digits"}
    title = "what repeats, and what one iteration costs"
    print_table(Table(title, {**columns, "saved": "digits"}, rows, heads=False))


def print_facts(capture: Any, index: int, pair: Any, summary: Any) -> None:
    """Print the size of a Pair, and what it takes from other Pairs; of the first Pair also what is known of the whole
    Capture: traffic among ranks, guards, opaque edges, and why a backward is not simply the derivative."""
    forward, backward = pair.forward, pair.backward
    rows = [
        ("parameters", f"{summary.parameters:,} ({amount(summary.parameter_bytes)})"),
        ("steps", f"{len(forward.steps)} forward, {f'{len(backward.steps)} backward' if backward else 'no backward'}"),
        *cost_rows(summary),
        (
            "saved",
            f"{amount(summary.saved_bytes)} of intermediates, {amount(summary.kept_bytes)} of parameters and inputs "
            "kept",
        ),
        ("hash", f"{forward.hash()[:16]} forward" + (f", {backward.hash()[:16]} backward" if backward else "")),
        *(traffic_texts(capture) if index == 0 else ()),
        *(("takes", text) for text in taken_texts([link for link in capture.links if link.target == index])),
    ]
    if index == 0:
        reasons = reasons_of_derivative((capture.verdict or {}).get("derivative"))
        rows += [("guard", text) for text in guard_texts(capture.guards)]
        rows += [("opaque", edge.text) for edge in capture.opaque]
        rows += [("derivative", reason) for reason in reasons]
    print_table(Table("", {"fact": "text", "value": "text"}, rows, heads=False))


def taken_texts(links: Sequence[Any]) -> Iterator[str]:
    """Yield what a Pair takes from other Pairs by these links, a text for all ports of one Pair and one role, which
    names the first."""
    links_by_origin: dict[tuple[int, str], list[Any]] = {}
    for link in links:
        links_by_origin.setdefault((link.source, link.port.role), []).append(link)
    for (source, role), group in links_by_origin.items():
        first = f"{group[0].name} from pair_{source}, {group[0].port}"
        yield first if len(group) == 1 else f"{len(group)} {role}s of pair_{source}: {first}, …"


def cost_rows(summary: Any) -> Iterator[tuple[str, str]]:
    """Yield a Pair's FLOPs, traffic and memory as text."""
    for name, cost in (("forward", summary.forward), ("backward", summary.backward)):
        moved = f"{amount(cost.read)} read, {amount(cost.written)} written"
        yield name, f"{short(cost.flops)} FLOPs of products, {moved}"
    yield "peak", f"{amount(summary.eager_peak_bytes)} in eager mode, {amount(summary.peak_bytes)} in the graphs"
    yield "held", f"{amount(summary.held_bytes)} of parameters, buffers, inputs, beside the peak"


def print_saved(summary: Any, most: int | None) -> None:
    """Print the lines that save most for the backward."""
    rows = [(line.bytes, line.line) for line in summary.saved[:most]]
    if rows:
        title = "saved for backward, by the line that saves it"
        print_table(Table(title, {"bytes": "bytes", "line": "text"}, rows, heads=False))
    print_rest("line", summary.saved, most)


def print_rest(noun: str, rows: Sequence[Any], most: int | None) -> None:
    """Print how many rows of a list were left out, if any were."""
    if most is not None and len(rows) > most:
        echo(f"… {len(rows) - most} {noun}{'s' if len(rows) > most + 1 else ''} more; --all")


def print_operators(summary: Any, most: int | None) -> None:
    """Print what the operators of each direction cost, and how often each is called."""
    columns = {"operator": "text", "calls": "count", "FLOPs": "digits", "read": "bytes", "written": "bytes"}
    for title, kinds in (("forward", summary.forward_kinds), ("backward", summary.backward_kinds)):
        if not kinds:
            continue
        costs = [(kind.operator.removeprefix("aten."), kind.calls, kind.cost) for kind in kinds[:most]]
        rows = [(name, calls, short(cost.flops), cost.read, cost.written) for name, calls, cost in costs]
        print_table(Table(f"{title}, by operator", columns, rows))
        print_rest("operator", kinds, most)


# ---- GraphNet's


def show_graphnet(place: Path, side: str, summary_only: bool, as_json: bool) -> None:
    """Print a GraphNet sample; UsageError for its backward, which it does not have."""
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
    """Return the facts about a GraphNet sample as data: what `--json` prints. Its plan says how its inputs are made:
    `with_grad` and `without_grad` have (name, reason) of the inputs that require grad, and of those that do not."""
    from backprint.tools.graphnet import read_graphnet
    from backprint.tools.graphnet.read import plan_of

    sample = read_graphnet(place)
    plan = plan_of(sample)
    requires_grad = {name: (True, reason) for name, reason in plan.with_grad}
    requires_grad |= {name: (False, reason) for name, reason in plan.without_grad}
    lines, calls = lines_and_calls(sample)
    inputs = []
    for named in plan.inputs:
        meta = plan.metas.get(named.raw)  # `raw` is the name in the sample's code
        # A symbolic size has no tensor metadata: it is a number.
        spec = {"dtype": meta.dtype, "shape": list(meta.shape)} if meta is not None else {"dtype": "int", "shape": []}
        asks, reason = requires_grad[named.name]
        inputs.append({"name": named.name, "role": named.role, **spec, "asks": asks, "why": reason, "code": named.raw})
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
    """Return how many lines the program of a GraphNet sample has, and how often each function is called. The sample has
    a `graph` where Backprint wrote its code, else a `program`."""
    from backprint.tools.graphnet.code import count_calls

    if sample.graph is not None:
        return len(sample.graph.steps), Counter(step.target for step in sample.graph.steps if not step.is_guard)
    return len(sample.program.lines), count_calls(sample.program)  # without trust, code that is not parsed was refused


def print_sample(row: dict[str, Any]) -> None:
    """Print the numbers of a GraphNet sample (`sample_numbers`)."""
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
