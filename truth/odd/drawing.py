"""Random numbers: a replay under a seed has to give what the program gives under it."""

from typing import Any

import torch
from case import Case, attributes, bare, many, module, rand, randn
from torch import nn
from torch.nn import functional as F


def drawn(f: Any, x: Any = None) -> Case:
    """A function of x that draws."""
    return Case(f, randn(4, 4) if x is None else x)


def into(fill: Any) -> Case:
    """x times a tensor that `fill` fills."""
    return drawn(lambda x: x * fill(torch.empty(4)))


many(
    __name__,
    draws_dropout=lambda: drawn(lambda x: F.dropout(x, 0.5)),
    draws_dropout_twice=lambda: drawn(lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.5)),
    draws_dropout_none=lambda: drawn(lambda x: F.dropout(x, 0.0)),
    draws_dropout_all=lambda: drawn(lambda x: F.dropout(x, 1.0)),
    draws_dropout_eval=lambda: drawn(lambda x: F.dropout(x, 0.5, training=False)),
    draws_dropout_module=lambda: Case(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 2)), randn(3, 4)),
    draws_dropout_of_channels=lambda: drawn(lambda x: F.dropout1d(x.view(1, 4, 4), 0.5)),
    draws_dropout_2d=lambda: drawn(lambda x: F.dropout2d(x, 0.5), randn(2, 3, 2, 2)),
    draws_dropout_3d=lambda: drawn(lambda x: F.dropout3d(x, 0.5), randn(2, 3, 2, 2, 2)),
    draws_alpha_dropout=lambda: drawn(lambda x: F.alpha_dropout(x, 0.5, True)),
    draws_feature_alpha_dropout=lambda: drawn(lambda x: F.feature_alpha_dropout(x.view(1, 4, 4), 0.5, True)),
    draws_rrelu=lambda: drawn(lambda x: F.rrelu(x, training=True)),
    draws_gumbel=lambda: drawn(lambda x: F.gumbel_softmax(x)),
    draws_gumbel_hard=lambda: drawn(lambda x: F.gumbel_softmax(x, hard=True)),
    draws_fractional_pool=lambda: drawn(lambda x: F.fractional_max_pool2d(x.view(1, 1, 4, 4), 2, output_size=(2, 2))),
    draws_fractional_pool_indices=lambda: drawn(
        lambda x: F.fractional_max_pool2d(x.view(1, 1, 4, 4), 2, output_size=(2, 2), return_indices=True)
    ),
    draws_rand=lambda: drawn(lambda x: x * torch.rand(4)),
    draws_rand_like=lambda: drawn(lambda x: x * torch.rand_like(x)),
    draws_randn=lambda: drawn(lambda x: x + torch.randn(4, 4)),
    draws_randn_like_noise=lambda: drawn(lambda x: x + torch.randn_like(x) * x.std()),
    draws_randint=lambda: drawn(lambda x: x * torch.randint(1, 5, (4,))),
    draws_randint_index=lambda: drawn(lambda x: x[torch.randint(4, (3,))]),
    draws_randperm=lambda: drawn(lambda x: x[torch.randperm(4)]),
    draws_bernoulli=lambda: drawn(lambda x: x * torch.bernoulli(x.detach().sigmoid())),
    draws_bernoulli_number=lambda: drawn(lambda x: x * torch.empty(4).bernoulli_(0.3)),
    draws_multinomial=lambda: drawn(lambda x: x[torch.multinomial(torch.ones(4), 3, replacement=True)]),
    draws_multinomial_of_input=lambda: drawn(lambda x: x.gather(1, torch.multinomial(x.detach().softmax(1), 2))),
    draws_normal_of_tensors=lambda: drawn(lambda x: x * torch.normal(torch.zeros(4), torch.ones(4))),
    draws_normal_of_input=lambda: drawn(lambda x: x * torch.normal(x.detach(), 1.0)),
    draws_poisson=lambda: drawn(lambda x: x * torch.poisson(torch.ones(4) * 3)),
    draws_binomial=lambda: drawn(lambda x: x * torch.binomial(torch.ones(4) * 5, torch.ones(4) / 2)),
    fills_uniform=lambda: into(lambda t: t.uniform_(1, 2)),
    fills_normal=lambda: into(lambda t: t.normal_(1, 2)),
    fills_exponential=lambda: into(lambda t: t.exponential_()),
    fills_geometric=lambda: into(lambda t: t.geometric_(0.5)),
    fills_cauchy=lambda: into(lambda t: t.cauchy_()),
    fills_log_normal=lambda: into(lambda t: t.log_normal_()),
    fills_random=lambda: into(lambda t: t.random_(1, 9)),
    initialises_inside=lambda: into(lambda t: nn.init.trunc_normal_(t)),
    makes_a_layer_inside=lambda: drawn(lambda x: nn.Linear(4, 4)(x).detach() * x),
    seeds_inside=lambda: drawn(lambda x: (torch.manual_seed(3), x * torch.rand(4))[1]),
    seeds_inside_after_drawing=lambda: drawn(lambda x: (x * torch.rand(4), torch.manual_seed(3), x * torch.rand(4))[2]),
    state_saved_and_restored=lambda: drawn(lambda x: _restores(x)),
    forked_inside=lambda: drawn(lambda x: _forks(x)),
    state_read_as_values=lambda: drawn(lambda x: x * float(torch.get_rng_state()[:8].float().mean())),
    initial_seed_read=lambda: drawn(lambda x: x * (torch.initial_seed() % 7)),
    branch_on_drawn=lambda: drawn(lambda x: x * 2 if torch.rand(()) > 0.5 else x * 3),
    stochastic_depth=lambda: Case(_stochastic_depth(), randn(3, 4)),
    drop_path=lambda: Case(module(None, lambda s, x: x + (x @ s.w) * (torch.rand(3, 1) > 0.3) / 0.7), randn(3, 4)),
    mixup=lambda: drawn(lambda x: (lambda lam, p: lam * x + (1 - lam) * x[p])(torch.rand(()), torch.randperm(4))),
    mixup_by_item=lambda: drawn(
        lambda x: (lambda lam, p: lam * x + (1 - lam) * x[p])(torch.rand(()).item(), torch.randperm(4))
    ),
    cutout_by_items=lambda: drawn(lambda x: _cutout(x)),
    random_crop=lambda: drawn(lambda x: (lambda i: x[i : i + 2] * 2)(int(torch.randint(3, ())))),
    masked_language=lambda: drawn(lambda x: x.masked_fill(torch.rand(4, 4) < 0.3, 0.0)),
    variational=lambda: Case(_variational(), randn(3, 4)),
    distribution_normal=lambda: drawn(lambda x: torch.distributions.Normal(x, 1.0).rsample()),
    distribution_log_prob=lambda: drawn(
        lambda x: (lambda d: d.log_prob(d.sample()))(torch.distributions.Normal(x, x.exp()))
    ),
    distribution_gamma=lambda: drawn(lambda x: torch.distributions.Gamma(x, 1.0).rsample(), rand(4)),
    distribution_beta=lambda: drawn(lambda x: torch.distributions.Beta(x, x).rsample(), rand(4)),
    distribution_dirichlet=lambda: drawn(lambda x: torch.distributions.Dirichlet(x).rsample(), rand(4)),
    distribution_student=lambda: drawn(lambda x: torch.distributions.StudentT(x + 2).rsample(), rand(4)),
    distribution_categorical=lambda: drawn(
        lambda x: (lambda d: d.log_prob(d.sample()))(torch.distributions.Categorical(logits=x))
    ),
    distribution_relaxed=lambda: drawn(
        lambda x: torch.distributions.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).rsample()
    ),
    distribution_multivariate=lambda: drawn(
        lambda x: torch.distributions.MultivariateNormal(x, torch.eye(4)).rsample(), randn(4)
    ),
    distribution_cauchy=lambda: drawn(lambda x: torch.distributions.Cauchy(x, 1.0).rsample(), randn(4)),
    distribution_von_mises=lambda: drawn(
        lambda x: x * torch.distributions.VonMises(torch.zeros(4), torch.ones(4)).sample(), randn(4)
    ),
    distribution_kl=lambda: drawn(
        lambda x: torch.distributions.kl_divergence(
            torch.distributions.Normal(x, 1.0), torch.distributions.Normal(0.0, 1.0)
        )
    ),
    attention_dropout=lambda: drawn(
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3), randn(1, 2, 4, 4)
    ),
    recurrent_dropout=lambda: Case(nn.LSTM(4, 4, 2, dropout=0.5), randn(3, 1, 4)),
    draws_in_backward=lambda: drawn(lambda x: NoisyGradient.apply(x) * 2),
    draws_in_hook=lambda: drawn(lambda x: _noisy_hook(x)),
    draws_vmapped_different=lambda: drawn(
        lambda x: torch.vmap(lambda r: r * torch.rand(()), randomness="different")(x)
    ),
    draws_vmapped_same=lambda: drawn(lambda x: torch.vmap(lambda r: r * torch.rand(()), randomness="same")(x)),
    draws_complex=lambda: drawn(lambda x: (x * torch.randn(4, dtype=torch.complex64)).abs()),
    draws_double=lambda: drawn(lambda x: x * torch.rand(4, dtype=torch.float64)),
    draws_half=lambda: drawn(lambda x: x * torch.rand(4, dtype=torch.bfloat16)),
    draws_in_place_on_input=lambda: Case(lambda x: x.uniform_() * 2, randn(4), options=dict(requires_grad=False)),
    draws_noise_buffer=lambda: Case(
        bare(lambda s: s.register_buffer("noise", torch.zeros(4)), lambda s, x: x * s.noise.normal_()), randn(3, 4)
    ),
    draws_and_returns=lambda: drawn(lambda x: (x * 2, torch.rand(3), torch.randint(5, (2,)))),
    draws_nothing_used=lambda: drawn(lambda x: (torch.rand(3), x * torch.rand(4))[1]),
    draws_in_no_grad=lambda: drawn(lambda x: x * torch.no_grad()(lambda: torch.rand(4))()),
    draws_sobol=lambda: drawn(lambda x: x * torch.quasirandom.SobolEngine(4, scramble=True, seed=1).draw(4)),
    draws_large=lambda: drawn(lambda x: F.dropout(x.expand(64, 64, 4).reshape(-1), 0.5).sum(), randn(4)),
    draws_in_a_thread=lambda: drawn(lambda x: x * _thread_draw()),
)


class NoisyGradient(torch.autograd.Function):
    """Noise in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """As it is."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """With noise."""
        return g * torch.rand_like(g)


def _noisy_hook(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * torch.rand_like(g))
    return y * 3


def _restores(x: Any) -> Any:
    state = torch.get_rng_state()
    a = torch.rand(4)
    torch.set_rng_state(state)
    return x * a * torch.rand(4)


def _forks(x: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        a = torch.rand(4)
    return x * a * torch.rand(4)


def _stochastic_depth() -> Any:
    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()).item() > 0.3:
                x = x + layer(x)
        return x

    return bare(lambda s: attributes(s, layers=nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])), forward)


def _cutout(x: Any) -> Any:
    i, j = torch.randint(3, (2,)).tolist()
    y = x.clone()
    y[i : i + 2, j : j + 2] = 0
    return y


def _variational() -> Any:
    def init(self):
        self.mean, self.deviation = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        mean, deviation = self.mean(x), self.deviation(x)
        z = mean + torch.randn_like(deviation) * (0.5 * deviation).exp()
        return z, -0.5 * (1 + deviation - mean.square() - deviation.exp()).sum()

    return bare(init, forward)


def _thread_draw() -> Any:
    import threading

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(float(torch.rand(()))))
    thread.start()
    thread.join()
    return found[0]
