"""Small pictures of tasks, for videos: a canvas in the units of a world, drawn by Pillow.

A family that wants to be seen gives `Family.picture`. Nothing here needs a display.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from posterity.types import HostArray

WIDTH, HEIGHT = 400, 300  # of a picture, in pixels; even, as video formats want it
FINER = 2  # pictures are drawn so many times larger, then reduced: smooth edges
Point: TypeAlias = Sequence[float] | HostArray
Colour: TypeAlias = tuple[int, int, int]
PAPER, INK, PALE = (250, 250, 248), (45, 45, 50), (206, 208, 212)
BLUE, ORANGE, GREEN, PURPLE = (0, 114, 178), (213, 94, 0), (0, 158, 115), (148, 82, 160)  # told apart by all eyes


class Canvas:
    """A picture of the part of the plane between two corners. x goes right and y up; a unit is as long in both."""

    def __init__(self, low: Point, high: Point) -> None:
        self.image = Image.new("RGB", (WIDTH * FINER, HEIGHT * FINER), PAPER)
        self.pen = ImageDraw.Draw(self.image)
        size = np.subtract(high, low)
        self.scale = float(min(self.image.width / size[0], self.image.height / size[1]))
        self.middle = np.add(low, high) / 2.0

    def line(self, points: Sequence[Point], colour: Colour = INK, width: float = 0.02) -> None:
        """A line through points, so many units wide, with round ends."""
        places, thick = [self._pixel(point) for point in points], max(1, round(width * self.scale))
        self.pen.line(places, fill=colour, width=thick, joint="curve")
        for place in (places[0], places[-1]):
            self._round(place, thick / 2, colour)

    def disc(self, centre: Point, radius: float, colour: Colour = INK) -> None:
        """A filled circle."""
        self._round(self._pixel(centre), radius * self.scale, colour)

    def circle(self, centre: Point, radius: float, colour: Colour = INK, width: float = 0.02) -> None:
        """The rim of a circle."""
        (x, y), r = self._pixel(centre), radius * self.scale
        self.pen.ellipse((x - r, y - r, x + r, y + r), outline=colour, width=max(1, round(width * self.scale)))

    def box(self, low: Point, high: Point, colour: Colour = INK) -> None:
        """A filled rectangle."""
        (left, bottom), (right, top) = self._pixel(low), self._pixel(high)
        self.pen.rectangle((left, top, right, bottom), fill=colour)

    def arrow(self, tail: Point, head: Point, colour: Colour = INK, width: float = 0.02) -> None:
        """A line with a point at its end; nothing where it has no length."""
        along = np.subtract(head, tail)
        length = float(np.linalg.norm(along))
        if length < 1e-6:
            return
        unit = along / length
        side, back = np.array([-unit[1], unit[0]]), np.asarray(head) - min(length, 4 * width) * unit
        self.line([tail, back], colour, width)
        corners = [head, back + 2 * width * side, back - 2 * width * side]
        self.pen.polygon([self._pixel(corner) for corner in corners], fill=colour)

    def shown(self) -> HostArray:
        """[H, W, 3] what was drawn, in bytes."""
        return np.asarray(self.image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))

    def _pixel(self, point: Point) -> tuple[float, float]:
        x, y = (np.asarray(point, float) - self.middle) * self.scale
        return float(self.image.width / 2 + x), float(self.image.height / 2 - y)

    def _round(self, place: tuple[float, float], radius: float, colour: Colour) -> None:
        (x, y), r = place, radius
        self.pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)


def blended(colour: Colour, share: float, ground: Colour = PAPER) -> Colour:
    """A colour mixed with the ground: all of it at 1, none at 0."""
    mixed = np.rint(share * np.array(colour) + (1.0 - share) * np.array(ground)).astype(int)
    return int(mixed[0]), int(mixed[1]), int(mixed[2])


def states(count: int, here: int, rewards: Sequence[float]) -> HostArray:
    """The states of a finite task on a ring, or in a row if they are few; the agent's is blue.

    `rewards` [S]: the most that a state can earn at once, which makes it greener.
    """
    row = count <= 12
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    places = (
        np.stack([np.arange(count) - (count - 1) / 2, np.zeros(count)], axis=1)
        if row
        else np.stack([np.cos(angle), np.sin(angle)], axis=1) * count / (2 * np.pi)
    )
    reach = float(np.abs(places).max()) + 1.0
    canvas = Canvas((-reach, -reach), (reach, reach))
    most = max(rewards, default=0.0)
    for number, place in enumerate(places):
        share = max(rewards[number], 0.0) / most if most > 0 else 0.0
        canvas.disc(place, 0.38, blended(GREEN, 0.15 + 0.6 * share) if share else PALE)
        if number == here:
            canvas.disc(place, 0.25, BLUE)
    return canvas.shown()
