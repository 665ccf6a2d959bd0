"""What a solution is for: what its inputs and parameters must be, so that it runs in the place of the original.

A guard is checked at every call, and Dynamo traces the check: it is loops over tuples, and text is made only where
something differs.

Words of this file: a place is a module whose forward a solution replaces. `present` are the names of the arguments of a
call, and its leaves are the tensors and constants in these, with lists and dictionaries taken apart (`flatten`). A need
says what one tensor or constant must be. A Mismatch says in words which guard does not hold, of what, what that is now,
and what it must be. The state of a module is its parameters and buffers. A port is an input or output of a captured
graph, and its spec (TensorSpec) has dtype, device, shape and strides as plain data.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backprint._torch.modules import own_buffers, own_modules, own_parameters
from backprint.errors import UsageError
from backprint.graph.nouns import Capture, Pair, Port, TensorSpec

PLAIN = (Tensor, nn.Parameter)
"""The types of tensors that a solution gets; another type may compute otherwise, or have no memory."""

OF_TORCH: tuple[type, ...] = (torch.dtype, torch.device, torch.layout, torch.memory_format)
CONSTANTS: tuple[type, ...] = (bool, int, float, complex, str, type(None), tuple, *OF_TORCH)
"""The types of arguments that are no tensors and are compared by value; a tuple has the keys of a dictionary."""


@dataclass(frozen=True)
class _TensorNeed:
    """What one tensor must be. `sizes` are the dimensions that are compared, each with its size. `requires_grad` is
    None where it may require grad or not."""

    name: str
    dtype: torch.dtype
    device: torch.device
    ndim: int
    layout: torch.layout
    contiguous: bool
    requires_grad: bool | None
    sizes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _ConstantNeed:
    """The value that an argument must have that is no tensor."""

    name: str
    value: Any


@dataclass(frozen=True)
class _StateNeed:
    """What a parameter or buffer must be, and its index among all parameters, or all buffers, of the module, with
    duplicates."""

    index: int
    need: _TensorNeed


@dataclass(frozen=True)
class Mismatch:
    """A guard that does not hold: which (`dtype`), of what (the name of a tensor), what is `now`, and what is meant."""

    guard: str
    name: str
    now: str
    meant: str


@dataclass(frozen=True)
class Forms:
    """The names of a forward's arguments in order, and those whose default is None."""

    names: tuple[str, ...]
    none: frozenset[str]


@dataclass(frozen=True)
class PartGuard:
    """What a solution is for at one place: it runs where a call has the same (`mismatch_of`), and else the original.

    `present` are the names of the arguments of the call, `leaves` has a need for each tensor and constant in them, in
    the order of `flatten`. Constants are not compared for a solution that gets the arguments themselves. `counts` are
    the numbers of all parameters, of all buffers and of all modules, duplicates included: a parametrization or an
    adapter that is added changes them. `autocast` is the dtype inside of autocast, None outside of it.

    Where gradients are recorded, which tensors require grad is compared in both directions: a solution may leave out
    what it takes for needless. `also` has for each tensor whether it requires grad in other calls that were seen or
    proven, and `any_grad` leaves that open.
    """

    present: tuple[str, ...]
    leaves: tuple[_TensorNeed | _ConstantNeed, ...]
    parameters: tuple[_StateNeed, ...]
    buffers: tuple[_StateNeed, ...]
    counts: tuple[int, int, int]
    training: bool
    device_type: str
    autocast: torch.dtype | None
    also: tuple[tuple[bool | None, ...], ...] = ()
    any_grad: bool = False

    def in_dtype(self, dtype: torch.dtype) -> PartGuard:
        """Return the guard for the same part with all its floating-point tensors in another dtype."""

        def in_dtype(need: Any) -> Any:
            if isinstance(need, _TensorNeed) and need.dtype.is_floating_point:
                return replace(need, dtype=dtype)
            return need

        return replace(
            self,
            leaves=tuple(map(in_dtype, self.leaves)),
            parameters=tuple(replace(state, need=in_dtype(state.need)) for state in self.parameters),
            buffers=tuple(replace(state, need=in_dtype(state.need)) for state in self.buffers),
        )

    def merged_with(self, other: PartGuard) -> PartGuard:
        """Return the guard for two calls that differ only in which tensors require grad: this one, which lets the flags
        of the other pass too (`also`). If the calls have other numbers of tensors, this guard is returned as it is."""
        if len(self.grads) != len(other.grads):
            return self
        return replace(self, also=(*self.also, other.grads, *other.also))

    @property
    def grads(self) -> tuple[bool | None, ...]:
        """Whether each tensor requires grad, or None where that is open: inputs, then parameters, then buffers."""
        needs = [*self.leaves, *(state.need for state in (*self.parameters, *self.buffers))]
        return tuple(need.requires_grad for need in needs if isinstance(need, _TensorNeed))

    def proven_for(self, inputs: bool, state: bool) -> PartGuard:
        """Return the guard that also lets calls pass in which fewer tensors require grad: of those that do in this
        guard, the inputs only with `inputs`, and the parameters and buffers only with `state`."""
        inputs_count = sum(isinstance(need, _TensorNeed) for need in self.leaves)  # inputs come first in `grads`
        flags = [(inputs if index < inputs_count else state) and grad for index, grad in enumerate(self.grads)]
        return replace(self, also=(*self.also, tuple(flags)))

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The floating-point dtypes that the part is for."""
        needs = [*self.leaves, *(state.need for state in (*self.parameters, *self.buffers))]
        dtypes = [need.dtype for need in needs if isinstance(need, _TensorNeed)]
        return tuple(dict.fromkeys(dtype for dtype in dtypes if dtype.is_floating_point))


# ---- The arguments of a call, and the state of a module, as lists


def arguments_of(forms: Forms, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """Return the names and values of a call's arguments in the order of the signature; positional ones that it has no
    name for are `args.2`, and keywords that it has not come last. An argument that is None by default is left out if it
    is None, so that it makes no difference whether a call passes it."""
    names: list[str] = []
    values: list[Any] = []
    for index, value in enumerate(args):
        name = forms.names[index] if index < len(forms.names) else f"args.{index}"
        if value is not None or name not in forms.none:
            names.append(name)
            values.append(value)
    if kwargs:
        for name in forms.names:
            if name in kwargs and (kwargs[name] is not None or name not in forms.none):
                names.append(name)
                values.append(kwargs[name])
        for name, value in kwargs.items():
            if name not in forms.names:
                names.append(name)
                values.append(value)
    return names, values


def flatten(values: Any, leaves: list[Any]) -> None:
    """Append the leaves of lists, tuples and dictionaries to `leaves`, and before those of each its length or its keys,
    so that other containers are never taken for the same: `(x, [y, z])` -> `x, 2, y, z`. `leaf_names` is its twin."""
    for value in values:
        if isinstance(value, (list, tuple)):
            leaves.append(len(value))
            flatten(value, leaves)
        elif isinstance(value, dict):
            leaves.append(tuple(value))
            flatten(value.values(), leaves)
        else:
            leaves.append(value)


def leaf_names(names: Sequence[str], values: Sequence[Any]) -> Iterator[str]:
    """Yield a name for each value that `flatten` appends, in its order: `x`, `len(pair)`, `pair.0`, `pair.1`."""
    for name, value in zip(names, values, strict=True):
        if isinstance(value, (list, tuple)):
            yield f"len({name})"
            yield from leaf_names([f"{name}.{index}" for index in range(len(value))], value)
        elif isinstance(value, dict):
            yield f"{name}.keys()"
            yield from leaf_names([f"{name}.{key}" for key in value], list(value.values()))
        else:
            yield name


def state_of(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Return the parameters and the buffers of a module and of all inside it, in the order of `named_parameters` and
    `named_buffers`, with duplicates. These two are called only where Dynamo traces, because at each eager call they
    would take three times as long."""
    if torch.compiler.is_compiling():
        named_parameters = module.named_parameters(remove_duplicate=False)
        named_buffers = module.named_buffers(remove_duplicate=False)
        return [tensor for _, tensor in named_parameters], [tensor for _, tensor in named_buffers]
    parameters: list[Tensor] = []
    buffers: list[Tensor] = []
    gather(module, parameters, buffers)
    return parameters, buffers


def gather(module: nn.Module, parameters: list[Tensor], buffers: list[Tensor]) -> None:
    """Append the parameters and buffers of a module, and then of those inside it, to the two lists."""
    for tensor in own_parameters(module).values():
        if tensor is not None:
            parameters.append(tensor)
    for tensor in own_buffers(module).values():
        if tensor is not None:
            buffers.append(tensor)
    for child in own_modules(module).values():
        if child is not None:
            gather(child, parameters, buffers)


def _number_of_modules(module: nn.Module) -> int:
    """Return the number of modules inside a module and itself, duplicates included."""
    if torch.compiler.is_compiling():
        return len(list(module.named_modules(remove_duplicate=False)))
    return 1 + sum(_number_of_modules(child) for child in own_modules(module).values() if child is not None)


# ---- Checking


def mismatch_of(
    guard: PartGuard,
    module: nn.Module,
    present: list[str],
    leaves: list[Any],
    parameters: list[Tensor],
    buffers: list[Tensor],
    constants: bool,
) -> Mismatch | None:
    """Return the first guard that a call breaks, with both sides in words; None if it breaks none.

    The call is given by its `module`, the names of its arguments (`present`), their `leaves` as `flatten` makes them,
    and the module's parameters and buffers as `state_of` returns them. `constants` says that values that are no tensors
    are compared too. The numbers of leaves, parameters and buffers are compared before they are indexed.
    """
    if module.training != guard.training:
        return Mismatch("training", "the module", mode(module.training), mode(guard.training))
    autocast = torch.get_autocast_dtype(guard.device_type) if torch.is_autocast_enabled(guard.device_type) else None
    if autocast is not guard.autocast:
        return Mismatch("autocast", "the call", _in_autocast(autocast), _in_autocast(guard.autocast))
    if tuple(present) != guard.present or len(leaves) != len(guard.leaves):
        return Mismatch("arguments", "the call", listed(present, leaves), listed(guard.present, guard.leaves))
    counts = (len(parameters), len(buffers), _number_of_modules(module))
    if counts != guard.counts:
        return Mismatch("parameters", "the module", counts_text(counts), counts_text(guard.counts))
    tensors: list[Tensor] = []
    for index, need in enumerate(guard.leaves):
        leaf = leaves[index]
        if isinstance(need, _TensorNeed):
            if (broken := _broken_by(leaf, need)) is not None:
                return broken
            tensors.append(leaf)
        elif constants and type(leaf) not in CONSTANTS:
            return Mismatch("value", need.name, shown(leaf), "tensors, numbers, texts and containers of these")
        elif constants and (type(leaf) is not type(need.value) or leaf != need.value):
            return Mismatch("value", need.name, shown(leaf), shown(need.value))
        elif isinstance(leaf, Tensor):  # any constant is allowed here, but a tensor is none
            return Mismatch("arguments", need.name, "a tensor", shown(need.value))
    for state in guard.parameters:
        if (broken := _broken_by(parameters[state.index], state.need)) is not None:
            return broken
        tensors.append(parameters[state.index])
    for state in guard.buffers:
        if (broken := _broken_by(buffers[state.index], state.need)) is not None:
            return broken
        tensors.append(buffers[state.index])
    return None if guard.any_grad else _broken_by_grads(guard, tensors)


def _broken_by(tensor: Any, need: _TensorNeed) -> Mismatch | None:
    """Return the guard that one tensor breaks, but for that of `requires_grad`; None if it breaks none."""
    if type(tensor) not in PLAIN:
        return Mismatch("type", need.name, type(tensor).__name__, "Tensor")
    if tensor.dtype is not need.dtype:
        return Mismatch("dtype", need.name, str(tensor.dtype), str(need.dtype))
    if tensor.device != need.device:
        return Mismatch("device", need.name, str(tensor.device), str(need.device))
    if tensor.layout is not need.layout:
        return Mismatch("layout", need.name, str(tensor.layout), str(need.layout))
    if tensor.ndim != need.ndim:
        return Mismatch("number of dimensions", need.name, str(tensor.ndim), str(need.ndim))
    for dim, size in need.sizes:
        if tensor.shape[dim] != size:
            return Mismatch(f"size of dimension {dim}", need.name, str(tensor.shape[dim]), str(size))
    if need.contiguous and not tensor.is_contiguous():
        return Mismatch("memory", need.name, "not contiguous", "contiguous")
    return None


def _broken_by_grads(guard: PartGuard, tensors: Sequence[Tensor]) -> Mismatch | None:
    """Return the Mismatch of the first tensor that requires grad and must not, or the reverse; None if the flags are
    those of the guard or of one of its other calls, and where no gradients are recorded."""
    if not torch.is_grad_enabled():
        return None
    flags = [tensor.requires_grad for tensor in tensors]
    for grads in (guard.grads, *guard.also):
        if flags_match(flags, grads):
            return None
    needs = [*guard.leaves, *(state.need for state in (*guard.parameters, *guard.buffers))]
    tensor_needs = [need for need in needs if isinstance(need, _TensorNeed)]
    for index, need in enumerate(tensor_needs):
        if need.requires_grad is not None and flags[index] != need.requires_grad:
            return Mismatch("requires_grad", need.name, str(flags[index]), str(need.requires_grad))
    return None


def flags_match(now: Sequence[bool], grads: Sequence[bool | None]) -> bool:
    """Whether tensors require grad (`now`) as `grads` says, where None leaves it open."""
    return all(wanted is None or now[index] == wanted for index, wanted in enumerate(grads))


def mode(training: bool) -> str:
    """Return the mode of a module in words. This function and the four below make the text of a Mismatch."""
    return "in training mode" if training else "in eval mode"


def _in_autocast(dtype: torch.dtype | None) -> str:
    return "outside of autocast" if dtype is None else f"inside autocast to {dtype}"


def counts_text(counts: tuple[int, int, int]) -> str:
    parameters, buffers, modules = counts
    return f"{parameters} parameters and {buffers} buffers in {modules} modules"


def listed(names: Sequence[str], leaves: Sequence[Any]) -> str:
    return f"({', '.join(names)}) with {len(leaves)} values"


def shown(value: Any) -> str:
    return repr(value) if type(value) in CONSTANTS else f"a {type(value).__name__}"


# ---- Learning


def _fixed_dims(fixed: Any, name: str, ndim: int) -> tuple[int, ...]:
    """Return which dimensions of an input are compared, as the argument `fixed` of `bp.swap` says: True, dimensions for
    all inputs, or a mapping by name. UsageError names a dimension that the input does not have."""
    if fixed is True:
        return tuple(range(ndim))
    dims = fixed.get(name, ()) if isinstance(fixed, Mapping) else fixed or ()
    for dim in dims:
        if not -ndim <= dim < ndim:
            raise UsageError(f"bp.swap: fixed has dimension {dim}, and {name} has {ndim} dimensions")
    return tuple(dims)


def need_of(name: str, tensor: Tensor, requires_grad: bool | None, dims: Sequence[int]) -> _TensorNeed:
    """Return what a tensor of a call must be, from one that is an example: as it is, but of its sizes only those of the
    dimensions `dims`, and `requires_grad` as it is passed: None where the tensor may require grad or not. A tensor that
    is not contiguous leaves open whether another is."""
    return _TensorNeed(
        name,
        tensor.dtype,
        tensor.device,
        tensor.ndim,
        tensor.layout,
        contiguous=tensor.layout is torch.strided and tensor.is_contiguous(),
        requires_grad=requires_grad,
        sizes=tuple((dim, int(tensor.shape[dim])) for dim in dims),
    )


def _state_needs(named: Sequence[tuple[str, Tensor]], only: Mapping[str, _TensorNeed] | None) -> tuple[_StateNeed, ...]:
    """Return a need for each parameter, or buffer, of `named`, once where it has several names: for all of them as they
    are, without their sizes, or, with `only`, for those that it names, with the needs that it has."""
    seen: set[int] = set()
    needs: list[_StateNeed] = []
    for index, (name, tensor) in enumerate(named):
        if id(tensor) in seen or (only is not None and name not in only):
            continue
        seen.add(id(tensor))
        need = need_of(name, tensor, tensor.requires_grad, dims=()) if only is None else only[name]
        needs.append(_StateNeed(index, need))
    return tuple(needs)


def _autocast_of(device_type: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None


def learn(
    module: nn.Module,
    present: Sequence[str],
    values: Sequence[Any],
    fixed: Any,
    example: bool = False,
) -> PartGuard:
    """Return the guard of a call: of a module, and of arguments by the names `present` and their `values`. `fixed` says
    which sizes of inputs are compared too.

    An `example` (the argument `like` of `bp.swap`) whose tensors do not require grad says nothing about what will, and
    neither does a call without grad mode: each floating-point input may then require grad or not.
    """
    leaves: list[Any] = []
    flatten(values, leaves)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    grad_is_unknown = (example and not any(tensor.requires_grad for tensor in tensors)) or not torch.is_grad_enabled()
    needs: list[_TensorNeed | _ConstantNeed] = []
    for name, leaf in zip(leaf_names(present, values), leaves, strict=True):
        if isinstance(leaf, Tensor):
            may_require_grad = grad_is_unknown and (leaf.is_floating_point() or leaf.is_complex())
            requires_grad = None if may_require_grad else leaf.requires_grad
            needs.append(need_of(name, leaf, requires_grad, _fixed_dims(fixed, name, leaf.ndim)))
        else:
            needs.append(_ConstantNeed(name, leaf))
    _check_fixed(fixed, [need.name for need in needs])
    module_facts = _facts_of_module(module, tensors, only=None)
    return PartGuard(tuple(present), tuple(needs), **module_facts._asdict())


def _check_fixed(fixed: Any, names: Sequence[str]) -> None:
    """Raise UsageError if `fixed` has a name that no input has."""
    if isinstance(fixed, Mapping) and (unknown := [name for name in fixed if name not in names]):
        raise UsageError(f"bp.swap: fixed has {unknown[0]}, and the inputs are {', '.join(names) or 'none'}")


class _ModuleFacts(NamedTuple):
    """What the PartGuard of a call has of the module and of the modes, under the names of its fields."""

    parameters: tuple[_StateNeed, ...]
    buffers: tuple[_StateNeed, ...]
    counts: tuple[int, int, int]
    training: bool
    device_type: str
    autocast: torch.dtype | None


def _facts_of_module(
    module: nn.Module, tensors: Sequence[Tensor], only: Mapping[str, _TensorNeed] | None
) -> _ModuleFacts:
    """Return what a PartGuard has of a module as it is now, and whether autocast is on. The first of `tensors`, those
    among the arguments, says the device, or else the first of the module's. With `only`, the parameters and buffers
    that it names are compared, with these needs; with None all of them."""
    parameters = list(module.named_parameters(remove_duplicate=False))
    buffers = list(module.named_buffers(remove_duplicate=False))
    all_tensors = [*tensors, *(tensor for _, tensor in (*parameters, *buffers))]
    device_type = all_tensors[0].device.type if all_tensors else "cpu"
    return _ModuleFacts(
        _state_needs(parameters, only),
        _state_needs(buffers, only),
        counts=(len(parameters), len(buffers), _number_of_modules(module)),
        training=module.training,
        device_type=device_type,
        autocast=_autocast_of(device_type),
    )


# ---- Learning from a Capture


def learn_from_capture(capture: Capture, module: nn.Module, path: str, forms: Forms, fixed: Any) -> PartGuard:
    """Return the guard of a captured part: a module that was captured alone, or a part of `bp.split`. `path` is that of
    the module in the model. UsageError says that the part is not one module, or takes more than a solution gets.

    An input with a gradient may require grad or not: of a module that is captured alone, each input has a gradient,
    whether or not it gets one in the model.
    """
    if len(capture.pairs) != 1:
        raise UsageError(f"bp.swap: for_ has {len(capture.pairs)} Pairs, and a part is one: capture the module alone")
    pair = capture.pairs[0]
    with_gradient = {port.name for port in pair.backward.outputs} if pair.backward is not None else set()
    inputs, state = _inputs_and_state(pair)
    names_in_module = own_names([port.name for port, _ in state], module, path)
    # The module was captured alone if parameters and buffers have its own names for them, and not those of a model.
    is_captured_alone = all(port.name == name for (port, _), name in zip(state, names_in_module, strict=True))
    names = argument_names([port.name for port, _ in inputs], forms, path, is_captured_alone)
    leaves = _needs_of_inputs(names, inputs, with_gradient, fixed)
    _check_fixed(fixed, names)
    leaves += [_ConstantNeed(name, _constant_of(name, text)) for name, text in capture.signature.leaves]
    # In the order of the forward's signature, as `arguments_of` has them; a name that is not in it comes last.
    place_of_argument = {name: place for place, name in enumerate(forms.names)}
    leaves.sort(key=lambda need: place_of_argument.get(need.name.partition(".")[0], len(place_of_argument)))
    needs_of_state = {
        name: _need_of_port(name, spec, port.name in with_gradient, dims=range(len(spec.shape)))
        for name, (port, spec) in zip(names_in_module, state, strict=True)
    }
    module_facts = _facts_of_module(module, (), only=needs_of_state)
    captured_mode = capture.origin.options.mode  # `train` or `eval`, or None for the mode that the module had
    tensor_needs = [need for need in (*leaves, *needs_of_state.values()) if isinstance(need, _TensorNeed)]
    device_type = tensor_needs[0].device.type if tensor_needs else "cpu"
    return PartGuard(
        present=tuple(dict.fromkeys(need.name.partition(".")[0] for need in leaves)),
        leaves=tuple(leaves),
        parameters=module_facts.parameters,
        buffers=module_facts.buffers,
        counts=module_facts.counts,
        training=module_facts.training if captured_mode is None else captured_mode == "train",
        device_type=device_type,
        autocast=_autocast_at_capture(capture, device_type),
    )


def _needs_of_inputs(
    names: Sequence[str], inputs: Sequence[tuple[Port, TensorSpec]], with_gradient: Collection[str], fixed: Any
) -> list[_TensorNeed | _ConstantNeed]:
    """Return the need of each input, a port with its spec, under its name among the module's arguments. An input that
    is not in `with_gradient` must not require grad. `fixed` says which sizes are compared."""
    dynamic = any(not isinstance(size, int) for _, spec in inputs for size in spec.shape)
    needs: list[_TensorNeed | _ConstantNeed] = []
    for name, (port, spec) in zip(names, inputs, strict=True):
        dims = set(_fixed_dims(fixed, name, len(spec.shape)))
        # In a capture with sizes that may vary, the others were specialized: the solution is for these alone.
        dims |= {dim for dim, size in enumerate(spec.shape) if dynamic and isinstance(size, int)}
        requires_grad = None if port.name in with_gradient else False
        needs.append(_need_of_port(name, spec, requires_grad, sorted(dims)))
    return needs


def _inputs_and_state(pair: Pair) -> tuple[list[tuple[Port, TensorSpec]], list[tuple[Port, TensorSpec]]]:
    """Return the ports of a part's arguments, and those of its parameters and buffers, with their specs. UsageError if
    the part takes anything else, such as a random number or a size."""
    inputs: list[tuple[Port, TensorSpec]] = []
    state: list[tuple[Port, TensorSpec]] = []
    for port in pair.forward.inputs:
        if port.role not in ("parameter", "buffer", "input") or not isinstance(port.spec, TensorSpec):
            raise UsageError(
                f"bp.swap: the part takes {port.name}, a {port.role}, and a solution gets only tensors among the "
                "arguments, parameters and buffers: pass like= instead of for_"
            )
        ports_of_role = inputs if port.role == "input" else state
        ports_of_role.append((port, port.spec))
    return inputs, state


def _autocast_at_capture(capture: Capture, device_type: str) -> torch.dtype | None:
    """Return the dtype of autocast on a kind of device when a Capture was made; None outside of autocast."""
    recorded = dict(capture.environment).get("autocast_dtypes", "")
    dtypes = dict(entry.split(":") for entry in recorded.split())  # `cpu:bfloat16 cuda:float16`
    return getattr(torch, dtypes[device_type]) if device_type in dtypes else None


def own_names(names: Sequence[str], module: nn.Module, path: str) -> list[str]:
    """Return a module's own names of the parameters and buffers of a part, which may have those of the whole model:
    `blocks.0.mlp.fc.weight` -> `fc.weight`. `path` is that of the module, for messages. UsageError says that the module
    has no such name, or that the names are not those of one module."""
    module_names = [name for name, _ in (*module.named_parameters(remove_duplicate=False), *module.named_buffers())]
    if all(name in module_names for name in names):
        return list(names)
    module_names.sort(key=len)  # and reversed below: the longest name that fits, as `fc.weight` before `weight`
    own = []
    prefixes = set()
    for name in names:
        own_name = next((other for other in reversed(module_names) if name.endswith(f".{other}")), None)
        if own_name is None:
            raise UsageError(f"bp.swap: the part takes {name}, and {path or 'the model'} has {', '.join(module_names)}")
        own.append(own_name)
        prefixes.add(name.removesuffix(own_name))
    if len(prefixes) > 1:
        raise UsageError(
            f"bp.swap: the part takes parameters of {' and '.join(sorted(prefixes))}, which are not one module"
        )
    return own


def argument_names(names: Sequence[str], forms: Forms, path: str, alone: bool) -> list[str]:
    """Return the names of a part's inputs among the arguments of the module (`forms`). `alone` says that the module was
    captured alone: its inputs have these names already. Those of a part that `bp.split` has cut have names of values in
    the model: a single input is the first argument, and the order of several is not known, which raises UsageError."""
    if alone and all(name in forms.names for name in names):
        return list(names)
    if inside := [name for name in names if name.partition(".")[0] in forms.names and "." in name]:
        raise UsageError(f"bp.swap: the part takes {inside[0]}, a tensor in a container: pass like= instead of for_")
    if len(names) == 1 and forms.names:
        return [forms.names[0]]
    raise UsageError(
        f"bp.swap: the part takes {', '.join(names)}, and which of these is which argument of {path or 'the model'} is "
        f"not known: capture the module alone, bp.capture(model.get_submodule({path!r}), ...)"
    )


def _constant_of(name: str, text: str) -> Any:
    """Return the value of a constant of a Capture, which has it as the text of a Python literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(f"bp.swap: the part was captured with {name}={text:.40}: pass like= instead of for_") from None


def _need_of_port(name: str, spec: TensorSpec, requires_grad: bool | None, dims: Sequence[int]) -> _TensorNeed:
    """Return the need of an input of a captured part, under a name, from its spec. A spec without strides is that of a
    contiguous tensor. Of the dimensions `dims`, those are compared whose size is a number: a size may be a symbol."""
    return _TensorNeed(
        name,
        getattr(torch, spec.dtype),
        torch.device(spec.device),
        len(spec.shape),
        getattr(torch, spec.layout),
        contiguous=spec.stride is None and spec.layout == "strided",
        requires_grad=requires_grad,
        sizes=tuple((dim, size) for dim in dims if isinstance(size := spec.shape[dim], int)),
    )
