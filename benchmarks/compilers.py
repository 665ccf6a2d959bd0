"""Compilers on a hundred forward/backward pairs, each saved as a sample: who is right, and how fast.

    python benchmarks/compilers.py OUT --compiler eager,aot_eager,inductor [--graphnet GRAPHNET/samples]

36 are PyTorch's own modules, from its module database, in training; 40 are `transformers` models made from
configurations (those of `architectures.py`), in training; 24 are samples of GraphNet: of the smallest of each kind,
those that `corpus run backward` captures in the least time. Without `--graphnet` the others are made. What cannot
be captured is named and left out. A folder that exists is kept, so the command goes on where it was ended.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from results import Figure, keep

import backprint as bp

EACH = 36, 40, 24

TRIED = 40
"""How many GraphNet samples are captured; the quickest of them are taken."""

LARGEST = 20_000_000
"""The most bytes of a GraphNet sample's parameters and inputs."""

Made = tuple[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]]


def module_programs() -> Iterator[Made]:
    """Modules of PyTorch's database: the first input of each, in training, evenly spaced over the database."""
    from torch.testing._internal.common_modules import module_db

    def make(info: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        given: dict[str, Any] = dict(device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        sample = next(each for each in info.module_inputs_func(info, **given) if each.forward_input is not None)
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train()
        return module, tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)

    for info in spread(list(module_db)):
        yield f"modules/{info.name.replace('.', '_')}", lambda info=info: make(info)


def transformer_programs() -> Iterator[Made]:
    """The architectures of `architectures.py`, evenly spaced."""
    import architectures

    def make(row: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        model, inputs = architectures.make(row)
        return model, (), inputs

    for row in spread(list(architectures.ARCHITECTURES)):
        yield f"transformers/{row.name.replace('/', '_').replace(' ', '_')}", lambda row=row: make(row)


def spread(rows: list[Any]) -> list[Any]:
    """Every other row first, then those between: so that any number of the first is spread over all."""
    return [row for start in (0, 1) for row in rows[start::2]]


def collect(programs: Iterator[Made], count: int, out: Path, loss: Any) -> None:
    """Capture and save the first `count` that give a backward."""
    for name, make in programs:
        if count == 0:
            return
        if not (out / name / "capture.json").exists():
            try:
                torch.manual_seed(0)
                program, args, kwargs = make()
                capture = bp.capture(program, args=args, kwargs=kwargs, loss=loss)
                if not any(pair.backward is not None for pair in capture.pairs):
                    raise ValueError("no output requires grad")
                bp.save(capture, out / name, overwrite=True)
            except Exception as error:  # the world is sampled: what cannot be captured is another measurement
                print(f"{name}: {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
                continue
        print(name, flush=True)
        count -= 1


def graphnet_list(root: Path, count: int) -> list[str]:
    """The sample of each kind of model whose tensors are the smallest, at most LARGEST; families in turn."""
    from graphnet import kind_of

    from backprint.tools.graphnet.metas import listed_bytes

    smallest: dict[tuple[str, str], tuple[int, str]] = {}
    for model in sorted(root.glob("**/model.py")):
        place = str(model.parent.relative_to(root))
        size = listed_bytes(model.parent)
        if 0 < size <= LARGEST:
            key = place.split("/")[0], kind_of(model.parent)
            smallest[key] = min(smallest.get(key, (LARGEST, "")), (size, place))
    families = defaultdict(list)
    for (family, _), row in sorted(smallest.items(), key=lambda item: item[1]):
        families[family].append(row[1])
    turns = [[rows[turn] for rows in families.values() if turn < len(rows)] for turn in range(count)]
    return [place for row in turns for place in row][:count]


def take_quickest(captured: Path, out: Path, count: int) -> None:
    """Copy the samples with a backward that were captured in the least time."""
    from backprint.tools.jobs.ledger import Ledger

    with Ledger.reading(captured) as ledger:
        rows = [row for row in ledger.rows(order="seconds") if row["verdict"] in ("bitwise", "close")]
    for row in rows[:count]:
        shutil.copytree(captured / row["path"], out / row["path"], dirs_exist_ok=True)
        print(f"graphnet/{row['id']}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="a folder for samples and run")
    parser.add_argument("--compiler", default="eager,aot_eager,inductor")
    parser.add_argument("--graphnet", type=Path, help="the samples of a checkout of github.com/PaddlePaddle/GraphNet")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    samples = given.out / "samples"
    collect(module_programs(), EACH[0], samples, None)
    collect(transformer_programs(), EACH[1], samples, lambda output: output.loss)
    if given.graphnet is not None:
        captured = given.out / "graphnet"
        listed = captured.with_suffix(".txt")
        listed.write_text("".join(f"{place}\n" for place in graphnet_list(given.graphnet, TRIED)))
        verb = ["corpus", "run", "backward", str(given.graphnet), "-o", str(captured), "--list", str(listed)]
        subprocess.run([sys.executable, "-m", "backprint", *verb, "--timeout", "120"])
        take_quickest(captured, samples / "graphnet", EACH[2])
    run = given.out / "run"
    command = [sys.executable, "-m", "backprint", "bench", "run", str(samples), "--compiler", given.compiler]
    subprocess.run([*command, "-o", str(run)])
    return keep("compilers", list(figures_of(run)))


def figures_of(run: Path) -> Iterator[Figure]:
    """The graphs of each compiler by outcome, and its median speedup."""
    from backprint.tools.bench.runs import read_run

    cells = defaultdict(list)
    for cell in read_run(run).cells:
        cells[cell.compiler].append(cell)
    for compiler, own in cells.items():
        for word, count in Counter(cell.outcome for cell in own).most_common():
            yield Figure(f"{compiler}: graphs that are {word}, of {len(own)}", count)
        speedups = [cell.speedup for cell in own if cell.speedup is not None]
        if speedups:
            yield Figure(f"{compiler}: median speedup over eager", statistics.median(speedups), "×")


if __name__ == "__main__":
    sys.exit(main())
