"""River-swim, chain and grid: the classical processes, in the middle of the tasks."""

import numpy as np
import pytest

from posterity.families.base import FiniteFamily
from posterity.families.chain import Chain
from posterity.families.grid import Grid, GridSettings
from posterity.families.riverswim import RiverSwim, RiverSwimSettings
from posterity.types import Key

KEY = Key.of(0).fold("stream")


@pytest.mark.parametrize("family", [RiverSwim(), Chain(), Grid()])
def test_rows_are_probabilities(family: FiniteFamily):
    truth = family.truth(family.tasks(KEY, 1)[0])
    for rows in (truth.probability, truth.reward):
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0)
        assert (rows >= 0).all()


def test_the_mean_river_is_the_classical_one():
    """400 rivers; the standard error of a chance is below 0.006."""
    family = RiverSwim()
    rivers = np.mean([family.truth(task).probability for task in family.tasks(KEY, 400)], axis=0)
    np.testing.assert_allclose(rivers[2, 1], [0, 0.05, 0.6, 0.35, 0, 0], atol=0.025)
    np.testing.assert_allclose(rivers[0, 1, :2], [0.65, 0.35], atol=0.025)
    np.testing.assert_array_equal(rivers[3, 0], np.eye(6)[2])
    np.testing.assert_array_equal(
        family.truth(family.tasks(KEY, 1)[0]).reward[[0, -1, 2], [0, 1, 1]], np.eye(3)[[1, 2, 0]]
    )


def test_rivers_that_are_more_alike_differ_less():
    spread = [
        np.std(
            [task.factors["current"] for task in RiverSwim(RiverSwimSettings(concentration=c)).tasks(KEY, 50)], axis=0
        ).mean()
        for c in (5.0, 500.0)
    ]
    assert spread[1] < spread[0] / 5


def test_the_mean_chain_slips_one_time_in_five():
    family = Chain()
    rows = np.mean([family.truth(task).probability for task in family.tasks(KEY, 400)], axis=0)
    np.testing.assert_allclose(rows[2, 0], [0.2, 0, 0, 0.8, 0], atol=0.02)
    np.testing.assert_allclose(rows[4, 0], [0.2, 0, 0, 0, 0.8], atol=0.02)


def test_a_step_on_the_grid_leads_where_the_spec_says_and_the_goal_ends_it():
    family = Grid(GridSettings(side=3, goals=1))
    task = family.tasks(KEY, 1)[0]
    truth, goal = family.truth(task), task.factors["goal"]
    assert family.spec.successors is not None
    np.testing.assert_array_equal(family.spec.successors[4], [[1, 3, 5, 9], [5, 1, 7, 9], [7, 5, 3, 9], [3, 7, 1, 9]])
    np.testing.assert_array_equal(
        family.spec.successors[0, 0], [0, 0, 1, 9]
    )  # up: a wall; its sides are a wall and a cell
    assert truth.start[4] == 1.0
    np.testing.assert_array_equal(truth.probability[goal], [[0, 0, 0, 1]] * 4)
    np.testing.assert_array_equal(truth.reward[goal], [[0, 1]] * 4)
    assert truth.reward[..., 1].sum() == 4


def test_the_goal_is_one_of_the_few_cells_of_the_hidden_world():
    family = Grid()
    found = {task.factors["goal"] for task in family.tasks(KEY, 60)}
    assert found == set(family.goals.tolist())
