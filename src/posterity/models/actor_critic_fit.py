"""Gradient steps on an actor and its critics: `actor_critic.py` has the equations.

In one round the critics take four steps towards one common target, the target critics follow them a little, and the
actor takes one step. What a round draws is drawn for many rounds at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from posterity.models import actor_critic, chunked_scan
from posterity.models.actor_critic import ActionBox, ActorCriticLoss, ActorCriticTraining, StepBatch
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser

Params = TypeVar("Params")

BATCH_SIZE = 128  # transitions: many small steps learn more than few large ones (BRO, Nauman et al. 2024, has 128)
LEARNING_RATE = 5e-4
TAU = 0.02  # how far the target critics move towards the critics after every step of the actor
CRITIC_STEPS = 4  # of the critics for one of the actor
# The entropy that alpha keeps, in nats for each dimension of actions (SAC: -1, random actions: 0.69). An actor that
# acts alone has to try things itself (results/notes/30); beside a plan, what the plan finds is tried.
ENTROPY_ALONE = 0.0
ENTROPY_BESIDE_A_PLAN = -0.5


class _Round(NamedTuple):
    """What is drawn for one step of the actor and those of the critics before it."""

    batches: StepBatch  # [CRITIC_STEPS, B, ...]
    next_noise: jax.Array  # [CRITIC_STEPS, B, A] of the actions that targets are made of
    noise: jax.Array  # [B, A] of the actions that the actor is learned by


def fit(
    key: jax.Array,
    training: ActorCriticTraining,
    normaliser: Normaliser,
    draw: Callable[[jax.Array], StepBatch],
    box: ActionBox,
    gamma: float,
    steps: int,
    entropy: float = ENTROPY_ALONE,
) -> tuple[ActorCriticTraining, ActorCriticLoss]:
    """`steps` gradient steps on the critics, and one on the actor after each `CRITIC_STEPS` of them."""
    rounds = max(steps // CRITIC_STEPS, 1)
    learner = Learner(normaliser, box, gamma, entropy)

    def draw_round(k: jax.Array) -> _Round:
        batch_key, noise_key = jax.random.split(k)
        batches = jax.vmap(draw)(jax.random.split(batch_key, CRITIC_STEPS))
        keys, shape = jax.random.split(noise_key), batches.action.shape
        return _Round(batches, jax.random.normal(keys[0], shape), jax.random.normal(keys[1], shape[1:]))

    learned, told = chunked_scan.scan(learner.round, training, draw_round, jax.random.split(key, rounds))
    late = jax.tree.map(lambda leaf: leaf[-max(1, rounds // 10) :].mean(), told)
    return learned, late._replace(value_error=jnp.sqrt(late.value_error))


class Learner(NamedTuple):
    """The gradient steps, in the units of a normaliser."""

    normaliser: Normaliser
    box: ActionBox
    gamma: float
    entropy: float = ENTROPY_ALONE

    @property
    def unit(self) -> jax.Array:
        """Of values."""
        return actor_critic.scale(self.normaliser, self.gamma)

    def round(self, now: ActorCriticTraining, drawn: _Round) -> tuple[ActorCriticTraining, ActorCriticLoss]:
        """Steps on the critics, one on what they are learned towards, one on the actor."""
        targets = self.targets(now, drawn.batches, drawn.next_noise)
        errors: list[jax.Array] = []
        for number in range(CRITIC_STEPS):
            batch = jax.tree.map(lambda leaf, n=number: leaf[n], drawn.batches)
            now, error = self.critic_step(now, batch, targets[number])
            errors.append(error)
        followed = jax.tree.map(lambda old, new: old + TAU * (new - old), now.targets, now.now.critics)
        last = jax.tree.map(lambda leaf: leaf[-1], drawn.batches)
        now, std, entropy = self.actor_step(now._replace(targets=followed), last, drawn.noise)
        return now, ActorCriticLoss(jnp.stack(errors).mean(), std, entropy)

    def draws(
        self, noise: jax.Array, actor: Layers, obs: jax.Array, context: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Actions of the policy and their log densities."""
        return actor_critic.drawn_action(noise, actor, self.normaliser, obs, self.box, context)

    def values(self, critics: Layers, obs: jax.Array, action: jax.Array, context: jax.Array | None) -> jax.Array:
        """[E, ...] what each critic says."""
        return actor_critic.values(critics, self.normaliser, obs, action, self.gamma, context)

    def targets(self, training: ActorCriticTraining, batches: StepBatch, noise: jax.Array) -> jax.Array:
        """[..., B] what the critics are to say of batches. Actor and targets hardly move from one to the next."""
        now, context = training.now, batches.context
        action, density = self.draws(noise, now.actor, batches.next_obs, context)
        told = actor_critic.careful(self.values(training.targets, batches.next_obs, action, context))
        soft = jnp.clip(told, now.least, now.most) - jnp.exp(training.log_alpha) * density
        return batches.reward + self.gamma * jnp.where(batches.terminated > 0, 0.0, soft)

    def error(self, key: jax.Array, training: ActorCriticTraining, batch: StepBatch) -> jax.Array:
        """[] root mean square error of the critics on a batch, in units of the value."""
        noise = jax.random.normal(key, batch.action.shape)
        target = self.targets(training, batch, noise)
        said = self.values(training.now.critics, batch.obs, batch.action, batch.context)
        return jnp.sqrt((((said - target[None]) / self.unit) ** 2).mean())

    def critic_step(
        self, training: ActorCriticTraining, batch: StepBatch, target: jax.Array
    ) -> tuple[ActorCriticTraining, jax.Array]:
        """One step on all critics, towards one common target. Returns their mean square error."""
        now = training.now

        def loss(critics: Layers) -> tuple[jax.Array, jax.Array]:
            said = self.values(critics, batch.obs, batch.action, batch.context)
            error = (((said - target[None]) / self.unit) ** 2).mean(axis=1)
            return error.sum(), error.mean()

        gradient, error = jax.grad(loss, has_aux=True)(now.critics)
        critics, optimiser = _moved(now.critics, gradient, training.critic_optimiser)
        return training._replace(now=now._replace(critics=critics), critic_optimiser=optimiser), error

    def actor_step(
        self, training: ActorCriticTraining, batch: StepBatch, noise: jax.Array
    ) -> tuple[ActorCriticTraining, jax.Array, jax.Array]:
        """One step on the actor and on alpha. Returns by how much critics disagree, and the actor's entropy."""
        now, unit = training.now, self.unit
        alpha = jnp.exp(training.log_alpha)

        def loss(actor: Layers) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            action, density = self.draws(noise, actor, batch.obs, batch.context)
            told = self.values(now.critics, batch.obs, action, batch.context)
            return ((alpha * density - actor_critic.careful(told)) / unit).mean(), (
                density.mean(),
                (actor_critic.disagreement(told) / unit).mean(),
            )

        gradient, (density, std) = jax.grad(loss, has_aux=True)(now.actor)
        actor, optimiser = _moved(now.actor, gradient, training.actor_optimiser)
        wanted = self.entropy * self.box.low.shape[0]  # the loss is -log_alpha (log pi + wanted): alpha grows below it
        log_alpha, alpha_optimiser = _moved(training.log_alpha, -(density + wanted), training.alpha_optimiser)
        optimisers = {"actor_optimiser": optimiser, "alpha_optimiser": alpha_optimiser}
        return training._replace(now=now._replace(actor=actor), log_alpha=log_alpha, **optimisers), std, -density


def _moved(params: Params, gradient: Params, state: optax.OptState) -> tuple[Params, optax.OptState]:
    change, state = optax.scale_by_adam().update(gradient, state)  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda old, move: old - LEARNING_RATE * move, params, change), state
