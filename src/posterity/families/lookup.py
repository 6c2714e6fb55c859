"""Where families are found.

    hopper-gravity              one of ours
    module:Class                a class or an object of an installed package, or of a module in the present folder
    folder/my_family.py:family  the same of a file
    a class, an object          handed over in Python

A family has one name, under which a run writes it down: for a file that is `my_family.py:family`, whatever folder it
lies in. Which folder, and what the file said, goes on record beside it (`origin`), and a resumed run is told
(`remember`). An object that no file defines is called `live:NAME`, and lasts as long as the process.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from posterity.errors import UserError, unknown
from posterity.families.base import Family
from posterity.plugins import digest, failing, kind, load
from posterity.settings import Settings

FAMILIES = {
    "box-jump": "posterity.families.boxjump:BoxJump",
    "chain": "posterity.families.chain:Chain",
    "cheetah-gravity": "posterity.families.mujoco:CheetahGravity",
    "cheetah-bodyparts": "posterity.families.mujoco:CheetahBodyparts",
    "cw10": "posterity.families.metaworld:Cw10",
    "cw20": "posterity.families.metaworld:Cw20",
    "hopper-gravity": "posterity.families.mujoco:HopperGravity",
    "hopper-bodyparts": "posterity.families.mujoco:HopperBodyparts",
    "walker-gravity": "posterity.families.mujoco:WalkerGravity",
    "walker-bodyparts": "posterity.families.mujoco:WalkerBodyparts",
    "grid": "posterity.families.grid:Grid",
    "item-search": "posterity.families.itemsearch:ItemSearch",
    "reach": "posterity.families.metaworld:Reach",
    "reach-wall": "posterity.families.metaworld:ReachWall",
    "mt10": "posterity.families.metaworld:Mt10",
    "mt50": "posterity.families.metaworld:Mt50",
    "pendulum-gravity": "posterity.families.pendulum:PendulumGravity",
    "point-goal": "posterity.families.pointgoal:PointGoal",
    "random-mdp": "posterity.families.randommdp:RandomMDP",
    "river-swim": "posterity.families.riverswim:RiverSwim",
}
LIVE = "live:"  # begins the name of an object that no file defines

Found = Family | type[Family]
_FILES: dict[str, Path] = {}  # the file of a name, as it was typed or recorded
_LIVE: dict[str, Found] = {}  # what was handed over in Python


def family_name(family: str | Found) -> str:
    """The one name of a family, from what was typed or handed over. It can be found by it from now on."""
    if not isinstance(family, str):
        return _name_of(family)
    place, colon, attribute = family.rpartition(":")
    if family.endswith(".py"):
        raise UserError(f"Which family of {family}? Name it: {family}:NAME")
    if not (colon and place.endswith(".py")):
        return family
    file = Path(place)
    name = f"{file.name}:{attribute}"
    if file.name != place or file.exists():
        _FILES[name] = file.resolve()
        _LIVE.pop(name, None)
    return name


def remember(name: str, file: str) -> None:
    """A run recorded that its family lay in `file`: it is looked for there first."""
    if name not in FAMILIES:
        _FILES[name] = Path(file)


def hand_over(name: str, family: Found) -> None:
    """What `name` stands for from now on, whatever file had it."""
    _LIVE[name] = family


def find_family(name: str) -> Found:
    """The class, or the object, behind a name."""
    if name in _LIVE:
        return _LIVE[name]
    if name.startswith(LIVE):
        raise UserError(f"Family '{name}' was an object in Python; hand it over: posterity.resume(folder, family=...)")
    if name not in FAMILIES and ":" not in name:
        raise unknown("family", name, FAMILIES)
    path, file = FAMILIES.get(name, name), _FILES.get(name)
    place, _, attribute = path.rpartition(":")
    known = file is not None and file.exists()
    if place.endswith(".py"):
        if file is not None and not known and not Path(place).exists():
            raise UserError(
                f"Family '{name}' cannot be loaded: there is no file {file}, and no {place} in {Path.cwd()}"
            )
        return load(f"Family '{name}'", f"{file}:{attribute}" if known else path, Family)
    try:
        return load(f"Family '{name}'", path, Family)
    except UserError:
        if not known:
            raise
        return load(f"Family '{name}'", f"{file}:{attribute}", Family)  # a module that is not in the present folder


def family_type(name: str) -> type[Family]:
    """The class behind a family's name; of an object, its class."""
    found = find_family(name)
    return found if isinstance(found, type) else type(found)


def default_settings(name: str) -> Settings:
    """What a family is set to where nothing is said."""
    found = find_family(name)
    return found.settings_type() if isinstance(found, type) else found.settings


def make_family(name: str, settings: Settings | None = None) -> Family:
    """The family of this name with these settings."""
    found = find_family(name)
    with failing(f"Family '{name}' cannot be made"):
        made = found(settings) if isinstance(found, type) else found if settings is None else found.configured(settings)
    if not hasattr(made, "settings"):
        raise UserError(f"Family '{name}' has an __init__ of its own that does not call super().__init__(settings)")
    return made


def origin(name: str) -> dict[str, str]:
    """The file that a family of one's own is defined in, and the SHA-256 of its text, for the record."""
    if name in FAMILIES:
        return {}
    found = find_family(name)
    module = sys.modules.get(found.__module__ if isinstance(found, type) else type(found).__module__)
    file = _FILES.get(name) or (Path(module.__file__) if module and module.__file__ else None)
    if file is None or not file.is_file():
        return {}
    return {"family_file": str(file.resolve()), "family_sha256": digest(file)}


def _name_of(family: object) -> str:
    """The name of a class or an object, by the global variable that holds it."""
    if not (isinstance(family, Family) or (isinstance(family, type) and issubclass(family, Family))):
        raise UserError(
            f"A family is a name, a subclass of posterity.Family or an object of one, not {kind(family)}. "
            "For a Gymnasium environment: posterity.Family.from_gymnasium(...)"
        )
    if isinstance(family, type) and inspect.isabstract(family):
        lacking = sorted(vars(family)["__abstractmethods__"])
        raise UserError(f"Family '{family.__name__}' is not whole: it lacks {', '.join(lacking)}")
    for module in [module for module in list(sys.modules.values()) if module is not None]:
        file = vars(module).get("__file__")
        own = isinstance(family, type) and family.__module__ != module.__name__  # only imported there
        if not isinstance(file, str) or module.__name__.startswith("posterity.") or own:
            continue
        for variable, value in list(vars(module).items()):
            if value is family and not variable.startswith("_"):
                name = f"{Path(file).name}:{variable}"
                _FILES[name], _LIVE[name] = Path(file).resolve(), family
                return name
    for name, path in FAMILIES.items():
        if isinstance(family, type) and path == f"{family.__module__}:{family.__name__}":
            return name
    name = LIVE + (family.__name__ if isinstance(family, type) else type(family).__name__)
    _LIVE[name] = family
    return name
