"""Whether a family keeps what a run relies on, found out before the run. Every fault is one line.

A family of one's own is drawn from, made, and played for a few steps. What is wrong says what is expected instead.
What is odd but can be run is a note.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from numbers import Real

import gymnasium
import numpy as np
from gymnasium import spaces

from posterity.errors import UserError
from posterity.families.base import Env, Family, FiniteFamily
from posterity.families.estimate import box_words
from posterity.plugins import failing, kind
from posterity.types import FiniteSpec, FloatArray, HostArray, Key, Spec, StepFunction, Task, Transition

STEPS = 50  # that are played of a task
LARGE = 1e9  # numbers beyond this are taken for a fault: their squares do not fit the networks' arithmetic
CLOSE = 1e-4  # a known reward may be off by this share of the rewards seen


def checked_spec(family: Family) -> Spec | FiniteSpec:
    """The spec of a family, or one line that says what is wrong with it."""
    name = type(family).__name__
    try:
        spec = family.spec
    except AttributeError as error:
        raise UserError(f"{name} has no spec: set it to a posterity.types.Spec, or a FiniteSpec ({error})") from error
    if family.finite and not isinstance(spec, FiniteSpec):
        raise UserError(f"{name}.spec is {kind(spec)}; a finite family has a posterity.types.FiniteSpec")
    if not family.finite and not isinstance(spec, Spec):
        raise UserError(f"{name}.spec is {kind(spec)}; expected a posterity.types.Spec")
    if not (isinstance(spec.max_episode_steps, int | np.integer) and spec.max_episode_steps >= 1):
        raise UserError(f"{name}.spec.max_episode_steps is {spec.max_episode_steps!r}; expected a whole number above 0")
    if isinstance(spec, Spec):
        _check_real(name, spec)
    return spec


def check_tasks(family: Family, tasks: Sequence[Task], count: int, key: Key) -> None:
    """Refuses a stream that is too short, out of order, not plain, or not the same when it is drawn again."""
    name = type(family).__name__
    if not isinstance(tasks, list | tuple) or not all(isinstance(task, Task) for task in tasks):
        raise UserError(f"{name}.tasks gave {kind(tasks)}; expected a list of posterity.types.Task")
    if len(tasks) < count:
        raise UserError(f"{name}.tasks gave {len(tasks)} tasks where {count} were asked for; run with fewer: --tasks")
    for index, task in enumerate(tasks[:count]):
        if task.index != index:
            raise UserError(f"{name}.tasks gave task {index} the index {task.index}; tasks are counted from 0")
        try:
            again = json.loads(json.dumps(dict(task.factors), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{name}.tasks: the factors of task {index} are {task.factors}; expected plain numbers, texts and "
                f"lists ({error})"
            ) from error
        if again != dict(task.factors):
            raise UserError(f"{name}.tasks: factors {task.factors} come back from JSON as {again}; use plain values")
    with failing(f"{name}.tasks failed"):
        first = list(family.tasks(key, 1))
    if first[:1] != list(tasks[:1]):
        raise UserError(
            f"{name}.tasks: a stream of {count} does not begin with that of 1; draw each task from its own key"
        )


def check(family: Family, count: int, seed: int) -> list[str]:
    """Refuses a family that cannot be run for `count` tasks; what is odd is returned, a line each."""
    spec, name, key = checked_spec(family), type(family).__name__, Key.of(seed).fold("stream")
    with failing(f"{name}.tasks failed"):
        tasks = family.tasks(key, count)
    check_tasks(family, tasks, count, key)
    notes = family.notes()
    for task in (tasks[0], tasks[count - 1])[: min(count, 2)]:
        if isinstance(family, FiniteFamily):
            _check_truth(family, task)
        env = made(family, task)
        found = _check_play(spec, env, f"task {task.index} of {name}")
        notes += [note for note in found if note not in notes and not (family.notes() and note.startswith("episodes"))]
        with failing(f"{name}: closing the environment of task {task.index} failed"):
            env.close()
    return notes


def made(family: Family, task: Task) -> Env:
    """The environment of a task, or one line that says why there is none."""
    name = type(family).__name__
    with failing(f"{name}.make failed for task {task.index} ({task.name})"):
        env = family.make(task)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{name}.make gave {kind(env)} for task {task.index}; expected a Gymnasium environment")
    return env


def numbers(obs: object, what: str, shape: tuple[int, ...]) -> HostArray:
    """An observation as an array of the right shape, or one line that says what it is instead."""
    try:
        array = np.asarray(obs)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise UserError(f"{what} is {kind(obs)}; expected numbers of shape {shape}")
    if array.shape != shape:
        raise UserError(f"{what} has the shape {array.shape}; expected {shape}")
    if not np.all(np.isfinite(array)) or (array.dtype.kind == "f" and np.abs(array).max(initial=0.0) > LARGE):
        raise UserError(f"{what} is {array}; expected finite numbers below {LARGE:g}")
    return array


def _check_real(name: str, spec: Spec) -> None:
    """The sizes and bounds of a spec with real numbers."""
    if not (isinstance(spec.obs_dim, int | np.integer) and spec.obs_dim >= 1):
        raise UserError(f"{name}.spec.obs_dim is {spec.obs_dim!r}; expected a whole number above 0")
    for side, bound in (("low", spec.low), ("high", spec.high)):
        if not isinstance(bound, np.ndarray) or bound.ndim != 1 or not len(bound) or bound.dtype.kind not in "fi":
            said = bound if isinstance(bound, Real) else kind(bound)
            raise UserError(f"{name}.spec.{side} is {said}; expected an array with a number for each action")
        if not np.isfinite(bound).all():
            raise UserError(f"{name}.spec.{side} is {bound}; expected finite bounds")
    if spec.low.shape != spec.high.shape or not (spec.low < spec.high).all():
        raise UserError(f"{name}.spec: low is {spec.low} and high is {spec.high}; expected low below high")
    if spec.actions and (spec.actions != len(spec.low) or (spec.low != 0).any() or (spec.high != 1).any()):
        raise UserError(f"{name}.spec has {spec.actions} discrete actions but other bounds; make it by Spec.discrete")
    if spec.alive is None:
        return
    shape = (spec.obs_dim,)
    box = spec.alive if isinstance(spec.alive, tuple) and len(spec.alive) == 2 else (None, None)
    if not all(isinstance(side, np.ndarray) and side.shape == shape for side in box):
        raise UserError(f"{name}.spec.alive is {kind(spec.alive)}; expected two arrays (low, high) of shape {shape}")
    if not (spec.alive[0] < spec.alive[1]).all():
        raise UserError(f"{name}.spec.alive: low is {spec.alive[0]} and high {spec.alive[1]}; expected low below high")


def _check_play(spec: Spec | FiniteSpec, env: Env, what: str) -> list[str]:
    """Plays some steps of an environment and compares them with the spec."""
    _check_spaces(spec, env, what)
    shape = (spec.obs_dim,) if isinstance(spec, Spec) else ()
    obs, again = (_first(env, what, shape) for _ in range(2))
    notes = [] if np.array_equal(obs, again) else [f"{what}: reset(seed=...) does not decide where an episode begins"]
    generator, rows = Key.of(0).fold("check").generator(), []
    for _ in range(STEPS):
        action = spec.random_action(generator)
        given = action if isinstance(spec, Spec) else int(action)
        with failing(f"{what}: the environment failed in step"):
            met = env.step(given)
        if not isinstance(met, tuple) or len(met) != 5:
            said = f"{len(met)} values" if isinstance(met, tuple) else kind(met)
            raise UserError(f"{what}: step gave {said}; expected (obs, reward, terminated, truncated, info)")
        following = numbers(met[0], f"{what}: an observation", shape)
        if isinstance(spec, FiniteSpec) and not 0 <= int(following) < spec.states:
            raise UserError(f"{what}: an observation is state {following}; expected 0 to {spec.states - 1}")
        reward = numbers(np.squeeze(np.asarray(met[1])), f"{what}: a reward", ())
        rows.append((obs, action, float(reward), following, bool(met[2]), bool(met[3])))
        obs = _first(env, what, shape, len(rows)) if met[2] or met[3] else following
    if isinstance(spec, Spec):
        notes += _check_known(spec, Transition(*(np.stack(column) for column in zip(*rows, strict=True))), what)
    return notes


def _check_spaces(spec: Spec | FiniteSpec, env: Env, what: str) -> None:
    space = env.action_space
    if isinstance(spec, FiniteSpec):
        if isinstance(space, spaces.Discrete) and space.n != spec.actions:
            raise UserError(f"{what}: the environment has {space.n} actions, but spec.actions is {spec.actions}")
        return
    if isinstance(space, spaces.Discrete):
        _check_discrete(spec, space, what)
    elif not isinstance(space, spaces.Box):
        raise UserError(f"{what}: the environment has the action space {space}; expected a Box or Discrete")
    elif spec.actions:
        raise UserError(f"{what}: spec.actions is {spec.actions}, but the environment's actions are {space}")
    else:
        _check_box(spec, space, what)
    if env.observation_space.shape not in (None, (spec.obs_dim,)):
        raise UserError(
            f"{what}: the environment's observations have shape {env.observation_space.shape}, but spec.obs_dim is "
            f"{spec.obs_dim}"
        )


def _check_discrete(spec: Spec, space: spaces.Discrete, what: str) -> None:
    if space.n != spec.actions:
        told = f"spec.actions is {spec.actions}" if spec.actions else "spec has real ones; make it by Spec.discrete"
        raise UserError(f"{what}: the environment has {space.n} discrete actions, but {told}")
    if space.start != 0:
        raise UserError(f"{what}: the environment's discrete actions begin at {space.start}; expected 0")


def _check_box(spec: Spec, space: spaces.Box, what: str) -> None:
    if space.shape != spec.low.shape:
        raise UserError(f"{what}: the environment's actions have shape {space.shape}, but spec.low {spec.low.shape}")
    if (spec.low < space.low - 1e-6).any() or (spec.high > space.high + 1e-6).any():
        raise UserError(
            f"{what}: spec allows actions from {spec.low} to {spec.high}, but the environment from {space.low} to "
            f"{space.high}"
        )


def _first(env: Env, what: str, shape: tuple[int, ...], episode: int = 0) -> HostArray:
    """The first observation of an episode."""
    with failing(f"{what}: the environment failed in reset"):
        met = env.reset(seed=Key.of(0).fold("check", episode).seed())
    if not (isinstance(met, tuple) and len(met) == 2 and isinstance(met[1], dict)):
        raise UserError(f"{what}: reset gave {kind(met)}; expected (obs, info)")
    return numbers(met[0], f"{what}: the first observation", shape)


def _check_known(spec: Spec, met: Transition, what: str) -> list[str]:
    """What the spec says of rewards and endings, against what was met."""
    ended, notes = np.asarray(met.terminated), list[str]()
    if spec.alive is not None:
        inside = np.all((met.next_obs >= spec.alive[0]) & (met.next_obs <= spec.alive[1]), axis=-1)
        wrong = ~ended & ~inside
        if wrong.any():
            raise UserError(
                f"{what}: spec.alive says that an episode ends outside {box_words(spec.alive)}, but it went on at "
                f"{_short(np.asarray(met.next_obs)[wrong][0])}"
            )
    if ended.any() and spec.alive is None and spec.terminated is None and not spec.learn_termination:
        notes.append("episodes terminate, but spec says nothing of it: plans go on past the end of an episode")
    if spec.reward is not None:
        known = _known("reward", spec.reward, met, what)
        off = np.abs(known - met.reward)
        if off.max() > CLOSE * max(1.0, float(np.abs(met.reward).max())):
            worst = int(off.argmax())
            raise UserError(
                f"{what}: reward= gives {known[worst]:.4g} where the environment gave {met.reward[worst]:.4g}"
            )
    if spec.terminated is not None:
        wrong = _known("terminated", spec.terminated, met, what).astype(bool) != ended
        if wrong.any():
            raise UserError(
                f"{what}: terminated= gives {not ended[wrong][0]} where the environment gave {bool(ended[wrong][0])}"
            )
    return notes


def _known(name: str, function: StepFunction, met: Transition, what: str) -> FloatArray:
    """What a known function says of the steps that were met."""
    with failing(f"{what}: {name}= failed"):
        values = np.asarray(function(met.obs, met.action, met.next_obs))
    return numbers(values, f"{what}: what {name}= gives", (len(np.asarray(met.reward)),)).astype(np.float64)


def _check_truth(family: FiniteFamily, task: Task) -> None:
    """That the true process of a finite task has the sizes of the spec, and probabilities."""
    name, spec = type(family).__name__, family.spec
    with failing(f"{name}.truth failed for task {task.index}"):
        truth = family.truth(task)
        pairs = (spec.states, spec.actions)
        sums = {"probability": truth.probability.sum(axis=-1), "reward": truth.reward.sum(axis=-1)}
        shapes = {"reward": (*pairs, len(spec.levels)), "start": (spec.states,)}
        found = {"reward": truth.reward.shape, "start": truth.start.shape}
    for part, shape in shapes.items():
        if found[part] != shape:
            raise UserError(f"{name}.truth: {part} has the shape {found[part]}; expected {shape}")
    if truth.probability.shape[:2] != pairs:
        raise UserError(
            f"{name}.truth: probability has the shape {truth.probability.shape}; expected {pairs} and outcomes"
        )
    for part, total in {**sums, "start": truth.start.sum()}.items():
        if not np.allclose(total, 1.0):
            raise UserError(f"{name}.truth: the probabilities of {part} do not sum to 1")
    if truth.successor is not None and not ((truth.successor >= 0) & (truth.successor < spec.states)).all():
        raise UserError(f"{name}.truth: a successor is not a state; expected 0 to {spec.states - 1}")


def _short(obs: HostArray) -> str:
    return np.array2string(obs, precision=3, threshold=8, max_line_width=10_000)
