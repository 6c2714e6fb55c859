"""Figures: what is in the frame."""

import numpy as np
from matplotlib.figure import Figure

from posterity.report.figures import _curve, _frame


def framed(sample: np.ndarray) -> tuple[float, float, bool]:
    axes = Figure().subplots()
    curve = _curve(axes, np.arange(sample.shape[1]), sample, "vblrl", "#000000")
    cut = _frame(axes, [curve])
    low, high = axes.get_ylim()
    return low, high, cut


def test_intervals_over_two_seeds_do_not_flatten_the_curve():
    """They are 12.7 standard errors wide: here from about -170 to 270, for a mean that rises from 0 to 100."""
    rise = np.linspace(0, 100, 20)
    low, high, cut = framed(np.stack([rise - 18, rise + 18]))
    assert high - low <= 3.4 * 100
    assert low < 0
    assert high > 100
    assert cut


def test_narrow_intervals_are_whole_in_the_frame():
    rise = np.linspace(0, 100, 20)
    low, high, cut = framed(rise + np.linspace(-3, 3, 10)[:, None])
    assert not cut
    assert -20 < low < 0
    assert 100 < high < 120


def test_a_flat_mean_and_a_single_seed_have_a_frame():
    low, high, _ = framed(np.array([[1.0, 1.0], [2.0, 2.0]]))
    assert low < 1.5 < high
    low, high, cut = framed(np.array([[1.0, 3.0]]))
    assert low < 1
    assert high > 3
    assert not cut
