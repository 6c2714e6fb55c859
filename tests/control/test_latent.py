"""At a machine a latent follows the latest steps, however long the machine has been running."""

import numpy as np
import pytest

from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.control.pilots import LATEST, ModelPilot
from posterity.models.dynamics import NetworkSettings
from posterity.models.latent import LatentSettings
from posterity.planning.cem import PlannerSettings
from posterity.types import Budget, Key, Spec, Transition

SETTINGS = VblrlSettings(
    planner=PlannerSettings(horizon=3, candidates=8, elites=2, cem_iterations=1, particles=2),
    network=NetworkSettings(hidden=(8,)),
    latent=LatentSettings(size=2, transitions=64),
)


@pytest.fixture
def pilot():
    """Of an agent that has learned nothing, in its second task."""
    made = ModelPilot(Vblrl(Spec(2, -np.ones(1), np.ones(1), 400, None), SETTINGS, Budget(3, 4, 100)))
    yield made
    made.close()


def step(value: float) -> Transition:
    one, none = np.full((1, 2), value, np.float32), np.zeros(1, bool)
    return Transition(one, np.zeros((1, 1), np.float32), np.full(1, value, np.float32), one, none, none)


def test_after_the_first_transitions_the_latest_take_the_place_of_the_oldest(pilot: ModelPilot):
    keys = [Key.of(0)]
    state: VblrlState = pilot.agent.begin_task(keys, pilot.agent.begin_task(keys, pilot.agent.init(keys)))
    before = state
    for number in range(80):
        before = state
        state = pilot.observe(Key.of(number), state, step(float(number)))
    assert state.recent is not None
    assert before.latents is not None
    assert set(state.recent.reward[0, :LATEST].tolist()) == set(range(80 - LATEST, 80))
    assert not np.array_equal(np.asarray(before.latents), np.asarray(state.latents))  # also after so many steps


def test_the_world_acts_where_it_explains_the_latest_steps_better(pilot: ModelPilot):
    keys = [Key.of(0)]
    state: VblrlState = pilot.agent.begin_task(keys, pilot.agent.begin_task(keys, pilot.agent.init(keys)))
    state = state._replace(iteration=pilot.agent.start_iterations)
    assert pilot._acting(state).posterior.mean is state.task.posterior.mean
    pilot._world_acts = True
    assert pilot._acting(state).posterior.mean is state.world.posterior.mean
    pilot.restart()
    assert pilot._acting(state).posterior.mean is state.task.posterior.mean
