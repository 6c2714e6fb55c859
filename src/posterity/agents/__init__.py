"""The methods by name. What a method needs is imported only when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from posterity.errors import unknown
from posterity.settings import Settings


class Method(NamedTuple):
    """How a method is made: a class, its settings, and what sets it apart from others of the same class."""

    summary: str
    agent: str  # module:Class, called with (spec, settings, budget, **fixed)
    settings: str  # module:Class
    finite: bool  # runs on finite families, or else on those with real observations and actions
    fixed: dict[str, Any]

    def settings_type(self) -> type[Settings]:
        """The class of its settings."""
        return _load(self.settings)

    def build(self, spec: Any, settings: Any, budget: Any) -> Any:
        """The agent."""
        return _load(self.agent)(spec, settings, budget, **self.fixed)


_VBLRL = ("posterity.agents.vblrl:Vblrl", "posterity.agents.training:VblrlSettings", False)
_BLRL = ("posterity.agents.blrl:Blrl", "posterity.agents.blrl:BlrlSettings", True)
_NPG = ("posterity.agents.npg:Npg", "posterity.agents.npg:NpgSettings", False)
_EWC = ("posterity.agents.ewc:Ewc", "posterity.agents.ewc:EwcSettings", False)
_LPG_FTW = ("posterity.agents.lpg_ftw:LpgFtw", "posterity.agents.lpg_ftw:LpgFtwSettings", False)

METHODS = {
    "vblrl": Method("variational Bayesian lifelong RL: the paper's algorithm", *_VBLRL, {}),
    "single-task": Method("the same model and planner, every task from scratch", *_VBLRL, {"variant": "single-task"}),
    "pooled": Method("one world model for all tasks, planned with directly", *_VBLRL, {"variant": "pooled"}),
    "npg": Method("natural policy gradient, every task from scratch (--fine-tune: one policy for all)", *_NPG, {}),
    "ewc": Method("one policy, held back where earlier tasks are curved (elastic weight consolidation)", *_EWC, {}),
    "lpg-ftw": Method("a dictionary of policies and a code for each task (LPG-FTW)", *_LPG_FTW, {}),
    "blrl": Method("Bayesian lifelong RL for finite MDPs: the world posterior is the next task's prior", *_BLRL, {}),
    "boss": Method("best of sampled set: the same agent with a fixed prior, no transfer", *_BLRL, {"transfer": False}),
}


def method(name: str) -> Method:
    """The method called `name`."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def _load(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)
