"""Memory that tensors share, and what a program can read of it: aliases, views, storages, versions, identities."""

from typing import Any

import torch
from case import Case, attributes, bare, leaf, many, module, rand, randn
from torch import nn


def two(f: Any, make: Any, *others: Any, **more: Any) -> Case:
    """A function of two tensors; how these lie in memory differs from call to call."""
    return Case(f, make(), others=[other() for other in others], variants=False, **more)


def apart() -> tuple:
    """Two tensors of equal values in memory of their own."""
    return randn(4), randn(4)


def same() -> tuple:
    """One tensor twice."""
    x = randn(4)
    return x, x


def viewed() -> tuple:
    """A tensor and a view of all of it."""
    x = randn(4)
    return x, x.view(4)


def overlapping() -> tuple:
    """Two views that share a part."""
    x = randn(6)
    return x[:4], x[2:]


def neighbours() -> tuple:
    """Two views of one storage that share nothing."""
    x = randn(8)
    return x[:4], x[4:]


def reversed_order() -> tuple:
    """The same, the other way round."""
    x = randn(8)
    return x[4:], x[:4]


def detached() -> tuple:
    """A tensor and itself, detached."""
    x = randn(4)
    return x, x.detach()


def transposed() -> tuple:
    """A matrix and its transpose."""
    x = randn(4, 4)
    return x, x.t()


def matrices() -> tuple:
    """Two matrices, the second of which has the strides of a transpose."""
    x = randn(4, 4)
    return x, randn(4, 4).t().contiguous().t()


def expanded() -> tuple:
    """A row, and itself several times."""
    x = randn(4)
    return x, x.expand(3, 4)


def expanded_apart() -> tuple:
    """A row, and another one several times."""
    return randn(4), randn(4).expand(3, 4)


def asking() -> tuple:
    """Two leaves in one storage."""
    x = randn(8)
    return x[:4].detach().requires_grad_(), x[4:].detach().requires_grad_()


def asking_same() -> tuple:
    """One leaf twice."""
    x = leaf(4)
    return x, x


def asking_apart() -> tuple:
    """Two leaves of equal values."""
    return leaf(4), leaf(4)


def storage(t: Any) -> int:
    """Which memory it has."""
    return t.untyped_storage().data_ptr()


def on(init: Any, forward: Any, *others: Any, **more: Any) -> Case:
    """A module with a parameter."""
    return Case(module(init, forward), randn(3, 4), others=[randn(3, 4, seed=5), *others], **more)


PAIRS = (apart, same, viewed, overlapping, neighbours, reversed_order, detached)


def each_way(name: str, f: Any, *pairs: Any, **more: Any) -> dict[str, Any]:
    """A program captured with each pair, and tried with the others."""
    return {
        f"{name}_{pair.__name__}": lambda pair=pair: two(f, pair, *(p for p in pairs if p is not pair), **more)
        for pair in pairs
    }


many(
    __name__,
    **each_way("reads_is", lambda a, b: a * b * (2 if a is b else 3), apart, same, viewed),
    **each_way("reads_pointers", lambda a, b: a * b * (2 if a.data_ptr() == b.data_ptr() else 3), apart, same, viewed),
    **each_way("reads_storages", lambda a, b: a * b * (2 if storage(a) == storage(b) else 3), apart, neighbours, same),
    **each_way("reads_set_to", lambda a, b: a * b * (2 if a.is_set_to(b) else 3), apart, viewed, overlapping),
    **each_way(
        "reads_bases", lambda a, b: a * b * (2 if a._base is b._base is not None else 3), apart, neighbours, detached
    ),
    **each_way("reads_base_of", lambda a, b: a * b * (2 if b._base is a else 3), apart, viewed, neighbours),
    **each_way("reads_offset", lambda a, b: a * b * (1 + b.storage_offset()), apart, neighbours, overlapping),
    **each_way("reads_storage_size", lambda a, b: a * b * len(a.untyped_storage()), apart, neighbours, overlapping),
    **each_way(
        "reads_distance", lambda a, b: a * b * (2 if b.data_ptr() - a.data_ptr() == 16 else 3), neighbours, same
    ),
    **each_way("reads_after_write", lambda a, b: _write_and_add(a, b), *PAIRS, gradients=False),
    **each_way("reads_version_after_write", lambda a, b: _write_and_count(a, b), apart, same, viewed, gradients=False),
    **each_way("reads_dictionary_of_ids", lambda a, b: a * b * len({id(a), id(b)}), apart, same),
    **each_way("reads_set_of_tensors", lambda a, b: a * b * len({a, b}), apart, same, viewed),
    **each_way("reads_membership", lambda a, b: a * b * (2 if any(v is a for v in [b]) else 3), apart, same),
    **each_way("reads_internal_overlap", lambda a, b: a * b.sum(0) * torch._debug_has_internal_overlap(b), expanded),
    **each_way(
        "reads_expanded_pointer",
        lambda a, b: (a * b) * (2 if storage(a) == storage(b) else 3),
        expanded,
        expanded_apart,
    ),
    **each_way("reads_transposed", lambda a, b: a @ b * (2 if storage(a) == storage(b) else 3), transposed, matrices),
    **each_way("reads_leaf_twice", lambda a, b: a.sin() * b * (2 if a is b else 3), asking_same, asking_apart, asking),
    **each_way(
        "gradient_of_leaves",
        lambda a, b: torch.autograd.grad((a.sin() * b).sum(), [a, b])[0],
        asking_same,
        asking_apart,
    ),
    **each_way("deduplicates", lambda a, b: sum({id(v): v for v in (a, b)}.values()) * 2, apart, same),
    parameter_as_input=lambda: _own_parameter(),
    parameter_as_input_is=lambda: _own_parameter_is(),
    parameter_view_as_input=lambda: _view_of_parameter(),
    parameter_data_as_input=lambda: _data_of_parameter(),
    parameter_detached_as_input=lambda: _detached_parameter(),
    buffer_as_input=lambda: _own_buffer(False),
    buffer_as_input_updated=lambda: _own_buffer(True),
    buffer_sliced_as_input_updated=lambda: _sliced_buffer(),
    buffer_aliases_parameter=lambda: on(
        lambda s: s.register_buffer("v", s.w.detach()),
        lambda s, x: x @ s.w * (2 if storage(s.v) == storage(s.w) else 3),
    ),
    buffer_aliases_parameter_scaled=lambda: on(
        lambda s: s.register_buffer("v", s.w.detach()[0]), lambda s, x: (s.v.mul_(2), x @ s.w)[1], gradients=False
    ),
    tied_weights_read=lambda: on(
        lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 4)) and setattr(s.b, "weight", s.a.weight),
        lambda s, x: s.b(s.a(x)) * (2 if s.a.weight is s.b.weight else 3) @ s.w,
    ),
    tied_by_data=lambda: on(
        lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 4)) and setattr(s.b.weight, "data", s.a.weight.data),
        lambda s, x: s.b(s.a(x)) * (2 if s.a.weight.data_ptr() == s.b.weight.data_ptr() else 3) @ s.w,
    ),
    tied_transposed=lambda: on(lambda s: attributes(s, v=nn.Parameter(s.w.data.t())), lambda s, x: x @ s.w @ s.v),
    tied_transposed_updated=lambda: on(
        lambda s: attributes(s, v=nn.Parameter(s.w.data.t())), lambda s, x: _scaled_inside(s, x), gradients=False
    ),
    tied_inside_by_assignment=lambda: on(
        lambda s: attributes(s, v=nn.Parameter(torch.ones(4, 4))), lambda s, x: (setattr(s, "v", s.w), x @ s.v @ s.w)[1]
    ),
    flat_parameters=lambda: Case(_flattened(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    flat_parameters_resized=lambda: Case(_flattened(True), randn(3, 4), others=[randn(3, 4, seed=5)]),
    storage_resized_and_back=lambda: Case(_resized_and_back, randn(3, 4), others=[randn(3, 4, seed=5)]),
    storage_of_parameter_resized=lambda: on(None, lambda s, x: _gathered(s, x)),
    storage_of_parameter_freed_after=lambda: on(
        lambda s: attributes(s, full=torch.ones(4, 4)), lambda s, x: _freed(s, x), gradients=False
    ),
    storage_of_activation_freed=lambda: Case(_frees_activation, randn(3, 4), gradients=False),
    storage_of_input_regrown=lambda: Case(_regrows, randn(3, 4), gradients=False),
    storage_swapped_by_set=lambda: Case(_swapped_by_set, (randn(4), randn(4, seed=2)), gradients=False),
    storage_set_to_other=lambda: Case(_set_to_other, (randn(4), randn(4, seed=2)), gradients=False),
    storage_set_inside=lambda: Case(lambda x: torch.empty(0).set_(x.detach() * 2) * x, randn(4)),
    storage_copied=lambda: Case(
        lambda x: torch.empty(4).set_(x.detach().untyped_storage().clone(), 0, (4,)) * x,
        randn(4),
        others=[randn(4, seed=3)],
    ),
    storage_filled=lambda: Case(_filled_storage, randn(4), others=[randn(4, seed=3)]),
    storage_read_as_list=lambda: Case(
        lambda x: x * float(x.detach().untyped_storage()[3]), rand(4), others=[rand(4, seed=3) * 7, -rand(4)]
    ),
    storage_typed_read=lambda: Case(
        lambda x: x * x.detach().storage().tolist()[0], randn(4), others=[randn(4, seed=3)]
    ),
    storage_shared_by_view_of_dtype=lambda: Case(
        lambda x: x * x.detach().view(torch.int32)[0].remainder(7), randn(4), others=[randn(4, seed=3)]
    ),
    storage_moved_to_shared=lambda: Case(lambda x: x.detach().clone().share_memory_() * x, randn(4)),
    storage_is_shared_read=lambda: Case(
        lambda x: x * (2 if x.is_shared() else 3), randn(4), others=[randn(4).share_memory_()], variants=False
    ),
    storage_is_pinned_read=lambda: Case(lambda x: x * (2 if x.is_pinned() else 3), randn(4)),
    swapped_data=lambda: Case(_swaps_data, (randn(4), randn(4, seed=2)), gradients=False),
    swapped_tensors=lambda: Case(_swaps_tensors, randn(4), gradients=False),
    data_assigned_keeps_alias=lambda: Case(_assigns_data, randn(4), gradients=False),
    out_into_input=lambda: Case(
        lambda a, b: torch.add(a, b, out=a) * 2,
        (randn(4), randn(4, seed=2)),
        options=dict(requires_grad=False),
        gradients=False,
    ),
    out_into_both=lambda: two(lambda a, b: torch.mul(a, b, out=b) + a, apart, same, viewed, gradients=False),
    out_into_view=lambda: Case(_out_into_view, randn(4), others=[randn(4, seed=3)], gradients=False),
    out_into_buffer=lambda: on(
        lambda s: s.register_buffer("o", torch.zeros(3, 4)), lambda s, x: torch.mul(x.detach(), 2, out=s.o) @ s.w
    ),
    out_resized=lambda: Case(lambda x: torch.cat([x.detach(), x.detach()], out=torch.empty(0)) * 2 + x.sum(), randn(4)),
    out_into_two_empty=lambda: Case(_out_of_two, randn(3, 4), others=[randn(3, 4, seed=5)], gradients=False),
    strided_over_input=lambda: Case(lambda x: x.as_strided((3, 2), (1, 1)) * 2, randn(4), others=[randn(8)[::2]]),
    strided_beyond_view=lambda: Case(
        lambda x: x.as_strided((4,), (1,), 0) * 2, (randn(8)[4:],), others=[(randn(8, seed=3)[4:],)], variants=False
    ),
    strided_beyond_view_or_not=lambda: Case(
        lambda x: x.as_strided((4,), (1,)) * 2, (randn(8)[2:6],), others=[(randn(4),), (randn(8)[4:],)], variants=False
    ),
    strided_written=lambda: Case(_strided_written, randn(4), others=[randn(4, seed=3)]),
    strided_scatter=lambda: Case(lambda x: x.as_strided_scatter(x[:2] * 5, (2,), (2,), 1), randn(4)),
    unfolded_overlap=lambda: Case(lambda x: x.unfold(0, 3, 1).sin(), randn(6), others=[randn(12)[::2]]),
    version_read=lambda: Case(_version_read, randn(4), others=[randn(4).add_(1)], variants=False),
    version_of_view_and_base=lambda: Case(_versions_of_view, randn(4), gradients=False),
    version_after_data=lambda: Case(_version_after_data, randn(4), gradients=False),
    version_of_parameter_stepped=lambda: on(None, lambda s, x: _version_of_step(s, x), gradients=False),
    base_read_inside=lambda: Case(lambda x: (x * 2)[1:]._base * 3, randn(4)),
    base_of_argument=lambda: Case(
        lambda x: x * x._base.sum(), (randn(8)[:4],), others=[(randn(8, seed=4)[:4],)], variants=False, gradients=False
    ),
    base_of_argument_or_none=lambda: Case(
        lambda x: x * (2 if x._base is None else 3), (randn(8)[:4],), others=[(randn(4),)], variants=False
    ),
    is_view_read=lambda: Case(
        lambda x: x * (2 if x._is_view() else 3),
        (randn(4),),
        others=[(randn(8)[:4],), (randn(4).view(4),)],
        variants=False,
    ),
    identity_of_output=lambda: Case(_identity_of_output, randn(4)),
    identity_after_to=lambda: Case(
        lambda x: x * (2 if x.to(torch.float32) is x else 3),
        randn(4),
        others=[randn(4, dtype=torch.float64)],
        variants=False,
    ),
    identity_after_contiguous=lambda: Case(
        lambda x: x * (2 if x.contiguous() is x else 3), randn(3, 4), others=[randn(4, 3).t()], variants=False
    ),
    identity_after_detach=lambda: Case(lambda x: x * (2 if x.detach().data_ptr() == x.data_ptr() else 3), randn(4)),
    identity_after_reshape=lambda: Case(
        lambda x: x.reshape(-1) * (2 if x.reshape(-1).data_ptr() == x.data_ptr() else 3),
        randn(3, 4),
        others=[randn(4, 3).t()],
        variants=False,
    ),
    identity_in_list=lambda: Case(
        lambda xs, x: x * (1 + [v is x for v in xs].index(True)),
        _in_list(1),
        others=[_in_list(0), _in_list(2)],
        variants=False,
    ),
    identity_of_attribute=lambda: on(lambda s: attributes(s, kept=None), lambda s, x: _same_as_last(s, x)),
    alias_in_result=lambda: Case(lambda x: (lambda y: (y, y.view(-1), y[0]))(x * 2), randn(3, 4)),
    alias_of_input_in_result=lambda: Case(lambda x: (x, x.t(), x[1:]), randn(3, 4)),
    alias_of_input_and_write=lambda: Case(
        _alias_and_write, randn(4), options=dict(requires_grad=False), gradients=False
    ),
    alias_in_dict_and_list=lambda: two(
        lambda d, ts: (ts[0].add_(1), d["a"] * 2)[1],
        lambda: (lambda t: ({"a": t}, [t]))(randn(4)),
        lambda: ({"a": randn(4)}, [randn(4)]),
        lambda: (lambda t: ({"a": t[:3]}, [t]))(randn(4)),
        gradients=False,
    ),
    alias_across_keyword=lambda: two(
        lambda a, b=None: (a.mul_(2), (a if b is None else b) * 3)[1], same, lambda: (randn(4),), apart, gradients=False
    ),
    alias_of_global=lambda: Case(_of_global(), *_global_alias()),
    overlapping_inputs_no_write=lambda: two(lambda a, b: torch.cat([a, b]).sin(), overlapping, apart, neighbours),
    overlapping_inputs_write_second=lambda: two(
        lambda a, b: (b.add_(10), a * 2)[1], overlapping, apart, reversed_order, gradients=False
    ),
    overlapping_inputs_copy=lambda: two(
        lambda a, b: (a.copy_(b * 2), a + b)[1], neighbours, apart, same, gradients=False
    ),
    chunks_written=lambda: Case(_chunks_written, randn(6), others=[randn(6, seed=3)]),
    unbound_written=lambda: Case(_unbound_written, randn(3, 4), others=[randn(4, 3).t()]),
    diagonal_written=lambda: Case(_diagonal_written, randn(3, 3), others=[randn(3, 3, seed=3)]),
    real_part_written=lambda: Case(_real_written, randn(3, dtype=torch.complex64)),
    expanded_and_summed=lambda: Case(lambda x: x.expand(3, 4).sum(0) * x, randn(4), others=[randn(8)[::2]]),
    expanded_stride_read=lambda: Case(
        lambda x: x * (2 if x.stride(0) == 0 else 3), randn(4).expand(3, 4), others=[randn(3, 4)], variants=False
    ),
    pool_reused=lambda: Case(_pooled(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    workspace_written_twice=lambda: Case(_workspace(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    weak_alias_of_parameter=lambda: on(
        lambda s: s.__dict__.update(again=s.w), lambda s, x: x @ s.w + s.again.sum() * (2 if s.again is s.w else 3)
    ),
    gradient_buffer_is_view=lambda: Case(_bucketed(), (randn(3, 4), randn(3, 2, seed=2))),
    parameter_replaced_by_view=lambda: Case(_parameter_of_bucket(), randn(3, 4), others=[randn(3, 4, seed=5)]),
)


def _write_and_add(a: Any, b: Any) -> Any:
    a.add_(1)
    return a * b


def _write_and_count(a: Any, b: Any) -> Any:
    before = b._version
    a.mul_(2)
    return a * (2 if b._version > before else 3)


def _own_parameter() -> Case:
    net = module(None, lambda s, x: x @ s.w)
    return Case(net, net.w, others=[randn(3, 4), nn.Parameter(randn(4, 4))], variants=False)


def _own_parameter_is() -> Case:
    net = module(None, lambda s, x: x @ s.w * (2 if x is s.w else 3))
    return Case(net, net.w, others=[nn.Parameter(net.w.detach().clone())], variants=False)


def _view_of_parameter() -> Case:
    net = module(None, lambda s, x: x @ s.w * (2 if storage(x) == storage(s.w) else 3))
    return Case(net, net.w.detach()[:3], others=[randn(3, 4)], variants=False)


def _data_of_parameter() -> Case:
    net = module(None, lambda s, x: (x.mul_(2), x @ s.w)[1])
    return Case(net, net.w.data, others=[randn(4, 4)], variants=False, gradients=False)


def _detached_parameter() -> Case:
    net = module(None, lambda s, x: x @ s.w * (2 if x.data_ptr() == s.w.data_ptr() else 3))
    return Case(net, net.w.detach(), others=[randn(4, 4)], variants=False)


def _own_buffer(written: bool) -> Case:
    def forward(self, x):
        if written:
            self.n.add_(1)
        return x @ self.w * self.n.sum() * (2 if x is self.n else 3)

    net = module(lambda s: s.register_buffer("n", torch.ones(4)), forward)
    return Case(net, net.n, others=[torch.ones(4)], variants=False, gradients=False)


def _sliced_buffer() -> Case:
    def forward(self, x):
        self.n.mul_(3)
        return x @ self.w

    net = module(lambda s: s.register_buffer("n", torch.ones(2, 4)), forward)
    return Case(net, net.n[0], others=[torch.ones(4)], variants=False, gradients=False)


def _scaled_inside(self: Any, x: Any) -> Any:
    with torch.no_grad():
        self.w[0].mul_(2)
    return x @ self.v


def _flattened(resized: bool = False) -> nn.Module:
    """Parameters that are views of one flat tensor, as sharding libraries keep them."""

    def init(self):
        self.flat = nn.Parameter(torch.randn(20))

    def forward(self, x):
        if resized:
            kept = self.flat.detach().clone()
            self.flat.data.untyped_storage().resize_(0)
            self.flat.data.untyped_storage().resize_(80)
            self.flat.data.copy_(kept)
        weight, bias = self.flat[:16].view(4, 4), self.flat[16:]
        return x @ weight + bias

    return bare(init, forward)


def _resized_and_back(x: Any) -> Any:
    y = (x * 2).detach()
    kept = y.clone()
    size = y.untyped_storage().size()
    y.untyped_storage().resize_(0)
    y.untyped_storage().resize_(size)
    y.copy_(kept)
    return x * y


def _gathered(self: Any, x: Any) -> Any:
    shard = self.w.detach().clone()
    self.w.data.untyped_storage().resize_(0)
    self.w.data.untyped_storage().resize_(64)
    self.w.data.copy_(shard)
    return x @ self.w


def _freed(self: Any, x: Any) -> Any:
    full = self.full * 2
    y = x @ full @ self.w
    full.untyped_storage().resize_(0)
    return y.detach()


def _frees_activation(x: Any) -> Any:
    y = (x * 2).detach()
    z = y.sum()
    y.untyped_storage().resize_(0)
    return x * z


def _regrows(x: Any) -> Any:
    y = x.detach().clone()
    y.resize_(2)
    y.resize_(3, 4)
    return x * y


def _swapped_by_set(a: Any, b: Any) -> Any:
    c, d = a.detach().clone(), b.detach().clone()
    keep = c.untyped_storage()
    c.set_(d.untyped_storage(), 0, (4,))
    d.set_(keep, 0, (4,))
    return c * 2 + d


def _set_to_other(a: Any, b: Any) -> Any:
    c = torch.zeros(4).set_(b.detach())
    c.add_(1)
    return a * c + b


def _filled_storage(x: Any) -> Any:
    y = x.detach().clone()
    y.untyped_storage().fill_(0)
    return x * 2 + y


def _swaps_data(a: Any, b: Any) -> Any:
    c, d = a * 2, b * 3
    c.data, d.data = d.data, c.data
    return c - d * 2


def _swaps_tensors(x: Any) -> Any:
    a, b = (x * 2).detach(), (x * 3).detach()
    torch.utils.swap_tensors(a, b)
    return a - 2 * b


def _assigns_data(x: Any) -> Any:
    y = (x * 2).detach()
    view = y[:2]
    y.data = y.data + 1
    view.zero_()
    return x + y


def _out_into_view(x: Any) -> Any:
    y = torch.zeros(4)
    torch.mul(x.detach()[:2], 2, out=y[2:])
    return y * 3


def _out_of_two(x: Any) -> Any:
    values, places = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(x.detach(), 1, out=(values, places))
    return values * 2, places


def _strided_written(x: Any) -> Any:
    y = x * 2
    y.as_strided((2,), (2,)).add_(5)
    return y.sin()


def _version_read(x: Any) -> Any:
    y = x * 2
    y.add_(1)
    y.mul_(2)
    return y * (y._version + 10 * x._version)


def _versions_of_view(x: Any) -> Any:
    y = (x * 2).detach()
    y[1:].add_(1)
    return x * y[:2]._version * y._version


def _version_after_data(x: Any) -> Any:
    y = (x * 2).detach()
    y.data.add_(1)
    y.add_(1)
    return y * y._version


def _version_of_step(self: Any, x: Any) -> Any:
    before = self.w._version
    with torch.no_grad():
        self.w.mul_(0.5)
    return x @ self.w.detach() * (self.w._version - before)


def _identity_of_output(x: Any) -> Any:
    y = x * 2
    return y * (2 if y.view(4).data_ptr() == y.data_ptr() else 3)


def _in_list(place: int) -> tuple:
    x = randn(4)
    values = [randn(4, seed=2), randn(4, seed=3), randn(4, seed=4)]
    values[place] = x
    return values, x


def _same_as_last(self: Any, x: Any) -> Any:
    again = self.kept is x
    self.kept = x
    return x @ self.w * (2 if again else 3)


def _alias_and_write(x: Any) -> Any:
    view = x[1:]
    x.mul_(2)
    return view, x.sum()


SHARED = randn(8)


def _of_global() -> Any:
    def f(x):
        return x * SHARED.sum() * (2 if x.untyped_storage().data_ptr() == SHARED.untyped_storage().data_ptr() else 3)

    return f


def _global_alias() -> tuple:
    return ((SHARED[:4],),)


def _chunks_written(x: Any) -> Any:
    y = x * 2
    a, b = y.chunk(2)
    a.mul_(b)
    return y.sin()


def _unbound_written(x: Any) -> Any:
    y = x * 2
    for i in range(3):
        y[i].add_(i)
    return y.exp()


def _diagonal_written(x: Any) -> Any:
    y = x * 2
    y.diagonal().fill_(0)
    y.t()[0].add_(1)
    return y.sin()


def _real_written(x: Any) -> Any:
    y = x * 2
    torch.view_as_real(y)[:, 0].add_(1)
    return y.abs()


def _pooled() -> Any:
    """Results in a pool of memory that is used again and again."""
    pool = torch.zeros(2, 3, 4)
    at = [0]

    def f(x):
        slot = pool[at[0] % 2]
        at[0] += 1
        slot.copy_(x.detach() * 2)
        return x * slot

    return f


def _workspace() -> Any:
    work = torch.zeros(3, 4)

    def f(x):
        torch.mul(x.detach(), 2, out=work)
        y = work.sum()
        torch.mul(x.detach(), 3, out=work)
        return x * y + work.clone()

    return f


def _bucketed() -> Any:
    """Gradients are views of one bucket, as data parallel training keeps them."""
    net = nn.Linear(4, 2)
    bucket = torch.zeros(10)
    net.weight.grad, net.bias.grad = bucket[:8].view(2, 4), bucket[8:]

    def step(x, y):
        bucket.zero_()
        (net(x) - y).square().mean().backward()
        return bucket * 2

    return step


def _parameter_of_bucket() -> nn.Module:
    bucket = torch.randn(20)

    def init(self):
        self.l = nn.Linear(4, 4)
        self.l.weight.data = bucket[:16].view(4, 4)
        self.l.bias.data = bucket[16:]
        self.bucket = bucket

    return bare(init, lambda s, x: s.l(x) + s.bucket.sum())
