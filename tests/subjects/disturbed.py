"""A module that changes everything it can reach, and a snapshot of everything that a capture could change."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Busy(nn.Module):
    """A module that changes everything it can while it runs."""

    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        self.fc, self.bn, self.fail = nn.Linear(3, 3), nn.BatchNorm1d(3), fail
        self.register_buffer("steps", torch.zeros(()))
        self.calls, self.log = 0, ["start"]

    def forward(self, x: Tensor, scratch: Tensor) -> Tensor:
        self.calls += 1
        self.log.append("called")
        self.cache = x
        self.steps += 1
        scratch.add_(1)
        numpy.random.rand()
        random.random()
        with torch.no_grad():
            self.fc.bias.mul_(0.5)
        y = F.dropout(self.bn(self.fc(x)), 0.5, True)
        if self.fail:
            raise RuntimeError("on purpose")
        return y


def of_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """Return a tensor's identity, content, version and gradient."""
    gradient = tensor.grad if tensor.is_leaf else None
    return (
        id(tensor),
        tensor.detach().tolist(),
        tensor._version,
        tensor.requires_grad,
        None if gradient is None else (id(gradient), gradient.tolist(), gradient._version),
    )


def of_kept(thing: Any) -> Any:
    """Return everything that a run could change in a module, an optimizer or a tensor."""
    match thing:
        case Tensor():
            return of_tensor(thing)
        case nn.Module():
            tensors = [*thing.named_parameters(), *thing.named_buffers()]
            flags = [(name, module.training, sorted(vars(module))) for name, module in thing.named_modules()]
            plain = [(key, repr(value)) for key, value in vars(thing).items() if isinstance(value, int | list | str)]
            return [(name, of_tensor(tensor)) for name, tensor in tensors], flags, plain
        case torch.optim.Optimizer():
            state = [
                (id(key), name, of_tensor(value) if isinstance(value, Tensor) else repr(value))
                for key, found in thing.state.items()
                for name, value in found.items()
            ]
            groups = [{key: value for key, value in group.items() if key != "params"} for group in thing.param_groups]
            return state, repr(groups)
    raise TypeError(type(thing))


def of_process() -> dict[str, Any]:
    """Return everything of the process that a run could change."""
    numbers = numpy.random.get_state()
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": (numbers[0], numbers[1].tolist(), *numbers[2:]),
        "python": random.getstate(),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "hooks": len(nn.modules.module._global_forward_pre_hooks),
        "effects": torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect.effect,
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "seeding": torch.manual_seed,
        "has_torch_function": torch.autograd.has_torch_function,
    }


def picture(*things: Any) -> Any:
    """Return everything of modules, optimizers, tensors and the process that a run could change."""
    return [of_kept(thing) for thing in things], of_process()
