"""Programs that check values and refuse some: on other values the plain program raises, and so has a replay."""

import array
import enum
import math
import random
import struct
import warnings
from typing import Any

import numpy as np
import torch
from case import Case, leaf, many, module, rand, randn
from torch import distributions, nn
from torch.nn import functional as F


def checks(f: Any, good: Any, also: Any, bad: Any, **more: Any) -> Case:
    """A function that takes two values and raises on a third."""
    return Case(f, good, others=[also, bad], variants=False, **more)


def _square(x: Any) -> Any:
    return x @ x.t() + torch.eye(3)


class Kind(enum.Enum):
    """Numbers that have a name."""

    ONE = 1
    TWO = 2


def _warned(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if bool((x > 2).any()):
            warnings.warn("large", stacklevel=1)
        return x * 2


def _caught(x: Any) -> Any:
    """As a training loop that skips what is bad."""
    try:
        return distributions.Normal(torch.zeros(3), x).log_prob(torch.ones(3)).sum() + x.sum()
    except ValueError:
        return x.sum() * 10


def _retried(x: Any) -> Any:
    jitter = 0.0
    for _ in range(6):
        try:
            return torch.linalg.cholesky(x @ x.t() - 1.0 * torch.eye(3) + jitter * torch.eye(3))
        except torch.linalg.LinAlgError:
            jitter = max(jitter * 10, 0.1)
    raise ValueError("no")


def _retried_ex(x: Any) -> Any:
    matrix = x @ x.t() - torch.eye(3)
    for jitter in (0.0, 0.5, 1.5, 50.0):
        root, info = torch.linalg.cholesky_ex(matrix + jitter * torch.eye(3))
        if not torch.any(info):
            return root + jitter
    raise ValueError("no")


def _clipped(self: Any, x: Any) -> Any:
    grad = torch.autograd.grad((x @ self.w).pow(2).sum(), self.w)[0]
    holder = nn.Parameter(self.w.detach().clone())
    holder.grad = grad
    norm = nn.utils.clip_grad_norm_([holder], 1.0, error_if_nonfinite=True)
    return (x @ self.w).sum() * norm


def _anomaly(x: Any) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        y = x.sqrt().sum()
        return torch.autograd.grad(y, x, create_graph=True)[0] + x


BIG = [0.5, 1.5, 300.0]

many(
    __name__,
    checked_scale_of_normal=lambda: checks(
        lambda x: distributions.Normal(0.0, x).log_prob(torch.ones(3)), rand(3), rand(3, seed=5), -rand(3)
    ),
    checked_probabilities=lambda: checks(
        lambda x: distributions.Categorical(probs=x).entropy(), rand(2, 3), rand(2, 3, seed=5), -rand(2, 3)
    ),
    checked_logits_of_nan=lambda: checks(
        lambda x: distributions.Categorical(logits=x).entropy(),
        randn(2, 3),
        randn(2, 3, seed=5),
        randn(2, 3) * math.nan,
    ),
    checked_support=lambda: checks(
        lambda x: distributions.Beta(2.0, 3.0).log_prob(x),
        torch.tensor([0.2, 0.5]),
        torch.tensor([0.3, 0.7]),
        torch.tensor([0.3, 1.7]),
    ),
    checked_simplex=lambda: checks(
        lambda x: distributions.Dirichlet(torch.ones(3)).log_prob(x),
        torch.tensor([0.2, 0.5, 0.3]),
        torch.tensor([0.1, 0.1, 0.8]),
        torch.tensor([0.2, 0.5, 0.5]),
    ),
    checked_covariance=lambda: checks(
        lambda x: distributions.MultivariateNormal(torch.zeros(2), x).log_prob(torch.ones(2)),
        torch.tensor([[2.0, 0.1], [0.1, 1.0]]),
        torch.tensor([[3.0, 0.5], [0.5, 1.0]]),
        torch.tensor([[1.0, 3.0], [3.0, 1.0]]),
        gradients=False,
    ),
    checked_one_hot=lambda: checks(
        lambda x, i: x * F.one_hot(i, 3),
        (randn(2, 3), torch.tensor([0, 2])),
        (randn(2, 3), torch.tensor([1, 1])),
        (randn(2, 3), torch.tensor([1, 3])),
    ),
    checked_one_hot_inferred=lambda: checks(
        lambda x, i: x[: F.one_hot(i).shape[1]] * 2,
        (randn(5, 3), torch.tensor([0, 2])),
        (randn(5, 3), torch.tensor([2, 1])),
        (randn(5, 3), torch.tensor([1, -3])),
    ),
    checked_variance=lambda: checks(
        lambda x: F.gaussian_nll_loss(x, torch.ones(3), x), rand(3), rand(3, seed=5), -rand(3)
    ),
    checked_probability_of_loss=lambda: checks(
        lambda x: F.binary_cross_entropy(x, torch.ones(3)), rand(3) / 2, rand(3, seed=5) / 2, rand(3) + 2
    ),
    checked_targets=lambda: checks(
        lambda x, t: F.cross_entropy(x, t),
        (randn(3, 4), torch.tensor([0, 1, 3])),
        (randn(3, 4), torch.tensor([2, 2, -100])),
        (randn(3, 4), torch.tensor([0, 1, 4])),
    ),
    checked_close=lambda: checks(
        lambda x: (torch.testing.assert_close(x, x.round(), atol=0.3, rtol=0.0), x * 2)[1],
        torch.tensor([1.1, 2.2]),
        torch.tensor([3.1, 4.0]),
        torch.tensor([1.1, 2.4]),
    ),
    checked_close_numpy=lambda: checks(
        lambda x: (np.testing.assert_allclose(x.detach().numpy(), 1.0, atol=0.3), x * 2)[1],
        torch.tensor([1.1, 1.2]),
        torch.tensor([0.9, 1.0]),
        torch.tensor([1.1, 2.4]),
    ),
    checked_finite=lambda: checks(
        lambda x: x.log() * (1 if torch.isfinite(x.log()).all() else _no()), rand(3), rand(3, seed=5), rand(3) * 0
    ),
    checked_cholesky=lambda: checks(
        lambda x: torch.linalg.cholesky(x @ x.t() - 0.1 * torch.eye(2)),
        randn(2, 4),
        randn(2, 4, seed=5),
        randn(2, 4) * 0.01,
    ),
    checked_cholesky_errors=lambda: checks(
        lambda x: torch.linalg.cholesky_ex(x @ x.t() - 0.1 * torch.eye(2), check_errors=True)[0],
        randn(2, 4),
        randn(2, 4, seed=5),
        randn(2, 4) * 0.01,
    ),
    checked_cholesky_info=lambda: checks(
        lambda x: torch.linalg.cholesky_ex(x @ x.t() - 0.1 * torch.eye(2)),
        randn(2, 4),
        randn(2, 4, seed=5),
        randn(2, 4) * 0.01,
        gradients=False,
    ),
    checked_cholesky_retried=lambda: checks(
        _retried, randn(3, 4) * 3, randn(3, 4, seed=5) * 3, randn(3, 4) * 0.5, gradients=False
    ),
    checked_cholesky_retried_info=lambda: checks(
        _retried_ex, randn(3, 4) * 3, randn(3, 4, seed=5) * 3, randn(3, 4) * 0.5, gradients=False
    ),
    checked_inverse=lambda: checks(lambda x: torch.linalg.inv(x), randn(2, 2), randn(2, 2, seed=5), torch.ones(2, 2)),
    checked_solve_info=lambda: checks(
        lambda x: (lambda r: r.result * (2 if int(r.info) == 0 else 3))(torch.linalg.solve_ex(x, torch.eye(2))),
        randn(2, 2),
        randn(2, 2, seed=5),
        torch.ones(2, 2),
        gradients=False,
    ),
    checked_norm_of_gradient=lambda: checks(
        module(None, _clipped), randn(3, 4), randn(3, 4, seed=5), randn(3, 4) * math.inf
    ),
    checked_backward_nan=lambda: checks(_anomaly, leaf(3).detach().abs().requires_grad_(), rand(3), rand(3) - 9),
    checked_warning=lambda: checks(_warned, torch.tensor([0.5, 1.0]), torch.tensor([1.5]), torch.tensor([0.5, 3.0])),
    checked_and_caught=lambda: checks(_caught, rand(3), rand(3, seed=5), -rand(3)),
    checked_math_domain=lambda: checks(lambda x: x * math.log(x.sum()), rand(3), rand(3) * 1.0, -rand(3)),
    checked_byte=lambda: checks(
        lambda x: x * struct.pack("B", int(x.sum()))[0],
        torch.tensor(BIG[:1]),
        torch.tensor([0.7]),
        torch.tensor(BIG),
    ),
    checked_bytes_object=lambda: checks(
        lambda x: x * bytes([int(x.sum())])[0], torch.tensor([2.5]), torch.tensor([2.7]), torch.tensor([-2.5])
    ),
    checked_array=lambda: checks(
        lambda x: x * array.array("B", [int(x.sum())])[0],
        torch.tensor([2.5]),
        torch.tensor([2.7]),
        torch.tensor([-2.5]),
    ),
    checked_character=lambda: checks(
        lambda x: x * ord(chr(int(x.sum()))), torch.tensor([2.5]), torch.tensor([2.7]), torch.tensor([-2.5])
    ),
    checked_member=lambda: checks(
        lambda x: x * Kind(int(x.sum())).value, torch.tensor([1.5]), torch.tensor([1.7]), torch.tensor([7.5])
    ),
    checked_bytes_of_number=lambda: checks(
        lambda x: x * len(int(x.sum()).to_bytes(1, "little")),
        torch.tensor([1.5]),
        torch.tensor([9.5]),
        torch.tensor([999.0]),
    ),
    checked_weights_of_choice=lambda: checks(
        lambda x: x * random.Random(1).choices([2, 3], weights=x.tolist())[0],
        torch.tensor([1.5, 2.0]),
        torch.tensor([1.5, 2.0]),
        torch.tensor([0.0, 0.0]),
    ),
    checked_lengths=lambda: checks(
        lambda x, n: nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True).data.sum() + x.sum(),
        (randn(2, 3, 4), torch.tensor([3, 2])),
        (randn(2, 3, 4, seed=5), torch.tensor([3, 2])),
        (randn(2, 3, 4), torch.tensor([3, 0])),
    ),
    checked_lengths_sorted=lambda: checks(
        lambda x, n: nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True).data.sum() + x.sum(),
        (randn(2, 3, 4), torch.tensor([3, 2])),
        (randn(2, 3, 4), torch.tensor([3, 1])),
        (randn(2, 3, 4), torch.tensor([2, 3])),
    ),
    checked_gradients=lambda: checks(
        lambda x: (torch.autograd.gradcheck(torch.sin, (x.detach().requires_grad_(),)), x * 2)[1],
        randn(3, dtype=torch.float64),
        randn(3, seed=5, dtype=torch.float64),
        randn(3, dtype=torch.float64) * math.nan,
    ),
    checked_async_assertion=lambda: checks(
        lambda x: (torch._assert_async(x.sum() > 0), x * 2)[1], rand(3), rand(3, seed=5), -rand(3)
    ),
    checked_divisor=lambda: checks(
        lambda x, n: x * (10 // int(n)),
        (rand(3), torch.tensor(2)),
        (rand(3, seed=5), torch.tensor(2)),
        (rand(3), torch.tensor(0)),
    ),
    checked_index_of_list=lambda: checks(
        lambda x, n: x * [2, 3, 4][n],
        (rand(3), torch.tensor(2)),
        (rand(3), torch.tensor(-1)),
        (rand(3), torch.tensor(3)),
    ),
    checked_index_of_tensor=lambda: checks(
        lambda x, n: x[n] * 2, (rand(3), torch.tensor([2])), (rand(3), torch.tensor([-1])), (rand(3), torch.tensor([3]))
    ),
    checked_embedding=lambda: checks(
        lambda w, i: F.embedding(i, w),
        (randn(4, 2), torch.tensor([0, 3])),
        (randn(4, 2), torch.tensor([1, 1])),
        (randn(4, 2), torch.tensor([1, 4])),
    ),
)


def _no() -> Any:
    raise ValueError("not finite")
