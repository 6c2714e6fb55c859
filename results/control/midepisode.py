"""A gravity that changes in mid-episode: a controller whose latent follows, against the same one frozen.

    posterity run pendulum-gravity --latent.size 4 --out runs/latent
    posterity export runs/latent --out latent.posterity --task new
    python results/control/midepisode.py latent.posterity

    posterity run hopper-gravity --preset best --tasks 3 --iterations 45 --out runs/hopper
    posterity export runs/hopper --out hopper.posterity --task new
    python results/control/midepisode.py hopper.posterity
    python results/control/midepisode.py hopper.posterity --hz 50         in real time

An episode begins under one gravity. After 100 steps it is another one, and the body is where episodes begin: the
pendulum hangs down again, as after a push, and the hopper is stood up. The return after that counts: of 200 steps of
the pendulum, and of the 300 that are left of a hopper's episode. The frozen controller observes the first 100 steps and
no more. Both have all the time they need to act, so that only what they believe differs. Nothing is learned but the
latent. With `--hz` actions are asked for at that rate, with half of the period as their budget, so that the latent is
inferred beside the loop and follows later. A hopper that falls is stood up again before the change; after it, a fall
ends the episode.
"""

import argparse
import json
import time

import numpy as np
from scipy import stats

import posterity
from posterity.families import family_type
from posterity.types import Task

# factors on gravity: before, after
PAIRS = ((0.6, 1.4), (1.4, 0.6), (0.7, 1.3), (1.3, 0.7), (0.8, 1.45), (1.2, 0.55))
PAIRS += ((0.55, 1.2), (1.45, 0.8), (0.65, 1.35), (1.35, 0.65), (0.75, 1.25), (1.25, 0.75))
BEFORE, AFTER = 100, {"pendulum-gravity": 200, "hopper-gravity": 300}  # steps


def begun(family: str, gravity: float, seed: int):
    """An environment at the beginning of an episode. The pendulum's hangs down."""
    env = family_type(family)().make(Task(0, "", {"gravity": gravity}))
    obs, _ = env.reset(seed=seed)
    return env, obs


def played(controller: posterity.Controller, pair: tuple[float, float], seed: int, frozen: bool, hz: float) -> float:
    """The return after the change."""
    controller.forget()
    family, total, first = controller.header.family, 0.0, True
    env, obs = begun(family, pair[0], seed)
    budget, due = (500.0 / hz if hz else None), time.perf_counter()
    for step in range(BEFORE + AFTER[family]):
        if step == BEFORE:
            env, obs = begun(family, pair[1], seed)
            if family == "pendulum-gravity":
                env.unwrapped.state = np.array([np.pi, 0.0])  # pyright: ignore[reportAttributeAccessIssue]
                obs = np.array([-1.0, 0.0, 0.0], np.float32)
        action = controller.act(obs, budget, first=first)
        following, reward, terminated, _, _ = env.step(action)
        if hz:
            due += 1.0 / hz
            time.sleep(max(due - time.perf_counter(), 0.0))
        if step < BEFORE or not frozen:
            controller.observe(obs, action, float(reward), following)
        obs, total, first = following, total + (float(reward) if step >= BEFORE else 0.0), False
        if terminated and step >= BEFORE:
            break
        if terminated:
            obs, first = env.reset(seed=seed + 1000 + step)[0], True
    return total


def main(path: str, hz: float) -> None:
    """Prints both returns of every pair, and the mean difference with its 95 % interval."""
    differences: list[float] = []
    with posterity.Controller.load(path) as controller:
        controller.warm_up(500.0 / hz if hz else None)
        for seed, pair in enumerate(PAIRS):
            adapts, frozen = (played(controller, pair, seed, frozen, hz) for frozen in (False, True))
            differences.append(adapts - frozen)
            print(json.dumps({"gravity": pair, "adapts": round(adapts, 1), "frozen": round(frozen, 1)}), flush=True)
    half = stats.t.ppf(0.975, len(PAIRS) - 1) * np.std(differences, ddof=1) / np.sqrt(len(PAIRS))
    print(f"adapts - frozen: {np.mean(differences):.0f} ± {half:.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("machine")
    parser.add_argument("--hz", type=float, default=0.0)
    asked = parser.parse_args()
    main(asked.machine, asked.hz)
