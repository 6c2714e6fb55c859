"""The physics of several lanes in MuJoCo's own threads, before their environments step."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from posterity.errors import UserError
from posterity.families.base import Env
from posterity.types import FloatArray, HostArray


class BatchedPhysics:
    """The physics of several lanes together, in MuJoCo's own threads, before their environments step.

    An environment is handed the state it would come to, to the bit: time, positions, velocities and where the solver's
    next search begins. MuJoCo returns all but the last, which is in the data of the worker that did the lane; it does
    not tell which that was, and it may have gone on to another. A lane whose end no worker has does its frames itself.
    What follows from a state (places of geoms, contacts, forces) is not handed: observation, reward and ending do not
    read it, and who draws these bodies has to work it out first.
    """

    def __init__(self, envs: Sequence[Env], threads: int) -> None:
        from mujoco import rollout

        self.mujoco = mujoco = loaded()
        self.envs: list[Any] = [env.unwrapped for env in envs]
        self.model, self.frames = self.envs[0].model, self.envs[0].frame_skip  # all have the same sizes
        self.workers = [mujoco.MjData(self.model) for _ in range(threads)]
        self.pool = rollout.Rollout(nthread=threads)
        kind = mujoco.mjtState
        self.whole = kind.mjSTATE_INTEGRATION.value  # physics, then warm starts, then more
        sizes = [
            mujoco.mj_stateSize(self.model, part.value) for part in (kind.mjSTATE_FULLPHYSICS, kind.mjSTATE_WARMSTART)
        ]
        self.physics, self.warm = slice(sizes[0]), slice(sizes[0], sum(sizes))

    def __enter__(self) -> BatchedPhysics:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def __call__(self, lanes: Sequence[int], actions: HostArray) -> None:
        """Hands to the environments of `lanes`: in groups, so that in each there are as many workers as lanes."""
        for env in self.envs:
            env.handed = None
        groups = -(-len(lanes) // len(self.workers))
        for first in range(groups):
            group = lanes[first::groups]
            self._hand([self.envs[lane] for lane in group], [actions[lane] for lane in group])

    def _hand(self, envs: list[Any], actions: list[HostArray]) -> None:
        """One group."""
        space = envs[0].action_space
        begin = self._states([env.data for env in envs])
        control = np.empty((len(envs), self.frames, self.model.nu))
        control[:] = np.clip(actions, space.low, space.high)[:, None]
        end = np.empty((len(envs), self.frames, self.physics.stop))
        self.pool.rollout(
            [env.model for env in envs],
            self.workers,
            np.ascontiguousarray(begin[:, self.physics]),
            control,
            skip_checks=True,  # all shapes are final
            nstep=self.frames,
            initial_warmstart=np.ascontiguousarray(begin[:, self.warm]),
            state=end,
        )
        done = {state[self.physics].tobytes(): state for state in self._states(self.workers)}
        for env, held, after in zip(envs, control, end, strict=True):
            whole = done.get(after[-1].tobytes())
            if whole is not None and after[-1, 0] > after[-2, 0]:  # else MuJoCo left out frames, after a warning
                env.handed = held[0], whole

    def _states(self, datas: list[Any]) -> FloatArray:
        """A row for each."""
        rows = np.empty((len(datas), self.mujoco.mj_stateSize(self.model, self.whole)))
        for row, data in zip(rows, datas, strict=True):
            self.mujoco.mj_getState(self.model, data, row, self.whole)
        return rows


def loaded() -> ModuleType:
    """MuJoCo, or in one line how to come by it."""
    try:
        import mujoco
    except ImportError as error:
        raise UserError("This family needs MuJoCo: pip install 'posterity[mujoco]'") from error
    return mujoco
