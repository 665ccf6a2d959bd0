"""The arguments of a replay: bound to ports, and compared with the captured call.

These must match: non-tensor arguments, by value; containers with their keys and order; which tensors are the same, and
which share memory if one of them is written to; the strides of inputs.

- `passed`: the tensors among the caller's arguments, by the names of their ports. `values` has parameters, buffers and
  constants (the *state*) too. The caller's `state` (State) has tensors of these by name, or is `"recipe"` for those
  that recipes make, or None for the live module's.
- A *fake* Capture was traced without values: its program lives, but only recipes have values.
- A *port* is an input of the Capture that its caller passes (`free_ports`); its `spec` is a dtype, a shape, and strides
  (None: contiguous), whose sizes may be symbols. `sizes` has the numbers of these symbols.
- `capture.signature` says how the captured call maps to ports: `same` has pairs of names that were one tensor,
  `aliases` pairs that share memory, and `call` a *row*, an Argument, for each parameter.
- A row's `like` is a *fingerprint*: JSON that describes a value, with the port's name in the place of each tensor. Two
  values with equal fingerprints are alike, except for objects that only identity tells apart; `live` has those of the
  captured call while they exist.
- `capture.origin`: the program behind a Capture, which may be gone. A *recipe* makes an input again, from kept bytes or
  by a seed; the latter *draws* it, with other values than the program's.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from backprint.errors import GuardError, ReplayError, UsageError
from backprint.graph.keys import without_tangents
from backprint.graph.links import free_ports, input_names, mutated
from backprint.graph.nouns import Argument, Capture, Guard, Port, Spec, TensorSpec
from backprint.graph.sizes import evaluate, known
from backprint.prove.run import sizes_of
from backprint.sample.recipes import DRAWN_KINDS
from backprint.values.fingerprint import (
    DescribeState,
    Like,
    describe_value,
    fingerprint_differences,
    fingerprint_text,
    holds_live_value,
    rest_by_name,
    rest_in_order,
)
from backprint.values.geometry import contiguous_strides
from backprint.values.memory import memory_spans, overlapping_pairs
from backprint.values.tree import FLAGS, flatten_with_path, leaf_name, positional

# ---- Strides of tensors, compared with those of ports


def strides(spec: TensorSpec, tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return the strides that a tensor of this shape has according to the spec of its port, where symbols have these
    `sizes`; None if the tensor is not strided, or a symbol has no number."""
    if spec.layout != "strided" or tensor.layout is not torch.strided:
        return None
    if spec.stride is None:
        return contiguous_strides(tensor.shape)
    if not all(known(size, sizes) for size in spec.stride):
        return None
    return tuple(int(evaluate(size, sizes)) for size in spec.stride)


def _has_strides(tensor: Tensor, wanted: Sequence[int]) -> bool:
    """Whether a tensor has these strides, in dimensions with more than one element: others reach no element."""
    if tensor.numel() == 0:
        return True
    rows = zip(tensor.shape, tensor.stride(), wanted, strict=True)
    return all(size <= 1 or now == then for size, now, then in rows)


def with_strides(tensor: Tensor, wanted: Sequence[int]) -> Tensor:
    """Return a copy of a tensor with these strides; the tensor itself if it has them, or if they are those of an
    expanded tensor, whose elements share memory and cannot be written."""
    if _has_strides(tensor, wanted) or any(
        step == 0 and size > 1 for size, step in zip(tensor.shape, wanted, strict=True)
    ):
        return tensor
    copy = torch.empty_strided(tensor.shape, tuple(wanted), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.detach())


def tangent_with_traced_strides(tangent: Tensor, output: Tensor, spec: Spec, sizes: Mapping[str, int]) -> Tensor:
    """Return a tangent with the strides that the backward was traced for, as the backward may make views of it. `spec`
    is of the tangent's port. If the strides are not known, they are those that `empty_like(output)` has. The tangent of
    a sparse output is returned as it is."""
    if output.layout is not torch.strided:
        return tangent
    traced_strides = strides(spec, tangent, sizes) if isinstance(spec, TensorSpec) else None
    return with_strides(tangent, traced_strides if traced_strides is not None else torch.empty_like(output).stride())


# ---- Tensors that are the same or share memory, compared with those of the captured call

INPUT_ALONE = "capture again on inputs like these"


def _check_strides(capture: Capture, passed: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless the inputs in `passed` have the strides that they had at capture: a program may read strides, and a
    graph's views need them. `values` has all inputs and state, which determine the symbolic sizes."""
    ports = {port.name: port for port in free_ports(capture) if port.name in passed}
    sizes = sizes_of([(port, values[port.name]) for port in free_ports(capture) if port.name in values])
    for name, port in ports.items():
        tensor, spec = passed[name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tensor.dim() != len(spec.shape):
            continue
        wanted = strides(spec, tensor, sizes)
        if wanted is not None and not _has_strides(tensor, wanted):
            raise GuardError(
                f"input {name!r} had strides {list(wanted)} at capture and has {list(tensor.stride())} now: "
                f"{strides_advice(name, spec, tensor, wanted)}or {INPUT_ALONE}"
            )


def strides_advice(name: str, spec: TensorSpec, tensor: Tensor, wanted: Sequence[int]) -> str:
    """Return the beginning of an advice, with a comma at its end: how to give the argument `name`, which `tensor` is
    now, the strides `wanted` that it had at capture."""
    if _has_strides(torch.empty(tensor.shape, device="meta"), wanted):
        return f"pass {name}.contiguous(), "
    # On meta tensors: the strides of a memory format cost no memory there.
    for dim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dim and _has_strides(
            torch.empty(tensor.shape, device="meta").to(memory_format=form), wanted
        ):
            return f"pass {name}.contiguous(memory_format={form}), "
    if 0 in wanted:
        return "pass it expanded as it was, "
    return f"pass torch.empty_strided({list(tensor.shape)}, {list(wanted)}, dtype={tensor.dtype}).copy_({name}), "


def _state_with_traced_strides(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies, with the strides of their ports, of the parameters, buffers and constants that have others. Inputs
    are left out: `_check_strides` refuses them."""
    ports = [port for port in free_ports(capture) if port.role != "input" and port.name in values]
    state_values: dict[str, Tensor] = {}
    for port in ports:
        tensor, spec = values[port.name], port.spec
        if not isinstance(spec, TensorSpec) or not isinstance(tensor, Tensor) or tuple(tensor.shape) != spec.shape:
            continue
        wanted = strides(spec, tensor, sizes={})  # the shape is that of the spec, so it has no symbols
        if wanted is not None and not _has_strides(tensor, wanted):
            state_values[port.name] = with_strides(tensor, wanted)
    return state_values


def check_same_tensors(capture: Capture, passed: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Raise unless the same names are one tensor as at capture: a program may compare them, and gradients add up.
    `passed` has the arguments, and `values` the parameters, buffers and constants too."""
    same = set(capture.signature.same)  # pairs of names that were one tensor at capture
    for left, right in same:
        if left not in values or right not in values or right not in passed:
            continue  # `right` is state, or gets the value of `left`
        # Two arguments must be one object. A parameter that is an argument too may be another view of the memory.
        left_is_argument = left in passed
        are_one = values[left] is values[right] if left_is_argument else _are_one(values[left], values[right])
        if not are_one:
            raise GuardError(
                f"{left!r} and {right!r} were one tensor at capture: pass one tensor for both, or capture again"
            )
    # The other way round: tensors that were two must not be one now. Without `aliases`, the capture does not know.
    if capture.signature.aliases is None:
        return
    first_name_by_id: dict[int, str] = {}  # the first name of each tensor that is passed, by its id
    # Names that were one tensor at capture may be one now: the first of them stands for all.
    first_at_capture = {right: left for left, right in same}
    for name, tensor in passed.items():
        other = first_name_by_id.setdefault(id(tensor), name)
        if first_at_capture.get(name, name) != first_at_capture.get(other, other):
            raise GuardError(
                f"{other!r} and {name!r} were two tensors at capture and are one now: pass {name}.clone() for one of "
                "them, or capture again on inputs like these"
            )


def _place_in_memory(tensor: Tensor) -> tuple[Any, ...]:
    """Return a key of a tensor's memory and geometry; its identity if it has no memory."""
    place = memory_spans({"": tensor}).get("")
    return (place.memory, place.start, place.shape, place.stride) if place is not None else (id(tensor),)


def _are_one(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are one, or equal views of the same memory."""
    return left is right or _place_in_memory(left) == _place_in_memory(right)


def _check_memory(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise if tensors share memory in another way than at capture, and the program writes to one of them, or reads
    where it is. Memory that the program neither writes to nor asks for the address of can change no result."""
    changed = mutated(capture)  # the names of tensors that the program writes to
    read = {name: guard for guard in capture.guards if guard.kind == "memory" for name in guard.inputs}
    if capture.signature.aliases is None or not (changed or read):
        return
    same = capture.signature.same
    read |= {right: read[left] for left, right in same if left in read}
    written_or_read = {*changed, *read, *(right for left, right in same if left in changed)}
    names = {port.name for port in free_ports(capture)}
    # Both by pairs of names that share such memory: how many bytes after the first of the two the second begins.
    offset_at_capture = {
        (left, right): offset
        for left, right, offset in capture.signature.aliases
        if names >= {left, right} and written_or_read & {left, right}
    }
    tensors = {name: value for name, value in values.items() if name in names and isinstance(value, Tensor)}
    offset_now: dict[tuple[str, str], int] = {}
    same_tensors = {frozenset(pair) for pair in same}  # `check_same_tensors` has compared these
    for left, right, offset in overlapping_pairs(memory_spans(tensors), written_or_read):
        if frozenset((left, right)) in same_tensors:
            continue
        if (right, left) in offset_at_capture:  # in the other order, so the offset gets the other sign
            offset_now[right, left] = -offset
        else:
            offset_now[left, right] = offset
    for pair in dict.fromkeys((*offset_at_capture, *offset_now)):
        if offset_at_capture.get(pair) != offset_now.get(pair):
            left, right = pair
            raise GuardError(
                f"{left!r} and {right!r} {_sharing_text(offset_at_capture.get(pair))} at capture and "
                f"{_sharing_text(offset_now.get(pair))} now, and the program "
                f"{_use_of_memory(pair, written_or_read, read)}: pass copies (.clone()) or views as at capture, or "
                f"{INPUT_ALONE}"
            )


def _use_of_memory(pair: tuple[str, str], written: Collection[str], read: Mapping[str, Guard]) -> str:
    """Say what a program does with the memory of two tensors: it writes to those of them in `written`, or reads the
    address of one, in the line of its Guard in `read`."""
    guard = next((read[name] for name in pair if name in read), None)
    if guard is None:
        return f"writes to {' and '.join(name for name in pair if name in written)}"
    where = f" at {guard.source.at}: {guard.source.code!r}" if guard.source else ""
    return f"reads where {guard.inputs[0]} is in memory{where}"


def _sharing_text(apart: int | None) -> str:
    """Say how two tensors share memory that begin so many bytes apart; None if they share none."""
    if apart is None:
        return "shared no memory"
    return "started at the same address" if apart == 0 else f"shared memory {abs(apart)} bytes from each other"


# ---- Parameters, buffers and constants: the live module's, the caller's `state`, or the recipes' if the caller says so

State = Mapping[str, Tensor] | str | None
"""What the caller passes as `state`, for parameters, buffers and constants: tensors by name, `"recipe"` for those that
the recipes make, or None for those of the live module."""


def check_state(capture: Capture, state: State) -> None:
    """Raise unless `state` is a mapping of known names to tensors, or `"recipe"`."""
    if state is None or state == "recipe":
        return
    if not isinstance(state, Mapping):
        raise UsageError(
            f"state={state!r:.60} is neither a mapping of names to tensors, as model.state_dict() is, nor 'recipe'"
        )
    ports = {port.name for port in free_ports(capture)}
    pair_inputs = {port.name for pair in capture.pairs for port in pair.forward.inputs}  # also of values between Pairs
    recipe_names = set(capture.recipes.recipes)
    unknown_names = [name for name in state if name not in ports | pair_inputs | recipe_names]
    missing = [name for name in ports if name not in state]
    # A whole model's state has more names than a part of it, and more than one of a tied weight: a name that is unknown
    # is refused only if it looks like a misspelled one, or if no name is known.
    for name in unknown_names:
        close = difflib.get_close_matches(name, missing, n=1, cutoff=0.8)
        if close or len(unknown_names) == len(state):
            hint = f": did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(ports))[:200]}"
            raise ReplayError(f"state names {name!r}, which {capture.name} does not take{hint}")


def _refuse_given_twice(passed: Mapping[str, Tensor], state: State) -> None:
    """Raise if `state` has another tensor than the call for one of the arguments, which `passed` has by name."""
    for name, value in state.items() if isinstance(state, Mapping) else ():
        if name in passed and passed[name] is not value:
            raise UsageError(
                f"state has {name!r}, which is an argument and is given: state is for parameters, buffers and "
                "constants; give each tensor once"
            )


def values_of_capture(capture: Capture, state: State) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return a Capture's own inputs and state by name, and its tangents by output: from the captured call while that
    lives, which has no tangents, else from the recipes. Raise ReplayError if no recipe makes an input."""
    if capture.origin.alive and not capture.fake and state != "recipe":
        return _with_state(capture, capture.origin.values(), state), {}
    tensors = capture.recipes.make()
    inputs, tangents = without_tangents(tensors)
    values = {**inputs, **(state if isinstance(state, Mapping) else {})}
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    missing = [port for port in free_ports(capture) if port.name not in values]
    if missing:
        raise ReplayError(
            f"{missing[0].role} {missing[0].name!r} is missing: no recipe makes it. Pass the inputs as arguments, and "
            "parameters in `state`"
        )
    return values | _state_with_traced_strides(capture, values), tangents


def recipe_inputs(capture: Capture) -> dict[str, Tensor]:
    """Return the recipes' parameters, buffers, inputs and constants by name, without tangents; raise ReplayError if no
    recipe makes one of them."""
    names = [port.name for port in free_ports(capture)]
    tensors = capture.recipes.make()
    tensors |= {
        right: tensors[left] for left, right in capture.signature.same if left in tensors and right not in tensors
    }
    if missing := [name for name in names if name not in tensors]:
        raise ReplayError(f"no recipe makes {missing[0]!r}: {capture.name} was saved without data")
    return {name: tensors[name] for name in names}


def _with_state(capture: Capture, passed: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
    """Return the passed inputs with the parameters, buffers and constants that are missing: the caller's, else the live
    module's, else those that exact recipes make. A tensor with two names has its value under both. Raise ReplayError
    for an input that is missing: it is the caller's to pass."""
    values = {**passed, **(state if isinstance(state, Mapping) else {})}
    same = {right: left for left, right in capture.signature.same}
    missing: list[Port] = []
    for port in free_ports(capture):
        if port.name in values or (port.name in same and same[port.name] in values):
            continue
        if port.role == "input" and port.name not in same:
            raise ReplayError(f"input {port.name!r} is missing; {capture.name} takes {', '.join(input_names(capture))}")
        missing.append(port)
    if missing:
        values |= state_values(capture, missing, state)
    values |= {right: values[left] for right, left in same.items() if right not in values and left in values}
    return values


def state_values(capture: Capture, ports: Sequence[Port], state: State) -> dict[str, Tensor]:
    """Return the values of the parameters, buffers and constants of these ports, which the caller has not given: the
    live module's, else those that recipes make, else constants of the program. Raise ReplayError if there is none, but
    for the second name of a tensor, which gets the value of the first."""
    names = [port.name for port in ports]
    live = _live_state(capture, names) if capture.origin.alive and state != "recipe" else {}
    values = {name: live[name] for name in names if name in live}
    rest = [name for name in names if name not in values]
    if rest:
        values |= _from_recipes(capture, rest, state)
    values |= {name: constant for name, constant in capture.origin.constants.items() if name in rest}
    for port in ports:
        if port.name not in values and port.name not in {right for _, right in capture.signature.same}:
            raise ReplayError(
                f"{port.role} {port.name!r} is not given, the module is gone and no recipe makes it: pass it in `state`"
            )
    return values


def _from_recipes(capture: Capture, names: Sequence[str], state: State) -> dict[str, Tensor]:
    """Return the tensors of these names that recipes make. Refuse recipes that draw values at random, which are not the
    program's own, unless the caller passes `state="recipe"`."""
    recipes = capture.recipes.recipes
    redrawn = [name for name in names if name in recipes and _is_drawn(recipes, name)]
    if redrawn and state != "recipe" and not capture.fake:
        whose = f"{', '.join(redrawn[:3])}{f' and {len(redrawn) - 3} more' if len(redrawn) > 3 else ''}"
        if state is not None:
            raise ReplayError(f"state has no {whose}, and a recipe would redraw it: pass it too, or state='recipe'")
        gone = " (its program is gone)" if capture.origin.traced_here else ""
        raise ReplayError(
            f"{capture.name}{gone} has no values of {whose}, only recipes that redraw them: pass "
            "state=model.state_dict() to run on the program's own, or state='recipe' to run on redrawn ones"
        )
    tensors: dict[str, Tensor] = capture.recipes.make(names=names)
    return {name: tensors[name] for name in names if name in tensors}


def _is_drawn(recipes: Mapping[str, Any], name: str) -> bool:
    """Whether a recipe draws its tensor at random, or a tensor that its tensor is a view of or consists of."""
    recipe = recipes[name]
    # The fact `of` is the name of a view's base, and a tuple with the names of a sparse tensor's parts.
    of = dict(recipe.facts).get("of", ()) if recipe.kind in ("view", "sparse") else ()
    bases = of if isinstance(of, tuple) else (of,)
    return recipe.kind in DRAWN_KINDS or any(base in recipes and _is_drawn(recipes, base) for base in bases)


def _live_state(capture: Capture, wanted: Collection[str]) -> dict[str, Tensor]:
    """Return the parameters, buffers and constants of the live module. A fake capture has no values of them: the wanted
    ones are made by recipes."""
    live = capture.origin.live()
    if capture.fake:
        missing = [name for name in wanted if name in capture.recipes.recipes and name not in live]
        live |= capture.recipes.make(names=missing)
    return live


# ---- Arguments bound to ports


def values_of(
    capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any], state: State
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the values of inputs, parameters, buffers and constants for a call, by the names of their ports; and, for
    a call without arguments, which stands for the captured one, the tangents that the recipes make (else none). Raise
    GuardError or ReplayError for a call that is not like the captured one."""
    check_state(capture, state)
    if not args and not kwargs:
        return values_of_capture(capture, state)
    passed = arguments(capture, args, kwargs)
    _check_flags(capture, passed)
    _refuse_given_twice(passed, state)
    values = _with_state(capture, passed, state)
    _check_strides(capture, {name: values[name] for name in input_names(capture) if name in values}, values)
    check_same_tensors(capture, passed, values)
    _check_memory(capture, values)
    return values | _state_with_traced_strides(capture, values), {}


def arguments(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among these arguments by port name; compare all other arguments with the captured call."""
    signature = capture.signature
    if signature.call is None:
        return arguments_by_path(capture, args, kwargs)
    rows = {row.name: row for row in signature.call}
    ports = {port.name for port in free_ports(capture)}
    # For each parameter its argument with its place or keyword; for `*args` and `**kwargs`, several.
    passed_by_parameter: dict[str, list[tuple[Any, Any]]] = {}
    values: dict[str, Tensor] = {}
    for name, key, value in bind_arguments(capture, rows, args, kwargs):
        # A tensor that is no parameter's argument may be given by the name of its port.
        if name in rows:
            passed_by_parameter.setdefault(name, []).append((key, value))
        elif isinstance(value, Tensor) and name in ports:
            values[name] = value
        elif isinstance(value, Tensor):
            raise ReplayError(
                f"the capture has no input {name!r}; it takes {', '.join(input_names(capture)) or 'none'}"
            )
        elif value is not None:
            raise GuardError(f"argument {name!r} = {value!r:.80} was not given at capture: capture again with it")
    live = capture.origin.objects_by_parameter()  # the captured objects that are compared by identity
    for row in signature.call:
        # `*args` without a value is an empty tuple, which is compared like any other.
        if row.name not in passed_by_parameter and row.name[:1] != "*":
            _check_missing(row)
        else:
            values |= match_leaves(row, passed_by_parameter.get(row.name, []), live.get(row.name, ()))
    return values


def bind_arguments(
    capture: Capture, rows: Mapping[str, Argument], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield, for each value of a call, the parameter that it is bound to, its place or its keyword, and the value, as
    `inspect.Signature.bind` binds it. `rows` has the arguments of the captured call by parameter. A keyword that is no
    parameter is yielded in the parameter's place, if there is no `**kwargs` for it. Raise ReplayError for too many
    positional arguments, and for an argument that is given twice."""
    # The parameters that can be passed by place, and the names of `*args` and `**kwargs`, with their stars.
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


def _check_missing(row: Argument) -> None:
    """Raise for an argument that the captured call had and this one has not, unless its default is the captured value
    (`optional`), or it has tensors, which may be given by the names of their ports."""
    if row.optional or has_tensors(row.like):
        return
    raise GuardError(
        f"argument {row.name!r} was {fingerprint_text(row.like)} at capture and is missing now: pass it too"
    )


def has_tensors(like: Like) -> bool:
    """Whether a fingerprint contains tensors of the call."""
    if isinstance(like, dict):
        return "tensor" in like or any(map(has_tensors, like.values()))
    return isinstance(like, list) and any(map(has_tensors, like))


def match_leaves(row: Argument, passed_leaves: Sequence[tuple[Any, Any]], live: Sequence[Any]) -> dict[str, Tensor]:
    """Return the tensors in a parameter's argument by the names of their ports; raise GuardError unless all else in it
    is as at capture.

    `passed_leaves` has the argument with its place or keyword; for `*args` and `**kwargs`, several. `live` has the
    objects of the captured argument that are compared by identity.
    """
    # In the fingerprint of the argument (`now`), each tensor stands as its number among `state.tensors`. The captured
    # fingerprint has the name of its port at the same place.
    state = DescribeState(lambda index: index)
    # A default without tensors has no ports: a tensor in its place is described by its values.
    are_ports = not row.optional or has_tensors(row.like)
    likes = [(key, describe_value(value, state, argument=are_ports).like) for key, value in passed_leaves]
    if row.name.startswith("**"):
        now: Like = rest_by_name(likes)
    elif row.name.startswith("*"):
        now = rest_in_order(likes)
    else:
        ((_, now),) = likes
    parameter = row.name.lstrip("*")
    for path, what in fingerprint_differences(row.like, now, parameter):
        name = path.removeprefix(f"{parameter}.") if row.name.startswith("**") else path
        raise GuardError(f"argument {name!r} {what}: capture again with it")
    # Objects whose fingerprint does not determine them are compared by identity, while the captured ones live.
    # `identities` are those of `state.live`, and classes of the user's, which a fingerprint has by name alone.
    if live or holds_live_value(row.like):
        _check_live(row, state.identities if live else state.live, live)
    tensors_now = (state.tensors[number] for number in _tensor_names(now))
    return dict(zip(_tensor_names(row.like), tensors_now, strict=True))


def _tensor_names(like: Like) -> Iterator[Any]:
    """Yield what stands for each tensor in a fingerprint, in order: the name of a port at capture, a number now."""
    if isinstance(like, dict):
        if "tensor" in like:
            yield like["tensor"]
        else:
            for part in like.values():
                yield from _tensor_names(part)
    elif isinstance(like, list):
        for part in like:
            yield from _tensor_names(part)


BY_VALUE = "only plain values, enums, dataclasses and the containers that pytree knows are compared by value"


def _check_live(row: Argument, now: Sequence[Any], then: Sequence[Any]) -> None:
    """Raise unless an argument has the same objects (`now`) as in the captured call (`then`), of those that are
    compared by identity."""
    if now and not then:
        raise GuardError(
            f"argument {row.name!r} has {_identity_text(now[0])} in it, which can be compared only with the one that "
            f"the program was captured with, and that is gone: capture again with this one; {BY_VALUE}"
        )
    # The two may differ in length, because an object that is in an argument twice is listed once: then the argument has
    # other objects, and None stands for the one that is missing.
    for value, captured in zip_longest(now, then):
        if value is not captured:
            raise GuardError(
                f"argument {row.name!r} has {_identity_text(value, 'another')} in it than at capture: pass the same "
                f"one, or capture again with it; {BY_VALUE}"
            )


def _identity_text(value: Any, article: str = "a") -> str:
    """Return a text for a message: the kind of an object that is compared by identity, and its name if it has one."""
    if isinstance(value, (type, types.FunctionType)):
        kind = "class" if isinstance(value, type) else "function"
        return f"{article} {kind} {value.__qualname__}"
    return f"{article} {type(value).__name__}"


def arguments_by_path(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among these arguments by port name, where the Capture has no fingerprints of its call
    (`signature.call` is None): a port's name is the path of its tensor, and other leaves are compared by `repr`. Raise
    ReplayError for a tensor without a port, and GuardError for a leaf that is not as at capture."""
    signature = capture.signature
    names = positional(signature.arguments, len(args))
    if len(names) < len(args):
        raise ReplayError(
            f"{capture.name} takes {', '.join(signature.arguments) or 'no arguments'}; {len(args)} were given"
        )
    paths, _ = flatten_with_path((tuple(args), dict(kwargs)))
    constants = dict(signature.leaves)  # the `repr` of each leaf that is no tensor, by the leaf's name
    ports = {port.name for port in free_ports(capture)}
    values: dict[str, Tensor] = {}
    seen = set()
    for path, leaf in paths:
        name = leaf_name(path, names)
        seen.add(name)
        if isinstance(leaf, Tensor):
            if name not in ports:
                raise ReplayError(f"the capture has no input {name!r}; it takes {', '.join(input_names(capture))}")
            values[name] = leaf
        # The capture keeps the first 200 characters of each `repr`.
        elif name in constants and repr(leaf)[:200] != constants[name]:
            raise GuardError(
                f"argument {name!r} was {constants[name]} at capture and is {leaf!r:.80} now: capture again with it"
            )
        elif name not in constants and leaf is not None:
            raise GuardError(f"argument {name!r} = {leaf!r:.80} was not given at capture: capture again with it")
    # Leaves below other names are not of the call's arguments.
    own = {name.lstrip("*") for name in signature.arguments}
    for name, text in constants.items():
        if name not in seen and name.partition(".")[0] in own:
            raise GuardError(f"argument {name!r} was {text} at capture and is missing now: pass it too")
    return values


def _check_flags(capture: Capture, passed: Mapping[str, Tensor]) -> None:
    """Raise unless the flags that the program read of its arguments are as at capture."""
    # The text of a `flag` guard is `x: requires_grad == True`.
    for guard in capture.guards:
        name, _, rest = guard.text.partition(": ")
        key, _, wanted = rest.partition(" == ")
        if guard.kind != "flag" or name not in passed or key not in FLAGS:
            continue
        flag = repr(FLAGS[key](passed[name]))
        if flag != wanted:
            where = f" at {guard.source.at}: {guard.source.code!r}" if guard.source else ""
            raise GuardError(
                f"the program checks {key!r} of its argument {name!r}{where}: {wanted} at capture, {flag} here. "
                "Capture again on arguments like these"
            )


def name_tangents(capture: Capture, tangents: Any) -> dict[str, Tensor | None] | None:
    """Return the caller's tangents, one for each differentiable output in order, by the names of these outputs; None if
    the caller passes none."""
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
