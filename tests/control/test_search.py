"""The search has an answer at any time, and what is found late is not lost."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.training import VblrlSettings
from posterity.control.search import AnytimeSearch, shifted, sizes
from posterity.models.dynamics import DynamicsModel
from posterity.planning.cem import Plan, PlannerSettings
from posterity.types import Key, Spec

SPEC = Spec(2, np.array([-1.0]), np.array([1.0]), 10, None)
SETTINGS = VblrlSettings(planner=PlannerSettings(horizon=4, candidates=32, elites=4, cem_iterations=3, particles=2))
NOBODY = DynamicsModel(*[None] * 4)  # pyright: ignore[reportArgumentType]  (what the slow size below does not ask)


class Slow:
    """Stands for a size of the search: an iteration takes a while and adds 0.1 to the whole plan."""

    def __init__(self, takes: float) -> None:
        self.takes, self.seconds, self.runs = takes, takes, 0

    def run(self, key: Key, iteration: int, obs: object, model: object, plan: Plan, first: bool) -> Plan:
        time.sleep(self.takes)
        self.runs += 1
        return Plan(plan.mean + jnp.float32(0.1), plan.variance)


@pytest.fixture
def search():
    made = AnytimeSearch(SPEC, SETTINGS)
    yield made
    made.close()


def use(search: AnytimeSearch, *takes: float) -> list[Slow]:
    rungs = [Slow(each) for each in takes]
    search.rungs = rungs  # pyright: ignore[reportAttributeAccessIssue]
    return rungs


def decide(search: AnytimeSearch, budget: float | None, first: bool = False):
    began = time.perf_counter()
    found = search.decide(Key.of(0), np.zeros(2, np.float32), NOBODY, first, budget)
    return found, time.perf_counter() - began


def test_without_a_budget_the_whole_search_is_done_at_full_size(search: AnytimeSearch):
    small, full = use(search, 0.0, 0.01)
    found, _ = decide(search, None, first=True)
    assert (found.iterations, small.runs, full.runs) == (3, 0, 3)
    np.testing.assert_allclose(found.mean, 0.3, atol=1e-6)


def test_until_something_is_found_what_an_actor_proposes_is_the_answer(search: AnytimeSearch):
    """And a search in time begins there."""
    (rung,) = use(search, 1.0)
    proposed = np.array([0.7], np.float32)
    found = search.decide(Key.of(0), np.zeros(2, np.float32), NOBODY, True, 0.01, proposed)
    np.testing.assert_array_equal(found.mean[0], proposed)
    rung.takes = rung.seconds = 0.0
    found = search.decide(Key.of(1), np.zeros(2, np.float32), NOBODY, False, None, proposed)
    np.testing.assert_allclose(found.mean[0], 1.0, atol=1e-6)  # three times 0.1 above it


def test_an_action_does_not_wait_for_an_iteration_that_is_late(search: AnytimeSearch):
    """The size is believed to be fast and is slow. Half a second is far beyond what a busy machine adds."""
    (rung,) = use(search, 1.0)
    rung.seconds = 0.01
    found, took = decide(search, 0.05, first=True)
    assert took < 0.5
    assert found.iterations == 0


def test_a_budget_that_is_too_small_gives_the_last_plan_one_step_on_at_once(search: AnytimeSearch):
    (rung,) = use(search, 0.0)
    decide(search, None, first=True)
    rung.seconds = rung.takes = 0.3
    found, took = decide(search, 0.2)
    assert took < 0.15, "it does not even wait for the budget"
    np.testing.assert_allclose(found.mean[:, 0], [0.3, 0.3, 0.3, 0.0], atol=1e-6)


def test_what_is_found_late_is_where_the_next_decision_begins(search: AnytimeSearch):
    use(search, 0.1)
    decide(search, 0.01, first=True)
    time.sleep(0.4)
    found, _ = decide(search, 0.0)
    np.testing.assert_allclose(found.mean[:, 0], [0.1, 0.1, 0.1, 0.0], atol=1e-6)


def test_nothing_of_the_last_episode_is_planned_on(search: AnytimeSearch):
    use(search, 0.1)
    decide(search, 0.01, first=True)
    found, _ = decide(search, 0.0, first=True)
    time.sleep(0.05)
    np.testing.assert_array_equal(found.mean, 0.0)


def test_the_largest_size_that_fits_twice_is_taken(search: AnytimeSearch):
    small, middle, large = use(search, 0.001, 0.01, 0.1)
    for budget, wanted in ((0.0005, small), (0.015, small), (0.021, middle), (0.19, middle), (0.3, large)):
        assert search.choose(budget) is wanted
    assert search.choose(None) is large


def test_an_error_in_the_search_is_raised_where_the_action_was_asked_for(search: AnytimeSearch):
    (rung,) = use(search, 0.0)
    rung.run = lambda *_: 1 / 0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ZeroDivisionError):
        decide(search, None, first=True)


def test_sizes_shrink_candidates_particles_and_elites_together():
    made = sizes(PlannerSettings(candidates=500, elites=50, particles=20))
    assert [each.candidates for each in made] == [16, 31, 62, 125, 250, 500]
    assert [each.particles for each in made] == [2, 2, 5, 10, 20, 20]
    assert all(each.cem_iterations == 1 and 3 <= each.elites <= each.candidates // 5 for each in made)
    tiny = PlannerSettings(candidates=4, elites=2, particles=1, cem_iterations=1)
    assert sizes(tiny) == [tiny], "a plan that is small already is not made larger"


def test_a_plan_moves_on_and_its_end_is_fresh():
    plan, fresh = np.arange(4.0)[:, None], -np.ones((4, 1))
    assert shifted(plan, 0, fresh)[:, 0].tolist() == [0, 1, 2, 3]
    assert shifted(plan, 1, fresh)[:, 0].tolist() == [1, 2, 3, -1]
    assert shifted(plan, 9, fresh)[:, 0].tolist() == [-1, -1, -1, -1]
