"""A sweep is a table of ordinary runs, and whatever happens to a worker its cell ends as if nothing had."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rich.console import Console

from posterity.agents.base import SCORES
from posterity.cli import main
from posterity.commands.sweeping import finished
from posterity.errors import UserError
from posterity.experiment.records import read_records, read_run
from posterity.experiment.sweep.cell import lacking, run_cell
from posterity.experiment.sweep.drive import drive
from posterity.experiment.sweep.executors import Ended, Execution, Executor, Local
from posterity.experiment.sweep.folder import Status, SweepFolder
from posterity.experiment.sweep.plan import BackVariant, Sweep, cells_of, checked_sweep, packaged, read_sweep
from posterity.experiment.sweep.table import Display, rendered, seconds_left, summary
from posterity.models.confidence import BACK_VARIANTS

HOPPER_AND_WALKER = ("hopper-gravity", "hopper-bodyparts", "walker-gravity", "walker-bodyparts")
SMALL = {"tasks": 2, "iterations": 3, "steps_per_iteration": 5, "save_every": 0.0}


def planned(path: Path, **changes: Any) -> SweepFolder:
    values = {"families": ["item-search"], "methods": ["blrl", "boss"], "seeds": 2, "settings": SMALL, **changes}
    plan, folder = checked_sweep(values), SweepFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    folder.write(plan, cells_of(plan))
    return folder


def lines(folder: SweepFolder, name: str) -> list[dict[str, Any]]:
    """What is on record of a cell, but for the clock."""
    return [
        {key: value for key, value in line.items() if key != "wall_seconds"} for line in read_records(folder.run(name))
    ]


class Here(Executor):
    """Runs a cell in this process when it is waited for; `fault` says how a worker is lost, if it is."""

    def __init__(self, folder: SweepFolder, fault: Callable[[str], str] = lambda _: "") -> None:
        self.folder, self.fault, self.queue, self.begun = folder, fault, list[str](), list[str]()

    def room(self) -> int:
        return 2 - len(self.queue)

    def busy(self) -> int:
        return len(self.queue)

    def submit(self, name: str) -> None:
        self.queue.append(name)

    def wait(self, seconds: float) -> list[Ended]:
        if not self.queue:
            return []
        name = self.queue.pop(0)
        self.begun.append(name)
        if lost := self.fault(name):
            run_cell(self.folder.path, name, after(steps=7))  # leaves in the middle, with a checkpoint
            self.folder.say(name, self.folder.said(name)._replace(state="running"))
            return [Ended(name, lost)]
        run_cell(self.folder.path, name)
        return [Ended(name, "")]


def after(steps: int) -> Callable[[], str]:
    left = iter(range(steps))
    return lambda: "" if next(left, None) is not None else "enough"


def quiet() -> Display:
    return Display(Console(quiet=True))


def driven(folder: SweepFolder, executor: Executor, stop: Callable[[], str] = lambda: "", retries: int = 3):
    return drive(folder, folder.names(), lambda: executor, quiet(), stop, retries)


def test_every_family_method_and_group_of_seeds_is_a_cell():
    plan = Sweep(families=("item-search", "random-mdp"), methods=("blrl", "boss"), seeds=3, lanes=2)
    cells = cells_of(plan)
    assert len({cell.name for cell in cells}) == 2 * 2 * 2
    assert [cell.config.seed for cell in cells] == [0] * 4 + [2] * 4, "first seeds first"
    assert {(cell.config.seed, cell.config.seeds) for cell in cells} == {(0, 2), (2, 1)}
    assert cells[0].name == "item-search/blrl/seeds-0-1"


def test_finite_families_have_a_cell_for_each_seed_and_others_one_for_all():
    names = [cell.name for cell in cells_of(Sweep(families=("item-search", "pendulum-gravity"), seeds=2))]
    assert names == ["item-search/blrl/seed-0", "pendulum-gravity/vblrl/seeds-0-1", "item-search/blrl/seed-1"]


def test_a_method_may_have_a_preset_and_settings_of_its_own():
    arms = [{"method": "blrl", "name": "psrl", "preset": "best", "settings": {"agent": {"explorer": "psrl"}}}, "blrl"]
    plan = checked_sweep({"families": ["item-search"], "methods": arms, "settings": {"tasks": 7}})
    own, plain = (cell.config for cell in cells_of(plan))
    assert (own.preset, plain.preset) == ("best", "quick")
    assert own.agent.model_dump()["explorer"] == "psrl"
    assert own.tasks == plain.tasks == 7


def test_table_1_has_all_families_and_methods_at_the_presets_budgets():
    cells = cells_of(checked_sweep(read_sweep("table1")))
    assert len(cells) == 6 * 9
    assert {cell.config.seeds for cell in cells} == {4}
    tasks = {cell.config.family.partition("-")[0]: cell.config.tasks for cell in cells}
    assert tasks == {"hopper": 20, "walker": 20, "cheetah": 40}
    presets = {cell.group.partition("/")[2]: cell.config.preset for cell in cells}
    assert presets["vblrl"] == "best"
    assert presets["vblrl-paper"] == presets["npg"] == "paper"


@pytest.mark.parametrize(
    ("name", "budgets", "methods"),
    [  # the paper's tasks, iterations and steps; npg, ewc and lpg-ftw take twice the steps
        ("reach", {"reach": (30, 150, 150), "reach-wall": (30, 150, 150)}, 6),
        ("reach-ablations", {"reach": (30, 150, 150)}, 2),
        ("mt10-mt50", {"mt10": (10, 150, 500), "mt50": (50, 150, 500)}, 5),
        ("mujoco-single-task", dict.fromkeys(HOPPER_AND_WALKER, (20, 100, 400)), 2),
        ("mujoco-lifelong", dict.fromkeys(HOPPER_AND_WALKER, (20, 100, 400)), 5),
        ("particles", {"cheetah-gravity": (40, 100, 100)}, 5),
        ("item-search", {"item-search": (300, 10, 21)}, 2),
        ("box-jump", {"box-jump": (300, 30, 56)}, 2),
    ],
)
def test_the_sweep_of_a_figure_has_the_papers_budget(name: str, budgets: dict[str, tuple[int, int, int]], methods: int):
    cells = cells_of(checked_sweep(read_sweep(name)))
    assert len({cell.group for cell in cells}) == len(budgets) * methods
    for config in (cell.config for cell in cells):
        twice = 2 if config.method in ("npg", "ewc", "lpg-ftw") else 1
        tasks, iterations, steps = budgets[config.family]
        assert (config.tasks, config.iterations, config.steps_per_iteration) == (tasks, iterations, steps * twice)


def test_the_sweeps_of_ablations_differ_in_what_they_are_about():
    plain, other = (cell.config.agent.model_dump() for cell in cells_of(checked_sweep(read_sweep("reach-ablations"))))
    assert (plain.pop("bayesian"), other.pop("bayesian")) == ("both", "world")
    assert plain == other
    agents = [cell.config.agent.model_dump() for cell in cells_of(checked_sweep(read_sweep("particles")))]
    assert [agent["planner"].pop("particles") for agent in agents] == [1, 20, 50, 70, 100]
    assert all(agent == agents[0] for agent in agents)


def test_box_jump_has_the_sizes_of_the_source_task():
    for cell in cells_of(checked_sweep(read_sweep("box-jump"))):
        env = cell.config.env.model_dump()
        assert (env["speed"], env["obstacle_width"]) == (1.0, 9.0)


def test_the_ways_of_going_back_are_those_that_methods_know():
    assert {*get_args(BackVariant)} == {"auto", *BACK_VARIANTS}


def test_what_is_on_record_is_not_played_again(tmp_path: Path):
    """Of vblrl every way of going back is played; of a method with one way only that."""
    ways = ["auto", "task-only", "confidence"]
    changes = {"evaluate": True, "episodes": 2, "back_variants": ways, "back_every": 1}
    plan = checked_sweep({"families": ["pendulum-gravity"], "methods": ["vblrl", "npg"], **changes})
    vblrl, npg = (cell.config.model_copy(update={"tasks": 3}) for cell in cells_of(plan))
    asked = [(each.scores, each.back_variant) for each in lacking(tmp_path, vblrl, plan)]
    assert asked == [(SCORES, "confidence"), (("back",), "task-only")]
    assert [(each.scores, each.back_variant) for each in lacking(tmp_path, npg, plan)] == [(SCORES, "auto")]
    folder = tmp_path / "evaluation"
    folder.mkdir()
    for name in ("zero-shot", "start", "train"):
        (folder / f"{name}.jsonl").write_text("{}\n" * 3 * 2)
    (folder / "back-confidence.jsonl").write_text("{}\n" * (1 + 2 + 3) * 2)
    (folder / "back-task-only.jsonl").write_text("{}\n" * (2 + 3) * 2)  # of a plan without back_every
    [left] = lacking(tmp_path, vblrl, plan)
    assert (left.scores, left.back_variant, left.back_every) == (("back",), "task-only", 1)
    (folder / "back-task-only.jsonl").write_text("{}\n" * (1 + 2 + 3) * 2)
    assert lacking(tmp_path, vblrl, plan) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"families": ["item-search"], "tasks": 3}, "Settings of the runs belong into the table `settings`"),
        ({"families": ["item-search"], "settings": {"seed": 3}}, "'seed' does not belong into settings"),
        ({"families": ["item-search"], "settings": {"taks": 3}}, "Did you mean 'tasks'"),
        ({"families": ["item-search"], "methods": ["blrl", "blrl"]}, "'blrl' is there twice"),
        ({"families": ["item-search"], "methods": ["npg"]}, "item-search npg: Method 'npg' runs on"),
        ({"methods": ["npg"]}, "families"),
        ({"families": ["item-search"], "evaluate": True}, "set settings.snapshots = true"),
        ({"families": ["item-search"], "back_variants": ["world"]}, "back_variants.0"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(values: dict[str, Any], said: str):
    with pytest.raises(UserError, match=said.replace("(", r"\(")) as error:
        cells_of(checked_sweep(values))
    assert "\n" not in str(error.value)


def test_a_cell_whose_worker_is_lost_is_resumed_and_its_records_are_those_of_a_quiet_sweep(tmp_path: Path):
    calm, stormy = planned(tmp_path / "calm"), planned(tmp_path / "stormy")
    assert {status.state for status in driven(calm, Here(calm)).values()} == {"done"}
    left = dict.fromkeys(stormy.names(), 2)

    def fault(name: str) -> str:
        left[name] -= 1
        return "killed" if left[name] >= 0 else ""

    assert {status.state for status in driven(stormy, Here(stormy, fault)).values()} == {"done"}
    for name in calm.names():
        assert lines(calm, name) == lines(stormy, name)
        sessions = json.loads((stormy.run(name) / "versions.json").read_text())["sessions"]
        assert len(sessions) == 3, "resumed twice, and not begun again"


def test_a_cell_that_loses_every_worker_fails_and_the_others_are_done(tmp_path: Path):
    folder = planned(tmp_path / "sweep", seeds=1)
    ended = driven(folder, Here(folder, lambda name: "killed" if "/boss/" in name else ""), retries=1)
    assert {name: status.state for name, status in ended.items()} == {
        "item-search/blrl/seed-0": "done",
        "item-search/boss/seed-0": "failed",
    }
    assert "lost 2 times, last: killed" in ended["item-search/boss/seed-0"].reason


def test_cells_that_are_done_are_skipped_and_those_that_failed_are_tried_again(tmp_path: Path):
    folder = planned(tmp_path / "sweep", seeds=1)
    driven(folder, Here(folder, lambda name: "killed" if "/boss/" in name else ""), retries=0)
    again = Here(folder)
    assert {status.state for status in driven(folder, again).values()} == {"done"}
    assert again.begun == ["item-search/boss/seed-0"]


def test_a_stopped_sweep_leaves_all_cells_resumable(tmp_path: Path):
    calm, folder = planned(tmp_path / "calm", seeds=1), planned(tmp_path / "sweep", seeds=1)
    driven(calm, Here(calm))
    folder.stop.touch()
    assert run_cell(folder.path, "item-search/blrl/seed-0") == "stopped"
    assert folder.status("item-search/blrl/seed-0", folder.sweep()).reason == "interrupted"
    ended = driven(folder, Here(folder), after(steps=0))
    assert not any(status.state == "done" for status in ended.values())
    assert not folder.stop.exists(), "the next sweep is not stopped by it"
    assert {status.state for status in driven(folder, Here(folder)).values()} == {"done"}
    assert all(lines(calm, name) == lines(folder, name) for name in calm.names())


def test_a_defect_in_one_cell_is_its_one_line_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = planned(tmp_path / "sweep", seeds=1)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr("posterity.experiment.sweep.cell.lifelong", broken)
    ended = driven(folder, Here(folder))
    assert {status.reason for status in ended.values()} == {"ZeroDivisionError: a"}
    assert "Traceback" in folder.log("item-search/blrl/seed-0").read_text()


def test_a_sweep_may_grow_and_never_change(tmp_path: Path):
    folder = planned(tmp_path / "sweep", seeds=1)
    before = folder.names()
    planned(tmp_path / "sweep", seeds=2)
    assert set(before) < set(folder.names())
    with pytest.raises(UserError, match=r"has tasks = 2, not 3"):
        planned(tmp_path / "sweep", settings={**SMALL, "tasks": 3})
    with pytest.raises(UserError, match="has a cell item-search/blrl/seed-1 that this sweep has not"):
        planned(tmp_path / "sweep", seeds=1)


def test_a_cell_is_held_by_one_worker(tmp_path: Path):
    folder = planned(tmp_path / "sweep", seeds=1)
    name = folder.names()[0]
    with folder.held(name, 0.0) as mine:
        assert mine
        folder.say(name, Status("running"))
        assert run_cell(folder.path, name, patience=0.0) == "running"
        assert folder.status(name, folder.sweep()).state == "running"
    assert folder.status(name, folder.sweep()).reason == "its worker was lost"


def test_a_cell_whose_folder_was_deleted_is_not_done(tmp_path: Path):
    folder = planned(tmp_path / "sweep", seeds=1)
    name = folder.names()[0]
    run_cell(folder.path, name)
    (folder.run(name) / "checkpoints" / "state.safetensors").unlink()
    assert folder.status(name, folder.sweep()).state == "waiting"


def test_every_cell_is_evaluated_with_the_same_episodes(tmp_path: Path):
    asked: dict[str, Any] = {"seeds": 1, "evaluate": True, "episodes": 2, "settings": {**SMALL, "snapshots": True}}
    folder = planned(tmp_path / "sweep", **asked)
    assert {status.episodes for status in driven(folder, Here(folder)).values()} == {2}
    for name in folder.names():
        assert len((folder.run(name) / "evaluation" / "train.jsonl").read_bytes().splitlines()) == 2 * 2
        assert len((folder.run(name) / "evaluation" / "back.jsonl").read_bytes().splitlines()) == 2 * 2
    with pytest.raises(UserError, match="was begun with back_every = 0, not 1"):
        planned(tmp_path / "sweep", **asked, back_every=1)


def test_back_is_played_after_as_many_tasks_as_asked_for(tmp_path: Path):
    more = {"evaluate": True, "episodes": 1, "back_every": 1, "settings": {**SMALL, "snapshots": True}}
    folder = planned(tmp_path / "sweep", seeds=1, methods=["blrl"], **more)
    driven(folder, Here(folder))
    [name] = folder.names()
    back = read_run(folder.run(name)).scores["back"].after[0]
    assert np.isfinite(back).tolist() == [[True, False], [True, True]]


def test_finished_cells_come_in_the_order_of_the_sweep(tmp_path: Path):
    """Not of their names: particles-100 is no neighbour of particles-1."""
    names = ["k-2", "k-10", "boss"]
    own = [{"method": "blrl", "name": name, "settings": {"agent": {"models": int(name[2:])}}} for name in names[:2]]
    folder = planned(tmp_path / "sweep", seeds=1, methods=[*own, "boss"])
    driven(folder, Here(folder))
    assert [group.partition("/")[2] for group in finished(folder.path, print)] == names


def test_the_help_and_the_errors_name_the_sweeps_that_are_there(capfd: Any):
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    told = capfd.readouterr().out
    assert main(["sweep", "reech"]) == 2
    error = capfd.readouterr().err
    assert "Did you mean 'reach'?" in error
    for name in packaged():
        assert name in told
        assert name in error


def test_processes_do_the_cells_and_one_that_is_killed_is_replaced(tmp_path: Path):
    calm, folder = planned(tmp_path / "calm", seeds=1), planned(tmp_path / "sweep", seeds=1)
    driven(calm, Here(calm))
    killed: list[int] = []

    def kill() -> None:
        while not killed:
            said = folder.said("item-search/blrl/seed-0")
            if said.state == "running" and said.pid != os.getpid():
                killed.append(said.pid)
                os.kill(said.pid, signal.SIGKILL)
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    ended = driven(folder, Local(folder, Execution(workers=2)))
    thread.join()
    assert {status.state for status in ended.values()} == {"done"}
    assert all(lines(calm, name) == lines(folder, name) for name in calm.names())


def test_the_time_left_is_that_of_cells_alike_and_as_many_at_once_as_now():
    statuses = {
        "a/x/seed-0": Status("done", wall=100.0, share=1.0),
        "a/x/seed-1": Status("running", wall=60.0, left=40.0, share=0.6),
        "a/x/seed-2": Status("waiting"),
        "a/y/seed-0": Status("running", wall=10.0, left=190.0, share=0.05),
    }
    assert seconds_left(statuses) == (40 + 100 + 190) / 2
    assert summary(statuses) == "4 cells: 1 done, 2 running, 1 waiting; about 3 min left"
    assert seconds_left({"a/x/seed-0": Status("waiting")}) is None


def test_the_table_names_reasons_and_keeps_to_the_height_of_the_terminal():
    statuses = {f"family-{number}/blrl/seed-0": Status("waiting") for number in range(40)}
    statuses["family-33/blrl/seed-0"] = Status("failed", reason="no [bold] luck")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(rendered(statuses, 20))
    text = console.export_text()
    assert "family-33/blrl/seed-0: failed, no [bold] luck" in text
    assert text.count("\n") <= 20
    assert "more rows" in text


def test_the_command_runs_goes_on_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posterity.experiment.sweep.drive.executor_for", lambda folder, _: Here(folder), raising=True)
    flags = ["--families", "item-search", "--methods", "blrl", "boss", "--tasks", "2", "--iterations", "3"]
    flags += ["--seeds", "2", "--out", "mine"]
    assert main(["sweep", *flags]) == 0
    assert "Done: mine, 4 cells. See it with: posterity report mine" in capfd.readouterr().out
    assert main(["sweep", "mine"]) == 0
    assert main(["sweep", "mine", "--tasks", "3"]) == 2
    assert "keeps its settings; leave out --tasks" in capfd.readouterr().err
    assert main(["sweep", "status", "mine"]) == 0
    assert "4 cells: 4 done" in capfd.readouterr().out
    (tmp_path / "mine/cells/item-search/blrl/seed-1/checkpoints/state.safetensors").unlink()
    assert main(["report", "mine", "--no-figures"]) == 0
    told = capfd.readouterr().out
    assert "not finished, and left out: item-search/blrl/seed-1" in told
    table = (tmp_path / "mine/report/table.csv").read_text().splitlines()
    assert {tuple(line.split(",")[1:4]) for line in table[1:]} == {("blrl", "quick", "1"), ("boss", "quick", "2")}
    assert main(["sweep", "publish", "mine", "--out", "results"]) == 0
    assert (tmp_path / "results/item-search-boss/records.jsonl.xz").exists()


def test_the_code_of_a_sweep_that_somebody_sent_is_not_run_unless_it_is_trusted(tmp_path: Path, capfd: Any):
    folder = planned(tmp_path / "sweep", seeds=1)
    file = tmp_path / "sweep/plan/item-search/blrl/seed-0.toml"
    file.write_text(file.read_text().replace('method = "blrl"', 'method = "evil.py:Evil"'))
    assert main(["sweep", str(folder.path)]) == 2
    assert "names the method 'evil.py:Evil', whose code would be run" in capfd.readouterr().err
    assert main(["sweep", "cell", str(folder.path), "item-search/blrl/seed-0"]) == 2
    assert "If you trust it, add --trust" in capfd.readouterr().err
