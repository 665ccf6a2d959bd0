"""`bp.save`: prove a Capture on inputs from its recipes, and write it as a sample or as GraphNet's trees. Choose
the inputs of `bp.export`.

This joins `prove/`, which proves, and the rooms that write. A *recipe* says how an input is made again: its exact bytes
(`exact`), or a seed and a distribution. `data` is how inputs are kept: `seed` as recipes, `exact` as bytes, `none` not
at all. The *origin* of a Capture is its program, which is `alive` while its module and its arguments exist. An
*Attested* is a proof on inputs from recipes: the verdict, the power, what it was compared with (`witness`), the values
at the ports of each Pair (`values`), and `notes` of what annotations of the graphs say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backprint.common.text import check_choice
from backprint.derive.beside import with_worst_derivative
from backprint.derive.check import RECIPE_FIRST
from backprint.derive.kept import digest_of_graphs
from backprint.errors import SampleError, UsageError, is_defect
from backprint.graph.keys import PortKey, PortValues, is_tangent
from backprint.graph.links import free_ports
from backprint.graph.nouns import Capture, Graph, InputRecipes, keep_verdict
from backprint.graph.verdicts import NOT_THE_DERIVATIVE, Power, Verdict
from backprint.prove.annotations import with_found_annotations
from backprint.prove.attest import Attested, attest, port_values, verdict_json
from backprint.prove.draws import draw_from_recipes
from backprint.prove.run import RunOptions, run_graph
from backprint.prove.verify import checked_run, verify_capture
from backprint.sample.inputs import Inputs, fit_inputs, without_data
from backprint.sample.load import load
from backprint.sample.place import check_place
from backprint.sample.save import check_custom, write_staged
from backprint.tools.export.export import check_export, fit_exact_inputs, write_export
from backprint.tools.graphnet.write import graphnet_writer, write_trees
from backprint.values import settings
from backprint.values.exchanges import answer_as_if_equal

__all__ = ["check_custom", "write_file", "write_layout", "write_sample"]


@settings.making_on_cpu
def write_sample(
    capture: Capture,
    path: str | os.PathLike[str],
    data: str,
    allow: Sequence[str],
    overwrite: bool,
    power: str,
) -> Path:
    """Write a Capture as a Backprint sample, with its verdict, and return the path. The verdict is kept with the
    Capture too. A fake Capture, and one without data, has no inputs to be proved on from disk."""
    check_choice("data", data)
    check_choice("power", power)
    check_place(path, overwrite)
    check_custom(capture, allow)
    if capture.fake:
        row = verdict_json(verify_capture(capture)[0])  # the only one: `unproven`
        keep_verdict(capture, row)
        return _write_without_values(capture, path, _recipes_of_fake(capture, data), row)
    if data == "none":
        of_whole_capture = verify_capture(capture, draws=("captured",))[-1]  # those of single Pairs come before it
        verdict = with_worst_derivative(capture, of_whole_capture)
        row = _verdict_row(verdict, capture)
        keep_verdict(capture, row)
        return _write_without_values(capture, path, _recipes_for_data(capture, data), row)
    inputs, proof = _prove_on_recipes(capture, data, power)
    verdict = with_worst_derivative(replace(capture, recipes=inputs), proof.verdict, draws=RECIPE_FIRST)
    if capture.origin.alive and data != "exact":  # what is wrong at the captured values stays so in the sample
        on_own_values = with_worst_derivative(capture, proof.verdict)
        verdict = on_own_values if is_wrong(on_own_values) and not is_wrong(verdict) else verdict
    if capture.origin.traced_here and proof.notes is not None:
        written = with_found_annotations(capture, proof.notes)
    else:  # graphs from elsewhere stay as they are
        written = capture
    measured_power = proof.power if power != "none" else None
    proof_json: dict[str, Any] = {
        "witness": proof.witness,
        "verdict": _verdict_row(verdict, written, measured_power),
    }
    keep_verdict(capture, proof_json["verdict"])
    return write_staged(written, path, inputs, proof_json, proof.values, graphnet_writer(_graph_runner(written)))


def _write_without_values(
    capture: Capture, path: str | os.PathLike[str], inputs: InputRecipes, verdict: dict[str, Any]
) -> Path:
    """Write a sample with this stored verdict and no values at its ports."""
    no_values: tuple[PortValues, ...] = ({},) * len(capture.pairs)
    proof_json = {"witness": None, "verdict": verdict}
    return write_staged(capture, path, inputs, proof_json, no_values, graphnet_writer(None))


def is_wrong(verdict: Verdict) -> bool:
    """Whether the backward of a Verdict is not the derivative."""
    return verdict.derivative is not None and verdict.derivative.word == NOT_THE_DERIVATIVE


def _verdict_row(verdict: Verdict, capture: Capture, power: Power | None = None) -> dict[str, Any]:
    """Return a Verdict in a sample's form.

    Its Derivative, which says whether the backward is the derivative, is None if that was not checked. If there is one,
    the row has a digest of the graphs that it is about: a loaded sample relies on the kept word where its graphs alone
    say less (`derive.kept`), but not if they are other graphs by then. All other words are found anew by a replay.
    """
    row = verdict_json(verdict, power)
    if verdict.derivative is not None:
        row["graphs"] = digest_of_graphs(capture)
    return row


def _recipes_of_fake(capture: Capture, data: str) -> InputRecipes:
    """Return the recipes of a fake capture, without data if `data` is "none"; refuse "exact"."""
    if data == "exact":
        raise UsageError("data='exact' keeps values, and a fake capture has none: use data='seed' or data='none'")
    return capture.recipes if data == "seed" else without_data(capture.recipes)


def _recipes_for_data(capture: Capture, data: str, exact: Sequence[str] = ()) -> Inputs:
    """Return recipes as `data` requires, these `exact` names as they are. They are fitted anew to the program's values
    while it is alive; without it, those that the Capture has are taken, and exact values that it lacks are refused."""
    if data == "seed" and not exact and capture.recipes.recipes:
        return Inputs(capture.recipes.recipes, capture.recipes.exact, capture.recipes.seed)
    if capture.origin.alive:
        return fit_inputs(capture, capture.origin.values(), data, exact)
    if data == "none":
        return without_data(capture.recipes)
    exact_kinds = ("exact", "view", "sparse")
    if data == "exact" and any(
        recipe.kind not in exact_kinds for name, recipe in capture.recipes.recipes.items() if not is_tangent(name)
    ):
        raise SampleError(
            "data='exact' needs the captured module, which is gone: keep it alive until save, or use data='seed'"
        )
    return Inputs(capture.recipes.recipes, capture.recipes.exact, capture.recipes.seed)


@settings.making_on_cpu
def write_file(
    capture: Capture,
    path: str | os.PathLike[str],
    backend: str | None,
    direction: str,
    data: str | None,
    allow: Sequence[str],
    overwrite: bool,
) -> Path:
    """Write a Capture as one Python file; return its path."""
    check_export(path, overwrite)
    check_custom(capture, allow)
    return write_export(capture, path, _inputs_to_export(capture, data), backend, direction)


def _inputs_to_export(capture: Capture, data: str | None) -> InputRecipes:
    """Return the inputs of an exported file: those of the sample, or of the sample that `save` would write. Refuse
    "none". For a sample, "seed" means recipes in the place of its exact data."""
    if data == "none":
        raise UsageError("data='none' keeps no inputs, and an exported file runs on its own: use 'seed' or 'exact'")
    if capture.fake:
        return _recipes_of_fake(capture, data or "seed")
    if capture.origin.alive:
        inputs, _ = _prove_on_recipes(capture, data or "seed", power="none")
        return inputs
    if data == "seed":
        return fit_exact_inputs(capture)
    return capture.recipes if data is None else _recipes_for_data(capture, data)


def _prove_on_recipes(capture: Capture, data: str, power: str) -> tuple[Inputs, Attested]:
    """Return recipes on which the program runs, and its proof on them. If it does not run on redrawn inputs, those of
    the call are kept exact, then parameters and buffers too; SampleError if that does not help, or cannot be done,
    because the program is gone."""
    second_names = {second for _, second in capture.signature.same}  # of a tensor that was passed twice
    ports = [port for port in free_ports(capture) if port.name not in second_names]
    exact_names_to_try: list[list[str]] = [
        [],
        [port.name for port in ports if port.role == "input"],
        [port.name for port in ports],
    ]
    causes = []
    for exact in exact_names_to_try:
        inputs = _recipes_for_data(capture, data, exact)
        try:
            return inputs, attest(replace(capture, recipes=inputs), power)
        except Exception as error:  # the user's program may raise anything on redrawn inputs
            if is_defect(error):
                raise
            causes.append(error)
            if not capture.origin.alive:
                break
    raise SampleError(
        f"the program does not run on inputs from recipes: {type(causes[-1]).__name__}: {causes[-1]}"
    ) from causes[-1]


@settings.making_on_cpu
def write_layout(
    capture: Capture | str | os.PathLike[str],
    out_root: str | os.PathLike[str],
    relative: str,
    source_folder: str | os.PathLike[str] | None = None,
    *,
    evaluation: Capture | None = None,
    overwrite: bool = False,
    allow: Sequence[str] = (),
) -> dict[str, Any]:
    """Write GraphNet's trees of a Capture, or of a sample's folder: `OUT/train_forward/RELATIVE` and so on; return them
    by tree.

    `eval_forward` is the unchanged GraphNet sample in `source_folder`, completed if files are missing, or the inference
    graph of `evaluation`.
    """
    capture_ = capture if isinstance(capture, Capture) else load(capture, allow)
    source = Path(source_folder) if source_folder is not None else None
    evaluation_and_values = (evaluation, _values_on_recipes(evaluation)) if evaluation is not None else None
    return write_trees(
        capture_,
        Path(out_root),
        relative,
        _values_on_recipes(capture_),
        evaluation=evaluation_and_values,
        source=source,
        run=None if capture_.fake else _graph_runner(capture_),
        overwrite=overwrite,
    )


def _values_on_recipes(capture: Capture) -> tuple[dict[PortKey, Any], ...]:
    """Return, for each Pair, the values at its ports on the inputs that the recipes make; no values without recipes."""
    if capture.fake or not capture.recipes.complete:
        return ({},) * len(capture.pairs)
    with settings.ONE_AT_A_TIME, settings.preserving_random_states(), settings.with_settings(dict(capture.environment)):
        run = checked_run(capture, draw_from_recipes(capture, "recipe", None))  # None: with the recipes' own seed
        return port_values(capture, run.replayed)


def _graph_runner(capture: Capture) -> Callable[[Graph, Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that runs one direction of a Capture on values that may not match it, and restores random
    states. Its collectives are answered as if the other ranks sent the same."""
    sizes = {label: len(members) for label, members in capture.rank.groups} if capture.rank is not None else {}

    def run(graph: Graph, values: Mapping[str, Any]) -> tuple[Any, ...]:
        with settings.ONE_AT_A_TIME, settings.preserving_random_states():
            return run_graph(graph, values, strict=False, options=RunOptions(answer=answer_as_if_equal(sizes)))

    return run
