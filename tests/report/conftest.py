"""A made-up run that has everything on record which a figure or a metric can be about."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posterity.experiment.records import HEADER, encode

MakeUp = Callable[..., Path]


def score(score: str, seed: int, task: int, after: int, value: float, **more: float) -> dict:
    place = {"score": score, "seed": seed, "task": task, "episode": 0, "after": after}
    return place | {"return": value, "steps": 5} | more


@pytest.fixture(scope="session")
def whole(made_up: MakeUp) -> MakeUp:
    """As `made_up`, with beliefs, a latent that is minus the task's factor, success, and all scores.

    Zero-shot is 1, Start 2, Train 5 + task (tasks from 0), and Back loses 1 with every task that was learned since.
    """

    def make(path: Path, method: str = "vblrl", *, particles: int = 5, better: float = 0.0, **kwargs: object) -> Path:
        made_up(path, method, more=better, **kwargs)
        with (path / "config.toml").open("a") as file:
            file.write(f"[agent.planner]\nparticles = {particles}\n")
        lines = [json.loads(line) for line in (path / "records.jsonl").read_text().splitlines()][1:]
        for line in lines:
            factor = 1.0 + 0.1 * line["task"]
            if line["kind"] == "task":
                line["factors"] = {"gravity": factor}
                continue
            doubt = 1.0 / (1 + line["iteration"])
            line |= {"aleatoric_std": 0.1, "epistemic_std": doubt, "coverage_90": 0.9 - 0.1 * doubt, "episodes": 1}
            line |= {"forecast": line["return"] + 1, "forecast_realised": line["return"], "success": 1.0 - doubt}
            line |= {"latent": [0.5, -factor]}
        (path / "records.jsonl").write_bytes(HEADER + b"".join(map(encode, lines)))
        seeds, tasks = {line["seed"] for line in lines}, 1 + max(line["task"] for line in lines)
        files: dict[str, list[dict]] = {"zero-shot": [], "start": [], "train": [], "back-confidence": []}
        for seed in sorted(seeds):
            for task in range(tasks):
                files["zero-shot"].append(score("zero-shot", seed, task, task, 1.0 + better))
                files["start"].append(score("start", seed, task, task, 2.0 + better))
                files["train"].append(score("train", seed, task, task, 5.0 + task + better))
                shares = {"world_reward": 0.25, "world_state": 0.75}
                files["back-confidence"] += [
                    score("back", seed, task, after, 5.0 + task - (after - 1 - task) + better, **shares)
                    for after in range(task + 1, tasks + 1)
                ]
        (path / "evaluation").mkdir()
        for name, some in files.items():
            (path / "evaluation" / f"{name}.jsonl").write_bytes(b"".join(map(encode, some)))
        return path

    return make
