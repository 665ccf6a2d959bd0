"""Replay a whole Capture: arguments to ports, forward, backward, and back to the model's own containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from backprint._torch.modes import users_dispatch_mode
from backprint._torch.tensors import storage_id
from backprint.errors import GraphError, GuardError, ReplayError
from backprint.graph.keys import tangent_name
from backprint.graph.links import results
from backprint.graph.nouns import Capture, Guard
from backprint.graph.sizes import evaluate, known, sizes_in_words
from backprint.replaying.arguments import name_tangents, values_of
from backprint.replaying.linked import Play, Played
from backprint.replaying.results import Results, results_by_port
from backprint.replaying.run import sizes_of
from backprint.replaying.state import State
from backprint.sample.generator import digest
from backprint.settings import OWN, STATE_OF, foreign_states, random_state_digest, restored
from backprint.tree import copy_values, strided_parts


@dataclass(frozen=True, slots=True)
class Replayed:
    """The results of a replay: outputs in the model's containers, gradients and mutations by the program's own
    names."""

    outputs: Any
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    named: dict[str, Tensor]
    loss: Tensor | None = None
    parts: tuple[Played, ...] = ()

    @property
    def results(self) -> Results:
        """All results of the replay, by port."""
        return results_by_port(self.named, self.mutations, self.gradients)


def replay(
    capture: Capture,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    state: State = None,
    tangents: Sequence[Tensor | None] | None = None,
) -> Replayed:
    """Run a Capture on new arguments, or without any on its own; random draws come from the caller's seed.

    The settings are those of the capture: another default dtype would be another program.
    """
    refuse_users_mode("replay")
    with restored(dict(capture.environment)):
        named = name_tangents(capture, tangents)
        values, own = values_of(capture, args, kwargs or {}, state)
        if (args or kwargs) and state != "recipe":
            hold_chance(capture)
        return replay_values(capture, values, own or None if named is None else named)


def refuse_users_mode(verb: str) -> None:
    """Refuse to run a Capture where a dispatch mode of the user's may change what its operators compute."""
    if (mode := users_dispatch_mode()) is not None:
        raise ReplayError(
            f"the dispatch mode {mode} is active, and may change what operators compute: {verb} outside of it, or run "
            "the graphs under it with bp.run"
        )


def replay_values(
    capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor | None] | None
) -> Replayed:
    hold_pins(capture, values)
    hold_tangents(capture, tangents or {})
    hold_sizes(capture, values)
    play = Play(capture, values, tangents)
    play.forward()
    named = {link.name: play.value(link) for link in results(capture)}
    gradients = play.gradients()
    named = apart_from(named, capture.origin.constants)
    loss = named.get(capture.signature.loss)
    return Replayed(
        capture.origin.rebuild(capture.signature.output, named),
        gradients,
        play.mutations(),
        named,
        loss,
        tuple(play.played),
    )


def apart_from(named: Mapping[str, Tensor], constants: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs with copies of those that lie in a constant of the Capture's own: the caller may write to
    what a replay returns."""
    memories = {storage_id(part.untyped_storage()) for each in constants.values() for part in strided_parts(each)}
    shared = {
        name: tensor
        for name, tensor in named.items()
        if memories and any(storage_id(part.untyped_storage()) in memories for part in strided_parts(tensor))
    }
    return {**named, **copy_values(shared)}


def hold_pins(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the inputs that are pinned have their captured values."""
    for name, wanted in capture.pins:
        if name in values and digest(values[name]) != wanted:
            why = next((guard for guard in capture.guards if guard.kind == "pinned" and name in guard.inputs), None)
            where = f" at {why.source.file}:{why.source.line}: {why.source.code!r}" if why and why.source else ""
            raise GuardError(
                f"input {name!r} is pinned to the values it was captured with{where}"
                f"{f' ({why.text})' if why else ''}: capture again on inputs like these"
            )


def hold_tangents(capture: Capture, tangents: Mapping[str, Tensor | None]) -> None:
    """Raise unless the tangents that are pinned are ones."""
    pinned = {name for guard in capture.guards if guard.kind == "pinned" for name in guard.inputs}
    for name, tangent in tangents.items():
        if tangent_name(name) in pinned and tangent is not None and not bool((tangent == 1).all()):
            raise GuardError(
                f"{tangent_name(name)} is pinned to ones: a recorded step's own backward() starts with them, and the "
                "step was proved on them alone. Without tangents= the replay does so too"
            )


def hold_chance(capture: Capture) -> None:
    """Raise unless the generators, other than torch's, that the program draws from have their state at capture."""
    wanted = {name.removeprefix(STATE_OF): state for name, state in capture.pins if name.startswith(STATE_OF)}
    if not wanted:
        return
    now = {name: random_state_digest(state) for name, state in foreign_states().items()}
    now |= capture.origin.chance() if capture.origin.alive else {}
    for name, state in wanted.items():
        if now.get(name, state if name.startswith(OWN) else "") != state:
            raise GuardError(
                f"the program draws from {name}, whose state is not as at capture, and the numbers that it "
                "drew are constants of the graph: restore its state, or use torch's generator in the program. "
                "Without arguments, and with state='recipe', the numbers are those of the capture"
            )


SIZE = re.compile(r"(?:(?P<name>.+)\.shape\[(?P<index>\d{1,3})\] == )?(?P<text>.+)")
"""The text of a `size` guard: a condition over symbols, or the value of a dimension."""


def hold_sizes(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the conditions on sizes that tracing found hold for these inputs."""
    guards = [guard for guard in capture.guards if guard.kind == "size"]
    if not guards:
        return
    sizes = sizes_of([(port, values[port.name]) for port in capture.pairs[0].forward.inputs if port.name in values])
    for guard in guards:
        good, why = holds_condition(guard, values, sizes)
        if not good:
            line = guard.source
            where = f" at {line.file}:{line.line}: {line.code!r}" if line else ""
            shapes = [
                f"{name} {list(values[name].shape)}" for name in guard.inputs if isinstance(values.get(name), Tensor)
            ]
            raise GuardError(
                f"guard `{guard.text}` does not hold{where}: these inputs have {', '.join(shapes)} "
                f"({sizes_in_words(sizes)}){why}. Capture again on inputs like these"
            )


def holds_condition(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> tuple[bool, str]:
    """Whether one condition on sizes holds; if it cannot be evaluated, also why."""
    try:
        return holds(guard, values, sizes), ""
    except GraphError as error:
        return False, f"; {error}"


def holds(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> bool:
    """Whether one condition on sizes holds; one about a tensor that is not given holds."""
    found = SIZE.fullmatch(guard.text)
    if found is None:
        raise ReplayError(f"guard {guard.text!r:.80} is not a condition on sizes")
    name, index = found["name"], int(found["index"] or 0)
    if name is None:
        return not known(guard.text, sizes) or bool(evaluate(guard.text, sizes))
    value = values.get(name)
    if not isinstance(value, Tensor):
        return True
    if not sizes and not known(found["text"], sizes):  # a part of a Capture: its symbolic sizes are numbers
        return True
    return index < value.dim() and value.shape[index] == evaluate(found["text"], sizes)
