"""What autograd offers: islands without gradients, custom Functions, hooks, checkpoints, higher orders, transforms."""

from typing import Any

import torch
from case import Case, attributes, bare, leaf, many, module, program, rand, randn
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def of(f: Any, x: Any = None, **more: Any) -> Case:
    """A function of x."""
    return Case(f, leaf(3, 4) if x is None else x, **more)


def function(forward: Any, backward: Any, **more: Any) -> Any:
    """A custom Function of two static methods."""
    members = {key: staticmethod(value) for key, value in more.items() if callable(value)}
    members.update({key: value for key, value in more.items() if not callable(value)})
    return type(
        "Custom",
        (torch.autograd.Function,),
        dict(forward=staticmethod(forward), backward=staticmethod(backward), **members),
    )


def hooked(y: Any, hook: Any) -> Any:
    """A tensor, with a hook on it."""
    y.register_hook(hook)
    return y


def net_with(add: Any) -> Case:
    """Two linear layers, to which `add` adds hooks."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    add(net)
    return Case(net, leaf(3, 4))


class Scale(torch.autograd.Function):
    """Forward as is, gradient reversed."""

    @staticmethod
    def forward(ctx: Any, x: Any, k: Any) -> Any:
        """As it is."""
        ctx.k = k
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Reversed."""
        return -ctx.k * g, None


class Saved(torch.autograd.Function):
    """Saves input and output."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The exponential."""
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """With both."""
        x, y = ctx.saved_tensors
        return g * y + 0 * x


class Setup(torch.autograd.Function):
    """The newer form, with a context of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        """Two results."""
        return x * y, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """What the backward needs."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        """Both gradients."""
        x, y = ctx.saved_tensors
        return g * y + h, g * x + h


class Dirty(torch.autograd.Function):
    """Changes its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Doubled in place."""
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Doubled."""
        return g * 2


class Partly(torch.autograd.Function):
    """One result without a gradient, and gradients that may be missing."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Values and indices."""
        ctx.set_materialize_grads(False)
        values, indices = x.sort()
        ctx.save_for_backward(indices)
        ctx.mark_non_differentiable(indices)
        return values, x * 2, indices

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any, i: Any) -> Any:
        """Whatever came."""
        (indices,) = ctx.saved_tensors
        out = torch.zeros(indices.shape)
        if g is not None:
            out = out.scatter(-1, indices, g)
        return out + h * 2 if h is not None else out


class Once(torch.autograd.Function):
    """Differentiable once."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The sine."""
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        """The cosine."""
        return g * ctx.saved_tensors[0].cos()


class Straight(torch.autograd.Function):
    """Rounds; the gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Rounded."""
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """As it comes."""
        return g


class WrongOnPurpose(torch.autograd.Function):
    """A gradient that is none of the forward's."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The square."""
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Seven times."""
        return g * 7


class NoneBack(torch.autograd.Function):
    """No gradient for one of two."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        """The product."""
        return x * y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """For the first only."""
        return g, None


class InnerGrad(torch.autograd.Function):
    """Runs autograd inside."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """The gradient of the cube."""
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            (g,) = torch.autograd.grad((z**3).sum(), z)
        ctx.save_for_backward(x)
        return g

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """Of three x squared."""
        return g * 6 * ctx.saved_tensors[0]


many(
    __name__,
    detached=lambda: of(lambda x: x * x.detach()),
    detached_all=lambda: of(lambda x: x.detach() * 2),
    detached_one_of_two=lambda: Case(lambda x, y: x * y.detach(), (leaf(3), leaf(3, seed=2))),
    stop_gradient_by_data=lambda: of(lambda x: x * x.data),
    no_grad_island=lambda: of(lambda x: x * torch.no_grad()(lambda: x.sin())()),
    no_grad_everything=lambda: of(torch.no_grad()(lambda x: x * 2)),
    enable_grad_inside_no_grad=lambda: of(
        lambda x: torch.no_grad()(lambda: torch.enable_grad()(lambda: x * 3)() * 2)() + x
    ),
    set_grad_enabled_block=lambda: of(lambda x: x * torch.set_grad_enabled(False)(lambda: x * 2)()),
    inference_mode_island=lambda: of(lambda x: x * torch.inference_mode()(lambda: x.sin())().clone()),
    requires_grad_inside=lambda: of(lambda x: torch.ones(4).requires_grad_() * x),
    inner_gradient=lambda: of(lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0] * 2),
    inner_gradient_detached=lambda: of(lambda x: x * _inner(x)),
    inner_gradient_without_graph=lambda: of(lambda x: x * torch.autograd.grad((x**3).sum(), x)[0]),
    inner_gradient_unused=lambda: Case(
        lambda x, y: x * 2 if torch.autograd.grad(x.sum(), [x, y], allow_unused=True)[1] is None else x,
        (leaf(3), leaf(3, seed=2)),
    ),
    inner_second_order=lambda: of(lambda x: _second_order(x)),
    inner_backward=lambda: of(lambda x: _inner_backward(x)),
    inner_backward_on_parameter=lambda: Case(module(None, lambda s, x: _backward_on(s, x)), randn(3, 4)),
    gradient_penalty=lambda: Case(_critic(), (randn(3, 4), randn(3, 4, seed=2))),
    energy_and_forces=lambda: Case(_forces(), leaf(3, 4)),
    jacobian=lambda: of(
        lambda x: torch.autograd.functional.jacobian(lambda v: v.sin(), x, create_graph=True).sum(0), leaf(3)
    ),
    hessian=lambda: of(
        lambda x: torch.autograd.functional.hessian(lambda v: (v**3).sum(), x, create_graph=True).sum(0), leaf(3)
    ),
    vector_jacobian=lambda: of(
        lambda x: torch.autograd.functional.vjp(lambda v: v.sin(), x, torch.ones(3), create_graph=True)[1], leaf(3)
    ),
    functional_grad=lambda: of(lambda x: torch.func.grad(lambda v: v.sin().sum())(x)),
    functional_grad_of_grad=lambda: of(
        lambda x: torch.func.grad(lambda v: torch.func.grad(lambda u: (u**4).sum())(v).sum())(x)
    ),
    functional_grad_and_value=lambda: of(
        lambda x: torch.func.grad_and_value(lambda v: (v.sin().sum(), v.cos()), has_aux=True)(x)
    ),
    functional_vmap=lambda: of(lambda x: torch.vmap(lambda r: r * r.sum())(x)),
    functional_vmap_of_grad=lambda: of(lambda x: torch.vmap(torch.func.grad(lambda r: (r**3).sum()))(x)),
    functional_vmap_dims=lambda: of(lambda x: torch.vmap(lambda r, k: r * k, in_dims=(1, None), out_dims=1)(x, 3.0)),
    functional_per_sample=lambda: Case(_per_sample(), randn(3, 4), gradients=False),
    functional_jvp=lambda: of(lambda x: torch.func.jvp(torch.sin, (x,), (torch.ones(3, 4),))[1]),
    functional_vjp=lambda: of(lambda x: torch.func.vjp(torch.sin, x)[1](torch.ones(3, 4))[0]),
    functional_jacrev=lambda: of(lambda x: torch.func.jacrev(torch.sin)(x), leaf(3)),
    functional_jacfwd=lambda: of(lambda x: torch.func.jacfwd(torch.sin)(x), leaf(3)),
    functional_hessian=lambda: of(lambda x: torch.func.hessian(lambda v: (v**3).sum())(x), leaf(3)),
    functional_linearize=lambda: of(lambda x: torch.func.linearize(torch.sin, x)[1](torch.ones(3)), leaf(3)),
    functional_functionalize=lambda: of(lambda x: torch.func.functionalize(lambda v: (v * 1).mul_(2))(x)),
    forward_mode=lambda: of(lambda x: _forward_mode(x)),
    gradient_reversal=lambda: of(lambda x: Scale.apply(x, 0.5) * x),
    custom_saved=lambda: of(lambda x: Saved.apply(x) * 2),
    custom_saved_twice=lambda: of(lambda x: Saved.apply(Saved.apply(x * 0.1))),
    custom_setup_context=lambda: Case(lambda x, y: Setup.apply(x, y), (leaf(3), leaf(3, seed=2))),
    custom_setup_one_used=lambda: Case(lambda x, y: Setup.apply(x, y)[0], (leaf(3), leaf(3, seed=2))),
    custom_under_vmap=lambda: Case(
        lambda x, y: torch.vmap(lambda a, b: Setup.apply(a, b)[0])(x, y), (leaf(3), leaf(3, seed=2))
    ),
    custom_dirty=lambda: of(lambda x: Dirty.apply(x * 1) * 3),
    custom_partly=lambda: of(lambda x: Partly.apply(x)),
    custom_partly_first=lambda: of(lambda x: Partly.apply(x)[0] * 2),
    custom_once=lambda: of(lambda x: Once.apply(x) * x),
    custom_straight_through=lambda: of(lambda x: Straight.apply(x) * x),
    custom_wrong_on_purpose=lambda: of(lambda x: WrongOnPurpose.apply(x)),
    custom_none_back=lambda: Case(lambda x, y: NoneBack.apply(x, y), (leaf(3), leaf(3, seed=2))),
    custom_inner_gradient=lambda: of(lambda x: InnerGrad.apply(x)),
    custom_in_module=lambda: Case(module(None, lambda s, x: Scale.apply(x @ s.w, 2.0)), randn(3, 4)),
    custom_in_no_grad=lambda: of(lambda x: x * torch.no_grad()(Saved.apply)(x)),
    custom_needs_input_grad=lambda: Case(lambda x, y: _needs().apply(x, y), (leaf(3), randn(3, seed=2))),
    custom_with_none_and_numbers=lambda: of(lambda x: _mixed().apply(x, None, 3, "a")),
    custom_counts_backwards=lambda: _counting(),
    custom_saves_on_self=lambda: of(lambda x: _unsaved().apply(x)),
    straight_through_by_detach=lambda: of(lambda x: x + (x.round() - x).detach()),
    straight_through_sign=lambda: of(lambda x: (x.sign() - x).detach() + x.clamp(-1, 1)),
    tensor_hook_doubles=lambda: of(lambda x: hooked(x * 2, lambda g: g * 2) * 3),
    tensor_hook_none=lambda: of(lambda x: hooked(x * 2, lambda g: None) * 3),
    tensor_hook_two=lambda: of(lambda x: hooked(hooked(x * 2, lambda g: g * 2), lambda g: g + 1) * 3),
    tensor_hook_removed=lambda: of(lambda x: _removed_hook(x)),
    tensor_hook_on_input=lambda: of(lambda x: (x.register_hook(lambda g: g * 5), x * 2)[1]),
    tensor_hook_masks=lambda: of(lambda x: hooked(x * 2, lambda g: g * (x.detach() > 0)) * 3),
    tensor_hook_in_place=lambda: of(lambda x: hooked(x * 2, lambda g: g.clone().clamp_(-1, 1)) * 3),
    tensor_hook_on_output=lambda: of(lambda x: hooked(x * 2, lambda g: g * 4)),
    tensor_hook_changes_a_buffer=lambda: Case(_hook_buffer(), randn(3, 4), gradients=False),
    grad_fn_hook=lambda: of(lambda x: _node_hook(x)),
    grad_fn_prehook=lambda: of(lambda x: _node_prehook(x)),
    retains_gradient=lambda: of(lambda x: (lambda y: (y.retain_grad(), y * 3)[1])(x * 2)),
    multi_gradient_hook=lambda: of(lambda x: _multi_hook(x)),
    hook_forward=lambda: net_with(lambda n: n[0].register_forward_hook(lambda m, i, o: o * 2)),
    hook_forward_pre=lambda: net_with(lambda n: n[0].register_forward_pre_hook(lambda m, i: (i[0] * 2,))),
    hook_forward_kwargs=lambda: net_with(
        lambda n: n[0].register_forward_hook(lambda m, i, k, o: o + 1, with_kwargs=True)
    ),
    hook_forward_always=lambda: net_with(lambda n: n[0].register_forward_hook(lambda m, i, o: o * 2, always_call=True)),
    hook_backward_full=lambda: net_with(lambda n: n[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))),
    hook_backward_full_pre=lambda: net_with(lambda n: n[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))),
    hook_backward_full_none=lambda: net_with(lambda n: n[0].register_full_backward_hook(lambda m, gi, go: None)),
    hook_backward_of_the_whole=lambda: net_with(
        lambda n: n.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
    ),
    hook_global_forward=lambda: _global_hook(),
    checkpointed=lambda: of(lambda x: checkpoint(lambda a: a.sin() * a, x, use_reentrant=False)),
    checkpointed_reentrant=lambda: of(lambda x: checkpoint(lambda a: a.sin() * a, x, use_reentrant=True)),
    checkpointed_module=lambda: Case(_checkpointed(False), leaf(3, 4)),
    checkpointed_module_reentrant=lambda: Case(_checkpointed(True), leaf(3, 4)),
    checkpointed_dropout=lambda: of(lambda x: checkpoint(lambda a: F.dropout(a, 0.5) * a, x, use_reentrant=False)),
    checkpointed_dropout_reentrant=lambda: of(
        lambda x: checkpoint(lambda a: F.dropout(a, 0.5) * a, x, use_reentrant=True)
    ),
    checkpointed_twice=lambda: of(
        lambda x: checkpoint(
            lambda b: checkpoint(lambda a: a.sin(), b, use_reentrant=False) * 2, x, use_reentrant=False
        )
    ),
    checkpointed_no_rng=lambda: of(
        lambda x: checkpoint(lambda a: a.sin() * a, x, use_reentrant=False, preserve_rng_state=False)
    ),
    checkpointed_sequential=lambda: Case(_sequential(), leaf(3, 4)),
    checkpointed_batch_norm=lambda: Case(_checkpointed_norm(), leaf(3, 4)),
    checkpointed_branch=lambda: of(
        lambda x: checkpoint(lambda a: a.sin() if a.sum() > 0 else a.cos(), x, use_reentrant=False),
        others=[-leaf(3, 4).detach()],
    ),
    checkpointed_selectively=lambda: of(lambda x: _selective(x)),
    saved_hooks_scaled=lambda: of(lambda x: _saved_hooks(x, lambda t: t * 1, lambda t: t)),
    saved_hooks_quantized=lambda: of(lambda x: _saved_hooks(x, lambda t: t.to(torch.bfloat16), lambda t: t.float())),
    saved_hooks_wrong_on_purpose=lambda: of(lambda x: _saved_hooks(x, lambda t: t * 2, lambda t: t)),
    saved_hooks_on_cpu=lambda: of(_save_on_cpu),
    saved_hooks_disabled=lambda: of(lambda x: _hooks_disabled(x)),
    complex_abs=lambda: of(lambda x: x.abs(), leaf(3, dtype=torch.complex64)),
    complex_product_with_conjugate=lambda: of(lambda x: (x * x.conj()).real, leaf(3, dtype=torch.complex64)),
    complex_result=lambda: of(lambda x: x * (1 + 2j), leaf(3, dtype=torch.complex64)),
    complex_from_real=lambda: of(lambda x: torch.polar(x.abs(), x), leaf(3)),
    complex_fft=lambda: of(lambda x: torch.fft.fft(x).abs(), leaf(4)),
    complex_rfft_round=lambda: of(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 1j), leaf(4)),
    complex_view_real=lambda: of(lambda x: torch.view_as_real(x).sum(-1), leaf(3, dtype=torch.complex64)),
    complex_linear=lambda: Case(nn.Linear(4, 2, dtype=torch.complex64), randn(3, 4, dtype=torch.complex64)),
    complex_conj_physical=lambda: of(lambda x: torch.conj_physical(x) * 2, leaf(3, dtype=torch.complex64)),
    complex_stft=lambda: of(lambda x: torch.stft(x, 8, return_complex=True, window=torch.ones(8)).abs(), leaf(32)),
    sparse_product=lambda: of(lambda x: torch.sparse.mm(torch.eye(3).to_sparse(), x)),
    sparse_made_inside=lambda: of(lambda x: (x.to_sparse() * 2).to_dense()),
    sparse_gradient_of_embedding=lambda: Case(nn.Embedding(5, 3, sparse=True), torch.tensor([1, 1, 4])),
    sparse_gradient_of_bag=lambda: Case(
        nn.EmbeddingBag(5, 3, mode="sum", sparse=True), (torch.tensor([1, 1, 4]), torch.tensor([0, 2]))
    ),
    sparse_csr_product=lambda: of(lambda x: torch.eye(3).to_sparse_csr() @ x),
    sparse_softmax=lambda: of(lambda x: torch.sparse.softmax(x.to_sparse(), 1).to_dense()),
    integer_input=lambda: Case(lambda i, x: x[i] * 2, (torch.tensor([0, 2]), leaf(3))),
    only_integer_input=lambda: Case(lambda i: i * 2, torch.tensor([0, 2])),
    bool_input=lambda: Case(lambda m, x: x * m, (torch.tensor([True, False, True]), leaf(3))),
    zero_gradient=lambda: of(lambda x: x * 0),
    sign_gradient=lambda: of(lambda x: x.sign()),
    unused_input=lambda: Case(lambda x, y: x * 2, (leaf(3), leaf(3, seed=2))),
    gradient_only_for_named=lambda: Case(
        lambda x, y: x * y, (randn(3), randn(3, seed=2)), options=dict(requires_grad=["y"])
    ),
    gradient_for_nothing=lambda: Case(
        lambda x, y: x * y, (randn(3), randn(3, seed=2)), options=dict(requires_grad=False)
    ),
    where_nan_gradient=lambda: of(lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x))),
    anomaly_gradient=lambda: of(lambda x: (x.abs() ** 0.5).sum(), torch.zeros(3).requires_grad_()),
    max_ties=lambda: of(lambda x: x.max(), torch.ones(3).requires_grad_()),
    amax_ties=lambda: of(lambda x: x.amax(0), torch.ones(3, 2).requires_grad_()),
    norm_at_zero=lambda: of(lambda x: x.norm(), torch.zeros(3).requires_grad_()),
    sort_stable_ties=lambda: of(
        lambda x: x.sort(stable=True).values * torch.arange(3.0), torch.ones(3).requires_grad_()
    ),
    accumulated_many_uses=lambda: of(lambda x: sum(x * i for i in range(20))),
    deep_chain=lambda: of(lambda x: _deep(x, 60)),
    two_losses=lambda: of(lambda x: (x.sum(), (x * x).mean())),
    clone_and_contiguous=lambda: of(lambda x: x.t().contiguous().clone().t()),
    expand_gradient=lambda: of(lambda x: x.expand(5, 3) * torch.arange(15.0).view(5, 3), leaf(3)),
    index_duplicates_gradient=lambda: of(lambda x: x[torch.tensor([0, 0, 1])] * torch.tensor([1.0, 2, 3]), leaf(3)),
    gather_gradient=lambda: of(lambda x: x.gather(1, torch.tensor([[0, 0], [1, 2], [3, 3]]))),
    cumprod_with_zero=lambda: of(lambda x: x.cumprod(0), torch.tensor([1.0, 0.0, 2.0]).requires_grad_()),
    prod_with_zeros=lambda: of(lambda x: x.prod(), torch.tensor([1.0, 0.0, 0.0]).requires_grad_()),
    eigenvalues=lambda: of(lambda x: torch.linalg.eigvalsh(x @ x.t())),
    singular_values=lambda: of(lambda x: torch.linalg.svdvals(x)),
    solves=lambda: of(lambda x: torch.linalg.solve(x[:, :3] + 3 * torch.eye(3), x)),
    matrix_exponential=lambda: of(lambda x: torch.matrix_exp(x[:, :3])),
    pseudo_inverse=lambda: of(lambda x: torch.linalg.pinv(x)),
    fixed_point_with_hook=lambda: Case(_deep_equilibrium(), randn(3, 4)),
    flex_cond=lambda: of(
        lambda x: torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,)), others=[-leaf(3, 4).detach()]
    ),
    while_loop_operator=lambda: Case(_while_loop, randn(3), options=dict(requires_grad=False)),
    custom_operator=lambda: of(lambda x: torch.ops.truth.twice(x)),
    nested_modules_of_hooks=lambda: net_with(lambda n: [m.register_forward_hook(lambda m, i, o: o * 1.5) for m in n]),
)


def _inner(x: Any) -> Any:
    z = x.detach().requires_grad_()
    return torch.autograd.grad((z**3).sum(), z)[0]


def _second_order(x: Any) -> Any:
    (g,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    return g + h


def _inner_backward(x: Any) -> Any:
    z = x.detach().clone().requires_grad_()
    (z**3).sum().backward()
    return x * z.grad


def _backward_on(self: Any, x: Any) -> Any:
    (x @ self.w).sum().backward()
    grad = self.w.grad.clone()
    self.w.grad = None
    return x @ self.w + x @ grad


def _critic() -> Any:
    def forward(self, real, fake):
        mixed = (0.3 * real + 0.7 * fake).requires_grad_()
        score = self.b(torch.tanh(self.a(mixed))).sum()
        (g,) = torch.autograd.grad(score, mixed, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean()

    return bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 1)), forward)


def _forces() -> Any:
    def forward(self, x):
        energy = self.b(torch.tanh(self.a(x))).sum()
        return energy, -torch.autograd.grad(energy, x, create_graph=True)[0]

    return bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 1)), forward)


def _per_sample() -> Any:
    net = nn.Linear(4, 1)
    params = dict(net.named_parameters())

    def loss(p, x):
        return torch.func.functional_call(net, p, (x[None],)).square().sum()

    return lambda x: torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, x)


def _forward_mode(x: Any) -> Any:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones(3, 4))
        return x * forward_ad.unpack_dual(dual.sin()).tangent.clone()


def _needs() -> Any:
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None

    return function(forward, backward)


def _mixed() -> Any:
    return function(lambda ctx, x, a, k, t: x * k, lambda ctx, g: (g * 3, None, None, None))


def _counting() -> Case:
    count = [0]

    def backward(ctx, g):
        count[0] += 1
        return g * count[0]

    custom = function(lambda ctx, x: x * 1, backward)
    return of(lambda x: custom.apply(x) * 2)


def _unsaved() -> Any:
    def forward(ctx, x):
        ctx.x = x
        return x * x

    return function(forward, lambda ctx, g: g * 2 * ctx.x)


def _removed_hook(x: Any) -> Any:
    y = x * 2
    handle = y.register_hook(lambda g: g * 100)
    handle.remove()
    return y * 3


def _hook_buffer() -> Any:
    def forward(self, x):
        y = x @ self.w
        y.register_hook(lambda g: self.seen.add_(g.detach().sum()) and None)
        return y * 2

    return module(lambda s: s.register_buffer("seen", torch.zeros(())), forward)


def _node_hook(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_hook(lambda gi, go: tuple(g if g is None else g * 2 for g in gi))
    return y * 3


def _node_prehook(x: Any) -> Any:
    y = x * 2
    y.grad_fn.register_prehook(lambda go: (go[0] * 2,))
    return y * 3


def _multi_hook(x: Any) -> Any:
    y, z = x * 2, x * 3
    torch.autograd.graph.register_multi_grad_hook((y, z), lambda gs: None)
    return y * z


def _global_hook() -> Case:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def f(x):
        handle = nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2)
        try:
            return net(x)
        finally:
            handle.remove()

    return Case(f, randn(3, 4))


def _checkpointed(reentrant: bool) -> Any:
    def forward(self, x):
        return self.b(checkpoint(lambda a: torch.tanh(self.a(a)), x, use_reentrant=reentrant))

    return bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), forward)


def _sequential() -> Any:
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
    return lambda x: checkpoint_sequential(net, 2, x, use_reentrant=False)


def _checkpointed_norm() -> Any:
    def forward(self, x):
        return checkpoint(self.n, self.a(x), use_reentrant=False)

    return bare(lambda s: attributes(s, a=nn.Linear(4, 4), n=nn.BatchNorm1d(4)), forward)


def _selective(x: Any) -> Any:
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    ops = [torch.ops.aten.sin.default]
    return checkpoint(
        lambda a: (a.sin() * a).exp(),
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(ops),
    )


def _saved_hooks(x: Any, pack: Any, unpack: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return x.sin() * x.exp()


def _save_on_cpu(x: Any) -> Any:
    with torch.autograd.graph.save_on_cpu():
        return x.sin() * x.exp()


def _hooks_disabled(x: Any) -> Any:
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        return x.sin() * x.exp()


def _deep(x: Any, n: int) -> Any:
    for _ in range(n):
        x = torch.sin(x) + x * 0.1
    return x


def _deep_equilibrium() -> Any:
    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(8):
                z = torch.tanh(z @ self.w * 0.1 + x)
        z = torch.tanh(z @ self.w * 0.1 + x)
        if z.requires_grad:
            z.register_hook(lambda g: g * 1.1)
        return z

    return module(None, forward)


def _while_loop(x: Any) -> Any:
    from torch._higher_order_ops import while_loop

    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v.sin()), (torch.tensor(0), x))[1]


@torch.library.custom_op("truth::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


_twice.register_fake(lambda x: torch.empty_like(x))
_twice.register_autograd(lambda ctx, g: g * 2)


@program
def double_backward_by_loss() -> Case:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def f(x):
        params = list(net.parameters())
        grads = torch.autograd.grad(net(x).square().mean(), params, create_graph=True)
        return sum(g.square().sum() for g in grads)

    return Case(f, randn(3, 4))


@program
def backward_inside_accumulates_into_input() -> Case:
    def f(x):
        (x * x).sum().backward()
        return x.grad * 2

    return Case(f, leaf(3), gradients=False, variants=False)


@program
def backward_with_inputs() -> Case:
    def forward(self, x):
        loss = (x @ self.w).square().sum()
        loss.backward(inputs=[self.w], retain_graph=True)
        return loss * 2

    return Case(module(None, forward), randn(3, 4))


@program
def gradient_through_an_update() -> Case:
    def f(x, w):
        for _ in range(3):
            (g,) = torch.autograd.grad((x @ w).square().mean(), w, create_graph=True)
            w = w - 0.1 * g
        return (x @ w).sum()

    return Case(f, (randn(3, 4), leaf(4, 2, seed=2)))


@program
def positive_only() -> Case:
    return Case(lambda x: x.log() * x.sqrt(), rand(3))
