"""At a machine a latent follows the latest steps: a machine may change in mid-episode, and nobody says so.

Every few steps it is inferred from the latest 32 of them, by the networks of the world posterior. Then either the
task's own networks act or the world's with that latent, whichever explains these steps better. Inferring takes longer
than a control period. So where actions have a budget of time it is done in the background, and acting goes on with what
is believed until then.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from posterity.agents.inference import Recent, TaskInference
from posterity.agents.lanes import Program
from posterity.agents.training import Who
from posterity.agents.vblrl import Vblrl, VblrlState
from posterity.control.background import Background
from posterity.models import latent
from posterity.types import Key, Transition

LATEST = 32  # transitions that a latent is inferred from
WHO: tuple[Who, Who] = ("task", "world")


class Inferred(NamedTuple):
    """Which task the latest steps say this is."""

    latents: jax.Array  # [1, E, M, Z]
    world_acts: bool  # whether the world's networks explain these steps better than the task's own do


class Following:
    """Of one agent with a latent. `explains`: the log-likelihood of steps under a model."""

    def __init__(self, agent: Vblrl, inference: TaskInference, explains: Program[jax.Array]) -> None:
        self.agent, self.inference, self.explains = agent, inference, explains
        self.size = min(LATEST, agent.settings.latent.transitions)
        self.world_acts = False
        self.background: Background[Inferred] = Background("posterity-inference")

    def observe(self, key: Key, state: VblrlState, step: Transition, hurried: bool) -> VblrlState:
        """The state after one more step [1, ...]. `hurried`: what takes long is done in the background."""
        assert state.recent is not None
        met = state.iteration * self.agent.budget.steps_per_iteration + state.step
        recent = state.recent.put((met - 1) % self.size, step._replace(action=self.agent.spec.encoded(step.action)))
        state = self._told(state._replace(recent=recent), self.background.take())
        if met % latent.EVERY and met not in (1, 2, 4):
            return state
        if hurried:
            self.background.post(lambda: self._inferred(key, state, met))
            return state
        return self._told(state, self._inferred(key, state, met))

    def restart(self) -> None:
        """Another task begins: what was found by the latest steps is forgotten."""
        self.world_acts = False
        self.background.forget()

    def warm_up(self, key: Key, state: VblrlState) -> None:
        """Compiles what `observe` does not need in a task's first steps."""
        self._world_explains(key, state)

    def close(self) -> None:
        """Ends the thread."""
        self.background.close()

    def _inferred(self, key: Key, state: VblrlState, met: int) -> Inferred:
        """By the latest of the `met` steps of this task."""
        assert state.recent is not None
        world = state.world.posterior, state.task_number, state.normaliser
        found = self.inference.online([key], *world, state.latents, *state.recent, min(met, self.size))
        jax.block_until_ready(found)  # or else whoever acts next waits for it
        enough = met >= self.size
        return Inferred(found, self._world_explains(key, state._replace(latents=found)) if enough else self.world_acts)

    def _world_explains(self, key: Key, state: VblrlState) -> bool:
        """Whether the world's networks, given the latent, explain the latest steps better than the task's own do."""
        assert state.recent is not None
        rows = Recent(*(part[:, : self.size] for part in state.recent))
        task, world = (np.asarray(self.explains([key], self.agent.model_of(who, state), *rows)).mean() for who in WHO)
        return bool(world > task)

    def _told(self, state: VblrlState, found: Inferred | None) -> VblrlState:
        """The state with what was inferred, if anything was."""
        if found is None:
            return state
        self.world_acts = found.world_acts
        return state._replace(latents=found.latents)
