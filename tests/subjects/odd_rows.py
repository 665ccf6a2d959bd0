"""Rows that no ledger can keep, each with its error."""

from __future__ import annotations

import math
from typing import Any

from backprint.tools.jobs.ledger import LONGEST

ODD: dict[str, Any] = {
    "text for a count": ({"inputs": "abc"}, "inputs 'abc', and inputs is a whole number of 64 bits"),
    "a count of 71 bits": ({"inputs": 2**70}, "inputs 1180591620717411303424, and inputs is a whole number of 64 bits"),
    "a count of 5,000 digits": ({"inputs": 10**5000}, "has inputs a int, and inputs is a whole number"),
    "text for power": ({"power": "x"}, "power 'x', and power is a number, or infinity"),
    "nan for power": ({"power": math.nan}, "power nan, and power is a number, or infinity: it is not finite"),
    "an object of notes": ({"notes": {"a": [1]}}, "notes {'a': [1]}, and notes is a list of texts"),
    "a list of verdicts": (
        {"verdict": ["bitwise"]},
        "verdict ['bitwise'], which is not one of bitwise, undifferentiable, close",
    ),
    "a number of versions": ({"versions": 5}, "versions 5, and versions is an object of texts and numbers"),
    "asks that are no pairs": ({"asks": [["w"]]}, "asks [['w']], and asks is a list of pairs"),
    "text for stages": ({"stages": {"read": "long"}}, "stages {'read': 'long'}, and stages is an object of numbers"),
    "a key that is not a text": ({1: 2}, "has 1, which is not one of"),
    "a huge text": ({"detail": "x" * (LONGEST + 1)}, "65,537 characters, at most 65,536 are kept"),
    "huge notes": ({"notes": ["x" * LONGEST] * 70}, "characters of JSON, at most 4,194,304 are kept"),
    "a list in itself": ({"notes": (a := [])}, "notes"),
}
a.append(a)

UNSENT = ("a count of 5,000 digits", "a list in itself")
"""Those that JSON cannot say: the sample's own process fails at them."""
