"""Tasks that change unannounced: VBLRL, which is not told when a task begins (`--boundaries detect`).

    for each step:      every few steps, ask whether another task explains them better           models/change.py
        the same        go on
        one known       its posterior acts and learns on, from where it was left
        a new one       the world posterior becomes its prior, as where it is told
    after an iteration: learn from those of its steps that belong to the present task

There is one lane: lanes would part at their first decision. An iteration of which less than half belongs to the present
task is not learned from; of another, steps are repeated until it is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from posterity.agents import lanes
from posterity.agents.base import Agent, Info, Keys, Policy, Score
from posterity.agents.inference import Recent
from posterity.agents.memory import thinned
from posterity.agents.vblrl import NORMALISER_ITERATIONS, Vblrl
from posterity.agents.vblrl_state import VblrlSnapshot, VblrlState
from posterity.errors import UserError
from posterity.models import change
from posterity.models.change import Odds, Steps, Told
from posterity.models.dynamics import DynamicsModel
from posterity.models.posterior import Posterior
from posterity.models.replay import Replay
from posterity.types import BoolArray, FloatArray, HostArray, Transition

BLOCK = 5  # steps between two looks


class Known(NamedTuple):
    """What was believed of each of K tasks when it was last left. The present one's is in the agent's own state."""

    posterior: Posterior  # leaves [L, K, E, ...]
    prior: Posterior  # leaves [L, K, E, ...]
    latents: jax.Array | None  # [L, K, E, M, Z]
    scales: FloatArray  # [L, K, 1 + O] how large squared errors usually are, in units of the foretold variance
    iterations: HostArray  # [L, K] that it learned from


class Decisions(NamedTuple):
    """What was decided in the present iteration, for the record."""

    switches: int = 0
    first: int = -1  # step of the first one; -1: there was none
    step: int = -1  # of the last one
    back: int = 0  # 1: the last one went back to a task known before
    log_odds: float = 0.0  # of it

    def with_one(self, step: int, back: bool, log_odds: float) -> Decisions:
        """And one more."""
        return Decisions(self.switches + 1, self.first if self.switches else step, step, int(back), log_odds)


class DetectingState(NamedTuple):
    """The state of the agent, what it knows of other tasks, and what speaks for one of them."""

    inner: VblrlState
    known: Known
    odds: Odds  # [L, K + 1] each
    block: Recent  # [L, W, ...] the last steps
    met: int  # tasks known
    seen: int  # steps of the present iteration
    began: int  # the first of them that belongs to the present task
    decisions: Decisions


class Detecting(Agent[DetectingState, VblrlSnapshot]):
    """Decides by itself when a task begins."""

    def __init__(self, agent: Vblrl, lanes_count: int) -> None:
        if lanes_count != 1:
            raise UserError("boundaries detect is for one seed: each decides for itself; run --seed 0, --seed 1, ...")
        if len(agent.variant.fitted) < 2:
            raise UserError("boundaries detect needs a posterior of each task and one of the world: method vblrl")
        if agent.rewards is not None:
            raise UserError("boundaries detect does not compare maps of rewards; set reward_map.lattice to 0")
        self.agent, self.tasks = agent, agent.budget.tasks
        self._foretold = lanes.compiled(self._foretold_one, agent.settings.outer_precision)

    def init(self, keys: Keys) -> DetectingState:
        """Nothing is known, not even that a task has begun."""
        inner, width = self.agent.init(keys), self.agent.spec.obs_dim + 1

        def room(leaf: jax.Array) -> jax.Array:
            return jnp.repeat(leaf[:, None], self.tasks, axis=1)

        fresh = inner.task.posterior, inner.prior
        posterior, prior = (jax.tree.map(room, each) for each in fresh)
        latents = None if inner.task_latents is None else room(inner.task_latents)
        scales = np.full((1, self.tasks, width), change.UNKNOWN)
        known = Known(posterior, prior, latents, scales, np.zeros((1, self.tasks), np.int64))
        odds = change.no_odds(self.tasks)
        dims = (self.agent.spec.obs_dim, len(self.agent.spec.low))
        shapes = ((1, BLOCK, dims[0]), (1, BLOCK, dims[1]), (1, BLOCK), (1, BLOCK, dims[0]))
        block = Recent(*(np.zeros(shape, np.float32) for shape in shapes))
        nothing = Odds(odds.log[None], odds.since[None])
        return DetectingState(inner, known, nothing, block, 0, 0, 0, Decisions())

    def begin_task(self, keys: Keys, state: DetectingState) -> DetectingState:
        """Only the very first is told: later ones pass unnoticed here."""
        if state.met:
            return state
        return state._replace(inner=self.agent.begin_task(keys, state.inner), met=1)

    def act(
        self, keys: Keys, state: DetectingState, obs: HostArray, first: BoolArray
    ) -> tuple[DetectingState, HostArray]:
        """As the present task's posterior plans."""
        inner, actions = self.agent.act(keys, state.inner, obs, first)
        return state._replace(inner=inner), actions

    def observe(self, keys: Keys, state: DetectingState, step: Transition) -> DetectingState:
        """Every few steps a look at whether the task is still the same."""
        inner = self.agent.observe(keys, state.inner, step)
        coded = step._replace(action=self.agent.spec.encoded(step.action))
        place = state.seen % BLOCK
        state = state._replace(inner=inner, block=state.block.put(place, coded), seen=state.seen + 1)
        return state if place + 1 < BLOCK or self._early(inner) else self._looked(keys, state)

    def _early(self, inner: VblrlState) -> bool:
        """Whether there is nothing to compare with yet: units are still being estimated."""
        return inner.task_number == 0 and inner.iteration < NORMALISER_ITERATIONS - 1

    def _looked(self, keys: Keys, state: DetectingState) -> DetectingState:
        """The state after the last steps have been weighed."""
        present, known = state.inner.task_number, self._with_present(state)
        world = self.agent.model_of("world", state.inner)
        memory = state.inner.replay, present
        program = self._foretold([key.fold("detect") for key in keys], known[:3], world, *memory, *state.block)
        told = Told(*(np.asarray(part, np.float64)[0] for part in program))
        nats, before = change.evidence(told, known.scales[0], present), Odds(state.odds.log[0], state.odds.since[0])
        young = self.agent.start_iterations + (NORMALISER_ITERATIONS - 1 if present == 0 else 0)
        settled = state.inner.iteration >= young  # else its own posterior, or how far it is off, is yet to be learned
        odds = change.after(before, nats, present, state.met, settled and state.met < self.tasks)
        now = change.decided(odds)
        if now is not None:
            return self._switched(keys, state._replace(known=known), odds, now)
        if np.logaddexp.reduce(odds.log) < 0.0:  # what may already be another task teaches nothing about this one
            scales = known.scales.copy()
            scales[0, present] = change.learned_scale(
                scales[0, present], told.squares[present] / told.variance[present]
            )
            state = state._replace(known=state.known._replace(scales=scales))
        return state._replace(odds=Odds(odds.log[None], odds.since[None]))

    def _foretold_one(
        self,
        key: jax.Array,
        beliefs: tuple[Posterior, Posterior, jax.Array | None],
        world: DynamicsModel,
        memory: Replay,
        present: jax.Array,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        next_obs: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """[K, W, 1 + O] squared errors and variances of every task, and [W] how near the present task was."""
        steps, network = Steps(obs, action, reward, next_obs), self.agent.settings.network
        strength = self.agent.settings.noise("task")
        noise = jnp.float32(strength) if strength else None

        def of_task(q: Posterior, latents: jax.Array | None) -> tuple[jax.Array, jax.Array]:
            model = world._replace(posterior=q._replace(latents=None), latents=latents, noise=noise)
            return change.foretold(key, model, steps, network)

        inputs = world.normaliser.inputs
        seen = inputs(memory.obs[present], memory.action[present])
        near = change.nearness(inputs(obs, action), seen, memory.filled[present])
        return *jax.vmap(of_task)(beliefs[0], beliefs[2]), near

    def _with_present(self, state: DetectingState) -> Known:
        """What is known of tasks, the present one as it is now."""
        inner, place = state.inner, state.inner.task_number

        def put(kept: jax.Array, now: jax.Array) -> jax.Array:
            return jnp.asarray(kept).at[:, place].set(now)

        posterior = jax.tree.map(put, state.known.posterior, inner.task.posterior)
        prior = jax.tree.map(put, state.known.prior, inner.prior)
        kept, own = state.known.latents, inner.task_latents
        latents = None if kept is None or own is None else put(kept, own)
        return Known(posterior, prior, latents, state.known.scales, state.known.iterations)

    def _switched(self, keys: Keys, state: DetectingState, odds: Odds, now: int) -> DetectingState:
        """Another task is the present one, from the steps on that began to speak for it."""
        inner, known, count = state.inner, state.known, state.met
        iterations = known.iterations.copy()
        left = max(inner.iteration, NORMALISER_ITERATIONS) if inner.task_number == 0 else inner.iteration
        iterations[0, inner.task_number] = left
        if inner.iteration == 0 and inner.task_number == count - 1 > 0 and now != self.tasks:
            count -= 1  # it was begun in error and has learned nothing: its place is free
        back = now < self.tasks
        if back:
            inner = self._returned(inner, known, now, int(iterations[0, now]))
        else:
            inner = self.agent.begin_task([key.fold("begin") for key in keys], inner._replace(task_number=count - 1))
            scales = known.scales.copy()
            scales[0, count] = change.UNKNOWN
            known, count = known._replace(scales=scales), count + 1
        nothing = change.no_odds(self.tasks)
        return state._replace(
            inner=inner,
            known=known._replace(iterations=iterations),
            odds=Odds(nothing.log[None], nothing.since[None]),
            met=count,
            began=max(state.seen - int(odds.since[now]), 0),
            decisions=state.decisions.with_one(state.seen, back, float(odds.log[now])),
        )

    def _returned(self, inner: VblrlState, known: Known, task: int, iterations: int) -> VblrlState:
        """The agent where it left a task."""

        def of_task(leaf: jax.Array) -> jax.Array:
            return leaf[:, task]

        posterior, prior = (jax.tree.map(of_task, each) for each in (known.posterior, known.prior))
        latents = None if known.latents is None else known.latents[:, task]
        inference = self.agent.inference
        return inner._replace(
            recent=inner.recent if inference is None else inference.first(inner.replay, task),
            task=self.agent.programs.restart(posterior),
            prior=prior,
            task_latents=latents,
            latents=latents,
            task_number=task,
            iteration=iterations,
            step=0,
        )

    def update(self, keys: Keys, state: DetectingState, rows: Transition) -> tuple[DetectingState, Info]:
        """Learns from the steps that belong to the present task."""
        length = np.asarray(rows.reward).shape[1]
        own = length - state.began
        info: dict[str, HostArray] = {}
        inner = state.inner
        if 2 * own >= length:
            place = state.began + np.arange(length) % own
            inner = inner._replace(replay=thinned(inner.replay, inner.task_number, length))
            inner, told = self.agent.update(keys, inner, Transition(*(np.asarray(part)[:, place] for part in rows)))
            info |= told
        last = state.decisions
        info["believed_task"] = np.array([inner.task_number])
        info["switches"] = np.array([last.switches])
        if last.switches:
            facts = {
                "switch_first_step": last.first,
                "switch_step": last.step,
                "switch_back": last.back,
                "switch_log_odds": last.log_odds,
            }
            info |= {name: np.array([value]) for name, value in facts.items()}
        return state._replace(inner=inner, seen=0, began=0, decisions=Decisions()), info

    def extend(self, state: DetectingState, fresh: DetectingState) -> DetectingState:
        """What is known of tasks keeps its place; what speaks for a change is asked anew."""
        return super().extend(state._replace(odds=fresh.odds), fresh)

    @property
    def start_iterations(self) -> int:
        """As told."""
        return self.agent.start_iterations

    @property
    def back_variants(self) -> tuple[str, ...]:
        """As told."""
        return self.agent.back_variants

    def snapshot(self, keys: Keys, state: DetectingState) -> VblrlSnapshot:
        """Of the task that is believed to be the present one."""
        return self.agent.snapshot(keys, state.inner)

    def policy(self, own: VblrlSnapshot, latest: VblrlSnapshot, score: Score, variant: str) -> Policy:
        """As told."""
        return self.agent.policy(own, latest, score, variant)

    def describe(self) -> Mapping[str, str]:
        """As told, and that it is not."""
        return {**self.agent.describe(), "boundaries": "detect"}


def detecting(agent: object, lanes_count: int) -> Detecting:
    """The agent, not told when tasks begin; or one line that says why it cannot be so."""
    if not isinstance(agent, Vblrl):
        raise UserError("boundaries detect needs a posterior of each task and one of the world: method vblrl")
    return Detecting(_keeping_all(cast(Vblrl, agent)), lanes_count)


def _keeping_all(agent: Vblrl) -> Vblrl:
    """The agent with a memory that keeps everything: any task may be the present one again."""
    everything = agent.settings.replay.model_copy(update={"finished_transitions": 0})
    settings = agent.settings.model_copy(update={"replay": everything})
    return Vblrl(agent.spec, settings, agent.budget, agent.name)
