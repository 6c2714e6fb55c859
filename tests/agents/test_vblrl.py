"""VBLRL's own properties, on a small agent with two lanes."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posterity.agents.base import Score, Strategy
from posterity.agents.training import VblrlSettings
from posterity.agents.vblrl import Mode, Vblrl
from posterity.errors import UserError
from posterity.models import horizon, network
from posterity.types import Budget, Key, Spec, Transition

SPEC = Spec(obs_dim=2, low=np.array([-1.0]), high=np.array([1.0]), steps=12, alive=None)
KEYS = [Key.of(0), Key.of(1)]
SMALL = {
    "planner": {"horizon": 3, "candidates": 12, "elites": 3, "rounds": 2, "particles": 2},
    "learner": {"world_steps": 3, "task_steps": 3, "task_rows": 8, "world_rows": 4, "world_tasks": 2},
    "network": {"hidden": [8]},
    "task_minimum": 12,
    "world_iterations": 1,
}


@cache
def agent(mode: Mode = "vblrl") -> Vblrl:
    return Vblrl(SPEC, VblrlSettings.model_validate(SMALL), Budget(tasks=3, iterations=3, steps=12), mode)


def rows(seed: int = 0, episodes: int = 1) -> Transition:
    """Twelve steps x' = x + (a, reward): one long walk, or several."""
    generator = np.random.default_rng(seed)
    action, obs = generator.uniform(-1, 1, (12, 1)), np.zeros((12, 2))
    following = np.zeros((12, 2))
    place = np.zeros(2)
    for step in range(12):
        if step % (12 // episodes) == 0:
            place = generator.normal(size=2)
        obs[step] = place
        place = place + np.array([0.1 * action[step, 0], 0.05])
        following[step] = place
    return Transition(obs, action, obs[:, 0], following, np.zeros(12, dtype=bool))


def learned(mode: Mode = "vblrl", tasks: int = 1, iterations: int = 1):
    state = agent(mode).init(KEYS)
    info: list[dict[str, Any]] = []
    for task in range(tasks):
        state = agent(mode).begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(iterations):
            new = [rows(10 * task + iteration), rows(100 + 10 * task + iteration)]
            state, info = agent(mode).learn([key.fold(task, iteration) for key in KEYS], state, new)
    return state, info


def same(one: Any, other: Any) -> bool:
    return all(bool((a == b).all()) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_the_task_posterior_starts_as_the_world_posterior_and_has_it_as_prior():
    state, _ = learned()
    later = agent().begin_task([key.fold(1) for key in KEYS], state)
    assert same(later.task.posterior, state.world.posterior)
    assert same(later.prior, state.world.posterior)
    assert not any(leaf.any() for leaf in jax.tree.leaves(later.task.optimiser)), "with a fresh optimiser"


def test_the_first_task_has_the_fixed_prior_since_nothing_is_believed_yet():
    state = agent().begin_task(KEYS, agent().init(KEYS))
    assert same(state.task.posterior, state.world.posterior)
    assert not any(leaf.any() for leaf in jax.tree.leaves(state.prior.mean))
    assert all(np.allclose(jax.nn.softplus(rho), 0.5) for rho in jax.tree.leaves(state.prior.rho))


def test_without_transfer_a_task_starts_fresh_with_the_fixed_prior():
    state, info = learned("single-task")
    later = agent("single-task").begin_task([key.fold(1) for key in KEYS], state)
    assert not same(later.task.posterior, state.world.posterior)
    assert not any(leaf.any() for leaf in jax.tree.leaves(later.prior.mean))
    assert "world_total" not in info[0]
    assert "task_total" in info[0]


def test_one_model_for_all_tasks_learns_and_acts_and_there_is_no_other():
    state, info = learned("hip-mdp")
    assert "task_total" not in info[0]
    assert same(agent("hip-mdp")._acting(state._replace(iteration=2)).posterior, state.world.posterior)


def test_the_world_posterior_acts_first_and_the_tasks_own_afterwards():
    state, _ = learned()
    state = agent().begin_task([key.fold(1) for key in KEYS], state)
    assert same(agent()._acting(state).posterior, state.world.posterior)
    state, _ = agent().learn([key.fold("x") for key in KEYS], state, [rows(3), rows(4)])
    assert same(agent()._acting(state).posterior, state.task.posterior)
    assert not same(state.task.posterior, state.world.posterior)


def test_actions_are_random_only_in_the_very_first_iteration():
    fresh = agent().begin_task(KEYS, agent().init(KEYS))
    assert agent()._random(fresh)
    state, _ = learned()
    assert not agent()._random(state)
    assert not agent()._random(agent().begin_task(KEYS, state))
    alone, _ = learned("single-task")
    assert agent("single-task")._random(agent("single-task").begin_task(KEYS, alone))


def test_a_task_learns_from_its_own_transitions_and_the_world_from_all():
    state, _ = learned(tasks=2, iterations=2)
    np.testing.assert_array_equal(state.replay.filled, [[24, 24, 0], [24, 24, 0]])


def test_plan_and_fit_compile_once_per_run():
    learned(tasks=2, iterations=2)
    obs, first = [np.zeros(2, dtype=np.float32)] * 2, [True, False]
    state, _ = learned(tasks=2, iterations=2)
    for step in range(3):
        state, _ = agent().act([key.fold(step) for key in KEYS], state, obs, first)
    state = agent().begin_task([key.fold(9) for key in KEYS], state)
    agent().act(KEYS, state, obs, first)
    for program in (agent()._plan, agent()._fit[("task",)], agent()._fit[("world",)], agent()._add):
        # JAX may have let go of it, under load seen once (0); more than one would be a shape that changes
        assert program._cache_size() <= 1  # pyright: ignore[reportAttributeAccessIssue]


def test_every_sixteenth_plan_is_imagined_once_more_and_that_is_the_forecast():
    """By the networks it was found by, within the horizon: what follows it is no part of the promise."""
    settings = VblrlSettings.model_validate({**SMALL, "horizon": {"use": True, "steps": 3, "hidden": [4]}})
    far = Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12))
    state, _ = far.learn(KEYS, far.begin_task(KEYS, far.init(KEYS)), [rows(0), rows(1)])
    asked = []
    for step in range(17):
        keys, obs = [key.fold(step) for key in KEYS], [np.full(2, 0.1 * step, np.float32)] * 2
        before, (state, actions) = state, far.act(keys, state, obs, [step == 0] * 2)
        if state.forecast[0, 2] > before.forecast[0, 2]:
            asked.append(step)
            model = far._acting(before)._replace(value=())
            for lane in range(2):
                one = jax.tree.map(lambda leaf, lane=lane: leaf[lane], (model, before.units, state.plan))
                draw, search = jax.random.split(jax.random.wrap_key_data(jnp.asarray(keys[lane].words(2))))
                returns = far.imagination.forward(draw, one[0], one[1], jnp.asarray(obs[lane]))
                found = jnp.concatenate([actions[lane][None], one[2].mean[:-1]])
                promised = returns(jax.random.split(search)[1], found[None])[0]
                added = state.forecast[lane] - before.forecast[lane]
                np.testing.assert_allclose(added[:2], [promised.mean(), promised.std()], rtol=1e-3, atol=1e-4)
    assert asked == [0, 16]


def test_a_run_with_gradients_from_the_kernel_learns_and_what_the_kernel_cannot_do_is_refused():
    small = {**SMALL, "network": {"hidden": [16]}}
    kernel = {**small, "learner": {**SMALL["learner"], "fused": "on"}}
    by_kernel = Vblrl(SPEC, VblrlSettings.model_validate(kernel), Budget(tasks=3, iterations=3, steps=12))
    assert by_kernel.engine["fit"] == "fused"
    assert agent().engine["fit"] == "plain (there is no NVIDIA GPU)"
    state, told = by_kernel.learn(KEYS, by_kernel.begin_task(KEYS, by_kernel.init(KEYS)), [rows(0), rows(1)])
    assert np.isfinite([info["world_log_likelihood"] for info in told]).all()
    assert not same(state.world.posterior, by_kernel.init(KEYS).world.posterior)
    refused = VblrlSettings.model_validate({**SMALL, "learner": {"fused": "on"}})
    with pytest.raises(UserError, match=r"learner.fused is on, but the fused fit needs 16, 32, 64 or 128 units"):
        Vblrl(SPEC, refused, Budget(tasks=3, iterations=3, steps=12))


def test_units_make_inputs_and_targets_of_the_first_task_standard_and_are_then_held():
    state, _ = learned()
    inputs = np.concatenate([rows(0).obs, rows(0).action], axis=1)
    np.testing.assert_allclose(state.units.input_mean[0], inputs.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(state.units.input_scale[0], inputs.std(axis=0), rtol=1e-3)
    later, _ = learned(tasks=2)
    assert same(later.units, state.units)


def test_a_model_that_diverges_ends_the_run_in_one_line():
    state, _ = learned()
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, state.world.posterior)
    with pytest.raises(UserError, match="The model diverged in task 0, iteration 1"):
        agent().learn(KEYS, state._replace(world=state.world._replace(posterior=broken)), [rows(1), rows(2)])


def kept(mode: Mode = "vblrl"):
    state, _ = learned(mode, tasks=2, iterations=2)
    return agent(mode).keep(KEYS, state)


def models(mode: Mode, score: Score, strategy: Strategy = "confidence"):
    """The posteriors that act, by name."""
    own, latest = kept(mode), jax.tree.map(lambda leaf: leaf + 1, kept(mode))
    names = {"task": own.task, "world": own.world, "today": latest.world}
    acting = [model.posterior for model in agent(mode).player(own, latest, score, strategy).models]
    return [next(name for name, q in names.items() if same(q, one)) for one in acting]


def test_each_score_is_acted_by_the_posterior_it_is_about():
    assert models("vblrl", "zero-shot") == ["world"]
    assert models("vblrl", "start") == models("vblrl", "train") == ["task"]
    assert models("vblrl", "back") == models("vblrl", "back", "blend") == ["task", "today"]
    assert models("vblrl", "back", "task-only") == ["task"]
    assert models("vblrl", "back", "world-only") == ["today"]
    assert models("hip-mdp", "train") == ["world"]
    assert models("hip-mdp", "back") == ["today"]
    assert models("single-task", "back") == ["task"]


@pytest.mark.parametrize("strategy", ["confidence", "blend", "task-only"])
def test_playing_gives_legal_actions_and_tells_whose_predictions_went_on(strategy: Strategy):
    player = agent().player(kept(), kept(), "back", strategy)
    after, actions = agent().play(KEYS, player, [np.zeros(2)] * 2, [True, True])
    assert np.all(np.abs(actions) <= 1)
    assert not same(after.plan, player.plan)
    again, repeated = agent().play(KEYS, player, [np.zeros(2)] * 2, [True, True])
    np.testing.assert_array_equal(actions, repeated)
    assert ((np.asarray(again.chosen.state) >= 0) & (np.asarray(again.chosen.state) <= 1)).all()


def test_before_anything_was_learned_play_is_random():
    fresh = agent().keep(KEYS, agent().begin_task(KEYS, agent().init(KEYS)))
    assert fresh.random.all()
    player = agent().player(fresh, fresh, "zero-shot", "confidence")
    _, actions = agent().play(KEYS, player, [np.zeros(2)] * 2, [True, True])
    np.testing.assert_array_equal(actions, agent()._random_actions(KEYS))
    assert not kept().random.any()


def test_one_particle_has_no_confidence():
    settings = VblrlSettings.model_validate({**SMALL, "planner": {**SMALL["planner"], "particles": 1}})
    alone = Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12))
    with pytest.raises(UserError, match="plans with one"):
        alone.player(kept(), kept(), "back", "confidence")
    player = alone.player(kept(), kept(), "back", "blend")  # what one network predicts to be chance is enough for that
    after, _ = alone.play(KEYS, player, [np.zeros(2)] * 2, [True, True])
    assert not same(after.plan, player.plan)
    assert ((np.asarray(after.chosen.state) > 0) & (np.asarray(after.chosen.state) < 1)).all()


def test_a_run_goes_back_as_it_is_set_to_unless_told_otherwise():
    settings = VblrlSettings.model_validate({**SMALL, "backward": {"strategy": "blend"}})
    budget = Budget(tasks=3, iterations=3, steps=12)
    assert agent().strategies == ("confidence", "blend", "task-only", "world-only")
    assert Vblrl(SPEC, settings, budget).strategies == ("blend", "confidence", "task-only", "world-only")
    assert Vblrl(SPEC, settings, budget, "hip-mdp").strategies == ("confidence",)


def test_the_world_posterior_acts_first_and_then_as_often_as_it_is_set_to():
    state, _ = learned(tasks=2, iterations=2)
    for every, expected in ((0, [0]), (3, [0, 3, 6]), (1, [*range(8)])):
        settings = VblrlSettings.model_validate({**SMALL, "world_every": every})
        often = Vblrl(SPEC, settings, Budget(tasks=3, iterations=8, steps=12))
        acting = [often._acting(state._replace(iteration=iteration)).posterior for iteration in range(8)]
        assert [i for i, q in enumerate(acting) if same(q, state.world.posterior)] == expected
    settings = VblrlSettings.model_validate({**SMALL, "world_every": 2, "world_iterations": 2})
    assert Vblrl(SPEC, settings, Budget(tasks=3, iterations=8, steps=12)).start == 3, "the third is the world's too"


def test_start_is_the_first_iteration_that_the_tasks_own_posterior_acts_in():
    assert agent().start == 1
    for minimum, iterations, start in ((12, 2, 2), (13, 0, 2), (36, 1, 3), (1, 0, 1)):
        settings = VblrlSettings.model_validate({**SMALL, "task_minimum": minimum, "world_iterations": iterations})
        assert Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12)).start == start


def test_fitting_both_posteriors_in_one_scan_is_fitting_them_one_after_the_other():
    """To float tolerance: products of another shape round in another order."""
    budget = Budget(tasks=3, iterations=3, steps=12)
    learner = {**SMALL["learner"], "task_rows": 5}  # fewer than the world's 8: the task's batches are filled up
    alone = Vblrl(SPEC, VblrlSettings.model_validate({**SMALL, "learner": learner}), budget)
    both = Vblrl(SPEC, VblrlSettings.model_validate({**SMALL, "learner": {**learner, "together": "on"}}), budget)
    state = alone.begin_task(KEYS, alone.init(KEYS))
    apart, told = alone.learn(KEYS, state, [rows(0), rows(1)])
    used, together = [], both._fit[("task", "world")]
    both._fit[("task", "world")] = lambda *args: used.append(1) or together(*args)
    fresh = both.begin_task(KEYS, both.init(KEYS))
    joined, said = both.learn(KEYS, fresh, [rows(0), rows(1)])
    for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(joined), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert told[0].keys() == said[0].keys()
    assert used == [1]


def test_a_value_is_learned_goes_on_to_the_next_task_and_is_kept_for_evaluation():
    settings = VblrlSettings.model_validate({**SMALL, "horizon": {"use": True, "steps": 3, "hidden": [4]}})
    budget = Budget(tasks=3, iterations=3, steps=12)
    cases: tuple[tuple[Mode, bool], ...] = (("vblrl", True), ("single-task", False), ("hip-mdp", True))
    for mode, goes_on in cases:
        far = Vblrl(SPEC, settings, budget, mode)
        state = far.begin_task(KEYS, far.init(KEYS))
        learned_state, told = far.learn(KEYS, state, [rows(0), rows(1)])
        assert told[0]["value_error"] > 0
        assert not same(learned_state.value.value.weights, state.value.value.weights)
        value = learned_state.value.value
        for lane, seen in enumerate((rows(0).reward, rows(1).reward)):
            bounds = min(seen.min(), 0.0) / 0.01, max(seen.max(), 0.0) / 0.01
            np.testing.assert_allclose((value.low[lane], value.high[lane]), bounds, rtol=1e-3)
        worth = jax.vmap(lambda v, u: horizon.predict(v, u, jnp.ones((3, 2)), 0.99))(value, learned_state.units)
        assert (worth != 0).any(), "what follows counts"
        assert far._fit_value._cache_size() <= 1
        later = far.begin_task([key.fold(1) for key in KEYS], learned_state)
        assert same(later.value, learned_state.value) == goes_on
        strategy = "confidence" if mode == "hip-mdp" else "task-only"
        player = far.player(far.keep(KEYS, learned_state), far.keep(KEYS, learned_state), "back", strategy)
        assert same(player.models[0].value, learned_state.value.value)
        _, actions = far.play(KEYS, player, [np.zeros(2)] * 2, [True, True])
        assert np.isfinite(actions).all()


def drifting(sign: float, seed: int) -> Transition:
    """Twelve steps of x' = x + (sign, 0): two tasks of opposite sign contradict each other."""
    generator = np.random.default_rng(seed)
    obs = generator.normal(size=(12, 2))
    return Transition(
        obs, generator.uniform(-1, 1, (12, 1)), obs[:, 0], obs + np.array([sign, 0.0]), np.zeros(12, dtype=bool)
    )


def test_the_world_learns_from_all_tasks_and_a_task_from_its_own():
    """After a task of drift +1 and one of drift -1 the task expects about -1, the world about 0."""
    learner = {**SMALL["learner"], "world_steps": 400, "task_steps": 400, "world_rate": 0.01, "task_rate": 0.01}
    settings = VblrlSettings.model_validate({**SMALL, "learner": {**learner, "world_rows": 16}, "normalise": False})
    able = Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12))
    state = able.init(KEYS)
    for task, sign in enumerate((1.0, -1.0)):
        state = able.begin_task([key.fold(task) for key in KEYS], state)
        for iteration in range(2):
            new = [drifting(sign, 10 * task + iteration), drifting(sign, 100 + 10 * task + iteration)]
            state, _ = able.learn([key.fold(task, iteration) for key in KEYS], state, new)
    asked = np.concatenate([drifting(1.0, 7).obs, np.zeros((12, 1))], axis=1).astype(np.float32)
    for lane in (0, 1):
        drift = {}
        for name, learned_part in (("task", state.task), ("world", state.world)):
            mean = jax.tree.map(lambda leaf, lane=lane: leaf[lane], learned_part.posterior.mean)
            drift[name] = float(network.forward(mean, jnp.asarray(asked), settings.network).mean[:, 1].mean())
        assert drift["task"] < -0.7
        assert abs(drift["world"]) < 0.5


def test_the_task_posterior_is_drawn_towards_its_prior():
    """With a heavy KL the fit ends nearer to where the prior was put than a fit towards another one."""
    settings = VblrlSettings.model_validate(
        {**SMALL, "learner": {**SMALL["learner"], "kl_weight": 10.0, "task_steps": 50}}
    )
    heavy = Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12))
    state = heavy.begin_task(KEYS, heavy.init(KEYS))
    moved = jax.tree.map(lambda leaf: leaf + 0.5, state.prior.mean)
    near, _ = heavy.learn(KEYS, state._replace(prior=state.prior._replace(mean=moved)), [rows(0), rows(1)])
    far, _ = heavy.learn(KEYS, heavy.begin_task(KEYS, heavy.init(KEYS)), [rows(0), rows(1)])

    def distance(one: Any) -> float:
        pairs = zip(jax.tree.leaves(one.task.posterior.mean), jax.tree.leaves(moved), strict=True)
        return float(sum(((a - b) ** 2).sum() for a, b in pairs))

    assert distance(near) < distance(far)


def test_the_world_posterior_holds_a_later_task_as_tightly_as_the_factor_says():
    """Not the first task, whose prior is the fixed one, nor the world posterior."""

    def fitted(factor: float):
        learner = {**SMALL["learner"], "task_steps": 50, "kl_weight": 1.0, "inherited_kl": factor}
        one = Vblrl(SPEC, VblrlSettings.model_validate({**SMALL, "learner": learner}), Budget(3, 3, 12))
        first = one.learn(KEYS, one.begin_task(KEYS, one.init(KEYS)), [rows(0), rows(1)])[0]
        begun = one.begin_task(KEYS, jax.tree.map(jnp.copy, first))
        later = one.learn(KEYS, begun, [rows(2), rows(3)])[0]
        pairs = zip(*(jax.tree.leaves(q.mean) for q in (later.task.posterior, later.prior)), strict=True)
        return first, later, sum(float(((a - b) ** 2).sum()) for a, b in pairs)

    (first, later, near), (free, later_free, far) = fitted(1.0), fitted(0.0)
    for one, other in ((first.task, free.task), (later.world, later_free.world)):
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-4), one.posterior.mean, other.posterior.mean)
    assert near < 0.5 * far


def test_a_wider_hold_lets_spreads_be_wider_than_a_lighter_one_does():
    """In a later task; the first one, whose prior is the fixed one, is the same either way."""

    def spreads(hold: str):
        learner = {**SMALL["learner"], "task_steps": 50, "kl_weight": 1.0, "inherited_kl": 0.04, "inherited_hold": hold}
        one = Vblrl(SPEC, VblrlSettings.model_validate({**SMALL, "learner": learner}), Budget(3, 3, 12))
        first = one.learn(KEYS, one.begin_task(KEYS, one.init(KEYS)), [rows(0), rows(1)])[0]
        later = one.learn(KEYS, one.begin_task(KEYS, jax.tree.map(jnp.copy, first)), [rows(2), rows(3)])[0]
        leaves = [jax.tree.leaves(state.task.posterior.rho) for state in (first, later)]
        return [np.concatenate([np.ravel(jax.nn.softplus(leaf)) for leaf in each]).mean() for each in leaves]

    lighter, wider = spreads("lighter"), spreads("wider")
    np.testing.assert_allclose(lighter[0], wider[0], rtol=1e-4)
    assert wider[1] > 1.05 * lighter[1]


def test_the_hold_of_the_world_posterior_fades_as_a_task_is_met():
    learner = {**SMALL["learner"], "inherited_kl": 0.01, "inherited_rows": 100}
    lessons = Vblrl(SPEC, VblrlSettings.model_validate({**SMALL, "learner": learner}), Budget(3, 3, 12)).lessons
    held = [float(lessons._hold(jnp.int32(1), jnp.int32(rows))) for rows in (0, 50, 100, 200, 1000, 10**6)]
    np.testing.assert_allclose(held, [1.0, 1.0, 1.0, 0.5, 0.1, 0.01])
    assert float(lessons._hold(jnp.int32(0), jnp.int32(1000))) == 1.0, "the first task's prior is the fixed one"


def test_a_search_begins_where_the_last_one_ended_and_anew_with_an_episode():
    state, _ = learned()
    obs = [np.zeros(2, dtype=np.float32)] * 2
    far = state._replace(plan=jax.tree.map(lambda leaf: leaf + 0.9, state.plan))
    _, kept_on = agent().act(KEYS, far, obs, [False, False])
    _, anew = agent().act(KEYS, far, obs, [True, True])
    _, plain = agent().act(KEYS, state, obs, [True, True])
    np.testing.assert_array_equal(anew, plain)
    assert not np.array_equal(kept_on, anew)


def test_without_transfer_every_task_has_units_of_its_own():
    state, _ = learned("single-task")
    alone = agent("single-task")
    wide = [row._replace(obs=row.obs * 9.0, next_obs=row.next_obs * 9.0) for row in (rows(3), rows(4))]
    later = alone.begin_task([key.fold(1) for key in KEYS], state)
    later, _ = alone.learn([key.fold(2) for key in KEYS], later, wide)
    np.testing.assert_allclose(later.units.input_scale[0, :2], wide[0].obs.std(axis=0), rtol=1e-3)


def test_no_gradient_steps_leave_a_posterior_as_it_is():
    settings = VblrlSettings.model_validate({**SMALL, "learner": {**SMALL["learner"], "task_steps": 0}})
    idle = Vblrl(SPEC, settings, Budget(tasks=3, iterations=3, steps=12))
    state = idle.begin_task(KEYS, idle.init(KEYS))
    after, told = idle.learn(KEYS, state, [rows(0), rows(1)])
    assert same(after.task, state.task)
    assert "task_total" not in told[0]
