"""What a run says of its own models: what plans promised beside what came, and whether the numbers still make sense."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from posterity.agents.base import Info
from posterity.errors import UserError
from posterity.types import Transition


def forecasts(promised: jax.Array, rows: Transition, horizon: int) -> dict[str, Any]:
    """What plans promised for their horizon, beside what came: mean return of the windows inside one episode.

    `promised` [L, 3]: sums of predicted returns and of their spreads, and how many plans.
    """
    horizon = min(horizon, rows.reward.shape[1])
    sums = np.asarray(promised)
    count = np.maximum(sums[:, 2], 1.0)
    ended = (rows.next_obs[:, :-1] != rows.obs[:, 1:]).any(axis=-1)  # [L, steps - 1] another episode follows
    cuts = np.cumsum(np.pad(ended, ((0, 0), (1, 0))), axis=1)
    whole = cuts[:, : cuts.shape[1] - horizon + 1] == cuts[:, horizon - 1 :]
    earned = np.cumsum(np.pad(rows.reward, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    windows = earned[:, horizon:] - earned[:, :-horizon]
    came = np.where(whole, windows, 0.0).sum(axis=1) / np.maximum(whole.sum(axis=1), 1)
    return {
        "forecast": sums[:, 0] / count,
        "forecast_spread": sums[:, 1] / count,
        "forecast_came": np.where(whole.any(axis=1), came, np.nan),
    }


def infos(facts: dict[str, Any], lanes: int, task: int, iteration: int) -> list[Info]:
    """[L] each lane's numbers. A model whose numbers are not finite any more has diverged, and that ends the run."""
    arrays = {name: np.asarray(value) for name, value in facts.items()}
    told: list[Info] = []
    for lane in range(lanes):
        numbers = {name: round(float(value[lane]), 6) for name, value in arrays.items()}
        for name in ("forecast", "forecast_spread", "forecast_came"):  # every window was cut, or imagination overflowed
            if not np.isfinite(numbers.get(name, 0.0)):
                del numbers[name]
        for name, value in numbers.items():
            if not np.isfinite(value):
                where = f"task {task}, iteration {iteration}"
                raise UserError(f"The model diverged in {where} ({name} is {value}); try a lower learning rate")
        told.append(dict(numbers))
    return told
