"""How a method is flown: all that differs between methods, for `Controller`.

ModelPilot     vblrl and its variants: searches with a model, or asks an actor that acts alone; tells its uncertainty,
               and can go on learning
FinitePilot    methods for finite MDPs: plans with the posterior, and learns at every step
PolicyPilot    any other method: plays the policy of its evaluation, and does not learn

A pilot holds no belief: the state is handed to it. States have one lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from posterity import tree
from posterity.agents import lanes, memory
from posterity.agents.base import Policy
from posterity.agents.vblrl import Vblrl, VblrlState
from posterity.control.building import AnyAgent, on_device
from posterity.control.following import Following
from posterity.control.search import AnytimeSearch
from posterity.errors import UserError
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.types import HostArray, Key, Transition

WINDOW = 50  # transitions that are judged together
NETWORKS = 16  # that uncertainty and likelihood are taken over
LEAST = -10.0  # nats for each dimension: one freak transition does not outweigh all others


class Forecast(NamedTuple):
    """What is expected of one action, in the environment's units. Standard deviations tell how sure that is."""

    reward: float
    next_obs: HostArray  # [O]
    aleatoric_reward: float  # chance in the outcome, which more data does not take away
    aleatoric_obs: HostArray  # [O]
    epistemic_reward: float  # lack of experience, which more data takes away
    epistemic_obs: HostArray  # [O]


class Pilot(ABC):
    """What a controller asks of a method."""

    learns = False
    iterations = 0  # of a search, behind the last action

    @abstractmethod
    def act(self, key: Key, state: object, obs: HostArray, first: bool, budget: float | None) -> HostArray:
        """[A] the best action found within `budget` seconds."""

    def observe(self, key: Key, state: object, step: Transition) -> object:
        """One step [1, ...] happened."""
        return state

    def update(self, key: Key, state: object, rows: Transition) -> object:
        """The state after learning from rows [1, B, ...]. The state it is given stays whole."""
        raise _needs_a_model("learning on the machine")

    def forecast(self, key: Key, state: object, obs: HostArray, action: HostArray) -> Forecast:
        """What is expected of an action [A] in a place [O]."""
        raise _needs_a_model("uncertainty")

    def explains(self, key: Key, state: object, rows: Transition) -> HostArray | None:
        """[B] how well the present beliefs explain rows [B, ...], in nats for each dimension; None: cannot tell."""
        return None

    def remembered(self, state: object) -> list[Transition]:
        """The rows [B, ...] of each task that are in memory, in order."""
        return []

    def bounded(self, state: object, transitions: int) -> object:
        """The state with at most so many transitions of each task in memory."""
        return state

    def restart(self) -> None:  # noqa: B027
        """Another task begins: what was found by the latest steps is forgotten."""

    def prepare(self, key: Key, state: object) -> None:  # noqa: B027
        """What would delay the very first action, short of compiling."""

    def warm_up(self, key: Key, state: object, budget: float | None, learn: bool) -> None:  # noqa: B027
        """Compiles all that is needed later."""

    def close(self) -> None:  # noqa: B027
        """Ends what runs beside."""


def pilot_for(agent: AnyAgent) -> Pilot:
    """The pilot for an agent."""
    if isinstance(agent, Vblrl):
        return ModelPilot(agent)
    return FinitePilot(agent) if agent.finite else PolicyPilot(agent)


def _needs_a_model(what: str) -> UserError:
    return UserError(f"{what} needs a method with a model (vblrl, pooled, single-task), and this file's has none")


class PolicyPilot(Pilot):
    """Plays the policy that an agent's evaluation plays."""

    def __init__(self, agent: AnyAgent) -> None:
        self.agent = agent
        self._of: object = None  # the state whose policy it is
        self._policy: Policy | None = None

    def prepare(self, key: Key, state: object) -> None:
        """Makes the policy."""
        snapshot = self.agent.snapshot([key.fold("snapshot")], state)
        self._policy, self._of = self.agent.policy(snapshot, snapshot, "train", ""), state

    def act(self, key: Key, state: object, obs: HostArray, first: bool, budget: float | None) -> HostArray:
        """At once, whatever the budget is."""
        if self._policy is None or state is not self._of:
            self.prepare(key, state)
        assert self._policy is not None
        return np.asarray(self._policy.act([key], obs[None], np.array([first])))[0]


class FinitePilot(Pilot):
    """Acts and learns as in a run. Acting may make a plan: the state with it is kept until the step is observed."""

    def __init__(self, agent: AnyAgent) -> None:
        self.agent = agent
        self._of: object = None  # the state that was acted on
        self._planned: object = None  # the same state after acting

    def act(self, key: Key, state: object, obs: HostArray, first: bool, budget: float | None) -> HostArray:
        """The plan is made whole, whatever the budget is."""
        self._planned, actions = self.agent.act([key], self._latest(state), obs[None], np.array([first]))
        self._of = state
        return np.asarray(actions)[0]

    def observe(self, key: Key, state: object, step: Transition) -> object:
        """Counts the step: the task's posterior, and by it the plan, follow at once."""
        return self.agent.observe([key], self._latest(state), step)

    def restart(self) -> None:
        """The plan is forgotten."""
        self._of = self._planned = None

    def _latest(self, state: object) -> object:
        return self._planned if state is self._of and self._planned is not None else state


class ModelPilot(Pilot):
    """Searches with the agent's acting model. Of the agent it uses the contract, `acting`, and what states hold.

    Where there is a latent it follows the latest steps. Inferring it takes a while, so where actions have a budget of
    time that is done in the background, and acting goes on with what is believed until then.
    """

    learns = True

    def __init__(self, agent: Vblrl) -> None:
        self.agent = agent
        self.search = AnytimeSearch(agent.spec, agent.settings)
        self._hurried = False  # the last action had a budget
        self._forecast = lanes.compiled(_Beliefs(agent.settings.network).forecast)
        self._explains = lanes.compiled(_Beliefs(agent.settings.network).log_likelihood)
        self.following = None if agent.inference is None else Following(agent, agent.inference, self._explains)

    def act(self, key: Key, state: object, obs: HostArray, first: bool, budget: float | None) -> HostArray:
        """The first action of the best plan found in time; of an actor that acts alone, the likeliest, at once."""
        here = _vblrl(state)
        self._hurried = budget is not None
        if here.guard is not None:
            who = here.guard.playing, here.normaliser
            return self.agent.actor.act([key], obs[None], *who, explores=False, latents=here.latents)[0]
        model = self._acting(here)
        found = self.search.decide(key, obs, model, first, budget, self._proposed(key, obs, model))
        self.iterations = found.iterations
        return self.agent.spec.decoded(found.mean[0])

    def _proposed(self, key: Key, obs: HostArray, model: DynamicsModel) -> HostArray | None:
        """[A] what the actor would do, at once; None: there is none."""
        pair = model.actor_critic
        return pair and self.agent.actor.act([key], obs[None], pair.actor, model.normaliser, explores=False)[0]

    def restart(self) -> None:
        """The agent's own choice acts."""
        if self.following is not None:
            self.following.restart()

    def prepare(self, key: Key, state: object) -> None:
        """Makes the model that acts."""
        self.agent.acting(_vblrl(state))

    def observe(self, key: Key, state: object, step: Transition) -> VblrlState:
        """By the agent, which counts steps as it acts; here the search acts. A latent follows the latest steps."""
        here = _vblrl(state)
        here = here._replace(step=here.step + 1)
        if self.following is None:
            return self.agent.observe([key], here, step)
        return self.following.observe(key, self.agent.with_reward(here, step), step, self._hurried)

    def _acting(self, state: VblrlState) -> DynamicsModel:
        """The agent's acting model; with a latent the world's, where that explains the latest steps better."""
        by_world = self.following is not None and self.following.world_acts
        return self.agent.model_of("world", state) if by_world else self.agent.acting(state)

    def update(self, key: Key, state: object, rows: Transition) -> VblrlState:
        """By the agent, on a copy: it may reuse the memory of what it is given."""
        here = _vblrl(state)
        here = here._replace(replay=memory.thinned(here.replay, here.task_number, np.asarray(rows.reward).shape[1]))
        return self.agent.update([key], on_device(here, here), rows)[0]

    def forecast(self, key: Key, state: object, obs: HostArray, action: HostArray) -> Forecast:
        """By networks drawn from the acting model."""
        move = self.agent.spec.encoded(action)
        told = self._forecast([key], self.agent.acting(_vblrl(state)), obs[None], move[None])
        mean, aleatoric, epistemic = (np.asarray(part)[0] for part in told)
        return Forecast(
            float(mean[0]), mean[1:], float(aleatoric[0]), aleatoric[1:], float(epistemic[0]), epistemic[1:]
        )

    def explains(self, key: Key, state: object, rows: Transition) -> HostArray:
        """By the acting model or by the world's, whichever explains them better on the whole."""
        here = _vblrl(state)
        rows = rows._replace(action=self.agent.spec.encoded(rows.action))
        arrays = [np.asarray(part, np.float32)[None] for part in rows[:4]]
        models = [self.agent.acting(here)]
        if self.agent.variant.inherits:  # in a task's first iteration the world's model acts
            models.append(self.agent.acting(here._replace(iteration=0)))
        told = [np.asarray(self._explains([key], model, *arrays))[0] for model in models]
        return max(told, key=lambda each: float(np.mean(each)))

    def remembered(self, state: object) -> list[Transition]:
        """From the replay. Endings are not kept there."""
        kept = tree.lane(_vblrl(state).replay, 0)
        tasks: list[Transition] = []
        for task, met in enumerate(np.asarray(kept.filled).tolist()):
            count = min(met, kept.reward.shape[1])  # of a bounded memory fewer than were met
            none = np.zeros(count, bool)
            obs, action, reward, next_obs = (np.asarray(part)[task, :count] for part in kept[:4])
            tasks.append(Transition(obs, self.agent.spec.decoded(action), reward, next_obs, none, none))
        return tasks

    def bounded(self, state: object, transitions: int) -> VblrlState:
        """Evenly spaced over the life of each task."""
        here = _vblrl(state)
        return here._replace(replay=memory.bounded(here.replay, transitions))

    def warm_up(self, key: Key, state: object, budget: float | None, learn: bool) -> None:
        """All sizes of the search that fit; what is told; and one round of learning, which is thrown away."""
        here, spec = _vblrl(state), self.agent.spec
        obs = np.asarray(here.normaliser.input_mean)[0, : spec.obs_dim].astype(np.float32)
        action = spec.decoded(((spec.low + spec.high) / 2.0).astype(np.float32))
        if here.guard is None:
            self.search.warm_up(key, obs, self.agent.acting(here), budget)
        self.forecast(key, here, obs, action)
        count = self.agent.budget.steps_per_iteration
        none = np.zeros((1, count), bool)
        rows = Transition(
            np.tile(obs, (1, count, 1)),
            np.tile(action, (1, count, *(1 for _ in action.shape))),
            np.zeros((1, count), np.float32),
            np.tile(obs, (1, count, 1)),
            none,
            none,
        )
        self.observe(key, here._replace(step=0, iteration=0), Transition(*(np.asarray(part)[:, 0] for part in rows)))
        if self.following is not None:
            self.following.warm_up(key, here)
        self.explains(key, here, Transition(*(np.repeat(np.asarray(part)[0, :1], WINDOW, axis=0) for part in rows)))
        if learn:
            self.update(key, here, rows)
            self.update(key, here._replace(iteration=max(here.iteration, self.agent.start_iterations)), rows)

    def close(self) -> None:
        """Ends the threads."""
        if self.following is not None:
            self.following.close()
        self.search.close()


def _vblrl(state: object) -> VblrlState:
    return cast(VblrlState, state)


class _Beliefs:
    """What a model expects, for one lane."""

    def __init__(self, network: NetworkSettings) -> None:
        self.network = network

    def forecast(
        self, key: jax.Array, model: DynamicsModel, obs: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, ...]:
        """Expected reward and next observation, and both kinds of standard deviation, [1 + O] each, in real units."""
        mean, log_variance = self._predictions(key, model, obs[None], action[None])
        mean, log_variance = mean[:, 0], log_variance[:, 0]
        reward, following = model.normaliser.outcome(obs, mean.mean(axis=0))
        scale = model.normaliser.target_scale
        expected = jnp.concatenate([reward[None], following])
        return expected, scale * jnp.sqrt(jnp.exp(log_variance).mean(axis=0)), scale * mean.std(axis=0)

    def log_likelihood(
        self,
        key: jax.Array,
        model: DynamicsModel,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        next_obs: jax.Array,
    ) -> jax.Array:
        """[B] the log density of outcomes under the mixture of networks, for each dimension, in normalised units."""
        mean, log_variance = self._predictions(key, model, obs, action)
        error = model.normaliser.targets(obs, reward, next_obs)[None] - mean
        each = -0.5 * (error**2 * jnp.exp(-log_variance) + log_variance + jnp.log(2.0 * jnp.pi))
        width = mean.shape[-1]
        mixed = jax.nn.logsumexp(each.sum(axis=-1), axis=0) - jnp.log(jnp.float32(NETWORKS))
        return jnp.maximum(mixed / width, LEAST)

    def _predictions(
        self, key: jax.Array, model: DynamicsModel, obs: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """[P, B, 1 + O] means and log-variances for rows [B, ...], normalised."""
        networks = model.sample(key, NETWORKS)
        told = model.predict(networks, jnp.broadcast_to(obs, (NETWORKS, *obs.shape)), action, self.network)
        return told.mean, told.log_variance
