"""Whether PyTorch's own gradients are derivatives, and which planted faults `bp.derivative` sees.

    pip install '.[models]' expecttest                          architectures need the first, modules the second
    python benchmarks/derivative.py operators --dtype float64   PyTorch's differentiable OpInfos
    python benchmarks/derivative.py modules                     PyTorch's ModuleInfos
    python benchmarks/derivative.py architectures               the transformers models of `architectures.py`
    python benchmarks/derivative.py graphnet FOLDER             GraphNet samples: folders with `model.py`, at any depth
    python benchmarks/derivative.py faults [FOLDER]             planted faults, in backwards of all of these

A backward of an unmodified PyTorch program that is `not the derivative` is a false alarm, unless PyTorch's gradient is
wrong; one that is `cannot tell` is a gap. Each is printed with its reason. Seconds are those of `bp.derivative` and of
`bp.verify` of the same capture. With `--json FILE` each row is appended to a file, and what is in the file is not run
again, so that a run may be continued.

A planted fault is one change of a backward: another operand of the same type, a constant times 1.5 to 1.00001, a
dropped addend, or two results swapped. It counts if the gradient changes by more than rounding. The place is right if
the first place that the answer names has the forward step that the changed step is the gradient of, by its echo. Of a
changed step without an echo, or with that of a value without a gradient, it is the step whose right gradients, by
autograd of the forward, have the value that the changed step had before, or the steps that take a value whose gradients
it added up; else those of the steps next to it. Gradients are compared for the tangents and for four others, and for
all of these times −1024.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from planting import changes_of, swaps_of
from programs import Make, Programs, architectures, graphnet, modules, operators
from results import Figure, keep

import backprint as bp
from backprint.derive import check
from backprint.derive.check import SCALE
from backprint.derive.locate import Search, is_gradient, is_rearranged, values_taken_by
from backprint.derive.setting import (
    CannotTell,
    Setting,
    drawn_like,
    gradients_by_input,
    make_setting,
    move_by_rounding,
    values_of,
)
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture, Graph, Pair, Step
from backprint.graph.sizes import at_example_sizes
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE
from backprint.prove.power import graph_in_float64

sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one backward. `word` may also be `no gradient`, `refused`, `crashed` or `timeout`."""

    part: str
    name: str
    word: str
    detail: str = ""
    wrong: tuple[str, ...] = ()
    gap: float | None = None
    by_second_derivative: tuple[str, ...] = ()
    by_differences: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    verify: float = 0.0
    verdict: str = ""


# ---- Unmodified programs


def rows_of(part: str, name: str, make: Make, limit: int, proved: bool) -> list[Row]:
    """Return the rows of one program: one for each backward."""
    start = time.perf_counter()
    torch.manual_seed(0)
    try:
        with time_limit(limit):
            capture = make()
    except TimeIsOver:
        return [Row(part, name, "timeout", f"its capture takes more than {limit} s")]
    except BackprintError as error:
        return [Row(part, name, "refused", f"{type(error).__name__}: {error}")]
    except Exception as error:  # what an operator's own samples raise is no matter of the check
        return [Row(part, name, "crashed", f"{type(error).__name__}: {error}")]
    if capture is None or all(pair.backward is None for pair in capture.pairs):
        return [Row(part, name, "no gradient", seconds=time.perf_counter() - start)]
    steps = sum(len(graph.steps) for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph)
    start = time.perf_counter()
    verdict = ""
    if proved:
        try:
            with time_limit(limit):
                verdict = " ".join(sorted({verdict.verdict for verdict in bp.verify(capture)}))
        except TimeIsOver:
            verdict = "timeout"
    verify = time.perf_counter() - start
    start = time.perf_counter()
    try:
        with time_limit(limit):
            results = bp.derivative(capture)
    except TimeIsOver:
        return [Row(part, name, "timeout", f"the check takes more than {limit} s", steps=steps, verify=verify)]
    except Exception as error:  # a crash of the check is a row: the others are measured all the same
        return [Row(part, name, "crashed", f"the check: {type(error).__name__}: {error}", steps=steps, verify=verify)]
    seconds = (time.perf_counter() - start) / len(results)
    return [
        Row(
            part,
            name if len(results) == 1 else f"{name} {number}",
            result.word,
            result.detail,
            tuple(map(str, result.wrong)),
            result.gap,
            result.by_second_derivative,
            result.by_differences,
            tuple(f"{port}: {why}" for port, why in result.left_out),
            steps // len(results),
            seconds,
            verify / len(results),
            verdict,
        )
        for number, result in enumerate(results)
    ]


class TimeIsOver(BaseException):
    """What runs takes too long. No handler of errors catches it."""


class time_limit:
    """Raises TimeIsOver in what runs longer."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self.over)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)

    def over(self, *_: object) -> None:
        raise TimeIsOver


def shown(row: Row) -> str:
    """Return a row in a line or more."""
    gap = "" if row.gap is None else f"gap {row.gap:.0e}"
    line = (
        f"{row.name:<58} {row.word:<18} {gap:<10} {row.steps:>5} steps {row.seconds:6.2f} s, verify {row.verify:.2f} s"
    )
    if row.word == DERIVATIVE and not row.by_differences:
        return line
    return "\n    ".join([line, *filter(None, [row.detail[:300]]), *(wrong[:300] for wrong in row.wrong[:4])])


def summary(rows: Sequence[Row]) -> str:
    """Return how many backwards have each word, and what they cost."""
    lines = []
    for part in dict.fromkeys(row.part for row in rows):
        own = [row for row in rows if row.part == part]
        answered = [row for row in own if row.word.startswith((DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL))]
        counts = Counter(row.word for row in own)
        words = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        lines.append(f"{part}: {words}")
        named = [f"{row.name}: {row.word}" for row in answered if row.word != DERIVATIVE]
        lines += [f"  {line}" for line in named]
        if answered:
            seconds, verify = [row.seconds for row in answered], [row.verify for row in answered]
            lines.append(
                f"  seconds of the check: median {statistics.median(seconds):.3f}, most {max(seconds):.1f}; of verify: "
                f"median {statistics.median(verify):.3f}, most {max(verify):.1f}; cannot tell "
                f"{counts[CANNOT_TELL] / len(answered):.1%}; by second derivative "
                f"{sum(bool(row.by_second_derivative) for row in answered)}, by differences "
                f"{sum(bool(row.by_differences) for row in answered)}"
            )
    return "\n".join(lines)


# ---- Planted faults


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of a backward, which `backward` makes, and the forward steps whose gradient it spoils."""

    kind: str
    backward: Callable[[], Graph]
    steps: frozenset[str]


FACTORS = (1.5, 1.01, 1.001, 1.00001)

CHANGED = 1e-12
"""A gradient that differs by no more, relative to its norm, is the same: both are rounded."""


ROUNDED = 1e-3
"""A gradient that is smaller than this part of the largest counts as that: it may be 0 but for rounding."""


def faults_of(pair: Pair, source: random.Random, by_value: Mapping[str, frozenset[str]]) -> Iterator[Fault]:
    """Yield planted faults of a Pair's backward; `by_value` has the forward steps of steps without an echo."""
    graph = pair.backward
    assert graph is not None
    for change in changes_of(graph, source, FACTORS, operands=2):
        step = graph.steps[change.step]
        yield Fault(change.kind, change.make, by_value.get(step.name) or belonging(pair, step))
    yield from swapped(pair, graph)


def swapped(pair: Pair, graph: Graph) -> Iterator[Fault]:
    """Yield the backward with two results of one type swapped; they spoil the steps that take either input."""
    consumers: dict[str, set[str]] = {}
    local_of_port = {port.name: port.local for port in pair.forward.inputs}
    for step in pair.forward.steps:
        for name in values_taken_by(step):
            consumers.setdefault(name, set()).add(step.name)
    for swap in swaps_of(graph):
        ports = graph.outputs[swap.early], graph.outputs[swap.late]
        steps = frozenset(s for p in ports for s in consumers.get(local_of_port.get(p.name, ""), ()))
        yield Fault("swapped results", swap.make, steps)


def belonging(pair: Pair, step: Step) -> frozenset[str]:
    """Return the forward steps that a step of the backward belongs to: of a sum of gradients, those that take the value
    whose gradient it is."""
    graph = pair.backward
    assert graph is not None
    if step.echo is not None and step.echo.kind == "sum of gradients of":
        values = set(step.echo.names)
        return frozenset(
            {*values, *(other.name for other in pair.forward.steps if values & set(values_taken_by(other)))}
        )
    if step.echo is not None:
        return frozenset(step.echo.names)
    names: set[str] = set()
    taken = set(values_taken_by(step))
    for other in graph.steps:
        if other.echo is not None and (other.name in taken or step.name in values_taken_by(other)):
            names.update(other.echo.names)
    return frozenset(names)


def steps_by_value(setting: Setting, pair: Pair) -> dict[str, frozenset[str]]:
    """Return for each step of a right backward without an echo the forward steps whose right gradients it computes."""
    assert pair.backward is not None
    search = Search(setting)

    def is_known(step: Step) -> bool:
        """Whether the echo of a step names a value that has a gradient."""
        with_gradient = search.reaching & (search.depending | {port.local for port in pair.forward.inputs})
        return step.echo is not None and not with_gradient.isdisjoint(step.echo.names)

    unknown = [step for step in pair.backward.steps if not step.is_guard and not is_known(step)]
    if not unknown:
        return {}
    right = search.right_gradients([])
    gradients = {name: value for name, value in search.backward_values.items() if is_gradient(value)}
    owners: dict[str, set[str]] = {}

    def names_like(gradient: torch.Tensor) -> list[str]:
        """Return the values of the backward that are this gradient, if it is more than zeros."""
        if not search.is_nonzero(gradient):
            return []
        return [name for name, value in gradients.items() if is_rearranged(value, gradient, search.largest_gradient)]

    for step in search.step_by_name.values():
        for share in (search.shares([step], right) or {}).values():
            for name in names_like(share):
                owners.setdefault(name, set()).add(step.name)
    for value, gradient in right.items():
        takers = {step.name for step in search.takers.get(value, ())}
        if len(takers) > 1:
            for name in names_like(gradient):
                owners.setdefault(name, set()).update(takers)
    of_echo: dict[Any, set[str]] = {}
    for step in unknown:
        if step.echo is not None:
            of_echo.setdefault(step.echo, set()).update(owners.get(step.name, ()))
    steps_of = {step.name: owners.get(step.name) or of_echo.get(step.echo) for step in unknown}
    return {name: frozenset(steps) for name, steps in steps_of.items() if steps}


def beside(graph: Graph, names: Collection[str]) -> set[str]:
    """Return the steps that make what the named steps take, or take what they make."""
    taken = {name for step in graph.steps if step.name in names for name in values_taken_by(step)}
    return taken | {step.name for step in graph.steps if set(names) & set(values_taken_by(step))}


@dataclass(frozen=True, slots=True)
class Planted:
    """What the check says of the planted faults of one Pair."""

    part: str
    name: str
    steps: int
    faults: int
    same: int
    seen: int
    alarms: int
    placed: int
    next_to: int
    placed_of: int
    any_place: int
    complete: int
    raised: int
    unknown: int
    seconds: float
    missed: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def planted(part: str, name: str, pair: Pair, values: Mapping[str, Any], capture: Capture, most: int) -> Planted | None:
    """Check so many planted faults of a Pair; None if its own backward has no verdict."""
    if not check.check_pair(pair, values, capture.seed).good:
        return None
    setting = make_setting(pair, values, 0, capture.seed)
    source = random.Random(name)
    try:
        by_value = steps_by_value(setting, pair)
    except (BackprintError, RuntimeError):  # autograd cannot run a step whose input lies in a larger memory
        by_value = {}
    every = list(faults_of(pair, source, by_value))
    counts: Counter[str] = Counter()
    missed, elsewhere = [], []
    start = time.perf_counter()
    for fault in source.sample(every, min(most, len(every))):
        try:
            backward = fault.backward()
            change = changed(setting, backward)
        except (CannotTell, BackprintError, RuntimeError):
            counts["raised"] += 1
            continue
        result = check.check_pair(Pair(pair.name, pair.forward, backward), values, capture.seed)
        alarm = result.word == NOT_THE_DERIVATIVE
        if change <= CHANGED:
            counts["same"] += 1
            counts["alarms"] += alarm
            continue
        counts["faults"] += 1
        counts["seen"] += alarm
        counts["unknown"] += result.word == CANNOT_TELL
        if not alarm:
            missed.append(f"{fault.kind}: the gradient changes by {change:.1e}; {result.word}: {result.detail[:160]}")
        elif fault.steps:
            names = [set(place.names) for place in result.wrong]
            counts["placed_of"] += 1
            counts["complete"] += result.rest_is_right
            counts["any_place"] += any(fault.steps & steps for steps in names)
            right = bool(names) and bool(fault.steps & names[0])
            counts["placed"] += right
            counts["next_to"] += right or (bool(names) and bool(beside(pair.forward, fault.steps) & names[0]))
            if not right:
                at = " then ".join(",".join(sorted(steps)) for steps in names[:4]) or "nowhere"
                elsewhere.append(
                    f"{fault.kind} in {','.join(sorted(fault.steps))}: found at {at}; {result.detail[:100]}"
                )
    fields = (
        "faults",
        "same",
        "seen",
        "alarms",
        "placed",
        "next_to",
        "placed_of",
        "any_place",
        "complete",
        "raised",
        "unknown",
    )
    assert pair.backward is not None
    return Planted(
        part,
        name,
        len(pair.forward.steps) + len(pair.backward.steps),
        **{field: counts[field] for field in fields},
        seconds=time.perf_counter() - start,
        missed=tuple(missed),
        elsewhere=tuple(elsewhere),
    )


def changed(setting: Setting, backward: Graph) -> float:
    """Return how far a changed backward's gradients are from the right ones, relative to their norms, at the tangents
    where they are farthest."""
    source = torch.Generator().manual_seed(1)
    drawn = [
        setting.tangents,
        *({name: drawn_like(value, source) for name, value in setting.tangents.items()} for _ in range(OTHER_TANGENTS)),
    ]
    noise, most = noise_of(setting), 0.0
    for once, scale in product(drawn, (1.0, SCALE)):
        tangents = {name: tangent * scale for name, tangent in once.items()}
        passed = replace(setting, tangents=tangents).backward_inputs
        right, returned = (
            gradients_by_input(graph, passed)
            for graph in (setting.backward, at_example_sizes(graph_in_float64(backward)))
        )
        largest = max(float(gradient.norm()) for gradient in right.values() if gradient is not None)
        for name in setting.gradients:
            expected, other = right[name], returned[name]
            expected, other = (torch.zeros_like(setting.inputs[name]) if g is None else g for g in (expected, other))
            size = max(float(expected.norm()), float(other.norm()), ROUNDED * largest, 1e-300)
            moved = other - expected
            moved = moved[(moved.abs() <= ABOVE_NOISE * noise[name] * abs(scale)).logical_not()]
            difference = float(moved.norm()) / size
            most = max(most, difference if difference == difference else 1.0)
    return most


def noise_of(setting: Setting) -> dict[str, torch.Tensor]:
    """Return how far each element of a gradient moves if inputs and tangents are rounded otherwise: by its size, if it
    is 0 but for that; 0 where it is not finite."""
    source = torch.Generator().manual_seed(0)
    inputs = {
        name: move_by_rounding(v, source) if name in setting.gradients else v for name, v in setting.inputs.items()
    }
    tangents = {name: move_by_rounding(tangent, source) for name, tangent in setting.tangents.items()}
    torch.manual_seed(setting.program_seed)
    other = replace(setting, inputs=inputs, tangents=tangents, results=values_of(setting.forward, inputs))
    returned = gradients_by_input(setting.backward, other.backward_inputs)
    noise = {}
    for name, gradient in setting.gradients.items():
        move = gradient if returned[name] is None else returned[name] - gradient
        noise[name] = move.abs().nan_to_num(0.0, 0.0, 0.0)
    return noise


ABOVE_NOISE = 30.0
"""An element of a gradient that changes by no more than so many times its noise is the same."""


OTHER_TANGENTS = 4
"""So many other tangents are drawn: a change may show at some only."""


def planted_summary(rows: Sequence[Planted]) -> str:
    """Return how many planted faults were seen, and where."""

    def total(field: str) -> int:
        return sum(getattr(row, field) for row in rows)

    def share(part: str, whole: str) -> str:
        return f"{total(part)} of {total(whole)}" + (f" ({total(part) / total(whole):.2%})" if total(whole) else "")

    lines = (
        f"{len(rows)} pairs, {total('faults')} faults that change a gradient: seen {share('seen', 'faults')},",
        f" cannot tell {total('unknown')}; first place right {share('placed', 'placed_of')},",
        f" right or the step before or after {share('next_to', 'placed_of')},",
        f" some place right {share('any_place', 'placed_of')}, all explained",
        f" {share('complete', 'placed_of')}; {total('same')} changes that change nothing: {total('alarms')} alarms;",
        f" {total('raised')} that do not run; {sum(row.seconds for row in rows):.0f} s",
    )
    return "".join(lines)


# ---- All of it


def of_parts(options: argparse.Namespace) -> Iterator[tuple[str, str, Make]]:
    """Yield the programs that the command line names, each with its part."""
    dtypes = [getattr(torch, name) for name in options.dtype or ("float32", "float64")]
    every: dict[str, Callable[[], Programs]] = {}
    for dtype in dtypes:
        every[f"operators {str(dtype)[6:]}"] = partial(operators, dtype, options.samples)
        every[f"modules {str(dtype)[6:]}"] = partial(modules, dtype)
    every["architectures"] = architectures
    if options.folder is not None:
        every["graphnet"] = partial(graphnet, options.folder)
    wanted = options.of or ["modules", "operators", "graphnet"] if options.part == "faults" else [options.part]
    for part, programs in every.items():
        if part.split()[0] in wanted:
            for name, make in programs():
                yield part, name, make


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("operators", "modules", "architectures", "graphnet", "faults"))
    parser.add_argument("folder", type=Path, nargs="?", help="with samples of GraphNet")
    parser.add_argument("--dtype", action="append", choices=("float32", "float64"), help="else both")
    parser.add_argument("--only", action="append", metavar="NAME", help="programs whose name begins so")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="so many of an operator, each a row")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th program")
    parser.add_argument("--of", action="append", metavar="PART", help="faults in programs of these parts")
    parser.add_argument("--most", type=int, default=40, help="faults of one pair")
    parser.add_argument("--limit", type=int, default=30, metavar="SECONDS", help="for a capture, a check, a proof")
    parser.add_argument("--no-verify", dest="verify", action="store_false", help="do not time the proofs")
    parser.add_argument("--seconds", type=float, default=1e9, help="end the run after so many")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append rows to it; do not run those again")
    options = parser.parse_args()
    if (options.part == "graphnet") and options.folder is None:
        parser.error("graphnet takes a FOLDER")
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kind: type[Row] | type[Planted] = Planted if options.part == "faults" else Row
    rows: list[Any] = []
    if options.json and options.json.exists():
        rows = [kind(**row) for row in map(json.loads, options.json.read_text().splitlines())]
    present = {(row.part, name) for row in rows for name in (row.name, row.name.rpartition(" ")[0])}
    end = time.perf_counter() + options.seconds
    for number, (part, name, make) in enumerate(of_parts(options)):
        if number % options.every or (options.only and not name.startswith(tuple(options.only))):
            continue
        if (part, name) in present:
            continue
        if time.perf_counter() > end:
            print("the time is over; with --json, the same command goes on")
            break
        new = (
            planted_rows(part, name, make, options)
            if kind is Planted
            else rows_of(part, name, make, options.limit, options.verify)
        )
        for row in new:
            print(shown(row) if isinstance(row, Row) else planted_shown(row), flush=True)
        rows += new
        if options.json:
            with options.json.open("a") as file:
                file.writelines(json.dumps(asdict(row)) + "\n" for row in new)
    print(planted_summary(rows) if kind is Planted else summary(rows))
    return keep(f"derivative_{options.part}", figures_of_faults(rows) if kind is Planted else figures_of(rows))


def figures_of(rows: Sequence[Row]) -> list[Figure]:
    """The counts of unmodified programs by their word, and what the check costs."""
    answered = [row for row in rows if row.word.startswith((DERIVATIVE, NOT_THE_DERIVATIVE, CANNOT_TELL))]
    words = Counter(row.word.partition(" but")[0] for row in answered)
    figures = [Figure(f"backwards that are {word}", count) for word, count in words.most_common()]
    seconds = statistics.median(row.seconds for row in answered)
    return [*figures, Figure("seconds of the check, median", seconds, "s")]


def figures_of_faults(rows: Sequence[Planted]) -> list[Figure]:
    """What is seen of the planted faults, where, and what alarms without one."""
    faults, placed_of = (sum(getattr(row, field) for row in rows) for field in ("faults", "placed_of"))
    seen, placed, alarms = (sum(getattr(row, field) for row in rows) for field in ("seen", "placed", "alarms"))
    return [
        Figure(f"planted faults seen, of {faults:,}", seen / max(faults, 1), at_least=0.999),
        Figure(f"first place right, of {placed_of:,}", placed / max(placed_of, 1)),
        Figure(f"alarms at {sum(row.same for row in rows):,} changes that change nothing", alarms),
    ]


def planted_rows(part: str, name: str, make: Make, options: argparse.Namespace) -> list[Planted]:
    """Return what becomes of the faults planted in one program."""
    torch.manual_seed(0)
    try:
        with time_limit(options.limit):
            capture = make()
            inputs = check.inputs_of_pairs(capture) if capture is not None else []
    except (TimeIsOver, CannotTell, BackprintError):
        return []
    except Exception:  # what an operator's own samples raise is no matter of the check
        return []
    rows: list[Planted] = []
    if capture is None:
        return rows
    for pair, values in zip(capture.pairs, inputs, strict=True):
        if pair.backward is not None:
            row = planted(part, name, pair, values, capture, options.most)
            rows += [row] if row is not None else []
    return rows


def planted_shown(row: Planted) -> str:
    """Return what became of the faults of one pair."""
    line = (
        f"{row.name:<50} {row.steps:>4} steps: seen {row.seen} of {row.faults}, {row.unknown} cannot tell, place "
        f"{row.placed} (beside {row.next_to}) of {row.placed_of}, same {row.same}, alarms {row.alarms}, "
        f"{row.seconds:.1f} s"
    )
    return "\n    ".join([line, *row.missed[:5], *row.elsewhere[:5]])


if __name__ == "__main__":
    sys.exit(main())
