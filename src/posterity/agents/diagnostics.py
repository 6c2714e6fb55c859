"""What a run says of its own models: what plans promised beside what came, and whether the numbers still make sense."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from posterity.agents.base import Info
from posterity.errors import UserError
from posterity.types import Array, Transition


def forecasts(sums: Array, rows: Transition, horizon: int) -> dict[str, Array]:
    """What plans promised for their horizon, beside what came: mean return of the windows inside one episode.

    `sums` [L, 3]: of predicted returns, of their standard deviations, and how many plans. A window that no episode
    holds gives NaN.
    """
    reward, ended = np.asarray(rows.reward), np.asarray(rows.terminated) | np.asarray(rows.truncated)
    horizon = min(horizon, reward.shape[1])
    sums = np.asarray(sums)
    count = np.maximum(sums[:, 2], 1.0)
    cuts = np.cumsum(np.pad(ended[:, :-1], ((0, 0), (1, 0))), axis=1)
    whole = cuts[:, : cuts.shape[1] - horizon + 1] == cuts[:, horizon - 1 :]
    earned = np.cumsum(np.pad(reward, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    windows = earned[:, horizon:] - earned[:, :-horizon]
    realised = np.where(whole, windows, 0.0).sum(axis=1) / np.maximum(whole.sum(axis=1), 1)
    return {
        "forecast": sums[:, 0] / count,
        "forecast_std": sums[:, 1] / count,
        "forecast_realised": np.where(whole.any(axis=1), realised, np.nan),
    }


def checked(facts: Mapping[str, Array], what: str, place: str, remedy: str) -> Info:
    """The numbers on the host. If one is not finite any more, `what` has diverged, and that ends the run.

    Forecasts may be: every window was cut, or imagination overflowed. They are then left out of the record.
    """
    info = {name: np.asarray(values) for name, values in facts.items()}
    for name, values in info.items():
        if not name.startswith("forecast") and not np.isfinite(values).all():
            worst = values[~np.isfinite(values)][0]
            raise UserError(f"The {what} diverged in {place} ({name} is {worst}); {remedy}")
    return info
