"""What the finite half costs, by tasks and by states: writes scale/table.csv.

    python results/finite/scale.py [tasks]              with 10000 tasks some ten minutes on one core

Tasks: random MDPs of 10 states and 4 actions, 100 steps each, blrl with psrl and with `ucb` (`best`) for as many of
the tasks; CPU seconds of the tasks up to each mark. States: CPU seconds of a plan on the grid (psrl) and of solving a
dense random MDP anew after a small change, both beside value iteration in NumPy as one would write it down, to the same
error.
"""

import csv
import resource
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np

from posterity.agents.blrl import Blrl, BlrlSettings
from posterity.experiment.collect import collect
from posterity.families.grid import Grid, GridSettings
from posterity.families.randommdp import RandomMDP, RandomMDPSettings
from posterity.tabular.mdp import FiniteMDP
from posterity.tabular.solve import solve
from posterity.types import BoolArray, Budget, FloatArray, IntArray, Key

KEYS = [Key.of(0)]
GAMMA, ERROR = 0.95, 0.01  # the largest error of a value


def by_tasks(count: int, explorer: Literal["psrl", "ucb"]) -> list[tuple[object, ...]]:
    """Lines of CPU seconds a task, in parts of the stream."""
    family = RandomMDP(RandomMDPSettings(states=10, actions=4, max_episode_steps=10))
    settings = BlrlSettings(explorer=explorer, unknown="task")
    agent = Blrl(family.spec, settings, Budget(count, 10, 10))
    state, lines, tasks = agent.init(KEYS), [], family.tasks(KEYS[0], count)
    marks = [mark for mark in (100, 300, 1000, 3000, 10_000) if mark <= count]
    began, before = time.process_time(), 0
    for number, task in enumerate(tasks, start=1):
        state, envs = agent.begin_task(KEYS, state), [family.make(task)]
        for iteration in range(10):
            state, _ = collect(agent, [KEYS[0].fold(number, iteration)], state, envs, 10)
        if number in marks:
            seconds = time.process_time() - began
            lines.append(
                (f"tasks, {explorer}", f"{before + 1}-{number}", "seconds a task", f"{seconds / (number - before):.4f}")
            )
            print(lines[-1], flush=True)
            began, before = time.process_time(), number
    return lines


def plain(chance: FloatArray, reward: FloatArray, terminal: BoolArray, following: IntArray | None = None) -> float:
    """CPU seconds of value iteration as in a textbook: from zero, over all states, or over `following` ones."""
    began, values = time.process_time(), np.zeros(len(reward))
    while True:
        ahead = chance @ values if following is None else (chance * values[following]).sum(axis=2)
        updated = np.where(terminal, 0.0, (reward + GAMMA * ahead).max(axis=1))
        done = np.abs(updated - values).max() * GAMMA <= ERROR * (1.0 - GAMMA)
        values = updated
        if done:
            return time.process_time() - began


def dense(states: int) -> list[tuple[object, ...]]:
    """Lines of solving a random MDP of which every row has changed by a hundredth, as from one plan to the next."""
    generator = np.random.default_rng(0)
    first, other = generator.dirichlet(np.full(states, 0.3), (2, states, 4))
    reward, never = generator.random((states, 4)), np.zeros(states, dtype=bool)
    last = solve(FiniteMDP(first, None, reward, never), GAMMA, ERROR)
    changed = 0.99 * first + 0.01 * other
    began = time.process_time()
    solve(FiniteMDP(changed, None, reward, never), GAMMA, ERROR, last.values)
    ours = time.process_time() - began
    lines: list[tuple[object, ...]] = [
        ("states, dense", states, "seconds to solve from the last plan", f"{ours:.4f}"),
        ("states, dense", states, "seconds of value iteration, NumPy", f"{plain(changed, reward, never):.4f}"),
    ]
    print(*lines, sep="\n", flush=True)
    return lines


def by_states(side: int) -> list[tuple[object, ...]]:
    """Lines of what planning costs on a grid: our first plan and later ones, and plain value iteration."""
    family = Grid(GridSettings(side=side, max_episode_steps=400))
    settings = BlrlSettings(explorer="psrl", unknown="task", concentration=0.1)
    agent = Blrl(family.spec, settings, Budget(1, 1, 400))
    state = agent.begin_task(KEYS, agent.init(KEYS))
    state, _ = agent.act(KEYS, state, np.array([0]), np.array([True]))
    costs = []
    for number in range(4):
        due = state._replace(resample=np.array([True]))
        began = time.process_time()
        state, _ = agent.act([Key.of(number)], due, np.array([0]), np.array([False]))
        costs.append(time.process_time() - began)
    truth = family.truth(family.tasks(KEYS[0], 1)[0])
    mdp = FiniteMDP(truth.probability, truth.successor, truth.reward @ family.spec.levels, family.spec.terminal)
    began = time.process_time()
    solve(mdp, GAMMA, ERROR)
    ours = time.process_time() - began
    assert truth.successor is not None
    sparse = plain(truth.probability, mdp.reward, mdp.terminal, truth.successor)
    whole = "more than 2 GB"
    if side < 50:
        rows = np.zeros((*mdp.reward.shape, len(mdp.reward)))
        np.add.at(rows, (*np.indices(truth.successor.shape)[:2], truth.successor), truth.probability)
        whole = f"{plain(rows, mdp.reward, mdp.terminal):.4f}"
    lines: list[tuple[object, ...]] = [
        ("states", side**2 + 1, "seconds to replan, sampling included", f"{np.mean(costs):.4f}"),
        ("states", side**2 + 1, "seconds to solve the true task from zero", f"{ours:.4f}"),
        ("states", side**2 + 1, "seconds of value iteration over neighbours, NumPy", f"{sparse:.4f}"),
        ("states", side**2 + 1, "seconds of value iteration over all states, NumPy", whole),
        ("states", side**2 + 1, "MB at most so far", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024),
    ]
    print(*lines, sep="\n", flush=True)
    return lines


def main(tasks: int) -> None:
    folder = Path(__file__).parent / "scale"
    folder.mkdir(exist_ok=True)
    lines = [line for side in (10, 32, 100) for line in by_states(side)]
    lines += [line for states in (10, 100, 1000) for line in dense(states)]
    lines += by_tasks(tasks, "psrl") + by_tasks(tasks, "ucb")
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("by", "number", "what", "value"), *lines])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
