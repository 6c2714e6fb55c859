"""What the policy gradient methods share: acting, advantages, one natural step an iteration, and a task's curvature.

    g = d/dx [ mean(pi_x(a | s) / pi_old(a | s) A(s, a)) + regulariser(x) ],        x <- x + natural step along g

A method says what it trains (`x`), how that makes a policy (`compose`), which of it moves in a task (`mask`), what the
earlier tasks ask of it (`regulariser`), and what it remembers of a finished task (`end_task`).

The noise of an iteration is drawn before it begins and is part of the state. So `act` is a few NumPy operations, and
the likelihood is that of the action as it was drawn, though the environment got, and the rows hold, the clipped one.

Departures from the published code. A task's curvature is measured on its last iteration, by the likelihood ratio of the
final policy, where the published code collects ten further trajectories. An episode that the end of an iteration cuts
off is bootstrapped with its value; the published code never cuts one off.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from pydantic import model_validator

from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.agents.lanes import compiled
from posterity.errors import UserError
from posterity.models import baseline
from posterity.models import policy as gaussian
from posterity.models.baseline import Episodes, Value, ValueSettings
from posterity.models.natural import natural_step
from posterity.models.policy import ActionRange, Batch, PolicyParams, Shape
from posterity.settings import Settings, setting
from posterity.types import Array, BoolArray, Budget, FloatArray, HostArray, Spec, Transition

DISCRETE = (
    "The policy gradients (npg, ewc, lpg-ftw) act by a Gaussian, and this family's actions are discrete; use vblrl"
)


class GradientSettings(Settings):
    """What every policy gradient method can be told."""

    hidden: tuple[int, ...] = setting(
        (), "Number of tanh units in each hidden layer of the policy; empty: a linear policy."
    )
    step_size: float = setting(
        0.01, "Size of the natural gradient step of an iteration: twice the KL divergence it aims at.", gt=0
    )
    gamma: float = setting(0.995, "Discount factor (published: 0.995).", ge=0, le=1)
    gae_lambda: float = setting(
        0.97,
        "Lambda of generalised advantage estimation: 0 is one-step, 1 is Monte Carlo (published: 0.97).",
        ge=0,
        le=1,
    )
    bootstrap: bool = setting(
        True, "Add the value of the last state to an episode that its time limit cuts off (published: false)."
    )
    damping: float = setting(1e-4, "Added to the diagonal of the Fisher matrix (published: 1e-4).", ge=0)
    cg_iterations: int = setting(
        10, "Conjugate gradient iterations that solve for the natural gradient (published: 10).", ge=1
    )
    initial_scale: float = setting(
        0.01, "The first weights of the policy's output layer are multiplied by this (published: 0.01).", ge=0
    )
    initial_log_std: float = setting(
        0.0, "Log standard deviation of a new policy's actions, whose range is scaled to -1 .. 1 (published: 0)."
    )
    min_log_std: float = setting(-3.0, "Lower bound of the log standard deviation of actions (published: -3).")
    value: ValueSettings = ValueSettings()

    @model_validator(mode="after")
    def _sensible(self) -> GradientSettings:
        if any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden is {self.hidden}; a layer has 1 unit or more")
        return self


class _Trained(Protocol):
    """What a task can train: a NamedTuple with a field `log_std`."""

    @property
    def log_std(self) -> Array: ...
    def _replace(self, *, log_std: Array) -> Self: ...


class _Snapshot(Protocol):
    """What can act: parameters `theta` [L, d]."""

    @property
    def theta(self) -> Array: ...


Trained = TypeVar("Trained", bound=_Trained)
Memory = TypeVar("Memory")  # of finished tasks
Terms = TypeVar("Terms")  # what the regulariser takes of it
Snapshot = TypeVar("Snapshot", bound=_Snapshot)


class GradientState(NamedTuple, Generic[Trained, Memory]):
    """Everything a run is. Arrays have a leading axis of L lanes; plain numbers are the same for all."""

    trained: Trained  # x: what the present task trains
    memory: Memory  # of earlier tasks
    policy: PolicyParams  # that acts: x composed
    value: Value
    noise: HostArray  # [L, B, A] of the iteration that runs or comes next
    step: int  # of that iteration
    number: int  # of the present task
    iteration: int  # of the present task


class MeanPolicy(Policy):
    """Plays the mean action of a policy."""

    def __init__(self, theta: HostArray, layers: Shape, actions: ActionRange) -> None:
        self.theta, self.layers, self.actions = theta, layers, actions

    def act(self, keys: Keys, obs: HostArray, first: BoolArray) -> HostArray:
        """[L, A] the mean actions, clipped."""
        return self.actions.clipped(gaussian.mean(self.theta, obs[:, None], self.layers)[:, 0])

    def facts(self) -> Info:
        """Nothing."""
        return {}


class PolicyGradient(Agent[GradientState[Trained, Memory], Snapshot], Generic[Trained, Memory, Terms, Snapshot]):
    """The agent contract for policy gradients. Methods fill in the part `What a method says`."""

    wants_curvature = False  # whether `end_task` is to be told the curvature of a finished task

    def __init__(self, spec: Spec, settings: GradientSettings, budget: Budget) -> None:
        if spec.actions:
            raise UserError(DISCRETE)
        self.spec, self.settings, self.budget = spec, settings, budget
        self.actions = ActionRange(np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32))
        self.action_dim = len(self.actions.low)
        self.layers = gaussian.shape(spec.obs_dim, settings.hidden, self.action_dim)
        self.size = gaussian.size(self.layers)
        # What tasks have in common: all of a linear policy; the hidden layers of one that has some.
        self.shared = gaussian.size(self.layers[:-1]) if settings.hidden else self.size
        self._init_params = compiled(self.init_params)
        self._init_value = compiled(self._init_value_one)
        self._compose = compiled(self.compose)
        self._update = compiled(self._update_one)
        self._curvature = compiled(self._curvature_one)

    # What a method says ------------------------------------------------------------------------------------------

    @abstractmethod
    def init_params(self, key: jax.Array) -> Trained:
        """x of a learner that knows nothing, for one lane."""

    @abstractmethod
    def init_memory(self, lanes: int) -> Memory:
        """The memory before the first task."""

    @abstractmethod
    def init_task_params(self, keys: Keys, state: GradientState[Trained, Memory]) -> Trained:
        """x when a task begins, for all lanes. `state.number` is still that of the task before, -1 if there is none."""

    @abstractmethod
    def compose(self, trained: Trained) -> PolicyParams:
        """The policy that x makes, for one lane."""

    def mask(self, number: jax.Array) -> Trained | None:
        """1 for what moves in task `number`, 0 for what does not, in the shape of one lane's x; None: all moves."""
        return None

    @abstractmethod
    def regulariser_terms(self, state: GradientState[Trained, Memory]) -> Terms:
        """What `regulariser` takes, with a leading axis of lanes."""

    def regulariser(self, trained: Trained, terms: Terms) -> jax.Array:
        """What the earlier tasks add to the objective of one lane."""
        return jnp.zeros(())

    def end_task(
        self, state: GradientState[Trained, Memory], gradient: FloatArray, fisher: FloatArray
    ) -> GradientState[Trained, Memory]:
        """A task is over: `gradient` [L, d] and `fisher` [L, d, d] are those of its shared part at the final policy."""
        return state

    @abstractmethod
    def policy_for(self, own: Snapshot, latest: Snapshot) -> Array:
        """[L, d] the policy for an earlier task, from the snapshot that was taken in it and the latest one."""

    # The contract ------------------------------------------------------------------------------------------------

    def fresh_params(self, keys: Keys) -> Trained:
        """x of a learner that knows nothing, for all lanes."""
        return jax.device_get(self._init_params(keys))

    def init(self, keys: Keys) -> GradientState[Trained, Memory]:
        """Fresh everything, and no task yet."""
        trained, value = self.fresh_params(keys), jax.device_get(self._init_value(keys))
        lanes, actions = len(keys), self.action_dim
        blank = PolicyParams(np.zeros((lanes, self.size), np.float32), np.zeros((lanes, actions), np.float32))
        noise = np.zeros((lanes, self.budget.steps_per_iteration, actions), np.float32)
        return GradientState(trained, self.init_memory(lanes), blank, value, noise, step=0, number=-1, iteration=0)

    def begin_task(self, keys: Keys, state: GradientState[Trained, Memory]) -> GradientState[Trained, Memory]:
        """A policy by the method's rule, and a fresh value network."""
        trained = self.init_task_params(keys, state)
        value = self._init_value([key.fold("value") for key in keys])
        trained, composed, value = jax.device_get((trained, self._compose(trained), value))
        return GradientState(trained, state.memory, composed, value, self._noise(keys), 0, state.number + 1, 0)

    def act(
        self, keys: Keys, state: GradientState[Trained, Memory], obs: HostArray, first: BoolArray
    ) -> tuple[GradientState[Trained, Memory], HostArray]:
        """A draw from the policy, clipped. Its noise was drawn before the iteration began."""
        noise = state.noise[:, state.step % self.budget.steps_per_iteration]
        mean = gaussian.mean(state.policy.theta, obs[:, None], self.layers)[:, 0]
        return state._replace(step=state.step + 1), self.actions.clipped(mean + np.exp(state.policy.log_std) * noise)

    def update(
        self, keys: Keys, state: GradientState[Trained, Memory], rows: Transition
    ) -> tuple[GradientState[Trained, Memory], Info]:
        """One natural step, then the value network; after a task's last iteration, what is remembered of it."""
        episodes = baseline.split_episodes(rows, self.settings.bootstrap)
        trained, composed, value, advantage, facts = jax.device_get(
            self._update(
                [key.fold("fit") for key in keys],
                state.trained,
                state.value,
                state.policy,
                state.number,
                self.regulariser_terms(state),
                state.noise,
                episodes,
            )
        )
        info = _checked(facts, state.number, state.iteration)
        after = state._replace(trained=trained, policy=composed, value=value, noise=self._noise(keys))
        after = after._replace(step=0, iteration=state.iteration + 1)
        if self.wants_curvature and after.iteration == self.budget.iterations:
            batch = Batch(episodes.obs, state.noise, advantage)
            gradient, fisher = jax.device_get(self._curvature(composed, state.policy, batch))
            after = self.end_task(after, gradient.astype(np.float64), fisher.astype(np.float64))
        return after, info

    def policy(self, own: Snapshot, latest: Snapshot, score: Score, variant: str) -> Policy:
        """The mean action of the task's own policy; for the score back, of what has become of it."""
        theta = self.policy_for(own, latest) if score == "back" else own.theta
        return MeanPolicy(np.asarray(theta), self.layers, self.actions)

    # One lane ----------------------------------------------------------------------------------------------------

    def new_policy(self, key: jax.Array) -> PolicyParams:
        """A policy that has learned nothing: its means are near zero."""
        theta = gaussian.init(jax.random.fold_in(key, 0), self.layers, self.settings.initial_scale)
        return PolicyParams(theta, jnp.full(self.action_dim, self.settings.initial_log_std, jnp.float32))

    def _init_value_one(self, key: jax.Array) -> Value:
        return baseline.init(jax.random.fold_in(key, 1), self.spec.obs_dim, self.settings.value)

    def _update_one(
        self,
        key: jax.Array,
        trained: Trained,
        value: Value,
        old: PolicyParams,
        number: jax.Array,
        terms: Terms,
        noise: jax.Array,
        episodes: Episodes,
    ) -> tuple[Trained, PolicyParams, Value, jax.Array, dict[str, jax.Array]]:
        """x, its policy and the value network after the iteration; the advantages that moved them, and numbers."""
        settings = self.settings
        advantage, target = baseline.advantages(value, episodes, settings.gamma, settings.gae_lambda)
        white = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        batch = Batch(episodes.obs, noise, white)
        flat, unravel = ravel_pytree(trained)
        mask = self.mask(number)
        moves = jnp.ones_like(flat) if mask is None else ravel_pytree(mask)[0]

        def objective(x: jax.Array) -> jax.Array:
            here = unravel(x)
            return gaussian.surrogate(self.compose(here), old, batch, self.layers) + self.regulariser(here, terms)

        product = gaussian.fisher_product(lambda x: self.compose(unravel(x)), flat, episodes.obs, self.layers)
        gradient = jax.grad(objective)(flat) * moves
        step = natural_step(
            gradient, lambda v: moves * product(moves * v), settings.step_size, settings.damping, settings.cg_iterations
        )
        trained = unravel(flat + step)
        trained = trained._replace(log_std=jnp.maximum(trained.log_std, settings.min_log_std))
        new = self.compose(trained)
        error = target - baseline.predict(value.weights, episodes.obs, episodes.time)
        facts = {
            "kl": gaussian.kl(old, new, episodes.obs, self.layers),
            "std": jnp.exp(new.log_std).mean(),
            "value_error": jnp.sqrt((error**2).mean()),
        }
        if self.wants_curvature:
            facts["penalty"] = self.regulariser(trained, terms)
        value = baseline.fit(key, value, episodes, target, settings.value)
        return trained, new, value, white, facts

    def _curvature_one(self, new: PolicyParams, old: PolicyParams, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Gradient [d] and Fisher matrix [d, d] of the shared part at the new policy, from the steps of the old one."""

        def at(shared: jax.Array) -> PolicyParams:
            return PolicyParams(jnp.concatenate([shared, new.theta[self.shared :]]), new.log_std)

        here = jnp.asarray(new.theta[: self.shared])
        gradient = jax.grad(lambda shared: gaussian.surrogate(at(shared), old, batch, self.layers))(here)
        product = gaussian.fisher_product(at, here, batch.obs, self.layers)
        return gradient, jax.lax.map(product, jnp.eye(self.shared), batch_size=16)

    def _noise(self, keys: Keys) -> HostArray:
        size = (self.budget.steps_per_iteration, self.action_dim)
        return np.stack([key.fold("noise").generator().standard_normal(size, np.float32) for key in keys])


def _checked(facts: Mapping[str, HostArray], task: int, iteration: int) -> Info:
    """Numbers [L] to six digits. If one is not finite the policy has diverged, and that ends the run."""
    for name, values in facts.items():
        if not np.isfinite(values).all():
            wrong = values[~np.isfinite(values)][0]
            where = f"task {task}, iteration {iteration}"
            raise UserError(f"The policy diverged in {where} ({name} is {wrong}); try a smaller --step-size")
    return {name: np.array([float(f"{value:.6g}") for value in values]) for name, values in facts.items()}
