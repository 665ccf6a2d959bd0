"""Run PyTorch's databases and write `table.json` anew.

    PYTHONPATH=tests python tests/conformance/update.py [SECTION...] [--only=A,B]

A row may only get better: a sample that got worse is named, and the old row stays unless --force is given.
`--markdown` runs nothing: it prints the table for the docs. `--processes=1` leaves a core to others.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
import warnings
from typing import Any

import harness
import torch


def one(job: tuple[str, int]) -> tuple[str, str, str, dict[str, str], float]:
    """One entry of one section."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    section, index = job
    row = harness.SECTIONS[section]
    entry = row.entries()[index]
    start = time.time()
    letters, details = row.check(entry, row.most)
    return section, harness.name_of(entry), letters, details, time.time() - start


def main() -> None:
    if "--markdown" in sys.argv:
        print(harness.markdown(harness.read_table()))
        return
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or list(harness.SECTIONS)
    processes = next((int(word.partition("=")[2]) for word in sys.argv if word.startswith("--processes=")), 2)
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=200) as pool:
        for name in names:
            update(name, pool)


def update(section: str, pool: Any) -> None:
    """Run one section, and write what is new of it into the table."""
    table: dict[str, Any] = harness.read_table() if harness.TABLE.exists() else {}
    entries = harness.SECTIONS[section].entries()
    only = {name for word in sys.argv if word.startswith("--only=") for name in word[7:].split(",")}
    jobs = [(section, index) for index, entry in enumerate(entries) if not only or harness.name_of(entry) in only]
    rows: dict[str, str] = {}
    for done, (_, entry, letters, details, seconds) in enumerate(pool.imap_unordered(one, jobs, chunksize=1), 1):
        rows[entry] = letters
        for outcome, detail in details.items():
            if outcome != "close":
                print(f"{section} | {entry} | {outcome} | {detail[:200]!r}", flush=True)
        if done % 50 == 0:
            print(f"{section}: {done}/{len(jobs)} (last: {entry}, {seconds:.1f} s)", file=sys.stderr, flush=True)
    order = "".join(harness.LETTERS.values())
    old = table.get(section, {})
    for entry, letters in rows.items():
        pairs = enumerate(zip(letters, old.get(entry, ""), strict=False))
        worse = [index for index, (now, then) in pairs if order.index(now) > order.index(then)]
        if worse and "--force" not in sys.argv:
            print(f"WORSE {section} | {entry} | samples {worse[:10]}: {old[entry]} -> {letters}")
            rows[entry] = old[entry]
    table[section] = dict(sorted(({**old, **rows} if only else rows).items()))
    counts = {outcome: sum(row.count(letter) for row in rows.values()) for outcome, letter in harness.LETTERS.items()}
    print(section, sum(counts.values()), {outcome: count for outcome, count in counts.items() if count}, flush=True)
    table["environment"] = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    harness.TABLE.write_text(json.dumps(table, indent=0) + "\n")


if __name__ == "__main__":
    main()
