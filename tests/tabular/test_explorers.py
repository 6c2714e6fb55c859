"""Explorers on small problems with known answers, and against brute force."""

from itertools import product

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.tabular.belief import Bound
from posterity.tabular.dirichlet import DirichletRows
from posterity.tabular.explorers import EXPLORERS, Moment, Plan, Planning
from posterity.tabular.explorers.path import Path
from posterity.tabular.explorers.voi import with_information
from posterity.tabular.mdp import FiniteMDP
from posterity.types import Budget, FiniteSpec, FloatArray, IntArray, Layout, Transition

SPEC = FiniteSpec(3, 2, np.array([0.0, 1.0]), np.zeros(3, dtype=bool), 50)
PLANNING = Planning(models=5, known=2, gamma=0.9, tolerance=1e-9, bonus=1.0, simulations=200)
START = Moment(obs=0, remaining=50, values=np.zeros(3))
GENERAL = [name for name in EXPLORERS if name != "path"]


def worth(mdp: FiniteMDP, policy: tuple[int, ...], gamma: float) -> FloatArray:
    """[S] what a deterministic policy earns in 400 steps, step by step; shares no code with the library."""
    values, rows = np.zeros(len(policy)), np.arange(len(policy))
    for _ in range(400):
        values = mdp.reward[rows, policy] + gamma * (mdp.probability[rows, policy] * values).sum(axis=1)
    return values


def best_policies(mdp: FiniteMDP, gamma: float) -> list[tuple[int, ...]]:
    """All deterministic policies that no other beats anywhere, by trying them all."""
    states, actions = mdp.reward.shape
    tried = {chosen: worth(mdp, chosen, gamma) for chosen in product(range(actions), repeat=states)}
    top = np.max(list(tried.values()), axis=0)
    return [chosen for chosen, values in tried.items() if np.allclose(values, top, atol=1e-7)]


class Given:
    """A posterior that is a given stack of models, all as likely."""

    def __init__(self, models: FiniteMDP) -> None:
        self.models = models

    def sample(self, generator: np.random.Generator, count: int) -> FiniteMDP:
        drawn = (
            np.arange(count) % len(self.models.reward)
            if count > 1
            else generator.integers(len(self.models.reward), size=1)
        )
        return self.models._replace(probability=self.models.probability[drawn], reward=self.models.reward[drawn])

    def mean(self) -> FiniteMDP:
        return self.models._replace(
            probability=self.models.probability.mean(axis=0), reward=self.models.reward.mean(axis=0)
        )

    def weight(self) -> FloatArray:
        return np.full(self.models.reward.shape[1:], 3.0)

    def variance(self, values: FloatArray, gamma: float) -> FloatArray:
        return (self.models.reward + gamma * self.models.probability @ values).var(axis=0)

    def places(self) -> tuple[FloatArray, IntArray]:
        raise NotImplementedError


def given(count: int, seed: int = 0) -> Given:
    generator = np.random.default_rng(seed)
    return Given(
        FiniteMDP(
            generator.dirichlet(np.ones(3), (count, 3, 2)),
            None,
            generator.random((count, 3, 2)),
            np.zeros(3, dtype=bool),
        )
    )


def planned(name: str, posterior: Given | Bound, seed: int = 0) -> Plan:
    kind = {str(each): explorer for each, explorer in EXPLORERS.items()}[name]
    return kind(SPEC, PLANNING).plan(np.random.default_rng(seed), posterior, START)


def chosen(plan: Plan) -> tuple[int, ...]:
    return tuple(int(action) for action in plan.policy.argmax(axis=1))


@pytest.mark.parametrize("name", GENERAL)
def test_with_one_certain_model_every_explorer_acts_optimally(name: str):
    posterior = given(1)
    plan = planned(name, posterior)
    assert chosen(plan)[0] in {policy[0] for policy in best_policies(posterior.mean(), 0.9)}


def test_the_merged_mdp_is_the_best_choice_of_model_and_action_in_every_state():
    """By trying all (action, model) choices: 3 states x 2 actions x 2 models."""
    posterior = given(2)
    models = posterior.models
    merged = FiniteMDP(
        np.concatenate(list(models.probability), axis=1),
        None,
        np.concatenate(list(models.reward), axis=1),
        models.terminal,
    )
    best = {tuple(action % 2 for action in policy) for policy in best_policies(merged, 0.9)}
    assert chosen(planned("boss", posterior)) in best


def test_psrl_acts_by_the_best_policy_of_a_model_as_often_as_the_model_is_drawn():
    """Three models, each as likely: the policies it plans are those of brute force, in thirds (4 standard errors)."""
    posterior = given(3, seed=3)
    models = posterior.models
    right = [
        best_policies(models._replace(probability=p, reward=r), 0.9)[0]
        for p, r in zip(models.probability, models.reward, strict=True)
    ]
    assert len(set(right)) == 3
    plans = [chosen(planned("psrl", posterior, seed)) for seed in range(300)]
    for policy in right:
        assert abs(plans.count(policy) / 300 - 1 / 3) < 4 * np.sqrt(2 / 9 / 300)


def test_psrl_draws_its_model_from_the_posterior():
    """Ten visits that led to state 1 and seven that led to 0: the drawn rows have the mean of Dirichlet(8, 11, 1)."""
    rows = DirichletRows(SPEC, Budget(1, 1, 50), 1.0, "counts")
    where = np.array([1] * 10 + [0] * 7)
    nothing = np.zeros(17)
    task = rows.observe(
        rows.begin(rows.prior()), Transition(nothing.astype(int), nothing.astype(int), nothing, where, nothing, nothing)
    )
    posterior = Bound(rows, rows.prior(), task, np.ones((3, 2), dtype=bool))  # pyright: ignore[reportArgumentType]
    drawn = posterior.sample(np.random.default_rng(0), 4000).probability[:, 0, 0]
    np.testing.assert_allclose(drawn.mean(axis=0), np.array([8, 11, 1]) / 20, atol=4 * 0.11 / np.sqrt(4000))


def test_certainty_equivalence_is_optimal_in_the_mean_model_and_beb_in_one_that_pays_for_what_is_new():
    posterior = given(4, seed=5)
    mean = posterior.mean()
    assert chosen(planned("certainty", posterior)) in best_policies(mean, 0.9)
    assert chosen(planned("beb", posterior)) in best_policies(mean._replace(reward=mean.reward + 1.0 / 4.0), 0.9)


def test_upper_confidence_is_optimal_in_a_model_that_pays_for_the_spread_of_its_own_values():
    """The values it plans with pay, within what three rounds leave, for their own standard deviation."""
    posterior = given(4, seed=5)
    plan, mean = planned("ucb", posterior), posterior.mean()
    bonus = np.sqrt(posterior.variance(plan.values, 0.9))
    rewarded = mean._replace(reward=mean.reward + bonus)
    assert chosen(plan) in best_policies(rewarded, 0.9)
    np.testing.assert_allclose(plan.values, worth(rewarded, chosen(plan), 0.9), rtol=0.05)


def test_upper_confidence_finds_nothing_worth_a_visit_where_tasks_are_alike():
    """Two models that differ only in where action 1 leads, and all states are as good: no bonus, no detour."""
    same = FiniteMDP(
        np.stack([np.eye(3)[[[0, 1], [0, 1], [0, 1]]], np.eye(3)[[[0, 2], [0, 2], [0, 2]]]]),
        None,
        np.broadcast_to(np.array([0.5, 0.4]), (2, 3, 2)),
        np.zeros(3, dtype=bool),
    )
    assert chosen(planned("ucb", Given(same))) == (0, 0, 0)


def test_information_is_worth_what_it_would_change():
    """One state, two actions. Action 0 is worth 1 for sure; action 1 is worth 3 or -2, each in half of the models."""
    quality = np.array([[[1.0, 3.0]], [[1.0, -2.0]]])
    np.testing.assert_allclose(with_information(quality), [[1.0, 0.5 + 1.0]])
    sure = np.array([[[1.0, 0.5]], [[1.0, -2.0]]])  # whatever is true, action 0 is better
    np.testing.assert_allclose(with_information(sure), sure.mean(axis=0))


def corridor(chance: list[float]) -> tuple[FiniteSpec, FloatArray, IntArray]:
    """Cells in a row; one thing lies in one of them with these chances. Actions: left, right."""
    cells = len(chance)
    ahead = np.clip(np.arange(cells)[:, None] + np.array([-1, 1]), 0, cells - 1)
    move = np.vstack([ahead, [[cells, cells]]])
    layout = Layout(move, np.arange(cells)[None], 1.0, cells)
    spec = FiniteSpec(cells + 1, 2, np.array([0.0, 1.0]), np.arange(cells + 1) == cells, 6, layout)
    return spec, np.array([*chance, 0.0]), np.array([0] * cells + [1])


@pytest.mark.parametrize("seed", range(5))
def test_the_best_path_is_the_one_that_brute_force_finds(seed: int):
    """All 64 paths of six steps: the chance that the thing lies on the path; finding sooner may cost 6 in 1000."""
    chance = np.random.default_rng(seed).dirichlet(np.ones(9)) * 0.9
    spec, here, thing = corridor(chance.tolist())
    assert spec.layout is not None

    def found(path: tuple[int, ...]) -> float:
        place, entered = 4, set()
        for action in path:
            place = int(spec.layout.move[place, action]) if spec.layout is not None else 0
            entered.add(place)
        return sum(here[list(entered)])

    mine = Path(spec, PLANNING).best_path(here, thing, 4, 6)
    assert found(tuple(mine)) == pytest.approx(max(map(found, product(range(2), repeat=6))), abs=0.006)


def test_search_by_path_needs_a_layout():
    with pytest.raises(UserError, match="needs a family that declares a layout"):
        Path(SPEC, PLANNING)


def test_values_that_are_all_uncertain_do_not_lift_each_other_without_end():
    """Rows of which next to nothing is known, planned a hundred times: no value exceeds what can be earned for long."""
    models = given(2, seed=1).models
    wild = Given(models._replace(probability=np.stack([np.eye(3)[[[0, 1]] * 3], np.eye(3)[[[2, 0]] * 3]])))
    explorer, values = EXPLORERS["ucb"](SPEC, PLANNING._replace(bonus=10.0)), np.zeros(3)
    for _ in range(100):
        values = explorer.plan(np.random.default_rng(0), wild, START._replace(values=values)).values
    assert np.isfinite(values).all()
    assert values.max() < 200.0  # all bonuses at their cap of r_max / (1 - gamma) = 10, for ever, come to 100
