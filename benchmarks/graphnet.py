"""GraphNet's samples through Backprint, and GraphNet's own extractor beside it.

    python benchmarks/graphnet.py draw GRAPHNET/samples -n 200 > list.txt   which samples: evenly over families
    backprint corpus run backward GRAPHNET/samples --list list.txt -o OUT       ours: capture, prove, save
    python benchmarks/graphnet.py race GRAPHNET list.txt -o DIR             both, in turn: samples per hour
    python benchmarks/graphnet.py limit GRAPHNET list.txt                   what running them takes, and nothing else
    python benchmarks/graphnet.py cuts GRAPHNET list.txt -o DIR             gradients of samples cut out of these

GRAPHNET is a checkout of github.com/PaddlePaddle/GraphNet. A family is a folder below `samples`; within it kinds of
models take turns (a model's kind is the tag that says so in `graph_net.json`), because half of the corpus is one kind.
`race` runs GraphNet's `BackwardGraphExtractorPass` by its own driver, in one process, as its script does for a hundred
samples, and with a process for each, as it does for all, with the `cuda` literals of the samples rewritten to `cpu`
first, which is not in its time; where a sample ends the one process (the machine's memory), the driver is started again
behind it. Its time has no verification in it; ours has.
`limit` runs each program forward and backward once, in eager, with one thread. A proof takes that twice at the least
(the program and its graphs), so the samples per hour that any prover could reach are on that scale.
`cuts` cuts two samples out of each by GraphNet's `SubgraphGenerator`, as `NAME_startN_endM_K` below `_decomposed/`, and
captures them. Their backward runs on the activations and on the gradients that the whole model has at the cut; the
gradients of all inputs have to be those that autograd gives in the whole model.
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
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def theirs(graphnet: Path, names: list[str], place: Path, options: list[str]) -> dict[str, object]:
    """GraphNet's extractor over the samples: seconds, and which have a forward and a backward afterwards."""
    rewritten(graphnet / "samples", names, place / "rewritten")
    config = {"model_path_prefix": str(place / "rewritten"), "output_dir": str(place / "out"), "device": "cpu"}
    coded = base64.b64encode(json.dumps(config).encode()).decode()
    pass_file = graphnet / "graph_net/torch/sample_pass/backward_graph_extractor.py"
    seconds, left, restarts = 0.0, list(names), 0
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
                    *options,
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
            restarts += 1
    sides = {side: {n for n in names if any((place / "out" / side / n).glob("**/model.py"))} for side in SIDES}
    both = sorted(sides["train_forward"] & sides["train_backward"])
    return {"seconds": seconds, "samples": len(names), "extracted": len(both), "restarts": restarts, "names": both}


SIDES = ("train_forward", "train_backward")
LIMIT = 16 * 2**30


def capped() -> None:
    """Let a sample that is too large end its own process, not the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


def ours(root: Path, listed: Path, place: Path, jobs: int, options: list[str]) -> dict[str, object]:
    """`backprint corpus run backward` over the samples: seconds, and what the ledger says of them."""
    tool = Path(sys.executable).with_name("backprint")
    start = time.perf_counter()
    done = subprocess.run(
        [
            str(tool),
            "corpus",
            "run",
            "backward",
            str(root),
            "--list",
            str(listed),
            "-o",
            str(place),
            "--json",
            "--allow-unproven",
            *(["--jobs", str(jobs)] if jobs else []),
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        raise SystemExit(f"backprint corpus run backward gave nothing: {done.stderr[-2000:]}")
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["verdict"]] += 1
    return {"seconds": seconds, "samples": len(rows), **counts}


WAYS = {
    "backprint": [],
    "backprint, engine eager, no power": ["--engine", "eager", "--power", "none"],
}

THEIR_WAYS = {"graphnet": [], "graphnet, --use-subprocess": ["--use-subprocess"]}
"""Its driver for all its samples (`tools/generate_subgraph_dataset.sh`) has a process for each."""


def race(graphnet: Path, listed: Path, place: Path, jobs: int) -> None:
    """Ours in both ways, then theirs in both, over the same list."""
    names = listed.read_text().split("\n")
    names = [name for name in names if name]
    place.mkdir(parents=True, exist_ok=False)
    rows = {}
    for name, options in WAYS.items():
        rows[name] = ours(graphnet / "samples", listed, place / name.replace(" ", "_"), jobs, options)
        print(json.dumps(rows[name]), flush=True)
    for name, options in THEIR_WAYS.items():
        rows[name] = theirs(graphnet, names, place / name.replace(" ", "_"), options)
        print(json.dumps(rows[name]), flush=True)
    rates = {}
    for name, row in rows.items():
        rates[name] = int(str(row["samples"])) / float(str(row["seconds"])) * 3600
        print(f"{name}: {row['samples']} samples in {row['seconds']:.1f} s: {rates[name]:.0f} an hour")
    for name in WAYS:
        for other in THEIR_WAYS:
            print(f"{name} against {other}: {rates[name] / rates[other]:.2f}")


def limit(root: Path, listed: Path) -> None:
    """Seconds of one eager step of each sample, its inputs already made."""
    import torch

    from backprint.tools.target import read_target

    torch.set_num_threads(1)
    total = 0.0
    for name in filter(None, listed.read_text().split("\n")):
        target = read_target(root / name, mode="train")
        for leaf in (*target.model.parameters(), *target.kwargs.values()):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                leaf.requires_grad_()
        start = time.perf_counter()
        found = [each for each in target.model(*target.args, **target.kwargs) if isinstance(each, torch.Tensor)]
        ends = [each for each in found if each.requires_grad]
        if ends:
            torch.autograd.backward(ends, [torch.ones_like(each) for each in ends])
        seconds = time.perf_counter() - start
        total += seconds
        print(json.dumps({"sample": name, "seconds": seconds}), flush=True)
        del target, found, ends
    cores = len(os.sched_getaffinity(0))
    print(f"{total:.1f} s of one thread; {total / cores:.1f} s on {cores} cores")


# --- samples that are cut out of others -------------------------------------------------------------------------------

LONGEST_CUT = 12
"""The most operators of a cut sample: GraphNet's typical ones have 4 to 64."""


def cuts(graphnet: Path, names: list[str], place: Path) -> None:
    """Cut two samples out of each, and compare the gradients of their inputs with the whole model's."""
    import torch

    sys.path.insert(0, str(graphnet))
    from graph_net.torch import decompose_util, extractor, fx_graph_module_util, fx_graph_parse_util
    from graph_net.torch.sample_pass.subgraph_generator import SubgraphGenerator

    # It takes `subgraph_sources.json` for the folder of a graph, and fails to remove it.
    extractor.GraphExtractor._cleanup_stale_data = lambda self, path: None
    root, out, equal, all_cuts = place / "rewritten", place / "cut", 0, 0
    rewritten(graphnet / "samples", names, root)
    for name in names:
        module, inputs = fx_graph_module_util.get_torch_module_and_inputs(root / name, use_dummy_inputs=False)
        whole = fx_graph_parse_util.parse_sole_graph_module(module, inputs)
        count = sum(node.op not in ("placeholder", "output") for node in whole.graph.nodes)
        length = min(LONGEST_CUT, count // 3)
        ranges = [(start, start + length) for start in (count // 3, count - length - 1)]
        (root / name / "subgraph_ranges.json").write_text(json.dumps({"subgraph_ranges": ranges}))
        options = {"model_path_prefix": str(root), "output_dir": str(out), "subgraph_ranges_json_root": str(root)}
        SubgraphGenerator({**options, "device": "cpu"}).resume(name)
        for index, (start, end) in enumerate(ranges):
            recorded: list[Any] = []

            def recording(submodule: Any, number: int, recorded: list[Any] = recorded) -> Any:
                recorded.append(recording_cut(submodule))
                return recorded[-1]

            torch.manual_seed(0)
            cut_out = decompose_util.convert_to_submodules_graph(
                whole, [], [(start, end)], submodule_hook=recording, use_all_inputs=False
            )
            arguments = [
                value.detach().requires_grad_("_parameters_" in node.target and value.is_floating_point())
                if isinstance(value, torch.Tensor)
                else value
                for node, value in zip(whole.graph.find_nodes(op="placeholder"), inputs, strict=True)
            ]
            ends = [value for value in cut_out(*arguments) if isinstance(value, torch.Tensor) and value.requires_grad]
            torch.autograd.backward(ends, [torch.randn_like(value) for value in ends])
            folder = out / name / "_decomposed" / f"{Path(name).name}_start{start}_end{end}_{index}"
            worst, others = compared_with_whole(folder, recorded[0])
            all_cuts, equal = all_cuts + 1, equal + (not others and worst < 1e-4)
            print(f"{folder.name}: farthest {worst:.1e}; {others or 'every gradient'}", flush=True)
    print(f"{equal} of {all_cuts} cut samples have the gradients of the whole model")


def recording_cut(submodule: Any) -> Any:
    """The part of a model that is cut out: it keeps its inputs, and the gradients at its inputs and outputs."""
    import torch

    names = [node.target for node in submodule.graph.find_nodes(op="placeholder")]

    def kept(gradients: dict[Any, Any], key: Any, value: Any) -> Any:
        """A copy of the value, so that its gradient is what comes through here alone."""
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return value
        value = value.clone()
        value.register_hook(lambda gradient: gradients.__setitem__(key, gradient))
        return value

    class Recording(torch.nn.Module):
        values: dict[str, Any]
        gradients: dict[str, Any]
        tangents: dict[int, Any]

        def forward(self, *values: Any) -> Any:
            self.gradients, self.tangents = {}, {}
            self.values = {
                name: value.detach().clone() if isinstance(value, torch.Tensor) else value
                for name, value in zip(names, values, strict=True)
            }
            own = [kept(self.gradients, name, value) for name, value in zip(names, values, strict=True)]
            return tuple(kept(self.tangents, place, value) for place, value in enumerate(submodule(*own)))

    return Recording()


def compared_with_whole(folder: Path, cut: Any) -> tuple[float, str]:
    """The largest distance of a gradient from the whole model's, relative to its size; and what is missing."""
    import torch

    import backprint as bp
    from backprint.tools.graphnet import read_graphnet
    from backprint.tools.graphnet.read import plan_of

    raw = {named.name: named.raw for named in plan_of(read_graphnet(folder)).inputs}
    [pair] = bp.capture(folder).pairs
    results = pair.forward.to_fx()(*(cut.values[raw[port.name]].clone() for port in pair.forward.inputs))
    given = {(port.role, port.name): value for port, value in zip(pair.forward.outputs, results, strict=True)}

    def passed(port: Any) -> Any:
        if port.role != "tangent":
            return given["saved", port.name] if ("saved", port.name) in given else cut.values[raw[port.name]]
        zeros = torch.zeros(port.spec.shape, dtype=getattr(torch, port.spec.dtype))
        number = port.name.removeprefix("output").removeprefix(".") or "0"  # a cut sample returns a tuple
        return cut.tangents.get(int(number), zeros) if number.isdigit() else zeros

    if pair.backward is None:
        return 0.0, "no backward"
    gradients = pair.backward.to_fx()(*map(passed, pair.backward.inputs))
    found = {raw[port.name]: value for port, value in zip(pair.backward.outputs, gradients, strict=True)}
    missing = [name for name in cut.gradients if name not in found]
    worst = max(
        (
            float((found[name] - wanted).norm() / wanted.norm().clamp_min(1e-30))
            for name, wanted in cut.gradients.items()
            if name in found
        ),
        default=0.0,
    )
    return worst, f"no gradient of {', '.join(missing)}" if missing else ""


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    one = verbs.add_parser("draw")
    one.add_argument("root", type=Path)
    one.add_argument("-n", "--count", type=int, default=200)
    one.add_argument("--seed", type=int, default=4)
    two = verbs.add_parser("race")
    two.add_argument("graphnet", type=Path)
    two.add_argument("listed", type=Path)
    two.add_argument("-o", "--output", type=Path, required=True)
    two.add_argument("--jobs", type=int, default=0)
    three = verbs.add_parser("limit")
    three.add_argument("graphnet", type=Path)
    three.add_argument("listed", type=Path)
    four = verbs.add_parser("cuts")
    four.add_argument("graphnet", type=Path)
    four.add_argument("listed", type=Path)
    four.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    if given.verb == "cuts":
        cuts(given.graphnet.resolve(), given.listed.read_text().split(), given.output.resolve())
    elif given.verb == "limit":
        limit(given.graphnet / "samples", given.listed)
    elif given.verb == "draw":
        print("\n".join(draw(given.root, given.count, given.seed)))
    else:
        race(given.graphnet.resolve(), given.listed, given.output, given.jobs)


if __name__ == "__main__":
    main()
