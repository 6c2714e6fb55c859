"""The families by name. A family is imported only when it is asked for."""

from __future__ import annotations

from posterity.errors import unknown
from posterity.families.base import Family
from posterity.plugins import load_class

FAMILIES = {
    "box-jump": "posterity.families.boxjump:BoxJump",
    "cheetah-gravity": "posterity.families.mujoco:CheetahGravity",
    "cheetah-bodyparts": "posterity.families.mujoco:CheetahBodyparts",
    "hopper-gravity": "posterity.families.mujoco:HopperGravity",
    "hopper-bodyparts": "posterity.families.mujoco:HopperBodyparts",
    "walker-gravity": "posterity.families.mujoco:WalkerGravity",
    "walker-bodyparts": "posterity.families.mujoco:WalkerBodyparts",
    "item-search": "posterity.families.itemsearch:ItemSearch",
    "reach": "posterity.families.metaworld:Reach",
    "reach-wall": "posterity.families.metaworld:ReachWall",
    "mt10": "posterity.families.metaworld:Mt10",
    "mt50": "posterity.families.metaworld:Mt50",
    "pendulum-gravity": "posterity.families.pendulum:PendulumGravity",
    "random-mdp": "posterity.families.randommdp:RandomMDP",
}


def family_type(name: str) -> type[Family]:
    """The class behind a family's name, or behind `module:Class` for a family of one's own."""
    if name not in FAMILIES and ":" not in name:
        raise unknown("family", name, FAMILIES)
    return load_class(f"Family '{name}'", FAMILIES.get(name, name), Family)
