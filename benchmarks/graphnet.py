"""GraphNet's samples through Backprint, and GraphNet's own extractor beside it.

    python benchmarks/graphnet.py GRAPHNET -o OUT [-n 200] [--extractor]

GRAPHNET is a checkout of github.com/PaddlePaddle/GraphNet, of which so many samples are drawn: evenly over families,
which are the folders below `samples`, and within one of them over kinds of models, which take turns because half of the
corpus is one kind. They are captured, proved and saved in OUT by `backprint corpus run backward`.

With `--extractor` GraphNet's `BackwardGraphExtractorPass` does the same samples by its own driver in one process, with
the `cuda` literals of the samples rewritten to `cpu` first, which is not in its time; where a sample ends the process,
the driver is started again behind it. Its time has no verification in it; ours has.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from results import Figure, keep

COMMON_TAGS = {
    "transformers",
    "pytorch",
    "tf",
    "jax",
    "flax",
    "safetensors",
    "onnx",
    "rust",
    "coreml",
    "openvino",
    "tensorboard",
    "sentence-transformers",
    "gguf",
    "tflite",
    "adapter-transformers",
    "peft",
    "keras",
    "model_hub_mixin",
    "custom_code",
}


def kind_of(folder: Path) -> str:
    """The kind of model: the first tag that names no library; else the name's first word."""
    facts = json.loads((folder / "graph_net.json").read_text())
    for tag in facts.get("original_tag") or ():
        if tag not in COMMON_TAGS and ":" not in tag:
            return str(tag)
    return folder.name.split("-")[0].split("_")[0].rstrip("0123456789")


def draw(root: Path, count: int, seed: int) -> list[str]:
    """Relative paths of samples: families take turns, and within one family kinds do."""
    families: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for place in sorted(root.glob("**/model.py")):
        relative = place.parent.relative_to(root)
        families[relative.parts[0]][kind_of(place.parent)].append(str(relative))
    chance = random.Random(seed)
    turns = {family: taking_turns(kinds, chance) for family, kinds in sorted(families.items())}
    drawn: list[str] = []
    while len(drawn) < count and turns:
        for family in list(turns):
            found = next(turns[family], None)
            if found is None:
                del turns[family]
            elif len(drawn) < count:
                drawn.append(found)
    return drawn


def taking_turns(kinds: dict[str, list[str]], chance: random.Random) -> Iterator[str]:
    """One of each kind in a random order, then another of each."""
    order = sorted(kinds)
    chance.shuffle(order)
    for kind in order:
        chance.shuffle(kinds[kind])
    while any(kinds.values()):
        for kind in order:
            if kinds[kind]:
                yield kinds[kind].pop()


# --- the race --------------------------------------------------------------------------------------------------------


def rewritten(root: Path, names: list[str], place: Path) -> None:
    """Copies of the samples whose code and metadata name the CPU instead of a GPU."""
    for name in names:
        shutil.copytree(root / name, place / name)
        for file in (place / name).glob("*.py"):
            text = file.read_text()
            text = text.replace('device(type="cuda", index=0)', 'device("cpu")')
            file.write_text(text.replace("cuda:0", "cpu").replace('"cuda"', '"cpu"').replace("'cuda'", "'cpu'"))


def theirs(graphnet: Path, names: list[str], place: Path) -> tuple[float, int]:
    """GraphNet's extractor over the samples: seconds, and how many have a forward and a backward afterwards."""
    rewritten(graphnet / "samples", names, place / "rewritten")
    config = {"model_path_prefix": str(place / "rewritten"), "output_dir": str(place / "out"), "device": "cpu"}
    coded = base64.b64encode(json.dumps(config).encode()).decode()
    pass_file = graphnet / "graph_net/torch/sample_pass/backward_graph_extractor.py"
    seconds, left = 0.0, list(names)
    log = place / "log.txt"
    with log.open("w") as out:
        while left:
            (place / "list.txt").write_text("\n".join(left) + "\n")
            start = time.perf_counter()
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "graph_net.apply_sample_pass",
                    "--model-path-list",
                    str(place / "list.txt"),
                    "--sample-pass-file-path",
                    str(pass_file),
                    "--sample-pass-class-name",
                    "BackwardGraphExtractorPass",
                    "--sample-pass-config",
                    coded,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=capped,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(graphnet), os.environ.get("PYTHONPATH", "")])},
            )
            seconds += time.perf_counter() - start
            if done.returncode == 0:
                break
            begun = [line for line in log.read_text().splitlines() if line.startswith("model_path=")]
            if not begun:
                raise SystemExit(f"GraphNet's driver does not start: {log.read_text()[-500:]}")
            left = left[left.index(begun[-1].removeprefix("model_path=").strip("'\"")) + 1 :]
    sides = {side: {n for n in names if any((place / "out" / side / n).glob("**/model.py"))} for side in SIDES}
    return seconds, len(sides["train_forward"] & sides["train_backward"])


SIDES = ("train_forward", "train_backward")
LIMIT = 16 * 2**30


def capped() -> None:
    """Let a sample that is too large end its own process, not the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


def ours(root: Path, listed: Path, place: Path) -> tuple[float, Counter[str]]:
    """`backprint corpus run backward` over the samples: seconds, and how many have each verdict."""
    command = [sys.executable, "-m", "backprint", "corpus", "run", "backward", str(root), "--list", str(listed)]
    start = time.perf_counter()
    done = subprocess.run([*command, "-o", str(place), "--mode", "train", "--json"], stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - start
    return seconds, Counter(json.loads(line)["verdict"] for line in done.stdout.splitlines() if line.startswith("{"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphnet", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("-n", "--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--extractor", action="store_true")
    given = parser.parse_args()
    names = draw(given.graphnet / "samples", given.count, given.seed)
    given.output.mkdir(parents=True)
    listed = given.output / "list.txt"
    listed.write_text("".join(f"{name}\n" for name in names))
    seconds, counts = ours(given.graphnet / "samples", listed, given.output / "backprint")
    figures = [Figure(f"samples that are {word}, of {len(names)}", count) for word, count in counts.most_common()]
    figures.append(Figure("samples an hour, with their proof", len(names) / seconds * 3600))
    if given.extractor:
        seconds, extracted = theirs(given.graphnet.resolve(), names, given.output / "extractor")
        figures.append(Figure("samples an hour, GraphNet's extractor, without a proof", len(names) / seconds * 3600))
        figures.append(Figure("forward and backward by GraphNet's extractor", extracted))
    return keep("graphnet", figures)


if __name__ == "__main__":
    sys.exit(main())
