"""Lanes that are played apart, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import posterity
from posterity.agents import lanes
from posterity.agents.host_actor import HostActor
from posterity.errors import UserError
from posterity.experiment import players
from posterity.experiment.collect import Collected, collect
from posterity.experiment.players import Players
from posterity.experiment.run import Stopped
from posterity.families import make_family
from posterity.models import actor_critic, normaliser
from posterity.models.plain_actor import PlainActor
from posterity.types import Key, Task

KEYS = [Key.of(3), Key.of(4)]
FAMILY = make_family("hopper-gravity")
TASKS = FAMILY.tasks(KEYS[0], 3)


def actors(seed: int) -> PlainActor:
    """A fresh actor for each of two lanes."""
    spec = FAMILY.spec
    made = [actor_critic.init(jax.random.key(seed + lane), spec.obs_dim, 3).now.actor for lane in range(2)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *made)
    return HostActor(spec).plain(stacked, lanes.repeated(normaliser.identity(spec.obs_dim, 3), 2))


class Alone:
    """The same actor in this process."""

    def __init__(self, actor: PlainActor) -> None:
        self.actor = actor

    def act(self, keys: Sequence[Key], state: None, obs: Any, first: Any) -> tuple[None, Any]:
        return None, self.actor.act(keys, obs)

    def observe(self, keys: Sequence[Key], state: None, step: Any) -> None:
        return None


def here(tasks: Sequence[Task], actor: PlainActor, keys: Sequence[Key], steps: int) -> Collected:
    return collect(Alone(actor), keys, None, [FAMILY.make(task) for task in tasks], steps)[1]


def going_on(step: int) -> None:
    """No reason to stop."""


def equal(one: Collected, other: Collected) -> None:
    for mine, theirs in zip(one.rows, other.rows, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert one.returns == other.returns
    assert one.success == other.success
    for mine, theirs in zip(one[2:5], other[2:5], strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def two():
    with Players("hopper-gravity", FAMILY.settings, 2) as both:
        yield both


def test_played_apart_lanes_are_what_they_are_together_to_the_bit(two: Players):
    """In two tasks and with two actors, so that nothing of the one before is left."""
    for tasks, seed in ((TASKS[:2], 0), (TASKS[:2], 5), (TASKS[1:], 5)):
        keys = [key.fold("iteration", seed) for key in KEYS]
        equal(two.collect(tasks, actors(seed), keys, 60, going_on), here(tasks, actors(seed), keys, 60))


def test_an_iteration_that_is_left_leaves_no_trace_in_the_next(two: Players):
    asked: list[int] = []

    def stop(step: int) -> None:
        asked.append(step)
        if step >= 40:
            raise Stopped("enough")

    with pytest.raises(Stopped):
        two.collect(TASKS[:2], actors(0), KEYS, 100_000, stop)
    assert len(asked) > 1
    equal(two.collect(TASKS[:2], actors(0), KEYS, 30, going_on), here(TASKS[:2], actors(0), KEYS, 30))


def test_a_run_whose_lanes_are_played_apart_has_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With an actor that is told the latent: apart only from where it infers no more, the third iteration here."""
    small = {
        "members": 2,
        "latent": {"size": 2, "transitions": 48},
        "network": {"hidden": (8,)},
        "planner": {"cem_iterations": 0},
        "learner": {"gradient_steps": 5},
        "policy": {"updates_per_step": 1, "imagined_share": 0.25},
    }
    asked: list[int] = []
    whole = Players.collect

    def counted(self: Players, *args: Any) -> Collected:
        asked.append(args[-2])
        return whole(self, *args)

    monkeypatch.setattr(Players, "collect", counted)
    returns = []
    for choice in ("off", "on"):
        monkeypatch.setenv(players.VARIABLE, choice)
        run = posterity.run(
            "hopper-gravity", tasks=2, iterations=4, steps_per_iteration=24, seeds=2, agent=small, out=tmp_path / choice
        )
        returns.append(run.returns)
    np.testing.assert_array_equal(*returns)
    assert asked == [24] * 4, "the third and the fourth iteration of both tasks"


class Broken(PlainActor):
    """Says what no environment takes."""

    def act(self, keys: Sequence[Key], obs: Any) -> Any:
        return np.zeros((len(keys), 7))

    def lane(self, lane: int) -> Broken:
        return self


def test_what_goes_wrong_in_a_player_is_said_here_and_the_next_iteration_is_sound(two: Players):
    """pytest's module of this class is not what a player could import, so it is told by its own name."""
    with pytest.raises(UserError, match="actions of shape"):
        two.collect(TASKS[:2], Broken(*actors(0)), KEYS, 30, going_on)
    equal(two.collect(TASKS[:2], actors(0), KEYS, 30, going_on), here(TASKS[:2], actors(0), KEYS, 30))


def test_a_player_that_is_killed_ends_the_run_in_one_line():
    with Players("hopper-gravity", FAMILY.settings, 2) as both:
        both.processes[1].kill()
        with pytest.raises(UserError, match="plays lane 1 has ended"):
            both.collect(TASKS[:2], actors(0), KEYS, 30, going_on)


def test_players_end_with_the_process_that_began_them():
    code = (
        "import os; from posterity.experiment.players import Players; from posterity.families import make_family;"
        "family = make_family('hopper-gravity'); both = Players('hopper-gravity', family.settings, 1);"
        "print(both.processes[0].pid, flush=True); os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    player = Path(f"/proc/{done.stdout.strip()}/stat")
    until = time.monotonic() + 30.0
    while _lives(player) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(player)


def _lives(stat: Path) -> bool:
    """Whether a process is there, and not as one that has ended and is not yet fetched."""
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_player_loads_no_jax():
    code = "import sys; import posterity.experiment.players, posterity.models.plain_actor; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_lanes_are_played_apart_where_it_pays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(players, "cores", lambda: 8)
    assert players.wanted("hopper-gravity", FAMILY, 2)
    assert not players.wanted("hopper-gravity", FAMILY, 1)
    assert not players.wanted("pendulum-gravity", make_family("pendulum-gravity"), 2)
    assert not players.wanted("my_family.py:family", FAMILY, 2)
    monkeypatch.setattr(players, "cores", lambda: 2)
    assert not players.wanted("hopper-gravity", FAMILY, 2)
    monkeypatch.setitem(os.environ, players.VARIABLE, "on")
    assert players.wanted("hopper-gravity", FAMILY, 1)
    monkeypatch.setitem(os.environ, players.VARIABLE, "perhaps")
    with pytest.raises(UserError, match="it is on, off or auto"):
        players.wanted("hopper-gravity", FAMILY, 1)
