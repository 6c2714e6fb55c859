"""By how much tasks differ, and what `posterity families --check` makes of it."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import posterity
from posterity.cli import main
from posterity.families.compare import differences, finite_differences
from posterity.families.randommdp import RandomMDP
from posterity.types import Key

KEY = Key.of(0).fold("stream")


def test_what_changes_nothing_has_no_difference_and_what_changes_much_has_more():
    vary = {"g": posterity.uniform(1, 20), "m": posterity.uniform(1, 1.01), "max_torque": posterity.uniform(3, 4)}
    family = posterity.Family.from_gymnasium("Pendulum-v1", vary=vary)
    found = {each.name: each for each in differences(family, family.tasks(KEY, 6))}
    assert set(found) == {"g", "m", "max_torque", "all of them"}
    assert all(each.same_start for each in found.values())
    assert max(found["max_torque"].parted.values()) == 0.0  # actions end at 2
    assert 0.0 < found["m"].parted[25] < found["g"].parted[25]
    assert found["g"].rewards[1] > 0.0


def test_finite_tasks_are_compared_by_their_true_process():
    family = RandomMDP()
    tasks = family.tasks(KEY, 3)
    moves, _ = finite_differences(family, tasks)
    assert moves == 1.0
    assert finite_differences(family, [tasks[0], tasks[0]]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("vary", "code", "says"),
    [
        ('"g": posterity.uniform(5, 15)', 0, "Nothing is wrong. Learn it with: posterity run"),
        ('"max_torque": posterity.uniform(3, 4)', 1, "Wrong: tasks that differ in 'max_torque' are the same"),
        ('"m": posterity.uniform(1, 1.02)', 0, "try a wider distribution"),
    ],
)
def test_check_says_what_is_wrong(tmp_path: Path, capfd, vary: str, code: int, says: str):
    file = tmp_path / "machines.py"
    file.write_text(f"import posterity\nfamily = posterity.Family.from_gymnasium('Pendulum-v1', vary={{{vary}}})\n")
    assert main(["families", "--check", f"{file}:family"]) == code
    out = capfd.readouterr().out
    assert says in " ".join(out.split())
    assert "A step of the environment takes" in out
    assert "3 observations, 1 action in [-2, 2]" in out


def test_check_takes_the_families_that_are_there(capfd):
    assert main(["families", "--check", "random-mdp"]) == 0
    assert main(["families", "--check", "pendulum-gravity"]) == 0
    assert "gravity" in capfd.readouterr().out


def test_the_same_start_is_the_same_start():
    """A difference in where tasks begin is a fault: it would be taken for a difference in what they do."""
    vary = {"where": (posterity.uniform(0, 1), _Shifted)}
    family = posterity.Family.from_gymnasium("Pendulum-v1", vary=vary)
    assert not differences(family, family.tasks(KEY, 4))[0].same_start


class _Shifted(gymnasium.ObservationWrapper):
    def __init__(self, env, value: float) -> None:
        super().__init__(env)
        self.value = np.float32(value)

    def observation(self, observation):
        return observation + self.value
