"""How many samples have a proof, as they are saved by default, and whether all that speaks of it says the same.

Of each GraphNet sample: captured (`--mode train`), saved, loaded; then what the sample itself says (`capture.json`,
which a corpus's ledger and its report read), what `backprint verify` says and what `backprint power` says.

    python benchmarks/proof.py --graphnet DIR [--mode train] [--count 60] [--seed 0] [--megabytes 30] [--limit 300]
                               [--json FILE] [SAMPLE...]

DIR is a checkout of GraphNet. The samples are those of `power.py`: drawn evenly over families. Nothing of GraphNet is
imported or executed. A sample has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from power import drawn

import backprint as bp
from backprint.cli.power import measured
from backprint.cli.verify import rows_of_sample
from backprint.tools.target import capture_target, read_target

Row = dict[str, Any]
GOOD = ("bitwise", "close")


def told(folder: Path, mode: str | None) -> Row:
    """What is said of one sample's proof, by whom."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    seconds = {}
    with tempfile.TemporaryDirectory() as place:
        started = time.monotonic()
        target = read_target(folder, mode=mode)  # held until it is saved, so that it is asked and not autograd alone
        capture_target(target).save(place, overwrite=True)
        seconds["save"] = time.monotonic() - started
        stored = bp.load(place).verdict
        started = time.monotonic()
        verified = list(rows_of_sample(Path(place), ()))[-1]
        seconds["verify"] = time.monotonic() - started
        started = time.monotonic()
        power = measured(Path(place), "own", None, lambda: bp.load(place))
        seconds["power"] = time.monotonic() - started
    return {
        "verdict": stored["verdict"],
        "ports": len(stored["ports"]),
        "saved": {"proof": stored["verdict"] in GOOD and not stored["vacuous"], "without": stored["vacuous"]},
        "verify": {"proof": verified["proof"], "without": verified["vacuous"], "detail": verified["detail"][:300]},
        "power": {
            "proof": power.get("proof", power.get("reacts")),
            "without": power.get("vacuous", power.get("dead_ports", [power.get("error")])),
            "hidden": power.get("hidden"),
        },
        "seconds": seconds,
    }


def child(pipe: Any, folder: Path, mode: str | None) -> None:
    """One sample in a process of its own."""
    try:
        pipe.send(told(folder, mode))
    except Exception as error:  # a row for every sample
        pipe.send({"error": f"{type(error).__name__}: {str(error)[:300]}"})


def alone(folder: Path, limit: float, mode: str | None) -> Row:
    """One sample, in a process that may take `limit` seconds."""
    near, far = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=child, args=(far, folder, mode))
    process.start()
    far.close()
    try:
        row: Row = near.recv() if near.poll(limit) else {"error": f"no answer in {limit:.0f} s"}
    except EOFError:
        row = {"error": "its process died"}
    process.kill()
    process.join()
    return row


SIDES = ("saved", "verify", "power")


def table(rows: list[Row]) -> str:
    """What it came to."""
    found = [row for row in rows if "error" not in row]
    able = [row for row in found if row["verdict"] != "undifferentiable"]
    lines = ["| a proof of every port, by | samples |", "|---|---|"]
    for side in SIDES:
        good = sum(bool(row[side]["proof"]) for row in able)
        lines.append(f"| {side} | {good} of {len(able)} ({good / max(1, len(able)):.1%}) |")
    same = sum(len({bool(row[side]["proof"]) for side in SIDES}) == 1 for row in found)
    lines += [f"| all three say the same | {same} of {len(found)} |", ""]
    verdicts = Counter(row["verdict"] for row in found)
    lines.append(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    errors = Counter(row["error"].partition(":")[0] for row in rows if "error" in row)
    if errors:
        lines.append("Not measured: " + ", ".join(f"{count} {name}" for name, count in errors.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", type=Path)
    parser.add_argument("--graphnet", type=Path, required=True, help="a checkout of GraphNet")
    parser.add_argument("--mode", choices=("train", "eval"), default="train")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=30, help="of inputs that a sample may have")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one sample may take in all")
    parser.add_argument("--json", type=Path, help="a line a sample")
    given = parser.parse_args()
    root = given.graphnet / "samples"
    places = given.samples or drawn(root, given.count, given.seed, given.megabytes * 2**20)
    rows = []
    for place in places:
        row = {"sample": str(place.relative_to(root) if place.is_relative_to(root) else place)}
        row |= alone(place, given.limit, given.mode)
        rows.append(row)
        said = row.get("error") or " ".join(f"{side}: {row[side]['proof']}" for side in SIDES)
        print(f"{len(rows)}/{len(places)} {row['sample']} {said[:160]}", flush=True)
        if given.json:
            with given.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
