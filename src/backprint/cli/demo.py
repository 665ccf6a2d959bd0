"""`backprint demo`: capture, verify and show two models, and print where the results are."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.say import echo, ending
from backprint.graph.verdicts import PROVED

MODELS = ("convnet", "gpt")


@click.command("demo")
@click.option(
    "-o",
    "--output",
    default="samples/demo",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where to write; samples of these two names that are there are replaced.",
)
def command(output: Path) -> None:
    """Capture a convolutional model and a small GPT, prove both, and show what their backward does."""
    with ending(lambda: f"what was captured is in {output}"):
        demonstrate(output)


def demonstrate(output: Path) -> None:
    """Run the whole flow on each of the models."""
    import importlib

    import backprint as bp
    from backprint.cli import show, verify
    from backprint.tools.cost.costs import summarize

    places = []
    for name in MODELS:
        title(f"{name}: capture")
        model, args = importlib.import_module(f"backprint.examples.{name}").factory()
        capture = bp.capture(model, args=args, name=name)
        place = bp.save(capture, output / name, overwrite=True)
        places.append(place)
        loaded = bp.load(place)
        forward, backward = loaded.pairs[0].forward, loaded.pairs[0].backward
        assert backward is not None, f"{name} has parameters, so it has a backward"
        echo(f"{place}: {len(forward.steps)} steps forward, {len(backward.steps)} backward")
        title(f"{name}: the backward begins")
        echo(body(backward.code, 14), lines=True)
        title(f"{name}: show")
        show.print_pair(loaded, 0, summarize(loaded.pairs[0]), show.MOST)
    title("verify")
    rows = [{"sample": str(place), **row} for place in places for row in verify.rows_of_sample(place, ())]
    verify.print_verdicts(rows)
    echo("\nThe results:", lines=True)
    for place in places:
        echo(f"  {place / 'pair_0' / 'forward' / 'model.py'}")
        echo(f"  {place / 'pair_0' / 'backward' / 'model.py'}")
    echo("Each runs alone, with torch and nothing else: python model.py")
    if any(row["verdict"] not in PROVED for row in rows):
        raise SystemExit(1)


def title(text: str) -> None:
    """Print a heading."""
    echo(f"\n== {text}", lines=True)


def body(code: str, lines: int) -> str:
    """Return the first steps of a graph's text."""
    rows = code.split("\n")
    start = next(index for index, row in enumerate(rows) if row == "    ):") + 1
    return "\n".join(rows[start : start + lines])
