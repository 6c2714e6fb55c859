"""Item search beside what could be done: writes item-search/references.csv.

    python results/finite/item_search.py                about five minutes on one core

`oracle` knows the paper's tables: how often a room holds a kind of object, and that all its cells are alike. It
searches by the same paths as `best` and learns nothing from task to task. `no transfer` searches by the same paths with
the prior before any task. Each seed meets the houses that it meets in the runs of blrl and boss.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from posterity import tree
from posterity.agents.blrl import Blrl, BlrlSettings
from posterity.experiment.collect import collect
from posterity.families.itemsearch import OBJECT_IN_TYPE, ROOM_TYPE, ItemSearch
from posterity.tabular.layout import LayoutWorld
from posterity.types import Budget, FloatArray, Key

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


def main(seeds: int) -> None:
    with (Path(__file__).parent / "item-search" / "references.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("who", "score", "mean", "half", "seeds", "first_task"))
        for who, world in (("oracle", true_tables()), ("no transfer", None)):
            each = np.stack([returns(seed, world) for seed in range(seeds)])
            for score, part in (("first", each[..., 0]), ("first_3", each[..., :3]), ("last_3", each[..., -3:])):
                means = part.reshape(seeds, -1).mean(axis=1)
                half = stats.t.ppf(0.975, seeds - 1) * means.std(ddof=1) / np.sqrt(seeds)
                writer.writerow((who, score, f"{means.mean():.4f}", f"{half:.4f}", seeds, FIRST + 1))
                print(who, score, means, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
