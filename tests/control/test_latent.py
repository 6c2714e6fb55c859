"""At a machine a latent follows the latest steps, however long the machine has been running."""

import threading
from typing import Any

import numpy as np
import pytest

from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState
from posterity.control.following import LATEST, Following
from posterity.control.pilots import ModelPilot
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


def following(pilot: ModelPilot) -> Following:
    assert pilot.following is not None
    return pilot.following


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
    following(pilot).world_acts = True
    assert pilot._acting(state).posterior.mean is state.world.posterior.mean
    pilot.restart()
    assert pilot._acting(state).posterior.mean is state.task.posterior.mean


def test_where_actions_have_a_budget_observing_does_not_wait_for_the_inference(pilot: ModelPilot, monkeypatch):
    """The inference of the first step is held until two have been observed; then it tells what it tells at once."""
    keys, go = [Key.of(0)], threading.Event()
    begun: VblrlState = pilot.agent.begin_task(keys, pilot.agent.begin_task(keys, pilot.agent.init(keys)))
    at_once = pilot.observe(Key.of(0), begun, step(0.0))
    inferred = following(pilot).inference.online

    def held(*args: Any) -> Any:
        assert go.wait(timeout=60.0)
        return inferred(*args)

    pilot.restart()
    monkeypatch.setattr(following(pilot).inference, "online", held)
    pilot.act(Key.of(0), begun, np.zeros(2, np.float32), True, budget=0.0)
    state = begun
    for number in range(2):
        state = pilot.observe(Key.of(number), state, step(float(number)))
    assert state.latents is begun.latents, "it acts by what was believed"
    go.set()
    assert following(pilot).background.wait(timeout=60.0)
    state = pilot.observe(Key.of(2), state, step(2.0))
    assert state.latents is not None
    assert at_once.latents is not None
    assert not np.array_equal(np.asarray(state.latents), np.asarray(begun.latents))
    np.testing.assert_array_equal(state.latents, at_once.latents)


def test_what_was_inferred_for_another_task_is_not_taken(pilot: ModelPilot, monkeypatch):
    keys, go = [Key.of(0)], threading.Event()
    begun: VblrlState = pilot.agent.begin_task(keys, pilot.agent.begin_task(keys, pilot.agent.init(keys)))
    inferred = following(pilot).inference.online
    monkeypatch.setattr(following(pilot).inference, "online", lambda *args: (go.wait(timeout=60.0), inferred(*args))[1])
    pilot.act(Key.of(0), begun, np.zeros(2, np.float32), True, budget=0.0)
    pilot.observe(Key.of(1), begun, step(1.0))
    pilot.restart()
    go.set()
    assert following(pilot).background.wait(timeout=60.0)
    assert following(pilot).background.take() is None
