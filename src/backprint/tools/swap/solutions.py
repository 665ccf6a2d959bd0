"""How a solution is called in the place of a module: with tensors, or with the module's own arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backprint.errors import UsageError

Solution = Callable[..., Any]
"""A `torch.autograd.Function`, an `nn.Module` class or instance, or a callable."""

Run = Callable[[nn.Module, Sequence[Any], Mapping[str, Any], list[Tensor]], Any]
"""Runs a solution: with the module that it replaces, the arguments of the call, and the tensors in their order."""


def name_of(solution: Any) -> str:
    """Return a name for a solution, for messages: of `Function.apply` and of an instance, that of the class; of a
    custom operator, its qualified name."""
    if isinstance(solution, nn.Module):
        return type(solution).__name__
    owner = getattr(solution, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return owner.__name__
    name = getattr(solution, "__name__", None)
    if isinstance(solution, torch.library.CustomOpDef):  # whose qualified name is private
        return str(solution)[len("<CustomOpDef(") : -2]  # `<CustomOpDef(mine::silu)>` -> `mine::silu`
    return name if isinstance(name, str) else type(solution).__name__


def takes_tensors(solution: Any) -> bool:
    """Whether a solution is called with tensors alone, and not with the arguments of the call."""
    return not isinstance(solution, nn.Module) and not _is_class_of(solution, nn.Module)


def _is_class_of(solution: Any, kind: type) -> bool:
    return isinstance(solution, type) and issubclass(solution, kind)


def check_solution(solution: Any) -> None:
    """Raise UsageError unless something can stand in the place of a module."""
    if _is_class_of(solution, nn.Module):
        check_class(solution)
    elif not _is_class_of(solution, torch.autograd.Function) and (isinstance(solution, type) or not callable(solution)):
        kind = solution.__name__ if isinstance(solution, type) else type(solution).__name__
        raise UsageError(
            "bp.swap: a solution is a torch.autograd.Function, an nn.Module class or instance, or a callable; this is "
            f"{'the class' if isinstance(solution, type) else 'a'} {kind}"
        )


def check_class(solution: type[nn.Module]) -> None:
    """Raise UsageError if a module class has more than a forward and static methods. No instance of it is ever made:
    its forward runs with the replaced module as `self`, which has none of its other methods."""
    own_names = [name for name in vars(solution) if not name.startswith("__") or name == "__init__"]
    more = [name for name in own_names if name != "forward" and not isinstance(vars(solution)[name], staticmethod)]
    if "forward" not in vars(solution):
        raise UsageError(f"bp.swap: the class {solution.__name__} has no forward of its own")
    if more:
        raise UsageError(
            f"bp.swap: the class {solution.__name__} has {', '.join(more[:3])} besides its forward, which runs with "
            f"the replaced module as self; pass an instance: {solution.__name__}(...)"
        )


def runner_of(solution: Any) -> Run:
    """Return the function that runs a solution: a Function and a callable take the `tensors`, a module class and an
    instance the arguments of the call."""
    if _is_class_of(solution, torch.autograd.Function):
        apply = solution.apply
        return lambda module, args, kwargs, tensors: apply(*tensors)
    if _is_class_of(solution, nn.Module):
        forward = solution.forward
        return lambda module, args, kwargs, tensors: forward(module, *args, **kwargs)
    if isinstance(solution, nn.Module):
        return _with_state_of(solution)
    return lambda module, args, kwargs, tensors: solution(*tensors)


def _with_state_of(solution: nn.Module) -> Run:
    """Return the function that runs a module with those parameters and buffers of the replaced one that have the names
    of its own."""
    wanted = frozenset(name for name, _ in _named_state(solution))

    def run(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[Tensor]) -> Any:
        """Run the instance in the mode of the replaced module (training or eval), which it is put in for good."""
        if solution.training != module.training:
            solution.train(module.training)
        state = {name: tensor for name, tensor in _named_state(module) if name in wanted}
        # `state` has all names, those of tied parameters too, so that none is to be tied.
        return torch.func.functional_call(solution, state, tuple(args), dict(kwargs), tie_weights=False)

    return run


def _named_state(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the parameters and buffers of a module under all their names."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def check_state(solution: Any, module: nn.Module, path: str) -> None:
    """Raise UsageError if an instance has a parameter or a buffer that the module which it replaces has not, or has in
    another shape."""
    if not isinstance(solution, nn.Module):
        return
    own = dict(_named_state(module))
    for name, tensor in _named_state(solution):
        if name not in own:
            raise UsageError(
                f"bp.swap: {name_of(solution)} has {name}, and {path or 'the model'} has not: it would not be trained, "
                f"and not be in the state_dict. {path or 'The model'} has {', '.join(own) or 'none'}"
            )
        if own[name].shape != tensor.shape:
            raise UsageError(
                f"bp.swap: {name} of {name_of(solution)} has the shape {tuple(tensor.shape)}, and that of "
                f"{path or 'the model'} {tuple(own[name].shape)}"
            )


def signature_of(function: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of the arguments of a forward after `self`, and those whose default is None."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]  # without `self`
    except (TypeError, ValueError):
        return (), frozenset()
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [parameter for parameter in parameters if parameter.kind not in stars]
    return tuple(p.name for p in plain), frozenset(p.name for p in plain if p.default is None)
