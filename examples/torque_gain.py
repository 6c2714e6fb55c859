"""A pendulum whose motor nobody has measured: it turns with 30 % to 100 % of the torque it is told.

In the folder of this file:

    posterity families --check torque_gain.py:family
    posterity run torque_gain.py:family
    posterity report runs/torque_gain-family-vblrl-001
"""

import posterity

family = posterity.Family.from_gymnasium("Pendulum-v1", vary={"action_gain": posterity.uniform(0.3, 1.0)})
