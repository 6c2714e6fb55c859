"""Lifelong reinforcement learning: what was learned of earlier tasks is the prior for the next one.

`posterity.run`, `resume`, `load`, `evaluate` and `read` are the library; see api.py. `posterity.Controller` takes what
was learned to a machine; see control/controller.py. Importing this loads none of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posterity.api import evaluate, load, read, resume, run
    from posterity.control.controller import Controller as Controller

__version__ = "0.1.0"
__all__ = ["Controller", "evaluate", "load", "read", "resume", "run"]


def __getattr__(name: str) -> Any:
    """Loads the library when the first of its names is used."""
    if name == "Controller":
        from posterity.control.controller import Controller

        return Controller
    if name in __all__:
        from posterity import api

        return getattr(api, name)
    raise AttributeError(f"module 'posterity' has no attribute '{name}'")
