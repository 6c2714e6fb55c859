"""Variational Bayesian Lifelong RL (paper, Algorithm 1), and the two baselines that are settings of it.

    for each task:
        task posterior <- world posterior, which is its prior too                                     begin_task
        for each iteration:
            for each step:
                draw P networks from the posterior; search the actions whose imagined return is best   act
                execute the first action of the search's mean
            add the steps to the replay                                                               learn
            fit the task posterior on this task's transitions                                         learn
            fit the world posterior on all tasks' transitions                                         learn

In the first iterations of a task the world posterior acts, until there is data for the task's own (appendix D). Random
actions are taken only in the very first iteration.

`single-task` never transfers: every task begins with a fresh posterior, the fixed prior and random actions.
`hip-mdp` has one posterior for all tasks and plans with it.

The mathematics is written for one lane; all lanes run in one program through `vmap`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity import replay as memory
from posterity.agents.base import Info
from posterity.errors import UserError
from posterity.models import elbo, network, normaliser, posterior
from posterity.models.elbo import Batch, LearnerSettings, Learning
from posterity.models.network import NetworkSettings
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning import cem
from posterity.planning.cem import Plan, PlannerSettings
from posterity.planning.imagine import imagined_returns
from posterity.replay import Replay
from posterity.settings import Settings, setting
from posterity.types import Budget, Key, Spec, Transition

Mode = Literal["vblrl", "single-task", "hip-mdp"]


class VblrlSettings(Settings):
    """What VBLRL can be told."""

    planner: PlannerSettings = PlannerSettings()
    learner: LearnerSettings = LearnerSettings()
    network: NetworkSettings = NetworkSettings()
    world_iterations: int = setting(
        2, "Iterations of a task in which the world posterior acts (released code: 2).", ge=0
    )
    task_minimum: int = setting(200, "Transitions of a task before its posterior is fitted (released code: 200).", ge=1)
    task_prior: Literal["world", "fixed"] = setting("world", "Prior of the task posterior (released code: fixed).")
    task_noise: float = setting(1.0, "Factor on the task posterior's spread; 0 is a plain network.", ge=0)
    normalise: bool = setting(True, "Learn in units in which inputs and targets have mean 0 and deviation 1.")
    normaliser_iterations: int = setting(5, "Iterations of the first task from which the units are estimated.", ge=1)


class VblrlState(NamedTuple):
    """Everything a run is. Arrays carry a leading axis of L lanes; numbers are the same for all."""

    world: Learning
    task: Learning
    prior: Posterior  # of the task posterior: the world posterior when the task began
    units: Normaliser
    replay: Replay
    plan: Plan  # where the next search begins
    forecast: jax.Array  # [L, 3] sum of predicted returns, of their spreads, and how many
    number: int  # of the present task
    iteration: int  # of the present task


class Vblrl:
    """Algorithm 1 for all lanes together."""

    together = True  # keys, states, observations and actions are those of all lanes

    def __init__(self, spec: Spec, settings: VblrlSettings, budget: Budget, mode: Mode = "vblrl") -> None:
        self.spec = spec
        self.settings = settings
        self.budget = budget
        self.mode: Mode = mode
        self.low, self.high = jnp.asarray(spec.low, jnp.float32), jnp.asarray(spec.high, jnp.float32)
        alive = spec.alive
        self.alive = None if alive is None else (jnp.asarray(alive[0], jnp.float32), jnp.asarray(alive[1], jnp.float32))
        self.fresh_plan = cem.start(settings.planner.horizon, self.low, self.high)
        self._fresh = jax.jit(jax.vmap(self._fresh_one))
        self._plan = jax.jit(jax.vmap(self._plan_one, in_axes=(0, 0, 0, 0, 0, 0, None)))
        self._add = jax.jit(jax.vmap(memory.add, in_axes=(0, None, 0)), donate_argnums=0)
        self._units = jax.jit(jax.vmap(self._units_one))
        self._check = jax.jit(jax.vmap(self._check_one, in_axes=(0, 0, 0, 0, None)))
        self._fit_task = jax.jit(jax.vmap(self._fit_task_one, in_axes=(0, 0, 0, 0, 0, None)))
        self._fit_world = jax.jit(jax.vmap(self._fit_world_one, in_axes=(0, 0, 0, 0, None)))

    # The contract ------------------------------------------------------------------------------------------------

    def init(self, keys: list[Key]) -> VblrlState:
        """A fresh world posterior and an empty memory."""
        world = self._fresh(_data(keys))
        lanes = len(keys)
        dims = (self.spec.obs_dim, len(self.spec.low))
        empty = memory.empty(self.budget.tasks, self.budget.iterations * self.budget.steps, *dims)
        return VblrlState(
            world=world,
            task=world,
            prior=self._fixed_prior(world.posterior),
            units=_lanes(normaliser.identity(*dims), lanes),
            replay=_lanes(empty, lanes),
            plan=_lanes(self.fresh_plan, lanes),
            forecast=jnp.zeros((lanes, 3)),
            number=-1,
            iteration=0,
        )

    def begin_task(self, keys: list[Key], state: VblrlState) -> VblrlState:
        """The world posterior becomes the task's, and its prior."""
        if self.mode == "single-task":
            task = self._fresh(_data(keys))
        else:
            task = jax.vmap(partial(elbo.begin, rate=self.settings.learner.task_rate))(state.world.posterior)
        inherited = self.mode == "vblrl" and self.settings.task_prior == "world"
        prior = task.posterior if inherited else self._fixed_prior(task.posterior)
        return state._replace(task=task, prior=prior, number=state.number + 1, iteration=0)

    def act(
        self, keys: list[Key], state: VblrlState, obs: list[Any], first: list[bool]
    ) -> tuple[VblrlState, list[np.ndarray]]:
        """A plan for every lane, or random actions before anything was learned."""
        if self._random(state):
            drawn = [key.generator().uniform(self.spec.low, self.spec.high) for key in keys]
            return state, [action.astype(np.float32) for action in drawn]
        acting, noise = self._acting(state)
        seen = np.asarray(np.stack(obs), dtype=np.float32)
        action, plan, forecast = self._plan(
            _data(keys), acting, state.units, seen, state.plan, np.array(first), np.float32(noise)
        )
        return state._replace(plan=plan, forecast=state.forecast + forecast), list(np.asarray(action))

    def observe(self, keys: list[Key], state: VblrlState, rows: list[Transition]) -> VblrlState:
        """Learning is between iterations."""
        return state

    def learn(self, keys: list[Key], state: VblrlState, rows: list[Transition]) -> tuple[VblrlState, list[Info]]:
        """Remember the iteration, then fit both posteriors."""
        settings = self.settings
        new = Transition(*(np.stack(column).astype(np.float32) for column in zip(*rows, strict=True)))
        data = _data([key.fold("fit") for key in keys])
        facts: dict[str, Any] = {}
        acting, noise = self._acting(state)
        if not self._random(state):
            facts |= self._check(
                _data([key.fold("check") for key in keys]), acting, state.units, new, np.float32(noise)
            )
            facts |= self._forecasts(state, new)
        replay = self._add(state.replay, np.int32(state.number), new)
        units = state.units
        if settings.normalise and state.number == 0 and state.iteration < settings.normaliser_iterations:
            units = self._units(replay)
        collected = (state.iteration + 1) * new.reward.shape[1]
        task, world = state.task, state.world
        if self.mode != "hip-mdp" and collected >= settings.task_minimum:
            task, loss = self._fit_task(data, task, state.prior, units, replay, np.int32(state.number))
            facts |= {f"task_{name}": value for name, value in loss._asdict().items()}
        if self.mode != "single-task":
            world, loss = self._fit_world(data, world, units, replay, np.int32(state.number + 1))
            facts |= {f"world_{name}": value for name, value in loss._asdict().items()}
        state = state._replace(
            world=world,
            task=task,
            units=units,
            replay=replay,
            forecast=jnp.zeros_like(state.forecast),
            iteration=state.iteration + 1,
        )
        return state, [_info(facts, lane, state) for lane in range(len(keys))]

    # Who acts ----------------------------------------------------------------------------------------------------

    def _random(self, state: VblrlState) -> bool:
        """Only the very first iteration is random; without transfer, a task is until its posterior can be fitted."""
        if self.mode == "single-task":
            return state.iteration * self.budget.steps < self.settings.task_minimum
        return state.number == 0 and state.iteration == 0

    def _acting(self, state: VblrlState) -> tuple[Posterior, float]:
        """The posterior that plans, and the factor on its spread."""
        settings = self.settings
        collected = state.iteration * self.budget.steps
        early = state.iteration < settings.world_iterations or collected < settings.task_minimum
        if self.mode == "hip-mdp" or (self.mode == "vblrl" and early):
            return state.world.posterior, settings.learner.posterior_noise
        return state.task.posterior, settings.learner.posterior_noise * settings.task_noise

    def _forecasts(self, state: VblrlState, rows: Transition) -> dict[str, Any]:
        """What plans promised for their horizon, beside what came: mean return of the windows inside one episode."""
        horizon = min(self.settings.planner.horizon, rows.reward.shape[1])
        count = np.maximum(np.asarray(state.forecast[:, 2]), 1.0)
        promised, spread = np.asarray(state.forecast[:, 0]) / count, np.asarray(state.forecast[:, 1]) / count
        ended = (rows.next_obs[:, :-1] != rows.obs[:, 1:]).any(axis=-1)  # [L, steps - 1] another episode follows
        cuts = np.cumsum(np.pad(ended, ((0, 0), (1, 0))), axis=1)
        whole = cuts[:, : cuts.shape[1] - horizon + 1] == cuts[:, horizon - 1 :]
        sums = np.cumsum(np.pad(rows.reward, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
        windows = sums[:, horizon:] - sums[:, :-horizon]
        came = np.where(whole, windows, 0.0).sum(axis=1) / np.maximum(whole.sum(axis=1), 1)
        return {
            "forecast": promised,
            "forecast_spread": spread,
            "forecast_came": np.where(whole.any(axis=1), came, np.nan),
        }

    # One lane ----------------------------------------------------------------------------------------------------

    def _fresh_one(self, data: jax.Array) -> Learning:
        key, settings = jax.random.wrap_key_data(data), self.settings
        dims = (self.spec.obs_dim, self.low.shape[0])
        q = posterior.init(key, *dims, settings.network, settings.learner.initial_scale)
        return elbo.begin(q, settings.learner.world_rate)

    def _fixed_prior(self, q: Posterior) -> Posterior:
        return posterior.gaussian(q, self.settings.learner.prior_scale)

    def _plan_one(
        self,
        data: jax.Array,
        q: Posterior,
        units: Normaliser,
        obs: jax.Array,
        plan: Plan,
        first: jax.Array,
        noise: jax.Array,
    ) -> tuple[jax.Array, Plan, jax.Array]:
        """Search, and forecast what the found plan will earn."""
        settings = self.settings.planner
        draw_key, search_key, last_key = jax.random.split(jax.random.wrap_key_data(data), 3)
        begin = jax.tree.map(lambda fresh, kept: jnp.where(first, fresh, kept), self.fresh_plan, plan)
        networks = self._draw(draw_key, q, noise)
        step = partial(self._step, q, networks, units, noise)

        def score(k: jax.Array, candidates: jax.Array) -> jax.Array:
            return imagined_returns(k, step, obs, candidates, settings.particles, self.alive).mean(axis=0)

        found, _ = cem.cem(search_key, score, begin, self.low, self.high, settings)
        promised = imagined_returns(last_key, step, obs, found.mean[None], settings.particles, self.alive)[:, 0]
        forecast = jnp.stack([promised.mean(), promised.std(), jnp.float32(1.0)])
        return found.mean[0], cem.shifted(found, self.fresh_plan), forecast

    def _draw(self, key: jax.Array, q: Posterior, noise: jax.Array) -> network.Weights:
        """P networks."""
        keys = jax.random.split(key, self.settings.planner.particles)
        return jax.vmap(lambda k: posterior.sample(k, q, noise))(keys)

    def _step(
        self,
        q: Posterior,
        networks: network.Weights,
        units: Normaliser,
        noise: jax.Array,
        key: jax.Array,
        obs: jax.Array,
        action: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """One imagined step of all particles: [P, N, O], [N, A] -> rewards [P, N], next observations [P, N, O]."""
        draw_key, output_key = jax.random.split(key)
        if self.settings.planner.redraw:
            networks = self._draw(draw_key, q, noise)
        actions = jnp.broadcast_to(action, (obs.shape[0], *action.shape))
        taken = normaliser.inputs(units, obs, actions)
        shape = self.settings.network
        mean, log_variance = jax.vmap(lambda w, x: network.forward(w, x, shape))(networks, taken)
        if self.settings.planner.output == "sample":
            mean = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(output_key, mean.shape)
        return normaliser.outcome(units, obs, mean)

    def _batch(self, units: Normaliser, rows: memory.Rows) -> Batch:
        return Batch(
            normaliser.inputs(units, rows.obs, rows.action),
            normaliser.targets(units, rows.obs, rows.reward, rows.next_obs),
        )

    def _units_one(self, replay: Replay) -> Normaliser:
        """From the first task's transitions."""
        obs, action = replay.obs[0], replay.action[0]
        plain = normaliser.identity(obs.shape[-1], action.shape[-1])
        inputs = normaliser.inputs(plain, obs, action)
        targets = normaliser.targets(plain, obs, replay.reward[0], replay.next_obs[0])
        return normaliser.estimate(inputs, targets, jnp.arange(obs.shape[0]) < replay.filled[0])

    def _fit_task_one(
        self, data: jax.Array, task: Learning, prior: Posterior, units: Normaliser, replay: Replay, number: jax.Array
    ) -> tuple[Learning, elbo.Loss]:
        settings = self.settings.learner
        key = jax.random.fold_in(jax.random.wrap_key_data(data), 0)
        noise = settings.posterior_noise * self.settings.task_noise

        def draw(k: jax.Array) -> Batch:
            return self._batch(units, memory.sample_task(k, replay, number, settings.task_rows))

        shape = self.settings.network
        return elbo.fit(key, task, prior, draw, settings.task_steps, settings.task_rate, shape, settings, noise)

    def _fit_world_one(
        self, data: jax.Array, world: Learning, units: Normaliser, replay: Replay, seen: jax.Array
    ) -> tuple[Learning, elbo.Loss]:
        settings = self.settings.learner
        key = jax.random.fold_in(jax.random.wrap_key_data(data), 1)
        prior = self._fixed_prior(world.posterior)

        def draw(k: jax.Array) -> Batch:
            return self._batch(units, memory.sample_world(k, replay, seen, settings.world_tasks, settings.world_rows))

        shape, noise = self.settings.network, settings.posterior_noise
        return elbo.fit(key, world, prior, draw, settings.world_steps, settings.world_rate, shape, settings, noise)

    def _check_one(
        self, data: jax.Array, q: Posterior, units: Normaliser, rows: Transition, noise: jax.Array
    ) -> dict[str, jax.Array]:
        """How well the acting posterior foretold this iteration, which it has not learned from yet."""
        networks = self._draw(jax.random.wrap_key_data(data), q, noise)
        inputs = normaliser.inputs(units, rows.obs, rows.action)
        targets = normaliser.targets(units, rows.obs, rows.reward, rows.next_obs)
        shape = self.settings.network
        mean, log_variance = jax.vmap(lambda w: network.forward(w, inputs, shape))(networks)
        aleatory, epistemic = jnp.exp(log_variance).mean(axis=0), mean.var(axis=0)
        error = targets - mean.mean(axis=0)
        return {
            "model_error": jnp.sqrt((error**2).mean()),
            "model_coverage": (jnp.abs(error) < 1.6449 * jnp.sqrt(aleatory + epistemic)).mean(),
            "aleatory": jnp.sqrt(aleatory.mean()),
            "epistemic": jnp.sqrt(epistemic.mean()),
        }


def _info(facts: dict[str, Any], lane: int, state: VblrlState) -> Info:
    """One lane's numbers. A model whose numbers are not finite any more has diverged, and that ends the run."""
    numbers = {name: round(float(np.asarray(value)[lane]), 6) for name, value in facts.items()}
    if np.isnan(numbers.get("forecast_came", 0.0)):
        del numbers["forecast_came"]  # every window was cut by an episode's end
    for name, value in numbers.items():
        if not np.isfinite(value):
            where = f"task {state.number}, iteration {state.iteration - 1}"
            raise UserError(f"The model diverged in {where} ({name} is {value}); try a lower learning rate")
    return dict(numbers)


def _data(keys: list[Key]) -> np.ndarray:
    """[L, 2] the keys as JAX takes them."""
    return np.stack([key.words(2) for key in keys])


def _lanes(tree: Any, lanes: int) -> Any:
    """The same for every lane."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], lanes, axis=0), tree)
