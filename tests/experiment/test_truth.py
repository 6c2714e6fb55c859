"""Measuring against the true task, on random MDPs."""

from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity import tree
from posterity.agents.blrl import Blrl, BlrlSettings, BlrlState
from posterity.errors import UserError
from posterity.experiment.config import resolve
from posterity.experiment.truth import Truths
from posterity.families.pendulum import PendulumGravity
from posterity.families.randommdp import RandomMDP
from posterity.report.metrics import suboptimal_steps
from posterity.tabular.dirichlet import Rows, World
from posterity.tabular.mdp import FiniteMDP, greedy, value_iteration
from posterity.types import Budget, Key

FAMILY = RandomMDP()
(TASK,) = FAMILY.tasks(Key.of(0).fold("stream"), 1)
AGENT = Blrl(FAMILY.spec, BlrlSettings(), Budget(1, 1, 10))


def truths() -> Truths:
    return Truths(resolve("random-mdp", "blrl", "quick"), FAMILY, AGENT)


def begun() -> BlrlState:
    """One lane at the start of the task."""
    return AGENT.begin_task([Key.of(0)], AGENT.init([Key.of(0)]))


def test_the_optimal_policy_loses_nothing_and_another_does():
    """Side by side in two lanes."""
    truth = FAMILY.truth(TASK)
    process = FiniteMDP(truth.probability, None, truth.reward @ FAMILY.spec.levels, FAMILY.spec.terminal)
    quality = value_iteration(process, 0.95, 1e-10).action_values
    lane = tree.lane(begun(), 0)
    state = tree.stack([lane._replace(policy=greedy(quality)), lane._replace(policy=greedy(-quality))])
    measure = truths()
    assert measure.after(TASK, state, 0)["value_gap"] == pytest.approx(0.0, abs=1e-5)
    assert measure.after(TASK, state, 1)["value_gap"] > 1.0


def test_a_world_posterior_at_the_hidden_world_has_a_smaller_radius_than_the_prior():
    lane = tree.lane(begun(), 0)
    assert isinstance(lane.world, World)
    hidden = lane._replace(world=lane.world._replace(alpha=Rows(FAMILY.next_alpha, FAMILY.reward_alpha)))
    state, measure = tree.stack([hidden, lane]), truths()
    near, flat = (measure.begin(TASK, state, number) for number in (0, 1))
    assert near["radius"] is not None
    assert flat["radius"] is not None
    assert near["radius"] < 0.5 * flat["radius"]
    assert near["radius"] == near["radius_of_hidden_world"] == flat["radius_of_hidden_world"]


def test_as_tasks_go_by_radius_and_suboptimal_steps_fall_for_blrl_and_not_for_boss(tmp_path: Path):
    """The paper's claim in small: 2 seeds x 12 tasks; the full figure is in results/."""
    late, radius = {}, {}
    for method in ("blrl", "boss"):
        run = posterity.run("random-mdp", method=method, out=tmp_path / method, tasks=12, seeds=2)
        radius[method] = run.radius.mean(axis=0)
        late[method] = suboptimal_steps(run, 1.0)[:, 6:].mean()
    assert radius["blrl"][-1] < 0.5 * radius["blrl"][0]
    assert np.ptp(radius["boss"]) < 0.2
    assert late["blrl"] < 0.75 * late["boss"]


def test_nothing_is_measured_unless_asked_for(tmp_path: Path):
    run = posterity.run("random-mdp", out=tmp_path / "run", tasks=2, iterations=2, measure_truth=False)
    assert np.isnan(run.value_gap).all()
    assert np.isnan(run.radius).all()
    assert np.isnan(run.hidden_radius).all()


def test_what_has_no_known_truth_cannot_be_measured():
    config = resolve("pendulum-gravity", "npg", "quick", {"measure_truth": True})
    with pytest.raises(UserError, match="--measure-truth needs a finite family and blrl or boss, not pendulum"):
        Truths(config, PendulumGravity(), AGENT)
