"""A slippery grid of any size, of which a learner knows the neighbourhoods: sparse rows.

The learner is told where a step can lead at all: to the cell ahead, to the cells on either side of it, or to the end of
the episode. How often it slips from which cell, and where the goal is, is hidden. Any action in the goal's cell pays 1
and ends the episode.

    world (once)   slip_s ~ Uniform(0, slip);  `goals` cells, one as likely as the other
    task           slip of a pair ~ Beta about slip_s, as alike as `concentration` says;  one of the goals

With 100 x 100 cells a dense table would have 400 million numbers; this one has 160 thousand.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from posterity.families.base import Env, FiniteFamily, Truth, finite_state
from posterity.settings import Settings, setting
from posterity.types import FiniteSpec, HostArray, IntArray, Key, Task

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left


class GridSettings(Settings):
    """The size of the grid and how much the tasks have in common."""

    side: int = setting(10, "Cells along one side; 100 gives 10,000 states.", ge=2, le=400)
    slip: float = setting(0.4, "The most slippery cell slips this often.", ge=0, lt=1)
    goals: int = setting(4, "Cells that can be the goal.", ge=1)
    concentration: float = setting(20.0, "How alike tasks are in how slippery a cell is.", gt=0)
    world: int = setting(0, "Which hidden world; the same for all seeds of a run.", ge=0)
    max_episode_steps: int = setting(100, "Steps after which an episode is cut off.", ge=1)


class Grid(FiniteFamily):
    """Grids with the same slippery places and a goal in one of a few."""

    summary = "a slippery grid of any size with a hidden goal; next states are known to be neighbours"
    settings_type: ClassVar[type[Settings]] = GridSettings

    def __init__(self, settings: GridSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        self.cells = chosen.side**2
        generator = Key.of(chosen.world).fold("grid world").generator()
        self.slip = chosen.slip * generator.random(self.cells)
        start = self._start()
        elsewhere = np.delete(np.arange(self.cells), start)
        self.goals = generator.choice(elsewhere, size=min(chosen.goals, len(elsewhere)), replace=False)
        self.spec = FiniteSpec(
            states=self.cells + 1,
            actions=len(MOVES),
            levels=np.array([0.0, 1.0]),
            terminal=np.arange(self.cells + 1) == self.cells,
            max_episode_steps=chosen.max_episode_steps,
            successors=self._successors(),
        )

    def _start(self) -> int:
        middle = self.settings.side // 2
        return middle * self.settings.side + middle

    def _successors(self) -> IntArray:
        """[S, A, 4] the cell ahead, those to its left and right, and the end. A wall leads nowhere."""
        side = self.settings.side
        row, column = np.divmod(np.arange(self.cells), side)
        beside = np.empty((self.cells, len(MOVES)), dtype=np.int64)
        for action, (down, right) in enumerate(MOVES):
            beside[:, action] = np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1)
        found = np.full((self.cells + 1, len(MOVES), 4), self.cells)
        for action in range(len(MOVES)):
            for outcome, turn in enumerate((0, -1, 1)):
                found[:-1, action, outcome] = beside[:, (action + turn) % 4]
        return found

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Tasks by number; `truth` draws how slippery pairs are from the key."""
        names = [key.fold("task", index) for index in range(count)]
        chosen = [int(self.goals[name.fold("goal").generator().integers(len(self.goals))]) for name in names]
        side = self.settings.side
        return [
            Task(index, f"goal at {goal // side}, {goal % side}", {"goal": goal, "key": list(name.path)})
            for index, (name, goal) in enumerate(zip(names, chosen, strict=True))
        ]

    def truth(self, task: Task) -> Truth:
        """Slips go to either side alike."""
        weight, states = self.settings.concentration, self.spec.states
        generator = Key(tuple(task.factors["key"])).generator()
        mean = np.clip(self.slip, 1e-6, 1.0 - 1e-6)[:, None]
        slip = generator.beta(weight * mean, weight * (1.0 - mean), (self.cells, len(MOVES)))
        probability, reward = np.zeros((states, len(MOVES), 4)), np.zeros((states, len(MOVES), 2))
        probability[:-1, :, 0] = 1.0 - slip
        probability[:-1, :, 1] = probability[:-1, :, 2] = slip / 2.0
        reward[..., 0] = 1.0
        probability[[task.factors["goal"], -1]] = np.eye(4)[3]
        reward[task.factors["goal"]] = np.eye(2)[1]
        return Truth(probability, self.spec.successors, reward, np.eye(1, states, self._start())[0])

    def draw(self, task: Task) -> str:
        """How slippery cells are, from 0 to 9 in tenths; S the start, G the goal."""
        side = self.settings.side
        picture = [str(min(9, int(10 * slip))) for slip in self.slip]
        picture[self._start()], picture[task.factors["goal"]] = "S", "G"
        return "\n".join(" ".join(picture[row * side : (row + 1) * side]) for row in range(side))

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """The grid from above: the darker a cell the more slippery, green the goal, blue the walker."""
        from posterity.families.drawing import BLUE, GREEN, INK, PALE, Canvas, blended

        side, state = self.settings.side, finite_state(env)
        canvas = Canvas((-0.5, -0.5), (side + 0.5, side + 0.5))
        for cell, slip in enumerate(self.slip):
            corner = np.array([cell % side, side - 1 - cell // side], float)
            colour = GREEN if cell == task.factors["goal"] else blended(INK, 0.15 + 0.6 * float(slip), PALE)
            canvas.box(corner + 0.04, corner + 0.96, colour)
            if cell == state:
                canvas.disc(corner + 0.5, 0.3, BLUE)
        return canvas.shown()
