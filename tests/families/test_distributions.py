"""Drawn values follow their distributions."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from posterity.errors import UserError
from posterity.families.distributions import choice, distribution, log_uniform, normal, uniform
from posterity.types import Key

GENERATOR = np.random.default_rng


@pytest.mark.parametrize(
    ("drawn", "law"),
    [
        (uniform(2.0, 5.0), stats.uniform(2.0, 3.0)),
        (log_uniform(0.5, 8.0), stats.loguniform(0.5, 8.0)),
        (normal(1.0, 2.0), stats.norm(1.0, 2.0)),
        (normal(0.0, 1.0, low=-0.5), stats.truncnorm(-0.5, math.inf)),
    ],
    ids=lambda value: getattr(value, "words", ""),
)
def test_drawn_values_follow_the_distribution(drawn, law):
    """Kolmogorov and Smirnov: with this seed, and once in a thousand seeds wrongly refused."""
    generator = GENERATOR(0)
    values = [drawn(generator) for _ in range(2000)]
    assert stats.kstest(values, law.cdf).pvalue > 1e-3


def test_a_choice_is_one_of_its_values_and_each_as_often():
    generator = GENERATOR(0)
    values = [choice("a", 2, 0.5)(generator) for _ in range(3000)]
    counts = [values.count(each) for each in ("a", 2, 0.5)]
    assert sum(counts) == 3000
    assert max(abs(count - 1000) for count in counts) < 4 * math.sqrt(3000 * 2 / 9)


def test_drawn_values_are_plain_also_those_of_a_function():
    generator = GENERATOR(0)
    for given in (uniform(0, 1), choice(1, 2), lambda g: g.normal(), lambda g: g.normal(size=3)):
        value = distribution("x", given)(generator)
        assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: uniform(2, 1), r"uniform\(2, 1\): expected two numbers, the lower one first"),
        (lambda: uniform(math.nan, 1), "expected two numbers"),
        (lambda: log_uniform(0, 1), "both are above 0"),
        (lambda: normal(0, -1), "std is 0 or more"),
        (lambda: normal(5, 1, high=2), "low <= mean <= high"),
        (choice, r"choice\(\) of nothing"),
        (lambda: distribution("g", 9.8), "'g' is 9.8; expected a distribution"),
        (lambda: distribution("g", lambda g: {1})(GENERATOR(0)), "drew a value of type set"),
        (lambda: distribution("g", lambda g: math.nan)(GENERATOR(0)), "drew nan"),
    ],
)
def test_what_is_no_distribution_is_refused_in_one_line(make: Callable[[], Any], says: str):
    with pytest.raises(UserError, match=says) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_the_same_key_draws_the_same():
    key = Key.of(3).fold("stream")
    assert uniform(0, 1)(key.generator()) == uniform(0, 1)(key.generator())
