"""What a controller notices and learns on pendulums it never met.

posterity run pendulum-gravity --tasks 2 --out runs/mine
posterity export runs/mine --out machine.posterity
posterity export runs/mine --out new.posterity --task new
python results/control/measure.py machine.posterity new.posterity > results/control/machines.json
"""

import json
import sys

import numpy as np

import posterity
from posterity.experiment.folder import session
from posterity.families.pendulum import PendulumGravity
from posterity.types import Task


def episode(controller: posterity.Controller, gravity: float, seed: int, budget_ms: float | None):
    """Its return, and the surprise at every tenth step from the sixtieth on."""
    env = PendulumGravity().make(Task(0, "", {"gravity": gravity}))
    obs, total, surprises, step, over = env.reset(seed=seed)[0], 0.0, [], 0, False
    while not over:
        action = controller.act(obs, budget_ms)
        following, reward, terminated, truncated, _ = env.step(action)
        controller.observe(obs, action, float(reward), following, terminated, truncated)
        obs, over, total = following, terminated or truncated, total + float(reward)
        step += 1
        if step >= 60 and step % 10 == 0:
            surprises.append(controller.surprise())
    return total, surprises


def familiarity(path: str) -> list[dict]:
    """How often machines of several gravities, of which training had 0.5 to 1.5, are called familiar."""
    rows = []
    with posterity.Controller.load(path) as controller:
        for gravity in (0.6, 0.8, 1.0, 1.2, 1.4, 2.0, 3.0, 5.0, -1.0):
            told = [each for seed in range(2) for each in episode(controller, gravity, seed, None)[1]]
            familiar = float(np.mean([each <= 0 for each in told]))
            rows.append({"gravity": gravity, "windows": len(told), "familiar": round(familiar, 3)})
    return rows


def learning(path: str, gravity: float) -> list[dict]:
    """Returns on a new machine with and without learning. Episodes begin alike; an update follows each."""
    rows = []
    for learn in (False, True):
        with posterity.Controller.load(path, learn=learn) as controller:
            returns = []
            for number in range(5):
                returns.append(round(episode(controller, gravity, number, None)[0], 1))
                controller.wait_for_learning(300.0)
            rows.append({"gravity": gravity, "learn": learn, "returns": returns})
    return rows


if __name__ == "__main__":
    known, new = sys.argv[1:]
    measured = {"familiarity": familiarity(known), "learning": learning(new, 1.45) + learning(new, 2.0)}
    print(json.dumps({**measured, "session": session("python results/control/measure.py")}, indent=1))
