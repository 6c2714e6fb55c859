"""Lifelong reinforcement learning: what was learned of earlier tasks is the prior for the next one.

`posterity.run`, `resume`, `load`, `evaluate` and `read` are the library; see api.py. `posterity.Family.from_gymnasium`
makes a family of tasks from an environment of one's own, and `uniform`, `log_uniform`, `normal`, `choice` and `drift`
are what its hidden parameters can be drawn from. `posterity.Controller` takes what was learned to a machine. Importing
this loads none of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posterity.api import evaluate, load, read, resume, run, video
    from posterity.control.controller import Controller
    from posterity.control.plain import PlainPolicy
    from posterity.families.base import Family
    from posterity.families.distributions import choice, drift, log_uniform, normal, uniform

__version__ = "0.2.0.dev0"
__all__ = [
    "Controller",
    "Family",
    "PlainPolicy",
    "choice",
    "drift",
    "evaluate",
    "load",
    "log_uniform",
    "normal",
    "read",
    "resume",
    "run",
    "uniform",
    "video",
]
_PLACES = {
    "Controller": "control.controller",
    "Family": "families.base",
    "PlainPolicy": "control.plain",
    **dict.fromkeys(("choice", "drift", "log_uniform", "normal", "uniform"), "families.distributions"),
}


def __getattr__(name: str) -> Any:
    """Loads a part of the library when the first of its names is used."""
    if name not in __all__:
        raise AttributeError(f"module 'posterity' has no attribute '{name}'")
    return getattr(import_module(f"posterity.{_PLACES.get(name, 'api')}"), name)
