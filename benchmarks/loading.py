"""Loading and listing samples without torch, and the first look at a graph.

Bars: load and list 1,000 ResNet-18-size samples in <= 2 s; first access to a graph <= 0.2 ms a line.

    python benchmarks/loading.py [SAMPLES]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from results import Figure, keep

LIST = """
import json, sys, time
from pathlib import Path
import backprint as bp
start = time.perf_counter()
rows = []
for path in sorted(Path(sys.argv[1]).iterdir()):
    capture = bp.load(path)
    rows.append((capture.name, capture.engine, capture.verdict["verdict"], len(capture.pairs)))
listed = time.perf_counter() - start
times = []
for path in sorted(Path(sys.argv[1]).iterdir())[:20]:
    pair = bp.load(path).pairs[0]
    for side, read in (("forward", lambda: pair.forward), ("backward", lambda: pair.backward)):
        text = (path / "pair_0" / side / "model.py").read_text()
        lines = text.split("# --- Below")[0].count(chr(10))
        start = time.perf_counter()
        read()
        times.append((time.perf_counter() - start) / lines)
times.sort()
median = 1e3 * times[len(times) // 2]
print(json.dumps({"samples": len(rows), "seconds": listed, "torch": "torch" in sys.modules, "ms a line": median}))
"""


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    import backprint as bp
    from backprint.examples import resnet18

    folder = Path(tempfile.mkdtemp())
    try:
        model, args = resnet18.factory()
        first = bp.save(bp.capture(model, args=args), folder / "0000")
        for index in range(1, count):
            shutil.copytree(first, folder / f"{index:04}")
        done = subprocess.run([sys.executable, "-c", LIST, str(folder)], capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        if row["torch"]:
            raise SystemExit("listing samples imports torch")
        return keep(
            "loading",
            [
                Figure(
                    f"load and list {row['samples']:,} ResNet-18 samples", row["seconds"], "s", at_most=2 * count / 1000
                ),
                Figure("first access to a graph, a line", row["ms a line"], "ms", at_most=0.2),
            ],
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
