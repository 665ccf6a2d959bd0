"""Arguments that are no tensors, that are left out, or that share memory; and how a program is called."""

import collections
import dataclasses
import enum
import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from case import Call, Case, attributes, bare, many, module, program, rand, randn
from torch import nn


class Config:
    """An object whose text says nothing of what it holds."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def __repr__(self) -> str:
        return "Config()"


class EqualConfig(Config):
    """An object that is equal to every other of its class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualConfig)

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass
class Options:
    """Numbers."""

    k: float
    name: str = "a"


@dataclasses.dataclass
class Batch:
    """Tensors."""

    x: Any
    y: Any
    scale: float = 2.0


class Mode(enum.Enum):
    """An enumeration."""

    DOUBLE = 2
    TRIPLE = 3


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Text(str):
    """A string with more in it."""

    k = 1


def with_(value: Any, use: Any, *other_values: Any) -> Case:
    """x and a value that is no tensor; also with other values."""
    return Case(use, (randn(3, 4), value), others=[(randn(3, 4), v) for v in other_values], variants=False)


def aliased(make: Any) -> tuple:
    """Arguments made of one tensor."""
    return make(torch.ones(4) * 3)


def together(f: Any, *calls: Any) -> Case:
    """A program on several tensors that may share memory, without gradients; the first call is captured."""
    return Case(f, calls[0], options=dict(requires_grad=False), others=list(calls[1:]), variants=False)


def _two(a: Any, b: Any) -> Any:
    return a.mul_(2) * b


many(
    __name__,
    default_left_out=lambda: Case(
        lambda x, k=1: x * k, (randn(3), 3), others=[(randn(3),), (randn(3), 1), (randn(3), 3.0)]
    ),
    default_given=lambda: Case(
        lambda x, k=1: x * k, randn(3), others=[(randn(3), 3), (randn(3), 1), Call((randn(3),), dict(k=1))]
    ),
    number=lambda: with_(2, lambda x, k: x * k, 3, 2.0, True),
    float_number=lambda: with_(0.5, lambda x, k: x * k, 0.25, 0.5),
    not_a_number=lambda: with_(float("nan"), lambda x, k: x * (2 if k != k else 3), 1.0, float("nan")),
    infinity=lambda: with_(float("inf"), lambda x, k: x.clamp(max=k), 0.1, float("-inf")),
    negative_zero=lambda: with_(-0.0, lambda x, k: x * (2 if str(k)[0] == "-" else 3), 0.0),
    one_or_true=lambda: with_(1, lambda x, k: x * (2 if k is True else 3), True, 1.0),
    true_or_one=lambda: with_(True, lambda x, k: x * (2 if k is True else 3), 1),
    zero_or_false=lambda: with_(0, lambda x, k: x * (2 if k is False else 3), False, None),
    float_or_int=lambda: with_(2, lambda x, k: x * (2 if isinstance(k, int) else 3), 2.0),
    big_number=lambda: with_(2**70, lambda x, k: x * (k % 7), 2**70 + 1),
    complex_number=lambda: with_(1j, lambda x, k: x * k, 2j),
    text=lambda: with_("double", lambda x, k: x * 2 if k == "double" else x * 3, "triple"),
    long_text=lambda: with_("a" * 300, lambda x, s: x * len(s.strip("a")) + 1, "a" * 250 + "b" * 50),
    text_of_a_subclass=lambda: with_(attributes(Text("a"), k=2), lambda x, s: x * s.k, attributes(Text("a"), k=3)),
    raw_bytes=lambda: with_(b"ab", lambda x, s: x * s[0], b"bb"),
    nothing=lambda: with_(None, lambda x, k: x if k is None else x * k, 3, 0),
    nothing_or_missing=lambda: Case(_nothing_or_missing, (randn(3), None), others=[(randn(3),)]),
    list_of_numbers=lambda: with_([1, 2], lambda x, k: x * sum(k), [1], [2, 1], [1, 2, 0], (1, 2)),
    list_or_tuple=lambda: with_([1, 2], lambda x, k: x * (2 if isinstance(k, list) else 3), (1, 2)),
    nested_lists=lambda: with_([[1], [2, 3]], lambda x, k: x * k[1][0], [[1, 2], [3]]),
    dict_of_numbers=lambda: with_(
        {"a": 1, "b": 2}, lambda x, k: x * k["b"], {"a": 1, "b": 3}, {"b": 2}, {"b": 2, "a": 1}
    ),
    dict_in_order=lambda: with_({"a": 1, "b": 2}, lambda x, k: x * next(iter(k.values())), {"b": 2, "a": 1}),
    dict_of_odd_keys=lambda: with_({(1, "a"): 2, None: 3}, lambda x, k: x * k[None], {(1, "a"): 2, None: 4}),
    set_of_numbers=lambda: with_({1, 2}, lambda x, k: x * len(k), {1, 2, 3}),
    range_argument=lambda: with_(range(3), lambda x, k: x * sum(k), range(4), range(0, 3, 2)),
    slice_argument=lambda: with_(slice(0, 2), lambda x, k: x[k] * 2, slice(1, 2)),
    ellipsis_argument=lambda: with_(..., lambda x, k: x[k] * 2, slice(0, 1)),
    enum_argument=lambda: with_(Mode.DOUBLE, lambda x, k: x * k.value, Mode.TRIPLE),
    dtype_argument=lambda: with_(torch.float64, lambda x, k: x.to(k), torch.float16),
    device_argument=lambda: with_(torch.device("cpu"), lambda x, k: x.to(k) * 2),
    shape_argument=lambda: with_(torch.Size([4, 3]), lambda x, k: x.reshape(k), torch.Size([2, 6])),
    memory_format_argument=lambda: with_(
        torch.preserve_format, lambda x, k: x.clone(memory_format=k), torch.contiguous_format
    ),
    function_argument=lambda: with_(torch.sin, lambda x, k: k(x), torch.cos),
    lambda_argument=lambda: with_(lambda v: v * 2, lambda x, k: k(x), lambda v: v * 3),
    partial_argument=lambda: with_(
        functools.partial(torch.mul, other=2), lambda x, k: k(x), functools.partial(torch.mul, other=3)
    ),
    method_argument=lambda: with_(Config(2).__init__, lambda x, k: x * k.__self__.k, Config(3).__init__),
    class_argument=lambda: with_(nn.ReLU, lambda x, k: k()(x), nn.Tanh),
    module_argument=lambda: with_(nn.ReLU(), lambda x, k: k(x), nn.Tanh()),
    object_argument=lambda: with_(Config(2), lambda x, k: x * k.k, Config(3)),
    object_with_own_equality=lambda: with_(EqualConfig(2), lambda x, k: x * k.k, EqualConfig(3)),
    namespace_argument=lambda: with_(SimpleNamespace(k=2), lambda x, k: x * k.k, SimpleNamespace(k=3)),
    dataclass_of_numbers=lambda: with_(Options(2.0), lambda x, k: x * k.k, Options(3.0), Options(2.0, "b")),
    dataclass_of_tensors=lambda: Case(
        lambda b: b.x * b.y * b.scale,
        Batch(randn(3), randn(3, seed=2)),
        others=[Batch(randn(3, seed=3), randn(3)), Batch(randn(3), randn(3), 5.0)],
        gradients=False,
    ),
    object_of_tensors=lambda: Case(
        lambda b: b.k * 2, Config(randn(3)), others=[Config(randn(3, seed=3))], gradients=False
    ),
    namedtuple_of_tensors=lambda: Case(
        lambda p: p.x * p.y, Point(randn(3), randn(3, seed=2)), others=[Point(randn(3, seed=4), randn(3))]
    ),
    namedtuple_or_tuple=lambda: Case(
        lambda p: p[0] * (2 if hasattr(p, "x") else 3), (Point(randn(3), randn(3)),), others=[((randn(3), randn(3)),)]
    ),
    ordered_dict_of_tensors=lambda: Case(
        lambda d: next(iter(d.values())) * 2,
        collections.OrderedDict(b=randn(3), a=randn(3, seed=2)),
        others=[collections.OrderedDict(a=randn(3, seed=2), b=randn(3))],
    ),
    dict_of_tensors_in_order=lambda: Case(
        lambda d: next(iter(d.values())) * 2 + 0 * d["a"],
        {"b": randn(3), "a": randn(3, seed=2)},
        others=[{"a": randn(3, seed=2), "b": randn(3)}],
    ),
    default_dict_of_tensors=lambda: Case(
        lambda d: d["a"] * 2 + d["z"],
        collections.defaultdict(lambda: 1, a=randn(3)),
        others=[collections.defaultdict(lambda: 2, a=randn(3))],
    ),
    deque_of_tensors=lambda: Case(lambda q: q[0] * q[1], collections.deque([randn(3), randn(3, seed=2)])),
    list_of_tensors_longer=lambda: Case(
        lambda ts: sum(ts) * len(ts),
        ([randn(3), randn(3, seed=2)],),
        others=[([randn(3)],), ([randn(3), randn(3), randn(3)],), ((randn(3), randn(3)),)],
    ),
    list_that_is_changed=lambda: Case(_changes_list, ([randn(3), randn(3, seed=2)],), variants=False),
    dict_that_is_changed=lambda: Case(_changes_dict, ({"a": randn(3)},), variants=False),
    dict_with_the_keys_of_python=lambda: Case(
        lambda d: d["class"] * d["for"] + d["None"],
        {"class": randn(3), "for": randn(3, seed=2), "None": randn(3, seed=3)},
    ),
    dict_with_odd_names=lambda: Case(
        lambda d: d["a.b"] * d["a b"] + d[""] + d["ä-ö"] + d["1"] + d["a"]["b"],
        {
            "a.b": randn(3),
            "a b": randn(3, seed=2),
            "": randn(3, seed=3),
            "ä-ö": randn(3, seed=4),
            "1": randn(3, seed=5),
            "a": {"b": randn(3, seed=6)},
        },
    ),
    dict_with_numbers_for_keys=lambda: Case(lambda d: d[0] * d["0"], {0: randn(3), "0": randn(3, seed=2)}),
    numpy_array=lambda: with_(np.ones(4, np.float32), lambda x, a: x * torch.from_numpy(a), np.zeros(4, np.float32)),
    numpy_array_big=lambda: with_(
        np.zeros(5000), lambda x, a: x * float(a.sum()) + x, np.r_[np.zeros(2500), 1, np.zeros(2499)]
    ),
    numpy_scalar=lambda: with_(np.float32(2), lambda x, k: x * k, np.float32(3)),
    empty_list=lambda: Case(lambda x, k: x * (len(k) + 1), (randn(3), []), others=[(randn(3), [1])]),
    empty_dict=lambda: Case(lambda x, d: x * (len(d) + 1), (randn(3), {}), others=[(randn(3), {"a": 1})]),
    generator_argument=lambda: Case(
        lambda x, g: x * torch.rand(3, generator=g), (randn(3), torch.Generator().manual_seed(3)), variants=False
    ),
    iterator_argument=lambda: Case(lambda x, i: x * next(i), (randn(3), iter([2, 3, 5])), variants=False),
    string_keys_by_keyword=lambda: Case(
        lambda x, **kw: x * kw["k"],
        randn(3),
        dict(k=2),
        others=[Call((randn(3),), dict(k=3)), Call((randn(3),), dict(k=2, j=1))],
    ),
    star_arguments=lambda: Case(
        lambda *xs: xs[0] * len(xs), (randn(3), randn(3)), others=[(randn(3),), (randn(3), randn(3), randn(3))]
    ),
    star_numbers=lambda: Case(
        lambda x, *ks: x * sum(ks), (randn(3), 1, 2), others=[(randn(3), 1), (randn(3), 2, 1), (randn(3), 1, 2, 0)]
    ),
    keyword_only=lambda: Case(
        lambda x, *, k=2: x * k, randn(3), dict(k=3), others=[Call((randn(3),), {}), Call((randn(3),), dict(k=2))]
    ),
    positional_only=lambda: Case(lambda x, k, /: x * k, (randn(3), 3), others=[(randn(3), 4)]),
    keyword_in_place_of_position=lambda: Case(
        lambda x, k: x * k, (randn(3), 3), others=[Call((randn(3),), dict(k=3)), Call((), dict(k=3, x=randn(3)))]
    ),
    tensor_by_keyword=lambda: Case(
        lambda x, y: x * y, (randn(3),), dict(y=randn(3, seed=2)), others=[(randn(3), randn(3, seed=4))]
    ),
    tensor_or_number=lambda: Case(
        lambda x, k: x * k, (randn(3), torch.tensor(2.0)), others=[(randn(3), 2.0), (randn(3), 3.0)]
    ),
    number_or_tensor=lambda: Case(
        lambda x, k: x * k, (randn(3), 2.0), others=[(randn(3), torch.tensor(3.0)), (randn(3), torch.tensor(2.0))]
    ),
    tensor_or_none=lambda: Case(
        lambda x, y=None: x if y is None else x * y, (randn(3), randn(3)), others=[(randn(3),), (randn(3), None)]
    ),
    none_or_tensor=lambda: Case(
        lambda x, y=None: x if y is None else x * y, (randn(3), None), others=[(randn(3), randn(3)), (randn(3),)]
    ),
    update_apart_or_same=lambda: together(
        _two, (torch.ones(3), torch.ones(3)), aliased(lambda t: (t, t)), aliased(lambda t: (t[:3], t[1:]))
    ),
    update_same_or_apart=lambda: together(
        _two, aliased(lambda t: (t, t)), (torch.ones(4), torch.ones(4)), aliased(lambda t: (t, t.view(4)))
    ),
    update_overlap_or_apart=lambda: together(
        _two, aliased(lambda t: (t[:3], t[1:])), (torch.ones(3), torch.ones(3)), aliased(lambda t: (t[1:], t[:3]))
    ),
    update_of_a_view_and_its_base=lambda: together(
        lambda v, b: (v.mul_(2), b * b.sum()),
        aliased(lambda t: (t[:2], t)),
        (torch.ones(2), torch.ones(4)),
        aliased(lambda t: (t[2:], t)),
    ),
    update_of_a_base_and_its_view=lambda: together(
        lambda b, v: (b.mul_(2), v * v.sum()), aliased(lambda t: (t, t[:2])), (torch.ones(4), torch.ones(2))
    ),
    update_of_a_view_of_the_outside=lambda: _view_of_the_outside(),
    update_of_the_outside_alone=lambda: _update_outside(),
    update_of_a_transposed_pair=lambda: together(
        lambda a, b: a.add_(1) + b, (lambda t: (t, t.t()))(randn(3, 3)), (randn(3, 3), randn(3, 3, seed=2))
    ),
    update_of_an_expanded=lambda: together(
        lambda a: a[0].mul_(2) * a, (torch.ones(3, 2),), (torch.ones(1, 2).expand(3, 2).clone(),)
    ),
    input_expanded=lambda: Case(lambda x: x * 2, randn(1, 4).expand(3, 4), others=[randn(3, 4)]),
    input_sliced=lambda: Case(lambda x: x * 2, randn(6, 4)[::2], others=[randn(3, 4)]),
    input_flipped_strides=lambda: Case(lambda x: (x * 2).view(-1), randn(3, 4), others=[randn(4, 3).t()]),
    input_viewed_as_strided=lambda: Case(
        lambda x: x.as_strided((2, 2), (1, 2)) * 2, randn(3, 4), others=[randn(4, 3).t(), randn(6, 4)[::2]]
    ),
    input_channels_last=lambda: Case(
        lambda x: x.flatten().cumsum(0),
        randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
        others=[randn(2, 3, 2, 2)],
    ),
    two_inputs_that_are_one=lambda: Case(
        lambda a, b: a * b, (lambda t: (t, t))(randn(3)), others=[(randn(3), randn(3, seed=2))]
    ),
    two_inputs_that_overlap=lambda: Case(
        lambda a, b: a * b, aliased(lambda t: (t[:3], t[1:])), others=[(randn(3), randn(3, seed=2))]
    ),
    two_inputs_that_are_one_leaf=lambda: Case(
        lambda a, b: a * b.sin(),
        (lambda t: (t, t))(randn(3).requires_grad_()),
        others=[(randn(3).requires_grad_(), randn(3, seed=2).requires_grad_())],
    ),
    input_is_a_buffer_of_the_module=lambda: _own_buffer(),
    named_like_option_name=lambda: Case(lambda x, name: x * name, (randn(3), 2), others=[(randn(3), 3)]),
    named_like_option_state=lambda: Case(
        lambda x, state: x * state, (randn(3), randn(3, seed=2)), others=[(randn(3), randn(3, seed=4))]
    ),
    named_like_option_mode=lambda: Case(lambda x, mode: x * mode, (randn(3), 2), others=[(randn(3), 3)]),
    named_like_option_loss=lambda: Case(
        lambda x, loss: x * loss, (randn(3), randn(3, seed=2)), others=[(randn(3), randn(3, seed=4))]
    ),
    named_like_option_engine=lambda: Case(lambda engine, tangents: engine * tangents, (randn(3), randn(3, seed=2))),
    named_like_option_dynamic=lambda: Case(
        lambda dynamic, requires_grad: dynamic * requires_grad, (randn(3), 2), others=[(randn(3), 3)]
    ),
    named_like_parts=lambda: Case(lambda output, tangent_output: output * tangent_output, (randn(3), randn(3, seed=2))),
    named_like_saved=lambda: Case(
        lambda mul, t, sin: (mul * t).sin() * sin, (randn(3), randn(3, seed=2), randn(3, seed=3))
    ),
    named_like_python=lambda: Case(
        lambda torch, aten, self: torch * aten + self, (randn(3), randn(3, seed=2), randn(3, seed=3))
    ),
    named_like_capture=lambda: Case(
        lambda capture, target, args: capture * target + args, (randn(3), randn(3, seed=2), randn(3, seed=3))
    ),
    named_in_greek=lambda: Case(lambda α, β: α * β, (randn(3), randn(3, seed=2))),
    named_with_underscores=lambda: Case(lambda _, __, _x: _ * __ + _x, (randn(3), randn(3, seed=2), randn(3, seed=3))),
    parameter_and_argument_of_one_name=lambda: Case(
        module(None, lambda self, x, w: x @ self.w * w),
        (randn(3, 4), randn(4, seed=2)),
        others=[(randn(3, 4), randn(4, seed=5))],
    ),
    buffer_and_argument_of_one_name=lambda: Case(
        bare(lambda s: s.register_buffer("mask", torch.ones(4)), lambda self, x, mask: x * mask * self.mask),
        (randn(3, 4), torch.ones(4)),
        others=[(randn(3, 4), torch.zeros(4))],
    ),
    nested_and_flat_of_one_name=lambda: Case(
        lambda a, b: a["b"] * b["a.b"] + a["c"], ({"b": randn(3), "c": randn(3, seed=3)}, {"a.b": randn(3, seed=2)})
    ),
    star_and_name_of_one_name=lambda: Case(
        lambda *xs, **kw: xs[0] * kw["xs.0"], (randn(3),), {"xs.0": randn(3, seed=2)}
    ),
)


MISSING = object()


def _nothing_or_missing(x: Any, k: Any = MISSING) -> Any:
    return x * 2 if k is None else x * 3


def _changes_list(ts: Any) -> Any:
    ts[0] = ts[0] * 2
    ts.append(ts[1] * 3)
    return sum(ts)


def _changes_dict(d: Any) -> Any:
    d["b"] = d.pop("a") * 2
    return d["b"] * 3


def _view_of_the_outside() -> Case:
    base = torch.randn(6)

    def f(v):
        v.mul_(2)
        return base * base.sum()

    return Case(f, base[:3], options=dict(requires_grad=False), others=[base[3:], torch.ones(3)], variants=False)


def _update_outside() -> Case:
    base = torch.randn(3)

    def f(v):
        base.mul_(2)
        return v * base

    return Case(f, torch.randn(3), options=dict(requires_grad=False), others=[base])


def _own_buffer() -> Case:
    def forward(self, x):
        self.b.mul_(2)
        return x * self.b

    net = bare(lambda s: s.register_buffer("b", torch.ones(3) * 3), forward)
    return Case(net, net.b, options=dict(requires_grad=False), others=[torch.ones(3)])


@program
def calls_bound_method() -> Case:
    net = attributes(module(None, lambda self, x: x), marker=1)

    def score(self, x):
        return x @ self.w

    return Case(score.__get__(net), randn(3, 4))


@program
def calls_method_of_a_plain_object() -> Case:
    class Model:
        def __init__(self):
            self.net = nn.Linear(4, 4)

        def run(self, x):
            return self.net(x)

    return Case(Model().run, randn(3, 4))


@program
def calls_partial() -> Case:
    return Case(functools.partial(lambda x, y, k: x * y * k, k=3), (randn(3), randn(3, seed=2)))


@program
def calls_partial_of_a_tensor() -> Case:
    return Case(functools.partial(lambda y, x: x * y, randn(3, seed=2)), randn(3))


@program
def calls_partial_of_a_module() -> Case:
    return Case(functools.partial(nn.Linear(4, 4)), randn(3, 4))


@program
def calls_static_method() -> Case:
    class Model:
        @staticmethod
        def run(x):
            return x.sin()

    return Case(Model.run, randn(3))


@program
def calls_class_method_that_changes() -> Case:
    class Model:
        count = 0

        @classmethod
        def run(cls, x):
            cls.count += 1
            return x * cls.count

    return Case(Model.run, randn(3))


@program
def calls_wrapped() -> Case:
    def twice(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return inner

    @twice
    def f(x, k=3):
        return x * k

    return Case(f, randn(3), others=[(randn(3), 4), Call((randn(3),), dict(k=3))])


@program
def calls_no_grad_decorated() -> Case:
    return Case(torch.no_grad()(lambda x: x * 2), randn(3))


@program
def calls_builtin() -> Case:
    return Case(torch.sin, randn(3))


@program
def calls_tensor_method() -> Case:
    return Case(torch.Tensor.sin, randn(3))


@program
def calls_torch_function_with_two() -> Case:
    return Case(torch.add, (randn(3), randn(3, seed=2)))


@program
def calls_module_list_item() -> Case:
    return Case(nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])[0], randn(3, 4))


@program
def calls_module_with_lists_and_dicts() -> Case:
    def init(self):
        self.stack = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.heads = nn.ModuleDict({"class": nn.Linear(4, 2), "x y": nn.Linear(4, 3)})

    def forward(self, x, head):
        for layer in self.stack:
            x = layer(x).relu()
        return self.heads[head](x)

    return Case(bare(init, forward), (randn(3, 4), "class"), others=[(randn(3, 4), "x y")])


@program
def calls_compiled() -> Case:
    return Case(torch.compile(lambda x: x.sin() * 2, backend="eager"), randn(3))


@program
def calls_compiled_inside() -> Case:
    inner = torch.compile(lambda x: x.sin() * 2, backend="eager")
    return Case(lambda x: inner(x) + 1, randn(3))


@program
def calls_scripted() -> Case:
    return Case(torch.jit.script(nn.Linear(4, 4)), randn(3, 4))


@program
def calls_traced_inside() -> Case:
    inner = torch.jit.trace(lambda x: x.sin() * 2, randn(3))
    return Case(lambda x: inner(x) + 1, randn(3))


@program
def calls_module_call_overridden() -> Case:
    class Net(nn.Linear):
        def __call__(self, x):
            return super().__call__(x) * 2

    return Case(Net(4, 4), randn(3, 4))


@program
def calls_recursively() -> Case:
    def f(x, n):
        return x if n == 0 else f(x.sin(), n - 1) * 2

    return Case(f, (randn(3), 4), others=[(randn(3), 3)])


@program
def calls_generator_function() -> Case:
    def parts(x):
        for row in x:
            yield row * 2

    return Case(lambda x: torch.stack(list(parts(x))), randn(3, 4))


@program
def calls_coroutine() -> Case:
    import asyncio

    async def inner(x):
        await asyncio.sleep(0)
        return x.sin()

    return Case(lambda x: asyncio.run(inner(x)), randn(3))


@program
def calls_by_exec() -> Case:
    space: dict[str, Any] = {}
    exec("def f(x, k=2):\n    return x * k", space)
    return Case(space["f"], randn(3))


@program
def calls_with_mode_eval() -> Case:
    return Case(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval(), rand(3, 4))


@program
def calls_overloaded_dunder() -> Case:
    class Model:
        def __init__(self):
            self.scale = 3

        def __call__(self, x, *rest, **more):
            return x * self.scale + sum(rest) + sum(more.values())

    return Case(
        Model(), (randn(3), 1), dict(a=2), others=[Call((randn(3), 2), dict(a=2)), Call((randn(3), 1), dict(b=2))]
    )
