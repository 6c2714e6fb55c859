"""Streams in which tasks come back, or drift: what no learner is told.

recurring    with some probability a task is one that was met before, but not the one just left
drift        a value moves a little from task to task, and turns back at its ends

Both keep the rule that a longer stream begins with a shorter one: what happens at a place depends on earlier places and
on keys of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from posterity.types import Key, Task


def recurring(key: Key, tasks: list[Task], probability: float) -> list[Task]:
    """`tasks`, some of them replaced by what stood at an earlier place of the stream."""
    if probability == 0.0:
        return tasks
    stream: list[Task] = []
    origins: list[int] = []  # the place at which each task of the stream was first met
    for index, task in enumerate(tasks):
        generator = key.fold("recurring", index).generator()
        again = generator.random() < probability
        others = [origin for origin in sorted(set(origins)) if origin != origins[-1]]
        place = others[int(generator.integers(len(others)))] if again and others else index
        origins.append(place)
        stream.append(task if place == index else Task(index, tasks[place].name, tasks[place].factors))
    return stream


def drifting(key: Key, count: int, first: Callable[[Key], float], low: float, high: float, step: float) -> list[float]:
    """[count] values of a random walk between two ends, at which it is reflected. `step` is a standard deviation."""
    values: list[float] = []
    for index in range(count):
        here = key.fold(index)
        value = values[-1] + step * float(here.generator().normal()) if values else first(here)
        values.append(reflected(value, low, high))
    return values


def reflected(value: float, low: float, high: float) -> float:
    """A value beyond an end, as far on this side of it."""
    width = high - low
    if width == 0.0:
        return low
    past = (value - low) % (2.0 * width)
    return low + min(past, 2.0 * width - past)
