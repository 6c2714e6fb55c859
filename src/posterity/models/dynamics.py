"""The dynamics model: a distribution over networks that predict what a step does.

    (reward, next observation - observation)  ~  N(mean(s, a; w), exp(log_variance(s, a; w))),     w ~ q   (appendix B)

A `DynamicsModel` carries all that a prediction needs. Two kinds of uncertainty are told apart, for each dimension of
(reward, state change), in the units of the normaliser:

    aleatoric  mean over networks of the predicted variance     chance in the outcome: more data does not help
    epistemic  variance over networks of the predicted mean     lack of experience: more data does
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from pydantic import model_validator

from posterity.models import mlp, posterior
from posterity.models.actor_critic import ActorCritic
from posterity.models.critic import Critic
from posterity.models.mlp import ACTIVATIONS, ActivationName, Layers
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.models.reward_map import RewardBelief
from posterity.settings import Settings, setting

LATENT_GAIN = 0.5  # of a fresh network's weights from the latent: tasks of one family are rather alike
NINETY = 1.6449  # standard deviations either side that hold 90 % of a normal


class NetworkSettings(Settings):
    """The shape of the dynamics network."""

    hidden: tuple[int, ...] = setting((128, 128), "Units of each hidden layer (released code: 128 128).")
    activation: ActivationName = setting("elu", "Activation of the hidden layers (released code: elu).")
    log_variance_low: float = setting(-9.0, "Soft lower bound of the predicted log-variance (released code: -9).")
    log_variance_high: float = setting(2.0, "Soft upper bound of the predicted log-variance (released code: 2).")

    @model_validator(mode="after")
    def _sensible(self) -> NetworkSettings:
        if self.log_variance_low >= self.log_variance_high:
            raise ValueError(f"log_variance_low is {self.log_variance_low:g}, not below {self.log_variance_high:g}")
        if any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden is {self.hidden}; a layer has 1 unit or more")
        return self

    def sizes(self, obs_dim: int, action_dim: int, latent: int = 0) -> tuple[int, ...]:
        """Inputs, hidden units and outputs: a mean and a log-variance for the reward and each state dimension."""
        return (obs_dim + action_dim + latent, *self.hidden, 2 * (1 + obs_dim))


class Prediction(NamedTuple):
    """A Gaussian over (reward, state change), in the units of the normaliser."""

    mean: jax.Array  # [..., 1 + O]
    log_variance: jax.Array  # [..., 1 + O]


class Forecast(NamedTuple):
    """What several networks predict together, with both kinds of uncertainty."""

    mean: jax.Array  # [..., 1 + O]
    aleatoric: jax.Array  # [..., 1 + O] a variance
    epistemic: jax.Array  # [..., 1 + O] a variance


class Calibration(NamedTuple):
    """How well a forecast held: means over rows and dimensions, in the units of the normaliser."""

    rmse: jax.Array
    coverage_90: jax.Array  # share inside the 90 % interval
    aleatoric_std: jax.Array
    epistemic_std: jax.Array


class DynamicsModel(NamedTuple):
    """A posterior over networks, and what it takes to use it."""

    posterior: Posterior  # leaves [E, ...]
    normaliser: Normaliser
    noise: jax.Array | None  # [] factor on the spread of members; None: every member is a plain network
    target_std: jax.Array  # [1 + O] the targets' deviation in the normaliser's units: 1 if they are normalised
    critic: Critic | None = None  # the value of what follows the horizon; None: nothing does
    latents: jax.Array | None = None  # [E, M, Z] equally likely hypotheses about the task; None: networks take none
    termination: Layers | None = None  # the classifier of steps that end an episode; None: it is not learned
    actor_critic: ActorCritic | None = None  # a policy and the value of going on by it; None: none is learned
    rewards: RewardBelief | None = None  # a map that says what a step earns; None: the networks say so

    def sample(self, key: jax.Array, count: int) -> Layers:
        """`count` networks, side by side: the members in turn, each with a hypothesis about the task."""
        member = jnp.arange(count) % posterior.members(self.posterior)
        chosen = jax.tree.map(lambda leaf: leaf[member], self.posterior)
        if self.noise is None:
            networks = chosen.mean
        else:
            noise = self.noise
            networks = jax.vmap(lambda k, q: posterior.sample(k, q, noise))(jax.random.split(key, count), chosen)
        if self.latents is None:
            return networks
        place = jax.random.randint(jax.random.fold_in(key, count), (count,), 0, self.latents.shape[1])
        return jax.vmap(mlp.conditioned)(networks, self.latents[member, place])

    def predict(self, networks: Layers, obs: jax.Array, action: jax.Array, settings: NetworkSettings) -> Prediction:
        """[P, N, 1 + O] what each of P networks predicts for its own observations [P, N, O] and actions [N, A]."""
        return self.predict_each(networks, obs, jnp.broadcast_to(action, (obs.shape[0], *action.shape)), settings)

    def predict_each(
        self, networks: Layers, obs: jax.Array, action: jax.Array, settings: NetworkSettings
    ) -> Prediction:
        """The same where every network has actions [P, N, A] of its own."""
        inputs = self.normaliser.inputs(obs, action)
        return jax.vmap(lambda weights, x: forward(weights, x, settings))(networks, inputs)

    def step(self, key: jax.Array, obs: jax.Array, prediction: Prediction, sample: bool) -> tuple[jax.Array, jax.Array]:
        """Rewards [P, N] and next observations [P, N, O]: drawn from a prediction (`sample`), or its mean."""
        mean, log_variance = prediction
        if sample:
            mean = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        return self.normaliser.outcome(obs, mean)

    def log_likelihood(
        self,
        networks: Layers,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        next_obs: jax.Array,
        settings: NetworkSettings,
    ) -> jax.Array:
        """Mean over transitions [B, ...] of the log density that `networks` together give them, but for a constant."""
        inputs, targets = self.normaliser.inputs(obs, action), self.normaliser.targets(obs, reward, next_obs)
        mean, log_variance = jax.vmap(lambda weights: forward(weights, inputs, settings))(networks)
        density = -0.5 * ((targets[None] - mean) ** 2 * jnp.exp(-log_variance) + log_variance).sum(axis=-1)
        return jax.nn.logsumexp(density, axis=0).mean()

    def calibration(
        self,
        networks: Layers,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        next_obs: jax.Array,
        settings: NetworkSettings,
    ) -> Calibration:
        """How well `networks` together foretell these transitions [B, ...]."""
        inputs, targets = self.normaliser.inputs(obs, action), self.normaliser.targets(obs, reward, next_obs)
        return calibration(forecast(networks, inputs, settings), targets)


def init(
    key: jax.Array, obs_dim: int, action_dim: int, settings: NetworkSettings, scale: float, latent: int = 0
) -> Posterior:
    """One member that knows nothing: fresh means, every weight with the deviation `scale`."""
    first, *rest = mlp.init(key, settings.sizes(obs_dim, action_dim, latent))
    taken = jnp.where(jnp.arange(first.weight.shape[0]) < obs_dim + action_dim, 1.0, LATENT_GAIN)
    return posterior.init((first._replace(weight=first.weight * taken[:, None]), *rest), scale)


def forward(weights: Layers, inputs: jax.Array, settings: NetworkSettings) -> Prediction:
    """What one network predicts for inputs [..., O + A]."""
    return gaussian(mlp.apply(weights, inputs, ACTIVATIONS[settings.activation]), settings)


def gaussian(outputs: jax.Array, settings: NetworkSettings) -> Prediction:
    """Raw outputs [..., 2 (1 + O)] as a prediction. The bounds are soft, so the gradient never dies."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    low, high = settings.log_variance_low, settings.log_variance_high
    below = high - jax.nn.softplus(high - raw)
    return Prediction(mean, low + jax.nn.softplus(below - low))


def forecast(networks: Layers, inputs: jax.Array, settings: NetworkSettings) -> Forecast:
    """What P networks predict together for the same inputs [..., O + A]."""
    mean, log_variance = jax.vmap(lambda weights: forward(weights, inputs, settings))(networks)
    return Forecast(mean.mean(axis=0), jnp.exp(log_variance).mean(axis=0), mean.var(axis=0))


def calibration(told: Forecast, targets: jax.Array) -> Calibration:
    """A forecast against what came, targets [..., 1 + O]."""
    error = targets - told.mean
    inside = jnp.abs(error) < NINETY * jnp.sqrt(told.aleatoric + told.epistemic)
    root = jnp.sqrt
    return Calibration(root((error**2).mean()), inside.mean(), root(told.aleatoric.mean()), root(told.epistemic.mean()))
