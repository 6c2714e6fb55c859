"""Item search beside what could be done: writes item-search/references.csv.

    python results/finite/item_search.py [seeds]        about five minutes on one core; the sweeps take a second

`oracle` knows the paper's tables: how often a room holds a kind of object, and that all its cells are alike. It
searches by the same paths as `best` and learns nothing from task to task. `no transfer` searches by the same paths with
the prior before any task. The `sweep` rows share no code with the library's learners: one room an epoch is walked
through cell by cell, the most promising of those not seen empty first, by counts of earlier houses (`sweep, learned`),
by the paper's tables (`sweep, true tables`) or in random order (`sweep, no transfer`); what was found is gone back to.
Each seed meets the houses that it meets in the runs of blrl and boss.
"""

import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from posterity import tree
from posterity.agents.blrl import Blrl, BlrlSettings
from posterity.experiment.collect import collect
from posterity.families.itemsearch import OBJECT_IN_TYPE, ROOM_TYPE, ItemSearch
from posterity.tabular.layout import LayoutWorld
from posterity.types import Budget, FloatArray, IntArray, Key

FAMILY = ItemSearch()
SETTINGS = BlrlSettings(explorer="path", unknown="task", transfer=False)
FIRST, TASKS, EPOCHS, STEPS = 50, 300, 10, 21


def true_tables() -> LayoutWorld:
    """[V, N + 1] how often a kind (outer) lies in a room (inner) and where: no count is small."""
    presence = (ROOM_TYPE @ OBJECT_IN_TYPE).T.reshape(-1, 1)
    cells = FAMILY.rooms.shape[1]
    alpha = 1e6 * np.concatenate([np.repeat(presence / cells, cells, axis=1), 1.0 - presence], axis=1)
    return LayoutWorld(np.maximum(alpha, 1e-6), np.maximum(alpha, 1e-6))


def returns(seed: int, world: LayoutWorld | None) -> FloatArray:
    """[K, epochs] of one seed."""
    agent = Blrl(FAMILY.spec, SETTINGS, Budget(TASKS, EPOCHS, STEPS))
    root, found = Key.of(seed), []
    state = agent.init([root])
    if world is not None:
        state = state._replace(world=tree.stack([world]))
    for number, task in enumerate(FAMILY.tasks(root.fold("stream"), TASKS)[FIRST:]):
        state, envs = agent.begin_task([root], state), [FAMILY.make(task)]
        for epoch in range(EPOCHS):
            keys = [root.fold("task", FIRST + number, "iteration", epoch)]
            state, met = collect(agent, keys, state, envs, STEPS)
            found.append(float(np.mean(met.returns[0])))
    return np.array(found).reshape(-1, EPOCHS)


def snake() -> list[IntArray]:
    """For each room, the cells that are entered on the way from the start through all of it: 17 steps."""
    layout = FAMILY.spec.layout
    assert layout is not None
    step = layout.move[: FAMILY.cells]
    paths = []
    for cells in FAMILY.rooms:
        inside, door = set(cells.tolist()), []
        for arm in step[FAMILY.start]:
            door += [[int(arm), int(cell)] for cell in step[arm] if int(cell) in inside]
        path, (row, column) = door[0], FAMILY.floor[door[0][1]]
        across = sorted({int(FAMILY.floor[c][1]) for c in cells}, key=lambda at: abs(at - column))
        down = sorted({int(FAMILY.floor[c][0]) for c in cells}, key=lambda at: abs(at - row))
        places = {tuple(FAMILY.floor[c].tolist()): int(c) for c in cells}
        for number, at in enumerate(down):
            path = path + [places[at, each] for each in (across if number % 2 == 0 else across[::-1])]
        paths.append(np.array(path[:1] + path[2:]))
        assert len(paths[-1]) <= STEPS
    return paths


def sweeps(seed: int, how: str) -> FloatArray:
    """[K, epochs] found or not, sweeping one room an epoch."""
    paths, root = snake(), Key.of(seed)
    generator = root.fold("sweep").generator()
    found, swept, scores = np.zeros((3, 4)), np.zeros((3, 4)), []
    true = (ROOM_TYPE @ OBJECT_IN_TYPE).T
    for task in FAMILY.tasks(root.fold("stream"), TASKS):
        goal, there = task.factors["goal"], set(task.factors["objects"][task.name])
        promise = {"learned": (found[goal] + 1.0) / (swept[goal] + 2.0), "true tables": true[goal]}
        order = np.argsort(-promise.get(how, np.zeros(4)) + 1e-9 * generator.random(4)).tolist()
        score = np.ones(EPOCHS)
        for epoch, room in enumerate(order):
            swept[goal, room] += 1
            if there & set(paths[room].tolist()):
                found[goal, room] += 1
                break
            score[epoch] = 0.0
        scores.append(score)
    return np.array(scores)[FIRST:]


def main(seeds: int) -> None:
    ways: list[tuple[str, Callable[[int], FloatArray]]] = [
        *((f"sweep, {how}", partial(sweeps, how=how)) for how in ("learned", "true tables", "no transfer")),
        *((who, partial(returns, world=world)) for who, world in (("oracle", true_tables()), ("no transfer", None))),
    ]
    lines = [("who", "score", "mean", "half", "seeds", "first_task")]
    for who, way in ways:
        each = np.stack([way(seed) for seed in range(seeds)])
        for score, part in (("first", each[..., 0]), ("first_3", each[..., :3]), ("last_3", each[..., -3:])):
            means = part.reshape(seeds, -1).mean(axis=1)
            half = stats.t.ppf(0.975, seeds - 1) * means.std(ddof=1) / np.sqrt(seeds)
            lines.append((who, score, f"{means.mean():.4f}", f"{half:.4f}", str(seeds), str(FIRST + 1)))
            print(who, score, means, flush=True)
    with (Path(__file__).parent / "item-search" / "references.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
