"""Linked Pairs: values over links, gradients in autograd's order, and a checker that sees a link that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from subjects.broken import BROKEN, cut, leaf
from torch import Tensor

import backprint as bp
from face import GONE, Capture, Link, Pair, PortKey


def captured(name: str) -> Capture:
    target, args = BROKEN[name]()
    return bp.capture(target, args=args, engine="dynamo")


def two_values(x: Tensor) -> Tensor:
    a, b = x.sin(), x.exp()
    cut()
    return a * 2 + b.square()


def with_links(capture: Capture, change: Callable[[Link], Link]) -> Capture:
    return replace(capture, links=tuple(map(change, capture.links)))


@pytest.mark.slow
def test_the_links_of_a_program_read_as_it_runs() -> None:
    capture = captured("a_buffer_changed_in_one_and_read_in_another")
    assert Link(0, PortKey("mutation", "count"), 1, "count") in capture.links
    assert Link(1, PortKey("mutation", "count"), 2, "count") in capture.links
    assert Link(1, PortKey("mutation", "bn.running_mean"), 2, "bn.running_mean") in capture.links
    assert capture.links[-1] == Link(2, PortKey("output", "output"), None, "output")
    handed = captured("a_value_that_is_a_result_too")
    assert Link(None, PortKey("input", "x"), None, "output.1.x") in handed.links


@pytest.mark.slow
def test_swapped_links_are_seen_to_be_wrong() -> None:
    capture = bp.capture(two_values, leaf(5), engine="dynamo")
    assert capture.verify()[-1].verdict == "bitwise"
    a, b = (link.port for link in capture.links if link.target == 1)
    swapped = with_links(capture, lambda link: replace(link, port={a: b, b: a}.get(link.port, link.port)))
    *parts, whole = swapped.verify()
    assert whole.verdict == "wrong"
    assert {port.verdict for port in whole.ports} == {"wrong"}
    assert [part.verdict for part in parts] == ["bitwise"] * 2, "each pair alone is right on what it got"


@pytest.mark.slow
def test_a_link_from_before_a_change_is_seen_to_be_wrong() -> None:
    target, args = BROKEN["a_buffer_changed_in_one_and_read_in_another"]()
    capture = bp.capture(target, args=args, engine="dynamo")
    stale = with_links(
        capture,
        lambda link: replace(link, source=0) if link == Link(1, PortKey("mutation", "count"), 2, "count") else link,
    )
    whole = stale.verify()[-1]
    assert whole.verdict == "wrong"
    assert "output output" in whole.detail


@pytest.mark.slow
def test_a_missing_gradient_is_seen_to_be_wrong() -> None:
    """Without the link, the later Pair's share of the gradient does not come back."""
    capture = captured("a_value_that_two_later_pairs_use")
    y = next(link for link in capture.links if link.source == 0 and link.target == 2)
    less = replace(capture, links=tuple(link for link in capture.links if link != y))
    with pytest.raises(bp.errors.ReplayError, match="is missing"):
        bp.replay(less, leaf(5))
    state = {y.name: capture.origin.values()["x"].exp()}
    found, wanted = (bp.replay(each, capture.origin.values()["x"], state=state) for each in (less, capture))
    assert torch.equal(found.outputs, wanted.outputs)
    assert not torch.equal(found.gradients["x"], wanted.gradients["x"])


@pytest.mark.slow
def test_a_pair_that_is_wrong_is_named() -> None:
    capture = bp.capture(two_values, leaf(5), engine="dynamo")
    forward = capture.pairs[1].forward
    doubled = next(step for step in forward.steps if step.target == "aten.mul.Tensor")
    tripled = replace(doubled, args=(*doubled.args[:1], 3))
    steps = tuple(tripled if step is doubled else step for step in forward.steps)
    broken = replace(
        capture, pairs=(capture.pairs[0], Pair("pair_1", replace(forward, steps=steps), capture.pairs[1].backward))
    )
    assert [verdict.verdict for verdict in broken.verify()] == ["bitwise", "wrong", "wrong"]


@pytest.mark.slow
def test_gradients_mutations_and_random_draws_are_eagers() -> None:
    for name in ("a_weight_in_several_pairs", "random_draws_in_several_pairs"):
        target, args = BROKEN[name]()
        capture = bp.capture(target, args=args, engine="dynamo")
        torch.manual_seed(7)
        wanted = target(*args)
        wanted.sum().backward()
        torch.manual_seed(7)
        found = bp.replay(capture, *args)
        assert torch.equal(found.outputs, wanted)
        live = dict(target.named_parameters()) if isinstance(target, torch.nn.Module) else {"x": args[0]}
        assert list(found.gradients) == list(live)
        assert all(torch.equal(found.gradients[key], value.grad) for key, value in live.items())


def optimised() -> Capture:
    """A forward, its backward, and a step of gradient descent on what that gives."""
    x, w = torch.randn(4), leaf(4)
    loss = bp.capture(lambda x, w: (x * w).sin().sum(), x, w)
    step = bp.capture(lambda w, g: w - 0.1 * g, torch.randn(4), torch.randn(4), requires_grad=False)
    return replace(
        loss,
        pairs=(loss.pairs[0], Pair("pair_1", step.pairs[0].forward)),
        links=(
            Link(0, PortKey("output", "output"), None, "loss"),
            Link(0, PortKey("gradient", "w"), 1, "g"),
            Link(1, PortKey("output", "output"), None, "new"),
        ),
        signature=replace(
            loss.signature, differentiable=("loss",), output={"tuple": [{"port": "loss"}, {"port": "new"}]}
        ),
        origin=GONE,
    )


def test_a_gradient_can_feed_a_later_pair() -> None:
    capture = optimised()
    x, w = torch.randn(4), leaf(4)
    value = (x * w).sin().sum()
    value.backward()
    found = bp.replay(capture, x, w.detach())
    assert torch.equal(found.outputs[0], value)
    assert torch.equal(found.gradients["w"], w.grad)
    assert torch.equal(found.outputs[1], w.detach() - 0.1 * w.grad)
    twice = bp.replay(capture, x, w.detach(), tangents=[torch.tensor(2.0)])
    assert torch.equal(twice.outputs[1], w.detach() - 0.1 * (2 * w.grad))


@pytest.mark.slow
def test_gradients_of_several_pairs_add_up_before_they_feed_another() -> None:
    target, args = BROKEN["a_weight_in_several_pairs"]()
    capture = bp.capture(target, args=args, engine="dynamo")
    step = bp.capture(lambda w, g: w - g, torch.randn(4, 4), torch.randn(4, 4), requires_grad=False)
    names = {"w": "fc.weight", "g": "g"}
    forward = step.pairs[0].forward
    forward = replace(forward, inputs=tuple(replace(port, name=names[port.name]) for port in forward.inputs))
    links = (*capture.links, *(Link(index, PortKey("gradient", "fc.weight"), 3, "g") for index in range(3)))
    whole = replace(
        capture,
        pairs=(*capture.pairs, Pair("pair_3", forward)),
        links=(*links, Link(3, PortKey("output", "output"), None, "new")),
        signature=replace(capture.signature, output={"tuple": [{"port": "output"}, {"port": "new"}]}),
        origin=GONE,
    )
    wanted = target(*args)
    wanted.sum().backward()
    state = {name: value.detach() for name, value in target.named_parameters()}
    found = bp.replay(whole, *args, state=state)
    assert torch.equal(found.outputs[1], target.fc.weight.detach() - target.fc.weight.grad)


@pytest.mark.slow
def test_wrong_arguments_are_named() -> None:
    capture = captured("an_item")
    with pytest.raises(bp.errors.ReplayError, match="takes x, n"):
        bp.replay(capture, torch.randn(3), m=torch.arange(3))
    with pytest.raises(bp.errors.ReplayError, match="input 'n' is missing"):
        bp.replay(capture, torch.randn(3))
    with pytest.raises(bp.errors.ReplayError, match="2 tangents for 1 differentiable outputs"):
        bp.replay(capture, torch.randn(3), torch.arange(3), tangents=[torch.ones(3)] * 2)
    with pytest.raises(bp.errors.ReplayError, match=r"a tangent of the output.s shape"):
        bp.replay(capture, torch.randn(3), torch.arange(3), tangents=[torch.ones(2)])


@pytest.mark.slow
def test_without_the_program_pairs_are_checked_against_autograd_and_the_whole_is_unproven() -> None:
    target: Any
    target, args = BROKEN["a_weight_in_several_pairs"]()
    capture = bp.capture(target, args=args, engine="dynamo")
    capture.release()
    *parts, whole = capture.verify(draws=("recipe",))
    gradients = [port.verdict for part in parts for port in part.ports if port.role == "gradient"]
    assert set(gradients) == {"bitwise"}
    assert [part.verdict for part in parts] == ["unproven"] * 3
    assert (whole.verdict, "the program is gone" in whole.detail) == ("unproven", True)
