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
