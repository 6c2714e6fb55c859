"""`posterity export`: what a run learned, as one file to take to a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from posterity.commands.arguments import TRUST, parse, terminal, typed
from posterity.errors import UserError
from posterity.settings import Settings, argument, setting


class ExportArgs(Settings):
    """Writes one learner of a run into a file that a controller can act, adapt and learn with."""

    folder: Path = argument(..., "The folder of the run.")
    out: Path = setting(Path("machine.posterity"), "The file to write.")
    seed: int | None = setting(None, "The seed of the learner to take; none: the run's first.", ge=0)
    task: Literal["latest", "new"] = setting(
        "latest", "The machine is the one of the run's latest task (latest), or one that was not met yet (new)."
    )
    policy: bool = setting(
        False, "Write only the network that acts, about 100 KiB, for a learner that does not plan. It cannot learn."
    )
    memory: int = setting(5000, "Transitions of each task to take along, and room for on the machine.", ge=2)
    room: int = setting(1, "Further tasks that there is room for.", ge=0)
    force: bool = setting(False, "Replace a file that is there.")
    trust: bool = setting(False, TRUST)


def export(args: Sequence[str]) -> int:
    """Writes the file and says what is in it."""
    asked = parse(ExportArgs, args, "export")
    if asked.out.exists() and not asked.force:
        raise UserError(f"{asked.out} is there already; --force replaces it")
    if not asked.out.parent.is_dir():
        raise UserError(f"There is no folder {asked.out.parent}")
    if asked.policy and asked.model_fields_set & {"memory", "room"}:
        raise UserError("--memory and --room are for a file that can go on learning; leave them out with --policy")
    from posterity.control.export import exported, exported_policy
    from posterity.control.machine import write_machine

    learned, made = _read(asked, typed("export", args))
    new = asked.task == "new"
    if asked.policy:
        machine = exported_policy(learned, made, new)
    else:
        machine = exported(learned, made, asked.memory, asked.room + new, new)
    write_machine(asked.out, machine)
    header, size = machine.header, asked.out.stat().st_size
    which = "a new task" if new else f"task {header.tasks}"
    amount = f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
    what = f"policy only, {amount}" if asked.policy else amount
    terminal().print(f"{asked.out}: {header.method} on {header.family}, seed {header.seed}, {which}; {what}")
    return 0


def _told(agent: object, state: object):
    """The learner of a run that had to detect its tasks, and how many it has found."""
    from posterity.agents.detection import Detecting, DetectingState
    from posterity.experiment.run import AnyAgent

    assert isinstance(agent, Detecting)
    assert isinstance(state, DetectingState)
    return cast(AnyAgent, agent.agent), state.inner, state.met


def _read(asked: ExportArgs, command: str):
    from posterity.agents.vblrl import Vblrl
    from posterity.control.export import Learned
    from posterity.experiment import checkpoint
    from posterity.experiment.folder import RunFolder, read_config
    from posterity.experiment.run import build
    from posterity.experiment.session import session
    from posterity.types import Budget, Key

    config, folder = read_config(asked.folder, trusted=asked.trust), RunFolder(asked.folder)
    if not folder.checkpoint.exists():
        raise UserError(f"{asked.folder} has no checkpoint to export")
    seeds = range(config.seed, config.seed + config.seeds)
    seed = config.seed if asked.seed is None else asked.seed
    if seed not in seeds:
        raise UserError(f"{asked.folder} has no seed {seed}; it has {seeds[0]} to {seeds[-1]}")
    family, agent = build(config)
    position = folder.position()
    if (position.task, position.iteration) == (0, 0):
        raise UserError(f"{asked.folder} has learned nothing yet")
    template = agent.init([Key.of(each).fold("init") for each in seeds])
    state, _ = checkpoint.load(folder.checkpoint, template, agent.task_memory)
    budget = Budget(config.tasks, config.iterations, config.steps_per_iteration)
    met = position.task + (position.iteration > 0)
    settings = config.agent
    if config.boundaries == "detect":
        agent, state, met = _told(agent, state)
        settings = settings.model_copy(update={"replay": cast(Vblrl, agent).settings.replay})
    names = config.family, config.env, config.method, settings
    return Learned(*names, family.spec, budget, agent, state, seeds.index(seed), seed, met), session(command)
