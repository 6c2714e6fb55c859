"""An actor and an ensemble of critics: a policy, and what its actions are worth.

    Q_e(s, a) <- r + gamma (1 - terminated) [ low(Q_target)(s', a') - alpha log pi(a' | s') ],      a' ~ pi(. | s')
    pi        <- maximises  E[ low(Q)(s, a) - alpha log pi(a | s) ],        low(Q) = mean_e Q_e - pessimism std_e Q_e

It is soft actor-critic (Haarnoja et al. 2018) for few samples. Every transition is learned from many times, which
makes critics believe in actions nobody tried. Where they have no data the critics of an ensemble disagree, so the mean
less their deviation is a careful estimate (REDQ, Chen et al. 2021, takes the least of a random two). Hidden layers are
normalised (DroQ, Hiraoka et al. 2022), and no value leaves the bounds of what rewards so far allow.

alpha is learned too: it keeps the entropy of the actor at minus half the number of actions' dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

from posterity.models import chunked_scan, mlp
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.settings import Settings, setting

Params = TypeVar("Params")

HIDDEN = (256, 256)  # units of each hidden layer
CRITICS = 5
PESSIMISM = 0.7  # deviations of the critics below their mean
BATCH_SIZE = 128  # transitions: many small steps learn more than few large ones (BRO, Nauman et al. 2024, has 128)
LEARNING_RATE = 5e-4
TAU = 0.01  # how far the target critics move towards the critics after every step of the actor
CRITIC_STEPS = 2  # of the critics for one of the actor
LOG_STD = (-5.0, 2.0)  # of the actor, before the squashing
INITIAL_ALPHA = 0.1


class ActorCriticSettings(Settings):
    """An actor beside the model, and how it is learned."""

    updates_per_step: int = setting(
        0, "Gradient steps on an actor's critics for every step in the environment; 0: no actor (paper).", ge=0
    )
    imagined_share: float = setting(
        0.0, "Share of a batch of the actor's that the model imagines, in short rollouts.", ge=0, lt=1
    )


class ActionBox(NamedTuple):
    """The range of actions."""

    low: jax.Array  # [A]
    high: jax.Array  # [A]


class ActorCritic(NamedTuple):
    """A policy, its critics, and the bounds of what any action can be worth."""

    actor: Layers
    critics: Layers  # leaves [E, ...]
    least: jax.Array  # []
    most: jax.Array  # []


class ActorCriticTraining(NamedTuple):
    """The networks, what the critics are learned towards, and the optimisers."""

    now: ActorCritic
    targets: Layers
    log_alpha: jax.Array  # []
    actor_optimiser: optax.OptState
    critic_optimiser: optax.OptState
    alpha_optimiser: optax.OptState


class StepBatch(NamedTuple):
    """Transitions as actor and critics take them."""

    obs: jax.Array  # [B, O]
    action: jax.Array  # [B, A]
    reward: jax.Array  # [B]
    next_obs: jax.Array  # [B, O]
    terminated: jax.Array  # [B] 1 where nothing follows


class ActorCriticLoss(NamedTuple):
    """How learning went, over the last tenth of the steps."""

    value_error: jax.Array  # root mean square of the critics' error, in units of the value
    value_std: jax.Array  # deviation between critics, in the same
    entropy: jax.Array  # of the actor, in nats


def init(
    key: jax.Array, obs_dim: int, action_dim: int, hidden: tuple[int, ...] = HIDDEN, critics: int = CRITICS
) -> ActorCriticTraining:
    """An actor with actions around the middle of the range, and critics for which nothing is worth anything."""
    actor_key, critic_key = jax.random.split(key)
    actor = _quiet(mlp.init(actor_key, (obs_dim, *hidden, 2 * action_dim)))
    sizes = (obs_dim + action_dim, *hidden, 1)
    ensemble = jax.vmap(lambda k: _quiet(mlp.init(k, sizes)))(jax.random.split(critic_key, critics))
    nothing = jnp.float32(0.0)
    log_alpha = jnp.log(jnp.float32(INITIAL_ALPHA))
    optimisers = map(_adam_state, (actor, ensemble, log_alpha))
    return ActorCriticTraining(ActorCritic(actor, ensemble, nothing, nothing), ensemble, log_alpha, *optimisers)


def _quiet(layers: Layers) -> Layers:
    """The same with small weights in the last layer."""
    *hidden, last = layers
    return (*hidden, last._replace(weight=0.01 * last.weight))


def _adam_state(params: Layers | jax.Array) -> optax.OptState:
    return optax.scale_by_adam().init(params)  # pyright: ignore[reportArgumentType]


# Acting --------------------------------------------------------------------------------------------------------------


def mean_action(actor: Layers, normaliser: Normaliser, obs: jax.Array, box: ActionBox) -> jax.Array:
    """[..., A] the likeliest actions for observations [..., O]."""
    return _scaled(jnp.tanh(_outputs(actor, normaliser, obs)[0]), box)


def sample_action(
    key: jax.Array, actor: Layers, normaliser: Normaliser, obs: jax.Array, box: ActionBox
) -> tuple[jax.Array, jax.Array]:
    """Actions [..., A] of the policy for observations [..., O], and their log densities [...] before the scaling."""
    mean, log_std = _outputs(actor, normaliser, obs)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    # log(1 - tanh(x)^2), without the loss of digits where tanh is nearly one
    squash = 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    density = (-0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi) - squash).sum(axis=-1)
    return _scaled(jnp.tanh(raw), box), density


def _outputs(actor: Layers, normaliser: Normaliser, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log deviation [..., A] before the squashing. The deviation's bounds are soft."""
    size = obs.shape[-1]
    centre, scale = (mlp.across(part[:size], obs) for part in (normaliser.input_mean, normaliser.input_scale))
    mean, raw = jnp.split(mlp.apply(actor, (obs - centre) / scale, jax.nn.relu, normalise=True), 2, axis=-1)
    low, high = LOG_STD
    return mean, low + 0.5 * (high - low) * (1.0 + jnp.tanh(raw))


def _scaled(unit: jax.Array, box: ActionBox) -> jax.Array:
    """From -1 .. 1 to the range of actions."""
    low, high = mlp.across(box.low, unit), mlp.across(box.high, unit)
    return low + 0.5 * (high - low) * (1.0 + unit)


# Values --------------------------------------------------------------------------------------------------------------


def values(critics: Layers, normaliser: Normaliser, obs: jax.Array, action: jax.Array, gamma: float) -> jax.Array:
    """[E, ...] what each critic says of actions [..., A] in observations [..., O], in units of the reward."""
    inputs = normaliser.inputs(obs, action)
    told = jax.vmap(lambda one: mlp.apply(one, inputs, jax.nn.relu, normalise=True)[..., 0])(critics)
    return told * scale(normaliser, gamma)


def careful(told: jax.Array) -> jax.Array:
    """[...] of what critics say [E, ...]: the mean, less what they disagree by."""
    return told.mean(axis=0) - PESSIMISM * _std(told)


def _std(told: jax.Array) -> jax.Array:
    """The deviation between critics; its gradient is finite where they agree."""
    return jnp.sqrt(told.var(axis=0) + 1e-8)


def value(model: ActorCritic, normaliser: Normaliser, obs: jax.Array, box: ActionBox, gamma: float) -> jax.Array:
    """[...] what going on by the actor from observations [..., O] is worth."""
    action = mean_action(model.actor, normaliser, obs, box)
    told = careful(values(model.critics, normaliser, obs, action, gamma))
    return jnp.clip(told, model.least, model.most)


def scale(normaliser: Normaliser, gamma: float) -> jax.Array:
    """What an endless stream of typical rewards is worth."""
    return jnp.sqrt(normaliser.target_mean[0] ** 2 + normaliser.target_scale[0] ** 2) / (1.0 - gamma)


def widened(training: ActorCriticTraining, low: jax.Array, high: jax.Array, gamma: float) -> ActorCriticTraining:
    """The bounds that follow from a least and a most reward, or those from before if they are wider."""
    now = training.now
    least, most = jnp.minimum(now.least, low / (1.0 - gamma)), jnp.maximum(now.most, high / (1.0 - gamma))
    return training._replace(now=now._replace(least=least, most=most))


# Learning ------------------------------------------------------------------------------------------------------------


def fit(
    key: jax.Array,
    training: ActorCriticTraining,
    normaliser: Normaliser,
    draw: Callable[[jax.Array], StepBatch],
    box: ActionBox,
    gamma: float,
    steps: int,
) -> tuple[ActorCriticTraining, ActorCriticLoss]:
    """`steps` gradient steps on the critics, and one on the actor after each `CRITIC_STEPS` of them."""
    rounds = max(steps // CRITIC_STEPS, 1)

    def draw_round(k: jax.Array) -> tuple[StepBatch, jax.Array]:
        batch_key, noise_key = jax.random.split(k)
        return jax.vmap(draw)(jax.random.split(batch_key, CRITIC_STEPS)), jax.random.split(noise_key)

    def step(
        now: ActorCriticTraining, drawn: tuple[StepBatch, jax.Array]
    ) -> tuple[ActorCriticTraining, ActorCriticLoss]:
        batches, keys = drawn
        targets = _targets(keys[0], now, normaliser, batches, box, gamma)
        errors: list[jax.Array] = []
        for number in range(CRITIC_STEPS):
            batch = jax.tree.map(lambda leaf, n=number: leaf[n], batches)
            now, error = _critic_step(now, normaliser, batch, targets[number], gamma)
            errors.append(error)
        followed = jax.tree.map(lambda old, new: old + TAU * (new - old), now.targets, now.now.critics)
        now, std, entropy = _actor_step(
            keys[1], now._replace(targets=followed), normaliser, batches.obs[-1], box, gamma
        )
        return now, ActorCriticLoss(jnp.stack(errors).mean(), std, entropy)

    learned, told = chunked_scan.scan(step, training, draw_round, jax.random.split(key, rounds))
    late = jax.tree.map(lambda leaf: leaf[-max(1, rounds // 10) :].mean(), told)
    return learned, late._replace(value_error=jnp.sqrt(late.value_error))


def _targets(
    key: jax.Array,
    training: ActorCriticTraining,
    normaliser: Normaliser,
    batches: StepBatch,
    box: ActionBox,
    gamma: float,
) -> jax.Array:
    """[S, B] what the critics are to say of S batches. Actor and targets hardly move from one batch to the next."""
    now = training.now
    action, density = sample_action(key, now.actor, normaliser, batches.next_obs, box)
    told = careful(values(training.targets, normaliser, batches.next_obs, action, gamma))
    soft = jnp.clip(told, now.least, now.most) - jnp.exp(training.log_alpha) * density
    return batches.reward + gamma * jnp.where(batches.terminated > 0, 0.0, soft)


def _critic_step(
    training: ActorCriticTraining, normaliser: Normaliser, batch: StepBatch, target: jax.Array, gamma: float
) -> tuple[ActorCriticTraining, jax.Array]:
    """One step on all critics, towards one common target. Returns their mean square error."""
    now, unit = training.now, scale(normaliser, gamma)

    def loss(critics: Layers) -> tuple[jax.Array, jax.Array]:
        said = values(critics, normaliser, batch.obs, batch.action, gamma)
        error = (((said - target[None]) / unit) ** 2).mean(axis=1)
        return error.sum(), error.mean()

    gradient, error = jax.grad(loss, has_aux=True)(now.critics)
    critics, optimiser = _moved(now.critics, gradient, training.critic_optimiser)
    return training._replace(now=now._replace(critics=critics), critic_optimiser=optimiser), error


def _actor_step(
    key: jax.Array,
    training: ActorCriticTraining,
    normaliser: Normaliser,
    obs: jax.Array,
    box: ActionBox,
    gamma: float,
) -> tuple[ActorCriticTraining, jax.Array, jax.Array]:
    """One step on the actor and on alpha. Returns by how much critics disagree, and the actor's entropy."""
    now, unit = training.now, scale(normaliser, gamma)
    alpha = jnp.exp(training.log_alpha)

    def loss(actor: Layers) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        action, density = sample_action(key, actor, normaliser, obs, box)
        told = values(now.critics, normaliser, obs, action, gamma)
        return ((alpha * density - careful(told)) / unit).mean(), (density.mean(), (_std(told) / unit).mean())

    gradient, (density, std) = jax.grad(loss, has_aux=True)(now.actor)
    actor, optimiser = _moved(now.actor, gradient, training.actor_optimiser)
    wanted = -0.5 * box.low.shape[0]  # entropy; the loss is -log_alpha (log pi + wanted), so alpha grows below it
    log_alpha, alpha_optimiser = _moved(training.log_alpha, -(density + wanted), training.alpha_optimiser)
    return (
        training._replace(
            now=now._replace(actor=actor),
            log_alpha=log_alpha,
            actor_optimiser=optimiser,
            alpha_optimiser=alpha_optimiser,
        ),
        std,
        -density,
    )


def _moved(params: Params, gradient: Params, state: optax.OptState) -> tuple[Params, optax.OptState]:
    change, state = optax.scale_by_adam().update(gradient, state)  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda old, move: old - LEARNING_RATE * move, params, change), state
