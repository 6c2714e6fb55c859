"""The families by name. A family is imported only when it is asked for."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

from posterity.errors import UserError, unknown
from posterity.families.base import Family

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
    module, _, attribute = FAMILIES.get(name, name).partition(":")
    if name not in FAMILIES and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a family of one's own may lie in the present folder
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module of the user's own raises while it is imported
        raise UserError(f"Cannot load family '{name}': {type(error).__name__}, {error}") from error
    if not (isinstance(found, type) and issubclass(found, Family)) or inspect.isabstract(found):
        raise UserError(f"'{name}' is not a posterity.families.base.Family that can be made")
    return found
