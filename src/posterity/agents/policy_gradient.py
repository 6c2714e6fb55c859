"""What the policy gradient methods share: acting, advantages, one natural step an iteration, and a task's curvature.

    g = d/dx [ mean(pi_x(a | s) / pi_old(a | s) A(s, a)) + prior(x) ],        x <- x + natural step along g

A method says what it trains (`x`), how that makes a policy (`compose`), which of it moves in a task (`mask`), what the
earlier tasks ask of it (`prior`), and what it keeps of a finished task (`finish`). Everything is written for one lane
and runs for all lanes through `vmap`.

The noise of an iteration is drawn before it begins and kept in the state. So `act` is a few NumPy operations, and the
likelihood is that of the action as it was drawn, though the environment was handed, and the rows hold, the clipped one.

Departures from the published code. A task's curvature is measured on its last iteration, by the likelihood ratio of the
final policy, where the published code collects ten further trajectories. An episode that the end of an iteration cuts
goes on with its value; the published code never cuts one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from pydantic import model_validator

from posterity.agents import packed
from posterity.agents.base import Info, Score, Strategy
from posterity.errors import UserError
from posterity.models import policy as gaussian
from posterity.models import value as critic
from posterity.models.baseline import Course, Value, ValueSettings
from posterity.models.natural import natural_step
from posterity.models.policy import Batch, Policy
from posterity.settings import Settings, setting
from posterity.types import Budget, FloatArray, Key, Spec, Transition


class GradientSettings(Settings):
    """What every policy gradient method can be told."""

    hidden: tuple[int, ...] = setting((), "Units of the policy's hidden layers, of tanh; none: a linear policy.")
    step_size: float = setting(0.01, "Normalised size of a step: twice the KL divergence it aims at.", gt=0)
    gamma: float = setting(0.995, "Discount (published: 0.995).", ge=0, le=1)
    trace: float = setting(0.97, "Lambda of generalised advantage estimation (published: 0.97).", ge=0, le=1)
    bootstrap: bool = setting(
        True, "What a time limit cuts off is worth its value; false: nothing, as in the published code."
    )
    damping: float = setting(1e-4, "Added to the diagonal of the Fisher matrix (published: 1e-4).", ge=0)
    rounds: int = setting(10, "Conjugate gradient iterations (published: 10).", ge=1)
    initial_scale: float = setting(0.01, "Factor on the output layer's first weights (published: 0.01).", ge=0)
    initial_log_std: float = setting(0.0, "Log deviation of a new policy; the action range is -1 .. 1 (published: 0).")
    least_log_std: float = setting(-3.0, "No log deviation falls below this (published: -3).")
    value: ValueSettings = ValueSettings()

    @model_validator(mode="after")
    def _sensible(self) -> GradientSettings:
        if any(units < 1 for units in self.hidden):
            raise ValueError(f"hidden is {self.hidden}; a layer has 1 unit or more")
        return self


class GradientState(NamedTuple):
    """Everything a run is. Arrays carry a leading axis of L lanes; numbers are the same for all."""

    trained: Any  # x: what the present task trains; a NamedTuple with a field `log_std`
    memory: Any  # of earlier tasks
    policy: Policy  # that acts: x composed
    value: Value
    noise: Any  # [L, steps, A] of the iteration that runs or comes next
    step: int  # of that iteration
    number: int  # of the present task
    iteration: int  # of the present task


class Kept(NamedTuple):
    """What it takes to act in a task later on."""

    theta: Any  # [L, d]
    log_std: Any  # [L, A]


class Player(NamedTuple):
    """What acts in an evaluation: the mean of a policy."""

    theta: Any  # [L, d]


class PolicyGradient:
    """The Agent contract for all lanes together. Methods fill in the part `What a method says`."""

    together = True
    start = 1  # the score Start is taken after the first update, as published
    remembers = False  # whether the curvature of a finished task is wanted

    def __init__(self, spec: Spec, settings: Any, budget: Budget) -> None:
        self.spec, self.settings, self.budget = spec, settings, budget
        self.low, self.high = np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)
        self.centre, self.half = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.layers = gaussian.shape(spec.obs_dim, settings.hidden, len(self.half))
        self.size = gaussian.size(self.layers)
        # What tasks have in common: all of a linear policy; the hidden layers of one that has some.
        self.shared = gaussian.size(self.layers[:-1]) if settings.hidden else self.size
        self._fresh = jax.jit(jax.vmap(self._fresh_one))
        self._fresh_value = jax.jit(jax.vmap(self._fresh_value_one))
        self._composed = jax.jit(jax.vmap(self.compose))
        self._update = jax.jit(jax.vmap(self._update_one, in_axes=(0, 0, 0, 0, None, 0, 0, 0)))
        self._curve = jax.jit(jax.vmap(self._curve_one))

    # What a method says ------------------------------------------------------------------------------------------

    def fresh(self, keys: list[Key]) -> Any:
        """x of a learner that knows nothing, for all lanes."""
        return jax.device_get(self._fresh(packed.key_data(keys)))

    def begin(self, keys: list[Key], state: GradientState) -> tuple[Any, Any]:
        """What is trained, and the memory, when a task begins. `state.number` is still that of the task before."""
        raise NotImplementedError

    def blank(self, lanes: int) -> Any:
        """The memory before the first task."""
        return ()

    def compose(self, trained: Any) -> Policy:
        """The policy of one lane."""
        return Policy(trained.theta, trained.log_std)

    def mask(self, number: int) -> Any:
        """1 for what moves in task `number`, in the shape of one lane's x; None: all of it."""
        return None

    def terms(self, state: GradientState) -> Any:
        """What `prior` needs, with a leading axis of lanes."""
        return ()

    def prior(self, trained: Any, terms: Any) -> jax.Array:
        """What the earlier tasks add to the objective of one lane."""
        return jnp.zeros(())

    def finish(self, state: GradientState, gradient: FloatArray, fisher: FloatArray) -> GradientState:
        """A task is over: `gradient` [L, d] and `fisher` [L, d, d] are those of its shared part at the final policy."""
        return state

    def recall(self, own: Any, latest: Any) -> Any:
        """[L, d] the policy for an earlier task, from what was kept in it and what was kept last."""
        return own.theta

    # The contract ------------------------------------------------------------------------------------------------

    def init(self, keys: list[Key]) -> GradientState:
        """Fresh everything, and no task yet."""
        trained, value = self.fresh(keys), jax.device_get(self._fresh_value(packed.key_data(keys)))
        lanes, actions = len(keys), len(self.half)
        blank = Policy(np.zeros((lanes, self.size), np.float32), np.zeros((lanes, actions), np.float32))
        noise = np.zeros((lanes, self.budget.steps, actions), np.float32)
        return GradientState(trained, self.blank(lanes), blank, value, noise, step=0, number=-1, iteration=0)

    def begin_task(self, keys: list[Key], state: GradientState) -> GradientState:
        """A policy by the method's rule, and a fresh value network."""
        trained, memory = self.begin(keys, state)
        value = self._fresh_value(packed.key_data([key.fold("value") for key in keys]))
        trained, composed, value = jax.device_get((trained, self._composed(trained), value))
        return GradientState(trained, memory, composed, value, self._noise(keys), 0, state.number + 1, 0)

    def act(
        self, keys: list[Key], state: GradientState, obs: list[Any], first: list[bool]
    ) -> tuple[GradientState, list[np.ndarray]]:
        """A draw from the policy, clipped. Its noise was drawn before the iteration began."""
        noise = state.noise[:, state.step % self.budget.steps]
        mean = gaussian.mean(state.policy.theta, np.stack(obs)[:, None], self.layers)[:, 0]
        return state._replace(step=state.step + 1), self._legal(mean + np.exp(state.policy.log_std) * noise)

    def observe(self, keys: list[Key], state: GradientState, rows: list[Transition]) -> GradientState:
        """Learning is between iterations."""
        return state

    def learn(self, keys: list[Key], state: GradientState, rows: list[Transition]) -> tuple[GradientState, list[Info]]:
        """One natural step, then the value network; after a task's last iteration, what is to be kept of it."""
        together = Transition(*map(np.stack, zip(*rows, strict=True)))
        steps = critic.course(together, self.spec.steps, self.settings.bootstrap)
        mask, terms = self.mask(state.number), self.terms(state)
        data = packed.key_data([key.fold("fit") for key in keys])
        trained, composed, value, advantage, facts = jax.device_get(
            self._update(data, state.trained, state.value, state.policy, mask, terms, state.noise, steps)
        )
        after = state._replace(trained=trained, policy=composed, value=value, noise=self._noise(keys))
        after = after._replace(step=0, iteration=state.iteration + 1)
        infos = [_info(facts, lane, state) for lane in range(len(keys))]
        if self.remembers and after.iteration == self.budget.iterations:
            batch = Batch(steps.obs, state.noise, advantage)
            gradient, fisher = jax.device_get(self._curve(composed, state.policy, batch))
            after = self.finish(after, gradient.astype(np.float64), fisher.astype(np.float64))
        return after, infos

    # Evaluation --------------------------------------------------------------------------------------------------

    def keep(self, keys: list[Key], state: GradientState) -> Any:
        """What it takes to act in the present task later on."""
        return Kept(*state.policy)

    def player(self, own: Any, latest: Any, score: Score, strategy: Strategy) -> Player:
        """The mean action of the policy kept in the task; for "back", of what has become of it. No strategies here."""
        return Player(np.asarray(self.recall(own, latest) if score == "back" else own.theta))

    def play(
        self, keys: list[Key], player: Player, obs: list[Any], first: list[bool]
    ) -> tuple[Player, list[np.ndarray]]:
        """The mean action, clipped."""
        return player, self._legal(gaussian.mean(player.theta, np.stack(obs)[:, None], self.layers)[:, 0])

    # One lane ----------------------------------------------------------------------------------------------------

    def _fresh_one(self, data: jax.Array) -> Any:
        raise NotImplementedError

    def _fresh_value_one(self, data: jax.Array) -> Value:
        key = jax.random.fold_in(jax.random.wrap_key_data(data), 1)
        return critic.init(key, self.spec.obs_dim, self.settings.value)

    def _new_theta(self, data: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.wrap_key_data(data), 0)
        return gaussian.init(key, self.layers, self.settings.initial_scale)

    def _new_log_std(self) -> jax.Array:
        return jnp.full(len(self.half), self.settings.initial_log_std, jnp.float32)

    def _update_one(
        self,
        data: jax.Array,
        trained: Any,
        value: Value,
        old: Policy,
        mask: Any,
        terms: Any,
        noise: jax.Array,
        steps: Course,
    ) -> tuple[Any, Policy, Value, jax.Array, dict[str, jax.Array]]:
        """x, its policy and the value network after the iteration; the advantages that moved them, and numbers."""
        settings = self.settings
        advantage, target = critic.advantages(value, steps, settings.gamma, settings.trace)
        white = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        batch = Batch(steps.obs, noise, white)
        flat, unravel = ravel_pytree(trained)
        moves = jnp.ones_like(flat) if mask is None else ravel_pytree(mask)[0]

        def objective(x: jax.Array) -> jax.Array:
            here = unravel(x)
            return gaussian.surrogate(self.compose(here), old, batch, self.layers) + self.prior(here, terms)

        product = gaussian.fisher_product(lambda x: self.compose(unravel(x)), flat, steps.obs, self.layers)
        gradient = jax.grad(objective)(flat) * moves
        step = natural_step(
            gradient, lambda v: moves * product(moves * v), settings.step_size, settings.damping, settings.rounds
        )
        trained = unravel(flat + step)
        trained = trained._replace(log_std=jnp.maximum(trained.log_std, settings.least_log_std))
        new = self.compose(trained)
        error = target - critic.predict(value.weights, steps.obs, steps.time)
        facts = {
            "kl": gaussian.kl(old, new, steps.obs, self.layers),
            "std": jnp.exp(new.log_std).mean(),
            "value_error": jnp.sqrt((error**2).mean()),
        }
        if self.remembers:
            facts["prior"] = self.prior(trained, terms)
        value = critic.fit(jax.random.wrap_key_data(data), value, steps, target, settings.value)
        return trained, new, value, white, facts

    def _curve_one(self, new: Policy, old: Policy, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Gradient [d] and Fisher matrix [d, d] of the shared part at the new policy, from the steps of the old one."""

        def at(shared: jax.Array) -> Policy:
            return Policy(jnp.concatenate([shared, new.theta[self.shared :]]), new.log_std)

        here = new.theta[: self.shared]
        gradient = jax.grad(lambda shared: gaussian.surrogate(at(shared), old, batch, self.layers))(here)
        product = gaussian.fisher_product(at, here, batch.obs, self.layers)
        return gradient, jax.lax.map(product, jnp.eye(self.shared), batch_size=16)

    # Small things ------------------------------------------------------------------------------------------------

    def _noise(self, keys: list[Key]) -> np.ndarray:
        size = (self.budget.steps, len(self.half))
        return np.stack([key.fold("noise").generator().standard_normal(size, np.float32) for key in keys])

    def _legal(self, raw: Any) -> list[np.ndarray]:
        """Actions in the environment's units, inside its range."""
        action = self.centre + self.half * raw
        return list(np.minimum(np.maximum(action, self.low), self.high).astype(np.float32))


def _info(facts: dict[str, Any], lane: int, state: GradientState) -> Info:
    """One lane's numbers. If they are not finite any more the policy has diverged, and that ends the run."""
    numbers = {name: float(f"{value[lane]:.6g}") for name, value in facts.items()}
    for name, value in numbers.items():
        if not np.isfinite(value):
            where = f"task {state.number}, iteration {state.iteration}"
            raise UserError(f"The policy diverged in {where} ({name} is {value}); try a smaller --step-size")
    return dict(numbers)
