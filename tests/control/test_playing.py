"""Machine files and runs of vblrl at play: what `posterity evaluate` does with them."""

from pathlib import Path

import numpy as np
import pytest

from posterity.commands.playing import MachinePlayer
from posterity.experiment.evaluate import Plan, never, open_evaluator
from posterity.experiment.run import Stopped
from posterity.experiment.video import clips_of

STEPS = 6  # of an episode here


@pytest.fixture
def player(machine_file: Path):
    made = MachinePlayer(machine_file, trust=False)
    made.family.spec = made.family.spec._replace(max_episode_steps=STEPS)
    yield made
    made.controller.close()


def test_a_machine_file_plays_the_tasks_of_its_stream_and_expects_a_reward_of_every_step(player: MachinePlayer):
    assert player.own_task == 1, "it has met two"
    known = player.tasks([0, 1, 2])
    assert known[:2] == player.tasks([0, 1])
    [clip] = player.clips([2], never)
    assert clip.task == f"task 3: {known[2].name}"
    assert len(clip.shots) == STEPS + 1
    assert all(shot.forecast is not None and shot.forecast.steps == 1 for shot in clip.shots[:-1])
    earned = np.diff([shot.total for shot in clip.shots])
    assert np.isfinite(earned).all()
    assert clip.shots[-1].forecast is None, "nothing comes after the end"


def test_a_machine_file_is_evaluated_in_episodes_that_begin_differently(player: MachinePlayer):
    returns = player.returns(player.tasks([0])[0], 2, never)
    assert len(set(returns)) == 2


def test_an_episode_can_be_stopped(player: MachinePlayer):
    with pytest.raises(Stopped, match="enough"):
        player.clips([0], lambda: "enough")


def test_the_first_episode_of_a_life_is_random_and_later_ones_have_a_forecast_of_their_plan(learned_run: Path):
    evaluator = open_evaluator(learned_run, Plan())
    evaluator.family.spec = evaluator.family.spec._replace(max_episode_steps=STEPS)
    first, later = clips_of(evaluator, ["zero-shot"], [0, 1], "vblrl")
    assert all(shot.forecast is None for shot in first.shots)
    assert all(shot.forecast is not None and shot.forecast.steps == 5 for shot in later.shots[:-1]), "the horizon"
    assert later.title == "vblrl, first episode in a task"
