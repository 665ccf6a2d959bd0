"""Whole pieces of research code: reinforcement learning, spikes, diffusion, physics, graphs, generation, sampling."""

import collections
import copy
import itertools
import math
import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from case import Case, attributes, bare, ints, many, module, rand, randn
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def net(*widths: int) -> nn.Module:
    """Linear layers with tanh between."""
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def step(init: Any, forward: Any, *args: Any, others: Any = (), **more: Any) -> Case:
    """A module of an own forward."""
    return Case(bare(init, forward), args or (randn(3, 4),), others=others or [randn(3, 4, seed=5)], **more)


# ------------------------------------------------------------------------------------------- reinforcement learning


def _reinforce(self: Any, x: Any, rewards: Any) -> Any:
    policy = Categorical(logits=self.net(x))
    actions = policy.sample()
    returns, running = [], 0.0
    for reward in reversed(rewards.tolist()):
        running = reward + 0.9 * running
        returns.insert(0, running)
    weights = torch.tensor(returns)
    weights = (weights - weights.mean()) / (weights.std() + 1e-6)
    return -(policy.log_prob(actions) * weights).sum()


def _advantages(self: Any, x: Any, rewards: Any, done: Any) -> Any:
    values = self.net(x).squeeze(-1)
    out = torch.zeros_like(rewards)
    last = torch.zeros(())
    for t in reversed(range(len(rewards))):
        following = values[t + 1].detach() if t + 1 < len(rewards) else 0.0
        alive = 1.0 - done[t].float()
        last = rewards[t] + 0.9 * following * alive - values[t].detach() + 0.8 * alive * last
        out[t] = last
        if done[t]:
            last = torch.zeros(())
    return F.mse_loss(values, out + values.detach()), out


def _proximal(self: Any, x: Any, old: Any, actions: Any) -> Any:
    total = 0.0
    for epoch in range(4):
        policy = Categorical(logits=self.net(x) * (1 + epoch))
        ratio = (policy.log_prob(actions) - old).exp()
        total = total - torch.min(ratio, ratio.clamp(0.8, 1.2)).mean()
        if (old - policy.log_prob(actions)).mean().item() > 0.15:
            break
    return total


def _targets(self: Any, x: Any, y: Any) -> Any:
    self.steps += 1
    if self.steps % 2 == 0:
        self.slow.load_state_dict(self.net.state_dict())
    with torch.no_grad():
        target = y + 0.9 * self.slow(x).max(-1).values
    return F.smooth_l1_loss(self.net(x).gather(1, x.argmax(1, keepdim=True) % 2).squeeze(1), target)


def _with_slow(self: Any) -> None:
    self.net = net(4, 5, 2)
    self.slow = copy.deepcopy(self.net).requires_grad_(False)
    self.steps = 1


def _replayed(self: Any, x: Any) -> Any:
    self.memory.extend(x.detach().unbind())
    batch = torch.stack(self.random.sample(list(self.memory), 2))
    return self.net(batch).mean() + self.net(x).sum()


def _soft_actor(self: Any, x: Any) -> Any:
    mean, spread = self.net(x).chunk(2, -1)
    policy = Normal(mean, spread.clamp(-5, 2).exp())
    action = policy.rsample()
    squashed = action.tanh()
    log = (policy.log_prob(action) - (1 - squashed**2 + 1e-6).log()).sum(-1)
    alpha = self.log_alpha.exp()
    return {"actor": (alpha.detach() * log).mean(), "alpha": -(self.log_alpha * (log.detach() + 1)).mean()}


def _greedy(self: Any, x: Any) -> Any:
    self.epsilon = max(0.1, self.epsilon * 0.9)
    values = self.net(x)
    if self.random.random() < self.epsilon:
        return values[:, self.random.randrange(2)].sum(), self.epsilon
    return values.max(1).values.sum(), self.epsilon


# ------------------------------------------------------------------------------------------------------------ spikes


class Spike(torch.autograd.Function):
    """A step whose gradient is that of an arctangent."""

    slope = 2.0

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Whether it fires."""
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Smooth."""
        (x,) = ctx.saved_tensors
        return grad / (1 + (Spike.slope * x) ** 2)


def _fires(self: Any, x: Any) -> Any:
    total = 0.0
    for _ in range(3):
        self.voltage = self.voltage * 0.9 + self.layer(x)
        spikes = Spike.apply(self.voltage - 1.0)
        self.voltage = self.voltage - spikes.detach()
        total = total + spikes
    return total


def _fires_and_detaches(self: Any, x: Any) -> Any:
    if self.voltage is None or self.voltage.shape[0] != x.shape[0]:
        self.voltage = torch.zeros(x.shape[0], 4)
    self.voltage = self.voltage.detach() * 0.9 + self.layer(x)
    spikes = Spike.apply(self.voltage - 0.5)
    self.rates.append(float(spikes.mean()))
    self.voltage = torch.where(spikes.bool(), torch.zeros(()), self.voltage)
    return spikes.sum() + self.voltage.sum()


def _plasticity(self: Any, x: Any) -> Any:
    spikes = (self.layer(x) > 0).float()
    with torch.no_grad():
        self.trace.mul_(0.8).add_(spikes.mean(0))
        self.layer.weight += 0.01 * torch.outer(self.trace, x.mean(0))
        self.layer.weight.clamp_(-1, 1)
    return self.layer(x).sum() * self.trace.sum()


def _slope_annealed(self: Any, x: Any) -> Any:
    self.calls += 1
    Spike.slope = 2.0 + self.calls
    return Spike.apply(self.layer(x))


# --------------------------------------------------------------------------------------------------------- diffusion


def _schedule(self: Any) -> None:
    betas = torch.linspace(1e-3, 0.2, 10)
    self.register_buffer("bars", (1 - betas).cumprod(0))
    self.net = net(5, 6, 4)


def _denoises(self: Any, x: Any) -> Any:
    t = torch.randint(0, 10, (x.shape[0],))
    noise = torch.randn_like(x)
    bar = self.bars[t][:, None]
    noisy = bar.sqrt() * x + (1 - bar).sqrt() * noise
    return F.mse_loss(self.net(torch.cat([noisy, t[:, None] / 10], 1)), noise)


def _samples(self: Any, x: Any) -> Any:
    with torch.no_grad():
        for t in reversed(range(0, 10, 3)):
            noise = self.net(torch.cat([x, torch.full((x.shape[0], 1), t / 10)], 1))
            x = (x - (1 - self.bars[t]).sqrt() * noise) / self.bars[t].sqrt()
            if t > 0:
                x = x + 0.1 * torch.randn_like(x)
            low, high = torch.quantile(x, 0.05), torch.quantile(x, 0.95)
            x = x.clamp(low, high)
    return x.requires_grad_(False) + self.net(torch.cat([x, x[:, :1]], 1))


def _guided(self: Any, x: Any, label: Any) -> Any:
    drop = torch.rand(x.shape[0]) < 0.5
    label = torch.where(drop, torch.full_like(label, 2), label)
    hidden = self.net(torch.cat([x, self.table(label)], 1))
    if not self.training or float(drop.float().mean()) == 0:
        return hidden
    return hidden * (~drop)[:, None] + hidden.detach() * drop[:, None]


def _consistent(self: Any, x: Any) -> Any:
    for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
        slow.data.lerp_(fast.data, 0.1)
    noise = torch.randn_like(x)
    with torch.no_grad():
        target = self.slow(x + 0.1 * noise)
    return (self.net(x + noise) - target).square().mean()


def _scores(self: Any, x: Any) -> Any:
    x = x.detach().requires_grad_()
    energy = self.net(x).sum()
    score = torch.autograd.grad(energy, x, create_graph=True)[0]
    v = torch.randn_like(x)
    hessian = torch.autograd.grad((score * v).sum(), x, create_graph=True)[0]
    return (0.5 * (score * v).sum(-1) ** 2 + (hessian * v).sum(-1)).mean()


# ----------------------------------------------------------------------------------------------------------- physics


def _informed(self: Any, x: Any) -> Any:
    t = x[:, :1].detach().requires_grad_()
    u = self.net(t)
    first = torch.autograd.grad(u.sum(), t, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), t, create_graph=True)[0]
    self.losses["residual"] = float((second + u).square().mean())
    weight = 1.0 / (1.0 + self.losses["residual"])
    return (second + u).square().mean() * weight + self.net(torch.zeros(1, 1)).square().sum()


def _hamiltonian(self: Any, x: Any) -> Any:
    q, p = x.chunk(2, -1)
    for _ in range(3):
        q = q.detach().requires_grad_()
        p = p.detach().requires_grad_()
        dq, dp = torch.autograd.grad(self.net(torch.cat([q, p], -1)).sum(), (q, p), create_graph=True)
        q, p = q + 0.1 * dp, p - 0.1 * dq
    return torch.cat([q, p], -1)


class Adjoint(torch.autograd.Function):
    """Euler's method; its backward integrates back."""

    @staticmethod
    def forward(ctx: Any, y: Any, layer: Any, *weights: Any) -> Any:
        """Forth."""
        with torch.no_grad():
            for _ in range(4):
                y = y + 0.1 * layer(y)
        ctx.layer = layer
        ctx.save_for_backward(y, *weights)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """And back."""
        y, *weights = ctx.saved_tensors
        sums = [torch.zeros_like(w) for w in weights]
        for _ in range(4):
            with torch.enable_grad():
                here = y.detach().requires_grad_()
                slope = ctx.layer(here)
            pulled, *more = torch.autograd.grad(slope, (here, *weights), grad)
            y = y - 0.1 * slope.detach()
            grad = grad + 0.1 * pulled
            sums = [s + 0.1 * m for s, m in zip(sums, more, strict=True)]
        return grad, None, *sums


def _integrates(self: Any, x: Any) -> Any:
    return Adjoint.apply(x, self.net, *self.net.parameters())


def _adaptive(self: Any, x: Any) -> Any:
    t, size = 0.0, 0.5
    while t < 1.0:
        size = min(size, 1.0 - t)
        k = self.net(x)
        full, half = x + size * k, x + size / 2 * k
        half = half + size / 2 * self.net(half)
        error = float((full - half).abs().max())
        if error < 0.08 or size < 0.05:
            x, t = half, t + size
            self.accepted += 1
        size *= min(2.0, max(0.3, 0.9 * (0.08 / max(error, 1e-6)) ** 0.5))
    return x


def _neighbours(x: Any) -> Any:
    away = torch.cdist(x, x)
    i, j = torch.nonzero((away < 2.5) & (away > 0), as_tuple=True)
    energy = ((x[i] - x[j]).square().sum(-1) + 0.1).reciprocal().sum() / 2
    return energy, -torch.autograd.grad(energy, x, create_graph=True)[0]


def _metropolis(x: Any) -> Any:
    spins = torch.where(x > 0, 1.0, -1.0)
    for i in range(3):
        j = int(torch.randint(0, 4, ()))
        change = 2 * spins[i, j] * (spins[i].sum() - spins[i, j])
        if change <= 0 or torch.rand(()) < torch.exp(-change):
            spins[i, j] *= -1
    return (spins * x).sum(), spins


def _transports(x: Any) -> Any:
    cost = torch.cdist(x, x.detach() + 1)
    kernel = torch.exp(-cost)
    u = torch.ones(3)
    for n in range(50):
        v = 1 / (kernel.t() @ u)
        fresh = 1 / (kernel @ v)
        if (fresh - u).abs().max() < 1e-2:
            return (u[:, None] * kernel * v * cost).sum(), n
        u = fresh
    return (u[:, None] * kernel * v * cost).sum(), -1


def _powers(self: Any, x: Any) -> Any:
    with torch.no_grad():
        for _ in range(2):
            self.u = F.normalize(self.w @ self.u, dim=0)
    sigma = self.u @ self.w @ self.u
    return x @ (self.w / sigma)


def _filters(x: Any) -> Any:
    mean, spread = torch.zeros(()), torch.ones(())
    out = []
    for value in x.flatten():
        gain = spread / (spread + 0.5)
        if torch.abs(value - mean) > 2.0:
            gain = gain * 0.1
        mean, spread = mean + gain * (value - mean), (1 - gain) * spread + 0.1
        out.append(mean)
    return torch.stack(out)


def _equilibrium(self: Any, x: Any) -> Any:
    z = torch.zeros_like(x)
    with torch.no_grad():
        for _ in range(60):
            fresh = torch.tanh(z @ self.w * 0.3 + x)
            if torch.norm(fresh - z) < 1e-4:
                break
            z = fresh
    z = torch.tanh(z @ self.w * 0.3 + x)
    here = z.detach().requires_grad_()
    again = torch.tanh(here @ self.w * 0.3 + x)

    def backward(grad: Any) -> Any:
        g = grad
        for _ in range(20):
            g = torch.autograd.grad(again, here, g, retain_graph=True)[0] + grad
        return g

    if z.requires_grad:
        z.register_hook(backward)
    return z


# -------------------------------------------------------------------------------------------- models and their upkeep


def _quantizes(self: Any, x: Any) -> Any:
    codes = torch.cdist(x, self.book).argmin(1)
    picked = self.book[codes]
    if self.training:
        with torch.no_grad():
            hot = F.one_hot(codes, 5).float()
            self.count.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.sums.mul_(0.9).add_(hot.t() @ x, alpha=0.1)
            self.book.copy_(self.sums / self.count.clamp_min(1e-3)[:, None])
            dead = self.count < 0.15
            if dead.any():
                self.book[dead] = x[torch.randint(0, x.shape[0], (int(dead.sum()),))]
    return x + (picked - x).detach(), F.mse_loss(x, picked.detach()), codes


def _book(self: Any) -> None:
    self.register_buffer("book", torch.randn(5, 4))
    self.register_buffer("count", torch.ones(5) * 0.2)
    self.register_buffer("sums", self.book * 0.2)


class Cache:
    """Keys and values of layers, as model libraries keep them."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def update(self, key: Any, layer: int) -> Any:
        """With the new ones."""
        if layer == len(self.kept):
            self.kept.append(key)
        else:
            self.kept[layer] = torch.cat([self.kept[layer], key], 0)
        return self.kept[layer]

    def __len__(self) -> int:
        return self.kept[0].shape[0] if self.kept else 0


def _generates(self: Any, tokens: Any) -> Any:
    cache, scores = Cache(), []
    for _ in range(4):
        fed = tokens[len(cache) :]
        h = self.table(fed)
        keys = cache.update(h, 0)
        logits = (torch.softmax(h @ keys.t(), -1) @ keys) @ self.table.weight.t()
        scores.append(logits[-1])
        following = logits[-1].argmax()
        tokens = torch.cat([tokens, following[None]])
        if following == 0:
            break
    return SimpleNamespace(sequences=tokens, scores=tuple(scores), cache=cache)


def _penalised(self: Any, tokens: Any) -> Any:
    logits = self.table(tokens) @ self.table.weight.t()
    score = logits.gather(1, tokens[:, None])
    logits = logits.scatter(1, tokens[:, None], torch.where(score < 0, score * 1.3, score / 1.3))
    ordered, order = logits.sort(descending=True)
    gone = ordered.softmax(-1).cumsum(-1) > 0.7
    gone[:, 1:] = gone[:, :-1].clone()
    gone[:, 0] = False
    logits = logits.masked_fill(gone.scatter(1, order, gone), -math.inf)
    return logits.softmax(-1), torch.multinomial(logits.softmax(-1), 1)


class Adapted(nn.Module):
    """A layer with an adapter that can be merged."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 2))
        self.merged = False

    def merge(self) -> None:
        """Into the base."""
        if not self.merged:
            self.base.weight.data += self.b @ self.a
            self.merged = True

    def forward(self, x: Any) -> Any:
        """With the adapter or without."""
        if not self.training:
            self.merge()
        out = self.base(x)
        return out if self.merged else out + x @ self.a.t() @ self.b.t()


class Reversible(torch.autograd.Function):
    """Keeps only its outputs; its backward makes the inputs again."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, f: Any, g: Any) -> Any:
        """Additive coupling."""
        with torch.no_grad():
            a = a + f(b)
            b = b + g(a)
        ctx.parts = (f, g)
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    def backward(ctx: Any, da: Any, db: Any) -> Any:
        """Inverted; the gradients of parameters are accumulated at once."""
        a, b = ctx.saved_tensors
        f, g = ctx.parts
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            out = g(a)
        torch.autograd.backward(out, db)
        b = b - out.detach()
        da = da + a.grad
        with torch.enable_grad():
            b = b.detach().requires_grad_()
            out = f(b)
        torch.autograd.backward(out, da)
        return da, db + b.grad, None, None


def _reverses(self: Any, x: Any) -> Any:
    a, b = Reversible.apply(x[:, :2], x[:, 2:], self.f, self.g)
    return torch.cat([a, b], 1)


@dataclass
class Logged:
    """A running mean, as trainers keep it."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float, weight: int) -> None:
        """One more."""
        self.total += value * weight
        self.count += weight

    @property
    def mean(self) -> float:
        """So far."""
        return self.total / max(self.count, 1)


def _logs(self: Any, x: Any) -> Any:
    loss = self.net(x).square().mean()
    self.logged["loss"].add(loss.item(), x.shape[0])
    self.logged["step"].add(1.0, 1)
    return {
        "loss": loss * (2 if self.logged["loss"].mean > 10 else 1),
        "log": {k: v.mean for k, v in self.logged.items()},
    }


def _contrasts(self: Any, x: Any) -> Any:
    keys = F.normalize(self.net(x), dim=1)
    logits = torch.cat([(keys * keys.detach().roll(1, 0)).sum(1, keepdim=True), keys @ self.queue.clone()], 1) / 0.2
    loss = F.cross_entropy(logits, torch.zeros(x.shape[0], dtype=torch.long))
    place = int(self.place)
    self.queue[:, place : place + x.shape[0]] = keys.detach().t()
    self.place[0] = (place + x.shape[0]) % 6
    return loss


def _curriculum(self: Any, x: Any) -> Any:
    self.seen += x.shape[0]
    hard = min(4, 1 + self.seen // 3)
    losses = self.net(x).square().mean(1)
    return losses.topk(min(hard, x.shape[0])).values.mean()


def _attacks(self: Any, x: Any, y: Any) -> Any:
    self.net.eval()
    moved = x.detach() + 0.01 * torch.randn_like(x)
    for _ in range(3):
        moved.requires_grad_()
        grad = torch.autograd.grad(F.cross_entropy(self.net(moved), y), moved)[0]
        moved = (moved.detach() + 0.1 * grad.sign()).clamp(x.detach() - 0.2, x.detach() + 0.2)
    self.net.train()
    return F.cross_entropy(self.net(moved), y)


def _scales(self: Any, x: Any) -> Any:
    loss = self.net(x).square().mean() * self.scale
    grads = torch.autograd.grad(loss, list(self.net.parameters()), retain_graph=True)
    if all(torch.isfinite(g).all() for g in grads) and max(float(g.abs().max()) for g in grads) < 60:
        self.good += 1
        if self.good % 2 == 0:
            self.scale *= 2.0
    else:
        self.scale, self.good = self.scale / 2, 0
    return loss / self.scale


def _experts(self: Any, x: Any) -> Any:
    weights, picks = self.router(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    load: Any = collections.Counter()
    for e, expert in enumerate(self.experts):
        rows, place = torch.where(picks == e)
        if len(rows) > 3:
            rows, place = rows[:3], place[:3]
        if rows.numel():
            load[e] += len(rows)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
    self.load.update(load)
    return out, max(load.values())


def _field(self: Any, x: Any) -> Any:
    bands = 2.0 ** torch.arange(3) * math.pi
    coded = torch.cat([(x[..., None] * bands).sin(), (x[..., None] * bands).cos()], -1).flatten(1)
    density = F.softplus(self.net(coded))[:, 0]
    through = torch.cumprod(torch.cat([torch.ones(1), (-density[:-1]).exp()]), 0)
    weights = through * (1 - (-density).exp())
    cdf = torch.cat([torch.zeros(1), weights.detach().cumsum(0) / weights.detach().sum()])
    places = torch.searchsorted(cdf, torch.rand(5), right=True).clamp(1, 3)
    return weights.sum() + coded[places - 1].sum(), places


def _clusters(x: Any) -> Any:
    centres = x[:2].clone()
    for n in range(10):
        near = torch.cdist(x, centres).argmin(1)
        fresh = torch.stack([x[near == k].mean(0) if (near == k).any() else centres[k] for k in range(2)])
        if torch.equal(near, torch.cdist(x, fresh).argmin(1)):
            return fresh, near, n
        centres = fresh
    return centres, near, 10


def _structured(emissions: Any, tags: Any) -> Any:
    transition = torch.zeros(4, 4)
    score = emissions[0]
    for row in emissions[1:]:
        score = torch.logsumexp(score[:, None] + transition + row, 0)
    gold = emissions.gather(1, tags[:, None]).sum()
    best = emissions.argmax(1).tolist()
    return torch.logsumexp(score, 0) - gold, best


def _adapts(self: Any, x: Any) -> Any:
    fast = dict(self.net.named_parameters())
    for _ in range(2):
        loss = torch.func.functional_call(self.net, fast, (x,)).square().mean()
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {k: w - 0.1 * g for (k, w), g in zip(fast.items(), grads, strict=True)}
    return torch.func.functional_call(self.net, fast, (x + 1,)).square().mean()


def _deep(self: Any, x: Any) -> Any:
    for i, layer in enumerate(self.layers):
        if self.training and torch.rand(()) < 0.3 * i / len(self.layers):
            continue
        x = x + self.gamma * (checkpoint(layer, x, use_reentrant=False) if i % 2 else layer(x))
    return x


def _searches(self: Any, x: Any) -> Any:
    gates = F.gumbel_softmax(self.logits, tau=self.tau, hard=True)
    self.tau = max(0.1, self.tau * 0.95)
    return sum(g * op(x) for g, op in zip(gates, (torch.sin, torch.tanh, lambda v: v * 2), strict=True))


def _metrics(self: Any, x: Any, y: Any) -> Any:
    logits = self.net(x)
    guesses = logits.argmax(1)
    for a, b in zip(y.tolist(), guesses.tolist(), strict=True):
        self.matrix[a, b] += 1
    weights = 1.0 / (self.matrix.sum(1) + 1)
    return F.cross_entropy(logits, y, weight=torch.from_numpy(weights).float())


def _layers(n: int) -> Any:
    return nn.ModuleList([nn.Linear(4, 4) for _ in range(n)])


many(
    __name__,
    research_reinforce=lambda: step(
        lambda s: attributes(s, net=net(4, 5, 2)),
        _reinforce,
        randn(3, 4),
        rand(3),
        others=[(randn(3, 4, seed=5), rand(3)), (randn(3, 4), rand(3, seed=6))],
    ),
    research_advantages=lambda: step(
        lambda s: attributes(s, net=net(4, 5, 1)),
        _advantages,
        randn(3, 4),
        rand(3),
        torch.tensor([False, True, False]),
        others=[
            (randn(3, 4, seed=5), rand(3), torch.tensor([False, True, False])),
            (randn(3, 4), rand(3), torch.tensor([True, False, False])),
        ],
    ),
    research_proximal=lambda: step(
        lambda s: attributes(s, net=net(4, 5, 3)),
        _proximal,
        randn(3, 4),
        -rand(3),
        ints(3, high=3),
        others=[(randn(3, 4) * 3, -rand(3), ints(3, high=3)), (randn(3, 4), rand(3), ints(3, high=3, seed=2))],
    ),
    research_target_network=lambda: step(
        _with_slow, _targets, randn(3, 4), rand(3), others=[(randn(3, 4, seed=5), rand(3))]
    ),
    research_replay_memory=lambda: step(
        lambda s: attributes(s, net=net(4, 1), memory=collections.deque(maxlen=5), random=random.Random(3)), _replayed
    ),
    research_soft_actor=lambda: step(
        lambda s: attributes(s, net=net(4, 5, 4), log_alpha=nn.Parameter(torch.zeros(()))), _soft_actor
    ),
    research_greedy=lambda: step(lambda s: attributes(s, net=net(4, 2), epsilon=0.9, random=random.Random(4)), _greedy),
    research_spikes=lambda: step(lambda s: attributes(s, layer=nn.Linear(4, 4), voltage=torch.zeros(3, 4)), _fires),
    research_spikes_detached=lambda: step(
        lambda s: attributes(s, layer=nn.Linear(4, 4), voltage=None, rates=[]), _fires_and_detaches
    ),
    research_plasticity=lambda: step(
        lambda s: (attributes(s, layer=nn.Linear(4, 4)), s.register_buffer("trace", torch.zeros(4))),
        _plasticity,
        gradients=False,
    ),
    research_slope_annealed=lambda: step(
        lambda s: attributes(s, layer=nn.Linear(4, 4), calls=0),
        _slope_annealed,
        reset=lambda: setattr(Spike, "slope", 2.0),
    ),
    research_denoising=lambda: step(_schedule, _denoises),
    research_sampling=lambda: step(_schedule, _samples),
    research_guidance=lambda: step(
        lambda s: attributes(s, net=net(6, 5, 4), table=nn.Embedding(3, 2)),
        _guided,
        randn(3, 4),
        ints(3, high=2),
        others=[(randn(3, 4, seed=5), ints(3, high=2)), (randn(3, 4), ints(3, high=2, seed=3))],
    ),
    research_consistency=lambda: step(_with_slow, _consistent, gradients=False),
    research_score_matching=lambda: step(lambda s: attributes(s, net=net(4, 6, 1)), _scores),
    research_informed=lambda: step(lambda s: attributes(s, net=net(1, 6, 1), losses={}), _informed),
    research_hamiltonian=lambda: step(lambda s: attributes(s, net=net(4, 6, 1)), _hamiltonian),
    research_adjoint=lambda: step(lambda s: attributes(s, net=net(4, 5, 4)), _integrates),
    research_adaptive_steps=lambda: step(
        lambda s: attributes(s, net=net(4, 5, 4), accepted=0), _adaptive, others=[randn(3, 4) * 20]
    ),
    research_neighbours=lambda: Case(_neighbours, randn(4, 3), others=[randn(4, 3, seed=5), randn(4, 3) * 0.1]),
    research_metropolis=lambda: Case(_metropolis, randn(3, 4), others=[randn(3, 4, seed=5)]),
    research_transport=lambda: Case(_transports, randn(3, 2), others=[randn(3, 2, seed=5), randn(3, 2) * 0.1]),
    research_power_iteration=lambda: Case(
        module(lambda s: s.register_buffer("u", F.normalize(torch.ones(4), dim=0)), _powers),
        randn(3, 4),
        others=[randn(3, 4, seed=5)],
    ),
    research_filter=lambda: Case(_filters, randn(3, 4), others=[randn(3, 4, seed=5), randn(3, 4) * 5]),
    research_equilibrium=lambda: Case(module(None, _equilibrium), randn(3, 4), others=[randn(3, 4) * 0.01]),
    research_quantized_codes=lambda: step(_book, _quantizes),
    research_generation=lambda: Case(
        bare(lambda s: attributes(s, table=nn.Embedding(6, 4)), _generates),
        torch.tensor([1, 3]),
        others=[torch.tensor([2, 5]), torch.tensor([1, 3, 4])],
        variants=False,
    ),
    research_penalised_sampling=lambda: Case(
        bare(lambda s: attributes(s, table=nn.Embedding(6, 4)), _penalised),
        torch.tensor([1, 3]),
        others=[torch.tensor([2, 5]), torch.tensor([3, 3])],
        variants=False,
    ),
    research_adapter=lambda: Case(Adapted(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    research_adapter_merges=lambda: Case(Adapted().eval(), randn(3, 4), others=[randn(3, 4, seed=5)], gradients=False),
    research_reversible=lambda: step(
        lambda s: attributes(s, f=net(2, 3, 2), g=net(2, 3, 2)), _reverses, gradients=False
    ),
    research_logging=lambda: step(
        lambda s: attributes(s, net=net(4, 2), logged=collections.defaultdict(Logged)), _logs
    ),
    research_memory_bank=lambda: step(
        lambda s: (
            attributes(s, net=net(4, 4)),
            s.register_buffer("queue", F.normalize(torch.randn(4, 6), dim=0)),
            s.register_buffer("place", torch.zeros(1, dtype=torch.long)),
        ),
        _contrasts,
    ),
    research_curriculum=lambda: step(lambda s: attributes(s, net=net(4, 2), seen=0), _curriculum),
    research_attack=lambda: step(
        lambda s: attributes(s, net=nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))),
        _attacks,
        randn(3, 4),
        ints(3, high=3),
        others=[(randn(3, 4, seed=5), ints(3, high=3))],
    ),
    research_loss_scaler=lambda: step(lambda s: attributes(s, net=net(4, 2), scale=8.0, good=1), _scales),
    research_experts=lambda: step(
        lambda s: attributes(s, router=nn.Linear(4, 3), experts=_layers(3), load=collections.Counter()), _experts
    ),
    research_radiance=lambda: step(
        lambda s: attributes(s, net=net(6, 5, 1)), _field, randn(4, 1), others=[randn(4, 1, seed=5)]
    ),
    research_clusters=lambda: Case(_clusters, randn(6, 2), others=[randn(6, 2, seed=5), randn(6, 2, seed=6)]),
    research_tagger=lambda: Case(
        _structured, (randn(3, 4), ints(3)), others=[(randn(3, 4, seed=5), ints(3)), (randn(3, 4), ints(3, seed=2))]
    ),
    research_adaptation=lambda: step(lambda s: attributes(s, net=net(4, 3, 2)), _adapts),
    research_drop_path=lambda: step(
        lambda s: attributes(s, layers=_layers(4), gamma=nn.Parameter(torch.ones(4))), _deep
    ),
    research_architecture_search=lambda: step(
        lambda s: attributes(s, logits=nn.Parameter(torch.zeros(3)), tau=1.0), _searches
    ),
    research_confusion=lambda: step(
        lambda s: attributes(s, net=net(4, 3), matrix=np.zeros((3, 3))),
        _metrics,
        randn(3, 4),
        ints(3, high=3),
        others=[(randn(3, 4, seed=5), ints(3, high=3)), (randn(3, 4), ints(3, high=3, seed=4))],
    ),
)
