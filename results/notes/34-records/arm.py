"""`posterity` with one thing changed:  python3 arm.py PLAIN|WIDE|TWO|DRAWS|FIFTH run FAMILY ..."""

from __future__ import annotations

import sys
from typing import Any, cast

import jax
import jax.numpy as jnp

from posterity.agents.actor_learning import ActorCriticLearning
from posterity.cli import main
from posterity.families.mujoco import MujocoFamily
from posterity.models import actor_critic_fit
from posterity.types import Key, Task


def wide() -> None:
    """256 units a layer instead of 128."""
    begun = ActorCriticLearning.__init__

    def begin(self: Any, *args: Any, **named: Any) -> None:
        begun(self, *args, **{**named, "hidden": (256, 256)})

    ActorCriticLearning.__init__ = begin


def two() -> None:
    """Two steps of the critics for one of the actor instead of four."""
    actor_critic_fit.CRITIC_STEPS = 2


class Drawing:
    """A model whose predictions are draws."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict_each(self, networks: Any, obs: jax.Array, *more: Any) -> Any:
        """The mean is a draw. Its key is made of the states, which are never the same."""
        told = self.model.predict_each(networks, obs, *more)
        key = jax.random.fold_in(jax.random.key(0), jax.lax.bitcast_convert_type(obs.sum(), jnp.int32))
        noise = jax.random.normal(key, told.mean.shape)
        return told._replace(mean=told.mean + jnp.exp(0.5 * told.log_variance) * noise)


def draws() -> None:
    """Imagined steps are drawn from the predicted Gaussian."""
    imagine = ActorCriticLearning.imagine

    def drawn(
        self: Any, key: Any, actor: Any, units: Any, memory: Any, task: Any, model: Any, known: Any = None
    ) -> Any:
        return imagine(self, key, actor, units, memory, task, cast(Any, Drawing(model)), known)

    ActorCriticLearning.imagine = drawn


def fifth() -> None:
    """The stream begins with its fifth task."""
    whole = MujocoFamily.tasks

    def later(self: MujocoFamily, key: Key, count: int) -> list[Task]:
        return [Task(task.index - 4, task.name, task.factors) for task in whole(self, key, count + 4)[4:]]

    MujocoFamily.tasks = later


if __name__ == "__main__":
    for name in sys.argv[1].split("+"):
        {"PLAIN": lambda: None, "WIDE": wide, "TWO": two, "DRAWS": draws, "FIFTH": fifth}[name]()
    sys.exit(main(sys.argv[2:]))
