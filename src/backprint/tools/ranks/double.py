"""What the ranks of a step, and the whole model, compute in float64: the gradients that the step leaves, and where each
element of a shard lies in the whole.

Where an element lies is not read from what a shard says of itself, but found: the same `shard` shards a model whose
parameters are numbered, element by element.

Words of this file:

- The *whole* is the model that is not sharded, on all the data; `shard` is the user's function that makes the model and
  the arguments of a rank of a copy of them.
- `Call`: a model, its arguments and its keyword arguments.
- `RankPlace`: a rank in its thread: its number, its Call, and `among`, which answers its collectives by those of the
  other ranks (`among.label` returns the label of a process group).
- `unwrap` returns the plain tensor inside of a DTensor: this rank's shard.
- `Answered`: a dispatch mode in which the collectives of a program are answered by a function.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.distributed import members_by_label, sharded_like, whole_tensor
from backprint._torch.operators import schema_of
from backprint._torch.pytree import tree_map
from backprint.graph.capture_options import CaptureOptions
from backprint.run_sample import digest
from backprint.tools.ranks.sharded import Call, RankPlace
from backprint.trace.collectives import Answered
from backprint.trace.running import tangent_for_output
from backprint.trace.watch import SEED
from backprint.values.results import outputs_of
from backprint.values.settings import random_states, state_bytes
from backprint.values.tree import flatten_with_path, leaf_name, number_duplicates, positional
from backprint.values.wrappers import unwrap, wrapping_of

# ---- Where each element of a shard lies in the whole


def number_elements(call: Call) -> Call:
    """Return a call whose parameters, and inputs that require grad, are numbered from 1 on, element by element: the
    parameters of a copy of the model first, then the inputs. 0 is left for what `shard` may add."""
    model, args, kwargs = call
    model_copy, start = copy.deepcopy(model).double(), 1  # float64 holds whole numbers up to 2**53

    def next_numbers(tensor: Tensor) -> Tensor:
        """Return the next numbers, one for each element of a tensor, in its shape."""
        nonlocal start
        numbers = torch.arange(start, start + tensor.numel(), dtype=torch.float64, device=tensor.device)
        start += tensor.numel()
        return numbers.view(tensor.shape)

    with torch.no_grad():
        for parameter in model_copy.parameters():
            parameter.copy_(next_numbers(parameter))

    def number_if_differentiable(leaf: Any) -> Any:
        return next_numbers(leaf).requires_grad_() if _takes_gradient(leaf) else leaf

    return model_copy, *tree_map(number_if_differentiable, (args, kwargs))


def _takes_gradient(leaf: Any) -> bool:
    """Whether an argument is a tensor whose gradient is compared: real arguments are in float64 here (`in_double`), and
    complex ones are left out."""
    return isinstance(leaf, Tensor) and leaf.requires_grad and leaf.dtype == torch.float64


def inputs_of(call: Call, arguments: Sequence[str]) -> dict[str, Tensor]:
    """Return the inputs of a rank's call that require grad, by their names in the whole model's forward, whose
    parameters are `arguments`."""
    _, args, kwargs = call
    named = positional(arguments, len(args))
    names_by_place = [*named, *map(str, range(len(named), len(args)))]  # `shard` may pass more than the whole takes
    leaves, _ = flatten_with_path((args, kwargs))
    names = number_duplicates([leaf_name(path, names_by_place) for path, _ in leaves])
    return {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True) if _takes_gradient(unwrap(leaf))}


def in_double(value: Any) -> Any:
    """Return nested arguments with floating-point tensors in float64, which require grad where they did."""

    def wider(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.detach().double().requires_grad_(leaf.requires_grad)

    return tree_map(wider, value)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The parameters and inputs of a rank, by name, made by `shard` of what `number_elements` returned: each element is
    its number in the whole."""

    parameters: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]


def numbers_of_rank(place: RankPlace, arguments: Sequence[str]) -> Numbers:
    """Return the Numbers of a rank: what `shard` has left in it of a numbered model and its arguments. `arguments` are
    the names of the parameters of the whole's forward."""
    model = place.call[0]
    parameters = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    inputs = {name: on_cpu(unwrap(tensor)) for name, tensor in inputs_of(place.call, arguments).items()}
    trained = {name: on_cpu(unwrap(tensor)) for name, tensor in parameters.items() if tensor.requires_grad}
    return Numbers(trained, inputs)


# ---- Data that hide faults: two ranks with different parts of the whole, which are equal


Digests = tuple[str, ...]
"""A digest of the elements of each tensor among a rank's arguments."""


def digests_of(call: Call) -> Digests:
    """Return a digest of the elements of each tensor among the arguments of a call, to compare with those of another
    rank. The order of the elements does not count: a sum over the same rows in another order hides as much."""
    _, args, kwargs = call
    tensors = [on_cpu(unwrap(leaf)) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    real = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors]
    return tuple(digest(tensor.reshape(-1).sort().values) for tensor in real)


def has_equal_parts(call: Call, count: int) -> bool:
    """Whether each tensor among the arguments of a call has a dimension along which `count` parts of it, or all its
    slices, are equal: a rank may have a wrong part, and nothing shows. False without tensors."""
    _, args, kwargs = call
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]

    def is_alike(parts: Sequence[Tensor]) -> bool:
        return len(parts) > 1 and all(torch.equal(parts[0], part) for part in parts[1:])

    return bool(tensors) and all(
        any(is_alike(tensor.chunk(count, dim)) or is_alike(tensor.split(1, dim)) for dim in range(tensor.dim()))
        for tensor in tensors
    )


def with_unlike_elements(call: Call) -> Call:
    """Return a call in which no two elements of a tensor among the arguments are equal, as far as the dtype has so many
    values: what a rank gets of it shows which part it has. A tensor of bools, of which there are two, stays as it is.
    Such a call is sharded, and not run."""

    def numbers(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.dtype == torch.bool:
            return leaf
        return torch.arange(leaf.numel(), device=leaf.device).to(leaf.dtype).view(leaf.shape)

    model, args, kwargs = call
    return model, *tree_map(numbers, (args, kwargs))


def with_unlike_parameters(model: nn.Module) -> nn.Module:
    """Add small numbers to each parameter of a model whose elements are all equal, and return the model: a bias of
    zeros hides that every rank adds it."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            flat = parameter.reshape(-1)
            if parameter.is_floating_point() and len(flat) > 1 and bool((flat == flat[0]).all()):
                parameter.add_(torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype).to(flat) / 8)
    return model


def redrawn(call: Call, integers: bool) -> Call:
    """Return a call whose floating-point arguments have other values: nearer to zero by up to a quarter, so that they
    keep their sign and their bounds, and values below a quarter in place of zeros. With `integers`, integers and bools
    are drawn anew from the values that their tensor has, the least the most often. Other arguments stay as they are."""
    generator = torch.Generator().manual_seed(SEED)

    def redraw_leaf(leaf: Any) -> Any:
        """Return one argument with other values, of the same shape, dtype and device."""
        if not isinstance(leaf, Tensor) or not leaf.numel():
            return leaf
        if leaf.is_floating_point():
            fraction = torch.rand(leaf.shape, generator=generator, dtype=leaf.dtype).to(leaf.device) / 4
            value = leaf.detach()
            return torch.where(value == 0, fraction, value * (1 - fraction)).requires_grad_(leaf.requires_grad)
        if not integers or leaf.is_complex():
            return leaf
        values = leaf.unique()  # sorted: the least first
        # Of one value alone, such as lengths that are all 7, the smaller ones are drawn too.
        if len(values) == 1 and int(values) > 0:
            values = torch.arange(int(values) + 1).to(leaf)
        # Squared, so that most are near 0, which is the index of the least value: ranks then have unlike sums.
        indices = torch.rand(leaf.shape, generator=generator).square() * len(values)
        return values[indices.long().to(leaf.device)]

    model, args, kwargs = call
    return model, *tree_map(redraw_leaf, (args, kwargs))


# ---- What a step leaves


@dataclass(frozen=True, slots=True)
class Left:
    """What a step leaves, by name: the gradients of parameters and of inputs, and the outputs that are one number.

    `roots` are the outputs at which the backward began, and `others` those at which it could have begun. A step that
    runs its backward itself returns nothing that requires grad: it has neither.
    """

    gradients: Mapping[str, Tensor | None]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, float]
    roots: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankGradients:
    """What the step of one rank leaves, the members of each of its groups by label, whether it draws random numbers,
    and digests of the data among its arguments."""

    rank: int
    left: Left
    groups: Mapping[str, tuple[int, ...]]
    draws: bool
    data: Digests

    @property
    def gradients(self) -> Mapping[str, Tensor | None]:
        """The gradients of the parameters by name."""
        return self.left.gradients


def gradients_of_rank(place: RankPlace, options: CaptureOptions, arguments: Sequence[str]) -> RankGradients:
    """Run a rank's step among the other ranks, as a training script does; return what it leaves. `arguments` are the
    names of the parameters of the whole's forward."""
    for parameter in place.call[0].parameters():
        wrapping_of(parameter)  # for its effect: the groups of the parameter's mesh get labels (`members_by_label`)
    data = digests_of(place.call)
    with _InDouble(place.among, place.among.label) as mode:
        left = _what_is_left(place.call, options, arguments)
    return RankGradients(place.rank, left, members_by_label(), mode.draws, data)


class _NoHandle:
    """What `unshard(async_op=True)` returns for a module that is whole: it waits for nothing."""

    def wait(self) -> None:
        return None


@contextlib.contextmanager
def with_methods_of_sharded() -> Iterator[None]:
    """Give all modules, in a block, the methods by which a step tells FSDP2 and DDP when to gather and to reduce, as a
    step that accumulates gradients does: the whole has nothing to gather or to reduce, so they do nothing."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    names = [name for name in vars(fsdp.FSDPModule) if name.startswith("set_")] if fsdp is not None else []
    methods: dict[str, Any] = {name: lambda self, *args, **kwargs: None for name in (*names, "reshard")}
    methods |= {"unshard": lambda self, *args, **kwargs: _NoHandle(), "no_sync": lambda self: contextlib.nullcontext()}
    with mock.patch.multiple(nn.Module, create=True, **methods):
        yield


def _what_is_left(call: Call, options: CaptureOptions, arguments: Sequence[str]) -> Left:
    """Run a step, forward and backward, and return what it leaves; each gradient is sharded as its parameter is.

    The backward begins at a loss: the first output that is one number and requires grad, if there is one; else with
    ones at every output that requires grad; if there is none, the step has run its backward itself. `arguments` are the
    names of the parameters of the whole's forward.
    """
    model, args, kwargs = call
    if options.mode is not None:
        model.train(options.mode == "train")
    inputs = inputs_of(call, arguments)
    for tensor in inputs.values():
        tensor.retain_grad()  # what `shard` returns may be no leaf
    before = dict(model.named_parameters())
    torch.manual_seed(SEED)
    result = model(*args, **kwargs)
    result = result if options.loss is None else options.loss(result)
    named_leaves, _ = outputs_of(result)
    tensors = {name: leaf for name, leaf in named_leaves if isinstance(leaf, Tensor)}
    numbers = {name: leaf for name, leaf in tensors.items() if leaf.is_floating_point() and not leaf.dim()}
    outputs = {name: float(whole_tensor(leaf.detach())) for name, leaf in numbers.items()}
    requiring_grad = [name for name, leaf in tensors.items() if leaf.requires_grad]
    losses = [name for name in requiring_grad if name in numbers]
    roots = losses[:1] or requiring_grad
    if roots:
        root_tensors = [tensors[name] for name in roots]
        ones = [tangent_for_output(root, tangent=None) for root in root_tensors]
        torch.autograd.backward(root_tensors, ones)
    # DDP of DTensors puts other parameters in their place in its forward: the gradient is at one or the other.
    after = dict(model.named_parameters())
    return Left(
        gradients={
            name: _first_gradient(named[name] for named in (after, before) if name in named) for name in before | after
        },
        inputs={
            name: on_cpu(unwrap(torch.zeros_like(tensor) if tensor.grad is None else sharded_like(tensor.grad, tensor)))
            for name, tensor in inputs.items()
        },
        outputs=outputs,
        roots=tuple(roots),
        others=tuple(name for name in requiring_grad if name not in roots),
    )


def _first_gradient(parameters: Iterable[Tensor]) -> Tensor | None:
    """Return the gradient of the first parameter that has one; None if none has."""
    gradients = map(gradient_of, parameters)
    return next((gradient for gradient in gradients if gradient is not None), None)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Return this rank's shard of the gradient of a parameter, sharded as the parameter is; None if it has none."""
    return None if parameter.grad is None else on_cpu(unwrap(sharded_like(parameter.grad, parameter)))


def on_cpu(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor on the CPU, which is where gradients are compared."""
    return tensor.detach().to("cpu", copy=True)


class _InDouble(Answered):
    """Answers the collectives of a program, and keeps float64 where the program casts to less: mixed precision rounds,
    and what is compared here is not rounding."""

    draws = False
    """Whether the program has drawn random numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of the program in float64, or answer it if it is a collective (`Answered`), and note whether
        it draws random numbers."""
        kwargs = kwargs or {}
        if kwargs.get("dtype") in LESS:
            kwargs = {**kwargs, "dtype": torch.float64}
        # Not of an operator that writes to an argument: it would write to the copy in float64.
        if func.namespace == "aten" and not schema_of(func).is_mutable:
            args, kwargs = widen_to_float64(args, kwargs)
        if self.draws or torch.Tag.nondeterministic_seeded not in func.tags:
            return super().__torch_dispatch__(func, types, args, kwargs)
        # The tag alone does not tell: attention without dropout has it, and draws nothing. So the states of torch's
        # generators are compared; a generator of the program's own is not among them.
        before = _bytes_of_states()
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.draws = kwargs.get("generator") is not None or _bytes_of_states() != before
        return result


def widen_to_float64(args: Any, kwargs: Any) -> Any:
    """Return the arguments of an operator with all floating-point tensors in float64, if one is in float64: a tensor
    that is a plain attribute of a module is still in float32, as `Module.double` does not reach it, and some operators,
    such as a matrix product, take one dtype."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    dtypes = {tensor.dtype for tensor in tensors}
    if torch.float64 not in dtypes or dtypes.isdisjoint(LESS):
        return args, kwargs
    return tree_map(
        lambda leaf: leaf.double() if isinstance(leaf, Tensor) and leaf.dtype in LESS else leaf, (args, kwargs)
    )


def _bytes_of_states() -> list[bytes]:
    """Return the states of torch's generators, on the CPU and on each GPU, as bytes that can be compared."""
    states = random_states()
    return [state_bytes(state) for state in (states.cpu, *states.cuda)]


LESS = frozenset({torch.float16, torch.bfloat16, torch.float32})
"""Dtypes with less precision than float64."""


class MadeInDouble(_InDouble):
    """Answers the collectives of `shard`, which makes a rank's model, and keeps float64 there, as in a step. What
    `shard` computes anew, such as a table of positions, has the precision that it has in the whole model, which was
    made before `.double()`, and is not rounded to less either."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator of `shard`: in float64 if it makes a parameter or a buffer, or takes a tensor in float64;
        else in the dtypes that it has, but not in less than float32."""
        kwargs = kwargs or {}
        name = func.name().partition("::")[2].partition(".")[0]  # `empty` of `aten::empty.memory_format`
        # Parameters and buffers that are made now are in float64, as those of the whole are.
        if name in EMPTY and kwargs.get("dtype") is None and torch.get_default_dtype() in LESS:
            kwargs = {**kwargs, "dtype": torch.float64}
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        kinds = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        if name in EMPTY or torch.float64 in kinds:  # what is in float64 stays so, as in a step
            return super().__torch_dispatch__(func, types, args, kwargs)
        # A table that is computed in float32 stays in float32, and is not cast to less.
        if kwargs.get("dtype") in LESS and torch.float32 in kinds:
            kwargs = {**kwargs, "dtype": torch.float32}
        return Answered.__torch_dispatch__(self, func, types, args, kwargs)  # not `super()`, which widens to float64


EMPTY = frozenset({"empty", "empty_strided", "zeros", "ones"})
"""Operators whose results have the same values in each dtype: parameters before they are set, and buffers."""
