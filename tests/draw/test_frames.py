"""Frames hold every step once, beside its partner, and the turns of a loop are one frame."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from subjects.drawn import drawn_loop, drawn_net
from subjects.random_graphs import anything
from torch import Tensor, nn

import backprint as bp
from face import Frame, Graph, Pair, Scene, drawn_pair, frame_unit, frames_of, scene_of


def built(capture: bp.Capture) -> tuple[Scene, tuple[Frame, ...]]:
    scene = scene_of(capture.pairs[0])
    return scene, frames_of(scene)


def path_of(frames: tuple[Frame, ...], node: int) -> list[str]:
    number = next(count for count, frame in enumerate(frames) if node in frame.units)
    names = []
    while number > 0:
        names.append(frames[number].name)
        number = frames[number].parent
    return names[::-1]


def holds_each_once(scene: Scene, frames: tuple[Frame, ...]) -> None:
    units = [unit for frame in frames for unit in frame.units]
    assert sorted(unit for unit in units if unit >= 0) == list(range(len(scene.nodes)))
    assert sorted(frame_unit(unit) for unit in units if unit < 0) == list(range(1, len(frames)))
    assert all(
        frames[frame_unit(unit)].parent == n for n, frame in enumerate(frames) for unit in frame.units if unit < 0
    )


def test_layers_are_one_frame_with_a_turn_for_each() -> None:
    scene, frames = built(drawn_net(4))
    holds_each_once(scene, frames)
    [loop] = [frame for frame in frames if frame.kind == "loop"]
    assert (loop.name, len(loop.units)) == ("layers.0…3", 4)
    turns = [frames[frame_unit(unit)] for unit in loop.units]
    assert [turn.name for turn in turns] == ["0", "1", "2", "3"]
    assert len({drawn_pair(drawn_net(4).pairs[0]).layout_of_frame[frame_unit(unit)] for unit in loop.units}) <= 2


def test_a_step_of_the_backward_stands_where_its_partner_stands() -> None:
    scene, frames = built(drawn_net(4))
    beside = 0
    for place in range(scene.forward, len(scene.nodes)):
        partner = next((each for each in scene.nodes[place].partners if each < scene.forward), None)
        if partner is not None:
            ours, theirs = path_of(frames, place), path_of(frames, partner)
            assert ours == theirs or ours == [*theirs, scene.nodes[partner].name]
            beside += 1
    assert beside > 50


def test_a_loop_of_a_function_has_turns() -> None:
    scene, frames = built(drawn_loop())
    holds_each_once(scene, frames)
    loops = [frame for frame in frames if frame.kind == "loop"]
    assert loops
    assert max(len(frame.units) for frame in loops) >= 7


def test_a_module_that_is_called_twice_is_two_frames() -> None:
    shared = nn.Linear(3, 3)

    def twice(x: Tensor) -> Tensor:
        return shared(shared(x).relu())

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(self.inner(x).relu())

    scene, frames = built(bp.capture(Twice(), torch.randn(2, 3)))
    holds_each_once(scene, frames)
    assert [frame.name for frame in frames].count("inner") == 2
    holds_each_once(*built(bp.capture(twice, torch.randn(2, 3))))


def test_a_long_program_without_modules_is_cut_into_frames_that_can_be_read() -> None:
    def long(x: Tensor) -> Tensor:
        for count in range(150):
            x = (x * (count + 1)).sin() if count % 7 else x.cos() + count % 5
        return x

    scene, frames = built(bp.capture(long, torch.randn(3, requires_grad=True)))
    holds_each_once(scene, frames)
    forwards = [sum(unit < scene.forward for unit in frame.units) for frame in frames if frame.kind != "loop"]
    assert max(forwards) <= 48


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(anything())
def test_any_graph_has_frames_and_layouts(graph: Graph) -> None:
    drawn = drawn_pair(Pair("any", graph))
    holds_each_once(drawn.scene, drawn.frames)
    for frame, number in zip(drawn.frames, drawn.layout_of_frame, strict=True):
        if number >= 0:
            rows = drawn.layouts[number].rows
            placed = [place for row in rows for place in (*row.left, *row.frames, *row.right)]
            assert sorted(placed) == list(range(len(frame.units)))
