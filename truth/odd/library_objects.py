"""Objects of libraries that a program holds and that change as they are used: caches, samplers, mocks, parsers."""

import argparse
import asyncio
import collections
import configparser
import csv
import functools
import io
import itertools
import shlex
import unittest.mock
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from case import Case, attributes, bare, many, module, rand, randn
from torch import distributions, nn


def kept(make: Callable[[], Any], f: Any, **more: Any) -> Case:
    """A module that has an object of its own and uses it."""
    held = make()
    net = module(lambda s: attributes(s, held=held), lambda s, x: f(x @ s.w, s.held))
    return Case(net, randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def done(value: Any, *_: Any) -> Any:
    """The value; what else there is has been done."""
    return value


def then(*lines: Any) -> Any:
    """The last of several values."""
    return lines[-1]


def _sobol(x: Any, engine: Any) -> Any:
    return x * engine.draw(1)[0]


def _async_event(x: Any, event: Any) -> Any:
    scale = 3 if event.is_set() else 2
    event.set()
    return x * scale


def _configured(x: Any, config: Any) -> Any:
    config["a"]["n"] = str(int(config["a"]["n"]) + 1)
    return x * int(config["a"]["n"])


def _config() -> Any:
    made = configparser.ConfigParser()
    made.read_dict({"a": {"n": "1"}})
    return made


def _namespace(x: Any, options: Any) -> Any:
    options.step += 1
    return x * options.step


def _mocked(x: Any, mock: Any) -> Any:
    mock(1)
    return x * mock.call_count


def _side_effects(x: Any, mock: Any) -> Any:
    return x * mock()


def _lexer(x: Any, lexer: Any) -> Any:
    return x * float(lexer.get_token())


def _reader(x: Any, reader: Any) -> Any:
    return x * float(next(reader)["n"])


def _writer() -> Any:
    space = io.StringIO()
    return space, csv.writer(space)


def _write(x: Any, pair: Any) -> Any:
    pair[1].writerow([1])
    return x * len(pair[0].getvalue())


def _cached_transform(x: Any, transform: Any) -> Any:
    y = transform(x)
    known = transform._cached_x_y[0] is x
    return transform.inv(y) * (2 if known else 3)


def _frozen_distribution(x: Any, d: Any) -> Any:
    fresh = "probs" not in d.__dict__
    return x * d.probs * (2 if fresh else 3)


def _objects_array(x: Any, table: Any) -> Any:
    table[0].append(1)
    return x * len(table[0])


def _objects() -> Any:
    made = np.empty(1, object)
    made[0] = [1]
    return made


def _records(x: Any, table: Any) -> Any:
    table["n"][0] += 1
    return x * float(table["n"][0])


def _masked(x: Any, table: Any) -> Any:
    table[0] = np.ma.masked
    return x * (table.count() + 1)


def _polynomial(x: Any, p: Any) -> Any:
    p.coeffs[0] += 1
    return x * float(p(1.0))


def _flag_of_array(x: Any, a: Any) -> Any:
    scale = 2 if a.flags.writeable else 3
    a.flags.writeable = False
    return x * scale


def _shape_of_array(x: Any, a: Any) -> Any:
    scale = a.ndim
    a.shape = (2, 2)
    return x * scale


def _dtype_of_array(x: Any, a: Any) -> Any:
    scale = float(a.reshape(-1)[0])
    a.dtype = np.dtype("i4") if a.dtype == np.dtype("f4") else np.dtype("f4")
    return x * scale


def _tensor_type(x: Any, t: Any) -> Any:
    scale = t.element_size()
    t.data = t.data.double()
    return x * scale


def _tensor_shape(x: Any, t: Any) -> Any:
    scale = t.dim() + 1
    t.unsqueeze_(0)
    return x * scale


def _tensor_grown(x: Any, t: Any) -> Any:
    t.resize_(t.numel() + 1)
    t[-1] = 1
    return x * t.numel()


def _tensor_asks(x: Any, t: Any) -> Any:
    scale = 3 if t.requires_grad else 2
    t.requires_grad_()
    return x * scale


def _tensor_hooks(x: Any, t: Any) -> Any:
    t.register_hook(lambda g: g)
    return x * len(t._backward_hooks)


def _tensor_class(x: Any, t: Any) -> Any:
    scale = 3 if isinstance(t, nn.Parameter) else 2
    t.__class__ = nn.Parameter
    return x * scale


def _tensor_set(x: Any, t: Any) -> Any:
    y = x * t.sum()
    t.set_(torch.full((2,), float(t.sum()) + 1))
    return y


def _sparse_grown(x: Any, holder: Any) -> Any:
    holder["s"] = (holder["s"] + holder["s"]).coalesce()
    return x * holder["s"].to_dense()


def _sparse_in_place(x: Any, s: Any) -> Any:
    s.mul_(2)
    return x * s.to_dense()


def _quantized(x: Any, holder: Any) -> Any:
    holder[0] = torch.quantize_per_tensor(holder[0].dequantize() + 1, 0.5, 0, torch.qint8)
    return x * holder[0].dequantize()


def _scripted_function(x: Any, f: Any) -> Any:
    return f(x) * 2


def _traced_state() -> Any:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.ones(4))

        def forward(self, x: Any) -> Any:
            self.n.add_(1)
            return x * self.n

    return torch.jit.trace(Counts(), torch.ones(3, 4), check_trace=False)


def _exported_state() -> Any:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.ones(4))

        def forward(self, x: Any) -> Any:
            self.n.add_(1)
            return x * self.n

    return torch.export.export(Counts(), (torch.ones(3, 4),)).module()


def _symbolic() -> Any:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))


def _recompiles(x: Any, graph: Any) -> Any:
    y = graph(x)
    for node in graph.graph.nodes:
        if node.op == "call_module" and node.target == "1":
            node.op, node.target = "call_function", torch.sin
            graph.recompile()
            break
    return y


def _weighted(x: Any, sampler: Any) -> Any:
    return x[list(sampler)].sum(0) + x


def _sampler() -> Any:
    g = torch.Generator().manual_seed(3)
    return torch.utils.data.WeightedRandomSampler([0.2, 0.3, 0.5], 2, generator=g)


def _loader() -> Any:
    g = torch.Generator().manual_seed(3)
    data = torch.utils.data.TensorDataset(rand(6, 4))
    return itertools.cycle(torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, generator=g))


def _persistent() -> Any:
    g = torch.Generator().manual_seed(3)
    return torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(rand(6, 4)), batch_size=2, shuffle=True, generator=g
    )


def _weak_method() -> Any:
    class Owner:
        n = 1

        def more(self) -> int:
            self.n += 1
            return self.n

    owner = Owner()
    return owner, weakref.WeakMethod(owner.more)


def _dispatch() -> Any:
    @functools.singledispatch
    def f(v: Any) -> int:
        return 2

    return f


def _dispatched(x: Any, f: Any) -> Any:
    scale = f(1)
    f.register(int)(lambda v: 3)
    return x * scale


def _metadata(x: Any, _: Any) -> Any:
    y = x * 2
    y.grad_fn.metadata["n"] = y.grad_fn.metadata.get("n", 1) + 1
    return y * y.grad_fn.metadata["n"]


def _scheduler() -> Any:
    p = nn.Parameter(torch.ones(1))
    opt = torch.optim.AdamW([p], lr=0.5)
    return torch.optim.lr_scheduler.SequentialLR(
        opt,
        [torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 3), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5)],
        milestones=[2],
    )


def _scheduled(x: Any, scheduler: Any) -> Any:
    scheduler.optimizer.step()
    scheduler.step()
    return x * scheduler.get_last_lr()[0]


def _pool(x: Any, pair: Any) -> Any:
    free, busy = pair
    buffer = free.popleft() if free else torch.zeros(4)
    busy.append(buffer)
    buffer += 1
    return x * buffer + len(busy)


many(
    __name__,
    held_sobol=lambda: kept(lambda: torch.quasirandom.SobolEngine(4, scramble=True, seed=3), _sobol),
    held_async_event=lambda: kept(asyncio.Event, _async_event),
    held_config=lambda: kept(_config, _configured),
    held_options=lambda: kept(lambda: argparse.Namespace(step=1), _namespace),
    held_mock=lambda: kept(unittest.mock.Mock, _mocked),
    held_mock_side_effects=lambda: kept(lambda: unittest.mock.Mock(side_effect=range(2, 99)), _side_effects),
    held_lexer=lambda: kept(lambda: shlex.shlex("2 3 4 5 6 7 8 9 " * 5), _lexer),
    held_dict_reader=lambda: kept(lambda: csv.DictReader(["n", *map(str, range(2, 60))]), _reader),
    held_csv_writer=lambda: kept(_writer, _write),
    held_transform_cache=lambda: kept(lambda: distributions.SigmoidTransform(cache_size=1), _cached_transform),
    held_lazy_distribution=lambda: kept(lambda: distributions.Categorical(logits=torch.ones(4)), _frozen_distribution),
    held_array_of_objects=lambda: kept(_objects, _objects_array),
    held_array_of_records=lambda: kept(lambda: np.array([(1, 2.0)], [("n", "i4"), ("v", "f4")]), _records),
    held_array_masked=lambda: kept(lambda: np.ma.array([1.0, 2.0, 3.0]), _masked),
    held_polynomial=lambda: kept(lambda: np.poly1d([1.0, 2.0]), _polynomial),
    held_array_flag=lambda: kept(lambda: np.ones(4), _flag_of_array),
    held_array_shape=lambda: kept(lambda: np.ones(4), _shape_of_array),
    held_array_type=lambda: kept(lambda: np.full(4, 2.0, "f4"), _dtype_of_array),
    held_tensor_type=lambda: kept(lambda: torch.ones(2), _tensor_type),
    held_tensor_shape=lambda: kept(lambda: torch.ones(2), _tensor_shape),
    held_tensor_grown=lambda: kept(lambda: torch.ones(2), _tensor_grown),
    held_tensor_asks=lambda: kept(lambda: torch.ones(2), _tensor_asks, gradients=False),
    held_tensor_hooks=lambda: kept(lambda: torch.ones(2, requires_grad=True), _tensor_hooks),
    held_tensor_class=lambda: kept(lambda: torch.ones(2), _tensor_class, gradients=False),
    held_tensor_set=lambda: kept(lambda: torch.ones(2), _tensor_set),
    held_sparse_grown=lambda: kept(lambda: {"s": torch.eye(4)[0].to_sparse()}, _sparse_grown),
    held_sparse_in_place=lambda: kept(lambda: torch.eye(4)[0].to_sparse(), _sparse_in_place),
    held_quantized=lambda: kept(lambda: [torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8)], _quantized),
    held_traced=lambda: kept(_traced_state, lambda x, m: m(x)),
    held_exported=lambda: kept(_exported_state, lambda x, m: m(x)),
    held_graph_recompiled=lambda: kept(_symbolic, _recompiles),
    held_sampler=lambda: kept(_sampler, _weighted),
    held_loader_cycle=lambda: kept(_loader, lambda x, i: x * next(i)[0].sum()),
    held_loader=lambda: kept(
        _persistent, lambda x, loader: x * sum((i + 1) * b[0].sum() for i, b in enumerate(loader))
    ),
    held_weak_method=lambda: kept(_weak_method, lambda x, p: x * p[1]()()),
    held_dispatch=lambda: kept(_dispatch, _dispatched),
    held_node_metadata=lambda: kept(int, _metadata),
    held_scheduler=lambda: kept(_scheduler, _scheduled),
    held_pool=lambda: kept(lambda: (collections.deque([torch.ones(4)]), collections.deque()), _pool),
    held_sequence_of_modules=lambda: Case(
        bare(lambda s: attributes(s, layers=[nn.Linear(4, 4), nn.Linear(4, 4)]), lambda s, x: _rotates(s, x)),
        randn(3, 4),
        others=[randn(3, 4, seed=5)],
    ),
)


def _rotates(self: Any, x: Any) -> Any:
    self.layers.reverse()
    return self.layers[0](x)
