"""A control loop at 50 Hz with what a run learned: act within 10 ms, adapt, go on learning, and keep it.

    posterity run pendulum-gravity --tasks 2 --out runs/mine
    posterity export runs/mine --out machine.posterity --task new
    python examples/control_loop.py machine.posterity

The machine is a simulated pendulum under a gravity that no task of the run had. Put your own in the place of `env`.
"""

import sys
import time

import posterity
from posterity.families.pendulum import PendulumGravity
from posterity.types import Task

PERIOD, BUDGET_MS = 0.02, 10.0


def control(path: str, steps: int = 600, period: float = PERIOD, gravity: float = 1.3) -> list[float]:
    """The return of every episode."""
    env = PendulumGravity().make(Task(0, "the machine", {"gravity": gravity}))
    returns, total, worst = [], 0.0, 0.0
    with posterity.Controller.load(path, learn=True) as controller:
        print("compiling, up to a minute ...")
        controller.warm_up(BUDGET_MS)
        obs, _ = env.reset(seed=0)
        due = time.perf_counter()
        for _ in range(steps):
            began = time.perf_counter()
            action = controller.act(obs, budget_ms=BUDGET_MS)
            worst = max(worst, 1e3 * (time.perf_counter() - began))
            following, reward, terminated, truncated, _ = env.step(action)
            controller.observe(obs, action, float(reward), following, terminated, truncated)
            obs, total = following, total + float(reward)
            if terminated or truncated:
                known = controller.header.calibration is None or controller.is_familiar()  # none of a very short run
                familiar = "familiar" if known else "unlike all before"
                print(f"return {total:7.1f}, slowest action {worst:4.1f} ms, {familiar}, {controller.progress}")
                returns.append(total)
                (obs, _), total, worst = env.reset(), 0.0, 0.0
            due = max(due + period, time.perf_counter())
            time.sleep(due - time.perf_counter() if due > time.perf_counter() else 0.0)
        controller.save(path.replace(".posterity", "-after.posterity"))
    return returns


if __name__ == "__main__":
    control(sys.argv[1])
