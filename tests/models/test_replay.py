"""Memory of transitions: what is kept where, and what a batch holds."""

import jax
import jax.numpy as jnp
import numpy as np

from posterity.models import replay
from posterity.models.replay import Replay
from posterity.types import Transition


def rows(value: float, count: int) -> Transition:
    shape = np.full((count, 2), value, dtype=np.float32)
    steps = np.arange(count, dtype=np.float32)
    never = np.zeros(count, dtype=bool)
    return Transition(shape, shape[:, :1], steps, shape + 1, never, never)


def filled() -> Replay:
    memory = replay.empty(tasks=5, capacity=20, obs_dim=2, action_dim=1)
    for task, count in ((0, 4), (1, 10), (2, 7), (0, 3)):
        memory = replay.add(memory, jnp.int32(task), rows(float(task), count))
    return memory


def test_rows_are_kept_task_by_task_in_order():
    memory = filled()
    np.testing.assert_array_equal(memory.filled, [7, 10, 7, 0, 0])
    np.testing.assert_array_equal(memory.reward[0, :7], [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(memory.next_obs[1, :10], 2.0)
    assert not memory.obs[2, 7:].any()


def test_a_task_batch_holds_that_task_and_all_of_it():
    memory = filled()
    got = replay.sample_task(jax.random.key(0), memory, jnp.int32(1), 400)
    assert (got.obs == 1.0).all()
    assert set(np.asarray(got.reward).tolist()) == set(range(10))


def test_a_world_batch_is_spread_evenly_over_different_tasks_that_were_seen():
    memory = filled()
    keys = jax.random.split(jax.random.key(0), 40)
    got = jax.vmap(lambda key: replay.sample_world(key, memory, jnp.int32(3), tasks=2, batch_size=50))(keys)
    pairs = set()
    for batch in np.asarray(got.obs[..., 0]):
        values, counts = np.unique(batch, return_counts=True)
        pairs.add(tuple(values.tolist()))
        assert counts.tolist() == [50, 50]
    assert pairs == {(0.0, 1.0), (0.0, 2.0), (1.0, 2.0)}


def test_with_fewer_tasks_than_asked_for_they_come_again_and_nothing_unseen_is_drawn():
    memory = filled()
    got = replay.sample_world(jax.random.key(0), memory, jnp.int32(2), tasks=4, batch_size=25)
    values, counts = np.unique(np.asarray(got.obs[:, 0]), return_counts=True)
    assert values.tolist() == [0.0, 1.0]
    assert counts.tolist() == [50, 50]
    assert got.reward.max() < 10


def kept_small(counts: list[tuple[int, int]], finished: int) -> Replay:
    memory = replay.empty(tasks=3, capacity=40, obs_dim=2, action_dim=1, finished=finished)
    for task, count in counts:
        memory = replay.add(memory, jnp.int32(task), rows(float(task), count))
    return memory


def test_a_bounded_memory_has_all_of_the_present_task_and_a_sample_of_the_others():
    memory = kept_small([(0, 40), (1, 20), (1, 20)], finished=8)
    np.testing.assert_array_equal(memory.filled, [40, 40, 0])
    assert memory.reward.shape == (3, 8)
    kept = np.asarray(memory.reward[0])
    assert len({*kept.tolist()}) == 8, "without replacement"
    got = replay.sample_task(jax.random.key(0), memory, jnp.int32(1), 2000)
    assert (got.obs == 1.0).all()
    assert {*np.asarray(got.reward).tolist()} == {*range(20)}
    world = replay.sample_world(jax.random.key(0), memory, jnp.int32(2), tasks=2, batch_size=500)
    task, reward = np.asarray(world.task), np.asarray(world.reward)
    np.testing.assert_array_equal(np.asarray(world.obs)[:, 0], task)
    assert {*reward[task == 0].tolist()} == {*kept.tolist()}
    assert {*reward[task == 1].tolist()} == {*range(20)}


def test_what_stays_of_a_task_does_not_depend_on_how_it_came_in():
    at_once, in_parts = kept_small([(0, 40)], 8), kept_small([(0, 10), (0, 30)], 8)
    places = np.asarray(at_once.reward[0])  # rewards count the rows of an addition
    expected = np.concatenate([np.arange(10), np.arange(30)])[places.astype(int)]
    np.testing.assert_array_equal(in_parts.reward[0], expected)


def test_every_transition_stays_equally_often():
    """Over 400 tasks each of 10 places is kept 200 times; the standard deviation is 10 at most."""
    stays = jax.vmap(lambda task: replay._reservoir(task, jnp.int32(10), 12, 5))(jnp.arange(400))
    counts = np.bincount(np.asarray(stays).reshape(-1), minlength=12)
    assert counts[10:].sum() == 0
    assert np.abs(counts[:10] - 200).max() < 45


def test_a_bound_that_is_never_reached_changes_nothing():
    """The same draws to the bit, so a short task costs nothing but room."""
    steps = [(0, 12), (0, 12), (1, 20)]
    whole, bound = kept_small(steps, finished=0), kept_small(steps, finished=40)
    for key in jax.random.split(jax.random.key(3), 5):
        ours, theirs = (replay.sample_world(key, each, jnp.int32(2), 2, 30) for each in (bound, whole))
        for one, other in zip(ours[:5], theirs[:5], strict=True):
            np.testing.assert_array_equal(one, other)
        mine, other = (replay.sample_task(key, each, jnp.int32(1), 30) for each in (bound, whole))
        np.testing.assert_array_equal(mine.reward, other.reward)
