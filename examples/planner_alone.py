"""The planner alone, on a problem whose optimum is known: bring a point to rest at the origin.

The position x moves by each action and costs x^2 + a^2 at every step. The best first action from x = 1 is -0.618, minus
the golden ratio's fraction, if the horizon is long. The planner is told neither: it only sees scores.

    python examples/planner_alone.py
"""

import jax
import jax.numpy as jnp

from posterity.planning.cem import Plan, PlannerSettings, cem, start

HORIZON = 10
LOW, HIGH = jnp.array([-1.0]), jnp.array([1.0])


def score(key: jax.Array, candidates: jax.Array) -> jax.Array:
    """[N] minus the cost of each of the action sequences [N, T, 1] from x = 1."""
    x = 1.0 + jnp.cumsum(candidates[..., 0], axis=1)
    return -(x**2).sum(axis=1) - (candidates**2).sum(axis=(1, 2))


def plan(seed: int = 0) -> Plan:
    """The best sequence of actions that the cross-entropy method finds."""
    settings = PlannerSettings(horizon=HORIZON, candidates=500, elites=50, cem_iterations=20)
    return cem(jax.random.key(seed), score, start(HORIZON, LOW, HIGH), LOW, HIGH, settings)


def main() -> None:
    found = plan()
    print("found actions:   ", " ".join(f"{action:6.3f}" for action in found.mean[:4, 0]))
    print("the best actions:", " ".join(f"{-0.618 * 0.382**t:6.3f}" for t in range(4)))


if __name__ == "__main__":
    main()
