"""Parameters that are reached by another way than the module's own attribute."""

import collections
import dataclasses
import functools
import itertools
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
from case import Case, attributes, bare, many, module, program, randn
from torch import nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize

GLOBAL_WEIGHT = nn.Parameter(randn(4, 4, seed=3))
GLOBAL_MODULE = nn.Linear(4, 4)
GLOBAL_LIST = [nn.Parameter(randn(4, 4, seed=4))]


class Pair(NamedTuple):
    """A named tuple that holds a parameter."""

    weight: Any
    scale: float


@dataclasses.dataclass
class Holder:
    """A dataclass that holds a parameter."""

    weight: Any
    scale: float = 2.0


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("weight",)

    def __init__(self, weight: Any) -> None:
        self.weight = weight


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, x: Any) -> Any:
        """The symmetric part."""
        return x.triu() + x.triu(1).transpose(-1, -2)


def reached(put: Any, get: Any) -> Case:
    """A module that puts its parameter somewhere and multiplies with what it gets from there."""

    def forward(self: Any, x: Any) -> Any:
        return x @ get(self)

    return Case(module(put, forward), randn(3, 4))


many(
    __name__,
    reached_by_list=lambda: reached(lambda s: attributes(s, ws=[s.w]), lambda s: s.ws[0]),
    reached_by_tuple=lambda: reached(lambda s: attributes(s, ws=(1, s.w)), lambda s: s.ws[1]),
    reached_by_dict=lambda: reached(lambda s: attributes(s, ws={"a": s.w}), lambda s: s.ws["a"]),
    reached_by_nested=lambda: reached(
        lambda s: attributes(s, ws={"a": [{"b": (s.w,)}]}), lambda s: s.ws["a"][0]["b"][0]
    ),
    reached_by_lambda=lambda: reached(lambda s: attributes(s, get=lambda: s.w), lambda s: s.get()),
    reached_by_default_of_lambda=lambda: reached(lambda s: attributes(s, get=lambda w=s.w: w * 1), lambda s: s.get()),
    reached_by_weakref=lambda: reached(lambda s: attributes(s, ref=weakref.ref(s.w)), lambda s: s.ref()),
    reached_by_namespace=lambda: reached(lambda s: attributes(s, o=types.SimpleNamespace(w=s.w)), lambda s: s.o.w),
    reached_by_deque=lambda: reached(lambda s: attributes(s, q=collections.deque([s.w])), lambda s: s.q[0]),
    reached_by_namedtuple=lambda: reached(lambda s: attributes(s, p=Pair(s.w, 2.0)), lambda s: s.p.weight * s.p.scale),
    reached_by_dataclass=lambda: reached(lambda s: attributes(s, h=Holder(s.w)), lambda s: s.h.weight * s.h.scale),
    reached_by_slots=lambda: reached(lambda s: attributes(s, h=Slotted(s.w)), lambda s: s.h.weight),
    reached_by_mapping_proxy=lambda: reached(
        lambda s: attributes(s, m=types.MappingProxyType({"w": s.w})), lambda s: s.m["w"]
    ),
    reached_by_object_array=lambda: reached(
        lambda s: attributes(s, a=[np.array([None, s], dtype=object)[1:]]), lambda s: s.a[0][0].w
    ),
    reached_by_optimizer_groups=lambda: reached(
        lambda s: attributes(s, opt=torch.optim.SGD([s.w], 0.1)), lambda s: s.opt.param_groups[0]["params"][0]
    ),
    reached_by_view_made_before=lambda: reached(lambda s: attributes(s, t=[s.w.t()]), lambda s: s.t[0]),
    reached_by_view_as_attribute=lambda: reached(lambda s: attributes(s, t=s.w.t()), lambda s: s.t),
    reached_by_data_alias=lambda: reached(lambda s: attributes(s, d=s.w.data), lambda s: s.w + s.d),
    reached_by_detached_alias=lambda: reached(lambda s: attributes(s, d=s.w.detach()[:, 0]), lambda s: s.w * s.d),
    reached_by_next_parameters=lambda: reached(None, lambda s: next(s.parameters())),
    reached_by_named_parameters=lambda: reached(None, lambda s: dict(s.named_parameters())["w"]),
    reached_by_get_parameter=lambda: reached(None, lambda s: s.get_parameter("w")),
    reached_by_registry=lambda: reached(None, lambda s: s._parameters["w"]),
    reached_by_getattr_text=lambda: reached(None, lambda s: getattr(s, "".join(["", "w"]))),
    reached_by_state_dict=lambda: reached(None, lambda s: s.w + s.state_dict()["w"]),
    reached_by_vars=lambda: reached(lambda s: s.__dict__.update(alias=s.w), lambda s: vars(s)["alias"]),
    reached_by_sorted_set=lambda: reached(
        lambda s: attributes(s, ws={s.w, s.__dict__.setdefault("z", 0)} - {0}), lambda s: next(iter(s.ws))
    ),
    reached_by_lru_cache=lambda: reached(
        lambda s: attributes(s, cached=functools.lru_cache(lambda: s.w)), lambda s: s.cached()
    ),
    reached_by_second_name=lambda: reached(lambda s: attributes(s, again=s.w), lambda s: s.w @ s.again),
    reached_by_parameter_list=lambda: reached(lambda s: attributes(s, ps=nn.ParameterList([s.w])), lambda s: s.ps[0]),
    reached_by_parameter_dict=lambda: reached(
        lambda s: attributes(s, ps=nn.ParameterDict({"a": s.w})), lambda s: s.ps.a
    ),
    reached_by_vector=lambda: reached(None, lambda s: nn.utils.parameters_to_vector(s.parameters()).view(4, 4)),
    reached_by_chain=lambda: reached(None, lambda s: next(itertools.chain([], s.parameters()))),
    reached_by_id_table=lambda: reached(lambda s: attributes(s, t={id(s.w): s.w}), lambda s: s.t[id(s.w)]),
    reached_by_own_list_of_modules=lambda: reached(
        lambda s: attributes(s, hidden=[nn.Linear(4, 4, bias=False)]), lambda s: s.hidden[0].weight + s.w
    ),
    reached_by_dict_of_modules=lambda: reached(
        lambda s: attributes(s, hidden={"a": nn.Linear(4, 4, bias=False)}), lambda s: s.hidden["a"].weight * s.w
    ),
)


@program
def penalty_over_a_kept_list() -> Case:
    def init(self):
        self.l = nn.Linear(4, 1)
        self.reg = list(self.parameters())

    def forward(self, x):
        return self.l(x).square().mean() + 0.1 * sum(p.square().sum() for p in self.reg)

    return Case(bare(init, forward), randn(3, 4))


@program
def penalty_over_own_parameters() -> Case:
    def forward(self, x):
        return self.l(x).square().mean() + 0.1 * sum(p.square().sum() for p in self.parameters())

    return Case(bare(lambda s: attributes(s, l=nn.Linear(4, 1)), forward), randn(3, 4))


@program
def partial_with_a_parameter() -> Case:
    net = module(lambda s: attributes(s, f=functools.partial(F.linear, weight=s.w)), lambda self, x: self.f(x))
    return Case(net, randn(3, 4))


@program
def functional_call_with_kept_dict() -> Case:
    def init(self):
        self.l = nn.Linear(4, 4)
        self.kept = dict(self.l.named_parameters())

    return Case(bare(init, lambda self, x: functional_call(self.l, self.kept, (x,))), randn(3, 4))


@program
def functional_call_with_scaled_parameters() -> Case:
    def forward(self, x):
        return functional_call(self.l, {k: v * 2 for k, v in self.l.named_parameters()}, (x,))

    return Case(bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward), randn(3, 4))


@program
def functional_call_from_arguments() -> Case:
    net = nn.Linear(4, 4)
    params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
    return Case(lambda ps, x: functional_call(net, ps, (x,)), (params, randn(3, 4)))


@program
def ensemble_by_vmap() -> Case:
    nets = [nn.Linear(4, 2) for _ in range(3)]
    params, buffers = stack_module_state(nets)
    base = nn.Linear(4, 2).to("meta")

    def f(ps, x):
        return torch.vmap(lambda p, b: functional_call(base, (p, b), (x,)))(ps, buffers)

    return Case(f, ({k: v.detach().requires_grad_() for k, v in params.items()}, randn(3, 4)))


@program
def closure_over_a_parameter() -> Case:
    w = nn.Parameter(torch.randn(4, 4))
    return Case(lambda x: x @ w, randn(3, 4))


@program
def closure_over_a_closure() -> Case:
    w = nn.Parameter(torch.randn(4, 4))

    def inner():
        return w * 2

    return Case(lambda x: x @ inner(), randn(3, 4))


@program
def closure_over_a_list() -> Case:
    ws = [nn.Parameter(torch.randn(4, 4)) for _ in range(3)]

    def f(x):
        for w in ws:
            x = torch.tanh(x @ w)
        return x

    return Case(f, randn(3, 4))


@program
def closure_over_a_module() -> Case:
    net = nn.Linear(4, 4)
    return Case(lambda x: net(x), randn(3, 4))


@program
def closure_over_a_dict_of_modules() -> Case:
    nets = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
    return Case(lambda x: nets["b"](nets["a"](x)), randn(3, 4))


@program
def closure_over_a_module_twice() -> Case:
    net = nn.Linear(4, 4)
    nets = [net, net]
    return Case(lambda x: nets[1](nets[0](x)), randn(3, 4))


@program
def global_parameter() -> Case:
    return Case(lambda x: x @ GLOBAL_WEIGHT, randn(3, 4))


@program
def global_module() -> Case:
    return Case(lambda x: GLOBAL_MODULE(x).relu(), randn(3, 4))


@program
def global_list_of_parameters() -> Case:
    return Case(lambda x: x @ GLOBAL_LIST[0], randn(3, 4))


@program
def global_by_text() -> Case:
    return Case(lambda x: x @ globals()["GLOBAL_WEIGHT"] + 0 * GLOBAL_WEIGHT.sum(), randn(3, 4))


@program
def default_argument() -> Case:
    weight = nn.Parameter(torch.randn(4, 4))

    def f(x, w=weight):
        return x @ w

    return Case(f, randn(3, 4))


@program
def keyword_only_default() -> Case:
    weight = nn.Parameter(torch.randn(4, 4))

    def f(x, *, w=weight):
        return x @ w

    return Case(f, randn(3, 4))


@program
def class_attribute() -> Case:
    class Net(nn.Module):
        W = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return x @ self.W

    return Case(Net(), randn(3, 4))


@program
def class_method_with_class_attribute() -> Case:
    class Model:
        W = nn.Parameter(torch.randn(4, 4))

        @classmethod
        def call(cls, x):
            return x @ cls.W

    return Case(Model.call, randn(3, 4))


@program
def callable_object_with_a_parameter() -> Case:
    class Model:
        def __init__(self):
            self.w = nn.Parameter(torch.randn(4, 4))

        def __call__(self, x):
            return x @ self.w

    return Case(Model(), randn(3, 4))


@program
def property_with_a_parameter() -> Case:
    return Case(
        module(lambda s: attributes(s, ws=[s.w]), lambda self, x: x @ self.first, first=property(lambda s: s.ws[0])),
        randn(3, 4),
    )


@program
def cached_property_with_parameters() -> Case:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(4, 4)

        @functools.cached_property
        def both(self):
            return list(self.l.parameters())

        def forward(self, x):
            return F.linear(x, *self.both)

    return Case(Net(), randn(3, 4))


@program
def generator_of_parameters() -> Case:
    def forward(self, x):
        def each():
            yield from self.ws

        for w in each():
            x = x @ w
        return x

    return Case(module(lambda s: attributes(s, ws=[s.w, s.w]), forward), randn(3, 4))


@program
def weak_key_dictionary() -> Case:
    scales: Any = weakref.WeakKeyDictionary()
    net = nn.Linear(4, 4)
    scales[net] = nn.Parameter(torch.randn(4))
    return Case(lambda x: net(x) * scales[net], randn(3, 4))


@program
def tied_embedding() -> Case:
    def init(self):
        self.e = nn.Embedding(5, 4)
        self.d = nn.Linear(4, 5, bias=False)
        self.d.weight = self.e.weight

    return Case(
        bare(init, lambda self, i: self.d(self.e(i))), torch.tensor([1, 4, 2]), others=[torch.tensor([0, 0, 3])]
    )


@program
def tied_by_transpose() -> Case:
    def forward(self, x):
        return torch.tanh(x @ self.w) @ self.wt

    return Case(module(lambda s: attributes(s, wt=s.w.t()), forward), randn(3, 4))


@program
def parametrized_symmetric() -> Case:
    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", Symmetric())
    return Case(net, randn(3, 4))


@program
def parametrized_and_cached() -> Case:
    net = nn.Linear(4, 4)
    parametrize.register_parametrization(net, "weight", Symmetric())

    def f(x):
        with parametrize.cached():
            return net(net(x))

    return Case(f, randn(3, 4))


@program
def parametrized_weight_norm() -> Case:
    return Case(parametrizations.weight_norm(nn.Linear(4, 4)), randn(3, 4))


@program
def parametrized_orthogonal() -> Case:
    return Case(parametrizations.orthogonal(nn.Linear(4, 4)), randn(3, 4))


@program
def parametrized_spectral_norm() -> Case:
    return Case(parametrizations.spectral_norm(nn.Linear(4, 4)), randn(3, 4))


@program
def parametrized_spectral_norm_eval() -> Case:
    return Case(parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), randn(3, 4))


@program
def old_weight_norm() -> Case:
    return Case(nn.utils.weight_norm(nn.Linear(4, 4)), randn(3, 4))


@program
def old_spectral_norm() -> Case:
    return Case(nn.utils.spectral_norm(nn.Linear(4, 4)), randn(3, 4))


@program
def pruned() -> Case:
    from torch.nn.utils import prune

    return Case(prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5), randn(3, 4))


@program
def parameter_as_argument() -> Case:
    return Case(lambda x, w: x @ w, (randn(3, 4), nn.Parameter(torch.randn(4, 4))))


@program
def parameters_as_a_list_argument() -> Case:
    ws = [nn.Parameter(torch.randn(4, 4)) for _ in range(2)]
    return Case(lambda x, ws: x @ ws[0] @ ws[1], (randn(3, 4), ws))


@program
def module_as_argument() -> Case:
    return Case(lambda net, x: net(x), (nn.Linear(4, 4), randn(3, 4)))


@program
def argument_is_a_parameter_of_the_module() -> Case:
    net = nn.Linear(4, 4, bias=False)
    return Case(lambda x, w: net(x) @ w, (randn(3, 4), net.weight))


@program
def argument_is_a_view_of_a_parameter() -> Case:
    net = nn.Linear(4, 4, bias=False)
    return Case(lambda x, row: net(x) * row, (randn(3, 4), net.weight.detach()[0]))


@program
def parameter_frozen() -> Case:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].requires_grad_(False)
    return Case(net, randn(3, 4))


@program
def all_parameters_frozen() -> Case:
    return Case(nn.Linear(4, 4).requires_grad_(False), randn(3, 4))


@program
def parameter_never_used() -> Case:
    return Case(
        module(lambda s: attributes(s, spare=nn.Parameter(torch.ones(3))), lambda self, x: x @ self.w), randn(3, 4)
    )


@program
def parameter_multiplied_by_zero() -> Case:
    return Case(
        module(lambda s: attributes(s, z=nn.Parameter(torch.ones(4))), lambda self, x: x @ self.w + self.z * 0),
        randn(3, 4),
    )


@program
def parameter_named_like_a_method() -> Case:
    return Case(module(lambda s: s.register_parameter("graph", nn.Parameter(torch.ones(4))), _times_graph), randn(3, 4))


def _times_graph(self: Any, x: Any) -> Any:
    return x @ self.w * self.graph


@program
def module_with_its_parent_in_a_list() -> Case:
    def init(self):
        self.child = bare(lambda c: attributes(c, up=[self]), lambda c, x: x @ c.up[0].w)

    return Case(module(init, lambda self, x: self.child(x) * 2), randn(3, 4))


@program
def parameter_of_none() -> Case:
    return Case(nn.Linear(4, 4, bias=False), randn(3, 4))


@program
def parameter_made_in_forward() -> Case:
    return Case(module(None, lambda self, x: x @ nn.Parameter(self.w.detach() * 2) + self.w), randn(4, 4))


@program
def module_made_in_forward() -> Case:
    def forward(self, x):
        fresh = nn.Linear(4, 4)
        with torch.no_grad():
            fresh.weight.copy_(self.w)
            fresh.bias.zero_()
        return fresh(x) + x @ self.w

    return Case(module(None, forward), randn(3, 4))


@program
def parameter_swapped_in_forward() -> Case:
    def forward(self, x):
        kept = self.l._parameters["weight"]
        self.l._parameters["weight"] = kept * 2
        out = self.l(x)
        self.l._parameters["weight"] = kept
        return out

    return Case(bare(lambda s: attributes(s, l=nn.Linear(4, 4)), forward), randn(3, 4))


@program
def hypernetwork() -> Case:
    def init(self):
        self.h = nn.Linear(4, 16)
        self.l = nn.Linear(4, 4, bias=False)
        del self.l.weight

    def forward(self, x):
        self.l.weight = self.h(x.mean(0)).view(4, 4)
        out = self.l(x)
        del self.l.weight
        return out

    return Case(bare(init, forward), randn(3, 4))


@program
def submodule_shared_by_two() -> Case:
    def init(self):
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(self.a, nn.ReLU())

    return Case(bare(init, lambda self, x: self.b(self.a(x))), randn(3, 4))


@program
def alias_row_of_a_parameter_changed() -> Case:
    def init(self):
        self.row = self.w.detach()[0]

    def forward(self, x):
        with torch.no_grad():
            self.row.mul_(2)
        return x @ self.w

    return Case(module(init, forward), randn(3, 4))


@program
def data_alias_read_after_change() -> Case:
    def forward(self, x):
        with torch.no_grad():
            self.w.mul_(2)
        return x @ self.w + self.alias.sum()

    return Case(module(lambda s: attributes(s, alias=s.w.data), forward), randn(3, 4))


@program
def renormalised_in_forward() -> Case:
    def forward(self, x):
        self.w.data.renorm_(2, 0, 0.5)
        return x @ self.w

    return Case(module(None, forward), randn(3, 4))


@program
def data_replaced_in_forward() -> Case:
    def forward(self, x):
        self.w.data = self.w.data.clamp(-0.5, 0.5)
        return x @ self.w

    return Case(module(None, forward), randn(3, 4))


@program
def flat_parameter_with_views() -> Case:
    def init(self):
        self.flat = nn.Parameter(torch.randn(20))

    def forward(self, x):
        weight, bias = self.flat[:16].view(4, 4), self.flat[16:]
        return F.linear(x, weight, bias)

    return Case(bare(init, forward), randn(3, 4))


@program
def parameters_that_share_storage() -> Case:
    def init(self):
        flat = torch.randn(20)
        self.weight, self.bias = nn.Parameter(flat[:16].view(4, 4)), nn.Parameter(flat[16:])

    return Case(bare(init, lambda self, x: F.linear(x, self.weight, self.bias)), randn(3, 4))


@program
def parameters_that_overlap() -> Case:
    def init(self):
        flat = torch.randn(20)
        self.a, self.b = nn.Parameter(flat[:16].view(4, 4)), nn.Parameter(flat[4:].view(4, 4))

    def forward(self, x):
        with torch.no_grad():
            self.a.mul_(2)
        return x @ self.a @ self.b

    return Case(bare(init, forward), randn(3, 4))
