"""Every kind of state that a program can reach and change: caches, contexts, threads, files, queues, hooks."""

import array
import bisect
import collections
import contextlib
import contextvars
import copy
import decimal
import functools
import heapq
import importlib
import io
import itertools
import json
import logging
import pickle
import queue
import random
import string
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from case import Case, attributes, bare, many, module, randn
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

LEVEL = contextvars.ContextVar("odd_level", default=1)
LOCAL = threading.local()
QUEUE: Any = queue.Queue()
NUMBERS = array.array("i", [1])
ORDER = collections.OrderedDict(a=2, b=3)
TOTALS: Any = collections.Counter()
LOG = logging.getLogger("odd.reached")
WEAK: Any = weakref.WeakKeyDictionary()
REGISTRY: list[Any] = []


@functools.lru_cache(maxsize=4)
def doubled(n: int) -> int:
    """Remembered."""
    REGISTRY.append(n)
    return n * 2


@functools.cache
def table(n: int) -> Any:
    """Tensors that are remembered."""
    return torch.arange(float(n)) + 1


class Shared:
    """What all of its objects share."""

    calls = 0
    seen: list[Any] = []  # noqa: RUF012
    __slots__ = ("here", "late")


def _fresh() -> None:
    """All that is global, as at first."""
    global QUEUE, NUMBERS, WEAK
    LEVEL.set(1)
    LOCAL.__dict__.clear()
    QUEUE, WEAK = queue.Queue(), weakref.WeakKeyDictionary()
    NUMBERS = array.array("i", [1])
    ORDER.clear()
    ORDER.update(a=2, b=3)
    TOTALS.clear()
    REGISTRY.clear()
    doubled.cache_clear()
    table.cache_clear()
    Shared.calls = 0
    Shared.seen.clear()
    LOG.handlers.clear()


def run(*lines: Any) -> Any:
    """The last of several values."""
    return lines[-1]


def of(f: Any, *others: Any, **more: Any) -> Case:
    """A function of a tensor with something global."""
    _fresh()
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5), *others], reset=_fresh, **more)


def kept(make: Callable[[], Any], f: Any, **more: Any) -> Case:
    """A function that closes over something of its own."""
    held = make()
    return Case(lambda x: f(x, held), randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def owned(make: Callable[[], Any], f: Any, **more: Any) -> Case:
    """A module that has it."""
    return Case(
        module(lambda s: attributes(s, o=make()), lambda s, x: f(x @ s.w, s.o)),
        randn(3, 4),
        others=[randn(3, 4, seed=5)],
        **more,
    )


def both(name: str, make: Callable[[], Any], f: Any, **more: Any) -> dict[str, Callable[[], Case]]:
    """In a closure, and in a module."""
    return {f"closure_{name}": lambda: kept(make, f, **more), f"owned_{name}": lambda: owned(make, f, **more)}


def filled(kind: Callable[[], Any]) -> Any:
    """A queue with a few numbers."""
    made = kind()
    for n in (2, 3, 5, 7):
        made.put(n)
    return made


def on_linear(hook: Callable[[nn.Module, list[Any]], Any], seen: Any = None) -> Case:
    """A layer with a hook that fills what it closes over."""
    seen = [] if seen is None else seen
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    hook(net[0], seen)
    return Case(net, randn(3, 4), others=[randn(3, 4, seed=5)])


def add(seen: Any, value: Any = 1) -> None:
    """One more; nothing to give."""
    seen.append(value)


many(
    __name__,
    **both("queue", lambda: filled(queue.Queue), lambda x, q: x * q.get_nowait()),
    **both("queue_put", lambda: filled(queue.Queue), lambda x, q: run(q.put(1), x * q.qsize())),
    **both(
        "queue_priority",
        lambda: filled(queue.PriorityQueue),
        lambda x, q: run(q.put(1), x * q.get_nowait() + q.get_nowait()),
    ),
    **both("queue_last", lambda: filled(queue.LifoQueue), lambda x, q: x * q.get_nowait()),
    **both("queue_of_tensors", lambda: run(q := queue.Queue(), q.put(randn(4)), q), lambda x, q: x * _again(q)),
    **both("deque_rotated", lambda: collections.deque([2, 3, 5]), lambda x, d: run(d.rotate(1), x * d[0])),
    **both("deque_bounded", lambda: collections.deque([2, 3], maxlen=2), lambda x, d: run(d.append(5), x * sum(d))),
    **both("deque_of_tensors", lambda: collections.deque(maxlen=2), lambda x, d: run(d.append(x.detach()), x * len(d))),
    **both("array", lambda: array.array("f", [2, 3]), lambda x, a: run(a.append(5), x * sum(a))),
    **both("array_written", lambda: array.array("d", [2, 3]), lambda x, a: run(a.__setitem__(0, a[0] + 1), x * a[0])),
    **both("bytearray", lambda: bytearray(b"\x02\x03"), lambda x, b: run(b.extend(b"\x01"), x * len(b))),
    **both("memoryview", lambda: memoryview(bytearray(b"\x02\x03")), lambda x, m: run(_more(m), x * m[0])),
    **both("numpy_array", lambda: np.array([2.0, 3.0]), lambda x, a: run(a.__iadd__(1), x * float(a[0]))),
    **both(
        "numpy_view", lambda: np.arange(6.0)[::2], lambda x, a: run(a.sort(), a.__setitem__(0, 7), x * float(a.sum()))
    ),
    **both(
        "tensor_from_numpy",
        lambda: torch.from_numpy(np.ones(4, np.float32)),
        lambda x, t: run(t.numpy().__iadd__(1), x * t),
    ),
    **both(
        "ordered_dict",
        lambda: collections.OrderedDict(a=2, b=3),
        lambda x, d: run(d.move_to_end("a"), x * next(iter(d.values()))),
    ),
    **both(
        "dict_reordered",
        lambda: dict(a=2, b=3),
        lambda x, d: run(d.__setitem__("a", d.pop("a")), x * next(iter(d.values()))),
    ),
    **both("counter", collections.Counter, lambda x, c: run(c.update("ab"), x * c["a"])),
    **both("default_dict", lambda: collections.defaultdict(int), lambda x, d: run(d["a"], x * len(d))),
    **both(
        "default_dict_of_lists",
        lambda: collections.defaultdict(list),
        lambda x, d: run(d["a"].append(1), x * len(d["a"])),
    ),
    **both(
        "chain_map",
        lambda: collections.ChainMap({}, {"a": 2}),
        lambda x, d: run(d.__setitem__("a", d["a"] + 1), x * d["a"]),
    ),
    **both("heap", lambda: [2, 3, 5], lambda x, h: x * heapq.heappushpop(h, 7)),
    **both("sorted_list", lambda: [2, 5], lambda x, s: run(bisect.insort(s, 3), x * s[1])),
    **both("list_sorted", lambda: [5, 2, 3], lambda x, s: run(s.sort(), x * s[0])),
    **both("list_swapped", lambda: [2, 3], lambda x, s: run(s.reverse(), x * s[0])),
    **both("set_popped", lambda: {2, 3, 5}, lambda x, s: run(s.discard(2), x * len(s))),
    **both("text_file", lambda: io.StringIO("2\n3\n5\n"), lambda x, f: x * float(f.readline() or 9)),
    **both("text_written", io.StringIO, lambda x, f: run(f.write("ab"), x * len(f.getvalue()))),
    **both("bytes_file", lambda: io.BytesIO(b"\x02\x03\x05"), lambda x, f: x * (f.read(1) or b"\x09")[0]),
    **both("file_read", lambda: _file("2\n3\n5\n7\n"), lambda x, f: x * float(f.readline() or 9)),
    **both("folder_log", lambda: _folder(), lambda x, p: run(_noted(p), x * len((p / "log.txt").read_text()))),
    **both("count", lambda: itertools.count(2), lambda x, c: x * next(c)),
    **both("random", lambda: random.Random(3), lambda x, r: x * r.choice([2, 3, 5]) + r.gauss(0, 1)),
    **both(
        "numpy_generator",
        lambda: np.random.default_rng(3),
        lambda x, r: x * float(r.integers(2, 9)) + float(r.normal()),
    ),
    **both("numpy_bit_generator", lambda: np.random.PCG64(3), lambda x, b: x * float(np.random.Generator(b).random())),
    **both(
        "torch_generator",
        lambda: torch.Generator().manual_seed(3),
        lambda x, g: x * torch.rand(4, generator=g) + torch.randint(3, (), generator=g),
    ),
    **both(
        "weak_keys", lambda: _weak(), lambda x, w: run(w[1].__setitem__(w[0], w[1].get(w[0], 1) + 1), x * w[1][w[0]])
    ),
    **both("weak_set", lambda: weakref.WeakSet([LOG]), lambda x, w: run(w.add(logging.root), x * len(w))),
    **both(
        "weak_values",
        lambda: (LOG, weakref.WeakValueDictionary()),
        lambda x, w: run(w[1].__setitem__(len(w[1]), w[0]), x * len(w[1])),
    ),
    **both("slots", lambda: Shared(), lambda x, s: x * _counted_slot(s)),
    **both("slot_emptied", lambda: attributes(Shared(), late=3), lambda x, s: x * _emptied(s)),
    **both("lock", lambda: threading.Lock(), lambda x, k: x * (3 if k.acquire(blocking=False) else 5)),
    **both("event", threading.Event, lambda x, e: x * (5 if e.is_set() else run(e.set(), 3))),
    **both("semaphore", lambda: threading.Semaphore(9), lambda x, s: x * (3 if s.acquire(blocking=False) else 5)),
    **both("local", threading.local, lambda x, s: x * _counted_attribute(s)),
    **both("namespace", types.SimpleNamespace, lambda x, s: x * _counted_attribute(s)),
    **both(
        "context_variable",
        lambda: contextvars.ContextVar("odd_own", default=1),
        lambda x, v: run(v.set(v.get() + 1), x * v.get()),
    ),
    **both(
        "decimal_context",
        lambda: decimal.Context(prec=3),
        lambda x, c: run(setattr(c, "prec", c.prec + 1), x * float(c.divide(decimal.Decimal(1), decimal.Decimal(3)))),
    ),
    **both("generator", lambda: _growing(), lambda x, g: x * next(g)),
    **both("generator_told", lambda: run(g := _told(), next(g), g), lambda x, g: x * g.send(2)),
    **both("exit_stack", contextlib.ExitStack, lambda x, s: run(s.callback(print), x * len(s._exit_callbacks))),
    **both(
        "partial", lambda: functools.partial(max, 1), lambda x, p: run(p.keywords.__setitem__("key", abs), x * p(-3))
    ),
    **both(
        "cached_function", lambda: functools.lru_cache(lambda n: n * 2), lambda x, f: x * f(3) + f.cache_info().hits
    ),
    **both("cached_method", lambda: Remembering(), lambda x, o: x * o.slow(3) + o.calls),
    **both("cached_property", lambda: Remembering(), lambda x, o: x * o.first + len(vars(o))),
    **both(
        "dispatched",
        lambda: functools.singledispatch(lambda v: 2),
        lambda x, f: run(f.register(str, lambda v: 3), x * f("a") + len(f.registry)),
    ),
    **both("function_globals", lambda: _with_globals(), lambda x, f: x * f()),
    **both("class_made", lambda: type("Made", (), {"n": 2}), lambda x, c: run(setattr(c, "n", c.n + 1), x * c.n)),
    **both("enum_attribute", lambda: _enum(), lambda x, e: x * _counted_attribute(e.A)),
    **both(
        "parser",
        lambda: json.JSONDecoder(),
        lambda x, d: run(setattr(d, "strict", not d.strict), x * (2 if d.strict else 3)),
    ),
    **both(
        "template",
        lambda: {"t": string.Template("$a")},
        lambda x, d: run(d.__setitem__("n", d.get("n", 1) + 1), x * d["n"]),
    ),
    **both("module_object", lambda: types.ModuleType("odd_made"), lambda x, m: x * _counted_attribute(m)),
    **both(
        "grad_scaler",
        lambda: torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1),
        lambda x, s: run(s.scale(x.sum().detach()), x * s.get_scale()),
    ),
    global_context_variable=lambda: of(lambda x: run(LEVEL.set(LEVEL.get() + 1), x * LEVEL.get())),
    global_context_run=lambda: of(lambda x: contextvars.copy_context().run(lambda: run(LEVEL.set(7), x * LEVEL.get()))),
    global_thread_local=lambda: of(lambda x: x * _counted_attribute(LOCAL)),
    global_queue=lambda: of(lambda x: run(QUEUE.put(1), x * QUEUE.qsize())),
    global_array=lambda: of(lambda x: run(NUMBERS.append(2), x * sum(NUMBERS))),
    global_ordered=lambda: of(lambda x: run(ORDER.move_to_end("a"), x * next(iter(ORDER.values())))),
    global_counter=lambda: of(lambda x: run(TOTALS.update(["a"]), x * TOTALS["a"])),
    global_weak=lambda: of(lambda x: run(WEAK.__setitem__(LOG, WEAK.get(LOG, 1) + 1), x * WEAK[LOG])),
    global_lru_cache=lambda: of(lambda x: x * doubled(x.shape[0]) + len(REGISTRY)),
    global_lru_cache_info=lambda: of(lambda x: run(doubled(1), x * (1 + doubled.cache_info().misses))),
    global_cache_of_tensors=lambda: of(lambda x: x * table(4)),
    global_cache_cleared=lambda: of(lambda x: run(table.cache_clear(), x * table(4))),
    global_class_attribute=lambda: of(lambda x: run(setattr(Shared, "calls", Shared.calls + 1), x * Shared.calls)),
    global_class_list=lambda: of(lambda x: run(Shared.seen.append(1), x * len(Shared.seen))),
    global_module_hook=lambda: _reset(_adds_global_hook, _no_global_hooks, net=nn.Linear(4, 4)),
    global_imported_before=lambda: _reset(_imports_counter, _counter_zero, begin=True),
    global_builtin_added=lambda: _reset(
        lambda x: run(setattr(__builtins_module(), "odd_word", 2), x * 2),
        lambda: vars(__builtins_module()).pop("odd_word", None),
    ),
    global_numpy_seeded=lambda: of(lambda x: run(np.random.seed(3), x * float(np.random.rand()))),
    global_python_seeded=lambda: of(lambda x: run(random.seed(3), x * random.random())),
    global_torch_state_kept=lambda: of(_replays_random_state),
    hook_forward_fills=lambda: on_linear(lambda m, seen: m.register_forward_hook(lambda *a: add(seen))),
    hook_forward_keeps_output=lambda: on_linear(lambda m, seen: m.register_forward_hook(lambda m, i, o: add(seen, o))),
    hook_forward_keeps_value=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: add(seen, o.sum().item()))
    ),
    hook_forward_scales_by_calls=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: run(add(seen), o * len(seen)))
    ),
    hook_before_forward_fills=lambda: on_linear(lambda m, seen: m.register_forward_pre_hook(lambda m, i: add(seen))),
    hook_before_forward_keyword=lambda: on_linear(
        lambda m, seen: m.register_forward_pre_hook(lambda m, a, k: add(seen), with_kwargs=True)
    ),
    hook_always_called=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: add(seen), always_call=True)
    ),
    hook_full_backward_fills=lambda: on_linear(
        lambda m, seen: m.register_full_backward_hook(lambda m, i, o: add(seen))
    ),
    hook_full_backward_keeps=lambda: on_linear(
        lambda m, seen: m.register_full_backward_hook(lambda m, i, o: add(seen, o[0]))
    ),
    hook_before_backward_fills=lambda: on_linear(
        lambda m, seen: m.register_full_backward_pre_hook(lambda m, o: add(seen))
    ),
    hook_of_parameter_fills=lambda: on_linear(lambda m, seen: m.weight.register_hook(lambda g: add(seen))),
    hook_of_parameter_keeps=lambda: on_linear(lambda m, seen: m.weight.register_hook(lambda g: add(seen, g.norm()))),
    hook_after_accumulation_fills=lambda: on_linear(
        lambda m, seen: m.weight.register_post_accumulate_grad_hook(lambda p: add(seen))
    ),
    hook_in_dict=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: seen.update(a=o.detach())), {}
    ),
    hook_in_counter=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: seen.update(["calls"])), collections.Counter()
    ),
    hook_in_queue=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: seen.put(1)), queue.Queue()
    ),
    hook_in_object=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: run(_counted_attribute(seen), None)),
        types.SimpleNamespace(),
    ),
    hook_in_text=lambda: on_linear(
        lambda m, seen: m.register_forward_hook(lambda m, i, o: run(seen.write("a"), None)), io.StringIO()
    ),
    hook_in_nested_cell=lambda: on_linear(lambda m, seen: m.register_forward_hook(_counting_hook())),
    hook_in_default=lambda: on_linear(lambda m, seen: m.register_forward_hook(_defaulted_hook())),
    hook_is_method=lambda: on_linear(lambda m, seen: m.register_forward_hook(Probe().see)),
    hook_is_partial=lambda: on_linear(lambda m, seen: m.register_forward_hook(functools.partial(_seen_by, seen))),
    hook_removes_itself=lambda: _self_removing(),
    hook_of_state_dict=lambda: on_linear(lambda m, seen: m.register_state_dict_post_hook(lambda *a: add(seen))),
    hook_of_state_dict_called=lambda: _state_dict_called(),
    hook_of_loading=lambda: _loads_inside(),
    hook_on_tensor_inside=lambda: kept(
        list, lambda x, seen: run(y := x * 2, y.register_hook(lambda g: add(seen)), y.sin())
    ),
    hook_on_tensor_scales=lambda: kept(
        lambda: [2], lambda x, n: run(y := x * 2, y.register_hook(lambda g: g * n[0]), y.sin())
    ),
    hook_on_node=lambda: kept(
        list,
        lambda x, seen: run(y := x.sin(), y.grad_fn.register_hook(lambda *g: add(seen)) if y.grad_fn else 0, y * 2),
    ),
    hook_on_several=lambda: kept(list, _multi_hooked),
    hook_on_saved=lambda: kept(list, _saved_seen),
    hook_on_saved_counts=lambda: kept(list, _saved_counted),
    hook_of_optimizer=lambda: _optimizer_hooked(),
    hook_of_optimizer_steps_in_backward=lambda: _steps_in_backward(),
    state_of_batch_norm=lambda: Case(nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None)), randn(3, 4)),
    state_of_spectral_norm=lambda: Case(
        nn.utils.spectral_norm(nn.Linear(4, 4)), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    state_of_spectral_parametrization=lambda: Case(parametrizations.spectral_norm(nn.Linear(4, 4)), randn(3, 4)),
    state_of_spectral_norm_eval=lambda: Case(nn.utils.spectral_norm(nn.Linear(4, 4)).eval(), randn(3, 4)),
    state_of_weight_norm=lambda: Case(parametrizations.weight_norm(nn.Linear(4, 4)), randn(3, 4)),
    state_of_orthogonal=lambda: Case(parametrizations.orthogonal(nn.Linear(4, 4)), randn(3, 4), variants=False),
    state_of_parametrize_counter=lambda: Case(_counting_parametrization(), randn(3, 4)),
    state_of_parametrize_cache=lambda: Case(_cached_parametrization(), randn(3, 4)),
    state_of_pruning=lambda: Case(run(n := nn.Linear(4, 4), prune.l1_unstructured(n, "weight", 3), n), randn(3, 4)),
    state_of_moving_average=lambda: Case(_averaged(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    state_of_moving_average_by_swap=lambda: Case(_averaged_model(), randn(3, 4)),
    state_of_momentum_encoder=lambda: Case(_momentum_encoder(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    state_of_optimizer_inside=lambda: Case(_stepping(torch.optim.SGD, lr=0.1, momentum=0.9), randn(3, 4)),
    state_of_adam_inside=lambda: Case(_stepping(torch.optim.Adam, lr=0.1), randn(3, 4)),
    state_of_schedule_inside=lambda: Case(_scheduled(), randn(3, 4)),
    state_of_plateau_inside=lambda: Case(_plateau(), randn(3, 4)),
    state_of_embedding_renormalised=lambda: Case(nn.Embedding(5, 3, max_norm=0.5), torch.tensor([0, 3, 3])),
    state_of_observer=lambda: Case(
        run(o := torch.ao.quantization.MinMaxObserver(), lambda x: run(o(x), x * o.min_val.abs())), randn(3, 4)
    ),
    state_of_recurrent=lambda: Case(
        bare(lambda s: attributes(s, r=nn.GRUCell(4, 4), h=torch.zeros(3, 4)), _carries), randn(3, 4)
    ),
    state_of_drop_schedule=lambda: Case(module(lambda s: attributes(s, p=0.1), _drops_more), randn(3, 4)),
    state_of_deep_copy=lambda: Case(
        module(lambda s: attributes(s, old=None), _copies_itself), randn(3, 4), gradients=False
    ),
    state_of_pickled=lambda: Case(module(lambda s: attributes(s, log=b""), _pickles), randn(3, 4)),
    state_of_training_flag=lambda: Case(
        module(None, lambda s, x: run(y := x @ s.w * (2 if s.training else 3), s.train(not s.training), y)), randn(3, 4)
    ),
    state_of_requires_grad=lambda: Case(
        module(None, lambda s, x: run(y := x @ s.w, s.w.requires_grad_(not s.w.requires_grad), y)),
        randn(3, 4),
        gradients=False,
    ),
    state_of_grad_attribute=lambda: Case(
        module(None, lambda s, x: run(setattr(s.w, "grad", torch.ones(4, 4)), x @ s.w)), randn(3, 4)
    ),
    state_of_tensor_attribute=lambda: Case(
        module(None, lambda s, x: run(setattr(s.w, "uses", getattr(s.w, "uses", 0) + 1), x @ s.w * s.w.uses)),
        randn(3, 4),
    ),
    state_of_names=lambda: Case(module(lambda s: attributes(s, names={}), _names_parameters), randn(3, 4)),
    state_of_module_order=lambda: Case(
        bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Tanh()), _reorders), randn(3, 4)
    ),
    state_of_fake_counter=lambda: Case(
        module(lambda s: s.register_buffer("n", torch.tensor(0)), _every_other), randn(3, 4)
    ),
)


def _again(q: Any) -> Any:
    value = q.get_nowait()
    q.put(value)
    return value


def _more(view: Any) -> None:
    view[0] += 1


def _file(text: str) -> Any:
    made = tempfile.TemporaryFile("w+", prefix="odd_")  # noqa: SIM115
    made.write(text)
    made.seek(0)
    return made


FOLDERS: list[Any] = []


def _folder() -> Path:
    FOLDERS.append(tempfile.TemporaryDirectory(prefix="odd_"))
    made = Path(FOLDERS[-1].name)
    (made / "log.txt").write_text("a")
    return made


def _noted(folder: Path) -> None:
    (folder / "log.txt").write_text("abc")


def _weak() -> Any:
    return LOG, weakref.WeakKeyDictionary()


def _counted_slot(o: Any) -> int:
    o.here = getattr(o, "here", 1) + 1
    return o.here


def _emptied(o: Any) -> int:
    if not hasattr(o, "late"):
        return 5
    found = o.late
    del o.late
    return found


def _counted_attribute(o: Any) -> int:
    o.n = getattr(o, "n", 1) + 1
    return o.n


def _growing() -> Any:
    n = 1
    while True:
        n += 1
        yield n


def _told() -> Any:
    n = 1
    while True:
        n += yield n


class Remembering:
    """Methods and properties that are computed once."""

    def __init__(self) -> None:
        self.calls = 0

    @functools.lru_cache  # noqa: B019
    def slow(self, n: int) -> int:
        """Counts when it is really called."""
        self.calls += 1
        return n * 2

    @functools.cached_property
    def first(self) -> int:
        """The same."""
        self.calls += 1
        return self.calls + 1


def _with_globals() -> Any:
    space: dict[str, Any] = dict(N=1, __name__="odd.reached")
    exec("def f():\n    global N\n    N += 1\n    return N", space)
    return space["f"]


def _enum() -> Any:
    import enum

    return enum.Enum("Kind", {"A": 1, "B": 2})


def _nothing(*args: Any) -> None:
    return None


def _reset(f: Any, reset: Any, net: Any = None, begin: bool = False) -> Case:
    """A function that changes the process, and what puts it back."""
    if begin:
        _counter_zero()
    if net is not None:
        return Case(lambda x: f(net(x)), randn(3, 4), reset=reset)
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)], reset=reset)


def _adds_global_hook(y: Any) -> Any:
    nn.modules.module.register_module_forward_hook(_nothing)
    return y * len(nn.modules.module._global_forward_hooks)


def _no_global_hooks() -> None:
    nn.modules.module._global_forward_hooks.clear()


SCRATCH = tempfile.TemporaryDirectory(prefix="odd_scratch_")
(Path(SCRATCH.name) / "odd_scratch_counter.py").write_text("N = 1\nSEEN = []\n")
sys.path.append(SCRATCH.name)


def _imports_counter(x: Any) -> Any:
    module_ = importlib.import_module("odd_scratch_counter")
    module_.N += 1
    module_.SEEN.append(module_.N)
    return x * module_.N + len(module_.SEEN)


def _counter_zero() -> None:
    module_ = importlib.import_module("odd_scratch_counter")
    module_.N = 1
    module_.SEEN.clear()


def __builtins_module() -> Any:
    import builtins

    return builtins


def _replays_random_state(x: Any) -> Any:
    state = torch.get_rng_state()
    a = torch.rand(4)
    torch.set_rng_state(state)
    return x * a + torch.rand(4)


def _counting_hook() -> Any:
    n = 0

    def hook(m, i, o):
        nonlocal n
        n += 1
        return o * n

    return hook


def _defaulted_hook() -> Any:
    def hook(m, i, o, seen=[]):  # noqa: B006
        seen.append(1)
        return o * len(seen)

    return hook


class Probe:
    """Sees what passes."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def see(self, m: Any, i: Any, o: Any) -> None:
        """Keeps it."""
        self.seen.append(o.detach())


def _seen_by(seen: Any, m: Any, i: Any, o: Any) -> None:
    seen.append(o.shape)


def _self_removing() -> Case:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def hook(m, i, o):
        handle.remove()
        return o * 3

    handle = net[0].register_forward_hook(hook)
    return Case(net, randn(3, 4))


def _state_dict_called() -> Case:
    seen: list[Any] = []
    net = nn.Linear(4, 4)
    net.register_state_dict_pre_hook(lambda *a: seen.append(1))
    return Case(lambda x: net(x) * (1 + len(net.state_dict())) + len(seen), randn(3, 4))


def _loads_inside() -> Case:
    seen: list[Any] = []
    net = nn.Linear(4, 4)
    net.register_load_state_dict_post_hook(lambda *a: seen.append(1))
    state = {k: v * 2 for k, v in net.state_dict().items()}
    return Case(lambda x: run(net.load_state_dict(state), net(x) * len(seen)), randn(3, 4))


def _multi_hooked(x: Any, seen: Any) -> Any:
    a, b = x.sin(), x.cos()
    if a.requires_grad:
        torch.autograd.graph.register_multi_grad_hook([a, b], lambda grads: seen.append(len(grads)))
    return a * b


def _saved_seen(x: Any, seen: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: run(seen.append(t.shape), t), lambda t: t):
        return x.sin() * x.exp()


def _saved_counted(x: Any, seen: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: run(seen.append(1), t * len(seen))):
        return x.sin()


def _optimizer_hooked() -> Case:
    seen: list[Any] = []
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    opt.register_step_post_hook(lambda *a: seen.append(1))

    def step(x):
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach() * len(seen)

    return Case(step, randn(3, 4))


def _steps_in_backward() -> Case:
    net = nn.Linear(4, 1)
    opts = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

    def hook(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    return Case(step, randn(3, 4))


def _counting_parametrization() -> nn.Module:
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, w):
            self.calls += 1
            return w * self.calls

    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", Counting())
    net.parametrizations.weight[0].calls = 0
    return net


def _cached_parametrization() -> nn.Module:
    class Noisy(nn.Module):
        def forward(self, w):
            return w * 2

    def forward(self, x):
        with parametrize.cached():
            return self.l(x) + self.l(x)

    return bare(
        lambda s: attributes(
            s, l=run(n := nn.Linear(4, 4), parametrize.register_parametrization(n, "weight", Noisy()), n)
        ),
        forward,
    )


def _averaged() -> nn.Module:
    def init(self):
        self.register_buffer("mean", torch.zeros(4))
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        self.mean.lerp_(x.detach().mean(0), 1 / self.steps)
        return (x - self.mean) @ self.w

    return module(init, forward)


def _averaged_model() -> Any:
    net = nn.Linear(4, 4)
    mean = torch.optim.swa_utils.AveragedModel(net)

    def f(x):
        mean.update_parameters(net)
        return mean(x) + net(x)

    return f


def _momentum_encoder() -> nn.Module:
    def init(self):
        self.a = nn.Linear(4, 4)
        self.b = copy.deepcopy(self.a).requires_grad_(False)
        self.bank = collections.deque(maxlen=2)

    @torch.no_grad()
    def update(self):
        for p, q in zip(self.a.parameters(), self.b.parameters(), strict=True):
            q.mul_(0.9).add_(p, alpha=0.1)

    def forward(self, x):
        self.update()
        with torch.no_grad():
            self.bank.append(self.b(x))
        return self.a(x) * sum(self.bank)

    return bare(init, forward, update=update)


def _stepping(make: Any, **settings: Any) -> nn.Module:
    def init(self):
        self.l = nn.Linear(4, 1)
        self.opt = make(self.l.parameters(), **settings)

    def forward(self, x):
        self.opt.zero_grad()
        with torch.enable_grad():
            loss = self.l(x).square().mean()
            loss.backward()
        self.opt.step()
        return loss.detach()

    return bare(init, forward)


def _scheduled() -> Any:
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)

    def step(x):
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        schedule.step()
        return loss.detach() * schedule.get_last_lr()[0]

    return step


def _plateau() -> Any:
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)

    def step(x):
        opt.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        opt.step()
        schedule.step(loss.item())
        return loss.detach()

    return step


def _carries(self: Any, x: Any) -> Any:
    self.h = self.r(x, self.h).detach()
    return self.r(x, self.h)


def _drops_more(self: Any, x: Any) -> Any:
    self.p = min(0.5, self.p + 0.1)
    return F.dropout(x @ self.w, self.p)


def _copies_itself(self: Any, x: Any) -> Any:
    self.old = None
    self.old = copy.deepcopy(self)
    return x @ self.w + x @ self.old.w


def _pickles(self: Any, x: Any) -> Any:
    self.log = pickle.dumps({"shape": tuple(x.shape), "n": len(self.log)})
    return x @ self.w * len(self.log)


def _names_parameters(self: Any, x: Any) -> Any:
    for name, p in self.named_parameters():
        self.names[p] = name
    return x @ self.w * len(self.names)


def _reorders(self: Any, x: Any) -> Any:
    for child in list(self.children()):
        x = child(x)
    self._modules["a"] = self._modules.pop("a")
    return x


def _every_other(self: Any, x: Any) -> Any:
    self.n += 1
    return x @ self.w if self.n % 2 else x.sin() @ self.w
