"""The numbers of a page are those that torch itself counts, and every step is in the data once."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from subjects.drawn import DrawnNet, drawn_loop, drawn_net
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import backprint as bp
from face import Capture, Graph, Pair, Port, Ref, Step, TensorSpec, frame_unit, page_data, summarize


def data_of(capture: Capture) -> dict[str, Any]:
    """The data of the first Pair, as JSON has it."""
    return json.loads(json.dumps(page_data(capture), allow_nan=False))["pairs"][0]


def test_flops_are_those_of_torchs_counter() -> None:
    torch.manual_seed(0)
    model, ids = DrawnNet(4), torch.randint(0, 20, (2, 3))
    data = data_of(bp.capture(model, ids))
    counter = FlopCounterMode(display=False)
    with counter:
        out = model(ids)
    forward = counter.get_total_flops()
    with counter:
        out.backward(torch.ones_like(out))
    products, count = data["nodes"]["flops"], data["forward"]
    assert sum(products[:count]) == forward > 0
    assert sum(products[count:]) == counter.get_total_flops()
    assert data["frames"][0]["counts"][3:] == [sum(products[:count]), sum(products[count:])]


def test_saved_bytes_are_those_that_autograd_keeps() -> None:
    torch.manual_seed(0)
    model, ids = DrawnNet(4), torch.randint(0, 20, (2, 3))
    data = data_of(bp.capture(model, ids, engine="eager"))
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers(), ids)}
    kept: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(value: Tensor) -> Tensor:
        held.append(value)
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        model(ids)
    assert data["frames"][0]["counts"][2] == sum(row[3] for row in data["saved"]) == sum(kept.values()) > 0


@pytest.mark.parametrize("capture", [drawn_net, drawn_loop])
def test_the_page_and_the_summary_say_the_same(capture: Any) -> None:
    data, summary = data_of(capture()), summarize(capture().pairs[0])
    nodes, count = data["nodes"], data["forward"]
    for column, name in (
        ("flops", "flops"),
        ("read", "read"),
        ("written", "written"),
    ):
        assert sum(nodes[column][:count]) == getattr(summary.forward, name)
        assert sum(nodes[column][count:]) == getattr(summary.backward, name)
    assert data["frames"][0]["counts"][2] == summary.saved_bytes
    assert data["memory"]["peak"][1] == max(data["memory"]["live"]) == summary.eager_peak_bytes
    assert data["memory"]["before"] == summary.held_bytes


@pytest.mark.parametrize("capture", [drawn_net, drawn_loop])
def test_the_text_of_a_step_can_be_written_from_the_data(capture: Any) -> None:
    data, pair = data_of(capture()), capture().pairs[0]
    strings, nodes, count = data["strings"], data["nodes"], data["forward"]
    into = [port for port in data["ports"] if port["into"]]
    locals_ = [port.local for graph in (pair.forward, pair.backward) for port in graph.inputs]
    assert [port["value"] for port in into] == list(range(len(nodes["op"]), len(nodes["op"]) + len(into)))
    names = [strings[each] for each in nodes["name"]] + locals_
    written = []
    for place, template in enumerate(nodes["args"]):
        values = nodes["inputs"][place]
        arguments = re.sub(r"\{(\d+)\}", partial(name_of, names, values), strings[template])
        written.append(f"{strings[nodes['op'][place]]}({arguments})")
    text = f"{pair.forward.code}\n{pair.backward.code}"
    plain = [line for line in written if not line.startswith("operator.getitem")]
    assert all(f"= {line}\n" in text for line in plain)
    assert len(plain) > 30
    assert count == len(pair.forward.steps)


def name_of(names: list[str], values: list[int], found: re.Match[str]) -> str:
    return names[values[int(found[1])]]


def test_frames_hold_every_step_and_layouts_every_unit() -> None:
    data = data_of(drawn_net(4))
    for number, frame in enumerate(data["frames"]):
        for unit in frame["units"]:
            assert (
                data["nodes"]["frame"][unit] == number
                if unit >= 0
                else data["frames"][frame_unit(unit)]["parent"] == number
            )
        if frame["kind"] == "loop":
            assert frame["layout"] == -1
        else:
            rows = data["layouts"][frame["layout"]]["rows"]
            assert sorted(place for row in rows for part in row for place in part) == list(range(len(frame["units"])))


@pytest.mark.slow
def test_branches_of_cond_are_on_the_page() -> None:
    def choose(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))

    pairs = page_data(bp.capture(choose, torch.ones(3)))["pairs"]
    assert len(pairs) == 5  # the Pair, two branches of its forward, two of its backward
    found = {pair["strings"][op] for pair in pairs for op in pair["nodes"]["op"]}
    assert {"aten.sin.default", "aten.cos.default"} <= found


def test_a_text_of_a_stranger_that_looks_like_a_value_stays_text() -> None:
    spec = TensorSpec("float32", (2,))
    step = Step("y", "aten.div.Tensor_mode", (Ref("x"), Ref("x")), (("rounding_mode", "{0}\\{1}"),), spec)
    graph = Graph((Port("x", "input", spec, "x"),), (step,), (Port("out", "output", spec),), (Ref("y"),))
    data = data_of(Capture("odd", "aot", (Pair("odd", graph),)))
    template = data["strings"][data["nodes"]["args"][0]]
    assert re.findall(r"\{(\d+)\}", template) == ["0", "1"]
    assert eval(template.rpartition("=")[2]) == "{0}\\{1}"  # the constant is still the same Python text


def test_a_page_says_what_the_last_proof_of_a_capture_in_memory_came_to() -> None:
    x = torch.tensor([0.5, 2.0], requires_grad=True)
    capture = bp.capture(lambda x: x.sin().sum(), x)
    assert page_data(capture)["verdict"]["word"] == "not compared"
    capture.verify(["captured"])
    shown = page_data(capture)
    assert (shown["verdict"]["word"], shown["verdict"]["tone"]) == ("bitwise", "none")
    assert shown["verdict"]["meaning"].endswith("; power not measured")
    capture.verify()
    shown = page_data(capture)
    assert (shown["verdict"]["word"], shown["verdict"]["tone"]) == ("bitwise", "good")
    assert ["verdict", "bitwise, derivative"] in [list(fact) for fact in shown["facts"]]
    assert "bitwise, derivative" in repr(capture)
    assert page_data(replace(capture, name="another"))["verdict"]["word"] == "not compared"
