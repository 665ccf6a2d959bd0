"""A solution in the place of modules: put in, taken out, guarded, and what of the model stays as it was."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.small_mlps import MLP, Fused, FusedForward, net_and_x
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import UsageError


class Own(MLP):
    """An instance: runs with the parameters and buffers of the replaced module."""

    def forward(self, x: Tensor, shift: Tensor | None = None, twice: bool = False) -> Tensor:
        return self.proj(self.fc(x).tanh()) * self.scale


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))


def ran(swapped: bp.types.Swapped) -> list[int]:
    return [place.ran for place in swapped.places]


SOLUTIONS = {"function": Fused, "apply": Fused.apply, "class": FusedForward, "instance": Own()}


@pytest.mark.parametrize("kind", SOLUTIONS)
def test_a_solution_runs_inside_the_block_alone(kind: str) -> None:
    net, x = net_and_x()
    expected, forwards = gradients(net, x), [dict(vars(module)) for module in net.modules()]
    with bp.swap(net, "blocks.*", SOLUTIONS[kind]) as swapped:
        torch.testing.assert_close(gradients(net, x), expected)
        assert [(place.path, place.also, place.ran) for place in swapped.places] == [
            ("blocks.0", ("blocks.2",), 2),  # one module, swapped once
            ("blocks.1", (), 1),
        ]
    net(x)
    assert ran(swapped) == [2, 1]
    assert [dict(vars(module)) for module in net.modules()] == forwards


def test_an_exception_undoes_it() -> None:
    net, x = net_and_x()
    with pytest.raises(ZeroDivisionError), bp.swap(net, "blocks.1", lambda *tensors: 1 / 0):
        net(x)
    net(x)
    assert "forward" not in vars(net.blocks[1])


def test_kept_until_it_is_undone() -> None:
    net, x = net_and_x()
    swapped = bp.swap(net, ["blocks.0", "blocks.1"], Fused).keep()
    with pytest.raises(UsageError, match="in the model already"):
        swapped.keep()
    with pytest.raises(UsageError, match=r"blocks\.1 is swapped already: undo that swap first"):
        bp.swap(net, "blocks.1", Own())
    net(x)
    assert repr(swapped) == "Swapped(Fused at 2 places, in the model)"
    swapped.undo()
    with pytest.raises(UsageError, match="this swap is not in the model"):
        swapped.undo()


def test_what_was_put_in_since_is_named() -> None:
    net, _ = net_and_x()
    swapped = bp.swap(net, "blocks.*", Fused).keep()
    net.blocks[0].forward = len  # type: ignore[assignment]  # as a user may
    with pytest.raises(UsageError, match=r"blocks\.0 has another forward since: <built-in function len>"):
        swapped.undo()
    assert "forward" not in vars(net.blocks[1])
    assert net.blocks[0].forward is len


def test_a_forward_of_the_instance_is_restored() -> None:
    net, x = net_and_x()
    net.blocks[1].forward = net.blocks[1].forward  # type: ignore[method-assign]  # a bound method, as kernels set
    before = vars(net.blocks[1])["forward"]
    with bp.swap(net, "blocks.1", Fused):
        net(x)
    assert vars(net.blocks[1])["forward"] is before
    net.blocks[1].forward = lambda x: x  # type: ignore[method-assign]  # belongs to no module
    with pytest.raises(UsageError, match="a copy of the model would share"):
        bp.swap(net, "blocks.1", Fused)


# ------------------------------------------------------------------ the model stays what it is


def test_the_state_and_copies_of_the_model() -> None:
    net, x = net_and_x()
    keys = [(name, id(tensor)) for name, tensor in net.state_dict(keep_vars=True).items()]
    names = [name for name, _ in net.named_modules()]
    expected = net(x)
    hooked: list[int] = []
    handle = net.blocks[1].register_forward_hook(lambda *_: hooked.append(1))
    with bp.swap(net, "blocks.*", Fused) as swapped:
        assert [(name, id(tensor)) for name, tensor in net.state_dict(keep_vars=True).items()] == keys
        assert [name for name, _ in net.named_modules()] == names
        twin = copy.deepcopy(net)
        with torch.no_grad():
            net.blocks[1].fc.weight.zero_()
        torch.testing.assert_close(twin(x), expected)  # the copy reads its own parameters
        assert ran(swapped) == [2, 1]
        assert hooked == [1]
        net.load_state_dict(twin.state_dict())
        torch.testing.assert_close(net(x), expected)
        handle.remove()
        torch.save(net, file := io.BytesIO())
        file.seek(0)
        counted = ran(swapped)
        loaded = torch.load(file, weights_only=False)
        torch.testing.assert_close(loaded(x), expected)
        assert ran(swapped) == counted, "a pickled model has no swap in it"
    torch.testing.assert_close(twin(x), expected)
    assert ran(swapped) == counted, "the copy has none either after the block"


def test_parameters_that_are_replaced_are_read_at_the_call() -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", Fused):
        state = {name: 2 * tensor for name, tensor in (*net.named_parameters(), *net.named_buffers())}
        inside = torch.func.functional_call(net, state, (x,))
    torch.testing.assert_close(inside, torch.func.functional_call(net, state, (x,)))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", Fused) as swapped:
        expected = torch.autograd.grad(net(x).sum(), x)[0]
        checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, expected)
    assert ran(swapped)[1] == 3


def targets_of(graphs: list[torch.fx.GraphModule]) -> str:
    return " ".join(str(node.target) for node in graphs[-1].graph.nodes)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of torch about torch
def test_compiled_code_knows_what_is_in_the_model() -> None:
    net, x = net_and_x()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(net, backend=backend, fullgraph=True)
    expected = gradients(compiled, x)
    assert "autograd_function_apply" not in targets_of(graphs)
    with bp.swap(compiled, "blocks.*", Fused, like=x) as swapped:
        torch.testing.assert_close(gradients(compiled, x), expected)
        assert targets_of(graphs).count("autograd_function_apply") == 3
        with pytest.warns(UserWarning, match="number of dimensions of x is 3, and Fused is for 2"):
            compiled(x[None])
        assert "autograd_function_apply" not in targets_of(graphs)
    torch.testing.assert_close(gradients(compiled, x), expected)
    assert ran(swapped) == [0, 0], "calls of compiled code are not counted"
    torch.compiler.reset()


def test_compiled_code_without_anything_learnt_runs_the_original() -> None:
    net, x = net_and_x()
    with (
        bp.swap(net, "blocks.1", Fused),
        pytest.warns(UserWarning, match=r"nothing says what Fused is for: pass like= or for_="),
    ):
        torch.compile(net, backend="eager", fullgraph=True)(x)
    torch.compiler.reset()


# ------------------------------------------------------------------ guards


BREAKS = {
    "dtype of x is torch.float64, and Fused is for torch.float32": lambda net, x: net.double()(x.double()),
    "number of dimensions of x is 3, and Fused is for 2": lambda net, x: net(x[None]),
    "training of the module is in eval mode, and Fused is for in training mode": lambda net, x: net.eval()(x),
    "memory of x is not contiguous, and Fused is for contiguous": lambda net, x: net(x.T.contiguous().T),
    "size of dimension 0 of x is 5, and Fused is for 4": lambda net, x: net(torch.ones(5, 6)),
    "twice is True, and Fused is for False": lambda net, x: net.blocks[1](x, None, True),
    r"arguments of the call is \(x, shift, twice\) with 3 values": lambda net, x: net.blocks[1](x, x, False),
    "layout of x is torch.sparse_coo, and Fused is for torch.strided": lambda net, x: net.blocks[1](x.to_sparse()),
    "type of x is Sub, and Fused is for Tensor": lambda net, x: net.blocks[1](x.as_subclass(Sub)),
}


class Sub(Tensor):
    pass


@pytest.mark.parametrize("text", BREAKS)
def test_a_guard_runs_the_original_and_says_so_once(text: str) -> None:
    net, x = net_and_x()
    words = text if " of " in text else f"value of {text}"
    like = (x, None, False) if "twice" in text else (x,)
    swapped = bp.swap(net, "blocks.1", Fused, like=like, fixed=(0,)).keep()
    with pytest.warns(UserWarning, match=rf"blocks\.1 runs its original forward: {words}"):
        result = BREAKS[text](net, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BREAKS[text](net, x)
    [place] = swapped.places
    assert place.ran == 0
    assert place.fell_back == 2
    assert len(place.why) == 1
    swapped.undo()
    torch.testing.assert_close(result, BREAKS[text](net, x))


def test_other_containers_and_adapters_are_other_calls() -> None:
    class Pick(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, batch: Any) -> Tensor:
            return self.fc(batch["a"] - batch["b"])

    net, a, b = nn.Sequential(Pick()), torch.ones(2, 3), torch.zeros(2, 3)

    def fused(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(a - b, weight, bias)

    with bp.swap(net, "0", fused) as swapped:
        expected = net({"a": a, "b": b})
        with pytest.warns(UserWarning, match=r"value of batch.keys\(\) is \('b', 'a'\), and fused is for \('a', 'b'\)"):
            torch.testing.assert_close(net({"b": b, "a": a}), expected)
        nn.utils.parametrizations.weight_norm(net[0].fc)
        with pytest.warns(UserWarning, match="3 parameters and 0 buffers in 5 modules, and fused is for 2 parameters"):
            net({"a": a, "b": b})
    assert ran(swapped) == [1]


def test_an_output_that_is_a_leaf_keeps_no_hook() -> None:
    net, x = nn.Sequential(nn.Identity()), torch.ones(3, requires_grad=True)
    with bp.swap(net, "0", lambda x: x):
        assert net(x) is x
    torch.autograd.grad((x * x).sum(), x, create_graph=True)


def test_autocast_and_gradients_that_a_solution_is_not_for() -> None:
    net, x = net_and_x()
    net.blocks[1].fc.weight.requires_grad_(False)
    with bp.swap(net, "blocks.1", Fused) as swapped:
        with torch.no_grad():
            net(x)
        warned = pytest.warns(UserWarning, match="autocast of the call is inside autocast to torch.bfloat16")
        with warned, torch.autocast("cpu", torch.bfloat16):
            net(x)
        net(x)
        net.blocks[1].fc.weight.requires_grad_()
        with pytest.warns(UserWarning, match="requires_grad of fc.weight is True, and Fused is for False"):
            net(x)
    assert ran(swapped) == [2]
    with torch.autocast("cpu", torch.bfloat16), bp.swap(net, "blocks.1", FusedForward) as swapped:
        net(x)
    assert ran(swapped) == [1]


def test_a_part_captured_in_autocast_is_for_the_dtype_that_autocast_had_there() -> None:
    net, x = net_and_x()
    with torch.autocast("cpu", torch.float16):
        part = bp.capture(net.blocks[1], x)
    with bp.swap(net, "blocks.1", FusedForward, for_=part) as swapped:
        with torch.autocast("cpu", torch.float16):
            net(x)
        with (
            pytest.warns(UserWarning, match=r"autocast to torch\.bfloat16, and .* to torch\.float16"),
            torch.autocast("cpu", torch.bfloat16),
        ):
            net(x)
    assert ran(swapped) == [1]


def test_a_transform_of_torch_func_runs_the_original() -> None:
    net, x = net_and_x()
    with bp.swap(net, "blocks.*", Fused, like=x), pytest.warns(UserWarning, match="inside a transform of torch.func"):
        inside = torch.func.vmap(net)(x[None])
    torch.testing.assert_close(inside, torch.func.vmap(net)(x[None]))


def test_a_gradient_of_a_gradient_is_refused_by_name() -> None:
    net, x = net_and_x()
    refused = pytest.raises(UsageError, match=r"create_graph=True goes through blocks\.1, .* pass order=2")
    with bp.swap(net, "blocks.1", Fused), refused:
        torch.autograd.grad(net(x).sum(), list(net.parameters()), create_graph=True)
    with bp.swap(net, "blocks.1", FusedForward, order=2):
        [first] = torch.autograd.grad(net(x).sum(), net.blocks[1].fc.weight, create_graph=True)
        inside = torch.autograd.grad(first.square().sum(), net.blocks[1].fc.weight)
    [first] = torch.autograd.grad(net(x).sum(), net.blocks[1].fc.weight, create_graph=True)
    torch.testing.assert_close(inside, torch.autograd.grad(first.square().sum(), net.blocks[1].fc.weight))


# ------------------------------------------------------------------ what a solution is for, from a Capture


def test_a_captured_part_says_what_a_solution_is_for() -> None:
    net, x = net_and_x()
    alone = bp.capture(net.blocks[1], x)
    [part] = [part for part in bp.split(bp.capture(net, x), "module:2").parts if part.label == "blocks.1"]
    for for_ in (alone, part):
        with bp.swap(net, "blocks.*", Fused, for_=for_) as swapped:
            net(x)
            with pytest.warns(UserWarning, match="number of dimensions of x is 3"):
                net(x[None])
        assert ran(swapped) == [2, 1]
    wide = nn.Sequential(MLP(), MLP(8))
    with (
        bp.swap(wide, "1", Fused, for_=alone),
        pytest.warns(UserWarning, match="size of dimension 0 of fc.weight is 16"),
    ):
        wide[1](torch.ones(2, 8))


def test_a_part_whose_inputs_have_no_known_order_is_refused() -> None:
    class Two(nn.Module):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            return first.sin() * second

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.two = Two()

        def forward(self, x: Tensor) -> Tensor:
            a, b = x.exp(), x.cos()
            return self.two(b, a).sum()

    net, x = Outer(), torch.randn(3)
    [part] = [part for part in bp.split(bp.capture(net, x), "module").parts if part.label == "two"]
    with pytest.raises(UsageError, match="which of these is which argument of two is not known: capture the module"):
        bp.swap(net, "two", lambda first, second: first.sin() * second, for_=part)
    with bp.swap(net, "two", lambda first, second: first.sin() * second, for_=bp.capture(net.two, x, x + 1)) as swapped:
        net(x)
    assert ran(swapped) == [1]


# ------------------------------------------------------------------ calls that cannot be right


REFUSED = {
    r"no module of the model is 'block\.\*\.fc'; near it are 'blocks\.\*\.fc'": lambda net: bp.swap(
        net, "block.*.fc", Own()
    ),
    r"blocks\.1\.fc is inside blocks\.1": lambda net: bp.swap(net, ["blocks.1", "blocks.1.fc"], Fused),
    r"blocks\.1 is both 'blocks\.1' and 'blocks\.\*'": lambda net: bp.swap(net, {"blocks.1": Fused, "blocks.*": Own()}),
    "fixed has y, and the inputs are x": lambda net: bp.swap(
        net, "blocks.1", Fused, like=torch.ones(2, 6), fixed={"y": (0,)}
    ),
    "this is the class int": lambda net: bp.swap(net, "blocks.1", int),
    "has helper besides its forward": lambda net: bp.swap(
        net, "blocks.1", type("C", (nn.Module,), {"forward": len, "helper": 1})
    ),
    r"Linear has weight, and blocks\.1 has not": lambda net: bp.swap(net, "blocks.1", nn.Linear(6, 6)),
    r"fc\.weight of Own has the shape \(16, 8\)": lambda net: bp.swap(net, "blocks.1", Own(8)),
    "needs a solution": lambda net: bp.swap(net, "blocks.1"),
    "DataParallel": lambda net: bp.swap(nn.DataParallel(net), "**.fc", Fused),
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_call_that_cannot_be_right_is_refused(text: str) -> None:
    net, _ = net_and_x()
    with pytest.raises(UsageError, match=text):
        REFUSED[text](net)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("blocks.*", ["blocks.0", "blocks.1"]),
        ("**.fc", ["blocks.0.fc", "blocks.1.fc"]),
        ("blocks.?.f[ac]", ["blocks.0.fc", "blocks.1.fc"]),
        ("", [""]),
    ],
)
def test_patterns(pattern: str, paths: list[str]) -> None:
    net, _ = net_and_x()
    assert [place.path for place in bp.swap(net, pattern, lambda x, *rest: x).places] == paths
