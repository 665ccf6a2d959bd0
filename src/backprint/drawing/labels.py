"""Labels: where the texts of lines stand, so that none covers a box, a title or another text.

A text for which there is no place is left out: the type of each value is also in the title of its step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from backprint.drawing.curves import curves_of, point_on
from backprint.drawing.frames import frame_unit
from backprint.drawing.picture import PairPicture
from backprint.drawing.shapes import GUTTER, HEAD, LETTER, DrawnLine, frame_title

TINY, TALL, BESIDE = 5.3, 10.0, 4.0
"""The width of a letter of a label, its height, and how far it stands from its line."""

SHARES = (0.5, 0.35, 0.65, 0.22, 0.78)
"""Where along a line there may be a place for its text; the first that is free."""

BAND = 40.0
"""The height of the bands in which taken places are looked up."""

Area = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class LineLabel:
    """The text of a line, at its left end, and half of its height."""

    line: DrawnLine
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class TakenPlaces:
    """What labels must not cover."""

    bands: dict[int, list[Area]] = field(default_factory=dict)

    def add(self, area: Area) -> None:
        """Note an area that is taken."""
        for band in self.bands_of(area):
            self.bands.setdefault(band, []).append(area)

    def has(self, area: Area) -> bool:
        """Whether some of an area is taken."""
        left, top, right, bottom = area
        near = (each for band in self.bands_of(area) for each in self.bands.get(band, ()))
        return any(each[0] < right and left < each[2] and each[1] < bottom and top < each[3] for each in near)

    def bands_of(self, area: Area) -> range:
        """Return the bands that an area touches."""
        return range(int(area[1] // BAND), int(area[3] // BAND) + 1)


def labels_of(picture: PairPicture) -> Iterator[LineLabel]:
    """Yield the texts of lines at their places. NaN and Inf choose first, then what is saved."""
    taken = TakenPlaces()
    for area in boxes_and_titles(picture):
        taken.add(area)
    for line in sorted(picture.lines, key=lambda line: (not line.is_bad, line.kind != "saved")):
        for label in places_for(line) if line.text else ():
            area = area_of(label)
            if not taken.has(area):
                taken.add(area)
                yield label
                break


def boxes_and_titles(picture: PairPicture) -> Iterator[Area]:
    """Yield the areas of boxes, of the ports beside them, and of the titles of open frames."""
    for box in picture.boxes:
        if box.is_open:
            letters = len(frame_title(picture.drawn, frame_unit(box.unit)))
            yield box.x, box.y, box.x + 12 + LETTER * letters, box.y + HEAD
        elif box.unit >= 0:
            yield box.x, box.y, box.x + box.width, box.bottom
        else:
            yield box.x, box.y, box.gutter - GUTTER / 2, box.bottom
            yield box.gutter + GUTTER / 2, box.y, box.x + box.width, box.bottom
        for pill in box.pills:
            yield pill.x, pill.y, pill.x + pill.width, pill.y + TALL


def area_of(label: LineLabel) -> Area:
    """Return the area of a label."""
    half = TALL / 2
    return label.x, label.y - half, label.x + TINY * len(label.line.text), label.y + half


def places_for(line: DrawnLine) -> Iterator[LineLabel]:
    """Yield the places for the text of a line, the best first: on a bridge, and at either side of a flow."""
    wide = TINY * len(line.text)
    longest = max(curves_of(line), key=lambda curve: abs(curve[3][0] - curve[0][0]) + abs(curve[3][1] - curve[0][1]))
    for share in SHARES:
        x, y = point_on(longest, share)
        if line.kind == "saved":
            yield LineLabel(line, x - wide / 2, y)
        else:
            yield LineLabel(line, x + BESIDE, y)
            yield LineLabel(line, x - BESIDE - wide, y)
