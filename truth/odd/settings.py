"""Settings of the process: before the capture, inside the program, and changed between a capture and its replays."""

import contextlib
import decimal
import gc
import importlib
import locale
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from case import Case, Settings, attributes, bare, ints, many, module, rand, randn
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PLAIN: Settings = contextlib.nullcontext


def setting(put: Callable[[Any], Any], get: Callable[[], Any], value: Any) -> Settings:
    """A context in which a setting of the process has a value."""

    @contextlib.contextmanager
    def held() -> Iterator[None]:
        old = get()
        put(value)
        try:
            yield
        finally:
            put(old)

    return held


DOUBLE = setting(torch.set_default_dtype, torch.get_default_dtype, torch.float64)
BFLOAT = setting(torch.set_default_dtype, torch.get_default_dtype, torch.bfloat16)
HALF = setting(torch.set_default_dtype, torch.get_default_dtype, torch.float16)
META = setting(torch.set_default_device, torch.get_default_device, torch.device("meta"))
CPU = setting(torch.set_default_device, torch.get_default_device, torch.device("cpu"))
NO_GRAD: Settings = torch.no_grad
INFERENCE: Settings = torch.inference_mode
DETERMINISTIC = setting(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True)
MEDIUM = setting(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "medium")
TWO_THREADS = setting(torch.set_num_threads, torch.get_num_threads, 2)
FLUSHED = setting(torch.set_flush_denormal, lambda: False, True)
SHORT = setting(
    lambda options: torch.set_printoptions(**options), lambda: dict(profile="default"), dict(precision=1, linewidth=20)
)
ERRORS = setting(lambda kind: np.seterr(all=kind), lambda: "warn", "raise")
DEEP = setting(sys.setrecursionlimit, sys.getrecursionlimit, 6000)
NO_GARBAGE = setting(lambda on: gc.enable() if on else gc.disable(), gc.isenabled, False)
UNVALIDATED = setting(
    torch.distributions.Distribution.set_default_validate_args,
    lambda: torch.distributions.Distribution._validate_args,
    False,
)
ONE_THREADED: Settings = lambda: torch.autograd.set_multithreading_enabled(False)  # noqa: E731
NO_EINSUM = setting(
    lambda on: setattr(torch.backends.opt_einsum, "enabled", on), lambda: torch.backends.opt_einsum.enabled, False
)
CHECKED_SPARSE: Settings = lambda: torch.sparse.check_sparse_tensor_invariants(True)  # noqa: E731


def AUTOCAST() -> Any:
    """As a training script sets it around everything."""
    return torch.autocast("cpu", dtype=torch.bfloat16)


def NO_MKLDNN() -> Any:
    """Without its kernels."""
    return torch.backends.mkldnn.flags(enabled=False)


def ANOMALY() -> Any:
    """As one sets it to find a NaN."""
    return torch.autograd.set_detect_anomaly(True, check_nan=False)


def ON_CPU() -> Any:
    """What is saved goes elsewhere."""
    return torch.autograd.graph.save_on_cpu()


def ROUNDED() -> Any:
    """What is saved loses digits."""
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16() if t.is_floating_point() else t, _up)


def _up(t: Any) -> Any:
    return t.float() if t.dtype is torch.bfloat16 else t


@contextlib.contextmanager
def ENVIRONMENT() -> Iterator[None]:
    """A variable is set."""
    os.environ["TRUTH_SCALE"] = "3"
    try:
        yield
    finally:
        del os.environ["TRUTH_SCALE"]


@contextlib.contextmanager
def FOLDER() -> Iterator[None]:
    """Another working folder, which has a file."""
    old = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("scale.txt", "w") as file:
            file.write("5")
        try:
            yield
        finally:
            os.chdir(old)


@contextlib.contextmanager
def PRECISE() -> Iterator[None]:
    """Decimals of few digits."""
    with decimal.localcontext() as context:
        context.prec = 2
        yield


@contextlib.contextmanager
def STRICT() -> Iterator[None]:
    """Warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def SUMS() -> Iterator[None]:
    """Numbers as this locale has them."""
    old = locale.setlocale(locale.LC_NUMERIC)
    locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")
    try:
        yield
    finally:
        locale.setlocale(locale.LC_NUMERIC, old)


@contextlib.contextmanager
def HOOKED() -> Iterator[None]:
    """Every module's output is doubled."""
    handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2 if isinstance(m, nn.Linear) else None)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def HOOKED_BACK() -> Iterator[None]:
    """Every linear layer's gradient is doubled."""
    handle = nn.modules.module.register_module_full_backward_hook(
        lambda m, i, o: tuple(g if g is None else g * 2 for g in i) if isinstance(m, nn.Linear) else None
    )
    try:
        yield
    finally:
        handle.remove()


def MATH() -> Any:
    """One kernel of attention only."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


class Negative(TorchFunctionMode):
    """Every sine is a cosine."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The other."""
        return torch.cos(*args) if func in (torch.sin, torch.Tensor.sin) else func(*args, **(kwargs or {}))


class Doubled(TorchDispatchMode):
    """Every sine is doubled, below autograd."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Twice as much."""
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.sin.default else result


def three(name: str, f: Callable[[], Case], under: Settings, **more: Any) -> dict[str, Callable[[], Case]]:
    """A program under a setting: kept for the replays, gone by then, and come only then."""

    def build(first: Settings, later: Settings) -> Callable[[], Case]:
        return lambda: attributes(f(), under=first, later=later, **more)

    return {
        f"{name}_kept": build(under, under),
        f"{name}_gone": build(under, PLAIN),
        f"{name}_come": build(PLAIN, under),
    }


def of(f: Any, *others: Any, **more: Any) -> Callable[[], Case]:
    """A function of one tensor, tried on others too."""
    return lambda: Case(f, randn(3, 4), others=[randn(3, 4, seed=5), *others], **more)


def counts(f: Any) -> Callable[[], Case]:
    """A function of whole numbers."""
    return lambda: Case(f, ints(3, 4), others=[ints(3, 4, seed=5)])


def linear(forward: Any = lambda s, x: s.l(x).relu()) -> Callable[[], Case]:
    """A module with a layer."""
    return lambda: Case(bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward), randn(3, 4))


many(
    __name__,
    **three("double_ones", of(lambda x: x * torch.ones(4)), DOUBLE),
    **three("double_linspace", of(lambda x: (x * torch.linspace(0, 1, 4)).sum()), DOUBLE),
    **three("double_division", counts(lambda i: i / 3), DOUBLE),
    **three("double_sum_of_products", counts(lambda i: (i * 0.1).sin() + torch.tensor([0.1])), DOUBLE),
    **three("double_mean_of_mask", of(lambda x: x * (x > 0).sum() / 7), DOUBLE),
    **three("double_draw", of(lambda x: x * torch.rand(4)), DOUBLE),
    **three("double_dropout", of(lambda x: F.dropout(x, 0.5) * torch.full((4,), 0.1)), DOUBLE),
    **three(
        "double_new_layer", of(lambda x: nn.Linear(4, 2)(x.to(torch.get_default_dtype()))), DOUBLE, gradients=False
    ),
    **three("double_epsilon", of(lambda x: x * torch.finfo(torch.get_default_dtype()).eps * 1e10), DOUBLE),
    **three("double_object", of(lambda x: SimpleNamespace(y=x * torch.eye(4)[0], n=torch.tensor(0.1))), DOUBLE),
    **three("double_branch", of(lambda x: x * 2 if torch.tensor(0.1).dtype is torch.float32 else x * 3), DOUBLE),
    **three("double_list", of(lambda x: torch.tensor([1.0, 0.1, 3, 4]) * x.double()), DOUBLE),
    **three("double_complex", of(lambda x: torch.view_as_real(torch.polar(x.abs(), x) * 1j)), DOUBLE),
    **three(
        "double_second_order",
        of(lambda x: torch.autograd.grad((x.double() ** 3 * torch.ones(4)).sum(), x, create_graph=True)[0]),
        DOUBLE,
    ),
    **three("double_by_aot", of(lambda x: x * torch.ones(4), options=dict(engine="aot")), DOUBLE),
    **three("double_by_dynamo", of(lambda x: x * torch.ones(4), options=dict(engine="dynamo")), DOUBLE),
    **three("double_range_norm", lambda: _norm_of_positions(), DOUBLE),
    **three("bfloat_ones", of(lambda x: x.bfloat16() * torch.ones(4)), BFLOAT),
    **three("bfloat_integers", counts(lambda i: (i / 3) * torch.arange(4)), BFLOAT),
    **three("half_full", of(lambda x: x.half() * torch.full((4,), 0.1)), HALF),
    double_after_float=lambda: Case(
        lambda x: x * torch.ones(4), randn(3, 4, dtype=torch.float64), under=DOUBLE, later=BFLOAT
    ),
    **three("device_explicit", of(lambda x: x * torch.ones(4, device="cpu")), META),
    device_come_ones=lambda: Case(lambda x: x * torch.ones(4), randn(3, 4), later=META),
    device_come_draw=lambda: Case(lambda x: x * torch.rand(4) + torch.arange(4), randn(3, 4), later=META),
    device_come_dropout=lambda: Case(lambda x: F.dropout(x, 0.5), randn(3, 4), later=META),
    device_come_module=lambda: attributes(linear(lambda s, x: s.l(x) + torch.zeros(4))(), later=META),
    device_come_object=lambda: Case(lambda x: SimpleNamespace(y=x * torch.eye(4)[0]), randn(3, 4), later=META),
    device_come_item=lambda: Case(lambda x: x * torch.tensor(3.0).item(), randn(3, 4), later=META),
    **three("device_cpu", of(lambda x: x * torch.ones(4)), CPU),
    **three("no_grad_layer", linear(), NO_GRAD, gradients=False),
    **three("no_grad_asked", of(lambda x: x * (2 if torch.is_grad_enabled() else 3)), NO_GRAD, gradients=False),
    no_grad_come_gradients=lambda: attributes(linear()(), later=NO_GRAD),
    inference_come_gradients=lambda: attributes(linear()(), later=INFERENCE),
    no_grad_come_training_step=lambda: attributes(_steps(), later=NO_GRAD),
    no_grad_enabled_inside=lambda: Case(_enables, randn(3, 4), under=NO_GRAD, gradients=False),
    **three("inference_function", of(lambda x: x.sin() * x), INFERENCE, gradients=False),
    **three("inference_buffer", lambda: _counts_calls(), INFERENCE, gradients=False),
    **three("autocast_layer", linear(), AUTOCAST),
    **three("autocast_matmul", of(lambda x: x @ x.t()), AUTOCAST),
    **three("autocast_mixed", linear(lambda s, x: s.l(x).float().softmax(-1) @ x.t()), AUTOCAST),
    **three("autocast_asked", of(lambda x: x * (2 if torch.is_autocast_enabled("cpu") else 3)), AUTOCAST),
    **three("autocast_dtype_read", of(lambda x: (x @ x.t()).to(torch.get_autocast_dtype("cpu"))), AUTOCAST),
    **three("autocast_object", of(lambda x: SimpleNamespace(y=x @ x.t(), n=x.sum())), AUTOCAST),
    **three("autocast_twice_cached", linear(lambda s, x: s.l(s.l(x)) + s.l(x)), AUTOCAST),
    **three("autocast_backward", of(lambda x: (x @ x.t()).float().square().sum()), AUTOCAST),
    autocast_off_inside_of_on=lambda: attributes(linear(_island)(), under=AUTOCAST, later=PLAIN),
    **three("deterministic_empty", of(lambda x: torch.empty(3, 4).fill_(2) * x), DETERMINISTIC),
    **three("deterministic_index", of(lambda x: x.index_add(0, torch.tensor([0, 0]), torch.ones(2, 4))), DETERMINISTIC),
    **three("deterministic_asked", of(lambda x: _if_deterministic(x)), DETERMINISTIC),
    **three("deterministic_put", of(lambda x: torch.zeros(4).index_put((x.argmax(1),), x[:, 0], True)), DETERMINISTIC),
    **three("medium_matmul", of(lambda x: x @ x.t()), MEDIUM),
    **three("medium_asked", of(lambda x: x * len(torch.get_float32_matmul_precision())), MEDIUM),
    **three("two_threads", of(lambda x: x.sum() * torch.get_num_threads()), TWO_THREADS),
    **three(
        "flushed_denormals", lambda: Case(lambda x: (x * 1e-20) * 1e38, rand(3, 4) * 1e-20, variants=False), FLUSHED
    ),
    **three("printed_shortly", of(lambda x: x * len(str(x))), SHORT),
    **three("printed_and_read", of(lambda x: x * float(str(x[0, 0].item())[:4])), SHORT),
    **three("numpy_raises", of(lambda x: _log_of_zero(x)), ERRORS),
    **three("deep_recursion", of(lambda x: _descend(x, 60)), DEEP),
    **three("recursion_asked", of(lambda x: x * (sys.getrecursionlimit() / 1000)), DEEP),
    **three("without_garbage", of(lambda x: x * (2 if gc.isenabled() else 3)), NO_GARBAGE),
    **three("unvalidated_distribution", of(lambda x: _normal_or_not(x)), UNVALIDATED),
    **three("one_threaded_backward", linear(), ONE_THREADED),
    **three("einsum_unplanned", of(lambda x: torch.einsum("ij,kj,kl->il", x, x, x)), NO_EINSUM),
    **three("sparse_checked", of(lambda x: x.relu().to_sparse().to_dense() * 2), CHECKED_SPARSE),
    **three("without_mkldnn", linear(), NO_MKLDNN),
    **three("anomalies", of(lambda x: x.sin().exp()), ANOMALY),
    **three("saved_elsewhere", of(lambda x: x.sin() * x.exp()), ON_CPU),
    **three("saved_rounded", of(lambda x: x.sin() * x.exp()), ROUNDED),
    **three("environment_scales", of(lambda x: x * float(os.environ.get("TRUTH_SCALE", "2"))), ENVIRONMENT),
    **three("folder_has_file", of(lambda x: x * (5 if os.path.exists("scale.txt") else 2)), FOLDER),
    **three("folder_read", of(lambda x: x * _scale_in_folder()), FOLDER),
    **three("decimals", of(lambda x: x * float(decimal.Decimal(1) / decimal.Decimal(3))), PRECISE),
    **three("warnings_strict", of(lambda x: _warns(x)), STRICT),
    **three("locale_numbers", of(lambda x: x * float(locale.format_string("%.2f", 1.25))), SUMS),
    **three("global_forward_hook", linear(), HOOKED),
    **three("global_backward_hook", linear(), HOOKED_BACK),
    **three("math_attention", of(lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])), MATH),
    **three("function_mode", of(lambda x: x.sin() * 2), Negative),
    **three("dispatch_mode", of(lambda x: x.sin() * 2), Doubled),
    tensor_type_inside=lambda: Case(_tensor_type, randn(3, 4), reset=lambda: torch.set_default_dtype(torch.float32)),
    device_set_inside=lambda: Case(
        lambda x: (torch.set_default_device("cpu"), x * torch.ones(4))[1],
        randn(3, 4),
        reset=lambda: torch.set_default_device(None),
    ),
    autocast_left_on=lambda: Case(_leaves_autocast, randn(3, 4), reset=_autocast_off, gradients=False),
    default_dtype_toggled=lambda: Case(_toggles, randn(3, 4), reset=lambda: torch.set_default_dtype(torch.float32)),
    seeds_of_others_inside=lambda: Case(_seeds_others, randn(3, 4)),
    folder_changed_inside=lambda: Case(_visits_folder, randn(3)),
    filters_added_inside=lambda: Case(_adds_filter, randn(3), reset=lambda: warnings.simplefilter("ignore")),
    numpy_errors_left=lambda: Case(
        lambda x: (np.seterr(over="raise"), x * 2)[1], randn(3), reset=lambda: np.seterr(over="warn")
    ),
    validation_left=lambda: Case(
        lambda x: (torch.distributions.Distribution.set_default_validate_args(False), x * 2)[1],
        randn(3),
        reset=lambda: torch.distributions.Distribution.set_default_validate_args(True),
    ),
    numpy_print_left=lambda: Case(
        lambda x: (np.set_printoptions(precision=2), x * 2)[1],
        randn(3),
        reset=lambda: np.set_printoptions(precision=8),
    ),
    importing_inside=lambda: Case(lambda x: x * importlib.import_module("colorsys").ONE_THIRD, randn(3)),
    forward_mode_around=lambda: Case(lambda x: x.sin(), randn(3), under=torch.autograd.forward_ad.dual_level),
    profiled_around=lambda: Case(lambda x: x.sin(), randn(3), under=torch.profiler.profile),
    parametrize_cached_around=lambda: Case(_parametrized(), randn(3, 4), under=nn.utils.parametrize.cached),
)


def _norm_of_positions() -> Case:
    def forward(self, x):
        positions = torch.arange(4)[:, None] / torch.arange(1, 5)
        return x @ self.w.to(positions.dtype) if x.dtype is positions.dtype else x @ self.w + positions.sum()

    return Case(module(None, forward), randn(3, 4), others=[randn(3, 4, seed=5)])


def _steps() -> Case:
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        with torch.enable_grad():
            opt.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
        opt.step()
        return loss.detach()

    return Case(step, randn(3, 4))


def _enables(x: Any) -> Any:
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(y.sin().sum(), y)
    return x * g


def _counts_calls() -> Case:
    def forward(self, x):
        self.n += 1
        return x @ self.w * self.n

    return Case(module(lambda s: s.register_buffer("n", torch.zeros(())), forward), randn(3, 4))


def _island(self: Any, x: Any) -> Any:
    y = self.l(x)
    with torch.autocast("cpu", enabled=False):
        return self.l(y.float())


def _if_deterministic(x: Any) -> Any:
    return x * 2 if torch.are_deterministic_algorithms_enabled() else x * 3


def _log_of_zero(x: Any) -> Any:
    try:
        return x * float(np.exp(np.log(np.float32(0))))
    except FloatingPointError:
        return x * 5


def _descend(x: Any, n: int) -> Any:
    return x.sin() if n == 0 else _descend(x, n - 1) * 1.01


def _normal_or_not(x: Any) -> Any:
    try:
        return torch.distributions.Normal(x, torch.tensor(-1.0)).log_prob(torch.tensor(0.5)).nan_to_num(3.0) + x
    except ValueError:
        return x * 5


def _scale_in_folder() -> float:
    try:
        with open("scale.txt") as file:
            return float(file.read())
    except FileNotFoundError:
        return 2.0


def _warns(x: Any) -> Any:
    try:
        warnings.warn("careful", stacklevel=1)
    except UserWarning:
        return x * 5
    return x * 2


def _tensor_type(x: Any) -> Any:
    torch.set_default_tensor_type("torch.DoubleTensor")
    y = x * torch.ones(4)
    torch.set_default_tensor_type("torch.FloatTensor")
    return y


def _leaves_autocast(x: Any) -> Any:
    torch.set_autocast_enabled("cpu", True)
    return x @ x.t()


def _autocast_off() -> None:
    torch.set_autocast_enabled("cpu", False)
    torch.clear_autocast_cache()


def _toggles(x: Any) -> Any:
    there = torch.float64 if torch.get_default_dtype() is torch.float32 else torch.float32
    torch.set_default_dtype(there)
    return x * torch.ones(4)


def _seeds_others(x: Any) -> Any:
    random.seed(3)
    np.random.seed(4)
    return x * random.random() + float(np.random.rand())


def _visits_folder(x: Any) -> Any:
    old = os.getcwd()
    os.chdir(tempfile.gettempdir())
    try:
        return x * len(os.getcwd())
    finally:
        os.chdir(old)


def _adds_filter(x: Any) -> Any:
    warnings.filterwarnings("ignore", message="odd words")
    return x * 2


def _parametrized() -> nn.Module:
    class Doubling(nn.Module):
        def forward(self, w):
            return w * 2

    net = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(net, "weight", Doubling())
    return net
