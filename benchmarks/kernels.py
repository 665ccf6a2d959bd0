"""Which graphs become kernels, for a processor and two GPUs that are not there: the table of results.

    python benchmarks/kernels.py OUT [--samples FOLDER...] [--graphnet GRAPHNET/samples] [--build] [--limit SECONDS]

Subjects are the models of `kernel_models.py`, and the samples below each FOLDER (of `compilers.py`, or of `backprint
corpus run backward`); with `--graphnet`, samples of GraphNet are captured first, into OUT/graphnet. Each subject has a
process of its own and a limit of time. `--build` compiles every configuration of every Triton kernel to PTX and cubin;
equal kernels once. What a process has found is kept in OUT/found, so the command goes on where it was ended; remove a
file there to do it again. Seconds are those of the processor; of a sample, `capture` is its loading. Needs PyTorch and
Triton, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import backprint as bp
from backprint.tools.kernels.build_triton import built
from backprint.tools.kernels.extraction import capture_kernels
from backprint.tools.kernels.nouns import Kernel, target_named

TARGETS = "cpu", "cuda:80", "cuda:90"
GRAPHNET = 100
"""How many samples of GraphNet are tried."""

Row = dict[str, Any]

# ------------------------------------------------------------------ one subject, in a process of its own


def examine(subject: str, found: Path, build: bool) -> None:
    """Write what becomes of one subject: a file for each target."""
    import kernel_models

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    start = seconds_spent()
    group, _, name = subject.partition("=")
    if group == "model":
        model, inputs = kernel_models.MODELS[name]()
        capture = bp.capture(model, *inputs, name=name)
    else:
        capture = bp.load(name)
    seconds = seconds_spent() - start
    for target in TARGETS:
        place = found / f"{target.replace(':', '_')}.json"
        if is_missing(place, build):
            row = {"pairs": len(capture.pairs), "capture": seconds, **lowered(capture, target, build, found)}
            save_row(place, row)


def lowered(capture: Any, target: str, build: bool, found: Path) -> Row:
    """Return the counts of a capture's kernels for a target."""
    start = seconds_spent()
    kernels = capture_kernels(capture, target)
    row: Row = {
        "lower": seconds_spent() - start,
        "graphs": len(kernels.graphs),
        "wanted": sum(1 + (pair.backward is not None) for pair in capture.pairs),
        "refused": kernels.refused,
        "notes": [note for graph in kernels.graphs for note in graph.notes],
        "hashes": {graph.title: [kernel.hash for kernel in graph.kernels] for graph in kernels.graphs},
        "uncalled": [kernel.name for kernel in kernels if not kernel.calls],
        "configurations": sum(len(kernel.configurations) for kernel in kernels),
        "externs": dict(sum((Counter(graph.externs) for graph in kernels.graphs), Counter[str]())),
    }
    if build and target != "cpu":
        start = seconds_spent()
        made = [build_once(kernel, target, found.parent.parent / "built") for kernel in kernels]
        row["build"] = seconds_spent() - start
        row["built"] = sum(one["built"] for one in made)
        row["unbuilt"] = [one["error"] for one in made if one["error"]]
        row["built_now"] = sum(one["new"] for one in made)
    return row


def seconds_spent() -> float:
    """Seconds of the processor, with those of processes that have ended: Triton has an assembler of its own."""
    return sum(os.times()[:4])


def build_once(kernel: Kernel, target: str, folder: Path) -> Row:
    """Compile every configuration of a kernel, unless an equal one was: how many gave PTX and cubin of the target."""
    place = folder / f"{kernel.hash}-{target.replace(':', '_')}.json"
    if place.exists():
        return {**json.loads(place.read_text()), "new": 0}
    arch, count, error = f".target sm_{target.partition(':')[2]}", 0, ""
    try:
        for one in built(kernel, target_named(target)):
            if arch not in one.ptx or not one.cubin.startswith(b"\x7fELF"):
                raise ValueError(f"{one.configuration.name}: its PTX or cubin is not of {target}")
            count += 1
        if count != len(kernel.configurations):
            raise ValueError(f"{count} of {len(kernel.configurations)} configurations were compiled")
    except Exception as failure:  # the world is sampled: what Triton does not compile is a measurement
        error = f"{kernel.name}: {type(failure).__name__}: {str(failure).strip()[-300:]}"
    row = {"built": count, "error": error}
    save_row(place, row)
    return {**row, "new": count}


def save_row(place: Path, row: Row) -> None:
    """Write a file that is whole or not there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(row))
    os.replace(unfinished, place)


# ------------------------------------------------------------------ all of them


def subjects(folders: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Yield group, name and place of each subject: the models, then the samples of each folder, the smallest first."""
    import kernel_models

    for name in kernel_models.MODELS:
        yield "gpt" if name.startswith("gpt") else "models", name, f"model={name}"
    seen = set()
    for folder in folders:
        samples = [path.parent for path in folder.glob("**/capture.json")]
        samples.sort(key=lambda place: (sum(file.stat().st_size for file in place.glob("**/model.py")), place))
        for place in samples:
            name = str(place.relative_to(folder))
            group = folder.name if folder.name in ("transformers", "modules") else "graphnet"
            if (group, name) not in seen:
                seen.add((group, name))
                yield group, name, f"sample={place.resolve()}"


def run_apart(place: str, found: Path, build: bool, limit: float) -> None:
    """Examine a subject in a process of its own; note for each target what ended it."""
    files = [found / f"{target.replace(':', '_')}.json" for target in TARGETS]
    if not any(is_missing(file, build) for file in files):
        return
    found.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, str(found), "--one", place, *(["--build"] if build else [])]
    env = {"TRITON_CACHE_DIR": str(found.parent.parent / "triton"), "OMP_NUM_THREADS": "1", **os.environ}
    with (found / "log.txt").open("w") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=limit, env=env, check=False).returncode
            ended = f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            ended = f"ended after {limit:.0f} s"
    said = (found / "log.txt").read_text().strip().splitlines()[-1:]
    for file in files:
        if not file.exists():
            save_row(file, {"ended": f"{ended}: {said[0][:300]}" if said else ended})
            ended, said = "not reached", []


def is_missing(file: Path, build: bool) -> bool:
    """Whether a row is not there, or was made without a build that is now asked for."""
    if not file.exists():
        return True
    row = json.loads(file.read_text())
    return build and "ended" not in row and "built" not in row and file.stem != "cpu"


def read_rows(out: Path, listed: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, str, str, Row]]:
    """Yield group, name, target and row of what has been found."""
    for group, name, _ in listed:
        for target in TARGETS:
            file = folder_of(out, group, name) / f"{target.replace(':', '_')}.json"
            if file.exists():
                yield group, name, target, json.loads(file.read_text())


def folder_of(out: Path, group: str, name: str) -> Path:
    """The folder of what was found of a subject."""
    return out / "found" / f"{group}__{name.replace('/', '__')}"


# ------------------------------------------------------------------ the table


def show(rows: list[tuple[str, str, str, Row]]) -> None:
    """Print the totals by group and target, the refusals by reason, and a line for each subject and target."""
    print(
        "| subjects | target | subjects with all graphs | graphs | kernels | programs | configurations | PTX, cubin "
        "| capture s | lower s | build s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for group in dict.fromkeys(group for group, *_ in rows):
        for target in TARGETS:
            show_total(group, target, [row for g, _, t, row in rows if (g, t) == (group, target)])
    same, compared = equal_sources(rows)
    print(f"\nThe kernels of {same} of {compared} graphs are the same for cuda:80 and cuda:90.\n")
    reasons: dict[str, list[str]] = defaultdict(list)
    for group, name, target, row in rows:
        for reason in reasons_of(row):
            reasons[reason].append(f"{group}/{name} {target}")
    print("| reason | times | first |\n|---|---|---|")
    for reason, places in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"| {reason} | {len(places)} | {places[0]} |")
    print("\n| subject | target | graphs | kernels | configurations | PTX and cubin | capture s | lower s | build s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for group, name, target, row in rows:
        if "ended" in row:
            print(f"| {group}/{name} | {target} | {row['ended']} | | | | | | |")
            continue
        graphs = f"{row['graphs']} of {row['wanted']}"
        print(
            f"| {group}/{name} | {target} | {graphs} | {kernels_of(row)} | {row['configurations'] or ''} "
            f"| {row.get('built', '')} | {row['capture']:.1f} | {row['lower']:.1f} "
            f"| {row.get('build', 0.0):.1f} |"
        )


def show_total(group: str, target: str, rows: list[Row]) -> None:
    """Print the line of a group of subjects for one target."""
    done = [row for row in rows if "ended" not in row]
    whole = sum(row["graphs"] == row["wanted"] for row in done)
    programs = {key for row in done for keys in row["hashes"].values() for key in keys}
    graphs = f"{total(done, 'graphs')} of {total(done, 'wanted')}"
    print(
        f"| {group} | {target} | {whole} of {len(rows)} | {graphs} | {sum(map(kernels_of, done))} | {len(programs)} "
        f"| {total(done, 'configurations') or ''} | {total(done, 'built') or ''} | {total(done, 'capture'):.0f} "
        f"| {total(done, 'lower'):.0f} | {total(done, 'build'):.0f} |"
    )


def total(rows: list[Row], name: str) -> Any:
    """The sum of one number over rows."""
    return sum(row.get(name, 0) for row in rows)


def kernels_of(row: Row) -> int:
    """How many kernels a row has."""
    return sum(map(len, row["hashes"].values()))


def reasons_of(row: Row) -> list[str]:
    """Each reason for which something of a row is missing."""
    if "ended" in row:
        return [row["ended"]]
    reasons = [f"{title.split()[-1]}: {why}" for title, why in row["refused"]]
    uncalled = [f"kernel {name} is never called" for name in row["uncalled"]]
    return [
        str(each).replace("\n", " ").replace("|", "/")[:400] for each in (*reasons, *row.get("unbuilt", ()), *uncalled)
    ]


def equal_sources(rows: list[tuple[str, str, str, Row]]) -> tuple[int, int]:
    """How many graphs have the same kernels for both GPUs, and how many have kernels for both."""
    by_target: dict[str, dict[tuple[str, str, str], list[str]]] = defaultdict(dict)
    for group, name, target, row in rows:
        for title, hashes in row.get("hashes", {}).items():
            by_target[target][group, name, title] = hashes
    first, second = (by_target[target] for target in TARGETS[1:])
    both = first.keys() & second.keys()
    return sum(first[key] == second[key] for key in both), len(both)


def capture_graphnet(samples: Path, out: Path) -> Path:
    """Capture samples of GraphNet, forward and backward; return the folder of those."""
    from compilers import graphnet_list

    captured, listed = out / "graphnet", out / "graphnet.txt"
    out.mkdir(parents=True, exist_ok=True)
    listed.write_text("".join(f"{place}\n" for place in graphnet_list(samples, GRAPHNET)))
    verb = ["corpus", "run", "backward", str(samples), "-o", str(captured), "--list", str(listed), "--timeout", "120"]
    subprocess.run([sys.executable, "-m", "backprint", *verb], check=False)
    return captured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=Path, action="append", default=[], help="a folder of saved captures")
    parser.add_argument("--graphnet", type=Path, help="the samples of a checkout of github.com/PaddlePaddle/GraphNet")
    parser.add_argument("--build", action="store_true", help="compile every configuration to PTX and cubin")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a subject")
    parser.add_argument("--only", help="subjects whose name has this text")
    parser.add_argument("--show", action="store_true", help="only print what has been found")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        examine(given.one, given.out, given.build)
        return
    captured = [given.out / "graphnet"] if given.show else []
    folders = [
        *given.samples,
        *captured,
        *([capture_graphnet(given.graphnet, given.out)] if given.graphnet and not given.show else []),
    ]
    listed = [one for one in subjects(folders) if not given.only or given.only in f"{one[0]}/{one[1]}"]
    for group, name, place in [] if given.show else listed:
        print(f"{group}/{name}", file=sys.stderr, flush=True)
        run_apart(place, folder_of(given.out, group, name), given.build, given.limit)
    show(list(read_rows(given.out, listed)))


if __name__ == "__main__":
    main()
