"""An actor and an ensemble of critics: a policy, and what its actions are worth.

    Q_e(s, a) <- r + gamma (1 - terminated) [ low(Q_target)(s', a') - alpha log pi(a' | s') ],      a' ~ pi(. | s')
    pi        <- maximises  E[ low(Q)(s, a) - alpha log pi(a | s) ],        low(Q) = mean_e Q_e - pessimism std_e Q_e

It is soft actor-critic (Haarnoja et al. 2018) for few samples. Every transition is learned from many times, which
makes critics believe in actions nobody tried. Where they have no data the critics of an ensemble disagree, so the mean
less their deviation is a careful estimate (REDQ, Chen et al. 2021, takes the least of a random two). Hidden layers are
normalised (DroQ, Hiraoka et al. 2022), and no value leaves the bounds of what rewards so far allow.

An actor and critics may be told which task it is: a context z beside the observation, the same for all steps of a task.

alpha is learned too: it keeps the entropy of the actor at a level that is given. How all of it is learned is in
`actor_critic_fit.py`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from posterity.models import mlp
from posterity.models.mlp import Layers
from posterity.models.noise import Noise, noise_setting
from posterity.models.normaliser import Normaliser
from posterity.models.plain_actor import LOG_STD
from posterity.settings import Settings, setting

HIDDEN = (128, 128)  # units of each hidden layer; 256 were no better (results/notes/30)
CRITICS = 5
PESSIMISM = 0.7  # deviations of the critics below their mean
INITIAL_ALPHA = 0.1
INITIAL_LOG_STD = -0.3  # of an actor that knows nothing: wide, so that much is tried


def trial_setting() -> int:
    """The setting of a method whose actor can be inherited."""
    return setting(
        0,
        "Iterations of a task in which the inherited actor takes turns with a fresh one; it goes on only if better.",
        ge=0,
    )


class ActorCriticSettings(Settings):
    """An actor beside the model, and how it is learned."""

    updates_per_step: int = setting(
        0, "Gradient steps on an actor's critics for every step in the environment; 0: no actor (paper).", ge=0
    )
    imagined_share: float = setting(
        0.0, "Share of a batch of the actor's that the model imagines, in short rollouts.", ge=0, lt=1
    )
    imagined_error: float = setting(
        0.0,
        "Times that critics may err more on imagined transitions than on real ones before fewer count; 0: no limit.",
        ge=0,
    )
    noise: Noise = noise_setting()
    trial_iterations: int = trial_setting()


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
    context: jax.Array | None = None  # [B, Z] which task it is; None: the networks are not told


class ActorCriticLoss(NamedTuple):
    """How learning went, over the last tenth of the steps."""

    value_error: jax.Array  # root mean square of the critics' error, in units of the value
    value_std: jax.Array  # deviation between critics, in the same
    entropy: jax.Array  # of the actor, in nats
    imagined: jax.Array | float = 0.0  # share of a batch


def init(
    key: jax.Array,
    obs_dim: int,
    action_dim: int,
    hidden: tuple[int, ...] = HIDDEN,
    critics: int = CRITICS,
    context: int = 0,
) -> ActorCriticTraining:
    """An actor with actions around the middle of the range, and critics for which nothing is worth anything.

    `context`: numbers Z that say which task it is.
    """
    actor_key, critic_key = jax.random.split(key)
    *layers, last = _quiet(_untold(mlp.init(actor_key, (obs_dim + context, *hidden, 2 * action_dim)), context))
    actor = (*layers, last._replace(bias=last.bias.at[action_dim:].set(_raw(INITIAL_LOG_STD))))
    sizes = (obs_dim + action_dim + context, *hidden, 1)
    ensemble = jax.vmap(lambda k: _quiet(_untold(mlp.init(k, sizes), context)))(jax.random.split(critic_key, critics))
    nothing = jnp.float32(0.0)
    log_alpha = jnp.log(jnp.float32(INITIAL_ALPHA))
    optimisers = map(_adam_state, (actor, ensemble, log_alpha))
    return ActorCriticTraining(ActorCritic(actor, ensemble, nothing, nothing), ensemble, log_alpha, *optimisers)


def _raw(log_std: float) -> float:
    """What the network has to say for this log deviation."""
    low, high = LOG_STD
    return math.atanh(2.0 * (log_std - low) / (high - low) - 1.0)


def _quiet(layers: Layers) -> Layers:
    """The same with small weights in the last layer."""
    *hidden, last = layers
    return (*hidden, last._replace(weight=0.01 * last.weight))


def _untold(layers: Layers, context: int) -> Layers:
    """The same, at first without regard to the context [Z]: what a task is called moves while latents are learned."""
    first, *rest = layers
    told = jnp.arange(first.weight.shape[0]) >= first.weight.shape[0] - context
    return (first._replace(weight=jnp.where(told[:, None], 0.0, first.weight)), *rest)


def _adam_state(params: Layers | jax.Array) -> optax.OptState:
    return optax.scale_by_adam().init(params)  # pyright: ignore[reportArgumentType]


def _normalised(layers: Layers, x: jax.Array, context: jax.Array | None) -> jax.Array:
    x = x if context is None else jnp.concatenate([x, context], axis=-1)
    return mlp.apply(layers, x, jax.nn.relu, normalise=True)


def in_task(pair: ActorCritic, context: jax.Array) -> ActorCritic:
    """The networks of one task, whose context [Z] is given: they are told no more."""
    critics = jax.vmap(lambda one: mlp.conditioned(one, context))(pair.critics)
    return pair._replace(actor=mlp.conditioned(pair.actor, context), critics=critics)


# Acting --------------------------------------------------------------------------------------------------------------


def mean_action(actor: Layers, normaliser: Normaliser, obs: jax.Array, box: ActionBox) -> jax.Array:
    """[..., A] the likeliest actions for observations [..., O]."""
    return _scaled(jnp.tanh(_outputs(actor, normaliser, obs)[0]), box)


def sample_action(
    key: jax.Array, actor: Layers, normaliser: Normaliser, obs: jax.Array, box: ActionBox
) -> tuple[jax.Array, jax.Array]:
    """Actions [..., A] of the policy for observations [..., O], and their log densities [...] before the scaling."""
    noise = jax.random.normal(key, (*obs.shape[:-1], box.low.shape[0]))
    return drawn_action(noise, actor, normaliser, obs, box)


def drawn_action(
    noise: jax.Array,
    actor: Layers,
    normaliser: Normaliser,
    obs: jax.Array,
    box: ActionBox,
    context: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """`sample_action` with normals [..., A] that are there already, and contexts [..., Z] if the actor takes them."""
    mean, log_std = _outputs(actor, normaliser, obs, context)
    raw = mean + jnp.exp(log_std) * noise
    # log(1 - tanh(x)^2), without the loss of digits where tanh is nearly one
    squash = 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    density = (-0.5 * noise**2 - log_std - 0.5 * jnp.log(2.0 * jnp.pi) - squash).sum(axis=-1)
    return _scaled(jnp.tanh(raw), box), density


def _outputs(
    actor: Layers, normaliser: Normaliser, obs: jax.Array, context: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Mean and log deviation [..., A] before the squashing. The deviation's bounds are soft."""
    size = obs.shape[-1]
    centre, scale = (mlp.across(part[:size], obs) for part in (normaliser.input_mean, normaliser.input_scale))
    mean, raw = jnp.split(_normalised(actor, (obs - centre) / scale, context), 2, axis=-1)
    low, high = LOG_STD
    return mean, low + 0.5 * (high - low) * (1.0 + jnp.tanh(raw))


def _scaled(unit: jax.Array, box: ActionBox) -> jax.Array:
    """From -1 .. 1 to the range of actions."""
    low, high = mlp.across(box.low, unit), mlp.across(box.high, unit)
    return low + 0.5 * (high - low) * (1.0 + unit)


# Values --------------------------------------------------------------------------------------------------------------


def values(
    critics: Layers,
    normaliser: Normaliser,
    obs: jax.Array,
    action: jax.Array,
    gamma: float,
    context: jax.Array | None = None,
) -> jax.Array:
    """[E, ...] what each critic says of actions [..., A] in observations [..., O], in units of the reward.

    `context` [..., Z], if critics take one.
    """
    inputs = normaliser.inputs(obs, action)
    told = jax.vmap(lambda one: _normalised(one, inputs, context)[..., 0])(critics)
    return told * scale(normaliser, gamma)


def careful(told: jax.Array) -> jax.Array:
    """[...] of what critics say [E, ...]: the mean, less what they disagree by."""
    return told.mean(axis=0) - PESSIMISM * disagreement(told)


def disagreement(told: jax.Array) -> jax.Array:
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
