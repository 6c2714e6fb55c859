"""CartPole, which is pushed to the left or to the right: two discrete actions. Nobody has weighed it.

In the folder of this file:

    posterity families --check cartpole_masses.py:family
    posterity run cartpole_masses.py:family
    posterity report runs/cartpole_masses-family-vblrl-001
"""

from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import posterity


class CartPole(CartPoleEnv):
    def __init__(self, cart: float = 1.0, pole: float = 0.1, length: float = 0.5):
        super().__init__()
        self.masspole, self.length = pole, length
        self.total_mass, self.polemass_length = cart + pole, pole * length


hidden = {
    "cart": posterity.log_uniform(0.5, 2),
    "pole": posterity.log_uniform(0.1, 1),
    "length": posterity.log_uniform(0.3, 1),
}
family = posterity.Family.from_gymnasium(CartPole, vary=hidden, max_episode_steps=200, alive="learn")
