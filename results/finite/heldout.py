"""How well the world posterior predicts the next task, by `--strength`: writes pooling/held-out.csv.

    python results/finite/heldout.py                    about three minutes on one core

Nobody plans here: 16 tasks of a family are walked through, 600 steps each, by a random policy that prefers some
actions. Before each task the world posterior of the tasks before it gives the log probability of what will be seen, in
nats for each pair that is visited. Means over four worlds, or four streams of tasks. Corridors begin with a prior of
0.1.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from posterity.families.base import FiniteFamily
from posterity.families.chain import Chain
from posterity.families.randommdp import RandomMDP, RandomMDPSettings
from posterity.families.riverswim import RiverSwim
from posterity.tabular.dirichlet import DirichletRows, Rows, TaskRows
from posterity.types import Budget, FloatArray, Key, Task

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from own_family import Corridor  # pyright: ignore[reportMissingImports]

TASKS, STEPS, WORLDS = 16, 600, range(100, 104)
PARTS = {"1": slice(0, 1), "2-4": slice(1, 4), "5-8": slice(4, 8), "9-16": slice(8, 16)}


def alike(concentration: float) -> Callable[[int], FiniteFamily]:
    """Random MDPs of a world."""
    return lambda world: RandomMDP(RandomMDPSettings(concentration=concentration, world=world))


FAMILIES: dict[str, tuple[Callable[[int], FiniteFamily], float]] = {
    **{f"random-mdp {number}": (alike(number), 1.0) for number in (1, 2, 5, 20)},
    "river-swim": (lambda _: RiverSwim(), 1.0),
    "chain": (lambda _: Chain(), 1.0),
    "corridor": (lambda _: Corridor(), 0.1),
}


def walked(family: FiniteFamily, task: Task, generator: np.random.Generator) -> Rows:
    """The counts of a walk through one task."""
    truth = family.truth(task)
    states, actions, outcomes = truth.probability.shape
    counts = Rows(np.zeros((states, actions, states)), np.zeros((states, actions, len(family.spec.levels))))
    state = generator.choice(states, p=truth.start)
    policy = generator.dirichlet(np.full(actions, 0.5), states)
    for number in range(STEPS):
        action = generator.choice(actions, p=policy[state])
        outcome = generator.choice(outcomes, p=truth.probability[state, action])
        following = outcome if truth.successor is None else truth.successor[state, action, outcome]
        counts.next_state[state, action, following] += 1
        counts.reward[state, action, generator.choice(len(family.spec.levels), p=truth.reward[state, action])] += 1
        state = following
        if family.spec.terminal[state] or number % 20 == 19:
            state = generator.choice(states, p=truth.start)
    return counts


def predicted(family: FiniteFamily, tasks: list[Rows], concentration: float, strength: float) -> FloatArray:
    """[K] nats for each visited pair of every task, before it is learned from."""
    rows = DirichletRows(family.spec, Budget(TASKS, 1, STEPS), concentration, "evidence", strength)
    world, found = rows.prior(), []
    for counts in tasks:
        found.append(rows.log_evidence(world.alpha, counts) / (counts.reward.sum(axis=-1) > 0).sum())
        world = rows.pool(world, TaskRows(world.alpha, counts), final=True)
    return np.array(found)


def main() -> None:
    lines = [("family", "strength", "tasks", "nats")]
    for name, (make, concentration) in FAMILIES.items():
        streams = []
        for world in WORLDS:
            family, generator = make(world), np.random.default_rng(world)
            streams.append([walked(family, task, generator) for task in family.tasks(Key.of(world), TASKS)])
        for strength in (0.3, 1.0, 4.0, 12.0):
            each = np.stack(
                [predicted(make(w), s, concentration, strength) for w, s in zip(WORLDS, streams, strict=True)]
            )
            lines += [(name, f"{strength:g}", part, f"{each[:, of].mean():.3f}") for part, of in PARTS.items()]
            print(*lines[-len(PARTS) :], sep="\n", flush=True)
    with (Path(__file__).parent / "pooling" / "held-out.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)


if __name__ == "__main__":
    main()
