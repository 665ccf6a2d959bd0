"""The backward of a part: which values of the whole's backward are the gradients at the part's borders.

A forward is cut between two steps. Its backward has no such place: autograd interleaves the gradients of all parts, and
sums shares of several parts in one step. So the border is found by numbers. The whole runs once on its recipe's inputs.
Each part's forward then runs under autograd, from leaves of its own, the last part first (`runs_of_parts`). The
gradients that autograd returns are looked up among the values of the whole's backward (`_BackwardValues`). The steps
between those of the results and those of the inputs are the part's backward (`backward_of`). If a step between them
needs a value from beyond the borders, the part is `Inseparable`.

Words of this file:

- The *whole* is the Capture that is cut, or, beside a part, the whole's Pair that the part is of.
- A *local* name is that of a value in a graph's text; a port has a *name* of the program's own beside it.
- `ForwardPart`: a part's steps, with the local names of the values that it `takes`, and that it `gives` to later parts;
  `results` are the outputs and mutations of the whole that the part completes.
- A *share* is what one part adds to the gradient of a value that several parts use.
- A *tangent* is the gradient of a result that a backward starts with.
- `Borders`: all parts of one forward, the number of the part that makes each value, and names for those that cross.
  `BorderGradients` (`flow`): which values of the whole's backward are gradients at one part's borders.
- `PairRun`: what a Pair took and returned in the whole's run, by the names of its ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint.errors import GraphError, RefusedError
from backprint.graph.keys import PortValues
from backprint.graph.nouns import Capture, Graph, Pair, Port, Ref, Step, Value, refs
from backprint.graph.operators import operators
from backprint.graph.steps import mapped, names_behind, used
from backprint.graph.text import show_step
from backprint.graph.verdicts import GOOD
from backprint.judge.closeness import TOLERANCE, distance, same_bits
from backprint.prove.draws import draw_from_recipes
from backprint.prove.results import compare
from backprint.prove.run import perform_steps, subgraphs
from backprint.prove.whole import CaptureRun, PairRun, sum_in_order
from backprint.tools.parts.cuts import ForwardPart, Piece, cut_forward, part_of_each_value
from backprint.values.settings import RandomStates, random_states, set_random_states

# ---- Borders: the values that cross between parts, and their names


@dataclass(frozen=True, slots=True)
class BorderNames:
    """The names of the values at borders: that of a port of the whole if there is one, else the value's own.

    `inputs` are the whole's input ports, and `labels` the names of values that parts give, both by local name.
    """

    inputs: Mapping[str, Port]
    labels: Mapping[str, str]

    def of(self, local: str) -> str:
        """Return the name of an input of the whole, or of a value that a part gives."""
        return self.inputs[local].name if local in self.inputs else self.labels[local]


def names_at_borders(forward: Graph, parts: Sequence[ForwardPart], prefix: str = "") -> BorderNames:
    """Return a name for each value that crosses between parts: its output port's in the whole, if any, else its local
    name behind `prefix`, with `~` at its end where a port or another value has that name."""
    inputs = {port.local: port for port in forward.inputs}
    used_names = {port.name for port in (*forward.inputs, *forward.outputs) if port.role != "saved"}
    output_names: dict[str, str] = {}
    for part in parts:
        for port, result in part.results:
            # Not under the name of an input of the whole, which is the name of another value at a border.
            if port.role == "output" and isinstance(result, Ref) and port.name not in {p.name for p in forward.inputs}:
                output_names.setdefault(result.name, port.name)
    labels: dict[str, str] = {}
    for part in parts:
        for name in part.gives:
            label = output_names.get(name, prefix + name)
            while name not in output_names and label in used_names:
                label += "~"
            labels[name] = label
            used_names.add(label)
    return BorderNames(inputs, labels)


def tangent_name(part: ForwardPart, names: BorderNames, local: str) -> str:
    """Return the name of the part's output port at which a value is, and which the port of its tangent has too; '' if
    it is at none."""
    if local in part.gives:
        return names.of(local)
    output_names = (port.name for port, value in part.results if port.role == "output" and value == Ref(local))
    return next(output_names, "")


def local_of(part: ForwardPart, names: BorderNames, port: Port) -> str:
    """Return the local name of the value at one of the part's ports for outputs and mutations; '' if it is a constant,
    or if the part has no such port."""
    for own_port, value in part.results:
        if (own_port.name, own_port.role) == (port.name, port.role):
            return value.name if isinstance(value, Ref) else ""
    return next((local for local in part.gives if names.of(local) == port.name), "")


@dataclass(frozen=True, slots=True)
class Borders:
    """One Pair's forward, cut: the parts, the number of the part that makes each value, by local name, and the names of
    the values that cross."""

    parts: tuple[ForwardPart, ...]
    part_of_value: Mapping[str, int]
    names: BorderNames


def borders_of(capture: Capture, index: int, pieces: Sequence[Piece]) -> Borders:
    """Cut the forward of Pair `index` at the pieces, which follow one another without gaps."""
    forward = capture.pairs[index].forward
    cuts = [piece.start for piece in pieces[1:]]
    parts = cut_forward(forward, cuts)
    # Local names of two Pairs may be equal; their parts become Pairs of one Capture.
    prefix = f"{capture.pairs[index].name}." if len(capture.pairs) > 1 else ""
    return Borders(
        parts, part_of_each_value(forward, [0, *cuts, len(forward.steps)]), names_at_borders(forward, parts, prefix)
    )


# ---- The steps of a part's backward


@dataclass(frozen=True, slots=True)
class BorderGradients:
    """Which values of the whole's backward are the gradients at one part's borders, by local names.

    `tangents` maps a value of the backward to the result of the part whose gradient it is; if several values of the
    backward are equal to that gradient, each has an entry. `gradients` maps a value that the part takes to the
    backward's value that is the part's share in its gradient; None if the backward returns none.
    """

    tangents: Mapping[str, str]
    gradients: Mapping[str, str | None]


class Inseparable(GraphError):
    """The backward of a part cannot be separated from those of other parts: the message names the value."""


@dataclass(frozen=True, slots=True)
class PartBackward:
    """A part's backward before it is a graph: its steps, and the saved values that it needs, by the backward's local
    names."""

    steps: tuple[Step, ...]
    saved: tuple[str, ...]


def backward_of(pair: Pair, part: ForwardPart, part_of_value: Mapping[str, int], flow: BorderGradients) -> PartBackward:
    """Return the steps of the backward between the gradients at a part's borders, and the saved values that they need.
    `part_of_value` has the number of the part that makes each value of the forward.

    The walk goes from the gradients of the part's inputs to the values that they are computed from, and stops at the
    gradients of its results. A saved value of this part or an earlier one becomes a saved port. A value of an earlier
    part that the backward recomputes, as with checkpointing, is saved here instead: its steps are not the part's. Raise
    Inseparable if the walk meets a tangent that is not one of the part's, or a saved value of a later part.
    """
    backward = pair.backward
    assert backward is not None
    steps = {step.name: step for step in backward.steps if not step.is_guard}
    ports = {port.local: port for port in backward.inputs}
    saved_as, recomputed_as = saved_values(pair), recomputed_values(pair)
    visited: set[str] = set()
    saved: dict[str, None] = {}

    def is_earlier(name: str) -> bool:
        """Whether a value of the backward is a value of an earlier part, computed again; False for any other value."""
        return part_of_value.get(recomputed_as.get(name, ""), part.index) < part.index

    names_met = names_behind(
        names=filter(None, flow.gradients.values()),
        makers=steps,
        stops=lambda name: name in flow.tangents or is_earlier(name),
    )
    for name in names_met:
        if name in flow.tangents:
            continue
        visited.add(name)
        if name in steps:
            if is_earlier(name):
                saved[name] = None
            continue
        port = ports[name]
        if port.role == "tangent":
            raise Inseparable(f"its backward takes the tangent of {port.name!r}, which is not one of its results")
        value = saved_as.get(port.name, "") if port.role == "saved" else ""
        if part_of_value.get(value, -1) > part.index:  # -1: an input of the forward, which no part makes
            raise Inseparable(f"its backward takes {value!r}, which a later part makes")
        saved[name] = None
    kept = tuple(
        step for step in backward.steps if step.name in visited and step.name not in saved and not step.is_guard
    )
    return PartBackward(kept, tuple(saved))


def saved_values(pair: Pair) -> dict[str, str]:
    """Return the local name of the forward's value at each saved port, by the port's name; a port at which a constant
    is saved is left out."""
    forward = pair.forward
    return {
        port.name: result.name
        for port, result in zip(forward.outputs, forward.results, strict=True)
        if port.role == "saved" and isinstance(result, Ref)
    }


def recomputed_values(pair: Pair) -> dict[str, str]:
    """Return the forward's name for each value that the backward recomputes, as with checkpointing, by the backward's
    name.

    A step of the backward recomputes a step of the forward if it makes the same call of saved or recomputed values:
    if the two are one text once the values have the forward's names.
    """
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    known = {call_text(step, {}): step.name for step in forward.steps if _remakes(step)}
    saved_as = saved_values(pair)
    forward_names = {
        port.local: saved_as[port.name] for port in backward.inputs if port.name in saved_as and port.role == "saved"
    }
    recomputed_names: dict[str, str] = {}
    for step in backward.steps:
        same = (
            known.get(call_text(step, forward_names))
            if _remakes(step) and set(used(step)) <= forward_names.keys()
            else None
        )
        if same is not None:
            forward_names[step.name] = recomputed_names[step.name] = same
    return recomputed_names


def _remakes(step: Step) -> bool:
    """Whether a step returns the same each time it runs: it is not a guard, a random draw (flag `r` of its operator) or
    an update in place (`m`)."""
    return not step.is_guard and not set(operators().get(step.target, "")) & {"r", "m"}


def call_text(step: Step, called: Mapping[str, str]) -> str:
    """Return a step's operator and arguments as text, without its own name and spec; a value that is in `called` is
    named as there."""
    other = mapped(step, lambda name: Ref(called.get(name, name)))
    return show_step(replace(other, name="_", spec=None))


def with_steps_of_saved(pair: Pair, part: ForwardPart, saved: Sequence[str], borders: Borders) -> ForwardPart:
    """Return a part with the steps and inputs of the whole's forward that only its saved values need, such as a
    transposed weight. `saved` are the backward's local names. Raise Inseparable if another part makes one of these
    values."""
    steps = {step.name: step for step in pair.forward.steps}
    inputs = {port.local for port in pair.forward.inputs}
    holds = part.holds
    extra: dict[str, None] = {}
    wanted = [local for _, value in saved_ports(pair, saved) for local in refs(value)]
    for local in names_behind(wanted, steps, lambda name: name in holds):
        if local in holds:
            continue
        # Steps that the forward makes only for a backward are of no part: those are what is added.
        if local in steps and local in borders.part_of_value:
            raise Inseparable(f"its backward takes {local!r}, which its forward does not")
        extra[local] = None
    steps_to_add = tuple(step for step in pair.forward.steps if step.name in extra and not step.is_guard)
    takes = tuple(local for local in extra if local in inputs)
    return replace(part, steps=(*part.steps, *steps_to_add), takes=(*part.takes, *takes))


def saved_ports(pair: Pair, names: Sequence[str]) -> tuple[tuple[Port, Value], ...]:
    """Return the saved ports of a part's forward, each with its value there. `names` are the backward's local names of
    what the part's backward needs: saved ports, values that it recomputes, which the part saves instead, and constants
    of the program, which are not saved and left out."""
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    result_of_port = {
        port.name: value for port, value in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"
    }
    ports = {port.local: port for port in backward.inputs}
    steps = {step.name: step for step in backward.steps}
    ports_and_values: list[tuple[Port, Value]] = []
    for local in names:
        if local in ports and ports[local].role == "saved":
            port = ports[local]
            ports_and_values.append((Port(port.name, "saved", port.spec), result_of_port[port.name]))
        elif local in steps:
            recomputed = Ref(recomputed_values(pair)[local])
            ports_and_values.append((Port(local, "saved", steps[local].spec), recomputed))
    return tuple(ports_and_values)


# ---- Gradients at the borders, from a run of every part


@dataclass(frozen=True, slots=True)
class PartRun:
    """One part as the whole ran it: its inputs and results, and the gradients at its borders, by local names.

    `random` are the states of torch's generators before the part. `flow` has the gradients' names in the whole's
    backward (None without a backward); `why` names a gradient that is missing there ('' if none is). `inconsistent` is
    an input of the whole whose gradient by autograd of the parts differs from that of the whole's backward, or ''.
    """

    values: dict[str, Any]
    results: dict[str, Any]
    random: RandomStates
    tangents: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    flow: BorderGradients | None = None
    why: str = ""
    inconsistent: str = ""


@dataclass(frozen=True, slots=True)
class _TracedPart:
    """One part run under autograd: the leaf tensors that it took, and its results with their `grad_fn`, by local
    names. `run` has the same results detached."""

    part: ForwardPart
    run: PartRun
    leaves: dict[str, Any]
    results: dict[str, Any]


def runs_of_pairs(capture: Capture) -> list[PairRun]:
    """Run the whole on its recipe's inputs, forward and backward; return the inputs, results and saved values of each
    Pair."""
    draw = draw_from_recipes(capture, "recipe", seed=None)  # the recipes' own seeds
    torch.manual_seed(draw.seed)
    run = CaptureRun(capture, draw.values, draw.tangents)
    run.forward()
    run.gradients()
    return run.runs


def runs_of_parts(pair: Pair, borders: Borders, pair_run: PairRun) -> list[PartRun]:
    """Return every part of a Pair as the whole ran it (`pair_run`), in order, with its gradients by autograd, named in
    the whole's backward."""
    traced = _traced_parts(pair, borders, pair_run)
    if pair.backward is None:
        return [part.run for part in traced]
    values = _BackwardValues(pair.forward, pair.backward, pair_run.backward_inputs)
    later: list[PartRun] = []  # the last part first: its gradients are tangents of those before
    while traced:
        last = traced.pop()
        tangents, gradients = _border_gradients(last, pair_run, later)
        later.append(_name_gradients(values, last, tangents, gradients))
    inconsistent = _inconsistent_gradient(pair, pair_run, later)
    return [replace(run, inconsistent=inconsistent) for run in reversed(later)]


def _inconsistent_gradient(pair: Pair, pair_run: PairRun, later: Sequence[PartRun]) -> str:
    """Return the local name of the first input whose gradient, summed over the parts, is not the whole's; '' if there
    is none. `later` are the parts, the last first: the order in which autograd sums gradients.

    Such a forward has lost the step that stopped a gradient in the program: without the `detach` of
    `x.sin() * x.cos().detach()`, autograd of the parts adds the gradient of the cosine.
    """
    for port in pair.forward.inputs:
        total = sum_in_order([run.gradients[port.local] for run in later if port.local in run.gradients])
        wanted = (pair_run.gradients or {}).get(port.name)
        if not isinstance(wanted, Tensor) or total is None:
            continue
        if compare(port.name, "gradient", total, wanted).verdict not in GOOD:
            return port.name
    return ""


def _traced_parts(pair: Pair, borders: Borders, pair_run: PairRun) -> list[_TracedPart]:
    """Run the parts of a Pair's forward in order under autograd, on the inputs and from the random states that the Pair
    had in the whole's run. Each part takes the results of earlier ones, detached."""
    forward, backward = pair.forward, pair.backward
    with_gradient = set() if backward is None else differentiated(backward)
    known_values = {port.local: pair_run.values[port.name] for port in forward.inputs}
    require_grad = {port.local: port.name in with_gradient for port in forward.inputs}
    set_random_states(pair_run.random)
    bodies = subgraphs(forward)
    return [_traced_part(part, known_values, require_grad, bodies) for part in borders.parts]


def differentiated(backward: Graph) -> set[str]:
    """Return the names of the inputs for which a backward returns a gradient."""
    return {port.name for port, value in zip(backward.outputs, backward.results, strict=True) if value is not None}


def _traced_part(
    part: ForwardPart, known_values: dict[str, Any], require_grad: dict[str, bool], bodies: Mapping[str, Any]
) -> _TracedPart:
    """Run one part's forward under autograd. Its results, and whether they require grad, are added to
    `known_values` and `require_grad`. `bodies` are the callables of subgraphs, by name."""
    # Autograd refuses to write into a leaf, so steps that change an argument (flag `m`) get copies.
    updates = any("m" in operators().get(step.target, "") for step in part.steps)
    leaves = {local: leaf_of(known_values[local], require_grad.get(local, False)) for local in part.takes}
    scope = {name: value.clone() if updates and isinstance(value, Tensor) else value for name, value in leaves.items()}
    values, state = {local: known_values[local] for local in part.takes}, random_states()
    with torch.enable_grad():
        perform_steps(part.steps, scope, bodies)
    returned = {local: scope[local] for local in results_of(part)}
    detached = {local: value.detach() if isinstance(value, Tensor) else value for local, value in returned.items()}
    known_values.update(detached)
    require_grad.update({name: isinstance(value, Tensor) and value.requires_grad for name, value in returned.items()})
    return _TracedPart(part, PartRun(values, detached, state), leaves, returned)


def leaf_of(value: Any, requires_grad: bool) -> Any:
    """Return a floating-point or complex tensor as a leaf that shares its memory; any other value as it is."""
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.detach().requires_grad_(requires_grad)


def results_of(part: ForwardPart) -> tuple[str, ...]:
    """Return the values that a part passes to later parts or returns, each once."""
    return tuple(dict.fromkeys((*part.gives, *(name for _, value in part.results for name in refs(value)))))


def _border_gradients(
    traced: _TracedPart, pair_run: PairRun, later: Sequence[PartRun]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tangents of a part's results, and by autograd its shares in the gradients of its inputs, both by local
    names; without a tangent, or an input that requires grad, there are no gradients.

    `later` are the parts after this one, the last first: the order in which autograd sums gradients. Raise RefusedError
    if autograd of the part's steps fails.
    """
    differentiable = {name: v for name, v in traced.results.items() if isinstance(v, Tensor) and v.requires_grad}
    totals = {local: _total_tangent(traced.part, local, pair_run, later) for local in differentiable}
    tangents = {local: total for local, total in totals.items() if total is not None}
    leaves = {name: v for name, v in traced.leaves.items() if isinstance(v, Tensor) and v.requires_grad}
    if not tangents or not leaves:
        return tangents, {}
    outputs = [differentiable[local] for local in tangents]
    try:
        gradients = torch.autograd.grad(outputs, list(leaves.values()), list(tangents.values()), allow_unused=True)
    except RuntimeError as error:  # of a kernel in autograd's own backward, or of an operator without one
        raise RefusedError(
            f"steps {traced.part.start}-{traced.part.stop}: autograd of this part of the forward fails "
            f"({str(error)[:160]}): capture with engine='eager', or cut elsewhere"
        ) from error
    return tangents, {name: gradient for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None}


def _total_tangent(part: ForwardPart, local: str, pair_run: PairRun, later: Sequence[PartRun]) -> Tensor | None:
    """Return the gradient of a part's result: the tangents that the whole got for it as an output, plus the shares of
    later parts, the last first; None if there are none."""
    own_tangents = [
        pair_run.tangents[port.name]
        for port, value in part.results
        if port.role == "output" and value == Ref(local) and port.name in pair_run.tangents
    ]
    return sum_in_order([*own_tangents, *(run.gradients[local] for run in later if local in run.gradients)])


class _BackwardValues:
    """Every value of a backward on the inputs of the whole's run, found by its content.

    `values` are the strided tensors by local name, `kinds` their names by dtype and shape. `echoes` has, for each step
    of the backward, the steps of the forward that it computes the gradient of, as the Capture notes them. `returned`
    has the value that the backward returns as the gradient of each input of the forward, by the input's local name.
    """

    def __init__(self, forward: Graph, backward: Graph, feed: PortValues) -> None:
        """Run `backward` on `feed`, its inputs by port, and keep its tangents and the values of its steps."""
        self.values: dict[str, Tensor] = {}
        self.kinds: dict[tuple[torch.dtype, tuple[int, ...]], list[str]] = {}
        self.echoes = {step.name: step.echo.names if step.echo else () for step in backward.steps}
        inputs = {port.name: port.local for port in forward.inputs}
        self.returned = {
            inputs[port.name]: value.name
            for port, value in zip(backward.outputs, backward.results, strict=True)
            if isinstance(value, Ref) and port.name in inputs
        }
        env = {port.local: feed[port.key] for port in backward.inputs}
        for port in backward.by_role("tangent"):
            self.keep(port.local, env[port.local])
        with torch.no_grad():
            perform_steps(backward.steps, env, subgraphs(backward))
        for step in backward.steps:
            if not step.is_guard:
                self.keep(step.name, env[step.name])

    def keep(self, local: str, value: Any) -> None:
        """Keep a value if it is a strided tensor: others cannot be compared bit for bit. Lazy conjugation and negation
        are resolved, as they are not in the bits."""
        if isinstance(value, Tensor) and value.layout is torch.strided:
            self.values[local] = value = value.resolve_conj().resolve_neg()
            self.kinds.setdefault((value.dtype, tuple(value.shape)), []).append(local)

    def names_equal_to(self, wanted: Tensor) -> list[str]:
        """Return the names of the values that equal a tensor bit for bit; if none does, of the nearest one if it counts
        as close; [] if there is none."""
        if wanted.layout is not torch.strided:
            return []
        wanted = wanted.resolve_conj().resolve_neg()
        names = self.kinds.get((wanted.dtype, tuple(wanted.shape)), [])
        equal = [local for local in names if same_bits(self.values[local], wanted)]
        if equal:
            return equal
        distances = [(distance(self.values[local], wanted), local) for local in names]
        error, local = min(distances, default=(float("inf"), ""))
        dtype = str(wanted.dtype).removeprefix("torch.")
        return [local] if error <= TOLERANCE.get(dtype, 0.0) else []


def _name_gradients(
    values: _BackwardValues, traced: _TracedPart, tangents: dict[str, Tensor], gradients: dict[str, Tensor]
) -> PartRun:
    """Return a part's run with its gradients named in the whole's backward, and the whole's own values for them.
    `values` are those of the whole's backward; `tangents` and `gradients` are the part's, by local names.

    Several values may equal a gradient, such as the gradient of a sum, which is that of each addend. The walk back may
    meet any of those that equal a result's gradient, so each is a name of it, but for those that this part's own steps
    compute of it: for these numbers a ReLU of positive values returns its tangent, for others it does not. Of those
    that equal an input's gradient one is taken: the one that the whole's backward returns for this input, else if
    possible the last that is the gradient of a step of this part. Another may be computed beyond the part's borders, or
    before all of its steps are done, or be 0 as this one is.
    """
    steps = {step.name for step in traced.part.steps}
    result_of: dict[str, str] = {}
    shares: dict[str, str] = {}
    missing: list[str] = []

    def is_of_part(name: str) -> bool:
        """Whether a value of the backward is the gradient of a step of this part."""
        return not steps.isdisjoint(values.echoes.get(name, ()))

    for local, total in tangents.items():
        equal = values.names_equal_to(total)  # in the order of the backward
        if not equal:
            missing.append(f"the gradient of {local!r} is not a value of the whole's backward")
        elif not is_of_part(equal[0]):
            equal = [name for name in equal if not is_of_part(name)]
        result_of |= {name: local for name in equal if name not in result_of}
    for local, gradient in gradients.items():
        equal = values.names_equal_to(gradient)
        if not equal:
            missing.append(f"its share in the gradient of {local!r} is not a value of the whole's backward")
            continue
        of_part = list(filter(is_of_part, equal))
        returned = values.returned.get(local, "")  # where other parts add shares, it is a sum, and no part's
        shares[local] = returned if returned in of_part else of_part[-1] if of_part else equal[0]
    # Earlier parts continue from the whole's own values: these may differ in the last bits from autograd of the part.
    gradients_of_whole = gradients | {local: values.values[name] for local, name in shares.items()}
    flow = BorderGradients(result_of, shares)
    return replace(traced.run, tangents=tangents, gradients=gradients_of_whole, flow=flow, why=next(iter(missing), ""))
