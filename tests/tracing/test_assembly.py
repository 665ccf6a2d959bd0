"""What an engine writes down becomes a Pair in one place; another engine is one module and a row of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.edges import EDGES
from subjects.programs import PROGRAMS
from torch import Tensor, fx, nn

import backprint as bp
from face import (
    A_TENSOR,
    ENGINES,
    OF_SOME_ENGINES,
    CalledProgram,
    CaptureOptions,
    Engine,
    EngineResult,
    Joint,
    Port,
    Ref,
    Step,
    TensorSpec,
    assemble,
    outputs_of,
)

F32 = TensorSpec("float32", (3,))
MUL, SIN, COS = "aten.mul.Tensor", "aten.sin.default", "aten.cos.default"


def times_sine(x: Tensor, w: Tensor) -> Tensor:
    return x.sin() * w


def by_hand(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """An engine that knows one program: `times_sine`."""
    joint = Joint(
        inputs=(Port("x", "input", F32, "x"), Port("w", "input", F32, "w")),
        forward=(
            Step("unused", COS, (Ref("w"),), spec=F32),
            Step("sin", SIN, (Ref("x"),), spec=F32),
            Step("mul", MUL, (Ref("sin"), Ref("w")), spec=F32),
        ),
        results=((Port("output", "output", F32), Ref("mul")),),
        tangents=(Port("output", "tangent", F32, "tangent_output"),),
        backward=(
            Step("for_w", MUL, (Ref("tangent_output"), Ref("sin")), spec=F32),
            Step("times_w", MUL, (Ref("tangent_output"), Ref("w")), spec=F32),
            Step("cos", COS, (Ref("x"),), spec=F32),
            Step("for_x", MUL, (Ref("times_w"), Ref("cos")), spec=F32),
        ),
        gradients=((Port("x", "gradient", F32), Ref("for_x")), (Port("w", "gradient", F32), Ref("for_w"))),
    )
    made = assemble(joint)
    return EngineResult(
        program=program,
        pairs=(made.pair,),
        outputs=("output",),
        differentiable=("output",),
        tree=outputs_of(torch.ones(1))[1],
        leaves=(A_TENSOR,),
        constants=made.constants,
        guards=made.guards,
    )


def test_a_further_engine_is_one_function_and_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "hand", Engine("hand", by_hand, frozenset()))
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    capture = bp.capture(times_sine, x, w, engine="hand")
    assert capture.engine == "hand"
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    pair = capture.pairs[0]
    assert [step.name for step in pair.forward.steps] == ["sin", "mul"]  # dead code is gone
    assert [port.name for port in pair.saved] == ["sin", "w", "x"]
    assert [step.name for step in pair.backward.steps] == ["grad_w", "times_w", "cos", "grad_x"]
    assert [verdict.verdict for verdict in bp.verify(bp.load(capture.save(tmp_path / "sample")))] == ["bitwise"]
    with pytest.raises(bp.errors.UsageError, match="engine 'hand' does not take order=2: engines 'eager' and 'aot' do"):
        bp.capture(times_sine, x, w, engine="hand", order=2)
    with pytest.raises(
        bp.errors.UsageError, match="engine 'hand' does not take partition=: engines 'eager', 'aot' and"
    ):
        bp.capture(times_sine, x, w, engine="hand", partition="default")


def test_an_engine_that_writes_down_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "hand", Engine("hand", by_hand, frozenset()))
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    with pytest.raises(bp.errors.CaptureError, match="does not compute what the program computes"):
        bp.capture(lambda x, w: x.cos() * w, x, w, engine="hand")


# ------------------------------------------------------------------ where to cut


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(4), nn.Dropout(0.25)
        self.inner, self.out = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.out(F.gelu(self.inner(self.norm(x)))))


PARTITIONED = [name for name in PROGRAMS if name not in ("python_state_that_changes",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "partition"),
    [*((name, "min-cut") for name in PARTITIONED), *((name, "default") for name in PARTITIONED[:5])],
)
def test_a_step_that_ran_may_be_cut_as_a_traced_one(name: str, partition: str) -> None:
    program, args, kwargs = PROGRAMS[name]()
    try:
        plain = bp.capture(program, args=args, kwargs=kwargs, engine="eager")
    except bp.errors.CaptureError as error:
        pytest.skip(f"engine eager refuses it: {str(error)[:80]}")
    program, args, kwargs = PROGRAMS[name]()
    capture = bp.capture(program, args=args, kwargs=kwargs, engine="eager", partition=partition)
    assert [verdict.verdict for verdict in capture.verify()] == [verdict.verdict for verdict in plain.verify()]


@pytest.mark.parametrize("name", ["checkpoint_with_dropout", "loop_to_convergence", "exception_caught"])
def test_draws_and_guards_stay_on_their_side(name: str, tmp_path: Path) -> None:
    program, args, kwargs = EDGES[name]()
    capture = bp.capture(program, args=args, kwargs=kwargs, engine="eager", partition="min-cut")
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    assert [verdict.verdict for verdict in bp.verify(bp.load(capture.save(tmp_path / "sample")))] == ["bitwise"]


def test_what_a_backward_computes_again_says_so() -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(3, 4, requires_grad=True)
    as_it_ran = bp.capture(model, x, engine="eager")
    cut = bp.capture(model, x, engine="eager", partition="min-cut")
    assert {verdict.verdict for each in (as_it_ran, cut) for verdict in each.verify()} == {"bitwise"}
    before, after = as_it_ran.pairs[0], cut.pairs[0]
    again = [step for step in after.backward.steps if step.echo and step.echo.kind == "recomputes"]
    assert again
    assert not [step for step in before.backward.steps if step.echo and step.echo.kind == "recomputes"]
    forward = {step.name for step in after.forward.steps}
    assert all(step.echo.names[0] in forward and step.name not in forward for step in again)


def test_a_callable_is_given_the_whole_step_of_either_engine() -> None:
    seen: list[tuple[int, int]] = []

    def mine(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int) -> Any:
        nodes = [node for node in joint.graph.nodes if node.op != "output"]
        assert all("val" in node.meta for node in nodes)
        seen.append((len(nodes), num_fwd_outputs))
        return torch._functorch.partitioners.default_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs)

    x = torch.randn(3, requires_grad=True)
    for engine in ("aot", "eager"):
        capture = bp.capture(lambda x: x.sin().exp(), x, engine=engine, partition=mine)
        assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    assert len(seen) == 2


def test_guards_follow_what_a_callable_merged() -> None:
    def merging(joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int) -> Any:
        forward, backward = torch._functorch.partitioners.default_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs
        )
        first, *others = [node for node in forward.graph.nodes if node.target is torch.ops.aten.sum.default]
        for node in others:
            node.replace_all_uses_with(first)
            forward.graph.erase_node(node)
        assert others
        return forward, backward

    def f(x: Tensor) -> Tensor:
        scale = 2.0 if x.sum() > 0 else 3.0
        return x.sin() * scale * (2.0 if x.sum() > 0 else 3.0)

    x = torch.ones(3, requires_grad=True)
    capture = bp.capture(f, x, engine="eager", partition=merging)
    assert len([step for step in capture.pairs[0].forward.steps if step.target == "aten.sum.default"]) == 1
    assert len(capture.guards) == 2
    assert [verdict.verdict for verdict in capture.verify()] == ["bitwise"]
    with pytest.raises(bp.errors.GuardError):
        bp.replay(capture, -torch.ones(3))


def test_sparse_tensors_are_not_cut() -> None:
    x = torch.randn(3, 3, requires_grad=True)

    def f(x: Tensor) -> Tensor:
        return torch.sparse.mm(x.to_sparse(), x).sum()

    with pytest.raises(bp.errors.CaptureError, match="partition= takes dense tensors"):
        bp.capture(f, x, engine="eager", partition="min-cut")


# ------------------------------------------------------------------ engines and what they take

REQUESTS: dict[str, dict[str, Any]] = {
    "fake": {"fake": True},
    "dynamic": {"dynamic": True},
    "decompose": {"decompose": {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}},
    "order": {"order": 2},
    "functional": {"functional": False},
    "partition": {"partition": "default"},
}


def test_every_option_of_some_engines_is_tried_on_every_engine() -> None:
    assert REQUESTS.keys() == OF_SOME_ENGINES.keys()


@pytest.mark.parametrize("request_", [*REQUESTS, "sparse"])
@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_each_engine_does_what_it_takes_and_refuses_the_rest(engine: str, request_: str) -> None:
    options = REQUESTS.get(request_, {})
    x: Any = torch.randn(4, 4)
    program: Callable[..., Any] = lambda x: F.silu(x * 2)  # noqa: E731
    if request_ == "sparse":
        x, program = torch.eye(4).to_sparse(), lambda s: torch.sparse.mm(s, torch.ones(4, 2))
    able = [name for name, each in ENGINES.items() if request_ in each.takes]
    if engine == "auto" or engine in able:
        capture = bp.capture(program, x, engine=engine, **options)
        assert capture.engine in able
        wanted = {"fake": "unproven", "decompose": "close"}.get(request_, "bitwise")
        assert capture.verify()[-1].verdict == wanted
    else:
        with pytest.raises(bp.errors.UsageError) as raised:
            bp.capture(program, x, engine=engine, **options)
        assert str(raised.value).startswith(f"engine {engine!r} does not take ")
        assert all(repr(name) in str(raised.value) for name in able)


def test_what_no_engine_takes_together_is_said_once() -> None:
    with pytest.raises(
        bp.errors.UsageError, match="no engine takes fake=True with dynamic=: ask for one of them at a time"
    ):
        bp.capture(lambda x: x * 2, torch.ones(3), fake=True, dynamic=True)
    with pytest.raises(bp.errors.UsageError, match="no engine takes decompose= with functional=False: ask for one"):
        bp.capture(lambda x: x * 2, torch.ones(3), functional=False, **REQUESTS["decompose"])


def test_auto_says_which_engines_do_not_take_what_is_asked() -> None:
    capture = bp.capture(lambda x: x * 2, torch.ones(3), dynamic=True)
    assert capture.engine == "aot"
    assert capture.why[0] == "eager: engine 'eager' does not take dynamic=: engine 'aot' does"
