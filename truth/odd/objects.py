"""Results that are objects: dataclasses, namespaces, sets, distributions, own classes, closures, iterators, modules."""

import array
import collections
import dataclasses
import enum
import functools
import itertools
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from case import Case, attributes, bare, leaf, many, module, rand, randn
from torch import distributions, nn
from torch.nn import functional as F


@dataclass
class Output:
    """What models return, in a dataclass."""

    loss: Any = None
    logits: Any = None
    hidden: Any = None
    note: Any = "none"

    @property
    def total(self) -> Any:
        """Computed each time."""
        return self.loss + self.logits.sum()

    def scaled(self, by: float) -> "Output":
        """Another of its class."""
        return dataclasses.replace(self, loss=self.loss * by)


@dataclass(frozen=True)
class Frozen:
    """One that cannot be written."""

    mean: Any
    spread: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    """One without a dictionary."""

    mean: Any
    spread: Any


@dataclass
class Derived(Output):
    """More fields, one of which is computed, and one that no constructor takes."""

    extra: Any = field(default_factory=list)
    norm: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.norm = self.logits.norm()


@dataclass(eq=False, order=False, repr=False, kw_only=True)
class Bare:
    """One without the methods that a dataclass has."""

    a: Any
    b: Any = None


class Plain:
    """An object with attributes."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Lean:
    """An object with slots, one of which is left empty."""

    __slots__ = ("empty", "x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class Lazy:
    """Computes its tensors when they are asked for."""

    def __init__(self, x: Any) -> None:
        self._x = x

    @property
    def twice(self) -> Any:
        """Twice."""
        return self._x * 2

    @functools.cached_property
    def sine(self) -> Any:
        """Kept once it is there."""
        return self._x.sin()


class Sequence(list):
    """A list with attributes."""


class Table(dict):
    """A dict that can be read by attribute, as those of model libraries can."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Pair(tuple):
    """A tuple with a name."""

    def __new__(cls, *values: Any, name: Any = None) -> "Pair":
        """With a name."""
        made = super().__new__(cls, values)
        made.name = name
        return made


class ModelOutput(collections.OrderedDict):
    """As in model libraries: a dict whose entries are its attributes as well."""

    def __init__(self, **values: Any) -> None:
        super().__init__({k: v for k, v in values.items() if v is not None})
        for key, value in values.items():
            object.__setattr__(self, key, value)

    def to_tuple(self) -> tuple:
        """Its values."""
        return tuple(self.values())


class Hidden:
    """Keeps what it has behind names of its own."""

    def __init__(self, x: Any) -> None:
        self.__x = x

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            return self.__x
        raise AttributeError(name)


class Scaler:
    """An object that can be called."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, x: Any) -> Any:
        """Scaled."""
        return x * self.by

    def apply(self, x: Any) -> Any:
        """By a method."""
        return x * self.by


class Steps:
    """An iterator of one's own."""

    def __init__(self, x: Any, n: int) -> None:
        self.x, self.left = x, n

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> Any:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.x * self.left


class Node:
    """A node of a tree or of a ring."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.next: Any = None
        self.children: list[Any] = []


class Kind(enum.Enum):
    """Members as results."""

    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Failure(Exception):
    """An exception that has a tensor."""

    def __init__(self, text: str, value: Any) -> None:
        super().__init__(text, value)
        self.value = value


class Descriptor:
    """Keeps a value in the instance, under another name."""

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = "kept_" + name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return instance.__dict__[self.name] if instance is not None else self

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


class Described:
    """Its attribute is a descriptor."""

    value = Descriptor()


def of(f: Any, *others: Any, **more: Any) -> Case:
    """A function of one tensor, tried on others too."""
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5), -rand(3, 4), *others], **more)


def trained(f: Any, init: Any = None, **more: Any) -> Case:
    """A module with a weight."""
    return Case(module(init, f), randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def set_on(target: Any, **values: Any) -> Any:
    """The target, with attributes."""
    return attributes(target, values)


many(
    __name__,
    result_dataclass=lambda: of(lambda x: Output(x.sum(), x * 2)),
    result_dataclass_of_module=lambda: trained(lambda s, x: Output((x @ s.w).sum(), x @ s.w, x.tanh())),
    result_dataclass_frozen=lambda: of(lambda x: Frozen(x.mean(), x.std())),
    result_dataclass_slots=lambda: of(lambda x: Slotted(x.mean(0), x.std(0))),
    result_dataclass_derived=lambda: of(lambda x: Derived(x.sum(), x * 3, extra=[x.exp(), x.cos()])),
    result_dataclass_keyword=lambda: of(lambda x: Bare(a=x * 2, b=x.sin())),
    result_dataclass_nested=lambda: of(lambda x: Output(Frozen(x.mean(), x.var()), Slotted(x * 2, [x * 3, {"k": x}]))),
    result_dataclass_of_none=lambda: of(lambda x: Output(x.sum(), None, None, None)),
    result_dataclass_with_number=lambda: of(lambda x: Output(x.sum(), x * 2, note=x.sum().item())),
    result_dataclass_with_count=lambda: of(lambda x: Output(x.sum(), note=int((x > 0).sum()))),
    result_dataclass_with_shape=lambda: of(lambda x: Output(x.sum(), note=x.shape), randn(5, 4)),
    result_dataclass_with_dtype=lambda: of(lambda x: Output(x.sum(), note=(x.dtype, x.device))),
    result_dataclass_replaced=lambda: of(lambda x: Output(x.sum(), x * 2).scaled(3.0)),
    result_dataclass_attribute_added=lambda: of(lambda x: set_on(Output(x.sum(), x), aux=x.exp().sum())),
    result_dataclass_in_a_list=lambda: of(lambda x: [Output(x.sum()), Output(x.mean()), x * 2]),
    result_dataclass_in_a_dict=lambda: of(lambda x: {"out": Output(x.sum(), x * 2), "n": 3}),
    result_dataclass_beside_tensor=lambda: of(lambda x: (x * 2, Frozen(x.sin(), x.cos()))),
    result_dataclass_same_tensor_twice=lambda: of(lambda x: (lambda y: Frozen(y, y))(x * 2)),
    result_dataclass_of_input=lambda: of(lambda x: Output(x, x * 2)),
    result_dataclass_of_view=lambda: of(lambda x: Output(x[0], x.t())),
    result_dataclass_of_detached=lambda: of(lambda x: Output(x.sum(), x.detach() * 2)),
    result_dataclass_of_integers=lambda: of(lambda x: Output(x.sum(), x.argmax(1), x > 0)),
    result_dataclass_made_inside=lambda: of(_made_inside),
    result_dataclass_of_parameter=lambda: trained(lambda s, x: Frozen(x @ s.w, s.w * 2)),
    result_dataclass_branch=lambda: of(lambda x: Output(x.sum()) if x.sum() > 0 else Frozen(x.sum(), x * 2)),
    result_dataclass_classifier=lambda: Case(_classifier(), (randn(3, 4), torch.tensor([0, 1, 1]))),
    result_dataclass_dropout=lambda: of(lambda x: Output(F.dropout(x, 0.5).sum(), F.dropout(x, 0.3))),
    result_dataclass_second_order=lambda: of(
        lambda x: Frozen(torch.autograd.grad((x**3).sum(), x, create_graph=True)[0], x.sin())
    ),
    result_dataclass_by_aot=lambda: of(lambda x: Output(x.sum(), x * 2), options=dict(engine="aot")),
    result_dataclass_by_dynamo=lambda: of(lambda x: Output(x.sum(), x * 2), options=dict(engine="dynamo")),
    result_namespace=lambda: of(lambda x: SimpleNamespace(loss=x.sum(), logits=x * 2)),
    result_namespace_nested=lambda: of(lambda x: SimpleNamespace(a=SimpleNamespace(b=x * 2), c=[x.sin()])),
    result_namespace_with_number=lambda: of(lambda x: SimpleNamespace(y=x * 2, top=float(x.max()))),
    result_namespace_grown=lambda: of(_grown_namespace),
    result_namespace_by_aot=lambda: of(lambda x: SimpleNamespace(y=x * 2), options=dict(engine="aot")),
    result_namespace_of_module=lambda: trained(lambda s, x: SimpleNamespace(y=x @ s.w, w=s.w)),
    result_set=lambda: of(lambda x: {x.sin()}),
    result_set_of_two=lambda: of(lambda x: {x * 2, x * 3}),
    result_set_with_number=lambda: of(lambda x: (x * 2, {1, 2, int(x.shape[0])}), randn(2, 4)),
    result_frozenset=lambda: of(lambda x: frozenset([x * 2, x.exp()])),
    result_set_in_a_dict=lambda: of(lambda x: {"a": x * 2, "b": {x.cos()}}),
    result_normal=lambda: of(lambda x: distributions.Normal(x, x.exp())),
    result_categorical=lambda: of(lambda x: distributions.Categorical(logits=x)),
    result_categorical_by_probs=lambda: of(lambda x: distributions.Categorical(probs=x.softmax(-1))),
    result_bernoulli=lambda: of(lambda x: distributions.Bernoulli(logits=x)),
    result_multivariate=lambda: of(
        lambda x: distributions.MultivariateNormal(x[0], torch.eye(4) * x[1].exp()), gradients=False
    ),
    result_independent=lambda: of(lambda x: distributions.Independent(distributions.Normal(x, 1.0), 1)),
    result_mixture=lambda: of(_mixture),
    result_transformed=lambda: of(_squashed),
    result_policy=lambda: trained(lambda s, x: (distributions.Categorical(logits=x @ s.w), (x @ s.w).mean())),
    result_normal_module=lambda: trained(lambda s, x: distributions.Normal(x @ s.w, F.softplus(x @ s.w) + 0.1)),
    result_normal_and_sample=lambda: of(lambda x: (lambda d: (d, d.rsample()))(distributions.Normal(x, 1.0))),
    result_kl_of_two=lambda: of(lambda x: SimpleNamespace(p=distributions.Normal(x, 1.0), kl=_kl(x))),
    result_constraint=lambda: of(lambda x: (x * 2, distributions.Normal(x, 1.0).support)),
    result_plain_object=lambda: of(lambda x: Plain(a=x * 2, b=x.sum())),
    result_plain_object_deep=lambda: of(lambda x: Plain(a=Plain(b=Plain(c=[Plain(d=x * 2)])))),
    result_plain_object_numbers=lambda: of(lambda x: Plain(a=x * 2, n=int((x > 0).sum()), s="text", z=None)),
    result_slotted_object=lambda: of(lambda x: Lean(x * 2, x.sum())),
    result_lazy_object=lambda: of(lambda x: Lazy(x * 3)),
    result_lazy_object_asked=lambda: of(lambda x: (lambda o: (o.sine, o)[1])(Lazy(x * 3))),
    result_hidden_attribute=lambda: of(lambda x: Hidden(x * 2)),
    result_described=lambda: of(lambda x: set_on(Described(), value=x * 2)),
    result_list_subclass=lambda: of(lambda x: Sequence([x * 2, x * 3])),
    result_list_subclass_attribute=lambda: of(lambda x: set_on(Sequence([x * 2]), mask=x.sign(), n=2)),
    result_dict_subclass=lambda: of(lambda x: Table(loss=x.sum(), logits=x * 2)),
    result_dict_subclass_attribute=lambda: of(lambda x: set_on(Table(a=x * 2), hidden=x.sin())),
    result_tuple_subclass=lambda: of(lambda x: Pair(x * 2, x * 3)),
    result_tuple_subclass_attribute=lambda: of(lambda x: Pair(x * 2, name=x.sum())),
    result_model_output=lambda: of(lambda x: ModelOutput(loss=x.sum(), logits=x * 2, hidden=None)),
    result_model_output_module=lambda: trained(lambda s, x: ModelOutput(loss=(x @ s.w).sum(), logits=x @ s.w)),
    result_model_output_nested=lambda: of(lambda x: ModelOutput(a=x * 2, past=[ModelOutput(k=x.sin(), v=x.cos())])),
    result_named_tuple_with_object=lambda: of(lambda x: Point(Plain(a=x * 2), x.sum())),
    result_default_dict=lambda: of(lambda x: collections.defaultdict(list, {"a": [x * 2, Plain(b=x)]})),
    result_chain_map=lambda: of(lambda x: collections.ChainMap({"a": x * 2}, {"b": x.sin()})),
    result_user_dict=lambda: of(lambda x: collections.UserDict(a=x * 2)),
    result_user_list=lambda: of(lambda x: collections.UserList([x * 2, x * 3])),
    result_counter=lambda: of(lambda x: (x * 2, collections.Counter((x > 0).flatten().tolist()))),
    result_deque_of_objects=lambda: of(lambda x: collections.deque([Plain(a=x * 2), x])),
    result_mapping_proxy=lambda: of(lambda x: types.MappingProxyType({"a": x * 2})),
    result_dict_keyed_by_tensor=lambda: of(lambda x: {x * 2: "a"}),
    result_dict_keyed_by_shape=lambda: of(lambda x: {x.shape: x * 2}, randn(2, 4)),
    result_closure=lambda: of(lambda x: (lambda y: lambda v: v * y)(x * 2)),
    result_closure_and_tensor=lambda: of(lambda x: (x.sum(), (lambda y: lambda: y)(x.exp()))),
    result_closure_of_number=lambda: of(lambda x: (x * 2, (lambda n: lambda: n)(x.sum().item()))),
    result_default_argument=lambda: of(lambda x: lambda v, y=x * 2: v * y),
    result_partial=lambda: of(lambda x: functools.partial(torch.mul, x * 2)),
    result_partial_keyword=lambda: of(lambda x: functools.partial(torch.add, other=x.sin())),
    result_bound_method=lambda: of(lambda x: Scaler(x.exp()).apply),
    result_tensor_method=lambda: of(lambda x: (x * 2).add),
    result_callable_object=lambda: of(lambda x: Scaler(x.exp())),
    result_vjp_function=lambda: of(lambda x: torch.func.vjp(torch.sin, x)[0]),
    result_function_attribute=lambda: of(_with_attribute),
    result_generator=lambda: of(lambda x: (x * i for i in range(3))),
    result_generator_begun=lambda: of(_begun),
    result_map=lambda: of(lambda x: map(torch.sin, x.unbind())),
    result_zip=lambda: of(lambda x: zip(x.unbind(), x.exp().unbind(), strict=True)),
    result_iter_of_list=lambda: of(lambda x: iter([x * 2, x * 3])),
    result_iter_of_tensor=lambda: of(lambda x: iter(x * 2)),
    result_enumerate=lambda: of(lambda x: enumerate([x * 2, x.cos()])),
    result_chain=lambda: of(lambda x: itertools.chain([x * 2], (x.cos(),))),
    result_reversed=lambda: of(lambda x: reversed([x * 2, x.cos()])),
    result_own_iterator=lambda: of(lambda x: Steps(x.exp(), 3)),
    result_accumulate=lambda: of(lambda x: itertools.accumulate((x * 2).unbind())),
    result_dict_values=lambda: of(lambda x: {"a": x * 2, "b": x.sin()}.values()),
    result_dict_items=lambda: of(lambda x: {"a": x * 2}.items()),
    result_dict_keys=lambda: of(lambda x: (x * 2, {"a": x}.keys())),
    result_enum=lambda: of(lambda x: (x * 2, Kind.HIGH if x.sum() > 0 else Kind.LOW)),
    result_enum_in_object=lambda: of(lambda x: Plain(a=x * 2, kind=Kind.LOW)),
    result_own_argument=lambda: Case(
        lambda o: set_on(o, y=o.x * 2), Plain(x=randn(3)), others=[Plain(x=randn(3, seed=4))], gradients=False
    ),
    result_object_of_argument=lambda: Case(
        lambda x, o: (o, x * 2), (randn(3), Plain(k=3)), others=[(randn(3, seed=4), Plain(k=3)), (randn(3), Plain(k=4))]
    ),
    result_object_around_argument=lambda: Case(
        lambda x, o: Output(x * o.k, note=o), (randn(3), Plain(k=3)), others=[(randn(3, seed=4), Plain(k=4))]
    ),
    result_caller_object_changed=lambda: Case(_changes_output, (randn(3), Output(1, 2))),
    result_caller_object_of_tensor=lambda: Case(_fills_caller, (leaf(3), Plain(value=leaf(3, seed=3)))),
    result_kept_object=lambda: trained(_remembers, lambda s: attributes(s, out=None)),
    result_kept_list_of_module=lambda: trained(
        lambda s, x: (s.log.append(x @ s.w), Plain(log=s.log))[1], lambda s: attributes(s, log=[])
    ),
    result_of_cycle=lambda: of(_ring),
    result_list_of_itself=lambda: of(_own_list),
    result_tree=lambda: of(_tree),
    result_linked_list=lambda: of(_linked),
    result_weak_reference=lambda: of(lambda x: (lambda y: (y, Plain(ref=weakref.ref(y))))(x * 2)),
    result_module_made_inside=lambda: of(_makes_linear, gradients=False),
    result_parameter_made_inside=lambda: of(lambda x: nn.Parameter(x.detach() * 2), gradients=False),
    result_parameters_of_module=lambda: trained(lambda s, x: (x @ s.w, list(s.parameters()))),
    result_named_parameters=lambda: trained(lambda s, x: (x @ s.w, dict(s.named_parameters()))),
    result_state_dict=lambda: trained(lambda s, x: (x @ s.w, s.state_dict())),
    result_module_itself=lambda: trained(lambda s, x: (x @ s.w, s), gradients=False),
    result_child_module=lambda: trained(
        lambda s, x: Plain(y=s.l(x @ s.w), l=s.l), lambda s: attributes(s, l=nn.Linear(4, 4)), gradients=False
    ),
    result_parameter_list=lambda: of(lambda x: nn.ParameterList([nn.Parameter(x.detach() * 2)]), gradients=False),
    result_buffer_dict=lambda: trained(
        lambda s, x: (x @ s.w * s.n, dict(s.named_buffers())), lambda s: s.register_buffer("n", torch.ones(4))
    ),
    result_packed_sequence=lambda: of(
        lambda x: nn.utils.rnn.pack_padded_sequence(x[..., None] * 2, [4, 3, 1], batch_first=True)
    ),
    result_packed_in_object=lambda: of(
        lambda x: Plain(p=nn.utils.rnn.pack_sequence([x[0], x[1][:3], x[2][:1]]), n=x.sum())
    ),
    result_packed_of_lengths=lambda: Case(
        lambda x, n: Output(nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)),
        (randn(3, 4, 2), torch.tensor([4, 2, 1])),
        others=[(randn(3, 4, 2), torch.tensor([4, 3, 3])), (randn(3, 4, 2, seed=6), torch.tensor([4, 2, 1]))],
    ),
    result_size=lambda: of(lambda x: (x * 2, x.shape), randn(2, 4)),
    result_size_in_object=lambda: of(lambda x: Plain(y=x * 2, size=x.size(), n=x.numel()), randn(2, 4)),
    result_sparse_in_object=lambda: of(lambda x: Plain(s=x.relu().to_sparse(), n=x.sum()), gradients=False),
    result_sparse_built=lambda: of(
        lambda x: SimpleNamespace(s=torch.sparse_coo_tensor(torch.tensor([[0, 2]]), x[0, :2] * 2, (3,))),
        gradients=False,
    ),
    result_complex_in_object=lambda: of(lambda x: Plain(c=torch.complex(x, x.sin()), a=x.abs())),
    result_array_in_object=lambda: of(lambda x: Plain(y=x * 2, a=x.detach().numpy().copy())),
    result_numpy_beside=lambda: of(lambda x: (x * 2, x.detach().cos().numpy())),
    result_numpy_scalar_in_object=lambda: of(lambda x: Output(x * 2, note=np.float32(x.detach().sum()))),
    result_bytes_in_object=lambda: of(lambda x: Output(x * 2, note=x.detach().numpy().tobytes())),
    result_array_array=lambda: of(lambda x: Output(x * 2, note=array.array("f", x[0].tolist()))),
    result_text_of_value=lambda: of(lambda x: Output(x * 2, note=f"{x.sum():.3f}")),
    result_list_of_values=lambda: of(lambda x: Plain(y=x * 2, values=x[0].tolist())),
    result_exception=lambda: of(lambda x: Failure("too large", x * 2)),
    result_exception_caught=lambda: of(_caught),
    result_exception_in_list=lambda: of(lambda x: [x * 2, ValueError("none")]),
    result_class_made_inside=lambda: of(lambda x: (x.sum(), type("Made", (), {"value": x * 2}))),
    result_instance_of_made_class=lambda: of(lambda x: set_on(type("Made", (), {})(), value=x * 2)),
    result_class_attribute=lambda: of(lambda x: type("Made", (), {"shared": x * 2})(), gradients=False),
    result_object_with_dict_of_objects=lambda: of(lambda x: Plain(d={"a": Lean(x, x * 2), "b": [Frozen(x, 2)]})),
    result_objects_share_tensor=lambda: of(lambda x: (lambda y: [Plain(a=y), Plain(a=y), y])(x * 2)),
    result_object_twice=lambda: of(lambda x: (lambda o: [o, o])(Plain(a=x * 2))),
    result_object_written_after=lambda: of(_written_after),
    result_object_updated_in_place=lambda: of(_updated_in_place),
    result_object_of_random=lambda: of(lambda x: Plain(noise=torch.randn(3), y=x * torch.rand(4))),
    result_object_without_input=lambda: of(lambda x: Plain(y=torch.arange(4.0), z=x * 2)),
    result_object_in_eval=lambda: Case(
        bare(lambda s: attributes(s, l=nn.Linear(4, 2)), lambda s, x: Output(s.l(x), note=s.training)).eval(),
        randn(3, 4),
    ),
    result_object_by_kwargs=lambda: Case(
        lambda x, *, wrap: wrap(x * 2), randn(3), dict(wrap=Scaler), others=[randn(3, seed=3)], variants=False
    ),
    result_object_of_checkpoint=lambda: of(
        lambda x: Output(torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False))
    ),
    result_object_of_where=lambda: of(lambda x: SimpleNamespace(picked=x[x > 0], n=x.sum())),
    result_object_of_topk=lambda: of(lambda x: Plain(top=x.topk(2), sorted=x.sort())),
    result_object_of_svd=lambda: of(lambda x: Plain(s=torch.linalg.svdvals(x), q=torch.linalg.qr(x)), gradients=False),
    result_context=lambda: of(lambda x: torch.autograd.graph.save_on_cpu() and Plain(y=x * 2)),
    result_type_of_tensor=lambda: of(lambda x: (x * 2, type(x))),
    result_iterator_in_object=lambda: of(lambda x: Plain(batches=iter([x * 2, x.cos()]), n=2)),
    result_slice_and_ellipsis=lambda: of(lambda x: (x * 2, slice(0, int(x.argmax())), ...)),
    result_memoryview=lambda: of(lambda x: Output(x * 2, note=bytes(memoryview(x.detach().numpy().copy())))),
    result_object_only_of_numbers=lambda: of(lambda x: Plain(n=float(x.sum()))),
    result_empty_object=lambda: of(lambda x: Plain()),
)


def _made_inside(x: Any) -> Any:
    @dataclass
    class Inner:
        y: Any
        n: int = 2

    return Inner(x * 2)


def _classifier() -> nn.Module:
    def forward(self, x, y):
        logits = self.net(x)
        return Output(F.cross_entropy(logits, y), logits, [x, logits.softmax(-1)])

    return bare(lambda s: attributes(s, net=nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))), forward)


def _grown_namespace(x: Any) -> Any:
    made = SimpleNamespace()
    for i in range(3):
        setattr(made, f"level{i}", x * i)
    return made


def _mixture(x: Any) -> Any:
    parts = distributions.Normal(x, torch.ones(4))
    return distributions.MixtureSameFamily(distributions.Categorical(logits=torch.zeros(3, 4)), parts)


def _squashed(x: Any) -> Any:
    return distributions.TransformedDistribution(distributions.Normal(x, 1.0), [distributions.SigmoidTransform()])


def _kl(x: Any) -> Any:
    return distributions.kl_divergence(distributions.Normal(x, 1.0), distributions.Normal(0.0, 2.0))


def _with_attribute(x: Any) -> Any:
    def f(v):
        return v

    f.table = x * 2
    return f


def _begun(x: Any) -> Iterator[Any]:
    def steps():
        y = x.exp()
        yield y
        yield y * 2
        yield y * 3

    made = steps()
    next(made)
    return made


def _changes_output(x: Any, out: Any) -> Any:
    return dataclasses.replace(out, loss=x.sum(), logits=x * out.logits)


def _fills_caller(x: Any, o: Any) -> Any:
    return Plain(first=x * o.value, second=o)


def _remembers(self: Any, x: Any) -> Any:
    self.out = Output(x @ self.w, note="kept")
    return self.out


def _ring(x: Any) -> Any:
    a, b = Node(x * 2), Node(x.sin())
    a.next, b.next = b, a
    return a


def _own_list(x: Any) -> Any:
    made: list[Any] = [x * 2]
    made.append(made)
    return Plain(l=made)


def _tree(x: Any) -> Any:
    root = Node(x.sum())
    root.children = [Node(row * 2) for row in x]
    root.children[0].children.append(Node(x.exp()))
    return root


def _linked(x: Any) -> Any:
    first = None
    for row in x:
        node = Node(row.sin())
        node.next, first = first, node
    return first


def _makes_linear(x: Any) -> Any:
    made = nn.Linear(4, 2)
    with torch.no_grad():
        made.weight.copy_(x[:2])
        made.bias.zero_()
    return made


def _caught(x: Any) -> Any:
    try:
        raise Failure("no", x.exp())
    except Failure as error:
        return [error, error.value * 2]


def _written_after(x: Any) -> Any:
    made = Output(x.sum())
    made.logits = x * 2
    made.loss = made.loss * 3
    del made.hidden
    return made


def _updated_in_place(x: Any) -> Any:
    made = Plain(y=x * 2)
    made.y += 1
    made.y.mul_(3)
    return made
