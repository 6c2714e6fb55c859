"""The examples run as their docstrings say, with smaller numbers."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posterity
from posterity.cli import main
from posterity.errors import UserError

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL_PLANS = "--planner.horizon 4 --planner.candidates 12 --planner.elites 3 --planner.particles 2"
SMALL_FITS = "--learner.gradient-steps 4 --network.hidden 8 8 --task-min-transitions 10 --world-iterations 1"


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch):
    """The examples' folder is the present folder, as their docstrings have it."""
    monkeypatch.chdir(EXAMPLES)


def run(out: Path, args: str) -> list[dict]:
    """The records of a run."""
    assert main(["run", *args.split(), "--out", str(out)]) == 0
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def returns(records: list[dict], task: int) -> list[float]:
    return [line["return"] for line in records if line["kind"] == "iteration" and line["task"] == task]


def test_a_family_of_ones_own_is_learned(tmp_path: Path):
    """Few corridors have their exit at the left, so the prior soon finds the right one at once."""
    records = run(tmp_path / "run", "own_family.py:Corridor --known 5 --concentration 0.1")
    assert np.mean([returns(records, task)[-1] for task in range(10, 20)]) > 0.9


def test_a_gymnasium_environment_with_a_hidden_parameter_is_a_family(tmp_path: Path):
    budget = "--tasks 2 --iterations 3 --steps-per-iteration 20"
    records = run(tmp_path / "run", f"gymnasium_family.py:WeakMotor {budget} {SMALL_PLANS} {SMALL_FITS}")
    motors = [line["factors"]["motor"] for line in records if line["kind"] == "task"]
    assert len(set(motors)) == 2
    assert all(0.6 <= abs(motor) <= 1.0 for motor in motors)
    assert np.isfinite(returns(records, 1)).all()


@pytest.mark.parametrize(
    ("name", "hidden", "learner"),
    [
        ("pole_mass", "mass:pole", f"{SMALL_PLANS} {SMALL_FITS}"),
        ("swimmer_viscosity", "viscosity", "--method npg"),
        ("torque_gain", "action_gain", "--method npg"),
    ],
)
def test_a_machine_in_ten_lines_is_a_family(tmp_path: Path, name: str, hidden: str, learner: str):
    """One is planned for, as its docstring has it; for the others a policy does, whose programs compile quickly."""
    pytest.importorskip("mujoco")
    assert len((EXAMPLES / f"{name}.py").read_text().split('"""')[2].split()) < 60
    budget = "--tasks 2 --iterations 2 --steps-per-iteration 12"
    records = run(tmp_path / "run", f"{name}.py:family {budget} {learner}")
    assert len({line["factors"][hidden] for line in records if line["kind"] == "task"}) == 2


def test_a_method_of_ones_own_learns_resumes_and_is_evaluated(tmp_path: Path, capfd):
    budget = "--tasks 2 --iterations 8 --steps-per-iteration 50 --seeds 2"
    run(tmp_path / "run", f"pendulum-gravity --method own_method:RandomSearch {budget} --change 0.5 --time-limit 0s")
    assert main(["resume", str(tmp_path / "run")]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    best = [
        [
            line["best_reward"]
            for line in records
            if line["kind"] == "iteration" and (line["seed"], line["task"]) == place
        ]
        for place in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    assert all(len(one) == 8 and one == sorted(one) for one in best)
    assert all(one[-1] > one[0] for one in best)
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "1"]) == 0
    assert (tmp_path / "run" / "evaluation" / "back.jsonl").exists()


def test_a_method_of_ones_own_is_found_in_the_present_folder_and_what_its_import_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_method.py").write_text("raise ValueError('first line\\nsecond line')\n")
    assert main(["run", "pendulum-gravity", "--method", "broken_method:Method"]) == 2
    err = capfd.readouterr().err
    assert err == "posterity: Method 'broken_method:Method' cannot be loaded: ValueError, first line second line\n"


def test_a_setting_of_ones_own_method_may_not_hide_a_setting_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
):
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXAMPLES)])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hiding_method.py").write_text(
        "from own_method import RandomSearch\n"
        "from posterity.settings import Settings, setting\n"
        "class Hiding(Settings):\n    seed: int = setting(0, 'Hides the seed of the run.')\n"
        "class Method(RandomSearch):\n    settings_type = Hiding\n"
    )
    assert main(["run", "pendulum-gravity", "--method", "hiding_method:Method"]) == 2
    assert "both have a setting 'seed'" in capfd.readouterr().err


def test_the_planner_alone_finds_the_known_optimum(monkeypatch: pytest.MonkeyPatch):
    """The best first action is minus the golden ratio's fraction; 0.01 is well above what the search leaves."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from planner_alone import plan  # pyright: ignore[reportMissingImports]

    for seed in range(3):
        actions = np.asarray(plan(seed).mean)[:, 0]
        np.testing.assert_allclose(actions[:3], [-0.618, -0.236, -0.090], atol=0.01)


def test_a_control_loop_acts_learns_and_keeps_what_it_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    budget = "--tasks 1 --iterations 2 --steps-per-iteration 40 --planner.cem-iterations 2"
    run(tmp_path / "run", f"pendulum-gravity {budget} {SMALL_PLANS} {SMALL_FITS}")
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "m.posterity"), "--task", "new"]) == 0
    monkeypatch.syspath_prepend(EXAMPLES)
    from control_loop import control  # pyright: ignore[reportMissingImports]

    assert len(control(str(tmp_path / "m.posterity"), steps=210, period=0.001)) == 1
    assert (tmp_path / "m-after.posterity").exists()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_says_how_to_run_it(path: Path):
    docstring = path.read_text().split('"""')[1]
    assert re.search(
        rf"^    (posterity run .*{path.stem}(\.py)?:|python examples/{path.stem}\.py)", docstring, flags=re.MULTILINE
    )


def skeleton() -> str:
    """The smallest method, as the page on methods has it."""
    page = (EXAMPLES.parent / "docs" / "adding-a-method.md").read_text()
    return page.partition("## The smallest method")[2].partition("```python\n")[2].partition("```")[0]


TINY = "--tasks 2 --iterations 1 --steps-per-iteration 5 --seeds 2"


def test_the_smallest_method_of_the_docs_runs_and_is_evaluated(tmp_path: Path):
    (tmp_path / "mine.py").write_text(skeleton())
    records = run(tmp_path / "run", f"pendulum-gravity --method {tmp_path / 'mine.py'}:RandomPlay {TINY}")
    assert all(np.isfinite(line["mean_reward"]) for line in records if line["kind"] == "iteration")
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "1", "--scores", "train"]) == 0


def test_the_smallest_method_runs_on_finite_families_once_it_says_so(tmp_path: Path, capfd):
    """As the page has it. What a preset measures of blrl is not asked of it."""
    (tmp_path / "mine.py").write_text(skeleton())
    words = ["run", "random-mdp", "--method", f"{tmp_path / 'mine.py'}:RandomPlay", "--out", str(tmp_path / "refused")]
    assert main(words) == 2
    assert "a method for finite MDPs says so: finite = True" in capfd.readouterr().err
    (tmp_path / "small.py").write_text(skeleton().replace("    summary =", "    finite = True\n    summary ="))
    records = run(tmp_path / "run", f"random-mdp --method {tmp_path / 'small.py'}:RandomPlay {TINY}")
    assert all(np.isfinite(line["mean_reward"]) for line in records if line["kind"] == "iteration")


def test_a_method_can_be_handed_over_as_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from own_method import RandomSearch  # pyright: ignore[reportMissingImports]

    budget: dict[str, Any] = {"tasks": 1, "iterations": 1, "steps_per_iteration": 5}
    posterity.run("pendulum-gravity", method=RandomSearch, out=tmp_path / "run", **budget)
    assert 'method = "own_method:RandomSearch"' in (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(UserError, match="not the class Path"):
        posterity.run("pendulum-gravity", method=Path, out=tmp_path / "other", **budget)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('state, {"mean_reward"', 'None and {"mean_reward"', "update has to return two things"),
        (".mean(axis=1)}", ".mean()}", "'mean_reward' of shape ()"),
        ("for key in keys])", "for key in keys])[:, 0]", "actions of shape (2,); one for each lane is due, (2, 1)"),
    ],
)
def test_a_method_that_breaks_the_contract_ends_in_one_line(tmp_path: Path, capfd, right: str, wrong: str, said: str):
    assert right in skeleton()
    (tmp_path / "mine.py").write_text(skeleton().replace(right, wrong))
    args = f"pendulum-gravity --method {tmp_path / 'mine.py'}:RandomPlay {TINY} --out {tmp_path / 'run'}"
    assert main(["run", *args.split()]) != 0
    assert said in " ".join(capfd.readouterr().err.split())
