import numpy as np

from posterity.families.randommdp import RandomMDP, RandomMDPSettings
from posterity.types import Key


def test_tasks_are_drawn_from_the_hidden_world():
    """Mean of a row over 2000 tasks is that of the world's Dirichlet, its variance m (1 - m) / (total + 1)."""
    family = RandomMDP()
    rows = np.stack([family.truth(task).probability for task in family.tasks(Key.of(0), 2000)])
    total = family.settings.concentration
    mean = family.next_alpha / total
    variance = mean * (1 - mean) / (total + 1)
    assert (np.abs(rows.mean(axis=0) - mean) < 4.5 * np.sqrt(variance / 2000) + 1e-9).all()
    likely = variance > 1e-3
    assert np.abs(rows.var(axis=0)[likely] / variance[likely] - 1).max() < 0.4


def test_the_world_is_the_same_for_every_seed_and_another_for_another_number():
    np.testing.assert_array_equal(RandomMDP().next_alpha, RandomMDP().next_alpha)
    other = RandomMDP(RandomMDPSettings(world=1))
    assert np.abs(RandomMDP().next_alpha - other.next_alpha).max() > 1.0


def test_tasks_that_are_more_alike_differ_less():
    spreads = []
    for concentration in (5.0, 500.0):
        family = RandomMDP(RandomMDPSettings(concentration=concentration))
        rows = np.stack([family.truth(task).probability for task in family.tasks(Key.of(0), 50)])
        spreads.append(rows.std(axis=0).mean())
    assert spreads[1] < spreads[0] / 5
