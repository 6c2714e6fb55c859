"""Distributions of a hidden parameter.

uniform(low, high)          every value between the two is as likely
log_uniform(low, high)      every ratio is: as often in 0.5 .. 1 as in 1 .. 2
normal(mean, std)           with `low` and `high` drawn again until it lies between them
choice(a, b, ...)           one of these, each as likely
drift(low, high, step)      a step away from the task before: a random walk from task to task
a function of a generator   anything else: lambda generator: generator.beta(2, 5)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from posterity.errors import UserError
from posterity.families.streams import drifting
from posterity.plugins import kind
from posterity.types import Key

Value: TypeAlias = float | int | str | bool | list[float]  # plain, so that records can hold it
Draw: TypeAlias = Callable[[np.random.Generator], object]
TRIES = 1000  # of a bounded normal


@dataclass(frozen=True)
class Distribution:
    """A way to draw a value, and the words for it."""

    draw: Draw
    words: str
    walk: tuple[float, float, float] | None = None  # low, high and step, where a task's value is near the one before

    def __call__(self, generator: np.random.Generator) -> Value:
        """A plain value: no NumPy scalar or array."""
        return plain(self.draw(generator), self.words)


def uniform(low: float, high: float) -> Distribution:
    """Uniform between `low` and `high`."""
    _ordered("uniform", low, high)
    return Distribution(lambda generator: generator.uniform(low, high), f"uniform({low:g}, {high:g})")


def log_uniform(low: float, high: float) -> Distribution:
    """The logarithm is uniform: as likely to be halved as to be doubled."""
    _ordered("log_uniform", low, high)
    if low <= 0:
        raise UserError(f"log_uniform({low:g}, {high:g}): both are above 0")
    return Distribution(
        lambda generator: math.exp(generator.uniform(math.log(low), math.log(high))), f"log_uniform({low:g}, {high:g})"
    )


def normal(mean: float, std: float, low: float = -math.inf, high: float = math.inf) -> Distribution:
    """Gaussian; with bounds, drawn again until it lies between them."""
    if not (math.isfinite(mean) and math.isfinite(std) and std >= 0 and low <= mean <= high):
        raise UserError(f"normal({mean:g}, {std:g}, {low:g}, {high:g}): std is 0 or more, and low <= mean <= high")

    def draw(generator: np.random.Generator) -> float:
        for _ in range(TRIES):
            value = generator.normal(mean, std)
            if low <= value <= high:
                return value
        return mean  # the bounds leave next to nothing around it

    bounds = "" if (low, high) == (-math.inf, math.inf) else f", {low:g}, {high:g}"
    return Distribution(draw, f"normal({mean:g}, {std:g}{bounds})")


def drift(low: float, high: float, step: float) -> Distribution:
    """A value that moves by about `step` from task to task, and turns back at the ends. The first is uniform."""
    _ordered("drift", low, high)
    if not (math.isfinite(step) and step > 0):
        raise UserError(f"drift({low:g}, {high:g}, {step}): the step is above 0")
    words = f"drift({low:g}, {high:g}, {step:g})"
    return Distribution(lambda generator: generator.uniform(low, high), words, (low, high, step))


def stream(drawn: Distribution, key: Key, count: int) -> list[Value]:
    """[count] the values of the first tasks."""
    if drawn.walk is None:
        return [drawn(key.fold(index).generator()) for index in range(count)]
    low, high, step = drawn.walk
    return list(drifting(key, count, lambda at: float(at.generator().uniform(low, high)), low, high, step))


def choice(*values: Value) -> Distribution:
    """One of `values`."""
    if not values:
        raise UserError("choice() of nothing: name the values, as in choice(0.5, 1.0, 2.0)")
    return Distribution(
        lambda generator: values[int(generator.integers(len(values)))], f"choice({', '.join(map(str, values))})"
    )


def distribution(name: str, given: object) -> Distribution:
    """What `vary` holds for `name`, as a distribution."""
    if isinstance(given, Distribution):
        return given
    if callable(given) and not isinstance(given, type):
        return Distribution(given, "a function")
    raise UserError(
        f"vary: '{name}' is {given if isinstance(given, float | int | str) else kind(given)}; expected a distribution: "
        "posterity.uniform(low, high), log_uniform(low, high), normal(mean, std), choice(a, b, ...) "
        "or a function of a generator"
    )


def plain(value: object, words: str) -> Value:
    """A drawn value as plain Python, so that records can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{words} drew {value}, which is no number")
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return [float(each) for each in value]
    raise UserError(f"{words} drew {kind(value)}; expected a number, a text, or a list of numbers")


def check_names(vary: object) -> Mapping[str, object]:
    """`vary` as a table of names, or one line that says what it should be."""
    if not isinstance(vary, Mapping) or not vary or not all(isinstance(name, str) for name in vary):
        raise UserError(
            f"vary is {kind(vary) if vary != {} else 'empty'}; expected names and distributions, "
            'as in vary={"gravity": posterity.uniform(0.5, 1.5)}'
        )
    return vary


def _ordered(name: str, low: float, high: float) -> None:
    numbers = all(isinstance(each, int | float | np.number) and math.isfinite(each) for each in (low, high))
    if not (numbers and low <= high):
        raise UserError(f"{name}({low}, {high}): expected two numbers, the lower one first")
