"""Views, updates in place, results that are inputs or each other, and results of every shape."""

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from case import Case, attributes, bare, ints, leaf, many, module, program, randn
from torch import nn


class Both(NamedTuple):
    """A result with names."""

    loss: Any
    logits: Any


@dataclasses.dataclass
class Result:
    """A result that is a dataclass."""

    loss: Any
    parts: list


class Plain:
    """A result that is an object."""

    def __init__(self, value: Any) -> None:
        self.value = value


def steps(*lines: Any) -> Any:
    """A function that runs each of some functions on a clone of x times one, and gives the clone."""

    def f(x):
        y = x * 1
        for line in lines:
            line(y)
        return y

    return f


def inner(*lines: Any, x: Any = None) -> Case:
    """Updates of a tensor that the program made."""
    return Case(steps(*lines), randn(4, 4) if x is None else x)


def outer(f: Any, *args: Any) -> Case:
    """Updates of the inputs, without gradients."""
    return Case(f, args or (randn(4, 4),), options=dict(requires_grad=False))


def run(*lines: Any) -> Any:
    """The last of several values, for lambdas of several lines."""
    return lines[-1]


many(
    __name__,
    slice_assigned=lambda: inner(lambda y: y.__setitem__((slice(None), 0), 2.0)),
    slice_doubled=lambda: inner(lambda y: y[1:, 1:].mul_(2)),
    diagonal_filled=lambda: inner(lambda y: y.diagonal().fill_(3)),
    diagonal_scaled=lambda: inner(lambda y: y.diagonal().mul_(3)),
    fill_diagonal=lambda: inner(lambda y: y.fill_diagonal_(3)),
    unfold_scaled=lambda: inner(lambda y: y.unfold(0, 2, 2).mul_(2)),
    as_strided_scaled=lambda: inner(lambda y: y.as_strided((2, 2), (4, 2), 1).mul_(2)),
    transpose_scaled=lambda: inner(lambda y: y.t()[0].mul_(5)),
    transposed_in_place=lambda: inner(lambda y: y.t_(), x=randn(3, 4)),
    squeezed_in_place=lambda: inner(lambda y: y.unsqueeze_(0)),
    view_then_base=lambda: Case(_view_then_base, randn(4, 4)),
    base_then_view=lambda: Case(_base_then_view, randn(4, 4)),
    view_of_view_of_view=lambda: inner(lambda y: y.view(2, 8)[0].view(2, 4)[:, 1:3].add_(1)),
    slices_scaled=lambda: inner(lambda y: y[2:].mul_(3), lambda y: y.narrow(1, 0, 2).add_(1)),
    rows_scaled=lambda: inner(lambda y: [y[i].mul_(i) for i in range(4)] and None),
    split_detached_and_scaled=lambda: inner(
        lambda y: [row.mul_(i) for i, row in enumerate(y.detach().unbind())] and None
    ),
    expanded_and_added=lambda: inner(lambda y: y.add_(y[0].clone().expand(4, 4))),
    narrow_swapped=lambda: Case(_swap, randn(4, 4)),
    copied_over_itself=lambda: inner(lambda y: y[1:].copy_(y[:-1].clone())),
    index_put=lambda: inner(lambda y: y.index_put_((torch.tensor([0, 2]),), torch.ones(4))),
    index_put_adds=lambda: inner(lambda y: y.index_put_((torch.tensor([1, 1]),), torch.ones(2, 4), accumulate=True)),
    index_added=lambda: inner(lambda y: y.index_add_(0, torch.tensor([1, 1]), torch.ones(2, 4))),
    index_copied=lambda: inner(lambda y: y.index_copy_(0, torch.tensor([1, 2]), torch.ones(2, 4))),
    index_filled=lambda: inner(lambda y: y.index_fill_(1, torch.tensor([1, 2]), 7)),
    scattered=lambda: inner(lambda y: y.scatter_(0, ints(1, 4), 5.0)),
    scatter_added=lambda: inner(lambda y: y.scatter_add_(0, ints(2, 4), torch.ones(2, 4))),
    scatter_reduced=lambda: inner(lambda y: y.scatter_reduce_(0, ints(2, 4), torch.ones(2, 4), "amax")),
    masked_filled=lambda: inner(lambda y: y.masked_fill_(y > 0, 2)),
    masked_scattered=lambda: inner(lambda y: y.masked_scatter_(torch.eye(4) > 0, torch.arange(4.0))),
    put_in=lambda: inner(lambda y: y.put_(torch.tensor([0, 5]), torch.tensor([1.0, 2.0]))),
    cumulated_in_place=lambda: inner(lambda y: y.cumsum_(1)),
    clamped_in_place=lambda: inner(lambda y: y.clamp_(-0.5, 0.5)),
    relu_in_place=lambda: inner(lambda y: torch.relu_(y)),
    module_relu_in_place=lambda: Case(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)), randn(3, 4)
    ),
    dropout_in_place=lambda: Case(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5, inplace=True)), randn(3, 4)),
    addcmul_in_place=lambda: inner(lambda y: y.addcmul_(torch.ones(4), torch.ones(4) * 2)),
    lerp_in_place=lambda: inner(lambda y: y.lerp_(torch.ones(4), 0.3)),
    foreach_in_place=lambda: Case(_foreach, (randn(3), randn(4))),
    foreach_on_inputs=lambda: outer(lambda a, b: torch._foreach_mul_([a, b], 2), randn(3), randn(4)),
    data_changed=lambda: Case(lambda x: (lambda y: run(y.data.mul_(2), y * y))(x * 1), randn(3)),
    detached_changed=lambda: Case(lambda x: (lambda y: run(y.detach().mul_(2), y * y))(x * 1), randn(3)),
    saved_then_data_changed=lambda: Case(
        lambda x: (lambda y: (lambda z: run(y.data.mul_(2), z))(y * y))(x * 1), randn(3)
    ),
    no_grad_changed=lambda: Case(_no_grad_changed, randn(3)),
    data_assigned=lambda: Case(_data_assigned, randn(3)),
    set_to_other=lambda: Case(_set_to_other, randn(3)),
    resized_larger=lambda: Case(_resized, randn(3, 4)),
    resized_smaller=lambda: Case(
        lambda x: (lambda y: run(y.resize_(2, 2), y.sum() * x))(x.detach().clone()), randn(3, 4)
    ),
    zeroed=lambda: inner(lambda y: y[0].zero_()),
    out_argument=lambda: outer(lambda a, o: torch.add(a, 1, out=o), randn(3), torch.empty(3).zero_()),
    out_argument_resized=lambda: outer(lambda a, o: (torch.add(a, 1, out=o), o.shape[0]), randn(3), torch.empty(0)),
    out_argument_inside=lambda: Case(
        lambda x: (lambda o: run(torch.mul(x.detach(), 2, out=o), o * x))(torch.empty(3)), randn(3)
    ),
    out_of_two=lambda: outer(
        lambda a, v, i: torch.sort(a, out=(v, i)), randn(3), torch.zeros(3), torch.zeros(3, dtype=torch.int64)
    ),
    input_doubled=lambda: outer(lambda x: x.mul_(2) + 1),
    input_doubled_with_gradient=lambda: Case(lambda x: x.mul_(2) * 3, randn(3)),
    input_sliced_and_doubled=lambda: outer(lambda x: run(x[1:].mul_(2), x.sum())),
    input_transposed_and_doubled=lambda: outer(lambda x: run(x.t()[0].mul_(2), x.sum(0))),
    input_replaced=lambda: outer(lambda x: run(x.copy_(torch.ones(4, 4)), x * 2)),
    input_sorted_into_itself=lambda: outer(lambda x: x.copy_(x.sort(0).values)),
    input_data_replaced=lambda: outer(lambda x: run(setattr(x, "data", x.data * 2), x + 1)),
    input_resized=lambda: outer(lambda x: run(x.resize_(2, 2), x + 1)),
    input_transposed_in_place=lambda: outer(lambda x: run(x.t_(), x * 2), randn(3, 4)),
    input_unsqueezed_in_place=lambda: outer(lambda x: run(x.unsqueeze_(0), x * 2)),
    input_changed_and_changed_back=lambda: outer(lambda x: run(x.add_(1), x.sub_(1), x * 2)),
    input_filled_with_random=lambda: outer(lambda x: x.uniform_() * 2),
    input_in_a_list_changed=lambda: outer(lambda xs: run(xs[0].add_(1), xs[0] * xs[1]), [randn(3), randn(3)]),
    input_integers_changed=lambda: outer(lambda i: run(i.add_(1), i * 2), ints(4)),
    input_requires_grad_switched=lambda: Case(lambda x: x.detach().requires_grad_() * 2, leaf(3)),
    input_changed_under_no_grad=lambda: Case(_changed_under_no_grad, leaf(3)),
    returns_input=lambda: Case(lambda x: x, randn(3)),
    returns_input_in_tuple=lambda: Case(lambda x: (x, x * 2), randn(3)),
    returns_input_leaf=lambda: Case(lambda x: (x, x * 2), leaf(3)),
    returns_input_view=lambda: Case(lambda x: (x.t(), x[0], x.view(-1)), randn(4, 4)),
    returns_changed_input=lambda: outer(lambda x: x.mul_(2)),
    returns_view_of_changed_input=lambda: outer(lambda x: run(x.mul_(2), x[0])),
    returns_view_then_changes=lambda: Case(
        lambda x: (lambda y: (lambda v: run(y.mul_(2), (y, v)))(y[0]))(x * 1), randn(4, 4)
    ),
    returns_parameter=lambda: Case(module(None, lambda self, x: (x @ self.w, self.w)), randn(3, 4)),
    returns_parameter_only=lambda: Case(module(None, lambda self, x: self.w), randn(3, 4)),
    returns_parameter_view=lambda: Case(module(None, lambda self, x: (x @ self.w, self.w.t())), randn(3, 4)),
    returns_parameter_detached=lambda: Case(module(None, lambda self, x: (x @ self.w, self.w.detach())), randn(3, 4)),
    returns_buffer=lambda: Case(
        bare(lambda s: s.register_buffer("b", torch.ones(4)), lambda self, x: (x * 2, self.b)), randn(3, 4)
    ),
    returns_buffer_changed=lambda: Case(
        bare(lambda s: s.register_buffer("b", torch.ones(4)), lambda self, x: (x * 2, self.b.add_(1))), randn(3, 4)
    ),
    returns_module=lambda: Case(module(None, lambda self, x: (x @ self.w, self)), randn(3, 4)),
    returns_twice=lambda: Case(lambda x: (lambda y: (y, y))(x * 2), randn(3)),
    returns_twice_nested=lambda: Case(lambda x: (lambda y: [y, {"a": y, "b": (y, x)}])(x * 2), randn(3)),
    returns_detached_twin=lambda: Case(lambda x: (lambda y: (y, y.detach()))(x * 2), randn(3)),
    returns_two_views=lambda: Case(lambda x: (lambda y: (y[:2], y[1:]))(x * 2), randn(3, 4)),
    returns_expanded=lambda: Case(lambda x: (x * 2).expand(5, 3), randn(3)),
    returns_constant=lambda: Case(lambda x: (x * 2, torch.ones(3)), randn(3)),
    returns_outside_tensor=lambda: _outside(),
    returns_only_constant=lambda: Case(lambda x: torch.ones(3) * 2, randn(3)),
    returns_none=lambda: Case(lambda x: None, randn(3)),
    returns_none_among=lambda: Case(lambda x: (x * 2, None, [None]), randn(3)),
    returns_number=lambda: Case(lambda x: 3.5, randn(3)),
    returns_number_among=lambda: Case(lambda x: (x * 2, 3, 2.5, True, 1j), randn(3)),
    returns_text=lambda: Case(lambda x: "text", randn(3)),
    returns_text_among=lambda: Case(lambda x: (x * 2, "a text", b"raw", torch.float32, x.shape), randn(3)),
    returns_item=lambda: Case(lambda x: (x * 2, x.sum().item()), randn(3), others=[-randn(3)]),
    returns_list_of_values=lambda: Case(lambda x: (x * 2, x.tolist()), randn(3), others=[-randn(3)]),
    returns_shape=lambda: Case(lambda x: (x * 2, x.shape, len(x), x.dtype), randn(3), others=[randn(4)]),
    returns_array=lambda: Case(lambda x: (x * 2, x.detach().numpy() * 2), randn(3), others=[-randn(3)]),
    returns_array_of_constants=lambda: Case(lambda x: (x * 2, np.arange(3)), randn(3)),
    returns_empty_tuple=lambda: Case(lambda x: (), randn(3)),
    returns_empty_containers=lambda: Case(lambda x: (x * 2, [], {}, ()), randn(3)),
    returns_empty_tensor=lambda: Case(lambda x: (x * 2, x[:0] * 3), randn(3)),
    returns_dict=lambda: Case(lambda x: {"b": x * 2, "a": x * 3}, randn(3)),
    returns_dict_of_odd_keys=lambda: Case(lambda x: {1: x * 2, (2, "a"): x * 3, None: x * 4, False: x * 5}, randn(3)),
    returns_dict_of_dots=lambda: Case(lambda x: {"a.b": x * 2, "a": {"b": x * 3}}, randn(3)),
    returns_dict_of_keywords=lambda: Case(
        lambda x: {"class": x * 2, "lambda": x * 3, "a b": x * 4, "": x * 5, "ü": x}, randn(3)
    ),
    returns_list_with_one=lambda: Case(lambda x: [x * 2], randn(3)),
    returns_named_tuple=lambda: Case(lambda x: Both(x.sum(), x * 2), randn(3)),
    returns_named_tuple_of_torch=lambda: Case(lambda x: x.max(0), randn(3, 4)),
    returns_dataclass=lambda: Case(lambda x: Result(x.sum(), [x * 2, "a"]), randn(3)),
    returns_object=lambda: Case(lambda x: Plain(x * 2), randn(3)),
    returns_ordered_dict=lambda: Case(lambda x: collections.OrderedDict(b=x * 2, a=x), randn(3)),
    returns_default_dict=lambda: Case(lambda x: collections.defaultdict(list, b=[x * 2]), randn(3)),
    returns_deque=lambda: Case(lambda x: collections.deque([x * 2, x]), randn(3)),
    returns_set_of_numbers=lambda: Case(lambda x: (x * 2, {1, 2}), randn(3)),
    returns_generator=lambda: Case(lambda x: (v * 2 for v in x), randn(3)),
    returns_function=lambda: Case(lambda x: (x * 2, torch.sin), randn(3)),
    returns_bool_tensor=lambda: Case(lambda x: (x > 0, x * 2), randn(3)),
    returns_only_integers=lambda: Case(lambda x: x.argmax(), randn(3)),
    returns_size_of_changed=lambda: Case(lambda x: (x[x > 0].numel(), x * 2), randn(5), others=[-randn(5)]),
    returns_strided=lambda: Case(lambda x: (x * 2).t(), randn(3, 4)),
    returns_conjugate=lambda: Case(lambda x: torch.complex(x, -x).conj(), randn(3)),
    returns_negative_view=lambda: Case(lambda x: torch.complex(x, -x).conj().imag, randn(3)),
    returns_saved_tensor=lambda: Case(lambda x: (lambda y: (y, y.exp()))(x.exp()), randn(3)),
    returns_loss_dict_with_logs=lambda: Case(
        lambda x: {"loss": x.square().mean(), "log": {"max": x.max().item(), "text": "ok"}},
        randn(3),
        others=[-randn(3)],
    ),
    returns_packed_sequence=lambda: Case(
        lambda x: nn.utils.rnn.pack_padded_sequence(x * 2, [3, 2], batch_first=True), randn(2, 3, 4)
    ),
    real_view_changed=lambda: Case(
        lambda x: (lambda z: run(torch.view_as_real(z)[..., 0].mul_(2), z))(torch.complex(x, x)), randn(3)
    ),
    imaginary_part_changed=lambda: Case(lambda x: (lambda z: run(z.imag.mul_(2), z))(torch.complex(x, x)), randn(3)),
    bits_viewed=lambda: Case(lambda x: x.view(torch.int32).float() * 1e-9 + x, randn(3)),
    bits_changed=lambda: Case(
        lambda x: (lambda y: run(y.view(torch.int32).add_(1), x * y))(x.detach().clone()), randn(3)
    ),
    fftshift_roll=lambda: Case(lambda x: torch.roll(x, 1, 0).flip(1).rot90(), randn(3, 4)),
    chunked_cat_changed=lambda: Case(
        lambda x: (lambda ys: run(ys[0].mul_(2), torch.cat(ys)))([c.clone() for c in (x * 1).chunk(2)]), randn(4)
    ),
    list_of_states_changed=lambda: Case(_states, randn(3)),
    loop_of_updates=lambda: Case(_loop_updates, randn(4, 4)),
    recurrent_buffer_write=lambda: Case(_recurrent, randn(4, 3)),
    view_of_parameter_changed=lambda: Case(_parameter_view_changed(), randn(3, 4)),
    parameter_zeroed_row=lambda: Case(_parameter_row(), randn(3, 4)),
    weight_of_submodule_copied=lambda: Case(_weight_copied(), randn(3, 4)),
    input_written_to_buffer=lambda: Case(
        bare(
            lambda s: s.register_buffer("last", torch.zeros(3)),
            lambda self, x: run(self.last.copy_(x.detach()), x * self.last),
        ),
        randn(3),
    ),
    buffer_keeps_input=lambda: Case(
        bare(
            lambda s: s.register_buffer("last", torch.zeros(3)),
            lambda self, x: run(setattr(self, "last", x.detach()), x * 2),
        ),
        randn(3),
    ),
)


def _view_then_base(x: Any) -> Any:
    y = x * 1
    v = y[0]
    v.mul_(2)
    y.add_(1)
    return v * y


def _base_then_view(x: Any) -> Any:
    y = x * 1
    v = y[:, 1]
    y.mul_(3)
    v.add_(1)
    return y.sin() * v


def _swap(x: Any) -> Any:
    y = x * 1
    kept = y[0].clone()
    y[0] = y[1]
    y[1] = kept
    return y * torch.arange(16.0).view(4, 4)


def _foreach(a: Any, b: Any) -> Any:
    ys = [a * 1, b * 1]
    torch._foreach_add_(ys, 1.0)
    torch._foreach_mul_(ys, [2.0, 3.0])
    return torch._foreach_sqrt(ys)


def _no_grad_changed(x: Any) -> Any:
    y = x * 1
    with torch.no_grad():
        y.mul_(2)
    return y * 3


def _data_assigned(x: Any) -> Any:
    y = x * 1
    y.data = x.data * 5
    return y * 3


def _set_to_other(x: Any) -> Any:
    y = torch.zeros(3)
    y.set_(x.detach() * 2)
    return x * y


def _resized(x: Any) -> Any:
    y = x.detach().clone()
    y.resize_(5, 4)
    y[3:] = 1
    return y.sum() * x


def _changed_under_no_grad(x: Any) -> Any:
    y = x * x
    with torch.no_grad():
        x.add_(1)
    return x * 2 + y.detach()


def _outside() -> Case:
    c = torch.randn(3)
    return Case(lambda x: (x * 2, c, c[1:]), randn(3))


def _states(x: Any) -> Any:
    states = [x * 1]
    for i in range(3):
        states.append(states[-1].clone().mul_(2))
        states[i] = states[i] + 1
    return torch.stack(states)


def _loop_updates(x: Any) -> Any:
    y = torch.zeros(4, 4)
    for i in range(4):
        y[i] = x[i] * (i + 1)
        if i:
            y[i] += y[i - 1]
    return y


def _recurrent(x: Any) -> Any:
    out = x.new_empty(4, 3)
    h = x.new_zeros(3)
    for i in range(4):
        h = torch.tanh(h + x[i])
        out[i].copy_(h)
    return out


def _parameter_view_changed() -> Any:
    def forward(self, x):
        v = self.w * 1
        v[0].mul_(2)
        return x @ v

    return module(None, forward)


def _parameter_row() -> Any:
    def forward(self, x):
        with torch.no_grad():
            self.w[0].zero_()
        return x @ self.w

    return module(None, forward)


def _weight_copied() -> Any:
    def forward(self, x):
        with torch.no_grad():
            self.l.weight.copy_(self.w)
        return self.l(x) + x @ self.w

    return module(lambda s: attributes(s, l=nn.Linear(4, 4)), forward)


@program
def split_view_no_grad_changed() -> Case:
    def f(x):
        y = x * 1
        a, b = y[:2], y[2:]
        with torch.no_grad():
            a.mul_(2)
        return y * torch.cat([b, a])

    return Case(f, randn(4, 4))


@program
def saved_version_is_checked() -> Case:
    def f(x):
        y = x.sigmoid()
        z = y * 2
        return z.add_(1) + y

    return Case(f, randn(3))


@program
def closure_list_collects_outputs() -> Case:
    kept: list[Any] = []

    def f(x):
        kept.append(x * 2)
        return sum(kept)

    return Case(f, randn(3))


@program
def many_outputs_with_gaps() -> Case:
    return Case(lambda x: [x * i if i % 2 else (x * i).detach() for i in range(6)], leaf(3))


@program
def output_requires_grad_by_itself() -> Case:
    return Case(lambda x: (x * 2, torch.ones(3, requires_grad=True) * 3), leaf(3))
