"""Guards that say the same of many inputs are one line; all others have a line each."""

from __future__ import annotations

from face import Guard, Source, guard_texts, names_together

STEP = Source("train.py", 75, "main", "opt.step()")


def counter(number: int, value: str = "7.0", source: Source | None = STEP) -> Guard:
    return Guard("value", f"add_{51 + number} == {value}", (f"opt.state.{number}.step",), source)


def test_counters_of_an_optimizer_are_one_line() -> None:
    other = Guard("value", "flag is True", ("flag",))
    assert guard_texts([*map(counter, range(150)), other]) == (
        "150 guards at train.py:75 on opt.state.{0..149}.step: add_51 == 7.0, …",
        "flag is True",
    )


def test_other_values_lines_and_single_guards_stay_apart() -> None:
    elsewhere = Source("train.py", 80, "main")
    guards = (
        counter(0),
        counter(1, "8.0"),
        counter(2, source=elsewhere),
        counter(3, source=None),
        counter(4, source=None),
    )
    assert guard_texts(guards) == tuple(guard.text for guard in guards)


def test_names_together() -> None:
    assert names_together(["a.0.b", "a.1.b", "a.2.b"]) == "a.{0..2}.b"
    assert names_together(["a.0.b", "a.2.b"]) == "a.{0,2}.b"
    assert names_together(["a.1", "a.1.b2"]) == "a.1, … a.1.b2"
    assert names_together(["layers.0.q", "heads.1.k"]) == "layers.0.q, … heads.1.k"
