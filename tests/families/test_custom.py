"""Families made from Gymnasium environments."""

import json
import math
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.pendulum import PendulumEnv

import posterity
from posterity.errors import UserError
from posterity.families.base import Family
from posterity.families.contract import check
from posterity.types import Key, Spec, Task

KEY = Key.of(0).fold("stream")


def pendulum(**more: Any) -> Family:
    return posterity.Family.from_gymnasium("Pendulum-v1", **{"vary": {"g": posterity.uniform(5, 15)}, **more})


def one_task(family: Family) -> Task:
    return family.tasks(KEY, 1)[0]


def test_a_longer_stream_begins_with_a_shorter_one_and_tasks_survive_json():
    family = pendulum(vary={"g": posterity.uniform(5, 15), "action_gain": posterity.log_uniform(0.5, 2)})
    assert family.tasks(KEY, 9)[:3] == family.tasks(KEY, 3)
    for task in family.tasks(KEY, 3):
        assert json.loads(json.dumps(asdict(task))) == asdict(task)


def test_another_parameter_changes_none_of_the_rest():
    one, two = pendulum(), pendulum(vary={"m": posterity.uniform(1, 2), "g": posterity.uniform(5, 15)})
    assert [task.factors["g"] for task in one.tasks(KEY, 4)] == [task.factors["g"] for task in two.tasks(KEY, 4)]


def test_seeds_have_streams_of_their_own():
    assert pendulum().tasks(KEY, 3) != pendulum().tasks(Key.of(1).fold("stream"), 3)


def test_the_spec_is_the_environments_own():
    spec = pendulum().spec
    assert isinstance(spec, Spec)
    assert (spec.obs_dim, spec.max_episode_steps, spec.alive) == (3, 200, None)
    np.testing.assert_array_equal([spec.low, spec.high], [[-2.0], [2.0]])


def test_an_argument_reaches_the_constructor_and_an_attribute_the_environment():
    family = pendulum(
        vary={"g": posterity.uniform(5, 15), "m": posterity.choice(2.5), "attribute:l": posterity.choice(3)}
    )
    task = one_task(family)
    env: Any = family.make(task).unwrapped
    assert (env.g, env.m, env.l) == (task.factors["g"], 2.5, 3)


def test_an_action_gain_scales_what_is_done():
    family = pendulum(vary={"action_gain": posterity.choice(0.5)})
    weak, plain = family.make(one_task(family)), gymnasium.make("Pendulum-v1")
    for env in (weak, plain):
        env.reset(seed=0)
    np.testing.assert_array_equal(weak.step(np.array([1.0], np.float32))[0], plain.step(np.array([0.5], np.float32))[0])


def test_a_function_may_change_or_wrap_the_environment():
    def heavier(env: Any, value: float) -> None:
        env.unwrapped.m = value

    family = pendulum(vary={"weight": (posterity.choice(4.0), heavier)})
    env: Any = family.make(one_task(family)).unwrapped
    assert env.m == 4.0


def test_a_function_that_makes_environments_will_do():
    family = posterity.Family.from_gymnasium(
        lambda g=10.0: PendulumEnv(g=g), vary={"g": posterity.uniform(5, 15)}, max_episode_steps=40
    )
    env = family.make(one_task(family))
    env.reset(seed=0)
    cut = [env.step(np.zeros(1, np.float32))[3] for _ in range(40)]
    assert cut == [False] * 39 + [True]
    assert check(family, 3, 0) == []


def test_the_length_of_an_episode_can_be_said_and_set():
    family = pendulum(max_episode_steps=30)
    longer = family.configured(family.settings.model_copy(update={"max_episode_steps": 300}))
    for each, steps in ((family, 30), (longer, 300)):
        env = each.make(one_task(each))
        env.reset(seed=0)
        cut = [env.step(np.zeros(1, np.float32))[3] for _ in range(steps)]
        assert cut.index(True) + 1 == each.spec.max_episode_steps == steps


def test_a_body_that_says_where_it_is_healthy_is_believed():
    pytest.importorskip("mujoco")
    family = posterity.Family.from_gymnasium("Hopper-v5", vary={"gravity": posterity.uniform(0.5, 1.5)})
    low, high = family.spec.alive
    assert (low[0], low[1], high[1]) == (0.7, -0.2, 0.2)
    assert not np.isfinite([*low[2:], *high[2:], high[0]]).any()
    assert "by its healthy ranges" in family.notes()[0]


def test_sizes_and_masses_go_together_in_any_order():
    """A size is compiled, which writes masses anew: it comes first, whatever is named first."""
    pytest.importorskip("mujoco")
    masses = []
    for names in (("mass:torso", "size:torso"), ("size:torso", "mass:torso")):
        vary = {name: posterity.choice(2.0 if name.startswith("mass") else 1.5) for name in names}
        family = posterity.Family.from_gymnasium("Hopper-v5", vary=vary, alive=None)
        env: Any = family.make(one_task(family)).unwrapped
        masses.append(env.model.body_mass[1])
    plain: Any = gymnasium.make("Hopper-v5").unwrapped
    assert masses[0] == masses[1] > 2.5 * plain.model.body_mass[1]


def reward(obs: Any, action: Any, next_obs: Any) -> Any:
    angle = np.arctan2(obs[:, 1], obs[:, 0])
    return -(angle**2 + 0.1 * obs[:, 2] ** 2 + 0.001 * action[:, 0] ** 2)


def test_a_known_reward_is_kept_and_checked_against_the_environment():
    family = pendulum(reward=reward)
    assert family.spec.reward is reward
    assert check(family, 2, 0) == []
    with pytest.raises(UserError, match=r"reward= gives .* where the environment gave"):
        check(pendulum(reward=lambda obs, action, next_obs: np.zeros(len(obs))), 2, 0)


def test_a_known_termination_is_checked_against_the_environment():
    check(pendulum(terminated=lambda obs, action, next_obs: np.zeros(len(obs), bool)), 2, 0)
    with pytest.raises(UserError, match="terminated= gives True where the environment gave False"):
        check(pendulum(terminated=lambda obs, action, next_obs: np.ones(len(obs), bool)), 2, 0)


def cartpole(**more: Any) -> Family:
    return posterity.Family.from_gymnasium("CartPole-v1", {"length": posterity.uniform(0.3, 1)}, **more)


def test_discrete_actions_are_numbers_outside_and_one_hot_inside():
    spec = cartpole().spec
    assert (spec.actions, len(spec.low), spec.obs_dim) == (2, 2, 4)
    assert check(cartpole(alive="learn"), 2, 0) == []
    drawn = np.array([spec.random_action(KEY.fold(place).generator()) for place in range(50)])
    assert drawn.shape == (50,)
    assert set(drawn.tolist()) == {0, 1}
    np.testing.assert_array_equal(spec.encoded(np.array([[1, 0]])), [[[0, 1], [1, 0]]])
    np.testing.assert_array_equal(spec.decoded(spec.encoded(drawn)), drawn)


def test_a_spec_with_another_number_of_actions_than_the_environment_is_refused():
    family = cartpole()
    vars(family)["spec"] = Spec.discrete(4, 3, 500)
    with pytest.raises(UserError, match=r"has 2 discrete actions, but spec.actions is 3"):
        check(family, 1, 0)
    vars(family)["spec"] = Spec.discrete(4, 2, 500)._replace(high=np.full(2, 2.0))
    with pytest.raises(UserError, match=r"make it by Spec\.discrete"):
        check(family, 1, 0)


class Lottery(gymnasium.Env[Any, Any]):
    """Ends by chance, which no box explains."""

    action_space, observation_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2), 0.0, bool(self.np_random.random() < 0.1), False, {}


def test_a_termination_is_learned_where_episodes_end_and_nothing_says_when():
    lottery = posterity.Family.from_gymnasium(
        Lottery, {"x": (posterity.uniform(0, 1), lambda env, value: None)}, max_episode_steps=20
    )
    assert lottery.spec.learn_termination
    assert lottery.spec.alive is None
    assert "so what ends an episode is learned" in check(lottery, 1, 0)[0]
    assert not pendulum().spec.learn_termination
    assert not cartpole().spec.learn_termination  # a box explains the ends that random play has met
    assert cartpole(alive="learn").spec.learn_termination


class Wordy(gymnasium.Env[Any, Any]):
    """Says things instead of numbers."""

    action_space = spaces.Box(-1, 1, (1,))
    observation_space = spaces.Text(5)


@pytest.mark.parametrize(
    ("env", "more", "says"),
    [
        ("CartPole-v1", {"vary": {"action_gain": posterity.uniform(0.3, 1)}}, "'action_gain' is for real actions"),
        ("Pendulum-v1", {"alive": "guess"}, "expected a box"),
        ("Pendulum-v1", {"alive": {0: (0, 1)}, "terminated": lambda *_: True}, "give one of them"),
        ("Pendulum-v9", {}, "cannot be made: VersionNotFound"),
        ("Pendulum-v1", {"vary": {}}, "vary is empty"),
        ("Pendulum-v1", {"vary": {"g": 3}}, "expected a distribution"),
        ("Pendulum-v1", {"vary": {"gg": posterity.uniform(0, 1)}}, "nothing is called 'gg' here. Did you mean 'g'"),
        ("Pendulum-v1", {"alive": {7: (0, 1)}}, "observations have the indices 0 to 2"),
        ("Pendulum-v1", {"max_episode_steps": 0}, "expected 1 or more"),
        (PendulumEnv, {}, "does not say how long an episode is"),
        (lambda: None, {}, "made None; expected a Gymnasium environment"),
        (Wordy, {"vary": {"x": (posterity.uniform(0, 1), lambda env, value: None)}}, "expected a Box"),
        (3, {}, "not a value of type int"),
    ],
)
def test_what_cannot_be_a_family_is_said_in_one_line(env: Any, more: dict[str, Any], says: str):
    with pytest.raises(UserError, match=says) as refused:
        posterity.Family.from_gymnasium(env, **{"vary": {"g": posterity.uniform(5, 15)}, **more})
    assert "\n" not in str(refused.value)


def test_a_family_loads_neither_jax_nor_mujoco_before_it_needs_them():
    code = (
        "import sys, posterity; vary = {'g': posterity.uniform(1, 2)}; "
        "posterity.Family.from_gymnasium('Pendulum-v1', vary).spec; "
        "assert not {'jax', 'mujoco'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_alive_box_that_is_given_is_taken():
    low, high = pendulum(alive={2: (-7.5, math.inf)}).spec.alive
    assert (low[2], high[2], low[0]) == (-7.5, math.inf, -math.inf)
