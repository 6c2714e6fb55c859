"""vblrl less one part that no setting switches off: `--method results/ablations/variants.py:NAME`."""

from __future__ import annotations

from posterity.agents.base import Keys
from posterity.agents.vblrl import Vblrl
from posterity.agents.vblrl_state import VblrlState


class FreshValue(Vblrl):
    """Every task begins with a value that knows nothing; the models are carried over as ever."""

    summary = "vblrl whose terminal value is not carried over"

    def begin_task(self, keys: Keys, state: VblrlState) -> VblrlState:
        """As vblrl, but for the critic."""
        return super().begin_task(keys, state)._replace(critic=self.beginning.networks(keys).critic)


class FixedWidth(Vblrl):
    """The prior of a task's networks stays as wide as it was in the beginning."""

    summary = "vblrl whose task prior has a fixed width"

    def _compares(self, state: VblrlState) -> bool:
        return False
