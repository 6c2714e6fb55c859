"""Item search: a house of four rooms in which one kind of object is to be found (paper, appendices D and J).

The type of each room is drawn from the first table, whether a kind of object is in a room from the second, both as the
paper prints them. An object lies in a uniformly drawn cell of its room. The goal, one of the kinds that are in the
house, is part of the state, since a seeker knows what it seeks; where the objects are is hidden.

What the paper leaves open is chosen here and explained in docs/families/item-search.md.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posterity.families.base import Env, FiniteFamily, Truth, finite_state
from posterity.settings import Settings, setting
from posterity.types import FiniteSpec, HostArray, IntArray, Key, Layout, Task

KINDS = ("blue ball", "green box", "purple box")
ROOMS = ("top-left", "bottom-left", "top-right", "bottom-right")
ROOM_TYPE = np.array([[0.4, 0.0, 0.4, 0.2], [0.0, 0.8, 0.0, 0.2], [0.1, 0.0, 0.0, 0.9], [0.0, 0.0, 0.8, 0.2]])
OBJECT_IN_TYPE = np.array([[0.0, 0.3, 0.0], [0.0, 0.2, 1.0], [0.6, 0.0, 0.0], [0.0, 0.0, 0.0]])
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class ItemSearchSettings(Settings):
    """The size of a house and of an epoch."""

    room: int = setting(4, "Cells along one side of a room; the house is 2 rooms and a wall wide.", ge=2, le=20)
    max_episode_steps: int = setting(21, "Steps after which an episode is cut off (paper: 21).", ge=1)


class ItemSearch(FiniteFamily):
    """Houses of one street: the same walls, other contents."""

    summary = "a four-room house; find one kind of object whose place is hidden"
    settings_type: ClassVar[type[Settings]] = ItemSearchSettings

    def __init__(self, settings: ItemSearchSettings | None = None) -> None:
        super().__init__(settings)
        self.side = 2 * self.settings.room + 1
        self.floor = _floor(self.settings.room)  # [cells, 2] row and column of every cell one can stand on
        self.cells = len(self.floor)
        self.rooms = _rooms(self.settings.room, self.floor)  # [4, N] the cells of each room
        count = len(KINDS) * self.cells + 1
        move = np.full((count, len(MOVES)), count - 1)
        step = _moves(self.floor)
        for kind in range(len(KINDS)):
            move[kind * self.cells : (kind + 1) * self.cells] = step + kind * self.cells
        places = (np.arange(len(KINDS))[:, None, None] * self.cells + self.rooms).reshape(-1, self.rooms.shape[1])
        self.spec = FiniteSpec(
            states=count,
            actions=len(MOVES),
            levels=np.array([0.0, 1.0]),
            terminal=np.arange(count) == count - 1,
            max_episode_steps=self.settings.max_episode_steps,
            layout=Layout(move=move, where=places, reward=1.0, found=count - 1),
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Houses drawn from the paper's two tables. One that holds nothing to find is drawn again."""
        return [self._house(key, index) for index in range(count)]

    def _house(self, key: Key, index: int) -> Task:
        generator = key.fold("house", index).generator()
        while True:
            types = (ROOM_TYPE.cumsum(axis=1) < generator.random((len(ROOMS), 1))).sum(axis=1)
            present = generator.random((len(ROOMS), len(KINDS))) < OBJECT_IN_TYPE[types]
            cell = generator.integers(self.rooms.shape[1], size=present.shape)
            if present.any():
                break
        goal = int(generator.choice(np.flatnonzero(present.any(axis=0))))
        objects = {
            kind: [int(self.rooms[room, cell[room, k]]) for room in range(len(ROOMS)) if present[room, k]]
            for k, kind in enumerate(KINDS)
        }
        return Task(index, KINDS[goal], {"goal": goal, "types": [int(t) + 1 for t in types], "objects": objects})

    def truth(self, task: Task) -> Truth:
        """Moves never fail; entering a cell with the goal object earns 1 and ends the episode."""
        layout = self.spec.layout
        assert layout is not None
        here = np.zeros(self.spec.states, dtype=bool)
        for kind, name in enumerate(KINDS):
            here[np.array(task.factors["objects"][name], dtype=np.int64) + kind * self.cells] = True
        found = here[layout.move]
        start = np.zeros(self.spec.states)
        start[task.factors["goal"] * self.cells + self.start] = 1.0
        return Truth(
            probability=np.ones((*layout.move.shape, 1)),
            successor=np.where(found, layout.found, layout.move)[..., None],
            reward=np.stack([1.0 - found, found], axis=-1),
            start=start,
        )

    @property
    def start(self) -> int:
        """The crossing in the middle, as near to one room as to another."""
        middle = self.settings.room
        return int(np.flatnonzero((self.floor == middle).all(axis=1))[0])

    def draw(self, task: Task) -> str:
        """The house from above: walls, the start, and each object (capital: the goal)."""
        picture = np.full((self.side + 2, self.side + 2), "██")
        for row, column in self.floor:
            picture[row + 1, column + 1] = "· "
        picture[tuple(self.floor[self.start] + 1)] = "@ "
        for kind, name in enumerate(KINDS):
            letter = name[0].upper() if kind == task.factors["goal"] else name[0]
            for cell in task.factors["objects"][name]:
                row, column = self.floor[cell] + 1
                known = str(picture[row, column]).strip("· ")
                picture[row, column] = (known + letter)[-2:].ljust(2)
        types = ", ".join(f"{room} {kind}" for room, kind in zip(ROOMS, task.factors["types"], strict=True))
        house = "\n".join("".join(line) for line in picture)
        return f"{house}\nfind the {task.name}   @ start   b blue ball, g green box, p purple box\nroom types: {types}"

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """The house from above: the seeker, the objects (large: what it seeks), and walls."""
        from posterity.families.drawing import BLUE, GREEN, INK, PALE, PAPER, PURPLE, Canvas

        state = finite_state(env)
        canvas = Canvas((-1.0, -1.0), (self.side + 1.0, self.side + 1.0))
        canvas.box((-0.5, -0.5), (self.side + 0.5, self.side + 0.5), INK)
        upright = self.floor[:, ::-1] * (1, -1) + (0.5, self.side - 0.5)  # [cells, 2] middles; rows count from the top
        for middle in upright:
            canvas.box(middle - 0.47, middle + 0.47, PAPER)
        for kind, (name, colour) in enumerate(zip(KINDS, (BLUE, GREEN, PURPLE), strict=True)):
            for cell in task.factors["objects"][name]:
                size = 0.36 if kind == task.factors["goal"] else 0.14
                canvas.disc(upright[cell], size, colour)
        found = state == self.spec.states - 1
        here = upright[self.start if found else state % self.cells]
        if not found:
            canvas.disc(here, 0.3, INK)
            canvas.disc(here, 0.18, PALE)
        return canvas.shown()


def _floor(room: int) -> IntArray:
    """[cells, 2] all cells but the walls: four rooms, and a crossing of five cells that joins them."""
    side = 2 * room + 1
    row, column = np.divmod(np.arange(side * side), side)
    wall = (row == room) | (column == room)
    crossing = np.abs(row - room) + np.abs(column - room) <= 1
    return np.stack([row, column], axis=1)[~wall | crossing]


def _rooms(room: int, floor: IntArray) -> IntArray:
    """[4, N] the cells of each room, in the order of `ROOMS`."""
    top, left = floor[:, 0] < room, floor[:, 1] < room
    bottom, right = floor[:, 0] > room, floor[:, 1] > room
    return np.stack([np.flatnonzero(v & h) for v, h in ((top, left), (bottom, left), (top, right), (bottom, right))])


def _moves(floor: IntArray) -> IntArray:
    """[cells, 4] the cell each action leads to; into a wall it leads nowhere."""
    number = {(int(row), int(column)): cell for cell, (row, column) in enumerate(floor)}
    return np.array(
        [
            [number.get((int(row) + down, int(column) + right), cell) for down, right in MOVES]
            for cell, (row, column) in enumerate(floor)
        ]
    )
