"""The methods by name. A method is imported only when it is asked for.

A method of one's own is named `FILE.py:Class` or `module:Class`; the class is a subclass of
`posterity.agents.base.Agent`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, cast

from posterity.agents.base import Agent
from posterity.errors import UserError, unknown
from posterity.plugins import kind, load_class
from posterity.settings import Settings
from posterity.types import Budget, Facts, FiniteSpec, Spec


class Method(NamedTuple):
    """How a method is made: a class, and what sets it apart from other methods of the same class."""

    summary: str
    agent: str  # module:Class, called with (spec, settings, budget, **fixed)
    fixed: Facts
    finite: bool  # learns finite MDPs, or else tasks with real observations and actions; known before the import

    def build(self, spec: Spec | FiniteSpec, settings: Settings, budget: Budget) -> Agent[object, object]:
        """An agent. Of what was found by its name no more is known than the contract."""
        return cast(Any, self.agent_type())(spec, settings, budget, **self.fixed)

    def agent_type(self) -> type[Agent[object, object]]:
        """The class of its agents."""
        return load_class(f"Method '{self.agent}'", self.agent, Agent)

    def settings_type(self) -> type[Settings]:
        """The class of its settings."""
        return self.agent_type().settings_type


_VBLRL, _BLRL = "posterity.agents.vblrl:Vblrl", "posterity.agents.blrl:Blrl"
_NPG, _EWC = "posterity.agents.npg:Npg", "posterity.agents.ewc:Ewc"
_ACTOR_CRITIC = "posterity.agents.actor_critic:ActorCriticMethod"
_LPG_FTW = "posterity.agents.lpg_ftw:LpgFtw"

METHODS = {
    "vblrl": Method("variational Bayesian lifelong RL: the paper's algorithm", _VBLRL, {"variant": "vblrl"}, False),
    "single-task": Method(
        "the same model and planner, every task from scratch", _VBLRL, {"variant": "single-task"}, False
    ),
    "pooled": Method("one world model for all tasks, planned with directly", _VBLRL, {"variant": "pooled"}, False),
    "hip-mdp": Method(
        "one world model with a latent for each task, inferred while acting (T-HiP-MDP)",
        _VBLRL,
        {"variant": "hip-mdp"},
        False,
    ),
    "actor-critic": Method(
        "actor and critics without a model, every task from scratch (--transfer: the same ones for all)",
        _ACTOR_CRITIC,
        {},
        False,
    ),
    "npg": Method(
        "natural policy gradient, every task from scratch (--fine-tune: one policy for all)", _NPG, {}, False
    ),
    "ewc": Method("one policy for all tasks, with elastic weight consolidation", _EWC, {}, False),
    "lpg-ftw": Method("a dictionary of policies and a code for each task (LPG-FTW)", _LPG_FTW, {}, False),
    "blrl": Method(
        "Bayesian lifelong RL for finite MDPs: the world posterior is the next task's prior", _BLRL, {}, True
    ),
    "boss": Method(
        "best of sampled set: the same agent with a fixed prior, no transfer", _BLRL, {"transfer": False}, True
    ),
}


def method_name(method: str | type[object]) -> str:
    """The name of a method, from what was typed or from a class of one's own."""
    if isinstance(method, str):
        return method
    if not (isinstance(method, type) and issubclass(method, Agent)):
        raise UserError(f"A method is a name or a subclass of posterity.agents.base.Agent, and not {kind(method)}")
    place = method.__module__
    if place == "__main__" and (file := vars(sys.modules[place]).get("__file__")):
        place = str(file)
    return f"{place}:{method.__qualname__}"


def method(name: str) -> Method:
    """The method called `name`, or the one of one's own behind `module:Class`."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise unknown("method", name, METHODS)
    found = Method("", name, {}, False).agent_type()
    return Method(found.summary, name, {}, found.finite)
