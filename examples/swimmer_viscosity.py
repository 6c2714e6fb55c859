"""A swimmer in a fluid that nobody has measured: water in one task, thick oil in another.

In the folder of this file:

    posterity families --check swimmer_viscosity.py:family
    posterity run swimmer_viscosity.py:family
    posterity report runs/swimmer_viscosity-family-vblrl-001
"""

import posterity

family = posterity.Family.from_gymnasium(
    "Swimmer-v5",
    vary={"viscosity": posterity.log_uniform(10, 300)},  # in Gymnasium's own fluid viscosity is hardly felt
    max_episode_steps=200,
)
