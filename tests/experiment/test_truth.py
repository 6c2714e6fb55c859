from pathlib import Path

import numpy as np
import pytest

import posterity
from posterity.agents.blrl import Blrl, BlrlSettings
from posterity.experiment.config import resolve
from posterity.experiment.truth import Probe
from posterity.families.randommdp import RandomMDP
from posterity.tabular.dirichlet import Rows
from posterity.tabular.mdp import FiniteMDP, greedy, value_iteration
from posterity.types import Budget, Key

FAMILY = RandomMDP()
(TASK,) = FAMILY.tasks(Key.of(0).fold("stream"), 1)


def probe() -> tuple[Probe, Blrl]:
    agent = Blrl(FAMILY.spec, BlrlSettings(), Budget(1, 1, 10))
    return Probe(resolve("random-mdp", "blrl", "quick"), FAMILY, agent), agent


def test_the_optimal_policy_loses_nothing_and_another_does():
    measure, agent = probe()
    truth = FAMILY.truth(TASK)
    process = FiniteMDP(truth.probability, None, truth.reward @ FAMILY.spec.levels, FAMILY.spec.terminal)
    quality = value_iteration(process, 0.95, 1e-10).action_values
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    assert measure.after(TASK, [state._replace(policy=greedy(quality))], 0)["gap"] == pytest.approx(0.0, abs=1e-5)
    assert measure.after(TASK, [state._replace(policy=greedy(-quality))], 0)["gap"] > 1.0


def test_a_world_posterior_at_the_hidden_world_has_a_smaller_radius_than_the_prior():
    measure, agent = probe()
    state = agent.begin_task(Key.of(0), agent.init(Key.of(0)))
    hidden = Rows(FAMILY.next_alpha, FAMILY.reward_alpha)
    near = measure.begin(TASK, [state._replace(world=state.world._replace(alpha=hidden))], 0)["radius"]
    flat = measure.begin(TASK, [state], 0)["radius"]
    assert near is not None
    assert flat is not None
    assert near < 0.5 * flat


def test_as_tasks_go_by_radius_and_suboptimal_steps_fall_for_blrl_and_not_for_boss(tmp_path: Path):
    """The paper's claim in small: 3 seeds x 16 tasks; the full figure is in results/."""
    from posterity.report.metrics import suboptimal_steps

    late, radius = {}, {}
    for method in ("blrl", "boss"):
        run = posterity.run("random-mdp", method=method, out=tmp_path / method, tasks=16, seeds=3)
        radius[method] = run.radius.mean(axis=0)
        late[method] = suboptimal_steps(run, 1.0)[:, 8:].mean()
    assert radius["blrl"][-1] < 0.5 * radius["blrl"][0]
    assert np.ptp(radius["boss"]) < 0.2
    assert late["blrl"] < 0.75 * late["boss"]


def test_nothing_is_measured_unless_asked_for(tmp_path: Path):
    run = posterity.run("random-mdp", out=tmp_path / "run", tasks=2, iterations=2, probe=False)
    assert np.isnan(run.gap).all()
    assert np.isnan(run.radius).all()
