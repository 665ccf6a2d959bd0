"""State that a program keeps: buffers, attributes, caches, counters, generators, and switches of the whole process."""

import contextlib
import itertools
import random
from typing import Any

import numpy as np
import torch
from case import Case, attributes, bare, many, module, program, randn
from torch import nn
from torch.nn import functional as F

COUNT = [0]
TABLE: dict[str, Any] = {}
SCALE = torch.ones(4) * 3
CALLS = 0


def _reset() -> None:
    global CALLS
    CALLS = 0
    COUNT[0] = 0
    TABLE.clear()
    SCALE.fill_(3)


def run(*lines: Any) -> Any:
    """The last of several values."""
    return lines[-1]


def buffered(forward: Any, **buffers: Any) -> Case:
    """A module with a parameter and buffers."""

    def init(self):
        for name, value in buffers.items():
            self.register_buffer(name, value)

    return Case(module(init, forward), randn(3, 4))


def kept(init: Any, forward: Any) -> Case:
    """A module that keeps something."""
    return Case(module(init, forward), randn(3, 4))


def switched(f: Any) -> Case:
    """A function that sets something of the process."""
    return Case(f, randn(3, 4))


many(
    __name__,
    buffer_added_to=lambda: buffered(lambda s, x: run(s.n.add_(1), x @ s.w * s.n), n=torch.zeros(4)),
    buffer_replaced=lambda: buffered(
        lambda s, x: run(setattr(s, "n", s.n * 0.9 + x.detach().mean(0)), x @ s.w * s.n), n=torch.zeros(4)
    ),
    buffer_of_integers=lambda: buffered(lambda s, x: run(s.n.add_(1), x @ s.w * s.n), n=torch.tensor(2)),
    buffer_none_then_set=lambda: buffered(lambda s, x: run(setattr(s, "n", x.detach() * 2), x @ s.w), n=None),
    buffer_read_before_write=lambda: buffered(
        lambda s, x: (lambda old: run(s.n.mul_(2), x @ s.w * old * s.n))(s.n.clone()), n=torch.ones(4)
    ),
    buffer_twice_written=lambda: buffered(
        lambda s, x: run(s.n.add_(1), s.n.mul_(3), s.n.sub_(1), x @ s.w * s.n), n=torch.ones(4)
    ),
    buffer_not_persistent=lambda: Case(
        module(
            lambda s: s.register_buffer("n", torch.ones(4), persistent=False),
            lambda s, x: run(s.n.add_(1), x @ s.w * s.n),
        ),
        randn(3, 4),
    ),
    buffer_written_unused=lambda: buffered(lambda s, x: run(s.n.add_(1), x @ s.w), n=torch.ones(4)),
    buffer_slice_written=lambda: buffered(lambda s, x: run(s.n[1:3].fill_(5), x @ s.w * s.n), n=torch.ones(4)),
    buffer_data_written=lambda: buffered(lambda s, x: run(s.n.data.mul_(2), x @ s.w * s.n), n=torch.ones(4)),
    buffer_shared_by_two_names=lambda: _shared_buffer(),
    buffer_and_its_view=lambda: _buffer_view(),
    buffer_with_gradient=lambda: buffered(
        lambda s, x: run(setattr(s, "n", s.n + x @ s.w), s.n * 2), n=torch.zeros(3, 4)
    ),
    buffer_registered_in_forward=lambda: kept(
        None, lambda s, x: run(s.register_buffer("late", x.detach().mean(0)), x @ s.w * s.late)
    ),
    buffer_deleted_in_forward=lambda: buffered(lambda s, x: run(s.__delattr__("n"), x @ s.w), n=torch.ones(4)),
    buffer_as_step_counter=lambda: buffered(_warm_up, steps=torch.tensor(0)),
    attribute_set_in_forward=lambda: kept(None, lambda s, x: run(setattr(s, "seen", True), x @ s.w)),
    attribute_counted=lambda: kept(
        lambda s: attributes(s, n=0), lambda s, x: run(setattr(s, "n", s.n + 1), x @ s.w * s.n)
    ),
    attribute_tensor_kept=lambda: kept(
        lambda s: attributes(s, last=None), lambda s, x: run(setattr(s, "last", x.detach() * 2), x @ s.w)
    ),
    attribute_activation_kept=lambda: kept(
        lambda s: attributes(s, act=None), lambda s, x: run(setattr(s, "act", x @ s.w), s.act * 2)
    ),
    attribute_plain_tensor=lambda: kept(
        lambda s: attributes(s, c=torch.ones(4)), lambda s, x: run(s.c.add_(1), x @ s.w * s.c)
    ),
    attribute_first_call=lambda: kept(lambda s: attributes(s, ready=False), _first_call),
    attribute_hasattr=lambda: kept(
        None, lambda s, x: run(x @ s.w * 2) if hasattr(s, "done") else run(setattr(s, "done", 1), x @ s.w * 3)
    ),
    attribute_deleted=lambda: kept(lambda s: attributes(s, once=2), lambda s, x: x @ s.w * s.__dict__.pop("once", 1)),
    list_grows=lambda: kept(lambda s: attributes(s, h=[]), lambda s, x: run(s.h.append(1), x @ s.w * len(s.h))),
    nested_list_grows=lambda: kept(
        lambda s: attributes(s, log={"h": []}), lambda s, x: run(s.log["h"].append(1), x @ s.w * len(s.log["h"]))
    ),
    list_of_tensors_grows=lambda: kept(
        lambda s: attributes(s, h=[]), lambda s, x: run(s.h.append(x.detach()), x @ s.w * sum(s.h))
    ),
    dict_is_filled=lambda: kept(
        lambda s: attributes(s, d={}), lambda s, x: run(s.d.__setitem__(x.shape, 1), x @ s.w * len(s.d))
    ),
    set_is_filled=lambda: kept(
        lambda s: attributes(s, d=set()), lambda s, x: run(s.d.add(len(s.d)), x @ s.w * len(s.d))
    ),
    object_is_changed=lambda: kept(lambda s: attributes(s, o=Counter()), lambda s, x: x @ s.w * s.o.next()),
    cache_of_keys=lambda: kept(lambda s: attributes(s, cache=torch.zeros(0, 4)), _key_cache),
    cache_preallocated=lambda: buffered(_slot_cache, cache=torch.zeros(6, 3, 4), at=torch.tensor(2)),
    cache_by_shape=lambda: kept(lambda s: attributes(s, masks={}), _mask_cache),
    cache_of_a_function=lambda: _memoised(),
    rotary_cache=lambda: kept(lambda s: attributes(s, cos=None), _rotary),
    counter_in_a_closure=lambda: _closure_counter(),
    counter_in_a_global=lambda: Case(_global_counter, randn(3), reset=run(_reset(), _reset)),
    counter_in_a_global_list=lambda: Case(
        lambda x: run(COUNT.__setitem__(0, COUNT[0] + 1), x * COUNT[0]), randn(3), reset=run(_reset(), _reset)
    ),
    global_table_is_filled=lambda: Case(
        lambda x: run(TABLE.setdefault("a", x.detach() * 2), x * TABLE["a"]),
        randn(3),
        reset=run(_reset(), _reset),
        variants=False,
    ),
    global_tensor_is_changed=lambda: Case(
        lambda x: run(SCALE.mul_(2), x * SCALE), randn(4), reset=run(_reset(), _reset)
    ),
    counter_of_itertools=lambda: _counted(itertools.count(2)),
    counter_of_an_iterator=lambda: _counted(iter([2, 3, 5, 7, 11, 13, 17, 19] * 20)),
    counter_of_a_cycle=lambda: _counted(itertools.cycle([2, 3, 5])),
    counter_of_a_generator=lambda: _counted(v for v in range(2, 900)),
    default_argument_list=lambda: Case(_default_list(), randn(3)),
    function_attribute=lambda: Case(_function_attribute(), randn(3)),
    generator_of_torch=lambda: _drawn(torch.Generator().manual_seed(1), lambda g: torch.rand(4, generator=g)),
    generator_of_torch_dropout=lambda: _drawn(
        torch.Generator().manual_seed(1), lambda g: torch.bernoulli(torch.ones(4) / 2, generator=g)
    ),
    generator_of_torch_twice=lambda: _drawn(
        torch.Generator().manual_seed(1), lambda g: torch.randn(4, generator=g) + torch.randperm(4, generator=g)
    ),
    generator_of_torch_seeded_inside=lambda: _drawn(
        torch.Generator(), lambda g: torch.rand(4, generator=g.manual_seed(5))
    ),
    generator_of_torch_state_set=lambda: _drawn(
        torch.Generator(), lambda g: run(g.set_state(g.get_state()), torch.rand(4, generator=g))
    ),
    generator_of_numpy=lambda: _drawn(np.random.default_rng(0), lambda g: g.random()),
    generator_of_numpy_array=lambda: _drawn(
        np.random.default_rng(0), lambda g: torch.from_numpy(g.random(4).astype(np.float32))
    ),
    generator_of_numpy_old=lambda: _drawn(np.random.RandomState(0), lambda g: g.rand()),
    generator_of_python=lambda: _drawn(random.Random(0), lambda g: g.random()),
    global_numpy=lambda: Case(lambda x: x * np.random.rand(), randn(3)),
    global_python=lambda: Case(lambda x: x * random.random(), randn(3)),
    global_python_choice=lambda: Case(lambda x: random.choice([torch.sin, torch.cos, torch.tanh])(x), randn(3)),
    global_python_shuffle=lambda: Case(_shuffled, randn(5)),
    layer_drop_by_python=lambda: Case(_layer_drop(), randn(3, 4)),
    system_random=lambda: Case(lambda x: x * 2 if random.SystemRandom().random() > -1 else x, randn(3)),
    running_mean=lambda: Case(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), randn(3, 4)),
    running_mean_cumulative=lambda: Case(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)), randn(3, 4)),
    running_mean_zero_momentum=lambda: Case(nn.BatchNorm1d(4, momentum=0.0), randn(3, 4)),
    running_mean_untracked=lambda: Case(nn.BatchNorm1d(4, track_running_stats=False), randn(3, 4)),
    running_mean_eval=lambda: Case(nn.BatchNorm1d(4).eval(), randn(3, 4)),
    running_mean_used_twice=lambda: _norm_twice(),
    running_mean_frozen_layer=lambda: Case(nn.Sequential(nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4)), randn(3, 4)),
    running_mean_of_instance=lambda: Case(nn.InstanceNorm1d(4, track_running_stats=True, affine=True), randn(2, 4, 5)),
    batch_norm_of_one=lambda: Case(nn.BatchNorm2d(3), randn(1, 3, 2, 2)),
    sync_batch_norm=lambda: Case(nn.SyncBatchNorm(4).eval(), randn(3, 4)),
    lazy_linear=lambda: Case(nn.LazyLinear(3), randn(3, 4)),
    lazy_initialised=lambda: (lambda net: Case(run(net(randn(2, 4)), net), randn(3, 4)))(nn.LazyLinear(3)),
    lazy_parameter_in_forward=lambda: Case(
        bare(lambda s: attributes(s, w=None), _lazy_parameter), randn(3, 4), gradients=False
    ),
    train_switched_inside=lambda: Case(
        bare(lambda s: attributes(s, d=nn.Dropout(0.5)), lambda s, x: run(s.eval(), s.d(x) * 2)), randn(3, 4)
    ),
    train_of_a_child_switched=lambda: Case(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval()), randn(3, 4)),
    default_dtype_set_and_reset=lambda: switched(_default_dtype),
    default_dtype_left=lambda: Case(
        lambda x: run(torch.set_default_dtype(torch.float64), x * torch.ones(4)),
        randn(3, 4),
        reset=lambda: torch.set_default_dtype(torch.float32),
    ),
    deterministic_set_and_reset=lambda: switched(_deterministic),
    deterministic_left=lambda: Case(
        lambda x: run(torch.use_deterministic_algorithms(True), x * 2),
        randn(3),
        reset=lambda: torch.use_deterministic_algorithms(False),
    ),
    grad_mode_left_off=lambda: Case(
        lambda x: run(x * 2, torch.set_grad_enabled(False), x * 3),
        randn(3),
        reset=lambda: torch.set_grad_enabled(True),
        gradients=False,
    ),
    grad_mode_reset=lambda: switched(lambda x: run(torch.set_grad_enabled(False), torch.set_grad_enabled(True), x * 2)),
    threads_set=lambda: switched(lambda x: run(torch.set_num_threads(1), x * 2)),
    precision_set=lambda: Case(
        lambda x: run(torch.set_float32_matmul_precision("high"), x @ x.t()),
        randn(3, 4),
        reset=lambda: torch.set_float32_matmul_precision("highest"),
    ),
    print_options_set=lambda: Case(
        lambda x: run(torch.set_printoptions(precision=2), x * 2),
        randn(3),
        reset=lambda: torch.set_printoptions(profile="default"),
    ),
    autocast_inside=lambda: Case(_autocast(torch.bfloat16), randn(3, 4)),
    autocast_off_inside=lambda: Case(_autocast(torch.bfloat16, False), randn(3, 4)),
    autocast_and_float32_island=lambda: Case(_autocast_island(), randn(3, 4)),
    autocast_decorated=lambda: Case(torch.autocast("cpu", dtype=torch.bfloat16)(lambda x: x @ x.t()), randn(3, 4)),
    autocast_with_a_loss=lambda: Case(_autocast_loss(), (randn(3, 4), torch.tensor([0, 2, 1]))),
    default_device_inside=lambda: switched(_default_device),
    flags_of_backends=lambda: switched(_mkldnn_off),
    environment_read=lambda: switched(lambda x: x * (2 if __import__("os").environ.get("TRUTH_UNSET") is None else 3)),
    environment_written=lambda: Case(
        _environment, randn(3), reset=lambda: __import__("os").environ.pop("TRUTH_SET", None)
    ),
    time_is_read=lambda: switched(lambda x: run(__import__("time").time(), x * 2)),
    warning_inside=lambda: switched(lambda x: run(__import__("warnings").warn("careful", stacklevel=1), x * 2)),
    printing_inside=lambda: switched(lambda x: run(print("value", x.shape), x * 2)),
    logging_inside=lambda: switched(lambda x: run(__import__("logging").getLogger("t").info("x %s", x), x * 2)),
    collects_garbage=lambda: switched(lambda x: run(__import__("gc").collect(), x * 2)),
    exit_stack_inside=lambda: switched(_exit_stack),
    forward_replaced_in_forward=lambda: kept(None, _replaces_forward),
    submodule_added_in_forward=lambda: kept(None, _adds_submodule),
    hook_registered_in_forward=lambda: kept(lambda s: attributes(s, l=nn.Linear(4, 4)), _adds_hook),
    hidden_state_kept=lambda: Case(bare(lambda s: attributes(s, r=nn.GRUCell(4, 4), h=None), _hidden), randn(3, 4)),
    exponential_threshold=lambda: buffered(_threshold, level=torch.tensor(0.1)),
    quantile_tracker=lambda: buffered(_codebook, code=torch.randn(5, 4), size=torch.zeros(5)),
)


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.n = 1

    def next(self) -> int:
        """One more."""
        self.n += 1
        return self.n


def _warm_up(self: Any, x: Any) -> Any:
    self.steps += 1
    return x @ self.w * min(1.0, self.steps.item() / 10)


def _shared_buffer() -> Case:
    def init(self):
        self.register_buffer("a", torch.ones(4))
        self.register_buffer("b", self.a)

    def forward(self, x):
        self.a.add_(1)
        return x @ self.w * self.b

    return Case(module(init, forward), randn(3, 4))


def _buffer_view() -> Case:
    def init(self):
        self.register_buffer("a", torch.ones(4))
        self.register_buffer("v", self.a[1:3])

    def forward(self, x):
        self.v.add_(1)
        return x @ self.w * self.a

    return Case(module(init, forward), randn(3, 4))


def _first_call(self: Any, x: Any) -> Any:
    if not self.ready:
        with torch.no_grad():
            self.w.mul_(2)
        self.ready = True
    return x @ self.w


def _key_cache(self: Any, x: Any) -> Any:
    self.cache = torch.cat([self.cache, (x @ self.w).detach()])
    return x @ self.cache.t()


def _slot_cache(self: Any, x: Any) -> Any:
    self.cache[self.at] = (x @ self.w).detach()
    self.at += 1
    return (self.cache * x).sum(0)


def _mask_cache(self: Any, x: Any) -> Any:
    if x.shape[0] not in self.masks:
        self.masks[x.shape[0]] = torch.ones(x.shape[0], 4).tril()
    return x @ self.w * self.masks[x.shape[0]]


def _memoised() -> Case:
    import functools

    @functools.lru_cache
    def mask(n):
        return torch.ones(n, 4).tril()

    return Case(lambda x: x * mask(x.shape[0]), randn(3, 4))


def _rotary(self: Any, x: Any) -> Any:
    if self.cos is None or self.cos.shape[0] < x.shape[0]:
        self.cos = torch.arange(x.shape[0] * 2.0)[:, None].cos()
    return x @ self.w * self.cos[: x.shape[0]]


def _closure_counter() -> Case:
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * n

    return Case(f, randn(3))


def _global_counter(x: Any) -> Any:
    global CALLS
    CALLS += 1
    return x * CALLS


def _counted(counter: Any) -> Case:
    return Case(lambda x: x * next(counter), randn(3))


def _default_list() -> Any:
    def f(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    return f


def _function_attribute() -> Any:
    def f(x):
        f.calls = getattr(f, "calls", 0) + 1
        return x * f.calls

    return f


def _drawn(generator: Any, draw: Any) -> Case:
    return Case(lambda x: x * draw(generator), randn(3, 4))


def _shuffled(x: Any) -> Any:
    order = list(range(5))
    random.shuffle(order)
    return x[order] * torch.arange(5)


def _layer_drop() -> Any:
    def forward(self, x):
        for layer in self.layers:
            if not self.training or random.random() > 0.5:
                x = x + layer(x)
        return x

    return bare(lambda s: attributes(s, layers=nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])), forward)


def _norm_twice() -> Case:
    net = nn.BatchNorm1d(4)
    return Case(lambda x: net(net(x) * 2 + 1), randn(3, 4))


def _lazy_parameter(self: Any, x: Any) -> Any:
    if self.w is None:
        self.w = nn.Parameter(torch.ones(x.shape[1], 2))
    return x @ self.w


def _default_dtype(x: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return x * torch.ones(4)
    finally:
        torch.set_default_dtype(torch.float32)


def _deterministic(x: Any) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return x.index_add(0, torch.tensor([0, 0]), torch.ones(2, 4))
    finally:
        torch.use_deterministic_algorithms(False)


def _autocast(dtype: Any, enabled: bool = True) -> Any:
    def forward(self, x):
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            return self.l(x).relu()

    return bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward)


def _autocast_island() -> Any:
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.l(x)
            with torch.autocast("cpu", enabled=False):
                y = self.l(y.float())
            return self.l(y)

    return bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward)


def _autocast_loss() -> Any:
    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(self.l(x), y)

    return bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward)


def _default_device(x: Any) -> Any:
    with torch.device("cpu"):
        return x * torch.ones(4)


def _mkldnn_off(x: Any) -> Any:
    with torch.backends.mkldnn.flags(enabled=False):
        return x @ x.t()


def _environment(x: Any) -> Any:
    import os

    os.environ["TRUTH_SET"] = "1"
    return x * 2


def _exit_stack(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        y = x * 2
    return x * y


def _replaces_forward(self: Any, x: Any) -> Any:
    self.forward = lambda x: x @ self.w * 5
    return x @ self.w


def _adds_submodule(self: Any, x: Any) -> Any:
    if not hasattr(self, "late"):
        self.late = nn.ReLU()
    return self.late(x @ self.w)


def _adds_hook(self: Any, x: Any) -> Any:
    self.l.register_forward_hook(lambda m, i, o: o * 2)
    return self.l(x) + x @ self.w


def _hidden(self: Any, x: Any) -> Any:
    self.h = self.r(x, self.h)
    return self.h * 2


def _threshold(self: Any, x: Any) -> Any:
    y = x @ self.w
    self.level.lerp_(y.detach().abs().mean(), 0.1)
    return torch.where(y > self.level, y, y * 0.1)


def _codebook(self: Any, x: Any) -> Any:
    nearest = torch.cdist(x @ self.w, self.code).argmin(1)
    hits = F.one_hot(nearest, 5).float()
    if self.training:
        self.size.mul_(0.9).add_(hits.sum(0), alpha=0.1)
        self.code.mul_(0.9).add_(hits.t() @ x.detach(), alpha=0.1)
    y = x @ self.w
    return y + (self.code[nearest] - y).detach()


@program
def hook_fills_a_list() -> Case:
    kept_: list[Any] = []
    net = nn.Linear(4, 4)
    net.register_forward_hook(lambda m, i, o: kept_.append(o.detach()))
    return Case(net, randn(3, 4))


@program
def hook_fills_a_list_behind_a_closure() -> Case:
    features: dict[str, Any] = {}
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[0].register_forward_hook(lambda m, i, o: features.__setitem__("a", o))
    return Case(lambda x: (net(x), features["a"] * 2), randn(3, 4))


@program
def teacher_and_student() -> Case:
    def init(self):
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)
        self.teacher.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for p, q in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                p.data = p.data * 0.9 + q.data * 0.1
            target = self.teacher(x)
        return (self.student(x) - target).square().mean()

    return Case(bare(init, forward), randn(3, 4))


@program
def queue_of_keys() -> Case:
    def init(self):
        self.register_buffer("queue", torch.randn(6, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        keys = (x @ self.w).detach()
        at = int(self.at)
        out = x @ self.w @ self.queue.clone().t()
        self.queue[at : at + 3] = keys
        self.at[0] = (at + 3) % 6
        return out

    return Case(module(init, forward), randn(3, 4))


@program
def module_in_a_closure_with_a_replaced_buffer() -> Case:
    def forward(self, x):
        self.n = self.n * 0.9 + x.detach().mean(0)
        return x @ self.w * self.n

    net = module(lambda s: s.register_buffer("n", torch.zeros(4)), forward)
    return Case(lambda x: net(x), randn(3, 4))
