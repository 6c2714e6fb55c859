"""How an actor and its critics are learned from a replay, and from what a model imagines; for one lane.

Beside the transitions that happened, batches may hold imagined ones (MBPO, Janner et al. 2019). Short rollouts of the
actor begin in states that this task or an earlier one has been in: states are shared by tasks, and what they lead to is
imagined by the model of the present one. A rollout goes on while its model knows what it is doing: it ends for
good where the networks disagree by more than they do, nearly always, on the task's own transitions.

Every step is the mean of what a network predicts. Departure from MBPO, which draws it: a draw lies beside the states
that a body can be in, where critics are no guide. On a walker the critics' errors were three to six times larger on
draws than on real transitions, and no larger on means (results/notes/32).

Imagined transitions help most when few have happened, and later keep the critics from what is better than the model.
So their share of a batch falls with the number of real ones. It can fall, too, where critics err more on imagined
transitions than on real ones: what the model imagines then contradicts what happens (results/notes/36).

Where tasks have a latent and the actor acts alone, actor and critics are told it: a transition comes with a draw of
what is believed of its task's, and an imagined one with a draw of the present task's.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from posterity.models import actor_critic, actor_critic_fit, dynamics, normaliser, replay, termination
from posterity.models.actor_critic import (
    ActionBox,
    ActorCriticLoss,
    ActorCriticTraining,
    StepBatch,
)
from posterity.models.dynamics import DynamicsModel, NetworkSettings
from posterity.models.mlp import Layers
from posterity.models.normaliser import Normaliser
from posterity.models.posterior import Latents
from posterity.models.replay import Replay, Rows
from posterity.types import Spec

EARLIER_SHARE = 0.5  # of a batch, where there is transfer: transitions of earlier tasks
ROLLOUTS = 256  # for each imagining network
LENGTH = 4  # steps of a rollout
FADES = 40_000  # transitions that happened, from which on the imagined share is in inverse proportion to their number
TRUSTED_BY = 1024  # transitions, real and imagined, on which the critics' errors are compared
KNOWN = 0.95  # share of the task's transitions on which networks disagree by less than what ends a rollout


class ActorCriticLearning:
    """What one lane does."""

    def __init__(
        self,
        spec: Spec,
        gamma: float,
        steps: int,
        transfers: bool,
        imagined_share: float = 0.0,
        network: NetworkSettings | None = None,
        particles: int = 0,
        hidden: tuple[int, ...] = actor_critic.HIDDEN,
        alone: bool = True,
        context: int = 0,
        imagined_error: float = 0.0,
    ) -> None:
        """`steps` on the critics after each iteration. `network` and `particles` are of the model that imagines.

        `imagined_error`: times that critics may err more on what it imagines before less of it counts; 0: no bound.

        `alone`: the actor acts, and no plan does. `context`: numbers that say which task it is.
        """
        self.context, self.imagined_error = context, imagined_error
        self.entropy = actor_critic_fit.ENTROPY_ALONE if alone else actor_critic_fit.ENTROPY_BESIDE_A_PLAN
        self.spec, self.gamma, self.steps, self.imagined_share = spec, gamma, steps, imagined_share
        self.network, self.particles, self.hidden = network, particles, hidden
        self.earlier_share = EARLIER_SHARE if transfers else 0.0
        self.box = ActionBox(jnp.float32(spec.low), jnp.float32(spec.high))

    def init(self, key: jax.Array) -> ActorCriticTraining:
        """Networks that know nothing."""
        return actor_critic.init(key, self.spec.obs_dim, len(self.spec.low), self.hidden, context=self.context)

    def fit(
        self,
        key: jax.Array,
        training: ActorCriticTraining,
        units: Normaliser,
        memory: Replay,
        task: jax.Array,
        model: DynamicsModel | None = None,
        known: Latents | None = None,
        since: jax.Array | int = 0,
    ) -> tuple[ActorCriticTraining, ActorCriticLoss]:
        """From the present task's transitions, from earlier ones' where there is transfer, and from imagined ones.

        `known` [K, Z]: what is believed of every task's latent, where actor and critics are told it. `since`: the first
        task that these networks learn from.
        """
        size = actor_critic_fit.BATCH_SIZE
        counted = jnp.arange(memory.filled.shape[0]) >= since
        happened = jnp.where(counted, memory.filled, 0).sum() if self.earlier_share else memory.filled[task]
        share = self.imagined_share * jnp.minimum(1.0, FADES / jnp.maximum(happened, 1))

        def happening(k: jax.Array, count: int = size) -> StepBatch:
            rows = replay.sample_mixed(k, memory, task, self.earlier_share, count, since)
            batch = StepBatch(rows.obs, rows.action, rows.reward, rows.next_obs, ended(self.spec, rows))
            return batch._replace(context=_context(jax.random.fold_in(k, 2), known, rows.task))

        draw = happening
        if model is not None and self.imagined_share:
            imagine_key, trust_key = jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)
            made, counts = self.imagine(imagine_key, training.now.actor, units, memory, task, model, known)
            if self.imagined_error:
                learner = actor_critic_fit.Learner(units, self.box, self.gamma, self.entropy)
                both = happening(trust_key, TRUSTED_BY), _drawn_from(made, counts, TRUSTED_BY)(trust_key)
                real, imagined = (learner.error(trust_key, training, each) for each in both)
                share = share * trust(real, imagined, self.imagined_error)
            more = _drawn_from(made, counts, size)

            def draw(k: jax.Array) -> StepBatch:
                return _mixed(jax.random.fold_in(k, 1), happening(k), more, share)

        rows, filled = replay.transitions(memory, task)
        earned = jnp.where(filled, rows.reward, 0.0)  # and 0, which an end is worth
        training = actor_critic.widened(training, earned.min(initial=0.0), earned.max(initial=0.0), self.gamma)
        learned, told = actor_critic_fit.fit(key, training, units, draw, self.box, self.gamma, self.steps, self.entropy)
        return learned, told._replace(imagined=share)

    def imagine(
        self,
        key: jax.Array,
        actor: Layers,
        units: Normaliser,
        memory: Replay,
        task: jax.Array,
        model: DynamicsModel,
        known: Latents | None = None,
    ) -> tuple[StepBatch, jax.Array]:
        """Imagined transitions [M, ...], and whether each of them counts [M]."""
        assert self.network is not None
        network, count = self.network, self.particles
        start_key, draw_key, walk_key, probe_key = jax.random.split(key, 4)
        networks = model.sample(draw_key, count)
        rows = replay.sample_mixed(start_key, memory, task, self.earlier_share, count * ROLLOUTS)
        start = rows.obs.reshape(count, ROLLOUTS, -1)
        probe = replay.sample_task(probe_key, memory, task, 512)
        context = _context(jax.random.fold_in(probe_key, 1), known, jnp.full(start.shape[:2], task))
        usual = jnp.quantile(self._doubt(networks, units, probe.obs[None], probe.action[None]), KNOWN)

        def walk(
            now: tuple[jax.Array, jax.Array], k: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array], tuple[StepBatch, jax.Array]]:
            place, going = now
            noise = jax.random.normal(k, (*place.shape[:-1], len(self.spec.low)))
            action, _ = actor_critic.drawn_action(noise, actor, units, place, self.box, context)
            prediction = model.predict_each(networks, place, action, network)
            reward, following = model.normaliser.outcome(place, prediction.mean)
            going = going * (self._doubt(networks, units, place, action) <= usual)
            flat = Rows(
                place.reshape(-1, place.shape[-1]),
                action.reshape(-1, action.shape[-1]),
                reward.reshape(-1),
                following.reshape(-1, following.shape[-1]),
            )
            over = ended(self.spec, flat)
            if model.termination is not None:  # nobody says what ends an episode, so it was learned
                ends = termination.probability(model.termination, units, flat.next_obs)
                over = (ends > 0.5).astype(jnp.float32)
            made = StepBatch(flat.obs, flat.action, flat.reward, flat.next_obs, over)
            if context is not None:
                made = made._replace(context=context.reshape(-1, context.shape[-1]))
            return (following, going * (1.0 - over.reshape(going.shape))), (made, going.reshape(-1))

        _, (made, counts) = jax.lax.scan(walk, (start, jnp.ones(start.shape[:2])), jax.random.split(walk_key, LENGTH))
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), made)
        sound = jnp.isfinite(flat.reward) & jnp.isfinite(flat.next_obs).all(axis=-1)
        clean = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, 0.0), flat)
        return clean, counts.reshape(-1) * sound + 1e-6

    def _doubt(self, networks: Layers, units: Normaliser, obs: jax.Array, action: jax.Array) -> jax.Array:
        """[...] by how much networks disagree on steps [..., O], [..., A]: root mean square over dimensions."""
        assert self.network is not None
        told = dynamics.forecast(networks, units.inputs(obs, action), self.network)
        return jnp.sqrt(told.epistemic.mean(axis=-1))


def trust(real: jax.Array, imagined: jax.Array, times: float) -> jax.Array:
    """[] factor on the imagined share, by the root mean square errors of critics on real and imagined transitions.

    It bounds what imagined transitions add to the mean square error that is learned from: errors up to `times` the
    real ones count in full.
    """
    return jnp.minimum(1.0, (times * real / jnp.maximum(imagined, 1e-9)) ** 2)


def _context(key: jax.Array, known: Latents | None, task: jax.Array | None) -> jax.Array | None:
    """[..., Z] draws of what is believed of the latents of tasks [...]; None: nobody is told."""
    if known is None or task is None:
        return None
    return known.mean[task] + jax.nn.softplus(known.rho[task]) * jax.random.normal(key, known.mean[task].shape)


def _mixed(key: jax.Array, real: StepBatch, imagined: Callable[[jax.Array], StepBatch], share: jax.Array) -> StepBatch:
    """A batch whose rows are, each with probability `share`, imagined and not real."""
    which_key, draw_key = jax.random.split(key)
    which = jax.random.uniform(which_key, real.reward.shape) < share

    def chosen(own: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(which.reshape(-1, *(1 for _ in own.shape[1:])), other, own)

    return jax.tree.map(chosen, real, imagined(draw_key))


def _drawn_from(made: StepBatch, weights: jax.Array, count: int) -> Callable[[jax.Array], StepBatch]:
    """Draws `count` of the transitions `made`, each as often as its weight says."""
    upto = jnp.cumsum(weights)

    def draw(key: jax.Array) -> StepBatch:
        place = jnp.searchsorted(upto, jax.random.uniform(key, (count,)) * upto[-1], side="right")
        return jax.tree.map(lambda leaf: leaf[jnp.minimum(place, upto.shape[0] - 1)], made)

    return draw


def ended(spec: Spec, rows: Rows) -> jax.Array:
    """[B] 1 where a transition ended its episode: by what the spec knows, or else as it is on record."""
    if spec.terminated is not None:
        action = rows.action.argmax(axis=-1) if spec.actions else rows.action
        return jnp.asarray(spec.terminated(rows.obs, action, rows.next_obs), jnp.float32)
    if spec.alive is not None:
        low, high = (jnp.float32(side)[None] for side in spec.alive)
        return 1.0 - ((rows.next_obs > low) & (rows.next_obs < high)).all(axis=-1)
    return jnp.zeros_like(rows.reward) if rows.terminated is None else rows.terminated


def measured(spec: Spec, memory: Replay, task: jax.Array) -> Normaliser:
    """The normaliser that follows from the transitions of a task."""
    rows, filled = replay.transitions(memory, task)
    plain = normaliser.identity(spec.obs_dim, len(spec.low))
    targets = plain.targets(rows.obs, rows.reward, rows.next_obs)
    least = None if spec.min_scale is None else (jnp.float32(spec.min_scale[0]), jnp.float32(spec.min_scale[1]))
    return normaliser.estimate(plain.inputs(rows.obs, rows.action), targets, filled, least)
