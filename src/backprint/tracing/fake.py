"""Tensors without values: build, watch and trace a model of any size without allocating it.

A World is a FakeTensorMode that also remembers the values of small tensors made from constants alone (`torch.linspace`,
`torch.arange`, `torch.tensor`, and arithmetic on these), so that code may read them; random and large tensors have no
values. All models and inputs built under `fake()` belong to one World, so they can be used together. A device that this
machine does not have is replaced by the CPU there.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from backprint._torch import pytree
from backprint._torch.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    grouped_mm_output,
)
from backprint._torch.modes import without_modes
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint._torch.tensors import neg_view, storage_id, truncated_normals_by
from backprint.errors import CaptureError, DataDependentError, for_program
from backprint.tracing import frames
from backprint.tracing.custom import through
from backprint.values import settings
from backprint.values.tree import copy_values, plain_leaves

SMALL = 2**20
"""Bytes of memory up to which a tensor made from constants keeps its values."""

UNKNOWN_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a result depends on values that a fake tensor does not have."""


class Life:
    """Whether the values in one real storage are still those that the program would have."""

    __slots__ = ("__weakref__", "good")

    def __init__(self) -> None:
        self.good = True


@dataclass(frozen=True, slots=True)
class Shadow:
    """The real values behind a fake tensor. They are valid while `life` is good and the tensor has this `memory`."""

    real: Tensor
    life: Life
    memory: int


OURS = "_backprint_shadow"
"""The attribute of a fake tensor that has its Shadow. A weak dictionary would keep torch from swapping the tensor."""


def shadow_of(tensor: Tensor) -> Shadow | None:
    """Return the Shadow of a fake tensor, if any."""
    found: Shadow | None = tensor.__dict__.get(OURS)
    return found


class World:
    """A FakeTensorMode, and the values of the small constants in it.

    The mode stays an ordinary FakeTensorMode with its `dispatch` wrapped: higher-order operators recognise modes by
    type.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.plain = shapes_of(mode)
        self.lives: weakref.WeakValueDictionary[int, Life] = weakref.WeakValueDictionary()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the mode, with constants remembered, and restore it afterwards."""
        with dispatching(self.mode, self.dispatch), Building(), self.mode:
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Enter the mode to run a program; refuse, with its line, an operator that reads unknown values."""
        try:
            with self.entered():
                yield
        except UNKNOWN_VALUES as error:
            where = frames.place(frames.raised(error, {}))
            raise DataDependentError(
                f"{error.func} reads values, which a fake capture does not have{where}. Pass small real inputs and "
                "specialize=True to take their values and keep them as guards, or capture without fake=True"
            ) from error

    # -------------------------------------------------------------- constants keep their values

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator on fake tensors, and also on the values, if they are known and small."""
        kwargs = {**kwargs, "device": present(kwargs["device"])} if kwargs and "device" in kwargs else kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self.plain(func, types, args, kwargs)
        able = self.able(func, plain_leaves(args, kwargs))
        try:
            result = self.plain(func, types, args, kwargs)
        except UNKNOWN_VALUES:
            if not able:
                raise
            real = self.really(func, args, kwargs)
            with self.mode:
                result = pytree.tree_map(fake_like, real)
            self.follow(result, real)
            return result
        if able and all(nbytes(leaf) <= SMALL for leaf in plain_leaves(result) if isinstance(leaf, Tensor)):
            self.follow(result, self.really(func, args, kwargs))
        elif schema_of(func).is_mutable:
            self.forget(func, args, kwargs)
        return result

    def able(self, func: Any, given: Iterable[Any]) -> bool:
        """Whether an operator's result follows from constants alone."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return False
        return not any(
            isinstance(leaf, torch.UntypedStorage) or (isinstance(leaf, Tensor) and self.known(leaf) is None)
            for leaf in given
        )

    def known(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor, if any: its own, or those of a constant."""
        if not isinstance(tensor, FakeTensor):
            return tensor if has_values(tensor) and nbytes(tensor) <= SMALL else None
        shadow = shadow_of(tensor)
        if shadow is None or not shadow.life.good or shadow.memory != storage_id(tensor.untyped_storage()):
            return None
        real: Tensor = shadow.real
        return real if (real.shape, real.dtype) == (tensor.shape, tensor.dtype) else None

    def really(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on the values behind these tensors, on the CPU."""
        args, kwargs = pytree.tree_map(self.real_argument, (args, kwargs))
        with without_modes(), torch.no_grad():
            result = for_program(func, *args, **kwargs)
            if func in UNINITIALISED:
                result.zero_()
        return result

    def real_argument(self, value: Any) -> Any:
        """Return one argument with its values, for `really`."""
        if isinstance(value, FakeTensor):
            return self.known(value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value

    def content_of(self, tensor: Tensor) -> bytes | None:
        """Return the bytes of a tensor's values, if these are known."""
        known = self.known(tensor)
        if known is None:
            return None
        with without_modes(), torch.no_grad():
            plain = known.resolve_conj().resolve_neg().contiguous().reshape(-1)
            return bytes(plain.view(torch.uint8).tolist())

    def follow(self, result: Any, real: Any) -> None:
        """Remember the values of a result."""
        for left, right in zip(plain_leaves(result), plain_leaves(real), strict=False):
            if isinstance(left, FakeTensor) and isinstance(right, Tensor):
                self.remember(left, right)

    def remember(self, fake: Tensor, real: Tensor) -> None:
        """Set the values of a fake tensor; tensors in one storage share a Life."""
        key = storage_id(real.untyped_storage())
        life = self.lives.get(key) or Life()
        self.lives[key] = life
        fake.__dict__[OURS] = Shadow(real, life, storage_id(fake.untyped_storage()))

    def forget(self, func: Any, args: Any, kwargs: Any) -> None:
        """Mark the values of each argument that an operator writes as unknown, and of all tensors in the same
        storage."""
        named = dict(zip((argument.name for argument in schema_of(func).arguments), args, strict=False)) | kwargs
        for argument in schema_of(func).arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in plain_leaves(named.get(argument.name)):
                    if isinstance(tensor, FakeTensor) and (shadow := shadow_of(tensor)) is not None:
                        shadow.life.good = False

    def values_of(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor: its own, whatever their size, or those of a constant."""
        return tensor if has_values(tensor) else self.known(tensor)

    def reals(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the values of those of these tensors whose values are known."""
        found = {name: self.known(tensor) for name, tensor in values.items()}
        return {name: real for name, real in found.items() if real is not None}

    # -------------------------------------------------------------- tensors from elsewhere

    def imitate(self, values: Mapping[str, Tensor], keep: bool = False) -> dict[str, Tensor]:
        """Return new fake tensors with the same geometry; tensors that share memory share it here too.

        With `keep`, values that are known are known of the new tensors too. A meta tensor has the device of the others.
        """
        home = home_of(values.values())
        with self.entered(), torch.no_grad():
            memory: dict[int, Any] = {}
            made = {name: imitated(tensor, home, memory) for name, tensor in values.items()}
        if keep:
            for name, real in copies(self.reals(values)).items():
                self.remember(made[name], real)
        return made

    def stand_in(self, tensor: Tensor) -> Tensor:
        """Return a fake tensor for a tensor that the program reads from outside."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.device.type == "meta":
            return self.imitate({"": tensor})[""].requires_grad_(tensor.requires_grad)
        made: Tensor = self.mode.from_tensor(tensor.detach(), static_shapes=True)
        return made.detach().requires_grad_(tensor.requires_grad)


def shapes_of(mode: FakeTensorMode) -> Callable[..., Any]:
    """Return a `dispatch` that also has rules for operators whose meta function refuses what the kernel accepts."""

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = RULES.get(func)
        if rule is None or any(isinstance(leaf, Tensor) and not mode.is_our_fake(leaf) for leaf in args):
            return FakeTensorMode.dispatch(mode, func, types, args, kwargs or {})
        with mode:
            return rule(*args, **(kwargs or {}))

    return dispatch


def grouped_mm(left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Return the fake result of `_grouped_mm`: torch 2.13 has a rule for bfloat16 only, but kernels for these three."""
    kinds = (torch.bfloat16, torch.float16, torch.float32)
    if left.dtype != right.dtype or left.dtype not in kinds:
        raise RuntimeError(f"_grouped_mm takes two matrices of {kinds}, not {left.dtype} and {right.dtype}")
    made: Tensor = grouped_mm_output(left, right, offs, out_dtype)
    return made


RULES: dict[Any, Callable[..., Tensor]] = {torch.ops.aten._grouped_mm.default: grouped_mm}


@contextlib.contextmanager
def dispatching(mode: FakeTensorMode, dispatch: Callable[..., Any]) -> Iterator[None]:
    """Replace a mode's `dispatch` by one that may see real tensors, and restore it afterwards."""
    before = {name: mode.__dict__[name] for name in ("dispatch", "allow_non_fake_inputs") if name in mode.__dict__}
    mode.dispatch, mode.allow_non_fake_inputs = dispatch, True
    try:
        yield
    finally:
        del mode.dispatch
        mode.__dict__.update(before)


UNINITIALISED = frozenset(
    getattr(getattr(torch.ops.aten, name), kind)
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
    for kind in getattr(torch.ops.aten, name).overloads()
)
"""Operators whose results are undefined until written: zeros here."""


def copies(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy real tensors; copies share memory as the tensors do."""
    with without_modes():
        return copy_values(values)


def kept_inputs(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs that a fake capture keeps: copies of small real tensors, and the geometry of large ones."""
    small = copies({name: tensor for name, tensor in values.items() if has_values(tensor) and nbytes(tensor) <= SMALL})
    large = {name: tensor for name, tensor in values.items() if has_values(tensor) and name not in small}
    return {**values, **small, **common().imitate(large)}


def has_values(tensor: Tensor) -> bool:
    """Whether a tensor is neither fake nor on the meta device."""
    return not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"


def imitated(tensor: Tensor, home: torch.device, memory: dict[int, Any]) -> Tensor:
    """Return a fake tensor of the same geometry, in the storage that represents the tensor's."""
    device = home if tensor.device.type == "meta" else tensor.device
    storage = tensor.untyped_storage()
    if storage_id(storage) not in memory:
        memory[storage_id(storage)] = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device).untyped_storage()
    empty = torch.empty((), dtype=tensor.dtype, device=device)
    made = empty.set_(memory[storage_id(storage)], tensor.storage_offset(), tensor.shape, tensor.stride())
    made = made.conj() if tensor.is_conj() else made
    return neg_view(made) if tensor.is_neg() else made


def home_of(tensors: Any) -> torch.device:
    """Return the device for meta tensors: that of all other tensors, else the CPU."""
    devices = {tensor.device for tensor in tensors if tensor.device.type != "meta"}
    return devices.pop() if len(devices) == 1 else torch.device("cpu")


def fake_like(value: Any) -> Any:
    """Return an empty tensor of the same geometry; anything else itself."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def nbytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's storage; for a tensor without one, more than `SMALL`."""
    plain = tensor.layout is torch.strided and all(isinstance(size, int) for size in tensor.shape)
    return tensor.untyped_storage().nbytes() if plain else SMALL + 1


# ------------------------------------------------------------------ devices that are not here


ACCELERATORS = ("cuda", "xpu", "mps", "mtia", "hpu", "xla", "privateuseone")


class Building(TorchFunctionMode):
    """Runs calls that name a device that this machine does not have on the CPU, and lets fake tensors be copied."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__ and isinstance(args[0], FakeTensor):
            return copied(*args)
        func, args, kwargs = on_present_devices(func, args, kwargs or {})
        return through(self, func, args, kwargs)


def copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy` of a fake tensor: torch's own would read the address of its data."""
    if id(tensor) not in memo:
        with torch.no_grad():
            made = tensor.clone()
        asks = tensor.requires_grad
        memo[id(tensor)] = nn.Parameter(made, asks) if isinstance(tensor, nn.Parameter) else made.requires_grad_(asks)
    found: Tensor = memo[id(tensor)]
    return found


def on_present_devices(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Replace every device that this machine does not have by the CPU in a call of a torch function."""
    if func is Tensor.cuda and absent("cuda"):
        return Tensor.cpu, args[:1], {}
    if func is Tensor.to:
        args = (args[0], *map(present, args[1:]))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": present(kwargs["device"])}
    return func, args, kwargs


def present(value: Any) -> Any:
    """Return the CPU for a device that this machine does not have; anything else itself."""
    kind = value.type if isinstance(value, torch.device) else value.partition(":")[0] if isinstance(value, str) else ""
    return torch.device("cpu") if absent(kind) else value


@functools.cache
def absent(kind: str) -> bool:
    """Whether this machine does not have this type of device."""
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return kind in ACCELERATORS and (here is None or here.type != kind)


# ------------------------------------------------------------------ the world that users build in


@functools.cache
def common() -> World:
    """Return the World of everything that is built under `fake()`."""
    made = World(FakeTensorMode(allow_non_fake_inputs=True))
    made.mode.fake_tensor_converter.set_tensor_memo = nothing_kept
    made.mode.dispatch = made.dispatch  # permanently, so that writes between two `with` blocks are followed too
    return made


@contextlib.contextmanager
def fake() -> Iterator[None]:
    """Build models and inputs without allocating them: `with bp.fake(): model = Big(config)`.

    Tensors made inside have a shape, a dtype and a device, but no values. Only small tensors that are made from
    constants alone keep their values, so that `.item()` and `.tolist()` work on them. Capture the model with
    `fake=True`.
    """
    with settings.ONE_AT_A_TIME, drawing_without_looking(), common().entered():
        try:
            yield
        except UNKNOWN_VALUES as error:
            where = frames.place(frames.raised(error, {}))
            raise DataDependentError(
                f"{error.func} reads values, which tensors built under bp.fake() do not have{where}: only small ones "
                "that are made from constants alone do. Leave that out, or make its tensor before"
            ) from error


@contextlib.contextmanager
def drawing_without_looking() -> Iterator[None]:
    """Draw a truncated normal once: torch redraws it until all values are within bounds, which reads values."""

    def draw(plain: Any, tensor: Tensor, mean: float, std: float, *bounds: Any, **options: Any) -> Tensor:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, mean, std, *bounds, **options)
        with torch.no_grad():
            return tensor.normal_(mean, std)

    with truncated_normals_by(draw):
        yield


def nothing_kept(meta: Tensor, fake: Tensor) -> None:
    """Replace the memo of results, whose weak references would keep `module.half()` from swapping parameters."""


def world_of(tensors: Mapping[str, Tensor]) -> World:
    """Return the World of these tensors; the common one if none of them is fake."""
    modes: dict[int, tuple[str, FakeTensorMode]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, FakeTensor):
            modes.setdefault(id(tensor.fake_mode), (name, tensor.fake_mode))
    if len(modes) > 1:
        (left, _), (right, _), *_ = modes.values()
        raise CaptureError(
            f"{left!r} and {right!r} are fake tensors of different FakeTensorModes: build both under bp.fake()"
        )
    for name, tensor in tensors.items():
        if any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride())):
            raise CaptureError(f"{name!r} has symbolic sizes, which fake=True does not support: give it integer sizes")
    for _, mode in modes.values():
        return common() if mode is common().mode else World(mode)
    return common()
