"""box-jump: run to the right wall, and jump over an obstacle whose place is hidden (paper, "Box-Jumping Task").

    reward = 1[the right wall is reached] - 1[the obstacle is hit] + vx 1[it is not hit]         state (x, y, vx, vy)

The agent always moves right. A jump goes straight up and right until it is higher than `jump` above the floor, then
straight down and right; in the air actions are ignored. With the sizes of the cited source task exactly one column of
the floor clears the obstacle, x = position - 14.

A hit stops the agent, so it is seen in the velocity, and the box `Spec.alive` tells every end of an episode: at the
wall x is too great, after a hit vx is too small. The binary action is relaxed to a number: above `threshold` it is a
jump. What the paper leaves open is chosen here and explained in docs/families/box-jump.md.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from pydantic import model_validator

from posterity.families.base import Env, Family
from posterity.settings import Settings, setting
from posterity.types import HostArray, Key, Record, Spec, Task

ROW = 5.0  # height of one line of a picture


class BoxJumpSettings(Settings):
    """The sizes of the world, those of the source task unless changed."""

    low: int = setting(15, "Least position of the obstacle's left side (paper: 15).", ge=1)
    high: int = setting(33, "Greatest position of it (paper: 33).", ge=1)
    screen: float = setting(60.0, "Where the right wall is.", gt=0)
    floor: float = setting(10.0, "Height of the floor.", ge=0)
    speed: float = setting(1.0, "Distance a step moves, to the right and in a jump also up or down.", gt=0)
    agent_width: float = setting(5.0, "Width of the agent.", gt=0)
    agent_height: float = setting(10.0, "Height of the agent; it matters in pictures only.", gt=0)
    obstacle_width: float = setting(
        9.0, "Width of the obstacle; a narrower one forgives a jump at the wrong time.", gt=0
    )
    obstacle_height: float = setting(10.0, "Height of the obstacle.", gt=0)
    jump: float = setting(15.0, "Height above the floor beyond which a jump turns down.", gt=0)
    threshold: float = setting(0.0, "An action above it is a jump.", gt=-1, lt=1)
    max_episode_steps: int = setting(60, "Steps after which an episode is cut off; reaching the wall takes 56.", ge=1)

    @model_validator(mode="after")
    def _fits(self) -> BoxJumpSettings:
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, above high, {self.high}")
        if self.low < self.agent_width or self.high + self.obstacle_width > self.screen:
            raise ValueError("the obstacle must be between the agent at the start and the wall")
        return self


class BoxJump(Family):
    """Runs that are won by one jump at the right time."""

    summary = "run to the right, jump over an obstacle whose place is hidden"
    settings_type = BoxJumpSettings
    settings: BoxJumpSettings

    def __init__(self, settings: BoxJumpSettings | None = None) -> None:
        super().__init__(settings)
        chosen = self.settings
        last = np.floor((chosen.screen - chosen.agent_width) / chosen.speed)  # steps that do not reach the wall
        wide = np.full(4, np.inf)
        low, high = -wide, wide.copy()
        high[0] = (last + 0.5) * chosen.speed  # halfway to the next place, where an imagined step may err a little
        low[2] = 0.2 * chosen.speed  # in the world vx is 0 or the speed; in imagination it falls as a hit gets likelier
        self.spec = Spec(
            obs_dim=4,
            low=np.array([-1.0]),
            high=np.array([1.0]),
            max_episode_steps=chosen.max_episode_steps,
            alive=(low, high),
        )

    def tasks(self, key: Key, count: int) -> list[Task]:
        """Whole positions, uniform from `low` to `high`, one stream per seed."""
        low, high = self.settings.low, self.settings.high
        positions = [
            int(key.fold("obstacle", index).generator().integers(low, high, endpoint=True)) for index in range(count)
        ]
        return [Task(index, f"obstacle at {place}", {"position": place}) for index, place in enumerate(positions)]

    def make(self, task: Task) -> Env:
        """The world with the obstacle in its place."""
        return TimeLimit(BoxJumpEnv(self.settings, task.factors["position"]), self.settings.max_episode_steps)

    def clearing(self, task: Task) -> list[float]:
        """The columns of the floor from which a jump clears the obstacle. For people and tests; agents never get it."""
        env = BoxJumpEnv(self.settings, task.factors["position"])
        columns = []
        for start in range(int((self.settings.screen - self.settings.agent_width) / self.settings.speed) + 1):
            env.reset()
            terminated, moved = False, 0
            while not terminated:
                terminated = env.step(1.0 if moved == start else -1.0)[2]
                moved += 1
            if start < moved and not env.hit:
                columns.append(start * self.settings.speed)
        return columns

    def draw(self, task: Task) -> str:
        """The world from the side. Dots are the agent's lower left corner in a jump that clears the obstacle."""
        chosen, position = self.settings, task.factors["position"]
        top = max(chosen.jump + chosen.speed, chosen.obstacle_height, chosen.agent_height)
        picture = np.full((int(np.ceil(top / ROW)) + 1, int(np.ceil(chosen.screen))), " ")

        def box(left: float, width: float, height: float, letter: str) -> None:
            picture[: round(height / ROW), int(left) : int(np.ceil(left + width))] = letter

        columns = self.clearing(task)
        box(position, chosen.obstacle_width, chosen.obstacle_height, "█")
        if columns:
            env = BoxJumpEnv(chosen, position)
            env.reset()
            for _ in range(env.places):
                if env.x >= columns[0] and env.y > chosen.floor:
                    picture[int((env.y - chosen.floor) / ROW), int(env.x)] = "·"
                env.step(1.0 if env.x == columns[0] else -1.0)
        box(0, chosen.agent_width, chosen.agent_height, "@")
        lines = ["".join(line) + "▐" for line in picture[::-1]]
        where = ", ".join(f"{column:g}" for column in columns) or "nowhere"
        ground = "▀" * (picture.shape[1] + 1)
        return "\n".join(
            [*lines, ground, f"@ agent   █ obstacle at {position}   ▐ wall   a jump clears it from x = {where}"]
        )

    def picture(self, task: Task, env: Env) -> HostArray | None:
        """The world from the side."""
        from posterity.families.drawing import BLUE, INK, ORANGE, PALE, PURPLE, Canvas

        inner, chosen = env.unwrapped, self.settings
        if not isinstance(inner, BoxJumpEnv):
            return None
        top = chosen.floor + chosen.jump + chosen.agent_height + 2 * chosen.speed
        canvas = Canvas((-2.0, 0.0), (chosen.screen + 4.0, top))
        canvas.box((-50.0, -50.0), (chosen.screen + 50.0, chosen.floor), PALE)
        canvas.box((chosen.screen, chosen.floor), (chosen.screen + 1.0, top), INK)
        left = inner.position
        canvas.box((left, chosen.floor), (left + chosen.obstacle_width, chosen.floor + chosen.obstacle_height), ORANGE)
        colour = PURPLE if inner.hit else BLUE
        low = np.array([inner.x, inner.y])
        high = low + np.array([chosen.agent_width, chosen.agent_height])
        canvas.box(low, high, INK)
        canvas.box(low + 0.5, high - 0.5, colour)
        return canvas.shown()


class BoxJumpEnv(Env):
    """One world. Everything is certain, and every episode begins at the left end of the floor."""

    def __init__(self, settings: BoxJumpSettings, position: float) -> None:
        self.settings = settings
        self.position = position  # of the obstacle's left side; no observation holds it
        self.places = int((settings.screen - settings.agent_width) / settings.speed) + 1
        right = (self.places + 1) * settings.speed
        ceiling = settings.floor + settings.jump + 2 * settings.speed
        self.observation_space = spaces.Box(
            np.array([0.0, settings.floor, 0.0, -settings.speed], dtype=np.float32),
            np.array([right, ceiling, settings.speed, settings.speed], dtype=np.float32),
        )
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.x, self.y, self.vx, self.vy = 0.0, settings.floor, settings.speed, 0.0

    def reset(self, *, seed: int | None = None, options: Record | None = None) -> tuple[np.ndarray, Record]:
        """At the left end, running."""
        super().reset(seed=seed, options=options)
        self.x, self.y, self.vx, self.vy = 0.0, self.settings.floor, self.settings.speed, 0.0
        return self._seen(), {}

    def step(self, action: float | HostArray) -> tuple[np.ndarray, float, bool, bool, Record]:
        """A step to the right, and up or down in a jump. `vy` is what the next step will do."""
        chosen = self.settings
        if self.y <= chosen.floor and float(np.ravel(action)[0]) > chosen.threshold:
            self.vy = chosen.speed
        self.x, self.y = self.x + self.vx, self.y + self.vy
        if self.y <= chosen.floor:
            self.y, self.vy = chosen.floor, 0.0
        elif self.y > chosen.floor + chosen.jump:
            self.vy = -chosen.speed
        if self.hit:
            self.vx = self.vy = 0.0
            return self._seen(), -1.0, True, False, {}
        reached = self.x + chosen.agent_width > chosen.screen
        return self._seen(), self.vx + float(reached), reached, False, {}

    @property
    def hit(self) -> bool:
        """Whether agent and obstacle overlap. Touching is not overlapping."""
        chosen = self.settings
        beside = self.x + chosen.agent_width <= self.position or self.x >= self.position + chosen.obstacle_width
        return not beside and self.y < chosen.floor + chosen.obstacle_height

    def _seen(self) -> np.ndarray:
        return np.array([self.x, self.y, self.vx, self.vy], dtype=np.float32)
