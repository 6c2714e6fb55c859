"""The Meta-World families against their formulas, and against the package's own scripted policies."""

import builtins
from typing import Any, cast

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.families import family_type, metaworld
from posterity.families.metaworld import (
    CW10,
    MIN_SCALE,
    MT10,
    ArmEnv,
    Cw10,
    Cw20,
    CwSettings,
    Mt10,
    Mt50,
    MtSettings,
    Reach,
    ReachSettings,
    ReachWall,
)
from posterity.types import Key

pytest.importorskip("metaworld", reason="the extra is not installed: pip install 'posterity[metaworld]'")

KEY = Key.of(0).fold("stream")
BOXES = {  # object and goal, least and greatest
    Reach: ((-0.1, 0.6, 0.02, -0.1, 0.8, 0.05), (0.1, 0.7, 0.02, 0.1, 0.9, 0.3)),
    ReachWall: ((-0.05, 0.6, 0.015, -0.05, 0.85, 0.05), (0.05, 0.65, 0.015, 0.05, 0.9, 0.3)),
}


def fingers(env: Any) -> np.ndarray:
    return np.array(env.unwrapped.inner.tcp_center)


def goal_of(task: Any) -> np.ndarray:
    return np.array(task.factors["places"][3:])


def total(env: Any, act: Any) -> tuple[float, int | None]:
    """Return of an episode, and the first step that succeeded."""
    env.action_space.seed(0)
    env.reset(seed=0)
    earned, first, truncated, steps = 0.0, None, False, 0
    while not truncated:
        _, reward, _, truncated, info = env.step(act())
        earned, steps = earned + reward, steps + 1
        first = steps if first is None and info["success"] else first
    assert steps == 150
    return earned, first


@pytest.mark.parametrize("kind", BOXES)
def test_objects_and_goals_are_inside_their_boxes_and_apart(kind: Any):
    where = np.array([task.factors["places"] for task in kind().tasks(KEY, 30)])
    low, high = BOXES[kind]
    assert (where >= np.array(low) - 1e-12).all()
    assert (where <= np.array(high) + 1e-12).all()
    assert (np.linalg.norm(where[:, :2] - where[:, 3:5], axis=1) >= 0.15).all()
    assert np.ptp(where[:, 3:], axis=0).min() > 0.04, "goals spread over their box"


def test_streams_differ_by_seed_and_drawing_leaves_numpys_generator_alone():
    np.random.seed(3)  # noqa: NPY002 the package draws from it unless told otherwise
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    metaworld.places.cache_clear()
    assert Reach().tasks(KEY, 3) != Reach().tasks(Key.of(1).fold("stream"), 3)
    assert np.random.random() == expected  # noqa: NPY002


@pytest.mark.parametrize("kind", BOXES)
def test_reward_is_the_formula_of_v1_wherever_the_hand_is(kind: Any):
    """Hand-placed: the arm is driven to some place, and the reward there is that of the distance."""
    task = kind().tasks(KEY, 1)[0]
    env = kind().make(task)
    env.reset(seed=0)
    start = cast(Any, env.unwrapped).inner.maxReachDist  # taken while the arm still settles
    assert start == pytest.approx(np.linalg.norm(fingers(env) - goal_of(task)), abs=1e-3)
    generator = np.random.default_rng(0)
    seen = []
    for target, steps in ((goal_of(task), 50), (np.array([0.1, 0.5, 0.3]), 60)):
        for _ in range(steps):
            action = np.append(np.clip(10 * (target - fingers(env)), -1, 1), generator.uniform(-1, 1))
            _, reward, _, _, info = env.step(action)
            d = np.linalg.norm(fingers(env) - goal_of(task))
            formula = 1000 * (start - d) + 1000 * (np.exp(-(d**2) / 0.01) + np.exp(-(d**2) / 0.001))
            assert reward == pytest.approx(max(formula, 0.0), rel=1e-9, abs=1e-9)
            assert info == {"success": d <= 0.05}
            seen.append(reward)
    assert max(seen) > 2000
    assert min(seen) == 0.0, "beyond the start it is zero, not negative"


@pytest.mark.parametrize("kind", BOXES)
def test_going_straight_to_the_goal_and_random_play_bracket_the_scale(kind: Any):
    """Both families, over 150 steps: near 270,000, solved in about 30 steps; and near 4,000, not solved."""
    task = kind().tasks(KEY, 1)[0]
    env = kind().make(task)
    best, first = total(env, lambda: np.append(np.clip(10 * (goal_of(task) - fingers(env)), -1, 1), 0.0))
    assert 250_000 < best < 290_000
    assert first is not None
    assert 20 < first < 45
    worst, never = total(env, env.action_space.sample)
    assert 500 < worst < 15_000
    assert never is None


@pytest.mark.parametrize("observation", ["places", "moving", "full"])
def test_the_goal_is_not_observed(observation: str):
    """Two tasks that differ in the goal alone look the same, until they are rewarded."""
    family = Reach(ReachSettings.model_validate({"observation": observation}))
    one, other = family.tasks(KEY, 2)
    moved = [*one.factors["places"][:3], *other.factors["places"][3:]]
    envs = [family.make(one), family.make(type(one)(0, "", {"category": "reach", "places": moved}))]
    np.testing.assert_array_equal(envs[0].reset()[0], envs[1].reset()[0])
    steps = [[env.step(np.array([0.3, 1.0, -0.2, 0.0])) for _ in range(20)] for env in envs]
    np.testing.assert_array_equal([step[0] for step in steps[0]], [step[0] for step in steps[1]])
    assert [step[1] for step in steps[0]] != [step[1] for step in steps[1]]


def test_speed_and_pull_are_those_of_the_hand():
    """An action moves the point that draws the hand by a hundredth of it."""
    family = Reach(ReachSettings(observation="moving"))
    env = family.make(family.tasks(KEY, 1)[0])
    obs, _ = env.reset(seed=0)
    np.testing.assert_array_equal(obs[6:9], 0.0)
    for _ in range(5):
        following, *_ = env.step(np.array([1.0, 1.0, 0.5, 0.0]))
        moved = following[:3] - obs[:3]
        np.testing.assert_allclose(following[6:9], moved / 0.0125, atol=1e-9)
        np.testing.assert_allclose(following[9:], obs[9:] + np.array([0.01, 0.01, 0.005]) - moved, atol=1e-9)
        obs = following


def test_an_episode_does_not_depend_on_the_ones_before():
    """A run that is stopped and resumed builds its environments anew."""

    def play(env: Any) -> list[float]:
        env.reset(seed=1)
        return [env.step(np.array([0.5, 1.0, -0.5, 1.0]))[1] for _ in range(30)]

    for category in ("reach", "push", "drawer-open"):
        where = metaworld.places(category, KEY)
        env = ArmEnv(category, where, "full")
        first = play(env)
        assert play(env) == first == play(ArmEnv(category, where, "full"))


def test_mt10_and_mt50_begin_as_the_paper_says_and_hold_each_kind_once():
    for kind, count in ((Mt10, 10), (Mt50, 50)):
        assert kind().categories()[:3] == ("reach", "push", "pick-place")
        assert len(set(kind().categories())) == count
    assert Mt50().categories()[:10] == MT10
    assert Mt50(MtSettings(order="alphabetical")).categories()[:2] == ("assembly", "basketball")
    tasks = Mt10().tasks(KEY, 12)
    assert [task.name for task in tasks] == [*MT10, "reach", "push"]
    assert tasks[0].factors["places"] != tasks[10].factors["places"], "a kind that comes again has other places"


@pytest.mark.filterwarnings("ignore:Constant.s. may be too high")  # the package's policies on themselves
@pytest.mark.parametrize("category", ["reach", "drawer-close", "window-open"])
def test_success_is_the_packages_and_its_scripted_policy_has_it(category: str):
    policies: Any = pytest.importorskip("metaworld.policies")
    policy = policies.ENV_POLICY_MAP[f"{category}-v3"]()
    env = Mt10().make(next(task for task in Mt10().tasks(KEY, 10) if task.name == category))
    obs, _ = env.reset(seed=0)
    assert obs[36:].any(), "the goal is observed in mt10"
    solved = []
    for _ in range(200):
        obs, reward, terminated, _, info = env.step(policy.get_action(obs))
        assert 0 <= float(reward) <= 10
        assert not terminated
        solved.append(info["success"])
    assert not solved[0]
    assert any(solved)


def test_every_view_is_as_large_as_the_spec_says_and_its_units_are_known():
    for observation, size in (("places", 6), ("moving", 12), ("full", 39)):
        assert Reach(ReachSettings.model_validate({"observation": observation})).spec.obs_dim == size
    for observation, size in (("full", 39), ("moving", 27)):
        spec = Mt10(MtSettings.model_validate({"observation": observation, "goal": "hidden"})).spec
        assert spec.obs_dim == size
        assert spec.min_scale is not None
        assert (len(spec.min_scale[0]), len(spec.min_scale[1])) == (size, size + 1)
        lies_still = spec.min_scale[0] > 0.0  # and may lie elsewhere in another task
        assert (spec.min_scale[1][1:][lies_still] > 0.0).all()
        assert (spec.min_scale[1][1:][lies_still] < 0.3 * spec.min_scale[0][lies_still]).all()
    assert (MIN_SCALE[:39] > 0).all()


def test_without_the_package_the_family_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def absent(name: str, *rest: Any):
        if name.startswith("metaworld"):
            raise ImportError(name)
        return real(name, *rest)

    metaworld._classes.cache_clear()
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"^This family needs Meta-World: pip install 'posterity\[metaworld\]'$"):
        family_type("mt10")()


def test_continual_world_is_its_ten_kinds_in_its_order_again_and_again():
    """Wolczyk et al. 2021, figure 1 and appendix A, in the names of v3."""
    order = "hammer push-wall faucet-close push-back stick-pull handle-press-side push shelf-place window-close"
    assert (*order.split(), "peg-unplug-side") == CW10
    assert [task.name for task in Cw20().tasks(KEY, 20)] == 2 * [*CW10]
    assert Cw10().spec.max_episode_steps == 200


@pytest.mark.parametrize("placement", ["episode", "task"])
def test_continual_world_places_things_by_the_seed_of_an_episode_unless_told_otherwise(placement: str):
    family = Cw10(CwSettings.model_validate({"placement": placement}))
    env = family.make(family.tasks(KEY, 3)[2])
    one, same, other, after = (env.reset(seed=seed)[0].tolist() for seed in (1, 1, 2, None))
    assert one == same
    assert (one == other) == (placement == "task")
    assert (other == after) == (placement == "task"), "a reset without a seed goes on with the one before"
