import numpy as np
import pytest

from posterity.tabular.layout import HiddenLayout, LayoutTask, learn_from_possible
from posterity.types import FiniteSpec, Layout, Transition


def corridor() -> HiddenLayout:
    """Cells 0-3 in a row and the end (4). One thing lies in cell 1 or 2, another in cell 3; actions: left, right."""
    move = np.array([[0, 1], [0, 2], [1, 3], [2, 3], [4, 4]])
    layout = Layout(move, np.array([[1, 2], [3, 3]]), reward=1.0, found=4)
    terminal = np.arange(5) == 4
    return HiddenLayout(FiniteSpec(5, 2, np.array([0.0, 1.0]), terminal, 10, layout), concentration=1.0)


def step(state: int, action: int, following: int) -> Transition:
    """One step. The thing is found where it leads to the end."""
    found = following == 4
    parts = (state, action, float(found), following, found, False)
    return Transition(*(np.array([part]) for part in parts))


def walk(belief: HiddenLayout, *steps: tuple[int, int, int]) -> LayoutTask:
    task = belief.begin(belief.prior())
    for state, action, following in steps:
        task = belief.observe(task, step(state, action, following))
    return task


def test_a_cell_found_empty_is_ruled_out_and_the_rest_is_not():
    belief = corridor()
    np.testing.assert_array_equal(belief.possible(walk(belief, (0, 1, 1)))[0], [False, True, True])


def test_a_thing_found_is_nowhere_else():
    belief = corridor()
    np.testing.assert_array_equal(belief.possible(walk(belief, (1, 1, 4)))[0], [False, True, False])


def test_nothing_seen_teaches_nothing():
    alpha = np.array([[0.3, 0.7, 2.0]])
    np.testing.assert_allclose(learn_from_possible(alpha, np.ones((1, 3), dtype=bool)), alpha, rtol=1e-12)


def test_a_certain_outcome_adds_one_count():
    alpha = np.array([[0.3, 0.7, 2.0]])
    np.testing.assert_allclose(learn_from_possible(alpha, np.array([[False, True, False]])), [[0.3, 1.7, 2.0]])


def test_half_knowledge_keeps_mean_and_total_variance_of_the_exact_posterior():
    """The exact posterior, sampled: a mixture of two Dirichlets. 4 standard errors of 200,000 draws."""
    alpha, possible = np.array([0.5, 1.0, 2.5]), np.array([True, False, True])
    generator = np.random.default_rng(0)
    first = generator.random(200_000) < 0.5 / 3.0
    draws = np.where(
        first[:, None],
        generator.dirichlet(alpha + np.eye(3)[0], 200_000),
        generator.dirichlet(alpha + np.eye(3)[2], 200_000),
    )
    learned = learn_from_possible(alpha[None], possible[None])[0]
    mean = learned / learned.sum()
    total_variance = (mean * (1 - mean)).sum() / (learned.sum() + 1)
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * draws.std(axis=0) / np.sqrt(200_000)).all()
    assert total_variance == pytest.approx(draws.var(axis=0).sum(), rel=0.01)


def test_sampled_worlds_agree_with_what_known_pairs_showed():
    belief = corridor()
    task = walk(belief, (0, 1, 1), (2, 1, 4))  # cell 1 empty, the thing of cell 3 found
    known = np.zeros((5, 2), dtype=bool)
    known[0, 1] = known[2, 1] = True
    models = belief.sample(np.random.default_rng(0), belief.prior(), task, known, 500)
    enters = {cell: models.reward[:, state, action] for cell, state, action in ((1, 0, 1), (2, 1, 1), (3, 2, 1))}
    assert not enters[1].any()
    assert enters[3].all()
    assert 0.25 < enters[2].mean() < 0.42  # 1/2 against "nowhere" 1: a third; sd 0.021


def test_what_an_unknown_pair_showed_does_not_count_yet():
    belief = corridor()
    models = belief.sample(
        np.random.default_rng(0), belief.prior(), walk(belief, (0, 1, 1)), np.zeros((5, 2), dtype=bool), 500
    )
    assert 0.18 < models.reward[:, 0, 1].mean() < 0.32  # a quarter: half of the chance of being anywhere


def test_finding_a_thing_ends_the_episode_and_pays_once():
    belief = corridor()
    models = belief.sample(
        np.random.default_rng(0), belief.prior(), walk(belief, (1, 1, 4)), np.ones((5, 2), dtype=bool), 3
    )
    assert models.successor is not None
    np.testing.assert_array_equal(models.probability[:, 1, 1], [[0.0, 1.0]] * 3)
    np.testing.assert_array_equal(models.successor[1, 1], [2, 4])
    assert models.terminal[4]


def test_many_tasks_teach_how_often_a_thing_lies_where():
    """It lies in cell 1 in three tasks of four, else nowhere."""
    belief = corridor()
    world = belief.prior()
    for number in range(200):
        task = belief.begin(world)
        if number % 4:
            task = belief.observe(task, step(0, 1, 4))
        else:
            for state, action, cell in ((0, 1, 1), (1, 1, 2)):
                task = belief.observe(task, step(state, action, cell))
        world = belief.pool(world, task, final=True)
    np.testing.assert_allclose(world.alpha[0] / world.alpha[0].sum(), [0.75, 0.0, 0.25], atol=0.01)


def test_pooling_again_in_the_same_task_counts_it_once():
    belief = corridor()
    world = belief.prior()
    task = belief.observe(belief.begin(world), step(0, 1, 4))
    once = belief.pool(world, task)
    np.testing.assert_array_equal(belief.pool(once, task).alpha, once.alpha)


def test_a_family_without_a_layout_is_refused():
    with pytest.raises(ValueError, match="no layout"):
        HiddenLayout(FiniteSpec(2, 2, np.zeros(1), np.zeros(2, dtype=bool), 5), 1.0)


def test_places_that_are_alike_are_learned_as_alike_and_others_as_they_are():
    """Things of many rooms found evenly over four places, or always in the first: what a new room is given."""
    move = np.tile(np.arange(13), (13, 1))
    spec = FiniteSpec(
        13, 13, np.array([0.0, 1.0]), np.arange(13) == 12, 10, Layout(move, np.arange(12).reshape(3, 4), 1.0, 12)
    )
    belief = HiddenLayout(spec, 1.0, "alike")
    flat = belief.prior().alpha
    even, uneven = flat.copy(), flat.copy()
    even[:2, :4] += 10.0
    uneven[:2, 0] += 40.0
    shares = {name: belief.evened(alpha)[:, :4] for name, alpha in (("even", even), ("uneven", uneven))}
    assert np.ptp(shares["even"][0] / shares["even"][0].sum()) < 0.01
    assert shares["uneven"][0, 0] / shares["uneven"][0].sum() > 0.9
    for name, alpha in (("even", even), ("uneven", uneven)):
        np.testing.assert_allclose(shares[name].sum(axis=1), alpha[:, :4].sum(axis=1))


def test_the_variance_of_what_a_pair_is_worth_is_that_of_sampled_worlds():
    """Cell 1 was empty: of entering it nothing is open. 20,000 worlds, 5 standard errors."""
    belief, values = corridor(), np.array([0.2, 0.5, 0.3, 0.1, 0.0])
    world, task, known = belief.prior(), walk(corridor(), (0, 1, 1)), np.ones((5, 2), dtype=bool)
    drawn = belief.sample(np.random.default_rng(0), world, task, known, 20_000)
    assert drawn.successor is not None
    brute = (drawn.reward + 0.9 * (drawn.probability * values[drawn.successor]).sum(axis=-1)).var(axis=0)
    found = belief.variance(world, task, known, values, 0.9)
    np.testing.assert_allclose(found, brute, atol=0.01)
    assert found[0, 1] == 0.0
    assert found[1, 1] > 0.1
