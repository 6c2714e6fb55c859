"""A gravity that changes in mid-episode: a controller whose latent follows, against the same one frozen.

    posterity run pendulum-gravity --latent.size 4 --out runs/latent
    posterity export runs/latent --out latent.posterity --task new
    python results/control/midepisode.py latent.posterity

An episode begins under one gravity. After 100 steps it is another one, and the pendulum hangs down again, as after a
push. The frozen controller observes the first 100 steps and no more. Both have whole searches, so that only what they
believe differs. Nothing is learned but the latent.
"""

import json
import sys

import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from scipy import stats

import posterity

# factors on gravity: before, after
PAIRS = ((0.6, 1.4), (1.4, 0.6), (0.7, 1.3), (1.3, 0.7), (0.8, 1.45), (1.2, 0.55))
PAIRS += ((0.55, 1.2), (1.45, 0.8), (0.65, 1.35), (1.35, 0.65), (0.75, 1.25), (1.25, 0.75))
BEFORE, AFTER = 100, 200  # steps


def played(path: str, pair: tuple[float, float], seed: int, frozen: bool) -> float:
    """The return after the change."""
    env = PendulumEnv(g=10.0 * pair[0])
    total = 0.0
    with posterity.Controller.load(path) as controller:
        obs, _ = env.reset(seed=seed)
        for step in range(BEFORE + AFTER):
            if step == BEFORE:
                env.g = 10.0 * pair[1]
                env.state = np.array([np.pi, 0.0])
                obs = np.array([-1.0, 0.0, 0.0], np.float32)
            action = controller.act(obs, first=step == 0)
            following, reward, _, _, _ = env.step(action)
            if step < BEFORE or not frozen:
                controller.observe(obs, action, float(reward), following)
            obs, total = following, total + (float(reward) if step >= BEFORE else 0.0)
    return total


def main(path: str) -> None:
    """Prints both returns of every pair, and the mean difference with its 95 % interval."""
    differences: list[float] = []
    for seed, pair in enumerate(PAIRS):
        adapts, frozen = (played(path, pair, seed, frozen) for frozen in (False, True))
        differences.append(adapts - frozen)
        print(json.dumps({"gravity": pair, "adapts": round(adapts, 1), "frozen": round(frozen, 1)}), flush=True)
    half = stats.t.ppf(0.975, len(PAIRS) - 1) * np.std(differences, ddof=1) / np.sqrt(len(PAIRS))
    print(f"adapts - frozen: {np.mean(differences):.0f} ± {half:.0f}")


if __name__ == "__main__":
    main(sys.argv[1])
