"""Arguments to ports: what a call must share with the captured one, and whose parameters it runs on.

Of the captured call hold: what is no tensor, by value; containers, their keys and order; which tensors are one, and
which share memory where one of them is written to; how inputs lie in memory. Parameters, buffers and constants are the
live module's, the caller's `state`, or the recipes': never the recipes' without a word.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from backprint.errors import GuardError, ReplayError, UsageError
from backprint.graph.links import free_ports, mutated
from backprint.graph.nouns import Argument, Capture, Port, TensorSpec
from backprint.likeness.describe import Describing, Like, describe_value
from backprint.likeness.differences import holds_live_value, likeness_differences, likeness_text
from backprint.memory import memory_spans, overlapping_pairs
from backprint.replay.run import sizes_of
from backprint.replay.strides import laid_as, lies, strides
from backprint.tree import FLAGS, leaf_name, positional

State = Mapping[str, Tensor] | str | None
"""Parameters, buffers and constants: by name, `"recipe"`, or None for the live module's."""

DRAWN = ("normal", "uniform", "integers", "choice", "permutation")
"""Kinds of recipes that draw values: a program's own are other ones."""

INPUT_ALONE = "capture again on inputs like these"


def values_of(
    capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any], state: State
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The value of every port of a call, and the tangents that its own inputs come with, where it runs on those."""
    check_state(capture, state)
    if not args and not kwargs:
        return own_values(capture, state)
    given = arguments(capture, args, kwargs)
    hold_flags(capture, given)
    check_twice(given, state)
    values = with_state(capture, given, state)
    check_strides(capture, {name: values[name] for name in inputs_of(capture) if name in values}, values)
    check_same(capture, given, values)
    check_memory(capture, values)
    return {name: values[name] for name in values} | laid_state(capture, values), {}


# ------------------------------------------------------------------ a call


def arguments(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among these arguments by port name; what the captured call was given besides is compared."""
    signature = capture.signature
    if signature.call is None:
        return by_path(capture, args, kwargs)
    rows = {row.name: row for row in signature.call}
    ports = {port.name for port in free_ports(capture)}
    found: dict[str, list[tuple[Any, Any]]] = {}
    values: dict[str, Tensor] = {}
    for name, key, value in bound(capture, rows, args, kwargs):
        if name in rows:
            found.setdefault(name, []).append((key, value))
        elif isinstance(value, Tensor) and name in ports:
            values[name] = value
        elif isinstance(value, Tensor):
            raise ReplayError(f"the capture has no input {name!r}; it takes {', '.join(inputs_of(capture)) or 'none'}")
        elif value is not None:
            raise GuardError(f"argument {name!r} = {value!r:.80} was not given at capture: capture again with it")
    live = getattr(getattr(getattr(capture.origin, "program", None), "given", None), "live", {})
    for row in signature.call:
        if row.name not in found and row.name[:1] != "*":
            check_missing(row, values)
        else:
            values |= matched(row, found.get(row.name, []), live.get(row.name, ()))
    return values


def bound(
    capture: Capture, rows: Mapping[str, Argument], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """For each value of a call the parameter that takes it, its key there (for stars), and the value."""
    ahead = [name for name, row in rows.items() if not name.startswith("*") and not row.keyword]
    star = next((name for name in rows if name.startswith("*") and not name.startswith("**")), "")
    double = next((name for name in rows if name.startswith("**")), "")
    if len(args) > len(ahead) and not star:
        takes = ", ".join(capture.signature.arguments) or "no arguments"
        raise ReplayError(f"{capture.name} takes {takes}; {len(args)} were given")
    for index, value in enumerate(args):
        yield (ahead[index] if index < len(ahead) else star), index, value
    for key, value in kwargs.items():
        if key in ahead[: len(args)]:
            raise ReplayError(f"{capture.name} is given {key!r} twice: by its place and by its name")
        yield (key, key, value) if key in rows or not double else (double, key, value)


def check_missing(row: Argument, values: Mapping[str, Tensor]) -> None:
    """Raise where an argument that is no tensor is left out, and that makes a difference."""
    if row.optional or (isinstance(row.like, dict) and "tensor" in row.like):
        return
    if has_tensors(row.like):
        return  # each of its tensors may be given by the name of its port
    raise GuardError(f"argument {row.name!r} was {likeness_text(row.like)} at capture and is missing now: pass it too")


def has_tensors(like: Like) -> bool:
    """Whether tensors of the call are in a likeness."""
    if isinstance(like, dict):
        return "tensor" in like or any(map(has_tensors, like.values()))
    return isinstance(like, list) and any(map(has_tensors, like))


def matched(row: Argument, given: Sequence[tuple[Any, Any]], live: Sequence[Any]) -> dict[str, Tensor]:
    """The tensors in the places of a parameter's value, which must be as it was in all else."""
    state = Describing(lambda index: index)
    likes = [
        (key, describe_value(value, state, not row.optional or has_tensors(row.like)).like) for key, value in given
    ]
    if row.name.startswith("**"):
        now: Like = {"dict": [[repr(key), like] for key, like in likes]}
    elif row.name.startswith("*"):
        now = {"tuple": [like for _, like in likes]}
    else:
        now = likes[0][1]
    bare = row.name.lstrip("*")
    for path, what in likeness_differences(row.like, now, bare):
        name = path.removeprefix(f"{bare}.") if row.name.startswith("**") else path
        raise GuardError(f"argument {name!r} {what}: capture again with it")
    if holds_live_value(row.like):
        check_live(row, state.live, live)
    return dict(zip(tensor_names(row.like), (state.tensors[index] for index in tensor_names(now)), strict=True))


def tensor_names(like: Like) -> Iterator[Any]:
    """What stands in the places of tensors, in order."""
    if isinstance(like, dict):
        if "tensor" in like:
            yield like["tensor"]
        else:
            for each in like.values():
                yield from tensor_names(each)
    elif isinstance(like, list):
        for each in like:
            yield from tensor_names(each)


def check_live(row: Argument, now: Sequence[Any], then: Sequence[Any]) -> None:
    """Raise unless values that cannot be described are the very ones of the captured call."""
    for index, value in enumerate(now):
        if index >= len(then):
            raise GuardError(
                f"argument {row.name!r} has a {type(value).__name__} in it, which can be compared only with the one "
                "that the program was captured with, and that is gone: capture again with this one"
            )
        if value is not then[index]:
            raise GuardError(
                f"argument {row.name!r} has another {type(value).__name__} in it than at capture: pass the same one, "
                "or capture again with it"
            )


def by_path(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors by the names of their paths, where nothing but the leaves' texts is known of the captured call."""
    signature = capture.signature
    names = positional(signature.arguments, len(args))
    if len(names) < len(args):
        raise ReplayError(
            f"{capture.name} takes {', '.join(signature.arguments) or 'no arguments'}; {len(args)} were given"
        )
    paths, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    constants = dict(signature.leaves)
    ports = {port.name for port in free_ports(capture)}
    values: dict[str, Tensor] = {}
    seen = set()
    for path, leaf in paths:
        seen.add(name := leaf_name(path, names))
        if isinstance(leaf, Tensor):
            if name not in ports:
                raise ReplayError(f"the capture has no input {name!r}; it takes {', '.join(inputs_of(capture))}")
            values[name] = leaf
        elif name in constants and repr(leaf)[:200] != constants[name]:
            raise GuardError(
                f"argument {name!r} was {constants[name]} at capture and is {leaf!r:.80} now: capture again with it"
            )
        elif name not in constants and leaf is not None:
            raise GuardError(f"argument {name!r} = {leaf!r:.80} was not given at capture: capture again with it")
    own = {name.lstrip("*") for name in signature.arguments}
    for name, text in constants.items():
        if name not in seen and name.partition(".")[0] in own:
            raise GuardError(f"argument {name!r} was {text} at capture and is missing now: pass it too")
    return values


def inputs_of(capture: Capture) -> list[str]:
    """The names of a capture's inputs."""
    return [port.name for port in free_ports(capture) if port.role == "input"]


# ------------------------------------------------------------------ what the program asked of its arguments


def hold_flags(capture: Capture, given: Mapping[str, Tensor]) -> None:
    """Raise unless arguments answer what the program asked of them as those of the capture did."""
    for guard in capture.guards:
        name, _, rest = guard.text.partition(": ")
        key, _, wanted = rest.partition(" == ")
        if guard.kind != "flag" or name not in given or key not in FLAGS:
            continue
        found = repr(FLAGS[key](given[name]))
        if found != wanted:
            where = f" at {guard.source.file}:{guard.source.line}: {guard.source.code!r}" if guard.source else ""
            raise GuardError(
                f"the program asks whether its argument {name!r} {key}{where}: {wanted} at capture, {found} here. "
                "Capture again on arguments like these"
            )


# ------------------------------------------------------------------ state


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
    drawn = set(capture.recipes.recipes) if capture.recipes is not None else set()
    strange = [name for name in state if name not in ports | inner | drawn]
    missing = [name for name in ports if name not in state]
    for name in strange:  # a whole model's state has more names than a part of it, and more than one of a tied weight
        close = difflib.get_close_matches(name, missing, 1, 0.8)
        if close or len(strange) == len(state):
            hint = f": did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(ports))[:200]}"
            raise ReplayError(f"state names {name!r}, which {capture.name} does not take{hint}")


def check_twice(given: Mapping[str, Tensor], state: State) -> None:
    """Raise where `state` has another tensor for an argument."""
    for name, value in state.items() if isinstance(state, Mapping) else ():
        if name in given and given[name] is not value:
            raise UsageError(
                f"state has {name!r}, which is an argument and is given: state is for parameters, buffers and "
                "constants; give each tensor once"
            )


def own_values(capture: Capture, state: State) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A Capture's own inputs: those of the captured call while it lives, else what the recipes make, with tangents."""
    if is_live(capture) and not capture.fake and state != "recipe":
        return with_state(capture, capture.origin.values(), state), {}
    made: dict[str, Tensor] = capture.recipes.make() if capture.recipes is not None else {}
    tangents = {key.removeprefix("tangent "): made.pop(key) for key in list(made) if key.startswith("tangent ")}
    values = {**made, **(state if isinstance(state, Mapping) else {})}
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    missing = [port for port in free_ports(capture) if port.name not in values]
    if missing:
        raise ReplayError(
            f"{missing[0].role} {missing[0].name!r} is missing: no recipe makes it. Pass the inputs as arguments, and "
            "parameters in `state`"
        )
    return values | laid_state(capture, values), tangents


def recipe_inputs(capture: Capture) -> dict[str, Tensor]:
    """What the recipes make: parameters, buffers, inputs and constants by name, without tangents."""
    names = [port.name for port in free_ports(capture)]
    made: dict[str, Tensor] = capture.recipes.make() if capture.recipes is not None else {}
    made |= {right: made[left] for left, right in capture.signature.same if left in made and right not in made}
    if missing := [name for name in names if name not in made]:
        raise ReplayError(f"no recipe makes {missing[0]!r}: {capture.name} was saved without data")
    return {name: made[name] for name in names}


def is_live(capture: Capture) -> bool:
    """Whether a Capture still has the program it was made of."""
    return capture.origin is not None and bool(capture.origin.alive)


def with_state(capture: Capture, given: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
    """The inputs with parameters, buffers and constants: as given, else the live module's, else kept exactly."""
    found = {**given, **(state if isinstance(state, Mapping) else {})}
    same = {right: left for left, right in capture.signature.same}
    missing: list[Port] = []
    for port in free_ports(capture):
        if port.name in found or (port.name in same and same[port.name] in found):
            continue
        if port.role == "input" and port.name not in same:
            raise ReplayError(f"input {port.name!r} is missing; {capture.name} takes {', '.join(inputs_of(capture))}")
        missing.append(port)
    if missing:
        found |= state_of(capture, missing, state)
    found |= {right: found[left] for right, left in same.items() if right not in found and left in found}
    return found


def state_of(capture: Capture, ports: Sequence[Port], state: State) -> dict[str, Tensor]:
    """The values of these parameters, buffers and constants, which nobody gave."""
    names = [port.name for port in ports]
    live = live_state(capture, names) if is_live(capture) and state != "recipe" else {}
    found = {name: live[name] for name in names if name in live}
    rest = [name for name in names if name not in found]
    if rest and capture.recipes is not None:
        found |= from_recipes(capture, rest, state)
    if rest and capture.origin is not None:
        found |= {name: each for name, each in capture.origin.constants.items() if name in rest}
    for port in ports:
        if port.name not in found and port.name not in {right for _, right in capture.signature.same}:
            raise ReplayError(
                f"{port.role} {port.name!r} is not given, the module is gone and no recipe makes it: pass it in `state`"
            )
    return found


def from_recipes(capture: Capture, names: Sequence[str], state: State) -> dict[str, Tensor]:
    """What recipes make of these; what they draw, only if the caller says so."""
    recipes = capture.recipes.recipes
    redrawn = [name for name in names if name in recipes and is_drawn(recipes, name)]
    if redrawn and state != "recipe" and not capture.fake:
        whose = f"{', '.join(redrawn[:3])}{f' and {len(redrawn) - 3} more' if len(redrawn) > 3 else ''}"
        if state is not None:
            raise ReplayError(f"state has no {whose}, and a recipe would redraw it: pass it too, or state='recipe'")
        gone = "" if capture.origin is None else " (its program is gone)"
        raise ReplayError(
            f"{capture.name}{gone} has no values of {whose}, only recipes that redraw them: pass "
            "state=model.state_dict() to run on the program's own, or state='recipe' to run on redrawn ones"
        )
    made: dict[str, Tensor] = capture.recipes.make(names=names)
    return {name: made[name] for name in names if name in made}


def is_drawn(recipes: Mapping[str, Any], name: str) -> bool:
    """Whether a recipe draws what it makes, itself or in what it is a view of."""
    recipe = recipes[name]
    of = dict(recipe.facts).get("of", ()) if recipe.kind in ("view", "sparse") else ()
    bases = of if isinstance(of, tuple) else (of,)
    return recipe.kind in DRAWN or any(base in recipes and is_drawn(recipes, base) for base in bases)


def live_state(capture: Capture, wanted: Collection[str]) -> dict[str, Tensor]:
    """Parameters, buffers and constants of the live module. Of a fake capture, those wanted, from recipes."""
    live = getattr(capture.origin, "live", capture.origin.values)
    found: dict[str, Tensor] = live()
    if capture.fake:
        missing = [name for name in wanted if name in capture.recipes.recipes and name not in found]
        found |= capture.recipes.make(names=missing)
    return found


# ------------------------------------------------------------------ how tensors lie, and where


def check_strides(capture: Capture, given: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless inputs lie in memory as they did: a program may read strides, and a graph's views need them."""
    ports = {port.name: port for port in free_ports(capture) if port.name in given}
    sizes = sizes_of([(port, values[port.name]) for port in free_ports(capture) if port.name in values])
    for name, port in ports.items():
        tensor, spec = given[name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tensor.dim() != len(spec.shape):
            continue
        wanted = strides(spec, tensor, sizes)
        if wanted is not None and not lies(tensor, wanted):
            raise GuardError(
                f"input {name!r} had strides {list(wanted)} at capture and has {list(tensor.stride())} now: "
                f"{advice(name, spec, tensor, wanted)}or {INPUT_ALONE}"
            )


def advice(name: str, spec: TensorSpec, tensor: Tensor, wanted: Sequence[int]) -> str:
    """What to write so that a tensor lies as it did, where there is a word for that."""
    if lies(torch.empty(tensor.shape, device="meta"), wanted):
        return f"pass {name}.contiguous(), "
    for dim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dim and lies(torch.empty(tensor.shape, device="meta").to(memory_format=form), wanted):
            return f"pass {name}.contiguous(memory_format={form}), "
    if 0 in wanted:
        return "pass it expanded as it was, "
    return f"pass torch.empty_strided({list(tensor.shape)}, {list(wanted)}, dtype={tensor.dtype}).copy_({name}), "


def laid_state(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters, buffers and constants that lie otherwise than their ports say, laid out as these say."""
    ports = [port for port in free_ports(capture) if port.role != "input" and port.name in values]
    found: dict[str, Tensor] = {}
    for port in ports:
        tensor, spec = values[port.name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tuple(tensor.shape) != spec.shape:
            continue
        wanted = strides(spec, tensor, {})
        if wanted is not None and not lies(tensor, wanted):
            found[port.name] = laid_as(tensor, wanted)
    return found


def check_same(capture: Capture, given: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless the same arguments are one tensor as at capture: a program may look, and gradients add up."""
    same = set(capture.signature.same)
    for left, right in same:
        both = left in values and right in values
        if both and right in given and not one(values[left], values[right]):
            raise GuardError(
                f"{left!r} and {right!r} were one tensor at capture: pass one tensor for both, or capture again"
            )
    if capture.signature.aliases is None:
        return
    first: dict[int, str] = {}
    known = {frozenset(pair) for pair in same} | {frozenset(pair[:2]) for pair in capture.signature.aliases}
    heads = {right: left for left, right in same}
    for name, tensor in given.items():
        other = first.setdefault(id(tensor), name)
        alike = heads.get(name, name) == heads.get(other, other)
        if not alike and frozenset((name, other)) not in known:
            raise GuardError(
                f"{other!r} and {name!r} were two tensors at capture and are one now: pass {name}.clone() for one of "
                "them, or capture again on inputs like these"
            )


def span(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies; of one that lies nowhere, itself."""
    place = memory_spans({"": tensor}).get("")
    return (place.memory, place.start, place.shape, place.stride) if place is not None else (id(tensor),)


def one(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are one, or views of the same memory that are alike."""
    return left is right or span(left) == span(right)


def check_memory(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise where tensors share memory otherwise than at capture, and one of them is written to."""
    if capture.signature.aliases is None or not (changed := mutated(capture)):
        return
    same = capture.signature.same
    written = {*changed, *(right for left, right in same if left in changed)}
    names = {port.name for port in free_ports(capture)}
    aliases = [each for each in capture.signature.aliases if names >= set(each[:2])]
    then = {each[:2]: each[2] for each in aliases if written & set(each[:2])}
    tensors = {name: values[name] for name in values if name in names and isinstance(values[name], Tensor)}
    known = {frozenset(pair) for pair in same}
    now: dict[tuple[str, str], int] = {}
    for left, right, apart in overlapping_pairs(memory_spans(tensors), written):
        if frozenset((left, right)) not in known:
            turned = (right, left) in then
            now[(right, left) if turned else (left, right)] = -apart if turned else apart
    for pair in dict.fromkeys((*then, *now)):
        if then.get(pair) != now.get(pair):
            left, right = pair
            who = " and ".join(name for name in pair if name in written)
            raise GuardError(
                f"{left!r} and {right!r} {shared(then.get(pair))} at capture and {shared(now.get(pair))} now, and the "
                f"program writes to {who}: pass copies (.clone()) or views as at capture, or {INPUT_ALONE}"
            )


def shared(apart: int | None) -> str:
    """How two tensors share memory, in words."""
    if apart is None:
        return "shared no memory"
    return "began in one place of memory" if apart == 0 else f"shared memory {abs(apart)} bytes from each other"


# ------------------------------------------------------------------ tangents


def name_tangents(capture: Capture, tangents: Any) -> dict[str, Tensor | None] | None:
    """The tangents by output name."""
    names = capture.signature.differentiable
    if tangents is None:
        return None
    if isinstance(tangents, (Tensor, str, Mapping)) or not isinstance(tangents, Sequence):
        wanted = ", ".join(names) or "none here"
        spelled = "tangents=[tangent]" if isinstance(tangents, Tensor) else "tangents=[first, second]"
        raise UsageError(
            f"tangents is a list with a tensor (or None, for ones) for each differentiable output ({wanted}), not "
            f"a {type(tangents).__name__}: write {spelled}"
        )
    if len(tangents) != len(names):
        raise ReplayError(
            f"{len(tangents)} tangents for {len(names)} differentiable outputs ({', '.join(names) or 'none'})"
        )
    return dict(zip(names, tangents, strict=True))
