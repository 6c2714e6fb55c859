"""The command as a user types it. Whatever is wrong: exit 2, one line, nothing written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posterity.cli import main
from posterity.commands.arguments import terminal
from posterity.commands.demo import seek, swing
from posterity.experiment.config import RunConfig, resolve


def written(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("rnu item-search", "Unknown command 'rnu'. Did you mean 'run'? Known: bench, demo, evaluate"),
        (
            "run item-serch",
            "Unknown family 'item-serch'. Did you mean 'item-search'? Known: box-jump, chain, cheetah-bodyparts, ",
        ),
        (
            "run item-search --method blr",
            "Unknown method 'blr'. Did you mean 'blrl'? Known: actor-critic, blrl, boss, ",
        ),
        ("run item-search --preset fast", "Unknown preset 'fast'. Known: best, paper, quick"),
        (
            "run item-search --modells 3",
            "Unknown option '--modells'. Did you mean '--models'? See: posterity run FAMILY",
        ),
        ("run pendulum-gravity --planner.horizn=3", "Did you mean '--planner.horizon'?"),
        ("run pendulum-gravity --plan 3", "Unknown option '--plan'"),
        ("run item-search --models three", "--models: input should be a valid integer"),
        ("run item-search --models 0", "--models: input should be greater than or equal to 1, not 0"),
        ("run item-search --models", "--models: expected one argument"),
        ("run item-search --tasks -3", "--tasks: input should be greater than or equal to 1, not -3"),
        ("run item-search stray", "Unexpected argument 'stray'"),
        ("run item-search --time-limit soon", "'soon' is not a time"),
        ("run", "Which family?"),
        ("run --seeds 2", "Which family?"),
        ("run --env.world 1 random-mdp", "Write the family before '--env.world'"),
        ("run item-search --env.room 1", "--env.room: input should be greater than or equal to 2, not 1"),
        ("run random-mdp --env.levels nan 1", "--env.levels: input should be a finite number, not nan"),
        ("run item-search --concentration inf", "--concentration: input should be a finite number"),
        (
            "run item-search --concentration -1e-5",
            "--concentration: input should be greater than or equal to 0.000001, not -1e-5",
        ),
        ("run item-search --preset quick --preset paper", "--preset is given 2 times"),
        ("run item-search --method vblrl", "'vblrl' runs on families with real observations and actions"),
        ("run pendulum-gravity --method boss", "'boss' runs on finite families"),
        ("run pendulum-gravity --method vblrl --measure-truth", "needs a finite family"),
        ("run pendulum-gravity --planner.elites 200", "200 elites cannot be chosen from 100 candidates"),
        (
            "run pendulum-gravity --planner.output best",
            "--planner.output: input should be 'sample' or 'mean', not best",
        ),
        ("run pendulum-gravity --no-planner.horizon", "Unknown option '--no-planner.horizon'"),
        ("run pendulum-gravity --env.low 3", "low is 3, above high, 1.5"),
        ("run pendulum-gravity --network.hidden 0", "1 unit or more"),
        ("run pendulum-gravity --network.log-variance-low 3", "log_variance_low is 3"),
        (
            "run posterity.families.base:Family",
            "Family 'posterity.families.base:Family' is not whole: it lacks make, tasks",
        ),
        ("run nowhere.to_be:Found", "Family 'nowhere.to_be:Found' cannot be loaded: there is no module"),
        ("run json:JSONDecoder", "is not a subclass of posterity.families.base.Family"),
        ("run pendulum-gravity --method nowhere:Found", "Method 'nowhere:Found' cannot be loaded: there is no module"),
        ("run pendulum-gravity --method json:dump", "is not a subclass of posterity.agents.base.Agent"),
        ("run pendulum-gravity --method posterity.agents.base:Agent", "is not whole: it lacks act, begin_task, init"),
        ("demo --tasks 0", "--tasks"),
        ("demo --pendulums -1", "--pendulums: input should be greater than or equal to 0, not -1"),
        ("evaluate nowhere", "nowhere holds no run"),
        ("evaluate nowhere --episodes 0", "--episodes: input should be greater than or equal to 1, not 0"),
        (
            "evaluate nowhere --scores strat",
            "--scores: input should be 'zero-shot', 'start', 'train' or 'back', not strat",
        ),
        ("evaluate nowhere --every 3", "Unknown option '--every'. Did you mean '--back-every'?"),
        ("bench run --lanes 0", "--lanes: input should be greater than or equal to 1, not 0"),
        ("bench env --family hoper-gravity", "Unknown family 'hoper-gravity'. Did you mean 'hopper-gravity'?"),
        ("families --show item-search --seed -1", "--seed: input should be greater than or equal to 0, not -1"),
        ("resume", "FOLDER is needed"),
        ("resume nowhere", "nowhere holds no run"),
        ("report nowhere", "nowhere holds no run"),
        ("report", "Which run?"),
        ("report nowhere --tasks 9-3", "'9-3' is not a range of tasks"),
        ("families --show item-serch", "Unknown family 'item-serch'"),
        ("presets hoper-gravity", "Unknown family 'hoper-gravity'. Did you mean 'hopper-gravity'?"),
        ("theory complexity --radius -1", "radius is -1"),
        ("theory radius --prior 1 1 1 --truth 0.5 0.3 0.2 --samples 0", "samples is 0"),
        ("bench plan", "Unknown subject 'plan'. Did you mean 'planner'?"),
        ("bench planner --family item-search", "There is no dynamics model to bench for 'blrl'"),
        ("theory cone", "Unknown question 'cone'. Did you mean 'coin'?"),
        ("theory radius --prior 1 1 --truth 0.5 0.6", "sum to 1"),
        ("theory radius --prior 1 1", "--truth is needed"),
        ("theory complexity --radius 0.1 --states 3", "needs both --states and --actions"),
        ("theory complexity --radius 0.1 --states 3 --actions 2 --gamma 1", "gamma"),
    ],
)
def test_bad_input_is_one_line_exit_two_and_nothing_written(here: Path, capfd, args: str, says: str):
    assert main(args.split()) == 2
    out, err = capfd.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert not out
    assert written(here) == []


def test_an_unwritable_folder_is_one_line(here: Path, capfd):
    (here / "file").write_text("in the way")
    assert main(["run", "item-search", "--out", "file/run"]) == 2
    err = capfd.readouterr().err
    assert "Not a directory" in err
    assert err.count("\n") == 1
    assert written(here) == ["file"]


def test_a_folder_that_holds_something_is_not_run_into(here: Path, capfd):
    (here / "run").mkdir()
    (here / "run" / "thesis.txt").write_text("precious")
    assert main(["run", "item-search", "--out", "run"]) == 2
    assert "run is in the way" in capfd.readouterr().err
    assert written(here) == ["run", "run/thesis.txt"]


def test_run_resume_and_report_from_the_command_line(here: Path, capfd):
    budget = ["--tasks", "2", "--iterations", "2", "--seeds", "2"]
    assert main(["run", "item-search", *budget, "--time-limit", "0s"]) == 0
    assert "Stopped (time limit). Go on with: posterity resume runs/item-search-blrl-001" in capfd.readouterr().out
    assert main(["resume", "runs/item-search-blrl-001"]) == 0
    assert main(["run", "item-search", *budget, "--method", "boss"]) == 0
    assert "Done: runs/item-search-boss-001. See it with: posterity report" in capfd.readouterr().out
    assert main(["report", "runs/item-search-blrl-001", "runs/item-search-boss-001", "--out", "rep"]) == 0
    out = capfd.readouterr().out
    assert "blrl" in out
    assert "boss" in out
    assert "rep/item-search-learning.png" in out
    assert (here / "rep" / "table.csv").exists()


def test_resuming_a_finished_run_changes_nothing(here: Path, capfd):
    assert main(["run", "random-mdp", "--tasks", "1", "--iterations", "1", "--out", "run"]) == 0
    before = {path: (here / path).read_bytes() for path in written(here) if (here / path).is_file()}
    assert main(["resume", "run"]) == 0
    assert "Done: run" in capfd.readouterr().out
    assert before == {path: (here / path).read_bytes() for path in written(here) if (here / path).is_file()}


def test_the_demo_ends_with_a_table_a_figure_and_the_path_to_them(here: Path, capfd):
    assert main(["demo", "--tasks", "3", "--seeds", "2", "--goals", "0", "--pendulums", "0"]) == 0
    out = capfd.readouterr().out
    assert "find the" in out
    assert "Mean return per episode" in out
    figure = out.splitlines()[-1].split()[0]  # then its other forms: .svg .csv
    assert (here / figure).exists()


def test_the_pendulums_of_the_demo_tell_how_each_began(here: Path, capfd):
    agent = {  # as in the tests of short runs on the pendulum
        "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
        "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": [8, 8]},
        "task_min_transitions": 8,
        "world_iterations": 1,
    }
    changes = {"tasks": 2, "iterations": 2, "steps_per_iteration": 8, "seeds": 2, "agent": agent}
    changes["env"] = {"max_episode_steps": 8}
    swing(changes, here / "demo", "test", terminal())
    out = capfd.readouterr().out
    assert "pendulum 1: first episode" in out
    assert "pendulum 2: first episode" in out
    assert (here / out.splitlines()[-1].split()[0]).exists()


def test_the_goals_of_the_demo_tell_what_was_found_at_first_and_in_the_end(here: Path, capfd):
    agent = {
        "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
        "learner": {"gradient_steps": 3, "task_batch_size": 8, "world_batch_size": 4},
        "network": {"hidden": [8, 8]},
        "reward_map": {"lattice": 3},
    }
    changes = {"tasks": 2, "steps_per_iteration": 8, "agent": agent, "env": {"max_episode_steps": 8}}
    seek(changes, here / "demo", "test", terminal())
    told = capfd.readouterr().out
    out = " ".join(told.split())
    assert re.search(r"first episode of a task: \d+\.\d with the first 1 goals, \d+\.\d with the last", out)
    assert (here / told.splitlines()[-1].split()[0]).exists()


def test_the_coin_table_as_json(here: Path, capfd):
    assert main(["theory", "coin", "--json"]) == 0
    table = json.loads(capfd.readouterr().out)["table"]
    assert [row["prior"] for row in table] == [[n, 10 - n] for n in range(11)]
    assert [row["flips"] for row in table] == [77, 67, 57, 48, 41, 39, 41, 48, 57, 67, 77]
    assert [row["printed_in_paper"] for row in table] == [78, 68, 58, 49, 42, 40, 42, 48, 58, 68, 78]


def test_radius_and_complexity_answer(here: Path, capfd):
    assert main(["theory", "radius", "--prior", "1", "1", "--truth", "0.5", "0.5", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["radius"] == pytest.approx(0.34657, abs=1e-4)
    args = ["--radius", "0.0005", "--epsilon", "0.5", "--delta", "0.1", "--rho", "0.05", "--states", "9"]
    assert main(["theory", "complexity", *args, "--actions", "4", "--gamma", "0.9", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["lemma_4_3_order"] == pytest.approx(122.3, abs=0.1)
    assert facts["proposition_4_2_observations"] == 15706
    assert facts["proposition_4_4_concentration"] is None


def test_the_claim_is_one_command(here: Path, capfd):
    assert main(["theory", "transfer", "--tasks", "2", "--seeds", "2", "--out", "claim"]) == 0
    assert (here / "claim" / "report" / "random-mdp-transfer.png").exists()


def test_lists_are_readable_by_people_and_machines(here: Path, capfd):
    for command in ("families", "methods", "presets"):
        assert main([command]) == 0
        assert len(capfd.readouterr().out.splitlines()) > 4
        assert main([command, "--json"]) == 0
        assert len(json.loads(capfd.readouterr().out)) >= 2


def setting_of(config: Any, flag: str) -> Any:
    """What a configuration has under a flag."""
    path = flag.removeprefix("--").removeprefix("no-").replace("-", "_").split(".")
    table = config.model_dump()
    table = table if path[0] in table else table["agent"]
    for name in path:
        table = table[name]
    return table


@pytest.mark.parametrize("family", ["item-search", "pendulum-gravity", "box-jump", "cheetah-gravity", "hopper-gravity"])
def test_what_a_preset_is_said_to_set_are_flags_that_set_it(family: str, here: Path, capfd, monkeypatch):
    """Typed after the name of another preset they give the same settings."""
    asked: list[Any] = []
    monkeypatch.setattr("posterity.commands.running.start", lambda config, *_: asked.append(config))
    monkeypatch.setattr("posterity.commands.running.tell", lambda *_: 0)
    assert main(["presets", family]) == 0
    parts = capfd.readouterr().out.strip().split("\n\n")
    for part in parts:
        head, *flags = part.splitlines()
        preset, method = head.split(":")[0].split(", ")
        sizes = [size.split(" ", 1) for size in head.split(": ")[1].split(", ")]
        budget = [f"--{name.replace(' ', '-')}={number}" for number, name in sizes]
        command = ["run", family, "--method", method, "--preset"]
        assert main([*command, preset]) == 0
        words = [word for flag in flags for word in flag.split()]
        assert main([*command, "paper" if preset == "quick" else "quick", *budget, *words]) == 0
        meant, typed = asked[-2:]
        for flag in [flag.split()[0] for flag in flags] + [each.split("=")[0] for each in budget]:
            assert setting_of(typed, flag) == setting_of(meant, flag), flag
    assert len(parts) >= 3


def test_a_house_can_be_looked_at(here: Path, capfd):
    assert main(["families", "--show", "item-search", "--tasks", "2"]) == 0
    out = capfd.readouterr().out
    assert out.count("find the") == 2
    assert "@ " in out


# As quick a plan and a fit as can be: what is timed, and at which sizes, test_bench.py says.
TINY = {
    "planner": {"horizon": 3, "candidates": 8, "elites": 2, "cem_iterations": 1, "particles": 2},
    "learner": {"gradient_steps": 2, "task_batch_size": 8, "world_batch_size": 4},
    "network": {"hidden": [8]},
}


def test_the_bench_reports_numbers_and_the_machine(here: Path, capfd, monkeypatch):
    def tiny(family: str, method: str | None, preset: str, changes: dict[str, Any]) -> RunConfig:
        return resolve(family, method, preset, {**changes, "agent": TINY})

    monkeypatch.setattr("posterity.experiment.bench.PATIENCE", 0.0)  # nothing is timed twice
    monkeypatch.setattr("posterity.experiment.bench.PLANS", 1)
    monkeypatch.setattr("posterity.commands.benching.resolve", tiny)
    assert main(["bench", "env", "--family", "hopper-gravity", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["measured"][0]["steps_per_second"] > 0
    assert facts["session"]["cores"] >= 1
    assert main(["bench", "planner", "--lanes", "2"]) == 0
    out = capfd.readouterr().out
    assert "plan: 8 x 2 x 3 x 1" in out
    assert "lanes: 2" in out
    assert [line for line in out.splitlines() if line.startswith("path")] == [
        "path: plain",
        "path: backward",
        "path: matrix product",
    ]
    assert main(["bench", "fit", "--lanes", "2"]) == 0
    assert "us per step" in capfd.readouterr().out


@pytest.mark.parametrize("args", ["--help", "families", "methods", "presets", "presets hopper-gravity", "run --help"])
def test_what_there_is_can_be_asked_without_jax(here: Path, args: str):
    code = f"import sys; from posterity.cli import main; main({args.split()!r}); assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("args", ["families", "run item-search --tasks 1 --iterations 1 --out run"])
def test_a_reader_that_leaves_is_no_error(here: Path, args: str):
    code = f"set -o pipefail; {sys.executable} -m posterity {args} | true"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert not done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("order", ["--measure-truth random-mdp", "--method boss random-mdp", "--seeds=1 random-mdp"])
def test_flags_that_every_run_has_may_stand_before_the_family(here: Path, order: str):
    assert main(["run", *order.split(), "--tasks", "1", "--iterations", "1", "--out", "run"]) == 0
    assert 'family = "random-mdp"' in (here / "run" / "config.toml").read_text()
