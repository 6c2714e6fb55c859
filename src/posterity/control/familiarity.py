"""Whether a machine behaves like those met before.

A model's surprise at a transition is minus the log-likelihood that it gave to the outcome, divided by the number of
dimensions. Its mean over the last `WINDOW` transitions is compared with what it was in training.

Calibration, when a machine file is written: all consecutive windows of the transitions in memory, of all tasks, are
scored by the beliefs that go into the file. A window is unfamiliar if its mean log-likelihood is below

    threshold = q01 - max(MARGIN, q50 - q01)

where q01 and q50 are the 1 % quantile and the median of the training windows. The model has seen those windows, and new
ones of the same family score somewhat lower; the second term leaves room for that. docs/control.md has what it detects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posterity.control.machine import Calibration
from posterity.control.pilots import WINDOW, Pilot
from posterity.types import Key, Transition

ENOUGH = 10  # transitions before anything is judged
MARGIN = 0.25  # nats for each dimension
MOST_WINDOWS = 400  # to calibrate on


def calibrated(pilot: Pilot, key: Key, state: object) -> Calibration | None:
    """How well the beliefs of `state` explain what is in its memory; None if they cannot tell."""
    windows = _windows(pilot.remembered(state))
    chosen = [windows[place] for place in np.linspace(0, len(windows) - 1, min(len(windows), MOST_WINDOWS)).astype(int)]
    scores: list[float] = []
    for number, window in enumerate(chosen):
        told = pilot.explains(key.fold(number), state, window)
        if told is None:
            return None
        scores.append(float(np.mean(told)))
    if not scores:
        return None
    low, middle = np.quantile(scores, [0.01, 0.5]).tolist()
    threshold = low - max(MARGIN, middle - low)
    return Calibration(usual=round(middle, 4), threshold=round(threshold, 4), windows=len(scores))


def _windows(tasks: Sequence[Transition]) -> list[Transition]:
    """Consecutive windows of each task's rows."""
    return [
        Transition(*(np.asarray(part)[start : start + WINDOW] for part in rows))
        for rows in tasks
        for start in range(0, len(np.asarray(rows.reward)) - WINDOW + 1, WINDOW)
    ]


def padded(rows: Sequence[Transition]) -> Transition:
    """Rows as one window of fixed size; the oldest is repeated where there are fewer."""
    whole = [rows[0]] * (WINDOW - len(rows)) + list(rows)
    return Transition(*(np.stack([np.asarray(part) for part in column]) for column in zip(*whole, strict=True)))
