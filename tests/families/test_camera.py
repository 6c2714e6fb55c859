"""Pictures of tasks, without a display."""

import numpy as np
import pytest

from posterity.errors import UserError
from posterity.experiment.config import resolve
from posterity.families import camera as cameras
from posterity.families import make_family
from posterity.families.camera import camera
from posterity.families.drawing import HEIGHT, WIDTH
from posterity.types import Key


def pictures(name: str, steps: int):
    config = resolve(name, None, "quick")
    family = make_family(config.family, config.env)
    task = family.tasks(Key.of(0).fold("stream"), 1)[0]
    env = family.make(task)
    env.reset(seed=0)
    env.action_space.seed(0)
    taker = camera(family, task, env)
    taken = [taker.shot()]
    for _ in range(steps):
        env.step(env.action_space.sample())
        taken.append(taker.shot())
    taker.close()
    env.close()
    return taken


OWN = ["pendulum-gravity", "point-goal", "box-jump", "item-search", "grid", "random-mdp", "river-swim", "chain"]


@pytest.mark.parametrize("name", OWN)
def test_a_family_of_posterity_draws_itself_and_the_picture_follows_the_world(name: str):
    taken = pictures(name, 8)
    assert all(picture.shape == (HEIGHT, WIDTH, 3) and picture.dtype == np.uint8 for picture in taken)
    assert len({picture.tobytes() for picture in taken}) > 1


@pytest.mark.parametrize("name", ["hopper-gravity", "cheetah-bodyparts"])
def test_mujoco_is_drawn_where_there_is_a_renderer(name: str):
    pytest.importorskip("mujoco")
    try:
        cameras.renderer()
    except UserError:
        pytest.skip("no renderer")
    first, *_, last = pictures(name, 3)
    assert first.shape == (HEIGHT, WIDTH, 3)
    assert first.std() > 10, "not one colour"
    assert (first != last).any()


def test_an_environment_that_cannot_be_drawn_is_one_line():
    import gymnasium
    from gymnasium import spaces

    import posterity
    from posterity.types import Task

    class Blind(gymnasium.Env):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))

    family = posterity.Family.from_gymnasium("Pendulum-v1", vary={"g": posterity.uniform(5.0, 15.0)})
    with pytest.raises(UserError, match="Blind cannot be filmed"):
        camera(family, Task(0, "", {}), Blind())
