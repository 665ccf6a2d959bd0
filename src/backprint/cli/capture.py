"""`backprint capture TARGET -o DIR`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from backprint.cli.say import echo, ending, working
from backprint.graph.verdicts import has_proof, standing, told

LOSSES = ("sum", "mean")


@click.command("capture")
@click.argument("target")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder to write the sample to."
)
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "aot", "dynamo", "eager"]),
    help="How to trace.",
)
@click.option(
    "--data",
    default="seed",
    show_default=True,
    type=click.Choice(["seed", "exact", "none"]),
    help="How inputs are kept.",
)
@click.option(
    "--mode",
    type=click.Choice(["train", "eval"]),
    help="Put the module in this mode first, rewrite a GraphNet sample to it; else as it is.",
)
@click.option("--loss", help="`sum` or `mean` of the first output, or file.py:function of the output.")
@click.option(
    "--partition", default="min-cut", show_default=True, type=click.Choice(["min-cut", "default"]), help="What to save."
)
@click.option(
    "--specialise/--no-specialise",
    default=None,
    help="Go through .item() and data-dependent sizes, keeping them as guards (the default), or refuse them.",
)
@click.option("--dynamic", is_flag=True, help="Keep the sizes of inputs symbolic, with the conditions on them.")
@click.option("--order", default="1", type=click.Choice(["1", "2"]), help="2: the backward of the backward.")
@click.option("--fake", is_flag=True, help="Build and trace without values: nothing of the model is allocated.")
@click.option("--device", help="Move the model and its inputs here first.")
@click.option("--trust", is_flag=True, help="Execute the model.py of a GraphNet sample if the parser refuses it.")
@click.option("--name", help="The sample's name; else the module's or function's.")
@click.option(
    "--allow", multiple=True, metavar="NS::OP", help="Keep this custom operator as a requirement of the sample."
)
@click.option("--overwrite", is_flag=True, help="Replace a sample that is there already.")
@click.option(
    "--layout",
    default="backprint",
    show_default=True,
    type=click.Choice(["backprint", "graphnet"]),
    help="graphnet: trees train_forward, train_backward and eval_forward, as GraphNet's tools expect them.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def command(
    target: str, output: Path, loss: str | None, device: str | None, allow: tuple[str, ...], **rest: Any
) -> None:
    """Capture the forward and backward of TARGET and write them as a sample.

    TARGET is `file.py:factory` or `package.module:factory`, where the factory gives (model, args) or (model, args,
    kwargs); or the folder of a GraphNet sample, which is parsed and not executed; or the folder of one of our samples,
    whose forward is captured again.
    """
    with ending(lambda: kept(output)), working(f"{target}: reading") as at:
        capture(target, output, loss, device, allow, at, **rest)


def kept(output: Path) -> str:
    """What is there after an end at any moment."""
    there = (output / "capture.json").exists()
    return f"{output} is a whole sample" if there else "nothing was written: a sample is there whole or not at all"


def capture(
    target: str,
    output: Path,
    loss: str | None,
    device: str | None,
    allow: tuple[str, ...],
    at: Callable[[str], None],
    **rest: Any,
) -> None:
    """Read, capture, save, tell."""
    from backprint.sample.place import check_place
    from backprint.target import capture_target, read_target

    as_json, overwrite, data = rest.pop("as_json"), rest.pop("overwrite"), rest.pop("data")
    layout, mode = rest.pop("layout"), rest.pop("mode")
    if layout == "backprint":
        check_place(output, overwrite)
    found = read_target(target, fake=rest["fake"], device=device, mode=mode, trust=rest.pop("trust"))
    import backprint as bp

    at(f"{target}: capturing")
    order = int(rest.pop("order"))
    rest["allow"] = allow
    made = capture_target(found, loss=loss_of(loss), order=order, **rest)
    at(f"{target}: proving and saving")
    if layout == "graphnet":
        trees(made, output, found, target, rest, allow, overwrite, as_json)
        return
    path = bp.save(made, output, data, allow=allow, overwrite=overwrite)
    stored = bp.load(path, allow=allow)
    answer = {"sample": str(path), "name": made.name, "engine": made.engine, **stored.verdict}
    answer["proof"] = has_proof(*standing(stored.verdict))
    if found.kind == "graphnet" or made.notes:
        answer |= {"asks": found.asks, "notes": made.notes}
    if as_json:
        echo(json.dumps(answer))
    else:
        tell(answer, made)
    if answer["verdict"] in ("wrong", "failed"):
        raise SystemExit(1)


def tell(answer: dict[str, Any], made: Any) -> None:
    """The answer in words."""
    for pair in made.pairs:
        back = f"{len(pair.backward.steps)} steps backward" if pair.backward else "no backward"
        name = made.name if len(made.pairs) == 1 else f"{made.name} {pair.name}"
        steps = f"{len(pair.forward.steps)} steps forward, {back}, {len(pair.saved)} values saved"
        echo(f"{answer['sample']}: {name}, {steps}")
    echo(f"engine: {made.engine}")
    for text in made.why:
        echo(text if "::" in text.partition(":")[0] else f"not by {text}")
    for text in made.breaks:
        echo(f"break: {text}")
    echo(f"verdict: {told(answer)}" + (f" ({answer['detail']})" if answer["detail"] else ""))
    for guard in made.guards:
        echo(f"guard: {guard.text}")
    for text in answer.get("notes", ()):
        echo(f"note: {text}")


def trees(
    made: Any, output: Path, found: Any, target: str, options: dict[str, Any], allow: tuple[str, ...],
    overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write GraphNet's trees, with the program's verdict; nothing that is wrong is written."""
    import backprint as bp
    from backprint.api import write_layout

    verdict = bp.verify(made)[-1]
    folders: dict[str, Any] = {}
    if verdict.verdict not in ("wrong", "failed"):
        source = Path(target) if found.kind == "graphnet" else None
        evaluation = in_eval(found, options)
        given = dict(evaluation=evaluation, overwrite=overwrite, allow=allow)
        folders = write_layout(made, output, made.name, source, **given)
    places = {tree: str(folder) for tree, folder in folders.items()}
    answer = {"name": made.name, "engine": made.engine, "verdict": verdict.verdict, "detail": verdict.detail}
    if as_json:
        echo(json.dumps({**answer, "trees": places}))
    else:
        echo(f"{made.name}: {verdict.verdict} {verdict.detail}".rstrip())
        for tree, place in places.items():
            echo(f"{tree:14} {place}")
    if not folders:
        raise SystemExit(1)


def in_eval(found: Any, options: dict[str, Any]) -> Any:
    """A factory's program in eval mode, captured; None for samples, which have no program to put into a mode."""
    from dataclasses import replace

    import torch

    from backprint.target import capture_target

    if found.kind != "factory":
        return None
    mode = "eval" if isinstance(found.model, torch.nn.Module) else None
    return capture_target(replace(found, mode=mode), **options)


def loss_of(text: str | None) -> Any:
    """A loss by name, or a function of the user's."""
    if text is None:
        return None
    if text in LOSSES:
        return lambda output: getattr(first_tensor(output), text)()
    from backprint.target import function_of

    return function_of(text)


def first_tensor(output: Any) -> Any:
    """The first floating-point tensor of a result."""
    import torch
    from torch.utils._pytree import tree_leaves

    from backprint.errors import UsageError

    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
    raise UsageError("--loss: the output holds no floating-point tensor")
