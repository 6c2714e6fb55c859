"""A machine of one's own in ten lines: two poles on a cart, and nobody has weighed the lower one.

In the folder of this file:

    posterity families --check pole_mass.py:family
    posterity run pole_mass.py:family
    posterity report runs/pole_mass-family-vblrl-001
"""

import math

import posterity

family = posterity.Family.from_gymnasium(
    "InvertedDoublePendulum-v5",
    vary={"mass:pole": posterity.log_uniform(0.3, 3.0)},  # times what Gymnasium's pole weighs, and inertia with it
    max_episode_steps=200,
    alive={3: (2 / 3, math.inf)},  # an episode is over when the tip is below 1, so surely if cos(lower angle) < 2/3
)
