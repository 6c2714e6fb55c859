"""box-jump against what can be worked out by hand."""

import numpy as np
import pytest
from pydantic import ValidationError

from posterity.families.boxjump import BoxJump, BoxJumpSettings
from posterity.types import Key, Task

JUMP, RIGHT = np.array([0.9], dtype=np.float32), np.array([-0.9], dtype=np.float32)


def at(position: int) -> Task:
    return Task(0, "", {"position": position})


def run(position: int, column: int | None, settings: BoxJumpSettings | None = None):
    """Runs right, jumps in `column`, and gives all observations and rewards."""
    env = BoxJump(settings).make(at(position))
    obs, _ = env.reset(seed=0)
    seen, rewards, terminated = [obs], [], False
    while not terminated:
        on_floor = seen[-1][1] == 10
        obs, reward, terminated, truncated, _ = env.step(JUMP if on_floor and seen[-1][0] == column else RIGHT)
        assert not truncated
        seen.append(obs)
        rewards.append(reward)
    return np.array(seen), np.array(rewards)


@pytest.mark.parametrize("position", range(15, 34))
def test_exactly_one_column_clears_the_obstacle(position: int):
    assert BoxJump().clearing(at(position)) == [position - 14]


def test_a_jump_is_sixteen_up_and_sixteen_down():
    seen, _ = run(20, 6)
    up, down = np.arange(11, 27), np.arange(25, 9, -1)
    np.testing.assert_array_equal(seen[:, 0], np.arange(57))
    np.testing.assert_array_equal(seen[:7, 1], 10)
    np.testing.assert_array_equal(seen[7:39, 1], [*up, *down])
    np.testing.assert_array_equal(seen[39:, 1], 10)
    np.testing.assert_array_equal(seen[:, 2], 1)
    np.testing.assert_array_equal(seen[7:23, 3], [*[1] * 15, -1])  # the velocity is what the next step will do
    np.testing.assert_array_equal(seen[23:39, 3], [*[-1] * 15, 0])


def test_a_run_that_clears_the_obstacle_earns_its_way_and_one_for_the_wall():
    _, rewards = run(20, 6)
    np.testing.assert_array_equal(rewards, [*[1] * 55, 2])


@pytest.mark.parametrize(
    ("column", "end", "earned"),
    [
        (None, (16, 10), 14),  # runs into its side: x + 5 > 20 first at 16
        (7, (16, 19), 14),  # one column late: not yet high enough over the near edge
        (5, (28, 19), 26),  # one column early: too low before the far edge, x < 29
        (0, (23, 19), 21),
    ],
)
def test_a_hit_costs_one_ends_the_episode_and_stops_the_agent(column: int | None, end: tuple[int, int], earned: int):
    seen, rewards = run(20, column)
    np.testing.assert_array_equal(seen[-1], [*end, 0, 0])
    np.testing.assert_array_equal(rewards, [*[1] * (len(rewards) - 1), -1])
    assert rewards.sum() == earned


def test_actions_in_the_air_are_ignored():
    calm, restless = (BoxJump().make(at(30)) for _ in range(2))
    for env in (calm, restless):
        env.reset(seed=0)
        env.step(JUMP)
    for _ in range(25):
        one, other = calm.step(RIGHT), restless.step(JUMP)
        np.testing.assert_array_equal(one[0], other[0])


def test_only_an_action_above_the_threshold_jumps():
    env = BoxJump(BoxJumpSettings(threshold=0.5)).make(at(30))
    for action, height in ((-1.0, 10), (0.5, 10), (0.51, 11), (1.0, 11)):
        env.reset(seed=0)
        assert env.step(np.array([action], dtype=np.float32))[0][1] == height


@pytest.mark.parametrize("changes", [{}, {"speed": 3}, {"speed": 0.5, "obstacle_width": 5, "max_episode_steps": 200}])
def test_an_episode_ends_just_when_the_observation_leaves_the_box(changes: dict):
    """Termination is data: the planner's box and the rule of the world agree on every step of 300 random episodes."""
    family = BoxJump(BoxJumpSettings(**changes))
    assert family.spec.alive is not None
    low, high = family.spec.alive
    hits = walls = 0
    for number, task in enumerate(family.tasks(Key.of(0), 100)):
        env, generator = family.make(task), np.random.default_rng(number)
        (column,) = generator.choice(family.clearing(task), 1)
        for careful in (False, False, True):
            obs, _ = env.reset(seed=0)
            assert ((obs > low) & (obs < high)).all()
            terminated, reward = False, 0.0
            while not terminated:
                jump = (obs[0] == column) if careful else generator.random() < 0.1
                obs, reward, terminated, truncated, _ = env.step(JUMP if jump else RIGHT)
                assert terminated == (not ((obs > low) & (obs < high)).all())
                assert not truncated
            hits, walls = hits + (reward == -1), walls + (float(reward) > family.settings.speed)
    assert hits + walls == 300
    assert walls >= 100
    assert hits >= 100


def test_nothing_tells_where_the_obstacle_is_before_it_is_met():
    near, far = run(20, None)[0], run(33, None)[0]
    np.testing.assert_array_equal(near[:-1], far[: len(near) - 1])


def test_positions_are_whole_uniform_and_of_a_stream_per_seed():
    family = BoxJump()
    places = [task.factors["position"] for task in family.tasks(Key.of(0), 1900)]
    count = np.bincount(places, minlength=34)
    assert count[:15].sum() == 0
    assert (np.abs(count[15:] - 100) < 5 * np.sqrt(100)).all()  # 5 standard deviations
    assert family.tasks(Key.of(0), 9) == family.tasks(Key.of(0), 9)
    assert family.tasks(Key.of(0), 9) != family.tasks(Key.of(1), 9)


@pytest.mark.parametrize(("width", "most"), [(9, 2), (5, 3)])
def test_in_strides_of_three_every_position_can_still_be_cleared(width: int, most: int):
    """The quick preset is such a world, with the narrower obstacle."""
    family = BoxJump(BoxJumpSettings(speed=3, obstacle_width=width))
    columns = [family.clearing(at(position)) for position in range(15, 34)]
    assert {len(each) for each in columns} == set(range(1, most + 1))
    assert {column for each in columns for column in each} == set(range(0, 19, 3))


def test_a_picture_shows_agent_obstacle_wall_and_the_jump():
    lines = BoxJump().draw(at(25)).splitlines()
    assert lines[4].startswith("@@@@@  ")
    assert lines[4].endswith("▐")
    assert lines[4].index("█") == 25
    assert lines[4].count("█") == 9
    assert "·" in lines[1]
    assert lines[-1].endswith("x = 11")
    assert BoxJump(BoxJumpSettings(obstacle_height=20)).draw(at(25)).endswith("nowhere")


@pytest.mark.parametrize("changes", [{"low": 40}, {"low": 3}, {"high": 55}])
def test_an_obstacle_that_does_not_fit_is_refused(changes: dict):
    with pytest.raises(ValidationError):
        BoxJumpSettings(**changes)
