"""The presets of a family that has none. `quick` has sizes from its dimensions and the length of an episode.

A plan imagines  candidates x particles x horizon x cem_iterations  steps, and each costs two operations a weight. Plans
are made smaller, least painful first, until one takes about 400 million operations: some 15 ms on two cores. A run has
about ten thousand plans, so that it takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from posterity.types import FiniteSpec, Record, Spec

OPERATIONS = 4e8  # of a plan
STEPS = (100, 400)  # of an iteration, at least and at most
PLANS = 10_000  # of a run, about
TASKS, ITERATIONS = 4, (5, 8)
WIDE = 40  # numbers in observation and action from which the network is wider
# candidates, particles, horizon, cem_iterations
PLANNERS = (
    (100, 5, 20, 3),
    (100, 4, 20, 3),
    (80, 4, 20, 3),
    (64, 4, 15, 3),
    (64, 3, 15, 2),
    (64, 3, 12, 2),
    (48, 2, 10, 2),
)


def quick_sizes(spec: Spec | FiniteSpec) -> Record:
    """The settings of vblrl that make a run of this spec take minutes on two cores."""
    if isinstance(spec, FiniteSpec):
        return {}
    width = 64 if spec.obs_dim + len(spec.low) < WIDE else 128
    horizon = min(spec.max_episode_steps, PLANNERS[0][2])
    size = weights(spec, (width, width))
    fitting = [each for each in PLANNERS if operations(size, *each) <= OPERATIONS] or PLANNERS[-1:]
    candidates, particles, steps_ahead, rounds = fitting[0]
    steps = steps_per_iteration(spec.max_episode_steps)
    fewest, most = ITERATIONS
    return {
        "tasks": TASKS,
        "iterations": min(most, max(fewest, PLANS // (TASKS * steps))),
        "steps_per_iteration": steps,
        "agent": {
            "network": {"hidden": (width, width)},
            "planner": {
                "horizon": min(horizon, steps_ahead),
                "candidates": candidates,
                "elites": max(5, candidates // 10),
                "cem_iterations": rounds,
                "particles": particles,
            },
            "learner": {"gradient_steps": 300},
            "task_min_transitions": min(200, 2 * steps),
        },
    }


def paper_sizes(spec: Spec | FiniteSpec) -> Record:
    """The samples of the presets `paper` and `best`; plans and networks are then the paper's."""
    if isinstance(spec, FiniteSpec):
        return {}
    return {"tasks": 10, "iterations": 20, "steps_per_iteration": steps_per_iteration(spec.max_episode_steps)}


def steps_per_iteration(max_episode_steps: int) -> int:
    """One episode; several if they are short, and the beginning of one if it is long."""
    least, most = STEPS
    return min(most, max_episode_steps * -(-least // max_episode_steps))


def weights(spec: Spec, hidden: Sequence[int]) -> int:
    """Of a network, which predicts a mean and a variance of the reward and of each change."""
    layers = (spec.obs_dim + len(spec.low), *hidden, 2 * (1 + spec.obs_dim))
    return sum(before * after for before, after in pairwise(layers))


def operations(size: int, candidates: int, particles: int, horizon: int, cem_iterations: int) -> float:
    """Of a plan with networks of `size` weights."""
    return 2.0 * size * candidates * particles * horizon * cem_iterations
