"""Whether every process of a distributed capture ends, with the cause, when one of them fails.

    python benchmarks/rank_failures.py [--moments 10] [kill raise refuse interrupt]

Two processes with gloo capture and save together, without a launcher that would end the other. At ten moments one of
them is killed, raises, or is refused, or both get Ctrl-C. Printed are the seconds until both have ended, the cause that
the other one names, and what is left of files half written. Where the model raises in a run on other inputs, which then
prove nothing, both ranks end well.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SUBJECT = Path(__file__).parent.parent / "tests" / "subjects" / "failing_rank.py"

HOWS = ("kill", "raise", "refuse", "interrupt")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(how: str, moment: int, folder: str) -> list[subprocess.Popen[str]]:
    """Start both ranks, and wait until both are about to capture."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    argument = how if how in ("raise", "refuse") else "none"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SUBJECT), argument, str(moment), folder],
            env={**os.environ, **place, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.stdout is not None
        while (line := rank.stdout.readline()) and line.strip() != "ready":
            pass
    return ranks


def fail(how: str, moment: int, moments: int, ranks: list[subprocess.Popen[str]]) -> float:
    """Let one rank fail, or both; return when."""
    if how in ("kill", "interrupt"):
        time.sleep(0.02 + 3.0 * (moment - 1) / moments)
        for rank in ranks[1:] if how == "kill" else ranks:
            rank.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
    return time.monotonic()


def tried(how: str, moment: int, moments: int) -> bool:
    """Run one failure; print what came of it, and return whether all is well."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = started(how, moment, folder)
        begun = fail(how, moment, moments, ranks)
        texts = []
        for rank in ranks:
            try:
                texts.append(rank.communicate(timeout=max(0.1, 60 + begun - time.monotonic()))[1])
            except subprocess.TimeoutExpired:
                rank.kill()
                texts.append("STILL RUNNING")
                rank.communicate()
        seconds = time.monotonic() - begun
        left = [str(path.relative_to(folder)) for path in Path(folder).rglob("*.part")]
        last = [text.strip().splitlines()[-1][:110] if text.strip() else "-" for text in texts]
        codes = [rank.returncode for rank in ranks]
    alike = all(codes) or (how == "raise" and not any(codes))
    well = seconds < 15 and not left and alike and "STILL RUNNING" not in texts
    print(f"{how:10}{moment:3} {'well' if well else 'NOT WELL':9}{seconds:6.1f} s  exits {codes}  left {left}")
    for rank, text in enumerate(last):
        print(f"             rank {rank}: {text}")
    return well


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hows", nargs="*", default=list(HOWS), metavar="HOW")
    parser.add_argument("--moments", type=int, default=10)
    given = parser.parse_args()
    rows = [tried(how, moment, given.moments) for how in given.hows for moment in range(1, given.moments + 1)]
    print(f"{sum(rows)} of {len(rows)} well")
    sys.exit(not all(rows))


if __name__ == "__main__":
    main()
