import pytest

from posterity.agents import METHODS
from posterity.errors import UserError
from posterity.experiment.config import PRESETS, from_toml, resolve, to_toml
from posterity.families import FAMILIES, family_type

CASES = [
    (family, method, preset)
    for family in FAMILIES
    for method in METHODS
    for preset in PRESETS
    if METHODS[method].finite == family_type(family).finite
]


@pytest.mark.parametrize(("family", "method", "preset"), CASES)
def test_every_preset_of_every_family_and_method_resolves_and_survives_toml(family: str, method: str, preset: str):
    config = resolve(family, method, preset)
    assert (config.family, config.method, config.preset) == (family, method, preset)
    assert from_toml(to_toml(config), "here") == config


def test_changes_win_over_the_preset_also_inside_tables():
    config = resolve("random-mdp", "blrl", "quick", {"tasks": 3, "agent": {"models": 7}})
    assert config.tasks == 3
    assert config.model_dump()["agent"]["models"] == 7
    assert config.model_dump()["agent"]["known"] == 30


def test_item_search_is_the_papers_budget():
    config = resolve("item-search", "blrl", "paper")
    assert (config.tasks, config.iterations, config.steps) == (300, 10, 21)
    agent = config.model_dump()["agent"]
    assert (agent["models"], agent["gamma"], agent["tolerance"]) == (5, 0.95, 0.01)


def test_policy_gradients_take_twice_the_samples_and_the_published_constants():
    """A preset's `agent` is VBLRL's; another kind of method has its own table."""
    for family in ("cheetah-gravity", "hopper-bodyparts", "walker-bodyparts"):
        steps = resolve(family, "vblrl", "paper").steps
        assert all(resolve(family, method, "paper").steps == 2 * steps for method in ("npg", "ewc", "lpg-ftw"))
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
