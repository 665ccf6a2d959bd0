"""What a parameter or an input is beside its values: type, attributes, identity, gradient, hooks; whole steps."""

from typing import Any

import torch
from case import Case, attributes, bare, leaf, many, module, program, randn
from torch import nn
from torch.optim import swa_utils


def on(init: Any, forward: Any, **more: Any) -> Case:
    """A module with a parameter `w`, called with x."""
    return Case(module(init, forward), randn(3, 4), **more)


class Tagged(nn.Parameter):
    """A parameter of a class of its own."""


many(
    __name__,
    isinstance_of_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if isinstance(s.w, nn.Parameter) else 3)),
    type_is_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if type(s.w) is nn.Parameter else 3)),
    type_name_of_parameter=lambda: on(None, lambda s, x: x @ s.w * len(type(s.w).__name__)),
    attribute_on_parameter=lambda: on(
        lambda s: setattr(s.w, "scale", 2.0), lambda s, x: x @ s.w * getattr(s.w, "scale", 1.0)
    ),
    tensor_attribute_on_parameter=lambda: on(
        lambda s: setattr(s.w, "mask", torch.ones(4, 4).triu()), lambda s, x: x @ (s.w * s.w.mask)
    ),
    dict_by_parameter=lambda: on(lambda s: attributes(s, t={s.w: 2.0}), lambda s, x: x @ s.w * s.t.get(s.w, 1.0)),
    dict_by_parameter_strict=lambda: on(lambda s: attributes(s, t={s.w: 2.0}), lambda s, x: x @ s.w * s.t[s.w]),
    dict_by_id=lambda: on(lambda s: attributes(s, t={id(s.w): 2.0}), lambda s, x: x @ s.w * s.t.get(id(s.w), 1.0)),
    gradient_of_parameter_read=lambda: on(
        lambda s: setattr(s.w, "grad", torch.ones(4, 4)),
        lambda s, x: x @ s.w + (s.w.grad.sum() if s.w.grad is not None else 0),
    ),
    gradient_is_none=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w.grad is None else 3)),
    parameter_in_a_set=lambda: on(lambda s: attributes(s, t={s.w}), lambda s, x: x @ s.w * (2 if s.w in s.t else 3)),
    parameter_is_itself=lambda: on(
        lambda s: attributes(s, t=[s.w]), lambda s, x: x @ s.w * (2 if s.t[0] is s.w else 3)
    ),
    parameter_is_the_registered=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w is next(s.parameters()) else 3)),
    hash_of_parameter=lambda: on(
        lambda s: attributes(s, h=hash(s.w)), lambda s, x: x @ s.w * (2 if hash(s.w) == s.h else 3)
    ),
    is_leaf_of_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w.is_leaf else 3)),
    grad_fn_of_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w.grad_fn is None else 3)),
    requires_grad_of_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w.requires_grad else 3)),
    requires_grad_of_frozen=lambda: on(
        lambda s: attributes(s, f=nn.Parameter(torch.ones(4), False)),
        lambda s, x: x @ s.w * (2 if s.f.requires_grad else 3),
    ),
    version_of_parameter=lambda: on(None, lambda s, x: x @ s.w * (2 if s.w._version == 0 else 3)),
    data_pointer_of_parameter=lambda: on(
        lambda s: attributes(s, p=s.w.data_ptr()), lambda s, x: x @ s.w * (2 if s.w.data_ptr() == s.p else 3)
    ),
    subclass_of_parameter=lambda: on(
        lambda s: s.register_parameter("t", Tagged(torch.ones(4))),
        lambda s, x: x @ s.w * (2 if isinstance(s.t, Tagged) else 3),
    ),
    parameter_count=lambda: on(None, lambda s, x: x @ s.w * len(list(s.parameters()))),
    parameter_names=lambda: on(None, lambda s, x: x @ s.w * len(",".join(n for n, _ in s.named_parameters()))),
    element_count=lambda: on(None, lambda s, x: x @ s.w * sum(p.numel() for p in s.parameters() if p.requires_grad)),
    hook_on_parameter=lambda: on(lambda s: s.w.register_hook(lambda g: g * 2) and None, lambda s, x: x @ s.w),
    hook_on_parameter_none=lambda: on(lambda s: s.w.register_hook(lambda g: None) and None, lambda s, x: x @ s.w),
    hook_on_parameter_clamps=lambda: on(
        lambda s: s.w.register_hook(lambda g: g.clamp(-0.1, 0.1)) and None, lambda s, x: x @ s.w
    ),
    hook_on_parameter_reads=lambda: on(
        lambda s: s.w.register_hook(lambda g: g * 2 if g.sum() > 0 else g * 3) and None, lambda s, x: x @ s.w
    ),
    hook_on_parameter_clips_norm=lambda: on(
        lambda s: s.w.register_hook(lambda g: g / max(1.0, g.norm().item())) and None, lambda s, x: x @ s.w
    ),
    hook_reads_parameter=lambda: on(
        lambda s: s.w.register_hook(lambda g: g + 0.1 * s.w.detach()) and None, lambda s, x: x @ s.w
    ),
    post_accumulate_hook=lambda: on(
        lambda s: s.w.register_post_accumulate_grad_hook(lambda p: None) and None, lambda s, x: x @ s.w
    ),
    input_attribute=lambda: Case(lambda x: x * getattr(x, "lengths", 1), attributes(randn(3, 4), lengths=3)),
    input_tensor_attribute=lambda: Case(lambda x: x * x.mask, attributes(randn(3, 4), mask=torch.ones(4))),
    input_requires_grad=lambda: Case(lambda x: x * 2 if x.requires_grad else x * 3, leaf(3, 4), others=[randn(3, 4)]),
    input_does_not_require_grad=lambda: on(
        None, lambda s, x: x @ s.w * (2 if x.requires_grad else 3), others=[leaf(3, 4)]
    ),
    input_is_leaf=lambda: on(None, lambda s, x: x @ s.w * (2 if x.is_leaf else 3), others=[leaf(3, 4) * 1]),
    input_is_a_parameter=lambda: Case(
        lambda x: x * (2 if isinstance(x, nn.Parameter) else 3), nn.Parameter(randn(3, 4)), others=[leaf(3, 4)]
    ),
    input_gradient_read=lambda: Case(
        lambda x: x * 2 if x.grad is None else x * x.grad,
        attributes(leaf(3, 4), grad=torch.ones(3, 4) * 5),
        others=[leaf(3, 4)],
    ),
    input_is_a_non_leaf=lambda: Case(lambda x: x * 2, leaf(3, 4) * 3),
    input_with_a_hook=lambda: Case(lambda x: x * 2, _hooked(leaf(3, 4)), others=[leaf(3, 4, seed=2)]),
    input_type_subclass=lambda: Case(
        lambda x: x * (2 if type(x) is torch.Tensor else 3), randn(3, 4), others=[nn.Parameter(randn(3, 4))]
    ),
    input_version=lambda: Case(lambda x: x * (x._version + 1), randn(3, 4), others=[randn(3, 4).add_(1)]),
    input_id_remembered=lambda: _remembered(),
    module_training_flag=lambda: on(None, lambda s, x: x @ s.w * (2 if s.training else 3)),
    module_eval_flag=lambda: Case(module(None, lambda s, x: x @ s.w * (2 if s.training else 3)).eval(), randn(3, 4)),
    module_name_read=lambda: on(None, lambda s, x: x @ s.w * len(type(s).__name__)),
    module_repr_read=lambda: on(None, lambda s, x: x @ s.w * len(repr(s))),
    swapped_by_data=lambda: on(None, lambda s, x: x @ s.w.data),
)


def _hooked(x: Any) -> Any:
    x.register_hook(lambda g: g * 5)
    return x


def _remembered() -> Case:
    x = randn(3, 4)
    table = {id(x): 2.0}
    return Case(lambda x: x * table.get(id(x), 3.0), x, others=[randn(3, 4)])


@program
def sgd_inside_the_module() -> Case:
    def init(self):
        self.opt = torch.optim.SGD([self.w], lr=0.1)

    def forward(self, x):
        self.opt.zero_grad()
        (x @ self.w).square().mean().backward()
        self.opt.step()
        return (x @ self.w).detach()

    return on(init, forward)


@program
def adam_inside_the_module() -> Case:
    def init(self):
        self.opt = torch.optim.Adam(self.parameters(), lr=0.1)

    def forward(self, x):
        loss = (x @ self.w).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    return on(init, forward)


def step_with(make: Any, steps: int = 1, net: Any = None, primed: bool = False) -> Case:
    """A whole training step as a function, with an optimizer that `make` builds."""
    net = net or nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = make(net)
    opt = opt if isinstance(opt, tuple) else (opt,)

    def step(x, y):
        for _ in range(steps):
            opt[0].zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            opt[0].step()
            for scheduler in opt[1:]:
                scheduler.step()
        return loss.detach()

    if primed:  # a step has been made before, so that the optimizer has its state
        step(randn(3, 4, seed=8), randn(3, 1, seed=9))
    return Case(step, (randn(3, 4), randn(3, 1, seed=2)))


def with_schedule(net: Any, schedule: Any) -> tuple:
    """An optimizer and its schedule."""
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return opt, schedule(opt)


many(
    __name__,
    step_sgd=lambda: step_with(lambda n: torch.optim.SGD(n.parameters(), lr=0.1)),
    step_sgd_momentum=lambda: step_with(lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)),
    step_sgd_nesterov_decay=lambda: step_with(
        lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    ),
    step_sgd_twice=lambda: step_with(lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9), 2),
    step_adamw=lambda: step_with(lambda n: torch.optim.AdamW(n.parameters())),
    step_adamw_thrice=lambda: step_with(lambda n: torch.optim.AdamW(n.parameters(), foreach=False), 3),
    step_adam_amsgrad=lambda: step_with(lambda n: torch.optim.Adam(n.parameters(), amsgrad=True)),
    step_adam_fused=lambda: step_with(lambda n: torch.optim.Adam(n.parameters(), fused=True)),
    step_adam_capturable_lr=lambda: step_with(lambda n: torch.optim.Adam(n.parameters(), lr=torch.tensor(0.1))),
    step_primed_momentum=lambda: step_with(
        lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9), primed=True
    ),
    step_primed_adamw=lambda: step_with(lambda n: torch.optim.AdamW(n.parameters()), primed=True),
    step_primed_adamw_single=lambda: step_with(lambda n: torch.optim.AdamW(n.parameters(), foreach=False), primed=True),
    step_primed_schedule=lambda: step_with(
        lambda n: with_schedule(n, lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5)), primed=True
    ),
    step_rmsprop=lambda: step_with(lambda n: torch.optim.RMSprop(n.parameters(), centered=True, momentum=0.5)),
    step_adagrad=lambda: step_with(lambda n: torch.optim.Adagrad(n.parameters())),
    step_adadelta=lambda: step_with(lambda n: torch.optim.Adadelta(n.parameters())),
    step_adamax=lambda: step_with(lambda n: torch.optim.Adamax(n.parameters())),
    step_nadam=lambda: step_with(lambda n: torch.optim.NAdam(n.parameters())),
    step_radam=lambda: step_with(lambda n: torch.optim.RAdam(n.parameters())),
    step_rprop=lambda: step_with(lambda n: torch.optim.Rprop(n.parameters())),
    step_asgd=lambda: step_with(lambda n: torch.optim.ASGD(n.parameters())),
    step_maximize=lambda: step_with(lambda n: torch.optim.SGD(n.parameters(), lr=0.1, maximize=True)),
    step_with_schedule=lambda: step_with(
        lambda n: with_schedule(n, lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5)), 2
    ),
    step_with_one_cycle=lambda: step_with(
        lambda n: with_schedule(n, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=10)), 2
    ),
    step_with_batch_norm=lambda: step_with(
        lambda n: torch.optim.SGD(n.parameters(), lr=0.1),
        net=nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
    ),
    step_with_dropout=lambda: step_with(
        lambda n: torch.optim.SGD(n.parameters(), lr=0.1),
        net=nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1)),
    ),
    step_with_groups=lambda: step_with(
        lambda n: torch.optim.SGD([dict(params=n[0].parameters(), lr=0.5), dict(params=n[2].parameters())], lr=0.1)
    ),
)


def trained(step: Any, x: Any = None) -> Case:
    """A step on a small net; `step` gets the net, x and y."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    return Case(step(net), (randn(3, 4), randn(3, 1, seed=2)))


@program
def step_with_closure_lbfgs() -> Case:
    def make(net):
        opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=3)

        def step(x, y):
            def closure():
                opt.zero_grad()
                loss = (net(x) - y).square().mean()
                loss.backward()
                return loss

            return opt.step(closure).detach()

        return step

    return trained(make)


@program
def step_with_clipping() -> Case:
    def make(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            opt.step()
            return loss.detach(), norm

        return step

    return trained(make)


@program
def step_with_value_clipping() -> Case:
    def make(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad(set_to_none=False)
            loss = (net(x) - y).square().mean()
            loss.backward()
            nn.utils.clip_grad_value_(net.parameters(), 0.01)
            opt.step()
            return loss.detach()

        return step

    return trained(make)


@program
def step_with_accumulation() -> Case:
    def make(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            for part, target in zip(x.split(1), y.split(1), strict=True):
                ((net(part) - target).square().mean() / 3).backward()
            opt.step()
            return net(x).detach()

        return step

    return trained(make)


@program
def step_that_only_accumulates() -> Case:
    def make(net):
        for p in net.parameters():
            p.grad = torch.ones_like(p)

        def step(x, y):
            (net(x) - y).square().mean().backward()
            return torch.stack([p.grad.norm() for p in net.parameters()])

        return step

    return trained(make)


@program
def step_that_skips_on_nan() -> Case:
    def make(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            if torch.isfinite(loss):
                opt.step()
            return loss.detach()

        return step

    case = trained(make)
    return Case(case.fn, case.args, others=[(torch.full((3, 4), float("nan")), randn(3, 1))])


@program
def step_sharpness_aware() -> Case:
    def make(net):
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            (net(x) - y).square().sum().backward()
            old = [p.data.clone() for p in net.parameters()]
            with torch.no_grad():
                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
                for p in net.parameters():
                    p.add_(p.grad * 0.05 / norm)
            opt.zero_grad()
            (net(x) - y).square().sum().backward()
            for p, q in zip(net.parameters(), old, strict=True):
                p.data = q
            opt.step()
            opt.zero_grad()
            return net(x).detach()

        return step

    return trained(make)


@program
def step_by_hand() -> Case:
    def make(net):
        def step(x, y):
            loss = (net(x) - y).square().mean()
            grads = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads, strict=True):
                    p.sub_(g, alpha=0.1)
            return loss.detach()

        return step

    return trained(make)


@program
def step_adversarial_pair() -> Case:
    gen, dis = nn.Linear(4, 4), nn.Linear(4, 1)
    og, od = torch.optim.SGD(gen.parameters(), 0.1), torch.optim.SGD(dis.parameters(), 0.1)

    def step(z):
        fake = gen(z)
        od.zero_grad()
        dis(fake.detach()).mean().backward()
        od.step()
        og.zero_grad()
        dis(fake).mean().backward()
        og.step()
        return dis(fake).detach()

    return Case(step, randn(3, 4))


@program
def step_then_moving_average() -> Case:
    net, slow = nn.Linear(4, 1), nn.Linear(4, 1).requires_grad_(False)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(slow.parameters(), net.parameters(), strict=True):
                p.mul_(0.9).add_(q, alpha=0.1)
        return slow(x)

    return Case(step, randn(3, 4))


@program
def averaged_model() -> Case:
    net = nn.Linear(4, 1)
    slow = swa_utils.AveragedModel(net, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))

    def f(x):
        slow.update_parameters(net)
        return slow(x)

    return Case(f, randn(3, 4))


@program
def averaged_model_second_update() -> Case:
    net = nn.Linear(4, 1)
    slow = swa_utils.AveragedModel(net)
    slow.update_parameters(net)

    def f(x):
        with torch.no_grad():
            net.weight.add_(1)
        slow.update_parameters(net)
        return slow(x).detach()

    return Case(f, randn(3, 4))


@program
def moving_average_inside_the_module() -> Case:
    def init(self):
        self.register_buffer("slow", self.w.detach().clone())

    def forward(self, x):
        with torch.no_grad():
            self.slow.mul_(0.9).add_(self.w, alpha=0.1)
        return x @ self.w + x @ self.slow

    return on(init, forward)


@program
def optimizer_in_a_hook() -> Case:
    net = nn.Linear(4, 1)
    opts = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: (opts[p].step(), opts[p].zero_grad())[0])

    def step(x):
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    return Case(step, randn(3, 4))


@program
def scaler_for_mixed_precision() -> Case:
    net = nn.Linear(4, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(x).float().square().mean()
        (loss * 128).backward()
        for p in net.parameters():
            p.grad.div_(128)
        opt.step()
        return loss.detach()

    return Case(step, randn(3, 4))


@program
def learning_rate_read_from_a_tensor() -> Case:
    net, rate = nn.Linear(4, 1), torch.tensor(0.1)

    def step(x):
        loss = net(x).square().mean()
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads, strict=True):
                p.sub_(g * rate.item())
        rate.mul_(0.5)
        return loss.detach()

    return Case(step, randn(3, 4))


@program
def gradient_set_by_hand() -> Case:
    def forward(self, x):
        self.w.grad = torch.ones_like(self.w) * x.detach().sum()
        return x @ self.w

    return Case(module(None, forward), randn(3, 4))


@program
def batch_norm_recomputed_in_checkpoint() -> Case:
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        loss = checkpoint(net, x, use_reentrant=False).square().sum()
        loss.backward()
        opt.step()
        return loss.detach()

    return Case(step, randn(5, 4))


@program
def meta_learning_inner_step() -> Case:
    def forward(self, x):
        inner = (x @ self.w).square().mean()
        (g,) = torch.autograd.grad(inner, self.w, create_graph=True)
        return x @ (self.w - 0.1 * g)

    return Case(module(None, forward), randn(3, 4))


@program
def freezes_itself_in_forward() -> Case:
    def forward(self, x):
        self.b.requires_grad_(False)
        return x @ self.w + self.b

    return Case(module(lambda s: attributes(s, b=nn.Parameter(torch.ones(4))), forward), randn(3, 4), gradients=False)


@program
def lazily_tied() -> Case:
    def forward(self, x):
        self.d.weight = self.e.weight
        return self.d(self.e(x))

    def init(self):
        self.e, self.d = nn.Linear(4, 4), nn.Linear(4, 4)

    return Case(bare(init, forward), randn(3, 4), gradients=False)
