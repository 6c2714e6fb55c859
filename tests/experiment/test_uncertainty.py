"""The bench of doubt, at sizes that take seconds."""

import pytest

from posterity.errors import UserError
from posterity.experiment import uncertainty
from posterity.experiment.config import resolve
from posterity.experiment.uncertainty import KINDS, Kind, bench_uncertainty

LEARNER = {"gradient_steps": 800, "world_batch_size": 16, "world_learning_rate": 0.003}
AGENT = {"learner": LEARNER, "network": {"hidden": [32, 32]}}


def test_every_kind_is_asked_with_more_and_more_data_far_away_and_in_a_new_task(monkeypatch: pytest.MonkeyPatch):
    """An ensemble is surer with twenty times the data, and less sure far from it."""
    monkeypatch.setattr(uncertainty, "KINDS", (Kind("ensemble", "pooled", 3, 0),))
    monkeypatch.setattr(uncertainty, "COUNTS", (50, 1000))
    monkeypatch.setattr(uncertainty, "OTHERS", 50)
    monkeypatch.setattr(uncertainty, "EARLIER", 2)
    monkeypatch.setattr(uncertainty, "MET", (0, 4))
    monkeypatch.setattr(uncertainty, "HELD_OUT", 100)
    config = resolve("pendulum-gravity", "vblrl", "quick", {"seeds": 1, "agent": AGENT})
    records = bench_uncertainty(config)
    places = [(record["where"], record["transitions"]) for record in records]
    near, far = "in distribution", "out of distribution"
    new = [("new task", 0), ("new task", 4), ("new task, fitted", 4)]
    assert places == [(near, 50), (far, 50), (near, 1000), (far, 1000), *new]
    doubt = {place: record["epistemic_std"] for place, record in zip(places, records, strict=True)}
    assert doubt[near, 1000] < 0.6 * doubt[near, 50]
    assert doubt[far, 1000] > 3 * doubt[near, 1000]


def test_the_kinds_are_told_apart_by_name_and_the_papers_is_one():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert KINDS[0][1:] == ("pooled", 1, 0)


def test_a_finite_family_has_no_such_doubt():
    with pytest.raises(UserError, match="its beliefs are exact"):
        bench_uncertainty(resolve("item-search", "blrl", "quick"))
