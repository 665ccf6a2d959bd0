"""Run all of PyTorch's databases and write `table.json` anew: python tests/conformance/update.py [SECTION...]

A row may only get better: a sample that got worse is named, and the old row stays unless --force is given.
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
    names = [name for name in sys.argv[1:] if name != "--force"] or list(harness.SECTIONS)
    table: dict[str, Any] = harness.read_table() if harness.TABLE.exists() else {}
    jobs = [(name, index) for name in names for index in range(len(harness.SECTIONS[name].entries()))]
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=200) as pool:
        for done, (section, entry, letters, details, seconds) in enumerate(pool.imap_unordered(one, jobs, chunksize=1), 1):
            found[section][entry] = letters
            for outcome, detail in details.items():
                if outcome not in ("close",):
                    print(f"{section} | {entry} | {outcome} | {detail[:200]!r}", flush=True)
            if done % 50 == 0:
                print(f"{done}/{len(jobs)} (last: {entry}, {seconds:.1f} s)", file=sys.stderr, flush=True)
    order = "".join(harness.LETTERS.values())
    for section, rows in found.items():
        old = table.get(section, {})
        for entry, letters in rows.items():
            worse = [i for i, (a, b) in enumerate(zip(letters, old.get(entry, ""), strict=False)) if order.index(a) > order.index(b)]
            if worse and "--force" not in sys.argv:
                print(f"WORSE {section} | {entry} | samples {worse[:10]}: {old[entry]} -> {letters}")
                rows[entry] = old[entry]
        table[section] = dict(sorted(rows.items()))
        counts = {outcome: sum(row.count(letter) for row in rows.values()) for outcome, letter in harness.LETTERS.items()}
        print(section, sum(counts.values()), {outcome: count for outcome, count in counts.items() if count})
    table["environment"] = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    harness.TABLE.write_text(json.dumps(table, indent=0) + "\n")


if __name__ == "__main__":
    main()
