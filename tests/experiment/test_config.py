from pathlib import Path

import pytest

from posterity.agents import METHODS, method
from posterity.commands.arguments import flags_of
from posterity.errors import UserError
from posterity.experiment.config import PRESETS, from_toml, preset_table, resolve, to_toml
from posterity.families import FAMILIES, family_type

CASES = [
    (family, name, preset)
    for family in FAMILIES
    for name in METHODS
    for preset in preset_table(family)
    if METHODS[name].finite == family_type(family).finite
]


@pytest.mark.parametrize(("family", "name", "preset"), CASES)
def test_every_preset_of_every_family_and_method_resolves_and_survives_toml(family: str, name: str, preset: str):
    config = resolve(family, name, preset)
    assert (config.family, config.method, config.preset) == (family, name, preset)
    assert from_toml(to_toml(config), "here") == config


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_three_presets(family: str):
    assert tuple(preset_table(family))[: len(PRESETS)] == PRESETS


def test_a_preset_built_on_another_is_that_one_with_its_changes():
    """The paper's ablations on Reach: each one name, each one change."""
    best = resolve("reach", "vblrl", "best").model_dump()
    for name, place, value in (
        ("deterministic", ("bayesian",), "world"),
        ("particles-1", ("planner", "particles"), 1),
        ("particles-50", ("planner", "particles"), 50),
    ):
        changed = resolve("reach", "vblrl", name).model_dump()
        assert changed.pop("preset") == name
        inner = changed["agent"]
        for part in place[:-1]:
            inner = inner[part]
        assert inner[place[-1]] == value
        original = best["agent"]
        for part in place[:-1]:
            original = original[part]
        inner[place[-1]] = original[place[-1]]
        assert {**changed, "preset": "best"} == best


def test_a_preset_that_a_family_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(UserError, match=r"Unknown preset 'particles-5'.*'particles-50'.*deterministic"):
        resolve("reach", "vblrl", "particles-5")
    with pytest.raises(UserError, match="Unknown preset 'deterministic'"):
        resolve("hopper-gravity", "vblrl", "deterministic")


def test_changes_win_over_the_preset_also_inside_tables():
    config = resolve("random-mdp", "blrl", "quick", {"tasks": 3, "agent": {"models": 7}})
    assert config.tasks == 3
    assert config.model_dump()["agent"]["models"] == 7
    assert config.model_dump()["agent"]["known"] == 30


def test_families_of_one_body_share_a_base_and_keep_their_own():
    for preset in PRESETS:
        gravity, bodyparts = (
            resolve(f"hopper-{kind}", "ewc", preset).model_dump() for kind in ("gravity", "bodyparts")
        )
        assert (gravity["agent"].pop("penalty"), bodyparts["agent"].pop("penalty")) == (1e-7, 1e-4)
        assert {**gravity, "family": ""} == {**bodyparts, "family": ""}


def test_vblrl_has_at_most_39_settings():
    leaves = [flag.name for flag in flags_of(method("vblrl").settings_type())]
    assert len(leaves) == len(set(leaves)) <= 39


def test_a_method_of_ones_own_has_its_defaults_and_the_budget_of_the_preset(monkeypatch):
    """A preset's `agent` is the default method's: no other kind of method is given it."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    config = resolve("pendulum-gravity", "own_method:RandomSearch", "quick")
    assert config.model_dump()["agent"] == {"change": 0.3}
    assert (config.tasks, config.iterations, config.steps_per_iteration) == (4, 8, 200)
    assert from_toml(to_toml(config), "here") == config


def test_a_family_of_ones_own_starts_from_its_budget_also_of_the_agent(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    config = resolve("gymnasium_family:WeakMotor", None, "quick", {"agent": {"planner": {"horizon": 7}}})
    assert (config.method, config.tasks, config.steps_per_iteration) == ("vblrl", 4, 200)
    planner = config.model_dump()["agent"]["planner"]
    assert (planner["candidates"], planner["horizon"]) == (100, 7)
    assert "planner" not in resolve("gymnasium_family:WeakMotor", "npg", "quick").model_dump()["agent"]


def test_item_search_is_the_papers_budget():
    config = resolve("item-search", "blrl", "paper")
    assert (config.tasks, config.iterations, config.steps_per_iteration) == (300, 10, 21)
    agent = config.model_dump()["agent"]
    assert (agent["models"], agent["gamma"], agent["tolerance"]) == (5, 0.95, 0.01)


def test_policy_gradients_take_twice_the_samples_and_the_published_constants():
    """A preset's `agent` is VBLRL's; another kind of method has its own table."""
    for family in ("cheetah-gravity", "hopper-bodyparts", "walker-bodyparts"):
        steps = resolve(family, "vblrl", "paper").steps_per_iteration
        for name in ("npg", "ewc", "lpg-ftw"):
            assert resolve(family, name, "paper").steps_per_iteration == 2 * steps
    agent = resolve("walker-bodyparts", "lpg-ftw", "paper").model_dump()["agent"]
    assert (agent["columns"], agent["step_size"], agent["bootstrap"]) == (10, 0.1, False)
    assert resolve("hopper-bodyparts", "ewc", "paper").model_dump()["agent"]["penalty"] == 1e-4
    assert "planner" not in agent
    assert resolve("walker-bodyparts", "single-task", "paper").model_dump()["agent"]["planner"]["particles"] == 20


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": 3}, "Unknown setting 'task'"),
        ({"agent": {"modells": 3}}, "Unknown setting 'agent.modells'"),
        ({"tasks": 0}, "Setting 'tasks': input should be greater than or equal to 1, not 0"),
        ({"agent": {"gamma": 1.0}}, "Setting 'agent.gamma': input should be less than 1, not 1.0"),
        ({"tasks": "many"}, "Setting 'tasks'"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(changes, says):
    with pytest.raises(UserError) as refused:
        resolve("item-search", "blrl", "quick", changes)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["family = ", "tasks = 3\n", 'family = "item-search"\nmethod = "blrl"\nwhat = 1\n'])
def test_a_file_that_is_no_configuration_is_refused(text: str):
    with pytest.raises(UserError):
        from_toml(text, "config.toml")


def test_settings_cannot_be_changed_afterwards():
    config = resolve("item-search", "blrl", "quick")
    with pytest.raises(ValueError, match="frozen"):
        config.tasks = 5


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_methods_says_what_their_classes_say(name: str):
    """`finite` stands in the table so that it is known before JAX is loaded."""
    kind = method(name).agent_type()
    assert kind.finite == METHODS[name].finite
    assert kind.settings_type is method(name).settings_type()
