"""Keys of ports: as they are spelled in files, and read from there."""

from __future__ import annotations

import pytest

from face import GONE, Origin, Port, PortKey, ReplayError, tangent_name, with_tangents, without_tangents


@pytest.mark.parametrize(("role", "name"), [("output", "y"), ("gradient", "layer1.0.weight"), ("input", "a b  c ")])
def test_a_key_is_spelled_and_read_back(role: str, name: str) -> None:
    key = Port(name, role).key
    assert (key.role, key.name, str(key)) == (role, name, f"{role} {name}")
    assert PortKey.from_text(str(key)) == key


def test_a_text_without_a_name_is_a_key_without_one() -> None:
    assert PortKey.from_text("gone") == PortKey("gone", "")
    assert str(PortKey.from_text("gone")) == "gone"


def test_tangents_are_told_from_inputs_of_the_same_name() -> None:
    given = with_tangents({"y": 1, "x": 2}, {"y": 3})
    assert given == {"y": 1, "x": 2, "tangent y": 3}
    assert tangent_name("y") in given
    assert without_tangents(given) == ({"y": 1, "x": 2}, {"y": 3})


def test_a_program_that_is_gone_has_nothing_and_says_so() -> None:
    gone: Origin = GONE
    assert not gone.alive
    assert not gone.traced_here
    assert not gone.constants
    assert gone.rebuild({"tuple": [{"port": "y"}, {"value": "3"}]}, {"y": 1}) == (1, 3)
    with pytest.raises(ReplayError, match="the program is gone"):
        gone.values()
