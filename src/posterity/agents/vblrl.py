"""Variational Bayesian Lifelong RL (paper, Algorithms 1 and 2), and the two baselines that are settings of it.

    for each task:
        task posterior <- world posterior, which is its prior too (not in the first task)             begin_task
        for each iteration:
            for each step:
                draw P networks from the posterior; search the actions whose imagined return is best   act
                execute the first action of the search's mean
            add the steps to the replay                                                               learn
            fit the task posterior on this task's transitions                                         learn
            fit the world posterior on all tasks' transitions                                         learn

In the first iterations of a task the world posterior acts, until there is data for the task's own (appendix D). Random
actions are taken only in the very first iteration.

Going back to an earlier task (Algorithm 2), both its own posterior, frozen when it ended, and the world posterior of
today imagine every step, and the more confident prediction goes on; or both do, each by how sure it is.        play

`single-task` never transfers: every task begins with a fresh posterior, the fixed prior and random actions.
`hip-mdp` has one posterior for all tasks and plans with it.

The mathematics is written for one lane; all lanes run in one program through `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import replay as memory
from posterity.agents import checks, packed
from posterity.agents.base import STRATEGIES, Info, Score, Strategy
from posterity.agents.rollouts import Chosen, Imagination, Model, Returns
from posterity.agents.training import Group, Lessons, VblrlSettings, Who
from posterity.errors import UserError
from posterity.models import elbo, normaliser
from posterity.models.elbo import Learning
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Posterior
from posterity.planning import cem
from posterity.planning.cem import Plan
from posterity.models.replay import Replay
from posterity.types import Budget, Key, Spec, Transition

FORECASTS = 16  # every so many steps the found plan is imagined once more, for the record
WEIGHED: tuple[Strategy, ...] = ("confidence", "blend")  # ways of going back that take both posteriors
PRODUCTS = {"tf32": "tensorfloat32", "f32": "float32"}  # as JAX names them
Mode = Literal["vblrl", "single-task", "hip-mdp"]


class VblrlState(NamedTuple):
    """Everything a run is. Arrays carry a leading axis of L lanes; numbers are the same for all."""

    world: Learning
    task: Learning
    prior: Posterior  # of the task posterior: the world posterior when the task began; in the first task the fixed one
    units: Normaliser
    scale: jax.Array  # [L, 1 + O] the targets' deviation in these units: 1 if they are normalised
    value: Any  # of what follows the horizon, being learned; empty if nothing does
    replay: Replay
    plan: Plan  # where the next search begins
    forecast: jax.Array  # [L, 3] sum of predicted returns, of their spreads, and how many
    number: int  # of the present task
    iteration: int  # of the present task
    step: int  # of the present iteration


class Kept(NamedTuple):
    """What it takes to act later as at one moment of a run. Arrays carry a leading axis of L lanes."""

    world: Posterior
    task: Posterior
    units: Normaliser
    scale: jax.Array
    value: Any  # of what follows the horizon
    random: jax.Array  # [L] nothing was learned yet: actions are random


class Player(NamedTuple):
    """Acts in an evaluation and does not learn. Two models are weighed as `strategy` says, else one acts."""

    models: tuple[Model, ...]  # (the acting one), or (the task's, the world's)
    units: Normaliser
    scale: jax.Array
    random: jax.Array  # [L]
    plan: Plan
    chosen: Chosen  # [L] how much of the last plan the world model predicted
    strategy: Strategy


class Vblrl:
    """Algorithms 1 and 2 for all lanes together."""

    together = True  # keys, states, observations and actions are those of all lanes

    def __init__(self, spec: Spec, settings: VblrlSettings, budget: Budget, mode: Mode = "vblrl") -> None:
        self.spec = spec
        self.settings = settings
        self.budget = budget
        self.mode: Mode = mode
        self.low, self.high = jnp.asarray(spec.low, jnp.float32), jnp.asarray(spec.high, jnp.float32)
        self.imagination = Imagination(
            settings.planner, settings.network, settings.backward, spec, settings.horizon.gamma
        )
        self.fresh_plan = cem.start(settings.planner.horizon, self.low, self.high)
        self.lessons = lessons = Lessons(spec, settings, mode == "vblrl" and settings.task_prior == "world")
        self._fresh = self._program(lessons.fresh)
        self._plan = self._program(self._plan_one)
        self._foretell = self._program(self._foretell_one)
        self._weigh = {how: self._program(partial(self._weigh_one, how)) for how in WEIGHED}
        self._add = jax.jit(jax.vmap(memory.add, in_axes=(0, None, 0)), donate_argnums=0)
        self._measure = self._program(lessons.measure, in_axes=(0, 0, None))
        self._check = self._program(partial(lessons.check, self.imagination.draw))
        self._fresh_value = self._program(lessons.fresh_value)
        self._fit_value = self._program(lessons.fit_value, in_axes=(0, 0, 0, 0, None))
        self._fit = self._fits(("task",), ("world",), ("task", "world"))

    def _program(self, one: Callable[..., Any], in_axes: Any = 0) -> Any:
        """What is written for one lane, compiled for all."""

        def lanes(*args: Any) -> Any:
            with jax.default_matmul_precision(PRODUCTS[self.settings.precision]):
                return jax.vmap(one, in_axes=in_axes)(*args)

        return jax.jit(lanes)

    def _fits(self, *groups: Group) -> dict[Group, Any]:
        axes = (0, 0, 0, 0, 0, None)
        return {who: self._program(partial(self.lessons.fit, who), in_axes=axes) for who in groups}

    @property
    def engine(self) -> dict[str, str]:
        """On what the numbers are worked out, for the record."""
        plain = self.imagination.why_plain
        products = self.settings.planner.products
        planner = f"plain ({plain})" if plain else f"fused, {products} products"
        fit = f"plain ({self.lessons.why_plain})" if self.lessons.why_plain else "fused"
        device = jax.devices()[0].device_kind
        return {"device": device, "planner": planner, "fit": fit, "products": self.settings.precision}

    # Algorithm 1 -------------------------------------------------------------------------------------------------

    def init(self, keys: list[Key]) -> VblrlState:
        """A fresh world posterior and an empty memory."""
        world = self._fresh(packed.key_data(keys))
        lanes = len(keys)
        dims = (self.spec.obs_dim, len(self.spec.low))
        empty = memory.empty(self.budget.tasks, self.budget.iterations * self.budget.steps, *dims)
        return VblrlState(
            world=world,
            task=world,
            prior=self.lessons.fixed_prior(world.posterior),
            units=packed.repeated(normaliser.identity(*dims), lanes),
            scale=jnp.ones((lanes, 1 + dims[0])),
            value=self._fresh_value(packed.key_data([key.fold("value") for key in keys]))
            if self.settings.horizon.use
            else (),
            replay=packed.repeated(empty, lanes),
            plan=packed.repeated(self.fresh_plan, lanes),
            forecast=jnp.zeros((lanes, 3)),
            number=-1,
            iteration=0,
            step=0,
        )

    def begin_task(self, keys: list[Key], state: VblrlState) -> VblrlState:
        """The world posterior becomes the task's, and its prior unless this is the first task."""
        single = self.mode == "single-task"
        task = self._fresh(packed.key_data(keys)) if single else jax.vmap(elbo.begin)(state.world.posterior)
        inherited = self.lessons.inherits and state.number >= 0  # before that the world posterior is no belief
        prior = task.posterior if inherited else self.lessons.fixed_prior(task.posterior)
        if single and self.settings.horizon.use:
            state = state._replace(value=self._fresh_value(packed.key_data([key.fold("value") for key in keys])))
        return state._replace(task=task, prior=prior, number=state.number + 1, iteration=0)

    def act(
        self, keys: list[Key], state: VblrlState, obs: list[Any], first: list[bool]
    ) -> tuple[VblrlState, list[np.ndarray]]:
        """A plan for every lane, or random actions before anything was learned."""
        if self._random(state):
            return state, self._random_actions(keys)
        met = packed.met(keys, obs, first)
        model = self._acting(state)
        action, plan = self._plan(met, model, state.units, state.plan)
        action.copy_to_host_async()  # asked for now, so that it comes without another word when it is there
        forecast = state.forecast
        if state.step % FORECASTS == 0:
            forecast = self._foretell(met, model, state.units, action, plan, forecast)
        return state._replace(plan=plan, forecast=forecast, step=state.step + 1), list(np.asarray(action))

    def program(self, keys: list[Key], state: VblrlState, obs: list[Any], first: list[bool]) -> Callable[[], Any]:
        """The compiled plan of `act` by itself, all it needs being on the device: for `posterity bench`."""
        met = jax.device_put(packed.met(keys, obs, first))
        return partial(self._plan, met, self._acting(state), state.units, state.plan)

    def observe(self, keys: list[Key], state: VblrlState, rows: list[Transition]) -> VblrlState:
        """Learning is between iterations."""
        return state

    def learn(self, keys: list[Key], state: VblrlState, rows: list[Transition]) -> tuple[VblrlState, list[Info]]:
        """Remember the iteration, then fit both posteriors."""
        settings = self.settings
        new = Transition(*(np.stack(column).astype(np.float32) for column in zip(*rows, strict=True)))
        data = packed.key_data([key.fold("fit") for key in keys])
        facts: dict[str, Any] = {}
        if not self._random(state):
            check_data = packed.key_data([key.fold("check") for key in keys])
            facts |= self._check(check_data, self._acting(state), state.units, new)
            facts |= checks.forecasts(state.forecast, new, settings.planner.horizon)
        replay = self._add(state.replay, np.int32(state.number), new)
        units, scale = state.units, state.scale
        young = state.number == 0 or self.mode == "single-task"  # without transfer every task has units of its own
        if young and state.iteration < settings.normaliser_iterations:
            units, scale = self._measure(units, replay, np.int32(state.number))
        collected = (state.iteration + 1) * new.reward.shape[1]
        due: list[Who] = []
        learner = settings.learner
        if self.mode != "hip-mdp" and collected >= settings.task_minimum and learner.task_steps:
            due.append("task")
        if self.mode != "single-task" and learner.world_steps:
            due.append("world")
        learned: dict[Who, Learning] = {"task": state.task, "world": state.world}
        for who in self._groups(due):
            fitted = self._fit[who](data, learned, state.prior, units, replay, np.int32(state.number))
            for name, (learning, loss) in zip(who, fitted, strict=True):
                learned[name] = learning
                facts |= {f"{name}_{part}": value for part, value in loss._asdict().items()}
        value = state.value
        if settings.horizon.use:
            value, facts["value_error"] = self._fit_value(data, value, units, replay, np.int32(state.number))
        told = checks.infos(facts, len(keys), state.number, state.iteration)
        state = state._replace(
            world=learned["world"],
            task=learned["task"],
            units=units,
            scale=scale,
            value=value,
            replay=replay,
            forecast=jnp.zeros_like(state.forecast),
            iteration=state.iteration + 1,
            step=0,
        )
        return state, told

    # Evaluation, and Algorithm 2 ---------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """Iterations of a task before its own posterior acts."""
        early = max(self.settings.world_iterations, -(-self.settings.task_minimum // self.budget.steps))
        every = self.settings.world_every
        return early + (every > 1 and early % every == 0)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """How it can go back, first of all as it is set to."""
        if self.mode != "vblrl":
            return STRATEGIES[:1]
        own = self.settings.backward.strategy
        return own, *(other for other in STRATEGIES if other != own)

    def keep(self, keys: list[Key], state: VblrlState) -> Kept:
        """Both posteriors as they are now."""
        random = jnp.full(state.scale.shape[0], self._random(state))
        value = state.value.value if self.settings.horizon.use else ()
        return Kept(state.world.posterior, state.task.posterior, state.units, state.scale, value, random)

    def player(self, own: Kept, latest: Kept, score: Score, strategy: Strategy) -> Player:
        """Forward scores are those of one posterior; Back weighs the task's own and today's world posterior."""
        own, latest = jax.device_put((own, latest))
        lanes = own.scale.shape[0]
        task, world = self._task_model(own.task, own.value), self._world_model(own.world, own.value)
        today = self._world_model(latest.world, own.value)
        models: tuple[Model, ...] = (task,)
        if self.mode == "hip-mdp":
            models = (today if score == "back" else world,)
        elif self.mode == "vblrl" and score == "zero-shot":
            models = (world,)
        elif self.mode == "vblrl" and score == "back":
            models = (task, today) if strategy in WEIGHED else (task if strategy == "task-only" else today,)
        if len(models) > 1 and strategy == "confidence" and self.settings.planner.particles < 2:
            raise UserError(
                "Confidence is a spread over particles, and this run plans with one; go back with --backward blend"
            )
        none = jnp.zeros(lanes)
        plan = packed.repeated(self.fresh_plan, lanes)
        return Player(models, own.units, own.scale, own.random, plan, Chosen(none, none), strategy)

    def play(
        self, keys: list[Key], player: Player, obs: list[Any], first: list[bool]
    ) -> tuple[Player, list[np.ndarray]]:
        """A plan for every lane, by one model or by two together."""
        met, chosen = packed.met(keys, obs, first), player.chosen
        if len(player.models) == 1:
            action, plan = self._plan(met, player.models[0], player.units, player.plan)
        else:
            action, plan, chosen = self._weigh[player.strategy](
                met, *player.models, player.units, player.scale, player.plan
            )
        action.copy_to_host_async()
        planned = np.asarray(action)
        if player.random.any():
            planned = np.where(np.asarray(player.random)[:, None], self._random_actions(keys), planned)
        return player._replace(plan=plan, chosen=chosen), list(planned)

    def _groups(self, due: list[Who]) -> list[Group]:
        """Which posteriors are fitted in one program: on a GPU both, which takes little longer than one."""
        learner = self.settings.learner
        wanted = learner.together == "on" or (learner.together == "auto" and jax.default_backend() == "gpu")
        if wanted and len(due) > 1 and learner.task_steps == learner.world_steps:
            return [tuple(due)]
        return [(name,) for name in due]

    # Who acts ----------------------------------------------------------------------------------------------------

    def _random(self, state: VblrlState) -> bool:
        """Only the very first iteration is random; without transfer, a task is until its posterior can be fitted."""
        if self.mode == "single-task":
            return state.iteration * self.budget.steps < self.settings.task_minimum
        return state.number <= 0 and state.iteration == 0

    def _random_actions(self, keys: list[Key]) -> list[np.ndarray]:
        drawn = [key.generator().uniform(self.spec.low, self.spec.high) for key in keys]
        return [action.astype(np.float32) for action in drawn]

    def _acting(self, state: VblrlState) -> Model:
        """The posterior that plans."""
        every = self.settings.world_every
        worlds = state.iteration < self.start or (every > 0 and state.iteration % every == 0)
        value = state.value.value if self.settings.horizon.use else ()
        if self.mode == "hip-mdp" or (self.mode == "vblrl" and worlds):
            return self._world_model(state.world.posterior, value)
        return self._task_model(state.task.posterior, value)

    def _world_model(self, q: Posterior, value: Any) -> Model:
        return Model(q, packed.full(q.mean[0].bias.shape[0], self.settings.learner.posterior_noise), value)

    def _task_model(self, q: Posterior, value: Any) -> Model:
        noise = self.settings.learner.posterior_noise * self.settings.task_noise
        return Model(q, packed.full(q.mean[0].bias.shape[0], noise), value)

    # One lane ----------------------------------------------------------------------------------------------------

    def _plan_one(self, met: jax.Array, model: Model, units: Normaliser, plan: Plan) -> tuple[jax.Array, Plan]:
        """Search with one posterior: the first action of what was found, and where the next search begins."""
        (draw_key, search_key), obs, first = packed.unpacked(met)
        returns = self.imagination.forward(draw_key, model, units, obs)
        found, _ = self._search(search_key, returns, plan, first)
        return found.mean[0], cem.shifted(found, self.fresh_plan)

    def _foretell_one(
        self, met: jax.Array, model: Model, units: Normaliser, action: jax.Array, after: Plan, forecast: jax.Array
    ) -> jax.Array:
        """Adds to the forecasts what the found plan will earn within its horizon, by the networks it was found by."""
        (draw_key, search_key), obs, _ = packed.unpacked(met)
        within = self.imagination.forward(draw_key, model._replace(value=()), units, obs)
        found = jnp.concatenate([action[None], after.mean[:-1]])
        promised = within(jax.random.split(search_key)[1], found[None])[0]
        return forecast + jnp.stack([promised.mean(), promised.std(), jnp.float32(1.0)])

    def _weigh_one(
        self,
        how: Strategy,
        met: jax.Array,
        task: Model,
        world: Model,
        units: Normaliser,
        scale: jax.Array,
        plan: Plan,
    ) -> tuple[jax.Array, Plan, Chosen]:
        """Search with two posteriors, and tell how much of the found plan the world's predicted."""
        (draw_key, search_key), obs, first = packed.unpacked(met)
        returns = self.imagination.backward(how, draw_key, task, world, units, scale, obs)
        found, last_key = self._search(search_key, returns, plan, first)
        _, notes = returns(last_key, found.mean[None])
        return found.mean[0], cem.shifted(found, self.fresh_plan), jax.tree.map(lambda share: share.mean(), notes)

    def _search(self, key: jax.Array, returns: Returns, plan: Plan, first: jax.Array) -> tuple[Plan, jax.Array]:
        """What the search finds from where the last one ended, and a key that is left."""
        search_key, last_key = jax.random.split(key)
        begin = jax.tree.map(lambda fresh, kept: jnp.where(first, fresh, kept), self.fresh_plan, plan)

        def score(k: jax.Array, candidates: jax.Array) -> jax.Array:
            return returns(k, candidates)[0].mean(axis=0)

        return cem.cem(search_key, score, begin, self.low, self.high, self.settings.planner)[0], last_key
