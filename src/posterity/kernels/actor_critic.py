"""`actor_critic_fit.fit` with networks computed by kernels: as long as it lasts, their weights are sheets.

The algorithm is the plain one, line for line; only the networks are others (`normalised_mlp.py`). On sheets the
optimiser is one program too, and not one for every weight matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from posterity.kernels import common, normalised_mlp
from posterity.kernels import layout as sheets
from posterity.kernels.common import Mode
from posterity.models import actor_critic_fit
from posterity.models.actor_critic import ActionBox, ActorCriticLoss, ActorCriticTraining, Networks, StepBatch
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser


def fallback_reason(mode: Mode, hidden: tuple[int, ...], obs_dim: int, action_dim: int, exact: bool) -> str:
    """Why actor and critics are left to the compiler, or nothing: then kernels have them."""
    return normalised_mlp.fallback_reason(mode, hidden, obs_dim + action_dim, 2 * action_dim, exact)


def fit(
    key: jax.Array,
    training: ActorCriticTraining,
    normaliser: Normaliser,
    draw: Callable[[jax.Array], StepBatch],
    box: ActionBox,
    gamma: float,
    steps: int,
) -> tuple[ActorCriticTraining, ActorCriticLoss]:
    """`actor_critic_fit.fit`, from networks to networks."""
    one_critic: Layers = jax.tree.map(lambda leaf: leaf[0], training.now.critics)
    actor, critic = (sheets.layout_of(network, branches=1) for network in (training.now.actor, one_critic))

    def changed(now: ActorCriticTraining, of_actor: Callable[[Any], Any], of_critic: Callable[[Any], Any]) -> Any:
        of_critics = jax.vmap(of_critic)
        return now._replace(
            now=now.now._replace(actor=of_actor(now.now.actor), critics=of_critics(now.now.critics)),
            targets=of_critics(now.targets),
            actor_optimiser=_moments(of_actor, now.actor_optimiser),
            critic_optimiser=_moments(of_critics, now.critic_optimiser),
        )

    packed = changed(training, lambda net: sheets.pack(net, actor), lambda net: sheets.pack(net, critic))
    interpret = not common.nvidia()
    networks = Networks(
        normalised_mlp.make_apply(actor, interpret),
        normalised_mlp.make_apply(critic, interpret),
        normalised_mlp.make_error(critic, interpret),
    )
    learned, loss = actor_critic_fit.fit(key, packed, normaliser, draw, box, gamma, steps, networks)
    return changed(learned, lambda net: sheets.unpack(net, actor), lambda net: sheets.unpack(net, critic)), loss


def _moments(change: Callable[[Any], Any], optimiser: Any) -> Any:
    """The same change to both moments that Adam keeps."""
    return optimiser._replace(mu=change(optimiser.mu), nu=change(optimiser.nu))
