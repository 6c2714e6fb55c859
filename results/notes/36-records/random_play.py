"""How far random actions get in one episode of each kind of mt10, with white and with pink noise. Nothing is learned.

python results/notes/36-records/random_play.py > results/notes/36-records/random-play.json
"""

from __future__ import annotations

import json
import sys

import numpy as np

from posterity.families import make_family
from posterity.families.metaworld import MtSettings
from posterity.models.noise import Noise, random_actions
from posterity.types import Key, Spec

SEEDS, STEPS = 8, 500
HAND, THING = slice(0, 3), slice(4, 7)
NOISES: tuple[Noise, ...] = ("white", "pink")


def play(seed: int, kind: int, noise: Noise) -> dict[str, float]:
    """One episode."""
    family = make_family("mt10", MtSettings(observation="moving"))
    spec = family.spec
    assert isinstance(spec, Spec)
    env = family.make(family.tasks(Key.of(seed), 10)[kind])
    obs, rewards = [np.asarray(env.reset(seed=0)[0])], []
    for step in range(STEPS):
        key = Key.of(seed).fold("kind", kind, "step", step, "act")
        seen, reward, *_ = env.step(random_actions([key], spec, noise)[0])
        obs.append(np.asarray(seen))
        rewards.append(float(reward))
    env.close()
    path = np.stack(obs)
    return {
        "hand_spread_cm": 100 * float(np.linalg.norm(path[:, HAND].std(axis=0))),
        "thing_moved_cm": 100 * float(np.linalg.norm(path[:, THING] - path[0, THING], axis=1).max()),
        "best_reward": max(rewards),
    }


def main() -> None:
    """Means over seeds, by kind."""
    names = make_family("mt10", MtSettings(observation="moving")).tasks(Key.of(0), 10)
    rows = []
    for kind, task in enumerate(names):
        for noise in NOISES:
            played = [play(seed, kind, noise) for seed in range(SEEDS)]
            means = {name: float(np.mean([each[name] for each in played])) for name in played[0]}
            rows.append({"kind": task.factors["category"], "noise": noise, "seeds": SEEDS} | means)
            print(rows[-1], file=sys.stderr)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
