"""What a program of the truth suite is made of, and the table in which all of them stand.

A program is a function without arguments that builds a fresh `Case`: something to capture, what to call it with, and
other calls that the same capture may be replayed with. Building it twice gives the same twice.
"""

import contextlib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from picture import roots_of, tensors
from torch import Tensor, nn

Settings = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass
class Call:
    """Arguments of one call."""

    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """One program: what is captured, with which arguments, and which other calls it is tried with.

    options     of bp.capture
    others      arguments (a tuple, one value, or a Call) of other calls: same branch, other branch, other strides, ...
    gradients   whether gradients are compared; False where PyTorch leaves open what they are
    exact       whether values are compared to the bit, signs of zeros included
    reset       puts back what is global to the program, which building it anew does not make fresh
    variants    whether every call is also tried with values negated, redrawn, strided, in float64 and cut shorter
    under       the settings of the process that the program runs under and is captured under, as a context
    later       those that its capture is proved, saved, read and replayed under; by default the same
    """

    fn: Callable[..., Any]
    args: Any = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    others: Sequence[Any] = ()
    gradients: bool = True
    exact: bool = False
    reset: Callable[[], Any] = lambda: None
    variants: bool = True
    under: Settings = contextlib.nullcontext
    later: Settings | None = None

    def __post_init__(self) -> None:
        self.args = _tuple(self.args)
        self.others = [other if isinstance(other, Call) else Call(_tuple(other)) for other in self.others]

    @property
    def call(self) -> Call:
        """The call that is captured."""
        return Call(self.args, self.kwargs)


@dataclass
class Program:
    """A builder of fresh cases, its name and its class (the module that it stands in)."""

    name: str
    kind: str
    builder: Callable[[], Case]

    def build(self) -> Case:
        """A fresh case, the same each time; torch's random states end where they began."""
        here = torch.device("cpu") in DEVICE
        with torch.random.fork_rng(devices=[] if here else DEVICE, device_type="cuda" if here else DEVICE[0].type):
            torch.manual_seed(0)
            case = self.builder()
        if not here:
            put_on(DEVICE[0], case)
        return case


DEVICE = [torch.device("cpu")]
"""Where every program's tensors are."""


def put_on(device: torch.device, case: Case) -> None:
    """Move every tensor that a case's calls reach to a device, in place; tensors that share memory still do."""
    memory: dict[int, Tensor] = {}
    for call in (case.call, *case.others):
        for tensor in tensors(roots_of(case.fn, call.args, call.kwargs)).values():
            if tensor.device.type == "cpu" and not isinstance(tensor, nn.parameter.UninitializedTensorMixin):
                with torch.no_grad():
                    tensor.data = there(tensor.detach(), device, memory)


def there(tensor: Tensor, device: torch.device, memory: dict[int, Tensor]) -> Tensor:
    """The tensor on another device, in the copy of its storage."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return tensor.to(device)
    key = tensor.untyped_storage()._cdata
    if key not in memory:
        memory[key] = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).to(device)
    lies = (tensor.storage_offset(), tensor.shape, tensor.stride())
    return torch.empty(0, dtype=tensor.dtype, device=device).set_(memory[key].untyped_storage(), *lies)


PROGRAMS: dict[str, Program] = {}


def program(builder: Callable[[], Case]) -> Callable[[], Case]:
    """Puts a builder into the table, under its own name."""
    kind = builder.__module__.rpartition(".")[2]
    if builder.__name__ in PROGRAMS:
        raise ValueError(f"two programs are called {builder.__name__}")
    PROGRAMS[builder.__name__] = Program(builder.__name__, kind, builder)
    return builder


def many(module_name: str, **builders: Callable[[], Case]) -> None:
    """Puts several builders into the table, each under its keyword."""
    for name, builder in builders.items():
        builder.__name__ = builder.__qualname__ = name
        builder.__module__ = module_name
        program(builder)


def load_programs() -> dict[str, Program]:
    """Imports every module of `odd`; the table."""
    for module in sorted(m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / "odd")])):
        importlib.import_module(f"odd.{module}")
    return PROGRAMS


def module(init: Callable[[Any], Any] | None, forward: Callable[..., Any], **methods: Any) -> nn.Module:
    """A module with a parameter `w` of (4, 4), whatever `init` adds to it, and this forward."""

    def __init__(self: Any) -> None:
        nn.Module.__init__(self)
        self.w = nn.Parameter(torch.randn(4, 4))
        if init is not None:
            init(self)

    return type("Net", (nn.Module,), {"__init__": __init__, "forward": forward, **methods})()


def bare(init: Callable[[Any], Any] | None, forward: Callable[..., Any], **methods: Any) -> nn.Module:
    """A module with what `init` puts into it only, and this forward."""

    def __init__(self: Any) -> None:
        nn.Module.__init__(self)
        if init is not None:
            init(self)

    return type("Net", (nn.Module,), {"__init__": __init__, "forward": forward, **methods})()


def randn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers of their own seed."""
    drawn = torch.randn(*shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=dtype, device="cpu")
    return drawn.to(DEVICE[0])


def rand(*shape: int, seed: int = 1) -> Tensor:
    """Numbers between 0.1 and 1.1 of their own seed: all positive."""
    drawn = torch.rand(*shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return drawn.to(DEVICE[0]) + 0.1


def leaf(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normals that require grad."""
    return randn(*shape, seed=seed, dtype=dtype).requires_grad_()


def ints(*shape: int, high: int = 4, seed: int = 1) -> Tensor:
    """Whole numbers from 0 to high - 1."""
    drawn = torch.randint(high, shape, generator=torch.Generator("cpu").manual_seed(seed), device="cpu")
    return drawn.to(DEVICE[0])


def attributes(target: Any, values: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """Sets attributes; the target again."""
    for key, value in {**(values or {}), **more}.items():
        setattr(target, key, value)
    return target


def _tuple(args: Any) -> tuple:
    return args if type(args) is tuple else (args,)
