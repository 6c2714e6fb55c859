"""Explorers by name: ways to act on one posterior. Each is a small file."""

from __future__ import annotations

from posterity.tabular.explorers.bamcp import Bamcp
from posterity.tabular.explorers.base import Explorer, Moment, Name, Plan, Planning, Posterior
from posterity.tabular.explorers.beb import Beb
from posterity.tabular.explorers.boss import Boss
from posterity.tabular.explorers.certainty import Certainty
from posterity.tabular.explorers.path import Path
from posterity.tabular.explorers.psrl import Psrl
from posterity.tabular.explorers.ucb import Ucb
from posterity.tabular.explorers.voi import Voi

EXPLORERS: dict[Name, type[Explorer]] = {
    "boss": Boss,
    "psrl": Psrl,
    "beb": Beb,
    "certainty": Certainty,
    "bamcp": Bamcp,
    "voi": Voi,
    "ucb": Ucb,
    "path": Path,
}

__all__ = ["EXPLORERS", "Explorer", "Moment", "Name", "Plan", "Planning", "Posterior"]
