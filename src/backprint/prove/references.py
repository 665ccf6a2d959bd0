"""References: what results are compared with.

While the program lives, it runs in eager on each draw of inputs (`compare_with_program`). From disk, the digests of its
results are compared (`compare_with_kept`). If a sample has none, autograd of the saved forward is a second opinion on
the gradients (`compare_with_autograd`), used only if there is no opaque edge: a place where autograd of the forward
would not give the program's gradient.

`details` is a list to which functions here add reasons for the text of a Verdict. A *draw* is a set of inputs with
tangents and a seed; its name is `captured`, `recipe`, `redrawn`, `fresh`, or SECOND for the second inputs of which a
sample keeps results. `results` are those of the Capture's graphs, by port, and `expected` those of the program. A
program that is `partial` is a recorded step, which has results for its own inputs alone; `parts` are the programs of
the Pairs, if there are several.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.errors import BackprintError, ReplayError, is_defect
from backprint.graph.keys import PortKey, of_role
from backprint.graph.links import mutated
from backprint.graph.nouns import OUT_ROLES, Capture, Pair
from backprint.graph.verdicts import AUTOGRAD, DIGESTS, PROGRAM, PortVerdict
from backprint.judge.closeness import NOTHING, NUDGES, PROVES, TIMES, rounded_again
from backprint.prove.draws import Draw
from backprint.prove.other_inputs import SECOND, second_rows
from backprint.prove.results import (
    Results,
    compare_results,
    compare_with_rows,
    kept_results,
    part_rows,
    results_by_port,
    unproven_if_unsteady,
    with_witness,
)
from backprint.prove.run import AS_WRITTEN, run_graded
from backprint.prove.whole import PairRun, replay_values
from backprint.values.settings import RandomStates, random_states, seed_torch, set_random_states
from backprint.values.tree import ones_tangent

# ---- Differences that are only rounding
# A result may be 0 in exact arithmetic, such as the gradient of a convolution's bias before a batch norm. What is
# computed is the remainder of a sum, and another order of the same sum has another remainder: by itself the relative
# error says nothing. Such a difference is `close` and not `wrong` if two conditions hold. It is small relative to the
# largest value of its role, and the result moves as far if the inputs move by one unit in the last place. The second
# alone would accept a difference at the step of a step function.


def forgive_rounding(
    ports: Sequence[PortVerdict],
    results: Results,
    largest: Mapping[PortKey, float],
    draw: Draw,
    run_on: Callable[[Draw], Results],
) -> list[PortVerdict]:
    """Return the verdicts with `close` instead of `wrong` if the difference is rounding.

    `largest` has the largest value of each of the program's ports; `run_on` runs the program, or its graphs, forward
    and backward on a draw, and `results` are its results on `draw`.
    """
    small = [port for port in ports if is_small(port, largest)]
    if not small:
        return list(ports)
    movement_by_port = _movements({port.key for port in small}, results, draw, run_on)
    return [
        forgive_port(port, largest[port.key], movement_by_port.get(port.key, 0.0)) if port in small else port
        for port in ports
    ]


def is_small(port: PortVerdict, largest: Mapping[PortKey, float]) -> bool:
    """Whether the error of a port is tiny (PROVES) relative to the largest value among the ports of its role."""
    if port.verdict != "wrong" or not port.error or port.key not in largest:
        return False
    largest_of_role = max((size for key, size in largest.items() if key.role == port.role), default=0.0)
    # An error is relative to its port's largest value: times that, it is absolute and can be compared across ports.
    return port.error * nonzero_size(largest[port.key]) <= PROVES * largest_of_role


def forgive_port(port: PortVerdict, size: float, movement: float) -> PortVerdict:
    """Return the verdict of a port whose error is small: `close` if the error is at most TIMES as large as `movement`,
    how far the port moves if the inputs move by one unit in the last place. `size` is its largest value."""
    if port.error * nonzero_size(size) > TIMES * movement:
        return port
    relative_movement = movement / nonzero_size(size)
    text = (
        f"{port.detail}; inputs moved by one unit in the last place move it by {relative_movement:.3g}: it is rounding"
    )
    return replace(port, verdict="close", detail=text)


def largest_values(results: Results) -> dict[PortKey, float]:
    """Return the largest value of each floating-point result."""
    return {
        key: float(value.detach().abs().max())
        for key, value in results.items()
        if value is not None and value.layout is torch.strided and value.is_floating_point() and value.numel()
    }


def nonzero_size(size: float) -> float:
    """Return what errors are relative to: the largest value of a port, or a tiny number if that is 0."""
    return max(size, NOTHING)


def _movements(
    keys: set[PortKey], results: Results, draw: Draw, run_on: Callable[[Draw], Results]
) -> dict[PortKey, float]:
    """Return how far the results of these ports move, absolutely, if the inputs move by one unit in the last place: the
    most in some runs by `run_on`; nothing, if one of these raises. `results` are those on `draw`, without a move."""
    movement_by_port: dict[PortKey, float] = {}
    for seed in range(NUDGES):
        try:
            outcome = run_on(replace(draw, values=nudge_inputs(draw.values, seed)))
        except Exception as error:  # the program may raise anything on other inputs: such a run shows nothing
            if is_defect(error):
                raise
            return {}
        for key in keys:
            left, right = outcome.get(key), results.get(key)
            if left is not None and right is not None and left.shape == right.shape and left.numel():
                distance = float((left.double() - right.double()).abs().max())
                movement_by_port[key] = max(movement_by_port.get(key, 0.0), distance)
    return movement_by_port


def nudge_inputs(values: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the inputs with each number moved by at most one unit in the last place."""
    return {
        name: rounded_again(value.detach(), value.dtype, seed, units=1.0)
        if value.is_floating_point()
        else value.clone()
        for name, value in values.items()
    }


# ---- The references


def program_fails(capture: Capture, draw: Draw) -> bool:
    """Whether the original program raises on these inputs, on which its Capture does."""
    # Of a program that is gone, this is assumed for fresh draws: nobody has run it on them.
    if not capture.origin.alive:
        return draw.name == "fresh"
    try:
        run_program(capture, draw)
    except Exception as error:  # the program may raise anything: the inputs prove nothing
        if is_defect(error):
            raise
        return True
    return False


def run_program(capture: Capture, draw: Draw) -> Results:
    """Return the original program's results, run now on a draw. What the program raises comes through."""
    seed_torch(draw.seed)
    outcome = capture.origin.run_step(draw.values, draw.tangents, draw.anew)
    # If the graph writes to a tensor and the program does not, the program leaves it as it was passed. Without this
    # default, the graph's mutation would have no counterpart.
    written = {name: draw.values[name] for name in mutated(capture) if name in draw.values}
    return results_by_port(outcome.outputs, {**written, **outcome.mutations}, outcome.gradients)


def compare_with_program(capture: Capture, draw: Draw, results: Results, details: list[str]) -> list[PortVerdict]:
    """Compare every port with the original program, run now; no verdicts, and a reason in `details`, if it raises.

    On the captured inputs the program ran once, so an error there is an error of the check. Redrawn inputs may be
    impossible for it (an index out of range), which proves nothing about the Capture.
    """
    try:
        expected = run_program(capture, draw)
    except Exception as error:  # the user's program may raise anything on redrawn inputs
        if is_defect(error):
            raise
        if draw.name != "captured" and capture.origin.partial:
            details.append("a recorded step is compared on the values that it had, and on no others")
            return []
        if draw.name == "captured":
            raise ReplayError(
                f"the original program failed on its captured inputs: {type(error).__name__}: {error}"
            ) from error
        details.append(
            f"the program itself does not run on {draw.name} inputs ({type(error).__name__}: {str(error)[:160]})"
        )
        return []
    # Before further runs of the program, because it compares the last run's result.
    other_results = compare_other_results(capture)
    # `kept_results`: of a recorded step, only the results that it kept.
    return [
        *compare_with_results(capture, draw, kept_results(capture.origin, results, expected), expected),
        *other_results,
    ]


def compare_other_results(capture: Capture) -> list[PortVerdict]:
    """Return a `wrong` verdict if a result of the program that is no tensor differs from that at capture.

    A replay returns such results as they were captured: `return loss, step` with a counter `step` is `wrong` as soon as
    the program returns another number.
    """
    difference = capture.origin.result_difference()
    return [PortVerdict("result", "output", "wrong", difference)] if difference else []


def compare_with_results(capture: Capture, draw: Draw, results: Results, expected: Results) -> list[PortVerdict]:
    """Compare every port with the program's results on a draw.

    A port that is not bitwise is `unproven` if the program does not return the same twice, as with atomic additions on
    a GPU or a generator of its own, and `close` if the difference is rounding.
    """
    verdicts = compare_results(results, expected)
    if all(port.verdict == "bitwise" for port in verdicts):
        return verdicts
    again = run_program(capture, draw)  # only now: a second run of the program takes as long as the first
    verdicts = [unproven_if_unsteady(port, expected, again) for port in verdicts]
    return forgive_rounding(
        verdicts, expected, largest_values(expected), draw, lambda other: run_program(capture, other)
    )


def compare_with_kept(capture: Capture, draw: Draw, results: Results) -> list[PortVerdict]:
    """Compare every port with the sample's digests of the original program's results on a draw.

    The program is gone, so the graph itself runs on the nudged inputs that show whether a difference is rounding.
    """
    # A row has a result's digest and facts about it, such as its largest value, `max`.
    witness = capture.witness or {}
    rows_of_draw = second_rows(witness) if draw.name == SECOND else witness.items()
    rows_by_key = {PortKey.from_text(text): row for text, row in rows_of_draw}
    # A witness also has rows of each Pair's results and of the second draw's inputs, whose texts have other beginnings.
    rows = {key: row for key, row in rows_by_key.items() if key.role in OUT_ROLES}
    sizes = {key: float(row["max"]) for key, row in rows.items() if "max" in row}

    def replay_on(other: Draw) -> Results:
        """Return the results of the Capture's graphs on another draw, under its seed."""
        seed_torch(other.seed)
        return replay_values(capture, other.values, other.tangents).results

    return forgive_rounding(compare_with_rows(rows, results), results, sizes, draw, replay_on)


def compare_with_autograd(capture: Capture, draw: Draw, results: Results, details: list[str]) -> list[PortVerdict]:
    """Compare gradients with autograd of the saved forward, as a second opinion. Outputs have no reference left, so
    they are `unproven`; so are gradients of several Pairs, or with an opaque edge, and `details` says why.

    Autograd sees only the forward's operators. With an opaque edge, such as a custom `autograd.Function` or a `no_grad`
    island, its gradient is not the program's, so nothing is compared: a backward that is right would be called wrong.
    """
    if capture.links:
        details.append("no reference: the program is gone, and each pair is checked alone")
        return _no_reference(results)
    if capture.opaque:
        edge = capture.opaque[0]
        details.append(
            f"no reference: the program is gone, and autograd of its forward would not see {edge.text} ({edge.kind})"
        )
        return _no_reference(results)
    pair = capture.pairs[0]
    details.append("the program is gone: checked against autograd of the saved forward alone")
    seed_torch(draw.seed)
    same = {right: left for left, right in capture.signature.same}  # the first name by the second name of a tensor
    return _compare_by_autograd(
        pair, capture.signature.differentiable, same, draw.values, draw.tangents, results, details
    )


def _compare_by_autograd(
    pair: Pair,
    differentiable: Sequence[str],
    same: Mapping[str, str],
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor] | None,
    results: Results,
    details: list[str],
) -> list[PortVerdict]:
    """Compare the gradients in `results` with autograd of a Pair's forward; compare nothing if autograd fails. The
    other arguments are as in `gradients_by_autograd`."""
    try:
        expected = gradients_by_autograd(pair, differentiable, same, values, tangents)
    except RuntimeError as error:  # also of a kernel in autograd's own backward
        details.append(f"no reference: autograd of the forward of {pair.name} fails ({str(error)[:160]})")
        return _no_reference(results)
    return _verdicts_of_gradients(compare_results(results, expected))


def _verdicts_of_gradients(verdicts: Sequence[PortVerdict]) -> list[PortVerdict]:
    """Return the verdicts of gradients, with autograd as witness, and `unproven` for other ports: their values came
    from the same forward, so they were compared with nothing."""
    return [
        replace(port, witness=AUTOGRAD)
        if port.role == "gradient"
        else PortVerdict(port.name, port.role, "unproven", "compared with nothing: the program is gone")
        for port in verdicts
    ]


def _no_reference(results: Results) -> list[PortVerdict]:
    """Return an `unproven` verdict for every port."""
    return [PortVerdict(key.name, key.role, "unproven", "no reference") for key in results]


def gradients_by_autograd(
    pair: Pair,
    differentiable: Sequence[str],
    same: Mapping[str, str],
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor] | None,
) -> Results:
    """Return the outputs of the saved forward on these inputs, and the gradients of autograd of it, for the tensors
    with a gradient in the Pair's backward. `differentiable` names the outputs that have tangents; None stands for ones.

    `same` has, by the second name of a tensor that was passed under two names, the first one. Such a tensor is one
    leaf: autograd then sums its gradient as in the program, and both names have the sum.
    """
    names_with_gradient = {port.name for port in pair.backward.outputs} if pair.backward is not None else set()
    leaves = {
        # A second name requires no grad: its gradient is the first one's, and is copied below.
        name: tensor.detach().clone().requires_grad_(name in names_with_gradient and name not in same)
        for name, tensor in values.items()
    }
    # Outside of autocast in both directions: a backward takes the autocast state of its caller, and casts are steps.
    with torch.enable_grad(), AS_WRITTEN():
        returned = zip(pair.forward.outputs, run_graded(pair.forward, leaves), strict=True)
    outputs_by_name = of_role("output", {port.key: value for port, value in returned})
    outputs = {name: outputs_by_name[name] for name in differentiable}
    tangents_of_outputs = [ones_tangent(o) if tangents is None else tangents[n] for n, o in outputs.items()]
    leaves_with_grad = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    gradients: Sequence[Tensor | None] = ()
    if leaves_with_grad:  # autograd refuses to differentiate by nothing
        with AS_WRITTEN():
            gradients = torch.autograd.grad(
                list(outputs.values()), list(leaves_with_grad.values()), tangents_of_outputs, allow_unused=True
            )
    gradient_by_name = dict(zip(leaves_with_grad, gradients, strict=True))
    gradient_by_name |= {right: gradient_by_name[left] for right, left in same.items() if left in gradient_by_name}
    detached_outputs = {name: value.detach() for name, value in outputs_by_name.items()}
    return results_by_port(detached_outputs, mutations={}, gradients=gradient_by_name)


def part_verdicts(capture: Capture, index: int, pair_run: PairRun, draw: str, details: list[str]) -> list[PortVerdict]:
    """Return the verdicts of the results of Pair `index`, on the values that it had in a run of the Capture
    (`pair_run`) on the draw of this name: compared with the part of the program while that lives, else with kept
    digests (which are of the draw `recipe`), else with autograd. No verdicts where there is nothing to compare with."""
    if capture.origin.partial and draw != "captured":  # a recorded step has results for its own inputs alone
        return []
    if capture.origin.alive and capture.origin.parts:
        return with_witness(_compare_part_with_program(capture, index, pair_run), PROGRAM)
    results, rows = pair_run.results, part_rows(capture, index)
    if rows and draw == "recipe":
        return with_witness(compare_with_rows(rows, {key: results[key] for key in results if key in rows}), DIGESTS)
    if rows:  # the sample has digests of this draw alone
        return []
    pair = capture.pairs[index]
    if capture.opaque or pair.backward is None:
        details.append("no reference: the program is gone, and autograd of this pair's forward cannot replace it")
        return _no_reference(results)
    details.append("the program is gone: checked against autograd of the saved forward alone")
    with _with_random_states(pair_run.random):
        same = {right: left for left, right in capture.signature.same if left in pair_run.values}
        return _compare_by_autograd(
            pair, tuple(pair_run.tangents), same, pair_run.values, pair_run.tangents, results, details
        )


def _compare_part_with_program(capture: Capture, index: int, pair_run: PairRun) -> list[PortVerdict]:
    """Compare Pair `index` with the part of the program that it was traced from, run now."""
    expected = run_part_of_program(capture, index, pair_run)
    verdicts = compare_results(kept_results(capture.origin.parts[index], pair_run.results, expected), expected)
    # As in `compare_with_results`: a second run only if a port differs.
    if all(port.verdict == "bitwise" for port in verdicts):
        return verdicts
    again = run_part_of_program(capture, index, pair_run)
    return [unproven_if_unsteady(port, expected, again) for port in verdicts]


def run_part_of_program(capture: Capture, index: int, pair_run: PairRun) -> Results:
    """Return the results of the part of the program that Pair `index` was traced from, run in eager on the values that
    the Pair had in `pair_run`."""
    reference = capture.origin.parts[index]
    with _with_random_states(pair_run.random):
        try:
            outcome = reference.run_step(pair_run.values, pair_run.tangents)
        except BackprintError:
            raise
        except Exception as error:  # the graph may raise anything, but its Pair did not
            if is_defect(error):
                raise
            name = capture.pairs[index].name
            raise ReplayError(f"the program behind {name} failed: {type(error).__name__}: {error}") from error
    written = {name: pair_run.values[name] for name in pair_run.mutations if name in pair_run.values}
    # A gradient that the program does not return counts as None. A recorded step is compared by what it kept alone.
    no_gradients: dict[str, Tensor | None] = {} if reference.partial else dict.fromkeys(pair_run.gradients or {})
    return results_by_port(outcome.outputs, {**written, **outcome.mutations}, {**no_gradients, **outcome.gradients})


@contextlib.contextmanager
def _with_random_states(states: RandomStates) -> Iterator[None]:
    """Set these random states, from which a Pair's run started, for a block, and restore the present ones after it."""
    before = random_states()
    set_random_states(states)
    try:
        yield
    finally:
        set_random_states(before)
