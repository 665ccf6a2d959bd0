"""The parameters, buffers and constants that a replay runs on: the live module's, the caller's `state`, or the
recipes'.

The recipes' are used only if the caller says so.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from backprint.errors import ReplayError, UsageError
from backprint.graph.keys import without_tangents
from backprint.graph.links import free_ports, input_names
from backprint.graph.nouns import Capture, Port
from backprint.replaying.sharing import laid_state
from backprint.sample.recipes import DRAWN_KINDS

State = Mapping[str, Tensor] | str | None
"""Parameters, buffers and constants: by name, `"recipe"`, or None for the live module's."""


def check_state(capture: Capture, state: State) -> None:
    """Raise unless `state` is a mapping of known names to tensors, or `"recipe"`."""
    if state is None or state == "recipe":
        return
    if not isinstance(state, Mapping):
        raise UsageError(
            f"state={state!r:.60} is neither a mapping of names to tensors, as model.state_dict() is, nor 'recipe'"
        )
    ports = {port.name for port in free_ports(capture)}
    inner = {port.name for pair in capture.pairs for port in pair.forward.inputs}
    drawn = set(capture.recipes.recipes)
    strange = [name for name in state if name not in ports | inner | drawn]
    missing = [name for name in ports if name not in state]
    for name in strange:  # a whole model's state has more names than a part of it, and more than one of a tied weight
        close = difflib.get_close_matches(name, missing, 1, 0.8)
        if close or len(strange) == len(state):
            hint = f": did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(ports))[:200]}"
            raise ReplayError(f"state names {name!r}, which {capture.name} does not take{hint}")


def check_twice(given: Mapping[str, Tensor], state: State) -> None:
    """Raise if `state` has another tensor for an argument."""
    for name, value in state.items() if isinstance(state, Mapping) else ():
        if name in given and given[name] is not value:
            raise UsageError(
                f"state has {name!r}, which is an argument and is given: state is for parameters, buffers and "
                "constants; give each tensor once"
            )


def own_values(capture: Capture, state: State) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a Capture's own inputs: those of the captured call while it lives, else from recipes, with tangents."""
    if capture.origin.alive and not capture.fake and state != "recipe":
        return with_state(capture, capture.origin.values(), state), {}
    made = capture.recipes.make()
    inputs, tangents = without_tangents(made)
    values = {**inputs, **(state if isinstance(state, Mapping) else {})}
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    missing = [port for port in free_ports(capture) if port.name not in values]
    if missing:
        raise ReplayError(
            f"{missing[0].role} {missing[0].name!r} is missing: no recipe makes it. Pass the inputs as arguments, and "
            "parameters in `state`"
        )
    return values | laid_state(capture, values), tangents


def recipe_inputs(capture: Capture) -> dict[str, Tensor]:
    """Return the recipes' parameters, buffers, inputs and constants by name, without tangents."""
    names = [port.name for port in free_ports(capture)]
    made = capture.recipes.make()
    made |= {right: made[left] for left, right in capture.signature.same if left in made and right not in made}
    if missing := [name for name in names if name not in made]:
        raise ReplayError(f"no recipe makes {missing[0]!r}: {capture.name} was saved without data")
    return {name: made[name] for name in names}


def with_state(capture: Capture, given: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
    """Add parameters, buffers and constants to the inputs: given ones, else the live module's, else exact recipes'."""
    found = {**given, **(state if isinstance(state, Mapping) else {})}
    same = {right: left for left, right in capture.signature.same}
    missing: list[Port] = []
    for port in free_ports(capture):
        if port.name in found or (port.name in same and same[port.name] in found):
            continue
        if port.role == "input" and port.name not in same:
            raise ReplayError(f"input {port.name!r} is missing; {capture.name} takes {', '.join(input_names(capture))}")
        missing.append(port)
    if missing:
        found |= state_values(capture, missing, state)
    found |= {right: found[left] for right, left in same.items() if right not in found and left in found}
    return found


def state_values(capture: Capture, ports: Sequence[Port], state: State) -> dict[str, Tensor]:
    """Return the values of these parameters, buffers and constants, which were not given."""
    names = [port.name for port in ports]
    live = live_state(capture, names) if capture.origin.alive and state != "recipe" else {}
    found = {name: live[name] for name in names if name in live}
    rest = [name for name in names if name not in found]
    if rest:
        found |= from_recipes(capture, rest, state)
    found |= {name: each for name, each in capture.origin.constants.items() if name in rest}
    for port in ports:
        if port.name not in found and port.name not in {right for _, right in capture.signature.same}:
            raise ReplayError(
                f"{port.role} {port.name!r} is not given, the module is gone and no recipe makes it: pass it in `state`"
            )
    return found


def from_recipes(capture: Capture, names: Sequence[str], state: State) -> dict[str, Tensor]:
    """Return the recipes' values of these; refuse values that they draw, unless the caller says so."""
    recipes = capture.recipes.recipes
    redrawn = [name for name in names if name in recipes and is_drawn(recipes, name)]
    if redrawn and state != "recipe" and not capture.fake:
        whose = f"{', '.join(redrawn[:3])}{f' and {len(redrawn) - 3} more' if len(redrawn) > 3 else ''}"
        if state is not None:
            raise ReplayError(f"state has no {whose}, and a recipe would redraw it: pass it too, or state='recipe'")
        gone = " (its program is gone)" if capture.origin.traced_here else ""
        raise ReplayError(
            f"{capture.name}{gone} has no values of {whose}, only recipes that redraw them: pass "
            "state=model.state_dict() to run on the program's own, or state='recipe' to run on redrawn ones"
        )
    made: dict[str, Tensor] = capture.recipes.make(names=names)
    return {name: made[name] for name in names if name in made}


def is_drawn(recipes: Mapping[str, Any], name: str) -> bool:
    """Whether a recipe draws its tensor, or a tensor that its tensor is a view of."""
    recipe = recipes[name]
    of = dict(recipe.facts).get("of", ()) if recipe.kind in ("view", "sparse") else ()
    bases = of if isinstance(of, tuple) else (of,)
    return recipe.kind in DRAWN_KINDS or any(base in recipes and is_drawn(recipes, base) for base in bases)


def live_state(capture: Capture, wanted: Collection[str]) -> dict[str, Tensor]:
    """Return parameters, buffers and constants of the live module; for a fake capture, those wanted, from recipes."""
    found = capture.origin.live()
    if capture.fake:
        missing = [name for name in wanted if name in capture.recipes.recipes and name not in found]
        found |= capture.recipes.make(names=missing)
    return found
